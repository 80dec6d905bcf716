# SPDX-License-Identifier: Apache-2.0
"""What does an operator cost from Python, its creation site, and a compiled call by eight threads?

    PYTHONPATH=build/python build/venv/bin/python bench/overhead.py [--rounds N]

Workers take turns, 50 ms each, and the best of all rounds counts: Marram,
Marram with MARRAM_SITES=0, and MLX where it is installed.  The difference of
the first two is what the line in an error's note costs (at most 40 ns an
operator).  Compiled calls: ten operators on 16 elements, one function shared by
all threads, 2,000 calls each; nanoseconds a call of wall time.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PEERS = {"marram": ("marram.core", {}), "marram, MARRAM_SITES=0": ("marram.core", {"MARRAM_SITES": "0"}),
         "mlx": ("mlx.core", {})}
CASES = ("a + b, lazy", "eval(a + b)", "compiled, 1 thread, build", "compiled, 1 thread, eval",
         "compiled, 8 threads, build", "compiled, 8 threads, eval")
CALLS = 2000


# ---- inside a worker ---------------------------------------------------------
def on_threads(n: int, body: Callable[[], None]) -> float:
    """Seconds a call, by n threads that start together."""
    gate = threading.Barrier(n + 1)

    def run() -> None:
        gate.wait()
        body()

    threads = [threading.Thread(target=run) for _ in range(n)]
    for t in threads:
        t.start()
    gate.wait()
    start = time.perf_counter()
    for t in threads:
        t.join()
    return (time.perf_counter() - start) / (n * CALLS)


def measure(mx: Any, case: str) -> float:
    a = mx.array([0.1 * i for i in range(16)])
    b = a + a
    mx.eval(a, b)

    def ten(x: Any, y: Any) -> Any:
        x = x + y
        for _ in range(3):
            x = mx.sin(x) * (x + y)
        return x

    f = mx.compile(ten)
    mx.eval(f(a, b))

    def lazy() -> None:
        for _ in range(CALLS):
            a + b

    def evaluated() -> None:
        for _ in range(CALLS):
            mx.eval(a + b)

    def build() -> None:
        for _ in range(CALLS):
            f(a, b)

    def build_and_eval() -> None:
        for _ in range(CALLS):
            mx.eval(f(a, b))

    if case.startswith("compiled"):
        n = 8 if "8 threads" in case else 1
        return on_threads(n, build_and_eval if case.endswith("eval") else build)
    body = lazy if case == CASES[0] else evaluated
    start = time.perf_counter()
    body()
    return (time.perf_counter() - start) / CALLS


def serve(module: str) -> None:
    mx = importlib.import_module(module)
    for line in sys.stdin:
        end, best = time.perf_counter() + 0.05, float("inf")
        while True:
            best = min(best, measure(mx, json.loads(line)))
            if time.perf_counter() > end:
                break
        print(json.dumps(best), flush=True)


# ---- the table ---------------------------------------------------------------
class Worker:
    def __init__(self, module: str, env: dict[str, str]) -> None:
        self.best: dict[str, float] = {}
        self.p = subprocess.Popen([sys.executable, __file__, "--serve", module], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, env={**os.environ, **env})

    def turn(self, case: str) -> None:
        assert self.p.stdin and self.p.stdout
        print(json.dumps(case), file=self.p.stdin, flush=True)
        t = json.loads(self.p.stdout.readline())
        self.best[case] = min(t, self.best.get(case, t))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--serve")
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    workers = {n: Worker(m, env) for n, (m, env) in PEERS.items() if importlib.util.find_spec(m.split(".")[0])}
    for _ in range(args.rounds):
        for case in CASES:
            for w in workers.values():
                w.turn(case)
    print(f"{'':28}" + "".join(f"{n:>26}" for n in workers))
    for case in CASES:
        print(f"{case:28}" + "".join(f"{w.best[case] * 1e9:>23.1f} ns" for w in workers.values()))
    with_site, without = (workers[n].best[CASES[0]] for n in list(PEERS)[:2])
    print(f"{'a creation site':28}{(with_site - without) * 1e9:>23.1f} ns")
    for w in workers.values():
        w.p.communicate()


if __name__ == "__main__":
    main()
