/* SPDX-License-Identifier: Apache-2.0
 *
 * reads.c -- which lines evaluated by reading.
 *
 * A table of sites (interned, immortal text) that only grows: a slot is taken
 * by one exchange, counts are relaxed.  Lines beyond its size are counted
 * together.
 * Called by: read.c, users.
 */
#include "graph/read.h"

#include <stdatomic.h>

#include "base/map.h"
#include "graph/context.h"
#include "marram/array.h"

#define N_SITES 1024u
#define N_TRIES 64u

typedef struct read_slot {
    _Atomic(const char *) site;
    _Atomic uint64_t count;
} read_slot;

static read_slot slot[N_SITES];
static read_slot others;
static _Atomic(mr_read_site_fn) read_site;

void
mr_set_read_site(mr_read_site_fn where)
{
    /* release: pairs with the acquire of mr__read_note */
    atomic_store_explicit(&read_site, where, memory_order_release);
}

static read_slot *
slot_of(const char *site)
{
    uint64_t h = mr__hash_u64((uint64_t)(uintptr_t)site);

    for (uint64_t k = 0; k < N_TRIES; k++) {
        read_slot *s = &slot[(h + k) % N_SITES];
        const char *old = NULL;

        /* relaxed, both: the text is immortal, the slot guards nothing */
        if (atomic_load_explicit(&s->site, memory_order_relaxed) == site ||
            atomic_compare_exchange_strong_explicit(&s->site, &old, site,
                                                    memory_order_relaxed,
                                                    memory_order_relaxed) ||
            old == site)
            return s;
    }
    return &others;
}

void
mr__read_note(void)
{
    /* acquire: pairs with mr_set_read_site */
    mr_read_site_fn where =
        atomic_load_explicit(&read_site, memory_order_acquire);
    const char *site = where ? where() : mr__ctx.site;
    read_slot *s = site && *site ? slot_of(site) : &others;

    atomic_fetch_add_explicit(&s->count, 1, memory_order_relaxed);
}

/* A line of out, which has `room`, when the slot has counted. */
static void
put_line(const read_slot *s, mr_read_line *out, int room, int *n,
         uint64_t *total)
{
    uint64_t count = atomic_load_explicit(&s->count, memory_order_relaxed);
    const char *site = atomic_load_explicit(&s->site, memory_order_relaxed);

    if (count == 0)
        return;
    if (*n < room)
        out[*n] = (mr_read_line){site ? site : "", count};
    *n += 1;
    *total += count;
}

uint64_t
mr_read_stats(mr_read_line *out, int room, int *n_lines)
{
    uint64_t total = 0;
    int n = 0;

    for (uint64_t k = 0; k < N_SITES; k++)
        put_line(&slot[k], out, out ? room : 0, &n, &total);
    put_line(&others, out, out ? room : 0, &n, &total);
    if (n_lines)
        *n_lines = n;
    return total;
}

void
mr_read_stats_reset(void)
{
    for (uint64_t k = 0; k < N_SITES; k++)
        atomic_store_explicit(&slot[k].count, 0, memory_order_relaxed);
    atomic_store_explicit(&others.count, 0, memory_order_relaxed);
}
