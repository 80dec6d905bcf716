/* SPDX-License-Identifier: Apache-2.0
 *
 * shapeless.c -- one trace for all shapes, from C: sizes as handles, tapes,
 * what freezes them, failures; options, captured arrays, a cache of one.
 */
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "support/mrt.h"

static _Atomic int traces;

static mr_function *
shapeless(mr_fn fn, void *ctx)
{
    mr_compile_options o = {
        .size = sizeof o, .shapeless = true, .name = "shapeless"};

    return mr_compile(fn, ctx, &o);
}

static mr_array *
ramp(int64_t rows, int64_t columns)
{
    mr_array *x = mr_arange(MR_INTEGER(0), MR_INTEGER(rows * columns),
                            MR_INTEGER(1), MR_FLOAT32);

    return mr_reshape(mr_multiply(x, mr_float(0.1)), MR_SHAPE(rows, columns));
}

/* Compiled and plain agree for rows of 1 to 9. */
static void
agree(mr_function *f, mr_fn fn, void *ctx)
{
    for (int64_t n = 1; n < 10; n++) {
        mr_tree *args = MR_ARRAYS(ramp(n, 4));
        mr_tree *got = mr_call(f, args);
        int before = traces;
        mr_tree *want = fn(ctx, args);

        traces = before;
        assert_non_null(got);
        assert_int_equal(mr_tree_n_leaves(got), mr_tree_n_leaves(want));
        for (int k = 0; k < mr_tree_n_leaves(got); k++)
            mrt_assert_same(mr_tree_array_at(got, k),
                            mr_tree_array_at(want, k));
    }
}

/* ---- sizes ----------------------------------------------------------------
 */

static mr_tree *
by_sizes(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);
    int64_t n = mr_dim(x, 0), half = mr_dim_math(MR_SIZE_FLOOR_DIVIDE, n, 2);
    mr_scalar root, size = MR_INTEGER(n);
    mr_array *y;

    (void)ctx;
    traces++;
    mr_size_math(MR_SIZE_POWER, size, MR_REAL(0.5), &root);
    y = mr_multiply(x, mr_array_from_scalar(root, MR_FLOAT32));
    y = mr_add(y, mr_zeros(MR_SHAPE(n, mr_dim(x, -1)), MR_FLOAT32));
    return MR_ARRAYS(
        mr_reshape(y, MR_SHAPE(2, mr_dim_math(MR_SIZE_MULTIPLY, n, 2))),
        mr_index_slice(x, MR_INTS(half), MR_INTS(n), MR_INTS(1)),
        mr_full(MR_SHAPE(n), 2.5, MR_FLOAT32),
        mr_arange(MR_INTEGER(0), size, MR_INTEGER(1), MR_FLOAT32));
}

static void
sizes__are_followed_from_one_trace(void **state)
{
    mr_function *f = shapeless(by_sizes, NULL);
    mr_cache_info info = {.size = sizeof info};

    (void)state;
    traces = 0;
    agree(f, by_sizes, NULL);
    agree(f, by_sizes, NULL);
    assert_int_equal(traces, 1);
    mr_function_cache_info(f, &info);
    assert_int_equal(info.traces, 1);
    assert_int_equal(info.misses, 9);
    assert_int_equal(info.hits, 9);
    mr_function_release(f);
}

/* A list and a tree of results, an absent array, text, axes. */
static mr_tree *
all_kinds(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);
    mr_tree *parts = mr_split(x, 2, 1);
    mr_array *joined = mr_concatenate(
        (mr_array *[]){mr_tree_array_at(parts, 1), mr_tree_array_at(parts, 0)},
        2, 1);

    (void)ctx;
    traces++;
    return MR_ARRAYS(joined, mr_mean(x, MR_AXES(0), true),
                     mr_einsum("ij,kj->ik", (mr_array *[]){x, joined}, 2),
                     mr_rms_norm(x, MR_NONE, 1e-5));
}

static void
doors__with_every_kind_of_argument_are_played(void **state)
{
    mr_function *f = shapeless(all_kinds, NULL);

    (void)state;
    traces = 0;
    agree(f, all_kinds, NULL);
    assert_int_equal(traces, 1);
    mr_function_release(f);
}

static mr_tree *
squares_mean(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    (void)ctx;
    return mr_tree_leaf(mr_multiply(
        mr_mean(mr_square(x), MR_AXES_ALL, false),
        mr_array_from_scalar(MR_INTEGER(mr_dim(x, 0)), MR_FLOAT32)));
}

static mr_tree *
transformed(void *ctx, const mr_tree *in)
{
    mr_tree *g = mr_value_and_grad(squares_mean, ctx, in, NULL, 0);
    mr_tree *ones =
        MR_ARRAYS(mr_ones_like(mr_tree_array_at(in, 0), MR_DTYPE_DEFAULT));
    mr_tree *j = mr_jvp(squares_mean, ctx, in, ones);

    traces++;
    return MR_ARRAYS(mr_tree_array_at(g, 0), mr_tree_array_at(g, 1),
                     mr_tree_array_at(j, 1));
}

static void
transforms__are_played_with_their_functions(void **state)
{
    mr_function *f = shapeless(transformed, NULL);

    (void)state;
    traces = 0;
    agree(f, transformed, NULL);
    assert_int_equal(traces, 1);
    mr_function_release(f);
}

/* The size as a plain number: right, and traced again. */
static mr_tree *
by_number(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    (void)ctx;
    traces++;
    return MR_ARRAYS(mr_multiply(x, mr_float((double)mr_array_dim(x, 0))));
}

static mr_tree *
by_branch(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);
    mr_scalar n = MR_INTEGER(mr_dim(x, 0));

    (void)ctx;
    traces++;
    return MR_ARRAYS(mr_size_compare(n, MR_SIZE_LESS, MR_INTEGER(4))
                         ? mr_negative(x)
                         : mr_exp(x));
}

static void
reads__and_branches_cost_more_traces(void **state)
{
    mr_function *f = shapeless(by_number, NULL);
    mr_function *g = shapeless(by_branch, NULL);

    (void)state;
    traces = 0;
    agree(f, by_number, NULL);
    assert_int_equal(traces, 9);
    traces = 0;
    agree(g, by_branch, NULL);
    assert_int_equal(traces, 2);
    mr_function_release(f);
    mr_function_release(g);
}

static void
sizes__are_plain_numbers_elsewhere(void **state)
{
    mr_array *x = ramp(3, 4);
    mr_scalar out;

    (void)state;
    assert_false(mr_size_tracing());
    assert_int_equal(mr_dim(x, 1), 4);
    assert_int_equal(mr_dim(x, -2), 3);
    assert_int_equal(mr_dim_math(MR_SIZE_FLOOR_DIVIDE, -7, 2), -4);
    assert_int_equal(mr_dim_math(MR_SIZE_REMAINDER, -7, 2), 1);
    assert_int_equal(mr_dim_math(MR_SIZE_MAXIMUM, 3, 5), 5);
    assert_int_equal(mr_dim_math(MR_SIZE_POWER, 3, 4), 81);
    assert_false(mr_dim_is_symbolic(INT64_C(0x6d61700000000000)));
    assert_int_equal(
        mr_size_math(MR_SIZE_DIVIDE, MR_INTEGER(1), MR_INTEGER(4), &out),
        MR_OK);
    assert_true(out.kind == MR_SCALAR_FLOAT && out.as.f == 0.25);
    assert_true(mr_size_compare(MR_REAL(0.5), MR_SIZE_LESS, MR_INTEGER(1)));
    assert_int_equal(mr_dim(x, 2), -1);
    mrt_assert_error(MR_E_INDEX, "");
    assert_int_equal(mr_dim_math(MR_SIZE_FLOOR_DIVIDE, 1, 0), -1);
    mrt_assert_error(MR_E_VALUE, "");
    assert_int_equal(mr_dim_math(MR_SIZE_MULTIPLY, INT64_MAX, 2), -1);
    mrt_assert_error(MR_E_OVERFLOW, "");
    assert_int_equal(mr_dim_math(MR_SIZE_POWER, 10, 30), -1);
    mrt_assert_error(MR_E_OVERFLOW, "");
    assert_int_equal(mr_dim_math(MR_SIZE_DIVIDE, 1, 2), -1);
    mrt_assert_error(MR_E_VALUE, "");
    assert_int_equal(mr_dim_math((mr_size_op)99, 1, 2), -1);
    mrt_assert_error(MR_E_VALUE, "");
}

/* ---- failures --------------------------------------------------------------
 */

static bool
two_shapes(void *arg)
{
    mr_function *f = shapeless(transformed, NULL);
    mr_scope s = mr_scope_begin();
    mr_tree *r = NULL;

    (void)arg;
    if (f != NULL && s.token != 0) {
        r = mr_call(f, MR_ARRAYS(ramp(2, 4)));
        if (r != NULL)
            r = mr_call(f, MR_ARRAYS(ramp(3, 4)));
    }
    mr_scope_end(s);
    mr_function_release(f);
    return r != NULL;
}

/* Some failures cost nothing but what is remembered for later (a tape, a line
 * for a message): then the call succeeds, and no error is left. */
static void
memory__each_failing_allocation_is_a_clean_error_or_costs_nothing(void **state)
{
    int n_failed = 0;

    (void)state;
    assert_true(two_shapes(NULL));
    for (int n = 0, in_row = 0; in_row < 40; n++) {
        int64_t live = mr__alloc_live();
        bool ok;

        mr__alloc_fail_after(n);
        ok = two_shapes(NULL);
        mr__alloc_fail_after(-1);
        in_row = ok ? in_row + 1 : 0;
        n_failed += !ok;
        assert_int_equal(mr_error_take().code, ok ? MR_OK : MR_E_MEMORY);
        assert_int_equal(mr__alloc_live(), live);
    }
    assert_true(n_failed > 300);
    assert_true(two_shapes(NULL));
}

/* ---- options ---------------------------------------------------------------
 */

static mr_array *captured;

static mr_tree *
captures(void *ctx, const mr_tree *in)
{
    float number = 2.0F;

    (void)ctx;
    return MR_ARRAYS(mr_multiply(mr_tree_array_at(in, 0), mr_exp(captured)),
                     mr_array_from(&number, MR_SCALAR_SHAPE, MR_FLOAT32));
}

static void
captures__can_be_an_error(void **state)
{
    mr_compile_options o = {
        .size = sizeof o, .captures = MR_CAPTURE_ERROR, .name = "f"};
    mr_function *f = mr_compile(captures, NULL, &o);

    (void)state;
    captured = ramp(1, 4);
    assert_null(mr_call(f, MR_ARRAYS(ramp(2, 4))));
    assert_non_null(strstr(mr_error_last().message,
                           "f uses 1 array that it was not given: float32"));
    assert_non_null(strstr(mr_error_last().message, "shapeless.c:"));
    mr_error_take();
    mr_function_release(f);
    o.captures = (mr_capture_mode)7;
    assert_null(mr_compile(captures, NULL, &o));
    mrt_assert_error(MR_E_VALUE, "");
}

/* An older caller's struct ends early: what it lacks has its default. */
static void
options__of_an_older_caller_are_taken(void **state)
{
    struct {
        size_t size;
        bool shapeless;
        const char *name;
        unsigned char junk[64];
    } old = {.size = offsetof(mr_compile_options, max_entries), .name = "old"};
    mr_function *f;

    (void)state;
    memset(old.junk, 0x5a, sizeof old.junk);
    f = mr_compile(by_number, NULL, (const mr_compile_options *)&old);
    assert_non_null(f);
    assert_non_null(mr_call(f, MR_ARRAYS(ramp(2, 4))));
    mr_function_release(f);
}

/* Its size says what may be read of it. */
static void
options__without_their_size_are_refused(void **state)
{
    (void)state;
    assert_null(
        mr_compile(by_number, NULL, &(mr_compile_options){.shapeless = true}));
    mrt_assert_error(MR_E_VALUE, "the size of the mr_compile_options is 0: set "
                                 "it to sizeof(mr_compile_options)");
}

static void
modes__have_names(void **state)
{
    mr_compile_mode m = MR_COMPILE_ENABLED;

    (void)state;
    assert_int_equal(mr_compile_set_mode(MR_COMPILE_NO_FUSE),
                     MR_COMPILE_ENABLED);
    assert_int_equal(mr_compile_set_mode((mr_compile_mode)9),
                     MR_COMPILE_NO_FUSE);
    assert_true(mr_compile_enable(false));
    assert_false(mr_compile_enable(true));
    assert_int_equal(mr_compile_set_mode(MR_COMPILE_ENABLED),
                     MR_COMPILE_ENABLED);
    assert_true(mr_compile_mode_from_name("no_simplify", &m));
    assert_int_equal(m, MR_COMPILE_NO_SIMPLIFY);
    assert_false(mr_compile_mode_from_name("fast", &m));
    assert_string_equal(mr_compile_mode_name(MR_COMPILE_DISABLED), "disabled");
    assert_null(mr_compile_mode_name((mr_compile_mode)-1));
}

/* ---- a cache of one under eight threads ------------------------------------
 */

enum { N_FUNCTIONS = 4 };
static mr_function *functions[N_FUNCTIONS];
static _Atomic int wrong;

static void
calls(void *arg, int i)
{
    (void)arg;
    for (int k = 0; k < 60; k++) {
        mr_scope s = mr_scope_begin();
        int64_t n = 1 + (k + i) % 5;
        mr_tree *r = mr_call(functions[(k + i) % N_FUNCTIONS],
                             MR_ARRAYS(mr_ones(MR_SHAPE(n, 4), MR_FLOAT32)));
        mr_array *y = r == NULL ? NULL : mr_tree_array_at(r, 2);

        /* the derivative of (mean of squares) * n along ones */
        if (y == NULL || mr_array_item_f64(y) != 2.0 * (double)n)
            wrong++;
        mr_scope_end(s);
    }
}

static void
threads__share_a_cache_of_one_entry(void **state)
{
    uint64_t old = mr_compile_set_cache_limit(1);
    mr_cache_info info = {.size = sizeof info};

    (void)state;
    wrong = 0;
    for (int i = 0; i < N_FUNCTIONS; i++)
        functions[i] = i % 2 ? shapeless(transformed, NULL)
                             : mr_compile(transformed, NULL, NULL);
    mrt_threads(8, calls, NULL);
    assert_int_equal(wrong, 0);
    mr_compile_cache_info(&info);
    assert_true(info.entries <= 1);
    for (int i = 0; i < N_FUNCTIONS; i++)
        mr_function_release(functions[i]);
    mr_compile_set_cache_limit(old);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(sizes__are_followed_from_one_trace),
        mrt_test(doors__with_every_kind_of_argument_are_played),
        mrt_test(transforms__are_played_with_their_functions),
        mrt_test(reads__and_branches_cost_more_traces),
        mrt_test(sizes__are_plain_numbers_elsewhere),
        mrt_test(
            memory__each_failing_allocation_is_a_clean_error_or_costs_nothing),
        mrt_test(captures__can_be_an_error),
        mrt_test(options__of_an_older_caller_are_taken),
        mrt_test(options__without_their_size_are_refused),
        mrt_test(modes__have_names),
        mrt_test(threads__share_a_cache_of_one_entry),
    };

    return cmocka_run_group_tests_name("compile/shapeless", tests, NULL, NULL);
}
