/* SPDX-License-Identifier: Apache-2.0
 *
 * device_compiled.c -- compiled functions on devices with memory of their own:
 * the same bits as eager calls, without a copy that is not needed.
 */
#include <stdio.h>
#include <string.h>

#include "devices.h"

static mr_tree *
twice_plus_one(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    (void)ctx;
    return mr_tree_leaf(mr_add(mr_multiply(x, mr_float(2.0)), mr_float(1.0)));
}

static void
compiled__function_takes_arrays_of_any_device(void **state)
{
    (void)state;
    mr_function *f = mr_compile(twice_plus_one, NULL, NULL);
    mr_array *x = far_numbers(0, 4), *y;
    mr_stream s = mrt_on(MRT_FAR(1));

    for (int i = 0; i < 2; i++) {
        mr_tree *in = mr_tree_arrays(1, &x);

        y = mr_tree_array(mr_call(f, in));
        expect_from(y, 3, 2);
    }
    mrt_off(s);
    mr_function_release(f);
}

/* A bit of everything: a block, reductions, kernels with workspaces and tuples,
 * views, copies of views, captured arrays, an unused result. */
typedef struct captured {
    mr_array *w, *turned;
} captured;

static mr_tree *
many_steps(void *ctx, const mr_tree *in)
{
    const captured *c = ctx;
    mr_array *x = mr_tree_array_at(in, 0), *y, *z;

    y = mr_matmul(mr_tanh(x), c->w);
    z = mr_softmax(mr_add(y, mr_matmul(x, c->turned)), MR_AXES(-1), false);
    y = mr_reshape(mr_transpose(mr_multiply(z, x), MR_INTS_NONE),
                   MRT_SHAPE(36));
    return mr_tree_arrays(
        4,
        (mr_array *[]){z, mr_sum(y, MR_AXES_ALL, false),
                       mr_index_slice(y, MR_INTS(3), MR_INTS(30), MR_INTS(3)),
                       mr_argmax(z, 1, false)});
}

static void
expect_equal_bits(mr_array *a, mr_array *b)
{
    assert_int_equal(mr_array_nbytes(a), mr_array_nbytes(b));
    a = mr_contiguous(a, false);
    b = mr_contiguous(b, false);
    assert_memory_equal(mr_array_data(a), mr_array_data(b), mr_array_nbytes(a));
}

static captured
captured_arrays(void)
{
    mr_array *w =
        mr_add(mr_reshape(host_numbers(36), MRT_SHAPE(6, 6)), mr_float(0.25));
    captured c = {mr_divide(w, mr_float(7.0)),
                  mr_transpose(mr_divide(w, mr_float(9.0)), MR_INTS_NONE)};

    assert_int_equal(mr_eval(c.turned), MR_OK);
    return c;
}

static void
compiled__function_runs_on_its_device(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    captured c = captured_arrays();
    mr_function *f = mr_compile(many_steps, &c, NULL);
    mr_cache_info info = {.size = sizeof info};

    for (int i = 0; i < 6; i++) {
        mr_array *x = mr_divide(mr_reshape(host_numbers(36), MRT_SHAPE(6, 6)),
                                mr_float(3.0 + i));
        mr_stream s = mrt_on(MRT_FAR(i % 2));
        mr_tree *in = mr_tree_arrays(1, &x), *eager = many_steps(&c, in), *out;
        far_figures figures;

        assert_int_equal(mr_eval_tree(eager), MR_OK);
        assert_int_equal(mr_eval(x), MR_OK);
        far->figures();
        out = mr_call(f, in);
        assert_int_equal(mr_eval_tree(out), MR_OK);
        figures = far->figures();
        assert_true(figures.launches >= 5);
        assert_int_equal(figures.from_device, 0);
        for (int k = 0; k < 4; k++) {
            mr_array *got = mr_tree_array_at(out, k);

            assert_int_not_equal(got->buffer->space, 0);
            expect_equal_bits(got, mr_tree_array_at(eager, k));
        }
        mrt_off(s);
    }
    assert_int_equal(mr_function_cache_info(f, &info), MR_OK);
    assert_int_equal(info.traces, 2); /* one for each device */
    mr_function_release(f);
}

static void
compiled__function_follows_the_default_device(void **state)
{
    (void)state;
    captured c = captured_arrays();
    mr_function *f = mr_compile(many_steps, &c, NULL);
    mr_array *x =
        mr_divide(mr_reshape(host_numbers(36), MRT_SHAPE(6, 6)), mr_float(3.0));
    mr_tree *in = mr_tree_arrays(1, &x), *out[3];
    mr_device old, far0 = MRT_FAR(0);

    mrt_far();
    out[0] = mr_call(f, in);
    assert_int_equal(mr_device_scope(&far0, &old), MR_OK);
    out[1] = mr_call(f, in);
    assert_int_equal(mr_device_scope(NULL, NULL), MR_OK);
    out[2] = mr_call(f, in);
    for (int i = 0; i < 3; i++) { /* wherever they are asked for */
        assert_int_equal(mr_eval_tree(out[i]), MR_OK);
        assert_int_equal(mr_tree_array_at(out[i], 0)->buffer->space != 0,
                         i == 1);
        for (int k = 0; k < 4; k++)
            expect_equal_bits(mr_tree_array_at(out[i], k),
                              mr_tree_array_at(out[0], k));
    }
    mr_function_release(f);
}

/* Values that place.c writes over one another, a captured array, a reduction.
 */
static mr_tree *
scaled(void *ctx, const mr_tree *in)
{
    mr_array *w = ctx, *x = mr_tree_array_at(in, 0), *y;

    y = mr_add(mr_multiply(x, w), mr_exp(mr_negative(x)));
    return mr_tree_arrays(
        2, (mr_array *[]){mr_softmax(y, MR_AXES(-1), false),
                          mr_sum(mr_multiply(y, w), MR_AXES(0), false)});
}

/* 64 KiB, between 0 and 1; turned: columns lie together. */
static mr_array *
large(bool turned)
{
    mr_array *x =
        mr_divide(mr_reshape(host_numbers(128 * 128), MRT_SHAPE(128, 128)),
                  mr_float(128 * 128));

    return turned ? mr_transpose(x, MR_INTS_NONE) : x;
}

/* A call whose argument, |x|, nobody else has. */
static mr_tree *
call_and_forget(mr_function *f, mr_array *x)
{
    mr_scope none = mr_scope_none();
    mr_array *own = mr_abs(x);
    mr_tree *in = mr_tree_arrays(1, &own), *out = mr_call(f, in);

    mr_tree_release(in);
    mr_release(own);
    mr_scope_end(none);
    return out;
}

static void
compiled__arguments_on_a_device_lie_as_they_like(void **state)
{
    (void)state;
    static const mr_compile_mode modes[] = {MR_COMPILE_ENABLED,
                                            MR_COMPILE_NO_FUSE};
    mr_array *w = large(true);

    assert_int_equal(mr_eval(w), MR_OK);
    for (int i = 0; i < 8; i++) {
        mr_compile_mode old = mr_compile_set_mode(modes[i / 4]);
        mr_function *f = mr_compile(scaled, w, NULL);
        mr_array *x = large(i % 2);
        mr_tree *in = mr_tree_arrays(1, &x), *eager = scaled(w, in), *out;
        mr_stream s;

        assert_int_equal(mr_eval_tree(eager), MR_OK);
        s = mrt_on(MRT_FAR(0));
        out = i / 2 % 2 ? call_and_forget(f, x) : mr_call(f, in);
        assert_int_equal(mr_eval_tree(out), MR_OK);
        mrt_off(s);
        for (int k = 0; k < 2; k++) {
            assert_int_not_equal(mr_tree_array_at(out, k)->buffer->space, 0);
            expect_equal_bits(mr_tree_array_at(out, k),
                              mr_tree_array_at(eager, k));
        }
        if (i / 2 % 2)
            mr_tree_release(out);
        mr_function_release(f);
        mr_compile_set_mode(old);
    }
}

/* n x n numbers of all sizes, row-major or turned. */
static mr_array *
matrix(int64_t n, bool turned)
{
    mr_array *x = mr_sin(mr_reshape(host_numbers(n * n), MRT_SHAPE(n, n)));

    assert_int_equal(mr_eval(x), MR_OK);
    return turned ? mr_transpose(x, MR_INTS_NONE) : x;
}

static mr_tree *
products(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0), *b = mr_tree_array_at(in, 1);

    (void)ctx;
    return MR_ARRAYS(mr_matmul(a, b), mr_matmul(mr_add(a, b), a));
}

/* The last bits of a product depend on how its operands lie, so a call takes
 * them as an eager product does, and copies none. */
static void
compiled__products_of_turned_arguments_equal_eager_ones(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_function *f = mr_compile(products, NULL, NULL);
    mr_stream s = mrt_on(MRT_FAR(0));

    for (int i = 0; i < 4; i++) {
        mr_tree *in = MR_ARRAYS(matrix(300, i & 1), matrix(300, i >> 1));
        mr_tree *eager = products(NULL, in), *got = mr_call(f, in);

        assert_int_equal(mr_eval_tree(eager), MR_OK);
        far->figures();
        assert_int_equal(mr_eval_tree(got), MR_OK);
        assert_int_equal(far->figures().blocks, 1); /* the sum */
        for (int k = 0; k < 2; k++)
            expect_equal_bits(mr_tree_array_at(eager, k),
                              mr_tree_array_at(got, k));
    }
    mrt_off(s);
    mr_function_release(f);
}

/* x times a captured array, by rows and turned, and one that has gaps. */
static mr_tree *
captured_products(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0), *w = ctx;
    mr_array *gaps = mr_as_strided(w, MR_SHAPE(300, 150), MR_INTS(300, 2), 1);

    return MR_ARRAYS(mr_matmul(x, w),
                     mr_matmul(x, mr_transpose(w, MR_INTS_NONE)),
                     mr_matmul(x, gaps));
}

static void
compiled__products_with_captured_arrays_equal_eager_ones(void **state)
{
    (void)state;
    mr_array *w = matrix(300, false);
    mr_function *f = mr_compile(captured_products, w, NULL);
    mr_stream s = mrt_on(MRT_FAR(0));
    mr_tree *in = MR_ARRAYS(matrix(300, false));
    mr_tree *eager = captured_products(w, in), *got = mr_call(f, in);

    assert_int_equal(mr_eval_tree(eager), MR_OK);
    assert_int_equal(mr_eval_tree(got), MR_OK);
    for (int k = 0; k < 3; k++)
        expect_equal_bits(mr_tree_array_at(eager, k), mr_tree_array_at(got, k));
    mrt_off(s);
    mr_function_release(f);
}

/* Each device has its programs, also those that come of a tape. */
static void
compiled__shapeless_function_runs_on_its_device(void **state)
{
    (void)state;
    mr_array *w = mr_float(0.5);
    mr_function *f =
        mr_compile(scaled, w,
                   &(mr_compile_options){.size = sizeof(mr_compile_options),
                                         .shapeless = true});
    mr_cache_info info = {.size = sizeof info};

    for (int i = 0; i < 6; i++) {
        mr_array *x = mr_divide(
            mr_reshape(host_numbers(12 * (i / 2 + 1)), MRT_SHAPE(-1, 4)),
            mr_float(7.0));
        mr_tree *in = mr_tree_arrays(1, &x), *eager = scaled(w, in), *out;
        mr_stream s;

        assert_int_equal(mr_eval_tree(eager), MR_OK);
        if (i % 2)
            s = mrt_on(MRT_FAR(0));
        out = mr_call(f, in);
        assert_int_equal(mr_eval_tree(out), MR_OK);
        if (i % 2)
            mrt_off(s);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(mr_tree_array_at(out, k)->buffer->space != 0,
                             i % 2);
            expect_equal_bits(mr_tree_array_at(out, k),
                              mr_tree_array_at(eager, k));
        }
    }
    assert_int_equal(mr_function_cache_info(f, &info), MR_OK);
    assert_int_equal(info.traces, 2);
    assert_int_equal(info.entries, 8); /* with a tape for each device */
    mr_function_release(f);
}

/* sort: the far device has no row for it. */
static mr_tree *
sorted_erf(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_leaf(mr_sort(mr_erf(mr_tree_array_at(in, 0)), 0));
}

static void
compiled__function_that_a_device_cannot_run_runs_on_the_host(void **state)
{
    (void)state;
    mr_function *f = mr_compile(sorted_erf, NULL, NULL);
    mr_array *x = far_numbers(0, 8), *y;
    mr_tree *in = mr_tree_arrays(1, &x), *eager = sorted_erf(NULL, in);
    mr_stream s = mrt_on(MRT_FAR(0));

    y = mr_tree_array(mr_call(f, in));
    assert_int_equal(mr_eval(y), MR_OK);
    assert_int_equal(y->buffer->space, 0);
    mrt_off(s);
    expect_equal_bits(y, mr_tree_array(eager));
    mr_function_release(f);
}

/* The stream that a call was made on may be gone when it is evaluated. */
static void
compiled__call_outlives_its_stream(void **state)
{
    (void)state;
    mr_function *f = mr_compile(twice_plus_one, NULL, NULL);
    mr_array *x = host_numbers(4), *y;
    mr_tree *in = mr_tree_arrays(1, &x);
    mr_stream s = mrt_on(MRT_FAR(1));

    y = mr_tree_array(mr_call(f, in));
    mrt_off(s);
    expect_from(y, 1, 2);
    mr_function_release(f);
}

static void
compiled__launch_that_fails_is_tried_again(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    captured c = captured_arrays();
    mr_function *f = mr_compile(many_steps, &c, NULL);
    mr_array *x =
        mr_divide(mr_reshape(host_numbers(36), MRT_SHAPE(6, 6)), mr_float(3.0));
    mr_tree *in = mr_tree_arrays(1, &x), *eager = many_steps(&c, in), *out;
    mr_stream s = mrt_on(MRT_FAR(0));

    for (int what = 0; what < FAR_N_FAULTS; what++)
        for (int n = 1; n < 12; n++) {
            mr_scope each = mr_scope_begin();
            mr_code rc;

            far->fault((far_fault)what, n, n % 3 == 0 ? 30 : 1);
            out = mr_call(f, in);
            rc = out == NULL ? mr_error_last().code : mr_eval_tree(out);
            if (rc != MR_OK) {
                mr_error e = mr_error_take();

                assert_true(e.code == MR_E_DEVICE || e.code == MR_E_MEMORY);
                assert_true(strlen(e.op) > 0);
            }
            far->fault((far_fault)what, 0, 0);
            if (out == NULL)
                out = mr_call(f, in);
            assert_int_equal(mr_eval_tree(out), MR_OK);
            for (int k = 0; k < 4; k++)
                expect_equal_bits(mr_tree_array_at(out, k),
                                  mr_tree_array_at(eager, k));
            mr_scope_end(each);
        }
    mrt_off(s);
    mr_function_release(f);
}

static mr_tree *
factor_of_sum(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0);

    (void)ctx;
    return mr_tree_leaf(
        mr_matmul(mr_linalg_cholesky(mr_add(a, mr_float(0.0)), false), a));
}

/* As an eager call does: the step at fault, and its line. */
static void
compiled__error_of_a_step_names_it(void **state)
{
    (void)state;
    mr_array *a = mr_array_from_f32((float[]){1, 2, 2, 1}, MRT_SHAPE(2, 2));
    mr_function *f = mr_compile(factor_of_sum, NULL, NULL);
    mr_stream s = mrt_on(MRT_FAR(0));
    mr_tree *in = MR_ARRAYS(a), *y[2];
    char line[2][256];

    y[0] = factor_of_sum(NULL, in);
    y[1] = mr_call(f, in);
    for (int i = 0; i < 2; i++) {
        mr_error e;

        assert_int_equal(mr_eval_tree(y[i]), MR_E_VALUE);
        e = mr_error_last();
        assert_non_null(strstr(e.message, "cholesky"));
        assert_non_null(e.site);
        snprintf(line[i], sizeof line[i], "%s", e.site);
        mr_error_take();
    }
    assert_string_equal(line[0], line[1]);
    mrt_off(s);
    mr_function_release(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(compiled__function_takes_arrays_of_any_device),
        mrt_test(compiled__function_runs_on_its_device),
        mrt_test(compiled__function_follows_the_default_device),
        mrt_test(compiled__arguments_on_a_device_lie_as_they_like),
        mrt_test(compiled__products_of_turned_arguments_equal_eager_ones),
        mrt_test(compiled__products_with_captured_arrays_equal_eager_ones),
        mrt_test(compiled__shapeless_function_runs_on_its_device),
        mrt_test(compiled__function_that_a_device_cannot_run_runs_on_the_host),
        mrt_test(compiled__call_outlives_its_stream),
        mrt_test(compiled__launch_that_fails_is_tried_again),
        mrt_test(compiled__error_of_a_step_names_it),
    };

    mrt_devices_path();
    return cmocka_run_group_tests_name("eval/device_compiled", tests, NULL,
                                       NULL);
}
