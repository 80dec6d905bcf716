/* SPDX-License-Identifier: Apache-2.0
 *
 * jvp.c -- forward-mode differentiation over a graph, and the public jvp.
 *
 * Tangents travel through a walk's nodes in order, inputs before users.  A
 * place without a tangent means zero: nothing is made for it.  An operator
 * without a jvp rule whose vjp is linear in the cotangent alone gets one from
 * two vjps: g(u) = J^T u is traced at a dummy u of ones, and the pull-back of
 * the tangent through g is J times it.
 *
 * Called by: the public forms.  Calls: graph/, marram/ops.h.
 */
#include "transform/walk.h"

#include "array/dtype.h"
#include "base/alloc.h"
#include "base/error.h"
#include "graph/context.h"
#include "graph/op.h"
#include "graph/tape.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/transform.h"
#include "marram/tree.h"
#include "transform/call.h"
#include "transform/traced.h"

/* ---- jvp through two vjps -------------------------------------------------
 */

/* The dummies for each result, and g at them. */
static mr_array *
pull_dummies(const mr_rule *r, int j, uint64_t trace, mr_array **dummy)
{
    const mr_array *in = r->primal[j];
    struct mr_rule_memo memo = {{NULL}, NULL, 0};
    mr_rule at_dummy = *r;
    mr_array *g;

    for (int k = 0; k < r->n_out; k++) {
        mr_array *ones = mr__result_ones(r->node, k);

        dummy[k] = ones ? mr__node_tracer(ones, trace) : NULL;
        if (!dummy[k])
            return NULL;
    }
    at_dummy.cotangent = dummy;
    at_dummy.tangent = NULL;
    at_dummy.memo = &memo;
    g = mr__rule_result(r->node, r->node->op->vjp(&at_dummy, j), in->dtype,
                        in->ndim, in->dim, "vjp");
    mr__rule_memo_clear(&memo);
    return g;
}

/* The part of tangent j in result r->which. */
static mr_array *
ask_twice(const mr_rule *r, int j)
{
    mr_array **dummy = mr__alloc_array((size_t)r->n_out, sizeof *dummy);
    uint64_t trace;
    mr_walk w = {0};
    mr_array *g, *got = NULL;
    size_t n = (size_t)r->n_out;

    if (!dummy)
        return NULL;
    trace = mr__trace_begin();
    g = trace == 0 ? NULL : pull_dummies(r, j, trace, dummy);
    if (g == MR_NONE) {
        got = MR_NONE;
    } else if (g &&
               mr__walk_open(&w, MR_RULE_VJP, trace, dummy, n, &g, 1) ==
                   MR_OK &&
               mr__walk_backward(&w, n, &g, &r->tangent[j], 1) == MR_OK) {
        got = w.value[r->which];
        if (got)
            got = mr__scope_own(mr__retain(got));
        else
            got = MR_NONE;
    }
    mr__walk_close(&w);
    mr__trace_end(trace);
    mr__dealloc(dummy);
    return got;
}

/* ---- one node -------------------------------------------------------------
 */
static mr_array *
ask(const mr_rule *r, int j)
{
    const mr_op *op = r->node->op;
    const mr_array *out = r->output[r->which];
    mr_array *got;

    if (op->jvp)
        got = op->jvp(r, j);
    else if (op->flags & MR_FLAG_IDENTITY)
        got = j == 0 ? r->tangent[0] : MR_NONE;
    else
        got = ask_twice(r, j);
    return mr__rule_result(r->node, got, out->dtype, out->ndim, out->dim,
                           "jvp");
}

static mr_code
ask_outputs(mr_walk *w, size_t i, mr_rule *r)
{
    for (int k = 0; k < r->n_out; k++) {
        if (!mr__dtype_is_inexact(r->output[k]->dtype))
            continue;
        r->which = k;
        for (int j = 0; j < r->n_in; j++) {
            mr_array *part;
            mr_code code;

            if (!r->tangent[j])
                continue;
            part = ask(r, j);
            code =
                mr__accumulate_part(&w->value[w->first[i] + (size_t)k], part);
            if (code != MR_OK)
                return code;
        }
    }
    return MR_OK;
}

static mr_code
check_rule(const mr_node *x)
{
    mr_code code = MR_OK;

    if (x->op->flags & MR_FLAG_NOT_DIFFERENTIABLE)
        code = mr__fail(MR_E_UNSUPPORTED,
                        "has no derivative; stop_gradient around its result "
                        "makes it a constant");
    else if (!x->op->jvp && !(x->op->flags & MR_FLAG_IDENTITY) &&
             !(x->op->vjp && (x->op->flags & MR_FLAG_LINEAR)))
        code =
            mr__fail(MR_E_UNSUPPORTED, "has no jvp rule: use vjp or grad here");
    if (code != MR_OK)
        mr__error_annotate(x->op->name, x->site, NULL);
    return code;
}

/* The tangents of a node's inputs into t; false when there is none. */
static bool
gather_tangents(const mr_walk *w, const mr_node *x, mr_array **t)
{
    bool any = false;

    for (int j = 0; j < x->n_in; j++) {
        t[j] = mr__dtype_is_inexact(x->in[j]->dtype)
                   ? mr__walk_value(w, x->in[j])
                   : NULL;
        any = any || t[j];
    }
    return any;
}

static mr_code
node_forward(mr_walk *w, size_t i, mr_array **t)
{
    mr_node *x = w->node[i];
    struct mr_rule_memo memo = {{NULL}, NULL, 0};
    mr_rule r = {.node = x,
                 .n_in = x->n_in,
                 .n_out = x->n_out,
                 .primal = x->in,
                 .tangent = t,
                 .memo = &memo};
    mr_rule_frame f;
    mr_code code = check_rule(x);

    if (code == MR_OK)
        code = mr__rule_enter(&f, x);
    if (code != MR_OK)
        return code;
    r.output = mr__walk_outputs(w, i);
    code = r.output ? ask_outputs(w, i, &r) : mr__error_code();
    mr__rule_memo_clear(&memo);
    mr__rule_leave(&f);
    return code;
}

static void
projection_forward(mr_walk *w, size_t i)
{
    size_t tuple = mr__walk_find(w, mr__output_tuple(w->node[i]));
    mr_array *t;

    if (tuple == MR_WALK_NONE)
        return;
    t = w->value[w->first[tuple] + (size_t)mr__output_index(w->node[i])];
    if (t)
        w->value[w->first[i]] = mr__retain(t);
}

mr_code
mr__walk_forward(mr_walk *w, size_t n_tracers)
{
    mr_array **t = NULL;
    size_t room = 0;
    mr_code code = MR_OK;

    for (size_t i = n_tracers; code == MR_OK && i < w->n; i++) {
        const mr_node *x = w->node[i];

        if (mr__is_output(x)) {
            projection_forward(w, i);
            continue;
        }
        if (x->op->flags & MR_FLAG_ZERO_GRADIENT)
            continue;
        if (x->n_in > room) {
            mr__dealloc(t);
            room = (size_t)x->n_in * 2;
            t = mr__alloc_array(room, sizeof *t);
            if (!t)
                return MR_E_MEMORY;
        }
        if (gather_tangents(w, x, t))
            code = node_forward(w, i, t);
    }
    mr__dealloc(t);
    return code;
}

/* ---- the public transform -------------------------------------------------
 */
static mr_code
check_tangents(const mr_leaves *x, const mr_leaves *t)
{
    if (x->n != t->n)
        return mr__fail(MR_E_VALUE,
                        "%d tangents for %d primals: one each is right", t->n,
                        x->n);
    for (int i = 0; i < x->n; i++) {
        mr_code code = mr__leaf_shape(x->v[i], t->v[i], "tangent", i);

        if (code != MR_OK)
            return code;
    }
    return MR_OK;
}

static mr_code
place_tangents(mr_walk *w, const mr_leaves *x, const mr_leaves *t)
{
    for (int i = 0; i < x->n; i++) {
        mr_array *v = t->v[i];

        if (!mr__dtype_is_inexact(x->v[i]->dtype))
            continue;
        if (v->dtype != x->v[i]->dtype)
            v = mr_astype(v, x->v[i]->dtype);
        if (!v)
            return mr__error_code();
        w->value[i] = mr__retain(v);
    }
    return MR_OK;
}

/* (outputs, tangents): both trees like what the function gave. */
static mr_tree *
pair_with_tangents(mr_walk *w, mr_tree *out, const mr_leaves *y)
{
    mr_array **t = mr__alloc_array((size_t)y->n, sizeof *t);
    mr_tree *pair[2] = {out, NULL};
    bool ok = t != NULL;

    for (int i = 0; ok && i < y->n; i++) {
        t[i] = mr__walk_value(w, y->v[i]);
        if (!t[i])
            t[i] = mr__result_zeros(y->v[i], 0);
        ok = t[i] != NULL;
    }
    if (ok)
        pair[1] = mr_tree_like(out, t, y->n);
    mr__dealloc(t);
    return pair[1] ? mr_tree_tuple(2, pair) : NULL;
}

static mr_tree *
push_forward(const mr_callee *f, const mr_tree *primals, const mr_leaves *x,
             const mr_leaves *t, mr_traced *tr)
{
    if (mr__traced_begin(tr, x) != MR_OK ||
        mr__traced_values(tr, NULL) != MR_OK ||
        mr__traced_call(tr, f, primals) != MR_OK ||
        mr__traced_walk(tr, MR_RULE_JVP) != MR_OK ||
        place_tangents(&tr->walk, x, t) != MR_OK ||
        mr__walk_forward(&tr->walk, tr->n_tracers) != MR_OK)
        return NULL;
    return pair_with_tangents(&tr->walk, tr->out, &tr->y);
}

static mr_tree *
jvp_again(const mr_tape_transform *t, mr_fn fn, void *ctx, bool foreign)
{
    return mr__jvp(&(mr_callee){fn, ctx, foreign}, t->tree[0], t->tree[1]);
}

mr_tree *
mr__jvp(const mr_callee *f, const mr_tree *primals, const mr_tree *tangents)
{
    mr_leaves x = {0}, t = {0};
    mr_traced tr = {0};
    mr_tree *result = NULL;
    mr_scope s;

    if (mr__ctx.tape != NULL && primals != NULL && tangents != NULL)
        return mr__tape_call_transform(
            &(mr_tape_transform){.call = jvp_again,
                                 .tree = {primals, tangents}},
            f->fn, f->ctx, f->foreign);
    s = mr_scope_begin();
    if (s.token == 0)
        return NULL;
    if (mr__leaves_of(&x, primals, "primals") == MR_OK &&
        mr__leaves_of(&t, tangents, "tangents") == MR_OK &&
        check_tangents(&x, &t) == MR_OK)
        result = push_forward(f, primals, &x, &t, &tr);
    mr__traced_end(&tr);
    mr__leaves_free(&x);
    mr__leaves_free(&t);
    result = mr_scope_return_tree(s, result);
    mr_scope_end(s);
    return result;
}

mr_tree *
mr_jvp(mr_fn fn, void *ctx, const mr_tree *primals, const mr_tree *tangents)
{
    return mr__jvp(&(mr_callee){fn, ctx, false}, primals, tangents);
}
