/* SPDX-License-Identifier: Apache-2.0
 *
 * array.h -- arrays: making them from memory, asking them, reading them.
 *
 * An mr_array is an immutable, counted value: a lazy node until evaluated.
 * Any array may be used from any thread.  Results are the caller's, or the
 * scope's that is open on this thread (scope.h).  A NULL array given as an
 * input makes the call return NULL (or an error code) and keeps the error that
 * was there; with no error pending it sets MR_E_NULL naming the argument.
 */
#ifndef MARRAM_ARRAY_H
#define MARRAM_ARRAY_H

#include "marram/types.h"

MR_EXTERN_C_BEGIN

/* ---- making ----------------------------------------------------------------
 * Each copies `shape`'s element count values from host memory, row-major.
 * Errors: MR_E_VALUE (negative or too many dims), MR_E_OVERFLOW, MR_E_MEMORY.
 */
MR_API mr_array *mr_array_from_at(const char *site, const void *data,
                                  mr_shape shape, mr_dtype dtype);
MR_API mr_array *mr_array_from(const void *data, mr_shape shape,
                               mr_dtype dtype);
#define mr_array_from(...) mr_array_from_at(MR_SITE, __VA_ARGS__)
MR_API mr_array *mr_array_from_f32(const float *data, mr_shape shape);
MR_API mr_array *mr_array_from_f64(const double *data, mr_shape shape);
MR_API mr_array *mr_array_from_i32(const int32_t *data, mr_shape shape);
MR_API mr_array *mr_array_from_i64(const int64_t *data, mr_shape shape);
MR_API mr_array *mr_array_from_u8(const uint8_t *data, mr_shape shape);
MR_API mr_array *mr_array_from_bool(const bool *data, mr_shape shape);

/* 0-d arrays. */
MR_API mr_array *mr_array_from_scalar_at(const char *site, mr_scalar v,
                                         mr_dtype dtype);
MR_API mr_array *mr_array_from_scalar(mr_scalar v, mr_dtype dtype);
#define mr_array_from_scalar(...) mr_array_from_scalar_at(MR_SITE, __VA_ARGS__)
MR_API mr_array *mr_float(double v); /* float32 */
MR_API mr_array *mr_int(int64_t v);  /* int32, or int64 when it must be */
MR_API mr_array *mr_bool(bool v);
MR_API mr_array *mr_complex(double re, double im); /* complex64 */

/* 0-d, of x's dtype (a real number; integers truncate). */
MR_API mr_array *mr_number_like(const mr_array *x, double v);

/* An array over the caller's memory, not copied.  `strides` are in elements
 * (NULL: row-major).  free_fn(ctx, data) runs once when the last array over it
 * is gone, on a user thread, also when this call fails; NULL: the memory
 * outlives all use.  The memory must not change while arrays read it. */
MR_API mr_array *mr_array_wrap(void *data, mr_shape shape,
                               const int64_t *strides, mr_dtype dtype,
                               void (*free_fn)(void *ctx, void *data),
                               void *ctx);

/* ---- references --------------------------------------------------------- */
/* A reference of the caller's own; returns x. */
MR_API mr_array *mr_retain(mr_array *x);
/* Drops one of the caller's references.  NULL and MR_NONE are allowed.
 * Releasing what only a scope owns is reported (log line, MR_E_STATE) and
 * changes nothing.  Any thread. */
MR_API void mr_release(mr_array *x);

/* ---- asking: no evaluation; accept NULL --------------------------------- */
MR_API mr_dtype mr_array_dtype(const mr_array *x);
MR_API int mr_array_ndim(const mr_array *x);              /* NULL: -1 */
MR_API int64_t mr_array_size(const mr_array *x);          /* elements */
MR_API int64_t mr_array_dim(const mr_array *x, int axis); /* axis may be < 0;
                                                             -1 on failure */
MR_API mr_shape mr_array_shape(const mr_array *x);        /* borrowed from x */
MR_API size_t mr_array_nbytes(const mr_array *x);
MR_API bool mr_array_is_evaluated(const mr_array *x);
/* Made in a live trace: it may depend on what is traced there. */
MR_API bool mr_array_is_tracer(const mr_array *x);
/* Its memory must not be written by who has it from mr_array_data_exported: a
 * live trace depends on it, or it came in as such (mr_from_dlpack). */
MR_API bool mr_array_is_read_only(const mr_array *x);
/* A derivative leads from it to an argument of a running transform. */
MR_API bool mr_array_is_traced(const mr_array *x);
MR_API const char *mr_array_site(const mr_array *x); /* "" when unknown */
MR_API const char *mr_array_op(const mr_array *x);   /* name of its operator */

/* ---- entries --------------------------------------------------------------
 */
/* Entry i (from 0) along the first axis: of an evaluated array a view of its
 * memory made at once.  Errors: MR_E_INDEX. */
MR_API mr_array *mr_array_entry_at(const char *site, mr_array *x, int64_t i);
MR_API mr_array *mr_array_entry(mr_array *x, int64_t i);
#define mr_array_entry(...) mr_array_entry_at(MR_SITE, __VA_ARGS__)

/* ---- reading: evaluates x, then waits for it ----------------------------- */
/* Copy all elements, row-major, into out (bytes: room there). */
MR_API mr_code mr_array_copy_out(mr_array *x, void *out, size_t bytes);
/* The same, converted. */
MR_API mr_code mr_array_copy_f32(mr_array *x, float *out, int64_t n);
MR_API mr_code mr_array_copy_f64(mr_array *x, double *out, int64_t n);
MR_API mr_code mr_array_copy_i64(mr_array *x, int64_t *out, int64_t n);
/* The value of an array of size 1.  While a function is compiled or mapped its
 * arrays have none (MR_E_STATE): unless the function takes that error, the
 * call of the function fails with it. */
MR_API mr_code mr_array_item(mr_array *x, mr_scalar *out);
MR_API double mr_array_item_f64(mr_array *x); /* NaN on failure */
/* Borrowed pointer to the evaluated memory (first element), with strides in
 * elements; lives as long as x.  NULL on failure. */
MR_API const void *mr_array_data(mr_array *x);
MR_API const int64_t *mr_array_strides(mr_array *x);
/* Writable view for exporters (buffer protocol, DLPack): afterwards the
 * memory is never donated. */
MR_API void *mr_array_data_exported(mr_array *x);

/* Evaluations that began because something was read (a value, memory, text), by
 * the line that read: each splits a program in two.  The first `room` lines go
 * to out (NULL: none), *n_lines (or NULL) is how many there are; a site of ""
 * stands for all lines that are unknown.  Gives the number of evaluations. */
typedef struct mr_read_line {
    const char *site; /* immortal */
    uint64_t count;
} mr_read_line;
MR_API uint64_t mr_read_stats(mr_read_line *out, int room, int *n_lines);
MR_API void mr_read_stats_reset(void);
/* For bindings: says which line of the host reads (interned text), or "". */
typedef const char *(*mr_read_site_fn)(void);
MR_API void mr_set_read_site(mr_read_site_fn where);

/* Text as in the printing rules: "array([1, 2], dtype=float32)".  The caller
 * frees it with mr_text_free.  precision < 0: %g with 6 digits, else fixed. */
MR_API char *mr_array_text(mr_array *x, int precision);
MR_API void mr_text_free(char *text);
/* Prints to standard output with a newline. */
MR_API mr_code mr_print(mr_array *x);

/* ---- dtypes -------------------------------------------------------------- */
MR_API const char *mr_dtype_name(mr_dtype t); /* "float32", "bool" */
MR_API size_t mr_dtype_size(mr_dtype t);
MR_API bool mr_dtype_is_complex(mr_dtype t);
MR_API bool mr_dtype_is_inexact(mr_dtype t);
MR_API bool mr_dtype_is_integer(mr_dtype t); /* not bool */
MR_API mr_dtype mr_promote_types(mr_dtype a, mr_dtype b);
/* From its name ("float32"): false when there is none such. */
MR_API bool mr_dtype_from_name(const char *name, mr_dtype *out);

/* What an operator does with a weak scalar beside an array of dtype t. */
MR_API mr_dtype mr_promote_scalar(mr_dtype t, mr_scalar_kind k);

MR_API const char *mr_version(void); /* "0.1.0" */
MR_API int
mr_version_number(void); /* 100 * 100 * major + 100 * minor + patch */

/* ---- the same with the caller's line --------------------------------------
 * Errors of these name the line of the call; a binding, which has no C lines,
 * calls the plain functions (-DMR_PLAIN_CALLS). */
MR_API int64_t mr_array_dim_sited(const char *site, const mr_array *x,
                                  int axis);
MR_API mr_code mr_array_copy_out_sited(const char *site, mr_array *x, void *out,
                                       size_t bytes);
MR_API mr_code mr_array_copy_f32_sited(const char *site, mr_array *x,
                                       float *out, int64_t n);
MR_API mr_code mr_array_copy_f64_sited(const char *site, mr_array *x,
                                       double *out, int64_t n);
MR_API mr_code mr_array_copy_i64_sited(const char *site, mr_array *x,
                                       int64_t *out, int64_t n);
MR_API mr_code mr_array_item_sited(const char *site, mr_array *x,
                                   mr_scalar *out);
MR_API double mr_array_item_f64_sited(const char *site, mr_array *x);
MR_API const void *mr_array_data_sited(const char *site, mr_array *x);
MR_API const int64_t *mr_array_strides_sited(const char *site, mr_array *x);
MR_API char *mr_array_text_sited(const char *site, mr_array *x, int precision);
MR_API mr_code mr_print_sited(const char *site, mr_array *x);
MR_API mr_array *mr_array_from_f32_at(const char *site, const float *data,
                                      mr_shape shape);
MR_API mr_array *mr_array_from_f64_at(const char *site, const double *data,
                                      mr_shape shape);
MR_API mr_array *mr_array_from_i32_at(const char *site, const int32_t *data,
                                      mr_shape shape);
MR_API mr_array *mr_array_from_i64_at(const char *site, const int64_t *data,
                                      mr_shape shape);
MR_API mr_array *mr_array_from_u8_at(const char *site, const uint8_t *data,
                                     mr_shape shape);
MR_API mr_array *mr_array_from_bool_at(const char *site, const bool *data,
                                       mr_shape shape);
MR_API mr_array *mr_array_wrap_at(const char *site, void *data, mr_shape shape,
                                  const int64_t *strides, mr_dtype dtype,
                                  void (*free_fn)(void *ctx, void *data),
                                  void *ctx);
#ifndef MR_PLAIN_CALLS
#define mr_array_from_f32(...)  mr_array_from_f32_at(MR_SITE, __VA_ARGS__)
#define mr_array_from_f64(...)  mr_array_from_f64_at(MR_SITE, __VA_ARGS__)
#define mr_array_from_i32(...)  mr_array_from_i32_at(MR_SITE, __VA_ARGS__)
#define mr_array_from_i64(...)  mr_array_from_i64_at(MR_SITE, __VA_ARGS__)
#define mr_array_from_u8(...)   mr_array_from_u8_at(MR_SITE, __VA_ARGS__)
#define mr_array_from_bool(...) mr_array_from_bool_at(MR_SITE, __VA_ARGS__)
#define mr_array_wrap(...)      mr_array_wrap_at(MR_SITE, __VA_ARGS__)
#define mr_array_dim(...)       mr_array_dim_sited(MR_SITE, __VA_ARGS__)
#define mr_array_copy_out(...)  mr_array_copy_out_sited(MR_SITE, __VA_ARGS__)
#define mr_array_copy_f32(...)  mr_array_copy_f32_sited(MR_SITE, __VA_ARGS__)
#define mr_array_copy_f64(...)  mr_array_copy_f64_sited(MR_SITE, __VA_ARGS__)
#define mr_array_copy_i64(...)  mr_array_copy_i64_sited(MR_SITE, __VA_ARGS__)
#define mr_array_item(...)      mr_array_item_sited(MR_SITE, __VA_ARGS__)
#define mr_array_item_f64(...)  mr_array_item_f64_sited(MR_SITE, __VA_ARGS__)
#define mr_array_data(...)      mr_array_data_sited(MR_SITE, __VA_ARGS__)
#define mr_array_strides(...)   mr_array_strides_sited(MR_SITE, __VA_ARGS__)
#define mr_array_text(...)      mr_array_text_sited(MR_SITE, __VA_ARGS__)
#define mr_print(...)           mr_print_sited(MR_SITE, __VA_ARGS__)
#endif

MR_EXTERN_C_END

#endif
