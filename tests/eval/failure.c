/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.c -- evaluations that fail: what sticks, what is named, what stays.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "graph/node.h"
#include "marram/marram.h"
#include "support/alive.h"

/* ---- helpers ------------------------------------------------------------ */

static void
assert_all(mr_array *x, int n, float want)
{
    float got[64];

    assert_true(n <= 64);
    assert_int_equal(mr_array_copy_f32(x, got, n), MR_OK);
    for (int i = 0; i < n; i++)
        assert_true(got[i] == want);
}

/* The pending error has this code, operator, and a line of this file. */
static void
assert_error(mr_code code, const char *op, const char *text)
{
    mr_error e = mr_error_take();

    assert_int_equal(e.code, code);
    assert_string_equal(e.op, op);
    assert_non_null(strstr(e.site, "eval/failure.c:"));
    assert_non_null(strstr(e.message, text));
}

/* ---- the data's errors -------------------------------------------------- */

static void
index_out_of_range__names_operator_and_line(void **state)
{
    mr_array *x = mr_array_from_f32((float[]){1, 2, 3}, MR_SHAPE(3));
    mr_array *i = mr_array_from_i32((int32_t[]){0, 7}, MR_SHAPE(2));
    mr_array *before = mr_add(x, x), *bad = mr_take(before, i, 0);
    mr_array *after = mr_negative(bad), *beside = mr_negative(before);

    (void)state;
    assert_int_equal(mr_eval(after), MR_E_INDEX);
    assert_error(MR_E_INDEX, "x[index] or take", "index 7 is out of range");
    /* it sticks */
    assert_int_equal(mr_eval(bad), MR_E_INDEX);
    assert_int_equal(mr_eval(after), MR_E_INDEX);
    mr_error_take();
    assert_int_equal(mr_eval(beside), MR_OK);
    assert_int_equal(mr_eval(before), MR_OK);
    mr_release(beside);
    mr_release(after);
    mr_release(bad);
    mr_release(before);
    mr_release(i);
    mr_release(x);
}

/* An update that may lie over the old value looks at its indices first. */
static void
former_value__is_there_after_an_update_that_failed(void **state)
{
    mr_array *i = mr_array_from_i32((int32_t[]){1, 9}, MR_SHAPE(2));
    mr_array *x = mr_full(MR_SHAPE(4), 3.0, MR_FLOAT32);
    mr_array *one = mr_full(MR_SHAPE(2), 1.0, MR_FLOAT32);
    mr_array *bad, *after, *last, *was = x, *back;
    mr_error why;

    (void)state;
    assert_int_equal(mr_eval(x), MR_OK);
    bad = mr_put_along_axis(x, i, one, 0);
    assert_null(mr_array_former(NULL, x));
    assert_null(mr_array_former(bad, NULL));
    mr_release(x); /* nobody's but the update's */
    after = mr_negative(bad);
    last = mr_exp(after);
    assert_false(mr_array_failed(last, NULL));
    assert_int_equal(mr_eval(last), MR_E_INDEX);
    why = mr_error_take();
    assert_true(mr_array_failed(last, &why));
    assert_true(mr_array_failed(bad, NULL));
    assert_false(mr_array_failed(one, NULL));
    assert_false(mr_array_failed(NULL, &why));
    assert_null(mr_array_former(bad, after)); /* made of it, not it of that */
    back = mr_array_former(last, was);
    assert_ptr_equal(back, was);
    assert_all(back, 4, 3.0F);
    mr_release(back);
    back = mr_array_former(bad, was);
    assert_all(back, 4, 3.0F);
    assert_null(mr_array_former(back, bad)); /* it is computed */
    mr_release(back);
    why.message = "something else";
    assert_false(mr_array_failed(last, &why));
    mr_release(last);
    mr_release(after);
    mr_release(bad);
    mr_release(one);
    mr_release(i);
}

/* A sum of gathered entries would lie over what it is added to. */
static void
former_value__is_not_written_over_by_a_block_that_may_fail(void **state)
{
    enum { N = 1 << 16 };
    int32_t *at = calloc(N, sizeof *at);
    mr_array *source = mr_full(MR_SHAPE(N), 2.0, MR_FLOAT32);
    mr_array *i, *x, *y, *back;

    (void)state;
    assert_non_null(at);
    at[N - 1] = N;
    i = mr_array_from_i32(at, MR_SHAPE(N));
    free(at);
    x = mr_full(MR_SHAPE(N), 5.0, MR_FLOAT32);
    assert_int_equal(mr_eval(x), MR_OK);
    back = mr_take(source, i, 0);
    y = mr_add(x, back);
    mr_release(back);
    mr_release(x);
    assert_int_equal(mr_eval(y), MR_E_INDEX);
    mr_error_take();
    back = mr_array_former(y, x);
    assert_non_null(back);
    x = mr_sum(back, MR_AXES_ALL, false);
    assert_true(mr_array_item_f64(x) == 5.0 * N);
    mr_release(x);
    mr_release(back);
    mr_release(y);
    mr_release(i);
    mr_release(source);
}

static void
failed_kernel__fails_its_dependents_alone(void **state)
{
    mr_array *x = mr_full(MR_SHAPE(4), 1.0, MR_FLOAT32);
    mr_array *a = mrt_count(x, 0);
    mr_array *bad =
        mrt_counted_op(a, (mrt_counted){.counter = 1, .fail = MR_E_VALUE});
    mr_array *good = mrt_count(a, 2), *child = mrt_count(bad, 3);
    mr_array *view = mr_transpose(bad, MR_INTS_NONE);
    mr_array *both = mr_add(good, child), *root[3] = {good, both, view};

    (void)state;
    assert_int_equal(mr_eval_many(root, 3), MR_E_VALUE);
    assert_error(MR_E_VALUE, "counted", "asked to fail");
    assert_true(mr_array_is_evaluated(good));
    assert_all(good, 4, 3.0F);
    assert_all(a, 4, 2.0F);
    assert_int_equal(mr_eval(both), MR_E_VALUE);
    assert_int_equal(mr_eval(view), MR_E_VALUE);
    assert_int_equal(mr_eval(child), MR_E_VALUE);
    mr_error_take();
    assert_int_equal(mrt_runs(1), 1);
    assert_int_equal(mrt_runs(3), 0);

    /* what is made from it later fails by the same cause, without running */
    mr_array *later = mr_exp(child);

    assert_int_equal(mr_eval(later), MR_E_VALUE);
    assert_error(MR_E_VALUE, "counted", "asked to fail");
    mr_release(later);
    mr_release(both);
    mr_release(view);
    mr_release(child);
    mr_release(good);
    mr_release(bad);
    mr_release(a);
    mr_release(x);
}

/* The kernel's input needs a copy, whose producer fails. */
static void
failure_under_a_copy__reaches_the_kernel(void **state)
{
    mr_array *x = mr_full(MR_SHAPE(4, 3), 1.0, MR_FLOAT32);
    mr_array *bad = mrt_counted_op(x, (mrt_counted){.fail = MR_E_VALUE});
    mr_array *t = mr_transpose(bad, MR_INTS_NONE), *y = mrt_count(t, 1);

    (void)state;
    assert_int_equal(mr_eval(y), MR_E_VALUE);
    assert_error(MR_E_VALUE, "counted", "asked to fail");
    assert_int_equal(mrt_runs(1), 0);
    mr_release(y);
    mr_release(t);
    mr_release(bad);
    mr_release(x);
}

static void
failure_on_another_stream__arrives(void **state)
{
    mr_stream s = mr_stream_new((mr_device){MR_CPU, 0});
    mr_stream old = mr_stream_scope(s);
    mr_array *x = mr_full(MR_SHAPE(4), 1.0, MR_FLOAT32);
    mr_array *bad = mrt_counted_op(
        x, (mrt_counted){.fail = MR_E_VALUE, .microseconds = 500});
    mr_array *y;

    (void)state;
    mr_stream_scope(old);
    y = mrt_count(bad, 1);
    assert_int_equal(mr_async_eval(&y, 1), MR_OK);
    assert_int_equal(mr_eval(y), MR_E_VALUE);
    assert_error(MR_E_VALUE, "counted", "asked to fail");
    assert_int_equal(mrt_runs(1), 0);
    mr_release(y);
    mr_release(bad);
    mr_release(x);
    mr_stream_free(s);
}

/* ---- errors that say nothing of the data -------------------------------- */

static void
kernel_that_gives_up_once__is_run_again(void **state)
{
    mr_array *x = mr_full(MR_SHAPE(4), 1.0, MR_FLOAT32);
    mr_array *a = mrt_count(x, 0);
    mr_array *b = mrt_counted_op(
        a, (mrt_counted){.counter = 1, .fail = MR_E_DEVICE, .n_fails = 1});
    mr_array *c = mrt_count(b, 2);

    (void)state;
    assert_int_equal(mr_eval(c), MR_OK);
    assert_int_equal(mr_error_last().code, MR_OK);
    assert_all(c, 4, 4.0F);
    assert_int_equal(mrt_runs(0), 1);
    assert_int_equal(mrt_runs(1), 2);
    assert_int_equal(mrt_runs(2), 1);
    mr_release(c);
    mr_release(b);
    mr_release(a);
    mr_release(x);
}

static void
kernel_that_gives_up__does_not_stick(void **state)
{
    mr_array *x = mr_full(MR_SHAPE(4), 1.0, MR_FLOAT32);
    mr_array *a = mrt_counted_op(
        x, (mrt_counted){.counter = 1, .fail = MR_E_CANCELLED, .n_fails = 6});
    mr_array *b = mrt_count(a, 2);
    int tries = 0;

    (void)state;
    while (mr_eval(b) != MR_OK && tries < 10) {
        assert_error(MR_E_CANCELLED, "counted", "asked to fail");
        assert_false(mr_array_is_evaluated(b));
        tries++;
    }
    assert_true(tries > 0 && tries < 10);
    assert_all(b, 4, 3.0F);
    mr_release(b);
    mr_release(a);
    mr_release(x);
}

struct hammer {
    mr_array *x[40];
};

static void
hammer(void *arg, int who)
{
    struct hammer *h = arg;

    for (int i = 0; i < 40; i++)
        mr_eval(h->x[(i * 7 + who * 11) % 40]);
    mr_error_take();
}

/* Retractions while others plan, wait and run. */
static void
kernels_that_give_up__are_shared_by_threads(void **state)
{
    (void)state;
    for (int round = 0; round < (MRT_TSAN ? 10 : 50); round++) {
        mr_stream s[2] = {mr_stream_new((mr_device){MR_CPU, 0}),
                          mr_stream_new((mr_device){MR_CPU, 0})};
        struct hammer h;

        mrt_counters_clear();
        h.x[0] = mr_full(MR_SHAPE(4), 0.0, MR_FLOAT32);
        for (int i = 1; i < 40; i++) {
            mr_stream old = mr_stream_scope(s[i % 2]);
            mrt_counted how = {.counter = i};

            if (i % 5 == 3) {
                how.fail = MR_E_DEVICE;
                how.n_fails = 2;
            }
            h.x[i] = mrt_counted_op(h.x[i - 1], how);
            mr_stream_scope(old);
        }
        mrt_threads(4, hammer, &h);
        for (int i = 0; i < 40; i++) {
            assert_all(h.x[i], 4, (float)i);
            assert_int_equal(mrt_runs(i), i == 0 ? 0 : i % 5 == 3 ? 3 : 1);
        }
        for (int i = 0; i < 40; i++)
            mr_release(h.x[i]);
        mr_stream_free(s[0]);
        mr_stream_free(s[1]);
    }
}

/* ---- memory ------------------------------------------------------------- */

static void
memory_limit__names_operator_bytes_and_line(void **state)
{
    mr_array *x = mr_full(MR_SHAPE(1 << 20), 1.0, MR_FLOAT32);
    mr_array *small = mr_full(MR_SHAPE(4), 1.0, MR_FLOAT32);
    mr_array *y, *z, *s;
    size_t old;

    (void)state;
    assert_int_equal(mr_eval(x), MR_OK);
    assert_int_equal(mr_eval(small), MR_OK);
    y = mrt_count(x, 0);
    z = mrt_count(y, 1);
    s = mr_add(small, small);
    mr_memory_clear_cache();
    old = mr_memory_set_limit(mr_memory_active() + (1 << 20));
    assert_int_equal(mr_eval(z), MR_E_MEMORY);
    assert_non_null(strstr(mr_error_last().message, "4194304"));
    assert_error(MR_E_MEMORY, "counted", "bytes");
    assert_false(mr_array_is_evaluated(y));
    assert_int_equal(mrt_runs(0), 0);
    /* small things still work */
    assert_int_equal(mr_eval(s), MR_OK);
    assert_all(s, 4, 2.0F);
    mr_memory_set_limit(old);
    assert_int_equal(mr_eval(z), MR_OK);
    assert_true(((const float *)mr_array_data(z))[77] == 3.0F);
    mr_release(s);
    mr_release(z);
    mr_release(y);
    mr_release(small);
    mr_release(x);
}

/* Each thread's chain fits, all of them together do not: they wait. */
static void
fill_and_drop(void *arg, int who)
{
    _Atomic int *wrong = arg;

    for (int i = 0; i < 20; i++) {
        mr_array *x = mr_full(MR_SHAPE(1 << 18), who, MR_FLOAT32);
        mr_array *y = mrt_counted_op(
            x, (mrt_counted){.counter = who, .microseconds = 100});
        mr_code rc = mr_eval(y);

        if (rc == MR_OK &&
            ((const float *)mr_array_data(y))[5] != (float)(who + 1))
            atomic_fetch_add(wrong, 1);
        if (rc != MR_OK && mr_error_take().code != MR_E_MEMORY)
            atomic_fetch_add(wrong, 1);
        mr_release(x);
        mr_release(y);
    }
}

static void
memory_limit__under_threads_is_clean(void **state)
{
    _Atomic int wrong = 0;
    size_t old;

    (void)state;
    mr_memory_clear_cache();
    old = mr_memory_set_limit(mr_memory_active() + 3 * (1 << 20) + (1 << 16));
    mrt_threads(4, fill_and_drop, &wrong);
    mr_memory_set_limit(old);
    assert_int_equal(wrong, 0);
}

/* ---- every allocation failing in turn ----------------------------------- */

static mr_array *
some_graph(void)
{
    mr_scope s = mr_scope_begin();
    mr_array *x = mr_full(MR_SHAPE(6, 4), 1.0, MR_FLOAT32);
    mr_array *y = mr_matmul(x, mr_transpose(x, MR_INTS_NONE));
    mr_array *e = mr_exp(mr_subtract(y, mr_max(y, MR_AXES(-1), true)));
    mr_array *p = mr_divide(e, mr_sum(e, MR_AXES(-1), true));
    mr_array *q = mrt_count(mr_transpose(p, MR_INTS_NONE), 0);
    mr_tree *t = mr_divmod(q, p);
    mr_array *part[2], *r = NULL;

    if (t != NULL && mr_tree_leaves(t, part, 2) == MR_OK)
        r = mr_scope_return(
            s, mr_sum(mr_add(part[0], part[1]), MR_AXES_ALL, false));
    mr_scope_end(s);
    return r;
}

static bool
build_and_evaluate(void *arg)
{
    mr_array *x = some_graph();
    bool ok = x != NULL && mr_eval(x) == MR_OK;

    (void)arg;
    mr_release(x);
    mr_memory_clear_cache();
    return ok;
}

static void
no_memory_anywhere__is_clean(void **state)
{
    int n;

    (void)state;
    build_and_evaluate(NULL);
    n = mrt_each_failure(build_and_evaluate, NULL);
    assert_true(n > 20);
    print_message("  %d allocations failed in turn\n", n);
}

/* The graph outlives the failed evaluation, and the next one works. */
static void
no_memory_in_eval__loses_nothing(void **state)
{
    float want, got;
    mr_array *x = some_graph();
    int failures = 0;

    (void)state;
    assert_int_equal(mr_array_copy_f32(x, &want, 1), MR_OK);
    mr_release(x);
    for (int n = 0;; n++) {
        mr_code rc;

        x = some_graph();
        mr_memory_clear_cache();
        mr__alloc_fail_after(n);
        rc = mr_eval(x);
        mr__alloc_fail_after(-1);
        if (rc != MR_OK) {
            failures++;
            assert_int_equal(mr_error_take().code, MR_E_MEMORY);
        }
        assert_int_equal(mr_eval(x), MR_OK);
        assert_int_equal(mr_array_copy_f32(x, &got, 1), MR_OK);
        assert_true(got == want);
        mr_release(x);
        if (rc == MR_OK && n > failures + 50)
            break;
    }
    assert_true(failures > 0);
    print_message("  %d failed evaluations, all repeated\n", failures);
}

static void
no_memory_in_async_eval__loses_nothing(void **state)
{
    (void)state;
    for (int n = 0; n < 60; n++) {
        mr_array *x = some_graph();
        float got;

        mr_memory_clear_cache();
        mr__alloc_fail_after(n);
        mr_async_eval(&x, 1);
        mr__alloc_fail_after(-1);
        mr_error_take();
        assert_int_equal(mr_array_copy_f32(x, &got, 1), MR_OK);
        mr_release(x);
    }
}

/* ---- what has no value -------------------------------------------------- */

static bool
always(void)
{
    return true;
}

static void
interrupted_wait__ends_and_the_work_goes_on(void **state)
{
    mr_scope s = mr_scope_begin();
    mr_array *x = mr_array_from_f32((float[]){1}, MR_SHAPE(1)), *y;

    (void)state;
    y = mrt_counted_op(x, ((mrt_counted){.counter = 1, .gate = 1}));
    assert_int_equal(mr_async_eval(&y, 1), MR_OK);
    mr_set_interrupt_hooks(always, always);
    assert_int_equal(mr_eval(y), MR_E_CANCELLED);
    assert_int_equal(mr_error_take().code, MR_E_CANCELLED);
    assert_int_equal(mr_stream_sync((mr_stream){0}), MR_E_CANCELLED);
    mr_error_take();
    mr_set_interrupt_hooks(NULL, NULL);
    mrt_gate_open(1);
    assert_all(y, 1, 2.0f);
    assert_int_equal(mrt_runs(1), 1);
    mr_scope_end(s);
}

static void
placeholder__cannot_be_evaluated(void **state)
{
    uint64_t trace = mr__trace_begin();
    int64_t two = 2;
    mr_array *p = mr__node_placeholder(MR_FLOAT32, 1, &two, trace);
    mr_array *x = mr_full(MR_SHAPE(2), 1.0, MR_FLOAT32);
    mr_array *y = mr_add(p, x), *fine = mr_add(x, x);
    mr_array *root[2] = {fine, y};

    (void)state;
    assert_int_equal(mr_eval(y), MR_E_STATE);
    assert_non_null(strstr(mr_error_take().message, "traced"));
    assert_int_equal(mr_eval(p), MR_E_STATE);
    assert_int_equal(mr_eval_many(root, 2), MR_E_STATE);
    mr_error_take();
    assert_all(fine, 2, 2.0F);
    mr_release(fine);
    mr_release(y);
    mr_release(x);
    mr_release(p);
    mr__trace_end(trace);
}

static void
null__is_an_error(void **state)
{
    (void)state;
    assert_int_equal(mr_eval(NULL), MR_E_NULL);
    assert_int_equal(mr_error_take().code, MR_E_NULL);
    assert_int_equal(mr_eval_many(NULL, 0), MR_OK);
}

static int
warm_up(void **state)
{
    mr_array *x = some_graph();

    (void)state;
    mr_eval(x);
    mr_release(x);
    x = mr_full(MR_SHAPE(1 << 20), 1.0, MR_FLOAT32);
    mr_async_eval(&x, 1);
    mr_eval(x);
    mr_release(x);
    live_at_start = live_blocks(-2); /* a second: workers come to rest */
    return 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(index_out_of_range__names_operator_and_line),
        TEST(former_value__is_there_after_an_update_that_failed),
        TEST(former_value__is_not_written_over_by_a_block_that_may_fail),
        TEST(failed_kernel__fails_its_dependents_alone),
        TEST(failure_under_a_copy__reaches_the_kernel),
        TEST(failure_on_another_stream__arrives),
        TEST(kernel_that_gives_up_once__is_run_again),
        TEST(kernel_that_gives_up__does_not_stick),
        cmocka_unit_test(kernels_that_give_up__are_shared_by_threads),
        TEST(memory_limit__names_operator_bytes_and_line),
        cmocka_unit_test(memory_limit__under_threads_is_clean),
        TEST(no_memory_anywhere__is_clean),
        TEST(no_memory_in_eval__loses_nothing),
        TEST(no_memory_in_async_eval__loses_nothing),
        TEST(interrupted_wait__ends_and_the_work_goes_on),
        TEST(placeholder__cannot_be_evaluated),
        TEST(null__is_an_error),
    };

    return cmocka_run_group_tests_name("eval/failure", tests, warm_up, NULL);
}
