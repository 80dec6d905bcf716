/* SPDX-License-Identifier: Apache-2.0
 *
 * approx32.h -- float32 functions of our own, in the dialect.
 *
 * Where SLEEF's are slow: exp, tanh, erf (47 ns for 16 values there, 4
 * here).  The polynomials were fitted for this file (weighted minimax,
 * coefficients rounded one at a time from the lowest, the rest fitted again).
 * Worst error over all float32 values against double precision, checked by
 * tests/slow/erf.c:
 *
 *   exp  1.02 ULP     tanh 1.30 ULP     erf 0.92 ULP
 *
 * Those of halves, whose results are rounded to 11 or 8 bits, are shorter;
 * v_full_exp is for what goes on in float32.
 *
 * Included by the lane headers of a dialect with float lanes.
 */
#ifndef MR_KERNELS_APPROX32_H
#define MR_KERNELS_APPROX32_H

/* exp of x = k ln 2 + r, |r| <= ln 2 / 2: 2^k (1 + r + r^2 q(r)).  *k is a
 * whole number; adding 1.5 * 2^23 leaves it in the low bits of `shifted`. */
INLINE R
exp_reduced(R x, R *shifted, R *k)
{
    R magic = C(12582912.0F);
    R z = v_fma(x, C(1.44269504F), magic);
    R n = z - magic;
    R r = v_fma(n, C(-0x1.62e4p-1F), x);
    R q = C(0x1.6a4d6p-10F);

    r = v_fma(n, C(-0x1.7f7d1cp-20F), r);
    q = v_fma(q, r, C(0x1.12398ep-7F));
    q = v_fma(q, r, C(0x1.5558b0p-5F));
    q = v_fma(q, r, C(0x1.555492p-3F));
    q = v_fma(q, r, C(0x1.fffffcp-2F));
    *shifted = z;
    *k = n;
    return v_fma(q, r * r, r) + C(1.0F);
}

/* For x in [-87, 88] only. */
INLINE R
exp_normal(R x)
{
    R z, k, p = exp_reduced(x, &z, &k);

    (void)k;
    return v_from_bits(v_bits(p) + (v_bits(z) << 23));
}

/* x, clamped to where exp is a number other than 0.  AVX-512 leaves small ones
 * to exp_scaled. */
INLINE R
exp_argument(R x)
{
#if MR_TIER_ID == MR_TIER_AVX512
    return v_at_most(x, C(89.0F));
#else
    return v_clamp(x, C(-104.0F), C(89.0F));
#endif
}

/* p 2^k, where z has k in its low bits; exp of x.  Intel's cores take 150
 * cycles for a result below the normal numbers, so those that are 0, which
 * masks make many of, are not computed. */
INLINE R
exp_scaled(R p, R z, R k, R x)
{
#if MR_TIER_ID == MR_TIER_AVX512
    (void)z;
    return (R)_mm512_maskz_scalef_ps(
        _mm512_cmp_ps_mask((__m512)x, (__m512)C(-104.0F), _CMP_NLT_UQ),
        (__m512)p, (__m512)k);
#else
    /* Two factors: 2^k itself may be no normal number.  Only the last product
     * rounds. */
    M n = (M)(v_bits(z) - v_bits(C(12582912.0F)));
    M half = n >> 1;

    (void)k;
    (void)x;
    p = p * v_from_bits((U)(half + 127) << 23);
    return p * v_from_bits((U)(n - half + 127) << 23);
#endif
}

INLINE R
v_full_exp(R x)
{
    R z, k, p = exp_reduced(exp_argument(x), &z, &k);

    return exp_scaled(p, z, k, x);
}

/* Below 0.65 x + x^3 p(x^2), above it 1 - 2 / (exp(2|x|) + 1). */
INLINE R
v_tanh(R x)
{
    R t = v_abs(x), s = x * x;
    R p = C(-0x1.696a9ap-8F);
    R e = exp_normal(v_clamp(t + t, C(0.0F), C(40.0F)));
    R far = C(1.0F) - C(2.0F) / (e + C(1.0F));

    p = v_fma(p, s, C(0x1.4f5d72p-6F));
    p = v_fma(p, s, C(-0x1.b7cfb6p-5F));
    p = v_fma(p, s, C(0x1.1103f0p-3F));
    p = v_fma(p, s, C(-0x1.555524p-2F));
    p = v_fma(p * s, x, x);
    /* a NaN takes p: e is anything then; of -0 p is 0 */
    return v_copysign(v_select(v_le(C(0.65F), t), far, p), x);
}

/* erf in 16 pieces of [0, 3.95), from 4 on the result is 1: a polynomial of
 * degree 5 in t - at, t = |x|, whose constant term is erf(at).  Each `at` was
 * sought near the middle of its piece so that erf(at) is a float to within
 * 0.001 ULP.  The first piece (number 13) is t + t q(t) instead, at = 0.  The
 * pieces are even in z = 79/64 t + 13/8 within a power of two: a piece's
 * number is the low four bits of z's exponent and three bits of mantissa. */
static const float erf_at[16] = {
    0x1.9fe2eep-2F, 0x1.36ad0ap-1F, 0x1.9e924ep-1F, 0x1.034112p+0F,
    0x1.36c998p+0F, 0x1.6ac15cp+0F, 0x1.9ead0ap+0F, 0x1.d2c9ap+0F,
    0x1.108126p+1F, 0x1.43c934p+1F, 0x1.779b94p+1F, 0x1.ab78cap+1F,
    0x1.d87884p+1F, 0x0p+0F,        0x1.36d3fep-3F, 0x1.02ae2cp-2F,
};
static const float erf_value[16] = {
    0x1.bcb41cp-2F, 0x1.37e64ap-1F, 0x1.7ee406p-1F, 0x1.b2215ap-1F,
    0x1.d3f788p-1F, 0x1.e8ecp-1F,   0x1.f4bf9p-1F,  0x1.faebfap-1F,
    0x1.feaa74p-1F, 0x1.ffd282p-1F, 0x1.fffba4p-1F, 0x1.ffffb2p-1F,
    0x1.fffffap-1F, 0x0p+0F,        0x1.5c0eb6p-3F, 0x1.1dcc2ep-2F,
};
static const float erf_c0[16] = {
    0x1.e9e0f6p-1F,  0x1.8fc7a6p-1F,  0x1.2be884p-1F, 0x1.9e552ap-2F,
    0x1.08a78cp-2F,  0x1.3647b8p-3F,  0x1.4f316p-4F,  0x1.4c9a3ap-5F,
    0x1.8da904p-7F,  0x1.ec17b2p-10F, 0x1.aef0bp-13F, 0x1.0f4fbep-16F,
    0x1.6e2d26p-20F, 0x1.06eba8p-3F,  0x1.1a4988p+0F, 0x1.0f01cp+0F,
};
static const float erf_c1[16] = {
    -0x1.8dea78p-2F, -0x1.e5298ap-2F, -0x1.e5ad34p-2F,  -0x1.a39982p-2F,
    -0x1.414b82p-2F, -0x1.b7ac44p-3F, -0x1.0f7a8cp-3F,  -0x1.2f3b9cp-4F,
    -0x1.a746ecp-6F, -0x1.37120ep-8F, -0x1.3bc858p-11F, -0x1.c3f21cp-15F,
    -0x1.52167p-18F, 0x1.63c75ap-22F, -0x1.56becap-3F,  -0x1.11d826p-2F,
};
static const float erf_c2[16] = {
    -0x1.b5b89ep-3F, -0x1.190efcp-4F, 0x1.f1d878p-5F,  0x1.22589cp-3F,
    0x1.57a116p-3F,  0x1.37eacep-3F,  0x1.da99p-4F,    0x1.392cfap-4F,
    0x1.0b45fp-5F,   0x1.e3cdb8p-8F,  0x1.232f1ep-10F, 0x1.e12818p-14F,
    0x1.97f6eep-17F, -0x1.812c36p-2F, -0x1.6712dp-2F,  -0x1.3b341ap-2F,
};
static const float erf_c3[16] = {
    0x1.60c614p-3F,   0x1.6ce05cp-3F,  0x1.10d8eep-3F,  0x1.09b392p-4F,
    0x1.8b0342p-9F,   -0x1.274532p-5F, -0x1.951952p-5F, -0x1.703256p-5F,
    -0x1.ad8dacp-6F,  -0x1.03126ep-7F, -0x1.84b87p-10F, -0x1.8187ap-13F,
    -0x1.5fd88cp-16F, 0x1.730b76p-12F, 0x1.51292ep-4F,  0x1.060a5ap-3F,
};
static const float erf_c4[16] = {
    0x1.318e78p-5F,  -0x1.6eccdep-6F, -0x1.f4967p-5F,  -0x1.17cc52p-4F,
    -0x1.a43a1cp-5F, -0x1.99e11p-6F,  -0x1.5acedap-9F, 0x1.40749cp-7F,
    0x1.94121cp-7F,  0x1.71e79ep-8F,  0x1.669e32p-10F, 0x1.ad9d5cp-13F,
    0x1.51a794p-16F, 0x1.c4f69ep-4F,  0x1.bd8092p-4F,  0x1.3071fp-4F,
};

INLINE R
v_full_erf(R x)
{
    R t = v_at_most(v_abs(x), C(3.9375F));
    R z = v_fma(t, C(1.234375F), C(1.625F));
    U piece = v_bits(z) >> 20;
    R u = t - v_pick(erf_at, piece), q = v_pick(erf_c4, piece);

    q = v_fma(q, u, v_pick(erf_c3, piece));
    q = v_fma(q, u, v_pick(erf_c2, piece));
    q = v_fma(q, u, v_pick(erf_c1, piece));
    q = v_fma(q, u, v_pick(erf_c0, piece));
    /* in the first piece u is t and the value 0; elsewhere the value is more */
    q = v_fma(q, u, v_larger(u, v_pick(erf_value, piece)));
    return v_copysign(q, x);
}

#ifdef MR_HALF
/* ---- for results that are rounded to a half at once -----------------------
 */

/* exp to within 2^-18: a sixty-fourth of float16's last place. */
INLINE R
v_exp(R x)
{
    R magic = C(12582912.0F), t = exp_argument(x);
    R z = v_fma(t, C(1.44269504F), magic), k = z - magic;
    R r = v_fma(k, C(-0x1.62e430p-1F), t), q = C(0x1.5411d6p-5F);

    q = v_fma(q, r, C(0x1.57d204p-3F));
    q = v_fma(q, r, C(0x1.0004p-1F));
    q = v_fma(q, r, C(0x1.fffb9cp-1F));
    return exp_scaled(v_fma(q, r, C(1.0F)), z, k, x);
}

/* erf to within 2^-15: pieces of one width around its multiples, and a
 * polynomial of degree 3 in what t is beyond the multiple. */
static const float half_erf_value[16] = {
    0x0p+0F,        0x1.287bbep-2F, 0x1.159a44p-1F, 0x1.781c12p-1F,
    0x1.b9913ap-1F, 0x1.df85eap-1F, 0x1.f2ba6cp-1F, 0x1.fb352ap-1F,
    0x1.fe797ap-1F, 0x1.ff929ep-1F, 0x1.ffe514p-1F, 0x1.fffa3p-1F,
    0x1.fffee6p-1F, 0x1.ffffd2p-1F, 0x1.fffffap-1F, 0x1p+0F,
};
static const float half_erf_c0[16] = {
    0x1.20dd98p+0F,  0x1.0da4e4p+0F,  0x1.b6927p-1F,   0x1.36bfccp-1F,
    0x1.7fab9ap-2F,  0x1.9cb7f8p-3F,  0x1.82cea6p-4F,  0x1.3bd84ep-5F,
    0x1.c161bcp-7F,  0x1.16846ap-8F,  0x1.2cc668p-10F, 0x1.1af56p-12F,
    0x1.cfdd7ap-15F, 0x1.4bb9a2p-17F, 0x1.9cee3cp-20F, 0x1.b60426p-23F,
};
static const float half_erf_c1[16] = {
    -0x1.f20ccp-13F,  -0x1.19339p-2F,   -0x1.c9cf46p-2F,  -0x1.e75ebap-2F,
    -0x1.9214b2p-2F,  -0x1.0f1f3ap-2F,  -0x1.320656p-3F,  -0x1.24c6bcp-4F,
    -0x1.de7588p-6F,  -0x1.4f846ap-7F,  -0x1.94e694p-9F,  -0x1.a6a16ap-11F,
    -0x1.7b79f8p-13F, -0x1.414902p-15F, -0x1.264bfap-17F, -0x1.5f87e8p-16F,
};
static const float half_erf_c2[16] = {
    -0x1.7d913cp-2F, -0x1.3931acp-2F, -0x1.0c750cp-3F, 0x1.78f3c8p-5F,
    0x1.3064acp-3F,  0x1.4e8d3p-3F,   0x1.fe4162p-4F,  0x1.2ff168p-4F,
    0x1.277366p-5F,  0x1.dec2b4p-7F,  0x1.47376ap-8F,  0x1.7c7822p-10F,
    0x1.799326p-12F, 0x1.3de03ep-14F, 0x1.d0b172p-17F, -0x1.3b5ec8p-13F,
};

INLINE R
v_erf(R x)
{
    R magic = C(12582912.0F), t = v_at_most(v_abs(x), C(3.9375F));
    R z = v_fma(t, C(3.80952381F), magic);
    R u = v_fma(z - magic, C(-0.2625F), t);
    U piece = v_bits(z);
    R q = v_pick(half_erf_c2, piece);

    q = v_fma(q, u, v_pick(half_erf_c1, piece));
    q = v_fma(q, u, v_pick(half_erf_c0, piece));
    q = v_fma(q, u, v_pick(half_erf_value, piece));
    return v_copysign(q, x);
}
#else
INLINE R
v_exp(R x)
{
    return v_full_exp(x);
}

INLINE R
v_erf(R x)
{
    return v_full_erf(x);
}
#endif

/* log of a positive normal number for erfinv: y = 2^n (1 + f), f in [-1/3,
 * 1/3), and n ln 2 + f - f^2 / 2 + f^3 p(f), relative error of p's part below
 * 0.7 ULP.  For 0 and negative numbers it is some number beyond 80. */
INLINE R
erfinv_log(R y)
{
    M n = (M)(v_bits(y) - 0x3F2AAAAB) >> 23;
    R k = v_from_bits(v_bits(C(12582912.0F)) + (U)n) - C(12582912.0F);
    R f = v_from_bits(v_bits(y) - ((U)n << 23)) - C(1.0F);
    R s = f * f, p = C(0x1.1b0950p-3F);

    p = v_fma(p, f, C(-0x1.35b3d4p-3F));
    p = v_fma(p, f, C(0x1.1f963ep-3F));
    p = v_fma(p, f, C(-0x1.515a6cp-3F));
    p = v_fma(p, f, C(0x1.99c31ep-3F));
    p = v_fma(p, f, C(-0x1.000b1cp-2F));
    p = v_fma(p, f, C(0x1.555528p-2F));
    p = v_fma(f * s, p, v_fma(s, C(-0.5F), f));
    return v_fma(k, C(0.693147181F), p);
}

INLINE R
erfinv_tail(R t)
{
    R p = C(3.03697567e-10F);

    p = v_fma(p, t, C(2.93243101e-8F));
    p = v_fma(p, t, C(1.22150334e-6F));
    p = v_fma(p, t, C(2.84108955e-5F));
    p = v_fma(p, t, C(3.93552968e-4F));
    p = v_fma(p, t, C(3.02698812e-3F));
    p = v_fma(p, t, C(4.83185798e-3F));
    p = v_fma(p, t, C(-2.64646143e-1F));
    return v_fma(p, t, C(8.40016484e-1F));
}

/* The published single-precision approximation of M. Giles, "Approximating
 * the erfinv function" (2010), in the two-polynomial form that docs of the
 * random generator fix: about 2.4 ULP, the log's own error included.  One
 * number in a thousand of a uniform draw is in the tail. */
INLINE R
v_erfinv(R a)
{
    R y = v_fma(a, v_neg(a), C(1.0F)), t = erfinv_log(y);
    R q = C(5.43877832e-9F);
    M tail = v_lt(C(6.125F), v_abs(t));

    q = v_fma(q, t, C(1.43285448e-7F));
    q = v_fma(q, t, C(1.22774793e-6F));
    q = v_fma(q, t, C(1.12963626e-7F));
    q = v_fma(q, t, C(-5.61530760e-5F));
    q = v_fma(q, t, C(-1.47697632e-4F));
    q = v_fma(q, t, C(2.31468678e-3F));
    q = v_fma(q, t, C(1.15392581e-2F));
    q = v_fma(q, t, C(-2.32015476e-1F));
    q = v_fma(q, t, C(8.86226892e-1F));
    if (m_any(tail)) {
        t = v_select(v_lt(C(0.0F), y), t, v_log(y)); /* 1 and beyond */
        q = v_select(tail, erfinv_tail(t), q);
    }
    return a * q;
}

#endif
