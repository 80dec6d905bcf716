/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c -- graphs are evaluated depth first, in windows: any size gives the
 * same bits, the order is that of the walk, and a chain of many windows takes
 * as little memory as one of a single one.
 */
#include <time.h>

#include "support/device_op.h"
#include "support/mrt.h"

static const uint64_t sizes[] = {1, 2, 3, 7, 50, 100000};

static void
setting__has_bounds_and_gives_the_old_one(void **state)
{
    (void)state;
    assert_int_equal(mr_eval_set_window(5), 2048);
    assert_int_equal(mr_eval_set_window(UINT64_MAX), 5);
    assert_int_equal(mr_eval_set_window(0), 1 << 20);
    assert_int_equal(mr_eval_set_window(0), 2048);
}

/* Branches that meet again, views, reductions, several roots. */
static void
graph(mr_array *root[3])
{
    mr_array *a = mr_reshape(
        mr_arange(MR_INTEGER(0), MR_INTEGER(60), MR_INTEGER(1), MR_FLOAT32),
        MR_SHAPE(6, 10));
    mr_array *x = mr_multiply(a, mr_float(0.01)), *sum;

    for (int i = 0; i < 20; i++) {
        mr_array *row = mr_sum(x, MR_AXES(1), true);
        mr_array *y = mr_tanh(mr_subtract(mr_exp(mr_negative(x)), row));

        sum = mr_sum(mr_matmul(y, mr_transpose(x, MR_INTS_NONE)), MR_AXES(0),
                     false);
        x = mr_add(mr_multiply(x, mr_float(0.5)),
                   mr_add(y, mr_mean(sum, MR_AXES_ALL, false)));
        root[i % 3] = x;
    }
}

static void
windows__of_any_size_give_the_same_bits(void **state)
{
    mr_array *want[3], *got[3];

    (void)state;
    graph(want);
    assert_int_equal(mr_eval_many(want, 3), MR_OK);
    for (size_t i = 0; i < MRT_COUNT(sizes); i++) {
        mr_eval_set_window(sizes[i]);
        graph(got);
        assert_int_equal(mr_eval_many(got, 3), MR_OK);
        for (int k = 0; k < 3; k++)
            mrt_assert_same(got[k], want[k]);
    }
    mr_eval_set_window(0);
}

/* Values of 16 KiB, each made from the one before by a kernel. */
static mr_array *
long_chain(int n)
{
    mr_array *x = mr_full(MR_SHAPE(64, 64), 0.5, MR_FLOAT32);

    for (int i = 0; i < n; i++) {
        mr_array *y = mr_sort(x, 1);

        mr_release(x);
        x = y;
    }
    return x;
}

static void
chain__of_many_windows_keeps_none_of_its_values(void **state)
{
    const size_t value = 64 * 64 * sizeof(float);
    /* a worker may run some of it; each thread counts up to 256 KiB of what it
     * takes and gives by itself */
    const size_t uncounted = 2 * 256 * 1024;

    (void)state;
    for (size_t i = 2; i < MRT_COUNT(sizes); i++) {
        mr_array *x = long_chain(5000);
        size_t before, peak;

        mr_eval_set_window(sizes[i]);
        mrt_tasks_end();
        mr_memory_reset_peak();
        before = mr_memory_active();
        assert_int_equal(mr_eval(x), MR_OK);
        peak = mr_memory_peak() - before;
        assert_in_range(peak, value, 6 * value + uncounted);
        mr_release(x);
    }
    mr_eval_set_window(0);
}

static mr_array *
branch(mr_array *x, int counter, int gate)
{
    for (int i = 0; i < 30; i++)
        x = mrt_counted_op(
            x, (mrt_counted){.counter = counter, .gate = i == 0 ? gate : 0});
    return x;
}

static void
wait_for(int counter, int n)
{
    for (int i = 0; i < 20000 && mrt_runs(counter) < n; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(mrt_runs(counter), n);
}

/* The inputs of the root one after the other, each with all that is below. */
static void
order__is_depth_first(void **state)
{
    mr_array *x = mr_full(MR_SHAPE(4), 0.0, MR_FLOAT32), *y;

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(sizes); i++) {
        mrt_counters_clear();
        mr_eval_set_window(sizes[i]);
        y = mr_add(branch(x, 1, 0), branch(x, 2, 1));
        assert_int_equal(mr_async_eval(&y, 1), MR_OK);
        wait_for(1, 30);
        assert_in_range(mrt_runs(2), 0, 1); /* the first is at its gate */
        mrt_gate_open(1);
        mrt_assert_f32(y, (float[]){60, 60, 60, 60}, 4);
        mrt_counters_clear();
        y = mr_add(branch(x, 1, 2), branch(x, 2, 0));
        assert_int_equal(mr_async_eval(&y, 1), MR_OK);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        assert_int_equal(mrt_runs(2), 0); /* behind the other */
        mrt_gate_open(2);
        mrt_assert_f32(y, (float[]){60, 60, 60, 60}, 4);
    }
    mr_eval_set_window(0);
}

static void
evaluate_in_thread(void *unused, int i)
{
    (void)unused;
    for (int k = 0; k < 50; k++) {
        mr_scope s = mr_scope_begin();
        mr_array *root[3];

        mr_eval_set_window(sizes[(size_t)(i + k) % MRT_COUNT(sizes)]);
        graph(root);
        assert_int_equal(mr_eval_many(root, 3), MR_OK);
        mr_scope_end(s);
    }
}

static void
setting__may_change_while_others_evaluate(void **state)
{
    (void)state;
    mrt_threads(4, evaluate_in_thread, NULL);
    mr_eval_set_window(0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting__has_bounds_and_gives_the_old_one),
        mrt_test(windows__of_any_size_give_the_same_bits),
        cmocka_unit_test(chain__of_many_windows_keeps_none_of_its_values),
        mrt_test(order__is_depth_first),
        cmocka_unit_test(setting__may_change_while_others_evaluate),
    };

    return cmocka_run_group_tests_name("eval/window", tests, NULL, NULL);
}
