/* SPDX-License-Identifier: Apache-2.0
 *
 * devices.c -- devices with memory and queues of their own: where data is, how
 * it gets there, and that nobody has to say so.
 *
 * The far device's addresses cannot be read on the host: what forgets to bring
 * data over ends with a signal, what reads too early reads 0xDB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/device.h"
#include "support/mrt.h"

#include "base/alloc.h"
#include "base/error.h"
#include "eval/registry.h"
#include "graph/node.h"
#include "marram/sys/info.h"

static mr_array *
numbers(int64_t n)
{
    return mr_arange(MR_INTEGER(0), MR_INTEGER(n), MR_INTEGER(1), MR_FLOAT32);
}

/* 0, 1, ... in host memory. */
static mr_array *
host_numbers(int64_t n)
{
    mr_array *x = numbers(n);

    assert_int_equal(mr_eval(x), MR_OK);
    return x;
}

/* 0, 1, ... plus 1, in the memory of far device i. */
static mr_array *
far_numbers(int i, int64_t n)
{
    mr_stream s = mrt_on(MRT_FAR(i));
    mr_array *x = mr_add(numbers(n), mr_float(1.0));

    assert_int_equal(mr_eval(x), MR_OK);
    mrt_off(s);
    assert_int_not_equal(x->buffer->space, 0);
    return x;
}

static void
expect_from(mr_array *x, float first, float step)
{
    float want[64];
    int64_t n = mr_array_size(x);

    assert_true(n <= 64);
    for (int64_t i = 0; i < n; i++)
        want[i] = first + step * (float)i;
    mrt_assert_f32(x, want, n);
}

/* ---- where data is ----------------------------------------------------------
 */

static void
far__adds_what_lies_on_the_host(void **state)
{
    (void)state;
    mr_array *a = host_numbers(5), *y;
    mr_stream s = mrt_on(MRT_FAR(0));

    y = mr_add(a, a);
    mrt_assert_f32(y, (float[]){0, 2, 4, 6, 8}, 5);
    assert_int_not_equal(y->buffer->space, 0);
    mrt_off(s);
}

static void
chain__stays_on_its_device(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *a = host_numbers(16), *y = a;
    mr_stream s = mrt_on(MRT_FAR(0));
    far_figures f;

    far->figures();
    for (int i = 0; i < 6; i++) {
        y = mr_matmul(mr_reshape(y, MRT_SHAPE(4, 4)),
                      mr_eye(4, 4, 0, MR_FLOAT32));
        assert_int_equal(mr_eval(y), MR_OK);
    }
    f = far->figures();
    assert_int_equal(f.to_device, 1);
    assert_int_equal(f.from_device, 0);
    expect_from(y, 0, 1);
    assert_int_equal(far->figures().from_device, 1);
    mrt_off(s);
}

static void
copies__are_made_once(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *a = host_numbers(8), *y, *z;
    mr_stream s = mrt_on(MRT_FAR(0));

    far->figures();
    y = mr_add(a, mr_float(1.0));
    z = mr_multiply(a, mr_float(2.0));
    expect_from(y, 1, 1);
    expect_from(z, 0, 2);
    expect_from(y, 1, 1);
    expect_from(mr_index_slice(y, MR_INTS(2), MR_INTS(6), MR_INTS(1)), 3, 1);
    far_figures f = far->figures();
    assert_int_equal(f.to_device, 1);
    assert_int_equal(f.from_device, 2);
    mrt_off(s);
}

static void
copies__within_one_plan_are_shared(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *a = mr_add(host_numbers(8), mr_float(0.0)), *y[2];
    mr_stream s = mrt_on(MRT_FAR(0));

    far->figures();
    y[0] = mr_add(a, mr_float(1.0)); /* a is not computed yet */
    y[1] = mr_sum(mr_multiply(a, a), MR_AXES_ALL, false);
    assert_int_equal(mr_eval_many(y, 2), MR_OK);
    assert_int_equal(far->figures().to_device, 1);
    expect_from(y[0], 1, 1);
    mrt_assert_f32(y[1], (float[]){140}, 1);
    mrt_off(s);
}

static void
view__shares_the_buffer_on_any_device(void **state)
{
    (void)state;
    mr_array *x = far_numbers(0, 12);
    mr_array *v = mr_transpose(mr_reshape(x, MRT_SHAPE(3, 4)), MR_INTS_NONE);
    mr_array *w;
    mr_stream s;

    assert_int_equal(mr_eval(v), MR_OK); /* on the CPU's stream: no kernel */
    assert_ptr_equal(v->buffer, x->buffer);
    s = mrt_on(MRT_FAR(0));
    w = mr_add(v, mr_float(0.5));
    mrt_assert_f32(w,
                   (float[]){1.5F, 5.5F, 9.5F, 2.5F, 6.5F, 10.5F, 3.5F, 7.5F,
                             11.5F, 4.5F, 8.5F, 12.5F},
                   12);
    mrt_off(s);
    mrt_assert_f32(v, (float[]){1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12}, 12);
}

static void
devices__read_each_other(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *x = far_numbers(0, 6), *y;
    mr_stream s = mrt_on(MRT_FAR(1));

    far->figures();
    y = mr_multiply(x, mr_float(3.0));
    assert_int_equal(mr_eval(y), MR_OK);
    assert_int_equal(far->figures().peer, 1); /* not through the host */
    assert_int_not_equal(y->buffer->space, x->buffer->space);
    expect_from(y, 3, 3);
    mrt_off(s);
    expect_from(mr_add(x, y), 4, 4); /* on the host */
}

static void
devices__that_are_no_peers_go_through_the_host(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *x = far_numbers(0, 6), *y, *z;
    mr_stream s = mrt_on(MRT_NULL);
    far_figures f;

    far->figures();
    y = mr_multiply(x, mr_float(3.0));
    assert_int_equal(mr_eval(y), MR_OK);
    mrt_off(s);
    s = mrt_on(MRT_FAR(0));
    z = mr_add(y, x); /* the null device's memory reads as 0 */
    expect_from(z, 1, 1);
    f = far->figures();
    assert_int_equal(f.from_device, 2); /* x, z */
    assert_int_equal(f.to_device, 1);   /* y */
    assert_int_equal(f.peer, 0);
    mrt_off(s);
}

static void
memory__with_copies_is_not_donated(void **state)
{
    (void)state;
    mr_stream s = mrt_on(MRT_FAR(0));

    for (int read_first = 0; read_first < 2; read_first++) {
        mr_scope inner = mr_scope_none();
        mr_array *a = host_numbers(8), *one = mr_float(1.0);
        mr_array *x = mr_add(a, one), *y;

        assert_int_equal(mr_eval(x), MR_OK);
        if (read_first)
            expect_from(x, 1, 1);
        y = mr_add(x, one);
        mr_release(x); /* y is its only reader */
        expect_from(y, 2, 1);
        mr_release(y);
        mr_release(a);
        mr_release(one);
        mr_scope_end(inner);
    }
    mrt_off(s);
}

static void
wrapped__memory_with_strides_that_leave_it(void **state)
{
    (void)state;
    float memory[6] = {0, 1, 2, 3, 4, 5};
    mr_array *x = mr_array_wrap(memory + 5, MRT_SHAPE(6), (int64_t[]){-1},
                                MR_FLOAT32, NULL, NULL);
    mr_stream s = mrt_on(MRT_FAR(0));

    mrt_assert_f32(mr_add(x, mr_float(1.0)), (float[]){6, 5, 4, 3, 2, 1}, 6);
    mrt_off(s);
}

static void
exported__host_memory_is_read_anew(void **state)
{
    (void)state;
    mr_array *x = host_numbers(4);
    mr_stream s = mrt_on(MRT_FAR(0));
    float *p;

    expect_from(mr_add(x, mr_float(1.0)), 1, 1); /* leaves a copy there */
    p = mr_array_data_exported(x);
    assert_null(x->buffer->copies);
    p[0] = 10;
    mrt_assert_f32(mr_add(x, mr_float(1.0)), (float[]){11, 2, 3, 4}, 4);
    p[0] = 20;
    mrt_assert_f32(mr_add(x, mr_float(1.0)), (float[]){21, 2, 3, 4}, 4);
    assert_null(x->buffer->copies);
    mrt_off(s);
}

static void
exported__memory_of_a_device_counts_on_the_host(void **state)
{
    (void)state;
    mr_array *x = far_numbers(0, 4);
    mr_array *v = mr_index_slice(x, MR_INTS(1), MR_INTS(3), MR_INTS(1));
    float *p = mr_array_data_exported(x);
    mr_stream s;

    assert_non_null(p);
    p[1] = 50;
    mrt_assert_f32(x, (float[]){1, 50, 3, 4}, 4);
    for (int i = 0; i < 2; i++) { /* on its own device, and on another */
        s = mrt_on(MRT_FAR(i));
        p[2] = 60 + (float)i;
        mrt_assert_f32(mr_add(v, mr_float(1.0)), (float[]){51, 61 + (float)i},
                       2);
        mrt_off(s);
    }
}

/* ---- what a device lacks ----------------------------------------------------
 */

static void
operator__that_a_device_lacks_runs_on_the_host(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *x = far_numbers(0, 5), *y, *z;
    mr_stream s = mrt_on(MRT_FAR(0));

    far->figures();
    y = mr_sort(mr_negative(x), 0);
    z = mr_add(y, mr_cumsum(x, 0, false, true, MR_DTYPE_DEFAULT));
    mrt_assert_f32(z, (float[]){-4, -1, 3, 8, 14}, 5);
    assert_int_equal(z->stream, s.id);
    mrt_assert_close(
        mr_erf(x),
        (double[]){0.842700793, 0.995322265, 0.999977910, 0.999999985, 1}, 5,
        1e-6, 0);
    assert_true(far->figures().from_device >= 3);
    mrt_off(s);
}

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

/* ---- order ------------------------------------------------------------------
 */

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

static void
queues__run_while_the_caller_goes_on(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_stream s = mr_stream_new(MRT_FAR(0)), t = mr_stream_new(MRT_FAR(1));
    mr_array *y = host_numbers(8), *z;

    far->hold(true);
    for (int i = 0; i < 10; i++) {
        mr_stream_scope(i % 2 ? s : t);
        y = mr_add(y, mr_float(1.0));
        assert_int_equal(mr_async_eval(&y, 1), MR_OK);
    }
    mr_stream_scope((mr_stream){0});
    assert_int_equal(mr__state(y), MR_SUBMITTED);
    z = mr_multiply(y, mr_float(2.0)); /* on the host */
    assert_int_equal(mr_async_eval(&z, 1), MR_OK);
    far->hold(false);
    expect_from(z, 20, 2);
    expect_from(y, 10, 1);
    mr_stream_free(s);
    mr_stream_free(t);
}

static void
stream__sync_waits_for_the_queue(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_stream s = mr_stream_new(MRT_FAR(0));
    mr_array *y[8];

    far->delays(7);
    mr_stream_scope(s);
    for (int i = 0; i < 8; i++)
        y[i] = mr_add(numbers(64), mr_float(i));
    assert_int_equal(mr_async_eval(y, 8), MR_OK);
    mr_stream_scope((mr_stream){0});
    assert_int_equal(mr_stream_sync(s), MR_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(mr__state(y[i]), MR_DONE);
    far->delays(0);
    mr_stream_free(s);
}

static void
stream__that_is_freed_finishes_first(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_stream s = mr_stream_new(MRT_FAR(0));
    mr_array *y;

    far->hold(true);
    mr_stream_scope(s);
    y = mr_add(numbers(8), mr_float(1.0));
    assert_int_equal(mr_async_eval(&y, 1), MR_OK);
    mr_stream_scope((mr_stream){0});
    mr_stream_free(s);
    far->hold(false);
    expect_from(y, 1, 1);
}

/* ---- programs at random -----------------------------------------------------
 */

enum { N_LIVE = 12, N_STEPS = 120, N_DEVICES_USED = 5 };

typedef struct programs {
    uint64_t seed;
    mr_stream stream[N_DEVICES_USED];
} programs;

static uint64_t
next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static mr_array *
step(uint64_t r, mr_array *const *live)
{
    mr_array *a = live[r / 16 % N_LIVE], *b = live[r / 256 % N_LIVE];

    switch (r % 8) {
    case 0:
        return mr_matmul(a, b);
    case 1:
        return mr_transpose(a, MR_INTS_NONE);
    case 2:
        return mr_maximum(a, b);
    case 3:
        return mr_sort(a, 1);
    case 4:
        return mr_add(a, mr_sum(b, MR_AXES(0), true));
    case 5:
        return mr_subtract(mr_multiply(a, mr_float(0.5)), b);
    case 6:
        return mr_concatenate(
            (mr_array *[]){
                mr_index_slice(a, MR_INTS(0, 0), MR_INTS(3, 6), MR_INTS(1, 1)),
                mr_index_slice(b, MR_INTS(3, 0), MR_INTS(6, 6), MR_INTS(1, 1))},
            2, 0);
    default:
        return mr_add(mr_abs(a), b);
    }
}

/* Small whole numbers, so that nothing overflows: mod 8 now and then. */
static mr_array *
tame(mr_array *x)
{
    return mr_remainder(mr_floor(x), mr_float(8.0));
}

static void
program_run(const programs *p, uint64_t seed, bool spread, float *out)
{
    mr_scope s = mr_scope_begin();
    uint64_t state = seed;
    mr_array *live[N_LIVE];

    for (int i = 0; i < N_LIVE; i++)
        live[i] =
            tame(mr_reshape(mr_add(numbers(36), mr_float(i)), MRT_SHAPE(6, 6)));
    for (int i = 0; i < N_STEPS; i++) {
        uint64_t r = next(&state), to = next(&state) % N_LIVE;

        mr_stream_scope(spread ? p->stream[next(&state) % N_DEVICES_USED]
                               : (next(&state), (mr_stream){0}));
        live[to] = tame(step(r >> 8, live));
        r = next(&state) % 16;
        if (r == 0)
            assert_int_equal(mr_eval(live[to]), MR_OK);
        else if (r < 4)
            assert_int_equal(mr_async_eval(&live[r], 1), MR_OK);
    }
    mr_stream_scope((mr_stream){0});
    for (int i = 0; i < N_LIVE; i++)
        assert_int_equal(mr_array_copy_f32(live[i], out + 36 * i, 36), MR_OK);
    mr_scope_end(s);
}

static void
programs_thread(void *ctx, int k)
{
    const programs *p = ctx;
    float want[36 * N_LIVE], got[36 * N_LIVE];

    for (int i = 0; i < (MRT_TSAN ? 4 : 25); i++) {
        uint64_t seed = p->seed + (uint64_t)(1000 * k + i + 1);

        program_run(p, seed, false, want);
        program_run(p, seed, true, got);
        assert_memory_equal(got, want, sizeof want);
    }
}

static void
programs__on_many_devices_give_what_one_gives(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    programs p = {.seed = 0x5EED};

    for (int i = 0; i < N_DEVICES_USED; i++)
        p.stream[i] = i == 0 ? mr_stream_new((mr_device){MR_CPU, 0})
                             : mr_stream_new(MRT_FAR(i % 2));
    far->delays(11);
    mrt_threads(3, programs_thread, &p);
    far->delays(0);
    for (int i = 0; i < N_DEVICES_USED; i++)
        mr_stream_free(p.stream[i]);
}

/* ---- faults -----------------------------------------------------------------
 */

typedef struct fault_case {
    far_fault what;
    mr_code code;
    const char *text;
} fault_case;

static const fault_case fault_cases[] = {
    {FAR_ALLOC, MR_E_MEMORY, "has no"},
    {FAR_LAUNCH, MR_E_DEVICE, "refused a launch"},
    {FAR_COPY, MR_E_DEVICE, "refused a copy"},
    {FAR_RUN, MR_E_DEVICE, "failed, as asked"},
};

static void
fault__that_lasts_names_operator_and_line(void **state)
{
    (void)state;
    const far_control *far = mrt_far();

    for (size_t i = 0; i < MRT_COUNT(fault_cases); i++) {
        const fault_case *c = &fault_cases[i];
        mr_array *a = mr_reshape(host_numbers(16), MRT_SHAPE(4, 4)), *y;
        mr_stream s = mrt_on(MRT_FAR(0));
        const char *site;
        mr_error e;

        site = MR_SITE, y = mr_matmul(a, a);
        far->fault(c->what, 1, 1000);
        assert_int_equal(mr_eval(y), c->code);
        e = mr_error_take();
        assert_non_null(strstr(e.message, c->text));
        assert_string_equal(e.op, "matmul");
        assert_string_equal(e.site, site);
        /* nothing is broken by it */
        far->fault(c->what, 0, 0);
        mrt_assert_f32(mr_sum(y, MR_AXES_ALL, false), (float[]){3920}, 1);
        expect_from(a, 0, 1);
        mrt_off(s);
    }
}

/* Reading on the host of what is done on the device. */
static void
fault__of_a_copy_back_says_what_was_read(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *x = far_numbers(0, 4);
    float out[4];

    far->fault(FAR_COPY, 1, 1000);
    assert_int_equal(mr_array_copy_f32(x, out, 4), MR_E_DEVICE);
    assert_string_equal(mr_error_take().op, "add");
    far->fault(FAR_COPY, 0, 0);
    expect_from(x, 1, 1);
}

/* At the n-th call, for all n of a program: either it heals, or there is an
 * error with an operator, and the next try gives the right answer. */
static void
fault__at_the_nth_call_leaves_all_intact(void **state)
{
    (void)state;
    const far_control *far = mrt_far();

    for (size_t i = 0; i < MRT_COUNT(fault_cases); i++)
        for (int n = 1; n < 16; n++) {
            mr_array *a = mr_add(host_numbers(8), mr_float(0.0)), *b, *c, *d;
            mr_stream s = mrt_on(MRT_FAR(0)), t = mr_stream_new(MRT_FAR(1));

            b = mr_add(mr_softmax(a, MR_AXES(0), false), a);
            mr_stream_scope(t);
            c = mr_sum(mr_multiply(a, b), MR_AXES(0), true);
            mr_stream_scope(s);
            d = mr_sort(mr_subtract(mr_subtract(b, a), c), 0);
            far->fault(fault_cases[i].what, n, n % 3 == 0 ? 12 : 1);
            if (mr_eval(d) != MR_OK) {
                mr_error e = mr_error_take();

                assert_int_equal(e.code, fault_cases[i].code);
                assert_true(strlen(e.op) > 0);
                assert_non_null(strstr(e.site, "devices.c:"));
            }
            far->fault(fault_cases[i].what, 0, 0);
            assert_int_equal(mr_eval(d), MR_OK);
            expect_from(a, 0, 1);
            mrt_assert_close(mr_sum(d, MR_AXES_ALL, false),
                             (double[]){1 - 8 * 146.4182}, 1, 1e-4, 0);
            mr_stream_free(t);
            mrt_off(s);
        }
}

static bool
evaluate_far(mr_stream s)
{
    mr_scope sc = mr_scope_begin();
    mr_array *a = mr_add(numbers(8), mr_float(0.0)), *y;
    float out[8];
    bool ok;

    mr_stream_scope(s);
    y = mr_sort(mr_matmul(mr_reshape(a, MRT_SHAPE(2, 4)),
                          mr_reshape(a, MRT_SHAPE(4, 2))),
                1);
    mr_stream_scope((mr_stream){0});
    ok = y != NULL && mr_array_copy_f32(y, out, 4) == MR_OK;
    mr_scope_end(sc);
    return ok;
}

/* Tasks hold references until they have landed. */
static int64_t
live_when_quiet(void)
{
    int64_t live = mr__alloc_live(), before;

    do {
        before = live;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        live = mr__alloc_live();
    } while (live != before);
    return live;
}

static void
allocations__may_fail_one_after_the_other(void **state)
{
    (void)state;
    mr_stream s = mr_stream_new(MRT_FAR(0));
    int n_failed = 0;
    int64_t live;

    assert_true(evaluate_far(s));
    live = live_when_quiet();
    for (int n = 0; n < 150; n++) { /* some heal: work is planned again */
        bool ok;

        mr__alloc_fail_after(n);
        ok = evaluate_far(s);
        mr__alloc_fail_after(-1);
        assert_int_equal(mr_error_take().code, ok ? MR_OK : MR_E_MEMORY);
        for (int i = 0; i < 1000 && mr__alloc_live() != live; i++)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        assert_int_equal(mr__alloc_live(), live);
        n_failed += !ok;
    }
    assert_true(n_failed > 10);
    mr_stream_free(s);
}

/* ---- providers --------------------------------------------------------------
 */

static void
providers__are_listed_with_the_reason(void **state)
{
    (void)state;
    mr_provider_info info = {.size = sizeof info};
    int n = 0, loaded = 0;

    for (; mr_provider_info_at(n, &info) == MR_OK; n++) {
        if (info.why_not == NULL) {
            loaded++;
            continue;
        }
        assert_non_null(strstr(info.path, "stale"));
        assert_non_null(strstr(info.why_not, "0123456789abcdef"));
        assert_non_null(strstr(info.why_not, "build both together"));
    }
    mrt_assert_error(MR_E_INDEX, "there is no provider");
    assert_int_equal(n, 3);
    assert_int_equal(loaded, 2);
    assert_int_equal(mr_device_count(MR_TEST_DEVICE), 3);
    assert_int_equal(mr_device_count(MR_GPU), 0);
}

static void
table__of_another_version_is_refused(void **state)
{
    (void)state;
    mr_device_table t = *mr__device_find(MRT_FAR(0));

    t.abi++;
    assert_int_equal(mr__device_register(&t), MR_E_DEVICE);
    mrt_assert_error(MR_E_DEVICE, "table version");
    t.abi--;
    t.size -= 8;
    assert_int_equal(mr__device_register(&t), MR_E_DEVICE);
    mrt_assert_error(MR_E_DEVICE, "table version");
    t.size += 8;
    t.build = "another";
    assert_int_equal(mr__device_register(&t), MR_E_DEVICE);
    mrt_assert_error(MR_E_DEVICE, "another");
    t.build = MR_BUILD_HASH;
    assert_int_equal(mr__device_register(&t), MR_E_DEVICE);
    mrt_assert_error(MR_E_DEVICE, "already");
}

static void
child_evaluates(void *arg)
{
    mr_stream s = mrt_on(MRT_FAR(0));
    mr_array *y = mr_add(*(mr_array **)arg, mr_float(1.0));

    if (mr_eval(y) != MR_E_DEVICE ||
        strstr(mr_error_take().message, "forked") == NULL)
        abort();
    mrt_off(s);
    expect_from(mr_add(*(mr_array **)arg, mr_float(2.0)), 2, 1);
}

static void
fork__gives_the_child_a_clear_error(void **state)
{
    (void)state;
    mr_array *x = host_numbers(4);
    char text[512];

    if (MRT_TSAN) /* the child starts threads, which it does not support */
        skip();

    expect_from(far_numbers(0, 4), 1, 1);
    assert_int_equal(mrt_child(child_evaluates, &x, text, sizeof text), 0);
}

/* ---- the null device --------------------------------------------------------
 */

static void
null__plans_what_no_memory_would_hold(void **state)
{
    (void)state;
    mr_stream s = mrt_on(MRT_NULL);
    mr_array *x = mr_zeros(MRT_SHAPE(1 << 20, 1 << 11), MR_FLOAT32);
    mr_array *y = x;

    for (int i = 0; i < 10; i++) /* 16 GiB a round */
        y = mr_softmax(mr_add(y, mr_float(1.0)), MR_AXES(-1), false);
    assert_int_equal(mr_eval(y), MR_OK);
    y = mr_sum(y, MR_AXES_ALL, false);
    mrt_assert_f32(y, (float[]){0}, 1); /* its memory reads as 0 */
    mrt_off(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(far__adds_what_lies_on_the_host),
        mrt_test(chain__stays_on_its_device),
        mrt_test(copies__are_made_once),
        mrt_test(copies__within_one_plan_are_shared),
        mrt_test(view__shares_the_buffer_on_any_device),
        mrt_test(devices__read_each_other),
        mrt_test(devices__that_are_no_peers_go_through_the_host),
        mrt_test(memory__with_copies_is_not_donated),
        mrt_test(wrapped__memory_with_strides_that_leave_it),
        mrt_test(exported__host_memory_is_read_anew),
        mrt_test(exported__memory_of_a_device_counts_on_the_host),
        mrt_test(operator__that_a_device_lacks_runs_on_the_host),
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
        mrt_test(queues__run_while_the_caller_goes_on),
        mrt_test(stream__sync_waits_for_the_queue),
        mrt_test(stream__that_is_freed_finishes_first),
        mrt_test(programs__on_many_devices_give_what_one_gives),
        mrt_test(fault__that_lasts_names_operator_and_line),
        mrt_test(fault__of_a_copy_back_says_what_was_read),
        mrt_test(fault__at_the_nth_call_leaves_all_intact),
        mrt_test(allocations__may_fail_one_after_the_other),
        mrt_test(providers__are_listed_with_the_reason),
        mrt_test(table__of_another_version_is_refused),
        mrt_test(fork__gives_the_child_a_clear_error),
        mrt_test(null__plans_what_no_memory_would_hold),
    };

    mrt_devices_path();
    return cmocka_run_group_tests_name("eval/devices", tests, NULL, NULL);
}
