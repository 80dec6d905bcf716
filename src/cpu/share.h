/* SPDX-License-Identifier: Apache-2.0
 *
 * share.h -- large memory that cores read again and again from the third-level
 * cache.
 *
 * What one core alone reads, that cache of Intel's servers hands over: the line
 * moves to the core's second level, and back when it is evicted, so two cores
 * of a Xeon read 60 GB/s.  A line that two cores had at the same time stays,
 * and is dropped without a word: 90 GB/s.  It remains so until it is written or
 * leaves for memory.  So loops that read 16 MB or more take their units in
 * order (mr__cpu_units, not mr__cpu_for, whose threads begin at both ends), and
 * who takes one asks for a small slice of the one beside it, which another core
 * reads in this moment; call by call another slice, until all lines are known
 * to two.  That is 1.6 % more to read.  4096^2 float32 times a row on two
 * threads, milliseconds: 1.18, so 0.83 (PyTorch 1.07).  What comes from memory
 * (128 MB) gains up to 7 % when it is alone and loses as much beside others.
 */
#ifndef MR_CPU_SHARE_H
#define MR_CPU_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* Is this such a processor, is it worth it for so much memory, and are there
 * threads to share with? */
bool mr__share_pays(int64_t bytes);
/* Which slice it is in this call. */
int64_t mr__share_slice(void);
/* Asks for the slice of n rows of `bytes` each, `apart` bytes from row to row:
 * some of the rows, or a piece of each where they are few. */
void mr__share_rows(int64_t slice, const void *from, int64_t n, int64_t bytes,
                    int64_t apart);

#endif
