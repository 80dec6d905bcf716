/* SPDX-License-Identifier: Apache-2.0
 *
 * approx64.h -- float64 functions of our own, in the dialect: erfinv, which
 * SLEEF lacks.
 */
#ifndef MR_KERNELS_APPROX64_H
#define MR_KERNELS_APPROX64_H

/* One step of Halley's method for erf(x) = a (0 <= a < 1).  Far from 0 the
 * difference is taken between the complements, which keep their digits. */
INLINE R
erfinv_step(R x, R a)
{
    R near = v_erf(x) - a;
    R far = (C(1.0) - a) - (R)SLEEF_U15(erfc)(x);
    R e = v_select(v_lt(a, C(0.5)), near, far);
    R slope = C(1.1283791670955126) * v_exp(v_neg(x * x));
    R u = e / slope;

    return x - u / v_fma(x, u, C(1.0));
}

/* The start is S. Winitzki's approximation (2e-3 relative), or the slope at
 * 0; each step triples the digits. */
INLINE R
v_erfinv(R y)
{
    R a = v_abs(y);
    R w = v_log((C(1.0) - a) * (C(1.0) + a));
    R b = C(4.3307467508) + C(0.5) * w;
    R x = v_sqrt(v_sqrt(b * b - w * C(6.8027210884)) - b);

    x = v_select(v_lt(a, C(0.1)), a * C(0.88622692545275801), x);
    for (int i = 0; i < 3; i++)
        x = erfinv_step(x, a);
    x = v_select(v_eq(a, C(1.0)), C(HUGE_VAL), x);
    return v_select(v_eq(a, C(0.0)), y, v_copysign(x, y));
}

#endif
