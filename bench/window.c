/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c -- how many operations should be planned at once?
 *
 * Evaluates a chain of matrix products with elementwise work between (20,000
 * operations) and a tree of 10,000 products, with windows of 16 to 65,536
 * operations: nanoseconds for an operation (the least of 15 rounds, the windows
 * in turn), how often the plan lock was held, and the peak of memory.
 *
 *     build/bin/bench/window
 */
#include <marram/marram.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { STEPS = 5000, LEAVES = 10000, ROUNDS = 15 };

static const uint64_t windows[] = {16, 64, 256, 1024, 2048, 8192, 65536};
enum { N_WINDOWS = sizeof windows / sizeof windows[0] };

static double
now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* y, made in the scope s, is the caller's; x goes. */
static mr_array *
keep(mr_scope s, mr_array *y, mr_array *x)
{
    y = mr_retain(y);
    mr_scope_end(s);
    mr_release(x);
    return y;
}

/* tanh(x @ w * 0.5 + 1), again and again; nothing else refers to a step. */
static mr_array *
chain(mr_array *w)
{
    mr_array *x = mr_retain(w);

    for (int i = 0; i < STEPS; i++) {
        mr_scope s = mr_scope_begin();
        mr_array *y = mr_multiply(mr_matmul(x, w), mr_float(0.5));

        x = keep(s, mr_tanh(mr_add(y, mr_float(1.0))), x);
    }
    return x;
}

/* The sum of many products, in pairs: breadth. */
static mr_array *
tree(mr_array *w)
{
    static mr_array *leaf[LEAVES];
    int n = LEAVES;

    for (int i = 0; i < n; i++)
        leaf[i] = mr_matmul(w, w);
    for (; n > 1; n = (n + 1) / 2)
        for (int i = 0; 2 * i < n; i++) {
            mr_array *a = leaf[2 * i];
            mr_array *b = 2 * i + 1 < n ? leaf[2 * i + 1] : NULL;

            leaf[i] = b == NULL ? mr_retain(a) : mr_add(a, b);
            mr_release(a);
            mr_release(b);
        }
    return leaf[0];
}

typedef struct figures {
    double ns;      /* of an operation */
    size_t peak;    /* bytes above what was there */
    uint64_t holds; /* of an evaluation */
} figures;

static int
measure(mr_array *(*graph)(mr_array *), mr_array *w, double operations,
        figures *f)
{
    mr_stats before = {.size = sizeof before}, after = before;
    mr_array *y = graph(w);
    size_t active;
    double t;

    mr_memory_reset_peak();
    active = mr_memory_active();
    mr_stats_get(&before);
    t = now();
    if (y == NULL || mr_eval(y) != MR_OK)
        return 1;
    t = (now() - t) / operations;
    mr_stats_get(&after);
    f->holds = after.plan_holds - before.plan_holds - 1;
    f->peak = mr_memory_peak() - active;
    if (f->ns == 0.0 || t < f->ns)
        f->ns = t;
    mr_release(y);
    return 0;
}

static int
table(const char *name, mr_array *(*graph)(mr_array *), int side,
      double operations)
{
    mr_array *w = mr_full(MR_SHAPE(side, side), 1e-3, MR_FLOAT32);
    figures f[N_WINDOWS] = {{0}};

    if (w == NULL || mr_eval(w) != MR_OK)
        return 1;
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < N_WINDOWS; i++) {
            mr_eval_set_window(windows[i]);
            if (measure(graph, w, operations, &f[i]) != 0)
                return 1;
        }
    for (int i = 0; i < N_WINDOWS; i++)
        printf("%s %d x %d, window %6llu: %8.1f ns an operation, %6llu holds "
               "of the plan lock, peak %9.1f KiB\n",
               name, side, side, (unsigned long long)windows[i], f[i].ns,
               (unsigned long long)f[i].holds, (double)f[i].peak / 1024.0);
    mr_eval_set_window(0);
    mr_release(w);
    return 0;
}

int
main(void)
{
    if (table("chain", chain, 2, 4.0 * STEPS) != 0 ||
        table("chain", chain, 64, 4.0 * STEPS) != 0 ||
        table("tree", tree, 2, 2.0 * LEAVES) != 0 ||
        table("tree", tree, 64, 2.0 * LEAVES) != 0) {
        mr_error e = mr_error_take();

        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    return 0;
}
