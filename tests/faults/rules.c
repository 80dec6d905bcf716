/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.c -- the derivative and the batched form of operators that have rules
 * of their own, with each of their allocations failing in turn.
 */
#include "faults/each.h"

typedef mr_array *(*body)(mr_array *x); /* x: float32 (3, 4) */

static mr_array *
norms(mr_array *x)
{
    mr_array *w = mr_index_slice(x, MR_INTS(0), MR_INTS(1), MR_INTS(1));

    w = mr_squeeze(w, MR_AXES(0));
    return mr_add(mr_layer_norm(x, w, w, 1e-5), mr_rms_norm(x, w, 1e-5));
}

static mr_array *
rows(mr_array *x)
{
    return mr_multiply(mr_softmax(x, MR_AXES(-1), false),
                       mr_logsumexp(x, MR_AXES(0), true));
}

static mr_array *
attention(mr_array *x)
{
    mr_array *q = mr_reshape(x, MR_SHAPE(1, 1, 3, 4));

    q = mr_rope(q, 4, false, 10000.0, 1.0, mr_int(0), MR_NONE);
    return mr_scaled_dot_product_attention(q, q, q, 0.5, MR_NONE, true,
                                           MR_NONE);
}

static mr_array *
convolution(mr_array *x)
{
    mr_array *in = mr_reshape(x, MR_SHAPE(1, 3, 2, 2));

    return mr_conv2d(in, in, MR_INTS(1), MR_INTS(2), MR_INTS(1), 1);
}

static mr_array *
products(mr_array *x)
{
    mr_array *t = mr_transpose(x, MR_INTS_NONE);

    return mr_addmm(mr_float(1), mr_matmul(x, t), x, 0.5, 2.0);
}

static mr_array *
reductions(mr_array *x)
{
    return mr_add(
        mr_add(mr_max(x, MR_AXES(0), true), mr_prod(x, MR_AXES(1), true)),
        mr_add(mr_std(x, MR_AXES(1), true, 0), mr_mean(x, MR_AXES_ALL, true)));
}

static mr_array *
scans(mr_array *x)
{
    return mr_add(mr_add(mr_cumsum(x, 0, true, false, MR_DTYPE_DEFAULT),
                         mr_cumprod(x, 1, false, true, MR_DTYPE_DEFAULT)),
                  mr_add(mr_cummax(x, 1, true, true),
                         mr_logcumsumexp(x, 0, false, true)));
}

static mr_array *
orders(mr_array *x)
{
    return mr_add(mr_sort(x, 1), mr_pad(mr_topk(x, 2, 1), MR_INTS(0, 0, 1, 1),
                                        "constant", MR_NONE));
}

static mr_array *
gathers(mr_array *x)
{
    mr_array *i = mr_array_from_i32((int32_t[]){2, 0, 1}, MRT_SHAPE(3));
    mr_array *column = mr_expand_dims(i, MR_AXES(1));

    return mr_add(mr_take(x, i, 0), mr_take_along_axis(x, column, 1));
}

static mr_array *
scatters(mr_array *x)
{
    mr_array *i = mr_array_from_i32((int32_t[]){1, 1}, MRT_SHAPE(2));
    mr_array *up = mr_expand_dims(
        mr_index_slice(x, MR_INTS(0), MR_INTS(2), MR_INTS(1)), MR_AXES(1));

    x = mr_index_scatter(x, &i, 1, up, MR_INTS(0), "add");
    x = mr_index_scatter(x, &i, 1, up, MR_INTS(0), "set");
    x = mr_index_scatter(x, &i, 1, up, MR_INTS(0), "maximum");
    return mr_put_along_axis(x, mr_expand_dims(i, MR_AXES(0)),
                             mr_sum(x, MR_AXES_ALL, false), 1);
}

static mr_array *
slices(mr_array *x)
{
    mr_array *at = mr_array_from_i32((int32_t[]){1, 1}, MRT_SHAPE(2));
    mr_array *part = mr_slice(x, at, MR_INTS(0, 1), MR_INTS(2, 2));

    x = mr_slice_update(x, mr_exp(part), at, MR_INTS(0, 1));
    return mr_index_slice_update(x, mr_sin(x), MR_INTS(0, 0), MR_INTS(3, 4),
                                 MR_INTS(1, 1));
}

static mr_array *
joins(mr_array *x)
{
    mr_array *two[] = {x, mr_flip(x, MR_AXES(0))};
    mr_tree *parts = mr_split(mr_concatenate(two, 2, 1), 2, 1);
    mr_array *s = mr_roll(mr_stack(two, 2, 0), MR_INTS(1), MR_AXES(1));

    return mr_add(
        mr_multiply(mr_tree_array_at(parts, 0), mr_tree_array_at(parts, 1)),
        mr_multiply(s, mr_repeat(mr_expand_dims(x, MR_AXES(0)), 2, 0)));
}

static mr_array *
views(mr_array *x)
{
    mr_array *s = mr_as_strided(x, MR_SHAPE(2, 3), MR_INTS(4, 1), 1);

    return mr_add(mr_tile(mr_diagonal(x, 0, 0, 1), MR_INTS(2, 1)),
                  mr_multiply(s, mr_float(2)));
}

static mr_array *
curves(mr_array *x)
{
    mr_array *y = mr_arctan2(mr_tanh(x), mr_erf(mr_square(x)));

    y = mr_where(mr_greater(x, mr_float(0)), y, mr_sigmoid(x));
    y = mr_add(y, mr_clip(x, mr_float(-0.5), mr_float(0.5)));
    return mr_real(mr_exp(mr_astype(y, MR_COMPLEX64)));
}

static mr_array *
systems(mr_array *x)
{
    mr_array *s = mr_matmul(x, mr_transpose(x, MR_INTS_NONE)), *y;

    s = mr_add(s, mr_eye(3, 3, 0, MR_FLOAT32));
    y = mr_add(mr_linalg_solve(s, x),
               mr_linalg_pinv(mr_transpose(x, MR_INTS_NONE), mr_float(0.001)));
    y = mr_add(y, mr_matmul(mr_linalg_matrix_power(s, -3), x));
    y = mr_add(
        y, mr_matmul(
               mr_linalg_cholesky_inv(mr_linalg_cholesky(s, false), false), x));
    return mr_add(mr_multiply(y, mr_linalg_det(s)),
                  mr_tree_array_at(mr_linalg_slogdet(s), 1));
}

static mr_array *
factors(mr_array *x)
{
    mr_tree *qr = mr_linalg_qr(mr_transpose(x, MR_INTS_NONE), "complete"),
            *lu = mr_linalg_lu(x);
    mr_array *y = mr_matmul(mr_tree_array_at(qr, 0), mr_tree_array_at(qr, 1));

    y = mr_transpose(y, MR_INTS_NONE);
    y = mr_add(y, mr_matmul(mr_tree_array_at(lu, 1), mr_tree_array_at(lu, 2)));
    return mr_add(y, mr_hadamard_transform(x, 1.0));
}

static mr_array *
spectra(mr_array *x)
{
    mr_array *s = mr_matmul(x, mr_transpose(x, MR_INTS_NONE));
    mr_tree *svd = mr_linalg_svd(x, true, true), *eigh = mr_linalg_eigh(s, "U");
    mr_tree *eig = mr_linalg_eig(s);
    mr_array *y = mr_add(mr_tree_array_at(svd, 1), mr_tree_array_at(eigh, 0));

    y = mr_add(y, mr_square(mr_tree_array_at(eigh, 1)));
    y = mr_add(y, mr_real(mr_tree_array_at(eig, 0)));
    y = mr_add(y, mr_square(mr_tree_array_at(svd, 0)));
    y = mr_add(y, mr_square(mr_real(mr_tree_array_at(eig, 1))));
    return mr_add(y, mr_linalg_norm_matrix(x, "nuc", MR_AXES_ALL, false));
}

/* ---- the three forms ----------------------------------------------------- */

static mr_tree *
call_body(void *b, const mr_tree *in)
{
    return mr_tree_leaf((*(body *)b)(mr_tree_array_at(in, 0)));
}

static mr_tree *
call_sum(void *b, const mr_tree *in)
{
    mr_array *y = (*(body *)b)(mr_tree_array_at(in, 0));

    return mr_tree_leaf(mr_sum(mr_square(y), MR_AXES_ALL, false));
}

typedef struct form {
    body b;
    mr_tree *x, *batch;
} form;

static mr_tree *
run_grad(void *arg)
{
    form *f = arg;

    return each_evaluated(mr_grad(call_sum, &f->b, f->x, NULL, 0));
}

static mr_tree *
run_jvp(void *arg)
{
    form *f = arg;

    return each_evaluated(mr_jvp(call_body, &f->b, f->x, f->x));
}

static mr_tree *
run_vmap(void *arg)
{
    form *f = arg;

    return each_evaluated(
        mr_vmap(call_body, &f->b, f->batch, (int32_t[]){0}, 1, NULL, 0));
}

static void
each_form(const char *name, body b)
{
    mr_array *x = mr_reshape(mr_sin(mr_arange(MR_INTEGER(1), MR_INTEGER(25),
                                              MR_INTEGER(1), MR_FLOAT32)),
                             MR_SHAPE(2, 3, 4));
    mr_array *one = mr_index_slice(x, MR_INTS(0), MR_INTS(1), MR_INTS(1));
    form f = {b, MR_ARRAYS(mr_squeeze(one, MR_AXES(0))), MR_ARRAYS(x)};
    each_case c[] = {{name, run_grad, &f, f.x, NULL},
                     {name, run_jvp, &f, f.x, NULL},
                     {name, run_vmap, &f, f.batch, NULL}};

    assert_int_equal(mr_eval_tree(f.x), MR_OK);
    for (size_t i = 0; i < MRT_COUNT(c); i++)
        assert_true(each_run(&c[i]).failed > 10);
}

static void
rules__survive_each_failure(void **state)
{
    static const struct {
        const char *name;
        body b;
    } list[] = {{"norms", norms},         {"rows", rows},
                {"attention", attention}, {"convolution", convolution},
                {"products", products},   {"reductions", reductions},
                {"scans", scans},         {"orders", orders},
                {"gathers", gathers},     {"scatters", scatters},
                {"slices", slices},       {"joins", joins},
                {"views", views},         {"curves", curves},
                {"systems", systems},     {"factors", factors},
                {"spectra", spectra}};

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(list); i++)
        each_form(list[i].name, list[i].b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(rules__survive_each_failure),
    };

    return cmocka_run_group_tests_name("faults/rules", tests, NULL, NULL);
}
