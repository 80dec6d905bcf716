# The extension; marram.core shows what is public of it.
from collections.abc import Callable
from typing import Any

from marram.core import *
from marram.core import __version__ as __version__

def _check_grad(
    fun: Callable[..., Any],
    arrays: tuple[array, ...],
    names: tuple[str, ...],
    step: float,
    rtol: float,
    atol: float,
    /,
) -> None: ...
def _set_eager(by: int, /) -> None: ...
def _get_precision() -> int: ...
def _set_precision(precision: int, /) -> None: ...
