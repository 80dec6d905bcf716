/* SPDX-License-Identifier: Apache-2.0
 *
 * threads.c -- several threads over one graph and one compiled function, with
 * and without allocations failing under them.
 *
 * Built for the thread sanitizer: what it says of these programs is the test.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "faults/each.h"

enum { THREADS = 4, ROUNDS = MRT_TSAN ? 20 : 60, ROOTS = 6 };

/* ---- one graph, many evaluators ------------------------------------------ */

/* Roots that share most of what is below them: products, sums, views, sorts,
 * gathers and fused chains. */
static mr_tree *
roots_new(void)
{
    mr_array *x = mr_reshape(mr_sin(mr_arange(MR_INTEGER(0), MR_INTEGER(600),
                                              MR_INTEGER(1), MR_FLOAT32)),
                             MR_SHAPE(20, 30));
    mr_array *t = mr_transpose(x, MR_INTS_NONE);
    mr_array *p = mr_matmul(x, t), *q = mr_softmax(p, MR_AXES(-1), false);
    mr_array *s = mr_sort(mr_add(p, q), 1);
    mr_array *i = mr_argsort(mr_sum(s, MR_AXES(1), false), 0);
    mr_array *g = mr_take(mr_exp(mr_negative(mr_square(s))), i, 0);
    mr_array *c = mr_cumsum(g, 0, false, true, MR_DTYPE_DEFAULT);

    return MR_ARRAYS(mr_sum(g, MR_AXES_ALL, false), mr_matmul(g, x),
                     mr_add(c, q), mr_max(c, MR_AXES(0), false),
                     mr_flip(s, MR_AXES(1)), mr_matmul(mr_tanh(q), c));
}

typedef struct shared {
    mr_tree *roots;
    each_bits want[ROOTS];
    _Atomic int refused;
    mr_function *f;
} shared;

static void
wants_take(shared *s)
{
    for (int k = 0; k < ROOTS; k++)
        each_bits_take(&s->want[k], mr_tree_at(s->roots, k));
}

static void
shared_free(shared *s)
{
    for (int k = 0; k < ROOTS; k++)
        each_bits_free(&s->want[k]);
}

/* Each thread begins with another root. */
static void
evaluate_all(void *arg, int thread)
{
    shared *s = arg;

    for (int k = 0; k < ROOTS; k++) {
        int root = (k + thread) % ROOTS;
        mr_tree *t = mr_tree_at(s->roots, root);

        assert_int_equal(mr_eval_tree(t), MR_OK);
        each_bits_check(&s->want[root], t, "a root", thread);
    }
}

static void
overlapping_graphs__are_shared_by_threads(void **state)
{
    shared s = {0};

    (void)state;
    s.roots = roots_new();
    wants_take(&s);
    for (int round = 0; round < ROUNDS; round++) {
        mr_scope inner = mr_scope_begin();

        s.roots = roots_new();
        assert_non_null(s.roots);
        mrt_threads(THREADS, evaluate_all, &s);
        mr_scope_end(inner);
    }
    shared_free(&s);
}

/* ---- no memory here and there -------------------------------------------- */

/* Either it works and is right, or it says that there was no memory; asked
 * again without failures it works. */
static void
evaluate_or_refuse(void *arg, int thread)
{
    shared *s = arg;

    if (thread == 0) { /* makes others fail */
        for (int n = 0; n < 200; n++) {
            mr__alloc_fail_run(n % 23, 1 + n % 40);
            sched_yield();
        }
        mr__alloc_fail_after(-1);
        return;
    }
    for (int k = 0; k < ROOTS; k++) {
        mr_array *x = mr_tree_array_at(s->roots, (k + thread) % ROOTS);

        if (mr_eval(x) == MR_OK) {
            assert_true(mr_array_is_evaluated(x));
            continue;
        }
        atomic_fetch_add(&s->refused, 1);
        assert_int_equal(mr_error_take().code, MR_E_MEMORY);
    }
}

static void
no_memory_between_threads__is_clean(void **state)
{
    shared s = {0};
    int64_t live = 0;

    (void)state;
    s.roots = roots_new();
    wants_take(&s);
    for (int round = 0; round < ROUNDS; round++) {
        mr_scope inner = mr_scope_begin();

        s.roots = roots_new();
        assert_non_null(s.roots);
        mrt_threads(THREADS, evaluate_or_refuse, &s);
        mr__alloc_fail_after(-1);
        for (int k = 0; k < ROOTS; k++)
            each_bits_check(&s.want[k], mr_tree_at(s.roots, k), "a root", k);
        mr_scope_end(inner);
        if (round == 3)
            live = each_live();
        if (round > 3)
            assert_int_equal(each_live(), live);
    }
    print_message("  %d evaluations were refused\n", atomic_load(&s.refused));
    shared_free(&s);
}

/* ---- one compiled function, many callers --------------------------------- */

static mr_tree *
slope(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    (void)ctx;
    x = mr_softmax(mr_matmul(x, mr_transpose(x, MR_INTS_NONE)), MR_AXES(-1),
                   false);
    return mr_tree_leaf(mr_sum(mr_square(x), MR_AXES_ALL, false));
}

static mr_tree *
step(void *ctx, const mr_tree *in)
{
    return mr_value_and_grad(slope, ctx, in, NULL, 0);
}

/* The first calls race for the trace; some throw the cache away meanwhile. */
static void
call_step(void *arg, int thread)
{
    shared *s = arg;

    for (int n = 0; n < 10; n++) {
        mr_scope inner = mr_scope_begin();
        mr_tree *r = mr_call(s->f, s->roots);

        if (n == 5 && thread == 1)
            assert_int_equal(mr_function_cache_clear(s->f), MR_OK);
        assert_non_null(r);
        each_bits_check(&s->want[0], r, "a step", n);
        mr_scope_end(inner);
    }
}

static void
compiled_function__is_called_by_threads(void **state)
{
    shared s = {0};

    (void)state;
    s.roots =
        MR_ARRAYS(mr_reshape(mr_sin(mr_arange(MR_INTEGER(0), MR_INTEGER(12),
                                              MR_INTEGER(1), MR_FLOAT32)),
                             MR_SHAPE(3, 4)));
    each_bits_take(&s.want[0], step(NULL, s.roots));
    for (int round = 0; round < ROUNDS / 4; round++) {
        s.f = mr_compile(step, NULL, NULL);
        assert_non_null(s.f);
        mrt_threads(THREADS, call_step, &s);
        mr_function_release(s.f);
    }
    shared_free(&s);
}

static void
call_or_refuse(void *arg, int thread)
{
    shared *s = arg;

    for (int n = 0; n < 20; n++) {
        mr_scope inner = mr_scope_begin();
        mr_tree *r;

        mr__alloc_fail_after((7 * thread + 5 * n) % 60);
        r = inner.token == 0 ? NULL : mr_call(s->f, s->roots);
        if (r != NULL && mr_eval_tree(r) != MR_OK)
            r = NULL;
        mr__alloc_fail_after(-1);
        if (r == NULL) {
            atomic_fetch_add(&s->refused, 1);
            assert_int_equal(mr_error_take().code, MR_E_MEMORY);
        }
        if (inner.token != 0)
            mr_scope_end(inner);
    }
}

static void
no_memory_in_compiled_calls__is_clean(void **state)
{
    shared s = {0};

    (void)state;
    s.roots = MR_ARRAYS(mr_ones(MR_SHAPE(3, 4), MR_FLOAT32));
    each_bits_take(&s.want[0], step(NULL, s.roots));
    for (int round = 0; round < ROUNDS / 4; round++) {
        mr_tree *r;

        s.f = mr_compile(step, NULL, NULL);
        assert_non_null(s.f);
        mrt_threads(THREADS, call_or_refuse, &s);
        mr__alloc_fail_after(-1);
        r = mr_call(s.f, s.roots);
        assert_non_null(r);
        each_bits_check(&s.want[0], r, "a step", round);
        mr_function_release(s.f);
    }
    print_message("  %d calls were refused\n", atomic_load(&s.refused));
    shared_free(&s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(overlapping_graphs__are_shared_by_threads),
        mrt_test(no_memory_between_threads__is_clean),
        mrt_test(compiled_function__is_called_by_threads),
        mrt_test(no_memory_in_compiled_calls__is_clean),
    };

    return cmocka_run_group_tests_name("faults/threads", tests, NULL, NULL);
}
