# SPDX-License-Identifier: Apache-2.0
"""A process that ends leaves no block of Marram's that nobody can reach.

LeakSanitizer looks at the memory of a process at its end.  CPython leaves
objects of its own behind, so only blocks that the library made count; what its
caches still hold can be reached, and is no leak.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

WARM = """
import threading
import marram.core as mx

functions = [mx.compile(lambda x, k=k: mx.exp(x * k).sum()) for k in range(5)]
x = mx.arange(100.0)

def run():
    for f in functions:
        for n in (10, 20):
            mx.eval(f(x[:n]), mx.grad(f)(x[:n]))

threads = [threading.Thread(target=run) for _ in range(3)]
for t in threads:
    t.start()
run()
for t in threads:
    t.join()
shapeless = mx.compile(lambda x: mx.softmax(x) @ x, shapeless=True)
mx.eval(shapeless(x), shapeless(x[:7]))
pending = functions[0](x)
assert mx.compile_cache_info()["entries"] > 5
"""

# A block that is made and forgotten: the check sees what it should.
LEAKY = WARM + """
import ctypes, os
with open("/proc/self/maps") as f:
    path = next(line.split()[-1] for line in f if "/libmarram.so" in line or "/libmarram_testing.so" in line)
library = ctypes.CDLL(path)
library.mr_array_from_f32.restype = ctypes.c_void_p
class shape(ctypes.Structure):
    _fields_ = [("dim", ctypes.c_void_p), ("n", ctypes.c_int64)]
library.mr_array_from_f32.argtypes = [ctypes.c_void_p, shape]
four, numbers = ctypes.c_int64(4), (ctypes.c_float * 4)()
assert library.mr_array_from_f32(numbers, shape(ctypes.addressof(four), 1))
"""


def runtime() -> str:
    """The library that looks for leaks, to be loaded first."""
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        return os.environ["LD_PRELOAD"]
    path = subprocess.run([os.environ.get("CC", "cc"), "-print-file-name=liblsan.so"],
                          capture_output=True, text=True, check=False).stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip("the compiler has no LeakSanitizer (liblsan.so)")
    return path


def leaks(program: str) -> list[str]:
    """The stacks of leaked blocks that the library made."""
    options = "detect_leaks=1:exitcode=0:fast_unwind_on_malloc=0"
    env = {**os.environ, "LD_PRELOAD": runtime(), "PYTHONMALLOC": "malloc", "ASAN_OPTIONS": options,
           "LSAN_OPTIONS": "exitcode=0:fast_unwind_on_malloc=0"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    if "LeakSanitizer has encountered a fatal error" in done.stderr:
        pytest.skip("LeakSanitizer cannot stop this process (ptrace is forbidden)")
    assert done.returncode == 0, done.stderr[-3000:]
    stacks = done.stderr.split("\n\n")
    return [s for s in stacks if "leak of" in s and re.search(r" in mr_|/libmarram", s)]


def test_exit__with_warm_compiled_functions_leaks_nothing():
    found = leaks(WARM)
    assert not found, "\n\n".join(found[:5])


def test_exit__a_forgotten_array_would_be_seen():
    assert leaks(LEAKY)
