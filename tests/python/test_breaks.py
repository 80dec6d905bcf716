# SPDX-License-Identifier: Apache-2.0
"""What broke once: one test for each fault that was found by trying."""

import marram.core as mx
import numpy as np
import pytest


def test_format__of_a_0d_array_without_a_spec_is_its_item():
    assert f"{mx.array(3)}" == "3"
    assert f"{mx.array(2.5)} {mx.array(True)}" == "2.5 True"
    assert format(mx.array(1.5), ".2f") == "1.50"
    assert f"{mx.array([1])}" == "array([1], dtype=int32)"
    with pytest.raises(TypeError):
        format(mx.array([1.0]), ".2f")


@pytest.mark.parametrize("n", [-1, -3, -(2**40)])
def test_permutation__of_a_negative_number_is_refused(n):
    with pytest.raises(ValueError, match=rf"{n} numbers, needs 0 or more"):
        mx.random.permutation(n)
    assert mx.random.permutation(0).shape == (0,)


@pytest.mark.parametrize("n", [-1, 2**64, 2**100])
def test_seed__that_is_no_64_bit_number_is_a_type_error(n):
    with pytest.raises(TypeError, match=r"0 to 2\^64 - 1"):
        mx.random.seed(n)


def test_array__of_a_range_is_that_of_its_list():
    assert mx.array(range(3)).tolist() == [0, 1, 2]
    assert mx.array(range(3)).dtype == mx.int32
    assert mx.array(range(5, 0, -2), dtype=mx.float32).tolist() == [5.0, 3.0, 1.0]
    assert mx.array(range(0)).shape == (0,)
    assert mx.array(range(2**40, 2**40 + 2)).dtype == mx.int64


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), (2, 3, 0), (0, 2, 3)])
def test_svd_and_lu__of_an_empty_matrix_have_their_full_factors(shape):
    m, n = shape[-2:]
    eyes = [np.broadcast_to(np.eye(k), (*shape[:-2], k, k)) for k in (m, n)]
    for t in (mx.float32, mx.float64, mx.complex64, mx.complex128):
        u, s, vt = mx.linalg.svd(mx.zeros(shape, dtype=t))
        assert np.array_equal(u, eyes[0]) and np.array_equal(vt, eyes[1])
        assert s.shape == (*shape[:-2], min(m, n))
    for t in (mx.float32, mx.float64):
        order, lower, upper = mx.linalg.lu(mx.zeros(shape, dtype=t))
        assert np.array_equal(order, np.zeros(shape[:-1]) + np.arange(m))
        assert lower.shape == (*shape[:-1], min(m, n))
        assert upper.shape == (*shape[:-2], min(m, n), n)


@pytest.mark.parametrize("size", [[], ()])
def test_size__that_is_an_empty_list_is_a_type_error(size):
    with pytest.raises(TypeError, match="'size' must be int or None"):
        mx.unique(mx.array([1, 2]), size)
    with pytest.raises(TypeError, match="'size' must be int or None"):
        mx.repeat(mx.array([1, 2]), mx.array([1, 2]), size=size)


@pytest.mark.parametrize("n", [4, 5, 6, 34, 20000, 2 * 10007])
@pytest.mark.parametrize("cut", [0, 1])
def test_rfft__of_an_axis_that_was_broadcast_is_that_of_its_copy(n, cut):
    row = np.arange(1.0, 4.0)
    for a, x, axis in (
        (mx.broadcast_to(mx.array(row, dtype=mx.float64), (n, 3)), np.tile(row, (n, 1)), 0),
        (mx.broadcast_to(mx.array([[2.0]], dtype=mx.float64), (1, n)), np.full((1, n), 2.0), 1),
    ):
        for length in (None, n + 3, n - cut):
            got = np.array(mx.fft.rfft(a, length, axis))
            assert np.allclose(got, np.fft.rfft(x, length, axis), atol=1e-8 * n)
            got = np.array(mx.fft.rfft(a.astype(mx.float32), length, axis))
            assert np.allclose(got, np.fft.rfft(x, length, axis), atol=1e-4 * n**0.5)


@pytest.mark.parametrize("places", ["a", 1.5, (0, "b"), [None], object()])
def test_argnums__that_are_no_ints_are_named_in_the_error(places):
    with pytest.raises(TypeError, match=r"argnums must be an int or a list of ints, not \w+"):
        mx.grad(lambda a: a, argnums=places)
    assert mx.grad(lambda a, b: a * b, argnums=range(2))(mx.array(2.0), mx.array(3.0))[1].item() == 2.0


@pytest.mark.parametrize("info", [mx.finfo, mx.iinfo])
@pytest.mark.parametrize("what", [1.0, "float32", None, (0,), np.ones(2)])
def test_limits__of_what_is_no_dtype_are_a_type_error(info, what):
    with pytest.raises(TypeError, match=f"{info.__name__}\\(\\) takes a dtype or an array, not {type(what).__name__}"):
        info(what)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
def test_matmul__of_rows_apart_or_backwards_is_compiled_bit_for_bit(dtype):
    """Arguments of a compiled function are row-major, eager ones as they come."""
    rng = np.random.default_rng(3)
    views = [
        lambda x, r, c: x[:r, :c],
        lambda x, r, c: x[: 2 * r : 2, : 2 * c : 2],
        lambda x, r, c: x[:r][::-1, :c],
        lambda x, r, c: x[:r, :c][:, ::-1],
    ]
    functions = [lambda a, b: a @ b, lambda a, b: b.T @ a.T, lambda a, b: a @ a.T]
    for _ in range(120):
        m, k, n = (int(v) for v in rng.integers(1, 40, 3))
        base = mx.array(rng.standard_normal((80, 80)).astype(np.float32)).astype(getattr(mx, dtype))
        a = views[rng.integers(len(views))](base, m, k)
        b = views[rng.integers(len(views))](base, k, n)
        f = functions[rng.integers(len(functions))]
        assert mx.array_equal(f(a, b), mx.compile(f)(a, b)).item()
