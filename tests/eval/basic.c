/* SPDX-License-Identifier: Apache-2.0
 *
 * basic.c -- evaluation on one thread: values, what is kept, memory.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "graph/node.h"
#include "marram/marram.h"
#include "support/alive.h"

/* ---- helpers ------------------------------------------------------------ */

static double
seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void
assert_values(mr_array *x, int n, const float *want)
{
    float got[64];

    assert_true(n <= 64);
    assert_int_equal(mr_array_copy_f32(x, got, n), MR_OK);
    for (int i = 0; i < n; i++)
        assert_true(got[i] == want[i]);
}

/* x = op(x, y), dropping the old x. */
#define STEP(x, call)                                                          \
    do {                                                                       \
        mr_array *next_ = (call);                                              \
                                                                               \
        assert_non_null(next_);                                                \
        mr_release(x);                                                         \
        x = next_;                                                             \
    } while (0)

/* ---- values ------------------------------------------------------------- */

static void
chain__adds_up(void **state)
{
    mr_array *one = mr_array_from_f32((float[]){1, 2, 3}, MR_SHAPE(3));
    mr_array *x = mr_retain(one);

    (void)state;
    for (int i = 0; i < 200; i++)
        STEP(x, mr_add(x, one));
    assert_false(mr_array_is_evaluated(x));
    assert_int_equal(mr_eval(x), MR_OK);
    assert_true(mr_array_is_evaluated(x));
    assert_values(x, 3, (float[]){201, 402, 603});
    mr_release(x);
    mr_release(one);
}

static void
diamond__reads_its_top_twice(void **state)
{
    mr_array *x = mr_array_from_f32((float[]){1, 2, 3, 4}, MR_SHAPE(4));
    mr_array *top = mrt_count(x, 0);
    mr_array *left = mrt_count(top, 1), *right = mr_multiply(top, top);
    mr_array *y = mr_subtract(right, left);

    (void)state;
    mr_release(top);
    mr_release(left);
    mr_release(right);
    assert_int_equal(mr_eval(y), MR_OK);
    assert_values(y, 4, (float[]){1, 5, 11, 19});
    assert_int_equal(mrt_runs(0), 1);
    assert_int_equal(mrt_runs(1), 1);
    mr_release(y);
    mr_release(x);
}

static void
wide_graph__sums_500_arms(void **state)
{
    mr_array *x = mr_array_from_f32((float[]){1, -1}, MR_SHAPE(2));
    mr_array *arm[500], *sum;

    (void)state;
    for (int i = 0; i < 500; i++) {
        mr_array *k = mr_float(i);

        arm[i] = mr_multiply(x, k);
        mr_release(k);
    }
    sum = mr_retain(arm[0]);
    for (int i = 1; i < 500; i++)
        STEP(sum, mr_add(sum, arm[i]));
    for (int i = 0; i < 500; i++)
        mr_release(arm[i]);
    assert_values(sum, 2, (float[]){124750, -124750});
    mr_release(sum);
    mr_release(x);
}

static void
many_roots__are_all_evaluated(void **state)
{
    mr_array *x = mr_array_from_f32((float[]){1}, MR_SHAPE(1));
    mr_array *root[100];

    (void)state;
    for (int i = 0; i < 100; i++)
        root[i] = i == 0 ? mr_negative(x) : mr_add(root[i - 1], x);
    assert_int_equal(mr_eval_many(root, 100), MR_OK);
    for (int i = 0; i < 100; i++) {
        assert_true(mr_array_is_evaluated(root[i]));
        assert_values(root[i], 1, (float[]){(float)(i - 1)});
        mr_release(root[i]);
    }
    mr_release(x);
}

static void
views__copy_nothing_and_are_right(void **state)
{
    mr_array *x =
        mr_array_from_f32((float[]){1, 2, 3, 4, 5, 6}, MR_SHAPE(2, 3));
    mr_array *y = mr_add(x, x);
    mr_array *t = mr_transpose(y, MR_INTS_NONE);
    mr_array *r = mr_reshape(t, MR_SHAPE(6)); /* needs a copy */
    mr_array *of_data = mr_transpose(x, MR_INTS_NONE);

    (void)state;
    mr_release(y);
    assert_int_equal(mr_eval(t), MR_OK);
    assert_int_equal(mr_eval(of_data), MR_OK);
    assert_ptr_equal(mr_array_data(of_data), mr_array_data(x));
    assert_values(of_data, 6, (float[]){1, 4, 2, 5, 3, 6});
    assert_values(t, 6, (float[]){2, 8, 4, 10, 6, 12});
    assert_values(r, 6, (float[]){2, 8, 4, 10, 6, 12});
    mr_release(of_data);
    mr_release(r);
    mr_release(t);
    mr_release(x);
}

static void
several_outputs__are_read_one_by_one(void **state)
{
    mr_array *a = mr_array_from_f32((float[]){7, -7, 9}, MR_SHAPE(3));
    mr_array *b = mr_array_from_f32((float[]){2, 2, 4}, MR_SHAPE(3));
    mr_tree *t = mr_divmod(a, b);
    mr_array *part[2], *sum;

    (void)state;
    assert_non_null(t);
    assert_int_equal(mr_tree_leaves(t, part, 2), MR_OK);
    sum = mr_add(part[0], part[1]);
    assert_values(sum, 3, (float[]){4, -3, 3});
    assert_values(part[0], 3, (float[]){3, -4, 2});
    assert_values(part[1], 3, (float[]){1, 1, 1});
    mr_release(sum);
    mr_tree_release(t);
    mr_release(a);
    mr_release(b);
}

static void
no_elements__evaluate(void **state)
{
    mr_array *x = mr_zeros(MR_SHAPE(0, 3), MR_FLOAT32);
    mr_array *y = mr_add(x, x), *s = mr_sum(y, MR_AXES(0), false);

    (void)state;
    assert_int_equal(mr_eval(y), MR_OK);
    assert_values(s, 3, (float[]){0, 0, 0});
    mr_release(s);
    mr_release(y);
    mr_release(x);
}

/* ---- what is kept ------------------------------------------------------- */

static void
interior__stays_new_unless_held(void **state)
{
    mr_array *x = mr_array_from_f32((float[]){1, 2}, MR_SHAPE(2));
    mr_array *held = mr_add(x, x), *gone = mr_multiply(held, x);
    mr_array *y = mr_subtract(gone, x);
    mr_scope s = mr_scope_begin();
    mr_array *scoped = mr_add(y, x), *z = mr_negative(scoped);

    (void)state;
    mr_release(gone);
    assert_int_equal(mr_eval(z), MR_OK);
    assert_true(mr_array_is_evaluated(held));
    assert_true(mr_array_is_evaluated(y));
    assert_false(mr_array_is_evaluated(scoped));
    assert_values(held, 2, (float[]){2, 4});
    assert_values(y, 2, (float[]){1, 6});
    assert_values(z, 2, (float[]){-2, -8});
    /* computed again, since somebody asks */
    assert_values(scoped, 2, (float[]){2, 8});
    mr_scope_end(s);
    mr_release(y);
    mr_release(held);
    mr_release(x);
}

static void
done__drops_its_inputs(void **state)
{
    mr_array *x = mr_full(MR_SHAPE(1 << 16), 1.0, MR_FLOAT32);
    mr_array *y = mr_add(x, x);
    size_t before;

    (void)state;
    assert_int_equal(mr_eval(x), MR_OK);
    mrt_tasks_end();
    before = mr_memory_active();
    assert_int_equal(mr_eval(y), MR_OK);
    mrt_tasks_end();
    assert_true(mr_memory_active() > before + (1 << 16));
    mr_release(x);
    /* x's memory is gone although y lives */
    assert_true(mr_memory_active() < before + (1 << 16));
    mr_release(y);
}

static void
unevaluated_graph__frees_at_once(void **state)
{
    int64_t live = mr__alloc_live();
    mr_array *x = mr_array_from_f32((float[]){1}, MR_SHAPE(1));
    int64_t with_x = mr__alloc_live();
    mr_array *y = mr_retain(x);

    (void)state;
    for (int i = 0; i < 100000; i++)
        STEP(y, mr_add(y, y));
    mr_release(y);
    assert_int_equal(mr__alloc_live(), with_x);
    mr_release(x);
    assert_int_equal(mr__alloc_live(), live);
}

/* ---- size --------------------------------------------------------------- */

static void
million_adds__evaluate_and_free(void **state)
{
    enum { N = MRT_TSAN ? 100000 : 1000000 };
    mr_array *one = mr_array_from_f32((float[]){1, 2}, MR_SHAPE(2));
    mr_array *x = mr_retain(one);
    double t0 = seconds(), t1, t2, t3;

    (void)state;
    for (int i = 1; i < N; i++)
        STEP(x, mr_add(x, one));
    t1 = seconds();
    assert_int_equal(mr_eval(x), MR_OK);
    t2 = seconds();
    assert_values(x, 2, (float[]){N, 2 * N});
    mr_release(x);
    t3 = seconds();
    mr_release(one);
    print_message("  %d adds: %.0f ns each to build, %.0f to evaluate, %.0f "
                  "ms to free\n",
                  (int)N, (t1 - t0) / N * 1e9, (t2 - t1) / N * 1e9,
                  (t3 - t2) * 1e3);

    /* built and dropped */
    x = mr_array_from_f32((float[]){1}, MR_SHAPE(1));
    for (int i = 0; i < N; i++)
        STEP(x, mr_negative(x));
    t3 = seconds();
    mr_release(x);
    print_message("  %.0f ms to free unevaluated\n", (seconds() - t3) * 1e3);
}

static void
unfused_million__evaluates(void **state)
{
    enum { N = MRT_TSAN ? 20000 : 200000 };
    mr_array *x = mr_array_from_f32((float[]){0}, MR_SHAPE(1));

    (void)state;
    for (int i = 0; i < N; i++)
        STEP(x, mrt_count(x, 0));
    assert_values(x, 1, (float[]){N});
    assert_int_equal(mrt_runs(0), N);
    mr_release(x);
}

static void
fused_chain__peaks_at_input_and_output(void **state)
{
    enum { N = 1 << 22 };
    size_t bytes = N * sizeof(float);
    mr_array *x = mr_full(MR_SHAPE(N), 2.0, MR_FLOAT32);
    mr_array *y;

    (void)state;
    assert_int_equal(mr_eval(x), MR_OK);
    mrt_tasks_end();
    mr_memory_clear_cache();
    mr_memory_reset_peak();
    assert_true(mr_memory_active() >= bytes);
    y = mr_retain(x);
    for (int i = 0; i < 20; i++)
        STEP(y, i % 2 ? mr_multiply(y, x) : mr_negative(y));
    assert_int_equal(mr_eval(y), MR_OK);
    assert_true(mr_memory_peak() < 2 * bytes + bytes / 16);
    mr_release(y);

    /* the input is given away: one array is enough */
    mrt_tasks_end();
    mr_memory_clear_cache();
    mr_memory_reset_peak();
    y = x;
    for (int i = 0; i < 20; i++)
        STEP(y, mr_negative(y));
    assert_int_equal(mr_eval(y), MR_OK);
    assert_true(mr_memory_peak() < bytes + bytes / 16);
    mr_release(y);
}

static void
unfused_chain__reuses_memory(void **state)
{
    enum { N = 1 << 20 };
    size_t bytes = N * sizeof(float);
    mr_array *x = mr_full(MR_SHAPE(N), 0.0, MR_FLOAT32);
    float last;

    (void)state;
    assert_int_equal(mr_eval(x), MR_OK);
    mrt_tasks_end();
    mr_memory_clear_cache();
    mr_memory_reset_peak();
    for (int i = 0; i < 30; i++)
        STEP(x, mrt_count(x, 0));
    assert_int_equal(mr_eval(x), MR_OK);
    /* input, and two that take turns */
    assert_true(mr_memory_peak() < 3 * bytes + bytes / 8);
    last = ((const float *)mr_array_data(x))[N - 1];
    assert_true(last == 30.0F);
    mr_release(x);
}

static int
warm_up(void **state)
{
    mr_array *x = mr_full(MR_SHAPE(1 << 20), 1.0, MR_FLOAT32);
    mr_array *y = mr_add(x, x);

    (void)state;
    mr_eval(y);
    mr_release(x);
    mr_release(y);
    live_at_start = live_blocks(-2); /* a second: workers come to rest */
    return 0;
}

static void
pending__is_counted_to_its_longest_chain(void **state)
{
    mr_array *x = mr_full(MR_SHAPE(4), 1.0, MR_FLOAT32), *y, *z, *both[2];
    mr_pending p = {.size = sizeof p};

    (void)state;
    assert_int_equal(mr_eval(x), MR_OK);
    assert_int_equal(mr_pending_get(&x, 1, &p), MR_OK);
    assert_int_equal(p.nodes + p.longest, 0);
    assert_string_equal(p.site, "");
    y = mr_retain(x);
    for (int i = 0; i < 500; i++)
        STEP(y, mr_add(y, y));
    z = mr_sin(x);
    both[0] = z;
    both[1] = y;
    assert_int_equal(mr_pending_get(both, 2, &p), MR_OK);
    assert_int_equal(p.nodes, 501);
    assert_int_equal(p.longest, 500);
    assert_non_null(strstr(p.site, "basic.c:"));
    assert_int_equal(mr_eval(y), MR_OK);
    assert_int_equal(mr_pending_get(both, 2, &p), MR_OK);
    assert_int_equal(p.nodes, 1);
    mr_release(x);
    mr_release(y);
    mr_release(z);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(chain__adds_up),
        TEST(diamond__reads_its_top_twice),
        TEST(wide_graph__sums_500_arms),
        TEST(many_roots__are_all_evaluated),
        TEST(views__copy_nothing_and_are_right),
        TEST(several_outputs__are_read_one_by_one),
        TEST(no_elements__evaluate),
        TEST(interior__stays_new_unless_held),
        TEST(done__drops_its_inputs),
        TEST(unevaluated_graph__frees_at_once),
        TEST(million_adds__evaluate_and_free),
        TEST(unfused_million__evaluates),
        TEST(fused_chain__peaks_at_input_and_output),
        TEST(unfused_chain__reuses_memory),
        TEST(pending__is_counted_to_its_longest_chain),
    };

    return cmocka_run_group_tests_name("eval/basic", tests, warm_up, NULL);
}
