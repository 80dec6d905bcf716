# SPDX-License-Identifier: Apache-2.0
"""Prints the worst error of each function over tests/golden/precision.npz.

A program of its own, since MARRAM_CPU is read once a process; test_precision.py
runs it in each tier.  Lines: name, dtype, error, point.  Errors of real
functions are in units in the last place of the right value, of complex ones
|error| / |value| in units of the type's epsilon.
"""

import sys

import marram.core as mx
import numpy as np

np.seterr(all="ignore")


def real_error(got, y, width):
    """logaddexp near 0 is a difference of larger numbers: see there."""
    ulp = np.spacing(np.abs(y[:, 0]).astype(width)).astype(float)
    return np.abs((got.astype(float) - y[:, 0]) - y[:, 1]) / ulp


def complex_error(got, y, dtype):
    f = np.finfo(dtype)
    size = np.maximum(np.abs(y), float(f.smallest_normal))
    scaled = (got - y) / size
    return np.hypot(scaled.real, scaled.imag) / float(f.eps)


def main():
    table = np.load(sys.argv[1])
    for key in sorted(k[:-2] for k in table.files if k.endswith("/x")):
        name, dtype = key.split("/")
        x, y = table[key + "/x"], table[key + "/y"]
        columns = x.T if x.ndim == 2 else [x]
        got = np.array(getattr(mx, name)(*[mx.array(c, dtype=getattr(mx, dtype)) for c in columns]))
        if name == "logaddexp":
            # The error of the larger operand is in the result, and an angle
            # may differ by whole turns.
            if dtype.startswith("complex"):
                got = got - 2j * np.pi * np.round((got - y).imag / (2 * np.pi))
                error = np.abs(got - y) / np.maximum(np.abs(x).max(1), np.abs(y)) / float(np.finfo(dtype).eps)
            else:
                large = np.maximum(np.abs(x).max(1), np.abs(y[:, 0])).astype(dtype)
                error = np.abs(got.astype(float) - y.sum(1)) / np.spacing(large).astype(float)
        elif dtype.startswith("float"):
            error = real_error(got, y, dtype)
        else:
            error = complex_error(got, y, dtype)
            if name == "power":  # an ULP of the angle Im b log|a| turns the result
                error = error / (1 + np.abs(x[:, 1]) * np.abs(np.log(x[:, 0])))
        error = np.where(np.isnan(error), np.inf, error)
        k = int(np.argmax(error))
        print(name, dtype, float(error[k]), repr(x[k].tolist()).replace(" ", ""))


main()
