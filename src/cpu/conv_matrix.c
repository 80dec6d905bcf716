/* SPDX-License-Identifier: Apache-2.0
 *
 * conv_matrix.c -- convolution on the matrix unit (AMX), float32 and halves.
 *
 * A unit of work is a box of output positions.  What of the input its taps can
 * see is copied once, in bfloat16 pieces and with zeros beyond the edges; tiles
 * of up to 16 positions of a line then read each tap's numbers from there
 * (kernels/conv_matrix.h), so there are no patches.  32 depths (a step) are
 * channels of one tap, or, of few channels, what the taps of a line see side by
 * side.  Small groups go together: their weights have zeros where a column and
 * a channel are of different groups.  With dilated inputs the positions of
 * each axis go phase by phase, and a phase has its own taps.
 *
 * The order in which a sum is made is that of its steps, whatever the box.
 * Whether the numbers of an item may go in pieces is known at the end; for
 * those that may not the caller takes another way.
 * Called by: conv.c.  Calls: conv_box.c, kernels/conv_matrix.h.
 */
#include <string.h>

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/conv_box.h"
#include "cpu/product.h"
#include "kernels/conv_matrix.h"

enum {
    AXES = MR_CONV_AXES,
    LINE = MR_CONV_LAST,
    STEP = MR_CONV_STEP,
    COLS = MR_CONV_COLS,
    ROWS = MR_CONV_ROWS,
    MAX_PHASES = 64,
    MAX_STEPS = 1 << 16,
    MAX_SLOTS = 256,
    CHUNK = 32,        /* steps: those of products in pieces */
    CHUNK_HALVES = 64, /* of bfloat16 */
    BOX_BYTES = 384 << 10,
    LARGE_BOX_BYTES = 1 << 20, /* beside weights that are read from afar */
    MOST_BYTES = 2 << 20,
    NEAR_BYTES = 1 << 20, /* of weights that stay in the second level */
    SIDE = 4,             /* panels of bfloat16 side by side, for */
    NEAR_STEPS = 12,      /* at a time */
    UNITS = 4,            /* for each thread */
    /* float32 */
    LEAST_WORK = 2000000, /* products of an item: whatever the batch */
    LEAST_COLS = 32,
    MANY_CHANNELS = 256, /* 3 x 3: squares 439, so 546 GFLOP/s; 128: 693, 600 */
    MOST_TOGETHER = 2, /* groups of 16: 1.65 ms, windows 1.79; of 8: 2.3, 1.8 */
    LEAST_CHANNELS = 4 /* of a group of halves */
};

/* Outputs of phase f along an axis are f + phases * j; their taps are those
 * that meet entries, tap t of phase f at shift + step * j. */
typedef mr_conv_axis axis;

typedef struct matrix {
    const mr_conv *c;
    const mr_conv_matrix *tier;
    mr_gemm_kind kind;
    int n_pieces;
    axis axis[AXES];
    bool joined;
    bool finite; /* zeros of weights meet numbers */
    mr_conv_blocks blocks;
    int64_t n_panels, near_panels; /* of a block, at a time */
    int64_t n_combos, n_steps;     /* phases of all axes; steps of all those */
    int64_t panel_floats;
    int64_t plane_bytes;
    int64_t rows;  /* of a tile */
    int64_t lines; /* that it has: more than one where they are short */
    int64_t chunk;
    int64_t n_units;
    int n_slots;
    /* in the workspace */
    float *weights;
    int64_t *first, *step; /* of each combination; where each reads */
    int64_t *tap;          /* of the weights: the first of a step */
    int64_t *from;         /* the first of its depths */
    mr_ranges *ranges;     /* of each item's input; behind them the weights' */
} matrix;

static int64_t
floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

static int64_t
common(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t r = a % b;

        a = b;
        b = r;
    }
    return a;
}

/* ---- the plan --------------------------------------------------------------
 */

static void
axes_plan(const mr_conv *c, axis *all)
{
    mr__conv_axes(c, all);
    for (axis *a = all; a < all + AXES; a++) {
        int64_t both = common(a->stride, a->spread);

        a->phases = a->spread / both;
        a->step = a->stride / both;
    }
}

/* Does tap t, counted from the window's corner, meet entries in a phase? */
static bool
tap_meets(const axis *a, int64_t phase, int64_t t, int64_t *shift)
{
    int64_t at = phase * a->stride + t * a->dilation - a->low;

    *shift = floor_div(at, a->spread);
    return *shift * a->spread == at;
}

static int64_t
taps_met(const axis *a, int64_t phase, int64_t *least)
{
    int64_t n = 0, shift;

    *least = 0;
    for (int64_t t = 0; t < a->kernel; t++)
        if (tap_meets(a, phase, t, &shift) && n++ == 0)
            *least = shift;
    return n;
}

/* The first entry that outputs from `out` on can see. */
static int64_t
band_first(const axis *a, int64_t out)
{
    return floor_div(out * a->stride - a->low, a->spread);
}

static void
axis_band(axis *a)
{
    int64_t reach = (a->kernel - 1) * a->dilation;

    a->parts = (a->out - 1) / a->len + 1;
    a->band = ((a->len - 1) * a->stride + reach) / a->spread + 1 +
              (a->spread > 1 ? 1 : 0);
}

/* How many entries are copied for each that is new to a box. */
static double
axis_cost(axis a, int64_t len)
{
    a.len = len;
    axis_band(&a);
    return (double)a.band / (double)len;
}

/* Bytes of a plane of the copy, and where its axes lie. */
static void
planes_plan(matrix *m)
{
    axis *a = m->axis;
    int64_t tail;

    for (int i = 0; i < AXES; i++)
        axis_band(&a[i]);
    a[LINE].bytes =
        2 * (m->joined ? m->c->channels : mr__round_up(m->c->channels, STEP));
    a[LINE - 1].bytes = a[LINE].band * a[LINE].bytes;
    if (m->finite) /* steps may end beyond the last entry */
        a[LINE - 1].bytes = mr__round_up(a[LINE - 1].bytes + 2 * STEP, 64);
    for (int i = LINE - 2; i >= 0; i--)
        a[i].bytes = a[i + 1].bytes * a[i + 1].band;
    /* So may rows of a tile beyond the last position. */
    tail = ROWS * a[LINE].step * a[LINE].bytes + 2 * STEP;
    m->plane_bytes = mr__round_up(a[0].bytes * a[0].band + tail, 64);
    m->n_units = 1;
    for (int i = 0; i < AXES; i++)
        m->n_units *= a[i].parts;
}

/* Halves of boxes, along the axis where least is copied twice, until they are
 * small and there are enough of them. */
static void
boxes_plan(matrix *m)
{
    const mr_conv *c = m->c;
    double ns = 1e-3 * (double)(c->n_rows * c->outputs) * (double)c->k *
                (m->n_pieces == 1   ? 1.0
                 : m->n_pieces == 2 ? 4.0
                                    : 6.0);
    int64_t wanted = UNITS * mr__pool_threads();
    int64_t bytes = m->blocks.n * m->n_panels * m->panel_floats * 4;
    int64_t most = bytes > NEAR_BYTES ? LARGE_BOX_BYTES : BOX_BYTES;

    if (most == LARGE_BOX_BYTES) /* each box reads all of them */
        wanted = mr__pool_threads();
    if (mr__pool_threads() == 1)
        wanted = 1;
    wanted = ns < 10000.0 * (double)wanted ? (int64_t)(ns / 10000.0) : wanted;
    for (int i = 0; i < AXES; i++)
        m->axis[i].len = m->axis[i].out;
    for (;;) {
        double least = 0.0;
        int best = -1;

        planes_plan(m);
        if (m->plane_bytes * m->n_pieces <= most && m->n_units >= wanted)
            return;
        for (int i = 0; i < AXES; i++) {
            axis *a = &m->axis[i];
            int64_t len = (a->len + 1) / 2;
            double cost = axis_cost(*a, len) / axis_cost(*a, a->len);

            if (a->len == 1 || (i == LINE && len < 2 * ROWS * a->phases))
                continue;
            if (best < 0 || cost < least - 1e-6) {
                best = i;
                least = cost;
            }
        }
        if (best < 0)
            return;
        m->axis[best].len = (m->axis[best].len + 1) / 2;
    }
}

/* Steps of a line of taps, of which a phase meets n. */
static int64_t
line_steps(const matrix *m, int64_t n)
{
    if (m->joined)
        return (n * m->c->channels + STEP - 1) / STEP;
    return n * ((m->blocks.channels + STEP - 1) / STEP);
}

static void
steps_count(matrix *m)
{
    int64_t n[AXES] = {0}, least;

    m->n_combos = m->n_steps = 1;
    for (int i = 0; i < AXES; i++) {
        const axis *a = &m->axis[i];

        m->n_combos *= a->phases;
        for (int64_t f = 0; f < a->phases; f++) {
            int64_t met = taps_met(a, f, &least);

            n[i] += i == LINE ? line_steps(m, met) : met;
        }
        m->n_steps *= n[i];
    }
}

/* What the taps of a line see lies side by side, if they are neighbours. */
static bool
line_joins(const matrix *m)
{
    const axis *a = &m->axis[LINE];
    int64_t c = m->c->channels;

    return m->c->p->groups == 1 && c % STEP != 0 &&
           (a->dilation == 1 || a->kernel == 1) &&
           (a->kernel * c + STEP - 1) / STEP <
               a->kernel * ((c + STEP - 1) / STEP);
}

/* Rows of a tile: as many as divide a line well, or several short lines that
 * are as far apart as so many positions. */
static void
rows_plan(matrix *m)
{
    const axis *x = &m->axis[LINE], *y = &m->axis[LINE - 1];
    int64_t n = (x->len - 1) / x->phases + 1;

    m->lines = 1;
    m->rows = (n - 1) / ((n - 1) / ROWS + 1) + 1;
    if (m->finite || n > ROWS / 2 || x->len < x->out || x->phases > 1 ||
        x->step > 1 || y->phases > 1 || y->step > 1)
        return;
    m->lines = mr__min((ROWS - n) / x->band + 1, y->len);
    m->rows = (m->lines - 1) * x->band + n;
}

static void
matrix_plan(const mr_conv *c, matrix *m)
{
    *m = (matrix){.c = c,
                  .tier = mr__conv_matrix(),
                  .kind = mr__conv_kind(c->dtype),
                  .n_pieces = mr__gemm_pieces(c->dtype),
                  .chunk = c->dtype == MR_BFLOAT16 ? CHUNK_HALVES : CHUNK};
    axes_plan(c, m->axis);
    m->joined = line_joins(m);
    m->blocks = mr__conv_blocks(c, c->group_channels);
    m->finite = m->joined || (c->p->groups > 1 && (m->blocks.together > 1 ||
                                                   c->group_channels % STEP));
    steps_count(m);
    m->n_panels = (m->blocks.cols - 1) / COLS + 1;
    m->panel_floats = m->n_steps * m->n_pieces * MR_CONV_STEP_FLOATS;
    m->near_panels =
        m->panel_floats > 0 ? NEAR_BYTES / (m->panel_floats * 4) : m->n_panels;
    m->near_panels = m->near_panels < 1 ? 1 : m->near_panels;
    boxes_plan(m);
    rows_plan(m);
    m->n_slots = (int)mr__min(mr__pool_threads(), MAX_SLOTS);
}

static size_t
words_bytes(int64_t n)
{
    return (size_t)mr__round_up(n * (int64_t)sizeof(int64_t), 64);
}

static size_t
weights_bytes(const matrix *m)
{
    return (size_t)(m->blocks.n * m->n_panels * m->panel_floats) *
           sizeof(float);
}

static size_t
slot_bytes(const matrix *m)
{
    return (size_t)(m->plane_bytes * m->n_pieces);
}

static size_t
ranges_bytes(const matrix *m)
{
    return (size_t)mr__round_up((m->c->batch + 1) * (int64_t)sizeof(mr_ranges),
                                64);
}

static size_t
plan_bytes(const matrix *m)
{
    return weights_bytes(m) + words_bytes(m->n_combos + 1) +
           3 * words_bytes(m->n_steps) + ranges_bytes(m) +
           (size_t)m->n_slots * slot_bytes(m);
}

size_t
mr__conv_matrix_bytes(const mr_conv *c)
{
    matrix m;

    matrix_plan(c, &m);
    return plan_bytes(&m);
}

/* Is it the fastest way?  Six products of pieces are 1.4 times as fast as one
 * by vectors, so float32 has to fill steps and columns; squares need fewer, and
 * transforms that do not pay with very many channels. */
static bool
matrix_pays(const mr_conv *c, const matrix *m)
{
    int64_t depths = m->n_steps * STEP, met = c->k * m->blocks.together;

    if (c->dtype != MR_FLOAT32)
        return c->p->groups == 1 || c->group_channels >= LEAST_CHANNELS;
    if (c->plain || c->n_rows / c->batch * c->outputs * c->k < LEAST_WORK)
        return false;
    if (mr__conv_squares_fits(c))
        return c->channels >= MANY_CHANNELS;
    if (m->blocks.cols < LEAST_COLS || 4 * met < 3 * depths)
        return false;
    return m->blocks.together <= MOST_TOGETHER;
}

bool
mr__conv_matrix_fits(const mr_conv *c)
{
    axis all[AXES];
    int64_t phases = 1;
    matrix m;

    if (mr__conv_matrix() == NULL || mr__gemm_pieces(c->dtype) == 0 ||
        c->k == 0)
        return false;
    axes_plan(c, all);
    for (int i = 0; i < AXES; i++) {
        phases *= all[i].phases;
        if (phases > MAX_PHASES)
            return false;
    }
    matrix_plan(c, &m);
    return m.n_steps <= MAX_STEPS && slot_bytes(&m) <= MOST_BYTES &&
           matrix_pays(c, &m);
}

/* ---- steps -----------------------------------------------------------------
 */

/* The steps of a line of taps in a phase: `at` is where its first taps are, tap
 * the weights' first one. */
static int64_t
line_list(const matrix *m, int64_t s, int64_t phase, int64_t at, int64_t tap)
{
    const axis *a = &m->axis[LINE];
    int64_t least, n = taps_met(a, phase, &least), shift;
    int64_t each = line_steps(m, 1);

    if (m->joined) {
        for (int64_t k = 0; k < line_steps(m, n); k++, s++) {
            m->step[s] = at + 2 * STEP * k;
            m->tap[s] = tap;
            m->from[s] = STEP * k;
        }
        return s;
    }
    for (int64_t t = 0; t < a->kernel; t++) {
        if (!tap_meets(a, phase, t, &shift))
            continue;
        for (int64_t k = 0; k < each; k++, s++) {
            m->step[s] = at + (shift - least) * a->bytes + 2 * STEP * k;
            m->tap[s] = tap + (m->c->p->flip ? a->kernel - 1 - t : t);
            m->from[s] = STEP * k;
        }
    }
    return s;
}

static void
phases_of(const matrix *m, int64_t combo, int64_t *phase)
{
    for (int i = LINE; i >= 0; i--) {
        phase[i] = combo % m->axis[i].phases;
        combo /= m->axis[i].phases;
    }
}

/* Where each step of each combination of phases reads, from the first of all
 * its taps. */
static void
steps_list(const matrix *m)
{
    int64_t s = 0, phase[AXES], least[AXES], shift[2];
    const axis *z = &m->axis[LINE - 2], *y = &m->axis[LINE - 1];
    bool flip = m->c->p->flip;

    for (int64_t combo = 0; combo < m->n_combos; combo++) {
        phases_of(m, combo, phase);
        m->first[combo] = s;
        for (int i = 0; i < AXES; i++)
            taps_met(&m->axis[i], phase[i], &least[i]);
        for (int64_t t = 0; t < z->kernel; t++) {
            if (!tap_meets(z, phase[LINE - 2], t, &shift[0]))
                continue;
            for (int64_t u = 0; u < y->kernel; u++) {
                int64_t tap = (flip ? z->kernel - 1 - t : t) * y->kernel +
                              (flip ? y->kernel - 1 - u : u);

                if (!tap_meets(y, phase[LINE - 1], u, &shift[1]))
                    continue;
                s = line_list(m, s, phase[LINE],
                              (shift[0] - least[LINE - 2]) * z->bytes +
                                  (shift[1] - least[LINE - 1]) * y->bytes,
                              tap * m->axis[LINE].kernel);
            }
        }
    }
    m->first[m->n_combos] = s;
}

/* ---- weights ---------------------------------------------------------------
 */

/* The weights of column `col` (of a block) in a step, of which `dense` has room
 * for all. */
static void
lane_gather(const matrix *m, int64_t s, int64_t phase, int64_t block,
            int64_t col, char *dense)
{
    const mr_conv *c = m->c;
    const axis *a = &m->axis[LINE];
    int64_t channels = c->group_channels, item = c->item, shift;
    int64_t group = col / c->group_outputs, n = 0;
    const char *w =
        c->w + ((block * m->blocks.cols + col) * c->taps + m->tap[s]) *
                   channels * item;

    if (!m->joined) {
        int64_t low = group * channels - m->from[s], high = low + channels;
        int64_t skip = low < 0 ? -low : 0;

        high = mr__min(high, STEP);
        if (low + skip < high)
            memcpy(dense + (low + skip) * item, w + skip * item,
                   (size_t)((high - low - skip) * item));
        return;
    }
    for (int64_t t = 0; t < a->kernel; t++) {
        int64_t tap = c->p->flip ? a->kernel - 1 - t : t;
        int64_t low = n * channels - m->from[s];

        if (!tap_meets(a, phase, t, &shift))
            continue;
        n++;
        for (int64_t k = 0; k < channels; k++)
            if (low + k >= 0 && low + k < STEP)
                memcpy(dense + (low + k) * item,
                       w + (tap * channels + k) * item, (size_t)item);
    }
}

/* Which combination of phases a step is of. */
static int64_t
combo_of(const matrix *m, int64_t s)
{
    int64_t combo = 0;

    while (m->first[combo + 1] <= s)
        combo++;
    return combo;
}

/* Sixteen columns of a step. */
static mr_gemm_range
columns_pack(const matrix *m, int64_t s, int64_t block, int64_t col, float *to)
{
    const mr_conv *c = m->c;
    int64_t left = c->p->groups - block * m->blocks.together, phase[AXES];
    int64_t n = mr__min(left, m->blocks.together) * c->group_outputs - col;
    char dense[ROWS * STEP * sizeof(float)];

    if (c->p->groups == m->blocks.n && !m->joined) {
        int64_t depth = c->group_channels - m->from[s];
        const char *w = c->w + ((block * m->blocks.cols + col) * c->k +
                                m->tap[s] * c->group_channels + m->from[s]) *
                                   c->item;

        return m->tier->weigh[m->kind](to, w, c->k * c->item, n, depth);
    }
    memset(dense, 0, sizeof dense);
    phases_of(m, combo_of(m, s), phase);
    for (int64_t i = 0; i < n && i < ROWS; i++)
        lane_gather(m, s, phase[LINE], block, col + i,
                    dense + i * STEP * c->item);
    return m->tier->weigh[m->kind](to, dense, STEP * c->item, n, STEP);
}

/* Steps of panels, panel by panel. */
static void
weights_piece(void *ctx, int64_t begin, int64_t end)
{
    const matrix *m = ctx;
    mr_gemm_range all = MR_GEMM_RANGE_NONE;

    for (int64_t u = begin; u < end; u++) {
        int64_t s = u % m->n_steps, panel = u / m->n_steps;
        int64_t block = panel / m->n_panels;
        float *to = m->weights + u * m->n_pieces * MR_CONV_STEP_FLOATS;

        panel %= m->n_panels;
        for (int half = 0; half < 2; half++)
            all = mr__gemm_range_join(
                all, columns_pack(m, s, block, panel * COLS + half * COLS / 2,
                                  to + half * MR_CONV_STEP_FLOATS / 2));
    }
    mr__ranges_take(&m->ranges[m->c->batch], all);
}

/* ---- a box -----------------------------------------------------------------
 */

typedef struct box {
    int64_t from[AXES], n[AXES]; /* outputs */
    int64_t first[AXES];         /* of the input, in the copy */
    char *copy;
} box;

static box
box_find(const matrix *m, int64_t unit, char *copy)
{
    box b = {.copy = copy};

    mr__conv_box(m->axis, unit, b.from, b.n);
    for (int i = 0; i < AXES; i++)
        b.first[i] = band_first(&m->axis[i], b.from[i]);
    return b;
}

static void
zeros(const matrix *m, char *to, int64_t bytes)
{
    for (int k = 0; k < m->n_pieces && bytes > 0; k++)
        memset(to + k * m->plane_bytes, 0, (size_t)bytes);
}

/* Entries of a line of the input, `line` where it begins or NULL. */
static mr_gemm_range
line_copy(const matrix *m, const box *b, const char *line, char *to)
{
    const axis *a = &m->axis[LINE];
    int64_t channels = m->c->channels, bytes = channels * m->c->item;
    int64_t low = b->first[LINE] < 0 ? -b->first[LINE] : 0, n = a->band;
    int64_t high = a->in - b->first[LINE], end = (a - 1)->bytes;
    mr_gemm_range r = MR_GEMM_RANGE_NONE;

    high = high < 0 ? 0 : mr__min(high, n);
    low = mr__min(low, high);
    if (line == NULL || low == high) {
        zeros(m, to, end);
        return r;
    }
    zeros(m, to, low * a->bytes);
    line += (b->first[LINE] + low) * bytes;
    if (a->bytes == 2 * channels) /* one piece */
        r = m->tier->split[m->kind](to + low * a->bytes, 0, m->plane_bytes,
                                    line, 0, 1, (high - low) * channels);
    else
        r = m->tier->split[m->kind](to + low * a->bytes, a->bytes,
                                    m->plane_bytes, line, bytes, high - low,
                                    channels);
    zeros(m, to + high * a->bytes, end - high * a->bytes);
    return r;
}

/* Does an output of the box see entry `at` of an axis? */
static bool
entry_seen(const axis *a, const box *b, int i, int64_t at)
{
    if (a->step == 1 || a->kernel >= a->step)
        return true;
    for (int64_t t = 0; t < a->kernel; t++) {
        int64_t far = at * a->spread + a->low - t * a->dilation;

        if (far % a->stride == 0 && far / a->stride >= b->from[i] &&
            far / a->stride < b->from[i] + b->n[i])
            return true;
    }
    return false;
}

/* An item's numbers; those that zeros of weights meet have to be finite. */
static void
range_note(const matrix *m, int64_t item, mr_gemm_range r)
{
    if (m->finite && r.most >= 128)
        r.least = -r.most * 8;
    mr__ranges_take(&m->ranges[item], r);
}

static void
box_copy(const matrix *m, const box *b)
{
    const mr_conv *c = m->c;
    const axis *a = m->axis;
    int64_t each = a[1].band * a[2].band, n = b->n[0] * each;
    mr_gemm_range range = MR_GEMM_RANGE_NONE;

    for (int64_t l = 0; l < n; l++) {
        int64_t rest = l, at[LINE], from = 0;
        bool inside = true, seen = true;

        for (int i = LINE - 1; i >= 0; i--) {
            at[i] = b->first[i] + rest % a[i].band;
            rest /= a[i].band;
        }
        for (int i = 0; i < LINE && inside; i++) {
            inside = at[i] >= 0 && at[i] < a[i].in;
            seen = seen && entry_seen(&a[i], b, i, at[i]);
            from = from * a[i].in + at[i];
        }
        if (!inside || seen)
            range = mr__gemm_range_join(
                range, line_copy(m, b,
                                 inside ? c->x + from * a[LINE].in *
                                                     c->channels * c->item
                                        : NULL,
                                 b->copy + l * a[LINE - 1].bytes));
        if ((l + 1) % each == 0) {
            range_note(m, at[0], range);
            range = MR_GEMM_RANGE_NONE;
        }
    }
}

/* ---- tiles -----------------------------------------------------------------
 */

/* The outputs of a box that are in a combination of phases: along each axis the
 * first, how many; where their taps begin. */
typedef struct outputs {
    const box *b;
    int64_t first[AXES], n[AXES];
    int64_t at[AXES]; /* bytes into the copy, of the first */
    int64_t tiles;    /* of a line, or of short ones together */
    int64_t lines;    /* of those that tiles begin with */
    int64_t combo;
} outputs;

static outputs
outputs_find(const matrix *m, const box *b, int64_t combo)
{
    outputs o = {.b = b, .combo = combo};
    int64_t phase[AXES], least;

    phases_of(m, combo, phase);
    for (int i = 0; i < AXES; i++) {
        const axis *a = &m->axis[i];
        int64_t skip = (b->from[i] - phase[i] + a->phases - 1) / a->phases;
        int64_t end = b->from[i] + b->n[i];

        skip = b->from[i] > phase[i] ? skip : 0;
        o.first[i] = phase[i] + skip * a->phases;
        o.n[i] = o.first[i] < end ? (end - 1 - o.first[i]) / a->phases + 1 : 0;
        taps_met(a, phase[i], &least);
        o.at[i] = (least + skip * a->step - b->first[i]) * a->bytes;
    }
    o.tiles = o.n[LINE] > 0 ? (o.n[LINE] - 1) / m->rows + 1 : 0;
    o.lines = (o.n[LINE - 1] + m->lines - 1) / m->lines;
    return o;
}

/* Two tiles: where their positions' outputs go. */
typedef struct pair {
    mr_conv_rows rows;
    char *to[2];
    int64_t n[2]; /* positions of a line; 0: there is no such tile */
    int64_t lines[2];
} pair;

static void
tile_find(const matrix *m, const outputs *o, int64_t number, pair *p, int which)
{
    const mr_conv *c = m->c;
    const axis *line = &m->axis[LINE];
    int64_t j = number % o->tiles * m->rows, rest = number / o->tiles;
    int64_t at = o->at[LINE] + j * line->step * line->bytes, place = 0;
    int64_t index[LINE];

    for (int i = LINE - 1; i >= 0; i--) {
        bool lines = i == LINE - 1;
        int64_t n = lines ? o->lines : o->n[i];

        index[i] = rest % n * (lines ? m->lines : 1);
        rest /= n;
        at += o->at[i] + index[i] * m->axis[i].step * m->axis[i].bytes;
    }
    for (int i = 0; i < LINE; i++)
        place =
            place * m->axis[i].out + o->first[i] + index[i] * m->axis[i].phases;
    place = place * line->out + o->first[LINE] + j * line->phases;
    p->rows.x[which] = o->b->copy + at;
    p->to[which] = c->to + place * c->outputs * c->item;
    p->n[which] = mr__min(m->rows, o->n[LINE] - j);
    p->lines[which] = mr__min(m->lines, o->n[LINE - 1] - index[LINE - 1]);
}

/* The weights that a pair meets in a panel of columns, and its sums. */
typedef struct meeting {
    int64_t block, col, cols;
    const float *weights;
    float *sums, *more;
} meeting;

/* Panels are counted through all blocks.  False: the last block has fewer
 * groups, so there is no such panel. */
static bool
meeting_find(const matrix *m, int64_t combo, int64_t panel, meeting *k)
{
    int64_t block = panel / m->n_panels, col = panel % m->n_panels * COLS;
    int64_t groups = m->c->p->groups - block * m->blocks.together;

    k->block = block;
    k->col = col;
    k->cols = mr__min(groups, m->blocks.together) * m->c->group_outputs - col;
    k->cols = mr__min(k->cols, COLS);
    k->weights = m->weights + panel * m->panel_floats +
                 m->first[combo] * m->n_pieces * MR_CONV_STEP_FLOATS;
    return k->cols > 0;
}

/* Steps [s0, s1) of a combination of phases. */
static void
meeting_run(const matrix *m, const pair *p, const meeting *k, int64_t combo,
            int64_t s0, int64_t s1, float *sums, bool add)
{
    mr_conv_rows r = p->rows;

    for (int i = 0; i < 2; i++)
        r.x[i] += 2 * k->block * m->blocks.channels;
    r.step = m->step + m->first[combo] + s0;
    r.n_steps = s1 - s0;
    m->tier->tile[m->n_pieces - 1][p->n[1] > 0][k->cols > COLS / 2](
        &r, k->weights + s0 * m->n_pieces * MR_CONV_STEP_FLOATS, sums, m->rows,
        add);
}

/* A tile's sums, rounded, line by line. */
static void
tile_store(const matrix *m, const pair *p, const meeting *k, int t)
{
    const axis *x = &m->axis[LINE];
    int64_t each = m->c->outputs * m->c->item;
    char *to = p->to[t] + (k->block * m->blocks.cols + k->col) * m->c->item;

    for (int64_t l = 0; l < p->lines[t]; l++)
        m->tier->store[m->kind](to + l * x->out * each, x->phases * each,
                                k->sums + (t * m->rows + l * x->band) * COLS,
                                p->n[t], k->cols);
}

/* Two tiles of positions meet n panels of columns, some steps at a time of all
 * of them.  Chunks of depth add up apart, as those of products do. */
static void
pair_run(const matrix *m, const pair *p, int64_t combo, const meeting *k, int n)
{
    const mr_tier_dtype *f32 = mr__tier()->dtype[MR_FLOAT32];
    int64_t steps = m->first[combo + 1] - m->first[combo];
    int64_t n_chunks = steps > 0 ? (steps - 1) / m->chunk + 1 : 1;

    for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
        int64_t s0 = steps * chunk / n_chunks;
        int64_t s1 = steps * (chunk + 1) / n_chunks, s = s0;

        do {
            int64_t end = n > 1 ? mr__min(s + NEAR_STEPS, s1) : s1;

            for (int i = 0; i < n; i++)
                meeting_run(m, p, &k[i], combo, s, end,
                            chunk == 0 ? k[i].sums : k[i].more, s > s0);
            s = end;
        } while (s < s1);
        for (int i = 0; chunk > 0 && i < n; i++)
            f32->map[MR_K_ADD](k[i].sums,
                               (const void *[]){k[i].sums, k[i].more},
                               (int64_t[]){1, 1}, 2 * m->rows * COLS);
    }
    for (int i = 0; i < n; i++)
        for (int t = 0; t < 2 && p->n[t] > 0; t++)
            tile_store(m, p, &k[i], t);
}

/* The same of panels [from, to).  Of many steps of bfloat16 several panels meet
 * the same ones while these are in the first-level cache. */
static void
panels_run(const matrix *m, const pair *p, int64_t combo, int64_t from,
           int64_t to)
{
    _Alignas(64) float sums[2][SIDE][2 * ROWS * COLS];
    int64_t steps = m->first[combo + 1] - m->first[combo];
    int most = m->n_pieces == 1 && steps >= 2 * NEAR_STEPS ? SIDE : 1;
    meeting k[SIDE];
    int n = 0;

    for (int64_t panel = from; panel < to; panel++) {
        k[n].sums = sums[0][n];
        k[n].more = sums[1][n];
        n += meeting_find(m, combo, panel, &k[n]);
        if (n < most && panel + 1 < to)
            continue;
        pair_run(m, p, combo, k, n);
        n = 0;
    }
}

/* All outputs of a combination of phases; weights beyond what stays near are
 * met by all of a box before the next ones. */
static void
outputs_run(const matrix *m, const outputs *o)
{
    int64_t n = o->tiles * o->lines, all = m->blocks.n * m->n_panels;
    pair p = {.rows = {.row_bytes = m->axis[LINE].step * m->axis[LINE].bytes,
                       .apart = m->plane_bytes}};

    for (int i = 0; i < LINE - 1; i++)
        n *= o->n[i];
    for (int64_t near = 0; near < all; near += m->near_panels)
        for (int64_t t = 0; t < n; t += 2) {
            int64_t end = mr__min(near + m->near_panels, all);

            tile_find(m, o, t, &p, 0);
            p.rows.x[1] = p.rows.x[0];
            p.n[1] = 0;
            if (t + 1 < n)
                tile_find(m, o, t + 1, &p, 1);
            panels_run(m, &p, o->combo, near, end);
        }
}

/* Can what was seen of an item meet the weights in pieces? */
static bool
item_fits(const matrix *m, int64_t item)
{
    return mr__gemm_ranges_fit(m->c->dtype, mr__ranges_read(&m->ranges[item]),
                               mr__ranges_read(&m->ranges[m->c->batch]));
}

static void
box_run(const void *ctx, int64_t unit, char *slot)
{
    const matrix *m = ctx;
    box b = box_find(m, unit, slot);

    if (b.n[0] == 1 && !item_fits(m, b.from[0]))
        return;
    box_copy(m, &b);
    m->tier->enter((int)m->rows);
    for (int64_t combo = 0; combo < m->n_combos; combo++) {
        outputs o = outputs_find(m, &b, combo);

        outputs_run(m, &o);
    }
    m->tier->leave();
}

int64_t
mr__conv_matrix_run(const mr_conv *c, void *workspace, bool *unfit)
{
    char *at = workspace;
    int64_t n_unfit = 0;
    matrix m;

    matrix_plan(c, &m);
    m.weights = workspace;
    at += weights_bytes(&m);
    m.first = (int64_t *)(void *)at;
    at += words_bytes(m.n_combos + 1);
    m.step = (int64_t *)(void *)at;
    at += words_bytes(m.n_steps);
    m.tap = (int64_t *)(void *)at;
    at += words_bytes(m.n_steps);
    m.from = (int64_t *)(void *)at;
    at += words_bytes(m.n_steps);
    m.ranges = (mr_ranges *)(void *)at;
    at += ranges_bytes(&m);
    steps_list(&m);
    for (int64_t i = 0; i <= c->batch; i++)
        mr__ranges_begin(&m.ranges[i]);
    mr__cpu_for(m.blocks.n * m.n_panels * m.n_steps,
                mr__cpu_grain(150.0 * m.n_pieces), weights_piece, &m);
    if (item_fits(&m, 0)) /* the weights do: nothing is seen of items yet */
        mr__cpu_units(m.n_slots, m.n_units, at, slot_bytes(&m), box_run, &m);
    for (int64_t i = 0; i < c->batch; i++) {
        unfit[i] = !item_fits(&m, i);
        n_unfit += unfit[i];
    }
    return n_unfit;
}
