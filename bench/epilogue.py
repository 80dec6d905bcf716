# SPDX-License-Identifier: Apache-2.0
"""What does it add to a product that elementwise work follows it in one kernel?

    PYTHONPATH=build/python build/venv/bin/python bench/epilogue.py [--rounds N] [--case TEXT]

Microseconds of processor time: the product and then the work, each evaluated,
and both as one expression.  With MARRAM_NUM_THREADS=1 the ratio hardly depends
on what else the machine does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import marram.core as mx
import numpy as np

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float64": mx.float64}
SHAPES = ((1, 1024, 1024), (32, 1024, 1024), (256, 1024, 1024), (1024, 64, 1024), (2048, 64, 2048), (4096, 32, 4096))


def normal(dtype: mx.Dtype, *shape: int) -> mx.array:
    return mx.array(np.random.default_rng(3).standard_normal(shape).astype("float32")).astype(dtype)


def gelu(x: mx.array) -> mx.array:
    return 0.5 * x * (1 + mx.erf(x * 0.70710678))


def in_turn(f: Callable[[mx.array], mx.array], x: mx.array, w: mx.array) -> None:
    y = x @ w
    mx.eval(y)
    mx.eval(f(y))


def best(fns: list[Callable[[], None]], rounds: int) -> list[float]:
    """The least of each, taking turns; a turn is a few milliseconds."""
    times, repeats = [float("inf")] * len(fns), []
    for f in fns:
        f()
        begin = time.process_time()
        f()
        repeats.append(max(1, int(4e-3 / (time.process_time() - begin + 1e-6))))
    for _ in range(rounds):
        for i, f in enumerate(fns):
            begin = time.process_time()
            for _ in range(repeats[i]):
                f()
            times[i] = min(times[i], (time.process_time() - begin) / repeats[i] * 1e6)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--case", default="", help="only cases whose name has this text")
    args = parser.parse_args()
    print(f"{'us':44s} {'apart':>9} {'as one':>9} {'ratio':>6}")
    for name, dtype in DTYPES.items():
        for m, k, n in SHAPES:
            x, w, b, r = (normal(dtype, *s) for s in ((m, k), (k, n), (n,), (m, n)))
            mx.eval(x, w, b, r)
            work = {
                "relu": lambda y, b=b, r=r: mx.maximum(y + b, 0),
                "gelu": lambda y, b=b, r=r: gelu(y + b),
                "residual": lambda y, b=b, r=r: y + r,
            }
            for what, f in work.items():
                case = f"{name} {m} x {k} x {n}, {what}"
                if args.case not in case:
                    continue
                apart, one = best(
                    [lambda f=f, x=x, w=w: in_turn(f, x, w), lambda f=f, x=x, w=w: mx.eval(f(x @ w))],
                    args.rounds,
                )
                print(f"{case:44s} {apart:9.1f} {one:9.1f} {one / apart:6.3f}", flush=True)


if __name__ == "__main__":
    main()
