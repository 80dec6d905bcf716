# SPDX-License-Identifier: Apache-2.0
"""The checking mode: the first NaN or infinity names its operator and line."""

import os
import subprocess
import sys
from collections.abc import Iterator

import marram.core as mx
import numpy as np
import pytest


@pytest.fixture
def errors() -> Iterator[None]:
    old = mx.set_check("error")
    yield
    mx.set_check(old)


def line_of(text: str) -> int:
    with open(__file__) as f:
        return next(i for i, line in enumerate(f, 1) if text in line)


def test_error__names_operator_place_and_line(errors: None) -> None:
    x = mx.array([1.0, -1.0, 2.0])
    y = mx.log(x) + 1  # the line that is named
    with pytest.raises(ValueError, match=r"^log: the first NaN is at \(1,\) of the result float32 \(3,\)") as e:
        mx.eval(y * 2)
    assert any(f"test_check.py:{line_of('the line that is named')}" in n for n in e.value.__notes__)


def test_error__infinity_of_a_division(errors: None) -> None:
    with pytest.raises(ValueError, match=r"divide: the first infinity is at \(1,\)"):
        mx.eval(mx.array([1.0, 2.0]) / mx.array([1.0, 0.0]) * 0)
    assert mx.full((2,), float("inf")).tolist() == [float("inf")] * 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_error__in_every_inexact_dtype(errors: None, dtype: str) -> None:
    x = mx.array([0.0], dtype=getattr(mx, dtype))
    with pytest.raises(ValueError, match="the first NaN"):
        mx.eval(x / x)


def test_error__what_is_only_passed_on_is_not_named(errors: None) -> None:
    x = mx.array([1.0, float("nan")])
    assert np.isnan(np.array(mx.sin(x) * 2)[1])
    masked = mx.where(mx.array([True, False]), mx.array([1.0, 2.0]), -float("inf"))
    assert mx.softmax(masked).tolist() == [1.0, 0.0]


def test_error__inside_a_compiled_function(errors: None) -> None:
    f = mx.compile(lambda x: mx.sqrt(x - 1) * 2)
    assert f(mx.array([2.0])).tolist() == [2.0]
    with pytest.raises(ValueError, match="sqrt: the first NaN"):
        mx.eval(f(mx.array([0.0])))


def test_error__goes_away_with_the_mode(errors: None) -> None:
    with pytest.raises(ValueError, match="the first NaN"):
        mx.eval(mx.log(mx.array([-1.0])))
    mx.set_check("off")
    assert np.isnan(mx.log(mx.array([-1.0])).item())


def test_mode__wrong_text_is_refused() -> None:
    with pytest.raises(ValueError, match="'loud'.*\"off\", \"warn\""):
        mx.set_check("loud")  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "said"), [("1", "log made the first NaN"), ("0", ""), ("error", "the first NaN")])
def test_environment__sets_it_at_start(value: str, said: str) -> None:
    code = "import marram.core as mx; mx.eval(mx.log(mx.array([-1.0])))"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "MARRAM_CHECK": value},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert (done.returncode != 0) == (value == "error")
    assert (said in done.stderr) if said else done.stderr == ""
