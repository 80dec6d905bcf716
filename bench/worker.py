# SPDX-License-Identifier: Apache-2.0
"""What the Python benches share: a process for each peer, taking turns.

A bench's own file is also its worker: started with ``--worker PEER`` it calls
``serve``, else it makes one ``Worker`` a peer and asks them in turn.  A case
goes over as JSON; ``null`` means "time a round of it".
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

SECONDS = 0.1
# So long the threads of a peer that has had its turn may keep a processor busy:
# NumPy's OpenBLAS waits 2^28 ticks of the clock, 104 ms at 2.6 GHz.
SETTLE = 0.04
SETTLES = {"numpy": 0.12}


def threads() -> int:
    return len(os.sched_getaffinity(0))


def best_of_round(fn: Callable[[], object], seconds: float = SECONDS) -> float:
    """The fastest call of a round, in seconds."""
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        fn()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best


def serve(body: Callable, seconds: float = SECONDS) -> None:
    """A worker's life.  body(case) gives what a call does, or None where the
    peer has no such thing; or that with anything to tell about the case."""
    print(json.dumps("ready"), flush=True)
    fn: Callable[[], object] | None = None
    for line in sys.stdin:
        case = json.loads(line)
        if case is None:
            print(json.dumps(best_of_round(fn, seconds)), flush=True)
            continue
        made = body(case)
        fn, told = made if isinstance(made, tuple) else (made, made is not None)
        if fn is not None:
            start = time.perf_counter()
            fn()
            if time.perf_counter() - start < 1.0:
                fn()
        print(json.dumps(told), flush=True)


class Worker:
    """One peer's process."""

    def __init__(self, script: str, peer: str) -> None:
        env = dict(os.environ)
        for key in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
            env.pop(key, None)
        self.process = subprocess.Popen(
            [sys.executable, script, "--worker", peer],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )
        self.alive = self.read() == "ready"

    def read(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, case):
        """Take a case, or time a round of it (None)."""
        try:
            self.process.stdin.write(json.dumps(case) + "\n")
            self.process.stdin.flush()
        except OSError:
            return None
        return self.read()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it has died on the way
            self.process.stdin.close()


def start(script: str, peers: tuple[str, ...]) -> dict[str, Worker]:
    """The peers that are installed, each in its process."""
    workers = {p: Worker(script, p) for p in peers}
    missing = [p for p, w in workers.items() if not w.alive]
    if "marram" in missing:
        raise SystemExit("Python does not find marram: PYTHONPATH=build/python build/venv/bin/python " + script)
    if missing:
        print(f"not installed here: {', '.join(missing)}")
    return {p: w for p, w in workers.items() if w.alive}


def measure(workers: dict[str, Worker], case, rounds: int, slow: float = 10 * SECONDS) -> tuple[dict, dict]:
    """The best seconds of each peer, and what each told of the case.  A call
    that takes longer than `slow` is timed twice.  Before its turn the
    threads of the peer that came before go to sleep."""
    told = {p: w.ask(case) for p, w in workers.items()}
    live = {p: w for p, w in workers.items() if told[p]}
    best: dict[str, float] = {}
    before = next(reversed(live), "")
    for n in range(rounds):
        for p, w in live.items():
            if n >= 2 and best.get(p, 0.0) > slow:
                continue
            time.sleep(SETTLES.get(before, SETTLE))
            before = p
            t = w.ask(None)
            if t is not None:
                best[p] = min(best.get(p, float("inf")), t)
    return best, told
