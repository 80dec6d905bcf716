# SPDX-License-Identifier: Apache-2.0
"""What compile promises beyond speed: captured arrays, static values, modes, limits, and what is said."""

import collections
import dataclasses
import enum
import functools
import math
import os
import subprocess
import sys
import textwrap
import warnings

import marram.core as mx
import numpy as np
import pytest

X = mx.array([1.0, 2.0])


def python(code, **env):
    """Runs a program of its own: what it prints, and what the library says."""
    path = os.pathsep.join(p for p in sys.path if p)
    r = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False,
                       env={**os.environ, "PYTHONPATH": path, **env})  # fmt: skip
    assert r.returncode == 0, r.stderr
    return r.stdout, r.stderr


def warned(f):
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        f()
    return [str(w.message) for w in record]


# ---- captured arrays -------------------------------------------------------------


def test_captured__a_slot_that_changes_is_warned_of_once():
    state = {"w": [mx.array(2.0), mx.array(1.0)], "unused": mx.array(0.0)}
    f = mx.compile(lambda x: x * state["w"][0] + state["w"][1])
    assert f(X).tolist() == [3, 5]
    state["unused"] = mx.array(1.0)
    assert warned(lambda: [f(X) for _ in range(4)]) == []
    state["w"][0] = mx.array(5.0)
    said = warned(lambda: [f(X) for _ in range(8)])
    assert len(said) == 1
    assert "state['w'][0]" in said[0]
    assert 'captures="input"' in said[0]
    assert f(X).tolist() == [3, 5]  # a constant it stays


def test_captured__cells_globals_and_attributes_are_watched():
    class Model:
        def __init__(self):
            self.w = mx.array(2.0)

        def __call__(self, x):
            return x * self.w

    model, w = Model(), mx.array(3.0)
    f, g = mx.compile(model), mx.compile(lambda x: x * w)
    assert (f(X).tolist(), g(X).tolist()) == ([2, 4], [3, 6])
    model.w, w = mx.array(0.0), mx.array(0.0)
    assert "'w'" in warned(lambda: f(X))[0]
    assert "'w'" in warned(lambda: g(X))[0]


def test_captured__as_inputs_they_are_read_at_each_call():
    class Model:
        def __init__(self):
            self.w = {"a": [mx.array(2.0)]}

        def __call__(self, x):
            return x * self.w["a"][0]

    model, w = Model(), mx.array(1.0)
    f = mx.compile(lambda x: model(x) + w, captures="input")
    g = mx.compile(model, captures="input")
    for a, b in ((2, 1), (3, 0), (5, 7)):
        model.w["a"][0], w = mx.array(float(a)), mx.array(float(b))
        assert f(X).tolist() == [a + b, 2 * a + b]
        assert g(X).tolist() == [a, 2 * a]
        assert (model.w["a"][0].item(), w.item()) == (a, b)
    assert f.cache_info()["traces"] == g.cache_info()["traces"] == 1
    with pytest.raises(ZeroDivisionError):
        mx.compile(lambda x: x * w * (1 // 0), captures="input")(X)
    assert w.item() == 7


def test_captured__can_be_an_error_that_names_them():
    w = mx.array([3.0, 4.0])
    line = sys._getframe().f_lineno - 1
    f = mx.compile(lambda x: x * (w + 1), captures="error")
    with pytest.raises(ValueError, match=rf"uses 1 array that it was not given: float32 \(2,?\)( made at .*:{line})?\."):
        f(X)
    own = mx.compile(lambda x: x * mx.array([1.0, 2.0]) + 2 + mx.ones((2,)), captures="error")
    assert own(X).tolist() == [4, 7]
    with pytest.raises(ValueError, match="'constant', 'error' or 'input'"):
        mx.compile(lambda x: x, captures="other")


def test_captured__checking_mode_reports_them():
    out, said = python(
        """
        import marram.core as mx
        w = mx.array(2.0)
        f = mx.compile(lambda x: x * w + mx.array([1.0]))
        print(f(mx.array([1.0])).item())
        """,
        MARRAM_CHECK="1",
    )
    assert out == "3.0\n"
    assert "keeps 1 captured array as constants: float32" in said
    assert "<string>:3" in said


def test_leaked__placeholders_name_function_and_line():
    kept = []

    def leaky(x):
        kept.append(x * 2)
        return x

    mx.compile(leaky)(X)
    with pytest.raises(ValueError, match=rf"made at {__file__}:\d+ .*traced by leaky .*trace is over"):
        kept[0].tolist()


@pytest.mark.parametrize("read", [float, bool, print, np.array, mx.eval, lambda x: x.item(), lambda x: x.tolist(), str])
@pytest.mark.filterwarnings("ignore:a value read inside a transform")
def test_trace__evaluation_inside_says_where_and_what_to_do(read):
    def f(x):
        y = x.sum()
        read(y)
        return y

    with pytest.raises(ValueError, match=rf"made at {__file__}:\d+ .*traced by f .*return it, or compute with it"):
        mx.compile(f)(X)
    with pytest.raises(ValueError, match="traced by vmap"):
        mx.vmap(f)(mx.ones((2, 2)))


# ---- arguments ---------------------------------------------------------------------


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def test_static__hashable_objects_count_by_value_and_class():
    runs = []
    f = mx.compile(lambda x, v: runs.append(v) or x)
    for v in (Color.RED, Color.BLUE, frozenset({1}), range(3), len, object(), Color.RED, frozenset({1}), range(3)):
        f(X, v)
    assert len(runs) == 6

    class Pair(tuple):
        __slots__ = ()

    f(X, 3), f(X, 3.0), f(X, True)
    assert len(runs) == 9
    f(X, math.nan), f(X, math.nan), f(X, float("nan"))
    assert len(runs) == 10
    with pytest.raises(ValueError, match=r"holds set, which has no hash.*register_tree"):
        f(X, {1, 2})


def test_static__objects_are_not_kept_alive():
    import gc
    import weakref

    class Thing:
        pass

    f = mx.compile(lambda x, t: x + 1)
    thing = Thing()
    f(X, thing)
    ref = weakref.ref(thing)
    del thing
    gc.collect()
    assert ref() is None


def test_compile__takes_whatever_can_be_called():
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x * self.by

        @mx.compile
        def method(self, x):
            return x + self.by

        @mx.compile(shapeless=True, max_entries=4)
        def other(self, x, *, k=1):
            return x * self.by + k

    two, three = Scale(2), Scale(3)
    assert mx.compile(two)(X).tolist() == [2, 4]
    assert (two.method(X).tolist(), three.method(X).tolist()) == ([3, 4], [4, 5])
    assert (two.other(X).tolist(), three.other(X, k=0).tolist()) == ([3, 5], [3, 6])
    assert mx.compile(three.__call__)(X).tolist() == [3, 6]
    add = functools.partial(lambda a, b, c=0: a + b + c, c=mx.array(1.0))
    assert mx.compile(add)(X, b=X).tolist() == [3, 5]
    assert mx.compile(functools.partial(mx.add, X))(X).tolist() == [2, 4]
    assert mx.compile(mx.exp)(mx.array([0.0])).tolist() == [1]
    assert mx.compile(max)([mx.array(1.0)]).item() == 1
    deco = mx.compile(captures="error")
    assert deco(lambda x, t: {"y": [x + t["a"][0]]})(X, {"a": (X,)})["y"][0].tolist() == [2, 4]
    with pytest.raises(TypeError):
        mx.compile(3)


def test_compile__nests_with_every_transform_and_itself():
    def f(x):
        return (x**3).sum()

    c = mx.compile(f)
    want = (3 * X**2).tolist()
    for g in (mx.compile(mx.grad(f)), mx.grad(c), mx.compile(mx.compile(mx.grad(c))), mx.compile(lambda x: mx.grad(c)(x))):
        assert g(X).tolist() == want
    batch = mx.ones((2, 2))
    for g in (mx.compile(mx.vmap(f)), mx.vmap(c), mx.compile(mx.vmap(mx.compile(f)))):
        assert g(batch).tolist() == [2, 2]
    hessian = mx.compile(lambda x: mx.vmap(lambda v: mx.jvp(mx.grad(c), [x], [v])[1][0])(mx.eye(2)))
    assert hessian(X).tolist() == [[6, 0], [0, 12]]


def test_register_tree__objects_pass_through_compile_and_transforms():
    @mx.register_tree
    @dataclasses.dataclass(frozen=True)
    class Params:
        w: mx.array
        b: list
        scale: int

    class Box:
        def __init__(self, x, tag):
            self.x, self.tag = x, tag

    assert mx.register_tree(Box, lambda b: ([b.x], b.tag), lambda tag, c: Box(c[0], tag)) is Box
    runs = []

    @mx.compile
    def f(p, box):
        runs.append(1)
        return Params(p.w * p.scale + box.x, [p.b[0] + 1], p.scale), Box(box.x + 1, box.tag)

    for i in (1, 2):
        for scale in (2, 3):
            p, box = f(Params(X * i, [X], scale), Box(X, "t"))
            assert (type(p), p.scale, type(box), box.tag) == (Params, scale, Box, "t")
            assert p.w.tolist() == [scale * i + 1, 2 * (scale * i + 1)]
            assert box.x.tolist() == [2, 3]
    assert len(runs) == 2
    f(Params(X, [X], 2), Box(X, "other"))
    assert len(runs) == 3
    g = mx.grad(lambda b: (b.x**2).sum())(Box(X, "t"))
    assert (g.x.tolist(), g.tag) == ([2, 4], "t")
    mx.eval(Params(X + 1, [X], 1))
    with pytest.raises(TypeError, match="no dataclass"):
        mx.register_tree(type("Plain", (), {}))


# ---- modes, limits, figures ------------------------------------------------------------


@pytest.mark.parametrize("mode", ["no_simplify", "no_fuse", "disabled", "enabled"])
def test_mode__results_are_the_same(mode):
    runs = []

    def f(x):
        runs.append(1)
        return mx.softmax(mx.exp(x) * 2 + mx.exp(x), -1).sum(-1), x.T

    x = mx.random.normal((5, 40))
    want = [np.array(y) for y in f(x)]
    assert mx.set_compile_mode(mode) == "enabled"
    try:
        c = mx.compile(f)
        for _ in range(2):
            for a, b in zip(c(x), want, strict=True):
                np.testing.assert_array_equal(np.array(a), b)
        assert len(runs) == (3 if mode == "disabled" else 2)
    finally:
        mx.set_compile_mode("enabled")
    with pytest.raises(ValueError, match="'no_simplify'"):
        mx.set_compile_mode("fast")


@pytest.mark.parametrize(
    ("env", "want"),
    [
        ({}, "enabled"),
        ({"MLX_DISABLE_COMPILE": "1"}, "disabled"),
        ({"MARRAM_DISABLE_COMPILE": "1"}, "disabled"),
        ({"MLX_DISABLE_COMPILE": "0"}, "enabled"),
        ({"MARRAM_COMPILE": "no_fuse"}, "no_fuse"),
        ({"MARRAM_COMPILE": "enabled", "MLX_DISABLE_COMPILE": "1"}, "enabled"),
    ],
)
def test_mode__comes_from_the_environment_at_first(env, want):
    code = """
    import marram.core as mx
    runs = []
    f = mx.compile(lambda x: runs.append(1) or x + 1)
    f(mx.array(1.0)), f(mx.array(1.0))
    mode = mx.set_compile_mode("enabled")
    print(mode, len(runs))
    mx.disable_compile(); mx.enable_compile()
    print(mx.set_compile_mode("enabled"))
    """
    out, _ = python(code, **{"MARRAM_COMPILE": "", "MLX_DISABLE_COMPILE": "", **env})
    assert out == f"{want} {2 if want == 'disabled' else 1}\nenabled\n"
    _, said = python("import marram.core as mx; mx.compile(abs)(mx.array(1.0))", MARRAM_COMPILE="often")
    assert "MARRAM_COMPILE is 'often'" in said


def test_warning__names_the_argument_its_values_and_what_to_do():
    code = """
    import marram.core as mx
    def scale(x, by, *, k=1): return x * by + k
    f = mx.compile(scale)
    for i in range(20): f(mx.array([1.0]), i)
    g = mx.compile(lambda batch, n: batch + n)
    for i in range(20): g(mx.zeros((i, 3)), 2)
    h = mx.compile(lambda batch: batch + 1, shapeless=True)
    for i in range(20): h(mx.zeros((i, 3)))
    k = mx.compile(lambda x: x + 1)
    for i in range(8): k(mx.zeros((i,)))
    for i in range(100): k(mx.zeros((2,)))
    """
    _, said = python(code)
    lines = said.strip().split("\n")
    assert len(lines) == 2, said
    assert "scale was traced 9 times, because argument 'by' changes: 0, 1, 2, 3, 4, ..." in lines[0]
    assert "Pass it as an array" in lines[0]
    assert "argument 'batch' changes: float32 (0, 3), float32 (1, 3)" in lines[1]
    assert "shapeless" in lines[1]


def test_info__figures_are_those_of_the_function():
    f, g = mx.compile(lambda x: x + 1), mx.compile(lambda x: x + 2)
    for n in (1, 2, 1, 1, 2):
        f(mx.zeros((n,)))
    g(mx.zeros((1,)))
    info = f.cache_info()
    assert (info["hits"], info["misses"], info["traces"], info["entries"]) == (3, 2, 2, 2)
    assert g.cache_info()["hits"] == 0
    assert g.cache_info()["bytes"] < info["bytes"]
    total = mx.compile_cache_info()
    assert total["hits"] >= 3
    assert total["entries"] >= 3


def test_limits__of_entries_and_bytes_for_a_function_and_in_all():
    f = mx.compile(lambda x: x + 1, max_entries=3)
    g = mx.compile(lambda x: x + 1, max_bytes=20_000)
    kept = mx.compile(lambda x: x * 2)
    kept(X)
    for n in range(40):
        f(mx.zeros((n,))), g(mx.zeros((n,)))
        assert f.cache_info()["entries"] <= 3
        assert g.cache_info()["bytes"] <= 20_000
    assert f.cache_info()["evictions"] == 37
    assert kept.cache_info()["entries"] == 1
    old = mx.set_compile_cache_limit(max_bytes=1)
    try:
        assert mx.compile_cache_info()["entries"] == 0
        assert kept(X).tolist() == [2, 4]
    finally:
        mx.set_compile_cache_limit(max_bytes=old)
    for bad in (0, -1):
        with pytest.raises((ValueError, OverflowError)):
            mx.compile(lambda x: x, max_entries=bad)


# ---- once, and by whatever way ---------------------------------------------------------


def test_trace__the_first_call_of_a_process_traces_once():
    out, _ = python(
        """
        import marram.core as mx
        runs = []
        print(mx.compile(lambda x: runs.append(1) or x + 1)(mx.array(1.0)).item(), len(runs))
        """
    )
    assert out == "2.0 1\n"


def test_trace__a_function_may_call_itself_through_its_compiled_form():
    runs = []

    @mx.compile
    def power(x, n):
        runs.append(n)
        return x if n == 0 else power(x * 2, n - 1)

    assert power(X, 100).tolist() == [2.0**100, 2.0**101]
    assert power(X, 100).tolist() == [2.0**100, 2.0**101]
    assert len(runs) == 101


def test_key__default_streams_do_not_count():
    runs = []
    f = mx.compile(lambda x: runs.append(1) or mx.exp(x) + 1)
    want = f(X).tolist()
    with mx.stream(mx.new_stream(mx.cpu)):
        assert f(X).tolist() == want
    assert len(runs) == 1


def test_transform__of_a_compiled_function_runs_its_body():
    runs = []
    f = mx.compile(lambda x: runs.append(1) or (x * x).sum())
    for _ in range(3):
        assert mx.grad(f)(X).tolist() == [2, 4]
    assert len(runs) == 3
    g = mx.compile(mx.grad(f))
    for _ in range(3):
        assert g(X).tolist() == [2, 4]
    assert len(runs) == 4


def test_fuse__groups_of_many_shapes_are_no_error():
    def f(x, y):
        a = mx.exp(x) + y[:, None]
        b = a.sum(0) * x[0] + a.mean()
        return a * b, mx.where(b > 0, b, -b).max(), (a.T @ a).reshape(-1)[:5], mx.concatenate([a, a * 2])[1:, ::2]

    x, y = mx.random.normal((7, 6)), mx.random.normal((7,))
    for got, want in zip(mx.compile(f)(x, y), f(x, y), strict=True):
        np.testing.assert_array_equal(np.array(got), np.array(want))


# ---- tuples in captured state


Layer = collections.namedtuple("Layer", "w b")


@pytest.mark.parametrize("kind", [tuple, Layer._make])
@pytest.mark.parametrize("put", ["slice", "items", "dict", "inner"])
def test_state__arrays_in_tuples_are_read_and_replaced(kind, put):
    def make():
        return [kind((mx.ones((3, 3)), mx.zeros(3))), kind((mx.ones((3, 1)), mx.zeros(1)))]

    def steps(compiled):
        layers = make()
        state = {"inner": (layers,), "dict": dict(enumerate(layers))}.get(put, layers)

        def loss(layers, x):
            for w, b in layers:
                x = x @ w + b
            return (x**2).mean()

        def step(x):
            now = state["inner"][0] if put == "inner" else list(state.values()) if put == "dict" else state
            value, grads = mx.value_and_grad(loss)(now, x)
            new = [kind((w - 0.01 * gw, b - 0.01 * gb)) for (w, b), (gw, gb) in zip(now, grads, strict=True)]
            if put == "dict":
                state.update(enumerate(new))
            elif put == "slice":
                state[:] = new
            else:
                for i, layer in enumerate(new):
                    now[i] = layer
            return value

        if put == "inner":
            state = {"inner": (layers,)}
        f = mx.compile(step, inputs=state, outputs=state) if compiled else step
        return [f(mx.ones((2, 3))).item() for _ in range(4)], type(layers[0])

    assert steps(True) == steps(False)
    assert len(set(steps(True)[0])) == 4


def test_state__lists_in_tuples_stay_the_objects_that_they_are():
    inner = [mx.ones(1)]
    state = ([mx.ones(2)], {"a": (mx.ones(1), inner)})

    def step(x):
        state[0][0] = state[0][0] + x
        state[1]["a"][1][0] = state[1]["a"][1][0] * 2
        state[1]["a"] = (state[1]["a"][0] + x, state[1]["a"][1])
        return state[1]["a"][0].sum()

    step = mx.compile(step, inputs=state, outputs=state)
    assert [step(mx.array(1.0)).item() for _ in range(3)] == [2, 3, 4]
    assert state[1]["a"][1] is inner
    assert inner[0].item() == 8
    assert state[0][0].tolist() == [4, 4]


def test_state__tuples_that_do_not_change_stay_themselves():
    pair = ("adam", 3)
    state = [pair, mx.ones(2)]

    def step():
        state[1] = state[1] + 1
        return state[1]

    step = mx.compile(step, inputs=state, outputs=state)
    step()
    assert state[0] is pair


@pytest.mark.parametrize("option", ["inputs", "outputs"])
def test_state__what_cannot_be_replaced_is_refused(option):
    @mx.register_tree
    @dataclasses.dataclass
    class Box:
        x: object

    for state, text in [
        ((mx.ones(2),), "in a tuple that nothing holds"),
        (([mx.ones(1)], (1, mx.ones(2))), "in a tuple that nothing holds"),
        ([mx.ones(1), Box(mx.ones(2))], "object of a registered class"),
        ({"a": [Box([mx.ones(2)])]}, "object of a registered class"),
    ]:
        f = mx.compile(lambda x: x + 1, **{option: state})
        with pytest.raises(ValueError, match=f"{option} must hold.*{text}"):
            f(mx.ones(2))
    f = mx.compile(lambda x: x + 1, **{option: [Box(3), mx.ones(2)]})
    assert f(mx.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize("option", ["inputs", "outputs"])
def test_state__that_holds_itself_is_refused(option):
    state = [mx.ones(1)]
    state.append(state)
    f = mx.compile(lambda x: x + 1, **{option: state})
    with pytest.raises(RecursionError):
        f(mx.ones(2))
