/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c -- convolution that reads its input where it lies, float32.
 *
 * MR_WINDOW_ROWS output positions by a panel of output channels stay in
 * registers while the taps go by (kernels/window.h); a table says where each
 * tap of each position begins, so there are no patches.  What is beyond an edge
 * is a line of zeros, or left out where that is so for a whole tile, for which
 * ends of lines are taken apart from their midsts.  Few channels: the taps of
 * the last axis are one segment, and only those that hang over an edge are
 * copied.  With dilated inputs the positions of a line are taken phase by
 * phase, so that a tap that falls between entries does so for all of them and
 * costs nothing. The weights are packed once.  Depths are cut at CHUNK or more,
 * by shape alone. Called by: conv.c.  Calls: kernels/window.h, kernels/gemm.h.
 */
#include <string.h>

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/conv.h"
#include "cpu/epilogue.h"
#include "kernels/gemm.h"
#include "kernels/window.h"

enum {
    ROWS = MR_WINDOW_ROWS,
    UNIT_ROWS = 96,
    UNIT_MOST = 384, /* where edges of lines are apart, */
    EDGE_UNITS = 32, /* which so many units allow */
    TABLE = 12288,   /* pointers of a unit */
    CHUNK = 512,
    SHORT = 16, /* channels: taps of a line are joined below */
    FEW_OUTPUTS = 2,
    MAX_SLOTS = 256
};

typedef struct window {
    const mr_conv *c;
    const mr_window_tier *tier;
    int64_t cols;                /* of a panel */
    int64_t group_floats;        /* packed weights of a group */
    int64_t segments, length;    /* of a position */
    int64_t chunk;               /* segments in a row */
    int64_t rows;                /* of a unit */
    int64_t n_spare, n_zeros;    /* floats */
    int64_t together;            /* tiles that meet a panel of weights */
    int axes;                    /* whose taps are segments */
    bool dilated, apart;         /* ends of lines from their midsts */
    int64_t edge_low, edge_high; /* outputs within these hang over no edge */
    int64_t item_floats;         /* of the input */
    int64_t n_places;            /* taps of all axes, one after the other */
    int n_slots;
    float *weights;
    int64_t *offset; /* segments: from a position's first corner, in floats */
    const mr_after *after; /* what follows a unit, or NULL */
} window;

typedef struct slot {
    const float **x;
    float *zeros, *spare, *dump;
    int64_t *places;             /* of the taps of each axis, */
    int64_t at[MR_CONV_SPATIAL]; /* for outputs here */
} slot;

static bool
is_dilated(const mr_conv *c)
{
    bool dilated = false;

    for (int i = 0; i < c->n_spatial; i++)
        dilated = dilated || c->p->input_dilation.v[i] > 1;
    return dilated;
}

bool
mr__conv_window_fits(const mr_conv *c)
{
    return c->dtype == MR_FLOAT32 && !c->plain && c->k > 0 &&
           (c->group_outputs >= FEW_OUTPUTS || is_dilated(c) ||
            c->p->groups > 1);
}

static int64_t
panel_floats(const window *w, int64_t n)
{
    return mr__round_up(w->c->k * mr__round_up(n, w->tier->lanes), 16);
}

/* Outputs at an end of a line miss taps: if they are taken together, a tile of
 * them leaves these out.  A unit is as many lines as a tile has rows, then. */
static void
edges_plan(const mr_conv *c, window *w)
{
    int last = c->n_spatial - 1;
    int64_t n = c->out[last], stride = c->p->stride.v[last];
    int64_t low = c->p->low.v[last];
    int64_t reach = (c->kernel[last] - 1) * c->p->kernel_dilation.v[last];
    int64_t high = c->in[last] + low - reach;

    low = low <= 0 ? 0 : (low - 1) / stride + 1;
    w->edge_low = low < n ? low : n;
    high = high <= 0 ? 0 : (high - 1) / stride + 1;
    high = high < n ? high : n;
    w->edge_high = high > w->edge_low ? high : w->edge_low;
    w->apart = w->axes == c->n_spatial && !w->dilated &&
               w->edge_high - w->edge_low < n && n * ROWS <= UNIT_MOST &&
               n * ROWS * w->segments <= TABLE && n * ROWS >= UNIT_ROWS / 2 &&
               c->n_rows >= EDGE_UNITS * n * ROWS;
    if (w->apart)
        w->rows = n * ROWS;
}

static void
window_plan(const mr_conv *c, window *w)
{
    bool joined = c->runs && c->group_channels < SHORT;
    int64_t last = c->kernel[c->n_spatial - 1];
    int64_t rest = c->group_outputs;

    *w = (window){.c = c, .tier = mr__window()};
    w->cols = w->tier->cols;
    w->length = c->group_channels * (joined ? last : 1);
    w->segments = c->taps / (joined ? last : 1);
    /* A group's channels of many positions, far apart, are places that the
     * first-level cache cannot hold at the same time. */
    w->together = c->p->groups == 1    ? UNIT_MOST
                  : c->channels <= 64  ? 4
                  : c->channels <= 128 ? 2
                                       : 1;
    w->axes = joined ? c->n_spatial - 1 : c->n_spatial;
    w->dilated = is_dilated(c);
    w->item_floats = c->channels;
    for (int i = 0; i < c->n_spatial; i++) {
        w->n_places += c->kernel[i];
        w->item_floats *= c->in[i];
    }
    w->chunk = (CHUNK + w->length - 1) / w->length;
    w->rows = TABLE / w->segments / ROWS * ROWS;
    w->rows = w->rows < ROWS ? ROWS : w->rows;
    w->rows = w->rows < UNIT_ROWS ? w->rows : UNIT_ROWS;
    w->n_slots = mr__pool_threads();
    w->n_slots = w->n_slots < MAX_SLOTS ? w->n_slots : MAX_SLOTS;
    edges_plan(c, w);
    w->n_zeros = c->channels > w->length ? c->channels : w->length;
    w->n_spare = joined ? w->rows * w->segments * w->length : 0;
    for (; rest > 0; rest -= w->cols)
        w->group_floats += panel_floats(w, rest < w->cols ? rest : w->cols);
}

static size_t
places_bytes(int64_t n)
{
    return mr__whole_lines((size_t)n * sizeof(int64_t));
}

static size_t
table_bytes(const window *w)
{
    size_t table = (size_t)(w->rows * w->segments) * sizeof(float *);

    return mr__whole_lines(table);
}

static size_t
slot_bytes(const window *w)
{
    int64_t floats = mr__round_up(w->n_zeros, 16) +
                     mr__round_up(w->n_spare, 16) +
                     mr__round_up(MR_WINDOW_COLS, 16);

    return table_bytes(w) + places_bytes(w->n_places) +
           (size_t)floats * sizeof(float);
}

/* Weights and the offsets of segments. */
static size_t
shared_bytes(const window *w)
{
    return (size_t)(w->group_floats * w->c->p->groups) * sizeof(float) +
           places_bytes(w->segments);
}

size_t
mr__conv_window_bytes(const mr_conv *c)
{
    window w;

    window_plan(c, &w);
    return shared_bytes(&w) + (size_t)w.n_slots * slot_bytes(&w);
}

/* ---- weights ---------------------------------------------------------------
 */

static void
weights_piece(void *ctx, int64_t begin, int64_t end)
{
    const window *w = ctx;
    const mr_conv *c = w->c;
    int64_t n_panels = (c->group_outputs - 1) / w->cols + 1;
    int64_t whole = panel_floats(w, w->cols);

    for (int64_t u = begin; u < end; u++) {
        int64_t group = u / n_panels, from = u % n_panels * w->cols;
        int64_t n = c->group_outputs - from, lanes = w->tier->lanes;
        mr_gemm_side s = {NULL, MR_FLOAT32, 0, c->k, 1};

        n = n < w->cols ? n : w->cols;
        s.lanes = n;
        s.data = c->w + (group * c->group_outputs + from) * c->k * c->item;
        mr__gemm_pack(&s, (int)mr__round_up(n, lanes), 0, 0, c->k,
                      w->weights + group * w->group_floats +
                          u % n_panels * whole);
    }
}

/* ---- where taps begin ------------------------------------------------------
 */

/* Output position `row` of the order in which they are taken: each line of the
 * last axis phase by phase.  Its place in the output, row-major. */
static int64_t
row_place(const mr_conv *c, int64_t row, int64_t *out)
{
    int last = c->n_spatial - 1;
    int64_t n = c->out[last], at = row % n, line = row / n;
    int64_t phases = c->p->input_dilation.v[last];

    for (int64_t f = 0; phases > 1 && f < phases; f++) {
        int64_t count = f < n ? (n - 1 - f) / phases + 1 : 0;

        if (at < count) {
            at = f + at * phases;
            break;
        }
        at -= count;
    }
    out[last] = at;
    row = line * n + at;
    for (int i = last - 1; i >= 0; i--) {
        out[i] = line % c->out[i];
        line /= c->out[i];
    }
    out[MR_CONV_SPATIAL] = line; /* of the batch */
    return row;
}

/* The taps of a line of the kernel as one segment, in x or made in `spare`. */
static const float *
joined_segment(const window *w, const float *line, int64_t out, float *spare)
{
    const mr_conv *c = w->c;
    int last = c->n_spatial - 1;
    int64_t n = c->kernel[last], each = c->channels;
    int64_t first = out * c->p->stride.v[last] - c->p->low.v[last];
    int64_t low = first < 0 ? -first : 0, high = c->in[last] - first;

    if (low == 0 && high >= n)
        return line + first * each;
    high = high < 0 ? 0 : high < n ? high : n;
    low = low < high ? low : high;
    memset(spare, 0, (size_t)(n * each) * sizeof *spare);
    memcpy(spare + low * each, line + (first + low) * each,
           (size_t)((high - low) * each) * sizeof *spare);
    return spare;
}

void
mr__conv_offsets(const mr_conv *c, int axes, int64_t *offset)
{
    int64_t tap[MR_CONV_SPATIAL] = {0}, n = 1;

    for (int i = 0; i < axes; i++)
        n *= c->kernel[i];
    for (int64_t s = 0; s < n; s++) {
        int64_t far = 0;

        for (int i = 0; i < c->n_spatial; i++) {
            int64_t t = i >= axes ? 0 : tap[i];

            if (c->p->flip && i < axes)
                t = c->kernel[i] - 1 - t;
            far = far * c->in[i] + t * c->p->kernel_dilation.v[i];
        }
        offset[s] = far * c->channels;
        mr__conv_tap_next(c, axes, tap);
    }
}

/* How far into the input the taps of each axis reach, in floats, -1 beyond an
 * edge; those of a line stay. */
static void
places_find(const window *w, slot *s, const int64_t *out)
{
    const mr_conv *c = w->c;
    int64_t *to = s->places, each = c->channels;

    for (int i = w->axes; i < c->n_spatial; i++)
        each *= c->in[i];
    for (int i = w->axes - 1; i >= 0; to += c->kernel[i], each *= c->in[i--]) {
        if (s->at[i] == out[i])
            continue;
        s->at[i] = out[i];
        for (int64_t tap = 0; tap < c->kernel[i]; tap++) {
            int64_t at = mr__conv_position(c, i, out[i], tap);

            to[tap] = at < 0 ? -1 : at * each;
        }
    }
}

/* Where a line of taps begins: the taps of all axes but the innermost, in the
 * order of places. */
static const float *
taps_line(const window *w, const slot *s, const float *item, const int64_t *tap)
{
    const int64_t *place = s->places + w->c->kernel[w->axes - 1];

    for (int i = w->axes - 2; i >= 0; place += w->c->kernel[i--]) {
        if (place[tap[i]] < 0)
            return NULL;
        item += place[tap[i]];
    }
    return item;
}

/* The segments of one position; those beyond an edge are NULL.  Whether none
 * can be. */
static bool
position_segments(const window *w, slot *s, const int64_t *out, float *spare,
                  const float **x)
{
    const mr_conv *c = w->c;
    const float *whole = w->dilated ? NULL : mr__conv_whole_window(c, out);
    const float *item = (const float *)(const void *)c->x +
                        out[MR_CONV_SPATIAL] * w->item_floats;
    int64_t tap[MR_CONV_SPATIAL] = {0};
    int last = c->n_spatial - 1, inner = w->axes - 1;

    if (whole) {
        const float *far = whole + w->offset[c->p->flip ? 0 : w->segments - 1];

        for (int64_t k = 0; k < w->segments; k++)
            x[k * ROWS] = whole + w->offset[k];
        for (int64_t i = 0; i < c->channels; i += 16) /* not read before */
            __builtin_prefetch(far + i);
        return true;
    }
    if (inner < 0) {
        x[0] = joined_segment(w, item, out[last], spare);
        return false;
    }
    places_find(w, s, out);
    for (int64_t k = 0; k < w->segments; k += c->kernel[inner]) {
        const float *line = taps_line(w, s, item, tap);

        for (int64_t t = 0; t < c->kernel[inner]; t++) {
            const float *at =
                line && s->places[t] >= 0 ? line + s->places[t] : NULL;

            if (at && inner < last)
                at = joined_segment(w, at, out[last],
                                    spare + (k + t) * w->length);
            x[(k + t) * ROWS] = at;
        }
        for (int i = inner - 1; i >= 0; i--) {
            if (++tap[i] < c->kernel[i])
                break;
            tap[i] = 0;
        }
    }
    return false;
}

/* Which of a unit's rows is taken at `at`: those that hang over no edge of
 * their lines first, then the others place by place. */
static int64_t
row_taken(const window *w, int64_t at, int64_t n_lines)
{
    int64_t n = w->c->out[w->c->n_spatial - 1];
    int64_t inner = w->edge_high - w->edge_low, place;

    if (!w->apart)
        return at;
    if (at < inner * n_lines)
        return at / inner * n + w->edge_low + at % inner;
    at -= inner * n_lines;
    place = at / n_lines;
    return at % n_lines * n + place + (place < w->edge_low ? 0 : inner);
}

/* The table of ROWS positions from `first` on, neighbours in a line that hang
 * over neither of its ends: as the first's. */
static void
tile_line(const window *w, slot *s, const int64_t *first, int64_t place,
          const float **x, float **to)
{
    const mr_conv *c = w->c;
    int64_t step = c->p->stride.v[c->n_spatial - 1] * c->channels;
    const float *far;

    position_segments(w, s, first, s->spare, x);
    for (int64_t k = 0; k < w->segments; k++) {
        const float *at = x[k * ROWS];

        if (at == NULL) {
            for (int i = 1; i < ROWS; i++)
                x[k * ROWS + i] = NULL;
            continue;
        }
#pragma GCC unroll 6
        for (int i = 1; i < ROWS; i++)
            x[k * ROWS + i] = at + i * step;
    }
    far = x[c->p->flip ? 0 : (w->segments - 1) * ROWS];
    for (int i = 0; i < ROWS; i++) {
        to[i] = (float *)(void *)c->to + (place + i) * c->outputs;
        for (int64_t f = 0; far && f < c->channels; f += 16)
            __builtin_prefetch(far + i * step + f); /* not read before */
    }
}

/* The table of ROWS positions: beyond edges zeros, or NULL where that is so for
 * all of them.  Positions beyond the last are it again, and go nowhere. */
static void
tile_find(const window *w, slot *s, int64_t row0, int64_t tile, const float **x,
          float **to)
{
    const mr_conv *c = w->c;
    int64_t n = c->n_rows - row0 < w->rows ? c->n_rows - row0 : w->rows;
    int64_t n_lines = n / c->out[c->n_spatial - 1];
    int n_whole = 0;

    for (int i = 0; i < ROWS; i++) {
        int64_t at = tile * ROWS + i, place;
        int64_t out[MR_CONV_SPATIAL + 1];
        bool there = at < n;

        place =
            row_place(c, row0 + row_taken(w, there ? at : n - 1, n_lines), out);
        if (i == 0 && !w->dilated && at + ROWS <= n &&
            out[c->n_spatial - 1] >= w->edge_low &&
            out[c->n_spatial - 1] + ROWS <= w->edge_high) {
            tile_line(w, s, out, place, x, to);
            return;
        }
        n_whole += position_segments(
            w, s, out,
            s->spare +
                (w->n_spare ? (tile * ROWS + i) * w->segments * w->length : 0),
            x + i);
        to[i] = there ? (float *)(void *)c->to + place * c->outputs : NULL;
    }
    for (int64_t k = 0; n_whole < ROWS && k < w->segments; k++) {
        bool any = false;

        for (int i = 0; i < ROWS; i++)
            any = any || x[k * ROWS + i];
        for (int i = 0; any && i < ROWS; i++)
            if (!x[k * ROWS + i])
                x[k * ROWS + i] = s->zeros;
    }
}

/* ---- a unit ----------------------------------------------------------------
 */

/* Groups whose outputs nearly fill a vector go in pairs. */
static int64_t
groups_together(const window *w, int64_t group)
{
    const mr_conv *c = w->c;

    return w->length == c->group_channels &&
                   c->group_outputs <= w->tier->lanes &&
                   c->group_outputs > w->tier->lanes / 2 &&
                   group + 1 < c->p->groups
               ? 2
               : 1;
}

/* Segments [s0, s0 + n_segments) of some tiles with the panel of channels from
 * `from` on of a group, or of two. */
static void
panel_run(const window *w, const slot *s, float *const (*to)[ROWS],
          int64_t first, int64_t n_tiles, int64_t group, int64_t from,
          int64_t s0)
{
    const mr_conv *c = w->c;
    int64_t n = c->group_outputs - from, wide = w->tier->lanes;
    int64_t count = w->segments - s0, at = group * c->group_channels;
    bool two = groups_together(w, group) == 2;
    const float *weights = w->weights + group * w->group_floats +
                           from / w->cols * panel_floats(w, w->cols);

    n = n < w->cols ? n : w->cols;
    wide = mr__round_up(n, wide);
    weights += s0 * w->length * wide;
    count = count < w->chunk ? count : w->chunk;
    for (int64_t t = first; t < first + n_tiles; t++) {
        const float *const *x = s->x + (t * w->segments + s0) * ROWS;
        float *y[ROWS];

        for (int i = 0; i < ROWS; i++)
            y[i] =
                to[t][i] ? to[t][i] + group * c->group_outputs + from : s->dump;
        if (two)
            w->tier->taps_pair(y, x, at, count, w->length, weights,
                               w->group_floats, n, s0 > 0);
        else
            w->tier->taps(y, x, at, count, w->length, weights, n, s0 > 0);
    }
}

static void
window_unit(const void *ctx, int64_t unit, char *piece)
{
    const window *w = ctx;
    const mr_conv *c = w->c;
    int64_t row0 = unit * w->rows, left = c->n_rows - row0;
    int64_t n_tiles = ((left < w->rows ? left : w->rows) - 1) / ROWS + 1;
    float *to[UNIT_MOST / ROWS][ROWS];
    slot s = {.x = (const float **)(void *)piece, .at = {-1, -1, -1}};

    piece += table_bytes(w);
    s.places = (int64_t *)(void *)piece;
    s.zeros = (float *)(void *)(piece + places_bytes(w->n_places));
    s.spare = s.zeros + mr__round_up(w->n_zeros, 16);
    s.dump = s.spare + mr__round_up(w->n_spare, 16);
    memset(s.zeros, 0, (size_t)w->n_zeros * sizeof(float));
    memset(s.dump, 0, MR_WINDOW_COLS * sizeof(float));
    for (int64_t t = 0; t < n_tiles; t++)
        tile_find(w, &s, row0, t, s.x + t * w->segments * ROWS, to[t]);
    for (int64_t s0 = 0; s0 < w->segments; s0 += w->chunk)
        for (int64_t t = 0; t < n_tiles; t += w->together)
            for (int64_t group = 0; group < c->p->groups;
                 group += groups_together(w, group))
                for (int64_t from = 0; from < c->group_outputs; from += w->cols)
                    panel_run(w, &s, (float *const(*)[ROWS])to, t,
                              n_tiles - t < w->together ? n_tiles - t
                                                        : w->together,
                              group, from, s0);
}

/* Positions in phases are not adjacent in the output. */
bool
mr__conv_window_follows(const mr_conv *c)
{
    return c->p->input_dilation.v[c->n_spatial - 1] == 1;
}

static void
joined_unit(const void *ctx, int64_t unit, char *piece)
{
    const window *w = ctx;
    const mr_conv *c = w->c;
    int64_t row0 = unit * w->rows, left = c->n_rows - row0;

    window_unit(ctx, unit, piece);
    mr__after_piece(w->after, row0, left < w->rows ? left : w->rows, 0,
                    c->outputs);
}

static void
window_run(window *w, char *slots, const mr_after *after)
{
    w->after = after;
    mr__cpu_units(w->n_slots, (w->c->n_rows - 1) / w->rows + 1, slots,
                  slot_bytes(w), after != NULL ? joined_unit : window_unit, w);
}

/* Apart, so that others need no room for a program. */
static __attribute__((noinline)) void
joined_run(window *w, char *slots)
{
    mr_after after;

    mr__after_make(&after, w->c->epilogue);
    window_run(w, slots, &after);
}

void
mr__conv_window(const mr_conv *c, void *workspace)
{
    bool joined = c->epilogue != NULL && mr__conv_window_follows(c);
    char *slots;
    int64_t n_panels = (c->group_outputs - 1) / mr__window()->cols + 1;
    window w;

    window_plan(c, &w);
    w.weights = workspace;
    w.offset = (int64_t *)(void *)(w.weights + w.group_floats * c->p->groups);
    mr__conv_offsets(c, w.axes, w.offset);
    mr__cpu_for(c->p->groups * n_panels,
                mr__cpu_grain(0.5 * (double)(c->k * w.cols)), weights_piece,
                &w);
    slots = (char *)workspace + shared_bytes(&w);
    if (joined)
        joined_run(&w, slots);
    else
        window_run(&w, slots, NULL);
}
