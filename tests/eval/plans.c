/* SPDX-License-Identifier: Apache-2.0
 *
 * plans.c -- what is planned: how many kernels known chains need, in which
 * order, and that groups which may not run are found.
 */
#include <string.h>

#include "eval/fuse.h"
#include "marram/marram.h"
#include "support/device_op.h"
#include "support/mrt.h"

static mr_stats
stats(void)
{
    mr_stats s = {.size = sizeof s};

    assert_int_equal(mr_stats_get(&s), MR_OK);
    return s;
}

static mr_array *
data(int64_t rows, int64_t columns)
{
    mr_array *x = mr_contiguous(
        mr_full(MRT_SHAPE(rows, columns), 0.5, MR_FLOAT32), false);

    assert_int_equal(mr_eval(x), MR_OK);
    return x;
}

/* ---- known chains ----------------------------------------------------------
 */

static mr_array *
gelu(mr_array *x)
{
    return mr_multiply(
        mr_multiply(x, mr_float(0.5)),
        mr_add(mr_erf(mr_divide(x, mr_float(1.4142135))), mr_float(1.0)));
}

static mr_array *
softmax_in_pieces(mr_array *x)
{
    mr_array *e = mr_exp(mr_subtract(x, mr_max(x, MR_AXES(-1), true)));

    return mr_divide(e, mr_sum(e, MR_AXES(-1), true));
}

static mr_array *
two_products(mr_array *x)
{
    return mr_matmul(mr_matmul(x, x), x);
}

static mr_array *
product_and_chain(mr_array *x)
{
    return mr_tanh(mr_add(mr_matmul(x, x), mr_float(1.0)));
}

static mr_array *
casts_and_views(mr_array *x)
{
    mr_array *h = mr_astype(mr_transpose(x, MR_INTS_NONE), MR_FLOAT16);

    return mr_astype(mr_multiply(h, h), MR_FLOAT32);
}

static mr_array *
views_alone(mr_array *x)
{
    return mr_transpose(mr_reshape(x, MRT_SHAPE(16, 256)), MR_INTS_NONE);
}

static const struct chain {
    mr_array *(*make)(mr_array *x);
    int kernels, fused;
} chains[] = {
    {gelu, 1, 1},
    {softmax_in_pieces, 1, 1},
    {two_products, 2, 0},
    {casts_and_views, 1, 1},
    {product_and_chain, 2, 1},
    {views_alone, 0, 0},
};

static void
known_chains__need_so_many_kernels(void **state)
{
    (void)state;
    for (size_t i = 0; i < MRT_COUNT(chains); i++) {
        mr_array *y = chains[i].make(data(64, 64));
        mr_stats before = stats(), after;

        assert_int_equal(mr_eval(y), MR_OK);
        after = stats();
        assert_int_equal(after.kernels_run - before.kernels_run,
                         chains[i].kernels);
        assert_int_equal(after.groups_fused - before.groups_fused,
                         chains[i].fused);
    }
}

/* What joins a group, what ends one, what is a layout alone: the facts of each
 * class, by the operator that stands for it. */
static void
fusion_facts__are_those_of_the_descriptors(void **state)
{
    mr_array *x = data(8, 8), *yes = mr_greater(x, mr_float(0));
    const struct {
        mr_array *y;
        mr_fuse_kind kind;
        mr_k k;
    } facts[] = {
        {mr_abs(x), MR_FUSE_ELEMENTWISE, MR_K_ABS},
        {mr_exp(x), MR_FUSE_ELEMENTWISE, MR_K_EXP},
        {mr_add(x, x), MR_FUSE_ELEMENTWISE, MR_K_ADD},
        {mr_divide(x, x), MR_FUSE_ELEMENTWISE, MR_K_DIVIDE},
        {mr_where(yes, x, x), MR_FUSE_ELEMENTWISE, MR_K_SELECT},
        {mr_astype(x, MR_FLOAT16), MR_FUSE_ELEMENTWISE, MR_K_CAST},
        {mr_sum(x, MR_AXES(1), false), MR_FUSE_REDUCTION, MR_R_SUM},
        {mr_max(x, MR_AXES(1), false), MR_FUSE_REDUCTION, MR_R_MAX},
        {mr_argmax(x, 1, false), MR_FUSE_REDUCTION, MR_R_ARGMAX},
        {mr_reshape(x, MR_SHAPE(64)), MR_FUSE_VIEW, 0},
        {mr_transpose(x, MR_INTS_NONE), MR_FUSE_VIEW, 0},
        {mr_expand_dims(x, MR_AXES(0)), MR_FUSE_VIEW, 0},
        {mr_broadcast_to(x, MR_SHAPE(3, 8, 8)), MR_FUSE_VIEW, 0},
        {mr_stop_gradient(x), MR_FUSE_VIEW, 0},
        {mr_matmul(x, x), MR_FUSE_NONE, 0},
        {mr_sort(x, 1), MR_FUSE_NONE, 0},
        {mr_cumsum(x, 1, false, true, MR_DTYPE_DEFAULT), MR_FUSE_NONE, 0},
    };

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(facts); i++) {
        const mr_fuse *f;

        assert_non_null(facts[i].y);
        f = &facts[i].y->op->fuse;
        if (f->kind != facts[i].kind ||
            (facts[i].k != 0 && f->k != (uint16_t)facts[i].k))
            fail_msg("fact %zu: %s is of kind %d, operation %d", i,
                     facts[i].y->op->name, (int)f->kind, (int)f->k);
    }
}

/* What somebody holds in the middle is an output of the same program. */
static void
known_chain__with_a_held_middle_is_one_kernel(void **state)
{
    (void)state;
    mr_array *x = data(8, 8), *middle = mr_retain(mr_exp(x));
    mr_array *y = mr_add(middle, mr_float(1.0));
    mr_stats before = stats();

    assert_int_equal(mr_eval(y), MR_OK);
    assert_int_equal(stats().kernels_run - before.kernels_run, 1);
    assert_int_equal(mr_eval(middle), MR_OK); /* it is there */
    assert_int_equal(stats().kernels_run - before.kernels_run, 1);
    mr_release(middle);
}

/* ---- order -----------------------------------------------------------------
 */

/* Depth first: an arm is taken up before the next is begun, so that no two arms
 * are in memory at once.  There is no width to set. */
static void
order__is_depth_first(void **state)
{
    (void)state;
    enum { ARMS = 12, SIDE = 512, BYTES = SIDE * SIDE * 4 };
    mr_array *x = data(SIDE, SIDE), *total = x;
    size_t before;

    mr_retain(total);
    for (int i = 0; i < ARMS; i++) {
        mr_scope each = mr_scope_begin();
        mr_array *arm = mr_cumsum(x, 1, false, true, MR_DTYPE_DEFAULT);
        mr_array *next = mr_retain(mr_matmul(total, mrt_count(arm, 0)));

        mr_release(total);
        total = next;
        mr_scope_end(each); /* or the scope could ask for each of them */
    }
    mr_memory_clear_cache();
    mr_memory_reset_peak();
    before = mr_memory_active();
    assert_int_equal(mr_eval(total), MR_OK);
    assert_in_range(mr_memory_peak() - before, 0, 6 * (uintmax_t)BYTES);
    mr_release(total);
}

/* ---- the verifier ----------------------------------------------------------
 */

enum { N = 3 };

/* exp, sum over rows, matmul of the sum: a block and a kernel, in order. */
static mr_fuse_group *
groups_of(mr_arena *a, mr_fuse_node *f, mr_array *x)
{
    mr_fuse_node *list[N];
    mr_fuse_group *g;

    f[0].x = mr_exp(x);
    f[1].x = mr_negative(f[0].x);
    f[2].x = mr_matmul(f[1].x, f[1].x);
    for (int i = 0; i < N; i++) {
        f[i].in = mr__arena_zero(a, 2 * sizeof *f[i].in);
        assert_non_null(f[i].in);
        list[i] = &f[i];
    }
    f[1].in[0] = &f[0];
    f[2].in[0] = f[2].in[1] = &f[1];
    f[0].n_uses = 1;
    f[1].n_uses = 2;
    f[2].wanted = f[2].visible = true;
    g = mr__fuse(a, list, N, mr__k_supports, MR_FUSE_ALL);
    assert_non_null(g);
    return g;
}

static void
verifier__finds_what_may_not_run(void **state)
{
    (void)state;
    mr_arena a = {0};
    mr_fuse_node f[N] = {0};
    mr_array *x = data(4, 4), *other = data(4, 5), *was;
    mr_fuse_group *g = groups_of(&a, f, x), *second = g->next;

    assert_non_null(second);
    assert_null(mr__fuse_error(g));
    /* a member of another shape */
    was = f[0].x;
    f[0].x = mr_exp(other);
    assert_non_null(strstr(mr__fuse_error(g), "shape"));
    f[0].x = was;
    /* what is read stands behind */
    second->next = g;
    g->next = NULL;
    assert_non_null(strstr(mr__fuse_error(second), "behind"));
    g->next = second;
    second->next = NULL;
    /* a member that is somebody else's */
    f[0].group = second;
    assert_non_null(strstr(mr__fuse_error(g), "another group"));
    mr__arena_free(&a);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(known_chains__need_so_many_kernels),
        mrt_test(fusion_facts__are_those_of_the_descriptors),
        mrt_test(known_chain__with_a_held_middle_is_one_kernel),
        mrt_test(order__is_depth_first),
        mrt_test(verifier__finds_what_may_not_run),
    };

    return cmocka_run_group_tests_name("eval/plans", tests, NULL, NULL);
}
