/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_group.h -- small systems side by side, for one real element type.
 *
 * A lane of the vectors is a matrix: entry (i, j) of GROUP matrices lies
 * together, so Gauss's elimination of all of them is one run of vector
 * instructions, without a branch: rows are exchanged by masks.  Each lane does
 * what lu and lu_solve of dense_plain.h do, operation by operation, so what a
 * matrix gives does not depend on its company.
 * Included by dense_plain.h.
 */
#ifndef MR_CPU_DENSE_GROUP_H
#define MR_CPU_DENSE_GROUP_H

#include "cpu/dense_scalar.h"

#if MR_DENSE_DOUBLE
typedef int64_t I;
#else
typedef int32_t I;
#endif
/* What every x86-64 and ARMv8 has. */
typedef R V __attribute__((vector_size(16), may_alias));
typedef I M __attribute__((vector_size(16), may_alias));

/* WIDE vectors to a value: independent work for the dividers. */
enum { LANES = 16 / sizeof(R), WIDE = 4, GROUP = LANES * WIDE };
_Static_assert((int)GROUP <= (int)MR_DENSE_GROUP, "a group fits its pointers");

typedef V value[WIDE];

static inline M
splat(I x)
{
    M m = {0}; /* or instrumented code looks unset to the compiler */

    for (int l = 0; l < LANES; l++)
        m[l] = x;
    return m;
}

static inline V
absolute(V x)
{
    return (V)((M)x & ~splat((I)((uint64_t)1 << (8 * sizeof(I) - 1))));
}

/* Rows of `columns` values: for each lane the row with the largest entry in
 * column k comes to row k, the first of several. */
__attribute__((always_inline)) static inline void
group_pivot(value *x, int64_t n, int64_t columns, int64_t k)
{
    V big[WIDE];
    M top[WIDE];

    for (int u = 0; u < WIDE; u++) {
        big[u] = absolute(x[k * columns + k][u]);
        top[u] = splat((I)k);
    }
    for (int64_t i = k + 1; i < n; i++)
        for (int u = 0; u < WIDE; u++) {
            V size = absolute(x[i * columns + k][u]);
            M more = (M)(size > big[u]);

            big[u] = (V)(((M)size & more) | ((M)big[u] & ~more));
            top[u] = (splat((I)i) & more) | (top[u] & ~more);
        }
    for (int64_t i = k + 1; i < n; i++) {
        M here[WIDE];

        for (int u = 0; u < WIDE; u++)
            here[u] = (M)(top[u] == splat((I)i));
        for (int64_t j = k; j < columns; j++)
            for (int u = 0; u < WIDE; u++) {
                V *p = &x[k * columns + j][u], *q = &x[i * columns + j][u];
                M d = ((M)*p ^ (M)*q) & here[u];

                *p = (V)((M)*p ^ d);
                *q = (V)((M)*q ^ d);
            }
    }
}

/* (A b) becomes (U a^-1 b); which lanes met a pivot of 0. */
__attribute__((always_inline)) static inline void
group_eliminate(value *x, int64_t n, int64_t columns, M *singular)
{
    for (int64_t k = 0; k < n; k++) {
        group_pivot(x, n, columns, k);
        for (int u = 0; u < WIDE; u++)
            singular[u] |= (M)(x[k * columns + k][u] == (V)splat(0));
        for (int64_t i = k + 1; i < n; i++) {
            V f[WIDE];

            for (int u = 0; u < WIDE; u++)
                f[u] = x[i * columns + k][u] / x[k * columns + k][u];
            for (int64_t j = k + 1; j < columns; j++)
                for (int u = 0; u < WIDE; u++)
                    x[i * columns + j][u] -= f[u] * x[k * columns + j][u];
        }
    }
    for (int64_t i = n - 1; i >= 0; i--)
        for (int64_t c = n; c < columns; c++)
            for (int u = 0; u < WIDE; u++) {
                V sum = x[i * columns + c][u];

                for (int64_t j = i + 1; j < n; j++)
                    sum -= x[i * columns + j][u] * x[j * columns + c][u];
                x[i * columns + c][u] = sum / x[i * columns + i][u];
            }
}

/* Lane l of the values from column `at` on: rows x width of the matrix. */
static inline void
group_load(R *x, int64_t l, int64_t columns, int64_t at, int64_t width,
           const mr_dense_group *g, const R *from, const int64_t *step)
{
    for (int64_t i = 0; i < g->n; i++)
        for (int64_t j = 0; j < width; j++)
            x[(i * columns + at + j) * GROUP + l] =
                from == NULL ? (R)(i == j) : from[i * step[0] + j * step[1]];
}

static uint32_t
solve_group(const mr_dense_group *g)
{
    value x[2 * MR_DENSE_GROUPED * MR_DENSE_GROUPED];
    M singular[WIDE] = {splat(0), splat(0), splat(0), splat(0)};
    int64_t columns = g->n + g->k;
    uint32_t out = 0;
    R *flat = (R *)(void *)x;

    for (int64_t l = 0; l < GROUP; l++) { /* the last one fills the group */
        int64_t which = l < g->count ? l : g->count - 1;

        group_load(flat, l, columns, 0, g->n, g, g->a[which], g->a_step);
        group_load(flat, l, columns, g->n, g->k, g, g->b[which], g->b_step);
    }
    if (g->n == 4 && g->k == 1)
        group_eliminate(x, 4, 5, singular);
    else if (g->n == 4 && g->k == 4)
        group_eliminate(x, 4, 8, singular);
    else if (g->n == 3 && g->k == 1)
        group_eliminate(x, 3, 4, singular);
    else
        group_eliminate(x, g->n, columns, singular);
    for (int64_t l = 0; l < g->count; l++) {
        R *to = g->x[l];

        for (int64_t i = 0; i < g->n; i++)
            for (int64_t c = 0; c < g->k; c++)
                to[i * g->k + c] = flat[(i * columns + g->n + c) * GROUP + l];
        out |= singular[l / LANES][l % LANES] != 0 ? 1U << l : 0U;
    }
    return out;
}

#endif
