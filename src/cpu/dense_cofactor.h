/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_cofactor.h -- the cofactors of a matrix, singular or not.
 *
 * They are the gradient of the determinant.  With complete pivoting P A Q =
 * L U, where U = (V u; 0 e), d the product of the diagonal of V:
 *     adj(U) = d (e V^-1, -V^-1 u; 0, 1),  adj(A) = +-Q adj(U) L^-1 P.
 * Nothing is divided by e, so a matrix of rank n - 1 has its true cofactors;
 * a pivot of 0 in V says that the rank is lower and all of them are 0.
 * Part of dense_plain.h.
 */
#ifndef MR_CPU_DENSE_COFACTOR_H
#define MR_CPU_DENSE_COFACTOR_H

#include "cpu/dense_scalar.h"

static void
columns_swap(S *a, int64_t n, int64_t i, int64_t j)
{
    for (int64_t k = 0; i != j && k < n; k++) {
        S x = a[k * n + i];

        a[k * n + i] = a[k * n + j];
        a[k * n + j] = x;
    }
}

static void
orders_swap(int32_t *order, int64_t i, int64_t j)
{
    int32_t x = order[i];

    order[i] = order[j];
    order[j] = x;
}

/* L and U of a; row[i], column[j]: where they stood.  The sign of both
 * permutations together. */
static R
lu_complete(S *a, int64_t n, int32_t *row, int32_t *column)
{
    R sign = 1;

    for (int64_t k = 0; k < n; k++)
        row[k] = column[k] = (int32_t)k;
    for (int64_t k = 0; k < n; k++) {
        int64_t p = k, q = k;

        for (int64_t i = k; i < n; i++)
            for (int64_t j = k; j < n; j++)
                if (size_of(a[i * n + j]) > size_of(a[p * n + q])) {
                    p = i;
                    q = j;
                }
        sign = (p == k) == (q == k) ? sign : -sign;
        rows_swap(a, n, k, p);
        columns_swap(a, n, k, q);
        orders_swap(row, k, p);
        orders_swap(column, k, q);
        if (is_zero(a[k * n + k]))
            break;
        for (int64_t i = k + 1; i < n; i++) {
            S f = over(a[i * n + k], a[k * n + k]);

            a[i * n + k] = f;
            row_take(a + i * n + k + 1, a + k * n + k + 1, f, n - k - 1);
        }
    }
    return sign;
}

/* y (n x n) = adj(U), v: (n - 1)^2 elements. */
static void
adjugate_upper(const S *a, int64_t n, S *y, S *v)
{
    int64_t m = n - 1;
    S d = make(1), e = a[m * n + m];

    for (int64_t i = 0; i < m; i++) {
        d = mul(d, a[i * n + i]);
        for (int64_t j = 0; j < m; j++)
            v[i * m + j] = a[i * n + j];
    }
    identity(y, n, n);
    for (int64_t i = 0; i < m; i++)
        y[i * n + m] = scale(a[i * n + m], -1);
    backward(v, m, y, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            y[i * n + j] = mul(y[i * n + j], j < m ? mul(d, e) : d);
}

static void
cofactor(mr_dtype t, void *matrix, int64_t n, void *result, void *scratch)
{
    S *a = matrix, *out = result, *y = scratch, *v = y + n * n;
    int32_t *row = (int32_t *)(v + n * n), *column = row + n;
    R sign = lu_complete(a, n, row, column);

    (void)t;
    for (int64_t i = 0; i < n * n; i++)
        out[i] = make(0);
    for (int64_t i = 0; i + 1 < n; i++)
        if (is_zero(a[i * n + i]))
            return;
    adjugate_upper(a, n, y, v);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = n - 1; j >= 0; j--)
            row_take(y + i * n, a + j * n, y[i * n + j], j);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            out[row[j] * n + column[i]] = scale(y[i * n + j], sign);
}

#endif
