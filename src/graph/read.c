/* SPDX-License-Identifier: Apache-2.0
 *
 * read.c -- reading arrays: evaluate, then copy out, convert, or lend memory.
 *
 * Elements are met row by row: `run` gets the elements along the last axis.
 * Called by: users, bindings, text.c.  Calls: marram/eval.h, array/.
 */
#include "graph/read.h"

#include <math.h>
#include <string.h>

#include "array/buffer.h"
#include "array/dtype.h"
#include "array/layout.h"
#include "array/number.h"
#include "base/error.h"
#include "base/log.h"
#include "marram/array.h"
#include "marram/eval.h"

mr_code
mr__array_ready(mr_array *x)
{
    mr__buffer_drain();
    mr__log_flush();
    if (x == NULL && mr__error_pending())
        return mr__error_code();
    if (x == NULL || x == mr_none_array)
        return mr__fail(MR_E_NULL, "the array is NULL");
    if (mr__state(x) != MR_DONE) {
        mr_code code;

        if (mr__state(x) == MR_NEW)
            mr__read_note();
        code = mr_eval(x);

        if (code != MR_OK)
            return code;
    }
    return x->buffer == NULL || x->buffer->space == 0
               ? MR_OK
               : mr__graph_host_hook(x, false);
}

static char *
first_element(const mr_array *x)
{
    char *base = x->buffer->space == 0
                     ? x->buffer->data
                     /* ours to write: memory of the host's pool */
                     : (char *)(uintptr_t)mr__graph_host_data_hook(x->buffer);

    return base + x->offset * mr__dtype_size((mr_dtype)x->dtype);
}

const char *
mr__array_first(const mr_array *x)
{
    static const int64_t nothing[2];

    if (x->buffer == NULL || x->buffer->data == NULL)
        return (const char *)nothing; /* empty arrays may have no memory */
    return first_element(x);
}

/* ---- rows --------------------------------------------------------------- */

/* n elements of dtype t, `step` bytes apart, the k-th of all and after. */
typedef void (*mr_run)(void *out, int64_t k, mr_dtype t, const char *at,
                       int64_t step, int64_t n);

/* Step to the next row: the index of the outer axes counts up. */
static const char *
next_row(const mr_array *x, int64_t *index, const char *at, int64_t bytes)
{
    const int64_t *stride = mr__strides(x);

    for (int i = x->ndim - 2; i >= 0; i--) {
        at += stride[i] * bytes;
        if (++index[i] < x->dim[i])
            return at;
        at -= stride[i] * bytes * x->dim[i];
        index[i] = 0;
    }
    return at;
}

static void
for_each_row(const mr_array *x, mr_run run, void *out)
{
    mr_dtype t = (mr_dtype)x->dtype;
    int64_t bytes = mr__dtype_size(t), index[MR_MAX_NDIM] = {0};
    const char *at = mr__array_first(x);
    int64_t n, step;

    if (x->size == 0)
        return;
    if (mr__is_contiguous(x->ndim, x->dim, mr__strides(x))) {
        run(out, 0, t, at, bytes, x->size);
        return;
    }
    n = x->dim[x->ndim - 1];
    step = mr__strides(x)[x->ndim - 1] * bytes;
    for (int64_t k = 0; k < x->size; k += n) {
        run(out, k, t, at, step, n);
        at = next_row(x, index, at, bytes);
    }
}

/* ---- copies ------------------------------------------------------------- */

static void
run_bytes(void *out, int64_t k, mr_dtype t, const char *at, int64_t step,
          int64_t n)
{
    size_t bytes = mr__dtype_bytes[t];
    char *to = (char *)out + (size_t)k * bytes;

    if (step == (int64_t)bytes) {
        memcpy(to, at, (size_t)n * bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)i * bytes, at + i * step, bytes);
}

static void
run_f32(void *out, int64_t k, mr_dtype t, const char *at, int64_t step,
        int64_t n)
{
    float *to = (float *)out + k;

    if (t == MR_FLOAT32) {
        run_bytes(out, k, t, at, step, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = mr__number_to_f32(mr__number_read(t, at + i * step));
}

static void
run_f64(void *out, int64_t k, mr_dtype t, const char *at, int64_t step,
        int64_t n)
{
    double *to = (double *)out + k;

    for (int64_t i = 0; i < n; i++)
        to[i] = mr__number_to_f64(mr__number_read(t, at + i * step));
}

static void
run_i64(void *out, int64_t k, mr_dtype t, const char *at, int64_t step,
        int64_t n)
{
    int64_t *to = (int64_t *)out + k;

    for (int64_t i = 0; i < n; i++)
        to[i] = mr__number_to_i64(mr__number_read(t, at + i * step));
}

mr_code
mr_array_copy_out(mr_array *x, void *out, size_t bytes)
{
    mr_code code = mr__array_ready(x);

    if (code != MR_OK)
        return code;
    if (bytes < mr_array_nbytes(x))
        return mr__fail(MR_E_VALUE,
                        "the array has %zu bytes, and there is room for %zu",
                        mr_array_nbytes(x), bytes);
    if (out == NULL && x->size > 0)
        return mr__fail(MR_E_NULL, "the place to copy to is NULL");
    for_each_row(x, run_bytes, out);
    return MR_OK;
}

static mr_code
copy_numbers(mr_array *x, mr_run run, void *out, int64_t n)
{
    mr_code code = mr__array_ready(x);

    if (code != MR_OK)
        return code;
    if (n != x->size)
        return mr__fail(MR_E_VALUE,
                        "the array has %lld elements, and there is room for "
                        "%lld: these must be equal",
                        (long long)x->size, (long long)n);
    if (out == NULL && n > 0)
        return mr__fail(MR_E_NULL, "the place to copy to is NULL");
    for_each_row(x, run, out);
    return MR_OK;
}

mr_code
mr_array_copy_f32(mr_array *x, float *out, int64_t n)
{
    return copy_numbers(x, run_f32, out, n);
}

mr_code
mr_array_copy_f64(mr_array *x, double *out, int64_t n)
{
    return copy_numbers(x, run_f64, out, n);
}

mr_code
mr_array_copy_i64(mr_array *x, int64_t *out, int64_t n)
{
    return copy_numbers(x, run_i64, out, n);
}

/* ---- single values ------------------------------------------------------ */

mr_code
mr_array_item(mr_array *x, mr_scalar *out)
{
    char text[256];
    mr_code code;

    if (out == NULL)
        return mr__fail(MR_E_NULL, "the place for the value is NULL");
    if (x && x != mr_none_array && x->size != 1)
        return mr__fail(MR_E_VALUE,
                        "only an array of one element has an item, this one "
                        "has shape %s",
                        mr__shape_text(text, sizeof text, x->ndim, x->dim));
    code = mr__array_ready(x);
    if (code == MR_OK)
        *out = mr__number_read((mr_dtype)x->dtype, mr__array_first(x));
    return code;
}

double
mr_array_item_f64(mr_array *x)
{
    mr_scalar v;

    return mr_array_item(x, &v) == MR_OK ? mr__number_to_f64(v) : (double)NAN;
}

/* ---- lending memory ----------------------------------------------------- */

const void *
mr_array_data(mr_array *x)
{
    return mr__array_ready(x) == MR_OK ? mr__array_first(x) : NULL;
}

const int64_t *
mr_array_strides(mr_array *x)
{
    return mr__array_ready(x) == MR_OK ? mr__strides(x) : NULL;
}

void *
mr_array_data_exported(mr_array *x)
{
    if (mr__array_ready(x) != MR_OK)
        return NULL;
    if (x->buffer == NULL || x->buffer->data == NULL) {
        static int64_t nothing[2];

        return nothing;
    }
    /* relaxed: whoever plans later has x from this thread */
    if (!__atomic_load_n(&x->buffer->exported_writable, __ATOMIC_RELAXED) &&
        mr__graph_host_hook(x, true) != MR_OK)
        return NULL;
    return first_element(x);
}
