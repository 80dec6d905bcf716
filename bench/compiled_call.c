/* SPDX-License-Identifier: Apache-2.0
 *
 * compiled_call.c -- what does a warm call of a compiled function cost, alone
 * and from eight threads, and does the plan lock limit it?
 *
 * Ten operators on 16 elements.  Prints nanoseconds a call of one thread and,
 * for several threads, nanoseconds times processors used: level with one
 * thread's figure when nothing is shared.  Minimum and median of the rounds;
 * behind them the processor time of a call, which a busy machine spoils less.
 * What processors can give at most is what as many processes of one thread each
 * take, which share nothing: measured in turn with eight threads.
 * Then 96 calls one after the other, as a decoder of 96 layers makes them for a
 * token: compiled, and the same operators without.
 */
#include <marram/marram.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 15, CALLS = 2000, MAX_THREADS = 8, LAYERS = 96 };
enum { TURNS = 40, LONG_TURNS = 20, MAX_PROCESSES = 8 };

typedef enum work { BUILD, EVALUATE } work;

typedef struct task {
    mr_function *f[MAX_THREADS]; /* by thread */
    const mr_tree *args;
    work what;
    int calls; /* of each thread */
} task;

typedef struct one {
    const task *t;
    int me;
    double begin, end;
} one;

/* Where the threads of a round wait for each other. */
static pthread_barrier_t meet;

static double
now_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Ten operators of two arguments. */
static mr_tree *
ten(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0), *b = mr_tree_array_at(in, 1), *x;

    (void)ctx;
    x = mr_add(a, b);
    for (int i = 0; i < 3; i++)
        x = mr_multiply(mr_sin(x), mr_add(x, b));
    return mr_tree_leaf(x);
}

static void
call(const one *w, int calls)
{
    const task *t = w->t;

    for (int i = 0; i < calls; i++) {
        mr_tree *out = mr_call(t->f[w->me], t->args);

        if (out == NULL ||
            (t->what == EVALUATE && mr_eval_tree(out) != MR_OK)) {
            fprintf(stderr, "%s\n", mr_error_last().message);
            exit(1);
        }
        mr_tree_release(out);
    }
}

/* A thread: what making it and its first call cost is not asked. */
static void *
run(void *arg)
{
    one *w = arg;

    call(w, 1);
    pthread_barrier_wait(&meet);
    w->begin = now_ns(CLOCK_MONOTONIC);
    call(w, w->t->calls);
    w->end = now_ns(CLOCK_MONOTONIC);
    return NULL;
}

/* Nanoseconds a call, times the processors that `n` threads can have: from the
 * first that begins to the last that ends. */
static double
round_of(const task *t, int n, int cpus)
{
    pthread_t thread[MAX_THREADS];
    one w[MAX_THREADS];
    double begin, end;

    pthread_barrier_init(&meet, NULL, (unsigned)n);
    for (int i = 0; i < n; i++)
        w[i] = (one){t, i, 0, 0};
    for (int i = 1; i < n; i++)
        pthread_create(&thread[i], NULL, run, &w[i]);
    run(&w[0]);
    for (int i = 1; i < n; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&meet);
    begin = w[0].begin;
    end = w[0].end;
    for (int i = 1; i < n; i++) {
        begin = w[i].begin < begin ? w[i].begin : begin;
        end = w[i].end > end ? w[i].end : end;
    }
    return (end - begin) / t->calls / n * (n < cpus ? n : cpus);
}

static void
report_lock(const mr_stats *before, int n)
{
    mr_stats after = {.size = sizeof after};
    double holds;

    mr_stats_get(&after);
    holds = (double)(after.plan_holds - before->plan_holds);
    printf("  plan lock: %.2f holds a call, %.2f%% waited",
           holds / ((double)CALLS * n * ROUNDS),
           holds == 0.0
               ? 0.0
               : 100.0 * (double)(after.plan_waits - before->plan_waits) /
                     holds);
}

static void
report(const char *name, task t, int n)
{
    double v[ROUNDS], used;
    mr_stats before = {.size = sizeof before};
    int cpus = mr_num_threads();

    round_of(&t, n, cpus);
    mr_stats_get(&before);
    used = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < ROUNDS; i++)
        v[i] = round_of(&t, n, cpus);
    used = (now_ns(CLOCK_PROCESS_CPUTIME_ID) - used) / ROUNDS / CALLS / n;
    qsort(v, ROUNDS, sizeof *v, by_value);
    printf("%-34s %d thread%s %8.1f ns  (median %.1f, processor %.1f)", name, n,
           n == 1 ? " " : "s", v[0], v[ROUNDS / 2], used);
    if (t.what == EVALUATE)
        report_lock(&before, n);
    putchar('\n');
}

/* ---- processes --------------------------------------------------------------
 */

/* What the processes share: the round that they begin, who is ready for it, who
 * has ended it; a negative round ends them.  Between rounds a process sleeps on
 * `go`: one that woke up to look would take time of the threads' rounds. */
static struct line {
    _Alignas(64) _Atomic int start;
    int calls; /* of each process */
    struct {
        _Alignas(64) _Atomic int ready, done;
        sem_t go;
    } of[MAX_PROCESSES];
} * line;

/* Until *at is `round`, or negative. */
static int
await(_Atomic int *at, int round)
{
    int seen;

    /* acquire: pairs with the release of who begins or ends it */
    while ((seen = atomic_load_explicit(at, memory_order_acquire)) != round &&
           seen >= 0)
        sched_yield();
    return seen;
}

/* A process of its own: the same calls, when it is told to. */
static void
work_apart(int me, const task *t)
{
    one w = {t, 0, 0, 0};

    for (int round = 1;; round++) {
        while (sem_wait(&line->of[me].go) != 0)
            continue; /* a signal */
        atomic_store_explicit(&line->of[me].ready, round, memory_order_release);
        if (await(&line->start, round) < 0)
            return;
        call(&w, line->calls);
        atomic_store_explicit(&line->of[me].done, round, memory_order_release);
    }
}

/* Nanoseconds a call, times processes, of `n` processes that begin together. */
static double
round_apart(const task *t, int n, int round)
{
    one w = {t, 0, 0, 0};
    double start;

    for (int i = 1; i < n; i++)
        sem_post(&line->of[i].go);
    for (int i = 1; i < n; i++)
        await(&line->of[i].ready, round);
    start = now_ns(CLOCK_MONOTONIC);
    atomic_store_explicit(&line->start, round, memory_order_release);
    call(&w, line->calls);
    for (int i = 1; i < n; i++)
        await(&line->of[i].done, round);
    return (now_ns(CLOCK_MONOTONIC) - start) / line->calls;
}

/* A process for each processor, in turn with threads that make as many calls:
 * the ratio of what both get done.  Rounds are numbered from `round` on. */
static void
report_apart(const task *t, int n, int turns, int round)
{
    double apart[TURNS], threads[TURNS];
    int cpus = mr_num_threads();

    line->calls = t->calls * MAX_THREADS / n;
    for (int i = 0; i < turns; i++) {
        apart[i] = round_apart(t, n, round + i);
        threads[i] = round_of(t, MAX_THREADS, cpus);
    }
    qsort(apart, (size_t)turns, sizeof *apart, by_value);
    qsort(threads, (size_t)turns, sizeof *threads, by_value);
    printf("one function, build and eval       %d processes %6.1f ns  "
           "(median %.1f)  x %d calls\n",
           n, apart[0], apart[turns / 2], line->calls);
    printf("in turn with these                 %d threads   %6.1f ns  "
           "(median %.1f)  x %d calls\n",
           MAX_THREADS, threads[0], threads[turns / 2], t->calls);
    printf("%-44s %8.2f  (median %.2f)\n",
           "throughput of threads over processes", apart[0] / threads[0],
           apart[turns / 2] / threads[turns / 2]);
}

/* Both lengths of a round: what making eight threads begin and waiting for the
 * last of them costs is a part of the short one only. */
static void
report_processes(task *t, int n)
{
    t->what = EVALUATE;
    report_apart(t, n, TURNS, 1);
    t->calls = 10 * CALLS;
    report_apart(t, n, LONG_TURNS, TURNS + 1);
    atomic_store_explicit(&line->start, -1, memory_order_release);
    for (int i = 1; i < n; i++)
        sem_post(&line->of[i].go);
}

/* The arguments of all calls. */
static mr_tree *
arguments(mr_array **a, mr_array **b)
{
    float data[16];

    for (int i = 0; i < 16; i++)
        data[i] = 0.1f * (float)i;
    *a = mr_array_from_f32(data, MR_SHAPE(16));
    *b = mr_add(*a, *a);
    mr_eval(*b);
    return mr_tree_arrays(2, (mr_array *[]){*a, *b});
}

/* That this process may use. */
static int
n_processors(void)
{
    cpu_set_t set;
    int n;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    n = CPU_COUNT(&set);
    return n < MAX_PROCESSES ? n : MAX_PROCESSES;
}

/* Before the library is used: processes 1 to n - 1. */
static void
begin_apart(int n, pid_t *pid)
{
    line = mmap(NULL, sizeof *line, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (line == MAP_FAILED)
        exit(1);
    for (int i = 1; i < n; i++) {
        if (sem_init(&line->of[i].go, 1, 0) != 0)
            exit(1);
        pid[i] = fork();
        if (pid[i] == 0) {
            mr_array *a, *b;
            task t = {.args = arguments(&a, &b), .what = EVALUATE};

            t.f[0] = mr_compile(ten, NULL, NULL);
            work_apart(i, &t);
            _exit(0);
        }
        if (pid[i] < 0)
            exit(1);
    }
}

/* ---- a decoder's calls ------------------------------------------------------
 */

/* Microseconds for LAYERS calls, each on what the one before gave, and one
 * evaluation at the end. */
static double
token(mr_function *f, mr_array *a, mr_array *b)
{
    mr_scope s = mr_scope_begin();
    mr_array *x = a;
    double start = now_ns(CLOCK_MONOTONIC);

    for (int i = 0; i < LAYERS; i++) {
        mr_tree *in = mr_tree_arrays(2, (mr_array *[]){x, b});

        x = mr_tree_array(f == NULL ? ten(NULL, in) : mr_call(f, in));
    }
    if (mr_eval(x) != MR_OK) {
        fprintf(stderr, "%s\n", mr_error_last().message);
        exit(1);
    }
    start = now_ns(CLOCK_MONOTONIC) - start;
    mr_scope_end(s);
    return start / 1e3;
}

static void
report_token(mr_function *f, mr_array *a, mr_array *b)
{
    double v[2][10 * ROUNDS];

    for (int i = 0; i < 10 * ROUNDS; i++) { /* in turn: the machine is shared */
        v[0][i] = token(f, a, b);
        v[1][i] = token(NULL, a, b);
    }
    for (int k = 0; k < 2; k++) {
        qsort(v[k], 10 * ROUNDS, sizeof **v, by_value);
        printf("96 calls, %-34s %8.1f us  (median %.1f)\n",
               k == 0 ? "compiled" : "the same operators, not compiled",
               v[k][0], v[k][5 * ROUNDS]);
    }
    printf("%-44s %8.2f\n", "compiled over not", v[0][0] / v[1][0]);
}

int
main(void)
{
    static const int n_threads[] = {1, 2, 4, MAX_THREADS};
    int n = n_processors();
    pid_t pid[MAX_PROCESSES];
    mr_array *a, *b;
    mr_tree *args;
    task shared, own;

    begin_apart(n, pid);
    args = arguments(&a, &b);
    for (int i = 0; i < MAX_THREADS; i++) {
        own.f[i] = mr_compile(ten, NULL, NULL);
        shared.f[i] = own.f[0];
    }
    own.args = shared.args = args;
    own.calls = shared.calls = CALLS;
    for (int k = 0; k < 4; k++) {
        task *t = k < 2 ? &shared : &own;

        t->what = k % 2 == 0 ? BUILD : EVALUATE;
        for (int i = 0; i < 4; i++)
            report(k == 0   ? "one function, build"
                   : k == 1 ? "one function, build and eval"
                   : k == 2 ? "a function each, build"
                            : "a function each, build and eval",
                   *t, n_threads[i]);
    }
    report_processes(&shared, n);
    for (int i = 1; i < n; i++)
        waitpid(pid[i], NULL, 0);
    report_token(own.f[0], a, b);
    mr_tree_release(args);
    for (int i = 0; i < MAX_THREADS; i++)
        mr_function_release(own.f[i]);
    mr_release(a);
    mr_release(b);
    return 0;
}
