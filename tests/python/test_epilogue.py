"""What follows a product in one kernel with it has the bits of what runs step by step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import epilogue_programs
import marram.core as mx
import numpy as np
import pytest

HERE = Path(__file__).parent
SEEDS = 60


@pytest.mark.parametrize("kind", list(epilogue_programs.KINDS))
def test_joined__has_the_bits_of_step_by_step(kind: str) -> None:
    epilogue_programs.check([kind], 0, SEEDS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NUM_THREADS", "1"),
        ("NUM_THREADS", "2"),
        ("NUM_THREADS", "5"),
        ("CPU", "baseline"),
        ("CPU", "avx2"),
        ("JIT", "now"),
        ("BLAS", "none"),
    ],
)
def test_joined__has_them_with_any_number_of_threads_and_tier(name: str, value: str) -> None:
    env = dict(os.environ, **{f"MARRAM_{name}": value})
    done = subprocess.run(
        [sys.executable, str(HERE / "epilogue_programs.py"), str(SEEDS), str(SEEDS + 25)],
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_joined__is_right() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((130, 70)).astype(np.float32), rng.standard_normal((70, 210)).astype(np.float32)
    bias, rows = rng.standard_normal(210).astype(np.float32), rng.standard_normal((130, 1)).astype(np.float32)
    y = mx.maximum(mx.array(a) @ mx.array(b) + mx.array(bias), 0) * mx.array(rows)
    want = np.maximum(a.astype(np.float64) @ b + bias, 0) * rows
    np.testing.assert_allclose(np.array(y), want, rtol=1e-4, atol=1e-4)


# So large that each block of c is followed while it is in cache; one span of depth and several.
@pytest.mark.parametrize("shape", [(2048, 300, 2048), (1500, 100, 3001), (200, 1300, 11000)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_joined__of_large_products_is_right(shape: tuple[int, int, int], dtype: str) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m)
    a, b, bias = (mx.array(rng.standard_normal(s)).astype(getattr(mx, dtype)) for s in ((m, k), (k, n), (n,)))
    y = np.array((mx.maximum(a @ b + bias, 0) * 2).astype(mx.float32))
    x, w, v = (np.array(z.astype(mx.float32)) for z in (a, b, bias))
    want = np.maximum(x @ w + v, 0) * 2
    assert np.abs(y - want).max() < 1e-2


@pytest.mark.parametrize("activation", [lambda h: mx.maximum(h, 0), mx.tanh, lambda h: h * mx.sigmoid(h)])
def test_gradients__through_joined_layers_have_the_bits_of_step_by_step(activation) -> None:
    rng = np.random.default_rng(5)
    x, w, v, b = (mx.array(rng.standard_normal(s).astype(np.float32)) for s in ((66, 40), (40, 130), (130, 20), (130,)))

    def loss(w, v, b):
        h = activation(x @ w + b)
        return mx.sum(mx.square(h @ v - 0.5))

    def update(w, v, b):
        value, grads = mx.value_and_grad(loss, argnums=(0, 1, 2))(w, v, b)
        return [value, *(p - 0.01 * g for p, g in zip((w, v, b), grads, strict=False))]

    joined = update(w, v, b)
    mx.eval(joined)
    compiled = mx.compile(update)(w, v, b)
    mx.eval(compiled)
    unfused = each_alone(update, w, v, b)
    for got, also, want in zip(joined, compiled, unfused, strict=False):
        assert epilogue_programs.bits(got) == epilogue_programs.bits(want)
        assert epilogue_programs.bits(also) == epilogue_programs.bits(want)


def each_alone(f, *args):
    """The checking mode runs each operator by itself."""
    old = mx.set_check("warn")
    try:
        outs = f(*args)
        mx.eval(outs)
        return outs
    finally:
        mx.set_check(old)


def test_explain__names_what_follows_a_product() -> None:
    f = mx.compile(lambda x, w, b: mx.maximum(x @ w + b, 0))
    mx.eval(f(mx.ones((70, 4)), mx.ones((4, 6)), mx.ones(6)))
    text = f.explain()
    assert "matmul, followed by add, maximum  [kernel]" in text
    assert "1 steps" in text
    assert "not joined" not in text


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda x: mx.sum(mx.square(x @ x), axis=1), "it reduces"),
        (lambda x: mx.tanh((x @ x).T), "read through a view"),
        (lambda x: x @ x + x.T @ x, "it follows another kernel already"),
        (lambda x: mx.tanh(mx.cumsum(x, axis=0)), "which nothing follows piece by piece"),
        (lambda x: x @ (x @ x), "it has a kernel of its own"),
        (lambda x: mx.tanh(mx.reshape(x @ x, (2, 2, 4))), "read through a view"),
        (lambda x: (x @ x[:1].T) + x, "their points differ"),
    ],
)
def test_explain__says_why_nothing_follows(f, why: str) -> None:
    g = mx.compile(f)
    mx.eval(g(mx.ones((4, 4)) * 0.5))
    assert why in g.explain()
