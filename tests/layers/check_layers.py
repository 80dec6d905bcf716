#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every #include of our own headers and holds it against the layers.

A floor may include its own headers, base, the public headers, and what ALLOWED
names.  Anything else is printed as file:line, and the exit status is 1.

usage: check_layers.py [GENERATED_FOLDER]   (the build's gen/, checked too when given)
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# folder: what it may include besides itself, base/ and marram/.  An entry with
# a dot is one header, else a folder; "gen" are generated headers.
ALLOWED = {
    "base": [],
    "kernels": [],
    "array": [],
    "graph": ["array"],
    "ops": ["graph", "array", "kernels/ids.h", "gen"],
    "transform": ["graph", "array"],
    "eval": ["graph", "array", "kernels", "gen/build_hash.h", "gen/kernels_digest.h"],
    "compile": ["eval", "graph", "array", "kernels", "gen/build_hash.h"],
    # gen/ids.h: the rows of the kernel table are named by operator
    "cpu": ["eval/device.h", "compile/jit.h", "ops/params.h", "gen/ids.h",
            "gen/build_hash.h",
            "array", "kernels"],
    "io": ["graph", "array"],
    "nn": [],
}
# Folders outside src/ that see the public headers alone, and their own.
PUBLIC_ONLY = {"python/ext": ["gen"], "tools/marram": [], "examples": []}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
PUBLIC_BRACKET = re.compile(
    r"^\s*#\s*include\s*<((?:marram|" + "|".join(ALLOWED) + r")/[^>]+)>")


def kind_of(target: str, file: Path) -> str:
    """The folder that an include leads to, "marram", "own" or "gen"."""
    first = target.split("/")[0]
    if first in ALLOWED and "/" in target:
        return first
    if first == "marram":
        return "marram"
    if (file.parent / target).exists():
        return "own"
    return "gen"


def breach(folder: str, target: str, file: Path) -> bool:
    kind = kind_of(target, file)
    if kind in ("marram", "own", folder):
        return False
    if folder in PUBLIC_ONLY:
        return kind not in PUBLIC_ONLY[folder]
    if kind == "base":
        return False
    allowed = ALLOWED[folder]
    return not (kind in allowed or target in allowed)


def check(files: list[Path], folder: str) -> list[str]:
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line) or PUBLIC_BRACKET.match(line)
            if match and breach(folder, match[1], file):
                name = (file.relative_to(ROOT)
                        if file.is_relative_to(ROOT) else file)
                found.append(f'{name}:{number}: {folder}/ may not include '
                             f'"{match[1]}"')
    return found


def sources(folder: Path) -> list[Path]:
    return sorted(p for s in ("*.c", "*.h") for p in folder.rglob(s))


def main() -> int:
    found = []
    for folder in sorted(p for p in (ROOT / "src").iterdir() if p.is_dir()):
        if folder.name not in ALLOWED:
            found.append(f"src/{folder.name}: tests/layers knows no such floor")
            continue
        found += check(sources(folder), folder.name)
    for name in PUBLIC_ONLY:
        if (ROOT / name).is_dir():
            found += check(sources(ROOT / name), name)
    for stray in sorted((ROOT / "src").glob("*.[ch]")):
        found.append(f"src/{stray.name}: lies on no floor")
    if len(sys.argv) > 1:
        made = sources(Path(sys.argv[1]).resolve())
        is_python = re.compile(r"^py_")
        found += check([p for p in made if not is_python.match(p.name)], "ops")
        found += check([p for p in made if is_python.match(p.name)],
                       "python/ext")
    print("\n".join(found) if found else "no breach")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
