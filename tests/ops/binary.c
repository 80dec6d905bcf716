/* SPDX-License-Identifier: Apache-2.0
 *
 * binary.c -- tests of operators of two arrays: special values, ties, and
 * derivatives where the formula alone would give NaN.
 */
#include <math.h>

#include "ops/gradient.h"

static void
arctan2__sign_of_zero_picks_the_side(void **state)
{
    (void)state;
    mr_array *y = mr_array_from_f32((float[]){0.0F, -0.0F}, MRT_SHAPE(2));
    mr_array *x = mr_full(MRT_SHAPE(2), -1.0, MR_FLOAT32);

    mrt_assert_f32(mr_arctan2(y, x), (float[]){MRT_PI, -MRT_PI}, 2);
}

static void
arctan2__refuses_complex_numbers(void **state)
{
    (void)state;
    assert_null(mr_arctan2(mr_complex(1, 2), mr_float(1)));
    mrt_assert_error(MR_E_DTYPE, "arctan2");
}

static void
add__names_both_shapes_when_they_do_not_broadcast(void **state)
{
    (void)state;
    assert_null(mr_add(mr_zeros(MRT_SHAPE(2, 3), MR_FLOAT32),
                       mr_zeros(MRT_SHAPE(4), MR_FLOAT32)));
    mrt_assert_error(MR_E_SHAPE, "(2, 3)");
}

static void
add__null_keeps_the_first_error(void **state)
{
    (void)state;
    mr_array *bad = mr_add(mr_zeros(MRT_SHAPE(2), MR_FLOAT32),
                           mr_zeros(MRT_SHAPE(3), MR_FLOAT32));

    assert_null(mr_exp(mr_multiply(bad, bad)));
    mrt_assert_error(MR_E_SHAPE, "add: ");
}

static void
add__null_alone_names_the_argument(void **state)
{
    (void)state;
    assert_null(mr_add(mr_float(1), NULL));
    mrt_assert_error(MR_E_NULL, "'b'");
}

static void
add__promotes_mixed_signs_to_the_next_width(void **state)
{
    (void)state;
    mr_array *a = mr_zeros(MRT_SHAPE(2), MR_UINT8);
    mr_array *b = mr_zeros(MRT_SHAPE(2), MR_INT8);

    assert_int_equal(mr_array_dtype(mr_add(a, b)), MR_INT16);
}

static void
integers__division_by_zero_is_defined(void **state)
{
    (void)state;
    mr_array *a =
        mr_array_from_i32((int32_t[]){5, -5, INT32_MIN}, MRT_SHAPE(3));
    mr_array *b = mr_array_from_i32((int32_t[]){0, 0, -1}, MRT_SHAPE(3));

    mrt_assert_i64(mr_floor_divide(a, b), (int64_t[]){0, 0, INT32_MIN}, 3);
    mrt_assert_i64(mr_remainder(a, b), (int64_t[]){5, -5, 0}, 3);
}

static mr_array *
square_by_power(mr_array *const *x)
{
    return mr_power(x[0], x[1]);
}

static void
power__slope_of_the_zeroth_power_is_zero_at_zero(void **state)
{
    (void)state;
    mr_array *x[2] = {mrt_f32((float[]){0, 0, 0, -3}, 4),
                      mrt_f32((float[]){0, 1, 2, 2}, 4)};

    mrt_assert_f32(mrt_grad(square_by_power, 2, x, 0), (float[]){0, 1, 0, -6},
                   4);
}

static void
power__slope_by_the_exponent_is_zero_at_base_zero(void **state)
{
    (void)state;
    mr_array *x[2] = {mrt_f32((float[]){0, 1}, 2), mrt_f32((float[]){2, 5}, 2)};

    mrt_assert_f32(mrt_grad(square_by_power, 2, x, 1), (float[]){0, 0}, 2);
}

static mr_array *
larger(mr_array *const *x)
{
    return mr_maximum(x[0], x[1]);
}

static void
maximum__a_tie_belongs_to_the_second(void **state)
{
    (void)state;
    mr_array *x[2] = {mrt_f32((float[]){2, 3, 1}, 3),
                      mrt_f32((float[]){2, 1, 3}, 3)};

    mrt_assert_f32(mrt_grad(larger, 2, x, 0), (float[]){0, 1, 0}, 3);
    mrt_assert_f32(mrt_grad(larger, 2, x, 1), (float[]){1, 0, 1}, 3);
}

static mr_array *
clipped(mr_array *const *x)
{
    return mr_clip(x[0], mr_float(0), mr_float(1));
}

static void
clip__slope_is_zero_at_a_bound(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){-1, 0, 0.5F, 1, 2}, 5);

    mrt_assert_f32(mrt_grad(clipped, 1, &x, 0), (float[]){0, 0, 1, 0, 0}, 5);
}

static void
clip__the_upper_bound_wins_where_they_cross(void **state)
{
    (void)state;
    mrt_assert_f32(mr_clip(mr_float(0), mr_float(3), mr_float(1)), (float[]){1},
                   1);
}

static mr_array *
safe_root(mr_array *const *x)
{
    mr_array *ok = mr_greater(x[0], mr_float(0));
    mr_array *w = mr_where(ok, x[0], mr_float(1));

    return mr_where(ok, mr_sqrt(w), mr_float(0));
}

static void
where__double_where_has_a_finite_slope(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){0, 4}, 2);

    mrt_assert_f32(mrt_grad(safe_root, 1, &x, 0), (float[]){0, 0.25F}, 2);
}

static mr_array *
log_sum(mr_array *const *x)
{
    return mr_logaddexp(x[0], x[1]);
}

static void
logaddexp__infinities_have_shares(void **state)
{
    (void)state;
    mr_array *x[2] = {mrt_f32((float[]){-INFINITY, INFINITY, 1, 0}, 4),
                      mrt_f32((float[]){-INFINITY, 0, -INFINITY, 0}, 4)};

    mrt_assert_f32(log_sum(x), (float[]){-INFINITY, INFINITY, 1, 0.6931472F},
                   4);
    mrt_assert_f32(mrt_grad(log_sum, 2, x, 0), (float[]){0, 1, 1, 0.5F}, 4);
}

static void
isclose__equal_infinities_are_close(void **state)
{
    (void)state;
    mr_array *a = mrt_f32((float[]){INFINITY, INFINITY, NAN, 1}, 4);
    mr_array *b = mrt_f32((float[]){INFINITY, 1, NAN, 1}, 4);

    mrt_assert_i64(mr_isclose(a, b, 1e-5, 1e-8, false), (int64_t[]){1, 0, 0, 1},
                   4);
    mrt_assert_i64(mr_isclose(a, b, 1e-5, 1e-8, true), (int64_t[]){1, 0, 1, 1},
                   4);
}

static mr_array *
magnitude_squared(mr_array *const *x)
{
    return mr_square(mr_abs(x[0]));
}

static void
abs__complex_gradient_points_along_the_number(void **state)
{
    (void)state;
    mr_array *z = mr_complex(1, 2);
    mr_array *g = mrt_grad(magnitude_squared, 1, &z, 0);

    mrt_assert_close(mr_real(g), (double[]){2}, 1, 1e-6, 0);
    mrt_assert_close(mr_imag(g), (double[]){4}, 1, 1e-6, 0);
}

static void
round__negative_decimals_round_integers_half_to_even(void **state)
{
    (void)state;
    mr_array *a =
        mr_array_from_i32((int32_t[]){15, 25, 35, -15, -25}, MRT_SHAPE(5));

    mrt_assert_i64(mr_round(a, -1), (int64_t[]){20, 20, 40, -20, -20}, 5);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(arctan2__sign_of_zero_picks_the_side),
        mrt_test(arctan2__refuses_complex_numbers),
        mrt_test(add__names_both_shapes_when_they_do_not_broadcast),
        mrt_test(add__null_keeps_the_first_error),
        mrt_test(add__null_alone_names_the_argument),
        mrt_test(add__promotes_mixed_signs_to_the_next_width),
        mrt_test(integers__division_by_zero_is_defined),
        mrt_test(power__slope_of_the_zeroth_power_is_zero_at_zero),
        mrt_test(power__slope_by_the_exponent_is_zero_at_base_zero),
        mrt_test(maximum__a_tie_belongs_to_the_second),
        mrt_test(clip__slope_is_zero_at_a_bound),
        mrt_test(clip__the_upper_bound_wins_where_they_cross),
        mrt_test(where__double_where_has_a_finite_slope),
        mrt_test(logaddexp__infinities_have_shares),
        mrt_test(isclose__equal_infinities_are_close),
        mrt_test(abs__complex_gradient_points_along_the_number),
        mrt_test(round__negative_decimals_round_integers_half_to_even),
    };

    return cmocka_run_group_tests_name("ops/binary", tests, NULL, NULL);
}
