/* SPDX-License-Identifier: Apache-2.0
 *
 * cache.c -- the one cache of compiled programs.
 *
 * Invariants.  An entry in the shared table holds one reference of the
 * table's; one in a thread's table holds one of the thread's.  Erasing marks
 * the entry dead, unlinks it, and bumps the generation, so that other threads
 * drop it at their next look-up or at their end.  References are dropped
 * outside the lock: an entry's end may run what users attached to arrays.
 *
 * Hits in a thread's table are counted there and added to the totals when the
 * thread asks for figures, misses, or ends.
 *
 * Called by: function.c.
 */
#include "compile/cache.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/tls.h"
#include "compile/program.h"
#include "compile/report.h"
#include "graph/node.h"
#include "graph/tape.h"
#include "marram/error.h"
#include "marram/tree.h"

#define N_BUCKETS     1024
#define N_LOCAL       64
#define DEFAULT_LIMIT 4096
#define DEFAULT_BYTES ((uint64_t)1 << 30)

static mr_lock lock = MR_LOCK_INIT(MR_RANK_COMPILE_CACHE, "compile cache");
/* all guarded by lock */
static mr_cache_entry *buckets[N_BUCKETS];
static mr_cache_entry *newest, *oldest;
static uint64_t n_entries, n_bytes, limit = DEFAULT_LIMIT;
static uint64_t bytes_limit = DEFAULT_BYTES;
static uint64_t hits, misses, traces, evictions;

/* release on an erase pairs with the acquire of look-ups */
static _Atomic uint64_t generation = 1;
/* How often programs have grown, and up to where that is in the account:
 * release on growing pairs with the acquire of who weighs; weighed: relaxed,
 * changed under the lock */
static _Atomic uint64_t grown, weighed;

typedef struct local_table {
    uint64_t generation;
    /* Not yet told to the owner and the cache.  relaxed: figures, counted by
     * the thread, read by others who ask; set back to 0 under the lock. */
    _Atomic uint64_t hits[N_LOCAL];
    /* relaxed: of the slot's function, to be compared alone; changed while
     * hits are 0 */
    _Atomic(const mr_cache_owner *) owner[N_LOCAL];
    mr_cache_entry *slot[N_LOCAL];
    mr_array *holder[N_LOCAL]; /* of the slot's program, this thread's own */
    struct local_table *next, **at; /* guarded by the lock: of all threads */
} local_table;

static local_table *tables; /* guarded by the lock */

static _Thread_local local_table *local
    __attribute__((tls_model("initial-exec")));

/* ---- entries
 * ------------------------------------------------------------------ */

uint64_t
mr__cache_hash(uint64_t function, const void *bytes, size_t n)
{
    return mr__hash_bytes(function, bytes, n);
}

mr_cache_owner *
mr__cache_owner_new(uint64_t max_entries, uint64_t max_bytes)
{
    mr_cache_owner *o = mr__alloc_zero(sizeof *o);

    if (o == NULL)
        return NULL;
    atomic_init(&o->refs, 1);
    o->max_entries = max_entries;
    o->max_bytes = max_bytes;
    return o;
}

mr_cache_owner *
mr__cache_owner_retain(mr_cache_owner *o)
{
    /* relaxed: whoever retains has a reference */
    atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
    return o;
}

void
mr__cache_owner_release(mr_cache_owner *o)
{
    if (o != NULL &&
        atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1)
        mr__dealloc(o);
}

static bool
same_key(const mr_cache_key *a, const mr_cache_key *b)
{
    return a->hash == b->hash && a->function == b->function &&
           a->n_bytes == b->n_bytes &&
           memcmp(a->bytes, b->bytes, a->n_bytes) == 0;
}

static mr_cache_entry *
retain(mr_cache_entry *e)
{
    /* relaxed: whoever retains has a reference, or the lock */
    atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    return e;
}

void
mr__cache_release(mr_cache_entry *e)
{
    if (e == NULL ||
        atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (e->report != NULL)
        mr__report_end(e);
    mr__release(e->holder);
    mr__tape_free(e->tape);
    mr__cache_owner_release(e->owner);
    for (int i = 0; i < e->n_leaves; i++)
        if (e->leaf[i].array != NULL)
            mr__release(e->leaf[i].array);
    mr_tree_release(e->shape);
    mr__dealloc(e->lines);
    mr__dealloc(e->leaf);
    mr__dealloc((void *)(uintptr_t)e->key.bytes);
    mr__dealloc(e);
}

/* ---- the thread's table
 * --------------------------------------------------------- */

static void
slot_add_hits(size_t i)
{
    uint64_t n = atomic_load_explicit(&local->hits[i], memory_order_relaxed);

    if (n == 0 || local->slot[i] == NULL)
        return;
    mr__lock_take(&lock);
    atomic_store_explicit(&local->hits[i], 0, memory_order_relaxed);
    /* relaxed: a figure */
    atomic_fetch_add_explicit(&local->slot[i]->owner->hits, n,
                              memory_order_relaxed);
    hits += n;
    mr__lock_drop(&lock);
}

/* What threads have not told yet: of one function, or of all. */
static uint64_t
untold_hits_locked(const mr_cache_owner *owner)
{
    uint64_t n = 0;

    for (local_table *t = tables; t != NULL; t = t->next)
        for (size_t i = 0; i < N_LOCAL; i++) {
            const mr_cache_owner *o =
                atomic_load_explicit(&t->owner[i], memory_order_relaxed);

            if (owner == NULL || o == owner)
                n += atomic_load_explicit(&t->hits[i], memory_order_relaxed);
        }
    return n;
}

/* Empty before the references go: their end may run user code. */
static void
slot_clear(size_t i)
{
    mr_cache_entry *e = local->slot[i];
    mr_array *holder = local->holder[i];

    slot_add_hits(i);
    local->slot[i] = NULL;
    local->holder[i] = NULL;
    atomic_store_explicit(&local->owner[i], NULL, memory_order_relaxed);
    mr__release(holder);
    mr__cache_release(e);
}

static void
local_end(void *unused)
{
    (void)unused;
    if (local == NULL)
        return;
    for (size_t i = 0; i < N_LOCAL; i++)
        slot_clear(i);
    mr__lock_take(&lock);
    *local->at = local->next;
    if (local->next != NULL)
        local->next->at = local->at;
    mr__lock_drop(&lock);
    mr__dealloc(local);
    local = NULL;
}

static bool
local_make(void)
{
    if (local != NULL)
        return true;
    local = mr__alloc_zero(sizeof *local);
    if (local == NULL)
        return false;
    if (!mr__at_thread_exit(local_end, NULL)) {
        mr__dealloc(local);
        local = NULL;
        return false;
    }
    mr__lock_take(&lock);
    local->next = tables;
    local->at = &tables;
    if (tables != NULL)
        tables->at = &local->next;
    tables = local;
    mr__lock_drop(&lock);
    return true;
}

static void weigh(void);

/* relaxed, both: a hint; who weighs looks again */
static inline bool
has_grown(void)
{
    return atomic_load_explicit(&grown, memory_order_relaxed) !=
           atomic_load_explicit(&weighed, memory_order_relaxed);
}

/* Entries that were erased elsewhere leave. */
static void
local_sweep(void)
{
    uint64_t now;

    if (__builtin_expect(has_grown(), 0))
        weigh();
    /* acquire: pairs with the release of an erase */
    now = atomic_load_explicit(&generation, memory_order_acquire);
    if (local->generation == now)
        return;
    local->generation = now;
    for (size_t i = 0; i < N_LOCAL; i++) {
        const mr_cache_entry *e = local->slot[i];

        if (e != NULL && atomic_load_explicit(&e->dead, memory_order_acquire))
            slot_clear(i);
    }
}

/* A reference of the program's buffer; the entry's own array where there is no
 * memory for that. */
static mr_array *
own_holder(const mr_cache_entry *e)
{
    struct mr__error_stash aside;
    mr_array *own;

    if (e->holder == NULL)
        return NULL;
    aside = mr__error_stash();
    own = mr__program_holder(e->holder);
    if (own == NULL)
        own = mr__retain(e->holder);
    mr_error_take();
    mr__error_unstash(aside);
    return own;
}

/* Into the thread's table, with the caller's reference; given back as owned by
 * the table when that works. */
static mr_cached
local_put(mr_cache_entry *e)
{
    size_t i = e->key.hash % N_LOCAL;

    if (!local_make()) {
        mr_error_take();
        return (mr_cached){e, e->holder, true};
    }
    slot_clear(i);
    local->slot[i] = e;
    local->holder[i] = own_holder(e);
    atomic_store_explicit(&local->owner[i], e->owner, memory_order_relaxed);
    return (mr_cached){e, local->holder[i], false};
}

/* ---- the shared table
 * -------------------------------------------------------------- */

static mr_cache_entry **
bucket(const mr_cache_key *k)
{
    return &buckets[k->hash / N_LOCAL % N_BUCKETS];
}

static mr_cache_entry *
search_locked(const mr_cache_key *k)
{
    for (mr_cache_entry *e = *bucket(k); e != NULL; e = e->next_hash)
        if (same_key(&e->key, k))
            return e;
    return NULL;
}

static void
age_remove_locked(mr_cache_entry *e)
{
    *(e->newer ? &e->newer->older : &newest) = e->older;
    *(e->older ? &e->older->newer : &oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void
age_front_locked(mr_cache_entry *e)
{
    e->older = newest;
    e->newer = NULL;
    if (newest != NULL)
        newest->newer = e;
    newest = e;
    if (oldest == NULL)
        oldest = e;
}

/* Unlink; the table's reference goes on the list of what is to be dropped. */
static void
unlink_locked(mr_cache_entry *e, mr_cache_entry **dropped)
{
    mr_cache_entry **at = bucket(&e->key);

    while (*at != e)
        at = &(*at)->next_hash;
    *at = e->next_hash;
    age_remove_locked(e);
    n_entries--;
    n_bytes -= e->bytes;
    e->owner->entries--;
    e->owner->bytes -= e->bytes;
    atomic_store_explicit(&e->dead, true, memory_order_release);
    /* release: pairs with local_sweep */
    atomic_fetch_add_explicit(&generation, 1, memory_order_release);
    e->older = *dropped;
    *dropped = e;
}

static void
release_all(mr_cache_entry *list)
{
    while (list != NULL) {
        mr_cache_entry *next = list->older;

        mr__cache_release(list);
        list = next;
    }
}

static void
evict_locked(mr_cache_entry *e, mr_cache_entry **dropped)
{
    e->owner->evictions++;
    evictions++;
    unlink_locked(e, dropped);
}

static void
trim_locked(mr_cache_entry **dropped)
{
    while ((n_entries > limit || n_bytes > bytes_limit) && oldest != NULL) {
        evict_locked(oldest, dropped);
    }
}

static bool
is_over(const mr_cache_owner *o)
{
    return o->entries > o->max_entries || o->bytes > o->max_bytes;
}

/* The least recently used entries of one function, until it keeps to its own
 * limits; of each, with NULL. */
static void
trim_owner_locked(const mr_cache_owner *o, mr_cache_entry **dropped)
{
    mr_cache_entry *e = oldest, *newer;

    for (; e != NULL && (o == NULL || is_over(o)); e = newer) {
        newer = e->newer;
        if (e->owner == o || (o == NULL && is_over(e->owner)))
            evict_locked(e, dropped);
    }
}

/* ---- programs that grow
 * --------------------------------------------------------------- */

void
mr__cache_grown(void)
{
    atomic_fetch_add_explicit(&grown, 1, memory_order_release);
}

/* The layouts that came since go into the account. */
static void
weigh_locked(void)
{
    uint64_t now = atomic_load_explicit(&grown, memory_order_acquire);

    if (now == atomic_load_explicit(&weighed, memory_order_relaxed))
        return;
    atomic_store_explicit(&weighed, now, memory_order_relaxed);
    for (mr_cache_entry *e = newest; e != NULL; e = e->older) {
        size_t more = 0;

        if (e->holder != NULL)
            more = mr__program_layout_bytes(mr__program_of(e->holder)) -
                   e->layout_bytes;
        e->layout_bytes += more;
        e->bytes += more;
        e->owner->bytes += more;
        n_bytes += more;
    }
}

/* The same, and the limits hold again. */
static void
weigh(void)
{
    mr_cache_entry *dropped = NULL;

    mr__lock_take(&lock);
    weigh_locked();
    trim_owner_locked(NULL, &dropped);
    trim_locked(&dropped);
    mr__lock_drop(&lock);
    release_all(dropped);
}

/* Into the table unless its key is there: the entry that is, retained for the
 * caller. */
static mr_cache_entry *
insert_locked(mr_cache_entry *e, mr_cache_entry **dropped)
{
    mr_cache_entry *first = search_locked(&e->key);

    if (first != NULL)
        return retain(first);
    retain(e); /* the table's */
    e->next_hash = *bucket(&e->key);
    *bucket(&e->key) = e;
    age_front_locked(e);
    n_entries++;
    n_bytes += e->bytes;
    e->owner->entries++;
    e->owner->bytes += e->bytes;
    weigh_locked();
    trim_owner_locked(e->owner, dropped);
    trim_locked(dropped);
    return NULL;
}

mr_cached
mr__cache_find(const mr_cache_key *key)
{
    size_t i = key->hash % N_LOCAL;
    mr_cache_entry *e;

    if (local != NULL) {
        local_sweep();
        e = local->slot[i];
        if (e != NULL && same_key(&e->key, key)) {
            atomic_store_explicit(
                &local->hits[i],
                atomic_load_explicit(&local->hits[i], memory_order_relaxed) + 1,
                memory_order_relaxed);
            return (mr_cached){e, local->holder[i], false};
        }
    }
    mr__lock_take(&lock);
    e = search_locked(key);
    if (e != NULL) {
        retain(e);
        age_remove_locked(e);
        age_front_locked(e);
        hits++;
        /* relaxed: a figure */
        atomic_fetch_add_explicit(&e->owner->hits, 1, memory_order_relaxed);
    } else {
        misses++;
    }
    mr__lock_drop(&lock);
    return e != NULL ? local_put(e) : (mr_cached){NULL, NULL, false};
}

mr_cached
mr__cache_publish(mr_cache_entry *e)
{
    mr_cache_entry *dropped = NULL, *first;

    mr__lock_take(&lock);
    traces += !e->played;
    first = insert_locked(e, &dropped);
    mr__lock_drop(&lock);
    release_all(dropped);
    if (first != NULL) {
        mr__cache_release(e);
        e = first;
    }
    return local_put(e);
}

mr_cache_entry *
mr__cache_find_tape(const mr_cache_key *key)
{
    mr_cache_entry *e;

    mr__lock_take(&lock);
    e = search_locked(key);
    if (e != NULL) {
        retain(e);
        age_remove_locked(e);
        age_front_locked(e);
    }
    mr__lock_drop(&lock);
    return e;
}

void
mr__cache_publish_tape(mr_cache_entry *e)
{
    mr_cache_entry *dropped = NULL, *first;

    mr__lock_take(&lock);
    first = insert_locked(e, &dropped);
    mr__lock_drop(&lock);
    release_all(dropped);
    mr__cache_release(first);
    mr__cache_release(e);
}

/* ---- erasing and figures
 * -------------------------------------------------------------- */

static void
erase(uint64_t function)
{
    mr_cache_entry *dropped = NULL;

    mr__lock_take(&lock);
    for (mr_cache_entry *e = newest, *next; e != NULL; e = next) {
        next = e->older;
        if (function == 0 || e->key.function == function)
            unlink_locked(e, &dropped);
    }
    mr__lock_drop(&lock);
    release_all(dropped);
    if (local != NULL)
        local_sweep();
}

void
mr__cache_erase_function(uint64_t function)
{
    erase(function);
}

void
mr__cache_erase_all(void)
{
    erase(0);
}

static uint64_t
limit_set(uint64_t *which, uint64_t to)
{
    mr_cache_entry *dropped = NULL;
    uint64_t old;

    mr__lock_take(&lock);
    old = *which;
    *which = to;
    trim_locked(&dropped);
    mr__lock_drop(&lock);
    release_all(dropped);
    return old;
}

uint64_t
mr__cache_set_limit(uint64_t entries)
{
    return limit_set(&limit, entries);
}

uint64_t
mr__cache_set_bytes_limit(uint64_t bytes)
{
    return limit_set(&bytes_limit, bytes);
}

void
mr__cache_info(const mr_cache_owner *owner, mr_cache_info *out)
{
    if (has_grown())
        weigh();
    mr__lock_take(&lock);
    out->hits = hits;
    out->misses = misses;
    out->traces = traces;
    out->evictions = evictions;
    out->entries = n_entries;
    out->bytes = n_bytes;
    if (owner != NULL) {
        /* relaxed: a figure */
        out->hits = atomic_load_explicit(&owner->hits, memory_order_relaxed);
        out->entries = owner->entries;
        out->evictions = owner->evictions;
        out->bytes = owner->bytes;
    }
    out->hits += untold_hits_locked(owner);
    mr__lock_drop(&lock);
}

size_t
mr__cache_list(uint64_t function, mr_cache_entry **out, size_t cap)
{
    size_t n = 0;

    mr__lock_take(&lock);
    for (mr_cache_entry *e = newest; e != NULL; e = e->older)
        n += function == 0 || e->key.function == function;
    if (n <= cap) {
        size_t i = 0;

        for (mr_cache_entry *e = newest; e != NULL; e = e->older)
            if (function == 0 || e->key.function == function)
                out[i++] = retain(e);
    }
    mr__lock_drop(&lock);
    return n;
}

/* ---- fork
 * ------------------------------------------------------------------------------
 */

/* Another thread may have been half way through a change of the table: then
 * the child begins with an empty one, and what the old one held stays. */
static void
fork_child(void)
{
    if (!mr__lock_fork_torn(&lock))
        return;
    memset(buckets, 0, sizeof buckets);
    newest = oldest = NULL;
    n_entries = n_bytes = 0;
    local = tables = NULL;
}

__attribute__((constructor)) static void
register_fork(void)
{
    pthread_atfork(NULL, NULL, fork_child);
}
