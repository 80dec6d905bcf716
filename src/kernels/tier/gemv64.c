/* SPDX-License-Identifier: Apache-2.0
 *
 * gemv64.c -- matrix products in float64: the register tiles of packed ones
 * (tile.h), rows with matrices, small ones.
 */
#include "kernels/gemm.h"

#define MR_LANE_BITS  64
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/part.h"
#include "kernels/tier/tile.h"

/* There is one kind of element. */
INLINE R
load_kind(const void *b, int64_t i, int64_t left, const mr_gemm_kind kind)
{
    (void)kind;
    return load((const double *)b + i, left);
}

#include "kernels/tier/gemv.h"
#include "kernels/tier/small.h"

static void
wide_f64(double *y, int64_t y_row, const double *x, int64_t x_row, int m,
         const void *b, int64_t b_row, int64_t depth, int64_t n, bool far)
{
    wide(y, y_row, x, x_row, m, b, b_row, depth, n, far, MR_N_GEMM_KINDS);
}

static void
dot_f64(double *lanes, const double *x, const void *b, int64_t n)
{
    dot(lanes, x, b, n, MR_N_GEMM_KINDS);
}

static void
small_f64(const double *a, int64_t a_row, int64_t a_depth, const double *b,
          int64_t b_row, double *c, int64_t c_row, int64_t m, int64_t depth,
          int64_t n)
{
    small(a, a_row, a_depth, b, b_row, c, c_row, m, depth, n);
}

const mr_gemv_tier MR_TIER_SYM(mr__gemv_tier) = {
    .tile = {TILES(far), TILES(near)},
    .turn = turn,
    .wide = wide_f64,
    .dot = dot_f64,
    .small = small_f64,
};
