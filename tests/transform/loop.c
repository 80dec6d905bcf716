/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.c -- tests of vmap without a rule: one node whatever the size of the
 * batch, right values and derivatives, also compiled.  The operators are the
 * library's, without their vmap rules.
 */
#include "transform/support.h"

#include "gen/ids.h"
#include "graph/op.h"
#include "marram/compile.h"
#include "marram/sys/info.h"

static mr_op bare_scan, bare_matmul;

static int
make_operators(void **state)
{
    (void)state;
    bare_scan = *mr__op_table[MR_OP_SCAN];
    bare_matmul = *mr__op_table[MR_OP_MATMUL];
    bare_scan.vmap = bare_matmul.vmap = NULL;
    return 0;
}

/* The node below x, of the operator without a rule. */
static mr_array *
bare(const mr_op *op, mr_array *x)
{
    while (x && x->op->id != op->id)
        x = x->in[0];
    if (!x)
        return NULL;
    return mr__node_new(op, x->params, x->n_in, x->in);
}

static mr_tree *
running_sum(void *ctx, const mr_tree *in)
{
    mr_array *y = mr_cumsum(arg(in, 0), 0, false, true, MR_DTYPE_DEFAULT);

    (void)ctx;
    return leaf(bare(&bare_scan, y));
}

static mr_tree *
product(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(mr_sum(bare(&bare_matmul, mr_matmul(arg(in, 0), arg(in, 1))),
                       MR_AXES_ALL, false));
}

static mr_array *
matrix(int rows, int columns)
{
    float v[3000];

    for (int i = 0; i < rows * columns; i++)
        v[i] = (float)i;
    mr_array *x = vector(rows * columns, v);

    return GOOD(mr_reshape(x, MR_SHAPE(rows, columns)));
}

static mr_array *
mapped(mr_fn fn, mr_tree *args, const int32_t *axes, int n)
{
    return mr_tree_array(GOOD_TREE(mr_vmap(fn, NULL, args, axes, n, NULL, 0)));
}

static void
vmap__without_rule_runs_the_kernel_for_each_entry(void **state)
{
    int32_t front[2] = {0, 0}, last[1] = {1}, first_only[2] = {0, MR_VMAP_NONE};
    mr_array *x = matrix(2, 3);

    (void)state;
    VALUES(mapped(running_sum, MR_ARRAYS(x), front, 1), 0, 1, 3, 3, 7, 12);
    VALUES(mapped(running_sum, MR_ARRAYS(x), last, 1), 0, 3, 1, 5, 2, 7);
    VALUES(mapped(product, MR_ARRAYS(x, x), front, 2), 5, 50);
    VALUES(mapped(product, MR_ARRAYS(x, VECTOR(1, 0, 2)), first_only, 2), 4,
           13);
}

static void
vmap__without_rule_is_one_node(void **state)
{
    int32_t axis = 0;
    uint64_t before, small, large;

    (void)state;
    mr_array *x = matrix(2, 3), *y = matrix(1000, 3);

    before = mr__nodes_made();
    mapped(running_sum, MR_ARRAYS(x), &axis, 1);
    small = mr__nodes_made() - before;
    before = mr__nodes_made();
    mapped(running_sum, MR_ARRAYS(y), &axis, 1);
    large = mr__nodes_made() - before;
    assert_int_equal(small, large);
}

static mr_tree *
loss(void *ctx, const mr_tree *in)
{
    int32_t axes[2] = {0, MR_VMAP_NONE};
    mr_tree *y = mr_vmap(product, NULL, in, axes, 2, NULL, 0);

    (void)ctx;
    return y ? leaf(mr_sum(mr_square(mr_tree_array(y)), MR_AXES_ALL, false))
             : NULL;
}

/* sum of (x_i . v)^2: the gradient by v is 2 sum (x_i . v) x_i. */
static void
grad__through_the_loop(void **state)
{
    mr_array *x = matrix(2, 3), *v = VECTOR(1, 0, 2);
    mr_tree *g =
        GOOD_TREE(mr_grad(loss, NULL, MR_ARRAYS(x, v), (int[]){0, 1}, 2));

    (void)state;
    VALUES(mr_tree_array_at(g, 0), 8, 0, 16, 26, 0, 52);
    VALUES(mr_tree_array_at(g, 1), 2 * (13 * 3), 2 * (4 + 13 * 4),
           2 * (4 * 2 + 13 * 5));
}

static mr_tree *
grad_v(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_grad(loss, NULL, in, (int[]){1}, 1);
}

/* The Hessian by v is 2 X^T X, whatever the order of the transforms. */
static void
jvp__of_grad_through_the_loop(void **state)
{
    mr_array *x = matrix(2, 3), *v = VECTOR(1, 0, 2);
    mr_array *none = GOOD(mr_zeros_like(x, MR_DTYPE_DEFAULT));
    mr_tree *r = GOOD_TREE(mr_jvp(grad_v, NULL, MR_ARRAYS(x, v),
                                  MR_ARRAYS(none, VECTOR(1, 0, 0))));

    (void)state;
    VALUES(mr_tree_array(mr_tree_at(r, 1)), 18, 24, 30);
}

static mr_tree *
rows_of_rows(void *ctx, const mr_tree *in)
{
    int32_t axis = 0;

    (void)ctx;
    return mr_vmap(running_sum, NULL, in, &axis, 1, NULL, 0);
}

static void
vmap__of_the_loop_is_a_loop_of_loops(void **state)
{
    int32_t axis = 0;
    mr_array *x = GOOD(mr_reshape(matrix(2, 4), MR_SHAPE(2, 2, 2)));

    (void)state;
    VALUES(mapped(rows_of_rows, MR_ARRAYS(x), &axis, 1), 0, 1, 2, 5, 4, 9, 6,
           13);
}

static void
compile__holds_the_loop(void **state)
{
    mr_array *x = matrix(2, 3);
    mr_function *f = mr_compile(rows_of_rows, NULL, NULL);

    (void)state;
    for (int i = 0; i < 2; i++) {
        mr_tree *y = GOOD_TREE(mr_call(f, MR_ARRAYS(x)));

        VALUES(mr_tree_array(y), 0, 1, 3, 3, 7, 12);
    }
    mr_function_release(f);
}

/* What the library itself has. */
static void
operators__all_have_derivatives_or_say_why_not(void **state)
{
    mr_op_info info = {.size = sizeof info};

    (void)state;
    for (int i = 0; mr_op_info_at(i, &info) == MR_OK; i++) {
        if (info.vjp == MR_RULE_FALLBACK || info.vmap == MR_RULE_FALLBACK)
            print_message("%s has no rule\n", info.name);
        assert_int_not_equal(info.vjp, MR_RULE_FALLBACK);
        info.size = sizeof info;
    }
    mr_error_take();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCOPED(vmap__without_rule_runs_the_kernel_for_each_entry),
        SCOPED(vmap__without_rule_is_one_node),
        SCOPED(grad__through_the_loop),
        SCOPED(jvp__of_grad_through_the_loop),
        SCOPED(vmap__of_the_loop_is_a_loop_of_loops),
        SCOPED(compile__holds_the_loop),
        SCOPED(operators__all_have_derivatives_or_say_why_not),
    };

    return cmocka_run_group_tests_name("transform/loop", tests, make_operators,
                                       NULL);
}
