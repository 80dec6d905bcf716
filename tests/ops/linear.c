/* SPDX-License-Identifier: Apache-2.0
 *
 * linear.c -- tests of products, einsum, attention, norms and convolutions:
 * what is refused, and special cases.
 */
#include <math.h>

#include "ops/gradient.h"

static mr_array *
ones(int64_t a, int64_t b)
{
    return mr_ones(MRT_SHAPE(a, b), MR_FLOAT32);
}

static void
matmul__refuses_integers_and_numbers(void **state)
{
    (void)state;
    mr_array *i = mr_ones(MRT_SHAPE(2, 2), MR_INT32);

    assert_null(mr_matmul(i, i));
    mrt_assert_error(MR_E_DTYPE, "int32");
    assert_null(mr_matmul(mr_float(1), ones(2, 2)));
    mrt_assert_error(MR_E_VALUE, "0-d");
}

static void
matmul__names_shapes_that_do_not_fit(void **state)
{
    (void)state;
    assert_null(mr_matmul(ones(2, 3), ones(4, 2)));
    mrt_assert_error(MR_E_SHAPE, "(2, 3) and (4, 2)");
}

static void
matmul__an_empty_inner_axis_gives_zeros(void **state)
{
    (void)state;
    mrt_assert_f32(mr_matmul(ones(2, 0), ones(0, 2)), (float[]){0, 0, 0, 0}, 4);
}

static void
addmm__c_must_broadcast_to_the_product(void **state)
{
    (void)state;
    assert_null(mr_addmm(mr_ones(MRT_SHAPE(3, 2, 2), MR_FLOAT32), ones(2, 2),
                         ones(2, 2), 1, 1));
    mrt_assert_error(MR_E_SHAPE, "(3, 2, 2)");
}

static void
einsum__says_what_is_wrong(void **state)
{
    (void)state;
    mr_array *x[2] = {ones(2, 3), ones(4, 2)};

    assert_null(mr_einsum("ij,jk", x, 2));
    mrt_assert_error(MR_E_SHAPE, "'j' has the sizes 3 and 4");
    assert_null(mr_einsum("ijk,kl", x, 2));
    mrt_assert_error(MR_E_VALUE, "3 labels");
    assert_null(mr_einsum("ij", x, 2));
    mrt_assert_error(MR_E_VALUE, "2 operands");
    assert_null(mr_einsum("ij->ix", x, 1));
    mrt_assert_error(MR_E_VALUE, "'x'");
    assert_null(mr_einsum("ij->ii", x, 1));
    mrt_assert_error(MR_E_VALUE, "twice");
    assert_null(mr_einsum("i?", x, 1));
    mrt_assert_error(MR_E_VALUE, "");
    assert_null(mr_einsum("ii", x, 1));
    mrt_assert_error(MR_E_SHAPE, "2 and 3");
}

static void
softmax__a_row_of_minus_infinity_is_nan(void **state)
{
    (void)state;
    mrt_assert_f32(mr_softmax(mr_full(MRT_SHAPE(2), -INFINITY, MR_FLOAT32),
                              MR_AXES(0), false),
                   (float[]){NAN, NAN}, 2);
}

static void
softmax__large_numbers_do_not_overflow(void **state)
{
    (void)state;
    mrt_assert_f32(
        mr_softmax(mrt_f32((float[]){1e30F, 1e30F}, 2), MR_AXES(0), false),
        (float[]){0.5F, 0.5F}, 2);
}

static void
attention__a_masked_row_stays_finite(void **state)
{
    (void)state;
    mr_array *q = mr_ones(MRT_SHAPE(1, 1, 2, 2), MR_FLOAT32);
    mr_array *v = mr_array_from_f32((float[]){1, 3}, MRT_SHAPE(1, 1, 2, 1));
    mr_array *mask = mr_array_from_bool((bool[]){false, false, true, false},
                                        MRT_SHAPE(2, 2));

    mrt_assert_f32(
        mr_scaled_dot_product_attention(q, q, v, 1, mask, false, MR_NONE),
        (float[]){2, 1}, 2);
}

static void
attention__heads_must_divide(void **state)
{
    (void)state;
    mr_array *q = mr_ones(MRT_SHAPE(1, 3, 2, 2), MR_FLOAT32);
    mr_array *k = mr_ones(MRT_SHAPE(1, 2, 2, 2), MR_FLOAT32);

    assert_null(
        mr_scaled_dot_product_attention(q, k, k, 1, MR_NONE, false, MR_NONE));
    mrt_assert_error(MR_E_SHAPE, "multiple");
}

static void
layer_norm__refuses_a_weight_of_another_size(void **state)
{
    (void)state;
    assert_null(mr_layer_norm(ones(2, 3), mr_ones(MRT_SHAPE(2), MR_FLOAT32),
                              MR_NONE, 1e-5));
    mrt_assert_error(MR_E_SHAPE, "(2");
    assert_null(mr_rms_norm(mr_ones(MRT_SHAPE(2, 3), MR_INT32), MR_NONE, 1e-5));
    mrt_assert_error(MR_E_DTYPE, "int32");
}

static void
rope__needs_one_of_base_and_freqs(void **state)
{
    (void)state;
    assert_null(
        mr_rope(ones(2, 4), 4, false, (double)NAN, 1, mr_int(0), MR_NONE));
    mrt_assert_error(MR_E_VALUE, "exactly one");
}

static void
conv2d__says_what_does_not_fit(void **state)
{
    (void)state;
    mr_array *x = mr_ones(MRT_SHAPE(1, 4, 4, 4), MR_FLOAT32);
    mr_array *w = mr_ones(MRT_SHAPE(2, 3, 3, 4), MR_FLOAT32);

    assert_null(mr_conv2d(x, w, MR_INTS(0), MR_INTS(0), MR_INTS(1), 1));
    mrt_assert_error(MR_E_VALUE, "stride");
    assert_null(mr_conv2d(x, w, MR_INTS(1), MR_INTS(-1), MR_INTS(1), 1));
    mrt_assert_error(MR_E_VALUE, "padding");
    assert_null(mr_conv2d(x, w, MR_INTS(1), MR_INTS(0), MR_INTS(1), 2));
    mrt_assert_error(MR_E_SHAPE, "groups");
    assert_null(mr_conv2d(x, w, MR_INTS(1), MR_INTS(0), MR_INTS(2), 1));
    mrt_assert_error(MR_E_SHAPE, "kernel");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(matmul__refuses_integers_and_numbers),
        mrt_test(matmul__names_shapes_that_do_not_fit),
        mrt_test(matmul__an_empty_inner_axis_gives_zeros),
        mrt_test(addmm__c_must_broadcast_to_the_product),
        mrt_test(einsum__says_what_is_wrong),
        mrt_test(softmax__a_row_of_minus_infinity_is_nan),
        mrt_test(softmax__large_numbers_do_not_overflow),
        mrt_test(attention__a_masked_row_stays_finite),
        mrt_test(attention__heads_must_divide),
        mrt_test(layer_norm__refuses_a_weight_of_another_size),
        mrt_test(rope__needs_one_of_base_and_freqs),
        mrt_test(conv2d__says_what_does_not_fit),
    };

    return cmocka_run_group_tests_name("ops/linear", tests, NULL, NULL);
}
