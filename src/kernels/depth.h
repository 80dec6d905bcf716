/* SPDX-License-Identifier: Apache-2.0
 *
 * depth.h -- sums over taps, a channel a lane: what depthwise convolution is
 * made of.
 *
 * y[c] = the sum over taps t with x[t] != NULL, in order, of x[t][c] * w[t *
 * w_row + c]; with `add` it goes on from y.  y and w are float32 for float32
 * and half x, float64 for float64.
 */
#ifndef MR_KERNELS_DEPTH_H
#define MR_KERNELS_DEPTH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/gemm.h"
#include "kernels/tier/tier.h"
#include "marram/types.h"

typedef void mr_depth_fn(void *y, const void *const *x, const void *w,
                         int64_t w_row, int64_t n_taps, int64_t n, bool add);

/* Positions o < n_out of a line of outputs: y[o * y_row + c] = the sum over
 * lines l with x[l] != NULL and taps k, in order, of entry first + o * stride +
 * k * dilation of x[l] times w[l * w_line + k * w_tap + c], taps before or
 * beyond the `in` entries of a line left out, for the channels c of [from, n).
 * Entries are x_row apart.  `ahead`, or NULL: a line that was not read before,
 * as many entries in front as are to be brought near. */
typedef struct mr_depth_row {
    const void *const *x;
    const void *w, *ahead;
    int64_t n_lines, taps, first, stride, dilation, in;
    int64_t x_row, w_line, w_tap, y_row;
    int64_t n_out, from, n; /* positions, channels */
} mr_depth_row;

typedef void mr_depth_row_fn(void *y, const mr_depth_row *r);

typedef struct mr_depth_tier {
    mr_depth_fn *narrow[MR_N_GEMM_KINDS];
    mr_depth_fn *wide; /* float64 */
    mr_depth_row_fn *narrow_row[MR_N_GEMM_KINDS];
    mr_depth_row_fn *wide_row;
} mr_depth_tier;

#define MR_X(id, name)                                                         \
    extern const mr_depth_tier mr__depth_tier_##name;                          \
    extern mr_depth_fn mr__depth_wide_##name;                                  \
    extern mr_depth_row_fn mr__depth_wide_row_##name;
MR_TIERS(MR_X)
#undef MR_X

/* Those for x of dtype t (real, inexact), of the tier in use. */
mr_depth_fn *mr__depth_of(mr_dtype t);
mr_depth_row_fn *mr__depth_row_of(mr_dtype t);

#endif
