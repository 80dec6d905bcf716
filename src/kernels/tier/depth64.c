/* SPDX-License-Identifier: Apache-2.0
 *
 * depth64.c -- sums over taps in float64, once per instruction set.
 */
#include "kernels/depth.h"

#define MR_LANE_BITS  64
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/part.h"

INLINE R
load_x(const int kind, const void *x, int64_t i, int64_t left)
{
    (void)kind;
    return load((const lane *)x + i, left);
}

INLINE int64_t
item_of(const int kind)
{
    (void)kind;
    return 8;
}

#include "kernels/tier/depth.h"

void
MR_TIER_SYM(mr__depth_wide)(void *to, const void *const *x, const void *w,
                            int64_t w_row, int64_t n_taps, int64_t n, bool add)
{
    taps_of(0, to, x, w, w_row, n_taps, n, add);
}

void
MR_TIER_SYM(mr__depth_wide_row)(void *to, const mr_depth_row *r)
{
    row_choose(0, to, r);
}
