/* SPDX-License-Identifier: Apache-2.0
 *
 * depth.c -- which tier's sums over taps run.
 *
 * Called by: cpu/depthwise.c.  Calls: dispatch.c.
 */
#include "kernels/depth.h"

#include <stddef.h>

#include "kernels/tier/tier.h"

static int
kind_of(mr_dtype t)
{
    return t == MR_FLOAT32   ? MR_GEMM_FLOAT32
           : t == MR_FLOAT16 ? MR_GEMM_FLOAT16
                             : MR_GEMM_BFLOAT16;
}

mr_depth_fn *
mr__depth_of(mr_dtype t)
{
    const mr_depth_tier *tier = mr__tier()->depth;

    return t == MR_FLOAT64 ? tier->wide : tier->narrow[kind_of(t)];
}

mr_depth_row_fn *
mr__depth_row_of(mr_dtype t)
{
    const mr_depth_tier *tier = mr__tier()->depth;

    return t == MR_FLOAT64 ? tier->wide_row : tier->narrow_row[kind_of(t)];
}
