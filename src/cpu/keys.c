/* SPDX-License-Identifier: Apache-2.0
 *
 * keys.c -- elements as unsigned numbers of the same order: NaN last, all NaNs
 * equal.
 *
 * Called by: sort.c, search.c, partition.c.
 */
#include "cpu/keys.h"

#include <stdbool.h>
#include <string.h>

#include "array/dtype.h"

/* Bits of a float of that many bits to a key: the sign decides which way. */
static inline uint64_t
float_key(uint64_t x, int bits, uint64_t infinity, bool zeros_equal)
{
    uint64_t sign = 1ULL << (bits - 1), all = sign | (sign - 1);

    if ((x & ~sign) > infinity)
        return all;
    if (zeros_equal && x == sign)
        x = 0;
    return x & sign ? x ^ all : x ^ sign;
}

static inline uint32_t
load32(const void *p, int64_t i)
{
    uint32_t x;

    memcpy(&x, (const char *)p + 4 * i, sizeof x);
    return x;
}

static inline uint64_t
load64(const void *p, int64_t i)
{
    uint64_t x;

    memcpy(&x, (const char *)p + 8 * i, sizeof x);
    return x;
}

#define INF16  0x7C00U
#define INFB16 0x7F80U
#define INF32  0x7F800000U
#define INF64  0x7FF0000000000000ULL

/* The key of element i of x; `part` 1 is the imaginary part of complex128. */
static inline uint64_t
key_of(mr_dtype t, const void *x, int64_t i, bool equal, int part)
{
    switch (t) {
    case MR_BOOL:
    case MR_UINT8:
        return ((const uint8_t *)x)[i];
    case MR_UINT16:
        return ((const uint16_t *)x)[i];
    case MR_UINT32:
        return load32(x, i);
    case MR_UINT64:
        return load64(x, i);
    case MR_INT8:
        return ((const uint8_t *)x)[i] ^ 0x80U;
    case MR_INT16:
        return ((const uint16_t *)x)[i] ^ 0x8000U;
    case MR_INT32:
        return load32(x, i) ^ 0x80000000U;
    case MR_INT64:
        return load64(x, i) ^ 0x8000000000000000ULL;
    case MR_FLOAT16:
        return float_key(((const uint16_t *)x)[i], 16, INF16, equal);
    case MR_BFLOAT16:
        return float_key(((const uint16_t *)x)[i], 16, INFB16, equal);
    case MR_FLOAT32:
        return float_key(load32(x, i), 32, INF32, equal);
    case MR_FLOAT64:
        return float_key(load64(x, i), 64, INF64, equal);
    case MR_COMPLEX64:
        return float_key(load32(x, 2 * i), 32, INF32, equal) << 32 |
               float_key(load32(x, 2 * i + 1), 32, INF32, equal);
    case MR_COMPLEX128:
        return float_key(load64(x, 2 * i + part), 64, INF64, equal);
    }
    return 0;
}

int
mr__key_bits(mr_dtype t)
{
    return t == MR_COMPLEX128 ? 0 : (int)mr__dtype_size(t) * 8;
}

#define KEYS(type)                                                             \
    for (int64_t i = 0; i < n; i++)                                            \
    to[i] = key_of(type, x, i * step, true, 0)

/* A loop for each of the most frequent dtypes, where it is a constant. */
void
mr__keys(mr_dtype t, const void *x, int64_t step, int64_t n, uint64_t *to)
{
    if (t == MR_FLOAT32)
        KEYS(MR_FLOAT32);
    else if (t == MR_FLOAT64)
        KEYS(MR_FLOAT64);
    else if (t == MR_INT32)
        KEYS(MR_INT32);
    else if (t == MR_INT64)
        KEYS(MR_INT64);
    else
        KEYS(t);
}

uint64_t
mr__key_at(mr_dtype t, const void *x, int64_t i, int part)
{
    return key_of(t, x, i, true, part);
}
