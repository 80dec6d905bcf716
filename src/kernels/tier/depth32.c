/* SPDX-License-Identifier: Apache-2.0
 *
 * depth32.c -- sums over taps in float32, halves widened, once per instruction
 * set.
 */
#include "kernels/depth.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/half.h"
#include "kernels/tier/part.h"

INLINE R
load_x(const int kind, const void *x, int64_t i, int64_t left)
{
    const uint16_t *half = (const uint16_t *)x + i;
    HALF h = {0};

    if (kind == MR_GEMM_FLOAT32)
        return load((const lane *)x + i, left);
    if (left >= N_LANES)
        memcpy(&h, half, sizeof h);
    else
        memcpy(&h, half, (size_t)left * 2);
    return kind == MR_GEMM_FLOAT16 ? f16_widen(h) : bf16_widen(h);
}

INLINE int64_t
item_of(const int kind)
{
    return kind == MR_GEMM_FLOAT32 ? 4 : 2;
}

#include "kernels/tier/depth.h"

#define KIND(taps, row, kind)                                                  \
    static void taps(void *to, const void *const *x, const void *w,            \
                     int64_t w_row, int64_t n_taps, int64_t n, bool add)       \
    {                                                                          \
        taps_of(kind, to, x, w, w_row, n_taps, n, add);                        \
    }                                                                          \
                                                                               \
    static void row(void *to, const mr_depth_row *r)                           \
    {                                                                          \
        row_choose(kind, to, r);                                               \
    }

KIND(taps_f32, row_f32, MR_GEMM_FLOAT32)
KIND(taps_f16, row_f16, MR_GEMM_FLOAT16)
KIND(taps_bf16, row_bf16, MR_GEMM_BFLOAT16)

const mr_depth_tier MR_TIER_SYM(mr__depth_tier) = {
    .narrow = {[MR_GEMM_FLOAT32] = taps_f32,
               [MR_GEMM_FLOAT16] = taps_f16,
               [MR_GEMM_BFLOAT16] = taps_bf16},
    .wide = MR_TIER_SYM(mr__depth_wide),
    .narrow_row = {[MR_GEMM_FLOAT32] = row_f32,
                   [MR_GEMM_FLOAT16] = row_f16,
                   [MR_GEMM_BFLOAT16] = row_bf16},
    .wide_row = MR_TIER_SYM(mr__depth_wide_row),
};
