#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes from api/*.toml all that repeats the public surface.

usage: gen.py --root ROOT [--build FOLDER] [--update | --check]

--build   writes what is compiled below FOLDER, which goes on the include path
--update  writes what is committed: include/marram/ops*, stubs, docs/reference
--check   fails (status 1) when one of these is stale, and names it
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import c_out
import doc_out
import py_out
from table import Record, TableError, load


def built(records: list[Record]) -> dict[str, str]:
    return {
        "gen/ids.h": c_out.ids_h(records),
        "gen/build.h": c_out.build_h(records),
        "doors.c": c_out.doors_c(records),
        "op_table.c": c_out.op_table_c(records),
        "py_functions.c": py_out.py_functions_c(records),
    }


def committed(records: list[Record]) -> dict[str, str]:
    return {**c_out.headers(records), **doc_out.stubs(records), **doc_out.pages(records)}


def write(folder: Path, files: dict[str, str]) -> None:
    """Writes what differs, so that times of unchanged files stay."""
    for path, text in ((folder / name, text) for name, text in files.items()):
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def stale(root: Path, files: dict[str, str]) -> list[str]:
    """What differs, and pages and headers of families that are gone."""
    there = ("docs/reference/*.md", "include/marram/ops/*.h")
    pages = [str(p.relative_to(root)) for pattern in there for p in sorted(root.glob(pattern))]
    old = [n for n, text in files.items() if not (root / n).exists() or (root / n).read_text() != text]
    return old + [n for n in pages if n not in files]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--build", type=Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    root = options.root.resolve()
    try:
        records = load(root)
    except TableError as e:
        print(e, file=sys.stderr)
        return 1
    if options.build:
        write(options.build, built(records))
    files = committed(records)
    old = stale(root, files) if options.update or options.check else []
    for name in old:
        if options.check:
            print(f"{name}: stale, run tools/gen/gen.py --update", file=sys.stderr)
        elif name not in files:
            (root / name).unlink()
    if options.update:
        write(root, files)
    return 1 if old and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
