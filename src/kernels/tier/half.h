/* SPDX-License-Identifier: Apache-2.0
 *
 * half.h -- float16 and bfloat16 to float32 lanes and back.
 *
 * Halves are integers; there is no half arithmetic.  Rounding is to nearest,
 * ties to even; NaN stays NaN; overflow is infinite.
 */
#ifndef MR_KERNELS_TIER_HALF_H
#define MR_KERNELS_TIER_HALF_H

typedef uint16_t HALF __attribute__((vector_size(N_LANES * 2)));

INLINE U
u_select(U m, U a, U b)
{
    return (m & a) | (~m & b);
}

INLINE R
bf16_widen(HALF h)
{
    /* Of a conversion GCC 12 makes two halves, by five instructions. */
#if MR_TIER_ID == MR_TIER_AVX512 && !defined(MR_JIT)
    return (R)(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16));
#else
    return (R)(__builtin_convertvector(h, U) << 16);
#endif
}

/* A vector from memory that is used twice: GCC 12 would read it twice, and
 * where it lies across two lines of the cache that is four accesses. */
INLINE U
u_load_once(const void *p)
{
    U x;

    memcpy(&x, p, sizeof x);
#if defined(__x86_64__) && !defined(MR_JIT)
    __asm__("" : "+v"(x));
#endif
    return x;
}

/* 2 N_LANES neighbours: those at even places, and those at odd ones. */
INLINE void
bf16_widen_pair(const uint16_t *p, R *even, R *odd)
{
    U both = u_load_once(p);

    *even = (R)(both << 16);
    *odd = (R)(both & 0xFFFF0000);
}

/* The upper half of a number's bits, to nearest, ties to even.  Half a unit
 * less one is added, and of a tie to an odd number the last bit is set before:
 * it says no more than "not less than half", and costs less than a second sum.
 */
INLINE U
bf16_rounded(U bits)
{
#if defined(MR_JIT) && MR_TIER_ID == MR_TIER_AVX512 /* what LLVM finds late */
    return (U)_mm512_ternarylogic_epi32(
               (__m512i)(bits >> 16), (__m512i)u_set(1), (__m512i)bits, 0xEA) +
           0x7FFF;
#else
    return (bits | ((bits >> 16) & 1)) + 0x7FFF;
#endif
}

/* The rounded number is in the upper half of the result. */
INLINE U
bf16_above(R x)
{
    U bits = (U)x, rounded = bf16_rounded(bits);

#if MR_TIER_ID == MR_TIER_AVX512
    return (U)_mm512_mask_or_epi32((__m512i)rounded,
                                   _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                                   (__m512i)bits, _mm512_set1_epi32(0x400000));
#else
    return u_select((U)v_isnan(x), bits | 0x400000, rounded);
#endif
}

INLINE HALF
bf16_round(R x)
{
    return __builtin_convertvector(bf16_above(x) >> 16, HALF);
}

/* As bf16_widen_pair, back. */
INLINE void
bf16_round_pair(uint16_t *p, R even, R odd)
{
    U both = (bf16_above(even) >> 16) | (bf16_above(odd) & 0xFFFF0000);

    memcpy(p, &both, sizeof both);
}

#if MR_TIER_ID == MR_TIER_AVX512

INLINE R
f16_widen(HALF h)
{
#ifdef MR_JIT /* not as a cast of halves, on which LLVM would compute */
    return (R)_mm512_cvt_roundph_ps((__m256i)h, _MM_FROUND_NO_EXC);
#else
    return (R)_mm512_cvtph_ps((__m256i)h);
#endif
}

INLINE HALF
f16_round(R x)
{
    return (HALF)_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

#elif MR_TIER_ID == MR_TIER_AVX2

INLINE R
f16_widen(HALF h)
{
#ifdef MR_JIT /* as above; there is no other way to say it */
    R x;

    __asm__("vcvtph2ps %1, %0" : "=x"(x) : "x"(h));
    return x;
#else
    return (R)_mm256_cvtph_ps((__m128i)h);
#endif
}

INLINE HALF
f16_round(R x)
{
    return (HALF)_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

#elif MR_TIER_ID == MR_TIER_NEON

INLINE R
f16_widen(HALF h)
{
    return (R)vcvt_f32_f16((float16x4_t)h);
}

INLINE HALF
f16_round(R x)
{
    return (HALF)vcvt_f16_f32((float32x4_t)x);
}

#else

/* A multiplication by 2^112 rebiases the exponent and makes subnormals
 * normal, exactly. */
INLINE R
f16_widen(HALF h)
{
    U w = __builtin_convertvector(h, U);
    U magnitude = w & 0x7FFF;
    R x = (R)(magnitude << 13) * C(0x1p112F);
    U special = (U)(magnitude > 0x7BFF) & 0x7F800000;

    return (R)((U)x | special | ((w & 0x8000) << 16));
}

/* Below 2^-14 an addition of 0.5 shifts the bits of a subnormal into place and
 * rounds them. */
INLINE HALF
f16_round(R x)
{
    U bits = (U)x & 0x7FFFFFFF, sign = ((U)x >> 16) & 0x8000;
    U small = (U)((R)bits + C(0.5F)) - 0x3F000000;
    U normal = (bits + 0xC8000FFF + ((bits >> 13) & 1)) >> 13;
    U special = u_select((U)(bits > 0x7F800000),
                         0x7E00 | ((bits >> 13) & 0x3FF), u_set(0x7C00));
    U r = u_select((U)(bits < 0x38800000), small, normal);

    r = u_select((U)(bits >= 0x47800000), special, r);
    return __builtin_convertvector(r | sign, HALF);
}

#endif

#if defined(HALF_INFINITY) && !defined(MR_JIT)
/* ---- the bits of halves as numbers ------------------------------------------
 * Of two that are not negative the larger has the larger bits; of two negative
 * ones the smaller. */
typedef uint16_t HALVES __attribute__((vector_size(VEC_BYTES)));

#define N_HALVES (VEC_BYTES / 2)

INLINE HALVES
halves_load(const uint16_t *p)
{
    return (HALVES)u_load_once(p);
}

/* The larger, and the lesser, as signed numbers. */
INLINE HALVES
halves_larger(HALVES a, HALVES b)
{
#if MR_TIER_ID == MR_TIER_AVX512
    return (HALVES)_mm512_max_epi16((__m512i)a, (__m512i)b);
#elif MR_TIER_ID == MR_TIER_AVX2
    return (HALVES)_mm256_max_epi16((__m256i)a, (__m256i)b);
#elif MR_TIER_ID == MR_TIER_NEON
    return (HALVES)vmaxq_s16((int16x8_t)a, (int16x8_t)b);
#else
    return (HALVES)_mm_max_epi16((__m128i)a, (__m128i)b);
#endif
}

INLINE HALVES
halves_lesser(HALVES a, HALVES b)
{
    return ~halves_larger(~a, ~b);
}

/* The larger as unsigned numbers. */
INLINE HALVES
halves_above(HALVES a, HALVES b)
{
#if MR_TIER_ID == MR_TIER_AVX512
    return (HALVES)_mm512_max_epu16((__m512i)a, (__m512i)b);
#elif MR_TIER_ID == MR_TIER_AVX2
    return (HALVES)_mm256_max_epu16((__m256i)a, (__m256i)b);
#elif MR_TIER_ID == MR_TIER_NEON
    return (HALVES)vmaxq_u16((uint16x8_t)a, (uint16x8_t)b);
#else
    return (HALVES)_mm_add_epi16((__m128i)b,
                                 _mm_subs_epu16((__m128i)a, (__m128i)b));
#endif
}

/* ---- keys: signed numbers of 16 bits in the order of the halves ------------
 * The other way round for a minimum; NaN of either sign is above all. */
typedef int16_t SIGNED_HALVES __attribute__((vector_size(VEC_BYTES)));

#define KEY_SHIFT    ((uint16_t)(0x7FFF - HALF_INFINITY))
#define KEY_IDENTITY ((uint16_t)0x8000)

/* The magnitude's bits turned where the sign is set, or where it is not. */
INLINE HALVES
halves_turned(HALVES x, bool largest)
{
    HALVES sign = (HALVES)((SIGNED_HALVES)x >> 15);

#if MR_TIER_ID == MR_TIER_AVX512
    const __m512i most = _mm512_set1_epi16(0x7FFF);

    return largest
               ? (HALVES)_mm512_ternarylogic_epi32((__m512i)x, (__m512i)sign,
                                                   most, 0x78)
               : (HALVES)_mm512_ternarylogic_epi32((__m512i)x, (__m512i)sign,
                                                   most, 0x87);
#else
    x ^= sign & 0x7FFF;
    return largest ? x : ~x;
#endif
}

/* The largest numbers wrap no further than to just above the least NaN. */
INLINE HALVES
halves_key(HALVES x, bool largest)
{
    return halves_turned(x, largest) - KEY_SHIFT;
}

/* The halves of these keys; false where one is NaN, or a zero that stands for
 * zeros of both signs. */
INLINE bool
halves_of_keys(HALVES key, bool largest, HALVES *x)
{
    HALVES doubt =
        (HALVES)((SIGNED_HALVES)key > (int16_t)(HALF_INFINITY - KEY_SHIFT));

    key += KEY_SHIFT;
    key = largest ? key : ~key;
    *x = halves_turned(key, true);
    doubt |= (HALVES)(*x == (uint16_t)(largest ? 0 : 0x8000) - (HALVES){0});
    return !m_any((M)doubt);
}

/* All lanes by one of these. */
INLINE uint16_t
halves_all(HALVES x, HALVES (*op)(HALVES, HALVES))
{
    uint16_t two[N_HALVES];

#pragma GCC unroll 4
    for (int h = N_LANES / 2; h > 0; h /= 2)
        x = op(x, (HALVES)v_up((R)x, h));
    x = op(x, (HALVES)((U)x >> 16));
    memcpy(two, &x, sizeof two);
    return two[0];
}

/* The least of n >= N_HALVES as signed numbers. */
INLINE uint16_t
halves_least(const uint16_t *p, int64_t n)
{
    HALVES x = halves_load(p + n - N_HALVES);

    for (int64_t i = 0; i + N_HALVES <= n; i += N_HALVES)
        x = halves_lesser(x, halves_load(p + i));
    return halves_all(x, halves_lesser);
}

/* The maximum, or minimum, of n >= N_HALVES; false where one is NaN, or where
 * it is a zero that there may be of both signs. */
INLINE bool
halves_extreme(const uint16_t *p, int64_t n, bool largest, uint16_t *out)
{
    HALVES s = halves_load(p + n - N_HALVES), u = s, s1 = s, u1 = s;
    uint16_t top, far;
    int64_t i = 0;

    for (; i + 2 * N_HALVES <= n; i += 2 * N_HALVES) {
        HALVES x = halves_load(p + i), y = halves_load(p + i + N_HALVES);

        s = halves_larger(s, x);
        u = halves_above(u, x);
        s1 = halves_larger(s1, y);
        u1 = halves_above(u1, y);
    }
    if (i + N_HALVES <= n) {
        s = halves_larger(s, halves_load(p + i));
        u = halves_above(u, halves_load(p + i));
    }
    top = halves_all(halves_larger(s, s1), halves_larger);
    far = halves_all(halves_above(u, u1), halves_above);
    if (far > (HALF_INFINITY | 0x8000) || (top < 0x8000 && top > HALF_INFINITY))
        return false;
    if (largest)
        *out = top >= 0x8000 ? halves_least(p, n) : top;
    else
        *out = far < 0x8000 ? halves_least(p, n) : far;
    return largest ? top != 0 : far != 0x8000;
}
#endif
#endif
