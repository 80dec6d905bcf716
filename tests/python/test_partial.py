# SPDX-License-Identifier: Apache-2.0
"""Results fail with what they depend on: programs of several results, compiled and eager.

Run by itself, `test_partial.py [DEVICE] FIRST LAST` compares the programs of these seeds and prints a digest of all outcomes.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import marram.core as mx
import numpy as np
import pytest

BUILD = Path(os.environ.get("MARRAM_BUILD", Path(__file__).resolve().parents[2] / "build"))
PROVIDERS = BUILD / "lib" / "test_providers"
SIZES = [(4, 8), (3, 5), (96, 128), (1, 40), (64, 600)]


def outcome(x: mx.array) -> tuple[str, Any]:
    """The bits of an array, or what its evaluation says."""
    try:
        mx.eval(x)
    except (IndexError, ValueError) as e:
        return type(e).__name__, str(e)
    return "done", (x.shape, np.array(x).tobytes())


class Program:
    """Straight-line code drawn from a seed: some of its gathers and inverses cannot be."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.rows, self.columns = self.draw.choice(SIZES)
        self.n_args = self.draw.randint(2, 4)
        self.lines: list[Callable[[list[mx.array]], mx.array]] = []
        self.n_values = self.n_args
        for _ in range(self.draw.randint(4, 14)):
            self.lines.append(self.line())
            self.n_values += 1
        self.outs = [self.draw.randrange(self.n_values) for _ in range(self.draw.randint(2, 5))]
        self.given_up = self.draw.random() < 0.4

    def arguments(self) -> list[mx.array]:
        rng = np.random.default_rng(7)
        return [mx.array(rng.normal(size=(self.rows, self.columns)).astype(np.float32)) for _ in range(self.n_args)]

    def index(self, n: int, count: int) -> mx.array:
        """Rows or columns, in a third of the cases with one that is out of range."""
        at = [self.draw.randrange(-n, n) for _ in range(count)]
        if self.draw.random() < 0.35:
            at[self.draw.randrange(count)] = n + self.draw.randrange(3)
        return mx.array(at, dtype=self.draw.choice([mx.int32, mx.int64, mx.uint32]) if min(at) >= 0 else mx.int32)

    def line(self) -> Callable[[list[mx.array]], mx.array]:
        a, b = (self.draw.randrange(self.n_values) for _ in "ab")
        kind = self.draw.randrange(17)
        if kind < 3:
            return lambda v: v[a] + v[b] * 0.5
        if kind == 3:
            return lambda v: mx.tanh(v[a]) - mx.maximum(v[b], 0)
        if kind == 4:
            return lambda v: v[a] - mx.mean(v[a], axis=1, keepdims=True)
        if kind == 5:
            return lambda v: mx.softmax(v[a], axis=-1) + v[b]
        if kind == 6:
            return lambda v: mx.sum(v[a], axis=0, keepdims=True) * v[b]
        if kind == 7:
            return lambda v: mx.sort(v[a], axis=1)
        if kind == 8:
            return lambda v: v[a] @ (mx.swapaxes(v[b], 0, 1) @ v[a]) * 0.01
        if kind == 9:
            return lambda v: mx.flip(v[a], axis=1) if a % 2 else mx.roll(v[a], 1, axis=0)
        if kind == 10:
            size = min(self.columns, self.rows)
            singular = self.draw.random() < 0.4
            return lambda v: (
                mx.sum(mx.linalg.inv(mx.eye(size) * (0 if singular else 2) + 0 * v[b][:size, :size], stream=mx.cpu)) + v[a]
            )
        if kind == 11:
            i = self.index(self.rows, self.rows)
            k = self.index(self.columns, 1)
            return lambda v: v[a].at[i, k].add(v[b][:, 0])
        if kind == 12:
            i = self.index(self.columns, self.rows)
            return lambda v: mx.take_along_axis(v[a], mx.expand_dims(i, 1), axis=1) + v[b]
        if kind == 13:
            i = self.index(self.columns, self.columns)
            return lambda v: mx.take(v[a], i, axis=1) * 2
        i = self.index(self.rows, self.rows)
        if kind == 14:
            return lambda v: v[a][i // 2 + i - i // 2] - v[b]
        return lambda v: mx.take(v[a], i, axis=0) + v[b]

    def __call__(self, *args: mx.array) -> list[mx.array]:
        v = list(args)
        for line in self.lines:
            v.append(line(v))
        return [v[k] for k in self.outs]

    def want(self) -> list[tuple[str, Any]]:
        """Each result by itself, each operator by itself: nothing is fused."""
        v = self.arguments()
        for line in self.lines:
            v.append(line(v))
            outcome(v[-1])
        return [outcome(v[k]) for k in self.outs]


def same(got: list[tuple[str, Any]], want: list[tuple[str, Any]], what: str) -> None:
    """Which fail and how, and the bits of the others.  Of several reasons any may be named."""
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        assert g[0] == w[0] if w[0] == "done" else g[0] != "done", f"{what}: result {k} is {g[:1]}, alone {w[:1]}"
        assert w[0] != "done" or g[1] == w[1], f"{what}: other bits in result {k}"


def read(outs: list[mx.array], order: random.Random) -> list[tuple[str, Any]]:
    """All, in any order, some of them together first."""
    some = order.sample(outs, order.randint(0, len(outs)))
    if some:
        try:
            mx.eval(*some)
        except (IndexError, ValueError):
            pass
    got = {k: outcome(outs[k]) for k in order.sample(range(len(outs)), len(outs))}
    return [got[k] for k in range(len(outs))]


def check(seed: int) -> list[tuple[str, Any]]:
    """Compiled and eager programs against the operators one by one."""
    program = Program(seed)
    want = program.want()
    same(read(program(*program.arguments()), random.Random(seed)), want, f"seed {seed}, eager")
    compiled = mx.compile(program)
    for again in range(3):
        args = program.arguments()
        kept = [np.array(x) for x in args]
        outs = compiled(*args)
        if program.given_up:
            args = None
        same(read(outs, random.Random(seed + again)), want, f"seed {seed}, call {again}")
        for x, y in zip(args or [], kept if args else [], strict=True):
            assert np.array_equal(np.array(x), y), f"seed {seed}: an argument has changed"
    # from one call to the next, evaluated by then or not
    after = mx.compile(lambda *v: [x * 2 for x in v] + [v[0] + v[-1]])
    outs = compiled(*program.arguments())
    if seed % 2:
        read(outs, random.Random(seed))
    last = after(*outs)
    first = [mx.array(np.frombuffer(w[1][1], np.float32).reshape(w[1][0])) if w[0] == "done" else None for w in want]
    for k, x in enumerate(first):
        assert (outcome(last[k])[0] == "done") == (x is not None), f"seed {seed}: result {k} of the next call"
        assert x is None or np.array_equal(np.array(last[k]), np.array(x * 2), equal_nan=True)
    both = first[0] is not None and first[-1] is not None
    assert (outcome(last[-1])[0] == "done") == both
    return want


def digest(first: int, last: int) -> str:
    h = hashlib.sha256()
    for seed in range(first, last):
        for kind, what in check(seed):
            h.update(kind.encode() + (what[1] if kind == "done" else b""))
    return h.hexdigest()


def check_from_host(stream: Any) -> None:
    """Arguments that failed where they have no memory, for a program of a device."""
    outs = mx.compile(lambda x, i: (x[i], x + 1))(mx.arange(3.0), mx.array([0, 1, 5]))
    assert [outcome(x)[0] for x in outs] == ["IndexError", "done"]
    with mx.stream(stream):
        f = mx.compile(lambda a, b: (a * 2, b * 2, a @ b, mx.sort(b)))
        for _ in range(2):
            last = f(outs[0], outs[1])
            assert [outcome(x)[0] for x in last] == ["IndexError", "done", "IndexError", "done"]
            assert last[1].tolist() == [2, 4, 6] and last[3].tolist() == [1, 2, 3]
            swapped = f(outs[1][::-1], outs[0][::-1])
            assert [outcome(x)[0] for x in swapped] == ["done"] + 3 * ["IndexError"]
        for of in (lambda a, b: b + 1, lambda a, b: mx.sort(b), lambda a, b: b @ (b + a.size)):
            one = mx.compile(of)
            for _ in range(2):
                assert outcome(one(outs[0], outs[1])) == outcome(of(outs[0], outs[1]))
                assert outcome(one(outs[1], outs[0]))[0] == "IndexError"


def other_process(*args: object, **env: str) -> str:
    """The digest that this file prints in an environment of its own."""
    path = {"PYTHONPATH": os.pathsep.join(sys.path), **env}
    got = subprocess.run(
        [sys.executable, __file__, *map(str, args)], env={**os.environ, **path}, capture_output=True, text=True, timeout=600
    )
    assert got.returncode == 0, got.stderr
    return got.stdout.strip()


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_programs__fail_where_eager_ones_do(first: int) -> None:
    digest(first, first + 20)


def test_programs__of_every_tier_and_number_of_threads_agree() -> None:
    want = digest(200, 230)
    for env in [
        {"MARRAM_JIT": "off", "MARRAM_NUM_THREADS": "1"},
        {"MARRAM_JIT": "now", "MARRAM_NUM_THREADS": "2"},
        {"MARRAM_EVAL_WINDOW": "3"},
    ]:
        assert other_process(200, 230, **env) == want, env
    if mx.cpu_tier() == "amx":  # its products have bits of their own
        want = other_process(200, 230, MARRAM_CPU="avx512")
    narrow = {"MARRAM_JIT": "now", "MARRAM_NUM_THREADS": "5", "MARRAM_CPU": "avx2"}
    assert other_process(200, 230, **narrow) == want


@pytest.mark.skipif(not PROVIDERS.is_dir(), reason="built without tests")
def test_programs__on_a_device_with_queues() -> None:
    want = digest(300, 330)
    for seed in "05":
        assert other_process("far", 300, 330, MARRAM_PROVIDER_PATH=str(PROVIDERS), MARRAM_FAR_SEED=seed) == want


def test_threads__that_want_different_results_of_one_call() -> None:
    program = next(p for p in map(Program, range(400, 500)) if len({w[0] == "done" for w in p.want()}) == 2)
    want = program.want()
    compiled = mx.compile(program)
    wrong: list[str] = []
    for turn in range(20):
        outs = compiled(*program.arguments())
        start = threading.Barrier(8)

        def ask(k: int, outs: list[mx.array] = outs, start: threading.Barrier = start) -> None:
            start.wait()
            if outcome(outs[k])[0] != want[k][0]:
                wrong.append(f"result {k}")

        threads = [threading.Thread(target=ask, args=((turn + k) % len(outs),)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        same([outcome(x) for x in outs], want, f"turn {turn}")
    assert not wrong


def good_and_bad() -> tuple[Callable[..., Any], mx.array, mx.array]:
    return (lambda x, i: (x[i] + 1, x * 2, x[:2] - 1)), mx.arange(6.0), mx.array([0, 9])


def test_error__of_a_result_says_where_and_comes_at_each_touch() -> None:
    f, x, i = good_and_bad()
    bad, good, _ = mx.compile(f)(x, i)
    for touch in (lambda: mx.eval(bad), lambda: bad.tolist(), lambda: mx.eval(good, bad), lambda: mx.eval(bad * 2)):
        with pytest.raises(IndexError, match="index 9 is out of range for axis 0 of size 6") as e:
            touch()
        assert any(f"created at {__file__}:" in n for n in e.value.__notes__)
        assert "inside a compiled function" in e.value.__notes__
    assert good.tolist() == [0, 2, 4, 6, 8, 10]


def test_error__each_result_has_its_own() -> None:
    f = mx.compile(lambda x, i, m: (x[i], mx.linalg.inv(m, stream=mx.cpu), x[i + 1], x + 1))
    outs = f(mx.arange(6.0), mx.array([9]), mx.zeros((2, 2)))
    with pytest.raises(IndexError, match="index 9 "):
        mx.eval(*outs)
    for x, kind, text in zip(outs, (IndexError, ValueError, IndexError), ("index 9 ", "singular", "index 10 "), strict=False):
        with pytest.raises(kind, match=text):
            mx.eval(x)
    assert outs[3].tolist() == [1, 2, 3, 4, 5, 6]


def test_shared_and_viewed_results__fail_with_theirs() -> None:
    def f(x: mx.array, i: mx.array) -> dict[str, mx.array]:
        bad, good = mx.tile(x, 4000)[i], mx.tile(x, 4000) * 2
        return {"bad": bad, "again": bad, "good": good, "view": good[3:], "seen": bad[:1], "given": x, "same": good}

    outs = mx.compile(f)(mx.arange(6.0), mx.array([0, 1 << 20]))
    for name in ("bad", "again", "seen"):
        with pytest.raises(IndexError):
            mx.eval(outs[name])
    want = np.tile(np.arange(6.0), 4000) * 2
    assert np.array_equal(outs["good"], want) and np.array_equal(outs["same"], want)
    assert np.array_equal(outs["view"], want[3:])
    assert outs["given"].tolist() == [0, 1, 2, 3, 4, 5]


ONE_RESULT: dict[str, Callable[[mx.array, mx.array], Any]] = {
    "block": lambda a, b: [b + 1],
    "kernel": lambda a, b: [mx.sort(b)],
    "several steps": lambda a, b: [mx.sort(b @ mx.outer(b, b)) + 1],
    "passed on": lambda a, b: [a, b + 1, b],
    "views": lambda a, b: [a.reshape(2, 2), a[1:], b + 1],
    "cast to the same": lambda a, b: [a.astype(mx.float32), b * 2],
    "shape alone": lambda a, b: [b + a.shape[0]],
    "zeros like it": lambda a, b: [mx.zeros_like(a) + b],
    "dead code": lambda a, b: (a + 1, [b + 1])[1],
    "inner call": lambda a, b: [mx.compile(lambda x, y: y + 1)(a, b) * 2],
    "derivative": lambda a, b: [mx.grad(lambda y, x: (y * y).sum(), argnums=0)(b, a)],
    "read": lambda a, b: [a * b],
    "read by a kernel": lambda a, b: [mx.sort(a) + b],
    "own failure": lambda a, b: [b[mx.array([0, 5])]],
}


@pytest.mark.parametrize("form", ONE_RESULT)
@pytest.mark.parametrize("known", [False, True])
def test_one_result__does_not_fail_with_an_argument_that_it_does_not_read(form: str, known: bool) -> None:
    def bad() -> mx.array:
        x = mx.ones(4)[mx.array([9, 0, 0, 0])]
        if known:
            outcome(x)
        return x

    f = mx.compile(ONE_RESULT[form])
    for b in (mx.arange(4.0), mx.arange(8.0)[::2]):
        want = [outcome(x) for x in ONE_RESULT[form](bad(), b)]
        for _ in range(3):  # the third time it is warm
            got = [outcome(x) for x in f(bad(), b)]
            same(got, want, form)
        f(mx.ones(4), b)


def test_one_result__leaves_entries_and_state_unread() -> None:
    bad = mx.ones(4)[mx.array([9, 0, 0, 0])]
    assert mx.compile(lambda d: d["x"] * 2)({"x": mx.ones(2), "unread": bad}).tolist() == [2, 2]
    state = {"a": bad, "b": mx.ones(2), "c": mx.ones(2)}

    def step(x: mx.array) -> mx.array:
        state["a"], state["b"] = state["b"], state["a"]
        state["c"] = state["c"] + x
        return x

    g = mx.compile(step, inputs=state, outputs=state)
    for n in (2, 3):
        g(mx.ones(2))
        assert state["c"].tolist() == [n, n]
        ends = [outcome(state[k])[0] for k in "ab"]
        assert ends == (["done", "IndexError"] if n == 2 else ["IndexError", "done"])


def test_constants__that_fail_are_the_error_of_what_reads_them() -> None:
    x, table, at = mx.arange(3.0), mx.arange(5.0), mx.array([1, 2, 7])

    @mx.compile
    def f(x: mx.array) -> tuple[mx.array, ...]:
        return x + table[at], x + table[at % 5], table[at], (table[at] * 2)[1:] + x[:2]

    for _ in range(2):
        outs = f(x)
        for k in (0, 2, 3):
            with pytest.raises(IndexError, match="index 7 is out of range"):
                mx.eval(outs[k])
        assert outs[1].tolist() == [1, 3, 4]
    with pytest.raises(IndexError, match="index 7"):
        mx.eval(f(mx.arange(6.0)[::2])[0])


def test_captured_outputs__are_the_old_ones_or_right() -> None:
    state = {"seen": mx.zeros(3), "count": mx.zeros(())}

    def step(x: mx.array, i: mx.array) -> mx.array:
        state["seen"] = state["seen"] + x[i]
        state["count"] = state["count"] + 1
        return x * 2

    f = mx.compile(step, inputs=state, outputs=state)
    y = f(mx.arange(6.0), mx.array([0, 1, 2]))
    mx.eval(y, state)
    y = f(mx.arange(6.0), mx.array([0, 1, 9]))
    with pytest.raises(IndexError):
        mx.eval(y, state)
    assert y.tolist() == [0, 2, 4, 6, 8, 10] and state["count"].item() == 2
    with pytest.raises(IndexError):
        mx.eval(state["seen"])


@pytest.mark.parametrize("around", ["compile", "vmap", "checkpoint", "grad"])
def test_calls_inside_calls__keep_it_so(around: str) -> None:
    inner = mx.compile(lambda x, i: (x[i] + 1, x * 2))
    i = mx.array([[0, 9], [1, 9]])
    x = mx.arange(12.0).reshape(2, 6)
    if around == "compile":
        bad, good = mx.compile(lambda x, i: inner(x[0], i[0]))(x, i)
    elif around == "vmap":
        bad, good = mx.vmap(inner)(x, i)
    elif around == "checkpoint":
        bad, good = mx.checkpoint(lambda x, i: inner(x[0], i[0]))(x, i)
    else:
        good, bad = mx.value_and_grad(lambda x, i: inner(x[0], i[0])[1].sum() + 0 * x.sum())(x, i)
        mx.eval(good, bad)
        _, bad = mx.vjp(lambda x: inner(x, i[0]), [x[0]], [mx.ones(2), mx.ones(6)])
        bad, good = bad[0], good
    with pytest.raises(IndexError):
        mx.eval(bad)
    mx.eval(good)


def test_eager_group__that_is_half_wrong_gives_the_other_half() -> None:
    x, i = mx.arange(4096.0).reshape(64, 64), mx.array([1] * 63 + [64])
    a = x * 2
    b = mx.sum(x[i] + a, axis=1)
    c = mx.mean(a, axis=1)
    with pytest.raises(IndexError):
        mx.eval(a, b, c)
    assert np.array_equal(a, np.arange(4096.0).reshape(64, 64) * 2)
    assert np.array_equal(c, (np.arange(4096.0).reshape(64, 64) * 2).mean(1))


def test_checking_mode__findings_are_of_their_results() -> None:
    code = """
import marram.core as mx
f = mx.compile(lambda x, y: (mx.log(x), y + 1, mx.log(x) + y))
outs = f(mx.array([1.0, -1.0]), mx.array([1.0, 2.0]))
kinds = []
for x in outs:
    try:
        mx.eval(x)
        kinds.append("done")
    except ValueError as e:
        kinds.append("NaN" if "NaN" in str(e) else str(e))
print(*kinds)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MARRAM_CHECK": "error"}
    got = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert got.stdout.split() == ["NaN", "done", "NaN"], got.stderr


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[0] == "far":
        from marram import _core

        far = mx.new_stream(_core._test_device(0))
        check_from_host(far)
        with mx.stream(far):
            print(digest(int(words[1]), int(words[2])))
    else:
        print(digest(int(words[0]), int(words[1])))
