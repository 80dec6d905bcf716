/* SPDX-License-Identifier: Apache-2.0
 *
 * tile.h -- register tiles of packed matrix products, and the turning of rows
 * into panels, of the lanes that the including file has chosen.
 *
 * A tile keeps all its sums in registers: 12 rows with 32 registers, 6 or 3
 * with 16, by two vectors of columns (which leaves two or more registers for
 * the columns of b and one to spread an element of a).  Smaller tiles of a
 * third or two thirds of the rows and half of the columns serve the edges.
 */
#ifndef MR_KERNELS_TIER_TILE_H
#define MR_KERNELS_TIER_TILE_H

#include "kernels/tier/turn.h"

#if MR_TIER_ID == MR_TIER_AVX512
#define THIRD 4
#elif MR_TIER_ID == MR_TIER_NEON
#define THIRD 4
#elif MR_TIER_ID == MR_TIER_AVX2
#define THIRD 2
#else
#define THIRD 1
#endif
#define ROWS (3 * THIRD)
#define COLS (2 * N_LANES)

_Static_assert(ROWS <= MR_GEMM_MAX_ROWS, "tile too high");

/* Steps before the last one at which the lines of c are asked for, a row a
 * step: earlier they would be gone again when the sums are ready, since panels
 * pass through the first-level cache meanwhile (and rows of c a power of 2
 * apart share few places there). */
#define FETCH_STEPS 32

/* A panel of b comes from the third-level cache, and prefetchers begin anew at
 * each page: b is asked for so many steps ahead (1024^3 float64 1.5 % less
 * time, float32 0.5; the next panel instead: half of that).  Where blocks of b
 * stay in a large second level (mr__gemm_near_bytes) it is asked for from there
 * into the first, and so is a: panels of both are more than that holds (one
 * thread of a Xeon, float64, of 118 GFLOP/s: 93 without, 95 with b alone by 8
 * or 16 steps, 104 with both). */
#define AHEAD_STEPS 64
#define NEAR_STEPS  12

/* A tile of six rows takes 64 bytes of b every six cycles: more of its time
 * would be waiting, so b is asked for into the first level (one thread of a
 * Zen 3, GFLOP/s: float32 384^3 56 to 88, 640^3 58 to 80, float64 384^3 30 to
 * 40; 64 steps ahead as well: nothing). */
#define B_NEAR (VEC_BYTES == 32)

INLINE void
b_fetch(const lane *b, int64_t b_row, const bool near)
{
    if (near || B_NEAR)
        __builtin_prefetch(b + NEAR_STEPS * b_row);
    else
        __builtin_prefetch(b + AHEAD_STEPS * b_row, 0, 2);
}

INLINE void
tile_steps(R sum[ROWS][2], const lane *restrict a, const lane *restrict b,
           int64_t b_row, int64_t n, const lane *c, int64_t c_row,
           const int n_rows, const int n_vectors, const bool near)
{
    for (int64_t p = 0; p < n; p++, a += ROWS, b += b_row) {
        R b0 = v_load(b), b1 = n_vectors > 1 ? v_load(b + N_LANES) : b0;

        if (near)
            __builtin_prefetch(a + NEAR_STEPS * ROWS);
        b_fetch(b, b_row, near);
        if (n_vectors > 1 && sizeof(R) == 64) /* else it is the same line */
            b_fetch(b + N_LANES, b_row, near);
        if (c) {
            __builtin_prefetch(c + p * c_row, 1);
            if (n_vectors > 1)
                __builtin_prefetch(c + p * c_row + N_LANES, 1);
        }
#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++) {
            R x = v_set(a[i]);

            sum[i][0] = multiply_add(x, b0, sum[i][0]);
            if (n_vectors > 1)
                sum[i][1] = multiply_add(x, b1, sum[i][1]);
        }
    }
}

INLINE void
tile(int64_t depth, const lane *restrict a, const lane *restrict b,
     int64_t b_row, lane *restrict c, int64_t c_row, bool add, const int n_rows,
     const int n_vectors, const bool near)
{
    int64_t early = depth > FETCH_STEPS ? depth - FETCH_STEPS : 0;
    int64_t fetch = depth - early < n_rows ? depth - early : n_rows;
    int64_t late = early + fetch;
    R sum[ROWS][2];

#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++) {
        sum[i][0] = (R){0};
        sum[i][1] = (R){0};
    }
    tile_steps(sum, a, b, b_row, early, NULL, 0, n_rows, n_vectors, near);
    tile_steps(sum, a + early * ROWS, b + early * b_row, b_row, fetch, c, c_row,
               n_rows, n_vectors, near);
    tile_steps(sum, a + late * ROWS, b + late * b_row, b_row, depth - late,
               NULL, 0, n_rows, n_vectors, near);
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++, c += c_row) {
        v_store(c, add ? v_load(c) + sum[i][0] : sum[i][0]);
        if (n_vectors > 1)
            v_store(c + N_LANES,
                    add ? v_load(c + N_LANES) + sum[i][1] : sum[i][1]);
    }
}

#define TILE(name, n_rows, n_vectors, near)                                    \
    static void name(int64_t depth, const lane *a, const lane *b,              \
                     int64_t b_row, lane *c, int64_t c_row, bool add)          \
    {                                                                          \
        tile(depth, a, b, b_row, c, c_row, add, n_rows, n_vectors, near);      \
    }
#define ALL_TILES(how, near)                                                   \
    TILE(tile_third_half_##how, THIRD, 1, near)                                \
    TILE(tile_third_##how, THIRD, 2, near)                                     \
    TILE(tile_two_thirds_half_##how, 2 * THIRD, 1, near)                       \
    TILE(tile_two_thirds_##how, 2 * THIRD, 2, near)                            \
    TILE(tile_half_##how, 3 * THIRD, 1, near)                                  \
    TILE(tile_whole_##how, 3 * THIRD, 2, near)
ALL_TILES(far, false)
ALL_TILES(near, true)
#define TILES(how)                                                             \
    {                                                                          \
        {tile_third_half_##how, tile_third_##how},                             \
            {tile_two_thirds_half_##how, tile_two_thirds_##how},               \
        {                                                                      \
            tile_half_##how, tile_whole_##how                                  \
        }                                                                      \
    }

/* Four lanes by four depths. */
typedef lane FOUR __attribute__((vector_size(4 * sizeof(lane))));

INLINE void
turn_four(lane *to, const lane *from, int64_t lane_stride, int64_t width)
{
    FOUR x[4], low[2], high[2];

    for (int l = 0; l < 4; l++)
        memcpy(&x[l], from + l * lane_stride, sizeof x[l]);
    for (int l = 0; l < 2; l++) {
        low[l] = __builtin_shufflevector(x[l], x[l + 2], 0, 4, 1, 5);
        high[l] = __builtin_shufflevector(x[l], x[l + 2], 2, 6, 3, 7);
    }
    x[0] = __builtin_shufflevector(low[0], low[1], 0, 4, 1, 5);
    x[1] = __builtin_shufflevector(low[0], low[1], 2, 6, 3, 7);
    x[2] = __builtin_shufflevector(high[0], high[1], 0, 4, 1, 5);
    x[3] = __builtin_shufflevector(high[0], high[1], 2, 6, 3, 7);
    for (int p = 0; p < 4; p++)
        memcpy(to + p * width, &x[p], sizeof x[p]);
}

#if MR_TIER_ID == MR_TIER_AVX512
/* The first `n` lanes of memory, others 0. */
INLINE __m512
load_first(const lane *from, int64_t n)
{
    unsigned there = (1U << n) - 1;

#if MR_LANE_BITS == 32
    return _mm512_maskz_loadu_ps((__mmask16)there, from);
#else
    return (__m512)_mm512_maskz_loadu_pd((__mmask8)there, from);
#endif
}

/* `n` lanes by as many depths as a register has lanes, of which the first
 * `depths` are read and others 0: each quarter of register n / FULL * q + g of
 * the result is a quarter of a depth, its lanes FULL * g ..., where FULL lanes
 * fill a quarter; quarter i has depth FULL * i + q.  Lanes from `lanes` on are
 * 0. */
#define FULL (128 / MR_LANE_BITS)
INLINE void
turn_in_quarters(__m512 *y, const lane *from, int64_t lane_stride,
                 int64_t lanes, const int n, int64_t depths)
{
#pragma GCC unroll 8
    for (int g = 0; g < n / FULL; g++) {
        __m512 x[FULL];

#pragma GCC unroll 4
        for (int l = 0; l < FULL; l++)
            x[l] = FULL * g + l < lanes
                       ? load_first(from + (FULL * g + l) * lane_stride, depths)
                       : (__m512){0};
#if MR_LANE_BITS == 32
        __m512d low[2], high[2];

#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            low[h] = (__m512d)_mm512_unpacklo_ps(x[2 * h], x[2 * h + 1]);
            high[h] = (__m512d)_mm512_unpackhi_ps(x[2 * h], x[2 * h + 1]);
        }
        y[g] = (__m512)_mm512_unpacklo_pd(low[0], low[1]);
        y[n / FULL + g] = (__m512)_mm512_unpackhi_pd(low[0], low[1]);
        y[n / FULL * 2 + g] = (__m512)_mm512_unpacklo_pd(high[0], high[1]);
        y[n / FULL * 3 + g] = (__m512)_mm512_unpackhi_pd(high[0], high[1]);
#else
        y[g] = (__m512)_mm512_unpacklo_pd((__m512d)x[0], (__m512d)x[1]);
        y[n / FULL + g] =
            (__m512)_mm512_unpackhi_pd((__m512d)x[0], (__m512d)x[1]);
#endif
    }
}

/* A panel of a: its depths, ROWS lanes each, lie one after the other, so the
 * quarters of all of them fill whole registers. */
INLINE void
turn_rows(lane *to, const lane *from, int64_t lane_stride, int64_t lanes)
{
    __m512 y[ROWS], out[4];

    turn_in_quarters(y, from, lane_stride, lanes, ROWS, N_LANES);
#pragma GCC unroll 3
    for (int w = 0; w < ROWS / 4; w++) {
        turn_quarters(out, y + 4 * w);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            v_store(to + (ROWS / 4 * i + w) * N_LANES, (R)out[i]);
    }
}

#if MR_LANE_BITS == 32
/* Sixteen lanes by n <= 16 depths. */
INLINE void
turn_sixteen(float *to, const float *from, int64_t lane_stride, int64_t width,
             int64_t n)
{
    __mmask16 there = (__mmask16)((1U << n) - 1);
    __m512 x[16];

    for (int l = 0; l < 16; l++)
        x[l] = _mm512_maskz_loadu_ps(there, from + l * lane_stride);
    turn_registers(x);
#pragma GCC unroll 16
    for (int p = 0; p < 16; p++)
        if (p < n)
            _mm512_storeu_ps(to + p * width, x[p]);
}
#else
/* Eight lanes of a wider panel by eight depths. */
INLINE void
turn_eight(double *to, const double *from, int64_t lane_stride, int64_t width)
{
    __m512 y[N_LANES], out[4];

    turn_in_quarters(y, from, lane_stride, N_LANES, N_LANES, N_LANES);
#pragma GCC unroll 2
    for (int q = 0; q < FULL; q++) {
        turn_quarters(out, y + 4 * q);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            v_store(to + (FULL * i + q) * width, (R)out[i]);
    }
}
#endif
#endif

/* Through a piece of each lane at a time, so that writes are in a row and
 * reads stay in the first-level cache. */
static void
turn(lane *to, const lane *from, int64_t lane_stride, int64_t lanes,
     int64_t width, int64_t depth)
{
    int64_t p = 0;

#if MR_TIER_ID == MR_TIER_AVX512
    if (width == ROWS && lanes == ROWS)
        for (; p + N_LANES <= depth; p += N_LANES)
            turn_rows(to + p * width, from + p, lane_stride, ROWS);
    else if (width == ROWS)
        for (; p + N_LANES <= depth; p += N_LANES)
            turn_rows(to + p * width, from + p, lane_stride, lanes);
#endif
    for (; p < depth; p += 16) {
        int64_t n = depth - p < 16 ? depth - p : 16, l = 0;

#if MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 32
        for (; l + 16 <= lanes && n == 16; l += 16)
            turn_sixteen(to + p * width + l, from + l * lane_stride + p,
                         lane_stride, width, 16);
        for (; l + 16 <= lanes && n > 4; l += 16)
            turn_sixteen(to + p * width + l, from + l * lane_stride + p,
                         lane_stride, width, n);
#elif MR_TIER_ID == MR_TIER_AVX512
        for (; l + 8 <= lanes && n == 16; l += 8)
            for (int64_t i = 0; i < n; i += 8)
                turn_eight(to + (p + i) * width + l,
                           from + l * lane_stride + p + i, lane_stride, width);
#endif
        for (; l + 4 <= lanes && n % 4 == 0; l += 4)
            for (int64_t i = 0; i < n; i += 4)
                turn_four(to + (p + i) * width + l,
                          from + l * lane_stride + p + i, lane_stride, width);
        for (; l < width; l++) {
            const lane *x = from + l * lane_stride + p;
            lane *o = to + p * width + l;

            for (int64_t i = 0; i < n; i++)
                o[i * width] = l < lanes ? x[i] : 0;
        }
    }
}

#endif
