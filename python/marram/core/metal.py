# SPDX-License-Identifier: Apache-2.0
"""Names that programs written for Apple machines ask for.

Marram runs on CPUs and NVIDIA GPUs: there is no Metal here.  The memory calls
are those of ``marram.core``; each warns once (DeprecationWarning) and works.
"""

from __future__ import annotations

import warnings

from .. import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _T = TypeVar("_T")

__all__ = [
    "clear_cache",
    "device_info",
    "get_active_memory",
    "get_cache_memory",
    "get_peak_memory",
    "is_available",
    "reset_peak_memory",
    "set_cache_limit",
    "set_memory_limit",
    "set_wired_limit",
    "start_capture",
    "stop_capture",
]

_warned: set[str] = set()


def is_available() -> bool:
    """False: Metal is not supported."""
    return False


def _twin(function: Callable[..., _T], *args: int) -> _T:
    name = function.__name__
    if name not in _warned:
        _warned.add(name)
        warnings.warn(
            f"marram.core.metal.{name} is the old name of marram.core.{name}",
            DeprecationWarning,
            stacklevel=3,
        )
    return function(*args)


def clear_cache() -> None:
    """Old name of ``marram.core.clear_cache``."""
    _twin(_core.clear_cache)


def device_info() -> dict[str, str | int]:
    """Facts of the Metal device: there is none, so {}."""
    return {}


def get_active_memory() -> int:
    """Old name of ``marram.core.get_active_memory``."""
    return _twin(_core.get_active_memory)


def get_cache_memory() -> int:
    """Old name of ``marram.core.get_cache_memory``."""
    return _twin(_core.get_cache_memory)


def get_peak_memory() -> int:
    """Old name of ``marram.core.get_peak_memory``."""
    return _twin(_core.get_peak_memory)


def reset_peak_memory() -> None:
    """Old name of ``marram.core.reset_peak_memory``."""
    _twin(_core.reset_peak_memory)


def set_cache_limit(limit: int) -> int:
    """Old name of ``marram.core.set_cache_limit``; gives the old limit."""
    return _twin(_core.set_cache_limit, limit)


def set_memory_limit(limit: int) -> int:
    """Old name of ``marram.core.set_memory_limit``; gives the old limit."""
    return _twin(_core.set_memory_limit, limit)


def set_wired_limit(limit: int) -> int:
    """Old name of ``marram.core.set_wired_limit``; gives the old limit."""
    return _twin(_core.set_wired_limit, limit)


def start_capture(path: str) -> None:
    """Nothing: there is no Metal work to trace."""


def stop_capture() -> None:
    """Nothing: there is no Metal work to trace."""
