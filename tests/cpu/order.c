/* SPDX-License-Identifier: Apache-2.0
 *
 * order.c -- sort, argsort, searchsorted, scans.
 */
#include "cpu/kernel_run.h"

#include "base/alloc.h"

/* a before b in the order of sort: NaN last, complex by parts. */
static bool
before_part(double a, double b)
{
    return a < b || (!isnan(a) && isnan(b));
}

static bool
before(mr_c128 a, mr_c128 b)
{
    if (before_part(a.re, b.re) || before_part(b.re, a.re))
        return before_part(a.re, b.re);
    return before_part(a.im, b.im);
}

/* Few different values, so that there are many equals; NaN where there is. */
static void
shuffled(arr *x, uint64_t seed, uint64_t range)
{
    mr_dtype t = x->view.dtype;

    for (int64_t i = 0; i < x->view.size; i++) {
        double v;

        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        v = (double)(seed >> 33) / 0x1p31 * (double)range;
        v = floor(v);
        if (mr__dtype_kind(t) != MR_KIND_UINT && t != MR_BOOL)
            v -= (double)(range / 2);
        if (mr__dtype_is_inexact(t) && seed >> 60 == 5)
            v = (double)NAN;
        if (mr__dtype_is_inexact(t) && seed >> 60 == 6)
            v = -0.0;
        if (mr__dtype_is_inexact(t) && seed >> 60 == 7)
            v = (double)INFINITY;
        arr_set_complex(x, i, t == MR_BOOL ? (double)((int)v % 2) : v,
                        (double)(seed >> 40 & 3));
    }
}

static void
sort_case(mr_dtype t, layout l, int32_t axis, int64_t n, int64_t others,
          uint64_t range)
{
    int64_t dim[2] = {axis == 0 ? n : others, axis == 1 ? n : others};
    mr_axis_params p = {axis};
    arr *x = arr_new(t, l, 2, dim), *sorted = arr_new(t, PLAIN, 2, dim);
    arr *places = arr_new(MR_UINT32, PLAIN, 2, dim);
    int64_t step = axis == 0 ? others : 1, line = axis == 0 ? 1 : n;

    shuffled(x, (uint64_t)n, range);
    assert_int_equal(RUN(MR_OP_SORT, &p, sorted, x), MR_OK);
    assert_int_equal(RUN(MR_OP_ARGSORT, &p, places, x), MR_OK);
    for (int64_t o = 0; o < others; o++) {
        unsigned char *seen = calloc((size_t)n + 1, 1);

        assert_non_null(seen);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = o * line + i * step;
            int64_t place = (int64_t)arr_get(places, at);
            mr_c128 v = arr_complex(sorted, at);
            mr_c128 w = arr_complex(x, o * line + place * step);

            assert_true(place >= 0 && place < n && !seen[place]);
            seen[place] = 1;
            assert_true(same(v.re, w.re));
            assert_true(same(v.im, w.im));
            if (i > 0) {
                int64_t last = (int64_t)arr_get(places, at - step);
                mr_c128 u = arr_complex(x, o * line + last * step);

                assert_false(before(w, u));
                if (!before(u, w))
                    assert_true(last < place);
            }
        }
        free(seen);
    }
    arr_free(x);
    arr_free(sorted);
    arr_free(places);
}

static void
sort__is_stable_and_puts_nan_last(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 47, 48, 49, 200, 1000};

    (void)state;
    for (int t = 0; t < MR_N_DTYPES; t++)
        for (int l = 0; l < N_LAYOUTS; l++)
            for (int s = 0; s < 8; s++)
                for (int32_t axis = 0; axis < 2; axis++)
                    sort_case((mr_dtype)t, (layout)l, axis, sizes[s], 5,
                              s % 2 ? 9 : 200);
}

/* Long enough to be dealt into buckets. */
static void
sort__is_right_for_long_rows(void **state)
{
    (void)state;
    for (int t = 0; t < MR_N_DTYPES; t++) {
        sort_case((mr_dtype)t, PLAIN, 1, 140001, 1, 100);
        sort_case((mr_dtype)t, PLAIN, 1, 70001, 2, 2000000000);
    }
    sort_case(MR_FLOAT32, BACKWARD, 0, 300000, 1, 1000000);
    sort_case(MR_INT64, PLAIN, 1, 300000, 1, 1ULL << 60);
}

static void
sort__of_nothing_does_nothing(void **state)
{
    mr_axis_params p = {1};
    arr *x = ARR(MR_FLOAT32, PLAIN, 3, 0), *out = ARR(MR_FLOAT32, PLAIN, 3, 0);

    (void)state;
    assert_int_equal(RUN(MR_OP_SORT, &p, out, x), MR_OK);
    arr_free(x);
    arr_free(out);
}

static void
searchsorted__counts_what_is_smaller(void **state)
{
    (void)state;
    for (int t = 0; t < MR_N_DTYPES; t++)
        for (int l = 0; l < REPEATED; l++)
            for (int right = 0; right < 2; right++) {
                mr_searchsorted_params p = {right == 1};
                mr_axis_params axis = {0};
                arr *x = ARR((mr_dtype)t, PLAIN, 300);
                arr *sorted = ARR((mr_dtype)t, PLAIN, 300);
                arr *values = ARR((mr_dtype)t, (layout)l, 40, 5);
                arr *out = ARR(MR_UINT32, PLAIN, 40, 5);

                shuffled(x, 1, 50);
                shuffled(values, 2, 60);
                assert_int_equal(RUN(MR_OP_SORT, &axis, sorted, x), MR_OK);
                assert_int_equal(
                    RUN(MR_OP_SEARCHSORTED, &p, out, sorted, values), MR_OK);
                for (int64_t i = 0; i < 200; i++) {
                    mr_c128 v = arr_complex(values, i);
                    int64_t count = 0;

                    for (int64_t k = 0; k < 300; k++) {
                        mr_c128 e = arr_complex(sorted, k);

                        count += right ? !before(v, e) : before(e, v);
                    }
                    assert_true(arr_get(out, i) == (double)count);
                }
                arr_free(x);
                arr_free(sorted);
                arr_free(values);
                arr_free(out);
            }
}

/* ---- scans
 * -------------------------------------------------------------------- */

static mr_c128
scan_step(int mode, mr_dtype t, mr_c128 a, mr_c128 x)
{
    mr_c128 r = {0.0, 0.0};
    bool x_first = before(x, a);

    switch (mode) {
    case MR_SCAN_SUM:
        r = (mr_c128){a.re + x.re, a.im + x.im};
        if (t == MR_BOOL)
            r.re = r.re != 0;
        break;
    case MR_SCAN_PROD:
        r = (mr_c128){a.re * x.re - a.im * x.im, a.re * x.im + a.im * x.re};
        break;
    case MR_SCAN_MAX:
        r = isnan(a.re) || (!isnan(x.re) && x_first) ? a : x;
        break;
    case MR_SCAN_MIN:
        r = isnan(a.re) || (!isnan(x.re) && !x_first) ? a : x;
        break;
    default:
        r.re = log(exp(a.re) + exp(x.re));
    }
    return r;
}

static double
neutral(int mode, mr_dtype t)
{
    static const double low[] = {0, 0, 0, 0, 0, -128, -32768, -0x1p31, -0x1p63};
    static const double high[] = {1,   255,   65535,      0x1p32 - 1, 0x1p64,
                                  127, 32767, 0x1p31 - 1, 0x1p63};
    bool inexact = mr__dtype_is_inexact(t);

    switch (mode) {
    case MR_SCAN_SUM:
        return 0.0;
    case MR_SCAN_PROD:
        return 1.0;
    case MR_SCAN_MAX:
        return inexact ? -(double)INFINITY : low[t];
    case MR_SCAN_MIN:
        return inexact ? (double)INFINITY : high[t];
    default:
        return -(double)INFINITY;
    }
}

/* Values whose sums and products stay exact. */
static void
scan_case(mr_dtype t, int mode, int32_t axis, bool reverse, bool inclusive,
          int64_t n)
{
    int64_t dim[3] = {3, 2, 4};
    mr_scan_params p = {axis, mode, reverse, inclusive};
    bool complex = mr__dtype_is_complex(t);
    double tolerance = mode == MR_SCAN_LOGADDEXP ? 30 * rounding(t) : 0.0;
    int64_t step = 1;
    arr *x, *out;

    if (n > 1000) /* long lines: few of them */
        dim[0] = dim[2] = 1;
    dim[axis] = n;
    x = arr_new(t, PLAIN, 3, dim);
    out = arr_new(t, PLAIN, 3, dim);
    for (int64_t i = 0; i < x->view.size; i++)
        arr_set(x, i, (double)((i * 7 + i / 5) % 3 == 0));
    if (mode == MR_SCAN_PROD)
        for (int64_t i = 0; i < x->view.size; i++)
            arr_set(x, i, 1.0);
    assert_int_equal(RUN(MR_OP_SCAN, &p, out, x), MR_OK);
    for (int32_t k = 2; k > axis; k--)
        step *= dim[k];
    for (int64_t i = 0; i < x->view.size; i++) {
        mr_c128 a = {neutral(mode, t), 0.0}, got = arr_complex(out, i);
        bool any = false;

        if (i / step % n != 0)
            continue;
        for (int64_t k = 0; k < n; k++) {
            int64_t at = i + (reverse ? n - 1 - k : k) * step;
            mr_c128 v = arr_complex(x, at);

            if (!inclusive)
                assert_close(arr_get(out, at), rounded(t, a.re), tolerance);
            a = any ? scan_step(mode, t, a, v) : v;
            any = true;
            if (inclusive)
                assert_close(arr_get(out, at), rounded(t, a.re), tolerance);
        }
        if (complex && inclusive)
            assert_true(same(got.im, 0.0));
    }
    arr_free(x);
    arr_free(out);
}

static void
scan__runs_along_the_axis(void **state)
{
    (void)state;
    for (int t = 0; t < MR_N_DTYPES; t++)
        for (int mode = 0; mode <= MR_SCAN_LOGADDEXP; mode++)
            for (int32_t axis = 0; axis < 3; axis++)
                for (int flags = 0; flags < 4; flags++) {
                    if (mode == MR_SCAN_LOGADDEXP &&
                        !mr__dtype_is_inexact((mr_dtype)t))
                        continue;
                    scan_case((mr_dtype)t, mode, axis, flags & 1, flags >> 1,
                              1);
                    scan_case((mr_dtype)t, mode, axis, flags & 1, flags >> 1,
                              5);
                }
}

/* Several blocks; a half's sum is carried in float32, or it would stop. */
static void
scan__is_right_for_long_lines(void **state)
{
    static const mr_dtype types[] = {MR_INT32, MR_FLOAT32, MR_FLOAT64,
                                     MR_FLOAT16, MR_BFLOAT16};

    (void)state;
    for (int t = 0; t < 5; t++)
        for (int mode = 0; mode < MR_SCAN_LOGADDEXP; mode++)
            for (int flags = 0; flags < 4; flags++) {
                if (mode != MR_SCAN_SUM && (t > 1 || flags % 3 != 0))
                    continue; /* the same code: once is enough */
                scan_case(types[t], mode, flags == 1 || flags == 2 ? 0 : 2,
                          flags & 1, flags >> 1, 140000);
            }
}

static void
scan__lets_nan_go_on(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT16, MR_BFLOAT16, MR_FLOAT32,
                                     MR_FLOAT64};

    (void)state;
    for (int t = 0; t < 4; t++)
        for (int mode = 0; mode <= MR_SCAN_LOGADDEXP; mode++)
            for (int32_t axis = 0; axis < 2; axis++) {
                mr_scan_params p = {axis, mode, false, true};
                arr *x = ARR(types[t], PLAIN, 6, 6);
                arr *out = ARR(types[t], PLAIN, 6, 6);

                arr_count(x, 1);
                arr_set(x, 2 * 6 + 2, (double)NAN);
                assert_int_equal(RUN(MR_OP_SCAN, &p, out, x), MR_OK);
                for (int64_t i = 0; i < 36; i++) {
                    bool behind = axis == 0 ? i % 6 == 2 && i / 6 >= 2
                                            : i / 6 == 2 && i % 6 >= 2;

                    assert_true(isnan(arr_get(out, i)) == behind);
                }
                arr_free(x);
                arr_free(out);
            }
}

static void
scan__of_integers_wraps(void **state)
{
    mr_scan_params p = {0, MR_SCAN_SUM, false, true};
    arr *x = ARR(MR_INT8, PLAIN, 3), *out = ARR(MR_INT8, PLAIN, 3);

    (void)state;
    for (int64_t i = 0; i < 3; i++)
        arr_set(x, i, 100.0);
    assert_int_equal(RUN(MR_OP_SCAN, &p, out, x), MR_OK);
    assert_true(arr_get(out, 1) == -56.0 && arr_get(out, 2) == 44.0);
    arr_free(x);
    arr_free(out);
}

/* What a scan needs stands in its workspace; a sort does with less. */
static void
long_rows__do_without_memory_of_their_own(void **state)
{
    mr_scan_params p = {0, MR_SCAN_SUM, false, true};
    mr_axis_params axis = {0};
    arr *x = ARR(MR_INT32, PLAIN, 200000), *out = ARR(MR_INT32, PLAIN, 200000);
    mr_kernel_args a = {
        .params = &p, .n_in = 1, .n_out = 1, .in = &x->view, .out = &out->view};

    (void)state;
    shuffled(x, 7, 1 << 30);
    a.workspace = malloc(kernel_row(MR_OP_SCAN)->workspace(&a));
    assert_non_null(a.workspace);
    mr__alloc_fail_after(0);
    assert_int_equal(kernel_row(MR_OP_SCAN)->run(&a), MR_OK);
    mr__alloc_fail_after(-1);
    free(a.workspace);
    a.params = &axis;
    a.workspace = malloc(kernel_row(MR_OP_SORT)->workspace(&a));
    assert_non_null(a.workspace);
    mr__alloc_fail_after(0);
    assert_int_equal(kernel_row(MR_OP_SORT)->run(&a), MR_OK);
    mr__alloc_fail_after(-1);
    assert_false(mr__error_pending());
    for (int64_t i = 1; i < 200000; i++)
        assert_true(arr_get(out, i - 1) <= arr_get(out, i));
    free(a.workspace);
    arr_free(x);
    arr_free(out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sort__is_stable_and_puts_nan_last),
        cmocka_unit_test(sort__is_right_for_long_rows),
        cmocka_unit_test(sort__of_nothing_does_nothing),
        cmocka_unit_test(searchsorted__counts_what_is_smaller),
        cmocka_unit_test(scan__runs_along_the_axis),
        cmocka_unit_test(scan__is_right_for_long_lines),
        cmocka_unit_test(scan__lets_nan_go_on),
        cmocka_unit_test(scan__of_integers_wraps),
        cmocka_unit_test(long_rows__do_without_memory_of_their_own),
    };

    return cmocka_run_group_tests_name("cpu/order", tests, NULL, NULL);
}
