# SPDX-License-Identifier: Apache-2.0
"""A gradient against finite differences; a compiled function against itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import marram.core as mx
from marram import _core

_CHECKED = (mx.float32, mx.float64)
_WORDS = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}
_PARTS = {mx.complex64: mx.float32, mx.complex128: mx.float64}


def _replace(tree: Any, change: Callable[[str, Any], Any], path: str) -> Any:
    """The tree with other leaves."""
    if isinstance(tree, dict):
        return {k: _replace(v, change, f"{path}[{k!r}]") for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        items = [_replace(v, change, f"{path}[{i}]") for i, v in enumerate(tree)]
        if hasattr(tree, "_fields"):
            return type(tree)(*items)
        return type(tree)(items)
    return change(path, tree)


def _leaves(tree: Any, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def note(at: str, x: Any) -> Any:
        found[at] = x
        return x

    _replace(tree, note, path)
    return found


def check_grad(
    fun: Callable[..., Any],
    args: Sequence[Any],
    *,
    step: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Compares the gradient of ``fun`` at ``args`` with central differences.

    Every float32 and float64 array of the positional arguments is checked, 64
    elements spread over it at most; float64 finds errors of 1e-6, float32 only
    those of a percent.

    Args:
        fun: Gives a 0-d array, or a tuple that begins with one.
        args: Its positional arguments: arrays, or lists, tuples and dicts of them.
        step: How far an element moves, relative to the larger of it and 1.
        rtol: Relative tolerance, by default 1e-6 in float64 and 1e-2 in float32.
        atol: Absolute tolerance, by default the same.

    Raises:
        ValueError: A derivative is wrong; names the argument, the element and
            both values.  Or there is no array to check.
    """
    args = tuple(args)
    arrays: dict[str, mx.array] = {}
    for k, arg in enumerate(args):
        found = {at: x for at, x in _leaves(arg, f"argument {k}").items() if isinstance(x, mx.array)}
        kinds = [x.dtype for x in found.values()]
        if any(t in _CHECKED for t in kinds):
            bad = next((t for t in kinds if t not in _CHECKED), None)
            if bad is not None:
                raise ValueError(f"argument {k} holds {bad}: only float32 and float64 are checked")
            arrays.update(found)
    if not arrays:
        raise ValueError("there is no float32 or float64 array among the arguments")

    def call(*given: mx.array) -> Any:
        now = dict(zip(arrays, given, strict=True))
        return fun(*(_replace(arg, lambda at, x: now.get(at, x), f"argument {k}") for k, arg in enumerate(args)))

    bounds = (-1.0 if t is None else t for t in (rtol, atol))
    _core._check_grad(call, tuple(arrays.values()), tuple(arrays), step or 0.0, *bounds)


# -- compiled functions --------------------------------------------------------


def _words(x: mx.array) -> mx.array:
    """Its bits as integers, every NaN being one."""
    x = x.reshape(-1)
    if x.dtype in _PARTS:
        x = x.view(_PARTS[x.dtype])
    if mx.issubdtype(x.dtype, mx.floating):
        x = mx.where(mx.isnan(x), mx.array(float("nan"), dtype=x.dtype), x)
    return x.view(_WORDS[x.dtype.size])


def _compare_array(what: str, got: mx.array, want: mx.array) -> None:
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        raise ValueError(f"{what} is {got.dtype} {got.shape} when compiled, {want.dtype} {want.shape} when not")
    differs = _words(got) != _words(want)
    count = int(differs.sum().item())
    if count:
        place = int(mx.argmax(differs).item()) * want.size // differs.size
        both = (str(x.reshape(-1)[place].item()) for x in (got, want))
        raise ValueError(
            f"{what}, element {place} of shape {want.shape}, is {next(both)} when compiled, {next(both)} when not"
            f" ({count} of {differs.size} numbers differ)"
        )


def _compare(call: int, got: Any, want: Any) -> None:
    a, b = (_leaves(x, f"call {call}: the result") for x in (got, want))
    if list(a) != list(b):
        raise ValueError(f"call {call}: the result has the leaves {list(a)} when compiled, {list(b)} when not")
    for what, x in a.items():
        y = b[what]
        if isinstance(x, mx.array) and isinstance(y, mx.array):
            _compare_array(what, x, y)
        elif type(x) is not type(y) or not (x is y or x == y or x != x and y != y):
            raise ValueError(f"{what} is {x!r} when compiled, {y!r} when not")


def _check(compiled: Callable[..., Any], fun: Callable[..., Any], calls: Sequence[Any]) -> None:
    each = [c if isinstance(c, tuple) else (c,) for c in calls]
    if not each:
        raise ValueError("there are no calls to check")
    for k, args in [*enumerate(each), *reversed(list(enumerate(each)))]:
        _compare(k, compiled(*args), fun(*args))


def check_compile(fun: Callable[..., Any], calls: Sequence[Any]) -> None:
    """Compares ``mx.compile(fun)`` with ``fun``, bit for bit.

    Each call is made twice, the second time in reverse order: so what a trace
    has frozen (a list that the function changes, a value of its closure) shows
    when it is used again.  ``fun`` must give the same each time: draw random
    numbers from keys among the arguments.

    Args:
        fun: Any function of arrays and trees of them.
        calls: The positional arguments of each call as a tuple; what is no
            tuple is the only argument.

    Raises:
        ValueError: A result differs; names the call, the leaf, the element and
            both values.
    """
    _check(mx.compile(fun), fun, calls)


def check_shapeless(fun: Callable[..., Any], calls: Sequence[Any]) -> None:
    """Compares ``mx.compile(fun, shapeless=True)`` with ``fun``, bit for bit.

    As check_compile; one trace serves calls of other sizes, so give calls that
    differ in them: the first is traced, and nothing of its sizes may stay.

    Args:
        fun: Any function of arrays and trees of them.
        calls: The positional arguments of each call as a tuple; what is no
            tuple is the only argument.  Two or more of different shapes.

    Raises:
        ValueError: A result differs, or all calls have the same shapes.
    """
    shapes = {str([(at, x.shape) for at, x in _leaves(c, "").items() if isinstance(x, mx.array)]) for c in calls}
    if len(shapes) < 2:
        raise ValueError("the calls have the same shapes: needs two or more of different ones")
    _check(mx.compile(fun, shapeless=True), fun, calls)
