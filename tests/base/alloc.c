/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc.c -- tests of the allocation functions and of failure injection.
 */
#include "base/alloc.h"

#include <string.h>

#include "base/error.h"
#include "marram/error.h"
#include "marram/sys/testing.h"
#include "support/base.h"

static void
alloc__blocks_are_counted(void **state)
{
    (void)state;
    int64_t live = mr__alloc_live(), tried = mr__alloc_count();
    void *a = mr__alloc(10), *b = mr__alloc_zero(0), *c = mr__alloc(0);
    void *d = mr__alloc_again(NULL, 5), *e = mr__alloc_array(3, 7);
    char *s = mr__strdup("grass");

    assert_true(a && b && c && d && e && s);
    assert_string_equal(s, "grass");
    assert_int_equal(mr__alloc_live(), live + 6);
    assert_int_equal(mr_test_alloc_live(), live + 6);
    assert_int_equal(mr__alloc_count(), tried + 6);
    assert_int_equal(mr_test_alloc_count(), tried + 6);
    d = mr__alloc_again(d, 500);
    assert_int_equal(mr__alloc_live(), live + 6);
    mr__dealloc(a);
    mr__dealloc(b);
    mr__dealloc(c);
    mr__dealloc(d);
    mr__dealloc(e);
    mr__dealloc(s);
    mr__dealloc(NULL);
    assert_int_equal(mr__alloc_live(), live);
}

static void
alloc_zero__is_zero(void **state)
{
    (void)state;
    const unsigned char *p = mr__alloc_zero(1000);
    unsigned sum = 0;

    for (int i = 0; i < 1000; i++)
        sum += p[i];
    assert_int_equal(sum, 0);
    mr__dealloc((void *)(uintptr_t)p);
}

static void
alloc_again__keeps_contents_and_survives_failure(void **state)
{
    (void)state;
    char *p = mr__alloc(4);

    memcpy(p, "abc", 4);
    mr__alloc_fail_after(0);
    assert_null(mr__alloc_again(p, 1 << 20));
    assert_int_equal(mr_error_take().code, MR_E_MEMORY);
    assert_string_equal(p, "abc");
    p = mr__alloc_again(p, 1 << 20);
    assert_string_equal(p, "abc");
    mr__dealloc(p);
}

static void
alloc__failure_says_how_many_bytes(void **state)
{
    (void)state;
    mr__alloc_fail_after(0);
    assert_null(mr__alloc(12345));
    assert_int_equal(mr_error_last().code, MR_E_MEMORY);
    assert_string_equal(mr_error_take().message,
                        "could not allocate 12345 bytes");
    assert_null(mr__alloc_array(SIZE_MAX / 2, 3));
    assert_int_equal(mr_error_take().code, MR_E_MEMORY);
}

static void
fail_after__fails_one_and_passes_again(void **state)
{
    (void)state;
    void *p[4];

    mr_test_alloc_fail_after(2);
    for (int i = 0; i < 4; i++)
        p[i] = mr__alloc(1);
    assert_non_null(p[0]);
    assert_non_null(p[1]);
    assert_null(p[2]);
    assert_non_null(p[3]);
    for (int i = 0; i < 4; i++)
        mr__dealloc(p[i]);
    mr_error_take();
}

static bool
one_of_each(void *arg)
{
    void *p[5] = {mr__alloc(8), mr__alloc_zero(8), mr__strdup("s"),
                  mr__alloc_pages(100), mr__alloc_pages(3 << 20)};
    bool ok = true;

    (void)arg;
    for (int i = 0; i < 5; i++)
        ok = ok && p[i] != NULL;
    for (int i = 0; i < 3; i++)
        mr__dealloc(p[i]);
    mr__dealloc_pages(p[3], 100);
    mr__dealloc_pages(p[4], 3 << 20);
    return ok;
}

static void
fail_after__reaches_every_kind(void **state)
{
    (void)state;
    assert_int_equal(mrt_each_failure(one_of_each, NULL), 5);
}

static void
pages__are_aligned_and_usable(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,
                                   1,
                                   63,
                                   64,
                                   4097,
                                   (2 << 20) - 1,
                                   2 << 20,
                                   (2 << 20) + 1,
                                   (7 << 20) + 12345};
    int64_t live = mr__alloc_live();

    for (size_t i = 0; i < MRT_COUNT(sizes); i++) {
        size_t n = sizes[i];
        unsigned char *p = mr__alloc_pages(n);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        if (n >= 2 << 20)
            assert_true((uintptr_t)p % (2 << 20) <= n / 16);
        memset(p, 0xA5, n);
        assert_int_equal(mr__alloc_live(), live + 1);
        mr__dealloc_pages(p, n);
    }
    mr__dealloc_pages(NULL, 5);
    assert_int_equal(mr__alloc_live(), live);
}

/* Lines of two blocks a multiple of 64 MiB apart drive each other out of some
 * first-level caches. */
static void
pages__of_32_mib_apart_begin_at_different_places(void **state)
{
    (void)state;
    enum { N = 64, BYTES = 16 << 20, APART = 32 << 20 };
    char *p[N];
    int met = 0;

    for (int i = 0; i < N; i++) {
        p[i] = mr__alloc_pages(BYTES);
        assert_non_null(p[i]);
    }
    for (int i = 0; i < N; i++)
        for (int k = 0; k < i; k++) {
            uintptr_t a = (uintptr_t)p[i], b = (uintptr_t)p[k];
            uintptr_t apart = a > b ? a - b : b - a;

            assert_true(apart >= BYTES);
            if (a / (2 << 20) % 16 != b / (2 << 20) % 16 ||
                apart > 7 * (uintptr_t)APART)
                continue;
            met++;
            assert_true(apart % APART >= 64 << 10 &&
                        apart % APART <= APART - (64 << 10));
        }
    assert_true(met > 0);
    for (int i = 0; i < N; i++)
        mr__dealloc_pages(p[i], BYTES);
}

static void
pages__too_many_fail(void **state)
{
    (void)state;
    assert_null(mr__alloc_pages(SIZE_MAX));
    assert_int_equal(mr_error_take().code, MR_E_MEMORY);
    assert_null(mr__alloc_pages(SIZE_MAX / 2));
    assert_int_equal(mr_error_take().code, MR_E_MEMORY);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc__blocks_are_counted),
        cmocka_unit_test(alloc_zero__is_zero),
        cmocka_unit_test(alloc_again__keeps_contents_and_survives_failure),
        cmocka_unit_test(alloc__failure_says_how_many_bytes),
        cmocka_unit_test(fail_after__fails_one_and_passes_again),
        cmocka_unit_test(fail_after__reaches_every_kind),
        cmocka_unit_test(pages__are_aligned_and_usable),
        cmocka_unit_test(pages__of_32_mib_apart_begin_at_different_places),
        cmocka_unit_test(pages__too_many_fail),
    };

    return cmocka_run_group_tests_name("base/alloc", tests, NULL, NULL);
}
