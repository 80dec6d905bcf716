/* SPDX-License-Identifier: Apache-2.0
 *
 * line.h -- evaluations that wait for memory, in order of arrival.
 */
#ifndef MR_EVAL_LINE_H
#define MR_EVAL_LINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* How many stand in it.  Relaxed: who sees it late has arrived before. */
extern _Atomic int32_t mr__line_length;

/* Does somebody stand in line? */
static inline bool
mr__line_is_empty(void)
{
    return atomic_load_explicit(&mr__line_length, memory_order_relaxed) == 0;
}

/* Stand at the end; the place, never 0. */
uint64_t mr__line_join(void);
/* Is this place the first? */
bool mr__line_is_first(uint64_t place);
/* Sleep until it is. */
void mr__line_wait(uint64_t place);
/* The first goes, and the next is woken. */
void mr__line_leave(uint64_t place);

void mr__line_fork_child(void);

#endif
