/* SPDX-License-Identifier: Apache-2.0
 *
 * indices.c -- what computes the index of a gather, for the fuser.
 *
 * The operators from an index down whose results nobody else reads are a tree
 * that the gather's block may compute by itself, if they are elementwise and
 * few.  Called by: fuse.c.
 */
#include "eval/indices.h"

#include <string.h>

#include "array/dtype.h"

/* A stride by which an axis is known again through views: no sum or multiple of
 * others is equal to it. */
static int64_t
mark_of(const mr_array *x, int64_t axis)
{
    return 1000003 * (x->ndim - axis) + axis * axis * axis + 3;
}

bool
mr__axes_through(mr_fuse_node *const *chain, int n, int8_t *axes)
{
    const mr_array *from = chain[n - 1]->x, *to = chain[0]->x;
    mr_layout a, b;

    a.ndim = from->ndim;
    a.offset = 0;
    for (int64_t i = 0; i < from->ndim; i++) {
        a.dim[i] = from->dim[i];
        a.stride[i] = mark_of(from, i);
    }
    for (int k = n - 2; k >= 0; k--, a = b)
        if (!chain[k]->x->op->view(chain[k]->x, &a, &b))
            return false;
    for (int i = 0; i < to->ndim && a.offset == 0; i++) {
        int axis = 0;

        axes[i] = -1;
        if (a.dim[i] == 1 || a.stride[i] == 0)
            continue;
        while (axis < from->ndim && a.stride[i] != mark_of(from, axis))
            axis++;
        if (axis == from->ndim)
            return false;
        axes[i] = (int8_t)axis;
    }
    return a.offset == 0;
}

static bool
index_fits(const mr_array *x)
{
    return x->op->fuse.kind == MR_FUSE_ELEMENTWISE &&
           mr__dtype_size((mr_dtype)x->dtype) <= 8 &&
           mr__dtype_size(mr__fuse_operand(x)) <= 8;
}

static int32_t
uses_in_tree(const mr_index_tree *t, const mr_fuse_node *n)
{
    int32_t uses = 0;

    for (int k = 0; k < t->n_node; k++)
        for (int i = 0; i < t->node[k]->x->n_in; i++)
            uses += t->node[k]->in[i] == n;
    return uses;
}

/* Nobody but the group's gathers, through others of the tree, reads it. */
static bool
is_of_index(const mr_fuse_group *g, const mr_fuse_node *n, mr_fuses_fn fuses)
{
    return n != NULL && n->group == NULL && !n->visible && !n->looked_at &&
           n->x->stream == g->root->x->stream && n->x->size > 0 &&
           index_fits(n->x) && fuses(mr__fuse_k(n->x), mr__fuse_operand(n->x));
}

/* An input of the tree that is no member of it: false: there is no room. */
static bool
tree_reads(mr_index_tree *t, const mr_array *x)
{
    bool number = mr__fuse_constant(x) != NULL;
    const mr_array **list = number ? t->number : t->leaf;
    int *n = number ? &t->n_number : &t->n_leaf;

    for (int i = 0; i < *n; i++)
        if (list[i] == x)
            return true;
    if (*n == (number ? MR_INDEX_MAX_CONST : MR_INDEX_MAX_IN) ||
        mr__dtype_size((mr_dtype)x->dtype) > 8)
        return false;
    list[(*n)++] = x;
    return number || (x->ndim == t->node[0]->x->ndim &&
                      memcmp(x->dim, t->node[0]->x->dim,
                             (size_t)x->ndim * sizeof *x->dim) == 0);
}

static bool
is_in_tree(const mr_index_tree *t, const mr_fuse_node *n)
{
    for (int k = 0; k < t->n_node; k++)
        if (t->node[k] == n)
            return true;
    return false;
}

/* What one operator of the tree reads, where nobody else reads it; true: the
 * tree has grown. */
static bool
tree_take(const mr_fuse_group *g, mr_index_tree *t, const mr_fuse_node *of,
          mr_fuses_fn fuses)
{
    bool grown = false;

    for (int i = 0; i < of->x->n_in; i++) {
        mr_fuse_node *n = of->in[i];

        if (t->n_node == MR_INDEX_MAX_INST || !is_of_index(g, n, fuses) ||
            mr__fuse_constant(n->x) != NULL || is_in_tree(t, n) ||
            uses_in_tree(t, n) != n->n_uses)
            continue;
        t->node[t->n_node++] = n;
        grown = true;
    }
    return grown;
}

/* The operators from the index down whose results nobody else reads, and what
 * they read: something from outside of the group. */
static bool
tree_grow(const mr_fuse_group *g, mr_index_tree *t, mr_fuses_fn fuses)
{
    bool grows = true;

    while (grows) {
        grows = false;
        for (int k = 0; k < t->n_node; k++)
            grows |= tree_take(g, t, t->node[k], fuses);
    }
    for (int k = 0; k < t->n_node; k++)
        for (int i = 0; i < t->node[k]->x->n_in; i++) {
            const mr_fuse_node *n = t->node[k]->in[i];

            if (is_in_tree(t, n))
                continue;
            if ((n != NULL && n->group == g) ||
                !tree_reads(t, t->node[k]->x->in[i]))
                return false;
        }
    return t->n_leaf > 0;
}

/* From the index of gather m down to the operator that computes it. */
static bool
tree_begin(const mr_fuse_group *g, const mr_fuse_node *m, mr_index_tree *t,
           mr_fuses_fn fuses)
{
    mr_fuse_node *n = m->in[1];

    t->n_view = t->n_node = t->n_leaf = t->n_number = 0;
    while (n != NULL && n->n_uses == 1 && !n->visible && !n->looked_at &&
           n->group == NULL && n->x->stream == g->root->x->stream) {
        t->view[t->n_view++] = n;
        if (is_of_index(g, n, fuses)) {
            t->node[t->n_node++] = n;
            return true;
        }
        if (n->x->op->fuse.kind != MR_FUSE_VIEW || n->x->n_in != 1 ||
            t->n_view > MR_INDEX_VIEWS)
            return false;
        n = n->in[0];
    }
    return false;
}

bool
mr__index_tree(const mr_fuse_group *g, const mr_fuse_node *m, mr_fuses_fn fuses,
               mr_index_tree *t)
{
    return tree_begin(g, m, t, fuses) && tree_grow(g, t, fuses);
}
