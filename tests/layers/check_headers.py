#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every header alone: as C17, and the public ones as C++17 too.

usage: check_headers.py BUILD
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The LLVM provider's needs LLVM's headers, which need not be there; the vector
# dialect is made to be included by a tier, which says its meaning; the plain
# factorizations by a file for each element type.
NOT_ALONE = ("src/kernels/tier/", "src/kernels/elementwise", "src/kernels/approx",
             "src/kernels/dialect", "src/cpu/jit/jit.h", "src/cpu/dense_")


def compile_alone(command: list[str], header: str) -> str:
    """The compiler's complaint, or nothing."""
    made = subprocess.run(
        [*command, "-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror",
         "-I", str(ROOT / "include"), "-"],
        input=f'#include "{header}"\nextern int mr_not_empty;\n', text=True,
        capture_output=True)
    return "" if made.returncode == 0 else f"{header}\n{made.stderr}"


def main() -> int:
    gen = Path(sys.argv[1]).resolve() / "gen"
    cc = os.environ.get("CC", "cc")
    cxx = os.environ.get("CXX", "g++")
    jobs = []
    for path in sorted((ROOT / "include").rglob("*.h")):
        name = str(path.relative_to(ROOT / "include"))
        jobs.append(([cc, "-x", "c", "-std=c17"], name))
        jobs.append(([cxx, "-x", "c++", "-std=c++17"], name))
    for path in sorted((ROOT / "src").rglob("*.h")):
        if str(path.relative_to(ROOT)).startswith(NOT_ALONE):
            continue
        jobs.append(([cc, "-x", "c", "-std=c17", "-D_GNU_SOURCE",
                      "-I", str(ROOT / "src"), "-I", str(gen)],
                     str(path.relative_to(ROOT / "src"))))
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        bad = [out for out in pool.map(lambda j: compile_alone(*j), jobs)
               if out]
    print("\n".join(bad) if bad else f"{len(jobs)} compile alone")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
