/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.c -- bodies made of elementwise operators: where, clip, divmod,
 * isclose, rounding to decimals, casts, angles.
 *
 * Called by: the generated doors.  Calls: marram/ops.h.
 */
#include <math.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/tree.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

/* -- cast (astype) --------------------------------------------------------- */

static mr_code
cast_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_cast_params *p = c->params;

    if (!mr__dtype_valid(p->dtype))
        return mr__fail(MR_E_DTYPE, "no dtype has the number %d",
                        (int)p->dtype);
    mr__aval_like(out, c->in[0]);
    out->dtype = p->dtype;
    return MR_OK;
}

/* A cast to integers is a step function.  Complex to real drops the imaginary
 * part, real to complex adds one of 0: each is the transpose of the other. */
static mr_array *
cast_vjp(const mr_rule *r, int i)
{
    const mr_cast_params *p = mr__params(r->node);

    if (!mr__dtype_is_inexact(p->dtype))
        return MR_NONE;
    return mr__cast(r->cotangent[0], (mr_dtype)r->primal[i]->dtype);
}

static mr_array *
cast_jvp(const mr_rule *r, int i)
{
    const mr_cast_params *p = mr__params(r->node);

    if (!mr__dtype_is_inexact(p->dtype))
        return MR_NONE;
    return mr__cast(r->tangent[i], p->dtype);
}

static mr_array *
cast_vmap(const mr_batch *b)
{
    const mr_cast_params *p = mr__params(b->node);

    return mr__cast(b->in[0], p->dtype);
}

static const mr_field cast_fields[] = {
    MR_FIELD(1, DTYPE, mr_cast_params, dtype),
};

const mr_op mr__op_cast = {
    .id = MR_OP_CAST,
    .version = 1,
    .n_in = 1,
    .name = "astype",
    MR__PARAMS(mr_cast_params, cast_fields),
    .infer = cast_infer,
    .vjp = cast_vjp,
    .jvp = cast_jvp,
    .vmap = cast_vmap,
    .fuse = {MR_FUSE_ELEMENTWISE, MR_K_CAST},
};

mr_array *
mr__build_astype(mr_array *a, mr_dtype dtype)
{
    return mr__cast(a, dtype);
}

/* -- stop_gradient, positive ----------------------------------------------- */

static mr_array *
stop_gradient_vmap(const mr_batch *b)
{
    return mr_stop_gradient(b->in[0]);
}

static bool
same_view(const mr_node *n, const mr_layout *in, mr_layout *out)
{
    (void)n;
    *out = *in;
    return true;
}

const mr_op mr__op_stop_gradient = {
    .id = MR_OP_STOP_GRADIENT,
    .version = 1,
    .n_in = 1,
    .name = "stop_gradient",
    .flags = MR_FLAG_ZERO_GRADIENT | MR_FLAG_IDENTITY,
    .infer = mr__infer_same,
    .vmap = stop_gradient_vmap,
    .fuse = {MR_FUSE_VIEW, 0},
    .view = same_view,
};

mr_array *
mr__build_stop_gradient(mr_array *a)
{
    return mr__node_new(&mr__op_stop_gradient, NULL, 1, &a);
}

mr_array *
mr__build_positive(mr_array *a)
{
    return a;
}

/* -- rounding, angles -------------------------------------------------------
 */

/* Integers are exact before the point; ten to the power of `places` wraps for
 * none that fits the type. */
static mr_array *
round_integers(mr_array *a, int64_t places)
{
    mr_dtype t = (mr_dtype)a->dtype;
    int64_t ten = 1, bits = 8 * mr__dtype_size(t);
    mr_array *q, *rest, *half, *up;

    for (int64_t i = 0; i < places; i++) {
        if (ten > INT64_MAX / 10)
            return mr__zeros_like(a);
        ten *= 10;
    }
    if (bits < 64 && ten >> (bits - 1) != 0) { /* beyond all values but half */
        a = mr__cast(a, MR_INT64);
        return a == NULL ? NULL : mr_astype(round_integers(a, places), t);
    }
    q = mr_floor_divide(a, mr__integer(t, ten));
    rest = mr_remainder(a, mr__integer(t, ten));
    half = mr__integer(t, ten / 2);
    up = mr_logical_or(
        mr_greater(rest, half),
        mr_logical_and(
            mr_equal(rest, half),
            mr_equal(mr_remainder(q, mr__integer(t, 2)), mr__integer(t, 1))));
    return mr_multiply(mr_add(q, mr_astype(up, t)), mr__integer(t, ten));
}

/* The largest power of ten that t holds. */
static int64_t
most_places(mr_dtype t)
{
    mr_dtype real = mr__to_real(t);

    return real == MR_FLOAT64 ? 308 : real == MR_FLOAT16 ? 4 : 38;
}

mr_array *
mr__build_round(mr_array *a, int64_t decimals)
{
    mr_dtype t = (mr_dtype)a->dtype;
    int64_t places = decimals == INT64_MIN ? INT64_MAX
                     : decimals < 0        ? -decimals
                                           : decimals;
    mr_array *y, *fits;
    double ten;

    if (!mr__dtype_is_inexact(t)) {
        if (decimals >= 0 || t == MR_BOOL)
            return a;
        return round_integers(a, places);
    }
    if (decimals == 0)
        return mr__node_elementwise(&mr__op_rint, t, 1, &a);
    if (places > most_places(t)) {
        if (t == MR_FLOAT16 && places <= most_places(MR_FLOAT32))
            return mr__cast(mr_round(mr__cast(a, MR_FLOAT32), decimals), t);
        return decimals > 0 ? a : mr__zeros_like(a);
    }
    ten = pow(10.0, (double)places);
    /* Scaling by a whole power of ten, up or down, rounds least.  What
     * overflows then has no such decimals: it stays. */
    y = decimals > 0 ? mr__scale(a, ten) : mr_divide(a, mr__number(t, ten));
    if (y == NULL)
        return NULL;
    fits = mr_isfinite(y);
    y = mr__node_elementwise(&mr__op_rint, t, 1, &y);
    if (decimals < 0)
        return mr__scale(y, ten);
    return mr_where(fits, mr_divide(y, mr__number(t, ten)),
                    mr_stop_gradient(a));
}

mr_array *
mr__build_degrees(mr_array *a)
{
    return mr__scale(mr__cast(a, mr__to_inexact((mr_dtype)a->dtype)),
                     57.29577951308232); /* 180 / pi */
}

mr_array *
mr__build_radians(mr_array *a)
{
    return mr__scale(mr__cast(a, mr__to_inexact((mr_dtype)a->dtype)),
                     0.017453292519943295); /* pi / 180 */
}

/* -- where, clip, nan_to_num -------------------------------------------------
 */

mr_array *
mr__build_where(mr_array *condition, mr_array *x, mr_array *y)
{
    int64_t dim[MR_MAX_NDIM];
    int32_t ndim = mr__broadcast_shapes(x->ndim, x->dim, y->ndim, y->dim, dim);
    mr_dtype t = mr__promote((mr_dtype)x->dtype, (mr_dtype)y->dtype);
    mr_array *in[3];
    mr_text tc, tx, ty;

    if (ndim >= 0)
        ndim = mr__broadcast_shapes(condition->ndim, condition->dim, ndim, dim,
                                    dim);
    if (ndim < 0)
        return mr__fail_null(MR_E_SHAPE,
                             "shapes %s, %s and %s do not broadcast",
                             mr__shape_of(condition, &tc), mr__shape_of(x, &tx),
                             mr__shape_of(y, &ty));
    in[0] = mr__broadcast(mr__cast(condition, MR_BOOL), ndim, dim);
    in[1] = mr__broadcast(mr__cast(x, t), ndim, dim);
    in[2] = mr__broadcast(mr__cast(y, t), ndim, dim);
    if (in[0] == NULL || in[1] == NULL || in[2] == NULL)
        return NULL;
    return mr__node_elementwise(&mr__op_select, t, 3, in);
}

/* maximum and minimum give a tie's derivative to the bound: so it is 0 at and
 * beyond the bounds. */
mr_array *
mr__build_clip(mr_array *a, mr_array *a_min, mr_array *a_max)
{
    if (!mr__given(a_min) && !mr__given(a_max))
        return mr__fail_null(MR_E_VALUE,
                             "at least one of a_min and a_max is needed");
    if (mr__given(a_min) && mr__given(a_max)) {
        /* one type for both steps, whichever bound asks for it */
        mr_dtype t = mr__promote((mr_dtype)a->dtype, (mr_dtype)a_min->dtype);

        t = mr__promote(t, (mr_dtype)a_max->dtype);
        a = mr__cast(a, t);
        a_min = mr__cast(a_min, t);
        a_max = mr__cast(a_max, t);
    }
    if (mr__given(a_min))
        a = mr_maximum(a, a_min);
    if (mr__given(a_max))
        a = mr_minimum(a, a_max); /* which wins where the bounds cross */
    return a;
}

/* The largest finite number of a floating type. */
static double
largest(mr_dtype t)
{
    mr_dtype real = mr__to_real(t);

    if (real == MR_FLOAT16)
        return 65504.0;
    if (real == MR_BFLOAT16)
        return 0x1.fep127;
    return real == MR_FLOAT64 ? 0x1.fffffffffffffp1023 : 0x1.fffffep127;
}

mr_array *
mr__build_nan_to_num(mr_array *a, double nan, double posinf, double neginf)
{
    mr_dtype t = (mr_dtype)a->dtype;
    double high = isnan(posinf) ? largest(t) : posinf;
    double low = isnan(neginf) ? -largest(t) : neginf;

    if (!mr__dtype_is_inexact(t))
        return a;
    if (mr__dtype_is_complex(t)) {
        mr_scalar unit = {.kind = MR_SCALAR_COMPLEX, .as.c = {0.0, 1.0}};
        mr_array *re = mr_nan_to_num(mr_real(a), nan, posinf, neginf);
        mr_array *im = mr_nan_to_num(mr_imag(a), nan, posinf, neginf);

        return mr_add(re, mr_multiply(im, mr_array_from_scalar(unit, t)));
    }
    a = mr_where(mr_isposinf(a), mr__number(t, high), a);
    a = mr_where(mr_isneginf(a), mr__number(t, low), a);
    return mr_where(mr_isnan(a), mr__number(t, nan), a);
}

/* -- divmod, closeness -------------------------------------------------------
 */

mr_tree *
mr__build_divmod(mr_array *a, mr_array *b)
{
    mr_array *r = mr_remainder(a, b); /* refuses complex numbers */
    mr_array *out[2] = {r == NULL ? NULL : mr_floor_divide(a, b), r};

    return mr_tree_arrays(2, out);
}

static mr_array *
equal_or_nan(mr_array *a, mr_array *b, bool equal_nan)
{
    mr_array *same = mr_equal(a, b);

    if (!equal_nan)
        return same;
    return mr_logical_or(same, mr_logical_and(mr_isnan(a), mr_isnan(b)));
}

mr_array *
mr__build_array_equal(mr_array *a, mr_array *b, bool equal_nan)
{
    bool same = a->ndim == b->ndim;

    for (int i = 0; same && i < a->ndim; i++)
        same = a->dim[i] == b->dim[i];
    if (!same)
        return mr_bool(false);
    return mr_all(equal_or_nan(a, b, equal_nan), MR_AXES_ALL, false);
}

mr_array *
mr__build_isclose(mr_array *a, mr_array *b, double rtol, double atol,
                  bool equal_nan)
{
    mr_dtype t =
        mr__to_inexact(mr__promote((mr_dtype)a->dtype, (mr_dtype)b->dtype));
    mr_array *near, *bound, *finite;

    a = mr__cast(a, t);
    b = mr__cast(b, t);
    bound = mr__shift(mr__scale(mr_abs(b), rtol), atol);
    near = mr_less_equal(mr_abs(mr_subtract(a, b)), bound);
    /* an infinity is near its like alone: its bound is infinite too */
    finite = mr_logical_and(mr_isfinite(a), mr_isfinite(b));
    return mr_logical_or(mr_logical_and(near, finite),
                         equal_or_nan(a, b, equal_nan));
}

mr_array *
mr__build_allclose(mr_array *a, mr_array *b, double rtol, double atol,
                   bool equal_nan)
{
    return mr_all(mr_isclose(a, b, rtol, atol, equal_nan), MR_AXES_ALL, false);
}

/* ---- nextafter
 * --------------------------------------------------------------------- */

/* The common type of both, a real inexact one, and one shape. */
static bool
real_operands(mr_array **a, mr_array **b)
{
    mr_dtype t = mr__promote((mr_dtype)(*a)->dtype, (mr_dtype)(*b)->dtype);
    mr_array *same[2] = {*a, *b};
    mr_tree *both;

    if (mr__dtype_is_complex(t)) {
        mr__fail(MR_E_DTYPE, "needs real numbers, got %s", mr_dtype_name(t));
        return false;
    }
    if (!mr__dtype_is_inexact(t))
        t = MR_FLOAT32;
    both = mr_broadcast_arrays(same, 2);
    if (both == NULL || mr_tree_leaves(both, same, 2) != MR_OK)
        return false;
    *a = mr__cast(same[0], t);
    *b = mr__cast(same[1], t);
    return *a != NULL && *b != NULL;
}

/* Neighbours have neighbouring bits, the larger magnitude the larger ones. */
static mr_array *
neighbour(mr_array *a, mr_array *b)
{
    mr_dtype t = (mr_dtype)a->dtype;
    mr_dtype bits = mr__dtype_size(t) == 2   ? MR_INT16
                    : mr__dtype_size(t) == 4 ? MR_INT32
                                             : MR_INT64;
    mr_array *zero = mr__number(t, 0.0);
    mr_array *away = mr_equal(mr_greater(b, a), mr_greater(a, zero));
    mr_array *step =
        mr_where(away, mr__integer(bits, 1), mr__integer(bits, -1));
    mr_array *next = mr_view(mr_add(mr_view(a, bits), step), t);
    mr_array *tiny = mr_view(mr__integer(bits, 1), t);

    next = mr_where(mr_equal(a, zero), mr_copysign(tiny, b), next);
    next = mr_where(mr_equal(a, b), b, next);
    return mr_where(mr_logical_or(mr_isnan(a), mr_isnan(b)), mr_add(a, b),
                    next);
}

/* a moves with its neighbour: so the difference is added, which is exact. */
mr_array *
mr__build_nextafter(mr_array *a, mr_array *b)
{
    mr_array *next, *moves, *from, *to;

    if (!real_operands(&a, &b))
        return NULL;
    from = mr_stop_gradient(a);
    to = mr_stop_gradient(b);
    if (from == NULL || to == NULL)
        return NULL;
    next = neighbour(from, to);
    moves = mr_logical_and(mr_isfinite(a), mr_not_equal(a, b));
    return mr_where(moves, mr_add(a, mr_stop_gradient(mr_subtract(next, a))),
                    next);
}
