# SPDX-License-Identifier: Apache-2.0
"""The examples of the reference in Python: each prints what its page says.

Those in C are programs that tests/reference/programs.py makes.
"""

import doctest
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import marram.core as mx
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/gen"))

from c_out import families  # noqa: E402
from table import load  # noqa: E402

RECORDS = [r for r in load(ROOT) if r.public]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.c_name)
def test_example__prints_what_the_page_says(record) -> None:
    test = doctest.DocTestParser().get_doctest(record.example, {"mx": mx}, record.c_name, record.file, record.line)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)
    assert test.examples[-1].want


@pytest.mark.parametrize("family", families(RECORDS))
def test_page__has_both_examples_of_each_function(family) -> None:
    page = (ROOT / f"docs/reference/{family}.md").read_text()
    for r in families(RECORDS)[family]:
        assert r.example.rstrip() in page
        assert r.c.strip() in page


def test_index__names_each_page_once() -> None:
    index = (ROOT / "docs/reference/README.md").read_text()
    for family in families(RECORDS):
        assert index.count(f"({family}.md)") == 1


def test_docstring__shows_the_example() -> None:
    text = mx.add.__doc__
    assert text is not None
    raw = tomllib.loads((ROOT / "api/binary.toml").read_text())["add"]["example"]
    assert all(line in text for line in raw.strip().splitlines())


def test_rows__count_what_each_family_has() -> None:
    command = [sys.executable, str(ROOT / "tools/rows.py"), "--build", os.environ.get("MARRAM_BUILD", str(ROOT / "build"))]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    heads = out[0].split()
    rows = {line.split()[0]: dict(zip(heads, line.split(), strict=True)) for line in out[1:]}
    assert list(rows) == [*families(RECORDS), "all"]
    assert rows["all"]["functions"] == rows["all"]["example"] == str(len(RECORDS))
    for kind in ("vjp", "jvp", "vmap"):
        assert rows["all"][kind] in (rows["all"]["operators"], "-")
