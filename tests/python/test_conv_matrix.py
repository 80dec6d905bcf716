# SPDX-License-Identifier: Apache-2.0
"""Convolutions of every dtype and kind against sums in float64, on the matrix unit where there is one."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import marram.core as mx
import numpy as np
import pytest

DTYPES = {"float32": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11}  # what rounding the result may change

CASES: list[tuple[Any, ...]] = [  # x, w (O, taps, C / groups), then what differs from a plain convolution
    ((2, 20, 37, 64), (64, 3, 3, 64), {"padding": 1}),
    ((1, 19, 33, 40), (50, 3, 3, 40), {"padding": ([1, 0], [2, 3])}),
    ((3, 30, 31, 3), (64, 7, 7, 3), {"stride": 2, "padding": 3}),
    ((2, 17, 70, 5), (36, 3, 4, 5), {"padding": 1, "flip": True}),
    ((2, 21, 22, 33), (65, 3, 2, 33), {"stride": [3, 2], "kernel_dilation": [1, 3], "padding": 2}),
    ((1, 24, 24, 64), (96, 1, 1, 64), {"stride": 2}),
    ((2, 18, 20, 32), (16, 2, 5, 32), {"input_dilation": [2, 3], "padding": 2, "flip": True}),
    ((1, 9, 40, 48), (48, 4, 4, 48), {"input_dilation": 4, "stride": 3, "padding": ([3, -1], [1, 4])}),
    ((2, 26, 27, 64), (64, 3, 3, 16), {"padding": 1, "groups": 4}),
    ((2, 26, 27, 40), (80, 3, 3, 8), {"padding": 1, "groups": 5}),
    ((1, 26, 27, 66), (132, 3, 3, 33), {"stride": 2, "padding": 1, "groups": 2}),
    ((2, 15, 16, 60), (36, 3, 3, 20), {"kernel_dilation": 2, "groups": 3}),
    ((2, 700, 72), (40, 3, 72), {"padding": 1}),
    ((1, 1300, 1), (33, 9, 1), {"stride": 5, "padding": 4}),
    ((2, 5, 13, 14, 32), (48, 3, 3, 3, 32), {"padding": 1}),
    ((1, 7, 12, 11, 34), (32, 2, 3, 1, 34), {"stride": [2, 1, 2], "padding": [0, 2, 1], "kernel_dilation": [2, 1, 1]}),
    ((9, 7, 7, 96), (32, 3, 3, 96), {"padding": 1}),
    ((2, 6, 6, 1100), (32, 1, 2, 1100), {}),
]


def all_of(given: Any, n: int) -> list[int]:
    return [given] * n if isinstance(given, int) else list(given)


class Taps:
    """Which entries of the input each tap meets, and the outputs that they are for."""

    def __init__(self, x: tuple[int, ...], w: tuple[int, ...], **given: Any) -> None:
        n = len(x) - 2
        pad = given.get("padding", 0)
        low, high = pad if isinstance(pad, tuple) else (pad, pad)
        self.low, high = all_of(low, n), all_of(high, n)
        self.stride, self.spread = all_of(given.get("stride", 1), n), all_of(given.get("input_dilation", 1), n)
        self.apart = all_of(given.get("kernel_dilation", 1), n)
        self.groups, self.flip, self.x, self.w = given.get("groups", 1), given.get("flip", False), x, w
        self.out = tuple(
            ((x[1 + i] - 1) * self.spread[i] + 1 + self.low[i] + high[i] - (w[1 + i] - 1) * self.apart[i] - 1) // self.stride[i] + 1
            for i in range(n)
        )

    def all(self) -> Iterator[tuple[Any, Any, Any]]:
        for tap in np.ndindex(*self.w[1:-1]):
            outs, ins = [], []
            for i, t in enumerate(tap):
                t = self.w[1 + i] - 1 - t if self.flip else t
                at = np.arange(self.out[i]) * self.stride[i] + t * self.apart[i] - self.low[i]
                met = (at >= 0) & (at % self.spread[i] == 0) & (at // self.spread[i] < self.x[1 + i])
                outs.append(np.nonzero(met)[0])
                ins.append(at[met] // self.spread[i])
            yield tap, np.ix_(range(self.x[0]), *outs), np.ix_(range(self.x[0]), *ins)

    def forward(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        g, each = self.groups, self.w[0] // self.groups
        y = np.zeros((self.x[0], *self.out, g, each))
        wide = x.reshape(*x.shape[:-1], g, -1)
        for tap, outs, ins in self.all():
            with np.errstate(invalid="ignore"):
                y[outs] += np.einsum("...gc,goc->...go", wide[ins], w[(slice(None), *tap)].reshape(g, each, -1))
        return y.reshape(*y.shape[:-2], -1)

    def back(self, x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        g, each = self.groups, self.w[0] // self.groups
        wide, come = x.reshape(*x.shape[:-1], g, -1), dy.reshape(*dy.shape[:-1], g, each)
        dx, dw = np.zeros(wide.shape), np.zeros(w.shape)
        for tap, outs, ins in self.all():
            k = (slice(None), *tap)
            dx[ins] += np.einsum("...go,goc->...gc", come[outs], w[k].reshape(g, each, -1))
            seen, back = wide[ins].reshape(-1, g, w.shape[-1]), come[outs].reshape(-1, g, each)
            dw[k] = np.einsum("pgc,pgo->goc", seen, back).reshape(w.shape[0], -1)
        return dx.reshape(x.shape), dw


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> tuple[mx.array, np.ndarray]:
    a = mx.array(np.random.default_rng(seed).standard_normal(shape).astype("f4")).astype(getattr(mx, dtype))
    return a, wide(a)


def wide(a: mx.array) -> np.ndarray:
    return np.array(a.astype(mx.float32)).astype("f8")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=[str(i) for i in range(len(CASES))])
def test_conv__and_its_gradients_are_sums_over_taps(case: Any, dtype: str) -> None:
    (x, xs), (w, ws), taps = drawn(case[0], dtype, 1), drawn(case[1], dtype, 2), Taps(case[0], case[1], **case[2])
    g, gs = drawn((case[0][0], *taps.out, case[1][0]), dtype, 3)
    y, back = mx.vjp(lambda a, b: mx.conv_general(a, b, **case[2]), [x, w], [g])
    y = y[0] if isinstance(y, list | tuple) else y
    want = (taps.forward(xs, ws), *taps.back(xs, ws, gs))
    sizes = (taps.forward(abs(xs), abs(ws)), *taps.back(abs(xs), abs(ws), abs(gs)))
    for got, right, size in zip((y, *back), want, sizes, strict=True):
        assert got.dtype == getattr(mx, dtype)
        assert (abs(wide(got) - right) <= DTYPES[dtype] * abs(right) + 2.0**-20 * size + 2.0**-24).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("given", [CASES[0], CASES[2], CASES[3], CASES[8], CASES[11], CASES[12]])
def test_conv__what_is_not_finite_stays_in_its_windows(given: Any, dtype: str) -> None:
    """Infinite numbers of one sign give no NaN where their weights have one sign and are not 0."""
    (x, _), (_, ws), taps = drawn(given[0], dtype, 4), drawn(given[1], dtype, 5), Taps(given[0], given[1], **given[2])
    xs = wide(x)
    middle = tuple(m // 2 for m in given[0][1:-1])
    xs[(0, *middle, given[0][-1] - 1)] = np.nan
    xs[(-1, *(0,) * len(middle), 0)] = np.inf
    xs[(-1, *(m - 1 for m in given[0][1:-1]), 0)] = -np.inf
    ws = abs(ws) + 0.25
    x, w = (mx.array(a.astype("f4")).astype(getattr(mx, dtype)) for a in (xs, ws))
    want = taps.forward(wide(x), wide(w))
    got = wide(mx.conv_general(x, w, **given[2]))
    assert np.isnan(want).any() and np.isposinf(want).any()
    np.testing.assert_array_equal(np.where(np.isfinite(want), 0, want), np.where(np.isfinite(got), 0, got))
    near = np.isfinite(want)
    np.testing.assert_allclose(got[near], want[near], rtol=2.0**-7, atol=0.3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [2.0**-140, 2.0**-120, 2.0**-70, 2.0**50, 2.0**90])
def test_conv__numbers_at_the_ends_of_their_range(dtype: str, size: float) -> None:
    """Weights make up for them, so results are normal: nothing is lost on the way, nor is it infinite."""
    shape, kernel = (2, 20, 24, 64), (64, 3, 2, 64)
    taps = Taps(shape, kernel, padding=1)
    xs, ws = (np.random.default_rng(s).standard_normal(k) for s, k in ((6, shape), (7, kernel)))
    xs[1] *= min(max(size, 2.0**-126) if dtype == "bfloat16" else size, 2.0**126)
    x = mx.array(xs.astype("f4")).astype(getattr(mx, dtype))
    w = mx.array((ws * 2.0**20 if size < 1 else ws * 2.0**-20).astype("f4")).astype(getattr(mx, dtype))
    want, got = taps.forward(wide(x), wide(w)), wide(mx.conv_general(x, w, padding=1))
    about = taps.forward(abs(wide(x)), abs(wide(w)))
    assert (abs(got - want) <= DTYPES[dtype] * abs(want) + 2.0**-20 * about + 64 * 6 * 2.0**-149).all()


def test_conv__an_image_has_its_bits_whatever_its_neighbours_hold() -> None:
    """Halves that go as patches take the products' route, which depends on how many rows there are."""
    for dtype in DTYPES if mx.cpu_tier() == "amx" else ["float32"]:
        for case in (CASES[4], CASES[8], CASES[16]):
            (x, _), (w, _) = drawn(case[0], dtype, 8), drawn(case[1], dtype, 9)
            y = wide(mx.conv_general(x, w, **case[2]))
            odd = wide(x)
            odd[0].flat[5] = np.inf
            odd[0].flat[40] = 2.0**-133
            got = wide(mx.conv_general(mx.array(odd.astype("f4")).astype(x.dtype), w, **case[2]))
            np.testing.assert_array_equal(got[1:], y[1:])
            for i in range(case[0][0]):
                np.testing.assert_array_equal(wide(mx.conv_general(x[i : i + 1], w, **case[2]))[0], y[i])


@pytest.mark.parametrize("shape", [(0, 9, 9, 64), (2, 9, 9, 0)])
def test_conv__nothing_gives_nothing(shape: tuple[int, ...]) -> None:
    for dtype in DTYPES:
        x, w = mx.zeros(shape, getattr(mx, dtype)), mx.ones((32, 3, 3, shape[-1]), getattr(mx, dtype))
        y = mx.conv2d(x, w, padding=1)
        assert y.shape == (shape[0], 9, 9, 32) and not np.array(y.astype(mx.float32)).any()
        _, back = mx.vjp(lambda a, b: mx.conv2d(a, b, padding=1), [x, w], [y])
        assert not np.array(back[1].astype(mx.float32)).any()


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("channels", [64, 320])
def test_conv__float32_errors_are_no_larger_than_those_of_one_chain(channels: int, positive: bool) -> None:
    rng = np.random.default_rng(10)
    draw = rng.random if positive else rng.standard_normal
    x, w = draw((1, 9, 16, channels)).astype("f4"), draw((32, 3, 3, channels)).astype("f4")
    taps = Taps(x.shape, w.shape, stride=2)
    want = taps.forward(x.astype("f8"), w.astype("f8"))
    got = np.array(mx.conv_general(mx.array(np.tile(x, (1, 4, 1, 1))), mx.array(w), stride=2))[:, : want.shape[1]]
    chain = np.zeros(want.shape, "f4")
    for tap, outs, ins in taps.all():
        for c in range(channels):
            chain[outs] += x[ins][..., c, None] * w[(slice(None), *tap, c)]
    assert np.square(got - want).mean() <= np.square(chain - want).mean()


def test_weight_gradient__of_halves_is_differentiable() -> None:
    """Through itself, forward and back, as that of float32 is."""
    for dtype in ("bfloat16", "float16"):
        shape, kernel = (2, 8, 9, 16), (24, 3, 3, 16)
        (x, _), (w, _), (v, vs) = drawn(shape, dtype, 11), drawn(kernel, dtype, 12), drawn(kernel, dtype, 13)

        def f(a: mx.array, v: mx.array = v, w: mx.array = w) -> mx.array:
            dw = mx.grad(lambda b: mx.sum(mx.conv2d(a, b, padding=1)))(w)
            return mx.sum(dw.astype(mx.float32) * v.astype(mx.float32))

        got = wide(mx.grad(f)(x))  # what v gives back to the input where 1 came back everywhere
        taps = Taps(shape, kernel, padding=1)
        want, _ = taps.back(wide(x), vs, np.ones((2, 8, 9, 24)))
        np.testing.assert_allclose(got, want, rtol=2.0**-7, atol=0.3)


def test_conv__of_halves_holds_no_patches() -> None:
    """Patches of this batch would be 14 MB."""
    x, w, g = mx.ones((4, 56, 56, 64), mx.bfloat16), mx.ones((64, 3, 3, 64), mx.bfloat16), mx.ones((4, 56, 56, 64), mx.bfloat16)
    mx.eval(x, w, g)
    mx.clear_cache()
    mx.reset_peak_memory()
    held = mx.get_active_memory()
    mx.eval(*mx.vjp(lambda a, b: mx.conv2d(a, b, padding=1), [x, w], [g])[1])
    room = 80 if mx.cpu_tier() == "amx" else 300  # times the weights; patches are made 8 MB at a time elsewhere
    assert mx.get_peak_memory() - held <= x.nbytes + g.nbytes + room * w.nbytes


@functools.cache
def digest(threads: str) -> str:
    code = (
        "import sys, hashlib\n"
        f"sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})\n"
        "import marram.core as mx, test_conv_matrix as t\n"
        "h = hashlib.sha256()\n"
        "for dtype in t.DTYPES:\n"
        "    for case in t.CASES:\n"
        "        x, w = t.drawn(case[0], dtype, 1)[0], t.drawn(case[1], dtype, 2)[0]\n"
        "        y = mx.conv_general(x, w, **case[2])\n"
        "        back = mx.vjp(lambda a, b: mx.conv_general(a, b, **case[2]), [x, w], [y])[1]\n"
        "        for a in (y, *back):\n"
        "            h.update(t.wide(a).tobytes())\n"
        "print(h.hexdigest())\n"
    )
    env = {**os.environ, "MARRAM_NUM_THREADS": threads}
    return subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout.strip()


def test_conv__same_bits_on_any_threads() -> None:
    assert digest("1") == digest("2") == digest("5")
