# SPDX-License-Identifier: Apache-2.0
"""Attention: values, gradients, their derivatives, memory, the same bits everywhere.

Values come from a formula in float64 NumPy; derivatives of gradients from float64, which is
composed of products and a softmax and has no operator of its own.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import Any

import marram.core as mx
import numpy as np
import pytest

LOW = float(np.finfo(np.float32).min)
SIZES = [
    (1, 1, 1, 5, 7, 3, 4),  # batch, key heads, group, queries, keys, depth, width
    (2, 2, 3, 2, 300, 20, 7),
    (1, 2, 2, 150, 333, 17, 9),
    (3, 5, 1, 40, 20, 33, 31),
]
KINDS = ["plain", "causal", "keep", "keep keys", "add", "add heads"]


def formula(q: Any, k: Any, v: Any, g: Any, scale: float, mask: Any, causal: bool, sinks: Any) -> list[np.ndarray]:
    """Gradients by q, k, v, an additive mask and sinks."""
    q, k, v, g = (np.asarray(x, np.float64) for x in (q, k, v, g))
    (b, hq, lq, depth), (hk, lk) = q.shape, k.shape[1:3]
    group = hq // hk
    keys, values = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = scale * q @ keys.swapaxes(-1, -2)
    drop = np.zeros(s.shape, bool)
    if causal:
        drop |= ~np.tri(lq, lk, lk - lq, dtype=bool)
    if mask is not None and mask.dtype == bool:
        drop |= ~np.broadcast_to(mask, s.shape)
    s = np.where(drop, LOW, s)
    if mask is not None and mask.dtype != bool:
        s = s + mask
    logit = np.full((1, hq, 1, 1), -np.inf) if sinks is None else sinks.reshape(1, hq, 1, 1).astype(np.float64)
    top = np.maximum(s.max(-1, keepdims=True), logit)
    e, e_sink = np.exp(s - top), np.exp(logit - top)
    total = e.sum(-1, keepdims=True) + e_sink
    p, p_sink = e / total, e_sink / total
    w = g @ values.swapaxes(-1, -2)
    d = (p * w).sum(-1, keepdims=True)
    u = p * (w - d)
    counted = np.where(drop, 0, u)
    out = [
        scale * counted @ keys,
        (scale * counted.swapaxes(-1, -2) @ q).reshape(b, hk, group, lk, depth).sum(2),
        (p.swapaxes(-1, -2) @ g).reshape(b, hk, group, lk, -1).sum(2),
    ]
    if mask is not None and mask.dtype != bool:
        while u.ndim > mask.ndim:
            u = u.sum(0)
        axes = tuple(i for i, n in enumerate(mask.shape) if n == 1)
        out.append(u.sum(axes, keepdims=True))
    if sinks is not None:
        out.append(-(p_sink * d).sum((0, 2, 3)))
    return out


def sample(size: tuple[int, ...], kind: str, sinks: bool) -> tuple[list[np.ndarray], Any, Any]:
    batch, heads, group, lq, lk, depth, width = size
    rng = np.random.default_rng(7)
    shapes = [
        (batch, heads * group, lq, depth),
        (batch, heads, lk, depth),
        (batch, heads, lk, width),
        (batch, heads * group, lq, width),
    ]
    x = [rng.standard_normal(s).astype("f4") for s in shapes]
    mask = {
        "keep": lambda: rng.random((lq, lk)) < 0.6,
        "keep keys": lambda: rng.random((batch, 1, 1, lk)) < 0.7,
        "add": lambda: rng.standard_normal((lq, lk)).astype("f4"),
        "add heads": lambda: rng.standard_normal((heads * group, 1, lk)).astype("f4"),
    }.get(kind, lambda: None)()
    if kind == "keep":
        mask[0] = False  # a row that sees nothing weighs all alike
    return x, mask, rng.standard_normal(heads * group).astype("f4") if sinks else None


def attend(kind: str, mask: Any, sinks: Any) -> Any:
    """A function of q, k, v and what of mask and sinks has a gradient."""

    def call(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        more = list(rest)
        m = "causal" if kind == "causal" else None
        if mask is not None:
            m = mx.array(mask) if mask.dtype == bool else more.pop(0)
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask=m, sinks=more.pop(0) if sinks is not None else None)

    return call


def inputs(x: list[np.ndarray], mask: Any, sinks: Any, dtype: Any) -> list[Any]:
    out = [mx.array(a).astype(dtype) for a in x[:3]]
    if mask is not None and mask.dtype != bool:
        out.append(mx.array(mask).astype(mx.float64 if dtype == mx.float64 else mx.float32))
    if sinks is not None:
        out.append(mx.array(sinks).astype(mx.float64 if dtype == mx.float64 else mx.float32))
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_gradients__are_the_formula(size: tuple[int, ...], kind: str) -> None:
    for sinks in (False, True):
        x, mask, s = sample(size, kind, sinks)
        for dtype, tolerance in ((mx.float32, 2e-5), (mx.bfloat16, 3e-2), (mx.float16, 4e-3)):
            rounded = [np.array(mx.array(a).astype(dtype).astype(mx.float32)) for a in x]
            want = formula(*rounded, 0.3, mask, kind == "causal", s)
            _, got = mx.vjp(attend(kind, mask, s), inputs(x, mask, s, dtype), [mx.array(x[3]).astype(dtype)])
            assert len(got) == len(want)
            for w, o in zip(want, got, strict=True):
                error = np.abs(np.array(o.astype(mx.float32)) - w).max()
                assert error <= tolerance * max(1.0, np.abs(w).max())


def test_gradients__of_turned_and_broadcast_operands() -> None:
    x, _, _ = sample((2, 3, 2, 20, 50, 16, 16), "plain", False)
    want = formula(*x, 0.3, None, False, None)
    turned = [mx.array(np.ascontiguousarray(a.transpose(3, 1, 2, 0))).transpose(3, 1, 2, 0) for a in x]
    _, got = mx.vjp(attend("plain", None, None), turned[:3], [turned[3]])
    for w, o in zip(want, got, strict=True):
        np.testing.assert_allclose(np.array(o), w, rtol=0, atol=2e-5)
    ones = mx.broadcast_to(mx.array(np.float32(1)), (2, 6, 20, 16))
    x[3] = np.ones_like(x[3])
    for w, o in zip(formula(*x, 0.3, None, False, None), mx.vjp(attend("plain", None, None), turned[:3], [ones])[1], strict=True):
        np.testing.assert_allclose(np.array(o), w, rtol=0, atol=3e-5)


def squares(kind: str, mask: Any, sinks: Any, g: Any) -> Any:
    """A number made of all gradients, so that its own gradient is a second derivative."""
    f = attend(kind, mask, sinks)

    def of(*x: Any) -> Any:
        _, grads = mx.vjp(f, list(x[:-1]), [x[-1]])
        return sum((mx.sum(mx.square(y)) for y in grads), mx.array(0.0).astype(x[0].dtype))

    return of


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sinks", [False, True])
def test_gradients__have_derivatives(kind: str, sinks: bool) -> None:
    x, mask, s = sample((2, 2, 2, 4, 6, 3, 5), kind, sinks)
    results = []
    for dtype in (mx.float32, mx.float64):
        at = [*inputs(x, mask, s, dtype), mx.array(x[3]).astype(dtype)]
        f = squares(kind, mask, s, None)
        grads = mx.grad(f, argnums=list(range(len(at))))(*at)
        rng = np.random.default_rng(3)
        along = [mx.array(rng.standard_normal(a.shape)).astype(dtype) for a in at]
        tangents = [
            mx.jvp(lambda y, i=i, f=f, at=at: f(*at[:i], y, *at[i + 1 :]), [at[i]], [along[i]])[1][0] for i in range(len(at))
        ]
        results.append([np.array(y.astype(mx.float64)) for y in [*grads, *tangents]])
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("kind", ["plain", "keep", "add heads"])
def test_gradients__map_over_a_batch(kind: str) -> None:
    x, mask, s = sample((2, 2, 2, 9, 11, 4, 5), kind, True)
    rng = np.random.default_rng(5)
    many = [mx.array(rng.standard_normal((3, *a.shape)).astype("f4")) for a in x]
    rest = inputs(x, mask, s, mx.float32)[3:]

    def grads(q: Any, k: Any, v: Any, g: Any) -> Any:
        return mx.vjp(attend(kind, mask, s), [q, k, v, *rest], [g])[1]

    got = mx.vmap(lambda *a: tuple(grads(*a)))(*many)
    twice = mx.vmap(mx.vmap(lambda *a: tuple(grads(*a))))(*(a[:, None] for a in many))
    for i in range(3):
        for one, two, three in zip(grads(*(a[i] for a in many)), got, twice, strict=True):
            np.testing.assert_allclose(np.array(two[i]), np.array(one), rtol=0, atol=1e-5)
            np.testing.assert_allclose(np.array(three[i, 0]), np.array(one), rtol=0, atol=1e-5)
    one = mx.vmap(lambda q: tuple(grads(q, *(a[0] for a in many[1:]))))(many[0])
    np.testing.assert_allclose(np.array(one[0][0]), np.array(grads(*(a[0] for a in many))[0]), rtol=0, atol=1e-5)


def test_gradients__compiled_are_eager() -> None:
    x, mask, s = sample((1, 2, 2, 150, 200, 16, 8), "keep", True)

    def grads(q: Any, k: Any, v: Any, t: Any, g: Any) -> Any:
        return tuple(mx.vjp(attend("keep", mask, s), [q, k, v, t], [g])[1])

    at = [*inputs(x, mask, s, mx.float32), mx.array(x[3])]
    for a, b in zip(grads(*at), mx.compile(grads)(*at), strict=True):
        assert np.array(a).tobytes() == np.array(b).tobytes()


def test_gradients__hold_no_weights() -> None:
    """16 heads of 1024 x 1024 weights would be 64 MiB."""
    x, _, _ = sample((1, 16, 1, 1024, 1024, 32, 32), "plain", False)
    at = [mx.array(a) for a in x]
    mx.eval(*at)
    outputs = sum(a.nbytes for a in at)  # the gradients, and attention itself
    mx.clear_cache()
    mx.reset_peak_memory()
    held = mx.get_active_memory()
    mx.eval(*mx.vjp(attend("causal", None, None), at[:3], [at[3]])[1])
    threads = os.cpu_count() or 1
    assert mx.get_peak_memory() - held <= outputs + (1 + 2 * threads) * (1 << 20)


BITS = """
import hashlib
import sys
sys.path.insert(0, {here!r})
import marram.core as mx
import numpy as np
import test_attention as t

h = hashlib.sha256()
for size in ((1, 2, 2, 150, 333, 17, 9), (3, 5, 1, 40, 20, 33, 31), (1, 1, 1, 700, 400, 64, 64)):
    for kind in ("plain", "causal", "keep", "add"):
        for dtype in (mx.float32, mx.bfloat16):
            x, mask, s = t.sample(size, kind, True)
            got = mx.vjp(t.attend(kind, mask, s), t.inputs(x, mask, s, dtype)[:3] + t.inputs(x, mask, s, dtype)[3:],
                         [mx.array(x[3]).astype(dtype)])[1]
            for y in got[:3]:
                h.update(np.array(y.astype(mx.float32)).tobytes())
rng = np.random.default_rng(3)
for tiny in range(5):  # numbers that some instructions take for 0, in one of the operands
    for scale in (0.25, 0.3):
        x = [rng.standard_normal((1, 2, 330, 32)).astype(np.float32) for _ in range(4)]
        if tiny < 4:
            x[tiny][0, 1, 200, 3] = 1e-39
        at = [mx.array(y).astype(mx.bfloat16) for y in x]
        got = mx.vjp(lambda q, k, v: mx.fast.scaled_dot_product_attention(q, k, v, scale=scale), at[:3], [at[3]])
        for y in [*got[0], *got[1]]:
            h.update(np.array(y.astype(mx.float32)).tobytes())
for dtype in (mx.float32, mx.float16, mx.bfloat16):  # numbers that the matrix unit leaves to floats
    for place in range(3):
        for odd in (1e-39, 1e30, float("inf")):
            x = [rng.standard_normal((1, 2, 600, 40)).astype(np.float32) for _ in range(3)]
            x[place][0, 1, 333, 3] = odd
            y = mx.fast.scaled_dot_product_attention(*(mx.array(a).astype(dtype) for a in x), scale=0.3)
            h.update(np.array(y.astype(mx.float32)).tobytes())
print(h.hexdigest())
"""


def test_gradients__same_bits_on_any_threads_and_tier() -> None:
    here = os.path.dirname(os.path.abspath(__file__))

    def digest(**env: str) -> str:
        code = BITS.format(here=here)
        return subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **env}, check=True, capture_output=True, text=True
        ).stdout

    digests = {n: digest(MARRAM_NUM_THREADS=n) for n in ("1", "2", "5")}
    assert len(digests["1"].strip()) == len(hashlib.sha256().hexdigest())
    assert len(set(digests.values())) == 1
    # the matrix unit has bits of its own
    vectors = digest(MARRAM_CPU="avx512") if mx.cpu_tier() == "amx" else digests["1"]
    assert digest(MARRAM_CPU="avx2") == vectors


VALUES = [  # batch, key heads, group, queries, keys, depth, width
    (1, 2, 1, 33, 77, 40, 40),
    (2, 1, 2, 33, 300, 64, 64),
    (1, 2, 1, 130, 257, 80, 33),
    (1, 1, 3, 17, 31, 32, 16),
    (1, 1, 1, 40, 600, 256, 100),
    (1, 2, 1, 12, 1000, 128, 128),
    (1, 1, 1, 400, 300, 40, 40),  # causal: rows that see nothing, beside others
]
VALUE_KINDS = ["plain", "causal", "keep", "keep causal", "add", "sinks"]


def weights(q: np.ndarray, k: np.ndarray, scale: float, kind: str, mask: Any, sinks: Any) -> np.ndarray:
    """The weights in float64."""
    lq, lk = q.shape[2], k.shape[2]
    with np.errstate(all="ignore"):
        s = scale * (q @ np.repeat(k, q.shape[1] // k.shape[1], 1).swapaxes(-1, -2))
        if "causal" in kind:
            s = np.where(np.tri(lq, lk, lk - lq, dtype=bool), s, LOW)
        if mask is not None:
            s = np.where(mask, s, LOW) if mask.dtype == bool else s + mask.astype(np.float64)
        logit = np.full((1, s.shape[1], 1, 1), -np.inf) if sinks is None else sinks.reshape(1, -1, 1, 1).astype(np.float64)
        top = np.maximum(s.max(-1, keepdims=True), logit)
        e = np.exp(s - top)
        return e / (e.sum(-1, keepdims=True) + np.exp(logit - top))


def values_of(size: tuple[int, ...], kind: str, dtype: Any, odd: tuple[int, float] | None = None) -> tuple[Any, Any, Any]:
    """What attention gives, what it is in float64, and the mean of magnitudes behind that."""
    batch, heads, group, lq, lk, depth, width = size
    rng = np.random.default_rng(sum(size))
    shapes = [(batch, heads * group, lq, depth), (batch, heads, lk, depth), (batch, heads, lk, width)]
    x = [2 * rng.standard_normal(s) for s in shapes]
    if odd:
        x[odd[0]][0, 0, -3, 5] = odd[1]
    at = [mx.array(a, dtype=mx.float64).astype(dtype) for a in x]
    q, k, v = (np.array(a.astype(mx.float64)) for a in at)
    mask = rng.random((lq, lk)) < 0.7 if "keep" in kind else rng.standard_normal((lq, lk)) if kind == "add" else None
    if kind == "keep causal":
        mask[:, : max(lk - lq // 2, 0)] = False  # the first rows see nothing
    sinks = rng.standard_normal(heads * group).astype(np.float32) if kind == "sinks" else None
    m: Any = "causal" if kind == "causal" else None
    if mask is not None:
        m = mx.array(mask) if mask.dtype == bool else mx.array(mask).astype(dtype)
        if mask.dtype != bool:
            mask = np.array(m.astype(mx.float64))
        if kind == "keep causal":
            mask &= np.tri(lq, lk, lk - lq, dtype=bool)
            m = mx.array(mask)
    scale = depth**-0.5
    got = mx.fast.scaled_dot_product_attention(*at, scale=scale, mask=m, sinks=None if sinks is None else mx.array(sinks))
    w, wide = weights(q, k, scale, kind, mask, sinks), np.repeat(v, group, 1)
    with np.errstate(all="ignore"):
        return np.array(got.astype(mx.float64)), w @ wide, w @ abs(wide)


# of the mean of magnitudes: scores of some 10 have errors of 10 eps; one rounding of the result
BOUND = {mx.float32: 1e-5, mx.float16: 2.0**-11 + 1e-5, mx.bfloat16: 2.0**-8 + 1e-5}


@pytest.mark.parametrize("kind", VALUE_KINDS)
@pytest.mark.parametrize("size", VALUES, ids=str)
def test_attention__is_the_formula(size: tuple[int, ...], kind: str) -> None:
    for dtype, bound in BOUND.items():
        got, want, most = values_of(size, kind, dtype)
        assert (abs(got - want) <= bound * most).all(), dtype


@pytest.mark.parametrize("odd", [1e-39, 1e-30, 2e-5, 1e4, 1e19, 1e30, np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_attention__of_numbers_near_the_ends_of_their_range(place: int, odd: float) -> None:
    for dtype, bound in BOUND.items():
        with np.errstate(all="ignore"):
            got, want, most = values_of((1, 2, 1, 70, 600, 40, 40), "plain", dtype, (place, odd))
        # a score beyond float32 is infinite there, and no number beside another
        fine = np.isfinite(want) & (most < 1e30)
        far = place < 2 and abs(odd) >= 1e19
        if not far:
            assert (np.isfinite(got) == np.isfinite(want)).all()
        fine &= np.isfinite(got) | (not far)
        assert (abs(got[fine] - want[fine]) <= bound * most[fine] + 1e-37).all(), dtype
        assert np.isfinite(got[0, 1]).all()


def test_attention__a_row_that_keeps_nothing_is_the_mean_from_bools_and_nan_from_infinities() -> None:
    """Equal weights where all scores are the lowest number; -inf - -inf is NaN."""
    rng = np.random.default_rng(5)
    q, k, v = (mx.array(rng.standard_normal((1, 2, n, 4)).astype(np.float32)) for n in (3, 5, 5))
    keep = np.ones((3, 5), bool)
    keep[1] = False
    got = np.array(mx.fast.scaled_dot_product_attention(q, k, v, scale=0.5, mask=mx.array(keep)))
    np.testing.assert_allclose(got[:, :, 1], np.array(v).astype(np.float64).mean(2), atol=1e-6)
    added = mx.array(np.where(keep, 0, -np.inf).astype(np.float32))
    infinite = np.array(mx.fast.scaled_dot_product_attention(q, k, v, scale=0.5, mask=added))
    assert np.isnan(infinite[:, :, 1]).all()
    np.testing.assert_array_equal(infinite[:, :, ::2], got[:, :, ::2])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention__of_an_infinite_value_is_infinite(dtype: str) -> None:
    """Its weight may be a sum of pieces, of which some are 0."""
    t = getattr(mx, dtype)
    v = np.ones((1, 1, 32, 32), np.float32)
    v[0, 0, 3, 5] = -np.inf
    q, k = mx.ones((1, 1, 33, 32)).astype(t), mx.ones((1, 1, 32, 32)).astype(t)
    y = np.array(mx.fast.scaled_dot_product_attention(q, k, mx.array(v).astype(t), scale=0.1).astype(mx.float32))
    want = np.ones((1, 1, 33, 32), np.float32)
    want[..., 5] = -np.inf
    assert np.array_equal(y, want)


EXACT = [  # batch, key heads, group, queries, keys, depth, width; kind, size of q and k, scale
    ((2, 2, 2, 113, 356, 80, 32), "causal", 12.0, 0.112),
    ((1, 2, 1, 58, 281, 80, 32), "plain", 30.0, 0.112),
    ((1, 3, 1, 190, 126, 32, 32), "keep", 2.0, 1.0),
    ((2, 2, 4, 221, 83, 32, 128), "causal", 30.0, 0.177),
    ((1, 1, 2, 79, 375, 128, 64), "keep", 30.0, 0.0884),
    ((1, 2, 1, 204, 290, 40, 64), "add", 1.0, 0.158),
    ((1, 1, 1, 70, 253, 256, 33), "add", 20.0, 0.3),
    ((1, 2, 2, 31, 199, 128, 64), "causal", 30.0, 1.0),
]
ERRORS = """
import sys
sys.path.insert(0, {here!r})
import test_attention as t

for case in t.EXACT:
    for sinks in (False, True):
        for odd in (0, 1e-35):
            print(*t.gradient_errors(*case, sinks, odd))
"""


def gradient_errors(size: tuple[int, ...], kind: str, large: float, scale: float, sinks: bool, odd: float) -> list[float]:
    """The largest and the root of the mean square of dq, dk and dv, of float32 against float64."""
    x, mask, s = sample(size, kind, sinks)
    x[0], x[1] = large * x[0], large * x[1]
    if odd:  # no number for the unit: its item goes by vectors
        x[2][0, 0, 0, 0] = odd
    m: Any = "causal" if kind == "causal" else mx.array(mask) if mask is not None else None
    sink = None if s is None else mx.array(s)

    def f(q: Any, k: Any, v: Any) -> Any:
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=m, sinks=sink)

    _, got = mx.vjp(f, [mx.array(a) for a in x[:3]], [mx.array(x[3])])
    want = formula(*x, float(np.float32(scale)), mask, kind == "causal", s)
    errors = [np.array(o).astype(np.float64) - w for w, o in zip(want[:3], got, strict=True)]
    return [e for d in errors for e in (abs(d).max(), np.sqrt((d * d).mean()))]


def test_gradients__on_the_matrix_unit_are_as_exact_as_by_vectors() -> None:
    if mx.cpu_tier() != "amx":
        pytest.skip("there is no matrix unit")
    code = ERRORS.format(here=os.path.dirname(os.path.abspath(__file__)))
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "MARRAM_CPU": "avx512"}, check=True, capture_output=True, text=True
    )
    vectors = [[float(e) for e in line.split()] for line in run.stdout.splitlines()]
    unit = [gradient_errors(*case, sinks, odd) for case in EXACT for sinks in (False, True) for odd in (0, 1e-35)]
    assert (np.array(unit) <= np.array([1.5, 1.2] * 3) * np.array(vectors)).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_gradients__weigh_what_is_far_beyond_the_rest_as_one(dtype: str, scale: float) -> None:
    """Keys far apart: a row's weights are 1 and zeros, so values get whole numbers of rows."""
    t = getattr(mx, dtype)
    rng = np.random.default_rng(3)
    wide = 96
    k = 60 * np.sign(rng.standard_normal((1, 2, 200, wide)))
    pick = rng.integers(0, 200, (1, 2, 150))
    q = np.take_along_axis(k, pick[..., None], 2)
    at = [mx.array(a.astype(np.float32)).astype(t) for a in (q, k, rng.standard_normal((1, 2, 200, 40)))]
    ones = mx.ones((1, 2, 150, 40)).astype(t)

    def f(q: Any, k: Any, v: Any) -> Any:
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale)

    y, (_, _, dv) = mx.vjp(f, at, [ones])
    want = np.stack([np.bincount(p, minlength=200) for p in pick[0]])
    np.testing.assert_array_equal(np.array(dv.astype(mx.float32)), np.broadcast_to(want[None, ..., None], dv.shape))
    y = y[0] if isinstance(y, (list, tuple)) else y
    picked = np.take_along_axis(np.array(at[2].astype(mx.float32)), pick[..., None], 2)
    np.testing.assert_array_equal(np.array(y.astype(mx.float32)), picked)


def test_attention__of_one_key_is_its_value() -> None:
    rng = np.random.default_rng(4)
    q, k, v = (mx.array(rng.standard_normal((1, 3, n, 40)).astype(np.float32)) for n in (50, 1, 1))
    y = np.array(mx.fast.scaled_dot_product_attention(9 * q, k, v, scale=0.3))
    np.testing.assert_array_equal(y, np.broadcast_to(np.array(v), y.shape))
    y = np.array(mx.fast.scaled_dot_product_attention(q, q, 3 * q, scale=0.3, mask="causal"))
    np.testing.assert_array_equal(y[:, :, 0], np.array(3 * q)[:, :, 0])


@pytest.mark.parametrize("low, high", [(1e-37, 1e37), (1e-29, 1e17), (1e-20, 1e15)])
def test_attention__of_columns_of_all_sizes(low: float, high: float) -> None:
    """Each column is as exact as if it were alone, also where numbers are too far apart for pieces."""
    for seed, (lq, lk, depth) in enumerate([(70, 300, 64), (33, 40, 128), (130, 700, 32)]):
        rng = np.random.default_rng(seed)
        q, k, v = (rng.standard_normal((1, 2, n, d)).astype(np.float32) for n, d in ((lq, depth), (lk, depth), (lk, 48)))
        v[..., ::2] *= np.float32(low)
        v[..., 1::2] *= np.float32(high)
        at = [mx.array(a) for a in (q, k, v)]
        got = np.array(mx.fast.scaled_dot_product_attention(*at, scale=0.1)).astype(np.float64)
        w = weights(*(a.astype(np.float64) for a in (q, k)), float(np.float32(0.1)), "plain", None, None)
        error = abs(got - w @ v.astype(np.float64)) / (w @ abs(v.astype(np.float64)))
        assert error.max() <= 10 * 2.0**-24
        most = 1.1 if mx.cpu_tier() == "amx" else 2.0  # chains of multiply-adds
        assert np.sqrt((error * error).mean()) <= most * 2.0**-24


def both_ways(at: list[Any], kind: str) -> list[np.ndarray]:
    m: Any = "causal" if kind == "causal" else None

    def f(q: Any, k: Any, v: Any) -> Any:
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask=m)

    y, grads = mx.vjp(f, at[:3], [at[3]])
    y = y[0] if isinstance(y, (list, tuple)) else y
    return [np.array(a.astype(mx.float32)) for a in (y, *grads)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("odd", [1e-39, 1e-30, 1e30, np.inf])
def test_attention__of_an_item_is_that_of_the_item_alone(dtype: str, odd: float) -> None:
    """Whatever the numbers of others, of the batch or of other heads, both ways."""
    t = getattr(mx, dtype)
    for place in range(4):
        for group, kind in ((1, "plain"), (2, "causal")):
            rng = np.random.default_rng(place)
            x = [rng.standard_normal((3, h, n, 40)) for h, n in ((2 * group, 130), (2, 170), (2, 170), (2 * group, 130))]
            x[place][1, 0, 77, 3] = odd
            at = [mx.array(a, dtype=mx.float64).astype(t) for a in x]
            all_of = both_ways(at, kind)
            for item in range(3):
                alone = both_ways([a[item : item + 1] for a in at], kind)
                for a, b in zip(all_of, alone, strict=True):
                    np.testing.assert_array_equal(a[item : item + 1], b)
            head = both_ways([a[:, a.shape[1] // 2 :] for a in at], kind)
            for a, b in zip(all_of, head, strict=True):
                np.testing.assert_array_equal(a[:, a.shape[1] // 2 :], b)


def test_attention__of_few_queries_is_that_of_the_item_alone() -> None:
    """Beyond 24 MB keys are asked for ahead: that changes no bit."""
    rng = np.random.default_rng(6)
    q = mx.array(rng.standard_normal((4, 8, 1, 64)).astype(np.float32))
    k, v = (mx.array(rng.standard_normal((4, 8, 3200, 64)).astype(np.float32)) for _ in range(2))
    y = np.array(mx.fast.scaled_dot_product_attention(q, k, v, scale=0.125))
    for i in range(4):
        one = mx.fast.scaled_dot_product_attention(q[i : i + 1], k[i : i + 1], v[i : i + 1], scale=0.125)
        np.testing.assert_array_equal(y[i : i + 1], np.array(one))
