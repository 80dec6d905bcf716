/* SPDX-License-Identifier: Apache-2.0
 *
 * sort.c -- which tier's sort runs; the keys of each dtype.
 *
 * Called by: cpu/sort.c, cpu/radix.c, cpu/partition.c.  Calls: dispatch.c.
 */
#include "kernels/sort.h"

#include <stddef.h>

#include "kernels/tier/tier.h"

#define MR_X(id, name)                                                         \
    [id] = {&mr__sort32_tier_##name, &mr__sort64_tier_##name},
static const mr_sort_tier *const tiers[MR_N_TIERS][2] = {MR_TIERS(MR_X)};
#undef MR_X

const mr_sort_tier *
mr__sort_of_tier(int id, int bytes)
{
    return mr__tier_by_id(id) ? tiers[id][bytes == 8] : NULL;
}

const mr_sort_tier *
mr__sort_of(int bytes)
{
    return tiers[mr__tier()->id][bytes == 8];
}

mr_key_form
mr__key_form(mr_dtype t)
{
    static const mr_key_form forms[MR_N_DTYPES] = {
        [MR_BOOL] = {MR_KEY_UNSIGNED, 8, 0},
        [MR_UINT8] = {MR_KEY_UNSIGNED, 8, 0},
        [MR_UINT16] = {MR_KEY_UNSIGNED, 16, 0},
        [MR_UINT32] = {MR_KEY_UNSIGNED, 32, 0},
        [MR_UINT64] = {MR_KEY_UNSIGNED, 64, 0},
        [MR_INT8] = {MR_KEY_SIGNED, 8, 0},
        [MR_INT16] = {MR_KEY_SIGNED, 16, 0},
        [MR_INT32] = {MR_KEY_SIGNED, 32, 0},
        [MR_INT64] = {MR_KEY_SIGNED, 64, 0},
        [MR_FLOAT16] = {MR_KEY_FLOAT, 16, 0x7C00},
        [MR_BFLOAT16] = {MR_KEY_FLOAT, 16, 0x7F80},
        [MR_FLOAT32] = {MR_KEY_FLOAT, 32, 0x7F800000},
        [MR_FLOAT64] = {MR_KEY_FLOAT, 64, 0x7FF0000000000000},
    };

    return forms[t];
}
