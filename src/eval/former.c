/* SPDX-License-Identifier: Apache-2.0
 *
 * former.c -- what an array was before an update that failed.
 *
 * A node that failed keeps its inputs, and a kernel that may fail writes
 * nothing before it has looked at its data, also where it writes over an input
 * (a block that may fail lies over none: blocks.c).  So the value before the
 * update is still there, a few casts and views away, unless later work of the
 * same window was given its memory.
 * Called by: bindings whose objects are updated in place.  Takes the plan lock,
 * under which the inputs of new nodes stay.
 */
#include "base/error.h"
#include "base/lock.h"
#include "eval/alone.h"
#include "eval/plan.h"
#include "graph/node.h"
#include "marram/array.h"
#include "marram/error.h"
#include "marram/eval.h"

/* An update is made of few operators: so far and so many are looked at. */
enum { DEPTH_MAX = 12, LOOKS_MAX = 256, NODES_MAX = 1 << 16 };

/* Is `was` among what x, which is not done, is computed from? */
static bool
is_below(mr_array *x, const mr_array *was, int depth, int *looks)
{
    int n = mr__n_edges(x);

    for (int i = 0; i < n; i++)
        if (x->in[i] == was)
            return true;
    for (int i = 0; i < n && depth > 0; i++) {
        mr_array *in = x->in[i];
        mr_state state;

        if (in == NULL || --*looks < 0)
            continue;
        state = mr__alone_forbid(in);
        if ((state == MR_FAILED || state == MR_NEW) &&
            is_below(in, was, depth - 1, looks))
            return true;
    }
    return false;
}

bool
mr_array_failed(const mr_array *x, const mr_error *why)
{
    return x != NULL && mr__state(x) == MR_FAILED &&
           (why == NULL || mr__error_record_is(x->error, why));
}

static bool
is_given(const mr_array *x)
{
    /* acquire: pairs with the release store of the one who filled it */
    return atomic_load_explicit(&x->state, memory_order_acquire) &
           MR_STATE_GIVEN;
}

/* Are the values of x there, or all that it is computed from?  Chains go along
 * first inputs, without recursion. */
static bool
is_whole(mr_array *x, int depth, int *looks)
{
    while (--*looks >= 0) {
        int n = mr__n_edges(x);

        switch (mr__alone_forbid(x)) {
        case MR_DONE:
            return !is_given(x);
        case MR_FAILED:
            return true; /* what is computed from it fails */
        case MR_NEW:
            break;
        case MR_SUBMITTED:
        default:
            return false;
        }
        for (int i = 1; i < n; i++)
            if (depth == 0 || !is_whole(x->in[i], depth - 1, looks))
                return false;
        if (n == 0)
            return true;
        x = x->in[0];
    }
    return false;
}

mr_array *
mr_array_former(mr_array *x, mr_array *was)
{
    int looks = LOOKS_MAX, nodes = NODES_MAX;
    mr_array *found = NULL;
    mr_state state;

    if (x == NULL || was == NULL)
        return NULL;
    mr__lock_take(&mr__plan_lock);
    state = mr__alone_forbid(x);
    if ((state == MR_FAILED || state == MR_NEW) &&
        is_below(x, was, DEPTH_MAX, &looks) && is_whole(was, DEPTH_MAX, &nodes))
        found = mr_retain(was);
    mr__lock_drop(&mr__plan_lock);
    return found;
}
