# SPDX-License-Identifier: Apache-2.0
"""Points where derivatives are easily wrong: first and second order, eager and compiled.

Each case is (f, x, gradient, Hessian times ones); the values are worked out by
hand or, where the function is smooth at x, by differences in float64.
"""

import marram.core as mx
import numpy as np
import pytest

inf = np.inf


def array(v):
    return mx.array(np.array(v, dtype=np.float64), dtype=mx.float64)


def weighted(f, *w):
    return lambda x: (f(x) * array(w)).sum()


def guarded_root(x):
    return mx.where(x > 0, mx.sqrt(mx.where(x > 0, x, 1.0)), 0.0).sum()


def scattered(x):
    return (mx.zeros((3,), mx.float64).at[mx.array([0, 1, 1, 0, 2])].add(x) ** 2).sum()


def multiplied(x):
    return mx.ones((3,), mx.float64).at[mx.array([0, 1, 1, 0, 1])].multiply(x).sum()


def gathered(x):
    return (x[mx.array([0, 1, 1, 0, 2])] ** 3).sum()


def last_wins(x):
    y = mx.zeros((3,), mx.float64)
    y[mx.array([0, 1, 1, 0, 2])] = x
    return (y**3).sum()


def masked_write(x):
    y = x * 2
    y[x > 2] = array(0.0)
    return (y**3).sum()


def spread(f):
    return lambda x: f(x) ** 2


CASES = {
    # the product of the others; second: of the others but two, summed
    "prod, no zero": (mx.prod, [1, 2, 3, 4], [24, 12, 8, 6], [12 + 8 + 6, 12 + 4 + 3, 8 + 4 + 2, 6 + 3 + 2]),
    "prod, one zero": (mx.prod, [0, 2, 3, 4], [24, 0, 0, 0], [12 + 8 + 6, 12, 8, 6]),
    "prod, two zeros": (mx.prod, [0, 2, 0, 4], [0, 0, 0, 0], [8, 0, 8, 0]),
    "prod, three zeros": (mx.prod, [0, 0, 0, 5], [0, 0, 0, 0], [0, 0, 0, 0]),
    "prod, an axis": (
        lambda x: mx.prod(x, axis=0).sum(),
        [[1, 2, 0], [0, 3, 0]],
        [[0, 3, 0], [1, 2, 0]],
        [[1, 1, 1], [1, 1, 1]],
    ),
    # y = (a, ab, abc) with weights 1, 2, 3
    "cumprod, no zero": (
        weighted(mx.cumprod, 1, 2, 3),
        [2, 3, 5],
        [1 + 6 + 45, 4 + 30, 18],
        [2 + 15 + 9, 2 + 15 + 6, 9 + 6],
    ),
    "cumprod, one zero": (weighted(mx.cumprod, 1, 2, 3), [0, 3, 5], [52, 0, 0], [26, 17, 9]),
    "cumprod, zero inside": (weighted(mx.cumprod, 1, 2, 3), [2, 0, 5], [1, 34, 0], [17, 17 + 6, 6]),
    "cumprod, two zeros": (weighted(mx.cumprod, 1, 2, 3), [0, 0, 5], [1, 0, 0], [17, 17, 0]),
    "cumprod, exclusive": (
        weighted(lambda x: mx.cumprod(x, inclusive=False), 1, 2, 3),
        [0, 3, 5],
        [2 + 9, 0, 0],
        [3, 3, 0],
    ),
    "cumprod, reverse": (
        weighted(lambda x: mx.cumprod(x, reverse=True), 3, 2, 1),
        [5, 3, 0],
        [0, 0, 52],
        [9, 17, 26],
    ),
    "var of equals": (mx.var, [2, 2, 2], [0, 0, 0], [0, 0, 0]),
    "std of equals": (mx.std, [2, 2, 2], [0, 0, 0], [0, 0, 0]),
    "logsumexp of -inf beside others": (mx.logsumexp, [0, -inf, 0], [0.5, 0, 0.5], [0, 0, 0]),
    "logsumexp of -inf alone": (mx.logsumexp, [-inf, -inf], [0, 0], [0, 0]),
    "softmax with -inf": (weighted(mx.softmax, 1, 2, 3), [0, -inf, 0], [-0.5, 0, 0.5], [0, 0, 0]),
    # ties share
    "max with ties": (spread(mx.max), [1, 3, 3, 2], [0, 3, 3, 0], [0, 1, 1, 0]),
    "min with ties": (spread(mx.min), [1, 1, 3, 2], [1, 1, 0, 0], [1, 1, 0, 0]),
    # a stable sort: equals keep their order
    "sort with ties": (
        lambda x: (mx.sort(x) ** 2 * array([1, 2, 3, 4])).sum(),
        [3, 1, 3, 1],
        [18, 2, 24, 4],
        [6, 2, 8, 4],
    ),
    "abs at zero": (lambda x: (mx.abs(x) ** 3).sum(), [0, -1, 2], [0, -3, 12], [0, 6, 12]),
    "x ** 0": (lambda x: mx.power(x, array(0)).sum(), [0, 2], [0, 0], [0, 0]),
    "x ** 1": (lambda x: mx.power(x, array(1)).sum(), [0, 2], [1, 1], [0, 0]),
    "x ** 2": (lambda x: mx.power(x, array(2)).sum(), [0, 2], [0, 4], [2, 2]),
    "x ** 3": (lambda x: mx.power(x, array(3)).sum(), [0, 2], [0, 12], [0, 12]),
    "0 ** x": (lambda x: mx.power(array(0), x).sum(), [1, 2], [0, 0], [0, 0]),
    "where with NaN in the branch not taken": (guarded_root, [0, -1, 4], [0, 0, 0.25], [0, 0, -1 / 32]),
    "scatter, repeated indices": (scattered, [1, 2, 3, 4, 5], [10, 10, 10, 10, 10], [4, 4, 4, 4, 2]),
    "scatter of factors, zeros": (multiplied, [0, 2, 0, 0, 5], [0, 0, 10, 0, 0], [1, 5, 7, 1, 2]),
    "scatter of factors": (multiplied, [7, 2, 3, 4, 5], [4, 15, 10, 7, 6], [1, 8, 7, 1, 5]),
    "gather, repeated indices": (gathered, [1, 2, 3], [6, 24, 27], [12, 24, 18]),
    "assignment, repeated indices": (last_wins, [1, 2, 3, 4, 5], [0, 0, 27, 48, 75], [0, 0, 18, 24, 30]),
    "assignment through a mask": (masked_write, [1, 2, 3], [24, 96, 0], [48, 96, 0]),
    "boolean where": (lambda x: mx.where(x > 1, x * x, x).sum(), [1, 2], [1, 4], [0, 2]),
}


@pytest.mark.parametrize("wrap", [lambda g: g, mx.compile], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_trap__both_orders_are_right(name, wrap):
    f, x, first, second = CASES[name]
    x = array(x)
    ones = mx.ones_like(x)
    np.testing.assert_allclose(np.array(wrap(mx.grad(f))(x)), first, rtol=1e-9, atol=1e-12)
    reverse = wrap(mx.grad(lambda x: mx.grad(f)(x).sum()))(x)
    forward = wrap(lambda x: mx.jvp(mx.grad(f), [x], [ones])[1][0])(x)
    np.testing.assert_allclose(np.array(reverse), second, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.array(forward), second, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_trap__a_batch_of_two_is_right_too(name):
    f, x, first, _ = CASES[name]
    both = mx.stack([array(x), array(x)])
    np.testing.assert_allclose(np.array(mx.vmap(mx.grad(f))(both)), [first, first], rtol=1e-9, atol=1e-12)


# -- against differences -------------------------------------------------------------
def differences(f, x, step=1e-5):
    """Central differences of a float64 function of an array, by NumPy."""
    x = np.array(x, dtype=np.float64)
    out = np.zeros(x.shape + np.shape(f(x)))
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        out[i] = (f(up) - f(down)) / (2 * step)
    return out


RNG = np.random.default_rng(4)
IMAGE, KERNEL = RNG.normal(size=(1, 7, 6, 2)), RNG.normal(size=(3, 3, 2, 2))
GEOMETRY = [
    dict(stride=(2, 3), padding=(1, 2)),
    dict(stride=(2, 1), padding=(1, 0), dilation=(2, 3)),
    dict(stride=(3, 2), padding=(2, 2), dilation=(2, 2)),
]


@pytest.mark.parametrize("geometry", GEOMETRY)
@pytest.mark.parametrize("by", [0, 1])
def test_convolution__stride_and_dilation(geometry, by):
    args = [array(IMAGE), array(KERNEL)]
    v = mx.array(RNG.normal(size=args[by].shape), dtype=mx.float64)

    def f(z):
        a = list(args)
        a[by] = z
        return (mx.conv2d(*a, **geometry) ** 3).sum()

    g = mx.grad(f)
    want = differences(lambda z: f(array(z)).item(), np.array(args[by]))
    np.testing.assert_allclose(np.array(g(args[by])), want, rtol=1e-5, atol=1e-5)
    got = mx.compile(lambda z: mx.grad(lambda z: (g(z) * v).sum())(z))(args[by])
    step = 1e-5 * np.array(v)
    at = np.array(args[by])
    want = (np.array(g(array(at + step))) - np.array(g(array(at - step)))) / 2e-5
    np.testing.assert_allclose(np.array(got), want, rtol=1e-5, atol=1e-4)


COMPLEX = {
    "abs squared": lambda z: (mx.abs(z) ** 2).sum(),
    "real of a product": lambda z: mx.real(z * z * z).sum(),
    "exp": lambda z: mx.abs(mx.exp(z * 1j)).sum(),
    "conjugate": lambda z: mx.imag(mx.conj(z) * z * z).sum(),
    "prod": lambda z: mx.abs(mx.prod(z)) ** 2,
    "matmul": lambda z: mx.real((z @ mx.conj(z)) * z[0]).sum(),
}


def complex_differences(f, z, step=1e-6):
    g = np.zeros(z.shape, dtype=np.complex128)
    for i in np.ndindex(z.shape):
        for unit in (1, 1j):
            up, down = z.copy(), z.copy()
            up[i] += unit * step
            down[i] -= unit * step
            g[i] += unit * (f(up) - f(down)) / (2 * step)
    return g


@pytest.mark.parametrize("wrap", [lambda g: g, mx.compile], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex__gradient_is_dx_plus_i_dy_twice(name, wrap):
    f = COMPLEX[name]
    z = np.array([1 + 2j, -0.5 + 0.3j, 0.2 - 1j])

    def to(v):
        return mx.array(v, dtype=mx.complex128)

    g = wrap(mx.grad(f))
    np.testing.assert_allclose(np.array(g(to(z))), complex_differences(lambda v: f(to(v)).item(), z), rtol=1e-6, atol=1e-7)

    def slope(z):
        return mx.real(mx.grad(f)(z)).sum() + 2 * mx.imag(mx.grad(f)(z)).sum()

    want = complex_differences(lambda v: slope(to(v)).item(), z)
    np.testing.assert_allclose(np.array(wrap(mx.grad(slope))(to(z))), want, rtol=1e-5, atol=1e-6)


# -- masked gradients ----------------------------------------------------------------
def open_root(x):
    return mx.where(x > 0, mx.sqrt(x), 0.0).sum()


@pytest.mark.parametrize("wrap", [lambda g: g, mx.compile], ids=["eager", "compiled"])
def test_masked__a_branch_not_taken_gives_zero(wrap):
    x = array([0, -1, 4])
    assert np.isnan(np.array(wrap(mx.grad(open_root))(x))[:2]).all()
    g = mx.grad(open_root, masked=True)
    np.testing.assert_allclose(np.array(wrap(g)(x)), [0, 0, 0.25])
    h = mx.grad(lambda x: g(x).sum(), masked=True)
    np.testing.assert_allclose(np.array(wrap(h)(x)), [0, 0, -1 / 32])
    value, got = mx.value_and_grad(open_root, masked=True)(x)
    assert value.item() == 2
    np.testing.assert_allclose(np.array(got), [0, 0, 0.25])


def test_masked__finite_slopes_keep_their_second_order():
    f = mx.grad(lambda x, y: (mx.sin(x) * y).sum(), masked=True)
    x, zero = array([1.0]), array([0.0])
    g = mx.grad(lambda y: f(x, y).sum(), masked=True)(zero)
    np.testing.assert_allclose(np.array(g), np.cos([1.0]))


def test_masked__reductions():
    def f(x):
        return mx.where(array([1.0, 0.0]) > 0, mx.logsumexp(mx.log(x), axis=1), 0.0).sum()

    g = mx.grad(f, masked=True)(array([[1, 3], [-1, 0]]))
    np.testing.assert_allclose(np.array(g), [[0.25, 0.25], [0, 0]])


def test_masked__ends_with_its_own_call():
    mx.grad(open_root, masked=True)(array([4.0]))
    with pytest.raises(ValueError):
        mx.grad(lambda x: x, masked=True)(array([4.0]))
    assert np.isnan(np.array(mx.grad(open_root)(array([-1.0])))).all()
