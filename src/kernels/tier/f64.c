/* SPDX-License-Identifier: Apache-2.0
 *
 * f64.c -- the kernels of float64, once per instruction set.
 */
#define MR_DTYPE      MR_FLOAT64
#define MR_ACC_DTYPE  MR_FLOAT64
#define MR_TABLE      mr__tier_f64
#define MR_KIND       2
#define MR_LANE_BITS  64
#define MR_LANE_FLOAT 1
#include "kernels/tier/ops.h"
