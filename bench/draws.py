# SPDX-License-Identifier: Apache-2.0
"""How fast are 10 million random numbers beside NumPy and PyTorch?

    MARRAM_NUM_THREADS=1 build/venv/bin/python bench/draws.py

Processor milliseconds, the best of some rounds, the libraries in turns, one thread each.  The first line is what
writing the result costs at least; the peers' generators do not use more threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import marram.core as mx
import numpy as np

try:
    import torch
except ImportError:
    print("PyTorch is not installed here (make test-oracles installs it)")
    raise SystemExit from None

N, ROUNDS = 10_000_000, 4
KEY, G, OUT = mx.random.key(1), np.random.default_rng(0), torch.empty(N)
Call = Callable[[], Any] | None
CASES: dict[str, tuple[Call, Call, Call]] = {
    "zeros": (lambda: mx.zeros((N,)), lambda: np.full(N, 0, "f4"), lambda: OUT.zero_()),
    "uniform": (lambda: mx.random.uniform(shape=(N,), key=KEY), lambda: G.random(N, dtype="f4"), lambda: OUT.uniform_()),
    "normal": (lambda: mx.random.normal((N,), key=KEY), lambda: G.standard_normal(N, dtype="f4"), lambda: OUT.normal_()),
    "bernoulli": (
        lambda: mx.random.bernoulli(0.3, (N,), key=KEY),
        lambda: G.random(N, dtype="f4") < 0.3,
        lambda: OUT.bernoulli_(0.3),
    ),
    "randint": (
        lambda: mx.random.randint(0, 100, (N,), key=KEY),
        lambda: G.integers(0, 100, N, dtype="i4"),
        lambda: torch.randint(0, 100, (N,), dtype=torch.int32),
    ),
    "truncated_normal": (lambda: mx.random.truncated_normal(-1.0, 1.0, (N,), key=KEY), None, None),
    "gumbel": (lambda: mx.random.gumbel((N,), key=KEY), lambda: -np.log(G.standard_exponential(N, dtype="f4")), None),
    "laplace": (lambda: mx.random.laplace((N,), key=KEY), lambda: G.laplace(size=N), None),
}


def main() -> None:
    torch.set_num_threads(1)
    for name, (ours, numpy, theirs) in CASES.items():
        calls: dict[str, Call] = {"marram": lambda f=ours: mx.eval(f()), "numpy": numpy, "torch": theirs}
        best: dict[str, float] = {}
        for _ in range(ROUNDS):
            for peer, call in calls.items():
                if call is not None:
                    start = time.process_time()
                    call()
                    best[peer] = min(best.get(peer, 1e9), 1e3 * (time.process_time() - start))
        print(f"{name:18}" + "".join(f" {peer} {ms:7.2f}" for peer, ms in best.items()), flush=True)


if __name__ == "__main__":
    main()
