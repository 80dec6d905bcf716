/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_plain.c -- matrix products of the dtypes that have no packed kernel.
 *
 * Integers wrap and bool is an "or" of "ands"; float64 and complex numbers
 * come here only where there is no OpenBLAS.  A row of c at a time: element p
 * of a's row is spread over row p of b.
 */
#include <string.h>

#include "kernels/gemm.h"

/* Columns of c that stay in the first-level cache meanwhile. */
#define COLS 1024

#define REAL_STEP(sum, x, y) ((sum) += (x) * (y))
#define BOOL_STEP(sum, x, y) ((sum) |= (uint8_t)((x) & (y)))
#define COMPLEX_STEP(sum, x, y)                                                \
    ((sum).re += (x).re * (y).re - (x).im * (y).im,                            \
     (sum).im += (x).re * (y).im + (x).im * (y).re)

#define PLAIN(name, type, step)                                                \
    static void name(const mr_gemm_side *a, const mr_gemm_side *b, void *c,    \
                     int64_t c_row, int64_t depth, int64_t i0, int64_t i1)     \
    {                                                                          \
        for (int64_t j0 = 0; j0 < b->lanes; j0 += COLS) {                      \
            int64_t n = b->lanes - j0 < COLS ? b->lanes - j0 : COLS;           \
            int64_t s = b->lane_stride;                                        \
                                                                               \
            for (int64_t i = i0; i < i1; i++) {                                \
                type *restrict o = (type *)c + i * c_row + j0;                 \
                const type *x = (const type *)a->data + i * a->lane_stride;    \
                                                                               \
                memset(o, 0, (size_t)n * sizeof *o);                           \
                for (int64_t p = 0; p < depth; p++) {                          \
                    const type e = x[p * a->depth_stride];                     \
                    const type *y =                                            \
                        (const type *)b->data + p * b->depth_stride + j0 * s;  \
                                                                               \
                    if (s == 1)                                                \
                        for (int64_t j = 0; j < n; j++)                        \
                            step(o[j], e, y[j]);                               \
                    else                                                       \
                        for (int64_t j = 0; j < n; j++)                        \
                            step(o[j], e, y[j * s]);                           \
                }                                                              \
            }                                                                  \
        }                                                                      \
    }

PLAIN(plain_bool, uint8_t, BOOL_STEP)
PLAIN(plain_8, uint8_t, REAL_STEP)
PLAIN(plain_16, uint16_t, REAL_STEP)
PLAIN(plain_32, uint32_t, REAL_STEP)
PLAIN(plain_64, uint64_t, REAL_STEP)
PLAIN(plain_f32, float, REAL_STEP)
PLAIN(plain_f64, double, REAL_STEP)
PLAIN(plain_c64, mr_c64, COMPLEX_STEP)
PLAIN(plain_c128, mr_c128, COMPLEX_STEP)

typedef void plain_fn(const mr_gemm_side *a, const mr_gemm_side *b, void *c,
                      int64_t c_row, int64_t depth, int64_t i0, int64_t i1);

/* Signed integers have the bits of unsigned ones; halves come never. */
static plain_fn *const plain[MR_N_DTYPES] = {
    [MR_BOOL] = plain_bool,      [MR_UINT8] = plain_8,
    [MR_UINT16] = plain_16,      [MR_UINT32] = plain_32,
    [MR_UINT64] = plain_64,      [MR_INT8] = plain_8,
    [MR_INT16] = plain_16,       [MR_INT32] = plain_32,
    [MR_INT64] = plain_64,       [MR_FLOAT32] = plain_f32,
    [MR_FLOAT64] = plain_f64,    [MR_COMPLEX64] = plain_c64,
    [MR_COMPLEX128] = plain_c128};

void
mr__gemm_plain(const mr_gemm_side *a, const mr_gemm_side *b, void *c,
               int64_t c_row, int64_t depth, int64_t i0, int64_t i1)
{
    plain[a->dtype](a, b, c, c_row, depth, i0, i1);
}
