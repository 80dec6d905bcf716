# SPDX-License-Identifier: Apache-2.0
"""ggml (llama.cpp) as a peer of the quantised products: what table.py's worker "ggml" calls.

    GGML=FOLDER PYTHONPATH=build/python build/venv/bin/python bench/table.py --subject quantised

FOLDER holds libggml.so, libggml-cpu.so and libggml-base.so, 0.25 or later, built
for this processor (cmake -DGGML_NATIVE=ON; PyPI's llama-cpp-python has the
source).  ggml rounds x to 8 bits before it multiplies; Marram does not.
"""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Callable
from typing import Any

TYPES = {"F32": 0, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14}
LIBRARIES = ("libggml-base.so", "libggml-cpu.so", "libggml.so")


class InitParams(c.Structure):
    _fields_ = [("mem_size", c.c_size_t), ("mem_buffer", c.c_void_p), ("no_alloc", c.c_bool)]


class Plan(c.Structure):
    """struct ggml_cplan, and room for what a later version adds to it."""

    _fields_ = [
        ("work_size", c.c_size_t),
        ("work_data", c.c_void_p),
        ("n_threads", c.c_int),
        ("threadpool", c.c_void_p),
        ("rest", c.c_char * 128),
    ]


class Ggml:
    """The libraries in a folder.  Products keep what they were made of."""

    def __init__(self, folder: str, threads: int) -> None:
        base, cpu, _ = (c.CDLL(os.path.join(folder, name), mode=c.RTLD_GLOBAL) for name in LIBRARIES)
        p, i64, size = c.c_void_p, c.c_int64, c.c_size_t
        self.threads = threads
        self.init = self.function(base.ggml_init, p, InitParams)
        self.free = self.function(base.ggml_free, None, p)
        self.matrix = self.function(base.ggml_new_tensor_2d, p, p, c.c_int, i64, i64)
        self.data = self.function(base.ggml_get_data, p, p)
        self.pack = self.function(base.ggml_quantize_chunk, size, c.c_int, p, p, i64, i64, i64, p)
        self.mul_mat = self.function(base.ggml_mul_mat, p, p, p, p)
        self.graph = self.function(base.ggml_new_graph, p, p)
        self.expand = self.function(base.ggml_build_forward_expand, None, p, p)
        self.plan = self.function(cpu.ggml_graph_plan, Plan, p, c.c_int, p)
        self.compute = self.function(cpu.ggml_graph_compute, c.c_int, p, c.POINTER(Plan))
        params = c.create_string_buffer(4096)  # struct ggml_threadpool_params
        self.function(base.ggml_threadpool_params_init, None, p, c.c_int)(c.addressof(params), threads)
        self.pool = self.function(cpu.ggml_threadpool_new, p, p)(c.addressof(params))
        self.made: tuple[Any, Any, int] | None = None

    @staticmethod
    def function(f: Any, result: Any, *arguments: Any) -> Any:
        f.restype, f.argtypes = result, arguments
        return f

    def product(self, x: Any, w: Any, kind: str) -> Any:
        """x @ w.T of NumPy arrays of float32, w in the format `kind`."""
        key = (id(x), id(w), kind)
        if self.made is None or self.made[0] != key:
            if self.made is not None:
                self.free(self.made[2])
            self.made = (key, *self.make(x, w, kind))
        return self.made[1]()

    def make(self, x: Any, w: Any, kind: str) -> tuple[Callable[[], Any], int]:
        import numpy as np

        (m, k), (n, _) = x.shape, w.shape
        context = self.init(InitParams(w.nbytes + x.nbytes + 4 * m * n + (64 << 20), None, False))
        ours, theirs = self.matrix(context, TYPES[kind], k, n), self.matrix(context, TYPES["F32"], k, m)
        self.pack(TYPES[kind], w.ctypes.data, self.data(ours), 0, n, k, None)
        c.memmove(self.data(theirs), x.ctypes.data, x.nbytes)
        y = self.mul_mat(context, ours, theirs)
        graph = self.graph(context)
        self.expand(graph, y)
        plan = self.plan(graph, self.threads, self.pool)
        work = c.create_string_buffer(plan.work_size + 64)
        plan.work_data, plan.threadpool = c.addressof(work), self.pool
        out = np.ctypeslib.as_array(c.cast(self.data(y), c.POINTER(c.c_float)), (m, n))

        def call(kept: Any = (x, w, work)) -> Any:
            self.compute(graph, c.byref(plan))
            return out

        return call, context
