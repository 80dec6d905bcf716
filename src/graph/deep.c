/* SPDX-License-Identifier: Apache-2.0
 *
 * deep.c -- a graph that grows because nothing evaluates its end.
 *
 * A node's depth is a bound: chains below it may be done since, as in a loop
 * that builds the next step before it evaluates this one.  So the first node
 * beyond the limit asks for the true length, and is told of or put right.
 * Called by: node.c.  Calls: marram/eval.h.
 */
#include <stdatomic.h>

#include "base/error.h"
#include "base/log.h"
#include "graph/context.h"
#include "graph/node.h"
#include "marram/error.h"
#include "marram/eval.h"

static _Atomic bool told;

static void
tell(const mr_array *x, const mr_pending *p)
{
    mr__log(MR_LOG_WARN,
            "an array made at %s is %llu operations away from the last one "
            "that was evaluated (at %s): all of them, and what they need, stay "
            "in memory until it is.  Evaluate what a loop carries from step to "
            "step, as in eval(loss, state), not the loss alone",
            x->site ? x->site : "an unknown line",
            (unsigned long long)p->longest, *p->site ? p->site : "its start");
}

void
mr__node_deep(mr_array *x)
{
    mr_pending p = {.size = sizeof p};

    /* relaxed: it guards nothing.  A trace is as long as its function. */
    if (atomic_load_explicit(&told, memory_order_relaxed) ||
        mr__ctx.trace_depth > 0 || x->trace != 0)
        return;
    if (mr_pending_get(x->in, x->n_in, &p) != MR_OK) {
        mr_error_take();
        return;
    }
    if (p.longest < MR_DEEP / 2)
        x->depth = (uint32_t)p.longest + 1;
    else if (!atomic_exchange_explicit(&told, true, memory_order_relaxed))
        tell(x, &p);
}
