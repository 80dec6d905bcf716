# SPDX-License-Identifier: Apache-2.0
"""Marram: lazy arrays, function transforms and a fusing compiler."""

from . import core
from .core import __version__

__all__ = ["__version__", "core"]
