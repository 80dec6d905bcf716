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
    ((2, 15, 14, 20), (72, 3, 3, 20), 1, 1, 1, 1),
    ((2, 5, 12, 11, 16), (20, 3, 3, 3, 16), 1, 1, 1, 1),
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
        "for kind in t.KINDS:\n"
        "    for shape in t.SHAPES:\n"
        "        h.update(t.conv(*t.numbers(kind, shape)).tobytes())\n"
        "print(h.hexdigest())\n"
    )

    def digest(**env: str) -> str:
        run = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, check=True, capture_output=True, text=True)
        return run.stdout.strip()

    digests = {digest(MARRAM_NUM_THREADS=n) for n in ("1", "2", "5")}
    assert len(digests) == 1
    if mx.cpu_tier() == "amx":  # its products have bits of their own
        digests = {digest(MARRAM_CPU="avx512")}
    assert digests == {digest(MARRAM_CPU="avx2")}


def taps_of(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """In float64, tap by tap; padding of 1 all round, which nothing is multiplied by."""
    n = x.ndim - 2
    y = np.zeros((*x.shape[:-1], w.shape[0]))
    for tap in np.ndindex(*w.shape[1:-1]):
        seen = tuple(slice(max(t - 1, 0), m + min(t - 1, 0)) for t, m in zip(tap, x.shape[1:-1], strict=True))
        put = tuple(slice(max(1 - t, 0), m + min(1 - t, 0)) for t, m in zip(tap, x.shape[1:-1], strict=True))
        with np.errstate(invalid="ignore"):
            y[(slice(None), *put)] += x[(slice(None), *seen)].astype("f8") @ w[(slice(None), *tap)].T.astype("f8")
    assert n in (2, 3)
    return y


@pytest.mark.parametrize("shape", [(2, 16, 15, 32), (1, 5, 14, 13, 16)])
def test_squares__what_is_not_finite_stays_where_it_reaches(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape).astype("f4")
    w = np.abs(rng.standard_normal((24, *[3] * (len(shape) - 2), shape[-1])).astype("f4")) + 0.1
    w[3, ..., 5] = 0
    x[(0, *[4] * (len(shape) - 2), 5)] = np.inf
    x[(0, *[0] * (len(shape) - 2), 2)] = -np.inf
    x[(0, 2, 9, *[12] * (len(shape) - 3))] = np.nan
    want = taps_of(x, w)
    got = np.array(getattr(mx, f"conv{len(shape) - 2}d")(mx.array(x), mx.array(w), padding=1))
    assert np.isnan(want).any() and np.isposinf(want).any() and np.isneginf(want).any()
    np.testing.assert_array_equal(np.where(np.isfinite(want), 0, want), np.where(np.isfinite(got), 0, got))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_squares__large_numbers_do_not_overflow_early() -> None:
    x = np.full((1, 16, 16, 16), 3e38, "f4")
    x[:, ::2, ::2] = -3e38
    w = np.zeros((16, 3, 3, 16), "f4")
    w[:, 1, 1] = np.eye(16) / 2
    y = np.array(mx.conv2d(mx.array(x), mx.array(w), padding=1))
    np.testing.assert_array_equal(y, x / 2)


@pytest.mark.parametrize("shape", [(1, 14, 14, 16), (1, 14, 14, 64), (1, 14, 14, 256), (1, 3, 8, 8, 32), (1, 3, 8, 8, 260)])
@pytest.mark.parametrize("positive", [False, True])
def test_squares__errors_are_smaller_than_those_of_sums_in_a_row(shape: tuple[int, ...], positive: bool) -> None:
    rng = np.random.default_rng(4)
    drawn, n = rng.random if positive else rng.standard_normal, len(shape) - 2
    x, w = drawn(shape).astype("f4"), drawn((20, *[3] * n, shape[-1])).astype("f4")
    inner = (0, *[slice(1, -1)] * n)
    got = np.array(getattr(mx, f"conv{n}d")(mx.array(x), mx.array(w), padding=1))[inner]
    want = taps_of(x, w)[inner]
    row = np.zeros(want.shape, "f4")
    for tap in np.ndindex(*w.shape[1:-1]):
        seen = x[(0, *[slice(t, m - 2 + t) for t, m in zip(tap, shape[1:-1], strict=True)])]
        for c in range(shape[-1]):
            row += seen[..., c, None] * w[(slice(None), *tap, c)]
    assert np.abs(got - want).max() <= np.abs(row - want).max()
    assert np.square(got - want).mean() <= np.square(row - want).mean()


SHAPES = [(3, 19, 17, 20), (2, 6, 13, 15, 16)]
KINDS = ["normal", "relu", "holes", "inf", "outlier", "half", "all half", "masked"]


def numbers(kind: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """An input and 36 filters.  Holes: zeros within windows that have more.  Half: the left of the last image is zero."""
    rng = np.random.default_rng(5)
    n = len(shape) - 2
    x, w = rng.standard_normal(shape).astype("f4"), rng.standard_normal((36, *[3] * n, shape[-1])).astype("f4")
    if kind == "relu":
        x = np.maximum(x, 0)
    elif kind == "holes":
        x[..., 4:6, 4:6, :] = 0
    elif kind in ("inf", "outlier"):
        x[(1, *[3] * n, 0)] = np.inf if kind == "inf" else 1e8
    elif kind in ("half", "all half"):
        x[-1 if kind == "half" else slice(None), ..., : shape[-2] // 2, :] = 0
    elif kind == "masked":
        w[..., 0, :, :] = 0
    return x, w


def conv(x: np.ndarray, w: np.ndarray, padding: Any = 1) -> np.ndarray:
    return np.array(getattr(mx, f"conv{x.ndim - 2}d")(mx.array(x), mx.array(w), padding=padding))


def tap_by_tap(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """One line of outputs has no squares."""
    x = np.pad(x, [(0, 0), *[(1, 1)] * (x.ndim - 2), (0, 0)])
    return np.concatenate([conv(x[..., i : i + 3, :, :], w, 0) for i in range(x.shape[-3] - 2)], -3)


def same_part(x: np.ndarray, w: np.ndarray) -> float:
    """How many outputs have the bits that tap by tap gives them?  By squares it is a third, or less."""
    return float((conv(x, w) == tap_by_tap(x, w)).mean())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["normal", "relu", "holes"])
def test_squares__take_numbers_of_like_sizes(shape: tuple[int, ...], kind: str) -> None:
    assert same_part(*numbers(kind, shape)) < 0.5


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["outlier", "half"])
def test_squares__leave_those_of_unlike_sizes_to_taps(shape: tuple[int, ...], kind: str) -> None:
    x, w = numbers(kind, shape)
    same = conv(x, w) == tap_by_tap(x, w)
    assert same[-1 if kind == "half" else 1].mean() > same[0].mean() + 0.02
    assert same[0].mean() < 0.5
    if kind == "outlier":
        corner = (1, *[slice(2, 5)] * (len(shape) - 4), slice(4, 6), slice(4, 6))
        assert same[corner].all()


def test_squares__leave_all_to_taps_where_all_have_unlike_sizes() -> None:
    x, w = numbers("normal", (2, 26, 14, 16))
    x *= np.float32(200.0) ** np.arange(-7, 7, dtype="f4")[:, None]
    lines = np.concatenate([conv(x[:, i : i + 3], w, 0) for i in range(24)], 1)
    assert np.array_equal(conv(x, w, 0), lines)


@pytest.mark.parametrize("shape", [(5, 14, 14, 32), (4, 20, 9, 16), (3, 6, 14, 14, 16), (4, 7, 7, 64)])
def test_squares__of_an_image_are_its_own(shape: tuple[int, ...]) -> None:
    """An image has the same bits alone, in any batch, and under vmap, whatever its neighbours hold."""
    x, w = numbers("normal", shape)
    y = conv(x, w)
    for i in range(shape[0]):
        assert np.array_equal(conv(x[i : i + 1], w)[0], y[i])
    odd = x.copy()
    odd[0, ..., shape[-2] // 2 :, :] = 0
    odd[1].flat[77::501] = 1e12
    odd[1].flat[500] = np.inf
    got = conv(odd, w)
    assert np.array_equal(got[2:], y[2:])
    near = shape[-2] // 2 - 4
    assert np.array_equal(got[0, ..., : max(near, 0), :], y[0, ..., : max(near, 0), :])
    f = getattr(mx, f"conv{x.ndim - 2}d")
    alone = mx.vmap(lambda a: f(a[None], mx.array(w), padding=1)[0])(mx.array(x))
    assert np.array_equal(np.array(alone), y)


@pytest.mark.parametrize("shape", SHAPES)
def test_squares__leave_masked_taps_to_taps(shape: tuple[int, ...]) -> None:
    assert same_part(*numbers("masked", shape)) == 1
    for value, kept in ((1e-3, 1), (0.25, 0)):
        x, w = numbers("normal", shape)
        w[7, ..., 1, 2, :] *= value
        assert (same_part(x, w) == 1) == kept
    x, w = numbers("normal", shape)
    w[...] = 0
    np.testing.assert_array_equal(conv(x, w), 0)


def test_squares__a_mask_of_one_layer_is_seen() -> None:
    x, w = numbers("normal", SHAPES[1])
    w[3, 1, 0] = 0
    assert same_part(x, w) == 1
    x, w = numbers("normal", SHAPES[1])
    w[3, 2] = 0
    assert same_part(x, w) < 0.5


@pytest.mark.parametrize("where", range(16))
def test_squares__how_far_apart_sizes_may_be(where: int) -> None:
    """Every square has a number 64 times, or 65 times, the other ones, at its corner, edge or midst."""
    _, w = numbers("normal", (1, 1, 1, 16))
    sign = np.sign(np.random.default_rng(6).standard_normal((1, 34, 34, 16))).astype("f4")
    for times in (63, 66):
        x = sign.copy()
        x[:, where // 4 :: 4, where % 4 :: 4, 5] *= times
        got = np.array(mx.conv2d(mx.array(x), mx.array(w)))
        want = np.concatenate([np.array(mx.conv2d(mx.array(x[:, i : i + 3]), mx.array(w))) for i in range(32)], 1)
        assert ((got == want).mean() < 0.5) == (times < 64)


@pytest.mark.parametrize("shape", SHAPES)
def test_squares__one_tap_of_one_moves_its_input(shape: tuple[int, ...]) -> None:
    n = len(shape) - 2
    x = np.random.default_rng(7).standard_normal(shape).astype("f4") * np.float32(1e3)
    x[(0, *[5] * n, 2)] = 1e30
    for at in (0, 1):
        w = np.zeros((shape[-1], *[3] * n, shape[-1]), "f4")
        w[(slice(None), *[at] * n)] = np.eye(shape[-1])
        want = x if at else np.pad(x, [(0, 0), *[(1, 0)] * n, (0, 0)])[(slice(None), *[slice(0, -1)] * n)]
        np.testing.assert_array_equal(conv(x, w), want)
        back = mx.vjp(lambda a, w=w: getattr(mx, f"conv{n}d")(a, mx.array(w), padding=1), [mx.array(x)], [mx.array(want)])[1][0]
        there = x.copy()
        if not at:
            for axis in range(1, n + 1):
                there[(slice(None),) * axis + (-1,)] = 0
        np.testing.assert_array_equal(np.array(back), there)


@pytest.mark.parametrize("shape", SHAPES)
def test_squares__masked_taps_let_nothing_through(shape: tuple[int, ...]) -> None:
    x, w = numbers("masked", shape)
    line = 6
    other = x.copy()
    other[..., line, :, :] *= np.float32(-1e7)
    got, changed = conv(x, w), conv(other, w)
    np.testing.assert_array_equal(got[..., line + 1 :, :, :], changed[..., line + 1 :, :, :])
    assert (got[..., line, :, :] != changed[..., line, :, :]).any()


@pytest.mark.parametrize("shape", SHAPES)
def test_squares__windows_of_zeros_give_zeros(shape: tuple[int, ...]) -> None:
    x, w = numbers("all half", shape)
    x *= np.float32(1e5)
    np.testing.assert_array_equal(conv(x, w)[..., : shape[-2] // 2 - 1, :], 0)


def bound(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Sums of |x| in each output's window, times the largest sum of |w| of a tap."""
    own = taps_of(np.abs(x), np.ones((1, *w.shape[1:]), "f4"))
    return own * np.abs(w).sum(-1).reshape(w.shape[0], -1, 9).sum(1).max(-1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["normal", "relu", "holes", "outlier", "half", "all half", "masked"])
def test_squares__errors_are_those_of_each_window(shape: tuple[int, ...], kind: str) -> None:
    """An input of 1e8 in one place is no error in windows without it."""
    x, w = numbers(kind, shape)
    wrong = np.abs(conv(x, w) - taps_of(x, w))
    assert (wrong <= 2.0**-24 * bound(x, w)).all()
    without = taps_of(np.abs(x), np.ones(w.shape, "f4")) < 1e6
    assert (wrong <= 2.0**-24 * 8 * taps_of(np.abs(x), np.abs(w)))[without].all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_squares__what_follows_sees_each_output_once(shape: tuple[int, ...], kind: str) -> None:
    rng = np.random.default_rng(5)
    n = len(shape) - 2
    x, w = numbers(kind, shape)
    bias, more = rng.standard_normal(36).astype("f4"), rng.standard_normal((*shape[:-1], 36)).astype("f4")

    def f(x: Any, w: Any, b: Any, r: Any) -> Any:
        return mx.maximum(getattr(mx, f"conv{n}d")(x, w, padding=1) + b, 0) * 2 + r

    at = [mx.array(a) for a in (x, w, bias, more)]
    apart = getattr(mx, f"conv{n}d")(at[0], at[1], padding=1)
    mx.eval(apart)
    want = np.maximum(np.array(apart) + bias, 0) * 2 + more
    np.testing.assert_array_equal(np.array(f(*at)), want)
    np.testing.assert_array_equal(np.array(mx.compile(f)(*at)), want)
