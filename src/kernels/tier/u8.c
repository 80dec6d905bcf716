/* SPDX-License-Identifier: Apache-2.0
 *
 * u8.c -- the kernels of uint8, once per instruction set.
 */
#define MR_DTYPE         MR_UINT8
#define MR_ACC_DTYPE     MR_UINT8
#define MR_TABLE         mr__tier_u8
#define MR_KIND          1
#define MR_LANE_BITS     8
#define MR_LANE_UNSIGNED 1
#include "kernels/tier/ops.h"
