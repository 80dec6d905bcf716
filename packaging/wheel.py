#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the Python wheel from a finished build.

usage: wheel.py BUILD DIST

The wheel holds the package, libmarram, the command `marram`, the provider of
native code with LLVM in it, the private OpenBLAS and SLEEF.  What else libmarram needs (cJSON) is bundled by auditwheel,
which also finds out how old a system the result runs on and names it so.
"""

import base64
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

import licences

ROOT = Path(__file__).resolve().parent.parent


def read_project() -> dict[str, str]:
    with open(ROOT / "pyproject.toml", "rb") as f:
        project: dict[str, str] = tomllib.load(f)["project"]
    return project


def gather(build: Path, stage: Path) -> None:
    """The package as it will lie in site-packages."""
    subprocess.run(
        ["cmake", "--install", build, "--component", "wheel",
         "--prefix", stage],
        check=True, stdout=subprocess.DEVNULL)
    if not (stage / "marram/_core.abi3.so").exists():
        sys.exit("wheel: the build has no Python extension")
    jit = stage / "marram/lib/libmarram-jit.so"
    if jit.exists() and shutil.which("strip"):
        subprocess.run(["strip", jit], check=True)
    shutil.copytree(ROOT / "python/marram", stage / "marram",
                    dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__", "README.md"))


def write_info(stage: Path, build: Path, tag: str) -> None:
    project = read_project()
    info = stage / f"marram-{project['version']}.dist-info"
    licences.gather(build, info / "licenses")
    files = sorted(p.name for p in (info / "licenses").iterdir())
    readme = ROOT / "README.md"
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\n"
        f"Name: {project['name']}\n"
        f"Version: {project['version']}\n"
        f"Summary: {project['description']}\n"
        "License: Apache-2.0\n"
        f"Requires-Python: {project['requires-python']}\n"
        + "".join(f"License-File: licenses/{name}\n" for name in files)
        + "Description-Content-Type: text/markdown\n\n"
        + (readme.read_text() if readme.exists() else ""))
    (info / "WHEEL").write_text(
        "Wheel-Version: 1.0\nGenerator: marram\n"
        f"Root-Is-Purelib: false\nTag: {tag}\n")
    (info / "top_level.txt").write_text("marram\n")
    (info / "entry_points.txt").write_text(
        "[console_scripts]\nmarram = marram.__main__:command\n")


def pack(stage: Path, wheel: Path) -> None:
    """Zips the stage with its RECORD, in one order and with one time."""
    files = sorted(p for p in stage.rglob("*") if p.is_file())
    record = next(stage.glob("*.dist-info")) / "RECORD"
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as z:
        def add(path: Path, data: bytes) -> None:
            entry = zipfile.ZipInfo(str(path.relative_to(stage)),
                                    (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            runs = ".so" in path.name or path.parent.name == "bin"
            mode = 0o755 if runs else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            z.writestr(entry, data)

        for path in files:
            data = path.read_bytes()
            digest = base64.urlsafe_b64encode(
                hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{path.relative_to(stage)},sha256={digest},"
                         f"{len(data)}")
            add(path, data)
        lines.append(f"{record.relative_to(stage)},,")
        add(record, ("\n".join(lines) + "\n").encode())


def repair(wheel: Path, dist: Path) -> None:
    """Bundles what a wheel may not expect of a system, and names the tag."""
    bin_dir = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}"}
    subprocess.run(
        [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto",
         "--only-plat", "-w", dist, wheel], check=True, env=env)


def main() -> int:
    build, dist = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    dist.mkdir(parents=True, exist_ok=True)
    tag = f"cp311-abi3-linux_{platform.machine()}"
    version = read_project()["version"]
    with tempfile.TemporaryDirectory() as tmp:
        stage = Path(tmp) / "stage"
        stage.mkdir()
        gather(build, stage)
        write_info(stage, build, tag)
        wheel = Path(tmp) / f"marram-{version}-{tag}.whl"
        pack(stage, wheel)
        for old in dist.glob(f"marram-{version}-*.whl"):
            old.unlink()
        repair(wheel, dist)
    for made in dist.glob(f"marram-{version}-*.whl"):
        print(f"{made} ({made.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
