/* SPDX-License-Identifier: Apache-2.0
 *
 * deep.c -- a graph that grows because nothing evaluates its end.
 *
 * A node's depth is a bound: chains below it may be done since, as in a loop
 * that builds the next step before it evaluates this one.  So the first node
 * beyond the limit asks for the true length, and is told of or put right.
 *
 * With a depth limit set (mr_eval_set_depth_limit) what is below such a node is
 * evaluated instead: noted where the node is made, since a lock may be held
 * there, and started when the outermost front door ends.  Inside a trace
 * nothing is noted: it is as long as its function.
 *
 * Called by: node.c, ops/door.c, compile/function.c.  Calls: marram/eval.h.
 */
#include <stdatomic.h>

#include "array/buffer.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/tls.h"
#include "graph/context.h"
#include "graph/node.h"
#include "marram/error.h"
#include "marram/eval.h"

_Atomic uint32_t mr__deep_limit = MR_DEEP;

static _Atomic bool told;
static _Atomic bool evaluates; /* relaxed: beyond the limit */
static _Atomic uint64_t n_ahead;

/* ---- the setting
 * ---------------------------------------------------------------------- */

uint64_t
mr_eval_set_depth_limit(uint64_t operations)
{
    uint32_t old = atomic_load_explicit(&mr__deep_limit, memory_order_relaxed);
    bool was = atomic_exchange_explicit(&evaluates, operations > 0,
                                        memory_order_relaxed);

    if (operations == 0)
        operations = MR_DEEP;
    else if (operations > UINT32_MAX - 1)
        operations = UINT32_MAX - 1;
    /* relaxed, all: others may see it a little later */
    atomic_store_explicit(&mr__deep_limit, (uint32_t)operations,
                          memory_order_relaxed);
    return was ? old : 0;
}

/* Before main, and before any node. */
__attribute__((constructor)) static void
read_environment(void)
{
    uint64_t n;

    if (mr__env_operations("MARRAM_EVAL_DEPTH", &n))
        mr_eval_set_depth_limit(n);
}

uint64_t
mr__deep_evaluations(void)
{
    return atomic_load_explicit(&n_ahead, memory_order_relaxed);
}

/* ---- a node beyond the limit
 * ------------------------------------------------------------- */

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

static void
drop_noted(void *unused)
{
    mr_array *x = mr__ctx.deep;

    (void)unused;
    mr__ctx.deep = NULL;
    mr__release(x);
}

/* The deepest input of x is to be evaluated, soon on this thread. */
static void
note(mr_array *x)
{
    mr_array *deepest = x->in[0];

    if (!mr__ctx.deep_ends && !mr__at_thread_exit(drop_noted, NULL)) {
        mr_error_take();
        return;
    }
    mr__ctx.deep_ends = true;
    for (int i = 1; i < x->n_in; i++)
        if (x->in[i]->depth > deepest->depth)
            deepest = x->in[i];
    if (mr__ctx.deep == NULL)
        mr__ctx.deep = mr__retain(deepest);
    x->depth = 1; /* as it will be */
}

void
mr__node_deep(mr_array *x)
{
    /* relaxed, both: they guard nothing */
    bool ahead = atomic_load_explicit(&evaluates, memory_order_relaxed);
    uint32_t limit =
        atomic_load_explicit(&mr__deep_limit, memory_order_relaxed);
    mr_pending p = {.size = sizeof p};

    /* A trace is as long as its function. */
    if ((!ahead && atomic_load_explicit(&told, memory_order_relaxed)) ||
        mr__ctx.trace_depth > 0 || x->trace != 0)
        return;
    if (mr_pending_get(x->in, x->n_in, &p) != MR_OK) {
        mr_error_take();
        return;
    }
    if (p.longest < limit / 2)
        x->depth = (uint32_t)p.longest + 1;
    else if (ahead)
        note(x);
    else if (!atomic_exchange_explicit(&told, true, memory_order_relaxed))
        tell(x, &p);
}

/* ---- where a front door ends
 * ------------------------------------------------------------ */

/* Of a trace, of somebody who holds something, or of a kernel: not now. */
static bool
may_evaluate(void)
{
    return mr__ctx.trace_depth == 0 && mr__ctx.trace == 0 &&
           mr__ctx.no_eval == NULL && mr__ctx.tape == NULL &&
           mr__error_here.door.op == NULL && mr__defer_depth == 0 &&
           !mr__pool_is_worker();
}

bool
mr__deep_evaluate(void)
{
    mr_array *x = mr__ctx.deep;
    mr_code rc;

    if (x == NULL || !may_evaluate())
        return true;
    mr__ctx.deep = NULL;
    if (mr__error_pending()) { /* the call has failed; another will ask */
        mr__release(x);
        return true;
    }
    atomic_fetch_add_explicit(&n_ahead, 1, memory_order_relaxed);
    rc = mr_async_eval(&x, 1);
    mr__release(x);
    if (rc == MR_E_CANCELLED)
        return false;
    if (rc != MR_OK) /* it stays with the arrays, or may go by itself */
        mr_error_take();
    return true;
}
