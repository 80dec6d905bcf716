/* SPDX-License-Identifier: Apache-2.0
 *
 * resolve.c -- indices as places, elements picked by them, in every tier.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/resolve.h"

enum { MOST = 70, SIZE = 1000 };

static void
indices__below_zero_count_from_the_end(void **unused)
{
    int64_t i64[MOST], at[MOST];
    int32_t i32[MOST];
    uint32_t u32[MOST];

    (void)unused;
    for (int id = 0; id < MR_N_TIERS; id++)
        for (int64_t n = 0; n <= MOST && mr__tier_by_id(id); n++) {
            const mr_resolve_tier *t = mr__resolve_of_tier(id);

            for (int64_t i = 0; i < n; i++) {
                i64[i] = i % 3 ? i * 13 : -1 - i;
                i32[i] = (int32_t)i64[i];
                u32[i] = (uint32_t)(i * 14);
            }
            assert_true(t->i64(at, i64, n, SIZE, SIZE - 1) >= 0);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(at[i], i % 3 ? i * 13 : SIZE - 1 - i);
            assert_true(t->i32(at, i32, n, SIZE, SIZE - 1) >= 0);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(at[i], i % 3 ? i * 13 : SIZE - 1 - i);
            assert_true(t->u32(at, u32, n, SIZE, SIZE - 1) >= 0);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(at[i], i * 14);
            if (n == 0)
                continue;
            i64[n / 2] = i32[n / 2] = -SIZE - 1;
            u32[n / 2] = SIZE;
            assert_true(t->i64(at, i64, n, SIZE, SIZE - 1) < 0);
            assert_true(t->i32(at, i32, n, SIZE, SIZE - 1) < 0);
            assert_true(t->u32(at, u32, n, SIZE, SIZE - 1) < 0);
        }
}

static void
elements__are_picked_or_none_is_read(void **unused)
{
    uint64_t from8[SIZE], to8[MOST];
    uint32_t from4[SIZE], to4[MOST], at[MOST];

    (void)unused;
    for (uint32_t i = 0; i < SIZE; i++)
        from8[i] = from4[i] = i ^ 0x5A5A5A5A;
    for (int id = 0; id < MR_N_TIERS; id++)
        for (int64_t n = 1; n <= MOST && mr__tier_by_id(id); n++) {
            const mr_resolve_tier *t = mr__resolve_of_tier(id);
            static const uint32_t bad[] = {SIZE, 0x80000000U, 0xFFFFFFFFU};

            for (int64_t i = 0; i < n; i++)
                at[i] = i == n - 1 ? SIZE - 1 : (uint32_t)(i * 7);
            assert_true(t->pick4(to4, from4, at, n, SIZE - 1));
            assert_true(t->pick8(to8, from8, at, n, SIZE - 1));
            for (int64_t i = 0; i < n; i++) {
                assert_int_equal(to4[i], at[i] ^ 0x5A5A5A5A);
                assert_int_equal(to8[i], at[i] ^ 0x5A5A5A5A);
            }
            for (int b = 0; b < 3; b++) {
                at[n / 2] = bad[b];
                assert_false(t->pick4(to4, from4, at, n, SIZE - 1));
                assert_false(t->pick8(to8, from8, at, n, SIZE - 1));
            }
        }
}

/* Each by one of three owners, within the room for them. */
static void
places__have_one_owner_each(void **unused)
{
    static const mr_owner owners[3] = {
        {0, 99}, {100, 0x7FFFFFFF}, {0x80000064U, 0x7FFFFF9BU}};
    int64_t place[MOST], mine[MOST + 1];

    (void)unused;
    for (int id = 0; id < MR_N_TIERS; id++)
        for (int64_t n = 0; n <= MOST && mr__tier_by_id(id); n++) {
            int64_t all = 0;

            for (int64_t i = 0; i < n; i++)
                place[i] = i * 12345 + (i % 5 ? 0 : INT64_C(1) << 45);
            for (int o = 0; o < 3; o++) {
                int64_t k = 0, found;

                mine[n] = -7;
                found = mr__resolve_of_tier(id)->owned(mine, place, n, 1000,
                                                       owners[o]);
                assert_int_equal(mine[n], -7);
                for (int64_t i = 0; i < n; i++)
                    if (mr__is_owned(owners[o], place[i]))
                        assert_true(k < found && mine[k++] == 1000 + i);
                assert_int_equal(found, k);
                all += found;
            }
            assert_int_equal(all, n);
        }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices__below_zero_count_from_the_end),
        cmocka_unit_test(elements__are_picked_or_none_is_read),
        cmocka_unit_test(places__have_one_owner_each),
    };

    return cmocka_run_group_tests_name("kernels/resolve", tests, NULL, NULL);
}
