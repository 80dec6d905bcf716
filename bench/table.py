# SPDX-License-Identifier: Apache-2.0
"""Every subject of speed in one table: Marram, the peer that its bar names, the limit, the ratio.

    PYTHONPATH=build/python build/venv/bin/python bench/table.py [--rounds N] [--case TEXT] [--subject NAME] [--behind]

PyTorch, JAX and NumPy, each a process of its own, take turns with Marram round
by round; the best call counts.  A case is a line of SUBJECTS: its inputs, and
what each library calls, as Python text.  The limit is what the fastest library
of this run needs to read or to copy as many bytes, or for as many fused
multiply-adds; it is there to say how much could be gained at all.

The ratio is another's time over Marram's (above 1 Marram is faster), the bar
what it is to be at least.  Most bars are set beside the fastest peer, some
beside named ones, and with a bar for each: linear algebra beside NumPy
(LAPACK), ordering beside NumPy, attention and convolution beside PyTorch,
transforms 1 / 1.5 of PyTorch and 1 of the others.  Shown is the one that
decides, by ratio over bar; peers that no bar names stand behind it in brackets,
with their ratios.  A line below its bar ends in MISSED.

Quantised products have no such peer but ggml, if GGML names a folder that has it
(ggml.py).  4 bits are held against its Q4_K (x in 8 bits), or without it against
what that took on another machine of this class ("ggml*": 303 us a row, 2.6 ms
for 32), a row of 6 or 8 bits against 0.7 of the reading speed ("limit"),
narrower ones against the line of 4 bits ("4 bits").

Training steps have a program of their own (training.py), as other things have;
they look closer at a subject.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
from collections.abc import Callable
from typing import Any

import worker as w

PEERS = ("marram", "torch", "jax", "numpy", *(("ggml",) if "GGML" in os.environ else ()))
M = 1 << 20
# Seconds that were measured elsewhere.
ELSEWHERE = {"ggml* row": 303e-6, "ggml* 32 rows": 2.6e-3, "ggml* 2 rows": 606e-6}
MEDIAN = 1.05  # of the products of float32 and float64

Bar = float | dict[str, float]
# name, bar (a ratio beside the fastest peer, or one for each of those that
# decide: peers, "limit", "4 bits", or a name of ELSEWHERE; none: no bar), inputs
# {name: (dtype, *shape)}, limit (kind, amount), calls.
Case = tuple[str, Bar, dict[str, Any], tuple[str, float], dict[str, str]]


def each(text: str, peers: str = "marram torch jax numpy") -> dict[str, str]:
    """One text for several peers: `N.` is the library's own module."""
    module = {"marram": "mx", "torch": "torch", "jax": "jnp", "numpy": "np"}
    return {p: text.replace("N.", module[p] + ".") for p in peers.split()}


def products() -> list[Case]:
    out: list[Case] = []
    for t, peers in (("float32", "marram torch jax numpy"), ("float64", "marram torch jax numpy")):
        for n in (256, 512, 1024, 2048, 4096):
            flops = 2.0 * n**3 * (2 if t == "float64" else 1)
            out.append((f"{t} {n}", 0.95, {"a": (t, n, n), "b": (t, n, n)}, ("fma", flops), each("a @ b", peers)))
    for t in ("bfloat16", "float16"):
        for n in (256, 1024, 2048):
            given = {"a": (t, n, n), "b": (t, n, n)}
            # PyTorch takes 16 s for 1024^3 of float16, where the others take 0.01.
            peers = "marram torch jax" if n == 256 or t == "bfloat16" else "marram jax"
            out.append((f"{t} {n}", 1.0, given, ("fma", 2.0 * n**3), each("a @ b", peers)))
    shape = (16, 512, 512)
    out.append(
        ("float32 16 x 512", 0.95, {"a": ("float32", *shape), "b": ("float32", *shape)}, ("fma", 32.0 * 512**3), each("a @ b"))
    )
    for t, size in (("float32", 4), ("float64", 8), ("bfloat16", 2), ("float16", 2)):
        peers = "marram torch jax numpy" if size > 2 else "marram torch jax"
        given = {"a": (t, 1, 4096), "b": (t, 4096, 4096)}
        out.append((f"{t} row x 4096^2", 1.0, given, ("read", size * 4096.0**2), each("a @ b", peers)))
    return out


def copies() -> list[Case]:
    x, y, h = ("float32", 8 * M), ("float32", 8 * M), ("float32", 4 * M)
    square = ("float32", 2048, 2048)
    return [
        ("add 8M", 1.3, {"a": x, "b": y}, ("copy", 96.0 * M), each("a + b")),
        (
            "copy 8M",
            1.3,
            {"a": x},
            ("copy", 64.0 * M),
            {"marram": "mx.contiguous(mx.abs(a))", "torch": "a.clone()", "numpy": "a.copy()", "jax": "jnp.abs(a)"},
        ),
        (
            "cast to float16 8M",
            1.3,
            {"a": x},
            ("copy", 48.0 * M),
            {"marram": "a.astype(mx.float16)", "torch": "a.half()", "numpy": "a.astype('f2')", "jax": "a.astype(jnp.float16)"},
        ),
        ("where 8M", 1.3, {"a": x, "b": y}, ("copy", 96.0 * M), each("N.where(a > 0, a, b)")),
        (
            "transposed copy 2048^2",
            1.3,
            {"a": square},
            ("copy", 8.0 * 4 * M),
            {"marram": "mx.contiguous(a.T)", "torch": "a.T.contiguous()", "numpy": "np.ascontiguousarray(a.T)", "jax": "a.T"},
        ),
        ("concatenate 4M, 4M", 1.3, {"a": h, "b": h}, ("copy", 64.0 * M), each("N.concatenate([a, b])")),
    ]


def reductions() -> list[Case]:
    out: list[Case] = []
    for t, size in (("float32", 4), ("bfloat16", 2), ("float16", 2)):
        for axis in (0, 1):
            for name in ("sum", "mean", "max", "var", "argmax", "logsumexp"):
                calls = each(f"N.{name}(a, {axis})", "marram numpy") | {
                    "jax": f"jnp.{name}(a, {axis})",
                    "torch": f"torch.{name}(a, {axis})",
                }
                if name == "max":
                    calls["torch"] = f"torch.amax(a, {axis})"
                if name == "logsumexp":
                    calls["jax"] = f"jax.nn.logsumexp(a, {axis})"
                    calls.pop("numpy")
                if t != "float32":
                    calls.pop("numpy", None)
                out.append((f"{name} {t} axis {axis}", 1.0, {"a": (t, 4000, 1000)}, ("read", 4e6 * size), calls))
    return out


def rows() -> list[Case]:
    out: list[Case] = []
    for t, size in (("float32", 4), ("bfloat16", 2)):
        a, v = (t, 1024, 4096), (t, 4096)
        limit = ("copy", 2.0 * size * 4 * M)
        out += [
            (
                f"softmax {t}",
                1.1,
                {"a": a},
                limit,
                {"marram": "mx.softmax(a, -1)", "torch": "torch.softmax(a, -1)", "jax": "jax.nn.softmax(a, -1)"},
            ),
            (
                f"softmax {t} axis 0",
                1.1,
                {"a": a},
                limit,
                {"marram": "mx.softmax(a, 0)", "torch": "torch.softmax(a, 0)", "jax": "jax.nn.softmax(a, 0)"},
            ),
            (
                f"layer_norm {t}",
                1.1,
                {"a": a, "v": v},
                limit,
                {"marram": "mx.fast.layer_norm(a, v, v, 1e-5)", "torch": "F.layer_norm(a, v.shape, v, v)"},
            ),
            (
                f"rms_norm {t}",
                1.1,
                {"a": a, "v": v},
                limit,
                {"marram": "mx.fast.rms_norm(a, v, 1e-5)", "torch": "F.rms_norm(a, v.shape, v, 1e-5)"},
            ),
        ]
    return out


def order() -> list[Case]:
    out: list[Case] = []
    numpy = {"numpy": 1.0}
    shapes = {"rows of 4096": (1024, 4096), "4M": (4 * M,)}
    for t, size in (("float32", 4), ("int64", 8)):
        for label, shape in shapes.items():
            a, copy = {"a": (t, *shape)}, ("copy", 2.0 * size * 4 * M)
            read, n = ("read", 4.0 * size * M), shape[-1]
            half = n // 2
            out += [
                (f"sort {t} {label}", numpy, a, copy, each("N.sort(a)", "marram jax numpy") | {"torch": "torch.sort(a)[0]"}),
                (
                    f"argsort {t} {label}",
                    numpy,
                    a,
                    copy,
                    each("N.argsort(a)", "marram numpy jax") | {"torch": "torch.argsort(a, -1)"},
                ),
                (
                    f"partition {t} {label}",
                    numpy,
                    a,
                    read,
                    each(f"N.partition(a, {half})", "marram numpy") | {"torch": f"torch.kthvalue(a, {half})[0]"},
                ),
                (
                    f"topk 40 {t} {label}",
                    numpy,
                    a,
                    read,
                    {
                        "marram": "mx.topk(a, 40)",
                        "torch": "torch.topk(a, 40)[0]",
                        "jax": "jax.lax.top_k(a, 40)[0]",
                        "numpy": f"np.partition(a, {n - 40})[..., {n - 40}:]",
                    },
                ),
            ]
        given = {"a": ("sorted" if size == 4 else "sorted int64", M), "b": (t, M)}
        out.append((f"searchsorted {t} 1M in 1M", numpy, given, ("read", 2.0 * size * M), each("N.searchsorted(a, b)")))
    return out


def moves() -> list[Case]:
    a, i = ("float32", 4 * M), ("index", M, 4 * M)
    square, rows_ = ("float32", 4096, 1024), ("index", 4096, 4096)
    return [
        ("cumsum 4M", 1.2, {"a": a}, ("copy", 32.0 * M), each("N.cumsum(a, 0)")),
        ("cumsum rows", 1.2, {"a": square}, ("copy", 32.0 * M), each("N.cumsum(a, 1)")),
        ("cumsum axis 0", 1.2, {"a": square}, ("copy", 32.0 * M), each("N.cumsum(a, 0)")),
        ("cumprod rows", 1.2, {"a": square}, ("copy", 32.0 * M), each("N.cumprod(a, 1)")),
        (
            "cummax rows",
            1.2,
            {"a": square},
            ("copy", 32.0 * M),
            {
                "marram": "mx.cummax(a, 1)",
                "torch": "torch.cummax(a, 1)[0]",
                "jax": "jax.lax.cummax(a, 1)",
                "numpy": "np.maximum.accumulate(a, 1)",
            },
        ),
        (
            "logcumsumexp rows",
            1.2,
            {"a": square},
            ("copy", 32.0 * M),
            {
                "marram": "mx.logcumsumexp(a, 1)",
                "torch": "torch.logcumsumexp(a, 1)",
                "jax": "jax.lax.cumlogsumexp(a, 1)",
                "numpy": "np.logaddexp.accumulate(a, 1)",
            },
        ),
        ("gather of rows", 1.2, {"a": square, "i": rows_}, ("copy", 32.0 * M), each("a[i]")),
        ("gather of elements 1M", 1.2, {"a": a, "i": i}, ("read", 8.0 * M), each("a[i]")),
        (
            "scatter-add 1M into 4M",
            1.2,
            {"a": a, "i": i, "u": ("float32", M)},
            ("copy", 40.0 * M),
            {"marram": "a.at[i].add(u)", "torch": "a.index_add(0, i, u)", "jax": "a.at[i].add(u)"},
        ),
        ("masked select 4M", 1.2, {"a": a}, ("read", 16.0 * M), each("a[a > 0]", "marram torch numpy")),
    ]


def attention() -> list[Case]:
    out: list[Case] = []
    for t, size in (("float32", 4), ("bfloat16", 2)):
        decode = {"q": (t, 1, 32, 1, 128), "k": (t, 1, 32, 4096, 128), "v": (t, 1, 32, 4096, 128)}
        prefill = {"q": (t, 1, 32, 1024, 128), "k": (t, 1, 32, 1024, 128), "v": (t, 1, 32, 1024, 128)}
        ours = "mx.fast.scaled_dot_product_attention(q, k, v, scale=0.088{})"
        theirs = "F.scaled_dot_product_attention(q, k, v, scale=0.088{})"
        flops = 4.0 * 32 * 1024**2 * 128

        def calls(a: str, b: str, ours: str = ours, theirs: str = theirs) -> dict[str, str]:
            return {"marram": ours.format(a), "torch": theirs.format(b)}

        level = {"torch": 1.0}
        out += [
            (f"decode {t}", level, decode, ("read", 2.0 * size * 32 * 4096 * 128), calls("", "")),
            (f"prefill {t}", level, prefill, ("fma", flops), calls("", "")),
            (f"prefill causal {t}", level, prefill, ("fma", flops / 2), calls(", mask='causal'", ", is_causal=True")),
            (
                f"prefill masked {t}",
                level,
                prefill | {"m": ("mask", 1024, 1024)},
                ("fma", flops),
                calls(", mask=m", ", attn_mask=m"),
            ),
        ]
    return out


def quantised() -> list[Case]:
    out: list[Case] = []
    n = 4096.0**2
    plain = {"mode='affine', group_size=64, bits=%d" % b: (f"{b} bits", b, b + 0.5) for b in (4, 2, 3, 5, 6, 8)}
    modes = {
        "mode='mxfp4'": ("mxfp4", 4, 4.25),
        "mode='nvfp4'": ("nvfp4", 4, 4.5),
        "mode='mxfp8'": ("mxfp8", 8, 8.25),
    }
    for how, (name, bits, stored) in (plain | modes).items():
        for x in (1, 32):
            given = {"x": ("float32", x, 4096), "b": ("float32", 4096, 4096)}
            limit = ("read", n * stored / 8) if x == 1 else ("fma", 2 * x * n)
            calls = {"marram": f"mx.quantized_matmul(x, *QUANTIZED(b, {how}), {how})", "torch": "x @ b.T"}
            if how in plain:
                calls["ggml"] = f"GGML(x, b, '{'Q8_0' if bits == 8 else f'Q{bits}_K'}')"
            bar: Bar = {} if x == 32 else {"limit": 0.7} if bits >= 6 else {"4 bits": 1.0}
            if name == "4 bits":
                bar = {"ggml": 1.0, "ggml* row" if x == 1 else "ggml* 32 rows": 1.0}
            out.append((f"{name}, {x} row{'s' * (x > 1)} x 4096^2", bar, given, limit, calls))
    how = "mode='affine', group_size=64, bits=4"
    given = {"x": ("bfloat16", 32, 4096), "b": ("bfloat16", 4096, 4096)}
    calls = {"marram": f"mx.quantized_matmul(x, *QUANTIZED(b, {how}), {how})", "torch": "x @ b.T"}
    out.append(("4 bits, 32 bfloat16 rows x 4096^2", {}, given, ("fma", 64 * n), calls))
    given = {"x": ("float32", 1, 1, 4096), "b": ("float32", 4, 4096, 4096), "i": ("index", 2, 4)}
    calls = {"marram": f"mx.gather_qmm(x, *QUANTIZED(b, {how}), rhs_indices=i, {how})"}
    bar = {"ggml 2 rows": 1.0, "ggml* 2 rows": 1.0}
    return [*out, ("4 bits, a row x 2 picked of 4 x 4096^2", bar, given, ("read", n * 4.5 / 4), calls)]


def convolutions() -> list[Case]:
    def conv(name: str, shape: tuple[int, ...], outputs: int, taps: int, groups: int, back: bool) -> Case:
        n = len(shape) - 2
        given = {"x": ("float32", *shape), "k": ("float32", outputs, *(taps,) * n, shape[-1] // groups)}
        flops = 2.0 * math.prod(shape[:-1]) * outputs * taps**n * (shape[-1] // groups) * (3 if back else 1)
        ours = f"mx.conv{n}d(x, k, padding={taps // 2}, groups={groups})"
        theirs = f"F.conv{n}d(LAST(x), LAST(k), padding={taps // 2}, groups={groups})"
        if back:
            ours = f"mx.grad(lambda x, k: mx.sum(mx.square({ours})), argnums=(0, 1))(x, k)"
            theirs = f"BACK(lambda x, k: {theirs.replace('LAST(x)', 'x').replace('LAST(k)', 'k')}.square().sum(), LAST(x), LAST(k))"
        return (name, {"torch": 1.0}, given, ("fma", flops), {"marram": ours, "torch": theirs})

    return [
        conv("conv2d 3x3", (8, 56, 56, 64), 64, 3, 1, False),
        conv("conv2d 3x3 and gradients", (8, 56, 56, 64), 64, 3, 1, True),
        conv("conv2d 4 groups", (8, 56, 56, 64), 64, 3, 4, False),
        conv("conv2d 4 groups and gradients", (8, 56, 56, 64), 64, 3, 4, True),
        conv("conv2d depthwise", (8, 56, 56, 128), 128, 3, 128, False),
        conv("conv2d depthwise and gradients", (8, 56, 56, 128), 128, 3, 128, True),
        conv("conv1d", (8, 1000, 256), 256, 3, 1, False),
        conv("conv1d and gradients", (8, 1000, 256), 256, 3, 1, True),
        conv("conv3d", (2, 16, 32, 32, 32), 32, 3, 1, False),
        conv("conv3d and gradients", (2, 16, 32, 32, 32), 32, 3, 1, True),
    ]


def fourier() -> list[Case]:
    def fft(name: str, shape: tuple[int, ...], f: str) -> Case:
        bar = {"torch": 1 / 1.5, "numpy": 1.0, "jax": 1.0}
        given = {"a": ("complex64" if f[0] != "r" else "float32", *shape)}
        return (name, bar, given, ("copy", 16.0 * math.prod(shape)), each(f"N.fft.{f}(a)"))

    return [
        fft("fft 2^20", (1 << 20,), "fft"),
        fft("fft2 16 x 256 x 256", (16, 256, 256), "fft2"),
        fft("rfft 2^20", (1 << 20,), "rfft"),
        fft("fft 1000003, a prime", (1000003,), "fft"),
    ]


def algebra() -> list[Case]:
    out: list[Case] = []
    for name in ("qr", "svd", "eigh", "cholesky", "solve"):
        two = {"b": ("float32", 512, 8)} if name == "solve" else {}
        given = {"a": ("definite", 512, 512)} | two
        calls = each(f"N.linalg.{name}(a{', b' if two else ''})")
        out.append((f"{name} 512", {"numpy": 1.0}, given, ("fma", 2.0 * 512**3 / 3), calls))
    for name in ("qr", "svd", "eigh", "cholesky", "solve", "inv", "det"):
        two = {"b": ("float32", 10000, 4, 1)} if name == "solve" else {}
        given = {"a": ("definite", 10000, 4, 4)} | two
        calls = each(f"N.linalg.{name}(a{', b' if two else ''})")
        out.append((f"{name} 10,000 x 4 x 4", {"numpy": 3.0}, given, ("copy", 1.28e6), calls))
    return out


def numbers() -> list[Case]:
    n = 10_000_000
    key = {"k": ("key",)}
    return [
        (
            "uniform 10M",
            2.0,
            key,
            ("copy", 4.0 * n),
            {
                "marram": f"mx.random.uniform(shape=({n},))",
                "torch": f"torch.rand({n})",
                "numpy": f"RNG.random({n}, dtype='f4')",
                "jax": f"jax.random.uniform(k, ({n},), 'float32')",
            },
        ),
        (
            "normal 10M",
            2.0,
            key,
            ("copy", 4.0 * n),
            {
                "marram": f"mx.random.normal(({n},))",
                "torch": f"torch.randn({n})",
                "numpy": f"RNG.standard_normal({n}, dtype='f4')",
                "jax": f"jax.random.normal(k, ({n},), 'float32')",
            },
        ),
        (
            "bernoulli 10M",
            2.0,
            key,
            ("copy", 1.0 * n),
            {
                "marram": f"mx.random.bernoulli(0.3, ({n},))",
                "torch": f"torch.empty({n}).bernoulli_(0.3)",
                "numpy": f"RNG.random({n}, dtype='f4') < 0.3",
                "jax": f"jax.random.bernoulli(k, 0.3, ({n},))",
            },
        ),
    ]


SUBJECTS: dict[str, Callable[[], list[Case]]] = {
    "matmul": products,
    "copies": copies,
    "reductions": reductions,
    "rows": rows,
    "order": order,
    "moves": moves,
    "attention": attention,
    "quantised": quantised,
    "convolution": convolutions,
    "fourier": fourier,
    "algebra": algebra,
    "random": numbers,
}
# The plainest call of each kind: the fastest library's speed is the limit.
LIMITS: dict[str, tuple[float, dict[str, Any], dict[str, str]]] = {
    "read": (32.0 * M, {"a": ("float32", 8 * M)}, each("N.sum(a)")),
    "copy": (
        64.0 * M,
        {"a": ("float32", 8 * M), "b": ("float32", 8 * M)},
        {"torch": "b.copy_(a)", "numpy": "np.copyto(b, a)", "marram": "mx.abs(a)"},
    ),
    "fma": (2.0 * 1024**3, {"a": ("float32", 1024, 1024), "b": ("float32", 1024, 1024)}, each("a @ b")),
}


# ---- inside a worker ---------------------------------------------------------
def values(kind: str, *shape: int) -> Any:
    import numpy as np

    rng = np.random.default_rng(len(shape))
    if kind == "index":
        return rng.integers(0, shape[1], shape[0]).astype("i8")
    if kind == "sorted":
        return np.sort(rng.standard_normal(shape, dtype="f4"))
    if kind == "sorted int64":
        return np.sort(values("int64", *shape))
    if kind == "key":
        return np.array([0, 7], "u4")
    if kind == "mask":
        return rng.random(shape) < 0.9
    if kind == "int64":
        return rng.integers(-(2**62), 2**62, shape)
    x = rng.standard_normal(shape, dtype="f4")
    if kind == "definite":
        return x @ np.swapaxes(x, -1, -2) + np.float32(shape[-1]) * np.eye(shape[-1], dtype="f4")
    return x


def plain(kind: str) -> bool:
    return kind in ("float32", "index", "sorted", "sorted int64", "mask", "int64", "definite", "key")


def space_of(peer: str) -> tuple[dict[str, Any], Callable[[str, Any], Any], Callable[[Callable], Callable]]:
    """Names for a call's text, what makes an input, what makes a call wait."""
    import numpy as np

    if peer == "marram":
        import marram.core as mx

        made: dict[tuple, Any] = {}

        def packed(b: Any, **how: Any) -> Any:
            key = (b.shape, *how.values())
            if key not in made:
                made.clear()
                made[key] = mx.quantize(b, **how)
                mx.eval(made[key])
            return made[key]

        def array(kind: str, x: Any) -> Any:
            a = mx.array(x)
            a = a if plain(kind) else a.astype(getattr(mx, kind))
            mx.eval(a)
            return a

        return {"mx": mx, "QUANTIZED": packed}, array, lambda f: lambda: mx.eval(f())
    if peer == "torch":
        import torch

        torch.set_num_threads(w.threads())
        kept: list[tuple[Any, Any]] = []

        def last(x: Any) -> Any:
            """Channels last; made once for a case."""
            for given, y in kept:
                if given is x:
                    return y
            y = x.permute(0, x.ndim - 1, *range(1, x.ndim - 1)).contiguous()
            form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
            kept.append((x, y.contiguous(memory_format=form) if form else y))
            del kept[:-2]
            return kept[-1][1]

        def back(f: Callable, *given: Any) -> Any:
            given = tuple(x.detach().requires_grad_() for x in given)
            with torch.enable_grad():
                return torch.autograd.grad(f(*given), given)

        names = {"torch": torch, "F": torch.nn.functional, "LAST": last, "BACK": back}
        torch.set_grad_enabled(False)
        return (
            names,
            lambda kind, x: torch.from_numpy(x) if plain(kind) else torch.from_numpy(x).to(getattr(torch, kind)),
            lambda f: f,
        )
    if peer == "ggml":
        import ggml

        library = ggml.Ggml(os.environ["GGML"], w.threads())
        return {"GGML": library.product}, lambda kind, x: x, lambda f: f
    if peer == "numpy":
        return {"np": np, "RNG": np.random.default_rng(1)}, lambda kind, x: x if plain(kind) else x.astype(kind), lambda f: f
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    return {"jax": jax, "jnp": jnp}, lambda kind, x: jnp.asarray(x) if plain(kind) else jnp.asarray(x).astype(kind), lambda f: f


def worker(peer: str) -> None:
    names, array, waits = space_of(peer)

    def body(case: Any) -> Any:
        given, calls = case
        if peer not in calls:
            return None
        inputs = {k: array(v[0], values(*v)) for k, v in given.items()}
        text = f"lambda {', '.join(inputs)}: {calls[peer]}"
        f = eval(text, dict(names))  # the texts are this file's
        if peer == "jax":
            f = names["jax"].jit(f)
            return lambda: names["jax"].block_until_ready(f(*inputs.values()))
        return waits(lambda: f(*inputs.values()))

    w.serve(body)


# ---- the parent ----------------------------------------------------------------
def limits_of(workers: dict[str, w.Worker], rounds: int) -> dict[str, float]:
    """Bytes, or flops, that the fastest library handles in a second."""
    out = {}
    for kind, (amount, given, calls) in LIMITS.items():
        best, _ = w.measure(workers, [given, calls], rounds)
        out[kind] = amount / min(best.values())
    return out


def decides(bar: Bar, best: dict[str, float], ours: float) -> str | None:
    """Who is the furthest ahead of where the bar wants them, of those here."""
    bars = dict.fromkeys([p for p in best if p in PEERS], bar) if isinstance(bar, float) else bar
    return min((p for p in bars if p in best), key=lambda p: best[p] / ours / bars[p], default=None)


def line(case: Case, best: dict[str, float], limit: float, lines: dict[str, float]) -> tuple[str, float | None, bool]:
    """The text, the ratio, whether it is below its bar.  `lines`: seconds of others that this one may be held against."""
    name, bar, _, _, _ = case
    ours = best.pop("marram", math.nan)
    others = best | lines | {"limit": limit}
    if "ggml" not in PEERS:
        others |= ELSEWHERE
    who = decides(bar, others, ours)
    beside = [f"{p} {t / ours:.2f}" for p, t in sorted(best.items(), key=lambda x: x[1])]
    if who is None:
        return f"{name:38}{ours * 1e3:10.3f}{'':>18}{limit * 1e3:10.3f}{'':15}  ({', '.join(beside)})", None, False
    theirs = others[who]
    wants, ratio = bar if isinstance(bar, float) else bar[who], theirs / ours
    text = f"{name:38}{ours * 1e3:10.3f}{theirs * 1e3:10.3f} {who.split('*')[0] + '*' * ('*' in who):7}"
    text += f"{limit * 1e3:10.3f}{ratio:8.2f}{wants:7.2f}"
    beside = [] if isinstance(bar, float) else [b for b in beside if b.split()[0] not in bar]
    missed = not ratio >= wants
    return text + ("  MISSED" if missed else "") + (f"  ({', '.join(beside)})" if beside else ""), ratio, missed


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--case", default="")
    ap.add_argument("--subject", choices=SUBJECTS)
    ap.add_argument("--behind", action="store_true", help="print only lines below their bar")
    ap.add_argument("--worker", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.worker:
        return worker(a.worker)
    workers = w.start(__file__, PEERS)
    limit = limits_of(workers, a.rounds)
    speeds = f"read {limit['read'] / 1e9:.1f} GB/s, copy {limit['copy'] / 1e9:.1f} GB/s, {limit['fma'] / 1e9:.0f} GFLOP/s"
    print(f"{w.threads()} threads, best of {a.rounds} rounds; limits: {speeds}")
    print(f"{'milliseconds':38}{'Marram':>10}{'beside':>18}{'limit':>10}{'ratio':>8}{'bar':>7}")
    n = missed = 0
    lines: dict[str, float] = {}
    for subject, make in SUBJECTS.items():
        if a.subject not in (None, subject):
            continue
        cases = [c for c in make() if a.case in c[0]]
        print(f"-- {subject}") if cases else None
        plain: list[float] = []
        for case in cases:
            best, _ = w.measure(workers, [case[2], case[4]], a.rounds)
            if case[0] == "4 bits, 1 row x 4096^2":
                lines |= {"4 bits": best.get("marram", math.nan)}
                lines |= {"ggml 2 rows": 2 * best["ggml"]} if "ggml" in best else {}
            text, ratio, behind = line(case, best, case[3][1] / limit[case[3][0]], lines)
            n, missed = n + 1, missed + behind
            if behind or not a.behind:
                print(text, flush=True)
            if subject == "matmul" and ratio is not None and case[0].startswith("float") and case[1] == 0.95:
                plain.append(ratio)
        if plain:
            middle = statistics.median(plain)
            n, missed = n + 1, missed + (middle < MEDIAN)
            print(f"{'median of those with bar 0.95':76}{middle:8.2f}{MEDIAN:7.2f}{'  MISSED' * (middle < MEDIAN)}")
    print(f"{n} lines, {missed} below their bar")
    for peer in workers.values():
        peer.close()


if __name__ == "__main__":
    main()
