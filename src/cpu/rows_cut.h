/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_cut.h -- products with few rows, cut into units: a chunk of an item's
 * depth and a band of its columns.  What rows.c and rows_wide.c share.
 *
 * Sums of chunks, which have a fixed length, are added in order.
 */
#ifndef MR_CPU_ROWS_CUT_H
#define MR_CPU_ROWS_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu/product.h"

typedef struct mr_rows_cut {
    const mr_product *p;
    bool wide; /* b's columns are adjacent, else its depths */
    bool far, shared;
    int64_t slice; /* when shared */
    int64_t chunk, n_chunks, band, n_bands;
} mr_rows_cut;

/* Of `rows` rows of reals (`real` bytes; `parts` of them a number) with units
 * of so many elements of b where its depths are adjacent. */
mr_rows_cut mr__rows_cut(const mr_product *p, int64_t rows, int64_t parts,
                         int64_t real, int64_t elements);

/* Which chunk of an item, which columns, and of b that. */
typedef struct mr_rows_unit {
    int64_t item, chunk, depth, j, n;
    mr_gemm_side b;
} mr_rows_unit;

typedef void mr_rows_fn(const void *ctx, const mr_rows_unit *u);

/* All units; an element of b takes about so many nanoseconds. */
void mr__rows_run(mr_rows_cut *s, double ns, mr_rows_fn *run, const void *ctx);

#endif
