/* SPDX-License-Identifier: Apache-2.0
 *
 * e4m3.h -- the bfloat16 numbers of E4M3 bytes, as tables for byte permutes.
 *
 * E4M3 is the 8-bit format of "FP8 Formats for Deep Learning" (Micikevicius et
 * al., 2022): sign, four bits of exponent with bias 7, three of mantissa; no
 * infinity, all ones is NaN.  Each of its numbers is one of bfloat16.
 */
#ifndef MR_KERNELS_TIER_E4M3_H
#define MR_KERNELS_TIER_E4M3_H

#include <stdint.h>

/* The bits of the bfloat16 of the seven low bits of a byte. */
#define MR_E4M3(c)                                                             \
    ((c) == 0     ? 0                                                          \
     : (c) == 127 ? 0x7fc0                                                     \
     : (c) == 1   ? 118 << 7                                                   \
     : (c) < 4    ? 119 << 7 | ((c)&1) << 6                                    \
     : (c) < 8    ? 120 << 7 | ((c)&3) << 5                                    \
                  : (((c) >> 3) + 120) << 7 | ((c)&7) << 4)
#define MR_E4M3_LOW(c)  (MR_E4M3(c) & 0xff)
#define MR_E4M3_HIGH(c) (MR_E4M3(c) >> 8)

/* f(c), f(c + 1), ... */
#define MR_BY_FOUR(f, c) f(c), f((c) + 1), f((c) + 2), f((c) + 3)
#define MR_BY_SIXTEEN(f, c)                                                    \
    MR_BY_FOUR(f, c), MR_BY_FOUR(f, (c) + 4), MR_BY_FOUR(f, (c) + 8),          \
        MR_BY_FOUR(f, (c) + 12)
#define MR_BY_32(f, c) MR_BY_SIXTEEN(f, c), MR_BY_SIXTEEN(f, (c) + 16)
#define MR_BY_64(f, c) MR_BY_32(f, c), MR_BY_32(f, (c) + 32)

/* The lower byte of each, and the upper one. */
static const uint8_t e4m3_low[128] = {MR_BY_64(MR_E4M3_LOW, 0),
                                      MR_BY_64(MR_E4M3_LOW, 64)};
static const uint8_t e4m3_high[128] = {MR_BY_64(MR_E4M3_HIGH, 0),
                                       MR_BY_64(MR_E4M3_HIGH, 64)};

#endif
