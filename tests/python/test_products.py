# SPDX-License-Identifier: Apache-2.0
"""Matrix products against float64: each dtype, layout, odd sizes, tier, threads.

A product of depth k may be off by (k + 2) eps of the sum of magnitudes, and by
one rounding to its own type.  Packed matrices are held to the product with
their dequantised values, by the same bound.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import marram.core as mx
import numpy as np
import pytest

EPS = {"float32": 2.0**-24, "float64": 2.0**-53, "bfloat16": 2.0**-24, "float16": 2.0**-24, "complex64": 2.0**-23}
ROUND = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
SIZES = [(1, 1, 1), (5, 7, 9), (3, 1030, 70), (9, 33, 31), (12, 513, 65), (37, 1025, 100), (96, 257, 33)]
SIZES += [(97, 1030, 130), (150, 2049, 70), (200, 64, 3), (1, 17000, 5)]
FORMATS = [dict(mode="affine", bits=b, group_size=g) for b in (1, 2, 3, 4, 5, 6, 8) for g in (32, 64, 128)]
FORMATS += [dict(mode=m) for m in ("mxfp4", "mxfp8", "nvfp4")]


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> tuple[mx.array, np.ndarray]:
    """An array, and its values in the widest type."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if dtype == "complex64":
        x = (x + 1j * rng.standard_normal(shape)).astype(dtype)
        return mx.array(x), x.astype(np.complex128)
    a = mx.array(x, dtype=mx.float64).astype(getattr(mx, dtype))
    return a, np.array(a.astype(mx.float64))


def within(c: mx.array, a: np.ndarray, b: np.ndarray, dtype: str) -> bool:
    right = a @ b
    ours = np.array(c if dtype == "complex64" else c.astype(mx.float64))
    bound = (a.shape[-1] + 2) * EPS[dtype] * (abs(a) @ abs(b)) + ROUND.get(dtype, 0.0) * 1.01 * abs(right)
    return bool((abs(ours - right) <= bound + 1e-7 * (dtype == "float16") + 1e-37).all())


def turned(x, yes: bool):
    return x.swapaxes(-1, -2) if yes else x


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul__is_within_the_bound_in_any_layout(dtype, size):
    m, k, n = size
    for ta, tb in itertools.product((False, True), repeat=2):
        a, a64 = numbers(dtype, (k, m) if ta else (m, k), 1)
        b, b64 = numbers(dtype, (n, k) if tb else (k, n), 2)
        c = turned(a, ta) @ turned(b, tb)
        assert within(c, turned(a64, ta), turned(b64, tb), dtype), (ta, tb)


# Packed products: b read where it lies and packed; a packed by blocks and before them, asked for ahead.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [(130, 70, 256), (131, 700, 224), (3001, 201, 128), (200, 600, 1088), (97, 1030, 512)], ids=str)
def test_matmul__of_packed_ones_has_the_same_bits_wherever_b_lies(dtype, size):
    m, k, n = size
    a, a64 = numbers(dtype, (m, k), 1)
    b, b64 = numbers(dtype, (k, n), 2)
    c = a @ b
    assert within(c, a64, b64, dtype)
    wider = mx.concatenate([mx.zeros((k, 1), dtype=b.dtype), b, mx.zeros((k, 2), dtype=b.dtype)], axis=1)
    across = mx.contiguous(b.T).T
    items = mx.stack([b, b * 2])
    mx.eval(wider, across, items)
    for other in (wider[:, 1 : n + 1], across):
        assert bool(mx.array_equal(a @ other, c))
    pair = mx.stack([a, a]) @ items
    assert bool(mx.array_equal(pair[0], c)) and bool(mx.array_equal(pair[1], c * 2))


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("size", [(1, 1, 1), (4, 4, 4), (8, 8, 8), (7, 5, 3), (16, 16, 16), (13, 16, 11), (20, 3, 40)], ids=str)
def test_matmul__of_many_small_ones_is_within_the_bound(dtype, size):
    m, k, n = size
    for ta, tb in itertools.product((False, True), repeat=2):
        a, a64 = numbers(dtype, (50, k, m) if ta else (50, m, k), 1)
        b, b64 = numbers(dtype, (50, n, k) if tb else (50, k, n), 2)
        c = turned(a, ta) @ turned(b, tb)
        assert within(c, turned(a64, ta), turned(b64, tb), dtype), (ta, tb)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matmul__of_many_small_ones_does_not_depend_on_the_layout(dtype):
    a, _ = numbers(dtype, (50, 11, 13), 1)
    b, _ = numbers(dtype, (50, 9, 13), 2)
    plain = np.array(a @ mx.contiguous(b.swapaxes(-1, -2)))
    assert np.array_equal(np.array(a @ b.swapaxes(-1, -2)), plain)


@pytest.mark.parametrize("rows", [20, 130])
def test_matmul__of_bfloat16_keeps_numbers_below_the_least_normal_one(rows):
    a = np.ones((rows, 64), np.float32)
    b = np.ones((64, 40), np.float32)
    b[:, 7] = 1e-39
    a[3] = 1e38
    out = np.array((mx.array(a).astype(mx.bfloat16) @ mx.array(b).astype(mx.bfloat16)).astype(mx.float32))
    assert abs(out[3, 7] / (64 * 1e38 * 1e-39) - 1) < 2e-2


def product_bound(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Codes and biases are multiplied apart, so their magnitudes count, not
    that of their sum: at most three times the largest value."""
    return (x.shape[-1] + 4) * 2.0**-24 * (abs(x) @ abs(w) + 3 * abs(x).sum(-1, keepdims=True) * abs(w).max())


@pytest.mark.parametrize("kw", FORMATS, ids=lambda kw: "-".join(map(str, kw.values())))
@pytest.mark.parametrize("transpose", [True, False])
def test_quantized_matmul__is_the_product_with_dequantised_values(kw, transpose):
    w, _ = numbers("float32", (70, 384), 3)
    q = mx.quantize(w, **kw)
    values = np.array(mx.dequantize(*q, **kw).astype(mx.float64))
    values = values.T if transpose else values
    for rows in (1, 2, 3, 5, 8, 9, 33, 96, 97):
        x, x64 = numbers("float32", (rows, values.shape[0]), rows)
        c = np.array(mx.quantized_matmul(x, *q, transpose=transpose, **kw)).astype(np.float64)
        assert (abs(c - x64 @ values) <= product_bound(x64, values)).all(), rows


def test_quantized_matmul__of_nan_elements_is_nan():
    w, _ = numbers("float32", (4, 64), 3)
    words, scales = mx.quantize(w, mode="mxfp8")
    words = np.array(words)
    words[2, 5] = 0x7F
    out = np.array(mx.quantized_matmul(mx.ones((1, 64)), mx.array(words), scales, mode="mxfp8"))
    assert np.isnan(out[0]).tolist() == [False, False, True, False]


@pytest.mark.parametrize("experts, tokens, top", [(4, 60, 2), (3, 200, 2), (16, 9, 4)])
@pytest.mark.parametrize("kw", [FORMATS[10], FORMATS[-3]], ids=["affine-4", "mxfp4"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gather_qmm__of_experts_is_each_ones_product(experts, tokens, top, kw, dtype):
    x, x64 = numbers(dtype, (tokens, 1, 1, 128), 4)
    w, _ = numbers("float32", (experts, 70, 128), 5)
    q = mx.quantize(w.astype(x.dtype) if kw["mode"] == "affine" else w, **kw)
    index = np.random.default_rng(0).integers(0, experts, (tokens, top)).astype(np.uint32)
    values = np.array(mx.dequantize(*q, **kw).astype(mx.float64))
    out = np.array(mx.gather_qmm(x, *q, rhs_indices=mx.array(index), **kw).astype(mx.float64))
    right = np.einsum("tn,tkon->tko", x64[:, 0, 0], values[index])[:, :, None]
    tolerance = 2e-2 if dtype == "bfloat16" else 1e-5
    assert abs(out - right).max() <= tolerance * abs(right).max()


# ---- tiers and threads: a process each -----------------------------------------
PROGRAM = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from test_products import EPS, numbers, within
import marram.core as mx
every, exact = hashlib.sha256(), hashlib.sha256()
def take(x, dtype="float32"):
    bits = (np.array(x if x.dtype == mx.complex64 else x.astype(mx.float64)).tobytes())
    every.update(bits)
    if dtype not in ("bfloat16", "digits"):
        exact.update(bits)
for dtype in EPS:
    for m, k, n in [(1, 700, 300), (3, 600, 33), (32, 700, 200), (130, 1100, 140), (300, 40, 2)]:
        for t in (False, True):
            a, a64 = numbers(dtype, (m, k), 1)
            b, b64 = numbers(dtype, (n, k) if t else (k, n), 2)
            if t:
                b, b64 = b.swapaxes(0, 1), b64.T
            c = a @ b
            assert within(c, a64, b64, dtype), (dtype, m, k, n, t)
            take(c, dtype)
    a, a64 = numbers(dtype, (2000, 8, 7), 1)
    b, b64 = numbers(dtype, (2000, 7, 9), 2)
    assert within(a @ b, a64, b64, dtype)
    take(a @ b, dtype)
w, _ = numbers("float32", (300, 512), 3)
formats = [dict(mode="affine", bits=b, group_size=64) for b in (2, 3, 4, 5, 6, 8)]
formats += [dict(mode=m) for m in ("mxfp4", "mxfp8", "nvfp4")]
for kw in formats:
    q = mx.quantize(w, **kw)
    for rows in (1, 4, 40):
        x, x64 = numbers("float32", (rows, 512), rows)
        y = mx.quantized_matmul(x, *q, **kw)
        assert abs(np.array(y) - x64 @ np.array(mx.dequantize(*q, **kw).astype(mx.float64)).T).max() < 1e-3
        take(y, "float32" if rows > 2 else "digits")
print(every.hexdigest(), exact.hexdigest())
"""


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_matmul__gradient_of_a_turned_matrix_lies_as_the_matrix(dtype: str, batch: tuple[int, ...]):
    """Of weights (out, in) in x @ w.T and in w.T @ x: values, and no transpose for the optimizer to read across."""
    (x, x64), (w, w64) = numbers(dtype, (*batch, 6, 5), 1), numbers(dtype, (4, 5), 2)
    (y, y64), (v, v64) = numbers(dtype, (*batch, 5, 7), 3), numbers(dtype, (5, 4), 4)
    (c, c64), (d, d64) = numbers(dtype, (*batch, 6, 4), 5), numbers(dtype, (*batch, 4, 7), 6)
    _, (dx, dw) = mx.vjp(lambda x, w: x @ w.T, [x, w], [c])
    _, (dv, dy) = mx.vjp(lambda v, y: v.T @ y, [v, y], [d])
    want = {
        "x": (dx, c64 @ w64.conj()),
        "w": (dw, c64.reshape(-1, 4).T @ x64.conj().reshape(-1, 5)),
        "v": (dv, np.einsum("bij,bkj->ki", d64.reshape(-1, 4, 7), y64.conj().reshape(-1, 5, 7))),
        "y": (dy, v64.conj() @ d64),
    }
    for name, (got, values) in want.items():
        assert got.shape == values.shape
        assert np.allclose(np.array(got), values, rtol=1e-5, atol=1e-5), name
    assert np.asarray(dw).flags.c_contiguous
    assert batch or np.asarray(dv).flags.c_contiguous


def digest(**env: str) -> list[str]:
    """Of all results, and of all but bfloat16's and those of single quantised rows."""
    here = os.path.dirname(__file__)
    run = [sys.executable, "-c", PROGRAM, here]
    out = subprocess.run(run, env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **env}, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr[-2000:]
    return out.stdout.split()


def test_products__do_not_depend_on_threads_or_tier():
    """Vectors with FMA agree in bits, but for bfloat16, which the widest may
    multiply in pairs, and single quantised rows, which it may multiply as integer
    digits; the matrix unit has bits of its own."""
    vectors = {"MARRAM_CPU": "avx512"} if mx.cpu_tier() == "amx" else {}
    wide = [digest(MARRAM_NUM_THREADS=n, **vectors) for n in ("1", "5")]
    native = [digest(MARRAM_NUM_THREADS=n) for n in ("1", "2", "5")]
    narrow = [digest(MARRAM_NUM_THREADS=n, MARRAM_CPU="avx2") for n in ("1", "5")]
    plain = [digest(MARRAM_NUM_THREADS=n, MARRAM_CPU="baseline") for n in ("1", "5")]
    for same in (native, wide, narrow, plain):
        assert all(d == same[0] for d in same)
    assert narrow[0][1] == wide[0][1]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "complex64"])
@pytest.mark.parametrize("rows", [1, 2, 9, 31, 40, 96])
def test_items_of_one_product__lie_as_they_will(dtype: str, rows: int):
    """Items that share b are one product with more rows, where the memory of a
    allows it: the route must be one for all of these rows."""
    rng = np.random.default_rng(rows)
    whole = rng.integers(-3, 4, (3, 2 * rows, 34)).astype(np.float32)
    b64 = rng.integers(-3, 4, (17, 16)).astype(np.float32)
    t = getattr(mx, dtype)
    w = mx.array(whole).astype(t)
    spaced = mx.array(np.ascontiguousarray(whole.reshape(-1, 34).T)).astype(t).T
    one = mx.array(whole[:1, :1, :1]).astype(t)
    lefts = {
        "spaced rows": (w[:, ::2, :17], whole[:, ::2, :17]),
        "spaced": (w[:, ::2, ::2], whole[:, ::2, ::2]),
        "turned": (spaced[::2, :17].reshape(3, rows, 17), whole.reshape(-1, 34)[::2, :17].reshape(3, rows, 17)),
        "one number": (mx.broadcast_to(one, (3, rows, 17)), np.broadcast_to(whole[:1, :1, :1], (3, rows, 17))),
        "one item": (mx.broadcast_to(w[:1, :rows, :17], (3, rows, 17)), np.stack([whole[0, :rows, :17]] * 3)),
        "a vector": (w[0, 0, :17], whole[0, 0, :17]),
    }
    for n in (8, 2):
        full, half = mx.array(b64).astype(t), b64[:, ::2][:, :n]
        rights = {
            "shared": full[:, ::2][:, :n],
            "repeated": mx.broadcast_to(full[:, ::2][:, :n], (3, 17, n)),
            "repeated, dense": mx.broadcast_to(mx.array(half.copy()).astype(t), (3, 17, n)),
        }
        for (left, (a, x)), (right, b) in itertools.product(lefts.items(), rights.items()):
            got = np.array((a @ b).astype(mx.float32 if dtype != "complex64" else t))
            want = x @ (half if right == "shared" else np.broadcast_to(half, (3, 17, n)))
            assert got.shape == want.shape, (left, right)
            np.testing.assert_array_equal(got, want, f"{left}, {right}")


# ---- one row seen again and again ---------------------------------------------
REPEATED = [(200, 64, 96), (200, 100, 64), (1000, 64, 128), (200, 90, 80), (300, 48, 16), (257, 33, 513), (64, 600, 256)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "complex64"])
@pytest.mark.parametrize("m, k, n", REPEATED)
def test_matmul__with_one_row_repeated_reads_that_row_alone(m: int, k: int, n: int, dtype: str):
    """Steps of 0 between rows of the right operand: what lies behind the row is not read."""
    around = np.full(3 * n + k * n, np.nan, "f4")
    around[n : 2 * n] = np.arange(n) % 7 - 3
    row = mx.array(around).astype(getattr(mx, dtype))[n : 2 * n]
    a = mx.array(np.arange(m * k).reshape(m, k) % 5 - 2).astype(row.dtype)
    b = mx.broadcast_to(row, (k, n))
    want = (np.arange(m * k).reshape(m, k) % 5 - 2).astype("f8") @ np.broadcast_to(np.arange(n) % 7 - 3, (k, n))
    for y in (a @ b, mx.addmm(mx.zeros((n,), row.dtype), a, b), mx.stack([a, a]) @ b,
              mx.stack([a, a + 0]) @ mx.broadcast_to(row, (2, k, n))):
        got = np.array(y.astype(mx.complex64 if dtype == "complex64" else mx.float64)).real
        if dtype in ("bfloat16", "float16"):
            bound = (np.abs(want).max() + 1) * (2.0**-7 if dtype == "bfloat16" else 2.0**-9)
            assert np.abs(got - want).max() <= bound
        else:
            assert (got == want).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matmul__gradient_of_a_sum_over_rows_is_right(dtype: str):
    """The cotangent of such a sum is one row seen again and again."""
    t = getattr(mx, dtype)
    x, w, v = mx.ones((256, 200), t), mx.ones((200, 64), t), mx.ones((64,), t)
    g = mx.grad(lambda w: ((x @ w).sum(axis=0) * v).sum())(w)
    assert np.array_equal(np.array(g), np.full((200, 64), 256.0))


@pytest.mark.parametrize("rows", [1, 4, 5, 16, 64])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_matmul__of_tiny_operands_is_not_zero(rows: int, dtype: str) -> None:
    """Products near the lower end of float32: sums of them are in its range."""
    size = 1e-19 if dtype != "float16" else 6e-5
    a, b = mx.full((rows, 4096), size, dtype=getattr(mx, dtype)), mx.full((4096, 64), size, dtype=getattr(mx, dtype))
    want = 4096 * float(a[0, 0].item()) * float(b[0, 0].item())
    got = np.array((a @ b).astype(mx.float32), dtype=np.float64)
    assert np.abs(got / want - 1).max() < 0.01


def test_conv2d__of_tiny_operands_is_not_zero() -> None:
    x, w = mx.full((1, 8, 8, 512), 1e-19, dtype=mx.bfloat16), mx.full((16, 3, 3, 512), 1e-19, dtype=mx.bfloat16)
    got = np.array(mx.conv2d(x, w).astype(mx.float32), dtype=np.float64)
    assert np.abs(got / (9 * 512 * float(x[0, 0, 0, 0].item()) ** 2) - 1).max() < 0.01
