/* SPDX-License-Identifier: Apache-2.0
 *
 * float8.h -- E4M3, the 8-bit float of the OCP 8-bit Floating Point
 * Specification, version 1.0: sign, four bits of exponent (bias 7), three of
 * fraction; no infinities, 0x7f and 0xff are NaN, the largest is 448.
 */
#ifndef MR_BASE_FLOAT8_H
#define MR_BASE_FLOAT8_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define MR_E4M3_LARGEST 448.0F

/* The bits below the sign, moved to the place of a float's exponent and
 * fraction, are the magnitude times 2^-120, subnormal ones too. */
static inline float
mr__e4m3_to_float(uint8_t x)
{
    uint32_t sign = (uint32_t)(x & 0x80) << 24;
    uint32_t bits = (uint32_t)(x & 0x7f) << 20;
    float y;

    if ((x & 0x7f) == 0x7f) {
        bits = 0x7fc00000;
    } else {
        memcpy(&y, &bits, sizeof y);
        y *= 0x1p120F;
        memcpy(&bits, &y, sizeof bits);
    }
    bits |= sign;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* Rounded half to even; what is beyond the largest, infinite or NaN becomes
 * the largest with its sign. */
static inline uint8_t
mr__e4m3_from_float(float x)
{
    uint32_t bits, sign;
    float a = fabsf(x);

    memcpy(&bits, &x, sizeof bits);
    sign = bits >> 24 & 0x80;
    if (!(a < MR_E4M3_LARGEST))
        return (uint8_t)(sign | 0x7e);
    if (a < 0x1p-6F) /* steps of 2^-9; 8 of them are the first normal number */
        return (uint8_t)(sign | (uint32_t)rintf(a * 0x1p9F));
    memcpy(&bits, &a, sizeof bits);
    bits += 0x7ffff + (bits >> 20 & 1);
    return (uint8_t)(sign | ((bits >> 20) - (120 << 3)));
}

#endif
