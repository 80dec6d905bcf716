/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.c -- tests of mutexes, conditions and the check of lock order.
 */
#include "base/lock.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "support/base.h"

static mr_lock plan = MR_LOCK_INIT(MR_RANK_PLAN, "plan");
static mr_lock stream = MR_LOCK_INIT(MR_RANK_STREAM, "stream");
static mr_lock other_stream = MR_LOCK_INIT(MR_RANK_STREAM, "other stream");
static mr_lock logging = MR_LOCK_INIT(MR_RANK_LOG, "log");

static long counter; /* under plan */

static void
count_under_lock(void *arg, int i)
{
    (void)arg;
    (void)i;
    for (int k = 0; k < 20000; k++) {
        mr__lock_take(&plan);
        counter++;
        mr__lock_drop(&plan);
    }
}

static void
lock__excludes_and_counts_its_holds(void **state)
{
    (void)state;
    uint64_t holds = plan.holds;

    counter = 0;
    mrt_threads(8, count_under_lock, NULL);
    assert_int_equal(counter, 8 * 20000);
    assert_int_equal(plan.holds - holds, 8 * 20000);
    assert_true(plan.waits <= plan.holds);
}

static void
lock__made_at_run_time_works(void **state)
{
    (void)state;
    mr_lock l = (mr_lock)MR_LOCK_INIT(MR_RANK_EVENT, "mine");

    mr__lock_take(&l);
    mr__lock_drop(&l);
    mr__lock_fork_child(&l);
    mr__lock_take(&l);
    mr__lock_drop(&l);
    assert_int_equal(l.holds, 2);
    assert_int_equal(l.waits, 0);
}

static struct {
    mr_cond changed;
    int turn; /* under stream */
} ping = {MR_COND_INIT, 0};

static void
play(void *arg, int i)
{
    (void)arg;
    for (int k = 0; k < 2000; k++) {
        mr__lock_take(&stream);
        while (ping.turn != i)
            mr__cond_wait(&ping.changed, &stream);
        ping.turn = (i + 1) % 3;
        mr__cond_wake_all(&ping.changed);
        mr__lock_drop(&stream);
    }
}

static void
cond__hands_over_between_threads(void **state)
{
    (void)state;
    ping.turn = 0;
    mrt_threads(3, play, NULL);
    assert_int_equal(ping.turn, 0);
}

static void
take_in_order(void *arg)
{
    (void)arg;
    mr__lock_assert_none("a test");
    for (int i = 0; i < 3; i++) {
        mr__lock_take(&plan);
        mr__lock_take(&stream);
        mr__lock_take(&logging);
        /* Not the last one taken: any order of dropping is right. */
        mr__lock_drop(&plan);
        mr__lock_drop(&logging);
        mr__lock_drop(&stream);
    }
    mr__lock_assert_none("a test");
}

static void
rank__right_order_passes(void **state)
{
    (void)state;
    char text[4096];

    assert_int_equal(mrt_child(take_in_order, NULL, text, sizeof text), 0);
    assert_string_equal(text, "");
}

#ifdef MR_CHECK_LOCKS

static void
take_in_wrong_order(void *arg)
{
    (void)arg;
    mr__lock_take(&stream);
    mr__lock_take(&plan);
}

static void
take_equal_rank(void *arg)
{
    (void)arg;
    mr__lock_take(&stream);
    mr__lock_take(&other_stream);
}

static void
take_twice(void *arg)
{
    (void)arg;
    mr__lock_take(&stream);
    mr__lock_take(&stream);
}

static void
drop_unheld(void *arg)
{
    (void)arg;
    mr__lock_drop(&stream);
}

static void
user_code_under_lock(void *arg)
{
    (void)arg;
    mr__lock_take(&plan);
    mr__lock_assert_none("a traced function");
}

static void
wait_with_another_lock(void *arg)
{
    (void)arg;
    mr__lock_take(&plan);
    mr__lock_take(&stream);
    mr__cond_wait(&ping.changed, &stream);
}

static void
rank__breach_aborts_and_names_both(void **state)
{
    (void)state;
    static const struct {
        void (*fn)(void *arg);
        const char *first, *second;
    } breach[] = {
        {take_in_wrong_order, "\"plan\" (rank 30)", "\"stream\" (rank 40)"},
        {take_equal_rank, "\"other stream\" (rank 40)", "\"stream\" (rank 40)"},
        {take_twice, "taking \"stream\"", "while \"stream\""},
        {drop_unheld, "not held", "\"stream\""},
        {user_code_under_lock, "\"a traced function\"", "\"plan\" (rank 30)"},
        {wait_with_another_lock, "waiting on \"stream\"", "while \"plan\""},
    };
    char text[16384];

    for (size_t i = 0; i < MRT_COUNT(breach); i++) {
        int status = mrt_child(breach[i].fn, NULL, text, sizeof text);

        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGABRT);
        assert_non_null(strstr(text, "lock order"));
        assert_non_null(strstr(text, breach[i].first));
        assert_non_null(strstr(text, breach[i].second));
        /* where the one was taken, and how the thread came to the other */
        if (breach[i].fn != drop_unheld)
            assert_non_null(strstr(text, "was taken at\n"));
        assert_non_null(strstr(text, "and now\n"));
    }
}

#endif

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lock__excludes_and_counts_its_holds),
        cmocka_unit_test(lock__made_at_run_time_works),
        cmocka_unit_test(cond__hands_over_between_threads),
        cmocka_unit_test(rank__right_order_passes),
#if defined(MR_CHECK_LOCKS)
        cmocka_unit_test(rank__breach_aborts_and_names_both),
#endif
    };

    return cmocka_run_group_tests_name("base/lock", tests, NULL, NULL);
}
