/* SPDX-License-Identifier: Apache-2.0
 *
 * fast.c -- rotary positions, the gated delta rule, cross entropy: bodies made
 * of other operators.
 *
 * Called by: the generated doors.  Calls: marram/ops.h.
 */
#include <math.h>

#include "array/dtype.h"
#include "base/alloc.h"
#include "base/error.h"
#include "gen/build.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/tree.h"
#include "ops/door.h"
#include "ops/rules.h"

/* ---- rotary positions
 * ------------------------------------------------------------ */

/* (positions..., dims / 2), float32 or float64. */
static mr_array *
rope_angles(const mr_array *a, int64_t dims, double base, double scale,
            mr_array *offset, mr_array *freqs, mr_dtype t)
{
    mr_array *at = mr__cast(mr__iota(a->dim[a->ndim - 2], 0, 1), t);
    mr_array *turn;

    offset = mr__cast(offset, t);
    if (offset == NULL)
        return NULL;
    if (offset->ndim == 1 && offset->size != 1) { /* one a batch entry */
        mr_list shape = {.n = a->ndim - 1};

        for (int64_t i = 0; i < shape.n; i++)
            shape.v[i] = i == 0 ? offset->dim[0] : 1;
        offset = mr_reshape(offset, mr__shape(&shape));
    }
    at = mr__scale(mr_add(at, offset), scale);
    if (mr__given(freqs)) {
        turn = mr_reciprocal(mr__cast(freqs, t));
    } else {
        turn = mr__scale(mr__cast(mr__iota(dims / 2, 0, 1), t),
                         -2.0 * log(base) / (double)dims);
        turn = mr_exp(turn);
    }
    return mr_multiply(mr_expand_dims(at, MR_AXES(-1)), turn);
}

static mr_code
check_rope(const mr_array *a, int64_t dims, double base, const mr_array *offset,
           const mr_array *freqs)
{
    mr_text text, ta;

    if (!mr__dtype_is_inexact((mr_dtype)a->dtype) ||
        mr__dtype_is_complex((mr_dtype)a->dtype))
        return mr__fail(MR_E_DTYPE, "needs real floating numbers, got %s",
                        mr_dtype_name((mr_dtype)a->dtype));
    if (a->ndim < 2)
        return mr__fail(MR_E_VALUE, "needs 2 axes or more, got %d",
                        (int)a->ndim);
    if (dims < 2 || dims % 2 != 0 || dims > a->dim[a->ndim - 1])
        return mr__fail(MR_E_VALUE,
                        "dims %lld: needs an even number up to the last axis, "
                        "%lld",
                        (long long)dims, (long long)a->dim[a->ndim - 1]);
    if (isnan(base) != mr__given(freqs))
        return mr__fail(MR_E_VALUE,
                        "needs exactly one of base and freqs, got %s",
                        isnan(base) ? "neither" : "both");
    if (mr__given(freqs) && (freqs->ndim != 1 || freqs->size != dims / 2))
        return mr__fail(MR_E_SHAPE, "freqs of shape %s: needs (%lld,)",
                        mr__shape_of(freqs, &text), (long long)(dims / 2));
    if (offset->size != 1 &&
        !(offset->ndim == 1 && a->ndim > 2 && offset->dim[0] == a->dim[0]))
        return mr__fail(MR_E_SHAPE,
                        "offset of shape %s: needs one number, or one for "
                        "each entry of axis 0 of %s",
                        mr__shape_of(offset, &text), mr__shape_of(a, &ta));
    return MR_OK;
}

mr_array *
mr__build_rope(mr_array *a, int64_t dims, bool traditional, double base,
               double scale, mr_array *offset, mr_array *freqs)
{
    mr_dtype t = (mr_dtype)a->dtype, wide = mr__accumulate_dtype(t);
    mr_array *x, *first, *second, *angle, *c, *s, *rest, *turned[2];
    int32_t last = a->ndim - 1;

    if (check_rope(a, dims, base, offset, freqs) != MR_OK)
        return NULL;
    if (offset->size == 1)
        offset = mr_reshape(offset, MR_SCALAR_SHAPE);
    angle = rope_angles(a, dims, base, scale, offset, freqs, wide);
    c = mr_cos(angle);
    s = mr_sin(angle);
    x = mr__cast(mr__slice_one(a, last, 0, dims, 1), wide);
    first = traditional ? mr__slice_one(x, last, 0, dims, 2)
                        : mr__slice_one(x, last, 0, dims / 2, 1);
    second = traditional ? mr__slice_one(x, last, 1, dims, 2)
                         : mr__slice_one(x, last, dims / 2, dims, 1);
    turned[0] = mr_subtract(mr_multiply(first, c), mr_multiply(second, s));
    turned[1] = mr_add(mr_multiply(first, s), mr_multiply(second, c));
    if (turned[0] == NULL || turned[1] == NULL)
        return NULL;
    if (traditional)
        x = mr_flatten(mr_stack(turned, 2, last + 1), last, last + 1);
    else
        x = mr_concatenate(turned, 2, last);
    x = x == NULL ? NULL : mr__cast(x, t);
    if (x == NULL || dims == a->dim[last])
        return x;
    rest = mr__slice_one(a, last, dims, MR_INT_NONE, 1);
    return rest == NULL ? NULL
                        : mr_concatenate(((mr_array *[]){x, rest}), 2, last);
}

/* ---- cross entropy
 * ---------------------------------------------------------------- */

mr_array *
mr__build_cross_entropy(mr_array *logits, mr_array *targets)
{
    mr_dtype t = (mr_dtype)logits->dtype;
    bool fits = targets->ndim == logits->ndim - 1;
    mr_array *chosen;
    mr_text tl, tt;

    if (!mr__dtype_is_inexact(t) || mr__dtype_is_complex(t))
        return mr__fail_null(MR_E_DTYPE, "needs real floating logits, got %s",
                             mr_dtype_name(t));
    for (int32_t i = 0; fits && i < targets->ndim; i++)
        fits = targets->dim[i] == logits->dim[i];
    if (!fits)
        return mr__fail_null(
            MR_E_SHAPE,
            "targets of shape %s for logits of shape %s: needs their shape "
            "without the last axis",
            mr__shape_of(targets, &tt), mr__shape_of(logits, &tl));
    logits = mr__cast(logits, mr__accumulate_dtype(t));
    if (logits == NULL)
        return NULL;
    chosen =
        mr_take_along_axis(logits, mr_expand_dims(targets, MR_AXES(-1)), -1);
    return mr_subtract(mr_logsumexp(logits, MR_AXES(-1), false),
                       mr_squeeze(chosen, MR_AXES(-1)));
}

/* ---- the gated delta rule
 * ------------------------------------------------------------ */

static mr_code
check_delta(const mr_array *q, const mr_array *k, const mr_array *v,
            const mr_array *gamma, const mr_array *beta)
{
    bool fits = q->ndim == 4 && k->ndim == 4 && v->ndim == 4 &&
                gamma->ndim == 3 && beta->ndim == 3;
    mr_text tq, tk, tv, tg, tb;

    for (int32_t i = 0; fits && i < 4; i++)
        fits = q->dim[i] == k->dim[i] && (i > 1 || q->dim[i] == v->dim[i]);
    for (int32_t i = 0; fits && i < 3; i++)
        fits = gamma->dim[i] == v->dim[i] && beta->dim[i] == v->dim[i];
    if (!fits || k->dim[2] < 1 || v->dim[2] % k->dim[2] != 0)
        return mr__fail(MR_E_SHAPE,
                        "needs q and k (B, T, Hk, Dk), v (B, T, Hv, Dv), gamma "
                        "and beta (B, T, Hv), Hv a multiple of Hk; got %s, "
                        "%s, %s, %s, %s",
                        mr__shape_of(q, &tq), mr__shape_of(k, &tk),
                        mr__shape_of(v, &tv), mr__shape_of(gamma, &tg),
                        mr__shape_of(beta, &tb));
    if (!mr__dtype_is_inexact((mr_dtype)v->dtype) ||
        mr__dtype_is_complex((mr_dtype)v->dtype))
        return mr__fail(MR_E_DTYPE, "needs real floating numbers, got %s",
                        mr_dtype_name((mr_dtype)v->dtype));
    return MR_OK;
}

/* Entry t along axis 1. */
static mr_array *
at_time(mr_array *x, int64_t t)
{
    return mr_squeeze(mr__slice_one(x, 1, t, t + 1, 1), MR_AXES(1));
}

/* One step from state s (B, Hv, Dv, Dk): the new state. */
static mr_array *
delta_step(mr_array *s, mr_array *k, mr_array *v, mr_array *gamma,
           mr_array *beta)
{
    mr_array *e;

    k = mr_expand_dims(k, MR_AXES(-1)); /* (B, Hv, Dk, 1) */
    s = mr_multiply(s, mr_expand_dims(gamma, MR_AXES(-1, -2)));
    e = mr_subtract(v, mr_squeeze(mr_matmul(s, k), MR_AXES(-1)));
    e = mr_multiply(e, mr_expand_dims(beta, MR_AXES(-1)));
    return mr_add(
        s, mr_multiply(mr_expand_dims(e, MR_AXES(-1)), mr_swapaxes(k, -1, -2)));
}

mr_tree *
mr__build_gated_delta_update(mr_array *q, mr_array *k, mr_array *v,
                             mr_array *gamma, mr_array *beta,
                             mr_array *initial_state, mr_array *mask)
{
    mr_list shape = {.n = 4};
    mr_array *s = initial_state, *next, *y, **list;
    mr_tree *result = NULL;
    int64_t steps;

    if (check_delta(q, k, v, gamma, beta) != MR_OK)
        return NULL;
    steps = v->dim[1];
    shape.v[0] = v->dim[0];
    shape.v[1] = v->dim[2];
    shape.v[2] = v->dim[3];
    shape.v[3] = k->dim[3];
    if (!mr__given(s))
        s = mr__filled((mr_dtype)v->dtype, 4, shape.v, 0.0);
    else
        s = mr_broadcast_to(s, mr__shape(&shape));
    q = mr_repeat(q, v->dim[2] / k->dim[2], 2);
    k = mr_repeat(k, v->dim[2] / k->dim[2], 2);
    list = mr__alloc_array((size_t)steps, sizeof(mr_array *));
    if (list == NULL)
        return NULL;
    for (int64_t t = 0; t < steps; t++) {
        next = delta_step(s, at_time(k, t), at_time(v, t), at_time(gamma, t),
                          at_time(beta, t));
        if (mr__given(mask))
            next = mr_where(
                mr_expand_dims(at_time(mask, t), MR_AXES(-1, -2, -3)), next, s);
        s = next;
        y = mr_matmul(s, mr_expand_dims(at_time(q, t), MR_AXES(-1)));
        list[t] = mr_expand_dims(mr_squeeze(y, MR_AXES(-1)), MR_AXES(1));
        if (list[t] == NULL)
            goto out;
    }
    y = steps == 0 ? mr__zeros_like(v) : mr_concatenate(list, (int)steps, 1);
    result = mr_tree_arrays(2, (mr_array *[]){y, s});
out:
    mr__dealloc(list);
    return result;
}
