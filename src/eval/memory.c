/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c -- the public memory figures and limits: of all memory together,
 * and of one device.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "array/buffer.h"
#include "base/error.h"
#include "base/sized.h"
#include "eval/registry.h"
#include "marram/eval.h"

size_t
mr_memory_active(void)
{
    return mr__pools_stats().active;
}

size_t
mr_memory_peak(void)
{
    return mr__pools_stats().peak;
}

size_t
mr_memory_cached(void)
{
    return mr__pools_stats().cached;
}

void
mr_memory_reset_peak(void)
{
    mr__pools_reset_peak();
}

size_t
mr_memory_limit(void)
{
    return mr__pools_stats().limit;
}

size_t
mr_memory_set_limit(size_t bytes)
{
    return mr__pools_set_limit(bytes);
}

size_t
mr_memory_set_cache_limit(size_t bytes)
{
    return mr__pools_set_cache_limit(bytes);
}

void
mr_memory_clear_cache(void)
{
    mr__pools_clear();
}

mr_code
mr_memory_of(mr_device d, mr_memory_info *out)
{
    mr_memory_info info = {.size = sizeof info};
    const mr_device_table *t;
    mr_pool_stats s;

    t = mr__device_find(d);
    if (t == NULL)
        return mr__error_code();
    s = mr__pool_stats(t->pool(t->self));
    info.active = s.active;
    info.peak = s.peak;
    info.cached = s.cached;
    info.limit = s.limit;
    info.cache_limit = s.cache_limit;
    return mr__sized_give(out, &info, sizeof info, "mr_memory_info");
}

bool
mr_memory_set_strict(bool strict)
{
    return !mr__pools_set_soft(!strict);
}

static uint64_t
resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    long long all, resident = 0;

    if (f == NULL)
        return 0;
    if (fscanf(f, "%lld %lld", &all, &resident) != 2)
        resident = 0;
    fclose(f);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

mr_code
mr_memory_report_get(mr_memory_report *out)
{
    mr_memory_report r = {.size = sizeof r};
    mr_pool_stats s = mr__pools_stats();

    r.active = s.active;
    r.peak = s.peak;
    r.cached = s.cached;
    r.peak_held = s.peak_held;
    r.buffers = s.buffers;
    r.limit = s.limit;
    r.resident = resident_bytes();
    return mr__sized_give(out, &r, sizeof r, "mr_memory_report");
}
