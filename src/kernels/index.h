/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h -- indices of gathers that are computed where they are needed.
 */
#ifndef MR_KERNELS_INDEX_H
#define MR_KERNELS_INDEX_H

#include <stdint.h>

#include "kernels/program.h"

/* Points at once. */
#define MR_INDEX_RUN 256

/* Where the inputs lie for the first of some points in a line, and bytes from
 * point to point. */
typedef struct mr_index_line {
    const char *in[MR_INDEX_MAX_IN];
    int64_t stride[MR_INDEX_MAX_IN];
} mr_index_line;

typedef struct mr_index_room {
    _Alignas(64) char reg[MR_INDEX_MAX_REG][MR_INDEX_RUN * 8];
} mr_index_room;

static inline mr_dtype
mr__index_dtype(const mr_index_code *c)
{
    return (mr_dtype)c->dtype[c->n_in + c->n_const + c->n_inst - 1];
}

/* Before the first of a line's indices: what all of its points share. */
void mr__index_begin(const mr_index_code *c, const mr_index_line *line,
                     mr_index_room *room);
/* The indices of n points from the k-th on, at most MR_INDEX_RUN, one after the
 * other, in the room.  Uses the floating-point control of the caller. */
const char *mr__index_compute(const mr_index_code *c, const mr_index_line *line,
                              int64_t k, int64_t n, mr_index_room *room);

#endif
