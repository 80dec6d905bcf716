/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c -- which tier's tiles of convolutions run.
 *
 * Called by: cpu/window.c, cpu/squares.c, cpu/window_back.c.  Calls:
 * dispatch.c.
 */
#include "kernels/window.h"

#include "kernels/tier/tier.h"

const mr_window_tier *
mr__window(void)
{
#define MR_X(id, name) [id] = &mr__window_tier_##name,
    static const mr_window_tier *const tiers[MR_N_TIERS] = {MR_TIERS(MR_X)};
#undef MR_X

    return tiers[mr__tier()->id];
}
