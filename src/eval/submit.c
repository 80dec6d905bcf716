/* SPDX-License-Identifier: Apache-2.0
 *
 * submit.c -- a reserved window becomes visible, or is undone.
 *
 * Order matters: a node's memory is written, then its state is stored with
 * release; all nodes of the window are submitted before its first task enters
 * a stream, and tasks enter in topological order, all under the plan lock.
 *
 * Called by: eval.c.
 */
#include <string.h>

#include "eval/place.h"
#include "eval/plan.h"
#include "eval/stream.h"
#include "eval/transfer.h"

enum { COUNTED_BYTES = 32 << 10 };

static void
settle_tuple(mr_array *x, const mr_plan_node *n)
{
    for (int k = 0; k < x->n_out; k++) {
        mr_tuple_out *o = &x->tuple[k];

        o->buffer = mr__buffer_retain(n->outs[k].buffer);
        o->offset = 0;
        memcpy(o->dim + o->ndim, n->outs[k].stride,
               (size_t)o->ndim * sizeof *o->dim);
    }
}

static void
settle_single(mr_array *x, const mr_place *w)
{
    x->buffer = mr__buffer_retain(w->buffer);
    x->offset = (w->data - (char *)w->buffer->data) /
                mr__dtype_size((mr_dtype)x->dtype);
    memcpy(mr__strides(x), w->stride, (size_t)x->ndim * sizeof *x->dim);
}

/* The node gets its memory and leaves `new`. */
static void
settle(mr_plan_node *n)
{
    mr_array *x = n->f.x;
    const mr_task *t =
        x->flags & MR_NODE_TUPLE ? n->outs[0].task : n->place.task;

    if (x->flags & MR_NODE_TUPLE)
        settle_tuple(x, n);
    else
        settle_single(x, &n->place);
    if (x->error != NULL) { /* of an attempt that may be repeated */
        mr__error_release(x->error);
        x->error = NULL;
    }
    if (t != NULL) {
        if (x->stream != t->stream)
            x->stream = t->stream;
        /* release: pairs with the acquire of waiters and walkers */
        atomic_store_explicit(&x->state, MR_SUBMITTED, memory_order_release);
        return;
    }
    /* release: a view of something done is done */
    atomic_store_explicit(&x->state, MR_DONE, memory_order_release);
}

static void
task_own(mr_task *t)
{
    mr__retain(t->node);
    for (int i = 0; i < t->n_in; i++) {
        if (t->in[i].buffer != NULL && !t->in[i].borrowed)
            mr__buffer_retain(t->in[i].buffer);
        if (t->in[i].keep != NULL)
            mr__retain(t->in[i].keep);
    }
    for (int i = 0; i < t->n_out; i++)
        mr__buffer_retain(t->out[i].buffer);
    for (int i = 0; i < t->n_done; i++)
        mr__retain(t->done[i]);
    if (t->workspace != NULL)
        mr__buffer_retain(t->workspace);
    /* relaxed: we hold a reference of the window */
    atomic_fetch_add_explicit(&t->window->refs, 1, memory_order_relaxed);
}

static void
drop_owned(mr_plan *p)
{
    for (size_t i = 0; i < p->n_owned; i++)
        mr__buffer_release(p->owned[i]);
    p->n_owned = 0;
}

/* What the window took, for as long as it has tasks.  Small ones are bounded by
 * their number, and spared the count that all threads write. */
static void
count_owned(mr_plan *p)
{
    p->taken_bytes = 0;
    for (size_t i = 0; i < p->n_owned; i++)
        p->taken_bytes += p->owned[i]->capacity;
    if (p->taken_bytes >= COUNTED_BYTES)
        mr__window_count(p->window, p->taken_bytes);
}

static bool
done_at_once(const mr_plan_node *n)
{
    return n->materialised && n->outs == NULL && n->place.task == NULL;
}

/* Views that are done at once need their inputs no more.  They were retained
 * before, since dropping one's inputs may end another. */
static void
detach_done(mr_plan *p)
{
    for (size_t i = p->n; i-- > 0;) {
        const mr_plan_node *n = (const mr_plan_node *)p->node[i];
        mr_array *x = n->f.x;

        if (!done_at_once(n))
            continue;
        if (x->trace == 0 || !mr__trace_live(x->trace))
            mr__node_detach(x);
        mr__release(x);
    }
}

void
mr__plan_submit(mr_plan *p)
{
    for (mr_task *t = p->first; t != NULL; t = t->next) {
        t->destructive = p->destructive;
        task_own(t);
    }
    for (size_t i = 0; i < p->n; i++) {
        mr_plan_node *n = (mr_plan_node *)p->node[i];

        if (n->materialised)
            settle(n);
        if (done_at_once(n))
            mr__retain(n->f.x);
    }
    if (__builtin_expect(p->arrivals != NULL, 0))
        mr__arrivals_publish(p);
    mr__plan_unmark(p);
    if (p->counts_bytes)
        count_owned(p);
    drop_owned(p);
    detach_done(p);
    mr__plan_drop_held(p);
    /* from here on tasks may run, and nodes may end */
    mr__tasks_entered(p->n_tasks);
    for (mr_task *t = p->first, *next; t != NULL; t = next) {
        next = t->next;
        t->next = NULL;
        mr__stream_enter(t);
    }
}

void
mr__plan_abandon(mr_plan *p)
{
    mr__arrivals_drop(p);
    mr__plan_unmark(p);
    drop_owned(p);
    mr__plan_drop_held(p);
}
