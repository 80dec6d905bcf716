/* SPDX-License-Identifier: Apache-2.0
 *
 * indices.h -- what computes the index of a gather.  Private to the fuser.
 */
#ifndef MR_EVAL_INDICES_H
#define MR_EVAL_INDICES_H

#include "eval/fuse.h"

#define MR_INDEX_VIEWS 6

typedef struct mr_index_tree {
    /* from what the gather reads to the root */
    mr_fuse_node *view[MR_INDEX_VIEWS + 1];
    mr_fuse_node *node[MR_INDEX_MAX_INST]; /* the root first */
    const mr_array *leaf[MR_INDEX_MAX_IN], *number[MR_INDEX_MAX_CONST];
    int n_view, n_node, n_leaf, n_number;
} mr_index_tree;

/* The operators that compute the index of gather m, of group g; false: none
 * can be members. */
bool mr__index_tree(const mr_fuse_group *g, const mr_fuse_node *m,
                    mr_fuses_fn fuses, mr_index_tree *t);

/* For each axis of chain[0] the axis of the chain's end along which it goes, or
 * -1; false: the views between do more than that. */
bool mr__axes_through(mr_fuse_node *const *chain, int n, int8_t *axes);

#endif
