/* SPDX-License-Identifier: Apache-2.0
 *
 * gemv_load.h -- what products with few rows share with the tiles: a
 * multiply-add, and vectors of which some lanes are left out.
 */
#ifndef MR_KERNELS_TIER_GEMV_LOAD_H
#define MR_KERNELS_TIER_GEMV_LOAD_H

/* Without the instruction a fused multiply-add would be a function call. */
INLINE R
multiply_add(R a, R b, R c)
{
#if MR_TIER_ID == MR_TIER_BASELINE
    return a * b + c;
#else
    return v_fma(a, b, c);
#endif
}

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
