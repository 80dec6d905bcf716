/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.h -- a counter for benchmarks and tests: relaxed, a hint.
 */
#ifndef MR_EVAL_STATS_H
#define MR_EVAL_STATS_H

/* A task ran on a worker or a device's thread: all others did on the thread
 * that asked for them, which counts nothing. */
void mr__stats_on_worker(void);

#endif
