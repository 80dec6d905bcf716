/* SPDX-License-Identifier: Apache-2.0
 *
 * fft.c -- which tier's transforms are in use.
 *
 * Called by: cpu/fft.c.
 */
#include "kernels/fft.h"

#include <stdatomic.h>

#include "kernels/tier/tier.h"

const mr_fft_tier *
mr__fft_tier(bool is_double)
{
    static const mr_fft_tier *const tiers[MR_N_TIERS][2] = {
        [MR_TIER_BASELINE] = {&mr__fft_f32_baseline, &mr__fft_f64_baseline},
#if defined(__x86_64__)
        [MR_TIER_AVX2] = {&mr__fft_f32_avx2, &mr__fft_f64_avx2},
        [MR_TIER_AVX512] = {&mr__fft_f32_avx512, &mr__fft_f64_avx512},
#endif
    };
    static atomic_int known = -1;
    /* relaxed: every thread finds the same */
    int id = atomic_load_explicit(&known, memory_order_relaxed);

    for (int i = 0; id < 0; i++)
        if (mr__tier_by_id(i) == mr__tier()) {
            id = i;
            atomic_store_explicit(&known, id, memory_order_relaxed);
        }
    return tiers[id][is_double];
}
