# SPDX-License-Identifier: Apache-2.0
"""A gradient against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import marram.core as mx

# Steps and tolerances: the error of a central difference is h^2 of the third
# derivative and eps / h of the rounding.
_STEP = {mx.float64: 6e-6, mx.float32: 5e-3}
_TOLERANCE = {mx.float64: 1e-6, mx.float32: 1e-2}
_PLACES = 64


def _replace(tree: Any, change: Callable[[str, mx.array], Any], path: str) -> Any:
    """The tree with other arrays; what is no array stays."""
    if isinstance(tree, mx.array):
        return change(path, tree)
    if isinstance(tree, dict):
        return {k: _replace(v, change, f"{path}[{k!r}]") for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        items = [_replace(v, change, f"{path}[{i}]") for i, v in enumerate(tree)]
        if hasattr(tree, "_fields"):
            return type(tree)(*items)
        return type(tree)(items)
    return tree


def _leaves(tree: Any, path: str) -> dict[str, mx.array]:
    found: dict[str, mx.array] = {}

    def note(at: str, x: mx.array) -> mx.array:
        found[at] = x
        return x

    _replace(tree, note, path)
    return found


def _objective(value: Any) -> float:
    return float((value[0] if isinstance(value, tuple) else value).item())


def _places(n: int) -> Sequence[int]:
    if n <= _PLACES:
        return range(n)
    return [i * (n - 1) // (_PLACES - 1) for i in range(_PLACES)]


def _difference(call: Callable[[mx.array], Any], x: mx.array, i: int, step: float | None) -> float:
    """The central difference along element i."""
    flat = x.reshape(-1)
    h = (step or _STEP[x.dtype]) * max(1.0, abs(float(flat[i].item())))
    high, low = mx.array(flat), mx.array(flat)
    high[i] = flat[i] + h
    low[i] = flat[i] - h
    apart = float(high[i].item()) - float(low[i].item())  # 2 h, as rounded
    return (_objective(call(high.reshape(x.shape))) - _objective(call(low.reshape(x.shape)))) / apart


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
    argnums = []
    for k, arg in enumerate(args):
        kinds = [x.dtype for x in _leaves(arg, "").values()]
        if any(t in _STEP for t in kinds):
            argnums.append(k)
            bad = next((t for t in kinds if t not in _STEP), None)
            if bad is not None:
                raise ValueError(f"argument {k} holds {bad}: only float32 and float64 are checked")
    if not argnums:
        raise ValueError("there is no float32 or float64 array among the arguments")
    _, grads = mx.value_and_grad(fun, argnums=argnums)(*args)
    for k, grad in zip(argnums, (grads if len(argnums) > 1 else (grads,)), strict=True):
        wanted = _leaves(grad, f"argument {k}")
        for path, x in _leaves(args[k], f"argument {k}").items():
            _check_leaf(fun, args, k, path, wanted[path].reshape(-1), x, step, rtol, atol)


def _check_leaf(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    k: int,
    path: str,
    grad: mx.array,
    x: mx.array,
    step: float | None,
    rtol: float | None,
    atol: float | None,
) -> None:
    default = _TOLERANCE[x.dtype]

    def call(y: mx.array) -> Any:
        def put(at: str, old: mx.array) -> mx.array:
            return y if at == path else old

        return fun(*args[:k], _replace(args[k], put, f"argument {k}"), *args[k + 1 :])

    for i in _places(x.size):
        numeric, given = _difference(call, x, i, step), float(grad[i].item())
        bound = (default if atol is None else atol) + (default if rtol is None else rtol) * abs(numeric)
        if not abs(given - numeric) <= bound:
            raise ValueError(f"{path}, element {i} of shape {x.shape}: the gradient is {given:.8g}, differences give {numeric:.8g}")
