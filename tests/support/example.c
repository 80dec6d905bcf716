/* SPDX-License-Identifier: Apache-2.0
 *
 * example.c -- runs examples and refusals, see example.h.
 */
#include "support/example.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 8192, MANY_BYTES = 1 << 20 };

/* ---- examples ------------------------------------------------------------ */

/* A tree as Python prints a list or tuple of arrays. */
static void
text_of(mr_tree *t, const char *brackets, char *out)
{
    bool one = mr_tree_kind_of(t) == MR_TREE_LEAF;
    int n = one ? 1 : mr_tree_size(t);
    char *end = out;

    if (!one)
        *end++ = brackets[0];
    for (int i = 0; i < n; i++) {
        mr_array *x = one ? mr_tree_array(t) : mr_tree_array_at(t, i);
        char *text = mr_array_text(x, -1);

        assert_non_null(text);
        end += snprintf(end, ROOM / 8, "%s%s", i > 0 ? ", " : "", text);
        mr_text_free(text);
    }
    if (!one)
        end += snprintf(end, 3, "%s%c", n == 1 ? "," : "", brackets[1]);
    *end = '\0';
}

static void
check_example(const mrt_example *e)
{
    mr_scope s = mr_scope_begin();
    mr_tree *t = e->run();
    char text[ROOM];

    if (t == NULL)
        fail_msg("%s: %s", e->name, mr_error_take().message);
    text_of(t, e->brackets, text);
    assert_string_equal(text, e->prints);
    assert_int_equal(mr_scope_end(s), MR_OK);
}

static void
example__prints_what_python_prints(void **state)
{
    check_example(*state);
}

int
mrt_run_examples(const char *family, const mrt_example *rows, int n)
{
    struct CMUnitTest *tests = calloc((size_t)n, sizeof *tests);
    int rc;

    for (int i = 0; i < n; i++)
        tests[i] = (struct CMUnitTest){rows[i].name,
                                       example__prints_what_python_prints, NULL,
                                       NULL, (void *)(uintptr_t)&rows[i]};
    rc = _cmocka_run_group_tests(family, tests, (size_t)n, NULL, NULL);
    free(tests);
    return rc;
}

/* ---- refusals ------------------------------------------------------------ */

static mr_array *input[MRT_MOST_INPUTS];
static char *input_text[MRT_MOST_INPUTS];

void
mrt_note_inputs(int n, mr_array *const *x)
{
    assert_true(n <= MRT_MOST_INPUTS);
    for (int i = 0; i < n; i++) {
        input[i] = mr_retain(x[i]);
        input_text[i] = mr_array_text(x[i], -1);
        assert_non_null(input_text[i]);
    }
}

static void
check_inputs(void)
{
    for (int i = 0; i < MRT_MOST_INPUTS && input[i] != NULL; i++) {
        char *text = mr_array_text(input[i], -1);

        assert_non_null(text);
        assert_string_equal(text, input_text[i]);
        mr_text_free(text);
        mr_text_free(input_text[i]);
        mr_release(input[i]);
        input[i] = NULL;
    }
}

/* Small results are also evaluated: some faults show only then. */
static mr_code
evaluated(mr_tree *t)
{
    int n = mr_tree_n_leaves(t);
    mr_array *leaves[64];

    if (n > 64 || mr_tree_leaves(t, leaves, n) != MR_OK)
        return MR_OK;
    for (int i = 0; i < n; i++)
        if (mr_array_nbytes(leaves[i]) < MANY_BYTES &&
            mr_array_data(leaves[i]) == NULL)
            return mr_error_last().code;
    return MR_OK;
}

/* 0 when the message is as it should be.  A call that fails names itself; what
 * fails at evaluation is named by its operator, which may be another's. */
static int
wrong_message(const mrt_refusal *r, const mrt_bad *b, mr_error e, bool late)
{
    size_t n = strlen(r->title);
    bool named =
        late || (strncmp(e.message, r->title, n) == 0 && e.message[n] == ':');
    bool right = b->code == MR_OK || b->code == e.code;

    if (named && right && strstr(e.message, b->word) != NULL &&
        strlen(e.message) > n + 12 && e.code != MR_E_INTERNAL)
        return 0;
    print_error("%s with %s: %s \"%s\"; right: %s with \"%s: ... %s ...\"\n",
                r->title, b->what, mr_code_name(e.code), e.message,
                b->code == MR_OK ? "a code" : mr_code_name(b->code), r->title,
                b->word);
    return 1;
}

static void
refusal__says_what_is_wrong(void **state)
{
    const mrt_refusal *r = *state;
    int failed = 0;

    for (int i = 0; i < r->n; i++) {
        mr_scope s = mr_scope_begin();
        mr_tree *t = r->run(i);
        bool good = t != NULL && evaluated(t) == MR_OK;

        if (!good)
            failed += wrong_message(r, &r->bad[i], mr_error_take(), t != NULL);
        if (good && r->bad[i].code != MR_OK) {
            print_error("%s with %s: accepted\n", r->title, r->bad[i].what);
            failed++;
        }
        check_inputs();
        assert_int_equal(mr_scope_end(s), MR_OK);
        check_example(r->good);
    }
    assert_int_equal(failed, 0);
}

int
mrt_run_refusals(const char *family, const mrt_refusal *rows, int n)
{
    struct CMUnitTest *tests = calloc((size_t)n, sizeof *tests);
    int rc;

    for (int i = 0; i < n; i++)
        tests[i] =
            (struct CMUnitTest){rows[i].title, refusal__says_what_is_wrong,
                                NULL, NULL, (void *)(uintptr_t)&rows[i]};
    rc = _cmocka_run_group_tests(family, tests, (size_t)n, NULL, NULL);
    free(tests);
    return rc;
}
