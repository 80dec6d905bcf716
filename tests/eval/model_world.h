/* SPDX-License-Identifier: Apache-2.0
 *
 * model_world.h -- the worlds of model.c, and a state of one.
 *
 * A world is a graph, evaluators that ask for roots, and streams; a state says
 * where each node, task, stream and actor stands.  What follows them is what
 * the actors share: giving a stream away, entering it, marking a node.
 */
#ifndef MRT_EVAL_MODEL_WORLD_H
#define MRT_EVAL_MODEL_WORLD_H

#include "search.h"

enum { NODES = 6, EVALS = 3, STREAMS = 3, TASKS = 8, NOBODY = 255 };

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

#endif
