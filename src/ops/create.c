/* SPDX-License-Identifier: Apache-2.0
 *
 * create.c -- arrays made from nothing but numbers.
 *
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <limits.h>
#include <math.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

static mr_dtype
or_float32(mr_dtype t)
{
    return t == MR_DTYPE_DEFAULT ? MR_FLOAT32 : t;
}

/* -- full ------------------------------------------------------------------
 * A copy of a broadcast: it fuses away into what reads it, and has memory of
 * its own when it is asked for itself (a writer through a NumPy view must not
 * meet the same element everywhere). */

mr_array *
mr__build_full_array(mr_shape shape, mr_array *vals, mr_dtype dtype)
{
    if (dtype != MR_DTYPE_DEFAULT)
        vals = mr__cast(vals, dtype);
    vals = mr_broadcast_to(vals, shape);
    if (vals == NULL)
        return NULL;
    return mr__node_elementwise(&mr__op_full, (mr_dtype)vals->dtype, 1, &vals);
}

const mr_op mr__op_full = {
    MR__ELEMENTWISE(MR_OP_FULL, "full", 1, MR_K_COPY),
    .flags = MR_FLAG_LINEAR,
    .vjp = mr__vjp_pass,
    .jvp = mr__jvp_pass,
};

mr_array *
mr__build_full(mr_shape shape, double value, mr_dtype dtype)
{
    return mr__build_full_array(shape, mr__number(or_float32(dtype), value),
                                MR_DTYPE_DEFAULT);
}

mr_array *
mr__build_zeros(mr_shape shape, mr_dtype dtype)
{
    return mr_full(shape, 0.0, dtype);
}

mr_array *
mr__build_ones(mr_shape shape, mr_dtype dtype)
{
    return mr_full(shape, 1.0, dtype);
}

mr_array *
mr__build_empty(mr_shape shape, mr_dtype dtype)
{
    return mr_full(shape, 0.0, dtype);
}

mr_array *
mr__build_full_like(mr_array *a, mr_array *vals, mr_dtype dtype)
{
    mr_list shape = mr__dims(a);

    return mr_full_array(mr__shape(&shape), vals,
                         dtype == MR_DTYPE_DEFAULT ? (mr_dtype)a->dtype
                                                   : dtype);
}

static mr_array *
filled_like(const mr_array *a, double v, mr_dtype dtype)
{
    mr_list shape = mr__dims(a);

    return mr_full(mr__shape(&shape), v,
                   dtype == MR_DTYPE_DEFAULT ? (mr_dtype)a->dtype : dtype);
}

mr_array *
mr__build_zeros_like(mr_array *a, mr_dtype dtype)
{
    return filled_like(a, 0.0, dtype);
}

mr_array *
mr__build_ones_like(mr_array *a, mr_dtype dtype)
{
    return filled_like(a, 1.0, dtype);
}

mr_array *
mr__build_empty_like(mr_array *a, mr_dtype dtype)
{
    return filled_like(a, 0.0, dtype);
}

/* -- arange ---------------------------------------------------------------- */

static mr_code
arange_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_arange_params *p = c->params;

    mr__aval_shape(out, p->dtype, 1, &p->n);
    return mr__check_shape(1, &p->n);
}

static const mr_field arange_fields[] = {
    MR_FIELD(1, DTYPE, mr_arange_params, dtype),
    MR_FIELD(2, DIM, mr_arange_params, n),
    MR_FIELD(3, BOOL, mr_arange_params, exact),
    MR_FIELD(4, INT, mr_arange_params, istart),
    MR_FIELD(5, INT, mr_arange_params, istep),
    MR_FIELD(6, FLOAT, mr_arange_params, fstart),
    MR_FIELD(7, FLOAT, mr_arange_params, fstep),
    MR_FIELD(8, FLOAT, mr_arange_params, last),
};

const mr_op mr__op_arange = {
    .id = MR_OP_ARANGE,
    .version = 1,
    .n_in = 0,
    .name = "arange",
    .flags = MR_FLAG_ZERO_GRADIENT,
    MR__PARAMS(mr_arange_params, arange_fields),
    .infer = arange_infer,
};

static double
as_double(mr_scalar s)
{
    switch (s.kind) {
    case MR_SCALAR_INT:
        return (double)s.as.i;
    case MR_SCALAR_UINT:
        return (double)s.as.u;
    case MR_SCALAR_FLOAT:
        return s.as.f;
    case MR_SCALAR_BOOL:
    case MR_SCALAR_COMPLEX:
        break;
    }
    return NAN;
}

__extension__ typedef __int128 wide; /* differences of 64-bit integers */

static wide
as_wide(mr_scalar s)
{
    return s.kind == MR_SCALAR_UINT ? (wide)s.as.u : (wide)s.as.i;
}

static mr_code
arange_integers(const mr_scalar *v, mr_arange_params *p)
{
    wide start = as_wide(v[0]), stop = as_wide(v[1]), step = as_wide(v[2]);
    wide n = 0, last;

    if (step == 0)
        return mr__fail(MR_E_VALUE, "a step of 0, needs another");
    if (step > 0 && stop > start)
        n = (stop - start + step - 1) / step;
    if (step < 0 && stop < start)
        n = (start - stop - step - 1) / -step;
    last = start + (n > 0 ? n - 1 : 0) * step;
    p->exact = true;
    p->istart = (int64_t)start;
    p->istep = (int64_t)step;
    p->n = n > INT64_MAX ? INT64_MAX : (int64_t)n;
    if (p->dtype == MR_DTYPE_DEFAULT)
        p->dtype = start >= INT32_MIN && start <= INT32_MAX &&
                           last >= INT32_MIN && last <= INT32_MAX
                       ? MR_INT32
                       : MR_INT64;
    return MR_OK;
}

static mr_code
arange_floats(const mr_scalar *v, mr_arange_params *p)
{
    double start = as_double(v[0]), stop = as_double(v[1]);
    double step = as_double(v[2]), n;

    if (!isfinite(start) || !isfinite(stop) || !isfinite(step))
        return mr__fail(MR_E_VALUE,
                        "start %g, stop %g and step %g must be finite", start,
                        stop, step);
    if (step == 0.0)
        return mr__fail(MR_E_VALUE, "a step of 0, needs another");
    n = ceil((stop - start) / step);
    if (n >= 0x1p62)
        return mr__fail(MR_E_OVERFLOW, "%g numbers are too many", n);
    p->n = n > 0.0 ? (int64_t)n : 0;
    p->fstart = start;
    p->fstep = step;
    if (p->dtype == MR_DTYPE_DEFAULT)
        p->dtype = MR_FLOAT32;
    return MR_OK;
}

mr_array *
mr__build_arange(mr_scalar start, mr_scalar stop, mr_scalar step,
                 mr_dtype dtype)
{
    const mr_scalar v[3] = {start, stop, step};
    mr_arange_params p = {.dtype = dtype, .last = NAN};
    bool integers = true;
    mr_code code;

    if (dtype == MR_BOOL)
        return mr__fail_null(MR_E_VALUE, "a range of bool has no meaning");
    for (int i = 0; i < 3; i++) {
        if (v[i].kind == MR_SCALAR_BOOL || v[i].kind == MR_SCALAR_COMPLEX)
            return mr__fail_null(MR_E_VALUE,
                                 "start, stop and step must be real numbers, "
                                 "not bool or complex");
        integers = integers && v[i].kind != MR_SCALAR_FLOAT;
    }
    if (integers && (dtype == MR_DTYPE_DEFAULT || mr__dtype_is_integer(dtype)))
        code = arange_integers(v, &p);
    else
        code = arange_floats(v, &p);
    return code == MR_OK ? mr__node_new(&mr__op_arange, &p, 0, NULL) : NULL;
}

mr_array *
mr__build_linspace(double start, double stop, int64_t num, bool endpoint,
                   mr_dtype dtype)
{
    mr_arange_params p = {.dtype = or_float32(dtype), .n = num, .last = NAN};

    if (num < 0)
        return mr__fail_null(MR_E_VALUE, "%lld numbers, needs 0 or more",
                             (long long)num);
    p.fstart = start;
    if (num > 1) {
        p.fstep = (stop - start) / (double)(endpoint ? num - 1 : num);
        p.last = endpoint ? stop : NAN;
    }
    return mr__node_new(&mr__op_arange, &p, 0, NULL);
}

/* ---- triangles and diagonals
 * -------------------------------------------------- */

static mr_code
check_sizes(int64_t n, int64_t *m)
{
    if (*m == MR_INT_NONE)
        *m = n;
    return mr__check_shape(2, (int64_t[]){n, *m});
}

/* Row and column numbers, signed, for comparisons.  No matrix has as many
 * rows as the largest k here. */
static mr_array *
rows_plus(int64_t n, int64_t k)
{
    const int64_t most = INT64_MAX / 2;

    k = k > most ? most : k < -most ? -most : k;
    return mr_add(mr__cast(mr__iota(n, 0, 2), MR_INT64),
                  mr__integer(MR_INT64, k));
}

static mr_array *
columns(int64_t m)
{
    return mr__cast(mr__iota(m, 1, 2), MR_INT64);
}

mr_array *
mr__build_eye(int64_t n, int64_t m, int64_t k, mr_dtype dtype)
{
    if (check_sizes(n, &m) != MR_OK)
        return NULL;
    return mr__cast(mr_equal(rows_plus(n, k), columns(m)), or_float32(dtype));
}

mr_array *
mr__build_identity(int64_t n, mr_dtype dtype)
{
    return mr_eye(n, MR_INT_NONE, 0, dtype);
}

mr_array *
mr__build_tri(int64_t n, int64_t m, int64_t k, mr_dtype dtype)
{
    if (check_sizes(n, &m) != MR_OK)
        return NULL;
    return mr__cast(mr_greater_equal(rows_plus(n, k), columns(m)),
                    or_float32(dtype));
}

/* The triangle at and below diagonal k, or what is above it. */
static mr_array *
triangle(mr_array *x, int64_t k, bool lower)
{
    mr_array *mask;

    if (x->ndim < 2)
        return mr__fail_null(MR_E_VALUE, "needs 2 axes or more, got %d",
                             (int)x->ndim);
    mask = mr_tri(x->dim[x->ndim - 2], x->dim[x->ndim - 1], k, MR_BOOL);
    return lower ? mr__masked(mask, x) : mr__masked_not(mask, x);
}

mr_array *
mr__build_tril(mr_array *x, int64_t k)
{
    return triangle(x, k, true);
}

mr_array *
mr__build_triu(mr_array *x, int64_t k)
{
    return triangle(x, k == INT64_MIN ? k : k - 1, false);
}

mr_array *
mr__build_diag(mr_array *a, int64_t k)
{
    int64_t n;

    if (a->ndim == 2)
        return mr_diagonal(a, k, 0, 1);
    if (a->ndim != 1)
        return mr__fail_null(MR_E_VALUE, "needs 1 or 2 axes, got %d",
                             (int)a->ndim);
    if (k == INT64_MIN || __builtin_add_overflow(a->dim[0], k < 0 ? -k : k, &n))
        return mr__fail_null(MR_E_OVERFLOW,
                             "diagonal %lld of a matrix has too many elements "
                             "before it",
                             (long long)k);
    return mr__from_diagonal(a, k, n, n);
}

mr_array *
mr__build_trace(mr_array *a, int64_t offset, int64_t axis1, int64_t axis2,
                mr_dtype dtype)
{
    a = mr_diagonal(a, offset, axis1, axis2);
    if (dtype != MR_DTYPE_DEFAULT)
        a = mr__cast(a, dtype);
    return mr_sum(a, MR_AXES(-1), false);
}

/* ---- windows
 * ------------------------------------------------------------------- c0 - c1
 * cos(2 pi i / (M - 1)) + c2 cos(4 pi i / (M - 1)), in double, lazily. */
typedef mr_array *window_fn(mr_array *x);

static mr_array *
window(int64_t m, window_fn *at)
{
    if (m < 1)
        return mr_zeros(MR_SHAPE(0), MR_FLOAT32);
    if (m == 1)
        return mr_ones(MR_SHAPE(1), MR_FLOAT32);
    return mr__cast(at(mr_linspace(0.0, 1.0, m, true, MR_FLOAT64)), MR_FLOAT32);
}

/* amount * cos(turns * 2 pi x) */
static mr_array *
wave(mr_array *x, double turns, double amount)
{
    return mr__scale(mr_cos(mr__scale(x, turns * 6.283185307179586)), amount);
}

static mr_array *
hanning_at(mr_array *x)
{
    return mr__shift(wave(x, 1.0, -0.5), 0.5);
}

static mr_array *
hamming_at(mr_array *x)
{
    return mr__shift(wave(x, 1.0, -0.46), 0.54);
}

static mr_array *
blackman_at(mr_array *x)
{
    return mr_add(mr__shift(wave(x, 1.0, -0.5), 0.42), wave(x, 2.0, 0.08));
}

static mr_array *
bartlett_at(mr_array *x)
{
    return mr__shift(mr_negative(mr_abs(mr__shift(mr__scale(x, 2.0), -1.0))),
                     1.0);
}

mr_array *
mr__build_hanning(int64_t M)
{
    return window(M, hanning_at);
}

mr_array *
mr__build_hamming(int64_t M)
{
    return window(M, hamming_at);
}

mr_array *
mr__build_blackman(int64_t M)
{
    return window(M, blackman_at);
}

mr_array *
mr__build_bartlett(int64_t M)
{
    return window(M, bartlett_at);
}
