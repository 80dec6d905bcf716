/* SPDX-License-Identifier: Apache-2.0
 *
 * vjp.c -- reverse-mode differentiation over a graph.
 *
 * Cotangents travel from the outputs to the tracers through a walk's nodes in
 * reverse order: when a node's turn comes, all its users have been, so its
 * cotangents are complete.  Each node's descriptor is then asked for the part
 * of each input that depends on a tracer and has an inexact dtype.  The order
 * of additions follows from the graph alone.  A projection hands its cotangent
 * to its tuple; a tuple's results that got none have zeros.
 *
 * Rules make ordinary nodes out of the primals, so an outer transform, whose
 * tracers those depend on, differentiates them in its turn.
 *
 * Called by: grad.c, jvp.c, the public forms.  Calls: graph/, marram/ops.h.
 */
#include "transform/walk.h"

#include "array/dtype.h"
#include "base/alloc.h"
#include "base/error.h"
#include "graph/context.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/transform.h"

static bool
any_value(mr_array *const *v, int n)
{
    for (int i = 0; i < n; i++)
        if (v[i])
            return true;
    return false;
}

/* A rule wants a cotangent for each result. */
static mr_code
fill_zeros(const mr_node *x, mr_array **cotangent)
{
    for (int k = 0; k < x->n_out; k++) {
        if (cotangent[k])
            continue;
        mr_array *z = mr__result_zeros(x, k);

        if (!z)
            return mr__error_code();
        cotangent[k] = mr__retain(z);
    }
    return MR_OK;
}

static mr_code
refuse(const mr_node *x, const char *why)
{
    mr_code code = mr__fail(MR_E_UNSUPPORTED, "%s", why);

    mr__error_annotate(x->op->name, x->site, NULL);
    return code;
}

/* The cotangent as wide as an input of x: for a reduction, along the reduced
 * axes too.  MR_NONE: x is neither that nor elementwise. */
static mr_array *
cotangent_at_input(const mr_node *x, mr_array *u, const mr_array *in)
{
    const mr_reduce_params *p = mr__params(x);
    int64_t dim[MR_MAX_NDIM];

    if (x->op->fuse.kind == MR_FUSE_ELEMENTWISE)
        return u;
    if (x->op->fuse.kind != MR_FUSE_REDUCTION)
        return MR_NONE;
    for (int32_t i = 0; i < in->ndim; i++)
        dim[i] = p->axes >> i & 1 ? 1 : in->dim[i];
    return mr_broadcast_to(mr_reshape(u, (mr_shape){dim, in->ndim}),
                           (mr_shape){in->dim, in->ndim});
}

/* Nothing comes from where no cotangent is, whatever the slope there.  Only
 * what is not finite is replaced: 0 times a finite slope is 0 already, and its
 * derivative by the cotangent is wanted in second order. */
static mr_array *
masked(const mr_rule *r, const mr_array *in, mr_array *part)
{
    mr_array *u, *zero, *idle;

    if (!part || part == MR_NONE || r->n_out != 1)
        return part;
    u = cotangent_at_input(r->node, r->cotangent[0], in);
    if (u == MR_NONE)
        return part;
    zero = mr_zeros_like(u, MR_DTYPE_DEFAULT);
    idle = mr_logical_and(mr_equal(u, zero), mr_logical_not(mr_isfinite(part)));
    return mr_where(idle, mr_zeros_like(part, MR_DTYPE_DEFAULT), part);
}

/* The part of input j, or MR_NONE for zero. */
static mr_array *
ask(const mr_rule *r, int j)
{
    const mr_op *op = r->node->op;
    const mr_array *in = r->primal[j];
    mr_array *got;

    if (!op->vjp && (op->flags & MR_FLAG_IDENTITY))
        return j == 0 ? r->cotangent[0] : MR_NONE;
    got = op->vjp(r, j);
    if (mr__ctx.grad_mode & MR_GRAD_MASKED)
        got = masked(r, in, got);
    return mr__rule_result(r->node, got, in->dtype, in->ndim, in->dim, "vjp");
}

bool
mr__rule_wants(const mr_rule *r, int j)
{
    return mr__dtype_is_inexact(r->primal[j]->dtype) &&
           (!r->walk || mr__walk_find(r->walk, r->primal[j]) != MR_WALK_NONE);
}

static mr_code
ask_inputs(mr_walk *w, const mr_rule *r)
{
    for (int j = 0; j < r->n_in; j++) {
        const mr_array *in = r->primal[j];
        size_t at = mr__walk_find(w, in);
        mr_array *part;
        mr_code code;

        if (at == MR_WALK_NONE || !mr__dtype_is_inexact(in->dtype))
            continue;
        part = ask(r, j);
        code = mr__accumulate_part(&w->value[w->first[at]], part);
        if (code != MR_OK)
            return code;
    }
    return MR_OK;
}

/* Does any input want a part?  Without one a node is the end of its path. */
static bool
wants_parts(const mr_walk *w, const mr_node *x)
{
    for (int j = 0; j < x->n_in; j++)
        if (mr__dtype_is_inexact(x->in[j]->dtype) &&
            mr__walk_find(w, x->in[j]) != MR_WALK_NONE)
            return true;
    return false;
}

static mr_code
node_backward(mr_walk *w, size_t i)
{
    mr_node *x = w->node[i];
    mr_array **cotangent = w->value + w->first[i];
    struct mr_rule_memo memo = {{NULL}, NULL, 0};
    mr_rule r = {.node = x,
                 .n_in = x->n_in,
                 .n_out = x->n_out,
                 .primal = x->in,
                 .cotangent = cotangent,
                 .memo = &memo,
                 .walk = w};
    mr_rule_frame f;
    mr_code code;

    if ((x->op->flags & MR_FLAG_ZERO_GRADIENT) || !wants_parts(w, x))
        return MR_OK;
    if (x->op->flags & MR_FLAG_NOT_DIFFERENTIABLE)
        return refuse(x, "has no gradient; stop_gradient around its result "
                         "makes it a constant");
    if (!mr__op_has_rule(x->op, MR_RULE_VJP))
        return refuse(x, "has no vjp rule");
    code = mr__rule_enter(&f, x);
    if (code != MR_OK)
        return code;
    r.output = mr__walk_outputs(w, i);
    code = r.output ? fill_zeros(x, cotangent) : mr__error_code();
    if (code == MR_OK)
        code = ask_inputs(w, &r);
    mr__rule_memo_clear(&memo);
    mr__rule_leave(&f);
    return code;
}

/* A projection's cotangent is its tuple's. */
static mr_code
projection_backward(mr_walk *w, size_t i)
{
    const mr_node *x = w->node[i];
    size_t tuple = mr__walk_find(w, mr__output_tuple(x));
    mr_rule_frame f;
    mr_code code;

    if (tuple == MR_WALK_NONE)
        return MR_OK;
    code = mr__rule_enter(&f, x);
    if (code != MR_OK)
        return code;
    code =
        mr__accumulate(&w->value[w->first[tuple] + (size_t)mr__output_index(x)],
                       w->value[w->first[i]]);
    mr__rule_leave(&f);
    return code;
}

static mr_code
seed_outputs(mr_walk *w, mr_array *const *out, mr_array *const *seed,
             size_t n_out)
{
    for (size_t i = 0; i < n_out; i++) {
        size_t at = mr__walk_find(w, out[i]);
        mr_code code;

        if (at == MR_WALK_NONE || !seed[i] ||
            !mr__dtype_is_inexact(out[i]->dtype))
            continue;
        code = mr__accumulate(&w->value[w->first[at]], seed[i]);
        if (code != MR_OK)
            return code;
    }
    return MR_OK;
}

mr_code
mr__walk_backward(mr_walk *w, size_t n_tracers, mr_array *const *out,
                  mr_array *const *seed, size_t n_out)
{
    mr_code code = seed_outputs(w, out, seed, n_out);

    for (size_t i = w->n; code == MR_OK && i-- > n_tracers;) {
        mr_array **value = w->value + w->first[i];
        int n = w->node[i]->n_out;

        if (!any_value(value, n))
            continue;
        code = mr__is_output(w->node[i]) ? projection_backward(w, i)
                                         : node_backward(w, i);
        for (int k = 0; k < n; k++) {
            mr__release(value[k]);
            value[k] = NULL;
        }
    }
    return code;
}
