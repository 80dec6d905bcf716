/* SPDX-License-Identifier: Apache-2.0
 *
 * resolve.h -- entries of index arrays as places, those below 0 counted from
 * the end; whose places are whose.
 */
#ifndef MR_KERNELS_RESOLVE_H
#define MR_KERNELS_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tier/tier.h"

/* Which owner a place has: blocks of places have one, so that no two owners
 * write to one line.  An owner has the hashes first + [0, most]. */
#define MR_OWNER_BLOCK_SHIFT 6

typedef struct mr_owner {
    uint32_t first, most;
} mr_owner;

static inline bool
mr__is_owned(mr_owner o, int64_t place)
{
    uint64_t block = (uint64_t)place >> MR_OWNER_BLOCK_SHIFT;
    uint32_t hash = (uint32_t)(block ^ block >> 32) * 0x9E3779B1U;

    return hash - o.first <= o.most;
}

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
    /* first + i for each i < n whose place the owner has: how many; mine has
     * room for n. */
    int64_t (*owned)(int64_t *mine, const int64_t *place, int64_t n,
                     int64_t first, mr_owner o);
} mr_resolve_tier;

#define MR_X(id, name) extern const mr_resolve_tier mr__resolve_tier_##name;
MR_TIERS(MR_X)
#undef MR_X

/* Of one tier, NULL where this machine cannot run it. */
static inline const mr_resolve_tier *
mr__resolve_of_tier(int id)
{
    return mr__tier_or_none(id)->resolve;
}

/* Of the tier in use. */
static inline const mr_resolve_tier *
mr__resolve_of(void)
{
    return mr__tier()->resolve;
}

#endif
