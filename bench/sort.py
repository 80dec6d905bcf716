# SPDX-License-Identifier: Apache-2.0
"""How fast are sorting, selection and searching beside NumPy and PyTorch?

    PYTHONPATH=build/python build/venv/bin/python bench/sort.py [--rounds N] [--case TEXT]

One line a case: the best time of all rounds in milliseconds and the best
processor time, the libraries in turns within each round; then the factor to the
fastest peer, by either (below 1: Marram is slower).  On a busy machine the
processor times mean more: NumPy's are those of one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import marram.core as mx
import numpy as np

try:
    import torch
except ImportError:
    torch = None

RNG = np.random.default_rng(0)
SIZE = 1 << 22
Case = tuple[str, list[Callable[..., Any] | None], list[np.ndarray]]


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    t = np.dtype(dtype)
    if t.kind == "f":
        return RNG.standard_normal(shape).astype(t)
    i = np.iinfo(t)
    return RNG.integers(i.min, i.max, shape, dtype=t, endpoint=True)


SHAPES = (("flat", (SIZE,), -1), ("rows", (1024, 4096), -1), ("fours", (SIZE // 4, 4), -1), ("axis 0", (2048, 2048), 0))


def sorts() -> Iterator[Case]:
    for t in ("f4", "i4", "f8", "i8", "f2", "u1"):
        for name, shape, k in SHAPES:
            x = values(t, shape)
            yield (
                f"sort {t} {name}",
                [lambda a, k=k: mx.sort(a, axis=k), lambda a, k=k: np.sort(a, axis=k), lambda a, k=k: torch.sort(a, k)],
                [x],
            )
            yield (
                f"argsort {t} {name}",
                [
                    lambda a, k=k: mx.argsort(a, axis=k),
                    lambda a, k=k: np.argsort(a, axis=k),
                    lambda a, k=k: torch.argsort(a, dim=k, stable=True),
                ],
                [x],
            )


def patterns() -> Iterator[Case]:
    i = np.arange(SIZE)
    for name, x in (("sorted", i), ("reversed", i[::-1]), ("equal", i * 0 + 7), ("few values", RNG.integers(0, 16, SIZE))):
        for t in ("f4", "i8"):
            v = np.ascontiguousarray(x.astype(t))
            yield f"sort {t} {name}", [mx.sort, np.sort, lambda a: torch.sort(a)], [v]
            yield f"argsort {t} {name}", [mx.argsort, np.argsort, lambda a: torch.argsort(a, stable=True)], [v]


def selections() -> Iterator[Case]:
    for t in ("f4", "f8", "i4"):
        for name, shape, axis in SHAPES[:2]:
            k = shape[axis] // 2
            x = values(t, shape)
            yield f"partition {t} {name}", [lambda a, k=k: mx.partition(a, k), lambda a, k=k: np.partition(a, k), None], [x]
            yield (
                f"argpartition {t} {name}",
                [lambda a, k=k: mx.argpartition(a, k), lambda a, k=k: np.argpartition(a, k), None],
                [x],
            )
            yield (
                f"topk 40 {t} {name}",
                [lambda a: mx.topk(a, 40), lambda a: np.partition(a, -40)[..., -40:], lambda a: torch.topk(a, 40)],
                [x],
            )


def searches() -> Iterator[Case]:
    for t in ("f4", "i4", "f8", "i8"):
        s, v = np.sort(values(t, (1 << 20,))), values(t, (1 << 20,))
        run = [mx.searchsorted, np.searchsorted, lambda a, v: torch.searchsorted(a, v)]
        yield f"searchsorted {t} 1M in 1M", run, [s, v]
        yield f"searchsorted {t} 1M sorted in 1M", run, [s, np.sort(v)]


def once(f: Callable[..., Any], args: list[Any], best: list[float]) -> None:
    wall, work = time.perf_counter(), time.process_time()
    r = f(*args)
    if isinstance(r, mx.array):
        mx.eval(r)
    best[0] = min(best[0], time.perf_counter() - wall)
    best[1] = min(best[1], time.process_time() - work)


def measure(case: Case, rounds: int) -> str:
    name, run, x = case
    wide = x[0].dtype == np.float64
    args: list[list[Any]] = [[mx.array(a, dtype=mx.float64) if wide else mx.array(a) for a in x], x, []]
    if torch is not None:
        args[2] = [torch.from_numpy(a) for a in x]
    else:
        run[2] = None
    best = [[np.inf, np.inf] for _ in run]
    for _ in range(rounds):
        for f, a, b in zip(run, args, best, strict=True):
            if f is not None:
                once(f, a, b)
    cells = ["     -       -   " if b[0] == np.inf else f"{b[0] * 1e3:8.2f} {b[1] * 1e3:8.2f}" for b in best]
    wall, work = (min(b[i] for b in best[1:]) / best[0][i] for i in (0, 1))
    return f"{name:34} {'  '.join(cells)}  {wall:6.2f} {work:6.2f}"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--case", default="")
    opts = p.parse_args()
    print(f"{'case':34} {'marram ms, work':17}  {'numpy':17}  {'torch':17}  factor   work")
    for family in (sorts, patterns, selections, searches):
        for case in family():
            if opts.case in case[0]:
                print(measure(case, opts.rounds), flush=True)


if __name__ == "__main__":
    main()
