/* SPDX-License-Identifier: Apache-2.0
 *
 * sort.c -- sorting, parting, selecting and dealing of words, in each tier,
 * against the C library's qsort, within the memory that they were given.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kernels/sort.h"
#include "kernels/tier/tier.h"

enum { GUARD = 8, N_PATTERNS = 9 };

static uint64_t state = 1;

static uint64_t
random_word(void)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return state ^ state >> 29;
}

/* Where the samples of pivots of n words are taken are only least words. */
static bool
is_sampled(int64_t i, int64_t n, int64_t count)
{
    int64_t step = n / count;
    uint32_t seed = (uint32_t)n;

    for (int64_t k = 0; k < count; k++) {
        seed = seed * 1664525U + 1013904223U;
        if (i == k * step + (int64_t)((uint64_t)seed * (uint64_t)step >> 32))
            return true;
    }
    return false;
}

static int64_t
pattern_word(int pattern, int64_t i, int64_t n)
{
    switch (pattern) {
    case 0:
        return (int64_t)random_word();
    case 1:
        return i;
    case 2:
        return -i;
    case 3:
        return 7;
    case 4:
        return (int64_t)(random_word() % 3);
    case 5: /* the killer of the median of three */
        return i % 2 ? i : n / 2 + i / 2;
    case 6: /* up, then down */
        return i < n / 2 ? i : n - i;
    case 7:
        return random_word() % 4 ? INT64_MAX : INT64_MIN;
    default:
        return i % 256;
    }
}

static void
put(void *words, int bytes, int64_t i, int64_t x)
{
    int32_t narrow = (int32_t)(x > INT32_MAX   ? INT32_MAX
                               : x < INT32_MIN ? INT32_MIN
                                               : x);

    if (bytes == 8)
        ((int64_t *)words)[i] = x;
    else
        ((int32_t *)words)[i] = narrow;
}

static int64_t
word(const void *words, int bytes, int64_t i)
{
    return bytes == 8 ? ((const int64_t *)words)[i]
                      : ((const int32_t *)words)[i];
}

static int
compare_32(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

static int
compare_64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

typedef struct fixture {
    int64_t n;
    size_t bytes; /* of n words and a guard */
    char *from, *right, *words, *spare;
} fixture;

static fixture
fixture_new(int bytes, int64_t n)
{
    fixture f = {.n = n, .bytes = (size_t)((n + GUARD) * bytes)};

    f.from = malloc(f.bytes);
    f.right = malloc(f.bytes);
    f.words = malloc(f.bytes);
    f.spare = malloc(f.bytes);
    assert_true(f.from && f.right && f.words && f.spare);
    memset(f.from, 0x5A, f.bytes);
    memset(f.spare, 0x5A, f.bytes);
    return f;
}

static void
fixture_free(fixture *f)
{
    free(f->from);
    free(f->right);
    free(f->words);
    free(f->spare);
}

static void
fixture_sort(fixture *f, int bytes)
{
    memcpy(f->right, f->from, f->bytes);
    qsort(f->right, (size_t)f->n, (size_t)bytes,
          bytes == 8 ? compare_64 : compare_32);
    memcpy(f->words, f->from, f->bytes);
}

static void
guard_check(const fixture *f, int bytes)
{
    for (size_t i = (size_t)(f->n * bytes); i < f->bytes; i++) {
        assert_int_equal(f->words[i], 0x5A);
        assert_int_equal(f->spare[i], 0x5A);
    }
}

static void
run_case(const mr_sort_tier *t, fixture *f, int bytes)
{
    fixture_sort(f, bytes);
    t->run(f->words, f->spare, f->n);
    assert_memory_equal(f->words, f->right, f->bytes);
    guard_check(f, bytes);
    assert_true(t->sorted(f->words, f->n));
    for (int64_t i = 1; i < f->n; i++)
        if (word(f->from, bytes, i) < word(f->from, bytes, i - 1)) {
            assert_false(t->sorted(f->from, f->n));
            break;
        }
}

static void
select_case(const mr_sort_tier *t, fixture *f, int bytes, int64_t rank)
{
    fixture_sort(f, bytes);
    assert_true(t->select(f->words, f->spare, f->n, rank) ==
                word(f->right, bytes, rank));
    guard_check(f, bytes);
    t->run(f->words, f->spare, f->n); /* nothing was lost */
    assert_memory_equal(f->words, f->right, f->bytes);
}

static void
part_case(const mr_sort_tier *t, fixture *f, int bytes)
{
    int64_t pivot = word(f->from, bytes, f->n / 2), below;

    fixture_sort(f, bytes);
    below = t->part(f->words, f->spare, f->n, pivot);
    guard_check(f, bytes);
    for (int64_t i = 0; i < f->n; i++)
        assert_true((word(f->words, bytes, i) < pivot) == (i < below));
    t->run(f->words, f->spare, f->n);
    assert_memory_equal(f->words, f->right, f->bytes);
}

/* In order, and no byte beyond n words is written to. */
static void
between_case(const mr_sort_tier *t, fixture *f, int bytes, int64_t a, int64_t b)
{
    int64_t low = word(f->from, bytes, a < b ? a : b);
    int64_t high = word(f->from, bytes, a < b ? b : a), below = -1, n = 0;
    int64_t under = 0, found;

    if (low > high) {
        int64_t other = low;

        low = high;
        high = other;
    }
    memset(f->words, 0x5A, f->bytes);
    found = t->between(f->words, f->from, f->n, low, high, &below);
    guard_check(f, bytes);
    for (int64_t i = 0; i < f->n; i++) {
        int64_t x = word(f->from, bytes, i);

        under += x < low;
        if (x >= low && x <= high)
            assert_true(n < found && word(f->words, bytes, n++) == x);
    }
    assert_int_equal(found, n);
    assert_int_equal(below, under);
}

static void
deal_case(const mr_sort_tier *t, fixture *f, int bytes)
{
    int64_t key = word(f->from, bytes, f->n / 2), count[2], at[3] = {0};
    uint32_t *to = malloc((size_t)(f->n + GUARD) * sizeof *to);
    mr_sort_deal d = {.low = to};

    assert_non_null(to);
    t->rank(f->from, f->n, key, count);
    d.equal = to + count[0];
    d.high = d.equal + count[1];
    for (int64_t i = 0; i < f->n + GUARD; i++)
        to[i] = 77;
    t->deal(&d, f->from, f->n, key, 5);
    at[1] = count[0];
    at[2] = count[0] + count[1];
    for (int64_t i = 0; i < f->n; i++) {
        int64_t x = word(f->from, bytes, i);

        assert_int_equal(to[at[(x >= key) + (x > key)]++], 5 + i);
    }
    assert_int_equal(at[0], count[0]);
    assert_int_equal(at[1], count[0] + count[1]);
    for (int64_t i = f->n; i < f->n + GUARD; i++)
        assert_int_equal(to[i], 77);
    free(to);
}

/* Of equal and larger ones alone, but the first equal one. */
static void
tail_case(const mr_sort_tier *t, fixture *f, int bytes, int64_t rank)
{
    int64_t key, count[2], n, at[2] = {0};
    uint32_t *to = malloc((size_t)(f->n + GUARD) * sizeof *to);
    mr_sort_deal d = {.equal = to, .skip = 1};

    assert_non_null(to);
    fixture_sort(f, bytes);
    key = word(f->right, bytes, rank);
    t->rank(f->from, f->n, key, count);
    n = f->n - count[0] - 1;
    d.high = to + count[1] - 1;
    for (int64_t i = 0; i < f->n + GUARD; i++)
        to[i] = 77;
    t->deal(&d, f->from, f->n, key, 0);
    at[0] = -1;
    at[1] = count[1] - 1;
    for (int64_t i = 0; i < f->n; i++) {
        int64_t x = word(f->from, bytes, i);

        if (x == key && at[0]++ >= 0)
            assert_int_equal(to[at[0] - 1], i);
        if (x > key)
            assert_int_equal(to[at[1]++], i);
    }
    for (int64_t i = n; i < f->n + GUARD; i++)
        assert_int_equal(to[i], 77);
    free(to);
}

static void
all_cases(const mr_sort_tier *t, int bytes, int64_t n, int pattern)
{
    fixture f = fixture_new(bytes, n);

    for (int64_t i = 0; i < n; i++)
        put(f.from, bytes, i, pattern_word(pattern, i, n));
    run_case(t, &f, bytes);
    if (n > 0) {
        select_case(t, &f, bytes, 0);
        select_case(t, &f, bytes, n / 3);
        select_case(t, &f, bytes, n - 1);
        part_case(t, &f, bytes);
        deal_case(t, &f, bytes);
        tail_case(t, &f, bytes, n / 2);
        tail_case(t, &f, bytes, n - 1);
        between_case(t, &f, bytes, n / 2, n / 2);
        between_case(t, &f, bytes, 0, n - 1);
        between_case(t, &f, bytes, n / 3, n / 2);
    }
    fixture_free(&f);
}

static void
words__are_sorted_in_every_tier(void **unused)
{
    (void)unused;
    for (int id = 0; id < MR_N_TIERS; id++)
        for (int wide = 0; wide < 2 && mr__tier_by_id(id); wide++)
            for (int p = 0; p < N_PATTERNS; p++) {
                for (int64_t n = 0; n <= 300; n++)
                    all_cases(mr__sort_of_tier(id, wide ? 8 : 4), wide ? 8 : 4,
                              n, p);
                all_cases(mr__sort_of_tier(id, wide ? 8 : 4), wide ? 8 : 4,
                          5003, p);
                all_cases(mr__sort_of_tier(id, wide ? 8 : 4), wide ? 8 : 4,
                          70001, p);
            }
}

/* Whatever the samples see is the least: pivots part off next to nothing. */
static void
words__are_sorted_behind_bad_pivots(void **unused)
{
    static const int64_t counts[] = {16, 32, 64, 128};

    (void)unused;
    for (int id = 0; id < MR_N_TIERS; id++)
        for (int c = 0; c < 4 && mr__tier_by_id(id); c++)
            for (int wide = 0; wide < 2; wide++) {
                int64_t n = 20011;
                fixture f = fixture_new(wide ? 8 : 4, n);

                for (int64_t i = 0; i < n; i++)
                    put(f.from, wide ? 8 : 4, i,
                        is_sampled(i, n, counts[c]) ? -i : n - i);
                run_case(mr__sort_of_tier(id, wide ? 8 : 4), &f, wide ? 8 : 4);
                select_case(mr__sort_of_tier(id, wide ? 8 : 4), &f,
                            wide ? 8 : 4, n / 2);
                fixture_free(&f);
            }
}

/* Columns of zeros and ones: a network that sorts these sorts everything. */
static void
columns__of_zeros_and_ones_are_sorted(void **unused)
{
    enum { WIDTH = 1 << 10 };
    static int32_t words[MR_SORT_ROWS * WIDTH];

    (void)unused;
    for (int id = 0; id < MR_N_TIERS; id++)
        for (int64_t n = 1; n <= MR_SORT_ROWS && mr__tier_by_id(id); n++)
            for (int64_t first = 0; first < 1 << n; first += WIDTH) {
                for (int64_t r = 0; r < n; r++)
                    for (int64_t c = 0; c < WIDTH; c++)
                        words[r * WIDTH + c] = (int32_t)((first + c) >> r & 1);
                mr__sort_of_tier(id, 4)->columns(words, n, WIDTH);
                for (int64_t c = 0; c < WIDTH; c++) {
                    int64_t bits = (first + c) & ((1 << n) - 1);
                    int ones = __builtin_popcountll((uint64_t)bits);

                    for (int64_t r = 0; r < n; r++)
                        if (words[r * WIDTH + c] != (r >= n - ones))
                            fail_msg("row %d of %d", (int)r, (int)n);
                }
            }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words__are_sorted_in_every_tier),
        cmocka_unit_test(words__are_sorted_behind_bad_pivots),
        cmocka_unit_test(columns__of_zeros_and_ones_are_sorted),
    };

    return cmocka_run_group_tests_name("kernels/sort", tests, NULL, NULL);
}
