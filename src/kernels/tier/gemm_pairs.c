/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_pairs.c -- register tiles of bfloat16, two depths at a time, for
 * processors whose vdpbf16ps is worth it.
 *
 * An element of a panel is a pair of halves, of depths 2 p + 1 and 2 p, in one
 * lane of 32 bits; else panels and tiles are those of gemm.c.  The instruction
 * is two fused multiply-adds, the upper half's first, so the sums have the bits
 * of widened operands; all that is lost are operands and results below 2^-126,
 * which it takes for 0.  Hence `order` says whether operands have numbers of
 * which such results may come, and the caller widens then.
 */
#include "kernels/gemm.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/half.h"

#if MR_TIER_ID == MR_TIER_AVX512

#define THIRD 4
#define ROWS  (3 * THIRD)
#define COLS  (2 * N_LANES)
#define AHEAD 16 /* rows that are fetched ahead */
#define WITH  __attribute__((target("avx512bf16")))

static inline __attribute__((always_inline, target("avx512bf16"))) void
tile_sums(R sum[ROWS][2], int64_t depth, const float *restrict a,
          const float *restrict b, int64_t b_row, const int n_rows,
          const int n_vectors)
{
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++) {
        sum[i][0] = (R){0};
        sum[i][1] = (R){0};
    }
    for (int64_t p = 0; p < depth; p++, a += ROWS, b += b_row) {
        R b0 = v_load(b), b1 = n_vectors > 1 ? v_load(b + N_LANES) : b0;

#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++) {
            uint32_t pair;
            __m512bh x;

            memcpy(&pair, a + i, sizeof pair);
            x = (__m512bh)_mm512_set1_epi32((int)pair);
            sum[i][0] = (R)_mm512_dpbf16_ps((__m512)sum[i][0], x, (__m512bh)b0);
            if (n_vectors > 1)
                sum[i][1] =
                    (R)_mm512_dpbf16_ps((__m512)sum[i][1], x, (__m512bh)b1);
        }
    }
}

static inline __attribute__((always_inline, target("avx512bf16"))) void
tile(int64_t depth, const float *restrict a, const float *restrict b,
     int64_t b_row, float *restrict c, int64_t c_row, bool add,
     const int n_rows, const int n_vectors)
{
    R sum[ROWS][2];

    tile_sums(sum, depth, a, b, b_row, n_rows, n_vectors);
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++, c += c_row) {
        v_store(c, add ? v_load(c) + sum[i][0] : sum[i][0]);
        if (n_vectors > 1)
            v_store(c + N_LANES,
                    add ? v_load(c + N_LANES) + sum[i][1] : sum[i][1]);
    }
}

/* A whole tile of one chunk, rounded from the registers. */
WITH static void
tile_rounded(int64_t depth, const float *a, const float *b, int64_t b_row,
             uint16_t *c, int64_t c_row)
{
    R sum[ROWS][2];

    tile_sums(sum, depth, a, b, b_row, ROWS, 2);
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++, c += c_row)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            HALF h = bf16_round(sum[i][v]);

            memcpy(c + v * N_LANES, &h, sizeof h);
        }
}

#define TILE(name, n_rows, n_vectors)                                          \
    WITH static void name(int64_t depth, const float *a, const float *b,       \
                          int64_t b_row, float *c, int64_t c_row, bool add)    \
    {                                                                          \
        tile(depth, a, b, b_row, c, c_row, add, n_rows, n_vectors);            \
    }
TILE(tile_third_half, THIRD, 1)
TILE(tile_third, THIRD, 2)
TILE(tile_two_thirds_half, 2 * THIRD, 1)
TILE(tile_two_thirds, 2 * THIRD, 2)
TILE(tile_half, 3 * THIRD, 1)
TILE(tile_whole, 3 * THIRD, 2)

/* Halves i ... (`left` of them at most) as the lower halves of lanes. */
INLINE U
lanes_of(const uint16_t *p, int64_t left)
{
    HALF h = {0};

    if (left >= N_LANES)
        memcpy(&h, p, sizeof h);
    else if (left > 0)
        memcpy(&h, p, (size_t)left * sizeof *p);
    return __builtin_convertvector(h, U);
}

/* Two depths, whose lanes are adjacent; width is a multiple of 4. */
static void
zip(uint32_t *to, const uint16_t *low, const uint16_t *high, int64_t lanes,
    int64_t width)
{
    for (int64_t l = 0; l < width; l += N_LANES) {
        U x = lanes_of(low + l, lanes - l);

        if (high)
            x |= lanes_of(high + l, lanes - l) << 16;
        if (width - l >= N_LANES)
            memcpy(to + l, &x, sizeof x);
        else
            memcpy(to + l, &x, (size_t)(width - l) * sizeof *to);
    }
}

/* Two vectors of pairs: the halves of each of two rows, one by one. */
typedef uint16_t HALVES __attribute__((vector_size(64)));

#define TWO(i)   (i) + 32, (i)
#define EIGHT(i) TWO(i), TWO((i) + 1), TWO((i) + 2), TWO((i) + 3)

/* The instruction takes results below the normal range for 0.  Of two numbers
 * that are 0 or at least 2^-63 the product is none of these. */
#define SMALL (64 << 7) /* the bits of 2^-63 */

/* The least of these and of what a half is above 1, its sign apart: below SMALL
 * - 1 it is small and not 0. */
INLINE HALVES
least_of(HALVES least, HALVES x)
{
    HALVES above = (x & 0x7FFF) - 1;

    return (HALVES)_mm512_min_epu16((__m512i)above, (__m512i)least);
}

static bool
has_small(HALVES least)
{
    for (int i = 0; i < (int)(sizeof least / sizeof least[0]); i++)
        if (least[i] < SMALL - 1)
            return true;
    return false;
}

/* COLS lanes of depths 2 p + 1 and 2 p, rows `row` apart, of n panels, `apart`
 * from one to the next. */
static bool
zip_cols(uint32_t *to, const uint16_t *from, int64_t row, int64_t pairs,
         int64_t n, int64_t apart)
{
    HALVES least = ~(HALVES){0};

    for (int64_t p = 0; p < pairs; p++, from += 2 * row, to += COLS) {
        if (n == 1) { /* short pieces of rows: no prefetcher follows */
            __builtin_prefetch(from + AHEAD * row);
            __builtin_prefetch(from + (AHEAD + 1) * row);
        }
        for (int64_t k = 0; k < n; k++) {
            HALVES low, high, x, y;

            memcpy(&low, from + k * COLS, sizeof low);
            memcpy(&high, from + row + k * COLS, sizeof high);
            least = least_of(least_of(least, low), high);
            x = __builtin_shufflevector(low, high, EIGHT(0), EIGHT(4), EIGHT(8),
                                        EIGHT(12));
            y = __builtin_shufflevector(low, high, EIGHT(16), EIGHT(20),
                                        EIGHT(24), EIGHT(28));
            memcpy(to + k * apart, &x, sizeof x);
            memcpy(to + k * apart + N_LANES, &y, sizeof y);
        }
    }
    return has_small(least);
}

/* The halves of each pair change places: they come as memory has them.  Is
 * there one that is small and not 0?  n is a multiple of 4. */
static bool
order(uint32_t *pairs, int64_t n)
{
    HALVES least = ~(HALVES){0};

    for (int64_t i = 0; i < n; i += N_LANES) {
        size_t bytes =
            n - i < N_LANES ? (size_t)(n - i) * sizeof *pairs : sizeof(U);
        U x = {0};

        if (bytes == sizeof x)
            memcpy(&x, pairs + i, sizeof x);
        else
            memcpy(&x, pairs + i, bytes);
        x = x << 16 | x >> 16;
        least = least_of(least, (HALVES)x);
        if (bytes == sizeof x)
            memcpy(pairs + i, &x, sizeof x);
        else
            memcpy(pairs + i, &x, bytes);
    }
    return has_small(least);
}

const mr_gemm_pairs MR_TIER_SYM(mr__gemm_pairs) = {
    .tile = {{tile_third_half, tile_third},
             {tile_two_thirds_half, tile_two_thirds},
             {tile_half, tile_whole}},
    .rounded = tile_rounded,
    .zip = zip,
    .zip_cols = zip_cols,
    .order = order,
};

#else

const mr_gemm_pairs MR_TIER_SYM(mr__gemm_pairs) = {.zip = NULL};

#endif
