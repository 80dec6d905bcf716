/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel_run.h -- arrays made by hand, and kernels of the CPU's table called
 * on them directly.
 *
 * Each kernel runs twice, over the pool and on one thread alone, and must give
 * equal bytes and stay within the workspace it asked for.
 */
#ifndef MRT_CPU_KERNEL_RUN_H
#define MRT_CPU_KERNEL_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array/layout.h"
#include "base/error.h"
#include "base/pool.h"
#include "cpu/cpu.h"
#include "gen/ids.h"
#include "marram/error.h"
#include "ops/params.h"

enum { MAX_DIMS = 6, GUARD = 256 };

typedef enum layout {
    PLAIN,
    TURNED,   /* the last two axes exchanged in memory */
    BACKWARD, /* the last axis back to front */
    GAPPED,   /* every third element of the last axis */
    REPEATED, /* the first axis has stride 0 */
    N_LAYOUTS
} layout;

typedef struct arr {
    mr_kernel_view view;
    int64_t dim[MAX_DIMS], stride[MAX_DIMS];
    char *memory;
    int64_t bytes;
} arr;

static inline arr *
arr_new(mr_dtype t, layout how, int32_t ndim, const int64_t *dim)
{
    arr *x = calloc(1, sizeof *x);
    int64_t item = mr__dtype_size(t), first = 0, n = 1;
    int32_t last = ndim - 1;

    assert_non_null(x);
    memcpy(x->dim, dim, (size_t)ndim * sizeof *dim);
    for (int32_t k = 0; k < ndim; k++)
        n *= dim[k];
    x->view = (mr_kernel_view){NULL, t, ndim, n, x->dim, x->stride};
    mr__strides_fresh(ndim, dim, x->stride);
    if (how == TURNED && ndim >= 2) {
        x->stride[last] = dim[last - 1];
        x->stride[last - 1] = 1;
    } else if (how == BACKWARD && ndim >= 1) {
        first = dim[last] > 0 ? dim[last] - 1 : 0;
        x->stride[last] = -1;
    } else if (how == GAPPED) {
        for (int32_t k = 0; k < ndim; k++)
            x->stride[k] *= 3;
    } else if (how == REPEATED && ndim >= 1) {
        x->stride[0] = 0;
    }
    x->bytes = (3 * n + 1) * item;
    x->memory = aligned_alloc(64, (size_t)(x->bytes + 63) / 64 * 64);
    assert_non_null(x->memory);
    memset(x->memory, 0x5A, (size_t)x->bytes);
    x->view.data = x->memory + first * item;
    return x;
}

#define ARR(t, how, ...)                                                       \
    arr_new((t), (how),                                                        \
            (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),     \
            (int64_t[]){__VA_ARGS__})

static inline void
arr_free(arr *x)
{
    free(x->memory);
    free(x);
}

/* Where element i (row-major) lies. */
static inline char *
arr_at(const arr *x, int64_t i)
{
    int64_t at = 0;

    for (int32_t k = x->view.ndim - 1; k >= 0; k--) {
        at += i % x->dim[k] * x->stride[k];
        i /= x->dim[k];
    }
    return (char *)x->view.data + at * mr__dtype_size(x->view.dtype);
}

static inline void
arr_set_complex(arr *x, int64_t i, double re, double im)
{
    mr_const from = {.c128 = {re, im}}, to;

    mr__const_cast(&from, MR_COMPLEX128, &to, x->view.dtype);
    memcpy(arr_at(x, i), to.bytes, (size_t)mr__dtype_size(x->view.dtype));
}

static inline void
arr_set(arr *x, int64_t i, double v)
{
    arr_set_complex(x, i, v, 0.0);
}

static inline mr_c128
arr_complex(const arr *x, int64_t i)
{
    mr_const from = {.u64 = {0, 0}}, to;

    memcpy(from.bytes, arr_at(x, i), (size_t)mr__dtype_size(x->view.dtype));
    mr__const_cast(&from, x->view.dtype, &to, MR_COMPLEX128);
    return to.c128;
}

static inline double
arr_get(const arr *x, int64_t i)
{
    return arr_complex(x, i).re;
}

/* Small integers, different from element to element. */
static inline void
arr_count(arr *x, int seed)
{
    for (int64_t i = 0; i < x->view.size; i++) {
        double v = (double)((i * 7 + seed * 5 + i / 11) % 13);

        if (x->view.dtype == MR_BOOL)
            v = (double)((int)v % 2);
        else if (mr__dtype_kind(x->view.dtype) != MR_KIND_UINT)
            v -= 6.0;
        arr_set_complex(x, i, v, (double)((i + seed) % 5) - 2.0);
    }
}

/* ---- running ---------------------------------------------------------------
 */

typedef struct call {
    const mr_kernel *row;
    mr_kernel_args args;
    mr_code code;
} call;

static inline void
call_inline(void *ctx, int64_t i)
{
    call *c = ctx;

    if (i == 0)
        c->code = c->row->run(&c->args);
}

static inline const mr_kernel *
kernel_row(uint16_t op)
{
    const mr_kernel *row = mr__cpu_device.kernels;

    while (row->run && row->op != op)
        row++;
    assert_non_null(row->run);
    return row;
}

/* The same elements, row-major. */
static inline arr *
arr_plain(const arr *x)
{
    arr *y = arr_new(x->view.dtype, PLAIN, x->view.ndim, x->dim);

    for (int64_t i = 0; i < x->view.size; i++)
        memcpy(arr_at(y, i), arr_at(x, i),
               (size_t)mr__dtype_size(x->view.dtype));
    return y;
}

static inline mr_code
kernel_run_n(uint16_t op, const void *params, arr *out, int n_in, arr **in)
{
    call c = {.row = kernel_row(op)};
    size_t bytes,
        out_bytes = (size_t)(out->view.size * mr__dtype_size(out->view.dtype));
    mr_kernel_view views[16];
    arr *made[16] = {NULL};
    char *workspace, *first = malloc(out_bytes + 1);
    mr_code code;

    assert_true(n_in <= 16 && first);
    for (int i = 0; i < n_in; i++) {
        bool plain = c.row->contiguous == MR_KERNEL_ALL_CONTIGUOUS ||
                     (c.row->contiguous >> i & 1U) != 0;

        if (plain)
            made[i] = arr_plain(in[i]);
        views[i] = plain ? made[i]->view : in[i]->view;
    }
    c.args = (mr_kernel_args){.params = params,
                              .n_in = n_in,
                              .n_out = 1,
                              .in = views,
                              .out = &out->view};
    bytes = c.row->workspace ? c.row->workspace(&c.args) : 0;
    workspace = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
    assert_non_null(workspace);
    memset(workspace, 0x7F, bytes + GUARD);
    c.args.workspace = workspace;
    memset(out->view.data, 0xA5, out_bytes);
    code = c.row->run(&c.args);
    memcpy(first, out->view.data, out_bytes);
    memset(out->view.data, 0x11, out_bytes);
    if (c.row->cost)
        assert_true(c.row->cost(&c.args) > 0);
    mr__pool_loop(2, call_inline, &c);
    assert_int_equal(c.code, code);
    if (code == MR_OK)
        assert_memory_equal(first, out->view.data, out_bytes);
    for (size_t i = bytes; i < bytes + GUARD; i++)
        assert_int_equal(workspace[i], 0x7F);
    for (int i = 0; i < n_in; i++)
        if (made[i])
            arr_free(made[i]);
    free(workspace);
    free(first);
    return code;
}

#define RUN(op, params, out, ...)                                              \
    kernel_run_n((op), (params), (out),                                        \
                 (int)(sizeof((arr *[]){__VA_ARGS__}) / sizeof(arr *)),        \
                 (arr *[]){__VA_ARGS__})

static inline bool
same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static inline void
assert_close(double a, double b, double tolerance)
{
    if (!same(a, b) && !(fabs(a - b) <= tolerance * (1.0 + fabs(b))))
        fail_msg("%.17g is not %.17g", a, b);
}

/* The value that the dtype has for v. */
static inline double
rounded(mr_dtype t, double v)
{
    mr_const from = {.c128 = {v, 0.0}}, there, back;

    mr__const_cast(&from, MR_COMPLEX128, &there, t);
    mr__const_cast(&there, t, &back, MR_COMPLEX128);
    return back.c128.re;
}

/* Of one rounding to a dtype, relative, and something to spare. */
static inline double
rounding(mr_dtype t)
{
    return t == MR_FLOAT16                        ? 0x1p-10
           : t == MR_BFLOAT16                     ? 0x1p-7
           : t == MR_FLOAT32 || t == MR_COMPLEX64 ? 0x1p-21
                                                  : 0x1p-49;
}

#endif
