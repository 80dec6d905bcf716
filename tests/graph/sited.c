/* SPDX-License-Identifier: Apache-2.0
 *
 * sited.c -- what is no operator names the line of its call too.
 */
#include <stdio.h>
#include <string.h>

#include "support/mrt.h"

/* The call fails, with this text, and names the line that it stands in. */
#define FAILS_HERE(call, text)                                                 \
    do {                                                                       \
        (void)(call);                                                          \
        fails_at(MR_SITE, text);                                               \
    } while (0)

static void
fails_at(const char *site, const char *text)
{
    mr_error e = mr_error_take();

    assert_int_not_equal(e.code, MR_OK);
    if (strstr(e.message, text) == NULL)
        fail_msg("%s: \"%s\" is not in \"%s\"", site, text, e.message);
    assert_string_equal(e.site, site);
}

static void
trees__name_the_line(void **state)
{
    (void)state;
    mr_array *x = mr_ones(MR_SHAPE(3), MR_FLOAT32), *out[2];
    mr_tree *t = MR_ARRAYS(x, x);
    const char *keys[] = {"a", "a"};
    mr_tree *items[] = {t, t};
    mr_tree *d = mr_tree_dict(1, keys, items);

    FAILS_HERE(mr_tree_array_at(t, 2), "child 2 of a tree that has 2");
    FAILS_HERE(mr_tree_at(t, -1), "child -1");
    FAILS_HERE(mr_tree_key(t, 0), "only a dict has keys");
    FAILS_HERE(mr_tree_get(d, "b"), "no key \"b\"");
    FAILS_HERE(mr_tree_get_array(d, "a"), "expected an array, got a tuple");
    FAILS_HERE(mr_tree_array(t), "expected an array, got a tuple");
    FAILS_HERE(mr_tree_leaf(NULL), "NULL");
    FAILS_HERE(mr_tree_list(-1, NULL), "-1 children");
    FAILS_HERE(MR_TUPLE(t, NULL), "child 1 of the tree is NULL");
    FAILS_HERE(MR_ARRAYS(NULL), "NULL");
    FAILS_HERE(mr_tree_dict(2, keys, items), "two values for the key \"a\"");
    FAILS_HERE(mr_tree_leaves(t, out, 1), "1 arrays for a tree of 2 leaves");
    FAILS_HERE(mr_tree_like(t, &x, 1), "1 arrays for a tree of 2 leaves");
    FAILS_HERE(mr_tree_map(NULL, NULL, 1, &t), "the function to map is NULL");
}

static void
reads__name_the_line(void **state)
{
    (void)state;
    mr_array *x = mr_ones(MR_SHAPE(3), MR_FLOAT32);
    float out[4];
    mr_scalar v;

    FAILS_HERE(mr_array_copy_f32(x, out, 4), "there is room for 4");
    FAILS_HERE(mr_array_copy_out(x, out, 4), "there is room for 4");
    FAILS_HERE(mr_array_item(x, &v), "only an array of one element");
    FAILS_HERE(mr_array_item_f64(x), "only an array of one element");
    FAILS_HERE(mr_array_data(NULL), "the array is NULL");
    FAILS_HERE(mr_array_strides(MR_NONE), "the array is NULL");
    FAILS_HERE(mr_array_dim(x, 7), "axis 7");
    FAILS_HERE(mr_eval(NULL), "array 0 is NULL");
    FAILS_HERE(mr_eval_tree(NULL), "the tree is NULL");
    FAILS_HERE(mr_async_eval(NULL, -1), "-1 arrays");
    FAILS_HERE(mr_array_from_f32(out, MR_SHAPE(-1)), "-1");
    FAILS_HERE(mr_array_wrap(NULL, MR_SHAPE(3), NULL, MR_FLOAT32, NULL, NULL),
               "the data is NULL");
}

/* The line that made the array at fault says more than that of the reader. */
static void
reads__leave_a_better_line_alone(void **state)
{
    (void)state;
    mr_array *x = mr_ones(MR_SHAPE(3), MR_FLOAT32), *index = mr_int(9);
    const char *made = MR_SITE;
    mr_array *y = mr_take(x, index, 0);
    char line[256];
    float out[1];

    snprintf(line, sizeof line, "%.*s%d", (int)(strrchr(made, ':') - made + 1),
             made, __LINE__ - 5);
    assert_int_equal(mr_array_copy_f32(y, out, 1), MR_E_INDEX);
    fails_at(line, "index 9 is out of range");
    assert_int_equal(mr_eval(y), MR_E_INDEX);
    fails_at(line, "index 9 is out of range");
}

static mr_tree *
reads_its_argument(void *ctx, const mr_tree *in)
{
    *(const char **)ctx = MR_SITE;
    return mr_array_item_f64(mr_tree_array_at(in, 0)) > 0.0 ? NULL : NULL;
}

static mr_tree *
has_no_such_argument(void *ctx, const mr_tree *in)
{
    *(const char **)ctx = MR_SITE;
    return mr_tree_leaf(mr_tree_array_at(in, 4));
}

static mr_tree *
gives_it_back(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_leaf(mr_tree_array_at(in, 0));
}

/* The next line of "file:line". */
static const char *
line_after(const char *site)
{
    static char text[256];
    const char *colon = strrchr(site, ':');
    int line = 0;

    sscanf(colon, ":%d", &line);
    snprintf(text, sizeof text, "%.*s:%d", (int)(colon - site), site, line + 1);
    return text;
}

static void
transforms__name_their_line_or_the_closures(void **state)
{
    (void)state;
    mr_array *x = mr_ones(MR_SHAPE(3), MR_FLOAT32);
    mr_tree *in = MR_ARRAYS(x), *number = MR_ARRAYS(mr_float(1.0));
    mr_function *f;
    const char *line = NULL;

    FAILS_HERE(mr_grad(gives_it_back, NULL, in, NULL, 0), "must give a 0-d");
    FAILS_HERE(mr_grad(gives_it_back, NULL, in, (int[]){3}, 1), "argnum 3");
    FAILS_HERE(mr_vjp(gives_it_back, NULL, in, NULL), "NULL");
    FAILS_HERE(mr_jvp(gives_it_back, NULL, in, MR_ARRAYS(x, x)), "");
    FAILS_HERE(mr_vmap(gives_it_back, NULL, in, (int32_t[]){5}, 1, NULL, 0),
               "5");
    FAILS_HERE(mr_compile(NULL, NULL, NULL), "");
    FAILS_HERE(mr_call(NULL, in), "the function is NULL");
    assert_null(mr_grad(has_no_such_argument, (void *)&line, in, NULL, 0));
    fails_at(line_after(line), "child 4");
    f = mr_compile(has_no_such_argument, (void *)&line, NULL);
    assert_null(mr_call(f, in));
    fails_at(line_after(line), "child 4");
    mr_function_release(f);
    f = mr_compile(reads_its_argument, (void *)&line, NULL);
    assert_null(mr_call(f, number));
    fails_at(line_after(line), "has no value while it is traced");
    mr_function_release(f);
}

static mr_array *outside;

static mr_tree *
captures(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_leaf(mr_add(mr_tree_array_at(in, 0), outside));
}

/* With the line that made the array; nothing of another language's options. */
static void
captures__are_told_as_c_has_them(void **state)
{
    (void)state;
    mr_tree *in = MR_ARRAYS(mr_ones(MR_SHAPE(3), MR_FLOAT32));
    mr_compile_options o = {.size = sizeof o, .name = "f"};
    mr_function *f;
    mr_error e;

    outside = mr_array_from_f32((float[]){1, 2, 3}, MR_SHAPE(3));
    for (o.captures = MR_CAPTURE_ERROR; o.captures <= MR_CAPTURE_INPUT;
         o.captures++) {
        f = mr_compile(captures, NULL, &o);
        FAILS_HERE(mr_call(f, in), "sited.c:");
        assert_null(mr_call(f, in));
        e = mr_error_take();
        assert_non_null(strstr(e.message, "Pass them as arguments"));
        assert_null(strstr(e.message, "inputs"));
        assert_null(strstr(e.message, "captures="));
        mr_function_release(f);
    }
}

/* What failed before keeps its line when its NULL is handed on. */
static void
chains__keep_the_first_line(void **state)
{
    (void)state;
    mr_tree *t = MR_ARRAYS(mr_float(1.0)), *in;
    mr_array *x = mr_tree_array_at(t, 3);
    const char *first = MR_SITE;

    in = MR_ARRAYS(x);
    assert_null(mr_tree_array_at(in, 0));
    assert_int_equal(mr_eval(x), MR_E_INDEX);
    assert_string_equal(line_after(mr_error_take().site), first);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(trees__name_the_line),
        mrt_test(reads__name_the_line),
        mrt_test(reads__leave_a_better_line_alone),
        mrt_test(transforms__name_their_line_or_the_closures),
        mrt_test(captures__are_told_as_c_has_them),
        mrt_test(chains__keep_the_first_line),
    };

    return cmocka_run_group_tests_name("graph/sited", tests, NULL, NULL);
}
