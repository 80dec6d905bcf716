/* SPDX-License-Identifier: Apache-2.0
 *
 * compact.c -- the kernels below masks and counts against plain loops: rows of
 * many blocks, strided entries, sizes that cut or leave room.
 */
#include "cpu/kernel_run.h"

static void
fill_mask(arr *mask, int seed)
{
    uint64_t s = (uint64_t)seed * 977 + 1;

    for (int64_t i = 0; i < mask->view.size; i++) {
        s = s * 6364136223846793005ULL + 1442695040888963407ULL;
        arr_set(mask, i, (double)(s >> 62 == 0));
    }
}

/* Rows of n, three of them; the size is a share of what there is. */
static void
places_case(int64_t n, int64_t size, mr_dtype t)
{
    arr *mask = ARR(MR_BOOL, PLAIN, 3, n), *out = ARR(t, PLAIN, 3, size);
    mr_mask_places_params p = {size, -7, t};

    fill_mask(mask, (int)n);
    assert_int_equal(RUN(MR_OP_MASK_PLACES, &p, out, mask), MR_OK);
    for (int64_t row = 0; row < 3; row++) {
        int64_t k = 0;

        for (int64_t i = 0; i < n; i++)
            if (arr_get(mask, row * n + i) != 0 && k < size)
                assert_true(arr_get(out, row * size + k++) == (double)i);
        for (; k < size; k++)
            assert_true(arr_get(out, row * size + k) == -7.0);
    }
    arr_free(mask);
    arr_free(out);
}

static void
places__in_order_cut_and_filled(void **state)
{
    static const int64_t n[] = {0, 1, 63, 64, 65, 1000, 16384, 16385, 70000};

    (void)state;
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
        places_case(n[i], n[i] / 8, MR_INT32);
        places_case(n[i], n[i] + 3, MR_INT64);
        places_case(n[i], 0, MR_INT32);
    }
}

/* Entries of `inner` elements; out row-major, x in any layout. */
static void
compress_case(mr_dtype t, layout l, int64_t n, int64_t inner, int64_t size)
{
    arr *x = ARR(t, l, 2, n, inner), *mask = ARR(MR_BOOL, PLAIN, 2, n);
    arr *out = ARR(t, PLAIN, 2, size, inner),
        *back = ARR(t, PLAIN, 2, n, inner);
    mr_mask_size_params p = {size};
    mr_mask_expand_params q = {false};

    arr_count(x, 3);
    fill_mask(mask, (int)(n + inner));
    assert_int_equal(RUN(MR_OP_MASK_COMPRESS, &p, out, x, mask), MR_OK);
    assert_int_equal(RUN(MR_OP_MASK_EXPAND, &q, back, out, mask), MR_OK);
    for (int64_t row = 0; row < 2; row++) {
        int64_t k = 0;

        for (int64_t i = 0; i < n; i++) {
            bool here = arr_get(mask, row * n + i) != 0 && k < size;

            for (int64_t j = 0; j < inner; j++) {
                double v = arr_get(x, (row * n + i) * inner + j);

                assert_true(arr_get(back, (row * n + i) * inner + j) ==
                            (here ? v : 0.0));
                if (here)
                    assert_true(arr_get(out, (row * size + k) * inner + j) ==
                                v);
            }
            k += here;
        }
        for (int64_t j = k * inner; j < size * inner; j++)
            assert_true(arr_get(out, row * size * inner + j) == 0.0);
    }
    arr_free(x);
    arr_free(mask);
    arr_free(out);
    arr_free(back);
}

static void
compress__packs_and_expand_undoes_it(void **state)
{
    static const mr_dtype types[] = {MR_INT8, MR_BFLOAT16, MR_FLOAT32, MR_INT64,
                                     MR_COMPLEX128};

    (void)state;
    for (int t = 0; t < 5; t++)
        for (int l = 0; l < N_LAYOUTS; l++) {
            compress_case(types[t], (layout)l, 200, 1, 40);
            compress_case(types[t], (layout)l, 50, 3, 60);
        }
    compress_case(MR_FLOAT32, PLAIN, 70000, 1, 30000);
    compress_case(MR_INT16, TURNED, 40000, 2, 5000);
    compress_case(MR_INT16, PLAIN, 10, 0, 5);
    compress_case(MR_INT16, PLAIN, 0, 2, 5);
}

static void
expand__exact_needs_a_value_for_each(void **state)
{
    arr *x = ARR(MR_FLOAT32, PLAIN, 2), *mask = ARR(MR_BOOL, PLAIN, 5);
    arr *out = ARR(MR_FLOAT32, PLAIN, 5);
    mr_mask_expand_params exact = {true};

    (void)state;
    arr_count(x, 1);
    for (int64_t i = 0; i < 5; i++)
        arr_set(mask, i, i == 1 || i == 4);
    assert_int_equal(RUN(MR_OP_MASK_EXPAND, &exact, out, x, mask), MR_OK);
    arr_set(mask, 0, 1);
    assert_int_equal(RUN(MR_OP_MASK_EXPAND, &exact, out, x, mask), MR_E_STATE);
    assert_non_null(strstr(mr_error_take().message, "2 values for a mask with "
                                                    "3 True entries"));
    arr_free(x);
    arr_free(mask);
    arr_free(out);
}

static void
repeat_case(int64_t n, int64_t size)
{
    arr *count = ARR(MR_INT64, PLAIN, 2, n),
        *out = ARR(MR_INT64, PLAIN, 2, size);
    mr_mask_size_params p = {size};

    for (int64_t i = 0; i < 2 * n; i++)
        arr_set(count, i, (double)((i * 7 + i / 5) % 4));
    assert_int_equal(RUN(MR_OP_REPEAT_PLACES, &p, out, count), MR_OK);
    for (int64_t row = 0; row < 2; row++) {
        int64_t k = 0;

        for (int64_t i = 0; i < n; i++)
            for (int m = 0; m < (int)arr_get(count, row * n + i); m++)
                if (k < size)
                    assert_true(arr_get(out, row * size + k++) == (double)i);
        for (; k < size; k++)
            assert_true(arr_get(out, row * size + k) == (double)(n - 1));
    }
    arr_free(count);
    arr_free(out);
}

static void
entries_case(mr_dtype t, layout l, int64_t n, int64_t inner, int64_t size)
{
    arr *x = ARR(t, l, 2, n, inner), *count = ARR(MR_INT64, PLAIN, 2, n);
    arr *out = ARR(t, PLAIN, 2, size, inner),
        *at = ARR(MR_INT64, PLAIN, 2, size);
    mr_mask_size_params p = {size};

    arr_count(x, 5);
    for (int64_t i = 0; i < 2 * n; i++)
        arr_set(count, i, (double)((i * 5 + i / 7) % 3));
    assert_int_equal(RUN(MR_OP_REPEAT_ENTRIES, &p, out, x, count), MR_OK);
    assert_int_equal(RUN(MR_OP_REPEAT_PLACES, &p, at, count), MR_OK);
    for (int64_t i = 0; i < 2 * size * inner; i++) {
        int64_t row = i / (size * inner), k = i / inner % size, j = i % inner;
        int64_t from = (int64_t)arr_get(at, row * size + k);

        assert_true(arr_get(out, i) ==
                    arr_get(x, (row * n + from) * inner + j));
    }
    arr_free(x);
    arr_free(count);
    arr_free(out);
    arr_free(at);
}

static void
repeat__entries_are_those_at_the_places(void **state)
{
    (void)state;
    for (int l = 0; l < N_LAYOUTS; l++) {
        entries_case(MR_FLOAT32, (layout)l, 30, 1, 40);
        entries_case(MR_INT8, (layout)l, 30, 3, 20);
        entries_case(MR_COMPLEX128, (layout)l, 30, 2, 35);
    }
    entries_case(MR_FLOAT32, PLAIN, 40000, 1, 40100);
}

static void
repeat__counts_cut_and_filled(void **state)
{
    (void)state;
    repeat_case(1, 5);
    repeat_case(10, 15);
    repeat_case(100, 1000);
    repeat_case(40000, 60010);
    repeat_case(40000, 50000);
}

static void
repeat__a_negative_or_huge_count_is_no_overflow(void **state)
{
    arr *count = ARR(MR_INT64, PLAIN, 3), *out = ARR(MR_INT64, PLAIN, 4);
    mr_mask_size_params p = {4};
    const int64_t huge = INT64_MAX;

    (void)state;
    for (int64_t i = 0; i < 3; i++)
        memcpy(arr_at(count, i), &huge, sizeof huge);
    assert_int_equal(RUN(MR_OP_REPEAT_PLACES, &p, out, count), MR_OK);
    for (int64_t i = 0; i < 4; i++)
        assert_true(arr_get(out, i) == 0.0);
    arr_set(count, 1, -2);
    assert_int_equal(RUN(MR_OP_REPEAT_PLACES, &p, out, count), MR_E_VALUE);
    assert_non_null(strstr(mr_error_take().message, "-2 repeats"));
    arr_free(count);
    arr_free(out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places__in_order_cut_and_filled),
        cmocka_unit_test(compress__packs_and_expand_undoes_it),
        cmocka_unit_test(expand__exact_needs_a_value_for_each),
        cmocka_unit_test(repeat__counts_cut_and_filled),
        cmocka_unit_test(repeat__entries_are_those_at_the_places),
        cmocka_unit_test(repeat__a_negative_or_huge_count_is_no_overflow),
    };

    return cmocka_run_group_tests_name("cpu/compact", tests, NULL, NULL);
}
