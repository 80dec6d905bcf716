# SPDX-License-Identifier: Apache-2.0
"""What users of array frameworks have met and reported, one family after the
other: each a fact that a framework of this kind got wrong somewhere."""

import math
from itertools import product

import marram.core as mx
import numpy as np
import pytest

RNG = np.random.default_rng(20)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


# ---- types -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        ("uint8", "int8", "int16"), ("uint16", "int16", "int32"), ("uint32", "int32", "int64"), ("uint8", "int32", "int32"),
        ("bool_", "uint8", "uint8"), ("bool_", "float16", "float16"), ("bfloat16", "float16", "float32"),
        ("float16", "float32", "float32"), ("float64", "float32", "float64"), ("complex64", "float32", "complex64"),
    ],
)  # fmt: skip
def test_promotion__is_the_same_both_ways_round(a, b, common):
    x, y = (mx.ones((1,), getattr(mx, t)) for t in (a, b))
    assert (x + y).dtype == (y + x).dtype == getattr(mx, common)


def test_promotion__keeps_large_unsigned_numbers():
    assert (mx.array([3999999999], mx.uint32) + mx.array([1], mx.int32)).tolist() == [4000000000]


@pytest.mark.parametrize("t", [mx.uint8, mx.int8, mx.float16, mx.bfloat16])
def test_python_number__takes_the_dtype_beside_it(t):
    x = mx.ones((3,), t)
    assert (x + 2).dtype == (3 * x).dtype == t


def test_integers__get_the_dtype_that_holds_them():
    assert [mx.array(v).dtype for v in (2**31 - 1, -(2**31), 2**31)] == [mx.int32, mx.int32, mx.int64]
    assert mx.array([1, 2**40]).tolist() == [1, 2**40]
    assert (mx.array([1], mx.int64) + 2**53).item() == 2**53 + 1
    assert mx.array(np.array([2**64 - 1], np.uint64)).item() == 2**64 - 1 == mx.array([2**64 - 1], mx.uint64).item()
    with pytest.raises((OverflowError, ValueError), match=r"2\^64|64 bits|int"):
        mx.array(2**64)


@pytest.mark.parametrize("name", ["exp", "sin", "cos", "erf", "tanh", "log"])
def test_float64__has_double_precision(name):
    v = np.linspace(0.05, 2.0, 41)
    got = np.array(getattr(mx, name)(mx.array(v, mx.float64)))
    assert got.dtype == np.float64
    assert max(abs(g - getattr(math, name)(t)) for g, t in zip(got, v, strict=True)) < 1e-14


@pytest.mark.parametrize(("value", "t"), [(2**31 - 1, mx.int32), (200, mx.uint8), (100, mx.int8), (-30000, mx.int16)])
def test_mean_of_integers__is_within_them(value, t):
    assert mx.mean(mx.full((500,), value, t)).item() == pytest.approx(value, rel=1e-6)
    assert mx.var(mx.full((500,), value, t)).item() == pytest.approx(0, abs=1e-3)


def test_sums_of_many_ones__are_exact():
    n = 20_000_000
    x = mx.ones((n,))
    assert mx.sum(x).item() == mx.sum(x.reshape(n, 1), axis=0).item() == n
    assert mx.mean(x).item() == 1
    assert mx.inner(x, x).item() == pytest.approx(n, rel=1e-6)
    assert mx.mean(mx.full((n,), 0.1)).item() == pytest.approx(0.1, rel=1e-6)


# ---- indexing ----------------------------------------------------------------
@pytest.mark.parametrize("i", [5, -6, 12, -12, 2**31 - 1, 2**62])
def test_integer_outside__raises_in_reads_and_writes(i):
    a = mx.arange(5)
    with pytest.raises(IndexError):
        mx.eval(a[i])
    with pytest.raises(IndexError):
        a[i] = 1
        mx.eval(a)


SLICES = [slice(0, 99), slice(-99, 3), slice(2, -99), slice(None, None, -1), slice(99, None, -2), slice(2, 2)]


@pytest.mark.parametrize("s", SLICES, ids=str)
def test_slice_past_the_ends__is_clamped_beside_arrays(s):
    n = np.arange(24).reshape(4, 6)
    a, i = mx.array(n), np.array([3, 0])
    for got, want in ((a[s], n[s]), (a[:, s], n[:, s]), (a[s, mx.array(i)], n[s, i]), (a[mx.array(i), s], n[i, s])):
        assert got.shape == want.shape
        assert np.array_equal(np.array(got), want)


def test_assignment__by_masks_reversed_slices_and_numpy_integers():
    a = mx.arange(6)
    a[a % 2 == 1] = -1
    assert a.tolist() == [0, -1, 2, -1, 4, -1]
    a[mx.array([True, False, False, False, False, True])] = mx.array([7, 8])
    assert a.tolist() == [7, -1, 2, -1, 4, 8]
    a[::-2] = mx.array([1, 2, 3])
    assert a.tolist() == [7, 3, 2, 2, 4, 1]
    assert a[np.int64(0)].item() == 7
    assert a[np.int32(1) : np.int64(3)].tolist() == [3, 2]


# ---- gradients ---------------------------------------------------------------
def test_grad_of_powers__at_zero():
    assert [mx.grad(lambda x, n=n: x**n)(mx.array(0.0)).item() for n in (0, 1, 2)] == [0, 1, 0]
    exponents = mx.array([0.0, 1.0, 3.0])
    assert mx.grad(lambda x: mx.power(x, exponents).sum())(mx.zeros((3,))).tolist() == [0, 1, 0]
    assert mx.grad(lambda x: mx.power(x, mx.array(2.0)))(mx.array(-2.0)).item() == -4


def test_grad_of_products__with_zeros():
    prod = mx.grad(mx.prod)
    assert prod(mx.array([0.0, 5.0, 2.0])).tolist() == [10, 0, 0]
    assert prod(mx.array([0.0, 5.0, 0.0])).tolist() == [0, 0, 0]
    # cumprod of (a, b, c) sums to a + a b + a b c
    assert mx.grad(lambda x: mx.cumprod(x).sum())(mx.array([3.0, 0.0, 4.0])).tolist() == [1, 15, 0]
    assert mx.grad(lambda x: mx.cummax(x).sum())(mx.array([1.0, 3.0, 2.0, 4.0])).tolist() == [1, 2, 0, 1]


def test_grad_of_a_guarded_root__is_finite():
    def root(v):
        positive = v > 0
        return mx.where(positive, mx.sqrt(mx.where(positive, v, 1.0)), 0.0).sum()

    assert mx.grad(root)(mx.array([0.0, 1.0, -3.0])).tolist() == [0, 0.5, 0]


def test_grad_at_ties__adds_up_to_one():
    g = mx.grad(mx.max)(mx.array([3.0, 1.0, 3.0])).tolist()
    assert g[1] == 0 and sum(g) == pytest.approx(1)
    pair = mx.grad(lambda x, y: mx.maximum(x, y), argnums=(0, 1))(mx.array(1.0), mx.array(1.0))
    assert sum(p.item() for p in pair) == pytest.approx(1)


def test_grad_through_steps__is_zero():
    assert mx.grad(lambda x: x.astype(mx.int32).astype(mx.float32).sum())(mx.array([2.5, -2.5])).tolist() == [0, 0]
    assert mx.grad(lambda x: mx.floor(x).sum())(mx.array([2.5])).tolist() == [0]
    assert mx.grad(lambda x, y: x.sum(), argnums=1)(mx.array([1.0]), mx.array([2.0, 3.0])).tolist() == [0, 0]


def test_grad_of_repeated_reads_and_writes__goes_to_those_that_count():
    assert mx.grad(lambda x: x[mx.array([2, 2, 0])].sum())(mx.zeros((3,))).tolist() == [1, 0, 2]

    def written(a, b):
        c = a * 1
        c[mx.array([1, 1])] = b
        return c

    a, b = mx.array([5.0, 6.0]), mx.array([7.0, 8.0])
    kept = [v == written(a, b)[1].item() for v in (7.0, 8.0)]
    da, db = mx.grad(lambda *x: written(*x).sum(), argnums=(0, 1))(a, b)
    assert da.tolist() == [1, 0]
    assert sum(kept) == 1
    assert db.tolist() == kept


def test_jvp_of_linear_maps__maps_tangents_like_values():
    def tangent(f, primals, tangents):
        return mx.jvp(f, primals, tangents)[1][0].tolist()

    assert tangent(mx.sort, [mx.array([3.0, 1.0, 2.0])], [mx.array([30.0, 10.0, 20.0])]) == [10, 20, 30]
    assert tangent(lambda x: mx.where(x > 0, 5 * x, -x), [mx.array([1.0, -1.0])], [mx.ones((2,))]) == [5, -1]
    into = mx.array([1, 1])
    assert tangent(lambda a, b: a.at[into].add(b), [mx.zeros((2,)), mx.ones((2,))], [mx.ones((2,)), mx.array([2.0, 3.0])]) == [1, 6]


# ---- vmap --------------------------------------------------------------------
def test_vmap__has_its_axis_in_constant_and_assembled_results():
    assert mx.vmap(lambda x: mx.array(2.5))(mx.arange(3)).tolist() == [2.5] * 3
    rotated = mx.vmap(lambda s: mx.array([0.0, -s[0], s[1], 0.0]).reshape(2, 2))(mx.array([[1.0, 2.0], [3.0, 4.0]]))
    assert rotated.tolist() == [[[0, -1], [2, 0]], [[0, -3], [4, 0]]]


def test_vmap__of_reads_and_writes_at_mapped_places():
    a, i = mx.array([[4.0, 3.0], [1.0, 2.0]]), mx.array([1, 0])
    assert mx.vmap(lambda x, k: x[k])(a, i).tolist() == [3, 1]
    assert mx.vmap(lambda x, k: x.at[k].add(10))(a, i).tolist() == [[4, 13], [11, 2]]
    assert mx.vmap(mx.sort)(a).tolist() == [[3, 4], [1, 2]]
    assert mx.vmap(lambda x: x, in_axes=1, out_axes=1)(a).tolist() == a.tolist()


# ---- convolution -------------------------------------------------------------
def convolved(x, w, stride, padding, dilation, groups):
    """By the definition, one output at a time."""
    x = np.pad(x.astype(np.float64), ((0, 0), (padding[0],) * 2, (padding[1],) * 2, (0, 0)))
    n, per = w.shape[0], w.shape[0] // groups
    out_size = [(x.shape[k + 1] - dilation[k] * (w.shape[k + 1] - 1) - 1) // stride[k] + 1 for k in (0, 1)]
    out = np.zeros((x.shape[0], *out_size, n))
    for o, i, j in np.ndindex(n, *out_size):
        rows = i * stride[0] + dilation[0] * np.arange(w.shape[1])
        columns = j * stride[1] + dilation[1] * np.arange(w.shape[2])
        channels = o // per * w.shape[3] + np.arange(w.shape[3])
        out[:, i, j, o] = (x[:, rows[:, None, None], columns[:, None], channels] * w[o]).sum((1, 2, 3))
    return out


GEOMETRY = [((1, 1), (0, 0), (1, 1), 1), ((2, 1), (1, 2), (2, 1), 4), ((2, 3), (1, 0), (1, 2), 2)]


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), GEOMETRY)
def test_conv2d__of_views_with_groups_and_dilation(stride, padding, dilation, groups):
    base, w = normal(2, 6, 7, 4), normal(8, 2, 3, 4 // groups)
    a = mx.array(base)
    for x, m in ((base, a), (base[:, ::-1], a[:, ::-1]), (base.swapaxes(1, 2), a.swapaxes(1, 2))):
        got = np.array(mx.conv2d(m, mx.array(w), stride=stride, padding=padding, dilation=dilation, groups=groups))
        np.testing.assert_allclose(got, convolved(x, w, stride, padding, dilation, groups), atol=1e-4)
    assert mx.conv2d(a[:0], mx.ones((3, 2, 2, 4))).shape == (0, 5, 6, 3)


def test_conv2d__has_the_gradients_of_differences():
    x, w = normal(1, 5, 5, 4), normal(4, 3, 3, 2)
    shape = ((2, 2), (1, 1), (1, 1), 2)
    c = normal(*convolved(x, w, *shape).shape)
    f = lambda a, b: (mx.conv2d(a, b, stride=2, padding=1, groups=2) * mx.array(c)).sum()  # noqa: E731
    grads = mx.grad(f, argnums=(0, 1))(mx.array(x), mx.array(w))
    for which, _ in product((0, 1), range(6)):
        both = [x.astype(np.float64), w.astype(np.float64)]
        k = tuple(RNG.integers(0, s) for s in both[which].shape)
        ends = []
        for step in (1e-3, -1e-3):
            moved = [v.copy() for v in both]
            moved[which][k] += step
            ends.append((convolved(*moved, *shape) * c).sum())
        assert np.array(grads[which])[k] == pytest.approx((ends[0] - ends[1]) / 2e-3, abs=1e-3)


@pytest.mark.parametrize("wrong", [{"stride": 0}, {"dilation": 0}, {"groups": 0}, {"groups": -2}, {"groups": 5}])
def test_conv__parameters_that_mean_nothing_are_refused(wrong):
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=str(value)) as caught:
        mx.conv1d(mx.ones((1, 9, 6)), mx.ones((12, 3, 6)), **wrong)
    assert "conv1d" in str(caught.value), name
    with pytest.raises(ValueError, match="conv1d"):
        mx.conv1d(mx.ones((1, 3, 1)), mx.ones((1, 4, 1)))


# ---- NaN, empty arrays, messages, text ---------------------------------------
@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "sort", "sign"])
def test_nan__goes_through_as_in_numpy(name):
    v = np.array([2.0, np.nan, -1.0, np.nan, 5.0], np.float32)
    assert np.array_equal(np.array(getattr(mx, name)(mx.array(v))), getattr(np, name)(v), equal_nan=True)


def test_nan__stays_in_bounds_and_running_extremes():
    v = np.array([2.0, np.nan, -1.0], np.float32)
    x = mx.array(v)
    for got, want in ((mx.clip(x, 0, 1), np.clip(v, 0, 1)), (mx.maximum(x, 0), np.maximum(v, 0)),
                      (mx.cummax(x), np.maximum.accumulate(v))):  # fmt: skip
        assert np.array_equal(np.array(got), want, equal_nan=True)


def test_empty_arrays__have_the_neutral_element_or_an_error():
    e = mx.zeros((0,))
    assert (mx.sum(e).item(), mx.prod(e).item(), mx.inner(e, e).item()) == (0, 1, 0)
    assert (mx.zeros((2, 0)) @ mx.zeros((0, 2))).tolist() == [[0, 0], [0, 0]]
    assert mx.addmm(mx.ones((1, 2)), mx.ones((1, 0)), mx.ones((0, 2)), beta=3.0).tolist() == [[3, 3]]
    assert mx.tensordot(mx.zeros((3, 0)), mx.zeros((3, 0)), 2).item() == 0
    assert mx.sum(mx.zeros((0, 2)), axis=0).tolist() == [0, 0]
    for f in (mx.sort, mx.argsort, mx.cumsum, mx.exp):
        assert f(e).shape == (0,)
    assert mx.softmax(mx.zeros((3, 0)), axis=-1).shape == (3, 0)
    assert mx.concatenate([e, mx.array([2.0])]).tolist() == [2]
    nowhere = mx.array([], mx.int32)
    assert mx.arange(4)[nowhere].shape == (0,)
    assert mx.zeros((2,)).at[nowhere].add(e).tolist() == [0, 0]
    assert mx.vmap(lambda x: x * 2)(mx.zeros((0, 3))).shape == (0, 3)
    for f in (mx.max, mx.min, mx.argmax, mx.argmin):
        with pytest.raises(ValueError, match=f.__name__):
            f(e)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mx.ones((2, 3)) @ mx.ones((5, 7)), ("matmul", "(2, 3)", "(5, 7)")),
        (lambda: mx.ones((2, 3)) + mx.ones((5,)), ("add", "(2, 3)", "(5,)")),
        (lambda: mx.ones((2, 3)).reshape(5, 7), ("reshape", "6", "(5, 7)")),
        (lambda: mx.concatenate([mx.ones((2, 3)), mx.ones((2, 5))]), ("concatenate", "3", "5")),
        (lambda: mx.conv1d(mx.ones((1, 9, 3)), mx.ones((2, 3, 5))), ("conv1d", "3", "5")),
        (lambda: mx.mean(mx.ones((2, 3)), axis=7), ("mean", "7", "2")),
        (lambda: mx.quantize(mx.zeros((2, 80))), ("quantize", "64", "80")),
    ],
)
def test_shape_errors__come_from_the_call_and_name_both(call, words):
    with pytest.raises((ValueError, IndexError)) as caught:
        call()
    assert [w for w in words if w not in str(caught.value)] == []


def test_text__is_readable_for_every_kind():
    inf = float("inf")
    assert str(mx.array([inf, -inf, float("nan"), -0.0])) == "array([inf, -inf, nan, -0], dtype=float32)"
    assert str(mx.array([66], mx.uint8)) == "array([66], dtype=uint8)"
    assert str(2**61) in str(mx.array([2**61]))
    assert "2-3j" in str(mx.array([2 - 3j]))
    assert "[]" in str(mx.zeros((3, 0)))
    long = str(mx.arange(50000))
    assert len(long) < 300 and "49999" in long
    assert f"{mx.array(2.71828):.3f}" == "2.718"


# ---- random numbers, quantised products --------------------------------------
@pytest.mark.parametrize("t", [mx.float32, mx.float16, mx.bfloat16])
def test_uniform__stays_below_its_upper_end(t):
    u = mx.random.uniform(shape=(200000,), dtype=t, key=mx.random.key(5))
    assert mx.all(u < 1).item() and mx.all(u >= 0).item()


def test_draws__keep_to_what_is_possible():
    key = mx.random.key(6)
    assert mx.random.bernoulli(0.0, (500,), key=key).sum().item() == 0
    assert mx.random.bernoulli(1.0, (500,), key=key).sum().item() == 500
    assert set(mx.random.randint(-1, 2, (500,), key=key).tolist()) == {-1, 0, 1}
    only = mx.array([[-float("inf"), -float("inf"), 0.0]] * 50)
    assert set(mx.random.categorical(only, key=key).tolist()) == {2}
    assert sorted(mx.random.permutation(9, key=key).tolist()) == list(range(9))
    one, two = mx.random.split(key)
    assert mx.random.normal((3,), key=one).tolist() != mx.random.normal((3,), key=two).tolist()
    x = np.array(mx.random.normal((200000,), key=one))
    assert np.isfinite(x).all()
    assert abs(x.mean()) < 0.01 and abs(x.std() - 1) < 0.01


SIZES = [
    (1, 3, 64, 4, 64, True), (3, 31, 128, 4, 64, True), (5, 1, 64, 2, 32, True), (4, 96, 64, 8, 32, True),
    (2, 64, 40, 4, 64, False), (2, 64, 7, 3, 32, False),
]  # fmt: skip


@pytest.mark.parametrize(("m", "n", "k", "bits", "group", "transpose"), SIZES)
def test_quantized_matmul__with_few_and_odd_sizes(m, n, k, bits, group, transpose):
    packed = mx.quantize(mx.array(normal(*((n, k) if transpose else (k, n)))), group, bits)
    w = np.array(mx.dequantize(*packed, group_size=group, bits=bits)).astype(np.float64)
    x = normal(m, k)
    y = mx.quantized_matmul(mx.array(x), *packed, transpose=transpose, group_size=group, bits=bits)
    np.testing.assert_allclose(np.array(y), x @ (w.T if transpose else w), atol=1e-3)


def test_quantized_matmul__broadcasts_and_takes_no_rows():
    x, packed = mx.array(normal(2, 3, 4, 64)), mx.quantize(mx.array(normal(2, 1, 5, 64)))
    want = x @ mx.dequantize(*packed).swapaxes(-1, -2)
    assert mx.abs(mx.quantized_matmul(x, *packed) - want).max().item() < 1e-3
    assert mx.quantized_matmul(mx.zeros((0, 64)), *mx.quantize(mx.ones((8, 64)))).shape == (0, 8)
