/* SPDX-License-Identifier: Apache-2.0
 *
 * elementwise_compare.h -- comparisons and logic of real lanes: integers and
 * floats have the same.  A NaN equals nothing, is less than nothing, and true.
 *
 * Part of elementwise.h, which says what V, M and the v_ functions are.
 */
#ifndef MR_KERNELS_ELEMENTWISE_COMPARE_H
#define MR_KERNELS_ELEMENTWISE_COMPARE_H

/* clang-format off */
#define MR_MAP_VV_BOOL(X)                                                      \
    X(EQUAL, equal)                                                            \
    X(NOT_EQUAL, not_equal) X(LESS, less) X(LESS_EQUAL, less_equal)            \
        X(GREATER, greater) X(GREATER_EQUAL, greater_equal)                    \
            X(LOGICAL_AND, logical_and) X(LOGICAL_OR, logical_or)              \
                X(LOGICAL_XOR, logical_xor)
/* clang-format on */

INLINE M
k_equal(V a, V b)
{
    return v_eq(a, b);
}

INLINE M
k_not_equal(V a, V b)
{
    return v_ne(a, b);
}

INLINE M
k_less(V a, V b)
{
    return v_lt(a, b);
}

INLINE M
k_less_equal(V a, V b)
{
    return v_le(a, b);
}

INLINE M
k_greater(V a, V b)
{
    return v_lt(b, a);
}

INLINE M
k_greater_equal(V a, V b)
{
    return v_le(b, a);
}

INLINE M
k_logical_and(V a, V b)
{
    return m_and(v_ne(a, C(0)), v_ne(b, C(0)));
}

INLINE M
k_logical_or(V a, V b)
{
    return m_or(v_ne(a, C(0)), v_ne(b, C(0)));
}

INLINE M
k_logical_xor(V a, V b)
{
    return m_xor(v_ne(a, C(0)), v_ne(b, C(0)));
}

INLINE V
k_select(M m, V a, V b)
{
    return v_select(m, a, b);
}

#endif
