/* SPDX-License-Identifier: Apache-2.0
 *
 * bool8.c -- the kernels of bool, once per instruction set.
 */
#define MR_DTYPE         MR_BOOL
#define MR_ACC_DTYPE     MR_BOOL
#define MR_TABLE         mr__tier_bool8
#define MR_KIND          0
#define MR_LANE_BITS     8
#define MR_LANE_UNSIGNED 1
#define MR_STREAM_CAST   NULL
#include "kernels/tier/ops.h"
