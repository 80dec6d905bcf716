/* SPDX-License-Identifier: Apache-2.0
 *
 * fork.h -- what eval/'s parts do when the process forks.
 */
#ifndef MR_EVAL_FORK_H
#define MR_EVAL_FORK_H

/* In the child: no thread drains any stream, whoever waits does. */
void mr__streams_fork_child(void);
/* In the child: nobody sleeps in the parking lot; tasks in it stay. */
void mr__wait_fork_child(void);
void mr__tasks_fork_child(void);
void mr__devices_fork_child(void);

#endif
