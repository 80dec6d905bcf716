/* SPDX-License-Identifier: Apache-2.0
 *
 * depth64.c -- sums over taps in float64, once per instruction set.
 */
#include "kernels/depth.h"

#define MR_LANE_BITS  64
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/depth.h"

#define LOAD_X(x, i, left) load((const double *)(x) + (i), left)

void
MR_TIER_SYM(mr__depth_wide)(void *to, const void *const *x, const void *weights,
                            int64_t w_row, int64_t n_taps, int64_t n, bool add)
{
    TAPS_BODY;
}
