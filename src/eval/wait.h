/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.h -- the parking lot: who waits for which node.
 *
 * Buckets by address; each has a lock (rank EVENT), a condition for threads
 * and a list of tasks.  The WAITED bit in a node's state says that its bucket
 * must be looked at when it is done, so nodes that nobody waits for pay
 * nothing.
 */
#ifndef MR_EVAL_WAIT_H
#define MR_EVAL_WAIT_H

#include <stdbool.h>

#include "eval/task.h"
#include "graph/node.h"

/* Sleep until x is not submitted any more. */
void mr__wait_node(mr_array *x);
/* The same for at most so many nanoseconds; false: x is still submitted. */
bool mr__wait_node_for(mr_array *x, int64_t ns);
/* Queue a task behind x through link; false when x is submitted no more. */
bool mr__wait_add(mr_array *x, mr_task *t, mr_wait_link *link);
/* x leaves `submitted` for this state.  The tasks that wait come back as a
 * list, for mr__wait_wake; the threads that wait go on at this thread's next
 * mr__wait_ring. */
mr_wait_link *mr__wait_finish(mr_array *x, mr_state state);
/* Wakes the threads that wait for what this thread has finished: once it holds
 * no references any more, since who is woken may take its processor, and would
 * then find the memory of what it drops still in use. */
void mr__wait_ring(void);
/* One producer less for each of them.  With no lock held: streams may be
 * drained here when there is no memory to ask a worker. */
void mr__wait_wake(mr_wait_link *list);

#endif
