/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.c -- running sums, products, extremes and log-sums along an axis.
 *
 * One operator with a mode.  Derivatives by mode:
 *   sum    a scan the other way round.
 *   prod   without a division, so that zeros are as other numbers in every
 *          order: with L_i the product of what stands before i, entry k
 *          depends on i by L_i x_(i+1) ... x_k.  Summed over k that is L_i
 *          times a linear recurrence, taken in log n steps.
 *   max    entry k belongs to the last element that equals it; so does min.
 *   logsum exp(x_i - y_k), summed as logs of the positive and the negative
 *          part apart, because neither exp(x) nor exp(-y) need be finite.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <math.h>

#include "array/dtype.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

static mr_array *
scan_node(mr_array *x, mr_scan_params p)
{
    return x == NULL ? NULL : mr__node_new(&mr__op_scan, &p, 1, &x);
}

/* The node's direction, another mode. */
static mr_array *
scan_like(const mr_rule *r, mr_array *x, mr_scan_mode mode)
{
    mr_scan_params p = *(const mr_scan_params *)mr__params(r->node);

    p.mode = mode;
    return scan_node(x, p);
}

static mr_array *
scan_back(const mr_rule *r, mr_array *x, mr_scan_mode mode)
{
    mr_scan_params p = *(const mr_scan_params *)mr__params(r->node);

    p.mode = mode;
    p.reverse = !p.reverse;
    return scan_node(x, p);
}

/* ---- sum
 * ----------------------------------------------------------------------- */

static mr_array *
sum_part(const mr_rule *r, mr_array *x, bool back)
{
    return back ? scan_back(r, x, MR_SCAN_SUM) : scan_like(r, x, MR_SCAN_SUM);
}

/* ---- prod
 * ---------------------------------------------------------------------- */

/* The entries that have one d steps further (step 1: up, -1: down) ... */
static mr_array *
near_part(mr_array *x, int32_t axis, int64_t d, int step)
{
    int64_t n = x == NULL ? 0 : x->dim[axis];

    return x == NULL  ? NULL
           : step > 0 ? mr__slice_one(x, axis, 0, n - d, 1)
                      : mr__slice_one(x, axis, d, n, 1);
}

/* ... and those further ones. */
static mr_array *
far_part(mr_array *x, int32_t axis, int64_t d, int step)
{
    return near_part(x, axis, d, -step);
}

/* Back to all entries: zero where there was none further. */
static mr_array *
widened(mr_array *x, int32_t axis, int64_t d, int step)
{
    mr_list low = {0}, high = {0};
    mr_pad_params p;
    mr_array *in[2];

    if (x == NULL)
        return NULL;
    low.n = high.n = x->ndim;
    if (step > 0)
        high.v[axis] = d;
    else
        low.v[axis] = d;
    p = (mr_pad_params){mr__ints(&low), mr__ints(&high)};
    in[0] = x;
    in[1] = mr__number((mr_dtype)x->dtype, 0.0);
    return in[1] == NULL ? NULL : mr__node_new(&mr__op_pad_constant, &p, 2, in);
}

static mr_array *
moved(mr_array *x, int32_t axis, int step)
{
    return widened(far_part(x, axis, 1, step), axis, 1, step);
}

/* S_i = b_i + a_i S_(i + step), by doubling: after k rounds an entry holds the
 * sum of 2^k terms and the product that leads on (Hillis and Steele, Data
 * parallel algorithms, 1986). */
static mr_array *
recurrence(mr_array *b, mr_array *a, int32_t axis, int step)
{
    int64_t n = b == NULL ? 0 : b->dim[axis];

    for (int64_t d = 1; d < n; d *= 2) {
        mr_array *near = near_part(a, axis, d, step);

        b = mr_add(b, widened(mr_multiply(near, far_part(b, axis, d, step)),
                              axis, d, step));
        a = widened(mr_multiply(near, far_part(a, axis, d, step)), axis, d,
                    step);
    }
    return b;
}

/* What stands before each entry, and what follows it. */
static mr_array *
prod_part(const mr_rule *r, mr_array *v, bool back)
{
    mr_scan_params p = *(const mr_scan_params *)mr__params(r->node);
    mr_array *x = r->primal[0], *before;
    int step = p.reverse ? -1 : 1;
    bool inclusive = p.inclusive;

    if (x->dim[p.axis] == 0)
        return v;
    if (back)
        x = mr__conj(x);
    p.inclusive = false;
    before = scan_node(x, p);
    if (back) {
        if (!inclusive)
            v = moved(v, p.axis, step);
        return mr_multiply(before,
                           recurrence(v, moved(x, p.axis, step), p.axis, step));
    }
    v = recurrence(mr_multiply(v, before), x, p.axis, -step);
    return inclusive ? v : moved(v, p.axis, -step);
}

/* ---- max, min
 * -------------------------------------------------------------------- */

/* For each entry the place of the last element, in the scan's direction, that
 * is the running extreme; outside of [0, n) where there is none yet. */
static mr_array *
extreme_places(const mr_rule *r)
{
    const mr_scan_params *p = mr__params(r->node);
    mr_scan_params q = *p;
    mr_array *x = r->primal[0], *hit, *place;
    int64_t n = x->dim[p->axis];

    q.inclusive = true;
    hit = mr_logical_or(mr_equal(x, scan_node(x, q)), mr_isnan(x));
    place = mr_where(hit, mr__cast(mr__iota(n, p->axis, x->ndim), MR_INT64),
                     mr__integer(MR_INT64, p->reverse ? n : -1));
    q = *p;
    q.mode = p->reverse ? MR_SCAN_MIN : MR_SCAN_MAX;
    return scan_node(place, q);
}

static mr_array *
extreme_part(const mr_rule *r, mr_array *v, bool back)
{
    const mr_scan_params *p = mr__params(r->node);
    mr_array *place = mr_rule_once(r, 0, extreme_places), *some;
    int64_t n = r->primal[0]->dim[p->axis];
    mr_array *zero = mr__integer(MR_INT64, 0);

    if (place == NULL || n == 0)
        return place == NULL ? NULL : v;
    some = mr_logical_and(mr_greater_equal(place, zero),
                          mr_less(place, mr__integer(MR_INT64, n)));
    place = mr_where(some, place, zero);
    if (back)
        return mr__put_along(mr__zeros_like(r->primal[0]), place,
                             mr__masked(some, v), p->axis, MR_SCATTER_ADD);
    return mr__masked(some, mr__take_along(v, place, p->axis));
}

/* ---- logaddexp
 * -------------------------------------------------------------------- */

/* log of the positive part of v; -inf elsewhere. */
static mr_array *
log_positive(mr_array *v, mr_dtype t)
{
    mr_array *some = mr_greater(v, mr__number(t, 0.0));

    v = mr_log(mr_where(some, v, mr__number(t, 1.0)));
    return mr_where(some, v, mr__number(t, -INFINITY));
}

/* exp(scan(x + log v) - y) forward, exp(x + scan(log v - y)) back, for the
 * positive part of v. */
static mr_array *
logsum_half(const mr_rule *r, mr_array *v, bool back)
{
    mr_array *x = r->primal[0], *y = r->output[0], *low;
    mr_dtype t = (mr_dtype)x->dtype;

    v = log_positive(v, t);
    if (v == NULL)
        return NULL;
    low = mr_equal(y, mr__number(t, -INFINITY));
    y = mr__masked_not(low, y);
    if (back)
        return mr_exp(
            mr_add(x, scan_back(r,
                                mr_where(low, mr__number(t, -INFINITY),
                                         mr_subtract(v, y)),
                                MR_SCAN_LOGADDEXP)));
    return mr_exp(
        mr_subtract(scan_like(r, mr_add(x, v), MR_SCAN_LOGADDEXP), y));
}

static mr_array *
logsum_part(const mr_rule *r, mr_array *v, bool back)
{
    return mr_subtract(logsum_half(r, v, back),
                       logsum_half(r, mr_negative(v), back));
}

/* ---- the operator
 * ------------------------------------------------------------------ */

static mr_array *
scan_part(const mr_rule *r, mr_array *v, bool back)
{
    switch ((mr_scan_mode)((const mr_scan_params *)mr__params(r->node))->mode) {
    case MR_SCAN_SUM:
        return sum_part(r, v, back);
    case MR_SCAN_PROD:
        return prod_part(r, v, back);
    case MR_SCAN_LOGADDEXP:
        return logsum_part(r, v, back);
    case MR_SCAN_MAX:
    case MR_SCAN_MIN:
        break;
    }
    return extreme_part(r, v, back);
}

static mr_array *
scan_vjp(const mr_rule *r, int i)
{
    (void)i;
    return scan_part(r, r->cotangent[0], true);
}

static mr_array *
scan_jvp(const mr_rule *r, int i)
{
    return scan_part(r, r->tangent[i], false);
}

static mr_array *
scan_vmap(const mr_batch *b)
{
    mr_scan_params p = *(const mr_scan_params *)mr__params(b->node);

    p.axis++;
    return scan_node(b->in[0], p);
}

static const mr_field scan_fields[] = {
    MR_FIELD(1, AXIS, mr_scan_params, axis),
    MR_FIELD(2, INT, mr_scan_params, mode),
    MR_FIELD(3, BOOL, mr_scan_params, reverse),
    MR_FIELD(4, BOOL, mr_scan_params, inclusive),
};

const mr_op mr__op_scan = {
    .id = MR_OP_SCAN,
    .version = 1,
    .n_in = 1,
    .name = "scan",
    MR__PARAMS(mr_scan_params, scan_fields),
    .infer = mr__infer_same,
    .vjp = scan_vjp,
    .jvp = scan_jvp,
    .vmap = scan_vmap,
};

/* ---- bodies
 * -------------------------------------------------------------------------- */

static mr_array *
scan(mr_array *a, int32_t axis, mr_scan_params p)
{
    a = mr__along(a, axis, &p.axis);
    return a == NULL ? NULL : scan_node(a, p);
}

/* bool counts as int32; dtype casts first. */
static mr_array *
counted(mr_array *a, mr_dtype dtype)
{
    if (dtype != MR_DTYPE_DEFAULT)
        a = mr__cast(a, dtype);
    return a != NULL && (mr_dtype)a->dtype == MR_BOOL ? mr__cast(a, MR_INT32)
                                                      : a;
}

mr_array *
mr__build_cumsum(mr_array *a, int32_t axis, bool reverse, bool inclusive,
                 mr_dtype dtype)
{
    return scan(counted(a, dtype), axis,
                (mr_scan_params){.mode = MR_SCAN_SUM,
                                 .reverse = reverse,
                                 .inclusive = inclusive});
}

mr_array *
mr__build_cumprod(mr_array *a, int32_t axis, bool reverse, bool inclusive,
                  mr_dtype dtype)
{
    return scan(counted(a, dtype), axis,
                (mr_scan_params){.mode = MR_SCAN_PROD,
                                 .reverse = reverse,
                                 .inclusive = inclusive});
}

/* The kernels compare numbers: bool goes as uint8. */
static mr_array *
running_extreme(mr_array *a, int32_t axis, mr_scan_params p)
{
    if ((mr_dtype)a->dtype == MR_BOOL)
        return mr__cast(scan(mr__cast(a, MR_UINT8), axis, p), MR_BOOL);
    return scan(a, axis, p);
}

mr_array *
mr__build_cummax(mr_array *a, int32_t axis, bool reverse, bool inclusive)
{
    return running_extreme(a, axis,
                           (mr_scan_params){.mode = MR_SCAN_MAX,
                                            .reverse = reverse,
                                            .inclusive = inclusive});
}

mr_array *
mr__build_cummin(mr_array *a, int32_t axis, bool reverse, bool inclusive)
{
    return running_extreme(a, axis,
                           (mr_scan_params){.mode = MR_SCAN_MIN,
                                            .reverse = reverse,
                                            .inclusive = inclusive});
}

/* Complex numbers are shifted by their largest real part, a constant of the
 * derivative.  What stands e^-88 below that is 0 in complex64, and its log
 * -infinity: exp and log are those of complex128, which goes to e^-708. */
static mr_array *
complex_logcumsumexp(mr_array *a, int32_t axis, mr_scan_params p)
{
    mr_dtype given = (mr_dtype)a->dtype, t = MR_COMPLEX128;
    mr_array *top, *sum, *none;

    a = mr__along(a, axis, &axis);
    if (a == NULL)
        return NULL;
    if (a->dim[axis] == 0)
        return a;
    a = mr__cast(a, t);
    top = mr_stop_gradient(mr_max(mr_real(a), MR_AXES(axis), true));
    top = mr__masked(mr_isfinite(top), top);
    p.mode = MR_SCAN_SUM;
    sum = scan(mr_exp(mr_subtract(a, top)), axis, p);
    if (sum == NULL)
        return NULL;
    /* an empty sum has no slope */
    none = mr_equal(sum, mr__number(t, 0.0));
    sum = mr_log(mr_where(none, mr__number(t, 1.0), sum));
    sum = mr_where(none, mr__number(t, -INFINITY), sum);
    return mr__cast(mr_add(sum, top), given);
}

mr_array *
mr__build_logcumsumexp(mr_array *a, int32_t axis, bool reverse, bool inclusive)
{
    mr_scan_params p = {
        .mode = MR_SCAN_LOGADDEXP, .reverse = reverse, .inclusive = inclusive};

    a = mr__cast(a, mr__to_inexact((mr_dtype)a->dtype));
    if (a != NULL && mr__dtype_is_complex((mr_dtype)a->dtype))
        return complex_logcumsumexp(a, axis, p);
    return scan(a, axis, p);
}
