# SPDX-License-Identifier: Apache-2.0
"""Convolutions: the same bits everywhere, no patches of a whole batch, weight gradients of every shape."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import Any

import marram.core as mx
import numpy as np
import pytest

CASES = [  # input, kernel shape (O, taps..., C / groups), stride, padding, dilation, groups
    ((2, 11, 9, 3), (8, 5, 3, 3), 2, 2, 1, 1),
    ((2, 9, 9, 24), (70, 3, 3, 24), 1, 1, 2, 1),
    ((1, 8, 8, 20), (10, 3, 3, 4), 1, 0, 1, 5),
    ((3, 300, 7), (7, 4, 1), 3, 1, 1, 7),
    ((1, 5, 6, 7, 16), (12, 2, 3, 2, 16), 2, 1, 1, 1),
    ((2, 9, 75, 21), (21, 3, 5, 1), 1, 2, 1, 21),
    ((2, 9, 31, 20), (20, 3, 11, 1), 2, 3, 2, 20),
    ((2, 13, 60, 3), (40, 7, 7, 3), 2, 3, 1, 1),
    ((1, 9, 20, 12), (5, 3, 3, 12), 1, 1, 1, 1),
    ((2, 12, 13, 32), (32, 3, 3, 8), 1, 1, 1, 4),
]


def weight_gradient(
    x: np.ndarray, g: np.ndarray, w: np.ndarray, stride: int, padding: int, dilation: int, groups: int
) -> np.ndarray:
    n, out = x.ndim - 2, np.zeros(w.shape)
    padded = np.pad(x, [(0, 0)] + [(padding, padding)] * n + [(0, 0)]).astype(np.float64)
    each = w.shape[0] // groups
    for tap in np.ndindex(*w.shape[1:-1]):
        at = tuple(
            slice(t * dilation, t * dilation + (m - 1) * stride + 1, stride) for t, m in zip(tap, g.shape[1:-1], strict=True)
        )
        seen = padded[(slice(None), *at)].reshape(-1, groups, w.shape[-1])
        back = g.reshape(-1, groups, each)
        out[(slice(None), *tap)] = np.einsum("pgc,pgo->goc", seen, back).reshape(w.shape[0], -1)
    return out


def gradients(case: Any) -> tuple[list[Any], np.ndarray]:
    shape, kernel, stride, padding, dilation, groups = case
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype("f4") for s in (shape, kernel))

    def f(x: Any, w: Any) -> Any:
        return mx.conv_general(x, w, stride=stride, padding=padding, kernel_dilation=dilation, groups=groups)

    g = rng.standard_normal(f(mx.array(x), mx.array(w)).shape).astype("f4")
    y, grads = mx.vjp(f, [mx.array(x), mx.array(w)], [mx.array(g)])
    return [y[0] if isinstance(y, list | tuple) else y, *grads], weight_gradient(x, g, w, stride, padding, dilation, groups)


@pytest.mark.parametrize("case", CASES)
def test_weight_gradient__is_what_taps_saw_times_what_came_back(case: Any) -> None:
    got, want = gradients(case)
    np.testing.assert_allclose(np.array(got[2]), want, rtol=0, atol=2e-6 * np.abs(want).max())


def said(call: Any) -> str:
    with pytest.raises((ValueError, OverflowError)) as e:
        mx.eval(call())
    return str(e.value)


def test_transposed__errors_speak_of_what_was_given() -> None:
    x, w = mx.ones((1, 2, 1)), mx.ones((1, 3, 1))
    got = said(lambda: mx.conv_transpose1d(x, w, padding=3))
    assert "axis 1: an input of 2 and a kernel of 3, stride 1, padding 3, dilation 1 and output padding 0" in got
    assert "an output of -2: needs 1 or more, as from a padding of at most 1 or an output padding of at least 3" in got
    assert mx.conv_transpose1d(x, w, padding=1).shape == (1, 2, 1)
    assert mx.conv_transpose1d(x, w, padding=3, output_padding=3).shape == (1, 1, 1)
    plane, taps = mx.ones((1, 2, 4, 1)), mx.ones((1, 3, 3, 1))
    got = said(lambda: mx.conv_transpose2d(plane, taps, stride=2, padding=(0, 6), dilation=(1, 2)))
    assert "axis 2: an input of 4 and a kernel of 3, stride 2, padding 6, dilation 2" in got
    assert "an output of -1: needs 1 or more, as from a padding of at most 5" in got
    assert mx.conv_transpose2d(plane, taps, stride=2, padding=(0, 5), dilation=(1, 2)).shape == (1, 5, 1, 1)
    assert "an output of 0" in said(lambda: mx.conv_transpose1d(mx.ones((1, 0, 1)), w, padding=1))
    for axes in (1, 2, 3):
        cube, ones = mx.ones((1, *[2] * axes, 1)), mx.ones((1, *[3] * axes, 1))
        call = functools.partial(getattr(mx, f"conv_transpose{axes}d"), cube, ones, padding=2)
        assert "of at most 1" in said(call)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"stride": 0}, "stride of 0: needs 1"),
        ({"dilation": 2**40}, "dilation of 1099511627776: needs 1"),
        ({"padding": 2**62}, "padding 4611686018427387904, dilation 1"),
        ({"padding": -(2**63)}, "padding -9223372036854775808, dilation 1"),
        ({"output_padding": 2**63 - 1}, "output padding 9223372036854775807: needs an output below 2^63"),
        ({"output_padding": -1}, "output padding of -1"),
    ],
)
def test_transposed__numbers_out_of_range_are_named(given: dict[str, int], part: str) -> None:
    got = said(lambda: mx.conv_transpose1d(mx.ones((1, 2, 1)), mx.ones((1, 3, 1)), **given))
    assert part in got
    assert "input dilation" not in got


def test_conv__sizes_do_not_wrap_round() -> None:
    x, w = mx.ones((1, 2, 1)), mx.ones((1, 3, 1))
    assert "a kernel of 0" in said(lambda: mx.conv1d(x, mx.ones((1, 0, 1))))
    assert "a kernel of 0" in said(lambda: mx.conv_transpose1d(x, mx.ones((1, 0, 1))))
    assert "fewer than 2^63" in said(lambda: mx.conv1d(x, w, padding=2**62))
    assert "fewer than 2^63" in said(lambda: mx.conv_general(x, w, padding=-(2**63)))
    wide = mx.broadcast_to(mx.ones((1, 1, 1)), (1, 2**40, 1))
    assert "fewer than 2^63" in said(lambda: mx.conv_general(wide, w, input_dilation=2**30))


def test_conv__holds_no_patches() -> None:
    """Patches of this batch would be 29 MB."""
    x, w = mx.ones((4, 56, 56, 64)), mx.ones((64, 3, 3, 64))
    g = mx.ones((4, 56, 56, 64))
    mx.eval(x, w, g)
    mx.clear_cache()
    mx.reset_peak_memory()
    held = mx.get_active_memory()
    mx.eval(*mx.vjp(lambda a, b: mx.conv2d(a, b, padding=1), [x, w], [g])[1])
    assert mx.get_peak_memory() - held <= x.nbytes + g.nbytes + 20 * w.nbytes + (1 << 20)


def test_conv__same_bits_on_any_threads_and_tier() -> None:
    code = (
        "import sys, hashlib\n"
        f"sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})\n"
        "import numpy as np, test_conv as t\n"
        "h = hashlib.sha256()\n"
        "for case in t.CASES:\n"
        "    for y in t.gradients(case)[0]:\n"
        "        h.update(np.array(y).tobytes())\n"
        "print(h.hexdigest())\n"
    )

    def digest(**env: str) -> str:
        run = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, check=True, capture_output=True, text=True)
        return run.stdout.strip()

    digests = {digest(MARRAM_NUM_THREADS=n) for n in ("1", "2", "5")}
    assert digests == {digest(MARRAM_CPU="avx2")}
