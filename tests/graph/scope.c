/* SPDX-License-Identifier: Apache-2.0
 *
 * scope.c -- tests of scopes: who owns what, tokens, barriers, threads.
 */
#include "marram/scope.h"

#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "base/alloc.h"
#include "graph/node.h"
#include "marram/array.h"
#include "marram/error.h"
#include "marram/tree.h"

static int64_t live_before;

static int
remember_live(void **state)
{
    (void)state;
    mr_error_take();
    live_before = mr__alloc_live();
    return 0;
}

static int
check_live(void **state)
{
    (void)state;
    assert_int_equal(mr__alloc_live(), live_before);
    assert_null(mr__ctx.scope);
    return 0;
}

static void
scope__owns_what_is_made(void **state)
{
    mr_scope s = mr_scope_begin();

    (void)state;
    for (int i = 0; i < 1000; i++)
        assert_non_null(mr_float(i));
    assert_int_equal(mr__alloc_live(), live_before + 1000);
    assert_int_equal(mr_scope_end(s), MR_OK);
    assert_int_equal(mr__alloc_live(), live_before);
}

static void
scope__nests(void **state)
{
    mr_scope a = mr_scope_begin(), b, c;
    mr_array *x = mr_float(1), *y, *z;

    (void)state;
    b = mr_scope_begin();
    y = mr_float(2);
    c = mr_scope_begin();
    z = mr_float(3);
    assert_int_equal(mr__ref_total(z), 1);
    mr_scope_end(c);
    assert_int_equal(mr__alloc_live(), live_before + 2);
    assert_true(mr_array_item_f64(y) == 2.0);
    mr_scope_end(b);
    assert_true(mr_array_item_f64(x) == 1.0);
    mr_scope_end(a);
}

static void
scope__closes_all_above_it(void **state)
{
    mr_scope a = mr_scope_begin(), b;

    (void)state;
    mr_float(1);
    b = mr_scope_begin();
    mr_float(2);
    mr_scope_none();
    mr_scope_begin();
    mr_float(3);
    assert_int_equal(mr_scope_end(a), MR_OK);
    assert_int_equal(mr__alloc_live(), live_before);
    assert_int_equal(mr_scope_end(b), MR_E_STATE);
    mr_error_take();
}

static void
scope__ends_once(void **state)
{
    mr_scope s = mr_scope_begin(), t;

    (void)state;
    assert_int_equal(mr_scope_end(s), MR_OK);
    assert_int_equal(mr_scope_end(s), MR_E_STATE);
    mr_error_take();
    /* also when another stands in its place */
    t = mr_scope_begin();
    assert_int_equal(mr_scope_end(s), MR_E_STATE);
    mr_error_take();
    assert_null(mr_scope_return(s, mr_float(1)));
    assert_int_equal(mr_error_take().code, MR_E_STATE);
    assert_int_equal(mr_scope_end(t), MR_OK);
    assert_int_equal(mr_scope_end((mr_scope){0}), MR_E_STATE);
    mr_error_take();
}

static void
end_elsewhere(void *arg, int i)
{
    mr_scope *s = arg;

    (void)i;
    assert_int_equal(mr_scope_end(*s), MR_E_STATE);
    assert_non_null(strstr(mr_error_take().message, "another thread"));
}

static void
scope__belongs_to_its_thread(void **state)
{
    mr_scope s = mr_scope_begin();
    mr_array *x = mr_float(4);

    (void)state;
    mrt_threads(3, end_elsewhere, &s);
    assert_true(mr_array_item_f64(x) == 4.0);
    assert_int_equal(mr_scope_end(s), MR_OK);
}

static void
leave_open(void *arg, int i)
{
    (void)arg;
    (void)i;
    mr_scope_begin();
    mr_float(1);
    mr_scope_begin();
    mr_tree_leaf(mr_float(2));
}

static void
scope__that_a_thread_leaves_open_is_closed(void **state)
{
    (void)state;
    mrt_threads(4, leave_open, NULL);
}

/* ---- barriers ----------------------------------------------------------- */

static void
barrier__makes_results_the_callers(void **state)
{
    mr_scope s = mr_scope_begin(), none, inner;
    mr_array *x, *y;

    (void)state;
    none = mr_scope_none();
    x = mr_float(1);
    inner = mr_scope_begin();
    y = mr_scope_return(inner, mr_float(2));
    mr_scope_end(inner);
    assert_int_equal(mr_scope_end(none), MR_OK);
    mr_scope_end(s);
    assert_true(mr_array_item_f64(x) == 1.0);
    assert_true(mr_array_item_f64(y) == 2.0);
    mr_release(x);
    mr_release(y);
}

/* ---- giving on ---------------------------------------------------------- */

static void
return__without_an_outer_scope_is_the_callers(void **state)
{
    mr_scope s = mr_scope_begin();
    mr_array *x;

    (void)state;
    mr_float(1);
    x = mr_scope_return(s, mr_float(2));
    mr_float(3);
    mr_scope_end(s);
    assert_int_equal(x->scoped, 0);
    assert_true(mr_array_item_f64(x) == 2.0);
    mr_release(x);
    assert_int_equal(mr_error_last().code, MR_OK);
}

static void
return__goes_to_the_outer_scope(void **state)
{
    mr_scope a = mr_scope_begin(), b = mr_scope_begin();
    mr_array *x[5];

    (void)state;
    for (int i = 0; i < 5; i++)
        x[i] = mr_float(i);
    assert_ptr_equal(mr_scope_return(b, x[3]), x[3]);
    assert_ptr_equal(mr_scope_return(b, x[0]), x[0]);
    mr_scope_end(b);
    assert_int_equal(mr__alloc_live(), live_before + 2);
    assert_true(mr_array_item_f64(x[3]) == 3.0);
    assert_true(mr_array_item_f64(x[0]) == 0.0);
    assert_int_equal(x[0]->scoped, 1);
    mr_scope_end(a);
}

static void
return__reaches_below_open_scopes(void **state)
{
    mr_scope a = mr_scope_begin(), b = mr_scope_begin(), c;
    mr_array *x = mr_float(1), *y, *kept;

    (void)state;
    c = mr_scope_begin();
    kept = mr_float(9);
    y = mr_float(2);
    mr_float(3);
    /* both are made under b, one of them in a scope above it */
    mr_scope_return(b, y);
    mr_scope_return(b, x);
    assert_true(mr_array_item_f64(kept) == 9.0);
    mr_scope_end(c);
    assert_int_equal(mr__alloc_live(), live_before + 2);
    mr_scope_end(b);
    assert_true(mr_array_item_f64(x) == 1.0);
    assert_true(mr_array_item_f64(y) == 2.0);
    mr_scope_end(a);
}

static void
return__of_an_argument_adds_a_reference(void **state)
{
    mr_array *x = mr_float(1);
    mr_scope a, b;

    (void)state;
    a = mr_scope_begin();
    b = mr_scope_begin();
    mr_float(5);
    assert_ptr_equal(mr_scope_return(b, x), x);
    mr_float(6);
    mr_scope_end(b);
    assert_int_equal(mr__ref_total(x), 2);
    mr_scope_end(a);
    assert_int_equal(mr__ref_total(x), 1);
    b = mr_scope_begin();
    mr_scope_return(b, x);
    mr_scope_end(b);
    mr_release(x);
    mr_release(x);
    assert_int_equal(mr_error_last().code, MR_OK);
}

static void
return__passes_what_is_absent(void **state)
{
    mr_scope s = mr_scope_begin();

    (void)state;
    assert_null(mr_scope_return(s, NULL));
    assert_ptr_equal(mr_scope_return(s, MR_NONE), MR_NONE);
    assert_null(mr_scope_return_tree(s, NULL));
    mr_scope_end(s);
}

static void
return__works_for_trees(void **state)
{
    mr_scope a = mr_scope_begin(), b = mr_scope_begin();
    mr_tree *t = mr_scope_return_tree(b, MR_ARRAYS(mr_float(1), mr_float(2)));
    mr_tree *u;

    (void)state;
    mr_scope_end(b);
    assert_true(mr_array_item_f64(mr_tree_array_at(t, 1)) == 2.0);
    u = mr_scope_return_tree(a, t);
    mr_scope_end(a);
    assert_true(mr_array_item_f64(mr_tree_array_at(u, 0)) == 1.0);
    mr_tree_release(u);
    assert_int_equal(mr_error_last().code, MR_OK);
}

/* Random begins, ends, makings and returns against a model: for each array the
 * level that owns it (0: the caller). */
static void
scopes__agree_with_a_model(void **state)
{
    enum { DEPTH = 6, MOST = 4000 };
    static struct {
        mr_array *x;
        int level;
    } made[MOST];
    mr_scope open[DEPTH + 1];
    int depth = 0, n = 0;

    (void)state;
    srand(7);
    for (int step = 0; step < 20000; step++) {
        int what = rand() % 8;

        if (what == 0 && depth < DEPTH) {
            open[++depth] = mr_scope_begin();
        } else if (what == 1 && depth > 0) {
            int to = 1 + rand() % depth, kept = 0;

            mr_scope_end(open[to]);
            depth = to - 1;
            for (int i = 0; i < n; i++)
                if (made[i].level < to)
                    made[kept++] = made[i];
            n = kept;
        } else if (what == 2 && n > 0 && depth > 0) {
            int i = rand() % n;

            /* give it out of the scope that owns it */
            if (made[i].level > 0) {
                mr_scope_return(open[made[i].level], made[i].x);
                made[i].level--;
            }
        } else if (n < MOST) {
            made[n].x = mr_float(step);
            made[n++].level = depth;
        }
        assert_int_equal(mr__alloc_live(), live_before + n);
    }
    if (depth > 0)
        mr_scope_end(open[1]);
    for (int i = 0; i < n; i++)
        if (made[i].level == 0)
            mr_release(made[i].x);
    assert_int_equal(mr_error_last().code, MR_OK);
}

/* ---- callbacks ---------------------------------------------------------- */

static int freed;

static void
opens_a_scope(void *ctx, void *data)
{
    mr_scope s = mr_scope_begin();

    (void)ctx;
    (void)data;
    for (int i = 0; i < 300; i++)
        mr_float(i);
    mr_scope_end(s);
    mr_release(mr_float(1));
    freed++;
}

static void
callback__may_use_scopes_while_one_ends(void **state)
{
    static float data[4];
    mr_scope s = mr_scope_begin();

    (void)state;
    freed = 0;
    for (int i = 0; i < 10; i++) {
        mr_float(i);
        mr_array_wrap(data, MR_SHAPE(4), NULL, MR_FLOAT32, opens_a_scope, NULL);
    }
    mr_scope_end(s);
    assert_int_equal(freed, 10);
}

/* ---- failures ----------------------------------------------------------- */

static bool
fill_scopes(void *arg)
{
    bool ok = true;

    (void)arg;
    for (int i = 0; i < 40 && ok; i++) {
        mr_scope s = mr_scope_begin();

        ok = s.token != 0;
        for (int k = 0; k < 100 && ok; k++)
            ok = mr_float(k) != NULL;
    }
    return ok;
}

static void
fill_with_failures(void *arg, int i)
{
    (void)i;
    /* a new thread: its lists have to grow */
    for (int n = 0; n < 60; n++) {
        mr_scope s = mr_scope_begin();

        mr__alloc_fail_after(n * 70);
        fill_scopes(arg);
        mr__alloc_fail_after(-1);
        mr_error_take();
        if (s.token != 0)
            assert_int_equal(mr_scope_end(s), MR_OK);
    }
}

static void
failures__leave_the_lists_whole(void **state)
{
    (void)state;
    mrt_threads(1, fill_with_failures, NULL);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, remember_live, check_live)
    const struct CMUnitTest tests[] = {
        TEST(scope__owns_what_is_made),
        TEST(scope__nests),
        TEST(scope__closes_all_above_it),
        TEST(scope__ends_once),
        TEST(scope__belongs_to_its_thread),
        TEST(scope__that_a_thread_leaves_open_is_closed),
        TEST(barrier__makes_results_the_callers),
        TEST(return__without_an_outer_scope_is_the_callers),
        TEST(return__goes_to_the_outer_scope),
        TEST(return__reaches_below_open_scopes),
        TEST(return__of_an_argument_adds_a_reference),
        TEST(return__passes_what_is_absent),
        TEST(return__works_for_trees),
        TEST(scopes__agree_with_a_model),
        TEST(callback__may_use_scopes_while_one_ends),
        TEST(failures__leave_the_lists_whole),
    };

    return cmocka_run_group_tests_name("graph/scope", tests, NULL, NULL);
}
