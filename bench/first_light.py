# SPDX-License-Identifier: Apache-2.0
"""Marram beside its peers on the figures of the README's table.

    build/venv/bin/python bench/first_light.py [--rounds N] [--case TEXT]

Each peer (MLX, PyTorch, JAX, NumPy; whatever is installed) is a process of
its own that lives through the run; they take turns round by round and the
best round counts, so that a busy machine hurts all alike.  Prints one line a
case: every peer's figure, and Marram's ratio to the one that the bar names.
`make test-oracles` installs the peers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

SMALL = 16
CALLS = 1000
CHAIN = 100
PEERS = ("marram", "mlx", "torch", "jax", "numpy")


class Case:
    """One question: how to ask each peer, and what the bar compares with."""

    def __init__(
        self,
        unit: str,
        per: float,
        bar: str,
        peers: tuple[str, ...] = PEERS,
    ) -> None:
        self.unit, self.per, self.bar, self.peers = unit, per, bar, peers


CASES = {
    "a + b, lazy (16)": Case("us", CALLS, "<= 0.4 of mlx"),
    "eval(a + b) (16)": Case("us", CALLS, "<= 0.15 of mlx"),
    "chain of 100 and eval, per operator": Case("us", CHAIN, "<= 0.25 of mlx"),
    "erf-GELU formula, eager, 1M float32": Case("us", 1, "<= 0.33 of torch"),
    "erf-GELU formula, compiled, 1M float32": Case("us", 1, "<= 1 of torch"),
    "a + b, 8M float32": Case("us", 1, "<= 0.67 of best"),
    "matmul 1024 float32": Case("us", 1, "<= 1.1 of best"),
    "softmax rows 1024 x 4096 float32": Case("us", 1, "<= 1.1 of best"),
    "sum of 8M float32": Case("us", 1, "<= 1.1 of best"),
}


# ---- inside a worker ---------------------------------------------------------


class Peer:
    """The few calls that the cases need, in one framework's words."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sync: Callable = lambda x: x
        if name in ("marram", "mlx"):
            mx = __import__(name + ".core", fromlist=["core"])
            self.array, self.sync, self.erf = mx.array, mx.eval, mx.erf
            self.compile, self.lib = mx.compile, mx
        elif name == "torch":
            import torch

            torch.set_num_threads(len(os.sched_getaffinity(0)))
            self.array, self.erf = torch.from_numpy, torch.erf
            self.compile, self.lib = torch.compile, torch
        elif name == "jax":
            import jax

            self.array, self.erf = jax.numpy.asarray, jax.scipy.special.erf
            self.sync = jax.block_until_ready
            self.compile, self.lib = jax.jit, jax.numpy
        else:
            self.array, self.lib = np.asarray, np
            self.compile = self.erf = None

    def gelu(self, x):
        return x * (1 + self.erf(x * 0.7071067811865476)) * 0.5


def body(p: Peer, case: str) -> Callable[[], None] | None:
    """What one timed call does; None: this peer has no such thing."""
    rng = np.random.default_rng(0)

    def draw(*shape):
        return p.array(rng.standard_normal(shape, dtype=np.float32))

    if case == "a + b, lazy (16)":
        a, b = draw(SMALL), draw(SMALL)

        def lazy():
            for _ in range(CALLS):
                a + b

        return lazy
    if case == "eval(a + b) (16)":
        a, b = draw(SMALL), draw(SMALL)
        sync = p.sync

        def each():
            for _ in range(CALLS):
                sync(a + b)

        return each
    if case.startswith("chain"):
        a, b = draw(SMALL), draw(SMALL)

        def chain():
            c = a
            for _ in range(CHAIN):
                c = c + b
            p.sync(c)

        return chain
    if case.startswith("erf-GELU"):
        if p.erf is None:
            return None
        x = draw(1_000_000)
        f = p.compile(p.gelu) if "compiled" in case else p.gelu
        return lambda: p.sync(f(x))
    if case == "a + b, 8M float32":
        a, b = draw(8_388_608), draw(8_388_608)
        return lambda: p.sync(a + b)
    if case.startswith("matmul"):
        a, b = draw(1024, 1024), draw(1024, 1024)
        return lambda: p.sync(a @ b)
    if case.startswith("softmax"):
        if p.name == "numpy":
            return None
        x = draw(1024, 4096)
        if p.name == "jax":
            import jax

            return lambda: p.sync(jax.nn.softmax(x, axis=-1))
        return lambda: p.sync(p.lib.softmax(x, -1))
    x = draw(8_388_608)
    return lambda: p.sync(x.sum())


def worker(name: str) -> None:
    p = Peer(name)
    print(json.dumps("ready"), flush=True)
    fn: Callable[[], None] | None = None
    for line in sys.stdin:
        ask = json.loads(line)
        if "case" in ask:
            fn = body(p, ask["case"])
            if fn is not None:
                fn(), fn()
            print(json.dumps(fn is not None), flush=True)
            continue
        best, end = float("inf"), time.perf_counter() + ask["seconds"]
        while fn is not None:
            t = time.perf_counter()
            fn()
            now = time.perf_counter()
            best = min(best, now - t)
            if now > end:
                break
        print(json.dumps(best), flush=True)


# ---- the parent ----------------------------------------------------------------


class Worker:
    def __init__(self, name: str) -> None:
        env = dict(os.environ)
        for key in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
            env.pop(key, None)
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )
        self.alive = self.read() == "ready"

    def read(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, **what):
        try:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        except OSError:
            return None
        return self.read()


def measure(workers: dict[str, Worker], name: str, rounds: int) -> dict:
    live = {
        p: w
        for p, w in workers.items()
        if p in CASES[name].peers and w.ask(case=name)
    }
    best: dict[str, float] = {}
    for _ in range(rounds):
        for p, w in live.items():
            t = w.ask(seconds=0.1)
            if t is not None:
                best[p] = min(best.get(p, float("inf")), t)
    return best


def ratio(best: dict[str, float], bar: str) -> str:
    against = bar.split()[-1]
    others = {p: t for p, t in best.items() if p != "marram"}
    if against == "best" and others:
        against = min(others, key=others.__getitem__)
    if "marram" not in best or against not in best:
        return "-"
    return f"{best['marram'] / best[against]:.2f} of {against}"


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--case", default="")
    ap.add_argument("--worker")
    a = ap.parse_args()
    if a.worker:
        return worker(a.worker)
    workers = {p: Worker(p) for p in PEERS}
    workers = {p: w for p, w in workers.items() if w.alive}
    missing = [p for p in PEERS if p not in workers]
    if missing:
        print(f"not installed here: {', '.join(missing)}")
    print(f"{'case':42}" + "".join(f"{p:>10}" for p in workers) + "  ratio, bar")
    for name, case in CASES.items():
        if a.case not in name:
            continue
        best = measure(workers, name, a.rounds)
        row = "".join(
            f"{best[p] / case.per * 1e6:10.3g}" if p in best else f"{'':10}"
            for p in workers
        )
        print(
            f"{name:42}{row}  {ratio(best, case.bar)}, bar {case.bar}",
            flush=True,
        )
    for w in workers.values():
        w.process.stdin.close()


if __name__ == "__main__":
    main()
