/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.c -- every allocation of a body failing in turn: an error, nothing
 * lost, and the next call works.
 */
#include "ops/gradient.h"

typedef mr_array *(*body)(mr_array *x);

static mr_array *
flat_indices(void)
{
    return mr_array_from_i64((int64_t[]){0, 1, 0}, MRT_SHAPE(3));
}

static mr_array *
body_lined_up(mr_array *x)
{
    return mr_add(x, mr_int(1));
}

static mr_array *
body_variance(mr_array *x)
{
    return mr_std(x, MR_AXES(0), true, 1);
}

static mr_array *
body_take(mr_array *x)
{
    return mr_take(x, flat_indices(), 1);
}

static mr_array *
body_concatenate(mr_array *x)
{
    mr_array *list[3] = {x, x, x};

    return mr_concatenate(list, 3, 1);
}

static mr_array *
body_split(mr_array *x)
{
    mr_tree *t = mr_split(x, 2, 0);

    return t == NULL ? NULL : mr_tree_array_at(t, 1);
}

static mr_array *
body_pad(mr_array *x)
{
    return mr_pad(x, MR_INTS(1), "reflect", MR_NONE);
}

static mr_array *
body_softmax(mr_array *x)
{
    return mr_softmax(x, MR_AXES_ALL, false);
}

static mr_array *
body_tensordot(mr_array *x)
{
    return mr_tensordot(x, x, MR_INTS(0, 0));
}

static mr_array *
body_mask(mr_array *x)
{
    return mr_index_mask_set(x, mr_greater(x, mr_float(0)), mr_float(3));
}

static mr_array *
body_normal(mr_array *x)
{
    (void)x;
    return mr_random_normal(MRT_SHAPE(3), MR_FLOAT32, MR_NONE, MR_NONE,
                            MR_NONE);
}

static const body bodies[] = {
    body_lined_up, body_variance, body_take,      body_concatenate, body_split,
    body_pad,      body_softmax,  body_tensordot, body_mask,        body_normal,
};

typedef struct attempt {
    body f;
    mr_array *x;
} attempt;

static bool
try_body(void *arg)
{
    const attempt *a = arg;
    mr_scope s = mr_scope_begin();
    bool ok = s.token != 0 && a->f(a->x) != NULL;

    if (s.token != 0)
        mr_scope_end(s);
    return ok;
}

static void
bodies__survive_every_failing_allocation(void **state)
{
    (void)state;
    mr_array *x = mr_array_from_f32((float[]){1, 2, 3, 4}, MRT_SHAPE(2, 2));

    for (size_t i = 0; i < MRT_COUNT(bodies); i++) {
        attempt a = {bodies[i], x};

        assert_true(mrt_each_failure(try_body, &a) > 0);
        mr_error_take();
        assert_int_equal(mr_eval(bodies[i](x)), MR_OK);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(bodies__survive_every_failing_allocation),
    };

    return cmocka_run_group_tests_name("ops/failure", tests, NULL, NULL);
}
