/* SPDX-License-Identifier: Apache-2.0
 *
 * interp.c -- runs block programs.
 *
 * A unit is a range of tiles.  For each tile the interpreter brings in the
 * inputs that are not contiguous, then runs step after step over the whole
 * tile: one indirect call of a kernel for each.  schedule.h says what tiles
 * and passes are; program.h, in what order reductions add up.
 * Called by: cpu/.  Calls: the kernels of the tier in use.
 */
#include <assert.h>
#include <string.h>

#include "base/control.h"
#include "kernels/copy.h"
#include "kernels/ready.h"
#include "kernels/run.h"

typedef mr_run run;

#define at_own    mr__at_own
#define at_row    mr__at_row
#define at_lanes  mr__at_lanes
#define at_blocks mr__at_blocks
#define reg_size  mr__reg_size

static int64_t
min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void
fill(const run *r, void *out, const void *value, size_t size, int64_t n)
{
    r->tier->moves->fill[__builtin_ctzll(size)](out, value, n);
}

/* ---- steps
 * ------------------------------------------------------------------------ */

static void
step_run(const mr_step *t, void *out, const void *const *arg,
         const int64_t *step, int64_t n, size_t out_size)
{
    if (t->kind == MR_STEP_MAP) {
        t->fn.map(out, arg, step, n);
    } else if (step[0] != 0) {
        t->fn.cast(out, arg[0], n);
    } else {
        for (int64_t i = 0; i < n; i += MR_SPLAT_N)
            t->fn.cast((char *)out + i * (int64_t)out_size, arg[0],
                       min64(n - i, MR_SPLAT_N));
    }
}

static void
value_run(run *r, const mr_step *t, void *out, int64_t n)
{
    const void *arg[3];
    int64_t step[3];

    for (int i = 0; i < t->n_arg; i++) {
        arg[i] = r->ptr[t->arg[i]];
        step[i] = r->step[t->arg[i]];
    }
    step_run(t, out, arg, step, n, reg_size(r, t->dst));
    r->ptr[t->dst] = out;
    r->step[t->dst] = 1;
}

/* Steps i ... of a pass as one chain; its value goes to `out`. */
static void
chain_run(run *r, const mr_pass *pass, int i, void *out, int64_t n)
{
    const mr_step *t = &r->low->step[pass->step[i]];
    uint16_t v = t->arg[0], first = v;
    mr_chain_op op[MR_CHAIN_STEPS];
    int n_op = pass->chain[i];

    for (int k = 0; k < n_op; k++, v = t->dst) {
        t = &r->low->step[pass->step[i + k]];
        op[k] = (mr_chain_op){.k = t->k};
        if (t->n_arg == 2) {
            bool turned = t->arg[0] != v;
            uint16_t other = t->arg[turned ? 0 : 1];

            op[k].arg = r->ptr[other];
            op[k].step = r->step[other];
            if (turned)
                op[k].k += MR_N_K;
            else if (k > 0 && other == v)
                op[k] = (mr_chain_op){.k = MR_K_SQUARE};
        }
    }
    r->tier->dtype[r->low->dtype[v]]->chain(out, r->ptr[first], r->step[first],
                                            op, n_op, n);
    r->ptr[v] = out;
    r->step[v] = 1;
}

/* Make the values of a row register usable along the rows of the tile. */
static void
publish(run *r, int reg, int64_t outer, int64_t inner)
{
    int64_t size = (int64_t)reg_size(r, reg);
    char *row = at_row(r, reg), *own = at_own(r, reg);

    if (mr__tile_rows(&r->s->g) == 1) {
        fill(r, row, row, (size_t)size, MR_SPLAT_N);
        r->ptr[reg] = row;
        r->step[reg] = 0;
        return;
    }
    if (!r->s->spread[reg])
        return;
    if (r->s->g.strategy == MR_RUN_ROWS) {
        for (int64_t i = 0; i < outer; i++)
            fill(r, own + i * inner * size, row + i * size, (size_t)size,
                 inner);
    } else {
        for (int64_t i = 0; i < outer; i++)
            memcpy(own + i * inner * size, row, (size_t)(inner * size));
    }
    r->ptr[reg] = own;
    r->step[reg] = 1;
}

static void
row_run(run *r, const mr_step *t, int64_t outer, int64_t inner)
{
    const void *arg[3];
    int64_t step[3];

    for (int i = 0; i < t->n_arg; i++) {
        bool row = r->low->row[t->arg[i]];

        arg[i] = row ? at_row(r, t->arg[i]) : at_own(r, t->arg[i]);
        step[i] = row;
    }
    step_run(t, at_row(r, t->dst), arg, step, r->rows, reg_size(r, t->dst));
    publish(r, t->dst, outer, inner);
}

/* The row steps that belong before the values of pass p. */
static void
rows_of_pass(run *r, int p, int64_t outer, int64_t inner)
{
    for (int i = 0; i < r->low->n_step; i++) {
        const mr_step *t = &r->low->step[i];

        if (t->row && r->low->phase[t->dst] == p)
            row_run(r, t, outer, inner);
    }
}

/* ---- operands in memory
 * ------------------------------------------------------------- */

/* Where point p of a row lies from the row's start. */
static int64_t
point_offset(const mr_block_launch *l, const mr_block_io *io, int64_t p)
{
    int64_t at = 0;

    for (int d = l->n_kept + l->n_red - 1; d >= l->n_kept && p != 0; d--) {
        at += p % l->dim[d] * io->stride[d];
        p /= l->dim[d];
    }
    return at;
}

static bool
points_apart(const run *r)
{
    const mr_geometry *g = &r->s->g;

    return r->l->n_red > 1 &&
           (g->strategy == MR_RUN_ROWS || g->strategy == MR_RUN_LONG);
}

/* Points [p, p + n) of one row whose reduced dims are not one in memory: the
 * pieces along the last one. */
static int64_t
piece_length(const mr_block_launch *l, int64_t p, int64_t n)
{
    int64_t last = l->dim[l->n_kept + l->n_red - 1];

    return min64(n, last - p % last);
}

static void
points_in(const mr_block_launch *l, const mr_block_io *io, char *tile,
          const char *memory, size_t size, int64_t p, int64_t n)
{
    int64_t stride = io->stride[l->n_kept + l->n_red - 1];

    for (int64_t m; n > 0; p += m, n -= m, tile += m * (int64_t)size) {
        m = piece_length(l, p, n);
        mr__copy_in(size, tile, memory + point_offset(l, io, p), 1, 0, m,
                    stride);
    }
}

static void
points_out(const mr_block_launch *l, const mr_block_io *io, char *memory,
           const char *tile, size_t size, int64_t p, int64_t n)
{
    int64_t stride = io->stride[l->n_kept + l->n_red - 1];

    for (int64_t m; n > 0; p += m, n -= m, tile += m * (int64_t)size) {
        m = piece_length(l, p, n);
        mr__copy_out(size, memory + point_offset(l, io, p), 0, stride, tile, 1,
                     m);
    }
}

static void
input_bring(run *r, int i, char *from, int64_t outer, int64_t inner, int64_t p)
{
    const mr_geometry *g = &r->s->g;
    const mr_block_io *io = &r->l->in[i];
    size_t size = reg_size(r, i);
    int64_t so = mr__stride_outer(g, r->l, io, (int64_t)size);
    char *own = at_own(r, i);

    if (!points_apart(r)) {
        mr__copy_in(size, own, from, outer, so, inner,
                    mr__stride_inner(g, r->l, io, (int64_t)size));
        return;
    }
    for (int64_t k = 0; k < outer; k++)
        points_in(r->l, io, own + k * inner * (int64_t)size, r->in[i] + k * so,
                  size, p, inner);
}

/* Inputs of a tile whose points start at p. */
static void
inputs_load(run *r, uint32_t inputs, int64_t outer, int64_t inner, int64_t p)
{
    const mr_schedule *s = r->s;

    for (int i = 0; inputs != 0; i++, inputs >>= 1) {
        const mr_block_io *io = &r->l->in[i];
        char *from;

        if (!(inputs & 1) || ((r->low->splat_in >> i) & 1))
            continue;
        from = r->in[i] + point_offset(r->l, io, p);
        r->row_bytes[i] = inner * (int64_t)reg_size(r, i);
        r->step[i] = 1;
        if (((s->direct_in | s->rowwise_in) >> i) & 1) {
            r->ptr[i] = from;
            r->row_bytes[i] =
                mr__stride_outer(&s->g, r->l, io, (int64_t)reg_size(r, i));
            continue;
        }
        r->ptr[i] = at_own(r, i);
        if (r->held[i] == from && r->held_outer[i] == outer &&
            r->held_inner[i] == inner && s->alias_out == 0 &&
            !(points_apart(r) && s->g.strategy == MR_RUN_LONG))
            continue;
        input_bring(r, i, from, outer, inner, p);
        r->held[i] = from;
        r->held_outer[i] = outer;
        r->held_inner[i] = inner;
    }
}

static void
output_store(run *r, int o, int64_t outer, int64_t inner, int64_t p)
{
    const mr_geometry *g = &r->s->g;
    const mr_block_io *io = &r->l->out[o];
    int reg = r->low->out_reg[o];
    size_t size = reg_size(r, reg);
    int64_t so = mr__stride_outer(g, r->l, io, (int64_t)size);
    int64_t si = mr__stride_inner(g, r->l, io, (int64_t)size);
    int64_t row = inner * (int64_t)size;
    const char *tile = r->ptr[reg];

    if (points_apart(r)) {
        for (int64_t k = 0; k < outer; k++)
            points_out(r->l, io, r->out[o] + k * so, tile + k * row, size, p,
                       inner);
        return;
    }
    mr__copy_out(size, r->out[o] + point_offset(r->l, io, p), so, si, tile,
                 outer, inner);
}

static void
outputs_store(run *r, uint32_t outputs, int64_t outer, int64_t inner, int64_t p)
{
    outputs &= ~r->in_place;
    for (int o = 0; outputs != 0; o++, outputs >>= 1) {
        if (outputs & 1)
            output_store(r, o, outer, inner, p);
    }
}

static int64_t
row_stride(const run *r, const mr_block_io *io, size_t size)
{
    const mr_geometry *g = &r->s->g;

    if (g->strategy == MR_RUN_COLS)
        return io->stride[g->inner_dim];
    if (g->strategy == MR_RUN_ROWS && g->outer_dim >= 0)
        return io->stride[g->outer_dim];
    return (int64_t)size;
}

static void
row_inputs_load(run *r, int64_t outer, int64_t inner)
{
    for (int i = 0; i < r->low->n_in; i++) {
        const mr_block_io *io = &r->l->in[i];

        if (!r->low->row[i])
            continue;
        mr__copy_in(reg_size(r, i), at_row(r, i), r->in[i], 1, 0, r->rows,
                    row_stride(r, io, reg_size(r, i)));
        publish(r, i, outer, inner);
    }
}

static void
row_outputs_store(run *r)
{
    for (int o = 0; o < r->low->n_out; o++) {
        int reg = r->low->out_reg[o];

        if (r->low->out_row[o])
            mr__copy_out(reg_size(r, reg), r->out[o], 0,
                         row_stride(r, &r->l->out[o], reg_size(r, reg)),
                         at_row(r, reg), 1, r->rows);
    }
}

/* ---- reductions
 * ----------------------------------------------------------------------- */

static bool
is_fold(const mr_step *t)
{
    return t->kind == MR_STEP_FOLD || t->kind == MR_STEP_ARG;
}

static size_t
acc_size(const mr_step *t)
{
    return mr__elem_size((mr_dtype)t->acc);
}

static bool
is_finite(mr_dtype t, const void *x, int64_t n)
{
    const float *f = x;
    const double *d = x;
    bool ok = true;

    n *= t == MR_COMPLEX64 || t == MR_COMPLEX128 ? 2 : 1;
    if (t == MR_FLOAT32 || t == MR_COMPLEX64)
        for (int64_t i = 0; i < n; i++)
            ok &= __builtin_fabsf(f[i]) < __builtin_inff();
    else
        for (int64_t i = 0; i < n; i++)
            ok &= __builtin_fabs(d[i]) < __builtin_inf();
    return ok;
}

/* From accumulated values to those of the result's register. */
static void
fold_finish(run *r, const mr_step *t, void *acc, int64_t outer, int64_t inner)
{
    _Alignas(64) char count[MR_SPLAT_N * 16];
    mr_dtype dtype = (mr_dtype)r->low->dtype[t->dst], a = (mr_dtype)t->acc;
    const mr_tier *tier = r->tier;
    int64_t points = r->s->g.points;

    if (points == 0 && t->fold == MR_FOLD_SUM)
        memset(acc, 0, acc_size(t) * (size_t)r->rows);
    if (t->k == MR_R_MEAN) {
        mr_const n = {.c128 = {(double)points, 0}}, m;
        bool few = r->rows <= MR_SPLAT_N; /* then no more than these */

        mr__const_cast(&n, MR_FLOAT64, &m, a);
        fill(r, count, m.bytes, acc_size(t), few ? r->rows : MR_SPLAT_N);
        tier->dtype[a]->map[MR_K_DIVIDE](acc, (const void *[]){acc, count},
                                         (int64_t[]){1, few}, r->rows);
        if (points > 0 && !r->low->careful && !is_finite(a, acc, r->rows))
            r->beyond = true;
    }
    if (a != dtype)
        tier->casts->cast[a][dtype](at_row(r, t->dst), acc, r->rows);
    else
        memcpy(at_row(r, t->dst), acc, acc_size(t) * (size_t)r->rows);
    publish(r, t->dst, outer, inner);
}

static void
arg_finish(run *r, const mr_step *t, int64_t outer, int64_t inner)
{
    memcpy(at_row(r, t->dst), at_blocks(r, t->dst),
           sizeof(uint32_t) * (size_t)r->rows);
    publish(r, t->dst, outer, inner);
}

/* A reduction of whole rows, all in the tile. */
static void
fold_rows(run *r, const mr_step *t, int64_t outer, int64_t inner)
{
    int v = t->arg[0];
    const char *x = r->ptr[v];
    char *acc = at_lanes(r, t->dst);
    uint32_t *index = (uint32_t *)(void *)at_blocks(r, t->dst);

    if (t->kind == MR_STEP_FOLD) {
        t->fn.fold->rows(acc, x, inner, outer, r->row_bytes[v]);
        fold_finish(r, t, acc, outer, inner);
        return;
    }
    for (int64_t i = 0; i < outer; i++) {
        index[i] = 0;
        t->fn.arg_fns->row(acc, index + i, x + i * r->row_bytes[v], inner, 0,
                           true);
    }
    arg_finish(r, t, outer, inner);
}

/* The counter of finished blocks: block b joins those before it of its own
 * size, those twice as large, and so on. */
static void
counter_push(const run *r, const mr_step *t, int64_t b, const void *acc)
{
    int64_t width = r->f->lane_bytes[t->dst];
    char *top = at_blocks(r, t->dst) +
                width * __builtin_popcountll((unsigned long long)b);

    memcpy(top, acc, acc_size(t) * (size_t)r->rows);
    for (; b & 1; b >>= 1, top -= width)
        t->fn.fold->combine(top - width, top, r->rows);
}

static void *
counter_total(const run *r, const mr_step *t, int64_t n_blocks)
{
    int64_t width = r->f->lane_bytes[t->dst];
    int n = __builtin_popcountll((unsigned long long)n_blocks);
    char *at = at_blocks(r, t->dst);

    for (int i = n - 1; i > 0; i--)
        t->fn.fold->combine(at + (i - 1) * width, at + i * width, r->rows);
    return at;
}

void
mr__run_row_step(mr_run *r, int i, int64_t outer, int64_t inner)
{
    row_run(r, &r->low->step[i], outer, inner);
}

void
mr__run_fold(mr_run *r, int i, int64_t outer, int64_t inner)
{
    fold_rows(r, &r->low->step[i], outer, inner);
}

void
mr__run_fold_finish(mr_run *r, int i, int64_t outer, int64_t inner)
{
    const mr_step *t = &r->low->step[i];

    fold_finish(r, t, at_lanes(r, t->dst), outer, inner);
}

/* ---- tiles
 * ---------------------------------------------------------------------------------
 */

/* Go to tile t: where it begins in each operand, and its extents. */
static void
tile_at(run *r, int64_t t, int64_t *outer, int64_t *inner)
{
    const mr_geometry *g = &r->s->g;
    int64_t at[MR_MAX_NDIM];
    int64_t i = t % g->n_inner * g->inner, o;

    t /= g->n_inner;
    o = t % g->n_outer * g->outer;
    t /= g->n_outer;
    for (int d = g->n_dims - 1; d >= 0; d--) {
        if (d == g->inner_dim || d == g->outer_dim) {
            at[d] = d == g->inner_dim ? i : o;
        } else {
            at[d] = t % r->l->dim[d];
            t /= r->l->dim[d];
        }
    }
    for (int j = 0; j < r->low->n_in; j++) {
        r->in[j] = r->l->in[j].data;
        for (int d = 0; d < g->n_dims; d++)
            r->in[j] += at[d] * r->l->in[j].stride[d];
    }
    for (int j = 0; j < r->low->n_out; j++) {
        r->out[j] = r->l->out[j].data;
        for (int d = 0; d < g->n_dims; d++)
            r->out[j] += at[d] * r->l->out[j].stride[d];
    }
    *outer = min64(g->outer, g->outer_n - o);
    *inner = min64(g->inner, g->inner_n - i);
    r->rows = g->strategy == MR_RUN_ROWS   ? *outer
              : g->strategy == MR_RUN_COLS ? *inner
                                           : 1;
}

/* The values of one tile (or chunk) in one pass. */
static void
values_run(run *r, const mr_pass *pass, int64_t outer, int64_t inner)
{
    r->in_place = 0;
    if (r->native != NULL) {
        mr__native_run(r, (int)(pass - r->s->pass), outer, inner);
        return;
    }
    for (int i = 0, end; i < pass->n; i = end + 1) {
        const mr_step *t;
        int slot;
        char *out;

        end = i + pass->chain[i] - 1;
        t = &r->low->step[pass->step[end]];
        slot = pass->slot[end];
        out = r->memory + r->f->slots + (int64_t)slot * r->f->slot_bytes;

        if (t->row) {
            row_run(r, t, outer, inner);
            continue;
        }
        if (is_fold(t)) {
            if (r->s->g.strategy == MR_RUN_ROWS)
                fold_rows(r, t, outer, inner);
            continue;
        }
        if (slot < 0) {
            int o = -1 - slot;

            out = r->out[o];
            r->in_place |= 1U << o;
        }
        if (end > i)
            chain_run(r, pass, i, out, outer * inner);
        else
            value_run(r, t, out, outer * inner);
        r->row_bytes[t->dst] = inner * (int64_t)reg_size(r, t->dst);
    }
}

static void
whole_tile(run *r, int64_t t)
{
    const mr_pass *pass = &r->s->pass[0];
    int64_t outer, inner;

    tile_at(r, t, &outer, &inner);
    if (r->low->rows)
        row_inputs_load(r, outer, inner);
    inputs_load(r, pass->inputs, outer, inner, 0);
    values_run(r, pass, outer, inner);
    outputs_store(r, pass->outputs, outer, inner, 0);
    if (r->low->rows)
        row_outputs_store(r);
}

/* ---- rows in several passes
 * ------------------------------------------------------------------ */

/* Points [p, end) of a chunk are in one row of the last reduced dim. */
static int64_t
chunk_points(const run *r, int64_t p, int64_t end)
{
    const mr_geometry *g = &r->s->g;
    int64_t n = end - p;

    if (g->strategy == MR_RUN_LONG)
        return min64(n, g->inner);
    n = min64(n, g->outer);
    return r->l->n_red > 1 ? piece_length(r->l, p, n) : n;
}

static void
folds_begin(run *r, const mr_pass *pass, bool args_too)
{
    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &r->low->step[pass->step[i]];
        int64_t width = r->f->lane_bytes[t->dst], n = MR_LANES;

        if (t->kind == MR_STEP_ARG && args_too)
            memset(at_blocks(r, t->dst), 0, sizeof(uint32_t) * (size_t)r->rows);
        if (t->kind != MR_STEP_FOLD)
            continue;
        if (r->s->g.strategy == MR_RUN_COLS) {
            if (t->exact_lanes && r->s->g.points < n)
                n = r->s->g.points > 0 ? r->s->g.points : 1;
            n *= width / (int64_t)acc_size(t);
        }
        t->fn.fold->fill(at_lanes(r, t->dst), n);
    }
}

/* The folds of a pass take a chunk whose points start at p, p - block in its
 * block; first: nothing was folded yet (argmax). */
static void
folds_take(run *r, const mr_pass *pass, int64_t outer, int64_t inner, int64_t p,
           int64_t block, bool first)
{
    bool cols = r->s->g.strategy == MR_RUN_COLS;

    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &r->low->step[pass->step[i]];
        int v = t->arg[0];
        void *lanes = at_lanes(r, t->dst);
        uint32_t *index = (uint32_t *)(void *)at_blocks(r, t->dst);

        if (t->kind == MR_STEP_FOLD && cols)
            t->fn.fold->cols(lanes, r->f->lane_bytes[t->dst], r->ptr[v],
                             r->row_bytes[v], p - block, outer, inner);
        else if (t->kind == MR_STEP_FOLD)
            t->fn.fold->step(lanes, r->ptr[v], inner);
        else if (t->kind == MR_STEP_ARG && cols)
            t->fn.arg_fns->cols(lanes, index, r->ptr[v], r->row_bytes[v],
                                (uint32_t)p, outer, inner, first);
        else if (t->kind == MR_STEP_ARG)
            t->fn.arg_fns->row(lanes, index, r->ptr[v], inner, (uint32_t)p,
                               first);
    }
}

/* The block's values of one fold, for each row of the tile. */
static const void *
fold_block_done(run *r, const mr_step *t, int64_t n, void *one)
{
    char *lanes = at_lanes(r, t->dst);

    if (r->s->g.strategy == MR_RUN_COLS) {
        t->fn.fold->cols_done(lanes, r->f->lane_bytes[t->dst],
                              min64(n, MR_LANES), r->rows);
        return lanes;
    }
    t->fn.fold->done(one, lanes);
    return one;
}

/* Values and folds of block b in one pass; fresh: argmax starts anew. */
static void
block_run(run *r, const mr_pass *pass, int64_t b, int64_t inner, bool fresh)
{
    bool cols = r->s->g.strategy == MR_RUN_COLS;
    int64_t block = b * MR_RED_BLOCK;
    int64_t end = min64(block + MR_RED_BLOCK, r->s->g.points);

    if (pass->folds)
        folds_begin(r, pass, fresh);
    for (int64_t p = block, n; p < end; p += n) {
        n = chunk_points(r, p, end);
        inputs_load(r, pass->inputs, cols ? n : 1, cols ? inner : n, p);
        /* outputs written in place begin at the chunk's first point */
        for (int o = 0; o < r->low->n_out; o++) {
            if ((pass->outputs & r->s->direct_out) >> o & 1)
                r->out[o] += point_offset(r->l, &r->l->out[o], p);
        }
        values_run(r, pass, cols ? n : 1, cols ? inner : n);
        for (int o = 0; o < r->low->n_out; o++) {
            if ((pass->outputs & r->s->direct_out) >> o & 1)
                r->out[o] -= point_offset(r->l, &r->l->out[o], p);
        }
        outputs_store(r, pass->outputs, cols ? n : 1, cols ? inner : n, p);
        if (pass->folds)
            folds_take(r, pass, cols ? n : 1, cols ? inner : n, p, block,
                       fresh && p == block);
    }
}

static void
pass_finish(run *r, const mr_pass *pass, int64_t n_blocks, int64_t inner)
{
    int64_t outer = r->s->g.outer;

    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &r->low->step[pass->step[i]];

        if (t->kind == MR_STEP_FOLD)
            fold_finish(r, t, counter_total(r, t, n_blocks), outer, inner);
        else if (t->kind == MR_STEP_ARG)
            arg_finish(r, t, outer, inner);
    }
}

static void
passes_run(run *r, int64_t tile)
{
    int64_t n_blocks = mr__row_blocks(r->s->g.points), outer, inner;
    _Alignas(64) char one[16];
    mr_pass_room room;
    mr_pass more;

    tile_at(r, tile, &outer, &inner);
    if (r->s->g.strategy == MR_RUN_LONG)
        outer = 1;
    row_inputs_load(r, outer, inner);
    for (int p = 0; p < r->low->n_pass; p++) {
        const mr_pass *pass = mr__schedule_pass(r->s, p, &more, &room);

        rows_of_pass(r, p, outer, inner);
        for (int64_t b = 0; pass->n > 0 && b < n_blocks; b++) {
            int64_t n = min64(MR_RED_BLOCK, r->s->g.points - b * MR_RED_BLOCK);

            block_run(r, pass, b, inner, b == 0);
            for (int i = 0; pass->folds && i < pass->n; i++) {
                const mr_step *t = &r->low->step[pass->step[i]];

                if (t->kind == MR_STEP_FOLD)
                    counter_push(r, t, b, fold_block_done(r, t, n, one));
            }
        }
        if (pass->folds)
            pass_finish(r, pass, n_blocks, inner);
    }
    row_outputs_store(r);
}

/* ---- split rows
 * ---------------------------------------------------------------------------------
 */

typedef struct partial {
    char *values;
    uint32_t *indices;
} partial;

static partial
partial_at(const run *r, void *scratch, int64_t tile, int64_t b, int fold)
{
    int64_t width = mr__tile_rows(&r->s->g);
    int64_t n_blocks = mr__row_blocks(r->s->g.points);
    char *at = (char *)scratch + (tile * n_blocks + b) *
                                     (int64_t)mr__partial_bytes(r->low, width);
    char *indices = at + r->low->n_fold * width * 16;

    return (partial){at + fold * width * 16,
                     (uint32_t *)(void *)(indices + fold * width * 4)};
}

static void
split_run(run *r, void *scratch, int64_t tile, int64_t begin, int64_t end)
{
    const mr_pass *pass = &r->s->pass[0];
    _Alignas(64) char one[16];
    int64_t outer, inner;

    tile_at(r, tile, &outer, &inner);
    row_inputs_load(r, outer, inner);
    rows_of_pass(r, 0, outer, inner);
    for (int64_t b = begin; b < end; b++) {
        int64_t n = min64(MR_RED_BLOCK, r->s->g.points - b * MR_RED_BLOCK);
        int fold = 0;

        block_run(r, pass, b, inner, true);
        for (int i = 0; i < pass->n; i++) {
            const mr_step *t = &r->low->step[pass->step[i]];
            partial to = partial_at(r, scratch, tile, b, fold);
            const void *acc = at_lanes(r, t->dst);

            if (!is_fold(t))
                continue;
            fold++;
            if (t->kind == MR_STEP_FOLD)
                acc = fold_block_done(r, t, n, one);
            else
                memcpy(to.indices, at_blocks(r, t->dst),
                       sizeof(uint32_t) * (size_t)r->rows);
            memcpy(to.values, acc, acc_size(t) * (size_t)r->rows);
        }
    }
}

static void
split_join(run *r, void *scratch, int64_t tile)
{
    const mr_pass *pass = &r->s->pass[0];
    int64_t n_blocks = mr__row_blocks(r->s->g.points), outer, inner;
    int fold = 0;

    tile_at(r, tile, &outer, &inner);
    row_inputs_load(r, 1, inner);
    rows_of_pass(r, 0, 1, inner);
    for (int i = 0; i < pass->n; i++) {
        const mr_step *t = &r->low->step[pass->step[i]];
        uint32_t *index = (uint32_t *)(void *)at_blocks(r, t->dst);

        if (!is_fold(t))
            continue;
        for (int64_t b = 0; b < n_blocks; b++) {
            partial from = partial_at(r, scratch, tile, b, fold);

            if (t->kind == MR_STEP_FOLD) {
                counter_push(r, t, b, from.values);
            } else if (b == 0) {
                memcpy(at_lanes(r, t->dst), from.values,
                       acc_size(t) * (size_t)r->rows);
                memcpy(index, from.indices, sizeof *index * (size_t)r->rows);
            } else {
                t->fn.arg_fns->merge(at_lanes(r, t->dst), index, from.values,
                                     from.indices, r->rows);
            }
        }
        fold++;
    }
    pass_finish(r, pass, n_blocks, inner);
    for (int p = 1; p < r->low->n_pass; p++)
        rows_of_pass(r, p, r->s->g.outer, inner);
    row_outputs_store(r);
}

/* ---- one instruction
 * ---------------------------------------------------------------------------
 */

typedef struct one {
    mr_step step;
    const char *arg[3];
    int64_t step_bytes[3], advance[3];
    size_t out_size;
} one;

static void
one_operands(one *w, const mr_block_code *c, const mr_block_launch *l,
             char splat[3][MR_SPLAT_N * 16], const mr_tier *tier)
{
    const mr_inst *in = &c->inst[0];

    for (int i = 0; i < w->step.n_arg; i++) {
        int reg = in->arg[i];
        size_t size = mr__elem_size((mr_dtype)c->reg_dtype[reg]);
        const void *from =
            reg < c->n_in ? l->in[reg].data : c->consts[reg - c->n_in].bytes;

        w->arg[i] = from;
        w->advance[i] = 1;
        w->step_bytes[i] = (int64_t)size;
        if (reg >= c->n_in || l->n_kept == 0 || l->in[reg].stride[0] == 0) {
            tier->moves->fill[__builtin_ctzll(size)](splat[i], from,
                                                     MR_SPLAT_N);
            w->arg[i] = splat[i];
            w->advance[i] = w->step_bytes[i] = 0;
        }
    }
}

static void
one_range(const one *w, char *out, int64_t begin, int64_t end)
{
    const void *arg[3] = {NULL, NULL, NULL};

    for (int j = 0; j < w->step.n_arg; j++)
        arg[j] = w->arg[j] + begin * w->step_bytes[j];
    step_run(&w->step, out + begin * (int64_t)w->out_size, arg, w->advance,
             end - begin, w->out_size);
}

static void
one_run(const mr_block_code *c, const mr_block_launch *l,
        const mr_block_plan *p, int64_t unit_begin, int64_t unit_end)
{
    _Alignas(64) char splat[3][MR_SPLAT_N * 16];
    const mr_tier *tier = mr__tier();
    const mr_inst *in = &c->inst[0];
    mr_dtype to = (mr_dtype)c->reg_dtype[in->dst];
    one w = {.step = {.kind = MR_STEP_MAP}, .out_size = mr__elem_size(to)};
    int64_t n = l->n_kept > 0 ? l->dim[0] : 1, chunk = p->chunk;
    mr_dtype from;

    w.step.n_arg = (uint8_t)mr__k_operands((mr_k)in->k);
    from = (mr_dtype)c->reg_dtype[in->arg[w.step.n_arg - 1]];
    if (in->k == MR_K_CAST && from != to) {
        w.step.kind = MR_STEP_CAST;
        w.step.fn.cast = tier->casts->cast[from][to];
    } else {
        w.step.fn.map =
            tier->dtype[from]->map[in->k == MR_K_CAST ? MR_K_COPY : in->k];
        if ((p->strategy & MR_PLAN_STREAM) != 0 &&
            tier->dtype[from]->stream[in->k] != NULL)
            w.step.fn.map = tier->dtype[from]->stream[in->k];
    }
    one_operands(&w, c, l, splat, tier);
    one_range(&w, l->out[0].data, unit_begin * chunk,
              min64(n, unit_end * chunk));
}

/* ---- the doors
 * ------------------------------------------------------------------------------------
 */

typedef struct job {
    void *scratch;
    int64_t begin, end; /* units; begin < 0: finish */
} job;

/* Constants and inputs of one element, repeated. */
static void
splats_make(run *r)
{
    const mr_lowered *low = r->low;

    for (int i = 0; i < low->n_reg; i++) {
        const void *from = NULL;

        if (low->kind[i] == MR_REG_CONST)
            from = low->value[i]->bytes;
        else if (low->kind[i] == MR_REG_INPUT && ((low->splat_in >> i) & 1))
            from = r->l->in[i].data;
        if (from == NULL)
            continue;
        fill(r, at_own(r, i), from, reg_size(r, i), MR_SPLAT_N);
        r->ptr[i] = at_own(r, i);
        r->step[i] = 0;
    }
}

static void
job_units(run *r, const job *j)
{
    const mr_geometry *g = &r->s->g;
    int64_t n_blocks = mr__row_blocks(g->points);
    int64_t groups = g->split_blocks > 0
                         ? (n_blocks + g->split_blocks - 1) / g->split_blocks
                         : 0;

    if (j->begin < 0) {
        for (int64_t t = 0; t < g->n_tiles; t++)
            split_join(r, j->scratch, t);
        return;
    }
    for (int64_t u = j->begin; groups > 0 && u < j->end; u++) {
        int64_t b = u % groups * g->split_blocks;

        split_run(r, j->scratch, u / groups, b,
                  min64(b + g->split_blocks, n_blocks));
    }
    if (groups > 0)
        return;
    for (int64_t t = j->begin * g->per_unit;
         t < min64(j->end * g->per_unit, g->n_tiles); t++) {
        if (g->strategy == MR_RUN_MAP || g->strategy == MR_RUN_ROWS)
            whole_tile(r, t);
        else
            passes_run(r, t);
    }
}

/* In this frame memory; true when a mean is not finite. */
static bool
job_run(const mr_block_ready *b, const mr_block_launch *l, const job *j,
        char *memory)
{
    mr_schedule s = b->schedule;
    run r;

    s.l = l;
    r.tier = mr__tier();
    r.s = &s;
    r.low = &b->low;
    r.l = l;
    r.f = &b->frame;
    r.memory = memory;
    r.beyond = false;
    r.native = b->native;
    memset(r.held, 0, sizeof r.held);
    splats_make(&r);
    job_units(&r, j);
    return r.beyond;
}

static __attribute__((noinline)) bool
job_in_large_frame(const mr_block_ready *b, const mr_block_launch *l,
                   const job *j)
{
    _Alignas(64) char memory[MR_FRAME_LARGE];

    assert(b->frame.bytes <= sizeof memory);
    return job_run(b, l, j, memory);
}

static __attribute__((noinline)) bool
job_in_frame(const mr_block_ready *b, const mr_block_launch *l, const job *j)
{
    _Alignas(64) char memory[MR_FRAME_BYTES];

    return job_run(b, l, j, memory);
}

static bool
program_run(const mr_block_ready *b, const mr_block_launch *l, job j)
{
    return b->frame.bytes <= MR_FRAME_BYTES ? job_in_frame(b, l, &j)
                                            : job_in_large_frame(b, l, &j);
}

bool
mr__block_run_ready(const mr_block_ready *b, const mr_block_launch *l,
                    void *scratch, int64_t unit_begin, int64_t unit_end)
{
    uint64_t control = mr__control_enter();
    bool beyond = false;

    if ((b->plan.strategy & MR_PLAN_STRATEGY) == MR_RUN_ONE)
        one_run(b->code, l, &b->plan, unit_begin, unit_end);
    else if (b->plan.n_units > 0)
        beyond = program_run(b, l, (job){scratch, unit_begin, unit_end});
    mr__control_leave(control);
    return beyond;
}

bool
mr__block_finish_ready(const mr_block_ready *b, const mr_block_launch *l,
                       void *scratch)
{
    uint64_t control = mr__control_enter();
    bool beyond = false;

    if (b->plan.scratch_bytes > 0)
        beyond = program_run(b, l, (job){scratch, -1, -1});
    mr__control_leave(control);
    return beyond;
}

void
mr__block_run(const mr_block_code *c, const mr_block_launch *l, void *scratch,
              int64_t unit_begin, int64_t unit_end)
{
    mr_block_room room;

    (void)mr__block_run_ready(mr__block_make_ready(c, l, &room), l, scratch,
                              unit_begin, unit_end);
}

void
mr__block_finish(const mr_block_code *c, const mr_block_launch *l,
                 void *scratch)
{
    mr_block_room room;

    (void)mr__block_finish_ready(mr__block_make_ready(c, l, &room), l, scratch);
}
