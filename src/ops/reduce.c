/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c -- reductions over axes, and what is made of them.
 *
 * The doors cast first (int8 to int32 for a sum, integers to float32 for a
 * mean, anything to bool for any and all), so the operators meet only dtypes
 * that they keep; any, all, argmax and argmin apart.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <math.h>
#include <string.h>

#include "array/dtype.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/tree.h"
#include "ops/door.h"
#include "ops/rules.h"

/* ---- shared ----------------------------------------------------------------
 */

static const mr_field reduce_fields[] = {
    MR_FIELD(1, AXES, mr_reduce_params, axes),
    MR_FIELD(2, BOOL, mr_reduce_params, keepdims),
};

/* Bits of axes as a list. */
typedef struct axis_list {
    int32_t v[MR_MAX_NDIM];
    int32_t n;
} axis_list;

static axis_list
list_axes(uint32_t mask)
{
    axis_list l = {.n = 0};

    for (int32_t i = 0; i < MR_MAX_NDIM; i++)
        if (mask >> i & 1)
            l.v[l.n++] = i;
    return l;
}

static int64_t
reduced_count(const mr_array *x, uint32_t mask)
{
    int64_t n = 1;

    for (int32_t i = 0; i < x->ndim; i++)
        if (mask >> i & 1)
            n *= x->dim[i];
    return n;
}

static void
reduced_shape(const mr_op_call *c, mr_dtype t, mr_aval *out)
{
    const mr_reduce_params *p = c->params;
    const mr_array *x = c->in[0];

    out->dtype = t;
    out->ndim = 0;
    for (int32_t i = 0; i < x->ndim; i++) {
        if (!(p->axes >> i & 1))
            out->dim[out->ndim++] = x->dim[i];
        else if (p->keepdims)
            out->dim[out->ndim++] = 1;
    }
}

static mr_code
infer_same_dtype(const mr_op_call *c, mr_aval *out)
{
    reduced_shape(c, (mr_dtype)c->in[0]->dtype, out);
    return MR_OK;
}

static mr_code
infer_bool(const mr_op_call *c, mr_aval *out)
{
    reduced_shape(c, MR_BOOL, out);
    return MR_OK;
}

static mr_code
check_not_empty(const mr_op_call *c)
{
    const mr_reduce_params *p = c->params;
    mr_text text;

    if (reduced_count(c->in[0], p->axes) != 0)
        return MR_OK;
    return mr__fail(MR_E_VALUE,
                    "nothing to reduce: an axis of size 0 in shape %s",
                    mr__shape_of(c->in[0], &text));
}

static mr_code
infer_extreme(const mr_op_call *c, mr_aval *out)
{
    if (check_not_empty(c) != MR_OK)
        return mr__error_code();
    return infer_same_dtype(c, out);
}

static mr_code
infer_argument(const mr_op_call *c, mr_aval *out)
{
    if (check_not_empty(c) != MR_OK)
        return mr__error_code();
    if (reduced_count(c->in[0], ((const mr_reduce_params *)c->params)->axes) >
        UINT32_MAX)
        return mr__fail(
            MR_E_OVERFLOW,
            "%lld elements to search, at most 2^32 - 1 are "
            "possible",
            (long long)reduced_count(
                c->in[0], ((const mr_reduce_params *)c->params)->axes));
    reduced_shape(c, MR_UINT32, out);
    return MR_OK;
}

static mr_array *
reduce_masked(const mr_op *op, mr_array *x, uint32_t mask, bool keepdims)
{
    mr_reduce_params p = {.axes = mask, .keepdims = keepdims};

    return x == NULL ? NULL : mr__node_new(op, &p, 1, &x);
}

/* x has the dtype that the operator wants. */
static mr_array *
reduce(const mr_op *op, mr_array *x, mr_axes axes, bool keepdims)
{
    uint32_t mask;

    if (x == NULL || !mr__axes_mask(axes, x->ndim, &mask))
        return NULL;
    return mr__node_new(
        op, &(mr_reduce_params){.axes = mask, .keepdims = keepdims}, 1, &x);
}

static mr_array *
reduce_vmap(const mr_batch *b)
{
    const mr_reduce_params *p = mr__params(b->node);

    return reduce_masked(b->node->op, b->in[0], p->axes << 1, p->keepdims);
}

/* x, shaped as the node's output, with the reduced axes back as size 1. */
static mr_array *
unreduced(const mr_rule *r, mr_array *x)
{
    const mr_reduce_params *p = mr__params(r->node);
    axis_list l = list_axes(p->axes);

    if (p->keepdims || l.n == 0)
        return x;
    return mr_expand_dims(x, (mr_axes){l.v, l.n});
}

/* The same, repeated to the shape of the input. */
static mr_array *
spread(const mr_rule *r, mr_array *x)
{
    return mr__broadcast(unreduced(r, x), r->primal[0]->ndim,
                         r->primal[0]->dim);
}

/* Sum over the node's axes, shaped as its output. */
static mr_array *
gathered(const mr_rule *r, mr_array *x)
{
    const mr_reduce_params *p = mr__params(r->node);

    return reduce_masked(&mr__op_sum, x, p->axes, p->keepdims);
}

#define REDUCTION(id_, name_, k_, infer_)                                      \
    .id = (id_), .version = 1, .n_in = 1, .name = (name_), .infer = (infer_),  \
    .vmap = reduce_vmap, .fuse = {MR_FUSE_REDUCTION, (k_)},                    \
    MR__PARAMS(mr_reduce_params, reduce_fields)

/* -- sum ------------------------------------------------------------------- */

mr_array *
mr__build_sum(mr_array *a, mr_axes axis, bool keepdims)
{
    if (axis.n == 0)
        return a;
    return reduce(&mr__op_sum, mr__cast(a, mr__sum_dtype((mr_dtype)a->dtype)),
                  axis, keepdims);
}

static mr_array *
sum_vjp(const mr_rule *r, int i)
{
    (void)i;
    return spread(r, r->cotangent[0]);
}

static mr_array *
sum_jvp(const mr_rule *r, int i)
{
    return gathered(r, r->tangent[i]);
}

const mr_op mr__op_sum = {
    REDUCTION(MR_OP_SUM, "sum", MR_R_SUM, infer_same_dtype),
    .flags = MR_FLAG_LINEAR,
    .vjp = sum_vjp,
    .jvp = sum_jvp,
};

/* -- mean ------------------------------------------------------------------ */

mr_array *
mr__build_mean(mr_array *a, mr_axes axis, bool keepdims)
{
    return reduce(&mr__op_mean, mr__cast(a, mr__to_inexact((mr_dtype)a->dtype)),
                  axis, keepdims);
}

static mr_array *
mean_vjp(const mr_rule *r, int i)
{
    const mr_reduce_params *p = mr__params(r->node);
    int64_t n = reduced_count(r->primal[i], p->axes);
    mr_array *c = r->cotangent[0];

    c = mr_divide(c, mr__number((mr_dtype)c->dtype, (double)n));
    return spread(r, c);
}

static mr_array *
mean_jvp(const mr_rule *r, int i)
{
    const mr_reduce_params *p = mr__params(r->node);

    return reduce_masked(&mr__op_mean, r->tangent[i], p->axes, p->keepdims);
}

const mr_op mr__op_mean = {
    REDUCTION(MR_OP_MEAN, "mean", MR_R_MEAN, infer_same_dtype),
    .flags = MR_FLAG_LINEAR,
    .vjp = mean_vjp,
    .jvp = mean_jvp,
};

/* -- prod ------------------------------------------------------------------ */

mr_array *
mr__build_prod(mr_array *a, mr_axes axis, bool keepdims)
{
    if (axis.n == 0)
        return a;
    return reduce(&mr__op_prod, mr__cast(a, mr__sum_dtype((mr_dtype)a->dtype)),
                  axis, keepdims);
}

/* x with the axes of mask last, as one. */
static mr_array *
factors_last(mr_array *x, uint32_t mask, mr_list *order)
{
    int64_t dim[MR_MAX_NDIM];
    int32_t n = 0;

    *order = (mr_list){.n = x->ndim};
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < x->ndim; i++)
            if ((mask >> i & 1) == (uint32_t)pass)
                order->v[n++] = i;
    n = 0;
    for (int32_t i = 0; i < x->ndim; i++)
        if (!(mask >> i & 1))
            dim[n++] = x->dim[i];
    dim[n++] = reduced_count(x, mask);
    return mr_reshape(mr_transpose(x, mr__ints(order)), (mr_shape){dim, n});
}

/* The product of the others, for each element: of those before and of those
 * after it.  Nothing is divided, so zeros are right, in every order. */
static mr_array *
prod_slope(const mr_rule *r)
{
    const mr_reduce_params *p = mr__params(r->node);
    mr_array *x = r->primal[0], *y, *before, *after;
    mr_list order, back, dim = {.n = x->ndim};

    if (x->size == 0)
        return x;
    y = factors_last(x, p->axes, &order);
    before = mr_cumprod(y, -1, false, false, MR_DTYPE_DEFAULT);
    after = mr_cumprod(y, -1, true, false, MR_DTYPE_DEFAULT);
    back.n = order.n;
    for (int64_t i = 0; i < order.n; i++) {
        dim.v[i] = x->dim[order.v[i]];
        back.v[order.v[i]] = i;
    }
    y = mr_reshape(mr_multiply(before, after), mr__shape(&dim));
    return mr_transpose(y, mr__ints(&back));
}

static mr_array *
prod_vjp(const mr_rule *r, int i)
{
    (void)i;
    return mr_multiply(spread(r, r->cotangent[0]),
                       mr__conj(mr_rule_once(r, 0, prod_slope)));
}

static mr_array *
prod_jvp(const mr_rule *r, int i)
{
    return gathered(r,
                    mr_multiply(r->tangent[i], mr_rule_once(r, 0, prod_slope)));
}

const mr_op mr__op_prod = {
    REDUCTION(MR_OP_PROD, "prod", MR_R_PROD, infer_same_dtype),
    .vjp = prod_vjp,
    .jvp = prod_jvp,
};

/* -- max, min -------------------------------------------------------------- */

mr_array *
mr__build_max(mr_array *a, mr_axes axis, bool keepdims)
{
    return axis.n == 0 ? a : reduce(&mr__op_max, a, axis, keepdims);
}

mr_array *
mr__build_min(mr_array *a, mr_axes axis, bool keepdims)
{
    return axis.n == 0 ? a : reduce(&mr__op_min, a, axis, keepdims);
}

/* Where the result was found: equal elements, or the NaNs that won. */
static mr_array *
extreme_places(const mr_rule *r)
{
    mr_array *x = r->primal[0];
    mr_array *same = mr_equal(x, spread(r, r->output[0]));

    return mr_logical_or(same, mr_isnan(x));
}

/* How many such places, in the output's shape and dtype. */
static mr_array *
extreme_count(const mr_rule *r)
{
    mr_array *places = mr_rule_once(r, 0, extreme_places);

    if (places == NULL)
        return NULL;
    return mr_astype(gathered(r, mr_astype(places, MR_INT32)),
                     (mr_dtype)r->output[0]->dtype);
}

static mr_array *
extreme_vjp(const mr_rule *r, int i)
{
    mr_array *share =
        mr_divide(r->cotangent[0], mr_rule_once(r, 1, extreme_count));

    (void)i;
    return mr__masked(mr_rule_once(r, 0, extreme_places), spread(r, share));
}

static mr_array *
extreme_jvp(const mr_rule *r, int i)
{
    mr_array *t = mr__masked(mr_rule_once(r, 0, extreme_places), r->tangent[i]);

    return mr_divide(gathered(r, t), mr_rule_once(r, 1, extreme_count));
}

const mr_op mr__op_max = {
    REDUCTION(MR_OP_MAX, "max", MR_R_MAX, infer_extreme),
    .vjp = extreme_vjp,
    .jvp = extreme_jvp,
};

const mr_op mr__op_min = {
    REDUCTION(MR_OP_MIN, "min", MR_R_MIN, infer_extreme),
    .vjp = extreme_vjp,
    .jvp = extreme_jvp,
};

/* -- any, all -------------------------------------------------------------- */

mr_array *
mr__build_any(mr_array *a, mr_axes axis, bool keepdims)
{
    return reduce(&mr__op_any, mr__cast(a, MR_BOOL), axis, keepdims);
}

mr_array *
mr__build_all(mr_array *a, mr_axes axis, bool keepdims)
{
    return reduce(&mr__op_all, mr__cast(a, MR_BOOL), axis, keepdims);
}

const mr_op mr__op_any = {
    REDUCTION(MR_OP_ANY, "any", MR_R_ANY, infer_bool),
    .flags = MR_FLAG_ZERO_GRADIENT,
};

const mr_op mr__op_all = {
    REDUCTION(MR_OP_ALL, "all", MR_R_ALL, infer_bool),
    .flags = MR_FLAG_ZERO_GRADIENT,
};

/* -- argmax, argmin -------------------------------------------------------- */

static mr_array *
search(const mr_op *op, mr_array *a, int32_t axis, bool keepdims)
{
    if (axis == MR_AXIS_NONE)
        return reduce(op, a, MR_AXES_ALL, keepdims);
    return reduce(op, a, (mr_axes){&axis, 1}, keepdims);
}

mr_array *
mr__build_argmax(mr_array *a, int32_t axis, bool keepdims)
{
    return search(&mr__op_argmax, a, axis, keepdims);
}

mr_array *
mr__build_argmin(mr_array *a, int32_t axis, bool keepdims)
{
    return search(&mr__op_argmin, a, axis, keepdims);
}

const mr_op mr__op_argmax = {
    REDUCTION(MR_OP_ARGMAX, "argmax", MR_R_ARGMAX, infer_argument),
    .flags = MR_FLAG_ZERO_GRADIENT,
};

const mr_op mr__op_argmin = {
    REDUCTION(MR_OP_ARGMIN, "argmin", MR_R_ARGMIN, infer_argument),
    .flags = MR_FLAG_ZERO_GRADIENT,
};

/* -- logsumexp ------------------------------------------------------------- */

/* The reduction is of real numbers; complex ones are shifted by their largest
 * real part, which is a constant of the derivative. */
static mr_array *
complex_logsumexp(mr_array *a, mr_axes axis, bool keepdims)
{
    uint32_t mask;
    axis_list l;
    mr_array *top, *s;

    if (!mr__axes_mask(axis, a->ndim, &mask))
        return NULL;
    l = list_axes(mask);
    top = mr_stop_gradient(mr_max(mr_real(a), (mr_axes){l.v, l.n}, true));
    if (top == NULL)
        return NULL;
    top = mr__masked(mr_isfinite(top), top);
    s = mr_log(mr_sum(mr_exp(mr_subtract(a, top)), (mr_axes){l.v, l.n}, true));
    s = mr_add(s, top);
    return keepdims ? s : mr_squeeze(s, (mr_axes){l.v, l.n});
}

mr_array *
mr__build_logsumexp(mr_array *a, mr_axes axis, bool keepdims)
{
    mr_dtype t = mr__to_inexact((mr_dtype)a->dtype);

    if (mr__dtype_is_complex(t))
        return complex_logsumexp(a, axis, keepdims);
    return reduce(&mr__op_logsumexp, mr__cast(a, t), axis, keepdims);
}

/* The share of each element: exp(x - y); 1 where x is all of y, and 0 where
 * all are -inf. */
static mr_array *
logsumexp_slope(const mr_rule *r)
{
    mr_array *x = r->primal[0], *y = spread(r, r->output[0]);
    mr_dtype t = (mr_dtype)x->dtype;
    mr_array *zero = mr__number(t, 0.0), *d;

    d = mr_where(mr_equal(x, y), zero, mr_subtract(x, y));
    return mr__masked_not(mr_equal(y, mr__number(t, -INFINITY)), mr_exp(d));
}

static mr_array *
logsumexp_vjp(const mr_rule *r, int i)
{
    (void)i;
    return mr_multiply(spread(r, r->cotangent[0]), logsumexp_slope(r));
}

static mr_array *
logsumexp_jvp(const mr_rule *r, int i)
{
    return gathered(r, mr_multiply(r->tangent[i], logsumexp_slope(r)));
}

const mr_op mr__op_logsumexp = {
    REDUCTION(MR_OP_LOGSUMEXP, "logsumexp", MR_R_LOGSUMEXP, infer_same_dtype),
    .vjp = logsumexp_vjp,
    .jvp = logsumexp_jvp,
};

/* ---- bodies made of them ----------------------------------------------------
 * var takes two passes, the mean first, and half types in float32. */

static mr_array *
variance(mr_array *a, mr_axes axis, bool keepdims, double ddof)
{
    mr_dtype t = mr__to_inexact((mr_dtype)a->dtype);
    uint32_t mask;
    axis_list l;
    double n;
    mr_array *d, *s;

    if (!mr__axes_mask(axis, a->ndim, &mask))
        return NULL;
    l = list_axes(mask);
    a = mr__cast(a, mr__accumulate_dtype(t));
    d = mr_subtract(a, mr_mean(a, (mr_axes){l.v, l.n}, true));
    if (d == NULL)
        return NULL;
    if (mr__dtype_is_complex(t))
        s = mr_add(mr_square(mr_real(d)), mr_square(mr_imag(d)));
    else
        s = mr_square(d);
    if (ddof == 0.0) /* knows no count: right at any size */
        return mr_mean(s, (mr_axes){l.v, l.n}, keepdims);
    s = mr_sum(s, (mr_axes){l.v, l.n}, keepdims);
    if (s == NULL)
        return NULL;
    n = (double)reduced_count(a, mask) - ddof;
    return mr_divide(s, mr__number((mr_dtype)s->dtype, n < 0.0 ? 0.0 : n));
}

mr_array *
mr__build_var(mr_array *a, mr_axes axis, bool keepdims, double ddof)
{
    mr_dtype t = mr__to_real(mr__to_inexact((mr_dtype)a->dtype));

    return mr__cast(variance(a, axis, keepdims, ddof), t);
}

/* The root has no slope at 0: there, where all elements are equal, the
 * derivative is taken as 0. */
mr_array *
mr__build_std(mr_array *a, mr_axes axis, bool keepdims, double ddof)
{
    mr_dtype t = mr__to_real(mr__to_inexact((mr_dtype)a->dtype));
    mr_array *v = variance(a, axis, keepdims, ddof), *equal;

    if (v == NULL)
        return NULL;
    equal = mr_equal(v, mr__number((mr_dtype)v->dtype, 0.0));
    v = mr_where(equal, mr__number((mr_dtype)v->dtype, 1.0), v);
    return mr__cast(mr__masked_not(equal, mr_sqrt(v)), t);
}

mr_tree *
mr__build_minmax(mr_array *a, mr_axes axis, bool keepdims)
{
    mr_array *low = mr_min(a, axis, keepdims);
    mr_array *out[2] = {low, low == NULL ? NULL : mr_max(a, axis, keepdims)};

    return mr_tree_arrays(2, out);
}

mr_array *
mr__build_count_nonzero(mr_array *a, mr_axes axis, bool keepdims)
{
    return mr_sum(mr__cast(mr__cast(a, MR_BOOL), MR_INT32), axis, keepdims);
}

/* The reduced axes go to the end and become one row, which is sorted. */
static mr_array *
rows_of(mr_array *a, uint32_t mask)
{
    int64_t order[MR_MAX_NDIM];
    int32_t n = 0, kept;

    for (int32_t i = 0; i < a->ndim; i++)
        if (!(mask >> i & 1))
            order[n++] = i;
    kept = n;
    for (int32_t i = 0; i < a->ndim; i++)
        if (mask >> i & 1)
            order[n++] = i;
    a = mr_transpose(a, (mr_ints){order, n});
    if (kept == n)
        return mr_reshape(a, MR_SHAPE(1));
    return mr_flatten(a, kept, -1);
}

/* Entry k of each row. */
static mr_array *
row_entry(mr_array *rows, int64_t k)
{
    return mr_take(rows, mr__integer(MR_INT64, k), rows->ndim - 1);
}

static mr_array *
row_pick(mr_array *rows, mr_array *place)
{
    return row_entry(mr__take_along(rows, place, rows->ndim - 1), 0);
}

/* (a + b) / 2, also where the sum is beyond the type. */
static mr_array *
midpoint(mr_array *a, mr_array *b)
{
    mr_array *sum = mr_add(a, b);
    mr_array *far = mr_add(mr__scale(a, 0.5), mr__scale(b, 0.5));

    return mr_where(mr_isfinite(sum), mr__scale(sum, 0.5), far);
}

/* Rows that are shorter are sorted faster than a place is found in them. */
enum { SELECT_FROM = 64 };

/* The middle of rows of n by selection.  NaN stands at the end of an order: a
 * row with one has it for its median. */
static mr_array *
middle_selected(mr_array *rows, int64_t n)
{
    int32_t axis = rows->ndim - 1;
    int64_t k = (n - 1) / 2;
    mr_array *place = mr_argpartition(rows, k, axis), *mid, *rest, *nan;

    mid = row_pick(rows, mr__slice_one(place, axis, k, k + 1, 1));
    if (n % 2 == 0) {
        rest = mr__take_along(
            rows, mr__slice_one(place, axis, k + 1, MR_INT_NONE, 1), axis);
        if (rest == NULL)
            return NULL;
        mid = midpoint(mid, row_pick(rest, mr_argmin(rest, axis, true)));
    }
    nan = row_pick(rows, mr_argmax(mr_isnan(rows), axis, true));
    return mr_where(mr_isnan(nan), nan, mid);
}

static mr_array *
middle_sorted(mr_array *rows, int64_t n)
{
    mr_array *mid, *last;

    rows = mr_sort(rows, -1);
    if (rows == NULL)
        return NULL;
    mid = row_entry(rows, n / 2);
    if (n % 2 == 0)
        mid = midpoint(row_entry(rows, n / 2 - 1), mid);
    last = row_entry(rows, n - 1); /* NaN sorts to the end, and wins */
    return mr_where(mr_isnan(last), last, mid);
}

mr_array *
mr__build_median(mr_array *a, mr_axes axis, bool keepdims)
{
    mr_dtype t = mr__to_inexact((mr_dtype)a->dtype);
    uint32_t mask;
    int64_t n;
    axis_list l;
    mr_array *rows, *mid;
    mr_text text;

    if (!mr__axes_mask(axis, a->ndim, &mask))
        return NULL;
    n = reduced_count(a, mask);
    if (n == 0)
        return mr__fail_null(MR_E_VALUE,
                             "nothing to reduce: an axis of size 0 in shape %s",
                             mr__shape_of(a, &text));
    if (mask == 0)
        return mr__cast(a, t);
    a = mr__cast(a, t);
    rows = a == NULL ? NULL : rows_of(a, mask);
    if (rows == NULL)
        return NULL;
    mid = n < SELECT_FROM || n >= UINT32_MAX || mr__dtype_is_complex(t)
              ? middle_sorted(rows, n)
              : middle_selected(rows, n);
    l = list_axes(mask);
    return keepdims ? mr_expand_dims(mid, (mr_axes){l.v, l.n}) : mid;
}
