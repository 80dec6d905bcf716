# SPDX-License-Identifier: Apache-2.0
"""tools/gen on small tables: what it makes, and what it refuses where."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GEN = ROOT / "tools/gen/gen.py"
SAMPLE = ROOT / "tests/gen/sample"
CC = shutil.which("cc") or shutil.which("gcc")
CXX = shutil.which("c++") or shutil.which("g++")


def gen(*args):
    return subprocess.run([sys.executable, "-B", GEN, *map(str, args)], capture_output=True, text=True, timeout=60)


@pytest.fixture
def made(tmp_path):
    """The root of a small table with all that is made of it."""
    root = tmp_path / "root"
    shutil.copytree(SAMPLE, root)
    r = gen("--root", root, "--build", tmp_path / "gen", "--update")
    assert r.returncode == 0, r.stderr
    return root


def table(tmp_path, text):
    (tmp_path / "api").mkdir()
    (tmp_path / "api/x.toml").write_text(text)
    return gen("--root", tmp_path, "--build", tmp_path / "gen")


GOOD = '[f]\nid = 20\nargs = ["a: array"]\ndoc = "F."\nexample = ">>> f()\\n1"\nc = "mr_f()"\n'
SHOWN = 'example = ">>> g()\\n1"\nc = "mr_{}()"\n'


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (GOOD + "colour = 3\n", 7, "unknown key 'colour'"),
        (GOOD + '\n[g]\nid = 20\nargs = ["a: array"]\ndoc = "G."\n' + SHOWN.format("g"), 9, "id 20 is taken by f"),
        (GOOD.replace("array", "matrix"), 3, "unknown type 'matrix'"),
        (GOOD + "\n\n[g]\nargs = [\n  'a: array',\n  'b: nothing',\n]\ndoc='G.'\n", 12, "unknown type 'nothing'"),
        (GOOD.replace("20", '"20"'), 2, "'id' has the wrong type"),
        (GOOD.replace("20", "true"), 2, "'id' has the wrong type"),
        (GOOD.replace("20", "9"), 2, "outside 10"),
        (GOOD.replace("a: array", "a array"), 3, "is not NAME: TYPE = DEFAULT"),
        (GOOD.replace("a: array", "a: bool?"), 3, "cannot be None"),
        (GOOD.replace("a: array", "a: int = x"), 3, "no literal"),
        (GOOD.replace("a: array", "a: int = 1.5"), 3, "does not fit"),
        (GOOD.replace("a: array", "a: int = True"), 3, "does not fit"),
        (GOOD.replace("a: array", "a: array = 1"), 3, "does not fit"),
        (GOOD.replace("a: array", 'a: int = 1", "b: int'), 3, "needs a default"),
        (GOOD.replace("a: array", 'a: int", "a: int'), 3, "'a' is taken"),
        (GOOD.replace("a: array", "*a: ints"), 3, "only 'arrays' can be variadic"),
        (GOOD + 'door = "side"\n', 7, "unknown door"),
        (GOOD + 'promote = "same"\n', 7, "unary and binary doors"),
        (GOOD + 'door = "binary"\npromote = "same"\n', 3, "has 2 arrays"),
        (GOOD + 'door = "unary"\npromote = "up"\n', 8, "unknown promote"),
        (GOOD + 'module = "core.x"\n', 7, "unknown module"),
        (GOOD + 'returns = "x"\n', 7, "unknown returns"),
        (GOOD + 'aliases = ["f"]\n', 7, "is taken by f"),
        (GOOD + "spread = true\n", 3, "'spread' wants a list"),
        (GOOD.replace("a: array", "a: int") + "method = true\n", 3, "a method's first argument"),
        (GOOD + "method = true\npython = false\n", 7, "a method needs"),
        ('[f]\nargs = []\n', 1, "needs 'doc'"),
        ('[f]\ndoc = "x"\n', 1, "needs 'args'"),
        ('[f]\npublic = false\n', 2, "neither public nor an operator"),
        ('[data]\nid = 10\npublic = false\n', 1, "the graph itself"),
        (GOOD + '\n[f_at]\nargs = []\ndoc = "x"\n' + SHOWN.format("f_at"), 8, "mr_f_at is taken by f"),
        (GOOD + "x = = 1\n", 7, "Invalid"),
        (GOOD.replace("example", "doc2"), 5, "unknown key 'doc2'"),
        (GOOD.replace('example = ">>> f()\\n1"\n', ""), 1, "needs an 'example'"),
        (GOOD.replace("\\n1", ""), 5, "what the last one prints"),
        (GOOD.replace('c = "mr_f()"\n', ""), 1, "needs 'c'"),
        (GOOD.replace("mr_f()", "mr_g()"), 6, "the call mr_f(...)"),
    ],
)  # fmt: skip
def test_refusal__names_file_and_line(tmp_path, text, line, message):
    r = table(tmp_path, text)
    assert r.returncode == 1
    assert r.stderr.startswith(f"api/x.toml:{line}:"), r.stderr
    assert message in r.stderr


def test_check__names_what_is_stale(made):
    assert gen("--root", made, "--check").returncode == 0
    page = made / "docs/reference/sample.md"
    page.write_text(page.read_text() + "more\n")
    (made / "docs/reference/gone.md").write_text("x")
    (made / "include/marram/ops.h").unlink()
    r = gen("--root", made, "--check")
    assert r.returncode == 1
    for name in ("docs/reference/sample.md", "docs/reference/gone.md", "include/marram/ops.h"):
        assert f"{name}: stale" in r.stderr
    assert gen("--root", made, "--update").returncode == 0
    assert not (made / "docs/reference/gone.md").exists()
    assert gen("--root", made, "--check").returncode == 0


def test_build__unchanged_files_keep_their_time(made, tmp_path):
    path = tmp_path / "gen/doors.c"
    before = path.stat().st_mtime_ns
    gen("--root", made, "--build", tmp_path / "gen")
    assert path.stat().st_mtime_ns == before


def test_header__has_the_three_names_of_an_operator(made):
    text = (made / "include/marram/ops/sample.h").read_text()
    for line in (
        "MR_API mr_array *mr_add_at(const char *site, mr_array *a, mr_array *b);",
        "MR_API mr_array *mr_add(mr_array *a, mr_array *b);",
        "#define mr_add(...) mr_add_at(MR_SITE, __VA_ARGS__)",
        "#define mr_atan2(...) mr_atan2_at(MR_SITE, __VA_ARGS__)",
        "MR_API mr_array *mr_fft_fft(",
        "MR_API mr_tree *mr_meshgrid(mr_array *const *arrays, int n_arrays, bool sparse,",
        " * Absent: axis MR_AXES_ALL. */",
    ):
        assert line in text
    assert "gather" not in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.skipif(not CC or not CXX, reason="no compiler")
def test_header__compiles_as_c17_and_cpp17(made, tmp_path):
    for name, command in (("x.c", [CC, "-std=c17"]), ("x.cpp", [CXX, "-std=c++17"])):
        source = tmp_path / name
        source.write_text('#include "marram/ops.h"\nint main(void) { return mr_add == 0; }\n')
        include = [f"-I{made}/include", f"-I{ROOT}/include"]
        flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-Wno-address", "-fsyntax-only"]
        r = subprocess.run([*command, *flags, *include, source], capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr


@pytest.mark.skipif(not CC, reason="no compiler")
def test_sources__compile(made, tmp_path):
    build = tmp_path / "gen"
    include = [f"-I{made}/include", f"-I{build}", f"-I{ROOT}/include", f"-I{ROOT}/src"]
    flags = ["-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wshadow", "-Wmissing-prototypes", "-Werror", "-fsyntax-only"]
    for name in ("doors.c", "op_table.c"):
        r = subprocess.run([CC, *flags, *include, build / name], capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr


def test_doors__of_each_kind(made, tmp_path):
    text = (tmp_path / "gen/doors.c").read_text()
    for line in (
        "    return mr__door_binary(site, &mr__op_add, a, b, MR_PROMOTE_SAME);",
        "    return mr__door_unary(site, &mr__op_exp, a, MR_PROMOTE_FLOAT);",
        "        result = mr__build_sum(a, axis, keepdims);",
        '    if (!mr__door_open(&frame, site, "clip", 3, in, names))',
        '    if (needed(a, "a"))',
        '    if (list_ok("arrays", n_arrays, arrays))',
        "    return mr__door_close_tree(&frame, result);",
        "    return mr_arctan2_at(site, a, b);",
    ):
        assert line in text


def test_ids__are_the_records_and_the_graphs_own(made, tmp_path):
    text = (tmp_path / "gen/gen/ids.h").read_text()
    for line in ("MR_OP_DATA = 1,", "MR_OP_OUTPUT = 4,", "MR_OP_ADD = 40,", "MR_OP_GATHER = 65"):
        assert line in text
    assert "MESHGRID" not in text
    assert "[65] = &mr__op_gather," in (tmp_path / "gen/op_table.c").read_text()


BUILD = Path(os.environ.get("MARRAM_BUILD", ROOT / "build"))


@pytest.mark.skipif(not shutil.which("ninja") or not (BUILD / "build.ninja").exists(), reason="no build by ninja")
def test_build__links_the_package_once():
    for _ in range(2):
        said = subprocess.run(["ninja", "-C", BUILD, "marram_python_files"], capture_output=True, text=True, timeout=60)
    assert "no work to do" in said.stdout, said.stdout + said.stderr


def test_python__specs_and_stubs(made, tmp_path):
    text = (tmp_path / "gen/py_functions.c").read_text()
    assert '"sum(a, /, axis=None, keepdims=False, *, stream=None)\\n"' in text
    assert '"sum($self, /, axis=None, keepdims=False, *, stream=None)\\n"' in text
    assert '"reshape($self, /, *shape, stream=None)\\n"' in text
    assert "static const int32_t d_fft_fft_axes[] = {-2, -1};" in text
    assert '{"norm", EXT_STR, EXT_DEFAULT, {.s = "backward"}}' in text
    stub = (made / "python/marram/core/__init__.pyi").read_text()
    assert "def meshgrid(" in stub
    assert "def add(a: scalar | array, b: scalar | array, stream: StreamOrDevice = None) -> array: ..." in stub
    page = (made / "docs/reference/sample.md").read_text()
    assert "## marram.core.fft.fft" in page
    assert "Other names: `atan2`." in page
