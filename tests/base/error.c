/* SPDX-License-Identifier: Apache-2.0
 *
 * error.c -- tests of the thread's error record.
 */
#include "base/error.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "marram/error.h"
#include "support/base.h"

static int
reset(void **state)
{
    (void)state;
    mr_error_take();
    mr__error_door(NULL, NULL);
    return 0;
}

static void
error__none_reads_as_ok_and_empty(void **state)
{
    (void)state;
    mr_error e = mr_error_last();

    assert_int_equal(e.code, MR_OK);
    assert_string_equal(e.message, "");
    assert_string_equal(e.op, "");
    assert_string_equal(e.site, "");
    assert_string_equal(e.notes, "");
    assert_false(mr__error_pending());
}

static void
error__door_names_operator_and_site(void **state)
{
    (void)state;
    struct mr__door old = mr__error_door("add", "main.c:12");
    struct mr__door outer = mr__error_door("exp", "main.c:13");

    assert_string_equal(outer.op, "add");
    mr__error_door_restore(outer);
    assert_int_equal(mr__fail(MR_E_SHAPE, "shapes (%d) and (%d)", 2, 3),
                     MR_E_SHAPE);
    mr__error_door_restore(old);

    mr_error e = mr_error_last();

    assert_int_equal(e.code, MR_E_SHAPE);
    assert_string_equal(e.message, "add: shapes (2) and (3)");
    assert_string_equal(e.op, "add");
    assert_string_equal(e.site, "main.c:12");
    assert_string_equal(e.notes, "");
}

static void
error__new_failure_overwrites_everything(void **state)
{
    (void)state;
    mr__error_door("add", "main.c:12");
    mr__fail(MR_E_SHAPE, "one");
    mr__error_annotate(NULL, NULL, "a note");
    mr__error_door(NULL, NULL);
    assert_null(mr__fail_null(MR_E_VALUE, "two"));

    mr_error e = mr_error_last();

    assert_int_equal(e.code, MR_E_VALUE);
    assert_string_equal(e.message, "two");
    assert_string_equal(e.op, "");
    assert_string_equal(e.site, "");
    assert_string_equal(e.notes, "");
}

static void
error__take_clears_but_strings_live_on(void **state)
{
    (void)state;
    mr__fail(MR_E_IO, "no file");

    mr_error e = mr_error_take();

    assert_int_equal(e.code, MR_E_IO);
    assert_string_equal(e.message, "no file");
    assert_int_equal(mr_error_last().code, MR_OK);
    assert_int_equal(mr__error_code(), MR_OK);
    assert_string_equal(e.message, "no file");
}

static void
error__long_message_is_cut_at_a_character(void **state)
{
    (void)state;
    char text[3000];
    const char *got;

    /* One byte, then characters of three bytes: the cut falls inside one. */
    text[0] = 'x';
    for (size_t i = 1; i + 3 < sizeof text; i += 3)
        memcpy(text + i, "\xE2\x82\xAC", 4);
    mr__fail(MR_E_VALUE, "%s", text);
    got = mr_error_last().message;
    assert_in_range(strlen(got), 1018, 1023);
    assert_string_equal(got + strlen(got) - 3, "...");
    assert_int_equal((strlen(got) - 3 - 1) % 3, 0);
    mr_error_set(MR_E_USER, text);
    got = mr_error_last().message;
    assert_in_range(strlen(got), 1018, 1023);
    assert_int_equal((strlen(got) - 3 - 1) % 3, 0);
}

static void
error__long_site_keeps_its_end(void **state)
{
    (void)state;
    char site[600];
    const char *got;

    memset(site, 'd', sizeof site);
    memcpy(site + sizeof site - 9, "main.c:7", 9);
    mr__error_door("add", site);
    mr__fail(MR_E_VALUE, "x");
    got = mr_error_last().site;
    assert_int_equal(strlen(got), 255);
    assert_string_equal(got + 247, "main.c:7");
}

static void
error__arguments_may_be_its_own_strings(void **state)
{
    (void)state;
    mr__fail(MR_E_VALUE, "inner");
    mr__fail(MR_E_STATE, "outer (%s)", mr_error_last().message);
    assert_string_equal(mr_error_last().message, "outer (inner)");
    mr_error_set(MR_E_USER, mr_error_last().message + 6);
    assert_string_equal(mr_error_last().message, "(inner)");
}

static void
error__set_keeps_the_message_as_given(void **state)
{
    (void)state;
    mr__error_door("grad", "main.c:1");
    assert_int_equal(mr_error_set(MR_E_USER, "KeyError: 'a %s'"), MR_E_USER);
    assert_string_equal(mr_error_last().message, "KeyError: 'a %s'");
    assert_string_equal(mr_error_last().op, "grad");
    assert_int_equal(mr_error_set(MR_E_USER, NULL), MR_E_USER);
    assert_string_equal(mr_error_last().message, "");
    assert_int_equal(mr_error_set((mr_code)7, "odd"), MR_E_USER);
    assert_int_equal(mr_error_set((mr_code)-99, "odd"), MR_E_USER);
    assert_int_equal(mr_error_set(MR_OK, NULL), MR_OK);
    assert_false(mr__error_pending());
}

static void
annotate__adds_only_what_is_absent(void **state)
{
    (void)state;
    mr__error_annotate("add", "a.c:1", "ignored without an error");
    assert_int_equal(mr_error_last().code, MR_OK);

    mr__fail(MR_E_DEVICE, "kernel failed");
    mr__error_annotate("matmul", "a.c:1", "shapes %s", "(2, 3) (3, 4)");
    mr__error_annotate("add", "b.c:2", "second");
    mr__error_annotate("add", "b.c:2", NULL);

    mr_error e = mr_error_last();

    assert_string_equal(e.message, "matmul: kernel failed");
    assert_string_equal(e.op, "matmul");
    assert_string_equal(e.site, "a.c:1");
    assert_string_equal(e.notes, "shapes (2, 3) (3, 4)\nsecond");
}

static void
annotate__notes_are_bounded(void **state)
{
    (void)state;
    mr__fail(MR_E_DEVICE, "x");
    for (int i = 0; i < 200; i++)
        mr__error_annotate(NULL, NULL, "note number %d", i);
    assert_in_range(strlen(mr_error_last().notes), 1000, 1023);
    assert_memory_equal(mr_error_last().notes, "note number 0\nnote ", 19);
}

static void
record__carries_all_to_another_thread_and_is_counted(void **state)
{
    (void)state;
    int64_t live = mr__alloc_live();
    mr_error_record *r;

    mr__error_door("log", "m.c:3");
    mr__fail(MR_E_INDEX, "index %d", 9);
    mr__error_annotate(NULL, NULL, "n");
    r = mr__error_capture();
    assert_int_equal(mr_error_last().code, MR_OK);
    assert_int_equal(mr__error_record_code(r), MR_E_INDEX);
    assert_ptr_equal(mr__error_retain(r), r);
    mr__error_release(r);
    mr__error_door("other", "o.c:1");
    mr__error_raise(r);
    mr__error_release(r);
    mr__error_release(NULL);

    mr_error e = mr_error_last();

    assert_int_equal(e.code, MR_E_INDEX);
    assert_string_equal(e.message, "log: index 9");
    assert_string_equal(e.op, "log");
    assert_string_equal(e.site, "m.c:3");
    assert_string_equal(e.notes, "n");
    assert_int_equal(mr__alloc_live(), live);
}

static void
record__without_memory_is_a_constant(void **state)
{
    (void)state;
    mr_error_record *r;

    mr__fail(MR_E_INDEX, "index");
    mr__alloc_fail_after(0);
    r = mr__error_capture();
    assert_int_equal(mr__error_record_code(r), MR_E_MEMORY);
    assert_false(mr__error_pending());
    mr__error_release(mr__error_retain(r));
    mr__error_release(r);
    mr__error_raise(r);
    assert_int_equal(mr_error_take().code, MR_E_MEMORY);
}

static void
record__of_no_error_is_an_internal_one(void **state)
{
    (void)state;
    mr_error_record *r = mr__error_capture();

    assert_int_equal(mr__error_record_code(r), MR_E_INTERNAL);
    mr__error_release(r);
}

static void
stash__brings_back_code_and_borrowed_strings(void **state)
{
    (void)state;
    struct mr__error_stash s;
    mr_error e;

    mr__fail(MR_E_SHAPE, "first");
    e = mr_error_last();
    s = mr__error_stash();
    assert_false(mr__error_pending());
    mr__fail(MR_E_VALUE, "second");
    mr__error_unstash(s);
    assert_int_equal(mr_error_last().code, MR_E_SHAPE);
    assert_string_equal(e.message, "first");

    mr_error_take();
    s = mr__error_stash();
    mr__fail(MR_E_VALUE, "third");
    mr__error_unstash(s);
    assert_false(mr__error_pending());
}

static void
thread_fails(void *arg, int i)
{
    int *bad = arg;

    for (int k = 0; k < 200; k++) {
        char want[32];

        mr__fail(MR_E_VALUE, "thread %d", i);
        snprintf(want, sizeof want, "thread %d", i);
        if (strcmp(mr_error_last().message, want) != 0)
            bad[i] = 1;
    }
}

static void
error__each_thread_has_its_own(void **state)
{
    (void)state;
    int bad[8] = {0};

    mr__fail(MR_E_IO, "mine");
    mrt_threads(8, thread_fails, bad);
    for (int i = 0; i < 8; i++)
        assert_int_equal(bad[i], 0);
    assert_string_equal(mr_error_last().message, "mine");
}

static pthread_key_t late_key;

static void
late_failure(void *arg)
{
    (void)arg;
    mr__fail(MR_E_STATE, "at the thread's end");
}

static void
thread_fails_late(void *arg, int i)
{
    (void)arg;
    (void)i;
    mr__fail(MR_E_STATE, "early");
    pthread_setspecific(late_key, &late_key);
}

/* The address sanitizer sees it if the buffers leak. */
static void
error__may_be_set_in_a_destructor_at_thread_exit(void **state)
{
    (void)state;
    assert_int_equal(pthread_key_create(&late_key, late_failure), 0);
    mrt_threads(4, thread_fails_late, NULL);
    pthread_key_delete(late_key);
}

static void
code_name__covers_every_code(void **state)
{
    (void)state;
    assert_string_equal(mr_code_name(MR_OK), "MR_OK");
    assert_string_equal(mr_code_name(MR_E_NULL), "MR_E_NULL");
    assert_string_equal(mr_code_name(MR_E_SHAPE), "MR_E_SHAPE");
    assert_string_equal(mr_code_name(MR_E_MEMORY), "MR_E_MEMORY");
    assert_string_equal(mr_code_name(MR_E_USER), "MR_E_USER");
    assert_string_equal(mr_code_name(MR_E_UNSUPPORTED), "MR_E_UNSUPPORTED");
    assert_string_equal(mr_code_name(MR_E_INTERNAL), "MR_E_INTERNAL");
    assert_string_equal(mr_code_name((mr_code)3), "an unknown code");
    assert_string_equal(mr_code_name((mr_code)-16), "an unknown code");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(error__none_reads_as_ok_and_empty, reset),
        cmocka_unit_test_setup(error__door_names_operator_and_site, reset),
        cmocka_unit_test_setup(error__new_failure_overwrites_everything, reset),
        cmocka_unit_test_setup(error__take_clears_but_strings_live_on, reset),
        cmocka_unit_test_setup(error__long_message_is_cut_at_a_character,
                               reset),
        cmocka_unit_test_setup(error__long_site_keeps_its_end, reset),
        cmocka_unit_test_setup(error__arguments_may_be_its_own_strings, reset),
        cmocka_unit_test_setup(error__set_keeps_the_message_as_given, reset),
        cmocka_unit_test_setup(annotate__adds_only_what_is_absent, reset),
        cmocka_unit_test_setup(annotate__notes_are_bounded, reset),
        cmocka_unit_test_setup(
            record__carries_all_to_another_thread_and_is_counted, reset),
        cmocka_unit_test_setup(record__without_memory_is_a_constant, reset),
        cmocka_unit_test_setup(record__of_no_error_is_an_internal_one, reset),
        cmocka_unit_test_setup(stash__brings_back_code_and_borrowed_strings,
                               reset),
        cmocka_unit_test_setup(error__each_thread_has_its_own, reset),
        cmocka_unit_test_setup(error__may_be_set_in_a_destructor_at_thread_exit,
                               reset),
        cmocka_unit_test_setup(code_name__covers_every_code, reset),
    };

    return cmocka_run_group_tests_name("base/error", tests, NULL, NULL);
}
