# SPDX-License-Identifier: Apache-2.0
"""What an operator should give, by NumPy: in float64 or the integers' own type.

A name that NumPy has is taken from there; others are defined here, or in their
record (`oracle`).  None: no independent oracle (random draws have tests of
their own).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import quantized


def vectorized(f: Callable[[float], float]) -> Callable[[Any], Any]:
    return np.vectorize(f, otypes=[np.float64])


def erfinv(y: float) -> float:
    """By Newton's method on erf."""
    if abs(y) >= 1:
        return math.copysign(math.inf, y) if abs(y) == 1 else math.nan
    x = 0.0
    for _ in range(60):
        x -= (math.erf(x) - y) * math.sqrt(math.pi) / 2 * math.exp(x * x)
    return x


def truths(*x: Any) -> bool:
    return np.result_type(*x).kind == "b"


def sign(x: Any) -> Any:
    if np.iscomplexobj(x):
        return np.where(x == 0, 0, x / np.where(x == 0, 1, np.abs(x)))
    return np.sign(x) if not truths(x) else np.asarray(x)


def reduce(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(a: Any, axis: Any = None, keepdims: bool = False, **kw: Any) -> Any:
        return f(a, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims, **kw)

    return g


def logsumexp(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    top = np.max(np.real(a), axis=axis, keepdims=True)
    out = np.log(np.sum(np.exp(a - top), axis=axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis=axis)


def softmax(a: Any, axis: Any = None, precise: bool = False) -> Any:
    e = np.exp(a - np.max(np.real(a), axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def var(a: Any, axis: Any = None, keepdims: bool = False, ddof: int = 0) -> Any:
    return np.var(a, axis=axis, keepdims=keepdims, ddof=ddof)


def scan(f: Callable[..., Any], start: Callable[[np.dtype], Any]) -> Callable[..., Any]:
    def g(a: Any, axis: Any = None, reverse: bool = False, inclusive: bool = True, dtype: Any = None) -> Any:
        a = np.asarray(a)
        a = a.astype(np.int32) if truths(a) and f in (np.cumsum, np.cumprod) else a
        a, axis = (a.reshape(-1), 0) if axis is None else (a, axis)
        a = np.flip(a, axis) if reverse else a
        out = f(a, axis=axis)
        if f in (np.cumsum, np.cumprod):
            out = f(a, axis=axis, dtype=a.dtype)
        if not inclusive:
            first = np.full_like(np.take(out, [0], axis), start(out.dtype))
            out = np.concatenate([first, np.delete(out, -1, axis)], axis)
        return np.flip(out, axis) if reverse else out

    return g


def lowest(t: np.dtype) -> Any:
    return {"b": False, "f": -np.inf, "c": complex(-np.inf, -np.inf)}[t.kind] if t.kind in "bfc" else np.iinfo(t).min


def highest(t: np.dtype) -> Any:
    return {"b": True, "f": np.inf, "c": complex(np.inf, np.inf)}[t.kind] if t.kind in "bfc" else np.iinfo(t).max


def logcumsumexp(a: Any, axis: int) -> Any:
    top = np.max(np.real(a), axis=axis, keepdims=True)
    return np.log(np.cumsum(np.exp(a - top), axis=axis)) + top


def layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return y * (1 if weight is None else weight) + (0 if bias is None else bias)


def rms_norm(x: Any, weight: Any, eps: float) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (1 if weight is None else weight)


def partition_places(a: Any, kth: int, axis: Any = -1) -> Any:
    """Places of smaller elements, of those equal to the kth, of larger ones."""
    if axis is None:
        a, axis = np.reshape(a, -1), 0
    if a.dtype.kind == "c":  # sorted as a whole
        return np.argsort(a, axis, kind="stable")
    v = np.take(np.sort(a, axis), [kth], axis)
    equal = (a == v) | (np.isnan(a) & np.isnan(v))
    less = (a < v) | (~np.isnan(a) & np.isnan(v))
    return np.argsort(np.where(less, 0, np.where(equal, 1, 2)), axis, kind="stable")


def partition(a: Any, kth: int, axis: Any = -1) -> Any:
    places = partition_places(a, kth, axis)
    return np.reshape(a, -1)[places] if axis is None else np.take_along_axis(a, places, axis)


def attention(q: Any, k: Any, v: Any, *, scale: float, mask: Any = None, sinks: Any = None) -> Any:
    r = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, r, 1), np.repeat(v, r, 1)
    s = scale * q @ np.swapaxes(k, -1, -2)
    if isinstance(mask, str):
        n, m = s.shape[-2:]
        mask = np.arange(m) <= np.arange(n)[:, None] + m - n
    if mask is not None:
        s = np.where(mask, s, -1e300) if mask.dtype == bool else s + mask
    if sinks is not None:
        s = np.concatenate([s, np.broadcast_to(sinks[None, :, None, None], (*s.shape[:3], 1))], -1)
    p = softmax(s, -1)
    return (p if sinks is None else p[..., :-1]) @ v


def rope(a: Any, dims: int, *, traditional: bool, base: Any, scale: float, offset: Any, freqs: Any = None) -> Any:
    t = np.arange(a.shape[-2]) + np.reshape(offset, np.shape(offset) + (1,) * (a.ndim - 2 if np.ndim(offset) else 0))
    turn = 1 / freqs if freqs is not None else base ** (-2.0 * np.arange(dims // 2) / dims)
    z = np.exp(1j * (t * scale)[..., None] * turn)
    out = np.array(a)
    one = np.s_[..., 0:dims:2] if traditional else np.s_[..., : dims // 2]
    two = np.s_[..., 1:dims:2] if traditional else np.s_[..., dims // 2 : dims]
    y = (a[one] + 1j * a[two]) * z
    out[one], out[two] = y.real, y.imag
    return out


def conv_general(x: Any, w: Any, stride: Any = 1, padding: Any = 0, kernel_dilation: Any = 1, input_dilation: Any = 1,
                 groups: int = 1, flip: bool = False) -> Any:  # fmt: skip
    n = x.ndim - 2

    def each(v: Any) -> list[int]:
        return list(v) if isinstance(v, (list, tuple)) else [v] * n

    stride, kd, idil = each(stride), each(kernel_dilation), each(input_dilation)
    pairs = isinstance(padding, tuple) and isinstance(padding[0], list)
    low, high = padding if pairs else (each(padding), each(padding))
    for i in range(n):
        gaps = np.zeros((*x.shape[: i + 1], (x.shape[i + 1] - 1) * idil[i] + 1, *x.shape[i + 2 :]), x.dtype)
        gaps[(slice(None),) * (i + 1) + (slice(None, None, idil[i]),)] = x
        pad = [(0, 0)] * x.ndim
        pad[i + 1] = (max(low[i], 0), max(high[i], 0))
        x = np.pad(gaps, pad)
        cut = [slice(None)] * x.ndim
        cut[i + 1] = slice(max(-low[i], 0), x.shape[i + 1] - max(-high[i], 0))
        x = x[tuple(cut)]
    w = np.flip(w, range(1, n + 1)) if flip else w
    out_shape = [(x.shape[i + 1] - kd[i] * (w.shape[i + 1] - 1) - 1) // stride[i] + 1 for i in range(n)]
    out = np.zeros((x.shape[0], *out_shape, w.shape[0]), x.dtype)
    o, c = w.shape[0] // groups, w.shape[-1]
    for k in np.ndindex(*w.shape[1:-1]):
        cut = tuple(slice(k[i] * kd[i], k[i] * kd[i] + stride[i] * (out_shape[i] - 1) + 1, stride[i]) for i in range(n))
        part = x[(slice(None), *cut)]
        for g in range(groups):
            out[..., g * o : (g + 1) * o] += part[..., g * c : (g + 1) * c] @ w[(slice(g * o, (g + 1) * o), *k)].T
    return out


def conv(x: Any, w: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
    return conv_general(x, w, stride, padding, dilation, 1, groups)


def conv_transpose(x: Any, w: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, output_padding: Any = 0,
                   groups: int = 1) -> Any:  # fmt: skip
    """The definition: each input entry adds its multiple of the kernel."""
    n = x.ndim - 2

    def each(v: Any) -> list[int]:
        return list(v) if isinstance(v, (list, tuple)) else [v] * n

    s, p, d, e = each(stride), each(padding), each(dilation), each(output_padding)
    full = [(x.shape[i + 1] - 1) * s[i] + d[i] * (w.shape[i + 1] - 1) + 1 + e[i] for i in range(n)]
    out = np.zeros((x.shape[0], *full, w.shape[0]), x.dtype)
    o, c = w.shape[0] // groups, w.shape[-1]
    for k in np.ndindex(*w.shape[1:-1]):
        cut = tuple(slice(k[i] * d[i], k[i] * d[i] + s[i] * (x.shape[i + 1] - 1) + 1, s[i]) for i in range(n))
        for g in range(groups):
            out[(slice(None), *cut, slice(g * o, (g + 1) * o))] += (
                x[..., g * c : (g + 1) * c] @ w[(slice(g * o, (g + 1) * o), *k)].T
            )
    return out[(slice(None), *(slice(p[i], full[i] - p[i]) for i in range(n)))]


def split(a: Any, where: Any, axis: int = 0) -> Any:
    return np.split(a, where, axis)


def pad(a: Any, width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    return np.pad(a, width, mode, **({"constant_values": constant_values} if mode == "constant" else {}))


def part_at(a: Any, start: Any, axes: Any, size: Any) -> Any:
    at = [0] * a.ndim
    for i, k in zip(start, axes, strict=True):
        at[k] = min(max(int(i), 0), a.shape[k] - size[k])
    return tuple(slice(i, i + n) for i, n in zip(at, size, strict=True))


def part(a: Any, start: Any, axes: Any, size: Any) -> Any:
    return a[part_at(a, start, axes, size)]


def part_update(a: Any, update: Any, start: Any, axes: Any) -> Any:
    out = np.array(a)
    out[part_at(a, start, axes, update.shape)] = update
    return out


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    return np.isclose(a, b, rtol, atol, equal_nan)


def put_along_axis(a: Any, i: Any, v: Any, axis: Any = None) -> Any:
    out = np.array(a)
    np.put_along_axis(out, i, v, axis)
    return out


def floor_divide(a: Any, b: Any) -> Any:
    if truths(a, b):
        return np.logical_and(a, b)
    return None if np.iscomplexobj(a) else np.floor_divide(a, b)


def clip(a: Any, lo: Any = None, hi: Any = None) -> Any:
    a = a if lo is None else np.maximum(a, lo)
    return a if hi is None else np.minimum(a, hi)


def topk(a: Any, k: int, axis: Any = -1) -> Any:
    a, axis = (np.reshape(a, -1), 0) if axis is None else (a, axis)
    s = np.sort(a, axis)
    return np.take(s, range(s.shape[axis] - k, s.shape[axis]), axis)


def median(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return None if np.iscomplexobj(a) else np.median(a, axis=axis, keepdims=keepdims)


def vecdot(a: Any, b: Any, axis: int = -1) -> Any:
    return np.sum(np.conj(a) * b, axis=axis)


def expand_dims(a: Any, axis: Any) -> Any:
    return np.expand_dims(a, tuple(axis) if isinstance(axis, list) else axis)


def sized(x: Any, size: int, fill: Any) -> Any:
    """The first `size` entries, filled up."""
    x = np.asarray(x)[:size]
    return np.concatenate([x, np.full((size - len(x), *x.shape[1:]), fill, x.dtype)])


def nonzero(a: Any, size: int, fill_value: int = 0) -> Any:
    return [sized(i, size, fill_value) for i in np.nonzero(a)]


def compress(c: Any, a: Any, axis: Any = None, size: int = 0, fill_value: Any = 0) -> Any:
    a, axis = (np.reshape(a, -1), 0) if axis is None else (a, axis)
    y = np.moveaxis(np.compress(c, a, axis), axis, 0)
    return np.moveaxis(sized(y, size, fill_value), 0, axis)


def unique(a: Any, size: int, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           fill_value: Any = None) -> Any:  # fmt: skip
    v, i, k, n = np.unique(a, True, True, True)
    out = [sized(v, size, v[0] if fill_value is None else np.asarray(fill_value).astype(v.dtype))]
    out += [sized(i, size, i[0])] if return_index else []
    out += [np.minimum(k, size - 1).reshape(a.shape)] if return_inverse else []
    return out + ([sized(n, size, 0)] if return_counts else [])


OWN: dict[str, Callable[..., Any] | None] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "negative": lambda x: np.negative(x),
    "sign": sign,
    "erf": vectorized(math.erf),
    "erfinv": vectorized(erfinv),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "square": lambda x: x * x,
    "stop_gradient": lambda x: x,
    "positive": lambda x: x,
    "astype": lambda x, t: np.real(x).astype(t),
    "empty_like": np.zeros_like,
    "degrees": lambda x: x * 180 / np.pi, "radians": lambda x: x * np.pi / 180,
    "round": lambda x, decimals=0: x if truths(x) else np.round(x, decimals),
    "floor": lambda x: x if x.dtype.kind in "iub" else np.floor(x),
    "ceil": lambda x: x if x.dtype.kind in "iub" else np.ceil(x),
    "trunc": lambda x: x if x.dtype.kind in "iub" else np.trunc(x),
    "abs": np.abs,
    "bitwise_invert": np.invert,
    "subtract": lambda a, b: a ^ b if truths(a, b) else a - b,
    "floor_divide": floor_divide,
    "remainder": lambda a, b: np.logical_and(a, ~np.asarray(b)) if truths(a, b) else np.remainder(a, b),
    "divmod": lambda a, b: [floor_divide(a, b), OWN["remainder"](a, b)],  # type: ignore[misc]
    "power": lambda a, b: (a | ~b) if truths(a, b) else np.power(a, b),
    "logaddexp": lambda a, b: np.log(np.exp(a) + np.exp(b)),
    "less": np.less, "greater": np.greater,
    "where": np.where,
    "clip": clip,
    "isclose": isclose,
    "nan_to_num": np.nan_to_num,
    "sum": reduce(np.sum), "mean": reduce(np.mean), "prod": reduce(np.prod), "max": reduce(np.max), "min": reduce(np.min),
    "any": reduce(np.any), "all": reduce(np.all), "argmax": reduce(np.argmax), "argmin": reduce(np.argmin),
    "logsumexp": logsumexp, "softmax": softmax,
    "var": var, "std": lambda *a, **k: np.sqrt(var(*a, **k)),
    "minmax": lambda *a, **k: (np.min(*a, **k), np.max(*a, **k)),
    "count_nonzero": lambda a, axis=None, keepdims=False: np.sum(np.asarray(a) != 0, axis=axis, keepdims=keepdims),
    "median": median,
    "reshape": np.reshape, "transpose": np.transpose,
    "flatten": lambda a, s=0, e=-1: np.reshape(a, (*a.shape[:s], -1, *(a.shape[e:][1:] if e != -1 else ()))),
    "unflatten": lambda a, axis, shape: np.reshape(a, (*a.shape[:axis], *shape, *a.shape[axis:][1:])),
    "expand_dims": expand_dims,
    "squeeze": lambda a, axis=None: np.squeeze(a, tuple(axis) if isinstance(axis, list) else axis),
    "concatenate": lambda x, axis=0: np.concatenate(x, axis),
    "stack": lambda x, axis=0: np.stack(x, axis),
    "contiguous": lambda a, allow_col_major=False: a,
    "view": None,
    "split": split, "pad": pad,
    "matrix_transpose": lambda a: np.swapaxes(a, -1, -2),
    "unstack": lambda a, axis=0: [np.take(a, i, axis) for i in range(a.shape[axis])],
    "broadcast_arrays": np.broadcast_arrays,
    "roll": lambda a, s, axis=None: np.roll(a, s, axis),
    "flip": np.flip,
    "as_strided": lambda a, shape, strides, offset: np.lib.stride_tricks.as_strided(
        np.ravel(a)[offset:], shape, [s * a.itemsize for s in strides]),
    "diff": np.diff,
    "full_like": lambda a, v, dtype=None: np.broadcast_to(np.asarray(v), a.shape).astype(a.dtype),
    "take": lambda a, i, axis=None: np.take(a, i, axis),
    "take_along_axis": lambda a, i, axis=-1: np.take_along_axis(a, i, axis),
    "put_along_axis": put_along_axis,
    "slice": part, "slice_update": part_update,
    "matmul": np.matmul,
    "addmm": lambda c, a, b, alpha=1.0, beta=1.0: beta * c + alpha * (a @ b),
    "vecdot": vecdot,
    "tensordot": lambda a, b, axes=2: np.tensordot(a, b, axes),
    "fast.layer_norm": layer_norm, "fast.rms_norm": rms_norm, "fast.scaled_dot_product_attention": attention, "fast.rope": rope,
    "conv_general": conv_general, "conv1d": conv, "conv2d": conv, "conv3d": conv,
    "conv_transpose1d": conv_transpose, "conv_transpose2d": conv_transpose, "conv_transpose3d": conv_transpose,
    "sort": lambda a, axis=-1: np.sort(a, axis), "argsort": lambda a, axis=-1: np.argsort(a, axis, kind="stable"),
    "partition": lambda a, kth, axis=-1: partition(a, kth, axis),
    "argpartition": lambda a, kth, axis=-1: partition_places(a, kth, axis),
    "topk": topk,
    "searchsorted": lambda s, v, side="left": np.searchsorted(s, v, side),
    "cumsum": scan(np.cumsum, lambda t: 0), "cumprod": scan(np.cumprod, lambda t: 1),
    "cummax": scan(np.maximum.accumulate, lowest), "cummin": scan(np.minimum.accumulate, highest),
    "logcumsumexp": scan(logcumsumexp, lambda t: -np.inf),
    "masked_select": lambda a, m, size, fill_value=0: sized(a[m], size, fill_value),
    "compress": compress, "unique": unique, "nonzero": nonzero,
    "flatnonzero": lambda a, size, fill_value=0: sized(np.flatnonzero(a), size, fill_value),
    "argwhere": lambda a, size, fill_value=0: sized(np.argwhere(a), size, fill_value),
    "isposinf": np.isposinf, "isneginf": np.isneginf,
}  # fmt: skip


def picked(x: Any, i: Any) -> Any:
    return x if i is None else x.reshape(-1, *x.shape[-2:])[i]


def segmented_mm(a: Any, b: Any, segments: Any) -> Any:
    return np.stack([a[:, s:e] @ b[s:e] if e > s else np.zeros((a.shape[0], b.shape[1])) for s, e in segments])


def block_masked_mm(a: Any, b: Any, size: int, out: Any, lhs: Any, rhs: Any) -> Any:
    def spread(m: Any, x: Any) -> Any:
        return np.kron(m, np.ones((size, size)))[: x.shape[0], : x.shape[1]] * x

    y = spread(lhs, a) @ spread(rhs, b)
    return spread(out, y)


def cross_entropy(x: Any, i: Any) -> Any:
    return logsumexp(x, -1) - np.take_along_axis(x, i[..., None], -1)[..., 0]


def gated_delta_update(q: Any, k: Any, v: Any, gamma: Any, beta: Any, s: Any = None, mask: Any = None) -> Any:
    r = v.shape[2] // k.shape[2]
    q, k = np.repeat(q, r, 2), np.repeat(k, r, 2)
    s = np.zeros((v.shape[0], v.shape[2], v.shape[3], k.shape[3])) if s is None else s
    out = np.zeros(v.shape)
    for t in range(v.shape[1]):
        n = s * gamma[:, t, :, None, None]
        e = (v[:, t] - np.einsum("bhvk,bhk->bhv", n, k[:, t])) * beta[:, t, :, None]
        n = n + e[..., None] * k[:, t, :, None, :]
        s = n if mask is None else np.where(mask[:, t, None, None, None], n, s)
        out[:, t] = np.einsum("bhvk,bhk->bhv", s, q[:, t])
    return [out, s]


OWN |= {
    "einsum": lambda s, *x: np.einsum(s, *x),
    "gather_mm": lambda a, b, i=None, j=None: picked(a, i) @ picked(b, j),
    "segmented_mm": segmented_mm, "block_masked_mm": block_masked_mm,
    "convolve": np.convolve,
    "fast.cross_entropy": cross_entropy, "fast.gated_delta_update": gated_delta_update,
}  # fmt: skip


OWN |= {
    "quantize": quantized.quantize, "dequantize": quantized.dequantize,
    "quantized_matmul": quantized.quantized_matmul, "gather_qmm": quantized.gather_qmm,
    "qqmm": quantized.qqmm, "gather_qqmm": quantized.gather_qqmm,
    "to_fp8": quantized.to_fp8, "from_fp8": quantized.from_fp8,
}


def fft(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, *args, **k: None if np.iscomplexobj(a) and f.__name__.startswith(("rfft", "ihfft")) else f(a, *args, **k)


def fft_nd(f: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy no longer takes s without axes."""

    def of(a: Any, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        if axes is None and (s is not None or f.__name__.endswith("2")):
            axes = tuple(range(-len(s or (1, 1)), 0))
        return fft(f)(a, s, axes, norm)

    return of


def window_of(window: Any, win_length: Any, n_fft: int) -> Any:
    w = np.ones(win_length or n_fft) if window is None else np.real(window)
    before = (n_fft - len(w)) // 2
    return np.pad(w, (before, n_fft - len(w) - before))


def stft(
    x: Any, n_fft: int, hop_length: Any = None, win_length: Any = None, window: Any = None, center: bool = True,
    pad_mode: str = "reflect", norm: str = "backward", onesided: Any = None,
) -> Any:  # fmt: skip
    if window is not None and np.iscomplexobj(window):
        return None
    hop = hop_length or n_fft // 4
    if center:
        x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(n_fft // 2, n_fft // 2)], mode=pad_mode)  # type: ignore[call-overload]
    starts = range(0, x.shape[-1] - n_fft + 1, hop)
    frames = np.stack([x[..., i : i + n_fft] for i in starts], -2) * window_of(window, win_length, n_fft)
    half = not np.iscomplexobj(x) if onesided is None else onesided
    return np.swapaxes((np.fft.rfft if half else np.fft.fft)(frames, norm=norm), -1, -2)


def istft(
    m: Any, n_fft: Any = None, hop_length: Any = None, win_length: Any = None, window: Any = None, center: bool = True,
    norm: str = "backward", onesided: bool = True, length: Any = None,
) -> Any:  # fmt: skip
    if window is not None and np.iscomplexobj(window):
        return None
    n_fft = n_fft or 2 * (m.shape[-2] - 1)
    hop, w = hop_length or n_fft // 4, window_of(window, win_length, n_fft)
    m = np.swapaxes(m, -1, -2)
    frames = (np.fft.irfft(m, n_fft, norm=norm) if onesided else np.fft.ifft(m, norm=norm).real) * w
    y = np.zeros((*m.shape[:-2], (m.shape[-2] - 1) * hop + n_fft))
    total = np.zeros(y.shape[-1])
    for k in range(m.shape[-2]):
        y[..., k * hop : k * hop + n_fft] += frames[..., k, :]
        total[k * hop : k * hop + n_fft] += w * w
    start = n_fft // 2 if center else 0
    stop = y.shape[-1] - start if length is None else min(start + length, y.shape[-1])
    y = y[..., start:stop] / total[start:stop]
    short = 0 if length is None else length - y.shape[-1]
    return np.pad(y, [(0, 0)] * (y.ndim - 1) + [(0, short)])


OWN |= {
    f"fft.{base}{end}": (fft_nd if end else fft)(getattr(np.fft, base + end))
    for base in ("fft", "ifft", "rfft", "irfft")
    for end in ("", "2", "n")
} | {
    "fft.hfft": fft(np.fft.hfft), "fft.ihfft": fft(np.fft.ihfft),
    "fft.fftshift": np.fft.fftshift, "fft.ifftshift": np.fft.ifftshift,
    "fft.fftfreq": lambda *a: np.fft.fftfreq(*a), "fft.rfftfreq": lambda *a: np.fft.rfftfreq(*a),
    "fft.stft": stft, "fft.istft": istft,
}  # fmt: skip


# ---- linear algebra -----------------------------------------------------------
def hadamard_transform(a: Any, scale: Any = None) -> Any:
    """By the whole matrix: MLX's of order 12, 20 or 28, Sylvester's for the rest."""
    n = a.shape[-1]
    rows = (Path(__file__).parents[1] / "golden" / "hadamard.txt").read_text().split()
    h = np.ones((1, 1))
    for m in (12, 20, 28):
        if n % m == 0 and (n // m) & (n // m - 1) == 0:
            h = np.array([[1.0 if c == "+" else -1.0 for c in r] for r in rows if len(r) == m]).T
    while h.shape[0] < n:
        h = np.kron(h, [[1.0, 1.0], [1.0, -1.0]])
    return np.real(a) @ h.T * (1 / math.sqrt(n) if scale is None else scale)


def solve_triangular(a: Any, b: Any, *, upper: bool = False) -> Any:
    t = np.triu(a) if upper else np.tril(a)
    return np.linalg.solve(t, b[:, None])[..., 0] if b.ndim == 1 else np.linalg.solve(t, b)


def pivoted(a: Any) -> Any:
    """(packed factors, pivots) of one matrix, by the textbook."""
    a = np.array(a)
    pivots = []
    for k in range(min(a.shape)):
        p = k + int(np.argmax(np.abs(a[k:, k])))
        pivots.append(p)
        a[[k, p]] = a[[p, k]]
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, np.array(pivots, np.uint32)


def stacked(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def g(a: Any) -> Any:
        parts = [f(x) for x in np.asarray(a).reshape(-1, *a.shape[-2:])]
        return tuple(np.stack(p).reshape(*a.shape[:-2], *p[0].shape) for p in zip(*parts, strict=True))

    return g


def lu_parts(a: Any) -> Any:
    packed, pivots = pivoted(a)
    k, order = min(a.shape), np.arange(a.shape[0])
    for i, p in enumerate(pivots):
        order[[i, p]] = order[[p, i]]
    return np.argsort(order).astype(np.uint32), np.tril(packed[:, :k], -1) + np.eye(a.shape[0], k), np.triu(packed[:k])


lu, lu_factor = stacked(lu_parts), stacked(pivoted)


def cross(a: Any, b: Any, axis: int = -1) -> Any:
    """Of int64 where the numbers are truths, so that -1 is true."""
    wide = [x.astype(np.int64) if truths(x) else x for x in (a, b)]
    flat = all(x.shape[axis] == 2 for x in wide)
    x, y = ([v[..., i] if i < v.shape[-1] else 0 * v[..., 0] for i in range(3)] for v in (np.moveaxis(v, axis, -1) for v in wide))
    z = [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]]
    out = z[2] if flat else np.moveaxis(np.stack(z, -1), -1, axis)
    return out != 0 if truths(a, b) else out


def norm(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord is None and axis is not None and np.ndim(axis):
        return np.sqrt(np.sum(np.abs(a) ** 2, axis=axis, keepdims=keepdims))
    return np.linalg.norm(np.asarray(a, np.result_type(a, np.float32)), ord, axis, keepdims)


def vector_norm(a: Any, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Any:
    return np.linalg.vector_norm(np.asarray(a, np.result_type(a, np.float32)), axis=axis, keepdims=keepdims, ord=ord)


def find(title: str) -> Callable[..., Any] | None:
    if title.startswith("random."):
        return None
    if title in OWN:
        return OWN[title]
    home = np.linalg if title.startswith("linalg.") else np
    return getattr(home, title.removeprefix("linalg."), None)
