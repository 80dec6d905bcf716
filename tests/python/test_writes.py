# SPDX-License-Identifier: Apache-2.0
"""Writes in place: memory, time, and that nobody sees them who should not."""

import random

import marram.core as mx
import numpy as np
import pytest

N = 1 << 20


def fresh(n=N):
    x = mx.arange(n, dtype=mx.float32) + 0
    mx.eval(x)
    return x


def extra(write):
    """Bytes beyond what there was while ten writes are evaluated."""
    x = fresh()
    for _ in range(3):
        x = write(x)
        mx.eval(x)
    mx.synchronize()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    for _ in range(10):
        x = write(x)
        mx.eval(x)
    for _ in range(10):
        x = write(x)
    mx.eval(x)
    return mx.get_peak_memory() - before


def element(x):
    x[7] = 1
    return x


def slices(x):
    x[5:100:3] = mx.arange(32)
    return x


def gathered(x):
    x[mx.array([5, 9, 5])] = 2
    return x


def added(x):
    x[8:16] += 1
    return x


def column(x):
    x = x.reshape(1024, 1024)
    x[:, 3] += 1
    return x


WRITES = {
    "element": element,
    "slice": slices,
    "gathered": gathered,
    "added": added,
    "column": column,
    "at": lambda x: x.at[mx.array([1, 1])].add(1),
    "at slice": lambda x: x.at[3:9].multiply(2),
    "put": lambda x: mx.put_along_axis(x, mx.array([3]), mx.array(1.0), 0),
    "slice_update": lambda x: mx.slice_update(x, mx.ones((3,)), mx.array([4]), [0]),
}


@pytest.mark.parametrize("name", WRITES)
def test_write__takes_no_memory_for_the_whole_array(name):
    # now and then a worker has not let go of the last one yet: one copy
    assert min(extra(WRITES[name]) for _ in range(5)) < N


def test_write__leaves_what_others_hold():
    x = fresh(64)
    same, view, lazy = mx.array(x), x[4:8], x + 1
    numbers = np.array(x)
    seen = memoryview(x[0:64])
    x[5] = -1
    x[mx.array([6])] = -2
    mx.eval(x)
    assert x.tolist()[4:8] == [4, -1, -2, 7]
    assert view.tolist() == [4, 5, 6, 7]
    assert lazy.tolist() == [float(i + 1) for i in range(64)]
    assert same.tolist() == numbers.tolist() == list(range(64))
    assert seen[5] == 5.0


def test_write__of_a_part_of_itself():
    x, y = fresh(16), np.arange(16, dtype=np.float32)
    x[1:] = x[:-1]
    y[1:] = y[:-1].copy()
    assert x.tolist() == y.tolist()
    x[:] = x
    assert x.tolist() == y.tolist()
    x[mx.array([2, 3])] = x[::-1][:2]
    y[[2, 3]] = y[::-1][:2].copy()
    assert x.tolist() == y.tolist()


def test_write__into_a_captured_value_keeps_it():
    x = fresh(8)

    def f(w):
        y = mx.array(x)
        y[2] = w[0]
        return (y * y).sum()

    assert mx.grad(f)(mx.array([3.0])).tolist() == [6.0]
    assert mx.compile(f)(mx.array([3.0])).item() == 140 - 4 + 9
    assert x.tolist() == list(range(8))


def test_write__that_fails_leaves_the_old_values():
    x = fresh(8)
    kept = x[0:4]
    x[mx.array([8])] = 1
    with pytest.raises(IndexError, match="index 8"):
        mx.eval(x)
    assert kept.tolist() == [0, 1, 2, 3]
    y = fresh(8)
    old = mx.array(y)
    y = mx.put_along_axis(y, mx.array([1, -9]), mx.array(0.0), 0)
    with pytest.raises(IndexError, match="index -9"):
        mx.eval(y)
    assert old.tolist() == list(range(8))


def step(r, ours, numpy):
    """One random write or read of a pool of arrays."""
    i = r.randrange(len(ours))
    a, b = sorted((r.randrange(13), r.randrange(13)))
    kind = r.randrange(9)
    x, y = ours[i], numpy[i]
    j = r.randrange(len(ours))
    k = [r.randrange(12) for _ in range(3)]
    if kind == 0:
        x[a:b] = a
        y[a:b] = a
    elif kind == 1:
        x[a:b] += ours[j][a:b]
        y[a:b] += numpy[j][a:b].copy()
    elif kind == 2:
        x[mx.array(k)] = ours[j][k[0]]
        y[k] = numpy[j][k[0]]
    elif kind == 3:
        ours[i] = x.at[mx.array(k)].add(1)
        numpy[i] = y = y.copy()
        np.add.at(y, k, 1)
    elif kind == 4:
        ours[i] = x[::-1] + 1
        numpy[i] = y[::-1] + 1
    elif kind == 5:
        ours[j] = mx.array(x)
        numpy[j] = y.copy()
    elif kind == 6:
        ours[i] = mx.concatenate([x[6:], ours[j][:6]])
        numpy[i] = np.concatenate([y[6:], numpy[j][:6]])
    elif kind == 7:
        x[:] = ours[j][::-1]
        y[:] = numpy[j][::-1].copy()
    else:
        mx.eval(r.sample(ours, 2))


@pytest.mark.parametrize("seed", range(150))
def test_writes__in_any_order_give_what_numpy_gives(seed):
    r = random.Random(seed)
    numpy = [np.arange(12, dtype=np.int32) * (i + 1) for i in range(4)]
    ours = [mx.array(x) for x in numpy]
    streams = [mx.default_stream(mx.default_device()), mx.new_stream(mx.cpu)]
    for _ in range(60):
        with mx.stream(streams[r.random() < 0.2]):
            step(r, ours, numpy)
    for x, y in zip(ours, numpy, strict=True):
        assert x.tolist() == y.tolist()
