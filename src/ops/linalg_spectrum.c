/* SPDX-License-Identifier: Apache-2.0
 *
 * linalg_spectrum.c -- eigenvalues and singular values, and what is made of
 * them.
 *
 * Derivatives: M. B. Giles (2008, see linalg.c); J. Townsend, "Differentiating
 * the singular value decomposition" (2016); for pinv G. H. Golub, V. Pereyra,
 * "The differentiation of pseudo-inverses and nonlinear least squares problems
 * whose variables separate" (1973).  Vectors turn at a rate 1 / (w_j - w_i):
 * where two values are equal they have no derivative, which is NaN, unless
 * vectors are not used at all.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <math.h>
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
#include "ops/linalg.h"
#include "ops/rules.h"

static int64_t
smaller_side(const mr_array *a)
{
    return mr__rows(a) < mr__columns(a) ? mr__rows(a) : mr__columns(a);
}

/* x times the numbers of s (..., n) by column, or by row. */
static mr_array *
columns_times(mr_array *x, mr_array *s)
{
    return mr_multiply(x, mr__as_row(s));
}

static mr_array *
rows_times(mr_array *x, mr_array *s)
{
    return mr_multiply(mr__as_column(s), x);
}

/* Real parts of the sums over rows of conj(u) * x. */
static mr_array *
real_column_dots(mr_array *u, mr_array *x, const mr_array *like)
{
    return mr__as_real(mr__column_dots(mr__conj(u), x), like);
}

/* Is all of each matrix x zero?  (..., 1, 1) */
static mr_array *
unused(mr_array *x)
{
    if (x == NULL)
        return NULL;
    return mr_logical_not(
        mr_any(mr_not_equal(x, mr__number((mr_dtype)x->dtype, 0.0)),
               MR_AXES(-2, -1), true));
}

/* 1 / (w_j - w_i) at (i, j), 0 on the diagonal; between equal values NaN, or
 * 0 where `idle`. */
static mr_array *
rates(mr_array *w, mr_array *idle)
{
    mr_array *d = mr__differences(w), *equal, *zero, *one, *nan;
    mr_dtype t;
    int64_t n;

    if (d == NULL)
        return NULL;
    t = (mr_dtype)d->dtype;
    n = mr__rows(d);
    zero = mr__number(t, 0.0);
    one = mr__number(t, 1.0);
    nan = mr__number(t, (double)NAN);
    equal = mr_equal(d, zero);
    if (idle != MR_NONE)
        nan = mr_where(idle, zero, nan);
    d = mr_divide(one, mr_where(equal, one, d));
    d = mr_where(equal, nan, d);
    return mr__masked_not(mr_eye(n, n, 0, MR_BOOL), d);
}

/* ---- eigh
 * ------------------------------------------------------------------- */

static mr_code
triangle_of(const mr_array *a, const char *uplo, mr_triangle_params *p)
{
    bool lower = uplo != NULL && (!strcmp(uplo, "L") || !strcmp(uplo, "l"));

    p->upper = uplo != NULL && (!strcmp(uplo, "U") || !strcmp(uplo, "u"));
    if (!lower && !p->upper)
        return mr__fail(MR_E_VALUE, "UPLO '%s' is neither L nor U",
                        uplo == NULL ? "" : uplo);
    return mr__linalg_square(a, MR_LINALG_COMPLEX);
}

static const mr_field triangle_fields[] = {
    MR_FIELD(1, BOOL, mr_triangle_params, upper),
};

mr_tree *
mr__build_linalg_eigh(mr_array *a, const char *uplo)
{
    mr_triangle_params p;

    if (triangle_of(a, uplo, &p) != MR_OK)
        return NULL;
    return mr__linalg_outputs(mr__linalg_node(&mr__op_eigh, &p, a), 2);
}

static mr_code
eigh_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0];

    mr__aval_vector(&out[0], mr__to_real((mr_dtype)a->dtype), a, mr__rows(a));
    mr__aval_like(&out[1], a);
    return MR_OK;
}

/* ga = V (diag(gw) + F * (V^H gV)) V^H, F(i, j) = 1 / (w_j - w_i). */
static mr_array *
eigh_vjp(const mr_rule *r, int i)
{
    mr_array *w = r->output[0], *v = r->output[1], *vh = mr__adjoint(v), *g;

    (void)i;
    g = mr_multiply(mr_matmul(vh, r->cotangent[1]),
                    rates(w, unused(r->cotangent[1])));
    g = mr_add(g, mr__diagonal_matrix(r->cotangent[0]));
    return mr__hermitian(mr_matmul(mr_matmul(v, g), vh));
}

static mr_array *
eigh_jvp(const mr_rule *r, int i)
{
    mr_array *w = r->output[0], *v = r->output[1], *p;

    p = mr_matmul(mr__hermitian(r->tangent[i]), v);
    if (r->which == 0)
        return real_column_dots(v, p, w);
    p = mr_multiply(mr_matmul(mr__adjoint(v), p), rates(w, MR_NONE));
    return mr_matmul(v, p);
}

const mr_op mr__op_eigh = {
    .id = MR_OP_EIGH,
    .version = 1,
    .n_in = 1,
    .n_out = 2,
    .name = "eigh",
    MR__PARAMS(mr_triangle_params, triangle_fields),
    .infer = eigh_infer,
    .vjp = eigh_vjp,
    .jvp = eigh_jvp,
    .vmap = mr__linalg_vmap,
};

/* -- eigvalsh -------------------------------------------------------------- */

mr_array *
mr__build_linalg_eigvalsh(mr_array *a, const char *uplo)
{
    mr_triangle_params p;

    if (triangle_of(a, uplo, &p) != MR_OK)
        return NULL;
    return mr__linalg_node(&mr__op_eigvalsh, &p, a);
}

static mr_code
eigvalsh_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0];

    mr__aval_vector(out, mr__to_real((mr_dtype)a->dtype), a, mr__rows(a));
    return MR_OK;
}

static mr_array *
eigvalsh_vectors(const mr_rule *r)
{
    return mr__linalg_output(
        mr__linalg_node(&mr__op_eigh, mr__params(r->node), r->primal[0]), 1);
}

static mr_array *
eigvalsh_vjp(const mr_rule *r, int i)
{
    mr_array *v = mr_rule_once(r, 0, eigvalsh_vectors);

    (void)i;
    return mr_matmul(columns_times(v, r->cotangent[0]), mr__adjoint(v));
}

static mr_array *
eigvalsh_jvp(const mr_rule *r, int i)
{
    mr_array *v = mr_rule_once(r, 0, eigvalsh_vectors);

    return real_column_dots(v, mr_matmul(mr__hermitian(r->tangent[i]), v),
                            r->output[0]);
}

const mr_op mr__op_eigvalsh = {
    .id = MR_OP_EIGVALSH,
    .version = 1,
    .n_in = 1,
    .name = "eigvalsh",
    MR__PARAMS(mr_triangle_params, triangle_fields),
    .infer = eigvalsh_infer,
    .vjp = eigvalsh_vjp,
    .jvp = eigvalsh_jvp,
    .vmap = mr__linalg_vmap,
};

/* ---- svd
 * --------------------------------------------------------------------
 * a = U S V^H.  With P = U^H da V, k = min(m, n), on the first k columns:
 *     dS = Re diag P
 *     dU = U X + (1 - U U^H) da V / S,  dV = V Y + (1 - V V^H) da^H U / S
 *     X, Y = E * (P + P^H) / 2 +- G * (P - P^H) / 2,
 *     E(i, j) = 1 / (s_j - s_i), G(i, j) = 1 / (s_j + s_i).
 * The diagonal of G * (P - P^H) is the phase of complex vectors, half of it to
 * each side.  Columns beyond k stay orthogonal to the others: dU2 = -U dU^H U2.
 * The vjp is the transpose of all that. */

static mr_code
svd_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0];
    const mr_svd_params *p = c->params;
    mr_dtype t = (mr_dtype)a->dtype;
    int64_t m = mr__rows(a), n = mr__columns(a), k = smaller_side(a);

    mr__aval_matrix(&out[0], t, a, m, p->full ? m : k);
    mr__aval_vector(&out[1], mr__to_real(t), a, k);
    mr__aval_matrix(&out[2], t, a, p->full ? n : k, n);
    return MR_OK;
}

mr_tree *
mr__build_linalg_svd(mr_array *a, bool compute_uv, bool full_matrices)
{
    mr_svd_params p = {full_matrices};

    if (mr__linalg_check(a, MR_LINALG_COMPLEX) != MR_OK)
        return NULL;
    if (!compute_uv)
        return mr_tree_leaf(mr__linalg_node(&mr__op_svdvals, NULL, a));
    return mr__linalg_outputs(mr__linalg_node(&mr__op_svd, &p, a), 3);
}

/* The parts of the factors: vectors in columns, the first k and the others
 * (NULL where there are none). */
typedef struct svd_parts {
    int64_t k;
    mr_array *u, *s, *v, *u_rest, *v_rest;
    mr_array *slow, *fast; /* E, G */
} svd_parts;

static mr_array *
rest_of(mr_array *x, int64_t k)
{
    if (x == NULL || mr__columns(x) == k)
        return NULL;
    return mr__columns_of(x, k, MR_INT_NONE);
}

static mr_code
svd_split(const mr_rule *r, mr_array *idle, svd_parts *p)
{
    mr_array *u = r->output[0], *v = mr__adjoint(r->output[2]);

    p->s = r->output[1];
    p->k = p->s->dim[p->s->ndim - 1];
    p->u = mr__columns_of(u, 0, p->k);
    p->v = mr__columns_of(v, 0, p->k);
    p->u_rest = rest_of(u, p->k);
    p->v_rest = rest_of(v, p->k);
    p->slow = mr__scale(rates(p->s, idle), 0.5);
    p->fast = mr__scale(
        mr__reciprocal_or_zero(mr_add(mr__as_row(p->s), mr__as_column(p->s))),
        0.5);
    if (p->u == NULL || p->v == NULL || p->slow == NULL || p->fast == NULL ||
        (p->u_rest == NULL && mr__columns(u) > p->k) ||
        (p->v_rest == NULL && mr__columns(v) > p->k))
        return mr__error_code();
    return MR_OK;
}

/* x without what lies in the space of the orthonormal columns u. */
static mr_array *
outside(mr_array *u, mr_array *x)
{
    return mr_subtract(x, mr_matmul(u, mr_matmul(mr__adjoint(u), x)));
}

/* The cotangent of the first k columns, with what the others ask of them. */
static mr_array *
cotangent_of(mr_array *g, mr_array *u, mr_array *rest, int64_t k)
{
    mr_array *first = mr__columns_of(g, 0, k), *more;

    if (rest == NULL)
        return first;
    more = mr_matmul(mr__adjoint(rest_of(g, k)), u);
    return mr_subtract(first, mr_matmul(rest, more));
}

static mr_array *
antihermitian(mr_array *x)
{
    return mr_subtract(x, mr__adjoint(x));
}

static mr_array *
svd_vjp(const mr_rule *r, int i)
{
    mr_array *gu, *gv, *mu, *mv, *gp, *g, *inverse;
    svd_parts p;

    (void)i;
    mu = mr_logical_and(unused(r->cotangent[0]), unused(r->cotangent[2]));
    if (mu == NULL || svd_split(r, mu, &p) != MR_OK)
        return NULL;
    gu = cotangent_of(r->cotangent[0], p.u, p.u_rest, p.k);
    gv = cotangent_of(mr__adjoint(r->cotangent[2]), p.v, p.v_rest, p.k);
    mu = antihermitian(mr_matmul(mr__adjoint(p.u), gu));
    mv = antihermitian(mr_matmul(mr__adjoint(p.v), gv));
    gp = mr_add(mr_multiply(mr_add(mu, mv), p.slow),
                mr_multiply(mr_subtract(mu, mv), p.fast));
    gp = mr_add(gp, mr__diagonal_matrix(r->cotangent[1]));
    g = mr_matmul(mr_matmul(p.u, gp), mr__adjoint(p.v));
    inverse = mr__reciprocal_or_zero(p.s);
    gu = mr_matmul(columns_times(outside(p.u, gu), inverse), mr__adjoint(p.v));
    gv = mr_matmul(columns_times(p.u, inverse), mr__adjoint(outside(p.v, gv)));
    return mr_add(g, mr_add(gu, gv));
}

/* d of all columns of a side: its first k turn by x and move out of their
 * space by y / S. */
static mr_array *
side_jvp(const svd_parts *p, mr_array *u, mr_array *rest, mr_array *x,
         mr_array *y)
{
    mr_array *parts[2];

    y = columns_times(outside(u, y), mr__reciprocal_or_zero(p->s));
    parts[0] = mr_add(mr_matmul(u, x), y);
    if (rest == NULL || parts[0] == NULL)
        return parts[0];
    parts[1] = mr_matmul(mr__adjoint(parts[0]), rest);
    parts[1] = mr_negative(mr_matmul(u, parts[1]));
    return mr_concatenate(parts, 2, u->ndim - 1);
}

static mr_array *
svd_jvp(const mr_rule *r, int i)
{
    mr_array *da = r->tangent[i], *q, *plus, *minus;
    svd_parts p;

    if (svd_split(r, MR_NONE, &p) != MR_OK)
        return NULL;
    q = mr_matmul(da, p.v);
    if (r->which == 1)
        return real_column_dots(p.u, q, p.s);
    q = mr_matmul(mr__adjoint(p.u), q);
    plus = mr_multiply(mr_add(q, mr__adjoint(q)), p.slow);
    minus = mr_multiply(antihermitian(q), p.fast);
    if (r->which == 0)
        return side_jvp(&p, p.u, p.u_rest, mr_add(plus, minus),
                        mr_matmul(da, p.v));
    return mr__adjoint(side_jvp(&p, p.v, p.v_rest, mr_subtract(plus, minus),
                                mr_matmul(mr__adjoint(da), p.u)));
}

static const mr_field svd_fields[] = {
    MR_FIELD(1, BOOL, mr_svd_params, full),
};

const mr_op mr__op_svd = {
    .id = MR_OP_SVD,
    .version = 1,
    .n_in = 1,
    .n_out = 3,
    .name = "svd",
    MR__PARAMS(mr_svd_params, svd_fields),
    .infer = svd_infer,
    .vjp = svd_vjp,
    .jvp = svd_jvp,
    .vmap = mr__linalg_vmap,
};

/* -- svdvals --------------------------------------------------------------- */

mr_array *
mr__build_linalg_svdvals(mr_array *a)
{
    if (mr__linalg_check(a, MR_LINALG_COMPLEX) != MR_OK)
        return NULL;
    return mr__linalg_node(&mr__op_svdvals, NULL, a);
}

static mr_code
svdvals_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0];

    mr__aval_vector(out, mr__to_real((mr_dtype)a->dtype), a, smaller_side(a));
    return MR_OK;
}

static mr_array *
thin_svd(const mr_rule *r)
{
    mr_svd_params thin = {false};

    return mr__linalg_node(&mr__op_svd, &thin, r->primal[0]);
}

static mr_array *
svdvals_vjp(const mr_rule *r, int i)
{
    mr_array *svd = mr_rule_once(r, 0, thin_svd);
    mr_array *u = mr__linalg_output(svd, 0);

    (void)i;
    return mr_matmul(columns_times(u, r->cotangent[0]),
                     mr__linalg_output(svd, 2));
}

static mr_array *
svdvals_jvp(const mr_rule *r, int i)
{
    mr_array *svd = mr_rule_once(r, 0, thin_svd);
    mr_array *v = mr__adjoint(mr__linalg_output(svd, 2));

    return real_column_dots(mr__linalg_output(svd, 0),
                            mr_matmul(r->tangent[i], v), r->output[0]);
}

const mr_op mr__op_svdvals = {
    .id = MR_OP_SVDVALS,
    .version = 1,
    .n_in = 1,
    .name = "svdvals",
    .infer = svdvals_infer,
    .vjp = svdvals_vjp,
    .jvp = svdvals_jvp,
    .vmap = mr__linalg_vmap,
};

/* ---- eig
 * --------------------------------------------------------------------
 * a V = V diag(w).  With P = V^-1 da V, F(i, j) = 1 / (w_j - w_i), Z = F * P:
 *     dw = diag P,  dV = V (Z - diag(diag(V^H V Z))):
 * vectors keep their length, and their phase as far as it can be kept. */

static mr_dtype
complex_of(mr_dtype t)
{
    return t == MR_FLOAT32 || t == MR_COMPLEX64 ? MR_COMPLEX64 : MR_COMPLEX128;
}

mr_tree *
mr__build_linalg_eig(mr_array *a)
{
    if (mr__linalg_square(a, MR_LINALG_COMPLEX) != MR_OK)
        return NULL;
    return mr__linalg_outputs(mr__linalg_node(&mr__op_eig, NULL, a), 2);
}

static mr_code
eig_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0];
    mr_dtype t = complex_of((mr_dtype)a->dtype);

    mr__aval_vector(&out[0], t, a, mr__rows(a));
    mr__aval_matrix(&out[1], t, a, mr__rows(a), mr__rows(a));
    return MR_OK;
}

static mr_array *
eig_vjp(const mr_rule *r, int i)
{
    mr_array *w = r->output[0], *v = r->output[1], *vh = mr__adjoint(v);
    mr_array *g = mr_matmul(vh, r->cotangent[1]), *norm;

    norm = columns_times(mr_matmul(vh, v), mr__diagonal_of(g));
    g = mr_multiply(mr_subtract(g, norm),
                    mr__conj(rates(w, unused(r->cotangent[1]))));
    g = mr_add(g, mr__diagonal_matrix(r->cotangent[0]));
    return mr__as_real(mr__solved(vh, mr_matmul(g, vh)), r->primal[i]);
}

/* P of the vectors v, da real or complex. */
static mr_array *
turned_in(mr_array *da, mr_array *v)
{
    if (da == NULL || v == NULL)
        return NULL;
    return mr__solved(v, mr_matmul(mr__cast(da, (mr_dtype)v->dtype), v));
}

static mr_array *
eig_jvp(const mr_rule *r, int i)
{
    mr_array *w = r->output[0], *v = r->output[1], *z, *norm;

    z = turned_in(r->tangent[i], v);
    if (r->which == 0)
        return mr__diagonal_of(z);
    z = mr_multiply(z, rates(w, MR_NONE));
    z = mr_matmul(v, z);
    norm = mr__column_dots(mr__conj(v), z);
    return mr_subtract(z, columns_times(v, norm));
}

const mr_op mr__op_eig = {
    .id = MR_OP_EIG,
    .version = 1,
    .n_in = 1,
    .n_out = 2,
    .name = "eig",
    .infer = eig_infer,
    .vjp = eig_vjp,
    .jvp = eig_jvp,
    .vmap = mr__linalg_vmap,
};

/* -- eigvals --------------------------------------------------------------- */

mr_array *
mr__build_linalg_eigvals(mr_array *a)
{
    if (mr__linalg_square(a, MR_LINALG_COMPLEX) != MR_OK)
        return NULL;
    return mr__linalg_node(&mr__op_eigvals, NULL, a);
}

static mr_code
eigvals_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0];

    mr__aval_vector(out, complex_of((mr_dtype)a->dtype), a, mr__rows(a));
    return MR_OK;
}

static mr_array *
eig_vectors(const mr_rule *r)
{
    return mr__linalg_output(mr__linalg_node(&mr__op_eig, NULL, r->primal[0]),
                             1);
}

static mr_array *
eigvals_vjp(const mr_rule *r, int i)
{
    mr_array *vh = mr__adjoint(mr_rule_once(r, 0, eig_vectors));
    mr_array *g = mr__solved(vh, rows_times(vh, r->cotangent[0]));

    return mr__as_real(g, r->primal[i]);
}

static mr_array *
eigvals_jvp(const mr_rule *r, int i)
{
    return mr__diagonal_of(
        turned_in(r->tangent[i], mr_rule_once(r, 0, eig_vectors)));
}

const mr_op mr__op_eigvals = {
    .id = MR_OP_EIGVALS,
    .version = 1,
    .n_in = 1,
    .name = "eigvals",
    .infer = eigvals_infer,
    .vjp = eigvals_vjp,
    .jvp = eigvals_jvp,
    .vmap = mr__linalg_vmap,
};

/* ---- pinv
 * -------------------------------------------------------------------
 * At constant rank, y the inverse of a, whatever rtol is:
 *     dy = -y da y + y y^T da^T (1 - a y) + (1 - y a) da^T y^T y. */

/* rtol (batch) as matrices of one number, one for each of a. */
static mr_array *
rtol_of_each(mr_array *rtol, const mr_array *a)
{
    int64_t dim[MR_MAX_NDIM];

    if (mr__linalg_rtol(a, rtol) != MR_OK)
        return NULL;
    rtol = mr_expand_dims(mr__cast(rtol, (mr_dtype)a->dtype), MR_AXES(-2, -1));
    memcpy(dim, a->dim, (size_t)a->ndim * sizeof *dim);
    dim[a->ndim - 2] = dim[a->ndim - 1] = 1;
    return mr_broadcast_to(mr_stop_gradient(rtol), (mr_shape){dim, a->ndim});
}

mr_array *
mr__build_linalg_pinv(mr_array *a, mr_array *rtol)
{
    if (mr__linalg_check(a, MR_LINALG_REAL) != MR_OK)
        return NULL;
    if (rtol == MR_NONE)
        return mr__linalg_node(&mr__op_pinv, NULL, a);
    return mr__linalg_node2(&mr__op_pinv, NULL, a, rtol_of_each(rtol, a));
}

static mr_code
pinv_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0], *rtol = c->in[c->n_in - 1];
    int32_t batch = c->n_in < 1 ? 0 : a->ndim - 2;

    if (c->n_in < 1 || c->n_in > 2 ||
        (c->n_in == 2 &&
         (rtol->dtype != a->dtype || rtol->ndim != a->ndim ||
          rtol->dim[batch] != 1 || rtol->dim[batch + 1] != 1 ||
          memcmp(rtol->dim, a->dim, (size_t)batch * sizeof *a->dim) != 0)))
        return mr__fail(MR_E_SHAPE, "needs matrices, and an rtol for each");
    mr__aval_matrix(out, (mr_dtype)a->dtype, a, mr__columns(a), mr__rows(a));
    return MR_OK;
}

/* x (1 - p q), and (1 - p q) x. */
static mr_array *
without_right(mr_array *x, mr_array *p, mr_array *q)
{
    return mr_subtract(x, mr_matmul(mr_matmul(x, p), q));
}

static mr_array *
without_left(mr_array *p, mr_array *q, mr_array *x)
{
    return mr_subtract(x, mr_matmul(p, mr_matmul(q, x)));
}

static mr_array *
pinv_vjp(const mr_rule *r, int i)
{
    mr_array *a = r->primal[0], *y = r->output[0], *yt = mr__transposed(y);
    mr_array *gt = mr__transposed(r->cotangent[0]), *one, *two, *three;

    if (i == 1)
        return MR_NONE;
    one = mr_matmul(mr_matmul(yt, r->cotangent[0]), yt);
    two = mr_matmul(mr_matmul(without_left(a, y, gt), y), yt);
    three = mr_matmul(yt, mr_matmul(y, without_right(gt, y, a)));
    return mr_subtract(mr_add(two, three), one);
}

static mr_array *
pinv_jvp(const mr_rule *r, int i)
{
    mr_array *a = r->primal[0], *y = r->output[0], *yt = mr__transposed(y);
    mr_array *da = r->tangent[i], *dt, *one, *two, *three;

    if (i == 1)
        return MR_NONE;
    dt = mr__transposed(da);
    one = mr_matmul(mr_matmul(y, da), y);
    two = mr_matmul(y, mr_matmul(yt, without_right(dt, a, y)));
    three = mr_matmul(mr_matmul(without_left(y, a, dt), yt), y);
    return mr_subtract(mr_add(two, three), one);
}

const mr_op mr__op_pinv = {
    .id = MR_OP_PINV,
    .version = 1,
    .n_in = -1, /* a; or a, rtol */
    .name = "pinv",
    .infer = pinv_infer,
    .vjp = pinv_vjp,
    .jvp = pinv_jvp,
    .vmap = mr__linalg_vmap,
};

/* ---- multivariate_normal
 * ----------------------------------------------------- */

static mr_code
normal_check(const mr_array *mean, const mr_array *cov, mr_dtype t)
{
    mr_text a, b;

    if (t != MR_DTYPE_DEFAULT && t != MR_FLOAT32)
        return mr__fail(MR_E_DTYPE, "needs float32, got %s", mr_dtype_name(t));
    if (mean->ndim < 1 || cov->ndim < 2 || mr__rows(cov) != mr__columns(cov) ||
        mr__rows(cov) != mean->dim[mean->ndim - 1])
        return mr__fail(MR_E_SHAPE,
                        "a mean of shape %s and a covariance of shape %s: "
                        "needs (..., n) and (..., n, n)",
                        mr__shape_of(mean, &a), mr__shape_of(cov, &b));
    return MR_OK;
}

/* The shape of the draws without their last axis: what was asked for, to which
 * mean and cov must broadcast, else what these have in common. */
static mr_code
draws_shape(const mr_array *mean, const mr_array *cov, mr_shape shape,
            mr_list *out)
{
    int64_t dim[MR_MAX_NDIM];
    int32_t n = mr__broadcast_shapes(mean->ndim - 1, mean->dim, cov->ndim - 2,
                                     cov->dim, dim);
    mr_text a, b;

    if (n < 0)
        return mr__fail(MR_E_SHAPE,
                        "the leading axes of shapes %s and %s do not broadcast",
                        mr__shape_of(mean, &a), mr__shape_of(cov, &b));
    if (shape.n <= 0)
        shape = (mr_shape){dim, n};
    if (shape.n + 2 > MR_MAX_NDIM)
        return mr__fail(MR_E_VALUE, "%lld axes, at most %d are possible here",
                        (long long)shape.n, MR_MAX_NDIM - 2);
    if (mr__check_shape(shape.n, shape.dim) != MR_OK)
        return mr__error_code();
    out->n = shape.n;
    memcpy(out->v, shape.dim, (size_t)shape.n * sizeof *out->v);
    n = mr__broadcast_shapes(n, dim, (int32_t)shape.n, shape.dim, dim);
    if (n != shape.n ||
        (n > 0 && memcmp(dim, out->v, (size_t)n * sizeof *dim) != 0))
        return mr__fail(MR_E_SHAPE,
                        "the leading axes of shapes %s and %s do not broadcast "
                        "to the shape asked for",
                        mr__shape_of(mean, &a), mr__shape_of(cov, &b));
    out->v[out->n++] = mean->dim[mean->ndim - 1];
    return MR_OK;
}

/* Normal numbers times (U * sqrt(S)) Vt of the covariance, plus the mean. */
mr_array *
mr__build_random_multivariate_normal(mr_array *mean, mr_array *cov,
                                     mr_shape shape, mr_dtype dtype,
                                     mr_array *key)
{
    mr_svd_params thin = {false};
    mr_list draws = {.n = 0};
    mr_array *svd, *root, *z;

    mean = mr__linalg_widen(mean);
    cov = mr__linalg_widen(cov);
    if (mean == NULL || cov == NULL ||
        normal_check(mean, cov, dtype) != MR_OK ||
        draws_shape(mean, cov, shape, &draws) != MR_OK)
        return NULL;
    if (mean->dtype != MR_FLOAT32 || cov->dtype != MR_FLOAT32)
        return mr__fail_null(MR_E_DTYPE, "needs float32, got %s and %s",
                             mr_dtype_name((mr_dtype)mean->dtype),
                             mr_dtype_name((mr_dtype)cov->dtype));
    z = mr_random_normal(mr__shape(&draws), MR_FLOAT32, MR_NONE, MR_NONE, key);
    svd = mr__linalg_node(&mr__op_svd, &thin, cov);
    root = columns_times(mr__linalg_output(svd, 0),
                         mr_sqrt(mr__linalg_output(svd, 1)));
    root = mr_matmul(root, mr__linalg_output(svd, 2));
    z = mr_squeeze(mr_matmul(mr__as_row(z), root), MR_AXES(-2));
    return mr_add(z, mean);
}
