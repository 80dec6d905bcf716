# SPDX-License-Identifier: Apache-2.0
"""How long is a training step, eager and compiled, beside PyTorch and JAX?

    PYTHONPATH=build/python build/venv/bin/python bench/training.py [--rounds N] [--case TEXT] [--peer NAME ...]

Two steps of plain functions: a perceptron (784-1024-1024-10, 256 rows, Adam)
and a transformer (4 layers of 256, 8 heads, 8 x 128 tokens of 1000, AdamW).
Each peer is a process of its own with the same numbers to start from; the
peers take turns and the best step counts.  What a peer tells before it is
timed are the losses of its first six steps, which have to agree.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable

import worker as w

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 1000, 256, 8, 4, 128, 8
RATE, DECAY, B1, B2, EPS = 1e-3, 0.01, 0.9, 0.999, 1e-8
STEPS = 6
PEERS = ("marram", "torch", "jax")
CASES = ("mlp eager", "mlp compiled", "transformer eager", "transformer compiled")
TOLERANCE = 2e-2


# ---- what all peers compute --------------------------------------------------
def draw(rng, *shape: int):
    return (rng.standard_normal(shape) / math.sqrt(shape[-1])).astype("float32")


def mlp_start() -> tuple:
    import numpy as np

    rng, widths = np.random.default_rng(11), (784, 1024, 1024, 10)
    p = {}
    for i, (n, m) in enumerate(zip(widths, widths[1:], strict=False)):
        p[f"w{i}"], p[f"b{i}"] = draw(rng, m, n), np.zeros(m, "float32")
    x = rng.standard_normal((256, 784)).astype("float32")
    return p, x, rng.integers(0, 10, 256).astype("int32")


def transformer_start() -> tuple:
    import numpy as np

    rng, d = np.random.default_rng(12), WIDTH
    zeros, ones = (lambda n: np.zeros(n, "float32")), (lambda n: np.ones(n, "float32"))
    p = {"emb": draw(rng, VOCABULARY, d), "pos": draw(rng, LENGTH, d), "out": draw(rng, VOCABULARY, d),
         "g": ones(d), "b": zeros(d)}
    for i in range(LAYERS):
        p |= {f"g1_{i}": ones(d), f"b1_{i}": zeros(d), f"qkv_{i}": draw(rng, 3 * d, d),
              f"proj_{i}": draw(rng, d, d), f"g2_{i}": ones(d), f"b2_{i}": zeros(d), f"up_{i}": draw(rng, 4 * d, d),
              f"ub_{i}": zeros(4 * d), f"down_{i}": draw(rng, d, 4 * d), f"db_{i}": zeros(d)}
    tokens = rng.integers(0, VOCABULARY, (2, BATCH, LENGTH)).astype("int32")
    return p, tokens[0], tokens[1]


def mlp(f, p: dict, x, y):
    for i in range(3):
        x = x @ p[f"w{i}"].T + p[f"b{i}"]
        if i < 2:
            x = f.relu(x)
    return f.cross_entropy(x, y)


def transformer(f, p: dict, tokens, y):
    n, head = BATCH * LENGTH, WIDTH // HEADS
    x = f.rows(p["emb"], tokens) + p["pos"]
    for i in range(LAYERS):
        h = f.norm(x, p[f"g1_{i}"], p[f"b1_{i}"]) @ p[f"qkv_{i}"].T
        h = h.reshape(BATCH, LENGTH, 3, HEADS, head)
        a = f.attention(h[:, :, 0], h[:, :, 1], h[:, :, 2]).reshape(BATCH, LENGTH, WIDTH)
        x = x + a @ p[f"proj_{i}"].T
        h = f.gelu(f.norm(x, p[f"g2_{i}"], p[f"b2_{i}"]) @ p[f"up_{i}"].T + p[f"ub_{i}"])
        x = x + h @ p[f"down_{i}"].T + p[f"db_{i}"]
    x = f.norm(x, p["g"], p["b"]) @ p["out"].T
    return f.cross_entropy(x.reshape(n, VOCABULARY), y.reshape(n))


def adam(sqrt: Callable, p, g, m, v, step, decay: float) -> tuple:
    m = B1 * m + (1 - B1) * g
    v = B2 * v + (1 - B2) * (g * g)
    if decay:
        p = p * (1 - RATE * decay)
    rate, scale = RATE / (1 - B1**step), sqrt(1 / (1 - B2**step))
    return p - rate * m / (sqrt(v) * scale + EPS), m, v


# ---- the peers' words ----------------------------------------------------------
class Marram:
    def __init__(self) -> None:
        import marram.core as mx

        self.mx = mx

    def relu(self, x):
        return self.mx.maximum(x, 0)

    def gelu(self, x):
        return x * (1 + self.mx.erf(x / math.sqrt(2))) / 2

    def norm(self, x, g, b):
        return self.mx.fast.layer_norm(x, g, b, 1e-5)

    def attention(self, q, k, v):
        q, k, v = (t.transpose(0, 2, 1, 3) for t in (q, k, v))
        y = self.mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask="causal")
        return y.transpose(0, 2, 1, 3)

    def cross_entropy(self, x, y):
        score = self.mx.take_along_axis(x, self.mx.expand_dims(y, -1), -1).squeeze(-1)
        return self.mx.mean(self.mx.logsumexp(x, axis=-1) - score)

    def rows(self, table, i):
        return table[i]

    def step(self, loss: Callable, p: dict, x, y, decay: float, compiled: bool) -> Callable:
        mx = self.mx
        p, x, y = {k: mx.array(a) for k, a in p.items()}, mx.array(x), mx.array(y)
        s = {"p": p, "m": {k: mx.zeros_like(a) for k, a in p.items()},
             "v": {k: mx.zeros_like(a) for k, a in p.items()}, "n": mx.array(0.0)}
        slope = mx.value_and_grad(lambda p, x, y: loss(self, p, x, y))
        mx.eval(s)

        def update(x, y):
            value, g = slope(s["p"], x, y)
            n = s["n"] = s["n"] + 1
            new = {k: adam(mx.sqrt, a, g[k], s["m"][k], s["v"][k], n, decay) for k, a in s["p"].items()}
            for i, part in enumerate("pmv"):
                s[part] = {k: t[i] for k, t in new.items()}
            return value

        call = mx.compile(update, inputs=[s], outputs=[s]) if compiled else update

        def fn():
            value = call(x, y)
            mx.eval(value, s)
            return value

        return fn


class Torch:
    def __init__(self) -> None:
        import torch

        torch.set_num_threads(w.threads())
        self.torch, f = torch, torch.nn.functional
        self.relu, self.gelu, self.cross_entropy = f.relu, f.gelu, f.cross_entropy
        self.f = f

    def norm(self, x, g, b):
        return self.f.layer_norm(x, g.shape, g, b, 1e-5)

    def attention(self, q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return self.f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    def rows(self, table, i):
        return self.f.embedding(i, table)

    def step(self, loss: Callable, p: dict, x, y, decay: float, compiled: bool) -> Callable:
        t = self.torch
        p = {k: t.from_numpy(a).requires_grad_() for k, a in p.items()}
        x, y = t.from_numpy(x), t.from_numpy(y).long()
        if decay:
            o = t.optim.AdamW(p.values(), RATE, (B1, B2), EPS, weight_decay=decay)
        else:
            o = t.optim.Adam(p.values(), RATE, (B1, B2), EPS)
        value = lambda x, y: loss(self, p, x, y)  # noqa: E731
        update = o.step
        if compiled:
            value, update = t.compile(value, dynamic=False), t.compile(o.step)

        def fn():
            o.zero_grad()
            v = value(x, y)
            v.backward()
            update()
            return v

        return fn


class Jax:
    def __init__(self) -> None:
        import jax

        self.jax, self.jnp = jax, jax.numpy
        self.relu = jax.nn.relu

    def gelu(self, x):
        return self.jax.nn.gelu(x, approximate=False)

    def norm(self, x, g, b):
        c = x - x.mean(-1, keepdims=True)
        return c * self.jax.lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5) * g + b

    def attention(self, q, k, v):
        return self.jax.nn.dot_product_attention(q, k, v, is_causal=True)

    def cross_entropy(self, x, y):
        score = self.jnp.take_along_axis(x, y[:, None], 1)[:, 0]
        return (self.jax.nn.logsumexp(x, -1) - score).mean()

    def rows(self, table, i):
        return table[i]

    def step(self, loss: Callable, p: dict, x, y, decay: float, compiled: bool) -> Callable | None:
        jax, jnp = self.jax, self.jnp
        if not compiled:
            return None
        p, x, y = jax.tree.map(jnp.asarray, (p, x, y))
        zeros = lambda: jax.tree.map(jnp.zeros_like, p)  # noqa: E731

        def update(p, m, v, n, x, y):
            value, g = jax.value_and_grad(lambda p: loss(self, p, x, y))(p)
            n = n + 1
            new = {k: adam(jnp.sqrt, a, g[k], m[k], v[k], n, decay) for k, a in p.items()}
            return value, *({k: t[i] for k, t in new.items()} for i in range(3)), n

        call = jax.jit(update, donate_argnums=(0, 1, 2, 3))
        s = [p, zeros(), zeros(), jnp.zeros(())]

        def fn():
            value, *s[:] = call(*s, x, y)
            jax.block_until_ready((value, s))
            return value

        return fn


def body(peer: str, case: str) -> tuple:
    model, how = case.split()
    start, loss, decay = {"mlp": (mlp_start, mlp, 0.0), "transformer": (transformer_start, transformer, DECAY)}[model]
    words = {"marram": Marram, "torch": Torch, "jax": Jax}[peer]()
    try:
        fn = words.step(loss, *start(), decay, how == "compiled")
        if fn is None:
            return None, None
        return fn, [float(fn()) for _ in range(STEPS)]
    except Exception as e:  # a peer's compiler may want what this machine lacks
        print(type(e).__name__, e, file=sys.stderr)
        return None, None


# ---- the table ---------------------------------------------------------------
def disagreement(told: dict) -> str:
    first = next(iter(told.values()))
    worst = max(abs(a - b) / (abs(a) + 1e-3) for t in told.values() for a, b in zip(first, t, strict=True))
    return "" if worst <= TOLERANCE else f"  LOSSES DIFFER by {worst:.2g}"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--case", default="")
    p.add_argument("--peer", action="append", choices=PEERS)
    p.add_argument("--worker")
    args = p.parse_args()
    if args.worker:
        w.serve(lambda case: body(args.worker, case), 0.2)
        return
    workers = w.start(__file__, tuple(args.peer or PEERS))
    print(f"{'ms a step':24}" + "".join(f"{q:>9}" for q in workers))
    for case in CASES:
        if args.case not in case:
            continue
        best, told = w.measure(workers, case, args.rounds)
        print(f"{case:24}" + "".join(f"{best[q] * 1e3:9.2f}" if q in best else f"{'-':>9}" for q in workers)
              + disagreement({q: t for q, t in told.items() if t}), flush=True)
    for q in workers.values():
        q.close()


if __name__ == "__main__":
    main()
