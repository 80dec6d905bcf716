# SPDX-License-Identifier: Apache-2.0
"""Softmax, norms and extrema along rows: one answer, whatever the layout and wherever a NaN is."""

import marram.core as mx
import numpy as np
import pytest

DTYPES = [mx.float16, mx.bfloat16, mx.float32, mx.float64]
ROW_OPERATORS = {
    "softmax": lambda x, w: mx.softmax(x, axis=-1),
    "layer_norm": lambda x, w: mx.fast.layer_norm(x, w, w, 1e-5),
    "layer_norm of weight": lambda x, w: mx.fast.layer_norm(x, w, None, 1e-5),
    "layer_norm of bias": lambda x, w: mx.fast.layer_norm(x, None, w, 1e-5),
    "rms_norm": lambda x, w: mx.fast.rms_norm(x, w, 1e-5),
    "rms_norm plain": lambda x, w: mx.fast.rms_norm(x, None, 1e-5),
}


def bits(x: mx.array) -> np.ndarray:
    """Values in float64, exactly, all NaNs alike."""
    return np.array(x.astype(mx.float64))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ROW_OPERATORS)
def test_row_operator__kernel_of_whole_rows_has_the_bits_of_the_program(name: str, dtype: mx.Dtype) -> None:
    rng = np.random.default_rng(0)
    f = ROW_OPERATORS[name]
    for n in (48, 63, 64, 129, 1000, 4096):
        values = rng.standard_normal((9, n)) * 3
        values[2, n // 2] = np.nan
        values[3, 0] = -np.inf
        values[4, n - 1] = np.inf
        values[5] = -np.inf
        x = mx.array(values, dtype=mx.float64).astype(dtype)
        w = mx.array(rng.standard_normal(n), dtype=mx.float64).astype(dtype)
        # columns side by side in memory: no whole rows, so the block program
        turned = mx.contiguous(x.T).T
        np.testing.assert_array_equal(bits(f(x, w)), bits(f(turned, w)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_softmax__down_columns_has_the_bits_of_along_rows(dtype: mx.Dtype) -> None:
    rng = np.random.default_rng(1)
    for n, width in ((63, 70), (64, 64), (65, 63), (100, 129), (333, 127), (1000, 300), (2049, 65), (4096, 100), (4097, 64)):
        values = rng.standard_normal((n, width)) * 3
        values[n // 2, 2] = np.nan
        values[0, 3] = -np.inf
        values[n - 1, 4] = np.inf
        values[:, 5] = -np.inf
        x = mx.array(values, dtype=mx.float64).astype(dtype)
        rows = mx.softmax(mx.contiguous(x.T), axis=1).T
        np.testing.assert_array_equal(bits(mx.softmax(x, axis=0)), bits(rows))
        # rows apart from one another, and in another order
        apart = mx.contiguous(mx.concatenate([x, x], axis=1))[::-1, :width]
        np.testing.assert_array_equal(bits(mx.softmax(apart, axis=0)), bits(mx.softmax(apart.T, axis=1).T))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_extrema__a_nan_anywhere_is_the_answer_and_the_first_place_counts(dtype: mx.Dtype) -> None:
    for n in (1, 17, 64, 200, 1000, 5000):
        for at in sorted({0, n // 3, n // 2, n - 1}):
            values = np.sin(np.arange(n, dtype="f8"))
            values[at] = np.nan
            values[-1] = np.nan
            x = mx.array(values[None], dtype=mx.float64).astype(dtype)
            assert np.isnan(bits(mx.max(x, axis=1))).all() and np.isnan(bits(mx.min(x, axis=1))).all()
            assert mx.argmax(x, axis=1).item() == at and mx.argmin(x, axis=1).item() == at
        values = np.zeros(n)
        values[n // 2 :] = 2.0
        x = mx.array(values[None], dtype=mx.float64).astype(dtype)
        assert mx.argmax(x, axis=1).item() == n // 2
        assert bits(mx.max(x, axis=1)).item() == 2.0
