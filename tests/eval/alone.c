/* SPDX-License-Identifier: Apache-2.0
 *
 * alone.c -- results of warm calls, which one thread computes without the plan
 * lock, beside threads that plan.  takes.c tries the protocol's interleavings.
 */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "support/mrt.h"

enum { ROUNDS = MRT_TSAN ? 200 : 2000, THREADS = 4 };

/* (a, b) to (2 a + b, a - b), from two groups */
static mr_tree *
two_results(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0), *b = mr_tree_array_at(in, 1);

    (void)ctx;
    return MR_ARRAYS(mr_add(mr_add(a, a), b), mr_subtract(a, b));
}

static mr_tree *
one_result(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0), *b = mr_tree_array_at(in, 1);

    (void)ctx;
    return mr_tree_leaf(mr_add(mr_multiply(a, b), a));
}

static mr_tree *
factor(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_leaf(mr_linalg_cholesky(mr_tree_array_at(in, 0), false));
}

/* Two evaluated arrays of the values x and y. */
static mr_tree *
pair(double x, double y)
{
    mr_array *a = mr_full(MR_SHAPE(3), x, MR_FLOAT32);
    mr_array *b = mr_full(MR_SHAPE(3), y, MR_FLOAT32);

    assert_int_equal(mr_eval(a), MR_OK);
    assert_int_equal(mr_eval(b), MR_OK);
    return MR_ARRAYS(a, b);
}

/* A compiled function that has been called with these. */
static mr_function *
warm(mr_tree *(*body)(void *, const mr_tree *), mr_tree *args)
{
    mr_function *f = mr_compile(body, NULL, NULL);

    assert_int_equal(mr_eval_tree(mr_call(f, args)), MR_OK);
    return f;
}

static mr_stats
stats(void)
{
    mr_stats s = {.size = sizeof s};

    assert_int_equal(mr_stats_get(&s), MR_OK);
    return s;
}

/* Holds of the plan lock since, but for those of asking. */
static uint64_t
holds_since(const mr_stats *before)
{
    return stats().plan_holds - before->plan_holds - 1;
}

/* ---- one thread --------------------------------------------------------- */

static void
alone__takes_no_plan_lock_and_counts(void **state)
{
    mr_tree *args = pair(2.0, 3.0);
    mr_function *f = warm(one_result, args), *g = warm(two_results, args);
    mr_stats before = stats(), after;

    (void)state;
    for (int i = 0; i < 10; i++) {
        mr_array *x = mr_tree_array(mr_call(f, args));
        mr_tree *r = mr_call(g, args);

        assert_int_equal(mr_eval(x), MR_OK);
        assert_int_equal(mr_eval_tree(r), MR_OK);
        mrt_assert_f32(x, (float[]){8, 8, 8}, 3);
        mrt_assert_f32(mr_tree_array_at(r, 0), (float[]){7, 7, 7}, 3);
        mrt_assert_f32(mr_tree_array_at(r, 1), (float[]){-1, -1, -1}, 3);
    }
    assert_int_equal(holds_since(&before), 0);
    after = stats();
    assert_int_equal(after.kernels_run - before.kernels_run, 20);
    assert_int_equal(after.tasks_run - before.tasks_run, 20);
    mr_function_release(f);
    mr_function_release(g);
}

/* What is not that simple is planned, with the same values. */
static void
alone__all_else_is_planned(void **state)
{
    mr_tree *args = pair(2.0, 3.0), *lazy;
    mr_function *f = warm(one_result, args), *g = warm(two_results, args);
    mr_stream s = mr_stream_new((mr_device){MR_CPU, 0}), old;
    mr_stats before = stats();
    mr_array *x;
    mr_tree *r;

    (void)state;
    /* an argument that is not there */
    lazy = MR_ARRAYS(mr_negative(mr_tree_array_at(args, 0)),
                     mr_tree_array_at(args, 1));
    x = mr_tree_array(mr_call(f, lazy));
    assert_int_equal(mr_eval(x), MR_OK);
    mrt_assert_f32(x, (float[]){-8, -8, -8}, 3);
    assert_true(holds_since(&before) > 0);
    /* one of two results, then the other, which is there */
    before = stats();
    r = mr_call(g, args);
    assert_int_equal(mr_eval(mr_tree_array_at(r, 1)), MR_OK);
    assert_true(holds_since(&before) > 0);
    mrt_assert_f32(mr_tree_array_at(r, 1), (float[]){-1, -1, -1}, 3);
    mrt_assert_f32(mr_tree_array_at(r, 0), (float[]){7, 7, 7}, 3);
    /* a stream that was asked for */
    old = mr_stream_scope(s);
    x = mr_tree_array(mr_call(f, args));
    mr_stream_scope(old);
    before = stats();
    assert_int_equal(mr_eval(x), MR_OK);
    assert_true(holds_since(&before) > 0);
    mrt_assert_f32(x, (float[]){8, 8, 8}, 3);
    /* its task lets go after the result is there: here, not in another test */
    assert_int_equal(mr_stream_sync(s), MR_OK);
    /* part of a graph */
    x = mr_add(mr_tree_array(mr_call(f, args)), mr_tree_array_at(args, 0));
    mrt_assert_f32(x, (float[]){10, 10, 10}, 3);
    mr_stream_free(s);
    mr_function_release(f);
    mr_function_release(g);
}

/* Its memory is given back, and no reference to the arguments is left.  What a
 * worker still had of another test may go meanwhile. */
static void
alone__leaves_nothing_behind(void **state)
{
    mr_tree *args = pair(1.0, 1.0);
    mr_function *f = warm(one_result, args);
    size_t active;

    (void)state;
    /* of the warm call's task too */
    mrt_tasks_end();
    active = mr_memory_active();
    for (int i = 0; i < 100; i++) {
        mr_scope s = mr_scope_begin();

        assert_int_equal(mr_eval_tree(mr_call(f, args)), MR_OK);
        mr_scope_end(s);
    }
    mrt_tasks_end();
    assert_in_range(mr_memory_active(), 0, active);
    mr_function_release(f);
}

static void
alone__error_of_the_data_sticks_and_names_the_call(void **state)
{
    float good[] = {4, 0, 0, 9}, bad[] = {1, 2, 2, 1};
    mr_tree *args = MR_ARRAYS(mr_array_from_f32(good, MR_SHAPE(2, 2)));
    mr_function *f = warm(factor, args);
    mr_array *x = mr_tree_array(
        mr_call(f, MR_ARRAYS(mr_array_from_f32(bad, MR_SHAPE(2, 2)))));

    (void)state;
    for (int i = 0; i < 2; i++) {
        mr_error e;

        assert_int_equal(mr_eval(x), MR_E_VALUE);
        e = mr_error_last();
        assert_non_null(strstr(e.message, "cholesky"));
        assert_non_null(e.site);
        assert_non_null(strstr(e.site, "alone.c"));
        mr_error_take();
    }
    x = mr_tree_array(mr_call(f, args));
    mrt_assert_f32(x, (float[]){2, 0, 0, 3}, 4);
    mr_function_release(f);
}

/* ---- threads ------------------------------------------------------------ */

/* One result, which all threads evaluate, alone or below another operator. */
typedef struct shared {
    mr_function *f;
    mr_tree *args;
    _Atomic(mr_array *) x[ROUNDS];
    _Atomic int arrived;
    _Atomic int wrong;
} shared;

static bool
is_all(mr_array *x, float want)
{
    const float *v = mr_array_data(x);

    return v != NULL && v[0] == want && v[1] == want && v[2] == want;
}

static void
evaluate_shared(void *arg, int me)
{
    shared *s = arg;

    for (int i = 0; i < ROUNDS; i++) {
        mr_scope scope = mr_scope_begin();
        mr_array *x, *y = NULL;

        /* acq_rel, acquire: all begin together */
        atomic_fetch_add_explicit(&s->arrived, 1, memory_order_acq_rel);
        while (atomic_load_explicit(&s->arrived, memory_order_acquire) <
               (i + 1) * THREADS)
            usleep(0);
        x = atomic_load_explicit(&s->x[i], memory_order_acquire);
        if (me % 2 == 1)
            y = mr_add(x, mr_tree_array_at(s->args, 0));
        if (mr_eval(y != NULL ? y : x) != MR_OK || !is_all(x, 8.0F) ||
            (y != NULL && !is_all(y, 10.0F)))
            atomic_fetch_add(&s->wrong, 1);
        mr_scope_end(scope);
    }
}

static void
threads__share_one_result(void **state)
{
    static shared s;
    mr_stats before, after;

    (void)state;
    s.args = pair(2.0, 3.0);
    s.f = warm(one_result, s.args);
    s.arrived = s.wrong = 0;
    for (int i = 0; i < ROUNDS; i++)
        s.x[i] = mr_retain(mr_tree_array(mr_call(s.f, s.args)));
    before = stats();
    mrt_threads(THREADS, evaluate_shared, &s);
    after = stats();
    assert_int_equal(s.wrong, 0);
    /* each call once, and the sums of the threads that add */
    assert_int_equal(after.kernels_run - before.kernels_run,
                     ROUNDS + ROUNDS * (THREADS / 2));
    for (int i = 0; i < ROUNDS; i++)
        mr_release(s.x[i]);
    mr_function_release(s.f);
}

static void
call_and_drop(void *arg, int me)
{
    shared *s = arg;

    (void)me;
    while (atomic_load(&s->arrived) == 0) {
        mr_scope scope = mr_scope_begin();

        if (mr_eval_tree(mr_call(s->f, s->args)) != MR_OK)
            atomic_fetch_add(&s->wrong, 1);
        mr_scope_end(scope);
    }
}

static void
evaluate_in_child(void *arg)
{
    mr_array *const *x = arg;

    alarm(20);
    _exit(mr_eval(x[0]) == MR_OK && is_all(x[0], 8.0F) ? 0 : 1);
}

/* Thread 0 forks while the others evaluate what the child evaluates too. */
static void
fork_or_evaluate(void *arg, int me)
{
    shared *s = arg;
    char text[256];

    if (me != 0) {
        call_and_drop(s, me);
        return;
    }
    for (int i = 0; i < 20; i++) {
        mr_scope scope = mr_scope_begin();
        mr_array *x = mr_tree_array(mr_call(s->f, s->args));

        if (mrt_child(evaluate_in_child, &x, text, sizeof text) != 0)
            atomic_fetch_add(&s->wrong, 1);
        mr_scope_end(scope);
    }
    atomic_store(&s->arrived, 1);
}

static void
threads__fork_beside_them(void **state)
{
    static shared s;

    (void)state;
    s.args = pair(2.0, 3.0);
    s.f = warm(one_result, s.args);
    s.arrived = s.wrong = 0;
    mrt_threads(3, fork_or_evaluate, &s);
    assert_int_equal(s.wrong, 0);
    mr_function_release(s.f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(alone__takes_no_plan_lock_and_counts),
        mrt_test(alone__all_else_is_planned),
        mrt_test(alone__leaves_nothing_behind),
        mrt_test(alone__error_of_the_data_sticks_and_names_the_call),
        mrt_test(threads__share_one_result),
        mrt_test(threads__fork_beside_them),
    };

    return cmocka_run_group_tests_name("eval/alone", tests, NULL, NULL);
}
