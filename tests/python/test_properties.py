# SPDX-License-Identifier: Apache-2.0
"""Properties drawn at random, each against NumPy or a plain loop over it.

`make test` draws few examples of each; the tests marked slow draw many.
"""

import itertools
import math

import marram.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FEW, MANY = 60, 3000
SIZES = st.integers(0, 4)
SHAPES = st.lists(SIZES, min_size=0, max_size=4).map(tuple)


def profile(examples):
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


def both(check):
    """Two tests of a check that takes hypothesis' data: few examples, and many."""

    def few(data):
        check(data)

    def many(data):
        check(data)

    few.__name__, many.__name__ = f"test_{check.__name__}", f"test_{check.__name__}__many_times"
    globals()[few.__name__] = profile(FEW)(given(st.data())(few))
    globals()[many.__name__] = pytest.mark.slow(profile(MANY)(given(st.data())(many)))
    return check


def numbers(shape, start=0):
    return np.arange(start, start + math.prod(shape), dtype=np.int32).reshape(shape)


def same(got, want):
    assert got.shape == want.shape
    assert np.array_equal(np.array(got), want)


# ---- indices ------------------------------------------------------------------


@st.composite
def bits(draw, shape):
    """A bool array."""
    n = math.prod(shape)
    return np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool).reshape(shape)


@st.composite
def keys(draw, shape):
    """A key: slices, ints, None, '...', index arrays, a mask of some axes.

    Index arrays, masks and ints are neighbours, so that NumPy puts their axes
    where the first of them stood.
    """
    n = draw(st.integers(0, len(shape)))
    kinds = [draw(st.sampled_from(["slice", "slice", "int"])) for _ in range(n)]
    advanced = draw(st.sampled_from(["none", "none", "array", "mask", "both"]))
    first = draw(st.integers(0, n)) if n else 0
    left, items, axis = first, [], 0
    rows = draw(st.integers(1, 3))
    for i in range(n):
        size = shape[axis] if axis < len(shape) else None
        if size is None:
            break
        if i == left and advanced != "none":
            if advanced in ("mask", "both"):
                width = draw(st.integers(1, len(shape) - axis))
                mask = draw(bits(shape[axis : axis + width]))
                if advanced == "both" and axis + width < len(shape):
                    rows = int(mask.sum())
                items.append(mask)
                axis += width
            if advanced in ("array", "both") and axis < len(shape) and (shape[axis] or not rows):
                size = shape[axis]
                index = st.lists(st.integers(-size, size - 1), min_size=rows, max_size=rows) if size else st.just([])
                items.append(np.array(draw(index), dtype=np.int32))
                axis += 1
            continue
        if kinds[i] == "int" and size and advanced == "none":
            items.append(draw(st.integers(-size, size - 1)))
        else:
            bound = st.integers(-size - 1, size + 1) | st.none()
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, -1, -3]))))
        axis += 1
    if advanced == "none":
        for _ in range(draw(st.integers(0, 2))):
            items.insert(draw(st.integers(0, len(items))), None)
        if draw(st.booleans()):
            items.append(Ellipsis)
    return tuple(items)


def ours(key):
    return tuple(mx.array(k) if isinstance(k, np.ndarray) else k for k in key)


@both
def reading__any_key_gives_what_numpy_gives(data):
    shape = data.draw(st.lists(SIZES, min_size=1, max_size=4).map(tuple))
    x, key = numbers(shape), data.draw(keys(shape))
    same(mx.array(x)[ours(key)], x[key])


@both
def writing__any_key_gives_what_numpy_gives(data):
    shape = data.draw(st.lists(SIZES, min_size=1, max_size=4).map(tuple))
    x, key = numbers(shape), data.draw(keys(shape))
    y, z = mx.array(x), x.copy()
    value = numbers(x[key].shape, -1000) if data.draw(st.booleans()) else np.int32(7)
    y[ours(key)] = mx.array(value)
    z[key] = value
    if len(np.unique(x[key])) == x[key].size or np.ndim(value) == 0:  # else the last one wins, here as there
        same(y, z)
    same(mx.array(x).at[ours(key)].add(mx.array(value)), added(x, key, value))


def added(x, key, value):
    out = x.copy()
    np.add.at(out, key, value)
    return out


@both
def gradient__of_a_selection_counts_how_often_it_reads(data):
    shape = data.draw(st.lists(SIZES, min_size=1, max_size=3).map(tuple))
    x, key = numbers(shape), data.draw(keys(shape))
    g = mx.grad(lambda a: a[ours(key)].sum())(mx.array(x.astype(np.float32)))
    same(g, added(np.zeros(shape, np.float32), key, np.float32(1)))


# ---- shapes -------------------------------------------------------------------


@both
def broadcasting__as_numpy(data):
    out = data.draw(SHAPES)
    a, b = ([s if data.draw(st.booleans()) else 1 for s in out][data.draw(st.integers(0, len(out))) :] for _ in range(2))
    x, y = numbers(a), numbers(b, 100)
    same(mx.array(x) - mx.array(y), x - y)
    same(mx.where(mx.array(x % 2 == 0), mx.array(y), 3), np.where(x % 2 == 0, y, 3))
    target = np.broadcast_shapes(x.shape, out)
    same(mx.broadcast_to(mx.array(x), target), np.broadcast_to(x, target))


@both
def broadcasting__refuses_what_numpy_refuses(data):
    a, b = data.draw(SHAPES), data.draw(SHAPES)
    try:
        want = numbers(a) + numbers(b)
    except ValueError:
        with pytest.raises(ValueError, match="broadcast"):
            mx.array(numbers(a)) + mx.array(numbers(b))
    else:
        same(mx.array(numbers(a)) + mx.array(numbers(b)), want)


@st.composite
def factors(draw, n):
    """Sizes whose product is n."""
    out = []
    for p in (2, 3):
        while n and n % p == 0:
            out.append(p)
            n //= p
    out.append(n)
    out = draw(st.permutations(out))
    cut = draw(st.integers(1, len(out)))
    return tuple(math.prod(out[i::cut]) for i in range(cut))


@both
def reshaping__of_any_layout_is_row_major(data):
    shape = data.draw(SHAPES)
    order = data.draw(st.permutations(range(len(shape))))
    steps = tuple(slice(None, None, data.draw(st.sampled_from([1, -1, 2]))) for _ in shape)
    x = numbers(shape).transpose(order)[steps]
    y = mx.array(numbers(shape)).transpose(order)[steps] if shape else mx.array(numbers(shape))
    same(y, x)
    target = list(data.draw(factors(x.size)))
    if data.draw(st.booleans()) and 0 not in target:
        target[data.draw(st.integers(0, len(target) - 1))] = -1
    same(y.reshape(target), x.reshape(target))
    axis = data.draw(st.integers(0, x.ndim))
    same(mx.expand_dims(y, axis), np.expand_dims(x, axis))
    same(mx.squeeze(y), np.squeeze(x))
    same(mx.flatten(y), x.reshape(-1))


@both
def padding__every_mode_as_numpy(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    widths = [(data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))) for _ in shape]
    x = numbers(shape)
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect", "symmetric"]))
    same(mx.pad(mx.array(x), widths, mode=mode), np.pad(x, widths, mode=mode))
    value = data.draw(st.integers(-5, 5))
    same(mx.pad(mx.array(x), widths, constant_values=value), np.pad(x, widths, constant_values=value))


# ---- einsum -------------------------------------------------------------------


@both
def einsum__any_labels_as_numpy(data):
    size = {c: data.draw(st.integers(1, 3)) for c in "abcde"}
    n = data.draw(st.integers(1, 4))
    terms = ["".join(data.draw(st.lists(st.sampled_from("abcde"), min_size=0, max_size=3))) for _ in range(n)]
    seen = sorted(set("".join(terms)))
    out = data.draw(st.permutations(seen))[: data.draw(st.integers(0, len(seen)))]
    text = ",".join(terms)
    if data.draw(st.booleans()):
        text += "->" + "".join(out)
    operands = [np.asarray(numbers(tuple(size[c] for c in t), 1) % 7, np.float32) for t in terms]
    want = np.einsum(text, *operands)
    got = mx.einsum(text, *map(mx.array, operands))
    assert got.shape == want.shape
    assert np.allclose(np.array(got), want, rtol=1e-5)
    path, report = mx.einsum_path(text, *map(mx.array, operands))
    assert len(path) == max(1, n - 1)
    assert "FLOP" in report


# ---- convolution --------------------------------------------------------------


def convolved(x, w, stride, low, high, kernel_dilation, input_dilation, groups, flip):
    """The definition: zeros between and around, then a product at each place."""
    n = x.ndim - 2
    spread = np.zeros((x.shape[0], *[(s - 1) * d + 1 for s, d in zip(x.shape[1:-1], input_dilation, strict=True)], x.shape[-1]))
    spread[(slice(None), *[slice(None, None, d) for d in input_dilation])] = x
    spread = np.pad(spread, [(0, 0), *zip(low, high, strict=True), (0, 0)])
    w = np.flip(w, tuple(range(1, n + 1))) if flip else w
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[1:-1], kernel_dilation, strict=True)]
    sizes = [(s - r) // t + 1 for s, r, t in zip(spread.shape[1:-1], reach, stride, strict=True)]
    out = np.zeros((x.shape[0], *sizes, w.shape[0]))
    per_in, per_out = x.shape[-1] // groups, w.shape[0] // groups
    for place in itertools.product(*map(range, sizes)):
        steps = zip(place, stride, reach, kernel_dilation, strict=True)
        window = spread[(slice(None), *[slice(p * t, p * t + r, d) for p, t, r, d in steps])]
        for g in range(groups):
            o = slice(g * per_out, (g + 1) * per_out)
            part = window[..., g * per_in : (g + 1) * per_in]
            out[(slice(None), *place, o)] = np.tensordot(part, w[o], (list(range(1, n + 2)), list(range(1, n + 2))))
    return out


@both
def convolution__any_geometry_as_its_definition(data):
    n = data.draw(st.integers(1, 3))
    small = st.integers(1, 2)
    groups, batch = data.draw(small), data.draw(small)
    kernel = [data.draw(st.integers(1, 3)) for _ in range(n)]
    stride, kernel_dilation, input_dilation = ([data.draw(st.integers(1, 3)) for _ in range(n)] for _ in range(3))
    low, high = ([data.draw(st.integers(0, 2)) for _ in range(n)] for _ in range(2))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, kernel_dilation, strict=True)]
    size = [data.draw(st.integers(r, r + 2)) for r in reach]
    x = np.asarray(numbers((batch, *size, groups * data.draw(small))) % 5 - 2, np.float32)
    w = np.asarray(numbers((groups * data.draw(small), *kernel, x.shape[-1] // groups)) % 7 - 3, np.float32)
    flip = data.draw(st.booleans())
    got = mx.conv_general(mx.array(x), mx.array(w), stride, (low, high), kernel_dilation, input_dilation, groups, flip)
    want = convolved(x, w, stride, low, high, kernel_dilation, input_dilation, groups, flip)
    assert got.shape == want.shape
    assert np.array_equal(np.array(got), want)  # small integers: exact
