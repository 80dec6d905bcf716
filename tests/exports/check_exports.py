#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the symbols that libmarram.so exports against symbols.txt.

A name that goes is a broken program somewhere, a name that comes is a promise:
both are changes of the list that a person commits (make exports).  Also checks
that the library can be opened late: initial-exec thread-local storage has to
fit into the little that the loader keeps for that; that what a thread traces is
its own; and that the check of the locks' order is in no release build.

usage: check_exports.py [--update] LIBRARY
"""

import re
import subprocess
import sys
from pathlib import Path

LIST = Path(__file__).resolve().parent / "symbols.txt"
# glibc keeps 512 bytes for libraries opened by dlopen that ask for TLS so
# (tunable rtld.optional_static_tls); other libraries want some of it.
TLS_BYTES = 384


def exported(library: str) -> list[str]:
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                         capture_output=True, text=True).stdout
    return sorted({line.split()[-1].split("@")[0]
                   for line in out.splitlines() if line.strip()})


def tls_bytes(library: str) -> int:
    out = subprocess.run(["readelf", "-lW", library], check=True,
                         capture_output=True, text=True).stdout
    match = re.search(r"^\s+TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(0x[0-9a-f]+)", out,
                      re.M)
    return int(match[1], 16) if match else 0


def thread_local(library: str) -> set[str]:
    out = subprocess.run(["readelf", "-sW", library], check=True,
                         capture_output=True, text=True).stdout
    return {line.split()[-1] for line in out.splitlines() if " TLS " in line}


def has_lock_checks(library: str) -> bool:
    """Whether what the check says (src/base/lock.c) is in there."""
    return b"dropping what is not held" in Path(library).read_bytes()


def main() -> int:
    args = [a for a in sys.argv[1:] if a != "--update"]
    now = exported(args[0])
    bad = [f"{name} does not begin with mr_"
           for name in now if not re.match(r"mr_[a-z0-9]", name)]
    if "--update" in sys.argv:
        LIST.write_text("".join(f"{name}\n" for name in now))
        print(f"{len(now)} symbols")
    else:
        known = LIST.read_text().split() if LIST.exists() else []
        bad += [f"{n} is exported and not in symbols.txt"
                for n in now if n not in set(known)]
        bad += [f"{n} is in symbols.txt and not exported"
                for n in known if n not in set(now)]
        if bad:
            bad.append("run `make exports` if this is what you want")
    tls = tls_bytes(args[0])
    if tls > TLS_BYTES:
        bad.append(f"{tls} bytes of static thread-local storage: "
                   f"{TLS_BYTES} at most, or dlopen may fail")
    if "mr__ctx" not in thread_local(args[0]):
        bad.append("mr__ctx, a thread's scope and trace, is not thread-local")
    if has_lock_checks(args[0]):
        bad.append("the check of the locks' order is in a release build")
    testing = Path(args[0]).with_name("libmarram_testing.so")
    if testing.exists() and not has_lock_checks(str(testing)):
        bad.append("the check of the locks' order is not in the tests' build")
    print("\n".join(bad) if bad else f"{len(now)} symbols, {tls} bytes of TLS")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
