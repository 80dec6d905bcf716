/* SPDX-License-Identifier: Apache-2.0
 *
 * sort32.c -- sorting of words of 32 bits, and their keys, once per instruction
 * set.
 */
#include "kernels/sort.h"

#define MR_LANE_BITS   32
#define MR_LANE_SIGNED 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/sort.h"

static void
keys(void *to, const void *from, int64_t n, mr_key_form f, bool zeros_equal)
{
    if (f.bits == 8)
        KEYS_OF(int8_t, 8);
    else if (f.bits == 16)
        KEYS_OF(int16_t, 16);
    else
        KEYS_OF(int32_t, 32);
}

static void
values(void *to, const void *from, int64_t n, mr_key_form f)
{
    if (f.bits == 8)
        VALUES_OF(int8_t, 8);
    else if (f.bits == 16)
        VALUES_OF(int16_t, 16);
    else
        VALUES_OF(int32_t, 32);
}

const mr_sort_tier MR_TIER_SYM(mr__sort32_tier) = SORT_TIER;
