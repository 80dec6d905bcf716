# SPDX-License-Identifier: Apache-2.0
"""``python -m marram``: what this installation is and runs on.

``python -m marram graph FILE:FUNCTION ARGUMENT...`` shows what a function is
compiled to.

The command ``marram`` that a wheel installs is the one written in C: it also
says what a file holds and shows every program of another command.
"""

import os
import platform
import sys
from pathlib import Path

import marram.core as mx
from marram import _graph

USAGE = """usage: python -m marram                                 what this installation is and runs on
       python -m marram graph FILE:FUNCTION ARGUMENT...   what a function is compiled to"""


def graph(words: list[str]) -> None:
    """Prints the programs of a function, or how to ask for them."""
    if words and words[0] in ("-h", "--help"):
        print(_graph.USAGE)
        return
    if not words:
        sys.exit(_graph.USAGE)
    try:
        print(_graph.graph(words), end="")
    except (ValueError, OSError, ImportError, AttributeError) as e:
        sys.exit(f"marram graph: {e}")


def command() -> None:
    """Becomes the command that lies in the installed package.

    pip makes the script that calls this, since it makes none of a binary file.
    """
    program = Path(__file__).parent / "bin" / "marram"
    try:
        os.execv(program, ["marram", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"marram: {program}: {e.strerror}: the package is not whole, install it again")


def main() -> None:
    """Prints a line for each fact."""
    if sys.argv[1:2] == ["graph"]:
        graph(sys.argv[2:])
        return
    if sys.argv[1:]:
        print(USAGE)
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    info = mx.device_info()
    print(f"marram {mx.__version__}")
    print(f"python {platform.python_version()}")
    print(f"default device {mx.default_device()}")
    print(f"gpu devices {mx.device_count(mx.gpu)}")
    for name, value in info.items():
        print(f"{name.replace('_', ' ')} {value}")
    print(f"cpu tier {mx.cpu_tier()}")
    print(f"threads {mx.num_threads()}")


if __name__ == "__main__":
    main()
