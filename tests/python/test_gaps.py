# SPDX-License-Identifier: Apache-2.0
"""The faults of MLX that Marram promises not to have: one test for each gap of
the contract on dtypes, indexing, gradients, vmap, random numbers, quantisation
and their like, by the contract's number.  Most are tested at length elsewhere.
"""

import os
import subprocess
import sys
import threading

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
        for traced in (x, y):
            view = np.array(traced, copy=False)
            assert not view.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                view[:] = 3
        return (y * y).sum()

    x = mx.array([1.0, 2.0])
    old = mx.set_traced_reads("ignore")
    try:
        assert mx.grad(f)(x).tolist() == [2, 4]
    finally:
        mx.set_traced_reads(old)
    assert x.tolist() == [1, 2]
    np.array(x, copy=False)[0] = 9  # elsewhere it may be written
    assert x.tolist() == [9, 2]


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


def test_gap_49__a_thread_unsafe_stream_is_a_stream():
    s, seen = mx.new_thread_unsafe_stream(mx.cpu), []
    x = mx.arange(1000.0)
    with mx.stream(s):
        y = x * 2

    def other():
        with mx.stream(s):
            seen.append(mx.sum(y + x).item())

    threads = [threading.Thread(target=other) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert seen == [3 * 499500] * 4


def test_gap_50__streams_are_light_and_leases_apart():
    mx.eval(mx.zeros((3,), stream=mx.new_stream(mx.cpu)))
    before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else None
    for _ in range(2000):  # a request each
        with mx.stream(mx.new_stream(mx.cpu)):
            mx.eval(mx.ones((3,)) + 1)
    if before is not None:
        assert len(os.listdir("/proc/self/task")) <= before
    leases, inside, gate = [], [], threading.Barrier(4)

    def request():
        with mx.stream(mx.new_stream(mx.cpu)):
            leases.append(mx.default_stream(mx.cpu))
            gate.wait()
            inside.append((mx.arange(5) + 1).sum().item())
            gate.wait()

    threads = [threading.Thread(target=request) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({str(s) for s in leases}) == 4
    assert inside == [15] * 4


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
    with pytest.raises(IndexError, match="segmented_mm: index 9 is out of range for axis 0 of size 5"):
        mx.eval(mx.segmented_mm(mx.ones((2, 4)), mx.ones((4, 2)), mx.array([[0, 9]], dtype=mx.uint32)))
    for lhs, rhs in ((mx.array([3]), None), (None, mx.array([-4])), (mx.array([0]), mx.array([3]))):
        with pytest.raises(IndexError, match=r"gather_mm: index -?[34] is out of range for axis 0 of size 3"):
            mx.eval(mx.gather_mm(mx.ones((3, 2, 4)), mx.ones((3, 4, 2)), lhs, rhs))


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


@pytest.mark.parametrize("tf32", ["0", "1"])
def test_gap_61__float32_products_are_full_at_every_shape(tf32):
    program = """
import marram.core as mx
fine = 1 + 2.0**-20  # TF32 has 10 bits behind the point
for m, n, k in [(1, 1, 1), (3, 5, 7), (1, 64, 64), (64, 1, 64), (65, 63, 66), (257, 256, 255)]:
    x = mx.full((m, k), fine) * (mx.arange(k) == k - 1)
    y = x @ mx.ones((k, n))
    assert (y == fine).all().item(), (m, n, k)
    x = mx.full((1, m, k), fine) * (mx.arange(k) == k - 1)
    y = mx.conv1d(x, mx.ones((n, 1, k)))
    assert (y == fine).all().item(), (m, n, k)
print("full")
"""
    env = {**os.environ, "MLX_ENABLE_TF32": tf32}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "full\n", done.stderr


def numbers(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


TILED = {
    "matmul": lambda r, n: (mx.matmul, np.matmul, numbers(r, n, n + 1), numbers(r, n + 1, n - 1)),
    "rows times matrix": lambda r, n: (mx.matmul, np.matmul, numbers(r, 2, n), numbers(r, n, n + 1)),
    "transposed": lambda r, n: (lambda a, b: a.T @ b, lambda a, b: a.T @ b, numbers(r, n, 33), numbers(r, n, 17)),
    "sum of rows": lambda r, n: (lambda a: a.sum(1), lambda a: a.sum(1), numbers(r, 3, n)),
    "sum of columns": lambda r, n: (lambda a: a.sum(0), lambda a: a.sum(0), numbers(r, n, 3)),
    "softmax": lambda r, n: (lambda a: mx.softmax(a, -1), softmax, numbers(r, 3, n)),
    "cumsum": lambda r, n: (lambda a: mx.cumsum(a, 1), lambda a: a.cumsum(1), numbers(r, 3, n)),
    "sort": lambda r, n: (lambda a: mx.sort(a, 1), lambda a: np.sort(a, 1), numbers(r, 3, n)),
    "transpose": lambda r, n: (lambda a: mx.contiguous(a.T), lambda a: a.T, numbers(r, n, n + 2)),
    "elementwise": lambda r, n: (mx.exp, np.exp, numbers(r, n)),
    "gather": lambda r, n: (lambda a: a[:, ::-1][1:], lambda a: a[:, ::-1][1:], numbers(r, 3, n)),
    "convolution": lambda r, n: (mx.convolve, np.convolve, numbers(r, n), numbers(r, 5)),
    "fft": lambda r, n: (lambda a: mx.abs(mx.fft.rfft(a)), lambda a: np.abs(np.fft.rfft(a)), numbers(r, 2, n)),
}


@pytest.mark.parametrize("name", TILED)
def test_gap_62__sizes_around_one_two_and_three_tiles(name):
    for n in sorted({max(tile * k + d, 5) for tile in (8, 16, 32, 64) for k in (1, 2, 3) for d in (-1, 0, 1)}):
        f, plain, *args = TILED[name](np.random.default_rng(n), n)
        want = plain(*(a.astype(np.float64) for a in args))
        np.testing.assert_allclose(np.array(f(*map(mx.array, args))), want, rtol=2e-5, atol=2e-5, err_msg=str(n))


def test_gap_63__floats_become_integers_by_one_rule():
    x = mx.array([1e30, -1e30, float("nan"), 3.9])
    assert x.astype(mx.int32).tolist() == [2**31 - 1, -(2**31), 0, 3]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: mx.hadamard_transform(x.reshape(2, 8)),
        mx.nan_to_num,
        lambda x: mx.block_masked_mm(x.reshape(4, 4), x.reshape(4, 4), 32),
        lambda x: mx.gather_mm(x.reshape(2, 2, 4), x.reshape(2, 4, 2)),
        lambda x: mx.segmented_mm(x.reshape(4, 4), x.reshape(4, 4), mx.array([[0, 2]])),
        lambda x: mx.conv_general(x.reshape(1, 8, 2), x[:6].reshape(1, 3, 2)),
        lambda x: mx.conv_transpose1d(x.reshape(1, 8, 2), x[:6].reshape(1, 3, 2)),
    ],
)
def test_float64__stays_where_mlx_refuses_it(f):
    x = np.random.default_rng(0).standard_normal(16) / 3
    wide, narrow = f(mx.array(x, dtype=mx.float64)), f(mx.array(x.astype(np.float32)))
    assert wide.dtype == mx.float64
    wide = np.array(wide)
    assert np.abs(wide - np.array(narrow)).max() < 1e-5
    assert (wide != wide.astype(np.float32)).any()  # not by way of float32


def test_gap_64__full_has_the_dtype_asked_for():
    y = mx.full((2,), 3.7, mx.int32)
    assert y.dtype == mx.int32
    assert y.tolist() == [3, 3]


def test_gap_65__lists_of_numpy_scalars_ranges_and_empty_lists():
    assert mx.array([np.float32(1), np.float32(2)]).tolist() == [1, 2]
    assert mx.array(range(3)).tolist() == [0, 1, 2]
    assert mx.arange(3)[[]].tolist() == []


def test_gap_66__bfloat16_says_what_to_do(monkeypatch):
    x = mx.array([1.0, 2.5], dtype=mx.bfloat16)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)  # importing it fails
    with pytest.raises(ValueError, match=r"bfloat16.*astype\(mx\.float32\)"):
        np.array(x)
    with pytest.raises(BufferError, match=r"bfloat16.*astype\(mx\.float32\)"):
        memoryview(x)
    assert np.array(x.astype(mx.float32)).tolist() == [1, 2.5]


def test_gap_67__float64_that_float32_cannot_hold_is_told_once():
    program = """
import warnings
import numpy as np, marram.core as mx
warnings.simplefilter("error")
mx.array(np.array([0.1, 1e38, np.inf, np.nan, 0.0, 16777217.0]))  # rounded alone
mx.array(np.array([1e300]), dtype=mx.float32)
assert mx.array(np.array([1e300]), dtype=mx.float64).item() == 1e300
for bad in (1e300, 1e-300):
    try:
        mx.array(np.array([1.0, bad]))
    except UserWarning as e:
        print(e)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
    assert "dtype=mx.float64" in done.stdout


def test_gap_68__dlpack_waits_for_the_producer():
    x = mx.random.normal((300, 300))
    y = x
    for _ in range(20):
        y = mx.tanh(y @ x)
    mx.async_eval(y)
    assert (np.from_dlpack(y) == np.array(y)).all()
    asked = []

    class Producer:
        def __dlpack__(self, **given):
            asked.append(given)
            return y.__dlpack__(**given)

        def __dlpack_device__(self):
            return y.__dlpack_device__()

    assert (np.array(mx.from_dlpack(Producer())) == np.array(y)).all()
    assert all(g.get("stream") is None for g in asked)  # the CPU has no stream
    assert asked


def test_gap_69__copy_is_as_the_standard_says():
    a = np.arange(4, dtype=np.float32)
    for make in (mx.asarray, mx.from_dlpack):
        for copy in (None, False):
            assert np.shares_memory(np.asarray(make(a, copy=copy)), a)
        assert not np.shares_memory(np.asarray(make(a, copy=True)), a)
    with pytest.raises(ValueError, match="copy"):
        mx.asarray(a, dtype=mx.int32, copy=False)
    with pytest.raises(ValueError, match="copy"):
        mx.asarray([1.0], copy=False)
    assert mx.asarray(a, dtype=mx.int32).dtype == mx.int32
    assert not np.shares_memory(np.asarray(mx.array(a)), a)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("size", [32, 64, 96, 352])
def test_gap_88__one_bit_and_every_tail(bits, size):
    w = np.random.default_rng(bits + size).standard_normal((3, size)).astype(np.float32)
    q, s, b = mx.quantize(mx.array(w), group_size=32, bits=bits)
    assert q.shape == (3, size * bits // 32)
    d = np.array(mx.dequantize(q, s, b, group_size=32, bits=bits))
    scale, bias = (np.repeat(np.array(x), 32, axis=1) for x in (s, b))
    code = np.round((d - bias) / scale)
    assert np.allclose(d, code * scale + bias, atol=1e-6)
    assert code.min() >= 0
    assert code.max() <= 2**bits - 1
    # the nearest of the codes, and the largest number of a group is exact
    assert (code == np.clip(np.rint((w - bias) / scale), 0, 2**bits - 1)).mean() > 0.99
    largest = np.abs(w).reshape(3, -1, 32).argmax(-1)[..., None]
    groups = (np.take_along_axis(x.reshape(3, -1, 32), largest, -1) for x in (w, d))
    np.testing.assert_allclose(next(groups), next(groups), rtol=1e-6)
    bit = (np.array(q)[:, :, None] >> np.arange(32, dtype=np.uint32) & 1).reshape(3, -1)
    assert (bit.reshape(3, size, bits) @ (1 << np.arange(bits)) == code).all()


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


TIES = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25]  # half way between two codes


def test_gap_97__quantize_takes_the_lower_code_and_qqmm_the_even_one():
    w = mx.array([[*TIES, 6.0, *[0.0] * 23]])
    q, s = mx.quantize(w, group_size=32, mode="mxfp4")
    d = mx.dequantize(q, s, group_size=32, mode="mxfp4")
    assert d[0, :9].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 0, 6]
    eye = mx.quantize(mx.eye(32), group_size=32, mode="mxfp4")
    y = mx.qqmm(w, *eye, group_size=32, mode="mxfp4")
    assert y[0, :9].tolist() == [0, 1, 1, 2, 2, 4, 4, 0, 6]


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
