/* SPDX-License-Identifier: Apache-2.0
 *
 * map.c -- tests of the table of pointers and of the hashes.
 */
#include "base/map.h"

#include <string.h>

#include "base/alloc.h"
#include "marram/error.h"
#include "support/base.h"

static char cells[20000];

static void
map__finds_what_was_put(void **state)
{
    (void)state;
    mr_map m = {0};

    assert_null(mr__map_get(&m, cells));
    for (size_t i = 0; i < 10000; i++)
        assert_true(mr__map_put(&m, &cells[i], &cells[19999 - i]));
    assert_int_equal(m.n, 10000);
    assert_true(m.n * 10 <= m.cap * 7);
    for (size_t i = 0; i < 10000; i++)
        assert_ptr_equal(mr__map_get(&m, &cells[i]), &cells[19999 - i]);
    for (size_t i = 10000; i < 20000; i++)
        assert_null(mr__map_get(&m, &cells[i]));
    assert_null(mr__map_get(&m, NULL));
    mr__map_free(&m);
    assert_null(mr__map_get(&m, cells));
}

static void
map_at__makes_once_and_can_be_written(void **state)
{
    (void)state;
    mr_map m = {0};
    void **at = mr__map_at(&m, cells);

    assert_null(*at);
    *at = cells + 1;
    assert_ptr_equal(mr__map_at(&m, cells), at);
    assert_ptr_equal(mr__map_get(&m, cells), cells + 1);
    assert_true(mr__map_put(&m, cells, cells + 2));
    assert_ptr_equal(mr__map_get(&m, cells), cells + 2);
    assert_int_equal(m.n, 1);
    mr__map_free(&m);
}

/* Addresses with a regular stride must not form long runs. */
static void
map__spreads_strided_addresses(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift < 22; shift++) {
        mr_map m = {0};
        size_t run = 0, longest = 0;

        for (uintptr_t i = 1; i <= 4096; i++)
            mr__map_put(&m, (const void *)(i << shift), cells);
        for (size_t i = 0; i < m.cap; i++) {
            run = m.slot[i].key != NULL ? run + 1 : 0;
            longest = run > longest ? run : longest;
        }
        assert_in_range(longest, 1, 64);
        mr__map_free(&m);
    }
}

static bool
put_many(void *arg)
{
    mr_map m = {0};
    size_t n = 0;
    bool ok = true;

    (void)arg;
    while (n < 1000 && (ok = mr__map_put(&m, &cells[n], &cells[n])))
        n++;
    for (size_t i = 0; i < n; i++)
        assert_ptr_equal(mr__map_get(&m, &cells[i]), &cells[i]);
    mr__map_free(&m);
    return ok;
}

static void
map__failed_put_loses_nothing(void **state)
{
    (void)state;
    /* 16, 32, ... 2048 slots */
    assert_int_equal(mrt_each_failure(put_many, NULL), 8);
}

/* The published sequence of SplitMix64 seeded with 0. */
static void
hash_u64__is_splitmix64(void **state)
{
    (void)state;
    assert_true(mr__hash_u64(0) == UINT64_C(0xE220A8397B1DCDAF));
    assert_true(mr__hash_u64(UINT64_C(0x9E3779B97F4A7C15)) ==
                UINT64_C(0x6E789E6AA1B965F4));
}

static void
hash_bytes__depends_on_every_byte_length_and_seed(void **state)
{
    (void)state;
    unsigned char b[64];

    for (size_t i = 0; i < sizeof b; i++)
        b[i] = (unsigned char)(i * 7);
    for (size_t n = 0; n < sizeof b; n++) {
        uint64_t h = mr__hash_bytes(1, b, n);

        assert_true(h == mr__hash_bytes(1, b, n));
        assert_true(h != mr__hash_bytes(2, b, n));
        assert_true(h != mr__hash_bytes(1, b, n + 1));
        for (size_t i = 0; i < n; i++) {
            b[i] ^= 0x10;
            assert_true(h != mr__hash_bytes(1, b, n));
            b[i] ^= 0x10;
        }
    }
    memset(b, 0, sizeof b);
    for (size_t n = 0; n < 63; n++)
        assert_true(mr__hash_bytes(1, b, n) != mr__hash_bytes(1, b, n + 1));
}

/* A changed bit changes about half of the result's bits. */
static void
hash_bytes__mixes_well(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 40; n++) {
        unsigned char b[40] = {0};
        long flips = 0;
        uint64_t h = mr__hash_bytes(3, b, n);

        for (size_t bit = 0; bit < n * 8; bit++) {
            b[bit / 8] ^= (unsigned char)(1 << bit % 8);
            flips += __builtin_popcountll(h ^ mr__hash_bytes(3, b, n));
            b[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        assert_in_range(flips / (long)(n * 8), 28, 36);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map__finds_what_was_put),
        cmocka_unit_test(map_at__makes_once_and_can_be_written),
        cmocka_unit_test(map__spreads_strided_addresses),
        cmocka_unit_test(map__failed_put_loses_nothing),
        cmocka_unit_test(hash_u64__is_splitmix64),
        cmocka_unit_test(hash_bytes__depends_on_every_byte_length_and_seed),
        cmocka_unit_test(hash_bytes__mixes_well),
    };

    return cmocka_run_group_tests_name("base/map", tests, NULL, NULL);
}
