#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes precision.npz: values of the elementary functions to the last bit.

usage: make_precision.py [POINTS]    (with NumPy and mpmath)

For each function and dtype `NAME/DTYPE/x` holds the points, in that dtype
(two columns for functions of two numbers), and `NAME/DTYPE/y` the values: of
real functions as pairs whose sum is right to 100 bits, of complex ones
complex128.  The points are drawn from a fixed seed where these functions are
hard: tiny and huge numbers, near 0 and 1, near branch points, near multiples
of pi/2, near overflow.
"""

import math
import random
import sys
from pathlib import Path

import mpmath as mp
import numpy as np

RNG = random.Random(20240901)


class Range:
    """Exponents and limits of a width."""

    def __init__(self, single):
        self.high, self.low = (127.9, 149) if single else (1023.9, 1074)
        self.last = -22 if single else -51  # the distance from 1
        self.exp = 92 if single else 714  # around overflow of exp


def sign():
    return RNG.choice([-1, 1])


def power_of_two(low, high):
    return 2.0 ** RNG.uniform(low, high)


def near_right_angle():
    turns = RNG.randint(1, 1000) * math.pi / 2
    return turns * (1 + RNG.choice([0, 2**-52, -(2**-52), 1e-6]))


def choices(kind, r):
    """Five ways to draw a point for a function of this kind."""
    u, p = RNG.uniform, power_of_two
    return {
        "any": [lambda: sign() * p(-r.low, -1), lambda: sign() * u(0, 2), lambda: sign() * p(-20, 20),
                lambda: sign() * p(1, r.high), lambda: sign() * u(0.5, 3)],
        "exp": [lambda: sign() * p(-r.low, -1), lambda: sign() * u(0, 2), lambda: sign() * u(0, r.exp),
                lambda: sign() * p(-30, 1), lambda: sign() * u(r.exp - 5, r.exp)],
        "positive": [lambda: p(-r.low, r.high), lambda: 1 + sign() * p(r.last, -2), lambda: u(0.5, 2),
                     lambda: p(-4, 4), lambda: p(-r.low, -r.low + 20)],
        "above -1": [lambda: sign() * p(-r.low, -1), lambda: p(-1, r.high), lambda: sign() * u(0, 0.9),
                     lambda: -1 + p(r.last, -1), lambda: sign() * p(-30, -1)],
        "angle": [lambda: sign() * p(-r.low, -1), lambda: sign() * u(0, 7), near_right_angle,
                  lambda: sign() * p(3, 30), lambda: sign() * p(30, r.high)],
        "unit": [lambda: sign() * p(-r.low, -1), lambda: sign() * u(0, 1), lambda: sign() * (1 - p(r.last, -2)),
                 lambda: sign() * p(-10, 0), lambda: sign() * u(0.4, 0.6)],
        "above 1": [lambda: 1 + p(r.last, -1), lambda: 1 + u(0, 3), lambda: p(1, 20), lambda: p(1, r.high),
                    lambda: 1 + p(-8, 0)],
        "erf": [lambda: sign() * p(-r.low, -1), lambda: sign() * u(0, 1), lambda: sign() * u(0, 6),
                lambda: sign() * u(2, 4), lambda: sign() * p(-5, 2)],
    }[kind]


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def logaddexp(a, b):
    return max(a, b) + mp.log1p(mp.exp(min(a, b) - max(a, b)))


REAL = {
    "exp": (mp.exp, "exp"),
    "expm1": (mp.expm1, "exp"),
    "log": (mp.log, "positive"),
    "log2": (lambda x: mp.log(x) / mp.log(2), "positive"),
    "log10": (lambda x: mp.log(x) / mp.log(10), "positive"),
    "log1p": (mp.log1p, "above -1"),
    "sin": (mp.sin, "angle"),
    "cos": (mp.cos, "angle"),
    "tan": (mp.tan, "angle"),
    "arcsin": (mp.asin, "unit"),
    "arccos": (mp.acos, "unit"),
    "arctan": (mp.atan, "any"),
    "sinh": (mp.sinh, "exp"),
    "cosh": (mp.cosh, "exp"),
    "tanh": (mp.tanh, "exp"),
    "arcsinh": (mp.asinh, "any"),
    "arccosh": (mp.acosh, "above 1"),
    "arctanh": (mp.atanh, "unit"),
    "erf": (mp.erf, "erf"),
    "erfinv": (mp.erfinv, "unit"),
    "sigmoid": (sigmoid, "exp"),
    "sqrt": (mp.sqrt, "positive"),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), "positive"),
    "reciprocal": (lambda x: 1 / x, "any"),
    "degrees": (lambda x: x * 180 / mp.pi, "any"),
    "radians": (lambda x: x * mp.pi / 180, "any"),
}
REAL_2 = {"arctan2": mp.atan2, "logaddexp": logaddexp, "power": mp.power, "hypot": mp.hypot}
COMPLEX = {
    "exp": mp.exp,
    "log": mp.log,
    "log2": lambda z: mp.log(z) / mp.log(2),
    "log10": lambda z: mp.log(z) / mp.log(10),
    "log1p": lambda z: mp.log(1 + z),
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "arcsin": mp.asin,
    "arccos": mp.acos,
    "arctan": mp.atan,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "tanh": mp.tanh,
    "arcsinh": mp.asinh,
    "arccosh": mp.acosh,
    "arctanh": mp.atanh,
    "sqrt": mp.sqrt,
    "rsqrt": lambda z: 1 / mp.sqrt(z),
    "reciprocal": lambda z: 1 / z,
    "square": lambda z: z * z,
    "sign": lambda z: z / abs(z),
}
COMPLEX_2 = {
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "power": lambda a, b: a**b,
    "logaddexp": lambda a, b: mp.log(mp.exp(a) + mp.exp(b)),
}


def points(kind, r, n):
    ways = choices(kind, r)
    return [ways[i % 5]() for i in range(n)]


def pairs(name, r, n):
    """Points of two numbers, both parts of the result's range in reach."""
    a, b = points("any", r, n), points("any", r, n)
    RNG.shuffle(b)
    if name == "power":
        a = points("positive", r, n)
        b = [sign() * RNG.uniform(0, r.exp - 4) / math.log(x) if i % 2 and x != 1 else sign() * RNG.uniform(0, 9)
             for i, x in enumerate(a)]
    if name == "logaddexp":
        a = points("exp", r, n)
        b = [x + sign() * power_of_two(-6, 6) for x in a]
    return list(zip(a, b, strict=True))


def complex_point(i, r):
    if i % 6 == 0:  # near the unit circle
        angle, size = RNG.uniform(0, 6.28), 1 + sign() * power_of_two(r.last, -3)
        return complex(size * math.cos(angle), size * math.sin(angle))
    if i % 6 == 1:  # near a branch point
        c = RNG.choice([1, -1, 1j, -1j, 0])
        return c + complex(sign() * power_of_two(r.last, -3), sign() * power_of_two(2 * r.last, -3))

    def part():
        ways = [*choices("any", r), lambda: sign() * RNG.uniform(0, r.exp), lambda: sign() * RNG.uniform(0, 20)]
        return RNG.choice(ways)()

    return complex(part(), part())


def moderate_point():
    return complex(sign() * power_of_two(-8, 3), sign() * power_of_two(-8, 3))


def real_values(f, xs, width):
    """The points that have a real, finite value in `width`; values in two."""
    kept, values = [], []
    for x in xs:
        try:
            y = f(*[mp.mpf(float(v)) for v in np.atleast_1d(x)])
        except (ValueError, ZeroDivisionError):
            continue
        if not isinstance(y, mp.mpf) or abs(y) > np.finfo(width).max:
            continue
        high = float(y)
        kept.append(x)
        values.append((high, float(y - mp.mpf(high))))
    return np.array(kept, width), np.array(values)


def complex_values(f, xs, dtype):
    kept, values = [], []
    limit = mp.mpf(float(np.finfo(dtype).max))
    for x in xs:
        y = mp.mpc(f(*[mp.mpc(complex(v)) for v in np.atleast_1d(x)]))
        if max(abs(y.real), abs(y.imag)) <= limit:
            kept.append(x)
            values.append(complex(y))
    return np.array(kept, dtype), np.array(values)


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    out = {}

    def put(name, dtype, xy):
        out[f"{name}/{dtype}/x"], out[f"{name}/{dtype}/y"] = xy

    mp.mp.dps = 60
    for dtype in ("float32", "float64"):
        r = Range(dtype == "float32")
        for name, (f, kind) in REAL.items():
            put(name, dtype, real_values(f, np.array(points(kind, r, n), dtype), dtype))
        for name, f in REAL_2.items():
            put(name, dtype, real_values(f, np.array(pairs(name, r, n), dtype), dtype))
    mp.mp.dps = 350
    for dtype in ("complex64", "complex128"):
        r = Range(dtype == "complex64")
        for name, f in COMPLEX.items():
            put(name, dtype, complex_values(f, np.array([complex_point(i, r) for i in range(n)], dtype), dtype))
        for name, f in COMPLEX_2.items():
            far = name in ("multiply", "divide")
            xs = [(complex_point(i, r), complex_point(i + 2, r)) if far else (moderate_point(), moderate_point())
                  for i in range(n)]
            put(name, dtype, complex_values(f, np.array(xs, dtype), dtype))
    np.savez_compressed(Path(__file__).with_name("precision.npz"), **out)


main()
