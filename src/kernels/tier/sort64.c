/* SPDX-License-Identifier: Apache-2.0
 *
 * sort64.c -- sorting of words of 64 bits, and their keys, once per instruction
 * set.
 */
#include "kernels/sort.h"

#define MR_LANE_BITS   64
#define MR_LANE_SIGNED 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/sort.h"

static void
keys(void *to, const void *from, int64_t n, mr_key_form f, bool zeros_equal)
{
    KEYS_OF(int64_t, 64);
}

static void
values(void *to, const void *from, int64_t n, mr_key_form f)
{
    VALUES_OF(int64_t, 64);
}

const mr_sort_tier MR_TIER_SYM(mr__sort64_tier) = SORT_TIER;
