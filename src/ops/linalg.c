/* SPDX-License-Identifier: Apache-2.0
 *
 * linalg.c -- linear algebra: what its files share, systems and inverses,
 * Cholesky, determinants.
 *
 * Derivatives: M. B. Giles, "Collected matrix derivative results for forward
 * and reverse mode algorithmic differentiation" (2008); Cholesky's in the form
 * of I. Murray, "Differentiation of the Cholesky decomposition" (2016).
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include "ops/linalg.h"

#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/tree.h"
#include "ops/door.h"
#include "ops/rules.h"

/* ---- shared: doors ----------------------------------------------------------
 */

mr_code
mr__linalg_check(const mr_array *a, mr_linalg_types types)
{
    mr_dtype t = (mr_dtype)a->dtype;
    bool complex = mr__dtype_is_complex(t);
    mr_text text;

    if (complex && types == MR_LINALG_REAL)
        return mr__fail(MR_E_DTYPE,
                        "needs float32 or float64, got %s: real() and imag() "
                        "give the parts",
                        mr_dtype_name(t));
    if (t != MR_FLOAT32 && t != MR_FLOAT64 && !complex)
        return mr__fail(MR_E_DTYPE,
                        "needs float32%s float64%s, got %s: astype(float32) "
                        "converts",
                        types == MR_LINALG_REAL ? " or" : ",",
                        types == MR_LINALG_REAL ? "" : " or complex numbers",
                        mr_dtype_name(t));
    if (a->ndim < 2)
        return mr__fail(MR_E_SHAPE,
                        "needs matrices in the last two axes, got shape %s",
                        mr__shape_of(a, &text));
    return MR_OK;
}

mr_code
mr__linalg_square(const mr_array *a, mr_linalg_types types)
{
    mr_code code = mr__linalg_check(a, types);
    mr_text text;

    if (code == MR_OK && mr__rows(a) != mr__columns(a))
        return mr__fail(MR_E_SHAPE, "needs square matrices, got shape %s",
                        mr__shape_of(a, &text));
    return code;
}

mr_array *
mr__linalg_widen(mr_array *a)
{
    mr_dtype t = (mr_dtype)a->dtype;
    bool keep = t == MR_FLOAT64 || mr__dtype_is_complex(t);

    return keep ? a : mr__cast(a, MR_FLOAT32);
}

mr_array *
mr__linalg_node(const mr_op *op, const void *params, mr_array *a)
{
    return a == NULL ? NULL : mr__node_new(op, params, 1, &a);
}

mr_array *
mr__linalg_node2(const mr_op *op, const void *params, mr_array *a, mr_array *b)
{
    mr_array *in[2] = {a, b};

    return a == NULL || b == NULL ? NULL : mr__node_new(op, params, 2, in);
}

mr_array *
mr__linalg_output(mr_array *tuple, int k)
{
    return tuple == NULL ? NULL : mr__node_output(tuple, k);
}

mr_tree *
mr__linalg_outputs(mr_array *tuple, int n)
{
    mr_array *out[3] = {NULL, NULL, NULL};

    for (int k = 0; k < n; k++)
        out[k] = mr__linalg_output(tuple, k);
    return mr_tree_arrays(n, out);
}

/* ---- shared: inference, batching --------------------------------------------
 */

void
mr__aval_matrix(mr_aval *out, mr_dtype t, const mr_array *a, int64_t rows,
                int64_t columns)
{
    mr_list dim = mr__dims(a);

    dim.v[dim.n - 2] = rows;
    dim.v[dim.n - 1] = columns;
    mr__aval_shape(out, t, (int32_t)dim.n, dim.v);
}

void
mr__aval_vector(mr_aval *out, mr_dtype t, const mr_array *a, int64_t n)
{
    mr_list dim = mr__dims(a);

    dim.v[dim.n - 2] = n;
    mr__aval_shape(out, t, (int32_t)dim.n - 1, dim.v);
}

mr_array *
mr__linalg_vmap(const mr_batch *b)
{
    mr_array *in[2] = {NULL, NULL};

    for (int i = 0; i < b->n_in; i++) {
        in[i] = mr__batch_in(b, i);
        if (in[i] == NULL)
            return NULL;
    }
    return mr__node_new(b->node->op, mr__params(b->node), b->n_in, in);
}

/* ---- shared: arithmetic -----------------------------------------------------
 */

mr_array *
mr__transposed(mr_array *x)
{
    return mr_swapaxes(x, -2, -1);
}

mr_array *
mr__adjoint(mr_array *x)
{
    return mr__conj(mr__transposed(x));
}

mr_array *
mr__hermitian(mr_array *x)
{
    return mr__scale(mr_add(x, mr__adjoint(x)), 0.5);
}

mr_array *
mr__as_row(mr_array *x)
{
    return mr_expand_dims(x, MR_AXES(-2));
}

mr_array *
mr__as_column(mr_array *x)
{
    return mr_expand_dims(x, MR_AXES(-1));
}

mr_array *
mr__diagonal_of(mr_array *x)
{
    return mr_diagonal(x, 0, -2, -1);
}

mr_array *
mr__diagonal_matrix(mr_array *x)
{
    if (x == NULL)
        return NULL;
    return mr__from_diagonal(x, 0, x->dim[x->ndim - 1], x->dim[x->ndim - 1]);
}

mr_array *
mr__reciprocal_or_zero(mr_array *x)
{
    mr_array *zero, *one;

    if (x == NULL)
        return NULL;
    zero = mr_equal(x, mr__number((mr_dtype)x->dtype, 0.0));
    one = mr__number((mr_dtype)x->dtype, 1.0);
    return mr__masked_not(zero, mr_divide(one, mr_where(zero, one, x)));
}

mr_array *
mr__differences(mr_array *w)
{
    return mr_subtract(mr__as_row(w), mr__as_column(w));
}

mr_array *
mr__column_dots(mr_array *a, mr_array *b)
{
    return mr_sum(mr_multiply(a, b), MR_AXES(-2), false);
}

mr_array *
mr__as_real(mr_array *x, const mr_array *like)
{
    if (x == NULL)
        return NULL;
    if (mr__dtype_is_complex((mr_dtype)x->dtype) &&
        !mr__dtype_is_complex((mr_dtype)like->dtype))
        x = mr_real(x);
    return x == NULL ? NULL : mr__cast(x, (mr_dtype)like->dtype);
}

mr_array *
mr__rows_of(mr_array *x, int64_t begin, int64_t end)
{
    return x == NULL ? NULL : mr__slice_one(x, x->ndim - 2, begin, end, 1);
}

mr_array *
mr__columns_of(mr_array *x, int64_t begin, int64_t end)
{
    return x == NULL ? NULL : mr__slice_one(x, x->ndim - 1, begin, end, 1);
}

mr_array *
mr__solved(mr_array *a, mr_array *b)
{
    return mr__linalg_node2(&mr__op_solve, NULL, a, b);
}

mr_array *
mr__solved_triangular(mr_array *a, mr_array *b, bool upper)
{
    mr_triangle_params p = {upper};

    return mr__linalg_node2(&mr__op_solve_triangular, &p, a, b);
}

mr_array *
mr__over_triangular(mr_array *b, mr_array *a, bool upper)
{
    return mr__transposed(
        mr__solved_triangular(mr__transposed(a), mr__transposed(b), !upper));
}

/* ---- systems: their doors
 * ------------------------------------------------- */

/* b as columns, both with the batch that they broadcast to; a vector b has
 * lost its last axis when *vector. */
static mr_code
system_of(mr_array **a, mr_array **b, bool *vector)
{
    mr_array *x = *a, *y = *b;
    int64_t dim[MR_MAX_NDIM];
    int32_t batch = -1;
    mr_text ta, tb;

    *vector = y->ndim == 1;
    if (*vector)
        y = mr_expand_dims(y, MR_AXES(1));
    if (y == NULL)
        return mr__error_code();
    if (y->ndim >= 2 && mr__rows(y) == mr__columns(x))
        batch =
            mr__broadcast_shapes(x->ndim - 2, x->dim, y->ndim - 2, y->dim, dim);
    if (batch < 0)
        return mr__fail(MR_E_SHAPE,
                        "shapes %s and %s: needs as many rows on the right as "
                        "the matrix has, leading axes that broadcast",
                        mr__shape_of(x, &ta), mr__shape_of(*b, &tb));
    dim[batch] = dim[batch + 1] = mr__rows(x);
    *a = mr__broadcast(x, batch + 2, dim);
    dim[batch + 1] = mr__columns(y);
    *b = mr__broadcast(y, batch + 2, dim);
    return *a == NULL || *b == NULL ? mr__error_code() : MR_OK;
}

static mr_array *
without_column(mr_array *x, bool vector)
{
    return vector ? mr_squeeze(x, MR_AXES(-1)) : x;
}

/* The common dtype of a and b. */
static mr_code
common_type(mr_array **a, mr_array **b)
{
    mr_dtype t = mr__promote((mr_dtype)(*a)->dtype, (mr_dtype)(*b)->dtype);

    *a = mr__cast(*a, t);
    *b = mr__cast(*b, t);
    return *a == NULL || *b == NULL ? mr__error_code() : MR_OK;
}

static mr_code
system_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[1]);
    return MR_OK;
}

/* -- solve ----------------------------------------------------------------- */

mr_array *
mr__build_linalg_solve(mr_array *a, mr_array *b)
{
    bool vector;

    if (mr__linalg_square(a, MR_LINALG_REAL) != MR_OK)
        return NULL;
    if (b->dtype != MR_FLOAT32 && b->dtype != MR_FLOAT64)
        return mr__fail_null(MR_E_DTYPE,
                             "needs float32 or float64 on the right, got %s: "
                             "astype(float32) converts",
                             mr_dtype_name((mr_dtype)b->dtype));
    if (common_type(&a, &b) != MR_OK || system_of(&a, &b, &vector) != MR_OK)
        return NULL;
    return without_column(mr__solved(a, b), vector);
}

static mr_array *
solve_back(const mr_rule *r)
{
    return mr__solved(mr__adjoint(r->primal[0]), r->cotangent[0]);
}

/* dx = a^-1 (db - da x). */
static mr_array *
solve_vjp(const mr_rule *r, int i)
{
    mr_array *back = mr_rule_once(r, 0, solve_back);

    if (i == 1)
        return back;
    return mr_negative(mr_matmul(back, mr__adjoint(r->output[0])));
}

static mr_array *
solve_jvp(const mr_rule *r, int i)
{
    if (i == 1)
        return mr__solved(r->primal[0], r->tangent[1]);
    return mr_negative(
        mr__solved(r->primal[0], mr_matmul(r->tangent[0], r->output[0])));
}

const mr_op mr__op_solve = {
    .id = MR_OP_SOLVE,
    .version = 1,
    .n_in = 2,
    .name = "solve",
    .infer = system_infer,
    .vjp = solve_vjp,
    .jvp = solve_jvp,
    .vmap = mr__linalg_vmap,
};

/* -- solve_triangular ------------------------------------------------------ */

static const mr_field triangle_fields[] = {
    MR_FIELD(1, BOOL, mr_triangle_params, upper),
};

mr_array *
mr__build_linalg_solve_triangular(mr_array *a, mr_array *b, bool upper)
{
    bool vector;

    if (mr__dtype_is_complex((mr_dtype)a->dtype) ||
        mr__dtype_is_complex((mr_dtype)b->dtype))
        return mr__fail_null(MR_E_DTYPE,
                             "needs real numbers, got %s and %s: solve the "
                             "real and imaginary parts",
                             mr_dtype_name((mr_dtype)a->dtype),
                             mr_dtype_name((mr_dtype)b->dtype));
    a = mr__linalg_widen(a);
    b = mr__linalg_widen(b);
    if (a == NULL || b == NULL ||
        mr__linalg_square(a, MR_LINALG_REAL) != MR_OK ||
        common_type(&a, &b) != MR_OK || system_of(&a, &b, &vector) != MR_OK)
        return NULL;
    return without_column(mr__solved_triangular(a, b, upper), vector);
}

static mr_array *
triangular_back(const mr_rule *r)
{
    const mr_triangle_params *p = mr__params(r->node);

    return mr__solved_triangular(mr__adjoint(r->primal[0]), r->cotangent[0],
                                 !p->upper);
}

static mr_array *
triangle(mr_array *x, bool upper)
{
    return upper ? mr_triu(x, 0) : mr_tril(x, 0);
}

/* As solve; the other triangle is not read and gets 0. */
static mr_array *
triangular_vjp(const mr_rule *r, int i)
{
    const mr_triangle_params *p = mr__params(r->node);
    mr_array *back = mr_rule_once(r, 0, triangular_back);

    if (i == 1)
        return back;
    return triangle(mr_negative(mr_matmul(back, mr__adjoint(r->output[0]))),
                    p->upper);
}

static mr_array *
triangular_jvp(const mr_rule *r, int i)
{
    const mr_triangle_params *p = mr__params(r->node);
    mr_array *t = r->tangent[i];

    if (i == 0)
        t = mr_negative(mr_matmul(triangle(t, p->upper), r->output[0]));
    return mr__solved_triangular(r->primal[0], t, p->upper);
}

const mr_op mr__op_solve_triangular = {
    .id = MR_OP_SOLVE_TRIANGULAR,
    .version = 1,
    .n_in = 2,
    .name = "solve_triangular",
    MR__PARAMS(mr_triangle_params, triangle_fields),
    .infer = system_infer,
    .vjp = triangular_vjp,
    .jvp = triangular_jvp,
    .vmap = mr__linalg_vmap,
};

/* ---- bodies made of it
 * ----------------------------------------------------- */

mr_array *
mr__build_linalg_tri_inv(mr_array *a, bool upper)
{
    mr_array *eye;

    if (mr__linalg_square(a, MR_LINALG_REAL) != MR_OK)
        return NULL;
    eye = mr_eye(mr__rows(a), mr__rows(a), 0, (mr_dtype)a->dtype);
    return mr__solved_triangular(a, mr__broadcast(eye, a->ndim, a->dim), upper);
}

/* (L L^T)^-1 = L^-T L^-1; of R^T R it is R^-1 R^-T. */
mr_array *
mr__build_linalg_cholesky_inv(mr_array *a, bool upper)
{
    mr_array *x = mr__build_linalg_tri_inv(a, upper);

    if (x == NULL)
        return NULL;
    return upper ? mr_matmul(x, mr__transposed(x))
                 : mr_matmul(mr__transposed(x), x);
}

/* -- inv ------------------------------------------------------------------- */

mr_array *
mr__build_linalg_inv(mr_array *a)
{
    mr_inverse_params p = {false};

    if (mr__linalg_square(a, MR_LINALG_REAL) != MR_OK)
        return NULL;
    return mr__linalg_node(&mr__op_inv, &p, a);
}

/* dy = -y da y. */
static mr_array *
inv_vjp(const mr_rule *r, int i)
{
    mr_array *y = mr__adjoint(r->output[0]);

    (void)i;
    return mr_negative(mr_matmul(mr_matmul(y, r->cotangent[0]), y));
}

static mr_array *
inv_jvp(const mr_rule *r, int i)
{
    mr_array *y = r->output[0];

    return mr_negative(mr_matmul(mr_matmul(y, r->tangent[i]), y));
}

static const mr_field inverse_fields[] = {
    MR_FIELD(1, BOOL, mr_inverse_params, unchecked),
};

const mr_op mr__op_inv = {
    .id = MR_OP_INV,
    .version = 1,
    .n_in = 1,
    .name = "inv",
    MR__PARAMS(mr_inverse_params, inverse_fields),
    .infer = mr__infer_same,
    .vjp = inv_vjp,
    .jvp = inv_jvp,
    .vmap = mr__linalg_vmap,
};

/* -- cholesky --------------------------------------------------------------
 * With F(X) the lower triangle of X, its diagonal halved, and a symmetric:
 * dL = L F(L^-1 da L^-T). */

mr_array *
mr__build_linalg_cholesky(mr_array *a, bool upper)
{
    mr_triangle_params p = {upper};

    if (mr__linalg_square(a, MR_LINALG_REAL) != MR_OK)
        return NULL;
    return mr__linalg_node(&mr__op_cholesky, &p, a);
}

static mr_array *
half_triangle(mr_array *x)
{
    return mr__scale(mr_add(mr_tril(x, 0), mr_tril(x, -1)), 0.5);
}

static mr_array *
cholesky_vjp(const mr_rule *r, int i)
{
    const mr_triangle_params *p = mr__params(r->node);
    mr_array *g = r->cotangent[0], *up = r->output[0], *s;

    (void)i;
    if (p->upper)
        g = mr__transposed(g);
    else
        up = mr__transposed(up);
    s = half_triangle(mr_matmul(up, g));
    s = mr__solved_triangular(up, s, true);
    s = mr__solved_triangular(up, mr__transposed(s), true);
    return mr__hermitian(s);
}

static mr_array *
cholesky_jvp(const mr_rule *r, int i)
{
    const mr_triangle_params *p = mr__params(r->node);
    mr_array *low = p->upper ? mr__transposed(r->output[0]) : r->output[0];
    mr_array *x = mr__hermitian(r->tangent[i]);

    x = mr__solved_triangular(low, x, false);
    x = mr__solved_triangular(low, mr__transposed(x), false);
    x = mr_matmul(low, half_triangle(x));
    return p->upper ? mr__transposed(x) : x;
}

const mr_op mr__op_cholesky = {
    .id = MR_OP_CHOLESKY,
    .version = 1,
    .n_in = 1,
    .name = "cholesky",
    MR__PARAMS(mr_triangle_params, triangle_fields),
    .infer = mr__infer_same,
    .vjp = cholesky_vjp,
    .jvp = cholesky_jvp,
    .vmap = mr__linalg_vmap,
};

/* -- det -------------------------------------------------------------------
 * Its gradient is the matrix of cofactors, which a singular matrix has too. */

static mr_code
determinant_check(const mr_array *a)
{
    mr_text text;

    if (mr__dtype_is_complex((mr_dtype)a->dtype))
        return mr__fail(MR_E_DTYPE,
                        "needs real numbers, got %s: the product "
                        "of eigvals is right",
                        mr_dtype_name((mr_dtype)a->dtype));
    if (a->ndim < 2 || mr__rows(a) != mr__columns(a))
        return mr__fail(MR_E_SHAPE, "needs square matrices, got shape %s",
                        mr__shape_of(a, &text));
    return MR_OK;
}

/* The dtype that a result computed from a comes back in. */
static mr_dtype
result_type(const mr_array *a)
{
    mr_dtype t = (mr_dtype)a->dtype;

    return mr__dtype_is_inexact(t) ? t : MR_FLOAT32;
}

mr_array *
mr__build_linalg_det(mr_array *a)
{
    mr_array *y;

    if (determinant_check(a) != MR_OK)
        return NULL;
    y = mr__linalg_node(&mr__op_det, NULL, mr__linalg_widen(a));
    return y == NULL ? NULL : mr__cast(y, result_type(a));
}

static mr_code
det_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_shape(out, (mr_dtype)c->in[0]->dtype, c->in[0]->ndim - 2,
                   c->in[0]->dim);
    return MR_OK;
}

static mr_array *
cofactors(const mr_rule *r)
{
    return mr__linalg_node(&mr__op_cofactor, NULL, r->primal[0]);
}

/* A number for each matrix, against its entries. */
static mr_array *
over_matrix(mr_array *x)
{
    return mr_expand_dims(x, MR_AXES(-2, -1));
}

static mr_array *
matrix_dot(mr_array *a, mr_array *b)
{
    return mr_sum(mr_multiply(a, b), MR_AXES(-2, -1), false);
}

static mr_array *
det_vjp(const mr_rule *r, int i)
{
    (void)i;
    return mr_multiply(over_matrix(r->cotangent[0]),
                       mr_rule_once(r, 0, cofactors));
}

static mr_array *
det_jvp(const mr_rule *r, int i)
{
    return matrix_dot(mr_rule_once(r, 0, cofactors), r->tangent[i]);
}

const mr_op mr__op_det = {
    .id = MR_OP_DET,
    .version = 1,
    .n_in = 1,
    .name = "det",
    .infer = det_infer,
    .vjp = det_vjp,
    .jvp = det_jvp,
    .vmap = mr__linalg_vmap,
};

/* -- cofactor --------------------------------------------------------------
 * The second derivative of det is a symmetric bilinear form, so vjp and jvp
 * are one map.  With a = U S V^T, D = U^T x V, p(i, j) the product of the
 * singular values but i and j, e = det(U) det(V):
 *     x -> e U M V^T,  M(i, j) = -p(i, j) D(j, i), M(i, i) = the sum over
 *     j != i of p(i, j) D(j, j);
 * no division, so it holds for singular a. */

static mr_array *
products_without(mr_array *s, mr_array *eye)
{
    mr_array *one, *w;

    if (s == NULL)
        return NULL;
    one = mr__number((mr_dtype)s->dtype, 1.0);
    w = mr_where(eye, one, mr__as_row(s));
    return mr_multiply(mr_cumprod(w, -1, false, false, MR_DTYPE_DEFAULT),
                       mr_cumprod(w, -1, true, false, MR_DTYPE_DEFAULT));
}

static mr_array *
cofactor_slope(const mr_rule *r, mr_array *x)
{
    mr_svd_params thin = {false};
    mr_array *a = r->primal[0], *svd, *u, *v, *eye, *p, *d, *m, *sign;

    if (mr__rows(a) == 0)
        return x;
    svd = mr__linalg_node(&mr__op_svd, &thin, a);
    u = mr__linalg_output(svd, 0);
    v = mr__transposed(mr__linalg_output(svd, 2));
    eye = mr_eye(mr__rows(a), mr__rows(a), 0, MR_BOOL);
    p = mr__masked_not(eye, products_without(mr__linalg_output(svd, 1), eye));
    d = mr_matmul(mr_matmul(mr__transposed(u), x), v);
    m = mr_matmul(p, mr__as_column(mr__diagonal_of(d)));
    m = mr__diagonal_matrix(mr_squeeze(m, MR_AXES(-1)));
    m = mr_subtract(m, mr_multiply(p, mr__transposed(d)));
    sign = mr_multiply(mr__linalg_node(&mr__op_det, NULL, u),
                       mr__linalg_node(&mr__op_det, NULL, v));
    sign = mr_stop_gradient(mr_sign(sign));
    m = mr_matmul(mr_matmul(u, m), mr__transposed(v));
    return mr_multiply(over_matrix(sign), m);
}

static mr_array *
cofactor_vjp(const mr_rule *r, int i)
{
    (void)i;
    return cofactor_slope(r, r->cotangent[0]);
}

static mr_array *
cofactor_jvp(const mr_rule *r, int i)
{
    return cofactor_slope(r, r->tangent[i]);
}

const mr_op mr__op_cofactor = {
    .id = MR_OP_COFACTOR,
    .version = 1,
    .n_in = 1,
    .name = "cofactor",
    .infer = mr__infer_same,
    .vjp = cofactor_vjp,
    .jvp = cofactor_jvp,
    .vmap = mr__linalg_vmap,
};

/* -- slogdet ---------------------------------------------------------------
 * A singular matrix has no slope: NaN, through an unchecked inverse. */

mr_tree *
mr__build_linalg_slogdet(mr_array *a)
{
    mr_array *y, *out[2];

    if (determinant_check(a) != MR_OK)
        return NULL;
    y = mr__linalg_node(&mr__op_slogdet, NULL, mr__linalg_widen(a));
    for (int k = 0; k < 2; k++) {
        out[k] = mr__linalg_output(y, k);
        if (out[k] != NULL)
            out[k] = mr__cast(out[k], result_type(a));
    }
    return mr_tree_arrays(2, out);
}

static mr_code
slogdet_infer(const mr_op_call *c, mr_aval *out)
{
    (void)det_infer(c, &out[0]);
    return det_infer(c, &out[1]);
}

static mr_array *
inverse_turned(const mr_rule *r)
{
    mr_inverse_params p = {true};

    return mr__transposed(mr__linalg_node(&mr__op_inv, &p, r->primal[0]));
}

static mr_array *
slogdet_vjp(const mr_rule *r, int i)
{
    (void)i;
    return mr_multiply(over_matrix(r->cotangent[1]),
                       mr_rule_once(r, 0, inverse_turned));
}

static mr_array *
slogdet_jvp(const mr_rule *r, int i)
{
    if (r->which == 0)
        return MR_NONE;
    return matrix_dot(mr_rule_once(r, 0, inverse_turned), r->tangent[i]);
}

const mr_op mr__op_slogdet = {
    .id = MR_OP_SLOGDET,
    .version = 1,
    .n_in = 1,
    .n_out = 2,
    .name = "slogdet",
    .infer = slogdet_infer,
    .vjp = slogdet_vjp,
    .jvp = slogdet_jvp,
    .vmap = mr__linalg_vmap,
};
