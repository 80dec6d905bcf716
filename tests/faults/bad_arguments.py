# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with an argument, by its type in api/: C expressions.

Each row: what stands in the argument's place, the code of the refusal, and
what its message must hold.  A code of MR_OK: the call may be good too (a
negative k of eye is), but must end, and say what is wrong if it fails.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/gen"))

from table import ARRAY_KINDS, Arg, Record  # noqa: E402

Row = tuple[str, str, str]

AXIS_NAMES = ("axis", "axis1", "axis2", "start_axis", "end_axis", "source", "destination")
FORTY = ", ".join(["1"] * 40)
ANY = {
    "int": ["-1", "0", "INT64_MAX", "INT64_MIN + 1"],
    "flag": ["-1", "7"],
    "float": ["NAN", "INFINITY", "-1e300"],
    "ints": ["MR_INTS(-1)", "MR_INTS(INT64_MAX, INT64_MAX)", "MR_INTS(INT64_MIN + 1)", f"MR_INTS({FORTY})", "MR_INTS_NONE"],
    "axes": ["MR_AXES(0, 0)", "(mr_axes){NULL, 0}", f"MR_AXES({FORTY})"],
    "str": ["NULL"],
    "shape": ["MR_SHAPE(0)", "MR_SCALAR_SHAPE", "MR_SHAPE(INT64_MAX)", "MR_SHAPE_NONE"],
    "arrays": ["NULL, 0"],
    # an array that fits few functions: too many axes, an odd dtype, nothing in it
    "array": [
        "mr_zeros(MR_SHAPE(2, 1, 3, 1, 5, 1, 7), MR_FLOAT32)",
        "mr_zeros(MR_SCALAR_SHAPE, MR_COMPLEX128)",
        "mr_ones(MR_SHAPE(13), MR_BOOL)",
        "mr_zeros(MR_SHAPE(0, 3), MR_INT8)",
    ],
}
# where something else is wrong first: two lengths for the one axis of the example
CODES = {(f, "MR_SHAPE(INT64_MAX / 2, 8)"): "MR_E_VALUE" for f in ("rfftn", "irfftn")}


def refused(a: Arg) -> list[Row]:
    """What must be refused."""
    none = {"NULL": "MR_E_NULL"}
    if a.type in ARRAY_KINDS:
        none |= {} if a.optional else {"MR_NONE": "MR_E_NULL"}
        return [(x, code, a.name) for x, code in none.items()]
    if a.type == "axis" or a.name in AXIS_NAMES and a.type == "int":
        far = ["99", "-99", "INT32_MAX"] + (["INT64_MAX"] if a.type == "int" else [])
        numbers = {"INT32_MAX": "2147483647", "INT64_MAX": "9223372036854775807"}
        return [(x, "MR_E_INDEX", numbers.get(x, x)) for x in far]
    if a.type == "arrays":
        one = [(f"(mr_array *[]){{{x}}}, 1", "MR_E_NULL", f"{a.name}[0]") for x in ("NULL", "MR_NONE")]
        return [*one, ("NULL, 2", "MR_E_VALUE", "2 arrays"), ("NULL, -1", "MR_E_VALUE", "-1")]
    if a.type == "dtype":
        return [("(mr_dtype)99", "MR_E_DTYPE", "99")]
    if a.type == "str":
        return [('"no such"', "MR_E_VALUE", "no such")]
    if a.type == "scalar":
        return [("(mr_scalar){(mr_scalar_kind)9, {.i = 1}}", "MR_E_VALUE", "9")]
    if a.type == "axes":
        rows = [("MR_AXES(99)", "MR_E_INDEX", "99"), ("MR_AXES(-99)", "MR_E_INDEX", "-99")]
        return [*rows, ("(mr_axes){NULL, 1}", "MR_E_NULL", a.name)]
    if a.type == "ints":
        return [("(mr_ints){NULL, 2}", "MR_E_NULL", a.name)]
    if a.type == "shape":
        rows = [("MR_SHAPE(-2)", "MR_E_VALUE", "-2"), ("MR_SHAPE(INT64_MAX / 2, 8)", "MR_E_OVERFLOW", "4611686018427387903")]
        return [*rows, (f"MR_SHAPE({FORTY})", "MR_E_VALUE", "40"), ("(mr_shape){NULL, 2}", "MR_E_NULL", a.name)]
    return []


def rows_of(r: Record, a: Arg) -> list[Row]:
    must = [(x, CODES.get((r.name, x), code), word) for x, code, word in refused(a)]
    may = ANY.get("array" if a.type in ARRAY_KINDS else a.type, [])
    return must + [(x, "MR_OK", "") for x in may if x not in [m[0] for m in must]]
