/* SPDX-License-Identifier: Apache-2.0
 *
 * share.c -- large memory that cores read again and again from the third-level
 * cache.
 *
 * Called by: rows.c, rows_wide.c, quant_product.c.  Calls: kernels/gemm.h for
 * what the processor is.
 */
#include "cpu/share.h"

#include <stdatomic.h>

#include "base/pool.h"
#include "kernels/gemm.h"

enum {
    LEAST_BYTES = 16 << 20, /* less is partly in second levels */
    MOST_BYTES = 96 << 20,  /* more comes from memory */
    SLICES = 64,
    LINE = 64
};

bool
mr__share_pays(int64_t bytes)
{
    return bytes >= LEAST_BYTES && bytes <= MOST_BYTES &&
           mr__gemm_near_bytes() != INT64_MAX && mr__pool_threads() > 1;
}

int64_t
mr__share_slice(void)
{
    static _Atomic uint32_t calls; /* relaxed: any slice will do */

    return atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) % SLICES;
}

static void
lines_fetch(const char *from, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch(from + at, 0, 2);
}

void
mr__share_rows(int64_t slice, const void *from, int64_t n, int64_t bytes,
               int64_t apart)
{
    const char *row = from;

    if (n >= SLICES) {
        for (int64_t k = slice; k < n; k += SLICES)
            lines_fetch(row + k * apart, bytes);
        return;
    }
    for (int64_t k = 0; k < n; k++)
        lines_fetch(row + k * apart + bytes * slice / SLICES, bytes / SLICES);
}
