# SPDX-License-Identifier: Apache-2.0
"""Native code for compiled functions: equal bits, modes, what is said without it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPARE = ROOT / "tests/sweep/native.py"


def run(code: str | list[str], **env: str) -> subprocess.CompletedProcess:
    args = ["-c", code] if isinstance(code, str) else code
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=280,
                          env={**os.environ, **env})


ABOUT = f"""
import sys
sys.path.insert(0, {str(COMPARE.parent)!r})
import native
i = native.info()
"""


@pytest.fixture(scope="session")
def llvm() -> None:
    """Skips where there is no provider, or the processor is too old for it."""
    got = run(ABOUT + "print(i.why_not.decode() if i.why_not else '')")
    assert got.returncode == 0, got.stderr
    if got.stdout.strip():
        pytest.skip(f"no native code: {got.stdout.strip()}")
    tier = run("import marram.core as mx; print(mx.cpu_tier() if hasattr(mx, 'cpu_tier') else '')").stdout.strip()
    if tier == "baseline":
        pytest.skip("no native code on the baseline tier")


def compare(*what: str, **env: str) -> None:
    got = run([str(COMPARE), *what], MARRAM_JIT="now", **env)
    last = got.stdout.strip().splitlines()[-1:]
    numbers = re.findall(r"\d+", last[0]) if last else []
    assert got.returncode == 0, got.stdout + got.stderr
    compared, differed, steps, failed, _ = map(int, numbers)
    assert compared > 100 and differed == 0 and failed == 0
    assert steps > compared / 2  # that it was native


@pytest.mark.parametrize("tier", ["", "avx2"])
@pytest.mark.parametrize("what", ["ops", "casts", "chains", "rows"])
def test_native__has_the_interpreters_bits(llvm: None, what: str, tier: str) -> None:
    compare(what, MARRAM_CPU=tier)


@pytest.mark.parametrize("seed", range(4))
def test_native__random_programs_equal_eager(llvm: None, seed: int) -> None:
    compare("fuzz", str(100 + seed), "150", MARRAM_CPU="avx2" if seed == 3 else "")


@pytest.mark.parametrize("tier", ["", "avx2"])
@pytest.mark.parametrize("what", ["chains", "rows"])
def test_native__quick_code_has_the_interpreters_bits(llvm: None, what: str, tier: str) -> None:
    compare("quick", what, MARRAM_CPU=tier)


def test_native__quick_code_of_random_programs_equals_eager(llvm: None) -> None:
    compare("quick", "fuzz", "104", "150")


MANY = """
import numpy as np
import marram.core as mx

def layer_norm(x):
    d = x - mx.mean(x, -1, keepdims=True)
    return d * mx.rsqrt(mx.mean(d * d, -1, keepdims=True) + 1e-5)

def chain(x):
    return mx.abs(x * 1.5 + 0.25) * x, x - 2.0

def softmax(x):
    e = mx.exp(x - mx.max(x, -1, keepdims=True))
    return e / mx.sum(e, -1, keepdims=True)

for f, dtype, shape in (
        (layer_norm, mx.bfloat16, (8192, 1024)), (layer_norm, mx.bfloat16, (8200, 1031)),  # aligned and not
        (layer_norm, mx.float32, (4200, 1040)), (softmax, mx.float16, (8200, 1040)), (softmax, mx.float32, (140, 32000)),
        (chain, mx.float32, (4200, 1001)), (chain, mx.float64, (2100, 1040)), (chain, mx.bfloat16, (8200, 1040))):
    x = mx.array(np.random.default_rng(5).standard_normal(shape).astype("f4")).astype(dtype)
    with_code, without = mx.compile(f)(x), f(x)
    for a, b in zip(*(y if isinstance(y, tuple) else (y,) for y in (with_code, without))):
        a, b = (np.array(y.astype(mx.float64)) for y in (a, b))
        assert np.array_equal(a, b), (f, dtype, shape)
print("equal")
"""


@pytest.mark.parametrize("tier", ["", "avx2"])
def test_many_results__past_the_caches_have_the_same_bits(llvm: None, tier: str) -> None:
    got = run(MANY, MARRAM_JIT="now", MARRAM_CPU=tier)
    assert got.stdout == "equal\n", got.stderr


HOT = ABOUT + """
import numpy as np, marram.core as mx
def f(x, y):
    return mx.exp(-x * y) + mx.maximum(x, 0.25) * y
x, y = (mx.array(np.random.default_rng(k).standard_normal(300000).astype("f4")) for k in (1, 2))
want = np.array(f(x, y))
g = mx.compile(f)
for _ in range(100):
    assert (np.array(g(x, y)) == want).all()
native.library().mr_test_jit_wait()
for _ in range(3):
    assert (np.array(g(x, y)) == want).all()
i = native.info()
print(i.mode.decode(), i.loaded, i.steps, i.failed)
"""


def test_background__swaps_code_into_a_hot_program(llvm: None) -> None:
    got = run(HOT, MARRAM_JIT="background")
    assert got.stdout.split() == ["background", "True", "1", "0"], got.stderr


def test_background__a_loss_of_many_points_is_hot_as_well(llvm: None) -> None:
    """Its cost is that of the points, though one number comes out."""
    got = run(HOT.replace("return mx", "return (mx").replace(") * y\nx, y", ") * y).mean()\nx, y"), MARRAM_JIT="background")
    assert got.stdout.split() == ["background", "True", "1", "0"], got.stderr


TWICE = HOT.replace("range(100)", "range(400)")
TWICE = TWICE.replace("for _ in range(3)", """while native.info().compiled < 2 and time.perf_counter() < end:
    assert (np.array(g(x, y)) == want).all()
for _ in range(3)""").replace("import numpy", "import time; end = time.perf_counter() + 60\nimport numpy")


def test_background__woven_code_follows_in_a_hotter_program(llvm: None) -> None:
    """Two pieces of code for the one step, and the same bits before, between and after."""
    got = run(TWICE + "print(i.compiled, 0 < i.waited < 30)", MARRAM_JIT="background")
    assert got.stdout.split() == ["background", "True", "1", "0", "2", "True"], got.stdout + got.stderr


IS_LOADED = "print(any(name in open('/proc/self/maps').read() for name in ('LLVM', 'marram-jit')))"


def test_off__loads_no_llvm() -> None:
    got = run(HOT + IS_LOADED, MARRAM_JIT="off")
    assert got.stdout.split() == ["off", "False", "0", "0", "False"], got.stderr


def test_cold__loads_no_llvm() -> None:
    """Small programs that run a few times never start the compiler."""
    got = run("import marram.core as mx; f = mx.compile(lambda x: mx.exp(x) + x); "
              "[mx.eval(f(mx.ones(8))) for _ in range(50)]; " + IS_LOADED, MARRAM_JIT="background")
    assert got.stdout.strip() == "False", got.stderr


def test_warm__llvm_is_loaded_before_a_program_is_hot(llvm: None) -> None:
    got = run(ABOUT + "import marram.core as mx; f = mx.compile(lambda x: mx.exp(x) + mx.tanh(x)); x = mx.ones(1200000)\n"
              "f(x)\nnative.library().mr_test_jit_wait()\ni = native.info(); print(i.loaded, i.steps)", MARRAM_JIT="background")
    assert got.stdout.split() == ["True", "0"], got.stderr


def test_without_a_provider__everything_stays_on_the_interpreter() -> None:
    got = run(HOT, MARRAM_JIT="now", MARRAM_PROVIDER_PATH="")
    assert got.stdout.split() == ["now", "False", "0", "0"], got.stderr
    assert got.stderr == ""


def test_broken_provider__is_said_once(tmp_path: Path) -> None:
    (tmp_path / "libmarram-jit.so").write_text("not an object file")
    got = run(HOT + "print(mx.ones(2))", MARRAM_JIT="now", MARRAM_PROVIDER_PATH=str(tmp_path))
    assert got.returncode == 0
    assert got.stderr.count("no native code for compiled programs") == 1


def test_unknown_mode__is_an_error_that_says_so() -> None:
    got = run("import marram.core as mx\nf = mx.compile(lambda x: x + 1)\n"
              "print((mx.ones(3) + 1).tolist())\nf(mx.ones(3))", MARRAM_JIT="fast")
    assert got.stdout == "[2.0, 2.0, 2.0]\n"  # importing and all else works
    assert got.returncode == 1 and "line 4" in got.stderr and "ValueError" in got.stderr
    assert "MARRAM_JIT is 'fast': it may be off, background or now" in got.stderr


def test_exit__joins_the_compile_thread(llvm: None) -> None:
    """The process ends while LLVM is at work, and ends well."""
    got = run("import marram.core as mx; x = mx.ones(1000000)\n"
              "for k in range(30):\n"
              "    mx.eval(mx.compile(lambda x, k=k: mx.exp(x * k) + mx.sin(x) ** k)(x))\n", MARRAM_JIT="background")
    assert got.returncode == 0 and got.stderr == ""


def test_exit__amid_a_compilation_is_no_crash(llvm: None) -> None:
    """At whatever point of it: nothing that LLVM is using is destroyed."""
    processes = [subprocess.Popen([sys.executable, "-c", f"""
import time, marram.core as mx
x = mx.ones(1000000).astype(mx.bfloat16)
f = mx.compile(lambda x: mx.exp(x * 1.5) + mx.abs(x) * x)
for _ in range({4 + i}):
    mx.eval(f(x))
time.sleep({i % 5} * 0.004)
"""], env={**os.environ, "MARRAM_JIT": "background"}) for i in range(16)]
    assert [p.wait(120) for p in processes] == [0] * 16


def test_fork__child_compiles_too(llvm: None) -> None:
    got = run(HOT + """
import os
pid = os.fork()
g = mx.compile(lambda x, y: mx.tanh(x) * y - x)
for _ in range(60):
    assert (np.array(g(x, y)) == np.array(mx.tanh(x) * y - x)).all()
native.library().mr_test_jit_wait()
steps = native.info().steps
if pid == 0:
    os._exit(0 if steps == i.steps + 1 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), steps - i.steps)
""", MARRAM_JIT="background")
    assert got.stdout.split()[-2:] == ["0", "1"], got.stdout + got.stderr


def test_command__says_what_native_code_there_is() -> None:
    command = Path(os.environ.get("MARRAM_BUILD", ROOT / "build")) / "bin/marram"
    said = subprocess.run([command], capture_output=True, text=True, env={**os.environ, "MARRAM_JIT": "now"}).stdout
    why = run(ABOUT + "print(i.why_not.decode() if i.why_not else '')").stdout.strip()
    assert f"native code: {'none, ' + why if why else 'LLVM, MARRAM_JIT=now'}\n" in said
