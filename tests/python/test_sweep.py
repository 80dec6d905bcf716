# SPDX-License-Identifier: Apache-2.0
"""Every operator of api/ through every transform, dtype and layout."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sweep"))

import sweep  # noqa: E402

OPERATORS = [op for op in sweep.operators() if op.samples]


@pytest.mark.parametrize("check", list(sweep.CHECKS))
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.title)
def test_sweep__operator_passes(op: sweep.Operator, check: str, record_property) -> None:
    record_property("checks", sweep.CHECKS[check](op))


def takes_arrays(op: sweep.Operator) -> bool:
    kinds = [a.split(":")[1].split("=")[0].strip(" ?") for a in op.record["args"] if ":" in a]
    return any(k in ("array", "arraylike", "arrays", "condition") for k in kinds)


def test_sweep__every_function_has_an_oracle() -> None:
    known = [op.title for op in OPERATORS if sweep.oracle_of(op) or op.title in sweep.oracles.OWN]
    missing = {op.title for op in OPERATORS if any("f(" in s.text for s in op.samples)} - set(known)
    assert sorted(m for m in missing if not m.startswith("random.")) == []


def test_sweep__every_function_of_arrays_has_a_sample() -> None:
    missing = [op.title for op in sweep.operators() if not op.samples and op.function and takes_arrays(op)]
    assert missing == []
