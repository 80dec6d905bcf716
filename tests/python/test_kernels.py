# SPDX-License-Identifier: Apache-2.0
"""Kernels whose route depends on sizes that the sweep does not reach."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import partial

import marram.core as mx
import numpy as np
import pytest

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(4, 4, 4), (8, 8, 8), (3, 5, 8), (1, 2, 4), (8, 1, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64", "complex128"])
@pytest.mark.parametrize("turned", [(), (0,), (1,), (0, 1)])
def test_tiny_products__are_sums_of_products(shape: tuple[int, int, int], dtype: str, turned: tuple[int, ...]) -> None:
    m, k, n = shape
    at = [(5, 20, m, k), (20, k, n)]
    at = [(*s[:-2], s[-1], s[-2]) if i in turned else s for i, s in enumerate(at)]
    x = [RNG.standard_normal(s) + (1j * RNG.standard_normal(s) if "complex" in dtype else 0) for s in at]
    ours = [mx.array(v, dtype=getattr(mx, dtype)) for v in x]
    wide = "complex128" if "complex" in dtype else "float64"
    x = [np.array(v.astype(getattr(mx, wide))) for v in ours]
    ours = [v.swapaxes(-1, -2) if i in turned else v for i, v in enumerate(ours)]
    x = [v.swapaxes(-1, -2) if i in turned else v for i, v in enumerate(x)]
    got, want = ours[0] @ ours[1], x[0] @ x[1]
    assert got.dtype == getattr(mx, dtype)
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype, 0.0)  # of the result, rounded once
    off = np.abs(np.array(got.astype(getattr(mx, wide))) - want)
    assert (off <= eps * np.abs(want) + (1e-13 if dtype in ("float64", "complex128") else 1e-5)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_tiny_products__of_each_item_are_those_of_it_alone(dtype: str) -> None:
    a, b = (RNG.standard_normal((1000, 5, 7)) for _ in range(2))
    a[3, 2, 1], b[5, 1, 1] = np.inf, np.nan
    a, b = mx.array(a, dtype=getattr(mx, dtype)), mx.array(b, dtype=getattr(mx, dtype)).swapaxes(-1, -2)
    got, part = np.array((a @ b).view(mx.uint8)), np.array((a[300:316] @ b[300:316]).view(mx.uint8))
    np.testing.assert_array_equal(got[300:316], part)
    wide = mx.complex64 if dtype == "complex64" else mx.float32
    finite = np.isfinite(np.array((a @ b).astype(wide))).reshape(1000, -1).all(1)
    assert not finite[3] and not finite[5] and finite.sum() == 998


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


@pytest.mark.parametrize("name", ["float32", "float64", "int32", "uint64", "float16", "complex64"])
def test_scatter__of_many_numbers_into_few_places(name: str) -> None:
    n, d = 70_001, getattr(mx, name)
    i = RNG.integers(-50, 50, n)
    u = mx.array(RNG.integers(0, 9, 2 * n), dtype=d)
    start = mx.array(RNG.integers(0, 5, 50), dtype=d)
    wide = np.array(start.astype(mx.float64) if name != "complex64" else start)
    np.add.at(wide, i, np.array(u[::2].astype(mx.float64) if name != "complex64" else u[::2]))
    got = start.at[mx.array(i)].add(u[::2])
    if name == "float16":  # sums of halves round on their way
        np.testing.assert_allclose(np.array(got.astype(mx.float64)), wide, rtol=0.2)
    else:
        np.testing.assert_array_equal(np.array(got), wide.astype(np.array(got).dtype))
    column = mx.zeros((50, 1), dtype=d).at[mx.array(i)[::-1]].add(u[::-2].reshape(n, 1))
    assert column.shape == (50, 1)


def test_scatter__into_few_places_checks_first_and_keeps_signs() -> None:
    i = np.full(100_000, 3)
    x = mx.array([-0.0, 0.0, -0.0, 1.0])
    assert str(x.at[mx.array(i)].add(mx.ones((100_000,))).tolist()) == "[-0.0, 0.0, -0.0, 100001.0]"
    i[70_000], i[90_000] = 4, -9
    y = x + 0
    y[mx.array(i)] += mx.ones((100_000,))
    for _ in range(2):
        with pytest.raises(IndexError, match="index 4 is out of range for axis 0 of size 4"):
            mx.eval(mx.zeros((4,)).at[mx.array(i)].add(mx.ones((100_000,))))
    assert x[3].item() == 1


@pytest.mark.parametrize("n", [5, 100])
@pytest.mark.parametrize("dtype", ["float32", "int32", "complex64"])
def test_vmap__searches_among_others_of_each_entry(n: int, dtype: str) -> None:
    x, others = (mx.array(RNG.integers(0, 60, (7, s)), dtype=getattr(mx, dtype)) for s in (30, n))
    got = np.array(mx.vmap(mx.isin)(x, others))
    np.testing.assert_array_equal(got, np.stack([np.isin(np.array(x[k]), np.array(others[k])) for k in range(7)]))
    got = np.array(mx.vmap(mx.isin, in_axes=(None, 0))(x[0], others))
    np.testing.assert_array_equal(got, np.stack([np.isin(np.array(x[0]), np.array(others[k])) for k in range(7)]))
    if dtype == "complex64":
        return
    s = mx.sort(others, axis=1)
    for side in ("left", "right"):
        got = np.array(mx.vmap(partial(mx.searchsorted, side=side))(s, x))
        want = np.stack([np.searchsorted(np.array(s[k]), np.array(x[k]), side) for k in range(7)])
        np.testing.assert_array_equal(got, want)
    twice = mx.vmap(mx.vmap(mx.isin))(x.reshape(7, 2, 15), mx.broadcast_to(others[:, None], (7, 2, n)))
    np.testing.assert_array_equal(np.array(twice).reshape(7, 30), np.array(mx.vmap(mx.isin)(x, others)))


def test_pinv__without_the_library() -> None:
    program = """
import marram.core as mx, numpy as np
rng = np.random.default_rng(0)
for m, n, rank in [(40, 30, 30), (30, 40, 30), (33, 33, 20), (3, 50, 3)]:
    a = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    for t, tol in ((mx.float32, 1e-3), (mx.float64, 1e-9)):
        got = np.array(mx.linalg.pinv(mx.array(a, dtype=t), stream=mx.cpu))
        np.testing.assert_allclose(got, np.linalg.pinv(a, rcond=1e-5), atol=tol)
print("right")
"""
    env = {**os.environ, "MARRAM_BLAS": "none"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "right\n", done.stderr


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


# ---- scans and reductions along any axis ---------------------------------------
SHAPES = [(1, 5), (7, 1), (40, 3), (300, 33), (8001, 2), (16_500, 9), (8100, 40), (33_000, 1), (2, 8001), (130, 520)]
SCANS = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate, "logcumsumexp": np.logaddexp.accumulate}


def near_one(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    return mx.array(1 + 1e-3 * np.random.default_rng(3).standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_scan__has_the_same_bits_in_every_layout(name: str, dtype: str) -> None:
    for shape in SHAPES:
        x = near_one(shape, getattr(mx, dtype))
        for reverse in (False, True):
            for inclusive in (True, False):
                down = getattr(mx, name)(x, axis=0, reverse=reverse, inclusive=inclusive)
                lines = getattr(mx, name)(mx.contiguous(x.T), axis=1, reverse=reverse, inclusive=inclusive)
                np.testing.assert_array_equal(np.array(down), np.array(lines).T, str((shape, reverse, inclusive)))


@pytest.mark.parametrize("name", SCANS)
def test_scan__is_numpys_down_columns(name: str) -> None:
    for shape in SHAPES:
        x = near_one(shape, mx.float32)
        want = SCANS[name](np.array(x).astype("f8"), 0)
        np.testing.assert_allclose(np.array(getattr(mx, name)(x, axis=0)), want, 1e-3, err_msg=str(shape))


@pytest.mark.parametrize("name", ["sum", "var", "max", "logsumexp", "prod"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reduction__has_the_same_bits_in_every_layout(name: str, dtype: str) -> None:
    for shape in SHAPES:
        x = near_one(shape, getattr(mx, dtype))
        down = getattr(mx, name)(x, axis=0).astype(mx.float32)
        rows = getattr(mx, name)(mx.contiguous(x.T), axis=1).astype(mx.float32)
        np.testing.assert_array_equal(np.array(down), np.array(rows), str(shape))


def test_reduction__of_columns_keeps_nan_and_the_first_of_equals() -> None:
    x = np.random.default_rng(4).integers(0, 5, (300, 70)).astype("f4")
    np.testing.assert_array_equal(np.array(mx.argmax(mx.array(x), axis=0)), x.argmax(0))
    x[200, 3] = x[7, 69] = np.nan
    for name in ("max", "min", "argmax", "argmin"):
        np.testing.assert_array_equal(np.array(getattr(mx, name)(mx.array(x), axis=0)), getattr(np, name)(x, 0))
    assert mx.sum(mx.zeros((0, 70)), axis=0).tolist() == [0.0] * 70
    assert mx.softmax(mx.zeros((0, 70)), axis=0).shape == (0, 70)


def test_softmax__of_a_long_row_and_of_columns_sums_to_one() -> None:
    for shape, axis in (((3_000_001,), 0), ((20_000, 70), 0), ((3, 9000, 5), 1)):
        y = np.array(mx.softmax(near_one(shape, mx.float32), axis=axis)).astype("f8")
        np.testing.assert_allclose(y.sum(axis), 1.0, 1e-5)


def test_concatenate__of_narrow_and_of_many_parts() -> None:
    x = np.arange(300_000, dtype="i4").reshape(100_000, 3)
    parts = [x, x[::-1] + 1, x[:, :1] * 2]
    got = mx.concatenate([mx.array(p) for p in parts], axis=1)
    np.testing.assert_array_equal(np.array(got), np.concatenate(parts, 1))
    a = mx.array(x)
    got = mx.concatenate([a[i : i + 70] for i in range(0, 100_000, 70)])
    np.testing.assert_array_equal(np.array(got), x)
    got = mx.stack([a[:, 0], a[:, 1], a[:, 2]], axis=-1)
    np.testing.assert_array_equal(np.array(got), x)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64", "complex64"])
def test_transposed_copy__of_odd_sizes(dtype: str) -> None:
    for shape in ((1, 7), (16, 16), (17, 33), (8, 100), (129, 65), (700, 300)):
        x = np.arange(np.prod(shape)).reshape(shape).astype(dtype if dtype != "int64" else "i8")
        np.testing.assert_array_equal(np.array(mx.contiguous(mx.array(x).T)), x.T)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_transposed_copy__larger_than_the_caches(dtype: str) -> None:
    for shape in ((2048, 2064), (4111, 1030)):
        x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        a = mx.array(x, dtype=getattr(mx, dtype))
        np.testing.assert_array_equal(np.array(mx.contiguous(a.T)), x.T)


@pytest.mark.parametrize("dtype", ["float32", "int32", "complex64"])
def test_elementwise__of_results_larger_than_the_caches(dtype: str) -> None:
    n = (5 << 20) + 7
    x = RNG.integers(-99, 99, n).astype(dtype)
    a = mx.array(x)
    np.testing.assert_array_equal(np.array(mx.where(mx.real(a) > 0, a, a[::-1])), np.where(x.real > 0, x, x[::-1]))
    np.testing.assert_array_equal(np.array(-a[1:]), -x[1:])
    np.testing.assert_array_equal(np.array(mx.abs(a[3:])), np.abs(x[3:]))


def bits(a: mx.array) -> np.ndarray:
    return np.array(a.astype(mx.float32)).view("u4")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["normal", "below zero", "zeros of both signs", "infinite", "not a number"])
def test_extremes__are_exact_whichever_way_a_row_is_read(dtype: str, kind: str) -> None:
    for shape in ((37, 1000), (5, 64), (3, 33), (4, 31), (2, 9000), (130, 700)):
        x = RNG.standard_normal(shape).astype("f4")
        some = RNG.random(shape) < 0.02
        if kind == "below zero":
            x = -np.abs(x) - 1
        elif kind == "zeros of both signs":
            x = np.where(x < 0, np.float32(-0.0), np.float32(0.0)) * (RNG.random(shape) < 0.99)
        elif kind == "infinite":
            x[some] = np.copysign(np.inf, x[some])
        elif kind == "not a number":
            x[some] = np.copysign(np.nan, x[some])
        a = mx.array(x).astype(getattr(mx, dtype))
        wide = np.array(a.astype(mx.float32))
        for axis in (0, 1):
            for ours, theirs in ((mx.max, np.max), (mx.min, np.min)):
                np.testing.assert_array_equal(np.array(ours(a, axis).astype(mx.float32)), theirs(wide, axis))
                turned = ours(mx.contiguous(a.T), 1 - axis)
                np.testing.assert_array_equal(bits(turned), bits(ours(a, axis)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("shape", [(37, 1000), (9, 17), (2, 9000), (9000, 7), (700, 130), (4100, 40)])
def test_variance_and_logsumexp__are_those_of_their_parts(dtype: str, shape: tuple[int, int]) -> None:
    """One fold, without values in between, has the bits of the steps one by one."""
    a = mx.array(RNG.standard_normal(shape)).astype(getattr(mx, dtype))
    wide = a.astype(mx.float64 if dtype == "float64" else mx.float32)
    for axis in (0, 1):
        d = wide - mx.mean(wide, axis, keepdims=True)
        mx.eval(d)
        s = mx.square(d)
        mx.eval(s)
        np.testing.assert_array_equal(np.array(mx.var(wide, axis)), np.array(mx.mean(s, axis)))
        np.testing.assert_array_equal(bits(mx.var(a, axis)), bits(mx.mean(s, axis).astype(a.dtype)))
        x = np.array(wide).astype("f8")
        np.testing.assert_allclose(np.array(mx.var(wide, axis)), x.var(axis), rtol=2e-6)
        exact = np.log(np.exp(x - x.max(axis, keepdims=True)).sum(axis)) + x.max(axis)
        np.testing.assert_allclose(np.array(mx.logsumexp(wide, axis)), exact, rtol=2e-6, atol=1e-6)


def test_gather__of_single_elements_names_the_first_bad_index() -> None:
    x, i = RNG.standard_normal(1 << 16).astype("f4"), RNG.integers(-(1 << 16), 1 << 16, 100_003)
    np.testing.assert_array_equal(np.array(mx.array(x)[mx.array(i)]), x[i])
    np.testing.assert_array_equal(np.array(mx.array(x)[::2][mx.array(i // 2)[::-1]]), x[::2][(i // 2)[::-1]])
    i[90_001], i[50_000] = 1 << 17, 1 << 16
    with pytest.raises(IndexError, match="index 65536 is out of range for axis 0 of size 65536"):
        mx.eval(mx.array(x)[mx.array(i)])


@pytest.mark.parametrize(("dtype", "digits", "least"), [("float16", 10, -14), ("bfloat16", 7, -126)])
@pytest.mark.parametrize("name", ["exp", "erf", "sigmoid", "tanh"])
def test_functions_of_halves__are_within_0_54_ulp_of_every_value(name, dtype, digits, least):
    exact = {"exp": np.exp, "erf": np.vectorize(math.erf), "sigmoid": lambda v: 1 / (1 + np.exp(-v)), "tanh": np.tanh}
    bits = mx.array(np.arange(65536, dtype=np.uint16)).view(getattr(mx, dtype))
    x = np.array(bits.astype(mx.float32)).astype("f8")
    got = np.array(getattr(mx, name)(bits).astype(mx.float32)).astype("f8")
    with np.errstate(all="ignore"):
        want = exact[name](x)
        ulp = 2.0 ** (np.maximum(np.floor(np.log2(np.abs(want))), least) - digits)
        inside = np.isfinite(want) & (np.abs(want) < (65520 if dtype == "float16" else 3.39e38))
    assert (np.isnan(got) == np.isnan(want)).all()
    assert np.isinf(got[~inside & ~np.isnan(want)]).all()
    assert (np.abs(got - want)[inside] <= 0.54 * ulp[inside]).all()


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "float64", "complex64", "complex128"])
def test_backwards__rows_of_any_length_are_turned(dtype):
    """Sixteen elements at a time, and what is left one by one."""
    rng = np.random.default_rng(3)
    for n in (1, 15, 16, 17, 31, 33, 1000):
        x = (rng.standard_normal((3, n)) * 100).astype(dtype)
        a = mx.array(x, dtype=getattr(mx, dtype))
        assert np.array_equal(np.array(mx.contiguous(a[:, ::-1])), x[:, ::-1])
        assert np.array_equal(np.array(mx.contiguous(a[::-1, 1:][:, ::-1])), x[::-1, 1:][:, ::-1])
