/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c -- all interleavings of the protocol of src/eval/README.md.
 *
 * A small explicit-state model checker.  A world is a graph, evaluators that
 * ask for roots, and streams; its actors are the evaluators' threads and one
 * worker for each stream.  An actor's step is one thing that happens under one
 * lock, or one atomic operation, of src/eval.  All orders of steps and all
 * choices (memory refused, a kernel that gives up) are tried.
 *
 * What must hold: the walker reads inputs of nodes that still have them; a
 * kernel reads only memory that its producers have filled; nothing leaves
 * `done` or `failed`; without failures each node is computed once; when
 * nothing can move, every evaluator has come back, with its roots done or with
 * an error, and nothing is left in a queue; those nodes fail that depend on the
 * kernel that does, and no others.
 *
 * Each rule that can be turned off (enum rule) must be needed: a test turns it
 * off and expects the checker to find out.
 */
#include <string.h>

#include "search.h"
#include "support/base.h"

enum { NODES = 6, EVALS = 3, STREAMS = 3, TASKS = 8, NOBODY = 255 };

/* Sanitizers slow it down and have nothing to find in it. */
#if MRT_TSAN || defined(__SANITIZE_ADDRESS__)
enum { STATES_MAX = 60000, MUST_END = 0 };
#else
enum { STATES_MAX = 1 << 23, MUST_END = 1 };
#endif

/* ---- worlds ------------------------------------------------------------- */

typedef struct node_spec {
    int n_in, in[2];
    bool view;
    int root;   /* of its fused group: itself, mostly */
    bool held;  /* somebody holds it: an output of its group */
    int stream; /* -1: the evaluator's default */
} node_spec;

typedef struct world {
    const char *name;
    int n_nodes; /* 0 is data */
    node_spec node[NODES];
    int n_evals;
    struct {
        int n_roots, root[2];
        int stream; /* the thread's default */
    } eval[EVALS];
    int n_streams;
    int window;   /* nodes of one window */
    int bad;      /* its kernel fails, -1: none */
    int give_ups; /* kernels that may fail for no reason of the data */
    int refusals; /* plans that may find no memory */
} world;

/* clang-format off */
#define DATA           {0}
#define OP1(a)         {1, {a}, .root = NOBODY, .held = true, .stream = -1}
#define OP2(a, b)      {2, {a, b}, .root = NOBODY, .held = true, .stream = -1}
#define OP1_ON(a, s)   {1, {a}, .root = NOBODY, .held = true, .stream = (s)}
#define VIEW(a)        {1, {a}, true, NOBODY, true, -1}
#define FUSED(a, r, h) {1, {a}, .root = (r), .held = (h), .stream = -1}
/* clang-format on */

typedef enum rule {
    RULE_ALL,
    RULE_ENTER_UNDER_LOCK, /* tasks enter their streams in order */
    RULE_WAKE,             /* the finisher looks at WAITED */
    RULE_LEAVE_LOOKS,      /* who leaves a stream looks at its head */
    RULE_DONE_THEN_DETACH,
    RULE_WALK_AGAIN,  /* inputs passed in an earlier window are looked at */
    RULE_FAILED_LEAF, /* a leaf that is not done is a source */
    RULE_SAME_MEMORY, /* a source that was computed elsewhere does not count */
    RULE_KICK_OTHERS, /* streams beside the planner's get a drainer */
    RULE_HELP_OWN,    /* who waits drains its own stream too */
    RULE_WAIT_FOR_LOCK, /* nodes are given up under the plan lock */
    RULE_EACH_RESULT,   /* of a task those fail that depend on what failed */
    RULE_WITHOUT        /* what lacks is not read */
} rule;

/* ---- states ------------------------------------------------------------- */

enum { S_NEW, S_SUBMITTED, S_DONE, S_FAILED };

typedef struct node {
    uint8_t state, waited, detached, stream;
    uint8_t plan;     /* how often it was planned: which memory */
    uint8_t valid;    /* bit k: the memory of plan k is filled */
    uint8_t computed; /* kernels run for it, up to 2 */
    uint8_t waiters;  /* tasks that sleep behind it */
} node;

typedef struct task {
    uint8_t used, stream, n_wait, done; /* done: the nodes it completes */
    uint8_t kernels;                    /* the nodes that it computes */
    uint8_t reads, sources;             /* nodes; sources: looked at first */
    uint8_t plan[NODES];                /* which memory it reads */
    uint8_t next;                       /* in the queue, or the plan */
} task;

typedef struct stream {
    uint8_t busy, head, tail;
} stream;

/* Where an actor stands as a drainer. */
enum {
    X_IDLE,
    X_NEXT,
    X_START,
    X_RUN,
    X_STORE,
    X_COLLECT,
    X_WAKE,
    X_CLAIM,
    X_DETACH,
    X_LOCK,
    X_RETRACT,
    X_UNLOCK,
    X_DROP,
    X_LEAVE
};

enum { O_DONE, O_GIVEN_UP };

typedef struct drainer {
    uint8_t pc, stream, task, target, outcome, left, at, woken, claim;
    uint8_t lacks, bad; /* sources that failed; nodes that do */
} drainer;

/* Where an evaluator stands. */
enum {
    E_WALK,
    E_RESERVE,
    E_WAIT_ADD,
    E_ENTER,
    E_UNLOCK,
    E_KICK,
    E_WINDOW_HELP,
    E_NO_MEMORY,
    E_MEMORY_HELP,
    E_MEMORY_SLEEP,
    E_ERROR,
    E_CHECK,
    E_HELP_ROOT,
    E_HELP_OWN,
    E_SLEEP,
    E_ASLEEP,
    E_LAST_KICK,
    E_END_OK,
    E_END_ERROR
};

typedef struct evaluator {
    uint8_t pc, root, after; /* after: where to go on when drained */
    uint8_t depth, stack[NODES], child[NODES];
    uint8_t window, more; /* nodes of the window */
    uint8_t first, task, left, kick;
    uint8_t progress;
    drainer x;
} evaluator;

typedef struct state {
    node n[NODES];
    task t[TASKS];
    stream s[STREAMS];
    evaluator e[EVALS];
    drainer w[STREAMS]; /* the workers */
    uint8_t lock;       /* the plan lock: NOBODY, or who */
    uint8_t refusals, give_ups;
    uint8_t failed; /* something went wrong: nodes may be computed again */
} state;

static const world *wd;
static rule off;

static bool
has(unsigned set, int i)
{
    return set >> i & 1;
}

static uint8_t
bit(int i)
{
    return (uint8_t)(1u << i);
}

static int
first_of(unsigned set)
{
    return __builtin_ctz(set);
}

/* ---- streams ------------------------------------------------------------ */

static bool
head_can_run(const state *s, int k)
{
    return s->s[k].head != NOBODY && s->t[s->s[k].head].n_wait == 0;
}

static bool
claim(state *s, int k)
{
    if (s->s[k].busy || !head_can_run(s, k))
        return false;
    s->s[k].busy = 1;
    return true;
}

static void
to_worker(state *s, int k)
{
    must(s->w[k].pc == X_IDLE, "a stream has two drainers");
    s->w[k].pc = X_NEXT;
    s->w[k].stream = (uint8_t)k;
    s->w[k].target = NOBODY;
}

static void
kick(state *s, int k)
{
    if (claim(s, k))
        to_worker(s, k);
}

static void
append(state *s, int k)
{
    stream *q = &s->s[s->t[k].stream];

    s->t[k].next = NOBODY;
    if (q->head == NOBODY)
        q->head = (uint8_t)k;
    else
        s->t[q->tail].next = (uint8_t)k;
    q->tail = (uint8_t)k;
    s->t[k].n_wait--;
}

/* Sleep behind node i; false when it is submitted no more. */
static bool
mark_waited(state *s, int i)
{
    if (s->n[i].state != S_SUBMITTED)
        return false;
    s->n[i].waited = 1;
    return true;
}

/* ---- a drainer's steps -------------------------------------------------- */

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

/* Does a kernel that fails stand above node i, or is it that? */
static bool
must_fail(int i)
{
    uint8_t bad = 0;

    for (int k = 1; k <= i; k++) {
        bool any = k == wd->bad;

        for (int j = 0; j < wd->node[k].n_in; j++)
            any = any || has(bad, wd->node[k].in[j]);
        bad |= any ? bit(k) : 0;
    }
    return has(bad, i);
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

/* Move 2 * a + c: actor a's step, with choice c. */
static bool
step(void *of, int move)
{
    state *s = of;
    int actor = move / 2, choice = move % 2;

    if (actor < wd->n_evals)
        return eval_step(s, actor, choice);
    return drain_step(s, &s->w[actor - wd->n_evals], choice);
}

/* ---- what must hold at the end ------------------------------------------ */

static void
check_end(const void *of)
{
    const state *s = of;

    for (int k = 0; k < wd->n_evals; k++) {
        bool done = true;

        must(s->e[k].pc == E_END_OK || s->e[k].pc == E_END_ERROR,
             "an evaluator waits for ever");
        for (int r = 0; r < wd->eval[k].n_roots; r++)
            done = done && s->n[wd->eval[k].root[r]].state == S_DONE;
        must(done || s->e[k].pc == E_END_ERROR,
             "an evaluator came back without its roots");
        must(s->e[k].pc != E_END_ERROR || s->failed ||
                 s->refusals < wd->refusals,
             "an evaluator got an error though nothing failed");
    }
    for (int k = 0; k < wd->n_streams; k++) {
        must(s->s[k].head == NOBODY, "tasks are left in a stream");
        must(!s->s[k].busy, "a stream is busy for ever");
    }
    must(s->lock == NOBODY, "the plan lock is held for ever");
    for (int i = 0; i < wd->n_nodes; i++)
        must(s->n[i].state != S_SUBMITTED, "a node stays submitted");
}

/* ---- the search --------------------------------------------------------- */

static void
print_path(const search *h)
{
    print_message("%s: %s\n", wd->name, broken);
    for (size_t i = 0; i < h->depth; i++) {
        state s;

        memcpy(&s, search_at(h, i), sizeof s);
        print_message("%3zu: actor %d", i, (h->next[i] - 1) / 2);
        for (int k = 0; k < wd->n_evals; k++)
            print_message("  e%d pc=%d x=%d", k, s.e[k].pc, s.e[k].x.pc);
        for (int k = 0; k < wd->n_streams; k++)
            print_message("  s%d busy=%d w=%d", k, s.s[k].busy, s.w[k].pc);
        print_message("\n");
    }
}

static void
set_start(state *s)
{
    memset(s, 0, sizeof *s);
    s->n[0].state = S_DONE;
    s->n[0].valid = 1;
    s->lock = NOBODY;
    s->refusals = (uint8_t)wd->refusals;
    s->give_ups = (uint8_t)wd->give_ups;
    for (int k = 0; k < STREAMS; k++)
        s->s[k].head = s->s[k].tail = NOBODY;
}

/* What does not hold, or NULL; *n_states: how many were looked at. */
static const char *
explore(const world *w, rule without, size_t *n_states)
{
    search h = {.bytes = sizeof(state),
                .n_moves = 2 * (w->n_evals + w->n_streams),
                .move = step,
                .check_end = check_end};
    state s;

    wd = w;
    off = without;
    broken = NULL;
    set_start(&s);
    search_all(&h, &s, STATES_MAX);
    if (broken != NULL && without == RULE_ALL)
        print_path(&h);
    if (without == RULE_ALL)
        print_message("  %-48s %8zu states\n", w->name, h.n_seen);
    assert_true(h.n_seen < STATES_MAX || !MUST_END);
    *n_states = h.n_seen;
    search_free(&h);
    return broken;
}

/* ---- the protocol as it is ---------------------------------------------- */

/* clang-format off */
#define CHAIN {DATA, OP1(0), OP1(1), OP1(2), OP1(3)}
#define DIAMOND_ON_TWO {DATA, OP1(0), OP1_ON(1, 1), OP1_ON(1, 0), OP2(2, 3)}
#define TWO_TOPS {DATA, OP1(0), OP1(1), OP1(2), OP1(2)}
#define GROUP {DATA, OP1(0), FUSED(1, 4, true), FUSED(2, 4, false), OP1(3)}
#define PARTS {DATA, FUSED(0, 3, true), FUSED(1, 3, true), OP1(1), OP1_ON(2, 1)}
#define VIEWS {DATA, OP1(0), VIEW(1), OP1(2), VIEW(1)}

static const world plain[] = {
    {"chain of 4, 2 evaluators, one stream", 5, CHAIN, 2,
     {{1, {4}, 0}, {1, {4}, 0}}, 1, 8, -1, 0, 0},
    {"chain of 4, 2 evaluators, two streams", 5, CHAIN, 2,
     {{1, {4}, 0}, {1, {3}, 1}}, 2, 8, -1, 0, 0},
    {"chain of 4 in windows of 1, two streams", 5, CHAIN, 2,
     {{1, {4}, 0}, {1, {4}, 1}}, 2, 1, -1, 0, 0},
    {"chain of 3, 3 evaluators, two streams", 4, CHAIN, 3,
     {{1, {3}, 0}, {1, {2}, 1}, {1, {3}, 1}}, 2, 8, -1, 0, 0},
    {"diamond over two streams, 2 evaluators", 5, DIAMOND_ON_TWO, 2,
     {{1, {4}, 0}, {1, {4}, 1}}, 2, 2, -1, 0, 0},
    {"two overlapping roots, two streams", 5, TWO_TOPS, 2,
     {{2, {3, 4}, 0}, {2, {4, 3}, 1}}, 2, 2, -1, 0, 0},
    {"two overlapping roots, 3 evaluators, one stream", 5, TWO_TOPS, 3,
     {{1, {3}, 0}, {1, {4}, 0}, {1, {2}, 0}}, 1, 8, -1, 0, 0},
    {"a fused group with a visible interior", 5, GROUP, 2,
     {{1, {4}, 0}, {1, {2}, 1}}, 2, 8, -1, 0, 0},
    {"a fused group, its hidden interior asked for", 5, GROUP, 3,
     {{1, {4}, 0}, {1, {3}, 1}, {1, {2}, 0}}, 2, 8, -1, 0, 0},
    {"a view of a submitted node", 5, VIEWS, 2,
     {{1, {3}, 0}, {1, {4}, 1}}, 2, 8, -1, 0, 0},
    {"views, 3 evaluators, windows of 1", 5, VIEWS, 3,
     {{1, {2}, 0}, {1, {4}, 1}, {1, {1}, 0}}, 2, 1, -1, 0, 0},
    {"root elsewhere, producers on our stream", 4,
     {DATA, OP1(0), OP1_ON(1, 1), OP1_ON(2, 1)}, 2,
     {{1, {3}, 0}, {1, {2}, 1}}, 2, 8, -1, 0, 0},
    {"producers elsewhere", 4, {DATA, OP1_ON(0, 1), OP1(1), OP1(2)}, 2,
     {{1, {3}, 0}, {1, {1}, 0}}, 2, 8, -1, 0, 0},
};

static const world failing[] = {
    {"data failure in a chain", 5, CHAIN, 2,
     {{1, {4}, 0}, {1, {3}, 1}}, 2, 2, 2, 0, 0},
    {"data failure, 3 evaluators", 4, CHAIN, 3,
     {{1, {3}, 0}, {1, {2}, 1}, {1, {1}, 1}}, 2, 8, 2, 0, 0},
    {"data failure in one arm of a diamond", 5, DIAMOND_ON_TWO, 2,
     {{1, {4}, 0}, {2, {2, 3}, 1}}, 2, 8, 2, 0, 0},
    {"data failure under a view", 5, VIEWS, 2,
     {{1, {3}, 0}, {1, {4}, 1}}, 2, 8, 1, 0, 0},
    {"data failure of a group's hidden interior", 5, GROUP, 2,
     {{1, {4}, 0}, {1, {2}, 1}}, 2, 8, 3, 0, 0},
    {"data failure in one part of a group", 5, PARTS, 3,
     {{1, {3}, 0}, {1, {4}, 1}, {2, {2, 1}, 0}}, 2, 8, 2, 0, 0},
    {"data failure above one part of a group", 5,
     {DATA, OP1_ON(0, 1), FUSED(0, 3, true), OP2(1, 2), OP1(2)}, 2,
     {{2, {3, 4}, 0}, {2, {2, 3}, 1}}, 2, 8, 1, 0, 0},
    {"and the kernel gives up", 5, PARTS, 2,
     {{2, {3, 4}, 0}, {1, {4}, 1}}, 2, 2, 2, 1, 0},
    {"no memory for a plan, once", 5, DIAMOND_ON_TWO, 2,
     {{1, {4}, 0}, {1, {4}, 1}}, 2, 2, -1, 0, 1},
    {"no memory for a plan, twice, 3 evaluators", 4, CHAIN, 3,
     {{1, {3}, 0}, {1, {2}, 0}, {1, {3}, 0}}, 1, 8, -1, 0, 2},
    {"a kernel gives up", 4, CHAIN, 2,
     {{1, {3}, 0}, {1, {3}, 1}}, 2, 8, -1, 1, 0},
    {"a kernel gives up, windows of 1", 4, CHAIN, 2,
     {{1, {3}, 0}, {1, {1}, 1}}, 2, 1, -1, 1, 0},
    {"two kernels give up, diamond", 5, DIAMOND_ON_TWO, 1,
     {{1, {4}, 0}}, 2, 8, -1, 2, 0},
    {"a kernel under views gives up", 5, VIEWS, 2,
     {{1, {3}, 0}, {1, {4}, 1}}, 2, 8, -1, 1, 0},
    {"a fused group gives up", 5, GROUP, 2,
     {{1, {4}, 0}, {1, {2}, 1}}, 2, 8, -1, 1, 0},
    {"everything at once", 4, {DATA, OP1(0), OP1_ON(1, 1), OP1(2)}, 2,
     {{1, {3}, 0}, {1, {1}, 0}}, 2, 8, 3, 1, 1},
};
/* clang-format on */

static void
protocol__holds_in_every_order(void **unused)
{
    size_t n;

    (void)unused;
    for (size_t i = 0; i < MRT_COUNT(plain); i++)
        assert_null(explore(&plain[i], RULE_ALL, &n));
}

static void
protocol__holds_when_things_fail(void **unused)
{
    size_t n;

    (void)unused;
    for (size_t i = 0; i < MRT_COUNT(failing); i++)
        assert_null(explore(&failing[i], RULE_ALL, &n));
}

/* ---- each rule is needed ------------------------------------------------ */

/* Some world must break without it. */
static void
needs(rule without, const char *what)
{
    for (size_t i = 0; i < MRT_COUNT(plain) + MRT_COUNT(failing); i++) {
        const world *w =
            i < MRT_COUNT(plain) ? &plain[i] : &failing[i - MRT_COUNT(plain)];
        size_t n;
        const char *found = explore(w, without, &n);

        if (found == NULL)
            continue;
        print_message("  without it: %s (%s, after %zu states)\n", found,
                      w->name, n);
        if (what != NULL)
            assert_string_equal(found, what);
        return;
    }
    fail_msg("the checker does not find out");
}

static struct needed {
    const char *test;
    rule rule;
    const char *found; /* what goes wrong without it, or NULL: anything */
} needed[] = {
    {"entering_in_order__is_needed", RULE_ENTER_UNDER_LOCK,
     "a task runs before its producers"},
    {"looking_at_waited__is_needed", RULE_WAKE, "an evaluator waits for ever"},
    {"looking_at_the_head_when_leaving__is_needed", RULE_LEAVE_LOOKS, NULL},
    {"detaching_after_done__is_needed", RULE_DONE_THEN_DETACH,
     "the walker reads detached inputs"},
    {"walking_again__is_needed", RULE_WALK_AGAIN,
     "a leaf of the plan has no memory"},
    {"looking_at_leaves_that_fail__is_needed", RULE_FAILED_LEAF,
     "a kernel reads what is not computed"},
    {"comparing_memory__is_needed", RULE_SAME_MEMORY,
     "a kernel reads what is not computed"},
    {"kicking_other_streams__is_needed", RULE_KICK_OTHERS,
     "an evaluator waits for ever"},
    {"helping_the_own_stream__is_needed", RULE_HELP_OWN,
     "an evaluator waits for ever"},
    {"giving_up_under_the_plan_lock__is_needed", RULE_WAIT_FOR_LOCK, NULL},
    {"asking_for_each_result__is_needed", RULE_EACH_RESULT,
     "a node fails that depends on no failure"},
    {"running_without_what_lacks__is_needed", RULE_WITHOUT,
     "a kernel reads what is not computed"},
};

static void
rule__is_needed(void **which)
{
    const struct needed *n = *which;

    needs(n->rule, n->found);
}

int
main(void)
{
    struct CMUnitTest tests[2 + MRT_COUNT(needed)] = {
        cmocka_unit_test(protocol__holds_in_every_order),
        cmocka_unit_test(protocol__holds_when_things_fail),
    };
    for (size_t i = 0; i < MRT_COUNT(needed); i++)
        tests[2 + i] = (struct CMUnitTest){needed[i].test, rule__is_needed,
                                           NULL, NULL, &needed[i]};
    return cmocka_run_group_tests_name("eval/model", tests, NULL, NULL);
}
