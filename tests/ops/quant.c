/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.c -- quantised arrays from C: trees of results, known values,
 * products, what is refused.
 */
#include <math.h>

#include "ops/gradient.h"

/* A[i] = ((7 i) mod 32 - 15) / 8. */
static mr_array *
row_a(void)
{
    float x[32];

    for (int i = 0; i < 32; i++)
        x[i] = (float)((7 * i) % 32 - 15) / 8.0F;
    return mr_array_from_f32(x, MRT_SHAPE(1, 32));
}

static mr_tree *
quantized(mr_array *w, int64_t group, int64_t bits, const char *mode)
{
    return mr_quantize(w, group, bits, mode, MR_NONE);
}

static mr_array *
part(const mr_tree *q, int i)
{
    return i < mr_tree_size(q) ? mr_tree_array_at(q, i) : MR_NONE;
}

static mr_array *
values(const mr_tree *q, int64_t group, int64_t bits, const char *mode)
{
    return mr_dequantize(part(q, 0), part(q, 1), part(q, 2), group, bits, mode,
                         MR_NONE, MR_FLOAT32);
}

static mr_array *
product(mr_array *x, const mr_tree *q, bool transpose, const char *mode)
{
    return mr_quantized_matmul(x, part(q, 0), part(q, 1), part(q, 2), transpose,
                               MR_INT_NONE, MR_INT_NONE, mode);
}

static mr_array *
waves(int64_t a, int64_t b)
{
    return mr_reshape(mr_sin(mr_arange(MR_INTEGER(0), MR_INTEGER(a * b),
                                       MR_INTEGER(1), MR_FLOAT32)),
                      MRT_SHAPE(a, b));
}

static void
assert_near(mr_array *a, mr_array *b)
{
    mrt_assert_i64(mr_allclose(a, b, 1e-4, 1e-4, false), (int64_t[]){1}, 1);
}

static void
quantize__gives_words_scales_and_biases(void **state)
{
    (void)state;
    mr_tree *q = quantized(row_a(), 32, 4, "affine");

    assert_int_equal(mr_tree_kind_of(q), MR_TREE_TUPLE);
    assert_int_equal(mr_tree_size(q), 3);
    mrt_assert_i64(part(q, 0),
                   (int64_t[]){0x7ae258cf, 0xbe269c04, 0xf26ad048, 0x36ae148c},
                   4);
    mrt_assert_f32(part(q, 1), (float[]){-0.25F}, 1);
    mrt_assert_f32(part(q, 2), (float[]){2.0F}, 1);
}

static void
quantize__gives_bytes_for_scales_of_other_modes(void **state)
{
    (void)state;
    mr_tree *q = quantized(row_a(), MR_INT_NONE, MR_INT_NONE, "nvfp4");

    assert_int_equal(mr_tree_size(q), 2);
    mrt_assert_i64(part(q, 1), (int64_t[]){0x2b, 0x2a}, 2);
    q = mr_quantize(row_a(), MR_INT_NONE, MR_INT_NONE, "nvfp4", mr_float(4));
    mrt_assert_i64(part(q, 1), (int64_t[]){0x76, 0x75}, 2);
}

static void
fp8__bytes_go_there_and_back(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){0, 1, -1.5F, 464, -INFINITY}, 5);
    mr_array *b = mr_to_fp8(x);

    mrt_assert_i64(b, (int64_t[]){0, 0x38, 0xbc, 0x7e, 0xfe}, 5);
    mrt_assert_f32(mr_from_fp8(b, MR_FLOAT32),
                   (float[]){0, 1, -1.5F, 448, -448}, 5);
}

/* Both routes, both sides, each mode. */
static void
quantized_matmul__is_the_product_with_the_values(void **state)
{
    static const char *const modes[] = {"affine", "mxfp4", "mxfp8", "nvfp4"};

    (void)state;
    for (int k = 0; k < 4; k++)
        for (int64_t m = 3; m < 20; m += 9) {
            mr_tree *q =
                quantized(waves(64, 128), MR_INT_NONE, MR_INT_NONE, modes[k]);
            mr_array *v = values(q, MR_INT_NONE, MR_INT_NONE, modes[k]);
            mr_array *x = waves(m, 128), *y = waves(m, 64);

            assert_near(product(x, q, true, modes[k]),
                        mr_matmul(x, mr_transpose(v, MR_INTS_NONE)));
            assert_near(product(y, q, false, modes[k]), mr_matmul(y, v));
        }
}

static void
gather_qmm__takes_the_matrices_that_are_asked_for(void **state)
{
    (void)state;
    mr_tree *q = quantized(mr_reshape(waves(6, 64), MRT_SHAPE(3, 2, 64)), 32, 8,
                           "affine");
    mr_array *x = mr_reshape(waves(1, 64), MRT_SHAPE(1, 1, 64));
    mr_array *rhs = mr_array_from_i32((int32_t[]){2, 0}, MRT_SHAPE(2));
    mr_array *y = mr_gather_qmm(x, part(q, 0), part(q, 1), part(q, 2), MR_NONE,
                                rhs, true, 32, 8, "affine", MR_NONE, false);
    mr_array *v = mr_take(values(q, 32, 8, "affine"), rhs, 0);

    mrt_assert_shape(y, MRT_SHAPE(2, 1, 2));
    assert_near(y, mr_matmul(x, mr_swapaxes(v, -1, -2)));
}

static void
gather_qmm__refuses_an_index_at_evaluation(void **state)
{
    (void)state;
    mr_tree *q =
        quantized(mr_ones(MRT_SHAPE(2, 2, 64), MR_FLOAT32), 64, 4, "affine");
    mr_array *y = mr_gather_qmm(
        mr_ones(MRT_SHAPE(1, 1, 64), MR_FLOAT32), part(q, 0), part(q, 1),
        part(q, 2), MR_NONE, mr_int(2), true, 64, 4, "affine", MR_NONE, false);

    assert_non_null(y);
    assert_int_equal(mr_eval(y), MR_E_INDEX);
    mrt_assert_error(MR_E_INDEX, "index 2 is out of range");
}

static void
bad_input__says_what_would_be_right(void **state)
{
    (void)state;
    mr_array *x = mr_ones(MRT_SHAPE(2, 64), MR_FLOAT32);
    mr_tree *q = quantized(x, 64, 4, "affine");

    assert_null(quantized(x, 48, 4, "affine"));
    mrt_assert_error(MR_E_VALUE, "32, 64 and 128");
    assert_null(quantized(x, 64, 7, "affine"));
    mrt_assert_error(MR_E_VALUE, "1, 2, 3, 4, 5, 6 and 8");
    assert_null(quantized(x, 64, 4, "int4"));
    mrt_assert_error(MR_E_VALUE, "unknown mode 'int4'");
    assert_null(quantized(x, 64, 4, NULL));
    mrt_assert_error(MR_E_VALUE, "no mode");
    assert_null(quantized(mr_ones(MRT_SHAPE(64), MR_FLOAT32), 64, 4, "affine"));
    mrt_assert_error(MR_E_SHAPE, "2 axes");
    assert_null(
        quantized(mr_ones(MRT_SHAPE(2, 64), MR_FLOAT64), 64, 4, "affine"));
    mrt_assert_error(MR_E_DTYPE, "float64");
    assert_null(mr_quantize(x, 64, 4, "affine", mr_float(1)));
    mrt_assert_error(MR_E_VALUE, "only nvfp4");
    assert_null(mr_quantize(NULL, 64, 4, "affine", MR_NONE));
    mrt_assert_error(MR_E_NULL, "'w' is NULL");
    assert_null(mr_dequantize(part(q, 0), part(q, 1), MR_NONE, 64, 4, "affine",
                              MR_NONE, MR_DTYPE_DEFAULT));
    mrt_assert_error(MR_E_VALUE, "no biases");
    assert_null(mr_dequantize(part(q, 0), part(q, 1), part(q, 2), 32, 4,
                              "affine", MR_NONE, MR_DTYPE_DEFAULT));
    mrt_assert_error(MR_E_SHAPE, "(2, 8)");
    assert_null(
        product(mr_ones(MRT_SHAPE(2, 63), MR_FLOAT32), q, true, "affine"));
    mrt_assert_error(MR_E_SHAPE, "must be 64");
    assert_null(mr_qqmm(x, x, MR_NONE, MR_INT_NONE, MR_INT_NONE, "affine",
                        MR_NONE, MR_NONE));
    mrt_assert_error(MR_E_VALUE, "quantized_matmul");
    assert_null(mr_to_fp8(mr_ones(MRT_SHAPE(2), MR_INT32)));
    mrt_assert_error(MR_E_DTYPE, "int32");
    assert_null(mr_from_fp8(x, MR_FLOAT32));
    mrt_assert_error(MR_E_DTYPE, "uint8");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(quantize__gives_words_scales_and_biases),
        mrt_test(quantize__gives_bytes_for_scales_of_other_modes),
        mrt_test(fp8__bytes_go_there_and_back),
        mrt_test(quantized_matmul__is_the_product_with_the_values),
        mrt_test(gather_qmm__takes_the_matrices_that_are_asked_for),
        mrt_test(gather_qmm__refuses_an_index_at_evaluation),
        mrt_test(bad_input__says_what_would_be_right),
    };

    return cmocka_run_group_tests_name("ops/quant", tests, NULL, NULL);
}
