/* SPDX-License-Identifier: Apache-2.0
 *
 * traced.c -- a call of the user's function under a trace.
 *
 * Everything that is made here belongs to the scope that the transform has
 * opened, so a failure anywhere needs mr__traced_end and nothing more.
 * Called by: vjp.c, jvp.c, grad.c, vmap.c.  Calls: graph/, closure.c, walk.c.
 */
#include "transform/traced.h"

#include <string.h>

#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "graph/context.h"
#include "graph/node.h"
#include "marram/array.h"
#include "marram/tree.h"

mr_code
mr__leaves_of(mr_leaves *l, const mr_tree *t, const char *name)
{
    int n;

    if (!t) {
        if (!mr__error_pending())
            mr__fail(MR_E_NULL, "%s is NULL", name);
        return mr__error_code();
    }
    n = mr_tree_n_leaves(t);
    l->v = mr__alloc_array((size_t)n, sizeof *l->v);
    if (!l->v)
        return MR_E_MEMORY;
    l->n = n;
    return mr_tree_leaves(t, l->v, n);
}

void
mr__leaves_free(mr_leaves *l)
{
    mr__dealloc(l->v);
    *l = (mr_leaves){0};
}

mr_code
mr__leaf_shape(const mr_array *want, const mr_array *got, const char *name,
               int i)
{
    char a[256], b[256];

    if (got->ndim == want->ndim &&
        memcmp(got->dim, want->dim, want->ndim * sizeof *want->dim) == 0)
        return MR_OK;
    return mr__fail(MR_E_SHAPE, "%s %d has the shape %s where %s is right",
                    name, i, mr__shape_text(a, sizeof a, got->ndim, got->dim),
                    mr__shape_text(b, sizeof b, want->ndim, want->dim));
}

mr_code
mr__traced_begin(mr_traced *t, const mr_leaves *x)
{
    size_t n = (size_t)x->n;

    t->leaf = mr__alloc_array(n, sizeof *t->leaf);
    t->tracer = mr__alloc_array(n, sizeof *t->tracer);
    if (!t->leaf || !t->tracer)
        return MR_E_MEMORY;
    if (n > 0)
        memcpy(t->leaf, x->v, n * sizeof *t->leaf);
    t->n_leaves = x->n;
    t->trace = mr__trace_begin();
    return t->trace != 0 ? MR_OK : mr__error_code();
}

mr_code
mr__traced_set(mr_traced *t, int i, mr_array *tracer)
{
    if (!tracer)
        return mr__error_code();
    t->leaf[i] = tracer;
    t->tracer[t->n_tracers++] = tracer;
    return MR_OK;
}

mr_code
mr__traced_values(mr_traced *t, const bool *wanted)
{
    for (int i = 0; i < t->n_leaves; i++) {
        mr_code code;

        if (wanted && !wanted[i])
            continue;
        code = mr__traced_set(t, i, mr__node_tracer(t->leaf[i], t->trace));
        if (code != MR_OK)
            return code;
    }
    return MR_OK;
}

mr_code
mr__traced_call(mr_traced *t, const mr_callee *f, const mr_tree *args)
{
    mr_tree *in = mr_tree_like(args, t->leaf, t->n_leaves);

    if (!in)
        return mr__error_code();
    t->out = mr__callee_call(f, in);
    if (!t->out)
        return mr__error_code();
    return mr__leaves_of(&t->y, t->out, "the result");
}

mr_code
mr__traced_walk(mr_traced *t, mr_rule_kind kind)
{
    return mr__walk_open(&t->walk, kind, t->trace, t->tracer, t->n_tracers,
                         t->y.v, (size_t)t->y.n);
}

void
mr__traced_end(mr_traced *t)
{
    if (t->trace != 0) {
        mr__trace_end(t->trace);
        mr__walk_sweep(&t->walk);
    }
    mr__walk_close(&t->walk);
    mr__leaves_free(&t->y);
    mr_tree_release(t->out);
    mr__dealloc(t->leaf);
    mr__dealloc(t->tracer);
    *t = (mr_traced){0};
}
