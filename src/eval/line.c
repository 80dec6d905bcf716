/* SPDX-License-Identifier: Apache-2.0
 *
 * line.c -- evaluations that wait for memory, in order of arrival.
 *
 * A plan that finds no memory undoes itself and stands in line, holding
 * nothing.  The first in line tries again whenever some task has ended; those
 * behind it, and whoever comes to evaluate meanwhile, wait for their turn, so
 * that many small plans cannot starve a large one.  What is waited for is work
 * that was submitted, which never waits for memory itself: so the first always
 * gets its memory or finds nothing in flight, and fails.
 *
 * Called by: eval.c, under no lock.
 */
#include "eval/line.h"

#include "base/lock.h"

_Atomic int32_t mr__line_length;

static struct {
    mr_lock lock;
    mr_cond cond;
    uint64_t last, first; /* guarded by lock: places first ... last stand */
} line = {MR_LOCK_INIT(MR_RANK_EVENT, "line for memory"), MR_COND_INIT, 0, 1};

uint64_t
mr__line_join(void)
{
    uint64_t place;

    mr__lock_take(&line.lock);
    place = ++line.last;
    /* relaxed: see line.h */
    atomic_fetch_add_explicit(&mr__line_length, 1, memory_order_relaxed);
    mr__lock_drop(&line.lock);
    return place;
}

bool
mr__line_is_first(uint64_t place)
{
    bool first;

    mr__lock_take(&line.lock);
    first = place == line.first;
    mr__lock_drop(&line.lock);
    return first;
}

void
mr__line_wait(uint64_t place)
{
    mr__lock_take(&line.lock);
    while (place != line.first)
        mr__cond_wait(&line.cond, &line.lock);
    mr__lock_drop(&line.lock);
}

void
mr__line_leave(uint64_t place)
{
    mr__line_wait(place);
    mr__lock_take(&line.lock);
    line.first++;
    atomic_fetch_sub_explicit(&mr__line_length, 1, memory_order_relaxed);
    mr__cond_wake_all(&line.cond);
    mr__lock_drop(&line.lock);
}

/* Those who stood there are in the parent. */
void
mr__line_fork_child(void)
{
    mr__lock_fork_child(&line.lock);
    line.cond = (mr_cond)MR_COND_INIT;
    line.first = line.last + 1;
    /* relaxed: no other thread lives */
    atomic_store_explicit(&mr__line_length, 0, memory_order_relaxed);
}
