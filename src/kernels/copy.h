/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h -- strided copies.
 */
#ifndef MR_KERNELS_COPY_H
#define MR_KERNELS_COPY_H

#include <stddef.h>
#include <stdint.h>

/* out[i...] = in[i...] for all indices below dim[0 .. ndim-1].  Strides are in
 * bytes, of any sign, 0 for the source of a broadcast; size is that of one
 * element (1, 2, 4, 8 or 16 bytes).  The memories do not overlap.  Transposed
 * layouts are copied tile by tile. */
void mr__copy_strided(size_t size, int ndim, const int64_t *dim, void *out,
                      const int64_t *out_stride, const void *in,
                      const int64_t *in_stride);

/* A part of a copy that is larger than the caches: transposed layouts go past
 * them. */
void mr__copy_strided_past(size_t size, int ndim, const int64_t *dim, void *out,
                           const int64_t *out_stride, const void *in,
                           const int64_t *in_stride);

/* A 2-d piece: rows x cols elements into or out of contiguous memory. */
void mr__copy_in(size_t size, void *out, const void *in, int64_t rows,
                 int64_t row_stride, int64_t cols, int64_t col_stride);
void mr__copy_out(size_t size, void *out, int64_t row_stride,
                  int64_t col_stride, const void *in, int64_t rows,
                  int64_t cols);

#endif
