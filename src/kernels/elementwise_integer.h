/* SPDX-License-Identifier: Apache-2.0
 *
 * elementwise_integer.h -- the scalar operations on signed and unsigned
 * integers.  All arithmetic wraps and none traps.
 *
 * Part of elementwise.h, which says what V, R, M, U and the v_ functions are.
 */
#ifndef MR_KERNELS_ELEMENTWISE_INTEGER_H
#define MR_KERNELS_ELEMENTWISE_INTEGER_H

typedef R V;

/* clang-format off */
#define MR_MAP_V(X)                                                            \
    X(COPY, copy)                                                              \
    X(ABS, abs) X(NEGATIVE, negative) X(SIGN, sign) X(SQUARE, square)          \
        X(FLOOR, copy) X(CEIL, copy) X(ROUND, copy) X(TRUNC, copy)             \
            X(BITWISE_INVERT, bitwise_invert) X(REAL, copy) X(IMAG, imag)      \
                X(CONJUGATE, copy)
/* clang-format on */
/* clang-format off */
#define MR_MAP_V_BOOL(X)                                                       \
    X(LOGICAL_NOT, logical_not)                                                \
    X(ISNAN, never) X(ISINF, never) X(ISFINITE, always) X(ISPOSINF, never)     \
        X(ISNEGINF, never)
/* clang-format on */
#define MR_MAP_V_REAL(X)
/* clang-format off */
#define MR_MAP_VV(X)                                                           \
    X(ADD, add)                                                                \
    X(SUBTRACT, subtract) X(MULTIPLY, multiply) X(FLOOR_DIVIDE, floor_divide)  \
        X(REMAINDER, remainder) X(POWER, power) X(MAXIMUM, maximum)            \
            X(MINIMUM, minimum) X(BITWISE_AND, bitwise_and)                    \
                X(BITWISE_OR, bitwise_or) X(BITWISE_XOR, bitwise_xor)          \
                    X(LEFT_SHIFT, left_shift) X(RIGHT_SHIFT, right_shift)
/* clang-format on */

#include "kernels/elementwise_compare.h"

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
k_negative(V x)
{
    return (V)((U){0} - (U)x);
}

INLINE V
k_abs(V x)
{
#if MR_LANE_SIGNED
    return v_select(v_lt(x, C(0)), k_negative(x), x);
#else
    return x;
#endif
}

INLINE V
k_sign(V x)
{
#if MR_LANE_SIGNED
    return v_select(v_lt(x, C(0)), C(-1), v_select(v_eq(x, C(0)), x, C(1)));
#else
    return v_select(v_eq(x, C(0)), x, C(1));
#endif
}

INLINE V
k_multiply(V a, V b)
{
    return (V)((U)a * (U)b);
}

INLINE V
k_square(V x)
{
    return k_multiply(x, x);
}

INLINE V
k_bitwise_invert(V x)
{
    return ~x;
}

INLINE M
k_logical_not(V x)
{
    return v_eq(x, C(0));
}

INLINE M
k_never(V x)
{
    (void)x;
    return m_set(false);
}

INLINE M
k_always(V x)
{
    (void)x;
    return m_set(true);
}

INLINE V
k_add(V a, V b)
{
    return (V)((U)a + (U)b);
}

INLINE V
k_subtract(V a, V b)
{
    return (V)((U)a - (U)b);
}

/* Quotient and remainder towards minus infinity; divisor 0 gives 0 and the
 * dividend.  Divisor -1 is apart: the lowest number by it traps. */
INLINE V
k_floor_divide(V a, V b)
{
    M zero = v_eq(b, C(0));
#if MR_LANE_SIGNED
    M minus = v_eq(b, C(-1));
    V d = v_select(m_or(zero, minus), C(1), b);
    V q = v_quotient(a, d);
    V r = a - q * d;
    M low = m_and(v_ne(r, C(0)), v_lt(r ^ d, C(0)));

    q = v_select(low, q - 1, q);
    q = v_select(minus, k_negative(a), q);
#else
    V q = v_quotient(a, v_select(zero, C(1), b));
#endif
    return v_select(zero, C(0), q);
}

INLINE V
k_remainder(V a, V b)
{
    return k_subtract(a, k_multiply(k_floor_divide(a, b), b));
}

/* By squaring.  A negative exponent gives what 1 / a^|b| truncates to: 1 for
 * base 1, 1 or -1 for base -1, else 0. */
INLINE V
k_power(V a, V b)
{
    V r = C(1);
    U e = (U)b;
#if MR_LANE_SIGNED
    M down = v_lt(b, C(0));
    M odd = (M)v_ne(b & 1, C(0));
    V one = v_select(v_eq(a, C(1)), C(1), C(0));

    one = v_select(v_eq(a, C(-1)), v_select(odd, C(-1), C(1)), one);
    e = (U)v_select(down, C(0), b);
#endif
    while (m_any((M)e)) {
        r = v_select((M)((e & 1) != 0), k_multiply(r, a), r);
        a = k_multiply(a, a);
        e >>= 1;
    }
#if MR_LANE_SIGNED
    r = v_select(down, one, r);
#endif
    return r;
}

INLINE V
k_maximum(V a, V b)
{
    return v_select(v_lt(b, a), a, b);
}

INLINE V
k_minimum(V a, V b)
{
    return v_select(v_lt(a, b), a, b);
}

INLINE V
k_bitwise_and(V a, V b)
{
    return a & b;
}

INLINE V
k_bitwise_or(V a, V b)
{
    return a | b;
}

INLINE V
k_bitwise_xor(V a, V b)
{
    return a ^ b;
}

/* The count is taken modulo 32 (64 for 64-bit lanes); 8- and 16-bit numbers
 * are shifted as if in 32 bits and cut. */
#define SHIFT_MASK (MR_LANE_BITS == 64 ? 63 : 31)

INLINE V
k_left_shift(V a, V b)
{
    U count = (U)b & SHIFT_MASK;
    M out = (M)(count > (MR_LANE_BITS - 1));
    V r = (V)((U)a << (count & (MR_LANE_BITS - 1)));

    return v_select(out, C(0), r);
}

INLINE V
k_right_shift(V a, V b)
{
    U count = (U)b & SHIFT_MASK;
    M out = (M)(count > (MR_LANE_BITS - 1));
#if MR_LANE_SIGNED
    count = (U)v_select(out, C(MR_LANE_BITS - 1), (V)count);
    return a >> (V)count;
#else
    return v_select(out, C(0), a >> (count & (MR_LANE_BITS - 1)));
#endif
}

INLINE M
k_isnan(V x)
{
    return k_never(x);
}

#if MR_LANE_SIGNED
#define LOWEST_LANE  ((lane)((unsigned_lane)1 << (MR_LANE_BITS - 1)))
#define HIGHEST_LANE ((lane)(((unsigned_lane)1 << (MR_LANE_BITS - 1)) - 1))
#else
#define LOWEST_LANE  0
#define HIGHEST_LANE ((lane)-1)
#endif
#define MR_IDENTITY_SUM  C(0)
#define MR_IDENTITY_PROD C(1)
#define MR_IDENTITY_MAX  v_set(LOWEST_LANE)
#define MR_IDENTITY_MIN  v_set(HIGHEST_LANE)

#endif
