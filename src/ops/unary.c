/* SPDX-License-Identifier: Apache-2.0
 *
 * unary.c -- operators of one array, element by element.
 *
 * Each section is an operator: its slope (the derivative at the primal) and
 * its descriptor.  The rules are the same for all: a cotangent is multiplied
 * with the conjugate of the slope, a tangent with the slope (the gradient of a
 * real loss by a complex number is dL/dx + i dL/dy).  Where a function has no
 * slope, its formula gives an infinity or NaN, which is right.
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

typedef mr_array *(*slope_fn)(mr_array *x, mr_array *y);

static slope_fn slope_of(const mr_op *op);

static mr_array *
slope_vjp(const mr_rule *r, int i)
{
    mr_array *slope = slope_of(r->node->op)(r->primal[i], r->output[0]);

    return mr_multiply(r->cotangent[0], mr__conj(slope));
}

static mr_array *
slope_jvp(const mr_rule *r, int i)
{
    mr_array *slope = slope_of(r->node->op)(r->primal[i], r->output[0]);

    return mr_multiply(r->tangent[i], slope);
}

/* What only sorts numbers into kinds, or is a step function. */
#define FLAT   .flags = MR_FLAG_ZERO_GRADIENT
#define SLOPED .vjp = slope_vjp, .jvp = slope_jvp

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
const mr_op mr__op_sign = {
    MR__ELEMENTWISE(MR_OP_SIGN, "sign", 1, MR_K_SIGN),
    FLAT,
};

/* -- square ---------------------------------------------------------------- */
static mr_array *
square_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr__scale(x, 2.0);
}

const mr_op mr__op_square = {
    MR__ELEMENTWISE(MR_OP_SQUARE, "square", 1, MR_K_SQUARE),
    SLOPED,
};

/* -- sqrt ------------------------------------------------------------------ */
/* inf at 0. */
static mr_array *
sqrt_slope(mr_array *x, mr_array *y)
{
    (void)x;
    return mr__scale(mr_reciprocal(y), 0.5);
}

const mr_op mr__op_sqrt = {
    MR__ELEMENTWISE(MR_OP_SQRT, "sqrt", 1, MR_K_SQRT),
    SLOPED,
};

/* -- rsqrt ----------------------------------------------------------------- */
static mr_array *
rsqrt_slope(mr_array *x, mr_array *y)
{
    (void)x;
    return mr__scale(mr_multiply(y, mr_square(y)), -0.5);
}

const mr_op mr__op_rsqrt = {
    MR__ELEMENTWISE(MR_OP_RSQRT, "rsqrt", 1, MR_K_RSQRT),
    SLOPED,
};

/* -- reciprocal ------------------------------------------------------------ */
static mr_array *
reciprocal_slope(mr_array *x, mr_array *y)
{
    (void)x;
    return mr_negative(mr_square(y));
}

const mr_op mr__op_reciprocal = {
    MR__ELEMENTWISE(MR_OP_RECIPROCAL, "reciprocal", 1, MR_K_RECIPROCAL),
    SLOPED,
};

/* -- exp ------------------------------------------------------------------- */
static mr_array *
exp_slope(mr_array *x, mr_array *y)
{
    (void)x;
    return y;
}

const mr_op mr__op_exp = {
    MR__ELEMENTWISE(MR_OP_EXP, "exp", 1, MR_K_EXP),
    SLOPED,
};

/* -- expm1 ----------------------------------------------------------------- */
static mr_array *
expm1_slope(mr_array *x, mr_array *y)
{
    (void)x;
    return mr__shift(y, 1.0);
}

const mr_op mr__op_expm1 = {
    MR__ELEMENTWISE(MR_OP_EXPM1, "expm1", 1, MR_K_EXPM1),
    SLOPED,
};

/* -- log ------------------------------------------------------------------- */
static mr_array *
log_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr_reciprocal(x);
}

const mr_op mr__op_log = {
    MR__ELEMENTWISE(MR_OP_LOG, "log", 1, MR_K_LOG),
    SLOPED,
};

/* -- log2 ------------------------------------------------------------------ */
static mr_array *
log2_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr__scale(mr_reciprocal(x), 1.4426950408889634) /* 1 / ln 2 */;
}

const mr_op mr__op_log2 = {
    MR__ELEMENTWISE(MR_OP_LOG2, "log2", 1, MR_K_LOG2),
    SLOPED,
};

/* -- log10 ----------------------------------------------------------------- */
static mr_array *
log10_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr__scale(mr_reciprocal(x), 0.4342944819032518);
}

const mr_op mr__op_log10 = {
    MR__ELEMENTWISE(MR_OP_LOG10, "log10", 1, MR_K_LOG10),
    SLOPED,
};

/* -- log1p ----------------------------------------------------------------- */
static mr_array *
log1p_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr_reciprocal(mr__shift(x, 1.0));
}

const mr_op mr__op_log1p = {
    MR__ELEMENTWISE(MR_OP_LOG1P, "log1p", 1, MR_K_LOG1P),
    SLOPED,
};

/* -- sin ------------------------------------------------------------------- */
static mr_array *
sin_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr_cos(x);
}

const mr_op mr__op_sin = {
    MR__ELEMENTWISE(MR_OP_SIN, "sin", 1, MR_K_SIN),
    SLOPED,
};

/* -- cos ------------------------------------------------------------------- */
static mr_array *
cos_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr_negative(mr_sin(x));
}

const mr_op mr__op_cos = {
    MR__ELEMENTWISE(MR_OP_COS, "cos", 1, MR_K_COS),
    SLOPED,
};

/* -- tan ------------------------------------------------------------------- */
static mr_array *
tan_slope(mr_array *x, mr_array *y)
{
    (void)x;
    return mr__shift(mr_square(y), 1.0);
}

const mr_op mr__op_tan = {
    MR__ELEMENTWISE(MR_OP_TAN, "tan", 1, MR_K_TAN),
    SLOPED,
};

/* -- arcsin ---------------------------------------------------------------- */
static mr_array *
arcsin_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr_rsqrt(mr__shift(mr_negative(mr_square(x)), 1.0));
}

const mr_op mr__op_arcsin = {
    MR__ELEMENTWISE(MR_OP_ARCSIN, "arcsin", 1, MR_K_ARCSIN),
    SLOPED,
};

/* -- arccos ---------------------------------------------------------------- */
static mr_array *
arccos_slope(mr_array *x, mr_array *y)
{
    return mr_negative(arcsin_slope(x, y));
}

const mr_op mr__op_arccos = {
    MR__ELEMENTWISE(MR_OP_ARCCOS, "arccos", 1, MR_K_ARCCOS),
    SLOPED,
};

/* -- arctan ---------------------------------------------------------------- */
static mr_array *
arctan_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr_reciprocal(mr__shift(mr_square(x), 1.0));
}

const mr_op mr__op_arctan = {
    MR__ELEMENTWISE(MR_OP_ARCTAN, "arctan", 1, MR_K_ARCTAN),
    SLOPED,
};

/* -- sinh ------------------------------------------------------------------ */
static mr_array *
sinh_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr_cosh(x);
}

const mr_op mr__op_sinh = {
    MR__ELEMENTWISE(MR_OP_SINH, "sinh", 1, MR_K_SINH),
    SLOPED,
};

/* -- cosh ------------------------------------------------------------------ */
static mr_array *
cosh_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr_sinh(x);
}

const mr_op mr__op_cosh = {
    MR__ELEMENTWISE(MR_OP_COSH, "cosh", 1, MR_K_COSH),
    SLOPED,
};

/* -- tanh ------------------------------------------------------------------ */
static mr_array *
tanh_slope(mr_array *x, mr_array *y)
{
    (void)x;
    return mr__shift(mr_negative(mr_square(y)), 1.0);
}

const mr_op mr__op_tanh = {
    MR__ELEMENTWISE(MR_OP_TANH, "tanh", 1, MR_K_TANH),
    SLOPED,
};

/* -- arcsinh --------------------------------------------------------------- */
static mr_array *
arcsinh_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr_rsqrt(mr__shift(mr_square(x), 1.0));
}

const mr_op mr__op_arcsinh = {
    MR__ELEMENTWISE(MR_OP_ARCSINH, "arcsinh", 1, MR_K_ARCSINH),
    SLOPED,
};

/* -- arccosh --------------------------------------------------------------- */
/* Two roots, not one of a product: so the branch is right for complex x. */
static mr_array *
arccosh_slope(mr_array *x, mr_array *y)
{
    (void)y;
    mr_array *low = mr_rsqrt(mr__shift(x, -1.0));
    mr_array *high = mr_rsqrt(mr__shift(x, 1.0));

    return mr_multiply(low, high);
}

const mr_op mr__op_arccosh = {
    MR__ELEMENTWISE(MR_OP_ARCCOSH, "arccosh", 1, MR_K_ARCCOSH),
    SLOPED,
};

/* -- arctanh --------------------------------------------------------------- */
static mr_array *
arctanh_slope(mr_array *x, mr_array *y)
{
    (void)y;
    return mr_reciprocal(mr__shift(mr_negative(mr_square(x)), 1.0));
}

const mr_op mr__op_arctanh = {
    MR__ELEMENTWISE(MR_OP_ARCTANH, "arctanh", 1, MR_K_ARCTANH),
    SLOPED,
};

/* -- erf ------------------------------------------------------------------- */
static mr_array *
erf_slope(mr_array *x, mr_array *y)
{
    (void)y;
    /* 2 / sqrt(pi) */
    return mr__scale(mr_exp(mr_negative(mr_square(x))), 1.1283791670955126);
}

const mr_op mr__op_erf = {
    MR__ELEMENTWISE(MR_OP_ERF, "erf", 1, MR_K_ERF),
    SLOPED,
};

/* -- erfinv ---------------------------------------------------------------- */
static mr_array *
erfinv_slope(mr_array *x, mr_array *y)
{
    (void)x;
    /* sqrt(pi) / 2 */
    return mr__scale(mr_exp(mr_square(y)), 0.886226925452758);
}

const mr_op mr__op_erfinv = {
    MR__ELEMENTWISE(MR_OP_ERFINV, "erfinv", 1, MR_K_ERFINV),
    SLOPED,
};

/* -- sigmoid --------------------------------------------------------------- */
static mr_array *
sigmoid_slope(mr_array *x, mr_array *y)
{
    (void)x;
    return mr_multiply(y, mr__shift(mr_negative(y), 1.0));
}

const mr_op mr__op_sigmoid = {
    MR__ELEMENTWISE(MR_OP_SIGMOID, "sigmoid", 1, MR_K_SIGMOID),
    SLOPED,
};

/* -- floor ----------------------------------------------------------------- */
const mr_op mr__op_floor = {
    MR__ELEMENTWISE(MR_OP_FLOOR, "floor", 1, MR_K_FLOOR),
    FLAT,
};

/* -- ceil ------------------------------------------------------------------ */
const mr_op mr__op_ceil = {
    MR__ELEMENTWISE(MR_OP_CEIL, "ceil", 1, MR_K_CEIL),
    FLAT,
};

/* -- rint ------------------------------------------------------------------ */
const mr_op mr__op_rint = {
    MR__ELEMENTWISE(MR_OP_RINT, "rint", 1, MR_K_ROUND),
    FLAT,
};

/* -- trunc ----------------------------------------------------------------- */
const mr_op mr__op_trunc = {
    MR__ELEMENTWISE(MR_OP_TRUNC, "trunc", 1, MR_K_TRUNC),
    FLAT,
};

/* -- logical_not ----------------------------------------------------------- */
const mr_op mr__op_logical_not = {
    MR__ELEMENTWISE(MR_OP_LOGICAL_NOT, "logical_not", 1, MR_K_LOGICAL_NOT),
    FLAT,
};

/* -- bitwise_invert -------------------------------------------------------- */
const mr_op mr__op_bitwise_invert = {
    MR__ELEMENTWISE(MR_OP_BITWISE_INVERT, "bitwise_invert", 1,
                    MR_K_BITWISE_INVERT),
    FLAT,
};

/* -- isnan ----------------------------------------------------------------- */
const mr_op mr__op_isnan = {
    MR__ELEMENTWISE(MR_OP_ISNAN, "isnan", 1, MR_K_ISNAN),
    FLAT,
};

/* -- isinf ----------------------------------------------------------------- */
const mr_op mr__op_isinf = {
    MR__ELEMENTWISE(MR_OP_ISINF, "isinf", 1, MR_K_ISINF),
    FLAT,
};

/* -- isfinite -------------------------------------------------------------- */
const mr_op mr__op_isfinite = {
    MR__ELEMENTWISE(MR_OP_ISFINITE, "isfinite", 1, MR_K_ISFINITE),
    FLAT,
};

/* -- isposinf -------------------------------------------------------------- */
const mr_op mr__op_isposinf = {
    MR__ELEMENTWISE(MR_OP_ISPOSINF, "isposinf", 1, MR_K_ISPOSINF),
    FLAT,
};

/* -- isneginf -------------------------------------------------------------- */
const mr_op mr__op_isneginf = {
    MR__ELEMENTWISE(MR_OP_ISNEGINF, "isneginf", 1, MR_K_ISNEGINF),
    FLAT,
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

/* -- the slopes by operator ------------------------------------------------ */
static const struct {
    uint16_t id;
    slope_fn slope;
} slopes[] = {
    {MR_OP_SQUARE, square_slope},   {MR_OP_SQRT, sqrt_slope},
    {MR_OP_RSQRT, rsqrt_slope},     {MR_OP_RECIPROCAL, reciprocal_slope},
    {MR_OP_EXP, exp_slope},         {MR_OP_EXPM1, expm1_slope},
    {MR_OP_LOG, log_slope},         {MR_OP_LOG2, log2_slope},
    {MR_OP_LOG10, log10_slope},     {MR_OP_LOG1P, log1p_slope},
    {MR_OP_SIN, sin_slope},         {MR_OP_COS, cos_slope},
    {MR_OP_TAN, tan_slope},         {MR_OP_ARCSIN, arcsin_slope},
    {MR_OP_ARCCOS, arccos_slope},   {MR_OP_ARCTAN, arctan_slope},
    {MR_OP_SINH, sinh_slope},       {MR_OP_COSH, cosh_slope},
    {MR_OP_TANH, tanh_slope},       {MR_OP_ARCSINH, arcsinh_slope},
    {MR_OP_ARCCOSH, arccosh_slope}, {MR_OP_ARCTANH, arctanh_slope},
    {MR_OP_ERF, erf_slope},         {MR_OP_ERFINV, erfinv_slope},
    {MR_OP_SIGMOID, sigmoid_slope},
};

static slope_fn
slope_of(const mr_op *op)
{
    size_t i = 0;

    while (slopes[i].id != op->id) /* SLOPED operators are all in the list */
        i++;
    return slopes[i].slope;
}
