/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c -- tests of reductions and scans: types, nothing to reduce, ties,
 * zeros in products, infinities in log-sums.
 */
#include <math.h>

#include "ops/gradient.h"

static mr_array *
product(mr_array *const *x)
{
    return mr_prod(x[0], MR_AXES_ALL, false);
}

static mr_array *
largest(mr_array *const *x)
{
    return mr_max(x[0], MR_AXES_ALL, false);
}

static mr_array *
log_sum(mr_array *const *x)
{
    return mr_logsumexp(x[0], MR_AXES_ALL, false);
}

static mr_array *
deviation(mr_array *const *x)
{
    return mr_std(x[0], MR_AXES_ALL, false, 0);
}

static mr_array *
running_product(mr_array *const *x)
{
    return mr_cumprod(x[0], 0, false, true, MR_DTYPE_DEFAULT);
}

static mr_array *
running_maximum(mr_array *const *x)
{
    return mr_cummax(x[0], 0, false, true);
}

static void
sum__narrow_integers_widen(void **state)
{
    (void)state;
    mr_array *x = mr_full(MRT_SHAPE(300), 127, MR_INT8);
    mr_array *s = mr_sum(x, MR_AXES_ALL, false);

    assert_int_equal(mr_array_dtype(s), MR_INT32);
    mrt_assert_i64(s, (int64_t[]){38100}, 1);
}

static void
sum__no_axes_change_nothing(void **state)
{
    (void)state;
    mr_array *x = mr_full(MRT_SHAPE(3), 2, MR_INT8);

    assert_ptr_equal(mr_sum(x, (mr_axes){NULL, 0}, false), x);
}

static void
reductions__of_nothing(void **state)
{
    (void)state;
    mr_array *x = mr_zeros(MRT_SHAPE(0), MR_FLOAT32);

    mrt_assert_f32(mr_sum(x, MR_AXES_ALL, false), (float[]){0}, 1);
    mrt_assert_f32(mr_prod(x, MR_AXES_ALL, false), (float[]){1}, 1);
    mrt_assert_f32(mr_mean(x, MR_AXES_ALL, false), (float[]){NAN}, 1);
    mrt_assert_i64(mr_all(x, MR_AXES_ALL, false), (int64_t[]){1}, 1);
    mrt_assert_i64(mr_any(x, MR_AXES_ALL, false), (int64_t[]){0}, 1);
    assert_null(mr_max(x, MR_AXES_ALL, false));
    mrt_assert_error(MR_E_VALUE, "nothing to reduce");
    assert_null(mr_argmin(x, MR_AXIS_NONE, false));
    mrt_assert_error(MR_E_VALUE, "(0");
}

static void
reductions__say_which_axis_is_wrong(void **state)
{
    (void)state;
    mr_array *x = mr_zeros(MRT_SHAPE(2, 3), MR_FLOAT32);

    assert_null(mr_sum(x, MR_AXES(2), false));
    mrt_assert_error(MR_E_INDEX, "axis 2");
    assert_null(mr_sum(x, MR_AXES(1, -1), false));
    mrt_assert_error(MR_E_VALUE, "twice");
}

static void
argmax__the_first_nan_wins(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){1, NAN, 3, NAN}, 4);
    mr_array *i = mr_argmax(x, MR_AXIS_NONE, false);

    assert_int_equal(mr_array_dtype(i), MR_UINT32);
    mrt_assert_i64(i, (int64_t[]){1}, 1);
}

static void
prod__slopes_with_any_number_of_zeros(void **state)
{
    (void)state;
    mr_array *one = mrt_f32((float[]){0, 2, 3}, 3);
    mr_array *two = mrt_f32((float[]){0, 0, 3}, 3);
    mr_array *none = mrt_f32((float[]){4, 2, 3}, 3);

    mrt_assert_f32(mrt_grad(product, 1, &one, 0), (float[]){6, 0, 0}, 3);
    mrt_assert_f32(mrt_grad(product, 1, &two, 0), (float[]){0, 0, 0}, 3);
    mrt_assert_f32(mrt_grad(product, 1, &none, 0), (float[]){6, 12, 8}, 3);
}

static void
cumprod__slopes_with_zeros(void **state)
{
    (void)state;
    mr_array *one = mrt_f32((float[]){2, 0, 3}, 3);
    mr_array *two = mrt_f32((float[]){0, 0, 3}, 3);

    mrt_assert_f32(mrt_grad(running_product, 1, &one, 0), (float[]){1, 8, 0},
                   3);
    mrt_assert_f32(mrt_grad(running_product, 1, &two, 0), (float[]){1, 0, 0},
                   3);
}

static void
max__equals_share_the_slope(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){1, 2, 2, 0}, 4);

    mrt_assert_f32(mrt_grad(largest, 1, &x, 0), (float[]){0, 0.5F, 0.5F, 0}, 4);
}

static void
cummax__the_last_equal_owns_the_slope(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){2, 0, 2, 3}, 4);

    mrt_assert_f32(mrt_grad(running_maximum, 1, &x, 0), (float[]){2, 0, 1, 1},
                   4);
}

static void
logsumexp__of_nothing_but_minus_infinity(void **state)
{
    (void)state;
    mr_array *x = mr_full(MRT_SHAPE(3), -INFINITY, MR_FLOAT32);

    mrt_assert_f32(mr_logsumexp(x, MR_AXES_ALL, false), (float[]){-INFINITY},
                   1);
    mrt_assert_f32(mrt_grad(log_sum, 1, &x, 0), (float[]){0, 0, 0}, 3);
}

static void
logsumexp__does_not_overflow(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){1000, 1000}, 2);

    mrt_assert_close(mr_logsumexp(x, MR_AXES_ALL, false),
                     (double[]){1000.6931471805599}, 1, 1e-7, 0);
}

static void
std__equal_values_have_no_slope(void **state)
{
    (void)state;
    mr_array *x = mr_full(MRT_SHAPE(3), 5, MR_FLOAT32);

    mrt_assert_f32(mr_std(x, MR_AXES_ALL, false, 0), (float[]){0}, 1);
    mrt_assert_f32(mrt_grad(deviation, 1, &x, 0), (float[]){0, 0, 0}, 3);
}

static void
var__too_few_for_ddof(void **state)
{
    (void)state;
    mrt_assert_f32(mr_var(mrt_f32((float[]){1}, 1), MR_AXES_ALL, false, 1),
                   (float[]){NAN}, 1);
    mrt_assert_f32(mr_var(mrt_f32((float[]){1, 2}, 2), MR_AXES_ALL, false, 2),
                   (float[]){INFINITY}, 1);
}

static void
var__is_not_cancelled_by_a_large_mean(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){10000, 10001, 10002}, 3);

    mrt_assert_close(mr_var(x, MR_AXES_ALL, false, 0), (double[]){2.0 / 3.0}, 1,
                     1e-6, 0);
}

static void
median__nan_wins(void **state)
{
    (void)state;
    mrt_assert_f32(
        mr_median(mrt_f32((float[]){3, 1, 2, 10}, 4), MR_AXES_ALL, false),
        (float[]){2.5F}, 1);
    mrt_assert_f32(
        mr_median(mrt_f32((float[]){3, NAN, 2}, 3), MR_AXES_ALL, false),
        (float[]){NAN}, 1);
}

static void
cumsum__exclusive_starts_with_plus_zero(void **state)
{
    (void)state;
    mr_array *s = mr_cumsum(mrt_f32((float[]){1, 2}, 2), 0, false, false,
                            MR_DTYPE_DEFAULT);

    mrt_assert_f32(mr_reciprocal(s), (float[]){INFINITY, 1}, 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(sum__narrow_integers_widen),
        mrt_test(sum__no_axes_change_nothing),
        mrt_test(reductions__of_nothing),
        mrt_test(reductions__say_which_axis_is_wrong),
        mrt_test(argmax__the_first_nan_wins),
        mrt_test(prod__slopes_with_any_number_of_zeros),
        mrt_test(cumprod__slopes_with_zeros),
        mrt_test(max__equals_share_the_slope),
        mrt_test(cummax__the_last_equal_owns_the_slope),
        mrt_test(logsumexp__of_nothing_but_minus_infinity),
        mrt_test(logsumexp__does_not_overflow),
        mrt_test(std__equal_values_have_no_slope),
        mrt_test(var__too_few_for_ddof),
        mrt_test(var__is_not_cancelled_by_a_large_mean),
        mrt_test(median__nan_wins),
        mrt_test(cumsum__exclusive_starts_with_plus_zero),
    };

    return cmocka_run_group_tests_name("ops/reduce", tests, NULL, NULL);
}
