# SPDX-License-Identifier: Apache-2.0
"""Arrays of more than 2^31 elements: sizes, counts and offsets of 64 bits.

Slow (`make test-slow`): each test needs 2 to 7 GB of memory.
"""

import marram.core as mx
import numpy as np
import pytest

pytestmark = pytest.mark.slow
N = 2**31 + 77  # beyond what 32 bits, signed, can count
FAR = 2**31 + 11


@pytest.fixture(autouse=True)
def freed():
    yield
    mx.clear_cache()


@pytest.fixture
def x():
    """Zeros but for a 3 near the start and a 5 beyond 2^31."""
    a = np.zeros(N, np.int8)
    a[7], a[FAR] = 3, 5
    x = mx.array(a)
    del a
    assert x.size == N
    assert x.nbytes == N
    return x


def test_reductions__see_every_element(x):
    assert mx.sum(x).item() == 8
    assert mx.max(x).item() == 5
    assert mx.count_nonzero(x).item() == 2
    assert mx.any(x > 4).item() is True
    assert mx.argmax(x).item() == FAR
    assert mx.argmin(x).item() == 0


def test_sum__counts_beyond_32_bits():
    ones = mx.ones((N,), dtype=mx.int8)
    mx.eval(ones)
    total = mx.sum(ones.astype(mx.int64)).item()  # an assert would keep the cast alive
    assert total == N
    assert mx.mean(ones).item() == 1.0
    assert mx.sum(ones.reshape(-1, 1), axis=0).item() == (N + 2**31) % 2**32 - 2**31  # int32 wraps


def test_indexing__reaches_beyond_32_bits(x):
    assert x[FAR].item() == 5
    assert x[FAR - N].item() == 5
    assert x[FAR - 2 : FAR + 2].tolist() == [0, 0, 5, 0]
    assert x[FAR::-FAR].tolist() == [5, 0]
    assert x[7::2**30].tolist() == [3, 0, 0]
    index = mx.array([7, FAR, -1], dtype=mx.int64)
    assert x[index].tolist() == [3, 5, 0]
    assert mx.take(x, index).tolist() == [3, 5, 0]
    assert mx.take(x, mx.array([FAR], dtype=mx.uint32)).tolist() == [5]
    with pytest.raises(IndexError):
        x[N]
    with pytest.raises(IndexError):
        mx.eval(x[mx.array([N], dtype=mx.int64)])


def test_updates__reach_beyond_32_bits(x):
    y = x.at[mx.array([FAR, FAR, 2**31], dtype=mx.int64)].add(1)
    assert y[FAR].item() == 7
    assert y[2**31].item() == 1
    assert y[7].item() == 3
    del y
    x[FAR + 1] = 9
    assert x[FAR : FAR + 2].tolist() == [5, 9]


def test_joining__counts_beyond_32_bits(x):
    y = mx.concatenate([x, mx.array([1, 2], dtype=mx.int8)])
    assert y.size == N + 2
    assert y[FAR].item() == 5
    assert y[N:].tolist() == [1, 2]


def test_elementwise__covers_everything(x):
    y = x * 2 + 1
    assert y[FAR].item() == 11
    assert y[N - 1].item() == 1
    assert mx.max(y).item() == 11


def test_rows__beyond_32_bits(x):
    y = x[: 2**31 + 64].reshape(-1, 64)
    assert y.shape == (2**25 + 1, 64)
    assert mx.sum(y, axis=1)[FAR // 64].item() == 5
    assert mx.max(y, axis=0)[FAR % 64].item() == 5
    assert y[FAR // 64, FAR % 64].item() == 5
    flipped = mx.contiguous(y.T)
    assert flipped[FAR % 64, FAR // 64].item() == 5


def test_scans__keep_their_dtype(x):
    y = mx.cumsum(x)
    assert y.dtype is mx.int8
    assert y[6:8].tolist() == [0, 3]
    assert y[FAR - 1 : FAR + 1].tolist() == [3, 8]
    assert y[N - 1].item() == 8


def test_creation__beyond_32_bits():
    y = mx.arange(N, dtype=mx.uint8)
    assert y.size == N
    assert y[FAR].item() == FAR % 256
    assert y[N - 1].item() == (N - 1) % 256
    bits = mx.random.bits((N,), 1, key=mx.random.key(0))
    assert bits.size == N


def test_conversion__shares_beyond_32_bits(x):
    a = np.asarray(x)
    assert a.size == N
    assert a[FAR] == 5


def test_broadcast__needs_no_memory():
    one = mx.array([1], dtype=mx.int8)
    before = mx.get_active_memory()
    v = mx.broadcast_to(one, (2**33,))
    mx.eval(v)
    assert v.size == 2**33
    assert v[2**33 - 1].item() == 1
    assert v[5::2**32].tolist() == [1, 1]
    assert mx.get_active_memory() - before < 2**20
    assert mx.any(v).item() is True
    assert mx.all(v).item() is True
    assert mx.argmax(v[: 2**32 - 1]).item() == 0
    with pytest.raises(OverflowError):  # its index is uint32
        mx.argmax(v)

