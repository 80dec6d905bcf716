/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c -- the worker threads.
 *
 * Loops.  A submitter takes one of 64 static slots, fills it, opens its gate,
 * sets its bit in `open_loops` and starts on the chunks itself.  A worker that
 * sees the bit enters through the gate, which counts who is inside, and claims
 * chunks until there are none.  Then the submitter closes the gate and waits
 * until nobody is inside.  Slots are static, so a worker that comes too late
 * finds a closed gate and never freed memory: it counts itself in first and
 * then looks whether the gate was open, and goes again if it was not.  It may
 * even find another loop there than the one it came for, and helps that one.
 *
 * Shares.  Each thread has a home, and the chunks of a loop are dealt to homes:
 * in a row of loops over the same memory, of equally many chunks or not, a
 * thread touches what it touched before, which its own cache still has and no
 * other must give up.  Shares lie in pairs, the first of which is gone through
 * upwards and the second downwards, or the other way round.  Who has done its
 * own share takes chunks of others, its partner's first, from where that one
 * would end.  A worker whose home has no share, of a loop with fewer chunks
 * than threads, gives those that have one some time to come.
 *
 * Idle workers spin for SPIN_NS, since loops come in rows, then park on the
 * futex `bell`.  No wake-up is missed: a worker first says in `idle` that it
 * parks and then looks for work once more; a submitter first publishes the
 * work and then reads `idle`.  These four accesses are sequentially
 * consistent, so one of the two sees the other.  A submitter wakes few; each
 * worker that joins a loop with chunks left wakes two more.
 *
 * Jobs are a list under the pool's lock.  Loops are worth more, but after
 * LOOPS_IN_ROW of them a worker looks at the jobs first: none starves.
 *
 * Apart.  The kernel likes to wake a thread on its waker's processor.  When
 * all processors are taken (by whatever else runs) it stays there, and takes
 * turns with the submitter instead of helping it.  So a worker that enters a
 * loop and finds itself on the submitter's processor leaves it for good.
 *
 * Fork.  A worker is `busy` from before it takes work until after it; `prepare`
 * sets `pausing` and waits until no worker is busy.  The same argument as for
 * parking makes sure that one of the two sees the other.
 * Called by: cpu/, eval/.  Calls: lock.h, cpus.h, the kernel's futex.
 */
#include "base/pool.h"

#include <assert.h>
#include <fenv.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cpus.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/pause.h"

enum {
    N_SLOTS = 64,
    SPIN_NS = 30000,
    CLOSE_SPIN_NS = 200000, /* some chunks' time: the last ones are running */
    SPIN_PAUSES = 16,       /* between two looks at the clock */
    STRANGER_NS = 3000,     /* until a worker takes the only chunk of another */
    LOOPS_IN_ROW = 64,
    CHUNKS_MAX = 1 << 30, /* a loop of more would last for days */
    APART_NS = 2000000,   /* from one change of processor to the next */
    WAKE_MOST = 2,
    STACK_BYTES = 1 << 20,
    LINE_BYTES = 64
};

/* A gate: is it open, does its submitter park on it, how many are inside. */
enum { GATE_OPEN = 1, GATE_PARKED = 2, GATE_ONE = 4 };

struct loop {
    _Alignas(LINE_BYTES) _Atomic uint32_t gate;
    /* Written by the submitter while nobody is inside. */
    void (*body)(void *ctx, int64_t i);
    void *ctx;
    int cpu; /* where the submitter was when it began */
    _Atomic int n_shares;
    bool turned; /* shares are gone through the other way */
    /* Chunks [front, back) of a share that nobody has claimed: back * LEFT_BACK
     * + front.  Each that finds none still takes one: front may pass back. */
    _Alignas(LINE_BYTES) _Atomic int64_t left[MR_CPUS_MAX];
};

struct job {
    struct job *next;
    void (*fn)(void *ctx);
    void *ctx;
};

struct worker {
    _Alignas(LINE_BYTES) _Atomic uint32_t busy;
    int index;
    int loops_in_row; /* its own, as the next */
    int64_t moved_at; /* when it last left a processor, ns */
    pthread_t thread; /* under pool_lock */
};

#define LEFT_BACK (INT64_C(1) << 32)

static struct loop loops[N_SLOTS];
/* Slots that have a submitter, and those that want helpers, bit by bit. */
static _Alignas(LINE_BYTES) _Atomic uint64_t taken_slots;
static _Alignas(LINE_BYTES) _Atomic uint64_t open_loops;

/* Workers that spin, and those that are parked or about to be. */
#define IDLE_SPINNING UINT64_C(1)
#define IDLE_PARKED   (UINT64_C(1) << 32)
static _Alignas(LINE_BYTES) _Atomic uint64_t idle;
/* Changes when parked workers are to look for work. */
static _Alignas(LINE_BYTES) _Atomic uint32_t bell;

/* Read often, written seldom. */
static _Alignas(LINE_BYTES) _Atomic uint32_t pausing; /* forks in progress */
static _Atomic uint32_t n_jobs;                       /* queued */
static _Atomic bool stopping;
static _Atomic int n_workers;
static _Atomic bool no_more_threads; /* pthread_create has failed */

static mr_lock pool_lock = MR_LOCK_INIT(MR_RANK_POOL, "pool");
static mr_cond stopped = MR_COND_INIT;
/* Under pool_lock. */
static struct job *first_job, *last_job;
static struct worker workers[MR_CPUS_MAX];

static pthread_once_t size_once = PTHREAD_ONCE_INIT;
static int size; /* written once, under size_once */

static _Thread_local struct {
    struct worker *worker; /* NULL on the host's threads */
    bool in_loop;
} here __attribute__((tls_model("initial-exec")));

/* -- the kernel --------------------------------------------------------------
 */

/* Sleep while *word is `seen`; may return for no reason. */
static void
futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void
futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static int64_t
now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Spin until done() or `ns` have passed; what done() said last. */
static bool
spin_until(bool (*done)(const struct loop *l), const struct loop *l, int64_t ns)
{
    int64_t end = now_ns() + ns;

    do {
        for (int i = 0; i < SPIN_PAUSES; i++) {
            if (done(l))
                return true;
            mr__cpu_pause();
        }
    } while (now_ns() < end);
    return done(l);
}

/* -- loops: those inside ------------------------------------------------------
 */

static uint64_t
loop_bit(const struct loop *l)
{
    return UINT64_C(1) << (l - loops);
}

static int64_t
left_front(int64_t left)
{
    return left & (LEFT_BACK - 1);
}

static int64_t
left_back(int64_t left)
{
    return (left - left_front(left)) / LEFT_BACK;
}

/* Chunks of a share that nobody has claimed; the answer may be old. */
static int64_t
share_left(const struct loop *l, int share)
{
    /* relaxed: a hint */
    int64_t left = atomic_load_explicit(&l->left[share], memory_order_relaxed);
    int64_t n = left_back(left) - left_front(left);

    return n > 0 ? n : 0;
}

/* The same of all shares. */
static int64_t
loop_left(const struct loop *l)
{
    /* relaxed: a hint, and so what it sums may be of two loops */
    int n_shares = atomic_load_explicit(&l->n_shares, memory_order_relaxed);
    int64_t left = 0;

    for (int k = 0; k < n_shares; k++)
        left += share_left(l, k);
    return left;
}

static bool
loop_is_claimed(const struct loop *l)
{
    /* relaxed: as above */
    int n_shares = atomic_load_explicit(&l->n_shares, memory_order_relaxed);

    for (int k = 0; k < n_shares; k++)
        if (share_left(l, k) > 0)
            return false;
    return true;
}

/* A chunk of a share, or -1: the next of its own thread, else the last. */
static int64_t
share_claim(struct loop *l, int share, bool own)
{
    bool front = (share % 2 == 0) == (own != l->turned);
    int64_t left, first, end;

    if (share_left(l, share) == 0)
        return -1;
    /* relaxed: shares out numbers; what the chunks read is ordered by the
     * gate, what they wrote by leaving it */
    left = atomic_fetch_add_explicit(&l->left[share], front ? 1 : -LEFT_BACK,
                                     memory_order_relaxed);
    first = left_front(left);
    end = left_back(left);
    if (first >= end)
        return -1;
    return front ? first : end - 1;
}

/* The next chunk for a thread of that home, or -1. */
static int64_t
loop_claim(struct loop *l, int home)
{
    /* relaxed: the caller is inside, so it is this loop's */
    int n = atomic_load_explicit(&l->n_shares, memory_order_relaxed);
    int64_t i = home < n ? share_claim(l, home, true) : -1;

    for (int k = 1; k <= n && i < 0; k++) {
        int share = (home ^ 1) + k - 1; /* the partner's, then those behind */

        share %= n;
        i = share != home ? share_claim(l, share, false) : -1;
    }
    return i;
}

/* No more helpers are wanted.  By someone inside, so the bit cannot be that
 * of the slot's next loop. */
static void
loop_withdraw(const struct loop *l)
{
    /* relaxed, both: a hint to those outside */
    if (atomic_load_explicit(&open_loops, memory_order_relaxed) & loop_bit(l))
        atomic_fetch_and_explicit(&open_loops, ~loop_bit(l),
                                  memory_order_relaxed);
}

/* Whether there is a point in entering; the answer may be old. */
static bool
loop_wants_help(const struct loop *l)
{
    /* relaxed: loop_enter decides */
    uint32_t gate = atomic_load_explicit(&l->gate, memory_order_relaxed);

    return (gate & GATE_OPEN) != 0 && gate / GATE_ONE < (uint32_t)size - 1 &&
           !loop_is_claimed(l);
}

static void
loop_leave(struct loop *l)
{
    /* release pairs with the acquire loads of loop_is_empty: what the chunks
     * wrote is seen by the submitter */
    uint32_t gate =
        atomic_fetch_sub_explicit(&l->gate, GATE_ONE, memory_order_release);

    /* The slot may already have another loop: its submitter then wakes for
     * nothing, and looks again. */
    if (gate == (GATE_ONE | GATE_PARKED))
        futex_wake(&l->gate, 1);
}

/* One addition, where all threads come at once: an exchange that compares would
 * fail for all but one of them. */
static bool
loop_enter(struct loop *l)
{
    /* acquire pairs with the release that opens the gate in loop_open: the body
     * and context are seen */
    uint32_t gate =
        atomic_fetch_add_explicit(&l->gate, GATE_ONE, memory_order_acquire);

    if ((gate & GATE_OPEN) != 0 && gate / GATE_ONE < (uint32_t)size - 1)
        return true;
    loop_leave(l);
    return false;
}

static bool
fork_pauses(void)
{
    /* relaxed: a worker that sees it late only makes the fork later */
    return atomic_load_explicit(&pausing, memory_order_relaxed) != 0;
}

static void
ring(int64_t n)
{
    /* seq_cst: a worker that read the old value finds it changed when it
     * waits on it (the kernel compares); pairs with the load in park */
    atomic_fetch_add_explicit(&bell, 1, memory_order_seq_cst);
    futex_wake(&bell, (int)n);
}

/* Wake a few parked workers if `wanted` are more than those that spin. */
static void
wake_for(int64_t wanted)
{
    /* seq_cst, after the work was published with seq_cst: pairs with the
     * update of `idle` in park, which is before its last look for work */
    uint64_t now = atomic_load_explicit(&idle, memory_order_seq_cst);
    int64_t parked = (int64_t)(now / IDLE_PARKED);

    wanted -= (int64_t)(now % IDLE_PARKED);
    if (wanted > parked)
        wanted = parked;
    if (wanted > 0)
        ring(wanted < WAKE_MOST ? wanted : WAKE_MOST);
}

/* This worker was counted among those that spin by every submitter of that
 * time, but it can help one alone: so it wakes others for what is left here
 * and elsewhere. */
static void
loop_pass_on(const struct loop *l)
{
    /* seq_cst: after the update of `idle` in await_work; pairs with the
     * publication in loop_open, which is before its load of `idle` */
    uint64_t open = atomic_load_explicit(&open_loops, memory_order_seq_cst);
    int64_t left = loop_left(l) - 1; /* one chunk is this worker's */

    if (left < 0)
        left = 0;
    if ((open & ~loop_bit(l)) != 0)
        left++;
    if (left > 0)
        wake_for(left);
}

/* Leave the submitter's processor.  Nothing is done where there are more
 * threads than processors, nor often: there may be a submitter on each. */
static void
keep_apart(struct worker *w, const struct loop *l)
{
    int cpu = sched_getcpu();
    mr_cpu_mask mask;
    int64_t now;

    if (cpu < 0 || cpu != l->cpu)
        return;
    now = now_ns();
    if (now - w->moved_at < APART_NS || mr__cpus_affinity(&mask) < size)
        return;
    CPU_CLR_S((size_t)cpu, sizeof mask, mask.set);
    pthread_setaffinity_np(pthread_self(), sizeof mask, mask.set);
    w->moved_at = now;
}

/* The user's thread that submits a loop has the first home.  There is a worker
 * more than helpers of a loop for the sake of jobs: it has that home too, since
 * where it helps a worker submits. */
static int
home_of(const struct worker *w)
{
    return w != NULL && w->index < size - 1 ? w->index + 1 : 0;
}

static void
loop_help(struct worker *w, struct loop *l)
{
    int home = home_of(w);
    int64_t i;

    keep_apart(w, l);
    loop_pass_on(l);
    /* relaxed: this thread is inside */
    if (home >= atomic_load_explicit(&l->n_shares, memory_order_relaxed))
        spin_until(loop_is_claimed, l, STRANGER_NS);
    here.in_loop = true;
    /* While a fork waits, the submitter does the rest. */
    while (!fork_pauses()) {
        i = loop_claim(l, home);
        if (i < 0) {
            loop_withdraw(l);
            break;
        }
        l->body(l->ctx, i);
    }
    here.in_loop = false;
    loop_leave(l);
}

/* -- loops: the submitter
 * ------------------------------------------------------- */

/* A slot of the caller's own, or NULL. */
static struct loop *
slot_take(void)
{
    /* relaxed: checked again by the exchange */
    uint64_t taken = atomic_load_explicit(&taken_slots, memory_order_relaxed);

    while (~taken != 0) {
        int i = __builtin_ctzll(~taken);

        /* acquire pairs with the release of slot_give_back: the last loop of
         * this slot is over */
        if (atomic_compare_exchange_weak_explicit(
                &taken_slots, &taken, taken | (UINT64_C(1) << i),
                memory_order_acquire, memory_order_relaxed))
            return &loops[i];
    }
    return NULL;
}

static void
slot_give_back(struct loop *l)
{
    /* release pairs with the acquire of slot_take */
    atomic_fetch_and_explicit(&taken_slots, ~loop_bit(l), memory_order_release);
}

static void
loop_open(struct loop *l, int64_t n, void (*body)(void *, int64_t), void *ctx,
          bool turned)
{
    int n_shares = n < size ? (int)n : size;

    l->body = body;
    l->ctx = ctx;
    l->cpu = sched_getcpu();
    l->turned = turned;
    /* relaxed, both: published by the gate */
    atomic_store_explicit(&l->n_shares, n_shares, memory_order_relaxed);
    for (int64_t k = 0; k < n_shares; k++)
        atomic_store_explicit(
            &l->left[k], (k + 1) * n / n_shares * LEFT_BACK + k * n / n_shares,
            memory_order_relaxed);
    /* release pairs with the acquire of loop_enter.  Workers that came too late
     * for the last loop may be counted in still. */
    atomic_fetch_or_explicit(&l->gate, GATE_OPEN, memory_order_release);
    /* seq_cst: before the load of `idle` in wake_for; pairs with has_work in
     * park */
    atomic_fetch_or_explicit(&open_loops, loop_bit(l), memory_order_seq_cst);
    wake_for(n - 1 < size - 1 ? n - 1 : size - 1);
}

static bool
loop_is_empty(const struct loop *l)
{
    /* acquire pairs with the release of loop_leave */
    return atomic_load_explicit(&l->gate, memory_order_acquire) < GATE_ONE;
}

/* Close the gate and wait for those inside. */
static void
loop_close(struct loop *l)
{
    uint32_t gate;

    loop_withdraw(l);
    /* acquire pairs with the release of loop_leave, for those who have left */
    gate = atomic_fetch_and_explicit(&l->gate, ~(uint32_t)GATE_OPEN,
                                     memory_order_acquire);
    if (gate >= GATE_ONE && !spin_until(loop_is_empty, l, CLOSE_SPIN_NS)) {
        /* acquire: as above.  From here on the last to leave rings. */
        gate = atomic_fetch_or_explicit(&l->gate, GATE_PARKED,
                                        memory_order_acquire) |
               GATE_PARKED;
        while (gate >= GATE_ONE) {
            futex_wait(&l->gate, gate);
            /* acquire: as above */
            gate = atomic_load_explicit(&l->gate, memory_order_acquire);
        }
    }
    /* relaxed: the slot is still the caller's; who is counted in from now on
     * finds the gate closed */
    if (gate & GATE_PARKED)
        atomic_fetch_and_explicit(&l->gate, ~(uint32_t)GATE_PARKED,
                                  memory_order_relaxed);
}

static void
loop_inline(int64_t n, void (*body)(void *, int64_t), void *ctx)
{
    bool outer = here.in_loop;

    here.in_loop = true;
    for (int64_t i = 0; i < n; i++)
        body(ctx, i);
    here.in_loop = outer;
}

static void start_workers(int wanted);

void
mr__pool_loop_turned(int64_t n_chunks, bool turned,
                     void (*body)(void *ctx, int64_t i), void *ctx)
{
    int home = home_of(here.worker);
    struct loop *l = NULL;
    int64_t i;

    if (n_chunks > 1 && n_chunks < CHUNKS_MAX && !here.in_loop &&
        mr__pool_threads() > 1)
        l = slot_take();
    if (l == NULL) {
        loop_inline(n_chunks, body, ctx);
        return;
    }
    start_workers(size - 1);
    loop_open(l, n_chunks, body, ctx, turned);
    here.in_loop = true;
    while ((i = loop_claim(l, home)) >= 0)
        body(ctx, i);
    here.in_loop = false;
    loop_close(l);
    slot_give_back(l);
}

void
mr__pool_loop(int64_t n_chunks, void (*body)(void *ctx, int64_t i), void *ctx)
{
    mr__pool_loop_turned(n_chunks, false, body, ctx);
}

bool
mr__pool_in_loop(void)
{
    return here.in_loop;
}

bool
mr__pool_is_worker(void)
{
    return here.worker != NULL;
}

/* -- workers
 * --------------------------------------------------------------------- */

/* Work that a worker could take now. */
static bool
has_work(const struct loop *unused)
{
    /* seq_cst, both: in park they follow the update of `idle`; pair with the
     * publications in loop_open and mr__pool_job */
    uint64_t open = atomic_load_explicit(&open_loops, memory_order_seq_cst);

    (void)unused;
    for (; open != 0; open &= open - 1)
        if (loop_wants_help(&loops[__builtin_ctzll(open)]))
            return true;
    return atomic_load_explicit(&n_jobs, memory_order_seq_cst) > 0;
}

static bool
is_stopping(void)
{
    /* seq_cst: as has_work; pairs with the store of mr__pool_stop */
    return atomic_load_explicit(&stopping, memory_order_seq_cst);
}

static bool
has_work_or_stops(const struct loop *unused)
{
    return has_work(unused) || is_stopping();
}

/* From here to worker_rests a fork waits for this worker. */
static void
worker_begins(struct worker *w)
{
    uint32_t forks;

    for (;;) {
        /* seq_cst, both: pair with the update of `pausing` and the load of
         * `busy` in mr__pool_fork_prepare */
        atomic_store_explicit(&w->busy, 1, memory_order_seq_cst);
        forks = atomic_load_explicit(&pausing, memory_order_seq_cst);
        if (forks == 0)
            return;
        /* release pairs with the load in mr__pool_fork_prepare */
        atomic_store_explicit(&w->busy, 0, memory_order_release);
        futex_wait(&pausing, forks);
    }
}

static void
worker_rests(struct worker *w)
{
    /* release pairs with the load in mr__pool_fork_prepare */
    atomic_store_explicit(&w->busy, 0, memory_order_release);
}

static bool
help_some_loop(struct worker *w)
{
    /* relaxed: a hint, loop_enter decides */
    uint64_t open = atomic_load_explicit(&open_loops, memory_order_relaxed);
    /* Workers begin at different slots, so that they spread. */
    int turn = w->index % N_SLOTS;

    if (turn > 0)
        open = open >> turn | open << (N_SLOTS - turn);
    for (; open != 0; open &= open - 1) {
        struct loop *l = &loops[(__builtin_ctzll(open) + turn) % N_SLOTS];

        if (loop_wants_help(l) && loop_enter(l)) {
            loop_help(w, l);
            w->loops_in_row++;
            return true;
        }
    }
    return false;
}

static bool
run_some_job(void)
{
    struct job *j, job;

    /* relaxed: a hint, the lock decides */
    if (atomic_load_explicit(&n_jobs, memory_order_relaxed) == 0)
        return false;
    mr__lock_take(&pool_lock);
    j = first_job;
    if (j != NULL) {
        first_job = j->next;
        if (first_job == NULL)
            last_job = NULL;
        /* relaxed: the lock orders it */
        atomic_fetch_sub_explicit(&n_jobs, 1, memory_order_relaxed);
    }
    mr__lock_drop(&pool_lock);
    if (j == NULL)
        return false;
    job = *j;
    mr__dealloc(j);
    job.fn(job.ctx);
    return true;
}

static bool
take_work(struct worker *w)
{
    bool ran = false;

    worker_begins(w);
    if (w->loops_in_row >= LOOPS_IN_ROW) {
        w->loops_in_row = 0;
        ran = run_some_job();
    }
    ran = ran || help_some_loop(w) || run_some_job();
    worker_rests(w);
    return ran;
}

static void
park(void)
{
    /* seq_cst: before the look for work; pairs with the addition in
     * wake_for */
    uint32_t seen = atomic_load_explicit(&bell, memory_order_seq_cst);

    /* seq_cst: before the look for work; pairs with the load in wake_for */
    atomic_fetch_add_explicit(&idle, IDLE_PARKED - IDLE_SPINNING,
                              memory_order_seq_cst);
    if (!has_work_or_stops(NULL))
        futex_wait(&bell, seen);
    /* seq_cst: as above */
    atomic_fetch_sub_explicit(&idle, IDLE_PARKED - IDLE_SPINNING,
                              memory_order_seq_cst);
}

/* False when the pool stops and no work is left. */
static bool
await_work(void)
{
    bool found;

    /* seq_cst, both: order as in park */
    atomic_fetch_add_explicit(&idle, IDLE_SPINNING, memory_order_seq_cst);
    while (!spin_until(has_work_or_stops, NULL, SPIN_NS))
        park();
    found = has_work(NULL) || !is_stopping();
    atomic_fetch_sub_explicit(&idle, IDLE_SPINNING, memory_order_seq_cst);
    return found;
}

static void *
worker_main(void *arg)
{
    struct worker *w = arg;
    mr_cpu_mask mask;
    char name[16];

    here.worker = w;
    snprintf(name, sizeof name, "marram-%d", w->index);
    pthread_setname_np(pthread_self(), name);
    /* The starter may be pinned, or run with flush-to-zero; both are
     * inherited. */
    if (mr__cpus_affinity(&mask) > 0)
        pthread_setaffinity_np(pthread_self(), sizeof mask, mask.set);
    fesetenv(FE_DFL_ENV);
    do {
        while (take_work(w))
            ;
    } while (await_work());
    return NULL;
}

static bool
worker_start(struct worker *w, int index)
{
    pthread_attr_t attr;
    sigset_t all, old;
    int rc;

    w->index = index;
    w->loops_in_row = 0;
    w->moved_at = 0;
    /* relaxed: pthread_create publishes it */
    atomic_store_explicit(&w->busy, 0, memory_order_relaxed);
    if (pthread_attr_init(&attr) != 0)
        return false;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    /* A thread inherits the mask: no signal finds a worker without it. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return rc == 0;
}

/* Workers up to `wanted`, as far as the system gives them. */
static void
start_workers_locked(int wanted)
{
    /* relaxed: written under the lock */
    int n = atomic_load_explicit(&n_workers, memory_order_relaxed);
    bool fails = false;

    if (is_stopping())
        return;
    while (n < wanted && !fails) {
        if (worker_start(&workers[n], n))
            n++;
        else
            fails = true;
    }
    /* relaxed: a hint not to try at each loop */
    atomic_store_explicit(&no_more_threads, fails, memory_order_relaxed);
    /* release pairs with the acquire in mr__pool_fork_prepare */
    atomic_store_explicit(&n_workers, n, memory_order_release);
}

static void
start_workers(int wanted)
{
    /* relaxed, both: the lock decides */
    if (atomic_load_explicit(&n_workers, memory_order_relaxed) >= wanted ||
        atomic_load_explicit(&no_more_threads, memory_order_relaxed))
        return;
    mr__lock_take(&pool_lock);
    start_workers_locked(wanted);
    mr__lock_drop(&pool_lock);
}

static void
find_size(void)
{
    size = mr__cpus_to_use();
}

int
mr__pool_threads(void)
{
    pthread_once(&size_once, find_size);
    return size;
}

/* -- jobs
 * -------------------------------------------------------------------------- */

/* A job's own loops want as many helpers as those of a user's thread, so
 * there is one worker more than helpers of a loop. */
static bool
queue_job_locked(struct job *j)
{
    start_workers_locked(size);
    /* While the pool stops, its stopper runs what the workers left. */
    if (atomic_load_explicit(&n_workers, memory_order_relaxed) == 0 &&
        !is_stopping())
        return false;
    if (last_job == NULL)
        first_job = j;
    else
        last_job->next = j;
    last_job = j;
    /* seq_cst: before the load of `idle` in wake_for; pairs with has_work in
     * park */
    atomic_fetch_add_explicit(&n_jobs, 1, memory_order_seq_cst);
    return true;
}

bool
mr__pool_job(void (*fn)(void *ctx), void *ctx)
{
    struct job *j = mr__alloc(sizeof *j);
    bool queued;

    if (j == NULL)
        return false;
    *j = (struct job){NULL, fn, ctx};
    mr__pool_threads();
    mr__lock_take(&pool_lock);
    queued = queue_job_locked(j);
    mr__lock_drop(&pool_lock);
    if (!queued) {
        mr__dealloc(j);
        mr__fail(MR_E_MEMORY, "could not start a worker thread");
        return false;
    }
    /* One that spins may be taken by a loop, so one that is parked is woken
     * in any case.  seq_cst: as in wake_for. */
    if (atomic_load_explicit(&idle, memory_order_seq_cst) >= IDLE_PARKED)
        ring(1);
    return true;
}

/* Jobs that came too late for the workers.  Holds the lock at both ends, and
 * then the list is empty. */
static void
finish_jobs_locked(void)
{
    while (first_job != NULL) {
        mr__lock_drop(&pool_lock);
        run_some_job();
        mr__lock_take(&pool_lock);
    }
}

void
mr__pool_stop(void)
{
    int n;

    assert(here.worker == NULL);
    mr__lock_take(&pool_lock);
    while (is_stopping())
        mr__cond_wait(&stopped, &pool_lock);
    /* relaxed: written under the lock */
    n = atomic_load_explicit(&n_workers, memory_order_relaxed);
    /* seq_cst: before the bell; pairs with is_stopping in park */
    atomic_store_explicit(&stopping, true, memory_order_seq_cst);
    mr__lock_drop(&pool_lock);

    ring(MR_CPUS_MAX);
    for (int i = 0; i < n; i++)
        pthread_join(workers[i].thread, NULL);

    mr__lock_take(&pool_lock);
    finish_jobs_locked();
    /* relaxed, twice: written under the lock */
    atomic_store_explicit(&n_workers, 0, memory_order_relaxed);
    atomic_store_explicit(&no_more_threads, false, memory_order_relaxed);
    /* seq_cst: as above */
    atomic_store_explicit(&stopping, false, memory_order_seq_cst);
    mr__cond_wake_all(&stopped);
    mr__lock_drop(&pool_lock);
}

/* -- fork
 * ---------------------------------------------------------------------------
 */

void
mr__pool_pause_point(void)
{
    if (here.worker == NULL || !fork_pauses())
        return;
    worker_rests(here.worker);
    worker_begins(here.worker);
}

bool
mr__pool_forking(void)
{
    return fork_pauses();
}

void
mr__pool_await_fork(void)
{
    uint32_t forks;

    /* acquire: pairs with the release of mr__pool_fork_parent */
    while ((forks = atomic_load_explicit(&pausing, memory_order_acquire)) != 0)
        futex_wait(&pausing, forks);
}

void
mr__pool_fork_prepare(void)
{
    struct timespec nap = {0, 20000};
    int n;

    /* seq_cst: before the loads of `busy`; pairs with worker_begins */
    atomic_fetch_add_explicit(&pausing, 1, memory_order_seq_cst);
    /* acquire pairs with the release of start_workers_locked.  A worker that
     * starts later sees `pausing` before its first work. */
    n = atomic_load_explicit(&n_workers, memory_order_acquire);
    for (int i = 0; i < n; i++)
        /* seq_cst: as above; it also acquires what worker_rests released */
        while (&workers[i] != here.worker &&
               atomic_load_explicit(&workers[i].busy, memory_order_seq_cst))
            nanosleep(&nap, NULL);
}

void
mr__pool_fork_parent(void)
{
    /* release: nothing of the fork is later; pairs with worker_begins */
    atomic_fetch_sub_explicit(&pausing, 1, memory_order_release);
    futex_wake(&pausing, MR_CPUS_MAX);
}

/* Only this thread exists here, so nothing needs an order.  Queued jobs are
 * leaked: another thread may have been in the middle of the list. */
void
mr__pool_fork_child(void)
{
    mr_cond fresh = MR_COND_INIT;

    mr__lock_fork_child(&pool_lock);
    stopped = fresh;
    for (int i = 0; i < N_SLOTS; i++)
        atomic_store_explicit(&loops[i].gate, 0, memory_order_relaxed);
    atomic_store_explicit(&taken_slots, 0, memory_order_relaxed);
    atomic_store_explicit(&open_loops, 0, memory_order_relaxed);
    atomic_store_explicit(&idle, 0, memory_order_relaxed);
    atomic_store_explicit(&pausing, 0, memory_order_relaxed);
    atomic_store_explicit(&n_jobs, 0, memory_order_relaxed);
    atomic_store_explicit(&n_workers, 0, memory_order_relaxed);
    atomic_store_explicit(&no_more_threads, false, memory_order_relaxed);
    atomic_store_explicit(&stopping, false, memory_order_relaxed);
    first_job = last_job = NULL;
    here.worker = NULL;
}
