/* SPDX-License-Identifier: Apache-2.0
 *
 * move.c -- kernels that move elements: copies, concatenation, padding,
 * written slices, arange, random bits.
 */
#include "cpu/kernel_run.h"

#define EACH_DTYPE(t)  for (int t = 0; t < MR_N_DTYPES; t++)
#define EACH_LAYOUT(l) for (int l = 0; l < N_LAYOUTS; l++)

static void
assert_same_element(const arr *a, int64_t i, const arr *b, int64_t j)
{
    assert_memory_equal(arr_at(a, i), arr_at(b, j),
                        (size_t)mr__dtype_size(a->view.dtype));
}

static void
reshape__copies_in_row_major_order(void **state)
{
    (void)state;
    EACH_DTYPE(t)
    EACH_LAYOUT(l)
    {
        arr *x = ARR((mr_dtype)t, (layout)l, 3, 5, 7);
        arr *out = ARR((mr_dtype)t, PLAIN, 105);

        arr_count(x, 1);
        assert_int_equal(RUN(MR_OP_RESHAPE, NULL, out, x), MR_OK);
        for (int64_t i = 0; i < 105; i++)
            assert_same_element(out, i, x, i);
        arr_free(x);
        arr_free(out);
    }
}

/* Large enough to be cut into pieces along each kind of axis. */
static void
contiguous__copies_large_arrays(void **state)
{
    (void)state;
    EACH_LAYOUT(l)
    for (int wide = 0; wide < 2; wide++) {
        int64_t dim[2] = {wide ? 3 : 70000, wide ? 90001 : 4};
        arr *x = arr_new(MR_INT32, (layout)l, 2, dim);
        arr *out = arr_new(MR_INT32, PLAIN, 2, dim);

        for (int64_t i = 0; i < x->view.size; i++)
            arr_set(x, i, (double)i);
        assert_int_equal(RUN(MR_OP_CONTIGUOUS, NULL, out, x), MR_OK);
        for (int64_t i = 0; i < x->view.size; i++)
            assert_same_element(out, i, x, i);
        arr_free(x);
        arr_free(out);
    }
}

static void
view__keeps_the_bytes(void **state)
{
    arr *x = ARR(MR_FLOAT32, TURNED, 3, 4), *out = ARR(MR_UINT16, PLAIN, 3, 8);

    (void)state;
    arr_count(x, 1);
    assert_int_equal(RUN(MR_OP_VIEW, NULL, out, x), MR_OK);
    for (int64_t i = 0; i < 12; i++)
        assert_memory_equal((char *)out->view.data + 4 * i, arr_at(x, i), 4);
    arr_free(x);
    arr_free(out);
}

static void
concatenate__puts_parts_in_a_row(void **state)
{
    (void)state;
    EACH_DTYPE(t)
    EACH_LAYOUT(l)
    for (int32_t axis = 0; axis < 3; axis++) {
        mr_axis_params p = {axis};
        int64_t dim[3][3] = {{2, 3, 4}, {2, 3, 4}, {2, 3, 4}};
        int64_t all[3] = {2, 3, 4}, size[3] = {5, 0, 1};
        arr *in[3], *out;
        int64_t at = 0;

        all[axis] = 6;
        out = arr_new((mr_dtype)t, PLAIN, 3, all);
        for (int i = 0; i < 3; i++) {
            dim[i][axis] = size[i];
            in[i] = arr_new((mr_dtype)t, (layout)l, 3, dim[i]);
            arr_count(in[i], i);
        }
        assert_int_equal(kernel_run_n(MR_OP_CONCATENATE, &p, out, 3, in),
                         MR_OK);
        for (int i = 0; i < 3; at += size[i], i++)
            for (int64_t k = 0; k < in[i]->view.size; k++) {
                int64_t z = k % dim[i][2], y = k / dim[i][2] % dim[i][1];
                int64_t x = k / dim[i][2] / dim[i][1];

                x += axis == 0 ? at : 0;
                y += axis == 1 ? at : 0;
                z += axis == 2 ? at : 0;
                assert_same_element(in[i], k, out,
                                    (x * all[1] + y) * all[2] + z);
            }
        for (int i = 0; i < 3; i++)
            arr_free(in[i]);
        arr_free(out);
    }
}

static void
pad__surrounds_with_the_value(void **state)
{
    int64_t low[3] = {2, 0, 1}, high[3] = {0, 3, 1};
    mr_pad_params p = {{low, 3}, {high, 3}};

    (void)state;
    EACH_DTYPE(t)
    EACH_LAYOUT(l)
    {
        arr *x = ARR((mr_dtype)t, (layout)l, 2, 3, 4);
        arr *value = arr_new((mr_dtype)t, PLAIN, 0, (int64_t[]){0});
        arr *out = ARR((mr_dtype)t, PLAIN, 4, 6, 6);

        arr_count(x, 1);
        arr_set(value, 0, 1.0);
        assert_int_equal(RUN(MR_OP_PAD_CONSTANT, &p, out, x, value), MR_OK);
        for (int64_t i = 0; i < out->view.size; i++) {
            int64_t c = i % 6 - 1, b = i / 6 % 6, a = i / 36 - 2;

            if (a >= 0 && b < 3 && c >= 0 && c < 4)
                assert_same_element(out, i, x, (a * 3 + b) * 4 + c);
            else
                assert_same_element(out, i, value, 0);
        }
        arr_free(x);
        arr_free(value);
        arr_free(out);
    }
}

static void
pad__of_nothing_is_all_value(void **state)
{
    int64_t low[2] = {1, 2}, high[2] = {1, 0};
    mr_pad_params p = {{low, 2}, {high, 2}};
    arr *x = ARR(MR_INT16, PLAIN, 0, 3), *out = ARR(MR_INT16, PLAIN, 2, 5);
    arr *value = arr_new(MR_INT16, PLAIN, 0, (int64_t[]){0});

    (void)state;
    arr_set(value, 0, 7.0);
    assert_int_equal(RUN(MR_OP_PAD_CONSTANT, &p, out, x, value), MR_OK);
    for (int64_t i = 0; i < 10; i++)
        assert_true(arr_get(out, i) == 7.0);
    arr_free(x);
    arr_free(value);
    arr_free(out);
}

/* x[4:0:-2, 1:] = update */
static void
slice_update__writes_only_the_slice(void **state)
{
    int64_t start[2] = {4, 1}, stop[2] = {0, MR_INT_NONE}, step[2] = {-2, 1};
    mr_slice_params p = {{start, 2}, {stop, 2}, {step, 2}};

    (void)state;
    EACH_DTYPE(t)
    EACH_LAYOUT(l)
    {
        arr *x = ARR((mr_dtype)t, (layout)l, 6, 4);
        arr *update = ARR((mr_dtype)t, (layout)l, 2, 3);
        arr *out = ARR((mr_dtype)t, PLAIN, 6, 4);

        arr_count(x, 1);
        arr_count(update, 2);
        assert_int_equal(RUN(MR_OP_INDEX_SLICE_UPDATE, &p, out, x, update),
                         MR_OK);
        for (int64_t i = 0; i < 24; i++) {
            int64_t row = i / 4, col = i % 4;

            if (col >= 1 && (row == 4 || row == 2))
                assert_same_element(out, i, update,
                                    (row == 4 ? 0 : 3) + col - 1);
            else
                assert_same_element(out, i, x, i);
        }
        arr_free(x);
        arr_free(update);
        arr_free(out);
    }
}

static void
arange__counts_exactly_and_in_double(void **state)
{
    (void)state;
    EACH_DTYPE(t)
    {
        mr_arange_params p = {.dtype = (mr_dtype)t,
                              .n = 1500,
                              .exact = true,
                              .istart = -3,
                              .istep = 2};
        arr *out = ARR((mr_dtype)t, PLAIN, 1500);
        int64_t *v = calloc(1500, sizeof *v);

        assert_non_null(v);
        assert_int_equal(kernel_run_n(MR_OP_ARANGE, &p, out, 0, NULL), MR_OK);
        for (int64_t i = 0; i < 1500; i++) {
            mr_const from = {.u64 = {(uint64_t)(-3 + 2 * i), 0}}, to;

            mr__const_cast(&from, MR_INT64, &to, (mr_dtype)t);
            assert_memory_equal(arr_at(out, i), to.bytes,
                                (size_t)mr__dtype_size((mr_dtype)t));
        }
        p.exact = false;
        p.fstart = 0.1;
        p.fstep = 0.3;
        p.last = 42.0;
        assert_int_equal(kernel_run_n(MR_OP_ARANGE, &p, out, 0, NULL), MR_OK);
        for (int64_t i = 0; i < 1500; i++)
            assert_true(
                arr_get(out, i) ==
                rounded((mr_dtype)t, i == 1499 ? 42.0 : 0.1 + 0.3 * (double)i));
        free(v);
        arr_free(out);
    }
}

/* The block function as the definition gives it. */
static void
threefry(uint32_t k0, uint32_t k1, uint32_t c0, uint32_t c1, uint32_t out[2])
{
    static const int turn[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    uint32_t k[3] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDA};

    c0 += k0;
    c1 += k1;
    for (uint32_t i = 0; i < 5; i++) {
        for (int r = 0; r < 4; r++) {
            int by = turn[i % 2][r];

            c0 += c1;
            c1 = c1 << by | c1 >> (32 - by);
            c1 ^= c0;
        }
        c0 += k[(i + 1) % 3];
        c1 += k[(i + 2) % 3] + i + 1;
    }
    out[0] = c0;
    out[1] = c1;
}

static uint32_t
word_of(uint32_t k0, uint32_t k1, int64_t n, int64_t i)
{
    int64_t half = n / 2, odd = n % 2;
    uint32_t both[2];

    if (odd && i == half) {
        threefry(k0, k1, (uint32_t)half, 0, both);
        return both[0];
    }
    if (i < half) {
        threefry(k0, k1, (uint32_t)i, (uint32_t)(half + odd + i), both);
        return both[0];
    }
    i -= half + odd;
    threefry(k0, k1, (uint32_t)i, (uint32_t)(half + odd + i), both);
    return both[1];
}

static void
random_bits__are_the_streams_of_their_keys(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 7, 64, 1001, 40003};
    static const mr_dtype types[] = {MR_UINT8, MR_UINT16, MR_UINT32};

    (void)state;
    EACH_LAYOUT(l)
    for (int w = 0; w < 3; w++)
        for (int s = 0; s < 8; s++) {
            int64_t n = sizes[s], width = 1 << w;
            mr_random_bits_params p = {{&n, 1}, width};
            arr *key = ARR(MR_UINT32, (layout)l, 3, 2);
            arr *out = ARR(types[w], PLAIN, 3, n);
            int64_t words = (n * width + 3) / 4;

            for (int64_t i = 0; i < 6; i++)
                arr_set(key, i, (double)(i * 1000003 + 17));
            assert_int_equal(RUN(MR_OP_RANDOM_BITS, &p, out, key), MR_OK);
            for (int64_t k = 0; k < 3; k++)
                for (int64_t i = 0; i < n * width; i++) {
                    uint32_t word = word_of((uint32_t)arr_get(key, 2 * k),
                                            (uint32_t)arr_get(key, 2 * k + 1),
                                            words, i / 4);
                    const uint8_t *got = (const uint8_t *)out->view.data;

                    assert_int_equal(got[k * n * width + i],
                                     (uint8_t)(word >> (8 * (i % 4))));
                }
            arr_free(key);
            arr_free(out);
        }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reshape__copies_in_row_major_order),
        cmocka_unit_test(contiguous__copies_large_arrays),
        cmocka_unit_test(view__keeps_the_bytes),
        cmocka_unit_test(concatenate__puts_parts_in_a_row),
        cmocka_unit_test(pad__surrounds_with_the_value),
        cmocka_unit_test(pad__of_nothing_is_all_value),
        cmocka_unit_test(slice_update__writes_only_the_slice),
        cmocka_unit_test(arange__counts_exactly_and_in_double),
        cmocka_unit_test(random_bits__are_the_streams_of_their_keys),
    };

    return cmocka_run_group_tests_name("cpu/move", tests, NULL, NULL);
}
