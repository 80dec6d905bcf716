/* SPDX-License-Identifier: Apache-2.0
 *
 * u16.c -- the kernels of uint16, once per instruction set.
 */
#define MR_DTYPE         MR_UINT16
#define MR_ACC_DTYPE     MR_UINT16
#define MR_TABLE         mr__tier_u16
#define MR_KIND          1
#define MR_LANE_BITS     16
#define MR_LANE_UNSIGNED 1
#include "kernels/tier/ops.h"
