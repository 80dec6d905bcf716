import builtins
from collections.abc import Sequence

from marram.core import Dtype, StreamOrDevice, array, scalar

