/* SPDX-License-Identifier: Apache-2.0
 *
 * product.h -- a batch of matrix products as numbers, and the routes that
 * compute it.
 *
 * matmul.c reads one from the operands and picks a route from shape, dtype and
 * strides alone, never from the number of threads; conv.c makes its own.
 */
#ifndef MR_CPU_PRODUCT_H
#define MR_CPU_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/cpu.h"
#include "kernels/gemm.h"
#include "marram/types.h"

typedef struct mr_product {
    mr_dtype dtype;
    int64_t m, n, k;
    mr_gemm_side a, b; /* of the first item: lanes are m and n, depth k */
    void *c;           /* item after item; element (row, column) of an item at
                          row * c_row + column * c_col */
    int64_t c_row, c_col, c_item;
    mr_walk batch; /* offsets of a (0) and b (1); no dims: one item */
    int64_t n_items;
    /* When set, panels of b come from here and b.data only counts items: depths
     * of chunks are multiples of 32.  `at` is the item's offset of b. */
    void (*pack_b)(const void *ctx, int64_t at, int width, int64_t panel,
                   int64_t depth0, int64_t depth, float *to);
    const void *pack_ctx;
    /* What follows, or NULL; row i of item 0 is row after_row + i of the whole
     * result, item after item, column j its column after_col + j.  mr__product_
     * run makes `after` of it; strips, packed and BLAS run that, and a caller
     * of their own makes it. */
    const mr_epilogue *epilogue;
    const struct mr_after *after;
    int64_t after_row, after_col;
    /* Of panels: in pairs the packed routes say whether numbers may have it, c
     * is nothing when not; in pieces `seen` takes what they are. */
    mr_gemm_form form;
    struct mr_seen *seen;
    const int64_t *picked; /* so many items of these numbers; NULL: all */
} mr_product;

/* ---- what numbers there are (pieces.c) -------------------------------------
 * What a part of an operand holds, as far as threads have packed it. */
typedef struct mr_ranges {
    _Atomic int least, most; /* relaxed: read at loops' ends */
} mr_ranges;

/* The parts of a product's operands: panels of a, item after item, and b of
 * each item (one of what all items share).  An element can be made of pieces if
 * its row of a and b as a whole can, whatever other rows and items hold, how
 * they lie and which thread packs them. */
typedef struct mr_seen {
    const mr_product *p;
    int64_t panels; /* of an item's a */
    bool a_shared, b_shared;
    bool followed; /* what follows has been run */
    mr_ranges *a, *b;
    /* of each item's panels: 0, or whether one of its rows may (1) or none (2);
     * relaxed: threads that ask at once find what holds in the end */
    _Atomic uint8_t *verdict;
} mr_seen;

/* What the k numbers of a row of a are, as packing finds it. */
mr_gemm_range mr__row_range(const mr_gemm_side *a, int64_t row, int64_t k);

void mr__ranges_begin(mr_ranges *r);
void mr__ranges_take(mr_ranges *r, mr_gemm_range x);
mr_gemm_range mr__ranges_read(mr_ranges *r);
mr_ranges *mr__seen_a(const mr_seen *s, int64_t item, int64_t panel);
mr_ranges *mr__seen_b(const mr_seen *s, int64_t item);
/* Is every row of an item's panel known to be none that can go in pieces?
 * Where the panel does not fit its rows are looked at, once. */
bool mr__seen_hopeless(const mr_seen *s, int64_t item, int64_t panel);
/* Can all of it? */
bool mr__seen_fit(const mr_seen *s);

/* A product in pieces, by strips or packed; its rows that cannot are made as
 * floats, as if all of it were.  p->form is for pieces. */
size_t mr__product_pieces_bytes(const mr_product *p, bool strips);
void mr__product_pieces(const mr_product *p, bool strips, void *workspace);

/* Do all items of a batch have the same of this side (0: a, 1: b)? */
bool mr__product_side_shared(const mr_walk *batch, int side);
/* The sides of one item. */
void mr__product_item(const mr_product *p, int64_t item, mr_gemm_side *a,
                      mr_gemm_side *b, void **c);
/* The offset of its b, in elements (pack_b: in its own unit). */
int64_t mr__product_offset(const mr_product *p, int64_t item);

/* What follows rows [i, i + m) of an item and columns [j, j + n): they have
 * their last bits. */
void mr__product_after(const mr_product *p, int64_t item, int64_t i, int64_t m,
                       int64_t j, int64_t n);
/* The same of everything, in parallel. */
void mr__product_after_all(const mr_product *p);

/* By the best route; c's columns are adjacent, and so are lanes or depths of
 * both sides.  Workspace: 64-byte aligned, as many bytes as asked for. */
size_t mr__product_bytes(const mr_product *p);
void mr__product_run(const mr_product *p, void *workspace);

/* float32, float16, bfloat16, columns of c adjacent. */
size_t mr__product_packed_bytes(const mr_product *p);
bool mr__product_packed(const mr_product *p, void *workspace);

/* The depth of its chunks, which its bits depend on; nanoseconds of one thread
 * for a number that is packed, and for a multiply-add. */
int64_t mr__product_chunk(const mr_product *p);
double mr__product_pack_ns(const mr_product *p);
double mr__product_ns(const mr_product *p);

/* Small ones in pieces, by more threads than one.  0 bytes, false: it goes no
 * such way. */
size_t mr__product_grid_bytes(const mr_product *p);
bool mr__product_grid(const mr_product *p, void *workspace);

/* Its way where b is to stay in a large second-level cache. */
bool mr__product_near_fits(const mr_product *p);
size_t mr__product_near_bytes(const mr_product *p);
void mr__product_near(const mr_product *p, void *workspace);

/* The same dtypes, up to MR_STRIP_ROWS rows (a whole number of each tier's
 * panels): b is read once and never packed in memory. */
#define MR_STRIP_ROWS 96
bool mr__product_strips_fit(const mr_product *p);
size_t mr__product_strips_bytes(const mr_product *p);
bool mr__product_strips(const mr_product *p, void *workspace);

/* Its parts.  a: m packed rows (mr__strip_floats of them, 64-byte aligned);
 * b (its dtype always), or pack_b as in mr_product. */
typedef struct mr_strip {
    int64_t m, k, at;
    mr_gemm_form form;
    mr_ranges *ranges; /* in pieces */
    const float *a;
    mr_gemm_side b;
    void (*pack_b)(const void *ctx, int64_t at, int width, int64_t panel,
                   int64_t depth0, int64_t depth, float *to);
    const void *pack_ctx;
} mr_strip;

int64_t mr__strip_floats(mr_gemm_form form, mr_dtype t, int64_t m, int64_t k);
bool mr__strip_pack(const mr_gemm_side *a, int64_t k, int64_t panel,
                    mr_gemm_form form, mr_ranges *ranges, float *to);
/* The same of rows that lie anywhere. */
void mr__strip_pack_rows(const float *const *x, int64_t m, int64_t k,
                         int64_t panel, float *to);
/* y (room for MR_STRIP_ROWS rows, mr__gemm_cols() apart) = the product with
 * columns strip * mr__gemm_cols() ... of b.  False: b cannot go in pairs. */
bool mr__strip_run(const mr_strip *s, int64_t strip, float *y);

/* The same dtypes, m <= MR_GEMV_ROWS, lanes or depths of b adjacent. */
bool mr__product_rows_fit(const mr_product *p);
size_t mr__product_rows_bytes(const mr_product *p);
void mr__product_rows(const mr_product *p, void *workspace);

/* The same of float64 (m <= MR_GEMV_ROWS) and complex numbers (half as many).
 */
bool mr__product_rows_wide_fit(const mr_product *p);
size_t mr__product_rows_wide_bytes(const mr_product *p);
void mr__product_rows_wide(const mr_product *p, void *workspace);

/* float32, float64, complex: sides whose lanes or depths are adjacent. */
bool mr__product_blas_side(const mr_gemm_side *s, int64_t depth);
void mr__product_blas(const mr_product *p);
bool mr__product_blas_follows(const mr_product *p);

/* float32 and float64, many items of up to 8 x 8 x 8. */
bool mr__product_tiny_fits(const mr_product *p);
void mr__product_tiny(const mr_product *p);

/* Any dtype but halves, any strides. */
void mr__product_plain(const mr_product *p);

#endif
