/* SPDX-License-Identifier: Apache-2.0
 *
 * layouts.c -- steps for arguments that come in a new way: they stand in the
 * cache's account, they are bounded, and what a limit says holds for them.
 */
#include "base/alloc.h"
#include "support/mrt.h"

/* A product: its operand is taken as it lies. */
static mr_tree *
body(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    (void)ctx;
    return mr_tree_leaf(mr_add(mr_matmul(x, x), mr_exp(x)));
}

/* 4 x 4 elements of rows that are `row` elements apart. */
static mr_array *
square(int row)
{
    mr_array *all = mr_full(MR_SHAPE(4, row), 0.25, MR_FLOAT32), *x;

    assert_int_equal(mr_eval(all), MR_OK);
    x = mr_index_slice(all, MR_INTS(0, 0), MR_INTS(4, 4), MR_INTS(1, 1));
    assert_int_equal(mr_eval(x), MR_OK);
    return x;
}

static mr_function *
compiled(uint64_t max_bytes)
{
    mr_compile_options options = {.size = sizeof options,
                                  .max_bytes = max_bytes};

    return mr_compile(body, NULL, &options);
}

static void
call_with(mr_function *f, int row)
{
    mr_scope s = mr_scope_begin();
    mr_array *x = square(row);
    mr_tree *got = mr_call(f, MR_ARRAYS(x));

    assert_non_null(got);
    mrt_assert_same(mr_tree_array(got),
                    mr_tree_array(body(NULL, MR_ARRAYS(x))));
    mr_scope_end(s);
}

static uint64_t
bytes_of(const mr_function *f, uint64_t *entries)
{
    mr_cache_info info = {.size = sizeof info};

    if (f == NULL)
        assert_int_equal(mr_compile_cache_info(&info), MR_OK);
    else
        assert_int_equal(mr_function_cache_info(f, &info), MR_OK);
    if (entries != NULL)
        *entries = info.entries;
    return info.bytes;
}

static void
layouts__are_in_the_account(void **state)
{
    mr_function *f = compiled(0);
    uint64_t before, one, two, again, all;

    (void)state;
    call_with(f, 4);
    before = bytes_of(f, NULL);
    all = bytes_of(NULL, NULL);
    call_with(f, 5);
    one = bytes_of(f, NULL);
    call_with(f, 6);
    two = bytes_of(f, NULL);
    call_with(f, 5);
    again = bytes_of(f, NULL);
    assert_true(one > before + sizeof(void *) * 8);
    assert_int_equal(two - one, one - before); /* as large as each other */
    assert_int_equal(again, two);
    assert_int_equal(bytes_of(NULL, NULL) - all, two - before);
    assert_int_equal(mr_function_cache_clear(f), MR_OK);
    assert_int_equal(bytes_of(f, NULL), 0);
    assert_int_equal(bytes_of(NULL, NULL), all - before);
    mr_function_release(f);
}

static void
layouts__of_a_thousand_kinds_do_not_grow_without_limit(void **state)
{
    mr_function *f = compiled(0);
    uint64_t at_20 = 0, entries;
    int64_t live_at_20 = 0;

    (void)state;
    call_with(f, 4);
    for (int row = 5; row < 1005; row++) {
        call_with(f, row);
        if (row == 25) {
            at_20 = bytes_of(f, NULL);
            live_at_20 = mr__alloc_live();
        }
    }
    assert_int_equal(bytes_of(f, &entries), at_20);
    assert_int_equal(entries, 1);
    assert_true(mr__alloc_live() <= live_at_20 + 64);
    mr_function_release(f);
}

static void
limit__of_a_function_holds_for_its_layouts(void **state)
{
    mr_function *f = compiled(0), *g;
    uint64_t before, entries;
    mr_cache_info info = {.size = sizeof info};

    (void)state;
    call_with(f, 4);
    before = bytes_of(f, NULL);
    mr_function_release(f);
    g = compiled(before + before / 4); /* one program, and no layout */
    call_with(g, 4);
    assert_int_equal(bytes_of(g, &entries), before);
    assert_int_equal(entries, 1);
    call_with(g, 5);
    assert_int_equal(bytes_of(g, &entries), 0);
    assert_int_equal(entries, 0);
    call_with(g, 4);
    assert_int_equal(mr_function_cache_info(g, &info), MR_OK);
    assert_int_equal(info.evictions, 1);
    assert_int_equal(info.traces, 2);
    mr_function_release(g);
}

static void
limit__of_all_holds_at_the_next_call(void **state)
{
    mr_function *f = compiled(0), *g = compiled(0);
    uint64_t old, entries;

    (void)state;
    call_with(f, 4);
    call_with(g, 4);
    old = mr_compile_set_cache_bytes_limit(bytes_of(NULL, NULL) + 64);
    call_with(g, 5); /* now it is above */
    call_with(g, 5); /* the oldest goes: f's */
    bytes_of(f, &entries);
    assert_int_equal(entries, 0);
    bytes_of(g, &entries);
    assert_int_equal(entries, 1);
    mr_compile_set_cache_bytes_limit(old);
    mr_function_release(f);
    mr_function_release(g);
}

static mr_function *shared;

static void
call_in_thread(void *unused, int i)
{
    mr_scope s = mr_scope_begin();

    (void)unused;
    for (int k = 0; k < 200; k++) {
        call_with(shared, 4 + (7 * k + i) % 40);
        if (k % 50 == i)
            assert_int_equal(mr_function_cache_clear(shared), MR_OK);
    }
    mr_scope_end(s);
}

static void
account__is_right_after_eight_threads(void **state)
{
    uint64_t all = bytes_of(NULL, NULL);

    (void)state;
    shared = compiled(0);
    mrt_threads(8, call_in_thread, NULL);
    assert_int_equal(bytes_of(NULL, NULL) - all, bytes_of(shared, NULL));
    mr_function_release(shared);
    assert_int_equal(bytes_of(NULL, NULL), all);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(layouts__are_in_the_account),
        mrt_test(layouts__of_a_thousand_kinds_do_not_grow_without_limit),
        mrt_test(limit__of_a_function_holds_for_its_layouts),
        mrt_test(limit__of_all_holds_at_the_next_call),
        mrt_test(account__is_right_after_eight_threads),
    };

    return cmocka_run_group_tests_name("compile/layouts", tests, NULL, NULL);
}
