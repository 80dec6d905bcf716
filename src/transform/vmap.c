/* SPDX-License-Identifier: Apache-2.0
 *
 * vmap.c -- vectorisation: one call over arrays with a batch axis in place of
 * a loop of calls over their slices.
 *
 * The function is traced once at placeholders shaped as one slice.  The walk
 * is then replayed with batched values, each operator through its vmap rule,
 * always with the batch as axis 0; what does not depend on a mapped argument
 * stays as it is.  An operator without a rule becomes one loop node (loop.c):
 * right, but as slow as the loop, so it is logged once.  Placeholders have no
 * value: evaluating inside is refused with advice (mr__ctx.no_eval).
 *
 * Called by: users, the bindings.  Calls: traced.c, walk.c, marram/ops.h.
 */
#include <stdatomic.h>
#include <string.h>

#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "graph/context.h"
#include "graph/node.h"
#include "graph/op.h"
#include "graph/tape.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/transform.h"
#include "marram/tree.h"
#include "transform/call.h"
#include "transform/traced.h"
#include "transform/walk.h"

/* ---- replay ---------------------------------------------------------------
 */

/* Put a batched result (no reference taken) into its place, checked. */
static mr_code
place_result(mr_walk *w, size_t i, int k, mr_array *y, int64_t size)
{
    const mr_node *x = w->node[i];
    int64_t dim[MR_MAX_NDIM + 1] = {size};
    int32_t ndim = x->ndim;
    const int64_t *from = x->dim;

    if (x->flags & MR_NODE_TUPLE) {
        ndim = x->tuple[k].ndim;
        from = x->tuple[k].dim;
    }
    if (ndim > 0)
        memcpy(dim + 1, from, (size_t)ndim * sizeof *dim);
    y = mr__rule_result(x, y, mr__result_dtype(x, k), ndim + 1, dim, "vmap");
    if (!y)
        return mr__error_code();
    w->value[w->first[i] + (size_t)k] = mr__retain(y);
    return MR_OK;
}

/* Log once for each operator that it runs as a loop. */
static void
note_loop(const mr_op *op)
{
    static _Atomic uint64_t noted[65536 / 64];
    uint64_t bit = UINT64_C(1) << (op->id % 64);

    /* relaxed: a bit stands for itself alone */
    if (!(atomic_fetch_or_explicit(&noted[op->id / 64], bit,
                                   memory_order_relaxed) &
          bit))
        mr__log(MR_LOG_INFO,
                "vmap runs %s as a loop over the batch: it has "
                "no vmap rule",
                op->name);
}

/* One node whatever the size of the batch. */
static mr_array *
batch_loop(const mr_batch *b)
{
    note_loop(b->node->op);
    return b->node->op->fuse.kind == MR_FUSE_ELEMENTWISE
               ? mr__vmap_elementwise(b)
               : mr__loop(b);
}

static mr_code
batch_rule(mr_walk *w, size_t i, const mr_batch *b)
{
    const mr_node *x = b->node;
    mr_array *y = x->op->vmap                            ? x->op->vmap(b)
                  : mr__op_has_rule(x->op, MR_RULE_VMAP) ? b->in[0]
                                                         : batch_loop(b);
    mr_code code = MR_OK;

    if (!y || !(y->flags & MR_NODE_TUPLE))
        return place_result(w, i, 0, y, b->size);
    for (int k = 0; code == MR_OK && k < x->n_out; k++)
        code = place_result(w, i, k, mr__node_output(y, k), b->size);
    return code;
}

/* Room for the inputs of one node, kept from node to node. */
typedef struct batch_room {
    mr_array **in;
    bool *batched;
    int n;
} batch_room;

static mr_code
room_for(batch_room *r, int n)
{
    if (n <= r->n)
        return MR_OK;
    mr__dealloc(r->in);
    mr__dealloc(r->batched);
    r->n = 0;
    r->in = mr__alloc_array((size_t)n, sizeof *r->in);
    r->batched = mr__alloc_array((size_t)n, sizeof *r->batched);
    if (!r->in || !r->batched)
        return MR_E_MEMORY;
    r->n = n;
    return MR_OK;
}

static mr_code
node_batch(mr_walk *w, size_t i, int64_t size, batch_room *room)
{
    mr_node *x = w->node[i];
    mr_batch b = {.node = x, .n_in = x->n_in, .size = size};
    mr_code code = room_for(room, x->n_in);
    mr_rule_frame f;

    if (code != MR_OK)
        return code;
    for (int j = 0; j < x->n_in; j++) {
        mr_array *v = mr__walk_value(w, x->in[j]);

        room->in[j] = v ? v : x->in[j];
        room->batched[j] = v != NULL;
    }
    b.in = room->in;
    b.batched = room->batched;
    code = mr__rule_enter(&f, x);
    if (code != MR_OK)
        return code;
    code = batch_rule(w, i, &b);
    mr__rule_leave(&f);
    return code;
}

mr_code
mr__walk_batch(mr_walk *w, size_t n_tracers, int64_t size)
{
    batch_room room = {0};
    mr_code code = MR_OK;

    for (size_t i = n_tracers; code == MR_OK && i < w->n; i++) {
        const mr_node *x = w->node[i];

        if (mr__is_output(x)) {
            size_t t = mr__walk_find(w, mr__output_tuple(x));
            size_t k = (size_t)mr__output_index(x);

            w->value[w->first[i]] = mr__retain(w->value[w->first[t] + k]);
            continue;
        }
        code = node_batch(w, i, size, &room);
    }
    mr__dealloc(room.in);
    mr__dealloc(room.batched);
    return code;
}

/* ---- the public transform -------------------------------------------------
 */

/* axis in [-ndim, ndim) to [0, ndim). */
static mr_code
plain_axis(int32_t axis, int32_t ndim, const char *name, int i, int32_t *out)
{
    *out = axis < 0 ? axis + ndim : axis;
    if (*out >= 0 && *out < ndim)
        return MR_OK;
    return mr__fail(MR_E_INDEX, "%s %d is %d, for an array of %d axes", name, i,
                    (int)axis, (int)ndim);
}

/* The batch size, and in `axis` the plain axis of each leaf or
 * MR_VMAP_NONE. */
static mr_code
read_axes(const mr_leaves *x, const int32_t *in_axes, int n_in, int32_t *axis,
          int64_t *size)
{
    int first = -1;

    if (n_in != x->n)
        return mr__fail(MR_E_VALUE,
                        "%d in_axes for %d arrays: one each is right", n_in,
                        x->n);
    if (n_in > 0 && in_axes == NULL)
        return mr__fail(MR_E_NULL, "in_axes is NULL: one axis or MR_VMAP_NONE "
                                   "for each array is right");
    for (int i = 0; i < x->n; i++) {
        const mr_array *v = x->v[i];
        mr_code code;

        axis[i] = MR_VMAP_NONE;
        if (in_axes[i] == MR_VMAP_NONE)
            continue;
        code = plain_axis(in_axes[i], v->ndim, "in_axes", i, &axis[i]);
        if (code != MR_OK)
            return code;
        if (first < 0) {
            first = i;
            *size = v->dim[axis[i]];
        } else if (v->dim[axis[i]] != *size) {
            return mr__fail(MR_E_VALUE,
                            "array %d has %lld entries along its mapped axis, "
                            "array %d has %lld: they must agree",
                            first, (long long)*size, i,
                            (long long)v->dim[axis[i]]);
        }
    }
    if (first < 0)
        return mr__fail(MR_E_VALUE, "no argument is mapped: at least one of "
                                    "in_axes must be an axis");
    return MR_OK;
}

static mr_array *
slice_placeholder(const mr_array *x, int32_t axis, uint64_t trace)
{
    int64_t dim[MR_MAX_NDIM];
    int32_t n = 0;

    for (int32_t a = 0; a < x->ndim; a++)
        if (a != axis)
            dim[n++] = x->dim[a];
    return mr__node_placeholder((mr_dtype)x->dtype, n, dim, trace);
}

static mr_code
set_placeholders(mr_traced *t, const mr_leaves *x, const int32_t *axis)
{
    mr_code code = MR_OK;

    for (int i = 0; code == MR_OK && i < x->n; i++)
        if (axis[i] != MR_VMAP_NONE)
            code = mr__traced_set(
                t, i, slice_placeholder(x->v[i], axis[i], t->trace));
    return code;
}

static mr_array *
move_axis(mr_array *x, int32_t from, int32_t to)
{
    return from == to ? x : mr_moveaxis(x, from, to);
}

/* The mapped arguments with the batch in front, in the tracers' places. */
static mr_code
place_arguments(mr_traced *t, const mr_leaves *x, const int32_t *axis)
{
    size_t n = 0;

    for (int i = 0; i < x->n; i++) {
        mr_array *v;

        if (axis[i] == MR_VMAP_NONE)
            continue;
        v = move_axis(x->v[i], axis[i], 0);
        if (!v)
            return mr__error_code();
        t->walk.value[n++] = mr__retain(v);
    }
    return MR_OK;
}

/* The batched value of output i with its batch axis where it is wanted. */
static mr_array *
finish_output(const mr_traced *t, int i, int32_t out_axis, int64_t size)
{
    mr_array *y = t->y.v[i], *v = mr__walk_value(&t->walk, y);
    int64_t dim[MR_MAX_NDIM + 1] = {size};
    int32_t to = 0;

    if (out_axis != MR_VMAP_NONE &&
        plain_axis(out_axis, y->ndim + 1, "out_axes", i, &to) != MR_OK)
        return NULL;
    if (!v) {
        if (y->ndim > 0)
            memcpy(dim + 1, y->dim, y->ndim * sizeof *dim);
        v = mr_broadcast_to(y, (mr_shape){dim, y->ndim + 1});
    }
    return v ? move_axis(v, 0, to) : NULL;
}

static mr_tree *
finish(const mr_traced *t, const int32_t *out_axes, int n_out, int64_t size)
{
    int n = t->y.n;
    mr_array **y = mr__alloc_array((size_t)n, sizeof *y);
    mr_tree *out = NULL;
    bool ok = y != NULL;

    for (int i = 0; ok && i < n; i++) {
        y[i] = finish_output(t, i, out_axes[n_out == 1 ? 0 : i], size);
        ok = y[i] != NULL;
    }
    if (ok)
        out = mr_tree_like(t->out, y, n);
    mr__dealloc(y);
    return out;
}

static mr_tree *
trace_and_batch(mr_traced *t, const mr_callee *f, const mr_tree *args,
                const mr_leaves *x, const int32_t *axis, int64_t size,
                const int32_t *out_axes, int n_out)
{
    const char *no_eval = mr__ctx.no_eval;
    mr_code code = mr__traced_begin(t, x);

    mr__ctx.no_eval = "vmap";
    if (code == MR_OK)
        code = set_placeholders(t, x, axis);
    if (code == MR_OK)
        code = mr__traced_call(t, f, args);
    mr__ctx.no_eval = no_eval;
    if (code != MR_OK)
        return NULL;
    if (n_out != 1 && n_out != t->y.n)
        return mr__fail_null(MR_E_VALUE,
                             "%d out_axes for %d outputs: one each, or one "
                             "for all, is right",
                             n_out, t->y.n);
    if (mr__traced_walk(t, MR_RULE_VMAP) != MR_OK ||
        place_arguments(t, x, axis) != MR_OK ||
        mr__walk_batch(&t->walk, t->n_tracers, size) != MR_OK)
        return NULL;
    return finish(t, out_axes, n_out, size);
}

static mr_tree *
vmap_again(const mr_tape_transform *t, mr_fn fn, void *ctx, bool foreign)
{
    return mr__vmap(&(mr_callee){fn, ctx, foreign}, t->tree[0], t->list[0],
                    t->n[0], t->list[1], t->n[1]);
}

mr_tree *
mr__vmap(const mr_callee *f, const mr_tree *args, const int32_t *in_axes,
         int n_in, const int32_t *out_axes, int n_out)
{
    static const int32_t front = 0;
    mr_leaves x = {0};
    mr_traced t = {0};
    int32_t *axis = NULL;
    int64_t size = 0;
    mr_tree *result = NULL;
    mr_scope s;

    if (mr__ctx.tape != NULL && args != NULL)
        return mr__tape_call_transform(
            &(mr_tape_transform){.call = vmap_again,
                                 .tree = {args},
                                 .list = {in_axes, out_axes},
                                 .n = {n_in, n_out}},
            f->fn, f->ctx, f->foreign);
    s = mr_scope_begin();
    if (s.token == 0)
        return NULL;
    if (!out_axes) {
        out_axes = &front;
        n_out = 1;
    }
    if (mr__leaves_of(&x, args, "args") == MR_OK)
        axis = mr__alloc_array((size_t)x.n, sizeof *axis);
    if (axis && read_axes(&x, in_axes, n_in, axis, &size) == MR_OK)
        result = trace_and_batch(&t, f, args, &x, axis, size, out_axes, n_out);
    mr__traced_end(&t);
    mr__dealloc(axis);
    mr__leaves_free(&x);
    result = mr_scope_return_tree(s, result);
    mr_scope_end(s);
    return result;
}

mr_tree *
mr_vmap(mr_fn fn, void *ctx, const mr_tree *args, const int32_t *in_axes,
        int n_in, const int32_t *out_axes, int n_out)
{
    return mr__vmap(&(mr_callee){fn, ctx, false}, args, in_axes, n_in, out_axes,
                    n_out);
}
