/* SPDX-License-Identifier: Apache-2.0
 *
 * buffer.h -- counted memory of arrays, and the caching allocator behind it.
 *
 * A buffer is one block of one device's address space, its *home*.  Several
 * arrays may look into it (views).  Valid copies elsewhere hang on it: they are
 * made and found by eval/, and go when it goes.  It goes back to its pool when
 * the last one leaves; memory that a user handed in goes back through the
 * user's callback, never on a worker and never under a lock
 * (mr__buffer_drain_deferred).
 */
#ifndef MR_ARRAY_BUFFER_H
#define MR_ARRAY_BUFFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "marram/types.h"

/* Where a pool's memory comes from: filled in by the device. */
typedef struct mr_pool_source {
    const char *name;
    void *(*take)(void *ctx, size_t bytes); /* NULL: none left */
    void (*give)(void *ctx, void *p, size_t bytes);
    void *ctx;
} mr_pool_source;

typedef struct mr_memory_pool mr_memory_pool;

typedef struct mr_buffer {
    _Atomic int32_t refs;   /* release/acquire: the last one frees */
    bool exported_writable; /* a host view may write: never donated */
    bool read_only : 1;     /* mapped file, literal: never donated */
    bool sealed : 1;        /* the user's, who forbids that it is written to */
    uint16_t space;         /* where data lies; 0: the host */
    void *data;
    size_t bytes;         /* what was asked for */
    size_t capacity;      /* of the block */
    mr_memory_pool *pool; /* NULL: the user's memory */
    void (*free_fn)(void *ctx, void *data);
    void *free_ctx;
    union {
        struct mr_buffer *next; /* dead: in a cache, in the deferred list */
        struct mr_copy *copies; /* alive: guarded by the plan lock */
    };
} mr_buffer;

/* What a dying buffer does with its copies: set by eval/ before main. */
extern void (*mr__buffer_copies_hook)(struct mr_copy *copies);

/* The pool of host memory (made at first use). */
mr_memory_pool *mr__host_pool(void);
mr_memory_pool *mr__pool_new(const mr_pool_source *source);
/* Blocks of this pool lie in address space `space` (below MR_MAX_SPACES), and
 * count in the figures of all: before its first use. */
enum { MR_MAX_SPACES = 16 };
void mr__pool_set_space(mr_memory_pool *p, uint16_t space);
void mr__pool_free(mr_memory_pool *p);

/* A buffer of at least `bytes`, contents undefined (poisoned in checked
 * builds).  NULL with MR_E_MEMORY set, naming bytes and the limit, after the
 * pool's cache was trimmed. */
mr_buffer *mr__buffer_new(mr_memory_pool *p, size_t bytes);
/* A pool's buffer that nobody else has seen shall hold `bytes`, at most its
 * capacity. */
void mr__buffer_widen(mr_buffer *b, size_t bytes);
/* The user's memory: free_fn(ctx, data) when the last array leaves (NULL: it
 * lives for ever). */
mr_buffer *mr__buffer_wrap(void *data, size_t bytes,
                           void (*free_fn)(void *ctx, void *data), void *ctx);
void mr__buffer_release(mr_buffer *b);

static inline mr_buffer *
mr__buffer_retain(mr_buffer *b)
{
    /* relaxed: whoever retains already has a reference */
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

/* User callbacks that could not run where the last reference went (a worker,
 * a lock held) wait in a list; front doors run them. */
void mr__buffer_drain_deferred(void);
extern _Atomic(mr_buffer *) mr__buffer_deferred;

/* On this thread, between begin and end, user callbacks wait: around whatever
 * holds a lock or is half done while references are dropped.  They nest.  end
 * runs nothing: drain once no lock is held. */
extern _Thread_local uint32_t mr__defer_depth
    __attribute__((tls_model("initial-exec")));

static inline void
mr__defer_user_code_begin(void)
{
    mr__defer_depth++;
}

static inline void
mr__defer_user_code_end(void)
{
    mr__defer_depth--;
}

/* Run what waits, if anything does and user code may run here: one relaxed
 * load when nothing waits. */
static inline void
mr__buffer_drain(void)
{
    /* relaxed: the drain's exchange acquires */
    if (atomic_load_explicit(&mr__buffer_deferred, memory_order_relaxed))
        mr__buffer_drain_deferred();
}

/* A buffer that lies in a block of somebody else's (mr__alloc), together with
 * its data: `block` is freed when the last reference of the buffer goes.  Read
 * only.  Starts with one reference. */
void mr__buffer_embed(mr_buffer *b, void *data, size_t bytes, void *block);

/* Figures in bytes.  limit of SIZE_MAX means none. */
typedef struct mr_pool_stats {
    size_t active, peak, cached, limit, cache_limit;
    size_t buffers;   /* in use */
    size_t peak_held; /* of all pools: active and cached together */
} mr_pool_stats;
mr_pool_stats mr__pool_stats(mr_memory_pool *p);
void mr__pool_reset_peak(mr_memory_pool *p);
size_t mr__pool_set_limit(mr_memory_pool *p, size_t limit);
size_t mr__pool_set_cache_limit(mr_memory_pool *p, size_t limit);
/* Give cached blocks back to the system until at most `keep` bytes stay.  What
 * other threads keep for themselves follows at their next call. */
void mr__pool_trim(mr_memory_pool *p, size_t keep);

/* All memories together: figures are sums (the limits are the host's), peak is
 * the sum's.  A limit holds for the host and for the sum; that of the machine,
 * which is the default, for the host alone.  A cache limit holds for each. */
mr_pool_stats mr__pools_stats(void);
void mr__pools_reset_peak(void);
size_t mr__pools_set_limit(size_t bytes);
size_t mr__pools_set_cache_limit(size_t bytes);
void mr__pools_clear(void);
/* Is there a limit for all together? */
bool mr__pools_are_limited(void);
/* A soft limit may be exceeded, by an evaluation when waiting does not help.
 * Gives the old setting. */
bool mr__pools_set_soft(bool on);
bool mr__pools_are_soft(void);
/* This thread rather has MR_E_MEMORY than exceeds a soft limit. */
extern _Thread_local bool mr__pool_waits
    __attribute__((tls_model("initial-exec")));
void mr__pools_fork_child(void);

/* Fork: hold the allocator's locks meanwhile (called in the order of ranks). */
void mr__buffer_fork_prepare(void);
void mr__buffer_fork_parent(void);
void mr__buffer_fork_child(void);

#endif
