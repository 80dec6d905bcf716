# SPDX-License-Identifier: Apache-2.0
"""Where a function finds arrays that are not its arguments.

The extension asks after a trace that used such arrays (to notice later that a
place holds another one), and at calls of functions compiled with
``captures="input"``.
"""

from __future__ import annotations

import functools
import types

from .. import _core

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    _Place = tuple[Any, Any]  # a dict and a key, a list and an index, or an object and an attribute

_CALLS = (types.FunctionType, types.MethodType, functools.partial, type(_core.compile(abs)), type(_core.grad(abs)))
_MANY = 1000  # objects that are looked at
_DEEP = 4  # functions that functions call


def _functions(fun: Any, seen: dict[int, Any], depth: int = 0) -> Iterator[types.FunctionType | Any]:
    """The Python functions that a call of fun may run, and the objects whose attributes they may read."""
    if id(fun) in seen or depth > _DEEP or len(seen) > _MANY:
        return
    seen[id(fun)] = fun
    if isinstance(fun, types.FunctionType):
        yield fun
        for place in _named(fun):
            value = _value(*place)
            if isinstance(value, _CALLS) or _is_object(value):
                yield from _functions(value, seen, depth + 1)
    elif isinstance(fun, types.MethodType):
        yield from _functions(fun.__self__, seen, depth)
        yield from _functions(fun.__func__, seen, depth)
    elif isinstance(fun, functools.partial):
        yield fun
        yield from _functions(fun.func, seen, depth)
    elif isinstance(fun, _CALLS):
        yield from _functions(fun.__wrapped__, seen, depth)  # type: ignore[union-attr]
    elif _is_object(fun):
        yield fun
        for value in vars(fun).values():
            if _is_object(value):
                yield from _functions(value, seen, depth + 1)
        if callable(fun):
            yield from _functions(type(fun).__call__, seen, depth)


def _is_object(x: Any) -> bool:
    """An instance with attributes of its own, as users' models are."""
    odd = (type, types.ModuleType, types.BuiltinFunctionType, dict, list, tuple, *_CALLS)
    return hasattr(x, "__dict__") and not isinstance(x, odd)


def _named(fun: types.FunctionType) -> Iterator[_Place]:
    """The cells of a function and the globals that it names."""
    for cell in fun.__closure__ or ():
        yield cell, "cell_contents"
    for name in fun.__code__.co_names:
        if name in fun.__globals__:
            yield fun.__globals__, name


def _value(holder: Any, key: Any) -> Any:
    if isinstance(holder, (dict, list)):
        return holder[key]
    try:
        return getattr(holder, key)
    except (AttributeError, ValueError):  # an empty cell
        return None


def _holds(value: Any) -> bool:
    if isinstance(value, _core.array):
        return True
    if isinstance(value, dict):
        return any(map(_holds, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_holds, value))


def places(fun: Any) -> list[_Place]:
    """Places of fun itself that hold arrays, or containers of arrays."""
    found: list[_Place] = []
    for f in _functions(fun, {}):
        if isinstance(f, types.FunctionType):
            found += _named(f)
        elif isinstance(f, functools.partial):
            found += [(f.keywords, name) for name in f.keywords]
        else:
            found += [(f, name) for name in vars(f)]
    return [p for p in found if _holds(_value(*p))]


def slots(fun: Any) -> list[tuple[Any, Any, str]]:
    """All places below these that hold one array each, with their names."""
    out: list[tuple[Any, Any, str]] = []
    seen: dict[int, Any] = {}

    def visit(holder: Any, key: Any, name: str) -> None:
        value = _value(holder, key)
        if isinstance(value, _core.array):
            out.append((holder, key, name))
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen[id(value)] = value
            for k in value if isinstance(value, dict) else range(len(value)):
                visit(value, k, f"{name}[{k!r}]")

    names = {id(c): n for f in _functions(fun, {}) if isinstance(f, types.FunctionType)
             for c, n in zip(f.__closure__ or (), f.__code__.co_freevars, strict=True)}  # fmt: skip
    for holder, key in places(fun):
        visit(holder, key, str(names.get(id(holder), key)))
    return [s for s in out if not isinstance(s[0], tuple)]


def set_place(place: _Place, value: Any) -> None:
    """Puts a value into a place."""
    holder, key = place
    if isinstance(holder, (dict, list)):
        holder[key] = value
    else:
        setattr(holder, key, value)


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
