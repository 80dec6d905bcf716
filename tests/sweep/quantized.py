# SPDX-License-Identifier: Apache-2.0
"""Quantised arrays in NumPy: an independent second implementation.

Codes are read and written bit by bit, groups are made in float32 by the rule
of the format; products are in float64.  Signatures are those of the API.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MODES = {"affine": (64, 4), "mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}
F = np.float32
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F)
LEAST = F(1e-7)


def parameters(group_size: int | None, bits: int | None, mode: str) -> tuple[int, int]:
    group, width = MODES[mode]
    return group if group_size is None else group_size, width if bits is None else bits


# ---- bits -------------------------------------------------------------------
def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """The codes of each row as one little-endian stream of bits."""
    planes = (codes[..., None].astype(np.uint32) >> np.arange(bits, dtype=np.uint32)) & 1
    stream = planes.reshape(*codes.shape[:-1], -1).astype(np.uint8)
    data = np.packbits(stream, axis=-1, bitorder="little")
    return np.ascontiguousarray(data).view(np.uint32)


def unpack(words: np.ndarray, bits: int) -> np.ndarray:
    data = np.ascontiguousarray(words).view(np.uint8)
    stream = np.unpackbits(data, axis=-1, bitorder="little")
    planes = stream.reshape(*words.shape[:-1], -1, bits).astype(np.int64)
    return planes @ (1 << np.arange(bits))


# ---- elements ---------------------------------------------------------------
def e4m3_values() -> np.ndarray:
    """By the definition: sign, 4 bits of exponent, 3 of fraction."""
    c = np.arange(128)
    e, m = c >> 3, c & 7
    size = np.where(e == 0, m * 2.0**-9, (8 + m) * 2.0 ** (e - 10.0))
    size[127] = np.nan
    return np.concatenate([size, -size])


E4M3 = e4m3_values()


def to_fp8(x: Any) -> np.ndarray:
    """The nearest of the values, of two the one with an even last bit."""
    x = np.asarray(x, np.float64)
    a = np.where(np.abs(x) < 448, np.abs(x), 448.0)
    at = np.searchsorted(E4M3[:127], a, side="right") - 1
    up = np.minimum(at + 1, 126)
    below, above = a - E4M3[at], E4M3[up] - a
    code = np.where((above < below) | ((above == below) & (at % 2 == 1)), up, at)
    return (code | np.where(np.signbit(x), 128, 0)).astype(np.uint8)


def from_fp8(x: Any, dtype: Any = None) -> np.ndarray:
    return E4M3[np.asarray(x)]


def to_fp4(y: np.ndarray, ties_even: bool = False) -> np.ndarray:
    """The nearest; ties go to the lower code, or to the even one."""
    gap = np.abs(np.abs(y)[..., None] - E2M1)
    if ties_even:
        gap = gap + np.array([0, 1e-9, 0, 1e-9, 0, 1e-9, 0, 1e-9])
    code = np.argmin(gap, axis=-1)
    return np.where((y < 0) & (code > 0), code | 8, code)


def fp4_values(codes: np.ndarray) -> np.ndarray:
    return np.where(codes & 8, -E2M1[codes & 7], E2M1[codes & 7])


# ---- groups -----------------------------------------------------------------
def affine(x: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One group."""
    n = F(2**bits - 1)
    lo, hi = x.min(), x.max()
    if bits == 1:
        scale, bias = max(F(hi - lo), LEAST), lo
    else:
        negative = abs(lo) > abs(hi)
        scale, bias = max(F(F(hi - lo) / n), LEAST), F(0)
        scale = scale if negative else -scale
        edge = lo if negative else hi
        q0 = np.rint(F(edge / scale))
        if q0 != 0:
            scale, bias = F(edge / q0), edge
    return np.clip(np.rint((x - bias) / scale), 0, n).astype(np.int64), F(scale), F(bias)


def floats(x: np.ndarray, mode: str, factor: Any, ties_even: bool) -> tuple[np.ndarray, int]:
    """One group: codes and the byte of the scale."""
    largest = F(448) if mode == "mxfp8" else F(6)
    top = F(np.abs(x).max() / largest)
    if mode == "nvfp4":
        byte = int(to_fp8(F(top * factor)))
        scale = F(E4M3[byte])
    else:
        e = int(np.ceil(np.log2(np.float64(top)))) if top else 0
        byte, scale = e + 127, F(2.0**e)
    y = F(0) * x if scale == 0 else x / scale * F(factor)
    return (to_fp8(y) if mode == "mxfp8" else to_fp4(y, ties_even)), byte


def make(w: Any, group: int, bits: int, mode: str, factor: Any = 1.0, ties_even: bool = False) -> list[np.ndarray]:
    x = np.asarray(w, F)
    groups = x.reshape(-1, group)
    if mode == "affine":
        made = [affine(g, bits) for g in groups]
    else:
        made = [floats(g, mode, F(factor), ties_even) for g in groups]
    shape = (*x.shape[:-1], x.shape[-1] // group)
    codes = np.array([m[0] for m in made]).reshape(x.shape)
    rest = [np.array([m[k] for m in made]).reshape(shape) for k in range(1, len(made[0]))]
    return [pack(codes, bits), *rest]


def quantize(w: Any, group_size: Any = None, bits: Any = None, mode: str = "affine", global_scale: Any = None) -> Any:
    group, width = parameters(group_size, bits, mode)
    if np.iscomplexobj(w):
        return [None]
    return make(w, group, width, mode, 1.0 if global_scale is None else F(2688) / F(global_scale))


def dequantize(
    w: Any, scales: Any, biases: Any = None, group_size: Any = None, bits: Any = None, mode: str = "affine",
    global_scale: Any = None, dtype: Any = None,
) -> np.ndarray:  # fmt: skip
    group, width = parameters(group_size, bits, mode)
    codes = unpack(np.asarray(w), width)
    grown = [np.repeat(np.asarray(s), group, -1) for s in (scales, biases) if s is not None]
    if mode == "affine":
        return codes * grown[0] + grown[1]
    values = fp4_values(codes).astype(np.float64) if width == 4 else E4M3[codes]
    by = E4M3[grown[0]] if mode == "nvfp4" else 2.0 ** (grown[0].astype(np.float64) - 127)
    return values * by * (1.0 if global_scale is None else float(global_scale) / 2688)


# ---- products ---------------------------------------------------------------
def quantized_matmul(
    x: Any, w: Any, scales: Any, biases: Any = None, transpose: bool = True, group_size: Any = None, bits: Any = None,
    mode: str = "affine",
) -> np.ndarray:  # fmt: skip
    values = dequantize(w, scales, biases, group_size, bits, mode)
    return np.asarray(x) @ (np.swapaxes(values, -1, -2) if transpose else values)


def flat(x: Any) -> np.ndarray:
    return np.asarray(x).reshape(-1, *np.shape(x)[-2:])


def picked(x: np.ndarray, index: Any) -> np.ndarray:
    if index is None:
        index = np.arange(len(flat(x))).reshape(x.shape[:-2])
    return flat(x)[np.asarray(index)]


def gather_qmm(
    x: Any, w: Any, scales: Any, biases: Any = None, lhs_indices: Any = None, rhs_indices: Any = None,
    transpose: bool = True, group_size: Any = None, bits: Any = None, mode: str = "affine", global_scale: Any = None,
    *, sorted_indices: bool = False,
) -> np.ndarray:  # fmt: skip
    values = picked(dequantize(w, scales, biases, group_size, bits, mode, global_scale), rhs_indices)
    return picked(np.asarray(x), lhs_indices) @ (np.swapaxes(values, -1, -2) if transpose else values)


def rounded(x: Any, mode: str, ties_even: bool, global_scale: Any = None) -> np.ndarray:
    group, width = MODES[mode]
    factor = 1.0 if global_scale is None else F(2688) / F(global_scale)
    q = make(x, group, width, mode, factor, ties_even)
    return dequantize(*q, mode=mode, global_scale=global_scale)


def qqmm(
    x: Any, w: Any, scales: Any = None, group_size: Any = None, bits: Any = None, mode: str = "nvfp4",
    global_scale_x: Any = None, global_scale_w: Any = None,
) -> np.ndarray:  # fmt: skip
    if scales is None:
        values = rounded(w, mode, False, global_scale_w)
    else:
        values = dequantize(w, scales, mode=mode, global_scale=global_scale_w)
    return rounded(x, mode, True, global_scale_x) @ values.T


def gather_qqmm(
    x: Any, w: Any, scales: Any = None, lhs_indices: Any = None, rhs_indices: Any = None, group_size: Any = None,
    bits: Any = None, mode: str = "nvfp4", global_scale_x: Any = None, global_scale_w: Any = None,
    *, sorted_indices: bool = False,
) -> np.ndarray:  # fmt: skip
    if scales is None:
        values = rounded(w, mode, False, global_scale_w)
    else:
        values = dequantize(w, scales, mode=mode, global_scale=global_scale_w)
    values = picked(values, rhs_indices)
    return picked(rounded(x, mode, True, global_scale_x), lhs_indices) @ np.swapaxes(values, -1, -2)
