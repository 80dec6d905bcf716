/* SPDX-License-Identifier: Apache-2.0
 *
 * function.c -- compiled functions: traces, hits, keys, threads, failures.
 */
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "support/mrt.h"

static _Atomic int traces;

/* ---- bodies
 * -------------------------------------------------------------------- */

/* (a, b) to (exp(a) * b + 1, sum of it) */
static mr_tree *
body(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0), *b = mr_tree_array_at(in, 1);
    mr_array *y = mr_add(mr_multiply(mr_exp(a), b), mr_float(1.0));

    (void)ctx;
    traces++;
    return MR_ARRAYS(y, mr_sum(y, MR_AXES_ALL, false));
}

static mr_tree *
softmax_by_hand(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0);
    mr_array *e = mr_exp(mr_subtract(a, mr_max(a, MR_AXES(1), true)));
    mr_array *y = mr_divide(e, mr_sum(e, MR_AXES(1), true));

    (void)ctx;
    return mr_tree_leaf(mr_matmul(mr_transpose(y, MR_INTS_NONE), a));
}

static mr_array *
ramp(int64_t n, double step)
{
    return mr_multiply(
        mr_arange(MR_INTEGER(0), MR_INTEGER(n), MR_INTEGER(1), MR_FLOAT32),
        mr_float(step));
}

/* ---- values
 * ----------------------------------------------------------------------- */

static void
call__equals_eager(void **state)
{
    mr_function *f = mr_compile(body, NULL, NULL);
    mr_array *a = ramp(100, 0.01), *b = ramp(100, 0.5);
    mr_tree *args = MR_ARRAYS(a, b);
    mr_tree *eager = body(NULL, args);

    (void)state;
    for (int i = 0; i < 3; i++) {
        mr_tree *r = mr_call(f, args);

        assert_int_equal(mr_tree_size(r), 2);
        mrt_assert_same(mr_tree_array_at(r, 0), mr_tree_array_at(eager, 0));
        mrt_assert_same(mr_tree_array_at(r, 1), mr_tree_array_at(eager, 1));
    }
    mr_function_release(f);
}

static void
call__rows_and_products_equal_eager(void **state)
{
    mr_function *f = mr_compile(softmax_by_hand, NULL, NULL);
    mr_array *a = mr_reshape(mr_sin(ramp(600, 0.37)), MR_SHAPE(20, 30));
    mr_tree *r = mr_call(f, MR_ARRAYS(a));
    mr_tree *eager = softmax_by_hand(NULL, MR_ARRAYS(a));

    (void)state;
    mrt_assert_same(mr_tree_array(r), mr_tree_array(eager));
    mr_function_release(f);
}

static mr_tree *
swap_and_captured(void *ctx, const mr_tree *in)
{
    return MR_ARRAYS(mr_tree_array_at(in, 1), (mr_array *)ctx,
                     mr_tree_array_at(in, 0));
}

static void
call__gives_arguments_and_captured_arrays_back(void **state)
{
    mr_array *c = mr_float(5.0);
    mr_function *f = mr_compile(swap_and_captured, c, NULL);
    mr_tree *r = mr_call(f, MR_ARRAYS(mr_float(1.0), mr_float(2.0)));

    (void)state;
    assert_true(mr_array_item_f64(mr_tree_array_at(r, 0)) == 2.0);
    assert_true(mr_array_item_f64(mr_tree_array_at(r, 1)) == 5.0);
    assert_true(mr_array_item_f64(mr_tree_array_at(r, 2)) == 1.0);
    mr_function_release(f);
}

static mr_tree *
constant_result(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    return MR_ARRAYS(mr_add(mr_float(1.0), mr_float(2.0)),
                     mr_zeros(MR_SHAPE(3), MR_FLOAT32));
}

static void
call__gives_results_that_depend_on_nothing(void **state)
{
    mr_function *f = mr_compile(constant_result, NULL, NULL);
    mr_tree *r = mr_call(f, MR_ARRAYS(mr_float(1.0)));

    (void)state;
    assert_true(mr_array_item_f64(mr_tree_array_at(r, 0)) == 3.0);
    mrt_assert_f32(mr_tree_array_at(r, 1), (float[]){0, 0, 0}, 3);
    mr_function_release(f);
}

static void
call__takes_strided_arguments(void **state)
{
    mr_function *f = mr_compile(body, NULL, NULL);
    mr_array *a = mr_reshape(ramp(12, 0.1), MR_SHAPE(3, 4));
    mr_array *t = mr_transpose(a, MR_INTS_NONE);
    mr_tree *args = MR_ARRAYS(t, t);

    (void)state;
    mrt_assert_same(mr_tree_array_at(mr_call(f, args), 0),
                    mr_tree_array_at(body(NULL, args), 0));
    mr_function_release(f);
}

/* ---- the cache
 * ---------------------------------------------------------------------- */

static void
cache__traces_once_a_signature(void **state)
{
    mr_function *f = mr_compile(body, NULL, NULL);
    mr_cache_info info = {.size = sizeof info};

    (void)state;
    traces = 0;
    for (int i = 0; i < 4; i++) {
        mr_call(f, MR_ARRAYS(ramp(5, 1), ramp(5, 2)));
        mr_call(f, MR_ARRAYS(ramp(6, 1), ramp(6, 2)));
        mr_call(f, MR_ARRAYS(mr_astype(ramp(5, 1), MR_FLOAT64), ramp(5, 2)));
    }
    assert_int_equal(traces, 3);
    assert_int_equal(mr_function_cache_info(f, &info), MR_OK);
    assert_int_equal(info.entries, 3);
    mr_function_cache_clear(f);
    mr_call(f, MR_ARRAYS(ramp(5, 1), ramp(5, 2)));
    assert_int_equal(traces, 4);
    mr_function_release(f);
}

static void
cache__keeps_to_its_limit(void **state)
{
    mr_function *f = mr_compile(body, NULL, NULL);
    mr_cache_info info = {.size = sizeof info};
    uint64_t old = mr_compile_set_cache_limit(2);

    (void)state;
    for (int i = 1; i < 10; i++) {
        mr_tree *r = mr_call(f, MR_ARRAYS(ramp(i, 1), ramp(i, 1)));

        assert_int_equal(mr_eval_tree(r), MR_OK);
    }
    mr_compile_cache_info(&info);
    assert_true(info.entries <= 2);
    mr_compile_set_cache_limit(old);
    mr_function_release(f);
}

static void
key__static_bytes_are_part_of_it(void **state)
{
    mr_function *f = mr_compile(body, NULL, NULL);
    mr_tree *args = MR_ARRAYS(ramp(3, 1), ramp(3, 1));

    (void)state;
    traces = 0;
    mr_call_keyed(f, args, "i:1", 3, NULL);
    mr_call_keyed(f, args, "f:1", 3, NULL);
    mr_call_keyed(f, args, "i:1", 3, NULL);
    assert_int_equal(traces, 2);
    mr_function_release(f);
}

/* ---- inside a trace
 * ------------------------------------------------------------------- */

static mr_tree *
reads_a_value(void *ctx, const mr_tree *in)
{
    (void)ctx;
    if (mr_eval(mr_tree_array_at(in, 0)) != MR_OK)
        return NULL;
    return mr_tree_retain(mr_tree_at(in, 0));
}

static void
trace__reading_a_value_is_an_error_that_says_what_to_do(void **state)
{
    mr_compile_options o = {.size = sizeof o, .name = "peeks"};
    mr_function *f = mr_compile(reads_a_value, NULL, &o);

    (void)state;
    assert_null(mr_call(f, MR_ARRAYS(mr_float(1.0))));
    mrt_assert_error(MR_E_STATE, "peeks");
    mr_function_release(f);
}

/* |sum|, by a branch; `*ctx`: whether it looks for the error */
static mr_tree *
branches_on_a_value(void *ctx, const mr_tree *in)
{
    mr_array *s = mr_sum(mr_tree_array_at(in, 0), MR_AXES_ALL, false);
    double value = mr_array_item_f64(s);

    if (*(const bool *)ctx && isnan(value)) {
        mr_error_take();
        return mr_tree_leaf(mr_abs(s));
    }
    return mr_tree_leaf(value > 0 ? s : mr_negative(s));
}

static void
trace__a_branch_on_a_value_that_is_not_there_fails(void **state)
{
    bool looks = false;
    mr_function *f = mr_compile(branches_on_a_value, &looks, NULL);
    mr_tree *args = MR_ARRAYS(ramp(3, 1));

    (void)state;
    mrt_assert_f32(mr_tree_array(branches_on_a_value(&looks, args)),
                   (float[]){3}, 1);
    assert_null(mr_call(f, args));
    mrt_assert_error(MR_E_STATE, "while it is traced");
    assert_null(
        mr_vmap(branches_on_a_value, &looks, args, (int32_t[]){0}, 1, NULL, 0));
    mrt_assert_error(MR_E_STATE, "while it is traced");
    /* who takes the error has seen it */
    looks = true;
    mrt_assert_f32(mr_tree_array(mr_call(f, args)), (float[]){3}, 1);
    /* gradients have values */
    looks = false;
    mrt_assert_f32(
        mr_tree_array(mr_grad(branches_on_a_value, &looks, args, NULL, 0)),
        (float[]){1, 1, 1}, 3);
    mr_function_release(f);
}

static mr_tree *
calls_another(void *ctx, const mr_tree *in)
{
    return mr_call(ctx,
                   MR_ARRAYS(mr_tree_array_at(in, 0), mr_tree_array_at(in, 0)));
}

static void
trace__a_compiled_function_inside_is_inlined(void **state)
{
    mr_function *inner = mr_compile(body, NULL, NULL);
    mr_function *outer = mr_compile(calls_another, inner, NULL);
    mr_array *x = ramp(4, 0.1);
    mr_tree *r = mr_call(outer, MR_ARRAYS(x));

    (void)state;
    mrt_assert_same(mr_tree_array_at(r, 0),
                    mr_tree_array_at(body(NULL, MR_ARRAYS(x, x)), 0));
    mr_function_release(outer);
    mr_function_release(inner);
}

static mr_tree *
square_sum(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_leaf(
        mr_sum(mr_square(mr_tree_array_at(in, 0)), MR_AXES_ALL, false));
}

static mr_tree *
grad_body(void *ctx, const mr_tree *in)
{
    return mr_grad(square_sum, ctx, in, NULL, 0);
}

static void
trace__gradient_inside_is_right(void **state)
{
    mr_function *f = mr_compile(grad_body, NULL, NULL);
    mr_tree *r = mr_call(f, MR_ARRAYS(ramp(4, 1)));

    (void)state;
    mrt_assert_f32(mr_tree_array(r), (float[]){0, 2, 4, 6}, 4);
    mr_function_release(f);
}

static mr_tree *
call_square_sum(void *ctx, const mr_tree *in)
{
    return mr_call(ctx, in);
}

static void
trace__gradient_of_a_compiled_function_is_right(void **state)
{
    mr_function *f = mr_compile(square_sum, NULL, NULL);
    mr_tree *g = mr_grad(call_square_sum, f, MR_ARRAYS(ramp(4, 1)), NULL, 0);

    (void)state;
    mrt_assert_f32(mr_tree_array(g), (float[]){0, 2, 4, 6}, 4);
    mr_function_release(f);
}

static mr_tree *
fails(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    mr_error_set(MR_E_USER, "the closure said no");
    return NULL;
}

static void
trace__a_failing_closure_passes_its_error_on(void **state)
{
    mr_function *f = mr_compile(fails, NULL, NULL);

    (void)state;
    assert_null(mr_call(f, MR_ARRAYS(mr_float(1.0))));
    mrt_assert_error(MR_E_USER, "the closure said no");
    mr_function_release(f);
}

/* ---- threads
 * -------------------------------------------------------------------------- */

typedef struct nest {
    sem_t inside, go;
    mr_function *shared, *outer;
    bool ok[2];
} nest;

static mr_tree *
doubled(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_leaf(
        mr_add(mr_tree_array_at(in, 0), mr_tree_array_at(in, 0)));
}

static mr_tree *
outer_body(void *ctx, const mr_tree *in)
{
    nest *n = ctx;
    struct timespec soon;
    mr_tree *r;

    sem_post(&n->inside);
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_sec += 2;
    sem_timedwait(&n->go, &soon);
    r = mr_call(n->shared, in);
    return mr_tree_leaf(mr_add(mr_tree_array(r), mr_float(1.0)));
}

static void
nest_thread(void *arg, int i)
{
    nest *n = arg;
    mr_scope s = mr_scope_begin();
    mr_tree *r;

    if (i == 0) {
        r = mr_call(n->outer, MR_ARRAYS(mr_float(3.0)));
        n->ok[0] = mr_array_item_f64(mr_tree_array(r)) == 7.0;
    } else {
        sem_wait(&n->inside);
        r = mr_call(n->shared, MR_ARRAYS(mr_float(5.0)));
        n->ok[1] = mr_array_item_f64(mr_tree_array(r)) == 10.0;
        sem_post(&n->go);
    }
    mr_scope_end(s);
}

/* A lock held around a trace, and another around evaluation, taken in the
 * other order by a second thread, would never return here. */
static void
threads__nested_first_traces_do_not_deadlock(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        nest n = {.ok = {false, false}};

        sem_init(&n.inside, 0, 0);
        sem_init(&n.go, 0, 0);
        n.shared = mr_compile(doubled, NULL, NULL);
        n.outer = mr_compile(outer_body, &n, NULL);
        mrt_threads(2, nest_thread, &n);
        assert_true(n.ok[0] && n.ok[1]);
        mr_function_release(n.outer);
        mr_function_release(n.shared);
        sem_destroy(&n.inside);
        sem_destroy(&n.go);
    }
}

static _Atomic int wrong;

static void
hammer(void *arg, int i)
{
    mr_function *f = arg;

    for (int k = 0; k < 200; k++) {
        mr_scope s = mr_scope_begin();
        int64_t n = 1 + (k + i) % 7;
        mr_array *x = mr_ones(MR_SHAPE(n), MR_FLOAT32);
        mr_tree *r = mr_call(f, MR_ARRAYS(x));

        if (mr_array_item_f64(mr_sum(mr_tree_array(r), MR_AXES_ALL, false)) !=
            2.0 * (double)n)
            wrong++;
        if (k % 50 == 49)
            mr_function_cache_clear(f);
        mr_scope_end(s);
    }
}

static void
threads__share_and_erase_one_function(void **state)
{
    mr_function *f = mr_compile(doubled, NULL, NULL);

    (void)state;
    wrong = 0;
    mrt_threads(8, hammer, f);
    assert_int_equal(wrong, 0);
    mr_function_release(f);
}

/* ---- random, memory
 * ------------------------------------------------------------------- */

static mr_tree *
draws(void *ctx, const mr_tree *in)
{
    (void)ctx;
    mr_array *u =
        mr_random_uniform(MR_NONE, MR_NONE, MR_SHAPE(4), MR_FLOAT32, MR_NONE);
    mr_array *v =
        mr_random_uniform(MR_NONE, MR_NONE, MR_SHAPE(4), MR_FLOAT32, MR_NONE);

    return MR_ARRAYS(mr_add(u, mr_tree_array_at(in, 0)), v);
}

static void
random__compiled_draws_equal_eager_ones(void **state)
{
    mr_scalar seed = {MR_SCALAR_INT, {.i = 11}};
    mr_tree *args = MR_ARRAYS(mr_float(0.0));
    mr_function *f = mr_compile(draws, NULL, NULL);
    mr_tree *eager[2], *compiled[2];

    (void)state;
    mr_random_seed(seed);
    for (int i = 0; i < 2; i++)
        eager[i] = draws(NULL, args);
    mr_random_seed(seed);
    for (int i = 0; i < 2; i++)
        compiled[i] = mr_call(f, args);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            mrt_assert_same(mr_tree_array_at(compiled[i], k),
                            mr_tree_array_at(eager[i], k));
    mr_function_release(f);
}

static bool
one_call(void *arg)
{
    mr_function *f = mr_compile(softmax_by_hand, NULL, NULL);
    mr_scope s = mr_scope_begin();
    mr_tree *r = f == NULL || s.token == 0 ? NULL : mr_call(f, arg);
    bool ok = r != NULL && mr_eval_tree(r) == MR_OK;

    mr_scope_end(s);
    mr_function_release(f);
    return ok;
}

static void
memory__each_failing_allocation_is_a_clean_error(void **state)
{
    mr_array *a = mr_reshape(ramp(12, 0.1), MR_SHAPE(3, 4));
    mr_tree *args = MR_ARRAYS(a);

    (void)state;
    mr_eval(a);
    assert_true(one_call(args)); /* what is made once is made */
    assert_true(mrt_each_failure(one_call, args) > 10);
    mr_error_take();
    assert_true(one_call(args));
}

/* ---- arrays in, arrays out
 * --------------------------------------------------- */

/* a + i for i below 20, more than fit without memory of their own. */
static mr_tree *
twenty(void *ctx, const mr_tree *in, int64_t *tag)
{
    mr_array *y[20];

    *tag = *(int *)ctx;
    traces++;
    for (int i = 0; i < 20; i++) {
        mr_array *step = mr_float(i);

        y[i] = mr_add(mr_tree_array_at(in, 0), step);
        mr_release(step);
    }
    mr_tree *t = mr_tree_arrays(20, y);

    for (int i = 0; i < 20; i++)
        mr_release(y[i]);
    return t;
}

static void
arrays__come_back_with_the_tag_of_their_trace(void **state)
{
    mr_function *f = mr_compile(body, NULL, NULL);
    mr_array *a = ramp(3, 1.0);
    int tag = 7, other = 9;

    (void)state;
    traces = 0;
    for (int i = 0; i < 3; i++) {
        mr_call_results r;

        assert_int_equal(mr_call_arrays(f, 1, &a, "k", 1, twenty,
                                        i == 0 ? &tag : &other, &r),
                         MR_OK);
        assert_int_equal(r.n, 20);
        assert_int_equal(r.tag, 7);
        for (int k = 0; k < 20; k++)
            mrt_assert_same(r.leaf[k], mr_add(a, mr_float(k)));
        mr_call_results_end(&r);
        assert_int_equal(r.n, 0);
    }
    assert_int_equal(traces, 1);
    mr_function_release(f);
}

static mr_tree *
refuses(void *ctx, const mr_tree *in, int64_t *tag)
{
    (void)ctx;
    (void)in;
    (void)tag;
    mr_error_set(MR_E_USER, "not today");
    return NULL;
}

static void
arrays__of_a_failed_trace_are_none(void **state)
{
    mr_function *f = mr_compile(body, NULL, NULL);
    mr_array *a = ramp(3, 1.0), *none = NULL;
    mr_call_results r;

    (void)state;
    assert_int_equal(mr_call_arrays(f, 1, &a, NULL, 0, refuses, NULL, &r),
                     MR_E_USER);
    assert_int_equal(r.n, 0);
    mr_call_results_end(&r);
    mr_error_take();
    assert_int_equal(mr_call_arrays(f, 1, &none, NULL, 0, refuses, NULL, &r),
                     MR_E_NULL);
    mr_error_take();
    assert_int_equal(mr_call_arrays(f, 1, &a, NULL, 1, refuses, NULL, &r),
                     MR_E_NULL);
    mr_error_take();
    mr_function_release(f);
}

typedef struct erasing {
    mr_function *f;
} erasing;

/* Drops the last reference of its own function half way. */
static mr_tree *
erases_itself(void *ctx, const mr_tree *in, int64_t *tag)
{
    erasing *e = ctx;
    mr_array *x = mr_tree_array_at(in, 0), *y = mr_multiply(x, x);
    mr_tree *t;

    *tag = 1;
    mr_function_cache_clear(e->f);
    mr_compile_cache_clear();
    t = mr_tree_leaf(y);
    mr_release(y);
    return t;
}

static void
erase__inside_a_trace_leaves_the_trace_whole(void **state)
{
    erasing e = {mr_compile(body, NULL, NULL)};
    mr_array *a = ramp(3, 1.0);

    (void)state;
    for (int i = 0; i < 2; i++) {
        mr_call_results r;

        assert_int_equal(
            mr_call_arrays(e.f, 1, &a, NULL, 0, erases_itself, &e, &r), MR_OK);
        mrt_assert_same(r.leaf[0], mr_multiply(a, a));
        mr_call_results_end(&r);
        mr_compile_cache_clear();
    }
    mr_function_release(e.f);
}

static mr_tree *
square_inside(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0), *y;
    mr_call_results r;
    int tag = 3;

    if (mr_call_arrays(ctx, 1, &a, NULL, 0, twenty, &tag, &r) != MR_OK)
        return NULL;
    y = mr_sum(mr_multiply(r.leaf[2], r.leaf[2]), MR_AXES_ALL, false);
    mr_call_results_end(&r);
    return mr_tree_leaf(y);
}

static void
arrays__are_part_of_an_open_trace(void **state)
{
    mr_function *f = mr_compile(body, NULL, NULL);
    mr_tree *g = mr_grad(square_inside, f, MR_ARRAYS(ramp(3, 1)), NULL, 0);

    (void)state;
    /* d/da sum (a + 2)^2 */
    mrt_assert_f32(mr_tree_array(g), (float[]){4, 6, 8}, 3);
    mr_function_release(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(arrays__come_back_with_the_tag_of_their_trace),
        mrt_test(arrays__of_a_failed_trace_are_none),
        mrt_test(arrays__are_part_of_an_open_trace),
        mrt_test(erase__inside_a_trace_leaves_the_trace_whole),
        mrt_test(call__equals_eager),
        mrt_test(call__rows_and_products_equal_eager),
        mrt_test(call__gives_arguments_and_captured_arrays_back),
        mrt_test(call__gives_results_that_depend_on_nothing),
        mrt_test(call__takes_strided_arguments),
        mrt_test(cache__traces_once_a_signature),
        mrt_test(cache__keeps_to_its_limit),
        mrt_test(key__static_bytes_are_part_of_it),
        mrt_test(trace__reading_a_value_is_an_error_that_says_what_to_do),
        mrt_test(trace__a_branch_on_a_value_that_is_not_there_fails),
        mrt_test(trace__a_compiled_function_inside_is_inlined),
        mrt_test(trace__gradient_inside_is_right),
        mrt_test(trace__gradient_of_a_compiled_function_is_right),
        mrt_test(trace__a_failing_closure_passes_its_error_on),
        mrt_test(threads__nested_first_traces_do_not_deadlock),
        mrt_test(threads__share_and_erase_one_function),
        mrt_test(random__compiled_draws_equal_eager_ones),
        mrt_test(memory__each_failing_allocation_is_a_clean_error),
    };

    return cmocka_run_group_tests_name("compile/function", tests, NULL, NULL);
}
