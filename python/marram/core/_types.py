# SPDX-License-Identifier: Apache-2.0
"""Dtype categories and limits, print options, device facts: plain Python."""

from __future__ import annotations

import os

from .. import _core
from .._core import Device, DeviceType, Dtype, array

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than all the rest
    from collections.abc import Iterator, Sequence
    from typing import Self, TypeAlias

    Kind: TypeAlias = Dtype | str | tuple[Dtype | str, ...]

__all__ = [
    "ArrayLike",
    "DtypeCategory",
    "PrintOptions",
    "broadcast_shapes",
    "complexfloating",
    "device_info",
    "eager",
    "finfo",
    "floating",
    "generic",
    "get_printoptions",
    "iinfo",
    "inexact",
    "integer",
    "isdtype",
    "issubdtype",
    "number",
    "printoptions",
    "set_printoptions",
    "signedinteger",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unsignedinteger",
]


# ---- categories ---------------------------------------------------------------


class DtypeCategory:
    """A set of dtypes that issubdtype knows; the eight are attributes here."""

    generic: DtypeCategory
    number: DtypeCategory
    integer: DtypeCategory
    signedinteger: DtypeCategory
    unsignedinteger: DtypeCategory
    inexact: DtypeCategory
    floating: DtypeCategory
    complexfloating: DtypeCategory

    def __init__(self, name: str, parent: DtypeCategory | None) -> None:
        self.name = name
        self._parent = parent
        setattr(DtypeCategory, name, self)

    def __repr__(self) -> str:
        return f"DtypeCategory.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    def _inside(self, other: DtypeCategory) -> bool:
        c: DtypeCategory | None = self
        while c is not None and c is not other:
            c = c._parent
        return c is other


generic = DtypeCategory("generic", None)
number = DtypeCategory("number", generic)
integer = DtypeCategory("integer", number)
signedinteger = DtypeCategory("signedinteger", integer)
unsignedinteger = DtypeCategory("unsignedinteger", integer)
inexact = DtypeCategory("inexact", number)
floating = DtypeCategory("floating", inexact)
complexfloating = DtypeCategory("complexfloating", inexact)


def _category(t: Dtype) -> DtypeCategory:
    name = t.name
    if name == "bool":
        return generic
    if name.startswith("uint"):
        return unsignedinteger
    if name.startswith("int"):
        return signedinteger
    return complexfloating if name.startswith("complex") else floating


def issubdtype(arg1: Dtype | DtypeCategory, arg2: Dtype | DtypeCategory) -> bool:
    """Whether a dtype or category lies in another."""
    for a in (arg1, arg2):
        if not isinstance(a, (Dtype, DtypeCategory)):
            raise TypeError(f"issubdtype() needs Dtypes or DtypeCategories, not {type(a).__name__}")
    if isinstance(arg2, Dtype):
        return arg1 is arg2
    if isinstance(arg1, Dtype):
        arg1 = _category(arg1)
    return arg1._inside(arg2)


_KINDS = {
    "bool": (),
    "signed integer": (signedinteger,),
    "unsigned integer": (unsignedinteger,),
    "integral": (integer,),
    "real floating": (floating,),
    "complex floating": (complexfloating,),
    "numeric": (number,),
}


def isdtype(dtype: Dtype, kind: Kind) -> bool:
    """Whether a dtype is of a kind, as the array API names them."""
    if not isinstance(dtype, Dtype):
        raise TypeError(f"isdtype() needs a Dtype, not {type(dtype).__name__}")
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, Dtype):
        return dtype is kind
    if kind not in _KINDS:
        raise ValueError(f"no kind of dtype is called {kind!r}")
    if kind == "bool":
        return dtype.name == "bool"
    return any(issubdtype(dtype, c) for c in _KINDS[kind])


# ---- limits -------------------------------------------------------------------

# name: bits, bits of the significand with the hidden one, largest exponent
_FLOATS = {
    "float16": (16, 11, 16),
    "bfloat16": (16, 8, 128),
    "float32": (32, 24, 128),
    "float64": (64, 53, 1024),
}


def _dtype_of(function: str, x: Dtype | array) -> Dtype:
    t = x.dtype if isinstance(x, array) else x
    if not isinstance(t, Dtype):
        raise TypeError(f"{function}() takes a dtype or an array, not {type(x).__name__}")
    return t


class finfo:
    """Limits of a floating type; a complex one reports that of its parts."""

    __slots__ = ("bits", "dtype", "eps", "max", "min", "smallest_normal")

    def __init__(self, dtype: Dtype | array) -> None:
        name = _dtype_of("finfo", dtype).name
        if name.startswith("complex"):
            name = "float32" if name == "complex64" else "float64"
        if name not in _FLOATS:
            raise ValueError(f"finfo() needs a floating type, not {name}")
        self.bits, digits, exponent = _FLOATS[name]
        self.dtype: Dtype = getattr(_core, name)
        self.eps = 2.0 ** (1 - digits)
        self.max = (2.0 - self.eps) * 2.0 ** (exponent - 1)
        self.min = -self.max
        self.smallest_normal = 2.0 ** (2 - exponent)

    def __repr__(self) -> str:
        return f"finfo(min={self.min}, max={self.max}, dtype={self.dtype.name})"


class iinfo:
    """Limits of an integer type."""

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, dtype: Dtype | array) -> None:
        dtype = _dtype_of("iinfo", dtype)
        if not issubdtype(dtype, integer):
            raise ValueError(f"iinfo() needs an integer type, not {dtype.name}")
        self.dtype = dtype
        self.bits = 8 * dtype.size
        signed = issubdtype(dtype, signedinteger)
        self.min = -(2 ** (self.bits - 1)) if signed else 0
        self.max = 2 ** (self.bits - signed) - 1

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype.name})"


# ---- printing -----------------------------------------------------------------


class PrintOptions:
    """How arrays print: decimals of floats, -1 for six significant digits."""

    __slots__ = ("precision",)

    def __init__(self, precision: int = -1) -> None:
        self.precision = precision

    def __repr__(self) -> str:
        return f"PrintOptions(precision={self.precision})"


def get_printoptions() -> PrintOptions:
    """The print options in force."""
    return PrintOptions(_core._get_precision())


def set_printoptions(precision: int = -1) -> None:
    """Sets the print options."""
    _core._set_precision(precision)


class _PrintOptionsContext:
    def __init__(self, options: PrintOptions) -> None:
        self._options = options
        self._old: list[int] = []

    def __enter__(self) -> PrintOptions:
        self._old.append(_core._get_precision())
        _core._set_precision(self._options.precision)
        return self._options

    def __exit__(self, *args: object) -> None:
        _core._set_precision(self._old.pop())


def printoptions(precision: int = -1) -> _PrintOptionsContext:
    """A context with other print options."""
    return _PrintOptionsContext(PrintOptions(precision))


# ---- debugging ---------------------------------------------------------------


class _EagerContext:
    def __enter__(self) -> None:
        _core._set_eager(1)

    def __exit__(self, *args: object) -> None:
        _core._set_eager(-1)


def eager() -> _EagerContext:
    """A context in which this thread evaluates each operation where it is called.

    An error then surfaces in its line, with the values of that moment at hand.
    Nothing is fused, so this is for debugging; inside compiled functions and
    vmap, where arrays have no values, operations stay lazy.
    """
    return _EagerContext()


# ---- the rest -----------------------------------------------------------------


class ArrayLike:
    """A value that stands for an array: one, or what has __mlx_array__."""

    __slots__ = ("_value",)

    def __init__(self, arg: object, /) -> None:
        self._value = arg

    def __mlx_array__(self) -> array:
        """The array."""
        value = self._value
        return value.__mlx_array__() if hasattr(value, "__mlx_array__") else array(value)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which shapes broadcast together."""
    if not shapes:
        raise ValueError("broadcast_shapes() needs a shape")
    out: list[int] = []
    for shape in shapes:
        n = max(len(out), len(shape))
        a = [1] * (n - len(out)) + out
        b = [1] * (n - len(shape)) + list(shape)
        for x, y in zip(a, b, strict=True):
            if x != y and x != 1 and y != 1:
                raise ValueError(f"the shapes {shapes} do not broadcast")
        out = [y if x == 1 else x for x, y in zip(a, b, strict=True)]
    return tuple(out)


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith(("model name", "Model")):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return os.uname().machine


def device_info(d: Device | DeviceType | None = None) -> dict[str, str | int]:
    """Facts about a device; nothing about one that is not here."""
    device = _core.default_device() if d is None else d
    if not _core.is_available(device):
        return {}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "device_name": _cpu_name(),
        "architecture": os.uname().machine,
        "total_memory": memory,
        "memory_size": memory,
    }


class Named(tuple[array, ...]):
    """A tuple whose fields have names; transforms keep its class."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __new__(cls, *items: array) -> Self:
        return tuple.__new__(cls, items)

    def __getnewargs__(self) -> tuple[array, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        fields = ", ".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({fields})"


class UniqueAll(Named):
    """What unique_all gives."""

    __slots__ = ()
    _fields = ("values", "indices", "inverse_indices", "counts")
    values = property(lambda s: s[0])
    indices = property(lambda s: s[1])
    inverse_indices = property(lambda s: s[2])
    counts = property(lambda s: s[3])


class UniqueCounts(Named):
    """What unique_counts gives."""

    __slots__ = ()
    _fields = ("values", "counts")
    values = property(lambda s: s[0])
    counts = property(lambda s: s[1])


class UniqueInverse(Named):
    """What unique_inverse gives."""

    __slots__ = ()
    _fields = ("values", "inverse_indices")
    values = property(lambda s: s[0])
    inverse_indices = property(lambda s: s[1])


class EighResult(Named):
    """What linalg.eigh gives."""

    __slots__ = ()
    _fields = ("eigenvalues", "eigenvectors")
    eigenvalues = property(lambda s: s[0])
    eigenvectors = property(lambda s: s[1])


class EigResult(EighResult):
    """What linalg.eig gives."""

    __slots__ = ()


class QRResult(Named):
    """What linalg.qr gives."""

    __slots__ = ()
    _fields = ("Q", "R")
    Q = property(lambda s: s[0])
    R = property(lambda s: s[1])


class SVDResult(Named):
    """What linalg.svd gives."""

    __slots__ = ()
    _fields = ("U", "S", "Vh")
    U = property(lambda s: s[0])
    S = property(lambda s: s[1])
    Vh = property(lambda s: s[2])


class SlogdetResult(Named):
    """What linalg.slogdet gives."""

    __slots__ = ()
    _fields = ("sign", "logabsdet")
    sign = property(lambda s: s[0])
    logabsdet = property(lambda s: s[1])


def unique_all(x: array, /) -> UniqueAll:
    """Distinct values, where each is first, which one each element is, how many there are."""
    v, i, k, n = _core.unique(x, return_index=True, return_inverse=True, return_counts=True)
    return UniqueAll(v, i.astype(_core.int32), k.astype(_core.int32), n)


def unique_counts(x: array, /) -> UniqueCounts:
    """Distinct values, and how many there are of each."""
    return UniqueCounts(*_core.unique(x, return_counts=True))


def unique_inverse(x: array, /) -> UniqueInverse:
    """Distinct values, and which one each element is."""
    v, k = _core.unique(x, return_inverse=True)
    return UniqueInverse(v, k.astype(_core.int32))


def unique_values(x: array, /) -> array:
    """Distinct values."""
    values: array = _core.unique(x)
    return values


class _Info:
    """What the array API's inspection asks."""

    def capabilities(self) -> dict[str, object]:
        """Which optional parts there are."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self) -> Device:
        """The default device."""
        return _core.default_device()

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, Dtype]:
        """The dtypes that values take by themselves."""
        return {
            "real floating": _core.float32,
            "complex floating": _core.complex64,
            "integral": _core.int32,
            "indexing": _core.int32,
        }

    def devices(self) -> list[Device]:
        """All devices that are here."""
        found = []
        for kind in (_core.cpu, _core.gpu):
            found += [Device(kind, i) for i in range(_core.device_count(kind))]
        return found

    def dtypes(self, *, device: Device | None = None, kind: Kind | None = None) -> dict[str, Dtype]:
        """The dtypes of the array API, or those of a kind."""
        names = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
        names += ["complex64", "complex128"]
        all_ = {n: getattr(_core, "bool_" if n == "bool" else n) for n in names}
        return {n: t for n, t in all_.items() if kind is None or isdtype(t, kind)}


def __array_namespace_info__() -> _Info:
    """The array API's inspection of this namespace."""
    return _Info()


class _RandomState:
    """random.state: stands for this thread's key, which is its one entry."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, i: int) -> array:
        if i not in (0, -1):
            raise IndexError("random.state has one entry")
        return _core.random._get_key()

    def __setitem__(self, i: int, key: array) -> None:
        if i not in (0, -1):
            raise IndexError("random.state has one entry")
        _core.random._set_key(key)

    def __iter__(self) -> Iterator[array]:
        yield self[0]
