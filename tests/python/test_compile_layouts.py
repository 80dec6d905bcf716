"""Compiled equals eager bit for bit however arguments lie.

A product's last bits depend on the route that its kernel takes, and that on
how operands lie; so a compiled function must take arguments as they lie.
"""

from __future__ import annotations

import itertools

import marram.core as mx
import numpy as np
import pytest

LAYOUTS = ("plain", "turned", "broadcast", "sliced", "reversed", "spaced", "swapped")


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """Random numbers of this shape, evaluated."""
    x = mx.array(rng.standard_normal(shape).astype(np.float32)).astype(dtype)
    mx.eval(x)
    return x


def laid(
    rng: np.random.Generator, layout: str, shape: tuple[int, ...], dtype: mx.Dtype
) -> mx.array:
    """An array of this shape whose elements lie so in memory."""
    nd = len(shape)
    if layout == "turned" and nd >= 2:
        return values(rng, (*shape[:-2], shape[-1], shape[-2]), dtype).swapaxes(-1, -2)
    if layout == "broadcast":
        one = (1, *shape[1:]) if nd > 1 else (1,)
        return mx.broadcast_to(values(rng, one, dtype), shape)
    if layout == "sliced":
        big = values(rng, tuple(n + 3 for n in shape), dtype)
        return big[tuple(slice(1, 1 + n) for n in shape)]
    if layout == "reversed":
        return values(rng, shape, dtype)[..., ::-1]
    if layout == "spaced":
        return values(rng, (*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
    if layout == "swapped" and nd >= 2:
        return values(rng, (shape[1], shape[0], *shape[2:]), dtype).swapaxes(0, 1)
    return values(rng, shape, dtype)


def bits(x: mx.array) -> bytes:
    """The bytes of an array, all NaNs alike."""
    if x.dtype == mx.bfloat16:
        x = x.astype(mx.float32)
    a = np.array(x)
    if a.dtype.kind in "fc":
        a = np.where(np.isnan(a), np.nan, a)
    return a.tobytes()


def same(f, *args: mx.array) -> None:
    """Asserts that f gives the same bits compiled, cold, warm and given up."""
    leaves = f(*args)
    want = [bits(y) for y in (leaves if isinstance(leaves, (tuple, list)) else [leaves])]
    g = mx.compile(f)
    for _ in range(2):
        got = g(*args)
        got = [bits(y) for y in (got if isinstance(got, (tuple, list)) else [got])]
        assert got == want


def spd(a: mx.array) -> mx.array:
    """A positive definite matrix from any: scaled so that it is far from singular."""
    return a @ a.swapaxes(-1, -2) + 8.0 * mx.eye(a.shape[-1], dtype=a.dtype)


TWO = {
    "matmul": (lambda a, b: a @ b, (40, 56), (56, 33)),
    "small": (lambda a, b: a @ b, (7, 9), (9, 5)),
    "large": (lambda a, b: a @ b, (170, 190), (190, 180)),
    "row": (lambda a, b: a @ b, (1, 80), (80, 70)),
    "column": (lambda a, b: a @ b, (70, 80), (80, 1)),
    "batch": (lambda a, b: a @ b, (3, 20, 24), (3, 24, 18)),
    "shared": (lambda a, b: a @ b, (4, 20, 24), (24, 18)),
    "einsum": (lambda a, b: mx.einsum("bij,bkj->bik", a, b), (3, 20, 24), (3, 18, 24)),
    "contract": (lambda a, b: mx.einsum("ij,jk->", a, b), (20, 24), (24, 18)),
    "tensordot": (lambda a, b: mx.tensordot(a, b, 1), (5, 6, 30), (30, 7)),
    "chain": (lambda a, b: mx.tanh(a @ b) @ b.T, (40, 56), (56, 33)),
    "turned": (lambda a, b: (b.T @ a.T).T, (40, 56), (56, 33)),
    "inner": (lambda a, b: mx.inner(a, b), (20, 64), (30, 64)),
    "reshaped": (lambda a, b: a.reshape(-1, 8) @ b.reshape(8, -1), (40, 56), (56, 32)),
    "gradient": (
        lambda a, b: mx.grad(lambda x: mx.square(x @ b).sum())(a),
        (40, 56),
        (56, 33),
    ),
    "conv1d": (lambda a, b: mx.conv1d(a, b, padding=1), (2, 30, 8), (6, 3, 8)),
    "conv2d": (lambda a, b: mx.conv2d(a, b), (2, 12, 11, 8), (6, 3, 3, 8)),
    "triangular": (
        lambda a, b: mx.linalg.solve_triangular(mx.triu(a) + 9 * mx.eye(24), b, upper=True),
        (24, 24),
        (24, 7),
    ),
    "solve": (lambda a, b: mx.linalg.solve(spd(a), b), (24, 24), (24, 7)),
}

FLOATS = (mx.float32, mx.bfloat16, mx.float64)


@pytest.mark.parametrize("name", TWO)
def test_products__lie_as_they_come(name: str) -> None:
    f, a_shape, b_shape = TWO[name]
    rng = np.random.default_rng(len(name))
    linalg = name in ("triangular", "solve")
    for dtype in (mx.float32,) if linalg or name.startswith("conv") else FLOATS:
        for a, b in itertools.product(LAYOUTS, LAYOUTS):
            same(f, laid(rng, a, a_shape, dtype), laid(rng, b, b_shape, dtype))


@pytest.mark.parametrize("name", ["inv", "cholesky", "qr", "svd", "eigh", "lu", "det"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_linalg__lies_as_it_comes(name: str, layout: str) -> None:
    rng = np.random.default_rng(3)
    for n in (6, 40):
        x = laid(rng, layout, (n, n), mx.float32)
        if name in ("cholesky", "eigh"):
            same(lambda a: getattr(mx.linalg, name)(spd(a)), x)
        elif name == "inv":
            same(lambda a: mx.linalg.inv(a + 9 * mx.eye(a.shape[-1])), x)
        else:
            same(getattr(mx.linalg, name), x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_addmm__lies_as_it_comes(layout: str) -> None:
    rng = np.random.default_rng(4)
    for a, b in itertools.product(LAYOUTS, ("plain", "turned", "broadcast")):
        same(
            lambda c, x, y: mx.addmm(c, x, y, alpha=0.5, beta=2.0),
            laid(rng, layout, (40, 33), mx.float32),
            laid(rng, a, (40, 56), mx.float32),
            laid(rng, b, (56, 33), mx.float32),
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("length", [1, 5, 40])
def test_attention__lies_as_it_comes(layout: str, length: int) -> None:
    rng = np.random.default_rng(5)
    for other in ("plain", "turned", "swapped", "sliced", "broadcast"):
        same(
            lambda q, k, v: mx.fast.scaled_dot_product_attention(q, k, v, scale=0.2),
            laid(rng, layout, (2, 4, length, 32), mx.float32),
            laid(rng, other, (2, 2, 70, 32), mx.float32),
            laid(rng, other, (2, 2, 70, 32), mx.float32),
        )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_quantised_product__lies_as_it_comes(layout: str) -> None:
    rng = np.random.default_rng(6)
    w = mx.quantize(values(rng, (64, 128), mx.float32), group_size=32, bits=4)
    for rows in (1, 9, 70):
        x = laid(rng, layout, (rows, 128), mx.float32)
        same(lambda a: mx.quantized_matmul(a, *w, group_size=32, bits=4), x)
        same(lambda a, *q: mx.quantized_matmul(a, *q, group_size=32, bits=4), x, *w)


def test_many_layouts__are_all_right() -> None:
    """More ways to lie than a program is kept for."""
    rng = np.random.default_rng(7)
    f = mx.compile(lambda a, b: mx.tanh(a) @ b + 1.0)
    b = values(rng, (24, 18), mx.float32)
    for extra in range(40):
        a = values(rng, (20, 24 + extra), mx.float32)[:, :24]
        assert bits(f(a, b)) == bits(mx.tanh(a) @ b + 1.0)


def test_lazy_arguments__lie_as_they_will() -> None:
    rng = np.random.default_rng(8)
    f = mx.compile(lambda a, b: a @ b)
    x, y = values(rng, (56, 40), mx.float32), values(rng, (33, 56), mx.float32)
    for _ in range(3):
        got = f(mx.exp(x).T, (y + 1.0).T)
        assert bits(got) == bits(mx.exp(x).T @ (y + 1.0).T)


@pytest.mark.parametrize("wider", [lambda z, y: y + z, lambda z, y: y * z.sum(1, keepdims=True)])
@pytest.mark.parametrize("shown", [lambda z: z.reshape(-1), lambda z: z[:1], lambda z: z[:, :0]])
def test_constants_that_are_results_too__are_right_in_every_layout(wider, shown) -> None:
    """The base evaluates a result that depends on no argument, and with it the
    number that other steps read through views of their own."""
    y = mx.array([[8.0, 9.0, 10.0]])
    for rows in (2, 5):
        x = mx.broadcast_to(mx.array([[-6.0]]), (rows, 1))

        def f(x: mx.array, y: mx.array) -> tuple[mx.array, ...]:
            z = mx.broadcast_to(mx.array(1.0), x.shape)
            return wider(z, y), shown(z)

        def g(x: mx.array, y: mx.array) -> tuple[mx.array, ...]:
            z = mx.array(x)
            z[0:] = 1
            return wider(z, y) + x, shown(z)

        for h in (f, g):
            same(h, x, y)
            same(h, mx.array(np.array(x)), y)


@pytest.mark.parametrize("shape", [(120, 120), (4, 60, 60), (14400,), (120, 1, 120)])
def test_results_in_the_memory_of_an_argument__lie_as_their_shape_says(shape: tuple[int, ...]) -> None:
    """A result of another shape that takes the memory of an argument given up."""
    for to in ((-1,), (60, 240), (2, 2, 60, 60), (14400, 1)):
        f = mx.compile(lambda x, to=to: (x * 2.0).reshape(to))
        g = mx.compile(lambda x, to=to: (x.reshape(to) + 1.0, x.sum()))
        want = np.arange(14400, dtype=np.float32).reshape(to)
        for _ in range(2):
            x = mx.arange(14400.0).reshape(shape)
            mx.eval(x)
            y = f(x)
            del x
            assert np.array_equal(np.array(y), want * 2)
            assert memoryview(y).strides == want.strides
            x = mx.arange(14400.0).reshape(shape) + 0.0
            y, _ = g(x)
            del x
            assert np.array_equal(np.array(y), want + 1)


@pytest.mark.parametrize("n", [200, 300])
def test_parts_of_a_value__are_no_memory_of_a_result(n: int) -> None:
    """The first rows of a larger value lie as the result does, in more memory
    than that has."""
    x = values(np.random.default_rng(n), (n, n), mx.float32)
    same(lambda a: mx.concatenate([a, a])[:n] * 2.0, x)
    same(lambda a: mx.sort(mx.concatenate([a, a]), axis=0)[:n] + a, x)
    same(lambda a: mx.tanh(mx.concatenate([a, a])[:n] + 1.0) @ a, x)
    same(lambda a: (mx.sort(mx.concatenate([a, a, a]), axis=0)[:n] - 1.0).reshape(-1), x)


def test_layouts__are_in_the_bytes_of_the_cache_and_bounded() -> None:
    """1,000 ways in which an argument may lie."""
    f = mx.compile(lambda x: x @ x + mx.exp(x))
    sizes = []
    for row in range(4, 1004):
        a = mx.random.normal((4, row))
        mx.eval(a)
        x = a[:, :4]
        assert np.array_equal(np.array(f(x)), np.array(x @ x + mx.exp(x)))
        sizes.append(f.cache_info()["bytes"])
    assert all(a < b for a, b in zip(sizes[:15], sizes[1:16], strict=True))
    assert len(set(sizes[16:])) == 1
    assert f.cache_info()["traces"] == 1
