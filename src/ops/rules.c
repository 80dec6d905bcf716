/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.c -- what the families share: see rules.h.
 *
 * Called by: the families of ops/.  Calls: graph/, marram/ops.h.
 */
#include "ops/rules.h"

#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"

/* How the result's dtype follows from the operands', by scalar operation. */
enum { KIND_SAME, KIND_BOOL, KIND_REAL, KIND_CAST };

static const uint8_t result_kind[MR_N_K] = {
#define MR_X(id, name, n, r) KIND_##r,
    MR_K_MAP(MR_X)
#undef MR_X
};

mr_dtype
mr__k_dtype(uint16_t k, mr_dtype t)
{
    switch (result_kind[k]) {
    case KIND_BOOL:
        return MR_BOOL;
    case KIND_REAL:
        return mr__to_real(t);
    default:
        return t;
    }
}

mr_code
mr__infer_elementwise(const mr_op_call *c, mr_aval *out)
{
    int64_t dim[MR_MAX_NDIM];
    const mr_array *x = c->in[c->n_in - 1]; /* never select's condition */
    int32_t ndim = x->ndim;
    mr_text a, b;

    memcpy(dim, x->dim, (size_t)ndim * sizeof *dim);
    for (int i = 0; i < c->n_in - 1; i++) {
        const mr_array *y = c->in[i];

        ndim = mr__broadcast_shapes(ndim, dim, y->ndim, y->dim, dim);
        if (ndim < 0)
            return mr__fail(MR_E_SHAPE, "shapes %s and %s do not broadcast",
                            mr__shape_of(y, &a), mr__shape_of(x, &b));
        if (y->dtype != x->dtype && !(c->n_in == 3 && i == 0))
            return mr__fail(MR_E_DTYPE, "operands of one type, got %s and %s",
                            mr_dtype_name((mr_dtype)y->dtype),
                            mr_dtype_name((mr_dtype)x->dtype));
    }
    mr__aval_shape(out, mr__k_dtype(c->op->fuse.k, (mr_dtype)x->dtype), ndim,
                   dim);
    return MR_OK;
}

mr_code
mr__infer_same(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[0]);
    return MR_OK;
}

mr_array *
mr__slope_vjp(const mr_rule *r, int i)
{
    mr_array *slope = r->node->op->slope(r, i);

    return mr_multiply(r->cotangent[0], mr__conj(slope));
}

mr_array *
mr__slope_jvp(const mr_rule *r, int i)
{
    return mr_multiply(r->tangent[i], r->node->op->slope(r, i));
}

mr_array *
mr__vjp_pass(const mr_rule *r, int i)
{
    (void)i;
    return r->cotangent[0];
}

mr_array *
mr__jvp_pass(const mr_rule *r, int i)
{
    return r->tangent[i];
}

/* ---- arithmetic for rules --------------------------------------------------
 */

mr_array *
mr__scale(mr_array *x, double c)
{
    return x == NULL ? NULL : mr_multiply(x, mr__number((mr_dtype)x->dtype, c));
}

mr_array *
mr__shift(mr_array *x, double c)
{
    return x == NULL ? NULL : mr_add(x, mr__number((mr_dtype)x->dtype, c));
}

mr_array *
mr__filled(mr_dtype t, int32_t ndim, const int64_t *dim, double v)
{
    return mr__broadcast(mr__number(t, v), ndim, dim);
}

mr_array *
mr__zeros_like(const mr_array *x)
{
    return mr__filled((mr_dtype)x->dtype, x->ndim, x->dim, 0.0);
}

mr_array *
mr__ones_like(const mr_array *x)
{
    return mr__filled((mr_dtype)x->dtype, x->ndim, x->dim, 1.0);
}

mr_array *
mr__conj(mr_array *x)
{
    if (x == NULL || !mr__dtype_is_complex((mr_dtype)x->dtype))
        return x;
    return mr_conjugate(x);
}

mr_array *
mr__masked(mr_array *mask, mr_array *x)
{
    if (x == NULL)
        return NULL;
    return mr_where(mask, x, mr__number((mr_dtype)x->dtype, 0.0));
}

mr_array *
mr__masked_not(mr_array *mask, mr_array *x)
{
    if (x == NULL)
        return NULL;
    return mr_where(mask, mr__number((mr_dtype)x->dtype, 0.0), x);
}

mr_array *
mr__sum_to(mr_array *x, int32_t ndim, const int64_t *dim)
{
    int32_t axes[MR_MAX_NDIM], n = 0, more;

    if (x == NULL)
        return NULL;
    more = x->ndim - ndim;
    for (int32_t i = 0; i < x->ndim; i++)
        if (i < more || (dim[i - more] == 1 && x->dim[i] != 1))
            axes[n++] = i;
    if (n == 0)
        return x;
    x = mr_sum(x, (mr_axes){axes, n}, true);
    if (x == NULL || more == 0)
        return x;
    for (int32_t i = 0; i < more; i++)
        axes[i] = i;
    return mr_squeeze(x, (mr_axes){axes, more});
}

mr_array *
mr__iota(int64_t n, int32_t axis, int32_t ndim)
{
    mr_scalar zero = {.kind = MR_SCALAR_INT, .as.i = 0};
    mr_scalar stop = {.kind = MR_SCALAR_INT, .as.i = n};
    mr_scalar one = {.kind = MR_SCALAR_INT, .as.i = 1};
    mr_list shape = {.n = ndim};
    mr_array *x =
        mr_arange(zero, stop, one, n > UINT32_MAX ? MR_INT64 : MR_UINT32);

    if (ndim == 1)
        return x;
    for (int32_t i = 0; i < ndim; i++)
        shape.v[i] = i == axis ? n : 1;
    return mr_reshape(x, mr__shape(&shape));
}

mr_array *
mr__slice_one(mr_array *x, int32_t axis, int64_t start, int64_t stop,
              int64_t stride)
{
    mr_list a = {.n = axis + 1}, b = {.n = axis + 1}, s = {.n = axis + 1};

    for (int32_t i = 0; i <= axis; i++) {
        a.v[i] = i == axis ? start : MR_INT_NONE;
        b.v[i] = i == axis ? stop : MR_INT_NONE;
        s.v[i] = i == axis ? stride : 1;
    }
    return mr_index_slice(x, mr__ints(&a), mr__ints(&b), mr__ints(&s));
}

mr_array *
mr__again(const mr_rule *r, mr_array *x)
{
    return x == NULL ? NULL
                     : mr__node_new(r->node->op, mr__params(r->node), 1, &x);
}

/* ---- shapes -----------------------------------------------------------------
 */

mr_list
mr__dims(const mr_array *x)
{
    mr_list l = {.n = x->ndim};

    memcpy(l.v, x->dim, (size_t)x->ndim * sizeof *l.v);
    return l;
}

mr_list
mr__prepend(mr_ints l, int64_t v)
{
    mr_list out = {.n = l.n + 1};

    out.v[0] = v;
    if (l.n > 0)
        memcpy(out.v + 1, l.v, (size_t)l.n * sizeof *l.v);
    return out;
}

mr_code
mr__check_shape(int64_t ndim, const int64_t *dim)
{
    char text[192];

    if (ndim < 0 || ndim > MR_MAX_NDIM)
        return mr__fail(MR_E_VALUE, "%lld axes, at most %d are possible",
                        (long long)ndim, MR_MAX_NDIM);
    for (int64_t i = 0; i < ndim; i++)
        if (dim[i] < 0)
            return mr__fail(
                MR_E_VALUE, "a negative size in shape %s",
                mr__shape_text(text, sizeof text, (int32_t)ndim, dim));
    if (mr__size_of((int32_t)ndim, dim) < 0)
        return mr__fail(MR_E_OVERFLOW, "shape %s has too many elements",
                        mr__shape_text(text, sizeof text, (int32_t)ndim, dim));
    return MR_OK;
}

bool
mr__is_index(const mr_array *x)
{
    return mr__dtype_is_integer((mr_dtype)x->dtype);
}

const char *
mr__shape_of(const mr_array *x, mr_text *t)
{
    return mr__shape_text(t->s, sizeof t->s, x->ndim, x->dim);
}
