/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_walk.h -- what all products of few rows with packed rows share: how
 * rows are brought near, and biases.  The including file has lanes.h.
 */
#ifndef MR_KERNELS_TIER_QUANT_WALK_H
#define MR_KERNELS_TIER_QUANT_WALK_H

#include "kernels/quant.h"

#define VECTORS (16 / N_LANES) /* of the 16 virtual lanes */

/* What comes next is brought near: rows are read once and no prefetcher follows
 * them from a page to the next.  How far ahead: the same place in the rows that
 * are next, where rows are short; at least so many bytes.  To the second-level
 * cache: the first one has x, and rows a power of two apart share its sets. */
#define SHORT_ROWS 16384

INLINE int64_t
bytes_ahead(int64_t row_bytes, int nr, int64_t least)
{
    int64_t ahead = nr * row_bytes;

    while (ahead < least)
        ahead += nr * row_bytes;
    return row_bytes > SHORT_ROWS ? least : ahead;
}

INLINE void
bring(const void *from, int64_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)ahead), 0,
                       2);
}

/* Biases of row r times the sums of x: group g in lane g % 16. */
INLINE void
add_biases(const mr_quant_span *s, int64_t r, const float *x_sums, R *sum)
{
    const float *bias = s->bias + r * s->row_groups;

    for (int g = 0; g < s->n_groups; g += 16) {
        const float *from = bias + g;
        float last[16] = {0.0F};

        if (s->n_groups - g < 16) {
            memcpy(last, from, (size_t)(s->n_groups - g) * sizeof *last);
            from = last;
        }
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            sum[v] = multiply_add(v_load(from + v * N_LANES),
                                  v_load(x_sums + g + v * N_LANES), sum[v]);
    }
}

#endif
