/* SPDX-License-Identifier: Apache-2.0
 *
 * attend.h -- the steps of attention on a tile of scores.
 *
 * Scores lie turned: a panel has a row for each key and a column for each of up
 * to MR_GEMM_MAX_COLS queries, as the packed product (gemm.h) makes them from
 * keys times queries and takes them again as its right side.  So everything
 * between the two products is arithmetic between whole vectors of queries, and
 * what a query gets depends on the order of its keys alone, not on the width
 * of a vector.
 *
 * A query's state is the largest score so far (top), the sum of exp(score -
 * top), and the sum of the values times the same; a new tile with a larger top
 * fades both sums (M. Milakov, N. Gimelshein, "Online normalizer calculation
 * for softmax", 2018).
 */
#ifndef MR_KERNELS_ATTEND_H
#define MR_KERNELS_ATTEND_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/gemm.h"

/* The score of a pair that a mask drops: lower than every number that a sum
 * could notice, yet finite, so that a row that is masked as a whole gives the
 * mean of its values. */
#define MR_ATTEND_MASKED (-0x1.fffffep127F)

/* The pieces of a weight beside values in so many: 16 bits for values of 8 or
 * 11, whose results are rounded to as many. */
#define MR_ATTEND_PIECES(n) ((n) == 3 ? 3 : 2)

/* What a panel of scores goes through before the weights, each NULL for
 * nothing: key k of column c counts when keep[k][c] and k <= limit[c], and
 * add[k][c] is added (rows as far apart as those of the scores); -inf drops the
 * pair, whatever its score. */
typedef struct mr_attend_masks {
    const uint8_t *keep;
    const float *add, *limit;
} mr_attend_masks;

/* Scores s (n_keys rows of `width` floats, `row` apart), times `scale`, become
 * exp(s - top); top and sum are brought up to date, and fade is what old sums
 * are multiplied by. */
typedef void mr_attend_step_fn(float *s, int64_t row, int64_t n_keys,
                               int64_t width, const mr_attend_masks *masks,
                               float scale, float *top, float *sum,
                               float *fade);
/* The same for the matrix unit: the weights go to `to` as a right side in
 * pieces (gemm.h), MR_ATTEND_PIECES of them, and s is scratch.  Keys are pairs
 * as they are in a left side of the kind.  to NULL: only the rest. */
typedef void mr_attend_split_fn(float *s, int64_t row, int64_t n_keys,
                                int64_t width, const mr_attend_masks *masks,
                                float scale, float *top, float *sum,
                                float *fade, float *to);
/* y[i][c] *= x[c], or /= x[c]. */
typedef void mr_attend_scale_fn(float *y, int64_t row, int64_t n_rows,
                                int64_t width, const float *x);
/* s[k] = sum over p < depth of x[p] * key[k][p], keys key_row elements apart,
 * in 64 virtual lanes combined pairwise (l with l + 32, l + 16, then
 * neighbours).  `ahead` other than 0: the key so many further on is asked
 * for. */
typedef void mr_attend_dots_fn(float *s, const float *x, const void *key,
                               int64_t key_row, int64_t n_keys, int64_t depth,
                               int64_t ahead);

/* The way back, rows as they are (a row a query, a column a key): scores s,
 * times `late`, become weights exp(s - top) * scale, and g, what comes back to
 * the weights, becomes what comes back to the scores, weight * (g - dot), 0
 * where masks drop the pair.  n_rows rows of `width` <= MR_GEMM_MAX_COLS, `row`
 * apart; here masks->limit counts a row's keys: column c counts when c <=
 * limit[row]. */
typedef void mr_attend_back_fn(float *s, float *g, int64_t row, int64_t n_rows,
                               int64_t width, const mr_attend_masks *masks,
                               float late, const float *top, const float *scale,
                               const float *dot);

/* The same for the matrix unit: weights and what comes back to the scores leave
 * in pieces as right sides (a depth a row, whole steps of them), the latter as
 * a left side too (a lane a row, whose panels are left_apart floats apart: one
 * step of keys).  Rows are MR_GEMM_PIECES_LANES apart, as many keys, of which
 * n_keys are there. */
typedef struct mr_attend_pieces {
    float *weights, *slopes, *left;
    int64_t left_apart;
} mr_attend_pieces;
typedef void mr_attend_back_split_fn(const float *s, const float *g,
                                     int64_t n_rows, int64_t n_keys,
                                     const mr_attend_masks *masks, float late,
                                     const float *top, const float *scale,
                                     const float *dot,
                                     const mr_attend_pieces *to);

/* Are all n numbers finite? */
typedef bool mr_attend_finite_fn(const float *x, int64_t n);

/* to[k * to_row + i] = from[i * from_row + k] of n_rows rows of n_keys. */
typedef void mr_attend_turn_fn(void *to, int64_t to_row, const void *from,
                               int64_t from_row, int64_t n_rows,
                               int64_t n_keys);

typedef struct mr_attend_tier {
    mr_attend_step_fn *step;
    mr_attend_turn_fn *turn[3]; /* elements of 1, 2, 4 bytes */
    mr_attend_back_fn *back;
    mr_attend_scale_fn *multiply, *divide;
    mr_attend_finite_fn *finite;
    mr_attend_dots_fn *dots[MR_N_GEMM_KINDS];
    mr_attend_split_fn *split[MR_N_GEMM_KINDS]; /* or NULL */
    mr_attend_back_split_fn *back_split[MR_N_GEMM_KINDS];
} mr_attend_tier;

#define MR_X(id, name) extern const mr_attend_tier mr__attend_tier_##name;
MR_TIERS(MR_X)
#undef MR_X

/* The table of one tier, NULL where this machine cannot run it. */
static inline const mr_attend_tier *
mr__attend_of_tier(int id)
{
    return mr__tier_or_none(id)->attend;
}

/* The steps of the tier in use. */
static inline const mr_attend_tier *
mr__attend(void)
{
    return mr__tier()->attend;
}

#endif
