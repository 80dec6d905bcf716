/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.c -- tests of trees.
 */
#include "marram/tree.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "graph/node.h"
#include "marram/array.h"
#include "marram/error.h"
#include "support/scoped.h"

/* {"w": [x0, (x1,)], "none": None, "b": x2} */
static mr_tree *
sample(void)
{
    mr_tree *one = MR_ARRAYS(mr_float(1));
    mr_tree *list =
        mr_tree_list(2, (mr_tree *[]){mr_tree_leaf(mr_float(0)), one});

    return mr_tree_dict(
        3, (const char *[]){"w", "none", "b"},
        (mr_tree *[]){list, mr_tree_none(), mr_tree_leaf(mr_float(2))});
}

static void
tree__answers(void **state)
{
    mr_tree *t = sample(), *list = mr_tree_get(t, "w");

    (void)state;
    assert_int_equal(mr_tree_kind_of(t), MR_TREE_DICT);
    assert_int_equal(mr_tree_size(t), 3);
    assert_int_equal(mr_tree_n_leaves(t), 3);
    assert_string_equal(mr_tree_key(t, 1), "none");
    assert_int_equal(mr_tree_kind_of(list), MR_TREE_LIST);
    assert_int_equal(mr_tree_kind_of(mr_tree_at(list, 1)), MR_TREE_TUPLE);
    assert_int_equal(mr_tree_kind_of(mr_tree_at(t, 1)), MR_TREE_NONE);
    assert_true(mr_array_item_f64(mr_tree_get_array(t, "b")) == 2.0);
    assert_true(mr_array_item_f64(mr_tree_array_at(list, 0)) == 0.0);
    assert_int_equal(mr_error_last().code, MR_OK);
}

static void
tree__names_what_is_wrong(void **state)
{
    mr_tree *t = sample(), *leaf = mr_tree_leaf(mr_float(1));

    (void)state;
    assert_null(mr_tree_at(t, 3));
    assert_int_equal(mr_error_take().code, MR_E_INDEX);
    assert_null(mr_tree_at(t, -1));
    assert_int_equal(mr_error_take().code, MR_E_INDEX);
    assert_null(mr_tree_get(t, "x"));
    assert_int_equal(mr_error_take().code, MR_E_INDEX);
    assert_null(mr_tree_get(leaf, "x"));
    assert_int_equal(mr_error_take().code, MR_E_TYPE);
    assert_null(mr_tree_array(t));
    assert_int_equal(mr_error_take().code, MR_E_TYPE);
    assert_null(mr_tree_key(mr_tree_at(t, 0), 0));
    assert_int_equal(mr_error_take().code, MR_E_TYPE);
    assert_null(
        mr_tree_dict(2, (const char *[]){"a", "a"}, (mr_tree *[]){leaf, leaf}));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    assert_null(mr_tree_dict(1, (const char *[]){NULL}, (mr_tree *[]){leaf}));
    assert_int_equal(mr_error_take().code, MR_E_NULL);
    assert_null(mr_tree_array(NULL));
    assert_int_equal(mr_error_take().code, MR_E_NULL);
}

static void
null_child__keeps_the_first_error(void **state)
{
    (void)state;
    assert_null(mr_tree_leaf(NULL));
    assert_int_equal(mr_error_take().code, MR_E_NULL);
    mr_error_set(MR_E_SHAPE, "first");
    assert_null(mr_tree_leaf(NULL));
    assert_null(mr_tree_list(1, (mr_tree *[]){NULL}));
    assert_null(MR_ARRAYS(mr_float(1), NULL));
    assert_null(mr_tree_array_at(NULL, 0));
    assert_int_equal(mr_error_take().code, MR_E_SHAPE);
}

static void
leaves__come_in_order(void **state)
{
    mr_tree *t = sample();
    mr_array *x[3];

    (void)state;
    assert_int_equal(mr_tree_leaves(t, x, 3), MR_OK);
    for (int i = 0; i < 3; i++)
        assert_true(mr_array_item_f64(x[i]) == i);
    assert_int_equal(mr_tree_leaves(t, x, 2), MR_E_VALUE);
    mr_error_take();
}

static void
like__has_the_structure_and_other_leaves(void **state)
{
    mr_tree *t = sample(), *u;
    mr_array *x[3] = {mr_float(5), mr_float(6), mr_float(7)}, *y[3];

    (void)state;
    u = mr_tree_like(t, x, 3);
    assert_true(mr_tree_same_structure(t, u));
    assert_int_equal(mr_tree_structure_hash(t), mr_tree_structure_hash(u));
    mr_tree_leaves(u, y, 3);
    assert_memory_equal(x, y, sizeof x);
    assert_null(mr_tree_like(t, x, 2));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    x[1] = NULL;
    assert_null(mr_tree_like(t, x, 3));
    assert_int_equal(mr_error_take().code, MR_E_NULL);
}

static void
structure__tells_kinds_keys_and_sizes_apart(void **state)
{
    mr_tree *x = mr_tree_leaf(mr_float(1));
    mr_tree *t[] = {
        x,
        mr_tree_none(),
        mr_tree_list(0, NULL),
        mr_tree_tuple(0, NULL),
        mr_tree_list(1, &x),
        mr_tree_tuple(1, &x),
        mr_tree_dict(1, (const char *[]){"a"}, &x),
        mr_tree_dict(1, (const char *[]){"b"}, &x),
        mr_tree_dict(0, NULL, NULL),
        MR_TUPLE(x, x),
        MR_TUPLE(MR_TUPLE(x), x),
        MR_TUPLE(x, MR_TUPLE(x)),
    };
    int n = (int)MRT_COUNT(t);

    (void)state;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            assert_non_null(t[i]);
            assert_int_equal(mr_tree_same_structure(t[i], t[k]), i == k);
            assert_int_equal(mr_tree_structure_hash(t[i]) ==
                                 mr_tree_structure_hash(t[k]),
                             i == k);
        }
}

static mr_array *
sum_of(void *ctx, mr_array *const *x)
{
    double *calls = ctx;

    *calls += 1;
    if (mr_array_item_f64(x[0]) == 13.0)
        return mr__fail_null(MR_E_VALUE, "13");
    return mr_float(mr_array_item_f64(x[0]) + 10 * mr_array_item_f64(x[1]));
}

static void
map__goes_over_corresponding_leaves(void **state)
{
    double calls = 0;
    mr_tree *in[2] = {sample(), sample()}, *t;
    mr_array *y[3];

    (void)state;
    t = mr_tree_map(sum_of, &calls, 2, in);
    assert_true(calls == 3);
    assert_true(mr_tree_same_structure(t, in[0]));
    mr_tree_leaves(t, y, 3);
    for (int i = 0; i < 3; i++)
        assert_true(mr_array_item_f64(y[i]) == 11 * i);
    in[1] = mr_tree_at(in[1], 0);
    assert_null(mr_tree_map(sum_of, &calls, 2, in));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    in[0] = in[1] = mr_tree_leaf(mr_float(13));
    assert_null(mr_tree_map(sum_of, &calls, 2, in));
    assert_string_equal(mr_error_take().message, "13");
}

static void
none__stands_for_an_absent_array(void **state)
{
    (void)state;
    assert_int_equal(mr_tree_kind_of(mr_tree_leaf(MR_NONE)), MR_TREE_NONE);
    assert_int_equal(mr_tree_n_leaves(MR_ARRAYS(mr_float(1), MR_NONE)), 1);
    mr_tree_release(mr_tree_retain(mr_tree_none()));
    assert_int_equal(mr_error_last().code, MR_OK);
}

static void
depth__is_bounded(void **state)
{
    mr_tree *t = mr_tree_leaf(mr_float(1));

    (void)state;
    for (int i = 0; i < 511; i++)
        t = mr_tree_list(1, &t);
    assert_non_null(t);
    assert_null(mr_tree_list(1, &t));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
}

static void
quiet(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static void
references__are_checked(void **state)
{
    mr_tree *t = sample();

    (void)state;
    mr__log_set_handler(quiet, NULL);
    mr_tree_release(t);
    assert_int_equal(mr_error_take().code, MR_E_STATE);
    mr_tree_release(mr_tree_retain(t));
    assert_int_equal(mr_error_last().code, MR_OK);
    assert_int_equal(mr_tree_size(t), 3);
    mr_tree_release(NULL);
    mr__log_flush();
    mr__log_set_handler(NULL, NULL);
}

static void
tree__outlives_its_scope_when_retained(void **state)
{
    mr_scope s = mr_scope_begin();
    mr_tree *t = mr_tree_retain(sample());

    (void)state;
    mr_scope_end(s);
    assert_true(mr_array_item_f64(mr_tree_get_array(t, "b")) == 2.0);
    mr_tree_release(t);
    assert_int_equal(mr_error_last().code, MR_OK);
}

static bool
make_trees(void *arg)
{
    mr_scope s = mr_scope_begin();
    double calls = 0;
    mr_tree *t[2] = {NULL, NULL};
    mr_array *x[3] = {arg, arg, arg};
    bool ok = false;

    if (s.token == 0)
        return false;
    t[0] = sample();
    if (t[0])
        t[1] = mr_tree_like(t[0], x, 3);
    if (t[1])
        ok = mr_tree_map(sum_of, &calls, 2, t) != NULL;
    mr_scope_end(s);
    return ok;
}

static void
failures__leave_nothing_behind(void **state)
{
    (void)state;
    assert_true(mrt_each_failure(make_trees, mr_float(1)) > 20);
}

int
main(void)
{
#define TEST(f) SCOPED_WHOLE(f)
    const struct CMUnitTest tests[] = {
        TEST(tree__answers),
        TEST(tree__names_what_is_wrong),
        TEST(null_child__keeps_the_first_error),
        TEST(leaves__come_in_order),
        TEST(like__has_the_structure_and_other_leaves),
        TEST(structure__tells_kinds_keys_and_sizes_apart),
        TEST(map__goes_over_corresponding_leaves),
        TEST(none__stands_for_an_absent_array),
        TEST(depth__is_bounded),
        TEST(references__are_checked),
        TEST(tree__outlives_its_scope_when_retained),
        TEST(failures__leave_nothing_behind),
    };

    return cmocka_run_group_tests_name("graph/tree", tests, NULL, NULL);
}
