# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms: any length and axes against NumPy, short-time ones
against files that PyTorch wrote, what is refused, the cache of plans."""

import importlib.util
import json
import threading
from pathlib import Path

import marram.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

GOLDEN = Path(__file__).parents[1] / "golden"
TOLERANCE = {"float32": 1e-6, "complex64": 1e-6, "float64": 2e-15, "complex128": 2e-15}
LENGTHS = [*range(1, 65), 97, 128, 251, 256, 360, 509, 1000, 1009, 1024, 2048, 4095, 7919, 16384, 30030]


def spec(name):
    module = importlib.util.spec_from_file_location(name, GOLDEN / f"{name}.py")
    found = importlib.util.module_from_spec(module)
    module.loader.exec_module(found)
    return found


def draw(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return (x if dtype.startswith("complex") else x.real).astype(dtype)


def array(x):
    return mx.array(x, dtype=getattr(mx, x.dtype.name))


def assert_near(got, want, dtype):
    got, want = np.array(got), np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype.name == dtype
    size = np.sqrt(np.mean(np.abs(want) ** 2)) if want.size else 1.0
    error = np.sqrt(np.mean(np.abs(got - want) ** 2)) if want.size else 0.0
    assert error <= TOLERANCE[dtype] * max(size, 1e-300)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("real", "wide"), [("float32", "complex64"), ("float64", "complex128")])
def test_fft__equals_numpy_at_any_length(n, real, wide):
    for shape, axis in (((n,), 0), ((3, n), 1), ((n, 20), 0)):
        x, y = draw(shape, wide), draw(shape, real, 1)
        exact, plain = x.astype(np.complex128), y.astype(np.float64)
        assert_near(mx.fft.fft(array(x), axis=axis), np.fft.fft(exact, axis=axis), wide)
        assert_near(mx.fft.ifft(array(x), axis=axis), np.fft.ifft(exact, axis=axis), wide)
        assert_near(mx.fft.rfft(array(y), axis=axis), np.fft.rfft(plain, axis=axis), wide)
        for m in {max(1, 2 * n - 2), 2 * n - 1, n + 3}:
            assert_near(mx.fft.irfft(array(x), m, axis), np.fft.irfft(exact, m, axis), real)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_fftn__any_axes_lengths_and_norms_equal_numpy(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    any_axis = st.integers(-len(shape), len(shape) - 1)
    axes = data.draw(st.lists(any_axis, min_size=1, max_size=len(shape), unique_by=lambda a: a % len(shape)))
    norm = data.draw(st.sampled_from(["backward", "ortho", "forward"]))
    s = data.draw(st.none() | st.tuples(*[st.integers(1, 12)] * len(axes)))
    x, y = draw(shape, "complex128"), draw(shape, "float64")
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        a = y if name == "rfftn" else x
        if name == "irfftn" and s is None and shape[axes[-1]] == 1:
            continue
        want = getattr(np.fft, name)(a, s, axes, norm)
        got = getattr(mx.fft, name)(array(a), s, axes, norm)
        assert_near(got, want, "float64" if name == "irfftn" else "complex128")


def test_fft__dtypes_follow_the_table():
    for dtype in ("bool_", "int8", "uint64", "float16", "bfloat16", "float32", "complex64"):
        x = mx.ones((4,), dtype=getattr(mx, dtype))
        assert mx.fft.fft(x).dtype == mx.complex64
        assert mx.fft.irfft(x).dtype == mx.float32
    for dtype in ("float64", "complex128"):
        x = mx.ones((4,), dtype=getattr(mx, dtype))
        assert mx.fft.ifft2(x.reshape(2, 2)).dtype == mx.complex128
        assert mx.fft.irfftn(x).dtype == mx.float64


def test_fft__halves_are_computed_in_float32():
    x = draw(257, "float32").astype(np.float16)
    assert_near(mx.fft.fft(array(x)), np.fft.fft(x.astype(np.float64)), "complex64")


def test_fft__axes_none_takes_the_last_of_s():
    x = draw((2, 3, 4), "complex128")
    assert_near(mx.fft.fftn(array(x), s=[5]), np.fft.fft(x, 5), "complex128")
    assert_near(mx.fft.fft2(array(x), axes=None), np.fft.fftn(x), "complex128")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("fft(x, n=0)", ValueError),
        ("fft(x, n=-3)", ValueError),
        ("fft(x, n=2**62)", (ValueError, OverflowError, MemoryError)),
        ("fft(x, n=2**70)", (ValueError, OverflowError)),
        ("fft(x, n=1.5)", TypeError),
        ("fft(x, axis=2)", IndexError),
        ("fft(x, axis=-3)", IndexError),
        ("fft(x, axis=2**40)", IndexError),
        ("fft(mx.array(1.0))", IndexError),
        ("fft(x, norm='none')", ValueError),
        ("fft(x, norm=None)", TypeError),
        ("fft(3.0)", TypeError),
        ("rfft(x.astype(mx.complex64))", ValueError),
        ("rfftn(x.astype(mx.complex128))", ValueError),
        ("irfft(mx.ones((3, 1)))", ValueError),
        ("fft2(mx.ones((3,)))", IndexError),
        ("fft2(x, s=(2,))", ValueError),
        ("fft2(x, s=(2, 0))", ValueError),
        ("fftn(x, axes=(0, 0))", ValueError),
        ("ifftn(x, axes=(1, -1))", ValueError),
        ("fftn(x, s=(1, 2, 3))", ValueError),
        ("rfftn(x, axes=())", ValueError),
        ("irfftn(mx.array(1.0))", ValueError),
        ("fft(mx.zeros((0,)))", ValueError),
        ("fftshift(x, axes=2)", IndexError),
        ("ifftshift(x, axes=(0, 5))", IndexError),
        ("fftfreq(0)", ValueError),
        ("fftfreq(5, 0.0)", ValueError),
        ("rfftfreq(-1)", ValueError),
        ("fftfreq('5')", TypeError),
        ("stft(x, n_fft=0)", ValueError),
        ("stft(x, n_fft=4, hop_length=0)", ValueError),
        ("stft(x, n_fft=4, win_length=5)", ValueError),
        ("stft(x, n_fft=4, window=mx.ones((5,)))", ValueError),
        ("stft(x, n_fft=4, window=mx.ones((2, 2)))", ValueError),
        ("stft(x, n_fft=4, window=mx.ones((4,)).astype(mx.complex64))", ValueError),
        ("stft(x, n_fft=4, pad_mode='wrong')", ValueError),
        ("stft(x, n_fft=9, center=False)", ValueError),
        ("stft(x, n_fft=4, onesided=1)", TypeError),
        ("stft(x.astype(mx.complex64), n_fft=4, onesided=True)", ValueError),
        ("istft(mx.ones((3,)))", ValueError),
        ("istft(mx.ones((3, 0)))", ValueError),
        ("istft(mx.ones((3, 2)), n_fft=8)", ValueError),
        ("istft(mx.ones((1, 2)))", ValueError),
        ("istft(mx.ones((3, 2)), length=-1)", ValueError),
    ],
)
def test_fft__bad_calls_are_refused(call, error):
    with pytest.raises(error) as e:
        mx.eval(eval("mx.fft." + call, {"mx": mx, "x": mx.ones((2, 8))}))
    assert str(e.value)


def test_fft__empty_arrays():
    assert mx.fft.fft(mx.zeros((0, 4))).shape == (0, 4)
    assert mx.fft.rfft(mx.zeros((0, 4))).shape == (0, 3)
    assert np.all(np.array(mx.fft.fft(mx.zeros((4, 0)), n=3)) == np.zeros((4, 3)))
    assert mx.fft.fftn(mx.array(2.0)).item() == 2


# ---- derivatives -------------------------------------------------------------
def test_fft__gradient_of_a_convolution_by_the_theorem():
    a, b = array(draw(12, "float64")), array(draw(12, "float64", 1))

    def by_fft(a, b):
        return mx.fft.irfft(mx.fft.rfft(a) * mx.fft.rfft(b), 12)

    def plain(a, b):
        k = mx.arange(12)
        return (a[None] * b[(k[:, None] - k[None]) % 12]).sum(1)

    def loss(f):
        return mx.grad(lambda a, b: (f(a, b) ** 3).sum(), argnums=(0, 1))(a, b)

    for got, want in zip(loss(by_fft), loss(plain), strict=True):
        np.testing.assert_allclose(np.array(got), np.array(want), rtol=1e-11, atol=1e-11)


def test_fft__second_derivatives_and_batches():
    x = array(draw((3, 10), "float64"))

    def f(x):
        return (mx.abs(mx.fft.rfft(x, 12)) ** 4).sum()

    def hessian_row(x, v):
        return mx.grad(lambda x: (mx.grad(f)(x) * v).sum())(x)

    v = array(draw((3, 10), "float64", 2))
    h = 1e-6
    want = [(np.array(mx.grad(f)(x[i] + h * v[i])) - np.array(mx.grad(f)(x[i] - h * v[i]))) / (2 * h) for i in range(3)]
    got = np.array(mx.vmap(hessian_row)(x, v))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)


# ---- short-time transforms ---------------------------------------------------
@pytest.mark.parametrize("case", json.loads((GOLDEN / "stft.json").read_text()), ids=lambda c: str(c["n_fft"]))
def test_stft__equals_pytorch(case):
    make = spec("make_stft")
    x = np.array(make.signal(case["length"]))
    if case.get("complex"):
        x = x + 1j * np.array(make.signal(case["length"], 1.0))
    options = {k: case[k] for k in ("n_fft", "hop_length", "win_length", "center", "onesided") if k in case}
    if "window" in case:
        n = case.get("win_length", case["n_fft"])
        options["window"] = mx.array(make.window(case["window"], n), dtype=mx.float64)
    if case.get("normalized"):
        options["norm"] = "ortho"
    pad = {"pad_mode": case["pad_mode"]} if "pad_mode" in case else {}
    got = mx.fft.stft(array(x), **options, **pad)
    want = np.array(case["re"]) + 1j * np.array(case["im"])
    assert got.dtype == mx.complex128
    np.testing.assert_allclose(np.array(got), want, rtol=1e-12, atol=1e-12)
    if "back" in case:
        np.testing.assert_allclose(np.array(mx.fft.istft(got, **options)), case["back"], rtol=1e-12, atol=1e-12)


def test_istft__gives_batches_of_signals_back():
    x = draw((2, 3, 90), "float64")
    w = mx.array(np.hanning(18)[1:-1], dtype=mx.float64)
    m = mx.fft.stft(array(x), n_fft=16, hop_length=5, window=w)
    assert m.shape == (2, 3, 9, 19)
    y = mx.fft.istft(m, n_fft=16, hop_length=5, window=w)
    np.testing.assert_allclose(np.array(y), x, atol=1e-13)
    y = np.array(mx.fft.istft(m, n_fft=16, hop_length=5, window=w, length=120))
    np.testing.assert_allclose(y[..., :90], x, atol=1e-13)
    assert y.shape == (2, 3, 120)
    assert not y[..., 98:].any()


def test_istft__sums_of_zero_fail_when_evaluated():
    m = mx.fft.stft(mx.ones((64,)), n_fft=16)
    y = mx.fft.istft(m, window=mx.zeros((16,)))
    with pytest.raises(ValueError, match="add up to 0"):
        mx.eval(y)
    # the ends that center cuts off do not count
    w = mx.array(np.hanning(17)[:-1].astype(np.float32))
    y = mx.fft.istft(mx.fft.stft(mx.ones((64,)), n_fft=16, window=w), window=w)
    np.testing.assert_allclose(np.array(y), 1, atol=1e-6)
    with pytest.raises(ValueError, match="add up to 0"):
        mx.eval(mx.fft.istft(m, window=w, center=False))


def test_stft__frames_are_a_view():
    x = mx.zeros((1 << 20,))
    mx.eval(x)
    mx.clear_cache()  # blocks of earlier tests may be larger than what is asked for
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(mx.fft.stft(x, n_fft=1024, hop_length=64).real.sum())
    # frames times window and half of its transform, no further copy of frames
    assert mx.get_peak_memory() - before < 2.7 * 16 * (1 << 20) * 4


# ---- plans ---------------------------------------------------------------------
def test_plans__are_counted_bounded_and_dropped():
    mx.clear_fft_cache()
    assert mx.fft_cache_info()["entries"] == 0
    x = mx.ones((300,))
    for n in range(2, 300):
        mx.eval(mx.fft.fft(x, n))
    info = mx.fft_cache_info()
    assert 0 < info["entries"] <= 128
    assert info["evictions"] > 0
    mx.eval(mx.fft.fft(x, 299))
    assert mx.fft_cache_info()["hits"] > info["hits"]
    mx.clear_fft_cache()
    assert mx.fft_cache_info()["bytes"] == 0


def test_plans__threads_share_and_clear_them():
    want = {n: np.fft.fft(np.arange(n)) for n in (64, 97, 1000, 1021)}
    wrong = []

    def work(k):
        for i in range(40):
            n = list(want)[(i + k) % len(want)]
            got = np.array(mx.fft.fft(mx.arange(n)))
            if not np.allclose(got, want[n], rtol=1e-4, atol=1e-2 * n):
                wrong.append(n)
            if i % 7 == k:
                mx.clear_fft_cache()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
