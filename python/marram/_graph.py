# SPDX-License-Identifier: Apache-2.0
"""``python -m marram graph``: the programs that a function is compiled to."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import marram.core as mx

USAGE = """usage: python -m marram graph [--dot] FILE:FUNCTION ARGUMENT...

FILE is a Python file or the name of a module, ARGUMENT an array without values
such as 'float32[64,32]', or 'int32[]' for one number.  With ':grad' behind the
function its value and gradient by the first argument are compiled.  --dot gives
a graph in the DOT language of Graphviz."""


def _module(name: str) -> ModuleType:
    path = Path(name)
    if path.suffix != ".py":
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ValueError(f"{name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _function(text: str) -> Callable[..., Any]:
    name, _, rest = text.partition(":")
    attribute, _, how = rest.partition(":")
    if not attribute or how not in ("", "grad"):
        raise ValueError(f"{text}: FILE:FUNCTION or FILE:FUNCTION:grad is wanted")
    f: Any = _module(name)
    for part in attribute.split("."):
        f = getattr(f, part)
    return mx.value_and_grad(f) if how == "grad" else f


def _argument(text: str) -> mx.array:
    match = re.fullmatch(r"(\w+)\[([\d\s,]*)\]", text.strip())
    dtype = getattr(mx, "bool_" if match and match[1] == "bool" else match[1], None) if match else None
    if match is None or not isinstance(dtype, mx.Dtype):
        raise ValueError(f"{text}: a dtype and a shape are wanted, such as float32[64,32]")
    return mx.zeros([int(n) for n in match[2].split(",") if n.strip()], dtype=dtype)


def graph(words: list[str]) -> str:
    """What ``explain`` says of the function after a call with such arrays."""
    form: Literal["text", "dot"] = "text"
    if words[0] == "--dot":
        form, words = "dot", words[1:]
    if not words:
        raise ValueError("FILE:FUNCTION is wanted behind --dot")
    f = mx.compile(_function(words[0]))
    f(*[_argument(w) for w in words[1:]])
    return f.explain(form)
