# SPDX-License-Identifier: Apache-2.0
"""What native code gains: compiled formulas on the interpreter, by LLVM, and by peers.

    PYTHONPATH=build/python build/venv/bin/python bench/jit.py [--rounds N] [--case TEXT] [--peer NAME ...]

Each peer is a process of its own, compiles each formula once, and takes its
turn round by round; the best call counts.  "tier 0" is Marram with
MARRAM_JIT=off, "tier 1" with =now; PyTorch (torch.compile) and JAX (jit) take
part where they are installed.  Prints gigabytes of inputs and results a second
and, for tier 1, the milliseconds from asking for native code to running it
(MARRAM_JIT=background, calls with pauses between them, the best of --rounds
processes): of a formula after another one, and of a process's first.
cross_entropy (rows of 1000) and vocabulary (of 32000) are the loss and its
gradient; PyTorch's are those of its own cross_entropy, not compiled.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

SECONDS = 0.2
PEERS = ("tier 0", "tier 1", "torch", "jax")
# name: number of arrays read, and the length of their rows (0: a flat array)
FORMULAS = {"gelu": (1, 0), "chain": (2, 0), "softmax": (1, 1024), "layer_norm": (1, 1024), "rms_norm": (1, 1024), "mish": (1, 0),
            "cross_entropy": (1, 1000), "vocabulary": (1, 32000)}
LOSSES = ("cross_entropy", "vocabulary")
SIZES = {"1M": 1 << 20, "8M": 1 << 23}
DTYPES = ("float32", "bfloat16")


def cases() -> list[str]:
    return [f"{f} {d} {s}" for f in FORMULAS for d in DTYPES for s in SIZES]


# ---- inside a worker ---------------------------------------------------------
def formula(name: str, m: object, ax: dict, keep: dict) -> Callable:
    """The same text for all; m has the functions, ax and keep their words."""
    def gelu(x):
        return x * 0.5 * (1.0 + m.erf(x * 0.70710678))

    def chain(x, y):
        a = (x * y + x - y) * 0.5
        a = m.maximum(a, y) * x + 1.0
        return (m.abs(a) - x) * y

    def softmax(x):
        e = m.exp(x - m.max(x, **ax, **keep))
        return e / m.sum(e, **ax, **keep)

    def layer_norm(x):
        d = x - m.mean(x, **ax, **keep)
        return d * m.rsqrt(m.mean(d * d, **ax, **keep) + 1e-5)

    def rms_norm(x):
        return x * m.rsqrt(m.mean(x * x, **ax, **keep) + 1e-5)

    def mish(x):
        return x * m.tanh(m.log1p(m.exp(x)))

    return {f.__name__: f for f in (gelu, chain, softmax, layer_norm, rms_norm, mish)}[name]


def loss_of(m: object, logsumexp: Callable) -> Callable:
    def loss(x, targets):
        picked = m.take_along_axis(x, m.expand_dims(targets, -1), axis=-1)
        return (logsumexp(x, axis=-1) - m.squeeze(picked, -1)).mean()

    return loss


def targets_of(rows: int, n: int) -> list:
    import numpy as np

    return [np.random.default_rng(2).integers(0, n, rows).astype("i4")]


def marram_body(name: str, dtype: str, arrays: list) -> Callable:
    import marram.core as mx

    x = [mx.array(a).astype(getattr(mx, dtype)) for a in arrays]
    if name in LOSSES:
        f = mx.compile(mx.value_and_grad(loss_of(mx, mx.logsumexp)))
        x += [mx.array(a) for a in targets_of(*arrays[0].shape)]
    else:
        f = mx.compile(formula(name, mx, {"axis": -1}, {"keepdims": True}))
    mx.eval(x)
    return lambda: mx.eval(f(*x))


def torch_body(name: str, dtype: str, arrays: list) -> Callable:
    import torch

    class Words:
        def __getattr__(self, word: str) -> Callable:
            return torch.amax if word == "max" else getattr(torch, word)

    def step(x, targets):
        x.grad = None
        torch.nn.functional.cross_entropy(x, targets).backward()

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    if name in LOSSES:
        x = torch.from_numpy(arrays[0]).to(getattr(torch, dtype)).requires_grad_()
        t = torch.from_numpy(targets_of(*arrays[0].shape)[0]).long()
        return lambda: step(x, t)
    f = torch.compile(formula(name, Words(), {"dim": -1}, {"keepdim": True}), dynamic=False)
    x = [torch.from_numpy(a).to(getattr(torch, dtype)) for a in arrays]
    return lambda: f(*x)


def jax_body(name: str, dtype: str, arrays: list) -> Callable:
    import jax
    import jax.numpy as jnp

    class Words:
        def __getattr__(self, word: str) -> Callable:
            return getattr(jax.lax, word) if word in ("rsqrt", "erf") else getattr(jnp, word)

    x = [jnp.asarray(a, dtype=dtype) for a in arrays]
    if name in LOSSES:
        f = jax.jit(jax.value_and_grad(loss_of(jnp, jax.nn.logsumexp)))
        x += [jnp.asarray(a) for a in targets_of(*arrays[0].shape)]
        return lambda: f(*x)[1].block_until_ready()
    f = jax.jit(formula(name, Words(), {"axis": -1}, {"keepdims": True}))
    return lambda: f(*x).block_until_ready()


class Info(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("mode", ctypes.c_char_p), ("loaded", ctypes.c_bool),
                ("why_not", ctypes.c_char_p), ("steps", ctypes.c_int64), ("counts", ctypes.c_int64 * 4),
                ("seconds", ctypes.c_double), ("waited", ctypes.c_double)]


def jit_info() -> Info:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        path = next(line.split()[-1] for line in maps if "libmarram.so" in line)
    i = Info(ctypes.sizeof(Info))
    ctypes.CDLL(path).mr_jit_info_get(ctypes.byref(i))
    return i


def arrays_of(name: str, size: str) -> list:
    import numpy as np

    n_in, row = FORMULAS[name]
    rng = np.random.default_rng(1)
    shape = (SIZES[size] // row, row) if row else (SIZES[size],)
    return [rng.standard_normal(shape).astype("f4") for _ in range(n_in)]


def swaps(chosen: list[str]) -> None:
    """Prints the seconds from asking for native code to running it, of the last of the cases."""
    waited = 0.0
    for case in chosen:
        name, dtype, size = case.split()
        fn, before, end = marram_body(name, dtype, arrays_of(name, size)), jit_info(), time.perf_counter() + 10
        while jit_info().steps == before.steps and time.perf_counter() < end:
            fn()
            time.sleep(0.05)
        waited = jit_info().waited - before.waited
    print(waited)


def worker(peer: str, chosen: list[str]) -> None:
    """Answers each line "i" with the best time of case i in a round."""
    body = {"torch": torch_body, "jax": jax_body}.get(peer, marram_body)
    bodies: dict[int, Callable] = {}
    for line in sys.stdin:
        i = int(line)
        if i not in bodies:
            name, dtype, size = chosen[i].split()
            bodies[i] = body(name, dtype, arrays_of(name, size))
            for _ in range(3):
                bodies[i]()
        fn = bodies[i]
        best, end = float("inf"), time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            start = time.perf_counter()
            fn()
            best = min(best, time.perf_counter() - start)
        print(best, flush=True)


# ---- the table ------------------------------------------------------------------
def start(peer: str, chosen: list[str]) -> subprocess.Popen:
    mode = {"tier 0": "off", "tier 1": "now"}.get(peer, "off")
    return subprocess.Popen([sys.executable, __file__, "--worker", peer, "--chosen", json.dumps(chosen)], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "MARRAM_JIT": mode})


def ask(p: subprocess.Popen, i: int) -> float:
    p.stdin.write(f"{i}\n")
    p.stdin.flush()
    answer = p.stdout.readline()
    return float(answer) if answer else float("nan")


def swap_ms(cases: list[str], rounds: int) -> float:
    """Milliseconds until native code of the last case runs, in a process of its own."""
    got = [subprocess.run([sys.executable, __file__, "--swaps", json.dumps(cases)], text=True, check=True,
                          capture_output=True, env={**os.environ, "MARRAM_JIT": "background"}).stdout
           for _ in range(rounds)]
    return min(map(float, got)) * 1e3


def gigabytes(case: str, seconds: float) -> float:
    name, dtype, size = case.split()
    item = 4 if dtype == "float32" else 2
    return (FORMULAS[name][0] + 1) * item * SIZES[size] / seconds * 1e-9


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--case", default="")
    p.add_argument("--peer", action="append", choices=PEERS)
    p.add_argument("--worker")
    p.add_argument("--swaps")
    p.add_argument("--chosen")
    args = p.parse_args()
    if args.worker:
        worker(args.worker, json.loads(args.chosen))
        return
    if args.swaps:
        swaps(json.loads(args.swaps))
        return
    chosen = [c for c in cases() if args.case in c]
    peers = [q for q in args.peer or PEERS if q.startswith("tier") or importlib.util.find_spec(q)]
    workers = {q: start(q, chosen) for q in peers}
    print(f"{'GB/s':26}" + "".join(f"{q:>9}" for q in peers) + "   swapped in, first of a process")
    for i, case in enumerate(chosen):
        best = {q: float("inf") for q in peers}
        for _ in range(args.rounds):
            for q, w in workers.items():
                best[q] = min(best[q], ask(w, i))
        print(f"{case:26}" + "".join(f"{gigabytes(case, best[q]):9.1f}" for q in peers), end="", flush=True)
        if "tier 1" in best:
            other = "rms_norm float32 1M" if case.startswith("chain") else "chain float32 1M"
            print("".join(f"{swap_ms(c, args.rounds):8.1f} ms" for c in ([other, case], [case])), end="")
        print(flush=True)
    for w in workers.values():
        w.stdin.close()
        w.wait()


if __name__ == "__main__":
    main()
