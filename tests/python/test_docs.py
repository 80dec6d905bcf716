# SPDX-License-Identifier: Apache-2.0
"""The pages that people write: tables name their files, links lead somewhere,
code runs."""

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import marram.core as mx
import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MARRAM_BUILD", ROOT / "build"))
SKIPPED = {"build", ".git", "dist", "__pycache__"}
# a folder whose README says what it holds in other words than names of files
BY_PATTERN = {"src/kernels/tier", "tests/golden", "tests/golden/npy", "examples/data", "docs/reference", "packaging"}


def folders() -> list[str]:
    out = []
    for base in ("src", "tests", "tools", "python/ext", "bench", "cmake", "api", "include/marram"):
        paths = [ROOT / base, *(p for p in (ROOT / base).rglob("*") if p.is_dir())]
        out += [str(p.relative_to(ROOT)) for p in paths if (p / "README.md").exists()]
    return [f for f in out if f not in BY_PATTERN and not SKIPPED & set(Path(f).parts)]


def pages() -> list[str]:
    found = [p.relative_to(ROOT) for p in ROOT.rglob("*.md")]
    return [str(p) for p in found if not (p.parts[0].startswith("build") or SKIPPED & set(p.parts))]


@pytest.mark.parametrize("folder", folders())
def test_readme__names_each_file_of_its_folder(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    files = [p.name for p in (ROOT / folder).iterdir() if p.is_file() and p.name != "README.md"]
    marked = set(re.findall(r"`(\w+)`", text))  # or its name without a suffix
    assert [f for f in files if not re.search(rf"\b{re.escape(f)}\b", text) and Path(f).stem not in marked] == []


@pytest.mark.parametrize("page", pages())
def test_links__lead_to_files_that_are_there(page: str) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", (ROOT / page).read_text())
    assert [x for x in links if not (ROOT / page).parent.joinpath(x).exists()] == []


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S)


@pytest.mark.parametrize("page", [p for p in pages() if any(">>> " in b for b in blocks(p, "python")) and "reference" not in p])
def test_python_sessions__print_what_they_say(page: str) -> None:
    names = {"mx": mx}
    for text in blocks(page, "python"):
        test = doctest.DocTestParser().get_doctest(text, names, page, page, 0)
        test.globs = names  # a page is one session
        said: list[str] = []
        doctest.DocTestRunner(verbose=False).run(test, out=said.append, clear_globs=False)
        assert not said, "".join(said)


def test_readme__python_runs() -> None:
    for text in blocks("README.md", "python"):
        r = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        assert r.stdout


LIBRARY = BUILD / "lib/libmarram.so"  # a sanitizer's build has none


@pytest.mark.skipif(not shutil.which("cc") or not LIBRARY.exists(), reason="no compiler or library")
@pytest.mark.parametrize("page", [p for p in pages() if any("int main(" in b for b in blocks(p, "c"))])
def test_c_programs__compile_and_run(page: str, tmp_path: Path) -> None:
    for text in [b for b in blocks(page, "c") if "int main(" in b]:
        (tmp_path / "x.c").write_text(text)
        lib = BUILD / "lib"
        flags = ["-std=c17", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", f"-L{lib}", "-lmarram", f"-Wl,-rpath,{lib}"]
        r = subprocess.run(["cc", "x.c", "-o", "x", *flags], cwd=tmp_path, capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        r = subprocess.run([tmp_path / "x"], capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        assert "array(" in r.stdout
