/* SPDX-License-Identifier: Apache-2.0
 *
 * window.h -- register tiles of convolutions over channels-last arrays, which
 * read the input where it lies.
 *
 * A tile is MR_WINDOW_ROWS rows by up to `vectors` vectors of output channels,
 * all its sums in registers.
 */
#ifndef MR_KERNELS_WINDOW_H
#define MR_KERNELS_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tier/tier.h"

#define MR_WINDOW_ROWS 6
/* The widest panel of any tier, in floats. */
#define MR_WINDOW_COLS 64

/* Outputs: c[i][j] (+)= the sum over segments s and p < length of x[s][i][at +
 * p] * w[s * length + p][j], for i < MR_WINDOW_ROWS and j < n.  Rows of w are n
 * rounded up to whole vectors.  A segment whose first x is NULL is left out. */
typedef void mr_window_fn(float *const *c, const float *const *x, int64_t at,
                          int64_t segments, int64_t length, const float *w,
                          int64_t n, bool add);

/* The same of two groups of channels side by side: the second has its outputs n
 * further, its inputs `length` further, its weights w_apart further.  n is at
 * most a vector; a tile of that width alone has too few sums for a processor
 * that begins two multiply-adds of four cycles each cycle. */
typedef void mr_window_pair_fn(float *const *c, const float *const *x,
                               int64_t at, int64_t segments, int64_t length,
                               const float *w, int64_t w_apart, int64_t n,
                               bool add);

/* Positions in a line: of x and of g, each step apart. */
typedef struct mr_window_run {
    const float *x, *g;
    int64_t n;
} mr_window_run;

/* Weights: c[i][j] += the sum over runs and positions of x[i] * g[j], i <
 * n_rows <= MR_WINDOW_ROWS; j < n, whole vectors of g readable and of c
 * writable. */
typedef void mr_window_back_fn(float *c, int64_t c_row,
                               const mr_window_run *runs, int64_t n_runs,
                               int64_t x_step, int64_t g_step, int64_t n_rows,
                               int64_t n);
/* One channel a lane: c[t][j] += the sum over runs of x[j] * g[j], the runs of
 * tap t being runs[t * n_runs ...]; x NULL: left out. */
typedef void mr_window_deep_fn(float *c, int64_t c_row,
                               const mr_window_run *runs, int64_t n_runs,
                               int64_t x_step, int64_t g_step, int64_t n_taps,
                               int64_t n);

/* Squares of 2 x 2 outputs of 3 x 3 taps from 4 x 4 inputs by 16 products
 * (Winograd's minimal filtering), n channels side by side.  Part p of the
 * transform is at p * apart. */
#define MR_SQUARE_PARTS 16
/* Numbers of a square, or taps, further apart than this in size are not left to
 * a transform. */
#define MR_SQUARE_RANGE 64.0F
/* x: the 16 inputs, row by row.  Is none of them, signs aside, larger than
 * MR_SQUARE_RANGE times the largest of the four in the middle, which all
 * outputs meet? */
typedef bool mr_window_in_fn(float *to, int64_t apart, const float *const *x,
                             int64_t n);
/* to[i] = the largest of it and all |x[i][...]|, for the 16 inputs. */
typedef void mr_window_most_fn(float *to, const float *const *x, int64_t n);
/* The sum of |x[i]|, the same whatever the tier. */
typedef float mr_window_sum_fn(const float *x, int64_t n);
/* w: the 9 taps, row by row. */
typedef void mr_window_weigh_fn(float *to, int64_t apart, const float *const *w,
                                int64_t n);
/* to: the 4 outputs, row by row.  Are all of them finite? */
typedef bool mr_window_out_fn(float *const *to, const float *from,
                              int64_t apart, int64_t n);

typedef struct mr_window_tier {
    int32_t lanes, cols; /* of a vector, of a panel */
    mr_window_fn *taps;
    mr_window_pair_fn *taps_pair;
    mr_window_back_fn *back;
    mr_window_deep_fn *deep;
    mr_window_in_fn *square_in;
    mr_window_most_fn *square_most;
    mr_window_sum_fn *square_sum;
    mr_window_weigh_fn *square_weigh;
    mr_window_out_fn *square_out;
} mr_window_tier;

#define MR_X(id, name) extern const mr_window_tier mr__window_tier_##name;
MR_TIERS(MR_X)
#undef MR_X

/* Those of the tier in use. */
static inline const mr_window_tier *
mr__window(void)
{
    return mr__tier()->window;
}

#endif
