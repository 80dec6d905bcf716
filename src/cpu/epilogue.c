/* SPDX-License-Identifier: Apache-2.0
 *
 * epilogue.c -- elementwise work on a kernel's result, piece by piece.
 *
 * A piece is a rectangle of the result that has its last bits and is in cache:
 * the block program runs over it as over an array of its own, so the bits are
 * those of a run over everything.  It is made ready once, for all pieces.
 * Called by: matmul.c and the routes, conv.c, quant_product.c.  Calls:
 * kernels/ready.h.
 */
#include "cpu/epilogue.h"

#include "cpu/blocks.h"

void
mr__after_make(mr_after *s, const mr_epilogue *e)
{
    s->e = e;
    s->ready = mr__block_make_pieces(e->code, e->launch, &s->room);
}

void
mr__after_piece(const mr_after *s, int64_t row, int64_t n_rows, int64_t col,
                int64_t n_cols)
{
    mr_block_piece p = {row, n_rows, col, n_cols};

    mr__block_run_piece(s->ready, s->e->launch, &p);
}

/* ---- in parallel ----------------------------------------------------------
 */

void
mr__after_all(const mr_epilogue *e)
{
    mr_block_launch l = *e->launch;

    mr__block_normalise(e->code, &l);
    /* without reductions there is nothing that can fail */
    (void)mr__cpu_run_block(e->code, &l, NULL);
}

typedef struct region {
    mr_after after;
    int64_t row, col, n_cols;
} region;

static void
region_piece(void *ctx, int64_t begin, int64_t end)
{
    const region *r = ctx;

    mr__after_piece(&r->after, r->row + begin, end - begin, r->col, r->n_cols);
}

void
mr__after_region(const mr_epilogue *e, int64_t row, int64_t n_rows, int64_t col,
                 int64_t n_cols)
{
    const mr_block_launch *l = e->launch;
    int64_t rows = 1;
    region r = {.row = row, .col = col, .n_cols = n_cols};

    for (int d = 0; d < l->n_kept - 1; d++)
        rows *= l->dim[d];
    if (n_rows == rows && n_cols == l->dim[l->n_kept - 1]) {
        mr__after_all(e);
        return;
    }
    mr__after_make(&r.after, e);
    mr__cpu_for(n_rows, mr__cpu_grain(0.3 * (double)(n_cols * e->code->n_inst)),
                region_piece, &r);
}
