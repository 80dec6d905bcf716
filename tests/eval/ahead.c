/* SPDX-License-Identifier: Apache-2.0
 *
 * ahead.c -- mr_eval_set_depth_limit: a chain that nothing evaluates is
 * evaluated by the calls that make it longer, outside traces, and waits as
 * mr_async_eval does.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/alloc.h"
#include "support/device_op.h"
#include "support/mrt.h"

static uint64_t
ahead(void)
{
    mr_stats s = {.size = sizeof s};

    assert_int_equal(mr_stats_get(&s), MR_OK);
    return s.ahead;
}

static uint64_t
longest(mr_array *x)
{
    mr_pending p = {.size = sizeof p};

    assert_int_equal(mr_pending_get(&x, 1, &p), MR_OK);
    return p.longest;
}

/* x + n, each step an operation that nothing evaluates; the caller's. */
static mr_array *
count_up(mr_array *x, int n, uint64_t *most)
{
    mr_array *one = mr_ones(MR_SHAPE(8), MR_FLOAT32);

    assert_int_equal(mr_eval(one), MR_OK);
    mr_retain(x);
    for (int i = 0; i < n; i++) {
        mr_array *y = mr_add(x, one);
        uint64_t m;

        assert_non_null(y);
        mr_release(x);
        x = y;
        m = most == NULL ? 0 : longest(x);
        if (m > 0 && m > *most)
            *most = m;
    }
    mr_release(one);
    return x;
}

static mr_array *
zeros(void)
{
    mr_array *x = mr_full(MR_SHAPE(8), 0.0, MR_FLOAT32);

    assert_int_equal(mr_eval(x), MR_OK);
    return x;
}

static void
is_all(mr_array *x, float v)
{
    float want[8];

    for (int i = 0; i < 8; i++)
        want[i] = v;
    mrt_assert_f32(x, want, 8);
}

static void
limit__is_off_and_gives_the_old_one(void **state)
{
    (void)state;
    assert_int_equal(mr_eval_set_depth_limit(70), 0);
    assert_int_equal(mr_eval_set_depth_limit(UINT64_MAX), 70);
    assert_int_equal(mr_eval_set_depth_limit(0), UINT32_MAX - 1);
    assert_int_equal(mr_eval_set_depth_limit(0), 0);
}

static void
chain__stays_as_short_as_the_limit(void **state)
{
    static const uint64_t limits[] = {1, 2, 3, 10, 1000};
    mr_array *x = zeros();

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(limits); i++) {
        uint64_t most = 0, before = ahead(), n;
        mr_array *y;

        mr_eval_set_depth_limit(limits[i]);
        y = count_up(x, 5000, &most);
        mr_eval_set_depth_limit(0);
        n = ahead() - before;
        assert_in_range(most, 1, limits[i] + 1);
        assert_in_range(n, 5000 / (limits[i] + 2), 2 * 5000 / limits[i] + 1);
        is_all(y, 5000);
        mr_release(y);
    }
    mr_release(x);
}

static void
chain__without_a_limit_waits(void **state)
{
    mr_array *x = zeros(), *y;
    uint64_t before = ahead();

    (void)state;
    y = count_up(x, 3000, NULL);
    assert_int_equal(longest(y), 3000);
    assert_int_equal(ahead(), before);
    is_all(y, 3000);
    mr_release(y);
    mr_release(x);
}

static void
chain__inside_scopes_leaves_nothing(void **state)
{
    mr_array *x = zeros();
    int64_t live = 0;

    (void)state;
    mr_eval_set_depth_limit(50);
    for (int round = 0; round < 3; round++) {
        mr_scope s = mr_scope_begin();
        mr_array *y = x;

        for (int i = 0; i < 500; i++)
            y = mr_add(mr_multiply(y, mr_float(0.5)), mr_float(1.0));
        assert_in_range(longest(y), 0, 51);
        assert_int_equal(mr_eval(y), MR_OK);
        mr_scope_end(s);
        mr_stream_sync((mr_stream){0});
        if (round == 1)
            live = mr__alloc_live();
        if (round == 2)
            assert_true(mr__alloc_live() <= live + 4);
    }
    mr_eval_set_depth_limit(0);
    mr_release(x);
}

/* ---- traces ----------------------------------------------------------------
 */

static mr_tree *
long_body(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    for (int i = 0; i < 100; i++)
        x = mr_add(mr_sin(x), x);
    *(uint64_t *)ctx = ahead();
    return mr_tree_leaf(mr_sum(x, MR_AXES_ALL, false));
}

static void
trace__is_left_alone(void **state)
{
    uint64_t inside = 0, before;
    mr_array *x = zeros();
    mr_tree *in = MR_ARRAYS(x), *out;
    mr_function *f = mr_compile(long_body, &inside, NULL);

    (void)state;
    mr_eval_set_depth_limit(5);
    before = ahead();
    out = mr_call(f, in);
    assert_non_null(out);
    assert_int_equal(inside, before);
    mrt_assert_f32(mr_tree_array(out), (float[]){0}, 1);
    out = mr_grad(long_body, &inside, in, NULL, 0);
    assert_non_null(out);
    assert_int_equal(inside, before);
    assert_int_equal(mr_eval_tree(out), MR_OK);
    mr_eval_set_depth_limit(0);
    mr_function_release(f);
}

static mr_tree *
step_body(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    (void)ctx;
    return mr_tree_leaf(mr_add(mr_multiply(x, mr_float(0.5)), mr_float(1.0)));
}

static void
calls__of_a_compiled_function_are_a_chain_too(void **state)
{
    mr_function *f = mr_compile(step_body, NULL, NULL);
    uint64_t before = ahead(), most = 0;
    mr_array *x = zeros();

    (void)state;
    mr_eval_set_depth_limit(20);
    for (int i = 0; i < 1000; i++) {
        mr_tree *t = mr_call(f, MR_ARRAYS(x));
        uint64_t m;

        assert_non_null(t);
        x = mr_tree_array(t);
        m = longest(x);
        most = m > most ? m : most;
    }
    mr_eval_set_depth_limit(0);
    assert_in_range(most, 2, 22);
    assert_true(ahead() - before >= 1000 / 20);
    is_all(x, 2.0F);
    mr_function_release(f);
}

/* ---- failures and waits
 * ------------------------------------------------------
 */

static void
error__stays_with_the_array(void **state)
{
    mr_array *x = zeros(), *bad, *y;

    (void)state;
    bad = mrt_counted_op(x, (mrt_counted){.counter = 9, .fail = MR_E_VALUE});
    mr_eval_set_depth_limit(10);
    y = count_up(bad, 100, NULL); /* no call fails */
    mr_eval_set_depth_limit(0);
    assert_int_equal(mr_eval(y), MR_E_VALUE);
    mr_error_take();
    mr_release(y);
    mr_release(bad);
    mr_release(x);
}

static _Atomic int made;

static void *
make_many(void *arg)
{
    mr_array *x = mr_full(MR_SHAPE(8), 0.0, MR_FLOAT32);

    for (int i = 0; i < 6000; i++) {
        mr_array *y = mrt_counted_op(
            x, (mrt_counted){.counter = 3, .gate = i == 0 ? 2 : 0});
        mr_array *z = mr_negative(y); /* a front door, where it is started */

        assert_non_null(z);
        mr_release(x);
        mr_release(z);
        x = y;
        atomic_store(&made, i + 1);
    }
    *(mr_array **)arg = x;
    return NULL;
}

/* The first operation stands at a gate: calls go on until so many wait. */
static void
calls__wait_while_too_much_is_in_flight(void **state)
{
    pthread_t thread;
    int at = 0, before = -1;
    mr_array *x = NULL;

    (void)state;
    mrt_counters_clear();
    mr_eval_set_depth_limit(4);
    pthread_create(&thread, NULL, make_many, &x);
    while (at != before || at < 100) { /* until it stands still */
        before = at;
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        at = atomic_load(&made);
    }
    assert_in_range(at, 3000, 5000); /* 4,096 tasks */
    mrt_gate_open(2);
    pthread_join(thread, NULL);
    mr_eval_set_depth_limit(0);
    assert_int_equal(made, 6000);
    is_all(x, 6000);
    assert_int_equal(mrt_runs(3), 6000);
    mr_release(x);
}

static _Atomic bool interrupts;

static bool
may(void)
{
    return atomic_load(&interrupts);
}

static void *
make_until_cancelled(void *arg)
{
    mr_array *x = mr_full(MR_SHAPE(8), 0.0, MR_FLOAT32);
    int *n = arg;

    for (*n = 0; *n < 6000; ++*n) {
        mr_array *y = mrt_counted_op(
            x, (mrt_counted){.counter = 3, .gate = *n == 0 ? 3 : 0});
        mr_array *z = mr_negative(y);

        mr_release(x);
        x = y;
        if (z == NULL)
            break;
        mr_release(z);
        if (*n == 4000)
            atomic_store(&interrupts, true);
    }
    if (mr_error_take().code != MR_E_CANCELLED)
        *n = -1;
    atomic_store(&interrupts, false); /* the next wait may be a long one */
    mrt_gate_open(3);
    is_all(x, (float)(*n + 1)); /* everything is as it was */
    mr_release(x);
    return NULL;
}

static void
wait__that_is_cancelled_fails_the_call_and_nothing_else(void **state)
{
    pthread_t thread;
    int n = 0;

    (void)state;
    mrt_counters_clear();
    mr_set_interrupt_hooks(may, may);
    mr_eval_set_depth_limit(4);
    pthread_create(&thread, NULL, make_until_cancelled, &n);
    pthread_join(thread, NULL);
    mr_eval_set_depth_limit(0);
    mr_set_interrupt_hooks(NULL, NULL);
    atomic_store(&interrupts, false);
    assert_in_range(n, 4000, 5000);
}

static void
chain_of_a_thread(void *unused, int i)
{
    mr_array *x = mr_full(MR_SHAPE(8), (double)i, MR_FLOAT32), *y;

    (void)unused;
    y = count_up(x, 2000, NULL);
    is_all(y, (float)(2000 + i));
    mr_release(y);
    /* ends with something noted: the thread's end drops it */
    y = mrt_count(x, 4);
    for (int k = 0; k < 40; k++) {
        mr_array *z = mrt_count(y, 4);

        mr_release(y);
        y = z;
    }
    mr_release(y);
    mr_release(x);
}

static void
threads__each_have_their_own_chain(void **state)
{
    (void)state;
    mr_eval_set_depth_limit(30);
    mrt_threads(8, chain_of_a_thread, NULL);
    mr_eval_set_depth_limit(0);
}

static bool
chain_again(void *x)
{
    mr_array *y = mr_retain(x), *one = mr_ones(MR_SHAPE(8), MR_FLOAT32);

    for (int i = 0; i < 12 && y != NULL && one != NULL; i++) {
        mr_array *z = mr_add(y, one);

        mr_release(y);
        y = z;
    }
    mr_release(one);
    if (y != NULL && one != NULL && mr_eval(y) == MR_OK) {
        is_all(y, 12);
        mr_release(y);
        return true;
    }
    mr_release(y);
    mr_stream_sync((mr_stream){0});
    return false;
}

static void
memory__that_is_not_there_is_no_error_of_the_call(void **state)
{
    mr_array *x = zeros();
    int failed = 0;

    (void)state;
    mr_eval_set_depth_limit(4);
    assert_true(chain_again(x));
    for (int n = 0; n < 300; n++) {
        mr__alloc_fail_after(n);
        failed += !chain_again(x);
        mr__alloc_fail_after(-1);
        mr_error_take();
        assert_true(chain_again(x));
    }
    mr_eval_set_depth_limit(0);
    assert_true(failed > 10);
    mr_release(x);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limit__is_off_and_gives_the_old_one),
        cmocka_unit_test(chain__stays_as_short_as_the_limit),
        cmocka_unit_test(chain__without_a_limit_waits),
        cmocka_unit_test(chain__inside_scopes_leaves_nothing),
        mrt_test(trace__is_left_alone),
        mrt_test(calls__of_a_compiled_function_are_a_chain_too),
        cmocka_unit_test(error__stays_with_the_array),
        cmocka_unit_test(calls__wait_while_too_much_is_in_flight),
        cmocka_unit_test(
            wait__that_is_cancelled_fails_the_call_and_nothing_else),
        cmocka_unit_test(threads__each_have_their_own_chain),
        cmocka_unit_test(memory__that_is_not_there_is_no_error_of_the_call),
    };

    return cmocka_run_group_tests_name("eval/ahead", tests, NULL, NULL);
}
