/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_plain.h -- the plain table of one element type: triangular factors.
 *
 * Unblocked LU with partial pivoting, Cholesky and Householder's QR, all
 * backward stable (G. H. Golub, C. F. Van Loan, "Matrix Computations").  Inner
 * loops go along rows.  dense_spectral.h, dense_eig.h, dense_cofactor.h and, of
 * real numbers, dense_group.h have the rest.  Included once each by
 * dense_f32.c, dense_f64.c, dense_c64.c, dense_c128.c.
 */
#ifndef MR_CPU_DENSE_PLAIN_H
#define MR_CPU_DENSE_PLAIN_H

#include "cpu/dense_scalar.h"

/* ---- LU -------------------------------------------------------------------
 */

static inline void
rows_swap(S *a, int64_t n, int64_t i, int64_t j)
{
    if (i == j)
        return;
    for (int64_t k = 0; k < n; k++) {
        S x = a[i * n + k];

        a[i * n + k] = a[j * n + k];
        a[j * n + k] = x;
    }
}

/* Inlined, so that it is unrolled where sizes are known. */
__attribute__((always_inline)) static inline void
lu_steps(S *a, int64_t m, int64_t n, int32_t *pivot)
{
    for (int64_t k = 0; k < m && k < n; k++) {
        int64_t top = k;
        R big = size_of(a[k * n + k]);
        S d;

        for (int64_t i = k + 1; i < m; i++)
            if (size_of(a[i * n + k]) > big) {
                big = size_of(a[i * n + k]);
                top = i;
            }
        pivot[k] = (int32_t)top;
        rows_swap(a, n, k, top);
        d = a[k * n + k];
        if (is_zero(d))
            continue;
        for (int64_t i = k + 1; i < m; i++) {
            S f = over(a[i * n + k], d);

            a[i * n + k] = f;
            for (int64_t j = k + 1; j < n; j++)
                a[i * n + j] = sub(a[i * n + j], mul(f, a[k * n + j]));
        }
    }
}

static void
lu(mr_dtype t, void *a, int64_t m, int64_t n, int32_t *pivot, void *scratch)
{
    (void)t;
    (void)scratch;
    if (m == 4 && n == 4)
        lu_steps(a, 4, 4, pivot);
    else if (m == 3 && n == 3)
        lu_steps(a, 3, 3, pivot);
    else
        lu_steps(a, m, n, pivot);
}

/* One column: along the rows of a. */
__attribute__((always_inline)) static inline void
forward_column(const S *a, bool unit, int64_t n, S *b)
{
    for (int64_t i = 0; i < n; i++) {
        S x = b[i];

        for (int64_t j = 0; j < i; j++)
            x = sub(x, mul(a[i * n + j], b[j]));
        b[i] = unit ? x : over(x, a[i * n + i]);
    }
}

__attribute__((always_inline)) static inline void
backward_column(const S *a, int64_t n, S *b)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        S x = b[i];

        for (int64_t j = i + 1; j < n; j++)
            x = sub(x, mul(a[i * n + j], b[j]));
        b[i] = over(x, a[i * n + i]);
    }
}

/* b becomes a^-1 b, a lower triangular. */
static void
forward(const S *a, bool unit, int64_t n, S *b, int64_t k)
{
    if (k == 1) {
        forward_column(a, unit, n, b);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < i; j++)
            row_take(b + i * k, b + j * k, a[i * n + j], k);
        for (int64_t c = 0; !unit && c < k; c++)
            b[i * k + c] = over(b[i * k + c], a[i * n + i]);
    }
}

static void
backward(const S *a, int64_t n, S *b, int64_t k)
{
    if (k == 1) {
        backward_column(a, n, b);
        return;
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t j = i + 1; j < n; j++)
            row_take(b + i * k, b + j * k, a[i * n + j], k);
        for (int64_t c = 0; c < k; c++)
            b[i * k + c] = over(b[i * k + c], a[i * n + i]);
    }
}

/* One column of b, one matrix of a known size. */
__attribute__((always_inline)) static inline void
lu_solve_column(const S *a, const int32_t *pivot, int64_t n, S *b)
{
    for (int64_t i = 0; i < n; i++) {
        S x = b[i];

        b[i] = b[pivot[i]];
        b[pivot[i]] = x;
    }
    forward_column(a, true, n, b);
    backward_column(a, n, b);
}

static void
lu_solve(mr_dtype t, const void *a, const int32_t *pivot, int64_t n, void *b,
         int64_t k)
{
    (void)t;
    if (k == 1 && n == 4) {
        lu_solve_column(a, pivot, 4, b);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        rows_swap(b, k, i, pivot[i]);
    forward(a, true, n, b, k);
    backward(a, n, b, k);
}

static void
triangular(mr_dtype t, const void *a, bool upper, int64_t n, void *b, int64_t k)
{
    (void)t;
    if (upper)
        backward(a, n, b, k);
    else
        forward(a, false, n, b, k);
}

/* ---- Cholesky ---------------------------------------------------------------
 */

static int64_t
cholesky(mr_dtype t, void *matrix, int64_t n)
{
    S *a = matrix;

    (void)t;
    for (int64_t i = 0; i < n; i++) {
        R d;

        for (int64_t j = 0; j < i; j++) {
            S x = sub(a[i * n + j], conj_of(row_dot(a + i * n, a + j * n, j)));

            a[i * n + j] = over(x, a[j * n + j]);
        }
        d = real(a[i * n + i]) - row_norm2(a + i * n, i);
        if (!(d > 0))
            return i + 1;
        a[i * n + i] = make(r_sqrt(d));
    }
    return 0;
}

/* ---- QR ---------------------------------------------------------------------
 * Reflections H = I - tau v v^H as LAPACK makes them: v[0] = 1 is not stored,
 * and a column that is zero below gives H = I. */

/* x (n elements `step` apart) becomes (beta, v[1], ...) with H^H x = beta e_1,
 * beta real; tau. */
static S
reflector(S *x, int64_t n, int64_t step)
{
    R tail = length_of(x + step, n - 1, step), head, beta;
    S alpha = x[0], tau, f;

    if (tail == 0 && imag(alpha) == 0)
        return make(0);
    head = modulus(alpha);
    beta = r_max(head, tail);
    if (beta < R_MIN) { /* nothing, beside entries of about 1 */
        for (int64_t i = 0; i < n; i++)
            x[i * step] = make(0);
        return make(0);
    }
    beta *=
        r_sqrt((head / beta) * (head / beta) + (tail / beta) * (tail / beta));
    if (!(real(alpha) < 0))
        beta = -beta;
    tau = scale(sub(make(beta), alpha), 1 / beta);
    f = sub(alpha, make(beta));
    for (int64_t i = 1; i < n; i++)
        x[i * step] = over(x[i * step], f);
    x[0] = make(beta);
    return tau;
}

/* a (m rows, n columns, `ld` apart) becomes (I - tau v v^H) a, where v[0] = 1
 * and the others stand `step` apart; w: n elements. */
static void
reflect(S *a, int64_t m, int64_t n, int64_t ld, const S *v, int64_t step, S tau,
        S *w)
{
    if (is_zero(tau))
        return;
    memcpy(w, a, (size_t)n * sizeof *w);
    for (int64_t i = 1; i < m; i++)
        row_take(w, a + i * ld, scale(conj_of(v[i * step]), -1), n);
    row_take(a, w, tau, n);
    for (int64_t i = 1; i < m; i++)
        row_take(a + i * ld, w, mul(tau, v[i * step]), n);
}

/* R above, reflectors below; tau: min(m, n), w: n elements. */
static void
qr_factor(S *a, int64_t m, int64_t n, S *tau, S *w)
{
    for (int64_t k = 0; k < m && k < n; k++) {
        S *at = a + k * n + k;

        tau[k] = reflector(at, m - k, n);
        reflect(at + 1, m - k, n - k - 1, n, at, n, conj_of(tau[k]), w);
    }
}

/* q (m x c) becomes Q q, Q of the factored a; w: c elements. */
static void
qr_apply(const S *a, int64_t m, int64_t n, const S *tau, S *q, int64_t c, S *w)
{
    for (int64_t k = (m < n ? m : n) - 1; k >= 0; k--)
        reflect(q + k * c, m - k, c, c, a + k * n + k, n, tau[k], w);
}

static void
qr(mr_dtype t, void *matrix, int64_t m, int64_t n, void *q, void *r_out,
   void *scratch)
{
    S *a = matrix, *r = r_out, *tau = scratch;
    int64_t k = m < n ? m : n;
    S *w = tau + k;
    R back = rescale(a, m * n);

    (void)t;
    qr_factor(a, m, n, tau, w);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++)
            r[i * n + j] = j < i ? make(0) : scale(a[i * n + j], back);
    identity(q, m, k);
    qr_apply(a, m, n, tau, q, k, w);
}

#include "cpu/dense_spectral.h"

#include "cpu/dense_eig.h"

#include "cpu/dense_cofactor.h"

#if !MR_DENSE_COMPLEX
#include "cpu/dense_group.h"
#endif

/* ---- the table --------------------------------------------------------------
 */

static size_t
scratch_bytes(mr_dtype t, mr_dense_job job, int64_t m, int64_t n)
{
    int64_t small = m < n ? m : n, large = m < n ? n : m;
    double count = 0, d = (double)large, s = (double)small;

    (void)t;
    switch (job) {
    case MR_DENSE_LU:
    case MR_DENSE_CHOLESKY:
        break;
    case MR_DENSE_COFACTOR:
        count = 2 * d * d + 2 * d;
        break;
    case MR_DENSE_QR:
        count = s + (double)n;
        break;
    case MR_DENSE_EIGH:
        count = 2 * d * d + 4 * d;
        break;
    case MR_DENSE_SVD:
        count = d * s + d * d + 6 * s * s + 10 * d;
        break;
    case MR_DENSE_SVD_THIN:
        count = 2 * d * s + 6 * s * s + 10 * d;
        break;
    case MR_DENSE_EIG: /* complex, of a real matrix too */
        count = 2 * (3 * d * d + 4 * d);
        break;
    }
    count = (count + 8) * (double)sizeof(S);
    return count > 1e15 ? SIZE_MAX : (size_t)count;
}

const mr_dense MR_DENSE_TABLE = {
    .scratch = scratch_bytes,
    .lu = lu,
    .lu_solve = lu_solve,
    .triangular = triangular,
    .cholesky = cholesky,
    .qr = qr,
    .eigh = eigh,
    .svd = svd,
    .eig = eig,
    .cofactor = cofactor,
#if !MR_DENSE_COMPLEX
    .solve_group = solve_group,
    .group_size = GROUP,
#endif
};

#endif
