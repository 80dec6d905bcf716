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
#include "base/integers.h"
#include "kernels/ready.h"
#include "kernels/run.h"

typedef mr_run run;

#define at_own    mr__at_own
#define at_row    mr__at_row
#define at_lanes  mr__at_lanes
#define at_blocks mr__at_blocks
#define reg_size  mr__reg_size

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
                       mr__min(n - i, MR_SPLAT_N));
    }
}

static void
value_run(run *r, const mr_step *t, void *out, int64_t n, bool past)
{
    mr_map_fn *stream = NULL;
    const void *arg[3];
    int64_t step[3];

    for (int i = 0; i < t->n_arg; i++) {
        arg[i] = r->ptr[t->arg[i]];
        step[i] = r->step[t->arg[i]];
    }
    if (past && t->kind == MR_STEP_MAP)
        stream =
            r->tier->dtype[r->low->dtype[t->arg[t->n_arg - 1]]]->stream[t->k];
    if (stream != NULL)
        stream(out, arg, step, n);
    else
        step_run(t, out, arg, step, n, reg_size(r, t->dst));
    r->ptr[t->dst] = out;
    r->step[t->dst] = 1;
}

/* Steps i ... of a pass as one chain, of what is in `first`; the register of
 * its value. */
static uint16_t
chain_ops(const run *r, const mr_pass *pass, int i, mr_chain_op *op,
          uint16_t *first)
{
    const mr_step *t = &r->low->step[pass->step[i]];
    uint16_t v = t->arg[0];
    int n_op = pass->chain[i];

    *first = v;
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
    return v;
}

static void
chain_run(run *r, const mr_pass *pass, int i, void *out, int64_t n)
{
    mr_chain_op op[MR_CHAIN_STEPS];
    uint16_t first, v = chain_ops(r, pass, i, op, &first);

    r->tier->dtype[r->low->dtype[v]]->chain(out, r->ptr[first], r->step[first],
                                            op, pass->chain[i], n);
    r->ptr[v] = out;
    r->step[v] = 1;
}

/* ---- steps row by row
 * ------------------------------------------------------- */

/* Rows of n points of a tile, whose operands may have them apart. */
typedef struct span {
    int64_t rows, n;
} span;

/* How far apart the rows of an operand are; those of a splat are one. */
static int64_t
row_step(const run *r, int reg)
{
    return r->step[reg] != 0 ? r->row_bytes[reg] : 0;
}

static void
value_rows(run *r, const mr_step *t, char *out, int64_t out_row, span s)
{
    int64_t step[3], row[3];
    const void *arg[3];

    for (int i = 0; i < t->n_arg; i++) {
        arg[i] = r->ptr[t->arg[i]];
        step[i] = r->step[t->arg[i]];
        row[i] = row_step(r, t->arg[i]);
    }
    for (int64_t k = 0; k < s.rows; k++) {
        step_run(t, out + k * out_row, arg, step, s.n, reg_size(r, t->dst));
        for (int i = 0; i < t->n_arg; i++)
            arg[i] = (const char *)arg[i] + row[i];
    }
}

static void
chain_rows(run *r, const mr_pass *pass, int i, char *out, int64_t out_row,
           span s)
{
    mr_chain_op op[MR_CHAIN_STEPS];
    int64_t row[MR_CHAIN_STEPS];
    uint16_t first, v = chain_ops(r, pass, i, op, &first), at;
    const char *from = r->ptr[first];
    int64_t from_row = row_step(r, first);

    at = first;
    for (int k = 0; k < pass->chain[i]; k++) {
        const mr_step *t = &r->low->step[pass->step[i + k]];

        row[k] = op[k].arg == NULL
                     ? 0
                     : row_step(r, t->arg[t->arg[0] != at ? 0 : 1]);
        at = t->dst;
    }
    for (int64_t k = 0; k < s.rows; k++) {
        r->tier->dtype[r->low->dtype[v]]->chain(
            out + k * out_row, from + k * from_row, r->step[first], op,
            pass->chain[i], s.n);
        for (int j = 0; j < pass->chain[i]; j++)
            if (row[j] != 0)
                op[j].arg = (const char *)op[j].arg + row[j];
    }
}

/* One long row where the operands of these steps allow it. */
static span
span_of(const run *r, const mr_pass *pass, int i, int end, int64_t out_row,
        int64_t outer, int64_t inner)
{
    const mr_step *last = &r->low->step[pass->step[end]];
    bool apart = out_row != inner * (int64_t)reg_size(r, last->dst);

    for (int k = i; k <= end; k++) {
        const mr_step *t = &r->low->step[pass->step[k]];

        for (int j = 0; j < t->n_arg; j++) {
            int reg = t->arg[j];
            bool inside = k > i && reg == r->low->step[pass->step[k - 1]].dst;

            if (!inside && r->step[reg] != 0)
                apart |= r->row_bytes[reg] != inner * (int64_t)reg_size(r, reg);
        }
    }
    return apart ? (span){outer, inner} : (span){1, outer * inner};
}

/* Steps i to end, which are one chain or one step; output o gets the value,
 * -1: `out` does. */
static void
steps_by_rows(run *r, const mr_pass *pass, int i, int end, int o, char *out,
              int64_t outer, int64_t inner)
{
    const mr_step *t = &r->low->step[pass->step[end]];
    int64_t size = (int64_t)reg_size(r, t->dst), row = inner * size;
    span s;

    if (o >= 0)
        row = mr__stride_outer(&r->s->g, r->l, &r->l->out[o], size);
    s = span_of(r, pass, i, end, row, outer, inner);
    if (end > i)
        chain_rows(r, pass, i, out, row, s);
    else
        value_rows(r, t, out, row, s);
    r->ptr[t->dst] = out;
    r->step[t->dst] = 1;
    r->row_bytes[t->dst] = row;
}

/* Make the values of a row register usable along the rows of the tile. */
void
mr__run_publish(mr_run *r, int reg, int64_t outer, int64_t inner)
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

    for (int i = 0; r->late != 0 && i < t->n_arg; i++)
        if (t->arg[i] < r->low->n_in && (r->late >> t->arg[i] & 1))
            mr__run_late_row(r, t->arg[i]);
    for (int i = 0; i < t->n_arg; i++) {
        bool row = r->low->row[t->arg[i]];

        arg[i] = row ? at_row(r, t->arg[i]) : at_own(r, t->arg[i]);
        step[i] = row;
    }
    step_run(t, at_row(r, t->dst), arg, step, r->rows, reg_size(r, t->dst));
    mr__run_publish(r, t->dst, outer, inner);
}

/* The row steps that belong before the values of pass p. */
void
mr__run_rows(mr_run *r, int p, int64_t outer, int64_t inner)
{
    for (int i = 0; i < r->low->n_step; i++) {
        const mr_step *t = &r->low->step[i];

        if (t->row && r->low->phase[t->dst] == p)
            row_run(r, t, outer, inner);
    }
}

/* ---- reductions
 * ----------------------------------------------------------------------- */

/* Counted in integers as wide as the numbers, which GCC does by vectors. */
static bool
is_finite(mr_dtype t, const void *x, int64_t n)
{
    const float *f = x;
    const double *d = x;
    uint32_t f_bad = 0;
    uint64_t d_bad = 0;

    n *= t == MR_COMPLEX64 || t == MR_COMPLEX128 ? 2 : 1;
    if (t == MR_FLOAT32 || t == MR_COMPLEX64)
        for (int64_t i = 0; i < n; i++)
            f_bad |= !(__builtin_fabsf(f[i]) < __builtin_inff());
    else
        for (int64_t i = 0; i < n; i++)
            d_bad |= !(__builtin_fabs(d[i]) < __builtin_inf());
    return (f_bad | d_bad) == 0;
}

/* From accumulated values to those of the result's register. */
void
mr__fold_finish(mr_run *r, const mr_step *t, void *acc, int64_t outer,
                int64_t inner)
{
    _Alignas(64) char count[MR_SPLAT_N * 16];
    mr_dtype dtype = (mr_dtype)r->low->dtype[t->dst], a = (mr_dtype)t->acc;
    const mr_tier *tier = r->tier;
    int64_t points = r->s->g.points;

    if (points == 0 && t->fold == MR_FOLD_SUM)
        memset(acc, 0, mr__acc_size(t) * (size_t)r->rows);
    if (t->k == MR_R_MEAN) {
        mr_const n = {.c128 = {(double)points, 0}}, m;
        bool few = r->rows <= MR_SPLAT_N; /* then no more than these */

        mr__const_cast(&n, MR_FLOAT64, &m, a);
        fill(r, count, m.bytes, mr__acc_size(t), few ? r->rows : MR_SPLAT_N);
        tier->dtype[a]->map[MR_K_DIVIDE](acc, (const void *[]){acc, count},
                                         (int64_t[]){1, few}, r->rows);
        if (points > 0 && !r->low->careful && !is_finite(a, acc, r->rows))
            r->beyond = true;
    }
    if (a != dtype)
        tier->casts->cast[a][dtype](at_row(r, t->dst), acc, r->rows);
    else
        memcpy(at_row(r, t->dst), acc, mr__acc_size(t) * (size_t)r->rows);
    mr__run_publish(r, t->dst, outer, inner);
}

void
mr__arg_finish(mr_run *r, const mr_step *t, int64_t outer, int64_t inner)
{
    memcpy(at_row(r, t->dst), at_blocks(r, t->dst),
           sizeof(uint32_t) * (size_t)r->rows);
    mr__run_publish(r, t->dst, outer, inner);
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
        if (t->near != NULL)
            t->near->rows(acc, x, inner, outer, r->row_bytes[v],
                          at_row(r, t->arg[1]), outer * r->row_bytes[v]);
        else if (inner > MR_RED_BLOCK)
            mr__fold_long_rows(r, t, acc, x, r->row_bytes[v]);
        else
            t->fn.fold->rows(acc, x, inner, outer, r->row_bytes[v]);
        mr__fold_finish(r, t, acc, outer, inner);
        return;
    }
    for (int64_t i = 0; i < outer; i++) {
        index[i] = 0;
        t->fn.arg_fns->row(acc, index + i, x + i * r->row_bytes[v], inner, 0,
                           true);
    }
    mr__arg_finish(r, t, outer, inner);
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

    mr__fold_finish(r, t, at_lanes(r, t->dst), outer, inner);
}

/* ---- tiles
 * ---------------------------------------------------------------------------------
 */

/* Go to tile t: where it begins in each operand, and its extents. */
void
mr__run_tile(mr_run *r, int64_t t, int64_t *outer, int64_t *inner)
{
    const mr_geometry *g = &r->s->g;
    int64_t at[MR_MAX_NDIM];
    int64_t q = t < g->n_inner ? 0 : t / g->n_inner; /* often one dim is all */
    int64_t i = t - q * g->n_inner, o = 0;
    bool middle = mr__has_middle(g) && i == g->n_inner - 1;

    i = middle ? g->half : i * g->inner;
    t = q == 0 ? 0 : q / g->n_outer;
    o = (q - t * g->n_outer) * g->outer;
    for (int d = g->n_dims - 1; d >= 0; d--) {
        if (d == g->inner_dim || d == g->outer_dim) {
            at[d] = d == g->inner_dim ? i : o;
        } else {
            int64_t n = d == g->twin_dim ? g->half : r->l->dim[d];

            at[d] = t == 0 ? 0 : t % n;
            t = t == 0 ? 0 : t / n;
        }
    }
    for (int j = 0; j < r->low->n_in; j++) {
        int64_t place = 0;

        for (int d = 0; d < g->n_dims; d++)
            place += at[d] * r->l->in[j].stride[d];
        r->in[j] = r->l->in[j].data;
        if ((r->low->drawn >> j) & 1)
            r->drawn[j] = place;
        else
            r->in[j] += place;
    }
    for (int j = 0; j < r->low->n_out; j++) {
        r->out[j] = r->l->out[j].data;
        for (int d = 0; d < g->n_dims; d++)
            r->out[j] += at[d] * r->l->out[j].stride[d];
    }
    *outer = mr__min(g->outer, g->outer_n - o);
    *inner = middle ? 1 : mr__min(g->inner, g->inner_n - i);
    r->side = middle ? MR_SIDE_NONE : r->side;
    r->ahead = g->n_inner == 1 && g->outer_dim >= 0 ? g->outer_n - o : *outer;
    r->rows = g->strategy == MR_RUN_ROWS   ? *outer
              : g->strategy == MR_RUN_COLS ? *inner
                                           : 1;
}

/* The values of one tile (or chunk) in one pass. */
void
mr__run_values(mr_run *r, const mr_pass *pass, int64_t outer, int64_t inner)
{
    r->in_place = 0;
    if (r->native != NULL) {
        mr__native_run(r, (int)(pass - r->s->pass), outer, inner);
        return;
    }
    for (int i = 0, end; i < pass->n; i = end + 1) {
        const mr_step *t;
        int slot, o = -1;
        char *out;

        end = i + pass->chain[i] - 1;
        t = &r->low->step[pass->step[end]];
        slot = pass->slot[end];
        out = r->memory + r->f->slots + (int64_t)slot * r->f->slot_bytes;

        if (t->row) {
            row_run(r, t, outer, inner);
            continue;
        }
        if (mr__step_folds(t)) {
            if (r->s->g.strategy == MR_RUN_ROWS)
                fold_rows(r, t, outer, inner);
            continue;
        }
        if (slot < 0) {
            o = -1 - slot;
            out = r->out[o];
            r->in_place |= 1U << o;
        }
        if (r->s->g.by_rows) {
            steps_by_rows(r, pass, i, end, o, out, outer, inner);
            continue;
        }
        if (end > i)
            chain_run(r, pass, i, out, outer * inner);
        else
            value_run(r, t, out, outer * inner, r->past && slot < 0);
        r->row_bytes[t->dst] = inner * (int64_t)reg_size(r, t->dst);
    }
}

/* The tile that r is at. */
static void
tile_all(run *r, int64_t outer, int64_t inner)
{
    const mr_pass *pass = &r->s->pass[0];

    if (r->low->rows)
        mr__run_row_inputs(r, outer, inner);
    mr__run_inputs(r, pass, outer, inner, 0);
    mr__run_values(r, pass, outer, inner);
    mr__run_outputs(r, pass->outputs, outer, inner, 0);
    if (r->low->rows)
        mr__run_row_outputs(r);
}

void
mr__run_twin(mr_run *r)
{
    const mr_geometry *g = &r->s->g;

    r->side = MR_SIDE_UPPER;
    for (int i = 0; i < r->low->n_in; i++)
        if ((r->low->drawn >> i) & 1)
            r->drawn[i] += g->shift * r->l->in[i].stride[g->twin_dim];
        else
            r->in[i] += g->shift * r->l->in[i].stride[g->twin_dim];
    for (int o = 0; o < r->low->n_out; o++)
        r->out[o] += g->shift * r->l->out[o].stride[g->twin_dim];
}

/* Tile t, or several from there on; how many. */
static int64_t
whole_tiles(run *r, int64_t t, int64_t end)
{
    int64_t outer, inner;

    r->side = r->s->g.twin_dim < 0 ? MR_SIDE_NONE : MR_SIDE_LOWER;
    mr__run_tile(r, t, &outer, &inner);
    if (r->lines && r->side == MR_SIDE_LOWER)
        return mr__native_line(r, t, end - t);
    tile_all(r, outer, inner);
    if (r->side == MR_SIDE_NONE)
        return 1;
    mr__run_twin(r);
    tile_all(r, outer, inner);
    return 1;
}

/* ---- pieces
 * ---------------------------------------------------------------------------
 */

/* Where the point of these rows and this column lies in an operand. */
static char *
point_at(const mr_block_launch *l, const mr_block_io *io, int64_t row,
         int64_t col)
{
    int last = l->n_kept - 1;
    char *at = (char *)io->data + col * io->stride[last];

    for (int d = last - 1; d > 0 && row != 0; d--) {
        at += row % l->dim[d] * io->stride[d];
        row /= l->dim[d];
    }
    return at + row * io->stride[0];
}

/* Rows that are one dim: columns outside, so that what has one row for all is
 * brought once.  Tiles of narrow pieces have more rows. */
static void
piece_rows(run *r, const mr_block_piece *p)
{
    const mr_geometry *g = &r->s->g;
    int64_t wide = mr__min(g->inner, p->n_cols);
    int64_t high = g->outer * g->inner / wide;

    for (int64_t j = 0; j < p->n_cols; j += wide)
        for (int64_t i = 0; i < p->n_rows; i += high) {
            int64_t left = p->n_rows - i, inner = mr__min(wide, p->n_cols - j);

            for (int k = 0; k < r->low->n_in; k++)
                r->in[k] = point_at(r->l, &r->l->in[k], p->row + i, p->col + j);
            for (int k = 0; k < r->low->n_out; k++)
                r->out[k] =
                    point_at(r->l, &r->l->out[k], p->row + i, p->col + j);
            tile_all(r, mr__min(high, left), inner);
        }
}

static void
piece_run(run *r, const mr_block_piece *p)
{
    int64_t length = r->l->dim[r->l->n_kept - 2];
    mr_block_piece part = *p;

    r->rows = 1;
    for (int64_t left = p->n_rows; left > 0; left -= part.n_rows) {
        part.n_rows = mr__min(left, length - part.row % length);
        piece_rows(r, &part);
        part.row += part.n_rows;
    }
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
        if ((p->strategy & MR_PLAN_STREAM) != 0 &&
            from == tier->dtype[to]->acc &&
            tier->dtype[to]->stream[MR_K_CAST] != NULL) {
            w.step.kind = MR_STEP_MAP;
            w.step.fn.map = tier->dtype[to]->stream[MR_K_CAST];
        }
    } else {
        w.step.fn.map =
            tier->dtype[from]->map[in->k == MR_K_CAST ? MR_K_COPY : in->k];
        if ((p->strategy & MR_PLAN_STREAM) != 0 &&
            tier->dtype[from]->stream[in->k] != NULL)
            w.step.fn.map = tier->dtype[from]->stream[in->k];
    }
    one_operands(&w, c, l, splat, tier);
    one_range(&w, l->out[0].data, unit_begin * chunk,
              mr__min(n, unit_end * chunk));
    if ((p->strategy & MR_PLAN_STREAM) != 0)
        tier->moves->past_end();
}

/* ---- the doors
 * ------------------------------------------------------------------------------------
 */

typedef struct job {
    void *scratch;
    int round;
    int64_t begin, end;          /* units; begin < 0: finish */
    const mr_block_piece *piece; /* or a piece, else NULL */
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
    int64_t pieces = mr__split_pieces(g);
    int64_t groups = g->split_pieces > 0
                         ? (pieces + g->split_pieces - 1) / g->split_pieces
                         : 0;
    int64_t end;

    if (j->begin < 0) {
        for (int64_t t = 0; t < g->n_tiles; t++)
            mr__run_join(r, j->scratch, j->round, j->round + 1 == r->n_rounds,
                         t);
        return;
    }
    for (int64_t u = j->begin; groups > 0 && u < j->end; u++) {
        /* tiles side by side share lines, and what a processor guesses: one
         * after the other, where their rows are the same few */
        int64_t tile = g->parts > 1 ? u % g->n_tiles : u / groups;
        int64_t group = g->parts > 1 ? u / g->n_tiles : u % groups;
        int64_t b = group * g->split_pieces;

        mr__run_split(r, j->scratch, j->round, tile, b,
                      mr__min(b + g->split_pieces, pieces));
    }
    if (groups > 0)
        return;
    end = mr__min(j->end * g->per_unit, g->n_tiles);
    for (int64_t t = j->begin * g->per_unit, n = 1; t < end; t += n) {
        if (g->strategy == MR_RUN_MAP || g->strategy == MR_RUN_ROWS)
            n = whole_tiles(r, t, end);
        else
            mr__run_passes(r, t);
    }
}

/* In this frame memory; what it met. */
static unsigned
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
    r.beyond = r.bad_index = false;
    r.side = MR_SIDE_NONE;
    r.at_hand = false;
    r.native = b->native;
    r.lines = b->native != NULL && mr__native_has_lines(&r);
    r.n_rounds = b->plan.n_rounds;
    r.past = (b->plan.strategy & MR_PLAN_STREAM) != 0;
    memset(r.held, 0, sizeof r.held);
    r.late = 0;
    for (int i = 0; i < b->low.n_in && b->low.gathered != 0; i++)
        r.zeros[i] = 0;
    splats_make(&r);
    if (j->piece != NULL)
        piece_run(&r, j->piece);
    else
        job_units(&r, j);
    if (r.past)
        r.tier->moves->past_end();
    return (r.beyond ? MR_RAN_BEYOND : 0) |
           (r.bad_index ? MR_RAN_BAD_INDEX : 0);
}

static __attribute__((noinline)) unsigned
job_in_large_frame(const mr_block_ready *b, const mr_block_launch *l,
                   const job *j)
{
    _Alignas(64) char memory[MR_FRAME_LARGE];

    assert(b->frame.bytes <= sizeof memory);
    return job_run(b, l, j, memory);
}

static __attribute__((noinline)) unsigned
job_in_wide_frame(const mr_block_ready *b, const mr_block_launch *l,
                  const job *j)
{
    _Alignas(64) char memory[MR_FRAME_WIDE];

    return job_run(b, l, j, memory);
}

static __attribute__((noinline)) unsigned
job_in_frame(const mr_block_ready *b, const mr_block_launch *l, const job *j)
{
    _Alignas(64) char memory[MR_FRAME_BYTES];

    return job_run(b, l, j, memory);
}

static unsigned
program_run(const mr_block_ready *b, const mr_block_launch *l, job j)
{
    if (b->frame.bytes <= MR_FRAME_BYTES)
        return job_in_frame(b, l, &j);
    return b->frame.bytes <= MR_FRAME_WIDE ? job_in_wide_frame(b, l, &j)
                                           : job_in_large_frame(b, l, &j);
}

unsigned
mr__block_run_ready(const mr_block_ready *b, const mr_block_launch *l,
                    void *scratch, int round, int64_t unit_begin,
                    int64_t unit_end)
{
    uint64_t control = mr__control_enter();
    unsigned met = 0;

    if ((b->plan.strategy & MR_PLAN_STRATEGY) == MR_RUN_ONE)
        one_run(b->code, l, &b->plan, unit_begin, unit_end);
    else if (b->plan.n_units > 0)
        met = program_run(b, l,
                          (job){scratch, round, unit_begin, unit_end, NULL});
    mr__control_leave(control);
    return met;
}

unsigned
mr__block_finish_ready(const mr_block_ready *b, const mr_block_launch *l,
                       void *scratch, int round)
{
    uint64_t control = mr__control_enter();
    unsigned met = 0;

    if (b->plan.scratch_bytes > 0)
        met = program_run(b, l, (job){scratch, round, -1, -1, NULL});
    mr__control_leave(control);
    return met;
}

void
mr__block_run_piece(const mr_block_ready *b, const mr_block_launch *l,
                    const mr_block_piece *p)
{
    uint64_t control = mr__control_enter();

    (void)program_run(b, l, (job){.piece = p});
    mr__control_leave(control);
}

void
mr__block_run(const mr_block_code *c, const mr_block_launch *l, void *scratch,
              int round, int64_t unit_begin, int64_t unit_end)
{
    mr_block_room room;

    (void)mr__block_run_ready(mr__block_make_ready(c, l, &room), l, scratch,
                              round, unit_begin, unit_end);
}

void
mr__block_finish(const mr_block_code *c, const mr_block_launch *l,
                 void *scratch, int round)
{
    mr_block_room room;

    (void)mr__block_finish_ready(mr__block_make_ready(c, l, &room), l, scratch,
                                 round);
}
