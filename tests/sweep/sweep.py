# SPDX-License-Identifier: Apache-2.0
"""Runs every operator of api/ through every transform, dtype and layout.

README.md says what a sample is and what is checked.  Nothing here names an
operator: a new record is swept as soon as it stands in the table.
"""

from __future__ import annotations

import itertools
import tomllib
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import marram.core as mx
import numpy as np
import oracles

ROOT = Path(__file__).resolve().parents[2]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
INTEGERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
DTYPES = ["bool_", *INTEGERS, *FLOATS, *COMPLEX]
# relative to the largest magnitude of the right result
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-5, "float64": 1e-11, "complex64": 3e-5, "complex128": 1e-11}
REFUSALS = (ValueError, TypeError, IndexError, RuntimeError, NotImplementedError)


@dataclass
class Input:
    """One array that a sample asks for."""

    kind: str  # T: numbers, I: indices, B: truths, K: key
    shape: tuple[int, ...]
    lo: float
    hi: float
    grad: bool


class Source:
    """The functions that a sample calls for its arrays.

    Without `given` it records what is wanted; with it, it hands those out.
    """

    def __init__(self, given: list[Any] | None = None, dtype: str = "float32") -> None:
        self.given = given
        self.dtype = dtype
        self.wanted: list[Input] = []

    def take(self, want: Input) -> Any:
        self.wanted.append(want)
        if self.given is None:
            return to_mx(draw(want, self.dtype, len(self.wanted)), want, self.dtype)
        return self.given[len(self.wanted) - 1]

    def T(self, *shape: int, lo: float = -2.0, hi: float = 2.0, grad: bool = True) -> Any:
        return self.take(Input("T", shape, lo, hi, grad))

    def I(self, *shape: int, n: int) -> Any:  # noqa: E743, N802
        return self.take(Input("I", shape, -n, n, False))

    def B(self, *shape: int) -> Any:
        return self.take(Input("B", shape, 0, 1, False))

    def K(self) -> Any:
        return self.take(Input("K", (2,), 0, 0, False))


@dataclass
class Sample:
    text: str
    inputs: list[Input] = field(default_factory=list)

    def evaluate(self, f: Callable[..., Any] | None, xp: Any, s: Source) -> Any:
        return eval(self.text, {"f": f, "mx": xp, "T": s.T, "I": s.I, "B": s.B, "K": s.K})

    def run(self, f: Callable[..., Any] | None, xp: Any, given: list[Any]) -> Any:
        return self.evaluate(f, xp, Source(given))


@dataclass
class Operator:
    name: str
    module: str
    record: dict[str, Any]
    samples: list[Sample]

    @property
    def title(self) -> str:
        return f"{self.module.removeprefix('core.')}.{self.name}" if self.module != "core" else self.name

    @property
    def function(self) -> Callable[..., Any] | None:
        m = mx
        for part in self.module.split(".")[1:]:
            m = getattr(m, part)
        return getattr(m, self.name, None)


def default_samples(args: list[str]) -> list[str]:
    """Records whose arguments are arrays alone."""
    kinds = [a.split(":")[1].split("=")[0].strip() for a in args if ":" in a]
    defaults = ["=" in a for a in args if ":" in a]
    need = [k for k, d in zip(kinds, defaults, strict=True) if not d]
    if any(k not in ("array", "arraylike") for k in need) or not need:
        return []
    if len(need) == 1:
        return ["f(T(3, 4))", "f(T())"]
    if len(need) == 2:
        return ["f(T(3, 4), T(3, 4))", "f(T(3, 1), T(4))", "f(T(), T(2, 3))"]
    return []


def operators() -> list[Operator]:
    found = []
    for path in sorted((ROOT / "api").glob("*.toml")):
        for name, record in tomllib.loads(path.read_text()).items():
            if not record.get("public", True):
                continue
            texts = record.get("sample", default_samples(record["args"]))
            samples = []
            for text in texts:
                op = Operator(name, record.get("module", "core"), record, [])
                if "f(" in text and op.function is None:
                    continue
                sample = Sample(text)
                source = Source(dtype="int32" if integers_only(op) else "float32")
                try:
                    sample.evaluate(op.function, mx, source)
                except Exception as e:
                    e.add_note(f"sample of {name}: {text}")
                    raise
                sample.inputs = source.wanted
                samples.append(sample)
            found.append(Operator(name, record.get("module", "core"), record, samples))
    return found


# ---- values ------------------------------------------------------------------
def rng_of(*key: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def np_type(dtype: str) -> Any:
    return {"bool_": np.bool_, "bfloat16": np.float32}.get(dtype) or getattr(np, dtype)


def draw(want: Input, dtype: str, seed: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Values in NumPy's nearest type (bfloat16 as float32 of its values)."""
    rng = rng_of(seed, want.kind, want.shape)
    shape = want.shape if shape is None else shape
    if want.kind == "I":
        return rng.integers(int(want.lo), int(want.hi), shape).astype(np.int32)
    if want.kind == "B":
        return rng.random(shape) < 0.5
    if want.kind == "K":
        return rng.integers(0, 2**32, (*shape[:-1], 2)).astype(np.uint32)
    if dtype == "bool_":
        return rng.random(shape) < 0.5
    if dtype in INTEGERS:
        lo = int(np.ceil(want.lo)) if dtype.startswith("int") else max(0, int(np.ceil(want.lo)))
        return rng.integers(lo, max(lo, int(np.floor(want.hi))) + 1, shape).astype(np_type(dtype))
    x = rng.uniform(want.lo, want.hi, shape)
    if dtype in COMPLEX:
        x = x + 1j * rng.uniform(-0.9, 0.9, shape)
    if dtype == "bfloat16":
        bits = np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return bits.view(np.float32)
    return np.asarray(x, np_type(dtype))


def to_mx(x: np.ndarray, want: Input, dtype: str) -> Any:
    if want.kind != "T":
        return mx.array(x)
    return mx.array(x, dtype=getattr(mx, dtype))


def drawn(sample: Sample, dtype: str, shapes: list[tuple[int, ...]] | None = None) -> list[np.ndarray]:
    return [draw(w, dtype, (sample.text, i), None if shapes is None else shapes[i]) for i, w in enumerate(sample.inputs)]


def as_mx(sample: Sample, values: list[np.ndarray], dtype: str) -> list[Any]:
    return [to_mx(x, w, dtype) for x, w in zip(values, sample.inputs, strict=True)]


def flat(out: Any) -> list[Any]:
    if isinstance(out, (list, tuple)):
        return [y for o in out for y in flat(o)]
    return [out]


def dtype_name(x: Any) -> str:
    return str(x.dtype).rsplit(".", 1)[-1].replace("bool_", "bool").replace("bool", "bool_")


def to_np(x: Any) -> np.ndarray:
    return np.array(x.astype(mx.float32) if dtype_name(x) == "bfloat16" else x)


def same_bits(a: Any, b: Any) -> bool:
    a, b = to_np(a), to_np(b)
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def close(got: np.ndarray, want: np.ndarray, tol: float) -> bool:
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return False
    if got.dtype.kind in "fc":
        finite = np.abs(want[np.isfinite(want)]) if want.size else np.zeros(0)
        scale = float(finite.max()) if finite.size else 1.0
        return np.allclose(got, want, rtol=tol, atol=tol * max(1.0, scale), equal_nan=True)
    return np.array_equal(got, want)


# ---- the checks: each gives the number made, and raises where one fails --------
class Failed(AssertionError):
    pass


def need(ok: bool, what: str, *detail: Any) -> int:
    if not ok:
        raise Failed(what + "".join(f"\n  {d}" for d in detail))
    return 1


def run(op: Operator, sample: Sample, arrays: list[Any]) -> list[Any]:
    return flat(sample.run(op.function, mx, arrays))


def takes(op: Operator, sample: Sample, dtype: str) -> list[Any] | None:
    """The result in this dtype, or None where the operator refuses it."""
    try:
        out = run(op, sample, as_mx(sample, drawn(sample, dtype), dtype))
        mx.eval(out)
        return out
    except REFUSALS as e:
        need(bool(str(e)), f"{dtype}: an error without a message")
        return None


def integers_only(op: Operator) -> bool:
    return op.record.get("promote") in ("int", "shift")


def check_values(op: Operator) -> int:
    """Against NumPy, for every dtype that is taken."""
    n = 0
    for sample in op.samples:
        for dtype in DTYPES:
            got = takes(op, sample, dtype)
            if got is None:
                continue
            for want, y in compared(op, sample, drawn(sample, dtype), got):
                name = dtype_name(y)
                n += need(
                    close(to_np(y), want, TOLERANCE.get(name, 0.0) or TOLERANCE.get(dtype, 0.0)),
                    f"{sample.text} of {dtype} differs from NumPy",
                    to_np(y), want,
                )  # fmt: skip
    return n


def oracle_of(op: Operator) -> Callable[..., Any] | None:
    """The record's own, else what oracles.py knows."""
    text = op.record.get("oracle")
    return eval(text, {"np": np}) if text else oracles.find(op.title)


def compared(op: Operator, sample: Sample, values: list[np.ndarray], got: list[Any]) -> Any:
    oracle = oracle_of(op)
    if oracle is None and (op.title in oracles.OWN or "f(" in sample.text):
        return
    inexact = to_np(got[0]).dtype.kind in "fc"
    wide = [
        x
        if w.kind != "T"
        else x.astype(np.complex128)
        if x.dtype.kind == "c"
        else x.astype(np.float64)
        if inexact or x.dtype.kind == "f"
        else x
        for x, w in zip(values, sample.inputs, strict=True)
    ]
    with np.errstate(all="ignore"):
        want = flat(sample.run(oracle, np, wide))
    if want[0] is None:  # NumPy has no such thing for this type
        return
    need(len(want) == len(got), f"{sample.text}: {len(got)} results, NumPy has {len(want)}")
    for w, y in zip(want, got, strict=True):
        w = np.asarray(w)
        if w.dtype.kind in "iub" and to_np(y).dtype.kind in "iub":
            w = w.astype(to_np(y).dtype)
        yield w, y


def layouts(x: np.ndarray, want: Input, dtype: str) -> list[Any]:
    """The same values under other strides."""
    a = to_mx(x, want, dtype)
    out = []
    if x.ndim >= 2:
        out.append(mx.swapaxes(mx.contiguous(mx.swapaxes(a, 0, -1)), 0, -1))
    if x.ndim >= 1 and x.size:
        out.append(mx.contiguous(a[::-1])[::-1])
        out.append(mx.stack([a, a], axis=-1)[..., 0])
    return out


def check_layouts(op: Operator) -> int:
    n = 0
    dtype = "int32" if integers_only(op) else "float32"
    for sample in op.samples:
        values = drawn(sample, dtype)
        plain = as_mx(sample, values, dtype)
        base = run(op, sample, plain)
        for i, (x, w) in enumerate(zip(values, sample.inputs, strict=True)):
            if w.kind == "K":
                continue
            for other in layouts(x, w, dtype):
                mx.eval(other)
                got = run(op, sample, [*plain[:i], other, *plain[i + 1 :]])
                # products choose their kernel by layout too: not bit for bit
                n += need(
                    all(close(to_np(y), to_np(b), 3e-6) for y, b in zip(got, base, strict=True)),
                    f"{sample.text}: input {i} under other strides",
                    got, base,
                )  # fmt: skip
        if all(w.kind == "T" for w in sample.inputs) and op.record.get("door") in ("unary", "binary"):
            n += check_sizes(op, sample, dtype)
    return n


def check_sizes(op: Operator, sample: Sample, dtype: str) -> int:
    """Empty and large inputs of elementwise operators."""
    n = 0
    for shape in ((0,), (3, 0), (70001,), (300, 257)):
        values = drawn(sample, dtype, [shape] * len(sample.inputs))
        got = run(op, sample, as_mx(sample, values, dtype))
        n += need(tuple(got[0].shape) == shape, f"{sample.text}: shape {got[0].shape} for {shape}")
        for want, y in compared(op, sample, values, got):
            n += need(close(to_np(y), want, TOLERANCE["float32"]), f"{sample.text} at {shape} differs from NumPy")
    # broadcast memory: stride 0
    values = drawn(sample, dtype, [(1, 5)] * len(sample.inputs))
    arrays = as_mx(sample, values, dtype)
    wide = [mx.broadcast_to(a, (4, 5)) for a in arrays]
    mx.eval(wide)
    got, base = run(op, sample, wide)[0], run(op, sample, arrays)[0]
    n += need(same_bits(got, mx.broadcast_to(base, (4, 5))), f"{sample.text} of broadcast memory")
    return n


def check_compiled(op: Operator) -> int:
    """Compiled equals eager, bit for bit, for every dtype that is taken."""
    n = 0
    for sample in op.samples:
        for dtype in DTYPES:
            base = takes(op, sample, dtype)
            if base is None:
                continue
            f = mx.compile(lambda *a, s=sample: run(op, s, list(a)))
            got = f(*as_mx(sample, drawn(sample, dtype), dtype))
            n += need(all(map(same_bits, got, base)), f"{sample.text} of {dtype}, compiled", got, base)
    return n


def check_shapeless(op: Operator) -> int:
    """What a trace recorded gives the same bits when it is played: another argument changes shape."""
    n = 0
    for sample in op.samples:
        for dtype in DTYPES:
            base = takes(op, sample, dtype)
            if base is None:
                continue
            arrays = as_mx(sample, drawn(sample, dtype), dtype)
            f = mx.compile(lambda _, *a, s=sample: run(op, s, list(a)), shapeless=True)
            for size in (1, 2):
                got = f(mx.zeros((size,)), *arrays)
                n += need(all(map(same_bits, got, base)), f"{sample.text} of {dtype}, shapeless", got, base)
            n += need(f.cache_info()["traces"] == 1, f"{sample.text} of {dtype} was traced again")
            break
    return n


# ---- derivatives -----------------------------------------------------------------
STEP = 1e-6


def differentiable(op: Operator, sample: Sample, dtype: str) -> list[int]:
    if takes(op, sample, dtype) is None:
        return []
    return [i for i, w in enumerate(sample.inputs) if w.kind == "T" and w.grad]


def numeric(
    op: Operator, sample: Sample, values: list[np.ndarray], which: list[int], v: list[np.ndarray], dtype: str
) -> list[np.ndarray]:
    """Central difference of all outputs along v."""
    ends = []
    for sign in (1.0, -1.0):
        moved = list(values)
        for i, d in zip(which, v, strict=True):
            moved[i] = values[i] + sign * STEP * d
        ends.append([to_np(y) for y in run(op, sample, as_mx(sample, moved, dtype))])
    with np.errstate(invalid="ignore"):
        # infinities that stay where they are do not move
        return [
            np.where(a == b, 0, (a - b) / (2 * STEP)) if a.dtype.kind in "fc" else np.zeros(a.shape)
            for a, b in zip(*ends, strict=True)
        ]


def direction(x: np.ndarray, seed: Any) -> np.ndarray:
    rng = rng_of("direction", seed, x.shape)
    v = rng.uniform(-1, 1, x.shape)
    return v + 1j * rng.uniform(-1, 1, x.shape) if x.dtype.kind == "c" else v


def check_derivatives(op: Operator) -> int:
    n = 0
    for sample in op.samples:
        for dtype in ("float64", "complex128"):
            which = differentiable(op, sample, dtype)
            if which:
                n += check_derivative(op, sample, dtype, which)
    return n


def check_derivative(op: Operator, sample: Sample, dtype: str, which: list[int]) -> int:
    values = drawn(sample, dtype)
    arrays = as_mx(sample, values, dtype)
    n = 0

    def fun(*xs: Any) -> list[Any]:
        given = list(arrays)
        for i, x in zip(which, xs, strict=True):
            given[i] = x
        outs = run(op, sample, given)
        return [y for y in outs if to_kind(y) in "fc"]

    primals = [arrays[i] for i in which]
    outs = fun(*primals)
    if not outs:
        return 0
    cts = [direction(to_np(y), ("ct", k)) for k, y in enumerate(outs)]
    back = mx.vjp(fun, primals, [mx.array(c, dtype=y.dtype) for c, y in zip(cts, outs, strict=True)])[1]
    for trial in range(2):
        v = [direction(values[i], (trial, i)) for i in which]
        rates = numeric(op, sample, values, which, v, dtype)
        rates = [r for r, y in zip(rates, run(op, sample, arrays), strict=True) if to_kind(y) in "fc"]
        tangents = [mx.array(d, dtype=arrays[i].dtype) for i, d in zip(which, v, strict=True)]
        pushed = mx.jvp(fun, primals, tangents)[1]
        for r, p in zip(rates, pushed, strict=True):
            n += need(close(to_np(p), r, 2e-6), f"jvp of {sample.text} in {dtype}", to_np(p), r)
        want = sum(float(np.sum(np.conj(c) * r).real) for c, r in zip(cts, rates, strict=True))
        got = sum(float(np.sum(np.conj(to_np(g)) * d).real) for g, d in zip(back, v, strict=True))
        n += need(abs(want - got) <= 2e-6 * max(1.0, abs(want)), f"vjp of {sample.text} in {dtype}", got, want, back)
    for g, x in zip(back, primals, strict=True):
        n += need(g.shape == x.shape and g.dtype == x.dtype, f"vjp of {sample.text}: {g.shape} {g.dtype}")
    return n


def to_kind(x: Any) -> str:
    name = dtype_name(x)
    return "c" if name in COMPLEX else "f" if name in FLOATS else "i"


def gradient_of(op: Operator, sample: Sample, arrays: list[Any], which: list[int]) -> Callable[..., list[Any]] | None:
    """The map from the differentiated inputs to their cotangents."""
    cts = [direction(to_np(y), ("ct", k)) for k, y in enumerate(run(op, sample, arrays)) if to_kind(y) in "fc"]
    if not cts:
        return None

    def fun(*xs: Any) -> list[Any]:
        given = list(arrays)
        for i, x in zip(which, xs, strict=True):
            given[i] = x
        return [y for y in run(op, sample, given) if to_kind(y) in "fc"]

    def grad(*xs: Any) -> list[Any]:
        given = [mx.array(c, dtype=xs[0].dtype) for c in cts]
        return list(mx.vjp(fun, list(xs), given)[1])

    return grad


def check_second(op: Operator) -> int:
    """Rules have rules: jvp of vjp against differences of vjp, and vmap of vjp against a loop."""
    n = 0
    for sample in op.samples:
        which = differentiable(op, sample, "float64")
        if not which:
            continue
        values = drawn(sample, "float64")
        arrays = as_mx(sample, values, "float64")
        grad = gradient_of(op, sample, arrays, which)
        if grad is None:
            continue
        primals = [arrays[i] for i in which]
        v = [direction(values[i], ("second", i)) for i in which]
        ends = [
            [to_np(g) for g in grad(*(mx.array(values[i] + s * STEP * d, dtype=mx.float64) for i, d in zip(which, v, strict=True)))]
            for s in (1.0, -1.0)
        ]
        pushed = mx.jvp(grad, primals, [mx.array(d, dtype=mx.float64) for d in v])[1]
        for p, a, b in zip(pushed, *ends, strict=True):
            rate = (a - b) / (2 * STEP)
            n += need(close(to_np(p), rate, 2e-5), f"second derivative of {sample.text}", to_np(p), rate)
        rows = [[values[i], values[i] + 0.01 * d] for i, d in zip(which, v, strict=True)]
        stacked = [mx.array(np.stack(r), dtype=mx.float64) for r in rows]
        mapped = mx.vmap(grad)(*stacked)
        for k in range(2):
            alone = grad(*(mx.array(r[k], dtype=mx.float64) for r in rows))
            for g, want in zip(mapped, alone, strict=True):
                n += need(close(to_np(g[k]), to_np(want), 1e-10), f"vmap of vjp of {sample.text}", to_np(g[k]), to_np(want))
    return n


# ---- vmap ---------------------------------------------------------------------------
BATCH = 3


def check_vmap(op: Operator) -> int:
    n = 0
    dtype = "int32" if integers_only(op) else "float32"
    for sample in op.samples:
        m = len(sample.inputs)
        subsets = [s for k in range(1, m + 1) for s in itertools.combinations(range(m), k)][:15]
        for mapped in subsets:
            for axis in (0, 1, -1) if len(mapped) == m else (0,):
                n += check_mapped(op, sample, dtype, mapped, axis)
    return n


def check_mapped(op: Operator, sample: Sample, dtype: str, mapped: tuple[int, ...], axis: int) -> int:
    rows = [[draw(w, dtype, (sample.text, i, k)) for k in range(BATCH)] for i, w in enumerate(sample.inputs)]
    if any(axis > sample.inputs[i].shape.__len__() for i in mapped):
        return 0
    given, axes = [], []
    for i, w in enumerate(sample.inputs):
        x = np.stack(rows[i], axis) if i in mapped else rows[i][0]
        given.append(to_mx(x, w, dtype))
        axes.append(axis if i in mapped else None)
    got = mx.vmap(lambda *a: run(op, sample, list(a)), in_axes=tuple(axes))(*given)
    n = 0
    for k in range(BATCH):
        alone = [to_mx(rows[i][k if i in mapped else 0], w, dtype) for i, w in enumerate(sample.inputs)]
        for y, want in zip(got, run(op, sample, alone), strict=True):
            n += need(
                close(to_np(y[k]), to_np(want), TOLERANCE["float32"]),
                f"vmap of {sample.text} over inputs {mapped} at axis {axis}, entry {k}",
                to_np(y[k]), to_np(want),
            )  # fmt: skip
    return n


CHECKS: dict[str, Callable[[Operator], int]] = {
    "values": check_values,
    "layouts": check_layouts,
    "compiled": check_compiled,
    "shapeless": check_shapeless,
    "derivatives": check_derivatives,
    "second": check_second,
    "vmap": check_vmap,
}
