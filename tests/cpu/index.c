/* SPDX-License-Identifier: Apache-2.0
 *
 * index.c -- kernels that read and write through index arrays.
 */
#include "cpu/kernel_run.h"

static const mr_dtype integers[] = {MR_UINT8, MR_UINT16, MR_UINT32, MR_UINT64,
                                    MR_INT8,  MR_INT16,  MR_INT32,  MR_INT64};
static const int n_integers = 8;

static bool
is_signed(mr_dtype t)
{
    return mr__dtype_kind(t) == MR_KIND_INT;
}

/* Entries in [-n, n), or [0, n) for unsigned dtypes. */
static void
index_fill(arr *x, int64_t n, int seed)
{
    for (int64_t i = 0; i < x->view.size; i++) {
        int64_t v = (i * 5 + seed * 3 + i / 7) % n;

        if (is_signed(x->view.dtype) && i % 2)
            v -= n;
        arr_set(x, i, (double)v);
    }
}

static int64_t
index_at(const arr *x, int64_t i, int64_t n)
{
    int64_t v = (int64_t)arr_get(x, i);

    return v < 0 ? v + n : v;
}

static void
assert_same_element(const arr *a, int64_t i, const arr *b, int64_t j)
{
    assert_memory_equal(arr_at(a, i), arr_at(b, j),
                        (size_t)mr__dtype_size(a->view.dtype));
}

/* Two of three axes indexed; slices (1, 4, 2): a part of the others. */
static void
gather__reads_slices(void **state)
{
    int64_t axes[2] = {0, 2}, sizes[3] = {1, 4, 2};
    mr_gather_params p = {{axes, 2}, {sizes, 3}};

    (void)state;
    for (int t = 0; t < MR_N_DTYPES; t++)
        for (int l = 0; l < N_LAYOUTS; l++) {
            mr_dtype it = integers[(t + l) % n_integers];
            arr *x = ARR((mr_dtype)t, (layout)l, 5, 4, 6);
            arr *i0 = ARR(it, (layout)l, 3, 7), *i2 = ARR(it, PLAIN, 3, 7);
            arr *out = ARR((mr_dtype)t, PLAIN, 3, 7, 1, 4, 2);

            arr_count(x, 1);
            index_fill(i0, 5, 1);
            for (int64_t i = 0; i < 21; i++)
                arr_set(i2, i, (double)(i % 5)); /* 5 = 6 - 2 + 1 places */
            assert_int_equal(RUN(MR_OP_INDEX_GATHER, &p, out, x, i0, i2),
                             MR_OK);
            for (int64_t i = 0; i < out->view.size; i++) {
                int64_t point = i / 8, b = i / 2 % 4, c = i % 2;
                int64_t at = index_at(i0, point, 5) * 4 + b;

                assert_same_element(out, i, x,
                                    at * 6 + index_at(i2, point, 6) + c);
            }
            arr_free(x);
            arr_free(i0);
            arr_free(i2);
            arr_free(out);
        }
}

static void
gather__reads_single_elements_and_rows(void **state)
{
    int64_t axis = 0, one[2] = {1, 1}, row[2] = {1, 9};

    (void)state;
    for (int t = 0; t < MR_N_DTYPES; t++)
        for (int whole = 0; whole < 2; whole++) {
            mr_gather_params p = {{&axis, 1}, {whole ? row : one, 2}};
            arr *x = ARR((mr_dtype)t, PLAIN, 300, 9);
            arr *index = ARR(MR_INT32, PLAIN, 40000);
            arr *out = ARR((mr_dtype)t, PLAIN, 40000, 1, whole ? 9 : 1);

            arr_count(x, 1);
            index_fill(index, 300, 1);
            assert_int_equal(RUN(MR_OP_INDEX_GATHER, &p, out, x, index), MR_OK);
            for (int64_t i = 0; i < out->view.size; i += 37) {
                int64_t n = whole ? 9 : 1;

                assert_same_element(out, i, x,
                                    index_at(index, i / n, 300) * 9 + i % n);
            }
            arr_free(x);
            arr_free(index);
            arr_free(out);
        }
}

/* Rows of 4120 bytes: whole vectors and a rest, at any alignment. */
static void
gather__reads_long_rows(void **state)
{
    int64_t axis = 0, row[2] = {1, 1030};
    mr_gather_params p = {{&axis, 1}, {row, 2}};
    arr *x = ARR(MR_FLOAT32, PLAIN, 300, 1030);
    arr *index = ARR(MR_INT32, PLAIN, 410);
    arr *out = ARR(MR_FLOAT32, PLAIN, 410, 1, 1030);

    (void)state;
    arr_count(x, 1);
    index_fill(index, 300, 1);
    assert_int_equal(RUN(MR_OP_INDEX_GATHER, &p, out, x, index), MR_OK);
    for (int64_t i = 0; i < 410; i++) {
        const char *from = x->view.data, *to = out->view.data;

        from += index_at(index, i, 300) * 4120;
        assert_memory_equal(to + i * 4120, from, 4120);
    }
    arr_free(x);
    arr_free(index);
    arr_free(out);
}

static void
assert_index_error(mr_code code, const char *text)
{
    mr_error e = mr_error_take();

    assert_int_equal(code, MR_E_INDEX);
    assert_int_equal(e.code, MR_E_INDEX);
    assert_non_null(strstr(e.message, text));
}

/* Elements are asked for a run ahead of those that are read. */
static void
gather__of_elements_names_a_bad_index_of_any_run(void **state)
{
    int64_t axis = 0, one = 1;
    mr_gather_params p = {{&axis, 1}, {&one, 1}};

    (void)state;
    for (int64_t n = 1; n < 300; n += 63) {
        arr *x = ARR(MR_FLOAT32, PLAIN, 7), *index = ARR(MR_INT64, PLAIN, n);
        arr *out = ARR(MR_FLOAT32, PLAIN, n, 1);

        arr_count(x, 1);
        for (int64_t bad = 0; bad < n; bad += 31) {
            for (int64_t i = 0; i < n; i++)
                arr_set(index, i, i < bad ? 3.0 : -8.0);
            assert_index_error(RUN(MR_OP_INDEX_GATHER, &p, out, x, index),
                               "index -8 is out of range for axis 0 of size 7");
        }
        arr_free(x);
        arr_free(index);
        arr_free(out);
    }
}

static void
index__out_of_range_names_the_first_place(void **state)
{
    int64_t axis = 1, sizes[2] = {3, 2};
    mr_gather_params p = {{&axis, 1}, {sizes, 2}};
    mr_scatter_params sp = {{&axis, 1}, MR_SCATTER_SET};
    mr_axis_params ap = {1};
    mr_put_params pp = {1, MR_SCATTER_SET};
    arr *x = ARR(MR_FLOAT32, PLAIN, 3, 5), *index = ARR(MR_INT64, PLAIN, 6);
    arr *out = ARR(MR_FLOAT32, PLAIN, 6, 3, 2);
    arr *updates = ARR(MR_FLOAT32, PLAIN, 6, 3, 2);
    arr *scattered = ARR(MR_FLOAT32, PLAIN, 3, 5);
    arr *along = ARR(MR_UINT64, PLAIN, 3, 2),
        *taken = ARR(MR_FLOAT32, PLAIN, 3, 2);
    uint64_t huge = UINT64_MAX;

    (void)state;
    arr_count(x, 1);
    arr_count(updates, 2);
    for (int64_t i = 0; i < 6; i++) {
        arr_set(index, i, 3.0);
        arr_set(along, i, 4.0);
    }
    arr_set(index, 2, 4.0); /* a slice of 2 does not fit there */
    arr_set(index, 5, -6.0);
    assert_index_error(RUN(MR_OP_INDEX_GATHER, &p, out, x, index),
                       "index 4 is out of range for axis 1 of size 5");
    assert_index_error(
        RUN(MR_OP_INDEX_SCATTER, &sp, scattered, x, index, updates),
        "index 4 is out of range for axis 1 of size 5");
    /* nothing was written: still what kernel_run_n put there */
    for (int64_t i = 0; i < 15; i++)
        assert_int_equal(*(uint32_t *)(void *)arr_at(scattered, i), 0x11111111);
    arr_set(index, 2, -1.0);
    assert_index_error(RUN(MR_OP_INDEX_GATHER, &p, out, x, index),
                       "index -1 is out of range");
    memcpy(arr_at(along, 3), &huge, sizeof huge);
    assert_index_error(
        RUN(MR_OP_TAKE_ALONG_AXIS, &ap, taken, x, along),
        "an index of 2^63 - 1 or more is out of range for axis 1");
    assert_index_error(
        RUN(MR_OP_PUT_ALONG_AXIS, &pp, scattered, x, along, taken),
        "out of range for axis 1 of size 5");
    arr_free(x);
    arr_free(index);
    arr_free(out);
    arr_free(updates);
    arr_free(scattered);
    arr_free(along);
    arr_free(taken);
}

/* One step of a scatter, on values that are exact in every dtype. */
static double
combined(int mode, mr_dtype t, double old, double update)
{
    switch (mode) {
    case MR_SCATTER_SET:
        return update;
    case MR_SCATTER_ADD:
        return t == MR_BOOL ? (double)(old != 0 || update != 0) : old + update;
    case MR_SCATTER_MULTIPLY:
        return old * update;
    case MR_SCATTER_MAXIMUM:
        return old > update ? old : update;
    default:
        return old < update ? old : update;
    }
}

/* n points into axis 1, each a slice of (2, 1, width). */
static void
scatter_case(mr_dtype t, layout l, int mode, int64_t n, int64_t width)
{
    int64_t axis = 1;
    mr_scatter_params p = {{&axis, 1}, mode};
    arr *x = ARR(t, l, 2, 50, width), *index = ARR(MR_INT32, l, n, 2);
    arr *updates = ARR(t, l, n, 2, 2, 1, width),
        *out = ARR(t, PLAIN, 2, 50, width);
    arr *expected;
    bool real = !mr__dtype_is_complex(t);

    arr_count(x, 1);
    for (int64_t i = 0; i < x->view.size; i++)
        arr_set(x, i, (double)(i % 2));
    index_fill(index, 50, 2);
    for (int64_t i = 0; i < updates->view.size; i++)
        arr_set(updates, i,
                mode == MR_SCATTER_MULTIPLY ? (double)(i % 3 != 0)
                                            : (double)((i + i / 50) % 2));
    assert_int_equal(RUN(MR_OP_INDEX_SCATTER, &p, out, x, index, updates),
                     MR_OK);
    expected = arr_plain(x);
    for (int64_t i = 0; real && i < updates->view.size; i++) {
        int64_t point = i / (2 * width), b = i / width % 2, c = i % width;
        int64_t at = (b * 50 + index_at(index, point, 50)) * width + c;

        arr_set(expected, at,
                combined(mode, t, arr_get(expected, at), arr_get(updates, i)));
    }
    for (int64_t i = 0; real && i < out->view.size; i++)
        assert_same_element(expected, i, out, i);
    arr_free(x);
    arr_free(index);
    arr_free(updates);
    arr_free(out);
    arr_free(expected);
}

static void
scatter__combines_in_order(void **state)
{
    (void)state;
    for (int t = 0; t < MR_N_DTYPES; t++)
        for (int mode = 0; mode <= MR_SCATTER_MINIMUM; mode++)
            for (int l = 0; l < N_LAYOUTS; l++) {
                scatter_case((mr_dtype)t, (layout)l, mode, 13, 1);
                scatter_case((mr_dtype)t, (layout)l, mode, 13, 5);
            }
}

/* Enough to be dealt out to threads; sums that overflow nothing. */
static void
scatter__is_the_same_on_several_threads(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_INT32, MR_FLOAT64};

    (void)state;
    for (int t = 0; t < 3; t++)
        for (int mode = 0; mode <= MR_SCATTER_MINIMUM; mode++) {
            scatter_case(types[t], PLAIN, mode, 20000, 1);
            scatter_case(types[t], PLAIN, mode, 700, 64);
        }
}

static void
scatter__of_the_last_of_equals_wins(void **state)
{
    int64_t axis = 0;
    mr_scatter_params p = {{&axis, 1}, MR_SCATTER_SET};
    arr *x = ARR(MR_INT32, PLAIN, 4), *index = ARR(MR_INT32, PLAIN, 50000);
    arr *updates = ARR(MR_INT32, PLAIN, 50000, 1);
    arr *out = ARR(MR_INT32, PLAIN, 4);

    (void)state;
    arr_count(x, 1);
    for (int64_t i = 0; i < 50000; i++) {
        arr_set(index, i, (double)(i % 3));
        arr_set(updates, i, (double)i);
    }
    assert_int_equal(RUN(MR_OP_INDEX_SCATTER, &p, out, x, index, updates),
                     MR_OK);
    assert_true(arr_get(out, 0) == 49998.0);
    assert_true(arr_get(out, 1) == 49999.0);
    assert_true(arr_get(out, 2) == 49997.0);
    assert_same_element(out, 3, x, 3);
    arr_free(x);
    arr_free(index);
    arr_free(updates);
    arr_free(out);
}

static void
scatter__nan_wins_extremes(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT16, MR_BFLOAT16, MR_FLOAT32,
                                     MR_FLOAT64};
    int64_t axis = 0;

    (void)state;
    for (int t = 0; t < 4; t++)
        for (int mode = MR_SCATTER_MAXIMUM; mode <= MR_SCATTER_MINIMUM;
             mode++) {
            mr_scatter_params p = {{&axis, 1}, mode};
            arr *x = ARR(types[t], PLAIN, 2), *index = ARR(MR_INT8, PLAIN, 3);
            arr *updates = ARR(types[t], PLAIN, 3, 1);
            arr *out = ARR(types[t], PLAIN, 2);

            arr_set(x, 0, 1.0);
            arr_set(x, 1, 1.0);
            for (int64_t i = 0; i < 3; i++) {
                arr_set(index, i, 0.0);
                arr_set(updates, i, i == 1 ? (double)NAN : 5.0);
            }
            assert_int_equal(
                RUN(MR_OP_INDEX_SCATTER, &p, out, x, index, updates), MR_OK);
            assert_true(isnan(arr_get(out, 0)));
            assert_true(arr_get(out, 1) == 1.0);
            arr_free(x);
            arr_free(index);
            arr_free(updates);
            arr_free(out);
        }
}

/* Windows that overlap: axis 0 has size 2 in the slices. */
static void
scatter__of_overlapping_windows_accumulates(void **state)
{
    int64_t axis = 0;
    mr_scatter_params p = {{&axis, 1}, MR_SCATTER_ADD};
    arr *x = ARR(MR_FLOAT32, PLAIN, 8), *index = ARR(MR_INT32, PLAIN, 40000);
    arr *updates = ARR(MR_FLOAT32, PLAIN, 40000, 2);
    arr *out = ARR(MR_FLOAT32, PLAIN, 8);
    double expected[8] = {0};

    (void)state;
    for (int64_t i = 0; i < 8; i++)
        arr_set(x, i, 0.0);
    for (int64_t i = 0; i < 40000; i++) {
        arr_set(index, i, (double)(i % 7));
        arr_set(updates, 2 * i, 1.0);
        arr_set(updates, 2 * i + 1, 2.0);
        expected[i % 7] += 1.0;
        expected[i % 7 + 1] += 2.0;
    }
    assert_int_equal(RUN(MR_OP_INDEX_SCATTER, &p, out, x, index, updates),
                     MR_OK);
    for (int64_t i = 0; i < 8; i++)
        assert_true(arr_get(out, i) == expected[i]);
    arr_free(x);
    arr_free(index);
    arr_free(updates);
    arr_free(out);
}

static void
along__takes_and_puts_back(void **state)
{
    (void)state;
    for (int t = 0; t < MR_N_DTYPES; t++)
        for (int l = 0; l < N_LAYOUTS; l++)
            for (int32_t axis = 0; axis < 3; axis++) {
                int64_t dim[3] = {4, 5, 6}, idim[3] = {4, 5, 6};
                mr_dtype it = integers[(t + l) % n_integers];
                mr_axis_params p = {axis};
                mr_put_params set = {axis, MR_SCATTER_SET};
                arr *x, *index, *out, *values, *put;

                idim[axis] = 3;
                x = arr_new((mr_dtype)t, (layout)l, 3, dim);
                index = arr_new(it, (layout)l, 3, idim);
                out = arr_new((mr_dtype)t, PLAIN, 3, idim);
                values = arr_new((mr_dtype)t, (layout)l, 3, idim);
                put = arr_new((mr_dtype)t, PLAIN, 3, dim);
                arr_count(x, 1);
                arr_count(values, 2);
                index_fill(index, dim[axis], l);
                assert_int_equal(RUN(MR_OP_TAKE_ALONG_AXIS, &p, out, x, index),
                                 MR_OK);
                assert_int_equal(
                    RUN(MR_OP_PUT_ALONG_AXIS, &set, put, x, index, values),
                    MR_OK);
                for (int64_t i = 0; i < out->view.size; i++) {
                    int64_t at[3] = {i / idim[2] / idim[1],
                                     i / idim[2] % idim[1], i % idim[2]};
                    int64_t from;

                    at[axis] = index_at(index, i, dim[axis]);
                    from = (at[0] * dim[1] + at[1]) * dim[2] + at[2];
                    assert_same_element(out, i, x, from);
                    /* x itself is repeated there, so put takes the last */
                }
                {
                    arr *expected = arr_plain(x);

                    for (int64_t i = 0; i < values->view.size; i++) {
                        int64_t at[3] = {i / idim[2] / idim[1],
                                         i / idim[2] % idim[1], i % idim[2]};

                        at[axis] = index_at(index, i, dim[axis]);
                        memcpy(
                            arr_at(expected,
                                   (at[0] * dim[1] + at[1]) * dim[2] + at[2]),
                            arr_at(values, i),
                            (size_t)mr__dtype_size((mr_dtype)t));
                    }
                    for (int64_t i = 0; i < put->view.size; i++)
                        assert_same_element(put, i, expected, i);
                    arr_free(expected);
                }
                arr_free(x);
                arr_free(index);
                arr_free(out);
                arr_free(values);
                arr_free(put);
            }
}

static void
along__put_may_add(void **state)
{
    mr_put_params p = {0, MR_SCATTER_ADD};
    arr *x = ARR(MR_BFLOAT16, PLAIN, 3), *index = ARR(MR_INT32, PLAIN, 4);
    arr *values = ARR(MR_BFLOAT16, PLAIN, 4), *out = ARR(MR_BFLOAT16, PLAIN, 3);

    (void)state;
    for (int64_t i = 0; i < 3; i++)
        arr_set(x, i, 10.0);
    for (int64_t i = 0; i < 4; i++) {
        arr_set(index, i, -1.0);
        arr_set(values, i, (double)i);
    }
    assert_int_equal(RUN(MR_OP_PUT_ALONG_AXIS, &p, out, x, index, values),
                     MR_OK);
    assert_true(arr_get(out, 0) == 10.0 && arr_get(out, 2) == 16.0);
    arr_free(x);
    arr_free(index);
    arr_free(values);
    arr_free(out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather__reads_slices),
        cmocka_unit_test(gather__reads_single_elements_and_rows),
        cmocka_unit_test(gather__reads_long_rows),
        cmocka_unit_test(gather__of_elements_names_a_bad_index_of_any_run),
        cmocka_unit_test(index__out_of_range_names_the_first_place),
        cmocka_unit_test(scatter__combines_in_order),
        cmocka_unit_test(scatter__is_the_same_on_several_threads),
        cmocka_unit_test(scatter__of_the_last_of_equals_wins),
        cmocka_unit_test(scatter__nan_wins_extremes),
        cmocka_unit_test(scatter__of_overlapping_windows_accumulates),
        cmocka_unit_test(along__takes_and_puts_back),
        cmocka_unit_test(along__put_may_add),
    };

    return cmocka_run_group_tests_name("cpu/index", tests, NULL, NULL);
}
