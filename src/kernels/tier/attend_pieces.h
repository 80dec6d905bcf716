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

/* 2^x for x <= 0 as 2^floor(x) p(x - floor(x)), weighted minimax with p(0) = 1,
 * coefficients rounded one at a time from the lowest.  Of degree 4 within 2^-18
 * of it, of degree 6 within 2^-24. */
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

#endif
