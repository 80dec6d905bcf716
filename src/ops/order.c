/* SPDX-License-Identifier: Apache-2.0
 *
 * order.c -- sorting and searching.
 *
 * A partition selects: its places are those of smaller, equal and larger
 * elements, and its values what is read there.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <string.h>

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

static const mr_field axis_fields[] = {
    MR_FIELD(1, AXIS, mr_axis_params, axis),
};

static mr_array *
ordered(const mr_op *op, mr_array *a, int32_t axis)
{
    mr_axis_params p;

    a = mr__along(a, axis, &p.axis);
    return a == NULL ? NULL : mr__node_new(op, &p, 1, &a);
}

static mr_array *
order_vmap(const mr_batch *b)
{
    const mr_axis_params *p = mr__params(b->node);
    mr_axis_params q = {p->axis + 1};

    return mr__node_new(b->node->op, &q, 1, b->in);
}

/* -- argsort --------------------------------------------------------------- */

mr_array *
mr__build_argsort(mr_array *a, int32_t axis)
{
    return ordered(&mr__op_argsort, a, axis);
}

static mr_code
argsort_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_axis_params *p = c->params;

    mr__aval_like(out, c->in[0]);
    out->dtype = MR_UINT32;
    if (out->dim[p->axis] > UINT32_MAX)
        return mr__fail(MR_E_OVERFLOW,
                        "%lld elements to sort, at most 2^32 - 1 are possible",
                        (long long)out->dim[p->axis]);
    return MR_OK;
}

const mr_op mr__op_argsort = {
    .id = MR_OP_ARGSORT,
    .version = 1,
    .n_in = 1,
    .name = "argsort",
    .flags = MR_FLAG_ZERO_GRADIENT,
    MR__PARAMS(mr_axis_params, axis_fields),
    .infer = argsort_infer,
    .vmap = order_vmap,
};

/* -- sort ------------------------------------------------------------------ */

mr_array *
mr__build_sort(mr_array *a, int32_t axis)
{
    return ordered(&mr__op_sort, a, axis);
}

static mr_array *
sort_order(const mr_rule *r)
{
    const mr_axis_params *p = mr__params(r->node);

    return mr_argsort(r->primal[0], p->axis);
}

/* Each place belongs to the element that landed there. */
static mr_array *
sort_vjp(const mr_rule *r, int i)
{
    const mr_axis_params *p = mr__params(r->node);

    return mr__put_along(mr__zeros_like(r->primal[i]),
                         mr_rule_once(r, 0, sort_order), r->cotangent[0],
                         p->axis, MR_SCATTER_ADD);
}

static mr_array *
sort_jvp(const mr_rule *r, int i)
{
    const mr_axis_params *p = mr__params(r->node);

    return mr__take_along(r->tangent[i], mr_rule_once(r, 0, sort_order),
                          p->axis);
}

const mr_op mr__op_sort = {
    .id = MR_OP_SORT,
    .version = 1,
    .n_in = 1,
    .name = "sort",
    MR__PARAMS(mr_axis_params, axis_fields),
    .infer = mr__infer_same,
    .vjp = sort_vjp,
    .jvp = sort_jvp,
    .vmap = order_vmap,
};

/* -- partition_places ------------------------------------------------------ */

static const mr_field places_fields[] = {
    MR_FIELD(1, AXIS, mr_partition_params, axis),
    MR_FIELD(2, INT, mr_partition_params, kth),
    MR_FIELD(3, BOOL, mr_partition_params, tail),
};

static mr_code
places_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_partition_params *p = c->params;
    mr_list shape = mr__dims(c->in[0]);

    if (shape.v[p->axis] > UINT32_MAX)
        return mr__fail(MR_E_OVERFLOW,
                        "%lld elements to order, at most 2^32 - 1 are possible",
                        (long long)shape.v[p->axis]);
    if (p->kth >= shape.v[p->axis])
        return mr__fail(MR_E_VALUE,
                        "kth %lld is out of range for %lld elements",
                        (long long)p->kth, (long long)shape.v[p->axis]);
    if (p->tail)
        shape.v[p->axis] -= p->kth;
    mr__aval_shape(out, MR_UINT32, (int32_t)shape.n, shape.v);
    return MR_OK;
}

static mr_array *
places_vmap(const mr_batch *b)
{
    mr_partition_params p = *(const mr_partition_params *)mr__params(b->node);

    p.axis++;
    return mr__node_new(b->node->op, &p, 1, b->in);
}

const mr_op mr__op_partition_places = {
    .id = MR_OP_PARTITION_PLACES,
    .version = 1,
    .n_in = 1,
    .name = "partition_places",
    .flags = MR_FLAG_ZERO_GRADIENT,
    MR__PARAMS(mr_partition_params, places_fields),
    .infer = places_infer,
    .vmap = places_vmap,
};

static mr_array *
places_of(mr_array *a, int32_t axis, int64_t kth, bool tail)
{
    mr_partition_params p = {axis, kth, tail};

    return mr__node_new(&mr__op_partition_places, &p, 1, &a);
}

/* ---- partition, topk
 * ------------------------------------------------------------ */

static mr_code
check_kth(const mr_array *a, int32_t axis, int64_t kth)
{
    int64_t n = a->size;
    int32_t k;

    if (axis != MR_AXIS_NONE) {
        if (!mr__axis(axis, a->ndim, &k))
            return mr__error_code();
        n = a->dim[k];
    }
    if (kth < -n || kth >= n)
        return mr__fail(MR_E_VALUE,
                        "kth %lld is out of range for %lld elements",
                        (long long)kth, (long long)n);
    return MR_OK;
}

mr_array *
mr__build_argpartition(mr_array *a, int64_t kth, int32_t axis)
{
    int32_t along;

    if (check_kth(a, axis, kth) != MR_OK)
        return NULL;
    a = mr__along(a, axis, &along);
    if (a == NULL || mr__dtype_is_complex((mr_dtype)a->dtype))
        return a == NULL ? NULL : mr_argsort(a, along);
    return places_of(a, along, kth < 0 ? kth + a->dim[along] : kth, false);
}

mr_array *
mr__build_partition(mr_array *a, int64_t kth, int32_t axis)
{
    int32_t along;

    if (check_kth(a, axis, kth) != MR_OK)
        return NULL;
    a = mr__along(a, axis, &along);
    return a == NULL ? NULL
                     : mr__take_along(a, mr_argpartition(a, kth, along), along);
}

/* In ascending order, as a sort's end is. */
mr_array *
mr__build_topk(mr_array *a, int64_t k, int32_t axis)
{
    int32_t along;
    int64_t n;

    a = mr__along(a, axis, &along);
    if (a == NULL)
        return NULL;
    n = a->dim[along];
    if (k < 0 || k > n)
        return mr__fail_null(
            MR_E_VALUE, "the %lld largest of %lld elements: needs 0 to as many",
            (long long)k, (long long)n);
    if (k == 0 || k == n || mr__dtype_is_complex((mr_dtype)a->dtype))
        return mr__slice_one(mr_sort(a, along), along, n - k, MR_INT_NONE, 1);
    a = mr__take_along(a, places_of(a, along, n - k, true), along);
    return a == NULL ? NULL : mr_sort(a, along);
}

/* -- searchsorted ---------------------------------------------------------- */

mr_array *
mr__build_searchsorted(mr_array *sorted_sequence, mr_array *values,
                       const char *side)
{
    mr_searchsorted_params p = {side != NULL && strcmp(side, "right") == 0};
    mr_dtype t =
        mr__promote((mr_dtype)sorted_sequence->dtype, (mr_dtype)values->dtype);
    mr_array *in[2];

    if (!p.right && (side == NULL || strcmp(side, "left") != 0))
        return mr__fail_null(MR_E_VALUE, "side '%s' is not left or right",
                             side == NULL ? "" : side);
    if (sorted_sequence->ndim != 1)
        return mr__fail_null(MR_E_VALUE, "needs a sequence of 1 axis, got %d",
                             (int)sorted_sequence->ndim);
    in[0] = mr__cast(sorted_sequence, t);
    in[1] = mr__cast(values, t);
    if (in[0] == NULL || in[1] == NULL)
        return NULL;
    return mr__node_new(&mr__op_searchsorted, &p, 2, in);
}

static mr_code
searchsorted_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[1]);
    out->dtype = MR_UINT32;
    return MR_OK;
}

/* So few entries that comparing all of them beats a search for each batch
 * entry by itself. */
static bool
is_short(const mr_array *batched)
{
    return batched->size <= 16 * batched->dim[0];
}

/* With a sequence for each: how many entries come before each value. */
static mr_array *
searchsorted_each(const mr_batch *b, bool right)
{
    mr_array *s = mr_expand_dims(b->in[0], MR_AXES(1));
    mr_array *v = mr__batch_in(b, 1), *before, *nan;
    mr_list shape, rows = {.n = 2};

    if (s == NULL || v == NULL)
        return NULL;
    shape = mr__dims(v);
    rows.v[0] = b->size;
    rows.v[1] = b->size == 0 ? 0 : v->size / b->size;
    v = mr_expand_dims(mr_reshape(v, mr__shape(&rows)), MR_AXES(2));
    before = right ? mr_less_equal(s, v) : mr_less(s, v);
    nan = mr_isnan(v);
    if (!right)
        nan = mr_logical_and(nan, mr_logical_not(mr_isnan(s)));
    before = mr__cast(mr_logical_or(before, nan), MR_UINT32);
    return mr_reshape(mr_sum(before, MR_AXES(2), false), mr__shape(&shape));
}

static mr_array *
searchsorted_vmap(const mr_batch *b)
{
    const mr_searchsorted_params *p = mr__params(b->node);

    if (b->batched[0])
        return is_short(b->in[0]) ? searchsorted_each(b, p->right)
                                  : mr__loop(b);
    return mr__node_new(b->node->op, p, 2, b->in);
}

static const mr_field searchsorted_fields[] = {
    MR_FIELD(1, BOOL, mr_searchsorted_params, right),
};

const mr_op mr__op_searchsorted = {
    .id = MR_OP_SEARCHSORTED,
    .version = 1,
    .n_in = 2,
    .name = "searchsorted",
    .flags = MR_FLAG_ZERO_GRADIENT,
    MR__PARAMS(mr_searchsorted_params, searchsorted_fields),
    .infer = searchsorted_infer,
    .vmap = searchsorted_vmap,
};

/* -- is_among -------------------------------------------------------------- */

static mr_code
among_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[0]);
    out->dtype = MR_BOOL;
    return MR_OK;
}

/* The others, sorted, and what stands where x would go is x, or x is none of
 * them.  NaN equals nothing. */
static mr_array *
among_sorted(mr_array *x, mr_array *others, int64_t n)
{
    mr_array *sorted = mr_sort(mr_flatten(others, 0, -1), 0);
    mr_array *at = mr_searchsorted(sorted, x, "left");

    at = mr_minimum(at, mr__number(MR_UINT32, (double)(n - 1)));
    return mr_equal(mr_take(sorted, at, 0), x);
}

/* With others for each: a few are compared with all, of more each entry makes
 * a set of its own. */
static mr_array *
among_vmap(const mr_batch *b)
{
    mr_array *x, *others, *equal;
    mr_list shape, rows = {.n = 3};

    if (!b->batched[1])
        return mr__node_new(b->node->op, NULL, 2, b->in);
    if (!is_short(b->in[1]))
        return mr__loop(b);
    x = mr__batch_in(b, 0);
    others = mr__batch_in(b, 1);
    if (x == NULL || others == NULL)
        return NULL;
    shape = mr__dims(x);
    rows.v[0] = b->size;
    rows.v[1] = b->size == 0 ? 0 : x->size / b->size;
    rows.v[2] = 1;
    x = mr_reshape(x, mr__shape(&rows));
    rows.v[1] = 1;
    rows.v[2] = b->size == 0 ? 1 : others->size / b->size;
    equal = mr_equal(x, mr_reshape(others, mr__shape(&rows)));
    return mr_reshape(mr_any(equal, MR_AXES(2), false), mr__shape(&shape));
}

const mr_op mr__op_is_among = {
    .id = MR_OP_IS_AMONG,
    .version = 1,
    .n_in = 2,
    .name = "is_among",
    .flags = MR_FLAG_ZERO_GRADIENT,
    .infer = among_infer,
    .vmap = among_vmap,
};

/* ---- isin
 * ------------------------------------------------------------------------ */

mr_array *
mr__build_isin(mr_array *a, mr_array *elements, bool invert)
{
    mr_dtype t = mr__promote((mr_dtype)a->dtype, (mr_dtype)elements->dtype);
    mr_array *in[2], *y;
    int64_t n = elements->size;

    a = mr__cast(a, t);
    if (a != NULL && n == 0)
        return mr__filled(MR_BOOL, a->ndim, a->dim, invert ? 1.0 : 0.0);
    in[0] = a;
    in[1] = mr__cast(elements, t);
    if (a == NULL || in[1] == NULL)
        return NULL;
    y = mr__dtype_is_complex(t) ? among_sorted(a, in[1], n)
                                : mr__node_new(&mr__op_is_among, NULL, 2, in);
    return invert ? mr_logical_not(y) : y;
}
