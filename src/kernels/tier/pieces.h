/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.h -- numbers as sums of bfloat16 pieces, of AVX-512, and the range of
 * those that were made so.
 *
 * Included by: gemm_matrix.c, conv_matrix.c, quant_pieces.c, attend_pieces.h.
 */
#ifndef MR_KERNELS_TIER_PIECES_H
#define MR_KERNELS_TIER_PIECES_H

#include "kernels/gemm.h"

#define LOW_BITS (-0x10000) /* of what is above them, a mask */

/* x = the sum of its pieces, each in the upper half of its lane.  Ties go away
 * from 0: the rest has room for either. */
INLINE void
split(const int n_pieces, __m512 x, __m512i piece[3])
{
    __m512i half = _mm512_set1_epi32(0x8000),
            mask = _mm512_set1_epi32(LOW_BITS);

#pragma GCC unroll 3
    for (int k = 0; k < n_pieces - 1; k++) {
        piece[k] = _mm512_and_si512(
            _mm512_add_epi32(_mm512_castps_si512(x), half), mask);
        x = _mm512_sub_ps(x, _mm512_castsi512_ps(piece[k]));
    }
    piece[n_pieces - 1] = _mm512_castps_si512(x);
}

/* Pairs of what is in the upper halves: low's becomes the lower one. */
INLINE __m512i
pairs_of(__m512i low, __m512i high)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(low, 16),
                                   high);
}

/* The largest and, less one, the least bits of what was seen, those of the
 * signs shifted out; of bfloat16, in halves, signs masked. */
typedef struct range {
    __m512i most, least;
} range;

INLINE range
range_none(void)
{
    return (range){.most = _mm512_setzero_si512(),
                   .least = _mm512_set1_epi32(-1)};
}

INLINE void
range_take(range *r, __m512 x)
{
    __m512i bits = _mm512_castps_si512(x), size = _mm512_add_epi32(bits, bits);

    r->most = _mm512_max_epu32(r->most, size);
    r->least = _mm512_min_epu32(r->least,
                                _mm512_sub_epi32(size, _mm512_set1_epi32(1)));
}

INLINE void
range_take_halves(range *r, __m512i bits)
{
    __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFF7FFF));

    r->most = _mm512_max_epu16(r->most, size);
    r->least = _mm512_min_epu16(r->least,
                                _mm512_sub_epi16(size, _mm512_set1_epi16(1)));
}

/* The exponents of both. */
INLINE mr_gemm_range
range_of(const range *r, const mr_gemm_kind kind)
{
    enum { BIAS = 127 };
    const int shift = kind == MR_GEMM_BFLOAT16 ? 7 : 24;
    const unsigned none = kind == MR_GEMM_BFLOAT16 ? 0xFFFF : 0xFFFFFFFF;
    __m512i most = r->most, least = r->least, low = _mm512_set1_epi32(0xFFFF);
    unsigned first, last;

    if (kind == MR_GEMM_BFLOAT16) {
        most = _mm512_max_epu32(_mm512_and_si512(most, low),
                                _mm512_srli_epi32(most, 16));
        least = _mm512_min_epu32(_mm512_and_si512(least, low),
                                 _mm512_srli_epi32(least, 16));
    }
    first = _mm512_reduce_min_epu32(least);
    last = _mm512_reduce_max_epu32(most);
    if (first == none)
        return MR_GEMM_RANGE_NONE;
    return (mr_gemm_range){.least = (int)((first + 1) >> shift) - BIAS,
                           .most = (int)(last >> shift) - BIAS};
}

/* Which of 32 lanes are the first n. */
INLINE __mmask32
first_lanes(int64_t n)
{
    return n >= 32 ? 0xFFFFFFFF : n <= 0 ? 0 : (__mmask32)((1U << n) - 1);
}

/* Those of sixteen numbers that are there, others 0. */
INLINE __m512
floats_at(const void *p, __mmask16 there, const mr_gemm_kind kind)
{
    if (kind == MR_GEMM_FLOAT32)
        return _mm512_maskz_loadu_ps(there, p);
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(there, p));
}

/* Sixteen numbers that are there as pieces, and into the range. */
INLINE void
floats_split(const void *p, __mmask16 there, __m512i piece[3], range *r,
             const mr_gemm_kind kind, const int n_pieces)
{
    __m512 x = floats_at(p, there, kind);

    range_take(r, x);
    split(n_pieces, x, piece);
}

/* 32 numbers that lie side by side, of which some are there: 16 lanes of low
 * ones, 16 of those behind them. */
INLINE void
wide_split(const void *p, __mmask32 there, __m512i low[3], __m512i high[3],
           range *r, const mr_gemm_kind kind, const int n_pieces)
{
    int64_t size = kind == MR_GEMM_FLOAT32 ? 4 : 2;

    floats_split(p, (__mmask16)there, low, r, kind, n_pieces);
    floats_split((const char *)p + 16 * size, (__mmask16)(there >> 16), high, r,
                 kind, n_pieces);
}

#endif
