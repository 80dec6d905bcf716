/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c -- scaled dot-product attention.
 *
 * float32 and halves have an operator, whose kernel never holds the scores,
 * and so does its way back (attention_back.c); float64 is composed of products
 * and a softmax, and so are the gradient of a mask and the tangents, in
 * float32.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include "ops/attention.h"
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

/* ---- checks ----------------------------------------------------------------
 */

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

/* What comes back to each row's mean: the output times its cotangent. */
static mr_array *
back_to_rows(const mr_rule *r)
{
    return mr_sum(mr_multiply(mr__scores_widened(r->output[0]),
                              mr__scores_widened(r->cotangent[0])),
                  MR_AXES(-1), true);
}

/* What comes back to the scores. */
static mr_array *
back_to_scores(const mr_rule *r)
{
    mr_array *back = mr__scores_times_keys(mr__scores_widened(r->cotangent[0]),
                                           mr__scores_widened(r->primal[2]));

    return mr_multiply(mr__scores_rule_weights(r),
                       mr_subtract(back, back_to_rows(r)));
}

/* All gradients but the mask's, in one go. */
static mr_array *
way_back(const mr_rule *r)
{
    const mr_attention_params *of = mr__params(r->node);
    mr_attention_back_params p = {.of = *of};
    mr_array *in[7];

    for (int i = 0; i < r->n_in; i++)
        in[i] = r->primal[i];
    in[r->n_in] = r->cotangent[0];
    in[r->n_in + 1] = r->output[0];
    return mr__node_new(&mr__op_attention_back, &p, r->n_in + 2, in);
}

static mr_array *
attention_vjp(const mr_rule *r, int i)
{
    const mr_attention_params *p = mr__params(r->node);
    const mr_array *like = r->primal[i];
    mr_array *c;

    if (i == 3 && p->has_mask) {
        c = mr__sum_to(back_to_scores(r), 4, like->dim);
    } else {
        c = mr_rule_once(r, 1, way_back);
        c = c == NULL ? NULL : mr__node_output(c, i < 3 ? i : 3);
        if (i >= 3)
            c = mr__sum_to(c, 2, like->dim);
    }
    return c == NULL ? NULL : mr__cast(c, (mr_dtype)like->dtype);
}

/* The tangent of the scores, from that of q, k or the mask. */
static mr_array *
scores_tangent(const mr_rule *r, int i)
{
    const mr_attention_params *p = mr__params(r->node);
    mr_array *q = mr__scores_widened(r->primal[0]),
             *k = mr__scores_widened(r->primal[1]);
    mr_array *t = mr__scores_widened(r->tangent[i]);

    if (i == 3)
        return t;
    t = i == 0 ? mr__scores_times_keys(t, k) : mr__scores_times_keys(q, t);
    return mr__scores_unmasked(r, t == NULL ? NULL : mr__scale(t, p->scale));
}

static mr_array *
attention_jvp(const mr_rule *r, int i)
{
    const mr_attention_params *p = mr__params(r->node);
    mr_array *w = mr__scores_rule_weights(r),
             *v = mr__scores_widened(r->primal[2]), *t, *y;

    if (i == 2) {
        y = mr__scores_times_values(w, mr__scores_widened(r->tangent[2]));
    } else if (i == 3 + p->has_mask) {
        t = mr_expand_dims(mr__scores_widened(r->tangent[i]), MR_AXES(-1, -2));
        t = mr_multiply(mr__scores_rule_sinks(r), t);
        y = mr__scores_times_values(mr_negative(mr_multiply(w, t)), v);
    } else {
        t = mr_multiply(w, scores_tangent(r, i));
        t = mr_subtract(t, mr_multiply(w, mr_sum(t, MR_AXES(-1), true)));
        y = mr__scores_times_values(t, v);
    }
    return y == NULL ? NULL : mr__cast(y, (mr_dtype)r->primal[0]->dtype);
}

static mr_array *
attention_vmap(const mr_batch *b)
{
    mr_array *in[7], *y;
    int64_t own = mr__scores_batch(b, 0, in);

    if (own < 0)
        return NULL;
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
    return mr__scores_times_values(
        mr__scores_of_keys(
            mr__scores_weights(in[0], in[1], scale, mask, causal, sinks),
            in[1]),
        in[2]);
}
