/* SPDX-License-Identifier: Apache-2.0
 *
 * resolve.h -- entries of index arrays as places: those below 0 count from the
 * end.
 */
#ifndef MR_KERNELS_RESOLVE_H
#define MR_KERNELS_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tier/tier.h"

/* at[i] is index i, or size more where that is below 0, for n adjacent ones.
 * The result is below 0 when one of the places is below 0 or beyond the last.
 */
typedef struct mr_resolve_tier {
    int64_t (*i32)(int64_t *at, const int32_t *index, int64_t n, int64_t size,
                   int64_t last);
    int64_t (*u32)(int64_t *at, const uint32_t *index, int64_t n, int64_t size,
                   int64_t last);
    int64_t (*i64)(int64_t *at, const int64_t *index, int64_t n, int64_t size,
                   int64_t last);
    /* Elements of 4 and 8 bytes straight from indices of which none counts
     * from the end, nor is 2^31 or more.  false: one is beyond the last, and
     * nothing is read. */
    bool (*pick4)(void *to, const void *from, const uint32_t *index, int64_t n,
                  uint32_t last);
    bool (*pick8)(void *to, const void *from, const uint32_t *index, int64_t n,
                  uint32_t last);
} mr_resolve_tier;

#define MR_X(id, name) extern const mr_resolve_tier mr__resolve_tier_##name;
MR_TIERS(MR_X)
#undef MR_X

/* Of one tier, NULL where this machine cannot run it. */
const mr_resolve_tier *mr__resolve_of_tier(int id);

/* Of the tier in use. */
const mr_resolve_tier *mr__resolve_of(void);

#endif
