# SPDX-License-Identifier: Apache-2.0
"""How fast are matrix products, beside PyTorch, NumPy and JAX?

    PYTHONPATH=build/python build/venv/bin/python bench/matmul.py [--rounds N] [--case TEXT]

Square products of each dtype, batches, one row times a matrix, many small
products.  Each peer is a process of its own; they take turns round by round
and the best call counts.  Prints Marram's figure (GFLOP/s, of a matrix with
few rows the gigabytes read in a second), each peer's, and the ratio to the
best one: above 1 Marram is faster.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import worker as w

PEERS = ("marram", "torch", "jax", "numpy")
SIZE = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "complex64": 8}
FEW = 4


# dtype, shape of a, shape of b, whether b is a transposed view
def case_list() -> list[tuple]:
    cases: list[tuple] = []
    for t in ("float32", "float64", "bfloat16", "float16"):
        cases += [(t, (n, n), (n, n), False) for n in (256, 512, 1024, 2048)]
        cases += [(t, (1024, 1024), (1024, 1024), True), (t, (16, 512, 512), (16, 512, 512), False)]
    for t in SIZE:
        cases += [(t, (1, 4096), (4096, 4096), turned) for turned in (False, True)]
    for t in ("float32", "float64"):
        cases += [(t, (10000, n, n), (10000, n, n), False) for n in (4, 8, 16, 32)]
    cases += [("complex64", (512, 512), (512, 512), False)]
    cases += [("float32", (32, 4096), (4096, 4096), True), ("bfloat16", (32, 4096), (4096, 4096), True)]
    return cases


def name_of(case: tuple) -> str:
    t, a, b, turned = case
    return f"{t} {'x'.join(map(str, a))} @ {'x'.join(map(str, b))}{'.T' if turned else ''}"


# ---- inside a worker ---------------------------------------------------------
def body_of(peer: str) -> Callable:
    if peer in ("marram", "mlx"):
        mx = __import__(peer + ".core", fromlist=["core"])

        def make(t, shape):
            if t == "complex64":
                return mx.random.normal(shape) + 1j * mx.random.normal(shape)
            if t == "float64":
                return mx.random.normal(shape).astype(mx.float64)
            return mx.random.normal(shape).astype(getattr(mx, t))

        return make, lambda a, b: mx.eval(a @ b), mx.eval, lambda x: x.swapaxes(-1, -2)
    if peer == "torch":
        import torch

        torch.set_num_threads(w.threads())

        def make(t, shape):
            return torch.randn(shape, dtype=getattr(torch, t))

        return make, lambda a, b: a @ b, None, lambda x: x.transpose(-1, -2)
    import numpy as np

    def numbers(t, shape):
        rng = np.random.default_rng(0)
        x = rng.standard_normal(shape, dtype=np.float32)
        if t == "complex64":
            return (x + 1j * x).astype(t)
        return x.astype(t) if t != "bfloat16" else x

    if peer == "numpy":
        return numbers, lambda a, b: a @ b, None, lambda x: x.swapaxes(-1, -2)
    import jax

    jax.config.update("jax_enable_x64", True)
    product = jax.jit(lambda a, b: a @ b)
    turned = jax.jit(lambda a, b: a @ b.swapaxes(-1, -2))

    def run(a, b):
        if isinstance(b, tuple):
            return turned(a, b[0]).block_until_ready()
        return product(a, b).block_until_ready()

    return lambda t, s: jax.numpy.asarray(numbers(t, s), dtype=t), run, None, lambda x: (x,)


def worker(peer: str) -> None:
    make, run, ready, turn = body_of(peer)

    def body(case):
        t, a, b, turned = case
        if peer == "numpy" and t in ("float16", "bfloat16"):
            return None
        x, y = make(t, a), make(t, b)
        if ready:
            ready(x, y)
        if turned:
            y = turn(y)
        return lambda: run(x, y)

    w.serve(body)


# ---- the parent ----------------------------------------------------------------
def figure(case: tuple, seconds: float) -> str:
    t, a, b, _ = case
    if a[-2] <= FEW:
        return f"{math.prod(b) * SIZE[t] / seconds / 1e9:.1f}"
    scale = 8 if t == "complex64" else 2
    return f"{scale * math.prod(a) * b[-1] / seconds / 1e9:.1f}"


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--rounds", type=int, default=9)
    ap.add_argument("--case", default="")
    ap.add_argument("--peers", default=",".join(PEERS))
    ap.add_argument("--worker", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.worker:
        return worker(a.worker)
    workers = w.start(__file__, tuple(a.peers.split(",")))
    print(f"{w.threads()} threads, best of {a.rounds} rounds")
    for case in case_list():
        name = name_of(case)
        if a.case not in name:
            continue
        best, _ = w.measure(workers, case, a.rounds)
        ours = best.pop("marram", math.nan)
        unit = "GB/s" if case[1][-2] <= FEW else "GFLOP/s"
        ratio = min(best.values(), default=math.nan) / ours
        text = ", ".join(f"{p} {figure(case, t)}" for p, t in best.items())
        print(f"{name:46}{figure(case, ours):>8} {unit:8} {text:44} ratio {ratio:.2f}", flush=True)
    for peer in workers.values():
        peer.close()


if __name__ == "__main__":
    main()
