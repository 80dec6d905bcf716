/* SPDX-License-Identifier: Apache-2.0
 *
 * overhead.c -- what does one tiny operator cost from C, and its creation site?
 *
 * Prints name, value, unit, spread (best and median of the rounds).
 */
#include <marram/marram.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 31, CALLS = 2000, CHAIN = 100 };

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

static void
report(const char *name, double *v)
{
    qsort(v, ROUNDS, sizeof *v, by_value);
    printf("%-44s %9.1f ns  (median %.1f)\n", name, v[0], v[ROUNDS / 2]);
}

static mr_array *a, *b;

static void
add_only(void)
{
    for (int i = 0; i < CALLS; i++)
        mr_release(mr_add(a, b));
}

/* The function that bindings call: no line of C. */
static void
add_without_site(void)
{
    for (int i = 0; i < CALLS; i++)
        mr_release((mr_add)(a, b));
}

static void
add_in_scope(void)
{
    mr_scope s = mr_scope_begin();

    for (int i = 0; i < CALLS; i++)
        mr_add(a, b);
    mr_scope_end(s);
}

static void
add_and_eval(void)
{
    for (int i = 0; i < CALLS; i++) {
        mr_array *c = mr_add(a, b);

        mr_eval(c);
        mr_release(c);
    }
}

static void
chain_and_eval(void)
{
    for (int k = 0; k < CALLS / CHAIN; k++) {
        mr_array *c = mr_retain(a);

        for (int i = 0; i < CHAIN; i++) {
            mr_array *d = mr_add(c, b);

            mr_release(c);
            c = d;
        }
        mr_eval(c);
        mr_release(c);
    }
}

static double
once(void (*fn)(void))
{
    double t = now_ns();

    fn();
    return (now_ns() - t) / CALLS;
}

static void
run(const char *name, void (*fn)(void))
{
    double v[ROUNDS];

    fn();
    for (int r = 0; r < ROUNDS; r++)
        v[r] = once(fn);
    report(name, v);
}

/* In turn, since the difference is small. */
static void
run_sites(void)
{
    double with[ROUNDS], without[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        with[r] = once(add_only);
        without[r] = once(add_without_site);
    }
    report("the same with its line", with);
    report("the same without", without);
    printf("%-44s %9.1f ns\n", "a creation site", with[0] - without[0]);
}

int
main(void)
{
    float x[16];

    for (int i = 0; i < 16; i++)
        x[i] = (float)i * 0.5F;
    a = mr_array_from_f32(x, MR_SHAPE(16));
    b = mr_array_from_f32(x, MR_SHAPE(16));
    run("mr_add of 16 elements, lazy, and release", add_only);
    run_sites();
    run("mr_add of 16 elements, lazy, in a scope", add_in_scope);
    run("mr_add and mr_eval", add_and_eval);
    run("chain of 100 mr_add and mr_eval, per operator", chain_and_eval);
    mr_release(a);
    mr_release(b);
    return 0;
}
