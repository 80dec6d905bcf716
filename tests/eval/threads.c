/* SPDX-License-Identifier: Apache-2.0
 *
 * threads.c -- evaluation from several threads and on several streams.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pool.h"
#include "marram/marram.h"
#include "support/base.h"
#include "support/device_op.h"

enum { SCALE = MRT_TSAN ? 4 : 1 };

/* of eval/task.h, which cannot stand beside the public header */
int64_t mr__tasks_in_flight(void);
size_t mr__bytes_in_flight(void);

static const mr_device cpu = {MR_CPU, 0};

/* ---- graphs of counted nodes -------------------------------------------- */

enum { N_NODES = 400, MAX_STREAMS = 4 };

typedef struct graph {
    int n;
    mr_array *x[N_NODES];
    float value[N_NODES];
    mr_stream stream[MAX_STREAMS];
    int n_streams;
} graph;

static uint32_t
scramble(uint64_t x)
{
    x = (x ^ 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 31;
    return (uint32_t)((x * 0x94d049bb133111ebu) >> 33);
}

/* Node i is (one or two earlier nodes, by a fused operator) + 1, the last step
 * counted by counter i; values stay small integers. */
static void
graph_make(graph *g, int n, int n_streams, uint64_t seed)
{
    g->n = n;
    g->n_streams = n_streams;
    for (int k = 0; k < n_streams; k++)
        g->stream[k] = mr_stream_new(cpu);
    for (int i = 0; i < n; i++) {
        uint32_t r = scramble(seed * 1000 + (uint64_t)i);
        int a = i == 0 ? 0 : i - 1 - (int)(r % (uint32_t)(i < 20 ? i : 20));
        int b = i == 0 ? 0 : (int)(r / 32 % (uint32_t)i);
        mr_stream old = {0};
        mr_array *m;

        if (i == 0) {
            g->x[0] = mr_full(MR_SHAPE(8), 1.0, MR_FLOAT32);
            g->value[0] = 1.0F;
            continue;
        }
        if (n_streams > 0)
            old = mr_stream_scope(g->stream[r / 1024 % (uint32_t)n_streams]);
        if (r & 1) {
            m = mr_maximum(g->x[a], g->x[b]);
            g->value[i] = g->value[a] > g->value[b] ? g->value[a] : g->value[b];
        } else {
            m = mr_negative(g->x[a]);
            g->value[i] = -g->value[a];
        }
        g->x[i] = mrt_count(m, i);
        g->value[i] += 1.0F;
        mr_release(m);
        if (n_streams > 0)
            mr_stream_scope(old);
    }
}

static void
graph_free(graph *g)
{
    for (int i = 0; i < g->n; i++)
        mr_release(g->x[i]);
    for (int k = 0; k < g->n_streams; k++)
        mr_stream_free(g->stream[k]);
}

static void
graph_check(graph *g)
{
    for (int i = 0; i < g->n; i++) {
        float got[8];

        assert_int_equal(mr_array_copy_f32(g->x[i], got, 8), MR_OK);
        for (int k = 0; k < 8; k++)
            assert_true(got[k] == g->value[i]);
        assert_int_equal(mrt_runs(i), i == 0 ? 0 : 1);
    }
}

/* ---- overlapping evaluations -------------------------------------------- */

typedef struct job {
    graph *g;
    uint64_t seed;
    _Atomic int wrong;
} job;

static void
evaluate_randomly(void *arg, int who)
{
    job *j = arg;

    for (int k = 0; k < 40; k++) {
        uint32_t r = scramble(j->seed + (uint64_t)(who * 1000 + k));
        mr_array *root[3];

        for (int i = 0; i < 3; i++)
            root[i] = j->g->x[scramble(r + (uint32_t)i) % (uint32_t)j->g->n];
        if (r % 4 == 0 ? mr_async_eval(root, 3) != MR_OK
                       : mr_eval_many(root, 1 + (int)(r % 3)) != MR_OK)
            atomic_fetch_add(&j->wrong, 1);
    }
}

static void
overlap(int n_threads, int n_streams, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        graph g;
        job j = {.g = &g, .seed = (uint64_t)i * 77};

        mrt_counters_clear();
        graph_make(&g, N_NODES, n_streams, (uint64_t)i);
        mrt_threads(n_threads, evaluate_randomly, &j);
        assert_int_equal(j.wrong, 0);
        graph_check(&g);
        graph_free(&g);
    }
}

static void
overlapping_graphs__run_each_kernel_once(void **state)
{
    (void)state;
    overlap(2, 0, 40 / SCALE);
    overlap(8, 0, 40 / SCALE);
}

static void
overlapping_graphs__run_once_across_streams(void **state)
{
    (void)state;
    overlap(2, 2, 40 / SCALE);
    overlap(8, 4, 40 / SCALE);
    overlap(1, 4, 20 / SCALE);
}

/* ---- own graphs --------------------------------------------------------- */

static void
chains_of_my_own(void *arg, int who)
{
    _Atomic int *wrong = arg;

    for (int round = 0; round < 60 / SCALE; round++) {
        mr_array *x = mr_full(MR_SHAPE(1000), who, MR_FLOAT32);
        float last[1000];

        for (int i = 0; i < 30; i++) {
            mr_array *y = i % 7 == 6 ? mrt_count(x, 0) : mr_negative(x);

            mr_release(x);
            x = y;
        }
        /* 26 negations and 4 increments, three of them behind an odd number
         * of negations: they cancel in pairs */
        if (mr_array_copy_f32(x, last, 1000) != MR_OK || last[0] != last[999])
            atomic_fetch_add(wrong, 1);
        mr_release(x);
    }
}

static void
threads_of_their_own__do_not_disturb(void **state)
{
    _Atomic int wrong = 0;

    (void)state;
    mrt_threads(8, chains_of_my_own, &wrong);
    assert_int_equal(wrong, 0);
}

/* ---- asynchronous ------------------------------------------------------- */

static void
async_pipeline__is_right(void **state)
{
    enum { STEPS = 5000 / SCALE };
    mr_array *x = mr_full(MR_SHAPE(4), 0.0, MR_FLOAT32);
    float got[4];

    (void)state;
    mrt_counters_clear();
    for (int i = 0; i < STEPS; i++) {
        mr_array *y = mrt_count(x, 1);

        mr_release(x);
        x = y;
        assert_int_equal(mr_async_eval(&x, 1), MR_OK);
    }
    assert_int_equal(mr_array_copy_f32(x, got, 4), MR_OK);
    assert_true(got[0] == (float)STEPS);
    assert_int_equal(mrt_runs(1), STEPS);
    mr_release(x);
}

static void
async_eval__returns_before_the_work_is_done(void **state)
{
    mr_array *x = mr_full(MR_SHAPE(4), 0.0, MR_FLOAT32);
    mr_array *y = mrt_counted_op(x, (mrt_counted){.counter = 2, .gate = 1});

    (void)state;
    mrt_counters_clear();
    assert_int_equal(mr_async_eval(&y, 1), MR_OK);
    assert_false(mr_array_is_evaluated(y));
    mrt_gate_open(1);
    assert_int_equal(mr_eval(y), MR_OK);
    assert_true(mr_array_is_evaluated(y));
    mr_release(y);
    mr_release(x);
}

/* A chain of `n` results of `size` elements, each let go when the next is
 * made; the first one waits at the gate. */
typedef struct chain {
    int n;
    int64_t size;
    int counter, gate;
    _Atomic int submitted; /* so far */
} chain;

static void *
submit_chain(void *arg)
{
    chain *c = arg;
    mr_array *x = mr_full(MR_SHAPE(c->size), 0.0, MR_FLOAT32);

    for (int i = 0; i < c->n; i++) {
        mr_array *y =
            mrt_counted_op(x, (mrt_counted){.counter = c->counter,
                                            .gate = i == 0 ? c->gate : 0});

        mr_release(x);
        x = y;
        mr_async_eval(&x, 1);
        atomic_store(&c->submitted, i + 1);
    }
    mr_eval(x);
    mr_release(x);
    return NULL;
}

/* Submits on a thread; gives how many had been when it got no further. */
static int
submitted_until_blocked(chain *c, pthread_t *thread)
{
    int before = -1;

    mrt_counters_clear();
    pthread_create(thread, NULL, submit_chain, c);
    while (before != atomic_load(&c->submitted) || before == 0) {
        before = atomic_load(&c->submitted);
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    }
    return before;
}

static void
async_eval__blocks_at_its_bound(void **state)
{
    chain c = {.n = 6000, .size = 1, .counter = 3, .gate = 2};
    pthread_t thread;
    int n = submitted_until_blocked(&c, &thread);

    (void)state;
    assert_true(n >= 4000 && n < c.n);
    assert_true(mr__tasks_in_flight() < c.n);
    mrt_gate_open(c.gate);
    pthread_join(thread, NULL);
    assert_int_equal(mrt_runs(c.counter), c.n);
}

enum { MIB = 1 << 20 };

static void
async_eval__bounds_the_bytes_in_flight(void **state)
{
    chain c = {.n = 600, .size = MIB / 4, .counter = 4, .gate = 3};
    pthread_t thread;
    size_t active = mr_memory_active();
    int n = submitted_until_blocked(&c, &thread);

    (void)state;
    assert_in_range(n, 255, 260);
    assert_in_range(mr__bytes_in_flight(), 256 * MIB, 260 * MIB);
    assert_true(mr_memory_active() - active < 270 * (size_t)MIB);
    mrt_gate_open(c.gate);
    pthread_join(thread, NULL);
    assert_int_equal(mrt_runs(c.counter), c.n);
    while (mr__tasks_in_flight() > 0)
        sched_yield();
    assert_int_equal(mr__bytes_in_flight(), 0);
}

/* What a call takes itself does not count: a large step is begun. */
static void
async_eval__begins_what_is_larger_than_the_bound(void **state)
{
    mr_array *x = mr_full(MR_SHAPE(70 * MIB), 0.0, MR_FLOAT32);
    mr_array *y = mrt_counted_op(x, (mrt_counted){.counter = 5, .gate = 4});

    (void)state;
    mr_release(x);
    mrt_counters_clear();
    assert_int_equal(mr_async_eval(&y, 1), MR_OK);
    assert_false(mr_array_is_evaluated(y));
    assert_true(mr__bytes_in_flight() >= 280 * (size_t)MIB);
    mrt_gate_open(4);
    assert_int_equal(mr_eval(y), MR_OK);
    mr_release(y);
}

static void *
start_and_exit(void *arg)
{
    mr_array **x = arg;
    mr_array *one = mr_full(MR_SHAPE(2), 1.0, MR_FLOAT32);

    for (int i = 0; i < 20; i++) {
        x[i] = mrt_counted_op(
            i == 0 ? one : x[i - 1],
            (mrt_counted){.counter = 10 + i, .microseconds = 200});
        mr_async_eval(&x[i], 1);
    }
    mr_release(one);
    return NULL;
}

static void
thread_that_ends__leaves_its_work_behind(void **state)
{
    (void)state;
    for (int round = 0; round < 20 / SCALE; round++) {
        pthread_t thread;
        mr_array *x[20];
        float got[2];

        mrt_counters_clear();
        pthread_create(&thread, NULL, start_and_exit, x);
        pthread_join(thread, NULL);
        assert_int_equal(mr_array_copy_f32(x[19], got, 2), MR_OK);
        assert_true(got[0] == 21.0F);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(mrt_runs(10 + i), 1);
            mr_release(x[i]);
        }
    }
}

/* ---- streams ------------------------------------------------------------ */

static void
stream_sync__waits_for_all_of_it(void **state)
{
    mr_stream s = mr_stream_new(cpu), old = mr_stream_scope(s);
    mr_array *x = mr_full(MR_SHAPE(2), 1.0, MR_FLOAT32);
    mr_array *y =
        mrt_counted_op(x, (mrt_counted){.counter = 5, .microseconds = 20000});

    (void)state;
    mrt_counters_clear();
    mr_stream_scope(old);
    assert_int_equal(mr_async_eval(&y, 1), MR_OK);
    assert_int_equal(mr_stream_sync(s), MR_OK);
    assert_true(mr_array_is_evaluated(y));
    assert_int_equal(mr_stream_sync((mr_stream){0}), MR_OK);
    mr_stream_free(s);
    assert_int_equal(mr_stream_sync(s), MR_E_VALUE);
    mr_error_take();
    mr_release(x);
    mr_release(y);
}

static void
freed_stream__finishes_and_new_nodes_go_elsewhere(void **state)
{
    (void)state;
    mrt_counters_clear();
    for (int round = 0; round < 50; round++) {
        mr_stream s = mr_stream_new(cpu), old = mr_stream_scope(s);
        mr_array *x = mr_full(MR_SHAPE(2), 1.0, MR_FLOAT32);
        mr_array *y =
            mrt_counted_op(x, (mrt_counted){.counter = 6, .microseconds = 100});
        mr_array *z = mrt_count(y, 7);
        float got[2];

        mr_stream_scope(old);
        assert_int_equal(mr_async_eval(&y, 1), MR_OK);
        mr_stream_free(s);
        assert_int_equal(mr_array_copy_f32(z, got, 2), MR_OK);
        assert_true(got[0] == 3.0F);
        mr_release(x);
        mr_release(y);
        mr_release(z);
    }
    assert_int_equal(mrt_runs(6), 50);
    assert_int_equal(mrt_runs(7), 50);
}

static void
use_and_free_streams(void *arg, int who)
{
    _Atomic int *wrong = arg;

    for (int i = 0; i < 100 / SCALE; i++) {
        mr_stream s = mr_stream_new(cpu), old = mr_stream_scope(s);
        mr_array *x = mr_full(MR_SHAPE(3), who, MR_FLOAT32);
        mr_array *y = mrt_count(x, 8), *z;
        float got[3];

        mr_stream_scope(old);
        z = mr_add(y, x);
        if (i % 3 == 0)
            mr_async_eval(&y, 1);
        if (i % 2 == 0)
            mr_stream_free(s);
        if (mr_array_copy_f32(z, got, 3) != MR_OK ||
            got[2] != (float)(2 * who + 1))
            atomic_fetch_add(wrong, 1);
        if (i % 2 != 0)
            mr_stream_free(s);
        mr_release(x);
        mr_release(y);
        mr_release(z);
    }
}

static void
streams__come_and_go_in_many_threads(void **state)
{
    _Atomic int wrong = 0;

    (void)state;
    mrt_threads(8, use_and_free_streams, &wrong);
    assert_int_equal(wrong, 0);
}

/* A root on one stream, its producers on the waiting thread's own. */
static void
root_elsewhere__is_waited_for(void **state)
{
    (void)state;
    mrt_counters_clear();
    for (int round = 0; round < 100; round++) {
        mr_stream s = mr_stream_new(cpu), old;
        mr_array *x = mr_full(MR_SHAPE(2), 1.0, MR_FLOAT32);
        mr_array *y = mrt_count(x, 0), *z;
        float got[2];

        old = mr_stream_scope(s);
        z = mrt_count(y, 1);
        mr_stream_scope(old);
        mr_release(y);
        assert_int_equal(mr_array_copy_f32(z, got, 2), MR_OK);
        assert_true(got[1] == 3.0F);
        mr_release(z);
        mr_release(x);
        mr_stream_free(s);
    }
}

/* Memory is given away only where one stream orders its readers. */
static void
memory__is_not_reused_under_another_streams_reader(void **state)
{
    (void)state;
    for (int round = 0; round < 200 / SCALE; round++) {
        mr_stream s = mr_stream_new(cpu), old;
        mr_array *x = mr_full(MR_SHAPE(4096), 1.0, MR_FLOAT32);
        mr_array *a = mrt_count(x, 0), *slow, *fast, *root[2];
        float got[4096];

        old = mr_stream_scope(s);
        slow = mrt_counted_op(a, (mrt_counted){.microseconds = 50});
        mr_stream_scope(old);
        fast = mr_negative(a);
        for (int i = 0; i < 3; i++) {
            mr_array *y = mrt_count(fast, 0);

            mr_release(fast);
            fast = mr_negative(y);
            mr_release(y);
        }
        mr_release(a);
        root[0] = fast;
        root[1] = slow;
        assert_int_equal(mr_eval_many(root, 2), MR_OK);
        assert_int_equal(mr_array_copy_f32(slow, got, 4096), MR_OK);
        for (int i = 0; i < 4096; i++)
            assert_true(got[i] == 3.0F);
        mr_release(slow);
        mr_release(fast);
        mr_release(x);
        mr_stream_free(s);
    }
}

/* ---- destructors of users' memory --------------------------------------- */

static _Atomic int destroyed, destroyed_on_worker;

static void
evaluate_in_destructor(void *ctx, void *data)
{
    mr_array *x = mr_full(MR_SHAPE(3), 1.0, MR_FLOAT32);
    mr_array *y = mr_add(x, x);

    (void)ctx;
    mr_eval(y);
    mr_release(x);
    mr_release(y);
    free(data);
    atomic_fetch_add(&destroyed, 1);
    if (mr__pool_is_worker())
        atomic_fetch_add(&destroyed_on_worker, 1);
}

static void
destructor__may_evaluate(void **state)
{
    (void)state;
    atomic_store(&destroyed, 0);
    for (int i = 0; i < 50; i++) {
        float *v = calloc(16, sizeof *v);
        mr_array *x = mr_array_wrap(v, MR_SHAPE(16), NULL, MR_FLOAT32,
                                    evaluate_in_destructor, NULL);
        mr_array *y = mrt_count(x, 0), *z = mrt_count(y, 0);

        mr_release(x);
        mr_release(y);
        if (i % 2 == 0)
            assert_int_equal(mr_async_eval(&z, 1), MR_OK);
        assert_int_equal(mr_eval(z), MR_OK);
        mr_release(z);
    }
    mr_stream_sync((mr_stream){0});
    for (int i = 0; i < 100 && atomic_load(&destroyed) < 50; i++) {
        mr_array *x = mr_full(MR_SHAPE(1), 1.0, MR_FLOAT32);
        mr_array *y = mr_negative(x);

        mr_eval(y);
        mr_release(x);
        mr_release(y);
    }
    assert_int_equal(destroyed, 50);
    assert_int_equal(destroyed_on_worker, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlapping_graphs__run_each_kernel_once),
        cmocka_unit_test(overlapping_graphs__run_once_across_streams),
        cmocka_unit_test(threads_of_their_own__do_not_disturb),
        cmocka_unit_test(async_pipeline__is_right),
        cmocka_unit_test(async_eval__returns_before_the_work_is_done),
        cmocka_unit_test(async_eval__blocks_at_its_bound),
        cmocka_unit_test(async_eval__bounds_the_bytes_in_flight),
        cmocka_unit_test(async_eval__begins_what_is_larger_than_the_bound),
        cmocka_unit_test(thread_that_ends__leaves_its_work_behind),
        cmocka_unit_test(stream_sync__waits_for_all_of_it),
        cmocka_unit_test(freed_stream__finishes_and_new_nodes_go_elsewhere),
        cmocka_unit_test(streams__come_and_go_in_many_threads),
        cmocka_unit_test(root_elsewhere__is_waited_for),
        cmocka_unit_test(memory__is_not_reused_under_another_streams_reader),
        cmocka_unit_test(destructor__may_evaluate),
    };

    return cmocka_run_group_tests_name("eval/threads", tests, NULL, NULL);
}
