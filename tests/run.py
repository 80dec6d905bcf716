#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs parts of the test suite and sums them up.

usage: run.py BUILD PART...

The last line is "N passed, N failed"; the exit status is 1 when any failed.
"""

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOBS = str(os.cpu_count() or 2)
Counts = tuple[int, int]


def title(text: str) -> None:
    print(f"\n== {text}", flush=True)


def script(name: str, *args: str) -> Counts:
    """One passed or failed check: a script that says itself what is wrong."""
    rc = subprocess.run([sys.executable, str(ROOT / name), *args]).returncode
    return (1, 0) if rc == 0 else (0, 1)


# -- the parts -----------------------------------------------------------------
def generated(build: Path) -> Counts:
    """Whether the committed files are what tools/gen makes of api/ today."""
    title("generated files")
    return script("tools/gen/gen.py", "--root", str(ROOT), "--check")


def layers(build: Path) -> Counts:
    title("layers")
    p, f = script("tests/layers/check_layers.py", str(build / "gen"))
    p2, f2 = script("tests/layers/check_concurrency.py")
    p3, f3 = script("tests/layers/check_facts.py")
    return p + p2 + p3, f + f2 + f3


def headers(build: Path) -> Counts:
    title("headers compile alone")
    return script("tests/layers/check_headers.py", str(build))


def exports(build: Path) -> Counts:
    title("exported symbols, optional parts")
    p, f = script("tests/exports/check_exports.py", str(build / "lib/libmarram.so"))
    p2, f2 = script("tests/exports/check_providers.py", str(build))
    p3, f3 = script("tests/exports/check_kernels.py", str(build))
    return p + p2 + p3, f + f2 + f3


def count_cmocka(output: str, ok: bool) -> Counts:
    """The tests of one program, from what cmocka printed."""
    passed = sum(int(n) for n in re.findall(
        r"^\[  PASSED  \].*?(\d+) test\(s\)", output, re.M))
    failed = sum(int(n) for n in re.findall(
        r"^\[  FAILED  \].*?(\d+) test\(s\), listed", output, re.M))
    if not ok and failed == 0:  # crashed, timed out, or a sanitizer's report
        failed = 1
    if ok and passed == 0:  # not a cmocka program
        passed = 1
    return passed, failed


def ctest(build: Path, *args: str) -> Counts:
    xml = build / "test-c.xml"
    xml.unlink(missing_ok=True)
    rc = subprocess.run(
        ["ctest", "--test-dir", str(build), "-j", JOBS, "--output-on-failure",
         "--output-junit", str(xml.resolve()), "--test-output-size-passed",
         "10000000", "--test-output-size-failed", "10000000", *args]
    ).returncode
    if not xml.exists():
        return (0, 0) if rc == 0 else (0, 1)
    # cmocka may print bytes that XML forbids (a test of odd strings).
    text = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "?",
                  xml.read_text(errors="replace"))
    passed = failed = 0
    for case in ET.fromstring(text).iter("testcase"):
        out = case.findtext("system-out") or ""
        p, f = count_cmocka(out, case.get("status") == "run")
        passed += p
        failed += f
    return passed, failed


def c(build: Path) -> Counts:
    title("C")
    return ctest(build)


def slow(build: Path) -> Counts:
    title("C, slow")
    return ctest(build, "-C", "slow", "-L", "slow")


def pytest(build: Path, *args: str, **env: str) -> Counts:
    xml = build / "test-python.xml"
    xml.unlink(missing_ok=True)
    rc = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         f"--junit-xml={xml}", *args], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str((build / "python").resolve()),
             "MARRAM_BUILD": str(build.resolve()),
             "PYTHONDONTWRITEBYTECODE": "1",
             # no compile thread among counted allocations; test_jit.py has it
             "MARRAM_JIT": "off", **env}).returncode
    if rc == 5:  # there was nothing to run
        return (0, 0)
    if not xml.exists():
        return (0, 1)
    suite = next(ET.parse(xml).iter("testsuite"))
    n = {k: int(suite.get(k, "0"))
         for k in ("tests", "failures", "errors", "skipped")}
    bad = n["failures"] + n["errors"]
    if rc != 0 and bad == 0:
        bad = 1
    return max(n["tests"] - n["skipped"] - n["failures"] - n["errors"], 0), bad


def python(build: Path) -> Counts:
    if not (ROOT / "tests/python").is_dir():
        return (0, 0)
    title("Python")
    return pytest(build, "-n", JOBS, "-m", "not slow", "tests/python")


def python_slow(build: Path) -> Counts:
    if not (ROOT / "tests/python").is_dir():
        return (0, 0)
    title("Python, slow")
    return pytest(build, "-m", "slow", "tests/python")


def library_of_compiler(name: str) -> str:
    """The path of a library that the compiler brings."""
    cc = os.environ.get("CC", "cc")
    return subprocess.run([cc, f"-print-file-name={name}"], text=True,
                          capture_output=True).stdout.strip()


def sanitized(build: Path, *args: str, **env: str) -> Counts:
    """The Python tests under a sanitizer, with each of its reports shown.

    A report ends its process, and pytest keeps what a test's process has
    written to stderr, which goes with it.  So reports are written to files;
    one that no failing test has told of counts as a failure too.
    """
    folder = build.resolve() / "reports"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")
    options = {name: f"{env.get(name, '')}:log_path={folder}/report" for name in names}
    passed, failed = pytest(build, *args, **{**env, **options})
    reports = [f for f in sorted(folder.iterdir()) if f.stat().st_size]
    for file in reports:
        print(f"\n== {file}\n{file.read_text(errors='replace')}", flush=True)
    return passed, max(failed, len(reports))


def python_asan(build: Path) -> Counts:
    """The Python tests with the sanitizer's runtime loaded first.

    CPython itself leaks on purpose, so only the C tests look for leaks; and
    the tests that count blocks need its own allocator, which is off here so
    that the sanitizer sees each object.  No memory is an answer here too, not
    the end of the process.
    """
    if not (ROOT / "tests/python").is_dir():
        return (0, 0)
    title("Python, under the address sanitizer")
    runtimes = [library_of_compiler(name) for name in ("libasan.so", "libstdc++.so.6")]
    return sanitized(build, "-n", JOBS, "-m", "not slow", "-k", "not leak_nothing", "tests/python",
                     LD_PRELOAD=":".join(runtimes), PYTHONMALLOC="malloc", UBSAN_OPTIONS="print_stacktrace=1",
                     ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=12288")


THREADED = ("compiled", "debug", "gaps", "lives", "process", "signals", "streams")


def python_tsan(build: Path) -> Counts:
    """The Python tests with threads, the thread sanitizer's runtime loaded
    first: the interpreter's own locks are seen, its memory is not.  A report
    ends its test's process with a failure.

    Address space layout is left as it is linked, which the runtime needs; and
    children of fork, which it knows not, are left out.
    """
    if not (ROOT / "tests/python").is_dir():
        return (0, 0)
    title("Python, under the thread sanitizer")
    return sanitized(build, "-n", JOBS, "-m", "not slow", "-k", "not fork and not leak_nothing",
                     *(f"tests/python/test_{name}.py" for name in THREADED),
                     LD_PRELOAD=library_of_compiler("libtsan.so"), TSAN_OPTIONS="halt_on_error=1:exitcode=66",
                     OPENBLAS_NUM_THREADS="1")


def oracles(build: Path) -> Counts:
    if not (ROOT / "tests/oracles").is_dir():
        return (0, 0)
    title("oracles")
    return pytest(build, "tests/oracles")


PARTS = {"generated": generated, "layers": layers, "headers": headers, "exports": exports, "c": c,
         "slow": slow, "python": python, "python-slow": python_slow,
         "python-asan": python_asan, "python-tsan": python_tsan, "oracles": oracles}


def main() -> int:
    build = Path(sys.argv[1])
    passed = failed = 0
    for part in sys.argv[2:]:
        p, f = PARTS[part](build)
        print(f"-- {part}: {p} passed, {f} failed", flush=True)
        passed += p
        failed += f
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
