/* SPDX-License-Identifier: Apache-2.0
 *
 * u32.c -- the kernels of uint32, once per instruction set.
 */
#define MR_DTYPE         MR_UINT32
#define MR_ACC_DTYPE     MR_UINT32
#define MR_TABLE         mr__tier_u32
#define MR_KIND          1
#define MR_LANE_BITS     32
#define MR_LANE_UNSIGNED 1
#include "kernels/tier/ops.h"
