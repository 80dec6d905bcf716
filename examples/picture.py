# SPDX-License-Identifier: Apache-2.0
"""Draws build/demo.png from what the two examples left behind.

    build/venv/bin/python examples/picture.py LOG EMBEDDINGS.npy OUT.png

LOG is the output of the digits example; the curve of its training is on the
left, the similarity of the sentences of embed.py on the right.
"""

import re
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from embed import SENTENCES


def curve(path: str) -> np.ndarray:
    """(epochs, 3): epoch, loss, accuracy on the held-out digits."""
    line = re.compile(r"epoch +(\d+) +loss +([\d.]+) +held out +([\d.]+)")
    with open(path) as f:
        rows = [m.groups() for m in map(line.search, f) if m]
    return np.array(rows, dtype=float)


def main() -> None:
    log, vectors, out = sys.argv[1:4]
    epoch, loss, accuracy = curve(log).T
    e = np.load(vectors)
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(14, 6), width_ratios=[1, 1.35]
    )
    left.plot(epoch, loss, color="tab:orange", label="training loss")
    left.set_yscale("log")
    left.set_xlabel("epoch")
    left.set_ylabel("cross entropy")
    twin = left.twinx()
    twin.plot(epoch, 100 * accuracy, color="tab:blue")
    twin.set_ylabel("held-out digits right (%)", color="tab:blue")
    left.set_title(f"digits.c: {100 * accuracy[-1]:.1f} % of 360 held out")
    image = right.imshow(e @ e.T, vmin=0, vmax=1, cmap="viridis")
    right.set_yticks(range(len(SENTENCES)), SENTENCES, fontsize=8)
    right.set_xticks(range(len(SENTENCES)))
    right.set_title("embed.py: cosine similarity, all-MiniLM-L6-v2")
    fig.colorbar(image, ax=right, shrink=0.8)
    fig.tight_layout()
    fig.savefig(out, dpi=110)
    print(f"picture in {out}")


if __name__ == "__main__":
    main()
