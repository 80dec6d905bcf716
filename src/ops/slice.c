/* SPDX-License-Identifier: Apache-2.0
 *
 * slice.c -- static slices: reading (a view) and writing; and slices whose
 * start is an array, which are gathers.
 *
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <string.h>

#include "array/buffer.h"
#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/context.h"
#include "graph/node.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

/* One entry an axis, strides never left out. */
typedef struct slice_lists {
    mr_list start, stop, stride;
} slice_lists;

static mr_code
slice_lists_fill(slice_lists *s, const mr_array *a, mr_ints start, mr_ints stop,
                 mr_ints stride)
{
    if (start.n > a->ndim || stop.n > a->ndim || stride.n > a->ndim)
        return mr__fail(MR_E_VALUE,
                        "more slices than the array's %d axes: %lld starts, "
                        "%lld stops, %lld strides",
                        (int)a->ndim, (long long)start.n, (long long)stop.n,
                        (long long)stride.n);
    s->start.n = s->stop.n = s->stride.n = a->ndim;
    for (int32_t i = 0; i < a->ndim; i++) {
        s->start.v[i] = i < start.n ? start.v[i] : MR_INT_NONE;
        s->stop.v[i] = i < stop.n ? stop.v[i] : MR_INT_NONE;
        s->stride.v[i] =
            i < stride.n && stride.v[i] != MR_INT_NONE ? stride.v[i] : 1;
        if (s->stride.v[i] == 0)
            return mr__fail(MR_E_VALUE,
                            "a stride of 0 for axis %d, needs another", (int)i);
    }
    return MR_OK;
}

static mr_slice_params
slice_params(const slice_lists *s)
{
    return (mr_slice_params){mr__ints(&s->start), mr__ints(&s->stop),
                             mr__ints(&s->stride)};
}

/* The slice's shape; true when it is the whole array in order, whatever the
 * array's size (inference may run again at another). */
static bool
slice_shape(const mr_slice_params *p, const mr_array *a, int64_t *dim)
{
    bool whole = true;

    for (int32_t i = 0; i < a->ndim; i++) {
        int64_t first;

        mr__slice_axis(p, i, a->dim[i], &first, &dim[i]);
        whole = whole && p->stride.v[i] == 1 && p->stop.v[i] == MR_INT_NONE &&
                (p->start.v[i] == MR_INT_NONE || p->start.v[i] == 0);
    }
    return whole;
}

static const mr_field slice_fields[] = {
    MR_FIELD(1, INTS, mr_slice_params, start),
    MR_FIELD(2, INTS, mr_slice_params, stop),
    MR_FIELD(3, INTS, mr_slice_params, stride),
};

/* -- index_slice ----------------------------------------------------------- */

mr_array *
mr__build_index_slice(mr_array *a, mr_ints start, mr_ints stop, mr_ints stride)
{
    int64_t dim[MR_MAX_NDIM];
    slice_lists s;
    mr_slice_params p;

    if (slice_lists_fill(&s, a, start, stop, stride) != MR_OK)
        return NULL;
    p = slice_params(&s);
    return slice_shape(&p, a, dim)
               ? a
               : mr__node_new(&mr__op_index_slice, &p, 1, &a);
}

static mr_code
index_slice_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[0]);
    slice_shape(c->params, c->in[0], out->dim);
    return MR_OK;
}

/* Without gaps the cotangent is padded, else written into zeros. */
static mr_array *
index_slice_vjp(const mr_rule *r, int i)
{
    const mr_slice_params *p = mr__params(r->node);
    const mr_array *x = r->primal[i];
    mr_array *c = r->cotangent[0];
    mr_list low = {.n = x->ndim}, high = {.n = x->ndim};
    mr_pad_params pad = {mr__ints(&low), mr__ints(&high)};

    for (int32_t k = 0; k < x->ndim; k++) {
        int64_t first, count;

        if (p->stride.v[k] != 1)
            return mr_index_slice_update(mr__zeros_like(x), c, p->start,
                                         p->stop, p->stride);
        mr__slice_axis(p, k, x->dim[k], &first, &count);
        low.v[k] = first;
        high.v[k] = x->dim[k] - first - count;
    }
    return mr__node_new(&mr__op_pad_constant, &pad, 2,
                        (mr_array *[]){c, mr__number((mr_dtype)c->dtype, 0.0)});
}

static mr_array *
index_slice_jvp(const mr_rule *r, int i)
{
    return mr__again(r, r->tangent[i]);
}

static mr_array *
index_slice_vmap(const mr_batch *b)
{
    const mr_slice_params *p = mr__params(b->node);
    mr_list start = mr__prepend(p->start, MR_INT_NONE);
    mr_list stop = mr__prepend(p->stop, MR_INT_NONE);
    mr_list stride = mr__prepend(p->stride, 1);

    return mr_index_slice(b->in[0], mr__ints(&start), mr__ints(&stop),
                          mr__ints(&stride));
}

static bool
index_slice_view(const mr_node *n, const mr_layout *in, mr_layout *out)
{
    const mr_slice_params *p = mr__params(n);

    out->ndim = in->ndim;
    out->offset = in->offset;
    for (int32_t i = 0; i < in->ndim; i++) {
        int64_t first;

        mr__slice_axis(p, i, in->dim[i], &first, &out->dim[i]);
        if (out->dim[i] > 0)
            out->offset += first * in->stride[i];
        out->stride[i] = in->stride[i] * p->stride.v[i];
    }
    return true;
}

const mr_op mr__op_index_slice = {
    .id = MR_OP_INDEX_SLICE,
    .version = 1,
    .n_in = 1,
    .name = "slice",
    .flags = MR_FLAG_LINEAR,
    MR__PARAMS(mr_slice_params, slice_fields),
    .infer = index_slice_infer,
    .vjp = index_slice_vjp,
    .jvp = index_slice_jvp,
    .vmap = index_slice_vmap,
    .fuse = {MR_FUSE_VIEW, 0},
    .view = index_slice_view,
};

/* -- entries ---------------------------------------------------------------
 * Where nothing is traced, an evaluated array's entry needs no operator: it is
 * a part of the memory.
 */
static bool
is_plain(const mr_array *x)
{
    return mr__state(x) == MR_DONE && x->trace == 0 && x->flags == 0 &&
           x->buffer != NULL && mr__ctx.trace_depth == 0 &&
           mr__ctx.made == NULL && mr__ctx.tape == NULL &&
           mr__ctx.no_eval == NULL;
}

static mr_array *
entry_missing(const char *site, mr_array *x, int64_t i)
{
    static const char *const names[] = {"x"};
    mr_door d;

    if (!mr__door_open(&d, site, "entry", 1, &x, names))
        return NULL;
    if (x->ndim == 0)
        mr__fail(MR_E_INDEX, "a 0-d array has no entries");
    else
        mr__fail(MR_E_INDEX,
                 "entry %lld of an axis of size %lld: they are counted from 0",
                 (long long)i, (long long)x->dim[0]);
    return mr__door_close(&d, NULL);
}

/* No door around it: a tape has the two operators as its steps. */
static mr_array *
entry_lazy(const char *site, mr_array *x, int64_t i)
{
    int64_t stop = i + 1, step = 1;
    mr_scope s = mr_scope_begin();
    mr_array *y = mr_index_slice_at(site, x, (mr_ints){&i, 1},
                                    (mr_ints){&stop, 1}, (mr_ints){&step, 1});

    y = mr_scope_return(s, mr_squeeze_at(site, y, MR_AXES(0)));
    mr_scope_end(s);
    return y;
}

mr_array *
mr_array_entry_at(const char *site, mr_array *x, int64_t i)
{
    mr_array *y;

    if (x == NULL || x == MR_NONE || x->ndim == 0 || i < 0 || i >= x->dim[0])
        return entry_missing(site, x, i);
    if (!is_plain(x))
        return entry_lazy(site, x, i);
    y = mr__node_data((mr_dtype)x->dtype, x->ndim - 1, x->dim + 1,
                      mr__strides(x) + 1, mr__buffer_retain(x->buffer),
                      x->offset + i * mr__strides(x)[0]);
    if (y != NULL)
        y->site = site;
    return y;
}

mr_array *(mr_array_entry)(mr_array *x, int64_t i)
{
    return mr_array_entry_at(NULL, x, i);
}

/* -- index_slice_update ---------------------------------------------------- */

/* Leading axes of size 1 that the slice lacks are dropped. */
static mr_array *
fit_update(mr_array *update, int32_t ndim)
{
    int32_t axes[MR_MAX_NDIM], n = 0;

    if (update == NULL)
        return NULL;
    while (update->ndim - n > ndim && update->dim[n] == 1) {
        axes[n] = n;
        n++;
    }
    return n == 0 ? update : mr_squeeze(update, (mr_axes){axes, n});
}

mr_array *
mr__build_index_slice_update(mr_array *a, mr_array *update, mr_ints start,
                             mr_ints stop, mr_ints stride)
{
    int64_t dim[MR_MAX_NDIM];
    slice_lists s;
    mr_slice_params p;
    bool whole;

    if (slice_lists_fill(&s, a, start, stop, stride) != MR_OK)
        return NULL;
    p = slice_params(&s);
    whole = slice_shape(&p, a, dim);
    update = fit_update(mr__cast(update, (mr_dtype)a->dtype), a->ndim);
    update = mr_broadcast_to(update, (mr_shape){dim, a->ndim});
    if (update == NULL || whole)
        return update;
    return mr__node_new(&mr__op_index_slice_update, &p, 2,
                        (mr_array *[]){a, update});
}

static mr_code
slice_update_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0], *update = c->in[1];
    int64_t dim[MR_MAX_NDIM];
    char want[192];
    mr_text text;

    mr__aval_like(out, a);
    slice_shape(c->params, a, dim);
    if (update->ndim != a->ndim ||
        memcmp(dim, update->dim, (size_t)a->ndim * sizeof *dim) != 0)
        return mr__fail(MR_E_SHAPE,
                        "an update of shape %s for a slice of shape %s",
                        mr__shape_of(update, &text),
                        mr__shape_text(want, sizeof want, a->ndim, dim));
    return MR_OK;
}

static mr_array *
slice_update_vjp(const mr_rule *r, int i)
{
    const mr_slice_params *p = mr__params(r->node);
    mr_array *c = r->cotangent[0];

    if (i == 1)
        return mr_index_slice(c, p->start, p->stop, p->stride);
    return mr_index_slice_update(c, mr__number((mr_dtype)c->dtype, 0.0),
                                 p->start, p->stop, p->stride);
}

/* Both tangents at once, with the first that there is. */
static mr_array *
slice_update_jvp(const mr_rule *r, int i)
{
    const mr_slice_params *p = mr__params(r->node);
    mr_array *t[2];

    if (i == 1 && r->tangent[0] != NULL)
        return MR_NONE;
    for (int k = 0; k < 2; k++)
        t[k] = r->tangent[k] != NULL ? r->tangent[k]
                                     : mr__zeros_like(r->primal[k]);
    return mr_index_slice_update(t[0], t[1], p->start, p->stop, p->stride);
}

static mr_array *
slice_update_vmap(const mr_batch *b)
{
    const mr_slice_params *p = mr__params(b->node);
    mr_list start = mr__prepend(p->start, MR_INT_NONE);
    mr_list stop = mr__prepend(p->stop, MR_INT_NONE);
    mr_list stride = mr__prepend(p->stride, 1);

    return mr_index_slice_update(mr__batch_in(b, 0), mr__batch_in(b, 1),
                                 mr__ints(&start), mr__ints(&stop),
                                 mr__ints(&stride));
}

const mr_op mr__op_index_slice_update = {
    .id = MR_OP_INDEX_SLICE_UPDATE,
    .version = 1,
    .n_in = 2,
    .name = "slice_update",
    .flags = MR_FLAG_LINEAR,
    MR__PARAMS(mr_slice_params, slice_fields),
    .infer = slice_update_infer,
    .vjp = slice_update_vjp,
    .jvp = slice_update_jvp,
    .vmap = slice_update_vmap,
};

/* ---- starts given by an array
 * --------------------------------------------------- */

/* Start k as a 0-d array, moved so that `size` entries fit behind it. */
static mr_array *
clamped_start(mr_array *starts, int64_t k, int64_t dim, int64_t size)
{
    mr_array *s = mr_flatten(mr__cast(starts, MR_INT64), 0, -1);

    s = mr_reshape(mr__slice_one(s, 0, k, k + 1, 1), MR_SCALAR_SHAPE);
    return mr_minimum(mr_maximum(s, mr__integer(MR_INT64, 0)),
                      mr__integer(MR_INT64, dim - size));
}

static mr_code
clamped_starts(const mr_array *a, mr_array *starts, mr_ints axes,
               const int64_t *size, mr_array **out)
{
    if (!mr__is_index(starts))
        return mr__fail(MR_E_VALUE, "start indices must be integers, got %s",
                        mr_dtype_name((mr_dtype)starts->dtype));
    if (starts->size != axes.n || axes.n < 1)
        return mr__fail(MR_E_VALUE,
                        "%lld start indices for %lld axes: needs one for each",
                        (long long)starts->size, (long long)axes.n);
    for (int32_t i = 0; i < a->ndim; i++)
        if (size[i] < 0 || size[i] > a->dim[i])
            return mr__fail(
                MR_E_VALUE,
                "a part of size %lld does not fit in axis %d of size %lld",
                (long long)size[i], (int)i, (long long)a->dim[i]);
    for (int64_t k = 0; k < axes.n; k++) {
        int32_t axis;

        if (!mr__axis(axes.v[k], a->ndim, &axis))
            return mr__error_code();
        out[k] = clamped_start(starts, k, a->dim[axis], size[axis]);
        if (out[k] == NULL)
            return mr__error_code();
    }
    return MR_OK;
}

mr_array *
mr__build_slice(mr_array *a, mr_array *start_indices, mr_ints axes,
                mr_ints slice_size)
{
    mr_array *start[MR_MAX_NDIM];

    if (slice_size.n != a->ndim || axes.n > a->ndim)
        return mr__fail_null(
            MR_E_VALUE,
            "%lld axes and %lld sizes for an array of %d axes: "
            "slice_size needs one for each",
            (long long)axes.n, (long long)slice_size.n, (int)a->ndim);
    if (clamped_starts(a, start_indices, axes, slice_size.v, start) != MR_OK)
        return NULL;
    return mr_index_gather(a, start, (int)axes.n, axes, slice_size);
}

mr_array *
mr__build_slice_update(mr_array *a, mr_array *update, mr_array *start_indices,
                       mr_ints axes)
{
    mr_array *start[MR_MAX_NDIM];

    if (update->ndim != a->ndim || axes.n > a->ndim)
        return mr__fail_null(MR_E_VALUE,
                             "an update of %d axes and %lld axes to start at "
                             "for an array of %d: needs as many, and no more",
                             (int)update->ndim, (long long)axes.n,
                             (int)a->ndim);
    if (clamped_starts(a, start_indices, axes, update->dim, start) != MR_OK)
        return NULL;
    return mr_index_scatter(a, start, (int)axes.n, update, axes, "set");
}
