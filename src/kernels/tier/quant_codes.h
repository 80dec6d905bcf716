/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_codes.h -- 32 codes as bfloat16, for processors that shuffle bytes of
 * whole registers (AVX512-VBMI); the including file says WITHIN.
 *
 * Codes of up to 6 bits: a shuffle gives each the two bytes that have it, which
 * are shifted; a table of 32 or 64 halves makes numbers of their low bits,
 * whatever lies above.
 */
#ifndef MR_KERNELS_TIER_QUANT_CODES_H
#define MR_KERNELS_TIER_QUANT_CODES_H

#include "kernels/quant.h"
#include "kernels/tier/e4m3.h"

#define STEP 32 /* codes of a vector */

/* ---- numbers of codes -------------------------------------------------------
 */

/* An integer below 64 as bfloat16. */
#define EXPONENT(c)                                                            \
    ((c) >= 32   ? 5                                                           \
     : (c) >= 16 ? 4                                                           \
     : (c) >= 8  ? 3                                                           \
     : (c) >= 4  ? 2                                                           \
     : (c) >= 2  ? 1                                                           \
                 : 0)
#define INTEGER(c)                                                             \
    ((c) == 0 ? 0                                                              \
              : (127 + EXPONENT(c)) << 7 | ((c) << (7 - EXPONENT(c)) & 0x7f))
#define ONE(c)   INTEGER((c)&1)
#define TWO(c)   INTEGER((c)&3)
#define THREE(c) INTEGER((c)&7)
#define FOUR(c)  INTEGER((c)&15)
/* An element of 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and the same below 0. */
#define HALVES(c)                                                              \
    ((c) == 7 ? 12 : (c) == 6 ? 8 : (c) == 5 ? 6 : (c)) /* of 0.5 */
#define ELEMENT(c)                                                             \
    (((c)&8) << 12 | (((c)&7) == 0 ? 0 : INTEGER(HALVES((c)&7)) - (1 << 7)))

/* By the five low bits of a half, in order of the kinds. */
static const uint16_t numbers_of[MR_N_QUANT_KINDS][32] = {
    {MR_BY_32(ONE, 0)},
    {MR_BY_32(TWO, 0)},
    {MR_BY_32(THREE, 0)},
    {MR_BY_32(FOUR, 0)},
    {MR_BY_32(INTEGER, 0)},
    {MR_BY_32(INTEGER, 0)},
    [MR_QUANT_E2M1] = {MR_BY_SIXTEEN(ELEMENT, 0), MR_BY_SIXTEEN(ELEMENT, 0)}};
/* The upper ones of six bits. */
static const uint16_t numbers_above[32] = {MR_BY_32(INTEGER, 32)};

/* For each code of b bits the two bytes that have it; where in these it
 * begins. */
#define BYTE(i, b)  ((i) * (b) / 8), ((i) * (b) / 8 + 1)
#define PLACE(i, b) ((i) * (b) % 8)
#define EIGHT(f, i, b)                                                         \
    f(i, b), f((i) + 1, b), f((i) + 2, b), f((i) + 3, b), f((i) + 4, b),       \
        f((i) + 5, b), f((i) + 6, b), f((i) + 7, b)
#define ALL(f, b)                                                              \
    {                                                                          \
        EIGHT(f, 0, b), EIGHT(f, 8, b), EIGHT(f, 16, b), EIGHT(f, 24, b)       \
    }
static const uint8_t bytes_of[7][64] = {
    {0},          ALL(BYTE, 1), ALL(BYTE, 2), ALL(BYTE, 3),
    ALL(BYTE, 4), ALL(BYTE, 5), ALL(BYTE, 6)};
static const uint16_t places_of[7][32] = {
    {0},           ALL(PLACE, 1), ALL(PLACE, 2), ALL(PLACE, 3),
    ALL(PLACE, 4), ALL(PLACE, 5), ALL(PLACE, 6)};

#define FIRST(i)  (2 * (i)), 0, 0, 0
#define SECOND(i) (2 * (i) + 1), 0, 0, 0
static const uint8_t bytes_apart[2][64] = {{MR_BY_SIXTEEN(FIRST, 0)},
                                           {MR_BY_SIXTEEN(SECOND, 0)}};

WITHIN int
kind_bits(const mr_quant_kind kind)
{
    static const int bits[MR_N_QUANT_KINDS] = {1, 2, 3, 4, 5, 6, 8, 4, 8};

    return bits[kind];
}

WITHIN __m512i
codes_short(__m256i from, const mr_quant_kind kind)
{
    const int bits = kind_bits(kind);
    __m512i x = _mm512_permutexvar_epi8(_mm512_loadu_si512(bytes_of[bits]),
                                        _mm512_castsi256_si512(from));
    __m512i table = _mm512_loadu_si512(numbers_of[kind]);

    /* not vpmultishiftqb: it takes a port that the products need */
    x = _mm512_srlv_epi16(x, _mm512_loadu_si512(places_of[bits]));
    return kind == MR_QUANT_6 ? _mm512_permutex2var_epi16(
                                    table, x, _mm512_loadu_si512(numbers_above))
                              : _mm512_permutexvar_epi16(x, table);
}

/* Codes of a byte each as floats: those of even number, and the others. */
WITHIN void
codes_apart(__m256i from, __m512 *even, __m512 *odd)
{
    const __mmask64 first = 0x1111111111111111; /* bytes of each lane */
    __m512i x = _mm512_castsi256_si512(from);

    *even = _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(
        first, _mm512_loadu_si512(bytes_apart[0]), x));
    *odd = _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(
        first, _mm512_loadu_si512(bytes_apart[1]), x));
}

WITHIN __m512i
codes_bytes(__m256i from, const mr_quant_kind kind)
{
    __m512i c, up, low, high;

    if (kind == MR_QUANT_8) {
        __m512 even, odd;

        codes_apart(from, &even, &odd);
        return _mm512_or_si512(_mm512_srli_epi32((__m512i)even, 16),
                               (__m512i)odd);
    }
    c = _mm512_cvtepu8_epi16(from);
    up = _mm512_slli_epi16(c, 8);
    /* each byte that is 0 finds a byte that is 0 */
    low = _mm512_permutex2var_epi8(_mm512_loadu_si512(e4m3_low), c,
                                   _mm512_loadu_si512(e4m3_low + 64));
    high = _mm512_permutex2var_epi8(_mm512_loadu_si512(e4m3_high), up,
                                    _mm512_loadu_si512(e4m3_high + 64));
    return _mm512_ternarylogic_epi32(_mm512_or_si512(low, high), up,
                                     _mm512_set1_epi16((short)0x8000),
                                     0xF8); /* the sign */
}

/* What 32 codes, or the first 16, are in; `all`: 32 bytes may be read.  Reads
 * with a mask wait for the one before when they miss the first-level cache. */
WITHIN __m256i
codes_read(const uint8_t *from, const bool half, const bool all,
           const mr_quant_kind kind)
{
    const int bits = kind_bits(kind), bytes = half ? 2 * bits : 4 * bits;

    if (!all)
        return _mm256_maskz_loadu_epi8((__mmask32)((1ULL << bytes) - 1), from);
    if (bits <= 4)
        return _mm256_castsi128_si256(
            _mm_loadu_si128((const __m128i *)(const void *)from));
    return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

WITHIN __m512i
codes(const uint8_t *from, const bool half, const bool all,
      const mr_quant_kind kind)
{
    __m256i x = codes_read(from, half, all, kind);

    return kind_bits(kind) == 8 ? codes_bytes(x, kind) : codes_short(x, kind);
}

#endif
