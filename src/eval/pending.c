/* SPDX-License-Identifier: Apache-2.0
 *
 * pending.c -- what is still to be computed, and its longest chain.
 *
 * A depth-first walk over `new` nodes with a stack of its own; the depth of a
 * node is one more than that of the deepest of its inputs.
 * Called by: users.  Takes the plan lock, under which inputs stay.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/sized.h"
#include "eval/alone.h"
#include "eval/plan.h"
#include "graph/node.h"
#include "marram/eval.h"

typedef struct pending {
    mr_array **stack;
    size_t n, cap;
    mr_map depth; /* of each node that is left: 1 and more */
    const mr_array *deepest;
    uintptr_t longest;
} pending;

static uintptr_t
depth_of(const pending *p, const mr_array *x)
{
    return (uintptr_t)mr__map_get(&p->depth, x);
}

static mr_code
push(pending *p, mr_array *x)
{
    if (mr__alone_forbid(x) != MR_NEW || depth_of(p, x) > 0)
        return MR_OK;
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 256;
        mr_array **s = mr__alloc_again(p->stack, cap * sizeof *p->stack);

        if (s == NULL)
            return MR_E_MEMORY;
        p->stack = s;
        p->cap = cap;
    }
    p->stack[p->n++] = x;
    return MR_OK;
}

/* The node on top: its inputs first, then itself. */
static mr_code
step(pending *p)
{
    const mr_array *x = p->stack[p->n - 1];
    size_t before = p->n;
    uintptr_t most = 0;
    void **at;

    for (int i = 0; i < x->n_in; i++)
        if (push(p, x->in[i]) != MR_OK)
            return MR_E_MEMORY;
    if (p->n > before)
        return MR_OK;
    p->n--;
    if (depth_of(p, x) > 0) /* it was on the stack twice */
        return MR_OK;
    for (int i = 0; i < x->n_in; i++)
        if (depth_of(p, x->in[i]) > most)
            most = depth_of(p, x->in[i]);
    at = mr__map_at(&p->depth, x);
    if (at == NULL)
        return MR_E_MEMORY;
    *at = (void *)(most + 1);
    if (most + 1 > p->longest) {
        p->longest = most + 1;
        p->deepest = x;
    }
    return MR_OK;
}

/* Where the longest chain begins. */
static const char *
first_site(const pending *p)
{
    const mr_array *x = p->deepest, *next = x;

    while (next != NULL) {
        x = next;
        next = NULL;
        for (int i = 0; i < x->n_in && next == NULL; i++)
            if (depth_of(p, x->in[i]) + 1 == depth_of(p, x) &&
                depth_of(p, x) > 1)
                next = x->in[i];
    }
    return x == NULL || x->site == NULL ? "" : x->site;
}

static mr_code
measure(pending *p, mr_array *const *x, int n)
{
    mr_code rc = MR_OK;

    for (int i = 0; rc == MR_OK && i < n; i++)
        rc = push(p, x[i]);
    while (rc == MR_OK && p->n > 0)
        rc = step(p);
    return rc;
}

mr_code
mr_pending_get(mr_array *const *x, int n, mr_pending *out)
{
    mr_pending r = {.size = sizeof r, .site = ""};
    pending p = {0};
    mr_code rc;

    if (x == NULL && n > 0)
        return mr__fail(MR_E_NULL, "the list of arrays is NULL");
    for (int i = 0; i < n; i++)
        if (x[i] == NULL || x[i] == MR_NONE)
            return mr__fail(MR_E_NULL, "array %d is NULL", i);
    mr__lock_take(&mr__plan_lock);
    rc = measure(&p, x, n);
    r.nodes = p.depth.n;
    r.longest = p.longest;
    r.site = first_site(&p);
    mr__lock_drop(&mr__plan_lock);
    mr__dealloc(p.stack);
    mr__map_free(&p.depth);
    return rc == MR_OK ? mr__sized_give(out, &r, sizeof r, "mr_pending") : rc;
}
