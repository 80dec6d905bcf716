/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.c -- tests of how transforms ask descriptors, with descriptors of the
 * test's own: results in tuples, missing rules, what is not differentiable,
 * rules that fail.
 *
 * Their own values are never computed: the rules are made of public operators,
 * and only what the rules gave is evaluated.
 */
#include "transform/support.h"

#include "base/error.h"
#include "graph/node.h"
#include "graph/op.h"
#include "transform/walk.h"

enum { FIRST_ID = 60000 };

static mr_code
infer_like_first(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[0]);
    return MR_OK;
}

static mr_code
infer_two(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(&out[0], c->in[0]);
    mr__aval_like(&out[1], c->in[0]);
    return MR_OK;
}

static mr_array *
apply(const mr_op *op, int n, mr_array *const *in)
{
    return mr__node_new(op, NULL, n, in);
}

/* ---- (x * y, x + y) as one node ------------------------------------------ */
static int made_once, cotangents_seen;

static mr_array *
make_share(const mr_rule *r)
{
    made_once++;
    return mr_multiply(r->cotangent[0], r->primal[1]);
}

static mr_array *
pair_vjp(const mr_rule *r, int i)
{
    mr_array *share = mr_rule_once(r, 0, make_share);

    cotangents_seen +=
        r->cotangent[0] && r->cotangent[1] && r->output[0] && r->output[1];
    if (i == 0)
        return mr_add(share, r->cotangent[1]);
    mr_rule_once(r, 0, make_share);
    return mr_add(mr_multiply(r->cotangent[0], r->primal[0]), r->cotangent[1]);
}

static mr_array *
pair_jvp(const mr_rule *r, int i)
{
    if (r->which == 1)
        return r->tangent[i];
    return mr_multiply(r->tangent[i], r->primal[1 - i]);
}

static mr_array *
pair_vmap(const mr_batch *b)
{
    mr_array *in[2] = {mr__batch_in(b, 0), mr__batch_in(b, 1)};

    return mr__node_new(b->node->op, NULL, 2, in);
}

static const mr_op pair_op = {.id = FIRST_ID,
                              .n_in = 2,
                              .n_out = 2,
                              .name = "pair",
                              .infer = infer_two,
                              .vjp = pair_vjp,
                              .jvp = pair_jvp,
                              .vmap = pair_vmap};

static mr_array *
pair_result(const mr_tree *in, int k)
{
    mr_array *xy[] = {arg(in, 0), arg(in, 1)};

    return mr__node_output(apply(&pair_op, 2, xy), k);
}

static mr_tree *
first_of_pair(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return leaf(pair_result(in, 0));
}

static mr_tree *
both_of_pair(void *ctx, const mr_tree *in)
{
    mr_array *xy[] = {arg(in, 0), arg(in, 1)};
    mr_array *tuple = apply(&pair_op, 2, xy);

    (void)ctx;
    return MR_ARRAYS(mr__node_output(tuple, 1), mr__node_output(tuple, 0));
}

static void
vjp__result_without_cotangent_has_zeros(void **state)
{
    mr_tree *g;

    (void)state;
    made_once = cotangents_seen = 0;
    g = GOOD_TREE(mr_grad(first_of_pair, NULL,
                          MR_ARRAYS(mr_float(3), mr_float(5)), (int[]){0, 1},
                          2));
    VALUES(mr_tree_array_at(g, 0), 5);
    VALUES(mr_tree_array_at(g, 1), 3);
    assert_int_equal(made_once, 1);
    assert_int_equal(cotangents_seen, 2);
}

static void
vjp__projections_meet_in_their_tuple(void **state)
{
    mr_tree *r = GOOD_TREE(mr_vjp(both_of_pair, NULL,
                                  MR_ARRAYS(mr_float(3), mr_float(5)),
                                  MR_ARRAYS(mr_float(100), mr_float(1))));

    (void)state;
    VALUES(mr_tree_array_at(mr_tree_at(r, 1), 0), 105);
    VALUES(mr_tree_array_at(mr_tree_at(r, 1), 1), 103);
}

static void
vjp__rule_is_asked_only_where_wanted(void **state)
{
    (void)state;
    cotangents_seen = 0;
    GOOD_TREE(mr_grad(first_of_pair, NULL, MR_ARRAYS(mr_float(3), mr_float(5)),
                      (int[]){1}, 1));
    assert_int_equal(cotangents_seen, 1);
}

static void
jvp__asks_each_result(void **state)
{
    mr_tree *r = GOOD_TREE(mr_jvp(both_of_pair, NULL,
                                  MR_ARRAYS(mr_float(3), mr_float(5)),
                                  MR_ARRAYS(mr_float(1), mr_float(10))));

    (void)state;
    VALUES(mr_tree_array_at(mr_tree_at(r, 1), 0), 11);
    VALUES(mr_tree_array_at(mr_tree_at(r, 1), 1), 1 * 5 + 10 * 3);
}

static void
vmap__tuples_are_batched_whole(void **state)
{
    int32_t axes[] = {0, MR_VMAP_NONE};
    mr_tree *r = GOOD_TREE(mr_vmap(both_of_pair, NULL,
                                   MR_ARRAYS(VECTOR(1, 2, 3), mr_float(5)),
                                   axes, 2, NULL, 0));
    const mr_node *a = mr_tree_array_at(r, 0), *b = mr_tree_array_at(r, 1);

    (void)state;
    DIMS(mr_tree_array_at(r, 0), 3);
    assert_ptr_equal(a->op, &mr__op_output);
    assert_ptr_equal(a->in[0], b->in[0]);
    assert_ptr_equal(a->in[0]->op, &pair_op);
    assert_int_equal(mr__output_index(a), 1);
}

/* ---- linear, without a jvp of its own: y = 3 x --------------------------- */
static mr_array *
triple_vjp(const mr_rule *r, int i)
{
    (void)i;
    return mr_multiply(r->cotangent[0], mr_float(3));
}

static const mr_op triple_op = {.id = FIRST_ID + 1,
                                .n_in = 1,
                                .flags = MR_FLAG_LINEAR,
                                .name = "triple",
                                .infer = infer_like_first,
                                .vjp = triple_vjp};

static mr_tree *
triple_fn(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_multiply(arg(in, 0), arg(in, 0));

    (void)ctx;
    return leaf(apply(&triple_op, 1, &x));
}

static void
jvp__linear_operators_need_no_rule(void **state)
{
    mr_tree *r = GOOD_TREE(mr_jvp(triple_fn, NULL, MR_ARRAYS(VECTOR(1, 2)),
                                  MR_ARRAYS(VECTOR(10, 100))));

    (void)state;
    VALUES(mr_tree_array(mr_tree_at(r, 1)), 3 * 2 * 1 * 10, 3 * 2 * 2 * 100);
}

static mr_tree *
tangent_of_triple(void *ctx, const mr_tree *in)
{
    mr_tree *r = mr_jvp(triple_fn, NULL, in, ctx);

    return r ? leaf(mr_tree_array(mr_tree_at(r, 1))) : NULL;
}

static void
grad__of_that_jvp_is_right(void **state)
{
    mr_tree *t = MR_ARRAYS(mr_float(1));
    mr_tree *g = GOOD_TREE(
        mr_grad(tangent_of_triple, t, MR_ARRAYS(mr_float(5)), NULL, 0));

    (void)state;
    VALUES(mr_tree_array(g), 6);
}

/* ---- flags ----------------------------------------------------------------
 */
static const mr_op flat_op = {.id = FIRST_ID + 2,
                              .n_in = 1,
                              .flags = MR_FLAG_ZERO_GRADIENT,
                              .name = "flat",
                              .infer = infer_like_first};
static const mr_op opaque_op = {.id = FIRST_ID + 3,
                                .n_in = 1,
                                .flags = MR_FLAG_NOT_DIFFERENTIABLE,
                                .name = "opaque",
                                .infer = infer_like_first};
static const mr_op bare_op = {
    .id = FIRST_ID + 4, .n_in = 1, .name = "bare", .infer = infer_like_first};
static const mr_op same_op = {.id = FIRST_ID + 5,
                              .n_in = 1,
                              .flags = MR_FLAG_IDENTITY,
                              .name = "same",
                              .infer = infer_like_first};

static mr_tree *
through(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_multiply(arg(in, 0), arg(in, 0));

    return leaf(apply(ctx, 1, &x));
}

static mr_tree *
grad_through(const mr_op *op)
{
    union {
        const mr_op *in;
        void *out;
    } ctx = {op};

    return mr_grad(through, ctx.out, MR_ARRAYS(mr_float(3)), NULL, 0);
}

static mr_tree *
jvp_through(const mr_op *op)
{
    union {
        const mr_op *in;
        void *out;
    } ctx = {op};

    return mr_jvp(through, ctx.out, MR_ARRAYS(mr_float(3)),
                  MR_ARRAYS(mr_float(1)));
}

static void
flags__say_what_the_derivative_is(void **state)
{
    (void)state;
    VALUES(mr_tree_array(GOOD_TREE(grad_through(&flat_op))), 0);
    VALUES(mr_tree_array(GOOD_TREE(grad_through(&same_op))), 6);
    VALUES(mr_tree_array(mr_tree_at(GOOD_TREE(jvp_through(&flat_op)), 1)), 0);
    VALUES(mr_tree_array(mr_tree_at(GOOD_TREE(jvp_through(&same_op)), 1)), 6);
    assert_failed(grad_through(&opaque_op), MR_E_UNSUPPORTED, "opaque: ");
    assert_failed(jvp_through(&opaque_op), MR_E_UNSUPPORTED, "opaque: ");
    assert_failed(grad_through(&bare_op), MR_E_UNSUPPORTED, "no vjp rule");
    assert_failed(jvp_through(&bare_op), MR_E_UNSUPPORTED, "no jvp rule");
}

static mr_tree *
opaque_at_site(void *ctx, const mr_tree *in)
{
    const char *old = mr_site_set("model.c:17");
    mr_array *x = arg(in, 0);
    mr_tree *t = leaf(apply(&opaque_op, 1, &x));

    (void)ctx;
    mr_site_set(old);
    return t;
}

static void
errors__name_operator_and_line(void **state)
{
    mr_error e;

    (void)state;
    assert_null(mr_grad(opaque_at_site, NULL, MR_ARRAYS(mr_float(3)), NULL, 0));
    e = mr_error_take();
    assert_string_equal(e.op, "opaque");
    assert_string_equal(e.site, "model.c:17");
}

/* ---- rules that are wrong or fail -----------------------------------------
 */
static mr_array *
wrong_shape(const mr_rule *r, int i)
{
    (void)r;
    (void)i;
    return VECTOR(1, 2, 3);
}

static mr_array *
fails(const mr_rule *r, int i)
{
    (void)r;
    (void)i;
    return mr_add(VECTOR(1, 2), VECTOR(1, 2, 3));
}

static mr_array *
other_dtype(const mr_rule *r, int i)
{
    (void)i;
    return mr_astype(r->cotangent[0], MR_FLOAT64);
}

static const mr_op wrong_op = {.id = FIRST_ID + 6,
                               .n_in = 1,
                               .name = "wrong",
                               .infer = infer_like_first,
                               .vjp = wrong_shape,
                               .jvp = wrong_shape};
static const mr_op failing_op = {.id = FIRST_ID + 7,
                                 .n_in = 1,
                                 .name = "failing",
                                 .infer = infer_like_first,
                                 .vjp = fails,
                                 .jvp = fails};
static const mr_op wide_op = {.id = FIRST_ID + 8,
                              .n_in = 1,
                              .name = "wide",
                              .infer = infer_like_first,
                              .vjp = other_dtype,
                              .jvp = NULL};

static void
rules__are_checked(void **state)
{
    mr_tree *g;

    (void)state;
    assert_failed(grad_through(&wrong_op), MR_E_INTERNAL, "(3,)");
    assert_failed(jvp_through(&wrong_op), MR_E_INTERNAL, "(3,)");
    assert_failed(grad_through(&failing_op), MR_E_SHAPE, "add");
    assert_failed(jvp_through(&failing_op), MR_E_SHAPE, "add");
    g = GOOD_TREE(grad_through(&wide_op));
    assert_int_equal(mr_array_dtype(mr_tree_array(g)), MR_FLOAT32);
    VALUES(mr_tree_array(g), 6);
}

/* ---- vmap without a rule ---------------------------------------------------
 */
static void
vmap__without_rule_is_a_loop(void **state)
{
    union {
        const mr_op *in;
        void *out;
    } ctx = {&bare_op};
    int32_t axis = 0;
    mr_array *none = GOOD(mr_zeros(MR_SHAPE(0, 2), MR_FLOAT32));
    mr_tree *r = GOOD_TREE(mr_vmap(through, ctx.out, MR_ARRAYS(VECTOR(1, 2, 3)),
                                   &axis, 1, NULL, 0));

    (void)state;
    DIMS(mr_tree_array(r), 3);
    r = GOOD_TREE(
        mr_vmap(through, ctx.out, MR_ARRAYS(none), &axis, 1, NULL, 0));
    DIMS(mr_tree_array(r), 0, 2);
    assert_false(mr__op_has_rule(&bare_op, MR_RULE_VMAP));
    assert_true(mr__op_has_rule(&same_op, MR_RULE_VMAP));
    assert_true(mr__op_has_rule(&flat_op, MR_RULE_VJP));
    assert_false(mr__op_has_rule(&triple_op, MR_RULE_JVP));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCOPED(vjp__result_without_cotangent_has_zeros),
        SCOPED(vjp__projections_meet_in_their_tuple),
        SCOPED(vjp__rule_is_asked_only_where_wanted),
        SCOPED(jvp__asks_each_result),
        SCOPED(vmap__tuples_are_batched_whole),
        SCOPED(jvp__linear_operators_need_no_rule),
        SCOPED(grad__of_that_jvp_is_right),
        SCOPED(flags__say_what_the_derivative_is),
        SCOPED(errors__name_operator_and_line),
        SCOPED(rules__are_checked),
        SCOPED(vmap__without_rule_is_a_loop),
    };

    return cmocka_run_group_tests_name("transform/rules", tests, NULL, NULL);
}
