# SPDX-License-Identifier: Apache-2.0
"""Fork, exit and threads: a process ends, and its children work, whatever runs."""

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import marram.core as mx
import numpy as np
import pytest

DEADLINE = 60.0
BUILD = Path(os.environ.get("MARRAM_BUILD", Path(__file__).resolve().parents[2] / "build"))


def run(code, *args):
    """A Python of its own; (exit status, output).  A hang is a failure."""
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def in_child(work):
    """work() in a forked child: its exit status is 0 when it gave True."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            threading.Timer(DEADLINE, os._exit, (3,)).start()
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def product(n=256, times=20):
    eye = mx.eye(n)
    x = mx.full((n, n), 2.0)
    for _ in range(times):
        x = x @ eye
    return x


def all_twos(x):
    return bool(np.all(np.asarray(x) == 2.0))


def test_fork__child_evaluates_after_the_parent_did():
    mx.eval(product())
    assert in_child(lambda: all_twos(product())) == 0
    assert all_twos(product())


def test_fork__child_reads_what_the_parent_computed():
    x = product()
    mx.eval(x)
    assert in_child(lambda: all_twos(x)) == 0


def test_fork__child_computes_what_was_in_flight():
    for _ in range(5):
        x = product(512, 40)
        mx.async_eval(x)
        assert in_child(lambda x=x: all_twos(x)) == 0
        assert all_twos(x)


def test_fork__while_other_threads_evaluate():
    stop = threading.Event()

    def work():
        while not stop.is_set():
            mx.eval(product(64, 5))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        for _ in range(5):
            assert in_child(lambda: all_twos(product(64, 5))) == 0
    finally:
        stop.set()
        for t in threads:
            t.join()


def test_fork__while_another_thread_computes_what_the_child_reads():
    for size, times in ((16, 300), (256, 30), (512, 10)):
        for _ in range(4):
            x = product(size, times)
            t = threading.Thread(target=lambda x=x: mx.eval(x))
            t.start()
            assert in_child(lambda x=x: all_twos(x)) == 0
            t.join()
            assert all_twos(x)


def test_fork__child_computes_over_streams_that_nobody_drains():
    a, b = mx.new_stream(mx.cpu), mx.new_stream(mx.cpu)
    for _ in range(5):
        with mx.stream(a):
            x = product(128, 30)
        with mx.stream(b):
            y = x * 1
        mx.async_eval(y)
        assert in_child(lambda y=y: all_twos(y)) == 0
        assert all_twos(y)


def test_fork__compiled_functions_and_gradients_work_in_the_child():
    f = mx.compile(lambda x: mx.sum(mx.sin(x) * x))
    g = mx.grad(lambda x: mx.sum(x * x * x))
    x = mx.array([1.0, 2.0, 3.0])
    want = f(x).item()

    def child():
        return f(x).item() == want and g(x).tolist() == [3.0, 12.0, 27.0]

    assert in_child(child) == 0
    assert child()


def double(n):
    return (mx.arange(n) * 2).sum().item()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing__a_pool_of_workers_computes(method):
    mx.eval(product())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with multiprocessing.get_context(method).Pool(2) as pool:
            got = pool.map_async(double, range(1, 9)).get(DEADLINE)
    assert got == [n * (n - 1) for n in range(1, 9)]


EXITS = {
    "with work in flight": """
x = mx.full((1024, 1024), 2.0)
for _ in range(30): x = x @ mx.eye(1024)
mx.async_eval(x)
""",
    "with lazy arrays in a cycle": """
class Holder: pass
h = Holder(); h.me = h; h.x = mx.ones((8,)) + 1
""",
    "with a thread that evaluates": """
import threading
def work():
    while True: mx.eval(mx.ones((64, 64)) @ mx.ones((64, 64)))
for _ in range(2): threading.Thread(target=work, daemon=True).start()
import time; time.sleep(0.2)
""",
    "with compiled functions alive": """
f = mx.compile(lambda x: mx.exp(x) * 2)
mx.eval(f(mx.ones((4,))))
import builtins; builtins.keep = f
""",
    "from a thread's exit": """
import threading
def work():
    global y
    y = mx.ones((1000,)) * 3
    mx.async_eval(y)
t = threading.Thread(target=work); t.start(); t.join()
""",
    "by sys.exit inside a gradient": """
import sys
def f(x):
    sys.exit(0)
mx.grad(f)(mx.array(1.0))
""",
    "in atexit": """
import atexit
x = mx.ones((100,))
atexit.register(lambda: print(int((x * 2).sum().item())))
""",
}


@pytest.mark.parametrize("how", EXITS)
def test_exit__is_clean(how):
    status, text = run("import marram.core as mx\n" + EXITS[how])
    assert (status, text.strip()) == (0, "200" if how == "in atexit" else "")


def test_destructors__run_on_any_thread_and_in_the_collector():
    import gc

    class Holder:
        pass

    def make():
        for _ in range(200):
            h = Holder()
            h.me = h
            h.x = mx.array(np.ones(1000, dtype=np.float32)) + 1
            mx.async_eval(h.x)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for t in threads:
        t.start()
    for _ in range(20):
        gc.collect()
    for t in threads:
        t.join()
    gc.collect()
    assert (mx.ones((3,)) + 1).tolist() == [2.0, 2.0, 2.0]


UNLOAD = """
import _ctypes, ctypes, sys, time
Shape = type("Shape", (ctypes.Structure,), {"_fields_": FIELDS})
for k in range(3):
    lib = ctypes.CDLL(sys.argv[1])
    for name in ("mr_array_from_f32", "mr_matmul"):
        getattr(lib, name).restype = ctypes.c_void_p
    n = 700
    data = (ctypes.c_float * (n * n))(*([0.5] * (n * n)))
    dims = (ctypes.c_int64 * 2)(n, n)
    x = lib.mr_array_from_f32(data, SHAPE)
    for _ in range(6):
        x = lib.mr_matmul(ctypes.c_void_p(x), ctypes.c_void_p(x))
    assert x and lib.mr_async_eval(ctypes.byref(ctypes.c_void_p(x)), 1) == 0
    _ctypes.dlclose(lib._handle)  # while it computes
    time.sleep(0.02 * k)
print("over")
"""


def test_unload__with_work_in_flight_neither_hangs_nor_crashes():
    """The library is linked so that dlclose leaves it: its threads go on."""
    name = "libmarram.so" if (BUILD / "lib/libmarram.so").exists() else "libmarram_testing.so"
    code = UNLOAD.replace("FIELDS", '[("dim", ctypes.c_void_p), ("n", ctypes.c_int64)]').replace(
        "SHAPE", "Shape(ctypes.addressof(dims), 2)")
    assert run(code, str(BUILD / "lib" / name)) == (0, "over\n")
