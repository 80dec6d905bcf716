/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_floats.c -- packed rows to values beside products, over what the tier
 * gives.
 * Called by: cpu/quant_floats.c, cpu/quant_pairs.c.  Calls: the tier's kernels.
 */
#include "kernels/quant_floats.h"

#include <string.h>

#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

static const mr_quant_floats *
floats_tier(void)
{
#if defined(__x86_64__)
    return &mr__quant_floats_avx512;
#else
    return NULL;
#endif
}

bool
mr__quant_floats_pay(void)
{
#if defined(__x86_64__)
    return mr__tier()->id == MR_TIER_AVX512 &&
           __builtin_cpu_supports("avx512vbmi");
#else
    return false;
#endif
}

void
mr__quant_scales(const mr_quant_matrix *w, const void *from, int64_t row0,
                 int64_t rows, int64_t first, int64_t n, float *to)
{
    int64_t size = mr__quant_scale_bytes(w->f.scale), left = w->rows - row0;
    int64_t row_bytes = w->cols / w->f.group * size;
    int64_t there = left < rows ? left : rows;

    floats_tier()->scales((const uint8_t *)from + row0 * row_bytes +
                              first * size,
                          row_bytes, there, n, w->f.scale, to);
    memset(to + there * MR_QUANT_SCALES, 0,
           (size_t)((rows - there) * MR_QUANT_SCALES) * sizeof *to);
}

void
mr__quant_floats_values(const mr_quant_matrix *w, const mr_quant_next *p,
                        int64_t depth)
{
    floats_tier()->values[mr__quant_kind(&w->f)](p, depth);
}

void
mr__quant_floats_tile(const mr_quant_matrix *w, const mr_quant_stripe *t,
                      const mr_quant_next *next, int lanes)
{
    floats_tier()->tile[lanes / 32][mr__quant_kind(&w->f)](t, next);
}
