/* SPDX-License-Identifier: Apache-2.0
 *
 * bf16.c -- the kernels of bfloat16, once per instruction set.
 */
#define MR_DTYPE        MR_BFLOAT16
#define MR_ACC_DTYPE    MR_FLOAT32
#define MR_TABLE        mr__tier_bf16
#define MR_KIND         2
#define MR_LANE_BITS    32
#define MR_LANE_FLOAT   1
#define MR_HALF         1
#define MR_JIT_BF16     1
#define MR_HALF_PAIRS   1
#define HALF_INFINITY   0x7F80
#define half_widen      bf16_widen
#define half_widen_pair bf16_widen_pair
#define half_round      bf16_round
#define half_round_pair bf16_round_pair
#ifndef MR_JIT
#include "kernels/tier/past.h"
#endif

#include "kernels/tier/ops.h"
