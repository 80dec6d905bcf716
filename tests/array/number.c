/* SPDX-License-Identifier: Apache-2.0
 *
 * number.c -- tests of single elements as numbers: the casts of the
 * specification.
 */
#include "array/number.h"

#include <math.h>
#include <string.h>

#include "array/dtype.h"
#include "base.h"

static mr_scalar
of_int(int64_t i)
{
    return (mr_scalar){MR_SCALAR_INT, {.i = i}};
}

static mr_scalar
of_float(double f)
{
    return (mr_scalar){MR_SCALAR_FLOAT, {.f = f}};
}

/* v written as t and read back. */
static mr_scalar
as(mr_dtype t, mr_scalar v)
{
    unsigned char bits[16];

    mr__number_write(t, bits, v);
    return mr__number_read(t, bits);
}

static int64_t
int_as(mr_dtype t, mr_scalar v)
{
    mr_scalar s = as(t, v);

    assert_true(s.kind == MR_SCALAR_INT);
    return s.as.i;
}

static void
integers__wrap(void **state)
{
    (void)state;
    assert_int_equal(int_as(MR_UINT8, of_int(-1)), 255);
    assert_int_equal(int_as(MR_UINT8, of_int(300)), 44);
    assert_int_equal(int_as(MR_UINT8, of_int(70000)), 112);
    assert_int_equal(int_as(MR_UINT16, of_int(70000)), 4464);
    assert_int_equal(int_as(MR_INT8, of_int(200)), -56);
    assert_int_equal(int_as(MR_UINT32, of_int(-1)), 4294967295);
    assert_int_equal(as(MR_UINT64, of_int(-1)).kind, MR_SCALAR_UINT);
    assert_true(as(MR_UINT64, of_int(-1)).as.u == UINT64_MAX);
    assert_true(as(MR_BOOL, of_int(200)).as.b);
    assert_false(as(MR_BOOL, of_int(0)).as.b);
}

static void
floats__truncate_and_saturate(void **state)
{
    (void)state;
    assert_int_equal(int_as(MR_INT32, of_float(-1.7)), -1);
    assert_int_equal(int_as(MR_INT32, of_float(1e20)), INT32_MAX);
    assert_int_equal(int_as(MR_INT32, of_float(-INFINITY)), INT32_MIN);
    assert_int_equal(int_as(MR_INT32, of_float(NAN)), 0);
    assert_int_equal(int_as(MR_INT8, of_float(300.0)), 127);
    assert_int_equal(int_as(MR_UINT8, of_float(-3.0)), 0);
    assert_int_equal(int_as(MR_UINT8, of_float(300.0)), 255);
    assert_int_equal(int_as(MR_INT64, of_float(1e30)), INT64_MAX);
    assert_true(as(MR_UINT64, of_float(1e30)).as.u == UINT64_MAX);
    assert_int_equal(int_as(MR_UINT64, of_float(NAN)), 0);
    assert_true(as(MR_BOOL, of_float(NAN)).as.b);
}

static void
complex__drops_its_imaginary_part(void **state)
{
    mr_scalar c = {MR_SCALAR_COMPLEX, {.c = {1.5, 2.0}}};
    mr_scalar j = {MR_SCALAR_COMPLEX, {.c = {0.0, 3.0}}};

    (void)state;
    assert_int_equal(int_as(MR_INT16, c), 1);
    assert_true(as(MR_FLOAT16, c).as.f == 1.5);
    assert_true(as(MR_BOOL, j).as.b);
    assert_true(as(MR_COMPLEX64, c).as.c.im == 2.0);
    assert_true(as(MR_COMPLEX128, of_int(7)).as.c.re == 7.0);
    assert_true(as(MR_COMPLEX128, of_int(7)).as.c.im == 0.0);
}

static void
halves__round_as_the_specification_shows(void **state)
{
    (void)state;
    assert_true(as(MR_FLOAT16, of_float(-1.7)).as.f == -1.7001953125);
    assert_true(as(MR_BFLOAT16, of_float(1.7)).as.f == 1.703125);
    assert_true(as(MR_BFLOAT16, of_float(3e9)).as.f == 3003121664.0);
    assert_true(as(MR_BFLOAT16, of_int(70000)).as.f == 70144.0);
    assert_true(isinf(as(MR_FLOAT16, of_int(70000)).as.f));
    assert_true(as(MR_FLOAT16, of_float(65519.99)).as.f == 65504.0);
    assert_true(isinf(as(MR_FLOAT16, of_float(65520.0)).as.f));
    assert_true(isnan(as(MR_FLOAT16, of_float(NAN)).as.f));
    assert_true(isnan(as(MR_BFLOAT16, of_float(NAN)).as.f));
    assert_true(as(MR_FLOAT16, of_float(0x1p-25)).as.f == 0.0);
    assert_true(as(MR_FLOAT16, of_float(0x1.000002p-25)).as.f == 0x1p-24);
    assert_true(signbit(as(MR_FLOAT16, of_float(-0.0)).as.f));
}

/* Of each two neighbours, what lies just below, on and just above the middle
 * goes to the right one: also when double and float round differently. */
static void
halves__round_once(void **state)
{
    (void)state;
    for (uint16_t h = 0; h < 0x7bff; h++) {
        double a = (double)mr__f16_to_f32(h);
        double b = (double)mr__f16_to_f32((uint16_t)(h + 1));
        double middle = (a + b) / 2;

        assert_true(as(MR_FLOAT16, of_float(a)).as.f == a);
        assert_true(as(MR_FLOAT16, of_float(nextafter(middle, 0))).as.f == a);
        assert_true(as(MR_FLOAT16, of_float(nextafter(middle, 1e9))).as.f == b);
        assert_true(as(MR_FLOAT16, of_float(middle)).as.f ==
                    (h % 2 == 0 ? a : b));
    }
    for (uint16_t h = 0; h < 0x7f7f; h++) {
        double a = (double)mr__bf16_to_f32(h);
        double b = (double)mr__bf16_to_f32((uint16_t)(h + 1));
        double middle = (a + b) / 2;

        assert_true(as(MR_BFLOAT16, of_float(a)).as.f == a);
        assert_true(as(MR_BFLOAT16, of_float(nextafter(middle, 0))).as.f == a);
        assert_true(
            as(MR_BFLOAT16, of_float(nextafter(middle, INFINITY))).as.f == b);
        assert_true(as(MR_BFLOAT16, of_float(middle)).as.f ==
                    (h % 2 == 0 ? a : b));
    }
}

static void
halves__of_large_integers_round_once(void **state)
{
    /* just above the middle of two bfloat16 numbers, by 1 in 2^62 */
    int64_t middle = (INT64_C(1) << 62) + (INT64_C(1) << 54);

    (void)state;
    assert_true(as(MR_BFLOAT16, of_int(middle)).as.f == 0x1p62);
    assert_true(as(MR_BFLOAT16, of_int(middle + 1)).as.f == 0x1.02p62);
    assert_true(as(MR_BFLOAT16, of_int(-middle - 1)).as.f == -0x1.02p62);
}

static void
reading__gives_back_what_was_written(void **state)
{
    (void)state;
    assert_int_equal(int_as(MR_INT8, of_int(-128)), -128);
    assert_int_equal(int_as(MR_INT16, of_int(-3)), -3);
    assert_int_equal(int_as(MR_INT64, of_int(INT64_MIN)), INT64_MIN);
    assert_true(as(MR_FLOAT64, of_float(0.1)).as.f == 0.1);
    assert_true(as(MR_FLOAT32, of_float(0.1)).as.f == (double)0.1F);
    assert_int_equal(mr__number_to_i64(of_float(-2.5)), -2);
    assert_true(mr__number_to_f32(of_int(16777217)) == 16777216.0F);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers__wrap),
        cmocka_unit_test(floats__truncate_and_saturate),
        cmocka_unit_test(complex__drops_its_imaginary_part),
        cmocka_unit_test(halves__round_as_the_specification_shows),
        cmocka_unit_test(halves__round_once),
        cmocka_unit_test(halves__of_large_integers_round_once),
        cmocka_unit_test(reading__gives_back_what_was_written),
    };

    return cmocka_run_group_tests_name("array/number", tests, NULL, NULL);
}
