# SPDX-License-Identifier: Apache-2.0
"""Types, from the tables in tests/golden/dtypes.json: what each pair, scalar,
cast and function gives."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import marram.core as mx
import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
DATA = json.loads((HERE.parent / "golden" / "dtypes.json").read_text(encoding="utf-8"))
DTYPES = DATA["dtypes"]
INTEGERS = [d for d in DTYPES if "int" in d]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
NUMBERS = DTYPES[1:]
TIERS = ["baseline", "avx2", "avx512"]


def of(name):
    return getattr(mx, "bool_" if name == "bool" else name)


def name_of(x):
    return str(x.dtype).rsplit(".", 1)[-1].rstrip("_")


def promoted(a, b):
    return DATA["promotion"][f"{a} {b}"]


def floating(name):
    return "float32" if name == "bool" or "int" in name else name


# ---- promotion ---------------------------------------------------------------
def test_promotion__of_all_pairs_is_the_table():
    assert len(DATA["promotion"]) == 15 * 15
    for a in DTYPES:
        for b in DTYPES:
            assert mx.result_type(of(a), of(b)) is of(promoted(a, b)), (a, b)
            assert mx.result_type(mx.ones((2,), dtype=of(a)), of(b)) is of(promoted(a, b)), (a, b)


SAME = ["add", "subtract", "multiply", "maximum", "minimum", "power", "outer", "kron"]
REAL_ONLY = ["floor_divide", "remainder"]
TRUTHS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
          "logical_xor"]  # fmt: skip
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]
WHOLE_PAIRS = {
    "where": lambda a, b: mx.where(mx.array([True, False]), a, b),
    "concatenate": lambda a, b: mx.concatenate([a, b]),
    "stack": lambda a, b: mx.stack([a, b]),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def expected_result(op, a, b):
    """The dtype's name, or None where complex or floating input is refused."""
    t = promoted(a, b)
    if op in TRUTHS:
        return "bool"
    if op in ("divide", "logaddexp", "/"):
        return floating(t)
    if op == "arctan2":
        return None if t in COMPLEX else floating(t)
    if op in REAL_ONLY:
        return None if t in COMPLEX else t
    if op in BITS:
        whole = t == "bool" or "int" in t
        return ("uint8" if t == "bool" and "shift" in op else t) if whole else None
    return t


@pytest.mark.parametrize("op", [*SAME, *REAL_ONLY, *TRUTHS, *BITS, "divide", "logaddexp", "arctan2", *WHOLE_PAIRS])
def test_promotion__of_every_operator_is_the_table(op):
    f = WHOLE_PAIRS.get(op) or getattr(mx, op)
    results = []
    for a in DTYPES:
        for b in DTYPES:
            x, y = mx.ones((2,), dtype=of(a)), mx.ones((2,), dtype=of(b))
            want = expected_result(op, a, b)
            if want is None:
                with pytest.raises(ValueError, match="needs"):
                    f(x, y)
                continue
            results.append(f(x, y))
            assert name_of(results[-1]) == want, (a, b)
    mx.eval(results)


def test_promotion__of_a_0d_array_is_that_of_any_array():
    for a in DTYPES:
        for b in DTYPES:
            got = mx.ones((2,), dtype=of(a)) + mx.array(1, dtype=of(b))
            assert name_of(got) == promoted(a, b), (a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scalars__of_python_are_weak(dtype):
    x = mx.ones((2,), dtype=of(dtype))
    for scalar, want in zip((True, 1, 1.5, 1j), DATA["weak"][dtype], strict=True):
        for got in (x + scalar, scalar + x, x * scalar, mx.maximum(x, scalar), mx.where(True, x, scalar)):
            assert name_of(got) == want, scalar


@pytest.mark.parametrize("dtype", DTYPES)
def test_scalars__of_numpy_are_weak(dtype):
    x = mx.ones((2,), dtype=of(dtype))
    scalars = (np.bool_(True), np.int64(1), np.float32(1.5), np.complex64(1j))
    for scalar, want in zip(scalars, DATA["weak"][dtype], strict=True):
        assert name_of(x + scalar) == want, scalar
    for scalar in (np.uint8(1), np.int16(1)):
        assert name_of(x * scalar) == DATA["weak"][dtype][1]
    for scalar in (np.float16(1), np.float64(1)):
        assert name_of(x * scalar) == DATA["weak"][dtype][2]
    assert name_of(x * np.complex128(1)) == DATA["weak"][dtype][3]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_scalars__that_do_not_fit_an_integer_are_refused(dtype):
    info = np.iinfo(dtype)
    x = mx.ones((2,), dtype=of(dtype))
    assert (x * 0 + int(info.max)).tolist() == [int(info.max)] * 2
    assert (x * 0 + int(info.min)).tolist() == [int(info.min)] * 2
    for bad in (int(info.max) + 1, int(info.min) - 1):
        with pytest.raises((ValueError, OverflowError), match="fit|64 bits"):
            x + bad


def test_scalars__of_floats_round_to_infinity():
    assert (mx.ones((1,), dtype=mx.float16) + 1e6).tolist() == [math.inf]
    assert (mx.ones((1,), dtype=mx.float32) + 1e300).tolist() == [math.inf]


def test_scalars__two_of_them_follow_the_kinds():
    assert mx.power(2, 3).dtype is mx.int32
    assert mx.add(True, True).dtype is mx.bool_
    assert mx.add(1, 1.5).dtype is mx.float32
    assert mx.add(1.5, 1j).dtype is mx.complex64


def test_operands__of_other_kinds_are_refused():
    x = mx.ones((2,))
    for bad in ([1, 2], "1"):
        with pytest.raises((ValueError, TypeError)):
            x + bad
    with pytest.raises(TypeError):
        x + None
    assert (x == "a") is False
    assert (x == [1.0, 1.0]) is False
    with pytest.raises(TypeError):
        x == None  # noqa: B015, E711


# ---- casts -------------------------------------------------------------------
SPACE = {"nan": math.nan, "inf": math.inf, "__builtins__": {}}


def same(a, b):
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, complex) or isinstance(b, complex):
        a, b = complex(a), complex(b)
        return same(a.real, b.real) and same(a.imag, b.imag)
    return type(a) is type(b) and (a == b or (a != a and b != b))


@pytest.mark.parametrize(("source", "values", "to", "want"), DATA["casts"])
def test_casts__are_the_table(source, values, to, want):
    x = mx.array(eval(values, SPACE), dtype=of(source))
    for n in (1, 37):  # the vector loop too
        got = mx.concatenate([x] * n).astype(of(to))
        assert got.dtype is of(to)
        assert same(got.tolist(), eval(want, SPACE) * n)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", INTEGERS)
def test_casts__of_floats_saturate_and_nan_is_0(source, to):
    info = np.iinfo(to)
    edge = [float(info.max), float(info.min), float(info.max) * 2, -float(info.max) * 2 - 1]
    around = [e * s for e in edge for s in (1, 1 - 2**-7, 1 + 2**-7, 1 - 2**-24, 1 + 2**-23)]
    small = [0.0, -0.0, 0.5, -0.5, 0.999, -0.999, 1.5, -1.5, 127.5, 128.0, -128.9, -129.0, 255.9, 256.0]
    with np.errstate(over="ignore"):
        x = mx.array([*small, *around, math.nan, -math.nan, math.inf, -math.inf, 1e-30, 3e38], dtype=of(source))
    given = x.tolist()
    want = []
    for v in given:
        if math.isnan(v):
            want.append(0)
        elif math.isinf(v):
            want.append(int(info.max if v > 0 else info.min))
        else:
            want.append(min(max(int(v), int(info.min)), int(info.max)))
    assert x.astype(of(to)).tolist() == want
    assert mx.compile(lambda a: a.astype(of(to)))(x).tolist() == want


@pytest.mark.parametrize("source", COMPLEX)
def test_casts__of_complex_numbers_take_the_real_part(source):
    x = mx.array([1.5 + 2j, 3j, complex(math.nan, 1), complex(1e30, 0), -1e30 + 0j], dtype=of(source))
    for to in INTEGERS:
        info = np.iinfo(to)
        assert x.astype(of(to)).tolist() == [1, 0, 0, int(info.max), int(info.min)]
    assert x.astype(mx.bool_).tolist() == [True] * 5
    assert same(x.astype(mx.float64).tolist()[:2], [1.5, 0.0])


def test_casts__of_integers_wrap():
    for source in INTEGERS:
        info = np.iinfo(source)
        values = [0, 1, int(info.max), int(info.min), int(info.max) // 3]
        for to in INTEGERS:
            got = mx.array(np.array(values, source)).astype(of(to)).tolist()
            assert got == np.array(values, source).astype(to).tolist()


def test_casts__to_halves_round_to_even_and_overflow_to_infinity():
    x = mx.array([2049.0, 2051.0, 65519.0, 65520.0, 2**-25, 2**-25 * 1.0001, -1e6], dtype=mx.float64)
    half = [2048.0, 2052.0, 65504.0, math.inf, 0.0, 2**-24, -math.inf]
    assert x.astype(mx.float16).tolist() == half
    y = mx.array([257.0, 259.0, 3.4e38, 1e39, 1 + 2**-8, 1 + 3 * 2**-8], dtype=mx.float64)
    assert y.astype(mx.bfloat16).tolist()[:2] == [256.0, 260.0]
    assert y.astype(mx.bfloat16).tolist()[3:] == [math.inf, 1.0, 1 + 2**-6]
    # once rounded: through float32 the first would be a tie and go down
    z = mx.array([1 + 2**-11 + 2**-30, 1 + 2**-8 + 2**-40], dtype=mx.float64)
    assert z.astype(mx.float16).tolist()[0] == 1 + 2**-10
    assert z.astype(mx.bfloat16).tolist()[1] == 1 + 2**-7


def test_casts__by_the_constructor_are_those_of_astype():
    assert mx.array(300, dtype=mx.uint8).tolist() == 44
    assert mx.array(-1, dtype=mx.uint8).tolist() == 255
    assert mx.array(math.nan, dtype=mx.int32).tolist() == 0
    assert mx.array([1e30, -1e30], dtype=mx.int16).tolist() == [32767, -32768]


# ---- integers ----------------------------------------------------------------
@pytest.mark.parametrize(("expression", "want", "dtype"), DATA["arithmetic"])
def test_integers__give_the_table(expression, want, dtype):
    def make(v, t="int32"):
        return mx.array(v, dtype=getattr(mx, t))

    got = eval(expression, {"I": make, "mx": mx, "float": float})
    assert name_of(got) == dtype.rstrip("_")
    for a, b in zip(got.tolist(), eval(want, SPACE), strict=True):
        assert a == pytest.approx(b, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers__division_is_python_s_where_it_is_defined(dtype):
    info = np.iinfo(dtype)
    edge = [0, 1, 2, 3, 7, int(info.max), int(info.max) - 1, int(info.min), int(info.min) + 1]
    edge += [-1, -2, -3, -7] if dtype.startswith("int") else []
    pairs = [(a, b) for a in edge for b in edge]
    a = mx.array(np.array([p[0] for p in pairs], dtype))
    b = mx.array(np.array([p[1] for p in pairs], dtype))

    def wrap(v):
        return (v - int(info.min)) % (1 << info.bits) + int(info.min)

    quotient = [wrap(x // y) if y else 0 for x, y in pairs]
    rest = [x % y if y else x for x, y in pairs]
    assert (a // b).tolist() == quotient
    assert (a % b).tolist() == rest
    both = mx.divmod(a, b)
    assert both[0].tolist() == quotient
    assert both[1].tolist() == rest
    fused = mx.compile(lambda a, b: (a // b) * 1 + (a % b) * 0)
    assert fused(a, b).tolist() == quotient


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers__shift_by_the_count_modulo_the_width(dtype):
    bits = np.iinfo(dtype).bits
    signed = dtype.startswith("int")
    low = int(np.iinfo(dtype).min)
    for value in (1, 3, 100, *([-1, -100] if signed else [])):
        for count in (0, 1, bits - 1, bits, bits + 1, 40, 70, *([-1] if signed else [])):
            if count > np.iinfo(dtype).max:
                continue
            # 8 and 16 bits shift in 32 and are cut off
            wide = max(bits, 32)
            k = count % wide
            left = ((value << k) - low) % (1 << bits) + low
            x, n = mx.array([value], dtype=of(dtype)), mx.array([count], dtype=of(dtype))
            assert (x << n).tolist() == [left], (value, count)
            assert (x >> n).tolist() == [value >> k], (value, count)


def test_integers__overflow_wraps():
    for dtype in INTEGERS:
        info = np.iinfo(dtype)
        high, low = mx.array([int(info.max)], dtype=of(dtype)), mx.array([int(info.min)], dtype=of(dtype))
        assert (high + 1).tolist() == [int(info.min)]
        assert (low - 1).tolist() == [int(info.max)]
        assert mx.negative(low).tolist() == [int(info.min)]
        assert mx.abs(low).tolist() == [int(info.min)]
        assert (high * high).tolist() == [1]
        assert mx.square(high).tolist() == [1]


# ---- NaN, infinities, ties ---------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan__rules(dtype):
    t = of(dtype)
    x = mx.array([1.0, math.nan, -2.0, math.nan, 5.0] + [0.5] * 40, dtype=t)
    nan, one = mx.array([math.nan], dtype=t), mx.array([1.0], dtype=t)
    for f in (mx.maximum, mx.minimum):
        assert math.isnan(f(nan, one).item())
        assert math.isnan(f(one, nan).item())
    for f in (mx.max, mx.min, mx.median, mx.sum, mx.mean):
        assert math.isnan(f(x).item())
    for f in (mx.cummax, mx.cummin):
        got = f(x).tolist()
        assert got[0] == 1.0
        assert all(math.isnan(v) for v in got[1:])
    assert math.isnan(mx.clip(nan, 0, 1).item())
    assert mx.argmax(x).item() == 1
    assert mx.argmin(x).item() == 1
    s = mx.sort(x).tolist()
    assert s[0] == -2.0
    assert s[-3] == 5.0
    assert all(math.isnan(v) for v in s[-2:])
    assert mx.argsort(x).tolist()[-2:] == [1, 3]
    assert sum(math.isnan(v) for v in mx.topk(x, 3).tolist()) == 2
    assert math.isnan(mx.sign(nan).item())
    assert mx.all(nan).item() is True
    assert mx.any(nan).item() is True
    assert bool(nan) is True
    assert mx.where(nan, one, one + 1).item() == 1.0
    assert mx.logical_not(nan).item() is False
    assert mx.equal(nan, nan).item() is False
    assert not mx.array_equal(nan, nan).item()
    assert mx.array_equal(nan, nan, equal_nan=True).item()
    assert mx.allclose(nan, nan, equal_nan=True).item()
    assert not mx.isclose(nan, nan).item()


def test_ties__the_first_wins_and_order_is_kept():
    x = mx.array([3, 1, 3, 1, 2] * 20)
    assert mx.argmax(x).item() == 0
    assert mx.argmin(x).item() == 1
    order = mx.argsort(x).tolist()
    assert order[:40] == [i for i in range(100) if i % 5 in (1, 3)]
    z = mx.array([0.0, -0.0, 0.0])
    assert mx.argmax(z).item() == 0
    assert mx.argmin(z).item() == 0


def test_isnan_isinf__of_integers_are_false():
    for dtype in ["bool", *INTEGERS]:
        x = mx.ones((3,), dtype=of(dtype))
        for f in (mx.isnan, mx.isinf, mx.isposinf, mx.isneginf):
            assert f(x).tolist() == [False] * 3
        assert mx.isfinite(x).tolist() == [True] * 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty__reductions(dtype):
    x = mx.zeros((0,), dtype=of(dtype))
    assert mx.sum(x).item() == 0
    assert mx.prod(x).item() == 1
    assert mx.all(x).item() is True
    assert mx.any(x).item() is False
    mean = mx.mean(x).item()
    assert mean != mean
    for f in (mx.max, mx.min, mx.argmax, mx.argmin):
        with pytest.raises(ValueError, match="empty|no element|0"):
            f(x)


# ---- constructors, printing, conversion --------------------------------------
DEFAULTS = [
    ("mx.array(True)", "bool"), ("mx.array(1)", "int32"), ("mx.array(1.0)", "float32"), ("mx.array(1j)", "complex64"),
    ("mx.array([True, 2])", "int32"), ("mx.array([1, 2.5])", "float32"), ("mx.array([1, 2j])", "complex64"),
    ("mx.array(2**31 - 1)", "int32"), ("mx.array(2**31)", "int64"), ("mx.array(-2**31 - 1)", "int64"),
    ("mx.array([1, 2**40])", "int64"), ("mx.array(2**64 - 1, dtype=mx.uint64)", "uint64"),
    ("mx.array([])", "float32"), ("mx.array(())", "float32"), ("mx.array(np.float64(1))", "float32"),
    ("mx.array(np.ones(2))", "float32"), ("mx.array(np.ones(2, 'f2'))", "float16"),
    ("mx.array(np.ones(2, 'u8'))", "uint64"), ("mx.array(np.ones(2), dtype=mx.float64)", "float64"),
    ("mx.array(b'ab')", "uint8"), ("mx.array(bytearray(3))", "uint8"), ("mx.array(memoryview(b'ab'))", "uint8"),
    ("mx.array([np.int64(1), np.int64(2)])", "int32 int64"), ("mx.array([np.float32(1)])", "float32"),
    ("mx.zeros((2,))", "float32"), ("mx.ones((2,))", "float32"), ("mx.eye(2)", "float32"),
    ("mx.identity(2)", "float32"), ("mx.tri(2)", "float32"), ("mx.linspace(0, 1, 3)", "float32"),
    ("mx.hanning(3)", "float32"), ("mx.hamming(3)", "float32"), ("mx.blackman(3)", "float32"),
    ("mx.bartlett(3)", "float32"), ("mx.full((2,), 1)", "int32"), ("mx.full((2,), 1.0)", "float32"),
    ("mx.full((2,), True)", "bool"), ("mx.full((2,), 3.7, dtype=mx.int32)", "int32"), ("mx.arange(3)", "int32"),
    ("mx.arange(3.0)", "float32"), ("mx.random.uniform(shape=(2,))", "float32"), ("mx.random.normal((2,))", "float32"),
    ("mx.random.gumbel((2,))", "float32"), ("mx.random.laplace((2,))", "float32"),
    ("mx.random.truncated_normal(-1.0, 1.0, (2,))", "float32"), ("mx.random.randint(0, 3, (2,))", "int32"),
    ("mx.random.categorical(mx.ones((2,)))", "uint32"), ("mx.random.permutation(3)", "uint32 int32"),
    ("mx.random.bernoulli(0.5, (2,))", "bool"), ("mx.random.key(0)", "uint32"),
    ("mx.random.split(mx.random.key(0))", "uint32"), ("mx.argmax(mx.ones((2,)))", "uint32"),
    ("mx.argmin(mx.ones((2,)))", "uint32"), ("mx.argsort(mx.ones((2,)))", "uint32"),
    ("mx.argpartition(mx.ones((2,)), 1)", "uint32"), ("mx.searchsorted(mx.ones((2,)), mx.ones((2,)))", "uint32"),
    ("mx.count_nonzero(mx.ones((2,)))", "int32"), ("mx.fft.fft(mx.ones((2,)))", "complex64"),
    ("mx.fft.irfft(mx.ones((2,)))", "float32"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "want"), DEFAULTS)
def test_constructors__have_these_defaults(call, want):
    assert name_of(eval(call)) in want.split()


def test_constructors__refuse_what_does_not_fit():
    with pytest.raises(OverflowError):
        mx.array(2**63)
    with pytest.raises(OverflowError):
        mx.array(2**64, dtype=mx.uint64)
    for bad in ({}, "text", iter([1])):
        with pytest.raises(ValueError):
            mx.array(bad)
    with pytest.raises(TypeError):
        mx.array(None)


@pytest.mark.parametrize(("expression", "text"), DATA["printing"])
def test_printing__is_the_table(expression, text):
    x = eval(expression)
    assert repr(x) == text
    assert str(x) == text


def test_printing__with_a_precision():
    with mx.printoptions(precision=3):
        assert repr(mx.array([0.123456, 1e10, 2.0])) == "array([0.123, 10000000000.000, 2.000], dtype=float32)"


@pytest.mark.parametrize("dtype", DTYPES)
def test_printing__abbreviates_every_dtype(dtype):
    leaf = {"bool": "True"}.get(dtype, "1+0j" if dtype in COMPLEX else "1")
    row = ", ".join([leaf] * 3)
    assert repr(mx.ones((7,), dtype=of(dtype))) == f"array([{row}, ..., {row}], dtype={dtype})"
    assert repr(mx.ones((6,), dtype=of(dtype))) == f"array([{row}, {row}], dtype={dtype})"
    long = repr(mx.ones((1000, 2), dtype=of(dtype)))
    assert long.count("\n") == 6
    assert long.splitlines()[3].strip() == "...,"
    assert len(repr(mx.ones((40, 40, 40, 40), dtype=of(dtype)))) < 12000
    nan = mx.array([0.0], dtype=mx.float32) / 0
    assert repr(nan) == repr(-nan) == "array([nan], dtype=float32)"


@pytest.mark.parametrize("dtype", DTYPES)
def test_conversion__to_python_is_the_table(dtype):
    errors = {"TypeError": TypeError}
    for shape in ((), (1,), (1, 1)):
        x = mx.ones(shape, dtype=of(dtype))
        ways = [lambda x=x: x.item(), lambda x=x: np.ravel(np.array(x.tolist(), object))[0], lambda x=x: int(x),
                lambda x=x: float(x), lambda x=x: bool(x), lambda x=x: complex(x)]  # fmt: skip
        for way, want in zip(ways, DATA["to_python"][dtype], strict=True):
            if want in errors:
                with pytest.raises(errors[want]):
                    way()
            else:
                assert same(way(), eval(want)), want
    two = mx.ones((2,), dtype=of(dtype))
    for way in (two.item, two.__int__, two.__float__, two.__bool__, two.__complex__):
        with pytest.raises((ValueError, TypeError)):
            way()


# ---- results of functions ----------------------------------------------------
# Where Marram does more than the notes say, or other than they do, and why.
CALLS = {
    # the note was made with a bound of -1, which no unsigned type has
    ("clip", "uint64"): "refuse",
    # the note's own words: bool becomes int32
    ("cumprod", "bool"): "int32",
    ("cumulative_prod", "bool"): "int32",
    # no order, no floor of a complex quotient
    ("floor_divide", "complex64"): "refuse",
    ("floor_divide", "complex128"): "refuse",
    # float64 keeps its precision
    ("conv_general", "float64"): "float64",
    ("conv_transpose1d", "float64"): "float64",
    ("conv_transpose2d", "float64"): "float64",
    ("nan_to_num", "float64"): "float64",
    ("nan_to_num", "complex64"): "complex64",
    ("nan_to_num", "complex128"): "complex128",
    ("fast.cross_entropy", "float64"): "float64",
    ("hadamard_transform", "float64"): "float64",
    # what is new does not drop an imaginary part in silence
    ("hadamard_transform", "complex128"): "refuse",
}
for _f in ("block_masked_mm", "gather_mm"):
    CALLS.update({(_f, d): d for d in [*FLOATS, *COMPLEX]})
for _f in ("fft.rfft", "fft.rfft2", "fft.rfftn"):  # "real input only"
    CALLS.update({(_f, d): "refuse" for d in COMPLEX})
for _d in DTYPES:  # probed with one operand left in float32
    CALLS[("pow", _d)] = _d
for _d in ("float16", "bfloat16"):
    CALLS[("segmented_mm", _d)] = _d


def inputs(call, dtype):
    space = {"mx": mx}
    for name, value in DATA["inputs"].items():
        if re.search(rf"\b{name}\b", call):
            if isinstance(value, dict):
                value = np.array(value["re"]) + 1j * np.array(value["im"])
            space[name] = mx.array(np.array(value)).astype(of(dtype))
    return space


def run_call(call, dtype):
    space = inputs(call, dtype)
    *before, last = [p.strip() for p in call.split(";")]
    for statement in before:
        exec(statement, space)
    out = eval(last, space)
    flat = []
    for x in out if isinstance(out, (list, tuple)) else [out]:
        flat += x if isinstance(x, (list, tuple)) else [x]
    mx.eval(flat)
    return "/".join(dict.fromkeys(name_of(x) for x in flat))


def exists(name):
    module = mx
    for part in name.split("."):
        module = getattr(module, part, None)
    return module is not None


@pytest.mark.parametrize(("name", "call", "results"), DATA["functions"])
def test_functions__keep_or_refuse_each_dtype(name, call, results):
    if not exists(name):
        pytest.skip("not in this build")
    for dtype, note in zip(DTYPES, results, strict=True):
        want = CALLS.get((name, dtype), note)
        if want == "refuse":
            with pytest.raises((ValueError, TypeError)):
                run_call(call, dtype)
        else:
            assert run_call(call, dtype) == want, dtype


@pytest.mark.parametrize("tier", TIERS)
def test_tiers__all_have_these_rules(tier):
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", __file__, "-k",
         "casts or integers or nan or ties"],
        env={**os.environ, "MARRAM_CPU": tier, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
    )  # fmt: skip
    if "MARRAM_CPU is" in run.stdout:
        pytest.skip(f"this machine has no {tier}")
    assert run.returncode == 0, run.stdout[-3000:]
