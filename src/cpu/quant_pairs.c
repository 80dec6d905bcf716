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
    SCALES = MR_QUANT_PAIRS_SCALES,
    BLOCK = 32, /* the most lanes of a block */
    MOST_GROUP = 128
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

/* Sums over the groups of a row of x. */
static void
sums_make(const mr_quant_format *f, const uint16_t *x, int64_t k, float *to,
          int64_t step)
{
    float wide[MOST_GROUP], sum;

    for (int64_t g = 0; g < k / f->group; g++) {
        mr__tier()->casts->cast[MR_BFLOAT16][MR_FLOAT32](wide, x + g * f->group,
                                                         f->group);
        mr__quant_group_sums(wide, f->group, 1, &sum);
        to[g * step] = sum;
    }
}

/* Blocks of lanes [from, to). */
static bool
piece_pack(const uint16_t *const *x, int64_t m, int64_t from, int64_t to,
           int64_t at, int64_t depth, float *piece)
{
    const uint16_t *part[BLOCK];
    bool fine = true;

    for (int lanes; from < to; from += lanes) {
        int64_t rows = m - from;

        lanes = mr__quant_pairs_block(to - from);
        rows = rows < lanes ? rows : lanes;
        for (int64_t i = 0; i < rows; i++)
            part[i] = x[from + i] + at;
        fine = mr__quant_pairs_rows(part, (int)rows, lanes, depth,
                                    piece + from * depth / 2) &&
               fine;
    }
    return fine;
}

bool
mr__quant_pairs_pack(const mr_quant_format *f, const uint16_t *const *x,
                     int64_t m, int64_t k, int64_t block, float *to)
{
    int64_t lanes = mr__quant_pairs_lanes(m), from = block * BLOCK, depth;
    int64_t stop = from + BLOCK < lanes ? from + BLOCK : lanes;
    float *sums = to + lanes * (k / 2);
    bool fine = true;

    for (int64_t at = 0; at < k; at += depth, to += lanes * depth / 2) {
        depth = k - at < DEPTH ? k - at : DEPTH;
        fine = piece_pack(x, m, from, stop, at, depth, to) && fine;
    }
    for (int64_t i = from; f->biased && i < stop; i++)
        if (i < m)
            sums_make(f, x[i], k, sums + i, lanes);
        else
            for (int64_t g = 0; g < k / f->group; g++)
                sums[g * lanes + i] = 0.0F;
    return fine;
}

/* All lanes of a piece, whose x and sums are where p has them. */
static void
lanes_run(mr_quant_piece p, int64_t lanes)
{
    for (int block; lanes > 0; lanes -= block) {
        block = mr__quant_pairs_block(lanes);
        mr__quant_pairs_piece(&p, block);
        p.x += block * p.n_groups * p.pairs;
        p.x_sums += block;
        p.y += block;
    }
}

void
mr__quant_pairs_strip(const mr_quant_matrix *w, int64_t m, const float *packed,
                      int64_t row0, float *y)
{
    _Alignas(64) uint16_t codes[ROWS * DEPTH];
    _Alignas(64) float scale[ROWS * SCALES], bias[ROWS * SCALES];
    int64_t group = w->f.group, k = w->cols, lanes = mr__quant_pairs_lanes(m);
    int64_t rows = w->rows - row0 < ROWS ? w->rows - row0 : ROWS;
    const float *sums = packed + lanes * (k / 2);
    mr_quant_piece p = {.rows = rows,
                        .pairs = group / 2,
                        .codes = codes,
                        .sums_row = lanes,
                        .y_row = lanes};

    memset(y, 0, (size_t)(ROWS * lanes) * sizeof *y);
    for (int64_t at = 0, depth; at < k; at += depth) {
        int64_t g = at / group, left = k / group - g;

        depth = k - at < DEPTH ? k - at : DEPTH;
        left = left < SCALES ? left : SCALES;
        if (g % SCALES == 0) {
            mr__quant_pairs_scales(w, w->scales, row0, g, left, scale);
            if (w->f.biased)
                mr__quant_pairs_scales(w, w->biases, row0, g, left, bias);
        }
        mr__quant_pairs_codes(w, row0, at, depth, codes);
        p.n_groups = depth / group;
        p.x = packed + lanes * at / 2;
        p.x_sums = sums + g * lanes;
        p.scale = scale + g % SCALES;
        p.bias = w->f.biased ? bias + g % SCALES : NULL;
        p.y = y;
        lanes_run(p, lanes);
    }
}
