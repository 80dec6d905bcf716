# SPDX-License-Identifier: Apache-2.0
"""Prints a checksum of the bits of many results.

A program of its own, since MARRAM_NUM_THREADS is read once a process:
test_numerics.py compares its output for several numbers of threads.
"""

import zlib

import marram.core as mx
import numpy as np

RNG = np.random.default_rng(7)
N = 100_001


def drawn(shape, dtype):
    x = RNG.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * RNG.standard_normal(shape)
    if "int" in dtype:
        x = RNG.integers(0, 100, shape)
    return mx.array(x, dtype=getattr(mx, dtype))


def show(name, result):
    if str(result.dtype).endswith("bfloat16"):
        result = result.astype(mx.float32)
    print(name, zlib.crc32(np.ascontiguousarray(np.array(result)).tobytes()))


REDUCTIONS = ["sum", "mean", "var", "prod", "max", "min", "logsumexp", "argmax", "argmin", "any", "all"]
SCANS = ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"]
LAYOUTS = [((N,), 0), ((3, N // 3), 1), ((N // 3, 3), 0), ((20, 60, 100), 1), ((600, 500), 0), ((2100, 600), 0), ((18_000, 40), 0)]


def reductions(dtype):
    for shape, axis in LAYOUTS:
        x = drawn(shape, dtype)
        for name in [*REDUCTIONS, *SCANS]:
            f = getattr(mx, name)
            if dtype.startswith("complex") and name in ("logsumexp", "logcumsumexp"):
                continue
            show(f"{name} {dtype} {shape} {axis}", f(x, axis=axis))
        show(f"sum of all {dtype} {shape}", mx.sum(x))
        show(f"mean of all {dtype} {shape}", mx.mean(x))


def orders(dtype):
    x = drawn((N,), dtype)
    y = drawn((100, 1000), dtype)
    for name in ("sort", "argsort"):
        show(f"{name} {dtype}", getattr(mx, name)(x))
        show(f"{name} rows {dtype}", getattr(mx, name)(y, axis=1))
        show(f"{name} columns {dtype}", getattr(mx, name)(y, axis=0))
    show(f"topk {dtype}", mx.sort(mx.topk(x, 1000)))
    show(f"median {dtype}", mx.median(y, axis=0))


def scatters():
    index = mx.array(RNG.integers(0, 1000, N))
    values = drawn((N,), "float32")
    for way in ("add", "multiply", "maximum", "minimum"):
        show(f"scatter {way}", getattr(mx.zeros((1000,)).at[index], way)(values))
    wide = drawn((N // 3, 3), "float32")
    show("scatter rows", mx.zeros((1000, 3)).at[index[: N // 3]].add(wide))
    show("gather", values[index])


def draws():
    key = mx.random.key(3)
    r = mx.random
    show("uniform", r.uniform(shape=(N,), key=key))
    show("normal", r.normal((N,), key=key))
    show("randint", r.randint(0, 1000, (N,), key=key))
    show("bernoulli", r.bernoulli(0.3, (N,), key=key))
    show("gumbel", r.gumbel((N,), key=key))
    show("laplace", r.laplace((N,), key=key))
    show("truncated normal", r.truncated_normal(-1.0, 2.0, (N,), key=key))
    show("permutation", r.permutation(N, key=key))
    show("categorical", r.categorical(drawn((300, 100), "float32"), num_samples=20, key=key))
    show("bits", r.bits((N,), key=key))


def rows():
    x = drawn((200, 1000), "float32")
    show("softmax", mx.softmax(x, axis=-1))
    show("softmax columns", mx.softmax(x, axis=0))
    for dtype in ("float32", "float16"):
        show(f"softmax of one row {dtype}", mx.softmax(drawn((N,), dtype)))
        show(f"softmax of long columns {dtype}", mx.softmax(drawn((18_000, 70), dtype), axis=0))
    show("layer norm", mx.fast.layer_norm(x, None, None, 1e-5))
    show("fused", mx.exp(x - mx.max(x)) / mx.sum(mx.exp(x - mx.max(x))))
    show("convolution", mx.conv1d(drawn((2, 5000, 4), "float32"), drawn((8, 5, 4), "float32")))
    show("half product", mx.matmul(drawn((300, 400), "bfloat16"), drawn((400, 500), "bfloat16")))
    show("transform", mx.fft.fft(drawn((64, 1000), "float32")))


def main():
    for dtype in ("float32", "float64", "bfloat16", "complex64"):
        reductions(dtype)
    for dtype in ("float32", "int32", "float16"):
        orders(dtype)
    scatters()
    draws()
    rows()


main()
