/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c -- tests of the worker threads: loops, jobs, stop and fork.
 */
#include "base/pool.h"

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "marram/error.h"
#include "support/base.h"

enum { SIZE = 4, CHUNKS_MAX = 1000 };

/* Under the thread sanitizer and on few processors less is enough. */
enum { ROUNDS = MRT_TSAN ? 300 : 3000 };

static void
nap(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};

    nanosleep(&t, NULL);
}

/* Plain cells: the thread sanitizer sees it if the loop's end orders
 * nothing. */
struct cells {
    int64_t n;
    int cell[CHUNKS_MAX];
};

static void
add_one(void *ctx, int64_t i)
{
    struct cells *c = ctx;

    c->cell[i]++;
}

static void
check_cells(const struct cells *c, int want)
{
    for (int64_t i = 0; i < CHUNKS_MAX; i++)
        if (c->cell[i] != (i < c->n ? want : 0))
            fail_msg("chunk %ld ran %d times", (long)i, c->cell[i]);
}

static void
loop__runs_each_chunk_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = {-1, 0, 1, 2, 3, 4, 5, 17, 64, CHUNKS_MAX};

    for (size_t k = 0; k < MRT_COUNT(sizes); k++)
        for (int round = 0; round < 200; round++) {
            struct cells c = {.n = sizes[k]};

            mr__pool_loop(c.n, add_one, &c);
            check_cells(&c, 1);
        }
}

static void
loop__back_to_back_is_right(void **state)
{
    (void)state;
    struct cells c = {.n = 2};

    for (int round = 0; round < 10 * ROUNDS; round++)
        mr__pool_loop(2, add_one, &c);
    check_cells(&c, 10 * ROUNDS);
}

struct meeting {
    _Atomic int here;
    _Atomic bool met;
};

static void
meet(void *ctx, int64_t i)
{
    struct meeting *m = ctx;

    (void)i;
    /* relaxed: the loop's end orders what is checked */
    atomic_fetch_add_explicit(&m->here, 1, memory_order_relaxed);
    for (int k = 0; k < 5000 && !m->met; k++) {
        if (m->here >= 2)
            m->met = true;
        else
            nap(1000);
    }
}

/* Workers are parked by then: this needs a wake-up. */
static void
loop__wakes_parked_workers(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct meeting m = {0};

        nap(2000);
        mr__pool_loop(2, meet, &m);
        assert_true(m.met);
    }
}

/* Chunks of a loop, and who runs them: none ends before each thread has begun
 * one. */
struct owners {
    _Atomic int here;
    pthread_t of[12];
    bool first[12];
};

static void
own(void *ctx, int64_t i)
{
    struct owners *o = ctx;
    int n = atomic_fetch_add_explicit(&o->here, 1, memory_order_seq_cst);

    o->of[i] = pthread_self();
    o->first[i] = n < 4;
    for (int k = 0; k < 5000 && o->here < 4; k++)
        nap(1000);
}

/* Shares of three chunks; the first and the third go upwards, the others
 * downwards, and turned the other way round. */
static void
loop__gives_a_thread_the_same_chunks_again(void **state)
{
    (void)state;
    static const int begins[2][4] = {{0, 5, 6, 11}, {2, 3, 8, 9}};
    pthread_t of[4];

    for (int round = 0; round < 40; round++) {
        bool turned = round % 3 == 1;
        struct owners o = {0};

        mr__pool_loop_turned(12, turned, own, &o);
        for (int k = 0; k < 4; k++) {
            int i = begins[turned][k];

            assert_true(o.first[i]);
            if (round == 0)
                of[k] = o.of[i];
            else
                assert_true(pthread_equal(of[k], o.of[i]));
        }
        assert_true(pthread_equal(of[0], pthread_self()));
    }
}

static void
submit_many(void *arg, int i)
{
    _Atomic int *bad = arg;

    for (int round = 0; round < ROUNDS; round++) {
        struct cells c = {.n = 1 + (i * 7 + round) % 40};

        mr__pool_loop(c.n, add_one, &c);
        for (int64_t k = 0; k < 41; k++)
            if (c.cell[k] != (k < c.n))
                *bad = 1;
    }
}

static void
loop__many_submitters_at_once(void **state)
{
    (void)state;
    _Atomic int bad = 0;

    mrt_threads(8, submit_many, &bad);
    assert_int_equal(bad, 0);
}

static _Atomic int submitters_inside;

static void
stay(void *ctx, int64_t i)
{
    (void)ctx;
    (void)i;
    nap(20000);
}

static void
submit_and_stay(void *arg, int i)
{
    (void)i;
    mr__pool_loop(2, stay, arg);
    atomic_fetch_add_explicit(&submitters_inside, 1, memory_order_relaxed);
}

/* There are 64 slots: a loop that finds none runs on its own thread. */
static void
loop__more_loops_than_slots_still_run(void **state)
{
    (void)state;
    submitters_inside = 0;
    mrt_threads(80, submit_and_stay, NULL);
    assert_int_equal(submitters_inside, 80);
}

struct nested {
    pthread_t thread[16];
    struct cells inner[16];
    bool inside[16], same[16];
};

struct inner {
    struct nested *outer;
    int64_t i;
};

static void
inner_body(void *ctx, int64_t k)
{
    const struct inner *in = ctx;
    struct nested *n = in->outer;

    n->inner[in->i].cell[k]++;
    if (!pthread_equal(pthread_self(), n->thread[in->i]))
        n->same[in->i] = false;
}

static void
outer_body(void *ctx, int64_t i)
{
    struct nested *n = ctx;
    struct inner in = {n, i};

    n->thread[i] = pthread_self();
    n->same[i] = true;
    n->inside[i] = mr__pool_in_loop();
    mr__pool_loop(50, inner_body, &in);
    n->inside[i] = n->inside[i] && mr__pool_in_loop();
}

static void
loop__nested_runs_on_its_own_thread(void **state)
{
    (void)state;
    struct nested *n = calloc(1, sizeof *n);

    assert_false(mr__pool_in_loop());
    mr__pool_loop(16, outer_body, n);
    assert_false(mr__pool_in_loop());
    for (int i = 0; i < 16; i++) {
        assert_true(n->inside[i]);
        assert_true(n->same[i]);
        n->inner[i].n = 50;
        check_cells(&n->inner[i], 1);
    }
    free(n);
}

/* -- jobs -------------------------------------------------------------------
 */

struct work {
    _Atomic int left;
    struct cells *cells;
    _Atomic int bad;
};

static void
wait_for(const _Atomic int *left)
{
    for (int k = 0; k < 60000 && *left > 0; k++)
        nap(1000);
    assert_int_equal(*left, 0);
}

static void
job_with_loops(void *ctx)
{
    struct work *w = ctx;
    struct cells c = {.n = 30};

    if (mr__pool_in_loop())
        w->bad = 1;
    for (int k = 0; k < 20; k++)
        mr__pool_loop(30, add_one, &c);
    for (int k = 0; k < 30; k++)
        if (c.cell[k] != 20)
            w->bad = 1;
    mr__pool_pause_point();
    /* release: pairs with the loads in wait_for */
    atomic_fetch_sub_explicit(&w->left, 1, memory_order_acq_rel);
}

static void
job__all_run_and_may_use_loops(void **state)
{
    (void)state;
    struct work w = {.left = 200};

    for (int i = 0; i < 200; i++)
        assert_true(mr__pool_job(job_with_loops, &w));
    wait_for(&w.left);
    assert_int_equal(w.bad, 0);
}

static void
queue_jobs(void *arg, int i)
{
    struct work *w = arg;
    struct cells c = {.n = 8};

    (void)i;
    for (int k = 0; k < 50; k++) {
        if (!mr__pool_job(job_with_loops, w))
            w->bad = 1;
        mr__pool_loop(8, add_one, &c);
    }
}

static void
job__from_many_threads_beside_loops(void **state)
{
    (void)state;
    struct work w = {.left = 6 * 50};

    mrt_threads(6, queue_jobs, &w);
    wait_for(&w.left);
    assert_int_equal(w.bad, 0);
}

/* Each wakes a parked worker, or nobody would run it. */
static void
job__wakes_a_parked_worker(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct work w = {.left = 1};

        nap(i % 5 == 0 ? 1000 : 35);
        assert_true(mr__pool_job(job_with_loops, &w));
        wait_for(&w.left);
    }
}

static void
count_job(void *ctx)
{
    /* relaxed: mr__pool_stop orders it */
    atomic_fetch_add_explicit((_Atomic int *)ctx, 1, memory_order_relaxed);
}

static bool
queue_one(void *arg)
{
    return mr__pool_job(count_job, arg);
}

static void
job__without_memory_fails(void **state)
{
    (void)state;
    _Atomic int n = 0;

    assert_int_equal(mrt_each_failure(queue_one, &n), 1);
    mr__pool_stop();
    assert_int_equal(n, 1);
}

/* -- what a worker is ---------------------------------------------------------
 */

struct facts {
    _Atomic int left;
    int blocked;
    int rounding;
    char name[16];
    size_t stack;
};

static void
look_around(void *ctx)
{
    struct facts *f = ctx;
    sigset_t mask;
    pthread_attr_t attr;

    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    f->blocked = sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) &&
                 sigismember(&mask, SIGCHLD) && sigismember(&mask, SIGPROF);
    f->rounding = fegetround();
    pthread_getname_np(pthread_self(), f->name, sizeof f->name);
    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstacksize(&attr, &f->stack);
    pthread_attr_destroy(&attr);
    atomic_fetch_sub_explicit(&f->left, 1, memory_order_acq_rel);
}

static void
worker__has_no_signals_a_name_and_a_clean_fp_state(void **state)
{
    (void)state;
    struct facts f = {.left = 1};
    sigset_t before, after;

    mr__pool_stop();
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    fesetround(FE_UPWARD);
    assert_true(mr__pool_job(look_around, &f));
    fesetround(FE_TONEAREST);
    wait_for(&f.left);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    assert_true(f.blocked);
    assert_int_equal(f.rounding, FE_TONEAREST);
    assert_memory_equal(f.name, "marram-", 7);
    assert_true(f.stack >= 1 << 20);
    for (int s = 1; s < 32; s++)
        assert_int_equal(sigismember(&before, s), sigismember(&after, s));
}

static void
threads__is_what_the_variable_says(void **state)
{
    (void)state;
    assert_int_equal(mr__pool_threads(), SIZE);
}

/* -- stop
 * ------------------------------------------------------------------------ */

static void
stop__runs_queued_jobs_and_starts_again(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        _Atomic int n = 0;
        struct cells c = {.n = 20};

        for (int i = 0; i < 20; i++)
            assert_true(mr__pool_job(count_job, &n));
        mr__pool_loop(20, add_one, &c);
        mr__pool_stop();
        assert_int_equal(n, 20);
        check_cells(&c, 1);
    }
    mr__pool_stop();
}

static void
use_or_stop(void *arg, int i)
{
    for (int k = 0; k < 100; k++) {
        struct cells c = {.n = 6};

        if (i == 0 || i == 1)
            mr__pool_stop();
        else if (i % 2 == 0)
            mr__pool_job(count_job, arg);
        else
            mr__pool_loop(6, add_one, &c);
    }
}

static void
stop__beside_users_loses_no_job(void **state)
{
    (void)state;
    _Atomic int n = 0;

    mrt_threads(6, use_or_stop, &n);
    mr__pool_stop();
    assert_int_equal(n, 200);
}

/* -- fork
 * -------------------------------------------------------------------------- */

static void
use_in_child(void *arg)
{
    struct cells c = {.n = 100};
    _Atomic int n = 0;

    (void)arg;
    mr__pool_fork_child();
    for (int i = 0; i < 100; i++)
        mr__pool_loop(100, add_one, &c);
    for (int i = 0; i < 100; i++)
        if (c.cell[i] != 100)
            _exit(3);
    for (int i = 0; i < 50; i++)
        if (!mr__pool_job(count_job, &n))
            _exit(4);
    mr__pool_stop();
    if (n != 50)
        _exit(5);
}

/* The thread sanitizer does not support threads in a forked child. */
static void
skip_under_tsan(void)
{
    if (MRT_TSAN)
        skip();
}

static void
fork_once(void)
{
    char text[4096];
    int status;

    mr__pool_fork_prepare();
    status = mrt_child(use_in_child, NULL, text, sizeof text);
    mr__pool_fork_parent();
    if (status != 0)
        fail_msg("child's status %d: %s", status, text);
}

static void
fork__child_has_a_pool_of_its_own(void **state)
{
    (void)state;
    struct cells c = {.n = 10};

    skip_under_tsan();
    mr__pool_loop(10, add_one, &c);
    fork_once();
    mr__pool_loop(10, add_one, &c);
    check_cells(&c, 2);
    nap(2000); /* workers are parked now */
    fork_once();
    mr__pool_loop(10, add_one, &c);
    check_cells(&c, 3);
}

static _Atomic bool enough;

static void
busy_or_forking(void *arg, int i)
{
    struct work *w = arg;

    if (i == 0) {
        for (int k = 0; k < 20; k++)
            fork_once();
        enough = true;
        return;
    }
    while (!enough) {
        struct cells c = {.n = 20};

        mr__pool_loop(20, add_one, &c);
        if (i == 1) {
            atomic_fetch_add_explicit(&w->left, 1, memory_order_relaxed);
            if (!mr__pool_job(job_with_loops, w))
                w->bad = 1;
            nap(200);
        }
    }
}

static void
fork__beside_running_loops_and_jobs(void **state)
{
    (void)state;
    struct work w = {.left = 0};

    skip_under_tsan();
    enough = false;
    mrt_threads(4, busy_or_forking, &w);
    wait_for(&w.left);
    assert_int_equal(w.bad, 0);
}

struct paused {
    _Atomic bool started, stop;
    _Atomic int left;
    _Atomic long steps;
};

static void
long_job(void *ctx)
{
    struct paused *p = ctx;

    p->started = true;
    while (!p->stop) {
        mr__pool_pause_point();
        atomic_fetch_add_explicit(&p->steps, 1, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&p->left, 1, memory_order_acq_rel);
}

static void
fork__does_not_wait_for_the_end_of_a_long_job(void **state)
{
    (void)state;
    struct paused p = {.left = 1};
    long before;

    assert_true(mr__pool_job(long_job, &p));
    while (!p.started)
        nap(100);
    mr__pool_fork_prepare();
    before = p.steps;
    nap(5000);
    assert_int_equal(p.steps, before);
    mr__pool_fork_parent();
    while (p.steps == before)
        nap(100);
    p.stop = true;
    wait_for(&p.left);
}

/* -- a pool of one thread
 * ------------------------------------------------------------ */

static void
check_thread(void *ctx, int64_t i)
{
    (void)i;
    if (!pthread_equal(*(const pthread_t *)ctx, pthread_self()))
        _exit(3);
}

static void
one_thread(void)
{
    pthread_t self = pthread_self();
    struct facts f = {.left = 1};

    if (mr__pool_threads() != 1)
        _exit(2);
    for (int i = 0; i < 1000; i++)
        mr__pool_loop(20, check_thread, &self);
    if (!mr__pool_job(look_around, &f))
        _exit(4);
    for (int k = 0; k < 10000 && f.left > 0; k++)
        nap(1000);
    _exit(f.left == 0 ? 0 : 5);
}

/* The size is found once a process, so this test runs the program again. */
static void
run_again(void *arg)
{
    setenv("MARRAM_NUM_THREADS", "1", 1);
    execl("/proc/self/exe", "pool", (char *)arg, (char *)NULL);
    _exit(1);
}

static void
one_thread__runs_loops_inline_and_jobs_on_a_worker(void **state)
{
    (void)state;
    char text[4096];
    char arg[] = "one";
    int status = mrt_child(run_again, arg, text, sizeof text);

    if (status != 0)
        fail_msg("child's status %d: %s", status, text);
}

int
main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        one_thread();
    setenv("MARRAM_NUM_THREADS", "4", 1);

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads__is_what_the_variable_says),
        cmocka_unit_test(loop__runs_each_chunk_once),
        cmocka_unit_test(loop__back_to_back_is_right),
        cmocka_unit_test(loop__wakes_parked_workers),
        cmocka_unit_test(loop__gives_a_thread_the_same_chunks_again),
        cmocka_unit_test(loop__many_submitters_at_once),
        cmocka_unit_test(loop__more_loops_than_slots_still_run),
        cmocka_unit_test(loop__nested_runs_on_its_own_thread),
        cmocka_unit_test(job__all_run_and_may_use_loops),
        cmocka_unit_test(job__from_many_threads_beside_loops),
        cmocka_unit_test(job__wakes_a_parked_worker),
        cmocka_unit_test(job__without_memory_fails),
        cmocka_unit_test(worker__has_no_signals_a_name_and_a_clean_fp_state),
        cmocka_unit_test(stop__runs_queued_jobs_and_starts_again),
        cmocka_unit_test(stop__beside_users_loses_no_job),
        cmocka_unit_test(fork__child_has_a_pool_of_its_own),
        cmocka_unit_test(fork__beside_running_loops_and_jobs),
        cmocka_unit_test(fork__does_not_wait_for_the_end_of_a_long_job),
        cmocka_unit_test(one_thread__runs_loops_inline_and_jobs_on_a_worker),
    };

    return cmocka_run_group_tests_name("base/pool", tests, NULL, NULL);
}
