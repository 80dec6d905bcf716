/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c -- the caching allocator: blocks that were given back are kept warm
 * and given out again.
 *
 * Small blocks of host memory (64 KiB and below) lie in lists by exact class;
 * threads keep a few of each for themselves (magazine.c).  Larger ones lie in
 * classes of an eighth of a doubling; a request takes the smallest cached block
 * that is at most half as large again as needed.  Blocks go back to the source
 * in the order of their arrival, when the cache or the pool is over its limit.
 * The source is never called with the lock held.
 * Called by: buffer.c, magazine.c, eval/ (figures and limits).  Calls: base/.
 */
#include "array/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/poison.h"

enum {
    /* A cached block may be so many classes (eighths) too large. */
    MAX_CLASSES_UP = 4,
    MAGAZINE_ROOM = 512 * 1024,
    MAGAZINE_SHARE = 64, /* of the cache limit, at most, for each thread */
};

/* ---- classes ------------------------------------------------------------ */

static int
log2_floor(size_t x)
{
    return 63 - __builtin_clzll((unsigned long long)x);
}

int
mr__small_class(size_t bytes)
{
    int s;

    if (bytes <= 256)
        return bytes == 0 ? 0 : (int)((bytes - 1) / 64);
    s = log2_floor(bytes - 1);
    return 4 + (s - 8) * 4 + (int)((bytes - 1) >> (s - 2)) - 4;
}

size_t
mr__small_capacity(int c)
{
    int s = 8 + (c - 4) / 4;

    if (c < 4)
        return (size_t)(c + 1) * 64;
    return (size_t)(5 + (c - 4) % 4) << (s - 2);
}

static int
large_class(size_t bytes)
{
    int s;

    if (bytes < 512)
        bytes = 512;
    s = log2_floor(bytes - 1);
    return (s - MR_LARGE_MIN_LOG2) * 8 + (int)((bytes - 1) >> (s - 3)) - 8;
}

static size_t
large_capacity(int c)
{
    int s = MR_LARGE_MIN_LOG2 + c / 8;

    return (size_t)(9 + c % 8) << (s - 3);
}

/* ---- the lists; all under the lock -------------------------------------- */

static void
large_link_locked(mr_memory_pool *p, mr_block *k)
{
    int c = large_class(k->b.capacity);
    mr_block *next = p->large[c];

    k->prev = NULL;
    k->b.next = next ? &next->b : NULL;
    if (next)
        next->prev = k;
    p->large[c] = k;
    p->large_mask[c / 64] |= (uint64_t)1 << (c % 64);
    k->newer = NULL;
    k->older = p->newest;
    if (p->newest)
        p->newest->newer = k;
    else
        p->oldest = k;
    p->newest = k;
    p->cached += k->b.capacity;
}

static void
large_unlink_locked(mr_memory_pool *p, mr_block *k)
{
    int c = large_class(k->b.capacity);
    mr_block *next = (mr_block *)(void *)k->b.next;

    if (next)
        next->prev = k->prev;
    if (k->prev)
        k->prev->b.next = k->b.next;
    else
        p->large[c] = next;
    if (p->large[c] == NULL)
        p->large_mask[c / 64] &= ~((uint64_t)1 << (c % 64));
    if (k->older)
        k->older->newer = k->newer;
    else
        p->oldest = k->newer;
    if (k->newer)
        k->newer->older = k->older;
    else
        p->newest = k->older;
    k->b.next = NULL;
    p->cached -= k->b.capacity;
}

static mr_block *
large_find_locked(const mr_memory_pool *p, int c)
{
    int end =
        c + MAX_CLASSES_UP < MR_N_LARGE ? c + MAX_CLASSES_UP : MR_N_LARGE - 1;

    for (; c <= end; c++)
        if (p->large_mask[c / 64] >> (c % 64) & 1)
            return p->large[c];
    return NULL;
}

/* The next block to go back to the source, or NULL when nothing is cached. */
static mr_buffer *
victim_locked(mr_memory_pool *p)
{
    if (p->oldest) {
        mr_block *k = p->oldest;

        large_unlink_locked(p, k);
        return &k->b;
    }
    for (int c = MR_N_SMALL - 1; c >= 0; c--) {
        mr_buffer *b = p->small[c];

        if (b) {
            p->small[c] = b->next;
            p->cached -= b->capacity;
            return b;
        }
    }
    return NULL;
}

/* Take blocks out of the cache until at most `keep` bytes stay: a list for
 * give_back. */
static mr_buffer *
evict_locked(mr_memory_pool *p, size_t keep)
{
    mr_buffer *list = NULL, *b;

    while (p->cached > keep && (b = victim_locked(p)) != NULL) {
        p->held -= b->capacity;
        if (p->counted)
            mr__pools_unreserve(b->capacity);
        b->next = list;
        list = b;
    }
    return list;
}

/* How much may stay cached. */
static size_t
cache_room(const mr_memory_pool *p)
{
    return p->cache_limit < p->cache_cap ? p->cache_limit : p->cache_cap;
}

/* ---- the source; no lock held ------------------------------------------- */

static bool
is_small(const mr_memory_pool *p, const mr_buffer *b)
{
    return p->host && b->capacity <= MR_SMALL_MAX;
}

/* How many blocks of alloc.h a buffer is. */
static int64_t
n_allocations(const mr_memory_pool *p, const mr_buffer *b)
{
    return p->host && !is_small(p, b) ? 2 : 1;
}

static void
source_give(mr_memory_pool *p, mr_buffer *b)
{
    mr__alloc_cached(-n_allocations(p, b));
    if (p->host)
        mr__unpoison(b->data, b->capacity);
    if (is_small(p, b)) {
        p->source.give(p->source.ctx, b, MR_SMALL_HEADER + b->capacity);
        return;
    }
    p->source.give(p->source.ctx, b->data, b->capacity);
    mr__dealloc(b);
}

static void
give_back(mr_memory_pool *p, mr_buffer *list)
{
    while (list) {
        mr_buffer *b = list;

        list = b->next;
        source_give(p, b);
    }
}

static mr_buffer *
source_take_small(mr_memory_pool *p, size_t capacity)
{
    char *block = p->source.take(p->source.ctx, MR_SMALL_HEADER + capacity);
    mr_buffer *b = (mr_buffer *)(void *)block;

    if (b == NULL)
        return NULL;
    *b = (mr_buffer){
        .data = block + MR_SMALL_HEADER, .capacity = capacity, .pool = p};
    return b;
}

static mr_buffer *
source_take_large(mr_memory_pool *p, size_t capacity)
{
    mr_block *k = mr__alloc(sizeof *k);

    if (k == NULL)
        return NULL;
    *k = (mr_block){.b = {.capacity = capacity, .pool = p}};
    k->b.data = p->source.take(p->source.ctx, capacity);
    if (k->b.data == NULL) {
        mr__dealloc(k);
        return NULL;
    }
    return &k->b;
}

/* Room for `capacity` more bytes: counts them as held.  Cached blocks that had
 * to go are in *victims.  False when the limit is reached all the same. */
static bool
reserve_locked(mr_memory_pool *p, size_t capacity, mr_buffer **victims)
{
    size_t over, room = p->limit > p->held ? p->limit - p->held : 0;

    if (capacity > room) {
        over = capacity - room;
        *victims = evict_locked(p, p->cached > over ? p->cached - over : 0);
        room = p->limit > p->held ? p->limit - p->held : 0;
    }
    if (mr__pools_may_exceed()) {
        if (p->counted)
            mr__pools_exceed(capacity);
    } else if (capacity > room ||
               (p->counted && !mr__pools_reserve(capacity))) {
        return false;
    }
    p->held += capacity;
    return true;
}

/* The same once more, when the others' caches could make room. */
static bool
reserve_again(mr_memory_pool *p, size_t capacity)
{
    mr_buffer *victims = NULL;
    bool room;

    if (!p->counted || !mr__pools_trim(capacity))
        return false;
    mr__lock_take(&p->lock);
    room = reserve_locked(p, capacity, &victims);
    mr__lock_drop(&p->lock);
    give_back(p, victims);
    return room;
}

static void
unreserve(mr_memory_pool *p, size_t capacity)
{
    mr__lock_take(&p->lock);
    p->held -= capacity;
    if (p->counted)
        mr__pools_unreserve(capacity);
    mr__lock_drop(&p->lock);
}

static void *
fail_no_memory(mr_memory_pool *p, size_t bytes, bool over_limit)
{
    mr_pool_stats s = mr__pool_stats(p), all = mr__pools_stats();

    if (over_limit && mr__pools_are_limited() && s.active <= s.limit &&
        bytes <= s.limit - s.active)
        return mr__fail_null(MR_E_MEMORY,
                             "%zu bytes of %s memory are over the limit of "
                             "%zu bytes for all memory together, of which %zu "
                             "are in use, %zu of them here",
                             bytes, p->source.name, all.limit, all.active,
                             s.active);
    if (over_limit)
        return mr__fail_null(MR_E_MEMORY,
                             "%zu bytes of %s memory are over the limit of "
                             "%zu bytes, of which %zu are in use",
                             bytes, p->source.name, s.limit, s.active);
    return mr__fail_null(MR_E_MEMORY,
                         "the system has no %zu bytes of %s memory left; %zu "
                         "are in use",
                         bytes, p->source.name, s.active);
}

/* A fresh block, for which `capacity` is reserved. */
static mr_buffer *
make_block(mr_memory_pool *p, size_t capacity, bool small)
{
    mr_buffer *(*take)(mr_memory_pool *, size_t) =
        small ? source_take_small : source_take_large;
    struct mr__error_stash before = mr__error_stash();
    mr_buffer *b = take(p, capacity);

    if (b == NULL) {
        mr__pool_trim(p, 0);
        b = take(p, capacity);
    }
    mr__error_unstash(before); /* not of what was healed */
    if (b == NULL) {
        unreserve(p, capacity);
        return fail_no_memory(p, capacity, false);
    }
    return b;
}

/* ---- taking and giving -------------------------------------------------- */

mr_buffer *
mr__pool_take_small(mr_memory_pool *p, int c, int extra, mr_buffer **more,
                    int *n_more)
{
    size_t capacity = mr__small_capacity(c);
    mr_buffer *b, *victims = NULL;
    bool room = true;

    *more = NULL;
    *n_more = 0;
    mr__lock_take(&p->lock);
    b = p->small[c];
    if (b) {
        mr_buffer *last = b;
        int n = 0;

        for (; n < extra && last->next; n++)
            last = last->next;
        p->small[c] = last->next;
        last->next = NULL;
        p->cached -= (size_t)(n + 1) * capacity;
        *more = b->next;
        *n_more = n;
    } else {
        room = reserve_locked(p, capacity, &victims);
    }
    mr__lock_drop(&p->lock);
    give_back(p, victims);
    if (b) {
        mr__alloc_cached(-1);
        return b;
    }
    return room || reserve_again(p, capacity)
               ? make_block(p, capacity, true)
               : fail_no_memory(p, capacity, true);
}

void
mr__pool_give_small(mr_memory_pool *p, int c, mr_buffer *list, size_t bytes)
{
    mr_buffer *last = list, *victims;

    if (list == NULL)
        return;
    while (last->next)
        last = last->next;
    mr__lock_take(&p->lock);
    last->next = p->small[c];
    p->small[c] = list;
    p->cached += bytes;
    victims = evict_locked(p, cache_room(p));
    mr__lock_drop(&p->lock);
    give_back(p, victims);
}

mr_buffer *
mr__pool_take_large(mr_memory_pool *p, size_t bytes)
{
    mr_buffer *victims = NULL, *b;
    mr_block *k;
    size_t capacity;
    bool room = true;
    int c;

    if (bytes > (size_t)1 << MR_LARGE_MAX_LOG2)
        return fail_no_memory(p, bytes, true);
    if (p->lost)
        return mr__fail_null(MR_E_DEVICE,
                             "%s memory was opened before this process was "
                             "forked: start processes that use it afresh",
                             p->source.name);
    c = large_class(bytes);
    capacity = large_capacity(c);
    mr__lock_take(&p->lock);
    k = large_find_locked(p, c);
    if (k)
        large_unlink_locked(p, k);
    else
        room = reserve_locked(p, capacity, &victims);
    mr__lock_drop(&p->lock);
    give_back(p, victims);
    if (k) {
        mr__alloc_cached(-n_allocations(p, &k->b));
        b = &k->b;
    } else if (room || reserve_again(p, capacity)) {
        b = make_block(p, capacity, false);
    } else {
        return fail_no_memory(p, bytes, true);
    }
    if (b)
        mr__magazine_count(p, (int64_t)b->capacity);
    return b;
}

void
mr__pool_give_large(mr_memory_pool *p, mr_block *k)
{
    mr_buffer *victims;

    mr__magazine_count(p, -(int64_t)k->b.capacity);
    if (p->lost) {
        mr__dealloc(k);
        return;
    }
    mr__alloc_cached(n_allocations(p, &k->b));
    mr__lock_take(&p->lock);
    large_link_locked(p, k);
    victims = evict_locked(p, cache_room(p));
    mr__lock_drop(&p->lock);
    give_back(p, victims);
}

/* ---- figures and limits ------------------------------------------------- */

void
mr__pool_raise_peak(mr_memory_pool *p, int64_t active)
{
    /* relaxed, all: a figure */
    int64_t peak = atomic_load_explicit(&p->peak, memory_order_relaxed);

    while (active > peak && !atomic_compare_exchange_weak_explicit(
                                &p->peak, &peak, active, memory_order_relaxed,
                                memory_order_relaxed))
        ;
    if (p->counted)
        mr__pools_raise_peak(p, active);
}

static size_t
not_negative(int64_t x)
{
    return x > 0 ? (size_t)x : 0;
}

/* The bytes in use, and the most that the threads' own counts may hide. */
static int64_t
active_locked(const mr_memory_pool *p, int64_t *high)
{
    /* relaxed, all: figures */
    int64_t active = atomic_load_explicit(&p->active, memory_order_relaxed);

    *high = active;
    for (const mr_magazine *m = p->magazines; m; m = m->next) {
        active += atomic_load_explicit(&m->active, memory_order_relaxed);
        *high += atomic_load_explicit(&m->high, memory_order_relaxed);
    }
    if (*high < active)
        *high = active;
    return active;
}

static int64_t
buffers_locked(const mr_memory_pool *p)
{
    /* relaxed, all: figures */
    int64_t n = atomic_load_explicit(&p->buffers, memory_order_relaxed);

    for (const mr_magazine *m = p->magazines; m; m = m->next)
        n += atomic_load_explicit(&m->buffers, memory_order_relaxed);
    return n;
}

mr_pool_stats
mr__pool_stats(mr_memory_pool *p)
{
    mr_pool_stats s;
    int64_t active, high;

    mr__lock_take(&p->lock);
    active = active_locked(p, &high);
    mr__pool_raise_peak(p, high);
    s.active = not_negative(active);
    s.cached = p->held > s.active ? p->held - s.active : 0;
    s.buffers = not_negative(buffers_locked(p));
    s.peak_held = 0;
    s.limit = p->limit;
    s.cache_limit = p->cache_limit;
    mr__lock_drop(&p->lock);
    /* relaxed: a figure */
    s.peak = not_negative(atomic_load_explicit(&p->peak, memory_order_relaxed));
    return s;
}

void
mr__pool_reset_peak(mr_memory_pool *p)
{
    int64_t active, high;

    mr__lock_take(&p->lock);
    active = active_locked(p, &high);
    /* relaxed, both: figures; a thread that counts meanwhile may put its own
     * high back, which is at most what one magazine hides */
    for (mr_magazine *m = p->magazines; m; m = m->next)
        atomic_store_explicit(
            &m->high, atomic_load_explicit(&m->active, memory_order_relaxed),
            memory_order_relaxed);
    atomic_store_explicit(&p->peak, active, memory_order_relaxed);
    mr__lock_drop(&p->lock);
}

size_t
mr__pool_set_limit(mr_memory_pool *p, size_t limit)
{
    size_t old, active;
    mr_buffer *victims;
    int64_t high;

    mr__lock_take(&p->lock);
    old = p->limit;
    p->limit = limit;
    active = not_negative(active_locked(p, &high));
    victims = evict_locked(p, limit > active ? limit - active : 0);
    mr__lock_drop(&p->lock);
    give_back(p, victims);
    return old;
}

static void
set_magazine_room(mr_memory_pool *p, size_t cache_limit)
{
    size_t room = cache_limit / MAGAZINE_SHARE;

    /* relaxed, both: settings that threads may see a little later */
    atomic_store_explicit(&p->magazine_room,
                          room < MAGAZINE_ROOM ? room : MAGAZINE_ROOM,
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_relaxed);
}

size_t
mr__pool_set_cache_limit(mr_memory_pool *p, size_t limit)
{
    mr_buffer *victims;
    size_t old;

    set_magazine_room(p, limit);
    if (p->host)
        mr__magazine_flush(p);
    mr__lock_take(&p->lock);
    old = p->cache_limit;
    p->cache_limit = limit;
    victims = evict_locked(p, cache_room(p));
    mr__lock_drop(&p->lock);
    give_back(p, victims);
    return old;
}

void
mr__pool_set_cache_cap(mr_memory_pool *p, size_t bytes)
{
    mr_buffer *victims;

    mr__lock_take(&p->lock);
    p->cache_cap = bytes;
    victims = evict_locked(p, cache_room(p));
    mr__lock_drop(&p->lock);
    give_back(p, victims);
}

void
mr__pool_trim(mr_memory_pool *p, size_t keep)
{
    mr_buffer *victims;

    /* relaxed: threads may see it a little later */
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_relaxed);
    if (p->host)
        mr__magazine_flush(p);
    mr__lock_take(&p->lock);
    victims = evict_locked(p, keep);
    mr__lock_drop(&p->lock);
    give_back(p, victims);
}

/* ---- pools -------------------------------------------------------------- */

static void *
host_take(void *ctx, size_t bytes)
{
    (void)ctx;
    return mr__alloc_pages(bytes);
}

static void
host_give(void *ctx, void *data, size_t bytes)
{
    (void)ctx;
    mr__dealloc_pages(data, bytes);
}

static mr_memory_pool host = {
    .host = true,
    .counted = true,
    .cache_cap = SIZE_MAX,
    .source = {"host", host_take, host_give, NULL},
    .lock = MR_LOCK_INIT(MR_RANK_ALLOCATOR, "host memory"),
};
static pthread_once_t host_once = PTHREAD_ONCE_INIT;

static void
host_open(void)
{
    char membership[4096] = "";
    FILE *f = fopen("/proc/self/cgroup", "re");
    size_t memory;

    if (f) {
        size_t n = fread(membership, 1, sizeof membership - 1, f);

        membership[n] = '\0';
        fclose(f);
    }
    memory = mr__memory_of_machine(membership, "/sys/fs/cgroup");
    host.limit = memory == SIZE_MAX ? SIZE_MAX : memory / 5 * 4;
    host.cache_limit = host.default_limit = host.limit;
    set_magazine_room(&host, host.cache_limit);
}

mr_memory_pool *
mr__host_pool(void)
{
    pthread_once(&host_once, host_open);
    return &host;
}

mr_memory_pool *
mr__pool_new(const mr_pool_source *source)
{
    mr_memory_pool *p = mr__alloc_pages(sizeof *p); /* aligned to lines */

    if (p == NULL)
        return NULL;
    memset(p, 0, sizeof *p);
    p->source = *source;
    p->lock = (mr_lock)MR_LOCK_INIT(MR_RANK_ALLOCATOR, "device memory");
    p->limit = p->cache_limit = p->cache_cap = SIZE_MAX;
    return p;
}

void
mr__pool_free(mr_memory_pool *p)
{
    if (p == NULL)
        return;
    mr__pool_trim(p, 0);
    assert(p->held == 0);
    mr__dealloc_pages(p, sizeof *p);
}

void
mr__buffer_fork_prepare(void)
{
    mr__lock_take(&mr__host_pool()->lock);
}

void
mr__buffer_fork_parent(void)
{
    mr__lock_drop(&mr__host_pool()->lock);
}

/* What other threads kept is lost to the child: a bounded amount. */
void
mr__buffer_fork_child(void)
{
    mr__lock_drop(&mr__host_pool()->lock);
    mr__pools_fork_child();
}
