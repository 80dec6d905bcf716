/* SPDX-License-Identifier: Apache-2.0
 *
 * place.c -- where the elements of a node lie, and what views make of it.
 *
 * A view over something that is not computed yet has a place all the same:
 * memory is reserved at planning, so buffer, offset and strides are known.
 *
 * Called by: reserve.c.
 */
#include "eval/place.h"

#include <string.h>

#include "base/error.h"

static int
projection_index(const mr_array *x)
{
    return (int)((const mr_output_params *)mr__params(x))->index;
}

/* A node that is submitted, done or failed: it says itself.  One that failed
 * may have no memory; it has strides. */
static mr_place
leaf_place(mr_array *x)
{
    mr_place w = {.stride = mr__strides(x)};
    mr_state s = mr__state(x);

    if (__builtin_expect(s == MR_FAILED && x->buffer == NULL, 0)) {
        w.source = x;
        return w;
    }

    if (x->flags & MR_NODE_SCALAR_CONST) {
        const void *bits = mr__scalar_const(x);

        w.data = (char *)(uintptr_t)bits; /* read only by contract */
        w.owner = x;
        return w;
    }
    w.buffer = x->buffer;
    w.data = (char *)x->buffer->data +
             x->offset * mr__dtype_size((mr_dtype)x->dtype);
    /* not done, or failed since the walk: the task will see */
    w.source = s == MR_DONE ? NULL : x;
    return w;
}

/* Result k of a tuple that is submitted or done. */
static mr_place
tuple_place(mr_array *t, int k)
{
    const mr_tuple_out *o = &t->tuple[k];
    mr_place w = {.stride = o->dim + o->ndim, .buffer = o->buffer};

    w.data = (char *)o->buffer->data + o->offset * mr__dtype_size(o->dtype);
    w.source = t;
    /* done, and this result is there: the task need not look */
    if (mr__state(t) == MR_DONE && (__builtin_expect(t->error == NULL, 1) ||
                                    mr__error_part(t->error, k) == NULL))
        w.source = NULL;
    return w;
}

mr_place
mr__place_of(const mr_plan *p, mr_array *x)
{
    const mr_plan_node *n = mr__plan_node(x);

    (void)p;
    return n != NULL ? n->place : leaf_place(x);
}

/* ---- views -----------------------------------------------------------------
 */

int64_t *
mr__place_strides(mr_plan *p, int32_t ndim, const int64_t *stride)
{
    int64_t *copy =
        mr__arena_alloc(&p->window->arena, (size_t)(ndim + 1) * sizeof *copy);

    if (copy != NULL)
        memcpy(copy, stride, (size_t)ndim * sizeof *copy);
    return copy;
}

static void
layout_from(mr_layout *l, const mr_array *x, const mr_place *w)
{
    l->ndim = x->ndim;
    l->offset = 0;
    memcpy(l->dim, x->dim, (size_t)x->ndim * sizeof *l->dim);
    memcpy(l->stride, w->stride, (size_t)x->ndim * sizeof *l->stride);
}

mr_view_result
mr__place_view(mr_plan *p, mr_plan_node *n, const mr_place *in, mr_place *out)
{
    mr_array *x = n->f.x;
    mr_array *from = x->in[0];
    mr_layout a, b;
    int64_t *stride;

    layout_from(&a, from, in);
    if (!x->op->view(x, &a, &b))
        return MR_VIEW_COPY;
    stride = mr__place_strides(p, x->ndim, b.stride);
    if (stride == NULL)
        return MR_VIEW_NO_MEMORY;
    *out = *in;
    out->data = in->data + b.offset * mr__dtype_size((mr_dtype)from->dtype);
    out->stride = stride;
    return MR_VIEW_OK;
}

bool
mr__place_is_projection(const mr_array *x)
{
    return x->op == &mr__op_output;
}

mr_view_result
mr__place_projection(mr_plan *p, const mr_plan_node *n, mr_place *out)
{
    mr_array *x = n->f.x, *tuple = x->in[0];
    int64_t *stride;

    if (tuple->plan != NULL) {
        *out = mr__plan_node(tuple)->outs[projection_index(x)];
        return MR_VIEW_OK;
    }
    *out = tuple_place(tuple, projection_index(x));
    /* the tuple may be gone when others of this window read through x */
    stride = mr__place_strides(p, x->ndim, out->stride);
    if (stride == NULL)
        return MR_VIEW_NO_MEMORY;
    out->stride = stride;
    return MR_VIEW_OK;
}
