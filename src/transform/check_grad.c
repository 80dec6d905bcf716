/* SPDX-License-Identifier: Apache-2.0
 *
 * check_grad.c -- a gradient against central differences.
 *
 * The error of a central difference is the step's square times the third
 * derivative, and the rounding of a value over the step: steps and tolerances
 * are chosen for that.
 * Called by: users, the Python extension.  Calls: grad.c, marram/ops.h.
 */
#include <math.h>
#include <stdio.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "graph/node.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/transform.h"
#include "marram/tree.h"
#include "transform/call.h"

enum { PLACES = 64 };

typedef struct checked {
    mr_callee f;
    const mr_tree *args;
    const char *const *name; /* of each leaf, or NULL */
    int n;                   /* leaves */
    mr_array **x;            /* they */
    double step;             /* 0: by dtype */
    double rtol, atol;       /* below 0: by dtype */
} checked;

static bool
is_checked(const mr_array *x)
{
    return x->dtype == MR_FLOAT32 || x->dtype == MR_FLOAT64;
}

static mr_code
number(mr_array *x, double *to)
{
    mr_scalar s;
    mr_code rc = mr_array_item(mr_astype(x, MR_FLOAT64), &s);

    if (rc == MR_OK)
        *to = s.as.f;
    return rc;
}

/* The function with another leaf in place of one. */
static mr_code
value_at(const checked *c, int leaf, mr_array *y, double *to)
{
    mr_scope s = mr_scope_begin();
    mr_array *old = c->x[leaf];
    mr_tree *in, *out;
    mr_code rc;

    c->x[leaf] = y;
    in = mr_tree_like(c->args, c->x, c->n);
    c->x[leaf] = old;
    out = in == NULL ? NULL : mr__callee_call(&c->f, in);
    rc = out == NULL ? mr__error_code()
                     : number(mr_tree_kind_of(out) == MR_TREE_LEAF
                                  ? mr_tree_array(out)
                                  : mr_tree_array_at(out, 0),
                              to);
    mr_tree_release(out);
    mr_scope_end(s);
    return rc;
}

/* x with element i moved by h, and where it is then. */
static mr_array *
moved(mr_array *x, int64_t i, double h, double *at)
{
    mr_array *flat = mr_reshape(x, MR_SHAPE(x->size));
    mr_array *here = mr_equal(
        mr_arange(MR_INTEGER(0), MR_INTEGER(x->size), MR_INTEGER(1), MR_INT64),
        mr_full(MR_SHAPE(1), (double)i, MR_INT64));
    mr_array *by =
        mr_astype(mr_full(MR_SHAPE(1), h, MR_FLOAT64), (mr_dtype)x->dtype);
    int64_t end = i + 1, step = 1;

    flat = mr_where(here, mr_add(flat, by), flat);
    if (number(
            mr_reshape(mr_index_slice(flat, (mr_ints){&i, 1},
                                      (mr_ints){&end, 1}, (mr_ints){&step, 1}),
                       (mr_shape){NULL, 0}),
            at) != MR_OK)
        return NULL;
    return mr_reshape(flat, (mr_shape){x->dim, x->ndim});
}

static mr_code
wrong_place(const checked *c, int leaf, int64_t i, double given, double slope)
{
    const mr_array *x = c->x[leaf];
    char name[48], shape[MR_MAX_NDIM * 22];

    snprintf(name, sizeof name, "leaf %d of the arguments", leaf);
    return mr__fail(MR_E_VALUE,
                    "%s, element %lld of shape %s: the gradient is %.8g, "
                    "differences give %.8g",
                    c->name ? c->name[leaf] : name, (long long)i,
                    mr__shape_text(shape, sizeof shape, x->ndim, x->dim), given,
                    slope);
}

static mr_code
check_place(const checked *c, int leaf, mr_array *grad, int64_t i)
{
    bool wide = c->x[leaf]->dtype == MR_FLOAT64;
    double usual = wide ? 1e-6 : 1e-2;
    double atol = c->atol < 0.0 ? usual : c->atol;
    double rtol = c->rtol < 0.0 ? usual : c->rtol;
    double h = c->step > 0.0 ? c->step : wide ? 6e-6 : 5e-3;
    double here, given, left, right, low, high, slope;
    mr_array *at, *x = c->x[leaf];

    if (moved(x, i, 0.0, &here) == NULL || moved(grad, i, 0.0, &given) == NULL)
        return mr__error_code();
    h *= fabs(here) > 1.0 ? fabs(here) : 1.0;
    at = moved(x, i, h, &right);
    if (at == NULL || value_at(c, leaf, at, &high) != MR_OK)
        return mr__error_code();
    at = moved(x, i, -h, &left);
    if (at == NULL || value_at(c, leaf, at, &low) != MR_OK)
        return mr__error_code();
    slope = (high - low) / (right - left);
    if (fabs(given - slope) <= atol + rtol * fabs(slope))
        return MR_OK;
    return wrong_place(c, leaf, i, given, slope);
}

static mr_code
check_leaf(const checked *c, int leaf, mr_array *grad)
{
    int64_t size = c->x[leaf]->size, n = size < PLACES ? size : PLACES;

    for (int64_t k = 0; k < n; k++) {
        mr_scope s = mr_scope_begin();
        int64_t i = n < PLACES || size == n ? k : k * ((size - 1) / (n - 1));
        mr_code rc = check_place(c, leaf, grad, i);

        mr_scope_end(s);
        if (rc != MR_OK)
            return rc;
    }
    return MR_OK;
}

/* The arguments that hold numbers to check; their leaves are marked. */
static mr_code
choose(const checked *c, int *argnums, int *n_argnums)
{
    int at = 0;

    for (int k = 0; k < mr_tree_size(c->args); k++) {
        int n = mr_tree_n_leaves(mr_tree_at(c->args, k)), good = 0;

        for (int i = at; i < at + n; i++)
            good += is_checked(c->x[i]);
        if (good > 0 && good < n)
            return mr__fail(MR_E_DTYPE,
                            "argument %d holds more than float32 and float64: "
                            "only these are checked",
                            k);
        if (good > 0)
            argnums[(*n_argnums)++] = k;
        at += n;
    }
    if (*n_argnums == 0)
        return mr__fail(MR_E_VALUE, "there is no float32 or float64 array "
                                    "among the arguments");
    return MR_OK;
}

static mr_code
check_all(const checked *c, int *argnums, mr_array **grad)
{
    int n_argnums = 0, at = 0;
    mr_tree *both;
    const mr_tree *grads;
    mr_code rc;

    if (mr_tree_leaves(c->args, c->x, c->n) != MR_OK)
        return mr__error_code();
    rc = choose(c, argnums, &n_argnums);
    if (rc != MR_OK)
        return rc;
    both = mr__value_and_grad(&c->f, c->args, argnums, n_argnums);
    grads = both == NULL ? NULL : mr_tree_at(both, 1);
    if (grads == NULL ||
        mr_tree_leaves(grads, grad, mr_tree_n_leaves(grads)) != MR_OK)
        return mr__error_code();
    for (int i = 0; i < c->n && rc == MR_OK; i++)
        if (is_checked(c->x[i]))
            rc = check_leaf(c, i, grad[at++]);
    return rc;
}

static mr_code
check_given(const checked *c)
{
    if (c->args == NULL)
        return mr__fail(MR_E_NULL, "args is NULL");
    if (mr_tree_kind_of(c->args) != MR_TREE_TUPLE)
        return mr__fail(MR_E_VALUE, "the arguments are no tuple");
    if (!(c->step >= 0.0) || isinf(c->step))
        return mr__fail(MR_E_VALUE,
                        "a step of %g: needs a positive number, or 0 for the "
                        "usual one",
                        c->step);
    return MR_OK;
}

static mr_code
check(checked *c)
{
    mr_code rc = check_given(c);
    mr_array **grad;
    int *argnums;
    mr_scope s;

    if (rc != MR_OK)
        return rc;
    c->n = mr_tree_n_leaves(c->args);
    c->x = mr__alloc_array((size_t)c->n + 1, sizeof(mr_array *));
    grad = mr__alloc_array((size_t)c->n + 1, sizeof(mr_array *));
    argnums = mr__alloc_array((size_t)mr_tree_size(c->args) + 1, sizeof(int));
    s = mr_scope_begin();
    rc = c->x && grad && argnums ? check_all(c, argnums, grad) : MR_E_MEMORY;
    mr_scope_end(s);
    mr__dealloc(c->x);
    mr__dealloc(grad);
    mr__dealloc(argnums);
    return rc;
}

mr_code
mr_check_grad(mr_fn fn, void *ctx, const mr_tree *args, double step,
              double tolerance)
{
    double bound = tolerance > 0.0 ? tolerance : -1.0;
    checked c = {.f = {fn, ctx, false},
                 .args = args,
                 .step = step,
                 .rtol = bound,
                 .atol = bound};

    if (fn == NULL)
        return mr__fail(MR_E_NULL, "fn is NULL");
    if (!(tolerance >= 0.0))
        return mr__fail(MR_E_VALUE,
                        "a tolerance of %g: needs a positive number, or 0 for "
                        "the usual one",
                        tolerance);
    return check(&c);
}

mr_code
mr_closure_check_grad(mr_closure *f, const mr_tree *args,
                      const char *const *names, double step, double rtol,
                      double atol)
{
    checked c = {
        .args = args, .name = names, .step = step, .rtol = rtol, .atol = atol};

    if (f == NULL)
        return mr__fail(MR_E_NULL, "the closure is NULL");
    if (isnan(rtol) || isnan(atol))
        return mr__fail(MR_E_VALUE, "a tolerance is NaN");
    c.f = mr__closure_callee(f);
    return check(&c);
}
