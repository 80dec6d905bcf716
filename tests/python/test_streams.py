# SPDX-License-Identifier: Apache-2.0
"""Default streams and devices: of a thread, of a with statement, of a task."""

import asyncio
import threading

import marram.core as mx
import pytest
from marram import _core


def in_thread(work):
    """work() on a thread of its own."""
    out = []
    t = threading.Thread(target=lambda: out.append(work()))
    t.start()
    t.join()
    return out[0]


def on(s, x=None):
    """Is a new array on this stream?"""
    return _core._is_on_stream(mx.ones((2,)) + 1 if x is None else x, s)


def test_context__nests_and_ends_with_an_exception():
    a, b = mx.new_stream(mx.cpu), mx.new_stream(mx.cpu)
    before = mx.default_stream(mx.cpu)
    with mx.stream(a):
        assert on(a) and mx.default_stream(mx.cpu) == a
        with pytest.raises(KeyError), mx.stream(b):
            assert on(b) and mx.default_stream(mx.cpu) == b
            raise KeyError
        assert on(a) and not on(b)
    assert not on(a) and mx.default_stream(mx.cpu) == before


def test_context__may_be_entered_again_also_inside_itself_and_by_threads():
    a = mx.new_stream(mx.cpu)
    c = mx.stream(a)
    for _ in range(3):
        with c, c:
            assert on(a)
        assert not on(a)

    def work():
        outside = on(a)
        with c:
            return outside, on(a)

    with c:
        assert in_thread(work) == (False, True)
        assert on(a)


def test_context__keeps_its_stream_alive():
    with mx.stream(mx.new_stream(mx.cpu)):
        s = mx.default_stream(mx.cpu)
        assert on(s)
        assert (mx.ones((3,)) * 2).tolist() == [2.0, 2.0, 2.0]


def test_context__of_another_with_statement_is_refused():
    a, b = mx.stream(mx.new_stream(mx.cpu)), mx.stream(mx.new_stream(mx.cpu))
    a.__enter__()
    with pytest.raises(RuntimeError, match="must nest"):
        b.__exit__(None, None, None)
    a.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="must nest"):
        a.__exit__(None, None, None)


def test_context__belongs_to_its_task():
    a, b = mx.new_stream(mx.cpu), mx.new_stream(mx.cpu)
    f = mx.compile(lambda x: x * 2)
    seen = []

    async def one(s, other):
        assert not on(s)
        with mx.stream(s):
            for _ in range(5):
                assert on(s) and not on(other)
                assert on(s, f(mx.ones((2,))))
                assert mx.default_stream(mx.cpu) == s
                await asyncio.sleep(0)
        assert not on(s)
        seen.append(s)

    async def outsider():
        for _ in range(10):
            assert not on(a) and not on(b)
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(one(a, b), outsider(), one(b, a))

    asyncio.run(main())
    assert len(seen) == 2 and not on(a) and not on(b)


def test_context__is_inherited_by_tasks_that_start_inside():
    a = mx.new_stream(mx.cpu)
    found = []

    async def child():
        await asyncio.sleep(0)
        found.append(on(a))

    async def main():
        with mx.stream(a):
            t = asyncio.ensure_future(child())
        assert not on(a)
        await t
        assert not on(a)

    asyncio.run(main())
    assert found == [True]


def test_default_stream__is_the_threads():
    a = mx.new_stream(mx.cpu)
    old = mx.default_stream(mx.cpu)
    mx.set_default_stream(a)
    try:
        assert mx.default_stream(mx.cpu) == a
        assert in_thread(lambda: mx.default_stream(mx.cpu)) != a
        with mx.stream(mx.cpu):
            assert mx.default_stream(mx.cpu) == a
    finally:
        mx.set_default_stream(old)
    assert mx.default_stream(mx.cpu) == old


def test_thread_local_stream__is_another_on_each_thread():
    s = mx.new_thread_local_stream(mx.cpu)

    def mine():
        with mx.stream(s):
            return mx.default_stream(mx.cpu)

    assert mine() == mine()
    assert in_thread(mine) != mine()


def test_stream__of_another_thread_takes_work_in_both_directions():
    a = mx.new_stream(mx.cpu)
    x = in_thread(lambda: mx.add(mx.ones((4,)), 1, stream=a))
    assert x.tolist() == [2.0] * 4
    y = mx.multiply(x, 3, stream=a)
    assert in_thread(lambda: y.tolist()) == [6.0] * 4


def test_synchronize__waits_for_what_is_in_force():
    a = mx.new_stream(mx.cpu)
    with mx.stream(a):
        x = mx.ones((256, 256)) @ mx.ones((256, 256))
        mx.async_eval(x)
        mx.synchronize()
    assert x[0, 0].item() == 256.0
