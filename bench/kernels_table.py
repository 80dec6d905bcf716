# SPDX-License-Identifier: Apache-2.0
"""Which kernels are behind NumPy or PyTorch, which use one thread, which take memory?

    PYTHONPATH=build/python build/venv/bin/python bench/kernels_table.py [--rounds N] [--case TEXT] [--behind RATIO]

One line a case: the best time of all rounds in milliseconds, the libraries in
turns within each round; the threads that Marram used (best processor time over
best wall time); the most memory that it held beside its inputs; the factor to the
fastest peer (below 1: Marram is slower), and the same of processor time, which
other work on the machine shifts less.  With --behind only lines below that factor.
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
Case = tuple[str, Callable[..., Any], Any, Any, list[Any]]


def f(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def ints(high: int, *shape: int, dtype: str = "i4") -> np.ndarray:
    return RNG.integers(0, high, shape).astype(dtype)


def typed(x: np.ndarray) -> str:
    return {"f": "f", "i": "i", "u": "u", "b": "b", "c": "c"}[x.dtype.kind] + str(8 * x.dtype.itemsize)


def reductions() -> Iterator[Case]:
    for x in (f(4000, 1000), f(4000, 1000, dtype="f2"), f(2000, 1000, dtype="f8"), ints(100, 4000, 1000)):
        for axis in (0, 1, None):
            t = f"{typed(x)} {x.shape[0]}x{x.shape[1]} axis {axis}"
            dim = {} if axis is None else {"dim": axis}
            for name in ("sum", "max", "argmax", "prod") if x.dtype != np.float16 else ("sum", "max", "argmax"):
                th = (
                    (lambda a, n=name, d=dim: getattr(torch, n)(a, **d)) if name != "max" else (lambda a, d=dim: torch.amax(a, **d))
                )
                yield (
                    f"{name} {t}",
                    lambda a, n=name, k=axis: getattr(mx, n)(a, axis=k),
                    lambda a, n=name, k=axis: getattr(np, n)(a, axis=k),
                    th,
                    [x],
                )
            if x.dtype.kind != "f":
                continue
            for name in ("mean", "var", "std"):
                yield (
                    f"{name} {t}",
                    lambda a, n=name, k=axis: getattr(mx, n)(a, axis=k),
                    lambda a, n=name, k=axis: getattr(np, n)(a, axis=k),
                    lambda a, n=name, d=dim: getattr(torch, n)(a, **d),
                    [x],
                )
            yield (
                f"logsumexp {t}",
                lambda a, k=axis: mx.logsumexp(a, axis=k),
                None,
                lambda a, k=axis: torch.logsumexp(a, (0, 1) if k is None else k),
                [x],
            )
            if axis is not None:
                yield f"softmax {t}", lambda a, k=axis: mx.softmax(a, axis=k), None, lambda a, k=axis: torch.softmax(a, k), [x]
    x = f(1 << 22)
    yield "softmax f32 4M one row", lambda a: mx.softmax(a), None, lambda a: torch.softmax(a, 0), [x]
    yield "logsumexp f32 4M one row", lambda a: mx.logsumexp(a), None, lambda a: torch.logsumexp(a, 0), [x]
    yield "var f32 4M one row", lambda a: mx.var(a), np.var, lambda a: torch.var(a), [x]
    yield "all b8 16M", lambda a: mx.all(a), np.all, lambda a: torch.all(a), [np.ones(1 << 24, bool)]
    yield "norm f32 4M", lambda a: mx.linalg.norm(a), np.linalg.norm, lambda a: torch.linalg.norm(a), [x]
    for shape in ((4000, 1000), (8, 500_000), (500_000, 8)):
        yield (
            f"layer_norm f32 {shape[0]}x{shape[1]}",
            lambda a, w: mx.fast.layer_norm(a, w, w, 1e-5),
            None,
            lambda a, w: torch.nn.functional.layer_norm(a, w.shape, w, w),
            [f(*shape), f(shape[1])],
        )


def scans() -> Iterator[Case]:
    for x in (f(1 << 22), f(1 << 22, dtype="f2"), f(1 << 22, dtype="f8"), ints(9, 1 << 22)):
        for name in ("cumsum", "cumprod"):
            yield (
                f"{name} {typed(x)} 4M",
                lambda a, n=name: getattr(mx, n)(a),
                lambda a, n=name: getattr(np, n)(a, dtype=a.dtype),
                lambda a, n=name: getattr(torch, n)(a, 0, dtype=a.dtype),
                [x],
            )
    for axis in (0, 1):
        yield (
            f"cumsum f32 2048x2048 axis {axis}",
            lambda a, k=axis: mx.cumsum(a, axis=k),
            lambda a, k=axis: np.cumsum(a, k),
            lambda a, k=axis: torch.cumsum(a, k),
            [f(2048, 2048)],
        )
        yield (
            f"cummax f32 2048x2048 axis {axis}",
            lambda a, k=axis: mx.cummax(a, axis=k),
            lambda a, k=axis: np.maximum.accumulate(a, k),
            lambda a, k=axis: torch.cummax(a, k),
            [f(2048, 2048)],
        )
        yield (
            f"logcumsumexp f32 2048x2048 axis {axis}",
            lambda a, k=axis: mx.logcumsumexp(a, axis=k),
            None,
            lambda a, k=axis: torch.logcumsumexp(a, k),
            [f(2048, 2048)],
        )
    yield "logcumsumexp f32 4M", lambda a: mx.logcumsumexp(a), None, lambda a: torch.logcumsumexp(a, 0), [f(1 << 22)]


def order() -> Iterator[Case]:
    for x in (
        f(1024, 4096),
        f(512, 4096, dtype="f8"),
        ints(1 << 30, 1024, 4096),
        ints(1 << 40, 512, 4096, dtype="i8"),
        f(1024, 4096, dtype="f2"),
        ints(200, 1024, 4096, dtype="u1"),
    ):
        t = f"{typed(x)} {x.shape[0]}x4096"
        yield f"sort {t}", lambda a: mx.sort(a), np.sort, lambda a: torch.sort(a), [x]
        yield f"argsort {t}", lambda a: mx.argsort(a), np.argsort, lambda a: torch.argsort(a), [x]
        yield (
            f"sort {t} flat",
            lambda a: mx.sort(a, axis=None),
            lambda a: np.sort(a, axis=None),
            lambda a: torch.sort(a.reshape(-1)),
            [x],
        )
    x = f(1024, 4096)
    yield "sort f32 1024x4096 axis 0", lambda a: mx.sort(a, axis=0), lambda a: np.sort(a, 0), lambda a: torch.sort(a, 0), [x]
    yield "argsort f32 4M flat", lambda a: mx.argsort(a), np.argsort, lambda a: torch.argsort(a), [f(1 << 22)]
    for n, shape in (("rows", (1024, 4096)), ("flat", (1 << 22,))):
        k = shape[-1] // 2
        yield f"partition f32 4M {n}", lambda a, k=k: mx.partition(a, k), lambda a, k=k: np.partition(a, k), None, [f(*shape)]
        yield (
            f"argpartition f32 4M {n}",
            lambda a, k=k: mx.argpartition(a, k),
            lambda a, k=k: np.argpartition(a, k),
            None,
            [f(*shape)],
        )
        yield (
            f"topk 40 f32 4M {n}",
            lambda a: mx.topk(a, 40),
            lambda a: np.partition(a, -40)[..., -40:],
            lambda a: torch.topk(a, 40),
            [f(*shape)],
        )
    yield "median f32 4M flat", lambda a: mx.median(a), np.median, lambda a: torch.median(a), [f(1 << 22)]
    yield (
        "searchsorted f32 1M in 1M",
        lambda a, v: mx.searchsorted(a, v),
        np.searchsorted,
        lambda a, v: torch.searchsorted(a, v),
        [np.sort(f(1 << 20)), f(1 << 20)],
    )
    yield "unique i32 10M", lambda a: mx.unique(a), np.unique, lambda a: torch.unique(a), [ints(1000, 10_000_000)]
    yield "unique i32 1M wide", lambda a: mx.unique(a), np.unique, lambda a: torch.unique(a), [ints(1 << 30, 1 << 20)]
    yield (
        "isin i32 1M in 1000",
        lambda a, b: mx.isin(a, b),
        np.isin,
        lambda a, b: torch.isin(a, b),
        [ints(1 << 20, 1 << 20), ints(1 << 20, 1000)],
    )


def indexing() -> Iterator[Case]:
    n = 1 << 20
    x, i = f(1 << 22), ints(1 << 22, n, dtype="i8")
    yield "take f32 1M of 4M", lambda a, i: mx.take(a, i), np.take, lambda a, i: torch.take(a, i), [x, i]
    yield "a[i] f32 1M of 4M, i32", lambda a, i: a[i], lambda a, i: a[i], lambda a, i: a[i], [x, i.astype("i4")]
    yield (
        "a[i, j] f32 1M",
        lambda a, i, j: a[i, j],
        lambda a, i, j: a[i, j],
        lambda a, i, j: a[i, j],
        [f(2048, 2048), ints(2048, n, dtype="i8"), ints(2048, n, dtype="i8")],
    )
    yield (
        "rows f32 100k of 128",
        lambda a, i: a[i],
        lambda a, i: a[i],
        lambda a, i: a[i],
        [f(30000, 128), ints(30000, 100_000, dtype="i8")],
    )
    yield (
        "take axis 1 f32 2048x2048",
        lambda a, i: mx.take(a, i, axis=1),
        lambda a, i: np.take(a, i, 1),
        lambda a, i: torch.index_select(a, 1, i),
        [f(2048, 2048), ints(2048, 2048, dtype="i8")],
    )
    for axis in (0, 1):
        yield (
            f"take_along_axis {axis} f32 4M",
            lambda a, i, k=axis: mx.take_along_axis(a, i, k),
            lambda a, i, k=axis: np.take_along_axis(a, i, k),
            lambda a, i, k=axis: torch.gather(a, k, i),
            [f(2048, 2048), ints(2048, 2048, 2048, dtype="i8")],
        )
    yield "scatter-add f32 1M into 4M", lambda a, i, u: a.at[i].add(u), None, lambda a, i, u: a.index_add(0, i, u), [x, i, f(n)]
    yield (
        "scatter-add f32 1M into 1000",
        lambda a, i, u: a.at[i].add(u),
        None,
        lambda a, i, u: a.index_add(0, i, u),
        [f(1000), ints(1000, n, dtype="i8"), f(n)],
    )
    yield (
        "scatter-add rows 100k of 128",
        lambda a, i, u: a.at[i].add(u),
        None,
        lambda a, i, u: a.index_add(0, i, u),
        [f(30000, 128), ints(30000, 100_000, dtype="i8"), f(100_000, 128)],
    )
    yield (
        "put rows 100k of 128",
        lambda a, i, u: mx.array(a).at[i].maximum(u),
        None,
        lambda a, i, u: a.index_reduce(0, i, u, "amax"),
        [f(30000, 128), ints(30000, 100_000, dtype="i8"), f(100_000, 128)],
    )
    m = RNG.random(1 << 22) > 0.5
    yield "a[mask] f32 4M", lambda a, m: a[m], lambda a, m: a[m], lambda a, m: a[m], [x, m]
    yield "nonzero b8 4M", lambda m: mx.nonzero(m), np.nonzero, lambda m: torch.nonzero(m), [m]
    yield (
        "where f32 4M",
        lambda m, a: mx.where(m, a, 0),
        lambda m, a: np.where(m, a, np.float32(0)),
        lambda m, a: torch.where(m, a, 0.0),
        [m, x],
    )


def moves() -> Iterator[Case]:
    for x in (f(2048, 4096), f(2048, 4096, dtype="f2"), f(2048, 2048, dtype="f8"), ints(9, 4096, 4096, dtype="u1")):
        t = typed(x)
        yield (
            f"concatenate axis 0 {t}",
            lambda a: mx.concatenate([a, a], 0),
            lambda a: np.concatenate([a, a], 0),
            lambda a: torch.cat([a, a], 0),
            [x],
        )
        yield (
            f"concatenate axis 1 {t}",
            lambda a: mx.concatenate([a, a], 1),
            lambda a: np.concatenate([a, a], 1),
            lambda a: torch.cat([a, a], 1),
            [x],
        )
        yield (
            f"transposed copy {t}",
            lambda a: mx.contiguous(a.T),
            lambda a: np.ascontiguousarray(a.T),
            lambda a: a.T.contiguous(),
            [x],
        )
        yield f"roll axis 1 {t}", lambda a: mx.roll(a, 100, 1), lambda a: np.roll(a, 100, 1), lambda a: torch.roll(a, 100, 1), [x]
        yield (
            f"flip axis 1 {t}",
            lambda a: mx.contiguous(a[:, ::-1]),
            lambda a: np.ascontiguousarray(a[:, ::-1]),
            lambda a: torch.flip(a, (1,)),
            [x],
        )
    x = f(2048, 2048)
    yield (
        "stack axis -1 f32",
        lambda a: mx.stack([a, a], -1),
        lambda a: np.stack([a, a], -1),
        lambda a: torch.stack([a, a], -1),
        [x],
    )
    yield (
        "concatenate axis 1 of 8 narrow f32",
        lambda a: mx.concatenate([a] * 8, 1),
        lambda a: np.concatenate([a] * 8, 1),
        lambda a: torch.cat([a] * 8, 1),
        [f(100_000, 8)],
    )
    yield "pad f32", lambda a: mx.pad(a, 3), lambda a: np.pad(a, 3), lambda a: torch.nn.functional.pad(a, (3, 3, 3, 3)), [x]
    yield "tile 2x2 f32", lambda a: mx.tile(a, (2, 2)), lambda a: np.tile(a, (2, 2)), lambda a: torch.tile(a, (2, 2)), [x]
    yield (
        "repeat 4 axis 1 f32",
        lambda a: mx.repeat(a, 4, 1),
        lambda a: np.repeat(a, 4, 1),
        lambda a: torch.repeat_interleave(a, 4, 1),
        [x],
    )
    yield (
        "repeat 4 axis 0 f32",
        lambda a: mx.repeat(a, 4, 0),
        lambda a: np.repeat(a, 4, 0),
        lambda a: torch.repeat_interleave(a, 4, 0),
        [x],
    )
    yield (
        "permute 0213 f32",
        lambda a: mx.contiguous(a.transpose(0, 2, 1, 3)),
        lambda a: np.ascontiguousarray(a.transpose(0, 2, 1, 3)),
        lambda a: a.permute(0, 2, 1, 3).contiguous(),
        [f(8, 512, 16, 64)],
    )
    yield (
        "permute 0231 f32",
        lambda a: mx.contiguous(a.transpose(0, 2, 3, 1)),
        lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1)),
        lambda a: a.permute(0, 2, 3, 1).contiguous(),
        [f(16, 64, 64, 64)],
    )
    for a, b in (("f4", "f2"), ("f2", "f4"), ("f4", "i4"), ("i4", "f4"), ("f8", "f4"), ("u1", "f4"), ("i8", "i4")):
        t = {"f4": "float32", "f2": "float16", "i4": "int32", "f8": "float64", "u1": "uint8", "i8": "int64"}
        yield (
            f"astype {a} {b} 8M",
            lambda x, t=t[b]: x.astype(getattr(mx, t)),
            lambda x, b=b: x.astype(b),
            lambda x, t=t[b]: x.to(getattr(torch, t)),
            [ints(100, 1 << 23).astype(a)],
        )
    yield (
        "arange f32 8M",
        lambda: mx.arange(1 << 23, dtype=mx.float32),
        lambda: np.arange(1 << 23, dtype="f4"),
        lambda: torch.arange(1 << 23, dtype=torch.float32),
        [],
    )
    yield "tril f32", lambda a: mx.tril(a), np.tril, lambda a: torch.tril(a), [x]
    yield "trace f32", lambda a: mx.trace(a), np.trace, lambda a: torch.trace(a), [x]
    yield (
        "meshgrid f32",
        lambda a: mx.meshgrid(a, a),
        lambda a: [np.array(x) for x in np.meshgrid(a, a)],
        lambda a: [x.contiguous() for x in torch.meshgrid(a, a, indexing="ij")],
        [f(2048)],
    )


def products() -> Iterator[Case]:
    for t in ("f4", "f8", "c8", "f2"):
        yield f"matmul {t} 512", lambda a: a @ a, (lambda a: a @ a) if t != "f2" else None, lambda a: a @ a, [f(512, 512).astype(t)]
        yield (
            f"matmul {t} 512 a^T a",
            lambda a: a.T @ a,
            (lambda a: a.T @ a) if t != "f2" else None,
            lambda a: a.T @ a,
            [f(512, 512).astype(t)],
        )
        yield (
            f"matrix x vector {t} 4096",
            lambda a, x: a @ x,
            (lambda a, x: a @ x) if t != "f2" else None,
            lambda a, x: a @ x,
            [f(4096, 4096).astype(t), f(4096).astype(t)],
        )
        yield (
            f"vector x matrix {t} 4096",
            lambda a, x: x @ a,
            (lambda a, x: x @ a) if t != "f2" else None,
            lambda a, x: x @ a,
            [f(4096, 4096).astype(t), f(4096).astype(t)],
        )
    for t in ("f4", "f8", "f2", "c8"):
        for n in (4, 8, 16, 32):
            b = (1 << 22) // (n * n) // (1 if n < 32 else 2)
            yield (
                f"batched {b} of {n}x{n} {t}",
                lambda a: a @ a,
                None if t == "f2" else (lambda a: a @ a),
                lambda a: a @ a,
                [f(b, n, n).astype(t)],
            )
    yield "outer f32 2048", lambda a: mx.outer(a, a), lambda a: np.outer(a, a), lambda a: torch.outer(a, a), [f(2048)]
    yield "kron f32 64x64", lambda a: mx.kron(a, a), lambda a: np.kron(a, a), lambda a: torch.kron(a, a), [f(64, 64)]
    yield "inner f32 4M", lambda a: mx.inner(a, a), lambda a: np.inner(a, a), lambda a: torch.inner(a, a), [f(1 << 22)]
    yield (
        "einsum bik,bjk->bij",
        lambda a: mx.einsum("bik,bjk->bij", a, a),
        None,
        lambda a: torch.einsum("bik,bjk->bij", a, a),
        [f(64, 128, 128)],
    )
    yield (
        "einsum bthd,bshd->bhts",
        lambda a: mx.einsum("bthd,bshd->bhts", a, a),
        None,
        lambda a: torch.einsum("bthd,bshd->bhts", a, a),
        [f(4, 256, 8, 64)],
    )
    yield (
        "einsum ij,jk,kl->il",
        lambda a: mx.einsum("ij,jk,kl->il", a, a, a),
        None,
        lambda a: torch.einsum("ij,jk,kl->il", a, a, a),
        [f(512, 512)],
    )
    yield (
        "einsum ij->j",
        lambda a: mx.einsum("ij->j", a),
        lambda a: np.einsum("ij->j", a),
        lambda a: torch.einsum("ij->j", a),
        [f(2048, 2048)],
    )
    yield (
        "tensordot f32",
        lambda a, b: mx.tensordot(a, b, 2),
        lambda a, b: np.tensordot(a, b, 2),
        lambda a, b: torch.tensordot(a, b, 2),
        [f(64, 32, 64), f(32, 64, 128)],
    )


def convolutions() -> Iterator[Case]:
    """x channels last; torch gets the same numbers channels first in channels-last memory."""
    for name, x, w, kw in (
        ("conv2d 3x3 64", f(8, 56, 56, 64), f(64, 3, 3, 64), {"padding": 1}),
        ("conv2d 3x3 3->64 s2", f(8, 224, 224, 3), f(64, 7, 7, 3), {"padding": 3, "stride": 2}),
        ("conv2d 1x1 256", f(8, 28, 28, 256), f(256, 1, 1, 256), {}),
        ("conv2d depthwise 3x3", f(8, 56, 56, 128), f(128, 3, 3, 1), {"padding": 1, "groups": 128}),
        ("conv2d groups 8", f(8, 56, 56, 128), f(128, 3, 3, 16), {"padding": 1, "groups": 8}),
        ("conv2d dilation 8", f(8, 56, 56, 64), f(64, 3, 3, 64), {"padding": 8, "dilation": 8}),
        ("conv1d 9", f(8, 4000, 64), f(64, 9, 64), {"padding": 4}),
        ("conv1d depthwise 31", f(8, 4000, 256), f(256, 31, 1), {"padding": 15, "groups": 256}),
        ("conv3d 3x3x3", f(2, 16, 32, 32, 32), f(32, 3, 3, 3, 32), {"padding": 1}),
    ):
        n = x.ndim - 2
        ours, theirs = getattr(mx, f"conv{n}d"), None if torch is None else getattr(torch.nn.functional, f"conv{n}d")

        def first(a: Any) -> Any:
            return a.movedim(-1, 1)

        yield name, lambda x, w, g=ours, k=kw: g(x, w, **k), None, lambda x, w, g=theirs, k=kw: g(first(x), first(w), **k), [x, w]

        def back(x: Any, w: Any, g: Any = ours, k: Any = kw) -> Any:
            return mx.grad(lambda x, w: g(x, w, **k).sum(), argnums=(0, 1))(x, w)

        def torch_back(x: Any, w: Any, g: Any = theirs, k: Any = kw) -> Any:
            x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
            g(first(x), first(w), **k).sum().backward()

        yield name + " gradients", back, None, torch_back, [x, w]


def attention() -> Iterator[Case]:
    for name, lq, lk, heads, kv, causal in (
        ("decode", 1, 4096, 32, 32, False),
        ("decode grouped", 1, 4096, 32, 8, False),
        ("prefill", 1024, 1024, 32, 32, False),
        ("prefill causal", 1024, 1024, 32, 32, True),
    ):
        given = [f(1, heads, lq, 128), f(1, kv, lk, 128), f(1, kv, lk, 128)]
        yield (
            f"attention {name} f32",
            lambda q, k, v, c=causal: mx.fast.scaled_dot_product_attention(q, k, v, scale=0.088, mask="causal" if c else None),
            None,
            lambda q, k, v, c=causal, g=heads != kv: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=c, scale=0.088, enable_gqa=g
            ),
            given,
        )


def numbers() -> Iterator[Case]:
    n = 10_000_000
    rng = np.random.default_rng(1)
    yield "uniform f32 10M", lambda: mx.random.uniform(shape=(n,)), lambda: rng.random(n, dtype="f4"), lambda: torch.rand(n), []
    yield (
        "normal f32 10M",
        lambda: mx.random.normal(shape=(n,)),
        lambda: rng.standard_normal(n, dtype="f4"),
        lambda: torch.randn(n),
        [],
    )
    yield (
        "bernoulli 10M",
        lambda: mx.random.bernoulli(0.3, shape=(n,)),
        lambda: rng.random(n, dtype="f4") < 0.3,
        lambda: torch.rand(n) < 0.3,
        [],
    )
    yield (
        "randint i32 10M",
        lambda: mx.random.randint(0, 1000, shape=(n,)),
        lambda: rng.integers(0, 1000, n, dtype="i4"),
        lambda: torch.randint(0, 1000, (n,), dtype=torch.int32),
        [],
    )
    yield (
        "permutation 1M",
        lambda: mx.random.permutation(1 << 20),
        lambda: rng.permutation(1 << 20),
        lambda: torch.randperm(1 << 20),
        [],
    )
    yield (
        "categorical 4096x1000",
        lambda a: mx.random.categorical(a),
        None,
        lambda a: torch.multinomial(torch.softmax(a, -1), 1),
        [f(4096, 1000)],
    )
    yield (
        "truncated_normal 1M",
        lambda: mx.random.truncated_normal(-1.0, 1.0, shape=(1 << 20,)),
        None,
        lambda: torch.nn.init.trunc_normal_(torch.empty(1 << 20), a=-1, b=1),
        [],
    )


FAMILIES = [reductions, scans, order, indexing, moves, products, convolutions, attention, numbers]


def calls(case: Case) -> dict[str, Callable[[], Any]]:
    _, ours, numpy, theirs, given = case
    xs = [mx.array(x, dtype=mx.float64) if x.dtype == np.float64 else mx.array(x) for x in given]
    mx.eval(xs)
    out = {"marram": lambda: mx.eval(ours(*xs))}
    if numpy is not None:
        out["numpy"] = lambda: numpy(*given)
    if torch is not None and theirs is not None:
        ts = [torch.from_numpy(np.ascontiguousarray(x)) for x in given]
        out["torch"] = lambda: theirs(*ts)
    return out


def measured(functions: dict[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Best wall and best processor seconds of each."""
    for name in list(functions):
        try:
            functions[name]()
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as e:
            if name == "marram":
                raise
            print(f"# {name}: {str(e).splitlines()[0][:80]}")
            del functions[name]
    best = dict.fromkeys(functions, float("inf"))
    busy = dict.fromkeys(functions, float("inf"))
    start = time.perf_counter()
    for turn in range(rounds):
        for name, g in functions.items():
            t, p = time.perf_counter(), time.process_time()
            g()
            t, p = time.perf_counter() - t, time.process_time() - p
            best[name] = min(best[name], t)
            busy[name] = min(busy[name], p)
        if turn > 2 and time.perf_counter() - start > 4.0:
            break
    return best, busy


def spare_bytes(g: Callable[[], Any]) -> int:
    g()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    g()
    return mx.get_peak_memory() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--case", default="")
    parser.add_argument("--family", default="", help=", ".join(f.__name__ for f in FAMILIES))
    parser.add_argument("--behind", type=float, default=float("inf"))
    options = parser.parse_args()
    print(f"{'case':36}{'marram':>9}{'numpy':>9}{'torch':>9}  ms {'threads':>8}{'MB':>7}{'factor':>8}{'work':>8}")
    for case in (c for family in FAMILIES if options.family in family.__name__ for c in family()):
        if options.case not in case[0]:
            continue
        functions = calls(case)
        best, busy = measured(functions, options.rounds)
        factor = min((v for k, v in best.items() if k != "marram"), default=float("nan")) / best["marram"]
        work = min((v for k, v in busy.items() if k != "marram"), default=float("nan")) / busy["marram"]
        if factor >= options.behind:
            continue
        times = "".join(f"{1e3 * best[k]:9.2f}" if k in best else f"{'-':>9}" for k in ("marram", "numpy", "torch"))
        spare = spare_bytes(functions["marram"]) / 1e6
        threads = busy["marram"] / best["marram"]
        print(f"{case[0]:36}{times}     {threads:8.1f}{spare:7.0f}{factor:8.2f}{work:8.2f}", flush=True)


if __name__ == "__main__":
    main()
