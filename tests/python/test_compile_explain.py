"""What a compiled function says of its programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import marram.core as mx
import pytest


def test_explain__names_kernels_memory_and_reasons() -> None:
    f = mx.compile(lambda x, w: mx.tanh((x @ w) * 1.0 + mx.exp(w[0])) - mx.exp(w[0]))
    x, w = mx.ones((8, 4)), mx.ones((4, 6))
    mx.eval(f(x, w))
    text = f.explain()
    assert "1 program\n" in text
    assert "(float32 (8, 4), float32 (4, 6)) gives float32 (8, 6)" in text
    assert " common, " in text
    assert "1 by algebra" in text
    assert "matmul, followed by add, tanh, subtract  [kernel]" in text
    assert "fused exp" in text
    assert "their points differ" in text
    assert "workspace of" in text
    assert f"{Path(__file__).name}:" in text


def test_explain__has_a_part_for_each_signature_and_layout() -> None:
    f = mx.compile(lambda x: mx.sin(x) @ x)
    assert f.explain().splitlines()[0].endswith("0 programs")
    mx.eval(f(mx.ones((4, 4))), f(mx.ones((5, 5))))
    x = mx.random.normal((4, 4)).T
    mx.eval(f(x))
    text = f.explain()
    assert text.splitlines()[0].endswith("2 programs")
    assert text.count("for arguments that come so:") == 1
    assert "0 turned" in text
    f.cache_clear()
    assert f.explain().splitlines()[0].endswith("0 programs")


def test_explain__says_which_arguments_are_written_over() -> None:
    f = mx.compile(lambda x: mx.sin(x) * 2.0)
    n = 1 << 16
    mx.eval(f(mx.ones((n,)) + 1.0))
    text = f.explain()
    assert "argument 0 is written over when it is given up" in text
    assert "0 given up" in text


def test_explain__of_nothing_to_compute() -> None:
    f = mx.compile(lambda x: x)
    f(mx.ones(3))
    assert "nothing to compute" in f.explain()


def test_explain__gives_a_graph_for_graphviz() -> None:
    f = mx.compile(lambda x, n: mx.sin(x) @ x * n)
    mx.eval(f(mx.ones((4, 4)), 2), f(mx.ones((5, 5)), 3))
    text = f.explain(form="dot")
    assert text.startswith("digraph marram {\n")
    assert text.endswith("}\n}\n")
    assert text.count("subgraph") == 2
    assert "not joined: it has a kernel of its own" in text
    assert f.explain("text") == f.explain()
    with pytest.raises(ValueError, match="form is 'svg': it may be 'text' or 'dot'"):
        f.explain("svg")  # type: ignore[arg-type]


def test_explain__says_what_it_was_called_with() -> None:
    f = mx.compile(lambda x, n, *, key: x * n + len(key))
    mx.eval(f(mx.ones(3), 2.5, key="a\nb"))
    assert "called with argument 'n': 2.5\n" in f.explain()
    assert "float32 (3,)" in f.explain()


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """``python -m marram graph`` with these words."""
    return subprocess.run(
        [sys.executable, "-m", "marram", "graph", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_graph_command__prints_the_same_of_a_file(tmp_path: Path) -> None:
    source = tmp_path / "model.py"
    source.write_text(
        "import marram.core as mx\n\n\ndef loss(w, x):\n    return mx.tanh(x @ w).square().sum()\n"
    )
    plain = command(f"{source}:loss", "float32[3,2]", "float32[8,3]")
    assert plain.returncode == 0, plain.stderr
    assert "(float32 (3, 2), float32 (8, 3)) gives float32 ()" in plain.stdout
    grad = command(f"{source}:loss:grad", "float32[3,2]", "float32[8,3]")
    assert "gives float32 (), float32 (3, 2)" in grad.stdout
    dot = command("--dot", f"{source}:loss", "float32[3,2]", "float32[8,3]")
    assert dot.stdout.startswith("digraph marram {\n")
    assert "FILE:FUNCTION" in command("--dot").stderr


def test_graph_command__passes_values_and_names(tmp_path: Path) -> None:
    source = tmp_path / "model.py"
    source.write_text(
        "import marram.core as mx\n\n\ndef f(x, scale, how, *, axis=0, keep=None):\n"
        "    assert how == 'mean' and keep == (True, None)\n    return (x * scale).mean(axis)\n"
    )
    r = command(f"{source}:f", "float32[8,3]", "0.5", "'mean'", "axis=1", "keep=(True, None)")
    assert r.returncode == 0, r.stderr
    assert "gives float32 (8,)" in r.stdout
    assert "called with argument 'scale': 0.5" in r.stdout
    r = command(f"{source}:f", "float32[8,3]", "scale=float32[]", "how='mean'", "keep=(True, None)")
    assert "(float32 (8, 3), float32 ()) gives float32 (3,)" in r.stdout, r.stderr


def test_graph_command__help_is_on_standard_output() -> None:
    r = command("--help")
    assert (r.returncode, r.stderr) == (0, "") and "axis=1" in r.stdout


def test_graph_command__says_what_is_wrong(tmp_path: Path) -> None:
    assert "float32[64,32], nor a value such as 3" in command("math:sin", "float32").stderr
    assert command(f"{tmp_path}/none.py:f").returncode == 1
    assert "FILE:FUNCTION" in command("math").stderr
    assert "usage" in command().stderr
