/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.h -- rows of the kernel table for quantised arrays, and how their
 * operands are read as packed matrices.
 */
#ifndef MR_CPU_QUANT_H
#define MR_CPU_QUANT_H

#include <stddef.h>

#include "cpu/cpu.h"
#include "cpu/product.h"
#include "kernels/quant.h"
#include "ops/params.h"

/* How the operator's parameters pack, with scales of a type. */
mr_quant_format mr__quant_format(const mr_quant_params *p, mr_dtype scales);
/* The first matrix of packed operands (row-major; biases only read in affine
 * mode). */
mr_quant_matrix mr__quant_matrix(const mr_quant_params *p,
                                 const mr_kernel_view *w,
                                 const mr_kernel_view *scales,
                                 const mr_kernel_view *biases);

/* Products of bfloat16 with packed rows, in pairs (kernels/quant_pairs.h).  A
 * run is m <= MR_STRIP_ROWS rows of x, that lie anywhere; packed it takes
 * mr__quant_pairs_floats (64-byte aligned). */
int64_t mr__quant_pairs_lanes(int64_t m);
int64_t mr__quant_pairs_floats(const mr_quant_format *f, int64_t m, int64_t k);
/* Numbers [at, at + MR_QUANT_PAIRS_DEPTH) of 32 rows of a run.  False: pairs
 * cannot have some number. */
bool mr__quant_pairs_pack(const mr_quant_format *f, const uint16_t *const *x,
                          int64_t m, int64_t k, int64_t block, int64_t at,
                          float *to);
/* y (MR_QUANT_PAIRS_ROWS rows of mr__quant_pairs_lanes(m)) = rows row0 ... of w
 * times the run. */
void mr__quant_pairs_strip(const mr_quant_matrix *w, int64_t m,
                           const float *packed, int64_t row0, float *y);

/* The same of floats (kernels/quant_floats.h): mr__quant_floats_floats (64-byte
 * aligned), rows of type t, y (MR_QUANT_FLOATS_ROWS rows of
 * mr__quant_floats_lanes(m)). */
int64_t mr__quant_floats_lanes(int64_t m);
int64_t mr__quant_floats_floats(int64_t m, int64_t k);
void mr__quant_floats_pack(const void *const *x, mr_dtype t, int64_t m,
                           int64_t k, int64_t block, int64_t at, float *to);
void mr__quant_floats_strip(const mr_quant_matrix *w, int64_t m,
                            const float *packed, int64_t row0, float *y);

/* The same of floats or halves on the matrix unit (kernels/quant_pieces.h).
 * Blocks are of 16 rows, `at` is a multiple of MR_QUANT_PIECES_DEPTH; y has
 * MR_QUANT_PIECES_ROWS rows of mr__quant_pieces_lanes(m), of which the first m
 * numbers are those of the run; `room` is as large.  mr__quant_pieces_rows
 * gives the rows of a block that can be none (mr_quant_x), bit i the ith. */
typedef struct mr_quant_run {
    int64_t m;
    int pieces;
    const float *packed;
} mr_quant_run;

int64_t mr__quant_pieces_lanes(int64_t m);
int64_t mr__quant_pieces_floats(const mr_quant_format *f, mr_dtype t, int64_t m,
                                int64_t k);
/* At most so many for n rows in up to `runs` runs. */
int64_t mr__quant_pieces_most(const mr_quant_format *f, mr_dtype t, int64_t n,
                              int64_t runs, int64_t k);
uint32_t mr__quant_pieces_rows(const mr_quant_format *f, const void *const *x,
                               mr_dtype t, int64_t m, int64_t k, int64_t block,
                               int64_t at, float *to);
void mr__quant_pieces_strip(const mr_quant_matrix *w, const mr_quant_run *run,
                            int64_t row0, float *y, float *room);

mr_code mr__cpu_quantize(const mr_kernel_args *a);
mr_code mr__cpu_quantize_float(const mr_kernel_args *a);
mr_code mr__cpu_quantize_round(const mr_kernel_args *a);
mr_code mr__cpu_dequantize(const mr_kernel_args *a);
mr_code mr__cpu_to_fp8(const mr_kernel_args *a);
mr_code mr__cpu_from_fp8(const mr_kernel_args *a);

mr_code mr__cpu_quantized_matmul(const mr_kernel_args *a);
size_t mr__cpu_quantized_matmul_workspace(const mr_kernel_args *a);
double mr__cpu_quantized_matmul_cost(const mr_kernel_args *a);
mr_code mr__cpu_gather_qmm(const mr_kernel_args *a);
size_t mr__cpu_gather_qmm_workspace(const mr_kernel_args *a);

#endif
