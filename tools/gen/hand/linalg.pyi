from collections.abc import Sequence

from marram.core import Dtype, StreamOrDevice, array, scalar

def norm(
    a: array,
    /,
    ord: int | float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    stream: StreamOrDevice = None,
) -> array: ...
