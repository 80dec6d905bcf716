/* SPDX-License-Identifier: Apache-2.0
 *
 * number.c -- single elements as numbers.
 *
 * A double or a large integer becomes a half through a float rounded to odd:
 * the bits that are lost are gathered in the last one, so that the second
 * rounding sees whether something was there, and the whole rounds as if once.
 * Called by: graph/ (scalars, copying out, text).  Calls: nothing.
 */
#include "array/number.h"

#include <math.h>
#include <string.h>

#include "array/dtype.h"

/* ---- halves ------------------------------------------------------------- */

static float
float_of(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t
bits_of(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float
mr__bf16_to_f32(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

float
mr__f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    float small;

    if (exponent == 31)
        return float_of(sign | 0x7f800000 | fraction << 13);
    if (exponent > 0)
        return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    small = (float)fraction * 0x1p-24F;
    return sign ? -small : small;
}

/* Half to even: add half of what is cut off, less one unless the last kept bit
 * is odd. */
static uint32_t
shift_even(uint32_t x, int shift)
{
    return (x + ((1U << (shift - 1)) - 1) + (x >> shift & 1)) >> shift;
}

static uint16_t
f32_to_bf16(float f)
{
    uint32_t bits = bits_of(f);

    if (isnan(f))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)shift_even(bits, 16);
}

static uint16_t
f32_to_f16(float f)
{
    uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    int exponent = (int)(magnitude >> 23) - 127;

    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (exponent > 15)
        return (uint16_t)(sign | 0x7c00);
    if (exponent >= -14)
        return (uint16_t)(sign | shift_even(magnitude - (112U << 23), 13));
    if (exponent < -25)
        return (uint16_t)sign;
    magnitude = (magnitude & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | shift_even(magnitude, -1 - exponent));
}

static float
f64_to_odd(double x)
{
    float f = (float)x;
    uint32_t bits = bits_of(f);

    if (isnan(x) || isinf(x) || (double)f == x)
        return f;
    /* towards zero, then the last bit set */
    if (fabs((double)f) > fabs(x))
        bits--;
    return float_of(bits | 1);
}

/* ---- integers ----------------------------------------------------------- */

/* A double that differs from x only below its last bit, which is then 1. */
static double
u64_to_odd(uint64_t x)
{
    if (x >> 53 == 0)
        return (double)x;
    return (double)(x >> 11 | ((x & 0x7ff) != 0)) * 2048.0;
}

static double
i64_to_odd(int64_t x)
{
    return x < 0 ? -u64_to_odd(0 - (uint64_t)x) : u64_to_odd((uint64_t)x);
}

static int64_t
saturate_i64(double x, int64_t low, int64_t high)
{
    if (isnan(x))
        return 0;
    if (x <= (double)low)
        return low;
    return x >= (double)high ? high : (int64_t)x;
}

static uint64_t
saturate_u64(double x, uint64_t high)
{
    if (!(x > 0))
        return 0;
    return x >= (double)high ? high : (uint64_t)x;
}

/* ---- reading ------------------------------------------------------------ */

static mr_scalar
of_int(int64_t i)
{
    return (mr_scalar){MR_SCALAR_INT, {.i = i}};
}

static mr_scalar
of_float(double f)
{
    return (mr_scalar){MR_SCALAR_FLOAT, {.f = f}};
}

static mr_scalar
read_integer(mr_dtype t, const void *at)
{
    bool is_signed = mr__dtype_kind(t) == MR_KIND_INT;
    uint64_t wide = 0;
    int shift = 64 - 8 * (int)mr__dtype_bytes[t];

    /* little-endian: the low bytes come first */
    memcpy(&wide, at, mr__dtype_bytes[t]);
    if (t == MR_UINT64 && wide > INT64_MAX)
        return (mr_scalar){MR_SCALAR_UINT, {.u = wide}};
    return of_int(is_signed ? (int64_t)(wide << shift) >> shift
                            : (int64_t)wide);
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "integers are read and written by their low bytes");

static mr_scalar
read_inexact(mr_dtype t, const void *at)
{
    mr_scalar c = {.kind = MR_SCALAR_COMPLEX};
    uint16_t half;
    mr_c64 c64;
    double d;
    float f;

    if (t == MR_FLOAT32) {
        memcpy(&f, at, sizeof f);
        return of_float((double)f);
    }
    if (t == MR_FLOAT64) {
        memcpy(&d, at, sizeof d);
        return of_float(d);
    }
    if (t == MR_FLOAT16 || t == MR_BFLOAT16) {
        memcpy(&half, at, sizeof half);
        return of_float((double)(t == MR_FLOAT16 ? mr__f16_to_f32(half)
                                                 : mr__bf16_to_f32(half)));
    }
    if (t == MR_COMPLEX128) {
        memcpy(&c.as.c, at, sizeof c.as.c);
        return c;
    }
    memcpy(&c64, at, sizeof c64);
    c.as.c = (mr_c128){(double)c64.re, (double)c64.im};
    return c;
}

mr_scalar
mr__number_read(mr_dtype t, const void *at)
{
    if (t == MR_BOOL) {
        unsigned char b;

        memcpy(&b, at, 1);
        return (mr_scalar){MR_SCALAR_BOOL, {.b = b != 0}};
    }
    return mr__dtype_is_inexact(t) ? read_inexact(t, at) : read_integer(t, at);
}

/* ---- converting --------------------------------------------------------- */

double
mr__number_to_f64(mr_scalar v)
{
    switch (v.kind) {
    case MR_SCALAR_BOOL:
        return v.as.b ? 1.0 : 0.0;
    case MR_SCALAR_INT:
        return (double)v.as.i;
    case MR_SCALAR_UINT:
        return (double)v.as.u;
    case MR_SCALAR_FLOAT:
        return v.as.f;
    case MR_SCALAR_COMPLEX:
        return v.as.c.re;
    }
    return 0.0;
}

float
mr__number_to_f32(mr_scalar v)
{
    if (v.kind == MR_SCALAR_INT)
        return (float)v.as.i;
    if (v.kind == MR_SCALAR_UINT)
        return (float)v.as.u;
    return (float)mr__number_to_f64(v);
}

int64_t
mr__number_to_i64(mr_scalar v)
{
    if (v.kind == MR_SCALAR_INT)
        return v.as.i;
    if (v.kind == MR_SCALAR_UINT)
        return (int64_t)v.as.u;
    return saturate_i64(mr__number_to_f64(v), INT64_MIN, INT64_MAX);
}

/* Of what a half is made: a float that rounds to the right one. */
static float
to_half_source(mr_scalar v)
{
    if (v.kind == MR_SCALAR_INT)
        return f64_to_odd(i64_to_odd(v.as.i));
    if (v.kind == MR_SCALAR_UINT)
        return f64_to_odd(u64_to_odd(v.as.u));
    return f64_to_odd(mr__number_to_f64(v));
}

static bool
is_true(mr_scalar v)
{
    switch (v.kind) {
    case MR_SCALAR_BOOL:
        return v.as.b;
    case MR_SCALAR_INT:
        return v.as.i != 0;
    case MR_SCALAR_UINT:
        return v.as.u != 0;
    case MR_SCALAR_FLOAT:
        return v.as.f != 0.0;
    case MR_SCALAR_COMPLEX:
        return v.as.c.re != 0.0 || v.as.c.im != 0.0;
    }
    return false;
}

/* ---- writing ------------------------------------------------------------ */

static uint64_t
integer_bits(mr_dtype t, mr_scalar v)
{
    int bits = 8 * (int)mr__dtype_bytes[t];
    double f;

    if (v.kind == MR_SCALAR_BOOL)
        return v.as.b;
    if (v.kind == MR_SCALAR_INT || v.kind == MR_SCALAR_UINT)
        return v.kind == MR_SCALAR_INT ? (uint64_t)v.as.i : v.as.u;
    f = mr__number_to_f64(v);
    if (mr__dtype_kind(t) == MR_KIND_UINT)
        return saturate_u64(f, UINT64_MAX >> (64 - bits));
    return (uint64_t)saturate_i64(f, INT64_MIN >> (64 - bits),
                                  INT64_MAX >> (64 - bits));
}

static void
write_inexact(mr_dtype t, void *at, mr_scalar v)
{
    float f = mr__number_to_f32(v);
    double d = mr__number_to_f64(v);
    double im = v.kind == MR_SCALAR_COMPLEX ? v.as.c.im : 0.0;
    mr_c64 c64 = {f, (float)im};
    mr_c128 c128 = {d, im};
    uint16_t half;

    if (t == MR_FLOAT32) {
        memcpy(at, &f, sizeof f);
    } else if (t == MR_FLOAT64) {
        memcpy(at, &d, sizeof d);
    } else if (t == MR_COMPLEX64) {
        memcpy(at, &c64, sizeof c64);
    } else if (t == MR_COMPLEX128) {
        memcpy(at, &c128, sizeof c128);
    } else {
        f = to_half_source(v);
        half = t == MR_FLOAT16 ? f32_to_f16(f) : f32_to_bf16(f);
        memcpy(at, &half, sizeof half);
    }
}

void
mr__number_write(mr_dtype t, void *at, mr_scalar v)
{
    uint64_t bits;

    if (mr__dtype_is_inexact(t)) {
        write_inexact(t, at, v);
        return;
    }
    bits = t == MR_BOOL ? is_true(v) : integer_bits(t, v);
    memcpy(at, &bits, mr__dtype_bytes[t]);
}
