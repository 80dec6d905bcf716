/* SPDX-License-Identifier: Apache-2.0
 *
 * traced.h -- a call of the user's function under a trace: what every
 * transform does before its walk.
 */
#ifndef MR_TRANSFORM_TRACED_H
#define MR_TRANSFORM_TRACED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "marram/types.h"
#include "transform/call.h"
#include "transform/walk.h"

/* The leaves of a tree, borrowed from it. */
typedef struct mr_leaves {
    mr_array **v;
    int n;
} mr_leaves;

/* `name` is what the tree is called in an error. */
mr_code mr__leaves_of(mr_leaves *l, const mr_tree *t, const char *name);
void mr__leaves_free(mr_leaves *l);
/* MR_E_SHAPE unless leaf `got`, the i-th of its kind, is shaped as `want`. */
mr_code mr__leaf_shape(const mr_array *want, const mr_array *got,
                       const char *name, int i);

/* Zero-initialise it; mr__traced_end also after a failure. */
typedef struct mr_traced {
    uint64_t trace;    /* 0: not begun */
    mr_array **leaf;   /* what the function is called with, n_leaves */
    mr_array **tracer; /* those of them that are tracers, in order */
    int n_leaves;
    size_t n_tracers;
    mr_tree *out; /* the result: a reference */
    mr_leaves y;  /* its leaves */
    mr_walk walk;
} mr_traced;

/* Begin the trace; leaf[] starts as a copy of x. */
mr_code mr__traced_begin(mr_traced *t, const mr_leaves *x);
/* Put a tracer in the place of leaf i (in ascending order); NULL is the
 * failure of whoever made it. */
mr_code mr__traced_set(mr_traced *t, int i, mr_array *tracer);
/* Tracers with the leaves' values, where wanted[i] (NULL: everywhere). */
mr_code mr__traced_values(mr_traced *t, const bool *wanted);
/* Call f with a tree like args over leaf[]. */
mr_code mr__traced_call(mr_traced *t, const mr_callee *f, const mr_tree *args);
/* Open the walk from all leaves of the result. */
mr_code mr__traced_walk(mr_traced *t, mr_rule_kind kind);
/* End the trace, let evaluated nodes go, drop everything. */
void mr__traced_end(mr_traced *t);

#endif
