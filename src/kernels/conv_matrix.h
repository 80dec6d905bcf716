/* SPDX-License-Identifier: Apache-2.0
 *
 * conv_matrix.h -- convolutions on the matrix unit (AMX) over channels-last
 * arrays: tiles whose rows are output positions and which read the input where
 * it lies.
 *
 * Numbers are sums of bfloat16 pieces, as in gemm.h.  A copy of a part of the
 * input has a plane for each piece, in which 32 numbers are 64 bytes, in their
 * order.  The weights are packed as the unit wants its right side, 32 depths
 * (a step) by 32 columns at a time, all pieces of a step after each other.
 */
#ifndef MR_KERNELS_CONV_MATRIX_H
#define MR_KERNELS_CONV_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

#define MR_CONV_STEP 32 /* depths */
#define MR_CONV_COLS 32
#define MR_CONV_ROWS 16 /* of a tile, at most; two are computed together */
/* Floats of the weights of a step, for each piece. */
#define MR_CONV_STEP_FLOATS 512

/* What a tile reads: row i at x + i * row_bytes + step[s], `apart` bytes
 * further for each piece. */
typedef struct mr_conv_rows {
    const char *x[2]; /* of the two tiles */
    int64_t row_bytes, apart;
    const int64_t *step; /* bytes */
    int64_t n_steps;
} mr_conv_rows;

/* sums (+)= rows times weights: rows of sums are MR_CONV_COLS apart, those of
 * the second tile begin at the rowth, which the tiles in use have. */
typedef void mr_conv_tile_fn(const mr_conv_rows *r, const float *w, float *sums,
                             int64_t rows, bool add);

/* n vectors of `channels` numbers of this kind, from_bytes apart, as pieces,
 * to_bytes apart; with zeros up to whole steps. */
typedef mr_gemm_range mr_conv_split_fn(char *to, int64_t to_bytes,
                                       int64_t apart, const void *from,
                                       int64_t from_bytes, int64_t n,
                                       int64_t channels);

/* Up to 16 columns of a step, lane_bytes apart, of up to 32 depths: half of it,
 * 2 * 256 floats from piece to piece. */
typedef mr_gemm_range mr_conv_weigh_fn(float *to, const void *from,
                                       int64_t lane_bytes, int64_t lanes,
                                       int64_t depth);

/* n rows of sums, `cols` of each, rounded, to_bytes apart. */
typedef void mr_conv_store_fn(char *to, int64_t to_bytes, const float *sums,
                              int64_t n, int64_t cols);

/* What numbers of float32 or halves are here. */
static inline mr_gemm_kind
mr__conv_kind(mr_dtype t)
{
    return t == MR_FLOAT32   ? MR_GEMM_FLOAT32
           : t == MR_FLOAT16 ? MR_GEMM_FLOAT16
                             : MR_GEMM_BFLOAT16;
}

/* ---- the gradient by the weights -------------------------------------------
 * Depths are positions; columns of both sides, up to 32 at a time, are
 * channels.  Lines of 32 columns in pieces (64 bytes each, as split leaves
 * them) become one side or the other. */
#define MR_CONV_LINE 64  /* bytes */
#define MR_CONV_PAIR 128 /* of a pair of lines on the right side */

/* Line v and the next one as pair v / 2 of `even` or, v being odd, of `odd`;
 * v < n. */
typedef void mr_conv_pairs_fn(char *even, char *odd, const char *from,
                              int64_t n);
/* 32 lines as a step of the left side. */
typedef void mr_conv_turn_fn(float *to, const char *from);

/* sums (+)= n_steps of a left side, whose pieces follow each other in each
 * step, times pairs from x on, `apart` bytes further for each piece. */
typedef void mr_conv_back_fn(const float *g, const char *x, int64_t apart,
                             int64_t n_steps, float *sums, bool add);

/* NULL where a tier has none. */
typedef struct mr_conv_matrix {
    /* A thread's tiles are its own from one to the other; so many rows. */
    void (*enter)(int rows);
    void (*leave)(void);
    /* [pieces - 1][two tiles of rows][more than 16 columns] */
    mr_conv_tile_fn *tile[3][2][2];
    mr_conv_split_fn *split[MR_N_GEMM_KINDS];
    mr_conv_weigh_fn *weigh[MR_N_GEMM_KINDS];
    mr_conv_store_fn *store[MR_N_GEMM_KINDS];
    mr_conv_pairs_fn *pairs;
    mr_conv_turn_fn *turn;
    mr_conv_back_fn *back[3][2][2];
} mr_conv_matrix;

#define MR_X(id, name) extern const mr_conv_matrix mr__conv_matrix_##name;
MR_TIERS(MR_X)
#undef MR_X

/* That of the tier in use; NULL where there is no such unit. */
const mr_conv_matrix *mr__conv_matrix(void);

#endif
