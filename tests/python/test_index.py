# SPDX-License-Identifier: Apache-2.0
"""Reading and writing with an index, against NumPy."""

import marram.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SHAPES = st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple)


@st.composite
def basic_key(draw, shape, *, arrays=False):
    """A key of ints, slices, None and '...' (and index arrays) for a shape."""
    items = []
    n = draw(st.integers(0, len(shape)))
    dots = draw(st.booleans())
    place = draw(st.integers(0, n)) if dots else n
    axes = list(range(place)) + list(range(len(shape) - (n - place), len(shape)))
    rows = draw(st.integers(1, 3))
    for i, axis in enumerate(axes):
        if dots and i == place:
            items.append(Ellipsis)
        size = shape[axis]
        bound = st.integers(-size - 2, size + 2) | st.none()
        kinds = ["slice", "slice", "none"]
        if size:
            kinds.append("int")
            kinds += ["array"] * (2 if arrays else 0)
        kind = draw(st.sampled_from(kinds))
        if kind == "none":
            items.append(None)
            kind = "slice"
        if kind == "int":
            items.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            items.append(draw(st.lists(st.integers(-size, size - 1), min_size=rows, max_size=rows)))
        else:
            step = draw(st.integers(-3, 3).filter(bool) | st.none())
            items.append(slice(draw(bound), draw(bound), step))
    if dots and place == n:
        items.append(Ellipsis)
    return tuple(items)


def ours(key):
    """The key with NumPy's arrays and lists as arrays of ours."""
    return tuple(mx.array(np.array(k, dtype=np.int32)) if isinstance(k, list) else k for k in key)


def numbers(shape):
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


def same(a, b):
    assert a.shape == b.shape
    assert a.tolist() == b.tolist()


many = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@many
@given(st.data())
def test_reading__basic_keys_give_what_numpy_gives(data):
    shape = data.draw(SHAPES)
    key = data.draw(basic_key(shape))
    x = numbers(shape)
    same(mx.array(x)[key], x[key])


@many
@given(st.data())
def test_reading__index_arrays_go_where_numpy_puts_them(data):
    shape = data.draw(SHAPES)
    key = data.draw(basic_key(shape, arrays=True))
    x = numbers(shape)
    same(mx.array(x)[ours(key)], x[key])


@many
@given(st.data())
def test_writing__gives_what_numpy_gives(data):
    shape = data.draw(SHAPES)
    key = data.draw(basic_key(shape, arrays=True))
    x = numbers(shape)
    y = mx.array(x)
    selected = np.arange(x.size).reshape(shape)[key]
    value = -1 - np.arange(selected.size, dtype=np.int32).reshape(selected.shape)
    y[ours(key)] = mx.array(value)
    flat = x.reshape(-1).copy()
    places = selected.reshape(-1)
    got = np.array(y).reshape(-1)
    untouched = np.setdiff1d(np.arange(x.size), places)
    assert (got[untouched] == flat[untouched]).all()
    written = {}
    for place, v in zip(places.tolist(), value.reshape(-1).tolist(), strict=True):
        written.setdefault(place, set()).add(v)
    assert all(got[p] in vs for p, vs in written.items())


@many
@given(st.data())
def test_writing__a_scalar_fills(data):
    shape = data.draw(SHAPES)
    key = data.draw(basic_key(shape, arrays=True))
    x = numbers(shape)
    y = mx.array(x)
    y[ours(key)] = 7
    x[key] = 7
    same(y, x)


@many
@given(st.data())
def test_at__repeated_places_accumulate(data):
    shape = data.draw(SHAPES)
    key = data.draw(basic_key(shape, arrays=True))
    x = numbers(shape)
    same(mx.array(x).at[ours(key)].add(3), add_at(x, key, 3))


def add_at(x, key, v):
    x = x.copy()
    np.add.at(x, key, v)
    return x


@many
@given(st.data())
def test_mask__selects_and_fills_as_numpy_does(data):
    shape = data.draw(SHAPES)
    axes = data.draw(st.integers(1, len(shape)))
    bits = data.draw(st.lists(st.booleans(), min_size=int(np.prod(shape[:axes])), max_size=int(np.prod(shape[:axes]))))
    mask = np.array(bits, dtype=bool).reshape(shape[:axes])
    x = numbers(shape)
    same(mx.array(x)[mx.array(mask)], x[mask])
    y = mx.array(x)
    y[mx.array(mask)] = 9
    z = x.copy()
    z[mask] = 9
    same(y, z)
    value = np.arange(x[mask].size, dtype=np.int32).reshape(x[mask].shape)
    y[mx.array(mask)] = mx.array(value)
    z[mask] = value
    same(y, z)


def test_reading__masks_mix_with_other_items():
    x = numbers((3, 4, 2))
    m = np.array([True, False, True, True])
    same(mx.array(x)[:, mx.array(m)], x[:, m])
    same(mx.array(x)[1, m], x[1, m])
    same(mx.array(x)[[True, False, True]], x[[True, False, True]])


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ((0, slice(None), [1, 0]), (2, 3)),
        (([1, 0], slice(None), 0), (2, 3)),
        ((slice(None), 0, [1, 0]), (2, 2)),
        ((None, [1, 0], slice(None), [1, 0]), (2, 1, 3)),
        ((slice(None), 0, None, [1, 0]), (2, 2, 1)),
        ((slice(None), [0], Ellipsis, [1, 2]), (2, 2)),
        (([1, 0], None, [1, 0]), (2, 1, 4)),
        ((None, 0, [1, 0]), (1, 2, 4)),
        ((Ellipsis, [1, 0]), (2, 3, 2)),
        (([0], slice(None), [1, 2]), (2, 3)),
        ((), (2, 3, 4)),
    ],
)
def test_reading__places_of_index_axes(key, shape):
    assert mx.zeros((2, 3, 4))[ours(key)].shape == shape


@pytest.mark.parametrize(
    "key",
    [
        (slice(None), [0], slice(None), [1, 2]),
        (slice(None), 0, slice(None), [1, 2]),
        (slice(None), [0], slice(None), 1),
        (slice(None), [0, 1], Ellipsis, [1, 2]),
        (slice(None), slice(None), [0, 1], Ellipsis, [1, 2]),
        (slice(None), [0, 1], None, [1, 2]),
        (None, slice(None), [0], None, slice(None), [1, 2]),
    ],
)
def test_index_arrays__that_stand_apart_put_their_axes_in_front(key):
    x = numbers((2, 3, 4, 5))
    same(mx.array(x)[ours(key)], x[key])
    value = -numbers(x[key].shape)
    y, z = mx.array(x), x.copy()
    y[ours(key)] = mx.array(value)
    z[key] = value
    same(y, z)
    same(mx.array(x).at[ours(key)].add(mx.array(value)), add_at(x, key, value))


def test_reading__zero_d_arrays_drop_the_axis():
    x = mx.arange(6).reshape(2, 3)
    assert x[mx.array(1)].tolist() == [3, 4, 5]
    assert x[mx.array(1), mx.array(-1)].item() == 5
    assert x[np.int64(1), np.array(2)].item() == 5


@pytest.mark.parametrize("dtype", [mx.uint8, mx.int8, mx.uint32, mx.int64])
def test_reading__any_integer_type_indexes(dtype):
    x = mx.arange(5)
    assert x[mx.array([4, 0], dtype=dtype)].tolist() == [4, 0]


def test_reading__numpy_arrays_and_lists_index():
    x = mx.arange(5)
    assert x[np.array([1, -1])].tolist() == [1, 4]
    assert x[[1, -1]].tolist() == [1, 4]
    assert x[[[0, 1], [2, 3]]].tolist() == [[0, 1], [2, 3]]
    assert x[[]].tolist() == []


def test_reading__bools_alone():
    x = mx.arange(3)
    assert x[True].shape == (1, 3)
    assert x[False].shape == (0, 3)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (5, IndexError),
        (-6, IndexError),
        (slice(None, None, 0), ValueError),
        (1.0, ValueError),
        ("a", ValueError),
        ((0, 0), ValueError),
        ((Ellipsis, Ellipsis), ValueError),
        ([1.5], ValueError),
        (mx.array([1.0]), ValueError),
        (mx.array([True]), ValueError),
    ],
)
def test_reading__bad_keys_are_refused(key, error):
    x = mx.arange(5)
    with pytest.raises(error):
        x[key]
    before = x.tolist()
    with pytest.raises(error):
        x[key] = 1
    assert x.tolist() == before


def test_reading__index_out_of_range_fails_at_evaluation_and_names_the_line():
    y = mx.arange(5)[mx.array([7])]
    with pytest.raises(IndexError) as e:
        mx.eval(y)
    assert any("test_index.py" in n for n in e.value.__notes__)


def test_writing__index_out_of_range_writes_nothing():
    x = mx.arange(5)
    y = mx.arange(5)
    x[mx.array([7])] = 1
    with pytest.raises(IndexError):
        mx.eval(x)
    assert y.tolist() == [0, 1, 2, 3, 4]


def test_writing__rebinds_the_object():
    x = mx.zeros((3,))
    alias = x
    before = x + 1
    x[1] = 5
    assert alias.tolist() == [0, 5, 0]
    assert before.tolist() == [1, 1, 1]


def test_writing__casts_to_the_array_and_checks_ints():
    x = mx.zeros((2,), dtype=mx.int32)
    x[0] = 1.7
    x[1] = mx.array(2.9)
    assert x.tolist() == [1, 2]
    y = mx.zeros((1,), dtype=mx.uint8)
    with pytest.raises(ValueError, match="300"):
        y[0] = 300
    z = mx.zeros((1,))
    z[0] = 1j
    assert z.tolist() == [0]
    assert (x.dtype, y.dtype, z.dtype) == (mx.int32, mx.uint8, mx.float32)


def test_writing__lists_and_none_are_refused():
    x = mx.zeros((2,))
    with pytest.raises(ValueError):
        x[0] = [1]
    with pytest.raises(TypeError):
        x[0] = None


def test_writing__true_and_none_write_everything_false_nothing():
    x = mx.zeros((2, 2))
    x[None] = 1
    assert x.tolist() == [[1, 1], [1, 1]]
    x[True] = 2
    assert x.tolist() == [[2, 2], [2, 2]]
    x[False] = 3
    assert x.tolist() == [[2, 2], [2, 2]]


def test_writing__shapes_that_do_not_fit_are_refused():
    x = mx.zeros((2, 3))
    with pytest.raises(ValueError):
        x[0] = mx.zeros((2,))
    with pytest.raises(ValueError):
        x[mx.array([0, 1])] = mx.zeros((3, 3))
    assert x.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_writing__too_few_values_for_a_mask_fail_at_evaluation():
    x = mx.zeros((3,))
    x[mx.array([True, True, True])] = mx.array([1.0, 2.0])
    with pytest.raises(RuntimeError, match="2 values for a mask with 3 True") as e:
        mx.eval(x)
    assert isinstance(e.value, ValueError)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("add", [7.0, 2, 3]),
        ("subtract", [-5.0, 2, 3]),
        ("multiply", [8.0, 2, 3]),
        ("divide", [0.125, 2, 3]),
        ("maximum", [4.0, 2, 3]),
        ("minimum", [1.0, 2, 3]),
    ],
)
def test_at__each_operation(name, want):
    x = mx.array([1.0, 2.0, 3.0])
    v = mx.array([2.0, 4.0])
    assert getattr(x.at[mx.array([0, 0])], name)(v).tolist() == want
    assert x.tolist() == [1, 2, 3]
    one = getattr(x.at[0], name)(4.0).tolist()[0]
    assert one == {"add": 5, "subtract": -3, "multiply": 4, "divide": 0.25, "maximum": 4, "minimum": 1}[name]


def test_at__a_mask_works():
    x = mx.array([1, 2, 3])
    assert x.at[mx.array([True, False, True])].add(10).tolist() == [11, 2, 13]


def test_gradient__goes_through_every_kind_of_index():
    x = mx.arange(6, dtype=mx.float32).reshape(2, 3)
    g = mx.grad(lambda a: (a[0, 1:] * 2).sum() + a[mx.array([1, 1]), 0].sum() + a[..., None].sum())(x)
    assert g.tolist() == [[1, 3, 3], [3, 1, 1]]


def test_gradient__of_a_write_is_zero_where_it_was_written():
    def f(a, v):
        a = a * 1
        a[0] = v
        return (a * a).sum()

    g, h = mx.grad(f, argnums=(0, 1))(mx.array([1.0, 2.0]), mx.array(3.0))
    assert g.tolist() == [0, 4]
    assert h.item() == 6


def test_iteration__gives_entries_of_every_layout():
    x = np.arange(24.0, dtype=np.float32).reshape(4, 3, 2)
    a = mx.array(x)
    for make in (lambda v: v, lambda v: v.transpose(2, 0, 1), lambda v: v[::-1, 1:], lambda v: v[:, 0, 0]):
        for wait in (True, False):
            y = make(a) if wait else make(a + 0)
            if wait:
                mx.eval(y)
            rows = list(y)
            assert len(rows) == len(make(x))
            for got, want in zip(rows, make(x), strict=True):
                np.testing.assert_array_equal(np.array(got), want)
    assert list(mx.zeros((0, 3))) == []
    assert [r.shape for r in mx.zeros((2, 0))] == [(0,), (0,)]


def test_iteration__sees_the_value_of_its_beginning():
    x = mx.array([[1, 2], [3, 4]])
    seen = []
    for row in x:
        x[1] = 9
        row += 1
        seen.append(row.tolist())
    assert seen == [[2, 3], [4, 5]]
    assert x.tolist() == [[1, 2], [9, 9]]


def test_iteration__is_traced_like_anything():
    x, w = mx.arange(6.0).reshape(3, 2), mx.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    mx.eval(x, w)

    def f(x):
        return sum((r * v).sum() for r, v in zip(x, w, strict=True))

    assert mx.grad(f)(x).tolist() == w.tolist()
    assert mx.vmap(lambda v: sum(v), in_axes=1)(x).tolist() == [6, 9]
    g = mx.compile(f, captures="input")
    assert g(x).item() == f(x).item()
    w[0] = 0
    assert g(x).item() == f(x).item() == 68
