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
product_bias_and_residual(mr_array *x)
{
    mr_array *bias = mr_index_slice(x, MR_INTS(3), MR_INTS(4), MR_INTS(1));

    return mr_add(x, gelu(mr_add(mr_matmul(x, x), bias)));
}

static mr_array *
product_and_cast(mr_array *x)
{
    return mr_astype(mr_matmul(x, x), MR_FLOAT16);
}

/* The second product reads the chain behind the first. */
static mr_array *
two_layers(mr_array *x)
{
    mr_array *h = mr_maximum(mr_matmul(x, x), mr_float(0.0));

    return mr_add(mr_matmul(h, x), mr_float(1.0));
}

/* One of them is in memory before the other begins. */
static mr_array *
sum_of_products(mr_array *x)
{
    return mr_add(mr_matmul(x, x), mr_matmul(mr_transpose(x, MR_INTS_NONE), x));
}

/* The product is read by what follows it and by another kernel. */
static mr_array *
product_for_two(mr_array *x)
{
    mr_array *y = mr_matmul(x, x);

    return mr_matmul(y, mr_tanh(y));
}

static mr_array *
product_and_reduction(mr_array *x)
{
    return mr_sum(mr_square(mr_matmul(x, x)), MR_AXES(-1), false);
}

static mr_array *
product_turned(mr_array *x)
{
    return mr_tanh(mr_transpose(mr_matmul(x, x), MR_INTS_NONE));
}

static mr_array *
conv_and_bias(mr_array *x)
{
    mr_array *image = mr_reshape(x, MRT_SHAPE(1, 8, 8, 64));
    mr_array *w = mr_reshape(x, MRT_SHAPE(64, 1, 1, 64));
    mr_array *bias = mr_index_slice(x, MR_INTS(3), MR_INTS(4), MR_INTS(1));

    return mr_maximum(
        mr_add(mr_conv2d(image, w, MR_INTS(1), MR_INTS(0), MR_INTS(1), 1),
               bias),
        mr_float(0.0));
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
    {product_and_chain, 1, 1},
    {product_bias_and_residual, 1, 1},
    {product_and_cast, 1, 1},
    {two_layers, 2, 2},
    {sum_of_products, 2, 1},
    {product_for_two, 2, 1},
    {product_and_reduction, 2, 1},
    {product_turned, 2, 0},
    {conv_and_bias, 1, 1},
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

/* A product that somebody holds is there, and one that nobody holds can still
 * be asked for. */
static void
product__is_there_when_it_is_asked_for(void **state)
{
    (void)state;
    mr_array *x = data(64, 64), *y = mr_retain(mr_matmul(x, x));
    mr_array *z = mr_subtract(mr_tanh(y), y);
    mr_stats before = stats();
    float got[2];

    assert_int_equal(mr_eval(z), MR_OK);
    assert_int_equal(stats().kernels_run - before.kernels_run, 1);
    assert_int_equal(mr_eval(y), MR_OK); /* it is there */
    assert_int_equal(stats().kernels_run - before.kernels_run, 1);
    mrt_assert_f32(mr_take(mr_flatten(y, 0, -1), mr_int(7), 0),
                   (float[]){16.0F}, 1);
    mr_release(y);
    /* nobody but a scope, which does not count */
    y = mr_matmul(x, x);
    z = mr_add(y, mr_float(1.0));
    assert_int_equal(mr_eval(z), MR_OK);
    before = stats();
    assert_int_equal(mr_eval(y), MR_OK);
    assert_int_equal(stats().kernels_run - before.kernels_run, 1);
    y = mr_take(mr_flatten(y, 0, -1), mr_int(7), 0);
    z = mr_take(mr_flatten(z, 0, -1), mr_int(7), 0);
    assert_int_equal(mr_array_copy_f32(y, got, 1), MR_OK);
    assert_int_equal(mr_array_copy_f32(z, got + 1, 1), MR_OK);
    assert_true(got[0] == 16.0F && got[1] == 17.0F);
}

/* What follows writes where the product was made. */
static void
product__has_no_memory_of_its_own(void **state)
{
    (void)state;
    enum { SIDE = 512, BYTES = SIDE * SIDE * 4 };
    mr_array *x = data(SIDE, SIDE), *y;
    size_t before, alone;

    for (int joined = 0; joined < 2; joined++) {
        y = mr_matmul(x, x);
        if (joined)
            y = mr_subtract(mr_tanh(y), x);
        mrt_tasks_end();
        mr_memory_clear_cache();
        mr_memory_reset_peak();
        before = mr_memory_active();
        assert_int_equal(mr_eval(y), MR_OK);
        if (!joined)
            alone = mr_memory_peak() - before;
        else
            assert_int_equal(mr_memory_peak() - before, alone);
    }
}

/* A weight that is given up is written over, but not where its product is
 * made: w - (x @ y) and a second result over m. */
static void
updates__lie_where_the_old_values_were(void **state)
{
    (void)state;
    enum { SIDE = 256, BYTES = SIDE * SIDE * 4 };
    mr_array *x = data(SIDE, SIDE);
    mr_scope s = mr_scope_begin();
    mr_array *w = mr_retain(data(SIDE, SIDE)), *m = mr_retain(data(SIDE, SIDE));
    mr_array *g, *m2, *w2;
    size_t before;

    g = mr_matmul(x, x);
    m2 = mr_retain(mr_add(mr_multiply(m, mr_float(0.5)), g));
    w2 = mr_retain(mr_subtract(w, mr_multiply(m2, mr_float(0.25))));
    mr_scope_end(s);
    mr_release(w);
    mr_release(m);
    mrt_tasks_end();
    mr_memory_clear_cache();
    before = mr_memory_active();
    assert_int_equal(mr_eval_many((mr_array *[]){w2, m2}, 2), MR_OK);
    mrt_tasks_end();
    assert_in_range(mr_memory_active(), 0, before);
    mrt_assert_f32(mr_take(mr_flatten(m2, 0, -1), mr_int(5), 0),
                   (float[]){64.25F}, 1);
    mrt_assert_f32(mr_take(mr_flatten(w2, 0, -1), mr_int(5), 0),
                   (float[]){0.5F - 16.0625F}, 1);
    mr_release(m2);
    mr_release(w2);
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
    mrt_tasks_end();
    mr_memory_clear_cache();
    mr_memory_reset_peak();
    before = mr_memory_active();
    assert_int_equal(mr_eval(total), MR_OK);
    /* three arrays, and a product's workspace: panels, and what they hold */
    assert_in_range(mr_memory_peak() - before, 0,
                    6 * (uintmax_t)BYTES + BYTES / 2);
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
    g = mr__fuse(a, list, N, &(mr_fuse_rules){.fuses = mr__k_supports});
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
        mrt_test(product__is_there_when_it_is_asked_for),
        mrt_test(product__has_no_memory_of_its_own),
        mrt_test(updates__lie_where_the_old_values_were),
        mrt_test(order__is_depth_first),
        mrt_test(verifier__finds_what_may_not_run),
    };

    return cmocka_run_group_tests_name("eval/plans", tests, NULL, NULL);
}
