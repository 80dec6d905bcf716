/* SPDX-License-Identifier: Apache-2.0
 *
 * conv.c -- convolutions over 1 to 3 spatial axes.
 *
 * One operator, general enough to be its own derivative:
 *   by the input   the cotangent, with stride - 1 zeros between its entries,
 *                  against the kernel turned round with its channel axes
 *                  exchanged: strides and input dilation change places.
 *   by the weight  the input against the cotangent, with channels as batch and
 *                  batch as channels: stride and kernel dilation change
 *                  places; the rows beyond the kernel are cropped.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

#define MAX_SPATIAL 3

/* The parameters with room for their lists. */
typedef struct conv {
    mr_list stride, low, high, kernel_dilation, input_dilation;
    int64_t groups;
    bool flip;
} conv;

static mr_array *
conv_node(mr_array *x, mr_array *w, const conv *c)
{
    mr_conv_params p = {mr__ints(&c->stride),
                        mr__ints(&c->low),
                        mr__ints(&c->high),
                        mr__ints(&c->kernel_dilation),
                        mr__ints(&c->input_dilation),
                        c->groups,
                        c->flip};

    if (x == NULL || w == NULL)
        return NULL;
    return mr__node_new(&mr__op_conv_general, &p, 2, (mr_array *[]){x, w});
}

static mr_list
list_of(mr_ints v)
{
    mr_list l = {.n = v.n};

    memcpy(l.v, v.v, (size_t)v.n * sizeof *l.v);
    return l;
}

static conv
conv_of(const mr_node *n)
{
    const mr_conv_params *p = mr__params(n);

    return (conv){list_of(p->stride),
                  list_of(p->low),
                  list_of(p->high),
                  list_of(p->kernel_dilation),
                  list_of(p->input_dilation),
                  p->groups,
                  p->flip};
}

/* The size of n entries with dilation - 1 zeros between them, at most
 * INT64_MAX. */
static int64_t
spread(int64_t n, int64_t dilation)
{
    int64_t reach;

    if (n == 0)
        return 0;
    return __builtin_mul_overflow(n - 1, dilation, &reach) || reach == INT64_MAX
               ? INT64_MAX
               : reach + 1;
}

/* ---- checks and shapes
 * -------------------------------------------------------- */

static mr_code
check_steps(const char *what, mr_ints v, int64_t n)
{
    if (v.n != n)
        return mr__fail(
            MR_E_VALUE,
            "%lld numbers of %s: needs one for each of %lld spatial axes",
            (long long)v.n, what, (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (v.v[i] < 1 || v.v[i] > INT32_MAX)
            return mr__fail(MR_E_VALUE, "%s of %lld: needs 1 to 2^31 - 1", what,
                            (long long)v.v[i]);
    return MR_OK;
}

static mr_code
check_channels(const mr_array *x, const mr_array *w, int64_t groups)
{
    int64_t channels = x->dim[x->ndim - 1], each = w->dim[w->ndim - 1];

    if (groups < 1 || channels % groups != 0 || w->dim[0] % groups != 0 ||
        each != channels / groups)
        return mr__fail(
            MR_E_SHAPE,
            "%lld groups: %lld input channels and %lld outputs "
            "must divide, and the weight must have %lld channels, "
            "not %lld",
            (long long)groups, (long long)channels, (long long)w->dim[0],
            (long long)(groups < 1 ? 0 : channels / groups), (long long)each);
    return MR_OK;
}

static mr_code
check_kernel(int64_t kernel, int32_t axis)
{
    return kernel > 0
               ? MR_OK
               : mr__fail(MR_E_SHAPE, "axis %d: a kernel of 0: needs 1 or more",
                          (int)axis);
}

/* The entries of axis `axis` with the zeros between and around them. */
static mr_code
padded(const mr_array *x, const mr_conv_params *p, int32_t axis, int64_t *room)
{
    int64_t i = axis - 1, low = p->low.v[i], high = p->high.v[i];
    int64_t given = spread(x->dim[axis], p->input_dilation.v[i]);

    if (given < INT64_MAX && !__builtin_add_overflow(given, low, room) &&
        !__builtin_add_overflow(*room, high, room))
        return MR_OK;
    return mr__fail(MR_E_OVERFLOW,
                    "axis %d: %lld entries with input dilation %lld and "
                    "padding %lld and %lld: needs fewer than 2^63 in all",
                    (int)axis, (long long)x->dim[axis],
                    (long long)p->input_dilation.v[i], (long long)low,
                    (long long)high);
}

static mr_code
conv_infer(const mr_op_call *call, mr_aval *out)
{
    const mr_conv_params *p = call->params;
    const mr_array *x = call->in[0], *w = call->in[1];
    int32_t n = x->ndim - 2;
    mr_text tx, tw;

    if (n < 1 || n > MAX_SPATIAL || w->ndim != x->ndim)
        return mr__fail(MR_E_SHAPE,
                        "shapes %s and %s: needs (N, spatial..., C) with 1 to "
                        "3 spatial axes and (O, kernel..., C / groups)",
                        mr__shape_of(x, &tx), mr__shape_of(w, &tw));
    if (check_steps("stride", p->stride, n) != MR_OK ||
        check_steps("kernel dilation", p->kernel_dilation, n) != MR_OK ||
        check_steps("input dilation", p->input_dilation, n) != MR_OK ||
        check_channels(x, w, p->groups) != MR_OK)
        return mr__error_code();
    if (p->low.n != n || p->high.n != n)
        return mr__fail(MR_E_VALUE,
                        "%lld and %lld numbers of padding: needs one for each "
                        "of %d axes",
                        (long long)p->low.n, (long long)p->high.n, (int)n);
    mr__aval_like(out, x);
    out->dim[n + 1] = w->dim[0];
    for (int32_t i = 0; i < n; i++) {
        int64_t kernel = spread(w->dim[i + 1], p->kernel_dilation.v[i]);
        int64_t room = 0;

        if (check_kernel(w->dim[i + 1], i + 1) != MR_OK ||
            padded(x, p, i + 1, &room) != MR_OK)
            return mr__error_code();
        if (room < kernel)
            return mr__fail(MR_E_SHAPE,
                            "axis %d: a kernel of %lld does not fit in the "
                            "%lld entries with their padding",
                            (int)(i + 1), (long long)kernel, (long long)room);
        out->dim[i + 1] = (room - kernel) / p->stride.v[i] + 1;
    }
    return MR_OK;
}

/* ---- rules
 * ------------------------------------------------------------------------ */

/* (O, K..., C / g) to (C, K..., O / g): what group g maps stays in group g. */
static mr_array *
exchange_channels(mr_array *w, int64_t groups)
{
    int32_t n = w->ndim;
    mr_list split = {.n = n + 1}, order = {.n = n + 1}, shape = {.n = n};
    int64_t outs = w->dim[0] / groups, ins = w->dim[n - 1];

    split.v[0] = groups;
    split.v[1] = outs;
    for (int32_t i = 1; i < n; i++)
        split.v[i + 1] = w->dim[i];
    order.v[0] = 0;
    order.v[1] = n;
    for (int32_t i = 2; i < n; i++)
        order.v[i] = i;
    order.v[n] = 1;
    for (int32_t i = 1; i < n - 1; i++)
        shape.v[i] = w->dim[i];
    shape.v[0] = groups * ins;
    shape.v[n - 1] = outs;
    w = mr_transpose(mr_reshape(w, mr__shape(&split)), mr__ints(&order));
    return mr_reshape(w, mr__shape(&shape));
}

/* What comes back to x when g comes back to the output. */
static mr_array *
back_to_input(const conv *c, const mr_array *x, mr_array *w, mr_array *g)
{
    conv back = *c;

    if (w == NULL || g == NULL)
        return NULL;
    back.stride = c->input_dilation;
    back.input_dilation = c->stride;
    back.flip = !c->flip;
    for (int64_t i = 0; i < c->low.n; i++) {
        int64_t kernel = spread(w->dim[i + 1], c->kernel_dilation.v[i]);
        int64_t given = spread(g->dim[i + 1], c->stride.v[i]);
        int64_t want = spread(x->dim[i + 1], c->input_dilation.v[i]);

        back.low.v[i] = kernel - 1 - c->low.v[i];
        back.high.v[i] = want + kernel - 1 - given - back.low.v[i];
    }
    return conv_node(g, exchange_channels(w, c->groups), &back);
}

static mr_array *
input_vjp(const mr_rule *r)
{
    conv c = conv_of(r->node);

    return back_to_input(&c, r->primal[0], r->primal[1], r->cotangent[0]);
}

/* (N, S..., g * m) to (m, S..., g * N). */
static mr_array *
batch_as_channels(mr_array *x, int64_t groups)
{
    int32_t n = x->ndim;
    mr_list split = {.n = n + 1}, order = {.n = n + 1}, shape;
    int64_t each = x->dim[n - 1] / groups;

    shape = mr__dims(x);
    for (int32_t i = 0; i < n - 1; i++)
        split.v[i] = x->dim[i];
    split.v[n - 1] = groups;
    split.v[n] = each;
    order.v[0] = n;
    for (int32_t i = 1; i < n - 1; i++)
        order.v[i] = i;
    order.v[n - 1] = n - 1;
    order.v[n] = 0;
    shape.v[0] = each;
    shape.v[n - 1] = groups * x->dim[0];
    x = mr_transpose(mr_reshape(x, mr__shape(&split)), mr__ints(&order));
    return mr_reshape(x, mr__shape(&shape));
}

/* ---- the weight's gradient, in one go --------------------------------------
 */

/* Not for float64, nor where zeros lie between the entries of the input. */
static bool
has_weight_node(const conv *c, const mr_array *x)
{
    bool dense = (mr_dtype)x->dtype != MR_FLOAT64;

    for (int64_t i = 0; i < c->low.n; i++)
        dense = dense && c->input_dilation.v[i] == 1;
    return dense;
}

static mr_array *
weight_node(mr_array *x, mr_array *g, const conv *c, mr_ints kernel)
{
    mr_conv_weight_params p = {
        {mr__ints(&c->stride), mr__ints(&c->low), mr__ints(&c->high),
         mr__ints(&c->kernel_dilation), mr__ints(&c->input_dilation), c->groups,
         c->flip},
        kernel};

    if (x == NULL || g == NULL)
        return NULL;
    return mr__node_new(&mr__op_conv_weight, &p, 2, (mr_array *[]){x, g});
}

static mr_code
weight_infer(const mr_op_call *call, mr_aval *out)
{
    const mr_conv_weight_params *p = call->params;
    const mr_array *x = call->in[0], *g = call->in[1];
    int32_t n = x->ndim - 2;
    mr_text tx, tg;

    if (n < 1 || n > MAX_SPATIAL || g->ndim != x->ndim || p->kernel.n != n ||
        g->dim[0] != x->dim[0] || p->of.groups < 1 ||
        g->dim[n + 1] % p->of.groups != 0 || x->dim[n + 1] % p->of.groups != 0)
        return mr__fail(MR_E_SHAPE,
                        "shapes %s and %s with %d axes of a kernel and %lld "
                        "groups: needs (N, spatial..., C), (N, spatial..., O)",
                        mr__shape_of(x, &tx), mr__shape_of(g, &tg),
                        (int)p->kernel.n, (long long)p->of.groups);
    if (x->dtype != g->dtype)
        return mr__fail(MR_E_DTYPE, "%s and %s: needs one dtype",
                        mr_dtype_name((mr_dtype)x->dtype),
                        mr_dtype_name((mr_dtype)g->dtype));
    out->dtype = MR_FLOAT32;
    out->ndim = n + 2;
    out->dim[0] = g->dim[n + 1];
    for (int32_t i = 0; i < n; i++)
        out->dim[i + 1] = p->kernel.v[i];
    out->dim[n + 1] = x->dim[n + 1] / p->of.groups;
    return mr__check_shape(out->ndim, out->dim);
}

/* h is float32, whatever x and g are. */
static mr_array *
weight_node_vjp(const mr_rule *r, int i)
{
    conv c = conv_of(r->node);
    mr_array *x = r->primal[0], *g = r->primal[1], *h = r->cotangent[0];
    mr_dtype t = (mr_dtype)x->dtype;

    return mr__cast(i == 0 ? back_to_input(&c, x, h, mr__cast(g, MR_FLOAT32))
                           : conv_node(mr__cast(x, MR_FLOAT32), h, &c),
                    t);
}

static mr_array *
weight_node_jvp(const mr_rule *r, int i)
{
    const mr_conv_weight_params *p = mr__params(r->node);
    conv c = conv_of(r->node);

    return i == 0 ? weight_node(r->tangent[0], r->primal[1], &c, p->kernel)
                  : weight_node(r->primal[0], r->tangent[1], &c, p->kernel);
}

/* (B, N, S..., C) to (N, S..., B * C). */
static mr_array *
batch_to_channels(mr_array *x)
{
    x = mr_moveaxis(x, 0, -2);
    return x == NULL ? NULL : mr_flatten(x, x->ndim - 2, x->ndim - 1);
}

/* The batch becomes groups. */
static mr_array *
weight_node_vmap(const mr_batch *b)
{
    const mr_conv_weight_params *p = mr__params(b->node);
    conv c = conv_of(b->node);
    mr_array *y;

    c.groups *= b->size;
    if (b->size == 0)
        c.groups = 1;
    y = weight_node(batch_to_channels(mr__batch_in(b, 0)),
                    batch_to_channels(mr__batch_in(b, 1)), &c, p->kernel);
    return y == NULL
               ? NULL
               : mr_unflatten(
                     y, 0,
                     MR_SHAPE(b->size, b->size == 0 ? 0 : y->dim[0] / b->size));
}

static const mr_field weight_fields[] = {
    MR_FIELD_OF(1, INTS, mr_conv_weight_params, of, stride),
    MR_FIELD_OF(2, INTS, mr_conv_weight_params, of, low),
    MR_FIELD_OF(3, INTS, mr_conv_weight_params, of, high),
    MR_FIELD_OF(4, INTS, mr_conv_weight_params, of, kernel_dilation),
    MR_FIELD_OF(5, INTS, mr_conv_weight_params, of, input_dilation),
    MR_FIELD_OF(6, INT, mr_conv_weight_params, of, groups),
    MR_FIELD_OF(7, BOOL, mr_conv_weight_params, of, flip),
    MR_FIELD(8, DIMS, mr_conv_weight_params, kernel),
};

const mr_op mr__op_conv_weight = {
    .id = MR_OP_CONV_WEIGHT,
    .version = 1,
    .n_in = 2,
    .name = "conv_weight",
    MR__PARAMS(mr_conv_weight_params, weight_fields),
    .infer = weight_infer,
    .vjp = weight_node_vjp,
    .jvp = weight_node_jvp,
    .vmap = weight_node_vmap,
};

/* ---- the rules of conv_general ---------------------------------------------
 */

static mr_array *
weight_vjp(const mr_rule *r)
{
    mr_array *x = r->primal[0], *g = r->cotangent[0], *y;
    const mr_array *w = r->primal[1];
    conv c = conv_of(r->node), back = c;
    int32_t axes[MAX_SPATIAL], n = 0;

    if (has_weight_node(&c, x)) {
        y = weight_node(x, mr__cast(g, (mr_dtype)x->dtype), &c,
                        (mr_ints){w->dim + 1, c.low.n});
        return y == NULL ? NULL : mr__cast(y, (mr_dtype)w->dtype);
    }
    back.stride = c.kernel_dilation;
    back.kernel_dilation = c.stride;
    back.flip = false;
    for (int64_t i = 0; i < c.low.n; i++) {
        int64_t room = spread(x->dim[i + 1], c.input_dilation.v[i]) +
                       c.low.v[i] + c.high.v[i];
        int64_t kernel = spread(w->dim[i + 1], c.kernel_dilation.v[i]);
        int64_t outs = spread(g->dim[i + 1], c.stride.v[i]);

        back.high.v[i] = c.high.v[i] - (room - (outs + kernel - 1));
        axes[n++] = (int32_t)i + 1;
    }
    g = mr_swapaxes(g, 0, -1); /* (O, S..., N) */
    y = conv_node(batch_as_channels(x, c.groups), g, &back);
    y = mr_swapaxes(y, 0, -1); /* (O, K..., C / g) */
    return c.flip ? mr_flip(y, (mr_axes){axes, n}) : y;
}

static mr_array *
conv_vjp(const mr_rule *r, int i)
{
    return i == 0 ? input_vjp(r) : weight_vjp(r);
}

static mr_array *
conv_jvp(const mr_rule *r, int i)
{
    conv c = conv_of(r->node);

    return i == 0 ? conv_node(r->tangent[0], r->primal[1], &c)
                  : conv_node(r->primal[0], r->tangent[1], &c);
}

/* (B, N, ...) as (B * N, ...), and back. */
static mr_array *
fold_batch(mr_array *x)
{
    return mr_flatten(x, 0, 1);
}

static mr_array *
unfold_batch(mr_array *y, int64_t size)
{
    return y == NULL
               ? NULL
               : mr_unflatten(y, 0,
                              MR_SHAPE(size, size == 0 ? 0 : y->dim[0] / size));
}

/* A kernel for each of the batch: the batch becomes groups.  Output channels
 * come out as (B, groups, O / groups), so B is outside. */
static mr_array *
batched_kernels(const mr_batch *b, mr_array *w, conv c)
{
    mr_array *x = mr__batch_in(b, 0), *y;
    int32_t last;

    x = mr_moveaxis(x, 0, -2); /* (N, S..., B, C) */
    if (x == NULL)
        return NULL;
    x = mr_flatten(x, x->ndim - 2, x->ndim - 1);
    w = mr_flatten(w, 0, 1);
    c.groups *= b->size;
    y = conv_node(x, w, &c);
    if (y == NULL)
        return NULL;
    last = y->ndim - 1;
    y = mr_unflatten(y, last, MR_SHAPE(b->size, y->dim[last] / b->size));
    return mr_moveaxis(y, last, 0);
}

static mr_array *
conv_vmap(const mr_batch *b)
{
    conv c = conv_of(b->node);

    if (b->batched[1])
        return batched_kernels(b, b->in[1], c);
    return unfold_batch(conv_node(fold_batch(b->in[0]), b->in[1], &c), b->size);
}

static const mr_field conv_fields[] = {
    MR_FIELD(1, INTS, mr_conv_params, stride),
    MR_FIELD(2, INTS, mr_conv_params, low),
    MR_FIELD(3, INTS, mr_conv_params, high),
    MR_FIELD(4, INTS, mr_conv_params, kernel_dilation),
    MR_FIELD(5, INTS, mr_conv_params, input_dilation),
    MR_FIELD(6, INT, mr_conv_params, groups),
    MR_FIELD(7, BOOL, mr_conv_params, flip),
};

const mr_op mr__op_conv_general = {
    .id = MR_OP_CONV_GENERAL,
    .version = 1,
    .n_in = 2,
    .name = "conv",
    MR__PARAMS(mr_conv_params, conv_fields),
    .infer = conv_infer,
    .vjp = conv_vjp,
    .jvp = conv_jvp,
    .vmap = conv_vmap,
};

/* ---- bodies
 * ------------------------------------------------------------------------- */

/* One number for all axes, a number for each, or none for the default. */
static mr_code
per_axis(const char *what, mr_ints v, int64_t n, int64_t value, mr_list *out)
{
    out->n = n;
    if (v.n > 1 && v.n != n)
        return mr__fail(MR_E_VALUE,
                        "%lld numbers of %s: needs one, or one for each of "
                        "%lld spatial axes",
                        (long long)v.n, what, (long long)n);
    for (int64_t i = 0; i < n; i++)
        out->v[i] = v.n < 1 ? value : v.v[v.n == 1 ? 0 : i];
    return MR_OK;
}

static mr_code
common_float(mr_array **x, mr_array **w)
{
    mr_dtype t = mr__promote((mr_dtype)(*x)->dtype, (mr_dtype)(*w)->dtype);

    if (!mr__dtype_is_inexact(t) || mr__dtype_is_complex(t))
        return mr__fail(MR_E_DTYPE, "needs real floating numbers, got %s",
                        mr_dtype_name(t));
    *x = mr__cast(*x, t);
    *w = mr__cast(*w, t);
    return *x == NULL || *w == NULL ? mr__error_code() : MR_OK;
}

static mr_code
check_ndim(const mr_array *x, const mr_array *w, int32_t spatial)
{
    mr_text tx, tw;

    if (x->ndim == spatial + 2 && w->ndim == spatial + 2)
        return MR_OK;
    return mr__fail(MR_E_SHAPE, "shapes %s and %s: needs %d axes each",
                    mr__shape_of(x, &tx), mr__shape_of(w, &tw),
                    (int)spatial + 2);
}

mr_array *
mr__build_conv_general(mr_array *input, mr_array *weight, mr_ints stride,
                       mr_ints padding, mr_ints kernel_dilation,
                       mr_ints input_dilation, int64_t groups, bool flip,
                       mr_ints padding_high)
{
    int64_t n = input->ndim - 2;
    conv c = {.groups = groups, .flip = flip};

    if (n < 1 || n > MAX_SPATIAL ||
        check_ndim(input, weight, (int32_t)n) != MR_OK)
        return n < 1 || n > MAX_SPATIAL
                   ? mr__fail_null(MR_E_SHAPE,
                                   "an input of %d axes, needs 3 to 5",
                                   (int)input->ndim)
                   : NULL;
    if (padding_high.n < 0 && padding.n == 2 * n) { /* all low, all high */
        padding_high = (mr_ints){padding.v + n, n};
        padding.n = n;
    } else if (padding_high.n < 0)
        padding_high = padding;
    if (per_axis("stride", stride, n, 1, &c.stride) != MR_OK ||
        per_axis("padding", padding, n, 0, &c.low) != MR_OK ||
        per_axis("padding", padding_high, n, 0, &c.high) != MR_OK ||
        per_axis("kernel dilation", kernel_dilation, n, 1,
                 &c.kernel_dilation) != MR_OK ||
        per_axis("input dilation", input_dilation, n, 1, &c.input_dilation) !=
            MR_OK ||
        common_float(&input, &weight) != MR_OK)
        return NULL;
    return conv_node(input, weight, &c);
}

static mr_array *
plain_conv(mr_array *x, mr_array *w, int32_t n, mr_ints stride, mr_ints padding,
           mr_ints dilation, int64_t groups)
{
    if (check_ndim(x, w, n) != MR_OK)
        return NULL;
    for (int64_t i = 0; i < padding.n; i++)
        if (padding.v[i] < 0)
            return mr__fail_null(MR_E_VALUE,
                                 "a padding of %lld: needs 0 or more",
                                 (long long)padding.v[i]);
    return mr_conv_general(x, w, stride, padding, dilation, MR_INTS_NONE,
                           groups, false, MR_INTS_NONE);
}

mr_array *
mr__build_conv1d(mr_array *input, mr_array *weight, int64_t stride,
                 int64_t padding, int64_t dilation, int64_t groups)
{
    return plain_conv(input, weight, 1, MR_INTS(stride), MR_INTS(padding),
                      MR_INTS(dilation), groups);
}

mr_array *
mr__build_conv2d(mr_array *input, mr_array *weight, mr_ints stride,
                 mr_ints padding, mr_ints dilation, int64_t groups)
{
    return plain_conv(input, weight, 2, stride, padding, dilation, groups);
}

mr_array *
mr__build_conv3d(mr_array *input, mr_array *weight, mr_ints stride,
                 mr_ints padding, mr_ints dilation, int64_t groups)
{
    return plain_conv(input, weight, 3, stride, padding, dilation, groups);
}

/* What the caller of a transposed convolution gave, a number for each axis. */
typedef struct transposed {
    mr_list stride, padding, dilation, extra;
} transposed;

/* The output along spatial axis i: the entries with zeros between them, and a
 * kernel's reach on either side, less the padding.  Needs one entry or more. */
static mr_code
check_output(const transposed *t, int64_t i, int64_t entries, int64_t taps)
{
    int64_t stride = t->stride.v[i], dilation = t->dilation.v[i];
    int64_t padding = t->padding.v[i], extra = t->extra.v[i], size;
    int64_t whole = spread(entries, stride), kernel = spread(taps, dilation);
    bool fits = !__builtin_add_overflow(whole, kernel - 1, &whole) &&
                !__builtin_add_overflow(whole, extra, &whole) &&
                !__builtin_mul_overflow(padding, 2, &size) &&
                !__builtin_sub_overflow(whole, size, &size);

    if (fits && size > 0)
        return MR_OK;
    if (fits)
        return mr__fail(MR_E_SHAPE,
                        "axis %d: an input of %lld and a kernel of %lld, "
                        "stride %lld, padding %lld, dilation %lld and output "
                        "padding %lld give an output of %lld: needs 1 or more, "
                        "as from a padding of at most %lld or an output "
                        "padding of at least %lld",
                        (int)(i + 1), (long long)entries, (long long)taps,
                        (long long)stride, (long long)padding,
                        (long long)dilation, (long long)extra, (long long)size,
                        (long long)((whole + 1) / 2 - 1),
                        (long long)(extra + 1 - size));
    return mr__fail(MR_E_OVERFLOW,
                    "axis %d: an input of %lld and a kernel of %lld, stride "
                    "%lld, padding %lld, dilation %lld and output padding "
                    "%lld: needs an output below 2^63",
                    (int)(i + 1), (long long)entries, (long long)taps,
                    (long long)stride, (long long)padding, (long long)dilation,
                    (long long)extra);
}

static mr_code
check_transposed(const transposed *t, const mr_array *x, const mr_array *w)
{
    int64_t n = t->stride.n;

    if (check_steps("stride", mr__ints(&t->stride), n) != MR_OK ||
        check_steps("dilation", mr__ints(&t->dilation), n) != MR_OK)
        return mr__error_code();
    for (int32_t i = 0; i < n; i++) {
        if (t->extra.v[i] < 0)
            return mr__fail(MR_E_VALUE,
                            "an output padding of %lld: needs 0 or more",
                            (long long)t->extra.v[i]);
        if (check_kernel(w->dim[i + 1], i + 1) != MR_OK ||
            check_output(t, i, x->dim[i + 1], w->dim[i + 1]) != MR_OK)
            return mr__error_code();
    }
    return MR_OK;
}

/* The strides become input dilation, the padding what remains of a kernel's
 * reach, and the kernel is turned round. */
static mr_array *
transposed_conv(mr_array *x, mr_array *w, int32_t n, mr_ints stride,
                mr_ints padding, mr_ints dilation, mr_ints output_padding,
                int64_t groups)
{
    mr_list low = {.n = n}, high = {.n = n};
    transposed t;

    if (check_ndim(x, w, n) != MR_OK ||
        per_axis("stride", stride, n, 1, &t.stride) != MR_OK ||
        per_axis("padding", padding, n, 0, &t.padding) != MR_OK ||
        per_axis("dilation", dilation, n, 1, &t.dilation) != MR_OK ||
        per_axis("output padding", output_padding, n, 0, &t.extra) != MR_OK ||
        check_transposed(&t, x, w) != MR_OK)
        return NULL;
    for (int32_t i = 0; i < n; i++) {
        low.v[i] = spread(w->dim[i + 1], t.dilation.v[i]) - 1 - t.padding.v[i];
        high.v[i] = low.v[i] + t.extra.v[i];
    }
    return mr_conv_general(x, w, MR_INTS_NONE, mr__ints(&low),
                           mr__ints(&t.dilation), mr__ints(&t.stride), groups,
                           true, mr__ints(&high));
}

mr_array *
mr__build_conv_transpose1d(mr_array *input, mr_array *weight, int64_t stride,
                           int64_t padding, int64_t dilation,
                           int64_t output_padding, int64_t groups)
{
    return transposed_conv(input, weight, 1, MR_INTS(stride), MR_INTS(padding),
                           MR_INTS(dilation), MR_INTS(output_padding), groups);
}

mr_array *
mr__build_conv_transpose2d(mr_array *input, mr_array *weight, mr_ints stride,
                           mr_ints padding, mr_ints dilation,
                           mr_ints output_padding, int64_t groups)
{
    return transposed_conv(input, weight, 2, stride, padding, dilation,
                           output_padding, groups);
}

mr_array *
mr__build_conv_transpose3d(mr_array *input, mr_array *weight, mr_ints stride,
                           mr_ints padding, mr_ints dilation,
                           mr_ints output_padding, int64_t groups)
{
    return transposed_conv(input, weight, 3, stride, padding, dilation,
                           output_padding, groups);
}

/* ---- long filters
 *
 * From so many taps and products on a convolution is a product of spectra, in
 * float64 whatever the type: n log n steps.  An error is relative to the
 * largest numbers, not to those under the filter, so in float64 the sum that
 * is exact in each place is kept for longer: it costs 16 times the products.
 * A spectrum would spread what is not finite: it is taken out, and what it
 * reaches is NaN. */
enum { LONG_TAPS = 1024, LONG_PRODUCTS = 1 << 25, WIDE_FACTOR = 16 };

static bool
is_long(const mr_array *a, const mr_array *v)
{
    mr_dtype t = mr__promote((mr_dtype)a->dtype, (mr_dtype)v->dtype);
    double least = t == MR_FLOAT64 ? (double)LONG_PRODUCTS * WIDE_FACTOR
                                   : (double)LONG_PRODUCTS;

    return mr__dtype_is_inexact(t) && !mr__dtype_is_complex(t) &&
           v->size >= LONG_TAPS && (double)a->size * (double)v->size >= least;
}

/* The least of 2^i, 5 2^i and 3 2^i that is n or more. */
static int64_t
spectrum_size(int64_t n)
{
    int64_t p = 8;

    while (p < n)
        p *= 2;
    if (p / 8 * 5 >= n)
        return p / 8 * 5;
    return p / 4 * 3 >= n ? p / 4 * 3 : p;
}

static mr_array *
spectrum(mr_array *x, int64_t n)
{
    x = mr__cast(mr__masked(mr_isfinite(x), x), MR_FLOAT64);
    return x == NULL ? NULL : mr_fft_rfft(x, n, 0, "backward");
}

/* How many numbers that are not finite are among the taps numbers that end at
 * each place of the whole convolution. */
static mr_array *
infinities(mr_array *a, int64_t taps)
{
    mr_array *bad = mr__cast(mr_logical_not(mr_isfinite(a)), MR_INT64);
    mr_array *none = mr_zeros(MR_SHAPE(taps), MR_INT64), *sum;

    sum = mr_concatenate((mr_array *[]){none, bad, none}, 3, 0);
    sum = sum == NULL ? NULL : mr_cumsum(sum, 0, false, true, MR_INT64);
    if (sum == NULL)
        return NULL;
    return mr_subtract(mr__slice_one(sum, 0, taps, a->size + 2 * taps - 1, 1),
                       mr__slice_one(sum, 0, 0, a->size + taps - 1, 1));
}

/* Places first, ..., first + n of the whole. */
static mr_array *
convolve_spectra(mr_array *a, mr_array *v, int64_t first, int64_t n)
{
    mr_dtype t = mr__promote((mr_dtype)a->dtype, (mr_dtype)v->dtype);
    int64_t size = spectrum_size(a->size + v->size - 1);
    mr_array *y = mr_multiply(spectrum(a, size), spectrum(v, size)), *reached;

    reached = mr_logical_or(
        mr_greater(infinities(a, v->size), mr__integer(MR_INT64, 0)),
        mr_any(mr_logical_not(mr_isfinite(v)), MR_AXES_ALL, false));
    y = y == NULL ? NULL : mr_fft_irfft(y, size, 0, "backward");
    if (y == NULL || reached == NULL)
        return NULL;
    y = mr_where(mr__slice_one(reached, 0, first, first + n, 1),
                 mr__number(MR_FLOAT64, (double)NAN),
                 mr__slice_one(y, 0, first, first + n, 1));
    return y == NULL ? NULL : mr__cast(y, t);
}

mr_array *
mr__build_convolve(mr_array *a, mr_array *v, const char *mode)
{
    static const char *const modes[] = {"full", "same", "valid"};
    int64_t k, low, high;
    mr_array *t;
    mr_text ta, tv;
    int m = 0;

    if (a->ndim != 1 || v->ndim != 1 || a->size < 1 || v->size < 1)
        return mr__fail_null(MR_E_VALUE,
                             "needs two 1-d arrays, not empty, got the shapes "
                             "%s and %s",
                             mr__shape_of(a, &ta), mr__shape_of(v, &tv));
    while (m < 3 && mode != NULL && strcmp(mode, modes[m]) != 0)
        m++;
    if (m == 3)
        return mr__fail_null(MR_E_VALUE, "mode '%s' is not full, same or valid",
                             mode);
    if (v->size > a->size) { /* the shorter one is the kernel */
        t = a;
        a = v;
        v = t;
    }
    k = v->size - 1;
    low = m == 0 ? k : m == 1 ? k - k / 2 : 0;
    high = m == 0 ? k : m == 1 ? k / 2 : 0;
    if (is_long(a, v))
        return convolve_spectra(a, v, k - low, a->size + low + high - k);
    a = mr_conv_general(mr_expand_dims(a, MR_AXES(0, 2)),
                        mr_expand_dims(v, MR_AXES(0, 2)), MR_INTS_NONE,
                        MR_INTS(low), MR_INTS_NONE, MR_INTS_NONE, 1, true,
                        MR_INTS(high));
    return mr_squeeze(a, MR_AXES(0, 2));
}
