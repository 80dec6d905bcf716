/* SPDX-License-Identifier: Apache-2.0
 *
 * i64.c -- the kernels of int64, once per instruction set.
 */
#define MR_DTYPE       MR_INT64
#define MR_ACC_DTYPE   MR_INT64
#define MR_TABLE       mr__tier_i64
#define MR_KIND        1
#define MR_LANE_BITS   64
#define MR_LANE_SIGNED 1
#include "kernels/tier/ops.h"
