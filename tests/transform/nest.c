/* SPDX-License-Identifier: Apache-2.0
 *
 * nest.c -- tests of jvp and vmap, and of transforms inside transforms.
 *
 * f(x, y) = sum(x^2 y) has all derivatives by hand:
 * f_x = 2xy, f_y = x^2, f_xx = 2y, f_xy = 2x.
 */
#include "transform/support.h"

static mr_tree *
f_number(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0), *y = arg(in, 1);

    (void)ctx;
    return leaf(mr_sum(mr_multiply(mr_multiply(x, x), y), MR_AXES_ALL, false));
}

static mr_tree *
f_elements(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0), *y = arg(in, 1);

    (void)ctx;
    return leaf(mr_multiply(mr_multiply(x, x), y));
}

static mr_tree *
grad_f(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_grad(f_number, NULL, in, NULL, 0);
}

/* ---- jvp ------------------------------------------------------------------
 */
static void
jvp__pushes_tangents(void **state)
{
    mr_tree *r = GOOD_TREE(mr_jvp(f_elements, NULL,
                                  MR_ARRAYS(VECTOR(1, 2), VECTOR(3, 4)),
                                  MR_ARRAYS(VECTOR(1, 0), VECTOR(0, 1))));

    (void)state;
    VALUES(mr_tree_array(mr_tree_at(r, 0)), 3, 16);
    VALUES(mr_tree_array(mr_tree_at(r, 1)), 2 * 1 * 3, 2 * 2);
}

static mr_tree *
second_output_constant(void *ctx, const mr_tree *in)
{
    return MR_ARRAYS(arg(in, 0), mr_negative(ctx));
}

static void
jvp__independent_output_has_zeros(void **state)
{
    mr_tree *r =
        GOOD_TREE(mr_jvp(second_output_constant, VECTOR(1, 2, 3),
                         MR_ARRAYS(mr_float(2.0)), MR_ARRAYS(mr_float(7.0))));

    (void)state;
    VALUES(mr_tree_array_at(mr_tree_at(r, 1), 0), 7);
    VALUES(mr_tree_array_at(mr_tree_at(r, 1), 1), 0, 0, 0);
}

static void
jvp__counts_and_shapes_must_match(void **state)
{
    mr_tree *x = MR_ARRAYS(VECTOR(1, 2), VECTOR(3, 4));

    (void)state;
    assert_failed(mr_jvp(f_elements, NULL, x, MR_ARRAYS(VECTOR(1, 2))),
                  MR_E_VALUE, "1 tangents for 2 primals");
    assert_failed(
        mr_jvp(f_elements, NULL, x, MR_ARRAYS(VECTOR(1, 2), VECTOR(1))),
        MR_E_SHAPE, "tangent 1");
}

/* ---- vmap -----------------------------------------------------------------
 */
static mr_tree *
sum_of_product(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(
        mr_sum(mr_multiply(arg(in, 0), arg(in, 1)), MR_AXES_ALL, false));
}

static mr_array *
matrix23(void)
{
    return GOOD(mr_array_from_f32((float[]){1, 2, 3, 4, 5, 6}, MR_SHAPE(2, 3)));
}

static void
vmap__equals_a_loop_on_any_axis(void **state)
{
    mr_tree *rows = MR_ARRAYS(matrix23(), VECTOR(1, 10, 100));
    mr_tree *columns = MR_ARRAYS(matrix23(), VECTOR(1, 10));
    int32_t front[] = {0, MR_VMAP_NONE}, back[] = {-1, MR_VMAP_NONE};
    mr_tree *a =
        GOOD_TREE(mr_vmap(sum_of_product, NULL, rows, front, 2, NULL, 0));
    mr_tree *b =
        GOOD_TREE(mr_vmap(sum_of_product, NULL, columns, back, 2, NULL, 0));

    (void)state;
    VALUES(mr_tree_array(a), 321, 654);
    VALUES(mr_tree_array(b), 41, 52, 63);
}

static mr_tree *
add_arguments(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(mr_add(arg(in, 0), arg(in, 1)));
}

static void
vmap__puts_the_batch_where_out_axes_say(void **state)
{
    int32_t in[] = {0, 1}, back = -1, one = 1;
    mr_array *x = matrix23();
    mr_tree *args =
        MR_ARRAYS(x, mr_transpose(x, MR_INTS_NONE)); /* (2, 3), (3, 2) */
    mr_tree *a = GOOD_TREE(mr_vmap(add_arguments, NULL, args, in, 2, &back, 1));
    mr_tree *b = GOOD_TREE(mr_vmap(add_arguments, NULL, args, in, 2, &one, 1));

    (void)state;
    DIMS(mr_tree_array(a), 3, 2);
    VALUES(mr_tree_array(a), 2, 8, 4, 10, 6, 12);
    VALUES(mr_tree_array(b), 2, 8, 4, 10, 6, 12);
}

static mr_tree *
mapped_and_not(void *ctx, const mr_tree *in)
{
    return MR_ARRAYS(mr_negative(arg(in, 0)), ctx);
}

static void
vmap__independent_output_is_broadcast(void **state)
{
    int32_t in = 0, out[] = {0, 1};
    mr_tree *r = GOOD_TREE(mr_vmap(mapped_and_not, VECTOR(7, 8),
                                   MR_ARRAYS(VECTOR(1, 2, 3)), &in, 1, out, 2));

    (void)state;
    VALUES(mr_tree_array_at(r, 0), -1, -2, -3);
    DIMS(mr_tree_array_at(r, 1), 2, 3);
    VALUES(mr_tree_array_at(r, 1), 7, 7, 7, 8, 8, 8);
}

static mr_tree *
reads_a_value(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_eval(arg(in, 0)) == MR_OK ? leaf(arg(in, 0)) : NULL;
}

static void
vmap__evaluating_inside_is_refused(void **state)
{
    int32_t in = 0;

    (void)state;
    assert_failed(
        mr_vmap(reads_a_value, NULL, MR_ARRAYS(VECTOR(1, 2)), &in, 1, NULL, 0),
        MR_E_STATE, "vmap");
    /* and allowed again behind it */
    VALUES(mr_negative(VECTOR(1)), -1);
}

static void
vmap__axes_are_checked(void **state)
{
    mr_tree *args = MR_ARRAYS(VECTOR(1, 2), VECTOR(1, 2, 3));
    int32_t both[] = {0, 0}, far[] = {1, MR_VMAP_NONE};
    int32_t none[] = {MR_VMAP_NONE, MR_VMAP_NONE}, first[] = {0, MR_VMAP_NONE};
    int32_t out[] = {0, 0}, beyond = 2;

    (void)state;
    assert_failed(mr_vmap(add_arguments, NULL, args, both, 2, NULL, 0),
                  MR_E_VALUE, "must agree");
    assert_failed(mr_vmap(add_arguments, NULL, args, far, 2, NULL, 0),
                  MR_E_INDEX, "in_axes 0 is 1");
    assert_failed(mr_vmap(add_arguments, NULL, args, none, 2, NULL, 0),
                  MR_E_VALUE, "no argument is mapped");
    assert_failed(mr_vmap(add_arguments, NULL, args, first, 1, NULL, 0),
                  MR_E_VALUE, "1 in_axes for 2 arrays");
    assert_failed(mr_vmap(add_arguments, NULL, args, first, 2, out, 2),
                  MR_E_VALUE, "2 out_axes for 1");
    assert_failed(mr_vmap(add_arguments, NULL, args, first, 2, &beyond, 1),
                  MR_E_INDEX, "out_axes 0 is 2");
}

/* ---- one in another -------------------------------------------------------
 */
static void
vmap__of_grad_gives_a_gradient_each(void **state)
{
    int32_t in[] = {0, 0};
    mr_tree *r = GOOD_TREE(mr_vmap(grad_f, NULL,
                                   MR_ARRAYS(VECTOR(1, 2, 3), VECTOR(4, 5, 6)),
                                   in, 2, NULL, 0));

    (void)state;
    VALUES(mr_tree_array(r), 8, 20, 36);
}

/* sum over the batch of f, captured y an outer tracer. */
static mr_tree *
captures_y(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0);

    return leaf(mr_multiply(mr_multiply(x, x), ctx));
}

static mr_tree *
sum_of_vmap(void *ctx, const mr_tree *in)
{
    int32_t axis = 0;
    mr_tree *r = mr_vmap(captures_y, arg(in, 1), MR_ARRAYS(arg(in, 0)), &axis,
                         1, NULL, 0);

    (void)ctx;
    return r ? leaf(mr_sum(mr_tree_array(r), MR_AXES_ALL, false)) : NULL;
}

static void
grad__of_vmap_reaches_mapped_and_captured(void **state)
{
    mr_tree *g = GOOD_TREE(mr_grad(sum_of_vmap, NULL,
                                   MR_ARRAYS(VECTOR(1, 2, 3), mr_float(10.0)),
                                   (int[]){0, 1}, 2));

    (void)state;
    VALUES(mr_tree_array_at(g, 0), 20, 40, 60);
    VALUES(mr_tree_array_at(g, 1), 14);
}

static void
jvp__of_grad_is_hessian_times_vector(void **state)
{
    mr_tree *r =
        GOOD_TREE(mr_jvp(grad_f, NULL, MR_ARRAYS(VECTOR(1, 2), VECTOR(3, 4)),
                         MR_ARRAYS(VECTOR(1, 0), VECTOR(0, 1))));

    (void)state;
    VALUES(mr_tree_array(mr_tree_at(r, 0)), 6, 16);
    VALUES(mr_tree_array(mr_tree_at(r, 1)), 2 * 3, 2 * 2);
}

static mr_tree *
directional(void *ctx, const mr_tree *in)
{
    mr_tree *r = mr_jvp(f_number, NULL, in, ctx);

    return r ? leaf(mr_tree_array(mr_tree_at(r, 1))) : NULL;
}

static void
grad__of_jvp_is_hessian_times_vector(void **state)
{
    mr_tree *t = MR_ARRAYS(VECTOR(1, 0), VECTOR(0, 1));
    mr_tree *g = GOOD_TREE(mr_grad(
        directional, t, MR_ARRAYS(VECTOR(1, 2), VECTOR(3, 4)), NULL, 0));

    (void)state;
    VALUES(mr_tree_array(g), 2 * 3, 2 * 2);
}

static void
jvp__of_jvp_is_the_second_derivative(void **state)
{
    mr_tree *t = MR_ARRAYS(mr_float(1.0), mr_float(0.0));
    mr_tree *r = GOOD_TREE(
        mr_jvp(directional, t, MR_ARRAYS(mr_float(3.0), mr_float(5.0)), t));

    (void)state;
    VALUES(mr_tree_array(mr_tree_at(r, 1)), 2 * 5);
}

static mr_tree *
pulled_back(void *ctx, const mr_tree *in)
{
    mr_tree *r = mr_vjp(f_elements, NULL, in, leaf(ctx));

    return r ? mr_tree_at(mr_tree_at(r, 1), 0) : NULL;
}

static void
jvp__of_vjp_is_right(void **state)
{
    mr_tree *r = GOOD_TREE(mr_jvp(pulled_back, VECTOR(1, 1),
                                  MR_ARRAYS(VECTOR(1, 2), VECTOR(3, 4)),
                                  MR_ARRAYS(VECTOR(1, 0), VECTOR(0, 1))));

    (void)state;
    VALUES(mr_tree_array(mr_tree_at(r, 1)), 6, 4);
}

static mr_tree *
inner_row(void *ctx, const mr_tree *in)
{
    return leaf(mr_add(mr_multiply(arg(in, 0), ctx), ctx));
}

static mr_tree *
outer_row(void *ctx, const mr_tree *in)
{
    int32_t axis = 0;

    (void)ctx;
    return mr_vmap(inner_row, arg(in, 1), MR_ARRAYS(arg(in, 0)), &axis, 1, NULL,
                   0);
}

static void
vmap__of_vmap_with_captured_batch(void **state)
{
    int32_t in[] = {0, 0};
    mr_tree *r = GOOD_TREE(mr_vmap(outer_row, NULL,
                                   MR_ARRAYS(matrix23(), VECTOR(10, 100)), in,
                                   2, NULL, 0));

    (void)state;
    DIMS(mr_tree_array(r), 2, 3);
    VALUES(mr_tree_array(r), 20, 30, 40, 500, 600, 700);
}

static void
vmap__of_jvp_pushes_each_tangent(void **state)
{
    int32_t in[] = {0, 0};
    mr_tree *r = GOOD_TREE(
        mr_vmap(directional, MR_ARRAYS(mr_float(1.0), mr_float(0.0)),
                MR_ARRAYS(VECTOR(1, 2, 3), VECTOR(4, 5, 6)), in, 2, NULL, 0));

    (void)state;
    VALUES(mr_tree_array(r), 8, 20, 36);
}

static void
vmap__of_grad_leaves_nothing_behind(void **state)
{
    int64_t live = 0;

    (void)state;
    for (int i = 0; i < 4; i++) {
        mr_scope s = mr_scope_begin();
        int32_t in[] = {0, 0};
        mr_tree *r = GOOD_TREE(
            mr_vmap(grad_f, NULL, MR_ARRAYS(VECTOR(1, 2, 3), VECTOR(4, 5, 6)),
                    in, 2, NULL, 0));

        VALUES(mr_tree_array(r), 8, 20, 36);
        mr_scope_end(s);
        if (i == 2)
            live = mr_test_alloc_live();
    }
    assert_int_equal(mr_test_alloc_live(), live);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCOPED(jvp__pushes_tangents),
        SCOPED(jvp__independent_output_has_zeros),
        SCOPED(jvp__counts_and_shapes_must_match),
        SCOPED(vmap__equals_a_loop_on_any_axis),
        SCOPED(vmap__puts_the_batch_where_out_axes_say),
        SCOPED(vmap__independent_output_is_broadcast),
        SCOPED(vmap__evaluating_inside_is_refused),
        SCOPED(vmap__axes_are_checked),
        SCOPED(vmap__of_grad_gives_a_gradient_each),
        SCOPED(grad__of_vmap_reaches_mapped_and_captured),
        SCOPED(jvp__of_grad_is_hessian_times_vector),
        SCOPED(grad__of_jvp_is_hessian_times_vector),
        SCOPED(jvp__of_jvp_is_the_second_derivative),
        SCOPED(jvp__of_vjp_is_right),
        SCOPED(vmap__of_vmap_with_captured_batch),
        SCOPED(vmap__of_jvp_pushes_each_tangent),
        cmocka_unit_test(vmap__of_grad_leaves_nothing_behind),
    };

    return cmocka_run_group_tests_name("transform/nest", tests, NULL, NULL);
}
