/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h -- the structures of one plan: a window of one evaluation.
 *
 * Everything lives in the window's arena.  The plan lock guards the nodes'
 * `plan` fields; after submission the tasks own what they need and the
 * window's memory lives until the last of them is done.
 */
#ifndef MR_EVAL_PLAN_H
#define MR_EVAL_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/lock.h"
#include "base/vec.h"
#include "eval/device.h"
#include "eval/fuse.h"
#include "eval/task.h"
#include "graph/node.h"
#include "graph/op.h"

extern mr_lock mr__plan_lock;

/* A copy of a buffer elsewhere that this plan makes (transfer.c). */
typedef struct mr_arrival mr_arrival;

/* Nodes of one window, unless it is set: bounds how long the plan lock is
 * held. */
#define MR_PLAN_WINDOW 2048

/* Where the elements of a node lie, known before they are computed. */
typedef struct mr_place {
    char *data;        /* the first element; NULL: not placed yet */
    mr_buffer *buffer; /* NULL: a constant inside `owner` */
    mr_array *owner;   /* whoever keeps a constant alive */
    const int64_t *stride;
    mr_array *source;          /* must be done before reading; NULL: it is */
    mr_task *task;             /* of this window, that makes it */
    struct mr_plan_node *base; /* whose buffer it is, in this window */
} mr_place;

/* A node of the window. */
typedef struct mr_plan_node {
    mr_fuse_node f;    /* what the fuser sees and says: first */
    mr_place place;    /* of tuples: unused */
    mr_place *outs;    /* of tuples: one for each result */
    int32_t uses_left; /* readers of this window that are not planned yet */
    bool held;         /* the walker has a reference, from an earlier window */
    bool reusable;     /* nobody else can see it: its memory may be reused */
    bool materialised; /* becomes submitted or done */
    bool recycled;
    bool foreign; /* another stream reads it: when that is over is not known */
    /* Views of a leaf: that of them which looks at it directly, and the stream
     * of its readers (donate.c). */
    struct mr_plan_node *first_view;
    uint32_t stream;
} mr_plan_node;

/* Memory that its last reader leaves behind, in stream order. */
typedef struct mr_recycled {
    mr_buffer *buffer;
    uint32_t stream;
    bool scratch; /* a kernel's workspace: nobody needs what was in it */
    mr_task *of;  /* whose result was there; NULL: a workspace */
} mr_recycled;

typedef struct mr_walk_entry {
    mr_array *x;
    int32_t child;
} mr_walk_entry;

typedef struct mr_plan {
    mr_window *window;   /* the arena and the tasks' reference count */
    mr_fuse_node **node; /* mr_plan_node, in topological order */
    size_t n, cap;
    size_t at;             /* the root of the group that is planned */
    mr_fuse_node *few[32]; /* where node points while they fit */
    /* The walker's.  The lowest n_held entries are retained: those that were
     * there when the plan lock was let go. */
    mr_walk_entry *stack;
    size_t depth, stack_cap, n_held;
    size_t most;     /* nodes of a window */
    mr_array **drop; /* references to drop once the window is submitted */
    size_t n_drop;
    mr_task *first, **last; /* tasks of the window, in order */
    mr_recycled *recycled;
    size_t n_recycled, recycled_cap;
    mr_arrival *arrivals;
    uint64_t number;   /* of the plan: no two windows have one */
    mr_buffer **owned; /* fresh buffers: one reference each, until the end */
    size_t n_owned, owned_cap;
    uint32_t stream;    /* what 0 means here: the thread's default */
    uint32_t wish, own; /* it is `wish` if that lives, else `own` */
    double cost;        /* estimated nanoseconds of the window */
    bool destructive;   /* memory is reused: its tasks cannot run again */
    bool exceeds;       /* a soft limit: waiting did not help */
    bool met_failure;   /* of a node that it looked at */
    bool counts_bytes;  /* nobody waits for it: what it takes is bounded */
    size_t taken_bytes; /* by the window that was submitted last, if so */
    int64_t n_tasks, n_kernels, n_fused;
    /* Not NULL, retained: an input that a thread computes alone (alone.h), for
     * which the plan was given up. */
    mr_array *taken;
    uint32_t *other; /* streams beside ours that get tasks */
    size_t n_other, other_cap;
} mr_plan;

/* walk.c: fill in the next window; *more when nodes are left.  A placeholder
 * or a failed node is an error; so is one that is taken (p->taken), without a
 * message. */
mr_code mr__plan_walk(mr_plan *p, mr_array *const *roots, size_t n_roots,
                      bool *more);
/* Start: the roots go on the walker's stack. */
mr_code mr__plan_push_roots(mr_plan *p, mr_array *const *roots, size_t n_roots);
/* Undo the marks on the window's nodes. */
void mr__plan_unmark(mr_plan *p);
/* What is left on the stack gets references before the plan lock is let go. */
void mr__plan_hold(mr_plan *p);
/* Drop those of the window's nodes that were on the stack before it... */
void mr__plan_drop_held(mr_plan *p);
/* ... and those of the stack, at the end. */
void mr__plan_drop_stack(mr_plan *p);

/* reserve.c: places, buffers and tasks of the window; on failure nothing is
 * kept and no node has changed. */
mr_code mr__plan_reserve(mr_plan *p, mr_fuse_group *groups);
/* Publish: nodes become submitted or done, tasks enter their streams. */
void mr__plan_submit(mr_plan *p);
void mr__plan_abandon(mr_plan *p);
/* Parts of reserve.c that transfer.c needs.  A fresh buffer of a device, the
 * plan's until the end; NULL with the error set. */
mr_buffer *mr__plan_buffer(mr_plan *p, const mr_device_table *d, size_t bytes);
/* The stream will get a task.  False: no memory. */
bool mr__plan_note_stream(mr_plan *p, uint32_t stream);
/* x is done when t is.  False: no memory. */
bool mr__plan_completes(mr_plan *p, mr_task *t, mr_array *x);
/* t is made: it comes after those before. */
void mr__plan_append(mr_plan *p, mr_task *t);

static inline mr_plan_node *
mr__plan_node(const mr_array *x)
{
    return x->plan;
}

#endif
