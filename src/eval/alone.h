/* SPDX-License-Identifier: Apache-2.0
 *
 * alone.h -- evaluating the results of one compiled call without the plan lock.
 *
 * A result (a node with MR_NODE_ALONE: a projection of an operator that brings
 * its own execution) may leave `new` without the plan lock: one thread *takes*
 * it by compare-exchange, computes it and stores `done`.  Until then the state
 * is submitted with MR_STATE_ALONE beside it, and its memory is not said.
 *
 * A planner *forbids* that for each such node that it looks at, so what it sees
 * as `new` stays so while it holds the plan lock; what it finds taken it waits
 * for, holding nothing, and plans again.
 */
#ifndef MR_EVAL_ALONE_H
#define MR_EVAL_ALONE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "graph/node.h"

/* The roots are the results of one warm call whose arguments are there, and
 * nobody else can see the call: run it here.  False: nothing has changed, or
 * the states of the roots say more; plan. */
bool mr__eval_alone(mr_array *const *root, size_t n);

mr_state mr__alone_forbidden(mr_array *x);

/* Under the plan lock: the state of x; if that is new it stays so until the
 * lock is dropped. */
static inline mr_state
mr__alone_forbid(mr_array *x)
{
    return x->flags & MR_NODE_ALONE ? mr__alone_forbidden(x) : mr__state(x);
}

/* Does a thread compute x alone, now? */
static inline bool
mr__alone_is_taken(const mr_array *x)
{
    /* acquire: pairs with the exchange that ends it */
    return (x->flags & MR_NODE_ALONE) &&
           (atomic_load_explicit(&x->state, memory_order_acquire) &
            MR_STATE_ALONE);
}

#endif
