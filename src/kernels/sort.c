/* SPDX-License-Identifier: Apache-2.0
 *
 * sort.c -- the keys of each dtype.
 *
 * Called by: cpu/sort.c, cpu/radix.c, cpu/partition.c.  Calls: dispatch.c.
 */
#include "kernels/sort.h"

#include <stddef.h>

#include "kernels/tier/tier.h"

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
