/* SPDX-License-Identifier: Apache-2.0
 *
 * bitcode.h -- the scalar definitions as LLVM bitcode, embedded.
 */
#ifndef MR_CPU_JIT_BITCODE_H
#define MR_CPU_JIT_BITCODE_H

#include <stddef.h>

typedef struct mr_bitcode {
    const char *data;
    size_t bytes;
} mr_bitcode;

/* The casts stand behind the dtypes. */
#define MR_BITCODE_CASTS MR_N_DTYPES
#define MR_N_BITCODE     (MR_N_DTYPES + 1)

/* Of a dtype, or of the casts, for the tier; avx512 else avx2. */
mr_bitcode mr__bitcode(int which, int avx512);
/* Points of a register in it. */
int mr__bitcode_points(int avx512);

#endif
