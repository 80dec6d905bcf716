/* SPDX-License-Identifier: Apache-2.0
 *
 * squares.c -- convolution with 3 x 3 taps of many channels, float32.
 *
 * Squares of 2 x 2 outputs need 16 products of a transform of 4 x 4 inputs
 * and of the taps for each pair of channels, not 36 (Winograd's minimal
 * filtering; S. Winograd, Arithmetic Complexity of Computations, 1980); a first
 * axis of three adds up in the transform.  So a unit is some squares of some
 * layers: inputs transformed, 16 products of matrices by the register tiles of
 * kernels/window.h, outputs transformed back, all within the second-level
 * cache.  Small integers are exact.
 *
 * A transform adds numbers that no tap would bring together, and rounds the
 * small ones at the size of the large ones.  So there is a promise: with
 *     M  the largest |x| of a square's 4 x 4 inputs, of all layers,
 *     S  the sum over layers of the largest of the nine sums of |w| over the
 *        channels of a tap, of an output,
 *     n  the roundings in a row, at most 172 (chains of 128, sums of at most
 *        28 chains, transforms),
 * an output is wrong by at most n * 2^-24 * 64 * M * S (and what products that
 * underflow lose, as tap by tap): of inputs four are
 * added for a product, and the sizes of the taps of the nine products that an
 * output adds up sum to at most 16 S.  M is at most 64 times the largest |x| of
 * the output's own window, and in no layer is the sum of a tap below 1 / 64 of
 * the largest (zeros at all nine are).  Where that is not so, and where an
 * output is not finite (infinities and numbers too large meet their negatives
 * here), outputs are made tap by tap, bit by bit as window.c makes them: all if
 * taps are uneven, those of the square if inputs are.  Which ones is decided by
 * maxima and by sums in one order, so by no tier and no thread; and by nothing
 * beside the square, so an image is the same alone and in any batch.
 *
 * Inputs are looked at while they are transformed, before their products.  The
 * four in the middle of a square are in all its windows, so mostly they decide.
 * Squares that come tap by tap do so after the others, where weights were.
 * Called by: conv.c.  Calls: window.c, kernels/window.h, kernels/gemm.h.
 */
#include <float.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/integers.h"
#include "base/log.h"
#include "base/pool.h"
#include "cpu/conv.h"
#include "cpu/epilogue.h"
#include "kernels/gemm.h"
#include "kernels/window.h"

enum {
    ROWS = MR_WINDOW_ROWS,
    PARTS = MR_SQUARE_PARTS,
    SQUARES = 48,            /* of a unit of one layer, */
    MOST = 96,               /* of all its layers */
    LAYERS = 16,             /* of a unit */
    UNITS = 16,              /* at least, if there are squares for them */
    UNIT_BYTES = 448 << 10,  /* at most, if six squares need no more */
    WEIGHT_BYTES = 16 << 20, /* transformed, at most */
    DEEP_TAPS = 7,
    FEW = 16, /* channels, and outputs: at least */
    MANY = 512,
    PACKED = 16,              /* channels packed at a time */
    AHEAD = 2,                /* squares whose inputs are asked for */
    DEPTH = 128,              /* of a chain: longer ones have larger errors */
    CHUNK = 512,              /* of one tap by tap */
    WORDS = (MOST + 63) / 64, /* with a bit for each square of a unit */
    MAX_SLOTS = 256
};

/* Sums of taps below this come tap by tap. */
#define TINY 0x1p-96F

typedef struct squares {
    const mr_conv *c;
    const mr_window_tier *tier;
    int64_t cols;                  /* of a panel */
    int64_t deep_taps, deep, low;  /* of the first of three axes */
    int64_t n_high, n_wide, n_all; /* squares of a layer's sides, of all */
    int64_t n, layers;             /* of a unit */
    int64_t n_blocks;              /* of squares */
    int64_t n_units;
    int64_t x_apart, y_apart; /* parts of a unit, in floats */
    int64_t part_floats;      /* weights of a part */
    int64_t room;             /* floats for inputs, or weights */
    int n_slots;
    float *weights;           /* transformed; later: as they are, in panels */
    uint64_t (*again)[WORDS]; /* of each unit: squares that come tap by tap */
    int64_t *listed;          /* units that have such */
    const mr_after *after;    /* what follows a unit, or NULL */
} squares;

typedef struct slot {
    float *x, *y, *zeros, *dump;
    int64_t square, n; /* from `square` on */
    int64_t layer, n_layers;
    uint64_t *again;
} slot;

/* Where a square is. */
typedef struct place {
    int64_t batch, high, wide;
} place;

static int64_t
panel_wide(const squares *w, int64_t from)
{
    int64_t n = w->c->outputs - from, lanes = w->tier->lanes;

    return mr__round_up(mr__min(n, w->cols), lanes);
}

static int64_t
halves(int64_t n)
{
    return n / 2 + n % 2;
}

/* Is a square's work, transforms counted, less than that of its taps, and has
 * an image enough of them? */
static bool
squares_pay(const mr_conv *c)
{
    int64_t h = c->out[c->n_spatial - 2], v = c->out[c->n_spatial - 1];
    int64_t n = halves(h) * halves(v);

    return n * 22 < h * v * 9 &&
           n * (c->n_rows / c->batch / (h * v)) >= SQUARES;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool wanted; /* written once, under `once` */

static void
setting_read(void)
{
    const char *how = getenv("MARRAM_CONV");

    wanted = how == NULL || strcmp(how, "taps") != 0;
    if (wanted && how != NULL && strcmp(how, "squares") != 0)
        mr__log(MR_LOG_WARN,
                "MARRAM_CONV is '%s', not 'taps' or 'squares': 3 x 3 taps of "
                "float32 go by squares where that is faster",
                how);
}

bool
mr__conv_squares_fits(const mr_conv *c)
{
    int n = c->n_spatial;
    int64_t weights = PARTS * (int64_t)sizeof(float);

    pthread_once(&once, setting_read);
    if (!wanted || c->dtype != MR_FLOAT32 || n < 2 || c->p->groups != 1 ||
        c->channels < FEW || c->channels > MANY || c->channels % 4 != 0 ||
        c->outputs < FEW || c->outputs > MANY || c->kernel[n - 1] != 3 ||
        c->kernel[n - 2] != 3 || c->kernel[0] > DEEP_TAPS)
        return false;
    for (int i = 0; i < n; i++)
        if (c->p->stride.v[i] != 1 || c->p->kernel_dilation.v[i] != 1 ||
            c->p->input_dilation.v[i] != 1)
            return false;
    weights *= c->channels * c->outputs * (n > 2 ? c->kernel[0] : 1);
    return weights <= WEIGHT_BYTES && squares_pay(c);
}

static int64_t
unit_floats(const squares *w)
{
    return PARTS * w->n *
           ((w->layers + w->deep_taps - 1) * w->c->channels +
            w->layers * w->c->outputs);
}

static int64_t
units_of(const squares *w)
{
    return ((w->n_all - 1) / w->n + 1) * ((w->deep - 1) / w->layers + 1);
}

static void
unit_plan(squares *w)
{
    const int64_t most = UNIT_BYTES / (int64_t)sizeof(float);

    w->layers = w->deep < LAYERS ? w->deep : LAYERS;
    w->n = w->deep == 1 ? SQUARES : MOST / w->layers / ROWS * ROWS;
    while (w->n > ROWS && (unit_floats(w) > most || units_of(w) < UNITS))
        w->n -= ROWS;
    while (w->layers > 1 && (unit_floats(w) > most || units_of(w) < UNITS))
        w->layers = halves(w->layers);
}

static void
squares_plan(const mr_conv *c, squares *w)
{
    int n = c->n_spatial;
    int64_t packed;

    *w = (squares){.c = c,
                   .tier = mr__window(),
                   .deep_taps = n > 2 ? c->kernel[0] : 1,
                   .deep = n > 2 ? c->out[0] : 1,
                   .low = n > 2 ? c->p->low.v[0] : 0,
                   .n_high = halves(c->out[n - 2]),
                   .n_wide = halves(c->out[n - 1])};
    w->cols = w->tier->cols;
    w->n_all = c->batch * w->n_high * w->n_wide;
    unit_plan(w);
    w->n_blocks = (w->n_all - 1) / w->n + 1;
    w->n_units = units_of(w);
    /* A line more, so that the parts of a square do not share few sets of the
     * first-level cache. */
    w->x_apart =
        mr__round_up((w->layers + w->deep_taps - 1) * w->n * c->channels, 16) +
        16;
    w->y_apart = mr__round_up(w->layers * w->n * c->outputs, 16) + 16;
    for (int64_t from = 0; from < c->outputs; from += w->cols)
        w->part_floats +=
            mr__round_up(w->deep_taps * c->channels * panel_wide(w, from), 16);
    packed = PARTS * w->cols * PACKED;
    w->room = PARTS * w->x_apart;
    w->room = mr__round_up(w->room > packed ? w->room : packed, 16);
    w->n_slots = mr__pool_threads();
    w->n_slots = w->n_slots < MAX_SLOTS ? w->n_slots : MAX_SLOTS;
    w->n_slots = w->n_slots < w->n_units ? w->n_slots : (int)w->n_units;
}

static size_t
slot_bytes(const squares *w)
{
    return (size_t)(w->room + PARTS * w->y_apart +
                    mr__round_up(w->c->channels, 16) +
                    mr__round_up(w->c->outputs, 16) + MR_WINDOW_COLS) *
           sizeof(float);
}

static size_t
weights_bytes(const squares *w)
{
    return (size_t)(PARTS * w->part_floats) * sizeof(float);
}

static size_t
again_bytes(const squares *w)
{
    size_t unit = sizeof *w->again + sizeof *w->listed;

    return mr__whole_lines((size_t)w->n_units * unit);
}

size_t
mr__conv_squares_bytes(const mr_conv *c)
{
    size_t window = mr__conv_window_bytes(c), bytes;
    squares w;

    squares_plan(c, &w);
    bytes = weights_bytes(&w) + again_bytes(&w) +
            (size_t)w.n_slots * slot_bytes(&w);
    return bytes > window ? bytes : window;
}

static const float *
floats(const char *p)
{
    return (const float *)(const void *)p;
}

/* ---- weights ---------------------------------------------------------------
 */

/* Which outputs have taps too far apart in size? */
typedef struct uneven {
    const squares *w;
    bool is[MANY];
} uneven;

/* Nine taps of an output.  Tiny ones lose digits where they are halved. */
static bool
taps_even(const squares *w, const float *taps)
{
    float low = FLT_MAX, high = 0.0F;

    for (int t = 0; t < 9; t++, taps += w->c->channels) {
        float sum = w->tier->square_sum(taps, w->c->channels);

        if (!(sum <= FLT_MAX))
            return false;
        low = sum < low ? sum : low;
        high = sum > high ? sum : high;
    }
    return high <= low * MR_SQUARE_RANGE && (high == 0.0F || high >= TINY);
}

static void
uneven_piece(void *ctx, int64_t begin, int64_t end)
{
    uneven *u = ctx;
    const mr_conv *c = u->w->c;

    for (int64_t o = begin; o < end; o++) {
        const float *taps = floats(c->w) + o * c->k;

        u->is[o] = false;
        for (int64_t d = 0; d < u->w->deep_taps; d++)
            u->is[o] = u->is[o] || !taps_even(u->w, taps + d * 9 * c->channels);
    }
}

static bool
weights_even(const squares *w)
{
    uneven u = {.w = w};

    mr__cpu_for(w->c->outputs, mr__cpu_grain(0.1 * (double)w->c->k),
                uneven_piece, &u);
    for (int64_t o = 0; o < w->c->outputs; o++)
        if (u.is[o])
            return false;
    return true;
}

/* Some channels of a tap of the first axis and of a panel of outputs. */
static void
weights_unit(const void *ctx, int64_t unit, char *piece)
{
    const squares *w = ctx;
    const mr_conv *c = w->c;
    int64_t n_pieces = (c->channels - 1) / PACKED + 1;
    int64_t at = unit % n_pieces * PACKED, deep = unit / n_pieces;
    int64_t from = deep / w->deep_taps * w->cols, apart = w->cols * PACKED;
    int64_t left = c->outputs - from, count = c->channels - at;
    int64_t wide = panel_wide(w, from);
    float *made = (float *)(void *)piece, *to = w->weights;

    deep %= w->deep_taps;
    left = left < w->cols ? left : w->cols;
    count = count < PACKED ? count : PACKED;
    for (int64_t o = 0; o < left; o++) {
        const float *first =
            floats(c->w) + ((from + o) * c->taps + deep * 9) * c->channels + at;
        const float *taps[9];

        for (int t = 0; t < 9; t++)
            taps[t] = first + (c->p->flip ? 8 - t : t) * c->channels;
        w->tier->square_weigh(made + o * PACKED, apart, taps, count);
    }
    to += from / w->cols *
              mr__round_up(w->deep_taps * c->channels * w->cols, 16) +
          (deep * c->channels + at) * wide;
    for (int p = 0; p < PARTS; p++) {
        mr_gemm_side s = {made + p * apart, MR_FLOAT32, left, PACKED, 1};

        mr__gemm_pack(&s, (int)wide, 0, 0, count, to + p * w->part_floats);
    }
}

/* ---- a unit ----------------------------------------------------------------
 */

static place
place_of(const squares *w, int64_t square)
{
    int64_t line = square / w->n_wide;

    return (place){line / w->n_high, line % w->n_high, square % w->n_wide};
}

static void
place_next(const squares *w, place *at)
{
    if (++at->wide < w->n_wide)
        return;
    at->wide = 0;
    if (++at->high < w->n_high)
        return;
    at->high = 0;
    at->batch++;
}

/* The layer of the input below a unit's layer, or one that is not there. */
static bool
layer_there(const squares *w, const slot *s, int64_t layer, int64_t *at)
{
    *at = s->layer + layer - w->low;
    return w->c->n_spatial == 2 || (*at >= 0 && *at < w->c->in[0]);
}

/* The inputs of a square: of this layer, or zeros. */
static void
square_inputs(const squares *w, const slot *s, const float *layer, place at,
              const float **x)
{
    const mr_conv *c = w->c;
    int n = c->n_spatial;
    int64_t high = 2 * at.high - c->p->low.v[n - 2];
    int64_t wide = 2 * at.wide - c->p->low.v[n - 1];
    int64_t step = c->channels, line = c->in[n - 1] * step;
    const float *first = layer + high * line + wide * step;

    if (high >= 0 && high + 4 <= c->in[n - 2] && wide >= 0 &&
        wide + 4 <= c->in[n - 1]) {
        bool ahead = wide + 4 + 2 * AHEAD <= c->in[n - 1];

        for (int i = 0; i < 4; i++, first += line) {
            for (int j = 0; j < 4; j++)
                x[4 * i + j] = first + j * step;
            for (int64_t f = 0; ahead && f < 2 * step; f += 16)
                __builtin_prefetch(first + 2 * (1 + AHEAD) * step + f);
        }
        return;
    }
    for (int i = 0; i < 4; i++, first += line) {
        bool there = high + i >= 0 && high + i < c->in[n - 2];

        for (int j = 0; j < 4; j++)
            x[4 * i + j] = there && wide + j >= 0 && wide + j < c->in[n - 1]
                               ? first + j * step
                               : s->zeros;
    }
}

static const float *
layer_at(const squares *w, int64_t batch, int64_t layer)
{
    const mr_conv *c = w->c;
    int n = c->n_spatial;
    int64_t plane = c->in[n - 1] * c->in[n - 2] * c->channels;

    return floats(c->x) + (n > 2 ? batch * c->in[0] + layer : batch) * plane;
}

/* Is there an output beside, or below, the first of a square? */
static bool
has_wide(const squares *w, place at)
{
    return 2 * at.wide + 1 < w->c->out[w->c->n_spatial - 1];
}

static bool
has_high(const squares *w, place at)
{
    return 2 * at.high + 1 < w->c->out[w->c->n_spatial - 2];
}

/* Is no input of a square too large beside those of any output's window? */
static bool
square_even(const squares *w, const slot *s, int64_t layer, place at)
{
    float most[PARTS] = {0}, all = 0.0F;

    for (int64_t t = 0; t < w->deep_taps; t++) {
        const float *x[PARTS];
        int64_t from;

        if (!layer_there(w, s, layer + t, &from))
            continue;
        square_inputs(w, s, layer_at(w, at.batch, from), at, x);
        w->tier->square_most(most, x, w->c->channels);
    }
    for (int p = 0; p < PARTS; p++)
        all = most[p] > all ? most[p] : all;
    for (int k = 0; k < 4; k++) {
        const float *first = most + k / 2 * 4 + k % 2;
        float own = 0.0F;

        if ((k % 2 && !has_wide(w, at)) || (k / 2 && !has_high(w, at)))
            continue;
        for (int t = 0; t < 9; t++)
            own =
                first[t / 3 * 4 + t % 3] > own ? first[t / 3 * 4 + t % 3] : own;
        if (!(all <= own * MR_SQUARE_RANGE))
            return false;
    }
    return true;
}

/* Square i of a layer of the unit comes tap by tap. */
static void
again_mark(const slot *s, int64_t layer, int64_t i)
{
    int64_t at = layer * s->n + i;

    s->again[at / 64] |= UINT64_C(1) << at % 64;
}

static bool
again_has(const slot *s, int64_t layer, int64_t i)
{
    int64_t at = layer * s->n + i;

    return s->again[at / 64] >> at % 64 & 1;
}

static int64_t
again_count(const slot *s)
{
    int64_t n = 0;

    for (int i = 0; i < WORDS; i++)
        n += __builtin_popcountll(s->again[i]);
    return n;
}

/* Square i of all output layers that a layer of the unit's inputs reaches. */
static __attribute__((noinline)) void
reached_mark(const squares *w, const slot *s, int64_t layer, place at,
             int64_t i)
{
    int64_t first = layer - w->deep_taps + 1;

    for (int64_t l = first > 0 ? first : 0; l <= layer && l < s->n_layers; l++)
        if (!square_even(w, s, l, at))
            again_mark(s, l, i);
}

/* Squares whose inputs transforms may not have, by their sizes, are marked. */
static void
inputs_make(const squares *w, const slot *s)
{
    const mr_conv *c = w->c;

    for (int64_t l = 0; l < s->n_layers + w->deep_taps - 1; l++) {
        float *to = s->x + l * w->n * c->channels;
        place at = place_of(w, s->square);
        int64_t layer;

        if (!layer_there(w, s, l, &layer))
            continue;
        for (int64_t i = 0; i < s->n; i++, place_next(w, &at)) {
            const float *x[PARTS];

            square_inputs(w, s, layer_at(w, at.batch, layer), at, x);
            if (!w->tier->square_in(to + i * c->channels, w->x_apart, x,
                                    c->channels))
                reached_mark(w, s, l, at, i);
        }
    }
}

/* Where the inputs of part 0 of a tile begin, tap by tap of the first axis;
 * squares beyond the last are the first one, and go nowhere. */
static void
tile_inputs(const squares *w, const slot *s, int64_t layer, int64_t square,
            const float **x)
{
    const mr_conv *c = w->c;

    for (int64_t t = 0; t < w->deep_taps; t++, x += ROWS) {
        int64_t l = layer + (c->p->flip ? w->deep_taps - 1 - t : t), at;
        bool there = layer_there(w, s, l, &at);

        for (int i = 0; i < ROWS; i++) {
            int64_t one = square + i < s->n ? square + i : square;

            x[i] = there ? s->x + (l * w->n + one) * c->channels : NULL;
        }
    }
}

/* Taps of the first axis, and channels of each, that are one chain. */
typedef struct chain {
    int64_t tap, n_taps;
    int64_t channel, n;
} chain;

/* Products of a part with a panel. */
static void
panel_run(const squares *w, const slot *s, const float *const *x, int part,
          int64_t from, const chain *k)
{
    const mr_conv *c = w->c;
    int64_t n = c->outputs - from, wide = panel_wide(w, from);
    const float *weights = w->weights + part * w->part_floats;

    n = n < w->cols ? n : w->cols;
    weights += from / w->cols *
                   mr__round_up(w->deep_taps * c->channels * w->cols, 16) +
               (k->tap * c->channels + k->channel) * wide;
    for (int64_t l = 0; l < s->n_layers; l++)
        for (int64_t i = 0; i < s->n; i += ROWS, x += w->deep_taps * ROWS) {
            float *to = s->y + part * w->y_apart + from;
            float *at[ROWS];

            for (int r = 0; r < ROWS; r++)
                at[r] = to + (l * w->n + i + r) * c->outputs;
            w->tier->taps(at, x + k->tap * ROWS, part * w->x_apart + k->channel,
                          k->n_taps, k->n, weights, n,
                          k->tap > 0 || k->channel > 0);
        }
}

static void
part_run(const squares *w, const slot *s, const float *const *x, int part,
         int64_t from)
{
    int64_t channels = w->c->channels, n_cuts = (channels - 1) / DEPTH + 1;
    int64_t piece = ((channels - 1) / n_cuts + 4) / 4 * 4;
    int64_t n_taps = channels <= DEPTH ? DEPTH / channels : 1;

    for (int64_t t = 0; t < w->deep_taps; t += n_taps)
        for (int64_t f = 0; f < channels; f += piece) {
            int64_t taps = w->deep_taps - t, left = channels - f;
            chain k = {t, taps < n_taps ? taps : n_taps, f,
                       left < piece ? left : piece};

            panel_run(w, s, x, part, from, &k);
        }
}

static void
products_make(const squares *w, const slot *s)
{
    const float *x[MOST * DEEP_TAPS];
    int64_t at = 0;

    for (int64_t l = 0; l < s->n_layers; l++)
        for (int64_t i = 0; i < s->n; i += ROWS, at += w->deep_taps * ROWS)
            tile_inputs(w, s, l, i, x + at);
    for (int part = 0; part < PARTS; part++)
        for (int64_t from = 0; from < w->c->outputs; from += w->cols)
            part_run(w, s, x, part, from);
}

/* The row of the result at a square's first output. */
static int64_t
square_row(const squares *w, int64_t layer, place at)
{
    const mr_conv *c = w->c;
    int n = c->n_spatial;

    return ((at.batch * w->deep + layer) * c->out[n - 2] + 2 * at.high) *
               c->out[n - 1] +
           2 * at.wide;
}

/* Squares with outputs that are not finite are marked. */
static void
outputs_make(const squares *w, const slot *s)
{
    const mr_conv *c = w->c;
    int64_t line = c->out[c->n_spatial - 1] * c->outputs;

    for (int64_t l = 0; l < s->n_layers; l++) {
        place at = place_of(w, s->square);

        for (int64_t i = 0; i < s->n; i++, place_next(w, &at)) {
            float *first = (float *)(void *)c->to +
                           square_row(w, s->layer + l, at) * c->outputs;
            bool wide = has_wide(w, at), high = has_high(w, at);
            float *to[4] = {first, wide ? first + c->outputs : s->dump,
                            high ? first + line : s->dump,
                            wide && high ? first + line + c->outputs : s->dump};

            if (!w->tier->square_out(to, s->y + (l * w->n + i) * c->outputs,
                                     w->y_apart, c->outputs))
                again_mark(s, l, i);
        }
    }
}

/* ---- tap by tap ------------------------------------------------------------
 */

static void
panels_piece(void *ctx, int64_t begin, int64_t end)
{
    const squares *w = ctx;
    const mr_conv *c = w->c;

    for (int64_t u = begin; u < end; u++) {
        int64_t from = u * w->cols, left = c->outputs - from;
        mr_gemm_side side = {c->w + from * c->k * c->item, MR_FLOAT32, 0, c->k,
                             1};

        side.lanes = left < w->cols ? left : w->cols;
        mr__gemm_pack(&side, (int)panel_wide(w, from), 0, 0, c->k,
                      w->weights + u * mr__round_up(c->k * w->cols, 16));
    }
}

/* Some outputs of a panel. */
typedef struct direct {
    int64_t from, n, wide; /* channels, and whole vectors of them */
    int64_t n_rows;
    int64_t out[ROWS][MR_CONV_SPATIAL + 1]; /* the last: of the batch */
    float *to[ROWS];
    int64_t offset[9 * DEEP_TAPS]; /* of taps */
} direct;

/* Where the taps of an output begin; those beyond an edge are NULL.  Is none?
 */
static bool
direct_taps(const mr_conv *c, const direct *d, const int64_t *out,
            const float **x)
{
    const float *whole = mr__conv_whole_window(c, out);
    int64_t tap[MR_CONV_SPATIAL] = {0};

    for (int64_t k = 0; whole && k < c->taps; k++)
        x[k * ROWS] = whole + d->offset[k];
    for (int64_t k = 0; !whole && k < c->taps;
         k++, mr__conv_tap_next(c, c->n_spatial, tap)) {
        int64_t from =
            mr__conv_tap_at(c, c->n_spatial, out[MR_CONV_SPATIAL], out, tap);

        x[k * ROWS] = from >= 0 ? floats(c->x) + from * c->channels : NULL;
    }
    return whole != NULL;
}

/* Taps that none of the outputs has are left out. */
static void
direct_table(const squares *w, const slot *s, const direct *d, const float **x)
{
    const mr_conv *c = w->c;
    int n_whole = 0;

    for (int r = 0; r < ROWS; r++)
        n_whole += direct_taps(c, d, d->out[r < d->n_rows ? r : 0], x + r);
    for (int64_t k = 0; n_whole < ROWS && k < c->taps; k++) {
        bool any = false;

        for (int r = 0; r < ROWS; r++)
            any = any || x[k * ROWS + r];
        for (int r = 0; any && r < ROWS; r++)
            if (!x[k * ROWS + r])
                x[k * ROWS + r] = s->zeros;
    }
}

static void
direct_run(const squares *w, const slot *s, direct *d)
{
    const float *x[9 * DEEP_TAPS * ROWS];
    int64_t length = w->c->channels, taps = w->c->taps;
    int64_t chunk = (CHUNK + length - 1) / length;
    const float *weights =
        w->weights + d->from / w->cols * mr__round_up(w->c->k * w->cols, 16);

    for (int64_t r = d->n_rows; r < ROWS; r++)
        d->to[r] = s->dump;
    direct_table(w, s, d, x);
    for (int64_t t = 0; t < taps; t += chunk)
        w->tier->taps(d->to, x + t * ROWS, 0,
                      taps - t < chunk ? taps - t : chunk, length,
                      weights + t * length * d->wide, d->n, t > 0);
    d->n_rows = 0;
}

static void
direct_add(const squares *w, const slot *s, direct *d, int64_t layer, place at,
           int k)
{
    const mr_conv *c = w->c;
    int n = c->n_spatial;
    int64_t row = square_row(w, layer, at) + k / 2 * c->out[n - 1] + k % 2;
    int64_t *out = d->out[d->n_rows];

    if ((k % 2 && !has_wide(w, at)) || (k / 2 && !has_high(w, at)))
        return;
    out[0] = layer;
    out[n - 2] = 2 * at.high + k / 2;
    out[n - 1] = 2 * at.wide + k % 2;
    out[MR_CONV_SPATIAL] = at.batch;
    d->to[d->n_rows++] = (float *)(void *)c->to + row * c->outputs + d->from;
    if (d->n_rows == ROWS)
        direct_run(w, s, d);
}

/* The squares that are marked. */
static __attribute__((noinline)) void
unit_direct(const squares *w, const slot *s)
{
    const mr_conv *c = w->c;
    direct d = {0};

    mr__conv_offsets(c, c->n_spatial, d.offset);
    for (; d.from < c->outputs; d.from += w->cols) {
        int64_t left = c->outputs - d.from;

        d.n = left < w->cols ? left : w->cols;
        d.wide = panel_wide(w, d.from);
        for (int64_t l = 0; l < s->n_layers; l++) {
            place at = place_of(w, s->square);

            for (int64_t i = 0; i < s->n; i++, place_next(w, &at))
                for (int k = 0; k < 4 && again_has(s, l, i); k++)
                    direct_add(w, s, &d, s->layer + l, at, k);
        }
        if (d.n_rows > 0)
            direct_run(w, s, &d);
    }
}

/* ---- all units -------------------------------------------------------------
 */

/* What follows, on the two lines of neighbours. */
static void
unit_after(const squares *w, const slot *s)
{
    const mr_conv *c = w->c;
    int64_t wide = c->out[c->n_spatial - 1];

    for (int64_t l = 0; l < s->n_layers; l++)
        for (int64_t i = 0; i < s->n;) {
            place at = place_of(w, s->square + i);
            int64_t n = w->n_wide - at.wide;

            n = n < s->n - i ? n : s->n - i;
            i += n;
            n = 2 * n < wide - 2 * at.wide ? 2 * n : wide - 2 * at.wide;
            mr__after_piece(w->after, square_row(w, s->layer + l, at), n, 0,
                            c->outputs);
            if (has_high(w, at))
                mr__after_piece(w->after,
                                square_row(w, s->layer + l, at) + wide, n, 0,
                                c->outputs);
        }
}

/* Without its room. */
static slot
slot_plan(const squares *w, int64_t unit)
{
    slot s = {.square = unit % w->n_blocks * w->n,
              .layer = unit / w->n_blocks * w->layers,
              .again = w->again[unit]};

    s.n = w->n_all - s.square < w->n ? w->n_all - s.square : w->n;
    s.n_layers = w->deep - s.layer < w->layers ? w->deep - s.layer : w->layers;
    return s;
}

static slot
slot_of(const squares *w, int64_t unit, char *piece)
{
    slot s = slot_plan(w, unit);

    s.x = (float *)(void *)piece;
    s.y = s.x + w->room;
    s.zeros = s.y + PARTS * w->y_apart;
    s.dump = s.zeros + mr__round_up(w->c->channels, 16);
    memset(s.zeros, 0, (size_t)w->c->channels * sizeof(float));
    /* What goes nowhere may be added to what was there. */
    memset(s.dump, 0, MR_WINDOW_COLS * sizeof(float));
    return s;
}

static bool
comes_whole(const slot *s)
{
    return again_count(s) == s->n * s->n_layers;
}

static void
squares_unit(const void *ctx, int64_t unit, char *piece)
{
    const squares *w = ctx;
    slot s = slot_of(w, unit, piece);

    memset(s.again, 0, sizeof *w->again);
    inputs_make(w, &s);
    if (comes_whole(&s))
        return;
    products_make(w, &s);
    outputs_make(w, &s);
    if (w->after != NULL && again_count(&s) == 0)
        unit_after(w, &s);
}

static void
again_unit(const void *ctx, int64_t i, char *piece)
{
    const squares *w = ctx;
    slot s = slot_of(w, w->listed[i], piece);

    unit_direct(w, &s);
    if (w->after != NULL)
        unit_after(w, &s);
}

/* Units that have squares to come tap by tap are listed: how many?  all: every
 * square does. */
static int64_t
again_list(const squares *w, bool *all)
{
    int64_t n = 0;

    *all = true;
    for (int64_t u = 0; u < w->n_units; u++) {
        slot s = slot_plan(w, u);

        if (again_count(&s) > 0)
            w->listed[n++] = u;
        *all = *all && comes_whole(&s);
    }
    return n;
}

static void
squares_run(squares *w, char *slots, const mr_after *after)
{
    bool all;
    int64_t n;

    w->after = after;
    mr__cpu_units(w->n_slots, w->n_units, slots, slot_bytes(w), squares_unit,
                  w);
    n = again_list(w, &all);
    if (n == 0)
        return;
    if (all) {
        mr__conv_window(w->c, w->weights);
        return;
    }
    mr__cpu_for((w->c->outputs - 1) / w->cols + 1,
                mr__cpu_grain(0.5 * (double)(w->c->k * w->cols)), panels_piece,
                w);
    mr__cpu_units(w->n_slots, n, slots, slot_bytes(w), again_unit, w);
}

/* Apart, so that others need no room for a program. */
static __attribute__((noinline)) void
joined_run(squares *w, char *slots)
{
    mr_after after;

    mr__after_make(&after, w->c->epilogue);
    squares_run(w, slots, &after);
}

void
mr__conv_squares(const mr_conv *c, void *workspace)
{
    squares w;
    char *slots;

    squares_plan(c, &w);
    if (!weights_even(&w)) {
        mr__conv_window(c, workspace);
        return;
    }
    w.weights = workspace;
    slots = (char *)workspace + weights_bytes(&w);
    w.again = (uint64_t(*)[WORDS])(void *)slots;
    w.listed = (int64_t *)(void *)(w.again + w.n_units);
    slots += again_bytes(&w);
    mr__cpu_units(w.n_slots,
                  ((c->outputs - 1) / w.cols + 1) * w.deep_taps *
                      ((c->channels - 1) / PACKED + 1),
                  slots, slot_bytes(&w), weights_unit, &w);
    if (c->epilogue != NULL)
        joined_run(&w, slots);
    else
        squares_run(&w, slots, NULL);
}
