/* SPDX-License-Identifier: Apache-2.0
 *
 * lend.c -- where lent arrays are noted, and who has the last reference.
 *
 * Each thread has a block of slots, on lines of its own.  Three things may
 * happen to a slot: its thread writes an array there (only its thread, and only
 * when it is empty); whoever lets the node go empties it; and whoever has the
 * last counted reference of the array *gives* it to the slot, so that the
 * array lives until the slot is emptied.
 *
 * An array lives while it has a counted reference or is noted.  Who is to drop
 * a counted one of a lent array looks at the count: if it is not the last it
 * is dropped as always.  If it is (release.c, drop_lent), MR_REF_ASKED is set,
 * all slots are looked at, and then the count again.  Three rules make that
 * sure:
 *
 *  - Only who has a counted reference notes an array, and keeps it until the
 *    slot is written.  So what was noted with another's reference stands there
 *    when that reference is gone.
 *  - A reference that goes takes MR_REF_ASKED away.  So a count that still is
 *    one with that bit never was more meanwhile, and nothing was noted behind
 *    the back of the scan.  (Who takes one through the edge of a node does so
 *    before the edge ends: a scan that sees the slot empty sees that count.)
 *  - MR_REF_LENT stands in the count itself: nobody drops a reference without
 *    knowing whether the array was lent.
 *
 * tests/eval/lends.c tries all interleavings, and what goes wrong without each
 * rule.
 *
 * An array is lent once two threads have called with it: what has one caller
 * is counted as ever, on lines that nobody else writes to, and goes without a
 * scan.  A slot that a forked child has of a thread of its parent's is never
 * emptied, and may keep one array.
 *
 * Called by: node.c, release.c.
 */
#include "graph/lend.h"

#include "base/error.h"
#include "base/tls.h"

enum {
    N_BLOCKS = 64, /* threads beyond count as ever */
    N_SLOTS = 16,
    TRIES = 4
};

typedef struct block {
    _Alignas(128) mr_lend slot[N_SLOTS]; /* no pair of lines has two */
} block;

static block blocks[N_BLOCKS];
/* Has a thread it?  acquire on taking, release on giving back. */
static _Atomic bool lender[N_BLOCKS];
/* Blocks that were ever taken: relaxed, it is written before the first slot
 * of one. */
static _Atomic int n_lenders;

_Thread_local uint32_t mr__lend_caller;
static _Thread_local struct {
    block *block;
    uint32_t next; /* slot */
    bool without;  /* there is no block for this thread */
} here __attribute__((tls_model("initial-exec")));

/* ---- blocks ------------------------------------------------------------- */

/* What is noted in it stays until it is over; the next thread uses the other
 * slots. */
static void
block_give_back(void *unused)
{
    ptrdiff_t i = here.block - blocks;

    (void)unused;
    here.block = NULL;
    /* release: pairs with the acquire of who takes it */
    atomic_store_explicit(&lender[i], false, memory_order_release);
}

static void
raise_lenders(int n)
{
    /* relaxed, all: see n_lenders */
    int seen = atomic_load_explicit(&n_lenders, memory_order_relaxed);

    while (seen < n && !atomic_compare_exchange_weak_explicit(
                           &n_lenders, &seen, n, memory_order_relaxed,
                           memory_order_relaxed))
        ;
}

static bool
block_take(void)
{
    for (int i = 0; i < N_BLOCKS; i++) {
        bool taken = false;

        /* acquire: pairs with the release of who had it */
        if (!atomic_compare_exchange_strong_explicit(&lender[i], &taken, true,
                                                     memory_order_acquire,
                                                     memory_order_relaxed))
            continue;
        raise_lenders(i + 1);
        here.block = &blocks[i];
        return true;
    }
    return false;
}

/* Without a block the thread counts: no error stays. */
static __attribute__((cold)) bool
block_open(void)
{
    struct mr__error_stash aside;

    if (here.without)
        return false;
    aside = mr__error_stash();
    if (!block_take()) {
        here.without = true;
    } else if (!mr__at_thread_exit(block_give_back, NULL)) {
        block_give_back(NULL);
        here.without = true;
    }
    mr__error_unstash(aside);
    return !here.without;
}

/* ---- lending ------------------------------------------------------------ */

/* Has another thread called with it?  Then it is lent from now on, if it has
 * its value: planners count the references of what has none. */
static bool
becomes_lent(mr_array *x)
{
    /* relaxed: a number that says who, nothing else */
    uint32_t first = atomic_load_explicit(&x->caller, memory_order_relaxed);

    if (mr__lend_caller == 0)
        mr__lend_caller = (uint32_t)mr__thread_serial();
    if (first == mr__lend_caller)
        return false;
    if (first == 0) {
        atomic_store_explicit(&x->caller, mr__lend_caller,
                              memory_order_relaxed);
        return false;
    }
    if (mr__state(x) != MR_DONE)
        return false;
    /* relaxed: whoever drops a reference changes the same word */
    atomic_fetch_or_explicit(&x->refs, MR_REF_LENT, memory_order_relaxed);
    return true;
}

mr_lend *
mr__lend_shared(mr_array *x)
{
    /* relaxed: the caller has a reference */
    if (!(atomic_load_explicit(&x->refs, memory_order_relaxed) & MR_REF_LENT) &&
        !becomes_lent(x))
        return NULL;
    if (__builtin_expect(here.block == NULL, 0) && !block_open())
        return NULL;
    for (int i = 0; i < TRIES; i++) {
        mr_lend *l = &here.block->slot[here.next++ % N_SLOTS];

        /* acquire: pairs with the exchange that emptied it, so that a scan
         * which sees what comes next has seen that too */
        if (atomic_load_explicit(l, memory_order_acquire) != 0)
            continue;
        /* release: pairs with the scan; the caller's reference, which goes
         * later, tells it */
        atomic_store_explicit(l, (uintptr_t)x, memory_order_release);
        return l;
    }
    return NULL;
}

/* ---- the last reference ------------------------------------------------- */

bool
mr__lend_give(mr_array *x)
{
    /* relaxed: see n_lenders */
    int n = atomic_load_explicit(&n_lenders, memory_order_relaxed);

    for (int i = 0; i < n; i++)
        for (int k = 0; k < N_SLOTS; k++) {
            mr_lend *l = &blocks[i].slot[k];
            /* acquire: pairs with the exchange that ends it: all reads before
             * that come before the array goes */
            uintptr_t seen = atomic_load_explicit(l, memory_order_acquire);

            /* acq_rel: who empties the slot gets the reference, and what was
             * done under it */
            if (seen == (uintptr_t)x &&
                atomic_compare_exchange_strong_explicit(
                    l, &seen, seen | MR_LEND_OWNED, memory_order_acq_rel,
                    memory_order_acquire))
                return true;
        }
    return false;
}
