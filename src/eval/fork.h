/* SPDX-License-Identifier: Apache-2.0
 *
 * fork.h -- what eval/'s parts do when the process forks.
 */
#ifndef MR_EVAL_FORK_H
#define MR_EVAL_FORK_H

/* After the pool's: until no user's thread is inside a task.  Takes the
 * registry of streams, which the other two let go. */
void mr__streams_fork_prepare(void);
void mr__streams_fork_parent(void);
/* In the child: no thread drains any stream. */
void mr__streams_fork_child(void);
/* A drainer for each stream that has something to run. */
void mr__streams_kick_all(void);
/* The same before a child's first wait; nothing otherwise. */
void mr__streams_adopt(void);
/* In the child: nobody sleeps in the parking lot; tasks in it stay. */
void mr__wait_fork_child(void);
void mr__tasks_fork_child(void);
void mr__devices_fork_child(void);

#endif
