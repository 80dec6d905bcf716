/* SPDX-License-Identifier: Apache-2.0
 *
 * fft.c -- which tier's transforms are in use.
 *
 * Called by: cpu/fft.c.
 */
#include "kernels/fft.h"

#include "kernels/tier/tier.h"

#define MR_X(id, name) [id] = {&mr__fft_f32_##name, &mr__fft_f64_##name},
static const mr_fft_tier *const tiers[MR_N_TIERS][2] = {MR_TIERS(MR_X)};
#undef MR_X

const mr_fft_tier *
mr__fft_of_tier(int id, bool is_double)
{
    return mr__tier_by_id(id) ? tiers[id][is_double] : NULL;
}

const mr_fft_tier *
mr__fft_tier(bool is_double)
{
    return tiers[mr__tier()->id][is_double];
}
