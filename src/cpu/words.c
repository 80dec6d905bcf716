/* SPDX-License-Identifier: Apache-2.0
 *
 * words.c -- sorting long arrays of signed words on the whole pool.
 *
 * A sample gives up to MAX_SPLITS pivots, all different.  Each piece of the
 * array, which fits a cache, is parted by them in place, as a quicksort would;
 * then its runs are copied to where they belong among those of the other
 * pieces, and each bucket is sorted.  No pass costs more than the quicksort's
 * own levels would have, but one copy.  Equal words cannot be told apart, so
 * neither pieces nor pivots show in the result.
 * Called by: sort.c.  Calls: kernels/sort.h.
 */
#include "cpu/words.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cpu/cpu.h"
#include "kernels/sort.h"

enum {
    LARGE = 1 << 17,
    PIECE = 1 << 16,
    BUCKET = 1 << 15, /* what a bucket should have at least */
    MAX_SPLITS = 127,
    SAMPLES = 32 /* for each bucket */
};

typedef struct split {
    const mr_sort_tier *tier;
    char *from, *to;
    int64_t n, n_pieces;
    int bytes, n_splits;
    int64_t pivot[MAX_SPLITS];
    int64_t *count;  /* pieces x (n_splits + 1): then where each one goes */
    int64_t *bucket; /* n_splits + 2: where each bucket begins */
    _Atomic bool unsorted;
} split;

static int64_t
piece_size(const split *s, int64_t piece)
{
    int64_t left = s->n - piece * PIECE;

    return left < PIECE ? left : PIECE;
}

static int64_t
word_at(const char *words, int64_t i, int bytes)
{
    int64_t wide;
    int32_t narrow;

    if (bytes == 8) {
        memcpy(&wide, words + 8 * i, sizeof wide);
        return wide;
    }
    memcpy(&narrow, words + 4 * i, sizeof narrow);
    return narrow;
}

/* Each piece with the first word of the next one. */
static void
check_piece(void *ctx, int64_t begin, int64_t end)
{
    split *s = ctx;

    for (int64_t p = begin; p < end; p++) {
        int64_t n = piece_size(s, p);

        /* relaxed: only whether any piece has set it is asked, and the loop's
         * end orders that */
        if (atomic_load_explicit(&s->unsorted, memory_order_relaxed))
            return;
        if (!s->tier->sorted(s->from + p * PIECE * s->bytes,
                             p + 1 < s->n_pieces ? n + 1 : n))
            atomic_store_explicit(&s->unsorted, true, memory_order_relaxed);
    }
}

static bool
all_sorted(split *s)
{
    atomic_init(&s->unsorted, false);
    mr__cpu_for(s->n_pieces, 1, check_piece, s);
    return !atomic_load_explicit(&s->unsorted, memory_order_relaxed);
}

/* Parts n words by the pivots [first, last); counts go to count[first] up to
 * count[last]. */
static void
part_by(const split *s, char *words, char *spare, int64_t n, int first,
        int last, int64_t *count)
{
    while (first < last) {
        int middle = first + (last - first) / 2;
        int64_t below = s->tier->part(words, spare, n, s->pivot[middle]);

        part_by(s, words, spare, below, first, middle, count);
        words += below * s->bytes;
        n -= below;
        first = middle + 1;
    }
    count[first] = n;
}

static void
part_piece(void *ctx, int64_t begin, int64_t end)
{
    const split *s = ctx;

    for (int64_t p = begin; p < end; p++)
        part_by(s, s->from + p * PIECE * s->bytes, s->to + p * PIECE * s->bytes,
                piece_size(s, p), 0, s->n_splits,
                s->count + p * (s->n_splits + 1));
}

/* The runs of a piece, each to its place. */
static void
copy_piece(void *ctx, int64_t begin, int64_t end)
{
    const split *s = ctx;
    int64_t row = s->n_splits + 1;

    for (int64_t p = begin; p < end; p++) {
        const char *from = s->from + p * PIECE * s->bytes;

        for (int64_t b = 0; b < row; b++) {
            const int64_t *at = s->count + b * s->n_pieces + p;
            size_t n = (size_t)((at[1] - at[0]) * s->bytes);

            memcpy(s->to + at[0] * s->bytes, from, n);
            from += n;
        }
    }
}

static void
sort_bucket(void *ctx, int64_t begin, int64_t end)
{
    const split *s = ctx;

    for (int64_t b = begin; b < end; b++) {
        int64_t at = s->bucket[b] * s->bytes;

        s->tier->run(s->to + at, s->from + at, s->bucket[b + 1] - s->bucket[b]);
    }
}

/* Counts of pieces, by piece, become places, by bucket; `spare` has as many. */
static void
places_of(split *s, int64_t *places)
{
    int64_t at = 0, row = s->n_splits + 1;

    for (int64_t b = 0; b < row; b++) {
        s->bucket[b] = at;
        for (int64_t p = 0; p < s->n_pieces; p++) {
            places[b * s->n_pieces + p] = at;
            at += s->count[p * row + b];
        }
    }
    places[row * s->n_pieces] = at;
    s->bucket[row] = at;
    s->count = places;
}

/* Different pivots from a sample, for which there is room, and as much again.
 */
static void
pivots_find(split *s, int64_t n_buckets, int64_t *sample)
{
    int64_t count = n_buckets * SAMPLES, step = s->n / count;
    uint32_t seed = (uint32_t)s->n;

    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525U + 1013904223U;
        sample[i] =
            word_at(s->from,
                    i * step + (int64_t)((uint64_t)seed * (uint64_t)step >> 32),
                    s->bytes);
    }
    mr__sort_of(8)->run(sample, sample + count, count);
    for (int64_t b = 1; b < n_buckets; b++) {
        int64_t pivot = sample[b * SAMPLES];

        if (s->n_splits == 0 || s->pivot[s->n_splits - 1] != pivot)
            s->pivot[s->n_splits++] = pivot;
    }
}

static int64_t *
memory_of(int64_t n_pieces, int64_t n_buckets)
{
    struct mr__error_stash before = mr__error_stash();
    int64_t counts = 2 * n_pieces * n_buckets + n_buckets + 2;
    int64_t samples = 2 * n_buckets * SAMPLES;
    int64_t *memory =
        mr__alloc_array((size_t)(counts + samples), sizeof *memory);

    mr__error_unstash(before);
    return memory;
}

char *
mr__words_sort(char *words, char *spare, int64_t n, int bytes)
{
    split s = {.tier = mr__sort_of(bytes),
               .from = words,
               .to = spare,
               .n = n,
               .n_pieces = (n - 1) / PIECE + 1,
               .bytes = bytes};
    int64_t n_buckets =
        n / BUCKET < MAX_SPLITS + 1 ? n / BUCKET : MAX_SPLITS + 1;
    int64_t *memory;

    if (n > LARGE && all_sorted(&s))
        return words;
    memory = n > LARGE ? memory_of(s.n_pieces, n_buckets) : NULL;
    /* without memory for the counts: without them */
    if (!memory) {
        s.tier->run(words, spare, n);
        return words;
    }
    s.bucket = memory;
    s.count = s.bucket + n_buckets + 2;
    pivots_find(&s, n_buckets, s.count + 2 * s.n_pieces * n_buckets);
    mr__cpu_for(s.n_pieces, 1, part_piece, &s);
    places_of(&s, s.count + s.n_pieces * n_buckets);
    mr__cpu_for(s.n_pieces, 1, copy_piece, &s);
    mr__cpu_for(s.n_splits + 1, 1, sort_bucket, &s);
    mr__dealloc(memory);
    return spare;
}
