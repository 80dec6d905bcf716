/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.h -- counters for benchmarks and tests: relaxed, a hint.
 */
#ifndef MR_EVAL_STATS_H
#define MR_EVAL_STATS_H

#include <stdbool.h>

void mr__stats_task(void);
void mr__stats_ran(bool on_caller);

#endif
