/* SPDX-License-Identifier: Apache-2.0
 *
 * custom.c -- functions with rules of their own, checkpoint, depends and the
 * loop of vmap with each of their allocations failing in turn: an error that
 * says so, nothing lost, and the next call right.
 */
#include "faults/each.h"

#include "gen/ids.h"
#include "graph/op.h"
#include "marram/transform.h"

static mr_tree *
inside(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    return mr_tree_leaf(mr_sin(mr_multiply(mr_exp(x), *(mr_array **)ctx)));
}

static mr_tree *
pass_back(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_tuple(1, (mr_tree *[]){mr_tree_at(in, 1)});
}

static mr_tree *
pass_forward(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_at(mr_tree_at(in, 1), 0);
}

static mr_array *captured;

/* The sum of the subject over a batch, mapped along axis 0. */
static mr_tree *
loss(void *ctx, const mr_tree *in)
{
    int32_t axis = 0;
    mr_tree *x = mr_tree_arrays(1, (mr_array *[]){mr_tree_array_at(in, 0)});
    mr_tree *y;

    captured = mr_tree_array_at(in, 1);
    y = mr_closure_vmap(ctx, x, &axis, 1, NULL, 0);
    return y ? mr_tree_leaf(mr_sum(mr_tree_array(y), MR_AXES_ALL, false))
             : NULL;
}

/* Takes c: the gradient and, through it, the tangent of a loss over it. */
static mr_tree *
grad_of(mr_closure *c, void *arg, int n_argnums)
{
    mr_tree *g = c ? mr_grad(loss, c, arg, (int[]){0, 1}, n_argnums) : NULL;

    g = each_evaluated(g);
    mr_closure_release(c);
    return g;
}

static mr_closure *
closure(mr_fn fn)
{
    return mr_closure_new(fn, (void *)&captured, NULL);
}

static mr_tree *
run_checkpoint(void *arg)
{
    mr_closure *f = closure(inside), *c = f ? mr_checkpoint(f) : NULL;

    mr_closure_release(f);
    return grad_of(c, arg, 2);
}

static mr_closure *
with_rules(void)
{
    mr_closure *f = closure(inside);
    mr_custom_options o = {.size = sizeof o};
    mr_closure *c = NULL;

    o.vjp = f ? closure(pass_back) : NULL;
    o.jvp = o.vjp ? closure(pass_forward) : NULL;
    if (o.jvp)
        c = mr_custom_function(f, &o);
    mr_closure_release(f);
    mr_closure_release(o.vjp);
    mr_closure_release(o.jvp);
    return c;
}

static mr_tree *
run_rules(void *arg)
{
    return grad_of(with_rules(), arg, 1);
}

/* What is captured has no tangent here. */
static mr_tree *
loss_of_one(void *ctx, const mr_tree *in)
{
    int32_t axis = 0;
    mr_tree *y = mr_closure_vmap(ctx, in, &axis, 1, NULL, 0);

    return y ? mr_tree_leaf(mr_sum(mr_tree_array(y), MR_AXES_ALL, false))
             : NULL;
}

static mr_tree *
run_tangents(void *arg)
{
    mr_closure *c = with_rules();
    mr_array *x = mr_tree_array_at(arg, 0);
    mr_tree *t = mr_tree_arrays(1, &x), *r;

    captured = mr_tree_array_at(arg, 1);
    r = each_evaluated(c && t ? mr_jvp(loss_of_one, c, t, t) : NULL);
    mr_closure_release(c);
    return r;
}

static mr_op bare_scan;

static mr_tree *
scanned(void *ctx, const mr_tree *in)
{
    mr_array *y =
        mr_cumsum(mr_tree_array_at(in, 0), 0, false, true, MR_DTYPE_DEFAULT);

    (void)ctx;
    return y ? mr_tree_leaf(mr__node_new(&bare_scan, y->params, 1, y->in))
             : NULL;
}

static mr_tree *
run_loop(void *arg)
{
    mr_closure *c = closure(scanned);

    return grad_of(c, arg, 1);
}

static mr_tree *
run_depends(void *arg)
{
    mr_array *x = mr_tree_array_at(arg, 0), *y = mr_tree_array_at(arg, 1);

    return each_evaluated(
        mr_depends(mr_tree_leaf(mr_exp(x)), mr_tree_leaf(mr_sin(y))));
}

static void
custom__survives_each_failure(void **state)
{
    mr_tree *args =
        MR_ARRAYS(mr_array_from_f32((float[]){0.1F, 0.7F, -0.4F, 2, 1, 0.3F},
                                    MRT_SHAPE(2, 3)),
                  mr_array_from_f32((float[]){0.5F, -1, 0.25F}, MRT_SHAPE(3)));
    const each_case c[] = {{"checkpoint", run_checkpoint, args, args, NULL},
                           {"rules", run_rules, args, args, NULL},
                           {"tangents", run_tangents, args, args, NULL},
                           {"loop", run_loop, args, args, NULL},
                           {"depends", run_depends, args, args, NULL}};

    (void)state;
    captured = mr_tree_array_at(args, 1);
    bare_scan = *mr__op_table[MR_OP_SCAN];
    bare_scan.vmap = NULL;
    for (size_t i = 0; i < MRT_COUNT(c); i++) {
        captured = mr_tree_array_at(args, 1);
        assert_true(each_run(&c[i]).failed > 5);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(custom__survives_each_failure),
    };

    return cmocka_run_group_tests_name("faults/custom", tests, NULL, NULL);
}
