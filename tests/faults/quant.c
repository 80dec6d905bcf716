/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.c -- quantised arrays, products with them and their derivatives with
 * each of their allocations failing in turn.
 */
#include "faults/each.h"

static mr_array *
part(const mr_tree *q, int i)
{
    return q ? mr_tree_array_at(q, i) : NULL;
}

static mr_array *
product(mr_array *x, const mr_tree *q, bool transpose)
{
    return mr_quantized_matmul(x, part(q, 0), part(q, 1), part(q, 2), transpose,
                               32, 3, "affine");
}

static mr_tree *
run_making(void *arg)
{
    mr_tree *q = mr_quantize(arg, 32, 3, "affine", MR_NONE);
    mr_tree *f =
        mr_quantize(arg, MR_INT_NONE, MR_INT_NONE, "nvfp4", mr_float(2));
    mr_array *values = mr_dequantize(part(q, 0), part(q, 1), part(q, 2), 32, 3,
                                     "affine", MR_NONE, MR_FLOAT16);

    return each_evaluated(MR_TUPLE(
        q, f, MR_ARRAYS(values, mr_from_fp8(mr_to_fp8(arg), MR_BFLOAT16))));
}

static mr_tree *
run_products(void *arg)
{
    mr_tree *q = mr_quantize(arg, 32, 3, "affine", MR_NONE);
    mr_array *w[3], *pick = mr_array_from_i32((int32_t[]){1, 0}, MRT_SHAPE(2));

    for (int i = 0; i < 3; i++) {
        mr_array *two[2] = {part(q, i), part(q, i)};

        w[i] = mr_stack(two, 2, 0);
    }
    return each_evaluated(MR_ARRAYS(
        product(each_waves(MR_SHAPE(2, 64)), q, true),
        product(each_waves(MR_SHAPE(20, 64)), q, true),
        product(each_waves(MR_SHAPE(2, 4)), q, false),
        mr_gather_qmm(each_waves(MR_SHAPE(2, 3, 64)), w[0], w[1], w[2], pick,
                      MR_NONE, true, 32, 3, "affine", MR_NONE, false),
        mr_qqmm(each_waves(MR_SHAPE(2, 64)), arg, MR_NONE, MR_INT_NONE,
                MR_INT_NONE, "mxfp8", MR_NONE, MR_NONE)));
}

static mr_tree *
loss(void *ctx, const mr_tree *in)
{
    mr_array *w = mr_tree_array_at(in, 0);
    mr_tree *q = mr_quantize(w, 32, 3, "affine", MR_NONE);

    (void)ctx;
    return mr_tree_leaf(
        mr_sum(mr_square(product(each_waves(MR_SHAPE(2, 64)), q, true)),
               MR_AXES_ALL, false));
}

static mr_tree *
run_slopes(void *arg)
{
    mr_tree *args = MR_ARRAYS(arg);

    return each_evaluated(args ? mr_grad(loss, NULL, args, NULL, 0) : NULL);
}

static void
quantised_arrays__survive_each_failure(void **state)
{
    mr_array *x = each_waves(MR_SHAPE(4, 64));
    mr_tree *keep = mr_tree_leaf(x);
    const each_case c[] = {{"making", run_making, x, keep, NULL},
                           {"products", run_products, x, keep, NULL},
                           {"slopes", run_slopes, x, keep, NULL}};

    (void)state;
    assert_int_equal(mr_eval_tree(keep), MR_OK);
    for (size_t i = 0; i < MRT_COUNT(c); i++)
        assert_true(each_run(&c[i]).failed > 15);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(quantised_arrays__survive_each_failure),
    };

    return cmocka_run_group_tests_name("faults/quant", tests, NULL, NULL);
}
