/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_floats.c -- some rows times strips of a packed matrix, as floats
 * (kernels/quant_floats.h).
 *
 * Packed rows of a run: pieces of depth, each all blocks of lanes.  Values of a
 * tile of the matrix are made while the tile before it meets the whole run.
 * Sums are cut into chains of CHAIN depths, as those of strips.c are.
 * Called by: quant_product.c.  Calls: kernels/quant_floats.h, kernels/gemm.h.
 */
#include "kernels/quant_floats.h"

#include <string.h>

#include "cpu/quant.h"
#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

enum {
    DEPTH = MR_QUANT_FLOATS_DEPTH,
    ROWS = MR_QUANT_FLOATS_ROWS,
    TILE = MR_QUANT_FLOATS_TILE,
    SCALES = MR_QUANT_SCALES,
    CHAIN = 256,
    STRIDE = 16,
    BLOCK = 32, /* the most lanes of a block */
    BEHIND = 32 /* bytes that may be read behind codes made ahead */
};

_Static_assert(CHAIN % DEPTH == 0, "chains are whole pieces");

int64_t
mr__quant_floats_lanes(int64_t m)
{
    const int64_t some = MR_QUANT_FLOATS_LANES;

    return (m + some - 1) / some * some;
}

int64_t
mr__quant_floats_floats(int64_t m, int64_t k)
{
    return mr__quant_floats_lanes(m) * k;
}

static int64_t
piece_depth(int64_t k, int64_t at)
{
    return k - at < DEPTH ? k - at : DEPTH;
}

static int
block_of(int64_t lanes)
{
    return lanes >= BLOCK ? BLOCK : MR_QUANT_FLOATS_LANES;
}

void
mr__quant_floats_pack(const void *const *x, mr_dtype t, int64_t m, int64_t k,
                      int64_t block, int64_t at, float *to)
{
    float room[BLOCK][DEPTH];
    int64_t all = mr__quant_floats_lanes(m), depth = piece_depth(k, at);
    int64_t from = block * BLOCK, size = mr__dtype_size(t);
    int64_t lanes = block_of(all - from);

    for (int64_t i = 0; i < lanes; i++) {
        const char *row = from + i < m ? x[from + i] : NULL;

        if (!row)
            memset(room[i], 0, sizeof room[i]);
        else if (t == MR_FLOAT32)
            memcpy(room[i], row + at * size, (size_t)(depth * size));
        else
            mr__tier()->casts->cast[t][MR_FLOAT32](room[i], row + at * size,
                                                   depth);
    }
    mr__gemm_of_tier(mr__tier()->id)
        ->turn(to + all * at + from * depth, room[0], DEPTH, lanes, lanes,
               depth);
}

/* A strip of rows of w on its way through the depth. */
typedef struct strip {
    const mr_quant_matrix *w;
    int64_t row0, rows, lanes;
    float (*values)[TILE * DEPTH]; /* two */
    int now;                       /* which of them is next */
    bool ready;                    /* it is made */
    float *scale, *bias;           /* of SCALES groups from `group` on */
    int64_t group;
    const uint8_t *row[ROWS]; /* the last one again for missing ones */
} strip;

static void
rows_find(strip *s)
{
    const mr_quant_matrix *w = s->w;
    int64_t row_bytes = w->cols / 8 * w->f.bits;
    const uint8_t *from = (const uint8_t *)w->words + s->row0 * row_bytes;

    s->rows = w->rows - s->row0 < ROWS ? w->rows - s->row0 : ROWS;
    for (int64_t i = 0; i < ROWS; i++)
        s->row[i] = from + (i < s->rows ? i : s->rows - 1) * row_bytes;
}

static void
scales_find(strip *s, int64_t g)
{
    const mr_quant_matrix *w = s->w;
    int64_t first = g / SCALES * SCALES, n = w->cols / w->f.group - first;

    if (first == s->group)
        return;
    s->group = first;
    n = n < SCALES ? n : SCALES;
    mr__quant_scales(w, w->scales, s->row0, ROWS, first, n, s->scale);
    if (w->f.biased)
        mr__quant_scales(w, w->biases, s->row0, ROWS, first, n, s->bias);
}

/* The tile at `row` of the strip and depth `at`. */
static mr_quant_next
tile_at(strip *s, int64_t row, int64_t at)
{
    const mr_quant_matrix *w = s->w;
    int64_t g = at / w->f.group, offset = at / 8 * w->f.bits;
    int64_t place = row * SCALES + g % SCALES;

    scales_find(s, g);
    return (mr_quant_next){
        .row = s->row + row,
        .offset = offset,
        /* the same rows, then the first ones of the rows behind */
        .beyond = at + DEPTH < w->cols
                      ? DEPTH / 8 * w->f.bits
                      : ROWS * (w->cols / 8 * w->f.bits) - offset,
        .scale = s->scale + place,
        .bias = s->bias + place,
        .group_shift = __builtin_ctz((unsigned)w->f.group)};
}

/* Is there a tile behind the one at `row` and `at`, whose values can be made
 * meanwhile? */
static bool
next_find(strip *s, int64_t row, int64_t at, mr_quant_next *to)
{
    const mr_quant_matrix *w = s->w;
    const uint8_t *end =
        (const uint8_t *)w->words + w->rows * (w->cols / 8 * w->f.bits);

    /* as long as it takes to multiply one it takes to make one */
    if (at + DEPTH > w->cols)
        return false;
    row += TILE;
    if (row >= s->rows) {
        row = 0;
        at += DEPTH;
    }
    if (at + DEPTH > w->cols)
        return false;
    *to = tile_at(s, row, at);
    to->to = s->values[!s->now];
    return end - to->row[TILE - 1] >=
           to->offset + DEPTH / 8 * w->f.bits + BEHIND;
}

/* All lanes of a tile, whose x is where t has it. */
static void
tile_run(const strip *s, mr_quant_stripe t, const mr_quant_next *next)
{
    int64_t lanes = s->lanes;

    t.values = s->values[s->now];
    for (int block; lanes > 0; lanes -= block) {
        block = block_of(lanes);
        mr__quant_floats_tile(s->w, &t, next, block);
        next = NULL;
        t.x += block * t.strides * STRIDE;
        t.chain += block;
        t.y += block;
    }
}

/* All tiles of a piece of depth. */
static void
piece_run(strip *s, mr_quant_stripe t, int64_t at)
{
    for (int64_t row = 0; row < s->rows; row += TILE) {
        mr_quant_next next;
        bool follows;

        if (!s->ready) {
            next = tile_at(s, row, at);
            next.to = s->values[s->now];
            mr__quant_floats_values(s->w, &next, piece_depth(s->w->cols, at));
        }
        follows = next_find(s, row, at, &next);
        tile_run(s, t, follows ? &next : NULL);
        s->ready = follows;
        s->now = !s->now;
        t.chain += TILE * t.y_row;
        t.y += TILE * t.y_row;
    }
}

void
mr__quant_floats_strip(const mr_quant_matrix *w, int64_t m, const float *packed,
                       int64_t row0, float *y)
{
    _Alignas(64) float values[2][TILE * DEPTH];
    _Alignas(64) float scale[ROWS * SCALES], bias[ROWS * SCALES];
    _Alignas(64) float chain[ROWS * MR_STRIP_ROWS];
    int64_t lanes = mr__quant_floats_lanes(m);
    strip s = {.w = w,
               .row0 = row0,
               .lanes = lanes,
               .values = values,
               .scale = scale,
               .bias = bias,
               .group = -1};
    mr_quant_stripe t = {.y_row = lanes, .chain = chain, .y = y};

    rows_find(&s);
    for (int64_t at = 0, depth; at < w->cols; at += depth) {
        depth = piece_depth(w->cols, at);
        t.x = packed + lanes * at;
        t.strides = depth / STRIDE;
        t.begins = at % CHAIN == 0;
        t.ends = (at + depth) % CHAIN == 0 || at + depth == w->cols;
        t.first = at < CHAIN;
        piece_run(&s, t, at);
    }
}
