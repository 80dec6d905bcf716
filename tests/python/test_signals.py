# SPDX-License-Identifier: Apache-2.0
"""Signals during a long evaluation: the wait ends, the work goes on."""

import os
import signal
import threading

import marram.core as mx
import numpy as np
import pytest

ALARM = 0.05


def long_work():
    """Some seconds of products, whose value is known; fewer where each access
    to memory is looked at."""
    n = 256 if "TSAN_OPTIONS" in os.environ else 1024
    eye = mx.eye(n)
    x = mx.full((n, n), 2.0)
    mx.eval(eye, x)
    for _ in range(50):
        x = x @ eye
    return x


class Alarm(Exception):
    pass


@pytest.fixture
def alarm():
    def ring(signum, frame):
        raise Alarm

    old = signal.signal(signal.SIGALRM, ring)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, ALARM)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


def is_done(x):
    try:
        mx.get_array_buffer_size(x)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("wait", [mx.eval, lambda x: x.sum().item(), np.asarray])
def test_signal__ends_a_wait_and_leaves_the_work(alarm, wait):
    x = long_work()
    with pytest.raises(Alarm):
        alarm()
        wait(x)
    other = mx.array([1.0, 2.0]) * 3
    assert other.tolist() == [3.0, 6.0]
    np.testing.assert_array_equal(np.asarray(x), 2.0)


def test_signal__comes_while_the_work_still_runs(alarm):
    x = long_work()
    y = x + 1
    with pytest.raises(Alarm):
        alarm()
        mx.eval(y)
    # Nobody has waited for it, so what was interrupted is not finished yet.
    assert not is_done(y)
    mx.eval(y)
    np.testing.assert_array_equal(np.asarray(y), 3.0)


def test_signal__ends_synchronize_and_a_full_queue(alarm):
    x = long_work()
    with pytest.raises(Alarm):
        alarm()
        mx.async_eval(x)
        mx.synchronize()
    np.testing.assert_array_equal(np.asarray(x), 2.0)


def test_signal__does_not_reach_other_threads():
    """A thread that is not Python's main one has no handlers to run."""
    seen = []
    old = signal.signal(signal.SIGUSR1, lambda *a: seen.append(threading.get_ident()))
    x = long_work()
    t = threading.Thread(target=lambda: mx.eval(x))
    t.start()
    os.kill(os.getpid(), signal.SIGUSR1)
    t.join()
    signal.signal(signal.SIGUSR1, old)
    assert seen == [threading.main_thread().ident]
    np.testing.assert_array_equal(np.asarray(x), 2.0)
