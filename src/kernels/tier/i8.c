/* SPDX-License-Identifier: Apache-2.0
 *
 * i8.c -- the kernels of int8, once per instruction set.
 */
#define MR_DTYPE       MR_INT8
#define MR_ACC_DTYPE   MR_INT8
#define MR_TABLE       mr__tier_i8
#define MR_KIND        1
#define MR_LANE_BITS   8
#define MR_LANE_SIGNED 1
#include "kernels/tier/ops.h"
