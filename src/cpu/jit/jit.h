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

#define MR_JIT_REGISTERS (MR_CODE_MAX_IO * 4 + MR_NATIVE_OPS)

/* The loops of a segment, by its registers. */
typedef struct mr_stages {
    int n;                           /* stages; 1: nothing below matters */
    int n_slot;                      /* for what goes from one to another */
    int strip;                       /* registers that a slot holds */
    uint16_t of[MR_JIT_REGISTERS];   /* the stage that computes it; inputs: 0 */
    uint16_t last[MR_JIT_REGISTERS]; /* the last one that reads it */
    int16_t slot[MR_JIT_REGISTERS];  /* or -1 */
} mr_stages;

/* stages.c: bytes: the largest register of the segment. */
void mr__jit_stages(mr_stages *t, const mr_segment *s, int64_t bytes);

/* emit.c: a module with the function `name` for this segment, the definitions
 * that it calls linked in; NULL with the error set. */
LLVMModuleRef mr__jit_emit(const mr_jit *j, LLVMContextRef context,
                           const mr_segment *s, const char *name);

/* The function is built for the processor of what is inlined into it. */
void mr__jit_processor_set(const mr_jit *j, LLVMContextRef context,
                           LLVMValueRef fn);

/* weave.c: the loops of an optimised function take several registers at a
 * time, where that is faster.  past: such loops store past the caches what does
 * not lie on the stack. */
void mr__jit_weave(const mr_jit *j, LLVMContextRef context, LLVMValueRef fn,
                   bool past);

/* Would it do anything? */
bool mr__jit_can_weave(const mr_jit *j, LLVMContextRef context,
                       LLVMValueRef fn);

#endif
