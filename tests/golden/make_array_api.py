# SPDX-License-Identifier: Apache-2.0
"""Writes array_api.tsv: names and parameters of the array API standard, 2024.12.

Read from the signatures of array-api-strict (pip install array-api-strict),
the consortium's own strict implementation.  A line is a name, then its
parameters: "x/" positional-only, "k=" keyword-only, "*x" the rest.  Names with
"." are of the linalg and fft extensions, and "array." of the array object.
"""

import inspect
import types
from pathlib import Path

import array_api_strict as xp

xp.set_array_api_strict_flags(api_version="2024.12", enabled_extensions=("linalg", "fft"))
KINDS = {0: "{}/", 1: "{}", 2: "*{}", 3: "{}="}
OWN = ("ArrayAPIStrictFlags", "Device", "array_api_strict_flags")
# what every Python object has
COMMON = {*dir(object), "__slots__", "__array__", "__buffer__", "__iter__", "__module__", "__dict__", "__weakref__",
          "__annotations__"} - {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}  # fmt: skip


def line(name, value, method=False):
    if not callable(value) or inspect.isclass(value):
        return name
    parameters = list(inspect.signature(value).parameters.values())[method:]
    return "\t".join([name, *(KINDS[int(p.kind)].format(p.name) for p in parameters)])


def lines():
    for module, prefix in ((xp, ""), (xp.linalg, "linalg."), (xp.fft, "fft.")):
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if not name.endswith(OWN) and not isinstance(value, types.ModuleType):
                yield line(prefix + name, value)
    array = type(xp.asarray(0))
    for name in sorted(set(dir(array)) - COMMON):
        if not name.startswith("_") or name.endswith("__"):
            yield line("array." + name, getattr(array, name), True)


(Path(__file__).parent / "array_api.tsv").write_text("\n".join(lines()) + "\n")
