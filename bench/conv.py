# SPDX-License-Identifier: Apache-2.0
"""How fast are convolutions, forward and with both gradients, beside PyTorch channels last?

    PYTHONPATH=build/python build/venv/bin/python bench/conv.py [--rounds N] [CASE ...]

Processor milliseconds, the best of some rounds, the libraries in turns, one thread each (other work on the machine
shifts processor time less than wall time); GFLOP/s of the forward pass, its products counted tap by tap (squares of
3 x 3 taps need fewer, so they go beyond a product of 1024, which is printed first); MARRAM_CONV=taps is without them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ["MARRAM_NUM_THREADS"] = "1"

import marram.core as mx  # noqa: E402
import numpy as np  # noqa: E402

try:
    import torch
except ImportError:
    print("PyTorch is not installed here (make test-oracles installs it)")
    raise SystemExit from None

RNG = np.random.default_rng(0)
CASES: dict[str, tuple[Any, ...]] = {  # input, outputs, taps, stride, padding, dilation, groups
    "1x1 64-256": ((8, 56, 56, 64), 256, (1, 1), 1, 0, 1, 1),
    "3x3 64": ((8, 56, 56, 64), 64, (3, 3), 1, 1, 1, 1),
    "3x3 128": ((8, 28, 28, 128), 128, (3, 3), 1, 1, 1, 1),
    "3x3 stride 2": ((8, 56, 56, 128), 128, (3, 3), 2, 1, 1, 1),
    "7x7 stride 2": ((4, 224, 224, 3), 64, (7, 7), 2, 3, 1, 1),
    "dilation 2": ((8, 56, 56, 64), 64, (3, 3), 1, 2, 2, 1),
    "32 groups": ((8, 28, 28, 256), 256, (3, 3), 1, 1, 1, 32),
    "4 groups": ((8, 56, 56, 64), 64, (3, 3), 1, 1, 1, 4),
    "depthwise 3x3": ((8, 56, 56, 128), 128, (3, 3), 1, 1, 1, 128),
    "depthwise 7x7": ((8, 56, 56, 96), 96, (7, 7), 1, 3, 1, 96),
    "1-d, 3": ((8, 1000, 256), 256, (3,), 1, 1, 1, 1),
    "1-d, depthwise 31": ((8, 4000, 256), 256, (31,), 1, 15, 1, 256),
    "3-d, 3": ((2, 16, 32, 32, 32), 32, (3, 3, 3), 1, 1, 1, 1),
}


def best(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            found[name] = min(found.get(name, 1e9), 1e3 * (time.process_time() - start))
    return found


def turned(a: np.ndarray) -> torch.Tensor:
    n = a.ndim - 2
    t = torch.tensor(np.ascontiguousarray(a.transpose(0, n + 1, *range(1, n + 1))))
    return t if n == 1 else t.contiguous(memory_format=torch.channels_last if n == 2 else torch.channels_last_3d)


def row(name: str, rounds: int) -> None:
    shape, outputs, taps, stride, padding, dilation, groups = CASES[name]
    n = len(taps)
    x = RNG.standard_normal(shape).astype("f4")
    w = RNG.standard_normal((outputs, *taps, shape[-1] // groups)).astype("f4")
    ours, theirs = getattr(mx, f"conv{n}d"), getattr(torch.nn.functional, f"conv{n}d")
    more = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    at = [mx.array(x), mx.array(w)]
    y = ours(*at, **more)
    g = RNG.standard_normal(y.shape).astype("f4")
    back, tx, tw, tg = mx.array(g), turned(x).requires_grad_(), turned(w).requires_grad_(), turned(g)
    t = best(
        {
            "forward": lambda: mx.eval(ours(*at, **more)),
            "torch forward": lambda: theirs(tx.detach(), tw.detach(), **more),
            "both": lambda: mx.eval(*mx.vjp(lambda a, b: ours(a, b, **more), at, [back])[1]),
            "torch both": lambda: torch.autograd.grad(theirs(tx, tw, **more), (tx, tw), tg),
        },
        rounds,
    )
    flops = 2.0 * y.size * float(np.prod(taps)) * shape[-1] / groups / t["forward"] / 1e6
    print(
        f"{name:18} forward {t['forward']:7.2f} torch {t['torch forward']:7.2f} {flops:5.0f} GFLOP/s"
        f"   with gradients {t['both']:7.2f} torch {t['torch both']:7.2f}",
        flush=True,
    )


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("case", nargs="*", help="parts of names")
    options = p.parse_args()
    torch.set_num_threads(1)
    a = mx.array(RNG.standard_normal((1024, 1024)).astype("f4"))
    ceiling = best({"": lambda: mx.eval(a @ a)}, options.rounds)[""]
    print(f"product of 1024: {2 * 1.024**3 * 1e3 / ceiling:.0f} GFLOP/s")
    for name in CASES:
        if not options.case or any(s in name for s in options.case):
            row(name, options.rounds)


if __name__ == "__main__":
    main()
