/* SPDX-License-Identifier: Apache-2.0
 *
 * shape.c -- the operators that only change how elements are arranged: views
 * where the layout allows, copies where not.
 *
 * Parameters are kept as they were asked for (a size of -1 stays -1), so that
 * inference at other sizes gives what the user meant.
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

#define VIEW(id_, name_)                                                       \
    .id = (id_), .version = 1, .n_in = 1, .name = (name_),                     \
    .fuse = {MR_FUSE_VIEW, 0}, .flags = MR_FLAG_LINEAR

/* Most are undone by the input's shape. */
static mr_array *
back_to_shape(const mr_rule *r, int i)
{
    mr_list l = mr__dims(r->primal[i]);

    return mr_reshape(r->cotangent[0], mr__shape(&l));
}

static mr_array *
again_jvp(const mr_rule *r, int i)
{
    return mr__again(r, r->tangent[i]);
}

static bool
reshaped_view(const mr_node *n, const mr_layout *in, mr_layout *out)
{
    return mr__reshape_view(in, n->ndim, n->dim, out);
}

/* Fill in the -1 of a shape that is to hold `size` elements. */
static mr_code
resolve(mr_ints shape, int64_t size, int64_t *dim)
{
    int64_t known = 1, place = -1;
    char text[192];

    for (int64_t i = 0; i < shape.n; i++) {
        dim[i] = shape.v[i];
        if (dim[i] == -1 && place < 0)
            place = i;
        else if (dim[i] < 0)
            return mr__fail(
                MR_E_VALUE, "shape %s: sizes are >= 0, one may be -1",
                mr__shape_text(text, sizeof text, (int32_t)shape.n, shape.v));
        else if (__builtin_mul_overflow(known, dim[i], &known))
            return mr__fail(
                MR_E_OVERFLOW, "shape %s has too many elements",
                mr__shape_text(text, sizeof text, (int32_t)shape.n, shape.v));
    }
    if (place >= 0 && known != 0 && size % known == 0)
        dim[place] = size / known;
    else if (place >= 0 || known != size)
        return mr__fail(
            MR_E_SHAPE, "%lld elements cannot have the shape %s",
            (long long)size,
            mr__shape_text(text, sizeof text, (int32_t)shape.n, shape.v));
    return MR_OK;
}

/* -- reshape --------------------------------------------------------------- */

mr_array *
mr__build_reshape(mr_array *a, mr_shape shape)
{
    mr_reshape_params p = {{shape.dim, shape.n}};
    bool same = shape.n == a->ndim;

    if (shape.n < 0 || shape.n > MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE,
                             "a shape of %lld axes: 0 to %d are possible",
                             (long long)shape.n, MR_MAX_NDIM);
    for (int i = 0; same && i < a->ndim; i++)
        same = a->dim[i] == shape.dim[i];
    return same ? a : mr__node_new(&mr__op_reshape, &p, 1, &a);
}

static mr_code
reshape_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_reshape_params *p = c->params;
    const mr_array *x = c->in[0];

    out->dtype = (mr_dtype)x->dtype;
    out->ndim = (int32_t)p->shape.n;
    return resolve(p->shape, x->size, out->dim);
}

static mr_array *
reshape_vmap(const mr_batch *b)
{
    mr_list shape =
        mr__prepend((mr_ints){b->node->dim, b->node->ndim}, b->size);

    return mr_reshape(b->in[0], mr__shape(&shape));
}

static const mr_field reshape_fields[] = {
    MR_FIELD(1, DIMS, mr_reshape_params, shape),
};

const mr_op mr__op_reshape = {
    VIEW(MR_OP_RESHAPE, "reshape"),
    MR__PARAMS(mr_reshape_params, reshape_fields),
    .infer = reshape_infer,
    .vjp = back_to_shape,
    .jvp = again_jvp,
    .vmap = reshape_vmap,
    .view = reshaped_view,
};

/* -- flatten --------------------------------------------------------------- */

mr_array *
mr__build_flatten(mr_array *a, int64_t start_axis, int64_t end_axis)
{
    mr_flatten_params p;

    if (a->ndim == 0 && start_axis >= -1 && start_axis <= 0 && end_axis >= -1 &&
        end_axis <= 0)
        return mr_reshape(a, MR_SHAPE(1));
    if (!mr__axis(start_axis, a->ndim, &p.start) ||
        !mr__axis(end_axis, a->ndim, &p.end))
        return NULL;
    if (p.start > p.end)
        return mr__fail_null(MR_E_VALUE,
                             "the start axis %d comes after the end axis %d",
                             (int)p.start, (int)p.end);
    return p.start == p.end ? a : mr__node_new(&mr__op_flatten, &p, 1, &a);
}

static mr_code
flatten_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_flatten_params *p = c->params;
    const mr_array *x = c->in[0];
    int64_t size = 1;

    out->dtype = (mr_dtype)x->dtype;
    out->ndim = 0;
    for (int32_t i = 0; i < x->ndim; i++) {
        if (i >= p->start && i <= p->end)
            size *= x->dim[i];
        if (i < p->start || i > p->end)
            out->dim[out->ndim++] = x->dim[i];
        else if (i == p->end)
            out->dim[out->ndim++] = size;
    }
    return MR_OK;
}

static mr_array *
flatten_vmap(const mr_batch *b)
{
    const mr_flatten_params *p = mr__params(b->node);

    return mr_flatten(b->in[0], p->start + 1, p->end + 1);
}

static const mr_field flatten_fields[] = {
    MR_FIELD(1, AXIS, mr_flatten_params, start),
    MR_FIELD(2, AXIS, mr_flatten_params, end),
};

const mr_op mr__op_flatten = {
    VIEW(MR_OP_FLATTEN, "flatten"),
    MR__PARAMS(mr_flatten_params, flatten_fields),
    .infer = flatten_infer,
    .vjp = back_to_shape,
    .jvp = again_jvp,
    .vmap = flatten_vmap,
    .view = reshaped_view,
};

/* -- unflatten ------------------------------------------------------------- */

mr_array *
mr__build_unflatten(mr_array *a, int64_t axis, mr_shape shape)
{
    mr_unflatten_params p = {.shape = {shape.dim, shape.n}};

    if (!mr__axis(axis, a->ndim, &p.axis))
        return NULL;
    if (shape.n < 1 || a->ndim - 1 + shape.n > MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE,
                             "%lld sizes for one of %d axes: needs 1 or more, "
                             "and at most %d axes in all",
                             (long long)shape.n, (int)a->ndim, MR_MAX_NDIM);
    return mr__node_new(&mr__op_unflatten, &p, 1, &a);
}

static mr_code
unflatten_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_unflatten_params *p = c->params;
    const mr_array *x = c->in[0];
    int32_t more = (int32_t)p->shape.n - 1;

    mr__aval_like(out, x);
    out->ndim = x->ndim + more;
    for (int32_t i = p->axis + 1; i < x->ndim; i++)
        out->dim[i + more] = x->dim[i];
    return resolve(p->shape, x->dim[p->axis], out->dim + p->axis);
}

static mr_array *
unflatten_vmap(const mr_batch *b)
{
    const mr_unflatten_params *p = mr__params(b->node);

    return mr_unflatten(b->in[0], p->axis + 1,
                        (mr_shape){p->shape.v, p->shape.n});
}

static const mr_field unflatten_fields[] = {
    MR_FIELD(1, AXIS, mr_unflatten_params, axis),
    MR_FIELD(2, DIMS, mr_unflatten_params, shape),
};

const mr_op mr__op_unflatten = {
    VIEW(MR_OP_UNFLATTEN, "unflatten"),
    MR__PARAMS(mr_unflatten_params, unflatten_fields),
    .infer = unflatten_infer,
    .vjp = back_to_shape,
    .jvp = again_jvp,
    .vmap = unflatten_vmap,
    .view = reshaped_view,
};

/* -- transpose ------------------------------------------------------------- */

mr_array *
mr__build_transpose(mr_array *a, mr_ints axes)
{
    mr_list order = {.n = a->ndim};
    mr_transpose_params p = {{order.v, order.n}};
    uint32_t seen = 0;
    bool same = true;

    if (axes.n >= 0 && axes.n != a->ndim)
        return mr__fail_null(MR_E_VALUE,
                             "%lld axes for an array of %d: needs each once",
                             (long long)axes.n, (int)a->ndim);
    for (int32_t i = 0; i < a->ndim; i++) {
        int32_t k = a->ndim - 1 - i;

        if (axes.n >= 0 && !mr__axis(axes.v[i], a->ndim, &k))
            return NULL;
        if (seen >> k & 1)
            return mr__fail_null(MR_E_VALUE, "axis %d is given twice", (int)k);
        seen |= (uint32_t)1 << k;
        order.v[i] = k;
        same = same && k == i;
    }
    return same ? a : mr__node_new(&mr__op_transpose, &p, 1, &a);
}

static mr_code
transpose_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_transpose_params *p = c->params;

    mr__aval_like(out, c->in[0]);
    for (int32_t i = 0; i < out->ndim; i++)
        out->dim[i] = c->in[0]->dim[p->axes.v[i]];
    return MR_OK;
}

static mr_array *
transpose_vjp(const mr_rule *r, int i)
{
    const mr_transpose_params *p = mr__params(r->node);
    mr_list back = {.n = p->axes.n};

    (void)i;
    for (int64_t k = 0; k < back.n; k++)
        back.v[p->axes.v[k]] = k;
    return mr_transpose(r->cotangent[0], mr__ints(&back));
}

static mr_array *
transpose_vmap(const mr_batch *b)
{
    const mr_transpose_params *p = mr__params(b->node);
    mr_list axes = mr__prepend(p->axes, 0);

    for (int64_t k = 1; k < axes.n; k++)
        axes.v[k]++;
    return mr_transpose(b->in[0], mr__ints(&axes));
}

static bool
transpose_view(const mr_node *n, const mr_layout *in, mr_layout *out)
{
    const mr_transpose_params *p = mr__params(n);

    out->ndim = in->ndim;
    out->offset = in->offset;
    for (int32_t i = 0; i < in->ndim; i++) {
        out->dim[i] = in->dim[p->axes.v[i]];
        out->stride[i] = in->stride[p->axes.v[i]];
    }
    return true;
}

static const mr_field transpose_fields[] = {
    MR_FIELD(1, INTS, mr_transpose_params, axes),
};

const mr_op mr__op_transpose = {
    VIEW(MR_OP_TRANSPOSE, "transpose"),
    MR__PARAMS(mr_transpose_params, transpose_fields),
    .infer = transpose_infer,
    .vjp = transpose_vjp,
    .jvp = again_jvp,
    .vmap = transpose_vmap,
    .view = transpose_view,
};

/* -- broadcast_to ---------------------------------------------------------- */

mr_array *
mr__build_broadcast_to(mr_array *a, mr_shape shape)
{
    mr_broadcast_params p = {{shape.dim, shape.n}, false};
    bool same = shape.n == a->ndim;

    if (mr__check_shape(shape.n, shape.dim) != MR_OK)
        return NULL;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->dim[i] == shape.dim[i];
    return same ? a : mr__node_new(&mr__op_broadcast_to, &p, 1, &a);
}

static mr_code
broadcast_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_broadcast_params *p = c->params;
    const mr_array *x = c->in[0];
    int32_t more = (int32_t)p->shape.n - x->ndim;
    bool fits = more >= 0;
    char text[192];
    mr_text have;

    for (int32_t i = 0; fits && i < x->ndim; i++)
        fits = x->dim[i] == 1 || x->dim[i] == p->shape.v[i + more];
    if (!fits)
        return mr__fail(
            MR_E_SHAPE, "shape %s does not broadcast to %s",
            mr__shape_of(x, &have),
            mr__shape_text(text, sizeof text, (int32_t)p->shape.n, p->shape.v));
    mr__aval_shape(out, (mr_dtype)x->dtype, (int32_t)p->shape.n, p->shape.v);
    return MR_OK;
}

static mr_array *
broadcast_vjp(const mr_rule *r, int i)
{
    return mr__sum_to(r->cotangent[0], r->primal[i]->ndim, r->primal[i]->dim);
}

/* The new axes come between the batch and the old ones. */
static mr_array *
broadcast_vmap(const mr_batch *b)
{
    const mr_broadcast_params *p = mr__params(b->node);
    mr_list shape = mr__prepend(p->shape, b->size);
    mr_array *x = b->in[0];
    int32_t axes[MR_MAX_NDIM], more = (int32_t)shape.n - x->ndim;

    for (int32_t i = 0; i < more; i++)
        axes[i] = i + 1;
    if (more > 0)
        x = mr_expand_dims(x, (mr_axes){axes, more});
    return mr_broadcast_to(x, mr__shape(&shape));
}

static bool
broadcast_view(const mr_node *n, const mr_layout *in, mr_layout *out)
{
    int32_t more = n->ndim - in->ndim;

    out->ndim = n->ndim;
    out->offset = in->offset;
    for (int32_t i = 0; i < n->ndim; i++) {
        bool kept = i >= more && in->dim[i - more] == n->dim[i];

        out->dim[i] = n->dim[i];
        out->stride[i] = kept ? in->stride[i - more] : 0;
    }
    return true;
}

static const mr_field broadcast_fields[] = {
    MR_FIELD(1, DIMS, mr_broadcast_params, shape),
    MR_FIELD(2, BOOL, mr_broadcast_params, implicit),
};

const mr_op mr__op_broadcast_to = {
    VIEW(MR_OP_BROADCAST_TO, "broadcast_to"),
    MR__PARAMS(mr_broadcast_params, broadcast_fields),
    .infer = broadcast_infer,
    .vjp = broadcast_vjp,
    .jvp = again_jvp,
    .vmap = broadcast_vmap,
    .view = broadcast_view,
};

/* -- expand_dims, squeeze ---------------------------------------------------
 */

mr_array *
mr__build_expand_dims(mr_array *a, mr_axes axis)
{
    mr_axes_params p;
    int32_t ndim = a->ndim + (axis.n < 0 ? 0 : axis.n);

    if (axis.n < 0)
        return mr__fail_null(MR_E_VALUE, "needs an axis, got none");
    if (ndim > MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE,
                             "%d axes together: at most %d are possible", ndim,
                             MR_MAX_NDIM);
    if (!mr__axes_mask(axis, ndim, &p.axes))
        return NULL;
    return axis.n == 0 ? a : mr__node_new(&mr__op_expand_dims, &p, 1, &a);
}

static mr_axes
axes_of(uint32_t mask, int32_t *room)
{
    int32_t n = 0;

    for (int32_t i = 0; i < MR_MAX_NDIM; i++)
        if (mask >> i & 1)
            room[n++] = i;
    return (mr_axes){room, n};
}

static mr_code
expand_dims_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_axes_params *p = c->params;
    const mr_array *x = c->in[0];
    int32_t k = 0;

    out->dtype = (mr_dtype)x->dtype;
    out->ndim = x->ndim + __builtin_popcount(p->axes);
    for (int32_t i = 0; i < out->ndim; i++)
        out->dim[i] = p->axes >> i & 1 ? 1 : x->dim[k++];
    return MR_OK;
}

static mr_array *
expand_dims_vjp(const mr_rule *r, int i)
{
    const mr_axes_params *p = mr__params(r->node);
    int32_t room[MR_MAX_NDIM];

    (void)i;
    return mr_squeeze(r->cotangent[0], axes_of(p->axes, room));
}

static mr_array *
expand_dims_vmap(const mr_batch *b)
{
    const mr_axes_params *p = mr__params(b->node);
    int32_t room[MR_MAX_NDIM];

    return mr_expand_dims(b->in[0], axes_of(p->axes << 1, room));
}

static const mr_field axes_fields[] = {
    MR_FIELD(1, AXES, mr_axes_params, axes),
};

const mr_op mr__op_expand_dims = {
    VIEW(MR_OP_EXPAND_DIMS, "expand_dims"),
    MR__PARAMS(mr_axes_params, axes_fields),
    .infer = expand_dims_infer,
    .vjp = expand_dims_vjp,
    .jvp = again_jvp,
    .vmap = expand_dims_vmap,
    .view = reshaped_view,
};

mr_array *
mr__build_squeeze(mr_array *a, mr_axes axis)
{
    mr_axes_params p = {0};

    if (axis.n < 0) {
        for (int32_t i = 0; i < a->ndim; i++)
            if (a->dim[i] == 1)
                p.axes |= (uint32_t)1 << i;
    } else if (!mr__axes_mask(axis, a->ndim, &p.axes))
        return NULL;
    return p.axes == 0 ? a : mr__node_new(&mr__op_squeeze, &p, 1, &a);
}

static mr_code
squeeze_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_axes_params *p = c->params;
    const mr_array *x = c->in[0];
    mr_text text;

    out->dtype = (mr_dtype)x->dtype;
    out->ndim = 0;
    for (int32_t i = 0; i < x->ndim; i++) {
        if (!(p->axes >> i & 1))
            out->dim[out->ndim++] = x->dim[i];
        else if (x->dim[i] != 1)
            return mr__fail(MR_E_SHAPE, "axis %d of shape %s is not of size 1",
                            (int)i, mr__shape_of(x, &text));
    }
    return MR_OK;
}

static mr_array *
squeeze_vjp(const mr_rule *r, int i)
{
    const mr_axes_params *p = mr__params(r->node);
    int32_t room[MR_MAX_NDIM];

    (void)i;
    return mr_expand_dims(r->cotangent[0], axes_of(p->axes, room));
}

static mr_array *
squeeze_vmap(const mr_batch *b)
{
    const mr_axes_params *p = mr__params(b->node);
    int32_t room[MR_MAX_NDIM];

    return mr_squeeze(b->in[0], axes_of(p->axes << 1, room));
}

const mr_op mr__op_squeeze = {
    VIEW(MR_OP_SQUEEZE, "squeeze"),
    MR__PARAMS(mr_axes_params, axes_fields),
    .infer = squeeze_infer,
    .vjp = squeeze_vjp,
    .jvp = again_jvp,
    .vmap = squeeze_vmap,
    .view = reshaped_view,
};

/* -- diagonal -------------------------------------------------------------- */

mr_array *
mr__build_diagonal(mr_array *a, int64_t offset, int64_t axis1, int64_t axis2)
{
    mr_diagonal_params p = {.offset = offset};

    if (a->ndim < 2)
        return mr__fail_null(MR_E_VALUE, "needs 2 axes or more, got %d",
                             (int)a->ndim);
    if (!mr__axis(axis1, a->ndim, &p.axis1) ||
        !mr__axis(axis2, a->ndim, &p.axis2))
        return NULL;
    if (p.axis1 == p.axis2)
        return mr__fail_null(MR_E_VALUE, "axis1 and axis2 are the same, %d",
                             (int)p.axis1);
    return mr__node_new(&mr__op_diagonal, &p, 1, &a);
}

/* Where the diagonal begins on each axis, and its length. */
static int64_t
diagonal_length(const mr_diagonal_params *p, const int64_t *dim, int64_t *row,
                int64_t *column)
{
    int64_t rows = dim[p->axis1], columns = dim[p->axis2], n;

    *row = p->offset < 0 ? -p->offset : 0;
    *column = p->offset > 0 ? p->offset : 0;
    if (*row >= rows || *column >= columns || *row < 0) {
        *row = *column = 0;
        return 0;
    }
    n = rows - *row;
    return n < columns - *column ? n : columns - *column;
}

static mr_code
diagonal_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_diagonal_params *p = c->params;
    const mr_array *x = c->in[0];
    int64_t row, column;

    out->dtype = (mr_dtype)x->dtype;
    out->ndim = 0;
    for (int32_t i = 0; i < x->ndim; i++)
        if (i != p->axis1 && i != p->axis2)
            out->dim[out->ndim++] = x->dim[i];
    out->dim[out->ndim++] = diagonal_length(p, x->dim, &row, &column);
    return MR_OK;
}

/* Row i of the result holds entry i - row in column i + offset: the entries,
 * padded to all rows, are spread over the columns and masked. */
mr_array *
mr__from_diagonal(mr_array *x, int64_t offset, int64_t rows, int64_t columns)
{
    mr_diagonal_params p = {.offset = offset, .axis1 = 0, .axis2 = 1};
    int64_t row, column;
    int64_t n = diagonal_length(&p, (int64_t[]){rows, columns}, &row, &column);
    int32_t last = x->ndim - 1;
    mr_list shape, low = {.n = x->ndim}, high = {.n = x->ndim};
    mr_pad_params pad = {mr__ints(&low), mr__ints(&high)};
    mr_array *in[2] = {x, mr__number((mr_dtype)x->dtype, 0.0)};

    for (int32_t i = 0; i < last; i++)
        low.v[i] = high.v[i] = 0;
    low.v[last] = row;
    high.v[last] = rows - row - n;
    if (in[1] == NULL)
        return NULL;
    x = mr_expand_dims(mr__node_new(&mr__op_pad_constant, &pad, 2, in),
                       MR_AXES(-1));
    if (x == NULL)
        return NULL;
    shape = mr__dims(x);
    shape.v[shape.n - 1] = columns;
    x = mr_broadcast_to(x, mr__shape(&shape));
    return mr__masked(mr_eye(rows, columns, offset, MR_BOOL), x);
}

static mr_array *
diagonal_vjp(const mr_rule *r, int i)
{
    const mr_diagonal_params *p = mr__params(r->node);
    const mr_array *x = r->primal[i];
    mr_list order = {.n = x->ndim};
    int32_t k = 0;

    for (int32_t j = 0; j < x->ndim; j++)
        order.v[j] = j == p->axis1   ? x->ndim - 2
                     : j == p->axis2 ? x->ndim - 1
                                     : k++;
    return mr_transpose(mr__from_diagonal(r->cotangent[0], p->offset,
                                          x->dim[p->axis1], x->dim[p->axis2]),
                        mr__ints(&order));
}

static mr_array *
diagonal_vmap(const mr_batch *b)
{
    const mr_diagonal_params *p = mr__params(b->node);

    return mr_diagonal(b->in[0], p->offset, p->axis1 + 1, p->axis2 + 1);
}

static bool
diagonal_view(const mr_node *n, const mr_layout *in, mr_layout *out)
{
    const mr_diagonal_params *p = mr__params(n);
    int64_t row, column;
    int64_t length = diagonal_length(p, in->dim, &row, &column);

    out->ndim = 0;
    out->offset =
        in->offset + row * in->stride[p->axis1] + column * in->stride[p->axis2];
    for (int32_t i = 0; i < in->ndim; i++) {
        if (i == p->axis1 || i == p->axis2)
            continue;
        out->dim[out->ndim] = in->dim[i];
        out->stride[out->ndim++] = in->stride[i];
    }
    out->dim[out->ndim] = length;
    out->stride[out->ndim++] = in->stride[p->axis1] + in->stride[p->axis2];
    return true;
}

static const mr_field diagonal_fields[] = {
    MR_FIELD(1, INT, mr_diagonal_params, offset),
    MR_FIELD(2, AXIS, mr_diagonal_params, axis1),
    MR_FIELD(3, AXIS, mr_diagonal_params, axis2),
};

const mr_op mr__op_diagonal = {
    VIEW(MR_OP_DIAGONAL, "diagonal"),
    MR__PARAMS(mr_diagonal_params, diagonal_fields),
    .infer = diagonal_infer,
    .vjp = diagonal_vjp,
    .jvp = again_jvp,
    .vmap = diagonal_vmap,
    .view = diagonal_view,
};

/* -- contiguous ------------------------------------------------------------ */

mr_array *
mr__build_contiguous(mr_array *a, bool allow_col_major)
{
    (void)allow_col_major; /* row-major is right for both */
    return mr__node_new(&mr__op_contiguous, NULL, 1, &a);
}

static mr_array *
contiguous_vmap(const mr_batch *b)
{
    return mr_contiguous(b->in[0], false);
}

static bool
contiguous_view(const mr_node *n, const mr_layout *in, mr_layout *out)
{
    (void)n;
    if (!mr__is_contiguous(in->ndim, in->dim, in->stride))
        return false;
    *out = *in;
    return true;
}

const mr_op mr__op_contiguous = {
    VIEW(MR_OP_CONTIGUOUS, "contiguous"),
    .infer = mr__infer_same,
    .vjp = mr__vjp_pass,
    .jvp = mr__jvp_pass,
    .vmap = contiguous_vmap,
    .view = contiguous_view,
};

/* -- view (of the bytes as another type) ------------------------------------
 */

mr_array *
mr__build_view(mr_array *a, mr_dtype dtype)
{
    mr_view_params p = {dtype};

    if (!mr__dtype_valid(dtype))
        return mr__fail_null(MR_E_DTYPE, "no dtype has the number %d",
                             (int)dtype);
    return dtype == (mr_dtype)a->dtype ? a
                                       : mr__node_new(&mr__op_view, &p, 1, &a);
}

static mr_code
view_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_view_params *p = c->params;
    const mr_array *x = c->in[0];
    int64_t from = mr__dtype_size((mr_dtype)x->dtype);
    int64_t to = mr__dtype_size(p->dtype), bytes;

    mr__aval_like(out, x);
    out->dtype = p->dtype;
    if (from == to)
        return MR_OK;
    if (x->ndim == 0)
        return mr__fail(
            MR_E_VALUE, "a 0-d array keeps its size: %s is not as large as %s",
            mr_dtype_name(p->dtype), mr_dtype_name((mr_dtype)x->dtype));
    bytes = x->dim[x->ndim - 1] * from;
    if (bytes % to != 0)
        return mr__fail(MR_E_VALUE,
                        "a last axis of %lld bytes is no whole number of %s",
                        (long long)bytes, mr_dtype_name(p->dtype));
    out->dim[x->ndim - 1] = bytes / to;
    return MR_OK;
}

static mr_array *
view_vmap(const mr_batch *b)
{
    const mr_view_params *p = mr__params(b->node);

    return mr_view(b->in[0], p->dtype);
}

static const mr_field view_fields[] = {
    MR_FIELD(1, DTYPE, mr_view_params, dtype),
};

const mr_op mr__op_view = {
    .id = MR_OP_VIEW,
    .version = 1,
    .n_in = 1,
    .name = "view",
    .flags = MR_FLAG_NOT_DIFFERENTIABLE,
    MR__PARAMS(mr_view_params, view_fields),
    .infer = view_infer,
    .vmap = view_vmap,
};
