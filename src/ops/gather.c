/* SPDX-License-Identifier: Apache-2.0
 *
 * gather.c -- reading and writing at places given by index arrays.
 *
 * gather and scatter are each other's transpose: the cotangent of a gather is
 * scattered with addition, that of a scatter's updates is gathered.  Where
 * several updates meet in one place, each mode says who gets what: of sets the
 * last alone, of additions all, of products each the product of the others, of
 * extremes all equals the same share.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

/* Inputs: x, index arrays, and for scatter the updates. */
#define MAX_IN (MR_MAX_NDIM + 2)

/* What messages call the two: an operator that a rule makes of a node is called
 * as the node is, since that is what the user wrote.  So each is there under
 * the names of the others. */
#define GATHERS  "x[index] or take"
#define SCATTERS MR__SCATTER_LABEL

/* ---- shared checks
 * ------------------------------------------------------------- */

/* Axes to >= 0, none twice. */
static mr_code
check_axes(const mr_array *a, int n, mr_ints axes, mr_list *out)
{
    uint32_t seen = 0;

    if (n < 1 || axes.n != n || n > a->ndim)
        return mr__fail(MR_E_VALUE,
                        "%d index arrays for %lld axes of an array of %d "
                        "axes: needs one for each axis named",
                        n, (long long)axes.n, (int)a->ndim);
    out->n = n;
    for (int k = 0; k < n; k++) {
        int32_t axis;

        if (!mr__axis(axes.v[k], a->ndim, &axis))
            return mr__error_code();
        if (seen >> axis & 1)
            return mr__fail(MR_E_VALUE, "axis %d is given twice", (int)axis);
        seen |= (uint32_t)1 << axis;
        out->v[k] = axis;
    }
    return MR_OK;
}

/* The index arrays broadcast together, into in[0..n); their shape. */
static mr_code
line_up_indices(mr_array *const *indices, int n, mr_array **in, mr_list *shape)
{
    int32_t ndim = 0;
    mr_text text;

    for (int k = 0; k < n; k++) {
        if (!mr__is_index(indices[k]))
            return mr__fail(MR_E_VALUE, "indices must be integers, got %s",
                            mr_dtype_name((mr_dtype)indices[k]->dtype));
        ndim = mr__broadcast_shapes(ndim, shape->v, indices[k]->ndim,
                                    indices[k]->dim, shape->v);
        if (ndim < 0)
            return mr__fail(MR_E_SHAPE,
                            "an index array of shape %s does not broadcast "
                            "with the others",
                            mr__shape_of(indices[k], &text));
    }
    shape->n = ndim;
    for (int k = 0; k < n; k++) {
        in[k] = mr__broadcast(indices[k], ndim, shape->v);
        if (in[k] == NULL)
            return mr__error_code();
    }
    return MR_OK;
}

/* axes of the array as seen with the batch in front; with the batch's own
 * axis first when it is indexed too. */
static mr_list
batched_axes(mr_ints axes, bool with_batch)
{
    mr_list out = with_batch ? mr__prepend(axes, -1) : (mr_list){.n = axes.n};

    for (int64_t k = 0; k < axes.n; k++)
        out.v[k + (with_batch ? 1 : 0)] = axes.v[k] + 1;
    if (with_batch)
        out.v[0] = 0;
    return out;
}

/* 0 .. size - 1 along the batch axis of index arrays of ndim axes besides. */
static mr_array *
batch_index(const mr_batch *b, int32_t ndim)
{
    return mr__iota(b->size, 0, ndim + 1);
}

/* The operator of this id that messages call as they call `like`. */
static const mr_op *called_as(const mr_op *like, int id);

static mr_array *scatter(const mr_op *op, mr_array *a, mr_array *const *indices,
                         int n, mr_array *updates, mr_ints axes,
                         mr_scatter_mode mode);

/* -- index_gather ---------------------------------------------------------- */

static mr_array *
gather(const mr_op *op, mr_array *a, mr_array *const *indices, int n_indices,
       mr_ints axes, mr_ints slice_sizes)
{
    mr_array *in[MAX_IN], *picked;
    mr_list list, shape;
    mr_gather_params p;

    if (a == NULL || check_axes(a, n_indices, axes, &list) != MR_OK ||
        line_up_indices(indices, n_indices, in + 1, &shape) != MR_OK)
        return NULL;
    if (slice_sizes.n != a->ndim)
        return mr__fail_null(
            MR_E_VALUE,
            "%lld sizes for an array of %d axes: needs one for each",
            (long long)slice_sizes.n, (int)a->ndim);
    if (mr__pick_rows(a, indices, in + 1, n_indices, mr__ints(&list),
                      slice_sizes, op->label, &picked))
        return picked;
    p = (mr_gather_params){mr__ints(&list), slice_sizes};
    in[0] = a;
    return mr__node_new(op, &p, n_indices + 1, in);
}

mr_array *
mr__build_index_gather(mr_array *a, mr_array *const *indices, int n_indices,
                       mr_ints axes, mr_ints slice_sizes)
{
    return gather(&mr__op_index_gather, a, indices, n_indices, axes,
                  slice_sizes);
}

static mr_code
gather_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_gather_params *p = c->params;
    const mr_array *x = c->in[0], *index = c->in[1];

    out->dtype = (mr_dtype)x->dtype;
    out->ndim = index->ndim + x->ndim;
    if (out->ndim > MR_MAX_NDIM)
        return mr__fail(MR_E_VALUE, "%d axes, at most %d are possible",
                        (int)out->ndim, MR_MAX_NDIM);
    memcpy(out->dim, index->dim, (size_t)index->ndim * sizeof *out->dim);
    for (int32_t i = 0; i < x->ndim; i++) {
        int64_t size = p->sizes.v[i];

        if (size < 0 || (size > x->dim[i] && index->size > 0))
            return mr__fail(
                MR_E_VALUE,
                "a part of size %lld does not fit in axis %d of size %lld",
                (long long)size, (int)i, (long long)x->dim[i]);
        out->dim[index->ndim + i] = size;
    }
    return MR_OK;
}

static mr_array *
gather_vjp(const mr_rule *r, int i)
{
    const mr_gather_params *p = mr__params(r->node);

    if (i != 0)
        return MR_NONE;
    return scatter(called_as(r->node->op, MR_OP_INDEX_SCATTER),
                   mr__zeros_like(r->primal[0]), r->primal + 1, r->n_in - 1,
                   r->cotangent[0], p->axes, MR_SCATTER_ADD);
}

static mr_array *
gather_jvp(const mr_rule *r, int i)
{
    const mr_gather_params *p = mr__params(r->node);

    if (i != 0)
        return MR_NONE;
    return gather(r->node->op, r->tangent[0], r->primal + 1, r->n_in - 1,
                  p->axes, p->sizes);
}

static mr_array *
gather_vmap(const mr_batch *b)
{
    const mr_gather_params *p = mr__params(b->node);
    const mr_op *op = b->node->op;
    int32_t ndim = b->node->in[1]->ndim;
    int n = b->n_in - 1;
    bool places = false;
    mr_array *in[MAX_IN], *y;
    mr_list axes, sizes;

    for (int k = 1; k <= n; k++)
        places = places || b->batched[k];
    if (!b->batched[0]) /* one array, read at places of each */
        return gather(op, b->in[0], b->in + 1, n, p->axes, p->sizes);
    axes = batched_axes(p->axes, places);
    if (!places) { /* the batch axis is part of what is read */
        sizes = mr__prepend(p->sizes, b->size);
        y = gather(op, b->in[0], b->in + 1, n, mr__ints(&axes),
                   mr__ints(&sizes));
        return y == NULL ? NULL : mr_moveaxis(y, ndim, 0);
    }
    sizes = mr__prepend(p->sizes, 1);
    in[0] = batch_index(b, ndim);
    memcpy(in + 1, b->in + 1, (size_t)n * sizeof *in);
    if (in[0] == NULL)
        return NULL;
    y = gather(op, b->in[0], in, n + 1, mr__ints(&axes), mr__ints(&sizes));
    return mr_squeeze(y, MR_AXES(ndim + 1));
}

/* Whole slices but for one entry of one axis. */
static bool
gather_map(const mr_node *n, mr_gather_map *out)
{
    const mr_gather_params *p = mr__params(n);
    const mr_array *x = n->in[0], *index = n->in[1];

    if (n->n_in != 2)
        return false;
    out->axis = (int32_t)p->axes.v[0];
    for (int32_t i = 0; i < n->ndim; i++) {
        int32_t axis = i - index->ndim;

        out->index[i] = (int8_t)(axis < 0 ? i : -1);
        out->value[i] = (int8_t)(axis < 0 || axis == out->axis ? -1 : axis);
    }
    for (int32_t i = 0; i < x->ndim; i++)
        if (p->sizes.v[i] != (i == out->axis ? 1 : x->dim[i]))
            return false;
    return true;
}

static const mr_field gather_fields[] = {
    MR_FIELD(1, INTS, mr_gather_params, axes),
    MR_FIELD(2, DIMS, mr_gather_params, sizes),
};

#define GATHER(called)                                                         \
    {                                                                          \
        .id = MR_OP_INDEX_GATHER, .version = 1, .n_in = -1, .name = "gather",  \
        .label = called, MR__PARAMS(mr_gather_params, gather_fields),          \
        .infer = gather_infer, .vjp = gather_vjp, .jvp = gather_jvp,           \
        .vmap = gather_vmap, .gather = gather_map,                             \
    }

const mr_op mr__op_index_gather = GATHER(GATHERS);

/* The same under the names of the functions whose indices it reads. */
static const mr_op gather_mm = GATHER("gather_mm");
static const mr_op segmented_mm = GATHER("segmented_mm");
static const mr_op gather_back = GATHER(SCATTERS);

mr_array *
mr__pick(mr_array *a, mr_array *indices, mr_picker who)
{
    const mr_op *op = who == MR_PICKS_MATRICES ? &gather_mm : &segmented_mm;
    mr_array *in[2] = {a, indices};
    mr_list sizes;
    int64_t first = 0;
    mr_gather_params p;

    if (a == NULL || indices == NULL)
        return NULL;
    if (!mr__is_index(indices))
        return mr__fail_null(MR_E_VALUE, "indices must be integers, got %s",
                             mr_dtype_name((mr_dtype)indices->dtype));
    sizes = mr__dims(a);
    sizes.v[0] = 1;
    p = (mr_gather_params){{&first, 1}, mr__ints(&sizes)};
    return mr_squeeze(mr__node_new(op, &p, 2, in), MR_AXES(indices->ndim));
}

/* -- index_scatter --------------------------------------------------------- */

static mr_array *
scatter(const mr_op *op, mr_array *a, mr_array *const *indices, int n,
        mr_array *updates, mr_ints axes, mr_scatter_mode mode)
{
    mr_array *in[MAX_IN];
    mr_list list, shape;
    mr_scatter_params p = {.mode = mode};
    int32_t ndim;
    mr_text text;

    if (a == NULL || updates == NULL ||
        check_axes(a, n, axes, &list) != MR_OK ||
        line_up_indices(indices, n, in + 1, &shape) != MR_OK)
        return NULL;
    ndim = (int32_t)shape.n + a->ndim;
    if (updates->ndim < a->ndim || updates->ndim > ndim || ndim > MR_MAX_NDIM)
        return mr__fail_null(MR_E_SHAPE,
                             "updates of shape %s: needs the %d axes of the "
                             "indices, then the %d of the array",
                             mr__shape_of(updates, &text), (int)shape.n,
                             (int)a->ndim);
    for (int32_t i = 0; i < a->ndim; i++)
        shape.v[shape.n + i] = updates->dim[updates->ndim - a->ndim + i];
    p.axes = mr__ints(&list);
    in[0] = a;
    in[n + 1] =
        mr__broadcast(mr__cast(updates, (mr_dtype)a->dtype), ndim, shape.v);
    if (in[n + 1] == NULL)
        return NULL;
    return mr__node_new(op, &p, n + 2, in);
}

/* a divided by the product of what divides each place. */
static mr_array *
scatter_divide(mr_array *a, mr_array *const *indices, int n, mr_array *updates,
               mr_ints axes)
{
    mr_array *by = scatter(&mr__op_index_scatter, mr__ones_like(a), indices, n,
                           updates, axes, MR_SCATTER_MULTIPLY);

    return mr__cast(mr_divide(a, by), (mr_dtype)a->dtype);
}

mr_array *
mr__build_index_scatter(mr_array *a, mr_array *const *indices, int n_indices,
                        mr_array *updates, mr_ints axes, const char *mode)
{
    static const char *const names[] = {"set", "add", "multiply", "maximum",
                                        "minimum"};

    for (int m = 0; mode != NULL && m < 5; m++)
        if (strcmp(mode, names[m]) == 0)
            return scatter(&mr__op_index_scatter, a, indices, n_indices,
                           updates, axes, (mr_scatter_mode)m);
    if (mode != NULL && strcmp(mode, "divide") == 0)
        return scatter_divide(a, indices, n_indices, updates, axes);
    return mr__fail_null(MR_E_VALUE,
                         "mode '%s' is not set, add, multiply, divide, maximum "
                         "or minimum",
                         mode == NULL ? "" : mode);
}

static mr_code
scatter_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *x = c->in[0], *index = c->in[1];
    const mr_array *updates = c->in[c->n_in - 1];

    mr__aval_like(out, x);
    for (int32_t i = 0; i < x->ndim; i++)
        if (updates->dim[index->ndim + i] > x->dim[i] && index->size > 0)
            return mr__fail(
                MR_E_VALUE,
                "a part of size %lld does not fit in axis %d of size %lld",
                (long long)updates->dim[index->ndim + i], (int)i,
                (long long)x->dim[i]);
    return MR_OK;
}

/* The node's places, read from x and written into x. */
static mr_array *
gather_like(const mr_rule *r, mr_array *x)
{
    const mr_scatter_params *p = mr__params(r->node);
    const mr_array *updates = r->primal[r->n_in - 1];
    int32_t ndim = r->primal[0]->ndim;

    return gather(called_as(r->node->op, MR_OP_INDEX_GATHER), x, r->primal + 1,
                  r->n_in - 2, p->axes,
                  (mr_ints){updates->dim + updates->ndim - ndim, ndim});
}

static mr_array *
scatter_like(const mr_rule *r, mr_array *x, mr_array *updates,
             mr_scatter_mode mode)
{
    const mr_scatter_params *p = mr__params(r->node);

    return scatter(r->node->op, x, r->primal + 1, r->n_in - 2, updates, p->axes,
                   mode);
}

/* Which updates stayed: each writes its number, and reads what is there. */
static mr_array *
set_winners(const mr_rule *r)
{
    mr_array *x = r->primal[0], *updates = r->primal[r->n_in - 1];
    mr_array *number = mr__counting(updates);
    mr_array *none = mr__filled(MR_INT64, x->ndim, x->dim, -1.0);

    return mr_equal(
        gather_like(r, scatter_like(r, none, number, MR_SCATTER_SET)), number);
}

static mr_array *
set_vjp(const mr_rule *r, int i)
{
    mr_array *c = r->cotangent[0];

    if (i == 0)
        return scatter_like(r, c, mr__zeros_like(r->primal[r->n_in - 1]),
                            MR_SCATTER_SET);
    if (r->primal[1]->size == 1) /* one place: nobody is overwritten */
        return gather_like(r, c);
    return mr__masked(mr_rule_once(r, 0, set_winners), gather_like(r, c));
}

/* Along a list whose places are sorted: the product of those before each entry
 * in its own place, by doubling over what is known to begin a place.  Nothing
 * is divided, so zeros are right, in every order. */
static mr_array *
before_in_place(mr_array *place, mr_array *v)
{
    int64_t n = v == NULL ? 0 : v->dim[0];
    mr_array *one, *first, *other, *begins;

    if (n == 0)
        return v;
    one = mr__filled((mr_dtype)v->dtype, 1, (int64_t[]){1}, 1.0);
    first = mr__filled(MR_BOOL, 1, (int64_t[]){1}, 1.0);
    other = mr_not_equal(mr__slice_one(place, 0, 1, n, 1),
                         mr__slice_one(place, 0, 0, n - 1, 1));
    begins = mr_concatenate((mr_array *[]){first, other}, 2, 0);

    v = mr_concatenate((mr_array *[]){one, mr__slice_one(v, 0, 0, n - 1, 1)}, 2,
                       0);
    if (one == NULL || v == NULL)
        return NULL;
    v = mr_where(begins, mr__number((mr_dtype)one->dtype, 1.0), v);
    for (int64_t d = 1; v != NULL && begins != NULL && d < n; d *= 2) {
        mr_array *b = mr__slice_one(begins, 0, d, n, 1);
        mr_array *w = mr__slice_one(v, 0, d, n, 1);

        w = mr_where(b, w, mr_multiply(w, mr__slice_one(v, 0, 0, n - d, 1)));
        b = mr_logical_or(b, mr__slice_one(begins, 0, 0, n - d, 1));
        v = mr_concatenate((mr_array *[]){mr__slice_one(v, 0, 0, d, 1), w}, 2,
                           0);
        begins = mr_concatenate(
            (mr_array *[]){mr__slice_one(begins, 0, 0, d, 1), b}, 2, 0);
    }
    return v;
}

static mr_array *
reversed(mr_array *x)
{
    return x == NULL ? NULL : mr__slice_one(x, 0, MR_INT_NONE, MR_INT_NONE, -1);
}

/* For each update the product of the others in its place, and of x there. */
static mr_array *
other_factors(const mr_rule *r)
{
    mr_array *x = r->primal[0], *u = r->primal[r->n_in - 1];
    mr_array *place, *order, *v, *before, *after;

    if (u->size == 0)
        return u;
    place = mr_flatten(gather_like(r, mr__counting(x)), 0, -1);
    order = mr_argsort(place, 0);
    place = mr_take(place, order, 0);
    v = mr_take(mr_flatten(u, 0, -1), order, 0);
    if (place == NULL || v == NULL)
        return NULL;
    before = before_in_place(place, v);
    after = reversed(before_in_place(reversed(place), reversed(v)));
    v = mr_take(mr_multiply(before, after), mr_argsort(order, 0), 0);
    return mr_multiply(gather_like(r, x),
                       mr_reshape(v, (mr_shape){u->dim, u->ndim}));
}

static mr_array *
all_factors(const mr_rule *r)
{
    return scatter_like(r, mr__ones_like(r->primal[0]), r->primal[r->n_in - 1],
                        MR_SCATTER_MULTIPLY);
}

static mr_array *
multiply_vjp(const mr_rule *r, int i)
{
    mr_array *c = r->cotangent[0];

    if (i == 0)
        return mr_multiply(c, mr__conj(mr_rule_once(r, 0, all_factors)));
    return mr_multiply(gather_like(r, c),
                       mr__conj(mr_rule_once(r, 1, other_factors)));
}

/* The extremes: where x, and which updates, are what came out. */
static mr_array *
extreme_kept(const mr_rule *r)
{
    return mr_equal(r->primal[0], r->output[0]);
}

static mr_array *
extreme_came(const mr_rule *r)
{
    return mr_equal(r->primal[r->n_in - 1], gather_like(r, r->output[0]));
}

static mr_array *
extreme_count(const mr_rule *r)
{
    mr_dtype t = (mr_dtype)r->primal[0]->dtype;
    mr_array *kept = mr_rule_once(r, 0, extreme_kept);
    mr_array *came = mr_rule_once(r, 1, extreme_came);

    if (kept == NULL || came == NULL)
        return NULL;
    return mr_maximum(
        scatter_like(r, mr_astype(kept, t), mr_astype(came, t), MR_SCATTER_ADD),
        mr__number(t, 1.0));
}

static mr_array *
extreme_vjp(const mr_rule *r, int i)
{
    mr_array *share =
        mr_divide(r->cotangent[0], mr_rule_once(r, 2, extreme_count));

    if (i == 0)
        return mr__masked(mr_rule_once(r, 0, extreme_kept), share);
    return mr__masked(mr_rule_once(r, 1, extreme_came), gather_like(r, share));
}

static mr_array *
scatter_vjp(const mr_rule *r, int i)
{
    const mr_scatter_params *p = mr__params(r->node);

    if (i != 0 && i != r->n_in - 1)
        return MR_NONE;
    switch ((mr_scatter_mode)p->mode) {
    case MR_SCATTER_SET:
        return set_vjp(r, i);
    case MR_SCATTER_ADD:
        return i == 0 ? r->cotangent[0] : gather_like(r, r->cotangent[0]);
    case MR_SCATTER_MULTIPLY:
        return multiply_vjp(r, i);
    case MR_SCATTER_MAXIMUM:
    case MR_SCATTER_MINIMUM:
        break;
    }
    return extreme_vjp(r, i);
}

static mr_array *
tangent_or_zeros(const mr_rule *r, int i)
{
    return r->tangent[i] != NULL ? r->tangent[i] : mr__zeros_like(r->primal[i]);
}

/* set and add are linear in both: their tangent comes with the first that
 * there is. */
static mr_array *
scatter_jvp(const mr_rule *r, int i)
{
    const mr_scatter_params *p = mr__params(r->node);
    mr_scatter_mode mode = (mr_scatter_mode)p->mode;
    int last = r->n_in - 1;
    mr_array *t, *x = r->primal[0];

    if (i != 0 && i != last)
        return MR_NONE;
    t = r->tangent[i];
    if (mode == MR_SCATTER_SET || mode == MR_SCATTER_ADD) {
        if (i == last && r->tangent[0] != NULL)
            return MR_NONE;
        return scatter_like(r, tangent_or_zeros(r, 0),
                            tangent_or_zeros(r, last), mode);
    }
    if (mode == MR_SCATTER_MULTIPLY) {
        if (i == 0)
            return mr_multiply(t, mr_rule_once(r, 0, all_factors));
        t = mr_multiply(t, mr_rule_once(r, 1, other_factors));
        return scatter_like(r, mr__zeros_like(x), t, MR_SCATTER_ADD);
    }
    if (i == 0)
        t = mr__masked(mr_rule_once(r, 0, extreme_kept), t);
    else
        t = scatter_like(r, mr__zeros_like(x),
                         mr__masked(mr_rule_once(r, 1, extreme_came), t),
                         MR_SCATTER_ADD);
    return mr_divide(t, mr_rule_once(r, 2, extreme_count));
}

static mr_array *
scatter_vmap(const mr_batch *b)
{
    const mr_scatter_params *p = mr__params(b->node);
    int32_t ndim = b->node->in[1]->ndim;
    int n = b->n_in - 2;
    mr_array *in[MAX_IN], *x = mr__batch_in(b, 0);
    mr_array *updates = mr__batch_in(b, b->n_in - 1);
    mr_list axes = batched_axes(p->axes, true);

    in[0] = batch_index(b, ndim);
    memcpy(in + 1, b->in + 1, (size_t)n * sizeof *in);
    updates = mr_expand_dims(updates, MR_AXES(ndim + 1));
    if (in[0] == NULL || x == NULL || updates == NULL)
        return NULL;
    return scatter(b->node->op, x, in, n + 1, updates, mr__ints(&axes),
                   (mr_scatter_mode)p->mode);
}

static const mr_field scatter_fields[] = {
    MR_FIELD(1, INTS, mr_scatter_params, axes),
    MR_FIELD(2, INT, mr_scatter_params, mode),
};

#define SCATTER(called)                                                        \
    {                                                                          \
        .id = MR_OP_INDEX_SCATTER, .version = 1, .n_in = -1,                   \
        .name = "scatter", .label = called,                                    \
        MR__PARAMS(mr_scatter_params, scatter_fields), .infer = scatter_infer, \
        .vjp = scatter_vjp, .jvp = scatter_jvp, .vmap = scatter_vmap,          \
    }

const mr_op mr__op_index_scatter = SCATTER(SCATTERS);
static const mr_op scatter_mm = SCATTER("gather_mm");
static const mr_op scatter_segments = SCATTER("segmented_mm");
static const mr_op scatter_back = SCATTER(GATHERS);

static const mr_op *
called_as(const mr_op *like, int id)
{
    static const mr_op *const all[] = {
        &mr__op_index_gather,  &gather_mm,  &segmented_mm,     &gather_back,
        &mr__op_index_scatter, &scatter_mm, &scatter_segments, &scatter_back,
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if ((int)all[i]->id == id && strcmp(all[i]->label, like->label) == 0)
            return all[i];
    return like;
}
