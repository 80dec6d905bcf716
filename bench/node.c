/* SPDX-License-Identifier: Apache-2.0
 *
 * node.c -- what does it cost to make a node, a scope, a small buffer?
 *
 * The promise: an mr_add of two small lazy arrays takes under 100 ns, so its
 * node must take much less.  Prints the median of some repetitions and their
 * spread, in nanoseconds for each; malloc and free of a node's size stand
 * beside it for comparison.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "marram/marram.h"

enum { REPS = 9, N = 200000 };

static mr_array *a, *b;

static double
now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void
add_and_release(void)
{
    for (int i = 0; i < N; i++)
        mr_release(mr_add(a, b));
}

static void
add_in_scopes(void)
{
    for (int i = 0; i < N / 10; i++) {
        mr_scope s = mr_scope_begin();

        for (int k = 0; k < 10; k++)
            mr_add(a, b);
        mr_scope_end(s);
    }
}

static void
add_in_a_chain(void)
{
    mr_array *x = mr_retain(a);

    for (int i = 0; i < N; i++) {
        mr_array *y = mr_add(x, b);

        mr_release(x);
        x = y;
    }
    mr_release(x);
}

static void
scalar(void)
{
    for (int i = 0; i < N; i++)
        mr_release(mr_float(1.5));
}

static void
small_array(void)
{
    static const float v[4] = {1, 2, 3, 4};

    for (int i = 0; i < N; i++)
        mr_release(mr_array_from_f32(v, MR_SHAPE(2, 2)));
}

static void
scope(void)
{
    for (int i = 0; i < N; i++)
        mr_scope_end(mr_scope_begin());
}

static void
plain_malloc(void)
{
    for (int i = 0; i < N; i++) {
        void *volatile p = malloc(192);

        free(p);
    }
}

static int
by_value(const void *x, const void *y)
{
    double d = *(const double *)x - *(const double *)y;

    return (d > 0) - (d < 0);
}

static void
measure(const char *name, void (*fn)(void))
{
    double ns[REPS];

    fn();
    for (int i = 0; i < REPS; i++) {
        double begin = now_ns();

        fn();
        ns[i] = (now_ns() - begin) / N;
    }
    qsort(ns, REPS, sizeof *ns, by_value);
    printf("%-32s %8.1f ns  (%.1f to %.1f)\n", name, ns[REPS / 2], ns[0],
           ns[REPS - 1]);
}

int
main(void)
{
    const float v[4] = {1, 2, 3, 4};

    a = mr_array_from_f32(v, MR_SHAPE(2, 2));
    b = mr_array_from_f32(v, MR_SHAPE(2, 2));
    if (a == NULL || b == NULL) {
        fprintf(stderr, "%s\n", mr_error_last().message);
        return 1;
    }
    measure("mr_add, released", add_and_release);
    measure("mr_add, 10 in a scope", add_in_scopes);
    measure("mr_add, a long chain", add_in_a_chain);
    measure("mr_float, released", scalar);
    measure("mr_array_from_f32, released", small_array);
    measure("mr_scope_begin and end", scope);
    measure("malloc and free of 192 bytes", plain_malloc);
    mr_release(a);
    mr_release(b);
    return 0;
}
