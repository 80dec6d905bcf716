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

MR_EXTERN_C_END

#endif
