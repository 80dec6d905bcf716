/* SPDX-License-Identifier: Apache-2.0
 *
 * grad.c -- tests of grad, value_and_grad and vjp.
 */
#include "transform/support.h"

/* ---- functions to differentiate ------------------------------------------ */
static mr_tree *
square_fn(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(mr_multiply(arg(in, 0), arg(in, 0)));
}

static mr_tree *
power_four(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0), *y = mr_multiply(x, x);

    (void)ctx;
    return leaf(mr_multiply(y, y));
}

/* x * (value of x): the value is a constant. */
static mr_tree *
times_item(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0);
    double v = mr_array_item_f64(x);

    (void)ctx;
    return leaf(mr_multiply(x, mr_float(v)));
}

/* Evaluated halfway: the gradient still goes through. */
static mr_tree *
evaluates_halfway(void *ctx, const mr_tree *in)
{
    mr_array *y = mr_multiply(arg(in, 0), arg(in, 0));

    (void)ctx;
    if (mr_eval(y) != MR_OK)
        return NULL;
    return leaf(mr_multiply(y, arg(in, 0)));
}

static mr_tree *
product_of_two(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(mr_multiply(mr_multiply(arg(in, 0), arg(in, 0)), arg(in, 1)));
}

static mr_tree *
first_alone(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(mr_sum(arg(in, 0), MR_AXES_ALL, false));
}

static mr_tree *
identity_fn(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(arg(in, 0));
}

static mr_tree *
with_auxiliary(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0);

    (void)ctx;
    return MR_TUPLE(leaf(mr_multiply(x, x)), leaf(mr_negative(x)));
}

static mr_tree *
gives_list(void *ctx, const mr_tree *in)
{
    mr_tree *t = leaf(arg(in, 0));

    (void)ctx;
    return mr_tree_list(1, &t);
}

static mr_tree *
gives_input(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(arg(in, 0));
}

static mr_tree *
gives_none(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    return mr_tree_none();
}

static mr_tree *
user_failure(void *ctx, const mr_tree *in)
{
    (void)ctx;
    mr_multiply(arg(in, 0), arg(in, 0));
    mr_error_set(MR_E_USER, "the user's own words");
    return NULL;
}

static mr_tree *
silent_failure(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    return NULL;
}

static mr_tree *
leaves_scope_open(void *ctx, const mr_tree *in)
{
    (void)ctx;
    mr_scope_begin();
    return leaf(mr_multiply(arg(in, 0), arg(in, 0)));
}

/* ---- values ---------------------------------------------------------------
 */
static void
grad__square_is_twice_x(void **state)
{
    mr_tree *g =
        GOOD_TREE(mr_grad(square_fn, NULL, MR_ARRAYS(mr_float(3.0)), NULL, 0));

    (void)state;
    assert_near(number(mr_tree_array(g)), 6.0, 0);
}

static void
grad__of_identity_is_one(void **state)
{
    mr_tree *g = GOOD_TREE(
        mr_grad(identity_fn, NULL, MR_ARRAYS(mr_float(3.0)), NULL, 0));

    (void)state;
    assert_near(number(mr_tree_array(g)), 1.0, 0);
}

static void
grad__value_read_inside_is_constant(void **state)
{
    mr_tree *g =
        GOOD_TREE(mr_grad(times_item, NULL, MR_ARRAYS(mr_float(3.0)), NULL, 0));

    (void)state;
    assert_near(number(mr_tree_array(g)), 3.0, 0);
}

static void
grad__passes_through_what_was_evaluated(void **state)
{
    mr_tree *g = GOOD_TREE(
        mr_grad(evaluates_halfway, NULL, MR_ARRAYS(mr_float(2.0)), NULL, 0));

    (void)state;
    assert_near(number(mr_tree_array(g)), 12.0, 0);
}

static void
grad__unused_argument_gets_zeros(void **state)
{
    mr_tree *g = GOOD_TREE(mr_grad(first_alone, NULL,
                                   MR_ARRAYS(VECTOR(1, 2), VECTOR(3, 4, 5)),
                                   (int[]){1, 0}, 2));

    (void)state;
    assert_int_equal(mr_tree_kind_of(g), MR_TREE_TUPLE);
    VALUES(mr_tree_array_at(g, 0), 0, 0, 0);
    VALUES(mr_tree_array_at(g, 1), 1, 1);
}

static void
grad__of_constant_is_zero(void **state)
{
    mr_tree *args = MR_ARRAYS(mr_float(1.0), mr_float(2.0));
    mr_tree *g = GOOD_TREE(mr_grad(identity_fn, NULL, args, (int[]){1}, 1));

    (void)state;
    assert_near(number(mr_tree_array(g)), 0.0, 0);
}

static void
grad__argnums_choose_and_may_be_negative(void **state)
{
    mr_tree *args = MR_ARRAYS(mr_float(3.0), mr_float(5.0));
    mr_tree *g = GOOD_TREE(mr_grad(product_of_two, NULL, args, (int[]){-1}, 1));
    mr_tree *h =
        GOOD_TREE(mr_grad(product_of_two, NULL, args, (int[]){-1, 0}, 2));

    (void)state;
    assert_near(number(mr_tree_array(g)), 9.0, 0);
    assert_near(number(mr_tree_array_at(h, 0)), 9.0, 0);
    assert_near(number(mr_tree_array_at(h, 1)), 30.0, 0);
}

static void
grad__argnums_out_of_range_or_repeated_are_refused(void **state)
{
    mr_tree *args = MR_ARRAYS(mr_float(3.0), mr_float(5.0));

    (void)state;
    assert_failed(mr_grad(product_of_two, NULL, args, (int[]){2}, 1),
                  MR_E_VALUE, "argnum 2");
    assert_failed(mr_grad(product_of_two, NULL, args, (int[]){-3}, 1),
                  MR_E_VALUE, "argnum -3");
    assert_failed(mr_grad(product_of_two, NULL, args, (int[]){1, -1}, 2),
                  MR_E_VALUE, "twice");
}

static mr_tree *
dict_argument(void *ctx, const mr_tree *in)
{
    const mr_tree *d = mr_tree_at(in, 0);

    (void)ctx;
    return leaf(mr_sum(
        mr_multiply(mr_tree_get_array(d, "w"), mr_tree_get_array(d, "b")),
        MR_AXES_ALL, false));
}

static void
grad__has_the_tree_of_its_argument(void **state)
{
    const char *keys[] = {"w", "b"};
    mr_tree *d = mr_tree_dict(
        2, keys, (mr_tree *[]){leaf(VECTOR(1, 2)), leaf(VECTOR(3, 4))});
    mr_tree *g = GOOD_TREE(mr_grad(dict_argument, NULL, MR_TUPLE(d), NULL, 0));

    (void)state;
    assert_true(mr_tree_same_structure(g, d));
    VALUES(mr_tree_get_array(g, "w"), 3, 4);
    VALUES(mr_tree_get_array(g, "b"), 1, 2);
}

static void
value_and_grad__gives_value_and_auxiliary(void **state)
{
    mr_tree *r = GOOD_TREE(mr_value_and_grad(
        with_auxiliary, NULL, MR_ARRAYS(mr_float(3.0)), NULL, 0));
    mr_tree *value = mr_tree_at(r, 0);

    (void)state;
    assert_near(number(mr_tree_array_at(value, 0)), 9.0, 0);
    assert_near(number(mr_tree_array_at(value, 1)), -3.0, 0);
    assert_near(number(mr_tree_array_at(r, 1)), 6.0, 0);
}

static mr_tree *
grad_of_power_four(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_grad(power_four, NULL, in, NULL, 0);
}

static mr_tree *
second_of_power_four(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_grad(grad_of_power_four, NULL, in, NULL, 0);
}

static void
grad__nests_in_itself(void **state)
{
    mr_tree *args = MR_ARRAYS(mr_float(3.0));

    (void)state;
    assert_near(number(mr_tree_array(
                    GOOD_TREE(mr_grad(power_four, NULL, args, NULL, 0)))),
                4 * 27, 0);
    assert_near(number(mr_tree_array(GOOD_TREE(
                    mr_grad(grad_of_power_four, NULL, args, NULL, 0)))),
                12 * 9, 0);
    assert_near(number(mr_tree_array(GOOD_TREE(
                    mr_grad(second_of_power_four, NULL, args, NULL, 0)))),
                24 * 3, 0);
}

/* d/dx (x * d/dy (x + y)) at the same point: perturbations must not mix. */
static mr_tree *
inner_sum(void *ctx, const mr_tree *in)
{
    return leaf(mr_add(ctx, arg(in, 0)));
}

static mr_tree *
outer_product(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0);
    mr_tree *g = mr_grad(inner_sum, x, MR_ARRAYS(mr_float(1.0)), NULL, 0);

    (void)ctx;
    return g ? leaf(mr_multiply(x, mr_tree_array(g))) : NULL;
}

static void
grad__does_not_confuse_perturbations(void **state)
{
    mr_tree *g = GOOD_TREE(
        mr_grad(outer_product, NULL, MR_ARRAYS(mr_float(1.0)), NULL, 0));

    (void)state;
    assert_near(number(mr_tree_array(g)), 1.0, 0);
}

/* The inner function captures the outer's tracer. */
static mr_tree *
inner_captures(void *ctx, const mr_tree *in)
{
    mr_array *y = arg(in, 0);

    return leaf(mr_multiply(mr_multiply(ctx, ctx), mr_multiply(y, y)));
}

static mr_tree *
outer_captured(void *ctx, const mr_tree *in)
{
    mr_tree *g =
        mr_grad(inner_captures, arg(in, 0), MR_ARRAYS(mr_float(5.0)), NULL, 0);

    (void)ctx;
    return g ? leaf(mr_tree_array(g)) : NULL;
}

static void
grad__of_grad_sees_captured_tracers(void **state)
{
    mr_tree *g = GOOD_TREE(
        mr_grad(outer_captured, NULL, MR_ARRAYS(mr_float(3.0)), NULL, 0));

    (void)state;
    assert_near(number(mr_tree_array(g)), 2 * 3 * 2 * 5, 0);
}

static mr_tree *
long_chain(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0), *one = mr_float(1.0);

    for (int i = 0; i < *(const int *)ctx; i++)
        x = mr_multiply(x, one);
    return leaf(x);
}

static void
grad__of_a_long_chain_needs_no_stack(void **state)
{
    int n = 200000;
    mr_tree *g =
        GOOD_TREE(mr_grad(long_chain, &n, MR_ARRAYS(mr_float(2.0)), NULL, 0));

    (void)state;
    assert_near(number(mr_tree_array(g)), 1.0, 0);
}

static mr_tree *
squared_modulus(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(mr_square(mr_abs(arg(in, 0))));
}

static void
grad__of_squared_modulus_is_twice_z(void **state)
{
    mr_tree *g = GOOD_TREE(mr_grad(squared_modulus, NULL,
                                   MR_ARRAYS(mr_complex(1.0, 2.0)), NULL, 0));
    mr_scalar v;

    (void)state;
    assert_int_equal(mr_array_item(mr_tree_array(g), &v), MR_OK);
    assert_near(v.as.c.re, 2.0, 1e-6);
    assert_near(v.as.c.im, 4.0, 1e-6);
}

/* ---- errors ---------------------------------------------------------------
 */
static void
grad__of_integers_says_what_to_do(void **state)
{
    (void)state;
    assert_failed(mr_grad(square_fn, NULL, MR_ARRAYS(mr_int(3)), NULL, 0),
                  MR_E_DTYPE, "cast it to a floating dtype");
}

static void
grad__result_must_be_a_number(void **state)
{
    mr_tree *x = MR_ARRAYS(mr_float(3.0));

    (void)state;
    assert_failed(mr_grad(gives_list, NULL, x, NULL, 0), MR_E_VALUE, "a list");
    assert_failed(mr_grad(gives_none, NULL, x, NULL, 0), MR_E_VALUE, "none");
    assert_failed(mr_grad(gives_input, NULL, MR_ARRAYS(VECTOR(1)), NULL, 0),
                  MR_E_SHAPE, "(1,)");
    assert_failed(
        mr_grad(gives_input, NULL, MR_ARRAYS(mr_complex(1, 2)), NULL, 0),
        MR_E_DTYPE, "complex64");
}

static void
grad__arguments_must_be_a_tuple(void **state)
{
    (void)state;
    assert_failed(mr_grad(square_fn, NULL, leaf(mr_float(1.0)), NULL, 0),
                  MR_E_TYPE, "tuple");
}

static void
grad__users_error_passes_unchanged(void **state)
{
    mr_tree *r = mr_grad(user_failure, NULL, MR_ARRAYS(mr_float(1.0)), NULL, 0);
    mr_error e = mr_error_take();

    (void)state;
    assert_null(r);
    assert_int_equal(e.code, MR_E_USER);
    assert_string_equal(e.message, "the user's own words");
    assert_failed(
        mr_grad(silent_failure, NULL, MR_ARRAYS(mr_float(1.0)), NULL, 0),
        MR_E_NULL, "without an error");
}

static void
grad__closes_scopes_left_open(void **state)
{
    mr_tree *g = GOOD_TREE(
        mr_grad(leaves_scope_open, NULL, MR_ARRAYS(mr_float(3.0)), NULL, 0));

    (void)state;
    assert_near(number(mr_tree_array(g)), 6.0, 0);
}

/* ---- vjp ------------------------------------------------------------------
 */
static mr_tree *
two_outputs(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0), *y = arg(in, 1);

    (void)ctx;
    return MR_ARRAYS(mr_multiply(x, y), mr_add(x, y));
}

static void
vjp__sums_over_outputs(void **state)
{
    mr_tree *r = GOOD_TREE(mr_vjp(two_outputs, NULL,
                                  MR_ARRAYS(VECTOR(1, 2), VECTOR(3, 4)),
                                  MR_ARRAYS(VECTOR(1, 10), VECTOR(100, 1000))));

    (void)state;
    VALUES(mr_tree_array_at(mr_tree_at(r, 0), 0), 3, 8);
    VALUES(mr_tree_array_at(mr_tree_at(r, 0), 1), 4, 6);
    VALUES(mr_tree_array_at(mr_tree_at(r, 1), 0), 103, 1040);
    VALUES(mr_tree_array_at(mr_tree_at(r, 1), 1), 101, 1020);
}

static void
vjp__counts_and_shapes_must_match(void **state)
{
    mr_tree *x = MR_ARRAYS(VECTOR(1, 2), VECTOR(3, 4));

    (void)state;
    assert_failed(mr_vjp(two_outputs, NULL, x, MR_ARRAYS(VECTOR(1, 2))),
                  MR_E_VALUE, "1 cotangents for 2 outputs");
    assert_failed(
        mr_vjp(two_outputs, NULL, x, MR_ARRAYS(VECTOR(1, 2), VECTOR(1, 2, 3))),
        MR_E_SHAPE, "cotangent 1");
}

static mr_tree *
takes_by_index(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(mr_take(arg(in, 0), arg(in, 1), 0));
}

static void
vjp__integer_primal_gets_zeros(void **state)
{
    mr_tree *r = GOOD_TREE(mr_vjp(takes_by_index, NULL,
                                  MR_ARRAYS(VECTOR(1, 2, 3), mr_int(1)),
                                  leaf(mr_float(5.0))));

    (void)state;
    VALUES(mr_tree_array_at(mr_tree_at(r, 1), 0), 0, 5, 0);
    VALUES(mr_tree_array_at(mr_tree_at(r, 1), 1), 0);
}

/* ---- closures -------------------------------------------------------------
 */
static int destroyed;

static void
count_destroy(void *ctx)
{
    (void)ctx;
    destroyed++;
}

/* As a binding: results are its own, and it gives its reference away. */
static mr_tree *
foreign_square(void *ctx, const mr_tree *in)
{
    mr_array *y = mr_multiply(arg(in, 0), arg(in, 0));
    mr_tree *t = mr_tree_leaf(y);

    (void)ctx;
    mr_release(y);
    return t;
}

static void
closure__is_destroyed_with_its_last_reference(void **state)
{
    mr_closure *c = mr_closure_new(square_fn, NULL, count_destroy);

    (void)state;
    destroyed = 0;
    assert_ptr_equal(mr_closure_retain(c), c);
    mr_closure_release(c);
    assert_int_equal(destroyed, 0);
    mr_closure_release(c);
    assert_int_equal(destroyed, 1);
    mr_closure_release(NULL);
}

static void
closure__failed_making_destroys_the_context(void **state)
{
    (void)state;
    destroyed = 0;
    assert_failed(mr_closure_new(NULL, NULL, count_destroy), MR_E_NULL, "NULL");
    assert_int_equal(destroyed, 1);
}

static void
closure__foreign_owns_its_results(void **state)
{
    mr_scope none = mr_scope_none();
    int64_t before = mr_test_alloc_live();
    mr_closure *c = mr_closure_new_foreign(foreign_square, NULL, NULL);
    mr_array *x = mr_float(3.0);
    mr_tree *args = MR_ARRAYS(x);
    mr_tree *r = GOOD_TREE(mr_closure_value_and_grad(c, args, NULL, 0));
    mr_tree *y = GOOD_TREE(mr_closure_call(c, args));

    (void)state;
    assert_near(number(mr_tree_array(y)), 9.0, 0);
    assert_near(number(mr_tree_array_at(r, 0)), 9.0, 0);
    assert_near(number(mr_tree_array_at(r, 1)), 6.0, 0);
    mr_tree_release(r);
    mr_tree_release(y);
    mr_tree_release(args);
    mr_release(x);
    mr_closure_release(c);
    assert_int_equal(mr_test_alloc_live(), before);
    mr_scope_end(none);
}

/* ---- memory ---------------------------------------------------------------
 */
static mr_tree *
small_network(void *ctx, const mr_tree *in)
{
    mr_array *w = arg(in, 0), *x = arg(in, 1);
    mr_array *h = mr_tanh(mr_multiply(w, x));

    (void)ctx;
    return leaf(mr_sum(mr_multiply(h, w), MR_AXES_ALL, false));
}

static bool
try_network(void)
{
    mr_scope s = mr_scope_begin();
    mr_tree *r = NULL;
    bool good;

    if (s.token == 0)
        return false;
    r = mr_value_and_grad(
        small_network, NULL,
        MR_ARRAYS(mr_array_from_f32((float[]){1, 2}, MR_SHAPE(2)),
                  mr_array_from_f32((float[]){3, 4}, MR_SHAPE(2))),
        (int[]){0, 1}, 2);
    good = r != NULL;
    if (!good)
        assert_int_equal(mr_error_take().code, MR_E_MEMORY);
    assert_int_equal(mr_scope_end(s), MR_OK);
    return good;
}

static void
grad__failed_allocations_leak_nothing(void **state)
{
    int64_t live;
    int n = 0;

    (void)state;
    assert_true(try_network()); /* caches fill */
    assert_true(try_network());
    live = mr_test_alloc_live();
    for (;; n++) {
        bool good;

        mr_test_alloc_fail_after(n);
        good = try_network();
        mr_test_alloc_fail_after(-1);
        assert_int_equal(mr_test_alloc_live(), live);
        if (good)
            break;
    }
    assert_true(n > 10);
}

static void
grad__failure_leaks_nothing(void **state)
{
    int64_t live = 0;

    (void)state;
    for (int i = 0; i < 3; i++) {
        mr_scope s = mr_scope_begin();

        mr_grad(user_failure, NULL, MR_ARRAYS(mr_float(1.0)), NULL, 0);
        mr_error_take();
        mr_scope_end(s);
        if (i == 1)
            live = mr_test_alloc_live();
    }
    assert_int_equal(mr_test_alloc_live(), live);
}

static void
assert_refused(mr_code code, const char *text)
{
    mr_error e = mr_error_take();

    assert_int_equal(e.code, code);
    if (strstr(e.message, text) == NULL)
        fail_msg("'%s' lacks '%s'", e.message, text);
}

static void
check_grad__passes_the_right_and_names_the_wrong(void **state)
{
    (void)state;
    mr_array *x = mr_array_from_f32((float[]){2.0F}, (mr_shape){NULL, 0});
    mr_array *y = mr_astype(
        mr_array_from_f32((float[]){3.0F}, (mr_shape){NULL, 0}), MR_FLOAT64);
    mr_array *i = mr_full((mr_shape){NULL, 0}, 1.0, MR_INT32);

    assert_int_equal(mr_check_grad(power_four, NULL, MR_ARRAYS(x), 0.0, 0.0),
                     MR_OK);
    assert_int_equal(
        mr_check_grad(product_of_two, NULL, MR_ARRAYS(y, x), 0.0, 0.0), MR_OK);
    assert_int_equal(
        mr_check_grad(first_alone, NULL, MR_ARRAYS(y, i), 0.0, 0.0), MR_OK);
    assert_int_equal(mr_check_grad(times_item, NULL, MR_ARRAYS(y), 0.0, 0.0),
                     MR_E_VALUE);
    assert_refused(MR_E_VALUE,
                   "leaf 0 of the arguments, element 0 of shape (): the "
                   "gradient is 3, differences give");
    assert_int_equal(mr_check_grad(first_alone, NULL, MR_ARRAYS(i), 0.0, 0.0),
                     MR_E_VALUE);
    assert_refused(MR_E_VALUE, "no float32 or float64 array");
    assert_int_equal(mr_check_grad(user_failure, NULL, MR_ARRAYS(x), 0.0, 0.0),
                     MR_E_USER);
    assert_refused(MR_E_USER, "the user's own words");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCOPED(grad__square_is_twice_x),
        SCOPED(grad__of_identity_is_one),
        SCOPED(grad__value_read_inside_is_constant),
        SCOPED(grad__passes_through_what_was_evaluated),
        SCOPED(grad__unused_argument_gets_zeros),
        SCOPED(grad__of_constant_is_zero),
        SCOPED(grad__argnums_choose_and_may_be_negative),
        SCOPED(grad__argnums_out_of_range_or_repeated_are_refused),
        SCOPED(grad__has_the_tree_of_its_argument),
        SCOPED(value_and_grad__gives_value_and_auxiliary),
        SCOPED(grad__nests_in_itself),
        SCOPED(grad__does_not_confuse_perturbations),
        SCOPED(grad__of_grad_sees_captured_tracers),
        SCOPED(grad__of_a_long_chain_needs_no_stack),
        SCOPED(grad__of_squared_modulus_is_twice_z),
        SCOPED(grad__of_integers_says_what_to_do),
        SCOPED(grad__result_must_be_a_number),
        SCOPED(grad__arguments_must_be_a_tuple),
        SCOPED(grad__users_error_passes_unchanged),
        SCOPED(grad__closes_scopes_left_open),
        SCOPED(vjp__sums_over_outputs),
        SCOPED(vjp__counts_and_shapes_must_match),
        SCOPED(vjp__integer_primal_gets_zeros),
        SCOPED(check_grad__passes_the_right_and_names_the_wrong),
        SCOPED(closure__is_destroyed_with_its_last_reference),
        SCOPED(closure__failed_making_destroys_the_context),
        SCOPED(closure__foreign_owns_its_results),
        cmocka_unit_test(grad__failed_allocations_leak_nothing),
        cmocka_unit_test(grad__failure_leaks_nothing),
    };

    return cmocka_run_group_tests_name("transform/grad", tests, NULL, NULL);
}
