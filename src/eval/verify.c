/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c -- whether what the fuser made may run: in checked builds after
 * every grouping.
 *
 * A member of a block has the shape of the group's points or of their rows;
 * what a group reads was made by itself or by one that stands before it.
 * Called by: eval.c, compile/build.c in checked builds, tests.
 */
#include "eval/fuse.h"

static int64_t
row_size(const mr_fuse_group *g)
{
    int64_t n = 1;

    for (int i = 0; i < g->ndim; i++)
        if (!(g->red_axes >> i & 1))
            n *= g->dim[i];
    return n;
}

static int64_t
point_size(const mr_fuse_group *g)
{
    int64_t n = 1;

    for (int i = 0; i < g->ndim; i++)
        n *= g->dim[i];
    return n;
}

static bool
has_shape(const mr_array *x, const mr_fuse_group *g)
{
    if (x->ndim != g->ndim)
        return false;
    for (int i = 0; i < g->ndim; i++)
        if (x->dim[i] != g->dim[i])
            return false;
    return true;
}

static bool
member_fits(const mr_fuse_node *m, const mr_fuse_group *g)
{
    switch (m->role) {
    case MR_ROLE_POINT:
    case MR_ROLE_BRIDGE:
    case MR_ROLE_DRAW:
    case MR_ROLE_PUT:
        return has_shape(m->x, g);
    case MR_ROLE_ROW:
    case MR_ROLE_REDUCE:
        return m->x->size == row_size(g);
    case MR_ROLE_GATHER: /* of any shape */
    case MR_ROLE_LOOK:
    case MR_ROLE_INDEX:
        return true;
    case MR_ROLE_ALIAS:
        return m->x->size == point_size(g) || m->x->size == row_size(g);
    default:
        return false;
    }
}

static const char *
group_error(const mr_fuse_group *g)
{
    for (const mr_fuse_node *m = g->member; m != NULL; m = m->next_member) {
        if (m->group != g)
            return "a member belongs to another group";
        if (g->kind == MR_GROUP_BLOCK && !member_fits(m, g))
            return "a member has neither the shape of the group's points nor "
                   "of its rows";
        for (int i = 0; i < m->x->n_in; i++)
            if (m->in[i] != NULL && m->in[i]->group->place > g->place)
                return "a group reads what is made behind it";
    }
    return NULL;
}

const char *
mr__fuse_error(mr_fuse_group *groups)
{
    const char *why = NULL;
    int64_t n = 0;

    for (mr_fuse_group *g = groups; g != NULL; g = g->next)
        g->place = n++;
    for (const mr_fuse_group *g = groups; g != NULL && why == NULL; g = g->next)
        why = group_error(g);
    return why;
}
