/* SPDX-License-Identifier: Apache-2.0
 *
 * tls.c -- tests of thread serials and of calls at a thread's end.
 */
#include "base/tls.h"

#include "base/alloc.h"
#include "marram/error.h"
#include "support/base.h"

static uint64_t serials[64];

static void
note_serial(void *arg, int i)
{
    (void)arg;
    serials[i] = mr__thread_serial();
    if (serials[i] != mr__thread_serial())
        serials[i] = 0;
}

static void
serial__is_never_used_again(void **state)
{
    (void)state;
    uint64_t mine = mr__thread_serial(), most = mine;

    assert_true(mine > 0);
    for (int round = 0; round < 5; round++) {
        uint64_t seen = most;

        mrt_threads(16, note_serial, NULL);
        for (int i = 0; i < 16; i++) {
            assert_true(serials[i] > seen);
            most = serials[i] > most ? serials[i] : most;
            for (int k = 0; k < i; k++)
                assert_true(serials[i] != serials[k]);
        }
    }
    assert_true(mr__thread_serial() == mine);
}

static int order[8], n_order;

static void
note_call(void *arg)
{
    order[n_order++] = *(const int *)arg;
}

static int numbers[] = {0, 1, 2, 3, 4};

static void
register_one_more(void *arg)
{
    note_call(arg);
    mr__at_thread_exit(note_call, &numbers[4]);
}

static void
register_calls(void *arg, int i)
{
    (void)arg;
    (void)i;
    mr__at_thread_exit(note_call, &numbers[0]);
    mr__at_thread_exit(register_one_more, &numbers[1]);
    mr__at_thread_exit(note_call, &numbers[2]);
}

static void
thread_exit__runs_last_registered_first(void **state)
{
    (void)state;
    static const int want[] = {2, 1, 4, 0};
    int64_t live = mr__alloc_live();

    n_order = 0;
    mrt_threads(1, register_calls, NULL);
    assert_int_equal(n_order, 4);
    assert_memory_equal(order, want, sizeof want);
    assert_int_equal(mr__alloc_live(), live);
}

static bool registered;

static void
register_without_memory(void *arg, int i)
{
    (void)i;
    mr__alloc_fail_after(0);
    registered = mr__at_thread_exit(note_call, arg);
    if (mr_error_take().code != MR_E_MEMORY)
        registered = true;
}

static void
thread_exit__without_memory_fails(void **state)
{
    (void)state;
    n_order = 0;
    mrt_threads(1, register_without_memory, numbers);
    assert_false(registered);
    assert_int_equal(n_order, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serial__is_never_used_again),
        cmocka_unit_test(thread_exit__runs_last_registered_first),
        cmocka_unit_test(thread_exit__without_memory_fails),
    };

    return cmocka_run_group_tests_name("base/tls", tests, NULL, NULL);
}
