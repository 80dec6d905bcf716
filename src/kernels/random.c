/* SPDX-License-Identifier: Apache-2.0
 *
 * random.c -- which tier makes both halves of a stream.
 *
 * Called by: cpu/create.c.  Calls: dispatch.c.
 */
#include "kernels/random.h"

#include <stddef.h>

#include "kernels/tier/tier.h"

mr_random_pairs_fn *
mr__random_pairs(void)
{
    static mr_random_pairs_fn *const tiers[MR_N_TIERS] = {
        [MR_TIER_BASELINE] = mr__random_pairs_baseline,
#if defined(__x86_64__)
        [MR_TIER_AVX2] = mr__random_pairs_avx2,
        [MR_TIER_AVX512] = mr__random_pairs_avx512,
#endif
    };
    mr_random_pairs_fn *found = NULL;

    for (int i = 0; !found; i++)
        if (mr__tier_by_id(i) == mr__tier())
            found = tiers[i];
    return found;
}
