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

/* Products of bfloat16 with packed rows, in pairs; `matrix` gives the one at an
 * item's offset of b.  False: x has numbers that pairs cannot have, and c is
 * nothing. */
typedef mr_quant_matrix mr__quant_matrix_fn(const void *ctx, int64_t at);
bool mr__quant_pairs_fit(const mr_product *p, const mr_quant_format *f);
size_t mr__quant_pairs_bytes(const mr_product *p, const mr_quant_format *f);
bool mr__quant_pairs(const mr_product *p, const mr_quant_format *f,
                     mr__quant_matrix_fn *matrix, void *workspace);

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
