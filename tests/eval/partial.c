/* SPDX-License-Identifier: Apache-2.0
 *
 * partial.c -- results fail with what they depend on: of a compiled call, of a
 * group, of one call after the other; what runs, what is kept, who may ask.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/node.h"
#include "support/alive.h"
#include "support/mrt.h"

enum { SIDE = 128, ROUNDS = MRT_TSAN ? 100 : 1000 };

/* ---- helpers ------------------------------------------------------------ */

static mr_stats
stats(void)
{
    mr_stats s = {.size = sizeof s};

    assert_int_equal(mr_stats_get(&s), MR_OK);
    return s;
}

static void
assert_fails(mr_array *x, mr_code code)
{
    assert_int_equal(mr_eval(x), code);
    assert_int_equal(mr_error_take().code, code);
    assert_int_equal(mr__state(x), MR_FAILED);
}

/* All elements of a float32 array. */
static void
assert_is(mr_array *x, double want)
{
    const float *v;

    assert_int_equal(mr_eval(x), MR_OK);
    v = mr_array_data(x);
    for (int64_t i = 0; i < mr_array_size(x); i++)
        assert_true(v[i] == (float)want);
}

static mr_array *
filled(double x)
{
    mr_array *a = mr_full(MR_SHAPE(SIDE, SIDE), x, MR_FLOAT32);

    assert_int_equal(mr_eval(a), MR_OK);
    return a;
}

/* x to (fails, depends on it, does not, on both, the first's view) */
static mr_tree *
some_fail(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0), *i = mr_tree_array_at(in, 1);
    mr_array *bad = mr_take(x, i, 0), *child = mr_sort(bad, 1);
    mr_array *good = mr_add(mr_sort(x, 0), x);
    mr_array *more = mr_sort(mr_multiply(good, good), 1);

    (void)ctx;
    return MR_ARRAYS(bad, child, more, mr_add(child, more),
                     mr_transpose(bad, MR_INTS_NONE));
}

enum { N_RESULTS = 5, GOOD = 2 };

/* A matrix of ones, and rows of it of which one is not there. */
static mr_tree *
ones_and_rows(void)
{
    int32_t rows[SIDE] = {[7] = -SIDE - 1};

    return MR_ARRAYS(filled(1.0), mr_array_from_i32(rows, MR_SHAPE(SIDE)));
}

static mr_function *
compiled(void)
{
    return mr_compile(some_fail, NULL, NULL);
}

static void
assert_outcomes(const mr_tree *r)
{
    for (int k = 0; k < N_RESULTS; k++)
        if (k == GOOD)
            assert_is(mr_tree_array_at(r, k), 4.0);
        else
            assert_fails(mr_tree_array_at(r, k), MR_E_INDEX);
}

static void
done_with(mr_function *f)
{
    mr_function_release(f);
    mr_compile_cache_clear();
}

/* ---- a call ------------------------------------------------------------- */

static void
call__fails_in_what_depends_on_the_failure(void **state)
{
    mr_tree *args = ones_and_rows();
    mr_function *f = compiled();

    (void)state;
    for (int turn = 1; turn <= 3; turn++) {
        mr_tree *r = mr_call(f, args);

        assert_int_equal(mr_eval_tree(r), MR_E_INDEX);
        mrt_assert_error(MR_E_INDEX, "index -129 is out of range");
        assert_outcomes(r);
    }
    assert_is(mr_tree_array_at(args, 0), 1.0);
    done_with(f);
}

static void
call__error_names_operator_line_and_call(void **state)
{
    mr_tree *args = ones_and_rows();
    mr_function *f = compiled();
    mr_error e;

    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(
            mr_eval(mr_tree_array_at(mr_call(f, args), 3 - turn * 2)),
            MR_E_INDEX);
        e = mr_error_take();
        assert_string_equal(e.op, "x[index] or take");
        assert_non_null(strstr(e.site, "eval/partial.c:"));
        assert_string_equal(e.notes, "inside a compiled function\n"
                                     "while computing compiled");
    }
    done_with(f);
}

/* Small, warm and seen by nobody else: the thread computes it alone. */
static mr_tree *
small_fail(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0), *i = mr_tree_array_at(in, 1);

    (void)ctx;
    return MR_ARRAYS(mr_take(x, i, 0), mr_add(x, x), mr_sort(x, 0));
}

static void
call__computed_alone_has_such_results_too(void **state)
{
    mr_array *x = mr_array_from_f32((float[]){1, 2, 3}, MR_SHAPE(3));
    mr_array *i = mr_array_from_i32((int32_t[]){0, 3}, MR_SHAPE(2));
    mr_tree *args = MR_ARRAYS(x, i);
    mr_function *f = mr_compile(small_fail, NULL, NULL);
    mr_stats before;

    (void)state;
    assert_int_equal(mr_eval_tree(mr_call(f, args)), MR_E_INDEX);
    mr_error_take();
    before = stats();
    for (int turn = 0; turn < 10; turn++) {
        mr_tree *r = mr_call(f, args);

        assert_int_equal(mr_eval_tree(r), MR_E_INDEX);
        mrt_assert_error(MR_E_INDEX, "index 3 is out of range");
        mrt_assert_f32(mr_tree_array_at(r, 1), (float[]){2, 4, 6}, 3);
        mrt_assert_f32(mr_tree_array_at(r, 2), (float[]){1, 2, 3}, 3);
        assert_int_equal(mr__state(mr_tree_array_at(r, 0)), MR_FAILED);
    }
    assert_int_equal(stats().plan_holds - before.plan_holds, 1);
    done_with(f);
}

static void
result__asked_for_later_says_its_own(void **state)
{
    mr_tree *args = ones_and_rows();
    mr_function *f = compiled();

    (void)state;
    for (int first = 0; first < N_RESULTS; first++) {
        mr_tree *r = mr_call(f, args);
        mr_stats before;

        /* asked for alone; the others are computed with it, or failed */
        mr_eval(mr_tree_array_at(r, first));
        mr_error_take();
        assert_int_equal(mr__state(mr_tree_array_at(r, GOOD)),
                         first == GOOD ? MR_DONE : MR_NEW);
        before = stats();
        assert_outcomes(r);
        assert_int_equal(stats().kernels_run, before.kernels_run);
    }
    done_with(f);
}

static void
consumers__on_other_streams_fail_with_theirs(void **state)
{
    mr_stream s = mr_stream_new((mr_device){MR_CPU, 0}), old;
    mr_tree *args = ones_and_rows();
    mr_function *f = compiled();

    (void)state;
    for (int turn = 0; turn < 20; turn++) {
        mr_tree *r = mr_call(f, args);
        mr_array *x[3];

        old = mr_stream_scope(s);
        x[0] = mrt_count(mr_tree_array_at(r, GOOD), 5);
        x[1] = mrt_count(mr_tree_array_at(r, 0), 6);
        x[2] = mr_add(mr_tree_array_at(r, GOOD), mr_tree_array_at(r, 1));
        mr_stream_scope(old);
        assert_int_equal(mr_async_eval(x, 3), MR_OK);
        assert_is(x[0], 5.0);
        assert_fails(x[1], MR_E_INDEX);
        assert_fails(x[2], MR_E_INDEX);
        assert_int_equal(mrt_runs(6), 0);
    }
    mr_stream_free(s);
    done_with(f);
}

/* (a, b) to (rows of a in order, b * b in order, a - b, a view of the first) */
static mr_tree *
crossed(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0), *b = mr_tree_array_at(in, 1);
    mr_array *x = mr_sort(a, 1);

    (void)ctx;
    return MR_ARRAYS(x, mr_sort(mr_multiply(b, b), 1), mr_subtract(a, b),
                     mr_transpose(x, MR_INTS_NONE));
}

static void
argument__that_failed_fails_what_reads_it(void **state)
{
    mr_tree *args = ones_and_rows();
    mr_function *f = compiled(), *g = mr_compile(crossed, NULL, NULL);

    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        mr_tree *r = mr_call(f, args), *t;
        int bad = turn < 2 ? 0 : 1;

        if (turn % 2 == 1) { /* known before the call is planned */
            mr_eval_tree(r);
            mr_error_take();
        }
        t = mr_call(g, MR_ARRAYS(mr_tree_array_at(r, bad == 0 ? 1 : GOOD),
                                 mr_tree_array_at(r, bad == 0 ? GOOD : 1)));
        assert_is(mr_tree_array_at(t, 1 - bad), bad == 0 ? 16.0 : 4.0);
        assert_fails(mr_tree_array_at(t, bad), MR_E_INDEX);
        assert_fails(mr_tree_array_at(t, 2), MR_E_INDEX);
        if (bad == 0)
            assert_fails(mr_tree_array_at(t, 3), MR_E_INDEX);
        else
            assert_is(mr_tree_array_at(t, 3), 4.0);
    }
    done_with(f);
    done_with(g);
}

static mr_tree *
second_in_order(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return MR_ARRAYS(mr_sort(mr_tree_array_at(in, 1), 1));
}

static void
argument__that_failed_is_not_read_for_the_one_result(void **state)
{
    mr_tree *args = ones_and_rows();
    mr_array *x = mr_tree_array_at(args, 0);
    mr_function *f = mr_compile(second_in_order, NULL, NULL);

    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        mr_array *bad = mr_take(x, mr_tree_array_at(args, 1), 0);
        mr_tree *r;

        if (turn % 2 == 1) /* known before the call is planned */
            assert_fails(bad, MR_E_INDEX);
        r = mr_call(f, MR_ARRAYS(bad, x));
        assert_is(mr_tree_array_at(r, 0), 1.0);
        r = mr_call(f, MR_ARRAYS(x, bad));
        assert_fails(mr_tree_array_at(r, 0), MR_E_INDEX);
        assert_fails(bad, MR_E_INDEX);
    }
    done_with(f);
}

/* (x, i, z) to rows of 2 x, as i says, 2 x and -z: they may lie in x and z. */
static mr_tree *
written_over(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0), *i = mr_tree_array_at(in, 1);
    mr_array *y = mr_add(x, x);

    (void)ctx;
    return MR_ARRAYS(mr_sort(mr_take(y, i, 0), 1), mr_sort(y, 1),
                     mr_negative(mr_tree_array_at(in, 2)));
}

static void
argument__given_up_or_not_nothing_else_is_lost(void **state)
{
    int32_t rows[SIDE] = {[SIDE / 2] = SIDE};
    mr_array *i = mr_array_from_i32(rows, MR_SHAPE(SIDE));
    mr_function *f = mr_compile(written_over, NULL, NULL);

    (void)state;
    for (int turn = 0; turn < 6; turn++) {
        mr_array *x = mr_full(MR_SHAPE(SIDE, SIDE), 3.0, MR_FLOAT32);
        mr_array *z = mr_full(MR_SHAPE(SIDE, SIDE), 4.0, MR_FLOAT32);
        mr_array *view = turn % 2 ? mr_transpose(x, MR_INTS_NONE) : NULL;
        mr_scope s = mr_scope_begin();
        mr_tree *args = MR_ARRAYS(x, i, z), *r = mr_call(f, args);

        if (view != NULL)
            assert_int_equal(mr_eval(view), MR_OK);
        mr_retain(mr_tree_array_at(r, 0));
        mr_retain(mr_tree_array_at(r, 1));
        mr_retain(mr_tree_array_at(r, 2));
        r = mr_scope_return_tree(s, r);
        mr_scope_end(s);
        assert_int_equal(mr_eval_tree(r), MR_E_INDEX);
        mr_error_take();
        assert_fails(mr_tree_array_at(r, 0), MR_E_INDEX);
        assert_is(mr_tree_array_at(r, 1), 6.0);
        assert_is(mr_tree_array_at(r, 2), -4.0);
        if (view != NULL)
            assert_is(view, 3.0);
        for (int k = 0; k < 3; k++)
            mr_release(mr_tree_array_at(r, k));
    }
    done_with(f);
}

/* ---- other graphs ------------------------------------------------------- */

static void
group__that_is_half_wrong_gives_the_other_half(void **state)
{
    int32_t rows[SIDE] = {[7] = -SIDE - 1};
    mr_array *x = filled(2.0), *i = mr_array_from_i32(rows, MR_SHAPE(SIDE));
    mr_array *a = mr_add(x, x), *b = mr_add(mr_take(x, i, 0), a);
    mr_array *c = mr_multiply(b, a), *d = mr_multiply(a, a);
    mr_array *e = mr_add(c, d), *root[] = {a, b, d, e};
    mr_stats before = stats();

    (void)state;
    assert_int_equal(mr_eval_many(root, 4), MR_E_INDEX);
    mrt_assert_error(MR_E_INDEX, "index -129 is out of range");
    assert_is(a, 4.0);
    assert_is(d, 16.0);
    assert_fails(b, MR_E_INDEX);
    assert_fails(e, MR_E_INDEX);
    assert_true(stats().kernels_run - before.kernels_run <= 2);
}

/* What failed is read by one member of a group. */
static void
group__of_which_an_input_failed_gives_the_rest(void **state)
{
    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        mr_array *x = filled(2.0), *p = mrt_count(x, 1);
        mr_array *bad = mrt_counted_op(x, (mrt_counted){.fail = MR_E_VALUE});
        mr_array *product = mr_matmul(turn == 0 ? x : bad, x);
        mr_array *a = mr_add(product, p), *b = mr_multiply(p, p);
        mr_array *c = mr_subtract(mr_add(a, b), turn == 0 ? bad : p);
        mr_array *root[] = {a, b, c};

        assert_int_equal(mr_eval_many(root, 3), MR_E_VALUE);
        mr_error_take();
        assert_is(b, 9.0);
        assert_fails(c, MR_E_VALUE);
        if (turn == 0)
            assert_is(a, 4.0 * SIDE + 3.0);
        else
            assert_fails(a, MR_E_VALUE);
    }
}

static void
node__over_what_failed_fails_at_once_others_do_not(void **state)
{
    mr_array *x = filled(1.0);
    mr_array *bad = mrt_counted_op(x, (mrt_counted){.fail = MR_E_VALUE});
    mr_array *good = mrt_count(x, 1), *child = mrt_count(bad, 2);
    mr_array *last = mr_add(mr_transpose(child, MR_INTS_NONE), good);
    mr_array *root[] = {last, good};

    (void)state;
    assert_fails(bad, MR_E_VALUE);
    assert_int_equal(mr_eval_many(root, 2), MR_E_VALUE);
    mrt_assert_error(MR_E_VALUE, "asked to fail");
    assert_int_equal(mr__state(last), MR_FAILED);
    assert_int_equal(mr__state(child), MR_FAILED);
    assert_is(good, 2.0);
    assert_int_equal(mrt_runs(2), 0);
    /* an asynchronous evaluation says at once what is known */
    last = mr_exp(bad);
    assert_int_equal(mr_async_eval(&last, 1), MR_E_VALUE);
    mr_error_take();
}

/* ---- errors that say nothing of the data -------------------------------- */

/* One each of all that may fail in part; false: an error that is no data's. */
static bool
evaluate_all_kinds(void *arg)
{
    mr_scope s = mr_scope_begin();
    int32_t rows[SIDE] = {[7] = SIDE};
    mr_array *x = mr_full(MR_SHAPE(SIDE, SIDE), 1.0, MR_FLOAT32);
    mr_array *i = mr_array_from_i32(rows, MR_SHAPE(SIDE));
    mr_function *f = compiled(), *g = mr_compile(crossed, NULL, NULL);
    mr_tree *r = NULL, *t = NULL;
    mr_array *a = mr_add(x, x), *b = mr_add(mr_take(x, i, 0), a);
    bool ok = f != NULL && g != NULL && b != NULL && mr_eval(x) == MR_OK;

    (void)arg;
    if (ok)
        r = mr_call(f, MR_ARRAYS(x, i));
    if (r != NULL)
        t = mr_call(g,
                    MR_ARRAYS(mr_tree_array_at(r, 1), mr_tree_array_at(r, 2)));
    ok = t != NULL && mr_eval(mr_tree_array_at(t, 1)) == MR_OK &&
         mr_eval_tree(r) == MR_E_INDEX &&
         mr_eval(mr_tree_array_at(r, GOOD)) == MR_OK &&
         mr_eval(mr_tree_array_at(t, 2)) == MR_E_INDEX &&
         mr_eval_many((mr_array *[]){a, b}, 2) == MR_E_INDEX &&
         mr_eval(a) == MR_OK;
    if (ok)
        mr_error_take();
    mr_function_release(f);
    mr_function_release(g);
    mr_scope_end(s);
    mr_compile_cache_clear();
    mr_memory_clear_cache();
    return ok;
}

static void
no_memory_anywhere__is_clean(void **state)
{
    int failures = 0;
    int64_t live;

    (void)state;
    evaluate_all_kinds(NULL);
    live = live_blocks(-2); /* a second: workers come to rest */
    /* some are done without, so the first that does no harm is not the last */
    for (int n = 0; n < 400; n++) {
        mr__alloc_fail_after(n);
        if (!evaluate_all_kinds(NULL)) {
            assert_int_equal(mr_error_last().code, MR_E_MEMORY);
            failures++;
        }
        mr__alloc_fail_after(-1);
        mr_error_take();
        assert_int_equal(live_blocks(live), live);
    }
    print_message("  %d allocations failed in turn\n", failures);
    assert_true(failures > 50);
}

/* The same arrays, asked again. */
static void
no_memory_in_eval__loses_nothing(void **state)
{
    mr_array *small = mr_array_from_f32((float[]){1, 2, 3}, MR_SHAPE(3));
    mr_array *i = mr_array_from_i32((int32_t[]){0, 3}, MR_SHAPE(2));
    mr_function *f = compiled(), *g = mr_compile(small_fail, NULL, NULL);
    int failures = 0;

    (void)state;
    for (int n = 0; n < 120; n++) {
        mr_scope s = mr_scope_begin();
        mr_tree *r = mr_call(f, ones_and_rows());
        mr_tree *t = mr_call(g, MR_ARRAYS(small, i));

        mr_memory_clear_cache();
        mr__alloc_fail_after(n);
        failures += mr_eval_tree(r) == MR_E_MEMORY;
        failures += mr_eval_tree(t) == MR_E_MEMORY;
        mr__alloc_fail_after(-1);
        mr_error_take();
        assert_outcomes(r);
        assert_fails(mr_tree_array_at(t, 0), MR_E_INDEX);
        mrt_assert_f32(mr_tree_array_at(t, 1), (float[]){2, 4, 6}, 3);
        mr_scope_end(s);
    }
    print_message("  %d failed evaluations, all repeated\n", failures);
    assert_true(failures > 3);
    done_with(f);
    done_with(g);
}

static mr_tree *
both_doubled(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0), *b = mr_tree_array_at(in, 1);

    (void)ctx;
    return MR_ARRAYS(mr_add(a, a), mr_add(b, b));
}

/* (x + x, its bad rows, z - z, bad rows + z), whose inputs nobody holds. */
static mr_tree *
call_and_group(mr_function *f, mr_array *x, mr_array *i)
{
    mr_scope s = mr_scope_begin();
    mr_tree *r = mr_call(
        f, MR_ARRAYS(mr_add(x, x), mr_take(mr_sqrt(mr_add(x, x)), i, 0)));
    mr_array *z = mr_exp(x);

    r = mr_scope_return_tree(
        s, MR_ARRAYS(mr_tree_array_at(r, 0), mr_tree_array_at(r, 1),
                     mr_subtract(z, z), mr_add(mr_take(x, i, 0), z)));
    mr_scope_end(s);
    return r;
}

/* Memory is reused, so nothing runs again: one failed allocation is made up
 * for, in a call and in a group. */
static void
no_memory_for_a_reason__loses_no_other_result(void **state)
{
    mr_array *i = mr_array_from_i32((int32_t[]){4, 0, 1, 2}, MR_SHAPE(4));
    mr_array *x = mr_full(MR_SHAPE(4), 1.5, MR_FLOAT32);
    mr_function *f = mr_compile(both_doubled, NULL, NULL);

    (void)state;
    assert_is(x, 1.5);
    for (int n = 0; n < 80; n++) {
        mr_scope s = mr_scope_begin();
        mr_tree *r = call_and_group(f, x, i);
        int first = n < 40 ? 0 : 2;
        mr_array *two[] = {mr_tree_array_at(r, first),
                           mr_tree_array_at(r, first + 1)};

        mr__alloc_fail_after(n % 40);
        mr_eval_many(two, 2);
        mr__alloc_fail_after(-1);
        mr_error_take();
        for (int k = 0; k < 4; k += 2) {
            assert_is(mr_tree_array_at(r, k), k == 0 ? 6.0 : 0.0);
            assert_fails(mr_tree_array_at(r, k + 1), MR_E_INDEX);
        }
        mr_scope_end(s);
    }
    done_with(f);
}

/* ---- threads ------------------------------------------------------------ */

typedef struct shared {
    mr_tree *r[2];
    _Atomic int wrong;
} shared;

/* A big call and a small one; each thread begins with another result. */
static void
ask(void *arg, int who)
{
    shared *s = arg;

    for (int n = 0; n < 2 * N_RESULTS; n++) {
        int k = (who + n) % N_RESULTS;
        mr_code rc = mr_eval(mr_tree_array_at(s->r[0], k));

        if (rc != (k == GOOD ? MR_OK : MR_E_INDEX))
            s->wrong++;
        k %= 3;
        rc = mr_eval(mr_tree_array_at(s->r[1], k));
        if (rc != (k == 0 ? MR_E_INDEX : MR_OK))
            s->wrong++;
        mr_error_take();
    }
}

static void
threads__that_want_different_results_of_one_call(void **state)
{
    mr_array *small = mr_array_from_f32((float[]){1, 2, 3}, MR_SHAPE(3));
    mr_array *i = mr_array_from_i32((int32_t[]){0, 3}, MR_SHAPE(2));
    mr_tree *args = ones_and_rows(), *few = MR_ARRAYS(small, i);
    mr_function *f = compiled(), *g = mr_compile(small_fail, NULL, NULL);

    (void)state;
    for (int round = 0; round < ROUNDS / 10; round++) {
        mr_scope scope = mr_scope_begin();
        shared s = {.r = {mr_call(f, args), mr_call(g, few)}};

        mrt_threads(8, ask, &s);
        assert_int_equal(s.wrong, 0);
        assert_outcomes(s.r[0]);
        mr_scope_end(scope);
    }
    done_with(f);
    done_with(g);
}

/* ------------------------------------------------------------------------- */

static int
open_test(void **state)
{
    begin(state);
    return mrt_open(state);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_test, mrt_close)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(call__fails_in_what_depends_on_the_failure),
        TEST(call__error_names_operator_line_and_call),
        TEST(call__computed_alone_has_such_results_too),
        TEST(result__asked_for_later_says_its_own),
        TEST(consumers__on_other_streams_fail_with_theirs),
        TEST(argument__that_failed_fails_what_reads_it),
        TEST(argument__that_failed_is_not_read_for_the_one_result),
        TEST(argument__given_up_or_not_nothing_else_is_lost),
        TEST(group__that_is_half_wrong_gives_the_other_half),
        TEST(group__of_which_an_input_failed_gives_the_rest),
        TEST(node__over_what_failed_fails_at_once_others_do_not),
        TEST(no_memory_anywhere__is_clean),
        TEST(no_memory_in_eval__loses_nothing),
        TEST(no_memory_for_a_reason__loses_no_other_result),
        TEST(threads__that_want_different_results_of_one_call),
    };

    return cmocka_run_group_tests_name("eval/partial", tests, NULL, NULL);
}
