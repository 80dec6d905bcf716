/* SPDX-License-Identifier: Apache-2.0
 *
 * compiled_call.c -- what does a warm call of a compiled function cost, alone
 * and from eight threads, and does the plan lock limit it?
 *
 * Ten operators on 16 elements.  Prints nanoseconds a call of one thread and,
 * for several threads, nanoseconds times processors used: level with one
 * thread's figure when nothing is shared.  Minimum and median of the rounds.
 */
#include <marram/marram.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 15, CALLS = 2000, MAX_THREADS = 8 };

typedef enum work { BUILD, EVALUATE } work;

typedef struct task {
    mr_function *f;
    const mr_tree *args;
    work what;
} task;

static double
now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
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

static void *
run(void *arg)
{
    const task *t = arg;

    for (int i = 0; i < CALLS; i++) {
        mr_tree *out = mr_call(t->f, t->args);

        if (out == NULL ||
            (t->what == EVALUATE && mr_eval_tree(out) != MR_OK)) {
            fprintf(stderr, "%s\n", mr_error_last().message);
            exit(1);
        }
        mr_tree_release(out);
    }
    return NULL;
}

/* Nanoseconds a call, times the processors that `n` threads can have. */
static double
round_of(task *t, int n, int cpus)
{
    pthread_t thread[MAX_THREADS];
    double start = now_ns();

    for (int i = 1; i < n; i++)
        pthread_create(&thread[i], NULL, run, t);
    run(t);
    for (int i = 1; i < n; i++)
        pthread_join(thread[i], NULL);
    return (now_ns() - start) / CALLS / n * (n < cpus ? n : cpus);
}

static void
report(const char *name, task t, int n)
{
    double v[ROUNDS];
    mr_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    int cpus = mr_num_threads();

    round_of(&t, n, cpus);
    mr_stats_get(&before);
    for (int i = 0; i < ROUNDS; i++)
        v[i] = round_of(&t, n, cpus);
    mr_stats_get(&after);
    qsort(v, ROUNDS, sizeof *v, by_value);
    printf("%-34s %d thread%s %8.1f ns  (median %.1f)", name, n,
           n == 1 ? " " : "s", v[0], v[ROUNDS / 2]);
    if (t.what == EVALUATE)
        printf("  plan lock: %.2f holds a call, %.2f%% waited",
               (double)(after.plan_holds - before.plan_holds) /
                   ((double)CALLS * n * ROUNDS),
               100.0 * (double)(after.plan_waits - before.plan_waits) /
                   (double)(after.plan_holds - before.plan_holds));
    putchar('\n');
}

int
main(void)
{
    static const int n_threads[] = {1, 2, MAX_THREADS};
    float data[16];
    mr_array *a, *b;
    mr_tree *args;
    mr_function *f = mr_compile(ten, NULL, NULL);

    for (int i = 0; i < 16; i++)
        data[i] = 0.1f * (float)i;
    a = mr_array_from_f32(data, MR_SHAPE(16));
    b = mr_add(a, a);
    mr_eval(b);
    args = mr_tree_arrays(2, (mr_array *[]){a, b});
    for (int i = 0; i < 3; i++)
        report("compiled call, build", (task){f, args, BUILD}, n_threads[i]);
    for (int i = 0; i < 3; i++)
        report("compiled call, build and eval", (task){f, args, EVALUATE},
               n_threads[i]);
    mr_tree_release(args);
    mr_function_release(f);
    mr_release(a);
    mr_release(b);
    return 0;
}
