/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax_columns.h -- softmax down columns that lie side by side.
 */
#ifndef MR_CPU_SOFTMAX_COLUMNS_H
#define MR_CPU_SOFTMAX_COLUMNS_H

#include "kernels/program.h"

/* The launch is softmax's own, normalised; 0 and false: it is of another kind.
 * The workspace is aligned to 64 bytes. */
size_t mr__softmax_columns_bytes(mr_dtype t, const mr_block_launch *l);
bool mr__softmax_columns(mr_dtype t, const mr_block_launch *l, void *workspace);

#endif
