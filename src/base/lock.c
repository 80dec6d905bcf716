/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.c -- mutexes that spin briefly, and the check of their order.
 *
 * Sections under these locks last well under a microsecond, so a waiter tries
 * for about as long before it lets the kernel park it.  With MR_CHECK_LOCKS
 * each thread keeps a list of the locks it holds.
 * Called by: everything.  Calls: pthreads.
 */
#include "base/lock.h"

#include <time.h>

#ifdef MR_CHECK_LOCKS
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#endif

#include "base/pause.h"

enum { SPIN_TRIES = 100 };

#ifdef MR_CHECK_LOCKS

enum { HELD_MAX = 32, FRAMES_MAX = 48 };

static _Thread_local struct {
    const mr_lock *lock[HELD_MAX];
    void *from[HELD_MAX]; /* where it was taken */
    int n;
} held __attribute__((tls_model("initial-exec")));

static _Noreturn void
die(const char *what, const mr_lock *taken, const char *name, int rank)
{
    void *frame[FRAMES_MAX];

    fprintf(stderr, "marram: lock order: %s \"%s\" (rank %d)", what, name,
            rank);
    if (taken != NULL)
        fprintf(stderr, " while \"%s\" (rank %d) is held", taken->name,
                (int)taken->rank);
    fputc('\n', stderr);
    for (int i = 0; i < held.n; i++) {
        fprintf(stderr, "\"%s\" was taken at\n", held.lock[i]->name);
        backtrace_symbols_fd(&held.from[i], 1, STDERR_FILENO);
    }
    fputs("and now\n", stderr);
    backtrace_symbols_fd(frame, backtrace(frame, FRAMES_MAX), STDERR_FILENO);
    abort();
}

static void
check_take(const mr_lock *l)
{
    for (int i = 0; i < held.n; i++)
        if (held.lock[i]->rank >= l->rank)
            die("taking", held.lock[i], l->name, (int)l->rank);
    if (held.n == HELD_MAX)
        die("too many locks: taking", held.lock[HELD_MAX - 1], l->name,
            (int)l->rank);
}

static void
note_taken(const mr_lock *l, void *from)
{
    held.from[held.n] = from;
    held.lock[held.n++] = l;
}

static void
note_dropped(const mr_lock *l)
{
    int i = held.n;

    while (i > 0 && held.lock[i - 1] != l)
        i--;
    if (i == 0)
        die("dropping what is not held:", NULL, l->name, (int)l->rank);
    for (; i < held.n; i++) {
        held.lock[i - 1] = held.lock[i];
        held.from[i - 1] = held.from[i];
    }
    held.n--;
}

/* A wait drops only its own lock: another one would be held across it. */
static void
check_wait(const mr_lock *l)
{
    for (int i = 0; i < held.n; i++)
        if (held.lock[i] != l)
            die("waiting on", held.lock[i], l->name, (int)l->rank);
}

void
mr__lock_assert_none(const char *what)
{
    if (held.n > 0)
        die("entering", held.lock[held.n - 1], what, 0);
}

#else

static inline void
check_take(const mr_lock *l)
{
    (void)l;
}

static inline void
note_taken(const mr_lock *l, void *from)
{
    (void)l;
    (void)from;
}

static inline void
note_dropped(const mr_lock *l)
{
    (void)l;
}

static inline void
check_wait(const mr_lock *l)
{
    (void)l;
}

void
mr__lock_assert_none(const char *what)
{
    (void)what;
}

#endif

static void
take_contended(mr_lock *l)
{
    for (int i = 0; i < SPIN_TRIES; i++) {
        mr__cpu_pause();
        if (pthread_mutex_trylock(&l->m) == 0)
            return;
    }
    pthread_mutex_lock(&l->m);
}

void
mr__lock_take(mr_lock *l)
{
    check_take(l);
    if (pthread_mutex_trylock(&l->m) != 0) {
        take_contended(l);
        l->waits++;
    }
    l->holds++;
    note_taken(l, __builtin_return_address(0));
}

void
mr__lock_drop(mr_lock *l)
{
    note_dropped(l);
    pthread_mutex_unlock(&l->m);
}

bool
mr__lock_fork_torn(mr_lock *l)
{
    if (pthread_mutex_trylock(&l->m) == 0) {
        pthread_mutex_unlock(&l->m);
        return false;
    }
    mr__lock_fork_child(l);
    return true;
}

void
mr__lock_fork_child(mr_lock *l)
{
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

    l->m = fresh;
}

void
mr__cond_wait(mr_cond *c, mr_lock *l)
{
    check_wait(l);
    note_dropped(l);
    pthread_cond_wait(&c->c, &l->m);
    l->holds++;
    note_taken(l, __builtin_return_address(0));
}

bool
mr__cond_wait_for(mr_cond *c, mr_lock *l, int64_t ns)
{
    struct timespec end;
    int rc;

    check_wait(l);
    note_dropped(l);
    clock_gettime(CLOCK_MONOTONIC, &end);
    ns += end.tv_nsec;
    end.tv_sec += (time_t)(ns / 1000000000);
    end.tv_nsec = (long)(ns % 1000000000);
    rc = pthread_cond_clockwait(&c->c, &l->m, CLOCK_MONOTONIC, &end);
    l->holds++;
    note_taken(l, __builtin_return_address(0));
    return rc == 0;
}

void
mr__cond_wake_all(mr_cond *c)
{
    pthread_cond_broadcast(&c->c);
}

void
mr__cond_wake_one(mr_cond *c)
{
    pthread_cond_signal(&c->c);
}
