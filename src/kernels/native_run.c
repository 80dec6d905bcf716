/* SPDX-License-Identifier: Apache-2.0
 *
 * native_run.c -- runs compiled segments over a tile of the interpreter.
 *
 * Hands the tile's operands to the code: where each begins, how far its rows
 * are apart.  A tile that is one piece of memory in all of them is a single
 * long row.
 * Called by: interp.c.
 */
#include "kernels/draw.h"
#include "kernels/native.h"
#include "kernels/run.h"

typedef struct operands {
    const char *in[MR_NATIVE_IO];
    int64_t in_row[MR_NATIVE_IO];
    char *out[MR_NATIVE_IO];
    int64_t out_row[MR_NATIVE_IO];
    char *fold_out[MR_NATIVE_FOLDS];
    const mr_fold_fns *fold[MR_NATIVE_FOLDS];
    bool apart; /* rows are not one piece of memory in all of them */
} operands;

static void
row_input(const mr_run *r, const mr_native_segment *g, int i, int64_t inner,
          operands *o)
{
    int reg = g->in[i];
    int64_t size = (int64_t)mr__reg_size(r, reg);

    if (g->code.in[i].how == MR_NATIVE_ROW) {
        o->in[i] = mr__at_row(r, reg);
        o->in_row[i] = size;
        o->apart = true;
    } else if (r->s->spread[reg]) { /* along the rows, in the tile's order */
        o->in[i] = mr__at_own(r, reg);
        o->in_row[i] = inner * size;
    } else { /* one row, or rows side by side */
        o->in[i] = mr__at_row(r, reg);
        o->in_row[i] = 0;
        o->apart |= mr__tile_rows(&r->s->g) > 1;
    }
}

static void
inputs_set(const mr_run *r, const mr_native_segment *g, int64_t inner,
           operands *o)
{
    for (int i = 0; i < g->code.n_in; i++) {
        int reg = g->in[i];
        int64_t size = (int64_t)mr__reg_size(r, reg);

        if (r->low->row[reg]) {
            row_input(r, g, i, inner, o);
            continue;
        }
        o->in[i] = r->ptr[reg];
        o->in_row[i] = 0;
        if (g->code.in[i].how == MR_NATIVE_ONE)
            continue;
        o->in_row[i] = r->row_bytes[reg];
        o->apart |=
            o->in_row[i] != inner * size || g->code.in[i].how == MR_NATIVE_ROW;
    }
}

/* Where results go; from now on they are read there. */
static void
outputs_set(mr_run *r, const mr_native_segment *g, int64_t inner, operands *o)
{
    for (int i = 0; i < g->code.n_out; i++) {
        int reg = g->out[i], slot = g->slot[i];
        int64_t size = (int64_t)mr__reg_size(r, reg);

        if (slot < 0) {
            int k = -1 - slot;

            r->in_place |= 1U << k;
            o->out[i] = r->out[k];
            o->out_row[i] =
                mr__stride_outer(&r->s->g, r->l, &r->l->out[k], size);
        } else {
            o->out[i] =
                r->memory + r->f->slots + (int64_t)slot * r->f->slot_bytes;
            o->out_row[i] = inner * size;
        }
        o->apart |= o->out_row[i] != inner * size;
    }
}

static void
results_set(mr_run *r, const mr_native_segment *g, const operands *o)
{
    for (int i = 0; i < g->code.n_out; i++) {
        r->ptr[g->out[i]] = o->out[i];
        r->step[g->out[i]] = 1;
        r->row_bytes[g->out[i]] = o->out_row[i];
    }
}

static void
segment_run(mr_run *r, const mr_native_segment *g, int64_t outer, int64_t inner)
{
    operands o;
    mr_native_call c = {o.in,       o.in_row, o.out, o.out_row,
                        o.fold_out, o.fold,   outer, inner};

    o.apart = g->code.n_fold > 0;
    inputs_set(r, g, inner, &o);
    outputs_set(r, g, inner, &o);
    for (int i = 0; i < g->code.n_fold; i++) {
        const mr_step *t = &r->low->step[g->fold[i]];

        o.fold_out[i] = mr__at_lanes(r, t->dst);
        o.fold[i] = t->fn.fold;
    }
    if (!o.apart) {
        c.rows = 1;
        c.n = outer * inner;
    }
    g->fn(&c);
    results_set(r, g, &o);
}

void
mr__native_run(mr_run *r, int pass, int64_t outer, int64_t inner)
{
    const mr_native_pass *p = &r->native->pass[pass];

    for (int i = 0; i < p->n; i++) {
        const mr_native_segment *g = &p->segment[i];

        for (int k = 0; k < g->n_before; k++)
            mr__run_row_step(r, g->before[k], outer, inner);
        if (g->fn != NULL)
            segment_run(r, g, outer, inner);
        for (int k = 0; k < g->code.n_fold; k++)
            mr__run_fold_finish(r, g->fold[k], outer, inner);
        for (int k = 0; k < g->n_after; k++)
            mr__run_fold(r, g->after[k], outer, inner);
    }
}

/* ---- tiles with their twins
 * ------------------------------------------------
 */

/* A tile of one row and its twin are two rows of one call.  Tiles that follow
 * each other along the inner dim have the same operands, further on: these are
 * set once, since a tile's own cost is what making words in it costs (a tenth
 * of the whole when each was set anew). */
typedef struct line {
    operands o;
    int64_t in_step[MR_NATIVE_IO], out_step[MR_NATIVE_IO]; /* to the next */
    mr_foreseen ahead;
} line;

bool
mr__native_has_lines(const mr_run *r)
{
    const mr_schedule *s = r->s;
    const mr_native_pass *p = &r->native->pass[0];
    uint32_t there = s->direct_in | s->rowwise_in | r->low->splat_in;
    bool fits = s->g.twin_dim >= 0 && s->g.strategy == MR_RUN_MAP &&
                s->g.outer == 1 && p->n == 1;

    if (!fits || p->segment->fn == NULL || p->segment->n_before > 0 ||
        p->segment->n_after > 0 || p->segment->code.n_fold > 0)
        return false;
    there |= s->twin_in;
    for (int i = 0; i < r->low->n_in; i++)
        fits &= there >> i & 1;
    for (int o = 0; o < r->low->n_out; o++)
        fits &= s->direct_out >> o & 1;
    for (int i = 0; i < p->segment->code.n_out; i++)
        fits &= p->segment->slot[i] < 0;
    return fits;
}

static void
line_inputs(const mr_run *r, const mr_native_segment *g, line *w)
{
    const mr_geometry *geo = &r->s->g;

    for (int i = 0; i < g->code.n_in; i++) {
        int reg = g->in[i];
        int64_t size = (int64_t)mr__reg_size(r, reg);
        const mr_block_io *io = &r->l->in[reg];

        w->o.in_row[i] = w->in_step[i] = 0;
        if (reg >= r->low->n_in || (r->low->splat_in >> reg & 1)) {
            w->o.in[i] = r->ptr[reg];
        } else if (r->low->drawn >> reg & 1) {
            w->o.in[i] = mr__at_own(r, reg);
            w->o.in_row[i] = mr__twin_bytes(geo, size);
        } else {
            w->o.in[i] = r->in[reg];
            w->o.in_row[i] = geo->shift * io->stride[geo->twin_dim];
            w->in_step[i] = geo->inner * mr__stride_inner(geo, r->l, io, size);
        }
    }
}

static void
line_outputs(const mr_run *r, const mr_native_segment *g, line *w)
{
    const mr_geometry *geo = &r->s->g;

    for (int i = 0; i < g->code.n_out; i++) {
        int64_t size = (int64_t)mr__reg_size(r, g->out[i]);
        int o = -1 - g->slot[i];
        const mr_block_io *io = &r->l->out[o];

        w->o.out[i] = r->out[o];
        w->o.out_row[i] = geo->shift * io->stride[geo->twin_dim];
        w->out_step[i] = geo->inner * mr__stride_inner(geo, r->l, io, size);
    }
}

static void
line_draw(mr_run *r, line *w, int64_t inner)
{
    const mr_geometry *geo = &r->s->g;

    for (uint32_t m = r->low->drawn; m != 0; m &= m - 1) {
        int i = __builtin_ctz(m);
        const mr_block_io *io = &r->l->in[i];
        char *own = mr__at_own(r, i);
        mr_draw_tile t = {.at = r->drawn[i],
                          .inner_stride = mr__stride_inner(geo, r->l, io, 4),
                          .outer = 1,
                          .inner = inner};

        mr__draw_twins(io, own, own + mr__twin_bytes(geo, 4), &t, &w->ahead);
        r->drawn[i] += inner * t.inner_stride;
    }
}

int64_t
mr__native_line(mr_run *r, int64_t t, int64_t most)
{
    const mr_native_segment *g = r->native->pass[0].segment;
    const mr_geometry *geo = &r->s->g;
    int64_t n = geo->n_inner - mr__has_middle(geo), at = t % geo->n_inner;
    mr_native_call c;
    line w;

    n = n - at < most ? n - at : most;
    c = (mr_native_call){.in = w.o.in,
                         .in_row = w.o.in_row,
                         .out = w.o.out,
                         .out_row = w.o.out_row,
                         .rows = 2};
    line_inputs(r, g, &w);
    line_outputs(r, g, &w);
    mr__run_foresee(r, 1, geo->inner, &w.ahead);
    for (int64_t k = 0, left = geo->inner_n - at * geo->inner; k < n; k++) {
        c.n = left < geo->inner ? left : geo->inner;
        left -= c.n;
        line_draw(r, &w, c.n);
        g->fn(&c);
        for (int i = 0; i < g->code.n_in; i++)
            w.o.in[i] += w.in_step[i];
        for (int i = 0; i < g->code.n_out; i++)
            w.o.out[i] += w.out_step[i];
        for (int i = 0; i < w.ahead.n; i++)
            w.ahead.at[i] += geo->inner * w.ahead.size[i];
    }
    return n;
}
