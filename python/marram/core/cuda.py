# SPDX-License-Identifier: Apache-2.0
"""What is particular to NVIDIA GPUs."""

from .. import _core

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether the CUDA provider is loaded and has a device."""
    return bool(_core.is_available(_core.gpu))
