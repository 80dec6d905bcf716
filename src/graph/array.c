/* SPDX-License-Identifier: Apache-2.0
 *
 * array.c -- the public half of arrays that computes nothing: making them
 * from memory and numbers, asking them.
 *
 * Called by: users, bindings, ops/.  Calls: node.c, array/.
 */
#include "marram/array.h"

#include <string.h>

#include "array/buffer.h"
#include "array/dtype.h"
#include "array/layout.h"
#include "array/number.h"
#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"
#include "graph/node.h"
#include "graph/op.h"
#include "graph/tape.h"

/* ---- the frame of these front doors ------------------------------------- */

static struct mr__door
open_door(const char *site)
{
    mr__buffer_drain();
    mr__log_flush();
    return mr__error_door_outer("array", site);
}

static mr_array *
close_door(struct mr__door old, mr_array *x)
{
    mr__error_door_restore(old);
    return x;
}

/* The number of elements; -1 with an error set. */
static int64_t
checked_size(mr_shape shape, mr_dtype dtype)
{
    int64_t size, bytes;
    char text[256];

    if (!mr__dtype_valid(dtype)) {
        mr__fail(MR_E_DTYPE, "%d is no dtype: use one of enum mr_dtype",
                 (int)dtype);
        return -1;
    }
    if (shape.n < 0 || shape.n > MR_MAX_NDIM ||
        (shape.n > 0 && shape.dim == NULL)) {
        mr__fail(MR_E_VALUE, "a shape of %lld dims: 0 to %d are possible",
                 (long long)shape.n, MR_MAX_NDIM);
        return -1;
    }
    for (int64_t i = 0; i < shape.n; i++)
        if (shape.dim[i] < 0) {
            mr__fail(MR_E_VALUE, "dim %lld is %lld: it must not be negative",
                     (long long)i, (long long)shape.dim[i]);
            return -1;
        }
    size = mr__size_of((int32_t)shape.n, shape.dim);
    if (size < 0 ||
        __builtin_mul_overflow(size, mr__dtype_size(dtype), &bytes)) {
        mr__fail(
            MR_E_OVERFLOW, "an array of shape %s is too large to address",
            mr__shape_text(text, sizeof text, (int32_t)shape.n, shape.dim));
        return -1;
    }
    return size;
}

/* ---- from memory -------------------------------------------------------- */

/* Any byte but 0 is true; kernels count on 0 and 1. */
static void
copy_in(void *to, const void *from, int64_t size, mr_dtype dtype)
{
    const unsigned char *byte = from;
    unsigned char *out = to;

    if (size == 0)
        return;
    if (dtype != MR_BOOL) {
        memcpy(to, from, (size_t)(size * mr__dtype_size(dtype)));
        return;
    }
    for (int64_t i = 0; i < size; i++)
        out[i] = byte[i] != 0;
}

static mr_array *
from_memory(const void *data, mr_shape shape, mr_dtype dtype)
{
    int64_t size = checked_size(shape, dtype);
    mr_buffer *b;

    if (size < 0)
        return NULL;
    if (data == NULL && size > 0)
        return mr__fail_null(MR_E_NULL, "the data is NULL");
    b = mr__buffer_new(mr__host_pool(), (size_t)(size * mr__dtype_size(dtype)));
    if (b == NULL)
        return NULL;
    copy_in(b->data, data, size, dtype);
    return mr__node_data(dtype, (int32_t)shape.n, shape.dim, NULL, b, 0);
}

mr_array *
mr_array_from_at(const char *site, const void *data, mr_shape shape,
                 mr_dtype dtype)
{
    struct mr__door old = open_door(site);

    return close_door(old, from_memory(data, shape, dtype));
}

mr_array *(mr_array_from)(const void *data, mr_shape shape, mr_dtype dtype)
{
    return mr_array_from_at(NULL, data, shape, dtype);
}

mr_array *
mr_array_from_f32_at(const char *site, const float *data, mr_shape shape)
{
    return mr_array_from_at(site, data, shape, MR_FLOAT32);
}

mr_array *
mr_array_from_f32(const float *data, mr_shape shape)
{
    return mr_array_from_at(NULL, data, shape, MR_FLOAT32);
}

mr_array *
mr_array_from_f64_at(const char *site, const double *data, mr_shape shape)
{
    return mr_array_from_at(site, data, shape, MR_FLOAT64);
}

mr_array *
mr_array_from_f64(const double *data, mr_shape shape)
{
    return mr_array_from_at(NULL, data, shape, MR_FLOAT64);
}

mr_array *
mr_array_from_i32_at(const char *site, const int32_t *data, mr_shape shape)
{
    return mr_array_from_at(site, data, shape, MR_INT32);
}

mr_array *
mr_array_from_i32(const int32_t *data, mr_shape shape)
{
    return mr_array_from_at(NULL, data, shape, MR_INT32);
}

mr_array *
mr_array_from_i64_at(const char *site, const int64_t *data, mr_shape shape)
{
    return mr_array_from_at(site, data, shape, MR_INT64);
}

mr_array *
mr_array_from_i64(const int64_t *data, mr_shape shape)
{
    return mr_array_from_at(NULL, data, shape, MR_INT64);
}

mr_array *
mr_array_from_u8_at(const char *site, const uint8_t *data, mr_shape shape)
{
    return mr_array_from_at(site, data, shape, MR_UINT8);
}

mr_array *
mr_array_from_u8(const uint8_t *data, mr_shape shape)
{
    return mr_array_from_at(NULL, data, shape, MR_UINT8);
}

mr_array *
mr_array_from_bool_at(const char *site, const bool *data, mr_shape shape)
{
    return mr_array_from_at(site, data, shape, MR_BOOL);
}

mr_array *
mr_array_from_bool(const bool *data, mr_shape shape)
{
    return mr_array_from_at(NULL, data, shape, MR_BOOL);
}

/* ---- over the caller's memory ------------------------------------------- */

static mr_array *
wrap_checked(void *data, mr_shape shape, const int64_t *strides, mr_dtype dtype,
             void (*free_fn)(void *, void *), void *ctx)
{
    int64_t size = checked_size(shape, dtype);
    mr_buffer *b = NULL;

    if (size > 0 && data == NULL)
        mr__fail(MR_E_NULL, "the data is NULL");
    else if (size > 0 &&
             (uintptr_t)data % (uintptr_t)mr__dtype_size(mr__to_real(dtype)) !=
                 0)
        mr__fail(MR_E_VALUE,
                 "memory at %p is not aligned for %s: copy it instead", data,
                 mr_dtype_name(dtype));
    else if (size >= 0)
        b = mr__buffer_wrap(data, (size_t)(size * mr__dtype_size(dtype)),
                            free_fn, ctx);
    if (b == NULL) {
        struct mr__error_stash aside = mr__error_stash();

        if (free_fn)
            free_fn(ctx, data);
        mr__error_unstash(aside);
        return NULL;
    }
    b->read_only = true; /* results are never put into the user's memory */
    return mr__node_data(dtype, (int32_t)shape.n, shape.dim, strides, b, 0);
}

mr_array *
mr_array_wrap_at(const char *site, void *data, mr_shape shape,
                 const int64_t *strides, mr_dtype dtype,
                 void (*free_fn)(void *, void *), void *ctx)
{
    struct mr__door old = open_door(site);

    return close_door(old,
                      wrap_checked(data, shape, strides, dtype, free_fn, ctx));
}

mr_array *
mr_array_wrap(void *data, mr_shape shape, const int64_t *strides,
              mr_dtype dtype, void (*free_fn)(void *, void *), void *ctx)
{
    return mr_array_wrap_at(NULL, data, shape, strides, dtype, free_fn, ctx);
}

/* ---- from numbers ------------------------------------------------------- */

static mr_dtype
default_dtype(mr_scalar v)
{
    switch (v.kind) {
    case MR_SCALAR_BOOL:
        return MR_BOOL;
    case MR_SCALAR_INT:
        return v.as.i == (int32_t)v.as.i ? MR_INT32 : MR_INT64;
    case MR_SCALAR_UINT:
        return MR_UINT64;
    case MR_SCALAR_FLOAT:
        return MR_FLOAT32;
    case MR_SCALAR_COMPLEX:
        return MR_COMPLEX64;
    }
    return MR_FLOAT32;
}

/* A number that is a size is a step of the tape. */
typedef struct given_scalar {
    mr_scalar v;
    mr_dtype dtype;
} given_scalar;

static void *
from_scalar_again(const char *site, const void *given)
{
    const given_scalar *g = given;

    return mr_array_from_scalar_at(site, g->v, g->dtype);
}

static const mr_tape_arg from_scalar_args[] = {
    {MR_TAPE_SCALAR, offsetof(given_scalar, v), 0}};
static const mr_tape_door from_scalar_door = {
    from_scalar_again, from_scalar_args, 1, sizeof(given_scalar), false};

mr_array *
mr_array_from_scalar_at(const char *site, mr_scalar v, mr_dtype dtype)
{
    struct mr__door old;
    unsigned char bits[16];
    mr_array *x;

    if (mr__ctx.tape != NULL && mr__tape_is_size(v))
        return mr__tape_call(&from_scalar_door, site,
                             &(given_scalar){v, dtype});
    old = open_door(site);
    if (dtype == MR_DTYPE_DEFAULT)
        dtype = default_dtype(v);
    if ((int)v.kind < MR_SCALAR_BOOL || v.kind > MR_SCALAR_COMPLEX) {
        x = mr__fail_null(MR_E_VALUE,
                          "%d is no kind of number: use one of enum "
                          "mr_scalar_kind",
                          (int)v.kind);
    } else if (mr__dtype_valid(dtype)) {
        mr__number_write(dtype, bits, v);
        x = mr__node_scalar(dtype, bits);
    } else {
        x = mr__fail_null(MR_E_DTYPE,
                          "%d is no dtype: use one of enum "
                          "mr_dtype",
                          (int)dtype);
    }
    return close_door(old, x);
}

mr_array *(mr_array_from_scalar)(mr_scalar v, mr_dtype dtype)
{
    return mr_array_from_scalar_at(NULL, v, dtype);
}

mr_array *
mr_float(double v)
{
    return mr_array_from_scalar_at(NULL, (mr_scalar){MR_SCALAR_FLOAT, {.f = v}},
                                   MR_FLOAT32);
}

mr_array *
mr_int(int64_t v)
{
    return mr_array_from_scalar_at(NULL, (mr_scalar){MR_SCALAR_INT, {.i = v}},
                                   MR_DTYPE_DEFAULT);
}

mr_array *
mr_bool(bool v)
{
    return mr_array_from_scalar_at(NULL, (mr_scalar){MR_SCALAR_BOOL, {.b = v}},
                                   MR_BOOL);
}

mr_array *
mr_complex(double re, double im)
{
    mr_scalar v = {MR_SCALAR_COMPLEX, {.c = {re, im}}};

    return mr_array_from_scalar_at(NULL, v, MR_COMPLEX64);
}

mr_array *
mr_number_like(const mr_array *x, double v)
{
    if (x == NULL) {
        if (!mr__error_pending())
            mr__fail(MR_E_NULL, "the array is NULL");
        return NULL;
    }
    return mr_array_from_scalar_at(NULL, (mr_scalar){MR_SCALAR_FLOAT, {.f = v}},
                                   (mr_dtype)x->dtype);
}

/* ---- asking ------------------------------------------------------------- */

/* An absent array has no shape. */
static bool
is_there(const mr_array *x)
{
    return x != NULL && x != mr_none_array;
}

mr_dtype
mr_array_dtype(const mr_array *x)
{
    return is_there(x) ? (mr_dtype)x->dtype : MR_DTYPE_DEFAULT;
}

int
mr_array_ndim(const mr_array *x)
{
    return is_there(x) ? x->ndim : -1;
}

/* Sizes that a shapeless trace cannot follow. */
static inline void
note_read(const mr_array *x)
{
    if (mr__ctx.tape != NULL && is_there(x))
        mr__tape_read(x);
}

int64_t
mr_array_size(const mr_array *x)
{
    note_read(x);
    return is_there(x) ? x->size : -1;
}

int64_t
mr_array_dim(const mr_array *x, int axis)
{
    int ndim = mr_array_ndim(x);

    if (ndim < 0) {
        if (!mr__error_pending())
            mr__fail(MR_E_NULL, "the array is NULL");
        return -1;
    }
    if (axis < -ndim || axis >= ndim) {
        mr__fail(MR_E_INDEX, "axis %d of an array of %d axes", axis, ndim);
        return -1;
    }
    note_read(x);
    return x->dim[axis < 0 ? axis + ndim : axis];
}

mr_shape
mr_array_shape(const mr_array *x)
{
    note_read(x);
    return is_there(x) ? (mr_shape){x->dim, x->ndim} : (mr_shape){NULL, -1};
}

size_t
mr_array_nbytes(const mr_array *x)
{
    note_read(x);
    return is_there(x) ? (size_t)(x->size * mr__dtype_size((mr_dtype)x->dtype))
                       : 0;
}

bool
mr_array_is_evaluated(const mr_array *x)
{
    return is_there(x) && mr__state(x) == MR_DONE;
}

bool
mr_array_is_tracer(const mr_array *x)
{
    return is_there(x) && mr__trace_live(x->trace);
}

bool
mr_array_is_read_only(const mr_array *x)
{
    return mr_array_is_tracer(x) ||
           (mr_array_is_evaluated(x) && x->buffer && x->buffer->sealed);
}

/* Does a derivative go on from x to its inputs? */
static bool
carries_derivative(const mr_array *x)
{
    return !(x->op->flags & MR_FLAG_ZERO_GRADIENT) &&
           (x->flags & MR_NODE_TUPLE ||
            mr__dtype_is_inexact((mr_dtype)x->dtype));
}

static bool
push_input(mr_map *seen, mr_vec *stack, mr_array *x)
{
    return x == NULL || !mr__trace_live(x->trace) ||
           mr__vec_push_new(stack, seen, x);
}

bool
mr_array_is_traced(const mr_array *x)
{
    mr_map seen = {0};
    mr_vec stack = {0};
    bool found = false, ok;

    if (!is_there(x) || !mr__trace_live(x->trace))
        return false;
    ok = push_input(&seen, &stack, (mr_array *)(uintptr_t)x);
    while (ok && !found && stack.n > 0) {
        mr_array *y = mr__vec_pop(&stack);

        if (y->flags & (MR_NODE_TRACER | MR_NODE_PLACEHOLDER))
            found = mr__dtype_is_inexact((mr_dtype)y->dtype);
        else if (carries_derivative(y))
            for (int i = 0; ok && i < mr__n_edges(y); i++)
                ok = push_input(&seen, &stack, y->in[i]);
    }
    mr__map_free(&seen);
    mr__vec_free(&stack);
    return found;
}

const char *
mr_array_site(const mr_array *x)
{
    return is_there(x) && x->site ? x->site : "";
}

const char *
mr_array_op(const mr_array *x)
{
    return is_there(x) ? x->op->name : "";
}
