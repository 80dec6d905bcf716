/* SPDX-License-Identifier: Apache-2.0
 *
 * depth.c -- which tier's sums over taps run.
 *
 * Called by: cpu/depthwise.c.  Calls: dispatch.c.
 */
#include "kernels/depth.h"

#include <stddef.h>

#include "kernels/tier/tier.h"

mr_depth_fn *
mr__depth_of(mr_dtype t)
{
    static const mr_depth_tier *const tiers[MR_N_TIERS] = {
        [MR_TIER_BASELINE] = &mr__depth_tier_baseline,
#if defined(__x86_64__)
        [MR_TIER_AVX2] = &mr__depth_tier_avx2,
        [MR_TIER_AVX512] = &mr__depth_tier_avx512,
#endif
    };
    const mr_depth_tier *tier = NULL;

    for (int i = 0; !tier; i++)
        if (mr__tier_by_id(i) == mr__tier())
            tier = tiers[i];
    if (t == MR_FLOAT64)
        return tier->wide;
    return tier->narrow[t == MR_FLOAT32   ? MR_GEMM_FLOAT32
                        : t == MR_FLOAT16 ? MR_GEMM_FLOAT16
                                          : MR_GEMM_BFLOAT16];
}
