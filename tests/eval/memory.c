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
#include "eval/registry.h"
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

/* ---- soft limits, the report
 * ---------------------------------------------------
 */

/* A soft limit waits for what runs, and is exceeded when that does not help. */
static void
limit__that_is_soft_is_exceeded(void **state)
{
    (void)state;
    mr_array *x = mr_full(MRT_SHAPE(MEGABYTE / 4), 1.0, MR_FLOAT32), *y, *z;
    size_t old;

    assert_int_equal(mr_eval(x), MR_OK);
    mr_memory_clear_cache();
    old = mr_memory_set_limit(mr_memory_active() + 65536);
    y = mr_cumsum(x, 0, false, true, MR_DTYPE_DEFAULT);
    assert_int_equal(mr_eval(y), MR_E_MEMORY);
    mr_error_take();
    assert_true(mr_memory_set_strict(false));
    assert_int_equal(mr_eval(y), MR_OK);
    z = mr_array_from_u8((uint8_t[]){1}, MRT_SHAPE(1));
    assert_non_null(z); /* made, not planned */
    assert_true(mr_memory_active() > mr_memory_limit());
    assert_false(mr_memory_set_strict(true));
    mr_memory_set_limit(old);
    mrt_assert_f32(mr_max(y, MR_AXES_ALL, false), (float[]){MEGABYTE / 4}, 1);
}

static void
report__has_all_at_a_glance(void **state)
{
    (void)state;
    mr_memory_report r = {.size = sizeof r}, s = {.size = sizeof s};
    mr_array *x[10];

    assert_int_equal(mr_memory_report_get(&r), MR_OK);
    for (int i = 0; i < 10; i++) {
        x[i] = mr_contiguous(
            mr_full(MRT_SHAPE(i < 5 ? 16 : MEGABYTE), i, MR_FLOAT32), false);
        assert_int_equal(mr_eval(x[i]), MR_OK);
    }
    assert_int_equal(mr_memory_report_get(&s), MR_OK);
    assert_int_equal(s.buffers - r.buffers, 10);
    assert_true(s.active - r.active >= 20 * (uint64_t)MEGABYTE);
    assert_true(s.peak >= s.active && s.peak_held >= s.active + s.cached);
    assert_true(s.resident > 20 * (uint64_t)MEGABYTE);
    assert_int_equal(s.limit, mr_memory_limit());
    assert_int_equal(mr_memory_report_get(NULL), MR_E_NULL);
    mr_error_take();
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

/* What a device holds is in the figures, and in its own. */
static void
device__memory_is_counted(void **state)
{
    (void)state;
    mr_memory_info info = {.size = sizeof info};
    mr_array *x = mr_full(MRT_SHAPE(MEGABYTE / 4), 1.0, MR_FLOAT32), *y;
    size_t before, peak;
    mr_stream s;

    mrt_far();
    assert_int_equal(mr_eval(x), MR_OK);
    mr_memory_reset_peak();
    before = mr_memory_active();
    s = mrt_on(MRT_FAR(0));
    y = mr_retain(mr_add(x, x)); /* x's copy, and y */
    assert_int_equal(mr_eval(y), MR_OK);
    assert_int_equal(mr_stream_sync(s), MR_OK);
    mrt_off(s);
    assert_int_equal(mr_memory_of(MRT_FAR(0), &info), MR_OK);
    assert_true(info.active >= 2 * MEGABYTE && info.active < 3 * MEGABYTE);
    assert_true(info.peak >= info.active);
    assert_true(mr_memory_active() - before >= 2 * MEGABYTE);
    peak = mr_memory_peak();
    assert_true(peak >= mr_memory_active());
    assert_int_equal(mr_memory_of(MRT_FAR(1), &info), MR_OK);
    assert_int_equal(info.active, 0);
    mr_release(y);
    assert_int_equal(mr_memory_of(MRT_FAR(7), &info), MR_E_VALUE);
    mr_error_take();
    assert_int_equal(mr_memory_of(MRT_FAR(0), NULL), MR_E_NULL);
    mr_error_take();
}

/* The limit holds for all together, and the error says where and what. */
static void
device__memory_is_limited(void **state)
{
    (void)state;
    mr_array *x =
        mr_contiguous(mr_full(MRT_SHAPE(1024, 16), 1.0, MR_FLOAT32), false);
    mr_array *y;
    size_t old;
    const char *site;
    mr_stream s;
    mr_error e;

    assert_int_equal(mr_eval(x), MR_OK);
    s = mrt_on(MRT_FAR(0));
    mr_memory_clear_cache();
    old = mr_memory_set_limit(mr_memory_active() + 2 * MEGABYTE);
    x = mr_transpose(x, MR_INTS_NONE);
    site = MR_SITE, y = mr_matmul(mr_transpose(x, MR_INTS_NONE), x);
    assert_int_equal(mr_eval(y), MR_E_MEMORY);
    e = mr_error_take();
    assert_non_null(strstr(e.message, "far 0"));
    assert_non_null(strstr(e.message, "bytes"));
    assert_string_equal(e.op, "matmul");
    assert_string_equal(e.site, site);
    mr_memory_set_limit(old);
    assert_int_equal(mr_memory_limit(), old);
    assert_int_equal(mr_eval(y), MR_OK);
    mrt_assert_f32(mr_max(y, MR_AXES_ALL, false), (float[]){16}, 1);
    mrt_off(s);
}

/* What a device keeps for later goes when another memory needs the room. */
static void
device__caches_are_trimmed(void **state)
{
    (void)state;
    const mr_device_table *far = mr__device_find(MRT_FAR(1));
    mr_memory_pool *pool = far->pool(far->self);
    mr_memory_info info = {.size = sizeof info};
    size_t own = mr__pool_set_cache_limit(pool, SIZE_MAX), old;

    for (int how = 0; how < 3; how++) {
        mr__buffer_release(mr__buffer_new(pool, 4 * MEGABYTE));
        assert_int_equal(mr_memory_of(MRT_FAR(1), &info), MR_OK);
        assert_true(info.cached >= 4 * MEGABYTE);
        assert_true(mr_memory_cached() >= 4 * MEGABYTE);
        if (how == 0) {
            mr_memory_clear_cache();
        } else if (how == 1) {
            old = mr_memory_set_cache_limit(0);
            mr_memory_set_cache_limit(old);
        } else {
            mr_array *x = mr_full(MRT_SHAPE(MEGABYTE), 1.0, MR_FLOAT32);

            old = mr_memory_set_limit(mr_memory_active() + 6 * MEGABYTE);
            assert_int_equal(mr_eval(mr_contiguous(x, false)), MR_OK);
            mr_memory_set_limit(old);
        }
        assert_int_equal(mr_memory_of(MRT_FAR(1), &info), MR_OK);
        assert_int_equal(info.cached, 0);
    }
    mr__pool_set_cache_limit(pool, own);
}

/* Copies that are on the host as well make room, the oldest first; those in use
 * and the user's own stay. */
static void
device__copies_make_room_at_the_limit(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    const mr_device_table *table = mr__device_find(MRT_FAR(0));
    mr_memory_pool *pool = table->pool(table->self);
    mr_array *x[8], *y;
    size_t own;
    mr_stream s;

    for (int i = 0; i < 8; i++) {
        x[i] = mr_contiguous(mr_full(MRT_SHAPE(MEGABYTE / 4), i, MR_FLOAT32),
                             false);
        assert_int_equal(mr_eval(x[i]), MR_OK);
    }
    /* three of them, and a result */
    own = mr__pool_set_limit(pool, 4 * MEGABYTE + 65536);
    s = mrt_on(MRT_FAR(0));
    far->figures();
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 8; i++) {
            mr_scope each = mr_scope_begin();

            y = mr_add(x[i], x[(i + 1) % 8]);
            mrt_assert_f32(mr_max(y, MR_AXES_ALL, false),
                           (float[]){(float)(i + (i + 1) % 8)}, 1);
            mr_scope_end(each);
        }
    /* two at first, then each sum finds the one that the sum before it used */
    assert_int_equal(far->figures().to_device, 2 + 15);
    /* what one plan needs is not taken from it */
    y = mr_add(mr_add(x[0], x[1]), mr_add(x[2], x[3]));
    assert_int_equal(mr_eval(mr_add(y, mr_add(x[4], x[5]))), MR_E_MEMORY);
    assert_non_null(strstr(mr_error_take().message, "over the limit"));
    mr__pool_set_limit(pool, own);
    mrt_assert_f32(mr_max(mr_add(y, mr_add(x[4], x[5])), MR_AXES_ALL, false),
                   (float[]){15}, 1);
    mrt_off(s);
}

/* The same when all together are at their limit, and the host wants room. */
static void
host__gets_the_room_of_copies_on_devices(void **state)
{
    (void)state;
    mr_array *x = mr_full(MRT_SHAPE(MEGABYTE), 1.0, MR_FLOAT32), *y;
    size_t old;
    mr_stream s;

    x = mr_contiguous(x, false);
    assert_int_equal(mr_eval(x), MR_OK);
    s = mrt_on(MRT_FAR(1));
    mrt_assert_f32(mr_max(mr_add(x, mr_float(1.0)), MR_AXES_ALL, false),
                   (float[]){2}, 1);
    assert_int_equal(mr_stream_sync(s), MR_OK);
    mrt_off(s);
    mr_memory_clear_cache();
    old = mr_memory_set_limit(mr_memory_active() + MEGABYTE);
    y = mr_contiguous(mr_full(MRT_SHAPE(MEGABYTE), 3.0, MR_FLOAT32), false);
    assert_int_equal(mr_eval(y), MR_OK); /* 4 MiB: x's copy made room */
    mr_memory_set_limit(old);
    mrt_assert_f32(mr_max(y, MR_AXES_ALL, false), (float[]){3}, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(memory__is_waited_for_in_order_of_arrival),
        mrt_test(window__is_reserved_before_its_first_kernel),
        mrt_test(scratch__is_part_of_the_plan),
        mrt_test(slice_update__writes_where_nobody_looks),
        mrt_test(limit__that_is_soft_is_exceeded),
        mrt_test(report__has_all_at_a_glance),
        mrt_test(device__memory_is_waited_for_too),
        mrt_test(device__memory_is_counted),
        mrt_test(device__memory_is_limited),
        mrt_test(device__caches_are_trimmed),
        mrt_test(device__copies_make_room_at_the_limit),
        mrt_test(host__gets_the_room_of_copies_on_devices),
    };

    mrt_devices_path();
    return cmocka_run_group_tests_name("eval/memory", tests, NULL, NULL);
}
