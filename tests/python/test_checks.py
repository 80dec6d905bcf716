# SPDX-License-Identifier: Apache-2.0
"""Gap 94: gradients against finite differences, compiled functions against
themselves, as functions of ours."""

import marram.core as mx
import pytest
from marram.utils import check_compile, check_grad, check_shapeless


def numbers(*shape, dtype=mx.float64):
    return (mx.arange(1, 1 + mx.zeros(shape).size).reshape(shape) / 7).astype(dtype)


def test_check_grad__passes_what_is_right():
    check_grad(lambda a, b: (mx.sin(a) * b).sum(), [numbers(2, 3), numbers(3)])
    check_grad(lambda a: mx.logsumexp(a @ a.T), [numbers(4, 4) / 5])
    check_grad(lambda a: mx.exp(a).sum(), [numbers(5, dtype=mx.float32)])
    check_grad(lambda p, n: (p["w"][0] * n).sum() ** 2, [{"w": [numbers(3)], "b": numbers(1)}, 3])
    check_grad(lambda a: ((a**2).sum(), "more"), [numbers(200)])


def wrong(a):
    @mx.custom_function
    def f(x):
        return x * x

    @f.vjp
    def f_vjp(x, cotangent, _):
        return cotangent * x  # a factor of 2 is missing

    return f(a).sum()


def test_check_grad__names_what_is_wrong():
    with pytest.raises(
        ValueError,
        match=r"argument 1\['w'\], element 0 of shape \(3,\): the gradient is 0\.1428\d*, "
        r"differences give 0\.2857",
    ):
        check_grad(lambda a, p: wrong(p["w"]) + a.sum(), [numbers(2), {"w": numbers(3)}])


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], "no float32 or float64 array"),
        ([mx.array([1, 2])], "no float32 or float64 array"),
        ([[mx.array([1.0]), mx.array([1])]], "argument 0 holds"),
    ],
)
def test_check_grad__refuses(args, text):
    with pytest.raises(ValueError, match=text):
        check_grad(lambda *a: mx.array(1.0), args)


def test_check_grad__tolerances_and_steps_are_the_callers():
    x = [numbers(3)]
    check_grad(lambda a: wrong(a), x, rtol=1.0)
    check_grad(lambda a: wrong(a), x, atol=1.0)
    with pytest.raises(ValueError, match="the gradient is"):
        check_grad(lambda a: wrong(a), x, rtol=0.2, atol=0.0)
    with pytest.raises(ValueError, match="the gradient is"):
        check_grad(lambda a: mx.exp(a).sum(), x, step=1.0)
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a step of"):
            check_grad(lambda a: a.sum(), x, step=bad)


def test_check_grad__the_functions_own_errors_pass():
    def f(a):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        check_grad(f, [numbers(3)])
    with pytest.raises(ValueError, match="0-d array"):
        check_grad(lambda a: a, [numbers(3)])


def test_check_compile__passes_what_is_right():
    nan = mx.array([float("nan"), -0.0, 1.0])
    calls = [(numbers(3), {"w": [numbers(3)]}), (numbers(4), {"w": [numbers(4)]})]
    check_compile(lambda a, p: {"y": mx.sin(a) * p["w"][0], "n": 3, "t": (a.sum(), None)}, calls)
    check_compile(lambda a: a / 0 + nan, [numbers(3), mx.zeros((3,), dtype=mx.float32)])
    for t in (mx.bool_, mx.int8, mx.uint64, mx.float16, mx.bfloat16, mx.complex64, mx.complex128):
        check_compile(lambda a: (a, a + a), [mx.array([[0, 1, 1]]).astype(t)])


def test_check_compile__names_what_was_frozen():
    kept = []

    def grows(a):
        kept.append(1)
        return {"y": [a * len(kept)]}

    with pytest.raises(ValueError, match=r"call 0: the result\['y'\]\[0\], element 2 of shape \(3,\), is .* when compiled"):
        check_compile(grows, [mx.array([0.0, 0.0, 1.0])])

    sides = []

    def swings(a):
        sides.append(1)
        return (a, a) if len(sides) % 2 else [a, a, a]

    with pytest.raises(ValueError, match="has the leaves"):
        check_compile(swings, [numbers(1)])
    with pytest.raises(ValueError, match="no calls"):
        check_compile(lambda a: a, [])


def test_check_shapeless__other_sizes_of_one_trace():
    traces = []

    def f(a):
        traces.append(a.shape[0])
        return mx.softmax(a, -1), a.reshape(-1, 2), a.shape[0] * a.sum()

    calls = [numbers(n, 4) for n in (2, 5, 3)]
    check_shapeless(f, calls)
    assert len(traces) == 2 * len(calls) + 1

    length = []

    def frozen(a):
        length.append(a.shape)
        return a + float(str(length[-1][1]) == "4") if len(length) == 1 else a

    with pytest.raises(ValueError, match="when compiled"):
        check_shapeless(frozen, calls)
    with pytest.raises(ValueError, match="the same shapes"):
        check_shapeless(f, calls[:1] * 2)
