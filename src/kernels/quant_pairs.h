/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pairs.h -- bfloat16 rows times packed rows, two codes at a time.
 *
 * Codes are exact in bfloat16, so where the processor multiplies pairs of such
 * twice as fast as floats (gemm.h) the sums over a group are those of widened
 * numbers, and are scaled once.  Rows of w go to panels of mr__gemm_cols()
 * lanes; rows of x to panels of mr__gemm_rows(), the last one of a run as many
 * as its rows, rounded up to MR_QUANT_PAIRS_ROWS.
 *
 * A pair is not of neighbours, but of codes that lie in the two halves of a
 * word, where one shift and one look-up make both: code j and j + h of each 2 h
 * (h is 16, 8, 16, 4, 16, 8, 2 for 1, 2, 3, 4, 5, 6, 8 bits).  x is packed to
 * suit.
 */
#ifndef MR_KERNELS_QUANT_PAIRS_H
#define MR_KERNELS_QUANT_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/quant.h"

/* The deepest piece that one call packs; pieces are whole groups. */
#define MR_QUANT_PAIRS_DEPTH 256
#define MR_QUANT_PAIRS_ROWS  4

/* Are products of bfloat16 with this format faster in pairs? */
bool mr__quant_pairs_pay(const mr_quant_format *f);

/* Depths [0, depth) of some rows of x, to[pair * lanes + lane]; rows are lanes
 * (a multiple of MR_QUANT_PAIRS_ROWS, no more than mr__gemm_rows()), those from
 * `rows` on are 0.  False: a number is none that pairs can have: below 2^-126
 * and not 0, or MR_QUANT_HUGE. */
bool mr__quant_pairs_rows(const mr_quant_format *f, const uint16_t *const *x,
                          int rows, int lanes, int64_t depth, float *to);

/* A panel of rows of w: codes to[pair * width + lane], and apart from them the
 * scales and biases of its groups, scale[g * width + lane]; bias NULL without.
 */
void mr__quant_pairs_panel(const mr_quant_matrix *w, int width, int64_t panel,
                           int64_t depth0, int64_t depth, float *to,
                           float *scale, float *bias);

/* Some groups: c (m rows of as many floats as a panel of w has lanes) += the
 * sum over them of (a @ b) * scale + x_sums * bias; bias NULL: none.  Panels of
 * a are a_panel floats apart; x_sums are m numbers of each group, sums_row
 * apart; scales and biases those of a panel of w. */
typedef struct mr_quant_piece {
    int64_t m, n_groups, depth; /* of a group: the number of pairs */
    const float *a, *b, *scale, *bias, *x_sums;
    int64_t a_panel, sums_row;
    float *c;
} mr_quant_piece;

void mr__quant_pairs_piece(const mr_quant_piece *g);

/* ---- what a tier gives (tier/quant_pairs.c) -------------------------------
 * All NULL where a tier has none. */
typedef void mr_quant_pairs_fn(const uint8_t *from, int64_t row_bytes,
                               int64_t lanes, int64_t n, uint32_t *to,
                               int64_t step);

typedef struct mr_quant_pairs {
    /* n codes (whole groups) of up to 16 rows of w, which become lanes; lanes
       behind them are 0 */
    mr_quant_pairs_fn *unpack[MR_N_QUANT_KINDS];
    /* n halves in the order of a format's pairs; false: one is none that pairs
       can have */
    bool (*order)(const uint16_t *x, int64_t n, mr_quant_kind kind,
                  uint16_t *to);
    /* of a panel of (r + 1) * MR_QUANT_PAIRS_ROWS rows */
    void (*tile[3])(const mr_quant_piece *g, const float *a,
                    const float *x_sums, float *c);
} mr_quant_pairs;

#define MR_X(id, name) extern const mr_quant_pairs mr__quant_pairs_##name;
MR_TIERS(MR_X)
#undef MR_X

#endif
