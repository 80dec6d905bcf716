/* SPDX-License-Identifier: Apache-2.0
 *
 * call.h -- a compiled function and one call of it: between function.c, which
 * looks programs up, and trace.c, which makes them.
 */
#ifndef MR_COMPILE_CALL_H
#define MR_COMPILE_CALL_H

#include <stdatomic.h>

#include "base/vec.h"
#include "compile/cache.h"
#include "compile/history.h"
#include "graph/tape.h"
#include "marram/compile.h"

struct mr_function {
    _Atomic int64_t refs; /* acq_rel on the way down */
    uint64_t id;          /* never used again */
    mr_closure *closure;
    char *name;
    mr_cache_owner *owner;
    bool shapeless;
    mr_capture_mode captures;
    const char *capture_help; /* or NULL */
    /* relaxed: figures */
    _Atomic uint64_t traces, misses;
    mr_history history;
};

typedef struct mr_call_state {
    const struct mr_device_table *device; /* where it is to run; NULL: host */
    const mr_tree *args;                  /* NULL: a tuple of the leaves */
    mr_tree *own_args;                    /* made when it is wanted */
    uint64_t structure;
    mr_array *const *leaf; /* borrowed */
    int n_leaves;
    /* What is traced: a closure, or a binding's function. */
    mr_closure *closure;
    mr_trace_fn fn;
    void *ctx;
    int64_t tag;
    mr_vec captured; /* what a trace found, as addresses */
    bool traced;
    const void *extra; /* the binding's part of the key */
    size_t n_extra;
    unsigned char *bytes;
    size_t n_bytes;
    mr_array *few_leaves[32];
    unsigned char few_bytes[512];
} mr_call_state;

/* How an entry comes about: the function is traced, and recorded on `tape`
 * unless that is NULL, or the tape of `with` is played. */
typedef struct mr_making {
    const mr_function *f;
    mr_tape *tape;
    const mr_cache_entry *with;
    bool failed; /* out: when there is no entry; false: the tape does not fit */
} mr_making;

/* The arguments as a tree, for a trace. */
const mr_tree *mr__call_tree(mr_call_state *c);
/* The function itself, on these arguments. */
mr_tree *mr__call_function(mr_call_state *c, const mr_tree *in);

/* ---- trace.c --------------------------------------------------------------
 */

/* An entry without a program; NULL: no memory. */
mr_cache_entry *mr__entry_new(const mr_function *f, const mr_cache_key *key,
                              int n_leaves);
/* The program of a call, and what its results are. */
mr_cache_entry *mr__entry_make(mr_call_state *c, const mr_cache_key *key,
                               mr_making *how);

#endif
