/* SPDX-License-Identifier: Apache-2.0
 *
 * radix.h -- a stable radix sort of pairs of 64-bit words.
 */
#ifndef MR_CPU_RADIX_H
#define MR_CPU_RADIX_H

#include <stdint.h>

/* Sorts n pairs by bits [first, last) of their first word, least digit first.
 * `spare` has room for as many; the result is in one of the two: which one is
 * returned.  Long arrays are sorted by the whole pool, with the same result. */
char *mr__radix_pairs(char *elems, char *spare, int64_t n, int first, int last);

#endif
