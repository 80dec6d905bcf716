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
    return (R)(__builtin_convertvector(h, U) << 16);
}

/* The upper half of a number's bits, to nearest, ties to even.  Half a unit
 * less one is added, and of a tie to an odd number the last bit is set before:
 * it says no more than "not less than half", and costs less than a second sum.
 */
INLINE U
bf16_rounded(U bits)
{
    return (bits | ((bits >> 16) & 1)) + 0x7FFF;
}

INLINE HALF
bf16_round(R x)
{
    U bits = (U)x;
    U rounded = bf16_rounded(bits) >> 16;
    U nan = (bits >> 16) | 0x40;

    return __builtin_convertvector(u_select((U)v_isnan(x), nan, rounded), HALF);
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
#endif
