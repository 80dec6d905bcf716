/* SPDX-License-Identifier: Apache-2.0
 *
 * random.h -- words of the random generator: Threefry-2x32, 20 rounds.
 */
#ifndef MR_KERNELS_RANDOM_H
#define MR_KERNELS_RANDOM_H

#include <stdint.h>

#include "kernels/tier/tier.h"

/* Words [first, first + count) of the stream of n_words words of the key
 * (k0, k1).  The stream depends on its whole length, so any part of it can be
 * made alone, by any thread. */
void mr__random_bits(uint32_t k0, uint32_t k1, uint64_t n_words, uint64_t first,
                     uint64_t count, uint32_t *out);
/* Memory that whoever wants the words goes over next: elements of so many bytes
 * for as many words. */
#define MR_FORESEEN 16
typedef struct mr_foreseen {
    int n;
    const char *at[MR_FORESEEN];
    int64_t size[MR_FORESEEN];
} mr_foreseen;

/* Words [first, first + count) of the stream's lower half and those as far into
 * its upper half, at the cost of one of both: a block makes one of each.  The
 * upper half begins at word n_words - n_words / 2.  Words keep the arithmetic
 * busy and the memory idle: what is foreseen (or NULL) is brought near
 * meanwhile. */
typedef void mr_random_pairs_fn(uint32_t k0, uint32_t k1, uint64_t n_words,
                                uint64_t first, uint64_t count, uint32_t *low,
                                uint32_t *high, const mr_foreseen *ahead);

/* The one of the tier in use. */
static inline mr_random_pairs_fn *
mr__random_pairs(void)
{
    return mr__tier()->random->pairs;
}

#endif
