/* SPDX-License-Identifier: Apache-2.0
 *
 * radix.h -- stable radix sorts of unsigned words.
 */
#ifndef MR_CPU_RADIX_H
#define MR_CPU_RADIX_H

#include <stdint.h>

/* Sort n elements by bits [first, last) of their key, least digit first.  An
 * element is a word of 32 or 64 bits, or a pair of 64-bit words whose first is
 * the key.  `spare` has room for as many; the result is in one of the two:
 * which one is returned.  Long arrays are sorted by the whole pool, with the
 * same result. */
char *mr__radix_32(char *elems, char *spare, int64_t n, int first, int last);
char *mr__radix_64(char *elems, char *spare, int64_t n, int first, int last);
char *mr__radix_pairs(char *elems, char *spare, int64_t n, int first, int last);

#endif
