/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_floats.c -- values of packed rows, and register tiles of them with
 * some rows of floats (kernels/quant_floats.h).
 *
 * Values are made from bfloat16 codes, of which two lie in a lane: a vector of
 * those of even number, then one of the others, for each 32.
 */
#include "kernels/quant_floats.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#if MR_TIER_ID == MR_TIER_AVX512

#define DEPTH  MR_QUANT_FLOATS_DEPTH
#define SCALES MR_QUANT_SCALES
#define WITH   __attribute__((target("avx512vbmi,avx512bw,f16c")))
#define WITHIN WITH static inline __attribute__((always_inline))
#include "kernels/tier/quant_codes.h"

#define TILE_ROWS MR_QUANT_FLOATS_TILE /* chains that hide the latency */
#define STRIDE    16

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

/* ---- values -----------------------------------------------------------------
 */

/* A scale (or bias) for each of 32 codes; groups of 16 have two. */
WITHIN R
spread(const float *scale, int64_t column, int shift, const mr_quant_kind kind)
{
    R s = v_set(scale[column * STEP >> shift]);

    if (kind == MR_QUANT_E2M1)
        s = (R)_mm512_mask_set1_epi32(
            (__m512i)s, 0xFF00,
            ((const int *)(const void *)
                 scale)[(column * STEP + STRIDE) >> shift]);
    return s;
}

/* 32 values of a row: code * scale + bias, rounded twice. */
WITHIN void
values(__m256i from, const float *scale, const float *bias, int64_t column,
       int shift, float *to, const mr_quant_kind kind)
{
    R s = spread(scale, column, shift, kind), even, odd;

    if (kind == MR_QUANT_8) {
        codes_apart(from, (__m512 *)&even, (__m512 *)&odd);
    } else {
        U both = (U)(kind == MR_QUANT_E4M3 ? codes_bytes(from, kind)
                                           : codes_short(from, kind));

        even = (R)(both << 16);
        odd = (R)(both & 0xFFFF0000);
    }
    even *= s;
    odd *= s;
    if (kind != MR_QUANT_E2M1 && kind != MR_QUANT_E4M3) {
        R b = v_set(bias[column * STEP >> shift]);

        even += b;
        odd += b;
    }
    v_store(to + column * STEP, even);
    v_store(to + column * STEP + N_LANES, odd);
}

/* Of a tile whose reads may not go beyond what is its own. */
WITHIN void
values_plain(const mr_quant_next *a, int64_t depth, const mr_quant_kind kind)
{
    const int bytes = STEP / 8 * kind_bits(kind);

    for (int64_t r = 0; r < TILE_ROWS; r++)
        for (int64_t c = 0; c * STEP < depth; c++) {
            const uint8_t *from = a->row[r] + a->offset + c * bytes;
            __m256i x = (c + 1) * STEP <= depth
                            ? codes_read(from, false, false, kind)
                            : codes_read(from, true, false, kind);

            values(x, a->scale + r * SCALES, a->bias + r * SCALES, c,
                   a->group_shift, a->to + r * DEPTH, kind);
        }
}

/* ---- tiles ------------------------------------------------------------------
 * Products leave the ports that unpack idle: so values of other rows are made
 * between them, some for each STRIDE of depth. */

/* Values of a vector of codes each, of half of n_rows rows from `first` on: of
 * the first half for even strides i, of the second for odd ones. */
WITHIN void
values_some(const mr_quant_next *a, int64_t i, const int first,
            const int n_rows, const mr_quant_kind kind)
{
    const int bytes = STEP / 8 * kind_bits(kind), n = n_rows / 2;
    int64_t r = first + (i & 1) * n, column = i >> 1;

#pragma GCC unroll 6
    for (int k = 0; k < n; k++, r++) {
        const uint8_t *from;

        /* hidden from the compiler, which else keeps all that is here in
           registers and has not as many */
        __asm__("" : "+r"(a), "+r"(r), "+r"(column));
        from = a->row[r] + a->offset + column * bytes;
        __builtin_prefetch(
            (const void *)((uintptr_t)from + (uintptr_t)a->beyond), 0, 2);
        values(codes_read(from, false, true, kind), a->scale + r * SCALES,
               a->bias + r * SCALES, column, a->group_shift, a->to + r * DEPTH,
               kind);
    }
}

/* One depth. */
WITHIN void
step(R (*sum)[2], const float *w, const float *x, const int n_rows,
     const int n_vectors)
{
    R x0 = v_load(x), x1 = n_vectors > 1 ? v_load(x + N_LANES) : x0;

#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++) {
        R one = v_set(w[i * DEPTH]);

        sum[i][0] = multiply_add(one, x0, sum[i][0]);
        if (n_vectors > 1)
            sum[i][1] = multiply_add(one, x1, sum[i][1]);
    }
}

/* n_rows rows of values from `first` on and n_vectors vectors of lanes. */
WITHIN void
tile(const mr_quant_stripe *t, const mr_quant_next *a, const int first,
     const int n_rows, const int n_vectors, const mr_quant_kind kind)
{
    const float *x = t->x, *values = t->values + first * DEPTH;
    const float *chain = t->chain + first * t->y_row;
    float *y = t->y + first * t->y_row;
    float *to;
    R sum[TILE_ROWS][2];

#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++)
        for (int v = 0; v < n_vectors; v++)
            sum[i][v] =
                t->begins ? (R){0} : v_load(chain + i * t->y_row + v * N_LANES);
    for (int64_t s = 0; s < t->strides; s++) {
        const float *w = values + s / 2 * STEP + s % 2 * (STRIDE / 2);

        if (a)
            values_some(a, s, first, n_rows, kind);
#pragma GCC unroll 8
        for (int p = 0; p < STRIDE / 2; p++, x += 2 * n_vectors * N_LANES) {
            step(sum, w + p, x, n_rows, n_vectors);
            step(sum, w + p + N_LANES, x + n_vectors * N_LANES, n_rows,
                 n_vectors);
        }
    }
    if (t->ends && !t->first)
#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++)
            for (int v = 0; v < n_vectors; v++)
                sum[i][v] = v_load(y + i * t->y_row + v * N_LANES) + sum[i][v];
    to = t->ends ? y : t->chain + first * t->y_row;
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++)
        for (int v = 0; v < n_vectors; v++)
            v_store(to + i * t->y_row + v * N_LANES, sum[i][v]);
}

#define OF(name, kind)                                                         \
    WITH static void values_##name(const mr_quant_next *a, int64_t depth)      \
    {                                                                          \
        values_plain(a, depth, kind);                                          \
    }                                                                          \
    WITH static void tile_16_##name(const mr_quant_stripe *t,                  \
                                    const mr_quant_next *a)                    \
    {                                                                          \
        tile(t, a, 0, TILE_ROWS, 1, kind);                                     \
    }                                                                          \
    WITH static void tile_32_##name(const mr_quant_stripe *t,                  \
                                    const mr_quant_next *a)                    \
    {                                                                          \
        tile(t, a, 0, TILE_ROWS / 2, 2, kind);                                 \
        tile(t, a, TILE_ROWS / 2, TILE_ROWS / 2, 2, kind);                     \
    }
OF(1, MR_QUANT_1)
OF(2, MR_QUANT_2)
OF(3, MR_QUANT_3)
OF(4, MR_QUANT_4)
OF(5, MR_QUANT_5)
OF(6, MR_QUANT_6)
OF(8, MR_QUANT_8)
OF(e2m1, MR_QUANT_E2M1)
OF(e4m3, MR_QUANT_E4M3)

_Static_assert(MR_QUANT_FLOATS_ROWS % TILE_ROWS == 0, "tiles fill the rows");

#define OF_KIND(name)                                                          \
    {                                                                          \
        name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_8,  \
            name##_e2m1, name##_e4m3                                           \
    }
const mr_quant_floats MR_TIER_SYM(mr__quant_floats) = {
    .scales = scales,
    .values = OF_KIND(values),
    .tile = {OF_KIND(tile_16), OF_KIND(tile_32)},
};

#else

const mr_quant_floats MR_TIER_SYM(mr__quant_floats) = {.scales = NULL};

#endif
