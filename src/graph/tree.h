/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.h -- the inside of trees: references of no class, as of nodes.
 *
 * `refs` packs two counts as a node's does: all references in the low 40 bits,
 * users' in the high 24.
 */
#ifndef MR_GRAPH_TREE_H
#define MR_GRAPH_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "marram/tree.h"
#include "marram/types.h"

/* Depth is bounded when a tree is made, so walks over trees may recurse. */
#define MR_TREE_MAX_DEPTH 512

struct mr_tree {
    _Atomic uint64_t refs;
    mr_tree_kind kind;
    int32_t n;        /* children */
    int32_t n_leaves; /* of the whole tree */
    int32_t depth;    /* 1 without children */
    uint64_t hash;    /* of the structure */
    mr_array *leaf;
    mr_tree **item;   /* in this block */
    const char **key; /* dict: in this block, with their text */
};

mr_tree *mr__tree_retain(mr_tree *t);
void mr__tree_release(mr_tree *t);         /* NULL is allowed */
bool mr__tree_is_static(const mr_tree *t); /* never counted */
/* Make a reference of no class the user's. */
void mr__tree_mark_user(mr_tree *t);
/* As mr_tree_like, with a reference of no class as its result. */
mr_tree *mr__tree_like(const mr_tree *t, mr_array *const *leaves, int n);

#endif
