"""``marram graph``: runs a program and shows its compiled functions."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MARRAM_BUILD", ROOT / "build"))
MARRAM = BUILD / "bin/marram"

PROGRAM = """
import marram.core as mx

@mx.compile
def loss(x, w, n):
    return mx.tanh((x @ w) * n + mx.exp(w[0])) - mx.exp(w[0])

mx.eval(loss(mx.ones((8, 4)), mx.ones((4, 6)), 3))
norm = mx.compile(lambda x: mx.softmax(mx.sin(x)))
mx.eval(norm(mx.ones((5, 7))))
"""


def graph(*words: str | Path, folder: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MARRAM, "graph", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **({"TMPDIR": str(folder)} if folder else {}), **env},
    )


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|->|[A-Za-z_][\w]*|[-\d.]+|[{}\[\];,=]|//[^\n]*)')


def tokens(text: str) -> list[str]:
    """The words of the DOT language in the text, all of it."""
    at, words = 0, []
    while text[at:].strip():
        m = TOKEN.match(text, at)
        assert m, text[at : at + 80]
        words += [] if m[1].startswith("//") else [m[1]]
        at = m.end()
    return words


def attributes(words: list[str]) -> dict[str, str]:
    """[a=b, c=d] from the front of the words."""
    found: dict[str, str] = {}
    assert words.pop(0) == "["
    while words[0] != "]":
        name, equals, value = words.pop(0), words.pop(0), words.pop(0)
        assert equals == "="
        assert name.isidentifier()
        found[name] = value
        if words[0] == ",":
            words.pop(0)
    words.pop(0)
    return found


def parse(text: str) -> tuple[list[str], dict[str, dict[str, str]], list[tuple[str, str, dict[str, str]]]]:
    """Clusters, nodes and arrows; fails where the grammar of DOT would."""
    words = tokens(text)
    clusters: list[str] = []
    nodes: dict[str, dict[str, str]] = {}
    arrows = []
    assert words[:3] == ["digraph", "marram", "{"]
    words, depth = words[3:], 1
    while depth:
        word = words.pop(0)
        if word == "}":
            depth -= 1
        elif word == "subgraph":
            clusters.append(words.pop(0))
            assert words.pop(0) == "{"
            depth += 1
        elif words[0] == "=":
            del words[:2]
            assert words.pop(0) == ";"
        elif words[0] == "->":
            to = words[1]
            del words[:2]
            arrows.append((word, to, attributes(words) if words[0] == "[" else {}))
            assert words.pop(0) == ";"
        else:
            assert word.startswith('"')
            assert word not in nodes
            nodes[word] = attributes(words)
            assert words.pop(0) == ";"
    assert not words
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tplain"], input=text, capture_output=True, text=True, check=True, timeout=60)
    return clusters, nodes, arrows


# ---- what is shown ----------------------------------------------------------


def test_text__of_a_python_program(program: Path) -> None:
    got = graph("--", sys.executable, program)
    assert got.returncode == 0, got.stderr
    assert got.stderr == ""
    assert got.stdout.count(": made by process ") == 2
    assert re.search(r"^loss: made by process \d+\nprogram: \(float32 \(8, 4\), float32 \(4, 6\)\) gives", got.stdout)
    assert "called with argument 'n': 3\n" in got.stdout
    assert "matmul, followed by multiply, add, tanh, subtract  [kernel" in got.stdout
    assert re.search(r"a call takes a workspace of \d+ bytes", got.stdout)
    assert "not joined with step 0: their points differ" in got.stdout
    assert f"{program}:6" in got.stdout


def test_text__of_a_c_program() -> None:
    got = graph(BUILD / "bin/examples/digits")
    assert got.returncode == 0, got.stderr
    assert got.stdout.startswith("epoch")
    assert "\nfunction: made by process " in got.stdout
    assert "called with array 0: float32 (" in got.stdout
    assert "matmul, followed by add, maximum" in got.stdout
    assert re.search(r"examples/digits\.c:\d+", got.stdout)


def test_text__says_the_tier_that_was_reached(program: Path) -> None:
    said = subprocess.run([MARRAM], capture_output=True, text=True, check=True).stdout
    tier = "interpreter" if "native code: none" in said else "native code"
    program.write_text("import marram.core as mx\nmx.eval(mx.compile(lambda x: mx.sin(x) * 2 + 1)(mx.ones(5000)))\n")
    assert f"fused sin, multiply, add  [{tier}]" in graph(sys.executable, program, MARRAM_JIT="now").stdout
    assert "fused sin, multiply, add  [interpreter]" in graph(sys.executable, program, MARRAM_JIT="off").stdout


def test_dot__is_well_formed_and_has_the_reasons(program: Path, tmp_path: Path) -> None:
    to = tmp_path / "graph.dot"
    got = graph("--dot", "--output", to, "--", sys.executable, program)
    assert got.returncode == 0, got.stderr
    assert got.stdout == ""
    clusters, nodes, arrows = parse(to.read_text())
    assert len(clusters) == 2
    assert {n["shape"] for n in nodes.values()} == {"box", "ellipse"}
    assert all(a in nodes and b in nodes for a, b, _ in arrows)
    refused = [a for a in arrows if "not joined: " in a[2].get("label", "")]
    assert refused
    assert all(a[2]["style"] == "dashed" for a in refused)
    assert oct(to.stat().st_mode & 0o777) == oct(0o666 & ~current_umask())
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("graph.dot")] == ["graph.dot"]


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_dot__names_of_users_are_escaped(program: Path) -> None:
    program.write_text("""
import marram.core as mx
def f(x, n):
    return mx.sin(x) * len(n)
f.__name__ = 'a "b" \\\\N -> }\\n&amp; \\u00e9'
mx.eval(mx.compile(f)(mx.ones(3), 'quote " back \\\\ slash \\\\'))
""")
    got = graph("--dot", sys.executable, program)
    clusters, nodes, _ = parse(got.stdout)
    assert len(clusters) == 1
    assert nodes
    assert "\\\"b\\\" \\\\N" in got.stdout
    assert "&amp;amp;" in got.stdout
    assert "\u00e9" in got.stdout


def test_dot__of_nothing_is_a_graph(tmp_path: Path) -> None:
    got = graph("--dot", "true", folder=tmp_path)
    assert parse(got.stdout) == ([], {}, [])
    assert "compiled nothing" in got.stderr
    assert got.returncode == 0


def test_function__names_those_to_be_shown(program: Path) -> None:
    got = graph("--function", "loss", "--", sys.executable, program)
    assert got.stdout.count("made by process") == 1
    assert got.stdout.startswith("loss: ")
    got = graph("--function=nobody", sys.executable, program)
    assert got.stdout == ""
    assert "nobody; there are: loss, <lambda>" in got.stderr


# ---- processes --------------------------------------------------------------


def test_processes__killed_forked_and_spawned_are_all_shown(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    program.write_text(
        PROGRAM
        + """
import os, signal, subprocess, sys
if os.fork() == 0:
    mx.eval(mx.compile(lambda x: x * 2 + 1)(mx.ones(3)))
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
more = "import marram.core as mx; mx.eval(mx.compile(lambda x: mx.sin(x) + 1)(mx.ones(2)))"
subprocess.run([sys.executable, "-c", more], check=True)
os._exit(3)
"""
    )
    got = graph(sys.executable, program, folder=folder)
    assert got.returncode == 3
    assert len(re.findall(r"made by process (\d+)", got.stdout)) == 4
    assert len(set(re.findall(r"made by process (\d+)", got.stdout))) == 3
    assert list(folder.iterdir()) == []


def test_order__is_that_in_which_they_were_made(program: Path) -> None:
    program.write_text("""
import marram.core as mx
f = mx.compile(mx.sin)
for n in range(1, 20):
    mx.eval(f(mx.ones(n)))
""")
    got = graph(sys.executable, program)
    assert re.findall(r"program: \(float32 \((\d+),", got.stdout) == [str(n) for n in range(1, 20)]


# ---- how it ends ------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["sh", "-c", "exit 7"], 7, "compiled nothing"),
        (["sh", "-c", "kill -9 $$"], 128 + 9, "compiled nothing"),
        (["no-such-command-here"], 127, "cannot run no-such-command-here: No such file"),
        (["/etc/passwd"], 126, "cannot run /etc/passwd: Permission denied"),
        (["--output", "/nowhere/x", "true"], 125, "cannot write /nowhere/x: No such file"),
        (["--output", "/", "true"], 125, "cannot write /: Is a directory"),
        ([], 2, "no command is given"),
        (["--"], 2, "no command is given"),
        (["--wrong", "true"], 2, "marram graph: unrecognized option '--wrong'"),
        (["--function"], 2, "requires an argument"),
    ],
)
def test_status__is_the_commands_or_says_why_not(words: list[str], status: int, said: str, tmp_path: Path) -> None:
    got = graph(*words, folder=tmp_path)
    assert got.returncode == status
    assert said in got.stderr
    assert list(tmp_path.iterdir()) == []


def test_output__stays_as_it_was_when_the_command_cannot_run(tmp_path: Path) -> None:
    to = tmp_path / "x.txt"
    to.write_text("before")
    assert graph("--output", to, "no-such-command-here").returncode == 127
    assert to.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["x.txt"]


def test_output__that_is_full_is_an_error(program: Path) -> None:
    got = graph("--output", "/dev/full", sys.executable, program)
    assert got.returncode == 125
    assert "cannot write /dev/full: No space left" in got.stderr


def test_folder__that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    got = graph("true", folder=tmp_path / "none")
    assert got.returncode == 125
    assert "cannot make a folder" in got.stderr


def test_help__is_on_standard_output() -> None:
    got = graph("--help")
    assert got.returncode == 0
    assert got.stdout.startswith("usage: marram graph")
    assert "graph" in subprocess.run([MARRAM, "--help"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals__end_the_command_and_show_what_there_is(number: signal.Signals, program: Path, tmp_path: Path) -> None:
    """SIGTERM is passed on; Ctrl-C goes to the whole group.  A suite that a
    shell runs in the background ignores Ctrl-C, and its children would too.
    """
    folder = tmp_path / "tmp"
    folder.mkdir()
    program.write_text(PROGRAM + "print('ready', flush=True)\nimport time\ntime.sleep(60)\n")
    p = subprocess.Popen(
        [MARRAM, "graph", sys.executable, program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert p.stdout is not None
    assert p.stdout.readline() == "ready\n"
    time.sleep(0.1)
    if number == signal.SIGINT:
        os.killpg(p.pid, number)
    else:
        p.send_signal(number)
    out, _ = p.communicate(timeout=60)
    assert p.returncode in (128 + number, 130, 1)
    assert out.count("made by process") == 2
    assert list(folder.iterdir()) == []


# ---- by hand ----------------------------------------------------------------


def test_variables__work_without_the_command(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "graphs"
    for form in ("text", "dot", "wrong"):
        env = {**os.environ, "MARRAM_GRAPH": str(folder), "MARRAM_GRAPH_FORM": form}
        said = subprocess.run([sys.executable, program], env=env, check=True, capture_output=True, text=True).stderr
        assert ("MARRAM_GRAPH_FORM is 'wrong': it may be text or dot" in said) == (form == "wrong")
    assert len(list(folder.glob("*.txt"))) == 4
    assert len(list(folder.glob("*.dot"))) == 2
    for path in folder.glob("*.dot"):
        assert len(parse(path.read_text())[0]) == 1
    env = {**os.environ, "MARRAM_GRAPH": str(tmp_path / "a/b")}
    said = subprocess.run([sys.executable, program], env=env, check=True, capture_output=True, text=True).stderr
    assert said.count("MARRAM_GRAPH") == 1
