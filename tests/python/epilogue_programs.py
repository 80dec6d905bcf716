"""Products and what follows them, each joined and step by step: equal bits.

A program of its own, so that ``test_epilogue.py`` can run it with other numbers
of threads and other instruction sets.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import marram.core as mx
import numpy as np

WORDS = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}
FLOATS = [mx.float32, mx.float64, mx.bfloat16, mx.float16]
SHAPES = [  # batch, m, k, n
    ((), 1, 1, 1),
    ((), 1, 37, 130),
    ((), 3, 5, 7),
    ((), 4, 600, 257),
    ((), 7, 0, 5),
    ((), 17, 1, 1),
    ((), 31, 64, 33),
    ((), 97, 131, 127),
    ((), 130, 1100, 140),
    ((), 200, 70, 1),
    ((), 201, 167, 301),
    ((20,), 4, 4, 4),
    ((20,), 9, 3, 16),
    ((3,), 33, 40, 35),
    ((2, 3), 5, 64, 70),
    ((5,), 130, 20, 33),
    ((), 2100, 40, 2060),  # followed tile by tile
    ((), 90, 30, 48000),
]

Chain = Callable[["Case"], mx.array]


def bits(x: mx.array) -> bytes:
    """The bytes of the elements, so that NaNs and zeros count."""
    if x.dtype == mx.complex64:
        return np.array(x).tobytes()
    if x.dtype == mx.bool_:
        return np.array(x).tobytes()
    return np.array(mx.view(x, WORDS[x.dtype.size])).tobytes()


class Case:
    """Random arrays for one run; ``each`` is called with every step's value."""

    def __init__(self, seed: int, dtype: mx.Dtype, each: Callable[[mx.array], mx.array]):
        self.numbers = np.random.default_rng(seed)
        self.dtype = dtype
        self.each = each

    def array(self, *shape: int) -> mx.array:
        """Normal numbers, some of them awkward."""
        v = self.numbers.standard_normal(shape)
        if v.size > 8 and self.dtype != mx.int32:
            v.reshape(-1)[self.numbers.integers(v.size)] = self.numbers.choice([0.0, -0.0, 40.0, 1e-30])
        if self.dtype == mx.int32:
            v = v * 5
        return mx.array(v.astype(np.float32)).astype(self.dtype)


def follow(c: Case, y: mx.array, picks: random.Random) -> list[mx.array]:
    """A random chain behind y; what it gives, several arrays at times."""
    n = y.shape[-1]
    held = []
    for _ in range(picks.randint(1, 5)):
        pick = picks.randrange(12)
        if pick == 0:
            y = c.each(y + c.array(n).astype(y.dtype))
        elif pick == 1 and y.ndim > 1:
            y = c.each(y * c.array(*y.shape[-2:-1], 1).astype(y.dtype))
        elif pick == 2:
            y = c.each(y + c.array(*y.shape).astype(y.dtype))
        elif pick == 3:
            y = c.each(mx.maximum(y, 0))
        elif pick == 4 and y.dtype != mx.int32:
            y = c.each(mx.tanh(y))
        elif pick == 5:
            y = c.each(y.astype(picks.choice(FLOATS) if y.dtype not in (mx.int32, mx.complex64) else y.dtype))
        elif pick == 6 and y.dtype != mx.complex64:
            y = c.each(mx.where(c.each(y > 0), y, c.each(y * 0.5 if y.dtype != mx.int32 else -y)))
        elif pick == 7:
            held.append(y)
        elif pick == 8 and y.dtype not in (mx.int32, mx.complex64):
            y = c.each(0.5 * y * (1 + mx.erf(c.each(y * 0.7071))))
        elif pick == 9 and y.ndim > 2:
            y = c.each(y - c.array(y.shape[0], *[1] * (y.ndim - 2), n).astype(y.dtype))
        elif pick == 10:
            y = c.each(y + mx.swapaxes(c.array(*y.shape[:-2], n, y.shape[-2]), -1, -2).astype(y.dtype))
        else:
            y = c.each(y * y)
    return [y, *held]


def operand(c: Case, picks: random.Random, *shape: int) -> mx.array:
    """Row-major, turned, or with gaps."""
    how = picks.randrange(4)
    if how == 1:
        return mx.swapaxes(c.array(*shape[:-2], shape[-1], shape[-2]), -1, -2)
    if how == 2:
        return c.array(*shape[:-1], 2 * shape[-1])[..., ::2]
    return c.array(*shape)


def matmul_case(c: Case, picks: random.Random) -> list[mx.array]:
    batch, m, k, n = picks.choice(SHAPES)
    a = operand(c, picks, *batch, m, k)
    b = operand(c, picks, *(() if picks.random() < 0.5 else batch), k, n)
    if picks.random() < 0.2:
        y = c.each(mx.addmm(c.array(n), a, b))
    else:
        y = c.each(a @ b)
    return follow(c, y, picks)


def conv_case(c: Case, picks: random.Random) -> list[mx.array]:
    groups = picks.choice([1, 1, 2, 8])
    inputs, outputs = picks.choice([(8, 16), (8, 8), (16, 24), (1, 1)])
    groups = groups if inputs % groups == 0 and outputs % groups == 0 else 1
    kernel = picks.choice([1, 3, 5])
    if picks.random() < 0.3:
        x = c.array(2, 41, inputs)
        y = mx.conv1d(x, c.array(outputs, kernel, inputs // groups), padding=1, groups=groups)
    else:
        x = c.array(2, 17, 19, inputs)
        y = mx.conv2d(
            x,
            c.array(outputs, kernel, kernel, inputs // groups),
            padding=2,
            stride=picks.choice([1, 2]),
            groups=groups,
        )
    return follow(c, c.each(y), picks)


def quantized_case(c: Case, picks: random.Random) -> list[mx.array]:
    k, n, turned = picks.choice([64, 256]), picks.choice([64, 320]), picks.random() < 0.7
    batch = picks.choice([(), (), (3,)])
    w = c.array(n, k) if turned else c.array(k, n)
    packed = mx.quantize(w, bits=picks.choice([4, 8]), group_size=32)
    x = c.array(*batch, picks.choice([1, 5, 40, 130]), k)
    bits_of = 4 if packed[0].shape[-1] * 8 == w.shape[-1] else 8
    y = mx.quantized_matmul(x, *packed, transpose=turned, bits=bits_of, group_size=32)
    return follow(c, c.each(y), picks)


KINDS = {
    "matmul": (matmul_case, [*FLOATS, mx.complex64, mx.float32, mx.bfloat16]),
    "conv": (conv_case, [mx.float32, mx.float64, mx.bfloat16, mx.float16, mx.float32]),
    "quantized": (quantized_case, [mx.float32, mx.bfloat16, mx.float16]),
}


def alone(x: mx.array) -> mx.array:
    mx.eval(x)
    return x


def run(kind: str, seed: int, how: str) -> list[bytes]:
    make, dtypes = KINDS[kind]
    dtype = dtypes[seed % len(dtypes)]
    if how == "alone":
        outs = make(Case(seed, dtype, alone), random.Random(seed))
    elif how == "eager":
        outs = make(Case(seed, dtype, lambda x: x), random.Random(seed))
    else:
        outs = compiled(make, seed, dtype)
    mx.eval(outs)
    return [bits(x) for x in outs]


def compiled(make: Callable[..., list[mx.array]], seed: int, dtype: mx.Dtype) -> list[mx.array]:
    """The arrays are arguments, in the order in which the case asks for them."""
    made: list[mx.array] = []

    class Recording(Case):
        def array(self, *shape: int) -> mx.array:
            made.append(super().array(*shape))
            return made[-1]

    make(Recording(seed, dtype, lambda x: x), random.Random(seed))

    class Given(Case):
        def __init__(self, arrays: list[mx.array]):
            super().__init__(seed, dtype, lambda x: x)
            self.arrays = iter(arrays)

        def array(self, *shape: int) -> mx.array:
            return next(self.arrays)

    f = mx.compile(lambda arrays: make(Given(arrays), random.Random(seed)))
    return f(made)


def check(kinds: list[str], first: int, last: int) -> None:
    for kind in kinds:
        for seed in range(first, last):
            want = run(kind, seed, "alone")
            for how in ("eager", "compiled"):
                assert run(kind, seed, how) == want, f"{kind}, seed {seed}, {how}"


if __name__ == "__main__":
    check(list(KINDS), int(sys.argv[1]), int(sys.argv[2]))
