/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c -- which traces are open.
 *
 * A trace's id is a number that only grows, above the index of its slot; the
 * slot holds the id while the trace is open.  So of two traces the smaller is
 * the older, asking whether one is live is one load, and an id that has ended
 * never becomes live again.
 * Called by: transform/, compile/, node.c.  Calls: base/.
 */
#include <assert.h>
#include <stdatomic.h>

#include "base/error.h"
#include "graph/context.h"

enum {
    SLOT_BITS = 12,
    N_SLOTS = 1 << SLOT_BITS,
};

/* The id of the trace that has the slot, or 0. */
static _Atomic uint64_t slots[N_SLOTS];
static _Atomic uint64_t last_number;

uint64_t
mr__trace_begin(void)
{
    /* relaxed: only the order on one thread, and of what one thread saw of
     * another, matters */
    uint64_t number =
        1 + atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed);

    for (uint64_t i = 0; i < N_SLOTS; i++) {
        uint64_t slot = (number + i) % N_SLOTS, empty = 0;
        uint64_t id = number << SLOT_BITS | slot;

        /* release: pairs with the acquire of mr__trace_live */
        if (!atomic_compare_exchange_strong_explicit(&slots[slot], &empty, id,
                                                     memory_order_release,
                                                     memory_order_relaxed))
            continue;
        mr__ctx.trace_depth++;
        if (mr__ctx.trace == 0)
            mr__ctx.trace = id;
        return id;
    }
    mr__fail(MR_E_STATE, "%d traces are open already", N_SLOTS);
    return 0;
}

void
mr__trace_end(uint64_t trace)
{
    if (trace == 0)
        return;
    assert(mr__ctx.trace_depth > 0 && mr__trace_live(trace));
    /* release: pairs with the acquire of mr__trace_live */
    atomic_store_explicit(&slots[trace % N_SLOTS], 0, memory_order_release);
    mr__ctx.trace_depth--;
    if (mr__ctx.trace == trace)
        mr__ctx.trace = 0;
}

bool
mr__trace_live(uint64_t trace)
{
    /* acquire: pairs with the end of the trace: what follows its end here sees
     * what was done under it */
    return trace != 0 && atomic_load_explicit(&slots[trace % N_SLOTS],
                                              memory_order_acquire) == trace;
}
