/* SPDX-License-Identifier: Apache-2.0
 *
 * ready.c -- keeping what a run needs, as small as it is.
 *
 * Called by: compile/ through the device's table.  Calls: base/arena.h.
 */
#include "kernels/ready.h"

#include <string.h>

/* One block of the arena, handed out piece by piece. */
typedef struct pieces {
    char *base; /* NULL: only measure */
    size_t used;
} pieces;

static void *
piece(pieces *p, const void *from, size_t bytes)
{
    char *at = p->base == NULL ? NULL : p->base + p->used;

    p->used += (bytes + 7) / 8 * 8;
    if (at != NULL && bytes > 0)
        memcpy(at, from, bytes);
    return at;
}

static void
keep_lowered(pieces *p, mr_lowered *to, const mr_lowered *from)
{
    size_t n = (size_t)from->n_reg;

    to->step = piece(p, from->step, (size_t)from->n_step * sizeof *from->step);
    to->value = piece(p, from->value, n * sizeof *from->value);
    to->kind = piece(p, from->kind, n);
    to->dtype = piece(p, from->dtype, n);
    to->phase = piece(p, from->phase, n);
    to->row = piece(p, from->row, n * sizeof *from->row);
}

static void
keep_schedule(pieces *p, mr_schedule *to, const mr_schedule *from)
{
    to->spread =
        piece(p, from->spread, (size_t)from->low->n_reg * sizeof *from->spread);
    for (int i = 0; i < mr__schedule_kept(from); i++) {
        const mr_pass *pass = &from->pass[i];
        size_t n = (size_t)pass->n;

        to->pass[i].step = piece(p, pass->step, n * sizeof *pass->step);
        to->pass[i].chain = piece(p, pass->chain, n * sizeof *pass->chain);
        to->pass[i].slot = piece(p, pass->slot, n * sizeof *pass->slot);
    }
}

static void
keep_launch(pieces *p, mr_block_ready *to, const mr_block_launch *l)
{
    size_t n = (size_t)(l->n_kept + l->n_red);
    int64_t *stride = NULL;

    to->n_kept = l->n_kept;
    to->n_red = l->n_red;
    to->dim = piece(p, l->dim, n * sizeof *l->dim);
    for (int i = 0; i < to->code->n_in; i++) {
        int64_t *at = piece(p, l->in[i].stride, n * sizeof *at);

        stride = stride == NULL ? at : stride;
    }
    for (int i = 0; i < to->code->n_out; i++) {
        int64_t *at = piece(p, l->out[i].stride, n * sizeof *at);

        stride = stride == NULL ? at : stride;
    }
    to->stride = stride;
    to->axis = NULL;
    for (int i = 0; i < to->code->n_in && to->code->source != NULL; i++) {
        const mr_block_io *io = &l->in[i];
        int64_t *at =
            piece(p, (int64_t[]){io->step, io->n, io->word}, 3 * sizeof *at);

        to->axis = i == 0 ? at : to->axis;
    }
}

static void
keep_all(pieces *p, mr_block_ready *to, const mr_block_ready *from,
         const mr_block_launch *l)
{
    uint32_t *at;

    *to = *from;
    keep_launch(p, to, l);
    if (!mr__block_is_lowered(from))
        return;
    keep_lowered(p, &to->low, &from->low);
    keep_schedule(p, &to->schedule, &from->schedule);
    at = piece(p, from->frame.own,
               (size_t)from->low.n_reg * MR_FRAME_LISTS * sizeof *at);
    if (at != NULL)
        mr__frame_lists(&to->frame, from->low.n_reg, at);
    to->schedule.low = &to->low;
    to->schedule.l = NULL; /* each run brings its own */
}

const mr_block_ready *
mr__block_keep_ready(const mr_block_ready *b, const mr_block_launch *l,
                     mr_arena *arena)
{
    pieces p = {NULL, 0};
    mr_block_ready measured, *kept = mr__arena_alloc(arena, sizeof *kept);

    if (kept == NULL)
        return NULL;
    keep_all(&p, &measured, b, l);
    p.base = mr__arena_alloc(arena, p.used);
    p.used = 0;
    if (p.base == NULL)
        return NULL;
    keep_all(&p, kept, b, l);
    return kept;
}

void
mr__block_ready_launch(const mr_block_ready *b, mr_block_launch *l)
{
    size_t n = (size_t)(b->n_kept + b->n_red);
    const int64_t *stride = b->stride;

    l->n_kept = b->n_kept;
    l->n_red = b->n_red;
    memcpy(l->dim, b->dim, n * sizeof *l->dim);
    for (int i = 0; i < b->code->n_in; i++, stride += n)
        memcpy(l->in[i].stride, stride, n * sizeof *stride);
    for (int i = 0; i < b->code->n_in && b->axis != NULL; i++) {
        l->in[i].step = b->axis[3 * i];
        l->in[i].n = b->axis[3 * i + 1];
        l->in[i].word = b->axis[3 * i + 2];
    }
    for (int i = 0; i < b->code->n_out; i++, stride += n)
        memcpy(l->out[i].stride, stride, n * sizeof *stride);
}
