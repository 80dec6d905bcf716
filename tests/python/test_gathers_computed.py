# SPDX-License-Identifier: Apache-2.0
"""Gathers whose indices are computed inside of what reads their result."""

from __future__ import annotations

import marram.core as mx
import numpy as np
import pytest

RNG = np.random.default_rng(11)
N = 1 << 16  # fewer indices are written down
INDEX_DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def bits(x: mx.array) -> bytes:
    return bytes(memoryview(np.array(x)))


def table(shape: tuple[int, ...] = (1000,), dtype: str = "float32") -> mx.array:
    return mx.array(RNG.standard_normal(shape).astype("f4")).astype(getattr(mx, dtype))


def ids(shape: tuple[int, ...] = (N,), dtype: str = "int32", top: int = 100) -> mx.array:
    low = 0 if dtype.startswith("u") else -top
    return mx.array(RNG.integers(low, top, shape).astype(dtype))


def same(f, oracle, *args, joined: bool | None = True) -> None:
    """Eager, with the index evaluated first, and compiled: NumPy's values."""
    want = oracle(*[np.array(a) for a in args])
    g = mx.compile(f)
    for got in (f(*args), g(*args), g(*args)):
        assert got.shape == want.shape
        np.testing.assert_array_equal(np.array(got), want)
    if joined is not None:
        assert ("(index:" in g.explain()) is joined, g.explain()


MADE = {
    "affine": (lambda i: (i * 3 + 1) % 1000, lambda i: (i * 3 + 1) % 1000),
    "offset": (lambda i: i + 200, lambda i: i + 200),
    "bits": (lambda i: ((i * 40503) >> 3) & 511, lambda i: ((i * np.int32(40503)) >> 3) & 511),
    "negative": (lambda i: -mx.abs(i) - 1, lambda i: -np.abs(i) - 1),
    "wrapped": (lambda i: mx.where(i < 0, i + 1000, i), lambda i: np.where(i < 0, i + 1000, i)),
    "clipped": (lambda i: mx.clip(i, 0, 7), lambda i: np.clip(i, 0, 7)),
    "squared": (lambda i: (i * i) % 997, lambda i: (i * i) % 997),
    "by float": (lambda i: mx.floor(i * 0.5).astype(mx.int64), lambda i: np.floor(i * np.float32(0.5)).astype("i8")),
    "to bytes": (lambda i: mx.abs(i).astype(mx.uint8), lambda i: np.abs(i).astype("u1")),
}


@pytest.mark.parametrize("name", MADE)
def test_computed_indices__are_computed_in_the_block(name: str) -> None:
    made, oracle = MADE[name]
    t, i = table(), ids()
    same(lambda t, i: t[made(i)] * 2.0, lambda t, i: t[oracle(i)] * np.float32(2), t, i)
    same(lambda t, i: mx.take(t, made(i)) + 1.0, lambda t, i: t[oracle(i)] + np.float32(1), t, i)
    same(lambda t, i: mx.abs(t[made(i)]), lambda t, i: np.abs(t[oracle(i)]), t, i.reshape(64, -1))
    same(lambda t, i: mx.abs(t[made(i)]), lambda t, i: np.abs(t[oracle(i)]), t, i.reshape(64, -1).T)
    same(lambda t, i: mx.abs(t[made(i)]), lambda t, i: np.abs(t[oracle(i)]), t, mx.broadcast_to(i[:1024], (64, 1024)))
    same(lambda t, i: mx.abs(t[made(i)]), lambda t, i: np.abs(t[oracle(i)]), t, mx.concatenate([i, i])[::-2])


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_computed_indices__of_each_dtype(dtype: str) -> None:
    t, i = table(), ids(dtype=dtype)
    two = np.array(2, dtype=dtype)
    same(lambda t, i: mx.abs(t[i // 2]), lambda t, i: np.abs(t[(i // two).astype("i8")]), t, i)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "int64", "float16", "bfloat16", "float64", "complex64", "complex128"])
def test_computed_indices__into_each_dtype(dtype: str) -> None:
    t, i = table(dtype=dtype), ids()
    j = (i * 3 + 1) % 1000
    mx.eval(j)
    other = (lambda x: x != x) if dtype == "bool" else (lambda x: x + x)
    f = lambda t, i: other(t[(i * 3 + 1) % 1000])  # noqa: E731
    want = other(t[j])
    for got in (f(t, i), mx.compile(f)(t, i)):
        assert mx.array_equal(got, want).item()


def test_computed_indices__along_an_axis_and_in_reductions() -> None:
    x, i = table((256, 300)), ids((256, 300), top=150)
    along = lambda x, i: np.take_along_axis(x, (i + 7) % 300, axis=1)  # noqa: E731
    same(lambda x, i: mx.abs(mx.take_along_axis(x, (i + 7) % 300, axis=1)), lambda x, i: np.abs(along(x, i)), x, i)
    same(lambda x, i: mx.take_along_axis(x, (i + 7) % 300, axis=1).max(axis=1), lambda x, i: along(x, i).max(axis=1), x, i)
    t, j = table((512, 3)), ids((300, 256), top=512)
    same(lambda t, j: mx.abs(t[:, 1][mx.abs(j + 1) % 512]), lambda t, j: np.abs(t[:, 1][np.abs(j + 1) % 512]), t, j)
    f = lambda t, j: mx.softmax(t[:, 0][mx.abs(j) % 512], axis=-1)  # noqa: E731
    k = mx.abs(j) % 512
    mx.eval(k)
    want = mx.softmax(t[:, 0][k], axis=-1)
    assert bits(f(t, j)) == bits(want) == bits(mx.compile(f)(t, j))


def test_computed_indices__several_in_one_block() -> None:
    t, u, i = table(), table((77,)), ids()
    same(
        lambda t, u, i: t[i + 100] * u[mx.abs(i) % 77] - t[i],
        lambda t, u, i: t[i + 100] * u[np.abs(i) % 77] - t[i],
        t, u, i,
    )  # fmt: skip


def test_computed_indices__what_they_read_is_not_written_over() -> None:
    t = table()
    keep = np.array(ids(top=400))
    want = np.array(t)[keep + 1].astype("i4") + keep
    for wrap in (lambda f: f, mx.compile):
        i = mx.array(keep) + 0
        got = wrap(lambda t, i: t[i + 1].astype(mx.int32) + i)(t, i)
        del i
        np.testing.assert_array_equal(np.array(got), want)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("bad", [1000, -1001, 2147483647])
def test_computed_indices__out_of_range_are_named(compiled: bool, bad: int) -> None:
    def f(t, i):
        return t[i + 0] * 2.0

    i = np.array(ids())
    i[[N // 2, N - 1]] = bad
    with pytest.raises(IndexError, match=f"index {bad} is out of range for axis 0 of size 1000") as e:
        mx.eval((mx.compile(f) if compiled else f)(table(), mx.array(i)))
    assert f"test_gathers_computed.py:{f.__code__.co_firstlineno + 1}" in "".join(getattr(e.value, "__notes__", []))


def test_computed_indices__above_what_int64_holds_are_out_of_range() -> None:
    i = mx.zeros((N,), dtype=mx.uint64)
    for f in (lambda i: table()[i - 1] + 1.0, mx.compile(lambda i: table()[i - 1] + 1.0)):
        with pytest.raises(IndexError):
            mx.eval(f(i))


def test_computed_indices__derive_and_map() -> None:
    t, i = table(), ids((256, 256))
    f = lambda t, i: (t[(i * 3 + 1) % 1000] * 2.0).sum()  # noqa: E731
    want = np.zeros(1000, "f4")
    np.add.at(want, np.array(i) * 3 + 1 - 1000 * ((np.array(i) * 3 + 1) // 1000), np.float32(2))
    for g in (mx.grad(f), mx.compile(mx.grad(f))):
        np.testing.assert_array_equal(np.array(g(t, i)), want)
    m = mx.vmap(lambda i: t[(i * 3 + 1) % 1000] * 2.0)
    oracle = np.array(t)[(np.array(i) * 3 + 1) % 1000] * np.float32(2)
    for g in (m, mx.compile(m)):
        np.testing.assert_array_equal(np.array(g(i)), oracle)


def test_computed_indices__shapeless() -> None:
    t = table()
    g = mx.compile(lambda t, i: t[(i * 3 + 1) % 1000] * 2.0, shapeless=True)
    for n in (N, 2 * N, 3, N + 5):
        i = ids((n,))
        np.testing.assert_array_equal(np.array(g(t, i)), np.array(t)[(np.array(i) * 3 + 1) % 1000] * np.float32(2))


def test_computed_indices__why_they_are_not_computed_inside() -> None:
    def why(f, *args) -> str:
        g = mx.compile(f)
        mx.eval(g(*args))
        assert "(index:" not in g.explain()
        return g.explain()

    t, i = table(), ids()
    assert "so few indices stay in the caches" in why(lambda t, i: t[i + 1] * 2.0, t, ids((100,)))
    assert "there are fewer indices than points" in why(lambda t, i: t[i + 1] * 2.0, table((1000, 64)), ids((N,)))
    assert "others read the indices too" in why(lambda t, i: (t[i + 1] * 2.0, i + 1), t, i)
    assert "reshaped or cut" in why(lambda t, i: t[(i + 1).reshape(256, 256)] * 2.0, t, i)
    assert "beyond the caches" in why(lambda t, i: t[i + 1] * 2.0, mx.zeros((1 << 21) + 1), i)
    assert "reduces" in why(lambda t, i: t[i.max(axis=0)] * 2.0, t, ids((3, N)))


def expression(depth: int, i: mx.array, j: mx.array) -> tuple:
    """A random index expression: of Marram and of NumPy."""
    if depth == 0:
        k = RNG.integers(3)
        c = int(RNG.integers(1, 50))
        return [
            (lambda i, j: i, lambda i, j: i),
            (lambda i, j: j, lambda i, j: j),
            (lambda i, j: i + c, lambda i, j: i + np.int32(c)),
        ][k]
    (a, a_np), (b, b_np) = expression(depth - 1, i, j), expression(RNG.integers(depth), i, j)
    c = int(RNG.integers(1, 30))
    return [
        (lambda i, j: a(i, j) + b(i, j), lambda i, j: a_np(i, j) + b_np(i, j)),
        (lambda i, j: a(i, j) * c - b(i, j), lambda i, j: a_np(i, j) * np.int32(c) - b_np(i, j)),
        (lambda i, j: mx.where(a(i, j) < c, b(i, j), i), lambda i, j: np.where(a_np(i, j) < c, b_np(i, j), i)),
        (lambda i, j: mx.minimum(a(i, j), b(i, j)) // c, lambda i, j: np.minimum(a_np(i, j), b_np(i, j)) // np.int32(c)),
        (lambda i, j: a(i, j) ^ b(i, j), lambda i, j: a_np(i, j) ^ b_np(i, j)),
        (lambda i, j: (a(i, j) - b(i, j)).astype(mx.int64), lambda i, j: (a_np(i, j) - b_np(i, j)).astype("i8")),
    ][RNG.integers(6)]


@pytest.mark.parametrize("seed", range(40))
def test_computed_indices__random_ones_are_numpys(seed: int) -> None:
    n = int(RNG.integers(100, 1500))
    shape = [(N,), (256, 257), (33, 4, 301)][seed % 3]
    t, i, j = table((n,)), ids(shape), ids(shape)
    if seed % 4 == 1 and len(shape) == 2:
        i = ids(shape[::-1]).T
    made, oracle = expression(int(RNG.integers(1, 4)), i, j)
    wrap = seed % 2 == 0
    f = lambda t, i, j: t[made(i, j) % n - (n if wrap else 0)] * 3.0 + t[mx.abs(i) % n]  # noqa: E731

    def g(t, i, j):
        return t[oracle(i, j) % n - (n if wrap else 0)] * np.float32(3) + t[np.abs(i) % n]

    with np.errstate(over="ignore"):
        same(f, g, t, i, j, joined=None)


# ---- one entry of each row


PICKS = {
    "rows": ((50, 30), (50,), lambda m, x, t: x[m.arange(50), t]),
    "first rows": ((50, 30), (20,), lambda m, x, t: x[m.arange(20), t]),
    "columns": ((30, 50), (50,), lambda m, x, t: x[t, m.arange(50)]),
    "several of a row": ((50, 30), (50, 4), lambda m, x, t: x[m.arange(50)[:, None], t]),
    "two axes": ((4, 7, 30), (4, 7), lambda m, x, t: x[m.arange(4)[:, None], m.arange(7), t]),
    "between": ((4, 30, 7), (4, 7), lambda m, x, t: x[m.arange(4)[:, None], t, m.arange(7)]),
    "turned": ((7, 30, 4), (4, 7), lambda m, x, t: x[m.arange(7), t, m.arange(4)[:, None]]),
    "not from 0": ((50, 30), (49,), lambda m, x, t: x[m.arange(1, 50), t]),
    "by twos": ((50, 30), (25,), lambda m, x, t: x[m.arange(0, 50, 2), t]),
    "both": ((50, 50), (50,), lambda m, x, t: x[m.arange(50), m.arange(50)]),
    "one": ((1, 30), (1,), lambda m, x, t: x[m.arange(1), t]),
    "whole rows": ((50, 30, 3), (50,), lambda m, x, t: x[m.arange(50), t]),
    "broadcast": ((50, 30), (50, 1), lambda m, x, t: x[m.arange(50), t]),
}


@pytest.mark.parametrize("name", PICKS)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
def test_picked_rows__are_numpys(name: str, dtype: str) -> None:
    shape, index_shape, f = PICKS[name]
    x, t = table(shape), ids(index_shape, dtype, top=30)
    want = f(np, np.array(x), np.array(t))
    own = lambda x, t: f(mx, x, t)  # noqa: E731
    for g in (own, mx.compile(own), mx.compile(own, shapeless=True)):
        np.testing.assert_array_equal(np.array(g(x, t)), want)
    np.testing.assert_array_equal(np.array(own(x, t) * 2.0), want * np.float32(2))
    dx = mx.grad(lambda x, t: (own(x, t) * own(x, t)).sum())
    slope, plain = np.zeros(shape, "f8"), np.array(x, "f8")
    places = f(np, np.arange(x.size).reshape(shape), np.array(t))
    np.add.at(slope.reshape(-1), places, 2 * plain.reshape(-1)[places])
    for g in (dx, mx.compile(dx)):
        np.testing.assert_allclose(np.array(g(x, t)), slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [30, -31])
def test_picked_rows__a_bad_index_is_named(bad: int) -> None:
    t = np.zeros(50, "i4")
    t[7] = bad
    f = lambda x, t: x[mx.arange(50), t] * 2.0  # noqa: E731
    for g in (f, mx.compile(f)):
        with pytest.raises(IndexError, match=rf"x\[index\].* index {bad} is out of range for axis 1 of size 30"):
            mx.eval(g(table((50, 30)), mx.array(t)))
    with pytest.raises(IndexError, match="out of range for axis 0 of size 50"):
        mx.eval(table((50, 30))[mx.arange(51), mx.zeros((51,), dtype=mx.int32)])


def test_picked_rows__cross_entropy_is_one_pass_in_both_directions() -> None:
    x, t = table((300, 40)), mx.array(RNG.integers(0, 40, 300).astype("i4"))

    def loss(x, t):
        return mx.logsumexp(x, axis=-1) - x[mx.arange(300), t]

    f, g = mx.compile(loss), mx.compile(mx.grad(lambda x, t: loss(x, t).sum()))
    assert bits(f(x, t)) == bits(loss(x, t))
    assert f.explain().count("fused") == 1
    assert "fused gather, logsumexp" in f.explain()
    p = np.exp(np.array(x, "f8"))
    want = p / p.sum(axis=1, keepdims=True)
    want[np.arange(300), np.array(t)] -= 1
    np.testing.assert_allclose(np.array(g(x, t)), want, rtol=1e-4, atol=1e-6)
    assert "fused put" in g.explain()


def test_picked_rows__map() -> None:
    x, t = table((5, 50, 30)), mx.array(RNG.integers(0, 30, (5, 50)).astype("i4"))
    f = mx.vmap(lambda x, t: x[mx.arange(50), t])
    want = np.take_along_axis(np.array(x), np.array(t)[..., None], axis=2)[..., 0]
    for g in (f, mx.compile(f)):
        np.testing.assert_array_equal(np.array(g(x, t)), want)
