# SPDX-License-Identifier: Apache-2.0
"""Arrays, operators, transforms, devices: ``import marram.core as mx``.

Almost everything lives in the extension ``marram._core``; what is plain Python
stands in ``_types``.
"""

from .. import _core
from .._core import *  # noqa: F403
from .._core import __version__
from . import _captured as _captured
from . import cuda as cuda
from . import metal as metal
from ._types import *  # noqa: F403
from ._types import __array_namespace_info__, _PrintOptionsContext, _RandomState

random = _core.random
fast = _core.fast
linalg = _core.linalg
fft = _core.fft

random._RandomState = _RandomState
random.state = _RandomState()

# The array API standard has these among its linear algebra, too.
for _name in ("matmul", "matrix_transpose", "outer", "tensordot", "vecdot"):
    setattr(linalg, _name, getattr(_core, _name))
del _name

pi = 3.141592653589793
e = 2.718281828459045
euler_gamma = 0.5772156649015329
inf = float("inf")
nan = float("nan")
newaxis = None

# The array API's name of bool_.  Not in __all__: programs that take all names
# of this module mean Python's bool.
bool = _core.bool_
__array_api_version__ = "2024.12"

__all__ = [n for n in globals() if not n.startswith("_") and n != "bool"]
__all__ += ["__array_api_version__", "__array_namespace_info__", "__version__", "_PrintOptionsContext"]
