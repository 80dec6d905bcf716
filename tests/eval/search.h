/* SPDX-License-Identifier: Apache-2.0
 *
 * search.h -- all states that a set of moves can reach.
 *
 * Depth first, with the set of the fingerprints (64 bits) of the states seen;
 * the states on the stack are the way to where the search stands.  For one
 * file, which includes it.
 */
#ifndef MRT_EVAL_SEARCH_H
#define MRT_EVAL_SEARCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "support/base.h"

/* What does not hold, or NULL: moves and check_end say so by `must`. */
static const char *broken;

static void
must(bool holds, const char *what)
{
    if (!holds && broken == NULL)
        broken = what;
}

typedef struct search {
    size_t bytes; /* of a state: plain data without holes */
    int n_moves;
    /* Change the state; false: the move is not possible there. */
    bool (*move)(void *state, int move);
    void (*check_end)(const void *state); /* where no move is possible */
    /* found */
    uint64_t *seen;
    size_t seen_cap, n_seen;
    unsigned char *path; /* `depth` states */
    int *next;           /* of each: the move to try next */
    bool *moved;
    size_t depth, path_cap;
} search;

static uint64_t
search_fingerprint(const search *h, const unsigned char *p)
{
    uint64_t x = 0x9e3779b97f4a7c15u, v;

    for (size_t i = 0; i < h->bytes; i += sizeof v) {
        size_t n = h->bytes - i < sizeof v ? h->bytes - i : sizeof v;

        v = 0;
        memcpy(&v, p + i, n);
        x = (x ^ v) * 0xff51afd7ed558ccdu;
        x ^= x >> 29;
    }
    x *= 0xc4ceb9fe1a85ec53u;
    x ^= x >> 32;
    return x != 0 ? x : 1;
}

static void
search_seen_grow(search *h)
{
    uint64_t *old = h->seen;
    size_t cap = h->seen_cap;

    h->seen_cap = cap != 0 ? 4 * cap : 1 << 16;
    h->seen = calloc(h->seen_cap, sizeof *h->seen);
    assert_non_null(h->seen);
    for (size_t i = 0; i < cap; i++)
        if (old[i] != 0) {
            size_t at = old[i] & (h->seen_cap - 1);

            while (h->seen[at] != 0)
                at = (at + 1) & (h->seen_cap - 1);
            h->seen[at] = old[i];
        }
    free(old);
}

/* True if it is new. */
static bool
search_seen_add(search *h, const void *state)
{
    uint64_t x = search_fingerprint(h, state);
    size_t at;

    if (2 * h->n_seen >= h->seen_cap)
        search_seen_grow(h);
    at = x & (h->seen_cap - 1);
    while (h->seen[at] != 0 && h->seen[at] != x)
        at = (at + 1) & (h->seen_cap - 1);
    if (h->seen[at] == x)
        return false;
    h->seen[at] = x;
    h->n_seen++;
    return true;
}

static unsigned char *
search_at(const search *h, size_t i)
{
    return h->path + i * h->bytes;
}

static void
search_push(search *h, const void *state)
{
    if (h->depth == h->path_cap) {
        h->path_cap = h->path_cap != 0 ? 2 * h->path_cap : 1024;
        h->path = realloc(h->path, h->path_cap * h->bytes);
        h->next = realloc(h->next, h->path_cap * sizeof *h->next);
        h->moved = realloc(h->moved, h->path_cap * sizeof *h->moved);
        assert_non_null(h->path);
        assert_non_null(h->next);
        assert_non_null(h->moved);
    }
    memcpy(search_at(h, h->depth), state, h->bytes);
    h->next[h->depth] = 0;
    h->moved[h->depth++] = false;
}

/* From the state on top: the next unseen successor goes on top; without one
 * it is popped, and if it had no successor at all it must be an end. */
static void
search_step(search *h, void *scratch)
{
    size_t top = h->depth - 1;

    while (h->next[top] < h->n_moves) {
        memcpy(scratch, search_at(h, top), h->bytes);
        if (!h->move(scratch, h->next[top]++))
            continue;
        h->moved[top] = true;
        if (broken != NULL)
            return;
        if (search_seen_add(h, scratch)) {
            search_push(h, scratch);
            return;
        }
    }
    if (!h->moved[top])
        h->check_end(search_at(h, top));
    if (broken == NULL)
        h->depth--;
}

/* Until all is seen, something is broken, or more than `max` states are
 * seen. */
static void
search_all(search *h, const void *start, size_t max)
{
    void *scratch = malloc(h->bytes);

    assert_non_null(scratch);
    search_seen_add(h, start);
    search_push(h, start);
    while (h->depth > 0 && broken == NULL && h->n_seen < max)
        search_step(h, scratch);
    free(scratch);
}

static void
search_free(search *h)
{
    free(h->seen);
    free(h->path);
    free(h->next);
    free(h->moved);
}

/* ---- worlds and rules -----------------------------------------------------
 */

/* Searches world `world` of the file's without one rule (0: with all); adds to
 * *n how many states there are; gives what does not hold, or NULL. */
typedef const char *search_world_fn(size_t world, int without, size_t *n);

static inline void
search_all_hold(search_world_fn *explore, size_t n_worlds, size_t at_least)
{
    size_t n = 0;

    for (size_t i = 0; i < n_worlds; i++) {
        const char *what = explore(i, 0, &n);

        if (what != NULL)
            fail_msg("world %zu: %s", i, what);
    }
    print_message("  %zu states\n", n);
    assert_true(n > at_least);
}

/* Without any of the rules 1 to `last` something goes wrong in some world. */
static inline void
search_rules_are_needed(search_world_fn *explore, size_t n_worlds, int last)
{
    for (int r = 1; r <= last; r++) {
        const char *what = NULL;
        size_t n = 0;

        for (size_t i = 0; what == NULL && i < n_worlds; i++)
            what = explore(i, r, &n);
        if (what == NULL)
            fail_msg("rule %d is not needed", r);
        print_message("  without rule %d: %s\n", r, what);
    }
}

#endif
