/* SPDX-License-Identifier: Apache-2.0
 *
 * cache.h -- the one cache of compiled programs.
 *
 * Keys are plain bytes: function id, structure, dtypes, shapes, static values.
 * A look-up first tries the thread's own table (no lock, no shared line but
 * the generation, which changes only on an erase); a miss there takes the
 * cache's lock for as long as a search lasts.  Entries are immutable and
 * counted.
 */
#ifndef MR_COMPILE_CACHE_H
#define MR_COMPILE_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "marram/compile.h"
#include "marram/types.h"

/* What an output leaf of the function is. */
typedef enum mr_leaf_kind {
    MR_LEAF_OUTPUT,  /* output `index` of the program */
    MR_LEAF_VIEW,    /* the same seen through views: those of `array`, down to
                        a stand-in */
    MR_LEAF_ARG,     /* argument `index`, as it came */
    MR_LEAF_CAPTURED /* an array that the trace found: `array` */
} mr_leaf_kind;

typedef struct mr_leaf {
    mr_leaf_kind kind;
    int32_t index;
    mr_array *array;
} mr_leaf;

typedef struct mr_cache_key {
    uint64_t function; /* never-reused id */
    uint64_t hash;     /* of function and bytes */
    const void *bytes;
    size_t n_bytes;
} mr_cache_key;

/* Of one function, kept as long as an entry of its may add to it. */
typedef struct mr_cache_owner {
    _Atomic int32_t refs;               /* acq_rel on the way down */
    _Atomic uint64_t hits;              /* relaxed: a figure */
    uint64_t entries, bytes, evictions; /* guarded by the cache's lock */
    uint64_t max_entries, max_bytes;
} mr_cache_owner;

struct mr_tape;

typedef struct mr_cache_entry {
    _Atomic int32_t refs; /* acq_rel on the way down */
    _Atomic bool dead;    /* erased: release, pairs with acquire of lookups */
    mr_cache_key key;     /* bytes owned */
    mr_cache_owner *owner;
    mr_array *holder;     /* NULL: nothing to compute */
    struct mr_tape *tape; /* an entry that makes others: what its trace did */
    bool played;          /* made by playing a tape: not a trace */
    int64_t tag;          /* of the binding's: mr_call_arrays */
    int n_leaves, n_args, n_keys;
    mr_leaf *leaf;
    mr_tree *shape; /* the result's structure over stand-in leaves */
    char *lines;    /* what it was traced for: "name: value", a line for each
                       argument; NULL: unknown */
    struct mr_report *report;   /* NULL: it is not told of (report.h) */
    size_t bytes, layout_bytes; /* from its publication on guarded by the lock;
                                   the second is part of the first */
    struct mr_cache_entry *next_hash;     /* guarded by the lock */
    struct mr_cache_entry *newer, *older; /* by last search, likewise */
} mr_cache_entry;

uint64_t mr__cache_hash(uint64_t function, const void *bytes, size_t n);
/* What a look-up gives. */
typedef struct mr_cached {
    mr_cache_entry *entry; /* NULL: none */
    /* This thread's own array over the program's buffer, or the entry's: so
     * that threads which call one function do not share its count. */
    mr_array *holder;
    /* The caller's reference; else the thread's table has one, which lasts
     * until the next look-up, erase or user code of this thread. */
    bool owned;
} mr_cached;

mr_cached mr__cache_find(const mr_cache_key *key);
/* Publish e (takes the caller's reference) unless another was first: gives the
 * one that counts. */
mr_cached mr__cache_publish(mr_cache_entry *e);
/* The entry of a tape: found, with a reference of the caller's, and published
 * (takes the caller's).  They are in no thread's table and in no figures of
 * hits and misses. */
mr_cache_entry *mr__cache_find_tape(const mr_cache_key *key);
void mr__cache_publish_tape(mr_cache_entry *e);
void mr__cache_release(mr_cache_entry *e);
/* References to the function's entries (0: to those of all), the newest first,
 * when there are at most cap; none when there are more.  How many there are. */
size_t mr__cache_list(uint64_t function, mr_cache_entry **out, size_t cap);
mr_cache_owner *mr__cache_owner_new(uint64_t max_entries, uint64_t max_bytes);
mr_cache_owner *mr__cache_owner_retain(mr_cache_owner *o);
void mr__cache_owner_release(mr_cache_owner *o);
void mr__cache_erase_function(uint64_t function);
void mr__cache_erase_all(void);
uint64_t mr__cache_set_limit(uint64_t entries);
uint64_t mr__cache_set_bytes_limit(uint64_t bytes);
/* A program has more layouts than before: it will be weighed anew.  Takes no
 * lock; may be called with any held. */
void mr__cache_grown(void);
/* NULL: of all functions. */
void mr__cache_info(const mr_cache_owner *owner, mr_cache_info *out);

#endif
