/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c -- ordered queues of tasks and who drains them.
 *
 * A stream is a list with a lock (rank STREAM) and a flag `busy`: one drainer
 * at a time, the caller that waits or a worker's job.  Whoever clears the
 * flag has looked, under the lock, that the head cannot run; whoever makes
 * the head able to run looks, under the lock, whether the flag is clear.  So
 * a head that can run always has a drainer.
 *
 * Ids are an index and a generation: a stream that is gone is never mistaken
 * for a later one.  The table is read without a lock, so the structs are never
 * freed but used again: whoever looked an id up checks it under the stream's
 * lock.  A stream begins to die under the plan lock: one that a planner found
 * alive takes its tasks.
 *
 * On a device with queues the drainer launches tasks and does not wait for
 * them; they *fly* until they land.  Tasks of such a stream that run on the
 * host run when they are the head, like all others: what they read was brought
 * over by tasks of other streams, which their n_wait counts.
 */
#include "eval/stream.h"

#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/pool.h"
#include "base/tls.h"
#include "eval/fork.h"
#include "eval/hooks.h"
#include "eval/plan.h"
#include "eval/registry.h"
#include "eval/stats.h"
#include "eval/wait.h"
#include "marram/error.h"
#include "marram/eval.h"

#define N_SLOTS 65536u

typedef struct stream {
    mr_lock lock;
    mr_task *head, **tail;      /* guarded by lock */
    bool busy;                  /* guarded by lock */
    bool by_user;               /* busy with a user's thread, likewise */
    uint64_t n_entered, n_done; /* guarded by lock */
    uint64_t n_alone; /* that were never queued, of all streams that were here;
                         guarded by lock */
    bool dying; /* changed under the plan lock and lock: free when empty */
    /* Of devices with queues: what was launched and has not landed, in order;
     * guarded by lock. */
    mr_task *flying, **flying_tail;
    void *queue; /* the drainer's; NULL until it needs one */
    /* relaxed: written before id's release */
    _Atomic(const mr_device_table *) device;
    /* 0: a free slot.  Changed under lock; release pairs with the acquire of
     * find. */
    _Atomic uint32_t id;
} stream;

/* Filled once under the registry lock; release pairs with acquire of find. */
static _Atomic(stream *) slots[N_SLOTS];
static mr_lock registry = MR_LOCK_INIT(MR_RANK_REGISTRY, "streams");
static uint16_t generation[N_SLOTS]; /* guarded by registry */
static uint16_t free_slot[N_SLOTS];  /* a stack; guarded by registry */
static uint32_t n_free, n_used = 1;  /* slot 0 is "the default" */

static uint32_t
id_of(const stream *s)
{
    /* acquire: pairs with the release in open_slot */
    return atomic_load_explicit(&s->id, memory_order_acquire);
}

static stream *
find(uint32_t id)
{
    stream *s =
        atomic_load_explicit(&slots[id & 0xffffu], memory_order_acquire);

    return s != NULL && id != 0 && id_of(s) == id ? s : NULL;
}

/* ---- making
 * ------------------------------------------------------------------- */

/* A slot with its struct, under the registry lock; 0 with an error set. */
static uint32_t
slot_take_locked(void)
{
    stream *s;

    if (n_free > 0)
        return free_slot[--n_free];
    if (n_used == N_SLOTS) {
        mr__fail(MR_E_VALUE, "there are %u streams already: free some",
                 N_SLOTS - 1);
        return 0;
    }
    s = mr__alloc_zero(sizeof *s);
    if (s == NULL)
        return 0;
    mr__alloc_cached(1); /* kept for ever */
    s->lock = (mr_lock)MR_LOCK_INIT(MR_RANK_STREAM, "stream");
    /* release: pairs with the acquire in find */
    atomic_store_explicit(&slots[n_used], s, memory_order_release);
    return n_used++;
}

static uint32_t
open_slot(uint32_t slot, const mr_device_table *device)
{
    stream *s = atomic_load_explicit(&slots[slot], memory_order_relaxed);
    uint32_t id = (uint32_t)generation[slot] << 16 | slot;

    mr__lock_take(&s->lock);
    s->head = NULL;
    s->tail = &s->head;
    s->busy = s->dying = false;
    s->n_entered = s->n_done = 0;
    s->flying = NULL;
    s->flying_tail = &s->flying;
    s->queue = NULL;
    atomic_store_explicit(&s->device, device, memory_order_relaxed);
    /* release: pairs with the acquire in id_of */
    atomic_store_explicit(&s->id, id, memory_order_release);
    mr__lock_drop(&s->lock);
    return id;
}

uint32_t
mr__stream_make(const mr_device_table *device)
{
    uint32_t slot, id = 0;

    mr__lock_take(&registry);
    slot = slot_take_locked();
    if (slot != 0)
        id = open_slot(slot, device);
    mr__lock_drop(&registry);
    return id;
}

/* Nothing is to be done for it any more, under its lock. */
static bool
is_over_locked(const stream *s)
{
    return s->dying && !s->busy && s->head == NULL && s->flying == NULL;
}

/* The stream is empty, has no drainer and will get no task. */
static void
destroy(stream *s)
{
    uint32_t slot = id_of(s) & 0xffffu;
    const mr_device_table *d =
        atomic_load_explicit(&s->device, memory_order_relaxed);

    if (s->queue != NULL)
        d->queue_free(d->self, s->queue);
    mr__lock_take(&registry);
    mr__lock_take(&s->lock);
    /* release: as in open_slot */
    atomic_store_explicit(&s->id, 0, memory_order_release);
    mr__lock_drop(&s->lock);
    generation[slot]++;
    free_slot[n_free++] = (uint16_t)slot;
    mr__lock_drop(&registry);
}

void
mr__stream_end(uint32_t id)
{
    stream *s = find(id);
    bool gone = false;

    if (s == NULL)
        return;
    mr__lock_take(&mr__plan_lock);
    mr__lock_take(&s->lock);
    if (id_of(s) == id && !s->dying) {
        s->dying = true;
        gone = is_over_locked(s);
    }
    mr__lock_drop(&s->lock);
    mr__lock_drop(&mr__plan_lock);
    if (gone)
        destroy(s);
}

uint32_t
mr__stream_resolve(uint32_t id)
{
    return find(id) != NULL ? id : mr__stream_default();
}

uint32_t
mr__stream_planned(uint32_t id, uint32_t otherwise)
{
    const stream *s = find(id);

    /* dying is ours to read: it changes under the plan lock */
    return s != NULL && !s->dying ? id : otherwise;
}

const mr_device_table *
mr__stream_device(uint32_t id)
{
    const stream *s = find(id);

    return s != NULL ? atomic_load_explicit(&s->device, memory_order_relaxed)
                     : mr__device_host();
}

/* ---- draining
 * ------------------------------------------------------------------- */

static bool
head_can_run(const stream *s)
{
    /* acquire: pairs with the release of the producers' decrements */
    return s->head != NULL &&
           atomic_load_explicit(&s->head->n_wait, memory_order_acquire) == 0;
}

/* Become the drainer, if there is something to do and nobody is it; never while
 * a thread forks, which looks for drainers under the lock and gives every
 * stream one afterwards. */
static bool
claim(stream *s, uint32_t id, bool by_user)
{
    bool mine;

    mr__lock_take(&s->lock);
    mine = id_of(s) == id && !s->busy && head_can_run(s) && !mr__pool_forking();
    if (mine) {
        s->busy = true;
        s->by_user = by_user;
    }
    mr__lock_drop(&s->lock);
    return mine;
}

static void drain_job(void *ctx);

static void
hand_over(stream *s)
{
    struct mr__error_stash old = mr__error_stash();
    bool given = mr__pool_job(drain_job, s);

    mr_error_take();
    if (!given) { /* no memory for the job: what is left is to do it here */
        mr__lock_take(&s->lock);
        s->by_user = true;
        mr__lock_drop(&s->lock);
        drain_job(s);
    }
    mr__error_unstash(old);
}

/* The drainer takes the next task, or gives the stream up (NULL). */
static mr_task *
next_task(stream *s)
{
    mr_task *t = NULL;
    bool gone = false;

    mr__lock_take(&s->lock);
    if (head_can_run(s)) {
        t = s->head;
        s->head = t->next;
        if (s->head == NULL)
            s->tail = &s->head;
        if (t->flight != NULL) {
            t->next = NULL;
            *s->flying_tail = t;
            s->flying_tail = &t->next;
        }
    } else {
        s->busy = false;
        gone = is_over_locked(s);
    }
    mr__lock_drop(&s->lock);
    if (gone)
        destroy(s);
    return t;
}

static void
count_done(stream *s)
{
    mr__lock_take(&s->lock);
    s->n_done++;
    mr__lock_drop(&s->lock);
}

void
mr__stream_landed(mr_task *t)
{
    stream *s = find(t->stream);
    mr_task **at;
    bool gone;

    mr__lock_take(&s->lock);
    for (at = &s->flying; *at != t; at = &(*at)->next)
        ;
    *at = t->next;
    if (s->flying_tail == &t->next)
        s->flying_tail = at;
    s->n_done++;
    gone = is_over_locked(s);
    mr__lock_drop(&s->lock);
    if (gone)
        destroy(s);
}

static void
run_one(stream *s, mr_task *t, bool on_caller)
{
    if (t->flight != NULL) {
        mr__task_launch(t,
                        atomic_load_explicit(&s->device, memory_order_relaxed),
                        &s->queue);
        return;
    }
    mr__task_run(t);
    count_done(s);
    if (!on_caller)
        mr__stats_on_worker();
    /* last: whoever this wakes looks at n_done */
    mr__tasks_left();
}

/* User code (destructors of wrapped memory) waits while the thread is a
 * drainer: it may want this very stream. */
static void
drain_job(void *ctx)
{
    stream *s = ctx;
    mr_task *t;

    mr__defer_user_code_begin();
    while ((t = next_task(s)) != NULL) {
        run_one(s, t, false);
        mr__pool_pause_point();
    }
    mr__defer_user_code_end();
}

/* The caller has what it wanted: is there more for somebody else? */
static void
leave(stream *s, bool ran_alone)
{
    bool more, gone;

    mr__lock_take(&s->lock);
    s->n_alone += ran_alone;
    more = head_can_run(s);
    s->busy = more;
    s->by_user = false;
    gone = is_over_locked(s);
    mr__lock_drop(&s->lock);
    if (more)
        hand_over(s);
    else if (gone)
        destroy(s);
}

/* A fork is not to find a task half run: give the stream up until it is over.
 */
static __attribute__((cold)) void
give_way(stream *s)
{
    mr__lock_take(&s->lock);
    s->busy = false;
    mr__lock_drop(&s->lock);
    mr__pool_await_fork();
}

/* Run tasks while x is submitted; true when the stream is given up. */
static bool
help_until(stream *s, const mr_array *x)
{
    while (x == NULL || mr__state(x) == MR_SUBMITTED) {
        mr_task *t;

        if (__builtin_expect(mr__pool_forking(), 0)) {
            give_way(s);
            return true;
        }
        t = next_task(s);

        if (t == NULL)
            return true;
        run_one(s, t, true);
    }
    return false;
}

bool
mr__stream_help(uint32_t id, const mr_array *x)
{
    stream *s = find(id);

    if (s == NULL || !claim(s, id, true))
        return false;
    mr__defer_user_code_begin();
    if (!help_until(s, x))
        leave(s, false);
    mr__defer_user_code_end();
    return true;
}

/* Like claim. */
bool
mr__stream_occupy(uint32_t id)
{
    stream *s = find(id);
    bool mine;

    if (s == NULL)
        return false;
    mr__lock_take(&s->lock);
    mine = id_of(s) == id && !s->busy && s->head == NULL && s->flying == NULL &&
           !mr__pool_forking();
    if (mine)
        s->busy = s->by_user = true;
    mr__lock_drop(&s->lock);
    return mine;
}

void
mr__stream_vacate(uint32_t id, bool ran)
{
    leave(find(id), ran);
}

uint64_t
mr__streams_ran_alone(void)
{
    uint64_t n = 0;

    mr__lock_take(&registry);
    for (uint32_t i = 1; i < n_used; i++) {
        stream *s = atomic_load_explicit(&slots[i], memory_order_relaxed);

        mr__lock_take(&s->lock);
        n += s->n_alone;
        mr__lock_drop(&s->lock);
    }
    mr__lock_drop(&registry);
    return n;
}

void
mr__stream_kick(uint32_t id)
{
    stream *s = find(id);

    if (s != NULL && claim(s, id, false))
        hand_over(s);
}

/* ---- entering
 * -------------------------------------------------------------------- */

void
mr__stream_enter(mr_task *t)
{
    stream *s = find(t->stream);
    /* A task of the host in a stream with a queue may overtake one that flies,
     * so what it reads of its own stream is waited for as well. */
    bool in_order =
        t->flight != NULL ||
        atomic_load_explicit(&s->device, memory_order_relaxed)->launch == NULL;

    /* relaxed: the task is not published yet */
    atomic_store_explicit(&t->n_wait, 1, memory_order_relaxed);
    for (int i = 0; i < t->n_in; i++) {
        mr_array *x = t->in[i].keep;

        if (!t->in[i].is_source || (x->stream == t->stream && in_order))
            continue;
        atomic_fetch_add_explicit(&t->n_wait, 1, memory_order_relaxed);
        if (!mr__wait_add(x, t, &t->link[i]))
            atomic_fetch_sub_explicit(&t->n_wait, 1, memory_order_relaxed);
    }
    mr__lock_take(&s->lock);
    *s->tail = t;
    s->tail = &t->next;
    if (t->flight != NULL)
        t->flight->number = s->n_entered;
    s->n_entered++;
    /* release: pairs with head_can_run; no drainer yet for a stream that was
     * empty: the planner's thread helps or kicks */
    atomic_fetch_sub_explicit(&t->n_wait, 1, memory_order_acq_rel);
    mr__lock_drop(&s->lock);
}

void
mr__stream_producer_done(mr_task *t)
{
    uint32_t id = t->stream;

    /* acq_rel: the last producer sees what the others wrote, and passes it on
     * to the drainer */
    if (atomic_fetch_sub_explicit(&t->n_wait, 1, memory_order_acq_rel) == 1)
        mr__stream_kick(id);
}

/* Has the stream done so many, or gone? */
static bool
has_done(stream *s, uint32_t id, uint64_t target)
{
    bool done;

    mr__lock_take(&s->lock);
    /* later ones may be done before one that flies */
    done = id_of(s) != id ||
           (s->n_done >= target &&
            (s->flying == NULL || s->flying->flight->number >= target));
    mr__lock_drop(&s->lock);
    return done;
}

mr_code
mr__stream_wait(uint32_t id)
{
    stream *s = find(id);
    bool may = mr__may_interrupt();
    uint64_t target;

    if (s == NULL)
        return MR_OK;
    mr__lock_take(&s->lock);
    target = s->n_entered;
    mr__lock_drop(&s->lock);
    while (!has_done(s, id, target)) {
        if (may)
            mr__stream_kick(id);
        else if (mr__stream_help(id, NULL))
            continue;
        mr__streams_adopt();
        mr__tasks_wait_progress(1, may ? MR__POLL_NS : 0);
        if (may && mr__interrupted())
            return MR_E_CANCELLED;
    }
    return MR_OK;
}

/* ---- the public calls
 * --------------------------------------------------------------- */

mr_stream
mr_stream_new(mr_device device)
{
    const mr_device_table *t = mr__device_find(device);

    return (mr_stream){t == NULL ? 0 : mr__stream_make(t)};
}

void
mr_stream_free(mr_stream s)
{
    if (s.id != 0 && !mr__stream_is_own(s.id))
        mr__stream_end(s.id);
}

bool
mr__stream_is_open(uint32_t id)
{
    stream *s = find(id);
    bool open;

    if (s == NULL)
        return false;
    mr__lock_take(&s->lock);
    open = id_of(s) == id && !s->dying;
    mr__lock_drop(&s->lock);
    return open;
}

static mr_code
no_stream(mr_stream s)
{
    return mr__fail(MR_E_VALUE, "stream %u is gone: make a new one",
                    (unsigned)s.id);
}

mr_device
mr_stream_device(mr_stream s)
{
    const stream *r = find(mr__stream_resolve(s.id));

    return r == NULL
               ? (mr_device){MR_CPU, 0}
               : atomic_load_explicit(&r->device, memory_order_relaxed)->device;
}

mr_code
mr_stream_sync(mr_stream s)
{
    void *token;
    mr_code rc;

    if (s.id != 0 && !mr__stream_is_open(s.id))
        return no_stream(s);
    token = mr__block_begin();
    rc = mr__stream_wait(mr__stream_resolve(s.id));
    mr__block_end(token);
    mr__buffer_drain();
    return rc;
}

/* In a forked child, until its first wait: streams may have work and nobody
 * who was about to see to it. */
static _Atomic bool orphaned; /* relaxed: its thread alone forked */

void
mr__streams_kick_all(void)
{
    uint32_t n;

    mr__lock_take(&registry);
    n = n_used;
    mr__lock_drop(&registry);
    for (uint32_t i = 1; i < n; i++) {
        stream *s = atomic_load_explicit(&slots[i], memory_order_acquire);

        if (s != NULL)
            mr__stream_kick(id_of(s));
    }
}

void
mr__streams_adopt(void)
{
    if (__builtin_expect(atomic_load_explicit(&orphaned, memory_order_relaxed),
                         0) &&
        atomic_exchange_explicit(&orphaned, false, memory_order_relaxed))
        mr__streams_kick_all();
}

static bool
runs_on_user(stream *s)
{
    bool runs;

    mr__lock_take(&s->lock);
    runs = s->busy && s->by_user;
    mr__lock_drop(&s->lock);
    return runs;
}

/* No user's thread is inside a task when this returns, and none begins one:
 * the pool says that somebody forks.  The registry stays locked. */
void
mr__streams_fork_prepare(void)
{
    struct timespec nap = {0, 20000};

    mr__lock_take(&registry);
    for (uint32_t i = 1; i < n_used; i++) {
        stream *s = atomic_load_explicit(&slots[i], memory_order_relaxed);

        while (s != NULL && runs_on_user(s))
            nanosleep(&nap, NULL);
    }
}

void
mr__streams_fork_parent(void)
{
    mr__lock_drop(&registry);
}

void
mr__streams_fork_child(void)
{
    mr__lock_drop(&registry);
    atomic_store_explicit(&orphaned, true, memory_order_relaxed);
    for (uint32_t i = 1; i < n_used; i++) {
        stream *s = atomic_load_explicit(&slots[i], memory_order_relaxed);

        if (s == NULL)
            continue;
        mr__lock_fork_child(&s->lock);
        s->busy = false;
        s->flying = NULL; /* in the parent alone */
        s->flying_tail = &s->flying;
        s->queue = NULL;
    }
}
