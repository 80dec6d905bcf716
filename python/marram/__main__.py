# SPDX-License-Identifier: Apache-2.0
"""``python -m marram``: what this installation is and runs on."""

import platform

import marram.core as mx


def main() -> None:
    """Prints a line for each fact."""
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
