/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_spectral.h -- eigh and svd of the plain table, by Jacobi's rotations.
 *
 * eigh: the classical method, cyclic by rows (Golub, Van Loan, section 8.5).
 * svd: A = Q R, then one-sided rotations on R^H, which converge faster there
 * (Z. Drmac, K. Veselic, "New fast and accurate Jacobi SVD algorithm", 2008).
 * Both rotate rows that lie together in memory.  Part of dense_plain.h.
 */
#ifndef MR_CPU_DENSE_SPECTRAL_H
#define MR_CPU_DENSE_SPECTRAL_H

#include "cpu/dense_scalar.h"

/* Rotations never make it worse: after so many sweeps only rounding is left. */
enum { MAX_SWEEPS = 40 };

typedef struct turn {
    R c, s, t;
    S phase; /* conj(g) / |g| */
} turn;

/* The rotation that makes the Hermitian matrix (a, g; conj(g), b) diagonal:
 * x' = c x - s z, y' = s x + c z, z = phase y. */
static turn
turn_of(R a, R b, S g)
{
    R size = modulus(g), theta = (b - a) / (2 * size);
    turn j;

    j.t = 1 / (r_abs(theta) + r_sqrt(theta * theta + 1));
    if (theta < 0)
        j.t = -j.t;
    j.c = 1 / r_sqrt(j.t * j.t + 1);
    j.s = j.t * j.c;
    j.phase = scale(conj_of(g), 1 / size);
    return j;
}

static void
rows_turn(S *restrict x, S *restrict y, int64_t n, const turn *j)
{
    for (int64_t i = 0; i < n; i++) {
        S z = mul(j->phase, y[i]), old = x[i];

        x[i] = sub(scale(old, j->c), scale(z, j->s));
        y[i] = add(scale(old, j->s), scale(z, j->c));
    }
}

/* Rows and columns p and q of the Hermitian a.  The row of a column vector of
 * the eigenvectors turns as a column does; rows of a turn by the conjugate. */
static void
eigh_turn(S *a, int64_t n, int64_t p, int64_t q, const turn *j)
{
    turn row = *j;
    R d = j->t * modulus(a[p * n + q]);
    R dp = real(a[p * n + p]) - d, dq = real(a[q * n + q]) + d;

    row.phase = conj_of(j->phase);
    rows_turn(a + p * n, a + q * n, n, &row);
    for (int64_t k = 0; k < n; k++) {
        a[k * n + p] = conj_of(a[p * n + k]);
        a[k * n + q] = conj_of(a[q * n + k]);
    }
    a[p * n + p] = make(dp);
    a[q * n + q] = make(dq);
    a[p * n + q] = a[q * n + p] = make(0);
}

/* order[i]: which value comes i-th. */
static void
sort_order(const R *w, int64_t n, bool descending, int32_t *order)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i;

        while (at > 0 && (descending ? w[order[at - 1]] < w[i]
                                     : w[order[at - 1]] > w[i])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = (int32_t)i;
    }
}

/* Sweeps until all of a beside the diagonal is lost in its norm; v: rows that
 * turn along, or NULL. */
static void
eigh_sweeps(S *a, int64_t n, S *v)
{
    R small = R_EPS * r_sqrt(row_norm2(a, n * n)) / (R)(2 * n);

    for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
        bool turned = false;

        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                turn j;

                if (!(size_of(a[p * n + q]) > small))
                    continue;
                j = turn_of(real(a[p * n + p]), real(a[q * n + q]),
                            a[p * n + q]);
                eigh_turn(a, n, p, q, &j);
                if (v != NULL)
                    rows_turn(v + p * n, v + q * n, n, &j);
                turned = true;
            }
        if (!turned)
            break;
    }
}

static bool
eigh(mr_dtype t, void *matrix, int64_t n, void *values, bool vectors,
     void *scratch)
{
    S *a = matrix, *v = vectors ? scratch : NULL;
    R *w = values, *found = (R *)((S *)scratch + n * n);
    int32_t *order = (int32_t *)(found + n);
    R back;

    (void)t;
    for (int64_t i = 0; i < n; i++) {
        a[i * n + i] = make(real(a[i * n + i]));
        for (int64_t j = 0; j < i; j++)
            a[j * n + i] = conj_of(a[i * n + j]);
    }
    back = rescale(a, n * n);
    if (v != NULL)
        identity(v, n, n);
    eigh_sweeps(a, n, v);
    for (int64_t i = 0; i < n; i++)
        found[i] = real(a[i * n + i]);
    sort_order(found, n, false, order);
    for (int64_t i = 0; i < n; i++) {
        w[i] = found[order[i]] * back;
        for (int64_t k = 0; v != NULL && k < n; k++)
            a[k * n + i] = v[order[i] * n + k];
    }
    return true;
}

/* ---- svd
 * ---------------------------------------------------------------------
 * x: rows that become orthogonal; v: rows that turn along, or NULL. */
static void
svd_sweeps(S *x, int64_t n, S *v)
{
    R small = R_EPS * (R)(n + 2);

    for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
        bool turned = false;

        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                S *xp = x + p * n, *xq = x + q * n;
                R a = row_norm2(xp, n), b = row_norm2(xq, n);
                S g = row_dot(xp, xq, n);
                turn j;

                if (!(modulus(g) > small * r_sqrt(a) * r_sqrt(b)) ||
                    a < R_MIN || b < R_MIN)
                    continue;
                j = turn_of(a, b, g);
                rows_turn(xp, xq, n, &j);
                if (v != NULL)
                    rows_turn(v + p * n, v + q * n, n, &j);
                turned = true;
            }
        if (!turned)
            break;
    }
}

/* Rows of x become of length 1; where one is 0 the rows, as columns, go
 * through a QR, which fills the gap.  s: their lengths. */
static void
rows_normalise(S *x, const R *s, int64_t n, S *scratch)
{
    S *c = scratch, *q = c + n * n, *tau = q + n * n, *w = tau + n;
    bool gap = false;

    for (int64_t j = 0; j < n; j++)
        gap = gap || !(s[j] > r_sqrt(R_MIN));
    if (!gap) {
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < n; i++)
                x[j * n + i] = scale(x[j * n + i], 1 / s[j]);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * n + j] =
                s[j] > r_sqrt(R_MIN) ? scale(x[j * n + i], 1 / s[j]) : make(0);
    qr_factor(c, n, n, tau, w);
    identity(q, n, n);
    qr_apply(c, n, n, tau, q, n, w);
    for (int64_t j = 0; j < n; j++) {
        S sign = s[j] > r_sqrt(R_MIN) ? c[j * n + j] : make(1);

        for (int64_t i = 0; i < n; i++)
            x[j * n + i] = mul(q[i * n + j], sign);
    }
}

/* m >= n.  A = Q R, R^H V = X with orthogonal columns x_j = s_j z_j, kept as
 * rows: A = (Q V) S Z^H. */
static void
svd_tall(S *a, int64_t m, int64_t n, S *u, int64_t nu, R *s, S *vt, S *scratch)
{
    S *x = scratch, *v = x + n * n, *sorted = v + n * n, *more = sorted + n * n;
    S *tau = more + 2 * n * n + 2 * n, *w = tau + n;
    R *found = (R *)(w + m);
    int32_t *order = (int32_t *)(found + n);
    R back = rescale(a, m * n);

    qr_factor(a, m, n, tau, w);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            x[i * n + j] = j < i ? make(0) : conj_of(a[i * n + j]);
    identity(v, n, n);
    svd_sweeps(x, n, u == NULL ? NULL : v);
    for (int64_t j = 0; j < n; j++)
        found[j] = length_of(x + j * n, n, 1);
    sort_order(found, n, true, order);
    for (int64_t j = 0; j < n; j++) {
        s[j] = found[order[j]];
        memcpy(sorted + j * n, x + order[j] * n, (size_t)n * sizeof *x);
    }
    if (u != NULL) {
        rows_normalise(sorted, s, n, more);
        for (int64_t i = 0; i < n * n; i++)
            vt[i] = conj_of(sorted[i]);
        identity(u, m, nu);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                u[i * nu + j] = v[order[j] * n + i];
        qr_apply(a, m, n, tau, u, nu, w);
    }
    for (int64_t j = 0; j < n; j++)
        s[j] *= back;
}

static bool
svd(mr_dtype t, void *a, int64_t m, int64_t n, void *u, int64_t nu, void *s,
    void *vt, int64_t nv, void *scratch)
{
    S *turned = scratch, *their_u, *their_vt;

    (void)t;
    if (m >= n) {
        svd_tall(a, m, n, u, nu, s, vt, scratch);
        return true;
    }
    their_u = turned + m * n;
    their_vt = their_u + n * nv;
    adjoint(turned, a, m, n);
    if (u == NULL) {
        svd_tall(turned, n, m, NULL, 0, s, NULL, their_u);
        return true;
    }
    svd_tall(turned, n, m, their_u, nv, s, their_vt, their_vt + m * m);
    adjoint(u, their_vt, m, m);
    adjoint(vt, their_u, n, nv);
    return true;
}

#endif
