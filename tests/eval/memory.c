/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c -- memory is taken when work is planned, and waited for in order of
 * arrival.
 */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "eval/line.h"
#include "support/device.h"
#include "support/device_op.h"
#include "support/mrt.h"

static void
nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Until `ok` says so: false after ten seconds. */
static bool
within_time(bool (*ok)(int), int x)
{
    for (int i = 0; i < 10000; i++) {
        if (ok(x))
            return true;
        nap();
    }
    return false;
}

static bool
line_has(int n)
{
    return atomic_load(&mr__line_length) == n;
}

static bool
has_run(int counter)
{
    return mrt_runs(counter) == 1;
}

/* ---- in order of arrival ----------------------------------------------------
 */

enum { FIRST = 1, LAST = 4, MEGABYTE = 1 << 20 };

/* Thread k's kernel holds a megabyte until gate k opens.  It arrives when all
 * before it stand in line. */
static void
one_megabyte(void *arg, int k)
{
    _Atomic int *wrong = arg;
    mr_scope none = mr_scope_none();
    mr_array *x = mr_full(MRT_SHAPE(1), k, MR_FLOAT32);
    mr_array *wide = mr_broadcast_to(x, MRT_SHAPE(MEGABYTE / 4));
    mr_array *y =
        mrt_counted_op(wide, (mrt_counted){.counter = k, .gate = k + FIRST});
    mr_array *z = mr_max(y, MR_AXES_ALL, false);
    float got;

    mr_release(x);
    mr_release(wide);
    mr_release(y);
    if (k > 0 && (!within_time(has_run, 0) || !within_time(line_has, k - 1)))
        atomic_fetch_add(wrong, 1);
    if (mr_array_copy_f32(z, &got, 1) != MR_OK || got != (float)k + 1)
        atomic_fetch_add(wrong, 1);
    mr_release(z);
    mr_scope_end(none);
}

static void
opener(void *arg, int k)
{
    _Atomic int *wrong = arg;

    if (k < LAST) {
        one_megabyte(arg, k);
        return;
    }
    if (!within_time(line_has, LAST - 1))
        atomic_fetch_add(wrong, 1);
    for (int i = 0; i < LAST; i++) {
        if (!within_time(has_run, i))
            atomic_fetch_add(wrong, 1);
        for (int late = i + 1; late < LAST; late++)
            if (mrt_runs(late) != 0)
                atomic_fetch_add(wrong, 1);
        mrt_gate_open(i + FIRST);
    }
}

static void
memory__is_waited_for_in_order_of_arrival(void **state)
{
    (void)state;
    _Atomic int wrong = 0;
    size_t old;

    mrt_counters_clear();
    mr_memory_clear_cache();
    /* a megabyte each: the broadcast is read as it lies */
    old = mr_memory_set_limit(mr_memory_active() + MEGABYTE + MEGABYTE / 2);
    mrt_threads(LAST + 1, opener, &wrong);
    mr_memory_set_limit(old);
    assert_int_equal(wrong, 0);
    assert_true(line_has(0));
}

/* ---- before the first kernel ------------------------------------------------
 */

/* A window that does not fit as a whole runs none of its kernels. */
static void
window__is_reserved_before_its_first_kernel(void **state)
{
    (void)state;
    mr_array *x = mr_full(MRT_SHAPE(MEGABYTE / 4), 1.0, MR_FLOAT32), *y[6];
    size_t old;

    assert_int_equal(mr_eval(x), MR_OK);
    mrt_counters_clear();
    y[0] = mrt_count(x, 0);
    for (int i = 1; i < 6; i++)
        y[i] = mrt_count(y[i - 1], i);
    mr_memory_clear_cache();
    old = mr_memory_set_limit(mr_memory_active() + 4 * MEGABYTE);
    assert_int_equal(mr_eval_many(y, 6), MR_E_MEMORY);
    assert_string_equal(mr_error_take().op, "counted");
    for (int i = 0; i < 6; i++)
        assert_int_equal(mrt_runs(i), 0);
    mr_memory_set_limit(old);
    assert_int_equal(mr_eval_many(y, 6), MR_OK);
}

/* What a kernel needs besides its operands is asked for at planning: with the
 * limit reached nothing fails later. */
static void
scratch__is_part_of_the_plan(void **state)
{
    (void)state;
    mr_array *x = mr_arange(MR_INTEGER(0), MR_INTEGER(1 << 23), MR_INTEGER(1),
                            MR_FLOAT32);
    mr_array *row = mr_reshape(x, MRT_SHAPE(1, 1 << 23));
    mr_array *y[4] = {mr_sum(x, MR_AXES_ALL, false),
                      mr_max(x, MR_AXES_ALL, false),
                      mr_mean(row, MR_AXES(1), false),
                      mr_cumsum(x, 0, false, true, MR_DTYPE_DEFAULT)};

    assert_int_equal(mr_eval(row), MR_OK);
    for (int i = 0; i < 4; i++) {
        size_t before;

        mr_memory_clear_cache();
        mr_memory_reset_peak();
        before = mr_memory_peak();
        assert_int_equal(mr_eval(y[i]), MR_OK);
        /* output and scratch are both in the account */
        assert_true(mr_memory_peak() - before >= mr_array_nbytes(y[i]) + 64);
    }
    mrt_assert_f32(y[1], (float[]){8388607}, 1);
}

/* ---- writes in place --------------------------------------------------------
 */

/* A megabyte of ones, one element written: the caller's references are gone. */
static mr_array *
one_written(bool hold, mr_array **old)
{
    int64_t at = 5, end = 6, step = 1;
    mr_array *one = mr_full(MRT_SHAPE(1), 1.0, MR_FLOAT32), *two, *x, *y;

    x = mr_broadcast_to(one, MRT_SHAPE(MEGABYTE / 4));
    two = mr_add(x, x); /* memory of its own */
    assert_int_equal(mr_eval(two), MR_OK);
    y = mr_index_slice_update(two, one, (mr_ints){&at, 1}, (mr_ints){&end, 1},
                              (mr_ints){&step, 1});
    mr_release(one);
    mr_release(x);
    *old = hold ? two : NULL;
    if (!hold)
        mr_release(two);
    return y;
}

static void
slice_update__writes_where_nobody_looks(void **state)
{
    (void)state;
    mr_scope none = mr_scope_none();
    mr_array *old, *y = one_written(false, &old), *sum;
    size_t limit;

    mr_memory_clear_cache();
    limit = mr_memory_set_limit(mr_memory_active() + MEGABYTE / 2);
    assert_int_equal(mr_eval(y), MR_OK);
    sum = mr_sum(y, MR_AXES_ALL, false);
    mrt_assert_f32(sum, (float[]){MEGABYTE / 2 - 1}, 1);
    mr_release(sum);
    mr_release(y);
    /* held: there is no memory for another, and the old one is intact */
    y = one_written(true, &old);
    mr_memory_clear_cache();
    mr_memory_set_limit(mr_memory_active() + MEGABYTE / 2);
    assert_int_equal(mr_eval(y), MR_E_MEMORY);
    mr_error_take();
    mr_memory_set_limit(limit);
    sum = mr_sum(old, MR_AXES_ALL, false);
    mrt_assert_f32(sum, (float[]){MEGABYTE / 2}, 1);
    mr_release(sum);
    assert_int_equal(mr_eval(y), MR_OK);
    mr_release(y);
    mr_release(old);
    mr_scope_end(none);
}

/* ---- devices ----------------------------------------------------------------
 */

/* What the far device has no memory for now it has when its queue has run. */
static void
device__memory_is_waited_for_too(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *x = mr_full(MRT_SHAPE(64), 1.0, MR_FLOAT32), *y, *z;
    mr_stream s = mrt_on(MRT_FAR(0));

    far->delays(3);
    y = mr_matmul(mr_reshape(x, MRT_SHAPE(8, 8)),
                  mr_reshape(x, MRT_SHAPE(8, 8)));
    assert_int_equal(mr_async_eval(&y, 1), MR_OK);
    far->fault(FAR_ALLOC, 1, 1);
    z = mr_add(y, mr_float(1.0));
    (void)mr_eval(z);
    mr_error_take();
    far->fault(FAR_ALLOC, 0, 0);
    mrt_assert_f32(mr_max(z, MR_AXES_ALL, false), (float[]){9}, 1);
    far->delays(0);
    mrt_off(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(memory__is_waited_for_in_order_of_arrival),
        mrt_test(window__is_reserved_before_its_first_kernel),
        mrt_test(scratch__is_part_of_the_plan),
        mrt_test(slice_update__writes_where_nobody_looks),
        mrt_test(device__memory_is_waited_for_too),
    };

    mrt_devices_path();
    return cmocka_run_group_tests_name("eval/memory", tests, NULL, NULL);
}
