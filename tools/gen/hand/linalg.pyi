import builtins
from collections.abc import Sequence
from typing import Literal, overload

from marram.core import Dtype, StreamOrDevice, array, scalar
from marram.core import matmul as matmul
from marram.core import matrix_transpose as matrix_transpose
from marram.core import outer as outer
from marram.core import tensordot as tensordot
from marram.core import vecdot as vecdot
from marram.core._types import EighResult, EigResult, QRResult, SlogdetResult, SVDResult

def norm(
    a: array,
    /,
    ord: int | float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    stream: StreamOrDevice = None,
) -> array: ...
def matrix_norm(
    a: array, /, *, keepdims: bool = False, ord: int | float | str | None = "fro", stream: StreamOrDevice = None
) -> array: ...
def slogdet(a: array, *, stream: StreamOrDevice = None) -> SlogdetResult: ...
def qr(a: array, *, mode: str = "reduced", stream: StreamOrDevice = None) -> QRResult: ...
def eigh(a: array, UPLO: str = "L", *, stream: StreamOrDevice = None) -> EighResult: ...
def eig(a: array, *, stream: StreamOrDevice = None) -> EigResult: ...
@overload
def svd(
    a: array, compute_uv: Literal[True] = True, *, full_matrices: bool = True, stream: StreamOrDevice = None
) -> SVDResult: ...
@overload
def svd(
    a: array, compute_uv: Literal[False], *, full_matrices: bool = True, stream: StreamOrDevice = None
) -> array: ...
