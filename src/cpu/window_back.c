/* SPDX-License-Identifier: Apache-2.0
 *
 * window_back.c -- the gradient of a convolution by its weights.  On the matrix
 * unit (conv_matrix_back.c) where that may be; what follows is of float32, to
 * which halves are widened.
 *
 * The gradient of a weight is the sum over output positions of what its tap saw
 * times what came back there: a product whose depth is the positions. Both
 * operands are read where they lie, position by position (kernels/window.h);
 * positions whose tap is beyond an edge are left out.  Few channels: the taps
 * of the last axis are one segment, read from a copy of the line with its
 * zeros.
 *
 * Positions go by in pieces of a line, some of them a block that fits a cache.
 * Blocks are dealt out to at most PARTS sums, which are added at the end;
 * how many there are depends on shapes alone, so the number of threads does
 * not show.
 * Called by: device.c.  Calls: kernels/window.h.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/integers.h"
#include "base/pool.h"
#include "cpu/conv.h"
#include "kernels/tier/tier.h"
#include "kernels/window.h"

enum {
    ROWS = MR_WINDOW_ROWS,
    PIECE = 256,     /* positions of a line, of a block */
    MAX_PIECES = 64, /* of a block */
    PARTS = 16,
    PART_FLOATS = 1 << 20, /* of all parts */
    SHORT = 16,
    MAX_SLOTS = 256
};

typedef struct weights {
    mr_conv c;
    const mr_window_tier *tier;
    const float *x, *g;
    bool deep, joined;
    int64_t line, n_lines;    /* positions of a line; lines of all items */
    int64_t per_line, pieces; /* pieces of a line; of a block */
    int64_t n_blocks, n_parts, n_shares;
    int64_t segments, length; /* of the kernel; rows of a segment's sums */
    int64_t row;              /* floats of such a row */
    int64_t part_floats, slot_floats;
    int n_slots;
    float *parts;
    /* what a vector might read beyond the end of g, with room behind */
    int64_t tail_piece, tail_floats;
    float *tail;
} weights;

static void
weights_tail(weights *w)
{
    int64_t outputs = w->c.outputs, from, first;

    w->tail_piece = w->n_lines * w->per_line;
    w->tail_floats = 0;
    if (w->deep || w->c.group_outputs % w->tier->lanes == 0)
        return;
    from = w->c.n_rows - MR_WINDOW_COLS / outputs - 1;
    from = from < 0 ? 0 : from;
    first = from / w->line * w->line + from % w->line / PIECE * PIECE;
    w->tail_piece = first / w->line * w->per_line + first % w->line / PIECE;
    w->tail_floats = (w->c.n_rows - first) * outputs;
}

static void
weights_plan(const mr_kernel_args *a, weights *w)
{
    mr_conv *c = &w->c;
    int last, room;

    memset(w, 0, sizeof *w);
    mr__conv_plan(a->params, &a->in[0], &a->out[0], &a->in[1], c);
    last = c->n_spatial - 1;
    w->tier = mr__window();
    w->x = a->in[0].data;
    w->g = a->in[1].data;
    w->deep =
        c->p->groups > 1 && c->group_channels == 1 && c->group_outputs == 1;
    w->joined = !w->deep && c->runs && c->group_channels < SHORT;
    w->line = c->out[last];
    w->n_lines = c->n_rows / w->line;
    w->per_line = (w->line - 1) / PIECE + 1;
    w->pieces = w->line >= PIECE ? 1 : PIECE / w->line;
    w->pieces = w->pieces < MAX_PIECES ? w->pieces : MAX_PIECES;
    w->n_blocks = (w->n_lines * w->per_line - 1) / w->pieces + 1;
    w->segments = c->taps / (w->joined ? c->kernel[last] : 1);
    w->length = w->deep     ? 1
                : w->joined ? c->kernel[last] * c->channels
                            : c->group_channels;
    w->row =
        w->deep ? c->channels : mr__round_up(c->group_outputs, w->tier->lanes);
    w->part_floats = mr__round_up(
        (w->deep ? 1 : c->p->groups) * w->segments * w->length * w->row, 16);
    w->n_parts = w->n_blocks < PARTS ? w->n_blocks : PARTS;
    while (w->n_parts > 1 && w->n_parts * w->part_floats > PART_FLOATS)
        w->n_parts--;
    w->n_shares = PARTS / w->n_parts;
    if (w->n_shares > w->segments)
        w->n_shares = w->segments;
    room = w->joined ? (int)w->pieces : 0;
    w->slot_floats =
        room * mr__round_up(((w->line < PIECE ? w->line : PIECE) - 1) *
                                    c->p->stride.v[last] * c->channels +
                                w->length,
                            16);
    w->n_slots = mr__pool_threads();
    w->n_slots = w->n_slots < MAX_SLOTS ? w->n_slots : MAX_SLOTS;
    weights_tail(w);
}

static int64_t
tail_room(const weights *w)
{
    return w->tail_floats > 0
               ? mr__round_up(w->tail_floats + MR_WINDOW_COLS, 16)
               : 0;
}

/* Halves as floats, in front of the rest. */
static size_t
wide_bytes(const mr_kernel_args *a, int i)
{
    int64_t floats = a->in[i].dtype == MR_FLOAT32 ? 0 : a->in[i].size;

    return (size_t)mr__round_up(floats, 16) * sizeof(float);
}

/* By vectors. */
static size_t
vectors_bytes(const mr_kernel_args *a, const weights *w)
{
    return (size_t)(w->n_parts * w->part_floats + tail_room(w) +
                    w->n_slots * w->slot_floats) *
               sizeof(float) +
           64 + wide_bytes(a, 0) + wide_bytes(a, 1);
}

size_t
mr__cpu_conv_weight_workspace(const mr_kernel_args *a)
{
    weights w;

    if (a->out[0].size == 0 || a->in[1].size == 0)
        return 0;
    weights_plan(a, &w);
    return mr__conv_matrix_back_fits(&w.c) ? mr__conv_matrix_back_bytes(&w.c)
                                           : vectors_bytes(a, &w);
}

/* ---- runs ------------------------------------------------------------------
 */

/* A piece: its line's place in each axis but the last, its positions. */
typedef struct piece {
    int64_t at[MR_CONV_SPATIAL]; /* the item, then the axes */
    int64_t from, n;
    const float *g;
} piece;

static piece
piece_find(const weights *w, int64_t number)
{
    const mr_conv *c = &w->c;
    int64_t line = number / w->per_line, rest = line;
    piece p = {.from = number % w->per_line * PIECE};
    int64_t tail = w->tail_piece;

    p.n = w->line - p.from < PIECE ? w->line - p.from : PIECE;
    for (int i = c->n_spatial - 2; i >= 0; i--) {
        p.at[i + 1] = rest % c->out[i];
        rest /= c->out[i];
    }
    p.at[0] = rest;
    p.g = w->g + (line * w->line + p.from) * c->outputs;
    if (number >= tail && w->tail_floats > 0)
        p.g =
            w->tail + (line * w->line + p.from - tail / w->per_line * w->line -
                       tail % w->per_line * PIECE) *
                          c->outputs;
    return p;
}

/* The line of x that a piece's taps of this segment lie in, or NULL. */
static const float *
piece_line(const weights *w, const piece *p, const int64_t *tap)
{
    const mr_conv *c = &w->c;
    int64_t from = p->at[0];
    int last = c->n_spatial - 1;

    for (int i = 0; i < last; i++) {
        int64_t at = mr__conv_position(c, i, p->at[i + 1], tap[i]);

        if (at < 0)
            return NULL;
        from = from * c->in[i] + at;
    }
    return w->x + from * c->in[last] * c->channels;
}

static int64_t
floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

/* Positions whose tap is inside. */
static mr_window_run
run_clipped(const weights *w, const piece *p, const float *line, int64_t tap)
{
    const mr_conv *c = &w->c;
    int last = c->n_spatial - 1;
    int64_t step = c->p->stride.v[last], n = c->in[last];
    int64_t shift, low, high;

    if (c->p->flip)
        tap = c->kernel[last] - 1 - tap;
    shift = tap * c->p->kernel_dilation.v[last] - c->p->low.v[last];
    low = -floor_div(shift, step); /* the first with low * step + shift >= 0 */
    high = floor_div(n - 1 - shift, step) + 1;
    low = low > p->from ? low : p->from;
    high = high < p->from + p->n ? high : p->from + p->n;
    if (low >= high)
        return (mr_window_run){NULL, NULL, 0};
    return (mr_window_run){line + (low * step + shift) * c->channels,
                           p->g + (low - p->from) * c->outputs, high - low};
}

/* All of a piece's taps in a line, copied with zeros where there is nothing. */
static mr_window_run
run_copied(const weights *w, const piece *p, const float *line, float *spare)
{
    const mr_conv *c = &w->c;
    int last = c->n_spatial - 1;
    int64_t step = c->p->stride.v[last], n = c->in[last];
    int64_t first = p->from * step - c->p->low.v[last];
    int64_t count = (p->n - 1) * step + c->kernel[last];
    int64_t low = first < 0 ? -first : 0, high = n - first;

    if (low == 0 && high >= count)
        return (mr_window_run){line + first * c->channels, p->g, p->n};
    high = high < 0 ? 0 : high < count ? high : count;
    low = low < high ? low : high;
    memset(spare, 0, (size_t)(count * c->channels) * sizeof *spare);
    memcpy(spare + low * c->channels, line + (first + low) * c->channels,
           (size_t)((high - low) * c->channels) * sizeof *spare);
    return (mr_window_run){spare, p->g, p->n};
}

static void
taps_of(const mr_conv *c, int64_t segment, bool joined, int64_t *tap)
{
    int n = c->n_spatial;

    tap[n - 1] = 0;
    for (int i = joined ? n - 2 : n - 1; i >= 0; i--) {
        tap[i] = segment % c->kernel[i];
        segment /= c->kernel[i];
    }
}

/* The runs of a segment over a block's pieces; how many. */
static int64_t
segment_runs(const weights *w, const piece *p, int64_t n, int64_t segment,
             float *spare, mr_window_run *runs)
{
    int64_t tap[MR_CONV_SPATIAL], n_runs = 0;
    int64_t room = w->joined ? w->slot_floats / w->pieces : 0;

    taps_of(&w->c, segment, w->joined, tap);
    for (int64_t i = 0; i < n; i++) {
        const float *line = piece_line(w, p + i, tap);

        if (!line)
            continue;
        runs[n_runs] =
            w->joined ? run_copied(w, p + i, line, spare + i * room)
                      : run_clipped(w, p + i, line, tap[w->c.n_spatial - 1]);
        n_runs += runs[n_runs].n > 0;
    }
    return n_runs;
}

/* ---- a unit ----------------------------------------------------------------
 */

static void
segment_add(const weights *w, float *sums, const mr_window_run *runs,
            int64_t n_runs, int64_t segment)
{
    const mr_conv *c = &w->c;
    int64_t x_step = c->p->stride.v[c->n_spatial - 1] * c->channels;
    mr_window_run r[MAX_PIECES];

    if (w->deep) {
        w->tier->deep(sums + segment * w->row, w->row, runs, n_runs, x_step,
                      c->outputs, 1, c->channels);
        return;
    }
    for (int64_t group = 0; group < c->p->groups; group++) {
        float *to = sums + (group * w->segments + segment) * w->length * w->row;

        for (int64_t j = 0; j < c->group_outputs; j += w->tier->cols) {
            int64_t left = w->row - j;

            left = left < w->tier->cols ? left : w->tier->cols;
            for (int64_t i = 0; i < w->length; i += ROWS) {
                int64_t n = w->length - i < ROWS ? w->length - i : ROWS;

                for (int64_t k = 0; k < n_runs; k++)
                    r[k] = (mr_window_run){
                        runs[k].x + group * c->group_channels + i,
                        runs[k].g + group * c->group_outputs + j, runs[k].n};
                w->tier->back(to + i * w->row + j, w->row, r, n_runs, x_step,
                              c->outputs, n, left);
            }
        }
    }
}

static void
weights_unit(const void *ctx, int64_t unit, char *slot)
{
    const weights *w = ctx;
    int64_t part = unit / w->n_shares, share = unit % w->n_shares;
    int64_t all = w->n_lines * w->per_line;
    int64_t s0 = w->segments * share / w->n_shares;
    int64_t s1 = w->segments * (share + 1) / w->n_shares;
    int64_t end = w->n_blocks * (part + 1) / w->n_parts;
    float *sums = w->parts + part * w->part_floats;
    mr_window_run runs[MAX_PIECES];
    piece p[MAX_PIECES];

    for (int64_t g = 0; g < (w->deep ? 1 : w->c.p->groups); g++)
        memset(sums + (g * w->segments + s0) * w->length * w->row, 0,
               (size_t)((s1 - s0) * w->length * w->row) * sizeof *sums);
    for (int64_t b = w->n_blocks * part / w->n_parts; b < end; b++) {
        int64_t first = b * w->pieces, n = all - first;

        n = n < w->pieces ? n : w->pieces;
        for (int64_t i = 0; i < n; i++)
            p[i] = piece_find(w, first + i);
        for (int64_t s = s0; s < s1; s++) {
            int64_t n_runs =
                segment_runs(w, p, n, s, (float *)(void *)slot, runs);

            if (n_runs > 0)
                segment_add(w, sums, runs, n_runs, s);
        }
    }
}

/* ---- the sum of the parts --------------------------------------------------
 */

static void
parts_add(const weights *w, int64_t at, int64_t n)
{
    const mr_tier_dtype *f32 = mr__tier()->dtype[MR_FLOAT32];

    for (int64_t i = 1; i < w->n_parts; i++)
        f32->map[MR_K_ADD](
            w->parts + at,
            (const void *[]){w->parts + at, w->parts + i * w->part_floats + at},
            (int64_t[]){1, 1}, n);
}

/* A segment of a group (deep: all channels), and where it belongs. */
static void
store_piece(void *ctx, int64_t begin, int64_t end)
{
    const weights *w = ctx;
    const mr_conv *c = &w->c;
    float *out = (float *)(void *)c->to;

    for (int64_t u = begin; u < end; u++) {
        int64_t group = u / w->segments, segment = u % w->segments;
        int64_t at = u * w->length * w->row, n = w->length * w->row;
        int64_t outputs = w->deep ? c->channels : c->group_outputs;

        parts_add(w, at, n);
        mr__tier()->moves->transpose[2](
            out + group * c->group_outputs * c->k + segment * w->length,
            c->k * 4, w->parts + at, w->row * 4, outputs, w->length);
    }
}

typedef struct widening {
    const mr_kernel_view *from;
    float *to;
} widening;

static void
widen_piece(void *ctx, int64_t begin, int64_t end)
{
    const widening *k = ctx;

    mr__tier()->casts->cast[k->from->dtype][MR_FLOAT32](
        k->to + begin, (const uint16_t *)k->from->data + begin, end - begin);
}

/* Input i as floats. */
static const float *
widened(const mr_kernel_args *a, int i, float **room)
{
    widening k = {&a->in[i], *room};

    if (a->in[i].dtype == MR_FLOAT32)
        return a->in[i].data;
    mr__cpu_for(a->in[i].size, mr__cpu_grain(0.2), widen_piece, &k);
    *room += wide_bytes(a, i) / sizeof(float);
    return k.to;
}

static void
weights_run(const mr_kernel_args *a, weights *w, void *workspace)
{
    float *room = (float *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);

    w->x = widened(a, 0, &room);
    w->g = widened(a, 1, &room);
    w->c.to = a->out[0].data;
    w->parts = room;
    w->tail = w->parts + w->n_parts * w->part_floats;
    if (w->tail_floats > 0) {
        int64_t skip = w->c.n_rows * w->c.outputs - w->tail_floats;

        memcpy(w->tail, w->g + skip, (size_t)w->tail_floats * sizeof(float));
        memset(w->tail + w->tail_floats, 0, MR_WINDOW_COLS * sizeof(float));
    }
    mr__cpu_units(w->n_slots, w->n_parts * w->n_shares,
                  (char *)(w->tail + tail_room(w)),
                  (size_t)w->slot_floats * sizeof(float), weights_unit, w);
    mr__cpu_for((w->deep ? 1 : w->c.p->groups) * w->segments,
                mr__cpu_grain((double)(w->n_parts + 2) *
                              (double)(w->length * w->row) * 0.1),
                store_piece, w);
}

/* The numbers cannot go on the matrix unit. */
static mr_code
weights_unfit(const mr_kernel_args *a, weights *w)
{
    void *memory = mr__alloc(vectors_bytes(a, w));

    if (memory == NULL)
        return MR_E_MEMORY;
    weights_run(a, w, memory);
    mr__dealloc(memory);
    return MR_OK;
}

mr_code
mr__cpu_conv_weight(const mr_kernel_args *a)
{
    weights w;

    if (a->out[0].size == 0)
        return MR_OK;
    if (a->in[1].size == 0) {
        memset(a->out[0].data, 0, (size_t)a->out[0].size * sizeof(float));
        return MR_OK;
    }
    weights_plan(a, &w);
    if (!mr__conv_matrix_back_fits(&w.c))
        weights_run(a, &w, a->workspace);
    else if (!mr__conv_matrix_back_run(&w.c, a->in[0].data, a->in[1].data,
                                       a->out[0].data, a->workspace))
        return weights_unfit(a, &w);
    return MR_OK;
}

double
mr__cpu_conv_weight_cost(const mr_kernel_args *a)
{
    double k = (double)a->out[0].size;

    return 500.0 + 0.03 * k * (double)a->in[1].size /
                       (double)(a->out[0].dim[0] > 0 ? a->out[0].dim[0] : 1);
}
