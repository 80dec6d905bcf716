# SPDX-License-Identifier: Apache-2.0
"""``python -m marram graph``: the programs that a function is compiled to."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import marram.core as mx

USAGE = """usage: python -m marram graph [--dot] FILE:FUNCTION ARGUMENT...

FILE is a Python file or the name of a module.  ARGUMENT is an array of zeros by
its dtype and shape, such as 'float32[64,32]' or 'int32[]', or a value as Python
writes it: 3, 0.5, True, None, "'text'", '(1, 2)'; with a name and = in front it
is a keyword argument: axis=1.  With ':grad' behind the
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


def _argument(text: str) -> Any:
    match = re.fullmatch(r"(\w+)\[([\d\s,]*)\]", text.strip())
    dtype = getattr(mx, "bool_" if match and match[1] == "bool" else match[1], None) if match else None
    if match is not None and isinstance(dtype, mx.Dtype):
        return mx.zeros([int(n) for n in match[2].split(",") if n.strip()], dtype=dtype)
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        raise ValueError(
            f"{text}: neither a dtype and a shape, such as float32[64,32], nor a value such as 3, 0.5, True or 'text'"
        ) from None


def _arguments(words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    named = [re.fullmatch(r"([A-Za-z_]\w*)=(.*)", w, re.S) for w in words]
    places = [_argument(w) for w, m in zip(words, named, strict=True) if m is None]
    return places, {m[1]: _argument(m[2]) for m in named if m is not None}


def graph(words: list[str]) -> str:
    """What ``explain`` says of the function after a call with such arguments."""
    form: Literal["text", "dot"] = "text"
    if words[0] == "--dot":
        form, words = "dot", words[1:]
    if not words:
        raise ValueError("FILE:FUNCTION is wanted behind --dot")
    f = mx.compile(_function(words[0]))
    places, named = _arguments(words[1:])
    f(*places, **named)
    return f.explain(form)
