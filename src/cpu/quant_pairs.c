/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pairs.c -- some rows of bfloat16 times strips of a packed matrix, in
 * pairs (kernels/quant_pairs.h).
 *
 * Packed rows of a run: pieces of depth, each all panels of the run, the last
 * one as high as its rows; then the sums of x over the groups, which biases
 * meet: groups, each all rows.  A strip of the matrix, as many of its rows as a
 * register tile has columns, goes to pairs a piece at a time and meets the
 * whole run.
 * Called by: quant_product.c.  Calls: kernels/quant_pairs.h, kernels/gemm.h.
 */
#include "kernels/quant_pairs.h"

#include <string.h>

#include "cpu/quant.h"
#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

enum {
    DEPTH = MR_QUANT_PAIRS_DEPTH,
    THIRD = MR_QUANT_PAIRS_ROWS,
    LEAST_GROUP = 16,
    MOST_GROUP = 128
};

/* Rows with those that fill the last panel. */
static int64_t
run_high(int64_t m)
{
    return (m + THIRD - 1) / THIRD * THIRD;
}

int64_t
mr__quant_pairs_floats(const mr_quant_format *f, int64_t m, int64_t k)
{
    int64_t per_row = k / 2 + (f->biased ? k / f->group : 0);

    return (run_high(m) * per_row + 15) / 16 * 16;
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

bool
mr__quant_pairs_pack(const mr_quant_format *f, const uint16_t *const *x,
                     int64_t m, int64_t k, int64_t panel, float *to)
{
    int64_t row = panel * mr__gemm_rows(), high = run_high(m), depth;
    int64_t lanes = high - row, rows = m - row;
    const uint16_t *from[MR_GEMM_MAX_ROWS];
    float *sums = to + high * (k / 2) + row;
    bool fine = true;

    lanes = lanes < mr__gemm_rows() ? lanes : mr__gemm_rows();
    rows = rows < lanes ? rows : lanes;
    for (int64_t at = 0; at < k; at += depth, to += high * depth / 2) {
        depth = k - at < DEPTH ? k - at : DEPTH;
        for (int64_t i = 0; i < rows; i++)
            from[i] = x[row + i] + at;
        fine = mr__quant_pairs_rows(f, from, (int)rows, (int)lanes, depth,
                                    to + row * depth / 2) &&
               fine;
    }
    for (int64_t i = 0; f->biased && i < lanes; i++)
        if (i < rows)
            sums_make(f, x[row + i], k, sums + i, high);
        else
            for (int64_t g = 0; g < k / f->group; g++)
                sums[g * high + i] = 0.0F;
    return fine;
}

void
mr__quant_pairs_strip(const mr_quant_matrix *w, int64_t m, const float *packed,
                      int64_t strip, float *y)
{
    _Alignas(64) float codes[DEPTH / 2 * MR_GEMM_MAX_COLS];
    _Alignas(64) float scale[DEPTH / LEAST_GROUP * MR_GEMM_MAX_COLS];
    _Alignas(64) float bias[DEPTH / LEAST_GROUP * MR_GEMM_MAX_COLS];
    int64_t group = w->f.group, k = w->cols, high = run_high(m), depth;
    int64_t rows = mr__gemm_rows(), cols = mr__gemm_cols();
    const float *sums = packed + high * (k / 2);
    mr_quant_piece part = {.m = high,
                           .depth = group / 2,
                           .b = codes,
                           .scale = scale,
                           .bias = w->f.biased ? bias : NULL,
                           .sums_row = high,
                           .c = y};

    memset(y, 0, (size_t)(high * cols) * sizeof *y);
    for (int64_t at = 0; at < k; at += depth, packed += high * depth / 2) {
        depth = k - at < DEPTH ? k - at : DEPTH;
        mr__quant_pairs_panel(w, (int)cols, strip, at, depth, codes, scale,
                              w->f.biased ? bias : NULL);
        part.a = packed;
        part.a_panel = depth / 2 * rows;
        part.n_groups = depth / group;
        part.x_sums = sums + at / group * high;
        mr__quant_pairs_piece(&part);
    }
}
