/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h -- the inside of the caching allocator: what pool.c, magazine.c and
 * buffer.c share.  Private to array/.
 */
#ifndef MR_ARRAY_POOL_H
#define MR_ARRAY_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "array/buffer.h"
#include "base/lock.h"

/* Small blocks of host memory: one block holds the mr_buffer and, behind it,
 * the data.  Classes: four multiples of 64 bytes, then four a doubling. */
enum {
    MR_SMALL_MAX = 65536,
    MR_N_SMALL = 36,
    MR_SMALL_HEADER = 64,
};
_Static_assert(sizeof(mr_buffer) <= MR_SMALL_HEADER,
               "the data of a small block starts at its second line");

/* Other blocks: eight classes a doubling from 256 bytes, so that at most an
 * eighth is slack. */
enum {
    MR_LARGE_MIN_LOG2 = 8,
    MR_LARGE_MAX_LOG2 = 61,
    MR_N_LARGE = (MR_LARGE_MAX_LOG2 - MR_LARGE_MIN_LOG2 + 1) * 8,
    MR_LARGE_WORDS = (MR_N_LARGE + 63) / 64,
};

/* A large block keeps its struct while it is cached. */
typedef struct mr_block {
    mr_buffer b;
    struct mr_block *prev;          /* in its class; next is b.next */
    struct mr_block *older, *newer; /* in the order of arrival */
} mr_block;

/* What a thread keeps of the host pool for itself.  Written by its thread
 * alone, but for the atomics of the figures, which others read. */
typedef struct mr_magazine {
    mr_buffer *list[MR_N_SMALL];
    size_t bytes; /* kept here */
    uint32_t generation;
    /* relaxed: figures; what this thread took minus what it gave since it last
     * added that to the pool's, and the highest value of it */
    _Atomic int64_t active, high;
    _Atomic int64_t buffers;         /* the same of their number */
    struct mr_magazine *prev, *next; /* in the pool's list, under its lock */
} mr_magazine;

struct mr_memory_pool {
    /* read by every small take and give, written by rare settings */
    _Atomic size_t magazine_room; /* bytes a thread may keep; relaxed */
    _Atomic uint32_t generation;  /* others: hand back what you keep; relaxed */
    bool host;
    bool counted;   /* in the sums of pools.c */
    bool lost;      /* its device stayed with the parent of this process */
    uint16_t space; /* what its blocks say; 0: the host */
    mr_pool_source source;

    _Alignas(64) mr_lock lock; /* guards what follows, to the figures */
    mr_buffer *small[MR_N_SMALL];
    mr_block *large[MR_N_LARGE];
    uint64_t large_mask[MR_LARGE_WORDS]; /* bit: the class has a block */
    mr_block *oldest, *newest;
    mr_magazine *magazines;
    size_t held;   /* bytes taken from the source, cached ones included */
    size_t cached; /* of those, in the lists above */
    size_t limit, cache_limit;
    size_t cache_cap;     /* of a device: what the user allows besides */
    size_t default_limit; /* of the host */

    /* relaxed: figures */
    _Alignas(64) _Atomic int64_t active;
    _Atomic int64_t peak, buffers;
};

/* ---- pool.c ------------------------------------------------------------- */
int mr__small_class(size_t bytes);
size_t mr__small_capacity(int c);
/* Move a list of small blocks of class c into the shared cache. */
void mr__pool_give_small(mr_memory_pool *p, int c, mr_buffer *list,
                         size_t bytes);
/* One block of class c for the caller, and up to `extra` cached ones in *more.
 * NULL with MR_E_MEMORY set. */
mr_buffer *mr__pool_take_small(mr_memory_pool *p, int c, int extra,
                               mr_buffer **more, int *n_more);
mr_buffer *mr__pool_take_large(mr_memory_pool *p, size_t bytes);
void mr__pool_give_large(mr_memory_pool *p, mr_block *block);
void mr__pool_raise_peak(mr_memory_pool *p, int64_t active);
void mr__pool_set_cache_cap(mr_memory_pool *p, size_t bytes);

/* ---- pools.c ------------------------------------------------------------ */
/* So many more bytes are held by a counted pool: false, and they are not, when
 * that would be over the limit of all together. */
bool mr__pools_reserve(size_t bytes);
void mr__pools_unreserve(size_t bytes);
/* The same whatever the limit. */
void mr__pools_exceed(size_t bytes);
/* The limit is soft, and this thread need not wait first. */
bool mr__pools_may_exceed(void);
/* Empty all caches; is there room for so many bytes then?  Under no lock of
 * this folder. */
bool mr__pools_trim(size_t bytes);
/* So many more bytes of a device are in use. */
void mr__pools_count(int64_t bytes);
/* `active` bytes of this counted pool are in use. */
void mr__pools_raise_peak(const mr_memory_pool *p, int64_t active);

/* ---- magazine.c --------------------------------------------------------- */
mr_buffer *mr__magazine_take(mr_memory_pool *p, size_t bytes);
void mr__magazine_give(mr_memory_pool *p, mr_buffer *b);
/* Hand back what this thread keeps. */
void mr__magazine_flush(mr_memory_pool *p);
/* Count `bytes` of a large block as in use (negative: no more). */
void mr__magazine_count(mr_memory_pool *p, int64_t bytes);

/* ---- machine.c ---------------------------------------------------------- */
/* The smaller of the machine's memory and the limits of the cgroups that
 * `membership` (the text of /proc/self/cgroup) names below `mount`. */
size_t mr__memory_of_machine(const char *membership, const char *mount);

#endif
