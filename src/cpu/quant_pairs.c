/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pairs.c -- some rows of bfloat16 times strips of a packed matrix, in
 * pairs (kernels/quant_pairs.h).
 *
 * Packed rows of a run: pieces of depth, each all blocks of lanes; then the
 * sums of x over the groups, which biases meet: groups, each all lanes.  Some
 * rows of the matrix at a time go to pairs, a piece that stays in the
 * first-level cache after the other, and meet the whole run.
 * Called by: quant_product.c.  Calls: kernels/quant_pairs.h, kernels/gemm.h.
 */
#include "kernels/quant_pairs.h"

#include <string.h>

#include "cpu/quant.h"
#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

enum {
    DEPTH = MR_QUANT_PAIRS_DEPTH,
    ROWS = MR_QUANT_PAIRS_ROWS,
    TILE = MR_QUANT_PAIRS_TILE,
    SCALES = MR_QUANT_SCALES,
    STRIDE = 16, /* codes, which every group has */
    BLOCK = 32,  /* the most lanes of a block */
    WIDE = 16    /* the least between whose products codes are unpacked */
};

int64_t
mr__quant_pairs_lanes(int64_t m)
{
    const int64_t eight = MR_QUANT_PAIRS_LANES;

    return (m + eight - 1) / eight * eight;
}

int64_t
mr__quant_pairs_floats(const mr_quant_format *f, int64_t m, int64_t k)
{
    int64_t per_row = k / 2 + (f->biased ? k / f->group : 0);

    return (mr__quant_pairs_lanes(m) * per_row + 15) / 16 * 16;
}

static int64_t
piece_depth(int64_t k, int64_t at)
{
    return k - at < DEPTH ? k - at : DEPTH;
}

bool
mr__quant_pairs_pack(const mr_quant_format *f, const uint16_t *const *x,
                     int64_t m, int64_t k, int64_t block, int64_t at, float *to)
{
    int64_t all = mr__quant_pairs_lanes(m), depth = piece_depth(k, at);
    int64_t from = block * BLOCK,
            stop = from + BLOCK < all ? from + BLOCK : all;
    float *sums = to + all * (k / 2) + at / f->group * all;
    const uint16_t *part[BLOCK];
    bool fine = true;

    to += all * at / 2;
    for (int lanes; from < stop; from += lanes) {
        int64_t rows = m - from;

        lanes = mr__quant_pairs_block(stop - from);
        rows = rows < lanes ? rows : lanes;
        for (int64_t i = 0; i < rows; i++)
            part[i] = x[from + i] + at;
        fine = mr__quant_pairs_rows(part, (int)rows, lanes, depth,
                                    to + from * depth / 2) &&
               fine;
        if (f->biased)
            mr__quant_pairs_sums(f, to + from * depth / 2, lanes, depth,
                                 sums + from, all);
    }
    return fine;
}

/* A strip of rows of w on its way through the depth.  Codes of a tile are
 * unpacked while the tile before them is multiplied. */
typedef struct strip {
    const mr_quant_matrix *w;
    int64_t row0, rows, lanes;
    uint16_t (*codes)[TILE * DEPTH]; /* of each tile; wide ones use two */
    int now;                         /* which of these is next */
    bool ready;                      /* it is unpacked */
    const uint8_t *row[ROWS];        /* the last one again for missing ones */
} strip;

static void
rows_find(strip *s)
{
    mr_quant_rows r = mr__quant_pairs_rows_at(s->w, s->row0, ROWS, 0, DEPTH);

    s->rows = r.rows;
    for (int64_t i = 0; i < ROWS; i++)
        s->row[i] = r.from + (i < r.rows ? i : r.rows - 1) * r.row_bytes;
}

/* Is there a tile behind the one at `row` of the strip and depth `at`, which
 * can be unpacked meanwhile? */
static bool
ahead_find(const strip *s, int64_t row, int64_t at, mr_quant_ahead *to)
{
    const mr_quant_matrix *w = s->w;
    int64_t depth_bytes = DEPTH / 8 * w->f.bits;
    int64_t row_bytes = w->cols / 8 * w->f.bits;
    const uint8_t *end = (const uint8_t *)w->words + w->rows * row_bytes;

    /* as long as it takes to multiply one it takes to unpack one */
    if (at + DEPTH > w->cols)
        return false;
    row += TILE;
    if (row >= s->rows) {
        row = 0;
        at += DEPTH;
    }
    if (at + DEPTH > w->cols)
        return false;
    to->row = s->row + row;
    to->offset = at / 8 * w->f.bits;
    to->beyond =
        at + DEPTH < w->cols ? depth_bytes : ROWS * row_bytes - to->offset;
    to->to = s->codes[!s->now];
    /* reads of 32 bytes */
    return end - to->row[TILE - 1] >= to->offset + depth_bytes + 32;
}

/* All lanes of a tile, whose x and sums are where p has them. */
static void
tile_run(const strip *s, mr_quant_piece p, const mr_quant_ahead *ahead)
{
    int64_t lanes = s->lanes;

    p.codes = s->codes[s->now];
    for (int block; lanes > 0; lanes -= block) {
        block = mr__quant_pairs_block(lanes);
        mr__quant_pairs_tile(s->w, &p, ahead, block);
        ahead = NULL;
        p.x += block * p.n_groups * p.strides * (STRIDE / 2);
        p.x_sums += block;
        p.y += block;
    }
}

/* All tiles of a piece of depth. */
static void
piece_run(strip *s, mr_quant_piece p, int64_t at)
{
    mr_quant_ahead ahead;

    for (int64_t row = 0; row < s->rows; row += TILE) {
        bool follows = ahead_find(s, row, at, &ahead);

        if (!s->ready) {
            mr_quant_rows r = mr__quant_pairs_rows_at(
                s->w, s->row0 + row, TILE, at, piece_depth(s->w->cols, at));

            mr__quant_pairs_codes(s->w, &r, TILE, s->codes[s->now]);
        }
        tile_run(s, p, follows ? &ahead : NULL);
        s->ready = follows;
        s->now = !s->now;
        p.scale += TILE * SCALES;
        p.bias = p.bias ? p.bias + TILE * SCALES : NULL;
        p.y += TILE * p.y_row;
    }
}

/* The same of few lanes: all codes of the strip, then all tiles. */
static void
narrow_run(strip *s, mr_quant_piece p, int64_t at)
{
    mr_quant_rows r = mr__quant_pairs_rows_at(s->w, s->row0, ROWS, at,
                                              piece_depth(s->w->cols, at));

    mr__quant_pairs_codes(s->w, &r, ROWS, s->codes[0]);
    for (int64_t row = 0; row < s->rows; row += TILE) {
        p.codes = s->codes[row / TILE];
        mr__quant_pairs_tile(s->w, &p, NULL, (int)s->lanes);
        p.scale += TILE * SCALES;
        p.bias = p.bias ? p.bias + TILE * SCALES : NULL;
        p.y += TILE * p.y_row;
    }
}

void
mr__quant_pairs_strip(const mr_quant_matrix *w, int64_t m, const float *packed,
                      int64_t row0, float *y)
{
    _Alignas(64) uint16_t codes[ROWS / TILE][TILE * DEPTH];
    _Alignas(64) float scale[ROWS * SCALES], bias[ROWS * SCALES];
    int64_t group = w->f.group, k = w->cols, lanes = mr__quant_pairs_lanes(m);
    const float *sums = packed + lanes * (k / 2);
    strip s = {.w = w, .row0 = row0, .lanes = lanes, .codes = codes};
    mr_quant_piece p = {
        .strides = group / STRIDE, .sums_row = lanes, .y_row = lanes, .y = y};

    rows_find(&s);
    memset(y, 0, (size_t)(ROWS * lanes) * sizeof *y);
    for (int64_t at = 0; at < k; at += DEPTH) {
        int64_t g = at / group, left = k / group - g;

        left = left < SCALES ? left : SCALES;
        if (g % SCALES == 0) {
            mr__quant_scales(w, w->scales, row0, ROWS, g, left, scale);
            if (w->f.biased)
                mr__quant_scales(w, w->biases, row0, ROWS, g, left, bias);
        }
        p.n_groups = piece_depth(k, at) / group;
        p.x = packed + lanes * at / 2;
        p.x_sums = sums + g * lanes;
        p.scale = scale + g % SCALES;
        p.bias = w->f.biased ? bias + g % SCALES : NULL;
        (lanes < WIDE ? narrow_run : piece_run)(&s, p, at);
    }
}
