/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_scalar.h -- the numbers of one plain table: R real, S its element.
 *
 * MR_DENSE_DOUBLE and MR_DENSE_COMPLEX say which.  Real and complex code is
 * one text: arithmetic on S is written as calls.  Products of complex numbers
 * are the school formula: no library call looks for infinities.
 */
#ifndef MR_CPU_DENSE_SCALAR_H
#define MR_CPU_DENSE_SCALAR_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpu/dense.h"

#if MR_DENSE_DOUBLE
typedef double R;
typedef mr_c128 C;
#define R_EPS   DBL_EPSILON
#define R_MIN   1e-290
#define R_MAX   1e290
#define R_HIGH  1e100 /* squares of sums of these are far from both ends */
#define R_GROWN 1e100
#define R_TINY  (4 * DBL_MIN)
#else
typedef float R;
typedef mr_c64 C;
#define R_EPS   FLT_EPSILON
#define R_MIN   1e-30F
#define R_MAX   1e30F
#define R_HIGH  1e4F
#define R_GROWN 1e12F
#define R_TINY  (4 * FLT_MIN)
#endif

static inline R
r_sqrt(R x)
{
#if MR_DENSE_DOUBLE
    return sqrt(x);
#else
    return sqrtf(x);
#endif
}

static inline R
r_abs(R x)
{
    return x < 0 ? -x : x;
}

static inline R
r_max(R a, R b)
{
    return a > b ? a : b;
}

#if MR_DENSE_COMPLEX
typedef C S;

static inline S
make(R x)
{
    return (S){x, 0};
}

static inline R
real(S a)
{
    return a.re;
}

static inline R
imag(S a)
{
    return a.im;
}

static inline S
conj_of(S a)
{
    return (S){a.re, -a.im};
}

static inline S
add(S a, S b)
{
    return (S){a.re + b.re, a.im + b.im};
}

static inline S
sub(S a, S b)
{
    return (S){a.re - b.re, a.im - b.im};
}

static inline S
mul(S a, S b)
{
    return (S){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static inline S
scale(S a, R f)
{
    return (S){a.re * f, a.im * f};
}

static inline R
norm2(S a)
{
    return a.re * a.re + a.im * a.im;
}

/* |re| + |im|, as LAPACK compares pivots */
static inline R
size_of(S a)
{
    return r_abs(a.re) + r_abs(a.im);
}

/* R. L. Smith, Algorithm 116: complex division (1962). */
static inline S
over(S a, S b)
{
    R f, d;

    if (r_abs(b.re) >= r_abs(b.im)) {
        f = b.im / b.re;
        d = b.re + b.im * f;
        return (S){(a.re + a.im * f) / d, (a.im - a.re * f) / d};
    }
    f = b.re / b.im;
    d = b.re * f + b.im;
    return (S){(a.re * f + a.im) / d, (a.im * f - a.re) / d};
}
#else
typedef R S;

static inline S
make(R x)
{
    return x;
}

static inline R
real(S a)
{
    return a;
}

static inline R
imag(S a)
{
    (void)a;
    return 0;
}

static inline S
conj_of(S a)
{
    return a;
}

static inline S
add(S a, S b)
{
    return a + b;
}

static inline S
sub(S a, S b)
{
    return a - b;
}

static inline S
mul(S a, S b)
{
    return a * b;
}

static inline S
scale(S a, R f)
{
    return a * f;
}

static inline R
norm2(S a)
{
    return a * a;
}

static inline R
size_of(S a)
{
    return r_abs(a);
}

static inline S
over(S a, S b)
{
    return a / b;
}
#endif

static inline bool
is_zero(S a)
{
    return real(a) == 0 && imag(a) == 0;
}

/* The modulus, without overflow on the way. */
static inline R
modulus(S a)
{
#if MR_DENSE_COMPLEX
    R x = r_abs(a.re), y = r_abs(a.im), big = r_max(x, y);

    if (big == 0)
        return 0;
    x /= big;
    y /= big;
    return big * r_sqrt(x * x + y * y);
#else
    return r_abs(a);
#endif
}

/* row[i] -= f * with[i] */
static inline void
row_take(S *restrict row, const S *restrict with, S f, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        row[i] = sub(row[i], mul(f, with[i]));
}

/* The sum of conj(a[i]) * b[i]. */
static inline S
row_dot(const S *a, const S *b, int64_t n)
{
    S sum = make(0);

    for (int64_t i = 0; i < n; i++)
        sum = add(sum, mul(conj_of(a[i]), b[i]));
    return sum;
}

static inline R
row_norm2(const S *a, int64_t n)
{
    R sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += norm2(a[i]);
    return sum;
}

/* The Euclidean length of n elements `step` apart. */
static inline R
length_of(const S *a, int64_t n, int64_t step)
{
    R sum = 0, big = 0;

    for (int64_t i = 0; i < n; i++)
        sum += norm2(a[i * step]);
    if ((sum > R_MIN && sum < R_MAX) || !(sum == sum))
        return r_sqrt(sum);
    for (int64_t i = 0; i < n; i++)
        big = r_max(big, size_of(a[i * step]));
    if (big < R_TINY) /* 1 / big is no number */
        return 0;
    sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += norm2(scale(a[i * step], 1 / big));
    return big * r_sqrt(sum);
}

static inline void
identity(S *a, int64_t m, int64_t n)
{
    memset(a, 0, (size_t)(m * n) * sizeof *a);
    for (int64_t i = 0; i < m && i < n; i++)
        a[i * n + i] = make(1);
}

/* to (n x m) = the adjoint of from (m x n). */
static inline void
adjoint(S *restrict to, const S *restrict from, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            to[j * m + i] = conj_of(from[i * n + j]);
}

/* Brings the largest element of a to about 1 when squares could overflow or
 * vanish; what to multiply lengths with to undo it. */
static inline R
rescale(S *a, int64_t count)
{
    R big = 0;

    for (int64_t i = 0; i < count; i++)
        big = r_max(big, size_of(a[i]));
    if (big == 0 || (big < R_HIGH && big > 1 / R_HIGH))
        return 1;
    big = r_max(big, R_TINY); /* 1 / big is finite */
    for (int64_t i = 0; i < count; i++)
        a[i] = scale(a[i], 1 / big);
    return big;
}

#endif
