# SPDX-License-Identifier: Apache-2.0
"""Every record of api/ on streams and devices that its inputs are not on.

Needs the test devices: set MARRAM_PROVIDER_PATH before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import marram.core as mx
import numpy as np
import sweep
from marram import _core

FAR, OTHER = _core._test_device(0), _core._test_device(1)
FEW = ["float32", "int32", "bool_"]


def on_stream(f: Callable[..., Any], s: Any) -> Callable[..., Any]:
    """f with an explicit stream; those that take none do not compute."""

    def call(*a: Any, **k: Any) -> Any:
        return f(*a, **{"stream": s, **k})

    return call


def moved(x: Any, s: Any) -> Any:
    """The same values in the memory of s's device."""
    y = mx.stack([x], stream=s)
    mx.eval(y)
    return mx.squeeze(y, 0, stream=s)


def refuses(e: Exception) -> bool:
    return isinstance(e, sweep.REFUSALS)


def cases(op: sweep.Operator, dtypes: list[str]) -> Iterator[tuple[sweep.Sample, str, list[np.ndarray], list[Any]]]:
    """Samples with inputs that the operator takes, and its result on the host."""
    for sample in op.samples:
        for dtype in dtypes:
            values = sweep.drawn(sample, dtype)
            try:
                base = sweep.run(op, sample, sweep.as_mx(sample, values, dtype))
                mx.eval(base)
            except sweep.REFUSALS:
                continue
            yield sample, dtype, values, base
            if not any(w.kind == "T" for w in sample.inputs):
                break


def noting(f: Any, made: list[Any]) -> Any:
    """f, whose results are appended to made: a sample may go on with them."""

    def g(*args: Any, **kwargs: Any) -> Any:
        made.append(f(*args, **kwargs))
        return made[-1]

    return g


def check_stream(op: sweep.Operator) -> int:
    """With an explicit stream each result is on it, and on its device."""
    n = 0
    s = mx.new_stream(mx.Device(mx.cpu, 0))
    for sample, dtype, values, _ in cases(op, FEW):
        if "f(" not in sample.text:
            continue
        given = sweep.as_mx(sample, values, dtype)
        made: list[Any] = []
        sample.run(noting(on_stream(op.function, s), made), mx, given)
        for y in sweep.flat(made):
            if any(_core._is_same_array(x, y) for x in given):  # nothing to compute
                continue
            n += sweep.need(_core._is_on_stream(y, s), f"{sample.text} of {dtype} ignores its stream")
    return n


def check_far(op: sweep.Operator, ways: list[tuple[Any, Any]], dtypes: list[str]) -> int:
    """Inputs on one device, the operator on another: as on the host, bit for bit."""
    n = 0
    for sample, dtype, values, base in cases(op, dtypes):
        for inputs, place in ways:
            given = sweep.as_mx(sample, values, dtype)
            if inputs is not None:
                given = [moved(x, inputs) for x in given]
            with mx.stream(place):
                got = sweep.run(op, sample, given)
            n += sweep.need(
                all(map(sweep.same_bits, got, base)),
                f"{sample.text} of {dtype}: inputs on {inputs}, computed on {place}",
                got, base,
            )  # fmt: skip
    return n
