/* SPDX-License-Identifier: Apache-2.0
 *
 * device_op.h -- an operator of the tests' own: x + 1 for float32, which
 * counts its runs, may wait at a gate and may fail.
 */
#ifndef MRT_DEVICE_OP_H
#define MRT_DEVICE_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "marram/types.h"

#define MRT_COUNTERS 4096
#define MRT_GATES    8

typedef struct mrt_counted {
    int64_t counter;      /* which one counts: 0..MRT_COUNTERS-1 */
    int64_t gate;         /* 0: none; else runs wait until it is open */
    int64_t fail;         /* MR_OK, or the code to fail with */
    int64_t n_fails;      /* runs of the counter that fail, then it works;
                             0: all */
    int64_t microseconds; /* that a run sleeps */
} mrt_counted;

/* x + 1, owned as any operator's result. */
mr_array *mrt_counted_op_at(const char *site, mr_array *x, mrt_counted how);
#define mrt_counted_op(...) mrt_counted_op_at(MR_SITE, __VA_ARGS__)
/* x + 1, counted by `counter`. */
#define mrt_count(x, counter_)                                                 \
    mrt_counted_op_at(MR_SITE, x, (mrt_counted){.counter = (counter_)})

int mrt_runs(int counter);
void mrt_counters_clear(void); /* and all gates are shut */
void mrt_gate_open(int gate);

#endif
