/* SPDX-License-Identifier: Apache-2.0
 *
 * pools.c -- what the host's pool and those of devices use together, and may
 * use together.
 *
 * Each pool has a limit of its own: the host's from the machine, a device's
 * from its provider.  A limit that the user sets holds for their sum as well;
 * a pool that meets it has the caches of all others emptied first.  Pools are
 * known here from the moment that their blocks get an address space; those
 * that never do (a test's) count for themselves alone.
 * Called by: pool.c, magazine.c, eval/ (figures and limits).  Calls: pool.c.
 */
#include "array/pool.h"

#include <string.h>

#include "base/alloc.h"

/* By address space, 0 (the host) unused.  Release when it is entered, acquire
 * by readers: it is ready then. */
static _Atomic(mr_memory_pool *) devices[MR_MAX_SPACES];

/* Bytes taken from the sources, cached ones included, and how many there may
 * be.  acq_rel on `held`: a failed attempt sees what was given before. */
static _Atomic size_t held;
static _Atomic size_t limit = SIZE_MAX;     /* relaxed: a setting */
static _Atomic size_t cache_cap = SIZE_MAX; /* relaxed: a setting */
static _Atomic bool soft;                   /* relaxed: a setting */
/* relaxed, all: figures */
static _Atomic int64_t devices_active, peak;
static _Atomic size_t peak_held;
_Thread_local bool mr__pool_waits;

/* ---- the sum ------------------------------------------------------------ */

static void
raise_peak_held(size_t now)
{
    size_t most = atomic_load_explicit(&peak_held, memory_order_relaxed);

    while (now > most && !atomic_compare_exchange_weak_explicit(
                             &peak_held, &most, now, memory_order_relaxed,
                             memory_order_relaxed))
        ;
}

bool
mr__pools_reserve(size_t bytes)
{
    size_t most = atomic_load_explicit(&limit, memory_order_relaxed);
    size_t now = atomic_load_explicit(&held, memory_order_acquire);

    do
        if (now > most || bytes > most - now)
            return false;
    while (!atomic_compare_exchange_weak_explicit(
        &held, &now, now + bytes, memory_order_acq_rel, memory_order_acquire));
    raise_peak_held(now + bytes);
    return true;
}

void
mr__pools_exceed(size_t bytes)
{
    raise_peak_held(
        atomic_fetch_add_explicit(&held, bytes, memory_order_acq_rel) + bytes);
}

bool
mr__pools_may_exceed(void)
{
    return atomic_load_explicit(&soft, memory_order_relaxed) && !mr__pool_waits;
}

bool
mr__pools_are_soft(void)
{
    return atomic_load_explicit(&soft, memory_order_relaxed);
}

bool
mr__pools_set_soft(bool on)
{
    return atomic_exchange_explicit(&soft, on, memory_order_relaxed);
}

void
mr__pools_unreserve(size_t bytes)
{
    atomic_fetch_sub_explicit(&held, bytes, memory_order_acq_rel);
}

bool
mr__pools_are_limited(void)
{
    return atomic_load_explicit(&limit, memory_order_relaxed) != SIZE_MAX;
}

static mr_memory_pool *
device_pool(int space)
{
    return atomic_load_explicit(&devices[space], memory_order_acquire);
}

bool
mr__pools_trim(size_t bytes)
{
    if (!mr__pools_are_limited())
        return false;
    mr__pool_trim(mr__host_pool(), 0);
    for (int i = 1; i < MR_MAX_SPACES; i++)
        if (device_pool(i) != NULL)
            mr__pool_trim(device_pool(i), 0);
    if (!mr__pools_reserve(bytes))
        return false;
    mr__pools_unreserve(bytes); /* whoever asked tries again */
    return true;
}

/* ---- figures ------------------------------------------------------------ */

void
mr__pools_count(int64_t bytes)
{
    atomic_fetch_add_explicit(&devices_active, bytes, memory_order_relaxed);
}

void
mr__pools_raise_peak(const mr_memory_pool *p, int64_t active)
{
    /* relaxed, all: figures */
    int64_t now = atomic_load_explicit(&devices_active, memory_order_relaxed);
    int64_t most = atomic_load_explicit(&peak, memory_order_relaxed);

    now += p->host ? active
                   : atomic_load_explicit(&mr__host_pool()->active,
                                          memory_order_relaxed);
    while (now > most &&
           !atomic_compare_exchange_weak_explicit(
               &peak, &most, now, memory_order_relaxed, memory_order_relaxed))
        ;
}

mr_pool_stats
mr__pools_stats(void)
{
    mr_pool_stats sum = mr__pool_stats(mr__host_pool());
    int64_t most;

    for (int i = 1; i < MR_MAX_SPACES; i++) {
        mr_memory_pool *p = device_pool(i);
        mr_pool_stats s;

        if (p == NULL)
            continue;
        s = mr__pool_stats(p);
        sum.active += s.active;
        sum.cached += s.cached;
        sum.buffers += s.buffers;
    }
    most = atomic_load_explicit(&peak, memory_order_relaxed);
    sum.peak = most > 0 ? (size_t)most : 0;
    sum.peak_held = atomic_load_explicit(&peak_held, memory_order_relaxed);
    return sum;
}

void
mr__pools_reset_peak(void)
{
    mr__pool_reset_peak(mr__host_pool());
    for (int i = 1; i < MR_MAX_SPACES; i++)
        if (device_pool(i) != NULL)
            mr__pool_reset_peak(device_pool(i));
    /* relaxed: figures */
    atomic_store_explicit(&peak, 0, memory_order_relaxed);
    atomic_store_explicit(&peak_held,
                          atomic_load_explicit(&held, memory_order_relaxed),
                          memory_order_relaxed);
    mr__pools_raise_peak(mr__host_pool(),
                         (int64_t)mr__pool_stats(mr__host_pool()).active);
}

/* ---- limits ------------------------------------------------------------- */

size_t
mr__pools_set_limit(size_t bytes)
{
    mr_memory_pool *host = mr__host_pool();
    size_t old = mr__pool_set_limit(host, bytes);

    atomic_store_explicit(&limit,
                          bytes == host->default_limit ? SIZE_MAX : bytes,
                          memory_order_relaxed);
    if (!mr__pools_reserve(0))
        mr__pools_trim(0);
    return old;
}

size_t
mr__pools_set_cache_limit(size_t bytes)
{
    size_t old = mr__pool_set_cache_limit(mr__host_pool(), bytes);

    atomic_store_explicit(&cache_cap, bytes, memory_order_relaxed);
    for (int i = 1; i < MR_MAX_SPACES; i++)
        if (device_pool(i) != NULL)
            mr__pool_set_cache_cap(device_pool(i), bytes);
    return old;
}

void
mr__pools_clear(void)
{
    mr__pool_trim(mr__host_pool(), 0);
    for (int i = 1; i < MR_MAX_SPACES; i++)
        if (device_pool(i) != NULL)
            mr__pool_trim(device_pool(i), 0);
}

/* ---- the list ----------------------------------------------------------- */

void
mr__pool_set_space(mr_memory_pool *p, uint16_t space)
{
    p->space = space;
    if (p->host || space == 0 || space >= MR_MAX_SPACES)
        return;
    p->counted = true;
    p->cache_cap = atomic_load_explicit(&cache_cap, memory_order_relaxed);
    atomic_store_explicit(&devices[space], p, memory_order_release);
}

/* Devices stay with the parent, and so does their memory: what is dropped here
 * is forgotten. */
void
mr__pools_fork_child(void)
{
    for (int i = 1; i < MR_MAX_SPACES; i++) {
        mr_memory_pool *p = device_pool(i);

        if (p == NULL)
            continue;
        mr__lock_fork_child(&p->lock);
        p->lost = true;
        p->oldest = p->newest = NULL;
        memset(p->large, 0, sizeof p->large);
        memset(p->large_mask, 0, sizeof p->large_mask);
        p->cached = 0;
    }
}
