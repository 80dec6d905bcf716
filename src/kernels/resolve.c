/* SPDX-License-Identifier: Apache-2.0
 *
 * resolve.c -- which tier resolves indices.
 *
 * Called by: cpu/index.c.  Calls: dispatch.c.
 */
#include "kernels/resolve.h"

#include <stddef.h>

#include "kernels/tier/tier.h"

#define MR_X(id, name) [id] = &mr__resolve_tier_##name,
static const mr_resolve_tier *const tiers[MR_N_TIERS] = {MR_TIERS(MR_X)};
#undef MR_X

const mr_resolve_tier *
mr__resolve_of_tier(int id)
{
    return mr__tier_by_id(id) ? tiers[id] : NULL;
}

const mr_resolve_tier *
mr__resolve_of(void)
{
    return tiers[mr__tier()->id];
}
