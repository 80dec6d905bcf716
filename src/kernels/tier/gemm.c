/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c -- matrix products in float32, once per instruction set: the register
 * tiles of packed ones (tile.h), rows with matrices, small ones.
 */
#include "kernels/gemm.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/half.h"
#include "kernels/tier/part.h"

#include "kernels/tier/tile.h"

_Static_assert(COLS <= MR_GEMM_MAX_COLS, "tile too wide");

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
    static void wide_##suffix(                                                 \
        float *y, int64_t y_row, const float *x, int64_t x_row, int m,         \
        const void *b, int64_t b_row, int64_t depth, int64_t n, bool far)      \
    {                                                                          \
        wide(y, y_row, x, x_row, m, b, b_row, depth, n, far, kind);            \
    }                                                                          \
    static void dot_##suffix(float *lanes, const float *x, const void *b,      \
                             int64_t n)                                        \
    {                                                                          \
        dot(lanes, x, b, n, kind);                                             \
    }
ROW_KERNELS(f32, MR_GEMM_FLOAT32)
ROW_KERNELS(f16, MR_GEMM_FLOAT16)
ROW_KERNELS(bf16, MR_GEMM_BFLOAT16)

/* Panels of b whose columns are adjacent.  Long pieces of each row come from
 * memory well; of a short one some rows ahead are asked for, since no
 * prefetcher follows such a walk. */
#define RUNS_AHEAD 8

static void
runs(float *restrict to, const float *restrict from, int64_t row, int64_t depth,
     int64_t n, int64_t apart)
{
    for (int64_t p = 0; p < depth; p++, from += row, to += COLS) {
        if (n == 1)
            for (int l = 0; l < COLS; l += 16)
                __builtin_prefetch(from + RUNS_AHEAD * row + l);
        for (int64_t k = 0; k < n; k++) {
            R x = v_load(from + k * COLS),
              y = v_load(from + k * COLS + N_LANES);

            v_store(to + k * apart, x);
            v_store(to + k * apart + N_LANES, y);
        }
    }
}

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
    .tile = {TILES(far), TILES(near)},
    .turn = turn,
    .runs = runs,
    .wide = {wide_f32, wide_f16, wide_bf16},
    .dot = {dot_f32, dot_f16, dot_bf16},
    .small = small_f32,
    .f64 = &MR_TIER_SYM(mr__gemv_tier),
};
