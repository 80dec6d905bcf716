# SPDX-License-Identifier: Apache-2.0
"""Some rows times packed matrices: every width, type and number of rows against
float64, numbers that the fast routes do not take, scales and codes that are none.

What the matrix unit of a processor does with pieces of numbers, others do in
floats: the same facts hold.
"""

import sys
from pathlib import Path

import marram.core as mx
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sweep"))

import quantized  # noqa: E402

F = np.float32
FORMATS = [("affine", b, g) for b in (1, 2, 3, 4, 5, 6, 8) for g in (32, 64, 128)]
FORMATS += [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
ROWS = (1, 2, 3, 5, 6, 8, 9, 16, 31, 32, 33, 64, 96, 97)
FLOATS = ("mxfp4", "mxfp8", "nvfp4")


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(F)


def to_np(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32)) if x.dtype in (mx.float16, mx.bfloat16) else np.array(x)


def values_of(q: list, kw: dict) -> np.ndarray:
    return quantized.dequantize(*[to_np(p) for p in q], **kw).astype("f8")


def check(x: mx.array, q: list, kw: dict, values: np.ndarray, least: float = 0.0) -> None:
    """Sums may be wrong by what a value near 0 is made of."""
    y, left = mx.quantized_matmul(x, *q, **kw), to_np(x).astype("f8")
    want = left @ values.T
    size = np.abs(left) @ (np.abs(values) + np.abs(values).max(axis=1, keepdims=True)).T
    dtype = str(y.dtype).split(".")[-1]
    error = np.abs(to_np(y).astype("f8") - want)
    assert np.all(error <= ROUNDING[dtype] * np.abs(want) + 16 * 2.0**-24 * size + least), np.max(error / size)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(("mode", "bits", "group"), FORMATS)
def test_quantized_matmul__rows_are_right_to_float32(mode: str, bits: int, group: int, dtype: str) -> None:
    kw, t = dict(group_size=group, bits=bits, mode=mode), getattr(mx, dtype)
    for outer, inner in ((70, 1024 + 3 * max(group, 32)), (200, 384), (16, 4 * max(group, 32))):
        q = mx.quantize(mx.array(drawn(outer, inner)).astype(t), **kw)
        values = values_of(q, kw)
        for rows in ROWS:
            check(mx.array(drawn(rows, inner)).astype(t), q, kw, values)


@pytest.mark.parametrize("rows", [3, 6, 32, 80])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_quantized_matmul__numbers_of_24_bits_are_not_rounded(bits: int, rows: int) -> None:
    """One number a group, so each sum is one product, and exact."""
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 2 ** min(bits, 4), (40, 512))
    words = np.zeros((40, 512 * bits // 32), np.uint32)
    for j in range(40):
        stream = sum(int(c) << (i * bits) for i, c in enumerate(codes[j]))
        words[j] = [(stream >> (32 * i)) & 0xFFFFFFFF for i in range(words.shape[1])]
    x = np.zeros((rows, 512), F)
    places = rng.integers(0, 512, rows)
    x[np.arange(rows), places] = rng.integers(2**19, 2**20, rows) * 2.0 - 2.0**20 + 1
    scale, bias = np.full((40, 8), 0.5, F), np.zeros((40, 8), F)
    got = mx.quantized_matmul(mx.array(x), mx.array(words), mx.array(scale), mx.array(bias), group_size=64, bits=bits)
    assert np.array_equal(np.array(got), x @ (codes * F(0.5)).T.astype(F))


@pytest.mark.parametrize("rows", [3, 16, 40])
@pytest.mark.parametrize(("mode", "bits", "group"), [("affine", 4, 64), ("mxfp8", 8, 32)])
def test_quantized_matmul__errors_do_not_grow_with_the_depth(mode: str, bits: int, group: int, rows: int) -> None:
    """Numbers of one sign, whose roundings do not cancel: one chain over all
    groups of 65,536 codes is wrong by 11 in 2^-24 of the sum."""
    kw = {"mode": mode, "bits": bits, "group_size": group}
    q = mx.quantize(mx.array(np.abs(drawn(64, 65536))), **kw)
    values = np.array(mx.dequantize(*q, dtype=mx.float32, **kw)).astype("f8")
    x = np.abs(drawn(rows, 65536))
    want = x.astype("f8") @ values.T
    error = (np.array(mx.quantized_matmul(mx.array(x), *q, **kw)) - want) / want * 2.0**24
    assert np.sqrt(np.mean(error**2)) < 5.0


@pytest.mark.parametrize("number", [1e-30, -1e-38, 1e-42, 3e13, -1e30])
@pytest.mark.parametrize(
    ("mode", "bits"),
    [("affine", 3), ("affine", 4), ("affine", 6), ("affine", 8), ("mxfp4", 4), ("mxfp8", 8), ("nvfp4", 4)],
)
def test_quantized_matmul__any_number_may_be_there(mode: str, bits: int, number: float) -> None:
    kw = dict(group_size={"mxfp4": 32, "mxfp8": 32, "nvfp4": 16}.get(mode, 64), bits=bits, mode=mode)
    q = mx.quantize(mx.array(drawn(70, 384)), **kw)
    values = values_of(q, kw)
    for rows in (3, 5, 17, 32, 40):
        x = drawn(rows, 384)
        x[1, 7] = number
        check(mx.array(x), q, kw, values)
        x[:] = 0
        x[:, 9] = number
        check(mx.array(x), q, kw, values, least=1e-43)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("mode", ["affine", *FLOATS])
def test_quantized_matmul__nan_stays_in_its_row(mode: str, dtype: str) -> None:
    t = getattr(mx, dtype)
    q = mx.quantize(mx.array(drawn(70, 384)), mode=mode)
    for rows in (3, 17, 32):
        x = drawn(rows, 384)
        x[1, 300] = np.nan
        got = to_np(mx.quantized_matmul(mx.array(x).astype(t), *q, mode=mode))
        assert np.all(np.isnan(got[1])) and np.all(np.isfinite(np.delete(got, 1, 0)))


@pytest.mark.parametrize("rows", [1, 3, 16, 32, 50])
def test_quantized_matmul__scales_of_mxfp4_may_have_any_size(rows: int) -> None:
    """Some rows of a strip have scales with which codes are no numbers of bfloat16."""
    kw = dict(group_size=32, bits=4, mode="mxfp4")
    w = drawn(150, 384)
    w[3] = 0
    w[70] *= F(2.0**-100)
    w[71, :64] *= F(2.0**80)
    w[140] *= F(2.0**-60)
    q = mx.quantize(mx.array(w), **kw)
    check(mx.array(drawn(rows, 384)), q, kw, values_of(q, kw))
    scales = np.array(q[1])
    scales[5, 2] = 255
    got = np.array(mx.quantized_matmul(mx.array(drawn(rows, 384)), q[0], mx.array(scales), **kw))
    assert np.all(np.isnan(got[:, 5])) and np.all(np.isfinite(np.delete(got, 5, 1)))


@pytest.mark.parametrize("rows", [1, 3, 16, 32, 50])
@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_quantized_matmul__a_nan_code_is_in_its_column_alone(code: int, rows: int) -> None:
    kw = dict(group_size=32, bits=8, mode="mxfp8")
    w = drawn(150, 384)
    w[7] = 0
    w[8, :32] *= 1e-3
    w[8, 0] = 100  # beside it codes of subnormal numbers
    q = mx.quantize(mx.array(w), **kw)
    words = np.array(q[0])
    check(mx.array(drawn(rows, 384)), q, kw, values_of(q, kw))
    words.view(np.uint8)[9, 383] = code
    got = np.array(mx.quantized_matmul(mx.array(drawn(rows, 384)), mx.array(words), q[1], **kw))
    assert np.all(np.isnan(got[:, 9])) and np.all(np.isfinite(np.delete(got, 9, 1)))


def test_quantized_matmul__every_e4m3_number_is_exact() -> None:
    codes = np.arange(256, dtype=np.uint8)
    codes = codes[(codes & 0x7F) != 0x7F].repeat(32).reshape(-1, 32)
    scales = np.full((len(codes), 1), 127, np.uint8)
    x = np.zeros((3, 32), F)
    x[0, 5], x[1, 31], x[2, 16] = 1, 3, -1.5
    w = mx.array(codes.view(np.uint32))
    got = np.array(mx.quantized_matmul(mx.array(x), w, mx.array(scales), group_size=32, bits=8, mode="mxfp8"))
    numbers = np.array(mx.from_fp8(mx.array(codes[:, 0]), dtype=mx.float32))
    assert np.array_equal(got, x.sum(axis=1, keepdims=True) * numbers)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(("mode", "bits", "group"), [("affine", 4, 64), ("affine", 6, 32), ("mxfp4", 4, 32), ("mxfp8", 8, 32)])
def test_gather_qmm__runs_of_any_length_are_right(mode: str, bits: int, group: int, dtype: str) -> None:
    kw, t = dict(group_size=group, bits=bits, mode=mode), getattr(mx, dtype)
    pick = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3, 5], [1, 5, 20, 41, 130]))
    x = mx.array(drawn(len(pick), 1, 320)).astype(t)
    q = mx.quantize(mx.array(drawn(6 * 101, 320)), **kw)
    values = values_of(q, kw).reshape(6, 101, 320)
    q = [mx.reshape(a, (6, 101, -1)) for a in q]
    got = to_np(mx.gather_qmm(x, *q, rhs_indices=mx.array(pick), **kw))
    left, right = to_np(x).astype("f8"), np.swapaxes(values[pick], -1, -2)
    want, size = left @ right, np.abs(left) @ (np.abs(right) + np.abs(right).max())
    assert np.all(np.abs(got - want) <= ROUNDING[dtype] * np.abs(want) + 16 * 2.0**-24 * size)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, 2])
def test_quantized_matmul__a_large_matrix_gives_the_bits_of_its_parts(bits: int, rows: int) -> None:
    """Cores that share 16 MB read them in another order than those of its parts."""
    x, w = mx.array(drawn(rows, 4096)), mx.quantize(mx.array(drawn(4160, 4096, seed=bits)), 64, bits)
    whole = np.array(mx.quantized_matmul(x, *w, group_size=64, bits=bits))
    for _ in range(3):
        assert np.array_equal(whole, np.array(mx.quantized_matmul(x, *w, group_size=64, bits=bits)))
    for i in range(0, 4160, 1040):
        part = mx.quantized_matmul(x, *[a[i : i + 1040] for a in w], group_size=64, bits=bits)
        assert np.array_equal(whole[:, i : i + 1040], np.array(part))


NO_PIECES = {
    "float32": [np.inf, np.nan, 3e38, 2e12, 1e-30, 1e-42],
    "float16": [np.inf, np.nan],
    "bfloat16": [np.inf, np.nan, 3e38, 2e12, 1e-30, 2.0**-130],
}


def bits(y: mx.array) -> np.ndarray:
    return np.array(y.view(mx.uint32 if y.dtype == mx.float32 else mx.uint16))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(("mode", "bits_", "group"), [("affine", 4, 64), ("affine", 3, 32), ("mxfp4", 4, 32), ("mxfp8", 8, 32)])
def test_quantized_matmul__of_a_row_does_not_depend_on_other_rows(mode: str, bits_: int, group: int, dtype: str) -> None:
    """Whatever numbers those hold: a row that no piece can hold is the same alone among good ones,
    with others and where no row is good."""
    kw, t = dict(group_size=group, bits=bits_, mode=mode), getattr(mx, dtype)
    q = mx.quantize(mx.array(drawn(150, 384)), **kw)
    values = values_of(q, kw)
    for rows in (3, 5, 17, 32, 100):
        good = drawn(rows, 384)
        want = bits(mx.quantized_matmul(mx.array(good).astype(t), *q, **kw))
        for v in NO_PIECES[dtype]:
            bad = good.copy()
            bad[np.arange(rows), np.arange(rows) * 7 % 384] = v
            all_bad = bits(mx.quantized_matmul(mx.array(bad).astype(t), *q, **kw))
            for some in ([1], [0, rows - 1], list(range(0, rows, 2))):
                x = good.copy()
                x[some] = bad[some]
                y = mx.quantized_matmul(mx.array(x).astype(t), *q, **kw)
                got = bits(y)
                kept = np.setdiff1d(np.arange(rows), some)
                assert np.array_equal(got[kept], want[kept]), (rows, v)
                assert np.array_equal(got[some], all_bad[some]), (rows, v)
                if np.isfinite(v) and abs(v) < 1e30:
                    check(mx.array(x).astype(t), q, kw, values, least=1e-43)
                elif np.isnan(v):
                    assert np.isnan(to_np(y)[some]).all()


@pytest.mark.parametrize("dtype", ROUNDING)
def test_gather_qmm__of_a_row_does_not_depend_on_other_rows(dtype: str) -> None:
    kw, t = dict(group_size=64, bits=4, mode="affine"), getattr(mx, dtype)
    pick = mx.array(np.random.default_rng(1).permutation(np.repeat([0, 1, 2, 4], [3, 9, 40, 120])))
    q = [mx.reshape(a, (5, 70, -1)) for a in mx.quantize(mx.array(drawn(5 * 70, 320)), **kw)]

    def product(x: np.ndarray) -> mx.array:
        return mx.gather_qmm(mx.array(x[:, None]).astype(t), *q, rhs_indices=pick, **kw)[:, 0]

    good = drawn(pick.size, 320)
    want = bits(product(good))
    for v in NO_PIECES[dtype]:
        for some in ([5], list(range(0, pick.size, 3))):
            x = good.copy()
            x[some, 100] = v
            y = product(x)
            kept = np.setdiff1d(np.arange(pick.size), some)
            assert np.array_equal(bits(y)[kept], want[kept]), v
            if np.isnan(v):
                assert np.isnan(to_np(y)[some]).all()
            alone = good.copy()
            alone[some[0], 100] = v
            assert np.array_equal(bits(product(alone))[some[0]], bits(y)[some[0]]), v
