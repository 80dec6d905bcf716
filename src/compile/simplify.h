/* SPDX-License-Identifier: Apache-2.0
 *
 * simplify.h -- a smaller trace that gives the same bits.
 */
#ifndef MR_COMPILE_SIMPLIFY_H
#define MR_COMPILE_SIMPLIFY_H

#include "graph/node.h"

/* What was done to a trace. */
typedef struct mr_simplified {
    int before; /* nodes computed from an argument; 0: nothing was done */
    int same;   /* common subexpressions */
    int algebra, folded, views;
    int kept; /* rules that applied but would have changed how a product's
                 operand lies */
} mr_simplified;

/* Replaces each of the traced results by one that gives the same bits.  New
 * nodes are owned as mr__node_new says.  Evaluates small constants: under no
 * lock. */
mr_code mr__simplify(mr_array **outs, int n_outs, mr_simplified *facts);

/* ---- rules.c ---------------------------------------------------------------
 */

/* What x, whose inputs are `in`, is equal to bit for bit: one of `in`, what
 * those are made of, or a new node.  NULL: nothing simpler, or no memory
 * (*failed). */
mr_array *mr__rule_apply(const mr_array *x, mr_array *const *in, bool *failed);

#endif
