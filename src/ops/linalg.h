/* SPDX-License-Identifier: Apache-2.0
 *
 * linalg.h -- what the files of linear algebra share: checks of their doors,
 * inference, batching, small matrix arithmetic for rules.
 */
#ifndef MR_OPS_LINALG_H
#define MR_OPS_LINALG_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/node.h"
#include "graph/op.h"
#include "marram/types.h"
#include "ops/params.h"

/* ---- doors --------------------------------------------------------------- */

typedef enum mr_linalg_types {
    MR_LINALG_REAL,   /* float32, float64 */
    MR_LINALG_COMPLEX /* and complex64, complex128 */
} mr_linalg_types;

/* Matrices in the last two axes, of one of these dtypes. */
mr_code mr__linalg_check(const mr_array *a, mr_linalg_types types);
mr_code mr__linalg_square(const mr_array *a, mr_linalg_types types);
/* Half types, integers and bool as float32. */
mr_array *mr__linalg_widen(mr_array *a);

/* A node of one or two inputs; NULL inputs give NULL. */
mr_array *mr__linalg_node(const mr_op *op, const void *params, mr_array *a);
mr_array *mr__linalg_node2(const mr_op *op, const void *params, mr_array *a,
                           mr_array *b);
/* Result k of a tuple node, or NULL. */
mr_array *mr__linalg_output(mr_array *tuple, int k);
/* The first n results of a tuple node. */
mr_tree *mr__linalg_outputs(mr_array *tuple, int n);

/* ---- inference, batching ------------------------------------------------- */

/* The batch axes of a, then rows x columns; then n. */
void mr__aval_matrix(mr_aval *out, mr_dtype t, const mr_array *a, int64_t rows,
                     int64_t columns);
void mr__aval_vector(mr_aval *out, mr_dtype t, const mr_array *a, int64_t n);
/* All inputs with the batch in front: it is a batch axis like another. */
mr_array *mr__linalg_vmap(const mr_batch *b);

/* ---- arithmetic ---------------------------------------------------------- */

static inline int64_t
mr__rows(const mr_array *a)
{
    return a->dim[a->ndim - 2];
}

static inline int64_t
mr__columns(const mr_array *a)
{
    return a->dim[a->ndim - 1];
}

mr_array *mr__transposed(mr_array *x);
mr_array *mr__adjoint(mr_array *x);
/* (x + x^H) / 2 */
mr_array *mr__hermitian(mr_array *x);
/* x (..., n) as a row or a column that broadcasts over matrices. */
mr_array *mr__as_row(mr_array *x);
mr_array *mr__as_column(mr_array *x);
/* The diagonal (..., n), and the matrix (..., n, n) that has it. */
mr_array *mr__diagonal_of(mr_array *x);
mr_array *mr__diagonal_matrix(mr_array *x);
/* 1 / x, 0 where x is 0. */
mr_array *mr__reciprocal_or_zero(mr_array *x);
/* w[j] - w[i] at (i, j). */
mr_array *mr__differences(mr_array *w);
/* The sum of a * b over rows: (..., n). */
mr_array *mr__column_dots(mr_array *a, mr_array *b);
/* Real parts, in the dtype of `like`. */
mr_array *mr__as_real(mr_array *x, const mr_array *like);
/* rows begin to end of axis -2, columns of axis -1 (MR_INT_NONE: the end). */
mr_array *mr__rows_of(mr_array *x, int64_t begin, int64_t end);
mr_array *mr__columns_of(mr_array *x, int64_t begin, int64_t end);

/* Is rtol, real, one number or one for each matrix of a? */
mr_code mr__linalg_rtol(const mr_array *a, mr_array *rtol);

/* a^-1 b of matrices with one batch, of any floating or complex dtype. */
mr_array *mr__solved(mr_array *a, mr_array *b);
mr_array *mr__solved_triangular(mr_array *a, mr_array *b, bool upper);
/* b a^-1 of a triangular a. */
mr_array *mr__over_triangular(mr_array *b, mr_array *a, bool upper);

#endif
