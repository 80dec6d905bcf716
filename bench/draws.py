# SPDX-License-Identifier: Apache-2.0
"""How fast are random numbers, and what is made of them, beside NumPy, PyTorch and JAX?

    PYTHONPATH=build/python build/venv/bin/python bench/draws.py [--rounds N] [--case TEXT]

Each peer is a process of its own, Marram's compiled functions too; they take turns and the best round counts.  The line
"zeros" is what writing a result costs at least.  JAX draws with Threefry as Marram does, PyTorch with the faster
Mersenne twister on one thread, NumPy with PCG64.  ``MARRAM_NUM_THREADS=1`` for one thread.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import worker as w

PEERS = ("marram", "compiled", "torch", "jax", "numpy")
KILO, ROW = 1024, 1024
WHAT = {  # in thousands
    "zeros": (10240,),
    "uniform": (16, 256, 1024, 8192, 10240),
    "uniform * 2 - 1": (1024, 8192),
    "normal": (10240,),
    "normal to bfloat16": (1024, 8192),
    "bernoulli": (10240,),
    "randint": (10240,),
    "dropout float32": (16, 64, 256, 1024, 8192),
    "dropout bfloat16": (16, 256, 1024, 8192),
    "mean of exp(-uniform)": (64, 1024, 8192),
    "dropout, sum of rows": (64, 1024),
    "dropout, softmax of rows": (64, 1024),
    "dropout, norm of rows": (64, 1024),
    "dropout behind a product": (64, 1024),
}
Call = Callable[[], Any] | None


def dtype_of(what: str) -> str:
    """Of what is dropped from."""
    return "bfloat16" if what == "dropout bfloat16" else "float32"


def shape_of(what: str, n: int) -> tuple[int, ...]:
    return (n // ROW, ROW) if "rows" in what or "product" in what else (n,)


def of_marram(what: str, n: int, compiled: bool) -> Call:
    import marram.core as mx

    rand, x, key = mx.random, mx.ones(shape_of(what, n), dtype=getattr(mx, dtype_of(what))), mx.random.key(1)
    w = mx.ones((64, ROW))

    def drop(k: Any, x: Any) -> Any:
        return mx.where(rand.bernoulli(0.9, x.shape, key=k), x * (1 / 0.9), 0.0)

    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * mx.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    f = {
        "zeros": lambda k, x: mx.zeros((n,)),
        "uniform": lambda k, x: rand.uniform(shape=(n,), key=k),
        "uniform * 2 - 1": lambda k, x: rand.uniform(shape=(n,), key=k) * 2 - 1,
        "normal": lambda k, x: rand.normal((n,), key=k),
        "normal to bfloat16": lambda k, x: rand.normal((n,), key=k).astype(mx.bfloat16),
        "bernoulli": lambda k, x: rand.bernoulli(0.3, (n,), key=k),
        "randint": lambda k, x: rand.randint(0, 100, (n,), key=k),
        "mean of exp(-uniform)": lambda k, x: mx.exp(-rand.uniform(shape=(n,), key=k)).mean(),
        "dropout, sum of rows": lambda k, x: drop(k, x).sum(-1),
        "dropout, softmax of rows": lambda k, x: mx.softmax(drop(k, x), -1),
        "dropout, norm of rows": lambda k, x: norm(drop(k, x) + x),
        "dropout behind a product": lambda k, x: drop(k, mx.maximum(x[:, :64] @ w, 0)),
    }.get(what, drop)
    g = mx.compile(f) if compiled else f
    mx.eval(x, key, w)
    return lambda: mx.eval(g(key, x))


def of_torch(what: str, n: int) -> Call:
    import torch

    torch.set_num_threads(w.threads())
    x = torch.ones(shape_of(what, n), dtype=getattr(torch, dtype_of(what)))
    weights = torch.ones(64, ROW)

    def drop(x: Any) -> Any:
        return torch.nn.functional.dropout(x, 0.1, training=True)

    return {
        "zeros": lambda: torch.zeros(n),
        "uniform": lambda: torch.rand(n),
        "uniform * 2 - 1": lambda: torch.rand(n) * 2 - 1,
        "normal": lambda: torch.randn(n),
        "normal to bfloat16": lambda: torch.randn(n).to(torch.bfloat16),
        "bernoulli": lambda: torch.rand(n) < 0.3,
        "randint": lambda: torch.randint(0, 100, (n,), dtype=torch.int32),
        "mean of exp(-uniform)": lambda: torch.exp(-torch.rand(n)).mean(),
        "dropout, sum of rows": lambda: drop(x).sum(-1),
        "dropout, softmax of rows": lambda: torch.softmax(drop(x), -1),
        "dropout, norm of rows": lambda: torch.nn.functional.layer_norm(drop(x) + x, (ROW,)),
        "dropout behind a product": lambda: drop(torch.relu(x[:, :64] @ weights)),
    }.get(what, lambda: drop(x))


def of_jax(what: str, n: int) -> Call:
    import jax
    import jax.numpy as jnp

    rand, x, key = jax.random, jnp.ones(shape_of(what, n), dtype=getattr(jnp, dtype_of(what))), jax.random.key(1)
    w = jnp.ones((64, ROW))

    def drop(k: Any, x: Any) -> Any:
        return jnp.where(rand.bernoulli(k, 0.9, x.shape), x / 0.9, 0.0)

    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    f = jax.jit(
        {
            "zeros": lambda k, x: jnp.zeros((n,)),
            "uniform": lambda k, x: rand.uniform(k, (n,)),
            "uniform * 2 - 1": lambda k, x: rand.uniform(k, (n,)) * 2 - 1,
            "normal": lambda k, x: rand.normal(k, (n,)),
            "normal to bfloat16": lambda k, x: rand.normal(k, (n,)).astype(jnp.bfloat16),
            "bernoulli": lambda k, x: rand.bernoulli(k, 0.3, (n,)),
            "randint": lambda k, x: rand.randint(k, (n,), 0, 100),
            "mean of exp(-uniform)": lambda k, x: jnp.exp(-rand.uniform(k, (n,))).mean(),
            "dropout, sum of rows": lambda k, x: drop(k, x).sum(-1),
            "dropout, softmax of rows": lambda k, x: jax.nn.softmax(drop(k, x), -1),
            "dropout, norm of rows": lambda k, x: norm(drop(k, x) + x),
            "dropout behind a product": lambda k, x: drop(k, jnp.maximum(x[:, :64] @ w, 0)),
        }.get(what, drop)
    )
    return lambda: f(key, x).block_until_ready()


def of_numpy(what: str, n: int) -> Call:
    import numpy as np

    g = np.random.default_rng(0)
    return {
        "zeros": lambda: np.full(n, 0, "f4"),
        "uniform": lambda: g.random(n, dtype="f4"),
        "uniform * 2 - 1": lambda: g.random(n, dtype="f4") * np.float32(2) - np.float32(1),
        "normal": lambda: g.standard_normal(n, dtype="f4"),
        "bernoulli": lambda: g.random(n, dtype="f4") < np.float32(0.3),
        "randint": lambda: g.integers(0, 100, n, dtype="i4"),
    }.get(what)


def body(peer: str, case: list) -> Call:
    what, n = case
    if peer in ("marram", "compiled"):
        return of_marram(what, n, peer == "compiled")
    return {"torch": of_torch, "jax": of_jax, "numpy": of_numpy}[peer](what, n)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--case", default="")
    options = parser.parse_args()
    if options.worker:
        w.serve(lambda case: body(options.worker, case))
        return
    workers = w.start(sys.argv[0], PEERS)
    print(f"{'milliseconds':31}" + "".join(f"{p:>10}" for p in workers))
    for what, sizes in WHAT.items():
        for kilos in sizes:
            name = f"{what}, {kilos // KILO}M" if kilos >= KILO else f"{what}, {kilos}K"
            if options.case not in name:
                continue
            best, _ = w.measure(workers, [what, kilos * KILO], options.rounds)
            print(f"{name:31}" + "".join(f"{1e3 * best[p]:10.3f}" if p in best else f"{'-':>10}" for p in workers), flush=True)
    for worker in workers.values():
        worker.close()


if __name__ == "__main__":
    main()
