# SPDX-License-Identifier: Apache-2.0
"""How fast are Fourier transforms beside PyTorch's (MKL), NumPy's and JAX's?

    PYTHONPATH=build/python build/venv/bin/python bench/fft.py [--rounds N] [--case TEXT]

As in first_light.py each peer is a process of its own; they take turns round by
round and the best call counts.  Prints for each case Marram's microseconds,
each peer's, the ratio to the best of them, and what the ratio may be.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import worker as w

PEERS = ("marram", "torch", "numpy", "jax")
# name: function, shape, axis (None: the last two), the most that the ratio to
# a peer may be (0: a figure to look at)
CASES: dict[str, tuple[str, tuple[int, ...], int | None, dict[str, float]]] = {
    "fft 2^20": ("fft", (1 << 20,), -1, {"torch": 1.5}),
    "fft 2^10": ("fft", (1 << 10,), -1, {}),
    "fft 2^14": ("fft", (1 << 14,), -1, {}),
    "fft 10^6": ("fft", (1_000_000,), -1, {}),
    "fft 1000003, a prime": ("fft", (1_000_003,), -1, {"numpy": 1, "jax": 1}),
    "fft 7919, a prime": ("fft", (7919,), -1, {"numpy": 1, "jax": 1}),
    "rfft 2^20": ("rfft", (1 << 20,), -1, {"numpy": 1, "jax": 1}),
    "irfft 2^20": ("irfft", ((1 << 19) + 1,), -1, {"numpy": 1, "jax": 1}),
    "rows, 4096 x 256": ("fft", (4096, 256), -1, {}),
    "rows, 1024 x 1024": ("fft", (1024, 1024), -1, {}),
    "rows of 1009, a prime": ("fft", (256, 1009), -1, {"numpy": 1, "jax": 1}),
    "real rows, 4096 x 512": ("rfft", (4096, 512), -1, {"numpy": 1, "jax": 1}),
    "columns, 1024 x 512": ("fft", (1024, 512), 0, {}),
    "fft2, 16 x 256 x 256": ("fft2", (16, 256, 256), None, {"numpy": 1, "jax": 1}),
    "fft2, 1024 x 1024": ("fft2", (1024, 1024), None, {"numpy": 1, "jax": 1}),
    "rfft2, 16 x 256 x 256": ("rfft2", (16, 256, 256), None, {"numpy": 1, "jax": 1}),
}


def call_of(peer: str, case: str) -> Callable[[], None]:
    """What one timed call does."""
    import numpy as np

    name, shape, axis, _ = CASES[case]
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, dtype=np.float32)
    if not name.startswith("rfft"):
        x = x + 1j * rng.standard_normal(shape, dtype=np.float32)
    options = {} if axis is None else {"axis": axis}
    if peer == "torch":
        import torch

        torch.set_num_threads(w.threads())
        f, a = getattr(torch.fft, name), torch.from_numpy(x)
        options = {} if axis is None else {"dim": axis}
        return lambda: f(a, **options)
    if peer == "jax":
        import jax

        f, a = jax.jit(lambda a: getattr(jax.numpy.fft, name)(a, **options)), jax.numpy.asarray(x)
        return lambda: jax.block_until_ready(f(a))
    if peer == "numpy":
        f = getattr(np.fft, name)
        return lambda: f(x, **options)
    import marram.core as mx

    f, a = getattr(mx.fft, name), mx.array(x)
    return lambda: mx.eval(f(a, **options))


def report(case: str, best: dict[str, float]) -> None:
    peers = {p: t for p, t in best.items() if p != "marram"}
    text = ", ".join(f"{p} {t * 1e6:.4g}" for p, t in peers.items())
    ratio = best["marram"] / min(peers.values()) if peers else float("nan")
    bars = []
    for p, limit in CASES[case][3].items():
        bar = f"<= {limit:g} of {p}"
        if p not in peers:
            bar += " (not installed here)"
        elif best["marram"] > limit * peers[p]:
            bar += "  MISSED"
        bars.append(bar)
    print(f"{case:24}{best['marram'] * 1e6:>9.4g}  {text:52}{ratio:>7.2f}  {'; '.join(bars)}", flush=True)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--case", default="")
    ap.add_argument("--worker", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.worker:
        __import__(a.worker)
        return w.serve(lambda case: call_of(a.worker, case))
    workers = w.start(__file__, PEERS)
    print(f"{w.threads()} threads, complex64, times in us (best of {a.rounds} rounds); ratio: to the best peer")
    for case in CASES:
        if a.case in case:
            report(case, w.measure(workers, case, a.rounds)[0])
    for peer in workers.values():
        peer.close()


if __name__ == "__main__":
    main()
