/* SPDX-License-Identifier: Apache-2.0
 *
 * over.c -- loops over operands: each item runs once, whichever way they go,
 * and a loop begins where the last one over the same memory ended.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/pool.h"
#include "cpu/cpu.h"

enum { ITEMS_MAX = 5000 };

typedef struct cells {
    int64_t n;
    unsigned char ran[ITEMS_MAX];
    _Atomic int64_t first; /* the item that began first, or -1 */
} cells;

static void
add_one(void *ctx, int64_t begin, int64_t end)
{
    cells *c = ctx;
    int64_t none = -1;

    assert_true(0 <= begin && begin < end && end <= c->n);
    /* relaxed: read after the loop, whose end orders it */
    atomic_compare_exchange_strong_explicit(
        &c->first, &none, begin, memory_order_relaxed, memory_order_relaxed);
    for (int64_t i = begin; i < end; i++)
        c->ran[i]++;
}

static void
run(cells *c, const void *memory, int64_t n, int64_t grain)
{
    mr_over over = {.n = 0};

    memset(c, 0, sizeof *c);
    c->n = n;
    c->first = -1;
    mr__over_add(&over, memory);
    mr__cpu_for_over(&over, n, grain, add_one, c);
    for (int64_t i = 0; i < ITEMS_MAX; i++)
        assert_int_equal(c->ran[i], i < n);
}

static void
items__run_once_both_ways(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 7, 8, 63, 64, 65, 1000, 4999};
    static const int64_t grains[] = {0, 1, 2, 3, 10, 64, 999, 100000};
    cells *c = malloc(sizeof *c);

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t g = 0; g < sizeof grains / sizeof *grains; g++)
            for (int turn = 0; turn < 4; turn++)
                run(c, c, sizes[s], grains[g]);
    free(c);
}

static void
no_memory__is_no_matter(void **state)
{
    cells *c = malloc(sizeof *c);
    mr_over over = {.n = 0};

    (void)state;
    mr__over_add(&over, NULL);
    assert_int_equal(over.n, 0);
    for (int i = 0; i < MR_OVER_MAX + 3; i++)
        mr__over_add(&over, c);
    assert_int_equal(over.n, MR_OVER_MAX);
    run(c, NULL, 100, 10);
    run(c, NULL, 100, 10);
    free(c);
}

/* From the front, then from where it ended: not from the front again. */
static void
loop__begins_where_the_last_one_ended(void **state)
{
    cells *c = malloc(sizeof *c);
    char *memory = aligned_alloc(4096, 8192);

    (void)state;
    for (int turn = 0; turn < 6; turn++) {
        run(c, memory, 64, 1);
        if (turn % 2 == 0)
            assert_true(c->first == 0 || c->first == 63);
        else
            /* with one thread the loop went to the end */
            assert_true(c->first > 0 &&
                        (c->first < 63 || mr__pool_threads() == 1));
    }
    /* other memory: from the front */
    run(c, memory + 4096, 64, 1);
    assert_true(c->first == 0 || c->first == 63);
    free(memory);
    free(c);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items__run_once_both_ways),
        cmocka_unit_test(no_memory__is_no_matter),
        cmocka_unit_test(loop__begins_where_the_last_one_ended),
    };

    return cmocka_run_group_tests_name("cpu/over", tests, NULL, NULL);
}
