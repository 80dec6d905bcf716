/* SPDX-License-Identifier: Apache-2.0
 *
 * fft.c -- discrete Fourier transforms.
 *
 * Three operators: complex to complex over any axes, real to complex and
 * complex to real along one.  All are linear, so a tangent goes through the
 * operator itself.  Adjoints: of the complex one, the one the other way round
 * with the same scale.  The real ones keep half of a conjugate-symmetric
 * result, whose inner numbers stand for two: so each is the other's adjoint
 * but for weights, 1/2 or 2 inside and 1 at both ends.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <string.h>

#include "array/dtype.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

static mr_array *
fft_node(const mr_op *op, mr_array *x, mr_fft_params p)
{
    return x == NULL ? NULL : mr__node_new(op, &p, 1, &x);
}

/* The axis of an operator along one. */
static int32_t
axis_of(const mr_fft_params *p)
{
    return (int32_t)__builtin_ctz(p->axes);
}

/* x cropped or filled with zeros to n entries along an axis. */
static mr_array *
fitted(mr_array *x, int32_t axis, int64_t n)
{
    mr_list width = {.n = 2 * (int64_t)(x == NULL ? 0 : x->ndim)};
    int64_t pairs[2 * MR_MAX_NDIM] = {0};

    if (x == NULL || x->dim[axis] == n)
        return x;
    if (x->dim[axis] > n)
        return mr__slice_one(x, axis, 0, n, 1);
    pairs[2 * axis + 1] = n - x->dim[axis];
    return mr_pad(x, (mr_ints){pairs, width.n}, "constant", MR_NONE);
}

/* ---- inference
 * ------------------------------------------------------------------ */

static mr_code
length_check(int64_t n)
{
    if (n < 1)
        return mr__fail(MR_E_VALUE,
                        "a transform of length %lld: needs 1 or more",
                        (long long)n);
    return MR_OK;
}

static mr_code
c2c_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_fft_params *p = c->params;
    mr_code rc = MR_OK;

    mr__aval_like(out, c->in[0]);
    if (p->n != MR_INT_NONE)
        out->dim[axis_of(p)] = p->n;
    for (int32_t k = 0; rc == MR_OK && k < out->ndim; k++)
        if (p->axes >> k & 1U)
            rc = length_check(out->dim[k]);
    return rc != MR_OK ? rc : mr__check_shape(out->ndim, out->dim);
}

static mr_code
r2c_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_fft_params *p = c->params;
    int32_t axis = axis_of(p);
    int64_t n = p->n == MR_INT_NONE ? c->in[0]->dim[axis] : p->n;
    mr_dtype t = (mr_dtype)c->in[0]->dtype;

    mr__aval_like(out, c->in[0]);
    out->dtype = t == MR_FLOAT64 ? MR_COMPLEX128 : MR_COMPLEX64;
    out->dim[axis] = n / 2 + 1;
    if (length_check(n) != MR_OK)
        return MR_E_VALUE;
    return mr__check_shape(out->ndim, out->dim);
}

static mr_code
c2r_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_fft_params *p = c->params;
    int32_t axis = axis_of(p);
    int64_t m = c->in[0]->dim[axis];

    mr__aval_like(out, c->in[0]);
    out->dtype = mr__to_real((mr_dtype)c->in[0]->dtype);
    out->dim[axis] = p->n == MR_INT_NONE ? 2 * (m - 1) : p->n;
    if (length_check(out->dim[axis]) != MR_OK)
        return MR_E_VALUE;
    return mr__check_shape(out->ndim, out->dim);
}

/* ---- rules
 * ---------------------------------------------------------------------- */

static mr_array *
fft_jvp(const mr_rule *r, int i)
{
    return mr__again(r, r->tangent[i]);
}

static mr_array *
fft_vmap(const mr_batch *b)
{
    mr_fft_params p = *(const mr_fft_params *)mr__params(b->node);

    p.axes <<= 1;
    return fft_node(b->node->op, b->in[0], p);
}

static mr_array *
c2c_vjp(const mr_rule *r, int i)
{
    mr_fft_params p = *(const mr_fft_params *)mr__params(r->node);
    int32_t axis = axis_of(&p);
    mr_array *g;

    p.inverse = !p.inverse;
    g = r->cotangent[0];
    if (p.n == MR_INT_NONE)
        return fft_node(&mr__op_fft_c2c, g, p);
    p.n = MR_INT_NONE;
    return fitted(fft_node(&mr__op_fft_c2c, g, p), axis,
                  r->primal[i]->dim[axis]);
}

/* x times `inner` but for the first number and, n even, number n / 2. */
static mr_array *
weighted(mr_array *x, int32_t axis, int64_t n, double inner)
{
    mr_array *k, *end;
    mr_dtype t;

    if (x == NULL)
        return NULL;
    t = mr__to_real((mr_dtype)x->dtype);
    k = mr__cast(mr__iota(x->dim[axis], axis, x->ndim), MR_INT64);
    end = mr_equal(k, mr__integer(MR_INT64, 0));
    if (n % 2 == 0)
        end = mr_logical_or(end, mr_equal(k, mr__integer(MR_INT64, n / 2)));
    return mr_multiply(x,
                       mr_where(end, mr__number(t, 1.0), mr__number(t, inner)));
}

static mr_array *
r2c_vjp(const mr_rule *r, int i)
{
    mr_fft_params p = *(const mr_fft_params *)mr__params(r->node);
    int32_t axis = axis_of(&p);
    int64_t m = r->primal[i]->dim[axis];

    p.n = p.n == MR_INT_NONE ? m : p.n;
    return fitted(
        fft_node(&mr__op_fft_c2r, weighted(r->cotangent[0], axis, p.n, 0.5), p),
        axis, m);
}

static mr_array *
c2r_vjp(const mr_rule *r, int i)
{
    mr_fft_params p = *(const mr_fft_params *)mr__params(r->node);
    int32_t axis = axis_of(&p);
    mr_array *g = r->cotangent[0];

    p.n = MR_INT_NONE;
    return fitted(
        weighted(fft_node(&mr__op_fft_r2c, g, p), axis, g->dim[axis], 2.0),
        axis, r->primal[i]->dim[axis]);
}

static const mr_field fft_fields[] = {
    MR_FIELD(1, AXES, mr_fft_params, axes),
    MR_FIELD(2, DIM, mr_fft_params, n),
    MR_FIELD(3, INT, mr_fft_params, scale),
    MR_FIELD(4, BOOL, mr_fft_params, inverse),
};

#define FFT(id_, name_, infer_, vjp_)                                          \
    .id = (id_), .version = 1, .n_in = 1, .name = (name_),                     \
    .flags = MR_FLAG_LINEAR, MR__PARAMS(mr_fft_params, fft_fields),            \
    .infer = (infer_), .vjp = (vjp_), .jvp = fft_jvp, .vmap = fft_vmap

const mr_op mr__op_fft_c2c = {
    FFT(MR_OP_FFT_C2C, "fft_c2c", c2c_infer, c2c_vjp)};
const mr_op mr__op_fft_r2c = {
    FFT(MR_OP_FFT_R2C, "fft_r2c", r2c_infer, r2c_vjp)};
const mr_op mr__op_fft_c2r = {
    FFT(MR_OP_FFT_C2R, "fft_c2r", c2r_infer, c2r_vjp)};

/* ---- bodies
 * --------------------------------------------------------------------- */

/* The scale that a norm gives to a transform of a direction. */
static bool
scale_of(const char *norm, bool inverse, int64_t *scale)
{
    if (norm != NULL && strcmp(norm, "ortho") == 0)
        *scale = MR_FFT_ORTHO;
    else if (norm != NULL && strcmp(norm, "backward") == 0)
        *scale = inverse ? MR_FFT_MEAN : MR_FFT_UNSCALED;
    else if (norm != NULL && strcmp(norm, "forward") == 0)
        *scale = inverse ? MR_FFT_UNSCALED : MR_FFT_MEAN;
    else {
        mr__fail(MR_E_VALUE, "norm is '%s': needs backward, ortho or forward",
                 norm == NULL ? "NULL" : norm);
        return false;
    }
    return true;
}

static mr_array *
as_complex(mr_array *a)
{
    mr_dtype t = a == NULL ? MR_COMPLEX64 : (mr_dtype)a->dtype;
    bool wide = t == MR_FLOAT64 || t == MR_COMPLEX128;

    return a == NULL ? NULL : mr__cast(a, wide ? MR_COMPLEX128 : MR_COMPLEX64);
}

static mr_array *
as_real(mr_array *a)
{
    mr_dtype t = (mr_dtype)a->dtype;

    if (mr__dtype_is_complex(t))
        return mr__fail_null(MR_E_DTYPE,
                             "needs real numbers, got %s; fft takes complex "
                             "ones",
                             mr_dtype_name(t));
    return mr__cast(a, t == MR_FLOAT64 ? MR_FLOAT64 : MR_FLOAT32);
}

/* The axes of an n-d transform in the caller's order, and their lengths
 * (MR_INT_NONE: as they are). */
typedef struct plan {
    int64_t count;
    int32_t axis[MR_MAX_NDIM];
    int64_t n[MR_MAX_NDIM];
    uint32_t mask;
} plan;

static bool
plan_axes(plan *p, const mr_array *a, mr_shape s, mr_axes axes)
{
    mr_text text;

    p->count = axes.n >= 0 ? axes.n : s.n >= 0 ? s.n : a->ndim;
    if (s.n >= 0 && s.n != p->count) {
        mr__fail(MR_E_VALUE, "lengths %s for %lld axes: needs one for each",
                 mr__shape_text(text.s, sizeof text.s, (int32_t)s.n, s.dim),
                 (long long)p->count);
        return false;
    }
    if (axes.n < 0 && p->count > a->ndim) {
        mr__fail(MR_E_VALUE, "%lld lengths for an array of %d axes",
                 (long long)p->count, (int)a->ndim);
        return false;
    }
    for (int64_t i = 0; i < p->count; i++) {
        int64_t axis = axes.n >= 0 ? axes.axis[i] : i - p->count;
        int32_t at;

        if (!mr__axis(axis, a->ndim, &at))
            return false;
        if (p->mask >> at & 1U) {
            mr__fail(MR_E_VALUE, "axis %d is given twice", (int)at);
            return false;
        }
        p->mask |= 1U << at;
        p->axis[i] = at;
        p->n[i] = s.n >= 0 ? s.dim[i] : MR_INT_NONE;
        if (s.n >= 0 && length_check(s.dim[i]) != MR_OK)
            return false;
    }
    return true;
}

/* The complex transform over the first `count` axes of the plan: in one node
 * where no length is given. */
static mr_array *
complex_part(mr_array *a, const plan *p, int64_t count, mr_fft_params q)
{
    a = as_complex(a);
    if (count > 0 && p->n[0] == MR_INT_NONE) {
        q.n = MR_INT_NONE;
        q.axes = 0;
        for (int64_t i = 0; i < count; i++)
            q.axes |= 1U << p->axis[i];
        return fft_node(&mr__op_fft_c2c, a, q);
    }
    for (int64_t i = count - 1; i >= 0; i--) {
        q.axes = 1U << p->axis[i];
        q.n = p->n[i];
        a = fft_node(&mr__op_fft_c2c, a, q);
    }
    return a;
}

static mr_array *
complex_nd(mr_array *a, mr_shape s, mr_axes axes, const char *norm,
           bool inverse)
{
    mr_fft_params q = {.inverse = inverse};
    plan p = {0};

    if (!scale_of(norm, inverse, &q.scale) || !plan_axes(&p, a, s, axes))
        return NULL;
    return complex_part(a, &p, p.count, q);
}

/* The last axis of the plan is the one with reals: first forward, last back. */
static mr_array *
real_nd(mr_array *a, mr_shape s, mr_axes axes, const char *norm, bool inverse)
{
    mr_fft_params q = {.inverse = inverse}, last;
    plan p = {0};

    if (!scale_of(norm, inverse, &q.scale) || !plan_axes(&p, a, s, axes))
        return NULL;
    if (p.count == 0)
        return mr__fail_null(MR_E_VALUE, "needs at least one axis");
    last = (mr_fft_params){.axes = 1U << p.axis[p.count - 1],
                           .n = p.n[p.count - 1],
                           .scale = q.scale};
    if (inverse)
        return fft_node(&mr__op_fft_c2r, complex_part(a, &p, p.count - 1, q),
                        last);
    a = as_real(a);
    a = fft_node(&mr__op_fft_r2c, a, last);
    return complex_part(a, &p, p.count - 1, q);
}

/* One axis, of length n or as it is. */
#define ONE(n_, axis_)                                                         \
    ((n_) == MR_INT_NONE ? MR_SHAPE_NONE : MR_SHAPE(n_)), one_axis(&(axis_))

static mr_axes
one_axis(const int32_t *axis)
{
    return (mr_axes){axis, 1};
}

mr_array *
mr__build_fft_fft(mr_array *a, int64_t n, int64_t axis, const char *norm)
{
    int32_t k;

    if (!mr__axis(axis, a->ndim, &k))
        return NULL;
    return complex_nd(a, ONE(n, k), norm, false);
}

mr_array *
mr__build_fft_ifft(mr_array *a, int64_t n, int64_t axis, const char *norm)
{
    int32_t k;

    if (!mr__axis(axis, a->ndim, &k))
        return NULL;
    return complex_nd(a, ONE(n, k), norm, true);
}

mr_array *
mr__build_fft_rfft(mr_array *a, int64_t n, int64_t axis, const char *norm)
{
    int32_t k;

    if (!mr__axis(axis, a->ndim, &k))
        return NULL;
    return real_nd(a, ONE(n, k), norm, false);
}

mr_array *
mr__build_fft_irfft(mr_array *a, int64_t n, int64_t axis, const char *norm)
{
    int32_t k;

    if (!mr__axis(axis, a->ndim, &k))
        return NULL;
    return real_nd(a, ONE(n, k), norm, true);
}

/* The transforms of symmetric signals go the other way round than the real
 * ones that they are: the 1 / n changes sides. */
static const char *
turned_norm(const char *norm)
{
    if (norm != NULL && strcmp(norm, "backward") == 0)
        return "forward";
    if (norm != NULL && strcmp(norm, "forward") == 0)
        return "backward";
    return norm;
}

mr_array *
mr__build_fft_hfft(mr_array *a, int64_t n, int64_t axis, const char *norm)
{
    int32_t k;

    if (!mr__axis(axis, a->ndim, &k))
        return NULL;
    return real_nd(mr__conj(a), ONE(n, k), turned_norm(norm), true);
}

mr_array *
mr__build_fft_ihfft(mr_array *a, int64_t n, int64_t axis, const char *norm)
{
    int32_t k;

    if (!mr__axis(axis, a->ndim, &k))
        return NULL;
    return mr__conj(real_nd(a, ONE(n, k), turned_norm(norm), false));
}

mr_array *
mr__build_fft_fftn(mr_array *a, mr_shape s, mr_axes axes, const char *norm)
{
    return complex_nd(a, s, axes, norm, false);
}

mr_array *
mr__build_fft_ifftn(mr_array *a, mr_shape s, mr_axes axes, const char *norm)
{
    return complex_nd(a, s, axes, norm, true);
}

mr_array *
mr__build_fft_rfftn(mr_array *a, mr_shape s, mr_axes axes, const char *norm)
{
    return real_nd(a, s, axes, norm, false);
}

mr_array *
mr__build_fft_irfftn(mr_array *a, mr_shape s, mr_axes axes, const char *norm)
{
    return real_nd(a, s, axes, norm, true);
}

mr_array *
mr__build_fft_fft2(mr_array *a, mr_shape s, mr_axes axes, const char *norm)
{
    return complex_nd(a, s, axes, norm, false);
}

mr_array *
mr__build_fft_ifft2(mr_array *a, mr_shape s, mr_axes axes, const char *norm)
{
    return complex_nd(a, s, axes, norm, true);
}

mr_array *
mr__build_fft_rfft2(mr_array *a, mr_shape s, mr_axes axes, const char *norm)
{
    return real_nd(a, s, axes, norm, false);
}

mr_array *
mr__build_fft_irfft2(mr_array *a, mr_shape s, mr_axes axes, const char *norm)
{
    return real_nd(a, s, axes, norm, true);
}

/* ---- frequencies
 * ------------------------------------------------------------------ */

/* Zero goes to place n / 2, or comes back from there. */
static mr_array *
shifted(mr_array *a, mr_axes axes, bool back)
{
    mr_list by = {.n = axes.n < 0 ? a->ndim : axes.n};
    int32_t at[MR_MAX_NDIM];

    if (by.n > MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE, "%lld axes: needs at most %d",
                             (long long)by.n, MR_MAX_NDIM);
    for (int64_t i = 0; i < by.n; i++) {
        int64_t n;

        if (!mr__axis(axes.n < 0 ? i : axes.axis[i], a->ndim, &at[i]))
            return NULL;
        n = a->dim[at[i]];
        by.v[i] = back ? -(n / 2) : n / 2;
    }
    return by.n == 0 ? a : mr_roll(a, mr__ints(&by), (mr_axes){at, by.n});
}

mr_array *
mr__build_fft_fftshift(mr_array *a, mr_axes axes)
{
    return shifted(a, axes, false);
}

mr_array *
mr__build_fft_ifftshift(mr_array *a, mr_axes axes)
{
    return shifted(a, axes, true);
}

/* k / (n d) for k = 0, 1, ... count - 1, those from `wrap` on less n; in
 * double, rounded once. */
static mr_array *
frequencies(int64_t n, double d, int64_t count, int64_t wrap, mr_dtype t)
{
    mr_array *k;

    t = t == MR_DTYPE_DEFAULT ? MR_FLOAT32 : t;
    if (t != mr__to_real(mr__to_inexact(t)))
        return mr__fail_null(MR_E_DTYPE, "needs a real floating dtype, got %s",
                             mr_dtype_name(t));

    if (n < 1)
        return mr__fail_null(MR_E_VALUE, "n is %lld: needs 1 or more",
                             (long long)n);
    if (d == 0.0)
        return mr__fail_null(MR_E_VALUE, "d is 0: needs a spacing");
    if (mr__check_shape(1, &count) != MR_OK)
        return NULL;
    k = mr__cast(mr__iota(count, 0, 1), MR_INT64);
    k = mr_where(mr_less(k, mr__integer(MR_INT64, wrap)), k,
                 mr_subtract(k, mr__integer(MR_INT64, n)));
    k = mr_multiply(mr__cast(k, MR_FLOAT64),
                    mr__number(MR_FLOAT64, 1.0 / ((double)n * d)));
    return mr__cast(k, t);
}

mr_array *
mr__build_fft_fftfreq(int64_t n, double d, mr_dtype dtype)
{
    return frequencies(n, d, n, n / 2 + n % 2, dtype);
}

mr_array *
mr__build_fft_rfftfreq(int64_t n, double d, mr_dtype dtype)
{
    return frequencies(n, d, n < 1 ? 1 : n / 2 + 1, INT64_MAX, dtype);
}
