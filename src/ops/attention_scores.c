/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_scores.c -- the weights of attention, made of other operators.
 *
 * Query heads that share a key head are rows of one product: (B, Hq, Lq, D) is
 * seen as (B, Hkv, Hq / Hkv * Lq, D), so nothing is repeated.
 * Called by: attention.c, attention_back.c.  Calls: marram/ops.h.
 */
#include "array/dtype.h"
#include "base/error.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/attention.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

/* Scores below every number that a sum could notice: a row that is masked as a
 * whole stays finite, and gives the mean of the values. */
static mr_array *
masked_score(mr_dtype t)
{
    return mr__number(t, t == MR_FLOAT64 ? -0x1.fffffffffffffp1023
                                         : -0x1.fffffep127);
}

static mr_array *
apply_mask(mr_array *s, mr_array *mask)
{
    mr_text tm, ts;

    if (mask == NULL)
        return NULL;
    if ((mr_dtype)mask->dtype == MR_BOOL)
        mask = mr_where(mask, s, masked_score((mr_dtype)s->dtype));
    else
        mask = mr_add(s, mr__cast(mask, (mr_dtype)s->dtype));
    if (mask != NULL && (mask->ndim != 4 || mask->size != s->size))
        return mr__fail_null(MR_E_SHAPE,
                             "the mask makes scores of shape %s: it must "
                             "broadcast to theirs, %s",
                             mr__shape_of(mask, &tm), mr__shape_of(s, &ts));
    return mask;
}

/* Query i sees keys up to i + (Lkv - Lq). */
static mr_array *
apply_causal(mr_array *s)
{
    int64_t lq = s->dim[2], lk = s->dim[3];

    return apply_mask(s, mr_tri(lq, lk, lk - lq, MR_BOOL));
}

/* One logit a query head joins the row, as its last column. */
static mr_array *
softmax_with_sinks(mr_array *s, mr_array *sinks)
{
    mr_list shape = mr__dims(s);
    mr_array *extra;

    extra = mr_reshape(mr__cast(sinks, (mr_dtype)s->dtype),
                       MR_SHAPE(sinks->dim[0], s->dim[1], 1, 1));
    shape.v[3] = 1;
    extra = mr_broadcast_to(extra, mr__shape(&shape));
    s = mr_concatenate(((mr_array *[]){s, extra}), 2, 3);
    return mr_softmax(s, MR_AXES(-1), true);
}

/* (B, Hkv, rows, n) and (B, Hq, Lq, n) hold the same in the same order. */
static mr_array *
by_key_head(mr_array *x, const mr_array *k)
{
    int64_t rows;

    if (x == NULL)
        return NULL;
    rows = x->dim[1] / k->dim[1] * x->dim[2];
    return mr_reshape(x, MR_SHAPE(x->dim[0], k->dim[1], rows, x->dim[3]));
}

/* (B, Hq, rows, n) from the products of a key head. */
static mr_array *
by_query_head(mr_array *x, const mr_array *q)
{
    return x == NULL ? NULL
                     : mr_reshape(x, MR_SHAPE(q->dim[0], q->dim[1], q->dim[2],
                                              x->dim[3]));
}

/* softmax(scale q k^T + mask), with a last column of sinks where there are
 * such; mask and sinks as the operator has them, or MR_NONE. */
mr_array *
mr__scores_weights(mr_array *q, mr_array *k, double scale, mr_array *mask,
                   bool causal, mr_array *sinks)
{
    mr_array *s;

    if (q == NULL || k == NULL)
        return NULL;
    s = mr_matmul(by_key_head(mr__scale(q, scale), k), mr_swapaxes(k, -1, -2));
    s = by_query_head(s, q);
    if (s != NULL && causal)
        s = apply_causal(s);
    if (s != NULL && mr__given(mask))
        s = apply_mask(s, mask);
    if (s == NULL)
        return NULL;
    return mr__given(sinks) ? softmax_with_sinks(s, sinks)
                            : mr_softmax(s, MR_AXES(-1), true);
}

/* Without the column of sinks. */
mr_array *
mr__scores_of_keys(mr_array *p, const mr_array *k)
{
    if (p == NULL || p->dim[3] == k->dim[2])
        return p;
    return mr__slice_one(p, 3, MR_INT_NONE, -1, 1);
}

mr_array *
mr__scores_widened(mr_array *x)
{
    return x == NULL ? NULL : mr__cast(x, MR_FLOAT32);
}

static mr_array *
rule_mask(const mr_rule *r)
{
    const mr_attention_params *p = mr__params(r->node);

    return p->has_mask ? r->primal[3] : MR_NONE;
}

static mr_array *
rule_sinks(const mr_rule *r)
{
    const mr_attention_params *p = mr__params(r->node);

    return p->has_sinks ? r->primal[3 + p->has_mask] : MR_NONE;
}

/* The weights once more, in float32. */
static mr_array *
rule_weights(const mr_rule *r)
{
    const mr_attention_params *p = mr__params(r->node);

    return mr__scores_weights(mr__scores_widened(r->primal[0]),
                              mr__scores_widened(r->primal[1]), p->scale,
                              rule_mask(r), p->causal, rule_sinks(r));
}

mr_array *
mr__scores_rule_weights(const mr_rule *r)
{
    return mr__scores_of_keys(mr_rule_once(r, 0, rule_weights), r->primal[1]);
}

/* The weight of the sink of each row. */
mr_array *
mr__scores_rule_sinks(const mr_rule *r)
{
    mr_array *p = mr_rule_once(r, 0, rule_weights);

    return p == NULL ? NULL : mr__slice_one(p, 3, -1, MR_INT_NONE, 1);
}

/* x (B, Hq, Lq, D) times y (B, Hkv, Lk, D), transposed. */
mr_array *
mr__scores_times_keys(mr_array *x, mr_array *y)
{
    mr_array *s;

    if (x == NULL || y == NULL)
        return NULL;
    s = mr_matmul(by_key_head(x, y), mr_swapaxes(y, -1, -2));
    return by_query_head(s, x);
}

/* Weights (B, Hq, Lq, Lk) times y (B, Hkv, Lk, D). */
mr_array *
mr__scores_times_values(mr_array *p, mr_array *y)
{
    if (p == NULL || y == NULL)
        return NULL;
    return by_query_head(mr_matmul(by_key_head(p, y), y), p);
}

/* Weights, transposed, times x (B, Hq, Lq, D): (B, Hkv, Lk, D). */
mr_array *
mr__scores_times_queries(mr_array *p, mr_array *x, const mr_array *k)
{
    if (p == NULL || x == NULL)
        return NULL;
    return mr_matmul(mr_swapaxes(by_key_head(p, k), -1, -2), by_key_head(x, k));
}

/* Slopes of scores that a mask dropped are zero. */
mr_array *
mr__scores_unmasked(const mr_rule *r, mr_array *s)
{
    const mr_attention_params *p = mr__params(r->node);
    mr_array *mask = rule_mask(r);

    if (s != NULL && p->causal) {
        int64_t lq = s->dim[2], lk = s->dim[3];

        s = mr__masked(mr_tri(lq, lk, lk - lq, MR_BOOL), s);
    }
    if (s != NULL && p->has_mask && (mr_dtype)mask->dtype == MR_BOOL)
        s = mr__masked(mask, s);
    return s;
}

/* ---- batches ---------------------------------------------------------------
 */

/* (N, B, ...) as (N * B, ...); an axis 1 of size 1 is made B long. */
static mr_array *
batch_joined(mr_array *x, int64_t b)
{
    mr_list shape;

    if (x == NULL)
        return NULL;
    shape = mr__dims(x);
    shape.v[1] = b;
    return mr_flatten(mr_broadcast_to(x, mr__shape(&shape)), 0, 1);
}

int64_t
mr__scores_batch(const mr_batch *b, int n_tail, mr_array **in)
{
    mr_array *q = mr__batch_in(b, 0);
    int64_t own = q == NULL ? 0 : q->dim[1];

    for (int i = 0; i < b->n_in; i++) {
        bool of_all = i < 3 || i >= b->n_in - n_tail;

        in[i] = b->in[i];
        /* one mask for all entries stays one */
        if (of_all || b->batched[i] || in[i]->dim[0] != 1)
            in[i] = batch_joined(mr__batch_in(b, i), own);
        if (in[i] == NULL)
            return -1;
    }
    return own;
}
