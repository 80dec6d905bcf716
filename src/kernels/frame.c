/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.c -- laying out the working memory of a run.
 */
#include "kernels/frame.h"

#include "kernels/draw.h"

int64_t
mr__row_blocks(int64_t points)
{
    return points > 0 ? (points + MR_RED_BLOCK - 1) / MR_RED_BLOCK : 1;
}

int
mr__block_levels(int64_t points)
{
    return 64 - __builtin_clzll((unsigned long long)mr__row_blocks(points));
}

static uint32_t
take(mr_frame *f, int64_t bytes)
{
    uint32_t p = f->bytes;

    f->bytes += ((uint32_t)bytes + 63) / 64 * 64;
    return p;
}

void
mr__frame_lists(mr_frame *f, int n_reg, uint32_t *at)
{
    f->own = at;
    f->row = at + n_reg;
    f->lanes = at + 2 * n_reg;
    f->blocks = at + 3 * n_reg;
    f->lane_bytes = at + 4 * n_reg;
}

static void
take_fold(mr_frame *f, const mr_schedule *s, const mr_step *t)
{
    const mr_geometry *g = &s->g;
    int64_t size = (int64_t)mr__elem_size((mr_dtype)t->acc);
    int64_t rows = mr__tile_rows(g), lanes = MR_LANES, levels;
    /* whole vectors of the widest kind */
    int64_t width = (rows * size + 127) / 128 * 128;

    if (g->flat)
        width = rows * size;
    f->lane_bytes[t->dst] = (uint32_t)width;
    if (t->kind == MR_STEP_ARG) {
        f->lanes[t->dst] = take(f, width + 64);
        f->blocks[t->dst] = take(f, rows * (int64_t)sizeof(uint32_t));
        return;
    }
    if (g->strategy == MR_RUN_COLS) {
        if (g->by_lanes)
            lanes = MR_LANE_LEVELS;
        else if (t->exact_lanes && g->points < lanes)
            lanes = g->points > 0 ? g->points : 1;
        f->lanes[t->dst] = take(f, lanes * width);
    } else if (g->strategy == MR_RUN_LONG) {
        f->lanes[t->dst] = take(f, lanes * size);
    } else {
        f->lanes[t->dst] = take(f, width);
    }
    levels = mr__block_levels(g->points) + 1;
    if (g->by_lanes)
        levels += MR_PART_LEVELS;
    f->blocks[t->dst] =
        take(f, g->strategy == MR_RUN_ROWS ? 0 : width * levels);
}

/* Room for the values of an input of a tile. */
static uint32_t
take_input(mr_frame *f, const mr_schedule *s, int i)
{
    const mr_geometry *g = &s->g;
    int64_t size = (int64_t)mr__elem_size((mr_dtype)s->low->dtype[i]);
    int64_t bytes = g->outer * g->inner * size;

    if ((s->twin_in >> i) & 1)
        bytes = 2 * mr__twin_bytes(g, size);
    if (((s->low->drawn >> i) & 1) && g->strategy == MR_RUN_LONG) {
        if (g->paired)
            bytes = (1 + MR_KEPT_BLOCKS) * MR_RED_BLOCK * size;
        else if (g->points <= MR_DRAW_ROW && !((s->twin_in >> i) & 1))
            bytes = mr__twin_bytes(g, size);
    }
    if (((s->low->drawn >> i) & 1) &&
        (g->strategy == MR_RUN_LONG || s->words_apart))
        f->words += (uint32_t)bytes;
    return take(f, bytes);
}

void
mr__frame_make(mr_frame *f, const mr_schedule *s, mr_frame_room *room)
{
    const mr_lowered *low = s->low;
    int64_t tile = s->g.outer * s->g.inner;
    int64_t rows = mr__tile_rows(&s->g);
    uint32_t brought =
        ~(s->direct_in | s->rowwise_in | low->splat_in | low->index_in);

    mr__frame_lists(f, low->n_reg, room->at);
    f->bytes = f->words = 0;
    rows = rows < MR_SPLAT_N ? MR_SPLAT_N : rows;
    for (int r = 0; r < low->n_reg; r++) {
        int64_t size = (int64_t)mr__elem_size((mr_dtype)low->dtype[r]);
        bool input = low->kind[r] == MR_REG_INPUT;

        if (low->row[r])
            f->row[r] = take(f, rows * size);
        if (low->kind[r] == MR_REG_CONST ||
            (input && ((low->splat_in >> r) & 1)))
            f->own[r] = take(f, MR_SPLAT_N * size);
        else if (low->row[r] ? s->spread[r] : input && ((brought >> r) & 1))
            f->own[r] = input ? take_input(f, s, r) : take(f, tile * size);
    }
    for (int i = 0; i < low->n_step; i++) {
        if (low->step[i].kind == MR_STEP_FOLD ||
            low->step[i].kind == MR_STEP_ARG)
            take_fold(f, s, &low->step[i]);
    }
    f->slot_bytes = (uint32_t)((tile * low->max_size + 63) / 64 * 64);
    f->slots = take(f, (int64_t)f->slot_bytes * s->n_slot);
}
