# SPDX-License-Identifier: Apache-2.0
"""How close do reductions, row operators and scans come to the machine's reading speed, and to the best peer?

    PYTHONPATH=build/python build/venv/bin/python bench/reductions.py [--rounds N] [--case TEXT] [--family NAME] [--behind RATIO]

One line a case: best milliseconds of all rounds, the libraries in turns within
each round (those of NumPy, PyTorch and JAX that can be imported); the threads
that Marram used; the fastest flat read of as many bytes by any of them (`read`);
the factor to the best peer (below 1: Marram is slower).  Copies and casts write
as much as they read: their limit is the sum.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import marram.core as mx
import numpy as np

try:
    import torch
except ImportError:
    torch = None
try:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
except ImportError:
    jax = None

RNG = np.random.default_rng(0)
Call = Callable[..., Any]


@dataclass
class Case:
    """One line: a call for each library, and the inputs (NumPy arrays, and the dtype that they get)."""

    name: str
    ours: Call
    numpy: Call | None
    torch: Call | None
    jax: Call | None
    given: list[np.ndarray]
    dtype: str = "float32"
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        size = {"float16": 2, "bfloat16": 2, "float64": 8, "int64": 8}.get(self.dtype, 4)
        self.bytes = size * self.given[0].size


def values(dtype: str, *shape: int) -> np.ndarray:
    if dtype.startswith("int"):
        return RNG.integers(-100, 100, shape).astype(dtype)
    return RNG.standard_normal(shape, dtype="f4").astype("f8" if dtype == "float64" else "f4")


LAYOUTS = [((4000, 1000), 0), ((4000, 1000), 1), ((16, 500, 500), 1), ((1 << 22,), 0)]


def label(name: str, dtype: str, shape: tuple[int, ...], axis: int) -> str:
    short = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "int32": "i32", "bool": "b8"}[dtype]
    return f"{name} {short} {'x'.join(map(str, shape))} axis {axis}"


def reductions() -> Iterator[Case]:
    for dtype in ("float32", "float16", "bfloat16", "int32", "float64"):
        floating = dtype in ("float32", "float16", "bfloat16")
        for shape, axis in LAYOUTS:
            x = values(dtype, *shape)
            for name in (
                ("sum", "mean", "max", "min", "var", "std", "argmax", "argmin", "prod", "logsumexp") if floating else ("sum", "max")
            ):
                torch_name = {"max": "amax", "min": "amin"}.get(name, name)
                extra = {"correction": 0} if name in ("var", "std") else {}
                whole = name == "logsumexp"
                yield Case(
                    label(name, dtype, shape, axis),
                    lambda a, n=name, k=axis: getattr(mx, n)(a, axis=k),
                    None if whole else lambda a, n=name, k=axis: getattr(np, n)(a, k),
                    lambda a, n=torch_name, k=axis, e=extra: getattr(torch, n)(a, k, **e),
                    lambda a, n=name, k=axis, m=whole: getattr(jax.nn if m else jnp, n)(a, axis=k),
                    [x],
                    dtype,
                )
    for shape, axis in LAYOUTS:
        x = np.ones(shape, bool)
        for name in ("any", "all"):
            yield Case(
                label(name, "bool", shape, axis),
                lambda a, n=name, k=axis: getattr(mx, n)(a, axis=k),
                lambda a, n=name, k=axis: getattr(np, n)(a, k),
                lambda a, n=name, k=axis: getattr(torch, n)(a, k),
                lambda a, n=name, k=axis: getattr(jnp, n)(a, axis=k),
                [x if name == "all" else ~x],
                "bool",
            )


SOFTMAX: dict[str, Call] = {
    "softmax": lambda a, k: mx.softmax(a, axis=k),
    "log_softmax": lambda a, k: a - mx.logsumexp(a, axis=k, keepdims=True),
}


def rows() -> Iterator[Case]:
    for dtype in ("float32", "float16", "bfloat16"):
        for shape, axis in (*LAYOUTS, ((1 << 24,), 0)):
            x = values(dtype, *shape)
            for name in ("softmax", "log_softmax"):
                yield Case(
                    label(name, dtype, shape, axis),
                    lambda a, n=name, k=axis: SOFTMAX[n](a, k),
                    None,
                    lambda a, n=name, k=axis: getattr(torch, n)(a, k),
                    lambda a, n=name, k=axis: getattr(jax.nn, n)(a, axis=k),
                    [x],
                    dtype,
                )
        for shape in ((4000, 1000), (8, 500_000), (500_000, 8)):
            given = [values(dtype, *shape), values(dtype, shape[1])]
            yield Case(
                label("layer_norm", dtype, shape, 1),
                lambda a, w: mx.fast.layer_norm(a, w, w, 1e-5),
                None,
                lambda a, w: torch.nn.functional.layer_norm(a, w.shape, w, w),
                None,
                given,
                dtype,
            )
            yield Case(
                label("rms_norm", dtype, shape, 1),
                lambda a, w: mx.fast.rms_norm(a, w, 1e-5),
                None,
                lambda a, w: torch.nn.functional.rms_norm(a, w.shape, w, 1e-5),
                None,
                given,
                dtype,
            )
    x = values("float32", 1 << 24)
    for name in ("var", "logsumexp", "argmax", "sum", "max"):
        yield Case(
            label(name, "float32", x.shape, 0),
            lambda a, n=name: getattr(mx, n)(a, axis=0),
            None if name == "logsumexp" else lambda a, n=name: getattr(np, n)(a, 0),
            lambda a, n=name: getattr(torch, n if n != "max" else "amax")(a, 0),
            None if name == "logsumexp" else lambda a, n=name: getattr(jnp, n)(a, axis=0),
            [x],
        )


SCANS: dict[str, tuple[Call | None, Call, Call]] = {
    "cumsum": (
        lambda a, k: np.cumsum(a, k, dtype=a.dtype),
        lambda a, k: torch.cumsum(a, k, dtype=a.dtype),
        lambda a, k: jnp.cumsum(a, axis=k),
    ),
    "cumprod": (
        lambda a, k: np.cumprod(a, k, dtype=a.dtype),
        lambda a, k: torch.cumprod(a, k, dtype=a.dtype),
        lambda a, k: jnp.cumprod(a, axis=k),
    ),
    "cummax": (np.maximum.accumulate, lambda a, k: torch.cummax(a, k), lambda a, k: jax.lax.cummax(a, k)),
    "logcumsumexp": (None, lambda a, k: torch.logcumsumexp(a, k), lambda a, k: jax.lax.cumlogsumexp(a, k)),
}


def scans() -> Iterator[Case]:
    for dtype in ("float32", "float16", "bfloat16", "int32"):
        for shape, axis in (((1 << 22,), 0), ((2048, 2048), 0), ((2048, 2048), 1)):
            x = values(dtype, *shape)
            if dtype != "int32":
                x = np.abs(x)
            for name in ("cumsum", "cumprod", "cummax", "logcumsumexp"):
                if name == "logcumsumexp" and dtype == "int32":
                    continue
                numpy, theirs, other = SCANS[name]
                yield Case(
                    label(name, dtype, shape, axis),
                    lambda a, n=name, k=axis: getattr(mx, n)(a, axis=k),
                    None if numpy is None else lambda a, g=numpy, k=axis: g(a, k),
                    lambda a, g=theirs, k=axis: g(a, k),
                    lambda a, g=other, k=axis: g(a, k),
                    [x],
                    dtype,
                )


def copies() -> Iterator[Case]:
    for dtype in ("float32", "float16", "int32", "float64"):
        x = values(dtype, 2048, 2048)
        pair = [x, x + 1]
        yield Case(
            label("transpose", dtype, x.shape, 0),
            lambda a: mx.contiguous(a.T),
            lambda a: np.ascontiguousarray(a.T),
            lambda a: a.T.contiguous(),
            None,
            [x],
            dtype,
        )
        for axis in (0, 1):
            for name in ("concatenate", "stack"):
                yield Case(
                    label(name, dtype, x.shape, axis),
                    lambda a, b, n=name, k=axis: getattr(mx, n)([a, b], axis=k),
                    lambda a, b, n=name, k=axis: getattr(np, n)([a, b], axis=k),
                    lambda a, b, n=name, k=axis: getattr(torch, n)([a, b], k),
                    lambda a, b, n=name, k=axis: getattr(jnp, n)([a, b], axis=k),
                    pair,
                    dtype,
                )
    x = values("float32", 1 << 23)
    yield Case(
        "copy of every other f32 4M",
        lambda a: mx.contiguous(a[::2]),
        lambda a: a[::2].copy(),
        lambda a: a[::2].clone(),
        lambda a: a[::2],
        [x],
    )
    yield Case("add f32 8M", lambda a: a + a, lambda a: a + a, lambda a: a + a, lambda a: a + a, [x])
    yield Case("negative f32 8M", lambda a: -a, lambda a: -a, lambda a: -a, lambda a: -a, [x])
    yield Case(
        "where f32 8M",
        lambda a, b: mx.where(a > 0, a, b),
        lambda a, b: np.where(a > 0, a, b),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: jnp.where(a > 0, a, b),
        [x, x + 1],
    )
    y = values("float32", 256, 64, 512)
    yield Case(
        "swap middle f32 256x64x512",
        lambda a: mx.contiguous(a.transpose(1, 0, 2)),
        lambda a: np.ascontiguousarray(a.transpose(1, 0, 2)),
        lambda a: a.permute(1, 0, 2).contiguous(),
        lambda a: a.transpose(1, 0, 2),
        [y],
    )


def casts() -> Iterator[Case]:
    names = ("float32", "float16", "bfloat16", "int32", "float64", "bool", "uint8", "int64")
    for a in names:
        for b in names:
            if a == b:
                continue
            x = (RNG.integers(0, 100, 1 << 22)).astype("f4")
            yield Case(
                f"cast {a} {b} 4M",
                lambda x, b=b: x.astype(getattr(mx, "bool_" if b == "bool" else b)),
                None if "bfloat16" in (a, b) else lambda x, b=b: x.astype(b),
                lambda x, b=b: x.to(getattr(torch, b)),
                lambda x, b=b: x.astype(b),
                [x],
                a,
            )


FAMILIES = [reductions, rows, scans, copies, casts]


def converted(case: Case) -> dict[str, list[Any]]:
    """The inputs of each library in the case's dtype."""
    t = case.dtype
    arrays = {"numpy": [x.astype(t) for x in case.given] if t != "bfloat16" else []}
    arrays["marram"] = [mx.array(x).astype(getattr(mx, "bool_" if t == "bool" else t)) for x in case.given]
    if t == "float64":
        arrays["marram"] = [mx.array(x.astype("f8"), dtype=mx.float64) for x in case.given]
    mx.eval(arrays["marram"])
    if torch is not None:
        arrays["torch"] = [torch.from_numpy(x).to(getattr(torch, t)) for x in case.given]
    if jax is not None:
        arrays["jax"] = [jnp.asarray(x).astype(t) for x in case.given]
    return arrays


def calls(case: Case) -> dict[str, Call]:
    xs = converted(case)
    out: dict[str, Call] = {"marram": lambda: mx.eval(case.ours(*xs["marram"]))}
    if case.numpy is not None and xs["numpy"]:
        out["numpy"] = lambda: case.numpy(*xs["numpy"])
    if torch is not None and case.torch is not None:
        out["torch"] = lambda: case.torch(*xs["torch"])
    if jax is not None and case.jax is not None:
        compiled = jax.jit(case.jax)
        out["jax"] = lambda: jax.block_until_ready(compiled(*xs["jax"]))
    return out


def measured(functions: dict[str, Call], rounds: int, seconds: float) -> tuple[dict[str, float], float]:
    """Best wall seconds of each, and Marram's best processor seconds."""
    for name in list(functions):
        try:
            functions[name]()
            functions[name]()
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as e:
            if name == "marram":
                raise
            print(f"# {name}: {str(e).splitlines()[0][:80]}")
            del functions[name]
    best, busy = dict.fromkeys(functions, float("inf")), float("inf")
    start = time.perf_counter()
    for turn in range(rounds):
        for name, g in functions.items():
            t, p = time.perf_counter(), time.process_time()
            g()
            t, p = time.perf_counter() - t, time.process_time() - p
            best[name] = min(best[name], t)
            if name == "marram":
                busy = min(busy, p)
        if turn > 2 and time.perf_counter() - start > seconds:
            break
    return best, busy


READS: dict[int, float] = {}


def read_time(n_bytes: int) -> float:
    """The fastest flat read of so many bytes."""
    if n_bytes not in READS:
        x = RNG.standard_normal(n_bytes // 4, dtype="f4")
        ours = mx.array(x)
        mx.eval(ours)
        functions: dict[str, Call] = {"marram": lambda: mx.eval(mx.max(ours)), "numpy": lambda: np.max(x)}
        if torch is not None:
            theirs = torch.from_numpy(x)
            functions["torch"] = lambda: torch.sum(theirs)
        READS[n_bytes] = min(measured(functions, 60, 2.0)[0].values())
    return READS[n_bytes]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--case", default="")
    parser.add_argument("--family", default="", help=", ".join(f.__name__ for f in FAMILIES))
    parser.add_argument("--behind", type=float, default=float("inf"))
    options = parser.parse_args()
    print(f"{'case':36}{'marram':>9}{'numpy':>9}{'torch':>9}{'jax':>9}{'read':>9}  ms {'threads':>8}{'factor':>8}")
    for case in (c for family in FAMILIES if options.family in family.__name__ for c in family()):
        if options.case not in case.name:
            continue
        best, busy = measured(calls(case), options.rounds, options.seconds)
        factor = min((v for k, v in best.items() if k != "marram"), default=float("nan")) / best["marram"]
        if factor >= options.behind:
            continue
        times = "".join(f"{1e3 * best[k]:9.2f}" if k in best else f"{'-':>9}" for k in ("marram", "numpy", "torch", "jax"))
        read = 1e3 * read_time(case.bytes)
        print(f"{case.name:36}{times}{read:9.2f}     {busy / best['marram']:8.1f}{factor:8.2f}", flush=True)


if __name__ == "__main__":
    main()
