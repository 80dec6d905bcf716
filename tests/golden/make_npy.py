#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the npy files of this folder with NumPy.

usage: make_npy.py [FOLDER]

They are committed: the tests read files that another program wrote, and need
no NumPy.  Each holds 0, 1, 2, ... in row-major order (complex ones k - k*1j),
so one check does for all.
"""

import pathlib
import sys

import numpy as np
from numpy.lib import format as npy


def count(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """0, 1, 2, ... of a dtype, complex ones with minus that imaginary."""
    k = np.arange(int(np.prod(shape))).reshape(shape)
    if np.dtype(dtype).kind == "c":
        return (k - 1j * k).astype(dtype)
    return k.astype(dtype)


def main() -> None:
    """Write all files."""
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
    folder = folder if folder.is_dir() else folder.parent / "npy"
    dtypes = "u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8 c8 c16".split()
    for dtype in dtypes:
        np.save(folder / f"little_{dtype}.npy", count((2, 3), "<" + dtype))
        if dtype not in ("u1", "i1"):
            np.save(folder / f"big_{dtype}.npy", count((2, 3), ">" + dtype))
    np.save(folder / "bool.npy", count((2,), "bool"))
    np.save(folder / "zero_d.npy", count((), "<f4"))
    np.save(folder / "empty.npy", count((2, 0, 3), "<f4"))
    np.save(folder / "fortran.npy", np.asfortranarray(count((2, 3, 4), "<i4")))
    np.save(
        folder / "fortran_big.npy", np.asfortranarray(count((2, 3, 4), ">i2"))
    )
    for version in ((2, 0), (3, 0)):
        with open(folder / f"version_{version[0]}.npy", "wb") as f:
            npy.write_array(f, count((2, 3), "<f4"), version=version)


if __name__ == "__main__":
    main()
