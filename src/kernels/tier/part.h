/* SPDX-License-Identifier: Apache-2.0
 *
 * part.h -- vectors of which some lanes are left out.  The including file has
 * included lanes.h.
 */
#ifndef MR_KERNELS_TIER_PART_H
#define MR_KERNELS_TIER_PART_H

/* `left` >= N_LANES means a whole vector: a constant where it is inlined. */
INLINE R
load(const lane *p, int64_t left)
{
    return left >= N_LANES ? v_load(p) : v_load_n(p, left);
}

INLINE void
store(lane *p, R x, int64_t left)
{
    if (left >= N_LANES)
        v_store(p, x);
    else
        v_store_n(p, x, left);
}

#endif
