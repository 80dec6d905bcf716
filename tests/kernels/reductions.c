/* SPDX-License-Identifier: Apache-2.0
 *
 * reductions.c -- the canonical order of reductions: the same bits for every
 * layout and any split into units, equal to a plain C model of the order.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/program_of.h"

/* ---- the model, straight from kernels/program.h
 * ------------------------------------ */

static float
pick(mr_k k, float a, float b)
{
    if (k == MR_R_PROD)
        return a * b;
    if (k == MR_R_MAX)
        return a > b || isnan(a) ? a : b;
    if (k == MR_R_MIN)
        return a < b || isnan(a) ? a : b;
    return a + b;
}

static float
model_block(mr_k k, const float *x, int64_t n)
{
    float lane[64];
    bool used[64] = {false};

    for (int64_t i = 0; i < n; i++) {
        lane[i % 64] = used[i % 64] ? pick(k, lane[i % 64], x[i]) : x[i];
        used[i % 64] = true;
    }
    for (int h = 32; h > 0; h /= 2) {
        for (int l = 0; l < h; l++) {
            if (used[l + h])
                lane[l] = pick(k, lane[l], lane[l + h]);
        }
    }
    return lane[0];
}

/* Blocks joined as a binary counter does. */
static float
model_row(mr_k k, const float *x, int64_t n)
{
    float stack[64];
    int64_t size[64];
    int top = 0;

    for (int64_t b = 0; b < n; b += MR_RED_BLOCK) {
        stack[top] =
            model_block(k, x + b, n - b < MR_RED_BLOCK ? n - b : MR_RED_BLOCK);
        size[top++] = 1;
        while (top > 1 && size[top - 1] == size[top - 2]) {
            top--;
            stack[top - 1] = pick(k, stack[top - 1], stack[top]);
            size[top - 1] *= 2;
        }
    }
    for (; top > 1; top--)
        stack[top - 2] = pick(k, stack[top - 2], stack[top - 1]);
    return k == MR_R_MEAN ? stack[0] / (float)n : stack[0];
}

/* ---- layouts
 * -----------------------------------------------------------------------------
 */

/* rows x n points; how they lie in memory. */
typedef enum layout {
    ROW_MAJOR,
    COLUMN_MAJOR,
    ROWS_APART,   /* padding after each row */
    POINTS_APART, /* every third element */
    BACKWARDS_LAID,
    TWO_DIMS,         /* the points are 2 dims that are not one in memory */
    TWO_DIMS_OUTSIDE, /* the same, with the rows innermost */
    N_LAYOUTS
} layout;

static void
lay(mr_block_launch *l, layout how, float *memory, int64_t rows, int64_t n)
{
    int64_t s = sizeof(float), half = n % 2 == 0 ? n / 2 : n;

    l->n_kept = 1;
    l->n_red = 1;
    l->dim[0] = rows;
    l->dim[1] = n;
    l->in[0].data = memory;
    l->in[0].stride[0] = n * s;
    l->in[0].stride[1] = s;
    if (how == COLUMN_MAJOR) {
        l->in[0].stride[0] = s;
        l->in[0].stride[1] = rows * s;
    } else if (how == ROWS_APART) {
        l->in[0].stride[0] = (n + 5) * s;
    } else if (how == POINTS_APART) {
        l->in[0].stride[0] = 3 * n * s;
        l->in[0].stride[1] = 3 * s;
    } else if (how == BACKWARDS_LAID) {
        l->in[0].data = memory + rows * n - 1;
        l->in[0].stride[0] = -n * s;
        l->in[0].stride[1] = -s;
    } else if (how == TWO_DIMS || how == TWO_DIMS_OUTSIDE) {
        int64_t gap = how == TWO_DIMS ? half + 3 : (half + 3) * rows;

        l->n_red = 2;
        l->dim[1] = n / half;
        l->dim[2] = half;
        l->in[0].stride[0] = how == TWO_DIMS ? n / half * gap * s : s;
        l->in[0].stride[1] = gap * s;
        l->in[0].stride[2] = how == TWO_DIMS ? s : rows * s;
    }
}

static float *
point_at(const mr_block_launch *l, int64_t row, int64_t p)
{
    char *at = (char *)l->in[0].data + row * l->in[0].stride[0];

    for (int d = l->n_red; d >= 1; d--) {
        at += p % l->dim[d] * l->in[0].stride[d];
        p /= l->dim[d];
    }
    return (float *)(void *)at;
}

static float
value_of(int64_t row, int64_t p)
{
    uint64_t s = (uint64_t)(row * 1000003 + p);

    return (float)(prog_uniform(&s) * 3.0 + 0.1);
}

static void
check(mr_k k, layout how, int64_t rows, int64_t n)
{
    float *memory = calloc((size_t)(rows * (n + 8) * 4), sizeof(float));
    float *out = calloc((size_t)rows, sizeof *out);
    float *x = calloc((size_t)n + 1, sizeof *x);

    for (int run = ALL_AT_ONCE; run <= BACKWARDS; run++) {
        prog p = {0};
        int a = prog_in(&p, MR_FLOAT32);

        prog_out(&p, prog_op(&p, k, MR_FLOAT32, a, 0, 0));
        lay(&p.l, how, memory, rows, n);
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t i = 0; i < n; i++)
                *point_at(&p.l, r, i) = value_of(r, i);
        }
        prog_contiguous(&p, &p.l.out[0], out, sizeof *out, true);
        prog_run(&p, (prog_how)run);
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t i = 0; i < n; i++)
                x[i] = value_of(r, i);
            float want = model_row(k, x, n);

            if (out[r] != want)
                fail_msg("%s of %lld x %lld, layout %d, run %d, row %lld: "
                         "%.9g, want %.9g",
                         mr__k_name(k), (long long)rows, (long long)n, (int)how,
                         run, (long long)r, (double)out[r], (double)want);
        }
    }
    free(memory);
    free(out);
    free(x);
}

static void
order__is_the_same_for_every_layout_and_split(void **state)
{
    static const int64_t shape[][2] = {
        {1, 1},     {5, 7},      {3, 64},    {130, 10},   {9, 65},
        {40, 300},  {17, 1024},  {70, 1500}, {12, 4096},  {3, 4097},
        {9, 20000}, {1, 300001}, {1, 40960}, {33, 12345}, {200, 3000},
        {3, 33},    {2, 40000},  {3, 9001},  {700, 130},  {520, 70},
        {64, 5000}, {65, 8193},  {1030, 95}, {70, 8192},  {1, 65536}};

    (void)state;
    for (size_t s = 0; s < sizeof shape / sizeof shape[0]; s++) {
        for (int how = 0; how < N_LAYOUTS; how++) {
            check(MR_R_SUM, (layout)how, shape[s][0], shape[s][1]);
            check(MR_R_MEAN, (layout)how, shape[s][0], shape[s][1]);
        }
        check(MR_R_MAX, ROW_MAJOR, shape[s][0], shape[s][1]);
        check(MR_R_MIN, COLUMN_MAJOR, shape[s][0], shape[s][1]);
        for (int how = ROW_MAJOR; how <= COLUMN_MAJOR; how++)
            check(MR_R_PROD, (layout)how, shape[s][0],
                  shape[s][1] < 300 ? shape[s][1] : 300);
    }
}

/* Many units of one long row. */
static void
split__gives_many_units(void **state)
{
    int64_t n = 3000000;
    float *x = malloc((size_t)n * sizeof *x), out;
    prog p = {0};
    int a = prog_in(&p, MR_FLOAT32);

    (void)state;
    for (int64_t i = 0; i < n; i++)
        x[i] = value_of(0, i);
    prog_out(&p, prog_op(&p, MR_R_SUM, MR_FLOAT32, a, 0, 0));
    p.l.n_red = 1;
    p.l.dim[0] = n;
    p.l.in[0] = (mr_block_io){.data = x, .stride = {sizeof *x}};
    p.l.out[0].data = &out;
    assert_true(prog_run(&p, BACKWARDS) > 4);
    assert_true(out == model_row(MR_R_SUM, x, n));
    free(x);
}

/* Few panels of columns: lanes are shared out, those that a short last block
 * does not have as well. */
static void
split__shares_out_the_lanes_of_columns(void **state)
{
    static const int64_t shape[][2] = {
        {1000, 1000}, {512, 4096}, {130, 8193}, {100, 12296}, {9000, 64}};

    (void)state;
    for (size_t s = 0; s < sizeof shape / sizeof shape[0]; s++) {
        int64_t rows = shape[s][0], n = shape[s][1];
        float *x = malloc((size_t)(rows * n) * sizeof *x);
        float *out = malloc((size_t)rows * sizeof *out);
        float *one = malloc((size_t)n * sizeof *one);

        for (int64_t i = 0; i < rows * n; i++)
            x[i] = value_of(i % rows, i / rows);
        for (int j = 0; j < 3; j++) {
            mr_k k = j == 0 ? MR_R_SUM : j == 1 ? MR_R_MEAN : MR_R_MAX;
            prog p = {0};
            int a = prog_in(&p, MR_FLOAT32);

            prog_out(&p, prog_op(&p, k, MR_FLOAT32, a, 0, 0));
            lay(&p.l, COLUMN_MAJOR, x, rows, n);
            prog_contiguous(&p, &p.l.out[0], out, sizeof *out, true);
            prog_run(&p, BACKWARDS);
            for (int64_t r = 0; r < rows; r++) {
                for (int64_t i = 0; i < n; i++)
                    one[i] = x[i * rows + r];
                assert_true(out[r] == model_row(k, one, n));
            }
        }
        free(x);
        free(out);
        free(one);
    }
}

/* A mean, then the squares around it: two rounds of units. */
static void
split__takes_the_passes_over_a_long_row_in_turn(void **state)
{
    static const int64_t sizes[] = {20000, 40961, 3000000};

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t n = sizes[s];
        float *x = malloc((size_t)n * sizeof *x), mean, out;
        float *away = malloc((size_t)n * sizeof *x), *square = away;
        prog p = {0};
        int a = prog_in(&p, MR_FLOAT32), d;

        for (int64_t i = 0; i < n; i++)
            x[i] = value_of(0, i);
        d = prog_op(&p, MR_R_SUM, MR_FLOAT32, a, 0, 0);
        d = prog_op(&p, MR_K_SUBTRACT, MR_FLOAT32, a, d, 0);
        prog_out(&p, d);
        d = prog_op(&p, MR_K_MULTIPLY, MR_FLOAT32, d, d, 0);
        prog_out(&p, prog_op(&p, MR_R_SUM, MR_FLOAT32, d, 0, 0));
        p.l.n_red = 1;
        p.l.dim[0] = n;
        p.l.in[0] = (mr_block_io){.data = x, .stride = {sizeof *x}};
        p.l.out[0] = (mr_block_io){.data = away, .stride = {sizeof *x}};
        p.l.out[1].data = &out;
        prog_run(&p, (prog_how)(s % 3));
        mean = model_row(MR_R_SUM, x, n);
        for (int64_t i = 0; i < n; i++) {
            assert_true(away[i] == x[i] - mean);
            square[i] = away[i] * away[i];
        }
        assert_true(out == model_row(MR_R_SUM, square, n));
        free(away);
        free(x);
    }
}

/* ---- other dtypes and kinds
 * ----------------------------------------------------------------- */

/* Reduces n elements of x (rows of `stride` elements apart; 1 row). */
static void
reduce(mr_k k, mr_dtype from, mr_dtype to, const void *x, int64_t n, void *out)
{
    prog p = {0};
    int a = prog_in(&p, from);
    uint8_t *copy = malloc((size_t)n * prog_size(from) + 1);

    memcpy(copy, x, (size_t)n * prog_size(from));
    prog_out(&p, prog_op(&p, k, to, a, 0, 0));
    p.l.n_red = 1;
    p.l.dim[0] = n;
    p.l.in[0] =
        (mr_block_io){.data = copy, .stride = {(int64_t)prog_size(from)}};
    p.l.out[0].data = out;
    prog_run(&p, ALL_AT_ONCE);
    free(copy);
}

static void
integers__wrap_in_the_width_of_the_result(void **state)
{
    int8_t x[300];
    int32_t sum;
    int64_t y[5] = {INT64_MAX, 1, 5, -3, 2}, total;
    uint8_t z[3] = {200, 100, 7};
    uint32_t prod;

    (void)state;
    memset(x, 127, sizeof x);
    reduce(MR_R_SUM, MR_INT8, MR_INT32, x, 300, &sum);
    assert_int_equal(sum, 38100);
    reduce(MR_R_SUM, MR_INT64, MR_INT64, y, 5, &total);
    assert_true(total == (int64_t)((uint64_t)INT64_MAX + 5));
    reduce(MR_R_PROD, MR_UINT8, MR_UINT32, z, 3, &prod);
    assert_int_equal(prod, 140000);
}

static void
any_and_all__take_everything_but_zero_as_true(void **state)
{
    float x[100] = {0};
    uint8_t r;

    (void)state;
    reduce(MR_R_ANY, MR_FLOAT32, MR_BOOL, x, 100, &r);
    assert_int_equal(r, 0);
    x[77] = NAN;
    reduce(MR_R_ANY, MR_FLOAT32, MR_BOOL, x, 100, &r);
    assert_int_equal(r, 1);
    reduce(MR_R_ALL, MR_FLOAT32, MR_BOOL, x, 100, &r);
    assert_int_equal(r, 0);
    reduce(MR_R_ALL, MR_FLOAT32, MR_BOOL, x + 77, 1, &r);
    assert_int_equal(r, 1);
}

static void
empty__gives_the_identity(void **state)
{
    float f = 5;
    uint8_t b = 7;
    int32_t i = 3;

    (void)state;
    reduce(MR_R_SUM, MR_FLOAT32, MR_FLOAT32, "", 0, &f);
    assert_true(f == 0 && !signbit(f));
    reduce(MR_R_PROD, MR_FLOAT32, MR_FLOAT32, "", 0, &f);
    assert_true(f == 1);
    reduce(MR_R_MEAN, MR_FLOAT32, MR_FLOAT32, "", 0, &f);
    assert_true(isnan(f));
    reduce(MR_R_MAX, MR_FLOAT32, MR_FLOAT32, "", 0, &f);
    assert_true(f == -INFINITY);
    reduce(MR_R_ANY, MR_INT32, MR_BOOL, "", 0, &b);
    assert_int_equal(b, 0);
    reduce(MR_R_ALL, MR_INT32, MR_BOOL, "", 0, &b);
    assert_int_equal(b, 1);
    reduce(MR_R_MIN, MR_INT32, MR_INT32, "", 0, &i);
    assert_int_equal(i, INT32_MAX);
}

static void
extremes__nan_wins(void **state)
{
    double x[5000], r;

    (void)state;
    for (int i = 0; i < 5000; i++)
        x[i] = -i;
    reduce(MR_R_MIN, MR_FLOAT64, MR_FLOAT64, x, 5000, &r);
    assert_true(r == -4999);
    for (int at = 0; at < 5000; at += 617) {
        x[at] = NAN;
        reduce(MR_R_MAX, MR_FLOAT64, MR_FLOAT64, x, 5000, &r);
        assert_true(isnan(r));
        reduce(MR_R_MIN, MR_FLOAT64, MR_FLOAT64, x, 5000, &r);
        assert_true(isnan(r));
        x[at] = -at;
    }
}

static void
halves__accumulate_in_float32(void **state)
{
    uint16_t x[4096], r;
    float f;

    (void)state;
    for (int i = 0; i < 4096; i++)
        x[i] = 0x3C00; /* 1.0: a float16 sum would stop at 2048 */
    reduce(MR_R_SUM, MR_FLOAT16, MR_FLOAT16, x, 4096, &r);
    assert_int_equal(r, 0x6C00); /* 4096 */
    reduce(MR_R_MEAN, MR_FLOAT16, MR_FLOAT16, x, 4096, &r);
    assert_int_equal(r, 0x3C00);
    for (int i = 0; i < 4096; i++)
        x[i] = 0x3F80;
    reduce(MR_R_SUM, MR_BFLOAT16, MR_FLOAT32, x, 4095, &f);
    assert_true(f == 4095.0F);
}

/* More than 16 blocks each, some rows to a tile: the bits of a row alone. */
static void
halves__long_rows_together_have_the_bits_of_each(void **state)
{
    enum { ROWS = 65, POINTS = 66000 };
    uint16_t *x = malloc(sizeof *x * ROWS * POINTS);
    float all[ROWS], one;
    prog p = {0};
    int a = prog_in(&p, MR_BFLOAT16);

    (void)state;
    for (int64_t i = 0; i < ROWS * POINTS; i++) {
        float f = value_of(i / POINTS, i % POINTS);
        uint32_t bits;

        memcpy(&bits, &f, sizeof bits);
        x[i] = (uint16_t)(bits >> 16);
    }
    prog_out(&p, prog_op(&p, MR_R_SUM, MR_FLOAT32, a, 0, 0));
    p.l.n_kept = p.l.n_red = 1;
    p.l.dim[0] = ROWS;
    p.l.dim[1] = POINTS;
    p.l.in[0] =
        (mr_block_io){.data = x, .stride = {POINTS * sizeof *x, sizeof *x}};
    p.l.out[0] = (mr_block_io){.data = all, .stride = {sizeof *all}};
    prog_run(&p, ALL_AT_ONCE);
    for (int r = 0; r < ROWS; r++) {
        reduce(MR_R_SUM, MR_BFLOAT16, MR_FLOAT32, x + (int64_t)r * POINTS,
               POINTS, &one);
        assert_memory_equal(&all[r], &one, sizeof one);
    }
    free(x);
}

static void
complex__sums_products_and_order(void **state)
{
    mr_c64 x[3] = {{1, 2}, {3, -4}, {1, 9}}, r;
    mr_c128 y[2] = {{0, 1}, {0, 1}}, q;
    uint32_t at;

    (void)state;
    reduce(MR_R_SUM, MR_COMPLEX64, MR_COMPLEX64, x, 3, &r);
    assert_true(r.re == 5 && r.im == 7);
    reduce(MR_R_PROD, MR_COMPLEX128, MR_COMPLEX128, y, 2, &q);
    assert_true(q.re == -1 && q.im == 0);
    reduce(MR_R_MIN, MR_COMPLEX64, MR_COMPLEX64, x, 3, &r);
    assert_true(r.re == 1 && r.im == 2);
    reduce(MR_R_ARGMAX, MR_COMPLEX64, MR_UINT32, x, 3, &at);
    assert_int_equal(at, 1);
    reduce(MR_R_MEAN, MR_COMPLEX128, MR_COMPLEX128, y, 2, &q);
    assert_true(q.re == 0 && q.im == 1);
}

/* ---- argmax, argmin
 * ----------------------------------------------------------------------------
 */

static uint32_t
model_arg(mr_k k, const float *x, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++) {
        bool better = k == MR_R_ARGMAX ? x[i] > x[best] : x[i] < x[best];

        if (!isnan(x[best]) && (better || isnan(x[i])))
            best = i;
    }
    return (uint32_t)best;
}

static void
arg_check(mr_k k, layout how, int64_t rows, int64_t n, bool nan)
{
    float *memory = calloc((size_t)(rows * (n + 8) * 4), sizeof(float));
    uint32_t *out = calloc((size_t)rows, sizeof *out);
    float *x = calloc((size_t)n, sizeof *x);
    prog p = {0};
    int a = prog_in(&p, MR_FLOAT32);

    prog_out(&p, prog_op(&p, k, MR_UINT32, a, 0, 0));
    lay(&p.l, how, memory, rows, n);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i++) {
            float v = floorf(value_of(r, i) * 20); /* with ties */

            *point_at(&p.l, r, i) =
                nan && i % 97 == 55 && r % 2 ? (float)NAN : v;
        }
    }
    prog_contiguous(&p, &p.l.out[0], out, sizeof *out, true);
    prog_run(&p, UNIT_BY_UNIT);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i++)
            x[i] = *point_at(&p.l, r, i);
        assert_int_equal(out[r], model_arg(k, x, n));
    }
    free(memory);
    free(out);
    free(x);
}

static void
arg__first_of_equals_and_first_nan(void **state)
{
    static const int64_t shape[][2] = {{1, 1},     {30, 5},    {9, 64},
                                       {5, 100},   {20, 5000}, {1, 400000},
                                       {16, 30000}};

    (void)state;
    for (size_t s = 0; s < sizeof shape / sizeof shape[0]; s++) {
        for (int how = 0; how < N_LAYOUTS; how++) {
            arg_check(MR_R_ARGMAX, (layout)how, shape[s][0], shape[s][1],
                      false);
            arg_check(MR_R_ARGMIN, (layout)how, shape[s][0], shape[s][1], true);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order__is_the_same_for_every_layout_and_split),
        cmocka_unit_test(split__gives_many_units),
        cmocka_unit_test(split__shares_out_the_lanes_of_columns),
        cmocka_unit_test(split__takes_the_passes_over_a_long_row_in_turn),
        cmocka_unit_test(integers__wrap_in_the_width_of_the_result),
        cmocka_unit_test(any_and_all__take_everything_but_zero_as_true),
        cmocka_unit_test(empty__gives_the_identity),
        cmocka_unit_test(extremes__nan_wins),
        cmocka_unit_test(halves__accumulate_in_float32),
        cmocka_unit_test(halves__long_rows_together_have_the_bits_of_each),
        cmocka_unit_test(complex__sums_products_and_order),
        cmocka_unit_test(arg__first_of_equals_and_first_nan),
    };

    return cmocka_run_group_tests_name("kernels/reductions", tests, NULL, NULL);
}
