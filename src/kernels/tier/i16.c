/* SPDX-License-Identifier: Apache-2.0
 *
 * i16.c -- the kernels of int16, once per instruction set.
 */
#define MR_DTYPE       MR_INT16
#define MR_ACC_DTYPE   MR_INT16
#define MR_TABLE       mr__tier_i16
#define MR_KIND        1
#define MR_LANE_BITS   16
#define MR_LANE_SIGNED 1
#include "kernels/tier/ops.h"
