/* SPDX-License-Identifier: Apache-2.0
 *
 * threads.c -- tests of transforms on several threads at once, and of what
 * evaluation inside a trace keeps and lets go.
 */
#include "transform/support.h"

#include <pthread.h>

#include "graph/node.h"

enum { THREADS = 4, ROUNDS = 100 };

/* ---- several threads -------------------------------------------------------
 */
static mr_tree *
cubic(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0), *y = mr_multiply(x, x);

    (void)ctx;
    if (mr_eval(y) != MR_OK)
        return NULL;
    return leaf(mr_sum(mr_multiply(y, x), MR_AXES_ALL, false));
}

static mr_tree *
grad_of_cubic(void *ctx, const mr_tree *in)
{
    return mr_closure_value_and_grad(ctx, in, NULL, 0);
}

static mr_tree *
sum_of_gradient(void *ctx, const mr_tree *in)
{
    mr_tree *r = grad_of_cubic(ctx, in);

    return r ? leaf(mr_sum(mr_tree_array_at(r, 1), MR_AXES_ALL, false)) : NULL;
}

struct shared {
    mr_closure *closure;
    mr_array *x;
};

static void *
work(void *arg_)
{
    struct shared *shared = arg_;

    for (int i = 0; i < ROUNDS; i++) {
        mr_scope s = mr_scope_begin();
        mr_tree *args = MR_ARRAYS(shared->x);
        mr_tree *g = mr_closure_value_and_grad(shared->closure, args, NULL, 0);
        mr_tree *h = mr_grad(sum_of_gradient, shared->closure, args, NULL, 0);
        double got[2] = {0};

        if (!g || !h ||
            mr_array_copy_f64(mr_tree_array_at(g, 1), got, 2) != MR_OK ||
            got[0] != 12 || got[1] != 27 ||
            mr_array_copy_f64(mr_tree_array(h), got, 2) != MR_OK ||
            got[0] != 12 || got[1] != 18)
            return shared;
        mr_scope_end(s);
    }
    return NULL;
}

static void
grad__threads_share_closure_and_arrays(void **state)
{
    pthread_t thread[THREADS];
    struct shared shared = {mr_closure_new(cubic, NULL, NULL),
                            mr_add(VECTOR(1, 1), VECTOR(1, 2))};

    (void)state;
    assert_true(shared.closure && shared.x);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, &shared), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;

        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    mr_closure_release(shared.closure);
}

/* ---- what a trace keeps -----------------------------------------------------
 */
static mr_array *inside;

static mr_tree *
remembers_inside(void *ctx, const mr_tree *in)
{
    mr_array *y = mr_exp(arg(in, 0));

    (void)ctx;
    if (mr_eval(y) != MR_OK)
        return NULL;
    inside = mr_retain(y);
    /* still there: the gradient needs it */
    assert_non_null(inside->in[0]);
    return leaf(mr_multiply(y, y));
}

static void
trace__lets_inputs_go_at_its_end(void **state)
{
    mr_tree *g = GOOD_TREE(
        mr_grad(remembers_inside, NULL, MR_ARRAYS(mr_float(0)), NULL, 0));

    (void)state;
    assert_null(inside->in[0]);
    assert_near(number(mr_tree_array(g)), 2, 1e-6);
    mr_release(inside);
}

static mr_tree *
fails_inside(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    mr_error_set(MR_E_USER, "no");
    return NULL;
}

static void
trace__ends_after_a_failure(void **state)
{
    int32_t axis = 0;
    mr_array *x = VECTOR(1, 2);

    (void)state;
    assert_failed(mr_grad(fails_inside, NULL, MR_ARRAYS(x), NULL, 0), MR_E_USER,
                  "no");
    assert_failed(mr_vmap(fails_inside, NULL, MR_ARRAYS(x), &axis, 1, NULL, 0),
                  MR_E_USER, "no");
    assert_int_equal(mr__ctx.trace, 0);
    assert_int_equal(mr__ctx.trace_depth, 0);
    assert_null(mr__ctx.no_eval);
    x = GOOD(mr_exp(x));
    assert_int_equal(mr_eval(x), MR_OK);
    assert_null(x->in[0]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCOPED(grad__threads_share_closure_and_arrays),
        SCOPED(trace__lets_inputs_go_at_its_end),
        SCOPED(trace__ends_after_a_failure),
    };

    return cmocka_run_group_tests_name("transform/threads", tests, NULL, NULL);
}
