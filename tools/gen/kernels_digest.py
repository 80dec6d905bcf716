#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A digest of all sources of the kernels: 16 hexadecimal digits of SHA-256 over
each file's path and contents, in the order of the paths.

usage: kernels_digest.py ROOT [HEADER]

Prints it; writes HEADER, which defines MR_KERNELS_DIGEST, where one is named.
"""

import hashlib
import sys
from pathlib import Path

FOLDERS = ("src/kernels", "src/cpu")


def digest(root: Path) -> str:
    files = sorted(p.relative_to(root).as_posix() for d in FOLDERS for p in (root / d).rglob("*.[ch]"))
    sha = hashlib.sha256()
    for name in files:
        data = (root / name).read_bytes()
        sha.update(f"{name} {len(data)}\n".encode() + data)
    return sha.hexdigest()[:16]


def main() -> int:
    found = digest(Path(sys.argv[1]))
    print(found)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(
            "/* Made by tools/gen/kernels_digest.py. */\n#ifndef MR_KERNELS_DIGEST\n"
            f'#define MR_KERNELS_DIGEST "{found}"\n#endif\n'
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
