# SPDX-License-Identifier: Apache-2.0
"""The build backend of pyproject.toml: `pip install .` by way of `make wheel`.

It asks for no build requirement, since the Makefile brings its own.
"""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, str] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds the wheel into wheel_directory and returns its name."""
    # pip's isolated environment is not one for the tools that make starts.
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    subprocess.run(["make", "wheel"], cwd=ROOT, check=True, env=env)
    newest = max(
        (ROOT / "dist").glob("marram-*.whl"), key=lambda p: p.stat().st_mtime
    )
    shutil.copy(newest, wheel_directory)
    return newest.name


def build_sdist(
    sdist_directory: str, config_settings: dict[str, str] | None = None
) -> str:
    """Archives the last commit."""
    name = "marram-0.1.0"
    out = Path(sdist_directory) / f"{name}.tar.gz"
    subprocess.run(
        [
            "git", "archive", "--format=tar.gz", f"--prefix={name}/",
            "-o", str(out), "HEAD",
        ],  # fmt: skip
        cwd=ROOT,
        check=True,
    )
    return out.name
