#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gathers the licences of a build: ours, and those of what it is bundled with.

usage: licences.py BUILD FOLDER

OpenBLAS's come with its package; of system libraries, those that are copied
beside libmarram and LLVM, which is linked into the provider of native code, the
texts are taken from the system's documentation.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def owner_of(file: str) -> str:
    """The system package that a file belongs to, "" when unknown.

    Since /lib is a link to /usr/lib a package may list either name.
    """
    if not shutil.which("dpkg"):
        return ""
    for name in (file, file.removeprefix("/usr")):
        found = subprocess.run(["dpkg", "-S", name], text=True,
                               capture_output=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    return ""


def linked(library: Path) -> list[str]:
    """The packages of the system whose libraries it loads."""
    if not library.exists():
        return []
    lines = subprocess.run(["ldd", library], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    found = [line.split() for line in lines]
    return [owner_of(os.path.realpath(words[2])) for words in found
            if len(words) >= 3 and words[1] == "=>"]


def gather(build: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "LICENSE", folder / "LICENSE")
    for found in build.glob(
            "venv/lib/python*/site-packages/scipy_openblas32-*/licenses/*"):
        shutil.copy(found, folder / f"OpenBLAS-{found.name}")
    jit = build / "lib/libmarram-jit.so"
    packages = set(linked(build / "lib/libmarram.so") + linked(jit))
    if jit.exists():
        packages |= {"llvm-19-dev", "libstdc++-12-dev", "libstdc++6"}
    for package in packages - {"", "libc6"}:
        text = Path("/usr/share/doc") / package / "copyright"
        if text.exists():
            shutil.copy(text, folder / f"{package}.txt")


if __name__ == "__main__":
    gather(Path(sys.argv[1]), Path(sys.argv[2]))
