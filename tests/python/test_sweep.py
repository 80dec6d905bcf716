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


def test_sweep__every_operator_has_a_sample() -> None:
    missing = [op.title for op in sweep.operators() if not op.samples and op.function]
    without_arrays = {"arange", "zeros", "ones", "empty", "full", "linspace", "eye", "identity", "tri", "hanning",
                      "hamming", "bartlett", "blackman", "random.key", "random.seed"}  # fmt: skip
    assert set(missing) <= without_arrays
