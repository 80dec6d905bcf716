/* SPDX-License-Identifier: Apache-2.0
 *
 * donate.c -- may a group write its result where an input lies?
 *
 * It may when nobody else can look there, now or later: no user, no scope, no
 * live trace, no recipe that would read it again, no other stream, no call that
 * it was ever lent to (graph/lend.h).  Of a node
 * of this window the planner knows all readers.  Of a leaf it knows the count
 * of references: all must be edges from this group, or from views of this
 * window that have had their last reader (x[i] += 1 reads a view of x, and
 * writes into x).
 *
 * Called by: reserve.c, under the plan lock.
 */
#include "eval/donate.h"

/* How far back views of a leaf are looked for: they stand beside the write. */
enum { LOOK_BACK = 64 };

static int
edges_from(const mr_fuse_group *g, const mr_array *x)
{
    int n = 0;

    for (const mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        for (int i = 0; i < m->x->n_in; i++)
            n += m->x->in[i] == x;
    return n;
}

bool
mr__donate_forgotten(const mr_fuse_group *g)
{
    for (const mr_fuse_node *m = g->member; m != NULL; m = m->next_member) {
        const mr_plan_node *n = (const mr_plan_node *)m;
        bool output = g->root == m || m->visible;

        if (output ? m->x->trace != 0 && mr__trace_live(m->x->trace)
                   : !n->reusable)
            return false;
    }
    return true;
}

/* ---- leaves ------------------------------------------------------------- */

/* Views that look at a leaf through others count as uses of the first. */
void
mr__donate_view(mr_plan_node *n)
{
    const mr_array *x = n->f.x;
    mr_plan_node *in = x->n_in == 0 ? NULL : mr__plan_node(x->in[0]);

    if (n->place.base != NULL)
        return;
    n->first_view = in == NULL || in->first_view == NULL ? n : in->first_view;
    if (n->first_view != n)
        n->first_view->uses_left += n->f.n_uses;
    if (n->f.visible || x->n_in != 1)
        n->first_view->reusable = false;
}

void
mr__donate_view_read(mr_plan_node *n, uint32_t stream)
{
    if (n->first_view == NULL)
        return;
    n->first_view->uses_left--;
    if (n->first_view->stream == 0)
        n->first_view->stream = stream;
    if (n->first_view->stream != stream)
        n->first_view->foreign = true;
}

/* References that views of this window have, which are not read again. */
static uint64_t
spent_views(const mr_plan *p, const mr_array *x, uint32_t stream)
{
    size_t first = p->at > LOOK_BACK ? p->at - LOOK_BACK : 0;
    uint64_t n = 0;

    for (size_t i = first; i < p->at; i++) {
        const mr_plan_node *v = (const mr_plan_node *)p->node[i];

        n += v->first_view == v && v->f.x->in[0] == x && v->reusable &&
             !v->materialised && !v->foreign && v->uses_left == 0 &&
             v->stream == stream;
    }
    return n;
}

/* Tasks of earlier windows that still read it hold references of the buffer. */
static bool
leaf_is_free(const mr_plan *p, const mr_array *x, uint64_t edges,
             uint32_t stream)
{
    uint64_t refs;

    if (mr__state(x) != MR_DONE || x->buffer == NULL)
        return false;
    /* acquire, both: pair with the releases of those who have read; counts
     * that are ours alone cannot grow meanwhile */
    refs = atomic_load_explicit(&x->refs, memory_order_acquire);
    if (refs & MR_REF_LENT)
        return false;
    refs &= MR_REF_TOTAL;
    if (atomic_load_explicit(&x->scoped, memory_order_relaxed) != 0 ||
        atomic_load_explicit(&x->buffer->refs, memory_order_acquire) != 1 ||
        x->buffer->exported_writable || x->buffer->read_only ||
        x->buffer->pool == NULL || x->buffer->copies != NULL ||
        (x->trace != 0 && mr__trace_live(x->trace)))
        return false;
    return refs == edges || (refs > edges && refs - edges <= LOOK_BACK &&
                             refs == edges + spent_views(p, x, stream));
}

/* ---- both --------------------------------------------------------------- */

bool
mr__donate_may(const mr_plan *p, const mr_fuse_group *g, const mr_array *x,
               const mr_plan_node *n, uint32_t stream)
{
    int edges = edges_from(g, x);

    if (n == NULL)
        return leaf_is_free(p, x, (uint64_t)edges, stream);
    return n->reusable && n->materialised && n->place.base == n &&
           n->uses_left == edges && !n->recycled && !n->foreign &&
           n->place.task->stream == stream;
}

bool
mr__donate_sole(const mr_fuse_group *g, const mr_array *x,
                const mr_plan_node *n)
{
    uint64_t edges = (uint64_t)edges_from(g, x);

    if (n != NULL)
        return (uint64_t)n->f.n_uses == edges;
    return mr__ref_total(x) == edges;
}
