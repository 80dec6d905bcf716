/* SPDX-License-Identifier: Apache-2.0
 *
 * random_programs.h -- random graphs, on random streams of random devices,
 * evaluated by threads in any order: each value must be, bit for bit, what one
 * thread gets that evaluates node after node.
 *
 * A program is a list of steps over matrices of one shape; the same list is run
 * twice.  Threads take nodes in an order of their own, start them, wait for
 * them, go on from them, and drop them.
 */
#ifndef MRT_RANDOM_PROGRAMS_H
#define MRT_RANDOM_PROGRAMS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/device.h"
#include "support/mrt.h"

enum {
    RP_ROWS = 16,
    RP_COLS = 24,
    RP_SIZE = RP_ROWS * RP_COLS,
    RP_INPUTS = 4,
    RP_STEPS = 60,
    RP_NODES = RP_INPUTS + RP_STEPS,
    RP_STREAMS = 6,
    RP_THREADS = 6,
    RP_KINDS = 16
};

typedef struct rp_step {
    int kind, a, b, stream;
} rp_step;

typedef struct rp_program {
    rp_step step[RP_STEPS];
    float input[RP_INPUTS][RP_SIZE];
    float want[RP_NODES][RP_SIZE];
    mr_array *node[RP_NODES];
    mr_stream stream[RP_STREAMS];
    mr_function *compiled;
    _Atomic int wrong;
    uint64_t seed;
} rp_program;

/* ---- numbers (xorshift64*, Vigna 2016) ---------------------------------- */

static uint64_t
rp_next(uint64_t *s)
{
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * UINT64_C(2685821657736338717);
}

static int
rp_below(uint64_t *s, int n)
{
    return (int)(rp_next(s) >> 33) % n;
}

/* ---- steps -------------------------------------------------------------- */

static mr_tree *
rp_body(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0), *b = mr_tree_array_at(in, 1);

    (void)ctx;
    return mr_tree_leaf(mr_tanh(mr_add(mr_multiply(a, mr_float(0.5)), b)));
}

static mr_array *
rp_products(mr_array *a, mr_array *b)
{
    mr_array *square = mr_matmul(a, mr_transpose(b, MR_INTS_NONE));

    return mr_multiply(mr_matmul(square, b), mr_float(0.001));
}

static mr_array *
rp_rows_of_both(mr_array *a, mr_array *b)
{
    mr_array *both = mr_concatenate((mr_array *[]){a, b}, 2, 0);

    return mr_index_slice(both, MR_INTS(8), MR_INTS(8 + RP_ROWS), MR_INTS(1));
}

static mr_array *
rp_turned(mr_array *a)
{
    return mr_reshape(mr_transpose(a, MR_INTS_NONE),
                      MR_SHAPE(RP_ROWS, RP_COLS));
}

static mr_array *
rp_apply(const rp_program *p, int kind, mr_array *a, mr_array *b)
{
    switch (kind) {
    case 0:
        return mr_multiply(mr_add(a, b), mr_float(0.5));
    case 1:
        return mr_sin(a);
    case 2:
        return mr_subtract(a, mr_max(b, MR_AXES(1), true));
    case 3:
        return mr_softmax(a, MR_AXES(0), false);
    case 4:
        return rp_turned(a);
    case 5:
        return rp_products(a, b);
    case 6:
        return rp_rows_of_both(a, b);
    case 7:
        return mr_sort(a, 1);
    case 8:
        return mr_multiply(mr_cumsum(a, 1, false, true, MR_DTYPE_DEFAULT),
                           mr_float(0.1));
    case 9:
        return mr_where(mr_greater(a, b), a, b);
    case 10:
        return mr_astype(mr_astype(mr_tanh(a), MR_FLOAT16), MR_FLOAT32);
    case 11:
        return mr_index_slice(a, MR_INTS(RP_ROWS - 1), MR_INTS(MR_INT_NONE),
                              MR_INTS(-1));
    case 12:
        return mr_add(a, mr_mean(b, MR_AXES(0), true));
    case 13:
        return mr_tree_array(mr_call(p->compiled, MR_ARRAYS(a, b)));
    case 14:
        return mr_minimum(mr_abs(a), mr_float(4.0));
    default:
        return mr_take(
            a,
            mr_argsort(mr_index_slice(b, MR_INTS(0), MR_INTS(1), MR_INTS(1)),
                       1),
            1);
    }
}

/* Of the shape that all have. */
static mr_array *
rp_step_of(const rp_program *p, int kind, mr_array *a, mr_array *b)
{
    return mr_reshape(rp_apply(p, kind, a, b), MR_SHAPE(RP_ROWS, RP_COLS));
}

/* ---- making ------------------------------------------------------------- */

static void
rp_make(rp_program *p, uint64_t seed)
{
    uint64_t s = seed * 2 + 1;

    p->seed = seed;
    p->wrong = 0;
    for (int i = 0; i < 4; i++)
        rp_next(&s);
    for (int i = 0; i < RP_INPUTS; i++)
        for (int k = 0; k < RP_SIZE; k++)
            p->input[i][k] = (float)(rp_below(&s, 2001) - 1000) / 500.0f;
    for (int i = 0; i < RP_STEPS; i++)
        p->step[i] =
            (rp_step){rp_below(&s, RP_KINDS), rp_below(&s, RP_INPUTS + i),
                      rp_below(&s, RP_INPUTS + i), rp_below(&s, RP_STREAMS)};
}

/* One thread, one stream, one node after the other. */
static void
rp_expect(rp_program *p)
{
    mr_scope all = mr_scope_begin();
    mr_array *x[RP_NODES];

    for (int i = 0; i < RP_NODES; i++) {
        const rp_step *s = i < RP_INPUTS ? NULL : &p->step[i - RP_INPUTS];

        x[i] = i < RP_INPUTS
                   ? mr_array_from_f32(p->input[i], MR_SHAPE(RP_ROWS, RP_COLS))
                   : rp_step_of(p, s->kind, x[s->a], x[s->b]);
        assert_int_equal(mr_array_copy_f32(x[i], p->want[i], RP_SIZE), MR_OK);
    }
    mr_scope_end(all);
}

static void
rp_build(rp_program *p)
{
    mr_scope all = mr_scope_begin();

    for (int i = 0; i < RP_NODES; i++) {
        const rp_step *s = i < RP_INPUTS ? NULL : &p->step[i - RP_INPUTS];
        mr_stream outer = {0};

        if (i >= RP_INPUTS)
            outer = mr_stream_scope(p->stream[s->stream]);
        p->node[i] = mr_retain(
            i < RP_INPUTS
                ? mr_array_from_f32(p->input[i], MR_SHAPE(RP_ROWS, RP_COLS))
                : rp_step_of(p, s->kind, p->node[s->a], p->node[s->b]));
        if (i >= RP_INPUTS)
            mr_stream_scope(outer);
        assert_non_null(p->node[i]);
    }
    mr_scope_end(all);
}

/* ---- threads ------------------------------------------------------------ */

typedef struct rp_thread {
    rp_program *p;
    uint64_t s;
    mr_array *mine[RP_NODES]; /* references of its own, dropped one by one */
} rp_thread;

static bool
rp_is(mr_array *x, const float *want)
{
    float got[RP_SIZE];

    return mr_array_copy_f32(x, got, RP_SIZE) == MR_OK &&
           memcmp(got, want, sizeof got) == 0;
}

/* A step from two nodes that may not be evaluated yet, on any stream. */
static bool
rp_goes_on(rp_thread *t, mr_array *x, const float *x_want)
{
    mr_scope all = mr_scope_begin();
    mr_stream outer =
        mr_stream_scope(t->p->stream[rp_below(&t->s, RP_STREAMS)]);
    mr_array *twice = mr_add(x, x);
    float want[RP_SIZE];
    bool ok;

    mr_stream_scope(outer);
    for (int i = 0; i < RP_SIZE; i++)
        want[i] = x_want[i] + x_want[i];
    ok = rp_is(twice, want);
    mr_scope_end(all);
    return ok;
}

static bool
rp_visit(rp_thread *t, int i)
{
    mr_array *x = t->mine[i], *some[2];
    const float *want = t->p->want[i];

    switch (rp_below(&t->s, 5)) {
    case 0:
        return mr_async_eval(&x, 1) == MR_OK;
    case 1:
        return rp_goes_on(t, x, want);
    case 2:
        some[0] = x;
        some[1] = t->mine[rp_below(&t->s, i + 1)];
        return some[1] == NULL || mr_eval_many(some, 2) == MR_OK;
    default:
        return rp_is(x, want);
    }
}

static void *
rp_work(void *arg)
{
    rp_thread *t = arg;
    int order[RP_NODES];

    for (int i = 0; i < RP_NODES; i++)
        order[i] = i;
    for (int i = RP_NODES - 1; i > 0; i--) {
        int k = rp_below(&t->s, i + 1), old = order[i];

        order[i] = order[k];
        order[k] = old;
    }
    for (int i = 0; i < RP_NODES; i++) {
        int at = order[i];

        if (!rp_visit(t, at)) {
            mr_error e = mr_error_take();

            printf("seed %llu, node %d: %s\n", (unsigned long long)t->p->seed,
                   at, e.code == MR_OK ? "another value" : e.message);
            t->p->wrong++;
        }
        mr_release(t->mine[at]);
        t->mine[at] = NULL;
    }
    return NULL;
}

static void
rp_evaluate(rp_program *p)
{
    static rp_thread t[RP_THREADS];
    pthread_t thread[RP_THREADS];

    for (int i = 0; i < RP_THREADS; i++) {
        t[i].p = p;
        t[i].s = p->seed * 31 + (uint64_t)i * 7919 + 1;
        for (int k = 0; k < RP_NODES; k++)
            t[i].mine[k] = mr_retain(p->node[k]);
    }
    /* half of the programs lose their maker's references at once */
    for (int k = 0; k < RP_NODES && p->seed % 2; k++) {
        mr_release(p->node[k]);
        p->node[k] = NULL;
    }
    for (int i = 0; i < RP_THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, rp_work, &t[i]), 0);
    for (int i = 0; i < RP_THREADS; i++)
        pthread_join(thread[i], NULL);
    for (int k = 0; k < RP_NODES; k++)
        mr_release(p->node[k]);
}

/* ---- the whole ---------------------------------------------------------- */

static double
rp_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Programs for so many seconds: MRT_SECONDS and MRT_SEED change it. */
static void
rp_run(double seconds)
{
    static rp_program p;
    const char *text = getenv("MRT_SECONDS"), *first = getenv("MRT_SEED");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1, n = 0;
    double end = rp_now() + (text != NULL ? strtod(text, NULL) : seconds);
    mr_scope none = mr_scope_none();

    assert_non_null(mrt_far()); /* loads it */
    p.compiled = mr_compile(rp_body, NULL, NULL);
    for (int i = 0; i < RP_STREAMS; i++) /* the last third is far away */
        p.stream[i] =
            mr_stream_new(i < 4 ? (mr_device){MR_CPU, 0} : MRT_FAR(i - 4));
    do {
        rp_make(&p, seed++);
        rp_expect(&p);
        rp_build(&p);
        rp_evaluate(&p);
        n++;
    } while (p.wrong == 0 && rp_now() < end);
    printf("%llu programs of %d steps\n", (unsigned long long)n, RP_STEPS);
    for (int i = 0; i < RP_STREAMS; i++)
        mr_stream_free(p.stream[i]);
    mr_function_release(p.compiled);
    mr_scope_end(none);
    assert_int_equal(p.wrong, 0);
}

#endif
