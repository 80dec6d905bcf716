/* SPDX-License-Identifier: Apache-2.0
 *
 * sized.c -- tests of structures that say their size.
 */
#include "base/sized.h"

#include <stdint.h>
#include <string.h>

#include "marram/error.h"
#include "support/base.h"

typedef struct figures {
    uint64_t size;
    uint64_t old, later;
} figures;

static const figures ours = {sizeof ours, 1, 2};

static void
give__fills_what_the_caller_knows(void **state)
{
    (void)state;
    figures all = {.size = sizeof all}, half = {.size = sizeof half - 8};
    struct {
        figures f;
        uint64_t newer;
    } more = {.f.size = sizeof more, .newer = 7};

    assert_int_equal(mr__sized_give(&all, &ours, sizeof ours, "figures"),
                     MR_OK);
    assert_memory_equal(&all, &ours, sizeof all);
    assert_int_equal(mr__sized_give(&half, &ours, sizeof ours, "figures"),
                     MR_OK);
    assert_true(half.size == sizeof half - 8 && half.old == 1);
    assert_int_equal(half.later, 0);
    assert_int_equal(mr__sized_give(&more, &ours, sizeof ours, "figures"),
                     MR_OK);
    assert_true(more.f.size == sizeof ours && more.f.later == 2);
    assert_int_equal(more.newer, 7);
}

static void
take__leaves_defaults_where_the_caller_ends(void **state)
{
    (void)state;
    figures old = {16, 5, 99}, to = {.later = 3};

    assert_int_equal(mr__sized_take(&to, sizeof to, &old, "figures"), MR_OK);
    assert_true(to.old == 5 && to.later == 3);
}

static void
size__that_was_not_set_is_an_error(void **state)
{
    (void)state;
    for (uint64_t size = 0; size < 8; size += 7) {
        figures f = {size, 4, 4}, to = ours;

        assert_int_equal(mr__sized_give(&f, &ours, sizeof ours, "figures"),
                         MR_E_VALUE);
        assert_true(f.size == size && f.old == 4 && f.later == 4);
        assert_non_null(
            strstr(mr_error_take().message, "set it to sizeof(figures)"));
        assert_int_equal(mr__sized_take(&to, sizeof to, &f, "figures"),
                         MR_E_VALUE);
        assert_memory_equal(&to, &ours, sizeof to);
    }
    assert_int_equal(mr__sized_give(NULL, &ours, sizeof ours, "figures"),
                     MR_E_NULL);
    mr_error_take();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(give__fills_what_the_caller_knows),
        cmocka_unit_test(take__leaves_defaults_where_the_caller_ends),
        cmocka_unit_test(size__that_was_not_set_is_an_error),
    };

    return cmocka_run_group_tests_name("base/sized", tests, NULL, NULL);
}
