#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write stft.json of this folder with PyTorch, in float64.

usage: make_stft.py [FILE]

Each entry has the signal's length, the arguments, the transform as real and
imaginary parts, and what istft gives back.  `signal` and `window` say what the
inputs are; the test makes the same.
"""

import json
import math
import pathlib
import sys

CASES = [
    dict(length=40, n_fft=8),
    dict(length=40, n_fft=8, hop_length=3, window="hann"),
    dict(length=33, n_fft=9, hop_length=4, window="rise", center=False),
    dict(length=50, n_fft=16, hop_length=4, win_length=10, window="hann", pad_mode="constant"),
    dict(length=24, n_fft=6, hop_length=2, window="rise", normalized=True),
    dict(length=24, n_fft=6, hop_length=2, onesided=False),
    dict(length=24, n_fft=6, hop_length=2, complex=True),
]


def signal(n: int, phase: float = 0.0) -> list[float]:
    """A chirp."""
    return [math.sin(0.3 * k + 0.02 * k * k + phase) for k in range(n)]


def window(name: str, n: int) -> list[float]:
    """Hann's without its zero, or one that is not symmetric."""
    if name == "hann":
        return [0.5 - 0.5 * math.cos(2 * math.pi * (k + 0.5) / n) for k in range(n)]
    return [(k + 1) / n for k in range(n)] if name == "rise" else [1.0] * n


def main() -> None:
    """Write the file."""
    import torch

    out = []
    for case in CASES:
        c = dict(case)
        n, n_fft = c.pop("length"), c["n_fft"]
        w = torch.tensor(window(c.pop("window", "ones"), c.get("win_length", n_fft)), dtype=torch.float64)
        x = torch.tensor(signal(n), dtype=torch.float64)
        if c.pop("complex", False):
            x = torch.complex(x, torch.tensor(signal(n, 1.0), dtype=torch.float64))
        y = torch.stft(x, window=w, return_complex=True, **c)
        back = {k: v for k, v in c.items() if k != "pad_mode"}
        entry = dict(case, re=y.real.tolist(), im=y.imag.tolist())
        if not x.is_complex() and case.get("center", True):
            entry["back"] = torch.istft(y, window=w, **back).tolist()
        out.append(entry)
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "stft.json"
    path.write_text("[\n" + ",\n".join(json.dumps(e) for e in out) + "\n]\n")


if __name__ == "__main__":
    main()
