/* SPDX-License-Identifier: Apache-2.0
 *
 * over.c -- parallel ranges over operands, from where the last one ended.
 *
 * Whoever goes over more memory than a cache holds, always in one direction,
 * finds nothing there: what comes first was driven out by what came last.  So
 * a loop over operands that were gone over before takes its pieces the other
 * way round, and begins with those that are still near, whether it reads what
 * an operator before it wrote or runs again.
 *
 * Each thread goes through its own share of the pieces (pool.c), so a loop ends
 * where each of them ends.  The other way round each begins there.  Which way
 * operands went last is kept in a small table by address: old or lost entries
 * cost nothing but hits in a cache, and as pieces do not depend on each other
 * no result shows the direction.
 *
 * Two cores of a Xeon with 2 MB of second level each, which get 30 GB/s each
 * from the third whatever they do: 3 of 4 MB that both hold are found again,
 * 45 us of each loop.  Sums of 8 MB 0.133 to 0.085 ms, of 16 MB 0.28 to 0.23,
 * 16 MB copied 0.56 to 0.515, 32 MB of float32 to float16 0.84 to 0.80.
 * Called by: every kernel of this folder that streams.  Calls: walk.c.
 */
#include <stdatomic.h>

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/cpu.h"

enum {
    PLACES = 256,    /* of the table, a power of two */
    PAGE_SHIFT = 12, /* operands are told apart by the page they begin in */
    TURN_SHIFT = 24,
    FEWEST = 4,    /* pieces: fewer are in a cache anyway */
    LEAST_PART = 4 /* of a grain, one in so many */
};

/* A place: the page, the loop that was there last, and its direction (1 is
 * turned).  0 is nothing.  Relaxed, all: each entry is whole, and hints. */
static _Atomic uint64_t places[PLACES];
/* Loops until now, to tell which operand was gone over last; loops at the same
 * time may count as one. */
static _Atomic uint32_t turns;

static uint64_t
page_of(const void *p)
{
    return (uint64_t)(uintptr_t)p >> PAGE_SHIFT;
}

static _Atomic uint64_t *
place_of(uint64_t page)
{
    return &places[(page * UINT64_C(0x9E3779B97F4A7C15)) >> 56];
}

/* Bits 40 on: the page (its lowest 24 bits are enough); then the turn, then
 * the direction. */
static uint64_t
place_make(uint64_t page, uint32_t turn, bool turned)
{
    return page << (TURN_SHIFT + 1) |
           (uint64_t)(turn & ((1U << TURN_SHIFT) - 1)) << 1 |
           (turned ? 1U : 0U);
}

static bool
place_is_of(uint64_t place, uint64_t page)
{
    return place >> (TURN_SHIFT + 1) ==
           (page << (TURN_SHIFT + 1)) >> (TURN_SHIFT + 1);
}

/* How many turns ago. */
static uint32_t
place_age(uint64_t place, uint32_t turn)
{
    return (turn - (uint32_t)(place >> 1)) & ((1U << TURN_SHIFT) - 1);
}

/* Not as the operand went that was gone over last; as they lie if none is
 * known. From now on all of them went so. */
static bool
goes_turned(const mr_over *o)
{
    /* relaxed, all: see above */
    uint32_t turn = atomic_load_explicit(&turns, memory_order_relaxed) + 1;
    uint32_t least = UINT32_MAX;
    bool turned = false;

    atomic_store_explicit(&turns, turn, memory_order_relaxed);
    for (int i = 0; i < o->n; i++) {
        uint64_t page = page_of(o->at[i]);
        uint64_t place =
            atomic_load_explicit(place_of(page), memory_order_relaxed);

        if (!place_is_of(place, page) || place_age(place, turn) >= least)
            continue;
        least = place_age(place, turn);
        turned = (place & 1) == 0;
    }
    for (int i = 0; i < o->n; i++) {
        uint64_t page = page_of(o->at[i]);

        atomic_store_explicit(place_of(page), place_make(page, turn, turned),
                              memory_order_relaxed);
    }
    return turned;
}

/* Pieces alike, and as many that two, four or eight threads end together: with
 * 27 of 40 us, one of two threads waits that long.  No less than 7/8 of the
 * grain that was asked for if there are many.  More threads get equally many
 * each, of a quarter of the grain at least. */
static int64_t
even_grain(int64_t n, int64_t grain)
{
    int64_t pieces = (n - 1) / grain + 1, threads = mr__pool_threads();
    int64_t unit = 8;

    if (threads > unit && LEAST_PART * pieces >= threads)
        unit = threads;
    else
        while (unit > 2 && pieces < 4 * unit)
            unit /= 2;
    pieces = mr__round_up(pieces, unit);
    return (n - 1) / pieces + 1;
}

void
mr__over_add(mr_over *o, const void *memory)
{
    if (o->n < MR_OVER_MAX && memory != NULL)
        o->at[o->n++] = memory;
}

void
mr__cpu_for_over(const mr_over *o, int64_t n, int64_t grain, mr_cpu_body *body,
                 void *ctx)
{
    grain = grain > 0 ? grain : 1;
    if (n <= (FEWEST - 1) * grain || mr__pool_in_loop()) {
        mr__cpu_for(n, grain, body, ctx);
        return;
    }
    mr__cpu_for_turned(n, even_grain(n, grain), goes_turned(o), body, ctx);
}
