/* SPDX-License-Identifier: Apache-2.0
 *
 * door.c -- the front doors: argument checks, promotion, broadcasting, and the
 * frame (site, error door, scope) around hand-written bodies.
 *
 * The elementwise doors are the hot path: with operands of one dtype and shape
 * they make a node and nothing else.
 * Called by: the generated doors, bodies.  Calls: graph/, array/.
 */
#include "ops/door.h"

#include <stdatomic.h>
#include <string.h>

#include "array/buffer.h"
#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "base/log.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/context.h"
#include "graph/tape.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/tree.h"
#include "ops/params.h"
#include "ops/rules.h"

/* ---- promotion ------------------------------------------------------------
 */

static mr_code
refuse(mr_dtype t, const char *need)
{
    return mr__fail(MR_E_DTYPE, "needs %s, got %s", need, mr_dtype_name(t));
}

/* From the common type of the operands to the type that they take. */
static mr_code
promote(mr_promote_rule rule, mr_dtype *t)
{
    switch (rule) {
    case MR_PROMOTE_SAME:
    case MR_PROMOTE_COMPARE:
        return MR_OK;
    case MR_PROMOTE_FLOAT:
        *t = mr__to_inexact(*t);
        return MR_OK;
    case MR_PROMOTE_LOGICAL:
        *t = MR_BOOL;
        return MR_OK;
    case MR_PROMOTE_INT:
        if (mr__dtype_is_inexact(*t))
            return refuse(*t, "integers or bool");
        return MR_OK;
    case MR_PROMOTE_SHIFT:
        if (mr__dtype_is_inexact(*t))
            return refuse(*t, "integers or bool");
        if (*t == MR_BOOL)
            *t = MR_UINT8;
        return MR_OK;
    case MR_PROMOTE_NUMERIC:
        if (*t == MR_BOOL)
            return refuse(*t, "numbers (logical_not is for bool)");
        return MR_OK;
    case MR_PROMOTE_REAL:
        if (mr__dtype_is_complex(*t))
            return refuse(*t, "real numbers");
        *t = mr__to_inexact(*t);
        return MR_OK;
    case MR_PROMOTE_NONCOMPLEX:
        if (mr__dtype_is_complex(*t))
            return refuse(*t, "real numbers");
        return MR_OK;
    }
    return mr__fail(MR_E_INTERNAL, "unknown promotion rule %d", (int)rule);
}

/* ---- what every door does --------------------------------------------------
 */

static bool
check_argument(const mr_array *x, const char *name)
{
    if (x == NULL) {
        if (!mr__error_pending())
            mr__fail(MR_E_NULL, "argument '%s' is NULL", name);
        return false;
    }
    if (x == MR_NONE) {
        mr__fail(MR_E_NULL, "argument '%s' is absent (MR_NONE)", name);
        return false;
    }
    return true;
}

/* Library code may have named its user's line already. */
static inline const char *
site_enter(const char *site)
{
    const char *old = mr__ctx.site;

    if (old == NULL)
        mr__ctx.site = site;
    return old;
}

/* What had to wait for a user thread that holds no lock. */
static inline void
run_deferred(void)
{
    /* relaxed: only a hint; drain reads the list with acquire */
    if (atomic_load_explicit(&mr__buffer_deferred, memory_order_relaxed) !=
        NULL)
        mr__buffer_drain_deferred();
    mr__log_flush();
}

/* The end of a door: nothing is held, and the result is its owner's. */
static inline mr_array *
door_end(mr_array *result)
{
    run_deferred();
    if (__builtin_expect(mr__ctx.deep == NULL, 1) || mr__deep_evaluate())
        return result;
    mr__scope_disown(result);
    return NULL;
}

static mr_array *
unary(const mr_op *op, mr_array *a, mr_promote_rule rule)
{
    mr_dtype t = (mr_dtype)a->dtype;
    mr_scope s;
    mr_array *y;

    if (promote(rule, &t) != MR_OK)
        return NULL;
    if (t == (mr_dtype)a->dtype)
        return mr__node_elementwise(op, mr__k_dtype(op->fuse.k, t), 1, &a);
    s = mr_scope_begin();
    if (s.token == 0)
        return NULL;
    a = mr__cast(a, t);
    y = a == NULL ? NULL
                  : mr__node_elementwise(op, mr__k_dtype(op->fuse.k, t), 1, &a);
    y = mr_scope_return(s, y);
    mr_scope_end(s);
    return y;
}

/* ---- the elementwise doors as steps of a tape ------------------------------
 */

typedef struct given_operands {
    const mr_op *op;
    mr_array *a, *b;
    mr_promote_rule rule;
} given_operands;

static void *
unary_again(const char *site, const void *given)
{
    const given_operands *g = given;

    return mr__door_unary(site, g->op, g->a, g->rule);
}

static void *
binary_again(const char *site, const void *given)
{
    const given_operands *g = given;

    return mr__door_binary(site, g->op, g->a, g->b, g->rule);
}

static const mr_tape_arg operand_args[] = {
    {MR_TAPE_ARRAY, offsetof(given_operands, a), 0},
    {MR_TAPE_ARRAY, offsetof(given_operands, b), 0}};
static const mr_tape_door unary_door = {unary_again, operand_args, 1,
                                        sizeof(given_operands), false};
static const mr_tape_door binary_door = {binary_again, operand_args, 2,
                                         sizeof(given_operands), false};

mr_array *
mr__door_unary(const char *site, const mr_op *op, mr_array *a,
               mr_promote_rule rule)
{
    struct mr__door error;
    const char *outer;
    mr_array *y = NULL;

    if (__builtin_expect(mr__ctx.tape != NULL, 0))
        return mr__tape_call(&unary_door, site,
                             &(given_operands){op, a, NULL, rule});
    error = mr__error_door_outer(op->name, site);
    outer = site_enter(site);
    if (check_argument(a, "a"))
        y = unary(op, a, rule);
    mr__ctx.site = outer;
    mr__error_door_restore(error);
    return door_end(y);
}

/* Operands that differ: in a scope, because the casts and broadcasts are
 * temporaries. */
static mr_array *
binary_lined_up(const mr_op *op, mr_dtype t, mr_array *a, mr_array *b)
{
    int64_t dim[MR_MAX_NDIM];
    int32_t ndim = mr__broadcast_shapes(a->ndim, a->dim, b->ndim, b->dim, dim);
    mr_array *in[2], *y = NULL;
    mr_text ta, tb;
    mr_scope s;

    if (ndim < 0) {
        mr__fail(MR_E_SHAPE, "shapes %s and %s do not broadcast",
                 mr__shape_of(a, &ta), mr__shape_of(b, &tb));
        return NULL;
    }
    s = mr_scope_begin();
    if (s.token == 0)
        return NULL;
    in[0] = mr__broadcast(mr__cast(a, t), ndim, dim);
    in[1] = mr__broadcast(mr__cast(b, t), ndim, dim);
    if (in[0] != NULL && in[1] != NULL)
        y = mr__node_elementwise(op, mr__k_dtype(op->fuse.k, t), 2, in);
    y = mr_scope_return(s, y);
    mr_scope_end(s);
    return y;
}

static mr_array *
binary(const mr_op *op, mr_array *a, mr_array *b, mr_promote_rule rule)
{
    mr_dtype ta = (mr_dtype)a->dtype, tb = (mr_dtype)b->dtype;
    mr_dtype t = ta == tb ? ta : mr__promote(ta, tb);

    if (promote(rule, &t) != MR_OK)
        return NULL;
    if (ta == t && tb == t && a->ndim == b->ndim &&
        memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) == 0)
        return mr__node_elementwise(op, mr__k_dtype(op->fuse.k, t), 2,
                                    (mr_array *[]){a, b});
    return binary_lined_up(op, t, a, b);
}

mr_array *
mr__door_binary(const char *site, const mr_op *op, mr_array *a, mr_array *b,
                mr_promote_rule rule)
{
    struct mr__door error;
    const char *outer;
    mr_array *y = NULL;

    if (__builtin_expect(mr__ctx.tape != NULL, 0))
        return mr__tape_call(&binary_door, site,
                             &(given_operands){op, a, b, rule});
    error = mr__error_door_outer(op->name, site);
    outer = site_enter(site);
    if (check_argument(a, "a") && check_argument(b, "b"))
        y = binary(op, a, b, rule);
    mr__ctx.site = outer;
    mr__error_door_restore(error);
    return door_end(y);
}

/* ---- the frame of bodies ---------------------------------------------------
 */

bool
mr__door_open(mr_door *d, const char *site, const char *name, int n,
              mr_array *const *args, const char *const *arg_names)
{
    bool ok = true;

    d->error = mr__error_door_outer(name, site);
    d->outer_site = site_enter(site);
    for (int i = 0; ok && i < n; i++) {
        /* MR_NONE is for the body to judge: the argument may be optional */
        if (args[i] != MR_NONE)
            ok = check_argument(args[i], arg_names[i]);
    }
    if (ok) {
        d->scope = mr_scope_begin();
        ok = d->scope.token != 0;
    }
    if (!ok) {
        mr__ctx.site = d->outer_site;
        mr__error_door_restore(d->error);
    }
    return ok;
}

static void
door_leave(mr_door *d)
{
    mr_scope_end(d->scope);
    mr__ctx.site = d->outer_site;
    mr__error_door_restore(d->error);
}

mr_array *
mr__door_close(mr_door *d, mr_array *result)
{
    /* The result may be an argument, which the scope does not own: so it gets
     * a reference of its own, which the outer owner takes. */
    if (result != NULL)
        mr__retain(result);
    door_leave(d);
    return door_end(result == NULL ? NULL : mr__scope_own(result));
}

mr_tree *
mr__door_close_tree(mr_door *d, mr_tree *result)
{
    if (result != NULL)
        result = mr_tree_retain(result);
    door_leave(d);
    result = result == NULL ? NULL : mr__scope_own_tree(result);
    run_deferred();
    if (__builtin_expect(mr__ctx.deep == NULL, 1) || mr__deep_evaluate())
        return result;
    mr__scope_disown_tree(result);
    return NULL;
}

/* ---- help for bodies -------------------------------------------------------
 */

bool
mr__axis(int64_t axis, int32_t ndim, int32_t *out)
{
    if (axis < -(int64_t)ndim || axis >= ndim) {
        if (axis == MR_AXIS_NONE)
            mr__fail(MR_E_VALUE, "needs an axis, got none");
        else
            mr__fail(MR_E_INDEX,
                     "axis %lld is out of range for an array of %d axes",
                     (long long)axis, (int)ndim);
        return false;
    }
    *out = (int32_t)(axis < 0 ? axis + ndim : axis);
    return true;
}

mr_array *
mr__along(mr_array *a, int64_t axis, int32_t *k)
{
    *k = 0;
    if (a == NULL)
        return NULL;
    if (axis == MR_AXIS_NONE)
        return mr_flatten(a, 0, -1);
    return mr__axis(axis, a->ndim, k) ? a : NULL;
}

bool
mr__axes_mask(mr_axes axes, int32_t ndim, uint32_t *out)
{
    uint32_t mask = 0;

    if (axes.n < 0) {
        *out = ndim >= 32 ? UINT32_MAX : ((uint32_t)1 << ndim) - 1;
        return true;
    }
    for (int32_t i = 0; i < axes.n; i++) {
        int32_t k;

        if (!mr__axis(axes.axis[i], ndim, &k))
            return false;
        if (mask >> k & 1) {
            mr__fail(MR_E_VALUE, "axis %d is given twice", (int)k);
            return false;
        }
        mask |= (uint32_t)1 << k;
    }
    *out = mask;
    return true;
}

mr_array *
mr__cast(mr_array *x, mr_dtype t)
{
    mr_cast_params p = {t};

    if (x == NULL || (mr_dtype)x->dtype == t)
        return x;
    return mr__node_new(&mr__op_cast, &p, 1, &x);
}

mr_array *
mr__broadcast(mr_array *x, int32_t ndim, const int64_t *dim)
{
    mr_broadcast_params p = {{dim, ndim}, true};

    if (x == NULL || (x->ndim == ndim &&
                      memcmp(x->dim, dim, (size_t)ndim * sizeof *dim) == 0))
        return x;
    return mr__node_new(&mr__op_broadcast_to, &p, 1, &x);
}

mr_array *
mr__number(mr_dtype t, double v)
{
    mr_scalar s = {.kind = MR_SCALAR_FLOAT, .as.f = v};

    return mr_array_from_scalar(s, t);
}

mr_array *
mr__integer(mr_dtype t, int64_t v)
{
    mr_scalar s = {.kind = MR_SCALAR_INT, .as.i = v};

    return mr_array_from_scalar(s, t);
}
