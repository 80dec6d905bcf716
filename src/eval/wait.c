/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.c -- the parking lot.
 *
 * The race that it closes: a waiter sets the WAITED bit by compare-exchange
 * while the state is still `submitted`, under its bucket's lock; the finisher
 * exchanges the state first and takes the bucket's lock only when the old
 * value had the bit.  So either the waiter sees the new state, or the finisher
 * sees the bit and finds the waiter in the bucket.  It wakes threads by
 * mr__wait_ring, later: a waiter that sees the new state goes on by itself.
 */
#include "eval/wait.h"

#include "base/lock.h"
#include "base/map.h"
#include "eval/fork.h"
#include "eval/stream.h"

#define N_BUCKETS 64

typedef struct bucket {
    mr_lock lock;
    mr_cond cond;
    mr_wait_link *tasks; /* guarded by lock */
} bucket;

#define B1                                                                     \
    {                                                                          \
        MR_LOCK_INIT(MR_RANK_EVENT, "event"), MR_COND_INIT, NULL               \
    }
#define B4  B1, B1, B1, B1
#define B16 B4, B4, B4, B4

static bucket buckets[N_BUCKETS] = {B16, B16, B16, B16};

/* Where threads may wait for what this thread finished. */
static _Thread_local bucket *finished;

static bucket *
bucket_of(const mr_array *x)
{
    return &buckets[mr__hash_u64((uintptr_t)x) % N_BUCKETS];
}

/* Under the bucket's lock.  False when x is submitted no more. */
static bool
mark_waited(mr_array *x)
{
    uint8_t old = atomic_load_explicit(&x->state, memory_order_acquire);

    while ((old & MR_STATE_MASK) == MR_SUBMITTED) {
        if (old & MR_STATE_WAITED)
            return true;
        /* release pairs with the finisher's acq_rel exchange */
        if (atomic_compare_exchange_weak_explicit(
                &x->state, &old, old | MR_STATE_WAITED, memory_order_acq_rel,
                memory_order_acquire))
            return true;
    }
    return false;
}

void
mr__wait_node(mr_array *x)
{
    bucket *b = bucket_of(x);

    mr__lock_take(&b->lock);
    while (mark_waited(x))
        mr__cond_wait(&b->cond, &b->lock);
    mr__lock_drop(&b->lock);
}

bool
mr__wait_node_for(mr_array *x, int64_t ns)
{
    bucket *b = bucket_of(x);
    bool waits;

    mr__lock_take(&b->lock);
    while ((waits = mark_waited(x)) &&
           mr__cond_wait_for(&b->cond, &b->lock, ns))
        ;
    mr__lock_drop(&b->lock);
    return !waits;
}

bool
mr__wait_add(mr_array *x, mr_task *t, mr_wait_link *link)
{
    bucket *b = bucket_of(x);
    bool waits;

    mr__lock_take(&b->lock);
    waits = mark_waited(x);
    if (waits) {
        link->node = x;
        link->task = t;
        link->next = b->tasks;
        b->tasks = link;
    }
    mr__lock_drop(&b->lock);
    return waits;
}

mr_wait_link *
mr__wait_finish(mr_array *x, mr_state state)
{
    mr_wait_link *mine = NULL;
    bucket *b;
    /* acq_rel: publishes the node's fields; pairs with every acquire load of
     * the state, and with mark_waited */
    uint8_t old = atomic_exchange_explicit(&x->state, (uint8_t)state,
                                           memory_order_acq_rel);

    if (!(old & MR_STATE_WAITED))
        return NULL;
    b = bucket_of(x);
    mr__lock_take(&b->lock);
    for (mr_wait_link **at = &b->tasks; *at != NULL;) {
        mr_wait_link *l = *at;

        if (l->node != x) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        l->next = mine;
        mine = l;
    }
    mr__lock_drop(&b->lock);
    if (finished != b)
        mr__wait_ring();
    finished = b;
    return mine;
}

void
mr__wait_ring(void)
{
    bucket *b = finished;

    if (b == NULL)
        return;
    finished = NULL;
    mr__lock_take(&b->lock);
    mr__cond_wake_all(&b->cond);
    mr__lock_drop(&b->lock);
}

void
mr__wait_wake(mr_wait_link *list)
{
    while (list != NULL) {
        mr_wait_link *next = list->next;

        mr__stream_producer_done(list->task); /* may free the link */
        list = next;
    }
}

void
mr__wait_fork_child(void)
{
    for (int i = 0; i < N_BUCKETS; i++) {
        mr__lock_fork_child(&buckets[i].lock);
        buckets[i].cond = (mr_cond)MR_COND_INIT;
    }
}
