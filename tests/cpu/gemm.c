/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c -- the tiers with fused multiply-add give equal bits; packing puts
 * each number in its place.
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
            t->tile[0][2][1](DEPTH, pa, pb, t->cols, c + (size_t)i * N + j, N,
                             false);
            t->tile[0][2][1](DEPTH, pa, pb, t->cols, c + (size_t)i * N + j, N,
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
                t->tile[0][r][v](3, a, b, t->cols, c, N + 1, false);
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
            t->f64->tile[0][2][1](DEPTH, pa, pb, cols, c + (size_t)i * N + j, N,
                                  false);
            t->f64->tile[0][2][1](DEPTH, pa, pb, cols, c + (size_t)i * N + j, N,
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

/* Each of `width` lanes, the missing ones 0, depth by depth; nothing else. */
static void
turn_check(const mr_gemm_tier *t, int width, int lanes, int depth)
{
    enum { MOST = 32 * 44, BEYOND = 8 };
    float x[MOST], to[MOST + BEYOND];
    double wide[MOST], to64[MOST + BEYOND];

    for (int i = 0; i < MOST; i++)
        wide[i] = x[i] = (float)(i + 1);
    for (int i = 0; i < MOST + BEYOND; i++)
        to64[i] = to[i] = -1.0F;
    t->turn(to, x, 43, lanes, width, depth);
    t->f64->turn(to64, wide, 43, lanes, width, depth);
    for (int i = 0; i < width * depth + BEYOND; i++) {
        int lane = i % width, p = i / width;
        float right = lane < lanes ? (float)(lane * 43 + p + 1) : 0.0F;

        right = p < depth ? right : -1.0F;
        assert_true(to[i] == right && to64[i] == (double)right);
    }
}

static void
turns__put_each_number_in_its_place(void **state)
{
    static const int depths[] = {1, 3, 4, 8, 15, 16, 24, 32, 35, 41};

    (void)state;
    for (int id = 0; id < MR_N_TIERS; id++)
        for (int d = 0; d < (int)(sizeof depths / sizeof *depths); d++) {
            const mr_gemm_tier *t = mr__gemm_of_tier(id);

            for (int n = 1; t && n <= t->rows; n++)
                turn_check(t, t->rows, n, depths[d]);
            for (int n = 1; t && n <= t->cols; n++)
                turn_check(t, t->cols, n, depths[d]);
        }
}

enum { LANES = 3 * 32 + 5, DEEP = 9 };

/* The word at (lane, depth) of packed panels, as the numbers have it. */
static double
packed_at(const float *to, mr_dtype t, bool pairs, int64_t at, int64_t depth)
{
    uint32_t word;
    float x;

    if (t == MR_FLOAT64)
        return ((const double *)(const void *)to)[at];
    if (!pairs)
        return (double)to[at];
    memcpy(&word, to + at, sizeof word);
    word = depth % 2 == 0 ? word & 0xFFFF0000U : word << 16;
    memcpy(&x, &word, sizeof x);
    return (double)x;
}

/* All panels at once: lanes `lane` elements apart, depths `step`. */
static void
panels_check(mr_dtype t, bool pairs, int64_t lane, int64_t step, int64_t depth)
{
    int64_t words = t == MR_FLOAT64 ? 2 : 1;
    int64_t cols = mr__gemm_cols() / words, n = (LANES - 1) / cols + 1;
    int64_t steps = pairs ? (depth + 1) / 2 : depth;
    double x[LANES * DEEP * 2];
    char from[LANES * DEEP * 2 * 8];
    float *to =
        aligned_alloc(64, (size_t)(n * cols * DEEP * words * 4 + 63) / 64 * 64);
    mr_gemm_side s = {from, t, LANES, lane, step};

    assert_true(to != NULL);
    for (int i = 0; i < LANES * DEEP * 2; i++)
        x[i] = (double)(i % 256 + 1);
    mr__tier()->casts->cast[MR_FLOAT64][t](from, x, LANES * DEEP * 2);
    for (int64_t j = 0; j < n; j += MR_GEMM_MAX_PANELS) {
        int64_t some = n - j < MR_GEMM_MAX_PANELS ? n - j : MR_GEMM_MAX_PANELS;

        assert_true(mr__gemm_pack_panels(
            &s, true, j, some, 0, depth,
            pairs ? MR_GEMM_IN_PAIRS : MR_GEMM_FLOATS,
            to + j * steps * cols * words, steps * cols * words));
    }
    for (int64_t l = 0; l < n * cols; l++)
        for (int64_t p = 0; p < depth; p++) {
            int64_t row = pairs ? p / 2 : p;
            int64_t at = (l / cols * steps + row) * cols + l % cols;

            assert_true(packed_at(to, t, pairs, at, p) ==
                        (l < LANES ? x[l * lane + p * step] : 0.0));
        }
    free(to);
}

static void
panels__hold_what_their_side_has(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT64, MR_FLOAT16,
                                     MR_BFLOAT16};

    (void)state;
    for (int i = 0; i < 4; i++)
        for (int64_t depth = DEEP - 1; depth <= DEEP; depth++)
            for (int pairs = 0; pairs <= (int)mr__gemm_pairs(types[i]);
                 pairs++) {
                panels_check(types[i], pairs, 1, LANES, depth);
                panels_check(types[i], pairs, 1, LANES + 1, depth);
                panels_check(types[i], pairs, DEEP, 1, depth);
                panels_check(types[i], pairs, 2, 2 * LANES, depth);
            }
}

/* One number below 2^-63 that is not 0, anywhere, is found. */
static void
pairs__find_every_small_number(void **state)
{
    int64_t n = LANES / 32, cols = mr__gemm_cols();
    uint16_t x[LANES * DEEP] = {0};
    float *to = aligned_alloc(64, (size_t)(n * cols * DEEP * 4));

    (void)state;
    if (!mr__gemm_pairs(MR_BFLOAT16)) {
        free(to);
        skip();
    }
    assert_true(to != NULL);
    for (int turned = 0; turned < 2; turned++) {
        mr_gemm_side s = {x, MR_BFLOAT16, LANES, turned ? DEEP : 1,
                          turned ? 1 : LANES};

        for (int i = 0; i < LANES * DEEP; i++) {
            int lane = turned ? i / DEEP : i % LANES;
            int depth = turned ? i % DEEP : i / LANES;
            bool seen = lane < n * cols && depth < DEEP - 1;

            x[i] = i % 2 ? 0x8001 : 0x1FFF;
            assert_true(mr__gemm_pack_panels(&s, true, 0, n, 0, DEEP - 1,
                                             MR_GEMM_IN_PAIRS, to,
                                             cols * (DEEP / 2)) != seen);
            x[i] = i % 2 ? 0x2000 : 0xFF80;
        }
        memset(x, 0, sizeof x);
    }
    free(to);
}

/* ---- pieces ----------------------------------------------------------------
 */

enum { P_LANES = 75, P_DEEP = 70, P_PANELS = 3 };

/* The sum of a number's pieces, wherever it is: the tile's line is its lane (of
 * a) or its pair of depths. */
static double
pieces_at(const float *to, int n_pieces, bool right, bool natural,
          int64_t steps, int lane, int depth)
{
    int d = depth % 32, l = lane % 16;
    int pair = natural ? d / 2 : d % 16, half = natural ? d % 2 : d / 16;
    int line = right ? pair : l, word = right ? l : pair;
    const float *tile = to + lane / 32 * 32 * steps +
                        depth / 32 * 2 * n_pieces * 256 + lane / 16 % 2 * 256;
    double sum = 0.0;

    for (int k = 0; k < n_pieces; k++) {
        uint32_t bits;
        float x;

        memcpy(&bits, tile + 2 * k * 256 + line * 16 + word, sizeof bits);
        bits = half ? bits & 0xFFFF0000U : bits << 16;
        memcpy(&x, &bits, sizeof x);
        sum += (double)x;
    }
    return sum;
}

static void
pieces_check(mr_dtype t, bool right, int64_t lane, int64_t step)
{
    enum { ALL = P_LANES * P_DEEP * 2 };
    int64_t steps = mr__gemm_steps(MR_GEMM_IN_PIECES, t, P_DEEP);
    float *to = aligned_alloc(64, (size_t)(P_PANELS * 32 * steps * 4));
    static double x[ALL];
    static char from[ALL * 4];
    static double back[ALL];
    mr_gemm_side s = {from, t, P_LANES, lane, step};
    int n = mr__gemm_pieces(t);

    assert_true(to != NULL);
    for (int i = 0; i < ALL; i++)
        x[i] =
            (i % 3 ? 1.0 : -1.0) * (1.0 + (double)(i * 7919 % 10007) / 10007);
    mr__tier()->casts->cast[MR_FLOAT64][t](from, x, ALL);
    mr__tier()->casts->cast[t][MR_FLOAT64](back, from, ALL);
    assert_true(mr__gemm_pack_panels(&s, right, 0, P_PANELS, 0, P_DEEP,
                                     MR_GEMM_IN_PIECES, to, 32 * steps));
    for (int l = 0; l < P_PANELS * 32; l++)
        for (int p = 0; p < 96; p++)
            assert_true(
                pieces_at(to, n, right, t == MR_BFLOAT16, steps, l, p) ==
                (l < P_LANES && p < P_DEEP ? back[l * lane + p * step] : 0.0));
    free(to);
}

static void
pieces__add_up_to_their_numbers(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT16, MR_BFLOAT16};

    (void)state;
    if (!mr__gemm_matrix())
        skip();
    for (int i = 0; i < 3; i++)
        for (int right = 0; right < 2; right++) {
            pieces_check(types[i], right, 1, P_LANES);
            pieces_check(types[i], right, P_DEEP, 1);
            pieces_check(types[i], right, 2, 2 * P_LANES);
        }
}

/* One number out of range, anywhere among the lanes, is found. */
static void
pieces__find_every_number_out_of_range(void **state)
{
    static const struct {
        mr_dtype dtype;
        double bad;
    } cases[] = {
        {MR_FLOAT32, 0x1p-101},   {MR_FLOAT32, -0x1.8p60},
        {MR_FLOAT32, INFINITY},   {MR_FLOAT16, -INFINITY},
        {MR_BFLOAT16, INFINITY},  {MR_BFLOAT16, 0x1p-64},
        {MR_BFLOAT16, -0x1p-130},
    };
    float *to = aligned_alloc(64, P_PANELS * 32 * 96 * 2 * 4 * 3);
    static char from[P_LANES * P_DEEP * 4];

    (void)state;
    if (!mr__gemm_matrix()) {
        free(to);
        skip();
    }
    assert_true(to != NULL);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        for (int where = 0; where < P_LANES * P_DEEP; where += 13) {
            mr_dtype t = cases[k].dtype;
            int64_t size = mr__dtype_size(t);
            double one = 1.0;

            for (int turned = 0; turned < 2; turned++) {
                mr_gemm_side s = {from, t, P_LANES, turned ? P_DEEP : 1,
                                  turned ? 1 : P_LANES};
                bool right = where % 2;
                int64_t steps = mr__gemm_steps(MR_GEMM_IN_PIECES, t, P_DEEP);

                for (int i = 0; i < P_LANES * P_DEEP; i++)
                    mr__tier()->casts->cast[MR_FLOAT64][t](from + i * size,
                                                           &one, 1);
                assert_true(mr__gemm_pack_panels(&s, right, 0, P_PANELS, 0,
                                                 P_DEEP, MR_GEMM_IN_PIECES, to,
                                                 32 * steps));
                mr__tier()->casts->cast[MR_FLOAT64][t](from + where * size,
                                                       &cases[k].bad, 1);
                assert_false(mr__gemm_pack_panels(&s, right, 0, P_PANELS, 0,
                                                  P_DEEP, MR_GEMM_IN_PIECES, to,
                                                  32 * steps));
            }
        }
    free(to);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiers__give_equal_bits),
        cmocka_unit_test(tiers__give_equal_bits_in_float64),
        cmocka_unit_test(tiles__stay_within_their_size),
        cmocka_unit_test(turns__put_each_number_in_its_place),
        cmocka_unit_test(panels__hold_what_their_side_has),
        cmocka_unit_test(pairs__find_every_small_number),
        cmocka_unit_test(pieces__add_up_to_their_numbers),
        cmocka_unit_test(pieces__find_every_number_out_of_range),
    };

    return cmocka_run_group_tests_name("cpu/gemm", tests, NULL, NULL);
}
