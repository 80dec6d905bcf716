/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c -- the register tiles of the packed matrix product, once per
 * instruction set.
 *
 * A tile keeps all its sums in registers: 12 x 32 with 32 registers of 16
 * lanes, 12 x 8 with 32 of 4, 6 x 16 with 16 of 8, 3 x 8 with 16 of 4 (each
 * leaves two or more for the columns of b and one to spread an element of a).
 * Smaller tiles of a third or two thirds of the rows and half of the columns
 * serve the edges.
 */
#include "kernels/gemm.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/part.h"
#include "kernels/tier/half.h"

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
_Static_assert(COLS <= MR_GEMM_MAX_COLS, "tile too wide");

INLINE void
tile(int64_t depth, const float *restrict a, const float *restrict b,
     float *restrict c, int64_t c_row, bool add, const int n_rows,
     const int n_vectors)
{
    R sum[ROWS][2];

#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++) {
        sum[i][0] = (R){0};
        sum[i][1] = (R){0};
    }
    for (int64_t p = 0; p < depth; p++, a += ROWS, b += COLS) {
        R b0 = v_load(b), b1 = n_vectors > 1 ? v_load(b + N_LANES) : b0;

#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++) {
            R x = v_set(a[i]);

            sum[i][0] = multiply_add(x, b0, sum[i][0]);
            if (n_vectors > 1)
                sum[i][1] = multiply_add(x, b1, sum[i][1]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++, c += c_row) {
        v_store(c, add ? v_load(c) + sum[i][0] : sum[i][0]);
        if (n_vectors > 1)
            v_store(c + N_LANES,
                    add ? v_load(c + N_LANES) + sum[i][1] : sum[i][1]);
    }
}

#define TILE(name, n_rows, n_vectors)                                          \
    static void name(int64_t depth, const float *a, const float *b, float *c,  \
                     int64_t c_row, bool add)                                  \
    {                                                                          \
        tile(depth, a, b, c, c_row, add, n_rows, n_vectors);                   \
    }
TILE(tile_third_half, THIRD, 1)
TILE(tile_third, THIRD, 2)
TILE(tile_two_thirds_half, 2 * THIRD, 1)
TILE(tile_two_thirds, 2 * THIRD, 2)
TILE(tile_half, 3 * THIRD, 1)
TILE(tile_whole, 3 * THIRD, 2)

/* Four lanes by four depths. */
typedef float FOUR __attribute__((vector_size(16)));

INLINE void
turn_four(float *to, const float *from, int64_t lane_stride, int64_t width)
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

/* Through a piece of each lane at a time, so that writes are in a row and
 * reads stay in the first-level cache. */
static void
turn(float *to, const float *from, int64_t lane_stride, int64_t lanes,
     int64_t width, int64_t depth)
{
    for (int64_t p = 0; p < depth; p += 16) {
        int64_t n = depth - p < 16 ? depth - p : 16, l = 0;

        for (; l + 4 <= lanes && n == 16; l += 4)
            for (int64_t i = 0; i < 16; i += 4)
                turn_four(to + (p + i) * width + l,
                          from + l * lane_stride + p + i, lane_stride, width);
        for (; l < width; l++) {
            const float *x = from + l * lane_stride + p;
            float *o = to + p * width + l;

            for (int64_t i = 0; i < n; i++)
                o[i * width] = l < lanes ? x[i] : 0.0F;
        }
    }
}

/* Elements i ... of b, halves widened. */
INLINE R
load_kind(const void *b, int64_t i, int64_t left, const mr_gemm_kind kind)
{
    const uint16_t *halves = (const uint16_t *)b + i;
    HALF h = {0};

    if (kind == MR_GEMM_FLOAT32)
        return load((const float *)b + i, left);
    if (left >= N_LANES)
        memcpy(&h, halves, sizeof h);
    else if (left > 0)
        memcpy(&h, halves, (size_t)left * 2);
    return kind == MR_GEMM_FLOAT16 ? f16_widen(h) : bf16_widen(h);
}

#include "kernels/tier/gemv.h"
#include "kernels/tier/small.h"

#define ROW_KERNELS(suffix, kind)                                              \
    static void wide_##suffix(float *y, int64_t y_row, const float *x,         \
                              int64_t x_row, int m, const void *b,             \
                              int64_t b_row, int64_t depth, int64_t n)         \
    {                                                                          \
        wide(y, y_row, x, x_row, m, b, b_row, depth, n, kind);                 \
    }                                                                          \
    static void dot_##suffix(float *lanes, const float *x, const void *b,      \
                             int64_t n)                                        \
    {                                                                          \
        dot(lanes, x, b, n, kind);                                             \
    }
ROW_KERNELS(f32, MR_GEMM_FLOAT32)
ROW_KERNELS(f16, MR_GEMM_FLOAT16)
ROW_KERNELS(bf16, MR_GEMM_BFLOAT16)

static void
small_f32(const float *a, int64_t a_row, int64_t a_depth, const float *b,
          int64_t b_row, float *c, int64_t c_row, int64_t m, int64_t depth,
          int64_t n)
{
    small(a, a_row, a_depth, b, b_row, c, c_row, m, depth, n);
}

const mr_gemm_tier MR_TIER_SYM(mr__gemm_tier) = {
    .rows = ROWS,
    .cols = COLS,
    .fast = MR_TIER_ID != MR_TIER_BASELINE,
    .tile = {{tile_third_half, tile_third},
             {tile_two_thirds_half, tile_two_thirds},
             {tile_half, tile_whole}},
    .turn = turn,
    .wide = {wide_f32, wide_f16, wide_bf16},
    .dot = {dot_f32, dot_f16, dot_bf16},
    .small = small_f32,
    .f64 = &MR_TIER_SYM(mr__gemv_tier),
};
