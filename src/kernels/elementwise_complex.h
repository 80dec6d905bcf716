/* SPDX-License-Identifier: Apache-2.0
 *
 * elementwise_complex.h -- the scalar operations on complex64 and complex128.
 *
 * A V is two vectors, the real and the imaginary parts.  The inverse functions
 * follow W. Kahan, "Branch cuts for complex elementary functions" (1987);
 * division is R. Smith's (1962).  Part of elementwise.h.
 */
#ifndef MR_KERNELS_ELEMENTWISE_COMPLEX_H
#define MR_KERNELS_ELEMENTWISE_COMPLEX_H

typedef struct V {
    R re, im;
} V;

/* clang-format off */
#define MR_MAP_V(X)                                                            \
    X(COPY, copy)                                                              \
    X(NEGATIVE, negative) X(SIGN, sign) X(SQUARE, square) X(SQRT, sqrt)        \
        X(RSQRT, rsqrt) X(RECIPROCAL, reciprocal) X(EXP, exp) X(EXPM1, expm1)  \
            X(LOG, log) X(LOG2, log2) X(LOG10, log10) X(LOG1P, log1p)          \
                X(SIN, sin) X(COS, cos) X(TAN, tan) X(ARCSIN, arcsin)          \
                    X(ARCCOS, arccos) X(ARCTAN, arctan) X(SINH, sinh)          \
                        X(COSH, cosh) X(TANH, tanh) X(ARCSINH, arcsinh)        \
                            X(ARCCOSH, arccosh) X(ARCTANH, arctanh)            \
                                X(SIGMOID, sigmoid) X(ROUND, round)            \
                                    X(CONJUGATE, conjugate)
/* clang-format on */
#define MR_MAP_V_BOOL(X)                                                       \
    X(LOGICAL_NOT, logical_not)                                                \
    X(ISNAN, isnan)                                                            \
    X(ISINF, isinf)                                                            \
    X(ISFINITE, isfinite) X(ISPOSINF, isposinf) X(ISNEGINF, isneginf)
#define MR_MAP_V_REAL(X) X(ABS, abs) X(REAL, real) X(IMAG, imag)
/* clang-format off */
#define MR_MAP_VV(X)                                                           \
    X(ADD, add)                                                                \
    X(SUBTRACT, subtract) X(MULTIPLY, multiply) X(DIVIDE, divide)              \
        X(POWER, power) X(MAXIMUM, maximum) X(MINIMUM, minimum)                \
            X(LOGADDEXP, logaddexp)
/* clang-format on */
/* clang-format off */
#define MR_MAP_VV_BOOL(X)                                                      \
    X(EQUAL, equal)                                                            \
    X(NOT_EQUAL, not_equal) X(LESS, less) X(LESS_EQUAL, less_equal)            \
        X(GREATER, greater) X(GREATER_EQUAL, greater_equal)                    \
            X(LOGICAL_AND, logical_and) X(LOGICAL_OR, logical_or)              \
                X(LOGICAL_XOR, logical_xor)
/* clang-format on */

/* ---- parts and simple arithmetic ------------------------------------------
 */

INLINE V
c_make(R re, R im)
{
    return (V){re, im};
}

INLINE M
c_part_finite(R x)
{
    return v_lt(v_abs(x), C(HUGE_VAL));
}

INLINE V
k_select(M m, V a, V b)
{
    return c_make(v_select(m, a.re, b.re), v_select(m, a.im, b.im));
}

INLINE V
k_copy(V z)
{
    return z;
}

INLINE R
k_real(V z)
{
    return z.re;
}

INLINE R
k_imag(V z)
{
    return z.im;
}

INLINE V
k_conjugate(V z)
{
    return c_make(z.re, v_neg(z.im));
}

INLINE V
k_negative(V z)
{
    return c_make(v_neg(z.re), v_neg(z.im));
}

INLINE V
k_round(V z)
{
    return c_make(v_round(z.re), v_round(z.im));
}

/* i z and -i z: exact. */
INLINE V
c_times_i(V z)
{
    return c_make(v_neg(z.im), z.re);
}

INLINE V
c_over_i(V z)
{
    return c_make(z.im, v_neg(z.re));
}

INLINE V
k_add(V a, V b)
{
    return c_make(a.re + b.re, a.im + b.im);
}

INLINE V
k_subtract(V a, V b)
{
    return c_make(a.re - b.re, a.im - b.im);
}

INLINE V
k_multiply(V a, V b)
{
    return c_make(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}

INLINE V
k_square(V z)
{
    return c_make((z.re - z.im) * (z.re + z.im), C(2) * z.re * z.im);
}

/* Scaled by the larger part of the divisor; by 0 each part is divided. */
INLINE V
k_divide(V a, V b)
{
    M swap = v_lt(v_abs(b.re), v_abs(b.im));
    R big = v_select(swap, b.im, b.re), small = v_select(swap, b.re, b.im);
    R x = v_select(swap, a.im, a.re), y = v_select(swap, a.re, a.im);
    R ratio = small / big;
    R scale = big + small * ratio;
    R re = (x + y * ratio) / scale, im = (y - x * ratio) / scale;
    M zero = m_and(v_eq(b.re, C(0)), v_eq(b.im, C(0)));
    M flat = m_and(v_eq(v_abs(big), C(HUGE_VAL)),
                   m_and(c_part_finite(a.re), c_part_finite(a.im)));

    im = v_select(swap, v_neg(im), im);
    re = v_select(zero, a.re / v_abs(b.re), re);
    im = v_select(zero, a.im / v_abs(b.re), im);
    return c_make(v_select(flat, C(0), re), v_select(flat, C(0), im));
}

INLINE V
k_reciprocal(V z)
{
    return k_divide(c_make(C(1), C(0)), z);
}

/* An infinite part makes the magnitude infinite, whatever the other is. */
INLINE R
k_abs(V z)
{
    R h = v_hypot(z.re, z.im);
    M inf =
        m_or(v_eq(v_abs(z.re), C(HUGE_VAL)), v_eq(v_abs(z.im), C(HUGE_VAL)));

    return v_select(inf, C(HUGE_VAL), h);
}

/* ---- roots, exponentials, logarithms --------------------------------------
 */

/* Scaling by an even power of two keeps the magnitude in range. */
#if MR_LANE_BITS == 32
#define HUGE_PART 0x1p125
#define TINY_PART 0x1p-90
#define EXP_LIMIT 88.0
#define TANH_FLAT 11.0
#else
#define HUGE_PART 0x1p1021
#define TINY_PART 0x1p-900
#define EXP_LIMIT 709.0
#define TANH_FLAT 22.0
#endif

INLINE R
c_larger_part(V z)
{
    R x = v_abs(z.re), y = v_abs(z.im);

    return v_select(v_lt(x, y), y, x);
}

INLINE V
k_sign(V z)
{
    R m = c_larger_part(z);
    M zero = v_eq(m, C(0));
    R scale = v_select(v_lt(C(HUGE_PART), m), C(0.0625),
                       v_select(v_lt(m, C(TINY_PART)), C(0x1p60), C(1)));
    V s = c_make(z.re * scale, z.im * scale);
    R h = k_abs(s);

    return k_select(zero, c_make(C(0), C(0)), c_make(s.re / h, s.im / h));
}

INLINE V
k_sqrt(V z)
{
    R m = c_larger_part(z);
    M huge = v_lt(C(HUGE_PART), m), tiny = v_lt(m, C(TINY_PART));
    R down = v_select(huge, C(0.0625), v_select(tiny, C(0x1p60), C(1)));
    R back = v_select(huge, C(4), v_select(tiny, C(0x1p-30), C(1)));
    R x = z.re * down, y = z.im * down;
    R t = v_sqrt((v_abs(x) + k_abs(c_make(x, y))) * C(0.5));
    R u = v_abs(y) / (t + t);
    M left = v_lt(x, C(0)), zero = v_eq(m, C(0));
    R re = v_select(left, u, t) * back;
    R im = v_copysign(v_select(left, t, u) * back, z.im);
    M inf = v_eq(v_abs(z.im), C(HUGE_VAL));

    re = v_select(inf, C(HUGE_VAL), v_select(zero, C(0), re));
    return c_make(re, v_select(m_or(inf, zero), z.im, im));
}

INLINE V
k_rsqrt(V z)
{
    return k_reciprocal(k_sqrt(z));
}

/* e^x cos y, e^x sin y, in two factors where e^x alone would overflow; a zero
 * imaginary part stays zero and e^-inf is 0 at any angle. */
INLINE V
k_exp(V z)
{
    R c = v_cos(z.im), s = v_sin(z.im), e = v_exp(z.re);
    M big = v_lt(C(EXP_LIMIT), z.re), none = v_eq(z.re, C(-HUGE_VAL));
    R half = v_exp(z.re * C(0.5));
    R re = v_select(big, half * c * half, e * c);
    R im = v_select(big, half * s * half, e * s);

    re = v_select(none, C(0), re);
    im = v_select(none, C(0), im);
    return c_make(v_select(v_eq(z.im, C(0)), e, re),
                  v_select(v_eq(z.im, C(0)), z.im, im));
}

INLINE V
k_expm1(V z)
{
    R s = v_sin(z.im * C(0.5));
    V e = k_exp(z);
    R re = v_expm1(z.re) * v_cos(z.im) - C(2) * s * s;

    return c_make(v_select(v_lt(C(1), v_abs(z.re)), e.re - C(1), re), e.im);
}

/* log |z|.  Near the unit circle from |z|^2 - 1, its squares with their
 * rounding errors; the sum of the rest cancels exactly. */
INLINE R
c_log_abs(V z)
{
    R x = c_larger_part(z);
    R y = v_select(v_lt(v_abs(z.re), v_abs(z.im)), v_abs(z.re), v_abs(z.im));
    R x2 = x * x, y2 = y * y;
    R low = v_square_error(x, x2) + v_square_error(y, y2);
    R near = C(0.5) * v_log1p((x2 - C(1)) + y2 + low);
    M is_near = m_and(v_lt(C(0.5), x), v_lt(x2 + y2, C(3)));
    M huge = v_lt(C(HUGE_PART), x);
    R h = v_select(huge, C(0.25), C(1));
    R far = v_log(k_abs(c_make(x * h, y * h)));

    far = v_select(huge, far + C(1.3862943611198906), far);
    return v_select(is_near, near, far);
}

INLINE V
k_log(V z)
{
    return c_make(c_log_abs(z), v_atan2(z.im, z.re));
}

INLINE V
k_log2(V z)
{
    V w = k_log(z);

    return c_make(w.re * C(1.4426950408889634), w.im * C(1.4426950408889634));
}

INLINE V
k_log10(V z)
{
    V w = k_log(z);

    return c_make(w.re * C(0.43429448190325183), w.im * C(0.43429448190325183));
}

/* |1 + z|^2 - 1 = x (2 + x) + y^2, which keeps the digits of a small z. */
INLINE V
k_log1p(V z)
{
    V one = c_make(z.re + C(1), z.im);
    V w = k_log(one);
    R small = C(0.5) * v_log1p(z.re * (C(2) + z.re) + z.im * z.im);

    return c_make(v_select(v_lt(c_larger_part(z), C(0.5)), small, w.re), w.im);
}

/* exp(b log a), its magnitude as |a|^Re b e^(-Im b arg a) where that is in
 * range: pow keeps the digits that b log a has lost.  a^0 is 1, and 0^b is 0
 * for a positive real part of b. */
INLINE V
k_power(V a, V b)
{
    V w = k_log(a);
    V turn = k_multiply(b, w);
    R size = v_pow(k_abs(a), b.re) * v_exp(v_neg(b.im * w.im));
    V near = c_make(size * v_cos(turn.im), size * v_sin(turn.im));
    M in_range = m_and(v_lt(C(TINY_PART), size), v_lt(size, C(HUGE_PART)));
    M b0 = m_and(v_eq(b.re, C(0)), v_eq(b.im, C(0)));
    M a0 = m_and(v_eq(a.re, C(0)), v_eq(a.im, C(0)));
    V r;

    near.im = v_select(v_eq(turn.im, C(0)), turn.im, near.im);
    r = k_select(in_range, near, k_exp(turn));
    r = k_select(m_and(a0, v_lt(C(0), b.re)), c_make(C(0), C(0)), r);
    return k_select(b0, c_make(C(1), C(0)), r);
}

/* ---- circular and hyperbolic functions ------------------------------------
 */

/* s cosh y + i c sinh y, in two factors where cosh y alone would overflow. */
INLINE V
c_spread(R s, R c, R y)
{
    M big = v_lt(C(EXP_LIMIT), v_abs(y));
    R re = s * v_cosh(y), im = c * v_sinh(y);
    R e, half;

    if (!m_any(big))
        return c_make(re, im);
    e = v_exp(v_abs(y) * C(0.5));
    half = e * C(0.5);
    re = v_select(big, s * e * half, re);
    im = v_select(big, c * e * v_copysign(half, y), im);
    return c_make(re, im);
}

INLINE V
k_sin(V z)
{
    return c_spread(v_sin(z.re), v_cos(z.re), z.im);
}

INLINE V
k_cos(V z)
{
    return c_spread(v_cos(z.re), v_neg(v_sin(z.re)), z.im);
}

INLINE V
k_sinh(V z)
{
    return c_over_i(k_sin(c_times_i(z)));
}

INLINE V
k_cosh(V z)
{
    return k_cos(c_times_i(z));
}

INLINE V
k_tanh(V z)
{
    R t = v_tan(z.im), s = v_sinh(z.re);
    R beta = C(1) + t * t;
    R rho = v_sqrt(C(1) + s * s);
    R scale = C(1) + beta * s * s;
    M flat = v_lt(C(TANH_FLAT), v_abs(z.re));
    R re = beta * rho * s / scale, im = t / scale;

    return c_make(v_select(flat, v_copysign(C(1), z.re), re),
                  v_select(flat, v_copysign(C(0), t), im));
}

/* Near the imaginary axis, where 1 + e^-z cancels beside its zeros, from the
 * tangent, which keeps its digits there. */
INLINE V
k_sigmoid(V z)
{
    V e = k_exp(k_negative(z));
    V far = k_reciprocal(c_make(e.re + C(1), e.im));
    V t = k_tanh(c_make(z.re * C(0.5), z.im * C(0.5)));
    V near = c_make(C(0.5) + C(0.5) * t.re, C(0.5) * t.im);

    return k_select(v_lt(v_abs(z.re), C(0.5)), near, far);
}

INLINE V
k_tan(V z)
{
    return c_over_i(k_tanh(c_times_i(z)));
}

/* Re(conj(a) b) and Im(conj(a) b) */
INLINE R
c_dot(V a, V b)
{
    return a.re * b.re + a.im * b.im;
}

INLINE R
c_cross(V a, V b)
{
    return a.re * b.im - a.im * b.re;
}

INLINE V
c_root_below(V z) /* sqrt(1 - z) */
{
    return k_sqrt(c_make(C(1) - z.re, v_neg(z.im)));
}

INLINE V
c_root_above(V z) /* sqrt(1 + z) */
{
    return k_sqrt(c_make(C(1) + z.re, z.im));
}

INLINE V
k_arcsin(V z)
{
    V a = c_root_below(z), b = c_root_above(z);

    return c_make(v_atan2(z.re, c_dot(k_conjugate(a), b)),
                  v_asinh(c_cross(a, b)));
}

INLINE V
k_arccos(V z)
{
    V a = c_root_below(z), b = c_root_above(z);

    return c_make(C(2) * v_atan2(a.re, b.re), v_asinh(c_cross(b, a)));
}

INLINE V
k_arccosh(V z)
{
    V a = k_sqrt(c_make(z.re - C(1), z.im)), b = c_root_above(z);

    return c_make(v_asinh(c_dot(a, b)), C(2) * v_atan2(a.im, b.re));
}

INLINE V
k_arcsinh(V z)
{
    return c_over_i(k_arcsin(c_times_i(z)));
}

/* Odd in x, and for x >= 0 the argument of log1p is too: nothing cancels. */
INLINE V
k_arctanh(V z)
{
    R x = v_abs(z.re), y = z.im, d = C(1) - x;
    R re = C(0.25) * v_log1p(C(4) * x / v_fma(d, d, y * y));
    R im = v_atan2(C(2) * y, v_fma(y, v_neg(y), d * (C(1) + x)));

    return c_make(v_copysign(re, z.re), im * C(0.5));
}

INLINE V
k_arctan(V z)
{
    return c_over_i(k_arctanh(c_times_i(z)));
}

/* ---- comparisons: by the real part, then the imaginary --------------------
 */

INLINE M
k_isnan(V z)
{
    return m_or(v_isnan(z.re), v_isnan(z.im));
}

INLINE M
k_isinf(V z)
{
    return v_eq(c_larger_part(z), C(HUGE_VAL));
}

/* The infinities on the real axis alone have a sign. */
INLINE M
k_isposinf(V z)
{
    return m_and(v_eq(z.re, C(HUGE_VAL)), v_eq(z.im, C(0)));
}

INLINE M
k_isneginf(V z)
{
    return m_and(v_eq(z.re, C(-HUGE_VAL)), v_eq(z.im, C(0)));
}

INLINE M
k_isfinite(V z)
{
    return m_and(c_part_finite(z.re), c_part_finite(z.im));
}

INLINE M
k_equal(V a, V b)
{
    return m_and(v_eq(a.re, b.re), v_eq(a.im, b.im));
}

INLINE M
k_not_equal(V a, V b)
{
    return m_not(k_equal(a, b));
}

INLINE M
k_less(V a, V b)
{
    return m_or(v_lt(a.re, b.re), m_and(v_eq(a.re, b.re), v_lt(a.im, b.im)));
}

INLINE M
k_less_equal(V a, V b)
{
    return m_or(v_lt(a.re, b.re), m_and(v_eq(a.re, b.re), v_le(a.im, b.im)));
}

INLINE M
k_greater(V a, V b)
{
    return k_less(b, a);
}

INLINE M
k_greater_equal(V a, V b)
{
    return k_less_equal(b, a);
}

INLINE M
c_true(V z)
{
    return m_or(v_ne(z.re, C(0)), v_ne(z.im, C(0)));
}

INLINE M
k_logical_not(V z)
{
    return m_not(c_true(z));
}

INLINE M
k_logical_and(V a, V b)
{
    return m_and(c_true(a), c_true(b));
}

INLINE M
k_logical_or(V a, V b)
{
    return m_or(c_true(a), c_true(b));
}

INLINE M
k_logical_xor(V a, V b)
{
    return m_xor(c_true(a), c_true(b));
}

INLINE V
k_maximum(V a, V b)
{
    return k_select(m_or(k_less(b, a), k_isnan(a)), a, b);
}

INLINE V
k_minimum(V a, V b)
{
    return k_select(m_or(k_less(a, b), k_isnan(a)), a, b);
}

/* log(e^a + e^b), the larger real part taken out. */
INLINE V
k_logaddexp(V a, V b)
{
    M swap = v_lt(a.re, b.re);
    V high = k_select(swap, b, a), low = k_select(swap, a, b);
    V d = k_select(k_equal(a, b), c_make(C(0), C(0)), k_subtract(low, high));

    return k_add(high, k_log1p(k_exp(d)));
}

#define MR_IDENTITY_SUM  c_make(C(-0.0), C(-0.0))
#define MR_IDENTITY_PROD c_make(C(1), C(0))
#define MR_IDENTITY_MAX  c_make(C(-HUGE_VAL), C(-HUGE_VAL))
#define MR_IDENTITY_MIN  c_make(C(HUGE_VAL), C(HUGE_VAL))

#endif
