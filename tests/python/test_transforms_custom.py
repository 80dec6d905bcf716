# SPDX-License-Identifier: Apache-2.0
"""custom_function, checkpoint, depends: what they promise to Python."""

import gc
import subprocess
import sys
import weakref

import marram.core as mx
import numpy as np
import pytest

X = [1.0, 2.0]


def near(got, want):
    np.testing.assert_allclose(np.array(got), want, rtol=1e-5, atol=1e-6)


def tenfold():
    """A function whose vjp and jvp are ten times the direction."""
    f = mx.custom_function(mx.sin)
    f.vjp(lambda primal, cotangent, output: cotangent * 10)
    f.jvp(lambda primal, tangent: tangent * 10)
    return f


# -- rules -------------------------------------------------------------------------
def test_custom__the_function_by_itself():
    near(tenfold()(mx.array(X)), np.sin(X))
    assert tenfold().__wrapped__ is mx.sin


COMPOSED = [
    lambda f, x: mx.grad(lambda x: f(x).sum())(x),
    lambda f, x: mx.vmap(mx.grad(f))(x),
    lambda f, x: mx.grad(lambda x: mx.vmap(f)(x).sum())(x),
    lambda f, x: mx.grad(lambda x: mx.vmap(mx.vmap(f))(x[None]).sum())(x),
    lambda f, x: mx.jvp(f, [x], [mx.ones(2)])[1][0],
    lambda f, x: mx.jvp(mx.vmap(f), [x], [mx.ones(2)])[1][0],
    lambda f, x: mx.vmap(lambda x: mx.jvp(f, [x], [mx.array(1.0)])[1][0])(x),
    lambda f, x: mx.vjp(f, [x], [mx.ones(2)])[1][0],
]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("run", COMPOSED)
def test_custom__rules_are_used_in_every_composition(run, compiled):
    f = tenfold()
    g = (lambda x: run(f, x)) if not compiled else mx.compile(lambda x: run(f, x))
    near(g(mx.array(X)), [10, 10])


def test_custom__arguments_shared_by_a_batch_get_the_sum():
    f = mx.custom_function(lambda x, w: x * w)
    f.vjp(lambda primals, u, y: (u * primals[1], u * primals[0] * 100))
    g = mx.grad(lambda x, w: mx.vmap(f, in_axes=(0, None))(x, w).sum(), argnums=(0, 1))
    gx, gw = g(mx.array(X), mx.array(3.0))
    near(gx, [3, 3])
    near(gw, 300)


def test_custom__vmap_rule_gets_axes_and_its_own_are_kept():
    seen = []
    f = mx.custom_function(lambda x, w: x * w)

    @f.vmap
    def rule(inputs, axes):
        seen.append((len(inputs), axes))
        return (inputs[0] * inputs[1]).transpose(1, 0), 1

    x = mx.array(np.arange(6.0).reshape(2, 3))
    y = mx.vmap(f, in_axes=(0, None))(x, mx.array(2.0))
    near(y, np.arange(6.0).reshape(2, 3) * 2)
    assert seen == [(2, (0, None))]
    near(mx.vmap(f, in_axes=(1, None))(x.T, mx.array(2.0)), np.arange(6.0).reshape(2, 3) * 2)


def test_custom__a_vmap_rule_does_not_lose_the_others():
    f = tenfold()
    f.vmap(lambda x, axis: (mx.sin(x), axis))
    near(mx.vmap(f)(mx.array(X)), np.sin(X))
    near(mx.grad(lambda x: mx.vmap(f)(x).sum())(mx.array(X)), [10, 10])
    near(mx.jvp(mx.vmap(f), [mx.array(X)], [mx.ones(2)])[1][0], [10, 10])
    near(mx.vmap(mx.vmap(f))(mx.array([X, X])), [np.sin(X)] * 2)

    def of_captured(w):
        g = mx.custom_function(lambda x: x * w)
        g.vmap(lambda x, axis: (x, axis))
        return g(mx.array(X))

    with pytest.raises(ValueError, match="custom vmap"):
        mx.vmap(of_captured)(mx.array(X))


def test_custom__trees_bare_and_several_arguments():
    seen = []
    f = mx.custom_function(lambda p: {"y": p["a"] * p["b"][0], "n": 3})

    @f.vjp
    def rule(primal, cotangent, output):
        seen.append((sorted(primal), sorted(cotangent), sorted(output)))
        return {"a": cotangent["y"] * 2, "b": [cotangent["y"] * 3]}

    p = {"a": mx.array(X), "b": [mx.array(X)]}
    g = mx.grad(lambda p: f(p)["y"].sum())(p)
    near(g["a"], [2, 2])
    near(g["b"][0], [3, 3])
    assert seen == [(["a", "b"], ["n", "y"], ["n", "y"])]
    h = mx.custom_function(lambda a, b: (a + b, a * b))
    h.vjp(lambda primals, u, y: [u[0], None])
    ga, gb = mx.grad(lambda a, b: h(a, b)[0].sum(), argnums=(0, 1))(mx.array(X), mx.array(X))
    near(ga, [1, 1])
    near(gb, [0, 0])


def test_custom__inputs_without_tangent_are_none():
    seen = []
    f = mx.custom_function(lambda x, y: x * y)

    @f.jvp
    def rule(primals, tangents):
        seen.append([t is None for t in tangents])
        return tangents[0] * primals[1]

    y = mx.array(X)
    near(mx.jvp(lambda x: f(x, y), [mx.array(X)], [mx.ones(2)])[1][0], X)
    assert seen == [[False, True]]


# -- what rules give ---------------------------------------------------------------
@pytest.mark.parametrize(
    "rule, what",
    [
        (lambda p, u, y: (u, u), "a cotangent"),
        (lambda p, u, y: u[:1], r"shape \(1,\) where \(2,\) is right"),
        (lambda p, u, y: u.astype(mx.float16), "is float16 where float32 is right"),
        (lambda p, u, y: 3.0, "a cotangent"),
        (lambda p, u, y: {"x": u}, "a cotangent"),
    ],
)
def test_custom__a_wrong_cotangent_is_a_value_error(rule, what):
    f = mx.custom_function(mx.sin)
    f.vjp(rule)
    with pytest.raises(ValueError, match=what):
        mx.grad(lambda x: f(x).sum())(mx.array(X))


@pytest.mark.parametrize("rule", [lambda p, t: (t, t), lambda p, t: t[:1], lambda p, t: t.astype(mx.int32), lambda p, t: 1.0])
def test_custom__a_wrong_tangent_is_a_value_error(rule):
    f = mx.custom_function(mx.sin)
    f.jvp(rule)
    with pytest.raises(ValueError):
        mx.jvp(f, [mx.array(X)], [mx.ones(2)])


@pytest.mark.parametrize(
    "rule", [lambda x, a: x, lambda x, a: (x, 5), lambda x, a: (x[:1], 0), lambda x, a: (3, 0), lambda x, a: (x, 0, 1)]
)
def test_custom__a_wrong_batch_is_an_error(rule):
    f = mx.custom_function(mx.sin)
    f.vmap(rule)
    with pytest.raises((ValueError, IndexError)):
        mx.vmap(f)(mx.array(X))


def test_custom__the_exception_of_a_rule_comes_out():
    f = mx.custom_function(mx.sin)

    @f.vjp
    def rule(primal, cotangent, output):
        raise KeyError("mine")

    for g in (mx.grad(lambda x: f(x).sum()), mx.compile(mx.grad(lambda x: f(x).sum()))):
        with pytest.raises(KeyError, match="mine"):
            g(mx.array(X))
    near(mx.grad(lambda x: mx.sin(x).sum())(mx.array(X)), np.cos(X))


@pytest.mark.parametrize("make", [lambda: mx.custom_function(3), lambda: tenfold().vjp(3), lambda: mx.checkpoint(None)])
def test_custom__what_is_not_callable_is_a_type_error(make):
    with pytest.raises(TypeError):
        make()


# -- captured arrays ---------------------------------------------------------------
def test_custom__a_captured_array_is_named():
    def loss(weight, x):
        f = mx.custom_function(lambda x: x * weight)
        f.vjp(lambda p, u, y: u)
        return f(x).sum()

    near(mx.grad(loss, argnums=1)(mx.array(3.0), mx.array(X)), [1, 1])
    with pytest.raises(ValueError, match="'weight'"):
        mx.grad(loss)(mx.array(3.0), mx.array(X))

    def stopped(weight, x):
        return loss(mx.stop_gradient(weight), x)

    near(mx.grad(stopped)(mx.array(3.0), mx.array(X)), 0)


def test_custom__keyword_arrays_count_as_captured():
    f = mx.custom_function(lambda x, w=None: x * w)
    f.vjp(lambda p, u, y: u)
    near(mx.grad(lambda x, w: f(x, w=w).sum())(mx.array(X), mx.array(3.0)), [1, 1])
    with pytest.raises(ValueError, match="captures"):
        mx.grad(lambda x, w: f(x, w=w).sum(), argnums=1)(mx.array(X), mx.array(3.0))


@pytest.mark.parametrize("wrap", [mx.custom_function, mx.checkpoint])
def test_captured__arrays_have_their_true_gradient(wrap):
    def loss(w, x, wrapped):
        f = (lambda x: mx.sin(x * w) * mx.exp(w)) if not wrapped else wrap(lambda x: mx.sin(x * w) * mx.exp(w))
        return (f(f(x)) ** 2).sum()

    w, x = mx.array(0.7), mx.array(X)
    runs = [
        lambda k: mx.grad(lambda w, x: loss(w, x, k), argnums=(0, 1))(w, x),
        lambda k: [mx.grad(lambda w: mx.grad(lambda w: loss(w, x, k))(w))(w)],
        lambda k: mx.jvp(mx.grad(lambda w, x: loss(w, x, k)), [w, x], [w, x])[1],
        lambda k: [mx.vmap(mx.grad(lambda w, x: loss(w, x, k)), (None, 0))(w, x)],
        lambda k: [mx.grad(lambda w: mx.vmap(lambda w, x: loss(w, x, k), (0, None))(mx.stack([w, w]), x).sum())(w)],
        lambda k: [mx.compile(mx.grad(lambda w, x: loss(w, x, k)))(w, x)],
        lambda k: [mx.grad(mx.compile(lambda w, x: loss(w, x, k)))(w, x)],
    ]
    for run in runs:
        for got, want in zip(run(True), run(False), strict=True):
            near(got, np.array(want))


# -- forward mode through a custom vjp -----------------------------------------------
def test_custom__forward_mode_without_a_jvp_warns_once():
    code = """
import marram.core as mx
f = mx.custom_function(mx.sin)
f.vjp(lambda p, u, y: u)
for _ in range(3):
    t = mx.jvp(f, [mx.array(0.0)], [mx.array(1.0)])[1][0]
assert t.item() == 1
"""
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert r.stderr.count("custom vjp and no custom jvp") == 1


# -- checkpoint --------------------------------------------------------------------
def test_checkpoint__keywords_and_other_results():
    @mx.checkpoint
    def f(x, *, scale, name):
        return {"y": x * scale, "name": name, "n": 3}

    def loss(x, s):
        r = f(x, scale=s, name="a")
        assert (r["name"], r["n"]) == ("a", 3)
        return (r["y"] ** 2).sum()

    gx, gs = mx.grad(loss, argnums=(0, 1))(mx.array(X), mx.array(2.0))
    near(gx, [8, 16])
    near(gs, 20)


def test_checkpoint__random_numbers_are_those_of_the_first_run():
    def f(x):
        return (x * mx.random.normal((2,))).sum()

    runs = []
    for g in (f, mx.checkpoint(f), mx.checkpoint(mx.checkpoint(f))):
        for make in (mx.grad, lambda g: mx.compile(mx.grad(g))):
            mx.random.seed(3)
            runs.append((make(g)(mx.array(X)).tolist(), mx.random.normal((1,)).tolist()))
    assert all(r[0] == runs[0][0] for r in runs)
    assert runs[0] == runs[2] == runs[4]


def chain(layer, n=8):
    def loss(x, w):
        for _ in range(n):
            x = layer(x, w)
        return x.sum()

    return mx.grad(loss, argnums=(0, 1))


def layer(x, w):
    for _ in range(6):
        x = mx.sin(x @ w)
    return x


def peak_of(g, x, w):
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    out = g(x, w)
    mx.eval(out)
    return mx.get_peak_memory() - before, out


@pytest.mark.parametrize("wrap", [lambda g: g, mx.compile])
def test_checkpoint__holds_less_at_the_peak(wrap):
    x = mx.random.normal((128, 128), key=mx.random.key(1))
    w = mx.random.normal((128, 128), key=mx.random.key(2)) * 0.08
    mx.eval(x, w)
    plain, want = peak_of(wrap(chain(layer)), x, w)
    saved, got = peak_of(wrap(chain(mx.checkpoint(layer))), x, w)
    for a, b in zip(got, want, strict=True):
        near(a, np.array(b))
    # 96 values inside, of which the backward pass of one layer needs 12
    assert saved < 0.6 * plain


def test_calls__leave_nothing_behind():
    class Canary:
        pass

    def run(c):
        f = mx.custom_function(lambda x, c=c: mx.sin(x))
        f.vjp(lambda p, u, y, c=c: u)
        k = mx.checkpoint(lambda x, c=c: f(x))
        mx.eval(mx.grad(lambda x: k(x).sum())(mx.array(X)))
        return weakref.ref(c)

    gone = run(Canary())
    for _ in range(3):  # what closures hold is let go between two instructions
        gc.collect()
    assert gone() is None


# -- depends -----------------------------------------------------------------------
def test_depends__an_array_for_an_array_a_list_for_a_list():
    x, y = mx.array(X), mx.exp(mx.array(X))
    near(mx.depends(x, y), X)
    a, b = mx.depends([x, y], [y])
    near(a, X)
    near(b, np.exp(X))
    assert isinstance(mx.depends((x,), y), list)
    for bad in [(3, x), (x, 3), ([x, 3], x), (x, ["a"])]:
        with pytest.raises((TypeError, ValueError)):
            mx.depends(*bad)


def test_depends__transforms():
    def f(x, y):
        return (mx.depends(x * x, mx.exp(y))).sum()

    x = mx.array(X)
    gx, gy = mx.grad(f, argnums=(0, 1))(x, x)
    near(gx, [2, 4])
    near(gy, [0, 0])
    near(mx.jvp(f, [x, x], [x, x])[1][0], 10)
    near(mx.vmap(f)(x, x), [1, 4])
    near(mx.vmap(f, in_axes=(None, 0))(x, x), [5, 5])
    near(mx.compile(mx.grad(f))(x, x), [2, 4])
