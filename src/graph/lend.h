/* SPDX-License-Identifier: Apache-2.0
 *
 * lend.h -- references that are noted instead of counted.
 *
 * Threads that call one function with the same arguments would pass the lines
 * of the arguments' counts back and forth, twice for each argument and call.
 * So an array that a second thread calls a function with is *lent* from then
 * on: the call's node takes no reference but notes the array in a slot of its
 * own thread's.  lend.c says why that is enough.
 */
#ifndef MR_GRAPH_LEND_H
#define MR_GRAPH_LEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "graph/node.h"

/* A slot: 0, or the address of the array that is noted there, with
 * MR_LEND_OWNED beside it when the slot has a counted reference too. */
typedef _Atomic(uintptr_t) mr_lend;
#define MR_LEND_OWNED ((uintptr_t)1)

/* This thread, as `caller` of arrays has it; 0: not known yet. */
extern _Thread_local uint32_t mr__lend_caller
    __attribute__((tls_model("initial-exec")));

/* As below; all but the usual case. */
mr_lend *mr__lend_shared(mr_array *x);

/* Note x, of which the caller has a counted reference, until mr__lend_end.
 * NULL: x is not lent, or there is no slot; count. */
static inline mr_lend *
mr__lend(mr_array *x)
{
    /* relaxed, both: the caller has a reference; a number says who, nothing
     * else */
    uint64_t refs = atomic_load_explicit(&x->refs, memory_order_relaxed);
    uint32_t first = atomic_load_explicit(&x->caller, memory_order_relaxed);

    return !(refs & MR_REF_LENT) && first != 0 && first == mr__lend_caller
               ? NULL
               : mr__lend_shared(x);
}

/* What is noted there is over.  True: the slot had a counted reference, which
 * is the caller's now. */
static inline bool
mr__lend_end(mr_lend *l)
{
    /* acq_rel: pairs with the scan (lend.c), which sees that all is over, or
     * gave its reference before */
    return atomic_exchange_explicit(l, 0, memory_order_acq_rel) & MR_LEND_OWNED;
}

/* Give the caller's reference of x, a counted one, to a slot where x is noted.
 * False: x is noted nowhere. */
bool mr__lend_give(mr_array *x);

/* Where the inputs of a node with MR_NODE_BORROWS are noted; NULL: counted. */
static inline mr_lend **
mr__lends(const mr_array *x)
{
    return (mr_lend **)(void *)(x->in + x->n_in);
}

#endif
