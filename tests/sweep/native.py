# SPDX-License-Identifier: Apache-2.0
"""Native code against the interpreter, bit for bit (MARRAM_JIT=now).

usage: native.py [quick] ops | casts | chains | rows | fuzz SEED COUNT

ops     every operation that fuses, in every dtype, on special values
casts   every pair of dtypes
chains  long functions one after another, rows of every length
rows    reductions with what is before and after them, in all layouts
fuzz    random graphs of operators, dtypes and layouts
quick   the code that a hot program gets first, not the one that it gets later

What is computed eagerly never has native code, so it is the reference.  Prints
how much was compared and how many steps ran natively; the exit status is 1
when anything differed.
"""

import ctypes
import re
import sys
from collections.abc import Callable

import marram.core as mx
import numpy as np

FLOATS = [mx.float32, mx.float16, mx.bfloat16, mx.float64]
INTEGERS = [mx.int8, mx.int16, mx.int32, mx.int64,
            mx.uint8, mx.uint16, mx.uint32, mx.uint64]
FLOATING = [*FLOATS, mx.complex64, mx.complex128]
DTYPES = [*FLOATS, *INTEGERS, mx.complex64, mx.complex128, mx.bool_]

UNARY = """abs negative sign square sqrt rsqrt reciprocal exp expm1 log log2
    log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh
    arctanh erf erfinv sigmoid floor ceil round trunc logical_not bitwise_invert
    isnan isinf isfinite isposinf isneginf real imag conjugate""".split()
BINARY = """add subtract multiply divide floor_divide remainder power maximum
    minimum arctan2 logaddexp hypot equal not_equal less less_equal greater
    greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or
    bitwise_xor left_shift right_shift""".split()
UNARY, BINARY = ([n for n in names if hasattr(mx, n)] for names in (UNARY, BINARY))
# Of a NaN's sign nothing is promised, so these get no NaN.
SIGN_OF_NAN = {"signbit", "copysign"} & set(dir(mx))
REDUCTIONS = """sum mean max min prod any all argmax argmin logsumexp""".split()

SPECIAL = np.array([
    0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, 3.0, -7.0, np.inf, -np.inf, np.nan,
    1e-40, -1e-40, 1e-45, 1.17549435e-38, 3.4028235e38, -3.4028235e38, 65504.0,
    65520.0, 6e-8, 127.0, 128.0, 255.0, 256.0, -128.5, 32768.0, 2.0**31,
    2.0**32, 2.0**53 + 2, 2.0**63, -(2.0**63), 2.0**64, 1e300, 5e-324, 0.65,
    3.94, 88.8, -103.9, 709.8, 0.25, -0.75, 9.5, 1e10, 6.125])


class Info(ctypes.Structure):
    """mr_jit_info of marram/sys/info.h."""

    _fields_ = [("size", ctypes.c_size_t), ("mode", ctypes.c_char_p),
                ("loaded", ctypes.c_bool), ("why_not", ctypes.c_char_p),
                ("steps", ctypes.c_int64), ("compiled", ctypes.c_int64),
                ("shared", ctypes.c_int64), ("failed", ctypes.c_int64),
                ("declined", ctypes.c_int64), ("seconds", ctypes.c_double), ("waited", ctypes.c_double)]


def library() -> ctypes.CDLL:
    """The one that is in use: a sanitizer's build has only its testing copy."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        path = next(line.split()[-1] for line in maps if re.search(r"/libmarram(_testing)?\.so", line))
    return ctypes.CDLL(path)


def info() -> Info:
    i = Info(ctypes.sizeof(Info))
    library().mr_jit_info_get(ctypes.byref(i))
    return i


# -- values --------------------------------------------------------------------
def values(rng: np.random.Generator, n: int, dtype: mx.Dtype) -> mx.array:
    """n numbers, a third of them special."""
    if dtype in INTEGERS or dtype == mx.bool_:
        wide = rng.integers(-2**63, 2**63 - 1, n)
        small = rng.integers(-5, 70, n)
        return mx.array(np.where(rng.random(n) < 0.5, wide, small)).astype(dtype)
    x = rng.standard_normal(n) * rng.choice([1.0, 10.0, 100.0], n)
    k = rng.random(n) < 0.35
    x[k] = rng.choice(SPECIAL, k.sum())
    with np.errstate(all="ignore"):
        if dtype in (mx.complex64, mx.complex128):
            y = np.roll(x, 7)
            z = np.empty(n, "c16")
            z.real, z.imag = x, y
            return mx.array(z, dtype=dtype)
        return mx.array(x, dtype=mx.float64).astype(dtype)


def bits(a: mx.array) -> np.ndarray:
    if a.dtype == mx.bfloat16:
        a = a.astype(mx.float32)
    n = np.ascontiguousarray(np.array(a))
    return n.view(n.real.dtype) if n.dtype.kind == "c" else n


def same(a: mx.array, b: mx.array) -> bool:
    """Equal dtype, shape and bits; NaNs are equal."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    x, y = bits(a), bits(b)
    if x.dtype.kind != "f":
        return bool((x == y).all())
    whole = f"u{x.dtype.itemsize}"
    nan = np.isnan(x) & np.isnan(y)
    return bool(((x.view(whole) == y.view(whole)) | nan).all())


class Count:
    """What was compared, and what differed."""

    def __init__(self) -> None:
        self.n = self.bad = 0

    def compare(self, what: str, f: Callable, *args: mx.array) -> None:
        eager = f(*args)
        compiled = mx.compile(f)(*args)
        eager, compiled = ((e if isinstance(e, tuple) else (e,))
                           for e in (eager, compiled))
        mx.eval(*eager, *compiled)
        for k, (a, b) in enumerate(zip(eager, compiled, strict=True)):
            self.n += 1
            if not same(a, b):
                self.bad += 1
                x, y = bits(a).ravel(), bits(b).ravel()
                at = np.flatnonzero((x != y) & ~((x != x) & (y != y)))[:4]
                print(f"differs: {what}, result {k}: {a.dtype} {a.shape} at "
                      f"{at}: {x[at]}, natively {y[at]}", flush=True)


# -- ops and casts --------------------------------------------------------------
def kept(mask: mx.array, r: mx.array) -> mx.array:
    """r through one operation more, since a single one is not compiled."""
    return mx.where(mask, r, mx.zeros((), r.dtype))


def ops(c: Count) -> None:
    rng = np.random.default_rng(1)
    n = 1009
    mask = mx.array(rng.random(n) < 0.9)
    for dtype in DTYPES:
        x, y = values(rng, n, dtype), values(rng, 2 * n, dtype)[::2]
        mx.eval(x, y)
        for name in [*UNARY, *BINARY, "where", *sorted(SIGN_OF_NAN)]:
            op = getattr(mx, name)
            args = (x,) if name in UNARY or name == "signbit" else (x, y)
            if name in SIGN_OF_NAN:
                args = tuple(mx.where(mx.isnan(a), 1, a) if dtype in FLOATS
                             else a for a in args)
                mx.eval(*args)
            try:
                if name == "where":
                    mx.eval(op(mask, x, y))
                else:
                    mx.eval(op(*args))
            except (ValueError, TypeError):
                continue
            if name == "where":
                c.compare(f"where of {dtype}",
                          lambda m, a, b: mx.where(m, a, mx.where(m, b, a)),
                          mask, x, y)
                continue
            c.compare(f"{name} of {dtype}",
                      lambda m, *a, op=op: kept(m, op(*a)), mask, *args)
            if dtype in FLOATING:  # in stages, where op is a long function
                c.compare(f"{name} of {dtype}, twice",
                          lambda m, *a, op=op: mx.where(m, op(*a), op(*(mx.negative(b) for b in a))),
                          mask, *args)


def casts(c: Count) -> None:
    rng = np.random.default_rng(2)
    n = 2003
    mask = mx.array(rng.random(n) < 0.9)
    for source in DTYPES:
        x = values(rng, n, source)
        mx.eval(x)
        for to in DTYPES:
            if to != source:
                c.compare(f"{source} to {to}",
                          lambda m, a, to=to: kept(m, a.astype(to)), mask, x)


# -- chains ---------------------------------------------------------------------
def mish(x: mx.array) -> mx.array:
    return x * mx.tanh(mx.log1p(mx.exp(x)))


def three_results(x: mx.array) -> tuple[mx.array, ...]:
    """Results of the first, a middle and the last function; x is read again."""
    a = mx.exp(x)
    b = mx.sin(a) * x
    return a, b, mx.cos(b) + a - x


def powers(x: mx.array) -> mx.array:
    """Numbers that are one for all points, as operands of long functions."""
    return mx.power(mx.power(x, 1.5) + 1, mx.array(0.5).astype(x.dtype)) * mx.exp(x)


def masks(x: mx.array) -> mx.array:
    """Bools and another width from one function to the next."""
    m = mx.isfinite(mx.exp(x))
    y = mx.sin(x).astype(mx.float32)
    return mx.where(m, mx.cos(x), mx.log(x)) * mx.tanh(y).astype(x.dtype)


def many_kept(x: mx.array) -> mx.array:
    """Twelve values wait for the last of them."""
    v = [mx.exp(x * (1 / k)) for k in range(1, 13)]
    while len(v) > 1:
        v = [v[0] * v[-1], *v[1:-1]]
    return v[0]


def ten_long(x: mx.array) -> mx.array:
    for f in (mx.sin, mx.exp, mx.tanh, mx.arctan, mx.sinh) * 2:
        x = f(x) * 0.5
    return x


def reduced(x: mx.array) -> tuple[mx.array, ...]:
    """Reductions of what early and late functions give."""
    a = mx.exp(x)
    b = mx.sin(a)
    return (mx.sum(a, axis=-1), mx.max(mx.tanh(b), axis=-1), mx.sum(x, axis=-1),
            mx.sum(mx.cos(b), axis=-1, keepdims=True) * b)


CHAINS = (mish, three_results, powers, masks, many_kept, ten_long, reduced)
# About each whole number of registers (8 or 16 points) up to two strips of 16
# and beyond; segments do not know lengths, so all share their code.
LENGTHS = sorted({0, *range(1, 20)} | {n + d for n in range(24, 545, 8) for d in (-1, 0, 1)})


def chains(c: Count) -> None:
    rng = np.random.default_rng(4)
    for dtype in FLOATING:
        for f in CHAINS:
            try:
                mx.eval(f(mx.ones((2,), dtype)))
            except (ValueError, TypeError):
                continue
            x = values(rng, LENGTHS[-1] + 1, dtype)
            for n in LENGTHS if dtype == mx.float32 else LENGTHS[::5]:
                if n == 0 and f is reduced:
                    continue
                c.compare(f"{f.__name__} of {dtype} ({n},)", f, x[1:1 + n])
            for shape in ((3, 17), (40, 15), (2, 300), (5, 257)):
                y = values(rng, int(np.prod(shape)), dtype).reshape(shape)
                c.compare(f"{f.__name__} of {dtype} {shape}", f, y)


# -- rows -----------------------------------------------------------------------
def softmax(x: mx.array, axis: int) -> mx.array:
    e = mx.exp(x - mx.max(x, axis=axis, keepdims=True))
    return e / mx.sum(e, axis=axis, keepdims=True)


def layer_norm(x: mx.array, axis: int) -> mx.array:
    d = x - mx.mean(x, axis=axis, keepdims=True)
    return d * mx.rsqrt(mx.mean(d * d, axis=axis, keepdims=True) + 1e-5)


def square_error(x: mx.array, axis: int) -> tuple[mx.array, ...]:
    return (mx.mean(mx.square(x - 0.5), axis=axis), mx.sum(x * x, axis=axis),
            mx.max(x * 2, axis=axis))


def picked(x: mx.array, axis: int) -> tuple[mx.array, ...]:
    y = x * x - x
    return mx.argmax(y, axis=axis), mx.argmin(y, axis=axis), y


def logits(x: mx.array, axis: int) -> mx.array:
    return x * 0.5 - mx.logsumexp(x * 0.5, axis=axis, keepdims=True)


def rows(c: Count) -> None:
    rng = np.random.default_rng(3)
    shapes = [(64, 100), (7, 1024), (3, 9000), (130, 10), (1, 50000), (5, 64),
              (9, 65), (33, 63), (4, 6, 50)]
    for dtype in [*FLOATS, mx.complex64, mx.int32, mx.uint8]:
        for shape in shapes:
            x = values(rng, int(np.prod(shape)), dtype).reshape(shape)
            tame = mx.array(rng.standard_normal(shape)).astype(dtype)
            across = mx.array(rng.standard_normal(shape[::-1])).astype(dtype)
            mx.eval(x, tame, across)
            for f in (softmax, layer_norm, square_error, picked, logits):
                for axis in range(len(shape)):
                    for a in (x, tame, across.transpose()):
                        try:
                            mx.eval(f(a, axis))
                        except (ValueError, TypeError):
                            continue
                        c.compare(f"{f.__name__} of {dtype} {shape} axis {axis}",
                                  lambda v, f=f, axis=axis: f(v, axis), a)


# -- random programs --------------------------------------------------------------
SHAPES = [(5,), (16,), (33,), (100,), (1000,), (7, 100), (64, 64), (3, 5, 17),
          (40, 10), (2, 3000), (20, 130), (9000,), (130, 7), (3, 70, 9), (1,),
          (70000,), (2, 5000)]


def memory(rng: np.random.Generator, shape: tuple[int, ...],
           dtype: mx.Dtype) -> mx.array:
    """An array of the shape that lies in memory in some way."""
    def of(s: tuple[int, ...]) -> mx.array:
        a = values(rng, int(np.prod(s)), dtype).reshape(s)
        mx.eval(a)
        return a

    way = rng.integers(6)
    if way == 0:
        return of(shape[::-1]).transpose()
    if way == 1:
        return of(tuple(d if rng.random() < 0.5 else 1 for d in shape))
    if way == 2:
        return of(tuple(2 * d for d in shape))[tuple(
            slice(None, None, 2) for _ in shape)]
    return of(shape)[..., ::-1] if way == 3 else of(shape)


class Program:
    """A random graph; calling it builds it on its arguments."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.steps = [(*rng.integers(1000, size=4), *rng.random(2))
                      for _ in range(rng.integers(2, 14))]
        self.n_out = int(rng.integers(1, 4))
        self.names: list[str] = []

    def step(self, v: list[mx.array], a: int, b: int, c: int, o: int,
             p: float, q: float) -> mx.array:
        x, y = v[-1 - a % min(len(v), 3)], v[b % len(v)]
        if p < 0.3:
            self.names.append(UNARY[o % len(UNARY)])
            return getattr(mx, self.names[-1])(x)
        if p < 0.65:
            self.names.append(BINARY[o % len(BINARY)])
            return getattr(mx, self.names[-1])(x, y)
        if p < 0.72:
            self.names.append("where")
            return mx.where(v[c % len(v)].astype(mx.bool_), x, y)
        if p < 0.82:
            self.names.append(str(DTYPES[o % len(DTYPES)]))
            return x.astype(DTYPES[o % len(DTYPES)])
        if p < 0.88:
            self.names.append("number")
            return x * 3 if x.dtype in INTEGERS else x + (0.5, 2, -1)[o % 3]
        self.names.append(REDUCTIONS[o % len(REDUCTIONS)])
        whole = q > 0.8 and not self.names[-1].startswith("arg")
        axis = tuple(range(x.ndim)) if whole else int(b % x.ndim)
        return getattr(mx, self.names[-1])(x, axis=axis, keepdims=True)

    def __call__(self, *args: mx.array) -> tuple[mx.array, ...]:
        v = list(args)
        self.names = []
        for s in self.steps:
            try:
                v.append(self.step(v, *s))
            except (ValueError, TypeError):
                self.names.pop()
        return tuple(v[-self.n_out:])


def fuzz(c: Count, seed: int, count: int) -> None:
    for i in range(count):
        rng = np.random.default_rng((seed, i))
        shape = SHAPES[rng.integers(len(SHAPES))]
        dtypes = [DTYPES[k] for k in rng.integers(len(DTYPES), size=3)]
        if rng.random() < 0.6:
            dtypes = dtypes[:1] * 3
        args = [memory(rng, shape, d) for d in dtypes[:rng.integers(1, 4)]]
        program = Program(rng)
        program(*args)
        c.compare(f"fuzz {seed} {i}: {program.names} of "
                  f"{[(a.dtype, a.shape) for a in args]}", program, *args)


def main() -> int:
    c = Count()
    what = sys.argv[1:]
    if what[0] == "quick":
        library().mr_test_jit_quick(ctypes.c_bool(True))
        del what[0]
    if what[0] == "fuzz":
        fuzz(c, int(what[1]), int(what[2]))
    else:
        {"ops": ops, "casts": casts, "chains": chains, "rows": rows}[what[0]](c)
    i = info()
    print(f"compared {c.n}, differed {c.bad}, native steps {i.steps}, "
          f"failed {i.failed}, pieces {i.compiled}")
    return 1 if c.bad or i.failed else 0


if __name__ == "__main__":
    sys.exit(main())
