# SPDX-License-Identifier: Apache-2.0
"""Compiled functions from Python: keys, templates, state."""

import gc
import weakref
from functools import partial

import marram.core as mx
import numpy as np
import pytest


def counted(f):
    """f and a list that grows at each run of its body."""
    runs = []

    def g(*args, **kwargs):
        runs.append(1)
        return f(*args, **kwargs)

    return mx.compile(g), runs


def test_call__traces_once_for_a_kind_of_arguments():
    f, runs = counted(lambda x, y: x * y + 1)
    for i in range(3):
        assert f(mx.array([float(i)]), mx.array([2.0])).tolist() == [2 * i + 1]
    assert len(runs) == 1
    f(mx.zeros((2,)), mx.zeros((2,)))
    f(mx.array([1]), mx.array([2.0]))
    assert len(runs) == 3
    info = f.cache_info()
    assert (info["entries"], info["traces"], info["misses"]) == (3, 3, 3)
    f.cache_clear()
    f(mx.zeros((2,)), mx.zeros((2,)))
    assert len(runs) == 4


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (1.0, 4607182418800017408),
        ("a", "b"),
        (None, False),
        ([1], (1,)),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}),
        (2**70, 2**71),
        (1j, 2j),
        (mx.float32, mx.int32),
        (b"a", "a"),
    ],
)
def test_key__values_of_other_leaves_and_their_types_count(a, b):
    f, runs = counted(lambda x, v: (x + 1, v))
    x = mx.array([1.0])
    assert f(x, a)[1] == a
    assert f(x, b)[1] == b
    assert type(f(x, a)[1]) is type(a)
    assert type(f(x, b)[1]) is type(b)
    assert len(runs) == 2


def test_key__order_of_keywords_does_not_count():
    f, runs = counted(lambda *, a, b: a - b)
    x, y = mx.array(3.0), mx.array(1.0)
    assert f(a=x, b=y).item() == 2
    assert f(b=y, a=x).item() == 2
    assert len(runs) == 1


def test_key__containers_are_given_back_as_they_were():
    f, _ = counted(lambda t: t)
    x = mx.array(1.0)
    for t in ([x, (x, 1)], (x, [x, 1]), {"k": [x], "n": None}):
        out = f(t)
        assert type(out) is type(t)
        assert str(out) == str(t)


def test_call__template_depends_on_the_shape_too():
    f, _ = counted(lambda x: [x] if x.ndim == 1 else {"a": x, "n": x.ndim})
    for _ in range(2):
        assert isinstance(f(mx.array([1.0])), list)
        assert f(mx.array([[1.0]]))["n"] == 2


def test_call__numpy_arrays_are_arrays():
    f, runs = counted(lambda x: x * 2)
    assert f(np.array([1.0, 2.0], np.float32)).tolist() == [2, 4]
    assert f(np.array([3.0, 4.0], np.float32)).tolist() == [6, 8]
    assert f(mx.array([1.0, 1.0])).tolist() == [2, 2]
    assert len(runs) == 1


def test_call__objects_without_a_hash_are_refused():
    f, _ = counted(lambda x, y: x)
    for bad in ({1, 2}, slice(1, 2)):
        with pytest.raises(ValueError):
            f(mx.array(1.0), bad)


def test_result__other_leaves_are_remembered():
    thing = object()
    f, runs = counted(lambda x: (x, 3, "s", thing))
    for _ in range(2):
        x, three, s, t = f(mx.array(1.0))
        assert (x.item(), three, s) == (1, 3, "s")
        assert t is thing
    assert len(runs) == 1


def test_compile__disabled_runs_the_function():
    f, runs = counted(lambda x: x + 1)
    mx.disable_compile()
    try:
        for _ in range(3):
            assert f(mx.array(1.0)).item() == 2
        assert len(runs) == 3
    finally:
        mx.enable_compile()


def test_compile__nests_with_transforms():
    inner = mx.compile(lambda x: (x * x).sum())
    x = mx.array([1.0, 2.0])
    assert mx.grad(inner)(x).tolist() == [2, 4]
    assert mx.compile(mx.grad(inner))(x).tolist() == [2, 4]
    assert mx.compile(lambda y: inner(y) + 1)(x).item() == 6
    assert mx.vmap(mx.compile(lambda y: y * 2))(x).tolist() == [2, 4]


def test_compile__as_a_decorator_and_a_method():
    @mx.compile
    def f(x):
        """Doc."""
        return x + 1

    @partial(mx.compile, shapeless=True)
    def g(x):
        return x * 2

    class C:
        @mx.compile
        def method(self, x):
            return x

    assert f.__name__ == "f"
    assert f.__wrapped__.__doc__ == "Doc."
    assert f(mx.array(1)).item() == 2
    assert g(mx.array([1, 2])).tolist() == [2, 4]
    assert C().method(mx.array(1.0)).item() == 1


# ---- state ---------------------------------------------------------------------


def test_state__inputs_are_read_at_each_call():
    state = {"w": mx.array(2.0)}
    f = mx.compile(lambda x: x * state["w"], inputs=state)
    assert f(mx.array(3.0)).item() == 6
    state["w"] = mx.array(5.0)
    assert f(mx.array(3.0)).item() == 15
    assert f.cache_info()["traces"] == 1


def test_state__outputs_are_written_back():
    state = [mx.array(0.0), {"n": mx.array([1.0])}]
    inner = state[1]

    def step(x):
        state[0] = state[0] + x
        state[1]["n"] = state[1]["n"] * 2
        return state[0] * 10

    f = mx.compile(step, inputs=state, outputs=state)
    for i in range(1, 4):
        assert f(mx.array(1.0)).item() == 10 * i
        assert state[0].item() == i
        assert state[1]["n"].tolist() == [2.0**i]
    assert state[1] is inner
    assert f.cache_info()["traces"] == 1


def test_state__new_entries_appear():
    state = {}

    def step(x):
        state["sum"] = state.get("sum", mx.array(0.0)) + x
        return x

    f = mx.compile(step, inputs=state, outputs=state)
    for i in range(1, 4):
        f(mx.array(2.0))
        assert state["sum"].item() == 2 * i
    assert f.cache_info()["traces"] == 2


def test_state__what_is_not_an_output_is_put_back():
    state = {"w": mx.array(2.0)}

    def f(x):
        state["w"] = state["w"] + x
        state["extra"] = x
        return state["w"]

    g = mx.compile(f, inputs=state)
    assert g(mx.array(1.0)).item() == 3
    assert list(state) == ["w"]
    assert state["w"].item() == 2
    assert g(mx.array(1.0)).item() == 3


def test_state__is_put_back_after_an_exception():
    state = {"w": mx.array(2.0)}

    def f(x):
        state["w"] = state["w"] + x
        raise KeyError("stop")

    g = mx.compile(f, inputs=state, outputs=state)
    with pytest.raises(KeyError):
        g(mx.array(1.0))
    assert state["w"].item() == 2


def test_state__a_bare_array_is_refused():
    with pytest.raises(ValueError):
        mx.compile(lambda x: x, inputs=mx.array(1.0))


def test_state__a_training_step():
    params = {"w": mx.array([1.0, -1.0])}

    def loss(p, x):
        return ((p["w"] * x) ** 2).sum()

    def step(x):
        value, g = mx.value_and_grad(loss)(params, x)
        params["w"] = params["w"] - 0.1 * g["w"]
        return value

    f = mx.compile(step, inputs=params, outputs=params)
    values = [f(mx.array([1.0, 2.0])).item() for _ in range(10)]
    assert values == sorted(values, reverse=True)
    assert f.cache_info()["traces"] == 1


def test_random__draws_are_fresh_and_equal_to_eager_ones():
    f = mx.compile(lambda: mx.random.uniform(shape=(2,)))
    g = mx.compile(lambda: mx.random.uniform(shape=(2,)), inputs=[mx.random.state], outputs=[mx.random.state])
    mx.random.seed(3)
    want = [mx.random.uniform(shape=(2,)).tolist() for _ in range(2)]
    for h in (f, g):
        mx.random.seed(3)
        assert [h().tolist() for _ in range(2)] == want


# ---- lives ---------------------------------------------------------------------


def test_lives__a_dropped_function_frees_what_it_held():
    class Thing:
        pass

    thing = Thing()
    ref = weakref.ref(thing)

    def make(thing):
        def f(x):
            return x + 1, thing

        g = mx.compile(f)
        f.self = g  # a cycle through the compiled function
        return g

    g = make(thing)
    g(mx.array(1.0))
    del g, thing
    gc.collect()
    assert ref() is None


def test_cache__figures_and_limit():
    mx.clear_compile_cache()
    f = mx.compile(lambda x: x + 1)
    for n in range(1, 4):
        f(mx.zeros((n,)))
    assert mx.compile_cache_info()["entries"] >= 3
    old = mx.set_compile_cache_limit(1)
    try:
        f(mx.zeros((9,)))
        assert mx.compile_cache_info()["entries"] <= 1
    finally:
        mx.set_compile_cache_limit(old)


def test_tanh__of_a_nan_with_any_payload_is_nan():
    """The exponential inside adds to the bits of its argument."""
    nan = np.arange(0x7F800001, 0x7FFFFFFF, 65521, dtype="u4")
    nan = np.concatenate([nan, nan | np.uint32(0x80000000), np.arange(0x7FC00000, 0x7FC00400, dtype="u4")])
    x = mx.array(nan.view("f4"))
    assert np.isnan(np.array(mx.tanh(x))).all()
    assert np.isnan(np.array(mx.compile(lambda v: mx.tanh(v) + 1)(x))).all()


# ---- results that are views


VIEWS = {
    "transpose": lambda x: (x * 2).T,
    "reshape": lambda x: (x + 1).reshape(-1),
    "slice": lambda x: mx.exp(x)[10:],
    "steps": lambda x: (x * 2)[:, ::2],
    "reversed": lambda x: (x * 2)[::-1],
    "several": lambda x: mx.moveaxis((x * 2).reshape(20, 30, 400)[1:], 0, 2),
    "of a reshape that copies": lambda x: (x * 2).T.reshape(-1),
    "half": lambda x: (x * 2)[:300],
    "less than half": lambda x: (x * 2)[:200],
    "small": lambda x: (x[:20] * 2).T,
    "broadcast": lambda x: mx.broadcast_to((x * 2)[None], (3, 600, 400)),
    "both": lambda x: (lambda y: (y, y.T, y[5:], y.T))(x * 2),
    "parts": lambda x: tuple(mx.split(x * 2, 2)),
    "of a product": lambda x: (x @ x.T).T,
    "of a view of an argument": lambda x: x.T[3:],
    "bits": lambda x: (x * 2).view(mx.int32).T,
}


@pytest.mark.parametrize("name", VIEWS)
def test_views__of_what_a_call_makes_have_its_values(name):
    f = VIEWS[name]
    x = mx.array(np.random.default_rng(3).standard_normal((600, 400)).astype("f4"))
    g = mx.compile(f)
    for _ in range(3):
        want, got = f(x), g(x)
        for a, b in zip(*((y if isinstance(y, tuple) else (y,)) for y in (want, got)), strict=True):
            np.testing.assert_array_equal(np.array(a), np.array(b))
            np.testing.assert_array_equal(np.array(a + 1), np.array(b + 1))
    assert mx.array_equal(mx.compile(lambda x: g(x) if name in ("both", "parts") else g(x) + 0)(x)[0], got[0]).item()


def test_views__take_no_copy_where_they_show_half():
    x = mx.ones((600, 400))
    for f, copies in (
        (lambda x: (x * 2).T, 0),
        (lambda x: (x * 2)[:300], 0),
        (lambda x: (x * 2)[:, :199], 1),
        (lambda x: (x[:9] * 2).T, 1),
    ):
        g = mx.compile(f)
        y = g(x)
        mx.eval(y)
        assert g.explain().count(": copy") == copies
        assert ("result 0 is a view of output 0" in g.explain()) == (copies == 0)


def test_views__of_captured_arrays_are_theirs():
    c = mx.array(np.arange(40000, dtype="f4").reshape(100, 400))
    g = mx.compile(lambda x: (x + 1, c.T, c[50:]))
    for _ in range(2):
        _, a, b = g(mx.ones((3,)))
        np.testing.assert_array_equal(np.array(a), np.array(c).T)
        np.testing.assert_array_equal(np.array(b), np.array(c)[50:])


def test_views__outlive_the_call_and_are_not_written_over():
    x = mx.array(np.random.default_rng(4).standard_normal((600, 400)).astype("f4"))
    f = mx.compile(lambda x: (x * 2, (x * 2).T))
    y, z = f(x)
    want = np.array(x) * np.float32(2)
    mx.eval(y, z)
    y += 1
    mx.eval(y)
    np.testing.assert_array_equal(np.array(z), want.T)
    np.testing.assert_array_equal(np.array(y), want + 1)
    for _ in range(3):
        y, z = f(x)
        del y
        np.testing.assert_array_equal(np.array(z * 1), want.T)
