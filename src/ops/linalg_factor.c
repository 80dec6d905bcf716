/* SPDX-License-Identifier: Apache-2.0
 *
 * linalg_factor.c -- LU and QR.
 *
 * Derivatives: S. F. Walter, L. Lehmann, "Algorithmic differentiation of
 * linear algebra functions with application in optimum experimental design"
 * (2010) for QR, the same way of thought for LU: a triangle of L^-1 da U^-1
 * belongs to each factor.  A matrix wider than tall is (a1 a2) with a square
 * a1, whose factor of a2 follows from that of a1; a tall one likewise.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <string.h>

#include "array/dtype.h"
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

/* ---- lu
 * --------------------------------------------------------------------- */

static mr_array *
lu_node(mr_array *a)
{
    if (mr__linalg_check(a, MR_LINALG_REAL) != MR_OK)
        return NULL;
    return mr__linalg_node(&mr__op_lu_packed, NULL, a);
}

/* L: the columns up to k, ones on the diagonal. */
static mr_array *
lower_of(mr_array *packed)
{
    int64_t m, k;

    if (packed == NULL)
        return NULL;
    m = mr__rows(packed);
    k = smaller_side(packed);
    return mr_add(mr_tril(mr__columns_of(packed, 0, k), -1),
                  mr_eye(m, k, 0, (mr_dtype)packed->dtype));
}

static mr_array *
upper_of(mr_array *packed)
{
    if (packed == NULL)
        return NULL;
    return mr_triu(mr__rows_of(packed, 0, smaller_side(packed)), 0);
}

mr_tree *
mr__build_linalg_lu(mr_array *a)
{
    mr_array *y = lu_node(a), *packed = mr__linalg_output(y, 0);
    mr_array *out[3] = {mr__linalg_output(y, 2), lower_of(packed),
                        upper_of(packed)};

    return mr_tree_arrays(3, out);
}

mr_tree *
mr__build_linalg_lu_factor(mr_array *a)
{
    return mr__linalg_outputs(lu_node(a), 2);
}

static mr_code
lu_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0];

    mr__aval_like(&out[0], a);
    mr__aval_vector(&out[1], MR_UINT32, a, smaller_side(a));
    mr__aval_vector(&out[2], MR_UINT32, a, mr__rows(a));
    return MR_OK;
}

/* Rows of x in the order given for each matrix. */
static mr_array *
rows_ordered(mr_array *x, mr_array *order)
{
    if (x == NULL)
        return NULL;
    return mr__take_along(
        x, mr__broadcast(mr__as_column(order), x->ndim, x->dim), x->ndim - 2);
}

/* g: the cotangent of the packed factors.  With b the matrix in the order of
 * L's rows, its first k rows and columns square:
 *     wide: gb2 = L^-T gU2, and L carries -gb2 U2^T more;
 *     tall: gb2 = gL2 U^-T, and U carries -L2^T gb2 more;
 *     gb1 = L^-T (tril(L^T gL, -1) + triu(gU U^T)) U^-T. */
static mr_array *
lu_vjp(const mr_rule *r, int i)
{
    mr_array *packed = r->output[0], *g = r->cotangent[0], *square, *gb;
    mr_array *l, *u, *gl, *gu, *rest = NULL, *up;
    int64_t m = mr__rows(packed), n = mr__columns(packed);
    int64_t k = smaller_side(packed);

    (void)i;
    square = mr__rows_of(mr__columns_of(packed, 0, k), 0, k);
    l = lower_of(square);
    u = upper_of(square);
    up = mr__transposed(l);
    gb = mr__rows_of(mr__columns_of(g, 0, k), 0, k);
    gl = mr_tril(gb, -1);
    gu = mr_triu(gb, 0);
    if (n > k) {
        rest =
            mr__solved_triangular(up, mr__columns_of(g, k, MR_INT_NONE), true);
        gl = mr_subtract(gl,
                         mr_tril(mr_matmul(rest, mr__transposed(mr__columns_of(
                                                     packed, k, MR_INT_NONE))),
                                 -1));
    } else if (m > k) {
        rest = mr__over_triangular(mr__rows_of(g, k, MR_INT_NONE),
                                   mr__transposed(u), false);
        gu = mr_subtract(gu, mr_triu(mr_matmul(mr__transposed(mr__rows_of(
                                                   packed, k, MR_INT_NONE)),
                                               rest),
                                     0));
    }
    gb = mr_add(mr_tril(mr_matmul(up, gl), -1),
                mr_triu(mr_matmul(gu, mr__transposed(u)), 0));
    gb = mr__over_triangular(mr__solved_triangular(up, gb, true),
                             mr__transposed(u), false);
    if (rest != NULL && gb != NULL) {
        mr_array *parts[2] = {gb, rest};

        gb = mr_concatenate(parts, 2, n > k ? gb->ndim - 1 : gb->ndim - 2);
    } else if (n != m) {
        return NULL;
    }
    return rows_ordered(gb, r->output[2]);
}

/* dL = L tril(F, -1), dU = triu(F) U of the square part, F = L^-1 db U^-1. */
static mr_array *
lu_jvp(const mr_rule *r, int i)
{
    mr_array *packed = r->output[0], *db, *square, *l, *u, *f, *dl, *du, *out;
    int64_t m = mr__rows(packed), n = mr__columns(packed);
    int64_t k = smaller_side(packed);
    mr_array *parts[2];

    if (r->which != 0)
        return MR_NONE;
    db = rows_ordered(r->tangent[i], mr_argsort(r->output[2], -1));
    square = mr__rows_of(mr__columns_of(packed, 0, k), 0, k);
    l = lower_of(square);
    u = upper_of(square);
    f = mr__rows_of(mr__columns_of(db, 0, k), 0, k);
    f = mr__over_triangular(mr__solved_triangular(l, f, false), u, true);
    dl = mr_matmul(l, mr_tril(f, -1));
    du = mr_matmul(mr_triu(f, 0), u);
    out = parts[0] = mr_add(dl, du);
    if (out == NULL || m == n)
        return out;
    if (n > k) {
        f = mr_matmul(dl, mr__columns_of(packed, k, MR_INT_NONE));
        f = mr_subtract(mr__columns_of(db, k, MR_INT_NONE), f);
        parts[1] = mr__solved_triangular(l, f, false);
        return mr_concatenate(parts, 2, out->ndim - 1);
    }
    f = mr_matmul(mr__rows_of(packed, k, MR_INT_NONE), du);
    f = mr_subtract(mr__rows_of(db, k, MR_INT_NONE), f);
    parts[1] = mr__over_triangular(f, u, true);
    return mr_concatenate(parts, 2, out->ndim - 2);
}

const mr_op mr__op_lu_packed = {
    .id = MR_OP_LU_PACKED,
    .version = 1,
    .n_in = 1,
    .n_out = 3,
    .name = "lu_packed",
    .infer = lu_infer,
    .vjp = lu_vjp,
    .jvp = lu_jvp,
    .vmap = mr__linalg_vmap,
};

/* ---- qr
 * --------------------------------------------------------------------- */

/* x with columns that make it square: with the identity its Q is whole, and
 * the rest of that, held still, completes x so that derivatives are those of
 * independent columns. */
static mr_array *
completed(mr_array *x)
{
    int64_t dim[MR_MAX_NDIM], m = mr__rows(x), n = mr__columns(x);
    mr_array *parts[2] = {x, mr_eye(m, m, 0, (mr_dtype)x->dtype)}, *q;

    memcpy(dim, x->dim, (size_t)x->ndim * sizeof *dim);
    dim[x->ndim - 1] = m;
    parts[1] = mr_broadcast_to(parts[1], (mr_shape){dim, x->ndim});
    if (parts[1] == NULL)
        return NULL;
    q = mr_concatenate(parts, 2, x->ndim - 1);
    q = mr__linalg_output(mr__linalg_node(&mr__op_qr, NULL, q), 0);
    parts[1] = mr_stop_gradient(mr__columns_of(q, n, MR_INT_NONE));
    return parts[1] == NULL ? NULL : mr_concatenate(parts, 2, x->ndim - 1);
}

mr_tree *
mr__build_linalg_qr(mr_array *a, const char *mode)
{
    bool complete = mode != NULL && strcmp(mode, "complete") == 0;
    mr_array *qr, *out[2];

    if (!complete && (mode == NULL || strcmp(mode, "reduced") != 0)) {
        mr__fail(MR_E_VALUE, "mode '%s' is neither reduced nor complete",
                 mode == NULL ? "" : mode);
        return NULL;
    }
    if (mr__linalg_check(a, MR_LINALG_REAL) != MR_OK)
        return NULL;
    complete = complete && mr__rows(a) > mr__columns(a);
    qr = mr__linalg_node(&mr__op_qr, NULL, complete ? completed(a) : a);
    if (!complete)
        return mr__linalg_outputs(qr, 2);
    out[0] = mr__linalg_output(qr, 0);
    out[1] = mr__columns_of(mr__linalg_output(qr, 1), 0, mr__columns(a));
    return out[1] == NULL ? NULL : mr_tree_arrays(2, out);
}

static mr_code
qr_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0];
    int64_t k = smaller_side(a);

    mr__aval_matrix(&out[0], (mr_dtype)a->dtype, a, mr__rows(a), k);
    mr__aval_matrix(&out[1], (mr_dtype)a->dtype, a, k, mr__columns(a));
    return MR_OK;
}

/* tril(x, -1) and its transpose, with `sign`. */
static mr_array *
mirrored(mr_array *x, bool negative)
{
    mr_array *low = mr_tril(x, -1), *high = mr__transposed(low);

    return negative ? mr_subtract(low, high) : mr_add(low, high);
}

/* With M = R gR^T - gQ^T Q, C(M) its lower triangle mirrored upwards:
 *     ga = (gQ + Q C(M)) R^-T;
 * a wide one has R = (R1 R2), R2 = Q^T a2: ga2 = Q gR2, Q carries a2 gR2^T. */
static mr_array *
qr_vjp(const mr_rule *r, int i)
{
    mr_array *q = r->output[0], *r1 = r->output[1];
    mr_array *gq = r->cotangent[0], *gr = r->cotangent[1], *m, *g, *parts[2];
    int64_t k = mr__rows(r1), n = mr__columns(r1);

    (void)i;
    if (n > k) {
        mr_array *gr2 = mr__columns_of(gr, k, MR_INT_NONE);
        mr_array *a2 = mr__columns_of(r->primal[0], k, MR_INT_NONE);

        gq = mr_add(gq, mr_matmul(a2, mr__transposed(gr2)));
        parts[1] = mr_matmul(q, gr2);
        r1 = mr__columns_of(r1, 0, k);
        gr = mr__columns_of(gr, 0, k);
    }
    m = mr_subtract(mr_matmul(r1, mr__transposed(mr_triu(gr, 0))),
                    mr_matmul(mr__transposed(gq), q));
    m = mr_add(mirrored(m, false), mr_subtract(mr_tril(m, 0), mr_tril(m, -1)));
    g = mr_add(gq, mr_matmul(q, m));
    g = mr__over_triangular(g, mr__transposed(r1), false);
    if (n == k || g == NULL)
        return g;
    parts[0] = g;
    return mr_concatenate(parts, 2, g->ndim - 1);
}

/* With B = da R^-1, C = Q^T B, W = tril(C, -1) - tril(C, -1)^T:
 *     dQ = B - Q (C - W), dR = (C - W) R. */
static mr_array *
qr_jvp(const mr_rule *r, int i)
{
    mr_array *q = r->output[0], *whole = r->output[1], *da = r->tangent[i];
    int64_t k = mr__rows(whole), n = mr__columns(whole);
    mr_array *r1 = mr__columns_of(whole, 0, k), *b, *c, *dq, *parts[2];

    b = mr__over_triangular(mr__columns_of(da, 0, k), r1, true);
    c = mr_matmul(mr__transposed(q), b);
    c = mr_subtract(c, mirrored(c, true));
    dq = mr_subtract(b, mr_matmul(q, c));
    if (r->which == 0)
        return dq;
    parts[0] = mr_triu(mr_matmul(c, r1), 0);
    if (n == k || parts[0] == NULL)
        return parts[0];
    parts[1] = mr_add(
        mr_matmul(mr__transposed(dq),
                  mr__columns_of(r->primal[0], k, MR_INT_NONE)),
        mr_matmul(mr__transposed(q), mr__columns_of(da, k, MR_INT_NONE)));
    return mr_concatenate(parts, 2, parts[0]->ndim - 1);
}

const mr_op mr__op_qr = {
    .id = MR_OP_QR,
    .version = 1,
    .n_in = 1,
    .n_out = 2,
    .name = "qr",
    .infer = qr_infer,
    .vjp = qr_vjp,
    .jvp = qr_jvp,
    .vmap = mr__linalg_vmap,
};
