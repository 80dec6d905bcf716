/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.c -- which tier's running sums and products run.
 *
 * Called by: cpu/scan.c.  Calls: dispatch.c.
 */
#include "kernels/scan.h"

#include <stddef.h>

#include "kernels/tier/tier.h"

#define MR_X(id, name) [id] = &mr__scan_tier_##name,
static const mr_scan_tier *const tiers[MR_N_TIERS] = {MR_TIERS(MR_X)};
#undef MR_X

const mr_scan_tier *
mr__scan_of_tier(int id)
{
    return mr__tier_by_id(id) ? tiers[id] : NULL;
}

const mr_scan_tier *
mr__scan_of(void)
{
    return tiers[mr__tier()->id];
}
