/* SPDX-License-Identifier: Apache-2.0
 *
 * info.h -- the operators and providers that there are: for tools and
 * bindings.
 */
#ifndef MARRAM_SYS_INFO_H
#define MARRAM_SYS_INFO_H

#include "marram/types.h"

MR_EXTERN_C_BEGIN

/* An operator and what it brings for each transform. */
typedef enum mr_rule_source {
    MR_RULE_OWN = 0,      /* a rule of its own */
    MR_RULE_FALLBACK = 1, /* a general one, correct and slower */
    MR_RULE_NONE = 2      /* not differentiable, and says so */
} mr_rule_source;

typedef struct mr_op_info {
    size_t size;      /* sizeof(mr_op_info) of the caller */
    const char *name; /* immortal */
    int id;
    mr_rule_source vjp, jvp, vmap;
    bool fuses; /* becomes part of block programs */
} mr_op_info;

/* Operator i of 0, 1, ...; MR_E_INDEX past the end. */
MR_API mr_code mr_op_info_at(int i, mr_op_info *out);

/* A provider of devices that was found: loaded, or why not. */
typedef struct mr_provider_info {
    size_t size;         /* sizeof(mr_provider_info) of the caller */
    const char *path;    /* immortal */
    const char *why_not; /* immortal; NULL: it is loaded */
} mr_provider_info;

/* Provider i of 0, 1, ...; MR_E_INDEX past the end.  Loads them. */
MR_API mr_code mr_provider_info_at(int i, mr_provider_info *out);
/* Native code for compiled programs. */
typedef struct mr_jit_info {
    size_t size;              /* sizeof(mr_jit_info) of the caller */
    const char *mode;         /* "off", "background" or "now": MARRAM_JIT */
    bool loaded;              /* the provider is: when a program is warm */
    const char *why_not;      /* NULL, or why there is none; immortal */
    int64_t steps;            /* steps of programs that got code */
    int64_t compiled;         /* pieces of code made, */
    int64_t shared;           /* and found again */
    int64_t failed, declined; /* steps that stay on the interpreter: LLVM
                                 failed; nothing to gain or not covered */
    double seconds;           /* spent by the compile thread */
    double waited;            /* from asking for code to running it: the sum of
                                 all steps, waits in the queue included */
} mr_jit_info;

/* Loads nothing.  MR_E_VALUE when MARRAM_JIT is none of its values. */
MR_API mr_code mr_jit_info_get(mr_jit_info *out);

MR_EXTERN_C_END

#endif
