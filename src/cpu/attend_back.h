/* SPDX-License-Identifier: Apache-2.0
 *
 * attend_back.h -- the way back of attention: what attend_back.c plans, and
 * attend_back_tile.c does for one unit.
 */
#ifndef MR_CPU_ATTEND_BACK_H
#define MR_CPU_ATTEND_BACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/attend.h"

/* Keys that are added up together for the gradient by queries; a multiple of
 * every tier's columns. */
#define MR_ATTEND_BACK_KEYS 128

enum { MR_ATTEND_WANT_Q = 1, MR_ATTEND_WANT_KV = 2 };

typedef struct mr_attend_back {
    mr_attend_job j, by_vectors; /* the latter where an item is not in pieces */
    mr_kernel_view g, o;
    const mr_attend_tier *tier;
    char *dq, *dk, *dv;
    float *dsinks;
    float *top, *scale, *dot;  /* of all rows: scale is 1 / sum */
    bool *pieces;              /* of all items: all goes to the matrix unit */
    int64_t items, cols, high; /* of the packed kernel's panels */
    int64_t tile;              /* rows */
    int64_t block, n_blocks;   /* keys packed together */
    int64_t run;               /* rows of a unit that wants dq alone */
    int64_t k_panels;          /* of cols, over depth */
    int64_t deep, wide;        /* depth and width, to whole panels of rows */
    int64_t q_floats;          /* of dq held back */
    int want;
    mr_gemm_form form; /* of what may have it: pieces, or pairs of k, v and the
                          rows that meet them */
    int weights;       /* pieces of a weight */
} mr_attend_back;

/* What a unit needs beside the outputs. */
size_t mr__attend_back_slot(const mr_attend_back *b);
/* Rows [row0, row1) of an item by its blocks of keys [block0, block1). */
void mr__attend_back_unit(const mr_attend_back *b, int64_t item, int64_t row0,
                          int64_t row1, int64_t block0, int64_t block1,
                          char *slot);

#endif
