/* SPDX-License-Identifier: Apache-2.0
 *
 * linear.c -- products of matrices and what is made of them.
 *
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

/* -- matmul ---------------------------------------------------------------- */

static mr_code
common_inexact(const mr_array *a, const mr_array *b, mr_dtype *t)
{
    *t = mr__promote((mr_dtype)a->dtype, (mr_dtype)b->dtype);
    if (mr__dtype_is_inexact(*t))
        return MR_OK;
    return mr__fail(
        MR_E_DTYPE, "needs floating or complex operands, got %s and %s",
        mr_dtype_name((mr_dtype)a->dtype), mr_dtype_name((mr_dtype)b->dtype));
}

/* Of vectors, whose shapes are still the caller's. */
static mr_code
check_lengths(const mr_array *a, const mr_array *b)
{
    mr_text ta, tb;

    if (a->dim[a->ndim - 1] == b->dim[b->ndim > 1 ? b->ndim - 2 : 0])
        return MR_OK;
    return mr__fail(MR_E_SHAPE,
                    "shapes %s and %s: the last axis of the first must be as "
                    "long as the %s of the second",
                    mr__shape_of(a, &ta), mr__shape_of(b, &tb),
                    b->ndim > 1 ? "second last" : "only one");
}

mr_array *
mr__build_matmul(mr_array *a, mr_array *b)
{
    bool row = a->ndim == 1, column = b->ndim == 1;
    mr_array *in[2], *y;
    mr_dtype t;

    if (a->ndim == 0 || b->ndim == 0)
        return mr__fail_null(MR_E_VALUE,
                             "a 0-d operand: multiply is for numbers");
    if (common_inexact(a, b, &t) != MR_OK ||
        ((row || column) && check_lengths(a, b) != MR_OK))
        return NULL;
    in[0] = mr__cast(a, t);
    in[1] = mr__cast(b, t);
    if (row)
        in[0] = mr_expand_dims(in[0], MR_AXES(0));
    if (column)
        in[1] = mr_expand_dims(in[1], MR_AXES(1));
    if (in[0] == NULL || in[1] == NULL)
        return NULL;
    y = mr__node_new(&mr__op_matmul, NULL, 2, in);
    if (row)
        y = mr_squeeze(y, column ? MR_AXES(-2, -1) : MR_AXES(-2));
    else if (column)
        y = mr_squeeze(y, MR_AXES(-1));
    return y;
}

static mr_code
matmul_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0], *b = c->in[1];
    int64_t dim[MR_MAX_NDIM];
    int32_t ndim = -1;
    mr_text ta, tb;

    if (a->dim[a->ndim - 1] == b->dim[b->ndim - 2])
        ndim =
            mr__broadcast_shapes(a->ndim - 2, a->dim, b->ndim - 2, b->dim, dim);
    if (ndim < 0)
        return mr__fail(MR_E_SHAPE,
                        "shapes %s and %s: the last axis of the first must be "
                        "as long as the second last of the second, leading "
                        "axes must broadcast",
                        mr__shape_of(a, &ta), mr__shape_of(b, &tb));
    dim[ndim] = a->dim[a->ndim - 2];
    dim[ndim + 1] = b->dim[b->ndim - 1];
    mr__aval_shape(out, (mr_dtype)a->dtype, ndim + 2, dim);
    return mr__check_shape(ndim + 2, dim);
}

static mr_array *
adjoint(mr_array *x)
{
    return x == NULL ? NULL : mr__conj(mr_swapaxes(x, -2, -1));
}

/* A matrix that lies turned, as weights of (out, in) do when they are applied
 * (x @ w.T). */
static bool
lies_turned(const mr_array *x)
{
    const mr_transpose_params *p;
    int32_t n = x->ndim;

    if (x->op != &mr__op_transpose || n < 2)
        return false;
    p = mr__params(x);
    return p->axes.v[n - 1] == n - 2 && p->axes.v[n - 2] == n - 1;
}

static mr_array *
turned(mr_array *x)
{
    return x == NULL ? NULL : mr_swapaxes(x, -2, -1);
}

/* c b^H.  The gradient of what lies turned is made turned, (b* c^T)^T, so that
 * what it is a view of gets a row-major one: the same work, and nothing reads
 * it across its rows. */
static mr_array *
matmul_vjp_left(const mr_array *a, mr_array *b, mr_array *c)
{
    return lies_turned(a) ? turned(mr_matmul(mr__conj(b), turned(c)))
                          : mr_matmul(c, adjoint(b));
}

/* a^H c, or turned. */
static mr_array *
matmul_vjp_right(mr_array *a, const mr_array *b, mr_array *c)
{
    return lies_turned(b) ? turned(mr_matmul(turned(c), mr__conj(a)))
                          : mr_matmul(adjoint(a), c);
}

static mr_array *
matmul_vjp(const mr_rule *r, int i)
{
    mr_array *a = r->primal[0], *b = r->primal[1], *c = r->cotangent[0];

    if (i == 0)
        return mr__sum_to(matmul_vjp_left(a, b, c), a->ndim, a->dim);
    /* One matrix for all: the rows of all batches are its rows, so one product
     * gives the sum over the batches. */
    if (b->ndim == 2 && a->ndim > 2)
        return matmul_vjp_right(mr_flatten(a, 0, -2), b, mr_flatten(c, 0, -2));
    return mr__sum_to(matmul_vjp_right(a, b, c), b->ndim, b->dim);
}

static mr_array *
matmul_jvp(const mr_rule *r, int i)
{
    return i == 0 ? mr_matmul(r->tangent[0], r->primal[1])
                  : mr_matmul(r->primal[0], r->tangent[1]);
}

/* A batched operand gets axes of size 1 behind the batch, so that its own
 * leading axes still line up with the other's. */
static mr_array *
lined_up(const mr_batch *b, int i, int32_t ndim)
{
    int32_t axes[MR_MAX_NDIM], n = ndim + 1 - b->in[i]->ndim;

    if (!b->batched[i] || n <= 0)
        return b->in[i];
    for (int32_t k = 0; k < n; k++)
        axes[k] = k + 1;
    return mr_expand_dims(b->in[i], (mr_axes){axes, n});
}

static mr_array *
matmul_vmap(const mr_batch *b)
{
    return mr_matmul(lined_up(b, 0, b->node->ndim),
                     lined_up(b, 1, b->node->ndim));
}

const mr_op mr__op_matmul = {
    .id = MR_OP_MATMUL,
    .version = 1,
    .n_in = 2,
    .name = "matmul",
    .infer = matmul_infer,
    .vjp = matmul_vjp,
    .jvp = matmul_jvp,
    .vmap = matmul_vmap,
};

/* ---- bodies made of it
 * --------------------------------------------------------- */

mr_array *
mr__build_addmm(mr_array *c, mr_array *a, mr_array *b, double alpha,
                double beta)
{
    mr_array *y = mr_matmul(a, b), *sum;

    if (y != NULL && alpha != 1.0)
        y = mr__scale(y, alpha);
    if (y == NULL)
        return NULL;
    c = mr__cast(c, mr__promote((mr_dtype)c->dtype, (mr_dtype)y->dtype));
    if (beta != 1.0)
        c = mr__scale(c, beta);
    sum = mr_add(y, c);
    if (sum != NULL && y != NULL &&
        (sum->ndim != y->ndim ||
         memcmp(sum->dim, y->dim, (size_t)y->ndim * sizeof *y->dim) != 0)) {
        mr_text tc, ty;

        return mr__fail_null(MR_E_SHAPE,
                             "c of shape %s does not broadcast to the "
                             "product's shape %s",
                             mr__shape_of(c, &tc), mr__shape_of(y, &ty));
    }
    return sum;
}

mr_array *
mr__build_outer(mr_array *a, mr_array *b)
{
    return mr_multiply(mr_expand_dims(mr_flatten(a, 0, -1), MR_AXES(1)),
                       mr_expand_dims(mr_flatten(b, 0, -1), MR_AXES(0)));
}

mr_array *
mr__build_inner(mr_array *a, mr_array *b)
{
    if (a->ndim == 0 || b->ndim == 0)
        return mr_multiply(a, b);
    return mr_tensordot(a, b, MR_INTS(a->ndim - 1, b->ndim - 1));
}

/* Axes of x as a matrix: the free ones, then the contracted ones (or the
 * other way round); `out` gets the sizes of the free ones behind its own. */
static mr_array *
as_matrix(mr_array *x, const int32_t *axes, int32_t n, bool free_first,
          mr_list *out)
{
    mr_list order = {.n = 0}, shape = {.n = 2};
    int64_t rows = 1, columns = 1;
    uint32_t mask = 0;

    for (int32_t i = 0; i < n; i++) {
        mask |= (uint32_t)1 << axes[i];
        columns *= x->dim[axes[i]];
        if (!free_first)
            order.v[order.n++] = axes[i];
    }
    for (int32_t i = 0; i < x->ndim; i++) {
        if (mask >> i & 1)
            continue;
        order.v[order.n++] = i;
        out->v[out->n++] = x->dim[i];
        rows *= x->dim[i];
    }
    for (int32_t i = 0; free_first && i < n; i++)
        order.v[order.n++] = axes[i];
    shape.v[0] = free_first ? rows : columns;
    shape.v[1] = free_first ? columns : rows;
    return mr_reshape(mr_transpose(x, mr__ints(&order)), mr__shape(&shape));
}

/* One number n: the last n of a, the first n of b.  Else the axes of a, then
 * as many of b. */
static mr_code
contracted_axes(const mr_array *a, const mr_array *b, mr_ints axes,
                int32_t *in_a, int32_t *in_b, int32_t *n)
{
    bool count = axes.n < 0 || axes.n == 1;
    int64_t pairs = axes.n < 0 ? 2 : count ? axes.v[0] : axes.n / 2;
    uint32_t seen_a = 0, seen_b = 0;

    if (!count && axes.n % 2 != 0)
        return mr__fail(MR_E_VALUE,
                        "%lld axes in all: needs as many of the second array "
                        "as of the first",
                        (long long)axes.n);
    if (pairs < 0 || pairs > a->ndim || pairs > b->ndim)
        return mr__fail(MR_E_VALUE,
                        "%lld pairs of axes for arrays of %d and %d axes",
                        (long long)pairs, (int)a->ndim, (int)b->ndim);
    *n = (int32_t)pairs;
    for (int32_t i = 0; i < *n; i++) {
        int64_t ka = count ? a->ndim - *n + i : axes.v[i];
        int64_t kb = count ? i : axes.v[*n + i];

        if (!mr__axis(ka, a->ndim, &in_a[i]) ||
            !mr__axis(kb, b->ndim, &in_b[i]))
            return mr__error_code();
        if (seen_a >> in_a[i] & 1 || seen_b >> in_b[i] & 1)
            return mr__fail(MR_E_VALUE,
                            "axis %d of the %s array is given twice",
                            (int)(seen_a >> in_a[i] & 1 ? in_a[i] : in_b[i]),
                            seen_a >> in_a[i] & 1 ? "first" : "second");
        seen_a |= (uint32_t)1 << in_a[i];
        seen_b |= (uint32_t)1 << in_b[i];
        if (a->dim[in_a[i]] != b->dim[in_b[i]])
            return mr__fail(MR_E_SHAPE,
                            "axis %d of size %lld and axis %d of size %lld "
                            "cannot be summed over: the sizes must agree",
                            (int)in_a[i], (long long)a->dim[in_a[i]],
                            (int)in_b[i], (long long)b->dim[in_b[i]]);
    }
    return MR_OK;
}

mr_array *
mr__build_tensordot(mr_array *a, mr_array *b, mr_ints axes)
{
    int32_t in_a[MR_MAX_NDIM], in_b[MR_MAX_NDIM], n = 0;
    mr_list out = {.n = 0};
    mr_dtype t;

    if (common_inexact(a, b, &t) != MR_OK ||
        contracted_axes(a, b, axes, in_a, in_b, &n) != MR_OK)
        return NULL;
    if (a->ndim + b->ndim - 2 * n > MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE, "%d axes, at most %d are possible",
                             (int)(a->ndim + b->ndim - 2 * n), MR_MAX_NDIM);
    a = as_matrix(a, in_a, n, true, &out);
    b = as_matrix(b, in_b, n, false, &out);
    return mr_reshape(mr_matmul(a, b), mr__shape(&out));
}

mr_array *
mr__build_vecdot(mr_array *a, mr_array *b, int64_t axis)
{
    mr_array *y = mr_multiply(mr__conj(a), b);
    int32_t k;

    if (y == NULL || !mr__axis(axis, y->ndim, &k))
        return NULL;
    return mr_sum(y, MR_AXES(k), false);
}
