/* SPDX-License-Identifier: Apache-2.0
 *
 * elementwise_float.h -- the scalar operations on float16, bfloat16, float32
 * and float64 (halves arrive widened and are rounded by the store).
 *
 * Part of elementwise.h, which says what V, R, M and the v_ functions are.
 */
#ifndef MR_K_MAP_FUNCTIONS
/* Functions of one number by ids.h's rule, X(ID, name, operands, result).
 * ids.h reads this list and nothing else of the file, so that a new function
 * is named and defined in one place. */
/* clang-format off */
#define MR_K_MAP_FUNCTIONS(X)                                                  \
    X(SQRT, sqrt, 1, SAME)                                                     \
    X(RSQRT, rsqrt, 1, SAME)                                                   \
    X(RECIPROCAL, reciprocal, 1, SAME)                                         \
    X(EXP, exp, 1, SAME)                                                       \
    X(EXPM1, expm1, 1, SAME)                                                   \
    X(LOG, log, 1, SAME)                                                       \
    X(LOG2, log2, 1, SAME)                                                     \
    X(LOG10, log10, 1, SAME)                                                   \
    X(LOG1P, log1p, 1, SAME)                                                   \
    X(SIN, sin, 1, SAME)                                                       \
    X(COS, cos, 1, SAME)                                                       \
    X(TAN, tan, 1, SAME)                                                       \
    X(ARCSIN, arcsin, 1, SAME)                                                 \
    X(ARCCOS, arccos, 1, SAME)                                                 \
    X(ARCTAN, arctan, 1, SAME)                                                 \
    X(SINH, sinh, 1, SAME)                                                     \
    X(COSH, cosh, 1, SAME)                                                     \
    X(TANH, tanh, 1, SAME)                                                     \
    X(ARCSINH, arcsinh, 1, SAME)                                               \
    X(ARCCOSH, arccosh, 1, SAME)                                               \
    X(ARCTANH, arctanh, 1, SAME)                                               \
    X(ERF, erf, 1, SAME)                                                       \
    X(ERFINV, erfinv, 1, SAME)                                                 \
    X(SIGMOID, sigmoid, 1, SAME)
/* Of two. */
#define MR_K_MAP_FUNCTIONS_2(X)                                                \
    X(ARCTAN2, arctan2, 2, SAME)                                               \
    X(LOGADDEXP, logaddexp, 2, SAME)                                           \
    X(COPYSIGN, copysign, 2, SAME)                                             \
    X(HYPOT, hypot, 2, SAME)
/* clang-format on */
#endif

#if !defined MR_K_LIST_ONLY && !defined MR_KERNELS_ELEMENTWISE_FLOAT_H
#define MR_KERNELS_ELEMENTWISE_FLOAT_H

typedef R V;

/* X(ID, function) by the kinds of operands and result. */
/* clang-format off */
#define MR_MAP_V(X)                                                            \
    X(COPY, copy)                                                              \
    X(ABS, abs) X(NEGATIVE, negative) X(SIGN, sign) X(SQUARE, square)          \
        X(SQRT, sqrt) X(RSQRT, rsqrt) X(RECIPROCAL, reciprocal) X(EXP, exp)    \
            X(EXPM1, expm1) X(LOG, log) X(LOG2, log2) X(LOG10, log10)          \
                X(LOG1P, log1p) X(SIN, sin) X(COS, cos) X(TAN, tan)            \
                    X(ARCSIN, arcsin) X(ARCCOS, arccos) X(ARCTAN, arctan)      \
                        X(SINH, sinh) X(COSH, cosh) X(TANH, tanh)              \
                            X(ARCSINH, arcsinh) X(ARCCOSH, arccosh)            \
                                X(ARCTANH, arctanh) X(ERF, erf)                \
                                    X(ERFINV, erfinv) X(SIGMOID, sigmoid)      \
                                        X(FLOOR, floor) X(CEIL, ceil)          \
                                            X(ROUND, round) X(TRUNC, trunc)    \
                                                X(REAL, copy) X(IMAG, imag)    \
                                                    X(CONJUGATE, copy)
/* clang-format on */
/* clang-format off */
#define MR_MAP_V_BOOL(X)                                                       \
    X(LOGICAL_NOT, logical_not)                                                \
    X(ISNAN, isnan) X(ISINF, isinf) X(ISFINITE, isfinite)                      \
        X(ISPOSINF, isposinf) X(ISNEGINF, isneginf) X(SIGNBIT, signbit)
/* clang-format on */
#define MR_MAP_V_REAL(X)
/* clang-format off */
#define MR_MAP_VV(X)                                                           \
    X(ADD, add)                                                                \
    X(SUBTRACT, subtract) X(MULTIPLY, multiply) X(DIVIDE, divide)              \
        X(FLOOR_DIVIDE, floor_divide) X(REMAINDER, remainder) X(POWER, power)  \
            X(MAXIMUM, maximum) X(MINIMUM, minimum) X(ARCTAN2, arctan2)        \
                X(LOGADDEXP, logaddexp) X(COPYSIGN, copysign)              \
                    X(HYPOT, hypot)
/* clang-format on */

#include "kernels/elementwise_compare.h"

/* ---- one operand ----------------------------------------------------------
 */

INLINE V
k_copy(V x)
{
    return x;
}

INLINE V
k_imag(V x)
{
    (void)x;
    return C(0);
}

INLINE V
k_abs(V x)
{
    return v_abs(x);
}

INLINE V
k_negative(V x)
{
    return v_neg(x);
}

/* NaN gives NaN, both zeros +0. */
INLINE V
k_sign(V x)
{
    V s = v_select(v_lt(x, C(0)), C(-1), x + C(0));

    return v_select(v_lt(C(0), x), C(1), s);
}

INLINE V
k_square(V x)
{
    return x * x;
}

INLINE V
k_sqrt(V x)
{
    return v_sqrt(x);
}

INLINE V
k_rsqrt(V x)
{
    return C(1) / v_sqrt(x);
}

INLINE V
k_reciprocal(V x)
{
    return C(1) / x;
}

INLINE V
k_exp(V x)
{
    return v_exp(x);
}

INLINE V
k_expm1(V x)
{
    return v_expm1(x);
}

INLINE V
k_log(V x)
{
    return v_log(x);
}

INLINE V
k_log2(V x)
{
    return v_log2(x);
}

INLINE V
k_log10(V x)
{
    return v_log10(x);
}

INLINE V
k_log1p(V x)
{
    return v_log1p(x);
}

INLINE V
k_sin(V x)
{
    return v_sin(x);
}

INLINE V
k_cos(V x)
{
    return v_cos(x);
}

INLINE V
k_tan(V x)
{
    return v_tan(x);
}

INLINE V
k_arcsin(V x)
{
    return v_asin(x);
}

INLINE V
k_arccos(V x)
{
    return v_acos(x);
}

INLINE V
k_arctan(V x)
{
    return v_atan(x);
}

INLINE V
k_sinh(V x)
{
    return v_sinh(x);
}

INLINE V
k_cosh(V x)
{
    return v_cosh(x);
}

INLINE V
k_tanh(V x)
{
    return v_tanh(x);
}

INLINE V
k_arcsinh(V x)
{
    return v_asinh(x);
}

INLINE V
k_arccosh(V x)
{
    return v_acosh(x);
}

INLINE V
k_arctanh(V x)
{
    return v_atanh(x);
}

INLINE V
k_erf(V x)
{
    return v_erf(x);
}

INLINE V
k_erfinv(V x)
{
    return v_erfinv(x);
}

/* With exp of the negative magnitude nothing overflows and small results
 * keep their digits. */
INLINE V
k_sigmoid(V x)
{
    V e = v_exp(v_neg(v_abs(x)));

    return v_select(v_lt(x, C(0)), e, C(1)) / (C(1) + e);
}

INLINE V
k_floor(V x)
{
    return v_floor(x);
}

INLINE V
k_ceil(V x)
{
    return v_ceil(x);
}

INLINE V
k_round(V x)
{
    return v_round(x);
}

INLINE V
k_trunc(V x)
{
    return v_trunc(x);
}

/* ---- one operand, a bool --------------------------------------------------
 */

INLINE M
k_logical_not(V x)
{
    return v_eq(x, C(0));
}

INLINE M
k_isnan(V x)
{
    return v_isnan(x);
}

INLINE M
k_isinf(V x)
{
    return v_eq(v_abs(x), C(HUGE_VAL));
}

INLINE M
k_isfinite(V x)
{
    return v_lt(v_abs(x), C(HUGE_VAL));
}

INLINE M
k_isposinf(V x)
{
    return v_eq(x, C(HUGE_VAL));
}

INLINE M
k_isneginf(V x)
{
    return v_eq(x, C(-HUGE_VAL));
}

INLINE M
k_signbit(V x)
{
    return v_lt(v_copysign(C(1), x), C(0));
}

/* ---- two operands ---------------------------------------------------------
 */

INLINE V
k_add(V a, V b)
{
    return a + b;
}

INLINE V
k_subtract(V a, V b)
{
    return a - b;
}

INLINE V
k_multiply(V a, V b)
{
    return a * b;
}

INLINE V
k_divide(V a, V b)
{
    return a / b;
}

/* Has a remainder r (of the sign of a) the wrong sign for divisor b? */
INLINE M
remainder_below(V r, V b)
{
    return m_or(m_and(v_lt(r, C(0)), v_lt(C(0), b)),
                m_and(v_lt(C(0), r), v_lt(b, C(0))));
}

/* The remainder with the divisor's sign, zero included; b = 0 gives NaN. */
INLINE V
k_remainder(V a, V b)
{
    V r = v_fmod(a, b);

    r = v_select(remainder_below(r, b), r + b, r);
    /* the sign goes on a constant: Clang 14 gets a masked copysign wrong */
    return v_select(v_eq(r, C(0)), v_copysign(C(0), b), r);
}

/* floor(a / b) of the exact quotient, as Python has it: the dividend less its
 * remainder is a multiple of b but for rounding, which the nearest whole
 * number undoes. */
INLINE V
k_floor_divide(V a, V b)
{
    V r = v_fmod(a, b);
    V q = (a - r) / b;
    V f;

    q = v_select(remainder_below(r, b), q - C(1), q);
    f = v_floor(q);
    f = v_select(v_lt(C(0.5), q - f), f + C(1), f);
    f = v_select(v_eq(q, C(0)), v_copysign(C(0), a / b), f);
    return v_select(v_eq(b, C(0)), a / b, f);
}

INLINE V
k_power(V a, V b)
{
    return v_pow(a, b);
}

/* A NaN in either operand wins. */
INLINE V
k_maximum(V a, V b)
{
    return v_select(m_or(v_lt(b, a), v_isnan(a)), a, b);
}

INLINE V
k_minimum(V a, V b)
{
    return v_select(m_or(v_lt(a, b), v_isnan(a)), a, b);
}

INLINE V
k_arctan2(V a, V b)
{
    return v_atan2(a, b);
}

/* Equal operands (infinities too) differ by 0. */
INLINE V
k_logaddexp(V a, V b)
{
    V d = v_select(v_eq(a, b), C(0), v_neg(v_abs(a - b)));

    return k_maximum(a, b) + v_log1p(v_exp(d));
}

INLINE V
k_copysign(V a, V b)
{
    return v_copysign(a, b);
}

/* An infinite operand makes the length infinite, whatever the other is. */
INLINE V
k_hypot(V a, V b)
{
    M inf = m_or(v_eq(v_abs(a), C(HUGE_VAL)), v_eq(v_abs(b), C(HUGE_VAL)));

    return v_select(inf, C(HUGE_VAL), v_hypot(a, b));
}

/* For reductions: the identities; is a better than b (argmax, argmin)? */
#define MR_IDENTITY_SUM  C(-0.0)
#define MR_IDENTITY_PROD C(1)
#define MR_IDENTITY_MAX  C(-HUGE_VAL)
#define MR_IDENTITY_MIN  C(HUGE_VAL)

#endif
