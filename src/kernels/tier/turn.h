/* SPDX-License-Identifier: Apache-2.0
 *
 * turn.h -- squares of registers turned, of AVX-512.
 */
#ifndef MR_KERNELS_TIER_TURN_H
#define MR_KERNELS_TIER_TURN_H

#if MR_TIER_ID == MR_TIER_AVX512

/* Quarter i of each of four registers as register i: a turn of quarters. */
INLINE void
turn_quarters(__m512 to[4], const __m512 x[4])
{
    __m512 even[2], odd[2];

#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        even[h] = _mm512_shuffle_f32x4(x[2 * h], x[2 * h + 1], 0x88);
        odd[h] = _mm512_shuffle_f32x4(x[2 * h], x[2 * h + 1], 0xDD);
    }
    to[0] = _mm512_shuffle_f32x4(even[0], even[1], 0x88);
    to[1] = _mm512_shuffle_f32x4(odd[0], odd[1], 0x88);
    to[2] = _mm512_shuffle_f32x4(even[0], even[1], 0xDD);
    to[3] = _mm512_shuffle_f32x4(odd[0], odd[1], 0xDD);
}

#if MR_LANE_BITS == 32
/* Lane i of register l as lane l of register i, of sixteen: pairs of lanes,
 * fours, then quarters of registers. */
INLINE void
turn_registers(__m512 x[16])
{
    __m512 y[16];

#pragma GCC unroll 8
    for (int l = 0; l < 16; l += 2) {
        y[l] = _mm512_unpacklo_ps(x[l], x[l + 1]);
        y[l + 1] = _mm512_unpackhi_ps(x[l], x[l + 1]);
    }
#pragma GCC unroll 4
    for (int l = 0; l < 16; l += 4)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            __m512d a = (__m512d)y[l + i], b = (__m512d)y[l + i + 2];

            x[l + 2 * i] = (__m512)_mm512_unpacklo_pd(a, b);
            x[l + 2 * i + 1] = (__m512)_mm512_unpackhi_pd(a, b);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 column[4] = {x[i], x[4 + i], x[8 + i], x[12 + i]}, out[4];

        turn_quarters(out, column);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            y[4 * k + i] = out[k];
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        x[i] = y[i];
}
#endif

#endif

#endif
