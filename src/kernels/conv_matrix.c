/* SPDX-License-Identifier: Apache-2.0
 *
 * conv_matrix.c -- whether convolutions have a matrix unit.
 *
 * Called by: cpu/conv_matrix.c, cpu/conv_matrix_back.c.  Calls: dispatch.c.
 */
#include "kernels/conv_matrix.h"

#include <stddef.h>

const mr_conv_matrix *
mr__conv_matrix(void)
{
#if defined(__x86_64__)
    return mr__gemm_matrix() ? &mr__conv_matrix_avx512 : NULL;
#else
    return NULL;
#endif
}
