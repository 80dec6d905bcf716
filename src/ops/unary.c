/* SPDX-License-Identifier: Apache-2.0
 *
 * unary.c -- operators of one array, element by element.
 *
 * Each section is an operator: its slope (the derivative at the primal), from
 * which its rules follow (MR__SLOPED in rules.h), and its descriptor.  Where a
 * function has no slope, its formula gives an infinity or NaN, which is right.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <math.h>

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

/* -- abs ------------------------------------------------------------------- */
/* At 0 the slope is 0.  A complex number's modulus grows along the number
 * itself, so its cotangent, which is real, points that way. */
static mr_array *
abs_vjp(const mr_rule *r, int i)
{
    return mr_multiply(r->cotangent[0], mr_sign(r->primal[i]));
}

static mr_array *
abs_jvp(const mr_rule *r, int i)
{
    mr_array *s = mr_sign(r->primal[i]);

    return mr_real(mr_multiply(r->tangent[i], mr__conj(s)));
}

const mr_op mr__op_abs = {
    MR__ELEMENTWISE(MR_OP_ABS, "abs", 1, MR_K_ABS),
    .vjp = abs_vjp,
    .jvp = abs_jvp,
};

/* -- negative -------------------------------------------------------------- */
static mr_array *
negative_vjp(const mr_rule *r, int i)
{
    (void)i;
    return mr_negative(r->cotangent[0]);
}

static mr_array *
negative_jvp(const mr_rule *r, int i)
{
    return mr_negative(r->tangent[i]);
}

const mr_op mr__op_negative = {
    MR__ELEMENTWISE(MR_OP_NEGATIVE, "negative", 1, MR_K_NEGATIVE),
    .flags = MR_FLAG_LINEAR,
    .vjp = negative_vjp,
    .jvp = negative_jvp,
};

/* -- sign ------------------------------------------------------------------ */
/* Flat for real numbers.  A complex sign s = z / |z| turns with what is across
 * it: (v - s Re(conj(s) v)) / |z|, the same forward and back; 0 at 0. */
static mr_array *
sign_part(const mr_rule *r, mr_array *v)
{
    mr_array *s = r->output[0], *size, *zero, *along;
    mr_dtype t;

    if (mr__dtype_kind((mr_dtype)r->primal[0]->dtype) != MR_KIND_COMPLEX)
        return MR_NONE;
    size = mr_abs(r->primal[0]);
    if (size == NULL)
        return NULL;
    t = (mr_dtype)size->dtype;
    zero = mr_equal(size, mr__number(t, 0.0));
    size = mr_where(zero, mr__number(t, 1.0), size);
    along = mr_real(mr_multiply(mr__conj(s), v));
    return mr__masked_not(
        zero, mr_divide(mr_subtract(v, mr_multiply(s, along)), size));
}

static mr_array *
sign_vjp(const mr_rule *r, int i)
{
    (void)i;
    return sign_part(r, r->cotangent[0]);
}

static mr_array *
sign_jvp(const mr_rule *r, int i)
{
    return sign_part(r, r->tangent[i]);
}

const mr_op mr__op_sign = {
    MR__ELEMENTWISE(MR_OP_SIGN, "sign", 1, MR_K_SIGN),
    .vjp = sign_vjp,
    .jvp = sign_jvp,
};

/* -- square ---------------------------------------------------------------- */
static mr_array *
square_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr__scale(r->primal[0], 2.0);
}

const mr_op mr__op_square = {
    MR__ELEMENTWISE(MR_OP_SQUARE, "square", 1, MR_K_SQUARE),
    MR__SLOPED(square_slope),
};

/* -- sqrt ------------------------------------------------------------------ */
/* inf at 0. */
static mr_array *
sqrt_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr__scale(mr_reciprocal(r->output[0]), 0.5);
}

const mr_op mr__op_sqrt = {
    MR__ELEMENTWISE(MR_OP_SQRT, "sqrt", 1, MR_K_SQRT),
    MR__SLOPED(sqrt_slope),
};

/* -- rsqrt ----------------------------------------------------------------- */
static mr_array *
rsqrt_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr__scale(mr_multiply(r->output[0], mr_square(r->output[0])), -0.5);
}

const mr_op mr__op_rsqrt = {
    MR__ELEMENTWISE(MR_OP_RSQRT, "rsqrt", 1, MR_K_RSQRT),
    MR__SLOPED(rsqrt_slope),
};

/* -- reciprocal ------------------------------------------------------------ */
static mr_array *
reciprocal_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_negative(mr_square(r->output[0]));
}

const mr_op mr__op_reciprocal = {
    MR__ELEMENTWISE(MR_OP_RECIPROCAL, "reciprocal", 1, MR_K_RECIPROCAL),
    MR__SLOPED(reciprocal_slope),
};

/* -- exp ------------------------------------------------------------------- */
static mr_array *
exp_slope(const mr_rule *r, int i)
{
    (void)i;
    return r->output[0];
}

const mr_op mr__op_exp = {
    MR__ELEMENTWISE(MR_OP_EXP, "exp", 1, MR_K_EXP),
    MR__SLOPED(exp_slope),
};

/* -- expm1 ----------------------------------------------------------------- */
static mr_array *
expm1_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr__shift(r->output[0], 1.0);
}

const mr_op mr__op_expm1 = {
    MR__ELEMENTWISE(MR_OP_EXPM1, "expm1", 1, MR_K_EXPM1),
    MR__SLOPED(expm1_slope),
};

/* -- log ------------------------------------------------------------------- */
static mr_array *
log_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_reciprocal(r->primal[0]);
}

const mr_op mr__op_log = {
    MR__ELEMENTWISE(MR_OP_LOG, "log", 1, MR_K_LOG),
    MR__SLOPED(log_slope),
};

/* -- log2 ------------------------------------------------------------------ */
static mr_array *
log2_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr__scale(mr_reciprocal(r->primal[0]),
                     1.4426950408889634) /* 1 / ln 2 */;
}

const mr_op mr__op_log2 = {
    MR__ELEMENTWISE(MR_OP_LOG2, "log2", 1, MR_K_LOG2),
    MR__SLOPED(log2_slope),
};

/* -- log10 ----------------------------------------------------------------- */
static mr_array *
log10_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr__scale(mr_reciprocal(r->primal[0]), 0.4342944819032518);
}

const mr_op mr__op_log10 = {
    MR__ELEMENTWISE(MR_OP_LOG10, "log10", 1, MR_K_LOG10),
    MR__SLOPED(log10_slope),
};

/* -- log1p ----------------------------------------------------------------- */
static mr_array *
log1p_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_reciprocal(mr__shift(r->primal[0], 1.0));
}

const mr_op mr__op_log1p = {
    MR__ELEMENTWISE(MR_OP_LOG1P, "log1p", 1, MR_K_LOG1P),
    MR__SLOPED(log1p_slope),
};

/* -- sin ------------------------------------------------------------------- */
static mr_array *
sin_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_cos(r->primal[0]);
}

const mr_op mr__op_sin = {
    MR__ELEMENTWISE(MR_OP_SIN, "sin", 1, MR_K_SIN),
    MR__SLOPED(sin_slope),
};

/* -- cos ------------------------------------------------------------------- */
static mr_array *
cos_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_negative(mr_sin(r->primal[0]));
}

const mr_op mr__op_cos = {
    MR__ELEMENTWISE(MR_OP_COS, "cos", 1, MR_K_COS),
    MR__SLOPED(cos_slope),
};

/* -- tan ------------------------------------------------------------------- */
static mr_array *
tan_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr__shift(mr_square(r->output[0]), 1.0);
}

const mr_op mr__op_tan = {
    MR__ELEMENTWISE(MR_OP_TAN, "tan", 1, MR_K_TAN),
    MR__SLOPED(tan_slope),
};

/* -- arcsin ---------------------------------------------------------------- */
static mr_array *
arcsin_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_rsqrt(mr__shift(mr_negative(mr_square(r->primal[0])), 1.0));
}

const mr_op mr__op_arcsin = {
    MR__ELEMENTWISE(MR_OP_ARCSIN, "arcsin", 1, MR_K_ARCSIN),
    MR__SLOPED(arcsin_slope),
};

/* -- arccos ---------------------------------------------------------------- */
static mr_array *
arccos_slope(const mr_rule *r, int i)
{
    return mr_negative(arcsin_slope(r, i));
}

const mr_op mr__op_arccos = {
    MR__ELEMENTWISE(MR_OP_ARCCOS, "arccos", 1, MR_K_ARCCOS),
    MR__SLOPED(arccos_slope),
};

/* -- arctan ---------------------------------------------------------------- */
static mr_array *
arctan_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_reciprocal(mr__shift(mr_square(r->primal[0]), 1.0));
}

const mr_op mr__op_arctan = {
    MR__ELEMENTWISE(MR_OP_ARCTAN, "arctan", 1, MR_K_ARCTAN),
    MR__SLOPED(arctan_slope),
};

/* -- sinh ------------------------------------------------------------------ */
static mr_array *
sinh_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_cosh(r->primal[0]);
}

const mr_op mr__op_sinh = {
    MR__ELEMENTWISE(MR_OP_SINH, "sinh", 1, MR_K_SINH),
    MR__SLOPED(sinh_slope),
};

/* -- cosh ------------------------------------------------------------------ */
static mr_array *
cosh_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_sinh(r->primal[0]);
}

const mr_op mr__op_cosh = {
    MR__ELEMENTWISE(MR_OP_COSH, "cosh", 1, MR_K_COSH),
    MR__SLOPED(cosh_slope),
};

/* -- tanh ------------------------------------------------------------------ */
static mr_array *
tanh_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr__shift(mr_negative(mr_square(r->output[0])), 1.0);
}

const mr_op mr__op_tanh = {
    MR__ELEMENTWISE(MR_OP_TANH, "tanh", 1, MR_K_TANH),
    MR__SLOPED(tanh_slope),
};

/* -- arcsinh --------------------------------------------------------------- */
static mr_array *
arcsinh_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_rsqrt(mr__shift(mr_square(r->primal[0]), 1.0));
}

const mr_op mr__op_arcsinh = {
    MR__ELEMENTWISE(MR_OP_ARCSINH, "arcsinh", 1, MR_K_ARCSINH),
    MR__SLOPED(arcsinh_slope),
};

/* -- arccosh --------------------------------------------------------------- */
/* Two roots, not one of a product: so the branch is right for complex x. */
static mr_array *
arccosh_slope(const mr_rule *r, int i)
{
    (void)i;
    mr_array *low = mr_rsqrt(mr__shift(r->primal[0], -1.0));
    mr_array *high = mr_rsqrt(mr__shift(r->primal[0], 1.0));

    return mr_multiply(low, high);
}

const mr_op mr__op_arccosh = {
    MR__ELEMENTWISE(MR_OP_ARCCOSH, "arccosh", 1, MR_K_ARCCOSH),
    MR__SLOPED(arccosh_slope),
};

/* -- arctanh --------------------------------------------------------------- */
static mr_array *
arctanh_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_reciprocal(mr__shift(mr_negative(mr_square(r->primal[0])), 1.0));
}

const mr_op mr__op_arctanh = {
    MR__ELEMENTWISE(MR_OP_ARCTANH, "arctanh", 1, MR_K_ARCTANH),
    MR__SLOPED(arctanh_slope),
};

/* -- erf ------------------------------------------------------------------- */
static mr_array *
erf_slope(const mr_rule *r, int i)
{
    (void)i;
    /* 2 / sqrt(pi) */
    return mr__scale(mr_exp(mr_negative(mr_square(r->primal[0]))),
                     1.1283791670955126);
}

const mr_op mr__op_erf = {
    MR__ELEMENTWISE(MR_OP_ERF, "erf", 1, MR_K_ERF),
    MR__SLOPED(erf_slope),
};

/* -- erfinv ---------------------------------------------------------------- */
static mr_array *
erfinv_slope(const mr_rule *r, int i)
{
    (void)i;
    /* sqrt(pi) / 2 */
    return mr__scale(mr_exp(mr_square(r->output[0])), 0.886226925452758);
}

const mr_op mr__op_erfinv = {
    MR__ELEMENTWISE(MR_OP_ERFINV, "erfinv", 1, MR_K_ERFINV),
    MR__SLOPED(erfinv_slope),
};

/* -- sigmoid --------------------------------------------------------------- */
static mr_array *
sigmoid_slope(const mr_rule *r, int i)
{
    (void)i;
    return mr_multiply(r->output[0], mr__shift(mr_negative(r->output[0]), 1.0));
}

const mr_op mr__op_sigmoid = {
    MR__ELEMENTWISE(MR_OP_SIGMOID, "sigmoid", 1, MR_K_SIGMOID),
    MR__SLOPED(sigmoid_slope),
};

/* -- floor ----------------------------------------------------------------- */
const mr_op mr__op_floor = {
    MR__ELEMENTWISE(MR_OP_FLOOR, "floor", 1, MR_K_FLOOR),
    MR__FLAT,
};

/* -- ceil ------------------------------------------------------------------ */
const mr_op mr__op_ceil = {
    MR__ELEMENTWISE(MR_OP_CEIL, "ceil", 1, MR_K_CEIL),
    MR__FLAT,
};

/* -- rint ------------------------------------------------------------------ */
const mr_op mr__op_rint = {
    MR__ELEMENTWISE(MR_OP_RINT, "rint", 1, MR_K_ROUND),
    MR__FLAT,
};

/* -- trunc ----------------------------------------------------------------- */
const mr_op mr__op_trunc = {
    MR__ELEMENTWISE(MR_OP_TRUNC, "trunc", 1, MR_K_TRUNC),
    MR__FLAT,
};

/* -- logical_not ----------------------------------------------------------- */
const mr_op mr__op_logical_not = {
    MR__ELEMENTWISE(MR_OP_LOGICAL_NOT, "logical_not", 1, MR_K_LOGICAL_NOT),
    MR__FLAT,
};

/* -- bitwise_invert -------------------------------------------------------- */
const mr_op mr__op_bitwise_invert = {
    MR__ELEMENTWISE(MR_OP_BITWISE_INVERT, "bitwise_invert", 1,
                    MR_K_BITWISE_INVERT),
    MR__FLAT,
};

/* -- isnan ----------------------------------------------------------------- */
const mr_op mr__op_isnan = {
    MR__ELEMENTWISE(MR_OP_ISNAN, "isnan", 1, MR_K_ISNAN),
    MR__FLAT,
};

/* -- isinf ----------------------------------------------------------------- */
const mr_op mr__op_isinf = {
    MR__ELEMENTWISE(MR_OP_ISINF, "isinf", 1, MR_K_ISINF),
    MR__FLAT,
};

/* -- isfinite -------------------------------------------------------------- */
const mr_op mr__op_isfinite = {
    MR__ELEMENTWISE(MR_OP_ISFINITE, "isfinite", 1, MR_K_ISFINITE),
    MR__FLAT,
};

/* -- isposinf -------------------------------------------------------------- */
const mr_op mr__op_isposinf = {
    MR__ELEMENTWISE(MR_OP_ISPOSINF, "isposinf", 1, MR_K_ISPOSINF),
    MR__FLAT,
};

/* -- isneginf -------------------------------------------------------------- */
const mr_op mr__op_isneginf = {
    MR__ELEMENTWISE(MR_OP_ISNEGINF, "isneginf", 1, MR_K_ISNEGINF),
    MR__FLAT,
};

/* -- signbit --------------------------------------------------------------- */
const mr_op mr__op_signbit = {
    MR__ELEMENTWISE(MR_OP_SIGNBIT, "signbit", 1, MR_K_SIGNBIT),
    MR__FLAT,
};

/* -- real ------------------------------------------------------------------ */
mr_array *
mr__build_real(mr_array *a)
{
    if (!mr__dtype_is_complex((mr_dtype)a->dtype))
        return a;
    return mr__node_elementwise(&mr__op_real, mr__to_real((mr_dtype)a->dtype),
                                1, &a);
}

static mr_array *
real_vjp(const mr_rule *r, int i)
{
    return mr__cast(r->cotangent[0], (mr_dtype)r->primal[i]->dtype);
}

static mr_array *
real_jvp(const mr_rule *r, int i)
{
    return mr_real(r->tangent[i]);
}

const mr_op mr__op_real = {
    MR__ELEMENTWISE(MR_OP_REAL, "real", 1, MR_K_REAL),
    .vjp = real_vjp,
    .jvp = real_jvp,
};

/* -- imag ------------------------------------------------------------------ */
mr_array *
mr__build_imag(mr_array *a)
{
    if (!mr__dtype_is_complex((mr_dtype)a->dtype))
        return mr__zeros_like(a);
    return mr__node_elementwise(&mr__op_imag, mr__to_real((mr_dtype)a->dtype),
                                1, &a);
}

static mr_array *
imag_vjp(const mr_rule *r, int i)
{
    mr_scalar unit = {.kind = MR_SCALAR_COMPLEX, .as.c = {0.0, 1.0}};
    mr_dtype t = (mr_dtype)r->primal[i]->dtype;

    return mr_multiply(mr__cast(r->cotangent[0], t),
                       mr_array_from_scalar(unit, t));
}

static mr_array *
imag_jvp(const mr_rule *r, int i)
{
    return mr_imag(r->tangent[i]);
}

const mr_op mr__op_imag = {
    MR__ELEMENTWISE(MR_OP_IMAG, "imag", 1, MR_K_IMAG),
    .vjp = imag_vjp,
    .jvp = imag_jvp,
};

/* -- conjugate ------------------------------------------------------------- */
mr_array *
mr__build_conjugate(mr_array *a)
{
    if (!mr__dtype_is_complex((mr_dtype)a->dtype))
        return a;
    return mr__node_elementwise(&mr__op_conjugate, (mr_dtype)a->dtype, 1, &a);
}

static mr_array *
conjugate_vjp(const mr_rule *r, int i)
{
    (void)i;
    return mr_conjugate(r->cotangent[0]);
}

static mr_array *
conjugate_jvp(const mr_rule *r, int i)
{
    return mr_conjugate(r->tangent[i]);
}

const mr_op mr__op_conjugate = {
    MR__ELEMENTWISE(MR_OP_CONJUGATE, "conjugate", 1, MR_K_CONJUGATE),
    .vjp = conjugate_vjp,
    .jvp = conjugate_jvp,
};
