/* SPDX-License-Identifier: Apache-2.0
 *
 * cpus.h -- how many processors this process may use.
 */
#ifndef MR_BASE_CPUS_H
#define MR_BASE_CPUS_H

#include <sched.h>

/* Room for 8,192 processors. */
typedef struct mr_cpu_mask {
    cpu_set_t set[8];
} mr_cpu_mask;

/* The process's affinity mask (its main thread's), and how many it holds. */
int mr__cpus_affinity(mr_cpu_mask *mask);

/* The cgroup quota in whole processors, rounded up, the smallest of all
 * levels above the process; 0 when there is none.  `membership` is the text
 * of /proc/self/cgroup, `mount` where the hierarchies are (/sys/fs/cgroup). */
int mr__cpus_quota(const char *membership, const char *mount);

/* MARRAM_NUM_THREADS if it is sound (else one warning is logged), else the
 * affinity bounded by the quota; >= 1, <= MR_CPUS_MAX. */
#define MR_CPUS_MAX 1024
int mr__cpus_to_use(void);

#endif
