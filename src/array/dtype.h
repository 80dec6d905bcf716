/* SPDX-License-Identifier: Apache-2.0
 *
 * dtype.h -- facts about element types: sizes, kinds, names, promotion.
 *
 * Tables indexed by mr_dtype, made once.  Knows no array.
 */
#ifndef MR_ARRAY_DTYPE_H
#define MR_ARRAY_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "marram/types.h"

typedef enum mr_kind {
    MR_KIND_BOOL,
    MR_KIND_UINT,
    MR_KIND_INT,
    MR_KIND_FLOAT,
    MR_KIND_COMPLEX
} mr_kind;

extern const uint8_t mr__dtype_bytes[MR_N_DTYPES];
extern const uint8_t mr__dtype_kinds[MR_N_DTYPES]; /* mr_kind */

static inline int64_t
mr__dtype_size(mr_dtype t)
{
    return mr__dtype_bytes[t];
}

static inline mr_kind
mr__dtype_kind(mr_dtype t)
{
    return (mr_kind)mr__dtype_kinds[t];
}

static inline bool
mr__dtype_is_inexact(mr_dtype t)
{
    return mr__dtype_kinds[t] >= MR_KIND_FLOAT;
}

/* float16 or bfloat16? */
static inline bool
mr__dtype_is_half(mr_dtype t)
{
    return t == MR_FLOAT16 || t == MR_BFLOAT16;
}

static inline bool
mr__dtype_is_complex(mr_dtype t)
{
    return mr__dtype_kinds[t] == MR_KIND_COMPLEX;
}

static inline bool
mr__dtype_is_integer(mr_dtype t)
{
    return mr__dtype_kinds[t] == MR_KIND_UINT ||
           mr__dtype_kinds[t] == MR_KIND_INT;
}

bool mr__dtype_valid(mr_dtype t);
/* The common type of two arrays' types (dtypes.md's matrix). */
mr_dtype mr__promote(mr_dtype a, mr_dtype b);
/* The type that a weak scalar of this kind takes beside an array of type t. */
mr_dtype mr__promote_scalar(mr_dtype t, mr_scalar_kind k);
/* Integers and bool become float32, the rest stays. */
mr_dtype mr__to_inexact(mr_dtype t);
/* The real type of the same precision: complex64 gives float32. */
mr_dtype mr__to_real(mr_dtype t);
/* What sum and prod give. */
mr_dtype mr__sum_dtype(mr_dtype t);
/* The type halves accumulate in: float32; others stay. */
mr_dtype mr__accumulate_dtype(mr_dtype t);

#endif
