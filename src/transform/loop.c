/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.c -- an operator over the entries of a batch, as one node.
 *
 * What vmap makes of an operator without a rule: its kernel runs once for each
 * entry, and the graph does not grow with the batch.  The derivatives are
 * those of the operator at one entry, mapped.
 *
 * Called by: vmap.c, through mr__loop.  Calls: vjp, jvp, vmap.
 */
#include <string.h>

#include "array/buffer.h"
#include "array/dtype.h"
#include "base/alloc.h"
#include "base/error.h"
#include "graph/node.h"
#include "graph/op.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/tree.h"
#include "transform/call.h"
#include "transform/traced.h"
#include "transform/walk.h"

static void
loop_free(void *ctx, void *data)
{
    mr_loop *l = data;

    (void)ctx;
    mr__release(l->entry);
    mr__dealloc(l->batched);
    mr__dealloc(l);
}

static const mr_loop *
loop_of(const mr_node *x)
{
    const mr_loop_params *p = mr__params(x);

    return mr__loop_at(p);
}

/* The node over placeholders shaped as one entry: it holds no data. */
static mr_array *
entry_of(const mr_batch *b)
{
    const mr_node *x = b->node;
    mr_array **in = mr__alloc_array((size_t)b->n_in + 1, sizeof *in), *y = NULL;
    bool ok = in != NULL;

    for (int i = 0; ok && i < b->n_in; i++) {
        const mr_array *v = x->in[i];

        in[i] = mr__node_placeholder((mr_dtype)v->dtype, v->ndim, v->dim, 0);
        ok = in[i] != NULL;
    }
    if (ok)
        y = x->flags & MR_NODE_TUPLE
                ? mr__node_tuple(x->op, mr__params(x), b->n_in, in, x->n_out)
                : mr__node_new(x->op, mr__params(x), b->n_in, in);
    mr__dealloc(in);
    return y;
}

static mr_array *
holder_of(mr_loop *l)
{
    static const int64_t bytes = (int64_t)sizeof *l;
    mr_buffer *b = mr__buffer_wrap(l, sizeof *l, loop_free, NULL);

    if (!b) {
        loop_free(NULL, l);
        return NULL;
    }
    b->read_only = true;
    return mr__node_data(MR_UINT8, 1, &bytes, NULL, b, 0);
}

static mr_loop *
loop_new(const mr_batch *b)
{
    mr_array *entry = entry_of(b);
    mr_loop *l = entry ? mr__alloc_zero(sizeof *l) : NULL;

    if (!l)
        return NULL;
    l->entry = mr__retain(entry);
    l->size = b->size;
    l->batched = mr__alloc_array((size_t)b->n_in + 1, sizeof *l->batched);
    if (!l->batched) {
        loop_free(NULL, l);
        return NULL;
    }
    memcpy(l->batched, b->batched, (size_t)b->n_in * sizeof *l->batched);
    return l;
}

mr_array *
mr__loop(const mr_batch *b)
{
    mr_loop *l = loop_new(b);
    mr_array **in, *x = NULL;
    mr_loop_params p;

    if (!l)
        return NULL;
    in = mr__alloc_array((size_t)b->n_in + 1, sizeof *in);
    if (!in) {
        loop_free(NULL, l);
        return NULL;
    }
    p.loop = (int64_t)(intptr_t)l;
    in[0] = holder_of(l);
    memcpy(in + 1, b->in, (size_t)b->n_in * sizeof *in);
    if (in[0])
        x = mr__node_tuple(&mr__op_loop, &p, b->n_in + 1, in, b->node->n_out);
    mr__dealloc(in);
    return x;
}

/* ---- rules ----------------------------------------------------------------
 */

static mr_code
loop_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_loop *l = mr__loop_at(c->params);
    const mr_array *y = l->entry;

    for (int k = 0; k < y->n_out; k++) {
        bool tuple = y->flags & MR_NODE_TUPLE;
        int32_t ndim = tuple ? y->tuple[k].ndim : y->ndim;
        const int64_t *dim = tuple ? y->tuple[k].dim : y->dim;

        if (ndim == MR_MAX_NDIM)
            return mr__fail(MR_E_VALUE,
                            "vmap adds an axis, and %d axes are the most",
                            MR_MAX_NDIM);
        out[k].dtype = mr__result_dtype(y, k);
        out[k].ndim = ndim + 1;
        out[k].dim[0] = l->size;
        if (ndim > 0)
            memcpy(out[k].dim + 1, dim, (size_t)ndim * sizeof *dim);
    }
    return MR_OK;
}

/* The operator on one entry, as a function. */
static mr_tree *
entry_call(void *ctx, const mr_tree *in)
{
    const mr_array *y = ((const mr_loop *)ctx)->entry;
    mr_array **x = mr__alloc_array((size_t)(y->n_in + y->n_out), sizeof *x);
    mr_array *made = NULL;
    mr_tree *t = NULL;
    bool ok = x && mr_tree_leaves(in, x, y->n_in) == MR_OK;

    if (ok)
        made = y->flags & MR_NODE_TUPLE
                   ? mr__node_tuple(y->op, mr__params(y), y->n_in, x, y->n_out)
                   : mr__node_new(y->op, mr__params(y), y->n_in, x);
    ok = made != NULL;
    for (int k = 0; ok && k < y->n_out; k++) {
        x[k] = y->flags & MR_NODE_TUPLE ? mr__node_output(made, k) : made;
        ok = x[k] != NULL;
    }
    if (ok)
        t = mr_tree_arrays(y->n_out, x);
    mr__dealloc(x);
    return t;
}

/* (primals, others) -> the second of what the transform gives. */
typedef struct derivative {
    const mr_loop *l;
    mr_tree *(*of)(const mr_callee *f, const mr_tree *a, const mr_tree *b);
} derivative;

static mr_tree *
entry_derivative(void *ctx, const mr_tree *in)
{
    const derivative *d = ctx;
    const mr_callee f = {entry_call, (void *)(uintptr_t)d->l, false};
    mr_tree *pair = d->of(&f, mr_tree_at(in, 0), mr_tree_at(in, 1));

    return pair ? mr_tree_at(pair, 1) : NULL;
}

/* The derivative of each entry: n_in primals, n others with their batches. */
static mr_tree *
mapped(const mr_rule *r, const derivative *d, mr_array *const *other, int n,
       const bool *batched)
{
    const mr_callee f = {entry_derivative, (void *)(uintptr_t)d, false};
    int n_in = d->l->entry->n_in;
    int32_t *axis = mr__alloc_array((size_t)(n_in + n) + 1, sizeof *axis);
    mr_tree *part[2] = {mr_tree_arrays(n_in, r->primal + 1),
                        mr_tree_arrays(n, other)};
    mr_tree *in = axis ? mr_tree_tuple(2, part) : NULL, *t = NULL;

    if (in) {
        for (int i = 0; i < n_in + n; i++)
            axis[i] =
                (i < n_in ? d->l->batched[i] : !batched || batched[i - n_in])
                    ? 0
                    : MR_VMAP_NONE;
        t = mr__vmap(&f, in, axis, n_in + n, NULL, 0);
    }
    mr__dealloc(axis);
    return t;
}

static mr_code
keep_list(const mr_rule *r, const mr_tree *t, int n)
{
    mr_array **list = mr__alloc_array((size_t)n + 1, sizeof *list);

    if (!t || !list || mr_tree_leaves(t, list, n) != MR_OK) {
        mr__dealloc(list);
        return mr__error_code();
    }
    for (int i = 0; i < n; i++)
        mr__retain(list[i]);
    r->memo->list = list;
    r->memo->n_list = n;
    return MR_OK;
}

static mr_array *
loop_vjp(const mr_rule *r, int i)
{
    const derivative d = {loop_of(r->node), mr__vjp};
    mr_array *part;

    if (i == 0)
        return MR_NONE;
    if (!r->memo->list &&
        keep_list(r, mapped(r, &d, r->cotangent, r->n_out, NULL),
                  d.l->entry->n_in) != MR_OK)
        return NULL;
    part = r->memo->list[i - 1];
    return d.l->batched[i - 1] ? part : mr_sum(part, MR_AXES(0), false);
}

/* The whole tangent comes with the first input that has one; absent ones are
 * zeros. */
static mr_array *
loop_jvp(const mr_rule *r, int i)
{
    const derivative d = {loop_of(r->node), mr__jvp};
    int n = d.l->entry->n_in;
    mr_array **t;
    bool ok;

    for (int j = 1; j < i; j++)
        if (r->tangent[j])
            return MR_NONE;
    if (r->memo->list)
        return r->memo->list[r->which];
    t = mr__alloc_array((size_t)n + 1, sizeof *t);
    ok = t != NULL;
    for (int j = 0; ok && j < n; j++) {
        t[j] = r->tangent[j + 1] ? r->tangent[j + 1]
                                 : mr__result_zeros(r->primal[j + 1], 0);
        ok = t[j] != NULL;
    }
    ok = ok &&
         keep_list(r, mapped(r, &d, t, n, d.l->batched), r->n_out) == MR_OK;
    mr__dealloc(t);
    return ok ? r->memo->list[r->which] : NULL;
}

static const mr_field loop_fields[] = {
    MR_FIELD(1, INT, mr_loop_params, loop),
};

const mr_op mr__op_loop = {
    .id = MR_ID_LOOP,
    .version = 1,
    .n_in = -1,
    .n_out = 1, /* the entry says how many: mr__node_tuple */
    .n_fields = 1,
    .params_bytes = sizeof(mr_loop_params),
    .name = "loop",
    .fields = loop_fields,
    .infer = loop_infer,
    .vjp = loop_vjp,
    .jvp = loop_jvp,
    .vmap = mr__loop, /* a loop of loops */
};
