/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.h -- numbers as sums of bfloat16 pieces, of AVX-512.
 *
 * Included by: gemm_matrix.c, quant_pieces.c, attend_pieces.h.
 */
#ifndef MR_KERNELS_TIER_PIECES_H
#define MR_KERNELS_TIER_PIECES_H

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

#endif
