/* SPDX-License-Identifier: Apache-2.0
 *
 * sort.h -- sorting of signed words of 32 and 64 bits, and values as such
 * words.
 *
 * A key is a signed word whose order is that of the value: NaN last (all bits
 * but the sign), -0 before +0 or, where wanted, equal to it.  Equal keys cannot
 * be told apart, so the result of a sort depends on no algorithm, tier or
 * thread; what must be stable carries its place in the low bits of its key.
 */
#ifndef MR_KERNELS_SORT_H
#define MR_KERNELS_SORT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tier/tier.h"

#include "marram/types.h"

/* What values of a dtype are: floats (the bits of infinity), signed, unsigned
 * numbers. */
typedef enum mr_key_kind {
    MR_KEY_FLOAT,
    MR_KEY_SIGNED,
    MR_KEY_UNSIGNED,
} mr_key_kind;

typedef struct mr_key_form {
    mr_key_kind kind;
    int32_t bits; /* 8, 16, 32: keys of 32 bits; 64: of 64 */
    uint64_t infinity;
} mr_key_form;

/* Columns of a panel: at most this many rows. */
#define MR_SORT_ROWS 16

/* Where the places of words go: of those below a key, equal to it (but the
 * first `skip`), above it; low may be NULL: those are left out. */
typedef struct mr_sort_deal {
    uint32_t *low, *equal, *high;
    int64_t skip;
} mr_sort_deal;

/* Words of one width. */
typedef struct mr_sort_tier {
    /* Ascending; spare has room for as many words. */
    void (*run)(void *words, void *spare, int64_t n);
    bool (*sorted)(const void *words, int64_t n);
    /* Those below the pivot come first: how many there are. */
    int64_t (*part)(void *words, void *spare, int64_t n, int64_t pivot);
    /* The word of that rank, which is what would be there after a sort; the
     * words are moved about. */
    int64_t (*select)(void *words, void *spare, int64_t n, int64_t rank);
    /* Those neither below `low` nor above `high`, in order, go to `to`, which
     * has room for n: how many they are, and how many are below. */
    int64_t (*between)(void *to, const void *words, int64_t n, int64_t low,
                       int64_t high, int64_t *below);
    /* How many are below the key, and equal to it. */
    void (*rank)(const void *words, int64_t n, int64_t key, int64_t count[2]);
    /* Places first, first + 1, ... in order; d moves on. */
    void (*deal)(mr_sort_deal *d, const void *words, int64_t n, int64_t key,
                 uint32_t first);
    /* Sorts each column of a panel of n <= MR_SORT_ROWS rows that are `width`
     * words long, `width` a multiple of 16. */
    void (*columns)(void *words, int64_t n, int64_t width);
    /* n adjacent values to keys and back, also in place where they are as
     * wide. */
    void (*keys)(void *to, const void *from, int64_t n, mr_key_form f,
                 bool zeros_equal);
    void (*values)(void *to, const void *from, int64_t n, mr_key_form f);
    /* word i = keys[i] shifted by `bits`, first + i * step below; and what is
     * there (bits below the width of a word). */
    void (*pack)(void *to, const int32_t *keys, int64_t n, int bits,
                 int64_t first, int64_t step);
    void (*places)(uint32_t *to, const void *words, int64_t n, int bits);
} mr_sort_tier;

#define MR_X(id, name)                                                         \
    extern const mr_sort_tier mr__sort32_tier_##name, mr__sort64_tier_##name;
MR_TIERS(MR_X)
#undef MR_X

/* Of one tier, NULL where this machine cannot run it. */
static inline const mr_sort_tier *
mr__sort_of_tier(int id, int bytes)
{
    return mr__tier_or_none(id)->sort[bytes == 8];
}

/* Of the tier in use, for words of 4 and 8 bytes. */
static inline const mr_sort_tier *
mr__sort_of(int bytes)
{
    return mr__tier()->sort[bytes == 8];
}

/* How a real dtype's keys are made. */
mr_key_form mr__key_form(mr_dtype t);

#endif
