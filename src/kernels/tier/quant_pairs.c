/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pairs.c -- codes as bfloat16, and register tiles of pairs of them, for
 * processors whose vdpbf16ps is worth it (kernels/quant_pairs.h).
 */
#include "kernels/quant_pairs.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#if MR_TIER_ID == MR_TIER_AVX512

#define DEPTH  MR_QUANT_PAIRS_DEPTH
#define SCALES MR_QUANT_SCALES
#define WITH   __attribute__((target("avx512bf16,avx512vbmi,avx512bw")))
#define WITHIN WITH static inline __attribute__((always_inline))
#include "kernels/tier/quant_codes.h"

/* ---- codes ------------------------------------------------------------------
 */

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

/* The same of eight lanes, which take half the time of 16: there what else is
 * done between products costs more than before them. */
WITH static void
tile_8(const mr_quant_piece *t)
{
    const uint16_t *w = t->codes;
    const float *x = t->x, *x_sums = t->x_sums;
    const float *scale = t->scale, *bias = t->bias;
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
    .fit = fit,
    .sums = sums,
    .narrow = tile_8,
    .tile = {OF_KIND(16), OF_KIND(32)},
};

#else

const mr_quant_pairs MR_TIER_SYM(mr__quant_pairs) = {.fit = NULL};

#endif
