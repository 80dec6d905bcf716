/* SPDX-License-Identifier: Apache-2.0
 *
 * dense.h -- factorizations of one matrix: a table of functions for each
 * element type, twice.
 *
 * The plain tables (dense_f32.c and its three sisters, all of dense_plain.h)
 * are complete and small: they serve matrices of up to MR_DENSE_SMALL rows and
 * columns, where a call of LAPACK costs more than the work, and everything
 * where there is no LAPACK.  The other tables (lapack.c) call the private
 * OpenBLAS.  Both keep LAPACK's conventions: signs of Householder's QR,
 * ascending eigenvalues, descending singular values.
 *
 * All matrices are row-major without gaps, of the table's type t.  `scratch`
 * has as many bytes as .scratch says, 64-aligned.  NaN and infinities end no
 * loop late; eigh, svd and eig want finite numbers.
 */
#ifndef MR_CPU_DENSE_H
#define MR_CPU_DENSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "marram/types.h"

enum { MR_DENSE_SMALL = 16 };
/* Systems of up to so many rows and columns are solved in groups; the most
 * that a group has. */
enum { MR_DENSE_GROUPED = 8, MR_DENSE_GROUP = 16 };

typedef enum mr_dense_job {
    MR_DENSE_LU,
    MR_DENSE_COFACTOR,
    MR_DENSE_CHOLESKY,
    MR_DENSE_QR,
    MR_DENSE_EIGH,
    MR_DENSE_SVD,      /* with u and vt full */
    MR_DENSE_SVD_THIN, /* or values alone */
    MR_DENSE_EIG
} mr_dense_job;

/* Systems a (n x n), b (n x k; NULL: the identity) by strides in elements
 * between rows and between columns; x (n x k) without gaps. */
typedef struct mr_dense_group {
    int64_t n, k, count;
    int64_t a_step[2], b_step[2];
    const void *a[MR_DENSE_GROUP], *b[MR_DENSE_GROUP];
    void *x[MR_DENSE_GROUP];
} mr_dense_group;

typedef struct mr_dense {
    /* Bytes for a job on an m x n matrix; with_vectors: the largest form of
     * eigh, svd and eig.  0 bytes are allowed; SIZE_MAX: too large. */
    size_t (*scratch)(mr_dtype t, mr_dense_job job, int64_t m, int64_t n);
    /* a (m x n) becomes L (unit, below the diagonal) and U; row i was swapped
     * with row pivot[i], i < min(m, n), in this order. */
    void (*lu)(mr_dtype t, void *a, int64_t m, int64_t n, int32_t *pivot,
               void *scratch);
    /* b (n x k) becomes a^-1 b, a square and factored. */
    void (*lu_solve)(mr_dtype t, const void *a, const int32_t *pivot, int64_t n,
                     void *b, int64_t k);
    /* b (n x k) becomes a^-1 b; only the triangle is read. */
    void (*triangular)(mr_dtype t, const void *a, bool upper, int64_t n,
                       void *b, int64_t k);
    /* The lower triangle of a becomes its factor; the upper one stays.  The
     * order of the first leading minor that is not positive, or 0. */
    int64_t (*cholesky)(mr_dtype t, void *a, int64_t n);
    /* a (m x n) is lost; q (m x k), r (k x n), k = min(m, n). */
    void (*qr)(mr_dtype t, void *a, int64_t m, int64_t n, void *q, void *r,
               void *scratch);
    /* Eigenvalues of the Hermitian matrix whose lower triangle a has, into w
     * (real); with `vectors` a becomes theirs, in columns, else it is lost. */
    bool (*eigh)(mr_dtype t, void *a, int64_t n, void *w, bool vectors,
                 void *scratch);
    /* a (m x n) is lost; s (min(m, n), real).  u (m x nu), vt (nv x n): nu is
     * m or min(m, n), nv alike (both full or both thin); u NULL: s alone. */
    bool (*svd)(mr_dtype t, void *a, int64_t m, int64_t n, void *u, int64_t nu,
                void *s, void *vt, int64_t nv, void *scratch);
    /* a (n x n) is lost; w (n) and v (n x n, vectors in columns of length 1,
     * or NULL) are complex of a's precision. */
    bool (*eig)(mr_dtype t, void *a, int64_t n, void *w, void *v,
                void *scratch);
    /* a (n x n) is lost; out: its cofactors, singular or not. */
    void (*cofactor)(mr_dtype t, void *a, int64_t n, void *out, void *scratch);
    /* x = a^-1 b, with lu's and lu_solve's bits, of `count` systems, at most
     * group_size (0: there is no such function), n and k at most
     * MR_DENSE_GROUPED.  Bit l: system l is singular, its x is nothing. */
    uint32_t (*solve_group)(const mr_dense_group *g);
    int64_t group_size;
} mr_dense;

extern const mr_dense mr__dense_f32, mr__dense_f64, mr__dense_c64,
    mr__dense_c128;

/* The table for an m x n matrix; by job, type and shape alone.  eig is
 * LAPACK's at all sizes, for the order of its eigenvalues. */
const mr_dense *mr__dense_for(mr_dtype t, mr_dense_job job, int64_t m,
                              int64_t n);

#endif
