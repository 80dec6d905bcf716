/* SPDX-License-Identifier: Apache-2.0
 *
 * attend_back.c -- the gradients of attention, without the weights in memory.
 *
 * With P the weights, G what comes back to the output O and D the sum of G * O
 * over a row: what comes back to the scores is S' = P * (G v^T - D), and dq =
 * scale S' k, dk = scale S'^T q, dv = P^T G (T. Dao and others,
 * "FlashAttention", 2022).  A first round of tiles (attend.c) finds each row's
 * largest score and sum, so P is made again, exactly as it was, a tile at a
 * time (attend_back_tile.c): other scores, as exact as they are, would give
 * rows of P whose sum is not 1, by the error of a score.
 *
 * With enough items a unit is an item and does everything; otherwise units are
 * runs of rows, for dq, then blocks of keys, for dk and dv.  Each element adds
 * the same tiles in the same order both ways, so the bits are those of any
 * number of threads.
 *
 * Where there is a matrix unit, all products of an item are of pieces if its
 * four operands may be split into such (asked once, of all of it), and none
 * otherwise: so an item has the same bits alone and beside others, however the
 * work is cut.
 * Called by: device.c.  Calls: attend.c, attend_back_tile.c, kernels/attend.h,
 * kernels/gemm.h.
 */
#include "cpu/attend_back.h"

#include <math.h>
#include <string.h>

#include "kernels/tier/tier.h"

enum {
    ROWS = 144,       /* a multiple of every tier's rows */
    PIECES_ROWS = 96, /* and of the matrix unit's */
    KEYS = MR_ATTEND_BACK_KEYS,
    BLOCK_FLOATS = 250000,
    MAX_BLOCK = 1024,
    STEP = MR_GEMM_PIECES_STEP,
    RUN_TILES = 4,        /* of rows, where these are units */
    ITEM_FLOATS = 262144, /* of dq, where it is a half */
    OPERANDS = 4          /* that are asked whether they may be split */
};

/* ---- the plan --------------------------------------------------------------
 */

static int64_t
least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Too few items to be units, or dq of one is too large to be held back: runs of
 * rows and blocks of keys, short ones where threads would have few. */
static void
plan_passes(mr_attend_back *b)
{
    const mr_attend_job *j = &b->j;

    b->want = 0;
    while (b->block > KEYS && b->items * (j->lk / b->block) < 3 * j->n_slots)
        b->block -= KEYS;
    while (b->run > b->tile && b->items * (j->rows / b->run) < 3 * j->n_slots)
        b->run -= b->tile;
}

static void
back_plan(const mr_kernel_args *a, mr_attend_back *b)
{
    mr_attend_job *j = &b->j;
    int64_t per, whole;

    *b = (mr_attend_back){.g = a->in[a->n_in - 2],
                          .o = a->in[a->n_in - 1],
                          .dq = a->out[0].data,
                          .dk = a->out[1].data,
                          .dv = a->out[2].data,
                          .dsinks = a->out[3].data,
                          .tier = mr__attend(),
                          .cols = mr__gemm_cols(),
                          .high = mr__gemm_rows(),
                          .want = MR_ATTEND_WANT_Q | MR_ATTEND_WANT_KV};
    mr__attend_job(a, j);
    b->by_vectors = *j;
    mr__attend_by_vectors(&b->by_vectors);
    b->items = j->batch * j->heads;
    b->weights = MR_ATTEND_PIECES(j->pieces);
    b->form = j->pieces > 0              ? MR_GEMM_IN_PIECES
              : mr__gemm_pairs(j->dtype) ? MR_GEMM_IN_PAIRS
                                         : MR_GEMM_FLOATS;
    b->tile = j->pieces > 0 ? PIECES_ROWS : ROWS;
    b->k_panels = mr__attend_up(j->depth, b->cols) / b->cols;
    whole = j->pieces > 0 ? STEP * 3 : b->high; /* of both kinds of panels */
    b->deep = mr__attend_up(j->depth, whole);
    b->wide = mr__attend_up(j->width, whole);
    per = 2 * j->depth + 2 * j->width + b->k_panels * b->cols + 1;
    b->block = BLOCK_FLOATS / per / KEYS * KEYS;
    b->block = b->block < KEYS ? KEYS : least_of(b->block, MAX_BLOCK);
    b->block = least_of(b->block, mr__attend_up(j->lk, KEYS));
    b->run = RUN_TILES * b->tile;
    if (b->items < 2 * j->n_slots ||
        (j->dtype != MR_FLOAT32 && j->rows * j->depth > ITEM_FLOATS))
        plan_passes(b);
    b->n_blocks = j->lk > 0 ? (j->lk - 1) / b->block + 1 : 0;
    b->q_floats =
        j->dtype == MR_FLOAT32 ? 0 : (b->want ? j->rows : b->run) * j->depth;
}

/* ---- rows: their largest scores, sums and D --------------------------------
 */

static int64_t
rows_floats(const mr_attend_back *b)
{
    return mr__attend_lines(b->items * b->j.rows);
}

/* Of items in pieces, or of all where there are none. */
static void
stats_job(const mr_attend_back *b, mr_attend_job *j)
{
    *j = b->j;
    j->width = 0;
    j->in_pieces = j->pieces > 0 ? b->pieces : NULL;
    j->top = b->top;
    j->sum = b->scale;
}

/* Of the others.  The output that came was made of other scores, which D would
 * show: so it is made again. */
static void
others_job(const mr_attend_back *b, mr_attend_job *j)
{
    *j = b->by_vectors;
    j->in_pieces = b->pieces;
    j->top = b->top;
    j->sum = b->scale;
    j->dot = b->dot;
    j->g = &b->g;
}

static void
dots_unit(const void *ctx, int64_t unit_, char *slot)
{
    const mr_attend_back *b = ctx;
    const mr_attend_job *j = &b->j;
    float *g = (float *)(void *)slot, *o = g + mr__attend_lines(j->width);
    int64_t n_units = (j->rows - 1) / ROWS + 1, item = unit_ / n_units;
    int64_t r = unit_ % n_units * ROWS, end = r + ROWS;

    for (end = end < j->rows ? end : j->rows; r < end; r++) {
        int64_t at = item * j->rows + r;

        b->scale[at] = 1.0F / b->scale[at];
        if (j->pieces > 0 && !b->pieces[item])
            continue;
        mr__attend_row(j, &b->g, item, r, j->width, g);
        mr__attend_row(j, &b->o, item, r, j->width, o);
        b->tier->dots[MR_GEMM_FLOAT32](b->dot + at, g, o, j->width, 1, j->width,
                                       0);
    }
}

static size_t
dots_bytes(const mr_attend_back *b)
{
    return (size_t)(2 * mr__attend_lines(b->j.width)) * sizeof(float);
}

/* ---- may an item be split into pieces?  ------------------------------------
 */

/* each: every row by itself, as queries are asked. */
static bool
rows_fit(const mr_kernel_view *x, int64_t at, bool each, float *spare)
{
    bool fits = true;
    mr_gemm_range r;

    for (int64_t i = 0, n = x->dim[2]; fits && i < n; i += STEP) {
        mr_gemm_side side = {mr__attend_place(x, at + i * x->stride[2]),
                             x->dtype, least_of(n - i, STEP), x->stride[2],
                             x->stride[3]};

        if (x->dim[3] == 0)
            continue;
        r = mr__gemm_pack_pieces(&side, false, 0, 1, 0, x->dim[3], spare, 0);
        fits = mr__gemm_range_fits(x->dtype, r) &&
               (!each || mr__attend_unfit(&side, r, x->dim[3]) == 0);
    }
    return fits;
}

/* One of an item's operands, all heads of it. */
static void
fits_unit(const void *ctx, int64_t number, char *slot)
{
    const mr_attend_back *b = ctx;
    const mr_kernel_view *of[OPERANDS] = {&b->j.q, &b->g, &b->j.k, &b->j.v};
    const mr_kernel_view *x = of[number % OPERANDS];
    int64_t heads = x->dim[1], each = heads / b->j.heads;
    bool fits = true;

    for (int64_t h = number / OPERANDS * each, i = 0; fits && i < each; i++)
        fits = rows_fit(x, mr__attend_offset(x, h + i, heads), x == of[0],
                        (float *)(void *)slot);
    b->pieces[number] = fits;
}

static size_t
fits_bytes(const mr_attend_back *b)
{
    int64_t most = b->j.depth > b->j.width ? b->j.depth : b->j.width;

    return (size_t)(STEP * mr__gemm_steps(b->form, b->j.dtype, most)) *
           sizeof(float);
}

/* b->pieces, of each operand, then of each item; are they all? */
static bool
items_ask(mr_attend_back *b, char *workspace)
{
    bool all = true;

    memset(b->pieces, 0, (size_t)(b->items * OPERANDS) * sizeof *b->pieces);
    if (b->form != MR_GEMM_IN_PIECES)
        return true;
    mr__cpu_units(b->j.n_slots, b->items * OPERANDS, workspace, fits_bytes(b),
                  fits_unit, b);
    for (int64_t i = 0; i < b->items; i++) {
        const bool *of = b->pieces + i * OPERANDS;

        b->pieces[i] = of[0] && of[1] && of[2] && of[3];
        all = all && b->pieces[i];
    }
    return all;
}

/* ---- sinks -----------------------------------------------------------------
 */

/* -(weight of the sink) * D, over the rows of a query head. */
static void
sinks_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_attend_back *b = ctx;
    const mr_attend_job *j = &b->j;

    for (int64_t h = begin; h < end; h++) {
        int64_t item = h / j->group, r0 = h % j->group * j->lq;
        float sink = mr__attend_sink(j, item, r0);
        double sum = 0.0;

        for (int64_t i = 0; j->sinks && i < j->lq; i++) {
            int64_t at = item * j->rows + r0 + i;

            sum -= exp((double)sink - (double)b->top[at]) *
                   (double)b->scale[at] * (double)b->dot[at];
        }
        b->dsinks[h] = (float)sum;
    }
}

/* ---- units -----------------------------------------------------------------
 */

static int64_t
n_runs(const mr_attend_back *b)
{
    return b->want == MR_ATTEND_WANT_Q ? (b->j.rows - 1) / b->run + 1 : 1;
}

static int64_t
n_spans(const mr_attend_back *b)
{
    return b->want == MR_ATTEND_WANT_KV ? b->n_blocks : 1;
}

static void
back_unit(const void *ctx, int64_t number, char *slot)
{
    const mr_attend_back *b = ctx;
    int64_t item = number % b->items, part = number / b->items;
    int64_t row0 = 0, row1 = b->j.rows, block0 = 0, block1 = b->n_blocks;

    /* the last rows first: causal ones are longer */
    if (b->want == MR_ATTEND_WANT_Q) {
        row0 = (n_runs(b) - 1 - part) * b->run;
        row1 = least_of(row0 + b->run, row1);
    } else if (b->want == MR_ATTEND_WANT_KV) {
        block0 = part;
        block1 = part + 1;
    }
    mr__attend_back_unit(b, item, row0, row1, block0, block1, slot);
}

static void
back_pass(mr_attend_back *b, int want, char *workspace)
{
    b->want = want;
    mr__cpu_units(b->j.n_slots, b->items * n_runs(b) * n_spans(b), workspace,
                  mr__attend_back_slot(b), back_unit, b);
}

/* ---- the row of the table --------------------------------------------------
 */

static bool
back_empty(const mr_attend_back *b)
{
    return b->items * b->j.rows * b->j.lk * b->j.width == 0;
}

/* Three numbers a row, and the answers of items_ask. */
static size_t
kept_bytes(const mr_attend_back *b)
{
    return (size_t)(3 * rows_floats(b)) * sizeof(float) +
           (size_t)mr__attend_up(b->items * OPERANDS, 64) * sizeof *b->pieces;
}

size_t
mr__cpu_attention_back_workspace(const mr_kernel_args *a)
{
    size_t most, other;
    mr_attend_job j;
    mr_attend_back b;

    back_plan(a, &b);
    if (back_empty(&b))
        return 0;
    stats_job(&b, &j);
    most = (size_t)b.j.n_slots * mr__attend_back_slot(&b);
    other = mr__attend_tiles_bytes(&j);
    most = most > other ? most : other;
    others_job(&b, &j);
    other = b.form == MR_GEMM_IN_PIECES ? mr__attend_tiles_bytes(&j) : 0;
    most = most > other ? most : other;
    other = (size_t)b.j.n_slots * dots_bytes(&b);
    most = most > other ? most : other;
    other = (size_t)b.j.n_slots * fits_bytes(&b);
    most = most > other ? most : other;
    return kept_bytes(&b) + most;
}

static void
outputs_clear(const mr_kernel_args *a)
{
    for (int i = 0; i < 4; i++)
        if (a->out[i].size > 0)
            memset(a->out[i].data, 0,
                   (size_t)a->out[i].size *
                       (size_t)mr__dtype_size(a->out[i].dtype));
}

mr_code
mr__cpu_attention_back(const mr_kernel_args *a)
{
    char *workspace = a->workspace;
    mr_attend_job stats;
    bool all;
    int64_t n;
    mr_attend_back b;

    back_plan(a, &b);
    if (back_empty(&b)) {
        outputs_clear(a);
        return MR_OK;
    }
    n = rows_floats(&b);
    b.top = (float *)(void *)workspace;
    b.scale = b.top + n;
    b.dot = b.scale + n;
    b.pieces = (bool *)(void *)(b.dot + n);
    workspace += kept_bytes(&b);
    all = items_ask(&b, workspace);
    stats_job(&b, &stats);
    mr__attend_tiles(&stats, workspace);
    if (!all) {
        others_job(&b, &stats);
        mr__attend_tiles(&stats, workspace);
    }
    mr__cpu_units(b.j.n_slots, b.items * ((b.j.rows - 1) / ROWS + 1), workspace,
                  dots_bytes(&b), dots_unit, &b);
    mr__cpu_for(b.items * b.j.group,
                mr__cpu_grain(10.0 * (double)(b.j.sinks ? b.j.lq : 1)),
                sinks_piece, &b);
    if (b.want) {
        back_pass(&b, b.want, workspace);
        return MR_OK;
    }
    back_pass(&b, MR_ATTEND_WANT_Q, workspace);
    back_pass(&b, MR_ATTEND_WANT_KV, workspace);
    return MR_OK;
}

/* Six products where attention has two. */
double
mr__cpu_attention_back_cost(const mr_kernel_args *a)
{
    return 3.0 * mr__cpu_attention_cost(a);
}
