# SPDX-License-Identifier: Apache-2.0
"""Gap 94: gradients against finite differences, as a function of ours."""

import marram.core as mx
import pytest
from marram.utils import check_grad


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
