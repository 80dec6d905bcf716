/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c -- tests of printing: the examples of the specification.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base.h"
#include "marram/array.h"
#include "marram/error.h"
#include "marram/scope.h"

/* x is released. */
static void
assert_prints(mr_array *x, int precision, const char *want)
{
    char *text = mr_array_text(x, precision);

    assert_non_null(text);
    assert_string_equal(text, want);
    mr_text_free(text);
    mr_release(x);
}

static mr_array *
counting(mr_shape shape)
{
    int32_t v[512];

    for (int i = 0; i < 512; i++)
        v[i] = i;
    return mr_array_from_i32(v, shape);
}

static void
numbers__have_six_digits(void **state)
{
    float v[] = {0.1F, 1e10F, 1e-10F, 123456789.0F, -NAN, INFINITY};

    (void)state;
    assert_prints(mr_float(3.0), -1, "array(3, dtype=float32)");
    assert_prints(mr_float(-0.0), -1, "array(-0, dtype=float32)");
    assert_prints(mr_array_from_f32(v, MR_SHAPE(6)), -1,
                  "array([0.1, 1e+10, 1e-10, 1.23457e+08, nan, inf], "
                  "dtype=float32)");
    assert_prints(mr_float(-INFINITY), -1, "array(-inf, dtype=float32)");
    assert_prints(mr_array_from_f64((double[]){0.1, 1e-300}, MR_SHAPE(2)), -1,
                  "array([0.1, 1e-300], dtype=float64)");
    assert_prints(
        mr_array_from((uint16_t[]){0x2e66, 0x7bff}, MR_SHAPE(2), MR_FLOAT16),
        -1, "array([0.0999756, 65504], dtype=float16)");
    assert_prints(
        mr_array_from((uint16_t[]){0x3dcd, 0x7f62}, MR_SHAPE(2), MR_BFLOAT16),
        -1, "array([0.100098, 3.00406e+38], dtype=bfloat16)");
}

static void
numbers__of_other_kinds(void **state)
{
    mr_c64 c[] = {{1, 2}, {-1.5F, -0.25F}};

    (void)state;
    assert_prints(mr_array_from_bool((bool[]){true, false}, MR_SHAPE(2)), -1,
                  "array([True, False], dtype=bool)");
    assert_prints(mr_array_from(c, MR_SHAPE(2), MR_COMPLEX64), -1,
                  "array([1+2j, -1.5-0.25j], dtype=complex64)");
    assert_prints(mr_complex((double)NAN, (double)NAN), -1,
                  "array(nan+nanj, dtype=complex64)");
    assert_prints(mr_array_from_i64((int64_t[]){INT64_C(1) << 40}, MR_SHAPE(1)),
                  -1, "array([1099511627776], dtype=int64)");
    assert_prints(
        mr_array_from((uint64_t[]){UINT64_MAX}, MR_SHAPE(1), MR_UINT64), -1,
        "array([18446744073709551615], dtype=uint64)");
    assert_prints(mr_array_from((int8_t[]){-128}, MR_SHAPE(1), MR_INT8), -1,
                  "array([-128], dtype=int8)");
}

static void
empty__shows_its_shape(void **state)
{
    (void)state;
    assert_prints(mr_array_from(NULL, MR_SHAPE(0), MR_FLOAT32), -1,
                  "array([], dtype=float32)");
    assert_prints(mr_array_from(NULL, MR_SHAPE(2, 0), MR_FLOAT32), -1,
                  "array([[],\n       []], dtype=float32)");
    assert_prints(mr_array_from(NULL, MR_SHAPE(0, 2), MR_FLOAT32), -1,
                  "array([], dtype=float32)");
}

static void
long_axes__are_shortened(void **state)
{
    (void)state;
    assert_prints(counting(MR_SHAPE(6)), -1,
                  "array([0, 1, 2, 3, 4, 5], dtype=int32)");
    assert_prints(counting(MR_SHAPE(7)), -1,
                  "array([0, 1, 2, ..., 4, 5, 6], dtype=int32)");
    assert_prints(counting(MR_SHAPE(8, 8)), -1,
                  "array([[0, 1, 2, ..., 5, 6, 7],\n"
                  "       [8, 9, 10, ..., 13, 14, 15],\n"
                  "       [16, 17, 18, ..., 21, 22, 23],\n"
                  "       ...,\n"
                  "       [40, 41, 42, ..., 45, 46, 47],\n"
                  "       [48, 49, 50, ..., 53, 54, 55],\n"
                  "       [56, 57, 58, ..., 61, 62, 63]], dtype=int32)");
}

static void
rows__are_indented_by_depth(void **state)
{
    float zeros[8] = {0};

    (void)state;
    assert_prints(mr_array_from_f32(zeros, MR_SHAPE(2, 2, 2)), -1,
                  "array([[[0, 0],\n"
                  "        [0, 0]],\n"
                  "       [[0, 0],\n"
                  "        [0, 0]]], dtype=float32)");
}

static void
strides__are_followed(void **state)
{
    static int32_t v[] = {0, 1, 2, 3, 4, 5};

    (void)state;
    assert_prints(mr_array_wrap(v, MR_SHAPE(3, 2), (int64_t[]){1, 3}, MR_INT32,
                                NULL, NULL),
                  -1,
                  "array([[0, 3],\n       [1, 4],\n       [2, 5]], "
                  "dtype=int32)");
}

static void
precision__is_fixed_notation(void **state)
{
    float v[] = {0.123456F, 1e10F, 2.0F};
    mr_c64 c = {1.25F, -2};

    (void)state;
    assert_prints(mr_array_from_f32(v, MR_SHAPE(3)), 3,
                  "array([0.123, 10000000000.000, 2.000], dtype=float32)");
    assert_prints(mr_array_from_f32(v, MR_SHAPE(3)), 0,
                  "array([0, 10000000000, 2], dtype=float32)");
    assert_prints(mr_array_from(&c, MR_SCALAR_SHAPE, MR_COMPLEX64), 2,
                  "array(1.25-2.00j, dtype=complex64)");
    assert_prints(mr_float((double)NAN), 2, "array(nan, dtype=float32)");
    assert_prints(mr_int(5), 2, "array(5, dtype=int32)");
}

static void
precision__of_any_size_is_safe(void **state)
{
    double v[] = {1.7e308, -1.7e308};
    mr_array *x = mr_array_from_f64(v, MR_SHAPE(2));
    char *text = mr_array_text(x, 1000000);

    (void)state;
    assert_non_null(text);
    assert_true(strlen(text) > 2 * 309);
    mr_text_free(text);
    mr_release(x);
}

static void
locale__changes_nothing(void **state)
{
    static const char *const with_comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8",
                                             "de_DE", "fr_FR"};

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(with_comma); i++)
        if (setlocale(LC_ALL, with_comma[i]))
            break;
    assert_prints(mr_float(0.5), -1, "array(0.5, dtype=float32)");
    setlocale(LC_ALL, "C");
}

static void
print__writes_a_line(void **state)
{
    char text[64] = "";
    int ends[2], out = dup(1);
    mr_array *x = mr_int(4);

    (void)state;
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    dup2(ends[1], 1);
    assert_int_equal(mr_print(x), MR_OK);
    fflush(stdout);
    dup2(out, 1);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    close(ends[1]);
    close(out);
    assert_string_equal(text, "array(4, dtype=int32)\n");
    mr_release(x);
    assert_int_equal(mr_print(NULL), MR_E_NULL);
    mr_error_take();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers__have_six_digits),
        cmocka_unit_test(numbers__of_other_kinds),
        cmocka_unit_test(empty__shows_its_shape),
        cmocka_unit_test(long_axes__are_shortened),
        cmocka_unit_test(rows__are_indented_by_depth),
        cmocka_unit_test(strides__are_followed),
        cmocka_unit_test(precision__is_fixed_notation),
        cmocka_unit_test(precision__of_any_size_is_safe),
        cmocka_unit_test(locale__changes_nothing),
        cmocka_unit_test(print__writes_a_line),
    };

    return cmocka_run_group_tests_name("graph/text", tests, NULL, NULL);
}
