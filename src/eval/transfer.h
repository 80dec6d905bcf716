/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer.h -- where valid copies of a buffer are, and bringing it over.
 *
 * All of it under the plan lock.  What the CPU alone never needs is marked
 * cold: small evaluations are bound by the instruction cache.
 */
#ifndef MR_EVAL_TRANSFER_H
#define MR_EVAL_TRANSFER_H

#include "eval/plan.h"

/* Can what runs in `space` read the elements of w as they lie? */
static inline bool
mr__place_is_in(const mr_place *w, uint16_t space)
{
    if (__builtin_expect(space == 0, 1))
        return w->buffer == NULL || w->buffer->space == 0;
    return w->buffer != NULL && w->buffer->space == space &&
           !w->buffer->exported_writable;
}

/* Make w, the place of x, one in `space`: a copy that is there, or one that a
 * new task of the plan makes on behalf of an operator's node.  False with the
 * error set. */
bool mr__place_bring(mr_plan *p, mr_array *behalf, const mr_array *x,
                     uint16_t space, mr_place *w) __attribute__((cold));

/* The copies that the plan makes become known to others, or are undone. */
void mr__arrivals_publish(mr_plan *p) __attribute__((cold));
void mr__arrivals_drop(mr_plan *p) __attribute__((cold));

/* The node of the host's copy of a device's buffer, NULL: none (any more). */
mr_array *mr__copy_on_host(mr_buffer *home);
/* Forget the copies on devices. */
void mr__copies_drop_on_devices(mr_buffer *home);
/* Give up the copy on the device of `space` (0: on any) that was used longest
 * ago, is used by no task, and not by this plan.  False: there is none. */
bool mr__copies_evict(const mr_plan *p, uint16_t space) __attribute__((cold));
/* In a forked child, whose thread may not have held the list's lock. */
void mr__copies_fork_child(void);

#endif
