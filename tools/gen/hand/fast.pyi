import builtins
from collections.abc import Sequence

from marram.core import Dtype, StreamOrDevice, array, scalar

def scaled_dot_product_attention(
    q: array,
    k: array,
    v: array,
    *,
    scale: float,
    mask: str | array | None = None,
    sinks: array | None = None,
    force_fused: bool = False,
    stream: StreamOrDevice = None,
) -> array: ...
