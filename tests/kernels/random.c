/* SPDX-License-Identifier: Apache-2.0
 *
 * random.c -- the words of the generator: known answers, and any part of a
 * stream made alone.
 */
#include "kernels/random.h"
#include "kernels/program_of.h"

static void
words__known_answers(void **state)
{
    /* split(key(0)), split(key(0), 3), split(key(2^40 + 5)) */
    static const uint32_t two[] = {4146024105U, 967050713U, 2718843009U,
                                   1272950319U};
    static const uint32_t three[] = {2467461003U, 428148500U,  3186719485U,
                                     3840466878U, 2562233961U, 1946702221U};
    static const uint32_t large[] = {2588430962U, 1672726310U, 3246284531U,
                                     1850734787U};
    uint32_t w[8];

    (void)state;
    mr__random_bits(0, 0, 4, 0, 4, w);
    assert_memory_equal(w, two, sizeof two);
    mr__random_bits(0, 0, 6, 0, 6, w);
    assert_memory_equal(w, three, sizeof three);
    mr__random_bits(256, 5, 4, 0, 4, w);
    assert_memory_equal(w, large, sizeof large);
    mr__random_bits(0, 0, 2, 0, 2, w); /* the block of counter (0, 1) */
    assert_int_equal((int64_t)((double)w[0] / 4294967296.0 * 1e6), 216295);
    assert_int_equal((int64_t)((double)w[1] / 4294967296.0 * 1e6), 804124);
}

/* An odd stream's middle word is the first output of the block (h, 0). */
static void
words__odd_streams(void **state)
{
    static const double seven[] = {0.5322265028953552,  0.349656879901886,
                                   0.35358649492263794, 0.7213709950447083,
                                   0.10100969672203064, 0.9829632043838501,
                                   0.19538767635822296};
    uint32_t w[8];

    (void)state;
    mr__random_bits(0, 0, 7, 0, 7, w);
    for (int i = 0; i < 7; i++)
        assert_true((double)((float)w[i] / 4294967296.0F) == seven[i]);
    mr__random_bits(0, 0, 1, 0, 1, w);
    assert_int_equal(w[0], 0x6B200159);
}

static void
parts_in_tier(const mr_tier *t)
{
    static uint32_t all[1003], part[1003];
    uint64_t seed = 1;

    for (uint64_t n = 1; n < 1003; n = n * 2 + n % 3) {
        t->random->bits(7, 9, n, 0, n, all);
        for (int i = 0; i < 40; i++) {
            uint64_t first = prog_random(&seed) % n;
            uint64_t count = prog_random(&seed) % (n - first) + 1;

            part[count] = 0x55555555;
            t->random->bits(7, 9, n, first, count, part);
            assert_memory_equal(part, all + first, count * 4);
            assert_int_equal(part[count], 0x55555555);
        }
    }
}

static void
words__any_part_can_be_made_alone(void **state)
{
    (void)state;
    each_tier(parts_in_tier);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words__known_answers),
        cmocka_unit_test(words__odd_streams),
        cmocka_unit_test(words__any_part_can_be_made_alone),
    };

    return cmocka_run_group_tests_name("kernels/random", tests, NULL, NULL);
}
