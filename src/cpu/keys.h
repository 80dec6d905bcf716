/* SPDX-License-Identifier: Apache-2.0
 *
 * keys.h -- elements as unsigned numbers of the same order.
 */
#ifndef MR_CPU_KEYS_H
#define MR_CPU_KEYS_H

#include <stdint.h>

#include "marram/types.h"

/* Bits of a key; 0: this dtype's do not fit one word. */
int mr__key_bits(mr_dtype t);
/* The key of element i, where -0 and +0 are equal; `part` 1: of a complex128's
 * imaginary part. */
uint64_t mr__key_at(mr_dtype t, const void *x, int64_t i, int part);
/* n keys of elements `step` apart; -0 and +0 are equal. */
void mr__keys(mr_dtype t, const void *x, int64_t step, int64_t n, uint64_t *to);

#endif
