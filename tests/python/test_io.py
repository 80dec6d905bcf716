# SPDX-License-Identifier: Apache-2.0
"""load, save, save_safetensors: paths and file objects."""

import io
from pathlib import Path

import marram.core as mx
import numpy as np
import pytest


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float32", "float64", "complex64"])
def test_npy__goes_both_ways_with_numpy(tmp_path, dtype):
    a = (np.arange(6) % 2).astype(dtype).reshape(2, 3)
    np.save(tmp_path / "a.npy", a)
    x = mx.load(tmp_path / "a.npy")
    assert x.tolist() == a.tolist()
    mx.save(str(tmp_path / "b"), x)
    b = np.load(tmp_path / "b.npy")
    assert b.dtype == a.dtype
    assert (b == a).all()


def test_npy__file_objects(tmp_path):
    f = io.BytesIO()
    mx.save(f, mx.arange(3))
    f.seek(0)
    assert np.load(f).tolist() == [0, 1, 2]
    f.seek(0)
    assert mx.load(f).tolist() == [0, 1, 2]
    with open(tmp_path / "x.npy", "wb") as g:
        mx.save(g, mx.arange(2))
    with open(tmp_path / "x.npy", "rb") as g:
        assert mx.load(g).tolist() == [0, 1]
    assert mx.load(bytes(tmp_path / "x.npy")).tolist() == [0, 1]


def test_safetensors__goes_round(tmp_path):
    arrays = {"w": mx.arange(6, dtype=mx.float32).reshape(2, 3), "h": mx.array([1.5], dtype=mx.bfloat16), "e": mx.zeros((0,))}
    path = tmp_path / "m.safetensors"
    mx.save_safetensors(path, arrays, {"format": "test"})
    got, metadata = mx.load(path, return_metadata=True)
    assert metadata["format"] == "test"
    assert {k: (v.dtype, v.tolist()) for k, v in got.items()} == {k: (v.dtype, v.tolist()) for k, v in arrays.items()}
    assert isinstance(mx.load(str(path)), dict)
    f = io.BytesIO()
    mx.save_safetensors(f, arrays)
    f.seek(0)
    assert mx.load(f)["w"].shape == (2, 3)
    mx.save_safetensors(str(tmp_path / "n"), arrays)
    assert (tmp_path / "n.safetensors").exists()


def test_load__what_is_broken_or_missing(tmp_path):
    path = tmp_path / "bad.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00\xff\xff{")
    for f in (path, tmp_path / "none.npy", io.BytesIO(b"nothing")):
        with pytest.raises(mx.FileError):
            mx.load(f)
    with pytest.raises(ValueError, match="format"):
        mx.load(tmp_path / "x.xyz")
    with pytest.raises(ValueError):
        mx.load(path, format="nothing")
    with pytest.raises(TypeError):
        mx.load(3)
    with pytest.raises(TypeError):
        mx.load(io.StringIO("text"))


def test_save__refusals_leave_the_old_file(tmp_path):
    path = tmp_path / "a.npy"
    mx.save(path, mx.arange(3))
    bad = mx.arange(3)[mx.array([7])]
    with pytest.raises(IndexError):
        mx.save(path, bad)
    assert mx.load(path).tolist() == [0, 1, 2]
    assert [p.name for p in Path(tmp_path).iterdir()] == ["a.npy"]
    with pytest.raises(TypeError):
        mx.save(path, [1])
    with pytest.raises(TypeError):
        mx.save_safetensors(path, {"a": 1})
    with pytest.raises(TypeError):
        mx.save_safetensors(path, {"a": mx.array(1)}, {"k": 1})
    with pytest.raises(mx.FileError):
        mx.save("/nowhere/at/all.npy", mx.array(1))
