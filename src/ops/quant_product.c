/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_product.c -- products with packed matrices: quantized_matmul and
 * gather_qmm as operators, qqmm and gather_qqmm as bodies that round x first.
 *
 * Both operators are linear in x, in scales and in biases.  The slope by x is
 * the product with w turned round.  That by scales and biases needs the slope
 * by the values of w, summed over each group, for scales times the codes.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/quant.h"
#include "ops/rules.h"

/* ---- what both share
 * ------------------------------------------------------------ */

/* Operands of a product; x has its type and two axes or more. */
typedef struct operands {
    mr_array *x;
    mr_quant_operands w;
    mr_quant_params p;
    mr_dtype dtype; /* of the result */
    bool row;       /* x was a vector */
} operands;

static mr_code
x_type(operands *o)
{
    mr_dtype t = (mr_dtype)o->x->dtype;
    bool affine = o->p.mode == MR_QUANT_AFFINE;
    bool complex = mr__dtype_is_complex(t);

    if (complex || (!affine && !mr__dtype_is_inexact(t)))
        return mr__fail(MR_E_DTYPE, "x of %s: needs %s", mr_dtype_name(t),
                        complex ? "real numbers" : "a float type");
    o->dtype = affine ? mr__promote(t, o->w.scales) : t;
    return MR_OK;
}

static mr_code
operands_read(operands *o, mr_array *x, mr_array *w, mr_array *scales,
              mr_array *biases, bool transpose)
{
    mr_code code = mr__quant_operands_of(&o->p, w, scales, biases, &o->w);
    mr_text tx;
    int64_t inner;

    o->x = x;
    o->p.transpose = transpose;
    if (code == MR_OK)
        code = x_type(o);
    if (code != MR_OK)
        return code;
    inner = transpose ? o->w.cols : o->w.rows;
    if (x->ndim == 0 || x->dim[x->ndim - 1] != inner)
        return mr__fail(MR_E_SHAPE,
                        "x of shape %s with w of %lld rows and %lld columns%s: "
                        "the last axis of x must be %lld",
                        mr__shape_of(x, &tx), (long long)o->w.rows,
                        (long long)o->w.cols, transpose ? ", transposed" : "",
                        (long long)inner);
    o->row = x->ndim == 1;
    o->x = mr__cast(x, o->dtype);
    if (o->row)
        o->x = mr_expand_dims(o->x, MR_AXES(0));
    return o->x ? MR_OK : mr__error_code();
}

/* float64, which no kernel has: values that the caller multiplies. */
static mr_array *
values_turned(const operands *o)
{
    mr_array *y = mr__quant_values(&o->p, &o->w, o->dtype);

    return o->p.transpose && y ? mr_swapaxes(y, -2, -1) : y;
}

static int
operands_put(const operands *o, mr_array **in)
{
    in[0] = o->x;
    memcpy(in + 1, o->w.in, (size_t)o->w.n * sizeof *in);
    return o->w.n + 1;
}

static int
n_packed(const mr_node *n)
{
    const mr_quant_params *p = mr__params(n);

    return p->mode == MR_QUANT_AFFINE ? 3 : 2;
}

/* The numbers of columns of the result, of x by the rows of packed operands. */
static mr_code
product_sizes(const mr_op_call *c, int64_t *inner, int64_t *outer)
{
    const mr_quant_params *p = c->params;
    const mr_array *w = c->in[1];
    int64_t rows = w->dim[w->ndim - 2];
    int64_t cols = w->dim[w->ndim - 1] * 32 / p->bits;

    *inner = p->transpose ? cols : rows;
    *outer = p->transpose ? rows : cols;
    if (c->in[0]->dim[c->in[0]->ndim - 1] == *inner)
        return MR_OK;
    return mr__fail(MR_E_SHAPE, "x has %lld columns where w needs %lld",
                    (long long)c->in[0]->dim[c->in[0]->ndim - 1],
                    (long long)*inner);
}

/* The cotangent of scales or biases from that of w's values (..., rows, cols):
 * over each group, times the codes for scales. */
static mr_array *
of_groups(const mr_rule *r, mr_array *dw, mr_array *w, bool scales)
{
    const mr_quant_params *p = mr__params(r->node);
    mr_dtype t;

    if (dw == NULL || w == NULL)
        return NULL;
    t = mr__accumulate_dtype((mr_dtype)dw->dtype);
    dw = mr__cast(dw, t);
    if (scales)
        dw = mr_multiply(dw, mr__quant_codes(p, w, t));
    return mr_sum(mr__quant_grouped(dw, p->group), MR_AXES(-1), false);
}

/* The slope by w's values, of a cotangent and x: batched products. */
static mr_array *
slope_of_values(const mr_rule *r, mr_array *x, mr_array *c)
{
    const mr_quant_params *p = mr__params(r->node);

    if (x == NULL || c == NULL)
        return NULL;
    return p->transpose ? mr_matmul(mr_swapaxes(c, -2, -1), x)
                        : mr_matmul(mr_swapaxes(x, -2, -1), c);
}

static mr_array *
no_slope_of_packed(void)
{
    return mr__fail_null(MR_E_VALUE,
                         "the packed w has no gradient: differentiate by x, "
                         "scales or biases, or use dequantized values");
}

/* The node with input i, and for scales or biases the other one, replaced by
 * a tangent and zeros. */
static mr_array *
product_jvp(const mr_rule *r, int i)
{
    mr_array *in[6];

    if (i == 1)
        return no_slope_of_packed();
    memcpy(in, r->primal, (size_t)r->n_in * sizeof *in);
    in[i] = r->tangent[i];
    if (i > 1)
        in[5 - i] = mr__zeros_like(r->primal[5 - i]);
    if (in[i] == NULL || (i > 1 && in[5 - i] == NULL))
        return NULL;
    return mr__node_new(r->node->op, mr__params(r->node), r->n_in, in);
}

/* -- quantized_matmul ------------------------------------------------------ */

static mr_array *
quantized_product(const operands *o)
{
    mr_array *in[4];
    int n = operands_put(o, in);

    if (o->dtype == MR_FLOAT64)
        return mr_matmul(o->x, values_turned(o));
    return mr__node_new(&mr__op_quantized_matmul, &o->p, n, in);
}

mr_array *
mr__build_quantized_matmul(mr_array *x, mr_array *w, mr_array *scales,
                           mr_array *biases, bool transpose, int64_t group_size,
                           int64_t bits, const char *mode)
{
    operands o;
    mr_array *y;

    if (mr__quant_read_params(&o.p, group_size, bits, mode) != MR_OK ||
        operands_read(&o, x, w, scales, biases, transpose) != MR_OK)
        return NULL;
    y = quantized_product(&o);
    return o.row && y ? mr_squeeze(y, MR_AXES(-2)) : y;
}

static mr_code
quantized_matmul_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *x = c->in[0], *w = c->in[1];
    int64_t dim[MR_MAX_NDIM], inner, outer;
    mr_code code = product_sizes(c, &inner, &outer);
    int32_t ndim;
    mr_text tx, tw;

    if (code != MR_OK)
        return code;
    ndim = mr__broadcast_shapes(x->ndim - 2, x->dim, w->ndim - 2, w->dim, dim);
    if (ndim < 0)
        return mr__fail(MR_E_SHAPE,
                        "x of shape %s and packed w of shape %s: the leading "
                        "axes must broadcast",
                        mr__shape_of(x, &tx), mr__shape_of(w, &tw));
    dim[ndim] = x->dim[x->ndim - 2];
    dim[ndim + 1] = outer;
    mr__aval_shape(out, (mr_dtype)x->dtype, ndim + 2, dim);
    return mr__check_shape(ndim + 2, dim);
}

static mr_array *
slope_of_x(const mr_rule *r, mr_array *c)
{
    mr_quant_params p = *(const mr_quant_params *)mr__params(r->node);
    mr_array *in[4] = {c};

    p.transpose = !p.transpose;
    memcpy(in + 1, r->primal + 1, (size_t)n_packed(r->node) * sizeof *in);
    return mr__node_new(&mr__op_quantized_matmul, &p, 1 + n_packed(r->node),
                        in);
}

static mr_array *
quantized_matmul_vjp(const mr_rule *r, int i)
{
    const mr_quant_params *p = mr__params(r->node);
    mr_array *x = r->primal[0], *w = r->primal[1], *c = r->cotangent[0], *dw;
    mr_list l = mr__dims(w);

    if (i == 0)
        return mr__sum_to(slope_of_x(r, c), x->ndim, x->dim);
    if (i == 1)
        return no_slope_of_packed();
    if (p->mode != MR_QUANT_AFFINE)
        return MR_NONE;
    if (w->ndim == 2 && x->ndim > 2) { /* all rows meet the one matrix */
        x = mr_flatten(x, 0, -2);
        c = mr_flatten(c, 0, -2);
    }
    dw = slope_of_values(r, x, c);
    l.v[l.n - 1] = l.v[l.n - 1] * 32 / p->bits;
    return of_groups(r, mr__sum_to(dw, (int32_t)l.n, l.v), w, i == 2);
}

/* Batched operands get axes of size 1 behind the batch, so that their own
 * leading axes still line up with the others'.  Packed operands stay
 * together. */
static mr_array *
lined_up(mr_array *x, int32_t ndim)
{
    int32_t axes[MR_MAX_NDIM], n;

    if (x == NULL)
        return NULL;
    n = ndim + 1 - x->ndim;
    for (int32_t k = 0; k < n; k++)
        axes[k] = k + 1;
    return n > 0 ? mr_expand_dims(x, (mr_axes){axes, n}) : x;
}

static bool
packed_batched(const mr_batch *b)
{
    bool any = false;

    for (int i = 1; i <= n_packed(b->node); i++)
        any = any || b->batched[i];
    return any;
}

static mr_array *
quantized_matmul_vmap(const mr_batch *b)
{
    bool packed = packed_batched(b);
    mr_array *in[4];

    for (int i = 0; i < b->n_in; i++) {
        bool give = i == 0 ? b->batched[0] : packed;

        in[i] = give ? lined_up(mr__batch_in(b, i), b->node->ndim) : b->in[i];
        if (in[i] == NULL)
            return NULL;
    }
    return mr__node_new(b->node->op, mr__params(b->node), b->n_in, in);
}

const mr_op mr__op_quantized_matmul = {
    .id = MR_OP_QUANTIZED_MATMUL,
    .version = 1,
    .n_in = -1,
    .name = "quantized_matmul",
    MR__PARAMS(mr_quant_params, mr__quant_fields),
    .infer = quantized_matmul_infer,
    .vjp = quantized_matmul_vjp,
    .jvp = product_jvp,
    .vmap = quantized_matmul_vmap,
};

/* -- gather_qmm ------------------------------------------------------------ */

/* 0, 1, ... of x's leading axes. */
static mr_array *
all_matrices(const mr_array *x)
{
    mr_list l = mr__dims(x);
    int64_t n = 1;

    l.n = l.n > 2 ? l.n - 2 : 0;
    for (int64_t k = 0; k < l.n; k++)
        n *= l.v[k];
    return mr_reshape(mr__iota(n, 0, 1), mr__shape(&l));
}

/* The two index arrays, of one shape. */
static mr_code
picks_read(const mr_array *x, const mr_array *w, mr_array *lhs, mr_array *rhs,
           mr_array **out)
{
    int64_t dim[MR_MAX_NDIM];
    int32_t ndim;
    mr_text tl, tr;

    out[0] = mr__given(lhs) ? lhs : all_matrices(x);
    out[1] = mr__given(rhs) ? rhs : all_matrices(w);
    if (out[0] == NULL || out[1] == NULL)
        return mr__error_code();
    for (int i = 0; i < 2; i++)
        if (!mr__is_index(out[i]))
            return mr__fail(MR_E_DTYPE, "indices of %s: needs integers",
                            mr_dtype_name((mr_dtype)out[i]->dtype));
    ndim = mr__broadcast_shapes(out[0]->ndim, out[0]->dim, out[1]->ndim,
                                out[1]->dim, dim);
    if (ndim < 0)
        return mr__fail(MR_E_SHAPE,
                        "indices of shapes %s and %s do not broadcast",
                        mr__shape_of(out[0], &tl), mr__shape_of(out[1], &tr));
    for (int i = 0; i < 2; i++)
        out[i] = mr__broadcast(out[i], ndim, dim);
    return out[0] && out[1] ? MR_OK : mr__error_code();
}

/* Matrices of x at an index. */
static mr_array *
matrices_at(mr_array *x, mr_array *index)
{
    if (x == NULL)
        return NULL;
    x = x->ndim == 2 ? mr_expand_dims(x, MR_AXES(0)) : mr_flatten(x, 0, -3);
    return x == NULL ? NULL : mr_take(x, index, 0);
}

static mr_array *
gathered_product(const operands *o, mr_array *const *pick)
{
    mr_array *in[6];
    int n = operands_put(o, in);

    if (o->dtype == MR_FLOAT64)
        return mr_matmul(matrices_at(o->x, pick[0]),
                         matrices_at(values_turned(o), pick[1]));
    in[n++] = pick[0];
    in[n++] = pick[1];
    return mr__node_new(&mr__op_gather_qmm, &o->p, n, in);
}

/* The product in float32 where a global scale follows, which might bring a
 * half back from beyond its range. */
static mr_array *
with_global(operands *o, mr_array *const *pick, mr_array *global)
{
    mr_dtype t = o->dtype;
    mr_array *y;

    if (mr__given(global) && t != MR_FLOAT64) {
        o->dtype = MR_FLOAT32;
        o->x = mr__cast(o->x, MR_FLOAT32);
    }
    if (o->x == NULL)
        return NULL;
    y = pick ? gathered_product(o, pick) : quantized_product(o);
    if (mr__given(global))
        y = mr__cast(mr__quant_scale_global(y, global), t);
    return o->row && y ? mr_squeeze(y, MR_AXES(-2)) : y;
}

mr_array *
mr__build_gather_qmm(mr_array *x, mr_array *w, mr_array *scales,
                     mr_array *biases, mr_array *lhs_indices,
                     mr_array *rhs_indices, bool transpose, int64_t group_size,
                     int64_t bits, const char *mode, mr_array *global_scale,
                     bool sorted_indices)
{
    mr_array *pick[2];
    operands o;

    (void)sorted_indices; /* the kernel sorts */
    if (mr__quant_read_params(&o.p, group_size, bits, mode) != MR_OK ||
        mr__quant_check_global(&o.p, global_scale) != MR_OK ||
        operands_read(&o, x, w, scales, biases, transpose) != MR_OK ||
        picks_read(o.x, w, lhs_indices, rhs_indices, pick) != MR_OK)
        return NULL;
    o.p.has_global = false;
    return with_global(&o, pick, global_scale);
}

static mr_code
gather_qmm_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *x = c->in[0], *pick = c->in[c->n_in - 1];
    int64_t dim[MR_MAX_NDIM], inner, outer;
    mr_code code = product_sizes(c, &inner, &outer);

    if (code != MR_OK)
        return code;
    if (pick->ndim + 2 > MR_MAX_NDIM)
        return mr__fail(MR_E_VALUE, "%d axes of indices, at most %d",
                        (int)pick->ndim, MR_MAX_NDIM - 2);
    memcpy(dim, pick->dim, (size_t)pick->ndim * sizeof *dim);
    dim[pick->ndim] = x->dim[x->ndim - 2];
    dim[pick->ndim + 1] = outer;
    mr__aval_shape(out, (mr_dtype)x->dtype, pick->ndim + 2, dim);
    return mr__check_shape(pick->ndim + 2, dim);
}

/* What came back for each pick, added to the matrix that it was, in like's
 * shape. */
static mr_array *
added_back(mr_array *parts, mr_array *pick, const mr_array *like)
{
    int64_t dim[3] = {1, like->dim[like->ndim - 2], like->dim[like->ndim - 1]};
    mr_shape shape = {like->dim, like->ndim};
    mr_array *y;
    mr_dtype t;
    int64_t n;

    if (parts == NULL)
        return NULL;
    for (int32_t k = 0; k < like->ndim - 2; k++)
        dim[0] *= like->dim[k];
    n = pick->size;
    t = mr__accumulate_dtype((mr_dtype)like->dtype);
    pick = mr_reshape(pick, MR_SHAPE(n));
    parts = mr_reshape(mr__cast(parts, t), MR_SHAPE(n, 1, dim[1], dim[2]));
    y = mr_index_scatter(mr__filled(t, 3, dim, 0.0), &pick, 1, parts,
                         MR_INTS(0), "add");
    return mr_reshape(mr__cast(y, (mr_dtype)like->dtype), shape);
}

static mr_array *
gather_qmm_vjp(const mr_rule *r, int i)
{
    mr_quant_params p = *(const mr_quant_params *)mr__params(r->node);
    int n = n_packed(r->node);
    mr_array *x = r->primal[0], *w = r->primal[1], *c = r->cotangent[0];
    mr_array *lhs = r->primal[n + 1], *rhs = r->primal[n + 2];
    mr_array *in[6], *parts;

    if (i == 1)
        return no_slope_of_packed();
    if (i == 0) { /* each pick's cotangent with its matrix of w turned round */
        int64_t count[2] = {lhs->size, 1};

        p.transpose = !p.transpose;
        in[0] = mr_reshape(
            c, MR_SHAPE(count[0], c->dim[c->ndim - 2], c->dim[c->ndim - 1]));
        memcpy(in + 1, r->primal + 1, (size_t)n * sizeof *in);
        in[n + 1] = mr__iota(count[0], 0, 1);
        in[n + 2] = mr_reshape(rhs, (mr_shape){count, 1});
        if (in[0] == NULL || in[n + 1] == NULL || in[n + 2] == NULL)
            return NULL;
        parts = mr__node_new(r->node->op, &p, r->n_in, in);
        return added_back(parts, lhs, x);
    }
    if (i > n || p.mode != MR_QUANT_AFFINE)
        return MR_NONE;
    parts = slope_of_values(r, matrices_at(x, lhs), c);
    parts = of_groups(r, parts, matrices_at(w, rhs), i == 2);
    return added_back(parts, rhs, r->primal[i]);
}

/* An index of entry k of a batch counts in that entry's n matrices; one that is
 * out of range stays so. */
static mr_array *
shifted(mr_array *index, int64_t n, int64_t size)
{
    mr_array *at = mr__cast(index, MR_INT64), *first, *bad;
    mr_array *zero = mr__integer(MR_INT64, 0), *count;

    if (at == NULL)
        return NULL;
    count = mr__integer(MR_INT64, n);
    at = mr_where(mr_less(at, zero), mr_add(at, count), at);
    bad = mr_logical_or(mr_less(at, zero), mr_greater_equal(at, count));
    first =
        mr_multiply(mr__cast(mr__iota(size, 0, index->ndim), MR_INT64), count);
    return mr_where(bad, mr__integer(MR_INT64, INT64_MAX), mr_add(at, first));
}

static int64_t
matrices(const mr_array *x, int32_t from)
{
    int64_t n = 1;

    for (int32_t k = from; k < x->ndim - 2; k++)
        n *= x->dim[k];
    return n;
}

static mr_array *
gather_qmm_vmap(const mr_batch *b)
{
    bool packed = packed_batched(b);
    int n = n_packed(b->node);
    mr_array *in[6];

    for (int i = 0; i < b->n_in; i++) {
        bool give = i == 0 ? b->batched[0] : i > n || packed;

        in[i] = give ? mr__batch_in(b, i) : b->in[i];
        if (in[i] == NULL)
            return NULL;
    }
    if (b->batched[0])
        in[n + 1] = shifted(in[n + 1], matrices(in[0], 1), b->size);
    if (packed)
        in[n + 2] = shifted(in[n + 2], matrices(in[1], 1), b->size);
    if (in[n + 1] == NULL || in[n + 2] == NULL)
        return NULL;
    return mr__node_new(b->node->op, mr__params(b->node), b->n_in, in);
}

static mr_array *
gather_qmm_jvp(const mr_rule *r, int i)
{
    return i > n_packed(r->node) ? MR_NONE : product_jvp(r, i);
}

const mr_op mr__op_gather_qmm = {
    .id = MR_OP_GATHER_QMM,
    .version = 1,
    .n_in = -1,
    .name = "gather_qmm",
    MR__PARAMS(mr_quant_params, mr__quant_fields),
    .infer = gather_qmm_infer,
    .vjp = gather_qmm_vjp,
    .jvp = gather_qmm_jvp,
    .vmap = gather_qmm_vmap,
};

/* ---- both operands quantised
 * ------------------------------------------------------ */

typedef struct both {
    mr_quant_params p;
    mr_array *w, *scales;
} both;

static mr_code
both_types(const mr_quant_params *p, const mr_array *x, const mr_array *w)
{
    mr_dtype tx = (mr_dtype)x->dtype, tw = (mr_dtype)w->dtype;
    bool fine = mr__dtype_is_inexact(tx) && !mr__dtype_is_complex(tx);

    if (p->mode == MR_QUANT_AFFINE)
        return mr__fail(MR_E_VALUE, "mode affine: x cannot be quantised on "
                                    "the fly, quantized_matmul is for it");
    if (fine && tx != MR_FLOAT64 && tw != MR_FLOAT64)
        return MR_OK;
    return mr__fail(MR_E_DTYPE,
                    "x of %s and w of %s: needs float32, float16 or bfloat16",
                    mr_dtype_name(tx), mr_dtype_name(tw));
}

static mr_code
both_globals(both *o, const mr_array *global_x, const mr_array *global_w)
{
    mr_code code;

    if (mr__given(global_x) != mr__given(global_w))
        return mr__fail(MR_E_VALUE, "one of the global scales of x and w: "
                                    "needs both or neither");
    code = mr__quant_check_global(&o->p, global_x);
    return code == MR_OK ? mr__quant_check_global(&o->p, global_w) : code;
}

/* x rounded to the format, as rows of whole groups. */
static mr_array *
rounded(const both *o, mr_array *x, mr_array *global, bool ties_even)
{
    mr_quant_params p = o->p;
    mr_array *in[2] = {x, global}, *y;
    mr_text text;

    p.ties_even = ties_even;
    if (x->ndim == 0 || x->dim[x->ndim - 1] % p.group != 0)
        return mr__fail_null(MR_E_SHAPE,
                             "operand of shape %s: needs a last axis divisible "
                             "by the group size %lld",
                             mr__shape_of(x, &text), (long long)p.group);
    if (x->ndim == 1)
        in[0] = mr_expand_dims(x, MR_AXES(0));
    if (p.has_global)
        in[1] = mr_reshape(global, MR_SCALAR_SHAPE);
    if (in[0] == NULL || in[1] == NULL)
        return NULL;
    y = mr__node_new(&mr__op_quantize_round, &p, p.has_global ? 2 : 1, in);
    return x->ndim == 1 && y ? mr_squeeze(y, MR_AXES(0)) : y;
}

static mr_code
both_read(both *o, const mr_array *x, int64_t group, int64_t bits,
          const char *mode, const mr_array *global_x, const mr_array *global_w)
{
    mr_code code = mr__quant_read_params(&o->p, group, bits, mode);
    bool given = mr__given(o->scales);

    if (code == MR_OK)
        code = both_types(&o->p, x, o->w);
    if (code == MR_OK)
        code = both_globals(o, global_x, global_w);
    if (code != MR_OK || given == ((mr_dtype)o->w->dtype == MR_UINT32))
        return code;
    return mr__fail(MR_E_VALUE,
                    "w of %s %s scales: packed w needs its scales, w of "
                    "floats has none",
                    mr_dtype_name((mr_dtype)o->w->dtype),
                    given ? "with" : "without");
}

/* w of floats, rounded by the rule of quantize: a product of floats. */
static mr_array *
product_of_floats(const both *o, mr_array *x, mr_array *global_w, mr_array *lhs,
                  mr_array *rhs, bool picks)
{
    mr_array *w = rounded(o, o->w, global_w, false), *pick[2], *y;
    mr_dtype t;

    if (w == NULL)
        return NULL;
    t = (mr_dtype)x->dtype;
    if (picks) {
        bool row = x->ndim == 1;

        x = row ? mr_expand_dims(x, MR_AXES(0)) : x;
        if (x == NULL || picks_read(x, w, lhs, rhs, pick) != MR_OK)
            return NULL;
        x = matrices_at(x, pick[0]);
        w = matrices_at(w, pick[1]);
        y = w ? mr_matmul(x, mr_swapaxes(w, -2, -1)) : NULL;
        y = row && y ? mr_squeeze(y, MR_AXES(-2)) : y;
    } else {
        y = mr_matmul(x, mr_swapaxes(w, -2, -1));
    }
    return mr__cast(y, t);
}

/* x has been rounded, w is packed. */
static mr_array *
product_of_packed(const both *b, mr_array *x, mr_array *global_w, mr_array *lhs,
                  mr_array *rhs, bool picks)
{
    operands o = {.p = b->p};
    mr_array *pick[2];

    o.p.has_global = false;
    if (operands_read(&o, x, b->w, b->scales, MR_NONE, true) != MR_OK)
        return NULL;
    if (picks && picks_read(o.x, b->w, lhs, rhs, pick) != MR_OK)
        return NULL;
    return with_global(&o, picks ? pick : NULL, global_w);
}

mr_array *
mr__build_qqmm(mr_array *x, mr_array *w, mr_array *scales, int64_t group_size,
               int64_t bits, const char *mode, mr_array *global_scale_x,
               mr_array *global_scale_w)
{
    both b = {.w = w, .scales = scales};
    mr_text text;

    if (w->ndim != 2)
        return mr__fail_null(MR_E_SHAPE,
                             "w of shape %s: needs 2 axes (gather_qqmm takes "
                             "more)",
                             mr__shape_of(w, &text));
    if (both_read(&b, x, group_size, bits, mode, global_scale_x,
                  global_scale_w) != MR_OK)
        return NULL;
    x = rounded(&b, x, global_scale_x, true);
    if (x == NULL)
        return NULL;
    return (mr__given(scales) ? product_of_packed : product_of_floats)(
        &b, x, global_scale_w, MR_NONE, MR_NONE, false);
}

mr_array *
mr__build_gather_qqmm(mr_array *x, mr_array *w, mr_array *scales,
                      mr_array *lhs_indices, mr_array *rhs_indices,
                      int64_t group_size, int64_t bits, const char *mode,
                      mr_array *global_scale_x, mr_array *global_scale_w,
                      bool sorted_indices)
{
    both b = {.w = w, .scales = scales};
    mr_text text;

    (void)sorted_indices; /* the kernel sorts */
    if (w->ndim < 2)
        return mr__fail_null(MR_E_SHAPE, "w of shape %s: needs 2 axes or more",
                             mr__shape_of(w, &text));
    if (both_read(&b, x, group_size, bits, mode, global_scale_x,
                  global_scale_w) != MR_OK)
        return NULL;
    x = rounded(&b, x, global_scale_x, true);
    if (x == NULL)
        return NULL;
    return (mr__given(scales) ? product_of_packed : product_of_floats)(
        &b, x, global_scale_w, lhs_indices, rhs_indices, true);
}
