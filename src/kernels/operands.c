/* SPDX-License-Identifier: Apache-2.0
 *
 * operands.c -- what a tile reads and writes: inputs that are not contiguous
 * are brought into its frame, by stride, by index or drawn; outputs go out.
 *
 * Called by: interp.c, passes.c.  Calls: copy.h, source.h, draw.h.
 */
#include "kernels/copy.h"
#include "kernels/draw.h"
#include "kernels/index.h"
#include "kernels/run.h"
#include "kernels/source.h"

typedef mr_run run;

#define at_own   mr__at_own
#define at_row   mr__at_row
#define reg_size mr__reg_size

/* ---- operands in memory
 * ------------------------------------------------------------- */

/* Where point p of a row lies from the row's start. */
int64_t
mr__point_offset(const mr_block_launch *l, const mr_block_io *io, int64_t p)
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
int64_t
mr__piece_length(const mr_block_launch *l, int64_t p, int64_t n)
{
    int64_t last = l->dim[l->n_kept + l->n_red - 1];

    p = last - p % last;
    return n < p ? n : p;
}

static void
points_in(const mr_block_launch *l, const mr_block_io *io, char *tile,
          const char *memory, size_t size, int64_t p, int64_t n)
{
    int64_t stride = io->stride[l->n_kept + l->n_red - 1];

    for (int64_t m; n > 0; p += m, n -= m, tile += m * (int64_t)size) {
        m = mr__piece_length(l, p, n);
        mr__copy_in(size, tile, memory + mr__point_offset(l, io, p), 1, 0, m,
                    stride);
    }
}

static void
points_out(const mr_block_launch *l, const mr_block_io *io, char *memory,
           const char *tile, size_t size, int64_t p, int64_t n)
{
    int64_t stride = io->stride[l->n_kept + l->n_red - 1];

    for (int64_t m; n > 0; p += m, n -= m, tile += m * (int64_t)size) {
        m = mr__piece_length(l, p, n);
        mr__copy_out(size, memory + mr__point_offset(l, io, p), 0, stride, tile,
                     1, m);
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

/* How the values of gather i lie along a tile; its indices one after the other
 * where they are computed. */
static mr_gather_run
gather_of(const run *r, int i, int64_t stride, int64_t index_stride)
{
    const mr_code_source *s = &r->low->source[i];
    mr_gather_run how = {.size = (int64_t)reg_size(r, i),
                         .index_dtype = (mr_dtype)r->low->dtype[s->index],
                         .step = r->l->in[i].step,
                         .n = r->l->in[i].n,
                         .stride = stride,
                         .index_stride = index_stride};

    if (s->computed != 0) {
        how.index_dtype = mr__index_dtype(&r->low->indices[s->computed - 1]);
        how.index_stride = (int64_t)mr__elem_size(how.index_dtype);
    }
    return how;
}

/* Values of n points in a line. */
static __attribute__((noinline)) void
gather_computed(run *r, int i, char *to, const char *from, int64_t stride,
                mr_index_line *line, int64_t n)
{
    int which = r->low->source[i].computed - 1;
    const mr_index_code *c = &r->low->indices[which];
    mr_gather_run how = gather_of(r, i, stride, 0);
    mr_index_room room;

    line->fn = r->native == NULL ? NULL : r->native->index.segment[which].fn;
    mr__index_begin(c, line, &room);
    for (int64_t k = 0, m; k < n; k += m) {
        m = n - k < room.points ? n - k : room.points;
        r->bad_index |=
            !mr__gather_run(&how, to + k * how.size, from + k * stride,
                            mr__index_compute(c, line, k, m, &room), m);
    }
}

/* Of a tile whose points start at p.  Points of a row that are not one in
 * memory come in pieces. */
static void
computed_bring(run *r, int i, int64_t outer, int64_t inner, int64_t p)
{
    const mr_geometry *g = &r->s->g;
    const mr_block_launch *l = r->l;
    const mr_index_code *c = &r->low->indices[r->low->source[i].computed - 1];
    const mr_block_io *io = &l->in[i];
    int64_t size = (int64_t)reg_size(r, i), n = inner;
    bool apart = points_apart(r);
    int last = l->n_kept + l->n_red - 1;
    char *to = at_own(r, i);

    for (int64_t k = 0; k < outer; k++)
        for (int64_t q = 0; q < inner; q += n, to += n * size) {
            mr_index_line line;
            const char *from = r->in[i] + k * mr__stride_outer(g, l, io, size) +
                               mr__point_offset(l, io, p + q);

            if (apart)
                n = mr__piece_length(l, p + q, inner - q);
            for (int j = 0; j < c->n_in; j++) {
                const mr_block_io *x = &l->in[c->in[j]];
                int64_t bytes = (int64_t)reg_size(r, c->in[j]);

                line.in[j] = r->in[c->in[j]] +
                             k * mr__stride_outer(g, l, x, bytes) +
                             mr__point_offset(l, x, p + q);
                line.stride[j] =
                    apart ? x->stride[last] : mr__stride_inner(g, l, x, bytes);
            }
            gather_computed(r, i, to, from,
                            apart ? io->stride[last]
                                  : mr__stride_inner(g, l, io, size),
                            &line, n);
        }
}

/* The values of a gather for a tile whose points start at p. */
static void
gather_bring(run *r, int i, const char *from, int64_t outer, int64_t inner,
             int64_t p)
{
    const mr_geometry *g = &r->s->g;
    const mr_block_launch *l = r->l;
    int j = r->low->source[i].index, last = l->n_kept + l->n_red - 1;
    const mr_block_io *io = &l->in[i], *at = &l->in[j];
    int64_t size = (int64_t)reg_size(r, i), n = inner;
    int64_t index_size = (int64_t)reg_size(r, j);
    mr_gather_run how = gather_of(r, i, mr__stride_inner(g, l, io, size),
                                  mr__stride_inner(g, l, at, index_size));
    int64_t so = mr__stride_outer(g, l, io, size);
    int64_t index_so = mr__stride_outer(g, l, at, index_size);
    char *to = at_own(r, i);

    if (r->low->source[i].computed != 0) {
        computed_bring(r, i, outer, inner, p);
        return;
    }
    if (!points_apart(r)) {
        const char *index = r->in[j] + mr__point_offset(l, at, p);

        r->bad_index |= !mr__gather_rows(&how, to, from, so, index, index_so,
                                         outer, r->ahead, inner);
        return;
    }
    how.stride = io->stride[last];
    how.index_stride = at->stride[last];
    for (int64_t k = 0; k < outer; k++)
        for (int64_t q = 0; q < inner; q += n, to += n * size) {
            n = mr__piece_length(l, p + q, inner - q);
            r->bad_index |= !mr__gather_run(
                &how, to, r->in[i] + k * so + mr__point_offset(l, io, p + q),
                r->in[j] + k * index_so + mr__point_offset(l, at, p + q), n);
        }
}

/* An operand that lies as the tile does, and its part for the twin. */
static void
foresee(const run *r, const mr_block_io *io, const char *at, int64_t size,
        int64_t outer, int64_t inner, mr_foreseen *a)
{
    const mr_geometry *g = &r->s->g;

    if (a->n + 2 > MR_FORESEEN || mr__stride_inner(g, r->l, io, size) != size ||
        (outer > 1 && mr__stride_outer(g, r->l, io, size) != inner * size))
        return;
    a->at[a->n] = at;
    a->at[a->n + 1] = at + g->shift * io->stride[g->twin_dim];
    a->size[a->n] = a->size[a->n + 1] = size;
    a->n += 2;
}

void
mr__run_foresee(const mr_run *r, int64_t outer, int64_t inner, mr_foreseen *a)
{
    uint32_t in = r->s->direct_in | r->s->rowwise_in, out = r->s->direct_out;

    a->n = 0;
    for (int i = 0; i < r->low->n_in && in >> i != 0; i++)
        if ((in >> i) & 1)
            foresee(r, &r->l->in[i], r->in[i], (int64_t)reg_size(r, i), outer,
                    inner, a);
    out &= ~r->s->alias_out;
    for (int o = 0; o < r->low->n_out && out >> o != 0; o++)
        if ((out >> o) & 1)
            foresee(r, &r->l->out[o], r->out[o],
                    (int64_t)reg_size(r, r->low->out_reg[o]), outer, inner, a);
}

/* Words from point p on, of rows whose points may be apart in the stream. */
static void
draw_rows(run *r, int i, char *to, int64_t outer, int64_t inner, int64_t p)
{
    const mr_block_launch *l = r->l;
    const mr_block_io *io = &l->in[i];
    int64_t size = (int64_t)reg_size(r, i);
    int64_t so = mr__stride_outer(&r->s->g, l, io, size);
    mr_draw_tile t = {r->drawn[i] + mr__point_offset(l, io, p), so,
                      mr__stride_inner(&r->s->g, l, io, size), outer, inner};

    if (!points_apart(r)) {
        mr__draw_rows(io, size, to, &t);
        return;
    }
    t.outer = 1;
    for (int64_t k = 0; k < outer; k++)
        for (int64_t q = 0; q < inner; q += t.inner, to += t.inner * size) {
            t.inner = mr__piece_length(l, p + q, inner - q);
            t.at = r->drawn[i] + k * so + mr__point_offset(l, io, p + q);
            mr__draw_rows(io, size, to, &t);
        }
}

void
mr__run_row_words(mr_run *r)
{
    const mr_geometry *g = &r->s->g;

    r->at_hand = r->low->drawn != 0 && g->points <= MR_DRAW_ROW &&
                 g->strategy == MR_RUN_LONG;
    r->words_from = 0;
    for (uint32_t m = r->at_hand ? r->low->drawn : 0; m != 0; m &= m - 1) {
        int i = __builtin_ctz(m);
        int64_t size = (int64_t)reg_size(r, i);
        mr_draw_tile t = {r->drawn[i], 0, size, 1, g->points};
        char *own = at_own(r, i), *twin = own + mr__twin_bytes(g, size);
        bool pair = (r->s->twin_in >> i) & 1;

        r->words[i] = pair && r->side == MR_SIDE_UPPER ? twin : own;
        if (pair && r->side == MR_SIDE_LOWER)
            mr__draw_twins(&r->l->in[i], own, twin, &t, NULL);
        else if (!pair || r->side == MR_SIDE_NONE)
            draw_rows(r, i, own, 1, g->points, 0);
    }
}

/* The words of a tile whose points start at p, or where its twin left them. */
static const void *
draw_bring(run *r, int i, int64_t outer, int64_t inner, int64_t p)
{
    const mr_geometry *g = &r->s->g;
    const mr_block_io *io = &r->l->in[i];
    int64_t size = (int64_t)reg_size(r, i);
    char *own = at_own(r, i), *twin = own + mr__twin_bytes(g, size);
    mr_draw_tile t = {r->drawn[i] + mr__point_offset(r->l, io, p),
                      mr__stride_outer(g, r->l, io, size),
                      mr__stride_inner(g, r->l, io, size), outer, inner};
    mr_foreseen ahead;

    if (r->at_hand)
        return r->words[i] + (p - r->words_from) * size;
    if (r->side == MR_SIDE_NONE || !((r->s->twin_in >> i) & 1)) {
        draw_rows(r, i, own, outer, inner, p);
        return own;
    }
    if (r->side == MR_SIDE_UPPER)
        return twin;
    mr__run_foresee(r, outer, inner, &ahead);
    mr__draw_twins(io, own, twin, &t, &ahead);
    return own;
}

/* A row of the tile is a row of points, or one of several side by side. */
static void
put_bring(run *r, int i, int64_t outer, int64_t inner, int64_t p)
{
    const mr_geometry *g = &r->s->g;
    const mr_code_source *source = &r->low->source[i];
    const mr_block_io *io = &r->l->in[i], *at = &r->l->in[source->index];
    const mr_tier_dtype *t = r->tier->dtype[r->low->dtype[i]];
    int64_t size = (int64_t)reg_size(r, i);
    int64_t index_size = (int64_t)reg_size(r, source->index);
    bool cols = g->strategy == MR_RUN_COLS;
    mr_put_run how = {.size = size,
                      .index_dtype = (mr_dtype)r->low->dtype[source->index],
                      .n = io->n,
                      .first = p,
                      .hop = g->hop,
                      .point = cols ? inner * size : size,
                      .row = cols ? size : inner * size,
                      .count = cols ? outer : inner,
                      .rows = cols ? inner : outer,
                      .value_row = cols ? mr__stride_inner(g, r->l, io, size)
                                        : mr__stride_outer(g, r->l, io, size),
                      .index_row =
                          cols ? mr__stride_inner(g, r->l, at, index_size)
                               : mr__stride_outer(g, r->l, at, index_size),
                      .add = source->adds ? t->map[MR_K_ADD] : NULL,
                      .zeros = &r->zeros[i],
                      .put_at = &r->put_at[i]};

    r->bad_index |=
        !mr__put_rows(&how, at_own(r, i), r->in[i], r->in[source->index]);
}

/* Does an output lie in the memory of input i? */
static bool
written_over(const run *r, int i)
{
    for (int o = 0; o < r->low->n_out && r->s->alias_out != 0; o++)
        if (r->l->out[o].data == r->l->in[i].data)
            return true;
    return false;
}

/* Inputs of a tile whose points start at p. */
void
mr__run_inputs(mr_run *r, const mr_pass *pass, int64_t outer, int64_t inner,
               int64_t p)
{
    const mr_schedule *s = r->s;
    uint32_t inputs = pass->inputs;

    for (int i = 0; inputs != 0; i++, inputs >>= 1) {
        const mr_block_io *io = &r->l->in[i];
        char *from;

        if (!(inputs & 1) || ((r->low->splat_in >> i) & 1))
            continue;
        r->row_bytes[i] = inner * (int64_t)reg_size(r, i);
        r->step[i] = 1;
        if ((r->low->drawn >> i) & 1) {
            r->ptr[i] = draw_bring(r, i, outer, inner, p);
            continue;
        }
        from = r->in[i] + mr__point_offset(r->l, io, p);
        if (((s->direct_in | s->rowwise_in | pass->rowwise) >> i) & 1) {
            r->ptr[i] = from;
            r->row_bytes[i] =
                mr__stride_outer(&s->g, r->l, io, (int64_t)reg_size(r, i));
            continue;
        }
        r->ptr[i] = at_own(r, i);
        if ((r->low->gathered >> i) & 1) {
            if (r->low->source[i].kind == MR_FROM_PUT)
                put_bring(r, i, outer, inner, p);
            else
                gather_bring(r, i, from, outer, inner, p);
            continue;
        }
        if (r->held[i] == from && r->held_outer[i] == outer &&
            r->held_inner[i] == inner && !written_over(r, i) &&
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
    mr__copy_out(size, r->out[o] + mr__point_offset(r->l, io, p), so, si, tile,
                 outer, inner);
}

void
mr__run_outputs(mr_run *r, uint32_t outputs, int64_t outer, int64_t inner,
                int64_t p)
{
    outputs &= ~r->in_place;
    for (int o = 0; outputs != 0; o++, outputs >>= 1) {
        if (outputs & 1)
            output_store(r, o, outer, inner, p);
    }
}

/* ---- values of rows
 * --------------------------------------------------------------------- */

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

void
mr__run_late_row(mr_run *r, int i)
{
    const mr_code_source *s = &r->low->source[i];
    int j = s->index;
    const mr_block_io *io = &r->l->in[i], *at = &r->l->in[j];
    int64_t stride = row_stride(r, io, reg_size(r, i));
    mr_gather_run how =
        gather_of(r, i, stride, row_stride(r, at, reg_size(r, j)));

    r->late &= ~(1U << i);
    if (s->computed != 0) {
        const mr_index_code *c = &r->low->indices[s->computed - 1];
        mr_index_line line;

        for (int k = 0; k < c->n_in; k++) {
            line.in[k] = r->in[c->in[k]];
            line.stride[k] =
                row_stride(r, &r->l->in[c->in[k]], reg_size(r, c->in[k]));
        }
        gather_computed(r, i, at_row(r, i), r->in[i], stride, &line, r->rows);
        return;
    }
    r->bad_index |=
        !mr__gather_run(&how, at_row(r, i), r->in[i], r->in[j], r->rows);
}

void
mr__run_row_inputs(mr_run *r, int64_t outer, int64_t inner)
{
    r->late = r->low->late_in;
    for (int i = 0; i < r->low->n_in; i++) {
        const mr_block_io *io = &r->l->in[i];

        if (!r->low->row[i] || (r->low->late_in >> i & 1))
            continue;
        if ((r->low->gathered >> i) & 1)
            mr__run_late_row(r, i);
        else
            mr__copy_in(reg_size(r, i), at_row(r, i), r->in[i], 1, 0, r->rows,
                        row_stride(r, io, reg_size(r, i)));
        mr__run_publish(r, i, outer, inner);
    }
}

void
mr__run_row_outputs(mr_run *r)
{
    for (int o = 0; o < r->low->n_out; o++) {
        int reg = r->low->out_reg[o];

        if (r->low->out_row[o])
            mr__copy_out(reg_size(r, reg), r->out[o], 0,
                         row_stride(r, &r->l->out[o], reg_size(r, reg)),
                         at_row(r, reg), 1, r->rows);
    }
}
