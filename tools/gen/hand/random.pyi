import builtins
from collections.abc import Sequence

from marram.core import Dtype, StreamOrDevice, array, scalar
from marram.core._types import _RandomState

state: _RandomState

def _get_key() -> array: ...
def _set_key(key: array, /) -> None: ...
def seed(seed: int) -> None: ...
def permutation(
    x: int | array,
    axis: int = 0,
    key: array | None = None,
    stream: StreamOrDevice = None,
) -> array: ...
