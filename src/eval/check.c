/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c -- the checking mode: the first NaN or infinity names its operator.
 *
 * In this mode nothing is fused, so that each operator's result is there to be
 * looked at.  A result counts when all inputs of the operator are finite: what
 * only passes a NaN on is not named.  One thread looks, element by element.
 * Called by: task.c, compile/ after a kernel, under no lock.
 */
#include "eval/check.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "array/number.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "graph/node.h"
#include "graph/op.h"
#include "marram/array.h"

enum { UNKNOWN = -1 };

/* relaxed: a setting */
static _Atomic int mode = UNKNOWN;

static mr_check_mode
mode_of_text(const char *text)
{
    if (text == NULL || strcmp(text, "") == 0 || strcmp(text, "0") == 0)
        return MR_CHECK_OFF;
    if (strcmp(text, "1") == 0)
        return MR_CHECK_WARN;
    if (strcmp(text, "error") == 0)
        return MR_CHECK_ERROR;
    mr__log(MR_LOG_WARN,
            "MARRAM_CHECK is \"%s\": 0, 1 or error are known; taken as 1",
            text);
    return MR_CHECK_WARN;
}

mr_check_mode
mr__check_mode(void)
{
    int now = atomic_load_explicit(&mode, memory_order_relaxed);

    if (__builtin_expect(now != UNKNOWN, 1))
        return (mr_check_mode)now;
    now = mode_of_text(getenv("MARRAM_CHECK"));
    atomic_store_explicit(&mode, now, memory_order_relaxed);
    return (mr_check_mode)now;
}

mr_check_mode
mr_check_set(mr_check_mode wanted)
{
    mr_check_mode old = mr__check_mode();

    if (wanted == MR_CHECK_OFF || wanted == MR_CHECK_WARN ||
        wanted == MR_CHECK_ERROR)
        atomic_store_explicit(&mode, (int)wanted, memory_order_relaxed);
    return old;
}

/* ---- looking ------------------------------------------------------------ */

static bool
is_finite(mr_dtype t, const void *at, bool *nan)
{
    mr_scalar v = mr__number_read(t, at);
    double re = v.kind == MR_SCALAR_COMPLEX ? v.as.c.re : v.as.f;
    double im = v.kind == MR_SCALAR_COMPLEX ? v.as.c.im : 0.0;

    if (isfinite(re) && isfinite(im))
        return true;
    *nan = isnan(re) || isnan(im);
    return false;
}

/* Place of the first element that is not finite; false when all are. */
static bool
find(const mr_kernel_view *v, int64_t *at, bool *nan)
{
    int64_t size = mr__dtype_size(v->dtype);

    if (!mr__dtype_is_inexact(v->dtype) || v->size == 0)
        return false;
    memset(at, 0, (size_t)v->ndim * sizeof *at);
    for (int64_t i = 0; i < v->size; i++) {
        const char *p = v->data;

        for (int d = 0; d < v->ndim; d++)
            p += at[d] * v->stride[d] * size;
        if (!is_finite(v->dtype, p, nan))
            return true;
        for (int d = v->ndim - 1; d >= 0 && ++at[d] == v->dim[d]; d--)
            at[d] = 0;
    }
    return false;
}

static void
text_of_inputs(char *text, size_t room, int n, const mr_kernel_view *in)
{
    char shape[128];
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < n && i < 4 && used < room; i++)
        used += (size_t)snprintf(
            text + used, room - used, "%s%s %s", i > 0 ? ", " : "",
            mr_dtype_name(in[i].dtype),
            mr__shape_text(shape, sizeof shape, in[i].ndim, in[i].dim));
}

static mr_code
tell(const mr_array *node, int n_in, const mr_kernel_view *in,
     const mr_kernel_view *out, const int64_t *at, bool nan)
{
    char place[128], shape[128], inputs[512];

    mr__shape_text(place, sizeof place, out->ndim, at);
    mr__shape_text(shape, sizeof shape, out->ndim, out->dim);
    text_of_inputs(inputs, sizeof inputs, n_in, in);
    if (mr__check_mode() == MR_CHECK_ERROR)
        return mr__fail(MR_E_VALUE,
                        "the first %s is at %s of the result %s %s; the inputs "
                        "(%s) are finite",
                        nan ? "NaN" : "infinity", place,
                        mr_dtype_name(out->dtype), shape, inputs);
    mr__log(MR_LOG_WARN,
            "%s made the first %s, at %s of its result %s %s, out of finite "
            "inputs (%s); created at %s",
            node->op->name, nan ? "NaN" : "infinity", place,
            mr_dtype_name(out->dtype), shape, inputs,
            node->site != NULL ? node->site : "an unknown line");
    return MR_OK;
}

static bool
constants_are_finite(const mr_block_code *code)
{
    bool unused;

    for (int i = 0; i < code->n_const; i++) {
        mr_dtype t = (mr_dtype)code->reg_dtype[code->n_in + i];

        if (mr__dtype_is_inexact(t) &&
            !is_finite(t, code->consts[i].bytes, &unused))
            return false;
    }
    return true;
}

static mr_code
look(const mr_array *node, const mr_block_code *code, int n_in,
     const mr_kernel_view *in, int n_out, const mr_kernel_view *out)
{
    int64_t at[MR_MAX_NDIM];
    bool nan = false;

    for (int k = 0; k < n_out; k++) {
        int64_t input_at[MR_MAX_NDIM];
        bool unused, known = code != NULL && !constants_are_finite(code);

        if (!find(&out[k], at, &nan))
            continue;
        for (int i = 0; i < n_in && !known; i++)
            known = find(&in[i], input_at, &unused);
        return known ? MR_OK : tell(node, n_in, in, &out[k], at, nan);
    }
    return MR_OK;
}

mr_code
mr__check_outputs(const mr_array *node, const mr_block_code *code, int n_in,
                  const mr_task_operand *in, int n_out,
                  const mr_task_operand *out)
{
    mr_kernel_view *v = mr__alloc_array((size_t)(n_in + n_out + 1), sizeof *v);
    mr_code rc;

    if (v == NULL)
        return MR_E_MEMORY;
    mr__operand_views(v, n_in, in, n_out, out);
    rc = look(node, code, n_in, v, n_out, v + n_in);
    mr__dealloc(v);
    return rc;
}
