# SPDX-License-Identifier: Apache-2.0
"""Sums, numbers of threads, sizes and counts of 64 bits, random draws: right
at the limits, and nothing that ends the process."""

import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import marram.core as mx
import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
R = mx.random
FLOATS = [mx.float16, mx.bfloat16, mx.float32, mx.float64]


# ---- sums --------------------------------------------------------------------
def test_sum__of_20_million_ones_is_exact():
    ones = mx.ones((20_000_000,))
    assert mx.sum(ones).item() == 20_000_000
    assert mx.mean(ones).item() == 1.0
    assert mx.sum(mx.ones((20_000_000, 1)), axis=0).item() == 20_000_000
    assert mx.sum(mx.ones((10_000_000, 2)), axis=0).tolist() == [10_000_000] * 2
    assert mx.cumsum(ones)[-1].item() == 20_000_000


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_sum__of_halves_is_accumulated_in_float32(dtype):
    x = mx.ones((60_000,), dtype=dtype)
    want = mx.array(60_000.0, dtype=dtype).item()  # rounded once
    assert mx.sum(x).item() == want
    assert mx.sum(x.reshape(60_000, 1), axis=0).item() == want
    assert mx.cumsum(x)[-1].item() == want
    assert mx.inner(x, x).item() == want
    assert mx.einsum("i->", x).item() == want
    assert mx.vecdot(x, x).item() == want
    assert mx.mean(x).item() == 1.0
    assert mx.softmax(mx.zeros((4096,), dtype=dtype))[0].item() == 2.0**-12


def test_sum__keeps_what_is_small_beside_what_is_large():
    rng = np.random.default_rng(0)
    x = (rng.random(3_000_000) * 10.0 ** rng.integers(-6, 3, 3_000_000)).astype(np.float32)
    exact = math.fsum(x.tolist())
    for shape, axis in (((-1,), 0), ((3, -1), None), ((-1, 3), None)):
        got = mx.sum(mx.array(x).reshape(shape), axis=axis).item()
        assert abs(got - exact) <= 2 * np.spacing(np.float32(exact))
    running = np.array(mx.cumsum(mx.array(x)), np.float64)
    want = np.cumsum(x.astype(np.float64))
    assert np.max(np.abs(running - want) / want) < 2**-23
    down = np.array(mx.cumsum(mx.array(x).reshape(-1, 3), axis=0, reverse=True), np.float64)
    want = np.cumsum(x.reshape(-1, 3).astype(np.float64)[::-1], axis=0)[::-1]
    assert np.max(np.abs(down - want) / want) < 2**-23


BIG = {"float16": 60000.0, "bfloat16": 3e38, "float32": 3e38, "float64": 1.7e308}


@pytest.mark.parametrize("name", BIG)
def test_mean__does_not_overflow(name):
    t = getattr(mx, name)
    big = mx.array(BIG[name], dtype=t).item()
    for shape, axis in (((2,), 0), ((1000,), None), ((100_000,), None), ((50, 1000), 1), ((1000, 50), 0), ((3, 200, 5), 1)):
        got = mx.mean(mx.full(shape, big, dtype=t), axis=axis)
        assert np.allclose(np.array(got.astype(mx.float64)), big, rtol=1e-2 if "b" in name else 1e-3), (shape, axis)
    rows = mx.concatenate([mx.full((1, 300), big, dtype=t), mx.ones((1, 300), dtype=t)])
    assert mx.mean(rows, axis=1)[1].item() == 1.0
    assert mx.median(mx.full((4,), big, dtype=t)).item() == big
    if name != "float16":
        x = mx.full((3000,), big, dtype=t)
        assert mx.allclose(x - mx.mean(x), mx.zeros((), dtype=t), atol=big * 0.02).item()
        assert math.isinf(mx.sum(x).item())
        f = mx.compile(lambda x: (mx.mean(x), x / mx.mean(x)))
        eager = (mx.mean(x), x / mx.mean(x))
        for a, b in zip(f(x), eager, strict=True):
            assert mx.array_equal(a, b).item()


def test_mean__of_infinities_and_nan_is_theirs():
    for t in FLOATS:
        assert mx.mean(mx.array([1.0, math.inf], dtype=t)).item() == math.inf
        assert mx.mean(mx.array([1.0, -math.inf], dtype=t)).item() == -math.inf
        assert math.isnan(mx.mean(mx.array([math.inf, -math.inf], dtype=t)).item())
        assert math.isnan(mx.mean(mx.array([1.0, math.nan], dtype=t)).item())
        assert math.isnan(mx.mean(mx.zeros((0,), dtype=t)).item())
    z = mx.mean(mx.array([3e38 + 3e38j, 3e38 - 1j])).item()
    assert z == pytest.approx(3e38 + 1.5e38j, rel=1e-6)


def test_mean__keeps_tiny_numbers():
    tiny = 2.0**-140
    assert mx.mean(mx.full((100_000,), tiny)).item() == tiny
    assert mx.mean(mx.array([1e-310, 3e-310], dtype=mx.float64)).item() == pytest.approx(2e-310)


def test_mean__of_integers_is_float32():
    for t, v in ((mx.int8, 127), (mx.int32, 2**31 - 1), (mx.int64, 2**62), (mx.uint64, 2**64 - 1)):
        assert mx.mean(mx.full((5000,), v, dtype=t)).item() == pytest.approx(float(v))


def test_var__of_a_large_offset_keeps_its_digits():
    assert mx.var(mx.array([1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3])).item() == 1.25
    x = mx.array([1e15, 1e15 + 1, 1e15 + 2, 1e15 + 3], dtype=mx.float64)
    assert mx.var(x).item() == 1.25
    assert mx.std(mx.full((1000,), 1e6)).item() == 0.0
    assert mx.var(mx.array([3e38, 3e38])).item() == 0.0


def test_logsumexp__at_the_limits():
    inf = math.inf
    assert mx.logsumexp(mx.array([1000.0, 1000.0])).item() == pytest.approx(1000 + math.log(2))
    assert mx.logsumexp(mx.array([-1000.0, -1000.0])).item() == pytest.approx(-1000 + math.log(2))
    assert mx.logsumexp(mx.array([-inf, -inf])).item() == -inf
    assert mx.logsumexp(mx.array([inf, 1.0])).item() == inf
    assert mx.logsumexp(mx.zeros((3_000_000,))).item() == pytest.approx(math.log(3e6), rel=1e-7)
    assert mx.logsumexp(mx.full((60_000,), 5.0, dtype=mx.float16)).item() == 16.0
    assert mx.logcumsumexp(mx.array([-inf, 1.0, 2.0, 1000.0])).tolist()[::3] == [-inf, 1000.0]


@pytest.mark.parametrize("shape", [(200_000,), (200_000, 1), (200_000, 40)])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_logcumsumexp__long_ones_are_rounded_once(shape, dtype):
    got = np.array(mx.logcumsumexp(mx.zeros(shape, dtype=dtype), axis=0).astype(mx.float64))
    n = np.arange(1, shape[0] + 1).reshape(-1, *[1] * (len(shape) - 1))
    half = {mx.float32: 2.0**-24, mx.float16: 2.0**-11, mx.bfloat16: 2.0**-8}[dtype]
    np.testing.assert_allclose(got, np.broadcast_to(np.log(n), shape), rtol=1.01 * half, atol=1e-15)


@pytest.mark.parametrize("reverse", [False, True])
def test_logcumsumexp__complex_terms_far_below_the_largest_count(reverse):
    x = np.array([-80.0, -79.0 + 1.0j, 20.0, 100.0 - 2.0j, 3.0], dtype=np.complex64)
    want = np.log(np.cumsum(np.exp(x.astype(np.complex128))))
    got = mx.logcumsumexp(mx.array(x[::-1].copy() if reverse else x), reverse=reverse)
    assert got.dtype == mx.complex64
    np.testing.assert_allclose(np.array(got)[:: -1 if reverse else 1], want, rtol=3e-7)


# ---- any number of threads -----------------------------------------------------
def test_threads__their_number_changes_no_bit():
    def run(n):
        out = subprocess.run(
            [sys.executable, str(HERE / "numerics_threads.py")],
            env={**os.environ, "MARRAM_NUM_THREADS": str(n)},
            capture_output=True,
            text=True,
        )
        assert out.returncode == 0, out.stderr
        return out.stdout.splitlines()

    one = run(1)
    assert len(one) > 350
    assert run(2) == one
    assert run(5) == one
    assert run(16) == one


# ---- sizes and counts ----------------------------------------------------------
# Each call in a list asks for what cannot be; B is 2^40, H 2^62, v and h vectors of
# sizes B and 2^58 without memory, a a vector of 2, m a matrix (2, 3).
REFUSED = {
    "creation": """
        mx.zeros((B, B)) | mx.ones((B, B)) | mx.full((B, B), 1.0) | mx.empty((B, B)) | mx.zeros((H, 4))
        mx.zeros(-1) | mx.zeros((2, -3)) | mx.ones((-1,)) | mx.full((-1,), 1) | mx.empty((-1,)) | mx.zeros((2**63,))
        mx.zeros((2**70,)) | mx.zeros((1,) * 70) | mx.eye(B, B) | mx.eye(-1) | mx.eye(2, -1) | mx.identity(B)
        mx.identity(-1) | mx.tri(B, B) | mx.tri(-1) | mx.linspace(0, 1, H) | mx.linspace(0, 1, -1) | mx.arange(H)
        mx.arange(0, 1e30) | mx.arange(0, 1, 1e-30) | mx.arange(math.inf) | mx.arange(math.nan) | mx.arange(0, 5, 0)
        mx.arange(1e18) | mx.hanning(H) | mx.blackman(H) | mx.bartlett(H) | mx.hamming(H)
        mx.zeros_like(v[None] + v[:, None])""",
    "shapes": """
        mx.reshape(a, (B, B)) | mx.reshape(a, (-2,)) | mx.reshape(a, (-1, -1)) | mx.reshape(a, (H, H, 0))
        mx.broadcast_to(a, (B, B, 2)) | mx.broadcast_to(a, (-1, 2)) | mx.tile(a, (B, B)) | mx.tile(a, 2**63 - 1)
        mx.tile(a, (-1,)) | mx.repeat(a, 2**63 - 1) | mx.repeat(m, H, axis=0) | mx.repeat(a, -1) | mx.pad(a, (H, H))
        mx.pad(a, 2**63 - 1) | mx.pad(a, (-5, 0)) | mx.pad(m, H) | mx.unflatten(a, 0, (B, B))
        mx.unflatten(a, 0, (-1, -1)) | mx.unflatten(a, 0, (-3,)) | mx.expand_dims(a, B)
        mx.expand_dims(a, tuple(range(70))) | mx.split(a, B) | mx.split(a, 0) | mx.split(a, -1) | mx.squeeze(a, 2**31)
        mx.moveaxis(m, 2**32, 0) | mx.swapaxes(m, 0, 2**32) | mx.diag(a, H) | mx.diag(a, -(2**63))
        mx.as_strided(a, (B, B), (0, 0)) | mx.as_strided(a, (4,), (H,)) | mx.as_strided(a, (-1,), (1,))
        mx.as_strided(a, (2,), (1,), H) | mx.as_strided(a, (2,), (-1,)) | mx.as_strided(a, (2,), (1,), -1)
        mx.as_strided(a, (3,), (2**63 - 1,)) | mx.view(mx.zeros((3,), mx.int8), mx.int32)""",
    "pairs": """
        mx.kron(v, v) | mx.outer(v, v) | mx.meshgrid(v, v) | mx.concatenate([h] * 4) | mx.stack([h] * 4)
        v[:, None] + v | mx.matmul(v[:, None], v[None]) | mx.tensordot(v, v, 0) | mx.einsum("i,j->ij", v, v)
        mx.broadcast_arrays(v[:, None], v) | mx.where(v[:, None] > 0, v, v) | mx.maximum(v[:, None], v)
        mx.addmm(a, v[:, None], v[None]) | mx.inner(v[:, None], v[:, None]) | mx.logaddexp(v[:, None], v)""",
    "random": """
        R.uniform(shape=(B, B)) | R.normal((B, B)) | R.randint(0, 5, (B, B)) | R.bernoulli(0.5, (B, B))
        R.gumbel((B, B)) | R.laplace((B, B)) | R.truncated_normal(-1.0, 1.0, (B, B)) | R.bits((B, B))
        R.categorical(m, shape=(B, B, 2)) | R.categorical(m, num_samples=H) | R.permutation(H) | R.permutation(-1)
        R.split(R.key(0), H) | R.split(R.key(0), -1) | R.uniform(shape=(-1,)) | R.normal((2, -2))
        R.randint(0, 1, (-1,)) | R.bernoulli(0.5, (-1,)) | R.gumbel((-1,)) | R.laplace((-1,)) | R.permutation(1.5)
        R.permutation(2**64 - 1) | R.categorical(m, num_samples=-1) | R.key(-1) | R.key(2**64) | R.seed(-1)
        R.split(R.key(0), 2**63)""",
    "indices": """
        a[H] | a[-H] | a[2**70] | a[::0] | mx.take(a, H) | mx.take(a, -(2**63)) | mx.topk(a, H) | mx.topk(a, -1)
        mx.partition(a, H) | mx.partition(a, -(2**63)) | mx.argpartition(a, -5) | mx.sum(a, axis=B)
        mx.sum(a, axis=-(2**63)) | mx.diff(a, n=-1) | mx.nonzero(a, size=-1) | mx.unique(a, size=-1)
        mx.slice(m, mx.array([0, 0]), (0, 1), (H, 1)) | mx.slice(m, mx.array([0, 0]), (0, 1), (-1, 1))
        a[mx.array([2])] | a[mx.array([-3])] | a.at[mx.array([5])].add(1.0) | mx.take_along_axis(a, mx.array([9]), 0)
        mx.put_along_axis(a, mx.array([9]), mx.array([1.0]), 0)""",
    "convolution": """
        mx.conv1d(x, w, stride=0) | mx.conv1d(x, w, stride=-1) | mx.conv1d(x, w, padding=H) | mx.conv1d(x, w, dilation=0)
        mx.conv1d(x, w, dilation=H) | mx.conv1d(x, w, groups=0) | mx.conv1d(x, w, groups=-1) | mx.conv1d(x, w, groups=B)
        mx.conv1d(x, w, groups=2**31) | mx.conv1d(x, mx.zeros((1, 0, 2))) | mx.conv1d(mx.zeros((1, 0, 2)), w)
        mx.conv_general(x, w, input_dilation=0) | mx.conv_general(x, w, input_dilation=H)
        mx.conv_transpose1d(x, w, stride=0) | mx.conv_transpose1d(x, w, stride=H)
        mx.conv_transpose1d(x, w, output_padding=H) | mx.conv_transpose1d(x, w, dilation=H)
        mx.conv_transpose1d(x, w, padding=H) | mx.conv_transpose1d(x, w, groups=0) | mx.convolve(mx.zeros((0,)), a)""",
    "transforms": """
        mx.fft.fft(a, H) | mx.fft.fft(a, -1) | mx.fft.fft(a, 0) | mx.fft.fftfreq(H) | mx.fft.fftfreq(-1)
        mx.fft.rfftfreq(H) | mx.fft.irfft(a, 0) | mx.fft.irfft(a, H) | mx.fft.fftn(m, (B, B)) | mx.fft.fft2(m, (-1, 2))
        mx.quantize(q, group_size=0) | mx.quantize(q, bits=0) | mx.quantize(q, group_size=-64) | mx.quantize(q, bits=99)
        mx.dequantize(mx.zeros((2, 2), mx.uint32), a, a, group_size=0)
        mx.block_masked_mm(q[:, :2], q[:2, :2], 0) | mx.block_masked_mm(q[:, :2], q[:2, :2], -32)
        mx.gather_mm(mx.zeros((2, 2, 2)), mx.zeros((2, 2, 2)), mx.array([5]), mx.array([0]))
        mx.fast.rope(mx.zeros((1, 1, 2, 4)), -2, traditional=False, base=1.0, scale=1.0, offset=0)
        mx.fast.rope(mx.zeros((1, 1, 2, 4)), 2**31, traditional=False, base=1.0, scale=1.0, offset=0)""",
}
# These have an answer, however odd the arguments.
ANSWERED = """
    mx.tri(3, k=2**63 - 1) | mx.eye(3, k=2**63 - 1) | mx.eye(3, k=-(2**63)) | mx.tril(m, 2**63 - 1)
    mx.triu(m, -(2**63)) | mx.roll(a, 2**63 - 1) | mx.roll(a, -(2**63)) | mx.roll(m, (2**63 - 1, -(2**63)), (0, 1))
    a[H:] | a[: -(2**63)] | a[::H] | a[:: -(2**63)] | a[2**100 :] | mx.diagonal(m, H) | mx.diagonal(m, -(2**63))
    mx.trace(m, H) | mx.diff(a, n=100) | mx.as_strided(a, (0,), (5,), 0) | mx.round(a, 2**31 - 1)
    mx.round(a, -(2**31)) | mx.round(mx.array([1]), -(2**31)) | mx.round(mx.array([1]), 400)
    mx.split(a, [H, -(2**63)]) | mx.conv1d(mx.zeros((0, 5, 2)), w) | mx.conv1d(x, mx.zeros((0, 3, 2)))
    mx.conv1d(mx.zeros((1, 5, 0)), mx.zeros((1, 3, 0))) | v[7] | v[::H] | v.shape | mx.broadcast_to(v, (3, B))[2, 5]
    mx.slice(m, mx.array([H, -H]), (0, 1), (1, 1)) | mx.zeros((0, B)) | mx.zeros((B, 0, B)) | mx.sum(mx.zeros((0, B, 3)))
    mx.zeros((0, H)).T | mx.zeros((0, 5)) @ mx.zeros((5, 0)) | mx.zeros((3, 0)) @ mx.zeros((0, 3))
    I // I[::-1] | I % I[::-1] | mx.divmod(I, I * 0) | L // -1 | L % -1 | L // 0 | L % 0 | mx.abs(L) | L << 64 | L >> -1
    mx.power(I, -I) | mx.power(L, L) | mx.floor_divide(mx.zeros((3,), mx.bool_), mx.zeros((3,), mx.bool_))"""
PROGRAM = """
import math, os, resource, sys
import marram.core as mx
if "libasan" in os.environ.get("LD_PRELOAD", ""):
    mx.set_memory_limit(12 << 30)  # the sanitizer's own map of memory is larger than any address space to be allowed
else:
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
R, B, H = mx.random, 2**40, 2**62
a, m, q = mx.zeros((2,)), mx.zeros((2, 3)), mx.zeros((2, 64))
v, h = mx.broadcast_to(a[0], (B,)), mx.broadcast_to(mx.array(1, dtype=mx.int8), (2**58,))
x, w = mx.zeros((1, 5, 2)), mx.zeros((1, 3, 2))
I, L = mx.array([-(2**31), -1, 0, 1, -(2**31)]), mx.array([-(2**63), -1, 0, 5], dtype=mx.int64)
for call in sys.stdin.read().replace("\\n", "|").split("|"):
    call = call.strip()
    if not call:
        continue
    try:
        mx.eval(eval(call))
        print("answered:", call)
    except (ValueError, IndexError, OverflowError, TypeError, MemoryError) as e:
        assert len(str(e)) > 10, call
        print("refused:", call)
    sys.stdout.flush()
assert mx.sum(mx.ones((5,))).item() == 5
print("alive")
"""


def outcomes(calls):
    run = subprocess.run([sys.executable, "-c", PROGRAM], input=calls, capture_output=True, text=True, timeout=120)
    lines = run.stdout.splitlines()
    assert run.returncode == 0, (run.returncode, lines[-1:], run.stderr[-800:])
    assert lines[-1] == "alive"
    return lines[:-1]


@pytest.mark.parametrize("family", REFUSED)
def test_sizes__that_cannot_be_are_refused(family):
    assert [line for line in outcomes(REFUSED[family]) if line.startswith("answered")] == []


def test_arguments__at_the_limits_have_an_answer():
    assert [line for line in outcomes(ANSWERED) if line.startswith("refused")] == []


# ---- random draws: a second writing of the generator's rules ----------------------
def threefry(key, counter):
    mask = 0xFFFFFFFF
    k = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA]
    x0, x1 = (counter[0] + k[0]) & mask, (counter[1] + k[1]) & mask
    for i in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x0 = (x0 + x1) & mask
            x1 = ((x1 << r | x1 >> (32 - r)) & mask) ^ x0
        x0 = (x0 + k[(i + 1) % 3]) & mask
        x1 = (x1 + k[(i + 2) % 3] + i + 1) & mask
    return x0, x1


def words(key, n):
    h, odd = divmod(n, 2)
    out = [0] * n
    for i in range(h):
        out[i], out[h + odd + i] = threefry(key, (i, h + odd + i))
    if odd:
        out[h] = threefry(key, (h, 0))[0]
    return np.array(out, np.uint32)


TOP = {"float16": 1 - 2.0**-11, "bfloat16": 1 - 2.0**-8, "float32": 1 - 2.0**-24}


def unit(key, n, name="float32"):
    f = words(key, n).astype(np.float32) / np.float32(4294967296.0)
    return np.minimum(f, np.float32(TOP[name]))


def rounded(x, name):
    return np.array(mx.array(x).astype(getattr(mx, name)).astype(mx.float32))


KEYS = [(0, 0), (0, 1), (3, 4000000000)]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 101])
def test_random__words_are_the_rule_s(key, n):
    k = mx.array(key, dtype=mx.uint32)
    assert R.bits((n,), key=k).tolist() == words(key, n).tolist()
    for width, t in ((2, np.uint16), (1, np.uint8)):
        whole = words(key, -(-n * width // 4)).astype("<u4").tobytes()[: n * width]
        assert R.bits((n,), width, key=k).tolist() == np.frombuffer(whole, t).tolist()
    assert R.split(k, n).tolist() == words(key, 2 * n).reshape(n, 2).tolist()


@pytest.mark.parametrize("name", TOP)
@pytest.mark.parametrize("key", KEYS)
def test_random__uniform_is_exact(key, name):
    k, t = mx.array(key, dtype=mx.uint32), getattr(mx, name)
    u = rounded(unit(key, 501, name), name)
    assert np.array_equal(np.array(R.uniform(shape=(501,), dtype=t, key=k).astype(mx.float32)), u)
    got = np.array(R.uniform(-3.0, 5.0, (501,), t, key=k).astype(mx.float32))
    assert np.array_equal(got, rounded(rounded(u * np.float32(8), name) + np.float32(-3), name))
    assert got.min() >= -3
    assert u.max() < 1


@pytest.mark.parametrize("key", KEYS)
def test_random__integers_and_truths_are_exact(key):
    k = mx.array(key, dtype=mx.uint32)
    u = unit(key, 300)
    for low, high in ((0, 10), (-7, 9), (0, 1), (5, 5), (0, 2**31 - 1)):
        drawn = np.floor((np.float32(high) - np.float32(low)) * u + np.float32(low))
        want = np.clip(drawn.astype(np.float64), low, max(high - 1, low)).astype(np.int64)
        assert R.randint(low, high, (300,), key=k).tolist() == want.tolist()
    for name in ("int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64"):
        got = R.randint(0, 100, (300,), dtype=getattr(mx, name), key=k)
        assert np.array_equal(np.array(got), np.floor(u * np.float32(100)).astype(name))
    assert R.randint(0, 2, (300,), dtype=mx.bool_, key=k).tolist() == (np.floor(u * 2) != 0).tolist()
    w = words(key, 300).astype(np.float32)
    for p in (0.0, 0.3, 0.5, 1.0, 2.0, -1.0):
        want = w < np.float32(p) * np.float32(4294967808.0)
        assert R.bernoulli(p, (300,), key=k).tolist() == want.tolist()
    assert R.permutation(300, key=k).tolist() == np.argsort(words(key, 300), kind="stable").tolist()


def erfinv32(a):
    """In float64, to a float32's last places."""
    x = np.zeros_like(a, np.float64)
    erf = np.vectorize(math.erf)
    a = a.astype(np.float64)
    t = np.log1p(-a * a)
    x = np.sign(a) * np.sqrt(np.sqrt((4.3307467508 + t / 2) ** 2 - t * 6.8027210884) - (4.3307467508 + t / 2))
    for _ in range(4):
        x = x - (erf(x) - a) / (2 / math.sqrt(math.pi) * np.exp(-x * x))
    return x


@pytest.mark.parametrize("key", KEYS)
def test_random__normal_laplace_gumbel_follow_the_rules(key):
    k = mx.array(key, dtype=mx.uint32)
    low = np.nextafter(np.float32(-1), np.float32(0))
    u = (np.float32(1) - low) * unit(key, 400) + low
    z = erfinv32(u) * math.sqrt(2)
    for name, tol in (("float32", 2e-6), ("float16", 2e-3), ("bfloat16", 2e-2), ("float64", 2e-6)):
        t = getattr(mx, name)
        got = np.array(R.normal((400,), dtype=t, key=k).astype(mx.float64))
        assert np.allclose(got, z, rtol=tol, atol=tol)
        got = np.array(R.normal((400,), dtype=t, loc=1.0, scale=2.0, key=k).astype(mx.float64))
        assert np.allclose(got, 2 * z + 1, rtol=2 * tol, atol=4 * tol)
        lap = np.sign(u) * np.log1p(-np.abs(u.astype(np.float64)))
        got = np.array(R.laplace((400,), dtype=t, key=k).astype(mx.float64))
        assert np.allclose(got, lap, rtol=tol, atol=tol)
        assert R.laplace((400,), dtype=t, key=k).dtype is t
    pair = (np.float32(1) - low) * unit(key, 400) + low
    want = erfinv32(pair).reshape(200, 2)
    got = np.array(R.normal((200,), dtype=mx.complex64, key=k))
    assert np.allclose(got, want[:, 0] + 1j * want[:, 1], rtol=2e-6, atol=2e-6)
    g = -np.log(-np.log(unit(key, 400).astype(np.float64)))
    assert np.allclose(np.array(R.gumbel((400,), key=k)), g, rtol=1e-5, atol=2e-6)


def test_random__truncated_normal_stays_between_its_bounds():
    k = R.key(1)
    for low, high in ((-1.0, 1.0), (0.0, 0.5), (2.0, 3.0), (8.0, 9.0), (-math.inf, 0.0), (1.0, 1.0)):
        for t in (mx.float32, mx.float16, mx.bfloat16):
            x = R.truncated_normal(low, high, (1000,), dtype=t, key=k)
            assert mx.all(x >= low).item()
            assert mx.all(x <= high).item()
    free = R.truncated_normal(-math.inf, math.inf, (100,), key=k)
    assert mx.allclose(free, R.normal((100,), key=k), atol=1e-5).item()


def test_random__categorical_at_the_limits():
    inf, k = math.inf, R.key(0)
    assert set(R.categorical(mx.array([-inf, 0.0, -inf]), num_samples=500, key=k).tolist()) == {1}
    assert set(R.categorical(mx.array([0.0, inf, inf]), num_samples=500, key=k).tolist()) == {1, 2}
    rows = mx.array([[-inf, 0.0, -inf], [0.0, -inf, -inf]])
    assert R.categorical(rows, key=k).tolist() == [1, 0]
    assert R.categorical(rows, num_samples=0, key=k).shape == (2, 0)
    assert R.categorical(mx.zeros((3,)), shape=(0,), key=k).shape == (0,)
    with pytest.raises(ValueError, match="both|not both"):
        R.categorical(rows, shape=(2,), num_samples=3, key=k)
    with pytest.raises(ValueError):
        R.categorical(mx.zeros((0,)), key=k)
    # gumbel and argmax, several distributions
    logits = mx.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    want = mx.argmax(logits[:, :, None] + R.gumbel((2, 3, 50), key=k), axis=1)
    assert mx.array_equal(R.categorical(logits, num_samples=50, key=k), want).item()
    counts = np.bincount(np.array(R.categorical(mx.array([0.0, math.log(3.0)]), num_samples=20_000, key=k)))
    assert abs(counts[1] / 20_000 - 0.75) < 0.015


def test_random__vmap_over_keys_is_a_loop():
    keys = R.split(R.key(2), 5)
    for f in (
        lambda k: R.uniform(shape=(7,), key=k),
        lambda k: R.normal((4,), key=k),
        lambda k: R.randint(0, 50, (3,), key=k),
        lambda k: R.bernoulli(0.4, (6,), key=k),
        lambda k: R.permutation(9, key=k),
        lambda k: R.laplace((3,), key=k),
        lambda k: R.truncated_normal(-1.0, 1.0, (3,), key=k),
        lambda k: R.split(k, 3),
    ):
        assert mx.array_equal(mx.vmap(f)(keys), mx.stack([f(k) for k in keys])).item()


def test_random__unseeded_threads_draw_different_numbers():
    program = """
import threading
import marram.core as mx
out = [mx.random.uniform(shape=(4,)).tolist()]
def draw():
    out.append(mx.random.uniform(shape=(4,)).tolist())
threads = [threading.Thread(target=draw) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len({tuple(x) for x in out}) == 5, out
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_random__seeded_threads_draw_the_same_numbers():
    out = []

    def draw():
        R.seed(9)
        out.append(R.uniform(shape=(3,)).tolist())

    threads = [threading.Thread(target=draw) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    R.seed(9)
    assert out == [R.uniform(shape=(3,)).tolist()] * 3


def test_random__keys_that_are_none_are_refused():
    for bad in (mx.array([1, 2, 3]), mx.array([1.0, 2.0]), mx.zeros((3, 2), dtype=mx.uint32), mx.array([1, 2])):
        for f in (lambda k: R.uniform(shape=(2,), key=k), lambda k: R.split(k), lambda k: R.permutation(3, key=k)):
            with pytest.raises(ValueError, match="key"):
                f(bad)
    for t in (mx.float64, mx.int32, mx.complex64):
        with pytest.raises((ValueError, RuntimeError)):
            R.uniform(shape=(2,), dtype=t)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("dtype", "sizes"), [("float32", (40000, 3001)), ("float32", (2000, 30011)), ("float64", (90000, 7000))])
def test_convolve__long_filters(mode, dtype, sizes):
    r = np.random.default_rng(3)
    a, v = (r.standard_normal(n).astype(dtype) for n in sizes)
    want = np.convolve(a.astype(np.float64), v.astype(np.float64), mode)
    got = np.array(mx.convolve(mx.array(a, dtype=getattr(mx, dtype)), mx.array(v, dtype=getattr(mx, dtype)), mode))
    assert got.dtype == dtype
    assert np.abs(got - want).max() <= (1e-4 if dtype == "float32" else 1e-10)
    grad = mx.grad(lambda x: (mx.convolve(x, mx.array(v)[: sizes[1]], mode) ** 2).sum())(mx.array(a))
    assert np.isfinite(np.array(grad)).all()


def test_convolve__what_is_not_finite_stays_where_it_reaches():
    a, v = np.ones(40000, np.float32), np.ones(2000, np.float32)
    a[100] = np.inf
    y = np.array(mx.convolve(mx.array(a), mx.array(v)))
    assert np.isnan(y[100:2100]).all()
    assert np.allclose(y[2100:40000], 2000)
    assert np.allclose(y[:100], np.arange(1, 101))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_remainder__is_exact_where_the_quotient_overflows(dtype: str) -> None:
    """fmod of finite numbers is a number of the type (C23 7.12.10.1), however large their quotient."""
    rng = np.random.default_rng(7)
    t, top, least = getattr(mx, dtype), *((1023, -1074) if dtype == "float64" else (127, -149))
    x = np.ldexp(rng.uniform(1, 2, 4000), rng.integers(top - 60, top + 1, 4000)) * rng.choice([-1, 1], 4000)
    y = np.ldexp(rng.uniform(1, 2, 4000), rng.integers(least + 3, least + 200, 4000)) * rng.choice([-1, 1], 4000)
    a, b = mx.array(x, dtype=t), mx.array(y, dtype=t)
    x, y = np.array(a.astype(mx.float64)), np.array(b.astype(mx.float64))
    kept = y != 0
    got = np.array((a % b).astype(mx.float64))[kept]
    want = np.array([u % v for u, v in zip(x[kept].tolist(), y[kept].tolist(), strict=True)])
    assert np.array_equal(got, np.array(mx.array(want, dtype=t).astype(mx.float64)))
    q = np.array((a // b).astype(mx.float64))[kept]
    assert (np.isinf(q) & (np.sign(q) == np.sign(x[kept] * np.sign(y[kept])))).mean() > 0.3
    assert not np.isnan(q).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_odd_functions__keep_the_sign_of_zero(dtype: str) -> None:
    x = mx.array([-0.0, 0.0] * 20, dtype=getattr(mx, dtype))
    for f in ("tanh", "sin", "tan", "sinh", "arcsin", "arctan", "arcsinh", "arctanh", "erf", "expm1", "log1p", "sqrt"):
        for g in (getattr(mx, f), mx.compile(getattr(mx, f))):
            got = np.array(g(x).astype(mx.float64))
            assert np.array_equal(np.signbit(got), np.signbit(np.array(x.astype(mx.float64)))), f
