/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h -- where the elements of an array lie: shape, strides, offset.
 *
 * Strides and offsets count *elements*, are 64 bits wide, and may be 0
 * (broadcast) or negative.
 */
#ifndef MR_ARRAY_LAYOUT_H
#define MR_ARRAY_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "marram/types.h"

typedef struct mr_layout {
    int32_t ndim;
    int64_t offset; /* of the first element from the buffer's start */
    int64_t dim[MR_MAX_NDIM];
    int64_t stride[MR_MAX_NDIM];
} mr_layout;

/* Product of dims, or -1 when it does not fit int64. */
int64_t mr__size_of(int32_t ndim, const int64_t *dim);
/* Row-major strides of a fresh array. */
void mr__strides_fresh(int32_t ndim, const int64_t *dim, int64_t *stride);
/* Row-major without gaps (dims of size 1 have any stride; empty is). */
bool mr__is_contiguous(int32_t ndim, const int64_t *dim, const int64_t *stride);
/* Broadcast two shapes into out (room for MR_MAX_NDIM); -1 when they do not
 * fit, else the number of dims. */
int32_t mr__broadcast_shapes(int32_t na, const int64_t *a, int32_t nb,
                             const int64_t *b, int64_t *out);
/* "(2, 3)": into buf; returns buf. */
const char *mr__shape_text(char *buf, size_t cap, int32_t ndim,
                           const int64_t *dim);
/* Give strides for the same elements under another shape, without a copy.
 * False when that needs one. */
bool mr__reshape_view(const mr_layout *in, int32_t ndim, const int64_t *dim,
                      mr_layout *out);

#endif
