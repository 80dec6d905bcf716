# SPDX-License-Identifier: Apache-2.0
"""How fast is linear algebra beside NumPy and PyTorch, one matrix and many?

    PYTHONPATH=build/python build/venv/bin/python bench/linalg.py [--rounds N] [--case TEXT]

One matrix of 512 x 512 and a batch of 10,000 of 4 x 4, float32.  The libraries
take turns round by round and the best round counts.  Prints milliseconds, the
factor to each peer (above 1: Marram is faster) and, for the batch, MISSED
below the bar of 3 times NumPy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import marram.core as mx
import numpy as np

try:
    import torch
except ImportError:
    torch = None

BAR = 3.0
NAMES = ["solve", "inv", "cholesky", "qr", "eigh", "svd", "det"]


def inputs(name: str, batch: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((batch, n, n) if batch > 1 else (n, n)).astype(np.float32)
    if name in ("cholesky", "eigh"):
        a = a @ np.swapaxes(a, -1, -2) + np.eye(n, dtype=np.float32)
    return [a, a[..., :1].copy()] if name == "solve" else [a]


def calls(name: str, given: list[np.ndarray]) -> dict[str, Callable[[], Any]]:
    """What is timed, for each library that is here."""
    ours = [mx.array(x) for x in given]
    mx.eval(ours)
    out = {
        "marram": lambda: mx.eval(getattr(mx.linalg, name)(*ours)),
        "numpy": lambda: getattr(np.linalg, name)(*given),
    }
    if torch is not None:
        theirs = [torch.from_numpy(x) for x in given]
        out["torch"] = lambda: getattr(torch.linalg, name)(*theirs)
    return out


def seconds(f: Callable[[], Any]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def best(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    for f in functions.values():
        f()
    times = {k: float("inf") for k in functions}
    for _ in range(rounds):
        for k, f in functions.items():
            times[k] = min(times[k], seconds(f))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--case", default="")
    options = parser.parse_args()
    for batch, n in ((10000, 4), (1, 512)):
        for name in NAMES:
            what = f"{name} {batch} x {n} x {n}" if batch > 1 else f"{name} {n} x {n}"
            if options.case not in what:
                continue
            times = best(calls(name, inputs(name, batch, n)), options.rounds)
            line = f"{what:24}" + "".join(f"  {k} {1e3 * t:8.2f} ms" for k, t in times.items())
            line += "".join(f"  {t / times['marram']:5.2f} x {k}" for k, t in times.items() if k != "marram")
            missed = batch > 1 and times["numpy"] < BAR * times["marram"]
            print(line + ("  MISSED" if missed else ""))


if __name__ == "__main__":
    main()
