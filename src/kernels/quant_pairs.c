/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pairs.c -- bfloat16 rows and packed rows to panels of pairs, groups of
 * which go through the tier's tiles.
 * Called by: cpu/quant_pairs.c.  Calls: the tier's kernels, quant.c, gemm.h.
 */
#include "kernels/quant_pairs.h"

#include <stdatomic.h>
#include <string.h>

#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

enum { LANES = 16 }; /* of a vector of the tier that has pairs */

/* Relaxed: every thread finds the same. */
static const mr_quant_pairs *
pairs_tier(void)
{
#if defined(__x86_64__)
    static atomic_int found; /* 1: not worth it, 2: use them */
    int f = atomic_load_explicit(&found, memory_order_relaxed);

    if (f == 0) {
        f = mr__gemm_pairs(MR_BFLOAT16) &&
                    __builtin_cpu_supports("avx512vbmi") &&
                    __builtin_cpu_supports("avx512vbmi2")
                ? 2
                : 1;
        atomic_store_explicit(&found, f, memory_order_relaxed);
    }
    return f == 2 ? &mr__quant_pairs_avx512 : NULL;
#else
    return NULL;
#endif
}

bool
mr__quant_pairs_pay(const mr_quant_format *f)
{
    return f->group <= MR_QUANT_PAIRS_DEPTH && pairs_tier();
}

static void
lanes_turn(const void *from, int64_t stride, int64_t lanes, int width,
           int64_t n, void *to)
{
    mr__gemm_of_tier(mr__tier()->id)->turn(to, from, stride, lanes, width, n);
}

bool
mr__quant_pairs_rows(const mr_quant_format *f, const uint16_t *const *x,
                     int rows, int lanes, int64_t depth, float *to)
{
    float room[MR_GEMM_MAX_ROWS][MR_QUANT_PAIRS_DEPTH / 2];
    mr_quant_kind kind = mr__quant_kind(f);
    bool fine = true;

    for (int i = 0; i < rows; i++)
        fine = pairs_tier()->order(x[i], depth, kind,
                                   (uint16_t *)(void *)room[i]) &&
               fine;
    lanes_turn(room, MR_QUANT_PAIRS_DEPTH / 2, rows, lanes, depth / 2, to);
    return fine;
}

void
mr__quant_pairs_panel(const mr_quant_matrix *w, int width, int64_t panel,
                      int64_t depth0, int64_t depth, float *to, float *scale,
                      float *bias)
{
    uint32_t *pairs = (uint32_t *)(void *)to;
    int64_t group = w->f.group, per_row = w->cols / 8 * w->f.bits;
    int64_t row0 = panel * width, lanes = w->rows - row0;
    const uint8_t *from = (const uint8_t *)w->words + row0 * per_row;

    lanes = lanes < width ? lanes : width;
    mr__quant_lane_scales(w, w->scales, row0, lanes, depth0 / group,
                          depth / group, width, scale);
    if (bias)
        mr__quant_lane_scales(w, w->biases, row0, lanes, depth0 / group,
                              depth / group, width, bias);
    from += depth0 / 8 * w->f.bits;
    for (int at = 0; at < width; at += LANES, from += LANES * per_row) {
        int64_t left = lanes - at;

        left = left < 0 ? 0 : left < LANES ? left : LANES;
        pairs_tier()->unpack[mr__quant_kind(&w->f)](from, per_row, left, depth,
                                                    pairs + at, width);
    }
    mr__quant_next_near(w, row0, lanes, depth0, depth);
}

void
mr__quant_pairs_piece(const mr_quant_piece *g)
{
    const float *a = g->a, *x_sums = g->x_sums;
    int rows = mr__gemm_rows(), cols = mr__gemm_cols();
    float *c = g->c;

    for (int64_t i = 0; i < g->m; i += rows) {
        int64_t left = g->m - i < rows ? g->m - i : rows;

        pairs_tier()->tile[left / MR_QUANT_PAIRS_ROWS - 1](g, a, x_sums, c);
        a += g->a_panel;
        x_sums += rows;
        c += rows * cols;
    }
}
