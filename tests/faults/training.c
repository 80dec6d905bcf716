/* SPDX-License-Identifier: Apache-2.0
 *
 * training.c -- a training step of a classifier with each allocation failing
 * in turn: eager, compiled at a miss and at a hit; transforms; draws.
 *
 * Every failure must be MR_E_MEMORY, leak nothing, leave the arrays of before
 * as they were, and the same call must give the right bits right after it.
 */
#include "faults/each.h"

/* ---- the step ------------------------------------------------------------ */

enum { ROWS = 6, PIXELS = 5, HIDDEN = 7, DIGITS = 3 };

/* A dict of weights from fixed numbers. */
static mr_tree *
model_new(double scale)
{
    const char *name[] = {"w1", "b1", "w2", "b2"};
    mr_array *w1 = mr_sin(mr_arange(MR_INTEGER(0), MR_INTEGER(PIXELS * HIDDEN),
                                    MR_INTEGER(1), MR_FLOAT32));
    mr_array *w2 = mr_cos(mr_arange(MR_INTEGER(0), MR_INTEGER(HIDDEN * DIGITS),
                                    MR_INTEGER(1), MR_FLOAT32));
    mr_array *k = mr_float(scale);
    mr_tree *p[] = {
        mr_tree_leaf(mr_multiply(k, mr_reshape(w1, MR_SHAPE(PIXELS, HIDDEN)))),
        mr_tree_leaf(mr_zeros(MR_SHAPE(HIDDEN), MR_FLOAT32)),
        mr_tree_leaf(mr_multiply(k, mr_reshape(w2, MR_SHAPE(HIDDEN, DIGITS)))),
        mr_tree_leaf(mr_zeros(MR_SHAPE(DIGITS), MR_FLOAT32))};

    return mr_tree_dict(4, name, p);
}

static mr_array *
dense(const mr_tree *p, const char *w, const char *b, mr_array *x)
{
    return mr_add(mr_matmul(x, mr_tree_get_array(p, w)),
                  mr_tree_get_array(p, b));
}

/* (weights, rows, labels) to the mean cross entropy. */
static mr_tree *
loss(void *ctx, const mr_tree *in)
{
    mr_tree *p = mr_tree_at(in, 0);
    mr_array *x = dense(p, "w1", "b1", mr_tree_array_at(in, 1));
    mr_array *z = dense(p, "w2", "b2", mr_maximum(x, mr_float(0.0)));
    mr_array *y = mr_expand_dims(mr_tree_array_at(in, 2), MR_AXES(1));
    mr_array *all = mr_logsumexp(z, MR_AXES(1), true);
    mr_array *each = mr_subtract(all, mr_take_along_axis(z, y, 1));

    (void)ctx;
    return mr_tree_leaf(mr_mean(each, MR_AXES_ALL, false));
}

static mr_array *
blend(void *keep, mr_array *const *x)
{
    return mr_add(x[1], mr_multiply(keep, mr_subtract(x[0], x[1])));
}

static mr_array *
blend_square(void *keep, mr_array *const *x)
{
    return blend(keep, (mr_array *[]){x[0], mr_square(x[1])});
}

static mr_array *
update(void *rate, mr_array *const *x)
{
    mr_array *slope = mr_divide(x[1], mr_add(mr_sqrt(x[2]), mr_float(1e-8)));

    return mr_subtract(x[0], mr_multiply(rate, slope));
}

/* ((weights, mean, mean square), rate, rows, labels) to (state, loss). */
static mr_tree *
train_step(void *ctx, const mr_tree *in)
{
    mr_tree *old = mr_tree_at(in, 0), *p = mr_tree_at(old, 0);
    mr_tree *args = MR_TUPLE(p, mr_tree_at(in, 2), mr_tree_at(in, 3));
    mr_tree *found = mr_value_and_grad(loss, ctx, args, NULL, 0);
    mr_tree *m[] = {mr_tree_at(old, 1), mr_tree_at(found, 1)};
    mr_tree *v[] = {mr_tree_at(old, 2), mr_tree_at(found, 1)};
    mr_tree *next[] = {p, mr_tree_map(blend, mr_float(0.9), 2, m),
                       mr_tree_map(blend_square, mr_float(0.999), 2, v)};

    next[0] = mr_tree_map(update, mr_tree_array_at(in, 1), 3, next);
    return MR_TUPLE(mr_tree_tuple(3, next), mr_tree_at(found, 0));
}

/* The arguments of train_step, evaluated. */
static mr_tree *
step_args(void)
{
    float x[ROWS * PIXELS];
    mr_tree *p = model_new(0.5), *zeros = model_new(0.0), *args;

    for (int i = 0; i < ROWS * PIXELS; i++)
        x[i] = (float)(i * i % 17) / 16.0F;
    args = MR_TUPLE(MR_TUPLE(p, zeros, zeros), mr_tree_leaf(mr_float(0.01)),
                    mr_tree_leaf(mr_array_from_f32(x, MRT_SHAPE(ROWS, PIXELS))),
                    mr_tree_leaf(mr_array_from_i32(
                        (int32_t[]){0, 1, 2, 2, 1, 0}, MRT_SHAPE(ROWS))));
    assert_non_null(args);
    assert_int_equal(mr_eval_tree(args), MR_OK);
    return args;
}

/* ---- eager and compiled -------------------------------------------------- */

typedef struct step {
    mr_tree *args;
    mr_function *f;
} step;

static mr_tree *
step_eager(void *arg)
{
    return each_evaluated(train_step(NULL, ((step *)arg)->args));
}

static mr_tree *
step_call(void *arg)
{
    step *s = arg;

    return each_evaluated(mr_call(s->f, s->args));
}

static mr_tree *
step_compile(void *arg)
{
    step *s = arg;

    s->f = mr_compile(train_step, NULL, NULL);
    return s->f == NULL ? NULL : step_call(arg);
}

static void
step_forget(void *arg)
{
    step *s = arg;

    mr_function_release(s->f);
    s->f = NULL;
}

static void
eager_step__survives_each_failure(void **state)
{
    step s = {step_args(), NULL};
    each_case c = {"an eager step", step_eager, &s, s.args, NULL};

    (void)state;
    assert_true(each_run(&c).failed > 150);
}

static void
compiled_step__survives_each_failure_of_its_trace(void **state)
{
    step s = {step_args(), NULL};
    each_case c = {"a step that is compiled", step_compile, &s, s.args,
                   step_forget};

    (void)state;
    assert_true(each_run(&c).failed > 150);
}

static void
compiled_step__survives_each_failure_of_a_hit(void **state)
{
    step s = {step_args(), mr_compile(train_step, NULL, NULL)};
    each_case c = {"a call of a compiled step", step_call, &s, s.args, NULL};

    (void)state;
    assert_true(each_run(&c).failed > 5);
    mr_function_release(s.f);
}

/* The cold pool: buffers too are asked of the system. */
static mr_tree *
step_cold(void *arg)
{
    mr_memory_clear_cache();
    return step_eager(arg);
}

static void
step_without_cached_memory__survives_each_failure(void **state)
{
    step s = {step_args(), NULL};
    each_case c = {"an eager step, cold", step_cold, &s, s.args, NULL};

    (void)state;
    assert_true(each_run(&c).failed > 150);
}

/* Eager and compiled agree after all those failures. */
static void
compiled_step__equals_the_eager_one(void **state)
{
    step s = {step_args(), mr_compile(train_step, NULL, NULL)};
    mr_tree *eager = step_eager(&s), *compiled = step_call(&s);
    mr_array **a, **b;
    int n, m;

    (void)state;
    assert_true(mr_tree_same_structure(eager, compiled));
    a = each_leaves(eager, &n);
    b = each_leaves(compiled, &m);
    for (int i = 0; i < n; i++)
        mrt_assert_same(a[i], b[i]);
    free(a);
    free(b);
    mr_function_release(s.f);
}

/* ---- transforms ---------------------------------------------------------- */

static mr_tree *
smooth(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0), *y = mr_tree_array_at(in, 1);

    (void)ctx;
    return MR_ARRAYS(
        mr_sum(mr_multiply(mr_sin(x), mr_exp(y)), MR_AXES_ALL, false),
        mr_softmax(mr_multiply(x, y), MR_AXES(-1), false));
}

static mr_tree *
pair(void)
{
    mr_tree *t =
        MR_ARRAYS(mr_array_from_f32((float[]){0.1F, 0.7F, -0.4F, 2, 1, 0.3F},
                                    MRT_SHAPE(2, 3)),
                  mr_array_from_f32((float[]){0.5F, -1, 0.25F, 1, 0, 0.125F},
                                    MRT_SHAPE(2, 3)));

    assert_non_null(t);
    return t;
}

static mr_tree *
run_vjp(void *arg)
{
    mr_tree *c = MR_ARRAYS(mr_float(1.0), mr_ones(MR_SHAPE(2, 3), MR_FLOAT32));

    return each_evaluated(c ? mr_vjp(smooth, NULL, arg, c) : NULL);
}

static mr_tree *
run_jvp(void *arg)
{
    return each_evaluated(mr_jvp(smooth, NULL, arg, arg));
}

static mr_tree *
run_vmap(void *arg)
{
    return each_evaluated(
        mr_vmap(smooth, NULL, arg, (int32_t[]){0, -2}, 2, NULL, 0));
}

/* Not mapped, and out along another axis. */
static mr_tree *
run_vmap_axes(void *arg)
{
    return each_evaluated(mr_vmap(smooth, NULL, arg,
                                  (int32_t[]){0, MR_VMAP_NONE}, 2,
                                  (int32_t[]){0, 2}, 2));
}

static mr_tree *
slopes(void *ctx, const mr_tree *in)
{
    mr_tree *g = mr_grad(smooth, ctx, in, (int[]){0, 1}, 2);
    mr_array *both = mr_add(mr_tree_array_at(g, 0), mr_tree_array_at(g, 1));

    return mr_tree_leaf(mr_sum(mr_square(both), MR_AXES_ALL, false));
}

static mr_tree *
run_second(void *arg)
{
    return each_evaluated(mr_grad(slopes, NULL, arg, (int[]){1, 0}, 2));
}

/* The operators without a rule of their own are mapped by a loop. */
static mr_tree *
sorted(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0), *y = mr_tree_array_at(in, 1);
    mr_array *at =
        mr_index_slice(mr_argsort(y, 0), MR_INTS(0), MR_INTS(1), MR_INTS(1));

    (void)ctx;
    return MR_ARRAYS(mr_sort(x, 0), mr_slice(y, at, MR_INTS(0), MR_INTS(2)),
                     mr_cumsum(x, 0, false, true, MR_DTYPE_DEFAULT));
}

static mr_tree *
run_vmap_sorted(void *arg)
{
    return each_evaluated(
        mr_vmap(sorted, NULL, arg, (int32_t[]){0, 0}, 2, NULL, 0));
}

static void
transforms__survive_each_failure(void **state)
{
    mr_tree *args = pair();
    const each_case c[] = {{"vjp", run_vjp, args, args, NULL},
                           {"jvp", run_jvp, args, args, NULL},
                           {"vmap", run_vmap, args, args, NULL},
                           {"vmap of axes", run_vmap_axes, args, args, NULL},
                           {"vmap of sorts", run_vmap_sorted, args, args, NULL},
                           {"grad of grad", run_second, args, args, NULL}};

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(c); i++)
        assert_true(each_run(&c[i]).failed > 20);
}

/* A user's own error comes through as it is, also when it is not memory. */
static mr_tree *
refuses(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    mr_error_set(MR_E_USER, "no training today");
    return NULL;
}

static void
error_of_a_closure__is_passed_on_unchanged(void **state)
{
    mr_tree *args = pair();
    mr_function *f = mr_compile(refuses, NULL, NULL);

    (void)state;
    assert_null(mr_grad(refuses, NULL, args, NULL, 0));
    mrt_assert_error(MR_E_USER, "no training today");
    assert_null(mr_vmap(refuses, NULL, args, (int32_t[]){0, 0}, 2, NULL, 0));
    mrt_assert_error(MR_E_USER, "no training today");
    assert_null(mr_jvp(refuses, NULL, args, args));
    mrt_assert_error(MR_E_USER, "no training today");
    assert_null(mr_call(f, args));
    mrt_assert_error(MR_E_USER, "no training today");
    mr_function_release(f);
}

/* ---- random draws -------------------------------------------------------- */

static mr_tree *
run_draws(void *arg)
{
    mr_array *none = MR_NONE;
    mr_shape n = MR_SHAPE(3, 2);

    if (mr_random_set_state(arg) == NULL)
        return NULL;
    return each_evaluated(MR_ARRAYS(
        mr_random_normal(n, MR_FLOAT32, none, none, none),
        mr_random_uniform(mr_float(-1), mr_float(1), n, MR_FLOAT32, none),
        mr_random_bernoulli(mr_float(0.5), n, none),
        mr_random_randint(mr_int(0), mr_int(9), n, MR_INT32, none),
        mr_random_categorical(mr_zeros(n, MR_FLOAT32), -1, MR_SHAPE_NONE,
                              MR_INT_NONE, none),
        mr_random_gumbel(n, MR_FLOAT32, none),
        mr_random_laplace(n, MR_FLOAT32, 0.0, 1.0, none),
        mr_random_truncated_normal(mr_float(-1), mr_float(1), n, MR_FLOAT32,
                                   none),
        mr_random_permutation(mr_zeros(n, MR_FLOAT32), 0, none),
        mr_random_permutation_n(7, none), mr_random_split(arg, 3),
        mr_random_bits(n, 4, arg)));
}

static void
draws__survive_each_failure(void **state)
{
    mr_array *key = mr_random_key(MR_INTEGER(5));
    each_case c = {"random draws", run_draws, key, mr_tree_leaf(key), NULL};

    (void)state;
    assert_true(each_run(&c).failed > 50);
}

/* A draw that fails takes no key: the next gives what it would have given. */
static mr_tree *
draw_two(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    return MR_ARRAYS(
        mr_random_normal(MR_SHAPE(4), MR_FLOAT32, MR_NONE, MR_NONE, MR_NONE),
        mr_random_permutation_n(5, MR_NONE));
}

static mr_array *
draw_normal(void *f)
{
    (void)f;
    return mr_random_normal(MR_SHAPE(4), MR_FLOAT32, MR_NONE, mr_float(2.0),
                            MR_NONE);
}

static mr_array *
draw_compiled(void *f)
{
    return mr_tree_array_at(mr_call(f, mr_tree_none()), 1);
}

static void
each_draw(mr_array *(*draw)(void *f), void *f)
{
    mr_array *want, *x = NULL;
    int n = 0;

    mr_random_seed(MR_INTEGER(3));
    draw(f);
    want = draw(f);
    assert_non_null(want);
    for (; x == NULL; n++) {
        mr_random_seed(MR_INTEGER(3));
        draw(f);
        mr__alloc_fail_after(n);
        x = draw(f);
        mr__alloc_fail_after(-1);
        if (x != NULL)
            break;
        mrt_assert_error(MR_E_MEMORY, "allocate");
        mrt_assert_same(draw(f), want);
    }
    assert_true(n > 3);
    mrt_assert_same(x, want);
}

static void
draw_that_fails__leaves_the_sequence(void **state)
{
    mr_function *f = mr_compile(draw_two, NULL, NULL);

    (void)state;
    each_draw(draw_normal, NULL);
    each_draw(draw_compiled, f);
    mr_function_release(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(eager_step__survives_each_failure),
        mrt_test(step_without_cached_memory__survives_each_failure),
        mrt_test(compiled_step__survives_each_failure_of_its_trace),
        mrt_test(compiled_step__survives_each_failure_of_a_hit),
        mrt_test(compiled_step__equals_the_eager_one),
        mrt_test(transforms__survive_each_failure),
        mrt_test(error_of_a_closure__is_passed_on_unchanged),
        mrt_test(draws__survive_each_failure),
        mrt_test(draw_that_fails__leaves_the_sequence),
    };

    return cmocka_run_group_tests_name("faults/training", tests, NULL, NULL);
}
