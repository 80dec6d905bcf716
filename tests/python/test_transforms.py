# SPDX-License-Identifier: Apache-2.0
"""grad, value_and_grad, vjp, jvp, vmap: what they take, give and refuse."""

import inspect
import subprocess
import sys

import marram.core as mx
import numpy as np
import pytest


def square_sum(x):
    return (x * x).sum()


X = [1.0, 2.0, 3.0]


def test_grad__of_the_first_argument():
    g = mx.grad(square_sum)(mx.array(X))
    assert g.tolist() == [2, 4, 6]
    assert mx.value_and_grad(square_sum)(mx.array(X))[0].item() == 14


def test_grad__argnums_give_what_they_ask_for():
    def f(a, b, c):
        return (a * b * b * c).sum()

    args = [mx.array([v]) for v in (2.0, 3.0, 5.0)]
    assert mx.grad(f, argnums=1)(*args).tolist() == [60]
    assert mx.grad(f, argnums=[1])(*args).tolist() == [60]
    got = mx.grad(f, argnums=(2, 0))(*args)
    assert isinstance(got, tuple)
    assert [g.tolist() for g in got] == [[18], [45]]


def test_grad__argnames():
    def f(a, *, b, c=1.0):
        return (a * b * c).sum()

    a, b = mx.array([2.0]), mx.array([3.0])
    first, named = mx.grad(f, argnames="b")(a, b=b)
    assert first is None
    assert {k: v.tolist() for k, v in named.items()} == {"b": [2]}
    value, (first, named) = mx.value_and_grad(f, argnums=0, argnames=["b"])(a, b=b, c=2.0)
    assert (value.item(), first.tolist(), named["b"].tolist()) == (12, [6], [4])


@pytest.mark.parametrize(
    "make",
    [
        lambda: mx.grad(square_sum, argnums=-1),
        lambda: mx.grad(square_sum, argnums=[0, 0]),
        lambda: mx.grad(square_sum, argnums=1)(mx.array(X)),
        lambda: mx.grad(square_sum, argnames="y")(mx.array(X)),
        lambda: mx.grad(square_sum)(3.0),
        lambda: mx.grad(lambda d: d["a"].sum())({"a": mx.array(X), "b": 2}),
        lambda: mx.grad(lambda x: x)(mx.array(X)),
        lambda: mx.grad(lambda x: x.sum().reshape(1))(mx.array(X)),
        lambda: mx.grad(lambda x: 3.0)(mx.array(X)),
        lambda: mx.grad(lambda x: (x.sum(), x))(mx.array(X)),
        lambda: mx.value_and_grad(lambda x: [x.sum(), x])(mx.array(X)),
        lambda: mx.value_and_grad(lambda x: {"a": x.sum()})(mx.array(X)),
        lambda: mx.grad(lambda x: x.sum())(mx.array([1, 2])),
    ],
)
def test_grad__what_cannot_be_is_a_value_error(make):
    with pytest.raises(ValueError):
        make()


def test_grad__trees():
    def loss(params, x):
        h = x @ params["w"][0] + params["b"]
        return ((h - params["t"][1]) ** 2).mean()

    params = {
        "w": [mx.array([[1.0, 2.0], [3.0, 4.0]])],
        "b": mx.array([0.5, 0.5]),
        "t": (mx.array(0.0), mx.array([1.0, 1.0])),
    }
    g = mx.grad(loss)(params, mx.array([[1.0, 1.0]]))
    assert list(g) == ["w", "b", "t"]
    assert isinstance(g["w"], list)
    assert isinstance(g["t"], tuple)
    h = np.array([[4.5, 6.5]]) - 1
    np.testing.assert_allclose(np.array(g["b"]), h[0])
    np.testing.assert_allclose(np.array(g["w"][0]), np.array([[1.0], [1.0]]) @ h)
    assert g["t"][0].item() == 0


def test_grad__of_nothing():
    assert mx.grad(lambda p, x: x.sum())({}, mx.array(X)) == {}


def test_value_and_grad__auxiliary_objects_come_out():
    def f(x):
        return (x * x).sum(), x + 1, {"k": [x.sum(), "text", None]}, 7

    (value, more, tree, seven), g = mx.value_and_grad(f)(mx.array(X))
    assert value.item() == 14
    assert more.tolist() == [2, 3, 4]
    assert tree["k"][0].item() == 6
    assert tree["k"][1:] == ["text", None]
    assert seven == 7
    assert g.tolist() == [2, 4, 6]


@pytest.mark.filterwarnings("ignore:a value read inside")
def test_grad__a_value_read_inside_is_a_constant():
    assert mx.grad(lambda x: x * x.item())(mx.array(3.0)).item() == 3


def test_grad__a_value_read_inside_warns_once():
    code = (
        "import warnings, marram.core as mx\n"
        "warnings.simplefilter('always')\n"
        "f = lambda x: x * {}\n"
        "for _ in range(2):\n"
        "    mx.grad(f)(mx.array(3.0))\n"
    )
    for value, n in (("x.item()", 1), ("float(x)", 1), ("x.tolist()", 1), ("mx.stop_gradient(x).item()", 0), ("bool(x)", 0)):
        r = subprocess.run([sys.executable, "-c", code.format(value)], capture_output=True, text=True, timeout=60, check=True)
        assert r.stderr.count("UserWarning") == n, value


def test_grad__stop_gradient_and_unused():
    assert mx.grad(lambda x: (x * mx.stop_gradient(x)).sum())(mx.array(X)).tolist() == X
    g = mx.grad(lambda a, b: a.sum(), argnums=1)(mx.array(X), mx.array([1.0]))
    assert g.tolist() == [0]


def test_grad__nests():
    assert mx.grad(mx.grad(lambda x: x**3))(mx.array(2.0)).item() == 12
    assert mx.grad(mx.grad(mx.grad(lambda x: x * x * x * x)))(mx.array(2.0)).item() == 48
    g = mx.vmap(mx.grad(lambda x: x**3))(mx.array([1.0, 2.0]))
    assert g.tolist() == [3, 12]
    h = mx.grad(lambda x: mx.vmap(lambda y: y * y)(x).sum())(mx.array(X))
    assert h.tolist() == [2, 4, 6]


def test_grad__keeps_the_functions_name_and_signature():
    g = mx.grad(square_sum)
    assert g.__name__ == "square_sum"
    assert g.__wrapped__ is square_sum
    assert str(inspect.signature(g)) == "(x)"
    with pytest.raises(TypeError):
        mx.grad(3)


def test_vjp__and_jvp__lists_in_lists_out():
    def f(a, b):
        return a * b, a + b

    a, b, one = mx.array([2.0]), mx.array([3.0]), mx.array([1.0])
    out, grads = mx.vjp(f, [a, b], [one, one])
    assert [x.tolist() for x in out] == [[6], [5]]
    assert [x.tolist() for x in grads] == [[4], [3]]
    out, tangents = mx.jvp(f, [a, b], [one, one * 0])
    assert [x.tolist() for x in out] == [[6], [5]]
    assert [x.tolist() for x in tangents] == [[3], [1]]
    out, grads = mx.vjp(lambda x: x * 2, [a], [one])
    assert isinstance(out, list)
    assert isinstance(grads, list)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: mx.vjp(lambda a: a * 2, [x], []),
        lambda x: mx.vjp(lambda a: a * 2, [x], [x, x]),
        lambda x: mx.vjp(lambda a: a * 2, [x], [mx.zeros((5,))]),
        lambda x: mx.jvp(lambda a: a * 2, [x], []),
        lambda x: mx.jvp(lambda a: a * 2, [x], [mx.zeros((5,))]),
        lambda x: mx.vjp(lambda a: [a, 3], [x], [x, x]),
    ],
)
def test_vjp__and_jvp__counts_and_shapes_must_fit(call):
    with pytest.raises(ValueError):
        call(mx.array(X))


def test_vjp__a_dict_is_refused():
    with pytest.raises(RuntimeError):
        mx.vjp(lambda a: {"a": a}, [mx.array(X)], [mx.array(X)])


# ---- vmap ----------------------------------------------------------------------


def test_vmap__axes_of_arguments():
    m = mx.arange(6, dtype=mx.float32).reshape(2, 3)
    v = mx.array([1.0, 2.0])
    assert mx.vmap(lambda r: r.sum())(m).tolist() == [3, 12]
    assert mx.vmap(lambda r: r.sum(), in_axes=1)(m).tolist() == [3, 5, 7]
    assert mx.vmap(lambda r: r.sum(), in_axes=-1)(m).tolist() == [3, 5, 7]
    assert mx.vmap(lambda r, s: r * s, in_axes=(0, 0))(m, v).tolist() == [[0, 1, 2], [6, 8, 10]]
    assert mx.vmap(lambda r, s: r + s, in_axes=(1, None))(m, v).shape == (3, 2)


def test_vmap__trees_and_prefixes():
    d = {"a": mx.arange(2), "b": [mx.arange(6).reshape(2, 3), mx.array(1)]}

    def f(d):
        return {"x": d["a"] + d["b"][1], "y": (d["b"][0],)}

    out = mx.vmap(f, in_axes=({"a": 0, "b": [0, None]},))(d)
    assert out["x"].tolist() == [1, 2]
    assert out["y"][0].shape == (2, 3)
    out = mx.vmap(f, in_axes=({"a": 0, "b": [0, None]},), out_axes={"x": 0, "y": 1})(d)
    assert out["y"][0].shape == (3, 2)


def test_vmap__results():
    m = mx.arange(6).reshape(2, 3)
    assert mx.vmap(lambda r: r, out_axes=1)(m).shape == (3, 2)
    assert mx.vmap(lambda r: r, out_axes=-1)(m).shape == (3, 2)
    assert mx.vmap(lambda r: mx.array(5))(m).tolist() == [5, 5]
    a, b = mx.vmap(lambda r: (r, r.sum()))(m)
    assert (a.shape, b.shape) == ((2, 3), (2,))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda m: mx.vmap(lambda a: a, in_axes=None), TypeError),
        (lambda m: mx.vmap(lambda a, b: a, in_axes=(0, 0))(m, mx.arange(3)), ValueError),
        (lambda m: mx.vmap(lambda a: a, in_axes=2)(m), IndexError),
        (lambda m: mx.vmap(lambda a: a)(a=m), TypeError),
        (lambda m: mx.vmap(lambda a, b: a)(m, 3), ValueError),
        (lambda m: mx.vmap(lambda a: 3)(m), ValueError),
        (lambda m: mx.vmap(lambda a, b: a, in_axes=(0,))(m, m), ValueError),
    ],
)
def test_vmap__what_cannot_be(make, error):
    with pytest.raises(error):
        make(mx.arange(6).reshape(2, 3))
