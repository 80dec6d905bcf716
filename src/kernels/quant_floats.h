/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_floats.h -- some rows of floats times packed rows, whose values are
 * made beside the products.
 *
 * Rows of x are lanes of vectors, in blocks of 32 and 16; a row of w stays a
 * row, whose values meet all lanes one by one: so unpacking turns nothing, and
 * the values of one tile are made while the tile before it is multiplied.  The
 * depth is cut as in strips (cpu/strips.c) and values are rounded alike, so the
 * bits are theirs.
 */
#ifndef MR_KERNELS_QUANT_FLOATS_H
#define MR_KERNELS_QUANT_FLOATS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/quant.h"

/* Values of a row that wait together: whole strides of 16, half a chain or
 * less. */
#define MR_QUANT_FLOATS_DEPTH 128
/* Rows of w of a tile, and of a strip: whole tiles. */
#define MR_QUANT_FLOATS_TILE 12
#define MR_QUANT_FLOATS_ROWS 24
/* Groups whose scales are read together. */
#define MR_QUANT_SCALES 16
/* Lanes are whole sixteens. */
#define MR_QUANT_FLOATS_LANES 16

/* Is there a fast kernel? */
bool mr__quant_floats_pay(void);

/* Scales (or biases) [first, first + n) of `rows` rows of w from row0 on, those
 * behind the last one 0: rows MR_QUANT_SCALES apart. */
void mr__quant_scales(const mr_quant_matrix *w, const void *from, int64_t row0,
                      int64_t rows, int64_t first, int64_t n, float *to);

/* Codes of MR_QUANT_FLOATS_TILE rows, each `offset` from where row has it, and
 * their scales and biases (rows MR_QUANT_SCALES apart, of groups of 1 <<
 * group_shift); values go to rows MR_QUANT_FLOATS_DEPTH apart.  What lies
 * `beyond` bytes from the codes is brought near. */
typedef struct mr_quant_next {
    const uint8_t *const *row;
    int64_t offset, beyond;
    const float *scale, *bias;
    int group_shift;
    float *to;
} mr_quant_next;

/* Values that such rows have now, times a block of lanes: x[depth * lanes +
 * lane] for strides of 16.  A chain of sums begins with 0 or goes on with
 * `chain`; where it ends it is added to y (or is the first), else it waits in
 * `chain`: both rows y_row apart. */
typedef struct mr_quant_stripe {
    const float *values, *x;
    int64_t strides, y_row;
    float *chain, *y;
    bool begins, ends, first;
} mr_quant_stripe;

/* Values of `depth` codes, whose reads stay inside. */
void mr__quant_floats_values(const mr_quant_matrix *w, const mr_quant_next *p,
                             int64_t depth);
/* The same of MR_QUANT_FLOATS_DEPTH codes, of which 32 bytes behind may be
 * read, beside products; next NULL: nothing. */
void mr__quant_floats_tile(const mr_quant_matrix *w, const mr_quant_stripe *t,
                           const mr_quant_next *next, int lanes);

/* ---- what a tier gives (tier/quant_floats.c) ------------------------------
 * All NULL where a tier has none. */
typedef void mr_quant_values_fn(const mr_quant_next *p, int64_t depth);
typedef void mr_quant_stripe_fn(const mr_quant_stripe *t,
                                const mr_quant_next *next);

typedef struct mr_quant_floats {
    /* n scales of each of some rows */
    void (*scales)(const uint8_t *from, int64_t row_bytes, int64_t rows,
                   int64_t n, mr_quant_scale kind, float *to);
    mr_quant_values_fn *values[MR_N_QUANT_KINDS];
    /* of 16 and 32 lanes */
    mr_quant_stripe_fn *tile[2][MR_N_QUANT_KINDS];
} mr_quant_floats;

#define MR_X(id, name) extern const mr_quant_floats mr__quant_floats_##name;
MR_TIERS(MR_X)
#undef MR_X

#endif
