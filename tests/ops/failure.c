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

static mr_array *
first_of(mr_tree *t)
{
    mr_array *x[4] = {NULL};

    return t == NULL || mr_tree_leaves(t, x, mr_tree_n_leaves(t)) != MR_OK
               ? NULL
               : x[0];
}

static mr_array *
body_select(mr_array *x)
{
    return mr_masked_select(x, mr_greater(x, mr_float(2)), 3, mr_float(7));
}

static mr_array *
body_compress(mr_array *x)
{
    return mr_index_compress(x, mr_greater(x, mr_float(2)));
}

static mr_array *
body_nonzero(mr_array *x)
{
    return first_of(mr_nonzero(x, MR_INT_NONE, 0));
}

static mr_array *
body_unique(mr_array *x)
{
    return first_of(mr_unique(x, MR_INT_NONE, true, true, true, MR_NONE));
}

static mr_array *
body_repeat(mr_array *x)
{
    return mr_repeat_each(x, mr_ones(MRT_SHAPE(2), MR_INT32), 0, MR_INT_NONE);
}

static mr_array *
body_update(mr_array *x)
{
    return mr_index_mask_update(x, mr_greater(x, mr_float(2)),
                                mr_ones(MRT_SHAPE(2), MR_FLOAT32), "add");
}

static mr_array *
body_einsum(mr_array *x)
{
    return mr_einsum("ij,jk,kl->il", (mr_array *[]){x, x, x}, 3);
}

static mr_array *
body_nextafter(mr_array *x)
{
    return mr_nextafter(x, mr_float(9));
}

static const body bodies[] = {
    body_lined_up, body_variance, body_take,      body_concatenate, body_split,
    body_pad,      body_softmax,  body_tensordot, body_mask,        body_normal,
    body_select,   body_compress, body_nonzero,   body_unique,      body_repeat,
    body_update,   body_einsum,   body_nextafter,
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

        /* 0: what failed was a buffer, asked for again without the caches */
        assert_true(mrt_each_failure(try_body, &a) >= 0);
        assert_int_equal(mr_error_take().code, MR_OK);
        assert_int_equal(mr_eval(bodies[i](x)), MR_OK);
    }
}

/* ---- rules
 * -------------------------------------------------------------------- */

static mr_array *
f_prod(mr_array *const *x)
{
    return mr_prod(x[0], MR_AXES(1), false);
}

static mr_array *
f_extremes(mr_array *const *x)
{
    return mr_add(mr_max(x[0], MR_AXES(0), true),
                  mr_std(x[0], MR_AXES_ALL, false, 1));
}

static mr_array *
f_logs(mr_array *const *x)
{
    return mr_logaddexp(mr_logsumexp(x[0], MR_AXES(0), true),
                        mr_logcumsumexp(x[0], 1, true, false));
}

static mr_array *
f_scans(mr_array *const *x)
{
    return mr_add(mr_cumprod(x[0], 0, false, true, MR_DTYPE_DEFAULT),
                  mr_cummax(x[0], 1, false, true));
}

static mr_array *
f_sort(mr_array *const *x)
{
    return mr_multiply(mr_sort(x[0], 0), mr_median(x[0], MR_AXES(1), true));
}

static mr_array *
f_norms(mr_array *const *x)
{
    mr_array *w = mr_index_slice(x[0], MR_INTS(0), MR_INTS(1), MR_INTS(1));

    return mr_layer_norm(mr_softmax(x[0], MR_AXES(0), false),
                         mr_flatten(w, 0, -1), MR_NONE, 1e-5);
}

static mr_array *
f_power(mr_array *const *x)
{
    return mr_power(mr_abs(x[0]), mr_arctan2(x[0], mr_square(x[0])));
}

static mr_array *
f_scatter(mr_array *const *x)
{
    mr_array *i = flat_indices(), *u = mr_take(x[0], i, 0);

    u = mr_expand_dims(u, MR_AXES(1));
    return mr_maximum(mr_index_scatter(x[0], &i, 1, u, MR_INTS(0), "multiply"),
                      mr_index_scatter(x[0], &i, 1, u, MR_INTS(0), "set"));
}

static mr_array *
f_linear(mr_array *const *x)
{
    mr_array *both[2] = {x[0], x[0]};

    return mr_matmul(mr_einsum("ij,jk->ki", both, 2),
                     mr_diagonal(x[0], 0, 0, 1));
}

static mr_array *
f_conv(mr_array *const *x)
{
    mr_array *image = mr_reshape(x[0], MR_SHAPE(1, 2, 2, 1));

    return mr_conv2d(image, image, MR_INTS(1), MR_INTS(1), MR_INTS(1), 1);
}

static mr_array *
f_moves(mr_array *const *x)
{
    mr_array *list[2] = {mr_roll(x[0], MR_INTS(1), MR_AXES_ALL),
                         mr_flip(x[0], MR_AXES(0))};

    return mr_pad(mr_concatenate(list, 2, 1), MR_INTS(1, 0), "constant",
                  mr_sum(x[0], MR_AXES_ALL, false));
}

static const mrt_function functions[] = {
    f_prod,  f_extremes, f_logs,   f_scans, f_sort,  f_norms,
    f_power, f_scatter,  f_linear, f_conv,  f_moves,
};

typedef struct slope_attempt {
    mrt_function f;
    mr_array *x;
} slope_attempt;

static bool
try_slope(void *arg)
{
    slope_attempt *a = arg;
    mr_scope s = mr_scope_begin();
    bool ok = s.token != 0 && mrt_grad(a->f, 1, &a->x, 0) != NULL;

    if (s.token != 0)
        mr_scope_end(s);
    return ok;
}

static void
rules__survive_every_failing_allocation(void **state)
{
    (void)state;
    mr_array *x = mr_array_from_f32((float[]){1, 2, 0, 4}, MRT_SHAPE(2, 2));

    for (size_t i = 0; i < MRT_COUNT(functions); i++) {
        slope_attempt a = {functions[i], x};

        assert_true(mrt_each_failure(try_slope, &a) > 0);
        mr_error_take();
        assert_int_equal(mr_eval(mrt_grad(functions[i], 1, &x, 0)), MR_OK);
    }
}

static mr_tree *
pushed(mrt_function f, mr_array *x)
{
    mrt_traced t = {f};

    return mr_jvp(mrt_call_traced, &t, MR_ARRAYS(x),
                  MR_ARRAYS(mr_ones_like(x, MR_DTYPE_DEFAULT)));
}

static bool
try_pushed(void *arg)
{
    const slope_attempt *a = arg;
    mr_scope s = mr_scope_begin();
    bool ok = s.token != 0 && pushed(a->f, a->x) != NULL;

    if (s.token != 0)
        mr_scope_end(s);
    return ok;
}

static void
forward_rules__survive_every_failing_allocation(void **state)
{
    (void)state;
    mr_array *x = mr_array_from_f32((float[]){1, 2, 0, 4}, MRT_SHAPE(2, 2));

    for (size_t i = 0; i < MRT_COUNT(functions); i++) {
        slope_attempt a = {functions[i], x};

        assert_true(mrt_each_failure(try_pushed, &a) > 0);
        mr_error_take();
    }
}

static mr_tree *
mapped(mrt_function f, mr_array *x)
{
    mrt_traced t = {f};

    return mr_vmap(mrt_call_traced, &t, MR_ARRAYS(x), (int32_t[]){0}, 1,
                   (int32_t[]){0}, 1);
}

static bool
try_mapped(void *arg)
{
    const slope_attempt *a = arg;
    mr_scope s = mr_scope_begin();
    bool ok = s.token != 0 && mapped(a->f, a->x) != NULL;

    if (s.token != 0)
        mr_scope_end(s);
    return ok;
}

static void
batching__survives_every_failing_allocation(void **state)
{
    (void)state;
    mr_array *x = mr_array_from_f32((float[]){1, 2, 0, 4, 5, 6, 7, 8},
                                    MRT_SHAPE(2, 2, 2));

    for (size_t i = 0; i < MRT_COUNT(functions); i++) {
        slope_attempt a = {functions[i], x};

        assert_true(mrt_each_failure(try_mapped, &a) > 0);
        mr_error_take();
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(bodies__survive_every_failing_allocation),
        mrt_test(rules__survive_every_failing_allocation),
        mrt_test(forward_rules__survive_every_failing_allocation),
        mrt_test(batching__survives_every_failing_allocation),
    };

    return cmocka_run_group_tests_name("ops/failure", tests, NULL, NULL);
}
