/* SPDX-License-Identifier: Apache-2.0
 *
 * random.c -- which tier makes both halves of a stream.
 *
 * Called by: cpu/create.c.  Calls: dispatch.c.
 */
#include "kernels/random.h"

#include "kernels/tier/tier.h"

mr_random_pairs_fn *
mr__random_pairs(void)
{
#define MR_X(id, name) [id] = mr__random_pairs_##name,
    static mr_random_pairs_fn *const tiers[MR_N_TIERS] = {MR_TIERS(MR_X)};
#undef MR_X

    return tiers[mr__tier()->id];
}
