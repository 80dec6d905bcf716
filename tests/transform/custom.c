/* SPDX-License-Identifier: Apache-2.0
 *
 * custom.c -- tests of custom_function, checkpoint and depends.
 *
 * f(x) = x sin(w) with w captured has f' = sin(w) and df/dw = x cos(w).
 */
#include "transform/support.h"

#include <pthread.h>

#include "marram/compile.h"

/* ---- closures that count their ends ---------------------------------------
 */
typedef struct probe {
    mr_array *w; /* captured, or NULL */
    int calls, ended;
    pthread_t thread; /* of the end */
} probe;

static void
probe_end(void *ctx)
{
    probe *p = ctx;

    p->ended++;
    p->thread = pthread_self();
}

static mr_closure *
closure(mr_fn fn, probe *p)
{
    mr_closure *c = mr_closure_new(fn, p, p ? probe_end : NULL);

    if (!c)
        fail_with_error("a closure");
    return c;
}

static mr_tree *
times_sine(void *ctx, const mr_tree *in)
{
    probe *p = ctx;

    p->calls++;
    return leaf(mr_multiply(arg(in, 0), mr_sin(p->w)));
}

static mr_tree *
sine(void *ctx, const mr_tree *in)
{
    ((probe *)ctx)->calls++;
    return leaf(mr_sin(arg(in, 0)));
}

/* Ten times the cotangent: not the derivative of anything above. */
static mr_tree *
tenfold(void *ctx, const mr_tree *in)
{
    mr_array *u = mr_tree_array(mr_tree_at(in, 1));

    (void)ctx;
    return MR_ARRAYS(mr_multiply(u, mr_float(10)));
}

static mr_tree *
tenfold_tangent(void *ctx, const mr_tree *in)
{
    mr_array *t = mr_tree_array_at(mr_tree_at(in, 1), 0);

    (void)ctx;
    return leaf(mr_multiply(t, mr_float(10)));
}

/* A custom function under test, and a loss over it. */
static mr_closure *subject;

static mr_tree *
sum_of_subject(void *ctx, const mr_tree *in)
{
    mr_tree *y = mr_closure_call(subject, MR_ARRAYS(arg(in, 0)));

    (void)ctx;
    return y ? leaf(mr_sum(mr_tree_array(y), MR_AXES_ALL, false)) : NULL;
}

/* The second argument is what the subject captures. */
static mr_tree *
sum_capturing(void *ctx, const mr_tree *in)
{
    ((probe *)ctx)->w = arg(in, 1);
    return sum_of_subject(NULL, in);
}

static mr_closure *
custom(mr_fn f, probe *p, mr_fn vjp, mr_fn jvp, mr_fn vmap)
{
    mr_custom_options o = {.size = sizeof o};
    mr_closure *c = closure(f, p), *made;

    o.vjp = vjp ? closure(vjp, NULL) : NULL;
    o.jvp = jvp ? closure(jvp, NULL) : NULL;
    o.vmap = vmap ? closure(vmap, NULL) : NULL;
    made = mr_custom_function(c, &o);
    mr_closure_release(c);
    mr_closure_release(o.vjp);
    mr_closure_release(o.jvp);
    mr_closure_release(o.vmap);
    if (!made)
        fail_with_error("a custom function");
    return made;
}

/* ---- rules ----------------------------------------------------------------
 */

static void
custom__rules_take_the_place_of_the_function(void **state)
{
    probe p = {0};
    mr_tree *r;
    mr_scope s = mr_scope_begin();

    (void)state;
    subject = custom(sine, &p, tenfold, tenfold_tangent, NULL);
    VALUES(mr_tree_array(
               GOOD_TREE(mr_closure_call(subject, MR_ARRAYS(mr_float(1))))),
           sin(1.0));
    r = GOOD_TREE(
        mr_grad(sum_of_subject, NULL, MR_ARRAYS(VECTOR(1, 2)), NULL, 0));
    VALUES(mr_tree_array(r), 10, 10);
    r = GOOD_TREE(mr_jvp(sum_of_subject, NULL, MR_ARRAYS(VECTOR(1, 2)),
                         MR_ARRAYS(VECTOR(1, 3))));
    VALUES(mr_tree_array(mr_tree_at(r, 1)), 40);
    mr_closure_release(subject);
    mr_scope_end(s);
    assert_int_equal(p.ended, 1);
    assert_true(pthread_equal(p.thread, pthread_self()));
}

static mr_tree *
double_inputs(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(mr_tree_at(in, 0), 0);
    mr_array *axis = mr_tree_array_at(mr_tree_at(in, 1), 0);

    (void)ctx;
    return MR_TUPLE(leaf(mr_add(x, x)), leaf(axis));
}

static void
custom__vmap_rule_is_used_and_can_be_differentiated(void **state)
{
    probe p = {0};
    int32_t axis = 0;
    mr_tree *r;

    (void)state;
    subject = custom(sine, &p, NULL, NULL, double_inputs);
    r = GOOD_TREE(
        mr_closure_vmap(subject, MR_ARRAYS(VECTOR(1, 2)), &axis, 1, NULL, 0));
    VALUES(mr_tree_array(r), 2, 4);
    mr_closure_release(subject);
}

static mr_tree *
sum_of_mapped(void *ctx, const mr_tree *in)
{
    int32_t axis = 0;
    mr_tree *y = mr_closure_vmap(subject, in, &axis, 1, NULL, 0);

    (void)ctx;
    return y ? leaf(mr_sum(mr_tree_array(y), MR_AXES_ALL, false)) : NULL;
}

static void
custom__rules_hold_over_a_batch(void **state)
{
    probe p = {0};
    mr_tree *r;

    (void)state;
    subject = custom(sine, &p, tenfold, tenfold_tangent, NULL);
    r = GOOD_TREE(
        mr_grad(sum_of_mapped, NULL, MR_ARRAYS(VECTOR(1, 2)), NULL, 0));
    VALUES(mr_tree_array(r), 10, 10);
    r = GOOD_TREE(mr_jvp(sum_of_mapped, NULL, MR_ARRAYS(VECTOR(1, 2)),
                         MR_ARRAYS(VECTOR(1, 3))));
    VALUES(mr_tree_array(mr_tree_at(r, 1)), 40);
    mr_closure_release(subject);
}

/* ---- captured arrays ------------------------------------------------------
 */

static void
custom__captured_arrays_have_gradients_without_a_rule(void **state)
{
    probe p = {0};
    mr_tree *r;

    (void)state;
    subject = custom(times_sine, &p, NULL, tenfold_tangent, NULL);
    r = GOOD_TREE(mr_grad(sum_capturing, &p,
                          MR_ARRAYS(VECTOR(1, 2), mr_float(0.5F)),
                          (int[]){0, 1}, 2));
    VALUES(mr_tree_array_at(r, 0), sin(0.5), sin(0.5));
    VALUES(mr_tree_array_at(r, 1), 3 * cos(0.5));
    mr_closure_release(subject);
}

static const char *
called_weight(void *ctx, const mr_array *x)
{
    return ((probe *)ctx)->w == x ? "weight" : NULL;
}

static void
custom__captured_arrays_are_named_where_a_rule_hides_them(void **state)
{
    probe p = {0};
    mr_closure *f = closure(times_sine, &p), *v = closure(tenfold, NULL);
    mr_custom_options o = {.size = sizeof o, .vjp = v, .name = called_weight};
    mr_tree *x = MR_ARRAYS(VECTOR(1, 2), mr_float(0.5F));

    (void)state;
    subject = mr_custom_function(f, &o);
    assert_failed(mr_grad(sum_capturing, &p, x, (int[]){1}, 1), MR_E_VALUE,
                  "'weight'");
    /* no gradient of it is asked for: nothing is wrong */
    VALUES(mr_tree_array(GOOD_TREE(mr_grad(sum_capturing, &p, x, NULL, 0))), 10,
           10);
    mr_closure_release(subject);
    mr_closure_release(f);
    mr_closure_release(v);
}

/* ---- what rules give ------------------------------------------------------
 */

static mr_tree *
two_cotangents(void *ctx, const mr_tree *in)
{
    mr_array *u = mr_tree_array(mr_tree_at(in, 1));

    (void)ctx;
    return MR_ARRAYS(u, u);
}

static mr_tree *
a_scalar(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    return MR_ARRAYS(mr_float(1));
}

static mr_tree *
a_half(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return MR_ARRAYS(mr_astype(mr_tree_array(mr_tree_at(in, 1)), MR_FLOAT16));
}

static mr_tree *
nothing(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    return MR_TUPLE(mr_tree_none());
}

static mr_tree *
refused(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    mr_error_set(MR_E_USER, "by the rule");
    return NULL;
}

static mr_tree *
grad_with_rule(mr_fn rule)
{
    probe p = {0};
    mr_tree *r;

    subject = custom(sine, &p, rule, NULL, NULL);
    r = mr_grad(sum_of_subject, NULL, MR_ARRAYS(VECTOR(1, 2)), NULL, 0);
    mr_closure_release(subject);
    return r;
}

static void
custom__what_a_rule_gives_is_checked(void **state)
{
    (void)state;
    assert_failed(grad_with_rule(two_cotangents), MR_E_VALUE,
                  "2 arrays where one of 1 is right");
    assert_failed(grad_with_rule(a_scalar), MR_E_SHAPE,
                  "has the shape () where (2,) is right");
    assert_failed(grad_with_rule(a_half), MR_E_DTYPE,
                  "is float16 where float32 is right");
    assert_failed(grad_with_rule(refused), MR_E_USER, "by the rule");
    VALUES(mr_tree_array(GOOD_TREE(grad_with_rule(nothing))), 0, 0);
}

/* ---- checkpoint -----------------------------------------------------------
 */

static mr_closure *
checkpointed(mr_fn f, probe *p)
{
    mr_closure *c = closure(f, p), *made = mr_checkpoint(c);

    mr_closure_release(c);
    if (!made)
        fail_with_error("a checkpoint");
    return made;
}

static mr_tree *
grad_capturing(void *ctx, const mr_tree *in)
{
    mr_tree *g = mr_grad(sum_capturing, ctx, in, (int[]){1}, 1);

    return g ? leaf(mr_tree_array(g)) : NULL;
}

static void
checkpoint__runs_again_and_gives_true_gradients(void **state)
{
    probe p = {0};
    mr_tree *x = MR_ARRAYS(VECTOR(1, 2), mr_float(0.5F)), *r;

    (void)state;
    subject = checkpointed(times_sine, &p);
    r = GOOD_TREE(mr_grad(sum_capturing, &p, x, (int[]){0, 1}, 2));
    assert_int_equal(p.calls, 2);
    VALUES(mr_tree_array_at(r, 0), sin(0.5), sin(0.5));
    VALUES(mr_tree_array_at(r, 1), 3 * cos(0.5));
    r = GOOD_TREE(mr_grad(grad_capturing, &p, x, (int[]){0, 1}, 2));
    VALUES(mr_tree_array_at(r, 0), cos(0.5), cos(0.5));
    VALUES(mr_tree_array_at(r, 1), -3 * sin(0.5));
    mr_closure_release(subject);
    assert_int_equal(p.ended, 1);
}

static mr_tree *
mapped_capturing(void *ctx, const mr_tree *in)
{
    int32_t axes[2] = {0, 0};
    mr_tree *y = mr_vmap(sum_capturing, ctx, in, axes, 2, NULL, 0);

    return y ? leaf(mr_sum(mr_tree_array(y), MR_AXES_ALL, false)) : NULL;
}

/* Captured arrays are mapped too. */
static void
checkpoint__over_a_batch(void **state)
{
    probe p = {0};
    mr_tree *r;

    (void)state;
    subject = checkpointed(times_sine, &p);
    r = GOOD_TREE(mr_grad(mapped_capturing, &p,
                          MR_ARRAYS(VECTOR(1, 2), VECTOR(0.5F, 1)),
                          (int[]){0, 1}, 2));
    VALUES(mr_tree_array_at(r, 0), sin(0.5), sin(1.0));
    VALUES(mr_tree_array_at(r, 1), cos(0.5), 2 * cos(1.0));
    mr_closure_release(subject);
}

static void
checkpoint__inside_a_compiled_function(void **state)
{
    probe p = {0};
    mr_function *f;

    (void)state;
    subject = checkpointed(times_sine, &p);
    f = mr_compile(grad_capturing, &p, NULL);
    for (int i = 0; i < 2; i++)
        VALUES(mr_tree_array(GOOD_TREE(
                   mr_call(f, MR_ARRAYS(VECTOR(1, 2), mr_float(0.5F))))),
               3 * cos(0.5));
    mr_function_release(f);
    mr_closure_release(subject);
}

/* Each run captures another array: the second is refused. */
static mr_array *other_weight;

static mr_tree *
captures_another(void *ctx, const mr_tree *in)
{
    probe *p = ctx;

    return leaf(mr_multiply(arg(in, 0), p->calls++ > 0 ? other_weight : p->w));
}

static mr_tree *
sum_capturing_two(void *ctx, const mr_tree *in)
{
    other_weight = arg(in, 2);
    return sum_capturing(ctx, in);
}

static void
checkpoint__must_do_the_same_each_time(void **state)
{
    probe p = {0};
    mr_tree *x = MR_ARRAYS(VECTOR(1, 2), mr_float(0.5F), mr_float(2));

    (void)state;
    subject = checkpointed(captures_another, &p);
    assert_failed(mr_grad(sum_capturing_two, &p, x, (int[]){1, 2}, 2),
                  MR_E_STATE, "it must do the same each time");
    mr_closure_release(subject);
}

static mr_tree *
noisy(void *ctx, const mr_tree *in)
{
    mr_array *noise =
        mr_random_normal(MR_SHAPE(2), MR_FLOAT32, MR_NONE, MR_NONE, MR_NONE);

    ((probe *)ctx)->calls++;
    return leaf(mr_multiply(arg(in, 0), noise));
}

/* The gradient of sum(x n) is n, the noise of the first run. */
static void
checkpoint__draws_the_same_numbers_again(void **state)
{
    probe p = {0};
    mr_tree *r;
    double y, g[2];

    (void)state;
    subject = checkpointed(noisy, &p);
    r = GOOD_TREE(mr_value_and_grad(sum_of_subject, NULL,
                                    MR_ARRAYS(VECTOR(3, 5)), NULL, 0));
    y = number(mr_tree_array(mr_tree_at(r, 0)));
    assert_int_equal(mr_array_copy_f64(mr_tree_array(mr_tree_at(r, 1)), g, 2),
                     MR_OK);
    assert_near(3 * g[0] + 5 * g[1], y, 1e-5);
    assert_int_equal(p.calls, 2);
    mr_closure_release(subject);
}

/* ---- depends ---------------------------------------------------------------
 */

static mr_tree *
held(void *ctx, const mr_tree *in)
{
    mr_tree *t = mr_depends(MR_ARRAYS(mr_square(arg(in, 0))),
                            MR_ARRAYS(mr_exp(arg(in, 1))));

    (void)ctx;
    return t ? leaf(mr_sum(mr_tree_array_at(t, 0), MR_AXES_ALL, false)) : NULL;
}

static void
depends__evaluates_both_and_differentiates_one(void **state)
{
    mr_array *x = VECTOR(1, 2), *y = mr_exp(x);
    mr_tree *t = GOOD_TREE(mr_depends(leaf(mr_square(x)), leaf(y)));
    int32_t axes[2] = {0, MR_VMAP_NONE};

    (void)state;
    VALUES(mr_tree_array(t), 1, 4);
    assert_true(mr_array_is_evaluated(y));
    t = GOOD_TREE(mr_grad(held, NULL, MR_ARRAYS(x, x), (int[]){0, 1}, 2));
    VALUES(mr_tree_array_at(t, 0), 2, 4);
    VALUES(mr_tree_array_at(t, 1), 0, 0);
    t = GOOD_TREE(mr_jvp(held, NULL, MR_ARRAYS(x, x), MR_ARRAYS(x, x)));
    VALUES(mr_tree_array(mr_tree_at(t, 1)), 10);
    t = GOOD_TREE(mr_vmap(held, NULL, MR_ARRAYS(x, x), axes, 2, NULL, 0));
    VALUES(mr_tree_array(t), 1, 4);
    axes[0] = MR_VMAP_NONE;
    axes[1] = 0;
    t = GOOD_TREE(mr_vmap(held, NULL, MR_ARRAYS(x, x), axes, 2, NULL, 0));
    VALUES(mr_tree_array(t), 5, 5);
}

/* ---- masked gradients ------------------------------------------------------
 */

static mr_tree *
guarded_root(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0), *zero = mr_zeros_like(x, MR_DTYPE_DEFAULT);

    (void)ctx;
    return leaf(mr_sum(mr_where(mr_greater(x, zero), mr_sqrt(x), zero),
                       MR_AXES_ALL, false));
}

static void
grad_mode__masked_gives_zero_where_no_cotangent_is(void **state)
{
    mr_tree *x = MR_ARRAYS(VECTOR(0, -1, 4));
    uint32_t old = mr_grad_mode(MR_GRAD_MASKED);

    (void)state;
    VALUES(mr_tree_array(GOOD_TREE(mr_grad(guarded_root, NULL, x, NULL, 0))), 0,
           0, 0.25);
    assert_int_equal(mr_grad_mode(old), MR_GRAD_MASKED);
    assert_int_equal(old, 0);
}

static mr_tree *
cast_square(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(mr_sum(mr_square(mr_astype(arg(in, 0), MR_FLOAT32)),
                       MR_AXES_ALL, false));
}

static void
grad_mode__integers_have_zeros_when_allowed(void **state)
{
    mr_tree *x = MR_ARRAYS(mr_astype(VECTOR(1, 2), MR_INT32)), *g;

    (void)state;
    assert_failed(mr_grad(cast_square, NULL, x, NULL, 0), MR_E_DTYPE,
                  "allow_int");
    mr_grad_mode(MR_GRAD_ALLOW_INT);
    g = mr_grad(cast_square, NULL, x, NULL, 0);
    mr_grad_mode(0);
    assert_int_equal(mr_array_dtype(mr_tree_array(GOOD_TREE(g))), MR_INT32);
    VALUES(mr_tree_array(g), 0, 0);
}

static void
closures__absent_are_refused(void **state)
{
    (void)state;
    assert_failed(mr_custom_function(NULL, NULL), MR_E_NULL, "closure");
    assert_failed(mr_checkpoint(NULL), MR_E_NULL, "closure");
    assert_failed(mr_depends(NULL, mr_tree_none()), MR_E_NULL, "inputs");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCOPED(custom__rules_take_the_place_of_the_function),
        SCOPED(custom__vmap_rule_is_used_and_can_be_differentiated),
        SCOPED(custom__rules_hold_over_a_batch),
        SCOPED(custom__captured_arrays_have_gradients_without_a_rule),
        SCOPED(custom__captured_arrays_are_named_where_a_rule_hides_them),
        SCOPED(custom__what_a_rule_gives_is_checked),
        SCOPED(checkpoint__runs_again_and_gives_true_gradients),
        SCOPED(checkpoint__over_a_batch),
        SCOPED(checkpoint__inside_a_compiled_function),
        SCOPED(checkpoint__must_do_the_same_each_time),
        SCOPED(checkpoint__draws_the_same_numbers_again),
        SCOPED(depends__evaluates_both_and_differentiates_one),
        SCOPED(grad_mode__masked_gives_zero_where_no_cotangent_is),
        SCOPED(grad_mode__integers_have_zeros_when_allowed),
        SCOPED(closures__absent_are_refused),
    };

    return cmocka_run_group_tests_name("transform/custom", tests, NULL, NULL);
}
