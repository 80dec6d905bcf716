# SPDX-License-Identifier: Apache-2.0
"""Gaps 36, 38, 39, 40, 43: what helps to find the line."""

import os
import subprocess
import sys
import threading

import marram.core as mx
import numpy as np
import pytest


def bad(n=9):
    return mx.arange(4)[mx.array([n])]  # found when it is evaluated


def test_eager__an_error_surfaces_in_its_line():
    late = bad()
    with mx.eager(), pytest.raises(IndexError, match="index 9"):
        bad()
    with pytest.raises(IndexError, match="index 9"):
        mx.eval(late)


def test_eager__evaluates_results_of_every_kind():
    with mx.eager():
        x = mx.ones((3, 3)) + 1
        assert not mx.memory_report(x)["pending"]
        x += 1
        x[0] = 5
        parts = mx.split(x * 2, 3)
        q, r = mx.linalg.qr(x)
        assert not mx.memory_report(x, parts, q, r)["pending"]
        y = mx.zeros((3,), dtype=mx.int32)
        with pytest.raises(IndexError, match="index 7"):
            y[mx.array([7])] = 1
        assert y.tolist() == [0, 0, 0]
    assert mx.memory_report(x + 1)["pending"]


def test_eager__nests_and_is_the_threads():
    seen = []
    with mx.eager():
        with mx.eager():
            pass
        assert not mx.memory_report(mx.ones((3,)) + 1)["pending"]
        t = threading.Thread(target=lambda: seen.append(mx.memory_report(mx.ones((3,)) + 1)["pending"]))
        t.start()
        t.join()
    assert seen[0] > 0
    with pytest.raises(KeyError), mx.eager():
        raise KeyError
    assert mx.memory_report(mx.ones((3,)) + 1)["pending"]


def test_eager__transforms_are_as_ever():
    def f(x):
        return (mx.sin(x) * x).sum()

    x = mx.arange(6.0).reshape(2, 3)
    want = [mx.grad(f)(x), mx.vmap(f)(x), mx.compile(f)(x), mx.vmap(mx.grad(f))(x)]
    mx.eval(want)
    with mx.eager():
        got = [mx.grad(f)(x), mx.vmap(f)(x), mx.compile(lambda x: f(x))(x), mx.vmap(mx.grad(f))(x)]
        with pytest.raises(IndexError, match="index 9"):
            mx.grad(lambda x: (x.sum() * bad()).sum())(x)
    for a, b in zip(got, want, strict=True):
        assert mx.array_equal(a, b)


def test_eval_stats__counts_reads_by_line():
    mx.eval_stats(reset=True)
    x = mx.arange(3.0)
    y = x * 2
    mx.eval(y)
    y.tolist()  # there already
    assert mx.eval_stats() == {"implicit": 0, "lines": {}}
    for i in range(3):
        float((y + i).sum())  # this line
    if (x > 1).any():
        str(x - 1)
    stats = mx.eval_stats(reset=True)
    assert stats["implicit"] == 5
    assert sorted(stats["lines"].values()) == [1, 1, 3]
    assert all("test_debug.py:" in line for line in stats["lines"])
    assert mx.eval_stats()["implicit"] == 0


def test_memory_report__finds_the_longest_chain():
    x = mx.zeros((10,))
    mx.eval(x)
    begin = mx.memory_report(x)
    assert (begin["pending"], begin["longest_chain"], begin["chain_begins"]) == (0, 0, "")
    assert begin["active"] >= 40
    assert begin["peak"] >= begin["active"]
    cache = x
    for _ in range(100):
        cache = mx.concatenate([cache[1:], x[:1]])
    loss = (x * 2).sum()
    r = mx.memory_report({"loss": loss, "cache": [cache, cache]})
    assert r["longest_chain"] >= 200
    assert r["pending"] >= 300
    assert "test_debug.py:" in r["chain_begins"]
    mx.eval(cache)
    assert mx.memory_report(cache)["longest_chain"] == 0
    assert 0 < mx.memory_report(cache, loss)["longest_chain"] <= 3


def test_memory_report__of_a_long_chain_needs_no_stack():
    x = mx.zeros((2,))
    for _ in range(200_000):
        x = x + 1
    assert mx.memory_report(x)["longest_chain"] >= 200_000
    assert x.tolist() == [200_000] * 2


def in_a_process(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_deep__a_graph_that_nothing_evaluates_is_told_of_once():
    """Gap 38."""
    text = in_a_process("""
import marram.core as mx
state, x = mx.zeros((2,)), mx.ones((2,))
for step in range(120_000):
    state = state * 0.5 + x
    if step % 1000 == 0:
        mx.eval((x * 2).sum())
for step in range(120_000):
    state = state * 0.5 + x
mx.eval(state)
""")
    assert text.count("operations away") == 1
    assert "eval(loss, state)" in text
    assert "<string>:5" in text


def test_deep__loops_that_evaluate_are_not_told():
    text = in_a_process("""
import marram.core as mx
x = mx.zeros((2,))
for step in range(150_000):  # the next step is built before this one is read
    y = x + 1
    mx.async_eval(x)
    x = y
for step in range(150_000):
    x = x + 1
    if step % 50_000 == 0:
        mx.eval(x)
def f(x):
    for _ in range(110_000):
        x = x + 1
    return x.sum()
mx.eval(mx.grad(f)(x))
""")
    assert "operations away" not in text


def test_deep__a_limit_evaluates_what_a_loop_forgets():
    """Gap 38: automatic evaluation of old prefixes."""
    assert mx.set_eval_depth_limit(100) == 0
    try:
        state, x = mx.zeros((3,)), mx.ones((3,))
        longest = 0
        for _ in range(5_000):
            state = state * 0.5 + x
            longest = max(longest, mx.memory_report(state)["longest_chain"])
        assert 50 <= longest <= 101
        f = mx.compile(lambda s: s * 0.5 + 1)
        for _ in range(500):
            state = f(state)
        assert mx.memory_report(state)["longest_chain"] <= 101

        def g(x):
            for _ in range(1000):
                x = x + 1
            return x.sum()

        assert mx.grad(g)(x).tolist() == [1, 1, 1]  # a trace is left alone
        assert state.tolist() == [2, 2, 2]
    finally:
        assert mx.set_eval_depth_limit(None) == 100
    for wrong in (-1, 2**64):
        with pytest.raises(ValueError, match="operations is"):
            mx.set_eval_depth_limit(wrong)
    with pytest.raises(TypeError):
        mx.set_eval_depth_limit("many")


def test_settings__come_from_the_environment():
    """Gaps 38 and 43."""
    program = "import marram.core as mx; print(mx.set_eval_depth_limit(0), mx.set_eval_window(None))"
    for depth, window, want, said in (
        ("500", "64", "500 64", 0),
        ("", "", "0 2048", 0),
        ("0", "0", "0 2048", 0),
        ("deep", "-3", "0 2048", 2),
    ):
        env = {**os.environ, "MARRAM_EVAL_DEPTH": depth, "MARRAM_EVAL_WINDOW": window}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
        assert done.stdout.strip() == want
        assert done.stderr.count("it may be a number of operations, or 0") == said


def test_window__of_any_size_gives_the_same_bits():
    """Gap 43: the setting says how much is planned at once, and nothing of values."""
    x = mx.random.normal((17, 9))
    mx.eval(x)

    def graph():
        y = x
        for _ in range(30):
            y = mx.tanh(y @ y.T @ y) + y.sum(axis=0) * 0.1 - mx.softmax(y)
        return y

    want = np.array(graph())
    for window in (1, 2, 5, 64, 10**6):
        assert mx.set_eval_window(window) == 2048
        try:
            assert np.array_equal(np.array(graph()), want)
        finally:
            mx.set_eval_window(0)
    with pytest.raises(ValueError, match="operations is"):
        mx.set_eval_window(-1)
