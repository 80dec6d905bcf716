/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.h -- mutexes with a rank, and the check of their order.
 *
 * A thread may take a lock only if its rank is greater than that of every
 * lock it holds.  In debug builds (MR_CHECK_LOCKS) a breach, or a call of
 * mr__lock_assert_none() with a lock held, prints both ranks and aborts; in
 * release builds the check is absent.  docs/concurrency.md lists the ranks.
 */
#ifndef MR_BASE_LOCK_H
#define MR_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* In the order in which they may be taken. */
typedef enum mr_rank {
    MR_RANK_COMPILE_CACHE = 10, /* the shared table of compiled entries */
    MR_RANK_REGISTRY = 20,      /* devices, streams, providers, trees' types */
    MR_RANK_PLAN = 30,          /* the plan lock */
    MR_RANK_STREAM = 40,        /* a stream's queue */
    MR_RANK_POOL = 50,          /* the thread pool's job list */
    MR_RANK_EVENT = 60,         /* parking lot buckets */
    MR_RANK_COPIES = 65,        /* copies on devices, by last use */
    MR_RANK_ALLOCATOR = 70,     /* a device's caching allocator */
    MR_RANK_FFT_PLANS = 75,     /* the list of plans of transforms */
    MR_RANK_INTERN = 80,        /* sites, strings */
    MR_RANK_JIT = 85,           /* the compile thread's queue and figures */
    MR_RANK_LOG = 90
} mr_rank;

/* Zero cost to make and nothing to destroy.  One that is not static is
 * initialised by `l = (mr_lock)MR_LOCK_INIT(rank, name)`.  holds (times
 * taken) and waits (times found taken) are counted for the benchmarks. */
typedef struct mr_lock {
    pthread_mutex_t m;
    mr_rank rank;
    const char *name;
    uint64_t holds, waits; /* under the lock itself */
} mr_lock;

#define MR_LOCK_INIT(rank_, name_)                                             \
    {                                                                          \
        PTHREAD_MUTEX_INITIALIZER, (rank_), (name_), 0, 0                      \
    }

/* Spins briefly, then parks. */
void mr__lock_take(mr_lock *l);
void mr__lock_drop(mr_lock *l);
/* In a forked child, for a lock that another thread may have held: free again.
 * A lock that the forking thread took in its prepare handler is dropped
 * instead. */
void mr__lock_fork_child(mr_lock *l);
/* The same of one that nobody took in a prepare handler.  True: another thread
 * had it, and may have been half way through a change of what it guards. */
bool mr__lock_fork_torn(mr_lock *l);
/* Assert (debug builds) that this thread holds no lock: before user code. */
void mr__lock_assert_none(const char *what);

/* A condition on a lock: waits drop the lock as pthread_cond_wait does.  No
 * other lock may be held then (checked in debug builds). */
typedef struct mr_cond {
    pthread_cond_t c;
} mr_cond;
#define MR_COND_INIT                                                           \
    {                                                                          \
        PTHREAD_COND_INITIALIZER                                               \
    }
void mr__cond_wait(mr_cond *c, mr_lock *l);
/* The same for at most so many nanoseconds; false when they have passed. */
bool mr__cond_wait_for(mr_cond *c, mr_lock *l, int64_t ns);
void mr__cond_wake_all(mr_cond *c);
void mr__cond_wake_one(mr_cond *c);

#endif
