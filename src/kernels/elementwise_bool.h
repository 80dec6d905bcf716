/* SPDX-License-Identifier: Apache-2.0
 *
 * elementwise_bool.h -- the scalar operations on bool: bytes 0 and 1.
 *
 * add is or, multiply is and, subtract is exclusive or; order is that of the
 * numbers 0 and 1.  Part of elementwise.h.
 */
#ifndef MR_KERNELS_ELEMENTWISE_BOOL_H
#define MR_KERNELS_ELEMENTWISE_BOOL_H

typedef R V;

/* clang-format off */
#define MR_MAP_V(X)                                                            \
    X(COPY, copy)                                                              \
    X(ABS, copy) X(SIGN, copy) X(SQUARE, copy) X(FLOOR, copy) X(CEIL, copy)    \
        X(ROUND, copy) X(TRUNC, copy) X(LOGICAL_NOT, invert)                   \
            X(BITWISE_INVERT, invert) X(ISNAN, zero) X(ISINF, zero)            \
                X(ISFINITE, one) X(ISPOSINF, zero) X(ISNEGINF, zero)           \
                    X(REAL, copy) X(IMAG, zero) X(CONJUGATE, copy)
/* clang-format on */
#define MR_MAP_V_BOOL(X)
#define MR_MAP_V_REAL(X)
/* clang-format off */
#define MR_MAP_VV(X)                                                           \
    X(ADD, add)                                                                \
    X(SUBTRACT, subtract) X(MULTIPLY, multiply) X(FLOOR_DIVIDE, multiply)      \
        X(REMAINDER, and_not) X(POWER, or_not) X(MAXIMUM, maximum)             \
            X(MINIMUM, minimum) X(NOT_EQUAL, subtract) X(LESS, less)           \
                X(LESS_EQUAL, less_equal) X(GREATER, and_not)                  \
                    X(GREATER_EQUAL, or_not) X(LOGICAL_AND, multiply)          \
                        X(LOGICAL_OR, add) X(LOGICAL_XOR, subtract)            \
                            X(BITWISE_AND, multiply) X(BITWISE_OR, add)        \
                                X(BITWISE_XOR, subtract)
/* clang-format on */
#define MR_MAP_VV_BOOL(X) X(EQUAL, equal)

INLINE V
k_copy(V x)
{
    return x;
}

INLINE V
k_invert(V x)
{
    return x ^ 1;
}

INLINE V
k_zero(V x)
{
    return x & 0;
}

INLINE V
k_one(V x)
{
    return x | 1;
}

INLINE V
k_add(V a, V b)
{
    return a | b;
}

INLINE V
k_subtract(V a, V b)
{
    return a ^ b;
}

INLINE V
k_multiply(V a, V b)
{
    return a & b;
}

/* a > b; also a % b, with a % 0 = a */
INLINE V
k_and_not(V a, V b)
{
    return a & (b ^ 1);
}

/* a >= b; also a ** b */
INLINE V
k_or_not(V a, V b)
{
    return a | (b ^ 1);
}

INLINE V
k_maximum(V a, V b)
{
    return a | b;
}

INLINE V
k_minimum(V a, V b)
{
    return a & b;
}

INLINE M
k_equal(V a, V b)
{
    return v_eq(a, b);
}

INLINE V
k_less(V a, V b)
{
    return (a ^ 1) & b;
}

INLINE V
k_less_equal(V a, V b)
{
    return (a ^ 1) | b;
}

INLINE V
k_select(M m, V a, V b)
{
    return v_select(m, a, b);
}

INLINE M
k_isnan(V x)
{
    (void)x;
    return m_set(false);
}

#define MR_IDENTITY_SUM  C(0)
#define MR_IDENTITY_PROD C(1)
#define MR_IDENTITY_MAX  C(0)
#define MR_IDENTITY_MIN  C(1)

#endif
