# SPDX-License-Identifier: Apache-2.0
"""Random words that are made inside what reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import marram.core as mx
import numpy as np
import pytest

R = mx.random
FEW, MANY = 2048, 1 << 21  # of words: a tile's, and more than caches hold
ROW = 3 * 4096  # points of a row whose words are all at hand
UNEVEN = 1 << 17  # and of one whose halves may end inside of a block
TURNS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: Any, c0: Any, c1: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds, after the paper."""
    k = [np.uint32(key[0]), np.uint32(key[1])]
    k.append(k[0] ^ k[1] ^ np.uint32(0x1BD11BDA))
    with np.errstate(over="ignore"):
        x0, x1 = c0 + k[0], c1 + k[1]
        for i in range(5):
            for r in TURNS[i % 2]:
                x0 = x0 + x1
                x1 = ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))) ^ x0
            x0, x1 = x0 + k[(i + 1) % 3], x1 + k[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1


def words(key: mx.array, n: int) -> Any:
    """The stream of n words of a key."""
    k, h = np.array(key), n // 2
    i = np.arange(h, dtype=np.uint32)
    low, high = threefry(k, i, i + np.uint32(n - h))
    middle = [threefry(k, np.uint32([h]), np.uint32([0]))[0]] if n % 2 else []
    return np.concatenate([low, *middle, high])


def unit(key: mx.array, n: int) -> Any:
    u = words(key, n).astype("f4") / np.float32(2**32)
    return np.minimum(u, np.float32(1 - 2**-24))


def bits(x: mx.array) -> bytes:
    return np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x).tobytes()


@contextmanager
def mode(name: str) -> Iterator[None]:
    mx.set_compile_mode(name)
    try:
        yield
    finally:
        mx.set_compile_mode("enabled")


def alone(f: Callable[..., Any], *args: Any) -> Any:
    """Each operator by itself."""
    with mode("no_fuse"):
        y = mx.compile(lambda *a: f(*a))(*args)
        mx.eval(y)
    return y


def same(f: Callable[..., mx.array], *args: Any) -> str:
    want = alone(f, *args)
    g = mx.compile(f)
    for got in (f(*args), g(*args), g(*args)):
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        assert bits(got) == bits(want)
    return g.explain()


def dropout(k: mx.array, x: mx.array) -> mx.array:
    return mx.where(R.bernoulli(0.75, x.shape, key=k), x * (1 / 0.75), 0.0)


KEY = R.key(2**40 + 5)
SIZES = [1, 2, 3, 7, 100, 1001, 2047, FEW, FEW + 1, 4097, (1 << 16) + 3, MANY - 1, MANY, MANY + 1, MANY + 2, MANY + 2049]


@pytest.mark.parametrize("n", SIZES)
def test_draws__are_the_words_of_the_stream(n: int) -> None:
    u = unit(KEY, n)
    x = mx.arange(n, dtype=mx.float32) % 251
    for f, want in (
        (lambda k: R.uniform(shape=(n,), key=k), u),
        (lambda k: R.uniform(shape=(n,), key=k) * 2 - 1, u * np.float32(2) - np.float32(1)),
        (lambda k: R.bernoulli(0.25, (n,), key=k), words(KEY, n).astype("f4") < np.float32(0.25) * np.float32(4294967808.0)),
        (lambda k: R.randint(0, 64, (n,), key=k), np.floor(u * np.float32(64)).astype("i4")),
        (
            lambda k: dropout(k, x),
            np.where(
                words(KEY, n).astype("f4") < np.float32(0.75 * 4294967808.0), np.array(x) * np.float32(1 / 0.75), np.float32(0)
            ),
        ),
    ):
        g = mx.compile(f)
        for got in (f(KEY), g(KEY), g(KEY)):
            np.testing.assert_array_equal(np.array(got), want)
        assert "fused random words" in g.explain()
        assert "random_bits  [kernel]" not in g.explain()


DRAWS: dict[str, Callable[[mx.array, tuple[int, ...]], mx.array]] = {
    "uniform float32": lambda k, s: R.uniform(-2.0, 3.0, s, key=k),
    "uniform float16": lambda k, s: R.uniform(shape=s, dtype=mx.float16, key=k),
    "uniform bfloat16": lambda k, s: R.uniform(-1.0, 1.0, s, dtype=mx.bfloat16, key=k),
    "normal float32": lambda k, s: R.normal(s, loc=1.0, scale=2.0, key=k),
    "normal float16": lambda k, s: R.normal(s, dtype=mx.float16, key=k),
    "normal to bfloat16": lambda k, s: R.normal(s, key=k).astype(mx.bfloat16),
    "normal complex64": lambda k, s: R.normal(s, dtype=mx.complex64, key=k),
    "bernoulli": lambda k, s: R.bernoulli(0.3, s, key=k),
    "randint uint8": lambda k, s: R.randint(0, 200, s, dtype=mx.uint8, key=k),
    "randint int64": lambda k, s: R.randint(-5, 9, s, dtype=mx.int64, key=k),
    "truncated_normal": lambda k, s: R.truncated_normal(-1.0, 2.0, s, key=k),
    "gumbel": lambda k, s: R.gumbel(s, key=k),
    "laplace": lambda k, s: R.laplace(s, key=k),
}


@pytest.mark.parametrize("what", DRAWS)
def test_draws__of_each_kind_and_dtype(what: str) -> None:
    draw = DRAWS[what]
    for shape in ((), (1,), (3,), (40, 51), (7, 11, 13), (MANY + 1,), (2, 1025, 1025)):
        same(lambda k, shape=shape: draw(k, shape), KEY)


@pytest.mark.parametrize("shape", [(3, 5), (40, 51), (2050, 1026), (2, 1030, 1030), (1031, 2062), (MANY + 7, 1)])
def test_draws__beside_operands_that_lie_anyhow(shape: tuple[int, ...]) -> None:
    n = int(np.prod(shape))
    wide = (mx.arange(2 * n, dtype=mx.float32) % 1000).reshape(*shape[:-1], 2 * shape[-1])
    turned = (mx.arange(n, dtype=mx.float32) % 777).reshape(*shape[::-1]).T
    operands = {
        "row": wide[(0,) * (len(shape) - 1)][: shape[-1]],
        "column": wide[..., :1],
        "every other": wide[..., ::2],
        "turned": turned,
        "back": wide[..., : shape[-1]][::-1],
        "one": mx.array(3.0),
    }
    mx.eval(operands)
    for x in operands.values():
        text = same(lambda k, x: R.uniform(shape=shape, key=k) * x + 1.0, KEY, x)
    assert ("fused random words" in text) == (n <= FEW or shape[0] % 2 == 0 or shape[1] == 1)
    same(lambda k, x: mx.abs(R.uniform(shape=shape, key=k).T + x.T), KEY, turned)
    same(lambda k: R.uniform(shape=shape, key=k)[None] + mx.ones((2, *shape)), KEY)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (300,), (2049,), (6, 40), (7, 40), (700001,), (700002,), (2, 350001)])
def test_draws__of_several_keys(shape: tuple[int, ...]) -> None:
    keys = R.split(KEY, 3)
    lies = {"straight": keys, "back": keys[::-1], "apart": mx.contiguous(keys.T).T, "one": keys[:1]}
    mx.eval(lies)
    for ks in lies.values():
        f = mx.vmap(lambda k: R.uniform(shape=shape, key=k) * 3.0)
        same(f, ks)
        for row, k in zip(f(ks), ks, strict=True):
            assert bits(row) == bits(R.uniform(shape=shape, key=k) * 3.0)
    if shape != () and shape[-1] < 1000:
        nested = mx.stack([keys, keys + 1])
        same(mx.vmap(mx.vmap(lambda k: R.uniform(shape=shape, key=k) * 3.0)), nested)


def test_draws__several_in_one_kernel() -> None:
    for shape in ((9,), (MANY + 3,), (2, 1025, 1025)):
        a, b = R.split(KEY)
        text = same(lambda k, a, b, s=shape: R.uniform(shape=s, key=a) - R.normal(s, key=b) * R.uniform(shape=s, key=k), KEY, a, b)
        assert "fused random words, random words, random words" in text


@pytest.mark.parametrize("n", [6, 1000, MANY + 5])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_draws__a_mask_that_is_seen_is_the_one_used(n: int, dtype: str) -> None:
    x = (mx.arange(n) % 5 + 1).astype(getattr(mx, dtype))

    def both(k: mx.array, x: mx.array) -> list[mx.array]:
        mask = R.bernoulli(0.5, x.shape, key=k)
        return [mask, mx.where(mask, x, 0), mx.where(mask, 0, x)]

    want = alone(both, KEY, x)
    for got in (both(KEY, x), mx.compile(both)(KEY, x)):
        mx.eval(got)
        assert [bits(g) for g in got] == [bits(w) for w in want]
    mask, kept, left = both(KEY, x)
    assert bits(left) == bits(want[2])
    assert bits(kept) == bits(want[1])
    assert bits(mask) == bits(want[0])


@pytest.mark.parametrize("shape", [(7,), (2048, 1026)])
def test_draws__gradients_meet_the_same_mask(shape: tuple[int, ...]) -> None:
    x = mx.arange(int(np.prod(shape)), dtype=mx.float32).reshape(shape) % 13

    def loss(x: mx.array, k: mx.array) -> mx.array:
        return (dropout(k, x * 2.0) * mx.sin(x)).sum()

    want = alone(mx.grad(loss), x, KEY)
    assert bits(mx.grad(loss)(x, KEY)) == bits(want)
    assert bits(mx.compile(mx.grad(loss))(x, KEY)) == bits(want)
    kept = np.array(R.bernoulli(0.75, shape, key=KEY))
    assert (np.array(mx.grad(lambda x: dropout(KEY, x).sum())(x)) != 0).tolist() == kept.tolist()


def test_draws__shapeless() -> None:
    f = mx.compile(dropout, shapeless=True)
    for n in (5, 100, 3000, MANY, MANY + 3, 2):
        x = mx.arange(n, dtype=mx.float32)
        assert bits(f(KEY, x)) == bits(alone(dropout, KEY, x))


def test_draws__keys_are_not_written_over() -> None:
    for shape in ((2,), (1, 2)):
        for f in (
            lambda k, s=shape: R.uniform(shape=s, key=k * 3),
            lambda k, s=shape: R.randint(0, 9, s, key=k * 3),
            lambda k, s=shape: R.bernoulli(0.5, s, key=k * 3).astype(mx.uint32) + (k * 3),
        ):
            same(f, KEY)


def test_draws__from_the_threads_own_keys() -> None:
    def draw() -> list[bytes]:
        R.seed(17)
        return [bits(R.uniform(shape=(n,)) * 2.0) for n in (3, 5000, MANY + 1)]

    want = draw()
    f = mx.compile(lambda x: R.uniform(shape=x.shape) * 2.0, inputs=R.state, outputs=R.state)
    R.seed(17)
    assert [bits(f(mx.zeros((n,)))) for n in (3, 5000, MANY + 1)] == want


def explained(f: Callable[..., Any], *args: mx.array) -> str:
    g = mx.compile(f)
    mx.eval(g(*args))
    return g.explain()


def test_draws__explain_says_why_not() -> None:
    x = mx.ones((2048, 1026))
    for reason, text in {
        "their first axis is odd": explained(lambda k: R.uniform(shape=(2049, 1030), key=k), KEY),
        "their keys have several axes": explained(
            mx.vmap(mx.vmap(lambda k: R.uniform(shape=(3,), key=k))), R.split(KEY, 4).reshape(2, 2, 2)
        ),
        "it reduces leading axes": explained(lambda k: R.bits((20, 10), key=k).sum(0), KEY),
        "its rows are long": explained(lambda k: R.uniform(shape=(4, ROW + 2), key=k).sum(-1), KEY),
        "goes over long rows again": explained(lambda k: R.uniform(shape=(ROW + 1,), key=k).var(), KEY),
        "over long rows again, and": explained(lambda k: mx.logsumexp(R.uniform(shape=(ROW + 1,), key=k)), KEY),
        "halves are no whole blocks": explained(lambda k: R.uniform(shape=(UNEVEN - 1,), key=k).max(), KEY),
        "the axis of their keys": explained(lambda k: mx.vmap(lambda k: R.uniform(shape=(900,), key=k))(k).mean(), R.split(KEY, 3)),
        "others read the words too": explained(lambda k: [w := R.bits((40,), key=k), mx.abs(w + 1)], KEY),
    }.items():
        assert reason in text, text
        assert "random_bits  [kernel]" in text
    text = explained(lambda k, x, w: dropout(k, x @ w), KEY, x, mx.ones((1026, 1026)))
    assert "in pairs half of the points apart" in text
    assert "fused random words" in text


# ---- reductions and products

OVER_ROWS: dict[str, Callable[[mx.array], mx.array]] = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1, keepdims=True),
    "argmax": lambda x: x.argmax(-1),
    "mean of all": lambda x: x.mean(),
    "softmax": lambda x: mx.softmax(x, -1),
    "logsumexp": lambda x: mx.logsumexp(x, -1),
    "formula": lambda x: mx.exp(x - x.max(-1, keepdims=True)) / mx.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True),
    "norm": lambda x: (x - x.mean(-1, keepdims=True)) * mx.rsqrt(x.var(-1, keepdims=True) + 1e-5),
    "columns": lambda x: x.sum(0),
}
ROWS = [(4, 100), (6, 1000), (7, 1000), (64, 33), (300, 5), (10, 2048), (10, 2049), (6, 5000)]
ROWS += [(4, ROW + 8), (1, 20000), (2, 3, 700)]


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_draws__of_rows_that_are_reduced(shape: tuple[int, ...], dtype: str) -> None:
    x = (mx.arange(int(np.prod(shape)), dtype=mx.float32) % 251 / 50).astype(getattr(mx, dtype)).reshape(shape)
    turned = mx.contiguous(x.T).T
    mx.eval(turned)
    for what, over in OVER_ROWS.items():
        text = same(lambda k, x, over=over: over(dropout(k, x)), KEY, x)
        if what == "mean of all":
            drawn = x.size <= ROW
        elif what in ("softmax", "columns"):
            drawn = shape[0] in (1, *range(0, 999, 2))
        else:
            drawn = shape[0] in (1, *range(0, 999, 2)) and shape[-1] <= ROW
        assert ("fused random words" in text) == drawn, (what, text)
        same(lambda k, x, over=over: over(dropout(k, x)), KEY, turned)
    same(lambda k, x: dropout(k, x * mx.rsqrt((x * x).mean(-1, keepdims=True))).sum(-1), KEY, turned)


@pytest.mark.parametrize("n", [1, 5, 2048, 2049, 8192, ROW, ROW + 1, 16384, 40001, 100000, UNEVEN + 2, (1 << 20) + 1])
def test_draws__means_over_samples(n: int) -> None:
    even = n % 8192 == 0 or n >= UNEVEN
    for f in (
        lambda k: mx.mean(mx.exp(-R.uniform(shape=(n,), key=k))),
        lambda k: mx.sum(R.uniform(shape=(n,), key=k) ** 2 + R.normal((n,), key=k + 1) < 1.0),
        lambda k: mx.max(R.normal((n,), key=k)),
        lambda k: mx.argmin(R.normal((1, n), key=k) * 2.0, -1),
    ):
        assert ("fused random words" in same(f, KEY)) == (n <= ROW or even)
    text = same(lambda k: mx.var(R.uniform(shape=(n,), key=k)), KEY)
    assert ("fused random words" in text) == (n <= ROW or (even and n > 65536))
    u = unit(KEY, n)
    assert abs(mx.mean(R.uniform(shape=(n,), key=KEY)).item() - u.mean(dtype="f8")) < 1e-6
    if n <= 1 << 17:
        keys = R.split(KEY, 6)
        f = mx.vmap(lambda k: mx.mean(mx.exp(-R.uniform(shape=(n,), key=k))))
        assert ("fused random words" in same(f, keys)) == (n <= ROW or n % 8192 == 0)
        for row, k in zip(f(keys), keys, strict=True):
            assert bits(row) == bits(mx.mean(mx.exp(-R.uniform(shape=(n,), key=k))))


@pytest.mark.parametrize("rows", [2, 40, 41, 512])
def test_draws__behind_products(rows: int) -> None:
    x, w, b = (mx.arange(np.prod(s), dtype=mx.float32).reshape(s) % 7 / 9 for s in ((rows, 96), (96, 80), (80,)))
    mx.eval(x, w, b)
    for f in (
        lambda k, x, w, b: dropout(k, x @ w),
        lambda k, x, w, b: dropout(k, mx.maximum(mx.addmm(b, x, w), 0.0)),
        lambda k, x, w, b: dropout(k, x @ w + b) + x[:, :80],
        lambda k, x, w, b: mx.softmax(dropout(k, x @ w + b), -1),
        lambda k, x, w, b: dropout(k, x @ w + b).mean(-1),
    ):
        text = same(f, KEY, x, w, b)
        assert ("fused random words" in text) == (rows % 2 == 0)


def a_network(rng: Any) -> tuple[Callable[..., mx.array], list[mx.array]]:
    """Layers with dropout in between, drawn from one key, and their loss."""
    rows, width = int(rng.integers(1, 70)), int(rng.choice([8, 33, 64, 130, 1000]))
    kinds = [str(k) for k in rng.choice(["linear", "drop", "norm", "softmax", "noise", "residual"], int(rng.integers(3, 7)))]
    p = float(rng.uniform(0.3, 0.95))
    weights = [mx.array((rng.standard_normal((width, width)) / np.sqrt(width)).astype("f4")) for _ in kinds]
    x = mx.array(rng.standard_normal((rows, width)).astype("f4"))

    def loss(weights: list[mx.array], key: mx.array, x: mx.array) -> mx.array:
        y = x
        for kind, w, k in zip(kinds, weights, R.split(key, len(kinds)), strict=True):
            if kind == "linear":
                y = mx.maximum(y @ w, 0.0)
            elif kind == "drop":
                y = mx.where(R.bernoulli(p, y.shape, key=k), y / p, 0.0)
            elif kind == "norm":
                y = (y - y.mean(-1, keepdims=True)) * mx.rsqrt(y.var(-1, keepdims=True) + 1e-5)
            elif kind == "softmax":
                y = mx.softmax(mx.where(R.bernoulli(p, y.shape, key=k), y, -1e4), -1)
            elif kind == "noise":
                y = y + 0.1 * R.normal(y.shape, key=k)
            else:
                y = y + mx.where(R.bernoulli(p, y.shape, key=k), mx.sin(y @ w), 0.0)
        return mx.mean(mx.square(y))

    return loss, [weights, R.key(int(rng.integers(1 << 40))), x]


@pytest.mark.parametrize("seed", range(24))
def test_draws__training_steps_are_the_same_compiled(seed: int) -> None:
    loss, args = a_network(np.random.default_rng(seed))

    def step(weights: list[mx.array], key: mx.array, x: mx.array) -> list[mx.array]:
        value, grads = mx.value_and_grad(loss)(weights, key, x)
        return [value, *(w - 0.1 * g for w, g in zip(weights, grads, strict=True))]

    want = [bits(w) for w in alone(step, *args)]
    g = mx.compile(step)
    for _ in range(3):
        assert [bits(w) for w in g(*args)] == want
    assert [bits(w) for w in step(*args)] == want


CODE = """
import marram.core as mx, numpy as np, hashlib
h = hashlib.sha256()
R, key = mx.random, mx.random.key(5)
def bits(x):
    return np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x).tobytes()
for n in (1, 3, 2048, 40001, (1 << 21) + 5):
    x = mx.arange(n, dtype=mx.float32) % 9
    for f in (lambda k, x: mx.where(R.bernoulli(0.9, x.shape, key=k), x / 0.9, 0.0),
              lambda k, x: R.uniform(shape=x.shape, key=k) * 2 - 1,
              lambda k, x: R.normal(x.shape, key=k).astype(mx.bfloat16)):
        for g in (f, mx.compile(f)):
            h.update(bits(g(key, x)))
            h.update(bits(g(key, x)))
for s in ((40, 1000), (1000, 6), (4, 9001), (1, 300001)):
    x = mx.arange(s[0] * s[1], dtype=mx.float32).reshape(s) % 9
    drop = lambda k, x: mx.where(R.bernoulli(0.9, x.shape, key=k), x / 0.9, 0.0)
    for f in (lambda k, x: drop(k, x).sum(-1),
              lambda k, x: mx.exp(drop(k, x) - x.max(-1, keepdims=True)).mean(-1),
              lambda k, x: drop(k, x) - drop(k, x).mean(-1, keepdims=True)):
        for g in (f, mx.compile(f)):
            h.update(bits(g(key, x)))
            h.update(bits(g(key, x)))
h.update(bits(mx.compile(lambda k, b: R.uniform(shape=(2048, 1026), key=k) + b)(key, mx.arange(1026))))
print(h.hexdigest())
"""


def test_draws__give_equal_bits_on_all_tiers_and_any_number_of_threads() -> None:
    def digest(**more: str) -> str:
        r = subprocess.run([sys.executable, "-c", CODE], env={**os.environ, **more}, capture_output=True, text=True, check=True)
        return r.stdout

    want = digest(MARRAM_JIT="off", MARRAM_NUM_THREADS="1")
    assert digest(MARRAM_JIT="now", MARRAM_NUM_THREADS="2") == want
    assert digest(MARRAM_JIT="now", MARRAM_NUM_THREADS="1", MARRAM_CPU="avx2") == want
    assert digest(MARRAM_JIT="off", MARRAM_NUM_THREADS="5", MARRAM_CPU="avx2") == want
    assert digest(MARRAM_COMPILE="no_fuse") == want
