/* SPDX-License-Identifier: Apache-2.0
 *
 * f16.c -- the kernels of float16, once per instruction set.
 */
#define MR_DTYPE      MR_FLOAT16
#define MR_ACC_DTYPE  MR_FLOAT32
#define MR_TABLE      mr__tier_f16
#define MR_KIND       2
#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#define MR_HALF       1
#define HALF_INFINITY 0x7C00
#define half_widen    f16_widen
#define half_round    f16_round
#ifndef MR_JIT
#include "kernels/tier/past.h"
#endif

#include "kernels/tier/ops.h"
