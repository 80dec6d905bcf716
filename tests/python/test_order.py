# SPDX-License-Identifier: Apache-2.0
"""Sorting, selection and search against NumPy: every dtype, lengths, threads and tiers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import marram.core as mx
import numpy as np
import pytest

REAL = ("bool_", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
RNG = np.random.default_rng(5)


def values(dtype: str, *shape: int, few: bool = False) -> np.ndarray:
    t = np.dtype(dtype)
    if few or t.kind == "b":
        return RNG.integers(0, 2 if t.kind == "b" else 5, shape).astype(t)
    if t.kind != "f":
        i = np.iinfo(t)
        return RNG.integers(i.min, i.max, shape, dtype=t, endpoint=True)
    x = RNG.standard_normal(shape).astype(t)
    m = RNG.integers(0, 40, shape)
    for k, v in enumerate((np.nan, np.inf, -np.inf, -0.0, 0.0)):
        x[m == k] = v
    return x


def array(x: np.ndarray) -> mx.array:
    return mx.array(x, dtype=mx.float64) if x.dtype == np.float64 else mx.array(x)


def sorted_of(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """NumPy 2.4 loses infinities of float16 beside NaN, so by way of float32."""
    return np.sort(x.astype("f4"), axis=axis).astype("f2") if x.dtype == np.float16 else np.sort(x, axis=axis)


def order_of(x: np.ndarray, axis: int) -> np.ndarray:
    """The stable order, NaN last, -0 and +0 equal."""
    return np.argsort(x + 0 if x.dtype.kind == "f" else x, axis=axis, kind="stable")


def check(x: np.ndarray, axis: int = -1) -> None:
    np.testing.assert_array_equal(np.array(mx.sort(array(x), axis=axis)), sorted_of(x, axis))
    np.testing.assert_array_equal(np.array(mx.argsort(array(x), axis=axis)), order_of(x, axis))


@pytest.mark.parametrize("dtype", REAL)
def test_sort__is_right_for_every_length(dtype: str) -> None:
    for n in range(1, 301):
        check(values(dtype, n, few=n % 3 == 0))


@pytest.mark.parametrize("dtype", REAL)
def test_sort__is_right_along_every_axis(dtype: str) -> None:
    for shape in ((3, 7, 33), (40, 5, 17), (300, 40), (1000, 3), (2, 16, 300), (17, 2, 9)):
        for axis in range(len(shape)):
            check(values(dtype, *shape), axis)
            check(values(dtype, *shape, few=True), axis)


@pytest.mark.parametrize("dtype", REAL)
def test_sort__is_right_for_long_rows(dtype: str) -> None:
    for n in (70_001, 400_001):
        check(values(dtype, n))
        check(values(dtype, n, few=True))


def test_sort__of_64_bit_keys_with_equal_high_bits() -> None:
    far = np.array([-(2**62), 2**62])
    for n in (40, 5000, 300_000):
        check(np.concatenate([values("int64", n) & 0xFFF, far]))
        check(np.concatenate([1 + RNG.integers(0, 99, n) * 2.0**-52, [1e300, -1e300]]))
        check(np.repeat(values("int64", n // 3 + 1), 3))


def test_sort__of_bfloat16_is_that_of_its_values() -> None:
    for shape in ((70_000,), (50, 33)):
        x = mx.array(values("float32", *shape)).astype(mx.bfloat16)
        wide = np.array(x.astype(mx.float32))
        np.testing.assert_array_equal(np.array(mx.sort(x).astype(mx.float32)), np.sort(wide))
        np.testing.assert_array_equal(np.array(mx.argsort(x)), order_of(wide, -1))


def test_sort__puts_minus_zero_first_and_argsort_keeps_its_place() -> None:
    x = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
    assert np.signbit(np.array(mx.sort(mx.array(x)))).tolist() == [True, True, False, False]
    assert np.array(mx.argsort(mx.array(x))).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", REAL)
def test_argpartition__deals_smaller_equal_and_larger_in_order(dtype: str) -> None:
    for shape in ((1,), (300,), (90_001,), (20, 600), (7, 3)):
        for few in (False, True):
            x = values(dtype, *shape, few=few)
            n = shape[-1]
            for kth in {0, n // 3, n - 1}:
                got = np.array(mx.argpartition(array(x), kth))
                s = sorted_of(x)
                np.testing.assert_array_equal(np.array(mx.partition(array(x), kth))[..., kth], s[..., kth])
                assert (np.sort(got, axis=-1) == np.arange(n)).all()
                np.testing.assert_array_equal(np.array(mx.topk(array(x), n - kth)), s[..., kth:])
                if len(shape) > 1:
                    continue
                v, k = x + 0 if x.dtype.kind == "f" else x, s[kth]
                equal = (v == k) | ((v != v) & (k != k))
                below = ~equal & ((v < k) | ((k != k) & (v == v)))
                want = [*np.flatnonzero(below), *np.flatnonzero(equal), *np.flatnonzero(~below & ~equal)]
                assert got.tolist() == want


def sampled_places(n: int, count: int) -> np.ndarray:
    """Where a selection of n elements looks for a sample of `count`."""
    seed, step, at = n, n // count, []
    for i in range(count):
        seed = (seed * 1664525 + 1013904223) % 2**32
        at.append(i * step + (seed * step >> 32))
    return np.array(at)


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "uint8"])
def test_argpartition__is_right_where_its_sample_misleads(dtype: str) -> None:
    for n, count in ((2047, 256), (5001, 256), (66_000, 1024), (1_100_000, 4096)):
        x = np.arange(n)[::-1] % 251
        for least in (True, False):
            x[sampled_places(n, count)] = 0 if least else 250
            v = x.astype(dtype)
            for kth in (n // 2, n - 40):
                got = np.array(mx.argpartition(mx.array(v), kth))
                key = np.sort(v)[kth]
                want = np.concatenate([np.flatnonzero(v < key), np.flatnonzero(v == key), np.flatnonzero(v > key)])
                np.testing.assert_array_equal(got, want)
                np.testing.assert_array_equal(np.array(mx.topk(mx.array(v), n - kth)), np.sort(v)[kth:])


def test_argpartition__is_right_for_long_rows_of_any_stride() -> None:
    for dtype in ("float32", "int64", "int32", "float16"):
        x = values(dtype, 70_000, 3)
        for y in (array(x), mx.contiguous(array(x).T).T):
            got = np.array(mx.argpartition(y, 35_000, axis=0))
            v = np.take_along_axis(x, got, 0)
            k = np.sort(x, axis=0)[35_000]
            np.testing.assert_array_equal(v[35_000], k)
            assert (np.sort(got, axis=0) == np.arange(70_000)[:, None]).all()
            assert (v[:35_000] <= k).all()
            assert not (v[35_000:] < k).any()
            np.testing.assert_array_equal(np.array(mx.take_along_axis(y, mx.array(got), axis=0)), v)


def test_take_along_axis__names_the_first_bad_place_of_a_long_row() -> None:
    x, at = mx.arange(50_000), np.arange(50_000, dtype=np.uint32)
    assert np.array_equal(np.array(mx.take_along_axis(x, mx.array(at), axis=0)), at)
    at[[20_001, 40_000]] = 50_000, 50_003
    with pytest.raises(IndexError, match="50000"):
        mx.eval(mx.take_along_axis(x, mx.array(at), axis=0))


def test_scan__of_many_lines_is_a_loop_over_each() -> None:
    """Denormal products, zeros of either sign, NaN; both directions."""
    r = np.random.default_rng(5)
    for shape in ((131, 300), (128, 16), (200, 1), (144, 1001)):
        x = r.standard_normal(shape).astype(np.float32)
        x[0, 0] = x[1, -1] = -0.0
        x[2:5] *= 1e-20
        x[5, :] = -0.0
        x[6, shape[1] // 2] = np.nan
        for name, step, first in (("cumsum", np.add, 0.0), ("cumprod", np.multiply, 1.0)):
            wide = np.float64 if name == "cumsum" else np.float32
            for reverse in (False, True):
                y = x[:, ::-1] if reverse else x
                want = step.accumulate(y.astype(wide), axis=1, dtype=wide).astype(np.float32)
                for inclusive in (True, False):
                    if not inclusive:
                        want = np.concatenate([np.full((shape[0], 1), first, np.float32), want[:, :-1]], 1)
                    got = np.array(getattr(mx, name)(mx.array(x), axis=1, reverse=reverse, inclusive=inclusive))
                    got = got[:, ::-1] if reverse else got
                    np.testing.assert_array_equal(got, want)
                    number = want == want
                    assert (np.signbit(got) == np.signbit(want))[number].all()


SCRIPT = """
import hashlib, sys
import marram.core as mx
import numpy as np
r = np.random.default_rng(1)
for dtype in ("float32", "int64", "float64", "float16", "uint8"):
    for shape in ((400_000,), (300, 700), (50_000, 4)):
        x = r.standard_normal(shape) * 50
        x = (np.abs(x) if dtype == "uint8" else x).astype(dtype)
        a = mx.array(x, dtype=mx.float64) if dtype == "float64" else mx.array(x)
        for axis in range(len(shape)):
            k = shape[axis] // 3
            for y in (mx.sort(a, axis=axis), mx.argsort(a, axis=axis), mx.argpartition(a, k, axis=axis), mx.topk(a, k, axis=axis)):
                print(hashlib.sha256(np.array(y).tobytes()).hexdigest())
"""


def digest(**env: str) -> str:
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=os.environ | env, capture_output=True, text=True, check=True)
    return hashlib.sha256(done.stdout.encode()).hexdigest()


def test_order__depends_on_neither_threads_nor_tier() -> None:
    want = digest(MARRAM_NUM_THREADS="1")
    for env in ({"MARRAM_NUM_THREADS": "2"}, {"MARRAM_NUM_THREADS": "5"}, {"MARRAM_CPU": "baseline"}, {"MARRAM_CPU": "avx2"}):
        try:
            assert digest(**env) == want, env
        except subprocess.CalledProcessError:
            assert "MARRAM_CPU" in env  # a machine without that tier
