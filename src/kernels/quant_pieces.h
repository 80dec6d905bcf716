/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pieces.h -- rows times packed rows on the matrix unit of x86 processors
 * (AMX).
 *
 * Codes are exact in bfloat16, and x is the sum of one, two or three bfloat16
 * pieces (gemm.h), so the unit makes sums of x over a group as exactly as
 * multiply-adds do; they are scaled once.  Rows of w are rows of a tile as they
 * lie, so unpacking turns nothing; rows of x are its columns, packed once.  Few
 * rows whose pieces fit 16 columns have one for each piece, and the unit works
 * once for all of them; else pieces come after each other.
 *
 * What stands for an integer or E4M3 is a power of two less, which saves
 * unpacking, and x is more; all sums are put right at the end.  E2M1 codes with
 * their scale are exact in bfloat16 too, and need no sums of groups.
 */
#ifndef MR_KERNELS_QUANT_PIECES_H
#define MR_KERNELS_QUANT_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/quant.h"
#include "kernels/quant_floats.h"

/* Codes of a row that are unpacked together: whole groups, or the rest of a
 * row.  The unit takes steps of 32 of them. */
#define MR_QUANT_PIECES_DEPTH 128
#define MR_QUANT_PIECES_STEP  32
/* Rows of w of a tile, and of a strip. */
#define MR_QUANT_PIECES_TILE 16
#define MR_QUANT_PIECES_ROWS 64
/* Lanes are whole sixteens; sums of a tile are this many floats. */
#define MR_QUANT_PIECES_LANES 16
#define MR_QUANT_PIECES_SUMS  256

/* Are products with rows of `cols` codes of this format faster so? */
bool mr__quant_pieces_pay(const mr_quant_format *f, int64_t cols);
/* The pieces of a number of x. */
int mr__quant_pieces_of(mr_dtype t);

/* DEPTH numbers or fewer (whole steps) of up to 16 rows, of which `rows` are
 * there, to tiles: of each step `tiles` from `first` on, 256 floats each, steps
 * `apart` floats.  narrow: all pieces in one tile.  Sums over the groups, of 16
 * lanes, go to sums (NULL: none) rows sums_row apart.  Gives the rows of which
 * a number must not go in pieces (0 apart, below 2^-75 or not below 2^40), bit
 * i the ith; others are what they are without these. */
typedef struct mr_quant_x {
    const float (*x)[MR_QUANT_PIECES_DEPTH]; /* 16 rows */
    int64_t rows, depth;
    int pieces;
    bool narrow;
    float *to, *sums;
    int64_t apart, sums_row;
} mr_quant_x;

uint32_t mr__quant_pieces_pack(const mr_quant_format *f, const mr_quant_x *p);
/* What all sums are to be multiplied by. */
float mr__quant_pieces_factor(const mr_quant_format *f);

/* Do codes go with their scales?  Then those of rows [row0, row0 + n) have to
 * be in range; values has the bits of numbers by their scale's byte and code.
 */
bool mr__quant_pieces_scaled(const mr_quant_format *f);
const uint16_t (*mr__quant_pieces_values(const mr_quant_format *f))[16];
bool mr__quant_pieces_in_range(const mr_quant_matrix *w, int64_t row0,
                               int64_t n);

/* Codes of a tile's rows, each `offset` bytes from where row has it, to tiles
 * of 16 rows and 32 columns.  What lies `beyond` bytes from them is brought
 * near.  all: 32 bytes behind them may be read.  values NULL, or codes go with
 * their scales, `at` bytes from where scale has them. */
typedef struct mr_quant_codes {
    const uint8_t *const *row;
    int64_t offset, beyond, n;
    bool all;
    const uint16_t (*values)[16];
    const uint8_t *const *scale;
    int64_t at;
    uint16_t *to;
} mr_quant_codes;

void mr__quant_pieces_codes(const mr_quant_matrix *w, const mr_quant_codes *c);

/* Some groups of a tile's rows and one or two blocks of 16 lanes: sums (a group
 * after the other, each of all blocks) = codes @ x. */
typedef struct mr_quant_groups {
    int64_t n_groups, steps; /* of a group */
    int pieces, blocks;
    const uint16_t *codes;
    const float *x;
    float *sums;
} mr_quant_groups;

/* A thread's tiles are its own from one to the other. */
void mr__quant_pieces_enter(void);
void mr__quant_pieces_leave(void);
void mr__quant_pieces_multiply(const mr_quant_groups *g);

/* y (16 rows, y_row apart) += what groups have: sums * scale + bias * x_sums;
 * scales and biases (NULL: none) have rows scale_row apart. */
typedef struct mr_quant_scaling {
    int64_t n_groups;
    int blocks;
    const float *sums, *scale, *bias, *x_sums;
    int64_t scale_row, sums_row, y_row;
    float *y;
} mr_quant_scaling;

void mr__quant_pieces_scale(const mr_quant_scaling *s);

/* ---- what a tier gives (tier/quant_pieces.c) ------------------------------
 * All NULL where a tier has none. */
typedef void mr_quant_codes_fn(const mr_quant_codes *c);

typedef struct mr_quant_pieces {
    /* those that go with their scales come last */
    mr_quant_codes_fn *codes[MR_N_QUANT_KINDS + 2];
    uint32_t (*pack)(mr_quant_kind kind, int group, const mr_quant_x *p);
    /* [pieces - 1][blocks - 1] */
    void (*multiply[3][2])(const mr_quant_groups *g);
    /* [blocks - 1] */
    void (*scale[2])(const mr_quant_scaling *s);
} mr_quant_pieces;

#define MR_X(id, name) extern const mr_quant_pieces mr__quant_pieces_##name;
MR_TIERS(MR_X)
#undef MR_X

#endif
