# SPDX-License-Identifier: Apache-2.0
"""Products large enough for the matrix unit, which takes numbers as sums of bfloat16 pieces.

All of it holds wherever the tests run: without the unit the products go another
way, and the same must be true.  float64 and integers are the oracles.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import marram.core as mx
import numpy as np
import pytest

HALF_ULP = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SIZES = [(64, 700, 1000), (97, 2100, 161), (130, 1055, 257), (300, 333, 301), (513, 129, 520)]


def values(dtype: str, x: np.ndarray) -> tuple[mx.array, np.ndarray]:
    a = mx.array(x, dtype=mx.float64).astype(getattr(mx, dtype))
    return a, np.array(a.astype(mx.float64))


def wide(c: mx.array) -> np.ndarray:
    return np.array(c.astype(mx.float64))


@pytest.mark.parametrize("dtype", HALF_ULP)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products__are_as_exact_as_float32_sums(dtype: str, size: tuple[int, int, int]) -> None:
    """Of the sum of magnitudes, a few roundings of float32 at most and a quarter of one on
    average; a half's own rounding comes on top."""
    m, k, n = size
    rng = np.random.default_rng(k)
    for ta, tb in itertools.product((False, True), repeat=2):
        a, a64 = values(dtype, rng.standard_normal((k, m) if ta else (m, k)))
        b, b64 = values(dtype, rng.standard_normal((n, k) if tb else (k, n)))
        if ta:
            a, a64 = a.T, a64.T
        if tb:
            b, b64 = b.T, b64.T
        right, size_ = a64 @ b64, abs(a64) @ abs(b64)
        own = 0.0 if dtype == "float32" else HALF_ULP[dtype] * 1.01 * abs(right) + 2.0**-25
        off = np.maximum(abs(wide(a @ b) - right) - own, 0.0) / size_
        assert off.max() < 6 * 2.0**-24, (ta, tb)
        assert np.sqrt((off**2).mean()) < 0.6 * 2.0**-24, (ta, tb)


@pytest.mark.parametrize("dtype", HALF_ULP)
def test_products__of_whole_numbers_are_exact(dtype: str) -> None:
    """All sums stay below 2^24; halves show the low bits modulo what they can hold."""
    rng = np.random.default_rng(1)
    most = {"float32": 150, "float16": 1, "bfloat16": 1}[dtype]
    a, b = rng.integers(-most, most + 1, (200, 700)), rng.integers(-most, most + 1, (700, 300))
    c = mx.array(a).astype(getattr(mx, dtype)) @ mx.array(b).astype(getattr(mx, dtype))
    right = mx.array((a @ b).astype(np.float32)).astype(getattr(mx, dtype))
    assert np.array_equal(wide(c), wide(right))


@pytest.mark.parametrize("dtype", HALF_ULP)
@pytest.mark.parametrize("side", ["left", "right"])
def test_products__with_a_permutation_move_each_number_as_it_is(dtype: str, side: str) -> None:
    """From the largest down to the least normal ones, all 24 bits of them."""
    rng = np.random.default_rng(2)
    low, high = {"float32": (-126.0, 127.9), "float16": (-24.0, 15.9), "bfloat16": (-126.0, 127.0)}[dtype]
    p = np.eye(320)[rng.permutation(320)]
    for low_, high_ in ((low, high), (max(low, -90.0), min(high, 50.0)), (-3.0, 3.0), (low, low + 20)):
        x = np.exp2(rng.uniform(low_, high_, (320, 320))) * rng.choice([-1.0, 1.0], (320, 320))
        a, a64 = values(dtype, x)
        eye, eye64 = values(dtype, p)
        got, right = (eye @ a, eye64 @ a64) if side == "left" else (a @ eye, a64 @ eye64)
        assert np.array_equal(wide(got), right)


SPECIAL = {
    "infinite": [np.inf],
    "both infinities": [np.inf, -np.inf],
    "not a number": [np.nan],
    "subnormal": [1e-40, -3e-42],
    "huge": [3e38, -2.9e38],
    "least of pieces": [2.0**-101, -(2.0**-104)],
}


@pytest.mark.parametrize("what", SPECIAL)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_products__of_numbers_that_are_no_pieces(what: str, dtype: str) -> None:
    """A few of them anywhere: every row and column comes out as from float64."""
    rng = np.random.default_rng(3)
    for k in range(6):
        a, b = rng.standard_normal((130, 400)), rng.standard_normal((400, 530))
        x = (a, b)[k % 2]
        for v in SPECIAL[what]:
            x[rng.integers(x.shape[0]), rng.integers(x.shape[1])] = v
        a, a64 = values(dtype, a)
        b, b64 = values(dtype, b)
        with np.errstate(all="ignore"):
            right, size = a64 @ b64, abs(a64) @ abs(b64)
            rounded = wide(mx.array(right, dtype=mx.float64).astype(getattr(mx, dtype)))
        got = wide(a @ b)
        plain = np.isfinite(size) & np.isfinite(rounded)
        assert np.array_equal(np.isnan(got), np.isnan(rounded))
        assert np.array_equal(got[np.isinf(rounded)], rounded[np.isinf(rounded)])
        own = HALF_ULP[dtype] * 1.01 * abs(right[plain]) + 2.0**-25 * (dtype == "float16")
        assert (abs(got[plain] - right[plain]) <= 402 * 2.0**-24 * size[plain] + own).all()


@pytest.mark.parametrize("exponent", [-140, -120, -101, -75, -62, -51, -49, 40, 61, 63])
def test_products__of_any_size_are_right(exponent: int) -> None:
    rng = np.random.default_rng(4)
    a = rng.standard_normal((100, 500)).astype(np.float32) * np.float32(2.0) ** exponent
    b = rng.standard_normal((500, 640)).astype(np.float32)
    for x, y in ((a, b), (b.T[:500, :].copy(), a.T.copy())):
        got = wide(mx.array(x) @ mx.array(y))
        right, size = x.astype(np.float64) @ y.astype(np.float64), abs(x).astype(np.float64) @ abs(y).astype(np.float64)
        assert (abs(got - right) <= 502 * 2.0**-24 * size + 500 * 2.0**-149).all()


def test_products__of_two_small_sides_are_right() -> None:
    """2^-60 times 2^-60: each is a piece, the products of rests are below the normal range."""
    rng = np.random.default_rng(5)
    a = (rng.standard_normal((128, 512)) * 2.0**-60).astype(np.float32)
    b = (rng.standard_normal((512, 512)) * 2.0**-60).astype(np.float32)
    right = a.astype(np.float64) @ b.astype(np.float64)
    size = abs(a).astype(np.float64) @ abs(b).astype(np.float64)
    assert (abs(wide(mx.array(a) @ mx.array(b)) - right) <= 514 * 2.0**-24 * size + 512 * 2.0**-149).all()


@pytest.mark.parametrize("depth", [600, 3000, 9000])
@pytest.mark.parametrize("what", ["one sign", "normal", "sparse"])
def test_products__stay_exact_however_deep(what: str, depth: int) -> None:
    """Sums of one sign grow as they are made: each chunk of them adds up apart."""
    rng = np.random.default_rng(depth)
    a, b = rng.random((128, depth)), rng.random((depth, 192))
    if what != "one sign":
        a, b = rng.standard_normal(a.shape), rng.standard_normal(b.shape)
    if what == "sparse":
        a *= rng.random(a.shape) < 0.05
    a, b = a.astype(np.float32), b.astype(np.float32)
    right, size = a.astype(np.float64) @ b, abs(a).astype(np.float64) @ abs(b)
    off = (wide(mx.array(a) @ mx.array(b)) - right) / np.maximum(size, 1e-30)
    assert np.sqrt((off**2).mean()) < {"one sign": 6.0, "normal": 0.6, "sparse": 0.6}[what] * 2.0**-24


@pytest.mark.parametrize("small", [-45, -60, -75])
def test_products__of_small_numbers_beside_large_ones(small: int) -> None:
    """Some columns are tiny: their own elements are as exact as others."""
    rng = np.random.default_rng(7)
    a = (rng.random((300, 80)) * 2.0**-45).astype(np.float32)
    b = rng.random((80, 640)).astype(np.float32)
    b[:, ::7] *= np.float32(2.0) ** small
    right = a.astype(np.float64) @ b
    assert (abs(wide(mx.array(a) @ mx.array(b)) - right) <= 82 * 2.0**-24 * right).all()


def test_products__have_the_same_bits_in_any_layout() -> None:
    """Whether numbers are pieces is a matter of the numbers, not of how they lie."""
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((256, 512)).astype(np.float32), rng.standard_normal((512, 512)).astype(np.float32)
    for low in (-60, -90, -110):
        b[64:96] *= np.float32(2.0) ** low
        x, y = mx.array(a), mx.array(b)
        want = np.array(x @ y)
        gaps = mx.array(np.repeat(b, 2, axis=1))[:, ::2]
        turned = mx.array(np.ascontiguousarray(b.T)).T
        apart = mx.array(np.repeat(np.repeat(a, 2, axis=0), 3, axis=1))[::2, ::3]
        assert np.array_equal(np.array(x @ gaps), want)
        assert np.array_equal(np.array(x @ turned), want)
        assert np.array_equal(np.array(apart @ y), want)
        assert np.array_equal(np.array(x @ y[:, ::-1])[:, ::-1], want)


NO_PIECES = {"float32": [np.inf, np.nan, 3e38, 1e-40], "float16": [np.inf, np.nan], "bfloat16": [1e-40, 2.0**-125]}
ITEMS = {"packed": (5, 130, 200, 190), "strips": (5, 48, 300, 200), "deep": (3, 100, 2300, 130)}


def bits(c: mx.array) -> np.ndarray:
    return np.array(c.view(mx.uint32 if c.dtype == mx.float32 else mx.uint16))


@pytest.mark.parametrize("shape", ITEMS)
@pytest.mark.parametrize("dtype", HALF_ULP)
def test_products__of_an_item_do_not_depend_on_the_others(dtype: str, shape: str) -> None:
    """Whatever those hold, in a or in b: alone, among good ones and among bad ones an item has
    the same bits."""
    items, m, k, n = ITEMS[shape]
    rng = np.random.default_rng(9)
    for v in NO_PIECES[dtype]:
        a, b = rng.standard_normal((items, m, k)), rng.standard_normal((items, k, n))
        a[1, 17, 5] = v
        b[2 % items, 3, 99] = v
        all_bad = a.copy()
        all_bad[1:, :, 0] = v
        x, y, z = (values(dtype, q)[0] for q in (a, b, all_bad))
        together, beside = bits(x @ y), bits(z @ y)
        for i in range(items):
            assert np.array_equal(bits(x[i] @ y[i]), together[i]), (v, i)
            assert np.array_equal(bits(x[i : i + 1] @ y[i : i + 1])[0], together[i]), (v, i)
        assert np.array_equal(beside[0], together[0])


@pytest.mark.parametrize("dtype", HALF_ULP)
def test_products__of_a_row_do_not_depend_on_other_rows(dtype: str) -> None:
    """Items that share b are rows of one product: none has other bits for what the others hold, and
    each row is right."""
    rng = np.random.default_rng(10)
    a, b = rng.standard_normal((3, 90, 200)), rng.standard_normal((200, 256))
    y, b64 = values(dtype, b)
    good = bits(values(dtype, a)[0] @ y)
    for v in NO_PIECES[dtype]:
        for rows in ([(1, 7)], [(0, 0), (1, 31), (1, 32), (2, 89)], [(1, r) for r in range(90)]):
            some = a.copy()
            for item, row in rows:
                some[item, row, rng.integers(200)] = v
            x, a64 = values(dtype, some)
            got = x @ y
            kept = np.ones((3, 90), bool)
            kept[tuple(zip(*rows, strict=True))] = False
            assert np.array_equal(bits(got)[kept], good[kept]), v
            with np.errstate(all="ignore"):
                right, size = a64 @ b64, abs(a64) @ abs(b64)
                rounded = wide(mx.array(right, dtype=mx.float64).astype(getattr(mx, dtype)))
            plain = np.isfinite(size) & np.isfinite(rounded)
            assert np.array_equal(np.isnan(wide(got)), np.isnan(rounded))
            own = HALF_ULP[dtype] * 1.01 * abs(right[plain]) + 2.0**-25 * (dtype == "float16")
            assert (abs(wide(got)[plain] - right[plain]) <= 202 * 2.0**-24 * size[plain] + own).all()


def test_products__of_small_rows_beside_a_small_column_are_right() -> None:
    """2^-70 times 2^-40 lies below what pieces hold: the small rows go as floats, however many."""
    rng = np.random.default_rng(11)
    b = rng.random((160, 640)).astype(np.float32)
    b[:, 77] *= np.float32(2.0**-40)
    for small in ([3], list(range(0, 300, 2)), list(range(300))):
        a = rng.random((300, 160)).astype(np.float32)
        a[small] *= np.float32(2.0**-70)
        right = a.astype(np.float64) @ b
        assert (abs(wide(mx.array(a) @ mx.array(b)) - right) <= 162 * 2.0**-24 * right).all()


@pytest.mark.parametrize("dtype", HALF_ULP)
def test_products__of_panels_without_a_piece_are_those_of_their_rows(dtype: str) -> None:
    """Whether none of 32 rows, all but one or every other can be pieces shows in no row's bits."""
    rng = np.random.default_rng(13)
    for n, k in ((300, 200), (1100, 1500)):
        a, y = rng.standard_normal((160, k)), values(dtype, rng.standard_normal((k, n)))[0]
        bad = a.copy()
        bad[np.arange(160), rng.integers(0, k, 160)] = np.resize(NO_PIECES[dtype], 160)
        some = bad.copy()
        some[[40, *range(64, 96, 2), *range(96, 128)]] = a[[40, *range(64, 96, 2), *range(96, 128)]]
        good, all_bad, mixed = (bits(values(dtype, x)[0] @ y) for x in (a, bad, some))
        kept = (some == a).all(1)
        assert np.array_equal(mixed[kept], good[kept])
        assert np.array_equal(mixed[~kept], all_bad[~kept])
        for row in (0, 33, 65):
            one = a.copy()
            one[row] = bad[row]
            assert np.array_equal(bits(values(dtype, one)[0] @ y)[row], all_bad[row])


def test_products__of_depth_one_are_rounded_once() -> None:
    rng = np.random.default_rng(12)
    for dtype in HALF_ULP:
        a, a64 = values(dtype, rng.standard_normal((3100, 1)))
        b, b64 = values(dtype, rng.standard_normal((1, 3100)))
        right = mx.array(a64 * b64, dtype=mx.float64).astype(getattr(mx, dtype))
        assert np.array_equal(bits(a @ b), bits(right))


@pytest.mark.parametrize("dtype", HALF_ULP)
def test_products__in_batches_and_views(dtype: str) -> None:
    rng = np.random.default_rng(6)
    a, a64 = values(dtype, rng.standard_normal((3, 160, 2, 330)))
    b, b64 = values(dtype, rng.standard_normal((3, 660, 170)))
    cases = [
        (a[:, :, 0] @ b[:, ::2], a64[:, :, 0] @ b64[:, ::2]),
        (a[:, ::-1, 1] @ b[0, 330:], a64[:, ::-1, 1] @ b64[0, 330:]),
        (b.swapaxes(1, 2)[:, :, ::2] @ a[1, :, 0].T, b64.swapaxes(1, 2)[:, :, ::2] @ a64[1, :, 0].T),
        (mx.vmap(lambda x, y: x[:, 1] @ y[330:])(a, b), a64[:, :, 1] @ b64[:, 330:]),
    ]
    for got, right in cases:
        assert np.abs(wide(got) - right).max() <= 1e-4 + HALF_ULP[dtype] * 1.01 * abs(right).max()


def test_matrix_unit__can_be_left_out() -> None:
    """MARRAM_CPU names a tier; "amx" is one where the unit is, avx512 has none of it."""
    program = "import marram.core as mx; print(mx.cpu_tier())"

    def tier(name: str) -> str:
        run = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "MARRAM_CPU": name}, capture_output=True, text=True
        )
        return run.stdout.strip() if run.returncode == 0 else run.stderr

    if tier("") == "amx":
        assert (tier("amx"), tier("avx512")) == ("amx", "avx512")
        assert "amx" in tier("pentium")
    else:
        assert "MARRAM_CPU is 'amx', but " in tier("amx")


@pytest.mark.skipif(sys.platform != "linux", reason="the system's leave is Linux's")
def test_matrix_unit__says_why_it_cannot_be_used() -> None:
    """The system refuses it to a process one of whose threads has an alternate signal stack without
    room for the tiles."""
    program = """
import ctypes
class Stack(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
room = ctypes.create_string_buffer(8192)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(room), 0, 8192)), None) == 0
import marram.core as mx
print(mx.cpu_tier())
"""

    def said(name: str) -> str:
        run = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "MARRAM_CPU": name}, capture_output=True, text=True
        )
        return run.stdout.strip() if run.returncode == 0 else run.stderr

    if "amx_bf16" not in Path("/proc/cpuinfo").read_text():
        assert "MARRAM_CPU is 'amx', but this processor has no matrix unit" in said("amx")
        return
    assert said("") == "avx512"
    assert "MARRAM_CPU is 'amx', but the system refused leave to use the matrix unit" in said("amx")
    assert "avx512" in said("amx")


@pytest.mark.parametrize("exponent", [-120, -116, -112, -100])
def test_bfloat16__sums_that_cancel_are_not_lost(exponent: int) -> None:
    """2^e (1 + 2^-7) - 2^e is 2^(e - 7), a number of bfloat16's below 2^-126 for the first."""
    x = np.zeros((64, 2), np.float32)
    x[:, 0], x[:, 1] = 2.0**exponent * (1 + 2.0**-7), -(2.0**exponent)
    a, b = mx.array(x).astype(mx.bfloat16), mx.ones((2, 64)).astype(mx.bfloat16)
    assert np.all(np.array((a @ b).astype(mx.float32)) == np.float32(2.0 ** (exponent - 7)))
    lines, filters = mx.reshape(a, (2, 32, 2)), mx.ones((64, 1, 2)).astype(mx.bfloat16)
    assert np.all(np.array(mx.conv1d(lines, filters).astype(mx.float32)) == np.float32(2.0 ** (exponent - 7)))
