/* SPDX-License-Identifier: Apache-2.0
 *
 * attend_pieces.h -- scores to weights for the matrix unit of x86 processors,
 * of AVX-512.
 *
 * The weights leave in pieces of bfloat16 (gemm_matrix.c), the right side of
 * the product with the values.  Beside that product all that is done here
 * counts, so a weight is 2^(a s - b): one multiply-add from the score, and a
 * polynomial as long as the pieces need.  A weight below 2^-126 is 0, which it
 * is to the unit.
 * The top stays while no score is ENOUGH beyond it, weights being more than 1
 * then: old sums seldom fade.
 *
 * Included by: attend.c.
 */
#ifndef MR_KERNELS_TIER_ATTEND_PIECES_H
#define MR_KERNELS_TIER_ATTEND_PIECES_H

#include "kernels/tier/pieces.h"

#define TILE_FLOATS 256
#define PAIRS       16 /* of keys in a tile */
#define LOG2_E      1.44269504F
#define FAR         0x1p100F
#define ENOUGH      8.0F

/* 2^x, not near overflow, as 2^floor(x) p(x - floor(x)), weighted minimax with
 * p(0) = 1, coefficients rounded one at a time from the lowest.  Of degree 4
 * within 2^-18 of it, of degree 6 within 2^-24. */
INLINE R
power(R x, const int degree)
{
    enum { DOWN_QUIETLY = 9 }; /* the rest of rounding to -infinity */
    R r = (R)_mm512_reduce_ps((__m512)x, DOWN_QUIETLY), p;

    if (degree == 4) {
        p = v_fma(C(0x1.b7f75cp-7F), r, C(0x1.abf854p-5F));
        p = v_fma(p, r, C(0x1.ee2454p-3F));
        p = v_fma(p, r, C(0x1.62d6c6p-1F));
    } else {
        p = v_fma(C(0x1.c44accp-13F), r, C(0x1.4735cp-10F));
        p = v_fma(p, r, C(0x1.3cfda4p-7F));
        p = v_fma(p, r, C(0x1.c68af4p-5F));
        p = v_fma(p, r, C(0x1.ebfd3ap-3F));
        p = v_fma(p, r, C(0x1.62e42cp-1F));
    }
    p = v_fma(p, r, C(1.0F));
    return (R)_mm512_maskz_scalef_ps(
        _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ),
        (__m512)p, (__m512)x);
}

/* What turns a column's scores into powers of 2: by and from. */
typedef struct exponent {
    R by, from;
} exponent;

/* The weight of a score that is there. */
INLINE R
weight_of(const float *s, bool there, const exponent *x, const int degree)
{
    return there ? power(v_fma(v_load(s), x->by, v_neg(x->from)), degree)
                 : (R){0};
}

/* Weights of 32 keys, of which `left` are there, and their sums.  Keys k and k
 * + apart are a pair. */
INLINE void
weights_split(const float *s, int64_t row, int64_t left, const exponent *x,
              R sum[2], float *to, const int n_pieces, const int apart,
              const int degree)
{
#pragma GCC unroll 4
    for (int i = 0; i < PAIRS; i++) {
        int64_t k = apart == 1 ? 2 * i : i;
        R even = weight_of(s + k * row, k < left, x, degree);
        R odd = weight_of(s + (k + apart) * row, k + apart < left, x, degree);
        __m512i low[3], high[3];

        sum[0] = sum[0] + even;
        sum[1] = sum[1] + odd;
        if (to == NULL)
            continue;
        split(n_pieces, (__m512)even, low);
        split(n_pieces, (__m512)odd, high);
#pragma GCC unroll 3
        for (int p = 0; p < n_pieces; p++)
            _mm512_store_si512(to + p * 2 * TILE_FLOATS + i * N_LANES,
                               pairs_of(low[p], high[p]));
    }
}

/* A column's weights; their sum. */
INLINE R
column_split(const float *s, int64_t row, int64_t n_keys, const exponent *x,
             float *to, const int n_pieces, const int apart, const int degree)
{
    enum { STEP = MR_GEMM_PIECES_STEP };
    R sum[2] = {{0}, {0}};
    int64_t k = 0;

    for (; k + STEP <= n_keys; k += STEP, s += STEP * row) {
        weights_split(s, row, STEP, x, sum, to, n_pieces, apart, degree);
        to += to ? 2 * n_pieces * TILE_FLOATS : 0;
    }
    if (k < n_keys)
        weights_split(s, row, n_keys - k, x, sum, to, n_pieces, apart, degree);
    return sum[0] + sum[1];
}

/* Columns whose scores are so far from 0 that their multiples are infinite: the
 * difference comes first. */
static __attribute__((noinline)) void
column_shift(float *s, int64_t row, int64_t n_keys, float scale, R from, M far)
{
    for (int64_t k = 0; k < n_keys; k++) {
        R x = v_load(s + k * row);

        v_store(s + k * row, v_select(far, x * v_set(scale) - from, x));
    }
}

INLINE void
step_split(float *s, int64_t row, int64_t n_keys, int64_t width,
           const mr_attend_masks *masks, float scale, float *top, float *sum,
           float *fade, float *to, const int n_pieces, const int apart,
           const int degree)
{
    bool late = !masks->limit && !masks->keep && !masks->add && scale > 0.0F;

    for (int64_t c = 0; c < width; c += N_LANES, s += N_LANES) {
        R old = v_load(top + c), most, from, f, total, log2_e = C(LOG2_E);
        exponent x;
        M far;

        most = late ? v_larger(column_top_of(s, row, n_keys, masks, 1.0F, c,
                                             v_neg(INFINITE)) *
                                   v_set(scale),
                               old)
                    : column_top_of(s, row, n_keys, masks, scale, c, old);
        most = v_select(v_le(most - old, C(ENOUGH)), old, most);
        from = v_select(v_eq(most, v_neg(INFINITE)), (R){0}, most);
        x = (exponent){log2_e * v_set(late ? scale : 1.0F), from * log2_e};
        f = old * log2_e - x.from;
        far = v_le(C(FAR), v_abs(from));
        if (m_any(far)) {
            column_shift(s, row, n_keys, late ? scale : 1.0F, from, far);
            x.by = v_select(far, log2_e, x.by);
            x.from = v_select(far, (R){0}, x.from);
            f = v_select(far, (old - from) * log2_e, f);
        }
        total =
            to ? column_split(s, row, n_keys, &x, to, n_pieces, apart, degree)
               : column_split(s, row, n_keys, &x, NULL, n_pieces, apart,
                              degree);
        f = power(f, degree);
        v_store(fade + c, f);
        v_store(top + c, most);
        v_store(sum + c, multiply_add(v_load(sum + c), f, total));
        to += to ? TILE_FLOATS : 0;
    }
}

#define SPLIT(name, n_pieces, apart, degree)                                   \
    static void name(float *s, int64_t row, int64_t n_keys, int64_t width,     \
                     const mr_attend_masks *masks, float scale, float *top,    \
                     float *sum, float *fade, float *to)                       \
    {                                                                          \
        step_split(s, row, n_keys, width, masks, scale, top, sum, fade, to,    \
                   n_pieces, apart, degree);                                   \
    }
SPLIT(split_f32, 3, 16, 6)
SPLIT(split_f16, 2, 16, 4)
SPLIT(split_bf16, 2, 1, 4)

/* ---- the way back ----------------------------------------------------------
 */

/* What all rows share. */
typedef struct back_of {
    const float *s, *g;
    const mr_attend_masks *masks;
    const float *top, *scale, *dot;
    float late;
    int64_t n_rows, n_keys;
} back_of;

/* The weights of half a row, and what comes back to its scores. */
INLINE void
back_vectors(const back_of *b, int64_t row, int64_t c, const int degree,
             R *weight, R *slope)
{
    const mr_attend_masks *m = b->masks;
    int64_t at = row * MR_GEMM_PIECES_LANES + c;
    R x = v_load(b->s + at) * v_set(b->late), low = v_set(MR_ATTEND_MASKED);
    R from = v_set(b->top[row]), y;
    M there = m_below(b->n_keys - c);

    if (m->limit)
        there = m_and(there, v_le(v_load(column + c), v_set(m->limit[row])));
    if (m->keep)
        there = m_and(there, m_load(m->keep + at));
    x = v_select(there, x, low);
    if (m->add)
        x = x + v_load(m->add + at);
    from = v_select(v_eq(from, v_neg(INFINITE)), (R){0}, from);
    x = power((x - from) * C(LOG2_E), degree) * v_set(b->scale[row]);
    y = x * (v_load(b->g + at) - v_set(b->dot[row]));
    *weight = x;
    *slope = v_select(there, y, (R){0});
}

/* Pairs of neighbours: of x, then of y. */
INLINE __m512i
neighbours_of(__m512i x, __m512i y)
{
    static const uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                     23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                     45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

    return _mm512_permutex2var_epi16(x, _mm512_loadu_si512(odd), y);
}

/* A row of a left side, its 32 depths in x and y. */
INLINE void
left_store(float *to, R x, R y, const int n_pieces, const int apart)
{
    __m512i low[3], high[3];

    split(n_pieces, (__m512)x, low);
    split(n_pieces, (__m512)y, high);
#pragma GCC unroll 3
    for (int p = 0; p < n_pieces; p++)
        _mm512_store_si512(to + p * 2 * TILE_FLOATS,
                           apart == 1 ? neighbours_of(low[p], high[p])
                                      : pairs_of(low[p], high[p]));
}

/* A pair of depths of a right side, 16 lanes. */
INLINE void
right_store(float *to, R even, R odd, const int n_pieces)
{
    __m512i low[3], high[3];

    split(n_pieces, (__m512)even, low);
    split(n_pieces, (__m512)odd, high);
#pragma GCC unroll 3
    for (int p = 0; p < n_pieces; p++)
        _mm512_store_si512(to + p * 2 * TILE_FLOATS, pairs_of(low[p], high[p]));
}

/* Rows `row` of a pair: [0] the first, [1] the second, each in halves. */
INLINE void
back_pair(const back_of *b, const int64_t row[2], int64_t right,
          const mr_attend_pieces *to, const int n_pieces, const int apart,
          const int degree)
{
    R weight[2][2] = {{{0}}}, slope[2][2] = {{{0}}};

#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        int64_t r = row[i] % MR_GEMM_PIECES_LANES;
        float *left = to->left +
                      row[i] / MR_GEMM_PIECES_LANES * to->left_apart +
                      r / PAIRS * TILE_FLOATS + r % PAIRS * N_LANES;

        if (row[i] >= b->n_rows)
            continue;
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            back_vectors(b, row[i], h * N_LANES, degree, &weight[i][h],
                         &slope[i][h]);
        left_store(left, slope[i][0], slope[i][1], n_pieces, apart);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        right_store(to->weights + right + h * TILE_FLOATS, weight[0][h],
                    weight[1][h], n_pieces);
        right_store(to->slopes + right + h * TILE_FLOATS, slope[0][h],
                    slope[1][h], n_pieces);
    }
}

INLINE void
back_rows(const back_of *b, const mr_attend_pieces *to, const int n_pieces,
          const int apart, const int degree)
{
    enum { STEP = MR_GEMM_PIECES_STEP };

    for (int64_t step = 0; step * STEP < b->n_rows; step++)
        for (int64_t i = 0; i < PAIRS; i++) {
            int64_t r = step * STEP + (apart == 1 ? 2 * i : i);

            back_pair(b, (int64_t[]){r, r + apart},
                      step * 2 * n_pieces * TILE_FLOATS + i * N_LANES, to,
                      n_pieces, apart, degree);
        }
}

#define BACK_SPLIT(name, n_pieces, apart, degree)                              \
    static void name(const float *s, const float *g, int64_t n_rows,           \
                     int64_t n_keys, const mr_attend_masks *masks, float late, \
                     const float *top, const float *scale, const float *dot,   \
                     const mr_attend_pieces *to)                               \
    {                                                                          \
        back_of b = {s, g, masks, top, scale, dot, late, n_rows, n_keys};      \
                                                                               \
        back_rows(&b, to, n_pieces, apart, degree);                            \
    }
BACK_SPLIT(back_split_f32, 3, 16, 6)
BACK_SPLIT(back_split_f16, 2, 16, 4)
BACK_SPLIT(back_split_bf16, 2, 1, 4)

#endif
