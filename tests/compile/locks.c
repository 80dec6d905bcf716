/* SPDX-License-Identifier: Apache-2.0
 *
 * locks.c -- what a compiled call takes of locks: nothing when it is warm, none
 * around the user's function ever; and the cache under threads that trace,
 * erase and evict.
 *
 * Mutex calls are counted by functions of the same name that stand in front of
 * the C library's.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/pool.h"
#include "support/mrt.h"

/* ---- counting ----------------------------------------------------------- */

static _Thread_local int64_t n_mutex;

/* The sanitizers have functions of these names themselves. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { COUNTS = 0 };
#else
enum { COUNTS = 1 };

static int
real_call(const char *name, pthread_mutex_t *m)
{
    int (*fn)(pthread_mutex_t *);
    void *symbol = dlsym(RTLD_NEXT, name);

    memcpy(&fn, &symbol, sizeof fn);
    return fn(m);
}

int
pthread_mutex_lock(pthread_mutex_t *m)
{
    n_mutex++;
    return real_call("pthread_mutex_lock", m);
}

int
pthread_mutex_trylock(pthread_mutex_t *m)
{
    n_mutex++;
    return real_call("pthread_mutex_trylock", m);
}
#endif

/* ---- bodies ------------------------------------------------------------- */

static mr_tree *
ten(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    (void)ctx;
    for (int i = 0; i < 5; i++)
        x = mr_add(mr_sin(x), x);
    return mr_tree_leaf(x);
}

/* ctx: the next function, NULL for the last. */
typedef struct knot {
    mr_function *f;
    struct knot *next;
} knot;

static int64_t most_mutex; /* of any body since it was cleared */

static mr_tree *
call_next(void *ctx, const mr_tree *in)
{
    knot *l = ctx;
    int64_t before = n_mutex;
    mr_tree *out;

    if (l->next == NULL)
        return mr_tree_leaf(
            mr_add(mr_tree_array_at(in, 0), mr_tree_array_at(in, 0)));
    out = mr_call(l->next->f, in);
    if (n_mutex - before > most_mutex)
        most_mutex = n_mutex - before;
    return out;
}

/* ---- counts ------------------------------------------------------------- */

static void
warm_call__takes_no_lock(void **state)
{
    mr_function *f = mr_compile(ten, NULL, NULL);
    mr_tree *args = MR_ARRAYS(mr_ones(MR_SHAPE(16), MR_FLOAT32));
    int64_t before;

    (void)state;
    assert_int_equal(mr_eval_tree(args), MR_OK);
    before = n_mutex;
    mr_call(f, args);
    assert_true(!COUNTS || n_mutex > before); /* the counting works */
    mr_call(f, args);
    before = n_mutex;
    for (int i = 0; i < 1000; i++) {
        mr_scope s = mr_scope_begin();

        assert_non_null(mr_call(f, args));
        mr_scope_end(s);
    }
    assert_int_equal(n_mutex - before, 0);
    mr_function_release(f);
}

static void
compiled_functions_inside__take_no_lock_a_thousand_deep(void **state)
{
    enum { DEEP = 1000 };
    static knot chain[DEEP];
    mr_tree *args = MR_ARRAYS(mr_ones(MR_SHAPE(2), MR_FLOAT32)), *out;

    (void)state;
    for (int i = 0; i < DEEP; i++)
        chain[i] = (knot){mr_compile(call_next, &chain[i], NULL),
                          i + 1 < DEEP ? &chain[i + 1] : NULL};
    assert_int_equal(mr_eval_tree(args), MR_OK);
    most_mutex = 0;
    out = mr_call(chain[0].f, args);
    assert_non_null(out);
    mrt_assert_f32(mr_tree_array(out), (float[]){2, 2}, 2);
    assert_int_equal(most_mutex, 0);
    for (int i = 0; i < DEEP; i++)
        mr_function_release(chain[i].f);
}

/* ---- the inversion ------------------------------------------------------ */

/* A traces f, whose body waits until B is inside its own, and calls compiled g.
 * B traces g's twin, which evaluates; then the other way round. */
typedef struct meeting {
    sem_t here[2];
    mr_function *f[2];
    _Atomic int ran;
} meeting;

typedef struct side {
    meeting *m;
    int me;
} side;

static bool
meet(meeting *m, int me)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 10;
    sem_post(&m->here[me]);
    return sem_timedwait(&m->here[1 - me], &end) == 0;
}

static mr_tree *
meets_and_calls(void *ctx, const mr_tree *in)
{
    const side *s = ctx;
    mr_array *one = mr_ones(MR_SHAPE(3), MR_FLOAT32);
    mr_tree *r;

    int order = ++s->m->ran;

    /* Only the first body of each waits: inside the other it is inlined. */
    if (order <= 2 && !meet(s->m, s->me)) {
        mr_error_set(MR_E_USER, "the other thread did not come");
        return NULL;
    }
    if (order > 2)
        return mr_tree_leaf(mr_add(mr_tree_array_at(in, 0), one));
    r = mr_call(s->m->f[1 - s->me], in);
    return r == NULL ? NULL : mr_tree_leaf(mr_multiply(mr_tree_array(r), one));
}

static void *
one_side(void *arg)
{
    const side *s = arg;
    mr_scope scope = mr_scope_begin();
    mr_array *x = mr_add(mr_ones(MR_SHAPE(3), MR_FLOAT32),
                         mr_ones(MR_SHAPE(3), MR_FLOAT32));
    mr_tree *out = mr_call(s->m->f[s->me], MR_ARRAYS(x));
    float got[3] = {0};
    bool ok = out != NULL &&
              mr_array_copy_f32(mr_tree_array(out), got, 3) == MR_OK &&
              got[0] == 3.0f;

    mr_scope_end(scope);
    return ok ? NULL : arg;
}

/* Who is stuck, and where: each thread writes its stack, then the process ends.
 */
static sem_t in_time, said;

static void
say_stack(int unused)
{
    void *at[64];

    (void)unused;
    backtrace_symbols_fd(at, backtrace(at, 64), STDERR_FILENO);
    sem_post(&said);
}

static void
say_all_stacks(void)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *d;

    signal(SIGUSR2, say_stack);
    while (tasks != NULL && (d = readdir(tasks)) != NULL) {
        struct timespec end;
        int id = atoi(d->d_name);

        if (id == 0)
            continue;
        fprintf(stderr, "thread %d:\n", id);
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += 2;
        if (syscall(SYS_tgkill, getpid(), id, SIGUSR2) == 0)
            sem_timedwait(&said, &end);
    }
}

static void *
watch(void *unused)
{
    struct timespec end;

    (void)unused;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += MRT_TSAN ? 600 : 100; /* the rounds have 10 s each */
    if (sem_timedwait(&in_time, &end) == 0)
        return NULL;
    say_all_stacks();
    abort();
}

static void
traces__that_call_each_other_in_both_orders_do_not_deadlock(void **state)
{
    pthread_t watcher;

    (void)state;
    sem_init(&in_time, 0, 0);
    sem_init(&said, 0, 0);
    pthread_create(&watcher, NULL, watch, NULL);
    for (int round = 0; round < 20; round++) {
        meeting m = {.ran = 0};
        side sides[2] = {{&m, 0}, {&m, 1}};
        pthread_t thread[2];

        for (int i = 0; i < 2; i++) {
            sem_init(&m.here[i], 0, 0);
            m.f[i] = mr_compile(meets_and_calls, &sides[i], NULL);
        }
        for (int i = 0; i < 2; i++)
            assert_int_equal(
                pthread_create(&thread[i], NULL, one_side, &sides[i]), 0);
        for (int i = 0; i < 2; i++) {
            void *failed;

            pthread_join(thread[i], &failed);
            assert_null(failed);
        }
        assert_int_equal(m.ran, 4); /* each body, in both orders */
        for (int i = 0; i < 2; i++) {
            mr_function_release(m.f[i]);
            sem_destroy(&m.here[i]);
        }
    }
    sem_post(&in_time);
    pthread_join(watcher, NULL);
}

/* ---- many threads ------------------------------------------------------- */

enum { THREADS = 8, OWN = 25, SHARED = 5 };

static mr_function *shared_f[SHARED];

static bool
gives(mr_function *f, int64_t n)
{
    mr_scope s = mr_scope_begin();
    mr_array *x = mr_ones(MR_SHAPE(n), MR_FLOAT32);
    mr_tree *args = MR_ARRAYS(x), *a = mr_call(f, args), *b = ten(NULL, args);
    mr_array *same =
        a == NULL ? NULL
                  : mr_array_equal(mr_tree_array(a), mr_tree_array(b), false);
    mr_scalar v = {0};
    bool ok = same != NULL && mr_array_item(same, &v) == MR_OK && v.as.b;

    mr_scope_end(s);
    return ok;
}

static void *
first_traces(void *arg)
{
    int me = *(int *)arg;
    bool ok = true;

    for (int i = 0; i < OWN; i++) {
        mr_function *f = mr_compile(ten, NULL, NULL);

        ok = ok && gives(f, 3) && gives(f, 3);
        mr_function_release(f);
        ok = ok && gives(shared_f[i % SHARED], 1 + me + i % 7);
    }
    return ok ? NULL : arg;
}

static void
run_threads(void *(*body)(void *))
{
    pthread_t thread[THREADS];
    int number[THREADS];

    for (int i = 0; i < THREADS; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&thread[i], NULL, body, &number[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;

        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
}

static void
first_traces__of_own_and_shared_functions_in_eight_threads(void **state)
{
    (void)state;
    for (int i = 0; i < SHARED; i++)
        shared_f[i] = mr_compile(ten, NULL, NULL);
    run_threads(first_traces);
    for (int i = 0; i < SHARED; i++)
        mr_function_release(shared_f[i]);
}

static void *
erase_or_trace(void *arg)
{
    int me = *(int *)arg;
    bool ok = true;

    for (int i = 0; i < 50; i++) {
        if (me % 2 == 0)
            mr_function_cache_clear(shared_f[i % SHARED]);
        ok = ok && gives(shared_f[i % SHARED], 1 + i % 3);
    }
    return ok ? NULL : arg;
}

static void
erases__against_cold_traces_in_eight_threads(void **state)
{
    uint64_t old = mr_compile_set_cache_limit(1);

    (void)state;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SHARED; i++)
            shared_f[i] = mr_compile(ten, NULL, NULL);
        run_threads(erase_or_trace);
        for (int i = 0; i < SHARED; i++)
            mr_function_release(shared_f[i]);
        mr_compile_set_cache_limit(old); /* then without evictions */
    }
}

/* ---- who may release ---------------------------------------------------- */

static mr_function *to_release;

static void
release_it(void *unused)
{
    (void)unused;
    mr_function_release(to_release);
    to_release = NULL;
}

static void
release_with_data(void *unused, void *data)
{
    (void)data;
    release_it(unused);
}

static mr_tree *
releases_inside(void *ctx, const mr_tree *in)
{
    release_it(NULL);
    return ten(ctx, in);
}

static void *
leave_with_key(void *arg)
{
    pthread_setspecific(*(pthread_key_t *)arg, arg);
    return NULL;
}

static void
release__works_from_a_trace_a_destructor_and_a_thread_that_ends(void **state)
{
    mr_function *f = mr_compile(releases_inside, NULL, NULL);
    float one[1] = {1.0f};
    pthread_key_t key;
    pthread_t thread;
    mr_scope barrier;
    mr_array *owner;

    (void)state;
    to_release = mr_compile(ten, NULL, NULL);
    assert_true(gives(to_release, 2));
    assert_non_null(mr_call(f, MR_ARRAYS(mr_ones(MR_SHAPE(2), MR_FLOAT32))));
    assert_null(to_release);

    to_release = mr_compile(ten, NULL, NULL);
    assert_true(gives(to_release, 2));
    barrier = mr_scope_none();
    owner = mr_array_wrap(one, MR_SHAPE(1), NULL, MR_FLOAT32, release_with_data,
                          NULL);
    mr_release(owner);
    mr_scope_end(barrier);
    assert_null(to_release);

    to_release = mr_compile(ten, NULL, NULL);
    assert_true(gives(to_release, 2));
    pthread_key_create(&key, release_it);
    pthread_create(&thread, NULL, leave_with_key, &key);
    pthread_join(thread, NULL);
    pthread_key_delete(key);
    assert_null(to_release);
    mr_function_release(f);
}

/* ---- where else a function may be released ---------------------------------
 */

static void
released_by_a_worker(void *arg)
{
    release_it(NULL);
    sem_post(arg);
}

static void
release__works_from_a_worker(void **state)
{
    sem_t done;

    (void)state;
    sem_init(&done, 0, 0);
    to_release = mr_compile(ten, NULL, NULL);
    assert_true(gives(to_release, 2));
    assert_true(mr__pool_job(released_by_a_worker, &done));
    assert_int_equal(sem_wait(&done), 0);
    assert_null(to_release);
    sem_destroy(&done);
}

static void
release_at_exit(void)
{
    release_it(NULL);
}

static void
ends_with_a_warm_function(void *unused)
{
    (void)unused;
    atexit(release_at_exit);
    to_release = mr_compile(ten, NULL, NULL);
    if (!gives(to_release, 2))
        abort();
    exit(0);
}

static void
release__works_at_exit(void **state)
{
    char text[256];

    (void)state;
    if (MRT_TSAN) /* the child starts threads, which it does not support */
        skip();
    assert_int_equal(
        mrt_child(ends_with_a_warm_function, NULL, text, sizeof text), 0);
}

/* A's traced body wants a mutex of the user's that B holds while it releases
 * that very function, and others: B waits for nobody. */
static pthread_mutex_t users = PTHREAD_MUTEX_INITIALIZER;
static sem_t inside, go_on;

static mr_tree *
wants_the_mutex(void *ctx, const mr_tree *in)
{
    sem_post(&inside);
    sem_wait(&go_on);
    pthread_mutex_lock(&users);
    pthread_mutex_unlock(&users);
    return ten(ctx, in);
}

static void *
traces_under_a_mutex(void *arg)
{
    mr_scope s = mr_scope_begin();
    mr_tree *out = mr_call(arg, MR_ARRAYS(mr_ones(MR_SHAPE(2), MR_FLOAT32)));
    bool ok = out != NULL && mr_eval_tree(out) == MR_OK;

    mr_scope_end(s);
    return ok ? NULL : arg;
}

static void
release__under_a_users_lock_waits_for_nobody(void **state)
{
    mr_function *f = mr_compile(wants_the_mutex, NULL, NULL);
    mr_function *g = mr_compile(ten, NULL, NULL);
    struct timespec end;
    pthread_t thread;
    void *failed;

    (void)state;
    assert_true(gives(g, 2));
    sem_init(&inside, 0, 0);
    sem_init(&go_on, 0, 0);
    pthread_create(&thread, NULL, traces_under_a_mutex, mr_function_retain(f));
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 10;
    assert_int_equal(sem_timedwait(&inside, &end), 0);
    pthread_mutex_lock(&users);
    sem_post(&go_on);
    mr_function_release(f);
    mr_function_cache_clear(g);
    mr_function_release(g);
    pthread_mutex_unlock(&users);
    pthread_join(thread, &failed);
    assert_null(failed);
    mr_function_release(f); /* the thread's */
    sem_destroy(&inside);
    sem_destroy(&go_on);
}

/* An entry of a function that is gone is never another's, though the memory of
 * the two may be one. */
static mr_tree *
times_of(void *ctx, const mr_tree *in)
{
    return mr_tree_leaf(
        mr_multiply(mr_tree_array_at(in, 0), mr_float(*(const double *)ctx)));
}

static void
ids__are_never_used_again(void **state)
{
    mr_array *x = mr_ones(MR_SHAPE(2), MR_FLOAT32);

    (void)state;
    for (int i = 1; i <= 200; i++) {
        double k = i;
        mr_scope s = mr_scope_begin();
        mr_function *f = mr_compile(times_of, &k, NULL);
        mr_tree *out = mr_call(f, MR_ARRAYS(x));

        assert_non_null(out);
        mrt_assert_f32(mr_tree_array(out), (float[]){(float)i, (float)i}, 2);
        mr_function_release(f);
        mr_scope_end(s);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(warm_call__takes_no_lock),
        mrt_test(compiled_functions_inside__take_no_lock_a_thousand_deep),
        mrt_test(traces__that_call_each_other_in_both_orders_do_not_deadlock),
        mrt_test(first_traces__of_own_and_shared_functions_in_eight_threads),
        mrt_test(erases__against_cold_traces_in_eight_threads),
        mrt_test(
            release__works_from_a_trace_a_destructor_and_a_thread_that_ends),
        mrt_test(release__works_from_a_worker),
        mrt_test(release__works_at_exit),
        mrt_test(release__under_a_users_lock_waits_for_nobody),
        mrt_test(ids__are_never_used_again),
    };

    return cmocka_run_group_tests_name("compile/locks", tests, NULL, NULL);
}
