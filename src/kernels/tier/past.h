/* SPDX-License-Identifier: Apache-2.0
 *
 * past.h -- float32 to halves, with stores past the caches.
 *
 * Included by f16.c and bf16.c, for their table (tier.h, `stream`).
 */
#ifndef MR_KERNELS_TIER_PAST_H
#define MR_KERNELS_TIER_PAST_H

#include "kernels/tier/lanes.h"

#include "kernels/tier/half.h"

/* p is aligned to the vector. */
INLINE void
half_stream(uint16_t *p, HALF h)
{
#if MR_TIER_ID == MR_TIER_AVX512
    _mm256_stream_si256((__m256i *)(void *)p, (__m256i)h);
#elif MR_TIER_ID == MR_TIER_AVX2
    _mm_stream_si128((__m128i *)(void *)p, (__m128i)h);
#elif defined(__x86_64__)
    _mm_stream_si64((long long *)(void *)p, (long long)h);
#else
    memcpy(p, &h, sizeof h);
#endif
}

INLINE void
half_line(uint16_t *o, const float *a, int64_t n)
{
    HALF h = half_round(v_load_n(a, n));

    memcpy(o, &h, (size_t)n * sizeof *o);
}

/* arg[0] is a vector, or with step 0 one that stands for all. */
static void
stream_cast(void *out, const void *const *arg, const int64_t *step, int64_t n)
{
    uint16_t *o = out;
    const float *a = arg[0];
    int64_t head = (int64_t)((-(uintptr_t)out % sizeof(HALF)) / sizeof *o);

    head = head < n ? head : n;
    if (head > 0)
        half_line(o, a, head);
    o += head;
    a += step[0] * head;
    n -= head;
    for (; n >= N_LANES; n -= N_LANES, o += N_LANES, a += step[0] * N_LANES)
        half_stream(o, half_round(v_load(a)));
    if (n > 0)
        half_line(o, a, n);
}

#define MR_STREAM_CAST stream_cast

#endif
