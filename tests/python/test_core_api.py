# SPDX-License-Identifier: Apache-2.0
"""The array object: making, types, operators, printing, conversion."""

import copy
import gc
import inspect
import math
import operator
import pickle
import subprocess
import sys
import warnings

import marram.core as mx
import numpy as np
import pytest

NAMES = {
    "b": mx.bool_,
    "u8": mx.uint8,
    "u16": mx.uint16,
    "u32": mx.uint32,
    "u64": mx.uint64,
    "i8": mx.int8,
    "i16": mx.int16,
    "i32": mx.int32,
    "i64": mx.int64,
    "f16": mx.float16,
    "bf16": mx.bfloat16,
    "f32": mx.float32,
    "f64": mx.float64,
    "c64": mx.complex64,
    "c128": mx.complex128,
}
DTYPES = list(NAMES.values())

# Row with column, as the table of types prints it.
PROMOTION = """
b    b    u8   u16  u32  u64  i8   i16  i32  i64  f16  bf16 f32  f64  c64
u8   u8   u8   u16  u32  u64  i16  i16  i32  i64  f16  bf16 f32  f64  c64
u16  u16  u16  u16  u32  u64  i32  i32  i32  i64  f16  bf16 f32  f64  c64
u32  u32  u32  u32  u32  u64  i64  i64  i64  i64  f16  bf16 f32  f64  c64
u64  u64  u64  u64  u64  u64  f32  f32  f32  f32  f16  bf16 f32  f64  c64
i8   i8   i16  i32  i64  f32  i8   i16  i32  i64  f16  bf16 f32  f64  c64
i16  i16  i16  i32  i64  f32  i16  i16  i32  i64  f16  bf16 f32  f64  c64
i32  i32  i32  i32  i64  f32  i32  i32  i32  i64  f16  bf16 f32  f64  c64
i64  i64  i64  i64  i64  f32  i64  i64  i64  i64  f16  bf16 f32  f64  c64
f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64  c64
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64  c64
f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  c64
f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128
c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c128 c64
"""
CELLS = [
    (row.split()[0], column, cell)
    for row in PROMOTION.strip().splitlines()
    for column, cell in zip(list(NAMES)[:14], row.split()[1:], strict=True)
]


@pytest.mark.parametrize(("a", "b", "want"), CELLS)
def test_promotion__of_arrays(a, b, want):
    assert mx.result_type(NAMES[a], NAMES[b]) is NAMES[want]
    x = mx.array([1], dtype=NAMES[a]) + mx.array(1, dtype=NAMES[b])
    assert x.dtype is NAMES[want]


WEAK = """
b    b    i32  f32  c64
u8   u8   u8   f32  c64
u16  u16  u16  f32  c64
u32  u32  u32  f32  c64
u64  u64  u64  f32  c64
i8   i8   i8   f32  c64
i16  i16  i16  f32  c64
i32  i32  i32  f32  c64
i64  i64  i64  f32  c64
f16  f16  f16  f16  c64
bf16 bf16 bf16 bf16 c64
f32  f32  f32  f32  c64
f64  f64  f64  f64  c128
c64  c64  c64  c64  c64
"""


@pytest.mark.parametrize("row", WEAK.strip().splitlines())
def test_promotion__python_scalars_are_weak(row):
    name, *cells = row.split()
    x = mx.array([1], dtype=NAMES[name])
    for scalar, cell in zip((True, 1, 1.5, 1j), cells, strict=True):
        assert (x + scalar).dtype is NAMES[cell]
        assert (scalar + x).dtype is NAMES[cell]
        assert mx.add(scalar, x).dtype is NAMES[cell]
    for scalar, cell in zip((np.bool_(True), np.int64(1), np.float32(1.5), np.complex64(1j)), cells, strict=True):
        assert (x + scalar).dtype is NAMES[cell]


def test_promotion__zero_d_arrays_are_not_weak():
    assert (mx.array([1.0], dtype=mx.float16) * mx.array(2.0)).dtype is mx.float32


def test_promotion__numbers_alone_follow_their_kind():
    assert mx.power(2, 3).dtype is mx.int32
    assert mx.power(2, 3).item() == 8
    assert mx.add(True, 1.5).dtype is mx.float32


@pytest.mark.parametrize(("dtype", "value"), [(mx.uint8, 300), (mx.uint8, -1), (mx.int32, 2**40), (mx.int8, 128)])
def test_scalars__an_int_that_does_not_fit_is_refused(dtype, value):
    with pytest.raises(ValueError, match=str(value)):
        mx.array([1], dtype=dtype) + value


def test_scalars__a_float_that_does_not_fit_becomes_inf():
    assert (mx.array([1], dtype=mx.float16) + 1e6).item() == math.inf


# ---- making ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, mx.bool_),
        (1, mx.int32),
        (1.5, mx.float32),
        (1j, mx.complex64),
        ([True, 2], mx.int32),
        ([1, 2.5], mx.float32),
        ([1, 2.5, 1j], mx.complex64),
        ([1, 2**40], mx.int64),
        (2**40, mx.int64),
        ([], mx.float32),
        ((), mx.float32),
        ([[], []], mx.float32),
        (b"abc", mx.uint8),
        (bytearray(b"abc"), mx.uint8),
        (memoryview(b"abc"), mx.uint8),
        (np.float64(1), mx.float32),
        (np.float16(1), mx.float16),
        (np.int64(1), mx.int64),
        (np.zeros(2), mx.float32),
        (np.zeros(2, complex), mx.complex128),
        (np.zeros(2, np.complex64), mx.complex64),
        (np.zeros(2, np.uint16), mx.uint16),
        ([np.float32(1), np.int8(2)], mx.float32),
        ([mx.array(1), 2.5], mx.float32),
        ([np.arange(2), np.arange(2)], mx.int64),
    ],
)
def test_making__dtype_of_a_value(value, dtype):
    assert mx.array(value).dtype is dtype


def test_making__nested_values():
    x = mx.array([[1, 2], (3, 4)])
    assert x.shape == (2, 2)
    assert x.tolist() == [[1, 2], [3, 4]]
    assert mx.array([[mx.array(1), 2]]).tolist() == [[1, 2]]
    assert mx.array([mx.array([1, 2]), mx.array([3, 4])]).shape == (2, 2)
    assert mx.array([[[]]]).shape == (1, 1, 0)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ([[1, 2], [3]], ValueError),
        ([1, [2]], ValueError),
        ([[1], 2], ValueError),
        ("text", ValueError),
        (["a"], ValueError),
        (None, TypeError),
        ([None], TypeError),
        ({}, ValueError),
        (2**64, OverflowError),
        (2**63, OverflowError),
        (-(2**63) - 1, OverflowError),
    ],
)
def test_making__what_is_no_array_is_refused(value, error):
    with pytest.raises(error):
        mx.array(value)


def test_making__uint64_holds_what_int64_does_not():
    assert mx.array(2**64 - 1, dtype=mx.uint64).item() == 2**64 - 1
    assert mx.array([2**63, 1], dtype=mx.uint64).tolist() == [2**63, 1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_making__dtype_casts_as_astype_does(dtype):
    for value in ([1, 0, 3], [1.75, 0.0, -2.5], [True, False]):
        assert mx.array(value, dtype=dtype).tolist() == mx.array(value).astype(dtype).tolist()
        assert mx.array(value[0], dtype=dtype).item() == mx.array(value[0]).astype(dtype).item()
    assert mx.array(300, dtype=mx.uint8).item() == 44
    assert mx.array([300], dtype=mx.uint8).tolist() == [44]


def test_making__float64_keeps_all_digits():
    assert mx.array(0.1, dtype=mx.float64).item() == 0.1
    assert mx.array([0.1], dtype=mx.float64).tolist() == [0.1]
    assert mx.array(np.array([0.1]), dtype=mx.float64).tolist() == [0.1]


@pytest.mark.parametrize("order", ["C", "F", "strided", "negative", "swapped"])
def test_making__any_layout_of_numpy(order):
    x = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    if order == "F":
        x = np.asfortranarray(x)
    elif order == "strided":
        x = x[:, ::2, 1:]
    elif order == "negative":
        x = x[::-1, :, ::-2]
    elif order == "swapped":
        x = x.astype(">i2")
    y = mx.array(x)
    assert y.dtype is mx.int16
    assert y.tolist() == x.tolist()


def test_making__copies_the_memory():
    x = np.zeros(3, np.float32)
    y = mx.array(x)
    x[0] = 1
    assert y.tolist() == [0, 0, 0]


# ---- dtypes ------------------------------------------------------------------


def test_dtype__objects():
    assert repr(mx.float32) == str(mx.float32) == "marram.core.float32"
    assert mx.float32 == mx.float32
    assert mx.float32 != mx.int32
    assert mx.float32 != np.float32
    assert mx.float32 != "float32"
    assert len(set(DTYPES)) == 15
    assert [t.size for t in DTYPES] == [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16]
    assert pickle.loads(pickle.dumps(mx.bool_)) is mx.bool_
    assert copy.deepcopy(mx.int8) is mx.int8
    with pytest.raises(TypeError):
        type(mx.float32)()


def test_issubdtype__the_tree():
    assert mx.issubdtype(mx.float16, mx.floating)
    assert mx.issubdtype(mx.uint8, mx.unsignedinteger)
    assert mx.issubdtype(mx.complex64, mx.inexact)
    assert mx.issubdtype(mx.signedinteger, mx.integer)
    assert mx.issubdtype(mx.bool_, mx.generic)
    assert not mx.issubdtype(mx.bool_, mx.number)
    assert not mx.issubdtype(mx.int32, mx.floating)
    assert mx.issubdtype(mx.int32, mx.int32)
    assert not mx.issubdtype(mx.integer, mx.int32)
    assert mx.DtypeCategory.floating is mx.floating
    with pytest.raises(TypeError):
        mx.issubdtype(np.float32, mx.floating)


def test_isdtype__kinds():
    assert mx.isdtype(mx.int8, "signed integer")
    assert mx.isdtype(mx.uint8, ("bool", "integral"))
    assert mx.isdtype(mx.float32, mx.float32)
    assert not mx.isdtype(mx.bool_, "numeric")
    with pytest.raises(ValueError):
        mx.isdtype(mx.int8, "nothing")


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_finfo__as_numpy(name):
    a, b = mx.finfo(getattr(mx, name)), np.finfo(name)
    assert (a.bits, a.eps, a.max, a.min, a.smallest_normal) == (b.bits, b.eps, b.max, b.min, b.smallest_normal)


def test_finfo__others():
    assert mx.finfo(mx.complex64).dtype is mx.float32
    assert mx.finfo(mx.bfloat16).eps == 2**-7
    with pytest.raises(ValueError):
        mx.finfo(mx.int32)


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "uint64", "int64"])
def test_iinfo__as_numpy(name):
    a, b = mx.iinfo(getattr(mx, name)), np.iinfo(name)
    assert (a.min, a.max, a.dtype) == (b.min, b.max, getattr(mx, name))
    with pytest.raises(ValueError):
        mx.iinfo(mx.float32)


# ---- properties and conversion -----------------------------------------------


def test_properties():
    x = mx.zeros((2, 3, 4), dtype=mx.int16)
    assert (x.shape, x.dtype, x.ndim, x.size, x.itemsize, x.nbytes) == ((2, 3, 4), mx.int16, 3, 24, 2, 48)
    assert x.T.shape == (4, 3, 2)
    assert x.mT.shape == (2, 4, 3)
    c = mx.array([1 + 2j])
    assert c.real.tolist() == [1]
    assert c.imag.tolist() == [2]
    with pytest.raises(ValueError):
        mx.array([1.0]).mT  # noqa: B018


@pytest.mark.parametrize("dtype", DTYPES)
def test_conversion__to_python(dtype):
    x = mx.array([[1]], dtype=dtype)
    v = x.item()
    kind = bool if dtype is mx.bool_ else int if mx.issubdtype(dtype, mx.integer) else float
    if mx.issubdtype(dtype, mx.complexfloating):
        kind = complex
        with pytest.raises(TypeError):
            int(x)
        with pytest.raises(TypeError):
            float(x)
    else:
        assert (int(x), float(x)) == (1, 1.0)
    assert type(v) is kind
    assert v == 1
    assert bool(x) is True
    assert complex(x) == 1
    assert x.tolist() == [[v]]
    assert type(x.tolist()[0][0]) is kind


def test_conversion__only_of_one_element():
    x = mx.array([1, 2])
    for f in (int, float, bool, complex, mx.array.item):
        with pytest.raises(ValueError):
            f(x)
    with pytest.raises(TypeError):
        operator.index(mx.array([1]))
    with pytest.raises(TypeError):
        operator.index(mx.array(1.0))
    assert [10, 20][mx.array(1)] == 20
    assert bool(mx.array(math.nan))
    assert not bool(mx.array(-0.0))


def test_sequence__len_and_iteration():
    x = mx.arange(6).reshape(3, 2)
    assert len(x) == 3
    assert [r.tolist() for r in x] == [[0, 1], [2, 3], [4, 5]]
    assert isinstance(iter(x), mx.ArrayIterator)
    for f in (len, iter):
        with pytest.raises(TypeError):
            f(mx.array(1))


def test_hash__is_identity():
    a, b = mx.array(1), mx.array(1)
    assert hash(a) == hash(a)
    assert len({a, b}) == 2


def test_bytes__row_major():
    x = mx.arange(6, dtype=mx.int16).reshape(2, 3).T
    assert bytes(x) == np.arange(6, dtype=np.int16).reshape(2, 3).T.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_copies__pickle_and_copy(dtype):
    x = mx.array([[1, 0], [1, 1]], dtype=dtype)
    for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert y is not x
        assert (y.dtype, y.shape, y.tolist()) == (x.dtype, x.shape, x.tolist())
    z = copy.copy(x)
    z[0] = 0
    assert x.tolist()[0] == [1, 0]


# ---- printing ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mx.array(3.0), "array(3, dtype=float32)"),
        (lambda: mx.array(-0.0), "array(-0, dtype=float32)"),
        (lambda: mx.array([]), "array([], dtype=float32)"),
        (lambda: mx.zeros((2, 0)), "array([[],\n       []], dtype=float32)"),
        (lambda: mx.arange(6), "array([0, 1, 2, 3, 4, 5], dtype=int32)"),
        (lambda: mx.arange(7), "array([0, 1, 2, ..., 4, 5, 6], dtype=int32)"),
        (
            lambda: mx.arange(64).reshape(8, 8),
            "array([[0, 1, 2, ..., 5, 6, 7],\n       [8, 9, 10, ..., 13, 14, 15],\n"
            "       [16, 17, 18, ..., 21, 22, 23],\n       ...,\n"
            "       [40, 41, 42, ..., 45, 46, 47],\n       [48, 49, 50, ..., 53, 54, 55],\n"
            "       [56, 57, 58, ..., 61, 62, 63]], dtype=int32)",
        ),
        (
            lambda: mx.zeros((2, 2, 2)),
            "array([[[0, 0],\n        [0, 0]],\n       [[0, 0],\n        [0, 0]]], dtype=float32)",
        ),
        (lambda: mx.array([True, False]), "array([True, False], dtype=bool)"),
        (lambda: mx.array([1 + 2j, -1.5 - 0.25j]), "array([1+2j, -1.5-0.25j], dtype=complex64)"),
        (lambda: mx.array([0.1, 65504.0], dtype=mx.float16), "array([0.0999756, 65504], dtype=float16)"),
        (lambda: mx.array([0.1, 3e38], dtype=mx.bfloat16), "array([0.100098, 3.00406e+38], dtype=bfloat16)"),
        (lambda: mx.array([0.1, 1e-300], dtype=mx.float64), "array([0.1, 1e-300], dtype=float64)"),
        (
            lambda: mx.array([0.1, 1e10, 1e-10, 123456789.0, math.nan, math.inf]),
            "array([0.1, 1e+10, 1e-10, 1.23457e+08, nan, inf], dtype=float32)",
        ),
        (lambda: mx.array([2**40]), "array([1099511627776], dtype=int64)"),
        (lambda: mx.array([0.0]) / mx.array([0.0]), "array([nan], dtype=float32)"),
    ],
)
def test_printing(make, text):
    assert repr(make()) == str(make()) == text


def test_printing__precision():
    x = mx.array([0.123456, 1e10, 2.0])
    with mx.printoptions(precision=3):
        assert str(x) == "array([0.123, 10000000000.000, 2.000], dtype=float32)"
        assert mx.get_printoptions().precision == 3
    assert mx.get_printoptions().precision == -1
    mx.set_printoptions(precision=1)
    try:
        assert str(mx.array(0.25)) == "array(0.2, dtype=float32)"
    finally:
        mx.set_printoptions()


def test_format__zero_d_as_numbers():
    assert f"{mx.array(3.14159):.2f}" == "3.14"
    assert f"{mx.array(7):03d}" == "007"
    assert f"{mx.arange(2)}" == "array([0, 1], dtype=int32)"
    with pytest.raises(TypeError):
        f"{mx.arange(2):.2f}"


# ---- operators ---------------------------------------------------------------

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
]


@pytest.mark.parametrize("op", BINARY)
def test_operators__arrays_and_numbers_on_either_side(op):
    a, b = np.array([5.0, -7.0, 2.0], np.float32), np.array([2.0, 3.0, 4.0], np.float32)
    for x, y, u, v in (
        (mx.array(a), mx.array(b), a, b),
        (mx.array(a), 2.0, a, np.float32(2)),
        (3.0, mx.array(b), np.float32(3), b),
        (mx.array(a), b, a, b),
    ):
        np.testing.assert_allclose(np.array(op(x, y)), op(u, v), rtol=1e-6)


@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift])
def test_operators__of_integers(op):
    a, b = np.array([5, 7, 2], np.int32), np.array([1, 3, 4], np.int32)
    assert op(mx.array(a), mx.array(b)).tolist() == op(a, b).tolist()
    assert op(mx.array(a), 2).tolist() == op(a, 2).tolist()
    assert op(6, mx.array(b)).tolist() == op(6, b).tolist()


def test_operators__unary():
    x = mx.array([1, -2])
    assert (-x).tolist() == [-1, 2]
    assert (+x).tolist() == [1, -2]
    assert abs(x).tolist() == [1, 2]
    assert (~x).tolist() == [-2, 1]
    with pytest.raises(ValueError):
        -mx.array([True])
    with pytest.raises(ValueError):
        ~mx.array([1.0])


def test_operators__matmul_and_divmod():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (mx.array(a) @ mx.array(a.T)).tolist() == (a @ a.T).tolist()
    q, r = divmod(mx.array([7, -7]), 2)
    assert (q.tolist(), r.tolist()) == ([3, -4], [1, 1])
    q, r = divmod(7, mx.array([2, 0]))
    assert (q.tolist(), r.tolist()) == ([3, 0], [1, 7])
    with pytest.raises(TypeError):
        pow(mx.array(2), 3, 5)


@pytest.mark.parametrize(
    ("op", "want"),
    [
        (operator.iadd, 9),
        (operator.isub, 5),
        (operator.imul, 14),
        (operator.ifloordiv, 3),
        (operator.imod, 1),
        (operator.ipow, 49),
        (operator.ilshift, 28),
        (operator.irshift, 1),
        (operator.iand, 2),
        (operator.ior, 7),
        (operator.ixor, 5),
    ],
)
def test_operators__in_place_rebinds_the_object(op, want):
    for other in (2, mx.array([2])):
        x = mx.array([7])
        alias = x
        before = x + 0
        x = op(x, other)
        assert x is alias
        assert alias.tolist() == [want]
        assert before.tolist() == [7]


def test_operators__in_place_division_keeps_the_kind():
    x = mx.array([1.0])
    x /= 2
    assert x.tolist() == [0.5]
    y = mx.array([1])
    with pytest.raises(ValueError):
        y /= 2
    assert y.tolist() == [1]
    y += 0.5
    assert y.dtype is mx.float32


@pytest.mark.parametrize("other", [[1], (1,), "a", {}])
def test_operators__lists_and_text_are_refused(other):
    x = mx.array([1])
    with pytest.raises(ValueError):
        x + other
    with pytest.raises(ValueError):
        x < other  # noqa: B015
    assert (x == other) is False
    assert (x != other) is True


def test_operators__none_and_strangers():
    x = mx.array([1])
    for f in (lambda: x + None, lambda: x == None, lambda: x < object()):  # noqa: E711
        with pytest.raises(TypeError):
            f()
    assert (x == object()) is False

    class Stranger:
        def __radd__(self, other):
            return "mine"

    assert x + Stranger() == "mine"


# ---- functions ---------------------------------------------------------------


def test_functions__arguments_are_checked_like_pythons():
    x = mx.array([1.0])
    for call, text in [
        (lambda: mx.sum(), r"sum\(\) missing required argument: 'a'"),
        (lambda: mx.sum(x, 0, True, 5), r"sum\(\) takes at most 3 positional arguments \(4 given\)"),
        (lambda: mx.sum(a=x), r"sum\(\): argument 'a' is positional-only"),
        (lambda: mx.sum(x, axes=0), r"sum\(\) got an unexpected keyword argument 'axes'"),
        (lambda: mx.sum(x, 0, axis=0), r"sum\(\) got multiple values for argument 'axis'"),
        (lambda: mx.sum(x, axis="0"), r"sum\(\): argument 'axis' must be int, not str"),
        (lambda: mx.sum(x, keepdims=1), r"sum\(\): argument 'keepdims' must be bool, not int"),
        (lambda: mx.sum([1.0]), r"sum\(\): argument 'a' must be array, not list"),
        (lambda: mx.concatenate([x, 1]), r"concatenate\(\): argument 'arrays' must be a list of arrays, not int"),
        (lambda: mx.zeros((2,), dtype="float32"), r"zeros\(\): argument 'dtype' must be Dtype, not str"),
        (lambda: x.sum(stream=3), "stream must be"),
        (lambda: mx.reshape(x, (1.0,)), r"must be int, not float"),
    ]:
        with pytest.raises(TypeError, match=text):
            call()


def test_functions__methods_take_spread_arguments():
    x = mx.arange(6)
    assert x.reshape(2, 3).shape == x.reshape((2, 3)).shape == x.reshape([2, -1]).shape == (2, 3)
    assert x.reshape(-1).shape == (6,)
    y = x.reshape(1, 2, 3)
    assert y.transpose().shape == (3, 2, 1)
    assert y.transpose(1, 0, 2).shape == y.transpose((1, 0, 2)).shape == (2, 1, 3)


def test_functions__have_signatures_and_docs():
    assert str(inspect.signature(mx.sum)) == "(a, /, axis=None, keepdims=False, *, dtype=None, stream=None)"
    assert str(inspect.signature(mx.add)) == "(a, b, stream=None)"
    assert str(inspect.signature(mx.array.sum)) == "(self, /, axis=None, keepdims=False, *, dtype=None, stream=None)"
    assert mx.sum.__doc__.startswith("Sum over")
    assert mx.sum.__module__ == "marram.core"
    assert pickle.loads(pickle.dumps(mx.sum)) is mx.sum
    for module in (mx, mx.random, mx.fast, mx.linalg, mx.fft):
        for name in dir(module):
            f = getattr(module, name)
            if inspect.isbuiltin(f) and not name.startswith("_"):
                assert inspect.signature(f) is not None, name
                assert f.__doc__, name


def test_functions__stream_is_taken_everywhere():
    s = mx.new_stream(mx.cpu)
    x = mx.array([1.0, 2.0])
    assert mx.add(x, x, s).tolist() == [2, 4]
    assert mx.exp(x * 0, stream=s).tolist() == [1, 1]
    assert x.sum(stream=mx.cpu).item() == 3
    assert x.astype(mx.int32, s).tolist() == [1, 2]
    with pytest.raises(ValueError):
        x.sum(stream=mx.gpu)


def test_functions__overloads():
    assert mx.arange(3).tolist() == [0, 1, 2]
    assert mx.arange(1, 3).tolist() == [1, 2]
    assert mx.arange(0, 1, 0.5).tolist() == [0, 0.5]
    assert mx.arange(3, dtype=mx.float32).dtype is mx.float32
    assert mx.arange(5, 0, -2).tolist() == [5, 3, 1]
    assert mx.arange(start=1, stop=3).tolist() == [1, 2]
    with pytest.raises(ValueError):
        mx.arange(0, 3, 0)
    x = mx.arange(6)
    assert [p.tolist() for p in mx.split(x, 3)] == [[0, 1], [2, 3], [4, 5]]
    assert [p.tolist() for p in x.split([1, 4])] == [[0], [1, 2, 3], [4, 5]]
    with pytest.raises(ValueError):
        mx.split(x, 4)
    assert mx.atleast_2d(mx.array(1)).shape == (1, 1)
    assert [a.shape for a in mx.atleast_1d(mx.array(1), mx.array([1, 2]))] == [(1,), (2,)]
    assert [a.shape for a in mx.meshgrid(mx.arange(2), mx.arange(3))] == [(3, 2), (3, 2)]
    assert [a.shape for a in mx.meshgrid(mx.arange(2), mx.arange(3), indexing="ij")] == [(2, 3), (2, 3)]
    assert mx.broadcast_shapes((2, 1), (3,)) == (2, 3)
    assert [a.tolist() for a in mx.divmod(mx.array(7), 2)] == [3, 1]


def test_functions__numbers_beside_arrays():
    x = mx.array([1, 2], dtype=mx.uint8)
    assert mx.where(mx.array([1, 0]), x, 7).dtype is mx.uint8
    assert mx.where(mx.array([1, 0]), x, 7).tolist() == [1, 7]
    assert mx.clip(x, 2, None).tolist() == [2, 2]
    assert mx.clip(x, 1.5, None).dtype is mx.float32
    assert mx.maximum(x, 2).tolist() == [2, 2]
    assert mx.full((2,), 3.5).tolist() == [3.5, 3.5]
    assert mx.full((2,), 3.7, mx.int32).tolist() == [3, 3]
    assert mx.exp(0.0).item() == 1


def test_constants():
    assert (mx.pi, mx.e, mx.inf, mx.newaxis) == (math.pi, math.e, math.inf, None)
    assert math.isnan(mx.nan)
    assert mx.euler_gamma == pytest.approx(0.5772156649)
    assert isinstance(mx.__version__, str)


# ---- devices, streams, memory --------------------------------------------------


def test_devices():
    assert mx.default_device() == mx.cpu == mx.Device(mx.cpu)
    assert mx.Device(mx.cpu) != mx.gpu
    assert repr(mx.Device(mx.cpu, 0)) == "Device(cpu, 0)"
    assert mx.Device(mx.gpu).type is mx.gpu
    assert mx.DeviceType.cpu is mx.cpu
    assert mx.is_available(mx.cpu)
    assert mx.device_count(mx.cpu) == 1
    assert set(mx.device_info()) == {"device_name", "architecture", "total_memory", "memory_size"}
    if not mx.is_available(mx.gpu):
        assert mx.device_info(mx.gpu) == {}
        with pytest.raises(ValueError):
            mx.set_default_device(mx.gpu)


def test_streams():
    s = mx.new_stream(mx.cpu)
    assert s.device == mx.cpu
    assert s == s
    assert s != mx.default_stream(mx.cpu)
    assert repr(s).startswith("Stream(Device(cpu, 0), ")
    old = mx.default_stream(mx.cpu)
    context = mx.stream(s)
    with context, context:
        assert mx.add(mx.array(1), 2).item() == 3
    mx.set_default_stream(s)
    assert mx.default_stream(mx.cpu) == s
    mx.set_default_stream(old)
    assert mx.default_stream(mx.cpu) == old
    mx.synchronize()
    mx.synchronize(s)
    with pytest.raises(TypeError):
        mx.stream("cpu")


def test_eval__walks_trees_and_skips_other_leaves():
    x, y, z = (mx.array([1.0]) + i for i in range(3))
    mx.eval([x, {"a": (y, 3, None, "s")}], z)
    assert mx.get_array_buffer_size([x, y, z]) == 12
    mx.async_eval(x + 1)
    with pytest.raises(ValueError):
        mx.get_array_buffer_size(x + 1)


def test_memory__report():
    gc.collect()  # what other tests left must not end in between
    mx.synchronize()
    before = mx.memory_report()
    keep = [mx.array(np.ones(1 << 18, np.float32)) for _ in range(3)]
    mx.eval(keep)
    after = mx.memory_report()
    assert after["active"] - before["active"] >= 3 << 20 and after["buffers"] - before["buffers"] >= 3
    assert after["peak_with_cache"] >= after["active"] + after["cache"] and after["resident"] > 3 << 20
    assert after["devices"][0]["device"] == "cpu:0" and after["limit"] == mx.get_memory_limit()


def test_memory__soft_limit():
    x = mx.array(np.ones(1 << 20, np.float32))
    mx.eval(x)
    mx.clear_cache()
    old = mx.set_memory_limit(mx.get_active_memory() + (1 << 16))
    try:
        y = mx.cumsum(x)
        with pytest.raises(MemoryError, match="over the limit"):
            mx.eval(y)
        mx.set_memory_limit(mx.get_memory_limit(), strict=False)
        mx.eval(y)
        assert mx.get_active_memory() > mx.get_memory_limit()
    finally:
        mx.set_memory_limit(old)
    assert y[-1].item() == 1 << 20


def test_memory__figures():
    mx.synchronize()
    before = mx.get_active_memory()
    x = mx.zeros((1 << 20,))
    mx.eval(x)
    assert mx.get_active_memory() - before >= 4 << 20
    assert mx.get_peak_memory() >= mx.get_active_memory()
    del x
    assert mx.get_active_memory() - before < 4 << 20
    old = mx.set_cache_limit(0)
    assert mx.set_cache_limit(old) == 0
    mx.clear_cache()
    # other threads keep up to 512 KiB each until their next call
    assert mx.get_cache_memory() < 8 << 20
    assert mx.set_memory_limit(mx.get_memory_limit()) == mx.get_memory_limit()
    with pytest.raises(TypeError):
        mx.set_cache_limit(-1)


# ---- the package ---------------------------------------------------------------


def test_import__brings_no_numpy_and_submodules_import_by_name():
    code = (
        "import sys, marram.core as mx\n"
        "assert 'numpy' not in sys.modules and 'typing' not in sys.modules\n"
        "import marram.core.random as r, marram.core.fast, marram.core.linalg, marram.core.fft\n"
        "assert r is mx.random\n"
    )
    subprocess.run([sys.executable, "-S", "-c", code], check=True, timeout=60)


def test_main__prints_what_it_runs_on():
    out = subprocess.run([sys.executable, "-m", "marram"], check=True, capture_output=True, text=True, timeout=60).stdout
    assert f"marram {mx.__version__}" in out
    assert "cpu tier" in out
    assert "threads" in out


def test_command__becomes_the_program_of_the_installed_package(tmp_path):
    package = tmp_path / "marram"
    (package / "bin").mkdir(parents=True)
    code = "import sys, marram.__main__ as m\nm.__file__ = sys.argv.pop(1)\nm.command()"

    def run(*words):
        return subprocess.run(
            [sys.executable, "-c", code, str(package / "__main__.py"), *words], capture_output=True, text=True, timeout=60
        )

    missing = run("inspect", "x")
    assert missing.returncode == 1
    assert str(package / "bin/marram") in missing.stderr and "install it again" in missing.stderr
    program = package / "bin/marram"
    program.write_text('#!/bin/sh\necho "$@"; exit 3\n')
    program.chmod(0o755)
    there = run("inspect", "a b")
    assert (there.returncode, there.stdout) == (3, "inspect a b\n")


def test_random_state__is_the_threads_key():
    mx.random.seed(7)
    assert mx.random.state[0].tolist() == [0, 7]
    a = mx.random.uniform(shape=(3,)).tolist()
    mx.random.seed(7)
    assert mx.random.uniform(shape=(3,)).tolist() == a
    assert len(mx.random.state) == 1
    assert mx.random.permutation(5).dtype is mx.uint32
    assert sorted(mx.random.permutation(5).tolist()) == [0, 1, 2, 3, 4]
    assert mx.random.permutation(mx.arange(6).reshape(3, 2)).shape == (3, 2)


# ---- names of other platforms -----------------------------------------------


def test_metal__twins_warn_once_and_work():
    import marram.core.metal as metal

    assert not metal.is_available() and metal.device_info() == {}
    metal._warned.clear()
    with pytest.warns(DeprecationWarning, match="get_active_memory"):
        assert metal.get_active_memory() == mx.get_active_memory()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metal.get_active_memory()
    with pytest.warns(DeprecationWarning):
        old = metal.set_cache_limit(1 << 20)
    assert metal.set_cache_limit(old) == 1 << 20


def test_cuda__is_available_says_whether_a_gpu_is_there():
    assert mx.cuda.is_available() == mx.is_available(mx.gpu)
