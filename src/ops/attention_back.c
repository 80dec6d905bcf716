/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_back.c -- the way back of attention, and its own derivatives.
 *
 * With S the scores, P the weights (p the sink's), W = g v^T and D = the row's
 * sum of P * W, which is that of g * output too:
 *
 *     U = P * (W - D)          what comes back to S
 *     dq = scale U k    dk = scale U^T q    dv = P^T g    dsink = -sum p D
 *
 * The kernel never holds P; the rules below do.  The output that is an input is
 * what q, k, v lead to: rules do not ask for it.  For cotangents a, b, c, e of
 * the four results, T = scale (a k^T + q b^T) where pairs count and t = the
 * row's sum of P * T, plus e p:
 *
 *     to W:  Y = P * (T - t)
 *     to P:  R = T * (W - D) + g c^T - t W;     to p: -e D
 *     to S:  Z = P * (R - r),  r = the row's sum of P * R, less p e D
 *
 * Called by: transforms.  Calls: marram/ops.h, attention_scores.c.
 */
#include <stddef.h>

#include "array/dtype.h"
#include "base/error.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/attention.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

/* The shape of x, its first axis cut. */
static mr_code
result_shape(const mr_ints *lead, const mr_array *x, int32_t n, mr_aval *out)
{
    int64_t whole = 1;
    int32_t at = 0;

    if (lead->n + n > MR_MAX_NDIM)
        return mr__fail(MR_E_VALUE, "%lld axes, at most %d are possible",
                        (long long)(lead->n + n), MR_MAX_NDIM);
    for (; at < lead->n; at++) {
        out->dim[at] = lead->v[at];
        whole *= lead->v[at];
    }
    if (whole < 0 || (whole > 0 && x->dim[0] % whole != 0))
        return mr__fail(MR_E_SHAPE, "%lld entries cannot be cut into %lld",
                        (long long)x->dim[0], (long long)whole);
    out->dim[at++] = whole == 0 ? 0 : x->dim[0] / whole;
    for (int32_t i = 1; i < n; i++)
        out->dim[at++] = x->dim[i];
    out->ndim = at;
    return MR_OK;
}

static mr_code
back_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_attention_back_params *p = c->params;

    for (int i = 0; i < 4; i++) {
        const mr_array *like = c->in[i < 3 ? i : 0];

        out[i].dtype = i < 3 ? (mr_dtype)like->dtype : MR_FLOAT32;
        if (result_shape(&p->lead, like, i < 3 ? 4 : 2, out + i) != MR_OK)
            return mr__error_code();
    }
    return MR_OK;
}

/* ---- parts, in float32 -----------------------------------------------------
 */

static mr_array *
primal(const mr_rule *r, int i)
{
    return mr__scores_widened(r->primal[i]);
}

static int
given_at(const mr_rule *r)
{
    return r->n_in - 2;
}

static mr_array *
given(const mr_rule *r)
{
    return primal(r, given_at(r));
}

static bool
has_sinks(const mr_rule *r)
{
    const mr_attention_params *p = mr__params(r->node);

    return p->has_sinks;
}

static mr_array *
row_sum(mr_array *x)
{
    return mr_sum(x, MR_AXES(-1), true);
}

/* The cotangent of a result, shaped as what it belongs to. */
static mr_array *
cotangent(const mr_rule *r, int k)
{
    const mr_array *like = r->primal[k < 3 ? k : 0];
    mr_list shape = mr__dims(like);

    if (k == 3)
        shape.n = 2;
    return mr_reshape(mr__scores_widened(r->cotangent[k]), mr__shape(&shape));
}

/* W */
static mr_array *
to_weights(const mr_rule *r)
{
    return mr__scores_times_keys(given(r), primal(r, 2));
}

/* D */
static mr_array *
to_rows(const mr_rule *r)
{
    return row_sum(mr_multiply(given(r), primal(r, r->n_in - 1)));
}

/* W - D, where pairs count */
static mr_array *
centred(const mr_rule *r)
{
    mr_array *w = mr_rule_once(r, 1, to_weights);

    return mr__scores_unmasked(r, mr_subtract(w, to_rows(r)));
}

/* U */
static mr_array *
to_scores(const mr_rule *r)
{
    return mr_multiply(mr__scores_rule_weights(r), centred(r));
}

static mr_array *
scaled(const mr_rule *r, mr_array *x)
{
    const mr_attention_params *p = mr__params(r->node);

    return x == NULL ? NULL : mr__scale(x, p->scale);
}

/* (B, Hq) as rows of a column. */
static mr_array *
as_rows(mr_array *x)
{
    return mr_expand_dims(x, MR_AXES(-1, -2));
}

/* A tangent, shaped as its result. */
static mr_array *
as_result(const mr_rule *r, mr_array *x)
{
    const mr_array *like = r->output[r->which];
    mr_list shape = mr__dims(like);

    x = mr_reshape(x, mr__shape(&shape));
    return x == NULL ? NULL : mr__cast(x, (mr_dtype)like->dtype);
}

static mr_array *
like_primal(const mr_rule *r, int i, mr_array *x)
{
    return x == NULL ? NULL : mr__cast(x, (mr_dtype)r->primal[i]->dtype);
}

/* ---- what comes back -------------------------------------------------------
 */

/* T */
static mr_array *
back_products(const mr_rule *r)
{
    mr_array *a = cotangent(r, 0);
    mr_array *b = cotangent(r, 1);

    a = mr_add(mr__scores_times_keys(a, primal(r, 1)),
               mr__scores_times_keys(primal(r, 0), b));
    return mr__scores_unmasked(r, scaled(r, a));
}

/* e p, a number a row */
static mr_array *
back_sinks(const mr_rule *r)
{
    return mr_multiply(mr__scores_rule_sinks(r), as_rows(cotangent(r, 3)));
}

/* t */
static mr_array *
back_rows(const mr_rule *r)
{
    mr_array *t = row_sum(mr_multiply(mr__scores_rule_weights(r),
                                      mr_rule_once(r, 2, back_products)));

    return has_sinks(r) ? mr_add(t, back_sinks(r)) : t;
}

/* Y */
static mr_array *
back_to_given(const mr_rule *r)
{
    return mr_multiply(
        mr__scores_rule_weights(r),
        mr_subtract(mr_rule_once(r, 2, back_products), back_rows(r)));
}

/* R */
static mr_array *
back_to_weights(const mr_rule *r)
{
    mr_array *x = mr_multiply(mr_rule_once(r, 2, back_products), centred(r));

    x = mr_add(x, mr__scores_times_keys(given(r), cotangent(r, 2)));
    return mr_subtract(
        x, mr_multiply(back_rows(r), mr_rule_once(r, 1, to_weights)));
}

/* r */
static mr_array *
back_mean(const mr_rule *r)
{
    mr_array *x = row_sum(mr_multiply(mr__scores_rule_weights(r),
                                      mr_rule_once(r, 3, back_to_weights)));

    if (has_sinks(r))
        x = mr_subtract(x, mr_multiply(back_sinks(r), to_rows(r)));
    return x;
}

/* Z */
static mr_array *
back_to_scores(const mr_rule *r)
{
    return mr_multiply(
        mr__scores_rule_weights(r),
        mr_subtract(mr_rule_once(r, 3, back_to_weights), back_mean(r)));
}

/* To the sinks: p (-e D - r), summed. */
static mr_array *
back_to_sinks(const mr_rule *r, const mr_array *like)
{
    mr_array *x = mr_multiply(as_rows(cotangent(r, 3)), to_rows(r));

    x = mr_multiply(mr__scores_rule_sinks(r), mr_add(x, back_mean(r)));
    x = mr__sum_to(mr_negative(x), 4,
                   (int64_t[]){like->dim[0], like->dim[1], 1, 1});
    return mr_squeeze(x, MR_AXES(2, 3));
}

static mr_array *
back_vjp(const mr_rule *r, int i)
{
    const mr_attention_params *p = mr__params(r->node);
    mr_array *q = primal(r, 0), *k = primal(r, 1), *g = given(r), *x, *y;
    mr_array *w;

    if (i > given_at(r)) /* it is what the others lead to */
        return MR_NONE;
    w = mr__scores_rule_weights(r);
    if (i == 3 && p->has_mask)
        return like_primal(r, i,
                           mr__sum_to(back_to_scores(r), 4, r->primal[3]->dim));
    if (i == 3 + p->has_mask && p->has_sinks)
        return like_primal(r, i, back_to_sinks(r, r->primal[i]));
    if (i == given_at(r)) {
        x = mr__scores_times_values(back_to_given(r), primal(r, 2));
        y = mr__scores_times_values(w, cotangent(r, 2));
        return like_primal(r, i, mr_add(x, y));
    }
    if (i == 2)
        return like_primal(r, i,
                           mr__scores_times_queries(back_to_given(r), g, k));
    x = mr__scores_unmasked(r, back_to_scores(r));
    if (i == 0) {
        y = cotangent(r, 1);
        x = mr_add(mr__scores_times_values(x, k),
                   mr__scores_times_values(to_scores(r), y));
    } else {
        y = cotangent(r, 0);
        x = mr_add(mr__scores_times_queries(x, q, k),
                   mr__scores_times_queries(to_scores(r), y, k));
    }
    return like_primal(r, i, scaled(r, x));
}

/* ---- tangents --------------------------------------------------------------
 */

/* Of S, from that of q, k or the mask; NULL where i has none of these. */
static mr_array *
scores_tangent(const mr_rule *r, int i)
{
    mr_array *t = mr__scores_widened(r->tangent[i]);

    if (i == 3)
        return t;
    t = i == 0 ? mr__scores_times_keys(t, primal(r, 1))
               : mr__scores_times_keys(primal(r, 0), t);
    return mr__scores_unmasked(r, scaled(r, t));
}

typedef struct tangents {
    mr_array *p, *sink; /* of the weights; NULL: none */
    mr_array *w, *u, *d;
} tangents;

/* Of P and p: P * (S' - s), p * (sink' - s), s = the sum of both over a row. */
static void
weights_tangent(const mr_rule *r, int i, tangents *t)
{
    const mr_attention_params *a = mr__params(r->node);
    mr_array *p = mr__scores_rule_weights(r), *s, *x;

    if (i == 3 + a->has_mask) {
        x = as_rows(mr__scores_widened(r->tangent[i]));
        s = mr_multiply(mr__scores_rule_sinks(r), x);
        t->p = mr_negative(mr_multiply(p, s));
        t->sink = mr_multiply(mr__scores_rule_sinks(r), mr_subtract(x, s));
        return;
    }
    x = scores_tangent(r, i);
    s = row_sum(mr_multiply(p, x));
    t->p = mr_multiply(p, mr_subtract(x, s));
    if (a->has_sinks)
        t->sink = mr_negative(mr_multiply(mr__scores_rule_sinks(r), s));
}

/* D' and U' from P' and W'. */
static void
rows_tangent(const mr_rule *r, tangents *t)
{
    mr_array *p = mr__scores_rule_weights(r), *x = NULL;

    if (t->p)
        x = mr_multiply(t->p, mr_rule_once(r, 1, to_weights));
    if (t->w)
        x = mr_multiply(p, t->w);
    t->d = row_sum(x);
    x = t->w ? mr_subtract(t->w, t->d) : mr_negative(t->d);
    x = mr_multiply(p, x);
    if (t->p)
        x = mr_add(x, mr_multiply(t->p, centred(r)));
    t->u = mr__scores_unmasked(r, x);
}

static mr_array *
sinks_tangent(const mr_rule *r, const tangents *t)
{
    mr_array *x;

    if (!has_sinks(r))
        return MR_NONE;
    x = mr_multiply(mr__scores_rule_sinks(r), t->d);
    if (t->sink)
        x = mr_add(x, mr_multiply(t->sink, to_rows(r)));
    return as_result(r, mr_negative(mr_sum(x, MR_AXES(-1, -2), false)));
}

static mr_array *
back_jvp(const mr_rule *r, int i)
{
    mr_array *q = primal(r, 0), *k = primal(r, 1), *g = given(r), *x;
    mr_array *own = mr__scores_widened(r->tangent[i]);
    bool by_given = i == given_at(r);
    tangents t = {0};

    if (i > given_at(r))
        return MR_NONE;
    if (by_given)
        t.w = mr__scores_times_keys(own, primal(r, 2));
    else if (i == 2)
        t.w = mr__scores_times_keys(g, own);
    else
        weights_tangent(r, i, &t);
    if (r->which == 2) {
        if (by_given)
            x = mr__scores_times_queries(mr__scores_rule_weights(r), own, k);
        else if (i == 2)
            return MR_NONE;
        else
            x = mr__scores_times_queries(t.p, g, k);
        return as_result(r, x);
    }
    rows_tangent(r, &t);
    if (r->which == 3)
        return sinks_tangent(r, &t);
    if (r->which == 0) {
        x = mr__scores_times_values(t.u, k);
        if (i == 1)
            x = mr_add(x, mr__scores_times_values(to_scores(r), own));
    } else {
        x = mr__scores_times_queries(t.u, q, k);
        if (i == 0)
            x = mr_add(x, mr__scores_times_queries(to_scores(r), own, k));
    }
    return as_result(r, scaled(r, x));
}

/* The last input is what the others lead to. */
static int
back_follows(const mr_node *n, mr_rule_kind kind)
{
    return kind == MR_RULE_VMAP ? n->n_in : n->n_in - 1;
}

static mr_array *
back_vmap(const mr_batch *b)
{
    const mr_attention_back_params *of = mr__params(b->node);
    mr_list lead = {.n = of->lead.n + 1, .v = {b->size}};
    mr_attention_back_params p = {.of = of->of};
    mr_array *in[7];

    if (mr__scores_batch(b, 2, in) < 0)
        return NULL;
    for (int64_t i = 0; i < of->lead.n; i++)
        lead.v[i + 1] = of->lead.v[i];
    p.lead = mr__ints(&lead);
    return mr__node_new(b->node->op, &p, b->n_in, in);
}

static const mr_field back_fields[] = {
    MR_FIELD_OF(1, FLOAT, mr_attention_back_params, of, scale),
    MR_FIELD_OF(2, BOOL, mr_attention_back_params, of, causal),
    MR_FIELD_OF(3, BOOL, mr_attention_back_params, of, has_mask),
    MR_FIELD_OF(4, BOOL, mr_attention_back_params, of, has_sinks),
    MR_FIELD(5, DIMS, mr_attention_back_params, lead),
};

const mr_op mr__op_attention_back = {
    .id = MR_OP_ATTENTION_BACK,
    .version = 1,
    .n_in = -1,
    .n_out = 4,
    .name = "attention_back",
    MR__PARAMS(mr_attention_back_params, back_fields),
    .infer = back_infer,
    .vjp = back_vjp,
    .jvp = back_jvp,
    .vmap = back_vmap,
    .follows = back_follows,
};
