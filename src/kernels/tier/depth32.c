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

#include "kernels/tier/depth.h"

INLINE HALF
load_half(const void *x, int64_t i, int64_t left)
{
    HALF h = {0};

    if (left >= N_LANES)
        memcpy(&h, (const uint16_t *)x + i, sizeof h);
    else
        memcpy(&h, (const uint16_t *)x + i, (size_t)left * 2);
    return h;
}

#define TAPS(name)                                                             \
    static void name(void *to, const void *const *x, const void *weights,      \
                     int64_t w_row, int64_t n_taps, int64_t n, bool add)       \
    {                                                                          \
        TAPS_BODY;                                                             \
    }

#define LOAD_X(x, i, left) load((const float *)(x) + (i), left)
TAPS(taps_f32)
#undef LOAD_X
#define LOAD_X(x, i, left) f16_widen(load_half(x, i, left))
TAPS(taps_f16)
#undef LOAD_X
#define LOAD_X(x, i, left) bf16_widen(load_half(x, i, left))
TAPS(taps_bf16)

const mr_depth_tier MR_TIER_SYM(mr__depth_tier) = {
    .narrow = {taps_f32, taps_f16, taps_bf16},
    .wide = MR_TIER_SYM(mr__depth_wide),
};
