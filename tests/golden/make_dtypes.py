#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes dtypes.json: the tables of types of the contract, as data.

usage: make_dtypes.py FOLDER    (FOLDER holds dtypes.md, core.tsv, coverage.py)

What the tables say of 14 types is extended to complex128 by the page's rule:
complex128 behaves as complex64 does, with the wider result; float64 beside a
complex number gives complex128.  Casts of floats to integers are Marram's
saturating ones.  The test reads the result alone.
"""

import csv
import json
import math
import re
import sys
import types
from pathlib import Path

import numpy as np

SHORT = {
    "b": "bool", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "c64": "complex64",
}  # fmt: skip
DTYPES = [*SHORT.values(), "complex128"]
WIDER = {"complex64": "complex128", "float32": "float64"}
# core.tsv: a negative exponent gives 1 for base 1, not 0 as was seen.
MARRAM = {"I([0,1,2])**I([0,-1,-2])": "[1, 1, 0]"}


def cells(line):
    return [c.strip().strip("*`") for c in line.strip().strip("|").split(" | ")]


def section(page, title):
    body = page.split(f"## {title}\n")[1]
    return body.split("\n## ")[0]


def rows(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [cells(line) for line in lines if not re.match(r"\|( ---| \|)", line)]


# ---- promotion ---------------------------------------------------------------
def promotion(page):
    table = {}
    body = rows(section(page, "Promotion, array with array"))
    for row in body:
        if row[0] not in SHORT or len(row) != 15:
            continue
        for column, cell in zip(SHORT.values(), row[1:], strict=True):
            table[f"{SHORT[row[0]]} {column}"] = SHORT[cell]
    assert len(table) == 14 * 14
    for name in DTYPES:
        table[f"{name} complex128"] = table[f"complex128 {name}"] = "complex128"
    table["float64 complex64"] = table["complex64 float64"] = "complex128"
    return table


def weak(page):
    table = {}
    for row in rows(section(page, "Python scalars are weak")):
        if len(row) == 5 and row[1] in SHORT:
            name = row[0].rstrip("_")
            table[name] = [SHORT[c] for c in row[1:]]
    assert len(table) == 14
    table["float64"][3] = "complex128"
    table["complex128"] = ["complex128"] * 4
    return table


# ---- casts -------------------------------------------------------------------
def saturated(x, name):
    info = np.iinfo(name)
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return int(info.max if x > 0 else info.min)
    return int(min(max(int(x), int(info.min)), int(info.max)))


def casts(page):
    out = []
    space = {"nan": math.nan, "inf": math.inf, "__builtins__": {}}
    for source, to, result in rows(section(page, "Casts"))[1:]:
        kind, values = source.split(" ", 1)
        given, want = eval(values, space), eval(result, space)
        to = to.rstrip("_")
        if kind.startswith("float") and "int" in to:
            want = [saturated(x, to) for x in given]
        out.append([kind.rstrip("_"), repr(given), to, repr(want)])
        if to == "complex64" and kind == "int32":
            out.append([kind, repr(given), "complex128", repr(want)])
        if kind == "complex64":
            out.append(["complex128", repr(given), to, repr(want)])
    return out


def arithmetic(page):
    found = []
    for row in rows(section(page, "Integer arithmetic")):
        if row[0] == "expression":
            continue
        values, dtype = re.fullmatch(r"(\[.*\]) (\w+)", row[1]).groups()
        found.append([row[0], MARRAM.get(row[0], values), dtype])
    return found


def printing(page):
    found = [[a, b.replace("\\n", "\n")] for a, b in rows(section(page, "Printing")) if a.startswith("mx.")]
    assert len(found) > 12
    return found


def to_python(page):
    table = {r[0].rstrip("_"): r[1:] for r in rows(section(page, "To Python")) if len(r) == 7 and r[0] != "type"}
    assert len(table) == 14
    table["complex128"] = table["complex64"]
    return table


# ---- results of functions ----------------------------------------------------
def fixtures(folder):
    """The arrays that the calls name, as nested lists."""
    stub = types.ModuleType("stub.core")
    stub.array = np.array
    sys.modules["stub"], sys.modules["stub.core"] = types.ModuleType("stub"), stub
    sys.path.insert(0, str(folder))
    made = __import__("coverage").Env("stub").make
    found = {}
    for name, make in made.items():
        try:
            value = make()
        except (ImportError, AttributeError):
            continue
        if isinstance(value, np.ndarray) and name not in ("EV", "NP"):
            found[name] = value
    return found


def as_data(x):
    if x.dtype.kind == "c":
        return {"re": x.real.tolist(), "im": x.imag.tolist()}
    return x.tolist() if x.dtype.kind in "bi" else np.round(x, 7).tolist()


def results(note):
    table = {}
    for part in note.split(";"):
        words = part.replace("all keep", "keep " + " ".join(SHORT.values())).split()
        if words[0] in ("keep", "refuse"):
            table.update({w: w if words[0] == "keep" else "refuse" for w in words[1:]})
        else:
            names = list(SHORT.values()) if words[0] == "any" else words[: words.index("->")]
            table.update(dict.fromkeys(names, words[-1]))
    table["complex128"] = "/".join(WIDER.get(w, w) for w in table["complex64"].split("/"))
    if table["float64"] == "complex64":  # transforms of real numbers
        table["float64"] = "complex128"
    if note == "any -> float32":
        table["float64"] = "float64"
    return [table[d] for d in DTYPES]


def functions(folder, arrays):
    csv.field_size_limit(1 << 24)
    with open(folder / "core.tsv", encoding="utf-8") as f:
        table = list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))
    out, used = [], set()
    for row in table:
        note = re.search(r"dtypes: (.*?)\.(?: |$)", row["notes"])
        if note and row["smoke"]:
            out.append([row["qualified_name"].removeprefix("core."), row["smoke"], results(note.group(1))])
            used |= {a for a in arrays if re.search(rf"\b{a}\b", row["smoke"])}
    assert len(out) > 180
    return out, {a: as_data(arrays[a]) for a in sorted(used)}


def main():
    folder = Path(sys.argv[1])
    page = (folder / "dtypes.md").read_text(encoding="utf-8")
    calls, inputs = functions(folder, fixtures(folder))
    data = {
        "dtypes": DTYPES,
        "promotion": promotion(page),
        "weak": weak(page),
        "casts": casts(page),
        "arithmetic": arithmetic(page),
        "printing": printing(page),
        "to_python": to_python(page),
        "inputs": inputs,
        "functions": calls,
    }
    parts = []
    for key, value in data.items():
        if isinstance(value, dict):
            body = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            parts.append(f" {json.dumps(key)}: {{\n{body}\n }}")
        else:
            body = ",\n".join(f"  {json.dumps(v)}" for v in value)
            parts.append(f" {json.dumps(key)}: [\n{body}\n ]")
    Path(__file__).with_name("dtypes.json").write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


main()
