/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pairs.c -- codes as bfloat16, and register tiles of pairs of them, for
 * processors whose vdpbf16ps is worth it (kernels/quant_pairs.h).
 *
 * 32 codes of up to 6 bits: a shuffle gives each the two bytes that have it,
 * which are shifted; a table of 32 or 64 halves makes numbers of their low
 * bits, whatever lies above.
 */
#include "kernels/quant_pairs.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/e4m3.h"
#include "kernels/tier/lanes.h"

#if MR_TIER_ID == MR_TIER_AVX512

#define DEPTH  MR_QUANT_PAIRS_DEPTH
#define SCALES MR_QUANT_PAIRS_SCALES
#define STEP   32 /* codes of a vector */
#define WITH   __attribute__((target("avx512bf16,avx512vbmi,avx512bw,f16c")))
#define WITHIN WITH static inline __attribute__((always_inline))

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

WITHIN __m512i
codes_bytes(__m256i from, const mr_quant_kind kind)
{
    __m512i c, up, low, high;

    if (kind == MR_QUANT_8) {
        __m512 a = _mm512_cvtepi32_ps(
            _mm512_cvtepu8_epi32(_mm256_castsi256_si128(from)));
        __m512 b = _mm512_cvtepi32_ps(
            _mm512_cvtepu8_epi32(_mm256_extracti128_si256(from, 1)));

        return (__m512i)_mm512_cvtne2ps_pbh(b, a);
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

/* 32 codes, or the first 16; `all`: 32 bytes may be read.  Reads with a mask
 * wait for the one before when they miss the first-level cache. */
WITHIN __m512i
codes(const uint8_t *from, const bool half, const bool all,
      const mr_quant_kind kind)
{
    const int bits = kind_bits(kind), bytes = half ? 2 * bits : 4 * bits;
    __m256i x;

    if (all && bits <= 4)
        x = _mm256_castsi128_si256(
            _mm_loadu_si128((const __m128i *)(const void *)from));
    else if (all)
        x = _mm256_loadu_si256((const __m256i *)(const void *)from);
    else
        x = _mm256_maskz_loadu_epi8((__mmask32)((1ULL << bytes) - 1), from);
    return bits == 8 ? codes_bytes(x, kind) : codes_short(x, kind);
}

WITHIN void
row_unpack(const uint8_t *from, int64_t n, uint16_t *to, const bool all,
           const mr_quant_kind kind)
{
    const int bytes = STEP / 8 * kind_bits(kind);
    int64_t i = 0;

    for (; i + STEP <= n; i += STEP, from += bytes)
        _mm512_storeu_si512(to + i, codes(from, false, all, kind));
    if (i < n)
        _mm512_storeu_si512(to + i, codes(from, true, all, kind));
}

/* What comes next is brought to the second-level cache: rows whose length is a
 * power of two share a few sets of the first.  And the line behind, which the
 * last codes read into: it would be waited for. */
WITHIN void
unpack(const mr_quant_rows *s, uint16_t *to, const mr_quant_kind kind)
{
    const uint8_t *from = s->from;
    int64_t bytes = s->n * kind_bits(kind) / 8;

    for (int64_t r = 0; r < s->rows; r++, from += s->row_bytes, to += DEPTH) {
        uintptr_t next = (uintptr_t)from + (uintptr_t)s->ahead;

        for (int64_t k = 0; k < bytes + 64; k += 64)
            __builtin_prefetch((const void *)(next + (uintptr_t)k), 0, 2);
        if (s->end - from >= bytes + 32)
            row_unpack(from, s->n, to, true, kind);
        else
            row_unpack(from, s->n, to, false, kind);
    }
}

#define UNPACK(name, kind)                                                     \
    WITH static void unpack_##name(const mr_quant_rows *s, uint16_t *to)       \
    {                                                                          \
        unpack(s, to, kind);                                                   \
    }
UNPACK(1, MR_QUANT_1)
UNPACK(2, MR_QUANT_2)
UNPACK(3, MR_QUANT_3)
UNPACK(4, MR_QUANT_4)
UNPACK(5, MR_QUANT_5)
UNPACK(6, MR_QUANT_6)
UNPACK(8, MR_QUANT_8)
UNPACK(e2m1, MR_QUANT_E2M1)
UNPACK(e4m3, MR_QUANT_E4M3)

/* ---- scales -----------------------------------------------------------------
 */

WITHIN __m512i
scales_of_bytes(__m128i bytes, const mr_quant_scale kind)
{
    const __m512i nan = _mm512_set1_epi32(0x7fc00000);
    __m512i b = _mm512_cvtepu8_epi32(bytes), magnitude, x;

    if (kind == MR_SCALE_E8M0) {
        x = _mm512_slli_epi32(b, 23);
        x = _mm512_mask_mov_epi32(x, _mm512_testn_epi32_mask(b, b),
                                  _mm512_set1_epi32(0x00400000));
        return _mm512_mask_mov_epi32(
            x, _mm512_cmpeq_epi32_mask(b, _mm512_set1_epi32(255)), nan);
    }
    magnitude = _mm512_and_si512(b, _mm512_set1_epi32(0x7f));
    x = (__m512i)_mm512_mul_ps((__m512)_mm512_slli_epi32(magnitude, 20),
                               _mm512_set1_ps(0x1p120F));
    x = _mm512_or_si512(x, _mm512_slli_epi32(_mm512_srli_epi32(b, 7), 31));
    return _mm512_mask_mov_epi32(
        x, _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7f)), nan);
}

/* The same scales of as many rows behind these are brought near. */
WITHIN void
scales_any(const uint8_t *from, int64_t row_bytes, int64_t rows, int64_t n,
           float *to, const mr_quant_scale kind)
{
    const __mmask16 there = (__mmask16)((1U << n) - 1);
    uintptr_t beyond = (uintptr_t)(rows * row_bytes);

    for (int64_t r = 0; r < rows; r++, from += row_bytes, to += SCALES) {
        __m512i x;

        __builtin_prefetch((const void *)((uintptr_t)from + beyond), 0, 2);
        if (kind == MR_SCALE_FLOAT32)
            x = _mm512_maskz_loadu_epi32(there, from);
        else if (kind == MR_SCALE_FLOAT16)
            x = (__m512i)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(there, from));
        else if (kind == MR_SCALE_BFLOAT16)
            x = _mm512_slli_epi32(
                _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, from)),
                16);
        else
            x = scales_of_bytes(_mm_maskz_loadu_epi8(there, from), kind);
        _mm512_storeu_si512(to, x);
    }
}

WITH static void
scales(const uint8_t *from, int64_t row_bytes, int64_t rows, int64_t n,
       mr_quant_scale kind, float *to)
{
    switch (kind) {
    case MR_SCALE_FLOAT32:
        scales_any(from, row_bytes, rows, n, to, MR_SCALE_FLOAT32);
        return;
    case MR_SCALE_FLOAT16:
        scales_any(from, row_bytes, rows, n, to, MR_SCALE_FLOAT16);
        return;
    case MR_SCALE_BFLOAT16:
        scales_any(from, row_bytes, rows, n, to, MR_SCALE_BFLOAT16);
        return;
    case MR_SCALE_E8M0:
        scales_any(from, row_bytes, rows, n, to, MR_SCALE_E8M0);
        return;
    case MR_SCALE_E4M3:
        scales_any(from, row_bytes, rows, n, to, MR_SCALE_E4M3);
        return;
    }
}

/* ---- x ----------------------------------------------------------------------
 */

WITH static bool
fit(const uint16_t *x, int64_t n)
{
    const __m512i magnitude = _mm512_set1_epi16(0x7FFF);
    const __m512i one = _mm512_set1_epi16(1), normal = _mm512_set1_epi16(0x7F);
    const __m512i huge = _mm512_set1_epi16((127 + 64) << 7);
    __mmask32 found = 0;

    for (int64_t i = 0; i < n; i += 32) {
        __mmask32 there = n - i < 32 ? 0x0000FFFF : 0xFFFFFFFF;
        __m512i h =
            _mm512_and_si512(_mm512_maskz_loadu_epi16(there, x + i), magnitude);

        found |= _mm512_cmplt_epu16_mask(_mm512_sub_epi16(h, one), normal) |
                 _mm512_cmpge_epu16_mask(h, huge);
    }
    return found == 0;
}

/* Four chains of each vector. */
WITHIN void
sums_of(const float *x, int64_t pairs, int64_t n_groups, float *to,
        int64_t to_row, const int n_vectors)
{
    const __m512bh one = (__m512bh)_mm512_set1_epi16(0x3F80);

    for (int64_t g = 0; g < n_groups; g++, to += to_row) {
        R sum[4][2] = {{{0}}};

        for (int64_t p = 0; p < pairs; p += 4)
            for (int c = 0; c < 4; c++)
                for (int v = 0; v < n_vectors; v++, x += N_LANES)
                    sum[c][v] = (R)_mm512_dpbf16_ps((__m512)sum[c][v], one,
                                                    (__m512bh)v_load(x));
        for (int v = 0; v < n_vectors; v++)
            v_store(to + v * N_LANES,
                    (sum[0][v] + sum[1][v]) + (sum[2][v] + sum[3][v]));
    }
}

WITH static void
sums(const float *x, int lanes, int64_t pairs, int64_t n_groups, float *to,
     int64_t to_row)
{
    if (lanes == 32) {
        sums_of(x, pairs, n_groups, to, to_row, 2);
        return;
    }
    if (lanes == 16) {
        sums_of(x, pairs, n_groups, to, to_row, 1);
        return;
    }
    for (int64_t g = 0; g < n_groups; g++, to += to_row) {
        const __m256bh one = (__m256bh)_mm256_set1_epi16(0x3F80);
        __m256 sum[4] = {0};

        for (int64_t p = 0; p < pairs; p += 4)
            for (int c = 0; c < 4; c++, x += 8)
                sum[c] =
                    _mm256_dpbf16_ps(sum[c], one, (__m256bh)_mm256_loadu_ps(x));
        _mm256_storeu_ps(to, (sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
}

/* ---- tiles ------------------------------------------------------------------
 * Sums of codes and those of values wait in registers, so that a group begins
 * while the last one is being scaled.  Products leave the ports that unpack
 * idle: so codes of other rows are unpacked between them, some for each STRIDE
 * codes. */

#define TILE_ROWS MR_QUANT_PAIRS_TILE /* chains that hide the latency */
#define STRIDE    16                  /* codes, which every group has */

WITHIN int
pair_at(const uint16_t *codes)
{
    int pair;

    memcpy(&pair, codes, sizeof pair);
    return pair;
}

/* Codes of a vector each, of half of n_rows rows from `first` on: of the first
 * half for even strides i, of the second for odd ones. */
WITHIN void
ahead_some(const mr_quant_ahead *a, int64_t i, const int first,
           const int n_rows, const mr_quant_kind kind)
{
    const int bytes = STEP / 8 * kind_bits(kind), n = n_rows / 2;
    int64_t r = first + i % 2 * n, column = i / 2;
    const uint8_t *const *row = a->row + r;
    uint16_t *to = a->to + r * DEPTH + column * STEP;

#pragma GCC unroll 6
    for (int k = 0; k < n; k++) {
        const uint8_t *from = row[k] + a->offset + column * bytes;

        __builtin_prefetch(
            (const void *)((uintptr_t)from + (uintptr_t)a->beyond), 0, 2);
        _mm512_storeu_si512(to + k * DEPTH, codes(from, false, true, kind));
    }
}

/* n_rows rows of w from `first` on and n_vectors vectors of lanes. */
WITHIN void
tile(const mr_quant_piece *t, const mr_quant_ahead *a, const int first,
     const int n_rows, const int n_vectors, const mr_quant_kind kind)
{
    const uint16_t *w = t->codes + first * DEPTH;
    const float *x = t->x, *x_sums = t->x_sums;
    const float *scale = t->scale + first * SCALES;
    const float *bias = t->bias ? t->bias + first * SCALES : NULL;
    float *y = t->y + first * t->y_row;
    int64_t stride = 0;
    R sum[TILE_ROWS][2];

#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++)
        for (int v = 0; v < n_vectors; v++)
            sum[i][v] = v_load(y + i * t->y_row + v * N_LANES);
    for (int64_t g = 0; g < t->n_groups; g++, scale++) {
        R part[TILE_ROWS][2];

#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++)
            part[i][0] = part[i][1] = (R){0};
        for (int64_t left = t->strides; left > 0; left--) {
            if (a)
                ahead_some(a, stride++, first, n_rows, kind);
            for (int p = 0; p < STRIDE / 2; p++, w += 2) {
                __m512bh x0 = (__m512bh)v_load(x), x1 = x0;

                if (n_vectors > 1)
                    x1 = (__m512bh)v_load(x + N_LANES);
                x += n_vectors * N_LANES;
#pragma GCC unroll 12
                for (int i = 0; i < n_rows; i++) {
                    __m512bh q =
                        (__m512bh)_mm512_set1_epi32(pair_at(w + i * DEPTH));

                    part[i][0] = (R)_mm512_dpbf16_ps((__m512)part[i][0], q, x0);
                    if (n_vectors > 1)
                        part[i][1] =
                            (R)_mm512_dpbf16_ps((__m512)part[i][1], q, x1);
                }
            }
        }
#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++)
            for (int v = 0; v < n_vectors; v++)
                sum[i][v] = multiply_add(part[i][v], v_set(scale[i * SCALES]),
                                         sum[i][v]);
        if (!bias)
            continue;
#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++)
            for (int v = 0; v < n_vectors; v++)
                sum[i][v] = multiply_add(v_load(x_sums + v * N_LANES),
                                         v_set(bias[i * SCALES]), sum[i][v]);
        bias++;
        x_sums += t->sums_row;
    }
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++)
        for (int v = 0; v < n_vectors; v++)
            v_store(y + i * t->y_row + v * N_LANES, sum[i][v]);
}

WITHIN void
tile_of_32(const mr_quant_piece *t, const mr_quant_ahead *a,
           const mr_quant_kind kind)
{
    tile(t, a, 0, TILE_ROWS / 2, 2, kind);
    tile(t, a, TILE_ROWS / 2, TILE_ROWS / 2, 2, kind);
}

WITHIN void
tile_of_16(const mr_quant_piece *t, const mr_quant_ahead *a,
           const mr_quant_kind kind)
{
    tile(t, a, 0, TILE_ROWS, 1, kind);
}

/* The same of eight lanes, which take half the time of 16. */
WITHIN void
tile_of_8(const mr_quant_piece *t, const mr_quant_ahead *a,
          const mr_quant_kind kind)
{
    const uint16_t *w = t->codes;
    const float *x = t->x, *x_sums = t->x_sums;
    const float *scale = t->scale, *bias = t->bias;
    int64_t stride = 0;
    __m256 sum[TILE_ROWS];

#pragma GCC unroll 12
    for (int i = 0; i < TILE_ROWS; i++)
        sum[i] = _mm256_loadu_ps(t->y + i * t->y_row);
    for (int64_t g = 0; g < t->n_groups; g++, scale++) {
        __m256 part[TILE_ROWS];

#pragma GCC unroll 12
        for (int i = 0; i < TILE_ROWS; i++)
            part[i] = _mm256_setzero_ps();
        for (int64_t left = t->strides; left > 0; left--) {
            if (a)
                ahead_some(a, stride++, 0, TILE_ROWS, kind);
            for (int p = 0; p < STRIDE / 2; p++, w += 2, x += 8) {
                __m256bh x0 = (__m256bh)_mm256_loadu_ps(x);

#pragma GCC unroll 12
                for (int i = 0; i < TILE_ROWS; i++)
                    part[i] = _mm256_dpbf16_ps(
                        part[i],
                        (__m256bh)_mm256_set1_epi32(pair_at(w + i * DEPTH)),
                        x0);
            }
        }
#pragma GCC unroll 12
        for (int i = 0; i < TILE_ROWS; i++)
            sum[i] = _mm256_fmadd_ps(part[i], _mm256_set1_ps(scale[i * SCALES]),
                                     sum[i]);
        if (!bias)
            continue;
#pragma GCC unroll 12
        for (int i = 0; i < TILE_ROWS; i++)
            sum[i] = _mm256_fmadd_ps(_mm256_loadu_ps(x_sums),
                                     _mm256_set1_ps(bias[i * SCALES]), sum[i]);
        bias++;
        x_sums += t->sums_row;
    }
#pragma GCC unroll 12
    for (int i = 0; i < TILE_ROWS; i++)
        _mm256_storeu_ps(t->y + i * t->y_row, sum[i]);
}

#define TILES(name, kind)                                                      \
    WITH static void tile_8_##name(const mr_quant_piece *t,                    \
                                   const mr_quant_ahead *a)                    \
    {                                                                          \
        tile_of_8(t, a, kind);                                                 \
    }                                                                          \
    WITH static void tile_16_##name(const mr_quant_piece *t,                   \
                                    const mr_quant_ahead *a)                   \
    {                                                                          \
        tile_of_16(t, a, kind);                                                \
    }                                                                          \
    WITH static void tile_32_##name(const mr_quant_piece *t,                   \
                                    const mr_quant_ahead *a)                   \
    {                                                                          \
        tile_of_32(t, a, kind);                                                \
    }
TILES(1, MR_QUANT_1)
TILES(2, MR_QUANT_2)
TILES(3, MR_QUANT_3)
TILES(4, MR_QUANT_4)
TILES(5, MR_QUANT_5)
TILES(6, MR_QUANT_6)
TILES(8, MR_QUANT_8)
TILES(e2m1, MR_QUANT_E2M1)
TILES(e4m3, MR_QUANT_E4M3)

_Static_assert(MR_QUANT_PAIRS_ROWS % TILE_ROWS == 0, "tiles fill the rows");

#define OF_KIND(lanes)                                                         \
    {                                                                          \
        tile_##lanes##_1, tile_##lanes##_2, tile_##lanes##_3,                  \
            tile_##lanes##_4, tile_##lanes##_5, tile_##lanes##_6,              \
            tile_##lanes##_8, tile_##lanes##_e2m1, tile_##lanes##_e4m3         \
    }
const mr_quant_pairs MR_TIER_SYM(mr__quant_pairs) = {
    .unpack = {unpack_1, unpack_2, unpack_3, unpack_4, unpack_5, unpack_6,
               unpack_8, unpack_e2m1, unpack_e4m3},
    .scales = scales,
    .fit = fit,
    .sums = sums,
    .tile = {OF_KIND(8), OF_KIND(16), OF_KIND(32)},
};

#else

const mr_quant_pairs MR_TIER_SYM(mr__quant_pairs) = {.fit = NULL};

#endif
