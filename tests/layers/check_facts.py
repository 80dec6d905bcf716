#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds tests/facts.tsv against the tests: each that shows a fact is there.

An entry is a file, or file::name with a name that the file defines.  Also
checks that programs leave the compile cache in one way.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FACTS = ROOT / "tests/facts.tsv"


def missing(entry: str) -> str:
    """What is wrong with an entry, or nothing."""
    path, _, name = entry.partition("::")
    file = ROOT / path
    if not file.is_file():
        return f"there is no {path}"
    # a C function stands at the start of its line, or is given to mrt_test
    if name and not re.search(rf"^(?:def )?{name}\(", file.read_text(), re.M):
        return f"{path} has no {name}"
    return ""


def one_way_out() -> list[str]:
    """An entry dies, and the tables of other threads hear of it, in one place:
    whatever erases (a function's end, a clear, a limit) unlinks by it."""
    bad = []
    for what, pattern in (("marks an entry dead", r"store\w*\(&\w+->dead,"),
                          ("moves the generation on", r"fetch_add\w*\(&generation,")):
        places = [str(p.relative_to(ROOT)) for p in sorted((ROOT / "src/compile").glob("*.c"))
                  for _ in re.findall(pattern, p.read_text())]
        if places != ["src/compile/cache.c"]:
            bad.append(f"one place in src/compile/cache.c {what}, found: {', '.join(places) or 'none'}")
    return bad


def main() -> int:
    lines = FACTS.read_text().splitlines()[1:]
    bad = one_way_out()
    for number, line in enumerate(lines, 2):
        fields = line.split("\t")
        if len(fields) != 3 or not fields[2]:
            bad.append(f"tests/facts.tsv:{number}: not three fields")
            continue
        bad += [f"tests/facts.tsv:{number}: {e}" for e in map(missing, fields[2].split(" ")) if e]
    print("\n".join(bad) if bad else f"{len(lines)} facts have their tests")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
