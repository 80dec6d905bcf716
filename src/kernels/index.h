/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h -- indices of gathers that are computed where they are needed.
 */
#ifndef MR_KERNELS_INDEX_H
#define MR_KERNELS_INDEX_H

#include <stdint.h>

#include "kernels/native.h"
#include "kernels/program.h"

/* Where the inputs lie for the first of some points in a line, and bytes from
 * point to point. */
typedef struct mr_index_line {
    mr_native_fn *fn; /* compiled code, or NULL */
    const char *in[MR_INDEX_MAX_IN];
    int64_t stride[MR_INDEX_MAX_IN];
} mr_index_line;

/* Bytes of each of the code's registers.  Compiled code has but its result and
 * copies of inputs there, and takes more points at once. */
#define MR_INDEX_REG 1024

typedef struct mr_index_room {
    _Alignas(64) char bytes[MR_INDEX_MAX_REG * MR_INDEX_REG];
    int64_t points, reg; /* points at once; bytes of a register */
} mr_index_room;

static inline mr_dtype
mr__index_dtype(const mr_index_code *c)
{
    return (mr_dtype)c->dtype[c->n_in + c->n_const + c->n_inst - 1];
}

/* Before the first of a line's indices: what all of its points share, and how
 * many points are computed at once. */
void mr__index_begin(const mr_index_code *c, const mr_index_line *line,
                     mr_index_room *room);
/* The indices of n points from the k-th on, at most room->points, one after
 * the other, in the room.  Uses the floating-point control of the caller. */
const char *mr__index_compute(const mr_index_code *c, const mr_index_line *line,
                              int64_t k, int64_t n, mr_index_room *room);

#endif
