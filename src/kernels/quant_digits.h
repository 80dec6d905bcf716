/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_digits.h -- one or two rows times packed rows in integers, for x86
 * processors whose vpdpbusd multiplies 64 bytes at once (AVX512-VNNI), and of
 * elements of 4 bits for those with AVX2.
 *
 * Codes are bytes.  The numbers of x that share a group are integers of 31 bits
 * times one power of two, 2^-29 of that of the largest; four digits of 8 bits,
 * from -128 to 127, are an integer.  Sums of codes times digits are exact, and
 * are scaled once a group.  So an x is off by 2^-30 of the largest of its group
 * at most, and not at all from 2^-6 of that on (halves: from 2^-19 and 2^-22
 * on); a sum's own rounding is 2^-24 of its parts.  Rows that have a group in
 * which more than an eighth of the numbers, 0 apart, are less than 2^-10 of the
 * largest and off are not taken (mr__quant_digits_arrange).
 */
#ifndef MR_KERNELS_QUANT_DIGITS_H
#define MR_KERNELS_QUANT_DIGITS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/quant.h"

/* Rows of x that meet a row of w together. */
#define MR_QUANT_DIGITS_ROWS 2

/* Are few rows times rows of this format faster so? */
bool mr__quant_digits_pay(const mr_quant_format *f);
/* Floats up to where the digits of code k, which begins a span, lie; of all
 * where k is the number of codes. */
int64_t mr__quant_digits_floats(const mr_quant_format *f, int64_t k);
/* x as digits; false: it must not be. */
bool mr__quant_digits_arrange(const mr_quant_format *f, int64_t cols,
                              const float *x, float *to);
/* Can n scales of a span be left bytes? */
bool mr__quant_digits_bytes(const mr_quant_format *f, const uint8_t *from,
                            int64_t n);
/* By 1 and 2 rows. */
mr_quant_dot_fn *const *mr__quant_digits_dot(const mr_quant_format *f);

/* ---- what a tier gives (tier/quant_digits.c) ------------------------------
 * All NULL where a tier has none, or none for a kind. */
typedef struct mr_quant_digits {
    /* codes of a block, and the floats of its x */
    int32_t codes[MR_N_QUANT_KINDS], floats[MR_N_QUANT_KINDS];
    bool (*arrange)(mr_quant_kind kind, int group, int64_t cols, const float *x,
                    float *to);
    bool (*bytes_fit)(mr_quant_scale kind, const uint8_t *from, int64_t n);
    mr_quant_dot_fn *dot[MR_N_QUANT_KINDS][MR_QUANT_DIGITS_ROWS];
} mr_quant_digits;

#define MR_X(id, name) extern const mr_quant_digits mr__quant_digits_##name;
MR_TIERS(MR_X)
#undef MR_X

#endif
