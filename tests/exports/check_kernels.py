#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the library has the kernels of this tree, all of them in each tier.

`marram` prints the digest of the sources that the library was built from: it
must be that of the sources here.  Each table that a file of src/kernels/tier/
defines must be in the library once a tier.

usage: check_kernels.py BUILD
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/gen"))
from kernels_digest import digest  # noqa: E402

DEFINED = re.compile(r"^(?:const\s+)?[\w ]*\bMR_TIER_SYM\((mr__\w+)\)(?:\[[^\]]*\])?\s*=", re.M)


def main() -> int:
    build = Path(sys.argv[1])
    says = subprocess.run([build / "bin/marram"], text=True, capture_output=True).stdout
    told = re.search(r"^kernels (\w+): (.+)$", says, re.M)
    if not told:
        print("`marram` does not say which kernels it has")
        return 1
    bad = []
    if told[1] != digest(ROOT):
        bad.append(f"the library's kernels are {told[1]}, those of the sources {digest(ROOT)}")
    tables = set()
    for p in (ROOT / "src/kernels/tier").glob("*.[ch]"):
        tables |= set(DEFINED.findall(p.read_text()))
    if len(tables) < 10:
        bad.append(f"only {len(tables)} tables were found in src/kernels/tier")
    nm = subprocess.run(["nm", build / "lib/libmarram.so"], text=True, capture_output=True, check=True).stdout
    symbols = {line.split()[-1] for line in nm.splitlines()}
    tiers = [t for t in told[2].split(", ") if t != "amx"]  # a part of avx512's tables
    bad += [f"{t}_{tier} is not in the library" for t in sorted(tables) for tier in tiers if f"{t}_{tier}" not in symbols]
    print("\n".join(bad) if bad else f"kernels {told[1]}: {len(tables)} tables in each of {told[2]}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
