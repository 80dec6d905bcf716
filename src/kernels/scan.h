/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.h -- running sums and products of lines of float32, a line a lane.
 *
 * A line is one chain whose order is fixed, so as many lines as a vector has
 * lanes are run at a time: squares of them are turned, combined and turned
 * back.  The bits are those of a plain loop over each line.
 */
#ifndef MR_KERNELS_SCAN_H
#define MR_KERNELS_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tier/tier.h"

/* Lines of n entries each, `apart` floats from one to the next; the results may
 * stand where the entries did. */
typedef struct mr_scan_lines {
    const float *from;
    float *to;
    int64_t n, apart;
    bool reverse;   /* from the last entry on */
    bool inclusive; /* or each entry's result is that of those before it */
} mr_scan_lines;

typedef struct mr_scan_tier {
    int width; /* lines at a time; 0: there is no gain in it */
    /* Sums carry float64 and are rounded at each entry. */
    void (*sum)(const mr_scan_lines *);
    void (*product)(const mr_scan_lines *);
} mr_scan_tier;

#define MR_X(id, name) extern const mr_scan_tier mr__scan_tier_##name;
MR_TIERS(MR_X)
#undef MR_X

/* Of one tier, NULL where this machine cannot run it. */
static inline const mr_scan_tier *
mr__scan_of_tier(int id)
{
    return mr__tier_or_none(id)->scan;
}

/* Of the tier in use. */
static inline const mr_scan_tier *
mr__scan_of(void)
{
    return mr__tier()->scan;
}

#endif
