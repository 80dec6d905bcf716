#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the optional parts that the build says it made are there.

The build lists them in providers.txt (CMakeLists.txt), one a line: name, file,
and why it was not made, if it was not.  One that was made must lie in lib/ and
be what `marram` reports; where CI is set none may be missing, so that no build
silently loses its fast kernels.

usage: check_providers.py BUILD
"""

import os
import subprocess
import sys
from pathlib import Path

# what `marram` prints when it is there
REPORTED = {"llvm": "native code: LLVM"}


def main() -> int:
    build = Path(sys.argv[1])
    says = subprocess.run([build / "bin/marram"], text=True, capture_output=True).stdout
    bad, made = [], []
    for line in (build / "providers.txt").read_text().splitlines():
        name, file, why_not = line.split("\t")
        if why_not:
            print(f"{name}: not built, {why_not}")
            if os.environ.get("CI"):
                bad.append(f"{name} was not built: {why_not}")
            continue
        made.append(name)
        if not (build / "lib" / file).exists():
            bad.append(f"{name} was built and lib/{file} is not there")
        if REPORTED.get(name, "") not in says:
            bad.append(f"{name} was built and `marram` does not say {REPORTED[name]!r}")
    print("\n".join(bad) if bad else f"optional parts that are there: {', '.join(made) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
