/* SPDX-License-Identifier: Apache-2.0
 *
 * keys.c -- what a program is found by, what the modes leave of a graph, and
 * where the last reference to a function may go.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pool.h"
#include "compile/program.h"
#include "compile/steps.h"
#include "support/base.h"
#include "support/mrt.h"

static _Atomic int traces;

static mr_tree *
first(void *ctx, const mr_tree *in)
{
    mr_array *x[8];
    int n = mr_tree_n_leaves(in);

    (void)ctx;
    traces++;
    assert_int_equal(mr_tree_leaves(in, x, n), MR_OK);
    return mr_tree_leaf(mr_add(x[0], mr_int(1)));
}

/* ---- the key
 * -----------------------------------------------------------------
 */

typedef struct key_case {
    mr_tree *args;
    const void *bytes;
    size_t n;
    mr_compile_mode mode;
} key_case;

/* Every two differ in one component, and each finds itself again. */
static void
key__every_component_counts(void **state)
{
    static const double zeros[] = {0.0, -0.0};
    mr_array *a = mr_zeros(MR_SHAPE(2, 3), MR_FLOAT32);
    mr_array *t = mr_zeros(MR_SHAPE(3, 2), MR_FLOAT32);
    mr_array *flat = mr_zeros(MR_SHAPE(6), MR_FLOAT32);
    mr_array *half = mr_zeros(MR_SHAPE(2, 3), MR_FLOAT16);
    mr_tree *leaf = mr_tree_leaf(a);
    key_case c[] = {
        {MR_ARRAYS(a), NULL, 0, MR_COMPILE_ENABLED},
        {MR_ARRAYS(t), NULL, 0, MR_COMPILE_ENABLED},
        {MR_ARRAYS(flat), NULL, 0, MR_COMPILE_ENABLED},
        {MR_ARRAYS(half), NULL, 0, MR_COMPILE_ENABLED},
        {MR_ARRAYS(a, a), NULL, 0, MR_COMPILE_ENABLED},
        {leaf, NULL, 0, MR_COMPILE_ENABLED},
        {mr_tree_list(1, &leaf), NULL, 0, MR_COMPILE_ENABLED},
        {mr_tree_dict(1, (const char *[]){"k"}, &leaf), NULL, 0,
         MR_COMPILE_ENABLED},
        {mr_tree_dict(1, (const char *[]){"l"}, &leaf), NULL, 0,
         MR_COMPILE_ENABLED},
        {MR_ARRAYS(a), &zeros[0], 8, MR_COMPILE_ENABLED},
        {MR_ARRAYS(a), &zeros[1], 8, MR_COMPILE_ENABLED},
        {MR_ARRAYS(a), &zeros[0], 4, MR_COMPILE_ENABLED},
        {MR_ARRAYS(a), NULL, 0, MR_COMPILE_NO_FUSE},
        {MR_ARRAYS(a), NULL, 0, MR_COMPILE_NO_SIMPLIFY},
    };
    const int n = sizeof c / sizeof c[0];
    mr_function *f = mr_compile(first, NULL, NULL);
    mr_function *g = mr_compile(first, NULL, NULL);

    (void)state;
    traces = 0;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < n; i++) {
            mr_compile_set_mode(c[i].mode);
            assert_non_null(
                mr_call_keyed(f, c[i].args, c[i].bytes, c[i].n, NULL));
            mr_compile_set_mode(MR_COMPILE_ENABLED);
            assert_int_equal(traces, round == 0 ? i + 1 : n);
        }
    assert_non_null(mr_call(g, c[0].args));
    assert_int_equal(traces, n + 1);
    mr_function_release(f);
    mr_function_release(g);
}

/* A function that takes the place of another gets none of its programs. */
static void
ids__are_never_used_again(void **state)
{
    mr_tree *args = MR_ARRAYS(mr_zeros(MR_SHAPE(2), MR_FLOAT32));

    (void)state;
    traces = 0;
    for (int i = 0; i < 300; i++) {
        mr_function *f = mr_compile(first, NULL, NULL);

        assert_non_null(mr_call(f, args));
        mr_function_release(f);
        assert_int_equal(traces, i + 1);
    }
}

/* The stream and the thread do not count. */
static void
key__streams_do_not_count(void **state)
{
    mr_tree *args = MR_ARRAYS(mr_zeros(MR_SHAPE(2), MR_FLOAT32));
    mr_function *f = mr_compile(first, NULL, NULL);
    mr_stream s = mr_stream_new((mr_device){MR_CPU, 0}), old;

    (void)state;
    traces = 0;
    assert_non_null(mr_call(f, args));
    old = mr_stream_scope(s);
    assert_int_equal(mr_eval_tree(mr_call(f, args)), MR_OK);
    mr_stream_scope(old);
    assert_int_equal(traces, 1);
    mr_function_release(f);
}

/* ---- modes
 * -------------------------------------------------------------------
 */

/* Two equal branches, for the simplifier; a chain, for the fuser. */
static mr_array *
twice_the_same(mr_array *x)
{
    return mr_add(mr_exp(mr_multiply(mr_negative(x), mr_float(2.0))),
                  mr_exp(mr_multiply(mr_negative(x), mr_float(2.0))));
}

static void
count(mr_compile_mode mode, int *n_steps, int *n_nodes)
{
    uint64_t trace = mr__trace_begin();
    mr_array *x = mr__node_placeholder(MR_FLOAT32, 1, (int64_t[]){64}, trace);
    mr_array *y = twice_the_same(x);
    mr_array *holder;

    mr__trace_end(trace);
    mr_compile_set_mode(mode);
    holder = mr__program_new(NULL, &x, 1, &y, 1);
    mr_compile_set_mode(MR_COMPILE_ENABLED);
    assert_non_null(holder);
    *n_steps = mr__program_of(holder)->n_steps;
    *n_nodes = mr__program_of(holder)->n_nodes;
}

static void
modes__say_how_many_kernels_and_nodes_there_are(void **state)
{
    int steps[3], nodes[3];

    (void)state;
    count(MR_COMPILE_ENABLED, &steps[0], &nodes[0]);
    count(MR_COMPILE_NO_SIMPLIFY, &steps[1], &nodes[1]);
    count(MR_COMPILE_NO_FUSE, &steps[2], &nodes[2]);
    assert_int_equal(steps[0], 1);
    assert_int_equal(steps[1], 1);
    assert_int_equal(steps[2], 4); /* negative, multiply, exp, add */
    assert_int_equal(nodes[2], nodes[0]);
    assert_int_equal(nodes[1] - nodes[0], 4); /* a branch and its number */
}

static mr_tree *
body_twice(void *ctx, const mr_tree *in)
{
    (void)ctx;
    traces++;
    return mr_tree_leaf(twice_the_same(mr_tree_array_at(in, 0)));
}

static void
modes__give_equal_results(void **state)
{
    static const mr_compile_mode modes[] = {
        MR_COMPILE_DISABLED, MR_COMPILE_NO_SIMPLIFY, MR_COMPILE_NO_FUSE,
        MR_COMPILE_ENABLED};
    mr_array *x = mr_random_normal(MR_SHAPE(1000), MR_FLOAT32, mr_float(0),
                                   mr_float(1), MR_NONE);
    mr_array *eager = twice_the_same(x);
    mr_function *f = mr_compile(body_twice, NULL, NULL);

    (void)state;
    assert_int_equal(mr_eval(eager), MR_OK);
    traces = 0;
    for (size_t i = 0; i < MRT_COUNT(modes); i++) {
        mr_tree *out;

        mr_compile_set_mode(modes[i]);
        out = mr_call(f, MR_ARRAYS(x));
        assert_non_null(out);
        assert_int_equal(mr_eval_tree(out), MR_OK);
        mr_compile_set_mode(MR_COMPILE_ENABLED);
        mrt_assert_same(mr_tree_array(out), eager);
        assert_int_equal(traces, (int)i + 1); /* none is taken for another */
    }
    mr_function_release(f);
}

/* ---- who may release
 * ---------------------------------------------------------
 */

static pthread_mutex_t users = PTHREAD_MUTEX_INITIALIZER;
static mr_function *to_release;
static pthread_barrier_t meet;

static mr_tree *
wants_the_mutex(void *ctx, const mr_tree *in)
{
    pthread_barrier_wait(&meet); /* the other thread has the mutex now */
    pthread_mutex_lock(&users);
    pthread_mutex_unlock(&users);
    return first(ctx, in);
}

static void *
trace_it(void *f)
{
    mr_scope s = mr_scope_begin();
    mr_tree *r = mr_call(f, MR_ARRAYS(mr_zeros(MR_SHAPE(2), MR_FLOAT32)));
    void *ok = r != NULL ? f : NULL;

    mr_scope_end(s);
    return ok;
}

static void
release__under_a_mutex_that_a_trace_wants_does_not_wait(void **state)
{
    mr_function *f = mr_compile(wants_the_mutex, NULL, NULL);
    mr_function *g = mr_compile(first, NULL, NULL);
    pthread_t thread;
    void *ok = NULL;

    (void)state;
    assert_non_null(trace_it(g));
    pthread_barrier_init(&meet, NULL, 2);
    pthread_mutex_lock(&users);
    pthread_create(&thread, NULL, trace_it, f);
    pthread_barrier_wait(&meet);
    mr_function_release(g);
    mr_function_cache_clear(f);
    mr_compile_cache_clear();
    pthread_mutex_unlock(&users);
    pthread_join(thread, &ok);
    assert_non_null(ok);
    pthread_barrier_destroy(&meet);
    mr_function_release(f);
}

/* ---- figures
 * ------------------------------------------------------------------ */

typedef struct worker {
    mr_function *f;
    mr_tree *args;
    bool ok;
} worker;

/* Lives on, with its hits, while the other asks. */
static void *
call_and_wait(void *of)
{
    worker *w = of;

    w->ok = true;
    for (int i = 0; i < 500; i++) {
        mr_tree *r = mr_call(w->f, w->args);

        w->ok = w->ok && r != NULL;
        mr_tree_release(r);
    }
    pthread_barrier_wait(&meet);
    pthread_barrier_wait(&meet);
    return NULL;
}

static void
hits__of_living_threads_are_counted(void **state)
{
    mr_function *f = mr_compile(first, NULL, NULL);
    mr_function *other = mr_compile(first, NULL, NULL);
    worker w = {f, MR_ARRAYS(mr_zeros(MR_SHAPE(2), MR_FLOAT32)), false};
    mr_cache_info info = {.size = sizeof info}, all = {.size = sizeof all};
    uint64_t before;
    pthread_t thread;

    (void)state;
    assert_non_null(mr_call(f, w.args));
    assert_non_null(mr_call(other, w.args));
    assert_int_equal(mr_compile_cache_info(&all), MR_OK);
    before = all.hits;
    pthread_barrier_init(&meet, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, call_and_wait, &w), 0);
    pthread_barrier_wait(&meet);
    assert_int_equal(mr_function_cache_info(f, &info), MR_OK);
    assert_int_equal(mr_compile_cache_info(&all), MR_OK);
    assert_int_equal(info.hits, 500);
    assert_int_equal(all.hits - before, 500);
    assert_int_equal(mr_function_cache_info(other, &info), MR_OK);
    assert_int_equal(info.hits, 0);
    pthread_barrier_wait(&meet);
    pthread_join(thread, NULL);
    assert_true(w.ok);
    assert_int_equal(mr_function_cache_info(f, &info), MR_OK);
    assert_int_equal(mr_compile_cache_info(&all), MR_OK);
    assert_int_equal(info.hits, 500);
    assert_int_equal(all.hits - before, 500);
    pthread_barrier_destroy(&meet);
    mr_function_release(other);
    mr_function_release(f);
}

static _Atomic bool job_done;

static void
release_job(void *f)
{
    mr_function_release(f);
    atomic_store(&job_done, true);
}

static void
release__works_from_a_worker(void **state)
{
    mr_function *f = mr_compile(first, NULL, NULL);

    (void)state;
    assert_non_null(trace_it(f));
    atomic_store(&job_done, false);
    assert_true(mr__pool_job(release_job, f));
    while (!atomic_load(&job_done))
        usleep(100);
}

static void
release_at_exit(void)
{
    mr_function_release(to_release);
}

static void
ends_with_a_function(void *arg)
{
    (void)arg;
    to_release = mr_compile(first, NULL, NULL);
    if (trace_it(to_release) == NULL || atexit(release_at_exit) != 0)
        _exit(3);
    exit(0);
}

static void
release__works_at_exit(void **state)
{
    char text[256];
    int status = mrt_child(ends_with_a_function, NULL, text, sizeof text);

    (void)state;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(key__every_component_counts),
        mrt_test(ids__are_never_used_again),
        mrt_test(key__streams_do_not_count),
        mrt_test(modes__say_how_many_kernels_and_nodes_there_are),
        mrt_test(modes__give_equal_results),
        mrt_test(release__under_a_mutex_that_a_trace_wants_does_not_wait),
        mrt_test(release__works_from_a_worker),
        mrt_test(release__works_at_exit),
        mrt_test(hits__of_living_threads_are_counted),
    };

    return cmocka_run_group_tests_name("compile/keys", tests, NULL, NULL);
}
