/* SPDX-License-Identifier: Apache-2.0
 *
 * source.h -- inputs of block programs that are read through an index.
 */
#ifndef MR_KERNELS_SOURCE_H
#define MR_KERNELS_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/program.h"
#include "kernels/tier/tier.h"

/* The index at p, of an integer dtype or bool; INT64_MAX is out of every range:
 * so is a larger uint64. */
int64_t mr__index_at(mr_dtype t, const char *p);

/* How n values lie: those of index 0, and the indices, some bytes apart. */
typedef struct mr_gather_run {
    int64_t size; /* of a value */
    mr_dtype index_dtype;
    int64_t step, n; /* of the indexed axis */
    int64_t stride, index_stride;
} mr_gather_run;

/* Values count, one after the other.  False: an index is out of range, and its
 * value is that of entry 0. */
bool mr__gather_run(const mr_gather_run *g, char *to, const char *from,
                    const char *index, int64_t count);

/* The same for rows of count values that begin so many bytes apart; `ahead`
 * rows, as many at least, lie so from the first on, and will be wanted. */
bool mr__gather_rows(const mr_gather_run *g, char *to, const char *from,
                     int64_t row, const char *index, int64_t index_row,
                     int64_t rows, int64_t ahead, int64_t count);

/* Rows of `count` points that are 0 but for one: where they lie, and which of
 * the axis' entries the points are. */
typedef struct mr_put_run {
    int64_t size; /* of a value */
    mr_dtype index_dtype;
    int64_t n;          /* entries of the axis */
    int64_t first, hop; /* the entry of the first point, and from point to
                           point */
    int64_t point, row; /* bytes from point to point and from row to row */
    int64_t count, rows;
    int64_t value_row, index_row;
    mr_map_fn *add; /* what is put is added to 0; NULL: put as it is */
    /* bytes at `to` that are 0, apart from the value at put_at, or -1; kept for
     * the next rows there */
    int64_t *zeros, *put_at;
} mr_put_run;

/* False: an index is out of range, and its row is 0. */
bool mr__put_rows(const mr_put_run *p, char *to, const char *value,
                  const char *index);

/* The first index of gather or put i that is out of range, in the order of the
 * launch; false: all are in range.  Looks at them one by one. */
bool mr__block_bad_index(const mr_block_code *c, const mr_block_launch *l,
                         int i, int64_t *index);

/* Says that this index is out of range of an axis of n entries. */
mr_code mr__index_fail(int64_t index, int32_t axis, int64_t n);

#endif
