/* SPDX-License-Identifier: Apache-2.0
 *
 * attend.c -- which tier's steps of attention run.
 *
 * Called by: cpu/attention.c.  Calls: dispatch.c.
 */
#include "kernels/attend.h"

#include "kernels/tier/tier.h"

#define MR_X(id, name) [id] = &mr__attend_tier_##name,
static const mr_attend_tier *const tiers[MR_N_TIERS] = {MR_TIERS(MR_X)};
#undef MR_X

const mr_attend_tier *
mr__attend_of_tier(int id)
{
    return mr__tier_by_id(id) ? tiers[id] : NULL;
}

/* Of the tier in use. */
const mr_attend_tier *
mr__attend(void)
{
    return tiers[mr__tier()->id];
}
