/* SPDX-License-Identifier: Apache-2.0
 *
 * call.h -- calling the user's function from inside a transform.
 *
 * No lock is held while it runs; what it leaves open (scopes, the outer site,
 * the stream) is put back when it returns.
 */
#ifndef MR_TRANSFORM_CALL_H
#define MR_TRANSFORM_CALL_H

#include <stdbool.h>

#include "marram/transform.h"
#include "marram/types.h"

/* A function with its context.  foreign: it runs under a barrier and gives the
 * reference of its result away; else it runs in a scope that owns it. */
typedef struct mr_callee {
    mr_fn fn;
    void *ctx;
    bool foreign;
} mr_callee;

/* The result as a reference of the caller's own (mr_tree_release), or NULL
 * with the function's error as it was set. */
mr_tree *mr__callee_call(const mr_callee *f, const mr_tree *in);

/* The transforms behind both public forms; results are owned as those of any
 * public call. */
mr_tree *mr__value_and_grad(const mr_callee *f, const mr_tree *args,
                            const int *argnums, int n_argnums);
mr_tree *mr__vjp(const mr_callee *f, const mr_tree *primals,
                 const mr_tree *cotangents);
mr_tree *mr__jvp(const mr_callee *f, const mr_tree *primals,
                 const mr_tree *tangents);
mr_tree *mr__vmap(const mr_callee *f, const mr_tree *args,
                  const int32_t *in_axes, int n_in, const int32_t *out_axes,
                  int n_out);

/* A closure as a callee. */
mr_callee mr__closure_callee(const mr_closure *c);

#endif
