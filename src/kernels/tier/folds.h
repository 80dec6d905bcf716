/* SPDX-License-Identifier: Apache-2.0
 *
 * folds.h -- the reductions of one dtype, in the canonical order of
 * ../program.h: 64 virtual lanes, combined pairwise.
 *
 * A lane that no element reached holds the identity; for every fold but the
 * complex product combining with it changes nothing, so absent lanes may be
 * left out.  For the complex product they never are.  Included by ops.h.
 */
#ifndef MR_KERNELS_TIER_FOLDS_H
#define MR_KERNELS_TIER_FOLDS_H

/* Vectors that hold the 64 lanes. */
#define N_VECS (MR_LANES / N_LANES)

typedef V fold_op(V, V);

INLINE int64_t
lanes_in_use(int64_t n, bool exact_identity)
{
    return exact_identity && n < MR_LANES ? n : MR_LANES;
}

/* fold_lanes of all lanes, which stay in registers. */
INLINE V
fold_all_lanes(V *v, fold_op *op)
{
    V x;

#if N_VECS > 1
#pragma GCC unroll 6
    for (int h = N_VECS / 2; h > 0; h /= 2) {
#pragma GCC unroll 16
        for (int j = 0; j < h; j++)
            v[j] = op(v[j], v[j + h]);
    }
#endif
    x = v[0];
#pragma GCC unroll 6
    for (int h = N_LANES / 2; h > 0; h /= 2)
        x = op(x, x_up(x, h));
    return x;
}

/* The same of the first n_lanes. */
INLINE V
fold_some_lanes(const V *from, int64_t n_lanes, fold_op *op)
{
    V v[N_VECS], x;

#pragma GCC unroll 16
    for (int j = 0; j < N_VECS; j++)
        v[j] = from[j];
#if N_VECS > 1
    int64_t used = (n_lanes + N_LANES - 1) / N_LANES;

    for (int64_t h = N_VECS / 2; h > 0; h /= 2) {
        for (int64_t j = 0; j < h; j++) {
            if (j + h < used)
                v[j] = op(v[j], v[j + h]);
        }
        used = used < h ? used : h;
    }
#endif
    x = v[0];
#pragma GCC unroll 6
    for (int h = N_LANES / 2; h > 0; h /= 2) {
        if (h < n_lanes)
            x = op(x, x_up(x, h));
    }
    return x;
}

/* The vectors' lanes pairwise: l with l + 32, then 16, ... 1. */
INLINE V
fold_lanes(V *v, int64_t n_lanes, fold_op *op)
{
    return n_lanes >= MR_LANES ? fold_all_lanes(v, op)
                               : fold_some_lanes(v, n_lanes, op);
}

/* Blocks of lanes are read two vectors at a time, into any order of lanes that
 * pairs_apart and pairs_together agree on. */
#ifdef MR_HALF_PAIRS
INLINE void
pair_load(const elem *p, V *x, V *y)
{
    half_widen_pair(p, x, y);
}

INLINE void
pair_store(elem *p, V x, V y)
{
    half_round_pair(p, x, y);
}

INLINE void
pair_apart(V *x, V *y)
{
    V even = v_even(*x, *y), odd = v_odd(*x, *y);

    *x = even;
    *y = odd;
}

INLINE void
pair_together(V *x, V *y)
{
    V low = v_zip_low(*x, *y), high = v_zip_high(*x, *y);

    *x = low;
    *y = high;
}
#elif N_VECS > 1
INLINE void
pair_load(const elem *p, V *x, V *y)
{
    *x = x_load(p);
    *y = x_load(p + N_LANES);
}

INLINE void
pair_store(elem *p, V x, V y)
{
    x_store(p, x);
    x_store(p + N_LANES, y);
}

INLINE void
pair_apart(V *x, V *y)
{
    (void)x;
    (void)y;
}

INLINE void
pair_together(V *x, V *y)
{
    (void)x;
    (void)y;
}
#endif

#if N_VECS > 1
INLINE void
pairs_apart(V *v)
{
#pragma GCC unroll 16
    for (int j = 0; j < N_VECS; j += 2)
        pair_apart(&v[j], &v[j + 1]);
}

INLINE void
pairs_together(V *v)
{
#pragma GCC unroll 16
    for (int j = 0; j < N_VECS; j += 2)
        pair_together(&v[j], &v[j + 1]);
}
#endif

#if MR_KIND == MR_KIND_FLOAT
/* Blocks of lanes between two looks for NaN. */
#define NAN_BLOCKS 8

/* v takes whole blocks by an op that knows no NaN; was there one? */
INLINE bool
blocks_ordered(V *v, const elem *in, int64_t n_blocks, fold_op *op)
{
    NAN_SEEN seen = NAN_SEEN_NONE;

    for (; n_blocks > 0; n_blocks--, in += MR_LANES) {
#pragma GCC unroll 16
        for (int j = 0; j < N_VECS; j += 2) {
            V x, y;

            pair_load(in + j * N_LANES, &x, &y);
            seen = nan_see(seen, x, y);
            v[j] = op(v[j], x);
            v[j + 1] = op(v[j + 1], y);
        }
    }
    return nan_seen(seen);
}

/* The maximum, or minimum, of whole blocks of lanes while there is no NaN, by
 * one instruction each: how many elements these were. */
INLINE int64_t
fold_ordered(V *v, const elem *in, int64_t n, fold_op *op)
{
    int64_t i = 0, left = n / MR_LANES;
    NAN_SEEN seen = NAN_SEEN_NONE;

#pragma GCC unroll 16
    for (int j = 0; j < N_VECS; j += 2)
        seen = nan_see(seen, v[j], v[j + 1]);
    if (nan_seen(seen))
        return 0;
    pairs_apart(v);
    while (left > 0) {
        int64_t m = left < NAN_BLOCKS ? left : NAN_BLOCKS;
        V w[N_VECS];

#pragma GCC unroll 16
        for (int j = 0; j < N_VECS; j++)
            w[j] = v[j];
        if (blocks_ordered(w, in + i, m, op))
            break;
#pragma GCC unroll 16
        for (int j = 0; j < N_VECS; j++)
            v[j] = w[j];
        i += m * MR_LANES;
        left -= m;
    }
    pairs_together(v);
    return i;
}
#endif

/* Asks for the block of lanes after this one.  Reads of 64 bytes leave the
 * processor's own prefetchers behind (16 MB in the third level: 87 GB/s, with
 * reads of 32 bytes 95); 512 bytes ahead and more is slower than none. */
INLINE void
block_foresee(const elem *in)
{
#if MR_TIER_ID == MR_TIER_AVX512
#pragma GCC unroll 16
    for (int b = 0; b < MR_LANES * (int)sizeof *in; b += 64)
        __builtin_prefetch((const char *)(in + MR_LANES) + b);
#else
    (void)in;
#endif
}

/* Elements of a row from which on its last ones, too, have the next row's first
 * asked for (rows of 1000: 4 % less; of 100: 75 % more). */
#define FORESEE_FROM 512

/* v takes n elements, the first into lane 0. */
INLINE void
fold_block(V *v, const elem *in, int64_t n, fold_op *op)
{
#ifndef MR_HALF_PAIRS
    const elem *first = in;
#endif

#if MR_KIND == MR_KIND_FLOAT
    if (op == k_maximum || op == k_minimum) {
        int64_t done =
            fold_ordered(v, in, n, op == k_maximum ? v_larger : v_lesser);

        n -= done;
        in += done;
    }
#endif
#ifdef MR_HALF_PAIRS
    pairs_apart(v);
    for (; n >= MR_LANES; n -= MR_LANES, in += MR_LANES) {
#pragma GCC unroll 16
        for (int j = 0; j < N_VECS; j += 2) {
            V x, y;

            pair_load(in + j * N_LANES, &x, &y);
            v[j] = op(v[j], x);
            v[j + 1] = op(v[j + 1], y);
        }
    }
    pairs_together(v);
#else
    for (; n >= MR_LANES; n -= MR_LANES, in += MR_LANES) {
        block_foresee(in);
#pragma GCC unroll 16
        for (int j = 0; j < N_VECS; j++)
            v[j] = op(v[j], x_load_apart(in + j * N_LANES));
    }
    if (n > 0 && in - first >= FORESEE_FROM)
        block_foresee(in);
#endif
#pragma GCC unroll 16
    for (int j = 0; j < N_VECS; j++, n -= N_LANES, in += N_LANES) {
        if (n >= N_LANES)
            v[j] = op(v[j], x_load(in));
        else if (n > 0)
            v[j] = k_select(m_below(n), op(v[j], x_load_n(in, n)), v[j]);
    }
}

INLINE void
acc_store_1(acc *p, V x)
{
#if MR_KIND == MR_KIND_COMPLEX
    acc_store_n(p, x, 1);
#else
    *p = x[0];
#endif
}

/* The maximum, or minimum, of many halves without widening them. */
INLINE bool
fold_unwidened(const elem *in, int64_t n, fold_op *op, V *x)
{
#ifdef MR_HALF
    bool largest = op == k_maximum;
    elem h;

    if ((largest || op == k_minimum) && n >= N_HALVES &&
        halves_extreme(in, n, largest, &h)) {
        *x = half_widen(h - (HALF){0});
        return true;
    }
#else
    (void)in;
    (void)n;
    (void)op;
    (void)x;
#endif
    return false;
}

#include "kernels/tier/across.h"

INLINE void
fold_step(void *lanes, const void *in, int64_t n, fold_op *op)
{
    acc *a = lanes;
    V v[N_VECS];

    if (fold_unwidened(in, n, op, v)) {
        acc_store_1(a, op(acc_load(a), v[0]));
        return;
    }
    for (int j = 0; j < N_VECS; j++)
        v[j] = acc_load(a + j * N_LANES);
    fold_block(v, in, n, op);
    for (int j = 0; j < N_VECS; j++)
        acc_store(a + j * N_LANES, v[j]);
}

INLINE void
fold_done(void *out, const void *lanes, fold_op *op)
{
    const acc *a = lanes;
    V v[N_VECS];

    for (int j = 0; j < N_VECS; j++)
        v[j] = acc_load(a + j * N_LANES);
    acc_store_1(out, fold_lanes(v, MR_LANES, op));
}

/* a takes n elements. */
INLINE void
fold_line(acc *a, const elem *x, int64_t n, fold_op *op)
{
    for (; n >= N_LANES; n -= N_LANES, a += N_LANES, x += N_LANES)
        acc_store(a, op(acc_load(a), x_load(x)));
    if (n > 0)
        acc_store_n(a, op(acc_load_n(a, n), x_load_n(x, n)), n);
}

#include "kernels/tier/down.h"

/* Rows and lanes that are one piece of memory each: long lines. */
INLINE void
fold_flat(char *lanes, int64_t lane_bytes, const char *row, int64_t row_bytes,
          int64_t k, int64_t n_rows, int64_t n_cols, fold_op *op)
{
    for (int64_t m; n_rows > 0; n_rows -= m, row += m * row_bytes, k = 0) {
        m = n_rows < MR_LANES - k ? n_rows : MR_LANES - k;
        fold_line((acc *)(void *)(lanes + k * lane_bytes),
                  (const elem *)(const void *)row, m * n_cols, op);
    }
}

INLINE void
fold_cols(void *lanes, int64_t lane_bytes, const void *in, int64_t row_bytes,
          int64_t k0, int64_t n_rows, int64_t n_cols, fold_op *op)
{
    const char *row = in;

    if (lane_bytes == 0) {
        fold_down(lanes, row, row_bytes, n_rows, n_cols, op);
        return;
    }
    if (lane_bytes == n_cols * (int64_t)sizeof(acc) &&
        row_bytes == n_cols * (int64_t)sizeof(elem)) {
        fold_flat(lanes, lane_bytes, row, row_bytes, k0 % MR_LANES, n_rows,
                  n_cols, op);
        return;
    }
    for (int64_t r = 0; r < n_rows; r++, row += row_bytes)
        fold_line(
            (acc *)(void *)((char *)lanes + (k0 + r) % MR_LANES * lane_bytes),
            (const elem *)(const void *)row, n_cols, op);
}

INLINE void
fold_combine(void *a, const void *b, int64_t n, fold_op *op)
{
    acc *x = a;
    const acc *y = b;

    for (; n >= N_LANES; n -= N_LANES, x += N_LANES, y += N_LANES)
        acc_store(x, op(acc_load(x), acc_load(y)));
    if (n > 0)
        acc_store_n(x, op(acc_load_n(x, n), acc_load_n(y, n)), n);
}

INLINE void
fold_cols_done(void *lanes, int64_t lane_bytes, int64_t n_lanes, int64_t n_cols,
               fold_op *op)
{
    char *at = lanes;

    for (int64_t h = MR_LANES / 2; h > 0; h /= 2) {
        for (int64_t l = 0; l < h && l + h < n_lanes; l++)
            fold_combine(at + l * lane_bytes, at + (l + h) * lane_bytes, n_cols,
                         op);
        n_lanes = n_lanes < h ? n_lanes : h;
    }
}

INLINE void
fold_fill(void *out, int64_t n, V identity)
{
    acc *o = out;

    for (; n >= N_LANES; n -= N_LANES, o += N_LANES)
        acc_store(o, identity);
    if (n > 0)
        acc_store_n(o, identity, n);
}

#if MR_KIND == MR_KIND_FLOAT
/* ---- sums of a function of x - c ------------------------------------------
 * c is one number a row: what a variance and a log-sum-exp add up.  The same
 * operations in the same order as the values computed first and then added. */

typedef V near_op(V x, V c);

INLINE V
near_square(V x, V c)
{
    return k_square(k_subtract(x, c));
}

INLINE V
near_exp(V x, V c)
{
#ifdef MR_HALF /* widened: what is added up was never rounded */
    return v_full_exp(k_subtract(x, c));
#else
    return k_exp(k_subtract(x, c));
#endif
}

INLINE void
near_block(V *v, const elem *in, int64_t n, V c, int64_t ahead, near_op *f)
{
    pairs_apart(v);
    for (; n >= MR_LANES; n -= MR_LANES, in += MR_LANES) {
        for (int b = 0; b < MR_LANES * (int)sizeof *in; b += 64)
            __builtin_prefetch((const char *)in + ahead + b);
#pragma GCC unroll 16
        for (int j = 0; j < N_VECS; j += 2) {
            V x, y;

            pair_load(in + j * N_LANES, &x, &y);
            v[j] = k_add(v[j], f(x, c));
            v[j + 1] = k_add(v[j + 1], f(y, c));
        }
    }
    pairs_together(v);
    for (int j = 0; n > 0; j++, n -= N_LANES, in += N_LANES)
        v[j] = k_select(m_below(n), k_add(v[j], f(operand(in, 1, n), c)), v[j]);
}

INLINE void
near_rows(void *out, const void *in, int64_t n, int64_t n_rows,
          int64_t row_bytes, const void *centre, int64_t ahead, near_op *f)
{
    acc *o = out;
    const acc *c = centre;
    const char *row = in;

    for (int64_t r = 0; r < n_rows; r++, row += row_bytes) {
        V v[N_VECS];

        for (int j = 0; j < N_VECS; j++)
            v[j] = MR_IDENTITY_SUM;
        near_block(v, (const elem *)(const void *)row, n, v_set(c[r]), ahead,
                   f);
        acc_store_1(o + r, fold_lanes(v, lanes_in_use(n, true), k_add));
    }
}

INLINE void
near_step(void *lanes, const void *in, int64_t n, const void *centre,
          int64_t ahead, near_op *f)
{
    acc *a = lanes;
    V v[N_VECS];

    for (int j = 0; j < N_VECS; j++)
        v[j] = acc_load(a + j * N_LANES);
    near_block(v, in, n, v_set(*(const acc *)centre), ahead, f);
    for (int j = 0; j < N_VECS; j++)
        acc_store(a + j * N_LANES, v[j]);
}

INLINE void
near_line(acc *a, const elem *x, const acc *c, int64_t n, near_op *f)
{
    for (; n >= N_LANES; n -= N_LANES, a += N_LANES, x += N_LANES, c += N_LANES)
        acc_store(a, k_add(acc_load(a), f(x_load(x), acc_load(c))));
    if (n > 0)
        acc_store_n(
            a, k_add(acc_load_n(a, n), f(x_load_n(x, n), acc_load_n(c, n))), n);
}

/* As fold_down. */
INLINE void
near_down(acc *a, const char *row, int64_t row_bytes, int64_t n_rows,
          int64_t n_cols, const acc *centre, near_op *f)
{
    for (; n_rows >= 4; n_rows -= 4, row += 4 * row_bytes) {
        const elem *x[4];
        int64_t c = 0;

        for (int i = 0; i < 4; i++)
            x[i] = (const elem *)(const void *)(row + i * row_bytes);
        for (; c + N_LANES <= n_cols; c += N_LANES) {
            V v = acc_load(a + c), m = acc_load(centre + c);

            for (int i = 0; i < 4 && n_rows >= 8; i++)
                __builtin_prefetch((const char *)(x[i] + c) + 4 * row_bytes);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                v = k_add(v, f(x_load(x[i] + c), m));
            acc_store(a + c, v);
        }
        for (int i = 0; c < n_cols && i < 4; i++)
            near_line(a + c, x[i] + c, centre + c, n_cols - c, f);
    }
    for (; n_rows > 0; n_rows--, row += row_bytes)
        near_line(a, (const elem *)(const void *)row, centre, n_cols, f);
}

INLINE void
near_cols(void *lanes, int64_t lane_bytes, const void *in, int64_t row_bytes,
          int64_t k0, int64_t n_rows, int64_t n_cols, const void *centre,
          near_op *f)
{
    const char *row = in;

    if (lane_bytes == 0) {
        near_down(lanes, row, row_bytes, n_rows, n_cols, centre, f);
        return;
    }
    for (int64_t r = 0; r < n_rows; r++, row += row_bytes)
        near_line(
            (acc *)(void *)((char *)lanes + (k0 + r) % MR_LANES * lane_bytes),
            (const elem *)(const void *)row, centre, n_cols, f);
}

#define MR_NEARS(X) X(SQUARE, near_square) X(EXP, near_exp)

#define MR_X(id, f)                                                            \
    static void near_##id##_rows(void *o, const void *in, int64_t n,           \
                                 int64_t n_rows, int64_t row_bytes,            \
                                 const void *centre, int64_t ahead)            \
    {                                                                          \
        near_rows(o, in, n, n_rows, row_bytes, centre, ahead, f);              \
    }                                                                          \
    static void near_##id##_step(void *lanes, const void *in, int64_t n,       \
                                 const void *centre, int64_t ahead)            \
    {                                                                          \
        near_step(lanes, in, n, centre, ahead, f);                             \
    }                                                                          \
    static void near_##id##_cols(                                              \
        void *lanes, int64_t lane_bytes, const void *in, int64_t row_bytes,    \
        int64_t k0, int64_t n_rows, int64_t n_cols, const void *centre)        \
    {                                                                          \
        near_cols(lanes, lane_bytes, in, row_bytes, k0, n_rows, n_cols,        \
                  centre, f);                                                  \
    }
MR_NEARS(MR_X)
#undef MR_X

#define MR_NEAR_TABLE(id)                                                      \
    [MR_NEAR_##id] = {near_##id##_rows, near_##id##_step, near_##id##_cols}
#endif

#define MR_EXACT_SUM  true
#define MR_EXACT_PROD (MR_KIND != MR_KIND_COMPLEX)
#define MR_EXACT_MAX  true
#define MR_EXACT_MIN  true

#define MR_FOLDS(X)                                                            \
    X(SUM, k_add) X(PROD, k_multiply) X(MAX, k_maximum) X(MIN, k_minimum)

#define MR_X(id, op)                                                           \
    static void fold_##id##_fill(void *o, int64_t n)                           \
    {                                                                          \
        fold_fill(o, n, MR_IDENTITY_##id);                                     \
    }                                                                          \
    static void fold_##id##_rows(void *o, const void *in, int64_t n,           \
                                 int64_t n_rows, int64_t row_bytes)            \
    {                                                                          \
        fold_rows(o, in, n, n_rows, row_bytes, op, MR_IDENTITY_##id,           \
                  MR_EXACT_##id);                                              \
    }                                                                          \
    static void fold_##id##_step(void *lanes, const void *in, int64_t n)       \
    {                                                                          \
        fold_step(lanes, in, n, op);                                           \
    }                                                                          \
    static void fold_##id##_done(void *o, const void *lanes)                   \
    {                                                                          \
        fold_done(o, lanes, op);                                               \
    }                                                                          \
    static void fold_##id##_cols(void *lanes, int64_t lane_bytes,              \
                                 const void *in, int64_t row_bytes,            \
                                 int64_t k0, int64_t n_rows, int64_t n_cols)   \
    {                                                                          \
        fold_cols(lanes, lane_bytes, in, row_bytes, k0, n_rows, n_cols, op);   \
    }                                                                          \
    static void fold_##id##_cols_done(void *lanes, int64_t lane_bytes,         \
                                      int64_t n_lanes, int64_t n_cols)         \
    {                                                                          \
        fold_cols_done(lanes, lane_bytes,                                      \
                       lanes_in_use(n_lanes, MR_EXACT_##id), n_cols, op);      \
    }                                                                          \
    static void fold_##id##_combine(void *a, const void *b, int64_t n)         \
    {                                                                          \
        fold_combine(a, b, n, op);                                             \
    }
MR_FOLDS(MR_X)
#undef MR_X

#define MR_FOLD_TABLE(id)                                                      \
    [MR_FOLD_##id] = {fold_##id##_fill,   fold_##id##_rows,                    \
                      fold_##id##_step,   fold_##id##_done,                    \
                      fold_##id##_cols,   fold_##id##_cols_done,               \
                      fold_##id##_combine}

/* ---- argmax and argmin ------------------------------------------------------
 * The best value of a chunk is found first, with NaN above all; then the first
 * index that holds it.  No order of combining can change the answer. */

/* Should x take the place of the best so far?  Equal values do not. */
INLINE M
takes(V x, V best, fold_op *op)
{
    V both = op(best, x);
    M equal = k_equal(both, best);

    return m_and(m_not(k_isnan(best)), m_or(k_isnan(x), m_not(equal)));
}

INLINE V
acc_broadcast(const acc *p)
{
    acc x[N_LANES];

    for (int i = 0; i < N_LANES; i++)
        x[i] = *p;
    return acc_load(x);
}

/* The first lane of m, which has one. */
INLINE int
m_first(M m)
{
    uint8_t b[N_LANES];
    int i = 0;

    m_store(b, m);
    while (!b[i])
        i++;
    return i;
}

/* Blocks of lanes in front that do not hold x, in elements. */
INLINE int64_t
find_block(const elem *in, int64_t n, V x)
{
    int64_t i = 0;

    for (; i + MR_LANES <= n; i += MR_LANES) {
        M hit = k_equal(x_load(in + i), x);

#pragma GCC unroll 16
        for (int j = 1; j < N_VECS; j++)
            hit = m_or(hit, k_equal(x_load(in + i + j * N_LANES), x));
        if (m_any(hit))
            break;
    }
    return i;
}

INLINE int64_t
find_first(const elem *in, int64_t n, V x)
{
    M nan = k_isnan(x);

    for (int64_t i = m_any(nan) ? 0 : find_block(in, n, x);; i += N_LANES) {
        V y = operand(in + i, 1, n - i);
        M hit = m_or(k_equal(y, x), m_and(nan, k_isnan(y)));

        hit = m_and(hit, m_below(n - i));
        if (m_any(hit))
            return i + m_first(hit);
    }
}

INLINE void
arg_row(void *best, uint32_t *index, const void *in, int64_t n, uint32_t base,
        bool first, fold_op *op, V identity)
{
    acc *b = best, found[N_LANES];
    const elem *x = in;
    V v[N_VECS], m;

    if (n <= 0)
        return;
    for (int j = 0; j < N_VECS; j++)
        v[j] = identity;
    fold_block(v, x, n, op);
    acc_store_1(found, fold_lanes(v, MR_LANES, op));
    m = acc_broadcast(found);
    if (!first && !m_any(takes(m, acc_broadcast(b), op)))
        return;
    *index = base + (uint32_t)find_first(x, n, m);
    *b = *found;
}

INLINE void
arg_take(acc *best, uint32_t *index, V x, const uint32_t *from, uint32_t k,
         int64_t n, fold_op *op)
{
    V old = n < N_LANES ? acc_load_n(best, n) : acc_load(best);
    M m = m_and(takes(x, old, op), m_below(n));
    uint8_t b[N_LANES];

    if (!m_any(m))
        return;
    acc_store_n(best, k_select(m, x, old), n);
    m_store(b, m);
    for (int i = 0; i < n && i < N_LANES; i++)
        index[i] = b[i] ? (from ? from[i] : k) : index[i];
}

INLINE void
arg_cols(void *best, uint32_t *index, const void *in, int64_t row_bytes,
         uint32_t k0, int64_t n_rows, int64_t n_cols, bool first, fold_op *op)
{
    acc *b = best;
    const char *row = in;

    for (int64_t r = 0; r < n_rows; r++, row += row_bytes) {
        const elem *x = (const elem *)(const void *)row;
        uint32_t k = k0 + (uint32_t)r;

        for (int64_t c = 0; c < n_cols; c += N_LANES) {
            int64_t n = n_cols - c < N_LANES ? n_cols - c : N_LANES;
            V y = operand(x + c, 1, n);

            if (!first || r > 0) {
                arg_take(b + c, index + c, y, NULL, k, n, op);
                continue;
            }
            acc_store_n(b + c, y, n);
            for (int64_t i = 0; i < n; i++)
                index[c + i] = k;
        }
    }
}

INLINE void
arg_merge(void *best, uint32_t *index, const void *later,
          const uint32_t *later_index, int64_t n, fold_op *op)
{
    acc *b = best;
    const acc *x = later;

    for (int64_t c = 0; c < n; c += N_LANES) {
        int64_t m = n - c < N_LANES ? n - c : N_LANES;

        arg_take(b + c, index + c, acc_load_n(x + c, m), later_index + c, 0, m,
                 op);
    }
}

#define MR_ARG(name, op, identity)                                             \
    static void name##_row(void *best, uint32_t *index, const void *in,        \
                           int64_t n, uint32_t base, bool first)               \
    {                                                                          \
        arg_row(best, index, in, n, base, first, op, identity);                \
    }                                                                          \
    static void name##_cols(void *best, uint32_t *index, const void *in,       \
                            int64_t row_bytes, uint32_t k0, int64_t n_rows,    \
                            int64_t n_cols, bool first)                        \
    {                                                                          \
        arg_cols(best, index, in, row_bytes, k0, n_rows, n_cols, first, op);   \
    }                                                                          \
    static void name##_merge(void *best, uint32_t *index, const void *later,   \
                             const uint32_t *later_index, int64_t n)           \
    {                                                                          \
        arg_merge(best, index, later, later_index, n, op);                     \
    }
MR_ARG(argmax, k_maximum, MR_IDENTITY_MAX)
MR_ARG(argmin, k_minimum, MR_IDENTITY_MIN)

#endif
