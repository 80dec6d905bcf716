# SPDX-License-Identifier: Apache-2.0
"""The command ``marram``: what it says of files."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import marram.core as mx
import pytest

BUILD = Path(os.environ.get("MARRAM_BUILD", Path(__file__).resolve().parents[2] / "build"))
COMMAND = BUILD / "bin/marram"

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason="a sanitizer's build has no command")


def inspect(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, "inspect", path], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="other processors have other tiers")
def test_command__lists_the_tiers_that_kernels_are_built_for() -> None:
    said = subprocess.run([COMMAND], capture_output=True, text=True, check=True, timeout=60).stdout
    assert f"cpu tier {mx.cpu_tier()}, " in said
    assert ": baseline, avx2, avx512, amx\n" in said


def test_inspect__lists_the_arrays_of_either_format(tmp_path: Path) -> None:
    mx.save(str(tmp_path / "x.npy"), mx.zeros((2, 3)))
    mx.save_safetensors(str(tmp_path / "x.safetensors"), {"w": mx.zeros(4), "b": mx.array(1)})
    said = inspect(tmp_path / "x.npy")
    assert said.returncode == 0 and "float32    (2, 3)" in said.stdout
    said = inspect(tmp_path / "x.safetensors")
    assert said.returncode == 0 and said.stdout.endswith("2 arrays\n")


def test_inspect__goes_by_what_the_file_holds(tmp_path: Path) -> None:
    mx.save(str(tmp_path / "x.npy"), mx.zeros((2, 3)))
    (tmp_path / "x.npy").rename(tmp_path / "weights")
    assert "float32    (2, 3)" in inspect(tmp_path / "weights").stdout


@pytest.mark.parametrize("content", [b"", b"# Read me\n\nA page of text.\n", bytes(100)])
def test_inspect__names_the_formats_for_a_file_of_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(content)
    said = inspect(tmp_path / "README.md")
    assert said.returncode == 1 and said.stdout == ""
    assert "README.md: of no format that can be read: npy (begins with \\x93NUMPY), safetensors (" in said.stderr


def test_inspect__says_what_is_wrong_with_a_damaged_file(tmp_path: Path) -> None:
    mx.save_safetensors(str(tmp_path / "x.safetensors"), {"w": mx.zeros(4)})
    whole = (tmp_path / "x.safetensors").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:20])
    assert "ends inside its header" in inspect(tmp_path / "cut").stderr
    (tmp_path / "x.safetensors").write_bytes(b"a page of text, of which there is some")
    assert "is no safetensors file: these begin with the length of a header" in inspect(tmp_path / "x.safetensors").stderr
    (tmp_path / "x.npy").write_bytes(b"short")
    assert "is no npy file" in inspect(tmp_path / "x.npy").stderr
    assert "cannot open it" in inspect(tmp_path / "none").stderr
