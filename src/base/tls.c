/* SPDX-License-Identifier: Apache-2.0
 *
 * tls.c -- thread serials and a list of calls at each thread's end.
 *
 * Called by: whoever keeps caches or ids for each thread.  Calls: alloc.h.
 */
#include "base/tls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/alloc.h"
#include "base/error.h"

struct exit_call {
    struct exit_call *next;
    void (*fn)(void *arg);
    void *arg;
};

static _Thread_local struct {
    uint64_t serial;
    struct exit_call *calls; /* the last registered first */
} here __attribute__((tls_model("initial-exec")));

static _Atomic uint64_t n_serials;

static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static bool exit_key_made; /* written once, under exit_once */

uint64_t
mr__thread_serial(void)
{
    /* relaxed: only the number matters */
    if (here.serial == 0)
        here.serial =
            1 + atomic_fetch_add_explicit(&n_serials, 1, memory_order_relaxed);
    return here.serial;
}

/* Calls registered meanwhile are taken by the same loop. */
static void
run_exit_calls(void *unused)
{
    struct exit_call *c;

    (void)unused;
    while ((c = here.calls) != NULL) {
        struct exit_call call = *c;

        here.calls = c->next;
        mr__alloc_cached(-1);
        mr__dealloc(c);
        call.fn(call.arg);
    }
}

static void
make_exit_key(void)
{
    exit_key_made = pthread_key_create(&exit_key, run_exit_calls) == 0;
}

bool
mr__at_thread_exit(void (*fn)(void *arg), void *arg)
{
    struct exit_call *c = mr__alloc(sizeof *c);

    if (c == NULL)
        return false;
    pthread_once(&exit_once, make_exit_key);
    /* Any value that is not NULL makes the destructor run. */
    if (!exit_key_made || pthread_setspecific(exit_key, &here) != 0) {
        mr__dealloc(c);
        mr__fail(MR_E_MEMORY, "no thread-specific key is left");
        return false;
    }
    /* one for each thread and cache: no leak */
    mr__alloc_cached(1);
    *c = (struct exit_call){here.calls, fn, arg};
    here.calls = c;
    return true;
}
