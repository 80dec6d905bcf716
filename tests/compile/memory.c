/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c -- what a call of a compiled function takes: peak figures, and that
 * memory that is used twice gives right values.
 */
#include "support/mrt.h"

enum { SIDE = 1024, BYTES = SIDE * SIDE * 4, SLACK = 256 * 1024 };

static mr_array *
square_of(double step)
{
    mr_array *x = mr_multiply(mr_arange(MR_INTEGER(0), MR_INTEGER(SIDE * SIDE),
                                        MR_INTEGER(1), MR_FLOAT32),
                              mr_float(step));

    x = mr_sin(mr_reshape(x, MR_SHAPE(SIDE, SIDE)));
    assert_int_equal(mr_eval(x), MR_OK);
    return x;
}

/* The most that a call takes beyond what was there, in units of one array;
 * given: the argument's last reference goes before the evaluation. */
static double
peak_of(mr_fn fn, bool given)
{
    mr_function *f = mr_compile(fn, NULL, NULL);
    double peak = 0.0;

    for (int warm = 0; warm < 2; warm++) {
        mr_scope scope = mr_scope_begin();
        mr_array *x = mr_retain(square_of(0.37)), *y;
        size_t before;

        y = mr_retain(mr_tree_array(mr_call(f, MR_ARRAYS(x))));
        mr_scope_end(scope);
        mrt_tasks_end();
        before = mr_memory_active();
        if (given)
            mr_release(x);
        mr_memory_reset_peak();
        assert_int_equal(mr_eval(y), MR_OK);
        peak = ((double)mr_memory_peak() - (double)before) / BYTES;
        if (!given)
            mr_release(x);
        mr_release(y);
    }
    mr_function_release(f);
    return peak;
}

/* Kernels between blocks: two temporaries are alive at once. */
static mr_tree *
sorted_chain(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    (void)ctx;
    for (int i = 0; i < 4; i++)
        x = mr_add(mr_multiply(mr_sort(x, 1), mr_float(0.5)), mr_float(i));
    return mr_tree_leaf(x);
}

/* More operators than a block has room for. */
static mr_tree *
long_chain(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    (void)ctx;
    for (int i = 0; i < 100; i++)
        x = mr_sin(mr_multiply(x, mr_float(1.0 + i)));
    return mr_tree_leaf(x);
}

static mr_tree *
row_written(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);
    mr_array *row = mr_full(MR_SHAPE(1, SIDE), 7.0, MR_FLOAT32);

    (void)ctx;
    return mr_tree_leaf(mr_index_slice_update(x, row, MR_INTS(3, 0),
                                              MR_INTS(4, SIDE), MR_INTS(1, 1)));
}

static void
chain__takes_its_input_and_its_output(void **state)
{
    (void)state;
    assert_true(peak_of(long_chain, false) < 1.1);
    /* one value between two sorts, and an eighth that sorting works in */
    assert_true(peak_of(sorted_chain, false) < 2.2);
}

static void
chain__takes_its_input_alone_when_that_was_given_up(void **state)
{
    (void)state;
    assert_true(peak_of(long_chain, true) < 0.1);
    assert_true(peak_of(row_written, true) < 0.1);
    assert_true(peak_of(row_written, false) < 1.1);
}

static void
same_as_eager(mr_fn fn, bool given)
{
    mr_function *f = mr_compile(fn, NULL, NULL);

    for (int i = 0; i < 2; i++) {
        mr_array *x = square_of(0.11);
        mr_tree *eager = fn(NULL, MR_ARRAYS(x));
        mr_tree *r;

        assert_int_equal(mr_eval(mr_tree_array(eager)), MR_OK);
        /* an argument of its own, unevaluated or not */
        r = mr_call(f, MR_ARRAYS(given ? mr_multiply(x, mr_float(1.0)) : x));
        mrt_assert_same(mr_tree_array(r), mr_tree_array(eager));
        mrt_assert_same(x, square_of(0.11));
    }
    mr_function_release(f);
}

static void
values__are_those_of_eager(void **state)
{
    static const mr_fn all[] = {sorted_chain, long_chain, row_written};

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        same_as_eager(all[i], false);
        same_as_eager(all[i], true);
    }
}

/* (x, x) shares its memory: neither is given up. */
static mr_tree *
two_readers(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0), *b = mr_tree_array_at(in, 1);
    mr_array *y = mr_add(a, mr_float(1.0));

    (void)ctx;
    return mr_tree_leaf(mr_matmul(y, mr_transpose(b, MR_INTS_NONE)));
}

static void
argument__given_twice_stays_whole(void **state)
{
    mr_function *f = mr_compile(two_readers, NULL, NULL);
    mr_array *x = square_of(0.23);
    mr_array *want = mr_tree_array(two_readers(NULL, MR_ARRAYS(x, x)));
    mr_array *lazy = mr_add(x, mr_float(0.0));
    mr_tree *args = MR_ARRAYS(lazy, lazy);

    (void)state;
    mrt_assert_same(mr_tree_array(mr_call(f, args)), want);
    mr_function_release(f);
}

/* ---- failures
 * ----------------------------------------------------------------------- */

/* Rules, constants, views, a kernel, several results. */
static mr_tree *
of_everything(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);
    mr_array *a = mr_multiply(mr_transpose(x, MR_INTS_NONE), mr_float(1.0));
    mr_array *b = mr_divide(mr_negative(mr_negative(x)), mr_float(4.0));
    mr_array *c = mr_full(MR_SHAPE(4), 2.0, MR_FLOAT32);
    mr_array *y = mr_add(mr_matmul(a, b), mr_multiply(c, mr_float(0.5)));

    (void)ctx;
    return MR_ARRAYS(y, mr_add(mr_divide(x, mr_float(4.0)), mr_float(-0.0)),
                     mr_sort(x, 0));
}

/* The first call with row-major arguments, the second with others. */
static bool
two_calls(void *arg)
{
    mr_function *f = mr_compile(of_everything, NULL, NULL);
    mr_scope s = mr_scope_begin();
    bool ok = f != NULL && s.token != 0;
    char *text = NULL;

    for (int i = 0; ok && i < 2; i++) {
        mr_tree *r = mr_call(f, mr_tree_at(arg, i));

        ok = r != NULL && mr_eval_tree(r) == MR_OK;
    }
    if (ok) {
        text = mr_function_explain(f);
        ok = text != NULL;
    }
    mr_text_free(text);
    mr_scope_end(s);
    mr_function_release(f);
    return ok;
}

static void
failures__of_each_pass_are_clean_errors(void **state)
{
    mr_array *x = mr_reshape(
        mr_arange(MR_INTEGER(0), MR_INTEGER(16), MR_INTEGER(1), MR_FLOAT32),
        MR_SHAPE(4, 4));
    mr_tree *args = mr_tree_tuple(
        2,
        (mr_tree *[]){MR_ARRAYS(x), MR_ARRAYS(mr_transpose(x, MR_INTS_NONE))});

    (void)state;
    assert_int_equal(mr_eval_tree(args), MR_OK);
    assert_true(two_calls(args));
    assert_true(mrt_each_failure(two_calls, args) > 50);
    mr_error_take();
    assert_true(two_calls(args));
}

/* A captured array is kept by reference, whatever number of programs. */
static mr_array *big;

static mr_tree *
with_big(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_leaf(
        mr_add(mr_tree_array_at(in, 0), mr_sum(big, MR_AXES(0), false)));
}

static void
constants__are_kept_once(void **state)
{
    mr_function *f[4];
    size_t before;

    (void)state;
    big = square_of(0.5);
    mrt_tasks_end();
    before = mr_memory_active();
    for (int i = 0; i < 4; i++) {
        f[i] = mr_compile(with_big, NULL, NULL);
        assert_int_equal(
            mr_eval(mr_tree_array(mr_call(
                f[i], MR_ARRAYS(mr_zeros(MR_SHAPE(SIDE), MR_FLOAT32))))),
            MR_OK);
    }
    mrt_tasks_end();
    assert_true(mr_memory_active() < before + SLACK);
    for (int i = 0; i < 4; i++)
        mr_function_release(f[i]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(chain__takes_its_input_and_its_output),
        mrt_test(chain__takes_its_input_alone_when_that_was_given_up),
        mrt_test(values__are_those_of_eager),
        mrt_test(argument__given_twice_stays_whole),
        mrt_test(failures__of_each_pass_are_clean_errors),
        mrt_test(constants__are_kept_once),
    };

    return cmocka_run_group_tests_name("compile/memory", tests, NULL, NULL);
}
