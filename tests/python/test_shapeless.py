# SPDX-License-Identifier: Apache-2.0
"""Shapeless functions: one trace serves many shapes, and nothing is frozen silently."""

import math

import marram.core as mx
import numpy as np
import pytest


def rand(*shape):
    return mx.array(np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4"))


W = rand(16, 5)
ROWS = [(rand(n, 16),) for n in (3, 7, 1, 20, 64)]


def leaves(tree):
    return [y for x in tree for y in leaves(x)] if isinstance(tree, tuple | list) else [np.array(tree)]


def traces(f, calls):
    """How often f is traced; its results are those of the plain function, bit for bit."""
    runs = []

    def counted(*args):
        runs.append(1)
        return f(*args)

    compiled = mx.compile(counted, shapeless=True)
    for args in [*calls, *calls]:
        got, want = leaves(compiled(*args)), leaves(f(*args))
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_array_equal(a, b)
    assert compiled.cache_info()["traces"] == len(runs)
    return len(runs)


def updated(x):
    cache = mx.zeros((80, x.shape[1]))
    cache[: x.shape[0]] = x
    return cache


def gathered(x):
    return x[mx.array([0, 0]), :, None][:, mx.array([1, 2])], x[mx.array([[0]]), mx.array([1, -1])], x[0, 1], x[-1, -2]


ONE_TRACE = {
    "elementwise": lambda x: mx.exp(x) * 2 + 1,
    "reductions": lambda x: (x.mean(0), x.var(1, ddof=1), x.sum(), mx.argmax(x, 0), mx.logsumexp(x, 1)),
    "softmax": lambda x: mx.softmax(x, -1),
    "norms": lambda x: (mx.fast.rms_norm(x, None, 1e-5), mx.fast.layer_norm(x, None, None, 1e-5)),
    "matmul": lambda x: (x @ W, x @ x.T),
    "reshape by -1": lambda x: x.reshape(-1, 4, 4),
    "reshape by sizes": lambda x: x.reshape(x.shape[0], 4, 4).transpose(0, 2, 1).reshape(x.shape),
    "reshape that is none here": lambda x: (x.reshape(-1, 16) + 0, x.reshape(x.shape), x.reshape(x.size)),
    "broadcasting": lambda x: mx.broadcast_to(x[0], x.shape) + x.mean(1, keepdims=True),
    "creation": lambda x: (mx.zeros(x.shape), mx.full((x.shape[0], 2), 3.0), mx.eye(x.shape[0]), mx.ones_like(x)),
    "arange": lambda x: mx.arange(x.shape[0]) * 2.0 + mx.array(x.shape[0]),
    "a size as a number": lambda x: (x.sum(1) / x.shape[0], x * x.shape[-1] ** -0.5, x.sum() / x.size, 1 / x.shape[0] * x),
    "size arithmetic": lambda x: mx.zeros((2 * x.shape[0] + 1, x.shape[1] // 2, x.shape[1] % 5 + 1)) + x.nbytes,
    "slices": lambda x: (x[:, : x.shape[1] // 2], x[: x.shape[0] // 2 + 1], x[..., None], x[::-1, 1:-1], x[x.shape[0] - 1]),
    "indices": gathered,
    "writing": updated,
    "at": lambda x: mx.zeros((x.shape[0] + 3, x.shape[1])).at[1 : x.shape[0] + 1].add(x),
    "repeat, tile, roll, pad": lambda x: (mx.tile(x, (1, 2)), mx.repeat(x, 2, 0), mx.roll(x, 1, 0), mx.pad(x, ((1, 1), (0, 0)))),
    "split, concatenate, stack": lambda x: (mx.split(x, 2, axis=1), mx.concatenate([x, x], 0), mx.stack([x, x])),
    "sort, cumsum, take": lambda x: (mx.sort(x, 0), mx.cumsum(x, 0), mx.take(x, mx.array([0, 0]), axis=0)),
    "fft": lambda x: mx.fft.rfft(x, axis=0).real,
    "einsum": lambda x: mx.einsum("ij,kj->ik", x, x),
    "grad": lambda x: mx.grad(lambda y: (y * y).mean() * y.shape[0])(x),
    "value_and_grad of a closure": lambda x: mx.value_and_grad(lambda w: mx.softmax(x @ w, -1).sum() + w.mean() * x.shape[0])(W),
    "vmap": lambda x: mx.vmap(lambda r: r / r.sum() * r.shape[0])(x),
    "vmap of grad": lambda x: mx.vmap(mx.grad(lambda r: (r * r).sum() / r.shape[0]))(x),
    "grad of grad": lambda x: mx.grad(lambda a: mx.grad(lambda y: (y**3).mean())(a).sum())(x),
    "jvp": lambda x: mx.jvp(lambda y: mx.exp(y).mean(0), [x], [x])[1][0],
    "vjp": lambda x: mx.vjp(lambda y: y.mean(0), [x], [mx.ones((16,))])[1][0],
    "a compiled function inside": mx.compile(lambda x: x.reshape(x.shape[0], 2, 8).sum(-1)),
}


@pytest.mark.parametrize("name", ONE_TRACE)
def test_shapeless__one_trace_serves_all_shapes(name):
    assert traces(ONE_TRACE[name], ROWS) == 1


def test_shapeless__attention_over_a_growing_cache_is_traced_once():
    def attend(q, k, v):
        queries, keys, size = q.shape[2], k.shape[2], q.shape[3]
        allowed = mx.arange(keys)[None, :] <= mx.arange(queries)[:, None] + (keys - queries)
        scores = mx.where(allowed, (q @ k.transpose(0, 1, 3, 2)) * size**-0.5, -1e9)
        return mx.softmax(scores, -1) @ v, mx.fast.scaled_dot_product_attention(q, k, v, scale=size**-0.5)

    def step(q, k, v, new):
        return *attend(q, mx.concatenate([k, new], 2), mx.concatenate([v, new], 2)), mx.concatenate([k, new], 2)

    calls = [(rand(1, 2, 1, 8), rand(1, 2, n, 8), rand(1, 2, n, 8), rand(1, 2, 1, 8)) for n in range(1, 25)]
    assert traces(step, calls) == 1
    assert traces(attend, [(rand(1, 2, n, 8), rand(1, 2, n + 3, 8), rand(1, 2, n + 3, 8)) for n in range(1, 9)]) == 1


def test_shapeless__random_draws_are_those_of_the_plain_function():
    def f(x):
        return mx.random.normal(x.shape) + mx.random.uniform(shape=(x.shape[0], 1)) + x

    got = mx.compile(f, shapeless=True)
    xs = [rand(n, 2) for n in (2, 3, 5, 2)]
    mx.random.seed(1)
    a = [got(x).tolist() for x in xs]
    mx.random.seed(1)
    assert a == [f(x).tolist() for x in xs]
    assert got.cache_info()["traces"] == 1


def test_shapeless__branches_on_sizes_are_traced_once_each():
    assert traces(lambda x: x + 1 if x.shape[0] > 5 else x - 1, ROWS) == 2
    assert traces(lambda x: x if x.shape == (7, 16) else -x, ROWS) == 2
    assert traces(lambda x: x[: min(x.shape[0], 4)], ROWS) == 2


def test_shapeless__what_it_cannot_follow_is_traced_again():
    assert traces(lambda x: sum(row for row in x), ROWS) == 5
    assert traces(lambda x: mx.checkpoint(lambda y: y.mean(0))(x), ROWS) == 5


def test_shapeless__a_size_that_is_given_back_is_the_right_number():
    f = mx.compile(lambda x: (x, x.shape[0]), shapeless=True)
    for n in (3, 5, 3):
        got = f(rand(n, 2))[1]
        assert (got, type(got)) == (n, int)


@pytest.mark.parametrize(
    ("what", "bad"),
    [
        ("a plain float", lambda x: x * math.sqrt(x.shape[0])),
        ("a plain int", lambda x: [x for _ in range(x.shape[0])]),
        ("a plain int", lambda x: x * int(x.shape[0])),
        ("len()", lambda x: x * len(x)),
        ("a list of numbers", lambda x: mx.array([x.shape[0], 2])),
        ("the key of a dict", lambda x: {x.shape[0]: x}),
    ],
)
def test_shapeless__freezing_a_size_is_an_error_with_its_line(what, bad):
    f = mx.compile(bad, shapeless=True)
    with pytest.raises(ValueError, match=f"size of a shapeless trace.*{what.replace('(', '.').replace(')', '.')}") as e:
        f(rand(3, 2))
    assert f"{__file__}:{bad.__code__.co_firstlineno}" in str(e.value)
    with pytest.raises(ZeroDivisionError):
        mx.compile(lambda x: x * (3 // (x.shape[0] - 3)), shapeless=True)(rand(3, 2))


def test_shapeless__an_error_at_another_size_is_that_of_the_function():
    f = mx.compile(lambda x: x[4] + x[-5], shapeless=True)
    assert f(rand(6, 2)).shape == (2,)
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 3"):
        f(rand(3, 2))
    assert f(rand(9, 2)).shape == (2,)
    g = mx.compile(lambda x: x.reshape(4, -1), shapeless=True)
    assert g(rand(8)).shape == (4, 2)
    with pytest.raises(ValueError):
        g(rand(9))


def test_shapeless__odd_uses_of_sizes_are_refused_or_traced_again():
    assert traces(lambda x: x.sum(axis=x.shape[0] - x.shape[0]) + x.transpose(x.shape[1] - 15, 0).sum(), ROWS) == 5
    for bad, error in (
        (lambda x: x[0.5 * x.shape[0]], ValueError),
        (lambda x: mx.zeros((x.shape[0] / 2,)), TypeError),
        (lambda x: mx.zeros((x.shape[0] ** 40,)), OverflowError),
        (lambda x: x[:: x.shape[0] - 3], ValueError),
        (lambda x: x[x.shape[0]], IndexError),
        (lambda x: x.shape[0] + "a", TypeError),
        (lambda x: x * (x.shape[0] + 1j), TypeError),
    ):
        with pytest.raises(error):
            mx.compile(bad, shapeless=True)(rand(3, 2))


def test_shapeless__a_size_that_outlives_its_trace_is_a_number():
    kept = []
    f = mx.compile(lambda x: kept.append(x.shape[0]) or x, shapeless=True)
    f(rand(3, 2))
    assert (kept[0] + 1, int(kept[0]), kept[0] == 3, f"{kept[0]}") == (4, 3, True, "3")
    g = mx.compile(lambda x: x.reshape(x.shape) * kept[0], shapeless=True)
    assert g(mx.ones((4, 2))).tolist() == [[3, 3]] * 4


def test_shapeless__rank_dtype_and_static_values_are_in_the_key():
    runs = []
    f = mx.compile(lambda x, n: runs.append(1) or x * n, shapeless=True)
    for x in (rand(2), rand(3), rand(2, 2), rand(5, 1)):
        f(x, 2)
    f(rand(2).astype(mx.float16), 2)
    f(rand(4), 3)
    f(rand(6), 3)
    assert len(runs) == 4


@pytest.mark.parametrize("at", [3, -4, (slice(None), 3), (3, slice(1, None))])
@pytest.mark.parametrize("how", ["set", "add", "read"])
def test_numbers_out_of_bounds_at_other_sizes__are_errors(at, how):
    def f(x):
        if how == "read":
            return x[at]
        if how == "add":
            return x.at[at].add(1.0)
        y = mx.array(x)
        y[at] = 1.0
        return y

    g = mx.compile(f, shapeless=True)
    for shape in ((6, 6), (2, 2), (3, 3), (4, 4), (0, 5), (5, 0), (1, 1), (5, 4)):
        try:
            want = np.array(f(rand(*shape)))
        except IndexError:
            with pytest.raises(IndexError):
                g(rand(*shape))
        else:
            np.testing.assert_array_equal(np.array(g(rand(*shape))), want)


def _written(index):
    def f(x):
        y = mx.array(-x)
        y[index] = 0
        return mx.maximum(y, 1).sum() + (x * x).sum()

    return f


@pytest.mark.parametrize(
    "index",
    [
        slice(None),
        slice(0, None),
        ...,
        slice(0, 4),
        slice(-4, None),
        slice(None, 4),
        (slice(None), slice(None)),
        (slice(0, 4), [1, 1]),
        (slice(None), [0, 2]),
        (..., slice(None, None, -1)),
    ],
)
def test_shapeless__gradients_through_writes_have_the_eager_bits(index):
    for f in (_written(index), lambda x: (mx.array(-x)[index] * 0).sum()):
        g = mx.grad(f)
        taped = mx.compile(g, shapeless=True)
        for shape in ((4, 4), (6, 4), (4, 5)):
            x = mx.zeros(shape)
            want = np.array(g(x))
            for got in (taped(x), mx.compile(g)(x)):
                np.testing.assert_array_equal(np.array(got).view("u4"), want.view("u4"))


# doors that hand their argument back at these sizes, and no others
GIVEN_BACK = {
    "reshape": lambda x: x.reshape(x.shape),
    "cut": lambda x: x[0 : x.shape[0]],
    "whole": lambda x: x[0:],
    "array": mx.array,
    "astype": lambda x: x.astype(mx.float32),
    "broadcast": lambda x: mx.broadcast_to(x, x.shape),
    "swapped": lambda x: mx.swapaxes(x, 0, 0),
    "stacked": lambda x: mx.array(x.reshape(x.shape)).astype(mx.float32),
}


@pytest.mark.parametrize("name", GIVEN_BACK)
@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap of grad"])
def test_shapeless__cotangents_are_added_in_the_eager_order(name, transform):
    rng = np.random.default_rng(0)
    scale = [10.0**k for k in range(4)]

    def f(x):
        y = GIVEN_BACK[name](x)
        a, b, c, d = (mx.sin(z * s) for z, s in zip((y, x, y, x), scale, strict=True))
        return (a * b + c * d).sum()

    g = {"grad": mx.grad(f), "jvp": lambda x: mx.jvp(f, [x], [x])[1][0], "vmap of grad": lambda x: mx.vmap(mx.grad(f))(x)}[
        transform
    ]
    taped = mx.compile(g, shapeless=True)
    for n in (300, 200):
        x = mx.array(rng.standard_normal((n, 3) if transform.startswith("vmap") else (n,)).astype("f4"))
        np.testing.assert_array_equal(np.array(taped(x)), np.array(g(x)))
