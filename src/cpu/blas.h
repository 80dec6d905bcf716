/* SPDX-License-Identifier: Apache-2.0
 *
 * blas.h -- the private OpenBLAS, opened at first use.
 *
 * One thread, no shared state with any other BLAS of the process: Marram
 * splits the work itself.  All calls are row-major without conjugation.
 */
#ifndef MR_CPU_BLAS_H
#define MR_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

#include "marram/types.h"

/* c (m x n, rows ldc apart) = a @ b, or c += a @ b when `add`.  With
 * trans_a the memory holds the transpose of a, rows lda apart.  All sizes and
 * leading dimensions fit int32. */
typedef struct mr_blas_gemm {
    bool trans_a, trans_b, add;
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
} mr_blas_gemm;

/* Is there a library to call?  Opens it at the first call. */
bool mr__blas_ready(void);
/* The processor whose kernels the library chose ("SkylakeX"); NULL without a
 * library. */
const char *mr__blas_core(void);
/* The address of a further function of the library, to *fn, a pointer to a
 * function; false: it has none, or there is no library. */
bool mr__blas_symbol(const char *name, void *fn);
/* t is float32, float64, complex64 or complex128. */
void mr__blas_run(mr_dtype t, const mr_blas_gemm *g);

#endif
