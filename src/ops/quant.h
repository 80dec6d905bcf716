/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.h -- what the files of the quantised operators share: reading of mode,
 * bits and group size, checks of packed operands.
 */
#ifndef MR_OPS_QUANT_H
#define MR_OPS_QUANT_H

#include "graph/node.h"
#include "graph/op.h"
#include "ops/params.h"

extern const mr_field mr__quant_fields[7];

/* Mode by name, group size and bits (MR_INT_NONE: the mode's) checked. */
mr_code mr__quant_read_params(mr_quant_params *p, int64_t group, int64_t bits,
                              const char *mode);
/* One float32 number, allowed only where the mode has one. */
mr_code mr__quant_check_global(mr_quant_params *p, const mr_array *global);

/* The packed operands: inputs of a node without the absent ones. */
typedef struct mr_quant_operands {
    mr_array *in[3]; /* packed, scales, biases */
    int n;
    int64_t rows, cols;
    mr_dtype scales; /* of affine mode: common type of scales and biases */
} mr_quant_operands;

/* Checked; scales and biases cast to their common type. */
mr_code mr__quant_operands_of(const mr_quant_params *p, mr_array *w,
                              mr_array *scales, mr_array *biases,
                              mr_quant_operands *out);
/* Their values in a float type, as a node or, in float64, composed. */
mr_array *mr__quant_values(const mr_quant_params *p, const mr_quant_operands *o,
                           mr_dtype t);
/* x * global / (448 * 6). */
mr_array *mr__quant_scale_global(mr_array *x, mr_array *global);
/* (..., n) to (..., n / group, group), and its sum over the groups. */
mr_array *mr__quant_grouped(mr_array *x, int64_t group);
/* The codes of packed operands as numbers of t. */
mr_array *mr__quant_codes(const mr_quant_params *p, mr_array *w, mr_dtype t);

#endif
