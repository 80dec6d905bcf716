/* SPDX-License-Identifier: Apache-2.0
 *
 * model_drainer.h -- the steps of a drainer in the worlds of model.c: it takes
 * tasks off a stream, runs them, completes their nodes and wakes who waits.
 *
 * Workers are drainers, and evaluators that help are (model_evaluator.h).
 */
#ifndef MRT_EVAL_MODEL_DRAINER_H
#define MRT_EVAL_MODEL_DRAINER_H

#include <string.h>

#include "model_world.h"

static void
pop_head(state *s, drainer *x)
{
    stream *q = &s->s[x->stream];

    x->task = q->head;
    q->head = s->t[x->task].next;
    if (q->head == NOBODY)
        q->tail = NOBODY;
    x->pc = X_START;
}

static void
drain_next(state *s, drainer *x)
{
    if (x->target != NOBODY && s->n[x->target].state != S_SUBMITTED) {
        x->pc = X_LEAVE;
    } else if (head_can_run(s, x->stream)) {
        pop_head(s, x);
    } else {
        s->s[x->stream].busy = 0;
        memset(x, 0, sizeof *x);
    }
}

/* Is node i computed by the task, seen by others or not? */
static bool
is_member(const task *t, int i)
{
    int r = wd->node[i].root;

    return has(t->done, i) ||
           (r != NOBODY && has(t->kernels, r) && !has(t->reads, i));
}

/* Which nodes of the task fail, given the sources that did: they depend on
 * those or, once it has run, on the kernel that does. */
static uint8_t
nodes_that_fail(const task *t, uint8_t lacks, bool ran)
{
    uint8_t bad = lacks;

    for (int i = 1; i < wd->n_nodes; i++) {
        const node_spec *n = &wd->node[i];
        bool any = ran && i == wd->bad;

        if (has(t->sources, i) || (!is_member(t, i) && !n->view))
            continue;
        for (int k = 0; k < n->n_in; k++)
            any = any || has(bad, n->in[k]);
        bad |= any ? bit(i) : 0;
    }
    if (off == RULE_EACH_RESULT && (bad & (lacks | t->done)) != 0)
        return t->done;
    return bad & t->done;
}

/* The state of the sources decides: run, with what there is, or be given up. */
static void
look_at_sources(state *s, drainer *x)
{
    const task *t = &s->t[x->task];

    x->outcome = O_DONE;
    x->lacks = 0;
    for (int i = 0; i < wd->n_nodes; i++) {
        if (!has(t->sources, i))
            continue;
        if (s->n[i].state == S_FAILED)
            x->lacks |= bit(i);
        else if (s->n[i].state != S_DONE ||
                 (s->n[i].plan != t->plan[i] && off != RULE_SAME_MEMORY))
            x->outcome = O_GIVEN_UP;
    }
    must((x->outcome == O_DONE && x->lacks == 0) || s->failed,
         "a task runs before its producers");
    x->left = t->done;
    x->bad = nodes_that_fail(t, x->lacks, false);
    x->pc = x->outcome == O_GIVEN_UP ? X_LOCK
            : x->bad == t->done      ? X_STORE
                                     : X_RUN;
    if (off == RULE_DONE_THEN_DETACH && x->pc == X_RUN)
        for (int i = 0; i < wd->n_nodes; i++)
            if (has(t->done, i))
                s->n[i].detached = 1;
}

static bool
run_kernel(state *s, drainer *x, int choice)
{
    task *t = &s->t[x->task];
    unsigned reads =
        off == RULE_WITHOUT ? t->reads : t->reads & (unsigned)~x->lacks;

    if (choice == 1 && (s->give_ups == 0 || t->kernels == 0))
        return false;
    for (int i = 0; i < wd->n_nodes; i++)
        if (has(reads, i))
            must(has(s->n[i].valid, t->plan[i]),
                 "a kernel reads what is not computed");
    x->pc = X_STORE;
    if (choice == 1) {
        s->give_ups--;
        s->failed = 1;
        x->outcome = O_GIVEN_UP;
        x->pc = X_LOCK;
        return true;
    }
    x->bad = nodes_that_fail(t, x->lacks, true);
    s->failed |= x->bad != 0;
    for (int i = 0; i < wd->n_nodes; i++) {
        node *n = &s->n[i];

        if (!has(t->done & (unsigned)~x->bad, i))
            continue;
        n->valid |= bit(n->plan);
        if (has(t->kernels, i) && n->computed < 2)
            n->computed++;
        must(n->computed < 2 || s->failed, "a node is computed twice");
    }
    return true;
}

/* The exchange that ends `submitted`. */
static void
store(state *s, drainer *x)
{
    int i = first_of(x->left);
    node *n = &s->n[i];

    must(n->state == S_SUBMITTED, "a node leaves a state that is final");
    n->state = x->outcome == O_GIVEN_UP ? S_NEW
               : has(x->bad, i)         ? S_FAILED
                                        : S_DONE;
    must(n->state != S_FAILED || must_fail(i),
         "a node fails that depends on no failure");
    must(n->state != S_DONE || !must_fail(i),
         "a node is done that depends on a failure");
    x->at = (uint8_t)i;
    x->left &= (uint8_t)~bit(i);
    x->pc = n->waited && off != RULE_WAKE ? X_COLLECT : X_WAKE;
    n->waited = 0;
}

/* Under the bucket's lock: threads wake, tasks are taken off the list. */
static void
collect(state *s, drainer *x)
{
    x->woken |= s->n[x->at].waiters;
    s->n[x->at].waiters = 0;
    for (int k = 0; k < wd->n_evals; k++)
        if (s->e[k].pc == E_ASLEEP && wd->eval[k].root[s->e[k].root] == x->at)
            s->e[k].pc = E_SLEEP;
    x->pc = X_WAKE;
}

static void
after_wake(drainer *x)
{
    uint8_t other = x->left != 0 ? X_STORE : X_DROP;

    x->pc = x->outcome == O_DONE ? X_DETACH : other;
}

/* One producer less for one of the tasks that waited. */
static void
wake(state *s, drainer *x)
{
    int k;

    if (x->outcome == O_GIVEN_UP && s->lock != NOBODY && x->claim == 1) {
        /* still under the plan lock: wake later */
        x->pc = x->left != 0 ? X_RETRACT : X_UNLOCK;
        return;
    }
    if (x->woken == 0) {
        after_wake(x);
        return;
    }
    k = first_of(x->woken);
    x->woken &= (uint8_t)~bit(k);
    if (--s->t[k].n_wait == 0) {
        x->at = (uint8_t)s->t[k].stream;
        x->pc = X_CLAIM;
    }
}

static void
drop_task(state *s, drainer *x)
{
    memset(&s->t[x->task], 0, sizeof s->t[x->task]);
    for (int k = 0; k < wd->n_evals; k++)
        s->e[k].progress = s->e[k].pc == E_MEMORY_SLEEP;
    x->task = 0;
    x->at = x->woken = x->outcome = x->lacks = x->bad = 0;
    x->pc = X_NEXT;
}

static void
leave(state *s, drainer *x)
{
    int k = x->stream;

    memset(x, 0, sizeof *x);
    if (head_can_run(s, k) && off != RULE_LEAVE_LOOKS)
        to_worker(s, k);
    else
        s->s[k].busy = 0;
}

/* x->claim is 1 while it holds the plan lock. */
static bool
drain_retract(state *s, drainer *x)
{
    switch (x->pc) {
    case X_LOCK:
        if (s->lock != NOBODY && off != RULE_WAIT_FOR_LOCK)
            return false;
        s->lock = s->lock == NOBODY ? NOBODY - 1 : s->lock;
        x->claim = 1;
        x->pc = X_RETRACT;
        return true;
    case X_RETRACT:
        store(s, x);
        return true;
    default: /* X_UNLOCK */
        s->lock = s->lock == NOBODY - 1 ? NOBODY : s->lock;
        x->claim = 0;
        x->pc = X_WAKE;
        return true;
    }
}

static bool
drain_step(state *s, drainer *x, int choice)
{
    if (choice == 1 && x->pc != X_RUN)
        return false;
    switch (x->pc) {
    case X_NEXT:
        drain_next(s, x);
        return true;
    case X_START:
        look_at_sources(s, x);
        return true;
    case X_RUN:
        return run_kernel(s, x, choice);
    case X_STORE:
        store(s, x);
        return true;
    case X_COLLECT:
        collect(s, x);
        return true;
    case X_WAKE:
        wake(s, x);
        return true;
    case X_CLAIM:
        kick(s, x->at);
        x->pc = X_WAKE;
        return true;
    case X_DETACH:
        for (int i = 0; i < wd->n_nodes; i++)
            if (has(s->t[x->task].done & (unsigned)~(x->left | x->bad), i))
                s->n[i].detached = 1;
        x->pc = x->left != 0 ? X_STORE : X_DROP;
        return true;
    case X_LOCK:
    case X_RETRACT:
    case X_UNLOCK:
        return drain_retract(s, x);
    case X_DROP:
        drop_task(s, x);
        return true;
    case X_LEAVE:
        leave(s, x);
        return true;
    default:
        return false;
    }
}

#endif
