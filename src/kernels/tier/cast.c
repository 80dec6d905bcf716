/* SPDX-License-Identifier: Apache-2.0
 *
 * cast.c -- from each dtype to each other.
 *
 * Plain loops that the compiler makes vectors of: each element is read as a
 * number of its class (bool, integer, float, double, complex parts), then
 * converted.  The rules: integers wrap; floats truncate and saturate, NaN
 * gives 0; to bool everything but zero (NaN too) is true; complex drops its
 * imaginary part; floats round to nearest even.
 *
 * To halves the way is through float32.  Where float32 cannot hold the value
 * it is rounded to odd there, so that rounding once more gives what rounding
 * once would have given (S. Boldo, G. Melquiond, 2008).
 */
#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/half.h"

#define HALF_CHUNK 256

/* Bitcode has a function for each pair, with nothing left to call. */
#ifdef MR_JIT
#define CAST_FN INLINE
#else
#define CAST_FN static
#endif

/* ---- reading: value(x) is the number, truth(x) says whether it is not 0 ----
 */

typedef uint8_t t_BOOL, t_UINT8;
typedef uint16_t t_UINT16;
typedef uint32_t t_UINT32;
typedef uint64_t t_UINT64;
typedef int8_t t_INT8;
typedef int16_t t_INT16;
typedef int32_t t_INT32;
typedef int64_t t_INT64;
typedef float t_FLOAT32;
typedef double t_FLOAT64;
typedef mr_c64 t_COMPLEX64;
typedef mr_c128 t_COMPLEX128;

#define REAL_VALUE(x)    (x)
#define COMPLEX_VALUE(x) ((x).re)
#define REAL_TRUTH(x)    ((x) != 0)
#define COMPLEX_TRUTH(x) (((x).re != 0) | ((x).im != 0))
#define REAL_IMAG(x)     0
#define COMPLEX_IMAG(x)  ((x).im)

/* ---- float to integer ------------------------------------------------------
 * low is exact in the float type, and so is high + 1 = 2^bits, at and above
 * which the result is high. */
#define SATURATE(name, from, to, wide, low, high, limit)                       \
    INLINE to name(from x)                                                     \
    {                                                                          \
        from y = x > (from)(low) ? x : (from)(low);                            \
        y = x == x ? y : 0;                                                    \
        bool over = y >= (from)(limit);                                        \
        y = over ? 0 : y;                                                      \
        return over ? (to)(high) : (to)(wide)y;                                \
    }
#define SATURATE_BOTH(id, to, wide, low, high, limit)                          \
    SATURATE(f32_to_##id, float, to, wide, low, high, limit)                   \
    SATURATE(f64_to_##id, double, to, wide, low, high, limit)
SATURATE_BOTH(UINT8, uint8_t, int32_t, 0, UINT8_MAX, 0x1p8)
SATURATE_BOTH(UINT16, uint16_t, int32_t, 0, UINT16_MAX, 0x1p16)
SATURATE_BOTH(UINT32, uint32_t, uint32_t, 0, UINT32_MAX, 0x1p32)
SATURATE_BOTH(UINT64, uint64_t, uint64_t, 0, UINT64_MAX, 0x1p64)
SATURATE_BOTH(INT8, int8_t, int32_t, INT8_MIN, INT8_MAX, 0x1p7)
SATURATE_BOTH(INT16, int16_t, int32_t, INT16_MIN, INT16_MAX, 0x1p15)
SATURATE_BOTH(INT32, int32_t, int32_t, INT32_MIN, INT32_MAX, 0x1p31)
SATURATE_BOTH(INT64, int64_t, int64_t, INT64_MIN, INT64_MAX, 0x1p63)

/* ---- to float32, rounded to odd --------------------------------------------
 */

INLINE float
f64_to_odd(double x)
{
    float f = (float)x;
    uint32_t bits;
    double back = (double)f;
    bool inexact = back != x && x == x;

    memcpy(&bits, &f, sizeof bits);
    if (inexact && !(bits & 1))
        bits += (back > 0 ? back : -back) < (x > 0 ? x : -x) ? 1U : -1U;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* The bits below the 53 that a double holds are gathered in the last one. */
INLINE float
u64_to_odd(uint64_t x)
{
    if (x >> 53)
        x = (x & ~(uint64_t)0x7FF) | ((x & 0x7FF) != 0 ? 0x800U : 0U);
    return f64_to_odd((double)x);
}

INLINE float
i64_to_odd(int64_t x)
{
    float f = u64_to_odd(x < 0 ? -(uint64_t)x : (uint64_t)x);

    return x < 0 ? -f : f;
}

/* ---- the pairs --------------------------------------------------------------
 */

#define CAST(from, to, expression)                                             \
    CAST_FN void cast_##from##_##to(void *restrict out,                        \
                                    const void *restrict in, int64_t n)        \
    {                                                                          \
        t_##to *restrict o = out;                                              \
        const t_##from *restrict a = in;                                       \
                                                                               \
        for (int64_t i = 0; i < n; i++)                                        \
            o[i] = expression;                                                 \
    }

#define CAST_COMMON(from, kind)                                                \
    CAST(from, BOOL, kind##_TRUTH(a[i]))                                       \
    CAST(from, FLOAT32, (float)kind##_VALUE(a[i]))                             \
    CAST(from, FLOAT64, (double)kind##_VALUE(a[i]))                            \
    CAST(from, COMPLEX64,                                                      \
         ((mr_c64){(float)kind##_VALUE(a[i]), (float)kind##_IMAG(a[i])}))      \
    CAST(from, COMPLEX128,                                                     \
         ((mr_c128){(double)kind##_VALUE(a[i]), (double)kind##_IMAG(a[i])}))

#define INTEGERS(X, from, kind, prefix)                                        \
    X(from, UINT8, kind, prefix)                                               \
    X(from, UINT16, kind, prefix)                                              \
    X(from, UINT32, kind, prefix)                                              \
    X(from, UINT64, kind, prefix)                                              \
    X(from, INT8, kind, prefix)                                                \
    X(from, INT16, kind, prefix)                                               \
    X(from, INT32, kind, prefix)                                               \
    X(from, INT64, kind, prefix)
#define WRAP(from, to, kind, prefix) CAST(from, to, (t_##to)(a[i]))
#define CUT(from, to, kind, prefix)                                            \
    CAST(from, to, prefix##_to_##to(kind##_VALUE(a[i])))

#define CAST_INTEGER(from)                                                     \
    CAST_COMMON(from, REAL)                                                    \
    INTEGERS(WRAP, from, REAL, none)
#define CAST_FLOAT(from, kind, prefix)                                         \
    CAST_COMMON(from, kind)                                                    \
    INTEGERS(CUT, from, kind, prefix)

CAST_INTEGER(BOOL)
CAST_INTEGER(UINT8)
CAST_INTEGER(UINT16)
CAST_INTEGER(UINT32)
CAST_INTEGER(UINT64)
CAST_INTEGER(INT8)
CAST_INTEGER(INT16)
CAST_INTEGER(INT32)
CAST_INTEGER(INT64)
CAST_FLOAT(FLOAT32, REAL, f32)
CAST_FLOAT(FLOAT64, REAL, f64)
CAST_FLOAT(COMPLEX64, COMPLEX, f32)
CAST_FLOAT(COMPLEX128, COMPLEX, f64)

/* ---- halves: through a chunk of float32 -------------------------------------
 */

typedef void widen_fn(float *o, const uint16_t *a, int64_t n);
typedef void round_fn(uint16_t *o, const float *a, int64_t n);

INLINE void
widen(float *o, const uint16_t *a, int64_t n, R (*f)(HALF))
{
    HALF h = {0};

    for (; n >= N_LANES; n -= N_LANES, o += N_LANES, a += N_LANES) {
        memcpy(&h, a, sizeof h);
        v_store(o, f(h));
    }
    if (n > 0) {
        memcpy(&h, a, (size_t)n * 2);
        v_store_n(o, f(h), n);
    }
}

INLINE void
round_all(uint16_t *o, const float *a, int64_t n, HALF (*f)(R))
{
    HALF h;

    for (; n >= N_LANES; n -= N_LANES, o += N_LANES, a += N_LANES) {
        h = f(v_load(a));
        memcpy(o, &h, sizeof h);
    }
    if (n > 0) {
        h = f(v_load_n(a, n));
        memcpy(o, &h, (size_t)n * 2);
    }
}

CAST_FN void
widen_FLOAT16(float *o, const uint16_t *a, int64_t n)
{
    widen(o, a, n, f16_widen);
}

CAST_FN void
widen_BFLOAT16(float *o, const uint16_t *a, int64_t n)
{
    widen(o, a, n, bf16_widen);
}

CAST_FN void
round_FLOAT16(uint16_t *o, const float *a, int64_t n)
{
    round_all(o, a, n, f16_round);
}

CAST_FN void
round_BFLOAT16(uint16_t *o, const float *a, int64_t n)
{
    round_all(o, a, n, bf16_round);
}

#define FROM_HALF(half, to)                                                    \
    CAST_FN void cast_##half##_##to(void *out, const void *in, int64_t n)      \
    {                                                                          \
        t_##to *o = out;                                                       \
        const uint16_t *a = in;                                                \
        float x[HALF_CHUNK];                                                   \
                                                                               \
        for (int64_t i = 0, m; i < n; i += m) {                                \
            m = n - i < HALF_CHUNK ? n - i : HALF_CHUNK;                       \
            widen_##half(x, a + i, m);                                         \
            cast_FLOAT32_##to(o + i, x, m);                                    \
        }                                                                      \
    }

#define TO_HALF(from, half, expression)                                        \
    CAST_FN void cast_##from##_##half(void *out, const void *in, int64_t n)    \
    {                                                                          \
        uint16_t *o = out;                                                     \
        const t_##from *a = in;                                                \
        float x[HALF_CHUNK];                                                   \
                                                                               \
        for (int64_t i = 0, m; i < n; i += m, a += m) {                        \
            m = n - i < HALF_CHUNK ? n - i : HALF_CHUNK;                       \
            for (int64_t j = 0; j < m; j++)                                    \
                x[j] = expression;                                             \
            round_##half(o + i, x, m);                                         \
        }                                                                      \
    }

/* Beyond 2^24 to the odd one of the multiples of 512 around it, which float32
 * holds: a half's rounding cannot tell. */
INLINE float
i32_to_odd(int32_t x)
{
    int32_t odd = (x & ~511) | ((x & 511) != 0) << 9;
    bool small = (uint32_t)x + (1U << 24) < 1U << 25;

    return (float)(small ? x : odd);
}

INLINE float
u32_to_odd(uint32_t x)
{
    uint32_t odd = (x & ~511U) | (uint32_t)((x & 511) != 0) << 9;

    return (float)(x < 1U << 24 ? x : odd);
}

#define EXACT(x) ((float)(x))
#define TO_HALVES(X)                                                           \
    X(BOOL, EXACT(a[j]))                                                       \
    X(UINT8, EXACT(a[j]))                                                      \
    X(UINT16, EXACT(a[j]))                                                     \
    X(UINT32, u32_to_odd(a[j]))                                                \
    X(UINT64, u64_to_odd(a[j]))                                                \
    X(INT8, EXACT(a[j]))                                                       \
    X(INT16, EXACT(a[j]))                                                      \
    X(INT32, i32_to_odd(a[j]))                                                 \
    X(INT64, i64_to_odd(a[j]))                                                 \
    X(FLOAT64, f64_to_odd(a[j]))                                               \
    X(COMPLEX64, a[j].re)                                                      \
    X(COMPLEX128, f64_to_odd(a[j].re))
#define MR_X(from, expression)                                                 \
    TO_HALF(from, FLOAT16, expression)                                         \
    TO_HALF(from, BFLOAT16, expression)
TO_HALVES(MR_X)
#undef MR_X

#define NOT_HALVES(X, half)                                                    \
    X(half, BOOL)                                                              \
    X(half, UINT8)                                                             \
    X(half, UINT16)                                                            \
    X(half, UINT32)                                                            \
    X(half, UINT64)                                                            \
    X(half, INT8)                                                              \
    X(half, INT16)                                                             \
    X(half, INT32)                                                             \
    X(half, INT64)                                                             \
    X(half, FLOAT64)                                                           \
    X(half, COMPLEX64)                                                         \
    X(half, COMPLEX128)
NOT_HALVES(FROM_HALF, FLOAT16)
NOT_HALVES(FROM_HALF, BFLOAT16)

CAST_FN void
cast_FLOAT16_FLOAT32(void *out, const void *in, int64_t n)
{
    widen_FLOAT16(out, in, n);
}

CAST_FN void
cast_BFLOAT16_FLOAT32(void *out, const void *in, int64_t n)
{
    widen_BFLOAT16(out, in, n);
}

CAST_FN void
cast_FLOAT32_FLOAT16(void *out, const void *in, int64_t n)
{
    round_FLOAT16(out, in, n);
}

CAST_FN void
cast_FLOAT32_BFLOAT16(void *out, const void *in, int64_t n)
{
    round_BFLOAT16(out, in, n);
}

CAST_FN void
cast_FLOAT16_BFLOAT16(void *out, const void *in, int64_t n)
{
    uint16_t *o = out;
    const uint16_t *a = in;
    float x[HALF_CHUNK];

    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < HALF_CHUNK ? n - i : HALF_CHUNK;
        widen_FLOAT16(x, a + i, m);
        round_BFLOAT16(o + i, x, m);
    }
}

CAST_FN void
cast_BFLOAT16_FLOAT16(void *out, const void *in, int64_t n)
{
    uint16_t *o = out;
    const uint16_t *a = in;
    float x[HALF_CHUNK];

    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < HALF_CHUNK ? n - i : HALF_CHUNK;
        widen_BFLOAT16(x, a + i, m);
        round_FLOAT16(o + i, x, m);
    }
}

CAST_FN void
copy_halves(void *out, const void *in, int64_t n)
{
    memcpy(out, in, (size_t)n * 2);
}

#define cast_FLOAT16_FLOAT16   copy_halves
#define cast_BFLOAT16_BFLOAT16 copy_halves

#ifdef MR_JIT
#include "kernels/tier/jit_cast.h"
#else

/* ---- the table
 * ----------------------------------------------------------------- */

#define ENTRY(from, to) [MR_##to] = cast_##from##_##to,
#define ROW(from)                                                              \
    [MR_##from] = {NOT_HALVES(ENTRY, from) ENTRY(from, FLOAT32)                \
                       ENTRY(from, FLOAT16) ENTRY(from, BFLOAT16)},

const mr_tier_casts MR_TIER_SYM(mr__tier_casts) = {
    .cast = {ROW(BOOL) ROW(UINT8) ROW(UINT16) ROW(UINT32) ROW(UINT64) ROW(INT8)
                 ROW(INT16) ROW(INT32) ROW(INT64) ROW(FLOAT16) ROW(BFLOAT16)
                     ROW(FLOAT32) ROW(FLOAT64) ROW(COMPLEX64) ROW(COMPLEX128)}};

#endif
