/* SPDX-License-Identifier: Apache-2.0
 *
 * cpus.c -- how many processors this process may use.
 *
 * A container's share is often far below the machine's count: the affinity
 * mask does not show it, the cgroup's quota does.  Version 2 keeps it in
 * cpu.max ("max 100000" or "150000 100000", microseconds of a period), version
 * 1 in cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us.  A parent's quota
 * binds its children, so each level up to the mount is read.
 * Called by: pool.c, once.
 */
#include "base/cpus.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

enum { PATH_BYTES = 4096 + 64, TEXT_BYTES = 4096 };

/* Up to TEXT_BYTES - 1 of the file; false when it cannot be read. */
static bool
read_text(const char *path, char *text)
{
    FILE *f = fopen(path, "re");
    size_t n;

    if (f == NULL)
        return false;
    n = fread(text, 1, TEXT_BYTES - 1, f);
    text[n] = '\0';
    fclose(f);
    return n > 0;
}

/* The file `name` of the group `dir`. */
static bool
read_entry(const char *dir, const char *name, char *text)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);

    return n > 0 && n < (int)sizeof path && read_text(path, text);
}

static int
whole_cpus(long long quota, long long period)
{
    long long n;

    if (quota <= 0 || period <= 0)
        return 0;
    n = quota / period + (quota % period != 0);
    return n < INT_MAX ? (int)n : INT_MAX;
}

static int
quota_v2(const char *dir)
{
    char text[TEXT_BYTES];
    long long quota, period;

    if (!read_entry(dir, "cpu.max", text) ||
        sscanf(text, "%lld %lld", &quota, &period) != 2)
        return 0; /* "max" is no number: no quota */
    return whole_cpus(quota, period);
}

static int
quota_v1(const char *dir)
{
    char quota[TEXT_BYTES], period[TEXT_BYTES];

    if (!read_entry(dir, "cpu.cfs_quota_us", quota) ||
        !read_entry(dir, "cpu.cfs_period_us", period))
        return 0;
    return whole_cpus(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

static int
smaller_quota(int a, int b)
{
    if (a == 0 || b == 0)
        return a + b;
    return a < b ? a : b;
}

/* The smallest quota of `base`/`group` and its parents up to `base`.  Inside
 * a container the group's own path may not exist below the mount: its parents
 * are asked all the same. */
static int
quota_of_levels(const char *base, const char *group, int (*read)(const char *))
{
    char dir[PATH_BYTES];
    size_t floor = strlen(base);
    int n = snprintf(dir, sizeof dir, "%s%s", base, group);
    int quota = 0;

    if (n < 0 || n >= (int)sizeof dir)
        return read(base);
    for (;;) {
        size_t end = strlen(dir);

        while (end > floor && dir[end - 1] == '/')
            dir[--end] = '\0';
        quota = smaller_quota(quota, read(dir));
        if (end <= floor)
            return quota;
        while (end > floor && dir[end - 1] != '/')
            dir[--end] = '\0';
    }
}

/* True if the comma-separated list has the entry "cpu". */
static bool
lists_cpu(const char *list)
{
    for (const char *at = list; (at = strstr(at, "cpu")) != NULL; at += 3)
        if ((at == list || at[-1] == ',') && (at[3] == '\0' || at[3] == ','))
            return true;
    return false;
}

/* A line is "number:controllers:path"; version 2 has no controllers. */
static int
quota_of_line(char *line, const char *mount)
{
    char base[PATH_BYTES];
    char *controllers = strchr(line, ':');
    char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    int n;

    if (group == NULL)
        return 0;
    *controllers++ = '\0';
    *group++ = '\0';
    if (controllers[0] == '\0')
        return quota_of_levels(mount, group, quota_v2);
    if (!lists_cpu(controllers))
        return 0;
    n = snprintf(base, sizeof base, "%s/%s", mount, controllers);
    if (n < 0 || n >= (int)sizeof base)
        return 0;
    if (access(base, F_OK) != 0)
        snprintf(base, sizeof base, "%s/cpu", mount);
    return quota_of_levels(base, group, quota_v1);
}

int
mr__cpus_quota(const char *membership, const char *mount)
{
    char text[TEXT_BYTES], *rest = NULL;
    int quota = 0;

    snprintf(text, sizeof text, "%s", membership);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest))
        quota = smaller_quota(quota, quota_of_line(line, mount));
    return quota;
}

int
mr__cpus_affinity(mr_cpu_mask *mask)
{
    CPU_ZERO_S(sizeof *mask, mask->set);
    /* The main thread's mask: a caller that pinned itself to one processor
     * for its own reasons does not make a pool of one. */
    if (sched_getaffinity(getpid(), sizeof *mask, mask->set) != 0 &&
        sched_getaffinity(0, sizeof *mask, mask->set) != 0)
        return 0;
    return CPU_COUNT_S(sizeof *mask, mask->set);
}

static int
cpus_found(void)
{
    mr_cpu_mask mask;
    char membership[TEXT_BYTES];
    int n = mr__cpus_affinity(&mask);
    int quota = 0;

    if (n <= 0)
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (read_text("/proc/self/cgroup", membership))
        quota = mr__cpus_quota(membership, "/sys/fs/cgroup");
    if (quota > 0 && quota < n)
        n = quota;
    if (n < 1)
        return 1;
    return n < MR_CPUS_MAX ? n : MR_CPUS_MAX;
}

int
mr__cpus_to_use(void)
{
    const char *wish = getenv("MARRAM_NUM_THREADS");
    char *end;
    long n;

    if (wish == NULL || wish[0] == '\0')
        return cpus_found();
    errno = 0;
    n = strtol(wish, &end, 10);
    if (errno == 0 && *end == '\0' && n >= 1 && n <= MR_CPUS_MAX)
        return (int)n;
    mr__log(MR_LOG_WARN,
            "MARRAM_NUM_THREADS=\"%.40s\" is ignored: it should be a whole "
            "number from 1 to %d",
            wish, MR_CPUS_MAX);
    return cpus_found();
}
