/* SPDX-License-Identifier: Apache-2.0
 *
 * context.h -- what a thread carries from one front door to the next: its
 * open scope, outer site, stream and trace.
 *
 * All of it is thread-local; nothing here is shared or locked.
 */
#ifndef MR_GRAPH_CONTEXT_H
#define MR_GRAPH_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "marram/types.h"

typedef struct mr_scope_frame mr_scope_frame;

/* Where random operators that were given no key get one while a function is
 * traced for compiling: a placeholder each time, filled at every call with
 * the next key of the calling thread's sequence. */
typedef struct mr_key_source {
    mr_array *(*next)(struct mr_key_source *s); /* owned as results are */
} mr_key_source;

/* The nodes made on this thread while it is the innermost (or in its chain):
 * tells what a function made from what it found.  Addresses alone: nodes may
 * have gone since. */
typedef struct mr_made {
    struct mr_made *outer;
    mr_map node;
    bool incomplete; /* no memory */
} mr_made;

typedef struct mr_context {
    mr_scope_frame *scope; /* NULL, a frame, or a barrier frame */
    const char *site;      /* set while a library function runs: its user's */
    uint32_t stream;       /* the scoped stream; 0: the thread's default */
    uint32_t trace_depth;  /* how many traces are open on this thread */
    uint64_t trace;        /* the outermost live trace of this thread, or 0 */
    mr_key_source *keys;   /* NULL: the thread's own sequence */
    mr_made *made;         /* NULL, or who wants to know what is made */
    uint32_t grad_mode;    /* mr_grad_mode */
    struct mr_tape *tape;  /* NULL, or the open one (tape.h) */
    const char *no_eval;   /* in a compile or vmap trace: its name, else NULL */
    mr_array *deep;        /* NULL, or what is to be evaluated (deep.c) */
    bool deep_ends;        /* it is dropped at the thread's end */
} mr_context;

extern _Thread_local mr_context mr__ctx
    __attribute__((tls_model("initial-exec")));

/* Put x (one reference) under the open scope, or make it a reference of the
 * caller's own when none is open.  NULL (failure) passes through.  When it
 * cannot be recorded x is released and NULL returned, MR_E_MEMORY set. */
mr_array *mr__scope_own(mr_array *x);
mr_tree *mr__scope_own_tree(mr_tree *t);
/* Give a result back that a front door has made and its caller will not get:
 * an open scope keeps it until it ends. */
void mr__scope_disown(mr_array *x);
void mr__scope_disown_tree(mr_tree *t);

/* Traces: a live trace keeps the inputs of what depends on its tracers. */
uint64_t mr__trace_begin(void);
void mr__trace_end(uint64_t trace);
bool mr__trace_live(uint64_t trace);

#endif
