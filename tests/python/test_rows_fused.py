# SPDX-License-Identifier: Apache-2.0
"""Rows in one step: what follows a reduction of them, what is read of them by an index, what is put into them."""

from __future__ import annotations

import os
import subprocess
import sys

import marram.core as mx
import numpy as np
import pytest

RNG = np.random.default_rng(11)
SHAPES = [(64, 1000), (3, 5000), (7, 100), (300, 17), (2, 40000), (1, 33), (130, 1), (5, 4, 64)]
INDEX_DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def bits(x: mx.array) -> bytes:
    return bytes(memoryview(np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x)))


def logits(shape: tuple[int, ...], dtype: str = "float32") -> mx.array:
    return mx.array(RNG.standard_normal(shape).astype("f4") * 4).astype(getattr(mx, dtype))


def targets(shape: tuple[int, ...], dtype: str = "int32") -> mx.array:
    n = min(shape[-1], 127)
    return mx.array(RNG.integers(0 if dtype.startswith("u") else -n, n, shape[:-1]).astype(dtype))


def losses(x: mx.array, t: mx.array) -> mx.array:
    picked = mx.take_along_axis(x, mx.expand_dims(t, -1), axis=-1)
    return mx.logsumexp(x, axis=-1) - mx.squeeze(picked, -1)


def loss(x: mx.array, t: mx.array) -> mx.array:
    return losses(x, t).mean()


def alone(f, *args):
    """Each operator by itself."""
    before = mx.set_compile_mode("no_fuse")
    try:
        got = mx.compile(lambda *a: f(*a))(*args)
        mx.eval(got)
    finally:
        mx.set_compile_mode(before)
    return got


def flat(x) -> list[mx.array]:
    return [a for y in x for a in flat(y)] if isinstance(x, (list, tuple)) else [x]


def same_bits(f, *args) -> str:
    """Eager, compiled and each operator alone; what explain says."""
    g = mx.compile(lambda *a: f(*a))
    want = flat(alone(f, *args))
    for got in (flat(f(*args)), flat(g(*args))):
        assert [x.shape for x in got] == [x.shape for x in want]
        assert [bits(x) for x in got] == [bits(x) for x in want]
    return g.explain()


def steps(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith("    ") and line.strip().partition(":")[0].isdigit()]


# ---- cross entropy -----------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy__fused_is_unfused(shape: tuple[int, ...], dtype: str) -> None:
    x, t = logits(shape, dtype), targets(shape)
    for f in (losses, loss, mx.grad(loss), mx.value_and_grad(loss), mx.grad(lambda a, b: losses(a, b).sum())):
        same_bits(f, x, t)


def test_cross_entropy__is_right() -> None:
    x, t = logits((40, 300)), targets((40, 300))
    a, i = np.array(x, dtype="f8"), np.array(t)
    top = a.max(axis=1, keepdims=True)
    p = np.exp(a - top)
    p /= p.sum(axis=1, keepdims=True)
    want = -np.log(np.take_along_axis(p, i[:, None] % 300, 1)).mean()
    np.put_along_axis(p, i[:, None] % 300, np.take_along_axis(p, i[:, None] % 300, 1) - 1, 1)
    value, slope = mx.compile(mx.value_and_grad(loss))(x, t)
    assert abs(value.item() - want) < 1e-5
    np.testing.assert_allclose(np.array(slope), p / 40, atol=1e-7)


def test_cross_entropy__losses_are_one_step() -> None:
    x, t = logits((64, 1000)), targets((64, 1000))
    text = same_bits(losses, x, t)
    assert len(steps(text)) == 1 and "fused gather, logsumexp, subtract" in steps(text)[0]


def test_cross_entropy__its_mean_is_a_step_over_the_losses() -> None:
    text = same_bits(loss, logits((64, 1000)), targets((64, 1000)))
    assert [s[: s.index("[")].strip() for s in steps(text)] == [
        "0: fused gather, logsumexp, subtract (2 passes over each row)", "1: fused mean"]


def test_cross_entropy__gradient_is_one_step() -> None:
    text = same_bits(mx.grad(loss), logits((64, 1000)), targets((64, 1000)))
    assert len(steps(text)) == 1 and "fused put, logsumexp" in steps(text)[0]


def test_cross_entropy__value_and_gradient_read_the_logits_in_one_step() -> None:
    text = same_bits(mx.value_and_grad(loss), logits((64, 1000)), targets((64, 1000)))
    assert len(steps(text)) == 2
    assert "fused put, logsumexp" in steps(text)[0] and "fused gather, subtract, mean" in steps(text)[1]


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_cross_entropy__targets_of_any_integer_dtype(dtype: str) -> None:
    x, t = logits((33, 200)), targets((33, 200), dtype)
    same_bits(mx.value_and_grad(loss), x, t)


@pytest.mark.parametrize("turn", [lambda x: x.T, lambda x: x[::2], lambda x: x[:, ::3], lambda x: x[::-1, ::-1]])
def test_cross_entropy__logits_that_lie_otherwise(turn) -> None:
    x = turn(logits((300, 300)))
    t = mx.array(RNG.integers(0, x.shape[1], x.shape[0]).astype("i4"))
    for f in (losses, mx.grad(loss), mx.value_and_grad(loss)):
        same_bits(f, x, t)


def test_cross_entropy__weights_and_padding() -> None:
    x, t = logits((65, 700)), targets((65, 700))
    w = mx.array(RNG.random(65).astype("f4")) * (mx.arange(65) % 3 > 0)
    same_bits(mx.value_and_grad(lambda a: (losses(a, t) * w).sum() / w.sum()), x)
    same_bits(mx.value_and_grad(lambda a, b: (losses(a, t) * b).sum(), argnums=[0, 1]), x, w)


def test_cross_entropy__infinities_and_nan() -> None:
    a = RNG.standard_normal((8, 100)).astype("f4")
    a[0, 3], a[1, 5], a[2, :], a[3, 9] = np.inf, -np.inf, -np.inf, np.nan
    same_bits(mx.value_and_grad(loss), mx.array(a), mx.array([3, 5, 7, 9, -1, -100, 99, 0]))


# ---- indices out of range ------------------------------------------------------
@pytest.mark.parametrize("bad", [1000, -1001])
@pytest.mark.parametrize("f", [losses, mx.grad(loss), mx.value_and_grad(loss)])
def test_cross_entropy__target_out_of_range(f, bad: int) -> None:
    x, t = logits((64, 1000)), mx.array(np.r_[np.zeros(63), bad].astype("i4"))
    for g in (f, mx.compile(lambda *a: f(*a))):
        with pytest.raises(IndexError, match=str(bad)):
            mx.eval(g(x, t))


# ---- what is put -----------------------------------------------------------------
def test_put__minus_zero_is_added_to_zero() -> None:
    x, t = logits((4, 50)), targets((4, 50))
    c = mx.array([-0.0, 0.0, -1.0, 2.0])

    def f(a: mx.array) -> mx.array:
        y = mx.take_along_axis(a, t[:, None], axis=-1)[:, 0]
        return (y * c).sum() + (a - a.max(axis=-1, keepdims=True)).sum() * 0

    same_bits(mx.grad(f), x)


def test_put__in_place_of_zeros() -> None:
    x, t = logits((9, 80)), targets((9, 80))

    def f(a: mx.array, v: mx.array) -> mx.array:
        y = mx.jvp(lambda u: mx.put_along_axis(mx.ones((9, 80)), t[:, None], u, axis=-1), [v[:, None]], [v[:, None]])[1][0]
        return mx.copysign(a - a.mean(axis=-1, keepdims=True), y) + y

    text = same_bits(f, x, mx.array([-0.0, 1, 2, 3, np.nan, np.inf, -np.inf, 4, 5]))
    assert len(steps(text)) == 1


def test_put__several_a_row_are_not_joined() -> None:
    x = logits((9, 80))
    t = mx.array(RNG.integers(0, 3, (9, 4)).astype("i4"))

    def f(a: mx.array, i: mx.array) -> mx.array:
        return (mx.logsumexp(a, axis=-1, keepdims=True) - mx.take_along_axis(a, i, axis=-1)).sum()

    text = same_bits(mx.grad(f), x, t)
    assert "put_along_axis  [kernel]" in text and "one entry of each row" in text


# ---- what follows a reduction -----------------------------------------------------
ENDS = {
    "norm": lambda x: mx.sqrt(mx.sum(mx.square(x), axis=-1)),
    "norm, kept": lambda x: mx.sqrt(mx.sum(mx.square(x), axis=-1, keepdims=True)),
    "scale": lambda x: mx.rsqrt(mx.mean(mx.square(x), axis=-1) + 1e-5) * 3,
    "seen twice": lambda x: (lambda s: s * s + 1)(mx.sum(x, axis=-1)),
    "two reductions": lambda x: mx.max(x, axis=-1) - mx.min(x, axis=-1),
    "other rows": lambda x: mx.sum(x, axis=-1) * mx.arange(x.shape[0], dtype=mx.float32) + 2,
    "argmax": lambda x: mx.argmax(x * 2, axis=-1) + 1,
    "all": lambda x: mx.sqrt(mx.mean(mx.square(x))),
    "mean of rows": lambda x: mx.mean(mx.log(mx.sum(mx.exp(x), axis=-1))),
    "broadcast back": lambda x: x - mx.logsumexp(x, axis=-1)[:, None],
    "both": lambda x: (lambda s: [x / s[:, None], s + 1])(mx.sum(x * x, axis=-1)),
    "columns": lambda x: mx.sqrt(mx.sum(mx.square(x), axis=0)),
    "turned": lambda x: mx.sqrt(mx.sum(x * x, axis=-1))[None, :] + 1,
    "picked": lambda x: mx.max(x, axis=-1) + x[:, 3],
    "picked twice": lambda x: mx.max(x, axis=-1) + mx.take_along_axis(
        x, mx.full((x.shape[0], 1), 2), axis=1)[:, 0] * mx.take_along_axis(x, mx.full((x.shape[0], 1), 5), axis=1)[:, 0],
}


@pytest.mark.parametrize("shape", [(64, 1000), (3, 9000), (40, 17), (7, 70000), (1, 64)])
@pytest.mark.parametrize("name", ENDS)
def test_rows__what_follows_a_reduction_is_unfused(name: str, shape: tuple[int, int]) -> None:
    same_bits(ENDS[name], logits(shape))


@pytest.mark.parametrize("name", ["norm", "norm, kept", "scale", "argmax", "broadcast back", "two reductions"])
def test_rows__what_follows_a_reduction_is_its_step(name: str) -> None:
    assert len(steps(same_bits(ENDS[name], logits((64, 1000))))) == 1


def test_rows__axes_in_the_middle_and_several() -> None:
    x = logits((3, 40, 5, 64))
    same_bits(lambda a: mx.sqrt(mx.sum(a * a, axis=(2, 3))), x)
    same_bits(lambda a: a / mx.sqrt(mx.sum(a * a, axis=(2, 3)))[:, :, None, None], x)
    same_bits(lambda a: mx.sqrt(mx.sum(a * a, axis=1)) + 1, x)
    same_bits(lambda a: mx.sqrt(mx.sum(a * a, axis=-1)).transpose(1, 0, 2) + 1, x)


# ---- every tier, any number of threads -----------------------------------------------
PROGRAM = """
import hashlib
import marram.core as mx, numpy as np
rng = np.random.default_rng(3)
h = hashlib.sha256()
def loss(x, t):
    return (mx.logsumexp(x, axis=-1) - mx.take_along_axis(x, t[:, None], axis=-1)[:, 0]).mean()
for shape in ((64, 1000), (3, 9000), (300, 17)):
    for dtype in (mx.float32, mx.bfloat16):
        x = mx.array(rng.standard_normal(shape).astype("f4")).astype(dtype)
        t = mx.array(rng.integers(0, shape[1], shape[0]).astype("i4"))
        for _ in range(2):
            v, g = mx.compile(mx.value_and_grad(loss))(x, t)
            h.update(bytes(memoryview(np.array(g.astype(mx.float32)))) + bytes(memoryview(np.array(v.astype(mx.float32)))))
print(h.hexdigest())
"""


def test_cross_entropy__same_bits_on_every_tier_and_any_threads() -> None:
    def digest(**env: str) -> str:
        return subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **env}, capture_output=True, text=True,
                              check=True).stdout

    want = digest(MARRAM_JIT="off")
    assert digest(MARRAM_JIT="now") == want
    assert digest(MARRAM_NUM_THREADS="1") == want
    assert digest(MARRAM_NUM_THREADS="7") == want
    if "avx2" in open("/proc/cpuinfo", encoding="utf-8").read():
        assert digest(MARRAM_CPU="avx2") == want
