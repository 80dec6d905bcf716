/* SPDX-License-Identifier: Apache-2.0
 *
 * read.h -- reading the elements of an evaluated array.
 */
#ifndef MR_GRAPH_READ_H
#define MR_GRAPH_READ_H

#include "graph/node.h"
#include "marram/types.h"

/* Evaluate x, bring it to the host, and wait.  A NULL keeps the pending
 * error. */
mr_code mr__array_ready(mr_array *x);

/* The first element of a ready array, in host memory. */
const char *mr__array_first(const mr_array *x);

/* An evaluation that reading begins (reads.c). */
void mr__read_note(void);

#endif
