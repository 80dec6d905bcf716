/* SPDX-License-Identifier: Apache-2.0
 *
 * lanes.h -- the vector dialect: vectors of one real lane type.
 *
 * The including file says which lane: MR_LANE_BITS (8, 16, 32, 64) and one of
 * MR_LANE_FLOAT, MR_LANE_SIGNED, MR_LANE_UNSIGNED set to 1.  Given are
 *
 *   R  a vector of lanes          M  a mask: all bits of a lane, or none
 *   U  the same bits, unsigned    B  one byte for each lane (a bool)
 *
 * with the arithmetic operators on R and the functions below (v_ on R, m_ on
 * M, b_ on B).  Everything that computes is written in terms of these, so
 * another meaning of the dialect (LLVM bitcode, a GPU's scalars) needs only
 * another file like this one.  Every tier gives equal bits, except that
 * baseline has no fused multiply-add and other SLEEF functions.
 */
#ifndef MR_KERNELS_TIER_LANES_H
#define MR_KERNELS_TIER_LANES_H

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include <string.h>

#include "kernels/tier/tier.h"

#ifndef MR_LANE_FLOAT
#define MR_LANE_FLOAT 0
#endif
#ifndef MR_LANE_SIGNED
#define MR_LANE_SIGNED 0
#endif
#ifndef MR_LANE_UNSIGNED
#define MR_LANE_UNSIGNED 0
#endif

/* MR_JIT (jit.h): as many points for each dtype, so narrow lanes have short
 * vectors, and only Clang compiles this. */
#if defined(MR_JIT) && MR_LANE_BITS < 64
#define VEC_BYTES (MR_JIT_POINTS * MR_LANE_BITS / 8)
#elif MR_TIER_ID == MR_TIER_AVX512
#define VEC_BYTES 64
#elif MR_TIER_ID == MR_TIER_AVX2
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif
#define N_LANES (VEC_BYTES * 8 / MR_LANE_BITS)

#define INLINE static inline __attribute__((always_inline, unused))

#if MR_LANE_BITS == 8
typedef int8_t signed_lane;
typedef uint8_t unsigned_lane;
#elif MR_LANE_BITS == 16
typedef int16_t signed_lane;
typedef uint16_t unsigned_lane;
#elif MR_LANE_BITS == 32
typedef int32_t signed_lane;
typedef uint32_t unsigned_lane;
#else
typedef int64_t signed_lane;
typedef uint64_t unsigned_lane;
#endif

#if MR_LANE_FLOAT && MR_LANE_BITS == 32
typedef float lane;
#elif MR_LANE_FLOAT
typedef double lane;
#elif MR_LANE_SIGNED
typedef signed_lane lane;
#else
typedef unsigned_lane lane;
#endif

typedef lane R __attribute__((vector_size(VEC_BYTES)));
typedef signed_lane M __attribute__((vector_size(VEC_BYTES)));
typedef unsigned_lane U __attribute__((vector_size(VEC_BYTES)));
typedef int8_t B __attribute__((vector_size(N_LANES)));

/* ---- constants, bits, masks ---------------------------------------------- */

INLINE R
v_set(lane x)
{
    return x - (R){0}; /* exact for every x, -0 and NaN included */
}

/* A constant of the formula, in the lane's type. */
#define C(x) v_set((lane)(x))

INLINE U
v_bits(R x)
{
    return (U)x;
}

INLINE R
v_from_bits(U x)
{
    return (R)x;
}

INLINE U
u_set(unsigned_lane x)
{
    return x - (U){0};
}

INLINE R
v_select(M m, R a, R b)
{
    return (R)(((U)m & (U)a) | (~(U)m & (U)b));
}

INLINE M
v_lt(R a, R b)
{
    return (M)(a < b);
}

INLINE M
v_le(R a, R b)
{
    return (M)(a <= b);
}

INLINE M
v_eq(R a, R b)
{
    return (M)(a == b);
}

INLINE M
v_ne(R a, R b)
{
    return (M)(a != b);
}

INLINE M
m_set(bool x)
{
    return (M)u_set(x ? (unsigned_lane)-1 : 0);
}

INLINE M
m_and(M a, M b)
{
    return a & b;
}

INLINE M
m_or(M a, M b)
{
    return a | b;
}

INLINE M
m_xor(M a, M b)
{
    return a ^ b;
}

INLINE M
m_not(M a)
{
    return ~a;
}

INLINE bool
m_any(M m)
{
#if defined(MR_JIT)
    return __builtin_reduce_or(m) != 0;
#elif MR_TIER_ID == MR_TIER_AVX512
    return _mm512_test_epi32_mask((__m512i)m, (__m512i)m) != 0;
#elif MR_TIER_ID == MR_TIER_AVX2
    return !_mm256_testz_si256((__m256i)m, (__m256i)m);
#else
    uint64_t half[2];

    memcpy(half, &m, sizeof half);
    return (half[0] | half[1]) != 0;
#endif
}

static const signed_lane lane_number[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
    32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
    48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

/* The lanes below n. */
INLINE M
m_below(int64_t n)
{
    M i;

    n = n < 0 ? 0 : n > N_LANES ? N_LANES : n;
    memcpy(&i, lane_number, sizeof i);
    return (M)(i < (M)u_set((unsigned_lane)n));
}

/* ---- memory --------------------------------------------------------------
 * The _n forms touch the first n elements only (n <= 0: none) and give 0 in
 * the other lanes. */

INLINE R
v_load(const lane *p)
{
    R x;

    memcpy(&x, p, sizeof x);
    return x;
}

INLINE void
v_store(lane *p, R x)
{
    memcpy(p, &x, sizeof x);
}

/* Past the caches; p is aligned to the vector. */
INLINE void
v_stream(lane *p, R x)
{
#if defined(MR_JIT)
    v_store(p, x);
#elif MR_TIER_ID == MR_TIER_AVX512
    _mm512_stream_si512((__m512i *)(void *)p, (__m512i)x);
#elif MR_TIER_ID == MR_TIER_AVX2
    _mm256_stream_si256((__m256i *)(void *)p, (__m256i)x);
#elif defined(__x86_64__)
    _mm_stream_si128((__m128i *)(void *)p, (__m128i)x);
#else
    v_store(p, x);
#endif
}

/* Orders streamed stores before whatever says that the result is there. */
INLINE void
stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

#if MR_TIER_ID == MR_TIER_AVX512
#define LANE_BITS_BELOW(n)                                                     \
    ((n) <= 0 ? 0 : (n) >= 64 ? ~0ULL : (1ULL << (n)) - 1)
#endif

#if !MR_LANE_FLOAT
/* a / b, for b other than 0, and other than -1 where a is the lowest number.  A
 * vector has no division of integers, but one of doubles, whose quotient of two
 * words is no integer where theirs is none, so this is exact. */
INLINE R
v_quotient(R a, R b)
{
#if MR_LANE_BITS == 32
    typedef double wide __attribute__((vector_size(VEC_BYTES * 2)));

    return __builtin_convertvector(
        __builtin_convertvector(a, wide) / __builtin_convertvector(b, wide), R);
#else
    return a / b;
#endif
}
#endif

INLINE R
v_load_n(const lane *p, int64_t n)
{
#if defined(MR_JIT)
    R x = {0};

    memcpy(&x, p, (size_t)n * sizeof *p);
    return x;
#elif MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 8
    return (R)_mm512_maskz_loadu_epi8(LANE_BITS_BELOW(n), p);
#elif MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 16
    return (R)_mm512_maskz_loadu_epi16((__mmask32)LANE_BITS_BELOW(n), p);
#elif MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 32
    return (R)_mm512_maskz_loadu_epi32((__mmask16)LANE_BITS_BELOW(n), p);
#elif MR_TIER_ID == MR_TIER_AVX512
    return (R)_mm512_maskz_loadu_epi64((__mmask8)LANE_BITS_BELOW(n), p);
#elif MR_TIER_ID == MR_TIER_AVX2 && MR_LANE_BITS == 32
    return (R)_mm256_maskload_epi32((const int *)p, (__m256i)m_below(n));
#elif MR_TIER_ID == MR_TIER_AVX2 && MR_LANE_BITS == 64
    return (R)_mm256_maskload_epi64((const long long *)p, (__m256i)m_below(n));
#else
    lane x[N_LANES] = {0};

    for (int64_t i = 0; i < n && i < N_LANES; i++)
        x[i] = p[i];
    return v_load(x);
#endif
}

INLINE void
v_store_n(lane *p, R x, int64_t n)
{
#if defined(MR_JIT)
    memcpy(p, &x, (size_t)n * sizeof *p);
#elif MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 8
    _mm512_mask_storeu_epi8(p, LANE_BITS_BELOW(n), (__m512i)x);
#elif MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 16
    _mm512_mask_storeu_epi16(p, (__mmask32)LANE_BITS_BELOW(n), (__m512i)x);
#elif MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 32
    _mm512_mask_storeu_epi32(p, (__mmask16)LANE_BITS_BELOW(n), (__m512i)x);
#elif MR_TIER_ID == MR_TIER_AVX512
    _mm512_mask_storeu_epi64(p, (__mmask8)LANE_BITS_BELOW(n), (__m512i)x);
#elif MR_TIER_ID == MR_TIER_AVX2 && MR_LANE_BITS == 32
    _mm256_maskstore_epi32((int *)p, (__m256i)m_below(n), (__m256i)x);
#elif MR_TIER_ID == MR_TIER_AVX2 && MR_LANE_BITS == 64
    _mm256_maskstore_epi64((long long *)p, (__m256i)m_below(n), (__m256i)x);
#else
    lane y[N_LANES];

    v_store(y, x);
    for (int64_t i = 0; i < n && i < N_LANES; i++)
        p[i] = y[i];
#endif
}

/* ---- masks and bools (bytes 0 and 1) --------------------------------------
 */

INLINE B
b_from_mask(M m)
{
    return __builtin_convertvector(m, B) & 1;
}

#if !defined(MR_JIT) && MR_LANE_BITS > 8 &&                                    \
    (MR_TIER_ID == MR_TIER_AVX512 || MR_TIER_ID == MR_TIER_AVX2)
#if N_LANES == 32
#define B_WORD __m256i
#else
#define B_WORD __m128i
#endif
/* The bytes in a register: by way of a wider one GCC goes through memory. */
INLINE B_WORD
b_word(B b)
{
#if N_LANES == 32 || N_LANES == 16
    return (B_WORD)b;
#elif N_LANES == 8
    int64_t x;

    memcpy(&x, &b, sizeof x);
    return _mm_cvtsi64_si128(x);
#else
    int32_t x;

    memcpy(&x, &b, sizeof x);
    return _mm_cvtsi32_si128(x);
#endif
}
#endif

/* GCC 12 widens bytes one by one (0.37 ns a number for a select of float32,
 * where 0.03 are enough), so the instructions are named. */
INLINE M
m_from_bytes(B b)
{
#ifdef B_WORD
    B_WORD x = b_word(b);

#if MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 16
    return (M)_mm512_movm_epi16(_mm256_test_epi8_mask(x, x));
#elif MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 32
    return (M)_mm512_movm_epi32(_mm_test_epi8_mask(x, x));
#elif MR_TIER_ID == MR_TIER_AVX512
    return (M)_mm512_movm_epi64((__mmask8)_mm_test_epi8_mask(x, x));
#elif MR_LANE_BITS == 16
    return (M)_mm256_cvtepu8_epi16(x) != 0;
#elif MR_LANE_BITS == 32
    return (M)_mm256_cvtepu8_epi32(x) != 0;
#else
    return (M)_mm256_cvtepu8_epi64(x) != 0;
#endif
#else
    return (M)(__builtin_convertvector(b, M) != 0);
#endif
}

INLINE M
m_load(const uint8_t *p)
{
    B b;

    memcpy(&b, p, sizeof b);
    return m_from_bytes(b);
}

INLINE M
m_load_n(const uint8_t *p, int64_t n)
{
    uint8_t b[N_LANES] = {0};

    for (int64_t i = 0; i < n; i++)
        b[i] = p[i];
    return m_load(b);
}

INLINE void
m_store(uint8_t *p, M m)
{
    B b = b_from_mask(m);

    memcpy(p, &b, sizeof b);
}

INLINE void
m_store_n(uint8_t *p, M m, int64_t n)
{
    uint8_t b[N_LANES];

    m_store(b, m);
    for (int64_t i = 0; i < n; i++)
        p[i] = b[i];
}

/* ---- moving lanes ---------------------------------------------------------
 */

#if N_LANES == 2
#define LANES_(f, ...) f(0, __VA_ARGS__), f(1, __VA_ARGS__)
#elif N_LANES == 4
#define LANES_(f, ...)                                                         \
    f(0, __VA_ARGS__), f(1, __VA_ARGS__), f(2, __VA_ARGS__), f(3, __VA_ARGS__)
#elif N_LANES == 8
#define LANES_(f, ...)                                                         \
    f(0, __VA_ARGS__), f(1, __VA_ARGS__), f(2, __VA_ARGS__),                   \
        f(3, __VA_ARGS__), f(4, __VA_ARGS__), f(5, __VA_ARGS__),               \
        f(6, __VA_ARGS__), f(7, __VA_ARGS__)
#elif N_LANES == 16
#define LANES_(f, ...)                                                         \
    f(0, __VA_ARGS__), f(1, __VA_ARGS__), f(2, __VA_ARGS__),                   \
        f(3, __VA_ARGS__), f(4, __VA_ARGS__), f(5, __VA_ARGS__),               \
        f(6, __VA_ARGS__), f(7, __VA_ARGS__), f(8, __VA_ARGS__),               \
        f(9, __VA_ARGS__), f(10, __VA_ARGS__), f(11, __VA_ARGS__),             \
        f(12, __VA_ARGS__), f(13, __VA_ARGS__), f(14, __VA_ARGS__),            \
        f(15, __VA_ARGS__)
#endif

#ifdef LANES_
#define LANE_UP_(i, h)    (((i) + (h)) & (N_LANES - 1))
#define LANE_TWICE_(i, o) (2 * (i) + (o))
#define LANE_ZIP_(i, o)   (((i) + (o)) / 2 + ((i) % 2) * N_LANES)
#define LANE_LOW_(i, h)   ((i) % (2 * (h)) < (h) ? (i) : (i) - (h) + N_LANES)
#define LANE_HIGH_(i, h)  ((i) % (2 * (h)) < (h) ? (i) + (h) : (i) + N_LANES)

/* Lane l gets lane l + h (modulo the vector); h a power of two. */
INLINE R
v_up(R x, int h)
{
    switch (h) {
    case 1:
        return __builtin_shufflevector(x, x, LANES_(LANE_UP_, 1));
    case 2:
        return __builtin_shufflevector(x, x, LANES_(LANE_UP_, 2));
    case 4:
        return __builtin_shufflevector(x, x, LANES_(LANE_UP_, 4));
    default:
        return __builtin_shufflevector(x, x, LANES_(LANE_UP_, 8));
    }
}

/* The even and the odd lanes of a, b in a row; and back. */
INLINE R
v_even(R a, R b)
{
    return __builtin_shufflevector(a, b, LANES_(LANE_TWICE_, 0));
}

INLINE R
v_odd(R a, R b)
{
    return __builtin_shufflevector(a, b, LANES_(LANE_TWICE_, 1));
}

INLINE R
v_zip_low(R a, R b)
{
    return __builtin_shufflevector(a, b, LANES_(LANE_ZIP_, 0));
}

INLINE R
v_zip_high(R a, R b)
{
    return __builtin_shufflevector(a, b, LANES_(LANE_ZIP_, N_LANES));
}

/* Of each 2 h lanes the first h of a, then the first h of b; h a power of two
 * below the number of lanes. */
INLINE R
v_lows(R a, R b, int h)
{
    switch (h) {
    case 1:
        return __builtin_shufflevector(a, b, LANES_(LANE_LOW_, 1));
#if N_LANES > 2
    case 2:
        return __builtin_shufflevector(a, b, LANES_(LANE_LOW_, 2));
#endif
#if N_LANES > 4
    case 4:
        return __builtin_shufflevector(a, b, LANES_(LANE_LOW_, 4));
#endif
    default:
        return __builtin_shufflevector(a, b, LANES_(LANE_LOW_, N_LANES / 2));
    }
}

/* The same of the last h of each. */
INLINE R
v_highs(R a, R b, int h)
{
    switch (h) {
    case 1:
        return __builtin_shufflevector(a, b, LANES_(LANE_HIGH_, 1));
#if N_LANES > 2
    case 2:
        return __builtin_shufflevector(a, b, LANES_(LANE_HIGH_, 2));
#endif
#if N_LANES > 4
    case 4:
        return __builtin_shufflevector(a, b, LANES_(LANE_HIGH_, 4));
#endif
    default:
        return __builtin_shufflevector(a, b, LANES_(LANE_HIGH_, N_LANES / 2));
    }
}
#else
INLINE R
v_up(R x, int h)
{
    lane two[2 * N_LANES];

    v_store(two, x);
    v_store(two + N_LANES, x);
    return v_load(two + h);
}
#endif

/* ---- floating point -------------------------------------------------------
 */
#if MR_LANE_FLOAT
#include "kernels/tier/floats.h"
#endif

#endif
