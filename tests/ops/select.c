/* SPDX-License-Identifier: Apache-2.0
 *
 * select.c -- tests of what masks and counts select, from C: with a size and
 * without, gradients, errors; the order of einsum.
 */
#include "ops/gradient.h"

#include <string.h>

static mr_array *
x5(void)
{
    return mrt_f32((float[]){3, -1, 4, -1, 5}, 5);
}

static mr_array *
positive(mr_array *x)
{
    return mr_greater(x, mr_float(0));
}

static mr_array *
at(mr_tree *t, int i)
{
    mr_array *x[4] = {NULL};

    assert_non_null(t);
    assert_true(i < mr_tree_n_leaves(t) && mr_tree_n_leaves(t) <= 4);
    assert_int_equal(mr_tree_leaves(t, x, mr_tree_n_leaves(t)), MR_OK);
    return x[i];
}

static void
nonzero__gives_one_list_of_places_an_axis(void **state)
{
    (void)state;
    mr_array *x =
        mr_reshape(mrt_f32((float[]){0, 2, 3, 0, 0, 6}, 6), MRT_SHAPE(2, 3));

    mrt_assert_i64(at(mr_nonzero(x, MR_INT_NONE, 0), 0), (int64_t[]){0, 0, 1},
                   3);
    mrt_assert_i64(at(mr_nonzero(x, MR_INT_NONE, 0), 1), (int64_t[]){1, 2, 2},
                   3);
    mrt_assert_i64(at(mr_nonzero(x, 4, -9), 1), (int64_t[]){1, 2, 2, -9}, 4);
    mrt_assert_i64(mr_argwhere(x, 2, 0), (int64_t[]){0, 1, 0, 2}, 4);
    mrt_assert_i64(mr_flatnonzero(x, MR_INT_NONE, 0), (int64_t[]){1, 2, 5}, 3);
}

static void
masked_select__size_cuts_or_fills(void **state)
{
    (void)state;
    mr_array *x = x5(), *fill = mr_float(-7);

    mrt_assert_f32(mr_masked_select(x, positive(x), MR_INT_NONE, MR_NONE),
                   (float[]){3, 4, 5}, 3);
    mrt_assert_f32(mr_masked_select(x, positive(x), 2, MR_NONE),
                   (float[]){3, 4}, 2);
    mrt_assert_f32(mr_masked_select(x, positive(x), 5, fill),
                   (float[]){3, 4, 5, -7, -7}, 5);
}

static mr_array *
squares_of_positive(mr_array *const *x)
{
    return mr_square(mr_index_compress(x[0], positive(x[0])));
}

static mr_array *
squares_by_size(mr_array *const *x)
{
    return mr_square(mr_masked_select(x[0], positive(x[0]), 2, MR_NONE));
}

static mr_array *
squares_repeated(mr_array *const *x)
{
    mr_array *n = mr_array_from_i64((int64_t[]){2, 0, 1, 0, 3}, MRT_SHAPE(5));

    return mr_square(mr_repeat_each(x[0], n, 0, MR_INT_NONE));
}

static void
gradients__flow_to_what_is_selected(void **state)
{
    (void)state;
    mr_array *x = x5();

    mrt_assert_f32(mrt_grad(squares_of_positive, 1, &x, 0),
                   (float[]){6, 0, 8, 0, 10}, 5);
    mrt_assert_f32(mrt_grad(squares_by_size, 1, &x, 0),
                   (float[]){6, 0, 8, 0, 0}, 5);
    mrt_assert_f32(mrt_grad(squares_repeated, 1, &x, 0),
                   (float[]){12, 0, 8, 0, 30}, 5);
}

static mr_tree *
select_traced(void *ctx, const mr_tree *in)
{
    mr_array *x = NULL;

    (void)ctx;
    if (mr_tree_leaves(in, &x, 1) != MR_OK)
        return NULL;
    return mr_tree_leaf(mr_index_compress(x, positive(x)));
}

static void
select__without_a_size_says_so_inside_a_trace(void **state)
{
    (void)state;
    mr_array *x = x5();
    mr_tree *args = mr_tree_arrays(1, &x);

    assert_null(mr_vmap(select_traced, NULL, args, (int[]){0}, 1, NULL, 0));
    mrt_assert_error(MR_E_STATE, "masked_select(a, mask, size=...)");
}

static void
unique__all_parts(void **state)
{
    (void)state;
    mr_array *x = mr_array_from_i64((int64_t[]){3, 1, 3, 2}, MRT_SHAPE(4));
    mr_tree *u = mr_unique(x, MR_INT_NONE, true, true, true, MR_NONE);

    mrt_assert_i64(at(u, 0), (int64_t[]){1, 2, 3}, 3);
    mrt_assert_i64(at(u, 1), (int64_t[]){1, 3, 0}, 3);
    mrt_assert_i64(at(u, 2), (int64_t[]){2, 0, 2, 1}, 4);
    mrt_assert_i64(at(u, 3), (int64_t[]){1, 1, 2}, 3);
    u = mr_unique(x, 5, false, false, true, MR_NONE);
    mrt_assert_i64(at(u, 0), (int64_t[]){1, 2, 3, 1, 1}, 5);
    mrt_assert_i64(at(u, 1), (int64_t[]){1, 1, 2, 0, 0}, 5);
}

static void
mask_update__combines_where_true(void **state)
{
    (void)state;
    mr_array *x = x5(), *m = positive(x);
    mr_array *v = mrt_f32((float[]){10, 20, 30}, 3);

    mrt_assert_f32(mr_index_mask_update(x, m, v, "add"),
                   (float[]){13, -1, 24, -1, 35}, 5);
    mrt_assert_f32(mr_index_mask_update(x, m, mr_float(2), "divide"),
                   (float[]){1.5F, -1, 2, -1, 2.5F}, 5);
    assert_null(mr_index_mask_update(x, m, v, "xor"));
    mrt_assert_error(MR_E_VALUE, "mode 'xor'");
}

static void
einsum_path__fewest_operations(void **state)
{
    (void)state;
    mr_array *x[4] = {mr_zeros(MRT_SHAPE(2, 3), MR_FLOAT32),
                      mr_zeros(MRT_SHAPE(3, 4), MR_FLOAT32),
                      mr_zeros(MRT_SHAPE(4, 50), MR_FLOAT32),
                      mr_zeros(MRT_SHAPE(50, 6), MR_FLOAT32)};
    int path[6];
    char *text = mr_einsum_path("ij,jk,kl,lm->im", x, 4, path);

    assert_non_null(text);
    /* (ij jk) kl: 48 + 800, then lm: 1200; the best of all orders */
    assert_non_null(strstr(text, "Optimized FLOP count:  2048\n"));
    assert_memory_equal(path, ((int[]){0, 1, 0, 2, 0, 1}), sizeof path);
    mr_text_free(text);
    assert_null(mr_einsum_path("ij,jk", x, 3, NULL));
    mrt_assert_error(MR_E_VALUE, "subscripts");
    x[1] = NULL;
    assert_null(mr_einsum_path("ij,jk", x, 2, NULL));
    mrt_assert_error(MR_E_NULL, "operand 1");
    assert_null(mr_einsum_path("i->", NULL, 1, NULL));
    mrt_assert_error(MR_E_NULL, "1 operands at NULL");
    assert_null(mr_einsum_path("i->", NULL, 0, NULL));
    mrt_assert_error(MR_E_VALUE, "1 to");
    assert_null(mr_einsum_path(NULL, NULL, 1, NULL));
    mrt_assert_error(MR_E_NULL, "at NULL");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(nonzero__gives_one_list_of_places_an_axis),
        mrt_test(masked_select__size_cuts_or_fills),
        mrt_test(gradients__flow_to_what_is_selected),
        mrt_test(select__without_a_size_says_so_inside_a_trace),
        mrt_test(unique__all_parts),
        mrt_test(mask_update__combines_where_true),
        mrt_test(einsum_path__fewest_operations),
    };

    return cmocka_run_group_tests_name("ops/select", tests, NULL, NULL);
}
