# SPDX-License-Identifier: Apache-2.0
"""The elementary functions to the last places, in every tier."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import marram.core as mx
import numpy as np
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


@pytest.mark.parametrize("call", ["mx.eval(mx.ones(3) + 1)", "mx.compile(lambda x: x + 1)(mx.ones(3))", "mx.new_stream(mx.cpu)"])
def test_tier__of_an_unknown_name_is_an_error(call):
    run = subprocess.run(
        [sys.executable, "-c", f"import marram.core as mx; {call}"],
        env={**os.environ, "MARRAM_CPU": "pentium"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert "MARRAM_CPU is 'pentium'" in run.stderr
    assert "ValueError" in run.stderr


# ---- float64 and complex128 in every function ---------------------------------
X = np.array([0.3, -0.7])
Z = np.array([0.3 + 0.1j])
SCALARS = [
    ("mx.full((2,), 0.1, dtype=D)", [0.1, 0.1]),
    ("mx.full((1,), 1.7e308, dtype=D)", [1.7e308]),
    ("mx.full((1,), 0.1 + 0.2j, dtype=C)", [0.1 + 0.2j]),
    ("mx.full_like(x, 0.1)", [0.1, 0.1]),
    ("mx.array(0.1, dtype=D)", 0.1),
    ("x + 0.1", X + 0.1),
    ("0.1 - x", 0.1 - X),
    ("0.1 / x", 0.1 / X),
    ("x * 0.1j", X * 0.1j),
    ("z + (0.1 + 0.7j)", Z + (0.1 + 0.7j)),
    ("z * 0.1", Z * 0.1),
    ("mx.abs(x) ** 2.1", np.abs(X) ** 2.1),
    ("mx.where(x > 0, x, 0.1)", [0.3, 0.1]),
    ("mx.where(x > 0, 0.1, x)", [0.1, -0.7]),
    ("mx.maximum(x, 0.1)", [0.3, 0.1]),
    ("mx.clip(x, -0.1, 0.1)", [0.1, -0.1]),
    ("mx.pad(x, 1, constant_values=0.1)", [0.1, 0.3, -0.7, 0.1]),
    ("mx.linspace(0.1, 0.7, 7, dtype=D)", np.linspace(0.1, 0.7, 7)),
    ("mx.arange(0.1, 1, 0.1, dtype=D)", np.arange(0.1, 1, 0.1)),
    ("mx.nan_to_num(x / 0 * 0, nan=0.1)", [0.1, 0.1]),
    ("mx.nan_to_num(x / 0)", [np.finfo("f8").max, np.finfo("f8").min]),
    ("x.at[0].add(0.1)", [0.3 + 0.1, -0.7]),
    ("mx.degrees(x)", np.degrees(X)),
    ("mx.radians(x)", np.radians(X)),
    ("mx.round(x * 10.123, 2)", np.round(X * 10.123, 2)),
    ("mx.remainder(x, 0.1)", np.remainder(X, 0.1)),
    ("mx.floor_divide(x, 0.1)", np.floor_divide(X, 0.1)),
    ("mx.softmax(x)", np.exp(X) / np.exp(X).sum()),
    ("mx.logsumexp(x)", np.log(np.exp(X).sum())),
    ("mx.logcumsumexp(x)", np.logaddexp.accumulate(X)),
    ("mx.var(x)", X.var()),
    ("mx.std(x)", X.std()),
    ("mx.fast.layer_norm(x, None, None, 1e-5)", (X - X.mean()) / np.sqrt(X.var() + 1e-5)),
    ("mx.fast.rms_norm(x, None, 1e-5)", X / np.sqrt((X * X).mean() + 1e-5)),
    ("mx.fast.cross_entropy(x[None], mx.array([0]))", [np.log(np.exp(X).sum()) - X[0]]),
    ("mx.addmm(mx.zeros((1, 1), dtype=D), x[None], x[:, None], alpha=0.1, beta=0.2)", [[0.1 * (X @ X)]]),
    ("mx.fft.fft(x)", np.fft.fft(X)),
    ("mx.convolve(x, x, 'full')", np.convolve(X, X)),
    ("mx.erfinv(mx.erf(x))", X),
    ("mx.grad(lambda v: (mx.sin(v) * 0.1).sum())(x)", np.cos(X) * 0.1),
    ("mx.grad(lambda v: (v**3 * 0.1).sum())(x)", 0.3 * X**2),
    ("mx.grad(lambda v: mx.erf(v).sum())(x)", 2 / np.sqrt(np.pi) * np.exp(-X * X)),
    ("mx.grad(lambda v: mx.log2(mx.abs(v)).sum())(x)", 1 / X / np.log(2)),
    ("mx.grad(lambda v: mx.log10(mx.abs(v)).sum())(x)", 1 / X / np.log(10)),
    ("mx.grad(lambda v: mx.degrees(v).sum())(x)", [180 / np.pi] * 2),
    ("mx.compile(lambda v: v * 0.1 + 0.7)(x)", X * 0.1 + 0.7),
    ("mx.topk(mx.array([0.1, 0.1 + 1e-15], dtype=D), 1)", [0.1 + 1e-15]),
    ("mx.random.normal((3,), dtype=D, loc=0.1, scale=0.0, key=mx.random.key(0))", [0.1] * 3),
]


@pytest.mark.parametrize(("call", "want"), SCALARS)
def test_float64__keeps_its_digits_in_every_function(call, want):
    space = {"mx": mx, "D": mx.float64, "C": mx.complex128}
    got = np.array(eval(call, space | wide()))
    assert got.dtype in (np.float64, np.complex128)
    assert np.allclose(got, want, rtol=5e-16, atol=0)


def wide():
    """The inputs in 64 bits: NumPy's would become float32."""
    return {"x": mx.array(X, dtype=mx.float64), "z": mx.array(Z, dtype=mx.complex128)}


@pytest.mark.parametrize("call", ["mx.full((1,), BIG, dtype=mx.int64)", "zero + BIG", "mx.maximum(zero, BIG)",
                                  "mx.where(True, BIG, zero)", "mx.clip(zero, BIG, None)",
                                  "mx.pad(zero, (0, 1), constant_values=BIG)[1:]", "mx.arange(BIG, BIG + 1)"])  # fmt: skip
def test_int64__keeps_its_digits(call):
    big = 2**62 + 1
    got = eval(call, {"mx": mx, "BIG": big, "zero": mx.array([0], dtype=mx.int64)})
    assert got.tolist() == [big]
