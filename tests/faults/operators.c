/* SPDX-License-Identifier: Apache-2.0
 *
 * operators.c -- operators of every family, indexing, files, text, streams and
 * functions with each of their allocations failing in turn.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "faults/each.h"

static mr_tree *
evaluated_leaf(mr_array *x)
{
    mr_tree *t = mr_tree_leaf(x);

    assert_non_null(t);
    assert_int_equal(mr_eval_tree(t), MR_OK);
    return t;
}

/* ---- families ------------------------------------------------------------ */

static mr_tree *
run_arithmetic(void *arg)
{
    mr_array *x = arg,
             *i = mr_floor_divide(mr_multiply(x, mr_float(100)), mr_float(1));
    mr_array *n = mr_array_from_i32((int32_t[]){3, 0, -7, 5}, MRT_SHAPE(4));

    return each_evaluated(
        MR_TUPLE(mr_divmod(i, mr_float(7)),
                 MR_ARRAYS(mr_where(mr_greater(x, mr_float(0)), x, mr_exp(x)),
                           mr_clip(x, mr_float(-0.5), mr_float(0.5)),
                           mr_power(mr_abs(x), mr_float(2.5)),
                           mr_left_shift(n, n), mr_remainder(n, mr_int(4)),
                           mr_isclose(x, x, 1e-5, 1e-8, true),
                           mr_array_equal(x, x, false),
                           mr_nan_to_num(mr_log(x), 0.0, NAN, NAN),
                           mr_logaddexp(x, mr_negative(x)), mr_degrees(x),
                           mr_radians(x), mr_round(x, 2), mr_real(x),
                           mr_imag(x), mr_conjugate(mr_astype(x, MR_COMPLEX64)),
                           mr_positive(x), mr_allclose(x, x, 1e-5, 1e-8, false),
                           mr_stop_gradient(mr_exp(x)))));
}

static mr_tree *
run_shapes(void *arg)
{
    mr_array *x = arg, *two[] = {x, x};

    return each_evaluated(MR_TUPLE(
        mr_split(x, 2, 1), mr_split_indices(x, MR_INTS(1, 2), 0),
        mr_unstack(x, 0), mr_broadcast_arrays(two, 2),
        MR_ARRAYS(mr_concatenate(two, 2, 1), mr_stack(two, 2, -1),
                  mr_pad(x, MR_INTS(1, 2), "reflect", MR_NONE),
                  mr_pad(x, MR_INTS(1), "constant", mr_float(3)),
                  mr_repeat(x, 2, 0), mr_tile(x, MR_INTS(2, 1, 2)),
                  mr_roll(x, MR_INTS(1, -1), MR_AXES(0, 1)),
                  mr_flip(x, MR_AXES_ALL), mr_transpose(x, MR_INTS(1, 0)),
                  mr_flatten(mr_transpose(x, MR_INTS_NONE), 0, -1),
                  mr_as_strided(x, MR_SHAPE(2, 2), MR_INTS(1, 3), 1),
                  mr_diagonal(x, 1, 0, 1), mr_view(x, MR_INT32),
                  mr_contiguous(mr_transpose(x, MR_INTS_NONE), false),
                  mr_diff(x, 1, -1), mr_kron(x, x), mr_tril(x, 0),
                  mr_moveaxis(x, 0, 1), mr_swapaxes(x, 0, 1), mr_triu(x, 1),
                  mr_matrix_transpose(x), mr_unflatten(x, 1, MR_SHAPE(2, 2)),
                  mr_diag(x, 0), mr_trace(x, 0, 0, 1, MR_DTYPE_DEFAULT),
                  mr_atleast_3d(x), mr_atleast_2d(mr_float(1)),
                  mr_atleast_1d(mr_float(1)),
                  mr_broadcast_to(x, MR_SHAPE(2, 3, 4)))));
}

static mr_tree *
run_reductions(void *arg)
{
    mr_array *x = arg;
    mr_axes last = MR_AXES(-1);

    return each_evaluated(MR_TUPLE(
        mr_minmax(x, last, false),
        MR_ARRAYS(
            mr_sum(x, MR_AXES_ALL, false), mr_prod(x, MR_AXES(0), true),
            mr_mean(x, last, false), mr_var(x, last, false, 1),
            mr_std(x, MR_AXES_ALL, false, 0), mr_max(x, last, true),
            mr_argmin(x, MR_AXIS_NONE, false), mr_logsumexp(x, last, false),
            mr_median(x, last, false), mr_all(x, last, false),
            mr_count_nonzero(x, MR_AXES_ALL, false),
            mr_cumsum(x, 1, true, false, MR_DTYPE_DEFAULT),
            mr_cumprod(x, 0, false, true, MR_DTYPE_DEFAULT),
            mr_cummax(x, 1, false, true), mr_logcumsumexp(x, 1, false, true),
            mr_logcumsumexp(mr_astype(x, MR_COMPLEX64), 0, true, false),
            mr_cummin(x, 0, true, true), mr_any(x, last, false),
            mr_min(x, MR_AXES_ALL, true), mr_argmax(x, 1, true))));
}

static mr_tree *
run_orders(void *arg)
{
    mr_array *x = arg, *line = mr_sort(mr_flatten(x, 0, -1), 0);

    return each_evaluated(
        MR_ARRAYS(mr_sort(x, 0), mr_argsort(x, MR_AXIS_NONE),
                  mr_partition(x, 1, -1), mr_argpartition(x, 1, -1),
                  mr_topk(x, 2, -1), mr_searchsorted(line, x, "left"),
                  mr_sort(mr_astype(x, MR_FLOAT16), 1)));
}

static mr_tree *
run_linear(void *arg)
{
    mr_array *x = arg, *t = mr_transpose(x, MR_INTS_NONE);
    mr_array *v = mr_index_slice(x, MR_INTS(0), MR_INTS(1), MR_INTS(1));

    v = mr_squeeze(v, MR_AXES(0));
    return each_evaluated(MR_ARRAYS(
        mr_matmul(x, t), mr_matmul(x, v), mr_matmul(t, x),
        mr_addmm(mr_float(1), x, t, 0.5, 2.0), mr_inner(x, x), mr_outer(v, v),
        mr_tensordot(x, t, MR_INTS(1)), mr_vecdot(x, x, -1),
        mr_matmul(mr_astype(x, MR_BFLOAT16), mr_astype(t, MR_BFLOAT16)),
        mr_matmul(mr_astype(x, MR_COMPLEX64), mr_astype(t, MR_COMPLEX64))));
}

/* What follows a product, in one kernel with it: by its tiles and after all,
 * in its memory and in more. */
static mr_tree *
run_joined(void *arg)
{
    mr_array *x = arg, *t = mr_transpose(x, MR_INTS_NONE);
    mr_array *y = mr_matmul(x, t), *z = mr_matmul(t, x);
    mr_array *wide = mr_matmul(mr_broadcast_to(t, MR_SHAPE(20, 4, 3)), x);
    mr_array *long_ = mr_tile(x, MR_INTS(40, 1));

    return each_evaluated(MR_ARRAYS(
        mr_tanh(mr_add(y, mr_float(1))),
        mr_astype(mr_multiply(z, z), MR_FLOAT16),
        mr_subtract(wide, mr_reshape(mr_arange(MR_INTEGER(0), MR_INTEGER(20),
                                               MR_INTEGER(1), MR_FLOAT32),
                                     MR_SHAPE(20, 1, 1))),
        mr_maximum(mr_matmul(long_, t), mr_float(0)), mr_matmul(y, mr_exp(y)),
        mr_add(mr_conv1d(mr_reshape(x, MR_SHAPE(1, 3, 4)),
                         mr_ones(MR_SHAPE(2, 2, 4), MR_FLOAT32), 1, 0, 1, 1),
               mr_float(1))));
}

static mr_tree *
run_rows(void *arg)
{
    mr_array *x = arg, *q = each_waves(MR_SHAPE(1, 2, 3, 4));
    mr_array *w = mr_ones(MR_SHAPE(4), MR_FLOAT32);

    return each_evaluated(MR_ARRAYS(
        mr_softmax(x, MR_AXES(-1), false), mr_layer_norm(x, w, w, 1e-5),
        mr_rms_norm(x, w, 1e-5), mr_softmax(x, MR_AXES_ALL, true),
        mr_scaled_dot_product_attention(q, q, q, 0.5, MR_NONE, true, MR_NONE),
        mr_rope(q, 4, false, 10000.0, 1.0, mr_int(2), MR_NONE)));
}

static mr_tree *
run_convolutions(void *arg)
{
    mr_array *x = each_waves(MR_SHAPE(2, 5, 5, 2)),
             *w = each_waves(MR_SHAPE(4, 3, 3, 2));
    mr_array *line = each_waves(MR_SHAPE(2, 6, 2)),
             *k = each_waves(MR_SHAPE(4, 3, 2));

    (void)arg;
    return each_evaluated(
        MR_ARRAYS(mr_conv2d(x, w, MR_INTS(1, 2), MR_INTS(1), MR_INTS(1), 1),
                  mr_conv1d(line, k, 1, 0, 1, 1),
                  mr_conv_transpose1d(line, k, 2, 1, 1, 0, 1),
                  mr_conv_general(x, w, MR_INTS(1), MR_INTS(1), MR_INTS(2),
                                  MR_INTS(2), 1, true, MR_INTS(2)),
                  mr_conv_transpose2d(x, w, MR_INTS(2), MR_INTS(1), MR_INTS(1),
                                      MR_INTS(0), 1),
                  mr_conv2d(x, each_waves(MR_SHAPE(4, 3, 3, 1)), MR_INTS(1),
                            MR_INTS(0), MR_INTS(1), 2)));
}

static void
families__survive_each_failure(void **state)
{
    mr_array *x = each_waves(MR_SHAPE(3, 4));
    mr_tree *keep = evaluated_leaf(x);
    const each_case c[] = {{"arithmetic", run_arithmetic, x, keep, NULL},
                           {"shapes", run_shapes, x, keep, NULL},
                           {"reductions", run_reductions, x, keep, NULL},
                           {"orders", run_orders, x, keep, NULL},
                           {"products", run_linear, x, keep, NULL},
                           {"joined", run_joined, x, keep, NULL},
                           {"rows", run_rows, x, keep, NULL},
                           {"convolutions", run_convolutions, x, keep, NULL}};

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(c); i++)
        assert_true(each_run(&c[i]).failed > 15);
}

/* ---- indexing ------------------------------------------------------------ */

static mr_tree *
run_reads(void *arg)
{
    mr_array *x = arg, *i = mr_array_from_i32((int32_t[]){2, -1}, MRT_SHAPE(2));
    mr_array *j = mr_array_from_i64((int64_t[]){0, 3}, MRT_SHAPE(2));
    mr_array *both[] = {i, j};

    return each_evaluated(MR_ARRAYS(
        mr_take(x, i, 0), mr_take(x, j, MR_AXIS_NONE),
        mr_take_along_axis(x, mr_expand_dims(i, MR_AXES(0)), 1),
        mr_index_gather(x, both, 2, MR_INTS(0, 1), MR_INTS(1, 1)),
        mr_index_gather(x, both, 1, MR_INTS(0), MR_INTS(1, 4)),
        mr_slice(x, j, MR_INTS(0, 1), MR_INTS(2, 2)),
        mr_index_slice(x, MR_INTS(2, 3), MR_INTS(-4, 0), MR_INTS(-1, -2)),
        mr_index_compress(x, mr_greater(x, mr_float(0)))));
}

static mr_tree *
run_writes(void *arg)
{
    mr_array *x = arg, *i = mr_array_from_i32((int32_t[]){1, 1}, MRT_SHAPE(2));
    mr_array *j = mr_array_from_i32((int32_t[]){0, 3}, MRT_SHAPE(2));
    mr_array *both[] = {i, j}, *one = mr_float(1);
    mr_array *flat = mr_reshape(
        mr_array_from_f32((float[]){5, 6}, MRT_SHAPE(2)), MR_SHAPE(2, 1, 1));

    return each_evaluated(
        MR_ARRAYS(mr_index_scatter(x, both, 2, flat, MR_INTS(0, 1), "add"),
                  mr_index_scatter(x, both, 2, flat, MR_INTS(0, 1), "set"),
                  mr_put_along_axis(x, mr_expand_dims(j, MR_AXES(0)), one, 1),
                  mr_slice_update(x, mr_zeros(MR_SHAPE(1, 2), MR_FLOAT32), i,
                                  MR_INTS(0, 1)),
                  mr_index_slice_update(x, one, MR_INTS(0, 1), MR_INTS(3, 4),
                                        MR_INTS(1, 2)),
                  mr_index_mask_set(x, mr_greater(x, mr_float(0)), one)));
}

/* The derivative of reads are scattered sums. */
static mr_tree *
sum_of_reads(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0), *i = mr_int(1), *parts;

    (void)ctx;
    parts = mr_add(mr_take(x, i, 0),
                   mr_index_gather(x, &i, 1, MR_INTS(0), MR_INTS(1, 4)));
    return mr_tree_leaf(mr_sum(mr_square(parts), MR_AXES_ALL, false));
}

static mr_tree *
run_read_slopes(void *arg)
{
    mr_tree *args = MR_ARRAYS(arg);

    return each_evaluated(args ? mr_grad(sum_of_reads, NULL, args, NULL, 0)
                               : NULL);
}

static void
indexing__survives_each_failure(void **state)
{
    mr_array *x = each_waves(MR_SHAPE(3, 4));
    mr_tree *keep = evaluated_leaf(x);
    const each_case c[] = {{"reads", run_reads, x, keep, NULL},
                           {"writes", run_writes, x, keep, NULL},
                           {"slopes", run_read_slopes, x, keep, NULL}};

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(c); i++)
        assert_true(each_run(&c[i]).failed > 15);
}

/* ---- files --------------------------------------------------------------- */

typedef struct disk {
    char folder[64], npy[96], tensors[96];
    mr_array *x;
    mr_tree *dict;
} disk;

static mr_tree *
run_npy(void *arg)
{
    disk *d = arg;

    if (mr_save_npy(d->npy, d->x) != MR_OK)
        return NULL;
    return each_evaluated(mr_tree_leaf(mr_load_npy(d->npy)));
}

static mr_tree *
run_npy_memory(void *arg)
{
    disk *d = arg;
    size_t bytes = 0;
    char *data = mr_save_npy_memory(mr_transpose(d->x, MR_INTS_NONE), &bytes);
    mr_tree *t = NULL;

    if (data != NULL)
        t = mr_tree_leaf(mr_load_npy_memory(data, bytes));
    mr_text_free(data);
    return each_evaluated(t);
}

static const char *const meta_key[] = {"format", "note"};
static const char *const meta_value[] = {"mr", "grass"};

static mr_tree *
run_safetensors(void *arg)
{
    disk *d = arg;
    char *meta = NULL;
    mr_tree *t;

    if (mr_save_safetensors(d->tensors, d->dict, 2, meta_key, meta_value) !=
        MR_OK)
        return NULL;
    t = mr_load_safetensors(d->tensors, &meta);
    mr_text_free(meta);
    return each_evaluated(t);
}

static mr_tree *
run_safetensors_memory(void *arg)
{
    disk *d = arg;
    size_t bytes = 0;
    char *data =
        mr_save_safetensors_memory(d->dict, 2, meta_key, meta_value, &bytes);
    mr_tree *t = data ? mr_load_safetensors_memory(data, bytes, NULL) : NULL;

    mr_text_free(data);
    return each_evaluated(t);
}

/* Nothing but whole files of ours: no temporary one is left. */
static void
folder_is_clean(void *arg)
{
    disk *d = arg;
    DIR *dir = opendir(d->folder);
    int n = 0;

    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL; n++)
        if (e->d_name[0] != '.' && strcmp(e->d_name, "x.npy") != 0 &&
            strcmp(e->d_name, "x.safetensors") != 0)
            fail_msg("%s was left", e->d_name);
    closedir(dir);
    assert_true(n <= 4);
}

static void
files__survive_each_failure(void **state)
{
    const char *name[] = {"a", "b"};
    disk d = {.folder = "/tmp/mr-faults-XXXXXX"};
    mr_tree *leaf[2];

    (void)state;
    assert_non_null(mkdtemp(d.folder));
    snprintf(d.npy, sizeof d.npy, "%s/x.npy", d.folder);
    snprintf(d.tensors, sizeof d.tensors, "%s/x.safetensors", d.folder);
    d.x = each_waves(MR_SHAPE(3, 4));
    leaf[0] = evaluated_leaf(d.x);
    leaf[1] = mr_tree_leaf(mr_astype(d.x, MR_BFLOAT16));
    d.dict = mr_tree_dict(2, name, leaf);

    const each_case c[] = {
        {"npy", run_npy, &d, leaf[0], folder_is_clean},
        {"npy in memory", run_npy_memory, &d, leaf[0], NULL},
        {"safetensors", run_safetensors, &d, d.dict, folder_is_clean},
        {"safetensors in memory", run_safetensors_memory, &d, d.dict, NULL}};

    for (size_t i = 0; i < MRT_COUNT(c); i++)
        assert_true(each_run(&c[i]).failed > 2);
    unlink(d.npy);
    unlink(d.tensors);
    rmdir(d.folder);
}

/* A save that fails leaves the file of before. */
static void
save_that_fails__keeps_the_old_file(void **state)
{
    char path[] = "/tmp/mr-faults-XXXXXX";
    mr_array *x = each_waves(MR_SHAPE(3, 4)), *y = mr_exp(x);
    int n = 0;

    (void)state;
    close(mkstemp(path));
    assert_int_equal(mr_save_npy(path, x), MR_OK);
    assert_int_equal(mr_eval(y), MR_OK);
    for (;; n++) {
        mr_code rc;

        mr__alloc_fail_after(n);
        rc = mr_save_npy(path, y);
        mr__alloc_fail_after(-1);
        if (rc == MR_OK)
            break;
        mrt_assert_error(MR_E_MEMORY, "allocate");
        mrt_assert_same(mr_load_npy(path), x);
    }
    assert_true(n > 0);
    mrt_assert_same(mr_load_npy(path), y);
    unlink(path);
}

/* ---- the rest ------------------------------------------------------------ */

static mr_tree *
run_text(void *arg)
{
    char *text = mr_array_text(mr_multiply(arg, mr_float(2)), -1);
    bool ok = text != NULL;

    mr_text_free(text);
    return ok ? mr_tree_leaf(arg) : NULL;
}

static mr_tree *
run_making(void *arg)
{
    static float wrapped[4] = {1, 2, 3, 4};
    mr_scope s = mr_scope_begin();
    mr_array *w =
        mr_array_wrap(wrapped, MRT_SHAPE(2, 2), NULL, MR_FLOAT32, NULL, NULL);
    mr_tree *t = MR_TUPLE(
        MR_ARRAYS(
            w, mr_linspace(0, 1, 5, true, MR_FLOAT32), mr_eye(3, 3, 0, MR_INT8),
            mr_full_like(arg, mr_float(2), MR_DTYPE_DEFAULT), mr_complex(1, 2),
            mr_number_like(arg, 3), mr_hanning(5), mr_hamming(5),
            mr_bartlett(5), mr_blackman(5), mr_identity(2, MR_FLOAT16),
            mr_tri(2, 3, 0, MR_BOOL), mr_full(MR_SHAPE(2), 3, MR_INT16),
            mr_ones_like(arg, MR_INT8), mr_zeros_like(arg, MR_DTYPE_DEFAULT),
            mr_full_array(MR_SHAPE(3, 4), arg, MR_FLOAT64),
            mr_empty(MR_SHAPE(0, 2), MR_FLOAT32)),
        mr_meshgrid((mr_array *[]){mr_hanning(3), mr_hamming(2)}, 2, false,
                    "xy"),
        mr_tree_list(1, (mr_tree *[]){mr_tree_leaf(arg)}));

    if (s.token == 0)
        return NULL;
    t = each_evaluated(mr_scope_return_tree(s, t));
    mr_scope_end(s);
    return t;
}

static mr_tree *
run_stream(void *arg)
{
    mr_stream other = mr_stream_new(mr_default_device()), old;
    mr_array *x = NULL;
    bool ok = other.id != 0;

    if (!ok)
        return NULL;
    old = mr_stream_scope(other);
    x = mr_matmul(mr_exp(arg), mr_transpose(arg, MR_INTS_NONE));
    mr_stream_scope(old);
    x = mr_add(x, mr_float(1));
    ok = x != NULL && mr_async_eval(&x, 1) == MR_OK;
    if (mr_stream_sync(other) != MR_OK)
        ok = false;
    mr_stream_free(other);
    return ok ? each_evaluated(mr_tree_leaf(x)) : NULL;
}

static void
the_rest__survives_each_failure(void **state)
{
    mr_array *x = each_waves(MR_SHAPE(3, 4));
    mr_tree *keep = evaluated_leaf(x);
    const each_case c[] = {{"text", run_text, x, keep, NULL},
                           {"making", run_making, x, keep, NULL},
                           {"streams", run_stream, x, keep, NULL}};

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(c); i++)
        assert_true(each_run(&c[i]).failed > 3);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(families__survive_each_failure),
        mrt_test(indexing__survives_each_failure),
        mrt_test(files__survive_each_failure),
        mrt_test(save_that_fails__keeps_the_old_file),
        mrt_test(the_rest__survives_each_failure),
    };

    return cmocka_run_group_tests_name("faults/operators", tests, NULL, NULL);
}
