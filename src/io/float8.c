/* SPDX-License-Identifier: Apache-2.0
 *
 * float8.c -- the 8-bit floats of files (OCP 8-bit Floating Point
 * Specification and Microscaling Formats, version 1.0), widened.
 *
 * E4M3: base/float8.h decodes it to a float, whose upper bits with another
 * bias are the float16.
 * E5M2 is the upper half of a float16.
 * E8M0: 2^(e - 127), 255 is NaN.  bfloat16 has the same bias; e = 0 is its
 * subnormal 2^-127.
 *
 * Called by: safetensors.c.  Calls: base/float8.h.
 */
#include "io/float8.h"

#include <string.h>

#include "base/float8.h"

/* Exact: every value is a normal number of a float16, or 0. */
static uint16_t
e4m3_to_float16(uint8_t x)
{
    float y = mr__e4m3_to_float(x);
    uint16_t sign = (uint16_t)((x & 0x80) << 8);
    uint32_t bits;

    if ((x & 0x7f) == 0x7f)
        return sign | 0x7e00;
    if ((x & 0x7f) == 0)
        return sign;
    memcpy(&bits, &y, sizeof bits);
    return (uint16_t)(sign | (((bits & 0x7fffffff) >> 13) - (112 << 10)));
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
