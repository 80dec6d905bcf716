/* SPDX-License-Identifier: Apache-2.0
 *
 * linalg_norm.c -- norms, the cross product, the Hadamard transform.
 *
 * Norms are bodies of public operators.  A root is taken of an argument that
 * is 1 where the sum is 0, so the gradient there is 0 and not 0 / 0.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <math.h>
#include <string.h>

#include "array/dtype.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/linalg.h"
#include "ops/rules.h"

/* ---- norm
 * ------------------------------------------------------------------- */

typedef struct norm_call {
    mr_axes axes;
    bool keepdims;
} norm_call;

/* x to the power p, 0 where x is 0. */
static mr_array *
root_or_zero(mr_array *x, double p)
{
    mr_array *zero, *safe;

    if (x == NULL)
        return NULL;
    zero = mr_equal(x, mr__number((mr_dtype)x->dtype, 0.0));
    safe = mr_where(zero, mr__number((mr_dtype)x->dtype, 1.0), x);
    safe = p == 0.5 ? mr_sqrt(safe)
                    : mr_power(safe, mr__number((mr_dtype)x->dtype, p));
    return mr__masked_not(zero, safe);
}

/* |x|^2, of complex numbers as a real number. */
static mr_array *
squared(mr_array *x)
{
    if (!mr__dtype_is_complex((mr_dtype)x->dtype))
        return mr_square(x);
    return mr_add(mr_square(mr_real(x)), mr_square(mr_imag(x)));
}

static mr_array *
norm_2(mr_array *x, const norm_call *c)
{
    return root_or_zero(mr_sum(squared(x), c->axes, c->keepdims), 0.5);
}

static mr_array *
norm_of_vectors(mr_array *x, double p, const norm_call *c)
{
    mr_array *size;

    if (p == 2.0)
        return norm_2(x, c);
    size = mr_abs(x);
    if (size == NULL)
        return NULL;
    if (p == 0.0)
        return mr_sum(
            mr__cast(mr_not_equal(size, mr__number((mr_dtype)size->dtype, 0.0)),
                     (mr_dtype)size->dtype),
            c->axes, c->keepdims);
    if (isinf(p))
        return p > 0 ? mr_max(size, c->axes, c->keepdims)
                     : mr_min(size, c->axes, c->keepdims);
    if (p == 1.0)
        return mr_sum(size, c->axes, c->keepdims);
    size = mr_power(size, mr__number((mr_dtype)size->dtype, p));
    return root_or_zero(mr_sum(size, c->axes, c->keepdims), 1.0 / p);
}

/* Sums of absolute values along one of the two axes, then the largest or the
 * smallest of them. */
static mr_array *
norm_of_sums(mr_array *x, int32_t along, int32_t other, bool largest,
             const norm_call *c)
{
    mr_array *y = mr_sum(mr_abs(x), MR_AXES(along), true);

    y = largest ? mr_max(y, MR_AXES(other), true)
                : mr_min(y, MR_AXES(other), true);
    return c->keepdims ? y : mr_squeeze(y, c->axes);
}

typedef enum spectral {
    SPECTRAL_LARGEST,
    SPECTRAL_SMALLEST,
    SPECTRAL_SUM
} spectral;

static mr_array *
norm_of_spectrum(mr_array *x, spectral how, const norm_call *c)
{
    mr_array *s = mr_moveaxis(x, c->axes.axis[0], -1);
    int32_t second = c->axes.axis[1];

    /* what stood behind the first axis has moved up by one */
    s = mr_moveaxis(s, second - (second > c->axes.axis[0]), -1);
    s = mr__linalg_node(&mr__op_svdvals, NULL, s);
    if (how == SPECTRAL_SUM)
        s = mr_sum(s, MR_AXES(-1), false);
    else
        s = how == SPECTRAL_LARGEST ? mr_max(s, MR_AXES(-1), false)
                                    : mr_min(s, MR_AXES(-1), false);
    return c->keepdims ? mr_expand_dims(s, c->axes) : s;
}

static mr_array *
norm_of_matrices(mr_array *x, double p, const norm_call *c)
{
    int32_t row = c->axes.axis[0], column = c->axes.axis[1];

    if (p == 1.0 || p == -1.0)
        return norm_of_sums(x, row, column, p > 0, c);
    if (isinf(p))
        return norm_of_sums(x, column, row, p > 0, c);
    if (p == 2.0 || p == -2.0)
        return norm_of_spectrum(x, p > 0 ? SPECTRAL_LARGEST : SPECTRAL_SMALLEST,
                                c);
    return mr__fail_null(MR_E_VALUE,
                         "order %g: matrices have 1, -1, 2, -2, inf, -inf, "
                         "'fro' and 'nuc'",
                         p);
}

/* The axes, >= 0, in the order given; all of them when none were. */
static mr_code
norm_axes(const mr_array *a, mr_axes given, int32_t *out, norm_call *c)
{
    uint32_t mask;

    if (!mr__axes_mask(given, a->ndim, &mask))
        return mr__error_code();
    c->axes = (mr_axes){out, given.n < 0 ? a->ndim : given.n};
    for (int32_t i = 0; i < c->axes.n; i++)
        if (given.n < 0)
            out[i] = i;
        else if (!mr__axis(given.axis[i], a->ndim, &out[i]))
            return mr__error_code();
    return MR_OK;
}

static mr_array *
narrowed(mr_array *y, const mr_array *a)
{
    bool half = mr__dtype_is_half(a->dtype);

    return y != NULL && half ? mr__cast(y, (mr_dtype)a->dtype) : y;
}

mr_array *
mr__build_linalg_norm(mr_array *a, double ord, mr_axes axis, bool keepdims)
{
    int32_t axes[MR_MAX_NDIM];
    norm_call c = {.keepdims = keepdims};
    mr_array *x = mr__linalg_widen(a);

    if (x == NULL || norm_axes(a, axis, axes, &c) != MR_OK)
        return NULL;
    if (isnan(ord))
        return narrowed(norm_2(x, &c), a);
    if (c.axes.n == 1)
        return narrowed(norm_of_vectors(x, ord, &c), a);
    if (c.axes.n == 2)
        return narrowed(norm_of_matrices(x, ord, &c), a);
    return mr__fail_null(MR_E_VALUE,
                         "order %g over %d axes: needs one (vectors) or two "
                         "(matrices), named by axis",
                         ord, (int)c.axes.n);
}

mr_array *
mr__build_linalg_norm_matrix(mr_array *a, const char *ord, mr_axes axis,
                             bool keepdims)
{
    int32_t axes[MR_MAX_NDIM];
    norm_call c = {.keepdims = keepdims};
    mr_array *x = mr__linalg_widen(a);

    if (x == NULL || norm_axes(a, axis, axes, &c) != MR_OK)
        return NULL;
    if (c.axes.n != 2)
        return mr__fail_null(MR_E_VALUE,
                             "order '%s' over %d axes: needs two, named by "
                             "axis",
                             ord == NULL ? "" : ord, (int)c.axes.n);
    if (ord != NULL && (!strcmp(ord, "fro") || !strcmp(ord, "f")))
        return narrowed(norm_2(x, &c), a);
    if (ord != NULL && !strcmp(ord, "nuc"))
        return narrowed(norm_of_spectrum(x, SPECTRAL_SUM, &c), a);
    return mr__fail_null(MR_E_VALUE, "order '%s' is neither 'fro' nor 'nuc'",
                         ord == NULL ? "" : ord);
}

/* Over the axes as over one. */
mr_array *
mr__build_linalg_vector_norm(mr_array *a, mr_axes axis, bool keepdims,
                             double ord)
{
    int32_t axes[MR_MAX_NDIM];
    norm_call c = {.keepdims = keepdims};
    mr_array *x = mr__linalg_widen(a);

    if (x == NULL || norm_axes(a, axis, axes, &c) != MR_OK)
        return NULL;
    if (isnan(ord))
        return mr__fail_null(MR_E_VALUE, "the order is NaN");
    return narrowed(norm_of_vectors(x, ord, &c), a);
}

/* ---- cross
 * ------------------------------------------------------------------ */

/* Entry i along the axis, which stays as one of size 1; NULL: zero. */
static mr_array *
component(mr_array *x, int32_t axis, int64_t i)
{
    return i < x->dim[axis] ? mr__slice_one(x, axis, i, i + 1, 1) : NULL;
}

/* p q - r s, where an absent factor makes a product vanish. */
static mr_array *
minor(mr_array *p, mr_array *q, mr_array *r, mr_array *s)
{
    bool first = p != NULL && q != NULL, second = r != NULL && s != NULL;

    if (first && second)
        return mr_subtract(mr_multiply(p, q), mr_multiply(r, s));
    return first ? mr_multiply(p, q) : mr_negative(mr_multiply(r, s));
}

static mr_code
cross_axes(const mr_array *a, const mr_array *b, int64_t axis, int32_t *ka,
           int32_t *kb)
{
    mr_text ta, tb;

    if (!mr__axis(axis, a->ndim, ka) || !mr__axis(axis, b->ndim, kb))
        return mr__error_code();
    if (a->dim[*ka] < 2 || a->dim[*ka] > 3 || b->dim[*kb] < 2 ||
        b->dim[*kb] > 3)
        return mr__fail(
            MR_E_SHAPE, "shapes %s and %s: axis %lld must be of size 3 or 2",
            mr__shape_of(a, &ta), mr__shape_of(b, &tb), (long long)axis);
    return MR_OK;
}

static mr_array *
cross_product(mr_array *a, int32_t ka, mr_array *b, int32_t kb)
{
    mr_array *x[3], *y[3], *out[3];
    bool flat = a->dim[ka] == 2 && b->dim[kb] == 2;

    for (int i = 0; i < 3; i++) {
        x[i] = component(a, ka, i);
        y[i] = component(b, kb, i);
    }
    if (x[0] == NULL || x[1] == NULL || y[0] == NULL || y[1] == NULL)
        return NULL;
    out[2] = minor(x[0], y[1], x[1], y[0]);
    if (out[2] == NULL)
        return NULL;
    ka += out[2]->ndim - a->ndim; /* broadcasting adds axes in front */
    if (flat)
        return mr_squeeze(out[2], MR_AXES(ka));
    out[0] = minor(x[1], y[2], x[2], y[1]);
    out[1] = minor(x[2], y[0], x[0], y[2]);
    return mr_concatenate(out, 3, ka);
}

/* bool is computed in integers: what is not zero is true. */
mr_array *
mr__build_linalg_cross(mr_array *a, mr_array *b, int64_t axis)
{
    mr_dtype t = mr__promote((mr_dtype)a->dtype, (mr_dtype)b->dtype);
    mr_array *in[2], *y;
    int32_t ka, kb;

    if (cross_axes(a, b, axis, &ka, &kb) != MR_OK)
        return NULL;
    in[0] = mr__cast(a, t == MR_BOOL ? MR_INT32 : t);
    in[1] = mr__cast(b, t == MR_BOOL ? MR_INT32 : t);
    if (in[0] == NULL || in[1] == NULL)
        return NULL;
    y = cross_product(in[0], ka, in[1], kb);
    return y == NULL ? NULL : mr__cast(y, t);
}

/* -- hadamard_transform -----------------------------------------------------
 */

mr_array *
mr__build_hadamard_transform(mr_array *a, double scale)
{
    mr_hadamard_params p = {scale, false};
    mr_dtype t = (mr_dtype)a->dtype;
    bool half = mr__dtype_is_half(t);
    mr_array *y;

    if (t == MR_COMPLEX128)
        return mr__fail_null(MR_E_DTYPE, "needs real numbers, got complex128: "
                                         "transform real() and imag()");
    y = mr__linalg_node(&mr__op_hadamard_transform, &p,
                        mr__cast(a, t == MR_FLOAT64 ? t : MR_FLOAT32));
    return y != NULL && half ? mr__cast(y, t) : y;
}

static mr_code
hadamard_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_array *a = c->in[0];
    int64_t n = a->ndim > 0 ? a->dim[a->ndim - 1] : 0;
    int64_t odd = n;

    if (a->ndim == 0)
        return mr__fail(MR_E_SHAPE, "needs at least one axis, got a 0-d array");
    while (odd > 0 && odd % 2 == 0)
        odd /= 2;
    if (n == 0 ||
        !(odd == 1 || ((odd == 3 || odd == 5 || odd == 7) && n % 4 == 0)))
        return mr__fail(MR_E_VALUE,
                        "a last axis of size %lld: needs m * 2^k with m in 1, "
                        "12, 20, 28",
                        (long long)n);
    mr__aval_like(out, a);
    return MR_OK;
}

static mr_array *
hadamard_vjp(const mr_rule *r, int i)
{
    mr_hadamard_params p = *(const mr_hadamard_params *)mr__params(r->node);

    (void)i;
    p.transposed = !p.transposed;
    return mr__linalg_node(r->node->op, &p, r->cotangent[0]);
}

static mr_array *
hadamard_jvp(const mr_rule *r, int i)
{
    return mr__again(r, r->tangent[i]);
}

static const mr_field hadamard_fields[] = {
    MR_FIELD(1, FLOAT, mr_hadamard_params, scale),
    MR_FIELD(2, BOOL, mr_hadamard_params, transposed),
};

const mr_op mr__op_hadamard_transform = {
    .id = MR_OP_HADAMARD_TRANSFORM,
    .version = 1,
    .n_in = 1,
    .name = "hadamard_transform",
    MR__PARAMS(mr_hadamard_params, hadamard_fields),
    .infer = hadamard_infer,
    .vjp = hadamard_vjp,
    .jvp = hadamard_jvp,
    .vmap = mr__linalg_vmap,
};
