/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul.c -- the matrix product on the CPU against sums of products.
 */
#include "cpu/kernel_run.h"

#include "cpu/blas.h"
#include "kernels/gemm.h"

/* Products of small integers: sums are exact in every dtype but the halves,
 * which round once. */
static void
product_check(const arr *a, const arr *b, const arr *out)
{
    int32_t n = out->view.ndim, na = a->view.ndim, nb = b->view.ndim;
    int64_t rows = out->dim[n - 2], cols = out->dim[n - 1];
    int64_t depth = a->dim[na - 1];

    for (int64_t i = 0; i < out->view.size; i++) {
        int64_t row = i / cols % rows, col = i % cols, left = i / cols / rows;
        int64_t item[2] = {0, 0}, step[2] = {1, 1};
        double re = 0.0, im = 0.0;

        for (int32_t k = n - 3; k >= 0; k--) {
            int64_t at = left % out->dim[k];
            const arr *side[2] = {a, b};

            left /= out->dim[k];
            for (int s = 0; s < 2; s++) {
                int32_t own = k - (n - side[s]->view.ndim);

                if (own < 0)
                    continue;
                item[s] += (side[s]->dim[own] == 1 ? 0 : at) * step[s];
                step[s] *= side[s]->dim[own];
            }
        }
        for (int64_t p = 0; p < depth; p++) {
            mr_c128 x = arr_complex(a, (item[0] * rows + row) * depth + p);
            mr_c128 y =
                arr_complex(b, (item[1] * b->dim[nb - 2] + p) * cols + col);

            re += x.re * y.re - x.im * y.im;
            im += x.re * y.im + x.im * y.re;
        }
        assert_close(arr_complex(out, i).re, rounded(out->view.dtype, re), 0.0);
        if (mr__dtype_is_complex(out->view.dtype))
            assert_close(arr_complex(out, i).im, im, 0.0);
    }
}

static void
case_2d(mr_dtype t, layout la, layout lb, int64_t m, int64_t n, int64_t k)
{
    arr *a = ARR(t, la, m, k), *b = ARR(t, lb, k, n),
        *out = ARR(t, PLAIN, m, n);

    arr_count(a, 1);
    arr_count(b, 2);
    assert_int_equal(RUN(MR_OP_MATMUL, NULL, out, a, b), MR_OK);
    product_check(a, b, out);
    arr_free(a);
    arr_free(b);
    arr_free(out);
}

static const mr_dtype inexact[] = {MR_FLOAT16, MR_BFLOAT16,  MR_FLOAT32,
                                   MR_FLOAT64, MR_COMPLEX64, MR_COMPLEX128};

static void
matmul__is_right_around_the_tiles(void **state)
{
    static const int64_t size[] = {1, 2, 4, 5, 11, 12, 13, 31, 33, 36, 65};
    enum { N = sizeof size / sizeof size[0] };

    (void)state;
    for (size_t d = 0; d < sizeof inexact / sizeof inexact[0]; d++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                case_2d(inexact[d], PLAIN, PLAIN, size[i], size[j],
                        size[(i + j) % N]);
}

static void
matmul__takes_every_layout(void **state)
{
    static const int64_t shape[][3] = {
        {37, 35, 29}, {3, 40, 33}, {40, 3, 33}, {1, 1, 70}, {1, 9, 1}};

    (void)state;
    for (size_t d = 0; d < sizeof inexact / sizeof inexact[0]; d++)
        for (int s = 0; s < 5; s++)
            for (int la = 0; la < N_LAYOUTS; la++)
                for (int lb = 0; lb < N_LAYOUTS; lb++)
                    case_2d(inexact[d], (layout)la, (layout)lb, shape[s][0],
                            shape[s][1], shape[s][2]);
}

/* Beyond one chunk of depth, one band of columns, one block of panels. */
static void
matmul__is_right_for_long_sums(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT16, MR_BFLOAT16, MR_FLOAT32,
                                     MR_FLOAT64};

    (void)state;
    for (int d = 0; d < 4; d++) {
        case_2d(types[d], PLAIN, PLAIN, 13, 33, 1025);
        case_2d(types[d], TURNED, TURNED, 101, 140, 513);
        case_2d(types[d], PLAIN, PLAIN, 2, 1030, 700);
        case_2d(types[d], PLAIN, TURNED, 4, 9, 40000);
        case_2d(types[d], PLAIN, PLAIN, 200, 2, 600);
        case_2d(types[d], BACKWARD, GAPPED, 24, 40, 600);
        case_2d(types[d], GAPPED, BACKWARD, 110, 131, 270);
        case_2d(types[d], TURNED, PLAIN, 109, 150, 541);
    }
    case_2d(MR_FLOAT32, PLAIN, PLAIN, 200, 200, 200);
    case_2d(MR_FLOAT64, PLAIN, TURNED, 300, 270, 20);
}

/* Threads that pack b themselves, and blocks that go in parts. */
static void
matmul__is_right_when_threads_pack_their_own(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT64, MR_FLOAT16,
                                     MR_BFLOAT16};

    (void)state;
    for (int d = 0; d < 4; d++) {
        case_2d(types[d], PLAIN, PLAIN, 133, 136, 600);
        case_2d(types[d], TURNED, TURNED, 146, 256, 64);
        case_2d(types[d], PLAIN, BACKWARD, 110, 20, 1100);
    }
}

/* Numbers that pairs take for 0: found by whichever thread packs them. */
/* Blocks of b for each thread, where the second-level cache is large: several
 * spans of depth, columns that fill no tile, rows that fill no panel. */
static void
matmul__is_right_when_blocks_of_b_stay_near(void **state)
{
    (void)state;
    case_2d(MR_FLOAT64, PLAIN, PLAIN, 200, 257, 1100);
    case_2d(MR_FLOAT64, GAPPED, TURNED, 192, 256, 345);
    case_2d(MR_FLOAT32, TURNED, PLAIN, 193, 257, 660);
}

/* 16 MB and more, which threads read side by side. */
static void
matmul__of_few_rows_and_a_large_matrix_is_right(void **state)
{
    static const layout layouts[] = {PLAIN, TURNED};

    (void)state;
    for (int l = 0; l < 2; l++) {
        case_2d(MR_FLOAT32, PLAIN, layouts[l], 1, 1100, 4100);
        case_2d(MR_FLOAT64, PLAIN, layouts[l], 2, 1090, 2070);
    }
    case_2d(MR_BFLOAT16, PLAIN, PLAIN, 1, 2100, 4100);
}

static void
matmul__of_small_bfloat16_is_exact(void **state)
{
    arr *a = ARR(MR_BFLOAT16, PLAIN, 300, 64);
    arr *b = ARR(MR_BFLOAT16, PLAIN, 64, 256);
    arr *out = ARR(MR_BFLOAT16, PLAIN, 300, 256);

    (void)state;
    for (int side = 0; side < 2; side++) {
        arr *x = side == 0 ? a : b;

        arr_count(a, 1);
        arr_count(b, 2);
        for (int64_t i = 0; i < x->view.size; i++)
            arr_set(x, i, ldexp(arr_get(x, i), -129));
        assert_int_equal(RUN(MR_OP_MATMUL, NULL, out, a, b), MR_OK);
        product_check(a, b, out);
    }
    arr_free(a);
    arr_free(b);
    arr_free(out);
}

static void
matmul__of_integers_wraps(void **state)
{
    static const mr_dtype types[] = {MR_UINT8, MR_INT16, MR_INT32, MR_INT64};
    arr *a = ARR(MR_UINT8, PLAIN, 1, 2), *b = ARR(MR_UINT8, PLAIN, 2, 1);
    arr *out = ARR(MR_UINT8, PLAIN, 1, 1);

    (void)state;
    for (int d = 1; d < 4; d++)
        for (int la = 0; la < N_LAYOUTS; la++)
            case_2d(types[d], (layout)la, TURNED, 9, 17, 33);
    for (int i = 0; i < 2; i++) {
        arr_set(a, i, 200.0);
        arr_set(b, i, 3.0);
    }
    assert_int_equal(RUN(MR_OP_MATMUL, NULL, out, a, b), MR_OK);
    assert_int_equal(arr_get(out, 0), 1200 % 256);
    arr_free(a);
    arr_free(b);
    arr_free(out);
}

static void
matmul__broadcasts_batches(void **state)
{
    (void)state;
    for (size_t d = 0; d < sizeof inexact / sizeof inexact[0]; d++)
        for (int la = 0; la < REPEATED; la++)
            for (int64_t m = 1; m <= 9; m += 4) {
                mr_dtype t = inexact[d];
                layout how = (layout)la;
                arr *a = ARR(t, how, 2, 1, m, 7), *b = ARR(t, how, 3, 7, 6);
                arr *row = ARR(t, how, 5, 4, m, 7), *w = ARR(t, how, 7, 10);
                arr *out = ARR(t, PLAIN, 2, 3, m, 6);
                arr *joined = ARR(t, PLAIN, 5, 4, m, 10);

                arr_count(a, 3);
                arr_count(b, 4);
                arr_count(row, 5);
                arr_count(w, 6);
                assert_int_equal(RUN(MR_OP_MATMUL, NULL, out, a, b), MR_OK);
                product_check(a, b, out);
                assert_int_equal(RUN(MR_OP_MATMUL, NULL, joined, row, w),
                                 MR_OK);
                product_check(row, w, joined);
                arr_free(a);
                arr_free(b);
                arr_free(row);
                arr_free(w);
                arr_free(out);
                arr_free(joined);
            }
}

static void
matmul__of_no_depth_is_zero(void **state)
{
    (void)state;
    for (size_t d = 0; d < sizeof inexact / sizeof inexact[0]; d++) {
        case_2d(inexact[d], PLAIN, PLAIN, 3, 4, 0);
        case_2d(inexact[d], PLAIN, PLAIN, 0, 4, 5);
        case_2d(inexact[d], PLAIN, PLAIN, 3, 0, 5);
    }
}

static void
matmul__lets_nan_through(void **state)
{
    static const int64_t shape[][3] = {
        {40, 40, 40}, {2, 40, 40}, {300, 300, 64}};

    (void)state;
    for (size_t d = 0; d < sizeof inexact / sizeof inexact[0]; d++)
        for (int s = 0; s < 3; s++) {
            int64_t m = shape[s][0], n = shape[s][1], k = shape[s][2];
            arr *a = ARR(inexact[d], PLAIN, m, k);
            arr *b = ARR(inexact[d], PLAIN, k, n);
            arr *out = ARR(inexact[d], PLAIN, m, n);

            arr_count(a, 1);
            for (int64_t i = 0; i < k * n; i++)
                arr_set(b, i, 0.0);
            arr_set(a, 1 * k + 3, (double)NAN);
            assert_int_equal(RUN(MR_OP_MATMUL, NULL, out, a, b), MR_OK);
            for (int64_t i = 0; i < m * n; i++)
                assert_true(isnan(arr_get(out, i)) == (i / n == 1));
            arr_free(a);
            arr_free(b);
            arr_free(out);
        }
}

/* Halves sum in float32: 4096 ones are 4096, where float16 would stop at
 * 2048 and bfloat16 at 256. */
static void
matmul__of_halves_accumulates_in_float32(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT16, MR_BFLOAT16};

    (void)state;
    for (int d = 0; d < 2; d++)
        for (int64_t m = 1; m <= 6; m += 5) {
            arr *a = ARR(types[d], PLAIN, m, 4096);
            arr *b = ARR(types[d], PLAIN, 4096, 5);
            arr *out = ARR(types[d], PLAIN, m, 5);

            for (int64_t i = 0; i < a->view.size; i++)
                arr_set(a, i, 1.0);
            for (int64_t i = 0; i < b->view.size; i++)
                arr_set(b, i, 1.0);
            assert_int_equal(RUN(MR_OP_MATMUL, NULL, out, a, b), MR_OK);
            for (int64_t i = 0; i < out->view.size; i++)
                assert_true(arr_get(out, i) == 4096.0);
            arr_free(a);
            arr_free(b);
            arr_free(out);
        }
}

/* The variables of the environment that slow it down must not reach it: the
 * first test of this file sets them before it is opened. */
static void
blas__ignores_tuning_of_the_environment(void **state)
{
    (void)state;
    setenv("OPENBLAS_CORETYPE", "Prescott", 1);
    setenv("OPENBLAS_L2_SIZE", "4096", 1);
    if (!mr__blas_ready())
        skip();
    assert_string_not_equal(mr__blas_core(), "Katmai");
    assert_string_not_equal(mr__blas_core(), "Prescott");
    assert_string_equal(getenv("OPENBLAS_CORETYPE"), "Prescott");
    assert_string_equal(getenv("OPENBLAS_L2_SIZE"), "4096");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blas__ignores_tuning_of_the_environment),
        cmocka_unit_test(matmul__is_right_around_the_tiles),
        cmocka_unit_test(matmul__takes_every_layout),
        cmocka_unit_test(matmul__is_right_for_long_sums),
        cmocka_unit_test(matmul__is_right_when_threads_pack_their_own),
        cmocka_unit_test(matmul__is_right_when_blocks_of_b_stay_near),
        cmocka_unit_test(matmul__of_few_rows_and_a_large_matrix_is_right),
        cmocka_unit_test(matmul__of_small_bfloat16_is_exact),
        cmocka_unit_test(matmul__of_integers_wraps),
        cmocka_unit_test(matmul__broadcasts_batches),
        cmocka_unit_test(matmul__of_no_depth_is_zero),
        cmocka_unit_test(matmul__lets_nan_through),
        cmocka_unit_test(matmul__of_halves_accumulates_in_float32),
    };

    return cmocka_run_group_tests_name("cpu/matmul", tests, NULL, NULL);
}
