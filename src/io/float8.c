/* SPDX-License-Identifier: Apache-2.0
 *
 * float8.c -- the 8-bit floats of files (OCP 8-bit Floating Point
 * Specification and Microscaling Formats, version 1.0), widened.
 *
 * E4M3: bias 7, no infinities, 0x7f and 0xff are NaN.  float16 has bias 15 and
 * ten bits of fraction, so normal numbers move by 8 in the exponent and 7 in
 * the fraction, and subnormal ones become normal.
 * E5M2 is the upper half of a float16.
 * E8M0: 2^(e - 127), 255 is NaN.  bfloat16 has the same bias; e = 0 is its
 * subnormal 2^-127.
 *
 * Called by: safetensors.c.
 */
#include "io/float8.h"

static uint16_t
e4m3_to_float16(uint8_t x)
{
    uint16_t sign = (uint16_t)((x & 0x80) << 8);
    unsigned exponent = x >> 3 & 15, fraction = x & 7;

    if (exponent == 15 && fraction == 7)
        return sign | 0x7e00;
    if (exponent == 0) {
        if (fraction == 0)
            return sign;
        /* fraction * 2^-9: shift until the leading bit is the hidden one. */
        for (exponent = 1; !(fraction & 8); exponent--)
            fraction <<= 1;
        return (uint16_t)(sign | (exponent + 8) << 10 | (fraction & 7) << 7);
    }
    return (uint16_t)(sign | (exponent + 8) << 10 | fraction << 7);
}

void
mr__float16_from_e4m3(void *out, const uint8_t *in, size_t n)
{
    uint16_t *to = out;

    for (size_t i = 0; i < n; i++)
        to[i] = e4m3_to_float16(in[i]);
}

void
mr__float16_from_e5m2(void *out, const uint8_t *in, size_t n)
{
    uint16_t *to = out;

    for (size_t i = 0; i < n; i++)
        to[i] = (uint16_t)(in[i] << 8);
}

void
mr__bfloat16_from_e8m0(void *out, const uint8_t *in, size_t n)
{
    uint16_t *to = out;

    for (size_t i = 0; i < n; i++)
        to[i] = in[i] == 255 ? 0x7fc0
                : in[i] == 0 ? 0x0040
                             : (uint16_t)(in[i] << 7);
}
