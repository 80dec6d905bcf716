# SPDX-License-Identifier: Apache-2.0
"""Does Marram keep its promises of speed beside its peers, on this machine?

    PYTHONPATH=build/python build/venv/bin/python bench/first_light.py [--rounds N] [--case TEXT] [--all]

Each peer is a process of its own that lives through the run; they take turns
round by round and the best round counts, so that a busy machine hurts all
alike.  Prints one line for each bar: Marram's figure, the peer's, their ratio,
and what the ratio may be; `--all` adds every peer's figure.  The peers are
MLX, PyTorch, JAX and NumPy, and OpenBLAS and oneDNN called directly, whatever
is installed (`make test-oracles` brings the Python ones); a bar without its
peer says "not installed here".
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import worker as w

try:
    import numpy as np
except ImportError:
    np = None

SMALL = 16
CALLS = 1000
CHAIN = 100
FRAMEWORKS = ("mlx", "torch", "jax", "numpy")
LIBRARIES = ("openblas", "onednn")
PEERS = ("marram", *FRAMEWORKS, *LIBRARIES)


class Case:
    """One question, and the bars it is held to.

    ``bars`` lists pairs (limit, peer): the ratio to this peer's time may be
    at most ``limit``; "best" is the best framework, "library" the best
    library.  Without a limit it is a figure to look at, promised nowhere.
    """

    def __init__(self, per: int, *bars: tuple[float | None, str]) -> None:
        self.per, self.bars = per, bars

    def asks(self, peer: str) -> bool:
        """Whether this peer takes part."""
        if peer in LIBRARIES:
            return any(against == "library" for _, against in self.bars)
        return True


# A round is SECONDS of calls; `per` operators are in one call.
CASES = {
    "a + b, lazy (16)": Case(CALLS, (0.4, "mlx"), (1.0, "numpy")),
    "eval(a + b) (16)": Case(CALLS, (0.15, "mlx")),
    "chain of 100 and eval, per operator": Case(CHAIN, (0.25, "mlx")),
    "erf-GELU formula, eager, 1M": Case(1, (1 / 3, "torch")),
    "erf-GELU, eager beside compiled, 1M": Case(1, (1.0, "torch")),
    "erf-GELU, compiled, 1M": Case(1, (1.0, "torch")),
    "a + b, 8M": Case(1, (2 / 3, "best")),
    "matmul 1024": Case(1, (1.1, "library"), (None, "best")),
    "softmax of rows, 1024 x 4096": Case(1, (None, "best")),
    "sum of 8M": Case(1, (None, "best")),
}
IN_C = "mr_add of 16 elements, lazy, in C"
IN_C_BAR = 0.1  # microseconds


# ---- inside a worker ---------------------------------------------------------


class Peer:
    """The few calls that the cases need, in one framework's words."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sync: Callable = lambda x: x
        self.erf = None
        if name in ("marram", "mlx"):
            mx = __import__(name + ".core", fromlist=["core"])
            self.array, self.sync, self.erf = mx.array, mx.eval, mx.erf
            self.compile, self.lib = mx.compile, mx
        elif name == "torch":
            import torch

            torch.set_num_threads(w.threads())
            self.array, self.erf = torch.from_numpy, torch.erf
            self.compile, self.lib = torch.compile, torch
        elif name == "jax":
            import jax

            self.array, self.erf = jax.numpy.asarray, jax.scipy.special.erf
            self.sync = jax.block_until_ready
            self.compile, self.lib = jax.jit, jax.numpy
        else:
            self.array, self.lib = np.asarray, np

    def draw(self, *shape: int):
        """Normal numbers, the same for all; Marram can do without NumPy."""
        if np is not None:
            rng = np.random.default_rng(0)
            return self.array(rng.standard_normal(shape, dtype=np.float32))
        x = self.lib.random.normal(shape)
        self.sync(x)
        return x

    def gelu(self, x):
        return x * (1 + self.erf(x * 0.7071067811865476)) * 0.5

    def softmax(self, x):
        if self.name == "jax":
            import jax

            return jax.nn.softmax(x, axis=-1)
        return self.lib.softmax(x, -1)


def library_paths(name: str) -> list[str]:
    """Where to look: Marram's private OpenBLAS first, as Debian's takes old
    kernels on processors that it does not know."""
    if name == "onednn":
        return ["libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"]
    found = []
    for entry in map(Path, sys.path):
        found += entry.parent.glob("lib/libmarram_blas.so")
        found += entry.glob("marram*/**/libmarram_blas.so*")
    return [*map(str, found), "libopenblas.so.0"]


def library_load(name: str) -> ctypes.CDLL:
    for path in library_paths(name):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise OSError(f"no {name}")


def library_product(name: str) -> Callable[[], None]:
    """c = a b by one call of the library, 1024 x 1024."""
    lib, n = library_load(name), 1024
    a = np.random.default_rng(0).standard_normal((n, n), dtype=np.float32)
    b, c = a.copy(), np.zeros_like(a)
    pa, pb, pc = (ctypes.c_void_p(x.ctypes.data) for x in (a, b, c))
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    if name == "onednn":
        size = ctypes.c_int64(n)
        no = ctypes.c_char(b"N")
        gemm = lib.dnnl_sgemm
        args = (no, no, size, size, size, one, pa, size, pb, size, zero, pc, size)
    else:
        prefix = "scipy_" if hasattr(lib, "scipy_cblas_sgemm") else ""
        getattr(lib, prefix + "openblas_set_num_threads")(w.threads())
        gemm = getattr(lib, prefix + "cblas_sgemm")
        args = (101, 111, 111, n, n, n, one, pa, n, pb, n, zero, pc, n)

    def product(keep=(a, b, c)) -> None:
        gemm(*args)

    product()
    if not np.allclose(c, a @ b, atol=1e-2):
        raise ValueError(f"{name} gives a wrong product")
    return product


def small_case(p: Peer, case: str) -> Callable[[], None]:
    a, b, sync = p.draw(SMALL), p.draw(SMALL), p.sync

    def lazy() -> None:
        for _ in range(CALLS):
            a + b

    def each() -> None:
        for _ in range(CALLS):
            sync(a + b)

    def chain() -> None:
        c = a
        for _ in range(CHAIN):
            c = c + b
        sync(c)

    if case.startswith("chain"):
        return chain
    return lazy if "lazy" in case else each


def gelu_case(p: Peer, case: str) -> Callable[[], None] | None:
    if p.erf is None:
        return None
    x = p.draw(1_000_000)
    compiled = "compiled" in case
    if "beside" in case and p.name == "marram":
        compiled = False
    f = p.compile(p.gelu) if compiled else p.gelu
    return lambda: p.sync(f(x))


def body(p: Peer, case: str) -> Callable[[], None] | None:
    """What one timed call does; None: this peer has no such thing."""
    if case.startswith("erf-GELU"):
        return gelu_case(p, case)
    if case == "a + b, 8M":
        a, b = p.draw(8_388_608), p.draw(8_388_608)
        return lambda: p.sync(a + b)
    if case.startswith("matmul"):
        a, b = p.draw(1024, 1024), p.draw(1024, 1024)
        return lambda: p.sync(a @ b)
    if case.startswith("softmax"):
        if p.name == "numpy":
            return None
        x = p.draw(1024, 4096)
        return lambda: p.sync(p.softmax(x))
    if case.startswith("sum"):
        x = p.draw(8_388_608)
        return lambda: p.sync(x.sum())
    return small_case(p, case)


def worker(name: str) -> None:
    if name in LIBRARIES:
        product = library_product(name)
    else:
        p = Peer(name)
    library = name in LIBRARIES
    w.serve(lambda case: product if library else body(p, case))


# ---- the parent ----------------------------------------------------------------


def measure(workers: dict[str, w.Worker], name: str, rounds: int) -> dict:
    """The best seconds of each peer; rounds are fewer for the very slow."""
    live = {p: x for p, x in workers.items() if CASES[name].asks(p)}
    return w.measure(live, name, rounds, w.SECONDS)[0]


def compared(best: dict[str, float], against: str) -> str:
    """The peer's name; what is missing gets the bar's own word."""
    pool = {"best": FRAMEWORKS, "library": LIBRARIES}.get(against, (against,))
    found = [p for p in pool if p in best]
    return min(found, key=best.__getitem__) if found else against


def row(name: str, ours: str, peer: str, ratio: str, bar: str) -> None:
    print(f"{name:37}{ours:>10}  {peer:18}{ratio:>13}  {bar}", flush=True)


def report(name: str, best: dict[str, float], everything: bool) -> None:
    case = CASES[name]
    figure = {p: f"{t / case.per * 1e6:.3g}" for p, t in best.items()}
    for limit, against in case.bars:
        peer = compared(best, against)
        bar = f"<= {limit:.2f} of {against}" if limit else f"(of {against})"
        if "marram" not in best or peer not in best:
            row(name, figure.get("marram", "-"), peer, "not installed here", bar)
            continue
        ratio = best["marram"] / best[peer]
        bar += "  MISSED" if limit and ratio > limit else ""
        row(name, figure["marram"], f"{peer} {figure[peer]}", f"{ratio:.3f}", bar)
    if everything:
        print("    " + ", ".join(f"{p} {f}" for p, f in figure.items()))


def report_c(rounds: int) -> None:
    """The figure of bench/overhead.c, where it was built."""
    for entry in map(Path, sys.path):
        program = entry.parent / "bin/bench/overhead"
        if not program.exists():
            continue
        best = float("inf")
        for _ in range(rounds):
            out = subprocess.run([program], text=True, capture_output=True)
            best = min(best, float(out.stdout.split(" ns")[0].split()[-1]) / 1e3)
        bar = f"< {IN_C_BAR} us" + ("" if best < IN_C_BAR else "  MISSED")
        row(IN_C, f"{best:.3g}", "", "", bar)
        return


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--rounds", type=int, default=9)
    ap.add_argument("--case", default="")
    ap.add_argument("--all", action="store_true")
    ap.add_argument("--worker", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.worker:
        return worker(a.worker)
    workers = w.start(__file__, PEERS)
    print(f"{w.threads()} threads, float32, times in us (best of {a.rounds} rounds)")
    row("case", "marram", "peer", "ratio", "bar")
    if a.case in IN_C:
        report_c(a.rounds)
    for name in CASES:
        if a.case in name:
            report(name, measure(workers, name, a.rounds), a.all)
    for peer in workers.values():
        peer.close()


if __name__ == "__main__":
    main()
