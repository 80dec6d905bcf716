# SPDX-License-Identifier: Apache-2.0
"""Kernels whose route depends on sizes that the sweep does not reach."""

from __future__ import annotations

import marram.core as mx
import numpy as np
import pytest

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(4, 4, 4), (8, 8, 8), (3, 5, 8), (1, 2, 4), (8, 1, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tiny_products__are_sums_of_products(shape: tuple[int, int, int], dtype: str) -> None:
    m, k, n = shape
    a, b = RNG.standard_normal((5, 20, k, m)).astype(dtype), RNG.standard_normal((20, k, n)).astype(dtype)
    ours = [mx.array(x, dtype=getattr(mx, dtype)) for x in (a, b)]
    got = np.array(ours[0].swapaxes(-1, -2) @ ours[1])
    np.testing.assert_allclose(got, np.swapaxes(a, -1, -2) @ b, atol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("n", [1, 5, 4096, 70000, 200000])
def test_partition__has_the_kth_in_its_place(n: int) -> None:
    x = (50 * RNG.standard_normal(n)).astype(np.float32).round()
    x[::7] = np.nan
    for k in {0, n // 2, n - 1}:
        got, s = np.array(mx.partition(mx.array(x), k)), np.sort(x)
        for part in (slice(0, k), slice(k, k + 1), slice(k + 1, n)):
            np.testing.assert_array_equal(np.sort(got[part]), s[part])
    np.testing.assert_array_equal(np.array(mx.topk(mx.array(x), min(n, 9))), s[n - min(n, 9) :])


@pytest.mark.parametrize("index", [(), (6,), (2, 3)])
def test_take__along_the_last_axis_reads_each_row(index: tuple[int, ...]) -> None:
    x, i = RNG.standard_normal((3, 4, 5)).astype(np.float32), RNG.integers(-5, 5, index)
    np.testing.assert_array_equal(np.array(mx.take(mx.array(x), mx.array(i), axis=2)), np.take(x, i, 2))
    with pytest.raises(IndexError):
        mx.eval(mx.take(mx.array(x), mx.array(np.full(index, 5)), axis=2))


@pytest.mark.parametrize("name", ["float32", "int32", "float64"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted__of_many_agrees_with_numpy(name: str, side: str) -> None:
    s = np.sort(RNG.integers(0, 500, 1000)).astype(name)
    v = RNG.integers(-5, 505, (3, 101)).astype(name)
    if name != "int32":
        s[-3:], v[0, 5] = np.nan, np.nan
    d = getattr(mx, name)
    got = np.array(mx.searchsorted(mx.array(s, dtype=d), mx.array(v, dtype=d), side=side))
    np.testing.assert_array_equal(got, np.searchsorted(s, v, side))


def test_scatter__of_repeated_places_is_a_sum_for_any_number_of_threads() -> None:
    i, u = RNG.integers(0, 100, 100_000), RNG.integers(-9, 9, 100_000).astype(np.float32)
    want = np.zeros(100, np.float32)
    np.add.at(want, i, u)
    np.testing.assert_array_equal(np.array(mx.zeros((100,)).at[mx.array(i)].add(mx.array(u))), want)


@pytest.mark.parametrize("lq", [3, 40])
def test_attention__gradients_are_those_of_the_composed_one(lq: int) -> None:
    q, k, v = (RNG.standard_normal(s) for s in ((1, 4, lq, 8), (1, 2, 50, 8), (1, 2, 50, 6)))
    mask, sinks = RNG.standard_normal((4, 1, 50)), RNG.standard_normal(4)

    def loss(*x: mx.array) -> mx.array:
        y = mx.fast.scaled_dot_product_attention(*x[:3], scale=0.3, mask=x[3], sinks=x[4])
        return (y * y).sum()

    given = (q, k, v, mask, sinks)
    narrow = mx.grad(loss, argnums=(0, 1, 2, 3, 4))(*(mx.array(x, dtype=mx.float32) for x in given))
    wide = mx.grad(loss, argnums=(0, 1, 2, 3, 4))(*(mx.array(x, dtype=mx.float64) for x in given))
    for a, b in zip(narrow, wide, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), atol=2e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise__is_a_convolution_for_each_channel(stride: int) -> None:
    x, w = RNG.standard_normal((2, 9, 600)).astype(np.float32), RNG.standard_normal((600, 3, 1)).astype(np.float32)
    got = mx.conv1d(mx.array(x), mx.array(w), stride=stride, padding=1, groups=600)
    pad = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    want = sum(pad[:, t : t + 9] * w[:, t, 0] for t in range(3))[:, ::stride]
    np.testing.assert_allclose(np.array(got), want, atol=1e-5)
