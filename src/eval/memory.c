/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c -- the public memory figures and limits: those of the host pool.
 */
#include "array/buffer.h"
#include "marram/eval.h"

size_t
mr_memory_active(void)
{
    return mr__pool_stats(mr__host_pool()).active;
}

size_t
mr_memory_peak(void)
{
    return mr__pool_stats(mr__host_pool()).peak;
}

size_t
mr_memory_cached(void)
{
    return mr__pool_stats(mr__host_pool()).cached;
}

void
mr_memory_reset_peak(void)
{
    mr__pool_reset_peak(mr__host_pool());
}

size_t
mr_memory_limit(void)
{
    return mr__pool_stats(mr__host_pool()).limit;
}

size_t
mr_memory_set_limit(size_t bytes)
{
    return mr__pool_set_limit(mr__host_pool(), bytes);
}

size_t
mr_memory_set_cache_limit(size_t bytes)
{
    return mr__pool_set_cache_limit(mr__host_pool(), bytes);
}

void
mr_memory_clear_cache(void)
{
    mr__pool_trim(mr__host_pool(), 0);
}
