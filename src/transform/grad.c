/* SPDX-License-Identifier: Apache-2.0
 *
 * grad.c -- the public reverse-mode transforms: value_and_grad, grad, vjp.
 *
 * All three trace the function at tracers, pull cotangents back over the walk
 * and shape what arrived at the tracers like the arguments.  An argument that
 * the result does not depend on has a gradient of zeros.
 *
 * Called by: users, the bindings.  Calls: traced.c, vjp.c.
 */
#include "array/dtype.h"
#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "graph/node.h"
#include "graph/tape.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/transform.h"
#include "marram/tree.h"
#include "transform/call.h"
#include "transform/traced.h"
#include "transform/walk.h"

/* The cotangent that arrived at tracer i, or zeros. */
static mr_array *
arrived(const mr_traced *t, size_t i)
{
    mr_array *v = t->walk.value[i];

    return v ? v : mr__result_zeros(t->tracer[i], 0);
}

/* ---- vjp ------------------------------------------------------------------
 */

/* The cotangents, in the outputs' dtypes, one for each output. */
static mr_code
match_cotangents(const mr_leaves *y, mr_leaves *c)
{
    if (y->n != c->n)
        return mr__fail(MR_E_VALUE,
                        "%d cotangents for %d outputs: one each is right", c->n,
                        y->n);
    for (int i = 0; i < y->n; i++) {
        mr_code code = mr__leaf_shape(y->v[i], c->v[i], "cotangent", i);

        if (code != MR_OK)
            return code;
        if (c->v[i]->dtype != y->v[i]->dtype)
            c->v[i] = mr_astype(c->v[i], y->v[i]->dtype);
        if (!c->v[i])
            return mr__error_code();
    }
    return MR_OK;
}

/* (outputs, a tree like the primals). */
static mr_tree *
pair_with_cotangents(const mr_traced *t, const mr_tree *primals)
{
    mr_array **g = mr__alloc_array(t->n_tracers, sizeof *g);
    mr_tree *pair[2] = {t->out, NULL};
    bool ok = g != NULL;

    for (size_t i = 0; ok && i < t->n_tracers; i++) {
        g[i] = arrived(t, i);
        ok = g[i] != NULL;
    }
    if (ok)
        pair[1] = mr_tree_like(primals, g, t->n_leaves);
    mr__dealloc(g);
    return pair[1] ? mr_tree_tuple(2, pair) : NULL;
}

static mr_tree *
pull_back(mr_traced *t, const mr_callee *f, const mr_tree *primals,
          const mr_leaves *x, mr_leaves *c)
{
    if (mr__traced_begin(t, x) != MR_OK ||
        mr__traced_values(t, NULL) != MR_OK ||
        mr__traced_call(t, f, primals) != MR_OK ||
        match_cotangents(&t->y, c) != MR_OK ||
        mr__traced_walk(t, MR_RULE_VJP) != MR_OK ||
        mr__walk_backward(&t->walk, t->n_tracers, t->y.v, c->v,
                          (size_t)t->y.n) != MR_OK)
        return NULL;
    return pair_with_cotangents(t, primals);
}

static mr_tree *
vjp_again(const mr_tape_transform *t, mr_fn fn, void *ctx, bool foreign)
{
    return mr__vjp(&(mr_callee){fn, ctx, foreign}, t->tree[0], t->tree[1]);
}

mr_tree *
mr__vjp(const mr_callee *f, const mr_tree *primals, const mr_tree *cotangents)
{
    mr_leaves x = {0}, c = {0};
    mr_traced t = {0};
    mr_tree *result = NULL;
    mr_scope s;

    if (mr__ctx.tape != NULL && primals != NULL && cotangents != NULL)
        return mr__tape_call_transform(
            &(mr_tape_transform){.call = vjp_again,
                                 .tree = {primals, cotangents}},
            f->fn, f->ctx, f->foreign);
    s = mr_scope_begin();
    if (s.token == 0)
        return NULL;
    if (mr__leaves_of(&x, primals, "primals") == MR_OK &&
        mr__leaves_of(&c, cotangents, "cotangents") == MR_OK)
        result = pull_back(&t, f, primals, &x, &c);
    mr__traced_end(&t);
    mr__leaves_free(&x);
    mr__leaves_free(&c);
    result = mr_scope_return_tree(s, result);
    mr_scope_end(s);
    return result;
}

/* ---- value_and_grad -------------------------------------------------------
 */

/* Which arguments: made plain, with the place of their leaves. */
typedef struct choice {
    int n;
    int *arg;     /* n numbers of arguments */
    int *leaf;    /* first leaf of each of all arguments, and the end */
    bool *wanted; /* a flag for each leaf */
} choice;

static void
choice_free(choice *c)
{
    mr__dealloc(c->arg);
    mr__dealloc(c->leaf);
    mr__dealloc(c->wanted);
}

static mr_code
choose_args(choice *c, const int *argnums, int n_argnums, int n_args)
{
    static const int first = 0;

    if (n_argnums < 0 || (n_argnums > 0 && argnums == NULL))
        return mr__fail(MR_E_VALUE,
                        "%d argnums: needs a list of them, or NULL and 0 for "
                        "the first argument",
                        n_argnums);
    if (n_argnums == 0) {
        argnums = &first;
        n_argnums = 1;
    }
    c->arg = mr__alloc_array((size_t)n_argnums, sizeof *c->arg);
    if (!c->arg)
        return MR_E_MEMORY;
    for (int i = 0; i < n_argnums; i++) {
        int a = argnums[i] < 0 ? argnums[i] + n_args : argnums[i];

        if (a < 0 || a >= n_args)
            return mr__fail(MR_E_VALUE,
                            "argnum %d for a function of %d argument%s",
                            argnums[i], n_args, n_args == 1 ? "" : "s");
        for (int j = 0; j < i; j++)
            if (c->arg[j] == a)
                return mr__fail(MR_E_VALUE,
                                "argnum %d twice: each argument once is right",
                                argnums[i]);
        c->arg[c->n++] = a;
    }
    return MR_OK;
}

static mr_code
choose_leaves(choice *c, const mr_tree *args, const mr_leaves *x)
{
    int n_args = mr_tree_size(args), at = 0;

    c->leaf = mr__alloc_array((size_t)n_args + 1, sizeof *c->leaf);
    c->wanted = mr__alloc_zero(((size_t)x->n + 1) * sizeof *c->wanted);
    if (!c->leaf || !c->wanted)
        return MR_E_MEMORY;
    for (int i = 0; i < n_args; i++) {
        c->leaf[i] = at;
        at += mr_tree_n_leaves(mr_tree_at(args, i));
    }
    c->leaf[n_args] = at;
    for (int i = 0; i < c->n; i++) {
        int a = c->arg[i];

        for (int j = c->leaf[a]; j < c->leaf[a + 1]; j++) {
            if (!mr__dtype_is_inexact(x->v[j]->dtype) &&
                !(mr__ctx.grad_mode & MR_GRAD_ALLOW_INT))
                return mr__fail(
                    MR_E_DTYPE,
                    "argument %d holds %s, which has no gradient: cast it to "
                    "a floating dtype, leave it out of argnums, or have zeros "
                    "for it (allow_int; in C MR_GRAD_ALLOW_INT)",
                    a, mr_dtype_name(x->v[j]->dtype));
            c->wanted[j] = true;
        }
    }
    return MR_OK;
}

/* The number to differentiate: the result, or the first of its tuple. */
static mr_array *
objective(const mr_tree *out)
{
    mr_tree_kind kind = mr_tree_kind_of(out);
    const mr_tree *first = out;
    mr_array *y;
    char text[256];

    if (kind == MR_TREE_TUPLE)
        first = mr_tree_size(out) > 0 ? mr_tree_at(out, 0) : NULL;
    if (!first || mr_tree_kind_of(first) != MR_TREE_LEAF)
        return mr__fail_null(
            MR_E_VALUE,
            "the function must give a 0-d array, or a tuple that "
            "begins with one, to be differentiated; it gave %s",
            kind == MR_TREE_TUPLE  ? "a tuple that does not"
            : kind == MR_TREE_LIST ? "a list"
            : kind == MR_TREE_DICT ? "a dict"
                                   : "none");
    y = mr_tree_array(first);
    if (y->ndim != 0)
        return mr__fail_null(
            MR_E_SHAPE,
            "the function must give a 0-d array to be "
            "differentiated; it gave the shape %s: reduce it with "
            "sum or mean, or use vjp",
            mr__shape_text(text, sizeof text, y->ndim, y->dim));
    if (mr__dtype_kind(y->dtype) != MR_KIND_FLOAT)
        return mr__fail_null(
            MR_E_DTYPE,
            "the function must give a real floating number to be "
            "differentiated; it gave %s",
            mr_dtype_name(y->dtype));
    return y;
}

/* A tree like the one chosen argument, or a tuple of such. */
static mr_tree *
shape_grads(const mr_traced *t, const choice *c, const mr_tree *args)
{
    mr_array **g = mr__alloc_zero((size_t)(t->n_leaves + 1) * sizeof *g);
    mr_tree **tree = mr__alloc_zero((size_t)(c->n + 1) * sizeof *tree);
    mr_tree *all = NULL;
    bool ok = g && tree;
    size_t n = 0;

    for (int i = 0; ok && i < t->n_leaves; i++) {
        if (!c->wanted[i])
            continue;
        g[i] = arrived(t, n++);
        ok = g[i] != NULL;
    }
    for (int i = 0; ok && i < c->n; i++) {
        int a = c->arg[i];

        tree[i] = mr_tree_like(mr_tree_at(args, a), g + c->leaf[a],
                               c->leaf[a + 1] - c->leaf[a]);
        ok = tree[i] != NULL;
    }
    if (ok)
        all = c->n == 1 ? tree[0] : mr_tree_tuple(c->n, tree);
    mr__dealloc(g);
    mr__dealloc(tree);
    return all;
}

static mr_tree *
trace_and_pull(mr_traced *t, const mr_callee *f, const mr_tree *args,
               const mr_leaves *x, const choice *c)
{
    mr_array *y, *one;

    if (mr__traced_begin(t, x) != MR_OK ||
        mr__traced_values(t, c->wanted) != MR_OK ||
        mr__traced_call(t, f, args) != MR_OK)
        return NULL;
    y = objective(t->out);
    if (!y)
        return NULL;
    one = mr__result_ones(y, 0);
    /* Only the objective: what is auxiliary needs no walk. */
    if (!one ||
        mr__walk_open(&t->walk, MR_RULE_VJP, t->trace, t->tracer, t->n_tracers,
                      &y, 1) != MR_OK ||
        mr__walk_backward(&t->walk, t->n_tracers, &y, &one, 1) != MR_OK)
        return NULL;
    return shape_grads(t, c, args);
}

static mr_code
check_args(const mr_tree *args)
{
    mr_tree_kind kind;

    if (!args) {
        if (!mr__error_pending())
            mr__fail(MR_E_NULL, "args is NULL");
        return mr__error_code();
    }
    kind = mr_tree_kind_of(args);
    if (kind != MR_TREE_TUPLE && kind != MR_TREE_LIST)
        return mr__fail(MR_E_TYPE,
                        "the arguments must be a tuple, one entry for each "
                        "(MR_ARRAYS, mr_tree_tuple)");
    return MR_OK;
}

enum result_kind { VALUE_AND_GRAD, GRAD_ALONE };

static mr_tree *differentiate(const mr_callee *f, const mr_tree *args,
                              const int *argnums, int n_argnums,
                              enum result_kind kind);

static mr_tree *
differentiate_again(const mr_tape_transform *t, mr_fn fn, void *ctx,
                    bool foreign)
{
    return differentiate(&(mr_callee){fn, ctx, foreign}, t->tree[0], t->list[0],
                         t->n[0], (enum result_kind)t->kind);
}

static mr_tree *
differentiate(const mr_callee *f, const mr_tree *args, const int *argnums,
              int n_argnums, enum result_kind kind)
{
    mr_leaves x = {0};
    mr_traced t = {0};
    choice c = {0};
    mr_tree *grads = NULL;
    mr_scope s;

    if (mr__ctx.tape != NULL && args != NULL)
        return mr__tape_call_transform(
            &(mr_tape_transform){.call = differentiate_again,
                                 .tree = {args},
                                 .list = {argnums},
                                 .n = {n_argnums},
                                 .kind = (int)kind},
            f->fn, f->ctx, f->foreign);
    if (check_args(args) != MR_OK)
        return NULL;
    s = mr_scope_begin();
    if (s.token == 0)
        return NULL;
    if (choose_args(&c, argnums, n_argnums, mr_tree_size(args)) == MR_OK &&
        mr__leaves_of(&x, args, "args") == MR_OK &&
        choose_leaves(&c, args, &x) == MR_OK)
        grads = trace_and_pull(&t, f, args, &x, &c);
    if (grads && kind == VALUE_AND_GRAD)
        grads = mr_tree_tuple(2, (mr_tree *[]){t.out, grads});
    mr__traced_end(&t);
    choice_free(&c);
    mr__leaves_free(&x);
    grads = mr_scope_return_tree(s, grads);
    mr_scope_end(s);
    return grads;
}

mr_tree *
mr__value_and_grad(const mr_callee *f, const mr_tree *args, const int *argnums,
                   int n_argnums)
{
    return differentiate(f, args, argnums, n_argnums, VALUE_AND_GRAD);
}

mr_tree *
mr_value_and_grad(mr_fn fn, void *ctx, const mr_tree *args, const int *argnums,
                  int n_argnums)
{
    return differentiate(&(mr_callee){fn, ctx, false}, args, argnums, n_argnums,
                         VALUE_AND_GRAD);
}

mr_tree *
mr_grad(mr_fn fn, void *ctx, const mr_tree *args, const int *argnums,
        int n_argnums)
{
    return differentiate(&(mr_callee){fn, ctx, false}, args, argnums, n_argnums,
                         GRAD_ALONE);
}

mr_tree *
mr_vjp(mr_fn fn, void *ctx, const mr_tree *primals, const mr_tree *cotangents)
{
    return mr__vjp(&(mr_callee){fn, ctx, false}, primals, cotangents);
}

uint32_t
mr_grad_mode(uint32_t mode)
{
    uint32_t old = mr__ctx.grad_mode;

    mr__ctx.grad_mode = mode;
    return old;
}
