# SPDX-License-Identifier: Apache-2.0
"""Gathers that are read inside what reads their result."""

from __future__ import annotations

import os
import subprocess
import sys

import marram.core as mx
import numpy as np
import pytest

RNG = np.random.default_rng(7)
INDEX_DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES = ["bool", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def bits(x: mx.array) -> bytes:
    return bytes(memoryview(np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x)))


def values(shape: tuple[int, ...], dtype: str = "float32") -> mx.array:
    x = mx.array(RNG.standard_normal(shape).astype("f4") * 4)
    return x > 0 if dtype == "bool" else x.astype(getattr(mx, dtype))


def indices(shape: tuple[int, ...], n: int, dtype: str = "int32") -> mx.array:
    low = 0 if dtype.startswith("u") else -n
    return mx.array(RNG.integers(low, n, shape).astype(dtype))


def take(x: mx.array, i: mx.array, axis: int) -> mx.array:
    return mx.take(x, i, axis)


def along(x: mx.array, i: mx.array, axis: int) -> mx.array:
    return mx.take_along_axis(x, i, axis)


def three_ways(f, *args) -> None:
    """Alone, inside a reader, and compiled: the same bits."""
    picked = f(*args)
    mx.eval(picked)
    readers = {
        "map": lambda y: y * 3,
        "sum": lambda y: y.sum(axis=-1) if y.ndim else y.sum(),
        "all": lambda y: y.sum(),
        "rows": lambda y: (y - y.max(axis=-1, keepdims=True)) if y.dtype not in (mx.bool_,) else y.any(axis=-1),
        "column": lambda y: y.sum(axis=0) if y.ndim else y + 1,
        "turned": lambda y: mx.abs(y.T),
        "wide": lambda y: y[None] + mx.ones((3, *y.shape), dtype=y.dtype),
        "cast": lambda y: y.astype(mx.float32),
    }
    for name, read in readers.items():
        if name == "rows" and (picked.dtype in (mx.complex64, mx.complex128) or picked.ndim == 0):
            continue
        want = read(picked)
        mx.eval(want)
        for got in (read(f(*args)), mx.compile(lambda *a, read=read: read(f(*a)))(*args)):
            assert got.shape == want.shape
            assert bits(got) == bits(want), name


SHAPES = [
    ((7,), 0),
    ((5, 6), 0),
    ((5, 6), 1),
    ((3, 4, 5), 0),
    ((3, 4, 5), 1),
    ((3, 4, 5), 2),
    ((2, 3, 4, 5), 2),
    ((40, 1030), 0),
    ((1000, 3), 1),
    ((9, 70, 65), 1),
    ((1, 6), 0),
    ((6, 1), 1),
]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("turned", [False, True])
def test_gathers__are_the_same_inside_a_reader(shape: tuple[int, ...], axis: int, turned: bool) -> None:
    x = values(shape[::-1]).T if turned else values(shape)
    n = shape[axis]
    for index_shape in ((), (1,), (11,), (2, 3)):
        three_ways(lambda a, i: take(a, i, axis), x, indices(index_shape, n))
    for size in (1, 4, 70):
        i = indices((*shape[:axis], size, *shape[axis + 1 :]), n)
        three_ways(lambda a, j: along(a, j, axis), x, i)
    three_ways(lambda a, i: a.swapaxes(0, axis)[i], x, indices((9,), n))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gathers__of_each_dtype(dtype: str) -> None:
    three_ways(lambda a, i: a[i], values((17, 33), dtype), indices((50,), 17))
    three_ways(lambda a, i: along(a, i, 1), values((17, 33), dtype), indices((17, 40), 33))


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_gathers__by_each_dtype(dtype: str) -> None:
    three_ways(lambda a, i: a[i], values((17, 33)), indices((50,), 17, dtype))
    three_ways(lambda a, i: a[:, i] * 1.0, values((17, 33)), indices((50,), 33, dtype)[::-1])
    three_ways(lambda a, i: along(a, i, 1), values((17, 33)), indices((17, 40), 33, dtype))


def test_gathers__several_in_one_kernel() -> None:
    a, b = values((50,)), values((1000,))
    i, j = indices((300,), 50), indices((300,), 1000)
    f = lambda a, b, i, j: mx.exp(-mx.abs(a[i] * 2.0 - b[j])) + b[j * 0 + 1]  # noqa: E731
    want = np.exp(-np.abs(np.array(a)[np.array(i)] * np.float32(2) - np.array(b)[np.array(j)])) + np.array(b)[1]
    g = mx.compile(f)
    for got in (f(a, b, i, j), g(a, b, i, j)):
        np.testing.assert_allclose(np.array(got), want, rtol=2e-6, atol=1e-6)
    assert bits(g(a, b, i, j)) == bits(f(a, b, i, j))
    assert "fused gather, gather" in g.explain()


def test_gathers__of_what_the_kernel_also_reads_are_not_written_over() -> None:
    n = 1 << 16
    for f in (lambda x, i: x + x[i], lambda x, i: (x * 2.0)[i] + (x * 2.0), lambda x, i: i + x[i].astype(mx.int32)):
        x, i = values((n,)), indices((n,), n)
        want = mx.compile(f)(mx.array(x), mx.array(i))
        mx.eval(want)
        y, j = x + 0.0, i + 0
        mx.eval(y, j)
        keep_y, keep_j = np.array(y), np.array(j)
        got = f(mx.array(keep_y), mx.array(keep_j))
        assert bits(got) == bits(want)
        again = f(y, j)
        del y, j
        assert bits(again) == bits(want)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("bad", [7, -8, 1 << 40])
def test_gathers__a_bad_index_is_named_with_its_line(compiled: bool, bad: int) -> None:
    def f(x, y, i, j):
        a = x[i]
        b = y[j]
        return a * 2.0 + b

    g = mx.compile(f) if compiled else f
    x, y = values((9,)), values((7,))
    i, j = mx.arange(100) % 7, mx.array(np.arange(100) % 7)
    j = mx.where(mx.arange(100) == 77, mx.array(bad, dtype=mx.int64), j)
    with pytest.raises(IndexError, match=f"index {bad} is out of range for axis 0 of size 7") as e:
        mx.eval(g(x, y, i, j))
    text = str(e.value) + "".join(getattr(e.value, "__notes__", []))
    assert f"test_gathers.py:{f.__code__.co_firstlineno + 2}" in text
    assert "x[index] or take" in text


def test_gathers__a_bad_index_in_uint64_is_none_from_the_end() -> None:
    i = mx.array(np.array([0, 2**64 - 1], dtype=np.uint64))
    with pytest.raises(IndexError):
        mx.eval(values((4,))[i] * 2.0)


def test_gathers__gradients_are_the_same_compiled() -> None:
    def loss(table, w, i):
        h = mx.tanh(table[i] * w)
        picked = mx.take_along_axis(h, (i % 8)[:, None], -1)[:, 0]
        return mx.mean(mx.logsumexp(h, axis=-1) - picked)

    args = values((30, 8)), values((8,)), mx.arange(100) % 30
    for argnum in (0, 1):
        g = mx.grad(loss, argnums=argnum)
        assert bits(mx.compile(g)(*args)) == bits(g(*args))
        taped = mx.compile(g, shapeless=True)
        assert bits(taped(*args)) == bits(g(*args))
        assert bits(taped(args[0], args[1], args[2][:37])) == bits(g(args[0], args[1], args[2][:37]))


def test_gathers__explain_shows_cross_entropy_reads_its_logits_once() -> None:
    f = mx.compile(lambda x, y: mx.mean(mx.logsumexp(x, -1) - mx.take_along_axis(x, y[:, None], -1)[:, 0]))
    mx.eval(f(values((64, 100)), indices((64,), 100)))
    text = f.explain()
    assert "2 steps" in text
    assert "fused gather, logsumexp, subtract" in text
    assert "fused mean" in text


CODE = """
import marram.core as mx, numpy as np, hashlib
h = hashlib.sha256()
rng = np.random.default_rng(3)
x = mx.array(rng.standard_normal((300, 700)).astype("f4"))
i = mx.array(rng.integers(0, 300, 500))
j = mx.array(rng.integers(0, 700, (300, 900)))
for f in (lambda x, i, j: mx.exp(x[i]) * 2 + 1, lambda x, i, j: mx.tanh(mx.take_along_axis(x, j, 1)).sum(-1),
          lambda x, i, j: mx.softmax(x[i] * 0.5, axis=-1), lambda x, i, j: (x[:, i] * x[:, i]).sum()):
    for g in (f, mx.compile(f)):
        h.update(bytes(memoryview(np.array(g(x, i, j)))))
print(h.hexdigest())
"""


def test_gathers__give_equal_bits_on_both_tiers_and_any_number_of_threads() -> None:
    seen = set()
    for more in (
        {"MARRAM_JIT": "off"},
        {"MARRAM_JIT": "now"},
        {"MARRAM_JIT": "off", "MARRAM_NUM_THREADS": "1"},
        {"MARRAM_JIT": "now", "MARRAM_NUM_THREADS": "5"},
    ):
        r = subprocess.run([sys.executable, "-c", CODE], env={**os.environ, **more}, capture_output=True, text=True, check=True)
        seen.add(r.stdout)
    assert len(seen) == 1


def test_gathers__of_many_rows_are_read_inside_as_well() -> None:
    table, i, p = values((3000, 512)), indices((5000,), 3000), values((5000, 512))
    f = mx.compile(lambda t, i, p: t[i] * 2.0 + p)
    want = np.array(table)[np.array(i)] * np.float32(2) + np.array(p)
    for _ in range(3):
        np.testing.assert_array_equal(np.array(f(table, i, p)), want)
    np.testing.assert_array_equal(np.array(table[i] * 2.0 + p), want)
    assert "fused gather, multiply, add" in f.explain()
    assert "gather  [kernel]" in explained(lambda t, i, p: t[i] * 2.0 + p, table, i[:50], p[:50])


def explained(f, *args: mx.array) -> str:
    g = mx.compile(f)
    mx.eval(g(*args))
    return g.explain()
