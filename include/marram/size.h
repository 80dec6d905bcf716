/* SPDX-License-Identifier: Apache-2.0
 *
 * size.h -- sizes inside a shapeless trace.
 *
 * A function compiled with `shapeless` is traced once for all shapes of its
 * arguments' ranks.  While it is traced a size is *symbolic*: mr_dim gives a
 * handle, a number that stands for it, which mr_dim_math computes with and
 * which every size-like argument of an operator takes (shapes, lists of
 * integers, single integers, numbers).  Outside such a trace all of this works
 * with plain numbers, so one text serves both.
 *
 * A size read in another way (mr_array_dim, mr_array_shape) holds for one
 * shape alone: the function is then traced again for the next one.
 * All of these: any thread, no evaluation.
 */
#ifndef MARRAM_SIZE_H
#define MARRAM_SIZE_H

#include "marram/types.h"

MR_EXTERN_C_BEGIN

typedef enum mr_size_op {
    MR_SIZE_ADD,
    MR_SIZE_SUBTRACT,
    MR_SIZE_MULTIPLY,
    MR_SIZE_FLOOR_DIVIDE, /* towards minus infinity */
    MR_SIZE_REMAINDER,    /* of the sign of b */
    MR_SIZE_DIVIDE,       /* a float */
    MR_SIZE_POWER,        /* an integer when both are and b >= 0 */
    MR_SIZE_MINIMUM,
    MR_SIZE_MAXIMUM
} mr_size_op;

typedef enum mr_size_relation {
    MR_SIZE_LESS,
    MR_SIZE_LESS_EQUAL,
    MR_SIZE_EQUAL,
    MR_SIZE_NOT_EQUAL,
    MR_SIZE_GREATER,
    MR_SIZE_GREATER_EQUAL
} mr_size_relation;

/* Is a shapeless function being traced on this thread, and not inside a
 * transform that it calls? */
MR_API bool mr_size_tracing(void);
/* The size of an axis, which may be < 0: symbolic when x is traced.  -1 on
 * failure. */
MR_API int64_t mr_dim(const mr_array *x, int axis);
/* For integers; -1 with MR_E_VALUE (division by zero, a float comes out) or
 * MR_E_OVERFLOW. */
MR_API int64_t mr_dim_math(mr_size_op op, int64_t a, int64_t b);
MR_API bool mr_dim_is_symbolic(int64_t a);

/* The same for numbers of any kind. */
MR_API mr_code mr_size_math(mr_size_op op, mr_scalar a, mr_scalar b,
                            mr_scalar *out);
MR_API bool mr_size_is_symbolic(mr_scalar a);
/* What it is in this call, for messages: nothing may depend on it. */
MR_API mr_scalar mr_size_value(mr_scalar a);
MR_API mr_shape mr_size_shape(const mr_array *x); /* likewise */
/* It becomes a plain number: the function is traced again at other sizes. */
MR_API mr_scalar mr_size_fix(mr_scalar a);
/* In a trace the answer is kept: at sizes where it would be another the
 * function is traced again. */
MR_API bool mr_size_compare(mr_scalar a, mr_size_relation r, mr_scalar b);

MR_EXTERN_C_END

#endif
