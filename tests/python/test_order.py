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
