/* SPDX-License-Identifier: Apache-2.0
 *
 * alive.h -- a test leaves no block of memory alive that was not before it.
 */
#ifndef MRT_SUPPORT_ALIVE_H
#define MRT_SUPPORT_ALIVE_H

#include <time.h>

#include "base/alloc.h"
#include "marram/marram.h"
#include "support/base.h"
#include "support/device_op.h"
#include "support/mrt.h"

/* Everything alive when a test begins must be all that is when it ends. */
static int64_t live_at_start; /* set by warm_up */

/* Blocks alive once workers have dropped what they hold: `want`, if that comes
 * about within a second. */
static inline int64_t
live_blocks(int64_t want)
{
    int64_t live = -1;

    mr_stream_sync((mr_stream){0});
    for (int i = 0; i < 1000; i++) {
        mr_memory_clear_cache();
        live = mr__alloc_live();
        if (live == want)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return live;
}

static inline int
begin(void **state)
{
    (void)state;
    mrt_counters_clear();
    mr_error_take();
    return 0;
}

static inline int
end(void **state)
{
    int64_t live = live_blocks(live_at_start);

    (void)state;
    if (live == live_at_start)
        return 0;
    print_error("%lld blocks alive at the start, %lld at the end\n",
                (long long)live_at_start, (long long)live);
    return -1;
}

#endif
