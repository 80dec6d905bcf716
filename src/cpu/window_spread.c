/* SPDX-License-Identifier: Apache-2.0
 *
 * window_spread.c -- convolution to few channels, float32: what the gradient by
 * an image is.
 *
 * A register tile is some positions by whole vectors of output channels, so
 * three channels would leave most lanes empty.  Here the lanes are the taps of
 * the last axis times the channels: an entry of the input, with all lines of
 * the kernel that reach a line of outputs summed in registers, gives a piece
 * of that line, taps x channels numbers that lie side by side (channels last).
 * The pieces overlap; they are added in the order of the entries, and what is
 * beyond an edge is dropped.  A dilated input is what sets them further apart.
 * Called by: conv.c.  Calls: kernels/window.h, kernels/gemm.h, the tier.
 */
#include <string.h>

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/conv.h"
#include "kernels/gemm.h"
#include "kernels/tier/tier.h"
#include "kernels/window.h"

enum {
    ROWS = MR_WINDOW_ROWS,
    TILES = 8, /* of ROWS entries of a line, at a time */
    UNIT_ENTRIES = 128,
    CHUNK = 512,
    FEW = 8,         /* outputs */
    CHANNELS = 8,    /* at least */
    MAX_LINES = 512, /* of a kernel */
    MAX_SLOTS = 256
};

typedef struct spread {
    const mr_conv *c;
    const mr_window_tier *tier;
    int64_t lines;         /* of the kernel */
    int64_t taps, wide;    /* of the last axis; numbers of a piece */
    int64_t row;           /* floats of a piece, whole vectors */
    int64_t depth, chunk;  /* of the sums; lines of a chunk of it */
    int64_t begin, length; /* where a line of sums begins; positions */
    int64_t panel_floats, n_panels, per_unit;
    int64_t n_lines; /* of all outputs */
    int n_slots;
    float *turned, *packed;
} spread;

typedef struct slot {
    const float **x;
    float *pieces, *sums;
} slot;

bool
mr__conv_spread_fits(const mr_conv *c)
{
    const mr_conv_params *p = c->p;
    int last = c->n_spatial - 1;
    bool dilated = p->input_dilation.v[last] > 1;

    return c->dtype == MR_FLOAT32 && c->n_spatial > 1 && p->groups == 1 &&
           p->stride.v[last] == 1 && p->kernel_dilation.v[last] == 1 &&
           c->kernel[last] > 1 && c->channels >= CHANNELS &&
           c->outputs <= FEW && (c->outputs > 1 || dilated) && c->k > 0 &&
           c->taps / c->kernel[last] <= MAX_LINES;
}

static void
spread_plan(const mr_conv *c, spread *s)
{
    int last = c->n_spatial - 1;
    int64_t low = c->p->low.v[last], apart = c->p->input_dilation.v[last];
    int64_t end = (c->in[last] - 1) * apart + low + 1;

    *s = (spread){.c = c, .tier = mr__window(), .taps = c->kernel[last]};
    s->lines = c->taps / s->taps;
    s->wide = s->taps * c->outputs;
    s->row = mr__round_up(s->wide, 16);
    s->depth = s->lines * c->channels;
    s->chunk = (CHUNK + c->channels - 1) / c->channels;
    s->begin = low - s->taps + 1 < 0 ? low - s->taps + 1 : 0;
    s->length = (end > c->out[last] ? end : c->out[last]) - s->begin;
    s->n_panels = (s->wide - 1) / s->tier->cols + 1;
    s->panel_floats = s->depth * mr__round_up(s->tier->cols, 16);
    s->n_lines = c->n_rows / c->out[last];
    s->per_unit = UNIT_ENTRIES / (c->in[last] > 0 ? c->in[last] : 1);
    s->per_unit = s->per_unit > 1 ? s->per_unit : 1;
    s->n_slots = mr__pool_threads();
    s->n_slots = s->n_slots < MAX_SLOTS ? s->n_slots : MAX_SLOTS;
}

static size_t
table_bytes(const spread *s)
{
    return mr__whole_lines((size_t)(s->lines * ROWS) * sizeof(float *));
}

static size_t
slot_bytes(const spread *s)
{
    int64_t floats =
        TILES * ROWS * s->row + mr__round_up(s->length * s->c->outputs, 16);

    return table_bytes(s) + (size_t)floats * sizeof(float);
}

/* Floats of the weights, turned and packed. */
static int64_t
weight_floats(const spread *s)
{
    return mr__round_up(s->wide * s->depth, 16) + s->n_panels * s->panel_floats;
}

size_t
mr__conv_spread_bytes(const mr_conv *c)
{
    spread s;

    spread_plan(c, &s);
    return (size_t)weight_floats(&s) * sizeof(float) +
           (size_t)s.n_slots * slot_bytes(&s);
}

/* (outputs, lines, taps, channels) to (taps, outputs, lines, channels), taps in
 * the order of the outputs that they reach. */
static void
weights_pack(const spread *s)
{
    const mr_conv *c = s->c;
    const float *from = (const float *)(const void *)c->w;

    for (int64_t i = 0; i < s->wide; i++)
        for (int64_t l = 0; l < s->lines; l++) {
            int64_t tap = i / c->outputs, o = i % c->outputs;

            tap = c->p->flip ? tap : s->taps - 1 - tap;
            memcpy(s->turned + (i * s->lines + l) * c->channels,
                   from + ((o * s->lines + l) * s->taps + tap) * c->channels,
                   (size_t)c->channels * sizeof(float));
        }
    for (int64_t j = 0; j < s->n_panels; j++) {
        int64_t at = j * s->tier->cols, n = s->wide - at;
        mr_gemm_side side = {NULL, MR_FLOAT32, 0, s->depth, 1};

        n = n < s->tier->cols ? n : s->tier->cols;
        side.lanes = n;
        side.data = s->turned + at * s->depth;
        mr__gemm_pack(&side, (int)mr__round_up(n, s->tier->lanes), 0, 0,
                      s->depth, s->packed + j * s->panel_floats);
    }
}

/* The lines of the input that reach a line of outputs, or NULL. */
static void
lines_find(const spread *s, int64_t line, const float **x)
{
    const mr_conv *c = s->c;
    int64_t out[MR_CONV_SPATIAL] = {0}, tap[MR_CONV_SPATIAL] = {0};
    int last = c->n_spatial - 1;

    line = mr__conv_out_at(c, last, line, out);
    for (int64_t l = 0; l < s->lines; l++, mr__conv_tap_next(c, last, tap)) {
        int64_t from = mr__conv_tap_at(c, last, line, out, tap);

        x[l] = from >= 0 ? (const float *)(const void *)c->x +
                               from * c->in[last] * c->channels
                         : NULL;
    }
}

/* Pieces of ROWS entries from `at` on; those beyond the last are it again. */
static void
tile_run(const spread *s, const float *const *lines, const slot *t, int64_t at,
         float *pieces)
{
    const mr_conv *c = s->c;
    int64_t n = c->in[c->n_spatial - 1];

    for (int64_t l = 0; l < s->lines; l++)
        for (int i = 0; i < ROWS; i++)
            t->x[l * ROWS + i] =
                lines[l]
                    ? lines[l] + (at + i < n ? at + i : n - 1) * c->channels
                    : NULL;
    for (int64_t j = 0; j < s->n_panels; j++) {
        int64_t first = j * s->tier->cols, left = s->wide - first;
        float *to[ROWS];

        left = left < s->tier->cols ? left : s->tier->cols;
        for (int i = 0; i < ROWS; i++)
            to[i] = pieces + i * s->row + first;
        for (int64_t l = 0; l < s->lines; l += s->chunk)
            s->tier->taps(
                to, t->x + l * ROWS, 0,
                s->lines - l < s->chunk ? s->lines - l : s->chunk, c->channels,
                s->packed + j * s->panel_floats +
                    l * c->channels * mr__round_up(left, s->tier->lanes),
                left, l > 0);
    }
}

static void
line_run(const spread *s, const slot *t, int64_t line)
{
    const mr_conv *c = s->c;
    const mr_tier_dtype *f32 = mr__tier()->dtype[MR_FLOAT32];
    const float *lines[MAX_LINES];
    int last = c->n_spatial - 1;
    int64_t n = c->in[last], apart = c->p->input_dilation.v[last];
    int64_t shift = c->p->low.v[last] - s->taps + 1 - s->begin;

    lines_find(s, line, lines);
    memset(t->sums, 0, (size_t)(s->length * c->outputs) * sizeof(float));
    for (int64_t at = 0; at < n; at += TILES * ROWS) {
        int64_t m = n - at < TILES * ROWS ? n - at : TILES * ROWS;

        for (int64_t i = 0; i < m; i += ROWS)
            tile_run(s, lines, t, at + i, t->pieces + i * s->row);
        for (int64_t i = 0; i < m; i++) {
            float *to = t->sums + ((at + i) * apart + shift) * c->outputs;

            f32->map[MR_K_ADD](to, (const void *[]){to, t->pieces + i * s->row},
                               (int64_t[]){1, 1}, s->wide);
        }
    }
    memcpy(c->to + line * c->out[last] * c->outputs * c->item,
           t->sums - s->begin * c->outputs,
           (size_t)(c->out[last] * c->outputs) * sizeof(float));
}

static void
spread_unit(const void *ctx, int64_t unit, char *piece)
{
    const spread *s = ctx;
    int64_t end = (unit + 1) * s->per_unit;
    slot t = {.x = (const float **)(void *)piece};

    t.pieces = (float *)(void *)(piece + table_bytes(s));
    t.sums = t.pieces + TILES * ROWS * s->row;
    end = end < s->n_lines ? end : s->n_lines;
    for (int64_t line = unit * s->per_unit; line < end; line++)
        line_run(s, &t, line);
}

void
mr__conv_spread(const mr_conv *c, void *workspace)
{
    spread s;

    spread_plan(c, &s);
    s.turned = workspace;
    s.packed = s.turned + mr__round_up(s.wide * s.depth, 16);
    weights_pack(&s);
    mr__cpu_units(s.n_slots, (s.n_lines - 1) / s.per_unit + 1,
                  (char *)workspace + (size_t)weight_floats(&s) * sizeof(float),
                  slot_bytes(&s), spread_unit, &s);
}
