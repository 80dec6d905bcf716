/* SPDX-License-Identifier: Apache-2.0
 *
 * magazine.c -- what each thread keeps of the host pool, so that taking and
 * giving a small block touches no shared line.
 *
 * A thread's magazine has a list a class and a bound on its bytes.  It goes
 * back to the pool when the bound is reached, when the pool's generation has
 * moved on (a trim, a new cache limit), and when the thread ends.  The bytes
 * in use are counted in the magazine too; sums that grow large are moved to
 * the pool's count.
 * Called by: buffer.c, pool.c.  Calls: pool.c, base/.
 */
#include "array/pool.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/tls.h"

enum {
    /* Blocks fetched together from the shared list, by count and bytes. */
    BATCH = 16,
    BATCH_BYTES = 64 * 1024,
    /* A count in use beyond this moves to the pool's. */
    FOLD_BYTES = 256 * 1024,
};

static _Thread_local mr_magazine *mine
    __attribute__((tls_model("initial-exec")));

/* ---- counts ------------------------------------------------------------- */

static int64_t
get(_Atomic int64_t *x)
{
    /* relaxed: this thread wrote it; others only read figures */
    return atomic_load_explicit(x, memory_order_relaxed);
}

static void
set(_Atomic int64_t *x, int64_t v)
{
    /* relaxed: a figure */
    atomic_store_explicit(x, v, memory_order_relaxed);
}

/* Move this thread's count to the pool's, and let the peak know. */
static void
fold(mr_memory_pool *p, mr_magazine *m)
{
    int64_t n = get(&m->active);
    /* relaxed: a figure */
    int64_t before =
        atomic_fetch_add_explicit(&p->active, n, memory_order_relaxed);

    mr__pool_raise_peak(p, before + get(&m->high));
    atomic_fetch_add_explicit(&p->buffers, get(&m->buffers),
                              memory_order_relaxed);
    set(&m->active, 0);
    set(&m->high, 0);
    set(&m->buffers, 0);
}

static inline void
count(mr_memory_pool *p, mr_magazine *m, int64_t bytes)
{
    int64_t n = get(&m->active) + bytes;

    set(&m->active, n);
    set(&m->buffers, get(&m->buffers) + (bytes > 0 ? 1 : -1));
    if (n > get(&m->high))
        set(&m->high, n);
    if (n > FOLD_BYTES || n < -FOLD_BYTES)
        fold(p, m);
}

void
mr__magazine_count(mr_memory_pool *p, int64_t bytes)
{
    int64_t active;

    if (p->host && mine)
        fold(p, mine);
    /* relaxed: a figure */
    active =
        atomic_fetch_add_explicit(&p->active, bytes, memory_order_relaxed) +
        bytes;
    atomic_fetch_add_explicit(&p->buffers, bytes > 0 ? 1 : -1,
                              memory_order_relaxed);
    if (p->counted && !p->host)
        mr__pools_count(bytes);
    if (bytes > 0)
        mr__pool_raise_peak(p, active);
}

/* ---- the magazine ------------------------------------------------------- */

static void
hand_back_class(mr_memory_pool *p, mr_magazine *m, int c)
{
    size_t bytes = 0, capacity = mr__small_capacity(c);

    for (const mr_buffer *b = m->list[c]; b; b = b->next)
        bytes += capacity;
    m->bytes -= bytes;
    mr__pool_give_small(p, c, m->list[c], bytes);
    m->list[c] = NULL;
}

static void
hand_back(mr_memory_pool *p, mr_magazine *m)
{
    for (int c = 0; c < MR_N_SMALL; c++)
        if (m->list[c])
            hand_back_class(p, m, c);
    /* relaxed: a later change only brings us here again */
    m->generation = atomic_load_explicit(&p->generation, memory_order_relaxed);
}

static void
close_magazine(void *arg)
{
    mr_memory_pool *p = mr__host_pool();
    mr_magazine *m = arg;

    hand_back(p, m);
    fold(p, m);
    mine = NULL;
    mr__lock_take(&p->lock);
    if (m->prev)
        m->prev->next = m->next;
    else
        p->magazines = m->next;
    if (m->next)
        m->next->prev = m->prev;
    mr__lock_drop(&p->lock);
    mr__alloc_cached(-1);
    mr__dealloc(m);
}

/* NULL without memory: the thread then works without one.  No error stays. */
static mr_magazine *
open_magazine(mr_memory_pool *p)
{
    struct mr__error_stash aside = mr__error_stash();
    mr_magazine *m = mr__alloc_zero(sizeof *m);

    if (m && !mr__at_thread_exit(close_magazine, m)) {
        mr__dealloc(m);
        m = NULL;
    }
    mr__error_unstash(aside);
    if (m == NULL)
        return NULL;
    mr__alloc_cached(1);
    /* relaxed: see hand_back */
    m->generation = atomic_load_explicit(&p->generation, memory_order_relaxed);
    mr__lock_take(&p->lock);
    m->next = p->magazines;
    if (m->next)
        m->next->prev = m;
    p->magazines = m;
    mr__lock_drop(&p->lock);
    mine = m;
    return m;
}

static mr_magazine *
magazine(mr_memory_pool *p)
{
    mr_magazine *m = mine ? mine : open_magazine(p);

    /* relaxed: see hand_back */
    if (m && m->generation !=
                 atomic_load_explicit(&p->generation, memory_order_relaxed))
        hand_back(p, m);
    return m;
}

void
mr__magazine_flush(mr_memory_pool *p)
{
    if (mine)
        hand_back(p, mine);
}

/* ---- taking and giving -------------------------------------------------- */

static mr_buffer *
refill(mr_memory_pool *p, mr_magazine *m, int c)
{
    size_t capacity = mr__small_capacity(c);
    size_t room =
        /* relaxed: a setting */
        atomic_load_explicit(&p->magazine_room, memory_order_relaxed);
    int n_more, extra = 0;
    mr_buffer *more, *b;

    if (m && m->bytes < room) {
        size_t bytes =
            room - m->bytes < BATCH_BYTES ? room - m->bytes : BATCH_BYTES;

        extra = bytes / capacity < BATCH ? (int)(bytes / capacity) : BATCH;
    }
    b = mr__pool_take_small(p, c, extra, &more, &n_more);
    if (n_more > 0) {
        m->list[c] = more;
        m->bytes += (size_t)n_more * capacity;
    }
    return b;
}

mr_buffer *
mr__magazine_take(mr_memory_pool *p, size_t bytes)
{
    int c = mr__small_class(bytes);
    mr_magazine *m = magazine(p);
    mr_buffer *b = m ? m->list[c] : NULL;

    if (__builtin_expect(b != NULL, 1)) {
        m->list[c] = b->next;
        m->bytes -= b->capacity;
#ifdef MR_TESTING
        mr__alloc_cached(-1);
#endif
    } else {
        b = refill(p, m, c);
        if (b == NULL)
            return NULL;
    }
    if (m)
        count(p, m, (int64_t)b->capacity);
    else
        mr__magazine_count(p, (int64_t)b->capacity);
    return b;
}

void
mr__magazine_give(mr_memory_pool *p, mr_buffer *b)
{
    size_t capacity = b->capacity;
    int c = mr__small_class(capacity);
    mr_magazine *m = magazine(p);

#ifdef MR_TESTING
    mr__alloc_cached(1);
#endif
    if (m == NULL) {
        mr__magazine_count(p, -(int64_t)capacity);
        b->next = NULL;
        mr__pool_give_small(p, c, b, capacity);
        return;
    }
    count(p, m, -(int64_t)capacity);
    /* relaxed: a setting */
    if (__builtin_expect(
            m->bytes + capacity >
                atomic_load_explicit(&p->magazine_room, memory_order_relaxed),
            0)) {
        hand_back_class(p, m, c);
        b->next = NULL;
        mr__pool_give_small(p, c, b, capacity);
        return;
    }
    b->next = m->list[c];
    m->list[c] = b;
    m->bytes += capacity;
}
