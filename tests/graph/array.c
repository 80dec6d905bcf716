/* SPDX-License-Identifier: Apache-2.0
 *
 * array.c -- tests of making arrays from memory, asking them, reading them.
 */
#include "marram/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/node.h"
#include "marram/error.h"
#include "marram/eval.h"
#include "marram/ops.h"
#include "mrt.h"
#include "support/scoped.h"

/* ---- making ------------------------------------------------------------- */

static void
from__copies_the_values(void **state)
{
    int32_t v[] = {1, 2, 3, 4, 5, 6}, out[6];
    mr_array *x = mr_array_from_i32(v, MR_SHAPE(2, 3));

    (void)state;
    v[0] = 99;
    assert_int_equal(mr_array_copy_out(x, out, sizeof out), MR_OK);
    assert_int_equal(out[0], 1);
    assert_memory_equal(out + 1, v + 1, 20);
    assert_int_equal(mr_array_dtype(x), MR_INT32);
    assert_int_equal(mr_array_shape(x).n, 2);
    assert_int_equal(mr_array_shape(x).dim[1], 3);
    assert_int_equal(mr_array_strides(x)[0], 3);
    assert_true(mr_array_is_evaluated(x));
    assert_string_equal(mr_array_op(x), "data");
}

static void
from__remembers_the_line(void **state)
{
    float v = 1;
    mr_array *x = mr_array_from(&v, MR_SHAPE(1), MR_FLOAT32);
    mr_array *y = (mr_array_from)(&v, MR_SHAPE(1), MR_FLOAT32);

    (void)state;
    assert_non_null(strstr(mr_array_site(x), "array.c:"));
    assert_string_equal(mr_array_site(y), "");
    assert_null(mr_array_from(&v, MR_SHAPE(-1), MR_FLOAT32));
    assert_non_null(strstr(mr_error_last().site, "array.c:"));
    assert_string_equal(mr_error_take().op, "array");
}

static void
from__refuses_bad_shapes(void **state)
{
    int64_t many[MR_MAX_NDIM + 1] = {0};
    float v = 1;

    (void)state;
    assert_null(mr_array_from(&v, MR_SHAPE(2, -1), MR_FLOAT32));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    assert_null(
        mr_array_from(&v, ((mr_shape){many, MR_MAX_NDIM + 1}), MR_FLOAT32));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    assert_null(mr_array_from(&v, MR_SHAPE_NONE, MR_FLOAT32));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    assert_null(mr_array_from(&v, MR_SHAPE(INT64_MAX, 2), MR_FLOAT32));
    assert_int_equal(mr_error_take().code, MR_E_OVERFLOW);
    assert_null(mr_array_from(&v, MR_SHAPE(INT64_MAX / 2), MR_FLOAT64));
    assert_int_equal(mr_error_take().code, MR_E_OVERFLOW);
    assert_null(mr_array_from(&v, MR_SHAPE(1), (mr_dtype)77));
    assert_int_equal(mr_error_take().code, MR_E_DTYPE);
    assert_null(mr_array_from(NULL, MR_SHAPE(1), MR_FLOAT32));
    assert_int_equal(mr_error_take().code, MR_E_NULL);
    assert_null(mr_array_from(&v, MR_SHAPE(INT64_C(1) << 50), MR_FLOAT32));
    assert_int_equal(mr_error_take().code, MR_E_MEMORY);
}

static void
from__makes_empty_arrays(void **state)
{
    mr_array *x = mr_array_from(NULL, MR_SHAPE(3, 0), MR_FLOAT64);

    (void)state;
    assert_int_equal(mr_array_size(x), 0);
    assert_non_null(mr_array_data(x));
    assert_int_equal(mr_array_copy_out(x, NULL, 0), MR_OK);
    assert_int_equal(mr_array_copy_f32(x, NULL, 0), MR_OK);
}

static void
from__makes_every_nonzero_byte_true(void **state)
{
    const unsigned char bytes[] = {0, 1, 2, 255};
    unsigned char out[4];
    mr_array *x = mr_array_from(bytes, MR_SHAPE(4), MR_BOOL);

    (void)state;
    mr_array_copy_out(x, out, 4);
    assert_memory_equal(out, ((unsigned char[]){0, 1, 1, 1}), 4);
}

static void
scalars__have_their_dtypes(void **state)
{
    mr_scalar u = {MR_SCALAR_UINT, {.u = UINT64_MAX}}, v;

    (void)state;
    assert_int_equal(mr_array_dtype(mr_float(1)), MR_FLOAT32);
    assert_int_equal(mr_array_dtype(mr_int(1)), MR_INT32);
    assert_int_equal(mr_array_dtype(mr_int(INT32_MIN)), MR_INT32);
    assert_int_equal(mr_array_dtype(mr_int(INT64_C(1) << 31)), MR_INT64);
    assert_int_equal(mr_array_dtype(mr_bool(true)), MR_BOOL);
    assert_int_equal(mr_array_dtype(mr_complex(1, 2)), MR_COMPLEX64);
    assert_int_equal(mr_array_dtype(mr_array_from_scalar(u, MR_DTYPE_DEFAULT)),
                     MR_UINT64);
    mr_array_item(mr_array_from_scalar(u, MR_DTYPE_DEFAULT), &v);
    assert_true(v.kind == MR_SCALAR_UINT && v.as.u == UINT64_MAX);
    assert_null(mr_array_from_scalar(u, (mr_dtype)40));
    assert_int_equal(mr_error_take().code, MR_E_DTYPE);
    mr_array_item(mr_complex(1.5, -2), &v);
    assert_true(v.kind == MR_SCALAR_COMPLEX && v.as.c.im == -2.0);
    assert_true(mr_array_item_f64(mr_number_like(mr_int(1), 2.75)) == 2.0);
    assert_int_equal(mr_array_dtype(mr_number_like(mr_complex(1, 1), 2)),
                     MR_COMPLEX64);
    assert_null(mr_number_like(NULL, 2));
    assert_int_equal(mr_error_take().code, MR_E_NULL);
}

/* ---- over the caller's memory ------------------------------------------- */

static int n_freed;

static void
count_free(void *ctx, void *data)
{
    assert_ptr_equal(ctx, &n_freed);
    (void)data;
    n_freed++;
}

static void
wrap__reads_the_callers_memory(void **state)
{
    static int16_t v[] = {0, 1, 2, 3, 4, 5};
    int64_t strides[] = {-1, 3};
    mr_array *x;
    int64_t out[6];

    (void)state;
    n_freed = 0;
    x = mr_array_wrap(v + 2, MR_SHAPE(3, 2), strides, MR_INT16, count_free,
                      &n_freed);
    assert_ptr_equal(mr_array_data(x), v + 2);
    assert_int_equal(mr_array_copy_i64(x, out, 6), MR_OK);
    assert_memory_equal(out, ((int64_t[]){2, 5, 1, 4, 0, 3}), sizeof out);
    assert_true(x->buffer->read_only);
    assert_int_equal(n_freed, 0);
    mr_scope_end(test_scope);
    assert_int_equal(n_freed, 1);
    test_scope = mr_scope_begin();
}

static void
wrap__frees_also_when_it_fails(void **state)
{
    static float v[4];

    (void)state;
    n_freed = 0;
    assert_null(
        mr_array_wrap(v, MR_SHAPE(-4), NULL, MR_FLOAT32, count_free, &n_freed));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    assert_int_equal(n_freed, 1);
    assert_null(mr_array_wrap((char *)v + 1, MR_SHAPE(2), NULL, MR_FLOAT32,
                              count_free, &n_freed));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    assert_int_equal(n_freed, 2);
}

/* ---- asking and reading ------------------------------------------------- */

static void
getters__accept_null(void **state)
{
    mr_array *absent[] = {NULL, MR_NONE};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mr_array_ndim(absent[i]), -1);
        assert_int_equal(mr_array_size(absent[i]), -1);
        assert_int_equal(mr_array_dtype(absent[i]), MR_DTYPE_DEFAULT);
        assert_int_equal(mr_array_nbytes(absent[i]), 0);
        assert_int_equal(mr_array_shape(absent[i]).n, -1);
        assert_false(mr_array_is_evaluated(absent[i]));
        assert_false(mr_array_is_tracer(absent[i]));
        assert_string_equal(mr_array_site(absent[i]), "");
        assert_string_equal(mr_array_op(absent[i]), "");
    }
    assert_int_equal(mr_error_last().code, MR_OK);
    assert_int_equal(mr_array_dim(NULL, 0), -1);
    assert_int_equal(mr_error_take().code, MR_E_NULL);
    assert_int_equal(mr_array_dim(mr_float(1), 0), -1);
    assert_int_equal(mr_error_take().code, MR_E_INDEX);
}

static void
reading__names_what_is_wrong(void **state)
{
    float v[4] = {1, 2, 3, 4};
    mr_array *x = mr_array_from_f32(v, MR_SHAPE(4));
    mr_scalar s;

    (void)state;
    assert_int_equal(mr_array_copy_out(x, v, 15), MR_E_VALUE);
    assert_int_equal(mr_array_copy_f32(x, v, 3), MR_E_VALUE);
    assert_int_equal(mr_array_copy_f32(x, NULL, 4), MR_E_NULL);
    assert_int_equal(mr_array_item(x, &s), MR_E_VALUE);
    assert_true(isnan(mr_array_item_f64(x)));
    mr_error_take();
    assert_int_equal(mr_array_copy_f32(NULL, v, 3), MR_E_NULL);
    mr_error_set(MR_E_SHAPE, "first");
    assert_int_equal(mr_array_copy_f32(NULL, v, 3), MR_E_SHAPE);
    assert_null(mr_array_data(NULL));
    assert_null(mr_array_strides(NULL));
    assert_null(mr_array_text(NULL, -1));
    assert_int_equal(mr_error_take().code, MR_E_SHAPE);
}

static void
reading__converts(void **state)
{
    double v[] = {-1.7, 1e20, (double)NAN};
    float f[3];
    int64_t i[3];
    mr_array *x = mr_array_from_f64(v, MR_SHAPE(3));

    (void)state;
    assert_int_equal(mr_array_copy_f32(x, f, 3), MR_OK);
    assert_true(f[0] == -1.7F && f[1] == 1e20F && isnan(f[2]));
    assert_int_equal(mr_array_copy_i64(x, i, 3), MR_OK);
    assert_int_equal(i[0], -1);
    assert_true(i[1] == INT64_MAX);
    assert_int_equal(i[2], 0);
    x = mr_array_from((uint16_t[]){0x3c00, 0xc000}, MR_SHAPE(2), MR_FLOAT16);
    assert_int_equal(mr_array_copy_f32(x, f, 2), MR_OK);
    assert_true(f[0] == 1.0F && f[1] == -2.0F);
    x = mr_array_from((mr_c64[]){{1, 2}}, MR_SHAPE(1), MR_COMPLEX64);
    assert_int_equal(mr_array_copy_f64(x, v, 1), MR_OK);
    assert_true(v[0] == 1.0);
}

/* All strided layouts of up to 4 dims against an index by index walk. */
static void
reading__follows_the_strides(void **state)
{
    static int32_t memory[4096];

    (void)state;
    srand(3);
    for (int i = 0; i < 4096; i++)
        memory[i] = i;
    for (int rep = 0; rep < 3000; rep++) {
        int64_t dim[4], stride[4], out[256], k = 0, size = 1;
        int32_t copy[256];
        int ndim = rand() % 5;
        mr_scope s = mr_scope_begin();
        mr_array *x;

        for (int i = 0; i < ndim; i++) {
            dim[i] = rand() % 5;
            stride[i] = rand() % 200 - 100;
            size *= dim[i];
        }
        if (size <= 256) {
            x = mr_array_wrap(memory + 2048, (mr_shape){dim, ndim}, stride,
                              MR_INT32, NULL, NULL);
            assert_int_equal(mr_array_copy_i64(x, out, size), MR_OK);
            assert_int_equal(mr_array_copy_out(x, copy, sizeof copy), MR_OK);
            for (k = 0; k < size; k++) {
                int64_t at = 2048, rest = k;

                for (int i = ndim - 1; i >= 0; i--) {
                    at += rest % dim[i] * stride[i];
                    rest /= dim[i];
                }
                assert_int_equal(out[k], at);
                assert_int_equal(copy[k], at);
            }
        }
        mr_scope_end(s);
    }
}

static void
exported__memory_is_marked(void **state)
{
    mr_array *x = mr_array_from_f32((float[]){1, 2}, MR_SHAPE(2));
    float *p = mr_array_data_exported(x);

    (void)state;
    assert_true(x->buffer->exported_writable);
    p[1] = 7;
    assert_true(((const float *)mr_array_data(x))[1] == 7.0F);
}

/* ---- failures ----------------------------------------------------------- */

static bool
make_and_print(void *arg)
{
    mr_scope s = mr_scope_begin();
    mr_array *x = mr_array_from_f32(arg, MR_SHAPE(4));
    mr_array *y = mr_array_wrap(arg, MR_SHAPE(2, 2), NULL, MR_FLOAT32,
                                count_free, &n_freed);
    char *text = x && y ? mr_array_text(y, -1) : NULL;
    bool ok = text != NULL;

    mr_text_free(text);
    mr_scope_end(s);
    return ok;
}

static void
entry__of_an_evaluated_array_is_its_memory(void **state)
{
    float data[6] = {0, 1, 2, 3, 4, 5}, *first;
    mr_array *x = mr_array_from_f32(data, MR_SHAPE(3, 2)), *y, *z;

    (void)state;
    first = mr_array_data_exported(x);
    y = mr_array_entry(x, 2);
    assert_true(mr_array_is_evaluated(y));
    assert_ptr_equal(mr_array_data(y), first + 4);
    assert_int_equal(mr_array_ndim(y), 1);
    assert_non_null(strstr(mr_array_site(y), "array.c:"));
    assert_true(mr_array_item_f64(mr_array_entry(y, 1)) == 5.0);
    z = mr_add(x, x);
    y = mr_array_entry(z, 1);
    assert_false(mr_array_is_evaluated(y));
    assert_true(mr_array_item_f64(mr_array_entry(y, 0)) == 4.0);
    assert_null(mr_array_entry(x, 3));
    mrt_assert_error(MR_E_INDEX, "entry 3 of an axis of size 3");
    assert_null(mr_array_entry(x, -1));
    mrt_assert_error(MR_E_INDEX, "entry -1");
    assert_null(mr_array_entry(mr_float(1), 0));
    mrt_assert_error(MR_E_INDEX, "0-d");
    assert_null(mr_array_entry(NULL, 0));
    mrt_assert_error(MR_E_NULL, "x");
}

static const char *
somewhere(void)
{
    return mr_site_intern("somewhere", 7);
}

static void
reads__are_counted_by_line(void **state)
{
    mr_read_line line[4];
    mr_array *x = mr_float(2);
    float f;
    int n;

    (void)state;
    mr_read_stats_reset();
    mr_set_read_site(somewhere);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mr_array_copy_f32(mr_add(x, x), &f, 1), MR_OK);
    mr_set_read_site(NULL);
    assert_int_equal(mr_array_copy_f32(mr_add(x, x), &f, 1), MR_OK);
    assert_int_equal(mr_array_copy_f32(x, &f, 1), MR_OK);
    assert_int_equal(mr_read_stats(line, 4, &n), 4);
    assert_int_equal(n, 2);
    assert_string_equal(line[0].site, "somewhere:7");
    assert_int_equal(line[0].count, 3);
    assert_string_equal(line[1].site, "");
    assert_int_equal(mr_read_stats(NULL, 0, NULL), 4);
    mr_read_stats_reset();
    assert_int_equal(mr_read_stats(line, 4, &n), 0);
    assert_int_equal(n, 0);
}

static void
failures__leave_nothing_behind(void **state)
{
    float v[4] = {1, 2, 3, 4};
    int failures;

    (void)state;
    make_and_print(v);
    n_freed = 0;
    failures = mrt_each_failure(make_and_print, v);
    assert_true(failures >= 4);
    assert_int_equal(n_freed, failures + 1);
}

/* The first evaluation makes what the process keeps: streams, workers. */
static int
warm_up(void **state)
{
    mr_array *x = mr_float(1), *y = mr_add(x, x);
    mr_code code = mr_eval(y);

    (void)state;
    mr_release(x);
    mr_release(y);
    return code;
}

int
main(void)
{
#define TEST(f) SCOPED_WHOLE(f)
    const struct CMUnitTest tests[] = {
        TEST(from__copies_the_values),
        TEST(from__remembers_the_line),
        TEST(from__refuses_bad_shapes),
        TEST(from__makes_empty_arrays),
        TEST(from__makes_every_nonzero_byte_true),
        TEST(scalars__have_their_dtypes),
        TEST(wrap__reads_the_callers_memory),
        TEST(wrap__frees_also_when_it_fails),
        TEST(getters__accept_null),
        TEST(reading__names_what_is_wrong),
        TEST(reading__converts),
        TEST(reading__follows_the_strides),
        TEST(exported__memory_is_marked),
        TEST(entry__of_an_evaluated_array_is_its_memory),
        TEST(reads__are_counted_by_line),
        TEST(failures__leave_nothing_behind),
    };

    return cmocka_run_group_tests_name("graph/array", tests, warm_up, NULL);
}
