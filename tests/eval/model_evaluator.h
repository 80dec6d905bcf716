/* SPDX-License-Identifier: Apache-2.0
 *
 * model_evaluator.h -- the steps of a thread that evaluates in the worlds of
 * model.c: it plans window after window, gives the streams away, and waits for
 * its roots, helping while it does.
 */
#ifndef MRT_EVAL_MODEL_EVALUATOR_H
#define MRT_EVAL_MODEL_EVALUATOR_H

#include "model_drainer.h"

/* ---- planning ----------------------------------------------------------- */

static bool
is_new(const state *s, const evaluator *e, int i)
{
    return s->n[i].state == S_NEW && !has(e->window, i);
}

static bool
reads_what_failed(const state *s, int i)
{
    for (int k = 0; k < wd->node[i].n_in; k++)
        if (s->n[wd->node[i].in[k]].state == S_FAILED)
            return true;
    return false;
}

/* The walk of one window. */
static void
walk(state *s, evaluator *e)
{
    int n = 0;

    e->window = 0;
    while (e->depth > 0 && n < wd->window) {
        int i = e->stack[e->depth - 1], c;
        const node_spec *spec = &wd->node[i];
        bool again = false;

        if (!is_new(s, e, i)) {
            e->depth--;
            continue;
        }
        must(!s->n[i].detached, "the walker reads detached inputs");
        while (e->child[e->depth - 1] < spec->n_in && !again) {
            c = spec->in[e->child[e->depth - 1]++];
            again = is_new(s, e, c);
        }
        if (again) {
            must(e->depth < NODES, "the stack is deep enough");
            e->stack[e->depth] = (uint8_t)c;
            e->child[e->depth++] = 0;
            continue;
        }
        for (int k = 0; k < spec->n_in; k++)
            again = again || is_new(s, e, spec->in[k]);
        if (again && off != RULE_WALK_AGAIN) {
            e->child[e->depth - 1] = 0;
            continue;
        }
        e->depth--;
        if (reads_what_failed(s, i)) { /* it does, at once */
            must(must_fail(i), "a node fails that depends on no failure");
            s->n[i].state = S_FAILED;
            continue;
        }
        e->window |= bit(i);
        n++;
    }
    e->more = e->depth > 0;
    for (int k = e->depth; k < NODES; k++)
        e->stack[k] = e->child[k] = 0; /* fewer states */
}

static void
push_roots(int who, evaluator *e)
{
    e->depth = 0;
    for (int k = wd->eval[who].n_roots; k-- > 0;) {
        e->stack[e->depth] = (uint8_t)wd->eval[who].root[k];
        e->child[e->depth++] = 0;
    }
}

static int
new_task(state *s, evaluator *e, int on)
{
    int k = 0;

    while (k < TASKS && s->t[k].used)
        k++;
    must(k < TASKS, "there are enough task slots");
    k %= TASKS;
    s->t[k].used = 1;
    s->t[k].stream = (uint8_t)on;
    s->t[k].n_wait = 1;
    s->t[k].next = NOBODY;
    if (e->first == NOBODY)
        e->first = (uint8_t)k;
    else
        s->t[e->task].next = (uint8_t)k;
    e->task = (uint8_t)k; /* the last one, meanwhile */
    return k;
}

/* The memory that node i of the window, or a leaf, will be read from: the
 * node whose memory it is.  Views of the window look through. */
static int
memory_of(const evaluator *e, int i)
{
    while (has(e->window, i) && wd->node[i].view)
        i = wd->node[i].in[0];
    return i;
}

static void
reads(state *s, const evaluator *e, task *t, int i)
{
    const node *n = &s->n[i];

    t->reads |= bit(i);
    t->plan[i] = n->plan;
    if (has(e->window, i)) {
        t->sources |= bit(i);
        return;
    }
    must(n->state != S_NEW, "a leaf of the plan has no memory");
    if (off == RULE_FAILED_LEAF ? n->state == S_SUBMITTED : n->state != S_DONE)
        t->sources |= bit(i);
}

/* Is i an output of its group in this window? */
static bool
is_output(int i)
{
    return wd->node[i].root == NOBODY || wd->node[i].held;
}

static int
group_of(const evaluator *e, int i)
{
    int r = wd->node[i].root;

    return r != NOBODY && has(e->window, r) ? r : i;
}

static int
stream_of(int who, int i)
{
    return wd->node[i].stream >= 0 ? wd->node[i].stream : wd->eval[who].stream;
}

static void
submit_node(state *s, task *t, int i)
{
    node *n = &s->n[i];

    t->done |= bit(i);
    n->state = S_SUBMITTED;
    n->stream = t->stream;
}

/* A view gets a task of its own (an alias), rides with the task that makes
 * its memory, or is done at once. */
static void
plan_view(state *s, evaluator *e, int who, int i, int *task_of)
{
    int m = memory_of(e, i);
    node *n = &s->n[i];

    n->plan++;
    if (has(e->window, m)) {
        submit_node(s, &s->t[task_of[m]], i);
        return;
    }
    if (s->n[m].state == S_DONE) {
        n->state = S_DONE;
        n->valid |= bit(n->plan);
        n->detached = 1;
        return;
    }
    task_of[i] = new_task(s, e, stream_of(who, i));
    submit_node(s, &s->t[task_of[i]], i);
    reads(s, e, &s->t[task_of[i]], m);
}

static void
plan_group(state *s, evaluator *e, int who, int root, int *task_of)
{
    task *t;

    task_of[root] = new_task(s, e, stream_of(who, root));
    t = &s->t[task_of[root]];
    for (int i = 0; i < wd->n_nodes; i++) {
        if (!has(e->window, i) || group_of(e, i) != root)
            continue;
        task_of[i] = task_of[root];
        for (int k = 0; k < wd->node[i].n_in; k++) {
            int from = wd->node[i].in[k];

            if (!has(e->window, from) || group_of(e, from) != root)
                reads(s, e, t, memory_of(e, from));
        }
        /* an interior without the rest of its group is an output too */
        if (!is_output(i) && i != root)
            continue;
        s->n[i].plan++;
        t->kernels |= bit(i);
        submit_node(s, t, i);
    }
}

/* Nodes are numbered in topological order; a group stands at its root. */
static void
reserve(state *s, evaluator *e, int who)
{
    int task_of[NODES] = {0};

    e->first = NOBODY;
    e->kick = 0;
    for (int i = 0; i < wd->n_nodes; i++) {
        if (!has(e->window, i) || group_of(e, i) != i)
            continue;
        if (wd->node[i].view)
            plan_view(s, e, who, i, task_of);
        else
            plan_group(s, e, who, i, task_of);
    }
    for (int k = e->first; k != NOBODY; k = s->t[k].next)
        if (s->t[k].stream != wd->eval[who].stream)
            e->kick |= bit(s->t[k].stream);
    e->task = e->first;
}

/* What is left to do for the task at hand before it enters its stream. */
static void
begin_task(const state *s, evaluator *e)
{
    const task *t;

    if (e->task == NOBODY) {
        e->pc = E_UNLOCK;
        return;
    }
    t = &s->t[e->task];
    e->left = 0;
    for (int i = 0; i < wd->n_nodes; i++)
        if (has(t->sources, i) && s->n[i].stream != t->stream)
            e->left |= bit(i);
    e->pc = e->left != 0 ? E_WAIT_ADD : E_ENTER;
}

static void
wait_add(state *s, evaluator *e)
{
    int i = first_of(e->left);
    task *t = &s->t[e->task];

    e->left &= (uint8_t)~bit(i);
    if (mark_waited(s, i)) {
        s->n[i].waiters |= bit(e->task);
        t->n_wait++;
    }
    if (e->left == 0)
        e->pc = E_ENTER;
}

static bool
plan_step(state *s, int who, int choice)
{
    evaluator *e = &s->e[who];
    uint8_t next;

    if (choice == 1 && (e->pc != E_RESERVE || s->refusals == 0))
        return false;
    switch (e->pc) {
    case E_WALK:
        if (s->lock != NOBODY)
            return false;
        s->lock = (uint8_t)who;
        if (e->depth == 0)
            push_roots(who, e);
        e->pc = E_RESERVE;
        walk(s, e);
        return true;
    case E_RESERVE:
        if (choice == 1) {
            s->refusals--;
            s->lock = NOBODY;
            e->depth = e->window = 0;
            e->pc = E_NO_MEMORY;
            return true;
        }
        reserve(s, e, who);
        e->window = 0;
        if (off == RULE_ENTER_UNDER_LOCK)
            s->lock = NOBODY;
        begin_task(s, e);
        return true;
    case E_WAIT_ADD:
        wait_add(s, e);
        return true;
    case E_ENTER:
        next = s->t[e->task].next;
        append(s, e->task);
        e->task = next;
        begin_task(s, e);
        return true;
    default: /* E_UNLOCK */
        if (off != RULE_ENTER_UNDER_LOCK)
            s->lock = NOBODY;
        e->first = e->task = 0;
        e->pc = E_KICK;
        return true;
    }
}

/* ---- an evaluator's other steps ----------------------------------------- */

static void
help(state *s, evaluator *e, int k, int target, uint8_t after,
     uint8_t otherwise)
{
    if (!claim(s, k)) {
        e->pc = otherwise;
        return;
    }
    e->x.pc = X_NEXT;
    e->x.stream = (uint8_t)k;
    e->x.target = (uint8_t)target;
    e->pc = after;
}

static bool
in_flight(const state *s)
{
    for (int k = 0; k < TASKS; k++)
        if (s->t[k].used)
            return true;
    return false;
}

static bool
memory_step(state *s, int who)
{
    evaluator *e = &s->e[who];

    switch (e->pc) {
    case E_NO_MEMORY:
        e->pc = in_flight(s) ? E_MEMORY_HELP : E_ERROR;
        return true;
    case E_MEMORY_HELP:
        help(s, e, wd->eval[who].stream, NOBODY, E_WALK, E_MEMORY_SLEEP);
        return true;
    default: /* E_MEMORY_SLEEP */
        if (in_flight(s) && !e->progress)
            return false;
        e->progress = 0;
        e->pc = E_WALK;
        return true;
    }
}

static void
next_root(state *s, int who)
{
    evaluator *e = &s->e[who];

    while (e->root < wd->eval[who].n_roots &&
           s->n[wd->eval[who].root[e->root]].state != S_SUBMITTED)
        e->root++;
    e->pc = e->root < wd->eval[who].n_roots ? E_HELP_ROOT : E_LAST_KICK;
}

static void
come_back(state *s, int who)
{
    evaluator *e = &s->e[who];
    bool done = true, failed = false;

    kick(s, wd->eval[who].stream);
    for (int k = 0; k < wd->eval[who].n_roots; k++) {
        done = done && s->n[wd->eval[who].root[k]].state == S_DONE;
        failed = failed || s->n[wd->eval[who].root[k]].state == S_FAILED;
    }
    e->root = 0;
    e->pc = done ? E_END_OK : failed ? E_END_ERROR : E_WALK;
}

static bool
wait_step(state *s, int who)
{
    evaluator *e = &s->e[who];
    bool waits = e->root < wd->eval[who].n_roots;
    int root = waits ? wd->eval[who].root[e->root] : -1;
    int own = wd->eval[who].stream;

    switch (e->pc) {
    case E_CHECK:
        next_root(s, who);
        return true;
    case E_HELP_ROOT:
        help(s, e, s->n[root].stream, root, E_CHECK,
             off == RULE_HELP_OWN ? E_SLEEP : E_HELP_OWN);
        return true;
    case E_HELP_OWN:
        help(s, e, own, root, E_CHECK, E_SLEEP);
        return true;
    case E_SLEEP:
        e->pc = mark_waited(s, root) ? E_ASLEEP : E_CHECK;
        return true;
    case E_LAST_KICK:
        come_back(s, who);
        return true;
    default:
        return false;
    }
}

static bool
eval_step(state *s, int who, int choice)
{
    evaluator *e = &s->e[who];

    if (e->x.pc != X_IDLE)
        return drain_step(s, &e->x, choice);
    if (e->pc <= E_UNLOCK)
        return plan_step(s, who, choice);
    if (choice == 1)
        return false;
    switch (e->pc) {
    case E_KICK:
        if (e->kick != 0 && off != RULE_KICK_OTHERS) {
            int k = first_of(e->kick);

            e->kick &= (uint8_t)~bit(k);
            kick(s, k);
            return true;
        }
        e->kick = 0;
        e->pc = e->more ? E_WINDOW_HELP : E_CHECK;
        return true;
    case E_WINDOW_HELP:
        help(s, e, wd->eval[who].stream, NOBODY, E_WALK, E_WALK);
        return true;
    case E_NO_MEMORY:
    case E_MEMORY_HELP:
    case E_MEMORY_SLEEP:
        return memory_step(s, who);
    case E_ERROR:
        kick(s, wd->eval[who].stream);
        e->pc = E_END_ERROR;
        return true;
    default:
        return wait_step(s, who);
    }
}

#endif
