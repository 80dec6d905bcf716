/* SPDX-License-Identifier: Apache-2.0
 *
 * einsum.h -- how einsum will contract its operands.
 */
#ifndef MARRAM_EINSUM_H
#define MARRAM_EINSUM_H

#include "marram/types.h"

MR_EXTERN_C_BEGIN

/* The order in which mr_einsum(subscripts, operands, n) contracts: the one of
 * fewest operations for up to 8 operands, a greedy one beyond.  Step k of the
 * n - 1 contracts the operands path[2k] < path[2k + 1] of those that are left,
 * takes both away and puts the result at the end; `path` has room for 2 (n - 1)
 * ints, or is NULL.  Gives a report of the numbers of labels and operations, to
 * be freed with mr_text_free; NULL on failure.  Evaluates nothing.  Any
 * thread. */
MR_API char *mr_einsum_path(const char *subscripts, mr_array *const *operands,
                            int n, int *path);

MR_EXTERN_C_END

#endif
