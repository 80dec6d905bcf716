/* SPDX-License-Identifier: Apache-2.0
 *
 * transform.h -- vjp, jvp, grad, value_and_grad, vmap over closures on trees.
 *
 * A closure is a function from a tree to a tree with a context.  It runs on
 * the calling thread, in a fresh scope, under no lock; it may call anything,
 * other transforms included, and returns its result (owned by that scope) or
 * NULL after a failure.  Several threads may transform the same closure at
 * once if the closure itself allows it.
 */
#ifndef MARRAM_TRANSFORM_H
#define MARRAM_TRANSFORM_H

#include "marram/types.h"

MR_EXTERN_C_BEGIN

typedef mr_tree *(*mr_fn)(void *ctx, const mr_tree *in);

/* A closure with its destructor (NULL: none): counted, any thread may drop the
 * last reference; the destructor runs on a user thread, under no lock.  The
 * context is taken also when making the closure fails: destroy has then run. */
typedef struct mr_closure mr_closure;
MR_API mr_closure *mr_closure_new(mr_fn fn, void *ctx,
                                  void (*destroy)(void *ctx));
/* For bindings: fn runs under a barrier (results are caller-owned) and gives
 * the caller's reference of its result away. */
MR_API mr_closure *mr_closure_new_foreign(mr_fn fn, void *ctx,
                                          void (*destroy)(void *ctx));
MR_API mr_closure *mr_closure_retain(mr_closure *c);
MR_API void mr_closure_release(mr_closure *c);
MR_API mr_tree *mr_closure_call(mr_closure *c, const mr_tree *in);

/* The closure takes a tuple of arguments.  `argnums` says which of them are
 * differentiated (n entries, may be negative; NULL and 0: the first).  Those
 * must hold floating or complex arrays only.  The closure returns a 0-d real
 * array, or a tuple whose first entry is one (the rest is auxiliary).
 * Results: value_and_grad gives (value, grads), value being what the closure
 * returned, and grads a tree like the argument, or a tuple of such for
 * several argnums. */
MR_API mr_tree *mr_value_and_grad(mr_fn fn, void *ctx, const mr_tree *args,
                                  const int *argnums, int n_argnums);
MR_API mr_tree *mr_grad(mr_fn fn, void *ctx, const mr_tree *args,
                        const int *argnums, int n_argnums);
/* Compares the gradient of the closure (as for mr_grad) with central
 * differences, for all float32 and float64 arrays among the arguments, 64
 * elements of each at most.  step: how far an element moves, relative to the
 * larger of it and 1 (0: 6e-6 in float64, 5e-3 in float32); tolerance, absolute
 * and relative (0: 1e-6 and 1e-2).  MR_E_VALUE names the leaf, the element and
 * both values. */
MR_API mr_code mr_check_grad(mr_fn fn, void *ctx, const mr_tree *args,
                             double step, double tolerance);
/* (outputs, cotangents of the leaves of args as a tree like args).  Leaves
 * that are integers or bools have no tangent space: their cotangent is zeros,
 * and their tangent in mr_jvp is not read. */
MR_API mr_tree *mr_vjp(mr_fn fn, void *ctx, const mr_tree *primals,
                       const mr_tree *cotangents);
/* (outputs, their tangents). */
MR_API mr_tree *mr_jvp(mr_fn fn, void *ctx, const mr_tree *primals,
                       const mr_tree *tangents);
/* in_axes: one entry for each leaf of args, MR_VMAP_NONE: not mapped;
 * out_axes: one for each leaf of the result, or n_out == 1 for all; NULL or
 * MR_VMAP_NONE: in front.  Both may be negative.  A result that depends on no
 * mapped leaf is broadcast. */
#define MR_VMAP_NONE INT32_MIN
MR_API mr_tree *mr_vmap(mr_fn fn, void *ctx, const mr_tree *args,
                        const int32_t *in_axes, int n_in,
                        const int32_t *out_axes, int n_out);

/* The same over closures that bindings hold. */
MR_API mr_tree *mr_closure_value_and_grad(mr_closure *c, const mr_tree *args,
                                          const int *argnums, int n_argnums);
MR_API mr_tree *mr_closure_vjp(mr_closure *c, const mr_tree *primals,
                               const mr_tree *cotangents);
MR_API mr_tree *mr_closure_jvp(mr_closure *c, const mr_tree *primals,
                               const mr_tree *tangents);
/* names: what the error calls each leaf (NULL: by its number); a tolerance
 * below 0: the usual one. */
MR_API mr_code mr_closure_check_grad(mr_closure *c, const mr_tree *args,
                                     const char *const *names, double step,
                                     double rtol, double atol);
MR_API mr_tree *mr_closure_vmap(mr_closure *c, const mr_tree *args,
                                const int32_t *in_axes, int n_in,
                                const int32_t *out_axes, int n_out);

/* ---- functions with rules of their own ------------------------------------
 * The result is a closure that may be called (mr_closure_call) inside any
 * transform; it holds references of those that it was made of.  Their
 * arguments are a tuple, as everywhere.  A rule gets and gives:
 *   vjp   (primals, cotangents, outputs) -> cotangents like the primals
 *   jvp   (primals, tangents) -> tangents like the outputs; a primal without
 *         tangent has mr_tree_none() in its place
 *   vmap  (inputs, axes) -> (outputs, out_axes): the axes are trees of 0-d
 *         int32, MR_VMAP_NONE where nothing is mapped
 * In what a rule gives, mr_tree_none() in the place of an array means zero (in
 * outputs and axes it is an error); else number, shapes and dtypes must be
 * right: MR_E_VALUE, MR_E_SHAPE, MR_E_DTYPE name the one that is not.  Without
 * a rule the function itself is transformed.  A traced array that the function
 * captures has its true derivative then; through a vjp or jvp of its own it
 * has none, and to ask for it is MR_E_VALUE naming the array. */
typedef struct mr_custom_options {
    uint64_t size;                /* sizeof(mr_custom_options) */
    mr_closure *vjp, *jvp, *vmap; /* NULL: none */
    /* The name of a captured array for messages, or NULL; gets the context of
     * the function.  May be NULL. */
    const char *(*name)(void *ctx, const mr_array *x);
} mr_custom_options;
MR_API mr_closure *mr_custom_function(mr_closure *f,
                                      const mr_custom_options *options);
/* The function, but what it computes inside is computed again in a backward
 * pass and not kept for it.  Captured arrays have their gradients; random
 * numbers are the same both times.  The function is called again: it must do
 * the same each time. */
MR_API mr_closure *mr_checkpoint(mr_closure *f);
/* The inputs again, as arrays whose evaluation evaluates the dependencies
 * first.  No gradient flows to the dependencies. */
MR_API mr_tree *mr_depends(const mr_tree *inputs, const mr_tree *dependencies);

/* ---- how this thread differentiates ---------------------------------------
 * MR_GRAD_MASKED: where a cotangent is zero an elementwise operator or a
 * reduction gives zero, whatever its slope: a branch not taken cannot make
 * NaN.  MR_GRAD_ALLOW_INT: integer arguments may be chosen for
 * differentiation, and have gradients of zeros in their own dtype.  Holds for
 * transforms that start on this thread until it is set again; returns the old
 * mode. */
enum { MR_GRAD_MASKED = 1, MR_GRAD_ALLOW_INT = 2 };
MR_API uint32_t mr_grad_mode(uint32_t mode);

/* ---- the same with the caller's line --------------------------------------
 * Errors of these name the line of the call; a binding, which has no C lines,
 * calls the plain functions (-DMR_PLAIN_CALLS). */
MR_API mr_tree *mr_value_and_grad_sited(const char *site, mr_fn fn, void *ctx,
                                        const mr_tree *args, const int *argnums,
                                        int n_argnums);
MR_API mr_tree *mr_grad_sited(const char *site, mr_fn fn, void *ctx,
                              const mr_tree *args, const int *argnums,
                              int n_argnums);
MR_API mr_code mr_check_grad_sited(const char *site, mr_fn fn, void *ctx,
                                   const mr_tree *args, double step,
                                   double tolerance);
MR_API mr_tree *mr_vjp_sited(const char *site, mr_fn fn, void *ctx,
                             const mr_tree *primals, const mr_tree *cotangents);
MR_API mr_tree *mr_jvp_sited(const char *site, mr_fn fn, void *ctx,
                             const mr_tree *primals, const mr_tree *tangents);
MR_API mr_tree *mr_vmap_sited(const char *site, mr_fn fn, void *ctx,
                              const mr_tree *args, const int32_t *in_axes,
                              int n_in, const int32_t *out_axes, int n_out);
MR_API mr_tree *mr_depends_sited(const char *site, const mr_tree *inputs,
                                 const mr_tree *dependencies);
#ifndef MR_PLAIN_CALLS
#define mr_value_and_grad(...) mr_value_and_grad_sited(MR_SITE, __VA_ARGS__)
#define mr_grad(...)           mr_grad_sited(MR_SITE, __VA_ARGS__)
#define mr_check_grad(...)     mr_check_grad_sited(MR_SITE, __VA_ARGS__)
#define mr_vjp(...)            mr_vjp_sited(MR_SITE, __VA_ARGS__)
#define mr_jvp(...)            mr_jvp_sited(MR_SITE, __VA_ARGS__)
#define mr_vmap(...)           mr_vmap_sited(MR_SITE, __VA_ARGS__)
#define mr_depends(...)        mr_depends_sited(MR_SITE, __VA_ARGS__)
#endif

MR_EXTERN_C_END

#endif
