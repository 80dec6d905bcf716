/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.h -- ordered queues of tasks and who drains them.
 */
#ifndef MR_EVAL_STREAM_H
#define MR_EVAL_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "eval/device.h"
#include "eval/task.h"
#include "graph/node.h"

/* The calling thread's own stream on the default device, or the one that it set
 * as default there; 0 with an error set when there is no memory for it. */
uint32_t mr__stream_own(void);
uint32_t mr__stream_default(void);
/* Is this an own stream of the calling thread?  Those end with it. */
bool mr__stream_is_own(uint32_t id);
/* A new one; 0 with an error set. */
uint32_t mr__stream_make(const mr_device_table *device);
/* It takes no more tasks, and is gone when it is empty; 0: nothing. */
void mr__stream_end(uint32_t id);
/* Made, and not ended yet. */
bool mr__stream_is_open(uint32_t id);
/* id if such a stream lives, else the thread's default. */
uint32_t mr__stream_resolve(uint32_t id);
const mr_device_table *mr__stream_device(uint32_t id);
/* id, or for 0 what the thread set as default: perhaps 0, perhaps gone. */
uint32_t mr__stream_wish(uint32_t id);
/* id if tasks may enter it until the plan lock is dropped, else `otherwise`.
 * Under the plan lock. */
uint32_t mr__stream_planned(uint32_t id, uint32_t otherwise);

/* Enter a task.  Under the plan lock.  The stream gets no drainer by this: the
 * planner's thread helps or kicks afterwards. */
void mr__stream_enter(mr_task *t);
/* A flying task is over: the stream forgets it, and may end by this. */
void mr__stream_landed(mr_task *t) __attribute__((cold));
/* One producer less: when it was the last, the stream gets a drainer. */
void mr__stream_producer_done(mr_task *t);
/* Let a worker drain what can run, if nobody does. */
void mr__stream_kick(uint32_t id);
/* Drain on the calling thread while x is submitted, if nobody else does; what
 * is left goes to a worker.  True if anything was run. */
bool mr__stream_help(uint32_t id, const mr_array *x);
/* Be the drainer of a stream that has nothing to do, for work that is in no
 * queue; false when it has, or is gone.  Then vacate it: what entered meanwhile
 * goes to a worker.  `ran`: counts as a task. */
bool mr__stream_occupy(uint32_t id);
void mr__stream_vacate(uint32_t id, bool ran);
/* Tasks that ran so. */
uint64_t mr__streams_ran_alone(void);
/* Wait until all that was entered before is done; MR_E_CANCELLED when the
 * wait was interrupted (hooks.h). */
mr_code mr__stream_wait(uint32_t id);

#endif
