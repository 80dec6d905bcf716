/* SPDX-License-Identifier: Apache-2.0
 *
 * radix.c -- a stable radix sort of pairs of 64-bit words.
 *
 * Short arrays: insertion.  Up to LARGE: digits of 8 bits from the least, one
 * counting pass each; a digit that is the same everywhere is skipped.  Above,
 * one pass by the highest 11 bits that differ deals the elements into buckets
 * (pieces are counted, then moved, in parallel, each to places of its own, so
 * equal digits keep their order), and the buckets, which fit a cache, are
 * sorted as above, in parallel.
 * Called by: sort.c.
 */
#include "cpu/radix.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cpu/cpu.h"

enum {
    SHORT = 48,
    LARGE = 1 << 16,
    DIGIT = 8,
    TOP = 11,
    N_TOP = 1 << TOP,
    PIECE = 1 << 16
};

typedef struct pair {
    uint64_t key, place;
} pair;

/* One array on its way; `low` and `spare` as the caller gave them. */
typedef struct deal {
    char *from, *to;
    int64_t n, n_pieces;
    int first, last, shift; /* of the bits; of the top digit */
    int64_t *count;         /* pieces x N_TOP: then where each one writes */
    int64_t *begin;         /* N_TOP + 1 */
} deal;

/* The result is in x or y: *swapped says which. */
static void
small(pair *x, pair *y, int64_t n, int first, int last, bool *swapped)
{
    *swapped = false;
    if (n <= SHORT) {
        uint64_t mask = last - first >= 64
                            ? UINT64_MAX
                            : ((1ULL << (last - first)) - 1) << first;

        for (int64_t i = 1; i < n; i++) {
            pair e = x[i];
            int64_t j = i;

            for (; j > 0 && (x[j - 1].key & mask) > (e.key & mask); j--)
                x[j] = x[j - 1];
            x[j] = e;
        }
        return;
    }
    for (int bit = first; bit < last; bit += DIGIT) {
        uint32_t count[1 << DIGIT] = {0}, at = 0;
        uint64_t mask = last - bit < DIGIT ? (1ULL << (last - bit)) - 1
                                           : (1ULL << DIGIT) - 1;
        pair *t;

        for (int64_t i = 0; i < n; i++)
            count[x[i].key >> bit & mask]++;
        if (count[x[0].key >> bit & mask] == (uint32_t)n)
            continue;
        for (int d = 0; d < 1 << DIGIT; d++) {
            uint32_t c = count[d];

            count[d] = at;
            at += c;
        }
        for (int64_t i = 0; i < n; i++)
            y[count[x[i].key >> bit & mask]++] = x[i];
        t = x;
        x = y;
        y = t;
        *swapped = !*swapped;
    }
}

static void
deal_count(void *ctx, int64_t begin, int64_t end)
{
    const deal *d = ctx;
    const pair *x = (const pair *)(const void *)d->from;

    for (int64_t p = begin; p < end; p++) {
        int64_t *count = d->count + p * N_TOP, stop = (p + 1) * PIECE;

        memset(count, 0, N_TOP * sizeof *count);
        for (int64_t i = p * PIECE; i < stop && i < d->n; i++)
            count[x[i].key >> d->shift & (N_TOP - 1)]++;
    }
}

static void
deal_move(void *ctx, int64_t begin, int64_t end)
{
    const deal *d = ctx;
    const pair *x = (const pair *)(const void *)d->from;
    pair *y = (pair *)(void *)d->to;

    for (int64_t p = begin; p < end; p++) {
        int64_t *at = d->count + p * N_TOP, stop = (p + 1) * PIECE;

        for (int64_t i = p * PIECE; i < stop && i < d->n; i++)
            y[at[x[i].key >> d->shift & (N_TOP - 1)]++] = x[i];
    }
}

/* From `to` with `from` as the spare; every bucket ends in `to`. */
static void
buckets(void *ctx, int64_t begin, int64_t end)
{
    const deal *d = ctx;
    pair *x = (pair *)(void *)d->to, *y = (pair *)(void *)d->from;

    for (int64_t b = begin; b < end; b++) {
        int64_t at = d->begin[b], n = d->begin[b + 1] - at;
        bool swapped = false;

        if (n > 1)
            small(x + at, y + at, n, d->first, d->shift, &swapped);
        if (swapped)
            memcpy(x + at, y + at, (size_t)n * sizeof *x);
    }
}

/* The highest bit that differs, above which all keys are equal. */
static int
large(const pair *x, int64_t n, int first, int last)
{
    uint64_t differ = 0, key = x[0].key;

    for (int64_t i = 1; i < n; i++)
        differ |= x[i].key ^ key;
    if (last < 64)
        differ &= (1ULL << last) - 1;
    differ >>= first;
    return differ == 0 ? first : first + 64 - __builtin_clzll(differ);
}

/* Where each piece writes each digit: digits in order, pieces in order. */
static void
deal_places(deal *d)
{
    int64_t at = 0;

    for (int64_t b = 0; b < N_TOP; b++) {
        d->begin[b] = at;
        for (int64_t p = 0; p < d->n_pieces; p++) {
            int64_t c = d->count[p * N_TOP + b];

            d->count[p * N_TOP + b] = at;
            at += c;
        }
    }
    d->begin[N_TOP] = at;
}

/* False when there is no memory for the counts: the caller sorts without. */
static bool
deal_run(char *elems, char *spare, int64_t n, int first, int last)
{
    deal d = {.from = elems,
              .to = spare,
              .n = n,
              .n_pieces = (n - 1) / PIECE + 1,
              .first = first,
              .last = last,
              .shift = last - TOP};
    struct mr__error_stash before = mr__error_stash();

    d.count = mr__alloc_array((size_t)(d.n_pieces * N_TOP + N_TOP + 1),
                              sizeof *d.count);
    mr__error_unstash(before);
    if (!d.count)
        return false;
    d.begin = d.count + d.n_pieces * N_TOP;
    mr__cpu_for(d.n_pieces, 1, deal_count, &d);
    deal_places(&d);
    mr__cpu_for(d.n_pieces, 1, deal_move, &d);
    mr__cpu_for(N_TOP, 8, buckets, &d);
    mr__dealloc(d.count);
    return true;
}

char *
mr__radix_pairs(char *elems, char *spare, int64_t n, int first, int last)
{
    pair *x = (pair *)(void *)elems, *y = (pair *)(void *)spare;
    bool swapped;

    if (n > LARGE && last - first > 16) {
        last = large(x, n, first, last);
        if (last - first > TOP && deal_run(elems, spare, n, first, last))
            return spare;
    }
    small(x, y, n, first, last, &swapped);
    return swapped ? spare : elems;
}
