/* SPDX-License-Identifier: Apache-2.0
 *
 * native_run.c -- runs compiled segments over a tile of the interpreter.
 *
 * Hands the tile's operands to the code: where each begins, how far its rows
 * are apart.  A tile that is one piece of memory in all of them is a single
 * long row.
 * Called by: interp.c.
 */
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
