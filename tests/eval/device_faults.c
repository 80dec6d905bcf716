/* SPDX-License-Identifier: Apache-2.0
 *
 * device_faults.c -- what goes wrong with devices: calls that fail, once or for
 * good, memory that runs out, providers that do not fit, a process that forks.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "devices.h"

#include "base/alloc.h"
#include "base/error.h"
#include "eval/registry.h"
#include "marram/sys/info.h"

/* ---- faults -----------------------------------------------------------------
 */

typedef struct fault_case {
    far_fault what;
    mr_code code;
    const char *text;
} fault_case;

static const fault_case fault_cases[] = {
    {FAR_ALLOC, MR_E_MEMORY, "has no"},
    {FAR_LAUNCH, MR_E_DEVICE, "refused a launch"},
    {FAR_COPY, MR_E_DEVICE, "refused a copy"},
    {FAR_RUN, MR_E_DEVICE, "failed, as asked"},
};

static void
fault__that_lasts_names_operator_and_line(void **state)
{
    (void)state;
    const far_control *far = mrt_far();

    for (size_t i = 0; i < MRT_COUNT(fault_cases); i++) {
        const fault_case *c = &fault_cases[i];
        mr_array *a = mr_reshape(host_numbers(16), MRT_SHAPE(4, 4)), *y;
        mr_stream s = mrt_on(MRT_FAR(0));
        const char *site;
        mr_error e;

        site = MR_SITE, y = mr_matmul(a, a);
        far->fault(c->what, 1, 1000);
        assert_int_equal(mr_eval(y), c->code);
        e = mr_error_take();
        assert_non_null(strstr(e.message, c->text));
        assert_string_equal(e.op, "matmul");
        assert_string_equal(e.site, site);
        /* nothing is broken by it */
        far->fault(c->what, 0, 0);
        mrt_assert_f32(mr_sum(y, MR_AXES_ALL, false), (float[]){3920}, 1);
        expect_from(a, 0, 1);
        mrt_off(s);
    }
}

/* Reading on the host of what is done on the device. */
static void
fault__of_a_copy_back_says_what_was_read(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *x = far_numbers(0, 4);
    float out[4];

    far->fault(FAR_COPY, 1, 1000);
    assert_int_equal(mr_array_copy_f32(x, out, 4), MR_E_DEVICE);
    assert_string_equal(mr_error_take().op, "add");
    far->fault(FAR_COPY, 0, 0);
    expect_from(x, 1, 1);
}

/* At the n-th call, for all n of a program: either it heals, or there is an
 * error with an operator, and the next try gives the right answer. */
static void
fault__at_the_nth_call_leaves_all_intact(void **state)
{
    (void)state;
    const far_control *far = mrt_far();

    for (size_t i = 0; i < MRT_COUNT(fault_cases); i++)
        for (int n = 1; n < 16; n++) {
            mr_array *a = mr_add(host_numbers(8), mr_float(0.0)), *b, *c, *d;
            mr_stream s = mrt_on(MRT_FAR(0)), t = mr_stream_new(MRT_FAR(1));

            b = mr_add(mr_softmax(a, MR_AXES(0), false), a);
            mr_stream_scope(t);
            c = mr_sum(mr_multiply(a, b), MR_AXES(0), true);
            mr_stream_scope(s);
            d = mr_sort(mr_subtract(mr_subtract(b, a), c), 0);
            far->fault(fault_cases[i].what, n, n % 3 == 0 ? 12 : 1);
            if (mr_eval(d) != MR_OK) {
                mr_error e = mr_error_take();

                assert_int_equal(e.code, fault_cases[i].code);
                assert_true(strlen(e.op) > 0);
                assert_non_null(strstr(e.site, "device_faults.c:"));
            }
            far->fault(fault_cases[i].what, 0, 0);
            assert_int_equal(mr_eval(d), MR_OK);
            expect_from(a, 0, 1);
            mrt_assert_close(mr_sum(d, MR_AXES_ALL, false),
                             (double[]){1 - 8 * 146.4182}, 1, 1e-4, 0);
            mr_stream_free(t);
            mrt_off(s);
        }
}

static bool
evaluate_far(mr_stream s)
{
    mr_scope sc = mr_scope_begin();
    mr_array *a = mr_add(numbers(8), mr_float(0.0)), *y;
    float out[8];
    bool ok;

    mr_stream_scope(s);
    y = mr_sort(mr_matmul(mr_reshape(a, MRT_SHAPE(2, 4)),
                          mr_reshape(a, MRT_SHAPE(4, 2))),
                1);
    mr_stream_scope((mr_stream){0});
    ok = y != NULL && mr_array_copy_f32(y, out, 4) == MR_OK;
    mr_scope_end(sc);
    return ok;
}

/* Tasks hold references until they have landed. */
static int64_t
live_when_quiet(void)
{
    int64_t live = mr__alloc_live(), before;

    do {
        before = live;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        live = mr__alloc_live();
    } while (live != before);
    return live;
}

static void
allocations__may_fail_one_after_the_other(void **state)
{
    (void)state;
    mr_stream s = mr_stream_new(MRT_FAR(0));
    int n_failed = 0;
    int64_t live;

    assert_true(evaluate_far(s));
    live = live_when_quiet();
    for (int n = 0; n < 150; n++) { /* some heal: work is planned again */
        bool ok;

        mr__alloc_fail_after(n);
        ok = evaluate_far(s);
        mr__alloc_fail_after(-1);
        assert_int_equal(mr_error_take().code, ok ? MR_OK : MR_E_MEMORY);
        for (int i = 0; i < 1000 && mr__alloc_live() != live; i++)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        assert_int_equal(mr__alloc_live(), live);
        n_failed += !ok;
    }
    assert_true(n_failed > 10);
    mr_stream_free(s);
}

/* ---- providers --------------------------------------------------------------
 */

static void
providers__are_listed_with_the_reason(void **state)
{
    (void)state;
    mr_provider_info info = {.size = sizeof info};
    int n = 0, loaded = 0;

    for (; mr_provider_info_at(n, &info) == MR_OK; n++) {
        if (info.why_not == NULL) {
            loaded++;
            continue;
        }
        assert_non_null(strstr(info.path, "stale"));
        assert_non_null(strstr(info.why_not, "0123456789abcdef"));
        assert_non_null(strstr(info.why_not, "build both together"));
    }
    mrt_assert_error(MR_E_INDEX, "there is no provider");
    assert_int_equal(n, 3);
    assert_int_equal(loaded, 2);
    assert_int_equal(mr_device_count(MR_TEST_DEVICE), 3);
    assert_int_equal(mr_device_count(MR_GPU), 0);
}

static void
table__of_another_version_is_refused(void **state)
{
    (void)state;
    mr_device_table t = *mr__device_find(MRT_FAR(0));

    t.abi++;
    assert_int_equal(mr__device_register(&t), MR_E_DEVICE);
    mrt_assert_error(MR_E_DEVICE, "table version");
    t.abi--;
    t.size -= 8;
    assert_int_equal(mr__device_register(&t), MR_E_DEVICE);
    mrt_assert_error(MR_E_DEVICE, "table version");
    t.size += 8;
    t.build = "another";
    assert_int_equal(mr__device_register(&t), MR_E_DEVICE);
    mrt_assert_error(MR_E_DEVICE, "another");
    t.build = MR_BUILD_HASH;
    assert_int_equal(mr__device_register(&t), MR_E_DEVICE);
    mrt_assert_error(MR_E_DEVICE, "already");
}

static void
child_evaluates(void *arg)
{
    mr_stream s = mrt_on(MRT_FAR(0));
    mr_array *y = mr_add(*(mr_array **)arg, mr_float(1.0));

    if (mr_eval(y) != MR_E_DEVICE ||
        strstr(mr_error_take().message, "forked") == NULL)
        abort();
    mrt_off(s);
    expect_from(mr_add(*(mr_array **)arg, mr_float(2.0)), 2, 1);
}

static void
fork__gives_the_child_a_clear_error(void **state)
{
    (void)state;
    mr_array *x = host_numbers(4);
    char text[512];

    if (MRT_TSAN) /* the child starts threads, which it does not support */
        skip();

    expect_from(far_numbers(0, 4), 1, 1);
    assert_int_equal(mrt_child(child_evaluates, &x, text, sizeof text), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(fault__that_lasts_names_operator_and_line),
        mrt_test(fault__of_a_copy_back_says_what_was_read),
        mrt_test(fault__at_the_nth_call_leaves_all_intact),
        mrt_test(allocations__may_fail_one_after_the_other),
        mrt_test(providers__are_listed_with_the_reason),
        mrt_test(table__of_another_version_is_refused),
        mrt_test(fork__gives_the_child_a_clear_error),
    };

    mrt_devices_path();
    return cmocka_run_group_tests_name("eval/device_faults", tests, NULL, NULL);
}
