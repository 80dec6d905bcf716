/* SPDX-License-Identifier: Apache-2.0
 *
 * dtype.c -- tests of the tables of element types.
 */
#include <string.h>

#include "array/dtype.h"
#include "base.h"
#include "marram/array.h"
#include "marram/error.h"

/* The specification's matrix, one row a line, in the order of the enum; the
 * last row and column (complex128) and float64 with complex64 are Marram's. */
static const char *const matrix[MR_N_DTYPES] = {
    "b u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128",
    "u8 u8 u16 u32 u64 i16 i16 i32 i64 f16 bf16 f32 f64 c64 c128",
    "u16 u16 u16 u32 u64 i32 i32 i32 i64 f16 bf16 f32 f64 c64 c128",
    "u32 u32 u32 u32 u64 i64 i64 i64 i64 f16 bf16 f32 f64 c64 c128",
    "u64 u64 u64 u64 u64 f32 f32 f32 f32 f16 bf16 f32 f64 c64 c128",
    "i8 i16 i32 i64 f32 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128",
    "i16 i16 i32 i64 f32 i16 i16 i32 i64 f16 bf16 f32 f64 c64 c128",
    "i32 i32 i32 i64 f32 i32 i32 i32 i64 f16 bf16 f32 f64 c64 c128",
    "i64 i64 i64 i64 f32 i64 i64 i64 i64 f16 bf16 f32 f64 c64 c128",
    "f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f32 f32 f64 c64 c128",
    "bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32 bf16 f32 f64 c64 c128",
    "f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64 c64 c128",
    "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 c128 c128",
    "c64 c64 c64 c64 c64 c64 c64 c64 c64 c64 c64 c64 c128 c64 c128",
    ("c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 "
     "c128"),
};

static const char *const short_name[MR_N_DTYPES] = {
    "b",   "u8",  "u16",  "u32", "u64", "i8",  "i16",  "i32",
    "i64", "f16", "bf16", "f32", "f64", "c64", "c128",
};

static mr_dtype
dtype_of(const char *name, size_t n)
{
    for (int i = 0; i < MR_N_DTYPES; i++)
        if (strlen(short_name[i]) == n && strncmp(short_name[i], name, n) == 0)
            return (mr_dtype)i;
    fail_msg("no dtype %.*s", (int)n, name);
    return MR_BOOL;
}

static void
promote__is_the_matrix_of_the_specification(void **state)
{
    (void)state;
    for (int a = 0; a < MR_N_DTYPES; a++) {
        const char *at = matrix[a];

        for (int b = 0; b < MR_N_DTYPES; b++) {
            size_t n = strcspn(at, " ");

            assert_int_equal(mr_promote_types((mr_dtype)a, (mr_dtype)b),
                             dtype_of(at, n));
            at += n + (at[n] == ' ');
        }
        assert_int_equal(*at, '\0');
    }
}

static void
promote__is_symmetric(void **state)
{
    (void)state;
    for (int a = 0; a < MR_N_DTYPES; a++)
        for (int b = 0; b < MR_N_DTYPES; b++)
            assert_int_equal(mr__promote((mr_dtype)a, (mr_dtype)b),
                             mr__promote((mr_dtype)b, (mr_dtype)a));
}

static void
promote__refuses_what_is_no_dtype(void **state)
{
    (void)state;
    assert_int_equal(mr_promote_types((mr_dtype)15, MR_INT8), MR_DTYPE_DEFAULT);
    assert_int_equal(mr_error_take().code, MR_E_DTYPE);
    assert_int_equal(mr_promote_types(MR_INT8, (mr_dtype)-2), MR_DTYPE_DEFAULT);
    assert_int_equal(mr_error_take().code, MR_E_DTYPE);
}

static void
scalars__are_weak(void **state)
{
    (void)state;
    for (int i = 0; i < MR_N_DTYPES; i++) {
        mr_dtype t = (mr_dtype)i;
        bool is_bool = t == MR_BOOL, inexact = t >= MR_FLOAT16;
        mr_dtype complex = t == MR_FLOAT64 || t == MR_COMPLEX128 ? MR_COMPLEX128
                                                                 : MR_COMPLEX64;

        assert_int_equal(mr_promote_scalar(t, MR_SCALAR_BOOL), t);
        assert_int_equal(mr_promote_scalar(t, MR_SCALAR_INT),
                         is_bool ? MR_INT32 : t);
        assert_int_equal(mr_promote_scalar(t, MR_SCALAR_UINT),
                         is_bool ? MR_UINT64 : t);
        assert_int_equal(mr_promote_scalar(t, MR_SCALAR_FLOAT),
                         inexact ? t : MR_FLOAT32);
        assert_int_equal(mr_promote_scalar(t, MR_SCALAR_COMPLEX), complex);
    }
}

static void
names__lead_back_to_the_dtype(void **state)
{
    mr_dtype t;

    (void)state;
    for (int i = 0; i < MR_N_DTYPES; i++) {
        assert_true(mr_dtype_from_name(mr_dtype_name((mr_dtype)i), &t));
        assert_int_equal(t, i);
    }
    assert_true(mr_dtype_from_name("bool_", &t));
    assert_int_equal(t, MR_BOOL);
    assert_false(mr_dtype_from_name("float33", &t));
    assert_false(mr_dtype_from_name(NULL, &t));
    assert_string_equal(mr_dtype_name(MR_BFLOAT16), "bfloat16");
}

static void
facts__fit_the_dtype(void **state)
{
    static const size_t bytes[] = {1, 1, 2, 4, 8, 1, 2, 4,
                                   8, 2, 2, 4, 8, 8, 16};

    (void)state;
    for (int i = 0; i < MR_N_DTYPES; i++) {
        assert_int_equal(mr_dtype_size((mr_dtype)i), bytes[i]);
        assert_int_equal(mr_dtype_is_integer((mr_dtype)i), i >= 1 && i <= 8);
        assert_int_equal(mr_dtype_is_inexact((mr_dtype)i), i >= 9);
        assert_int_equal(mr_dtype_is_complex((mr_dtype)i), i >= 13);
    }
    assert_int_equal(mr_dtype_size((mr_dtype)99), 0);
}

static void
results__of_sums_and_floats(void **state)
{
    (void)state;
    assert_int_equal(mr__sum_dtype(MR_BOOL), MR_INT32);
    assert_int_equal(mr__sum_dtype(MR_INT8), MR_INT32);
    assert_int_equal(mr__sum_dtype(MR_INT16), MR_INT32);
    assert_int_equal(mr__sum_dtype(MR_UINT8), MR_UINT32);
    assert_int_equal(mr__sum_dtype(MR_UINT16), MR_UINT32);
    assert_int_equal(mr__sum_dtype(MR_INT64), MR_INT64);
    assert_int_equal(mr__sum_dtype(MR_FLOAT16), MR_FLOAT16);
    assert_int_equal(mr__to_inexact(MR_INT64), MR_FLOAT32);
    assert_int_equal(mr__to_inexact(MR_BFLOAT16), MR_BFLOAT16);
    assert_int_equal(mr__to_real(MR_COMPLEX64), MR_FLOAT32);
    assert_int_equal(mr__to_real(MR_COMPLEX128), MR_FLOAT64);
    assert_int_equal(mr__accumulate_dtype(MR_BFLOAT16), MR_FLOAT32);
    assert_int_equal(mr__accumulate_dtype(MR_FLOAT64), MR_FLOAT64);
}

static void
version__is_a_number_too(void **state)
{
    (void)state;
    assert_string_equal(mr_version(), "0.1.0");
    assert_int_equal(mr_version_number(), 100);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promote__is_the_matrix_of_the_specification),
        cmocka_unit_test(promote__is_symmetric),
        cmocka_unit_test(promote__refuses_what_is_no_dtype),
        cmocka_unit_test(scalars__are_weak),
        cmocka_unit_test(names__lead_back_to_the_dtype),
        cmocka_unit_test(facts__fit_the_dtype),
        cmocka_unit_test(results__of_sums_and_floats),
        cmocka_unit_test(version__is_a_number_too),
    };

    return cmocka_run_group_tests_name("array/dtype", tests, NULL, NULL);
}
