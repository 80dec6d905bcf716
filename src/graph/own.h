/* SPDX-License-Identifier: Apache-2.0
 *
 * own.h -- what the files of graph/ share and nobody else needs.
 */
#ifndef MR_GRAPH_OWN_H
#define MR_GRAPH_OWN_H

#include <stddef.h>

#include "graph/op.h"
#include "marram/types.h"

/* mr__scope_own of an array that nobody else has seen. */
mr_array *mr__scope_own_fresh(mr_array *x);

/* The bytes of a deep copy of parameters, and the copy (8-byte aligned). */
size_t mr__params_room(const mr_op *op, const void *params);
void mr__params_copy(const mr_op *op, const void *params, void *to);

#endif
