/* SPDX-License-Identifier: Apache-2.0
 *
 * streams.c -- do two streams keep two cores busy, and what does a stream cost?
 *
 * Two chains of products, too small for the loops of the kernels to be shared
 * out, on one stream and on two.  Prints minimum and median of the rounds.
 */
#include <marram/marram.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 15, LENGTH = 400, SIDE = 96, STREAMS = 2000 };

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

static mr_array *
chain(mr_array *a)
{
    mr_array *x = a;

    for (int i = 0; i < LENGTH; i++)
        x = mr_matmul(x, a);
    return x;
}

/* Nanoseconds for two chains on these streams. */
static double
once(mr_array *a, const mr_stream *s)
{
    mr_scope scope = mr_scope_begin();
    mr_array *x[2];
    double start;

    for (int i = 0; i < 2; i++) {
        mr_stream outer = mr_stream_scope(s[i]);

        x[i] = chain(a);
        mr_stream_scope(outer);
    }
    start = now_ns();
    if (mr_eval_many(x, 2) != MR_OK) {
        fprintf(stderr, "%s\n", mr_error_last().message);
        exit(1);
    }
    start = now_ns() - start;
    mr_scope_end(scope);
    return start;
}

static double
report(const char *name, double *v, double scale, const char *unit)
{
    qsort(v, ROUNDS, sizeof *v, by_value);
    printf("%-44s %9.2f %s  (median %.2f)\n", name, v[0] / scale, unit,
           v[ROUNDS / 2] / scale);
    return v[0];
}

int
main(void)
{
    mr_stream s[2], same[2];
    double one[ROUNDS], two[ROUNDS], made[ROUNDS], first;
    mr_array *a;

    for (int i = 0; i < 2; i++)
        s[i] = mr_stream_new((mr_device){MR_CPU, 0});
    same[0] = same[1] = s[0];
    a = mr_divide(mr_eye(SIDE, SIDE, 0, MR_FLOAT32), mr_float(1.0));
    mr_eval(a);
    once(a, s);
    for (int i = 0; i < ROUNDS; i++) { /* in turn: the machine is shared */
        double start;

        one[i] = once(a, same);
        two[i] = once(a, s);
        start = now_ns();
        for (int k = 0; k < STREAMS; k++)
            mr_stream_free(mr_stream_new((mr_device){MR_CPU, 0}));
        made[i] = (now_ns() - start) / STREAMS;
    }
    first = report("two chains of products on one stream", one, 1e6, "ms");
    printf("%-44s %9.2f\n", "one stream over two",
           first / report("the same on two streams", two, 1e6, "ms"));
    report("a stream made and freed", made, 1e3, "us");
    return 0;
}
