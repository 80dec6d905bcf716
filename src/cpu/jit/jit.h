/* SPDX-License-Identifier: Apache-2.0
 *
 * jit.h -- the inside of the LLVM provider.
 */
#ifndef MR_CPU_JIT_JIT_H
#define MR_CPU_JIT_JIT_H

#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/TargetMachine.h>
#include <stdbool.h>

#include "compile/jit.h"

typedef struct mr_jit {
    const mr_jit_host *host;
    bool avx512;
    int points; /* of a register */
    LLVMTargetMachineRef target;
    LLVMOrcLLJITRef lljit;
    uint64_t n_made; /* functions: each has a name of its own */
    bool broken;     /* LLVM failed fatally and may not be called again */
    char fatal_text[256];
} mr_jit;

/* emit.c: a module with the function `name` for this segment, the definitions
 * that it calls linked in; NULL with the error set. */
LLVMModuleRef mr__jit_emit(const mr_jit *j, LLVMContextRef context,
                           const mr_segment *s, const char *name);

#endif
