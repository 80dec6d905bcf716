/* SPDX-License-Identifier: Apache-2.0
 *
 * approx32.h -- float32 functions of our own, in the dialect.
 *
 * Where SLEEF's are slow: exp, tanh, erf (47 ns for 16 values there).  The
 * polynomials were fitted for this file (weighted minimax, coefficients
 * rounded one at a time from the lowest, the rest fitted again).  Worst error
 * over all float32 values against MPFR, by tests/slow/erf.c:
 *
 *   exp  0.88 ULP     tanh 1.44 ULP     erf 0.99 ULP
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

INLINE R
v_exp(R x)
{
    R z, k, p = exp_reduced(v_clamp(x, C(-104.0F), C(89.0F)), &z, &k);
#if MR_TIER_ID == MR_TIER_AVX512
    (void)z;
    return (R)_mm512_scalef_ps(p, k);
#else
    /* Two factors: 2^k itself may be no normal number.  Only the last product
     * rounds. */
    M n = (M)(v_bits(z) - v_bits(C(12582912.0F)));
    M half = n >> 1;

    (void)k;
    p = p * v_from_bits((U)(half + 127) << 23);
    return p * v_from_bits((U)(n - half + 127) << 23);
#endif
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
    return v_select(v_lt(t, C(0.65F)), p, v_copysign(far, x));
}

/* Below 0.92 x + x p(x^2), above it 1 - exp(-t + t q(t)), t = |x|; from 4 on
 * the result is 1. */
INLINE R
v_erf(R x)
{
    R t = v_clamp(v_abs(x), C(0.0F), C(4.0F)), s = x * x;
    R p = C(-0x1.3ac594p-11F);
    R q = C(-0x1.5df198p-17F);
    R far;

    p = v_fma(p, s, C(0x1.476882p-8F));
    p = v_fma(p, s, C(-0x1.b69390p-6F));
    p = v_fma(p, s, C(0x1.ce1b0ep-4F));
    p = v_fma(p, s, C(-0x1.8126eap-2F));
    p = v_fma(p, s, C(0x1.06eba6p-3F));
    p = v_fma(p, x, x);
    q = v_fma(q, t, C(0x1.4a1f0cp-12F));
    q = v_fma(q, t, C(-0x1.d9340cp-9F));
    q = v_fma(q, t, C(0x1.8435b2p-6F));
    q = v_fma(q, t, C(-0x1.b2d3bep-4F));
    q = v_fma(q, t, C(-0x1.4538aep-1F));
    q = v_fma(q, t, C(-0x1.0772e0p-3F));
    far = C(1.0F) - exp_normal(v_fma(q, t, v_neg(t)));
    return v_select(v_lt(v_abs(x), C(0.92F)), p, v_copysign(far, x));
}

/* The published single-precision approximation of M. Giles, "Approximating
 * the erfinv function" (2010), in the two-polynomial form that docs of the
 * random generator fix: about 2.4 ULP, the log's own error included. */
INLINE R
v_erfinv(R a)
{
    R t = v_log(v_fma(a, v_neg(a), C(1.0F)));
    R p = C(3.03697567e-10F), q = C(5.43877832e-9F);

    p = v_fma(p, t, C(2.93243101e-8F));
    p = v_fma(p, t, C(1.22150334e-6F));
    p = v_fma(p, t, C(2.84108955e-5F));
    p = v_fma(p, t, C(3.93552968e-4F));
    p = v_fma(p, t, C(3.02698812e-3F));
    p = v_fma(p, t, C(4.83185798e-3F));
    p = v_fma(p, t, C(-2.64646143e-1F));
    p = v_fma(p, t, C(8.40016484e-1F));
    q = v_fma(q, t, C(1.43285448e-7F));
    q = v_fma(q, t, C(1.22774793e-6F));
    q = v_fma(q, t, C(1.12963626e-7F));
    q = v_fma(q, t, C(-5.61530760e-5F));
    q = v_fma(q, t, C(-1.47697632e-4F));
    q = v_fma(q, t, C(2.31468678e-3F));
    q = v_fma(q, t, C(1.15392581e-2F));
    q = v_fma(q, t, C(-2.32015476e-1F));
    q = v_fma(q, t, C(8.86226892e-1F));
    return a * v_select(v_lt(C(6.125F), v_abs(t)), p, q);
}

#endif
