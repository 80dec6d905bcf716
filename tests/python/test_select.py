# SPDX-License-Identifier: Apache-2.0
"""What masks and counts select, against NumPy."""

import marram.core as mx
import numpy as np
import pytest

X = np.arange(12, dtype=np.float32).reshape(3, 4)
FROM_X = mx.array(X)


def same(got, want):
    got = np.array(got)
    assert got.shape == want.shape
    assert np.array_equal(got, want, equal_nan=got.dtype.kind == "f")


def test_nonzero__as_numpy():
    for a in (X % 3, X > 4, np.zeros(5), np.ones((2, 0, 3))):
        got = mx.nonzero(mx.array(a))
        assert len(got) == a.ndim
        for g, w in zip(got, np.nonzero(a), strict=True):
            same(g, w)
        same(mx.argwhere(mx.array(a)), np.argwhere(a))
        same(mx.flatnonzero(mx.array(a)), np.flatnonzero(a))
    assert mx.argwhere(mx.array(3)).shape == (1, 0)
    assert mx.nonzero(FROM_X)[0].dtype is mx.int32


def test_nonzero__nan_counts_and_minus_zero_does_not():
    assert mx.flatnonzero(mx.array([float("nan"), -0.0, 1.0])).tolist() == [0, 2]


def test_select__large_masks_of_many_blocks():
    rng = np.random.default_rng(3)
    for share in (0.0, 0.01, 0.5, 1.0):
        m = rng.random(300_001) < share
        x = rng.random(300_001).astype(np.float32)
        same(mx.array(x)[mx.array(m)], x[m])
        same(mx.flatnonzero(mx.array(m)), np.flatnonzero(m))
        y, z = mx.array(x), x.copy()
        y[mx.array(m)] = mx.arange(int(m.sum())).astype(mx.float32)
        z[m] = np.arange(int(m.sum()))
        same(y, z)


def test_masks__mix_with_other_indices_as_in_numpy():
    x = np.arange(60).reshape(3, 4, 5)
    rows, columns = np.array([True, False, True]), np.array([True, False, True, True, False])
    a = mx.array(x)
    same(a[mx.array(rows), 1:], x[rows, 1:])
    same(a[1:, :, mx.array(columns)], x[1:, :, columns])
    same(a[mx.array(rows), ..., 0], x[rows, ..., 0])
    same(a[mx.array(x[..., 0] % 2 == 0), 1:3], x[x[..., 0] % 2 == 0, 1:3])
    same(a[None, mx.array(rows)], x[None, rows])
    same(a[[True, False, True], [0, 3]], x[rows, [0, 3]])
    b = mx.array(x)
    b[mx.array(rows), 1:] = -1
    x[rows, 1:] = -1
    same(b, x)


def test_masks__that_are_computed_are_evaluated_and_nothing_else():
    a = FROM_X * 2
    y = a[FROM_X > 4]
    assert y.shape == (7,)
    same(y, (X * 2)[X > 4])


def test_compress__as_numpy():
    for c, axis in (([1, 0, 1], 0), ([0, 1], 1), ([0, 1, 1, 0, 1], None), ([0], 0), ([], 1)):
        same(mx.compress(mx.array(c, dtype=mx.int32), FROM_X, axis), np.compress(np.array(c, dtype=bool), X, axis))
    same(mx.compress(mx.array([True, True, False]), FROM_X.T[:3], axis=0), np.compress([1, 1, 0], X.T[:3], axis=0))


def test_unique__as_numpy():
    rng = np.random.default_rng(0)
    for x in (rng.integers(0, 9, (5, 7)), rng.integers(0, 3, 100) > 1, rng.integers(0, 5, 20).astype(np.float32), np.zeros(0)):
        got = mx.unique(mx.array(x), return_index=True, return_inverse=True, return_counts=True)
        for g, w in zip(got, np.unique(x, True, True, True), strict=True):
            same(g, np.reshape(w, x.shape) if g is got[2] else w)
    assert mx.unique(mx.array([2, 1, 2])).tolist() == [1, 2]


def test_unique__nans_are_distinct():
    x = mx.array([float("nan"), 1.0, float("nan"), -0.0, 0.0])
    values, counts = mx.unique(x, return_counts=True)
    assert counts.tolist() == [2, 1, 1, 1]
    assert len(values) == 4


def test_unique__with_a_size_cuts_and_fills_as_mlx():
    x = mx.array([3, 1, 3, 2])
    v, i, k, n = mx.unique(x, 5, True, True, True)
    assert [v.tolist(), i.tolist(), k.tolist(), n.tolist()] == [
        [1, 2, 3, 1, 1], [1, 3, 0, 1, 1], [2, 0, 2, 1], [1, 1, 2, 0, 0]]  # fmt: skip
    v, k, n = mx.unique(x, 2, return_inverse=True, return_counts=True)
    assert [v.tolist(), k.tolist(), n.tolist()] == [[1, 2], [1, 0, 1, 1], [1, 1]]
    assert mx.unique(x, size=5, fill_value=9).tolist() == [1, 2, 3, 9, 9]
    assert mx.unique(x, size=0).shape == (0,)
    assert mx.unique(mx.zeros((0,)), size=2, fill_value=7).tolist() == [7, 7]
    assert (i.dtype, k.dtype, n.dtype) == (mx.uint32, mx.uint32, mx.int32)


def test_repeat__by_an_array_as_numpy():
    for counts, axis in (([2, 0, 1], 0), ([1, 3, 0, 2], 1), (list(range(12)), None), ([3], 1), ([0, 0, 0], 0)):
        same(mx.repeat(FROM_X, mx.array(counts), axis), np.repeat(X, counts, axis))
        same(mx.repeat(FROM_X, counts, axis=axis), np.repeat(X, counts, axis))
    assert mx.repeat(mx.array([5, 6]), mx.array([2, 1]), size=5).tolist() == [5, 5, 6, 6, 6]
    assert mx.repeat(mx.array([5, 6]), mx.array([2, 1]), size=2).tolist() == [5, 5]


def test_gradients__flow_to_what_is_selected():
    g = mx.grad(lambda a: (a[a > 4] ** 2).sum())(FROM_X)
    same(g, np.where(X > 4, 2 * X, 0))
    g = mx.grad(lambda a: (mx.compress(mx.array([True, False, True]), a, axis=0) ** 2).sum())(FROM_X)
    same(g, 2 * X * np.array([[1], [0], [1]]))
    g = mx.grad(lambda a: (mx.repeat(a, mx.array([2, 0, 1]), axis=0) ** 2).sum())(FROM_X)
    same(g, 2 * X * np.array([[2], [0], [1]]))
    g = mx.grad(lambda a, v: (mx.where(a > 0, a, a).at[a > 4].multiply(v) ** 2).sum(), argnums=1)(FROM_X, mx.ones(7))
    same(g, 2 * X[X > 4] ** 2)
    g = mx.grad(lambda a: mx.unique(a, size=3).sum())(mx.array([2.0, 2.0, 1.0]))
    assert g.sum().item() == 3


def test_gradients__division_by_values_under_a_mask_makes_no_nan():
    def f(a):
        return a.at[a > 1].divide(mx.array([2.0, 4.0])).sum()

    assert mx.grad(f)(mx.array([0.0, 2.0, 4.0])).tolist() == [1, 0.5, 0.25]


@pytest.mark.parametrize("transform", ["compile", "vmap", "compile of grad"])
@pytest.mark.parametrize(
    "f",
    [
        lambda a: a[a > 4],
        lambda a: mx.nonzero(a)[0],
        lambda a: mx.argwhere(a),
        lambda a: mx.flatnonzero(a),
        lambda a: mx.compress(a > 4, a),
        lambda a: mx.unique(a),
        lambda a: mx.masked_select(a, a > 4),
        lambda a: mx.repeat(a, a.astype(mx.int32)),
        lambda a: a[a > 4, None],
    ],
)
def test_traces__name_the_size(f, transform):
    x = mx.arange(12, dtype=mx.float32).reshape(3, 4) if transform == "vmap" else mx.arange(4, dtype=mx.float32)
    wrapped = {
        "compile": lambda: mx.compile(f)(x),
        "vmap": lambda: mx.vmap(f)(x),
        "compile of grad": lambda: mx.compile(mx.grad(lambda a: f(a).sum()))(x),
    }[transform]
    with pytest.raises(RuntimeError, match="size=") as e:
        wrapped()
    lines = [t.path.name for t in e.traceback]
    assert "test_select.py" in lines or "test_select.py" in "".join(e.value.__notes__)


def test_traces__a_size_works_in_all_of_them():
    def f(a):
        picked = mx.masked_select(a, a > 4, size=3, fill_value=-1)
        return picked + mx.compress(a > 4, a, size=3) + mx.unique(a, size=3) + mx.flatnonzero(a > 4, size=3)

    want = mx.stack([f(row) for row in FROM_X])
    same(mx.vmap(f)(FROM_X), np.array(want))
    same(mx.compile(mx.vmap(f))(FROM_X), np.array(want))
    same(mx.stack([mx.compile(f)(row) for row in FROM_X]), np.array(want))
    loops = mx.stack([mx.grad(lambda a: f(a).sum())(row) for row in FROM_X])
    same(mx.vmap(mx.grad(lambda a: f(a).sum()))(FROM_X), np.array(loops))


def test_traces__writing_through_a_mask_works_in_all_of_them():
    def f(a):
        b = a * 1
        b[a > 4] = mx.array([7.0, 8.0, 9.0, 10.0])
        return b + a.at[a > 4].add(1)

    want = mx.stack([f(row) for row in FROM_X])
    same(mx.vmap(f)(FROM_X), np.array(want))
    same(mx.compile(mx.vmap(f))(FROM_X), np.array(want))


@pytest.mark.parametrize("mode", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
def test_at__masks_take_numbers_lists_and_rows(mode):
    op = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
          "maximum": np.maximum, "minimum": np.minimum}[mode]  # fmt: skip
    m = X % 3 == 1
    for value in (np.float32(4), np.arange(1, 1 + m.sum(), dtype=np.float32)):
        want = X.copy()
        want[m] = op(X[m], value)
        same(getattr(FROM_X.at[mx.array(m)], mode)(mx.array(value)), want)
    rows = np.array([True, False, True])
    want = X.copy()
    want[rows] = op(X[rows], np.float32([1, 2, 3, 4]))
    same(getattr(FROM_X.at[mx.array(rows)], mode)(mx.array(np.float32([1, 2, 3, 4]))), want)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: FROM_X[mx.array([True, False])], ValueError, "mask of shape"),
        (lambda: FROM_X[mx.array([True, False]), 1:], ValueError, "axis 0 has size 2"),
        (lambda: mx.masked_select(FROM_X, FROM_X), ValueError, "of bool"),
        (lambda: mx.masked_select(FROM_X, FROM_X > 1, size=-1), ValueError, "-1"),
        (lambda: mx.masked_select(FROM_X, FROM_X > 1, size=2**62), ValueError, str(2**62)),
        (lambda: mx.masked_select(FROM_X, FROM_X > 1, size=2, fill_value=mx.ones(3)), ValueError, "fill value"),
        (lambda: mx.nonzero(mx.array(1)), ValueError, "0-d"),
        (lambda: mx.nonzero(FROM_X, size=-2), ValueError, "-2"),
        (lambda: mx.nonzero(FROM_X, size=2, fill_value=2**40), OverflowError, "int32"),
        (lambda: mx.argwhere(FROM_X, size=2**60), ValueError, str(2**60)),
        (lambda: mx.compress(FROM_X > 1, FROM_X), ValueError, "2 axes"),
        (lambda: mx.compress(mx.ones(4), FROM_X, axis=0), ValueError, "4 entries"),
        (lambda: mx.compress(mx.ones(3), FROM_X, axis=2), IndexError, "axis 2"),
        (lambda: mx.unique(FROM_X, size=-1), ValueError, "-1"),
        (lambda: mx.unique(mx.zeros(0), size=2), ValueError, "fill value"),
        (lambda: mx.unique(FROM_X, size=1.5), TypeError, "int"),
        (lambda: mx.repeat(FROM_X, mx.array([1, 2]), axis=0), ValueError, "axis of size 3"),
        (lambda: mx.repeat(FROM_X, mx.array([1.0, 2, 3]), axis=0), ValueError, "float32"),
        (lambda: mx.repeat(FROM_X, mx.array([1, 2, 3]), axis=5), IndexError, "axis 5"),
        (lambda: mx.repeat(FROM_X, 2, size=4), ValueError, "array of repeats"),
        (lambda: mx.eval(mx.repeat(FROM_X, mx.array([1, -2, 9]), axis=0)), ValueError, "-2 repeats"),
        (lambda: mx.repeat(FROM_X, mx.array([2**62, 2**62, 0]), axis=0), OverflowError, "too many"),
        (lambda: mx.nextafter(mx.array(1j), mx.array(1.0)), ValueError, "complex"),
        (lambda: mx.hypot(mx.array(1j), mx.array(1.0)), ValueError, "complex"),
        (lambda: mx.copysign(mx.ones(2), mx.ones(3)), ValueError, "broadcast"),
    ],
)
def test_bad_input__is_named(call, kind, text):
    with pytest.raises(kind, match=text.replace("(", r"\(")):
        call()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_nextafter__steps_to_the_neighbour(name):
    t = getattr(mx, name)
    f = mx.finfo(t)
    x = mx.array([1.0, -1.0, 0.0, 0.0, f.max, 2.0], dtype=t)
    y = mx.nextafter(x, mx.array([2.0, -2.0, 1.0, -1.0, float("inf"), 2.0], dtype=t))
    tiny = f.smallest_normal * f.eps
    assert y.tolist() == [1 + f.eps, -1 - f.eps, tiny, -tiny, float("inf"), 2.0]
    assert mx.isnan(mx.nextafter(mx.array(float("nan"), dtype=t), mx.array(1.0, dtype=t))).item()
    assert mx.nextafter(mx.array(float("inf"), dtype=t), mx.array(0.0, dtype=t)).item() == f.max
    assert mx.grad(lambda a: mx.nextafter(a, a + 1))(mx.array(1.0, dtype=t)).item() == 1


def test_hypot__neither_overflows_nor_forgets_infinity():
    a = mx.array([3e38, 1e-40, float("inf"), 0.0])
    assert mx.isfinite(mx.hypot(a / 2, a / 2)).tolist() == [True, True, False, True]
    assert mx.hypot(mx.array(float("nan")), mx.array(float("-inf"))).item() == float("inf")
    assert mx.grad(lambda x: mx.hypot(x, x))(mx.array(0.0)).item() == 0
