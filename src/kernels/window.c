/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c -- which tier's tiles of convolutions run.
 *
 * Called by: cpu/window.c, cpu/window_back.c.  Calls: dispatch.c.
 */
#include "kernels/window.h"

#include <stddef.h>

#include "kernels/tier/tier.h"

const mr_window_tier *
mr__window(void)
{
    static const mr_window_tier *const tiers[MR_N_TIERS] = {
        [MR_TIER_BASELINE] = &mr__window_tier_baseline,
#if defined(__x86_64__)
        [MR_TIER_AVX2] = &mr__window_tier_avx2,
        [MR_TIER_AVX512] = &mr__window_tier_avx512,
#endif
    };
    const mr_window_tier *tier = NULL;

    for (int i = 0; !tier; i++)
        if (mr__tier_by_id(i) == mr__tier())
            tier = tiers[i];
    return tier;
}
