/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c -- tests of queued lines and their handler.
 */
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lock.h"
#include "marram/error.h"
#include "support/base.h"

static struct {
    char text[200][1100];
    int level[200];
    int n;
} got;

static void
keep_line(void *ctx, int level, const char *line)
{
    assert_ptr_equal(ctx, &got);
    mr__lock_assert_none("a handler");
    if (got.n < 200) {
        strcpy(got.text[got.n], line);
        got.level[got.n] = level;
    }
    got.n++;
}

static int
reset(void **state)
{
    (void)state;
    mr__log_set_handler(keep_line, &got);
    mr__log_flush();
    got.n = 0;
    mr_error_take();
    return 0;
}

static void
log__waits_for_a_flush_and_keeps_order(void **state)
{
    (void)state;
    static mr_lock held = MR_LOCK_INIT(MR_RANK_INTERN, "held");

    mr__log_flush();
    mr__lock_take(&held);
    mr__log(MR_LOG_WARN, "slow: %d", 1);
    mr__log(MR_LOG_INFO, "second");
    mr__lock_drop(&held);
    assert_int_equal(got.n, 0);
    mr__log_flush();
    assert_int_equal(got.n, 2);
    assert_string_equal(got.text[0], "slow: 1");
    assert_int_equal(got.level[0], MR_LOG_WARN);
    assert_string_equal(got.text[1], "second");
    assert_int_equal(got.level[1], MR_LOG_INFO);
    mr__log_flush();
    assert_int_equal(got.n, 2);
}

static void
log__too_many_lines_are_counted(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        mr__log(MR_LOG_INFO, "line %d", i);
    mr__log_flush();
    assert_int_equal(got.n, 65);
    assert_string_equal(got.text[0], "line 0");
    assert_string_equal(got.text[63], "line 63");
    assert_non_null(strstr(got.text[64], "36 more lines"));
    mr__log(MR_LOG_INFO, "again");
    mr__log_flush();
    assert_string_equal(got.text[65], "again");
}

static void
log__long_line_is_cut(void **state)
{
    (void)state;
    char text[3000];

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    mr__log(MR_LOG_INFO, "%s", text);
    mr__log_flush();
    assert_int_equal(strlen(got.text[0]), 1023);
}

static void
log_and_fail(void *ctx, int level, const char *line)
{
    keep_line(ctx, level, line);
    mr__fail(MR_E_USER, "inside the handler");
    mr__log(MR_LOG_INFO, "from the handler");
    mr__log_flush();
}

static void
handler__may_log_and_leaves_the_error_alone(void **state)
{
    (void)state;
    mr__log_set_handler(log_and_fail, &got);
    mr__fail(MR_E_SHAPE, "mine");
    mr__log(MR_LOG_INFO, "one");
    mr__log_flush();
    assert_int_equal(got.n, 1);
    assert_int_equal(mr_error_last().code, MR_E_SHAPE);
    assert_string_equal(mr_error_last().message, "mine");
    mr__log_flush();
    assert_int_equal(got.n, 2);
    assert_string_equal(got.text[1], "from the handler");
    mr_error_take();
    mr__log_flush();
    assert_int_equal(mr_error_last().code, MR_OK);
}

static void
log_many(void *arg, int i)
{
    (void)arg;
    for (int k = 0; k < 200; k++) {
        mr__log(MR_LOG_INFO, "%d", i);
        mr__log_flush();
    }
}

static _Atomic int n_called;

static void
count_line(void *ctx, int level, const char *line)
{
    int n = 1;

    (void)ctx;
    (void)level;
    if (strstr(line, "more lines") != NULL)
        n = atoi(line);
    atomic_fetch_add_explicit(&n_called, n, memory_order_relaxed);
}

static void
log__many_threads_lose_no_line(void **state)
{
    (void)state;
    mr__log_set_handler(count_line, NULL);
    mrt_threads(8, log_many, NULL);
    mr__log_flush();
    mr__log_flush();
    assert_int_equal(n_called, 1600);
}

static void
log_to_stderr(void *arg)
{
    (void)arg;
    mr__log_set_handler(NULL, NULL);
    mr__log(MR_LOG_ERROR, "100%% of it");
    mr__log_flush();
}

static void
log__goes_to_stderr_with_a_prefix_by_default(void **state)
{
    (void)state;
    char text[256];

    assert_int_equal(mrt_child(log_to_stderr, NULL, text, sizeof text), 0);
    assert_string_equal(text, "marram: 100% of it\n");
}

/* The library's own handlers run around fork(). */
static void
log__lock_is_free_after_a_fork(void **state)
{
    (void)state;
    char text[256];

    assert_int_equal(mrt_child(log_to_stderr, NULL, text, sizeof text), 0);
    assert_string_equal(text, "marram: 100% of it\n");
    mr__log(MR_LOG_INFO, "parent");
    mr__log_flush();
    assert_int_equal(got.n, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(log__waits_for_a_flush_and_keeps_order, reset),
        cmocka_unit_test_setup(log__too_many_lines_are_counted, reset),
        cmocka_unit_test_setup(log__long_line_is_cut, reset),
        cmocka_unit_test_setup(handler__may_log_and_leaves_the_error_alone,
                               reset),
        cmocka_unit_test_setup(log__many_threads_lose_no_line, reset),
        cmocka_unit_test_setup(log__goes_to_stderr_with_a_prefix_by_default,
                               reset),
        cmocka_unit_test_setup(log__lock_is_free_after_a_fork, reset),
    };

    return cmocka_run_group_tests_name("base/log", tests, NULL, NULL);
}
