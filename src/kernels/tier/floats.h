/* SPDX-License-Identifier: Apache-2.0
 *
 * floats.h -- the part of the dialect that floating-point lanes have.
 *
 * Rounding, square root and fused multiply-add are the machine's; the
 * transcendental functions are SLEEF's (the deterministic family, which gives
 * equal bits for 256- and 512-bit vectors) but for those of approx32.h.
 * Included by lanes.h alone.
 */
#include <float.h>
#include <math.h>
#include <sleef.h>

#if MR_LANE_BITS == 32
#define SIGN_BIT 0x80000000U
#else
#define SIGN_BIT 0x8000000000000000ULL
#endif

/* INTRINSIC(name): the intrinsic of this tier and lane. */
#if MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 32
#define INTRINSIC(name) _mm512_##name##_ps
#define SLEEF(name)     Sleef_finz_##name##f16_u10avx512f
#define SLEEF_U05(name) Sleef_finz_##name##f16_u05avx512f
#define SLEEF_U15(name) Sleef_finz_##name##f16_u15avx512f
#define SLEEF_RAW(name) Sleef_finz_##name##f16_avx512f
#elif MR_TIER_ID == MR_TIER_AVX512
#define INTRINSIC(name) _mm512_##name##_pd
#define SLEEF(name)     Sleef_finz_##name##d8_u10avx512f
#define SLEEF_U05(name) Sleef_finz_##name##d8_u05avx512f
#define SLEEF_U15(name) Sleef_finz_##name##d8_u15avx512f
#define SLEEF_RAW(name) Sleef_finz_##name##d8_avx512f
#elif MR_TIER_ID == MR_TIER_AVX2 && MR_LANE_BITS == 32
#define INTRINSIC(name) _mm256_##name##_ps
#define SLEEF(name)     Sleef_finz_##name##f8_u10avx2
#define SLEEF_U05(name) Sleef_finz_##name##f8_u05avx2
#define SLEEF_U15(name) Sleef_finz_##name##f8_u15avx2
#define SLEEF_RAW(name) Sleef_finz_##name##f8_avx2
#elif MR_TIER_ID == MR_TIER_AVX2
#define INTRINSIC(name) _mm256_##name##_pd
#define SLEEF(name)     Sleef_finz_##name##d4_u10avx2
#define SLEEF_U05(name) Sleef_finz_##name##d4_u05avx2
#define SLEEF_U15(name) Sleef_finz_##name##d4_u15avx2
#define SLEEF_RAW(name) Sleef_finz_##name##d4_avx2
#elif MR_TIER_ID == MR_TIER_NEON && MR_LANE_BITS == 32
#define INTRINSIC(name) v##name##q_f32
#define SLEEF(name)     Sleef_finz_##name##f4_u10advsimd
#define SLEEF_U05(name) Sleef_finz_##name##f4_u05advsimd
#define SLEEF_U15(name) Sleef_finz_##name##f4_u15advsimd
#define SLEEF_RAW(name) Sleef_finz_##name##f4_advsimd
#elif MR_TIER_ID == MR_TIER_NEON
#define INTRINSIC(name) v##name##q_f64
#define SLEEF(name)     Sleef_finz_##name##d2_u10advsimd
#define SLEEF_U05(name) Sleef_finz_##name##d2_u05advsimd
#define SLEEF_U15(name) Sleef_finz_##name##d2_u15advsimd
#define SLEEF_RAW(name) Sleef_finz_##name##d2_advsimd
#elif MR_LANE_BITS == 32
#define INTRINSIC(name) _mm_##name##_ps
#define SLEEF(name)     Sleef_cinz_##name##f4_u10sse2
#define SLEEF_U05(name) Sleef_cinz_##name##f4_u05sse2
#define SLEEF_U15(name) Sleef_cinz_##name##f4_u15sse2
#define SLEEF_RAW(name) Sleef_cinz_##name##f4_sse2
#else
#define INTRINSIC(name) _mm_##name##_pd
#define SLEEF(name)     Sleef_cinz_##name##d2_u10sse2
#define SLEEF_U05(name) Sleef_cinz_##name##d2_u05sse2
#define SLEEF_U15(name) Sleef_cinz_##name##d2_u15sse2
#define SLEEF_RAW(name) Sleef_cinz_##name##d2_sse2
#endif

INLINE R
v_sqrt(R x)
{
    return (R)INTRINSIC(sqrt)(x);
}

INLINE R
v_abs(R x)
{
    return v_from_bits(v_bits(x) & ~u_set(SIGN_BIT));
}

INLINE R
v_neg(R x)
{
    return v_from_bits(v_bits(x) ^ u_set(SIGN_BIT));
}

/* The magnitude of x with the sign of y. */
INLINE R
v_copysign(R x, R y)
{
    return v_from_bits((v_bits(x) & ~u_set(SIGN_BIT)) |
                       (v_bits(y) & u_set(SIGN_BIT)));
}

/* The second one where they are equal or one is NaN. */
INLINE R
v_lesser(R a, R b)
{
#if MR_TIER_ID == MR_TIER_NEON
    return v_select(v_lt(a, b), a, b);
#else
    return (R)INTRINSIC(min)(a, b);
#endif
}

INLINE R
v_larger(R a, R b)
{
#if MR_TIER_ID == MR_TIER_NEON
    return v_select(v_lt(b, a), a, b);
#else
    return (R)INTRINSIC(max)(a, b);
#endif
}

/* x within [low, high]; NaN stays. */
INLINE R
v_clamp(R x, R low, R high)
{
    return v_lesser(high, v_larger(low, x));
}

/* x, at most `high`; NaN stays. */
INLINE R
v_at_most(R x, R high)
{
    return v_lesser(high, x);
}

INLINE M
v_isnan(R x)
{
    return v_ne(x, x);
}

/* Was there a NaN among many vectors?  The answer is asked for at the end. */
#if MR_TIER_ID == MR_TIER_AVX512
#define NAN_SEEN      unsigned
#define NAN_SEEN_NONE 0U
#else
#define NAN_SEEN      M
#define NAN_SEEN_NONE m_set(false)
#endif

INLINE NAN_SEEN
nan_see(NAN_SEEN seen, R a, R b)
{
#if MR_TIER_ID == MR_TIER_AVX512 && MR_LANE_BITS == 32
    return seen | _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q);
#elif MR_TIER_ID == MR_TIER_AVX512
    return seen | _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_UNORD_Q);
#else
    return m_or(seen, m_or(v_isnan(a), v_isnan(b)));
#endif
}

INLINE bool
nan_seen(NAN_SEEN seen)
{
#if MR_TIER_ID == MR_TIER_AVX512
    return seen != 0;
#else
    return m_any(seen);
#endif
}

#if MR_TIER_ID == MR_TIER_NEON

INLINE R
v_fma(R a, R b, R c)
{
    return (R)INTRINSIC(fma)(c, a, b);
}

INLINE R
v_round(R x)
{
    return (R)INTRINSIC(rndn)(x);
}

INLINE R
v_floor(R x)
{
    return (R)INTRINSIC(rndm)(x);
}

INLINE R
v_ceil(R x)
{
    return (R)INTRINSIC(rndp)(x);
}

INLINE R
v_trunc(R x)
{
    return (R)INTRINSIC(rnd)(x);
}

#elif MR_TIER_ID != MR_TIER_BASELINE

INLINE R
v_fma(R a, R b, R c)
{
    return (R)INTRINSIC(fmadd)(a, b, c);
}

#if MR_TIER_ID == MR_TIER_AVX512
#define ROUNDED(x, mode) (R) INTRINSIC(roundscale)(x, (mode) | 8)
#else
#define ROUNDED(x, mode) (R) INTRINSIC(round)(x, (mode) | 8)
#endif

INLINE R
v_round(R x)
{
    return ROUNDED(x, 0);
}

INLINE R
v_floor(R x)
{
    return ROUNDED(x, 1);
}

INLINE R
v_ceil(R x)
{
    return ROUNDED(x, 2);
}

INLINE R
v_trunc(R x)
{
    return ROUNDED(x, 3);
}

#else

/* Without FMA: once rounded through double for float lanes, else twice (what
 * needs the exact error of a product calls v_square_error). */
INLINE R
v_fma(R a, R b, R c)
{
#if MR_LANE_BITS == 32
    R r;

    for (int i = 0; i < N_LANES; i++)
        r[i] = (float)((double)a[i] * (double)b[i] + (double)c[i]);
    return r;
#else
    return a * b + c;
#endif
}

/* Adding and taking away 2^(precision - 1) rounds to an integer; beyond it
 * every number is one. */
INLINE R
v_round(R x)
{
    R big = C(MR_LANE_BITS == 32 ? 8388608.0 : 4503599627370496.0);
    R r = (v_abs(x) + big) - big;

    return v_select(v_lt(v_abs(x), big), v_copysign(r, x), x);
}

INLINE R
v_floor(R x)
{
    R r = v_round(x);

    return v_copysign(r - v_select(v_lt(x, r), C(1), C(0)), x);
}

INLINE R
v_ceil(R x)
{
    return v_neg(v_floor(v_neg(x)));
}

INLINE R
v_trunc(R x)
{
    return v_copysign(v_floor(v_abs(x)), x);
}

#endif

/* a * b + c, rounded once where the tier has the instruction: without it v_fma
 * would cost a function call's worth of time. */
INLINE R
multiply_add(R a, R b, R c)
{
#if MR_TIER_ID == MR_TIER_BASELINE
    return a * b + c;
#else
    return v_fma(a, b, c);
#endif
}

/* x * x - s, exact, where s is that product rounded and does not overflow. */
INLINE R
v_square_error(R x, R s)
{
#if MR_TIER_ID != MR_TIER_BASELINE || MR_LANE_BITS == 32
    return v_fma(x, x, v_neg(s));
#else
    /* T. J. Dekker (1971): the halves' products are exact. */
    R t = x * C(134217729.0);
    R high = t - (t - x), low = x - high;

    return ((high * high - s) + C(2) * high * low) + low * low;
#endif
}

/* clang-format off */
#define MR_FROM_SLEEF(X)                                                       \
    X(expm1)                                                                   \
    X(log)                                                                     \
    X(log2) X(log10) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(atanh)
/* clang-format on */
#define MR_X(name)                                                             \
    INLINE R v_##name(R x)                                                     \
    {                                                                          \
        return (R)SLEEF(name)(x);                                              \
    }
MR_FROM_SLEEF(MR_X)
#undef MR_X

/* SLEEF's log1p, asinh and acosh overflow near the largest numbers, where
 * they are the log of x and of 2x. */
#define HUGE_ARGUMENT (MR_LANE_BITS == 32 ? 1e18 : 1e150)

INLINE R
v_log1p(R x)
{
    M huge = v_lt(C(HUGE_ARGUMENT), x);
    R r = (R)SLEEF(log1p)(x);

    return m_any(huge) ? v_select(huge, v_log(x), r) : r;
}

INLINE R
v_asinh(R x)
{
    R t = v_abs(x), r = (R)SLEEF(asinh)(x);
    M huge = v_lt(C(HUGE_ARGUMENT), t);

    if (!m_any(huge))
        return r;
    t = v_copysign(v_log(t) + C(0.69314718055994531), x);
    return v_select(huge, t, r);
}

INLINE R
v_acosh(R x)
{
    M huge = v_lt(C(HUGE_ARGUMENT), x);
    R r = (R)SLEEF(acosh)(x);

    if (!m_any(huge))
        return r;
    return v_select(huge, v_log(x) + C(0.69314718055994531), r);
}

INLINE R
v_atan2(R y, R x)
{
    return (R)SLEEF(atan2)(y, x);
}

INLINE R
v_pow(R x, R y)
{
    return (R)SLEEF(pow)(x, y);
}

#if MR_LANE_BITS == 32
#define FMOD_FAR  0x1p120F
#define FMOD_TINY 0x1p29F
#else
#define FMOD_FAR  0x1p1000
#define FMOD_TINY 0x1p74
#endif

/* Exact, with the sign of x.  SLEEF's needs a quotient that is finite; others
 * are met in three steps: |y| is below 1 there, and remainders by y times a
 * power of two, which is exact, have the same remainder by y. */
INLINE R
v_fmod(R x, R y)
{
    R r = (R)SLEEF_RAW(fmod)(x, y), inf = v_set((lane)INFINITY);
    M far = v_eq(v_abs(x / y), inf);
    R z;

    far = m_and(far, m_and(v_lt(v_abs(x), inf), v_lt(v_set(0), v_abs(y))));
    if (m_any(far)) {
        z = v_select(v_lt(v_abs(y), v_set(1 / FMOD_FAR)), y * FMOD_TINY, y);
        x = (R)SLEEF_RAW(fmod)(x, z * FMOD_FAR);
        x = (R)SLEEF_RAW(fmod)(x, z);
        r = v_select(far, (R)SLEEF_RAW(fmod)(x, y), r);
    }
    return r;
}

INLINE R
v_hypot(R x, R y)
{
    return (R)SLEEF_U05(hypot)(x, y);
}

#if MR_LANE_BITS == 32

/* Lane by lane table[i mod 16]. */
INLINE R
v_pick(const float *table, U i)
{
#if MR_TIER_ID == MR_TIER_AVX512
    return (R)_mm512_permutexvar_ps((__m512i)i, (__m512)v_load(table));
#elif MR_TIER_ID == MR_TIER_AVX2
    __m256 low = _mm256_permutevar8x32_ps((__m256)v_load(table), (__m256i)i);
    __m256 high =
        _mm256_permutevar8x32_ps((__m256)v_load(table + 8), (__m256i)i);

    return (R)_mm256_blendv_ps(low, high, (__m256)(i << 28));
#elif MR_TIER_ID == MR_TIER_NEON
    uint8x16x4_t bytes;
    U at = (i & 15) * 0x04040404 + 0x03020100;

    memcpy(&bytes, table, sizeof bytes);
    return (R)vqtbl4q_u8(bytes, (uint8x16_t)at);
#else
    R x;

    for (int k = 0; k < N_LANES; k++)
        x[k] = table[i[k] & 15];
    return x;
#endif
}

#include "kernels/approx32.h"
#else

INLINE R
v_exp(R x)
{
    return (R)SLEEF(exp)(x);
}

INLINE R
v_tanh(R x)
{
    return (R)SLEEF(tanh)(x);
}

INLINE R
v_erf(R x)
{
    return (R)SLEEF(erf)(x);
}

#include "kernels/approx64.h"
#endif

/* SLEEF's sinh and cosh overflow a little before the results do.  There these
 * are e^|x| / 2 = e^(|x| - s) (e^s / 2): the difference is exact, the factor a
 * number of this width to 5e-6 ULP. */
#if MR_LANE_BITS == 32
#define COSH_FAR    88.0
#define COSH_SHIFT  0x1.0e9b8p+0
#define COSH_FACTOR 0x1.705ef8p+0
#else
#define COSH_FAR    709.0
#define COSH_SHIFT  0x1.1adab8727bep+0
#define COSH_FACTOR 0x1.826c0bab57f2fp+0
#endif

INLINE R
cosh_far(R x)
{
    return v_exp(v_abs(x) - C(COSH_SHIFT)) * C(COSH_FACTOR);
}

INLINE R
v_sinh(R x)
{
    M far = v_lt(C(COSH_FAR), v_abs(x));
    R r = (R)SLEEF(sinh)(x);

    return m_any(far) ? v_select(far, v_copysign(cosh_far(x), x), r) : r;
}

INLINE R
v_cosh(R x)
{
    M far = v_lt(C(COSH_FAR), v_abs(x));
    R r = (R)SLEEF(cosh)(x);

    return m_any(far) ? v_select(far, cosh_far(x), r) : r;
}
