/* SPDX-License-Identifier: Apache-2.0
 *
 * words.h -- sorting long arrays of signed words on the whole pool.
 */
#ifndef MR_CPU_WORDS_H
#define MR_CPU_WORDS_H

#include <stdint.h>

/* Sorts n words of 4 or 8 bytes, ascending.  `spare` has room for as many; the
 * result is in one of the two: which one is returned. */
char *mr__words_sort(char *words, char *spare, int64_t n, int bytes);

#endif
