# SPDX-License-Identifier: Apache-2.0
"""Arrays that compiled functions find inside objects: noticed when they change, or read at each call."""

import enum
import functools
import gc
import os
import sys
import types
import warnings
import weakref

import marram.core as mx
import pytest

X = mx.array([1.0, 2.0])
TABLE = {"w": mx.array(1.0)}


def warned(f):
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        f()
    return [str(w.message) for w in record]


def value(x):
    return mx.array(float(x))


class P:
    def __init__(self, w=1.0):
        self.w = value(w)

    def loss(self, x):
        return (x * self.w).sum()

    def __call__(self, x):
        return x * self.w


class Slotted:
    __slots__ = ("__weakref__", "empty", "w")

    def __init__(self, w=1.0):
        self.w = value(w)


class Strict:
    """Whatever runs code of its own fails."""

    __slots__ = ("__dict__",)

    def __init__(self, w=1.0):
        object.__setattr__(self, "w", value(w))

    def __getattribute__(self, name):
        if name == "w":
            return object.__getattribute__(self, "__dict__")["w"]
        raise AssertionError(f"asked for {name}")

    def __setattr__(self, name, v):
        raise AssertionError(f"set {name}")

    @property
    def other(self):
        raise AssertionError("a property ran")


class Model:
    def __init__(self):
        self.layers = [P(), P()]
        self.sub = P()
        self.d = {"a": value(1), "deep": [({"p": P()},)]}
        self.slotted = Slotted()
        self.me = self
        self.parts = types.SimpleNamespace(w=value(1))


def uses_table(x):
    return x * TABLE["w"]


def set_table(v):
    TABLE["w"] = v


# what the function is, and what changes the array that it finds
def layers(captures):
    m = Model()
    f = mx.compile(lambda x: x * sum(layer.w for layer in m.layers), captures=captures)
    return f, lambda v: setattr(m.layers[1], "w", v - 1)


def new_layer(captures):
    m = Model()
    f = mx.compile(lambda x: x * sum(layer.w for layer in m.layers), captures=captures)
    return f, lambda v: m.layers.__setitem__(0, P((v - 1).item()))


def argument(captures):
    p = P()
    f = mx.compile(lambda p, x: x * p.w, captures=captures)
    return functools.partial(f, p), lambda v: setattr(p, "w", v)


def keyword(captures):
    p = P()
    f = mx.compile(lambda x, p: x * p[0]["p"].w, captures=captures)
    return functools.partial(f, p=[{"p": p}]), lambda v: setattr(p, "w", v)


def argument_slot(captures):
    p = Slotted()
    f = mx.compile(lambda p, x: x * p.w, captures=captures)
    return functools.partial(f, p), lambda v: setattr(p, "w", v)


def unbound(captures):
    p = P()
    return functools.partial(mx.compile(P.__call__, captures=captures), p), lambda v: setattr(p, "w", v)


def bound(captures):
    p = P()
    return mx.compile(p.__call__, captures=captures), lambda v: setattr(p, "w", v)


def decorated(captures):
    class Q(P):
        @mx.compile(captures=captures)
        def run(self, x):
            return x * self.w

    q = Q()
    return q.run, lambda v: setattr(q, "w", v)


def deep(captures):
    m = Model()
    f = mx.compile(lambda x: x * m.me.d["deep"][0][0]["p"].w, captures=captures)
    return f, lambda v: setattr(m.d["deep"][0][0]["p"], "w", v)


def sub(captures):
    m = Model()
    f = mx.compile(lambda x: x * m.sub.w, captures=captures)

    def change(v):
        m.sub = P(v.item())

    return f, change


def slotted(captures):
    m = Model()
    return mx.compile(lambda x: x * m.slotted.w, captures=captures), lambda v: setattr(m.slotted, "w", v)


def namespace(captures):
    m = Model()
    return mx.compile(lambda x: x * m.parts.w, captures=captures), lambda v: setattr(m.parts, "w", v)


def strict(captures):
    s = Strict()
    f = mx.compile(lambda s, x: x * s.w, captures=captures)
    return functools.partial(f, s), lambda v: object.__getattribute__(s, "__dict__").__setitem__("w", v)


def method_global(captures):
    class Q:
        def helper(self, x):
            return uses_table(x)

        def __call__(self, x):
            return self.helper(x)

    set_table(value(1))
    return mx.compile(Q(), captures=captures), set_table


def property_of(captures):
    class Q:
        @property
        def w(self):
            return TABLE["w"]

    set_table(value(1))
    q = Q()
    return mx.compile(lambda x: x * q.w, captures=captures), set_table


def default(captures):
    w = P()
    return mx.compile(lambda x, p=w: x * p.w, captures=captures), lambda v: setattr(w, "w", v)


def gradient(captures):
    p = P()
    f = mx.compile(mx.grad(p.loss), captures=captures)
    return lambda x: f(x) * x, lambda v: setattr(p, "w", v)


def custom(captures):
    p = P()
    f = mx.compile(mx.custom_function(functools.lru_cache(lambda x: x * p.w)), captures=captures)
    return f, lambda v: setattr(p, "w", v)


def module_like(captures):
    class Module(dict):
        def __getattr__(self, name):
            return self[name]

        def __call__(self, x):
            return x * self.layers[0].w

    m = Module(layers=[Module(w=value(1))])
    return mx.compile(m, captures=captures), lambda v: m["layers"][0].__setitem__("w", v)


CASES = [custom, module_like, layers, new_layer, argument, keyword, argument_slot, unbound, bound, decorated, deep, sub,
         slotted, namespace, strict, method_global, property_of, default, gradient]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_captured__a_stale_call_warns_once(case):
    f, change = case("constant")
    first = f(X).tolist()
    assert warned(lambda: [f(X) for _ in range(4)]) == []
    change(value(5))
    said = warned(lambda: f(X))
    assert len(said) == 1
    assert "holds another array now" in said[0]
    assert 'captures="input"' in said[0]
    assert warned(lambda: f(X)) == []
    assert f(X).tolist() == first


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_captured__inputs_are_read_in_objects(case):
    f, change = case("input")
    f(X)
    for v in (3, 7):
        change(value(v))
        assert f(X).tolist() == [v, 2 * v]


def test_captured__inputs_need_one_trace_and_put_back_what_was_there():
    m = Model()
    f = mx.compile(lambda x: x * sum(layer.w for layer in m.layers) * m.slotted.w, captures="input")
    before = [layer.w for layer in m.layers] + [m.slotted.w]
    for _ in range(3):
        f(X)
    assert [a is b for a, b in zip(before, [layer.w for layer in m.layers] + [m.slotted.w], strict=True)] == [True] * 3
    m.layers[0].w = value(2)
    assert f(X).tolist() == [3, 6]
    assert f.cache_info()["traces"] == 1
    m.layers.append(P(4))  # another structure
    assert f(X).tolist() == [7, 14]
    assert f.cache_info()["traces"] == 2
    m.layers.pop()
    m.count = 3
    assert f(X).tolist() == [3, 6]
    assert f.cache_info()["traces"] == 2
    m.layers[1] = m.layers[0]  # one object at two places
    m.layers[0].w = value(5)
    assert f(X).tolist() == [10, 20]
    m.layers[1] = P(1)
    assert f(X).tolist() == [6, 12]


def test_captured__what_was_none_or_another_class_is_noticed():
    class Plus(P):
        def __call__(self, x):
            return x + self.w

    m = types.SimpleNamespace(part=P(2), cache=None)

    def run(x):
        return m.part(x) if m.cache is None else x * m.cache

    f = mx.compile(run, captures="input")
    assert f(X).tolist() == [2, 4]
    m.part = Plus(2)
    assert f(X).tolist() == [3, 4]
    m.cache = value(5)
    assert f(X).tolist() == [5, 10]
    m.cache = value(6)
    assert f(X).tolist() == [6, 12]
    assert f.cache_info()["traces"] == 3
    m.losses = []
    for _ in range(20):  # data that grows and holds no arrays
        m.losses.append(0.5)
        f(X)
    assert f.cache_info()["traces"] == 3


def test_captured__an_error_in_a_trace_puts_back_what_was_there():
    p = P(3)
    with pytest.raises(ZeroDivisionError):
        mx.compile(lambda p, x: x * p.w * (1 // 0), captures="input")(p, X)
    assert p.w.item() == 3


def test_captured__each_object_has_its_own_program_and_watch():
    f = mx.compile(lambda p, x: x * p.w)
    a, b = P(2), P(3)
    assert (f(a, X).tolist(), f(b, X).tolist()) == ([2, 4], [3, 6])
    b.w = value(0)
    assert warned(lambda: f(a, X)) == []
    assert "'p.w'" in warned(lambda: f(b, X))[0]


def test_captured__each_shape_keeps_its_own_arrays():
    p = P(2)
    f = mx.compile(p)
    f(X)
    p.w = value(5)
    assert f(mx.array([1.0])).tolist() == [5]
    assert warned(lambda: f(mx.array([1.0]))) == []
    assert len(warned(lambda: f(X))) == 1


def test_captured__what_is_gone_is_noticed():
    m = Model()
    f = mx.compile(lambda x: x * sum(layer.w for layer in m.layers))
    f(X)
    m.layers.pop()
    assert "does not hold it any more" in warned(lambda: f(X))[0]


def hidden_in_a_tuple():
    pair = (value(1), value(2))
    return lambda x: x * pair[1]


def hidden_in_an_iterator():
    w = value(2)
    it = iter([w] * 3)
    del w
    return lambda x: x * next(it)


def hidden_in_a_class():
    class Q:
        w = value(2)

    q = Q()
    return lambda x: x * q.w


def hidden_behind_a_key():
    class Key:
        pass

    key = Key()
    d = {key: value(2)}
    return lambda x: x * d[key]


@pytest.mark.parametrize("case", [hidden_in_a_tuple, hidden_in_an_iterator, hidden_in_a_class, hidden_behind_a_key],
                         ids=lambda c: c.__name__)  # fmt: skip
def test_captured__inputs_that_are_not_found_are_an_error(case):
    with pytest.raises(ValueError, match='captures="input" cannot') as e:
        mx.compile(case(), captures="input")(X)
    line = value.__code__.co_firstlineno + 1
    assert f"made at {__file__}:{line}" in str(e.value) or "MARRAM_SITES" in os.environ
    assert "Pass it as argument" in str(e.value)


def test_captured__own_arrays_are_no_captured_ones():
    f = mx.compile(lambda x: x * mx.array([1.0, 2.0]) + 2 + mx.ones((2,)), captures="input")
    assert f(X).tolist() == [4, 7]


@pytest.mark.parametrize("captures", ["constant", "input"])
def test_captured__objects_live_no_longer(captures):
    p = Model()
    f = mx.compile(lambda p, x: x * p.layers[0].w, captures=captures)
    refs = [weakref.ref(p), weakref.ref(p.layers[0]), weakref.ref(p.slotted)]
    for _ in range(3):
        f(p, X)
    del p
    gc.collect()
    assert [r() for r in refs] == [None] * 3
    assert f(Model(), X).tolist() == [1, 2]

    class Local(P):
        @mx.compile(captures=captures)
        def run(self, x):
            return x * self.w

    q = Local()
    q.run(X)
    refs = [weakref.ref(q), weakref.ref(Local)]
    del q, Local
    gc.collect()
    assert [r() for r in refs] == [None] * 2


def test_captured__very_large_and_cyclic_data_is_looked_at_in_part():
    p = P()
    p.many = [[i] for i in range(100_000)]
    p.chain = at = [p]
    for _ in range(5000):
        at.append([p])
        at = at[1]
    for captures in ("constant", "input"):
        f = mx.compile(lambda p, x: x * p.w, captures=captures)
        assert f(p, X).tolist() == f(p, X).tolist() == [1, 2]


class Color(enum.Enum):
    RED = 1


# ---- trees that are none -----------------------------------------------------------


@pytest.mark.parametrize("name", ["eval", "async_eval", "memory_report"])
def test_eval__of_an_object_that_is_no_tree_is_an_error(name):
    fn = getattr(mx, name)
    for x in (P(), [1, {"p": P()}], Slotted(), {value(1)}, {"a": value(1)}.values(), (value(v) for v in (1, 2))):
        with pytest.raises(TypeError, match="register_tree") as e:
            fn(X, x)
        inner = x[1]["p"] if isinstance(x, list) else x
        assert type(inner).__name__ in str(e.value)
    fn([loader := iter([1]), Color.RED, P.__call__], Color.RED)
    assert next(loader) == 1
    fn(1, "a", None, 2.5, b"x", True, mx.float32, len, P, sys, lambda x: x, mx.random.state, [range(3), 1j])


def test_eval__takes_registered_objects():
    class Tree(P):
        pass

    mx.register_tree(Tree, lambda t: ([t.w], None), lambda _, c: c)
    t = Tree()
    t.w = mx.exp(X)
    mx.eval({"t": [t]})
    assert mx.memory_report(t)["pending"] == 0


def test_input__a_name_of_an_attribute_is_no_global():
    p = P()
    scope = {"mx": mx, "p": p}
    exec("f = mx.compile(lambda x: p.w * x, captures='input')", scope)
    p.w = value(2)
    for n in range(4):
        scope["w"] = mx.ones(n + 1)  # not what p.w reads
        assert scope["f"](X).tolist() == [2.0, 4.0]
    assert scope["f"].cache_info()["traces"] == 1


def test_input__a_global_beyond_the_first_256_names_is_found():
    names = [f"g{i}" for i in range(300)]
    scope = {"mx": mx, **{n: value(1) for n in names}}
    exec(f"f = mx.compile(lambda x: x * ({' + '.join(names)}), captures='input')", scope)
    assert scope["f"](X).tolist() == [300.0, 600.0]
    scope["g299"] = value(11)
    assert scope["f"](X).tolist() == [310.0, 620.0]
