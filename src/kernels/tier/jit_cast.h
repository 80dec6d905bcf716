/* SPDX-License-Identifier: Apache-2.0
 *
 * jit_cast.h -- the casts as functions over one register (see jit.h):
 * mr__jit_cast_INT8_FLOAT32(out, in) and so on for each pair of dtypes.
 *
 * A complex register is two registers of its parts, so its casts are those of
 * the parts.  Included by cast.c in place of its table.
 */
#ifndef MR_KERNELS_TIER_JIT_CAST_H
#define MR_KERNELS_TIER_JIT_CAST_H

#define JIT_FN __attribute__((always_inline, visibility("default")))

/* Pairs of real dtypes, and from a complex dtype by its real part. */
#define JIT_CAST(from, part, to)                                               \
    JIT_FN void mr__jit_cast_##from##_##to(void *o, const void *a)             \
    {                                                                          \
        cast_##part##_##to(o, a, MR_JIT_POINTS);                               \
    }

#define JIT_TO_COMPLEX(from, to, part)                                         \
    JIT_FN void mr__jit_cast_##from##_##to(void *o, const void *a)             \
    {                                                                          \
        t_##part *re = o;                                                      \
                                                                               \
        cast_##from##_##part(re, a, MR_JIT_POINTS);                            \
        for (int i = 0; i < MR_JIT_POINTS; i++)                                \
            re[MR_JIT_POINTS + i] = 0;                                         \
    }

#define JIT_COMPLEX_BOOL(from, part)                                           \
    JIT_FN void mr__jit_cast_##from##_BOOL(void *o, const void *a)             \
    {                                                                          \
        const t_##part *re = a;                                                \
        uint8_t *b = o;                                                        \
                                                                               \
        for (int i = 0; i < MR_JIT_POINTS; i++)                                \
            b[i] = (re[i] != 0) | (re[MR_JIT_POINTS + i] != 0);                \
    }

#define JIT_COMPLEX_COMPLEX(from, from_part, to, to_part)                      \
    JIT_FN void mr__jit_cast_##from##_##to(void *o, const void *a)             \
    {                                                                          \
        cast_##from_part##_##to_part(o, a, MR_JIT_POINTS);                     \
        cast_##from_part##_##to_part((t_##to_part *)o + MR_JIT_POINTS,         \
                                     (const t_##from_part *)a + MR_JIT_POINTS, \
                                     MR_JIT_POINTS);                           \
    }

#define JIT_NUMBERS(X, from, part)                                             \
    X(from, part, UINT8)                                                       \
    X(from, part, UINT16)                                                      \
    X(from, part, UINT32)                                                      \
    X(from, part, UINT64)                                                      \
    X(from, part, INT8)                                                        \
    X(from, part, INT16)                                                       \
    X(from, part, INT32)                                                       \
    X(from, part, INT64)                                                       \
    X(from, part, FLOAT16)                                                     \
    X(from, part, BFLOAT16)                                                    \
    X(from, part, FLOAT32)                                                     \
    X(from, part, FLOAT64)

#define JIT_ROW(from)                                                          \
    JIT_CAST(from, from, BOOL)                                                 \
    JIT_NUMBERS(JIT_CAST, from, from)                                          \
    JIT_TO_COMPLEX(from, COMPLEX64, FLOAT32)                                   \
    JIT_TO_COMPLEX(from, COMPLEX128, FLOAT64)

JIT_ROW(BOOL)
JIT_ROW(UINT8)
JIT_ROW(UINT16)
JIT_ROW(UINT32)
JIT_ROW(UINT64)
JIT_ROW(INT8)
JIT_ROW(INT16)
JIT_ROW(INT32)
JIT_ROW(INT64)
JIT_ROW(FLOAT16)
JIT_ROW(BFLOAT16)
JIT_ROW(FLOAT32)
JIT_ROW(FLOAT64)
JIT_NUMBERS(JIT_CAST, COMPLEX64, FLOAT32)
JIT_NUMBERS(JIT_CAST, COMPLEX128, FLOAT64)
JIT_COMPLEX_BOOL(COMPLEX64, FLOAT32)
JIT_COMPLEX_BOOL(COMPLEX128, FLOAT64)
JIT_COMPLEX_COMPLEX(COMPLEX64, FLOAT32, COMPLEX128, FLOAT64)
JIT_COMPLEX_COMPLEX(COMPLEX128, FLOAT64, COMPLEX64, FLOAT32)

#endif
