/* SPDX-License-Identifier: Apache-2.0
 *
 * types.h -- the plain values of the public C API: codes, dtypes, shapes,
 * scalars, and the opaque objects.
 *
 * Everything here is either an enum, a small struct passed by value, or an
 * incomplete struct passed by pointer.  Nothing here allocates.
 */
#ifndef MARRAM_TYPES_H
#define MARRAM_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define MR_EXTERN_C_BEGIN extern "C" {
#define MR_EXTERN_C_END   }
#else
#define MR_EXTERN_C_BEGIN
#define MR_EXTERN_C_END
#endif

#if defined(__GNUC__)
#define MR_API __attribute__((visibility("default")))
#else
#define MR_API
#endif

MR_EXTERN_C_BEGIN

/* ---- results of what acts ------------------------------------------------
 * MR_OK is 0, failures are negative.  What makes an object returns the object
 * or NULL; the code is then in mr_error_last().code. */
typedef enum mr_code {
    MR_OK = 0,
    MR_E_NULL = -1,     /* a NULL argument with no failure before it */
    MR_E_VALUE = -2,    /* a value that cannot be used (ValueError) */
    MR_E_TYPE = -3,     /* an object of the wrong kind (TypeError) */
    MR_E_SHAPE = -4,    /* shapes that do not fit (ValueError) */
    MR_E_DTYPE = -5,    /* a dtype that cannot be used (ValueError) */
    MR_E_INDEX = -6,    /* an axis or index out of range (IndexError) */
    MR_E_MEMORY = -7,   /* no memory, or over a limit (MemoryError) */
    MR_E_OVERFLOW = -8, /* a size or number too large (OverflowError) */
    MR_E_IO = -9,       /* a missing or broken file (OSError) */
    MR_E_STATE = -10, /* not now: inside a trace, wrong thread (RuntimeError) */
    MR_E_USER = -11,  /* a user's closure failed (its own exception) */
    MR_E_CANCELLED = -12,   /* the wait or the work was cancelled */
    MR_E_DEVICE = -13,      /* a device or a provider failed (RuntimeError) */
    MR_E_UNSUPPORTED = -14, /* no rule or kernel for this (RuntimeError) */
    MR_E_INTERNAL = -15     /* a broken promise inside Marram (RuntimeError) */
} mr_code;

/* ---- element types ------------------------------------------------------
 * The numbers are for ever: files hold them. */
typedef enum mr_dtype {
    MR_BOOL = 0,
    MR_UINT8 = 1,
    MR_UINT16 = 2,
    MR_UINT32 = 3,
    MR_UINT64 = 4,
    MR_INT8 = 5,
    MR_INT16 = 6,
    MR_INT32 = 7,
    MR_INT64 = 8,
    MR_FLOAT16 = 9,
    MR_BFLOAT16 = 10,
    MR_FLOAT32 = 11,
    MR_FLOAT64 = 12,
    MR_COMPLEX64 = 13,
    MR_COMPLEX128 = 14
} mr_dtype;
#define MR_N_DTYPES 15
/* "Use the default": a dtype argument of an optional kind may hold it. */
#define MR_DTYPE_DEFAULT ((mr_dtype)-1)

typedef struct mr_c64 {
    float re, im;
} mr_c64;

typedef struct mr_c128 {
    double re, im;
} mr_c128;

/* ---- shapes and lists of integers ---------------------------------------
 * A borrowed list: the callee copies what it keeps.  `n` is the number of
 * entries; an absent list has n == -1 (MR_SHAPE_NONE, MR_AXES_ALL). */
#define MR_MAX_NDIM 32

typedef struct mr_shape {
    const int64_t *dim;
    int64_t n;
} mr_shape;

typedef struct mr_axes {
    const int32_t *axis;
    int32_t n;
} mr_axes;

/* A list of 64-bit integers that is neither a shape nor axes. */
typedef struct mr_ints {
    const int64_t *v;
    int64_t n;
} mr_ints;

/* Absent optional numbers. */
#define MR_AXIS_NONE INT32_MIN
#define MR_INT_NONE  INT64_MIN

#ifndef __cplusplus
#define MR_SHAPE(...)                                                          \
    ((mr_shape){                                                               \
        (const int64_t[]){__VA_ARGS__},                                        \
        (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))})
#define MR_AXES(...)                                                           \
    ((mr_axes){(const int32_t[]){__VA_ARGS__},                                 \
               (int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))})
#define MR_INTS(...)                                                           \
    ((mr_ints){(const int64_t[]){__VA_ARGS__},                                 \
               (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))})
#define MR_SCALAR_SHAPE ((mr_shape){NULL, 0})
#define MR_SHAPE_NONE   ((mr_shape){NULL, -1})
#define MR_AXES_ALL     ((mr_axes){NULL, -1})
#define MR_INTS_NONE    ((mr_ints){NULL, -1})
#endif

/* ---- a number of any kind ----------------------------------------------- */
typedef enum mr_scalar_kind {
    MR_SCALAR_BOOL = 0,
    MR_SCALAR_INT = 1,
    MR_SCALAR_UINT = 2, /* only for what does not fit int64 */
    MR_SCALAR_FLOAT = 3,
    MR_SCALAR_COMPLEX = 4
} mr_scalar_kind;

typedef struct mr_scalar {
    mr_scalar_kind kind;
    union {
        bool b;
        int64_t i;
        uint64_t u;
        double f;
        mr_c128 c;
    } as;
} mr_scalar;

#ifndef __cplusplus
#define MR_INTEGER(v) ((mr_scalar){MR_SCALAR_INT, {.i = (v)}})
#define MR_REAL(v)    ((mr_scalar){MR_SCALAR_FLOAT, {.f = (v)}})
#endif

/* ---- opaque objects (all counted; see each header for ownership) --------- */
typedef struct mr_array mr_array;
typedef struct mr_tree mr_tree;
typedef struct mr_function mr_function; /* a compiled function */

/* An absent optional array.  Its address is what counts; NULL is a failure. */
MR_API extern mr_array *const mr_none_array;
#define MR_NONE mr_none_array

/* Streams are small values: an index that is never used again. */
typedef struct mr_stream {
    uint32_t id;
} mr_stream;

typedef enum mr_device_type {
    MR_CPU = 0,
    MR_GPU = 1,
    MR_TEST_DEVICE = 2
} mr_device_type;

typedef struct mr_device {
    mr_device_type type;
    int32_t index;
} mr_device;

/* A scope's token. */
typedef struct mr_scope {
    uint64_t token;
} mr_scope;

MR_EXTERN_C_END

/* The creation site of the line that calls: "file:line". */
#define MR_STRING_1(x) #x
#define MR_STRING(x)   MR_STRING_1(x)
#ifdef MR_NO_SITES
#define MR_SITE ((const char *)0)
#else
#define MR_SITE __FILE__ ":" MR_STRING(__LINE__)
#endif

#endif /* MARRAM_TYPES_H */
