/* SPDX-License-Identifier: Apache-2.0
 *
 * f32.c -- the kernels of float32, once per instruction set.
 */
#define MR_DTYPE      MR_FLOAT32
#define MR_ACC_DTYPE  MR_FLOAT32
#define MR_TABLE      mr__tier_f32
#define MR_KIND       2
#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#define MR_CHAIN      1
#include "kernels/tier/ops.h"
