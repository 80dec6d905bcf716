/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c -- softmax and the normalisations: operators on rows, the last axis.
 *
 * Forward each is one kernel; the rules are public operators, which fuse into
 * passes over rows and can be differentiated again.  Rules compute half types
 * in float32, as the kernels do.
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

/* In the type that half types are computed in. */
static mr_array *
widened(mr_array *x)
{
    return x == NULL ? NULL
                     : mr__cast(x, mr__accumulate_dtype((mr_dtype)x->dtype));
}

static mr_array *
row_mean(mr_array *x)
{
    return mr_mean(x, MR_AXES(-1), true);
}

/* -- softmax --------------------------------------------------------------- */

static mr_array *
complex_softmax(mr_array *a, mr_axes axis)
{
    mr_array *top = mr_stop_gradient(mr_max(mr_real(a), axis, true));
    mr_array *e = mr_exp(mr_subtract(a, top));

    return mr_divide(e, mr_sum(e, axis, true));
}

static const mr_field axis_fields[] = {
    MR_FIELD(1, AXIS, mr_axis_params, axis),
};

static mr_array *
softmax_node(mr_array *x, int32_t axis)
{
    mr_axis_params p = {axis};

    return x == NULL ? NULL : mr__node_new(&mr__op_softmax, &p, 1, &x);
}

/* Several axes: those of the mask as one, last, and back again. */
static mr_array *
softmax_over(mr_array *a, uint32_t mask)
{
    mr_list order = {.n = 0}, back = {.n = a->ndim}, shape = {.n = 0};

    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < a->ndim; i++)
            if ((int)(mask >> i & 1) == pass)
                order.v[order.n++] = i;
    for (int64_t i = 0; i < order.n; i++) {
        back.v[order.v[i]] = i;
        shape.v[shape.n++] = a->dim[order.v[i]];
    }
    a = mr_transpose(a, mr__ints(&order));
    a = mr_flatten(a, a == NULL ? 0 : a->ndim - __builtin_popcount(mask), -1);
    if (a != NULL)
        a = softmax_node(a, a->ndim - 1);
    a = mr_reshape(a, mr__shape(&shape));
    return mr_transpose(a, mr__ints(&back));
}

mr_array *
mr__build_softmax(mr_array *a, mr_axes axis, bool precise)
{
    mr_dtype t = mr__to_inexact((mr_dtype)a->dtype);
    uint32_t mask;

    (void)precise; /* half types are always computed in float32 */
    if (!mr__axes_mask(axis, a->ndim, &mask))
        return NULL;
    a = mr__cast(a, t);
    if (a == NULL || mask == 0) /* each element is a row of its own */
        return a == NULL ? NULL : mr_exp(mr_subtract(a, a));
    if (mr__dtype_is_complex(t))
        return complex_softmax(a, axis);
    if ((mask & (mask - 1)) == 0)
        return softmax_node(a, (int32_t)__builtin_ctz(mask));
    return softmax_over(a, mask);
}

/* y * (v - sum(y * v)): the Jacobian is symmetric, so it serves both ways. */
static mr_array *
softmax_part(const mr_rule *r, mr_array *v)
{
    const mr_axis_params *p = mr__params(r->node);
    mr_array *y = widened(r->output[0]), *yv;

    yv = mr_multiply(y, widened(v));
    yv = mr_subtract(yv, mr_multiply(y, mr_sum(yv, MR_AXES(p->axis), true)));
    return mr__cast(yv, (mr_dtype)r->primal[0]->dtype);
}

static mr_array *
softmax_vjp(const mr_rule *r, int i)
{
    (void)i;
    return softmax_part(r, r->cotangent[0]);
}

static mr_array *
softmax_jvp(const mr_rule *r, int i)
{
    return softmax_part(r, r->tangent[i]);
}

static mr_array *
softmax_vmap(const mr_batch *b)
{
    return softmax_node(
        b->in[0], ((const mr_axis_params *)mr__params(b->node))->axis + 1);
}

const mr_op mr__op_softmax = {
    .id = MR_OP_SOFTMAX,
    .version = 1,
    .n_in = 1,
    .name = "softmax",
    MR__PARAMS(mr_axis_params, axis_fields),
    .infer = mr__infer_same,
    .vjp = softmax_vjp,
    .jvp = softmax_jvp,
    .vmap = softmax_vmap,
};

/* ---- layer_norm, rms_norm: shared
 * ------------------------------------------------ */

/* Inputs: x, then weight and bias where there are such. */
static mr_array *
norm_node(const mr_op *op, mr_array *x, mr_array *weight, mr_array *bias,
          double eps)
{
    mr_norm_params p = {eps, mr__given(weight), mr__given(bias)};
    mr_array *in[3] = {x};
    int n = 1;

    if (p.has_weight)
        in[n++] = weight;
    if (p.has_bias)
        in[n++] = bias;
    for (int i = 0; i < n; i++)
        if (in[i] == NULL)
            return NULL;
    return mr__node_new(op, &p, n, in);
}

static mr_code
norm_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *x = c->in[0];
    mr_text tw, tx;

    if (x->ndim < 1)
        return mr__fail(MR_E_VALUE, "needs 1 axis or more, got 0");
    for (int i = 1; i < c->n_in; i++)
        if (c->in[i]->ndim != 1 || c->in[i]->dim[0] != x->dim[x->ndim - 1])
            return mr__fail(MR_E_SHAPE,
                            "a weight or bias of shape %s for shape %s: needs "
                            "(%lld,)",
                            mr__shape_of(c->in[i], &tw), mr__shape_of(x, &tx),
                            (long long)x->dim[x->ndim - 1]);
    mr__aval_like(out, x);
    return MR_OK;
}

static mr_array *
norm_build(const mr_op *op, mr_array *x, mr_array *weight, mr_array *bias,
           double eps)
{
    mr_dtype t = (mr_dtype)x->dtype;

    if (mr__given(weight))
        t = mr__promote(t, (mr_dtype)weight->dtype);
    if (mr__given(bias))
        t = mr__promote(t, (mr_dtype)bias->dtype);
    if (!mr__dtype_is_inexact((mr_dtype)x->dtype) || mr__dtype_is_complex(t))
        return mr__fail_null(
            MR_E_DTYPE, "needs real floating numbers, got %s",
            mr_dtype_name(mr__dtype_is_complex(t) ? t : (mr_dtype)x->dtype));
    return norm_node(op, mr__cast(x, t),
                     mr__given(weight) ? mr__cast(weight, t) : weight,
                     mr__given(bias) ? mr__cast(bias, t) : bias, eps);
}

static bool
is_layer_norm(const mr_rule *r)
{
    return r->node->op == &mr__op_layer_norm;
}

static mr_array *
norm_centred(const mr_rule *r)
{
    mr_array *x = widened(r->primal[0]);

    return is_layer_norm(r) ? mr_subtract(x, row_mean(x)) : x;
}

static mr_array *
norm_inverse(const mr_rule *r)
{
    const mr_norm_params *p = mr__params(r->node);
    mr_array *c = mr_rule_once(r, 0, norm_centred);

    return mr_rsqrt(mr__shift(row_mean(mr_square(c)), p->eps));
}

/* The rows before weight and bias. */
static mr_array *
norm_rows(const mr_rule *r)
{
    return mr_multiply(mr_rule_once(r, 0, norm_centred),
                       mr_rule_once(r, 1, norm_inverse));
}

/* The map of the derivative by x, without the weight; it is symmetric. */
static mr_array *
norm_slope(const mr_rule *r, mr_array *v)
{
    mr_array *rows = mr_rule_once(r, 2, norm_rows);
    mr_array *along = mr_multiply(rows, row_mean(mr_multiply(v, rows)));

    if (is_layer_norm(r))
        v = mr_subtract(v, row_mean(v));
    return mr_multiply(mr_rule_once(r, 1, norm_inverse), mr_subtract(v, along));
}

static mr_array *
norm_vjp(const mr_rule *r, int i)
{
    const mr_norm_params *p = mr__params(r->node);
    mr_array *c = widened(r->cotangent[0]);

    if (i == 0) {
        if (p->has_weight)
            c = mr_multiply(c, widened(r->primal[1]));
        c = norm_slope(r, c);
    } else {
        if (i == 1 && p->has_weight)
            c = mr_multiply(c, mr_rule_once(r, 2, norm_rows));
        c = mr__sum_to(c, 1, r->primal[i]->dim);
    }
    return c == NULL ? NULL : mr__cast(c, (mr_dtype)r->primal[i]->dtype);
}

static mr_array *
norm_jvp(const mr_rule *r, int i)
{
    const mr_norm_params *p = mr__params(r->node);
    const mr_array *x = r->primal[0];
    mr_array *t = widened(r->tangent[i]);

    if (i == 0) {
        t = norm_slope(r, t);
        if (p->has_weight)
            t = mr_multiply(t, widened(r->primal[1]));
    } else if (i == 1 && p->has_weight)
        t = mr_multiply(t, mr_rule_once(r, 2, norm_rows));
    t = t == NULL ? NULL : mr__cast(t, (mr_dtype)x->dtype);
    return mr__broadcast(t, x->ndim, x->dim);
}

/* (batch, n) to (batch, 1, ..., n), to line up with batched rows. */
static mr_array *
batched_row(mr_array *w, int32_t ndim)
{
    mr_list shape = {.n = ndim};

    for (int32_t i = 0; i < ndim; i++)
        shape.v[i] = i == 0 ? w->dim[0] : i == ndim - 1 ? w->dim[1] : 1;
    return mr_reshape(w, mr__shape(&shape));
}

/* A weight for each of the batch is applied to plain rows, in float32. */
static mr_array *
norm_vmap(const mr_batch *b)
{
    const mr_norm_params *p = mr__params(b->node);
    mr_norm_params plain = {p->eps, false, false};
    mr_array *x = mr__batch_in(b, 0), *y, *w;
    bool mapped = false;

    for (int i = 1; i < b->n_in; i++)
        mapped = mapped || b->batched[i];
    if (!mapped)
        return mr__node_new(b->node->op, p, b->n_in, b->in);
    y = widened(x);
    if (y == NULL)
        return NULL;
    y = mr__node_new(b->node->op, &plain, 1, &y);
    for (int i = 1; y != NULL && i < b->n_in; i++) {
        w = widened(b->in[i]);
        if (b->batched[i] && w != NULL)
            w = batched_row(w, x->ndim);
        y = i == 1 && p->has_weight ? mr_multiply(y, w) : mr_add(y, w);
    }
    return y == NULL ? NULL : mr__cast(y, (mr_dtype)x->dtype);
}

static const mr_field norm_fields[] = {
    MR_FIELD(1, FLOAT, mr_norm_params, eps),
    MR_FIELD(2, BOOL, mr_norm_params, has_weight),
    MR_FIELD(3, BOOL, mr_norm_params, has_bias),
};

/* -- layer_norm ------------------------------------------------------------ */

mr_array *
mr__build_layer_norm(mr_array *x, mr_array *weight, mr_array *bias, double eps)
{
    return norm_build(&mr__op_layer_norm, x, weight, bias, eps);
}

const mr_op mr__op_layer_norm = {
    .id = MR_OP_LAYER_NORM,
    .version = 1,
    .n_in = -1,
    .name = "layer_norm",
    MR__PARAMS(mr_norm_params, norm_fields),
    .infer = norm_infer,
    .vjp = norm_vjp,
    .jvp = norm_jvp,
    .vmap = norm_vmap,
};

/* -- rms_norm -------------------------------------------------------------- */

mr_array *
mr__build_rms_norm(mr_array *x, mr_array *weight, double eps)
{
    return norm_build(&mr__op_rms_norm, x, weight, MR_NONE, eps);
}

const mr_op mr__op_rms_norm = {
    .id = MR_OP_RMS_NORM,
    .version = 1,
    .n_in = -1,
    .name = "rms_norm",
    MR__PARAMS(mr_norm_params, norm_fields),
    .infer = norm_infer,
    .vjp = norm_vjp,
    .jvp = norm_jvp,
    .vmap = norm_vmap,
};
