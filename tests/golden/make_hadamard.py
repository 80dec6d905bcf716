#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes hadamard.txt: the matrices of order 12, 20 and 28 as MLX has them.

usage: make_hadamard.py  (needs mlx and NumPy)

Line i of a matrix is the transform of unit vector i, + or - for each entry.
"""

from pathlib import Path

import mlx.core as mx
import numpy as np

with open(Path(__file__).parent / "hadamard.txt", "w") as f:
    for m in (12, 20, 28):
        for row in np.array(mx.hadamard_transform(mx.eye(m), scale=1.0)):
            f.write("".join("+" if v > 0 else "-" for v in row) + "\n")
