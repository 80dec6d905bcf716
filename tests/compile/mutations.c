/* SPDX-License-Identifier: Apache-2.0
 *
 * mutations.c -- the check of locks finds what it is there for: with two ranks
 * exchanged, or a lock moved around user code, the first call ends the process.
 *
 * Each runs in a child of its own, before which this process evaluates nothing.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/lock.h"
#include "eval/plan.h"
#include "support/mrt.h"

static mr_tree *
plus_one(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_leaf(mr_add(mr_tree_array_at(in, 0), mr_int(1)));
}

static bool
calls_and_evaluates(void)
{
    mr_scope s = mr_scope_begin();
    mr_function *f = mr_compile(plus_one, NULL, NULL);
    mr_array *x = mr_zeros(MR_SHAPE(4), MR_FLOAT32);
    mr_tree *out = mr_call(f, MR_ARRAYS(mr_add(x, x)));
    bool ok = out != NULL && mr_eval_tree(out) == MR_OK;

    mr_function_release(f);
    mr_scope_end(s);
    return ok;
}

static void
as_it_is(void *unused)
{
    (void)unused;
    if (!calls_and_evaluates())
        _exit(3);
}

/* The plan lock behind the locks of streams, which are taken under it. */
static void
order_reversed(void *unused)
{
    (void)unused;
    mr__plan_lock.rank = MR_RANK_LOG;
    calls_and_evaluates();
}

/* What a global lock around a call would be. */
static void
lock_around_the_call(void *unused)
{
    (void)unused;
    mr__lock_take(&mr__plan_lock);
    calls_and_evaluates();
}

static void
locks__as_they_are_pass(void **state)
{
    char text[4096];

    (void)state;
    assert_int_equal(mrt_child(as_it_is, NULL, text, sizeof text), 0);
    assert_string_equal(text, "");
}

#ifdef MR_CHECK_LOCKS

static void
aborts(void (*fn)(void *), const char *what)
{
    char text[16384];
    int status = mrt_child(fn, NULL, text, sizeof text);

    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, "lock order"));
    assert_non_null(strstr(text, what));
    assert_non_null(strstr(text, "was taken at\n"));
    assert_non_null(strstr(text, "and now\n"));
}

static void
locks__in_reversed_order_abort_at_the_first_evaluation(void **state)
{
    (void)state;
    aborts(order_reversed, "while \"plan\" (rank 90) is held");
}

static void
lock__held_around_a_call_aborts_at_the_first_one(void **state)
{
    (void)state;
    aborts(lock_around_the_call, "\"plan\" (rank 30) is held");
}

#endif

int
main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef MR_CHECK_LOCKS
        cmocka_unit_test(
            locks__in_reversed_order_abort_at_the_first_evaluation),
        cmocka_unit_test(lock__held_around_a_call_aborts_at_the_first_one),
#endif
        cmocka_unit_test(locks__as_they_are_pass),
    };

    return cmocka_run_group_tests_name("compile/mutations", tests, NULL, NULL);
}
