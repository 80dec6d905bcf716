/* SPDX-License-Identifier: Apache-2.0
 *
 * conv_matrix_back.c -- the gradient of a convolution by its weights on the
 * matrix unit (AMX), float32 and halves.
 *
 * A product whose depth is the output positions.  A box of them is laid out
 * flat: lines of what came back, one behind the other, with zeros between, so
 * that a tap's inputs are those of the whole box at one distance.  What came
 * back is turned, the left side; the input goes in pairs of positions, once
 * with those that begin at even places and once at odd ones, so that any
 * distance has whole pairs.  Strides: entries of one remainder are a copy of
 * their own.  Few channels: what the taps of a line see is one vector of
 * columns.  Small groups go together, and what is between groups is dropped.
 *
 * Boxes are dealt out to at most PARTS sums, which are added at the end; how
 * many there are depends on shapes alone.
 * Called by: window_back.c.  Calls: conv_box.c, kernels/conv_matrix.h.
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
    COLS = MR_CONV_COLS,
    STEP = MR_CONV_STEP,
    TILE = COLS * COLS, /* floats of sums */
    POSITIONS = 512,    /* of a box: both sides stay in the second level */
    PARTS = 16,
    PART_FLOATS = 1 << 20, /* of all parts */
    SHORT = 16,            /* channels: taps of a line are joined below */
    MOST_BYTES = 4 << 20,  /* of a thread */
    MOST_COPIES = 16,
    MAX_SLOTS = 256,
    LEAST_CHANNELS = 8, /* of a group of float32; halves are widened else */
    LEAST_HALVES = 4
};

/* Along an axis tap t is at entry (output + t * dilation / stride) of the copy
 * of those whose remainder by the stride is (t * dilation) % stride. */
typedef mr_conv_axis axis;

typedef struct back {
    const mr_conv *c;
    const mr_conv_matrix *tier;
    mr_gemm_kind kind;
    int n_pieces;
    axis axis[AXES];
    bool joined;
    int64_t channels, taps; /* as they go: joined, of a line, and of lines */
    mr_conv_blocks blocks;
    int64_t n_c, n_o; /* panels of 32 of a block */
    int64_t copies;
    int64_t steps;    /* of a box */
    int64_t reach;    /* positions that a copy of the input has */
    int64_t x_bytes;  /* of one piece of one copy */
    int64_t g_floats; /* of 32 columns */
    int64_t n_boxes, n_parts, n_shares, part_floats;
    int n_slots;
    const char *x, *g;
    float *parts, *out;
    mr_ranges *ranges; /* of x and of g */
} back;

/* ---- the plan --------------------------------------------------------------
 */

/* The number of a tap's remainder, in the order of the first taps that have
 * it. */
static int64_t
copy_of(const axis *a, int64_t tap)
{
    int64_t n = 0, rest = tap * a->dilation % a->stride;

    for (int64_t t = 0; t < a->kernel; t++) {
        int64_t r = t * a->dilation % a->stride;
        bool seen = false;

        if (r == rest)
            return n;
        for (int64_t u = 0; u < t && !seen; u++)
            seen = u * a->dilation % a->stride == r;
        n += !seen;
    }
    return n;
}

/* The remainder of a copy. */
static int64_t
copy_rest(const axis *a, int64_t copy)
{
    for (int64_t t = 0; t < a->kernel; t++)
        if (copy_of(a, t) == copy)
            return t * a->dilation % a->stride;
    return 0;
}

static void
axes_plan(const mr_conv *c, axis *all)
{
    mr__conv_axes(c, all);
    for (axis *a = all; a < all + AXES; a++) {
        a->shift = (a->kernel - 1) * a->dilation / a->stride;
        for (int64_t t = 0; t < a->kernel && a->copies <= MOST_COPIES; t++)
            if (copy_of(a, t) == a->copies)
                a->copies++;
    }
}

/* Positions of a box, laid out flat. */
static int64_t
box_positions(back *b)
{
    axis *a = b->axis;
    int64_t last = 0;

    a[LINE].pitch = 1;
    a[LINE - 1].pitch = mr__round_up(a[LINE].len + a[LINE].shift, 2);
    for (int i = LINE - 2; i >= 0; i--)
        a[i].pitch = a[i + 1].pitch * (a[i + 1].len + a[i + 1].shift);
    for (int i = 0; i < AXES; i++)
        last += (a[i].len - 1) * a[i].pitch;
    return last + 1;
}

/* Grows from part of a line to lines, planes, items. */
static void
boxes_plan(back *b)
{
    for (int i = 0; i < AXES; i++)
        b->axis[i].len = 1;
    for (int i = LINE; i >= 0; i--) {
        axis *a = &b->axis[i];
        int64_t low = 1, high = a->out;

        while (low < high) { /* the longest that fits */
            a->len = (low + high + 1) / 2;
            if (box_positions(b) <= POSITIONS)
                low = a->len;
            else
                high = a->len - 1;
        }
        a->parts = (a->out - 1) / low + 1;
        a->len = (a->out - 1) / a->parts + 1;
        if (a->parts > 1)
            break;
    }
    b->n_boxes = 1;
    for (int i = 0; i < AXES; i++) {
        axis *a = &b->axis[i];

        a->parts = (a->out - 1) / a->len + 1;
        b->n_boxes *= a->parts;
    }
    b->steps = (box_positions(b) + STEP - 1) / STEP;
    b->reach = b->steps * STEP + 2;
    for (int i = 0; i < AXES; i++)
        b->reach += b->axis[i].shift * b->axis[i].pitch;
    b->reach = mr__round_up(b->reach, 2);
}

static void
back_plan(const mr_conv *c, back *b)
{
    axis *line = &b->axis[LINE];

    *b = (back){.c = c,
                .tier = mr__conv_matrix(),
                .kind = mr__conv_kind(c->dtype),
                .n_pieces = mr__gemm_pieces(c->dtype),
                .channels = c->group_channels,
                .taps = c->taps,
                .copies = 1};
    axes_plan(c, b->axis);
    b->joined = c->runs && c->group_channels < SHORT && line->kernel > 1;
    if (b->joined) {
        b->channels *= line->kernel;
        b->taps /= line->kernel;
        line->kernel = line->copies = 1;
        line->shift = 0;
    }
    b->blocks = mr__conv_blocks(c, b->channels);
    b->n_c = (b->blocks.channels - 1) / COLS + 1;
    b->n_o = (b->blocks.cols - 1) / COLS + 1;
    for (int i = 0; i < AXES; i++)
        b->copies *= b->axis[i].copies;
    boxes_plan(b);
    b->x_bytes = b->reach / 2 * MR_CONV_PAIR;
    b->g_floats = b->steps * b->n_pieces * MR_CONV_STEP_FLOATS;
    b->part_floats = b->blocks.n * b->n_c * b->taps * b->n_o * TILE;
    b->n_parts = mr__min(b->n_boxes, PARTS);
    while (b->n_parts > 1 && b->n_parts * b->part_floats > PART_FLOATS)
        b->n_parts--;
    b->n_shares = mr__min(PARTS / b->n_parts, b->blocks.n * b->n_c);
    b->n_slots = (int)mr__min(mr__pool_threads(), MAX_SLOTS);
}

/* Lines of 32 columns: of a line of the input and one more, of what came back
 * all. */
static int64_t
natural_bytes(const back *b)
{
    int64_t line = b->axis[LINE - 1].pitch + 1, all = b->steps * STEP + 1;

    return (line > all ? line : all) * MR_CONV_LINE;
}

/* Entries of a line of few channels with zeros at its ends. */
static int64_t
line_bytes(const back *b)
{
    const axis *a = &b->axis[LINE];
    int64_t n = (a->len - 1) * a->stride * b->c->channels + b->channels;

    return b->joined ? mr__round_up(n * b->c->item, 64) : 0;
}

static size_t
slot_bytes(const back *b)
{
    int64_t x = 2 * b->copies * b->n_pieces * b->x_bytes;
    int64_t g = b->n_o * b->g_floats * (int64_t)sizeof(float);

    return (size_t)(x + g + b->n_pieces * natural_bytes(b) + line_bytes(b));
}

size_t
mr__conv_matrix_back_bytes(const mr_conv *c)
{
    back b;

    back_plan(c, &b);
    return (size_t)(b.n_parts * b.part_floats) * sizeof(float) +
           (size_t)b.n_slots * slot_bytes(&b) + 64;
}

/* Halves always, since they would be widened.  float32 where most of each panel
 * is in use; groups of 8 and fewer, of which windows waste as much. */
static bool
back_pays(const back *b)
{
    const mr_conv *c = b->c;
    int64_t least = c->dtype == MR_FLOAT32 ? LEAST_CHANNELS : LEAST_HALVES;

    if (c->p->groups > 1 && c->group_channels < least)
        return false;
    if (c->dtype != MR_FLOAT32)
        return true;
    if (b->blocks.cols < COLS || b->blocks.channels <= COLS / 2)
        return false;
    return b->blocks.together > 1 ? c->group_channels <= LEAST_CHANNELS
                                  : 4 * b->blocks.channels >= 3 * b->n_c * COLS;
}

bool
mr__conv_matrix_back_fits(const mr_conv *c)
{
    axis all[AXES];
    back b;

    if (mr__conv_matrix() == NULL || mr__gemm_pieces(c->dtype) == 0 ||
        c->k == 0 || c->n_rows == 0 || c->outputs == 0)
        return false;
    axes_plan(c, all);
    for (int i = 0; i < AXES; i++)
        if (all[i].copies > MOST_COPIES)
            return false;
    back_plan(c, &b);
    return b.copies <= MOST_COPIES && slot_bytes(&b) <= MOST_BYTES &&
           back_pays(&b);
}

/* ---- a box -----------------------------------------------------------------
 */

typedef struct box {
    int64_t from[AXES], n[AXES];
    char *x;       /* copy by copy, even and odd, piece by piece */
    float *g;      /* 32 columns after each other */
    char *natural; /* lines of 32 columns, piece by piece */
    char *line;
} box;

static box
box_find(const back *b, int64_t number, char *slot)
{
    box k = {.x = slot};

    mr__conv_box(b->axis, number, k.from, k.n);
    slot += 2 * b->copies * b->n_pieces * b->x_bytes;
    k.g = (float *)(void *)slot;
    k.natural = (char *)(k.g + b->n_o * b->g_floats);
    k.line = k.natural + b->n_pieces * natural_bytes(b);
    return k;
}

static void
lines_clear(const back *b, const box *k, int64_t from, int64_t to)
{
    for (int p = 0; p < b->n_pieces && from < to; p++)
        memset(k->natural + p * natural_bytes(b) + from * MR_CONV_LINE, 0,
               (size_t)((to - from) * MR_CONV_LINE));
}

/* 32 columns of what came back, from `col` of a block on. */
static mr_gemm_range
left_make(const back *b, const box *k, int64_t block, int64_t col, float *to)
{
    const mr_conv *c = b->c;
    const axis *a = b->axis;
    int64_t lines = k->n[0] * k->n[1] * k->n[2], end = 0;
    int64_t first = block * b->blocks.cols + col;
    int64_t n =
        mr__min(mr__min(b->blocks.cols - col, c->outputs - first), COLS);
    mr_gemm_range r = MR_GEMM_RANGE_NONE;

    if (n <= 0)
        return r;
    for (int64_t l = 0; l < lines; l++) {
        int64_t at[LINE] = {l / k->n[2] / k->n[1], l / k->n[2] % k->n[1],
                            l % k->n[2]};
        int64_t place = 0, v = 0;

        for (int i = 0; i < LINE; i++) {
            place = place * a[i].out + k->from[i] + at[i];
            v += at[i] * a[i].pitch;
        }
        place = place * a[LINE].out + k->from[LINE];
        lines_clear(b, k, end, v);
        end = v + k->n[LINE];
        r = mr__gemm_range_join(
            r, b->tier->split[b->kind](k->natural + v * MR_CONV_LINE,
                                       MR_CONV_LINE, natural_bytes(b),
                                       b->g + (place * c->outputs + first) *
                                                  c->item,
                                       c->outputs * c->item, k->n[LINE], n));
    }
    lines_clear(b, k, end, b->steps * STEP);
    for (int64_t s = 0; s < b->steps; s++)
        for (int p = 0; p < b->n_pieces; p++, to += MR_CONV_STEP_FLOATS)
            b->tier->turn(to, k->natural + p * natural_bytes(b) +
                                  s * STEP * MR_CONV_LINE);
    return r;
}

/* What the taps of a line see at each position, of few channels. */
static mr_gemm_range
joined_split(const back *b, const box *k, const char *line, int64_t col,
             int64_t n)
{
    const mr_conv *c = b->c;
    const axis *a = &b->axis[LINE];
    int64_t entry = c->channels * c->item, first, high;
    int64_t kernel = b->channels / c->channels;
    int64_t count = (a->len - 1) * a->stride + kernel, low;

    first = k->from[LINE] * a->stride - a->low;
    low = first < 0 ? -first : 0;
    high = a->in - first;
    high = high < 0 ? 0 : mr__min(high, count);
    low = mr__min(low, high);
    memset(k->line, 0, (size_t)(low * entry));
    memcpy(k->line + low * entry, line + (first + low) * entry,
           (size_t)((high - low) * entry));
    memset(k->line + high * entry, 0, (size_t)((count - high) * entry));
    lines_clear(b, k, a->len, a[-1].pitch + 1);
    return b->tier->split[b->kind](k->natural, MR_CONV_LINE, natural_bytes(b),
                                   k->line + col * c->item, a->stride * entry,
                                   a->len, n);
}

/* n channels from `channel` on of the entries of a line that a copy has. */
static mr_gemm_range
line_split(const back *b, const box *k, const char *line, int64_t rest,
           int64_t channel, int64_t n)
{
    const mr_conv *c = b->c;
    const axis *a = &b->axis[LINE];
    int64_t first = k->from[LINE] * a->stride + rest - a->low;
    int64_t count = a->len + a->shift, high = a->in - first, low;

    low = first < 0 ? (-first + a->stride - 1) / a->stride : 0;
    high = high <= 0 ? 0 : mr__min((high - 1) / a->stride + 1, count);
    low = mr__min(low, high);
    lines_clear(b, k, 0, low);
    lines_clear(b, k, high, a[-1].pitch + 1);
    if (low == high)
        return MR_GEMM_RANGE_NONE;
    return b->tier->split[b->kind](
        k->natural + low * MR_CONV_LINE, MR_CONV_LINE, natural_bytes(b),
        line + ((first + low * a->stride) * c->channels + channel) * c->item,
        a->stride * c->channels * c->item, high - low, n);
}

/* The copy of 32 channels, from `col` of a block on, whose remainders are
 * `rest`. */
static mr_gemm_range
right_make(const back *b, const box *k, const int64_t *rest, int64_t block,
           int64_t col, char *to)
{
    const mr_conv *c = b->c;
    const axis *a = b->axis;
    int64_t y = a[2].len + a[2].shift, z = a[1].len + a[1].shift;
    int64_t lines = a[0].len * z * y, odd = b->n_pieces * b->x_bytes;
    int64_t pitch = a[LINE - 1].pitch, n = b->blocks.channels - col;
    int64_t first = block * b->blocks.channels + col;
    mr_gemm_range r = MR_GEMM_RANGE_NONE;

    n = mr__min(n, COLS);
    n = b->joined ? n : mr__min(n, c->channels - first);
    for (int64_t l = 0; l < lines && l * pitch < b->reach; l++) {
        int64_t at[LINE] = {l / y / z, l / y % z, l % y}, from = 0;
        int64_t count = mr__min(pitch, b->reach - l * pitch);
        bool inside = true;

        for (int i = 0; i < LINE && inside; i++) {
            int64_t entry =
                (k->from[i] + at[i]) * a[i].stride + rest[i] - a[i].low;

            inside = entry >= 0 && entry < a[i].in;
            from = from * a[i].in + entry;
        }
        if (!inside) {
            lines_clear(b, k, 0, pitch + 1);
        } else {
            const char *line = b->x + from * a[LINE].in * c->channels * c->item;

            r = mr__gemm_range_join(
                r, b->joined ? joined_split(b, k, line, col, n)
                             : line_split(b, k, line, rest[LINE], first, n));
        }
        for (int p = 0; p < b->n_pieces; p++) {
            char *even = to + p * b->x_bytes + l * pitch / 2 * MR_CONV_PAIR;

            b->tier->pairs(even, even + odd, k->natural + p * natural_bytes(b),
                           count);
        }
    }
    for (int64_t v = lines * pitch; v < b->reach; v += 2)
        for (int p = 0; p < 2 * b->n_pieces; p++)
            memset(to + p * b->x_bytes + v / 2 * MR_CONV_PAIR, 0, MR_CONV_PAIR);
    return r;
}

/* Where a tap's inputs are: in which copy, how far. */
static int64_t
tap_find(const back *b, int64_t tap, int64_t *copy)
{
    int64_t at[AXES], far = 0;

    *copy = 0;
    for (int i = LINE; i >= 0; i--) {
        const axis *a = &b->axis[i];

        at[i] = tap % a->kernel;
        tap /= a->kernel;
        if (b->c->p->flip)
            at[i] = a->kernel - 1 - at[i];
    }
    for (int i = 0; i < AXES; i++) {
        const axis *a = &b->axis[i];

        *copy = *copy * a->copies + copy_of(a, at[i]);
        far += at[i] * a->dilation / a->stride * a->pitch;
    }
    return far;
}

/* ---- a unit ----------------------------------------------------------------
 */

/* All taps of 32 channels with all columns of a block. */
static void
panel_run(const back *b, const box *k, int64_t panel, float *sums)
{
    _Alignas(64) float more[TILE];
    const mr_tier_dtype *f32 = mr__tier()->dtype[MR_FLOAT32];
    bool wide = b->blocks.channels - panel * COLS > COLS / 2;
    bool apart = b->n_pieces > 1;

    for (int64_t o = 0; o < b->n_o; o++)
        for (int64_t t = 0; t < b->taps; t++) {
            float *to = sums + (t * b->n_o + o) * TILE;
            int64_t copy, far = tap_find(b, t, &copy);
            const char *x =
                k->x + (2 * copy + (far & 1)) * b->n_pieces * b->x_bytes;
            bool high = b->blocks.cols - o * COLS > COLS / 2;

            b->tier->back[b->n_pieces - 1][high][wide](
                k->g + o * b->g_floats, x + far / 2 * MR_CONV_PAIR, b->x_bytes,
                b->steps, apart ? more : to, !apart);
            if (apart)
                f32->map[MR_K_ADD](to, (const void *[]){to, more},
                                   (int64_t[]){1, 1}, TILE);
        }
}

/* Of one block the panels [from, to) of channels. */
static void
block_run(const back *b, const box *k, int64_t block, int64_t from, int64_t to,
          float *sums)
{
    mr_gemm_range g = MR_GEMM_RANGE_NONE, x = MR_GEMM_RANGE_NONE;
    int64_t rest[AXES];

    for (int64_t o = 0; o < b->n_o; o++)
        g = mr__gemm_range_join(
            g, left_make(b, k, block, o * COLS, k->g + o * b->g_floats));
    for (int64_t p = from; p < to; p++) {
        for (int64_t copy = 0; copy < b->copies; copy++) {
            int64_t left = copy;

            for (int i = LINE; i >= 0; i--) {
                rest[i] = copy_rest(&b->axis[i], left % b->axis[i].copies);
                left /= b->axis[i].copies;
            }
            x = mr__gemm_range_join(
                x, right_make(b, k, rest, block, p * COLS,
                              k->x + 2 * copy * b->n_pieces * b->x_bytes));
        }
        b->tier->enter(COLS / 2);
        panel_run(b, k, p,
                  sums + (block * b->n_c + p) * b->taps * b->n_o * TILE);
        b->tier->leave();
    }
    /* Zeros between lines meet numbers. */
    if (x.most >= 128)
        x.least = -8 * x.most;
    mr__ranges_take(&b->ranges[0], x);
    mr__ranges_take(&b->ranges[1], g);
}

/* Can all that was seen go in pieces? */
static bool
all_fit(const back *b)
{
    return mr__gemm_ranges_fit(b->c->dtype, mr__ranges_read(&b->ranges[0]),
                               mr__ranges_read(&b->ranges[1]));
}

static void
back_unit(const void *ctx, int64_t unit, char *slot)
{
    const back *b = ctx;
    int64_t part = unit / b->n_shares, share = unit % b->n_shares;
    int64_t all = b->blocks.n * b->n_c;
    int64_t p0 = all * share / b->n_shares;
    int64_t p1 = all * (share + 1) / b->n_shares;
    int64_t end = b->n_boxes * (part + 1) / b->n_parts;
    float *sums = b->parts + part * b->part_floats;

    memset(sums + p0 * b->taps * b->n_o * TILE, 0,
           (size_t)((p1 - p0) * b->taps * b->n_o * TILE) * sizeof *sums);
    for (int64_t i = b->n_boxes * part / b->n_parts; i < end; i++) {
        box k = box_find(b, i, slot);

        if (!all_fit(b))
            return;
        for (int64_t p = p0; p < p1;) {
            int64_t block = p / b->n_c,
                    next = mr__min((block + 1) * b->n_c, p1);

            block_run(b, &k, block, p - block * b->n_c, next - block * b->n_c,
                      sums);
            p = next;
        }
    }
}

/* ---- the sum of the parts --------------------------------------------------
 */

/* One tile of sums, to the weights whose gradients it has. */
static void
tile_store(const back *b, int64_t block, int64_t panel, int64_t tap, int64_t o,
           const float *sums)
{
    const mr_conv *c = b->c;
    int64_t each = b->channels, columns = c->group_outputs;

    for (int64_t i = 0; i < COLS; i++, sums += COLS) {
        int64_t col = o * COLS + i, out = block * b->blocks.cols + col;
        int64_t low = col / columns * each - panel * COLS, high = low + each;
        int64_t skip = low < 0 ? -low : 0;

        high = mr__min(high, COLS);
        if (col >= b->blocks.cols || out >= c->outputs || low + skip >= high)
            continue;
        memcpy(b->out + (out * b->taps + tap) * each + skip, sums + low + skip,
               (size_t)(high - low - skip) * sizeof *sums);
    }
}

static void
store_piece(void *ctx, int64_t begin, int64_t end)
{
    const back *b = ctx;
    const mr_tier_dtype *f32 = mr__tier()->dtype[MR_FLOAT32];

    for (int64_t u = begin; u < end; u++) {
        int64_t o = u % b->n_o, tap = u / b->n_o % b->taps;
        int64_t panel = u / b->n_o / b->taps;
        float *to = b->parts + u * TILE;

        for (int64_t i = 1; i < b->n_parts; i++)
            f32->map[MR_K_ADD](to,
                               (const void *[]){to, to + i * b->part_floats},
                               (int64_t[]){1, 1}, TILE);
        tile_store(b, panel / b->n_c, panel % b->n_c, tap, o, to);
    }
}

bool
mr__conv_matrix_back_run(const mr_conv *c, const void *x, const void *g,
                         float *out, void *workspace)
{
    mr_ranges ranges[2];
    back b;

    back_plan(c, &b);
    b.x = x;
    b.g = g;
    b.out = out;
    b.ranges = ranges;
    b.parts = (float *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);
    mr__ranges_begin(&ranges[0]);
    mr__ranges_begin(&ranges[1]);
    mr__cpu_units(b.n_slots, b.n_parts * b.n_shares,
                  (char *)(b.parts + b.n_parts * b.part_floats), slot_bytes(&b),
                  back_unit, &b);
    if (!all_fit(&b))
        return false;
    mr__cpu_for(b.blocks.n * b.n_c * b.taps * b.n_o,
                mr__cpu_grain(100.0 * (double)(b.n_parts + 2)), store_piece,
                &b);
    return true;
}
