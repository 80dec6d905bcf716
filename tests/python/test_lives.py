# SPDX-License-Identifier: Apache-2.0
"""Reference counts and threads: nothing leaks, nothing is torn."""

import gc
import sys
import threading
import tracemalloc

import marram.core as mx
import numpy as np
import pytest


def works():
    """Calls to repeat; each is given nothing and keeps nothing."""
    x = mx.array([1.0, 2.0, 3.0])
    i = mx.array([0, 2])
    a = np.arange(3, dtype=np.float32)
    f = mx.compile(lambda y, n: (y + n, {"k": y}))
    g = mx.grad(lambda y: (y * y).sum())
    state = {"w": mx.array(1.0)}

    def step(y):
        state["w"] = state["w"] * 1
        return y

    s = mx.compile(step, inputs=state, outputs=state)

    def inplace():
        y = mx.array([1.0, 2.0])
        y += 1
        y[0] = 3
        y[i[:1]] = x[:1]

    def fails(call, error):
        def run():
            try:
                call()
            except error:
                return
            raise AssertionError("did not fail")

        return run

    def bad(y):
        raise KeyError("x")

    return {
        "operators": lambda: x + 1 - x * x / 2.0,
        "functions": lambda: mx.sum(mx.concatenate([x, x], axis=0), axis=[0], keepdims=True),
        "making": lambda: (mx.array([[1, 2], [3, 4]]), mx.array(a), mx.array(1.5), mx.array([x, x])),
        "indexing": lambda: (x[0], x[1:], x[i], x[None, ..., ::-1], x[x > 1]),
        "in place": inplace,
        "at": lambda: x.at[i].add(1),
        "reading": lambda: (x.tolist(), x.sum().item(), repr(x), bytes(x), [r for r in x]),
        "buffers": lambda: (np.asarray(x), memoryview(x), np.from_dlpack(x), mx.from_dlpack(a)),
        "grad": lambda: g(x),
        "vmap": lambda: mx.vmap(lambda y: (y, y * 2))(x),
        "vjp": lambda: mx.vjp(lambda y: y * 2, [x], [x]),
        "compiled": lambda: f(x, 2),
        "state": lambda: s(x),
        "properties": lambda: (x.shape, x.dtype, x.T, x.at, x.nbytes),
        "streams": lambda: (mx.add(x, x, stream=mx.cpu), mx.default_device(), mx.default_stream(mx.cpu)),
        "bad shape": fails(lambda: x + mx.zeros((7,)), ValueError),
        "bad argument": fails(lambda: mx.sum(x, axis="a"), TypeError),
        "bad index": fails(lambda: x[9], IndexError),
        "bad list": fails(lambda: mx.array([[1], [2, 3]]), ValueError),
        "bad function": fails(lambda: mx.grad(bad)(x), KeyError),
        "bad trace": fails(lambda: mx.compile(bad)(x), KeyError),
    }


@pytest.mark.parametrize("name", list(works()))
def test_calls__leak_nothing(name):
    call = works()[name]
    for _ in range(50):
        call()
    gc.collect()
    tracemalloc.start()
    try:
        before, blocks = tracemalloc.get_traced_memory()[0], sys.getallocatedblocks()
        active = mx.get_active_memory()
        n = 2000
        for _ in range(n):
            call()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 16 * n
        assert sys.getallocatedblocks() - blocks < n // 4
    finally:
        tracemalloc.stop()
    mx.synchronize()
    assert mx.get_active_memory() - active < 64 * n


@pytest.mark.parametrize("dtype", [mx.float32, mx.int64])
def test_calls__keep_reference_counts_of_shared_objects(dtype):
    x = mx.array([1, 2], dtype=dtype)
    watched = [None, True, mx.float32, mx.array, x, Ellipsis]
    before = [sys.getrefcount(o) for o in watched]
    for _ in range(10000):
        x + x
        x.dtype  # noqa: B018
        x[..., None]
        mx.sum(x, axis=None, keepdims=True)
        x == 1  # noqa: B015
    after = [sys.getrefcount(o) for o in watched]
    assert all(abs(b - a) < 100 for a, b in zip(before, after, strict=True))


def run_threads(n, work):
    errors = []
    gate = threading.Barrier(n)

    def body(i):
        try:
            gate.wait(30)
            work(i)
        except BaseException as e:  # noqa: BLE001
            errors.append(e)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def test_threads__share_arrays_and_graphs():
    x = mx.arange(1000, dtype=mx.float32)
    shared = (x * 2 + 1).sum()

    def work(i):
        for k in range(50):
            assert shared.item() == 1000000
            y = (x + i) * k
            assert y[3].item() == (3 + i) * k
            assert mx.grad(lambda v: (v * v).sum())(x[:3]).tolist() == [0, 2, 4]

    run_threads(6, work)


def test_threads__share_a_compiled_function():
    f = mx.compile(lambda x, n: x * n + 1)

    def work(i):
        for k in range(40):
            x = mx.full((1 + k % 5,), float(k))
            assert f(x, i % 3).tolist() == [k * (i % 3) + 1.0] * (1 + k % 5)

    run_threads(6, work)


def test_threads__an_array_may_be_rebound_while_others_read_it():
    x = mx.zeros((64,))
    stop = threading.Event()

    def work(i):
        if i == 0:
            for _ in range(500):
                x[:] = x + 1
                mx.eval(x)
            stop.set()
        while not stop.is_set():
            v = x.tolist()
            assert len(set(v)) == 1

    run_threads(4, work)


def test_threads__the_interpreter_lock_is_given_up_while_waiting():
    a = mx.random.uniform(shape=(600, 600))
    b = a
    for _ in range(30):
        b = b @ a / 300
    ticks = [0]
    done = threading.Event()

    def tick():
        while not done.is_set():
            ticks[0] += 1

    t = threading.Thread(target=tick)
    t.start()
    try:
        mx.eval(b)
    finally:
        done.set()
        t.join()
    assert ticks[0] > 10


def test_threads__closures_of_two_threads_may_wait_for_each_other():
    first, second = threading.Event(), threading.Event()

    def f(x):
        first.set()
        assert second.wait(30)
        return (x * x).sum()

    def g(x):
        assert first.wait(30)
        second.set()
        return (x * x * x).sum()

    out = {}

    def work(i):
        out[i] = mx.grad([f, g][i])(mx.array([2.0])).tolist()

    run_threads(2, work)
    assert out == {0: [4], 1: [12]}
