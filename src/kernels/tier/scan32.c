/* SPDX-License-Identifier: Apache-2.0
 *
 * scan32.c -- running sums and products of lines of float32 side by side, once
 * per instruction set.
 *
 * A loop over one line does an entry in some eight operations, most of them
 * conversions; of sixteen lines two vectors of doubles take as many.  Products
 * that become denormal cost an assist of the microcode each on Intel's
 * processors (150 clocks), here one for all lines of a vector: 4096 lines of
 * 1024 normal numbers take 3.0 ms one by one, most of it in assists.
 * The narrow vectors of baseline and neon gain nothing.
 */
#include "kernels/scan.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/turn.h"

#if MR_TIER_ID == MR_TIER_AVX512 || MR_TIER_ID == MR_TIER_AVX2

typedef double wide __attribute__((vector_size(VEC_BYTES)));
typedef float half __attribute__((vector_size(VEC_BYTES / 2)));

/* Lane i of register l as lane l of register i. */
INLINE void
turn(R *x)
{
#if MR_TIER_ID == MR_TIER_AVX512
    turn_registers((__m512 *)x);
#else
    __m256 y[8], z[8];

#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        y[i] = _mm256_unpacklo_ps((__m256)x[i], (__m256)x[i + 1]);
        y[i + 1] = _mm256_unpackhi_ps((__m256)x[i], (__m256)x[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            z[i + 2 * h] = _mm256_shuffle_ps(y[i + h], y[i + 2 + h], 0x44);
            z[i + 2 * h + 1] = _mm256_shuffle_ps(y[i + h], y[i + 2 + h], 0xEE);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = (R)_mm256_permute2f128_ps(z[i], z[i + 4], 0x20);
        x[i + 4] = (R)_mm256_permute2f128_ps(z[i], z[i + 4], 0x31);
    }
#endif
}

/* m entries of each line from `at` on, to an entry of each in a row. */
INLINE void
square_in(lane *square, const mr_scan_lines *l, int64_t at, int64_t m)
{
    R x[N_LANES];

#pragma GCC unroll 16
    for (int i = 0; i < N_LANES; i++) {
        const lane *p = l->from + i * l->apart + at;

        x[i] = m == N_LANES ? v_load(p) : v_load_n(p, m);
    }
    turn(x);
#pragma GCC unroll 16
    for (int i = 0; i < N_LANES; i++)
        v_store(square + i * N_LANES, x[i]);
}

INLINE void
square_out(const lane *square, const mr_scan_lines *l, int64_t at, int64_t m)
{
    R x[N_LANES];

#pragma GCC unroll 16
    for (int i = 0; i < N_LANES; i++)
        x[i] = v_load(square + i * N_LANES);
    turn(x);
#pragma GCC unroll 16
    for (int i = 0; i < N_LANES; i++) {
        lane *p = l->to + i * l->apart + at;

        if (m == N_LANES)
            v_store(p, x[i]);
        else
            v_store_n(p, x[i], m);
    }
}

/* Row k of the square becomes what is written. */
INLINE void
row_sum(lane *row, wide total[2], bool inclusive)
{
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        wide before = total[h];
        half x;

        memcpy(&x, row + h * N_LANES / 2, sizeof x);
        total[h] += __builtin_convertvector(x, wide);
        x = __builtin_convertvector(inclusive ? total[h] : before, half);
        memcpy(row + h * N_LANES / 2, &x, sizeof x);
    }
}

INLINE void
row_product(lane *row, R *total, bool inclusive)
{
    R before = *total;

    *total *= v_load(row);
    v_store(row, inclusive ? *total : before);
}

typedef enum mode { SUM, PRODUCT } mode;

INLINE void
lines_run(const mr_scan_lines *l, const mode how)
{
    _Alignas(64) lane square[N_LANES * N_LANES];
    /* -0: it leaves the first entry as it is */
    wide sum[2] = {-(wide){0}, -(wide){0}};
    R product = v_set(1.0F);

    for (int64_t i = 0, m; i < l->n; i += m) {
        int64_t at;

        m = l->n - i < N_LANES ? l->n - i : N_LANES;
        at = l->reverse ? l->n - i - m : i;
        square_in(square, l, at, m);
        for (int64_t k = 0; k < m; k++) {
            lane *row = square + (l->reverse ? m - 1 - k : k) * N_LANES;

            if (how == SUM)
                row_sum(row, sum, l->inclusive);
            else
                row_product(row, &product, l->inclusive);
        }
        if (how == SUM && !l->inclusive && i == 0)
            v_store(square + (l->reverse ? m - 1 : 0) * N_LANES, v_set(0.0F));
        square_out(square, l, at, m);
    }
}

static void
sum(const mr_scan_lines *l)
{
    lines_run(l, SUM);
}

static void
product(const mr_scan_lines *l)
{
    lines_run(l, PRODUCT);
}

const mr_scan_tier MR_TIER_SYM(mr__scan_tier) = {N_LANES, sum, product};

#else

const mr_scan_tier MR_TIER_SYM(mr__scan_tier) = {0};

#endif
