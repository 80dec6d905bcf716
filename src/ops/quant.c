/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.c -- quantize, dequantize, E4M3 bytes.
 *
 * Affine scales and biases are functions of the least and the largest number
 * of their group, and so have derivatives; codes are whole numbers and have
 * none.  Bytes of scales have none either.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include "ops/quant.h"

#include <string.h>

#include "array/dtype.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/tree.h"
#include "ops/door.h"
#include "ops/rules.h"

#define LEAST_SCALE 1e-7

const mr_field mr__quant_fields[7] = {
    MR_FIELD(1, INT, mr_quant_params, group),
    MR_FIELD(2, INT, mr_quant_params, bits),
    MR_FIELD(3, INT, mr_quant_params, mode),
    MR_FIELD(4, BOOL, mr_quant_params, transpose),
    MR_FIELD(5, BOOL, mr_quant_params, has_global),
    MR_FIELD(6, DTYPE, mr_quant_params, dtype),
    MR_FIELD(7, BOOL, mr_quant_params, ties_even),
};

/* ---- modes
 * -------------------------------------------------------------------- */

typedef struct mode_facts {
    const char *name;
    int64_t group, bits;
} mode_facts;

static const mode_facts modes[] = {
    [MR_QUANT_AFFINE] = {"affine", 64, 4},
    [MR_QUANT_MXFP4] = {"mxfp4", 32, 4},
    [MR_QUANT_MXFP8] = {"mxfp8", 32, 8},
    [MR_QUANT_NVFP4] = {"nvfp4", 16, 4},
};
enum { N_MODES = (int)(sizeof modes / sizeof modes[0]) };

static mr_code
check_affine(const mr_quant_params *p)
{
    if (p->group != 32 && p->group != 64 && p->group != 128)
        return mr__fail(MR_E_VALUE,
                        "group_size %lld: mode affine has 32, 64 and 128",
                        (long long)p->group);
    if (p->bits < 1 || p->bits > 8 || p->bits == 7)
        return mr__fail(MR_E_VALUE,
                        "bits %lld: mode affine has 1, 2, 3, 4, 5, 6 and 8",
                        (long long)p->bits);
    return MR_OK;
}

mr_code
mr__quant_read_params(mr_quant_params *p, int64_t group, int64_t bits,
                      const char *mode)
{
    int i = 0;

    *p = (mr_quant_params){.group = modes[MR_QUANT_AFFINE].group,
                           .bits = modes[MR_QUANT_AFFINE].bits,
                           .dtype = MR_BFLOAT16};
    if (mode == NULL)
        return mr__fail(MR_E_VALUE, "no mode: one of affine, mxfp4, mxfp8 and "
                                    "nvfp4");
    while (i < N_MODES && strcmp(mode, modes[i].name) != 0)
        i++;
    if (i == N_MODES)
        return mr__fail(MR_E_VALUE,
                        "unknown mode '%s': one of affine, mxfp4, mxfp8 and "
                        "nvfp4",
                        mode);
    p->mode = i;
    p->group = group == MR_INT_NONE ? modes[i].group : group;
    p->bits = bits == MR_INT_NONE ? modes[i].bits : bits;
    if (i == MR_QUANT_AFFINE)
        return check_affine(p);
    if (p->group != modes[i].group || p->bits != modes[i].bits)
        return mr__fail(MR_E_VALUE,
                        "group_size %lld and bits %lld: mode %s has %lld and "
                        "%lld",
                        (long long)p->group, (long long)p->bits, mode,
                        (long long)modes[i].group, (long long)modes[i].bits);
    return MR_OK;
}

mr_code
mr__quant_check_global(mr_quant_params *p, const mr_array *global)
{
    mr_text text;

    p->has_global = mr__given(global);
    if (!p->has_global)
        return MR_OK;
    if (p->mode != MR_QUANT_NVFP4)
        return mr__fail(MR_E_VALUE,
                        "a global scale with mode %s: only nvfp4 has one",
                        modes[p->mode].name);
    if ((mr_dtype)global->dtype != MR_FLOAT32 || global->size != 1)
        return mr__fail(MR_E_VALUE,
                        "a global scale of %s and shape %s: needs one float32 "
                        "number",
                        mr_dtype_name((mr_dtype)global->dtype),
                        mr__shape_of(global, &text));
    return MR_OK;
}

static bool
is_float(mr_dtype t)
{
    return mr__dtype_is_inexact(t) && !mr__dtype_is_complex(t);
}

/* ---- packed operands
 * ------------------------------------------------------------ */

static mr_code
check_packed(const mr_quant_params *p, const mr_array *w,
             const mr_array *scales, const mr_array *biases)
{
    bool affine = p->mode == MR_QUANT_AFFINE;
    const char *mode = modes[p->mode].name;

    if ((mr_dtype)w->dtype != MR_UINT32)
        return mr__fail(MR_E_DTYPE, "packed w of %s: needs uint32",
                        mr_dtype_name((mr_dtype)w->dtype));
    if (w->ndim < 2)
        return mr__fail(MR_E_SHAPE, "packed w of %d axes: needs 2 or more",
                        (int)w->ndim);
    if (affine != mr__given(biases))
        return mr__fail(MR_E_VALUE, "%s biases: mode %s %s them",
                        affine ? "no" : "with", mode,
                        affine ? "needs" : "does not have");
    if (!affine && (mr_dtype)scales->dtype != MR_UINT8)
        return mr__fail(MR_E_DTYPE, "scales of %s: mode %s has uint8",
                        mr_dtype_name((mr_dtype)scales->dtype), mode);
    if (affine && (!is_float((mr_dtype)scales->dtype) ||
                   !is_float((mr_dtype)biases->dtype)))
        return mr__fail(MR_E_DTYPE,
                        "scales of %s and biases of %s: needs float types",
                        mr_dtype_name((mr_dtype)scales->dtype),
                        mr_dtype_name((mr_dtype)biases->dtype));
    return MR_OK;
}

/* The shape that w's scales have: w's but for the last axis. */
static bool
scales_fit(const mr_array *w, const mr_array *x, int64_t groups)
{
    int32_t last = w->ndim - 1;

    return x->ndim == w->ndim && x->dim[last] == groups &&
           memcmp(x->dim, w->dim, (size_t)last * sizeof *x->dim) == 0;
}

static mr_code
check_shapes(const mr_quant_params *p, const mr_array *w, const mr_array *x,
             const char *what)
{
    int64_t bits = w->dim[w->ndim - 1] * 32;
    mr_text tw, tx;

    if (bits % (p->bits * p->group) == 0 &&
        scales_fit(w, x, bits / p->bits / p->group))
        return MR_OK;
    return mr__fail(MR_E_SHAPE,
                    "packed w of shape %s and %s of shape %s: with %lld bits "
                    "and groups of %lld the last axes are in the ratio %lld "
                    "to 32, the others equal",
                    mr__shape_of(w, &tw), what, mr__shape_of(x, &tx),
                    (long long)p->bits, (long long)p->group,
                    (long long)(p->bits * p->group));
}

mr_code
mr__quant_operands_of(const mr_quant_params *p, mr_array *w, mr_array *scales,
                      mr_array *biases, mr_quant_operands *out)
{
    mr_code code = check_packed(p, w, scales, biases);

    if (code == MR_OK)
        code = check_shapes(p, w, scales, "scales");
    if (code == MR_OK && mr__given(biases))
        code = check_shapes(p, w, biases, "biases");
    if (code != MR_OK)
        return code;
    out->rows = w->dim[w->ndim - 2];
    out->cols = w->dim[w->ndim - 1] * 32 / p->bits;
    out->scales = (mr_dtype)scales->dtype;
    out->in[0] = w;
    out->in[1] = scales;
    out->n = 2;
    if (!mr__given(biases))
        return MR_OK;
    out->scales = mr__promote(out->scales, (mr_dtype)biases->dtype);
    out->in[1] = mr__cast(scales, out->scales);
    out->in[2] = mr__cast(biases, out->scales);
    out->n = 3;
    return out->in[1] && out->in[2] ? MR_OK : mr__error_code();
}

/* ---- help for rules
 * ------------------------------------------------------------- */

mr_array *
mr__quant_grouped(mr_array *x, int64_t group)
{
    mr_list l;

    if (x == NULL)
        return NULL;
    l = mr__dims(x);
    if (l.n == MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE, "%d axes: one less is the most",
                             MR_MAX_NDIM);
    l.v[l.n - 1] /= group;
    l.v[l.n++] = group;
    return mr_reshape(x, mr__shape(&l));
}

mr_array *
mr__quant_scale_global(mr_array *x, mr_array *global)
{
    if (x == NULL)
        return NULL;
    global =
        mr_reshape(mr__scale(global, 1.0 / (448.0 * 6.0)), MR_SCALAR_SHAPE);
    return mr_multiply(x, mr__cast(global, (mr_dtype)x->dtype));
}

mr_array *
mr__quant_codes(const mr_quant_params *p, mr_array *w, mr_dtype t)
{
    mr_quant_params q = *p;
    mr_list l = mr__dims(w);
    mr_array *in[3] = {w}, *y;

    q.dtype = MR_FLOAT32;
    l.v[l.n - 1] = l.v[l.n - 1] * 32 / p->bits / p->group;
    in[1] = mr__filled(MR_FLOAT32, (int32_t)l.n, l.v, 1.0);
    in[2] = mr__filled(MR_FLOAT32, (int32_t)l.n, l.v, 0.0);
    if (in[1] == NULL || in[2] == NULL)
        return NULL;
    y = mr__node_new(&mr__op_dequantize, &q, 3, in);
    return mr__cast(y, t);
}

/* In float64, which no kernel has: codes * scales + biases. */
static mr_array *
values_of_doubles(const mr_quant_params *p, const mr_quant_operands *o)
{
    mr_array *codes = mr__quant_codes(p, o->in[0], MR_FLOAT64), *y;
    mr_list l;

    if (codes == NULL)
        return NULL;
    l = mr__dims(codes);
    y = mr_multiply(mr__quant_grouped(codes, p->group),
                    mr_expand_dims(o->in[1], MR_AXES(-1)));
    y = mr_add(y, mr_expand_dims(o->in[2], MR_AXES(-1)));
    return mr_reshape(y, mr__shape(&l));
}

mr_array *
mr__quant_values(const mr_quant_params *p, const mr_quant_operands *o,
                 mr_dtype t)
{
    mr_quant_params q = *p;
    mr_array *y;

    if (p->mode == MR_QUANT_AFFINE && o->scales == MR_FLOAT64) {
        y = values_of_doubles(p, o);
    } else {
        q.dtype = p->mode == MR_QUANT_AFFINE ? o->scales : t;
        q.has_global = false;
        y = mr__node_new(&mr__op_dequantize, &q, o->n,
                         (mr_array *const *)o->in);
    }
    return mr__cast(y, t);
}

/* -- quantize -------------------------------------------------------------- */

static mr_code
check_floats(const mr_quant_params *p, const mr_array *w)
{
    mr_text text;
    mr_dtype t = (mr_dtype)w->dtype;

    if (!is_float(t) || t == MR_FLOAT64)
        return mr__fail(MR_E_DTYPE,
                        "w of %s: needs float32, float16 or bfloat16",
                        mr_dtype_name(t));
    if (w->ndim < 2 || w->dim[w->ndim - 1] % p->group != 0)
        return mr__fail(MR_E_SHAPE,
                        "w of shape %s: needs 2 axes or more, the last "
                        "divisible by the group size %lld",
                        mr__shape_of(w, &text), (long long)p->group);
    return MR_OK;
}

mr_tree *
mr__build_quantize(mr_array *w, int64_t group_size, int64_t bits,
                   const char *mode, mr_array *global_scale)
{
    mr_array *in[2] = {w, global_scale}, *out[3], *y;
    mr_quant_params p;
    int n;

    if (mr__quant_read_params(&p, group_size, bits, mode) != MR_OK ||
        mr__quant_check_global(&p, global_scale) != MR_OK ||
        check_floats(&p, w) != MR_OK)
        return NULL;
    if (p.has_global)
        in[1] = mr_reshape(global_scale, MR_SCALAR_SHAPE);
    if (in[1] == NULL)
        return NULL;
    n = p.mode == MR_QUANT_AFFINE ? 3 : 2;
    y = mr__node_new(n == 3 ? &mr__op_quantize : &mr__op_quantize_float, &p,
                     p.has_global ? 2 : 1, in);
    if (y == NULL)
        return NULL;
    for (int k = 0; k < n; k++) {
        out[k] = mr__node_output(y, k);
        if (out[k] == NULL)
            return NULL;
    }
    return mr_tree_arrays(n, out);
}

static mr_code
quantize_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_quant_params *p = c->params;
    const mr_array *w = c->in[0];
    int32_t last = w->ndim - 1;
    mr_code code = check_floats(p, w);
    bool affine = p->mode == MR_QUANT_AFFINE;

    for (int k = 0; code == MR_OK && k < (affine ? 3 : 2); k++) {
        mr__aval_like(&out[k], w);
        out[k].dtype = k == 0   ? MR_UINT32
                       : affine ? (mr_dtype)w->dtype
                                : MR_UINT8;
        out[k].dim[last] = k == 0 ? w->dim[last] / 32 * p->bits +
                                        w->dim[last] % 32 * p->bits / 32
                                  : w->dim[last] / p->group;
    }
    return code;
}

/* How scale and bias follow the largest (0) and the least number (1) of a
 * group, and which numbers those are, ties sharing alike. */
typedef struct group_slopes {
    mr_array *share[2], *scale[2], *bias[2];
} group_slopes;

static mr_array *
as_number(mr_array *truth)
{
    return mr__cast(truth, MR_FLOAT32);
}

static mr_array *
shares(mr_array *w, mr_array *extreme)
{
    mr_array *same = as_number(mr_equal(w, extreme));

    return mr_divide(same, mr_sum(same, MR_AXES(-1), true));
}

/* Where a number won that is not small beside the scale, the bias is it, and
 * scale = it / whole number; else scale = +-(largest - least) / n. */
static void
slopes_wide(const mr_rule *r, mr_array *hi, mr_array *lo, mr_array *spread,
            group_slopes *g)
{
    const mr_quant_params *p = mr__params(r->node);
    double n = (double)((1 << p->bits) - 1);
    mr_array *zero = mr__number(MR_FLOAT32, 0.0);
    mr_array *scale = mr_expand_dims(r->output[1], MR_AXES(-1));
    mr_array *bias = mr_expand_dims(r->output[2], MR_AXES(-1));
    mr_array *least_wins = mr_greater(mr_abs(lo), mr_abs(hi));
    mr_array *moved, *ratio, *still;

    scale = mr__cast(scale, MR_FLOAT32);
    bias = mr__cast(bias, MR_FLOAT32);
    moved = mr_not_equal(bias, zero);
    ratio = mr_where(
        moved,
        mr_divide(scale, mr_where(moved, bias, mr__number(MR_FLOAT32, 1.0))),
        zero);
    still = mr_where(moved, zero, mr__scale(spread, 1.0 / n));
    still = mr_where(least_wins, still, mr_negative(still));
    g->bias[0] = as_number(mr_logical_and(moved, mr_logical_not(least_wins)));
    g->bias[1] = as_number(mr_logical_and(moved, least_wins));
    g->scale[0] = mr_add(mr_multiply(g->bias[0], ratio), still);
    g->scale[1] = mr_subtract(mr_multiply(g->bias[1], ratio), still);
}

static mr_code
slopes_of(const mr_rule *r, group_slopes *g)
{
    const mr_quant_params *p = mr__params(r->node);
    mr_array *w = mr__cast(r->primal[0], MR_FLOAT32);
    mr_array *hi, *lo, *spread;

    w = mr__quant_grouped(w, p->group);
    hi = mr_max(w, MR_AXES(-1), true);
    lo = mr_min(w, MR_AXES(-1), true);
    spread = mr_subtract(hi, lo);
    if (p->bits > 1)
        spread = mr__scale(spread, 1.0 / (double)((1 << p->bits) - 1));
    spread = as_number(mr_greater(spread, mr__number(MR_FLOAT32, LEAST_SCALE)));
    g->share[0] = shares(w, hi);
    g->share[1] = shares(w, lo);
    if (p->bits > 1) {
        slopes_wide(r, hi, lo, spread, g);
    } else { /* scale = largest - least, bias = least */
        g->scale[0] = spread;
        g->scale[1] = mr_negative(spread);
        g->bias[0] = mr__number(MR_FLOAT32, 0.0);
        g->bias[1] = mr__number(MR_FLOAT32, 1.0);
    }
    for (int k = 0; k < 2; k++)
        if (!g->share[k] || !g->scale[k] || !g->bias[k])
            return mr__error_code();
    return MR_OK;
}

static mr_array *
quantize_vjp(const mr_rule *r, int i)
{
    const mr_array *w = r->primal[0];
    mr_array *cs, *cb, *y = NULL;
    group_slopes g;

    (void)i;
    cs = mr__cast(mr_expand_dims(r->cotangent[1], MR_AXES(-1)), MR_FLOAT32);
    cb = mr__cast(mr_expand_dims(r->cotangent[2], MR_AXES(-1)), MR_FLOAT32);
    if (cs == NULL || cb == NULL || slopes_of(r, &g) != MR_OK)
        return NULL;
    for (int k = 0; k < 2; k++) {
        mr_array *part =
            mr_add(mr_multiply(cs, g.scale[k]), mr_multiply(cb, g.bias[k]));

        part = mr_multiply(part, g.share[k]);
        y = k == 0 ? part : mr_add(y, part);
    }
    y = mr_reshape(y, (mr_shape){w->dim, w->ndim});
    return mr__cast(y, (mr_dtype)w->dtype);
}

static mr_array *
quantize_jvp(const mr_rule *r, int i)
{
    const mr_quant_params *p = mr__params(r->node);
    mr_array *t = mr__cast(r->tangent[0], MR_FLOAT32), *y = NULL;
    group_slopes g;

    (void)i;
    if (r->which == 0)
        return MR_NONE;
    t = mr__quant_grouped(t, p->group);
    if (t == NULL || slopes_of(r, &g) != MR_OK)
        return NULL;
    for (int k = 0; k < 2; k++) {
        mr_array *part = mr_sum(mr_multiply(t, g.share[k]), MR_AXES(-1), true);

        part = mr_multiply(part, r->which == 1 ? g.scale[k] : g.bias[k]);
        y = k == 0 ? part : mr_add(y, part);
    }
    return mr__cast(mr_squeeze(y, MR_AXES(-1)), (mr_dtype)r->output[1]->dtype);
}

/* Rows of a batch are rows, and global scales may have w's first axes. */
static mr_array *
rows_vmap(const mr_batch *b)
{
    mr_array *in[4];

    for (int i = 0; i < b->n_in; i++) {
        in[i] = mr__batch_in(b, i);
        if (in[i] == NULL)
            return NULL;
    }
    return mr__node_new(b->node->op, mr__params(b->node), b->n_in, in);
}

const mr_op mr__op_quantize = {
    .id = MR_OP_QUANTIZE,
    .version = 1,
    .n_in = 1,
    .n_out = 3,
    .name = "quantize",
    MR__PARAMS(mr_quant_params, mr__quant_fields),
    .infer = quantize_infer,
    .vjp = quantize_vjp,
    .jvp = quantize_jvp,
    .vmap = rows_vmap,
};

/* -- quantize_float -------------------------------------------------------- */

/* Codes and scales are bytes and steps of the numbers: no slope. */
const mr_op mr__op_quantize_float = {
    .id = MR_OP_QUANTIZE_FLOAT,
    .version = 1,
    .n_in = -1,
    .n_out = 2,
    .name = "quantize",
    .flags = MR_FLAG_ZERO_GRADIENT,
    MR__PARAMS(mr_quant_params, mr__quant_fields),
    .infer = quantize_infer,
    .vmap = rows_vmap,
};

/* -- quantize_round -------------------------------------------------------- */

static mr_code
quantize_round_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[0]);
    return check_floats(c->params, c->in[0]);
}

static mr_array *
quantize_round_vjp(const mr_rule *r, int i)
{
    return i == 0 ? r->cotangent[0] : MR_NONE;
}

static mr_array *
quantize_round_jvp(const mr_rule *r, int i)
{
    return i == 0 ? r->tangent[0] : MR_NONE;
}

const mr_op mr__op_quantize_round = {
    .id = MR_OP_QUANTIZE_ROUND,
    .version = 1,
    .n_in = -1,
    .name = "quantize_round",
    MR__PARAMS(mr_quant_params, mr__quant_fields),
    .infer = quantize_round_infer,
    .vjp = quantize_round_vjp,
    .jvp = quantize_round_jvp,
    .vmap = rows_vmap,
};

/* -- dequantize ------------------------------------------------------------ */

mr_array *
mr__build_dequantize(mr_array *w, mr_array *scales, mr_array *biases,
                     int64_t group_size, int64_t bits, const char *mode,
                     mr_array *global_scale, mr_dtype dtype)
{
    mr_quant_operands o;
    mr_quant_params p;

    if (mr__quant_read_params(&p, group_size, bits, mode) != MR_OK ||
        mr__quant_check_global(&p, global_scale) != MR_OK ||
        mr__quant_operands_of(&p, w, scales, biases, &o) != MR_OK)
        return NULL;
    if (dtype == MR_DTYPE_DEFAULT)
        dtype = p.mode == MR_QUANT_AFFINE ? o.scales : MR_BFLOAT16;
    if (!is_float(dtype))
        return mr__fail_null(MR_E_DTYPE, "to %s: needs a float type",
                             mr_dtype_name(dtype));
    if (!p.has_global)
        return mr__quant_values(&p, &o, dtype);
    o.in[2] = mr_reshape(global_scale, MR_SCALAR_SHAPE);
    if (o.in[2] == NULL)
        return NULL;
    p.dtype = dtype;
    return mr__node_new(&mr__op_dequantize, &p, 3, (mr_array *const *)o.in);
}

static mr_code
dequantize_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_quant_params *p = c->params;
    const mr_array *w = c->in[0];
    mr_code code = check_shapes(p, w, c->in[1], "scales");

    if (code == MR_OK && p->mode == MR_QUANT_AFFINE)
        code = check_shapes(p, w, c->in[2], "biases");
    if (code != MR_OK)
        return code;
    mr__aval_like(out, w);
    out->dtype = p->dtype;
    out->dim[w->ndim - 1] = w->dim[w->ndim - 1] * 32 / p->bits;
    return mr__check_shape(out->ndim, out->dim);
}

/* Linear in scales (by the codes) and in biases; bytes have no derivative. */
static mr_array *
dequantize_vjp(const mr_rule *r, int i)
{
    const mr_quant_params *p = mr__params(r->node);
    mr_array *c = r->cotangent[0];
    mr_dtype t;

    if (i == 0 || p->mode != MR_QUANT_AFFINE)
        return MR_NONE;
    t = mr__accumulate_dtype(p->dtype);
    c = mr__cast(c, t);
    if (i == 1)
        c = mr_multiply(c, mr__quant_codes(p, r->primal[0], t));
    return mr_sum(mr__quant_grouped(c, p->group), MR_AXES(-1), false);
}

static mr_array *
dequantize_jvp(const mr_rule *r, int i)
{
    const mr_quant_params *p = mr__params(r->node);
    mr_array *in[3] = {r->primal[0], r->tangent[1], r->tangent[2]};

    if (i == 0 || p->mode != MR_QUANT_AFFINE)
        return MR_NONE;
    in[3 - i] = mr__zeros_like(r->primal[3 - i]);
    if (in[3 - i] == NULL)
        return NULL;
    return mr__node_new(r->node->op, p, 3, in);
}

const mr_op mr__op_dequantize = {
    .id = MR_OP_DEQUANTIZE,
    .version = 1,
    .n_in = -1,
    .name = "dequantize",
    MR__PARAMS(mr_quant_params, mr__quant_fields),
    .infer = dequantize_infer,
    .vjp = dequantize_vjp,
    .jvp = dequantize_jvp,
    .vmap = rows_vmap,
};

/* -- to_fp8, from_fp8 ------------------------------------------------------ */

static mr_code
to_fp8_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[0]);
    out->dtype = MR_UINT8;
    return MR_OK;
}

mr_array *
mr__build_to_fp8(mr_array *x)
{
    if (!is_float((mr_dtype)x->dtype))
        return mr__fail_null(MR_E_DTYPE, "x of %s: needs a float type",
                             mr_dtype_name((mr_dtype)x->dtype));
    return mr__node_new(&mr__op_to_fp8, NULL, 1, &x);
}

const mr_op mr__op_to_fp8 = {
    .id = MR_OP_TO_FP8,
    .version = 1,
    .n_in = 1,
    .name = "to_fp8",
    MR__FLAT,
    .infer = to_fp8_infer,
    .vmap = rows_vmap,
};

static const mr_field from_fp8_fields[] = {
    MR_FIELD(1, DTYPE, mr_cast_params, dtype),
};

static mr_code
from_fp8_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_cast_params *p = c->params;

    mr__aval_like(out, c->in[0]);
    out->dtype = p->dtype;
    return MR_OK;
}

mr_array *
mr__build_from_fp8(mr_array *x, mr_dtype dtype)
{
    mr_cast_params p = {dtype == MR_DTYPE_DEFAULT ? MR_BFLOAT16 : dtype};

    if ((mr_dtype)x->dtype != MR_UINT8)
        return mr__fail_null(MR_E_DTYPE, "x of %s: needs uint8",
                             mr_dtype_name((mr_dtype)x->dtype));
    if (!is_float(p.dtype))
        return mr__fail_null(MR_E_DTYPE, "to %s: needs a float type",
                             mr_dtype_name(p.dtype));
    return mr__node_new(&mr__op_from_fp8, &p, 1, &x);
}

const mr_op mr__op_from_fp8 = {
    .id = MR_OP_FROM_FP8,
    .version = 1,
    .n_in = 1,
    .name = "from_fp8",
    MR__FLAT,
    MR__PARAMS(mr_cast_params, from_fp8_fields),
    .infer = from_fp8_infer,
    .vmap = rows_vmap,
};
