# SPDX-License-Identifier: Apache-2.0
"""Where a function finds arrays that are not its arguments.

The extension asks after a trace that used such arrays (to notice later that a
place holds another one), and at calls of functions compiled with
``captures="input"``.

Places are found by a walk from the function and from the objects among its
arguments: closures, globals that functions name, defaults, attributes, slots,
containers, and the same again in what these hold.  No code of a user runs:
types are asked by ``type``, attributes are read through the descriptors that
the interpreter makes, and only keys of builtin types are followed.
"""

from __future__ import annotations

import enum
import functools
import opcode
import types
from collections import deque

from .. import _core

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # index of the holder, key in it, kind, what is expected there, its size
    _Step = tuple[int, Any, int, Any, int]

_MANY = 2000  # objects that are looked into
_STEPS = 20000  # and places
_DEEP = 24  # objects in objects

# What a place holds: kinds of steps, as in captured.c.
ARRAY, FIXED, NODE, OTHER, SEEN, MISSING, FUNCTION, ARGUMENTS, KEYWORDS = range(9)

_FUNCTION = types.FunctionType.__dict__
_METHOD = types.MethodType.__dict__
_PARTIAL = functools.partial.__dict__
_CELL = types.CellType.__dict__["cell_contents"]
_CLASS = object.__dict__["__class__"]
_CLASS_DICT = type.__dict__["__dict__"]
_MODULE_DICT: Any = vars(types.ModuleType)["__dict__"]
_MRO = type.__dict__["__mro__"]
_FLAGS = type.__dict__["__flags__"]
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_WRAPPERS = (type(_core.compile(abs)), type(_core.grad(abs)), _core.custom_function)
_PLAIN = (str, bytes, int, float, complex, types.NoneType, type, types.ModuleType, types.BuiltinFunctionType)
_KEYS = (str, int, bytes, bool, float, types.NoneType)
_CODE = (types.FunctionType, *_WRAPPERS, staticmethod, classmethod, property, functools.partial)
_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_LOAD_GLOBAL, _EXTENDED = opcode.opmap["LOAD_GLOBAL"], opcode.opmap["EXTENDED_ARG"]
_GLOBALS = tuple(opcode.opmap[name] for name in ("STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME"))
_NONE = object()
_OF_CODE = -2


def _is(x: Any, *kinds: Any) -> bool:
    return issubclass(type(x), kinds)


def _is_of_user(cls: Any) -> bool:
    """A class that a program made, or one with slots of its own like it."""
    return bool(_FLAGS.__get__(cls) & 1 << 9)


def _parts(cls: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """The descriptors of an instance's dict (or None) and of its slots."""
    own, slots = None, []
    for c in _MRO.__get__(cls):
        if not _is_of_user(c) and c is not types.SimpleNamespace:
            continue
        for name, d in _CLASS_DICT.__get__(c).items():
            if type(d) in _DESCRIPTORS:
                if name == "__dict__":
                    own = own or d
                elif type(d) is types.MemberDescriptorType and name != "__weakref__":
                    slots.append((name, d))
    return own, slots


def _read(descriptor: Any, x: Any) -> Any:
    try:
        return descriptor.__get__(x)
    except (AttributeError, ValueError):  # an empty slot, an empty cell
        return _NONE


class _Walk:
    """Steps from roots to all places below, holders before what they hold."""

    def __init__(self, registry: dict[Any, Any] | None) -> None:
        self.steps: list[_Step] = []
        self.names: list[str] = []
        self.group: list[int] = []  # -1: always watched; _OF_CODE; or the first step of data that code names
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # so that ids stay what they are
        self.queue: deque[tuple[int, Any, int]] = deque()
        self.registry = registry or {}
        self.code = True  # what runs, besides what is held
        self.classes: set[int] = set()
        self.parts: dict[int, Any] = {}

    def root(self, kind: int, size: int) -> int:
        return self._step(-1, None, kind, None, size, "", False)

    def _step(self, parent: int, key: Any, kind: int, what: Any, size: int, name: str, passing: bool) -> int:
        self.steps.append((parent, key, kind, what, size))
        self.names.append(name)
        at = len(self.steps) - 1
        group = self.group[parent] if parent >= 0 else -1
        if passing:
            group = _OF_CODE
        elif group == _OF_CODE and kind == NODE and not issubclass(what, _CODE):
            group = at
        self.group.append(group)
        return at

    def add(self, parent: int, key: Any, x: Any, name: str, depth: int, *, fixed: bool = False) -> None:
        """The place `key` of a holder, which holds x."""
        if len(self.steps) >= _STEPS:
            return
        if x is _NONE:
            self._step(parent, key, MISSING, None, 0, name, False)
        elif _is(x, _core.array):
            self._step(parent, key, FIXED if fixed else ARRAY, None, 0, name, False)
        elif _is(x, *_PLAIN) or depth > _DEEP or len(self.seen) >= _MANY:
            self._step(parent, key, OTHER, type(x), 0, name, False)
        elif id(x) in self.seen:
            self._step(parent, key, SEEN, self.seen[id(x)], 0, name, False)
        else:
            size = -1
            for kind in (dict, list, tuple):
                if _is(x, kind):
                    size = kind.__len__(x)
            self.open(self._step(parent, key, NODE, type(x), size, name, False), x, depth)

    def open(self, at: int, x: Any, depth: int) -> None:
        self.seen[id(x)] = at
        self.kept.append(x)
        self.queue.append((at, x, depth))

    def run(self) -> None:
        while self.queue:
            at, x, depth = self.queue.popleft()
            name = self.names[at]
            if _is(x, *_CODE) and not self.code:
                continue
            if _is(x, types.FunctionType):
                self.function(at, x, name, depth)
            elif _is(x, types.MethodType):
                self.add(at, _METHOD["__self__"], x.__self__, name, depth)
                self.add(at, _METHOD["__func__"], x.__func__, name, depth)
            elif _is(x, *_WRAPPERS):
                d = _CLASS_DICT.__get__(next(w for w in _WRAPPERS if _is(x, w)))["__wrapped__"]
                self.add(at, d, d.__get__(x), name, depth)
            elif _is(x, staticmethod, classmethod):
                d = _CLASS_DICT.__get__(staticmethod if _is(x, staticmethod) else classmethod)["__func__"]
                self.add(at, d, d.__get__(x), name, depth)
            elif _is(x, property):
                d = property.__dict__["fget"]
                self.add(at, d, d.__get__(x), name, depth)
            elif _is(x, types.CellType):
                self.add(at, _CELL, _read(_CELL, x), name, depth)
            else:
                self.holder(at, x, name, depth)

    def function(self, at: int, f: Any, name: str, depth: int) -> None:
        d = _FUNCTION["__closure__"]
        cells = d.__get__(f)
        if cells:
            i = self._step(at, d, NODE, tuple, len(cells), name, False)
            for k, (cell, free) in enumerate(zip(cells, f.__code__.co_freevars, strict=True)):
                self.add(i, k, cell, free, depth)
        for key in ("__defaults__", "__kwdefaults__"):
            if _FUNCTION[key].__get__(f):
                self.add(at, _FUNCTION[key], _FUNCTION[key].__get__(f), f"{f.__name__}.{key}", depth)
        read, names = _code_names(f.__code__)
        top = self._step(at, _FUNCTION["__globals__"], NODE, dict, -1, "", True)
        for n in read:
            x = dict.get(f.__globals__, n)
            if _is(x, types.ModuleType):
                self.module(top, n, x, names, depth)
            elif x is None and n in f.__globals__:  # an array may come
                self.group[self._step(top, n, OTHER, type(x), 0, n, False)] = -1
            elif not _is(x, *_PLAIN):
                self.add(top, n, x, n, depth + 1)

    def module(self, at: int, key: str, x: Any, names: set[str], depth: int) -> None:
        """Data of a module that a function names: what it calls there is not looked into."""
        entries = _MODULE_DICT.__get__(x)
        found = [n for n in names if not _is(dict.get(entries, n), *_PLAIN, *_CODE)]
        if not found:
            return
        i = self._step(at, key, NODE, type(x), -1, "", True)
        i = self._step(i, _MODULE_DICT, NODE, dict, -1, "", True)
        for n in found:
            self.add(i, n, entries[n], f"{key}.{n}", depth + 1)

    def holder(self, at: int, x: Any, name: str, depth: int) -> None:
        """A container, an object, or a container that is an object as well."""
        if _is(x, dict):
            for k, v in list(dict.items(x)):
                if type(k) in _KEYS:
                    self.add(at, k, v, f"{name}[{k!r}]", depth + 1)
        elif _is(x, list, tuple):
            fixed, kind = _is(x, tuple), tuple if _is(x, tuple) else list
            for k, v in enumerate(kind.__iter__(x)):
                self.add(at, k, v, f"{name}[{k}]", depth + 1, fixed=fixed)
        if type(x) in (dict, list, tuple):
            return
        if _is(x, functools.partial):
            for key in ("func", "args", "keywords"):
                value = _PARTIAL[key].__get__(x)
                if value:
                    self.add(at, _PARTIAL[key], value, name, depth)
            return
        cls = type(x)
        if id(cls) not in self.parts:
            self.kept.append(cls)
            self.parts[id(cls)] = _parts(cls)
        own, slots = self.parts[id(cls)]
        dot = name + "." if name else ""
        for key, d in slots:
            self.add(at, d, _read(d, x), dot + key, depth + 1)
        entries = _read(own, x) if own else _NONE
        if type(entries) is dict:
            i = self._step(at, own, NODE, dict, len(entries), name, False)
            for k, v in list(entries.items()):
                if type(k) is str:
                    self.add(i, k, v, dot + k, depth + 1)
        if self.code:
            self.class_of(at, cls, dot, depth)

    def class_of(self, at: int, cls: Any, dot: str, depth: int) -> None:
        """Arrays of a class, and its functions, which may name globals."""
        mro = _MRO.__get__(cls)
        new = [k for k, c in enumerate(mro) if id(c) not in self.classes and _is_of_user(c)]
        if not new:
            return
        top = self._step(at, _CLASS, NODE, type(cls), -1, "", True)
        top = self._step(top, _MRO, NODE, tuple, len(mro), "", True)
        for n in new:
            self.classes.add(id(mro[n]))
            i = self._step(top, n, NODE, type(mro[n]), -1, "", True)
            i = self._step(i, _CLASS_DICT, NODE, types.MappingProxyType, -1, "", True)
            for k, v in list(_CLASS_DICT.__get__(mro[n]).items()):
                if _is(v, _core.array, list, dict, tuple, *_CODE):
                    self.add(i, k, v, dot + k, depth + 1, fixed=True)

    def arguments(self, at: int, key: Any, x: Any, name: str) -> None:
        """Objects among arguments; arrays there are no captured ones."""
        if type(x) in self.registry or _is(x, _core.array, *_PLAIN):
            self._step(at, key, OTHER, type(x), 0, name, False)
        elif _is(x, dict):
            i = self._step(at, key, NODE, type(x), dict.__len__(x), name, False)
            for k, v in list(dict.items(x)):
                if type(k) in _KEYS:
                    self.arguments(i, k, v, f"{name}[{k!r}]")
        elif _is(x, list, tuple):
            kind = tuple if _is(x, tuple) else list
            i = self._step(at, key, NODE, type(x), kind.__len__(x), name, False)
            for k, v in enumerate(kind.__iter__(x)):
                self.arguments(i, k, v, f"{name}[{k}]")
        else:
            self.add(at, key, x, name, 0)

    def result(self) -> tuple[list[_Step], list[str]]:
        """The steps that matter: those to arrays, and all data that may come to hold some."""
        n = len(self.steps)
        kinds = [s[2] for s in self.steps]
        alive = {g for g, kind in zip(self.group, kinds, strict=True) if kind in (ARRAY, FIXED)} | {-1}
        alive.discard(_OF_CODE)
        keep = [g in alive or kind in (ARRAY, FIXED) for g, kind in zip(self.group, kinds, strict=True)]
        for i in range(n - 1, -1, -1):
            parent, _, kind, what, _ = self.steps[i]
            if keep[i] and parent >= 0:
                keep[parent] = True
            if keep[i] and kind == SEEN:
                keep[what] = True
        index = {-1: -1}
        for i in range(n):
            if keep[i]:
                index[i] = len(index) - 1
        steps = [
            (index[p], key, kind, index[what] if kind == SEEN else what, size)
            for i, (p, key, kind, what, size) in enumerate(self.steps)
            if keep[i]
        ]
        return steps, [name for name, k in zip(self.names, keep, strict=True) if k]


def _code_names(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The globals that code reads or sets, and all names in it; of the functions inside it as well."""
    names = set(code.co_names)
    above, top = 0, set()
    for op, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        at = above << 8 | low
        above = at if op == _EXTENDED else 0
        if op == _LOAD_GLOBAL and at >> 1 < len(code.co_names):
            top.add(code.co_names[at >> 1])  # the last bit: a NULL is pushed as well
        elif op in _GLOBALS and at < len(code.co_names):
            top.add(code.co_names[at])
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            inner, all_inner = _code_names(c)
            top |= inner
            names |= all_inner
    return top, names


def places(
    fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, registry: dict[Any, Any] | None
) -> tuple[list[_Step], list[str], tuple[Any, ...]]:
    """Steps to the places of a call, their names, and what tells the places that hold arrays from others."""
    walk = _Walk(registry)
    walk.open(walk.root(FUNCTION, 0), fun, 0)
    names = _arguments(fun)
    at = walk.root(ARGUMENTS, len(args))
    for i, x in enumerate(args):
        walk.arguments(at, i, x, names[i] if i < len(names) else f"argument {i}")
    at = walk.root(KEYWORDS, len(kwargs or {}))
    for key, x in (kwargs or {}).items():
        walk.arguments(at, key, x, key)
    walk.run()
    steps, names = walk.result()
    return steps, names, _signature(steps)


def _signature(steps: list[_Step]) -> tuple[Any, ...]:
    """Without what holds no array, and without sizes."""
    keep = [s[2] in (ARRAY, FIXED) for s in steps]
    index = {-1: -1}
    for i in range(len(steps) - 1, -1, -1):
        if keep[i] and steps[i][0] >= 0:
            keep[steps[i][0]] = True
    for i, k in enumerate(keep):
        if k:
            index[i] = len(index) - 1
    return tuple((index[s[0]], s[1], s[2], s[3]) for s, k in zip(steps, keep, strict=True) if k)


def path(steps: list[_Step], at: int) -> tuple[int, tuple[Any, ...]]:
    """The kind of root and the keys that lead from it to a place."""
    keys: list[Any] = []
    while steps[at][0] >= 0:
        keys.append(steps[at][1])
        at = steps[at][0]
    return steps[at][2], tuple(reversed(keys))


def _is_data(x: Any) -> bool:
    """An instance of a class of a program, which may hold anything."""
    cls = type(x)
    module = str(_CLASS_DICT.__get__(cls).get("__module__"))
    return _is_of_user(cls) and not module.startswith("marram.") and not _is(x, *_CODE, type, enum.Enum)


def hides_alone(x: Any) -> bool:
    """Is x, given where a tree is asked for, something that may hold arrays and is none?"""
    if _is(x, set, frozenset, *_VIEWS) or any("__next__" in _CLASS_DICT.__get__(c) for c in _MRO.__get__(type(x))):
        return True
    return _is_data(x) and _parts(type(x)) != (None, [])


def hides(x: Any) -> bool:
    """Does x, a leaf of a tree, hold arrays?"""
    if not _is_data(x):
        return False
    walk = _Walk(None)
    walk.code = False
    walk.open(walk.root(FUNCTION, 0), x, 0)
    walk.run()
    return any(s[2] in (ARRAY, FIXED) for s in walk.steps)


def _arguments(fun: Any) -> list[str]:
    while _is(fun, *_WRAPPERS):
        fun = fun.__wrapped__
    bound = _is(fun, types.MethodType)
    f = fun.__func__ if bound else fun
    while _is(f, *_WRAPPERS):
        f = f.__wrapped__
    if not _is(f, types.FunctionType):
        return []
    return list(f.__code__.co_varnames[: f.__code__.co_argcount])[bound:]


def describe(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> str:
    """A line "name: value" for each leaf of the arguments of a call."""
    code = getattr(getattr(fun, "__func__", fun), "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code else ()
    names = names[1:] if hasattr(fun, "__self__") else names
    lines: list[str] = []

    def visit(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for k, v in value.items():
                visit(f"{name}[{k!r}]", v)
        elif isinstance(value, (list, tuple)):
            for i, v in enumerate(value):
                visit(f"{name}[{i}]", v)
        elif isinstance(value, _core.array):
            lines.append(f"{name}: {str(value.dtype).rsplit('.', 1)[-1]} {value.shape}")
        elif hasattr(value, "shape") and hasattr(value, "dtype"):
            lines.append(f"{name}: {value.dtype} {tuple(value.shape)}")
        else:
            text = " ".join(repr(value)[:60].split())
            lines.append(f"{name}: {text}")

    for i, value in enumerate(args):
        visit(f"argument '{names[i]}'" if i < len(names) else f"argument {i}", value)
    for name, value in (kwargs or {}).items():
        visit(f"argument '{name}'", value)
    return "\n".join(lines)


def dataclass_tree(cls: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """flatten and unflatten of a dataclass, which need not call its __init__."""
    import dataclasses  # slow to import

    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls.__name__} is no dataclass: give flatten and unflatten")
    names = [f.name for f in dataclasses.fields(cls)]

    def flatten(x: Any) -> tuple[dict[str, Any], None]:
        return {n: getattr(x, n) for n in names}, None

    def unflatten(_: None, children: dict[str, Any]) -> Any:
        x: Any = object.__new__(cls)  # type: ignore[arg-type]
        for n, v in children.items():
            object.__setattr__(x, n, v)
        return x

    return flatten, unflatten
