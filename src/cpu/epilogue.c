/* SPDX-License-Identifier: Apache-2.0
 *
 * epilogue.c -- elementwise work on a kernel's result, piece by piece.
 *
 * A piece is a rectangle of the result that has its last bits and is in cache:
 * the block program runs over it as over an array of its own, so the bits are
 * those of a run over everything.  A program costs a microsecond or two to make
 * ready; a piece of 40 microseconds of a product does not feel it.
 * Called by: matmul.c and the routes, conv.c, quant_product.c.  Calls:
 * kernels/ready.h.
 */
#include "cpu/blocks.h"
#include "cpu/cpu.h"
#include "kernels/ready.h"

/* The launch over rows [row, row + n_rows) of one run of the rows' last dim. */
static void
piece_launch(const mr_epilogue *e, int64_t row, int64_t n_rows, int64_t col,
             int64_t n_cols, mr_block_launch *l)
{
    const mr_block_launch *w = e->launch;
    int last = w->n_kept - 1;
    int n_io = e->code->n_in + e->code->n_out;

    l->n_kept = 2;
    l->n_red = 0;
    l->dim[0] = n_rows;
    l->dim[1] = n_cols;
    for (int k = 0; k < n_io; k++) {
        bool in = k < e->code->n_in;
        int at = in ? k : k - e->code->n_in;
        const mr_block_io *from = in ? &w->in[at] : &w->out[at];
        mr_block_io *to = in ? &l->in[at] : &l->out[at];
        int64_t left = row, offset = col * from->stride[last];

        for (int d = last - 1; d >= 0; d--) {
            offset += left % w->dim[d] * from->stride[d];
            left /= w->dim[d];
        }
        to->data = (char *)from->data + offset;
        to->stride[0] = last > 0 ? from->stride[last - 1] : 0;
        to->stride[1] = from->stride[last];
    }
    mr__block_normalise(e->code, l);
}

void
mr__cpu_epilogue(const mr_epilogue *e, int64_t row, int64_t n_rows, int64_t col,
                 int64_t n_cols)
{
    const mr_block_launch *w = e->launch;
    int64_t run = w->n_kept > 1 ? w->dim[w->n_kept - 2] : 1;
    mr_block_launch l;
    mr_block_room room;

    for (int64_t n; n_rows > 0; row += n, n_rows -= n) {
        const mr_block_ready *ready;

        n = run - row % run < n_rows ? run - row % run : n_rows;
        piece_launch(e, row, n, col, n_cols, &l);
        ready = mr__block_make_ready(e->code, &l, &room);
        (void)mr__block_run_ready(ready, &l, NULL, 0, 0, ready->plan.n_units);
    }
}

/* ---- in parallel ----------------------------------------------------------
 */

typedef struct region {
    const mr_epilogue *e;
    int64_t row, col, n_cols;
} region;

static void
region_piece(void *ctx, int64_t begin, int64_t end)
{
    const region *r = ctx;

    mr__cpu_epilogue(r->e, r->row + begin, end - begin, r->col, r->n_cols);
}

static void
all_at_once(const mr_epilogue *e)
{
    mr_block_launch l = *e->launch;

    mr__block_normalise(e->code, &l);
    /* without reductions it cannot fail */
    (void)mr__cpu_run_block(e->code, &l, NULL);
}

void
mr__cpu_epilogue_spread(const mr_epilogue *e, int64_t row, int64_t n_rows,
                        int64_t col, int64_t n_cols)
{
    const mr_block_launch *w = e->launch;
    int64_t rows = 1;
    region r = {e, row, col, n_cols};

    for (int d = 0; d < w->n_kept - 1; d++)
        rows *= w->dim[d];
    if (n_rows == rows && n_cols == w->dim[w->n_kept - 1])
        all_at_once(e);
    else
        mr__cpu_for(n_rows,
                    mr__cpu_grain(0.3 * (double)(n_cols * e->code->n_inst)),
                    region_piece, &r);
}
