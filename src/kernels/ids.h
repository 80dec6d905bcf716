/* SPDX-License-Identifier: Apache-2.0
 *
 * ids.h -- the ids of the scalar operations.
 *
 * The arithmetic of each stands once, in elementwise.h.  An operator's fusion
 * facts name one of these; the block programs are made of them.  Ids are not
 * stored in files, so the order may change.
 */
#ifndef MR_KERNELS_IDS_H
#define MR_KERNELS_IDS_H

/* The functions' part of the list stands beside their formulas. */
#define MR_K_LIST_ONLY
#include "kernels/elementwise_float.h"
#undef MR_K_LIST_ONLY

/* X(ID, name, operands, result): result is how the result's dtype follows
 * from that of the operands (which all have one dtype, except COND of select,
 * which is bool, and the operand of cast).
 *   SAME  the operands' dtype
 *   BOOL  bool
 *   REAL  the real dtype of the same precision (abs of complex gives float)
 *   CAST  the destination register's dtype */
#define MR_K_MAP(X)                                                            \
    X(COPY, copy, 1, SAME)                                                     \
    X(CAST, cast, 1, CAST)                                                     \
    X(ABS, abs, 1, REAL)                                                       \
    X(NEGATIVE, negative, 1, SAME)                                             \
    X(SIGN, sign, 1, SAME)                                                     \
    X(SQUARE, square, 1, SAME)                                                 \
    MR_K_MAP_FUNCTIONS(X)                                                      \
    X(FLOOR, floor, 1, SAME)                                                   \
    X(CEIL, ceil, 1, SAME)                                                     \
    X(ROUND, round, 1, SAME) /* half to even */                                \
    X(TRUNC, trunc, 1, SAME)                                                   \
    X(LOGICAL_NOT, logical_not, 1, BOOL)                                       \
    X(BITWISE_INVERT, bitwise_invert, 1, SAME)                                 \
    X(ISNAN, isnan, 1, BOOL)                                                   \
    X(ISINF, isinf, 1, BOOL)                                                   \
    X(ISFINITE, isfinite, 1, BOOL)                                             \
    X(ISPOSINF, isposinf, 1, BOOL)                                             \
    X(ISNEGINF, isneginf, 1, BOOL)                                             \
    X(SIGNBIT, signbit, 1, BOOL)                                               \
    X(REAL, real, 1, REAL)                                                     \
    X(IMAG, imag, 1, REAL)                                                     \
    X(CONJUGATE, conjugate, 1, SAME)                                           \
    X(ADD, add, 2, SAME)                                                       \
    X(SUBTRACT, subtract, 2, SAME)                                             \
    X(MULTIPLY, multiply, 2, SAME)                                             \
    X(DIVIDE, divide, 2, SAME)                                                 \
    X(FLOOR_DIVIDE, floor_divide, 2, SAME)                                     \
    X(REMAINDER, remainder, 2, SAME)                                           \
    X(POWER, power, 2, SAME)                                                   \
    X(MAXIMUM, maximum, 2, SAME)                                               \
    X(MINIMUM, minimum, 2, SAME)                                               \
    MR_K_MAP_FUNCTIONS_2(X)                                                    \
    X(EQUAL, equal, 2, BOOL)                                                   \
    X(NOT_EQUAL, not_equal, 2, BOOL)                                           \
    X(LESS, less, 2, BOOL)                                                     \
    X(LESS_EQUAL, less_equal, 2, BOOL)                                         \
    X(GREATER, greater, 2, BOOL)                                               \
    X(GREATER_EQUAL, greater_equal, 2, BOOL)                                   \
    X(LOGICAL_AND, logical_and, 2, BOOL)                                       \
    X(LOGICAL_OR, logical_or, 2, BOOL)                                         \
    X(LOGICAL_XOR, logical_xor, 2, BOOL)                                       \
    X(BITWISE_AND, bitwise_and, 2, SAME)                                       \
    X(BITWISE_OR, bitwise_or, 2, SAME)                                         \
    X(BITWISE_XOR, bitwise_xor, 2, SAME)                                       \
    X(LEFT_SHIFT, left_shift, 2, SAME)                                         \
    X(RIGHT_SHIFT, right_shift, 2, SAME)                                       \
    X(SELECT, select, 3, SAME) /* bool condition, then both values */

/* Reductions over the row (see program.h).  The operand's dtype is the dtype
 * of the values; the result register's dtype says what comes out: sum, mean
 * and prod of halves accumulate in float32 and round once at the end; sum and
 * prod of integers wrap in the result's width; argmax and argmin give uint32,
 * the first of equals, the first NaN before all; any and all give bool.
 * logsumexp is a two-pass reduction of one row (max, then sum of exp). */
#define MR_R_MAP(X)                                                            \
    X(SUM, sum)                                                                \
    X(MEAN, mean)                                                              \
    X(PROD, prod)                                                              \
    X(MAX, max)                                                                \
    X(MIN, min)                                                                \
    X(ANY, any)                                                                \
    X(ALL, all)                                                                \
    X(ARGMAX, argmax)                                                          \
    X(ARGMIN, argmin)                                                          \
    X(LOGSUMEXP, logsumexp)

typedef enum mr_k {
#define MR_X(id, name, n, r) MR_K_##id,
    MR_K_MAP(MR_X)
#undef MR_X
        MR_N_K,
#define MR_X(id, name) MR_R_##id,
    MR_R_FIRST_ = MR_N_K - 1,
    MR_R_MAP(MR_X)
#undef MR_X
        MR_R_END_
} mr_k;

/* "add", "sum"...; how many operands; for reductions 1. */
const char *mr__k_name(mr_k k);
int mr__k_operands(mr_k k);

#define MR_K_IS_REDUCTION(k) ((int)(k) >= (int)MR_N_K)

#endif
