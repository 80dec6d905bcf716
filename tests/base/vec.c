/* SPDX-License-Identifier: Apache-2.0
 *
 * vec.c -- tests of the list of pointers.
 */
#include "base/vec.h"

#include "base/alloc.h"
#include "base/map.h"
#include "marram/error.h"
#include "support/base.h"

static char cells[5000];

static void
vec__is_last_in_first_out(void **state)
{
    (void)state;
    mr_vec v = {0};

    assert_null(mr__vec_pop(&v));
    for (int i = 0; i < 5000; i++)
        assert_true(mr__vec_push(&v, &cells[i]));
    assert_int_equal(v.n, 5000);
    for (int i = 4999; i >= 0; i--)
        assert_ptr_equal(mr__vec_pop(&v), &cells[i]);
    assert_null(mr__vec_pop(&v));
    mr__vec_free(&v);
    assert_int_equal(v.cap, 0);
    assert_true(mr__vec_push(&v, cells));
    mr__vec_free(&v);
}

static void
vec__grows_by_doubling(void **state)
{
    (void)state;
    mr_vec v = {0};
    int64_t tried = mr__alloc_count();

    for (int i = 0; i < 5000; i++)
        mr__vec_push(&v, cells);
    assert_in_range(mr__alloc_count() - tried, 1, 11);
    assert_true(mr__vec_grow(&v, 20000));
    assert_int_equal(v.cap, 20000);
    assert_true(mr__vec_grow(&v, 10));
    assert_int_equal(v.cap, 20000);
    mr__vec_free(&v);
}

static bool
push_many(void *arg)
{
    mr_vec v = {0};
    bool ok = true;
    size_t n = 0;

    (void)arg;
    while (n < 100 && (ok = mr__vec_push(&v, &cells[n])))
        n++;
    assert_int_equal(v.n, n);
    for (size_t i = 0; i < n; i++)
        assert_ptr_equal(v.v[i], &cells[i]);
    mr__vec_free(&v);
    return ok;
}

static void
vec__failed_push_loses_nothing(void **state)
{
    (void)state;
    assert_int_equal(mrt_each_failure(push_many, NULL), 5);
}

static void
vec__absurd_size_fails(void **state)
{
    (void)state;
    mr_vec v = {0};

    assert_false(mr__vec_grow(&v, SIZE_MAX / 2));
    assert_int_equal(mr_error_take().code, MR_E_MEMORY);
}

static void
vec__what_was_seen_is_not_pushed_again(void **state)
{
    (void)state;
    mr_vec v = {0};
    mr_map seen = {0};

    for (int twice = 0; twice < 2; twice++)
        for (size_t n = 0; n < 3; n++)
            assert_true(mr__vec_push_new(&v, &seen, &cells[n]));
    assert_int_equal(v.n, 3);
    for (size_t n = 0; n < 3; n++)
        assert_ptr_equal(v.v[n], &cells[n]);
    mr__map_free(&seen);
    mr__vec_free(&v);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vec__is_last_in_first_out),
        cmocka_unit_test(vec__grows_by_doubling),
        cmocka_unit_test(vec__failed_push_loses_nothing),
        cmocka_unit_test(vec__absurd_size_fails),
        cmocka_unit_test(vec__what_was_seen_is_not_pushed_again),
    };

    return cmocka_run_group_tests_name("base/vec", tests, NULL, NULL);
}
