/* SPDX-License-Identifier: Apache-2.0
 *
 * select.c -- what masks and counts select: results whose size the data say.
 *
 * Five operators work at a size that is known: mask_places, mask_compress with
 * its mirror mask_expand, repeat_places, repeat_entries.  The functions on top
 * take that size from the caller (size=), which works inside every transform,
 * or else evaluate the mask, and nothing else, and count.  Their results are
 * lazy as all are. Called by: the generated doors, transforms.  Calls:
 * marram/ops.h.
 */
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/eval.h"
#include "marram/ops.h"
#include "marram/tree.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

/* ---- counting ------------------------------------------------------------ */

static mr_code
check_size(int64_t size)
{
    if (size >= 0 && size <= INT64_MAX / 16)
        return MR_OK;
    return mr__fail(MR_E_VALUE, "a size of %lld, needs 0 or more",
                    (long long)size);
}

/* The sum of bools or integers, now. */
static bool
total_now(mr_array *x, const char *what, const char *instead, int64_t *total)
{
    mr_scalar sum;
    mr_code code = mr_eval(x);

    if (code == MR_OK)
        code = mr_array_item(mr_sum(mr__cast(x, MR_INT64), MR_AXES_ALL, false),
                             &sum);
    if (code == MR_OK)
        *total = sum.as.i;
    else if (code == MR_E_STATE && mr_array_is_tracer(x))
        mr__fail(MR_E_STATE,
                 "%s depends on values that are not known while a function is "
                 "traced: %s, with room for as many as you need, or do this "
                 "outside",
                 what, instead);
    return code == MR_OK;
}

/* How many results a mask gives: `size`, when the caller says it. */
static bool
count_of(mr_array *mask, int64_t size, int64_t *n)
{
    if (size != MR_INT_NONE) {
        *n = size;
        return check_size(size) == MR_OK;
    }
    return total_now(mask, "the number of entries that are selected",
                     "give size=", n);
}

/* -- mask_places ----------------------------------------------------------- */

static const mr_field places_fields[] = {
    MR_FIELD(1, DIM, mr_mask_places_params, size),
    MR_FIELD(2, INT, mr_mask_places_params, fill),
    MR_FIELD(3, DTYPE, mr_mask_places_params, dtype),
};

/* Where the last axis of a mask is True. */
static mr_array *
places_of(mr_array *mask, int64_t size, int64_t fill)
{
    mr_mask_places_params p = {size, fill, MR_INT32};

    if (mask == NULL)
        return NULL;
    if (mask->dim[mask->ndim - 1] >= INT32_MAX)
        p.dtype = MR_INT64;
    return mr__node_new(&mr__op_mask_places, &p, 1, &mask);
}

static mr_code
places_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_mask_places_params *p = c->params;

    mr__aval_like(out, c->in[0]);
    out->dtype = p->dtype;
    out->dim[out->ndim - 1] = p->size;
    return mr__check_shape(out->ndim, out->dim);
}

static mr_array *
same_vmap(const mr_batch *b)
{
    return mr__node_new(b->node->op, mr__params(b->node), 1, b->in);
}

const mr_op mr__op_mask_places = {
    .id = MR_OP_MASK_PLACES,
    .version = 1,
    .n_in = 1,
    .name = "mask_places",
    .flags = MR_FLAG_ZERO_GRADIENT,
    MR__PARAMS(mr_mask_places_params, places_fields),
    .infer = places_infer,
    .vmap = same_vmap,
};

/* -- mask_compress --------------------------------------------------------- */

static const mr_field size_fields[] = {
    MR_FIELD(1, DIM, mr_mask_size_params, size),
};

static mr_array *
compressed(mr_array *x, mr_array *mask, int64_t size)
{
    mr_mask_size_params p = {size};

    if (x == NULL || mask == NULL)
        return NULL;
    return mr__node_new(&mr__op_mask_compress, &p, 2, (mr_array *[]){x, mask});
}

static mr_array *
expanded(mr_array *values, mr_array *mask, bool exact)
{
    mr_mask_expand_params p = {exact};

    if (values == NULL || mask == NULL)
        return NULL;
    return mr__node_new(&mr__op_mask_expand, &p, 2,
                        (mr_array *[]){values, mask});
}

static mr_code
compress_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_mask_size_params *p = c->params;

    mr__aval_like(out, c->in[0]);
    out->dim[c->in[1]->ndim - 1] = p->size;
    return mr__check_shape(out->ndim, out->dim);
}

static mr_array *
compress_vjp(const mr_rule *r, int i)
{
    return i == 1 ? MR_NONE : expanded(r->cotangent[0], r->primal[1], false);
}

static mr_array *
compress_jvp(const mr_rule *r, int i)
{
    const mr_mask_size_params *p = mr__params(r->node);

    return i == 1 ? MR_NONE : compressed(r->tangent[i], r->primal[1], p->size);
}

/* One mask for the whole batch: the batch axis goes behind the mask's, and
 * back to the front afterwards. */
static mr_array *
batch_behind(const mr_batch *b)
{
    int32_t behind = b->in[1]->ndim;
    mr_array *x = mr_moveaxis(b->in[0], 0, behind);

    if (x == NULL)
        return NULL;
    x = mr__node_new(b->node->op, mr__params(b->node), 2,
                     (mr_array *[]){x, b->in[1]});
    return mr_moveaxis(x, behind, 0);
}

static mr_array *
entries_vmap(const mr_batch *b)
{
    mr_array *in[2];

    if (!b->batched[1])
        return batch_behind(b);
    in[0] = mr__batch_in(b, 0);
    in[1] = mr__batch_in(b, 1);
    if (in[0] == NULL || in[1] == NULL)
        return NULL;
    return mr__node_new(b->node->op, mr__params(b->node), 2, in);
}

const mr_op mr__op_mask_compress = {
    .id = MR_OP_MASK_COMPRESS,
    .version = 1,
    .n_in = 2,
    .name = "mask_compress",
    MR__PARAMS(mr_mask_size_params, size_fields),
    .infer = compress_infer,
    .vjp = compress_vjp,
    .jvp = compress_jvp,
    .vmap = entries_vmap,
};

/* -- mask_expand ----------------------------------------------------------- */

static const mr_field expand_fields[] = {
    MR_FIELD(1, BOOL, mr_mask_expand_params, exact),
};

static mr_code
expand_infer(const mr_op_call *c, mr_aval *out)
{
    int32_t axis = c->in[1]->ndim - 1;

    mr__aval_like(out, c->in[0]);
    out->dim[axis] = c->in[1]->dim[axis];
    return mr__check_shape(out->ndim, out->dim);
}

static mr_array *
expand_vjp(const mr_rule *r, int i)
{
    if (i == 1)
        return MR_NONE;
    return compressed(r->cotangent[0], r->primal[1],
                      r->primal[0]->dim[r->primal[1]->ndim - 1]);
}

static mr_array *
expand_jvp(const mr_rule *r, int i)
{
    return i == 1 ? MR_NONE : expanded(r->tangent[i], r->primal[1], false);
}

const mr_op mr__op_mask_expand = {
    .id = MR_OP_MASK_EXPAND,
    .version = 1,
    .n_in = 2,
    .name = "mask_expand",
    .label = "x[mask] = v or x.at[mask]",
    MR__PARAMS(mr_mask_expand_params, expand_fields),
    .infer = expand_infer,
    .vjp = expand_vjp,
    .jvp = expand_jvp,
    .vmap = entries_vmap,
};

/* -- repeat_places --------------------------------------------------------- */

static mr_code
repeat_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_mask_size_params *p = c->params;

    mr__aval_like(out, c->in[0]);
    out->dim[out->ndim - 1] = p->size;
    return mr__check_shape(out->ndim, out->dim);
}

const mr_op mr__op_repeat_places = {
    .id = MR_OP_REPEAT_PLACES,
    .version = 1,
    .n_in = 1,
    .name = "repeat_places",
    .flags = MR_FLAG_ZERO_GRADIENT,
    MR__PARAMS(mr_mask_size_params, size_fields),
    .infer = repeat_infer,
    .vmap = same_vmap,
};

/* -- repeat_entries -------------------------------------------------------- */

static mr_array *
entries_at(const mr_rule *r, mr_array *x)
{
    return mr__node_new(r->node->op, mr__params(r->node), 2,
                        (mr_array *[]){x, r->primal[1]});
}

/* Each entry gets the sum of what its repeats got. */
static mr_array *
entries_vjp(const mr_rule *r, int i)
{
    mr_array *c = r->cotangent[0], *places;
    int32_t axis = r->primal[1]->ndim - 1;
    mr_list shape;

    if (i == 1)
        return MR_NONE;
    places = mr__node_new(&mr__op_repeat_places, mr__params(r->node), 1,
                          &r->primal[1]);
    if (places == NULL)
        return NULL;
    shape = mr__dims(places);
    while (shape.n < c->ndim)
        shape.v[shape.n++] = 1;
    places = mr_reshape(places, mr__shape(&shape));
    shape = mr__dims(c);
    places = mr_broadcast_to(places, mr__shape(&shape));
    return mr__put_along(mr__zeros_like(r->primal[0]), places, c, axis,
                         MR_SCATTER_ADD);
}

static mr_array *
entries_jvp(const mr_rule *r, int i)
{
    return i == 1 ? MR_NONE : entries_at(r, r->tangent[0]);
}

const mr_op mr__op_repeat_entries = {
    .id = MR_OP_REPEAT_ENTRIES,
    .version = 1,
    .n_in = 2,
    .name = "repeat_entries",
    MR__PARAMS(mr_mask_size_params, size_fields),
    .infer = compress_infer,
    .vjp = entries_vjp,
    .jvp = entries_jvp,
    .vmap = entries_vmap,
};

/* One count for each of the n places, or one for all; of int64. */
static mr_array *
check_counts(mr_array *repeats, int64_t n)
{
    mr_text text;

    if (!mr__is_index(repeats))
        return mr__fail_null(MR_E_VALUE, "repeats must be integers, got %s",
                             mr_dtype_name((mr_dtype)repeats->dtype));
    if (repeats->ndim > 1 || (repeats->size != n && repeats->size != 1))
        return mr__fail_null(MR_E_SHAPE,
                             "repeats of shape %s for an axis of size %lld: "
                             "needs one count, or one an entry",
                             mr__shape_of(repeats, &text), (long long)n);
    repeats = mr__cast(repeats, MR_INT64);
    return mr_broadcast_to(repeats, MR_SHAPE(n));
}

/* The sum of the counts, now; in double it cannot wrap. */
static bool
total_repeats(mr_array *repeats, int64_t *total)
{
    mr_scalar sum;

    if (!total_now(repeats, "the sum of the repeats", "give size=", total))
        return false;
    if (mr_array_item(mr_sum(mr__cast(repeats, MR_FLOAT64), MR_AXES_ALL, false),
                      &sum) != MR_OK)
        return false;
    if (sum.as.f < 1e17) /* below 0: the kernel refuses a count */
        return true;
    mr__fail(MR_E_OVERFLOW, "%.0f repeats in all are too many", sum.as.f);
    return false;
}

mr_array *
mr__build_repeat_each(mr_array *a, mr_array *repeats, int32_t axis,
                      int64_t size)
{
    mr_mask_size_params p = {size};
    int32_t k = 0;

    a = mr__along(a, axis, &k);
    if (a == NULL)
        return NULL;
    repeats = check_counts(repeats, a->dim[k]);
    if (repeats == NULL)
        return NULL;
    if (size != MR_INT_NONE && check_size(size) != MR_OK)
        return NULL;
    if (size == MR_INT_NONE && !total_repeats(repeats, &p.size))
        return NULL;
    /* counts below 0: the kernel refuses them */
    p.size = p.size < 0 ? 0 : p.size;
    if (a->dim[k] == 0 && p.size > 0)
        return mr__fail_null(MR_E_VALUE,
                             "a size of %lld, but there is nothing to repeat",
                             (long long)p.size);
    if (k == 0) /* entries in one piece, mostly; others by their places */
        return mr__node_new(&mr__op_repeat_entries, &p, 2,
                            (mr_array *[]){a, repeats});
    repeats = mr__node_new(&mr__op_repeat_places, &p, 1, &repeats);
    return mr_take(a, repeats, k);
}

/* ---- masks over leading axes --------------------------------------------- */

static mr_code
check_mask(const mr_array *a, const mr_array *mask)
{
    bool fits = mask->ndim <= a->ndim;
    mr_text ta, tm;

    if ((mr_dtype)mask->dtype != MR_BOOL)
        return mr__fail(MR_E_VALUE, "a mask is of bool, not %s",
                        mr_dtype_name((mr_dtype)mask->dtype));
    for (int32_t i = 0; fits && i < mask->ndim; i++)
        fits = mask->dim[i] == a->dim[i];
    if (!fits)
        return mr__fail(MR_E_SHAPE,
                        "a mask of shape %s for an array of shape %s: its axes "
                        "must be the array's first ones",
                        mr__shape_of(mask, &tm), mr__shape_of(a, &ta));
    return MR_OK;
}

/* The mask with axes of size 1 behind, to broadcast over an array. */
static mr_array *
mask_over(mr_array *mask, int32_t ndim)
{
    mr_list shape = mr__dims(mask);

    while (shape.n < ndim)
        shape.v[shape.n++] = 1;
    return mr_reshape(mask, mr__shape(&shape));
}

/* The axes of the mask as one. */
static mr_array *
rows_under(mr_array *a, const mr_array *mask)
{
    mr_list shape = {.n = 1, .v = {mask->size}};

    if (mask->ndim == 1)
        return a;
    for (int32_t i = mask->ndim; i < a->ndim; i++)
        shape.v[shape.n++] = a->dim[i];
    return mr_reshape(a, mr__shape(&shape));
}

/* x where there is a result for it; a number elsewhere. */
static mr_array *
fill_rest(mr_array *x, mr_array *mask, mr_array *fill, int32_t axis)
{
    mr_array *count, *there;

    if (x == NULL || !mr__given(fill))
        return x;
    if (fill->ndim != 0)
        return mr__fail_null(MR_E_SHAPE,
                             "a fill value of %d axes, needs one "
                             "number",
                             (int)fill->ndim);
    count = mr_sum(mr__cast(mask, MR_INT64), MR_AXES_ALL, false);
    there = mr_less(mr__cast(mr__iota(x->dim[axis], axis, x->ndim), MR_INT64),
                    count);
    return mr_where(there, x, mr__cast(fill, (mr_dtype)x->dtype));
}

static mr_array *
select_rows(mr_array *a, mr_array *mask, int64_t n)
{
    return compressed(rows_under(a, mask), mr_flatten(mask, 0, -1), n);
}

mr_array *
mr__build_masked_select(mr_array *a, mr_array *mask, int64_t size,
                        mr_array *fill_value)
{
    int64_t n;

    if (check_mask(a, mask) != MR_OK || !count_of(mask, size, &n))
        return NULL;
    a = select_rows(a, mask, n);
    return size == MR_INT_NONE ? a : fill_rest(a, mask, fill_value, 0);
}

mr_array *
mr__build_index_compress(mr_array *a, mr_array *mask)
{
    int64_t n;

    if (check_mask(a, mask) != MR_OK ||
        !total_now(mask, "the number of entries that the mask selects",
                   "use masked_select(a, mask, size=...)", &n))
        return NULL;
    return select_rows(a, mask, n);
}

mr_array *
mr__build_compress(mr_array *condition, mr_array *a, int32_t axis, int64_t size,
                   mr_array *fill_value)
{
    int64_t n;
    int32_t k = 0;

    a = mr__along(a, axis, &k);
    if (a == NULL)
        return NULL;
    if (condition->ndim != 1 || condition->dim[0] > a->dim[k])
        return mr__fail_null(MR_E_SHAPE,
                             "a condition of %d axes and %lld entries for an "
                             "axis of size %lld: needs 1 axis, and no more",
                             (int)condition->ndim, (long long)condition->size,
                             (long long)a->dim[k]);
    condition = mr__cast(condition, MR_BOOL);
    if (condition == NULL || !count_of(condition, size, &n))
        return NULL;
    a = mr_moveaxis(mr__slice_one(a, k, 0, condition->dim[0], 1), k, 0);
    a = compressed(a, condition, n);
    if (size != MR_INT_NONE)
        a = fill_rest(a, condition, fill_value, 0);
    return mr_moveaxis(a, 0, k);
}

/* ---- writing through a mask ---------------------------------------------- */

/* Values in the shape of a: one entry for all places, or the k-th at the k-th
 * True. */
static mr_array *
values_over(const mr_array *a, mr_array *mask, mr_array *values)
{
    int32_t rest = a->ndim - mask->ndim;
    mr_list shape = mr__dims(a), entry;
    mr_text text;

    values = mr__cast(values, (mr_dtype)a->dtype);
    if (values == NULL)
        return NULL;
    if (values->ndim > rest + 1)
        return mr__fail_null(MR_E_SHAPE,
                             "values of shape %s for entries of %d axes: needs "
                             "that many, or one more",
                             mr__shape_of(values, &text), (int)rest);
    if (values->ndim == rest + 1 && values->dim[0] == 1)
        values = mr_squeeze(values, MR_AXES(0));
    if (values == NULL)
        return NULL;
    if (values->ndim == rest + 1) {
        entry = mr__dims(values);
        for (int32_t i = 0; i < rest; i++)
            entry.v[1 + i] = a->dim[mask->ndim + i];
        values = mr_broadcast_to(values, mr__shape(&entry));
        values = expanded(values, mr_flatten(mask, 0, -1), true);
        return mr_reshape(values, mr__shape(&shape));
    }
    return mr_broadcast_to(values, mr__shape(&shape));
}

/* The values combined with a as the mode says; NULL and no error: unknown. */
static mr_array *
combined(mr_array *a, mr_array *mask, mr_array *v, const char *mode)
{
    /* what divides nothing must not make NaN in a derivative */
    if (strcmp(mode, "divide") == 0)
        v = mr_where(mask, v, mr__number((mr_dtype)v->dtype, 1.0));
    if (strcmp(mode, "set") == 0)
        return v;
    if (strcmp(mode, "add") == 0)
        return mr_add(a, v);
    if (strcmp(mode, "subtract") == 0)
        return mr_subtract(a, v);
    if (strcmp(mode, "multiply") == 0)
        return mr_multiply(a, v);
    if (strcmp(mode, "divide") == 0)
        return mr_divide(a, v);
    if (strcmp(mode, "maximum") == 0)
        return mr_maximum(a, v);
    if (strcmp(mode, "minimum") == 0)
        return mr_minimum(a, v);
    return mr__fail_null(MR_E_VALUE,
                         "mode '%s' is none of set, add, subtract, "
                         "multiply, divide, maximum, minimum",
                         mode);
}

mr_array *
mr__build_index_mask_update(mr_array *a, mr_array *mask, mr_array *values,
                            const char *mode)
{
    mr_array *over;

    if (check_mask(a, mask) != MR_OK)
        return NULL;
    values = values_over(a, mask, values);
    over = mask_over(mask, a->ndim);
    if (values == NULL || over == NULL)
        return NULL;
    values = combined(a, over, values, mode == NULL ? "" : mode);
    return mr_where(over, mr__cast(values, (mr_dtype)a->dtype), a);
}

mr_array *
mr__build_index_mask_set(mr_array *a, mr_array *mask, mr_array *values)
{
    return mr_index_mask_update(a, mask, values, "set");
}

/* ---- nonzero and its kind ------------------------------------------------ */

/* The flat places that are not 0, -1 behind them when `size` is given. */
static mr_array *
flat_places(mr_array *a, int64_t size)
{
    int64_t n;

    a = mr_flatten(mr__cast(a, MR_BOOL), 0, -1);
    if (a == NULL || !count_of(a, size, &n))
        return NULL;
    return places_of(a, n, -1);
}

/* Flat places to those on axis k; the fill where there are none. */
static mr_array *
on_axis(const mr_array *a, mr_array *flat, int32_t k, int64_t size,
        int64_t fill)
{
    mr_dtype t = (mr_dtype)flat->dtype;
    mr_array *x = flat;
    int64_t below = 1;

    for (int32_t j = k + 1; j < a->ndim; j++)
        below *= a->dim[j];
    if (below > 1)
        x = mr_floor_divide(x, mr__integer(t, below));
    if (k > 0)
        x = mr_remainder(x, mr__integer(t, a->dim[k]));
    if (size == MR_INT_NONE)
        return x;
    return mr_where(mr_less(flat, mr__integer(t, 0)), mr__integer(t, fill), x);
}

static mr_code
check_fill(int64_t fill)
{
    if (fill >= INT32_MIN && fill <= INT32_MAX)
        return MR_OK;
    return mr__fail(MR_E_OVERFLOW, "a fill value of %lld does not fit int32",
                    (long long)fill);
}

mr_tree *
mr__build_nonzero(mr_array *a, int64_t size, int64_t fill_value)
{
    mr_array *out[MR_MAX_NDIM], *flat;

    if (a->ndim == 0)
        return mr__fail_null(MR_E_VALUE, "a 0-d array has no axis to give "
                                         "places on: needs 1 or more");
    if (check_fill(fill_value) != MR_OK)
        return NULL;
    flat = flat_places(a, size);
    for (int32_t k = 0; flat != NULL && k < a->ndim; k++) {
        out[k] = on_axis(a, flat, k, size, fill_value);
        if (out[k] == NULL)
            return NULL;
    }
    return flat == NULL ? NULL : mr_tree_arrays(a->ndim, out);
}

mr_array *
mr__build_flatnonzero(mr_array *a, int64_t size, int64_t fill_value)
{
    mr_array *flat;

    if (check_fill(fill_value) != MR_OK)
        return NULL;
    flat = flat_places(a, size);
    if (flat == NULL || size == MR_INT_NONE)
        return flat;
    return mr_where(mr_less(flat, mr__integer((mr_dtype)flat->dtype, 0)),
                    mr__integer((mr_dtype)flat->dtype, fill_value), flat);
}

mr_array *
mr__build_argwhere(mr_array *a, int64_t size, int64_t fill_value)
{
    mr_array *out[MR_MAX_NDIM], *flat;

    if (check_fill(fill_value) != MR_OK)
        return NULL;
    flat = flat_places(a, size);
    if (flat == NULL)
        return NULL;
    if (a->ndim == 0)
        return mr_zeros(MR_SHAPE(flat->dim[0], 0), (mr_dtype)flat->dtype);
    for (int32_t k = 0; k < a->ndim; k++) {
        out[k] = on_axis(a, flat, k, size, fill_value);
        if (out[k] == NULL)
            return NULL;
    }
    return mr_stack(out, a->ndim, 1);
}
