/* SPDX-License-Identifier: Apache-2.0
 *
 * attend.c -- which tier's steps of attention run.
 *
 * Called by: cpu/attention.c.  Calls: dispatch.c.
 */
#include "kernels/attend.h"

#include <stdatomic.h>

#include "kernels/tier/tier.h"

const mr_attend_tier *
mr__attend(void)
{
    static const mr_attend_tier *const tiers[MR_N_TIERS] = {
        [MR_TIER_BASELINE] = &mr__attend_tier_baseline,
#if defined(__x86_64__)
        [MR_TIER_AVX2] = &mr__attend_tier_avx2,
        [MR_TIER_AVX512] = &mr__attend_tier_avx512,
#endif
    };
    /* relaxed: every thread finds the same */
    static const mr_attend_tier *_Atomic found;
    const mr_attend_tier *t =
        atomic_load_explicit(&found, memory_order_relaxed);

    for (int i = 0; !t; i++)
        if (mr__tier_by_id(i) == mr__tier()) {
            t = tiers[i];
            atomic_store_explicit(&found, t, memory_order_relaxed);
        }
    return t;
}
