/* SPDX-License-Identifier: Apache-2.0
 *
 * i32.c -- the kernels of int32, once per instruction set.
 */
#define MR_DTYPE       MR_INT32
#define MR_ACC_DTYPE   MR_INT32
#define MR_TABLE       mr__tier_i32
#define MR_KIND        1
#define MR_LANE_BITS   32
#define MR_LANE_SIGNED 1
#include "kernels/tier/ops.h"
