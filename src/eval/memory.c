/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c -- the public memory figures and limits: of all memory together,
 * and of one device.
 */
#include <string.h>

#include "array/buffer.h"
#include "base/error.h"
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
    uint64_t size;

    if (out == NULL)
        return mr__fail(MR_E_NULL, "the place for the figures is NULL");
    t = mr__device_find(d);
    if (t == NULL)
        return mr__error_code();
    size = out->size;
    if (size == 0 || size > sizeof info)
        size = sizeof info;
    s = mr__pool_stats(t->pool(t->self));
    info.active = s.active;
    info.peak = s.peak;
    info.cached = s.cached;
    info.limit = s.limit;
    info.cache_limit = s.cache_limit;
    memcpy(out, &info, size);
    out->size = size;
    return MR_OK;
}
