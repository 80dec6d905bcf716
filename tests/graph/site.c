/* SPDX-License-Identifier: Apache-2.0
 *
 * site.c -- tests of interned creation sites.
 */
#include <stdio.h>
#include <string.h>

#include "base.h"
#include "base/alloc.h"
#include "marram/error.h"
#include "marram/scope.h"

enum { N_FILES = 20, N_LINES = 500, N_THREADS = 8 };

static const char *sites[N_THREADS][N_FILES][N_LINES];

static void
site__is_one_for_each_text(void **state)
{
    char file[] = "dir/user.py";
    const char *a = mr_site_intern(file, 12), *b;

    (void)state;
    assert_string_equal(a, "dir/user.py:12");
    file[0] = 'D';
    b = mr_site_intern(file, 12);
    assert_string_equal(b, "Dir/user.py:12");
    assert_string_equal(a, "dir/user.py:12");
    assert_ptr_equal(mr_site_intern("dir/user.py", 12), a);
    assert_ptr_not_equal(mr_site_intern("dir/user.py", 1), a);
    assert_string_equal(mr_site_intern(NULL, -3), "?:-3");
    /* one text, told apart by nothing: the same site */
    assert_ptr_equal(mr_site_intern("x:1", 2), mr_site_intern("x:1", 2));
}

static void
intern_all(void *arg, int id)
{
    (void)arg;
    for (int f = 0; f < N_FILES; f++)
        for (int l = 0; l < N_LINES; l++) {
            char name[32];

            snprintf(name, sizeof name, "file_%d.c", f);
            sites[id][f][l] = mr_site_intern(name, l);
        }
}

static void
sites__are_the_same_on_all_threads(void **state)
{
    (void)state;
    mrt_threads(N_THREADS, intern_all, NULL);
    for (int f = 0; f < N_FILES; f++)
        for (int l = 0; l < N_LINES; l++) {
            char text[48];

            snprintf(text, sizeof text, "file_%d.c:%d", f, l);
            assert_string_equal(sites[0][f][l], text);
            for (int t = 1; t < N_THREADS; t++)
                assert_ptr_equal(sites[t][f][l], sites[0][f][l]);
        }
}

static bool
intern_one(void *arg)
{
    return mr_site_intern(arg, 1) != NULL;
}

static void
failure__is_reported(void **state)
{
    char name[] = "never before";

    (void)state;
    assert_int_equal(mrt_each_failure(intern_one, name), 1);
    assert_int_equal(mr_error_last().code, MR_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(site__is_one_for_each_text),
        cmocka_unit_test(sites__are_the_same_on_all_threads),
        cmocka_unit_test(failure__is_reported),
    };

    return cmocka_run_group_tests_name("graph/site", tests, NULL, NULL);
}
