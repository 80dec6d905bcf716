/* SPDX-License-Identifier: Apache-2.0
 *
 * jit.h -- a JIT provider's table, and the host's table that it gets.
 *
 * A provider makes native code of segments (kernels/native.h) and knows
 * nothing else of us: no arrays, no programs, no threads.  It is a shared
 * object that exports one function, mr_jit_init, and links against nothing of
 * ours: whatever its code calls stands in mr_jit_host.
 */
#ifndef MR_COMPILE_JIT_H
#define MR_COMPILE_JIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "gen/build_hash.h"
#include "kernels/native.h"

#define MR_JIT_ABI 1

/* What a provider may use.  The first four fields keep their places for ever;
 * the rest is what the build hash stands for. */
typedef struct mr_jit_host {
    uint32_t size; /* sizeof(mr_jit_host) in this library */
    uint32_t abi;  /* MR_JIT_ABI there */
    const char *build;
    /* "provider X is of build Y, this library is Z": gives MR_E_DEVICE */
    mr_code (*refuse)(const char *name, const char *build);

    mr_code (*fail)(mr_code code, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
    void *(*alloc)(size_t bytes);
    void (*dealloc)(void *p);
    const char *(*k_name)(mr_k k);
    const char *tier; /* "avx2", "avx512": what is computed must agree with */
    const mr_tier_symbols *symbols;
} mr_jit_host;

/* All functions are called by one thread at a time. */
typedef struct mr_jit_table {
    uint32_t size;     /* sizeof(mr_jit_table) where it was filled in */
    uint32_t abi;      /* MR_JIT_ABI there */
    const char *build; /* MR_BUILD_HASH there */
    const char *name;
    void *self;
    /* Native code for a segment.  *code is given to release when nobody can
     * run it any more; MR_E_UNSUPPORTED: not this one, the others may do. */
    mr_code (*compile)(void *self, const mr_segment *s, mr_native_fn **fn,
                       void **code);
    /* NULL, or the same sooner.  *unfinished: compile's code would be faster.
     */
    mr_code (*compile_quick)(void *self, const mr_segment *s, mr_native_fn **fn,
                             void **code, bool *unfinished);
    void (*release)(void *self, void *code);
    void (*close)(void *self);
} mr_jit_table;

/* Fills the table in, or fails and says why. */
typedef mr_code mr_jit_init_fn(const mr_jit_host *host, mr_jit_table *out);
#define MR_JIT_INIT "mr_jit_init"
#define MR_JIT_FILE "libmarram-jit.so"

#endif
