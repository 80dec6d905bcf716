/* SPDX-License-Identifier: Apache-2.0
 *
 * check_grad.c -- a gradient against central differences.
 *
 * The error of a central difference is the step's square times the third
 * derivative, and the rounding of a value over the step: steps and tolerances
 * are chosen for that.
 * Called by: users.  Calls: grad.c, marram/ops.h.
 */
#include <math.h>

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
    mr_fn fn;
    void *ctx;
    const mr_tree *args;
    int n;                  /* leaves */
    mr_array **x;           /* they */
    double step, tolerance; /* 0: by dtype */
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
    out = in == NULL ? NULL
                     : mr__callee_call(&(mr_callee){c->fn, c->ctx, false}, in);
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
check_place(const checked *c, int leaf, mr_array *grad, int64_t i)
{
    bool wide = c->x[leaf]->dtype == MR_FLOAT64;
    double bound = c->tolerance > 0.0 ? c->tolerance : wide ? 1e-6 : 1e-2;
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
    if (fabs(given - slope) <= bound + bound * fabs(slope))
        return MR_OK;
    return mr__fail(MR_E_VALUE,
                    "leaf %d of the arguments, element %lld of %lld: the "
                    "gradient is %.8g, differences give %.8g",
                    leaf, (long long)i, (long long)x->size, given, slope);
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
    mr_tree *grads;
    mr_code rc;

    if (mr_tree_leaves(c->args, c->x, c->n) != MR_OK)
        return mr__error_code();
    rc = choose(c, argnums, &n_argnums);
    if (rc != MR_OK)
        return rc;
    grads = mr_grad(c->fn, c->ctx, c->args, argnums, n_argnums);
    if (grads == NULL ||
        mr_tree_leaves(grads, grad, mr_tree_n_leaves(grads)) != MR_OK)
        return mr__error_code();
    for (int i = 0; i < c->n && rc == MR_OK; i++)
        if (is_checked(c->x[i]))
            rc = check_leaf(c, i, grad[at++]);
    return rc;
}

mr_code
mr_check_grad(mr_fn fn, void *ctx, const mr_tree *args, double step,
              double tolerance)
{
    checked c = {.fn = fn,
                 .ctx = ctx,
                 .args = args,
                 .step = step,
                 .tolerance = tolerance};
    mr_array **grad;
    int *argnums;
    mr_code rc;
    mr_scope s;

    if (args == NULL || fn == NULL)
        return mr__fail(MR_E_NULL, "%s is NULL", fn ? "args" : "fn");
    if (mr_tree_kind_of(args) != MR_TREE_TUPLE)
        return mr__fail(MR_E_VALUE, "the arguments are no tuple");
    if (!(step >= 0.0) || !(tolerance >= 0.0) || isinf(step))
        return mr__fail(MR_E_VALUE,
                        "a step of %g and a tolerance of %g: needs positive "
                        "numbers, or 0 for the usual ones",
                        step, tolerance);
    c.n = mr_tree_n_leaves(args);
    c.x = mr__alloc_array((size_t)c.n + 1, sizeof(mr_array *));
    grad = mr__alloc_array((size_t)c.n + 1, sizeof(mr_array *));
    argnums = mr__alloc_array((size_t)mr_tree_size(args) + 1, sizeof(int));
    s = mr_scope_begin();
    rc = c.x && grad && argnums ? check_all(&c, argnums, grad) : MR_E_MEMORY;
    mr_scope_end(s);
    mr__dealloc(c.x);
    mr__dealloc(grad);
    mr__dealloc(argnums);
    return rc;
}
