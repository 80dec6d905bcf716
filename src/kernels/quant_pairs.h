/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pairs.h -- bfloat16 rows times packed rows, two codes at a time.
 *
 * Codes are exact in bfloat16, so where the processor multiplies pairs of such
 * twice as fast as floats (gemm.h) the sums over a group are those of widened
 * numbers, and are scaled once.  Rows of x are lanes of vectors, in blocks of
 * 32, 16 and 8; a row of w stays a row, whose pairs meet all lanes one by one:
 * so unpacking turns nothing, and scales and biases stay as they lie.
 */
#ifndef MR_KERNELS_QUANT_PAIRS_H
#define MR_KERNELS_QUANT_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/quant.h"
#include "kernels/quant_floats.h"

/* Codes of a piece, of which the last may be shorter: whole groups. */
#define MR_QUANT_PAIRS_DEPTH 128
/* Rows of w of a tile, and of a strip: whole tiles. */
#define MR_QUANT_PAIRS_TILE 12
#define MR_QUANT_PAIRS_ROWS 48
/* Lanes are whole eights. */
#define MR_QUANT_PAIRS_LANES 8

/* Are products of bfloat16 with this format faster in pairs? */
bool mr__quant_pairs_pay(const mr_quant_format *f);

/* The widest block of so many lanes. */
int mr__quant_pairs_block(int64_t lanes);

/* `depth` numbers of some rows of x, to[pair * lanes + lane]; lanes from `rows`
 * on are 0.  False: a number is none that pairs can have: below 2^-126 and not
 * 0, or MR_QUANT_HUGE. */
bool mr__quant_pairs_rows(const uint16_t *const *x, int rows, int lanes,
                          int64_t depth, float *to);

/* Sums over whole groups of what these are now, groups to_row apart. */
void mr__quant_pairs_sums(const mr_quant_format *f, const float *x, int lanes,
                          int64_t depth, float *to, int64_t to_row);

/* n codes (whole groups) of each of some rows; what lies `ahead` bytes from
 * them comes next. */
typedef struct mr_quant_rows {
    const uint8_t *from, *end; /* what may be read ends there */
    int64_t row_bytes, rows, n, ahead;
} mr_quant_rows;

/* Codes [depth0, depth0 + depth) of `most` rows from row0 on, or those that
 * there are. */
mr_quant_rows mr__quant_pairs_rows_at(const mr_quant_matrix *w, int64_t row0,
                                      int64_t most, int64_t depth0,
                                      int64_t depth);
/* They as bfloat16, rows MR_QUANT_PAIRS_DEPTH apart; those that are missing
 * from `most` are 0. */
void mr__quant_pairs_codes(const mr_quant_matrix *w, const mr_quant_rows *s,
                           int64_t most, uint16_t *to);

/* Some groups of rows of w and a block of lanes: y (rows of w, y_row apart) +=
 * the sum over them of (codes @ x) * scale + bias * x_sums; scales and biases
 * (NULL: none) have rows MR_QUANT_SCALES apart. x_sums are as many as lanes,
 * groups sums_row apart. */
typedef struct mr_quant_piece {
    int64_t n_groups, strides; /* 16 codes each, of a group */
    const uint16_t *codes;
    const float *x, *x_sums, *scale, *bias;
    int64_t sums_row, y_row;
    float *y;
} mr_quant_piece;

/* MR_QUANT_PAIRS_DEPTH codes of the MR_QUANT_PAIRS_TILE rows that come next, to
 * be unpacked meanwhile: each `offset` from where row has it.  What lies
 * `beyond` bytes from them is brought near. */
typedef struct mr_quant_ahead {
    const uint8_t *const *row;
    int64_t offset, beyond;
    uint16_t *to;
} mr_quant_ahead;

/* MR_QUANT_PAIRS_TILE rows; ahead NULL, or less than 16 lanes: nothing is
 * unpacked. */
void mr__quant_pairs_tile(const mr_quant_matrix *w, const mr_quant_piece *p,
                          const mr_quant_ahead *ahead, int lanes);

/* ---- what a tier gives (tier/quant_pairs.c) -------------------------------
 * All NULL where a tier has none. */
typedef void mr_quant_pairs_fn(const mr_quant_rows *s, uint16_t *to);

typedef void mr_quant_tile_fn(const mr_quant_piece *p,
                              const mr_quant_ahead *ahead);

typedef struct mr_quant_pairs {
    mr_quant_pairs_fn *unpack[MR_N_QUANT_KINDS];
    /* can pairs have all n (a multiple of 16) numbers? */
    bool (*fit)(const uint16_t *x, int64_t n);
    /* to[g * to_row + lane] = the sum of a lane's numbers in group g */
    void (*sums)(const float *x, int lanes, int64_t pairs, int64_t n_groups,
                 float *to, int64_t to_row);
    /* of 8 lanes, with nothing ahead; of 16 and 32 */
    void (*narrow)(const mr_quant_piece *p);
    mr_quant_tile_fn *tile[2][MR_N_QUANT_KINDS];
} mr_quant_pairs;

#define MR_X(id, name) extern const mr_quant_pairs mr__quant_pairs_##name;
MR_TIERS(MR_X)
#undef MR_X

#endif
