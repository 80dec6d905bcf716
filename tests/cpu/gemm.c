/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c -- the tiers with fused multiply-add give equal bits.
 */
#include <math.h>

#include "cpu/kernel_run.h"

#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

enum { M = 12, N = 32, DEPTH = 77 };

static float
noise(int64_t i)
{
    uint64_t h = (uint64_t)i * 0x9E3779B97F4A7C15ULL;

    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ULL;
    return (float)(int32_t)(h >> 32) * 0x1p-31F;
}

/* The M x N product by the tiles of one tier. */
static void
product(const mr_gemm_tier *t, const float *a, const float *b, float *c)
{
    float *pa = aligned_alloc(64, MR_GEMM_MAX_ROWS * 4 * 128);
    float *pb = aligned_alloc(64, MR_GEMM_MAX_COLS * 4 * 128);

    assert_true(pa && pb);
    assert_int_equal(M % t->rows, 0);
    assert_int_equal(N % t->cols, 0);
    for (int i = 0; i < M; i += t->rows)
        for (int j = 0; j < N; j += t->cols) {
            t->turn(pa, a + (size_t)i * DEPTH, DEPTH, t->rows, t->rows, DEPTH);
            t->turn(pb, b + (size_t)j * DEPTH, DEPTH, t->cols, t->cols, DEPTH);
            t->tile[2][1](DEPTH, pa, pb, t->cols, c + (size_t)i * N + j, N,
                          false);
            t->tile[2][1](DEPTH, pa, pb, t->cols, c + (size_t)i * N + j, N,
                          true);
        }
    free(pa);
    free(pb);
}

static void
tiers__give_equal_bits(void **state)
{
    float a[M * DEPTH], b[N * DEPTH], c[2][M * N], y[2][4 * N], lanes[2][64];
    uint16_t halves[N * DEPTH];
    const mr_gemm_tier *tiers[2] = {mr__gemm_of_tier(MR_TIER_AVX2),
                                    mr__gemm_of_tier(MR_TIER_AVX512)};

    (void)state;
    if (!tiers[0] || !tiers[1])
        skip();
    for (int64_t i = 0; i < M * DEPTH; i++)
        a[i] = noise(i);
    for (int64_t i = 0; i < N * DEPTH; i++) {
        b[i] = noise(-i - 1);
        halves[i] = (uint16_t)(0x3800 + i % 997);
    }
    for (int kind = 0; kind < MR_N_GEMM_KINDS; kind++) {
        const void *other = kind == MR_GEMM_FLOAT32 ? (const void *)b : halves;

        for (int t = 0; t < 2; t++) {
            memset(y[t], 0, sizeof y[t]);
            memset(lanes[t], 0, sizeof lanes[t]);
            product(tiers[t], a, b, c[t]);
            tiers[t]->wide[kind](y[t], N, a, DEPTH, 4, other, N, DEPTH, 29,
                                 t == 0);
            tiers[t]->dot[kind](lanes[t], a, other, 10 * DEPTH - 3);
        }
        assert_memory_equal(c[0], c[1], sizeof c[0]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        assert_memory_equal(lanes[0], lanes[1], sizeof lanes[0]);
    }
}

/* A tile of every size touches its own part of c alone. */
static void
tiles__stay_within_their_size(void **state)
{
    (void)state;
    for (int id = 0; id < MR_N_TIERS; id++)
        for (int r = 0; r < 3 && mr__gemm_of_tier(id); r++)
            for (int v = 0; v < 2; v++) {
                const mr_gemm_tier *t = mr__gemm_of_tier(id);
                int rows = (r + 1) * t->rows / 3, cols = (v + 1) * t->cols / 2;
                float *a = aligned_alloc(64, M * 64);
                float *b = aligned_alloc(64, N * 64);
                float c[(M + 1) * (N + 1)];

                assert_true(a && b);
                for (int i = 0; i < M * 16; i++)
                    a[i] = 1.0F;
                for (int i = 0; i < N * 16; i++)
                    b[i] = 2.0F;
                for (int i = 0; i < (M + 1) * (N + 1); i++)
                    c[i] = -1.0F;
                t->tile[r][v](3, a, b, t->cols, c, N + 1, false);
                for (int i = 0; i <= M; i++)
                    for (int j = 0; j <= N; j++)
                        assert_true(c[i * (N + 1) + j] ==
                                    (i < rows && j < cols ? 6.0F : -1.0F));
                free(a);
                free(b);
            }
}

/* The same in float64, by the tiles of one tier. */
static void
product64(const mr_gemm_tier *t, const double *a, const double *b, double *c)
{
    double *pa = aligned_alloc(64, MR_GEMM_MAX_ROWS * 8 * 128);
    double *pb = aligned_alloc(64, MR_GEMM_MAX_COLS * 8 * 128);
    int cols = t->cols / 2;

    assert_true(pa && pb);
    for (int i = 0; i < M; i += t->rows)
        for (int j = 0; j < N; j += cols) {
            t->f64->turn(pa, a + (size_t)i * DEPTH, DEPTH, t->rows, t->rows,
                         DEPTH);
            t->f64->turn(pb, b + (size_t)j * DEPTH, DEPTH, cols, cols, DEPTH);
            t->f64->tile[2][1](DEPTH, pa, pb, cols, c + (size_t)i * N + j, N,
                               false);
            t->f64->tile[2][1](DEPTH, pa, pb, cols, c + (size_t)i * N + j, N,
                               true);
        }
    free(pa);
    free(pb);
}

static void
tiers__give_equal_bits_in_float64(void **state)
{
    double a[M * DEPTH], b[N * DEPTH], c[2][M * N];
    int id[2] = {MR_TIER_AVX2, MR_TIER_AVX512};

    (void)state;
    for (int64_t i = 0; i < M * DEPTH; i++)
        a[i] = (double)noise(i);
    for (int64_t i = 0; i < N * DEPTH; i++)
        b[i] = (double)noise(-i - 1);
    for (int t = 0; t < 2; t++) {
        if (!mr__gemm_of_tier(id[t]))
            skip();
        product64(mr__gemm_of_tier(id[t]), a, b, c[t]);
    }
    assert_memory_equal(c[0], c[1], sizeof c[0]);
    for (int i = 0; i < M; i++) {
        double sum = 0.0;

        for (int p = 0; p < DEPTH; p++)
            sum += 2.0 * a[i * DEPTH + p] * b[5 * DEPTH + p];
        assert_true(fabs(c[0][i * N + 5] - sum) < 1e-13);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiers__give_equal_bits),
        cmocka_unit_test(tiers__give_equal_bits_in_float64),
        cmocka_unit_test(tiles__stay_within_their_size),
    };

    return cmocka_run_group_tests_name("cpu/gemm", tests, NULL, NULL);
}
