#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the locks and atomics of the sources against docs/concurrency.md.

Every lock stands there by its name and rank, every atomic by its name: whoever
adds one says there what it guards or pairs with.  (Those of base/pool.c are
explained in that file.)  The other way round, no lock stands there that is
gone.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOC = ROOT / "docs/concurrency.md"
ELSEWHERE = {"src/base/pool.c"}
LOCK = re.compile(r"MR_LOCK_INIT\(MR_RANK_(\w+),\s*\"([^\"]+)\"")
ATOMIC = re.compile(r"^[ \t]*(?:(?:static|extern|_Thread_local|_Alignas\(\d+\))\s+)*"
                    r"(?:(?:u?int\d*_t|size_t|bool|int)\s+)?_Atomic\b([^;=()]*(?:\([^)]*\))?[^;=()]*)[;=]", re.M)


def sources() -> dict[str, str]:
    files = [p for d in ("src", "python/ext") for p in sorted((ROOT / d).rglob("*.[ch]"))]
    return {str(p.relative_to(ROOT)): re.sub(r"/\*.*?\*/", "", p.read_text(), flags=re.S) for p in files}


def atomics(text: str) -> set[str]:
    """The names in each declaration: what stands before a comma or the end."""
    names = set()
    for m in ATOMIC.finditer(text):
        declared = re.sub(r"^\([^)]*\)", "", m[1].strip())
        names |= set(re.findall(r"(\w+)(?:\[[^\]]*\])*\s*(?:,|$)", declared))
    return names


def main() -> int:
    doc = DOC.read_text()
    ranks = dict(re.findall(r"^\| (\d+) ([A-Z_]+) \|", doc, re.M))
    known = set(ranks.values())
    bad, used = [], set()
    for path, text in sources().items():
        for rank, name in LOCK.findall(text):
            used.add(rank)
            if rank not in known or f"`{name}`" not in doc:
                bad.append(f"{path}: the lock {name!r} of rank {rank} is not in docs/concurrency.md")
        if path not in ELSEWHERE:
            bad += [f"{path}: the atomic {n!r} is not in docs/concurrency.md"
                    for n in sorted(atomics(text)) if not re.search(rf"\b{n}\b", doc)]
        if "atomic_thread_fence(" in text:
            bad.append(f"{path}: a fence, which ThreadSanitizer does not understand")
        if "pthread_rwlock" in text or (path != "src/base/lock.c" and "pthread_mutex_lock" in text):
            bad.append(f"{path}: a lock without a rank")
    bad += [f"docs/concurrency.md: no lock has rank {r}" for r in sorted(known - used)]
    print("\n".join(bad) if bad else f"{len(used)} ranks, every lock and atomic is explained")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
