/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.c -- tests of arenas.
 */
#include "base/arena.h"

#include <string.h>

#include "base/alloc.h"
#include "marram/error.h"
#include "support/base.h"

static void
arena__blocks_are_aligned_and_apart(void **state)
{
    (void)state;
    mr_arena a = {0};
    unsigned char *p[2000];
    int64_t live = mr__alloc_live();

    for (size_t i = 0; i < 2000; i++) {
        size_t n = (i * 37) % 700;

        p[i] = mr__arena_alloc(&a, n);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        memset(p[i], (int)(i & 0xFF), n);
    }
    for (size_t i = 0; i < 2000; i++)
        for (size_t k = 0; k < (i * 37) % 700; k++)
            assert_int_equal(p[i][k], i & 0xFF);
    assert_ptr_not_equal(mr__arena_alloc(&a, 0), mr__arena_alloc(&a, 0));
    mr__arena_free(&a);
    assert_int_equal(mr__alloc_live(), live);
}

static void
arena__is_usable_after_free(void **state)
{
    (void)state;
    mr_arena a = {0};

    mr__arena_free(&a);
    assert_non_null(mr__arena_alloc(&a, 10));
    mr__arena_free(&a);
    assert_non_null(mr__arena_alloc(&a, 10));
    mr__arena_free(&a);
}

static void
arena__large_block_keeps_the_room_of_the_head(void **state)
{
    (void)state;
    mr_arena a = {0};
    char *first = mr__arena_alloc(&a, 16), *large, *next;

    large = mr__arena_alloc(&a, 1 << 20);
    memset(large, 1, 1 << 20);
    next = mr__arena_alloc(&a, 16);
    assert_ptr_equal(next, first + 16);
    mr__arena_free(&a);
}

static void
arena_zero__clears(void **state)
{
    (void)state;
    mr_arena a = {0};
    const char *p;

    memset(mr__arena_alloc(&a, 4096), 7, 4096);
    p = mr__arena_zero(&a, 300);
    for (int i = 0; i < 300; i++)
        assert_int_equal(p[i], 0);
    mr__arena_free(&a);
}

static void
arena__few_allocations_serve_many_blocks(void **state)
{
    (void)state;
    mr_arena a = {0};
    int64_t tried = mr__alloc_count();

    for (int i = 0; i < 100000; i++)
        assert_non_null(mr__arena_alloc(&a, 64));
    assert_in_range(mr__alloc_count() - tried, 1, 40);
    mr__arena_free(&a);
}

static bool
fill(void *arg)
{
    mr_arena a = {0};
    bool ok = true;

    (void)arg;
    for (int i = 0; i < 50 && ok; i++)
        ok = mr__arena_alloc(&a, 1000) != NULL;
    ok = ok && mr__arena_zero(&a, 1 << 20) != NULL;
    mr__arena_free(&a);
    return ok;
}

static void
arena__failures_leak_nothing(void **state)
{
    (void)state;
    mr_arena a = {0};

    assert_true(mrt_each_failure(fill, NULL) >= 4);
    assert_null(mr__arena_alloc(&a, SIZE_MAX));
    assert_int_equal(mr_error_take().code, MR_E_MEMORY);
    mr__arena_free(&a);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena__blocks_are_aligned_and_apart),
        cmocka_unit_test(arena__is_usable_after_free),
        cmocka_unit_test(arena__large_block_keeps_the_room_of_the_head),
        cmocka_unit_test(arena_zero__clears),
        cmocka_unit_test(arena__few_allocations_serve_many_blocks),
        cmocka_unit_test(arena__failures_leak_nothing),
    };

    return cmocka_run_group_tests_name("base/arena", tests, NULL, NULL);
}
