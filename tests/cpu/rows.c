/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c -- softmax and the norms on the CPU, against double.
 */
#include "cpu/kernel_run.h"

static const mr_dtype real[] = {MR_FLOAT16, MR_BFLOAT16, MR_FLOAT32,
                                MR_FLOAT64};

static const mr_axis_params first = {0}, second = {1}, third = {2};

/* Norms and softmax of float32 are some ULP from double's. */
static double
tolerance_of(mr_dtype t)
{
    return t == MR_FLOAT64 ? 1e-13 : t == MR_FLOAT32 ? 3e-6 : rounding(t);
}

static void
softmax__sums_to_one_along_the_last_axis(void **state)
{
    static const int64_t sizes[] = {1, 2, 63, 64, 65, 300, 9000};

    (void)state;
    for (int t = 0; t < 4; t++)
        for (int l = 0; l < N_LAYOUTS; l++)
            for (int s = 0; s < 7; s++) {
                int64_t n = sizes[s];
                arr *x = ARR(real[t], (layout)l, 2, 3, n);
                arr *out = ARR(real[t], PLAIN, 2, 3, n);

                arr_count(x, 1);
                assert_int_equal(RUN(MR_OP_SOFTMAX, &third, out, x), MR_OK);
                for (int64_t r = 0; r < 6; r++) {
                    double sum = 0.0;

                    for (int64_t i = 0; i < n; i++)
                        sum += exp(arr_get(x, r * n + i));
                    for (int64_t i = 0; i < n; i++)
                        assert_close(arr_get(out, r * n + i),
                                     exp(arr_get(x, r * n + i)) / sum,
                                     tolerance_of(real[t]));
                }
                arr_free(x);
                arr_free(out);
            }
}

/* Columns of many lengths, side by side and one of them: against rows. */
static void
softmax__along_the_first_axis_is_that_of_rows(void **state)
{
    static const int64_t sizes[][2] = {{1, 5},    {2, 40},    {33, 9},
                                       {65, 700}, {4100, 70}, {300, 1},
                                       {5000, 3}, {130, 64},  {9000, 2}};

    (void)state;
    for (int t = 0; t < 4; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            int64_t n = sizes[s][0], w = sizes[s][1];
            arr *x = ARR(real[t], PLAIN, n, w),
                *out = ARR(real[t], PLAIN, n, w);
            arr *y = ARR(real[t], PLAIN, w, n),
                *rows = ARR(real[t], PLAIN, w, n);

            for (int64_t i = 0; i < n; i++)
                for (int64_t k = 0; k < w; k++) {
                    double v = (double)((i * 37 + k * 11) % 101) / 8.0;

                    arr_set(x, i * w + k, v);
                    arr_set(y, k * n + i, v);
                }
            assert_int_equal(RUN(MR_OP_SOFTMAX, &first, out, x), MR_OK);
            assert_int_equal(RUN(MR_OP_SOFTMAX, &second, rows, y), MR_OK);
            for (int64_t i = 0; i < n; i++)
                for (int64_t k = 0; k < w; k++)
                    assert_true(arr_get(out, i * w + k) ==
                                arr_get(rows, k * n + i));
            arr_free(x);
            arr_free(out);
            arr_free(y);
            arr_free(rows);
        }
}

/* Quotients by an inverse: exponentials down to those that are subnormal, zeros
 * and rows without a sum have the bits of a division, which points that do not
 * lie side by side get. */
static void
softmax__quotients_are_those_of_a_division(void **state)
{
    static const int64_t sizes[] = {48, 64, 100, 777, 4096};
    static const double spread[] = {1, 20, 70, 110};

    (void)state;
    for (int t = 0; t < 4; t++)
        for (int s = 0; s < 5 * 4; s++) {
            int64_t n = sizes[s % 5];
            arr *x = ARR(real[t], PLAIN, n, 70),
                *y = ARR(real[t], PLAIN, 70, n);
            arr *gaps = ARR(real[t], GAPPED, 70, n);
            arr *a = ARR(real[t], PLAIN, n, 70),
                *b = ARR(real[t], PLAIN, 70, n);
            arr *want = ARR(real[t], PLAIN, 70, n);

            for (int64_t i = 0; i < 70 * n; i++) {
                int64_t r = i / n, k = i % n;
                double v = -spread[s / 5] * (double)((i * 7919) % 10007) / 1e4;

                if (r == 3 && k % 3 > 0)
                    v = -(double)INFINITY;
                if ((r == 4 || r == 5) && k == 5)
                    v = r == 4 ? (double)INFINITY : (double)NAN;
                arr_set(y, i, v);
                arr_set(gaps, i, v);
                arr_set(x, k * 70 + r, v);
            }
            assert_int_equal(RUN(MR_OP_SOFTMAX, &first, a, x), MR_OK);
            assert_int_equal(RUN(MR_OP_SOFTMAX, &second, b, y), MR_OK);
            assert_int_equal(RUN(MR_OP_SOFTMAX, &second, want, gaps), MR_OK);
            for (int64_t i = 0; i < 70 * n; i++) {
                double w = arr_get(want, i);

                assert_true(same(arr_get(b, i), w));
                assert_true(same(arr_get(a, i % n * 70 + i / n), w));
            }
            arr_free(x);
            arr_free(y);
            arr_free(gaps);
            arr_free(a);
            arr_free(b);
            arr_free(want);
        }
}

static void
softmax__is_stable_and_nan_where_undefined(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        arr *x = ARR(real[t], PLAIN, 3, 4), *out = ARR(real[t], PLAIN, 3, 4);

        for (int64_t i = 0; i < 4; i++) {
            arr_set(x, i, 30000.0);
            arr_set(x, 4 + i, -(double)INFINITY);
            arr_set(x, 8 + i, i == 2 ? (double)NAN : 0.0);
        }
        assert_int_equal(RUN(MR_OP_SOFTMAX, &second, out, x), MR_OK);
        for (int64_t i = 0; i < 4; i++) {
            assert_true(arr_get(out, i) == 0.25);
            assert_true(isnan(arr_get(out, 4 + i)));
            assert_true(isnan(arr_get(out, 8 + i)));
        }
        arr_free(x);
        arr_free(out);
    }
}

static void
softmax__of_complex_sums_to_one(void **state)
{
    static const mr_dtype types[] = {MR_COMPLEX64, MR_COMPLEX128};

    (void)state;
    for (int t = 0; t < 2; t++) {
        arr *x = ARR(types[t], PLAIN, 2, 70),
            *out = ARR(types[t], PLAIN, 2, 70);

        arr_count(x, 1);
        assert_int_equal(RUN(MR_OP_SOFTMAX, &second, out, x), MR_OK);
        for (int64_t r = 0; r < 2; r++) {
            double re = 0.0, im = 0.0;

            for (int64_t i = 0; i < 70; i++) {
                re += arr_complex(out, r * 70 + i).re;
                im += arr_complex(out, r * 70 + i).im;
            }
            assert_close(re, 1.0, 1e-5);
            assert_close(im, 0.0, 1e-5);
        }
        arr_free(x);
        arr_free(out);
    }
}

static void
norm_case(mr_dtype t, layout l, bool centre, bool has_weight, bool has_bias,
          int64_t n)
{
    mr_norm_params p = {1e-3, has_weight, has_bias};
    arr *x = ARR(t, l, 2, 3, n), *out = ARR(t, PLAIN, 2, 3, n);
    arr *weight = ARR(t, l == REPEATED ? PLAIN : l, n);
    arr *bias = ARR(t, PLAIN, n), *in[3] = {x, weight, bias};
    int n_in = 1;

    arr_count(x, 1);
    arr_count(weight, 2);
    arr_count(bias, 3);
    if (has_weight)
        in[n_in++] = weight;
    if (has_bias)
        in[n_in++] = bias;
    assert_int_equal(kernel_run_n(centre ? MR_OP_LAYER_NORM : MR_OP_RMS_NORM,
                                  &p, out, n_in, in),
                     MR_OK);
    for (int64_t r = 0; r < 6; r++) {
        double mean = 0.0, square = 0.0;

        for (int64_t i = 0; i < n && centre; i++)
            mean += arr_get(x, r * n + i) / (double)n;
        for (int64_t i = 0; i < n; i++) {
            double d = arr_get(x, r * n + i) - mean;

            square += d * d / (double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            double y = (arr_get(x, r * n + i) - mean) / sqrt(square + 1e-3);

            y *= has_weight ? arr_get(weight, i) : 1.0;
            y += has_bias ? arr_get(bias, i) : 0.0;
            assert_close(arr_get(out, r * n + i), y, tolerance_of(t) * 4);
        }
    }
    arr_free(x);
    arr_free(out);
    arr_free(weight);
    arr_free(bias);
}

static void
norms__scale_rows(void **state)
{
    static const int64_t sizes[] = {1, 3, 64, 100, 5000};

    (void)state;
    for (int t = 0; t < 4; t++)
        for (int l = 0; l < N_LAYOUTS; l++)
            for (int s = 0; s < 5; s++)
                for (int parts = 0; parts < 4; parts++) {
                    norm_case(real[t], (layout)l, true, parts & 1, parts >> 1,
                              sizes[s]);
                    norm_case(real[t], (layout)l, false, parts & 1, false,
                              sizes[s]);
                }
}

static void
rows__of_nothing_do_nothing(void **state)
{
    mr_norm_params p = {1e-5, false, false};
    arr *x = ARR(MR_FLOAT32, PLAIN, 0, 4), *out = ARR(MR_FLOAT32, PLAIN, 0, 4);
    arr *y = ARR(MR_FLOAT32, PLAIN, 4, 0), *none = ARR(MR_FLOAT32, PLAIN, 4, 0);

    (void)state;
    assert_int_equal(RUN(MR_OP_SOFTMAX, &second, out, x), MR_OK);
    assert_int_equal(RUN(MR_OP_LAYER_NORM, &p, out, x), MR_OK);
    assert_int_equal(RUN(MR_OP_SOFTMAX, &second, none, y), MR_OK);
    assert_int_equal(RUN(MR_OP_RMS_NORM, &p, none, y), MR_OK);
    arr_free(x);
    arr_free(out);
    arr_free(y);
    arr_free(none);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax__sums_to_one_along_the_last_axis),
        cmocka_unit_test(softmax__along_the_first_axis_is_that_of_rows),
        cmocka_unit_test(softmax__quotients_are_those_of_a_division),
        cmocka_unit_test(softmax__is_stable_and_nan_where_undefined),
        cmocka_unit_test(softmax__of_complex_sums_to_one),
        cmocka_unit_test(norms__scale_rows),
        cmocka_unit_test(rows__of_nothing_do_nothing),
    };

    return cmocka_run_group_tests_name("cpu/rows", tests, NULL, NULL);
}
