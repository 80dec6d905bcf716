/* SPDX-License-Identifier: Apache-2.0
 *
 * c128.c -- the kernels of complex128, once per instruction set.
 */
#define MR_DTYPE      MR_COMPLEX128
#define MR_ACC_DTYPE  MR_COMPLEX128
#define MR_TABLE      mr__tier_c128
#define MR_KIND       3
#define MR_LANE_BITS  64
#define MR_LANE_FLOAT 1
#include "kernels/tier/ops.h"
