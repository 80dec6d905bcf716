/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c -- what is said of compiled programs: the graph for Graphviz, and
 * the files that MARRAM_GRAPH asks for, in processes that end in any way.
 */
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "support/mrt.h"

/* (x, w): a product behind which a reduction cannot follow, and a value that
 * two kernels read. */
static mr_tree *
body(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0), *w = mr_tree_array_at(in, 1);
    mr_array *y = mr_matmul(mr_exp(x), w);

    (void)ctx;
    return mr_tree_leaf(mr_sum(mr_tanh(y), MR_AXES(1), false));
}

static mr_tree *
same(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_leaf(mr_tree_array_at(in, 0));
}

static mr_tree *
arguments(int n)
{
    return MR_ARRAYS(mr_ones(MR_SHAPE(n, 4), MR_FLOAT32),
                     mr_ones(MR_SHAPE(4, 6), MR_FLOAT32));
}

static mr_function *
compiled(mr_fn fn, const char *name, int n)
{
    mr_compile_options options = {.size = sizeof options, .name = name};
    mr_function *f = mr_compile(fn, NULL, &options);

    assert_non_null(f);
    assert_int_equal(mr_eval_tree(mr_call(f, arguments(n))), MR_OK);
    return f;
}

static int
count(const char *text, const char *what)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

/* ---- forms -----------------------------------------------------------------
 */

static void
text__says_bytes_memory_and_why_two_were_not_joined(void **state)
{
    mr_function *f = compiled(body, "rows", 8);
    char *text = mr_function_explain(f);

    (void)state;
    assert_non_null(text);
    assert_int_equal(strncmp(text, "rows: 1 program\n", 16), 0);
    assert_non_null(strstr(text, "called with array 0: float32 (8, 4)\n"));
    assert_non_null(strstr(text, "fused exp  ["));
    assert_non_null(strstr(text, "128 bytes in, 128 bytes out"));
    assert_non_null(strstr(text, "not joined with step 0: it has a kernel"));
    mr_text_free(text);
    mr_function_release(f);
}

static void
dot__has_a_box_for_each_step_and_a_dashed_arrow_with_the_reason(void **state)
{
    mr_function *f = compiled(body, "rows", 8);
    char *text = mr_function_explain_as(f, MR_EXPLAIN_DOT);

    (void)state;
    assert_non_null(text);
    assert_int_equal(strncmp(text, "digraph marram {\n", 17), 0);
    assert_string_equal(text + strlen(text) - 2, "}\n");
    assert_int_equal(count(text, "subgraph \"cluster_"), 1);
    assert_int_equal(count(text, "shape=box"), 3);
    assert_int_equal(count(text, "\"0.a"), 4); /* two, and their arrows */
    assert_int_equal(count(text, "-> \"0.o0\""), 1);
    assert_int_equal(count(text, "style=dashed"), 2);
    assert_int_equal(count(text, "not joined: "), 2);
    assert_non_null(strstr(text, "128 bytes"));
    mr_text_free(text);
    mr_function_release(f);
}

static void
names__are_escaped(void **state)
{
    mr_function *f = compiled(body, "a\"b\\c\nd&lt;\xff\xc3\xa9", 8);
    char *dot = mr_function_explain_as(f, MR_EXPLAIN_DOT);
    char *text = mr_function_explain(f);

    (void)state;
    assert_non_null(dot);
    assert_non_null(
        strstr(dot, "label=\"a\\\"b\\\\c?d&amp;lt;?\xc3\xa9: (float"));
    assert_non_null(text);
    assert_int_equal(strncmp(text, "a\"b\\c?d&lt;?\xc3\xa9: 1 program\n", 26),
                     0);
    mr_text_free(dot);
    mr_text_free(text);
    mr_function_release(f);
}

static void
nothing_to_compute__is_said(void **state)
{
    mr_function *f = compiled(same, "same", 8);
    char *dot = mr_function_explain_as(f, MR_EXPLAIN_DOT);

    (void)state;
    assert_non_null(strstr(dot, "same: nothing to compute"));
    assert_int_equal(count(dot, "->"), 0);
    mr_text_free(dot);
    mr_function_release(f);
}

static void
forms__that_there_are_not_are_refused(void **state)
{
    mr_function *f = compiled(body, "rows", 8);

    (void)state;
    assert_null(mr_function_explain_as(f, (mr_explain_form)7));
    mrt_assert_error(MR_E_VALUE, "form is 7");
    assert_null(mr_function_explain_as(NULL, MR_EXPLAIN_DOT));
    mrt_assert_error(MR_E_NULL, "function");
    mr_function_release(f);
}

static bool
explain_again(void *f)
{
    char *text = mr_function_explain_as(f, MR_EXPLAIN_DOT);

    mr_text_free(text);
    return text != NULL;
}

static void
explanations__that_find_no_memory_fail_whole(void **state)
{
    mr_function *f = compiled(body, "rows", 8);

    (void)state;
    assert_true(mrt_each_failure(explain_again, f) > 2);
    mr_function_release(f);
}

/* ---- files -----------------------------------------------------------------
 */

static char folder[] = "/tmp/marram-report-XXXXXX";

/* All files of the folder one after the other; they go.  *n: how many. */
static void
take_files(char *text, size_t room, int *n)
{
    DIR *dir = opendir(folder);
    char path[PATH_MAX];
    struct dirent *d;
    size_t at = 0;

    *n = 0;
    text[0] = '\0';
    assert_non_null(dir);
    while ((d = readdir(dir)) != NULL) {
        FILE *f;

        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        assert_int_not_equal(d->d_name[0], '.'); /* none is half written */
        f = fopen(path, "r");
        assert_non_null(f);
        at += fread(text + at, 1, room - 1 - at, f);
        text[at] = '\0';
        fclose(f);
        unlink(path);
        *n += 1;
    }
    closedir(dir);
}

/* In a child whose library reads the variables for the first time there. */
static void
in_child(void (*fn)(void *), int want_status, char *said, size_t room)
{
    int status;

    assert_int_equal(setenv("MARRAM_GRAPH", folder, 1), 0);
    status = mrt_child(fn, NULL, said, room);
    unsetenv("MARRAM_GRAPH");
    assert_int_equal(status, want_status);
}

static void
compile_two(void *unused)
{
    mr_scope s = mr_scope_begin();

    (void)unused;
    compiled(body, "rows", 8);
    mr_function_release(compiled(same, "same", 8));
    mr_scope_end(s);
}

static void
compile_and_die(void *unused)
{
    compile_two(unused);
    kill(getpid(), SIGKILL);
}

static void
compile_and_fork(void *unused)
{
    mr_scope s = mr_scope_begin();
    mr_function *f = compiled(body, "rows", 8);
    pid_t pid = fork();

    (void)unused;
    if (pid == 0) { /* the parent's stays as it is; this is one more */
        mr_function_release(f);
        compiled(body, "child", 9);
        exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    mr_function_release(f);
    mr_scope_end(s);
}

static void
call_in_a_layout_and_exit(void *unused)
{
    mr_scope s = mr_scope_begin();
    mr_function *f = compiled(body, "rows", 4);
    mr_array *x =
        mr_transpose(mr_ones(MR_SHAPE(4, 4), MR_FLOAT32), MR_INTS_NONE);
    mr_array *w = mr_ones(MR_SHAPE(4, 6), MR_FLOAT32);

    (void)unused;
    assert_int_equal(mr_eval(x), MR_OK);
    assert_int_equal(mr_eval_tree(mr_call(f, MR_ARRAYS(x, w))), MR_OK);
    mr_scope_end(s);
    exit(0);
}

static void *
compile_many(void *unused)
{
    mr_scope s = mr_scope_begin();

    (void)unused;
    for (int i = 0; i < 25; i++)
        mr_function_release(compiled(body, "mine", 1 + i));
    mr_scope_end(s);
    return NULL;
}

static void
in_threads(void *unused, int i)
{
    (void)i;
    compile_many(unused);
}

static void
compile_in_threads(void *unused)
{
    mrt_threads(4, in_threads, unused);
}

static void
compile_beyond_the_bound(void *unused)
{
    mr_scope s = mr_scope_begin();
    mr_compile_options options = {.size = sizeof options, .name = "many"};
    mr_function *f = mr_compile(same, NULL, &options);

    (void)unused;
    for (int i = 1; i <= 1010; i++) {
        mr_scope inner = mr_scope_begin();

        mr_call(f, MR_ARRAYS(mr_ones(MR_SHAPE(i), MR_FLOAT32)));
        mr_scope_end(inner);
    }
    mr_scope_end(s);
}

static char text[1 << 20];
static char said[4096];

static void
files__are_there_when_a_process_is_killed(void **state)
{
    int n;

    (void)state;
    in_child(compile_and_die, SIGKILL, said, sizeof said);
    take_files(text, sizeof text, &n);
    assert_int_equal(n, 2);
    assert_int_equal(count(text, ": made by process "), 2);
    assert_non_null(strstr(text, "rows: made by process "));
    assert_non_null(strstr(text, "nothing to compute"));
    assert_non_null(strstr(text, "3 steps"));
}

static void
files__have_what_came_later_when_a_process_ends(void **state)
{
    int n;

    (void)state;
    in_child(call_in_a_layout_and_exit, 0, said, sizeof said);
    take_files(text, sizeof text, &n);
    assert_int_equal(n, 1);
    assert_int_equal(count(text, "for arguments that come so: 0 turned"), 1);
}

static void
files__of_a_forked_child_are_its_own(void **state)
{
    int n;

    (void)state;
    in_child(compile_and_fork, 0, said, sizeof said);
    take_files(text, sizeof text, &n);
    assert_int_equal(n, 2);
    assert_int_equal(count(text, "rows: made by process "), 1);
    assert_int_equal(count(text, "child: made by process "), 1);
}

static void
files__of_threads_are_whole(void **state)
{
    int n;

    (void)state;
    in_child(compile_in_threads, 0, said, sizeof said);
    take_files(text, sizeof text, &n);
    assert_int_equal(n, 100);
    assert_int_equal(count(text, "mine: made by process "), 100);
    assert_int_equal(count(text, "3 steps"), 100);
}

static void
files__of_a_process_are_bounded(void **state)
{
    int n;

    (void)state;
    in_child(compile_beyond_the_bound, 0, said, sizeof said);
    take_files(text, sizeof text, &n);
    assert_int_equal(n, 1000);
    assert_int_equal(count(said, "tells of no more"), 1);
}

static void
folder__that_cannot_be_is_told_once(void **state)
{
    int status;

    (void)state;
    assert_int_equal(setenv("MARRAM_GRAPH", "/dev/null/x", 1), 0);
    status = mrt_child(compile_two, NULL, said, sizeof said);
    unsetenv("MARRAM_GRAPH");
    assert_int_equal(status, 0);
    assert_int_equal(count(said, "MARRAM_GRAPH"), 1);
    assert_non_null(strstr(said, "/dev/null/x"));
}

static void
compile_with_failures(void *unused)
{
    (void)unused;
    for (int i = 0; i < 200; i++) {
        mr_scope s = mr_scope_begin();
        mr_compile_options options = {.size = sizeof options, .name = "frail"};
        mr_function *f = mr_compile(body, NULL, &options);
        mr_tree *in = arguments(8);

        mr__alloc_fail_after(i);
        mr_call(f, in);
        mr__alloc_fail_after(-1);
        mr_error_take();
        assert_int_equal(mr_eval_tree(mr_call(f, in)), MR_OK);
        mr_function_release(f);
        mr_scope_end(s);
    }
}

static void
files__that_find_no_memory_harm_nothing(void **state)
{
    int n;

    (void)state;
    in_child(compile_with_failures, 0, said, sizeof said);
    take_files(text, sizeof text, &n);
    assert_true(n > 100);
}

static int
folder_open(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int
folder_close(void **state)
{
    (void)state;
    return rmdir(folder);
}

int
main(void)
{
    /* Those with children first: they fork before the library has read its
     * environment. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files__are_there_when_a_process_is_killed),
        cmocka_unit_test(files__have_what_came_later_when_a_process_ends),
        cmocka_unit_test(files__of_a_forked_child_are_its_own),
        cmocka_unit_test(files__of_threads_are_whole),
        cmocka_unit_test(files__of_a_process_are_bounded),
        cmocka_unit_test(folder__that_cannot_be_is_told_once),
        cmocka_unit_test(files__that_find_no_memory_harm_nothing),
        mrt_test(text__says_bytes_memory_and_why_two_were_not_joined),
        mrt_test(
            dot__has_a_box_for_each_step_and_a_dashed_arrow_with_the_reason),
        mrt_test(names__are_escaped),
        mrt_test(nothing_to_compute__is_said),
        mrt_test(forms__that_there_are_not_are_refused),
        mrt_test(explanations__that_find_no_memory_fail_whole),
    };

    return cmocka_run_group_tests_name("compile/report", tests, folder_open,
                                       folder_close);
}
