/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax_columns.c -- softmax down columns that lie side by side.
 *
 * Of float32 and halves.  A panel of columns is widened once, into memory that
 * stays in a cache; the program of blocks.c would read and widen it for each of
 * its passes, and compute the exponentials twice.  The same functions in the
 * same order, so the same bits: columns are one block of points at most.
 * Called by: blocks.c.  Calls: kernels/tier, the pool.
 */
#include "cpu/softmax_columns.h"

#include <string.h>

#include "base/pool.h"
#include "cpu/cpu.h"
#include "kernels/tier/tier.h"

enum {
    AHEAD = 7,     /* rows brought near before they are wanted: often in the
                      same sets of the first cache, which has 8 ways */
    ROWS = 16,     /* of a panel at a time */
    SHORTEST = 64, /* columns; below, the program is as good */
    NARROW = 64,   /* columns of a panel */
    WIDE = 128,    /* the same where columns are no longer than ... */
    WIDE_POINTS = 2048, /* ... this, which a second cache holds */
    MAX_SLOTS = 64
};

typedef struct columns {
    const mr_tier *tier;
    mr_dtype dtype;
    const char *in;
    char *out;
    int64_t in_bytes, out_bytes; /* from row to row */
    int64_t n, n_columns, width; /* width: of a panel */
} columns;

static bool
columns_of(mr_dtype t, const mr_block_launch *l, columns *c)
{
    int64_t item = mr__dtype_size(t);

    if ((t != MR_FLOAT16 && t != MR_BFLOAT16 && t != MR_FLOAT32) ||
        l->n_red != 1 || l->n_kept != 1 || l->dim[1] < SHORTEST ||
        l->dim[1] > MR_RED_BLOCK || l->dim[0] < NARROW ||
        l->in[0].stride[0] != item || l->out[0].stride[0] != item)
        return false;
    *c = (columns){.tier = mr__tier(),
                   .dtype = t,
                   .in = l->in[0].data,
                   .out = l->out[0].data,
                   .in_bytes = l->in[0].stride[1],
                   .out_bytes = l->out[0].stride[1],
                   .n = l->dim[1],
                   .n_columns = l->dim[0],
                   .width = l->dim[1] <= WIDE_POINTS ? WIDE : NARROW};
    return true;
}

/* Where the parts of a slot begin, in floats. */
typedef struct parts {
    int64_t lanes, fixed, end; /* the panel itself is first */
} parts;

static parts
parts_of(const columns *c)
{
    parts p = {.lanes = c->n * c->width};

    p.fixed = p.lanes + MR_LANES * c->width;
    p.end = p.fixed + c->width;
    return p;
}

/* Threads at work, about 32k elements each. */
static int
slots_of(const columns *c)
{
    int64_t n = mr__pool_threads(), pieces = 1 + c->n * c->n_columns / 32768;

    n = n < MAX_SLOTS ? n : MAX_SLOTS;
    return (int)(n < pieces ? n : pieces);
}

/* Rows lie far apart: no machine guesses the next. */
static void
row_near(const char *p, int64_t bytes)
{
    for (int64_t b = 0; b < bytes; b += 64)
        __builtin_prefetch(p + b);
    __builtin_prefetch(p + bytes - 1);
}

/* w numbers from one dtype to another, or the same. */
static void
row_move(const columns *c, mr_dtype to_dtype, void *to, mr_dtype from_dtype,
         const void *from, int64_t w)
{
    if (to_dtype == from_dtype)
        memcpy(to, from, (size_t)w * sizeof(float));
    else
        c->tier->casts->cast[from_dtype][to_dtype](to, from, w);
}

/* A panel at work: what is done to its rows is done to ROWS of them at a time,
 * which stay in the first cache meanwhile. */
typedef struct piece {
    const columns *c;
    float *x, *lanes, *fixed;
    const char *in;
    char *out;
    int64_t w, row; /* columns; bytes from row to row of x */
} piece;

/* Rows of the panel from r on. */
static int64_t
piece_rows(const piece *p, int64_t r)
{
    return p->c->n - r < ROWS ? p->c->n - r : ROWS;
}

/* The rows brought in, and the largest of each column. */
static void
piece_in(const piece *p)
{
    const columns *c = p->c;
    const mr_fold_fns *max = &c->tier->dtype[MR_FLOAT32]->fold[MR_FOLD_MAX];
    int64_t bytes = p->w * mr__dtype_size(c->dtype);

    max->fill(p->fixed, p->w);
    for (int64_t r = 0; r < c->n; r += ROWS) {
        int64_t end = r + piece_rows(p, r);

        for (int64_t i = r; i < end; i++) {
            if (i + AHEAD < c->n)
                row_near(p->in + (i + AHEAD) * c->in_bytes, bytes);
            row_move(c, MR_FLOAT32, p->x + i * p->w, c->dtype,
                     p->in + i * c->in_bytes, p->w);
        }
        max->cols(p->fixed, 0, p->x + r * p->w, p->row, 0, end - r, p->w);
    }
}

/* Exponentials, and their sums. */
static void
piece_exp(const piece *p)
{
    const columns *c = p->c;
    const mr_fold_fns *sum = &c->tier->dtype[MR_FLOAT32]->fold[MR_FOLD_SUM];

    sum->fill(p->lanes, MR_LANES * p->w);
    c->tier->dtype[MR_FLOAT32]->columns.exp(p->x, p->lanes, p->fixed, c->n,
                                            p->w);
    sum->cols_done(p->lanes, p->row, c->n < MR_LANES ? c->n : MR_LANES, p->w);
}

/* Over the sums, to where they belong: floats at once. */
static void
piece_out(const piece *p)
{
    const columns *c = p->c;
    const mr_column_fns *f = &c->tier->dtype[MR_FLOAT32]->columns;
    int64_t bytes = p->w * mr__dtype_size(c->dtype);
    const float *sum = p->lanes;
    const float *inverse = f->inverse(p->fixed, sum, p->w) ? p->fixed : NULL;

    for (int64_t i = 0; i < c->n; i++) {
        float *x = p->x + i * p->w;
        char *out = p->out + i * c->out_bytes;
        bool floats = c->dtype == MR_FLOAT32;

        if (i + AHEAD < c->n)
            row_near(out + AHEAD * c->out_bytes, bytes);
        f->over(floats ? (void *)out : x, x, sum, inverse, p->w);
        if (!floats)
            row_move(c, c->dtype, out, MR_FLOAT32, x, p->w);
    }
}

static void
panel(const void *ctx, int64_t unit, char *slot)
{
    const columns *c = ctx;
    int64_t j = unit * c->width,
            w = c->n_columns - j < c->width ? c->n_columns - j : c->width;
    int64_t item = mr__dtype_size(c->dtype);
    float *x = (float *)(void *)slot;
    parts at = parts_of(c);
    piece p = {.c = c,
               .x = x,
               .lanes = x + at.lanes,
               .fixed = x + at.fixed,
               .in = c->in + j * item,
               .out = c->out + j * item,
               .w = w,
               .row = w * (int64_t)sizeof(float)};

    piece_in(&p);
    piece_exp(&p);
    piece_out(&p);
}

size_t
mr__softmax_columns_bytes(mr_dtype t, const mr_block_launch *l)
{
    columns c;

    if (!columns_of(t, l, &c))
        return 0;
    return (size_t)(slots_of(&c) * parts_of(&c).end) * sizeof(float);
}

bool
mr__softmax_columns(mr_dtype t, const mr_block_launch *l, void *workspace)
{
    columns c;

    if (!columns_of(t, l, &c))
        return false;
    mr__cpu_units(slots_of(&c), (c.n_columns - 1) / c.width + 1, workspace,
                  (size_t)parts_of(&c).end * sizeof(float), panel, &c);
    return true;
}
