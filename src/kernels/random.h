/* SPDX-License-Identifier: Apache-2.0
 *
 * random.h -- words of the random generator: Threefry-2x32, 20 rounds.
 */
#ifndef MR_KERNELS_RANDOM_H
#define MR_KERNELS_RANDOM_H

#include <stdint.h>

/* Words [first, first + count) of the stream of n_words words of the key
 * (k0, k1).  The stream depends on its whole length, so any part of it can be
 * made alone, by any thread. */
void mr__random_bits(uint32_t k0, uint32_t k1, uint64_t n_words, uint64_t first,
                     uint64_t count, uint32_t *out);

#endif
