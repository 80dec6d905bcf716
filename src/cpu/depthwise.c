/* SPDX-License-Identifier: Apache-2.0
 *
 * depthwise.c -- convolution in groups of one channel.
 *
 * An output position is a sum over taps of whole vectors of channels: no
 * patches, no products.  The weights are turned first, so that those of a tap
 * lie side by side; several outputs a channel are done one after the other
 * and dealt out.  Positions of a line of the last axis are side by side in
 * registers, and go by line after line, so that what taps of several lines meet
 * is still in the first-level cache; one by one where that axis of the input is
 * dilated (most taps fall between entries) or a kernel has very many lines.
 * Called by: conv.c.  Calls: kernels/depth.h, the tier.
 */
#include <string.h>

#include "base/integers.h"
#include "cpu/conv.h"
#include "kernels/depth.h"
#include "kernels/tier/tier.h"

enum {
    TAPS = 128,
    BAND = 512,
    ROW = 64,
    TILE = 8,
    ALIGN = 64,
    LINES = 16,      /* at most go by while a tile stays at its place */
    TABLE = 512,     /* pointers to their taps */
    NEAR = 16 << 10, /* bytes that a tile's taps meet */
    UNITS = 32       /* at least, where there are as many lines */
};

typedef struct depth {
    const mr_conv *c;
    mr_depth_fn *run;
    mr_depth_row_fn *run_row;
    mr_dtype acc;
    int64_t acc_item, each; /* outputs of a channel */
    int64_t lines, near;    /* of a unit; channels that stay near */
    char *weights;          /* each x taps x channels */
} depth;

bool
mr__conv_depthwise_fits(const mr_conv *c)
{
    return c->group_channels == 1 && c->p->groups > 1;
}

static void
depth_plan(const mr_conv *c, depth *d)
{
    *d = (depth){.c = c,
                 .run = mr__depth_of(c->dtype),
                 .run_row = mr__depth_row_of(c->dtype),
                 .acc = c->dtype == MR_FLOAT64 ? MR_FLOAT64 : MR_FLOAT32,
                 .each = c->group_outputs};
    d->acc_item = mr__dtype_size(d->acc);
}

static size_t
weights_bytes(const depth *d)
{
    return mr__whole_lines((size_t)(d->c->outputs * d->c->taps * d->acc_item));
}

size_t
mr__conv_depthwise_bytes(const mr_conv *c)
{
    depth d;

    depth_plan(c, &d);
    return 2 * weights_bytes(&d); /* as they are, widened; turned */
}

/* (channels * each, taps) to (each, taps, channels). */
static void
weights_turn(const depth *d, char *flat)
{
    const mr_conv *c = d->c;
    const mr_tier *tier = mr__tier();
    const char *from = c->w;
    int row = d->acc_item == 8 ? 3 : 2;

    if (d->acc != c->dtype) {
        tier->casts->cast[c->dtype][d->acc](flat, from, c->outputs * c->taps);
        from = flat;
    }
    for (int64_t j = 0; j < d->each; j++)
        tier->moves->transpose[row](
            d->weights + j * c->taps * c->channels * d->acc_item,
            c->channels * d->acc_item, from + j * c->taps * d->acc_item,
            d->each * c->taps * d->acc_item, c->taps, c->channels);
}

/* ---- one position ----------------------------------------------------------
 */

/* Tap numbers t ... t + n of a row: where each begins in the input, or NULL. */
static void
taps_find(const mr_conv *c, int64_t row, int64_t t, int64_t n, const void **x)
{
    int64_t out[MR_CONV_SPATIAL] = {0}, tap[MR_CONV_SPATIAL] = {0};

    row = mr__conv_out_at(c, c->n_spatial, row, out);
    for (int i = c->n_spatial - 1; i >= 0; i--) {
        tap[i] = t % c->kernel[i];
        t /= c->kernel[i];
    }
    for (int64_t k = 0; k < n; k++, mr__conv_tap_next(c, c->n_spatial, tap)) {
        int64_t from = mr__conv_tap_at(c, c->n_spatial, row, out, tap);

        x[k] = from >= 0 ? c->x + from * c->channels * c->item : NULL;
    }
}

/* Sums of channels [from, from + n), output j of each, to their places. */
static void
band_store(const depth *d, int64_t row, int64_t from, int64_t n, int64_t j,
           char *sums)
{
    const mr_conv *c = d->c;
    const mr_tier *tier = mr__tier();
    char *to = c->to + (row * c->outputs + from * d->each + j) * c->item;
    uint16_t halves[BAND];

    if (d->acc != c->dtype) {
        tier->casts->cast[d->acc][c->dtype](halves, sums, n);
        sums = (char *)halves;
    }
    if (d->each == 1)
        memcpy(to, sums, (size_t)(n * c->item));
    else
        tier->moves->scatter[c->item == 2   ? 1
                             : c->item == 4 ? 2
                                            : 3](to, d->each * c->item, sums,
                                                 n);
}

static void
row_run(const depth *d, int64_t row)
{
    const mr_conv *c = d->c;
    const void *x[TAPS];
    _Alignas(64) char sums[BAND * 8];

    for (int64_t from = 0; from < c->channels; from += BAND)
        for (int64_t j = 0; j < d->each; j++) {
            int64_t left = c->channels - from, n = left < BAND ? left : BAND;

            for (int64_t t = 0; t < c->taps; t += TAPS) {
                int64_t m = c->taps - t < TAPS ? c->taps - t : TAPS;

                if (c->taps > TAPS || (from == 0 && j == 0))
                    taps_find(c, row, t, m, x);
                if (from > 0 && (j == 0 || c->taps > TAPS))
                    for (int64_t k = 0; k < m; k++)
                        if (x[k])
                            x[k] = (const char *)x[k] +
                                   (c->taps > TAPS ? from : BAND) * c->item;
                d->run(sums, x,
                       d->weights + ((j * c->taps + t) * c->channels + from) *
                                        d->acc_item,
                       c->channels, m, n, t > 0);
            }
            band_store(d, row, from, n, j, sums);
        }
}

static void
rows_piece(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        row_run(ctx, row);
}

/* ---- positions of a line ---------------------------------------------------
 */

static bool
in_rows(const mr_conv *c)
{
    int last = c->n_spatial - 1;

    return c->p->input_dilation.v[last] == 1 &&
           c->taps / c->kernel[last] <= TAPS;
}

/* Where the kernel's lines begin in the input for a line of outputs, or
 * NULL. */
static void
lines_find(const mr_conv *c, int64_t line, const void **x)
{
    int64_t out[MR_CONV_SPATIAL] = {0}, tap[MR_CONV_SPATIAL] = {0};
    int last = c->n_spatial - 1;
    int64_t n = c->taps / c->kernel[last];

    line = mr__conv_out_at(c, last, line, out);
    for (int64_t k = 0; k < n; k++, mr__conv_tap_next(c, last, tap)) {
        int64_t from = mr__conv_tap_at(c, last, line, out, tap);

        x[k] = from >= 0 ? c->x + from * c->in[last] * c->channels * c->item
                         : NULL;
    }
}

/* All but where it is: taps in the order of the entries that they meet. */
static mr_depth_row
row_describe(const depth *d)
{
    const mr_conv *c = d->c;
    int last = c->n_spatial - 1;
    mr_depth_row r = {.n_lines = c->taps / c->kernel[last],
                      .taps = c->kernel[last],
                      .stride = c->p->stride.v[last],
                      .dilation = c->p->kernel_dilation.v[last],
                      .in = c->in[last],
                      .x_row = c->channels,
                      .w_line = c->kernel[last] * c->channels,
                      .w_tap = c->p->flip ? -c->channels : c->channels};

    return r;
}

/* Output j of all channels of positions [row, row + n), in bands: sums first,
 * then to their places. */
static void
bands_run(const depth *d, mr_depth_row r, int64_t row, int64_t n, int64_t j)
{
    const mr_conv *c = d->c;
    _Alignas(64) char sums[TILE * BAND * 8];
    const void *x[TAPS];
    const void *const *lines = r.x;
    const char *w = r.w;
    int64_t first = r.first;

    r.x = x;
    r.ahead = NULL;
    r.y_row = BAND;
    for (int64_t from = 0; from < c->channels; from += BAND) {
        r.n = c->channels - from < BAND ? c->channels - from : BAND;
        r.w = w + from * d->acc_item;
        for (int64_t l = 0; l < r.n_lines; l++)
            x[l] = lines[l] ? (const char *)lines[l] + from * c->item : NULL;
        for (int64_t o = 0; o < n; o += TILE) {
            r.n_out = n - o < TILE ? n - o : TILE;
            r.first = first + o * r.stride;
            d->run_row(sums, &r);
            for (int64_t i = 0; i < r.n_out; i++)
                band_store(d, row + o + i, from, r.n, j,
                           sums + i * BAND * d->acc_item);
        }
    }
}

/* A tile of positions of some lines, from line to line; x: their taps' lines,
 * `row` their first position.  Bands of channels stay near. */
static void
tile_run(const depth *d, mr_depth_row r, const void *const *x, int64_t n_lines,
         int64_t row, int64_t j)
{
    const mr_conv *c = d->c;
    int64_t line = c->out[c->n_spatial - 1];
    bool direct = d->each == 1 && d->acc == c->dtype;
    int64_t band = direct ? d->near : c->channels;
    int64_t tile = TILE * r.stride * r.x_row * c->item;

    for (int64_t from = 0; from < c->channels; from += band)
        for (int64_t l = 0; l < n_lines; l++) {
            const void *const *next =
                l + 1 < n_lines ? x + (l + 1) * r.n_lines : x;

            r.x = x + l * r.n_lines;
            if (!direct) {
                bands_run(d, r, row + l * line, r.n_out, j);
                continue;
            }
            r.ahead = next[c->p->flip ? 0 : r.n_lines - 1];
            if (next == x && r.ahead)
                r.ahead = (const char *)r.ahead + tile;
            r.from = from;
            r.n = c->channels - from < band ? c->channels : from + band;
            r.y_row = c->channels;
            d->run_row(c->to + (row + l * line) * c->channels * c->item, &r);
        }
}

static void
lines_piece(void *ctx, int64_t begin, int64_t end)
{
    const depth *d = ctx;
    const mr_conv *c = d->c;
    int last = c->n_spatial - 1;
    int64_t per_line = (c->out[last] - 1) / ROW + 1;
    int64_t skip = c->p->flip ? c->kernel[last] - 1 : 0;
    mr_depth_row r = row_describe(d);
    const void *x[TABLE] = {NULL};

    for (int64_t u = begin; u < end; u++) {
        int64_t line = u / per_line * d->lines, from = u % per_line * ROW;
        int64_t n_lines = c->n_rows / c->out[last] - line;
        int64_t left = c->out[last] - from, n = left < ROW ? left : ROW;

        n_lines = n_lines < d->lines ? n_lines : d->lines;
        for (int64_t l = 0; l < n_lines && (u == begin || from == 0); l++)
            lines_find(c, line + l, x + l * r.n_lines);
        for (int64_t o = 0; o < n; o += TILE)
            for (int64_t j = 0; j < d->each; j++) {
                r.first = (from + o) * r.stride - c->p->low.v[last];
                r.n_out = n - o < TILE ? n - o : TILE;
                r.w = d->weights +
                      (j * c->taps + skip) * c->channels * d->acc_item;
                tile_run(d, r, x, n_lines, line * c->out[last] + from + o, j);
            }
    }
}

/* How many lines go by, and how many channels of a tile's taps stay near. */
static void
lines_plan(depth *d)
{
    const mr_conv *c = d->c;
    int last = c->n_spatial - 1;
    int64_t line = c->out[last], each = c->taps / c->kernel[last];
    int64_t entries = TILE * c->p->stride.v[last] +
                      (c->kernel[last] - 1) * c->p->kernel_dilation.v[last];

    d->lines = c->n_rows / line * ((line - 1) / ROW + 1) / UNITS;
    d->lines = d->lines < LINES ? d->lines : LINES;
    d->lines = d->lines * each < TABLE ? d->lines : TABLE / each;
    d->lines = d->lines > 1 ? d->lines : 1;
    d->near = NEAR / (entries * each * c->item) / ALIGN * ALIGN;
    d->near = d->near > ALIGN ? d->near : ALIGN;
    if (d->lines == 1)
        d->near = c->channels;
}

void
mr__conv_depthwise(const mr_conv *c, void *workspace)
{
    double position =
        (double)c->taps * (3.0 + 0.05 * (double)(c->outputs * c->item));
    int64_t line = c->out[c->n_spatial - 1];
    depth d;

    depth_plan(c, &d);
    if (c->taps == 0) {
        memset(c->to, 0, (size_t)(c->n_rows * c->outputs * c->item));
        return;
    }
    d.weights = workspace;
    weights_turn(&d, d.weights + weights_bytes(&d));
    if (!in_rows(c)) {
        mr__cpu_for(c->n_rows, mr__cpu_grain(position), rows_piece, &d);
        return;
    }
    lines_plan(&d);
    position *= 0.3 * (double)(line < ROW ? line : ROW) * (double)d.lines;
    mr__cpu_for(((c->n_rows / line - 1) / d.lines + 1) * ((line - 1) / ROW + 1),
                mr__cpu_grain(position), lines_piece, &d);
}
