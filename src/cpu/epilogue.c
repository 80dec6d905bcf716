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

#include <string.h>

#include "cpu/blocks.h"

/* Time of a product whose tiles are followed to that of one which is followed
 * as a whole, one thread of a busy Zen 4 (32 MiB of third-level cache), float32
 * (bench/epilogue.py):
 *
 *     rows x depth x columns   bias, relu   residual   momentum (2 results)
 *     1024 x 32 x 1024            1.08        1.05       1.20
 *     1024 x 256 x 1024           0.97        1.07       1.12
 *     2048 x 64 x 2048            0.85        1.09       1.17
 *     2048 x 256 x 2048           0.97        1.06       1.13
 *     4096 x 32 x 4096            0.75
 *
 * A tile's rows of another matrix are far apart, so the processor does not see
 * them coming, which costs more than the product's second way through memory.
 * Results that stay in cache lose nothing by waiting. */
bool
mr__after_pays(const mr_epilogue *e, int64_t bytes)
{
    enum { BEYOND_CACHE = 8 << 20 };
    const mr_block_launch *l = e->launch;
    int n_whole = 0;

    for (int i = 0; i < e->code->n_in; i++) {
        bool whole = false;

        for (int d = 0; d < l->n_kept - 1; d++)
            whole = whole || l->in[i].stride[d] != 0;
        n_whole += whole;
        if (whole && l->in[i].data != l->out[0].data)
            return false;
    }
    return bytes >= BEYOND_CACHE && n_whole == 1 && e->code->n_out == 1;
}

void
mr__after_make(mr_after *s, const mr_epilogue *e)
{
    s->e = e;
    s->ready = e->pieces != NULL
                   ? e->pieces
                   : mr__block_make_pieces(e->code, e->launch, &s->room);
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

typedef struct region {
    mr_after after;
    int64_t row, col, n_cols;
    int64_t wide, n_parts; /* a row in so many parts */
} region;

static void
region_piece(void *ctx, int64_t begin, int64_t end)
{
    const region *r = ctx;

    if (r->n_parts == 1) {
        mr__after_piece(&r->after, r->row + begin, end - begin, r->col,
                        r->n_cols);
        return;
    }
    for (int64_t u = begin; u < end; u++) {
        int64_t at = u % r->n_parts * r->wide, left = r->n_cols - at;

        mr__after_piece(&r->after, r->row + u / r->n_parts, 1, r->col + at,
                        left < r->wide ? left : r->wide);
    }
}

static void
by_pieces(const mr_epilogue *e, int64_t row, int64_t n_rows, int64_t col,
          int64_t n_cols)
{
    enum { LONG_ROW = 16384 };
    region r = {.row = row, .col = col, .n_cols = n_cols};
    double ns;

    mr__after_make(&r.after, e);
    r.wide = n_cols < LONG_ROW ? n_cols : LONG_ROW;
    r.n_parts = (n_cols - 1) / r.wide + 1;
    ns = 0.2 * (double)(r.wide * e->code->n_inst);
    mr__cpu_for(n_rows * r.n_parts, mr__cpu_grain(ns), region_piece, &r);
}

static int64_t
all_rows(const mr_epilogue *e)
{
    int64_t n = 1;

    for (int d = 0; d < e->launch->n_kept - 1; d++)
        n *= e->launch->dim[d];
    return n;
}

static void
io_copy(mr_block_io *to, const mr_block_io *from, int n, int32_t n_dims)
{
    for (int i = 0; i < n; i++) {
        to[i].data = from[i].data;
        memcpy(to[i].stride, from[i].stride,
               (size_t)n_dims * sizeof *to[i].stride);
    }
}

/* What there is of a launch: the struct has room for much more. */
static void
launch_copy(mr_block_launch *to, const mr_epilogue *e)
{
    const mr_block_launch *l = e->launch;

    to->n_kept = l->n_kept;
    to->n_red = 0;
    memcpy(to->dim, l->dim, (size_t)l->n_kept * sizeof *l->dim);
    io_copy(to->in, l->in, e->code->n_in, l->n_kept);
    io_copy(to->out, l->out, e->code->n_out, l->n_kept);
}

/* Without reductions there is nothing that can fail. */
static void
at_once(const mr_epilogue *e)
{
    void *in[MR_CODE_MAX_IO], *out[MR_CODE_MAX_IO];
    mr_block_launch l;

    if (e->ready == NULL) {
        launch_copy(&l, e);
        mr__block_normalise(e->code, &l);
        (void)mr__cpu_run_block(e->code, &l, NULL);
        return;
    }
    for (int i = 0; i < e->code->n_in; i++)
        in[i] = e->launch->in[i].data;
    for (int i = 0; i < e->code->n_out; i++)
        out[i] = e->launch->out[i].data;
    (void)mr__cpu_run_ready(e->ready, in, out, NULL);
}

void
mr__after_all(const mr_epilogue *e)
{
    if (e->pieces != NULL)
        by_pieces(e, 0, all_rows(e), 0, e->launch->dim[e->launch->n_kept - 1]);
    else
        at_once(e);
}

void
mr__after_region(const mr_epilogue *e, int64_t row, int64_t n_rows, int64_t col,
                 int64_t n_cols)
{
    if (n_rows == all_rows(e) &&
        n_cols == e->launch->dim[e->launch->n_kept - 1])
        mr__after_all(e);
    else
        by_pieces(e, row, n_rows, col, n_cols);
}
