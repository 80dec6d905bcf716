# SPDX-License-Identifier: Apache-2.0
"""How fast are products with quantised matrices, beside MLX and float32?

    PYTHONPATH=build/python build/venv/bin/python bench/quantized.py [--rounds N] [--case TEXT] [--size N]

x (1 or 32 rows) times a matrix of size x size in each format.  Marram and MLX
multiply the packed words; PyTorch multiplies the same matrix in float32, once
for each number of rows.  Each peer is a process of its own; they take turns
round by round and the best call counts.  Prints microseconds, the ratio to
MLX, and the gigabytes of packed words, scales and biases that Marram reads in
a second.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import worker as w

SECONDS = 0.15
PEERS = ("marram", "mlx", "torch")
ROWS = (1, 32)
FORMATS = {f"affine {b}": dict(group_size=64, bits=b, mode="affine") for b in (2, 3, 4, 5, 6, 8)}
FORMATS |= {m: dict(mode=m) for m in ("mxfp4", "mxfp8", "nvfp4")}
PLAIN = "float32"


# ---- inside a worker ---------------------------------------------------------
def body(peer: str, name: str, rows: int, size: int) -> tuple[Callable[[], object], int]:
    """What one timed call does, and the bytes of the matrix."""
    if peer == "torch":
        import torch

        torch.set_num_threads(w.threads())
        x, y = torch.randn(rows, size), torch.randn(size, size)
        return lambda: x @ y.T, 4 * size * size
    mx = __import__(peer + ".core", fromlist=["core"])
    x, y = mx.random.normal((rows, size)), mx.random.normal((size, size))
    if name == PLAIN:
        mx.eval(x, y)
        return lambda: mx.eval(x @ y.T), 4 * size * size
    kw = FORMATS[name]
    q = mx.quantize(y, **kw)
    mx.eval(x, *q)
    return lambda: mx.eval(mx.quantized_matmul(x, *q, **kw)), sum(a.nbytes for a in q)


def worker_run(peer: str) -> None:
    body(peer, PLAIN, 1, 64)[0]()
    w.serve(lambda case: body(peer, *case), SECONDS)


# ---- the parent ----------------------------------------------------------------
def measure(workers: dict[str, w.Worker], name: str, rows: int, size: int, rounds: int) -> tuple[dict[str, float], int]:
    """The best seconds of each peer, the bytes of Marram's matrix."""
    live = {p: x for p, x in workers.items() if (p == "torch") == (name == PLAIN) or p == "marram"}
    best, n_bytes = w.measure(live, [name, rows, size], rounds)
    return best, n_bytes.get("marram", 0)


def report(name: str, rows: int, best: dict[str, float], n_bytes: int) -> None:
    ours = best.get("marram", float("nan"))
    peers = [p for p in best if p != "marram"]
    text = f"{name:10}{rows:>5} rows{ours * 1e6:>10.0f} us{n_bytes / ours / 1e9:>8.1f} GB/s"
    for p in peers:
        text += f"   {p} {best[p] * 1e6:.0f} us, ratio {ours / best[p]:.2f}"
    print(text, flush=True)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--case", default="")
    ap.add_argument("--size", type=int, default=4096)
    ap.add_argument("--worker", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.worker:
        return worker_run(a.worker)
    workers = w.start(__file__, PEERS)
    print(f"{w.threads()} threads, {a.size} x {a.size}, best of {a.rounds} rounds")
    for rows in ROWS:
        for name in (PLAIN, *FORMATS):
            if a.case in name:
                report(name, rows, *measure(workers, name, rows, a.size, a.rounds))
    for peer in workers.values():
        peer.close()


if __name__ == "__main__":
    main()
