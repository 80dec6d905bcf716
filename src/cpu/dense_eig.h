/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_eig.h -- eig of the plain table: the complex QR algorithm.
 *
 * Reduction to Hessenberg form, shifted QR steps by Givens' rotations to the
 * Schur form T = Z^H A Z, vectors of T by substitution (Golub, Van Loan,
 * sections 7.4 to 7.6).  A real matrix is taken as a complex one; its
 * eigenvalues are then paired up, as LAPACK gives them: the one with the
 * positive imaginary part first, its conjugate next.  Part of dense_plain.h.
 */
#ifndef MR_CPU_DENSE_EIG_H
#define MR_CPU_DENSE_EIG_H

#include "cpu/dense_scalar.h"

#if MR_DENSE_COMPLEX

/* a (n x n) becomes Hessenberg; z, or NULL, the unitary change of base; w: 3n
 * elements. */
static void
hessenberg(S *a, int64_t n, S *z, S *w)
{
    S *v = w + n;

    for (int64_t k = 0; k + 2 < n; k++) {
        int64_t m = n - k - 1;
        S *x = a + (k + 1) * n + k, tau = reflector(x, m, n);

        if (is_zero(tau))
            continue;
        for (int64_t i = 0; i < m; i++)
            v[i] = i == 0 ? make(1) : x[i * n];
        for (int64_t i = 1; i < m; i++)
            x[i * n] = make(0);
        reflect(x + 1, m, m, n, v, 1, conj_of(tau), w);
        for (int64_t i = 0; i < 2 * n; i++) { /* a H, then z H */
            S *row = (i < n ? a : z) + i % n * n + k + 1, f = make(0);

            if (i >= n && z == NULL)
                break;
            for (int64_t j = 0; j < m; j++)
                f = add(f, mul(row[j], v[j]));
            f = mul(f, tau);
            for (int64_t j = 0; j < m; j++)
                row[j] = sub(row[j], mul(f, conj_of(v[j])));
        }
    }
}

/* The square root with a real part >= 0. */
static S
root(S x)
{
    R size = modulus(x), p = r_sqrt((size + r_abs(x.re)) / 2), q;

    if (p == 0)
        return make(0);
    q = x.im / (2 * p);
    if (x.re >= 0)
        return (S){p, q};
    return (S){r_abs(q), x.im < 0 ? -p : p};
}

/* The eigenvalue of the last 2 x 2 block that is nearer to its corner
 * (Wilkinson); now and then another, against cycles. */
static S
shift_of(const S *h, int64_t n, int64_t hi, int step)
{
    const S *d = h + hi * n + hi;
    S half, g, r, far;

    if (step % 10 == 0)
        return make(size_of(d[-1]) + (hi > 1 ? size_of(d[-n - 2]) : (R)0));
    half = scale(sub(d[-n - 1], *d), (R)0.5);
    g = mul(d[-1], d[-n]);
    r = root(add(mul(half, half), g));
    far = add(half, r);
    if (norm2(sub(half, r)) > norm2(far))
        far = sub(half, r);
    return is_zero(far) ? *d : sub(*d, over(g, far));
}

/* One step on rows lo to hi, all of h and z kept up; w: 2n elements. */
static void
qr_step(S *h, int64_t n, int64_t lo, int64_t hi, S shift, S *z, S *w)
{
    for (int64_t i = lo; i <= hi; i++)
        h[i * n + i] = sub(h[i * n + i], shift);
    for (int64_t k = lo; k < hi; k++) {
        S *x = h + k * n, *y = x + n, a = x[k], b = y[k];
        R size = r_sqrt(norm2(a) + norm2(b));
        S c = size > 0 ? scale(a, 1 / size) : make(1);
        S s = size > 0 ? scale(b, 1 / size) : make(0);

        w[2 * k] = c;
        w[2 * k + 1] = s;
        for (int64_t j = k; j < n; j++) {
            S p = x[j], q = y[j];

            x[j] = add(mul(conj_of(c), p), mul(conj_of(s), q));
            y[j] = sub(mul(c, q), mul(s, p));
        }
    }
    for (int64_t i = 0; i < (z == NULL ? n : 2 * n); i++) {
        S *row = i < n ? h + i * n : z + (i - n) * n;

        for (int64_t k = lo; k < hi; k++) {
            S c = w[2 * k], s = w[2 * k + 1], p = row[k], q = row[k + 1];

            if (i < n && i > k + 1)
                continue;
            row[k] = add(mul(p, c), mul(q, s));
            row[k + 1] = sub(mul(q, conj_of(c)), mul(p, conj_of(s)));
        }
    }
    for (int64_t i = lo; i <= hi; i++)
        h[i * n + i] = add(h[i * n + i], shift);
}

/* What neighbours on the diagonal hide is zero; where that does not come, among
 * what rounding left of a low rank, what the whole matrix hides. */
static bool
schur(S *h, int64_t n, S *z, S *w)
{
    R least = R_EPS * r_sqrt(row_norm2(h, n * n));
    int step = 0;

    for (int64_t hi = n - 1; hi > 0;) {
        int64_t lo = hi;

        for (; lo > 0; lo--) {
            S *sub_diagonal = h + lo * n + lo - 1;
            R beside =
                size_of(h[lo * n + lo]) + size_of(h[(lo - 1) * n + lo - 1]);

            if (size_of(*sub_diagonal) <= R_EPS * beside ||
                size_of(*sub_diagonal) < (step > 30 ? least : R_MIN)) {
                *sub_diagonal = make(0);
                break;
            }
        }
        if (lo == hi) {
            hi--;
            step = 0;
            continue;
        }
        if (++step > 300)
            return false;
        qr_step(h, n, lo, hi, shift_of(h, n, hi, step), z, w);
    }
    return true;
}

/* v becomes the vectors of the Schur form t with base z, of length 1 and with
 * the largest entry real. */
static void
schur_vectors(const S *t, int64_t n, const S *z, S *v, S *x)
{
    R least = R_EPS * r_max(r_sqrt(row_norm2(t, n * n)), R_MIN);

    for (int64_t k = 0; k < n; k++) {
        R length, big = 0;
        S turn_back = make(1);

        x[k] = make(1);
        for (int64_t i = k - 1; i >= 0; i--) {
            S sum = make(0), d = sub(t[k * n + k], t[i * n + i]);

            for (int64_t j = i + 1; j <= k; j++)
                sum = add(sum, mul(t[i * n + j], x[j]));
            if (size_of(d) < least)
                d = make(least);
            x[i] = over(sum, d);
            if (size_of(x[i]) > R_GROWN)
                for (int64_t j = k; j >= i; j--)
                    x[j] = scale(x[j], 1 / R_GROWN);
        }
        for (int64_t i = 0; i < n; i++) {
            S sum = make(0);

            for (int64_t j = 0; j <= k; j++)
                sum = add(sum, mul(z[i * n + j], x[j]));
            v[i * n + k] = sum;
        }
        length = length_of(v + k, n, n);
        for (int64_t i = 0; i < n; i++)
            if (norm2(v[i * n + k]) > big) {
                big = norm2(v[i * n + k]);
                turn_back =
                    scale(conj_of(v[i * n + k]), 1 / modulus(v[i * n + k]));
            }
        for (int64_t i = 0; i < n && length > 0; i++)
            v[i * n + k] = mul(scale(v[i * n + k], 1 / length), turn_back);
    }
}

static bool
eig(mr_dtype t, void *matrix, int64_t n, void *values, void *vectors,
    void *scratch)
{
    S *a = matrix, *w = values, *z = vectors == NULL ? NULL : scratch;
    S *more = (S *)scratch + n * n;
    R back = rescale(a, n * n);
    bool ok;

    (void)t;
    if (z != NULL)
        identity(z, n, n);
    hessenberg(a, n, z, more);
    ok = schur(a, n, z, more);
    if (ok && z != NULL)
        schur_vectors(a, n, z, vectors, more);
    for (int64_t i = 0; i < n; i++)
        w[i] = scale(a[i * n + i], back);
    return ok;
}

#else

static void
values_swap(C *w, C *v, int64_t n, int64_t i, int64_t j)
{
    C x = w[i];

    w[i] = w[j];
    w[j] = x;
    for (int64_t k = 0; v != NULL && k < n; k++) {
        x = v[k * n + i];
        v[k * n + i] = v[k * n + j];
        v[k * n + j] = x;
    }
}

/* How far w[j] is from the conjugate of w[i]. */
static R
pair_gap(const C *w, int64_t i, int64_t j)
{
    R x = w[i].re - w[j].re, y = w[i].im + w[j].im;

    return x * x + y * y;
}

/* Eigenvalues of a real matrix: each is real or followed by its conjugate. */
static void
values_pair(C *w, C *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t best = i;

        for (int64_t j = i + 1; j < n; j++)
            if (pair_gap(w, i, j) < pair_gap(w, i, best))
                best = j;
        if (best == i) {
            w[i].im = 0;
            for (int64_t k = 0; v != NULL && k < n; k++)
                v[k * n + i].im = 0;
            continue;
        }
        values_swap(w, v, n, i + 1, best);
        if (w[i].im < 0)
            values_swap(w, v, n, i, i + 1);
        w[i + 1] = (C){w[i].re, -w[i].im};
        for (int64_t k = 0; v != NULL && k < n; k++)
            v[k * n + i + 1] = (C){v[k * n + i].re, -v[k * n + i].im};
        i++;
    }
}

static bool
eig(mr_dtype t, void *matrix, int64_t n, void *values, void *vectors,
    void *scratch)
{
    const mr_dense *wide = MR_DENSE_DOUBLE ? &mr__dense_c128 : &mr__dense_c64;
    const S *a = matrix;
    C *c = scratch;

    (void)t;
    for (int64_t i = 0; i < n * n; i++)
        c[i] = (C){a[i], 0};
    if (!wide->eig(MR_DENSE_DOUBLE ? MR_COMPLEX128 : MR_COMPLEX64, c, n, values,
                   vectors, c + n * n))
        return false;
    values_pair(values, vectors, n);
    return true;
}

#endif

#endif
