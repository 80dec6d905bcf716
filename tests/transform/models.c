/* SPDX-License-Identifier: Apache-2.0
 *
 * models.c -- identities that hold for every function, on functions made of
 * many kinds of operators, in float64:
 *
 *   u . (J t) = (J^T u) . t       forward and reverse mode agree
 *   f(x + h t) - f(x - h t) = 2 h J t + O(h^3)
 *   vmap(f) = a loop over f, and vmap(grad f) = a loop over grad f
 *   jvp of grad = grad of jvp     the Hessian is symmetric
 */
#include "transform/support.h"

enum { N = 6, BATCH = 3 };

/* from, from + 1, ... in float64. */
static mr_array *
count(int from, int n)
{
    double v[64];

    for (int i = 0; i < n; i++)
        v[i] = from + i;
    return good_array(mr_array_from_f64(v, MR_SHAPE(n)), "count");
}

/* Each takes a (2, 3) array. */
static mr_tree *
network(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0);
    mr_array *w = mr_reshape(count(0, 12), MR_SHAPE(3, 4));

    (void)ctx;
    w = mr_sin(w);
    return leaf(mr_tanh(
        mr_matmul(mr_sigmoid(mr_matmul(x, w)), mr_transpose(w, MR_INTS_NONE))));
}

static mr_tree *
soft(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0);

    (void)ctx;
    return leaf(mr_multiply(mr_softmax(x, MR_AXES(-1), false),
                            mr_logsumexp(x, MR_AXES(0), true)));
}

static mr_tree *
picks(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0);
    mr_array *i = mr_array_from_i32((int32_t[]){2, 0, 2}, MR_SHAPE(3));

    (void)ctx;
    x = mr_multiply(mr_take(x, i, 1), mr_max(x, MR_AXES(1), true));
    return leaf(mr_multiply(x, mr_sort(x, 1)));
}

static mr_tree *
sums(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0);
    mr_array *both[2] = {x, mr_square(x)};

    (void)ctx;
    x = mr_cumsum(mr_concatenate(both, 2, 0), 0, true, false, MR_DTYPE_DEFAULT);
    return leaf(mr_var(mr_multiply(x, x), MR_AXES(0), false, 0));
}

static mr_tree *
chooses(void *ctx, const mr_tree *in)
{
    mr_array *x = arg(in, 0);
    mr_array *y = mr_where(mr_greater(x, mr_number_like(x, 0.3)), mr_exp(x),
                           mr_power(mr_abs(x), mr_number_like(x, 3)));

    (void)ctx;
    return leaf(mr_prod(y, MR_AXES(1), false));
}

static const mr_fn functions[] = {network, soft, picks, sums, chooses};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };

/* ---- points and directions -------------------------------------------------
 */
static mr_array *
point(int seed)
{
    double v[N];

    for (int i = 0; i < N; i++)
        v[i] = sin(1.7 * i + 2.3 * seed) + 0.1 * i;
    return good_array(mr_array_from_f64(v, MR_SHAPE(2, 3)), "a point");
}

static double
dot(mr_array *a, mr_array *b)
{
    return number(mr_sum(mr_multiply(a, b), MR_AXES_ALL, false));
}

static mr_array *
value(mr_fn f, mr_array *x)
{
    return GOOD(mr_tree_array(good_tree(f(NULL, MR_ARRAYS(x)), "f")));
}

static mr_array *
push(mr_fn f, mr_array *x, mr_array *t)
{
    mr_tree *r = GOOD_TREE(mr_jvp(f, NULL, MR_ARRAYS(x), MR_ARRAYS(t)));

    return mr_tree_array(mr_tree_at(r, 1));
}

static mr_array *
pull(mr_fn f, mr_array *x, mr_array *u)
{
    mr_tree *r = GOOD_TREE(mr_vjp(f, NULL, MR_ARRAYS(x), leaf(u)));

    return mr_tree_array_at(mr_tree_at(r, 1), 0);
}

/* A direction shaped as f's result. */
static mr_array *
direction(mr_array *y)
{
    return mr_cos(
        mr_reshape(count(1, (int)mr_array_size(y)), mr_array_shape(y)));
}

static void
modes__agree(void **state)
{
    (void)state;
    for (int i = 0; i < N_FUNCTIONS; i++) {
        mr_array *x = point(i), *t = point(i + 10);
        mr_array *u = direction(value(functions[i], x));

        assert_near(dot(u, push(functions[i], x, t)),
                    dot(pull(functions[i], x, u), t), 1e-12);
    }
}

static void
modes__agree_with_differences(void **state)
{
    const double h = 1e-5;

    (void)state;
    for (int i = 0; i < N_FUNCTIONS; i++) {
        mr_array *x = point(i), *t = point(i + 10);
        mr_array *ht = mr_multiply(t, mr_number_like(t, h));
        mr_array *more = value(functions[i], mr_add(x, ht));
        mr_array *less = value(functions[i], mr_subtract(x, ht));
        mr_array *u = direction(more);

        assert_near(dot(u, mr_subtract(more, less)) / (2 * h),
                    dot(u, push(functions[i], x, t)), 1e-7);
    }
}

/* ---- batches
 * ------------------------------------------------------------------ */
static mr_tree *
summed(void *ctx, const mr_tree *in)
{
    const mr_fn *f = ctx;
    mr_tree *y = (*f)(NULL, in);

    return y ? leaf(mr_sum(mr_sin(mr_tree_array(y)), MR_AXES_ALL, false))
             : NULL;
}

static mr_tree *
gradient(void *ctx, const mr_tree *in)
{
    return mr_grad(summed, ctx, in, NULL, 0);
}

static mr_tree *
plain(void *ctx, const mr_tree *in)
{
    const mr_fn *f = ctx;

    return (*f)(NULL, in);
}

static void
check_batch(mr_fn outer, mr_fn f, int32_t axis)
{
    mr_array *x[BATCH], *y[BATCH], *all;
    mr_tree *r;

    for (int k = 0; k < BATCH; k++) {
        x[k] = point(20 + k);
        y[k] = mr_tree_array(good_tree(outer(&f, MR_ARRAYS(x[k])), "the loop"));
    }
    all = GOOD(mr_stack(x, BATCH, axis));
    r = GOOD_TREE(mr_vmap(outer, &f, MR_ARRAYS(all), &axis, 1, NULL, 0));
    assert_near(number(mr_max(mr_abs(mr_subtract(mr_tree_array(r),
                                                 mr_stack(y, BATCH, 0))),
                              MR_AXES_ALL, false)),
                0, 1e-12);
}

static void
vmap__equals_the_loop(void **state)
{
    (void)state;
    for (int i = 0; i < N_FUNCTIONS; i++)
        for (int32_t axis = -1; axis < 3; axis++)
            check_batch(plain, functions[i], axis);
}

static void
vmap__of_grad_equals_the_loop(void **state)
{
    (void)state;
    for (int i = 0; i < N_FUNCTIONS; i++)
        for (int32_t axis = 0; axis < 3; axis++)
            check_batch(gradient, functions[i], axis);
}

/* ---- second derivatives
 * -------------------------------------------------------- */
struct along {
    mr_fn f;
    mr_array *t;
};

static mr_tree *
slope_along(void *ctx, const mr_tree *in)
{
    struct along *a = ctx;
    mr_tree *r = mr_jvp(summed, &a->f, in, MR_ARRAYS(a->t));

    return r ? leaf(mr_tree_array(mr_tree_at(r, 1))) : NULL;
}

static void
second_derivatives__are_symmetric(void **state)
{
    (void)state;
    for (int i = 0; i < N_FUNCTIONS; i++) {
        mr_array *x = point(i), *t = point(i + 10), *u = point(i + 30);
        struct along a = {functions[i], t};
        mr_tree *forward =
            GOOD_TREE(mr_jvp(gradient, &a.f, MR_ARRAYS(x), MR_ARRAYS(t)));
        mr_tree *backward =
            GOOD_TREE(mr_grad(slope_along, &a, MR_ARRAYS(x), NULL, 0));
        mr_tree *twice =
            GOOD_TREE(mr_jvp(slope_along, &a, MR_ARRAYS(x), MR_ARRAYS(u)));
        double uHt = dot(u, mr_tree_array(mr_tree_at(forward, 1)));

        assert_near(dot(u, mr_tree_array(backward)), uHt, 1e-11);
        assert_near(number(mr_tree_array(mr_tree_at(twice, 1))), uHt, 1e-11);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCOPED(modes__agree),
        SCOPED(modes__agree_with_differences),
        SCOPED(vmap__equals_the_loop),
        SCOPED(vmap__of_grad_equals_the_loop),
        SCOPED(second_derivatives__are_symmetric),
    };

    return cmocka_run_group_tests_name("transform/models", tests, NULL, NULL);
}
