/* SPDX-License-Identifier: Apache-2.0
 *
 * former.c -- what an array was before an update that failed.
 *
 * A node that failed keeps its inputs, and a kernel that may fail writes
 * nothing before it has looked at its data, also where it writes over an input
 * (a block that may fail lies over none: blocks.c).  So the value before the
 * update is still there, a few casts and views away.
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
enum { DEPTH_MAX = 12, LOOKS_MAX = 256 };

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

mr_array *
mr_array_former(mr_array *x, mr_array *was)
{
    int looks = LOOKS_MAX;
    mr_array *found = NULL;
    mr_state state;

    if (x == NULL || was == NULL)
        return NULL;
    mr__lock_take(&mr__plan_lock);
    state = mr__alone_forbid(x);
    if ((state == MR_FAILED || state == MR_NEW) &&
        is_below(x, was, DEPTH_MAX, &looks))
        found = mr_retain(was);
    mr__lock_drop(&mr__plan_lock);
    return found;
}
