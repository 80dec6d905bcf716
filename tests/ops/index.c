/* SPDX-License-Identifier: Apache-2.0
 *
 * index.c -- tests of shapes and indexing: clamped slices, indices out of
 * range, repeated places, masks.
 */
#include "ops/gradient.h"

#define NONE MR_INT_NONE

static mr_array *
iota(int64_t n)
{
    mr_scalar zero = {.kind = MR_SCALAR_INT, .as.i = 0};
    mr_scalar stop = {.kind = MR_SCALAR_INT, .as.i = n};
    mr_scalar one = {.kind = MR_SCALAR_INT, .as.i = 1};

    return mr_arange(zero, stop, one, MR_FLOAT32);
}

static mr_array *
indices(const int64_t *v, int64_t n)
{
    return mr_array_from_i64(v, MRT_SHAPE(n));
}

static void
index_slice__bounds_are_clamped_as_in_python(void **state)
{
    (void)state;
    mr_array *x = iota(5);

    mrt_assert_f32(mr_index_slice(x, MR_INTS(-100), MR_INTS(100), MR_INTS(2)),
                   (float[]){0, 2, 4}, 3);
    mrt_assert_f32(mr_index_slice(x, MR_INTS(NONE), MR_INTS(NONE), MR_INTS(-2)),
                   (float[]){4, 2, 0}, 3);
    mrt_assert_f32(mr_index_slice(x, MR_INTS(3), MR_INTS(-100), MR_INTS(-1)),
                   (float[]){3, 2, 1, 0}, 4);
    mrt_assert_f32(mr_index_slice(x, MR_INTS(4), MR_INTS(1), MR_INTS(1)), NULL,
                   0);
    mrt_assert_f32(
        mr_index_slice(x, MR_INTS(NONE), MR_INTS(NONE), MR_INTS(INT64_MAX)),
        (float[]){0}, 1);
}

static void
index_slice__stride_zero_is_an_error(void **state)
{
    (void)state;
    assert_null(
        mr_index_slice(iota(5), MR_INTS(NONE), MR_INTS(NONE), MR_INTS(0)));
    mrt_assert_error(MR_E_VALUE, "stride of 0");
}

static void
take__an_index_out_of_range_fails_at_evaluation(void **state)
{
    (void)state;
    mr_array *y = mr_take(iota(5), indices((int64_t[]){0, 5}, 2), MR_AXIS_NONE);

    assert_non_null(y);
    assert_int_equal(mr_eval(y), MR_E_INDEX);
    mrt_assert_error(MR_E_INDEX, "5");
}

static void
take__negative_indices_count_from_the_end(void **state)
{
    (void)state;
    mrt_assert_f32(
        mr_take(iota(5), indices((int64_t[]){-1, -5}, 2), MR_AXIS_NONE),
        (float[]){4, 0}, 2);
}

static void
take__indices_must_be_integers(void **state)
{
    (void)state;
    assert_null(mr_take(iota(5), mr_float(1), MR_AXIS_NONE));
    mrt_assert_error(MR_E_VALUE, "float32");
}

static mr_array *
take_001(mr_array *const *x)
{
    return mr_take(x[0], indices((int64_t[]){0, 0, 1}, 3), MR_AXIS_NONE);
}

static void
take__repeated_reads_accumulate_slopes(void **state)
{
    (void)state;
    mr_array *x = iota(3);

    mrt_assert_f32(mrt_grad(take_001, 1, &x, 0), (float[]){2, 1, 0}, 3);
}

static mr_array *
set_00(mr_array *const *x)
{
    mr_array *i = indices((int64_t[]){0, 0}, 2);
    mr_array *u = mr_expand_dims(x[1], MR_AXES(1));

    return mr_index_scatter(x[0], &i, 1, u, MR_INTS(0), "set");
}

static void
scatter__of_repeated_sets_the_last_counts(void **state)
{
    (void)state;
    mr_array *x[2] = {mrt_f32((float[]){1, 2}, 2), mrt_f32((float[]){3, 4}, 2)};

    mrt_assert_f32(set_00(x), (float[]){4, 2}, 2);
    mrt_assert_f32(mrt_grad(set_00, 2, x, 0), (float[]){0, 1}, 2);
    mrt_assert_f32(mrt_grad(set_00, 2, x, 1), (float[]){0, 1}, 2);
}

static mr_array *
multiply_00(mr_array *const *x)
{
    mr_array *i = indices((int64_t[]){0, 0}, 2);
    mr_array *u = mr_expand_dims(x[1], MR_AXES(1));

    return mr_index_scatter(x[0], &i, 1, u, MR_INTS(0), "multiply");
}

static void
scatter__products_have_slopes_with_a_zero(void **state)
{
    (void)state;
    mr_array *x[2] = {mrt_f32((float[]){2, 7}, 2), mrt_f32((float[]){0, 5}, 2)};

    mrt_assert_f32(mrt_grad(multiply_00, 2, x, 0), (float[]){0, 1}, 2);
    mrt_assert_f32(mrt_grad(multiply_00, 2, x, 1), (float[]){10, 0}, 2);
}

static void
scatter__refuses_an_unknown_mode(void **state)
{
    (void)state;
    mr_array *i = indices((int64_t[]){0}, 1);

    assert_null(mr_index_scatter(iota(3), &i, 1,
                                 mr_zeros(MRT_SHAPE(1, 1), MR_FLOAT32),
                                 MR_INTS(0), "xor"));
    mrt_assert_error(MR_E_VALUE, "xor");
}

static void
mask_set__lists_are_used_up_in_order(void **state)
{
    (void)state;
    mr_array *mask =
        mr_array_from_bool((bool[]){true, false, true}, MRT_SHAPE(3));

    mrt_assert_f32(
        mr_index_mask_set(iota(3), mask, mrt_f32((float[]){7, 8}, 2)),
        (float[]){7, 1, 8}, 3);
    mrt_assert_f32(mr_index_mask_set(iota(3), mask, mr_float(9)),
                   (float[]){9, 1, 9}, 3);
}

static void
mask_set__too_few_values_fail_at_evaluation(void **state)
{
    (void)state;
    mr_array *mask =
        mr_array_from_bool((bool[]){true, true, true}, MRT_SHAPE(3));
    mr_array *none = mr_zeros(MRT_SHAPE(0), MR_FLOAT32);

    assert_int_equal(
        mr_eval(mr_index_mask_set(iota(3), mask, mrt_f32((float[]){7, 8}, 2))),
        MR_E_STATE);
    mrt_assert_error(MR_E_STATE, "2 values for a mask with 3 True");
    assert_int_equal(mr_eval(mr_index_mask_set(iota(3), mask, none)),
                     MR_E_STATE);
    mrt_assert_error(MR_E_STATE, "0 values");
    mask = mr_zeros(MRT_SHAPE(3), MR_BOOL);
    mrt_assert_f32(mr_index_mask_set(iota(3), mask, none), (float[]){0, 1, 2},
                   3);
}

static void
compress__selects_rows(void **state)
{
    (void)state;
    mr_array *x = mr_reshape(iota(6), MRT_SHAPE(3, 2));
    mr_array *mask =
        mr_array_from_bool((bool[]){true, false, true}, MRT_SHAPE(3));
    mr_array *y = mr_index_compress(x, mask);

    mrt_assert_shape(y, MRT_SHAPE(2, 2));
    mrt_assert_f32(y, (float[]){0, 1, 4, 5}, 4);
}

static void
reshape__infers_one_size(void **state)
{
    (void)state;
    mr_array *x = mr_zeros(MRT_SHAPE(2, 6), MR_FLOAT32);

    mrt_assert_shape(mr_reshape(x, MRT_SHAPE(3, -1)), MRT_SHAPE(3, 4));
    assert_null(mr_reshape(x, MRT_SHAPE(5, -1)));
    mrt_assert_error(MR_E_SHAPE, "12 elements");
    assert_null(mr_reshape(x, MRT_SHAPE(-1, -1)));
    mrt_assert_error(MR_E_VALUE, "one may be -1");
}

static void
as_strided__stays_inside(void **state)
{
    (void)state;
    mrt_assert_f32(mr_as_strided(iota(6), MRT_SHAPE(2, 2), MR_INTS(3, -1), 1),
                   (float[]){1, 0, 4, 3}, 4);
    assert_null(mr_as_strided(iota(6), MRT_SHAPE(2, 2), MR_INTS(4, 2), 0));
    mrt_assert_error(MR_E_VALUE, "0 to 6");
}

static void
slice__starts_are_clamped(void **state)
{
    (void)state;
    mr_array *start = indices((int64_t[]){9}, 1);

    mrt_assert_f32(mr_slice(iota(5), start, MR_INTS(0), MR_INTS(2)),
                   (float[]){3, 4}, 2);
}

static void
concatenate__shapes_must_agree(void **state)
{
    (void)state;
    mr_array *x[2] = {mr_zeros(MRT_SHAPE(2, 3), MR_FLOAT32),
                      mr_zeros(MRT_SHAPE(2, 4), MR_FLOAT32)};

    assert_null(mr_concatenate(x, 2, 0));
    mrt_assert_error(MR_E_SHAPE, "(2, 4)");
    assert_null(mr_concatenate(x, 0, 0));
    mrt_assert_error(MR_E_VALUE, "at least one");
}

static void
pad__reflect_keeps_bouncing(void **state)
{
    (void)state;
    mrt_assert_f32(mr_pad(iota(3), MR_INTS(5, 0), "reflect", MR_NONE),
                   (float[]){1, 0, 1, 2, 1, 0, 1, 2}, 8);
}

static void
zeros__have_memory_of_their_own(void **state)
{
    (void)state;
    mr_array *x = mr_zeros(MRT_SHAPE(4), MR_FLOAT32);

    assert_int_equal(mr_eval(x), MR_OK);
    assert_int_equal(mr_array_strides(x)[0], 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(index_slice__bounds_are_clamped_as_in_python),
        mrt_test(index_slice__stride_zero_is_an_error),
        mrt_test(take__an_index_out_of_range_fails_at_evaluation),
        mrt_test(take__negative_indices_count_from_the_end),
        mrt_test(take__indices_must_be_integers),
        mrt_test(take__repeated_reads_accumulate_slopes),
        mrt_test(scatter__of_repeated_sets_the_last_counts),
        mrt_test(scatter__products_have_slopes_with_a_zero),
        mrt_test(scatter__refuses_an_unknown_mode),
        mrt_test(mask_set__lists_are_used_up_in_order),
        mrt_test(mask_set__too_few_values_fail_at_evaluation),
        mrt_test(compress__selects_rows),
        mrt_test(reshape__infers_one_size),
        mrt_test(as_strided__stays_inside),
        mrt_test(slice__starts_are_clamped),
        mrt_test(concatenate__shapes_must_agree),
        mrt_test(pad__reflect_keeps_bouncing),
        mrt_test(zeros__have_memory_of_their_own),
    };

    return cmocka_run_group_tests_name("ops/index", tests, NULL, NULL);
}
