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
    AHEAD = 16,         /* rows brought near before they are wanted */
    ROWS = 16,          /* of a panel at a time */
    SHORTEST = 64,      /* columns; below, the program is as good */
    NARROW = 64,        /* columns of a panel */
    WIDE = 128,         /* the same where columns are no longer than ... */
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
    p.end = p.fixed + ROWS * c->width;
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

/* x = k of x and one value a column, which is in front of `fixed`; then its
 * exponential, if wanted. */
static void
with_fixed(const columns *c, float *x, float *fixed, mr_k k, bool exp,
           int64_t w)
{
    mr_chain_op op[2] = {{fixed, 1, (int32_t)k}, {NULL, 0, MR_K_EXP}};

    for (int64_t r = 1; r < ROWS; r++)
        memcpy(fixed + r * w, fixed, (size_t)w * sizeof *fixed);
    for (int64_t r = 0; r < c->n; r += ROWS, x += ROWS * w) {
        int64_t rows = c->n - r < ROWS ? c->n - r : ROWS;

        c->tier->dtype[MR_FLOAT32]->chain(x, x, 1, op, exp ? 2 : 1, rows * w);
    }
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

static void
panel(const void *ctx, int64_t unit, char *slot)
{
    const columns *c = ctx;
    const mr_tier_dtype *f = c->tier->dtype[MR_FLOAT32];
    const mr_fold_fns *max = &f->fold[MR_FOLD_MAX],
                      *sum = &f->fold[MR_FOLD_SUM];
    int64_t j = unit * c->width,
            w = c->n_columns - j < c->width ? c->n_columns - j : c->width;
    int64_t item = mr__dtype_size(c->dtype), row = w * (int64_t)sizeof(float);
    float *x = (float *)(void *)slot;
    parts p = parts_of(c);
    float *lanes = x + p.lanes, *fixed = x + p.fixed;
    const char *in = c->in + j * item;
    char *out = c->out + j * item;

    for (int64_t r = 0; r < c->n; r++) {
        if (r + AHEAD < c->n)
            row_near(in + (r + AHEAD) * c->in_bytes, w * item);
        row_move(c, MR_FLOAT32, x + r * w, c->dtype, in + r * c->in_bytes, w);
    }
    max->fill(fixed, w);
    max->cols(fixed, 0, x, row, 0, c->n, w);
    with_fixed(c, x, fixed, MR_K_SUBTRACT, true, w);
    sum->fill(lanes, MR_LANES * w);
    sum->cols(lanes, row, x, row, 0, c->n, w);
    sum->cols_done(lanes, row, c->n < MR_LANES ? c->n : MR_LANES, w);
    memcpy(fixed, lanes, (size_t)row);
    with_fixed(c, x, fixed, MR_K_DIVIDE, false, w);
    for (int64_t r = 0; r < c->n; r++) {
        if (r + AHEAD < c->n)
            row_near(out + (r + AHEAD) * c->out_bytes, w * item);
        row_move(c, c->dtype, out + r * c->out_bytes, MR_FLOAT32, x + r * w, w);
    }
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
