/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h -- index arrays: reading, resolving, checking.
 */
#ifndef MR_CPU_INDEX_H
#define MR_CPU_INDEX_H

#include <stdatomic.h>
#include <stdint.h>

#include "cpu/cpu.h"

/* One entry, `offset` elements from the first; uint64 values that int64 cannot
 * hold become INT64_MAX. */
int64_t mr__index_read(const mr_kernel_view *x, int64_t offset);

/* n entries from `offset` on, `step` apart, resolved for an axis of size
 * `size` with `last` the largest that is valid.  Gives the first bad one's
 * number, or n; what follows a bad one may be out of range. */
int64_t mr__index_run(const mr_kernel_view *x, int64_t offset, int64_t step,
                      int64_t n, int64_t size, int64_t last, int64_t *at);

/* Note a bad place (in row-major order of the index arrays); the lowest stays,
 * so the message is the same for any number of threads.  It starts as
 * INT64_MAX. */
void mr__index_note(_Atomic int64_t *place, int64_t at);

/* One axis that is indexed: valid are [-n, n), and the resolved entry must be
 * at most n - size. */
typedef struct mr_index_axis {
    const mr_kernel_view *index;
    int32_t axis;
    int64_t n, size, stride;
} mr_index_axis;

/* offset[i] = the sum over the axes of resolved index times stride, for each
 * point i of the index arrays (all of one shape). */
mr_code mr__index_offsets(const mr_index_axis *axes, int n_axes, int64_t count,
                          int64_t *offset);

#endif
