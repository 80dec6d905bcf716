"""What the simplifier does gives the same bits: random graphs, and each law.

Graphs are made of operators that rules look at, over constants that rules look
for, with NaN, infinities, both zeros and subnormal numbers among the values.
"""

from __future__ import annotations

import random

import marram.core as mx
import numpy as np
import pytest

FLOATS = (mx.float32, mx.float16, mx.bfloat16, mx.float64)
INTS = (mx.int32, mx.uint8, mx.int64)
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, 0.1, 65504.0]


def bits(x: mx.array) -> bytes:
    """The bytes of an array, all NaNs alike."""
    if x.dtype == mx.bfloat16:
        x = x.astype(mx.float32)
    a = np.array(x)
    if a.dtype.kind in "fc":
        a = np.where(np.isnan(a), np.nan, a)
    return a.tobytes()


def sample(rng: np.random.Generator, dtype: mx.Dtype, shape: tuple[int, ...]) -> mx.array:
    """Values with the special ones among them."""
    n = int(np.prod(shape))
    if dtype == mx.bool_:
        return mx.array(rng.integers(0, 2, shape).astype(bool))
    if dtype in INTS:
        return mx.array(rng.integers(0, 256, shape)).astype(dtype)
    if dtype == mx.complex64:
        re, im = (sample(rng, mx.float32, shape) for _ in range(2))
        return re + im * mx.array(1j, dtype=mx.complex64)
    with np.errstate(over="ignore"):
        x = rng.standard_normal(n)
        at = rng.integers(0, n, n // 2)
        x[at] = rng.choice(SPECIAL, n // 2)
        return mx.array(x.reshape(shape)).astype(dtype)


def constant(r: random.Random, like: mx.array) -> mx.array:
    """A number that rules look for, as a scalar or as a full array."""
    v: float | int | bool
    if like.dtype == mx.bool_:
        v = r.choice([True, False])
    elif like.dtype in INTS:
        v = r.choice([0, 1, 2, 255])
    else:
        v = r.choice([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 4.0, 3.0, 2.0**-14, 2.0**120])
    c = mx.array(v, dtype=like.dtype)
    return mx.full(like.shape, c, dtype=like.dtype) if r.random() < 0.3 else c


def unary(r: random.Random, x: mx.array) -> mx.array:
    """One operator of one operand."""
    if x.dtype == mx.bool_:
        return mx.logical_not(x)
    ops = [mx.negative, mx.abs, mx.square, lambda v: v]
    if x.dtype in INTS:
        ops.append(mx.bitwise_invert)
    elif x.dtype == mx.complex64:
        ops = [mx.negative, mx.conjugate]
    else:
        ops += [mx.floor, mx.ceil, mx.round, mx.stop_gradient]
        wide = r.choice([mx.float32, mx.float64, mx.float16, mx.bfloat16])
        ops.append(lambda v: v.astype(wide).astype(v.dtype))
    if x.dtype in INTS or x.dtype in FLOATS:
        other = r.choice([mx.int64, mx.int8, mx.float64, mx.float32, mx.uint32])
        if x.dtype in INTS or mx.issubdtype(other, mx.floating):
            ops.append(lambda v: v.astype(other).astype(v.dtype))
    return r.choice(ops)(x)


def binary(r: random.Random, a: mx.array, b: mx.array) -> mx.array:
    """One operator of two operands of a dtype."""
    if a.dtype == mx.bool_:
        return r.choice([mx.logical_and, mx.logical_or, lambda p, q: mx.where(p, q, p)])(a, b)
    ops = [mx.add, mx.subtract, mx.multiply]
    if a.dtype in INTS:
        ops += [mx.bitwise_and, mx.bitwise_or, mx.bitwise_xor]
    else:
        ops.append(mx.divide)
    if a.dtype != mx.complex64:
        ops += [mx.maximum, mx.minimum]
        ops.append(lambda p, q: mx.where(p > q, p, q))
    return r.choice(ops)(a, b)


def view(r: random.Random, x: mx.array) -> mx.array:
    """A chain of views that may lead back to x."""
    n, m = x.shape
    return r.choice([
        lambda: x.T.T,
        lambda: x.reshape(m, n).reshape(n, m),
        lambda: x.reshape(-1).reshape(n, m),
        lambda: x.T.reshape(n, m),
        lambda: mx.expand_dims(x, 0).squeeze(0),
        lambda: mx.contiguous(x),
        lambda: x[::-1][::-1],
        lambda: x.T.reshape(m, n).T,
        lambda: mx.broadcast_to(x[:1], (n, m)),
    ])()  # fmt: skip


def step(r: random.Random, pool: list[mx.array]) -> mx.array:
    """One node more over those of the pool."""
    a = r.choice(pool)
    kind = r.random()
    if kind < 0.3:
        return unary(r, a)
    if kind < 0.45:
        return view(r, a)
    if kind < 0.5 and a.dtype in (mx.float32, mx.float64):
        return (a @ r.choice([x for x in pool if x.dtype == a.dtype]).T) @ a
    if kind < 0.55:
        return binary(r, a, mx.sum(a, axis=r.choice([0, 1]), keepdims=True).astype(a.dtype))
    b = r.choice(pool) if r.random() < 0.5 else constant(r, a)
    a, b = (a, b) if r.random() < 0.7 else (b, a)
    like = a if a.size >= b.size else b
    return binary(r, a, b).astype(like.dtype).reshape(like.shape)


def graph(seed: int, steps: int):
    """The same random function each time it is called."""

    def f(*args: mx.array) -> list[mx.array]:
        r = random.Random(seed)
        pool = list(args)
        for _ in range(steps):
            pool.append(step(r, pool))
        return [*r.sample(pool[len(args) :], 3), pool[-1], args[0] + 0]

    return f


DTYPES = (*FLOATS, *INTS, mx.bool_, mx.complex64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_graphs__equal_eager(dtype: mx.Dtype) -> None:
    rng = np.random.default_rng(11)
    for seed in range(60):
        f = graph(seed, 12)
        shape = (6, 8) if seed % 3 else (40, 30)
        x, y = sample(rng, dtype, shape), sample(rng, dtype, shape)
        if seed % 4 == 0:
            y = sample(rng, dtype, shape[::-1]).T
        want = [bits(v) for v in f(x, y)]
        g = mx.compile(f)
        assert [bits(v) for v in g(x, y)] == want, seed
        assert [bits(v) for v in g(x, y)] == want, seed


def test_common_subexpressions__are_computed_once() -> None:
    def f(x: mx.array) -> mx.array:
        return mx.sort(x / 3.0) + mx.sort(x / 3.0) * mx.sort(x / 3.0)

    x = mx.random.normal((32, 32))
    g = mx.compile(f)
    assert bits(g(x)) == bits(f(x))


def test_two_results__may_be_one() -> None:
    f = mx.compile(lambda x: (mx.exp(x), mx.exp(x), x * 1.0, x.T.T))
    x = mx.random.normal((5, 7))
    a, b, c, d = f(x)
    assert bits(a) == bits(b) == bits(mx.exp(x))
    assert bits(c) == bits(d) == bits(x)


def test_products__keep_their_operands_layouts() -> None:
    """x * 1 is row-major where x may not be, and that is seen in the last bits."""

    def f(x: mx.array, y: mx.array) -> tuple[mx.array, ...]:
        one = mx.ones(x.shape)
        return (
            (x * 1.0) @ y,
            mx.contiguous(x) @ (y + -0.0),
            x.T.reshape(x.shape[::-1]).T @ y,
            mx.full(x.shape, 0.3) @ y,
            (x * one) @ (y / 1.0),
        )

    rng = np.random.default_rng(5)
    for m, k, n in ((40, 56, 33), (1, 80, 70), (2, 80, 70), (70, 80, 1), (170, 179, 175)):
        x = mx.array(rng.standard_normal((k, m)).astype(np.float32)).T
        y = mx.array(rng.standard_normal((n, k)).astype(np.float32)).T
        assert [bits(v) for v in mx.compile(f)(x, y)] == [bits(v) for v in f(x, y)]


def test_results_of_tuples__go_to_their_places() -> None:
    f = mx.compile(lambda x: (*mx.linalg.qr(x), *mx.split(x, 2), mx.linalg.qr(x)[0]))
    x = mx.random.normal((6, 6))
    want = [*mx.linalg.qr(x), *mx.split(x, 2), mx.linalg.qr(x)[0]]
    assert [bits(v) for v in f(x)] == [bits(v) for v in want]


def test_filled_arrays__are_no_constants_of_the_program() -> None:
    n = 1 << 20
    f = mx.compile(lambda x: x + mx.zeros((n,)) * mx.ones((n,)) + mx.full((n,), 2.0))
    x = mx.array([1.0])
    mx.eval(f(x))
    before = mx.get_active_memory()
    assert bits(f(x)[:4]) == bits(mx.array([3.0] * 4))
    assert mx.get_active_memory() - before < n
