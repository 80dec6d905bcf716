/* SPDX-License-Identifier: Apache-2.0
 *
 * epilogue.h -- elementwise work on a kernel's result, piece by piece.
 */
#ifndef MR_CPU_EPILOGUE_H
#define MR_CPU_EPILOGUE_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu/cpu.h"
#include "kernels/ready.h"

/* Is it worth running on the tiles of a product, a result of so many bytes?
 * Else it runs once all is there. */
bool mr__after_pays(const mr_epilogue *e, int64_t bytes);

/* An epilogue made ready for pieces; about 24 KB, and any number of threads may
 * use it. */
typedef struct mr_after {
    const mr_epilogue *e;
    const mr_block_ready *ready; /* in the room */
    mr_block_room room;
} mr_after;

void mr__after_make(mr_after *s, const mr_epilogue *e);

/* On rows [row, row + n_rows) of the result (all axes but the last as one) and
 * columns [col, col + n_cols), which have their last bits; on this thread. */
void mr__after_piece(const mr_after *s, int64_t row, int64_t n_rows,
                     int64_t col, int64_t n_cols);

/* On everything, in parallel. */
void mr__after_all(const mr_epilogue *e);
/* The same on some rows and columns. */
void mr__after_region(const mr_epilogue *e, int64_t row, int64_t n_rows,
                      int64_t col, int64_t n_cols);

#endif
