/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pairs.c -- bfloat16 rows and packed rows to pairs, over what the tier
 * gives.
 * Called by: cpu/quant_pairs.c.  Calls: the tier's kernels, quant.c, gemm.h.
 */
#include "kernels/quant_pairs.h"

#include <stdatomic.h>
#include <string.h>

#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

/* Relaxed: every thread finds the same. */
static const mr_quant_pairs *
pairs_tier(void)
{
#if defined(__x86_64__)
    static atomic_int found; /* 1: not worth it, 2: use them */
    int f = atomic_load_explicit(&found, memory_order_relaxed);

    if (f == 0) {
        f = mr__gemm_pairs(MR_BFLOAT16) && __builtin_cpu_supports("avx512vbmi")
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

int
mr__quant_pairs_block(int64_t lanes)
{
    return lanes >= 32 ? 32 : lanes >= 16 ? 16 : 8;
}

bool
mr__quant_pairs_rows(const uint16_t *const *x, int rows, int lanes,
                     int64_t depth, float *to)
{
    enum { LANES = 32, PAIRS = MR_QUANT_PAIRS_DEPTH / 2 };
    float room[LANES][PAIRS];
    bool fine = true;

    for (int i = 0; i < rows; i++) {
        fine = pairs_tier()->fit(x[i], depth) && fine;
        memcpy(room[i], x[i], (size_t)depth * sizeof *x[i]);
    }
    for (int i = rows; i < lanes; i++)
        memset(room[i], 0, (size_t)depth * sizeof *x[0]);
    mr__gemm_of_tier(mr__tier()->id)
        ->turn(to, room[0], PAIRS, lanes, lanes, depth / 2);
    return fine;
}

void
mr__quant_pairs_sums(const mr_quant_format *f, const float *x, int lanes,
                     int64_t depth, float *to, int64_t to_row)
{
    pairs_tier()->sums(x, lanes, f->group / 2, depth / f->group, to, to_row);
}

mr_quant_rows
mr__quant_pairs_rows_at(const mr_quant_matrix *w, int64_t row0, int64_t most,
                        int64_t depth0, int64_t depth)
{
    int64_t bits = w->f.bits, row_bytes = w->cols / 8 * bits;
    int64_t first = depth0 / 8 * bits, rows = w->rows - row0;
    const uint8_t *words = w->words;
    mr_quant_rows s = {.from = words + row0 * row_bytes + first,
                       .end = words + w->rows * row_bytes,
                       .row_bytes = row_bytes,
                       .rows = rows < most ? rows : most,
                       .n = depth,
                       .ahead = depth / 8 * bits};

    if (depth0 + depth == w->cols) /* the first ones of the rows behind */
        s.ahead = MR_QUANT_PAIRS_ROWS * row_bytes - first;
    return s;
}

void
mr__quant_pairs_codes(const mr_quant_matrix *w, const mr_quant_rows *s,
                      int64_t most, uint16_t *to)
{
    int64_t left = most - s->rows;

    pairs_tier()->unpack[mr__quant_kind(&w->f)](s, to);
    if (left > 0)
        memset(to + s->rows * MR_QUANT_PAIRS_DEPTH, 0,
               (size_t)(left * MR_QUANT_PAIRS_DEPTH) * sizeof *to);
}

void
mr__quant_pairs_tile(const mr_quant_matrix *w, const mr_quant_piece *p,
                     const mr_quant_ahead *ahead, int lanes)
{
    if (lanes < 16)
        pairs_tier()->narrow(p);
    else
        pairs_tier()->tile[lanes / 32][mr__quant_kind(&w->f)](p, ahead);
}
