# SPDX-License-Identifier: Apache-2.0
"""Transforms of transforms, compiled outside and inside, against differences and loops.

The first order of every function is checked against differences of its values in float64, the second
against differences of its first order, what is mapped against a loop.
"""

import marram.core as mx
import numpy as np
import pytest


def array(v):
    return mx.array(np.array(v, dtype=np.float64), dtype=mx.float64)


W = array([[0.3, -0.8, 0.5], [1.1, 0.2, -0.4], [-0.6, 0.9, 0.7]])
B = array([0.2, -0.1, 0.4])
CUSTOM = mx.custom_function(lambda x: mx.sin(x) * x)
CUSTOM.vjp(lambda x, u, y: u * (mx.cos(x) * x + mx.sin(x)))
CUSTOM.jvp(lambda x, t: t * (mx.cos(x) * x + mx.sin(x)))
LAYER = mx.checkpoint(lambda x: mx.tanh(W @ x + B))

FUNCTIONS = {
    "polynomial": lambda x: (x**3 - 2 * x).sum(),
    "product": lambda x: mx.prod(x),
    "running product": lambda x: (mx.cumprod(x) * B).sum(),
    "network": lambda x: (mx.tanh(W @ mx.tanh(W @ x + B)) ** 2).sum(),
    "softmax": lambda x: (mx.softmax(x) * B).sum(),
    "logsumexp": lambda x: mx.logsumexp(x * x),
    "norm": lambda x: mx.sqrt((x * x).sum()),
    "variance": lambda x: mx.var(x) * mx.std(x),
    "quadratic form": lambda x: x @ (W @ x),
    "gathered": lambda x: (x[mx.array([0, 2, 2, 1])] ** 3).sum(),
    "scattered": lambda x: (mx.zeros((2,), mx.float64).at[mx.array([0, 1, 0])].add(x * x) ** 2).sum(),
    "sorted": lambda x: (mx.sort(x) ** 3 * B).sum(),
    "select": lambda x: mx.where(x > 0, mx.exp(x), x * x).sum(),
    "convolution": lambda x: (mx.conv1d(x.reshape(1, 3, 1), W.reshape(3, 3, 1)[:2, :2], padding=1) ** 3).sum(),
    "custom": lambda x: (CUSTOM(x) ** 2).sum(),
    "checkpoint": lambda x: (LAYER(LAYER(x)) ** 2).sum(),
    "held": lambda x: (mx.depends(mx.sin(x), mx.cos(x)) ** 2).sum(),
    "cumulative": lambda x: (mx.logcumsumexp(x) * mx.cummax(x)).sum(),
}
X = np.array([0.7, -0.4, 1.3])
V = np.array([0.5, 1.5, -1.0])
BATCH = np.stack([X, X * 0.5 + 0.1, V + 0.05])


def first(f, x):
    """The gradient by differences of f."""
    g = np.zeros(3)
    for i in range(3):
        d = np.eye(3)[i] * 1e-6
        g[i] = (f(array(x + d)).item() - f(array(x - d)).item()) / 2e-6
    return g


def second(f, x):
    """The Hessian times V by differences of the gradient."""
    g = mx.grad(f)
    return (np.array(g(array(x + 1e-6 * V))) - np.array(g(array(x - 1e-6 * V)))) / 2e-6


def near(got, want):
    np.testing.assert_allclose(np.array(got), want, rtol=2e-5, atol=2e-6)


def rows(f):
    return lambda x: mx.vmap(f)(x).sum()


def directed(g):
    return lambda x: (g(x) * array(V)).sum()


# (what runs, where, what it should be); c compiles what is inside, or not
COMPOSITIONS = {
    "grad": (lambda f, c: c(mx.grad(f)), X, first),
    "grad of grad": (lambda f, c: mx.grad(directed(c(mx.grad(f)))), X, second),
    "jvp of grad": (lambda f, c: lambda x: mx.jvp(c(mx.grad(f)), [x], [array(V)])[1][0], X, second),
    "grad of jvp": (lambda f, c: mx.grad(c(lambda x: mx.jvp(f, [x], [array(V)])[1][0])), X, second),
    "jvp of vjp": (
        lambda f, c: lambda x: mx.jvp(c(lambda x: mx.vjp(f, [x], [array(1.0)])[1][0]), [x], [array(V)])[1][0],
        X,
        second,
    ),
    "jvp of jvp": (
        lambda f, c: lambda x: mx.jvp(c(lambda x: mx.jvp(f, [x], [array(V)])[1][0]), [x], [array(V)])[1][0],
        X,
        lambda f, x: second(f, x) @ V,
    ),
    "vmap": (lambda f, c: mx.vmap(c(f)), BATCH, lambda f, b: [f(array(x)).item() for x in b]),
    "vmap of grad": (lambda f, c: mx.vmap(c(mx.grad(f))), BATCH, lambda f, b: [first(f, x) for x in b]),
    "grad of vmap": (lambda f, c: mx.grad(c(rows(f))), BATCH, lambda f, b: [first(f, x) for x in b]),
    "jvp of vmap": (
        lambda f, c: lambda b: mx.jvp(c(mx.vmap(f)), [b], [mx.stack([array(V)] * 3)])[1][0],
        BATCH,
        lambda f, b: [first(f, x) @ V for x in b],
    ),
    "vmap of jvp": (
        lambda f, c: mx.vmap(c(lambda x: mx.jvp(f, [x], [array(V)])[1][0])),
        BATCH,
        lambda f, b: [first(f, x) @ V for x in b],
    ),
    "vmap of grad of grad": (
        lambda f, c: mx.vmap(mx.grad(directed(c(mx.grad(f))))),
        BATCH,
        lambda f, b: [second(f, x) for x in b],
    ),
    "grad of grad of vmap": (
        lambda f, c: mx.grad(lambda b: (mx.grad(c(rows(f)))(b) * array(V)).sum()),
        BATCH,
        lambda f, b: [second(f, x) for x in b],
    ),
    "vmap of vmap": (
        lambda f, c: mx.vmap(c(mx.vmap(f))),
        np.stack([BATCH, BATCH * 0.9]),
        lambda f, bb: [[f(array(x)).item() for x in b] for b in bb],
    ),
    "grad of vmap of vmap": (
        lambda f, c: mx.grad(lambda bb: mx.vmap(c(mx.vmap(f)))(bb).sum()),
        np.stack([BATCH, BATCH * 0.9]),
        lambda f, bb: [[first(f, x) for x in b] for b in bb],
    ),
}


@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_order__compositions_agree_with_differences_and_loops(name, composition):
    f = FUNCTIONS[name]
    run, at, want = COMPOSITIONS[composition]
    expected = want(f, at)

    def same(g):
        return g

    near(run(f, same)(array(at)), expected)
    near(mx.compile(run(f, same))(array(at)), expected)
    near(run(f, mx.compile)(array(at)), expected)
    near(mx.compile(run(f, mx.compile))(array(at)), expected)


# -- which arguments -----------------------------------------------------------------
def three(a, b, c=1.0):
    return (a * b * b * c).sum()


ONE = [array([2.0]), array([3.0]), array([5.0])]


@pytest.mark.parametrize(
    "make, what",
    [
        (lambda: mx.grad(three, argnums=-1), "counts from 0"),
        (lambda: mx.grad(three, argnums=(0, -2)), "counts from 0"),
        (lambda: mx.grad(three, argnums=(0, 0)), "twice"),
        (lambda: mx.grad(three, argnums=3)(*ONE), "argument 3"),
        (lambda: mx.value_and_grad(three, argnums=(0, 7))(*ONE), "argument 7"),
        (lambda: mx.grad(three, argnames=["b", "b"]), "twice"),
        (lambda: mx.grad(three, argnames="d")(ONE[0], b=ONE[1]), "'d'"),
        (lambda: mx.grad(three)(mx.array([1, 2]), *ONE[1:]), "cast it to"),
        (lambda: mx.grad(three)(mx.array([True]), *ONE[1:]), "cast it to"),
    ],
)
def test_arguments__that_cannot_be_are_value_errors(make, what):
    with pytest.raises(ValueError, match=what):
        make()


def test_arguments__allowed_integers_have_zeros():
    g = mx.grad(lambda n, x: (x * n.astype(mx.float32)).sum(), argnums=(0, 1), allow_int=True)
    gn, gx = g(mx.array([1, 2]), mx.array([3.0, 4.0]))
    assert (gn.dtype, gn.tolist(), gx.tolist()) == (mx.int32, [0, 0], [1, 2])


def test_auxiliary__any_objects_pass():
    def f(x):
        return (x * x).sum(), {"x": x + 1, "name": "a"}, [3]

    value, g = mx.value_and_grad(f)(array([1.0, 2.0]))
    assert isinstance(value, tuple)
    assert (value[0].item(), value[1]["name"], value[2]) == (5, "a", [3])
    assert value[1]["x"].tolist() == [2, 3]
    assert g.tolist() == [2, 4]
    h = mx.compile(mx.value_and_grad(f))
    assert h(array([1.0, 2.0]))[0][1]["name"] == "a"


# -- axes ----------------------------------------------------------------------------
M = np.arange(6.0).reshape(2, 3)


def scaled(t, s):
    return {"y": t["a"] * s + t["b"][0], "z": t["b"][1]}


TREE = {"a": array(M), "b": [array(M.T), array(M)]}


@pytest.mark.parametrize(
    "in_axes",
    [
        ({"a": 0, "b": [1, 0]}, None),
        ({"a": -2, "b": [-1, -2]}, None),
        [{"a": 0, "b": (1, 0)}, None],
    ],
)
def test_axes__any_prefix_tree(in_axes):
    got = mx.vmap(scaled, in_axes=in_axes)(TREE, array(2.0))
    near(got["y"], M * 3)
    near(got["z"], M)
    got = mx.vmap(scaled, in_axes=in_axes, out_axes={"y": 1, "z": -1})(TREE, array(2.0))
    near(got["y"], M.T * 3)
    near(got["z"], M.T)


def test_axes__a_prefix_stands_for_all_below_it():
    near(mx.vmap(lambda t: t["a"] + t["b"][0], in_axes=({"a": 0, "b": 1},))({"a": array(M), "b": [array(M.T)]}), 2 * M)
    near(mx.vmap(lambda p: p[0] * p[1], in_axes=1, out_axes=1)((array(M), array(M))), M * M)
    near(mx.vmap(lambda x: mx.ones(2), out_axes=1)(array(M)), np.ones((2, 2)))


@pytest.mark.parametrize(
    "make, error",
    [
        (lambda: mx.vmap(lambda x: x, in_axes=None), TypeError),
        (lambda: mx.vmap(lambda x, y: x, in_axes=(None, None))(array(M), array(M)), ValueError),
        (lambda: mx.vmap(lambda x: x, in_axes=2)(array(M)), IndexError),
        (lambda: mx.vmap(lambda x: x, in_axes=-3)(array(M)), IndexError),
        (lambda: mx.vmap(lambda x: x, out_axes=2)(array(M)), IndexError),
        (lambda: mx.vmap(lambda x: x, out_axes=-3)(array(M)), IndexError),
        (lambda: mx.vmap(lambda x, y: x, in_axes=(0, 1))(array(M), array(M)), ValueError),
        (lambda: mx.vmap(lambda x, y: x, in_axes=(0,))(array(M), array(M)), ValueError),
        (lambda: mx.vmap(lambda x: x, in_axes={"a": 0})(array(M)), ValueError),
        (lambda: mx.vmap(lambda t: t["a"], in_axes=({"b": 0},))({"a": array(M)}), ValueError),
        (lambda: mx.vmap(lambda x: (x, x), out_axes=(0, 0, 0))(array(M)), ValueError),
        (lambda: mx.vmap(lambda x: x)(3.0), ValueError),
        (lambda: mx.vmap(lambda x: 3.0)(array(M)), ValueError),
        (lambda: mx.vmap(lambda x, k=1: x)(array(M), k=2), TypeError),
        (lambda: mx.vmap(lambda x: x, in_axes="a")(array(M)), ValueError),
        (lambda: mx.vmap(lambda x: x, in_axes=(0.5,))(array(M)), ValueError),
    ],
)
def test_axes__that_cannot_be_are_errors(make, error):
    with pytest.raises(error):
        make()


# -- values read inside ----------------------------------------------------------------
@pytest.fixture
def reads():
    old = mx.set_traced_reads("error")
    yield
    mx.set_traced_reads(old)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: float(x[0]),
        lambda x: np.asarray(x),
        lambda x: bytes(memoryview(x)),
        lambda x: np.from_dlpack(x),
    ],
)
def test_reads__of_what_is_differentiated_raise_when_asked(reads, read):
    def f(x):
        read(x * 2)
        return x.sum()

    with pytest.raises((RuntimeError, BufferError), match="constant"):
        mx.grad(f)(array(X))
    read(array(X) * 2)

    def stopped(x):
        read(mx.stop_gradient(x * 2) + 1)
        return x.sum()

    mx.grad(stopped)(array(X))


def test_reads__of_constants_and_conditions_are_none(reads):
    def f(x):
        c = mx.ones(3) * 2
        assert c.tolist() == [2, 2, 2]
        if x.sum() > 0:  # no derivative leads through a comparison
            return (x * c).sum()
        return x.sum()

    near(mx.grad(f)(array(X)), [2, 2, 2])

    def g(x):
        assert (mx.ones(3) * 2).tolist() == [2, 2, 2]
        return x + 1

    near(mx.compile(g)(array(X)), X + 1)


def test_reads__mode_is_checked():
    with pytest.raises(ValueError):
        mx.set_traced_reads("never")
    assert mx.set_traced_reads("warn") == "warn"


def test_views__of_traced_arrays_are_read_only():
    def f(x):
        y = x * x
        view = np.asarray(y)
        assert not view.flags.writeable
        with pytest.raises(ValueError):
            view[0] = 9
        return y.sum()

    old = mx.set_traced_reads("ignore")
    near(mx.grad(f)(array(X)), 2 * X)
    mx.set_traced_reads(old)


@pytest.mark.parametrize("trace", [mx.compile, mx.vmap])
def test_leaks__name_the_function_and_the_line(trace):
    leaked = []

    def forward(x):
        y = x * 2
        leaked.append(y)
        return y + 1

    line = forward.__code__.co_firstlineno + 1
    trace(forward)(array(X))
    with pytest.raises(RuntimeError) as e:
        leaked[0].tolist()
    assert f"test_transforms_order.py:{line}" in str(e.value)
    assert ("forward" if trace is mx.compile else "vmap") in str(e.value)
    assert "the trace is over" in str(e.value)
