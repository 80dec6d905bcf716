/* SPDX-License-Identifier: Apache-2.0
 *
 * across.h -- folds along rows, as many rows at once as a vector has lanes.
 *
 * What is left of a row when its elements are folded is a vector, whose lanes
 * a tree of shuffles folds.  The trees of N_LANES rows are one: each of its
 * steps puts two rows, then four, into one vector, lane l still meets l + h,
 * and in the end lane r is row r.  Pairs of halves stay apart: even and odd
 * lanes have a tree each, and the two roots meet last.  Included by folds.h.
 */
#ifndef MR_KERNELS_TIER_ACROSS_H
#define MR_KERNELS_TIER_ACROSS_H

#if defined(LANES_) && MR_KIND != MR_KIND_COMPLEX
#define MR_ACROSS 1

/* Lane r: the lanes of x[r], l with l + N_LANES / 2, ... with l + 1. */
INLINE V
fold_across(V *x, fold_op *op)
{
#pragma GCC unroll 5
    for (int h = N_LANES / 2; h > 0; h /= 2) {
#pragma GCC unroll 8
        for (int r = 0; r < h; r++)
            x[r] = op(v_lows(x[r], x[r + h], h), v_highs(x[r], x[r + h], h));
    }
    return x[0];
}

#ifdef MR_HALF_PAIRS
/* As pair_load, of n < 2 N_LANES elements; the others are `both`. */
INLINE void
pair_load_n(const elem *p, int64_t n, U both, V *x, V *y)
{
    elem e[2 * N_LANES];

#if MR_TIER_ID == MR_TIER_AVX512
    both = (U)_mm512_mask_loadu_epi16((__m512i)both,
                                      (__mmask32)LANE_BITS_BELOW(n), p);
    memcpy(e, &both, sizeof e);
#else
    memcpy(e, &both, sizeof e);
    memcpy(e, p, (size_t)n * sizeof *e);
#endif
    half_widen_pair(e, x, y);
}

/* The even and the odd lanes of a row, each folded to a vector. */
INLINE void
row_apart(const elem *in, int64_t n, fold_op *op, V identity, V *even, V *odd)
{
    U one = v_bits(identity) & 0xFFFF0000;
    V v[N_VECS];

    for (int j = 0; j < N_VECS; j++)
        v[j] = identity;
    for (; n >= MR_LANES; n -= MR_LANES, in += MR_LANES) {
#pragma GCC unroll 16
        for (int j = 0; j < N_VECS; j += 2) {
            V x, y;

            pair_load(in + j * N_LANES, &x, &y);
            v[j] = op(v[j], x);
            v[j + 1] = op(v[j + 1], y);
        }
    }
#pragma GCC unroll 16
    for (int j = 0; j < N_VECS && n > 0; j += 2) {
        V x, y;

        if (n >= 2 * N_LANES)
            pair_load(in, &x, &y);
        else
            pair_load_n(in, n, one | one >> 16, &x, &y);
        v[j] = op(v[j], x);
        v[j + 1] = op(v[j + 1], y);
        n -= 2 * N_LANES;
        in += 2 * N_LANES;
    }
#pragma GCC unroll 4
    for (int h = N_VECS / 2; h > 1; h /= 2)
#pragma GCC unroll 8
        for (int j = 0; j < h; j++)
            v[j] = op(v[j], v[j + h]);
    *even = v[0];
    *odd = v[1];
}

INLINE V
rows_across(const char *row, int64_t n, int64_t row_bytes, fold_op *op,
            V identity)
{
    V even[N_LANES], odd[N_LANES];

    for (int r = 0; r < N_LANES; r++, row += row_bytes)
        row_apart((const elem *)(const void *)row, n, op, identity, &even[r],
                  &odd[r]);
    return op(fold_across(even, op), fold_across(odd, op));
}
#else
/* A row's vectors pairwise; those from `used` on hold the identity. */
INLINE V
fold_vectors(V *v, int64_t used, fold_op *op)
{
#if N_VECS > 1
#pragma GCC unroll 5
    for (int h = N_VECS / 2; h > 0; h /= 2) {
#pragma GCC unroll 8
        for (int j = 0; j < h; j++)
            if (j + h < used)
                v[j] = op(v[j], v[j + h]);
    }
#else
    (void)used;
    (void)op;
#endif
    return v[0];
}

INLINE V
rows_across(const char *row, int64_t n, int64_t row_bytes, fold_op *op,
            V identity)
{
    V x[N_LANES];

    for (int r = 0; r < N_LANES; r++, row += row_bytes) {
        V v[N_VECS];

        for (int j = 0; j < N_VECS; j++)
            v[j] = identity;
        fold_block(v, (const elem *)(const void *)row, n, op);
        x[r] = fold_vectors(v, (n + N_LANES - 1) / N_LANES, op);
    }
    return fold_across(x, op);
}
#endif

/* Long rows wait for memory, and then what is done in between costs nothing;
 * but widening halves leaves little time for it. */
INLINE bool
wants_across(int64_t n, fold_op *op)
{
#ifdef MR_HALF
    return n > 1 && (n < N_HALVES || (op != k_maximum && op != k_minimum));
#else
    (void)op;
    return n > 1 && n <= MR_LANES;
#endif
}
#endif

/* One row; a maximum or minimum of many halves without widening them. */
INLINE V
row_alone(const elem *x, int64_t n, fold_op *op, V identity,
          bool exact_identity)
{
    V v[N_VECS];

    if (fold_unwidened(x, n, op, v))
        return v[0];
    for (int j = 0; j < N_VECS; j++)
        v[j] = identity;
    fold_block(v, x, n, op);
    return fold_lanes(v, lanes_in_use(n, exact_identity), op);
}

INLINE void
fold_rows(void *out, const void *in, int64_t n, int64_t n_rows,
          int64_t row_bytes, fold_op *op, V identity, bool exact_identity)
{
    acc *o = out;
    const char *row = in;

#ifdef MR_ACROSS
    if (wants_across(n, op))
        for (; n_rows >= N_LANES;
             n_rows -= N_LANES, row += N_LANES * row_bytes, o += N_LANES)
            acc_store(o, rows_across(row, n, row_bytes, op, identity));
#endif
    for (; n_rows > 0; n_rows--, row += row_bytes, o++)
        acc_store_1(o, row_alone((const elem *)(const void *)row, n, op,
                                 identity, exact_identity));
}

#endif
