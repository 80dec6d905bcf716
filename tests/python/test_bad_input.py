# SPDX-License-Identifier: Apache-2.0
"""Every function of api/ with one bad argument after the other.

What can be wrong follows from the type of the argument in the table.  The call
starts from the function's example.  A refusal has the right class, names the
function, says what was given; what existed is as it was, the next call works.
From C: tests/faults/bad_arguments.py.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import marram.core as mx
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/gen"), str(ROOT / "tests/faults")]

from bad_arguments import AXIS_NAMES  # noqa: E402
from table import ARRAY_KINDS, Arg, Record, load  # noqa: E402

CLASSES = (ValueError, TypeError, IndexError, OverflowError, RuntimeError, MemoryError)
HUGE = 2**70
TOO_LARGE = (OverflowError, ValueError, MemoryError)


@dataclass
class Bad:
    """A value in an argument's place.  `error` None: the call may be good too."""

    value: Any
    error: Any = None
    says: str = ""


TEXT, NONE, FLOAT = Bad("text", TypeError), Bad(None, TypeError), Bad(1.5, TypeError)
OBJECT, LIST_OF_NONE = Bad(object(), TypeError), Bad([None], TypeError)
# text beside arrays is a list of a kind, and refused as MLX refuses those
TEXT_OPERAND = Bad("text", (TypeError, ValueError))
FAR, FAR_BELOW = Bad(99, IndexError, "99"), Bad((0, -99), IndexError, "-99")
NEGATIVE, FORTY = Bad((-2,), ValueError, "-2"), Bad((1,) * 40, ValueError, "40")
TOO_MANY = [Bad((2**62, 8), TOO_LARGE, str(2**62)), Bad((HUGE,), TOO_LARGE)]

MUST: dict[str, list[Bad]] = {
    "array": [TEXT, OBJECT, Bad({}, TypeError), NONE],
    "arraylike": [TEXT_OPERAND, OBJECT, Bad({}, TypeError), NONE],
    "condition": [TEXT_OPERAND, OBJECT, NONE],
    "arrays": [Bad(3, TypeError), LIST_OF_NONE, Bad(["text"], TypeError)],
    "axis": [TEXT, FLOAT, FAR, Bad(-99, IndexError, "-99"), Bad(HUGE, (IndexError, OverflowError))],
    "axes": [TEXT, FLOAT, FAR, FAR_BELOW, LIST_OF_NONE, Bad((HUGE,), (IndexError, OverflowError))],
    "shape": [TEXT, FLOAT, Bad((2.5,), TypeError), NEGATIVE, FORTY, *TOO_MANY],
    "ints": [TEXT, FLOAT, LIST_OF_NONE, Bad((HUGE,), TOO_LARGE)],
    "int": [TEXT, FLOAT, NONE, Bad(HUGE, (*TOO_LARGE, IndexError))],
    "float": [TEXT, NONE, Bad([1.0], TypeError)],
    "dtype": [TEXT, Bad(3, TypeError), Bad([], TypeError)],
    "str": [Bad("no such", ValueError, "no such"), Bad(3, TypeError)],
    "scalar": [TEXT, NONE],
    "bool": [],
    "flag": [],
}

MAY: dict[str, list[Any]] = {
    "array": [mx.zeros((2, 1, 3, 1, 5, 1, 7)), mx.zeros((), mx.complex128), mx.ones((13,), mx.bool_), mx.zeros((0, 3), mx.int8)],
    "axes": [(0, 0), ()],
    "shape": [(), (0,), 2**62],
    "ints": [-1, (2**62, 2**62), [], (1,) * 40],
    "int": [-1, 0, 2**62, -(2**62), True],
    "float": [float("nan"), float("inf"), -1e300, True],
    "bool": ["text", None, 3],
    "flag": ["text", 3],
    "arrays": [[], ()],
}

# dtypes that a promotion refuses
DTYPES = {"real": mx.complex64, "noncomplex": mx.complex64, "int": mx.float32, "shift": mx.float16, "numeric": mx.bool_}

# take any number of arrays in Python, which the table does not say
VARIADIC = ("meshgrid", "atleast_1d", "atleast_2d", "atleast_3d")

# may be some names in Python: "causal", "fro"
NAMES_TOO = {("scaled_dot_product_attention", "mask"), ("norm", "ord")}

RECORDS = [r for r in load(ROOT) if r.public]


def last_call(r: Record) -> tuple[list[str], ast.Call | None]:
    """The example's last call of the function, and the lines before it."""
    lines = [x.removeprefix(">>> ") for x in r.example.splitlines() if x.startswith(">>> ")]
    name = f"{r.module.replace('core', 'mx', 1)}.{r.name}"
    for i in reversed(range(len(lines))):
        for node in ast.walk(ast.parse(lines[i])):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                return lines[:i], node
    return lines, None


@dataclass
class Call:
    """A good call of a function, in which one argument can be replaced."""

    record: Record
    function: Any
    args: list[Any]
    kwargs: dict[str, Any]

    def __init__(self, r: Record) -> None:
        lines, call = last_call(r)
        assert call is not None
        names: dict[str, Any] = {"mx": mx}
        for line in lines:
            exec(line, names)

        def value(node: ast.expr) -> Any:
            return eval(ast.unparse(node), names)

        self.record, self.function = r, value(call.func)
        self.args = [value(a) for a in call.args]
        self.kwargs = {str(k.arg): value(k.value) for k in call.keywords}

    def place(self, a: Arg) -> int | None:
        """The argument's place among the positional ones; None: by keyword."""
        places = [x for x in self.record.args if x.section != "keyword"]
        at = places.index(a) if a in places else len(self.args)
        return at if at < len(self.args) else None

    def run(self, a: Arg | None = None, bad: Any = None) -> Any:
        args, kwargs, at = list(self.args), dict(self.kwargs), None if a is None else self.place(a)
        if a is not None and at is None:
            kwargs[a.name] = bad
        elif at is not None:
            args[at] = bad
        return self.function(*args, **kwargs)


def kinds_of(a: Arg) -> str:
    return "axis" if a.type == "int" and a.name in AXIS_NAMES else a.type


def bad_values(r: Record, a: Arg) -> list[Bad]:
    kind = kinds_of(a)
    if a.variadic or kind == "arrays" and r.name in VARIADIC:  # one of several
        return [Bad(v, TypeError) for v in ("text", None, object())]
    # in Python arange's stop and step may be left out
    none = a.optional or r.name == "arange"
    must = [b for b in MUST[kind] if not (b.value is None and none)]
    if (r.name, a.name) in NAMES_TOO:
        must = must[1:] + [Bad("text", ValueError, "'text'")]
    may = [Bad(v) for v in MAY.get("array" if kind in ARRAY_KINDS else kind, [])]
    if r.promote in DTYPES:
        may.append(Bad(mx.ones((2,), DTYPES[r.promote]), ValueError, str(DTYPES[r.promote]).rsplit(".", 1)[-1]))
    return must + may


def arrays_in(values: Any) -> list[str]:
    if isinstance(values, (list, tuple)):
        return [t for v in values for t in arrays_in(v)]
    return [repr(values)] if isinstance(values, mx.array) else []


def small(out: Any) -> bool:
    return all(x.nbytes < 1 << 20 for x in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(x, mx.array))


def fault(r: Record, call: Call, a: Arg, bad: Bad) -> str:
    """What is wrong with how the call takes it; "" when nothing is."""
    late = False
    try:
        out = call.run(a, bad.value)
        late = True
        if small(out):
            mx.eval(out)
    except Exception as e:
        text = str(e)
        if not isinstance(e, bad.error or CLASSES):
            return f"{type(e).__name__}: {text}"
        if not late and r.name not in text:
            return f"does not name the function: {type(e).__name__}: {text}"
        if bad.says not in text or len(text) < len(r.name) + 12:
            return f"does not say what was given ({bad.says}): {text}"
        return ""
    return f"accepted: {out!r:.60}" if bad.error else ""


CALLABLE = [r for r in RECORDS if last_call(r)[1] is not None]


@pytest.mark.parametrize("r", CALLABLE, ids=lambda r: r.c_name)
def test_bad_argument__is_refused_and_changes_nothing(r: Record) -> None:
    call = Call(r)
    before, good = arrays_in([call.args, list(call.kwargs.values())]), repr(call.run())
    wrong = []
    for a in r.args:
        for bad in bad_values(r, a):
            what = fault(r, call, a, bad)
            wrong += [f"{a.name} = {bad.value!r:.60}: {what}"] if what else []
            assert repr(call.run()) == good
    assert arrays_in([call.args, list(call.kwargs.values())]) == before
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("r", CALLABLE, ids=lambda r: r.c_name)
def test_bad_call__names_function_and_argument(r: Record) -> None:
    call = Call(r)
    with pytest.raises(TypeError, match="nonsense|takes at most") as caught:
        call.function(*call.args, **call.kwargs, nonsense=1)
    assert r.name in str(caught.value)
    if any(a.variadic for a in r.args) or r.name in VARIADIC:
        return
    with pytest.raises(TypeError, match=r.name):
        call.function(*call.args, *[1] * 20, **call.kwargs)
    if any(a.default is None for a in r.args):
        with pytest.raises(TypeError, match=r.name):
            call.function()


BINARY = [r for r in CALLABLE if r.door == "binary"]


@pytest.mark.parametrize("r", BINARY, ids=lambda r: r.c_name)
def test_shapes_that_do_not_broadcast__are_both_named(r: Record) -> None:
    t = mx.int32 if r.promote in ("int", "shift") else mx.float32
    with pytest.raises(ValueError, match=rf"{r.name}: .*\(2, 3\).*\(4,\)"):
        Call(r).function(mx.ones((2, 3), t), mx.ones((4,), t))


def test_table__every_function_is_called() -> None:
    """Only what Python has under another name or as syntax has no call."""
    rest = {r.c_name for r in RECORDS if r not in CALLABLE}
    assert all(not r.python for r in RECORDS if r.c_name in rest - {"astype"}), rest
