/* SPDX-License-Identifier: Apache-2.0
 *
 * take.c -- entries along one axis.
 *
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

static mr_code
check_integers(const mr_array *indices)
{
    if (mr__is_index(indices))
        return MR_OK;
    return mr__fail(MR_E_VALUE, "indices must be integers, got %s",
                    mr_dtype_name((mr_dtype)indices->dtype));
}

mr_array *
mr__counting(const mr_array *like)
{
    mr_list shape = mr__dims(like);

    return mr_reshape(mr__cast(mr__iota(like->size, 0, 1), MR_INT64),
                      mr__shape(&shape));
}

/* ---- take
 * ------------------------------------------------------------------------ */

/* (index axes, axes of a without `axis`) to the index axes in its place. */
static mr_array *
index_axes_to(mr_array *y, int32_t n_index, int32_t axis)
{
    mr_list order = {.n = 0};

    if (y == NULL || axis == 0)
        return y;
    for (int32_t i = 0; i < axis; i++)
        order.v[order.n++] = n_index + i;
    for (int32_t i = 0; i < n_index; i++)
        order.v[order.n++] = i;
    for (int32_t i = n_index + axis; i < y->ndim; i++)
        order.v[order.n++] = i;
    return mr_transpose(y, mr__ints(&order));
}

/* Along the last of several axes, where a slice would be a column: entries of
 * each row. */
static mr_array *
take_of_rows(mr_array *a, mr_array *indices)
{
    mr_list rows = mr__dims(a), shape = mr__dims(indices);
    mr_array *y, *flat = mr_flatten(indices, 0, -1);

    if (flat == NULL)
        return NULL;
    rows.v[rows.n - 1] = flat->size;
    flat = mr_broadcast_to(flat, mr__shape(&rows));
    y = mr__take_along(a, flat, a->ndim - 1);
    if (shape.n == 0)
        return y == NULL ? NULL : mr_squeeze(y, MR_AXES(-1));
    return shape.n == 1 || y == NULL
               ? y
               : mr_unflatten(y, a->ndim - 1, mr__shape(&shape));
}

mr_array *
mr__build_take(mr_array *a, mr_array *indices, int32_t axis)
{
    int32_t k = 0;
    mr_list sizes;
    mr_array *y;

    if (check_integers(indices) != MR_OK)
        return NULL;
    a = mr__along(a, axis, &k);
    if (a == NULL)
        return NULL;
    if (k > 0 && k == a->ndim - 1)
        return take_of_rows(a, indices);
    sizes = mr__dims(a);
    sizes.v[k] = 1;
    y = mr_index_gather(a, &indices, 1, MR_INTS(k), mr__ints(&sizes));
    y = mr_squeeze(y, MR_AXES(indices->ndim + k));
    return index_axes_to(y, indices->ndim, k);
}

/* -- take_along_axis ------------------------------------------------------- */

static const mr_field axis_fields[] = {
    MR_FIELD(1, AXIS, mr_axis_params, axis),
};

/* What rules make of a node is called as the node is: see gather.c. */
static const mr_op *take_called(const char *label);
static const mr_op *put_called(const mr_op *like);

static mr_array *
take_as(const mr_op *op, mr_array *x, mr_array *index, int32_t axis)
{
    mr_axis_params p = {axis};

    if (x == NULL || index == NULL)
        return NULL;
    return mr__node_new(op, &p, 2, (mr_array *[]){x, index});
}

mr_array *
mr__take_along(mr_array *x, mr_array *index, int32_t axis)
{
    return take_as(&mr__op_take_along_axis, x, index, axis);
}

mr_array *
mr__take_picked(mr_array *x, mr_array *index, int32_t axis, const char *label)
{
    return take_as(take_called(label), x, index, axis);
}

static mr_array *
put_as(const mr_op *op, mr_array *x, mr_array *index, mr_array *values,
       int32_t axis, int64_t mode)
{
    mr_put_params p = {axis, mode};

    if (x == NULL || index == NULL || values == NULL)
        return NULL;
    return mr__node_new(op, &p, 3, (mr_array *[]){x, index, values});
}

/* Both to one shape but for axis. */
static mr_code
line_up_but(mr_array **a, mr_array **index, int32_t axis)
{
    int64_t dim[MR_MAX_NDIM];
    mr_array *x[2] = {*a, *index};
    mr_text ta, tb;

    for (int32_t i = 0; i < x[0]->ndim; i++) {
        int64_t da = x[0]->dim[i], db = x[1]->dim[i];

        if (i != axis && da != db && da != 1 && db != 1)
            return mr__fail(MR_E_SHAPE,
                            "shapes %s and %s do not broadcast outside of "
                            "axis %d",
                            mr__shape_of(x[0], &ta), mr__shape_of(x[1], &tb),
                            (int)axis);
        dim[i] = da == 1 ? db : da;
    }
    for (int k = 0; k < 2; k++) {
        dim[axis] = x[k]->dim[axis];
        x[k] = mr__broadcast(x[k], x[k]->ndim, dim);
        if (x[k] == NULL)
            return mr__error_code();
    }
    *a = x[0];
    *index = x[1];
    return MR_OK;
}

static mr_code
along_axis(mr_array **a, mr_array **indices, int32_t axis, int32_t *k)
{
    if (check_integers(*indices) != MR_OK)
        return mr__error_code();
    *k = 0;
    if (axis == MR_AXIS_NONE) {
        *a = mr_flatten(*a, 0, -1);
        *indices = mr_flatten(*indices, 0, -1);
        if (*a == NULL || *indices == NULL)
            return mr__error_code();
    } else if (!mr__axis(axis, (*a)->ndim, k))
        return mr__error_code();
    if ((*a)->ndim != (*indices)->ndim)
        return mr__fail(MR_E_VALUE,
                        "indices of %d axes for an array of %d: needs as many",
                        (int)(*indices)->ndim, (int)(*a)->ndim);
    return MR_OK;
}

mr_array *
mr__build_take_along_axis(mr_array *a, mr_array *indices, int32_t axis)
{
    int32_t k;

    if (along_axis(&a, &indices, axis, &k) != MR_OK ||
        line_up_but(&a, &indices, k) != MR_OK)
        return NULL;
    return mr__take_along(a, indices, k);
}

static mr_code
take_along_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[1]);
    out->dtype = (mr_dtype)c->in[0]->dtype;
    return MR_OK;
}

static int32_t
axis_of(const mr_node *n)
{
    return ((const mr_axis_params *)mr__params(n))->axis;
}

static mr_array *
take_along_vjp(const mr_rule *r, int i)
{
    if (i == 1)
        return MR_NONE;
    return put_as(put_called(r->node->op), mr__zeros_like(r->primal[0]),
                  r->primal[1], r->cotangent[0], axis_of(r->node),
                  MR_SCATTER_ADD);
}

static mr_array *
take_along_jvp(const mr_rule *r, int i)
{
    if (i == 1)
        return MR_NONE;
    return take_as(r->node->op, r->tangent[0], r->primal[1], axis_of(r->node));
}

static mr_array *
take_along_vmap(const mr_batch *b)
{
    return take_as(b->node->op, mr__batch_in(b, 0), mr__batch_in(b, 1),
                   axis_of(b->node) + 1);
}

static bool
take_along_gather(const mr_node *n, mr_gather_map *out)
{
    out->axis = axis_of(n);
    for (int32_t i = 0; i < n->ndim; i++) {
        out->value[i] = (int8_t)(i == out->axis ? -1 : i);
        out->index[i] = (int8_t)i;
    }
    return true;
}

#define TAKE_ALONG(called)                                                     \
    {                                                                          \
        .id = MR_OP_TAKE_ALONG_AXIS, .version = 1, .n_in = 2,                  \
        .name = "take_along_axis", .label = called,                            \
        MR__PARAMS(mr_axis_params, axis_fields), .infer = take_along_infer,    \
        .vjp = take_along_vjp, .jvp = take_along_jvp, .vmap = take_along_vmap, \
        .gather = take_along_gather,                                           \
    }

#define TAKES  "take or take_along_axis"
#define PICKS  "x[index] or take"
#define PLACES "put_along_axis"

const mr_op mr__op_take_along_axis = TAKE_ALONG(TAKES);

/* The same under the names of what reads so. */
static const mr_op take_names[] = {
    TAKE_ALONG(PICKS), TAKE_ALONG(MR__SCATTER_LABEL), TAKE_ALONG(PLACES)};

static const mr_op *
op_called(const mr_op *own, const mr_op *other, size_t n, const char *label)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(other[i].label, label) == 0)
            return &other[i];
    return own;
}

static const mr_op *
take_called(const char *label)
{
    return op_called(&mr__op_take_along_axis, take_names,
                     sizeof take_names / sizeof *take_names, label);
}

/* -- put_along_axis -------------------------------------------------------- */

mr_array *
mr__put_along(mr_array *x, mr_array *index, mr_array *values, int32_t axis,
              int64_t mode)
{
    return put_as(&mr__op_put_along_axis, x, index, values, axis, mode);
}

mr_array *
mr__build_put_along_axis(mr_array *a, mr_array *indices, mr_array *values,
                         int32_t axis)
{
    mr_list shape = mr__dims(a), places;
    int32_t k;
    mr_array *y;

    values = mr__cast(values, (mr_dtype)a->dtype);
    if (values != NULL && axis == MR_AXIS_NONE && values->ndim > 1) {
        places = mr__dims(indices);
        values = mr_flatten(mr_broadcast_to(values, mr__shape(&places)), 0, -1);
    }
    if (values == NULL || along_axis(&a, &indices, axis, &k) != MR_OK)
        return NULL;
    places = mr__dims(a);
    places.v[k] = indices->dim[k];
    indices = mr_broadcast_to(indices, mr__shape(&places));
    values = mr_broadcast_to(values, mr__shape(&places));
    y = mr__put_along(a, indices, values, k, MR_SCATTER_SET);
    return axis == MR_AXIS_NONE ? mr_reshape(y, mr__shape(&shape)) : y;
}

/* What lies at the node's places. */
static mr_array *
taken_back(const mr_rule *r, mr_array *x)
{
    const mr_put_params *p = mr__params(r->node);

    return take_as(take_called(mr__op_label(r->node->op)), x, r->primal[1],
                   p->axis);
}

/* Which values stayed where several were put: see scatter's set_winners. */
static mr_array *
put_winners(const mr_rule *r)
{
    const mr_put_params *p = mr__params(r->node);
    const mr_array *x = r->primal[0];
    mr_array *number = mr__counting(r->primal[1]);
    mr_array *none = mr__filled(MR_INT64, x->ndim, x->dim, -1.0);

    none = put_as(r->node->op, none, r->primal[1], number, p->axis,
                  MR_SCATTER_SET);
    return mr_equal(taken_back(r, none), number);
}

static mr_array *
put_vjp(const mr_rule *r, int i)
{
    const mr_put_params *p = mr__params(r->node);
    mr_array *c = r->cotangent[0];

    if (i == 1)
        return MR_NONE;
    if (i == 0)
        return p->mode == MR_SCATTER_ADD ? c
                                         : put_as(r->node->op, c, r->primal[1],
                                                  mr__zeros_like(r->primal[2]),
                                                  p->axis, MR_SCATTER_SET);
    c = taken_back(r, c);
    return p->mode == MR_SCATTER_ADD
               ? c
               : mr__masked(mr_rule_once(r, 0, put_winners), c);
}

static mr_array *
put_jvp(const mr_rule *r, int i)
{
    const mr_put_params *p = mr__params(r->node);
    mr_array *t[3];

    if (i == 1 || (i == 2 && r->tangent[0] != NULL))
        return MR_NONE;
    for (int k = 0; k < 3; k += 2)
        t[k] = r->tangent[k] != NULL ? r->tangent[k]
                                     : mr__zeros_like(r->primal[k]);
    return put_as(r->node->op, t[0], r->primal[1], t[2], p->axis, p->mode);
}

static mr_array *
put_vmap(const mr_batch *b)
{
    const mr_put_params *p = mr__params(b->node);

    return put_as(b->node->op, mr__batch_in(b, 0), mr__batch_in(b, 1),
                  mr__batch_in(b, 2), p->axis + 1, p->mode);
}

static mr_code
put_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[0]);
    return MR_OK;
}

static bool
put_one_a_line(const mr_node *n, mr_put_map *out)
{
    const mr_put_params *p = mr__params(n);

    *out = (mr_put_map){p->axis, p->mode == MR_SCATTER_ADD};
    return n->in[1]->dim[p->axis] == 1 &&
           (p->mode == MR_SCATTER_ADD || p->mode == MR_SCATTER_SET);
}

static const mr_field put_fields[] = {
    MR_FIELD(1, AXIS, mr_put_params, axis),
    MR_FIELD(2, INT, mr_put_params, mode),
};

#define PUT_ALONG(called)                                                      \
    {                                                                          \
        .id = MR_OP_PUT_ALONG_AXIS, .version = 1, .n_in = 3,                   \
        .name = "put_along_axis", .label = called,                             \
        MR__PARAMS(mr_put_params, put_fields), .infer = put_infer,             \
        .vjp = put_vjp, .jvp = put_jvp, .vmap = put_vmap,                      \
        .put = put_one_a_line,                                                 \
    }

const mr_op mr__op_put_along_axis = PUT_ALONG(PLACES);
static const mr_op put_names[] = {PUT_ALONG(TAKES), PUT_ALONG(PICKS),
                                  PUT_ALONG(MR__SCATTER_LABEL)};

static const mr_op *
put_called(const mr_op *like)
{
    return op_called(&mr__op_put_along_axis, put_names,
                     sizeof put_names / sizeof *put_names, mr__op_label(like));
}
