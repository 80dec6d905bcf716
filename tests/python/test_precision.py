# SPDX-License-Identifier: Apache-2.0
"""The elementary functions to the last places, in every tier."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "precision.npz"
TIERS = ["baseline", "avx2", "avx512"]

# The bound in ULP where it is not 1.05: what each function's arithmetic says.
REAL = {
    "tanh": 1.35,
    "arcsinh": 1.1,
    "arccosh": 1.1,
    "sinh": 1.7,
    "cosh": 1.7,
    "sigmoid": 2.0,
    "rsqrt": 1.5,
    "erfinv": 2.5,
    "arctan2": 1.5,
    "logaddexp": 1.6,
}
# In epsilon (an ULP is half to one of it).
COMPLEX_BOUND = 2.5


@cache
def errors(tier):
    run = subprocess.run(
        [sys.executable, str(HERE / "precision_errors.py"), str(GOLDEN)],
        env={**os.environ, "MARRAM_CPU": tier},
        capture_output=True,
        text=True,
    )
    if run.returncode != 0 and "MARRAM_CPU" in run.stderr:
        pytest.skip(f"this machine has no {tier}")
    assert run.returncode == 0, run.stderr
    rows = [line.split() for line in run.stdout.splitlines()]
    assert len(rows) > 100
    return rows


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_real_functions__are_right_to_the_last_places(tier, dtype):
    bad = [r for r in errors(tier) if r[1] == dtype and float(r[2]) > REAL.get(r[0], 1.05)]
    assert not bad


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_functions__are_right_to_the_last_places(tier, dtype):
    bad = [r for r in errors(tier) if r[1] == dtype and float(r[2]) > COMPLEX_BOUND]
    assert not bad


def test_tier__of_an_unknown_name_is_an_error():
    run = subprocess.run(
        [sys.executable, "-c", "import marram.core as mx; mx.eval(mx.array([1.0]) + 1)"],
        env={**os.environ, "MARRAM_CPU": "pentium"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert "MARRAM_CPU is 'pentium'" in run.stderr
    assert "ValueError" in run.stderr
