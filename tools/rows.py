#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what each family of api/ has.

usage: rows.py [--build BUILD] [--list]

functions   public records, one name each
C, Python   names in that language, other names included
oracle      functions with an independent right value: NumPy's of that name,
            an entry of tests/sweep/oracles.py or of the record ("-": no NumPy)
sample      functions that the sweep calls
example     functions with an example, in Python and in C
operators   records with a descriptor; vjp, jvp, vmap: how many of these bring
            a rule of their own (the rest has a fallback), as BUILD/bin/marram
            says ("-": not built).  A function without an operator is made of
            others and has every transform from them.

--list names the functions without oracle or sample.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools/gen"), str(ROOT / "tests/sweep")]

from table import ARRAY_KINDS, Record, load  # noqa: E402

COLUMNS = "functions C Python oracle sample example operators vjp jvp vmap".split()


def own_oracles() -> Callable[[str], object] | None:
    """What the sweep compares with, by the title of a function."""
    try:
        oracles: Any = import_module("oracles")
    except ImportError:
        return None
    return lambda title: oracles.find(title) or title in oracles.OWN


def rules(command: Path) -> dict[int, list[str]] | None:
    """How the operator of an id has vjp, jvp and vmap."""
    if not command.exists():
        return None
    out = subprocess.run([command, "ops"], capture_output=True, text=True, check=True).stdout
    cells = [line.split() for line in out.splitlines()]
    return {int(c[1]): c[2:5] for c in cells if len(c) > 4 and c[1].isdigit()}


def title(r: Record) -> str:
    return f"{r.module}.{r.name}".removeprefix("core.")


def sampled(r: Record, raw: dict[str, object]) -> bool:
    """The sweep calls it: by its samples, or since its arguments are arrays alone."""
    needed = [a for a in r.args if a.default is None and not a.variadic]
    return "sample" in raw or bool(needed) and all(a.type in ARRAY_KINDS for a in needed)


@dataclass
class Family:
    """The records of one file, and which of its functions lack something."""

    name: str
    rows: list[Record]
    no_oracle: list[str]
    no_sample: list[str]

    def counts(self, rule: dict[int, list[str]] | None) -> list[int | None]:
        """By COLUMNS."""
        public, ops = [r for r in self.rows if r.public], [r for r in self.rows if r.op]
        n, python = len(public), sum(1 + len(r.aliases) for r in public if r.in_python)
        out: list[int | None] = [n, sum(len(r.c_names) for r in public), python, n - len(self.no_oracle)]
        out += [n - len(self.no_sample), sum(bool(r.example and r.c) for r in public), len(ops)]
        return out + [None if rule is None else sum(rule[r.id or 0][i] == "rule" for r in ops) for i in range(3)]


def families(find: Callable[[str], object]) -> list[Family]:
    out, records = [], load(ROOT)
    for path in sorted((ROOT / "api").glob("*.toml")):
        raw = tomllib.loads(path.read_text())
        rows = [r for r in records if r.file == str(path.relative_to(ROOT))]
        public = [r for r in rows if r.public]
        no_oracle = [title(r) for r in public if "oracle" not in raw[r.name] and not find(title(r))]
        out.append(Family(path.stem, rows, no_oracle, [title(r) for r in public if not sampled(r, raw[r.name])]))
    return out


def line(name: str, cells: Iterable[object]) -> str:
    return f"{name:<10}" + "".join(f"{'-' if c is None else c:>10}" for c in cells)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    find, rule = own_oracles(), rules(options.build / "bin/marram")
    found = families(find or (lambda _: False))
    numbers = [f.counts(rule) for f in found]
    if find is None:
        numbers = [[*n[:3], None, *n[4:]] for n in numbers]
    print(line("family", COLUMNS))
    for f, n in zip(found, numbers, strict=True):
        print(line(f.name, n))
    print(line("all", [None if None in c else sum(x or 0 for x in c) for c in zip(*numbers, strict=True)]))
    if options.list:
        print("\nwithout oracle:", ", ".join(x for f in found for x in f.no_oracle))
        print("\nwithout sample:", ", ".join(x for f in found for x in f.no_sample))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # `| head`
        sys.stderr.close()
