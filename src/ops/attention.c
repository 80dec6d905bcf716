/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c -- scaled dot-product attention.
 *
 * float32 and halves have an operator, whose kernel never holds the scores;
 * float64 is composed of products and a softmax, and so are all rules, in
 * float32.  Query heads that share a key head are rows of one product: (B, Hq,
 * Lq, D) is seen as (B, Hkv, Hq / Hkv * Lq, D), so nothing is repeated.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include "array/dtype.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

/* ---- scores, made of other operators
 * -------------------------------------------- */

static mr_code
check_attention(const mr_array *q, const mr_array *k, const mr_array *v)
{
    const mr_array *x[3] = {q, k, v};
    bool fits = q->ndim == 4 && k->ndim == 4 && v->ndim == 4;
    mr_text tq, tk, tv;

    for (int i = 0; i < 3; i++)
        if (!mr__dtype_is_inexact((mr_dtype)x[i]->dtype) ||
            mr__dtype_is_complex((mr_dtype)x[i]->dtype))
            return mr__fail(MR_E_DTYPE, "needs real floating numbers, got %s",
                            mr_dtype_name((mr_dtype)x[i]->dtype));
    fits = fits && q->dim[0] == k->dim[0] && q->dim[0] == v->dim[0] &&
           k->dim[1] == v->dim[1] && k->dim[2] == v->dim[2] &&
           q->dim[3] == k->dim[3] && k->dim[1] > 0 &&
           q->dim[1] % k->dim[1] == 0;
    if (!fits)
        return mr__fail(MR_E_SHAPE,
                        "shapes %s, %s, %s: needs q (B, Hq, Lq, D), k (B, Hkv, "
                        "Lkv, D), v (B, Hkv, Lkv, Dv), Hq a multiple of Hkv",
                        mr__shape_of(q, &tq), mr__shape_of(k, &tk),
                        mr__shape_of(v, &tv));
    return MR_OK;
}

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
static mr_array *
weights(mr_array *q, mr_array *k, double scale, mr_array *mask, bool causal,
        mr_array *sinks)
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
static mr_array *
of_keys(mr_array *p, const mr_array *k)
{
    if (p == NULL || p->dim[3] == k->dim[2])
        return p;
    return mr__slice_one(p, 3, MR_INT_NONE, -1, 1);
}

/* -- attention ------------------------------------------------------------- */

static const mr_field attention_fields[] = {
    MR_FIELD(1, FLOAT, mr_attention_params, scale),
    MR_FIELD(2, BOOL, mr_attention_params, causal),
    MR_FIELD(3, BOOL, mr_attention_params, has_mask),
    MR_FIELD(4, BOOL, mr_attention_params, has_sinks),
};

static mr_code
attention_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *q = c->in[0], *v = c->in[2];

    mr__aval_shape(out, (mr_dtype)q->dtype, 4,
                   (int64_t[]){q->dim[0], q->dim[1], q->dim[2], v->dim[3]});
    return MR_OK;
}

static mr_array *
widened(mr_array *x)
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

    return weights(widened(r->primal[0]), widened(r->primal[1]), p->scale,
                   rule_mask(r), p->causal, rule_sinks(r));
}

static mr_array *
key_weights(const mr_rule *r)
{
    return of_keys(mr_rule_once(r, 0, rule_weights), r->primal[1]);
}

/* The weight of the sink of each row. */
static mr_array *
sink_weights(const mr_rule *r)
{
    mr_array *p = mr_rule_once(r, 0, rule_weights);

    return p == NULL ? NULL : mr__slice_one(p, 3, -1, MR_INT_NONE, 1);
}

/* x (B, Hq, Lq, D) times y (B, Hkv, Lk, D), transposed. */
static mr_array *
times_keys(mr_array *x, mr_array *y)
{
    mr_array *s;

    if (x == NULL || y == NULL)
        return NULL;
    s = mr_matmul(by_key_head(x, y), mr_swapaxes(y, -1, -2));
    return by_query_head(s, x);
}

/* Weights (B, Hq, Lq, Lk) times y (B, Hkv, Lk, D). */
static mr_array *
times_values(mr_array *p, mr_array *y)
{
    if (p == NULL || y == NULL)
        return NULL;
    return by_query_head(mr_matmul(by_key_head(p, y), y), p);
}

/* Weights, transposed, times x (B, Hq, Lq, D): (B, Hkv, Lk, D). */
static mr_array *
times_queries(mr_array *p, mr_array *x, const mr_array *k)
{
    if (p == NULL || x == NULL)
        return NULL;
    return mr_matmul(mr_swapaxes(by_key_head(p, k), -1, -2), by_key_head(x, k));
}

/* Slopes of scores that a mask dropped are zero. */
static mr_array *
unmasked(const mr_rule *r, mr_array *s)
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

/* What comes back to each row's mean: the output times its cotangent. */
static mr_array *
back_to_rows(const mr_rule *r)
{
    return mr_sum(mr_multiply(widened(r->output[0]), widened(r->cotangent[0])),
                  MR_AXES(-1), true);
}

/* What comes back to the scores. */
static mr_array *
back_to_scores(const mr_rule *r)
{
    mr_array *back =
        times_keys(widened(r->cotangent[0]), widened(r->primal[2]));

    return mr_multiply(key_weights(r),
                       mr_subtract(back, mr_rule_once(r, 2, back_to_rows)));
}

static mr_array *
attention_vjp(const mr_rule *r, int i)
{
    const mr_attention_params *p = mr__params(r->node);
    mr_array *k = widened(r->primal[1]), *c = NULL;
    const mr_array *like = r->primal[i];

    if (i == 2) {
        c = times_queries(key_weights(r), widened(r->cotangent[0]), k);
    } else if (i == 3 + p->has_mask) {
        c = mr_multiply(sink_weights(r), mr_rule_once(r, 2, back_to_rows));
        c = mr__sum_to(mr_negative(c), 4,
                       (int64_t[]){like->dim[0], like->dim[1], 1, 1});
        c = mr_squeeze(c, MR_AXES(2, 3));
    } else {
        c = mr_rule_once(r, 1, back_to_scores);
        if (i == 3)
            c = mr__sum_to(c, 4, like->dim);
        else
            c = unmasked(r, c);
        if (i == 0)
            c = mr__scale(times_values(c, k), p->scale);
        if (i == 1)
            c = mr__scale(times_queries(c, widened(r->primal[0]), k), p->scale);
    }
    return c == NULL ? NULL : mr__cast(c, (mr_dtype)like->dtype);
}

/* The tangent of the scores, from that of q, k or the mask. */
static mr_array *
scores_tangent(const mr_rule *r, int i)
{
    const mr_attention_params *p = mr__params(r->node);
    mr_array *q = widened(r->primal[0]), *k = widened(r->primal[1]);
    mr_array *t = widened(r->tangent[i]);

    if (i == 3)
        return t;
    t = i == 0 ? times_keys(t, k) : times_keys(q, t);
    return unmasked(r, t == NULL ? NULL : mr__scale(t, p->scale));
}

static mr_array *
attention_jvp(const mr_rule *r, int i)
{
    const mr_attention_params *p = mr__params(r->node);
    mr_array *w = key_weights(r), *v = widened(r->primal[2]), *t, *y;

    if (i == 2) {
        y = times_values(w, widened(r->tangent[2]));
    } else if (i == 3 + p->has_mask) {
        t = mr_expand_dims(widened(r->tangent[i]), MR_AXES(-1, -2));
        t = mr_multiply(sink_weights(r), t);
        y = times_values(mr_negative(mr_multiply(w, t)), v);
    } else {
        t = mr_multiply(w, scores_tangent(r, i));
        t = mr_subtract(t, mr_multiply(w, mr_sum(t, MR_AXES(-1), true)));
        y = times_values(t, v);
    }
    return y == NULL ? NULL : mr__cast(y, (mr_dtype)r->primal[0]->dtype);
}

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

static mr_array *
attention_vmap(const mr_batch *b)
{
    mr_array *in[5], *y;
    int64_t own = 0;

    for (int i = 0; i < b->n_in; i++) {
        in[i] = b->in[i];
        if (i < 3) {
            in[i] = mr__batch_in(b, i);
            own = in[i] == NULL ? 0 : in[i]->dim[1];
        }
        /* one mask for all entries stays one */
        if (i < 3 || b->batched[i] || in[i]->dim[0] != 1)
            in[i] = batch_joined(mr__batch_in(b, i), own);
        if (in[i] == NULL)
            return NULL;
    }
    y = mr__node_new(b->node->op, mr__params(b->node), b->n_in, in);
    return y == NULL ? NULL : mr_unflatten(y, 0, MR_SHAPE(b->size, own));
}

const mr_op mr__op_attention = {
    .id = MR_OP_ATTENTION,
    .version = 1,
    .n_in = -1,
    .name = "attention",
    MR__PARAMS(mr_attention_params, attention_fields),
    .infer = attention_infer,
    .vjp = attention_vjp,
    .jvp = attention_jvp,
    .vmap = attention_vmap,
};

/* ---- the door
 * ------------------------------------------------------------------ */

/* With four axes, each of the scores' size or 1; floating or bool. */
static mr_array *
mask_given(mr_array *mask, const mr_array *q, const mr_array *k)
{
    int64_t dim[4] = {q->dim[0], q->dim[1], q->dim[2], k->dim[2]};
    mr_dtype t = (mr_dtype)mask->dtype;
    int32_t first = 4 - mask->ndim;
    bool fits = first >= 0;
    mr_text text;

    for (int32_t i = 0; fits && i < mask->ndim; i++)
        fits = mask->dim[i] == 1 || mask->dim[i] == dim[first + i];
    if (!fits)
        return mr__fail_null(
            MR_E_SHAPE,
            "a mask of shape %s must broadcast to that of the scores, (%lld, "
            "%lld, %lld, %lld)",
            mr__shape_of(mask, &text), (long long)dim[0], (long long)dim[1],
            (long long)dim[2], (long long)dim[3]);
    for (int32_t i = 0; mask != NULL && i < first; i++)
        mask = mr_expand_dims(mask, MR_AXES(0));
    if (mask == NULL || t == MR_BOOL || t == MR_FLOAT16 || t == MR_BFLOAT16 ||
        t == MR_FLOAT32)
        return mask;
    return mr__cast(mask, mr__promote((mr_dtype)q->dtype, MR_FLOAT32));
}

static mr_array *
sinks_given(mr_array *sinks, const mr_array *q, mr_dtype t)
{
    if (sinks->size != q->dim[1])
        return mr__fail_null(
            MR_E_SHAPE, "%lld sinks for %lld query heads: needs one for each",
            (long long)sinks->size, (long long)q->dim[1]);
    return mr_reshape(mr__cast(sinks, t), MR_SHAPE(1, q->dim[1]));
}

mr_array *
mr__build_scaled_dot_product_attention(mr_array *q, mr_array *k, mr_array *v,
                                       double scale, mr_array *mask,
                                       bool causal, mr_array *sinks)
{
    mr_attention_params p = {scale, causal, mr__given(mask), mr__given(sinks)};
    mr_array *in[5];
    mr_dtype t;
    int n = 3;

    if (check_attention(q, k, v) != MR_OK)
        return NULL;
    t = mr__promote(mr__promote((mr_dtype)q->dtype, (mr_dtype)k->dtype),
                    (mr_dtype)v->dtype);
    in[0] = mr__cast(q, t);
    in[1] = mr__cast(k, t);
    in[2] = mr__cast(v, t);
    if (in[0] == NULL)
        return NULL;
    if (p.has_mask)
        in[n++] = mask = mask_given(mask, in[0], k);
    if (p.has_sinks)
        in[n++] = sinks = sinks_given(sinks, q, mr__promote(t, MR_FLOAT32));
    for (int i = 0; i < n; i++)
        if (in[i] == NULL)
            return NULL;
    if (t != MR_FLOAT64)
        return mr__node_new(&mr__op_attention, &p, n, in);
    return times_values(
        of_keys(weights(in[0], in[1], scale, mask, causal, sinks), in[1]),
        in[2]);
}
