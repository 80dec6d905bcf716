# SPDX-License-Identifier: Apache-2.0
"""Halves that are added to places: in float32, rounded once, in the order of the updates."""

from __future__ import annotations

import os
import subprocess
import sys

import marram.core as mx
import numpy as np
import pytest

DTYPES = ["float16", "bfloat16"]
SHAPES = [  # points, places, numbers of each
    (1000, 10, ()),
    (40000, 100, ()),  # sums in parts
    (40000, 30000, ()),
    (3000, 100000, ()),
    (300, 50, (33,)),
    (3000, 400, (64,)),
    (600, 9000, (5, 7)),
    (900, 20, (300,)),
]


def wide(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32)).astype(np.float64)


def halves(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> mx.array:
    return mx.array(rng.standard_normal(shape).astype(np.float32)).astype(getattr(mx, dtype))


def check(got: mx.array, out: mx.array, at: tuple[np.ndarray, ...], updates: np.ndarray) -> None:
    """Sums of float32 are off by some 2^-24 of the magnitudes, which may tip a rounding."""
    want, size = wide(out), abs(wide(out))
    np.add.at(want, at, updates)
    np.add.at(size, at, abs(updates))
    count = np.zeros(want.shape)
    np.add.at(count, at, np.ones(updates.shape))
    nearest = wide(mx.array(want, dtype=mx.float64).astype(out.dtype))
    assert (wide(got) == nearest).mean() > 0.999
    off = 2.0**-23 * np.sqrt(count + 1) * size
    half_ulp = abs(want) * {mx.float16: 2.0**-11, mx.bfloat16: 2.0**-8}[out.dtype] + 2.0**-25
    assert (abs(wide(got) - want) <= half_ulp + off).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_add__of_halves_is_rounded_once(shape: tuple[int, int, tuple[int, ...]], dtype: str) -> None:
    n, places, rest = shape
    rng = np.random.default_rng(n)
    out, updates = halves(rng, (places, *rest), dtype), halves(rng, (n, *rest), dtype)
    at = rng.integers(0, places, n)
    check(out.at[mx.array(at)].add(updates), out, (at,), wide(updates))
    gaps = mx.repeat(updates, 2, axis=0)[::2]
    turned = mx.contiguous(updates.T).T
    for other in (gaps, turned):
        assert np.array_equal(wide(out.at[mx.array(at)].add(other)), wide(out.at[mx.array(at)].add(updates)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((64, 100), 1, 700), ((30, 9, 40), 1, 50), ((300,), 0, 90_000), ((90_000,), 0, 300), ((2000, 7), 0, 20)],
    ids=str,
)
def test_take_along_axis__adds_gradients_of_halves_in_float32(
    shape: tuple[int, ...], axis: int, count: int, dtype: str
) -> None:
    rng = np.random.default_rng(count)
    size = (*shape[:axis], count, *shape[axis + 1 :])
    x, w = mx.zeros(shape, getattr(mx, dtype)), halves(rng, size, dtype)
    at = rng.integers(0, shape[axis], size)
    places = tuple(at if k == axis else n for k, n in enumerate(np.indices(size)))
    for weights in (w, mx.repeat(w, 2, axis=-1)[..., ::2], mx.broadcast_to(w[:1], size)):
        _, (got,) = mx.vjp(lambda x: mx.take_along_axis(x, mx.array(at), axis), [x], [weights])
        check(got, x, places, wide(weights))
    _, (ones,) = mx.vjp(lambda x: mx.take_along_axis(x, mx.zeros(size, mx.int32), axis), [x], [mx.ones_like(w)])
    first = np.moveaxis(wide(ones), axis, 0)
    assert (first[0] == wide(mx.array(float(count)).astype(x.dtype))).all()
    assert not first[1:].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_add__of_halves_at_several_indices(dtype: str) -> None:
    rng = np.random.default_rng(1)
    out, updates = halves(rng, (20, 30, 40), dtype), halves(rng, (50, 9, 40), dtype)
    i, j = rng.integers(0, 20, (50, 1)), rng.integers(0, 30, (50, 9))
    check(out.at[mx.array(i), mx.array(j)].add(updates), out, (i, j), wide(updates))
    columns = halves(rng, (20, 30, 700), dtype)
    k = rng.integers(0, 40, 700)
    got = out.at[:, :, mx.array(k)].add(columns)
    check(got, out, np.ix_(np.arange(20), np.arange(30), k), wide(columns))
    one = halves(rng, (), dtype)
    spread = mx.broadcast_to(one, (700,))
    flat = halves(rng, (90,), dtype)
    at = rng.integers(0, 90, 700)
    check(flat.at[mx.array(at)].add(spread), flat, (at,), wide(spread))


@pytest.mark.parametrize("dtype", DTYPES)
def test_add__of_many_small_halves_is_not_lost(dtype: str) -> None:
    """1 is no more than half an ulp of 256 (bfloat16), of 4096 (float16)."""
    t = getattr(mx, dtype)
    large = 256 if dtype == "bfloat16" else 4096
    for n, places in ((64, 4), (64, 4000), (70000, 4)):
        at = mx.zeros((n,), dtype=mx.int32)
        for rest in ((), (8,)):
            got = mx.full((places, *rest), large).astype(t).at[at].add(mx.ones((n, *rest)).astype(t))
            want = wide(mx.array(float(large + n)).astype(t))
            assert np.all(wide(got)[0] == want) and np.all(wide(got)[1:] == large)


def test_add__of_halves_to_an_embedding_is_its_gradient() -> None:
    table = mx.zeros((50, 16)).astype(mx.bfloat16)
    words = mx.array(np.random.default_rng(2).integers(0, 50, 30000))
    grad = mx.grad(lambda t: mx.sum(t[words].astype(mx.float32)))(table)
    counts = np.bincount(np.array(words), minlength=50).astype(np.float64)
    assert np.array_equal(wide(grad)[:, 0], wide(mx.array(counts, dtype=mx.float64).astype(mx.bfloat16)))


def test_add__of_halves_keeps_signs_of_zero_and_what_is_no_number() -> None:
    out = mx.array([-0.0, 1.0, 2.0, -0.0]).astype(mx.bfloat16)
    at = mx.array([0, 0, 1, 2, 2])
    got = np.array(out.at[at].add(mx.array([-0.0, -0.0, np.nan, np.inf, np.inf]).astype(mx.bfloat16)).astype(mx.float32))
    assert np.signbit(got[[0, 3]]).all() and np.isnan(got[1]) and got[2] == np.inf


BITS = """
import hashlib
import marram.core as mx
import numpy as np
h = hashlib.sha256()
rng = np.random.default_rng(0)
for n, places, rest in ((70000, 100, ()), (70000, 50000, ()), (70000, 900000, ()), (9000, 700, (64,)), (9000, 20000, (24,))):
    for t in (mx.float16, mx.bfloat16):
        out = mx.array(rng.standard_normal((places, *rest)).astype("f4")).astype(t)
        updates = mx.array(rng.standard_normal((n, *rest)).astype("f4")).astype(t)
        got = out.at[mx.array(rng.integers(0, places, n) ** 2 % places)].add(updates)
        h.update(np.array(got.view(mx.uint16)).tobytes())
print(h.hexdigest())
"""


def test_add__of_halves_has_the_same_bits_on_any_threads() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", BITS], env={**os.environ, "MARRAM_NUM_THREADS": n}, check=True, capture_output=True, text=True
        ).stdout
        for n in ("1", "2", "5")
    }
    assert len(digests) == 1
