/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.c -- tests of the help for vmap rules.
 */
#include "base.h"
#include "graph/node.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/error.h"
#include "marram/eval.h"
#include "marram/ops.h"
#include "marram/scope.h"

/* A batch of 3 rows for an operand of shape (2,); the other is not batched. */
static const float rows[] = {1, 2, 3, 4, 5, 6};
static const float one_row[] = {10, 20};

static void
batch_in__broadcasts_what_is_not_batched(void **state)
{
    mr_scope s = mr_scope_begin();
    mr_array *in[] = {mr_array_from_f32(rows, MR_SHAPE(3, 2)),
                      mr_array_from_f32(one_row, MR_SHAPE(2)), NULL};
    const bool batched[] = {true, false, false};
    mr_batch b = {NULL, 3, 3, in, batched};
    mr_array *y = mr__batch_in(&b, 1);
    float out[6];

    (void)state;
    assert_ptr_equal(mr__batch_in(&b, 0), in[0]);
    assert_null(mr__batch_in(&b, 2));
    assert_int_equal(mr_array_ndim(y), 2);
    assert_int_equal(mr_array_copy_f32(y, out, 6), MR_OK);
    for (int i = 0; i < 6; i++)
        assert_true(out[i] == one_row[i % 2]);
    mr_scope_end(s);
}

static void
elementwise__lines_the_batch_axes_up(void **state)
{
    mr_scope s = mr_scope_begin();
    mr_array *in[] = {mr_array_from_f32(rows, MR_SHAPE(3, 2)),
                      mr_array_from_f32(one_row, MR_SHAPE(2))};
    mr_array *node = mr_subtract(mr_array_from_f32(rows, MR_SHAPE(2)), in[1]);
    const bool batched[] = {true, false};
    mr_batch b = {node, 2, 3, in, batched};
    mr_array *y = mr__vmap_elementwise(&b);
    float out[6];

    (void)state;
    assert_non_null(y);
    assert_int_equal(mr_array_copy_f32(y, out, 6), MR_OK);
    for (int i = 0; i < 6; i++)
        assert_true(out[i] == rows[i] - one_row[i % 2]);
    in[1] = NULL;
    mr_error_set(MR_E_VALUE, "first");
    assert_null(mr__vmap_elementwise(&b));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    mr_scope_end(s);
}

static void
batch_in__refuses_one_axis_too_many(void **state)
{
    mr_scope s = mr_scope_begin();
    int64_t dim[MR_MAX_NDIM];
    const bool batched[] = {false};
    mr_array *in[1];
    mr_batch b = {NULL, 1, 3, in, batched};

    (void)state;
    for (int i = 0; i < MR_MAX_NDIM; i++)
        dim[i] = 1;
    in[0] = mr_array_from_f32(rows, (mr_shape){dim, MR_MAX_NDIM});
    assert_null(mr__batch_in(&b, 0));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    mr_scope_end(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_in__broadcasts_what_is_not_batched),
        cmocka_unit_test(elementwise__lines_the_batch_axes_up),
        cmocka_unit_test(batch_in__refuses_one_axis_too_many),
    };

    return cmocka_run_group_tests_name("graph/batch", tests, NULL, NULL);
}
