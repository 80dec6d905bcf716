/* SPDX-License-Identifier: Apache-2.0
 *
 * dlpack.c -- memory shared with other libraries by DLPack, both ways.
 *
 * The structs are those of DLPack's public ABI.  An export is one block: the
 * struct, its dims and strides, and what keeps the memory alive.
 * Source: https://dmlc.github.io/dlpack/latest/c_api.html
 *
 * Called by: users, bindings.  Calls: marram/array.h, array/, graph/.
 */
#include "marram/dlpack.h"

#include <stddef.h>

#include "array/buffer.h"
#include "array/dtype.h"
#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "graph/node.h"
#include "marram/array.h"

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

struct DLManagedTensor {
    dl_tensor t;
    void *context;
    void (*deleter)(struct DLManagedTensor *self);
};

struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    dl_tensor t;
};

enum { DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT = 4, DL_COMPLEX, DL_BOOL };
enum { DL_CPU = 1, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };
enum { DL_READ_ONLY = 1, DL_COPIED = 2 };

static uint8_t
code_of(mr_dtype t)
{
    if (t == MR_BOOL)
        return DL_BOOL;
    if (t == MR_BFLOAT16)
        return DL_BFLOAT;
    if (mr_dtype_is_complex(t))
        return DL_COMPLEX;
    if (mr_dtype_is_inexact(t))
        return DL_FLOAT;
    return t >= MR_INT8 ? DL_INT : DL_UINT;
}

static mr_code
dtype_of(const dl_tensor *t, mr_dtype *out)
{
    for (int i = 0; i < MR_N_DTYPES; i++)
        if (code_of((mr_dtype)i) == t->dtype.code && t->dtype.lanes == 1 &&
            8 * mr_dtype_size((mr_dtype)i) == t->dtype.bits) {
            *out = (mr_dtype)i;
            return MR_OK;
        }
    return mr__fail(MR_E_DTYPE,
                    "no dtype for DLPack code %d with %d bits and %d lanes",
                    t->dtype.code, t->dtype.bits, t->dtype.lanes);
}

/* ---- exporting -------------------------------------------------------------
 */

typedef struct exported {
    union {
        struct DLManagedTensor old;
        struct DLManagedTensorVersioned now;
    } as;
    mr_array *x;       /* whose memory is shared; NULL: */
    mr_buffer *buffer; /* a copy */
    int64_t dims[];
} exported;

static void
exported_free(exported *e)
{
    mr_release(e->x);
    if (e->buffer)
        mr__buffer_release(e->buffer);
    mr__dealloc(e);
}

static void
delete_old(struct DLManagedTensor *m)
{
    exported_free(m->context);
}

static void
delete_now(struct DLManagedTensorVersioned *m)
{
    exported_free(m->context);
}

/* Where the elements are, with strides into e->dims. */
static void *
shared_memory(exported *e, mr_array *x)
{
    void *data = mr_array_data_exported(x);
    const int64_t *strides = data ? mr_array_strides(x) : NULL;

    if (!data || (!strides && x->ndim > 0))
        return NULL;
    for (int i = 0; i < x->ndim; i++)
        e->dims[x->ndim + i] = strides[i];
    e->x = mr_retain(x);
    return data;
}

static void *
copied_memory(exported *e, mr_array *x)
{
    size_t bytes = mr_array_nbytes(x);

    e->buffer = mr__buffer_new(mr__host_pool(), bytes);
    if (!e->buffer || mr_array_copy_out(x, e->buffer->data, bytes) != MR_OK)
        return NULL;
    mr__strides_fresh(x->ndim, x->dim, e->dims + x->ndim);
    return e->buffer->data;
}

static exported *
export_new(mr_array *x)
{
    exported *e;

    if (mr_array_ndim(x) < 0) {
        mr_array_data(x); /* says what x is instead */
        return NULL;
    }
    e = mr__alloc_zero(sizeof *e + 2 * (size_t)x->ndim * sizeof e->dims[0]);
    if (!e)
        return NULL;
    for (int i = 0; i < x->ndim; i++)
        e->dims[i] = x->dim[i];
    return e;
}

static bool
export_fill(exported *e, mr_array *x, mr_dlpack_mode mode, dl_tensor *t)
{
    mr_dtype dtype = mr_array_dtype(x);

    t->data =
        mode == MR_DLPACK_COPY ? copied_memory(e, x) : shared_memory(e, x);
    if (!t->data) {
        exported_free(e);
        return false;
    }
    t->device.type = DL_CPU;
    t->ndim = x->ndim;
    t->dtype.code = code_of(dtype);
    t->dtype.bits = (uint8_t)(8 * mr_dtype_size(dtype));
    t->dtype.lanes = 1;
    t->shape = e->dims;
    t->strides = e->dims + x->ndim;
    return true;
}

struct DLManagedTensorVersioned *
mr_to_dlpack(mr_array *x, mr_dlpack_mode mode)
{
    exported *e = export_new(x);
    struct DLManagedTensorVersioned *m;

    if (!e || !export_fill(e, x, mode, &e->as.now.t))
        return NULL;
    m = &e->as.now;
    m->version.major = 1;
    m->context = e;
    m->deleter = delete_now;
    m->flags = mode == MR_DLPACK_COPY     ? DL_COPIED
               : mr_array_is_read_only(x) ? DL_READ_ONLY
                                          : 0;
    return m;
}

struct DLManagedTensor *
mr_to_dlpack_unversioned(mr_array *x, mr_dlpack_mode mode)
{
    exported *e = export_new(x);
    struct DLManagedTensor *m;

    if (!e || !export_fill(e, x, mode, &e->as.old.t))
        return NULL;
    if (e->x && x->buffer && x->buffer->sealed) {
        exported_free(e);
        return mr__fail_null(MR_E_VALUE,
                             "the memory may not be written, which DLPack "
                             "says only from version 1.0 on: copy it");
    }
    m = &e->as.old;
    m->context = e;
    m->deleter = delete_old;
    return m;
}

void
mr_dlpack_free(struct DLManagedTensorVersioned *m)
{
    if (m && m->deleter)
        m->deleter(m);
}

void
mr_dlpack_free_unversioned(struct DLManagedTensor *m)
{
    if (m && m->deleter)
        m->deleter(m);
}

/* ---- importing -------------------------------------------------------------
 */

static void
drop_old(void *context, void *data)
{
    (void)data;
    mr_dlpack_free_unversioned(context);
}

static void
drop_now(void *context, void *data)
{
    (void)data;
    mr_dlpack_free(context);
}

static mr_code
acceptable(const dl_tensor *t, mr_dtype *dtype)
{
    if (t->device.type != DL_CPU && t->device.type != DL_CUDA_HOST &&
        t->device.type != DL_CUDA_MANAGED)
        return mr__fail(MR_E_VALUE,
                        "memory of DLPack device %d cannot be read here: "
                        "bring it to the host (device 1) first",
                        (int)t->device.type);
    return dtype_of(t, dtype);
}

/* Whatever happens, drop(m) is called once in the end. */
static mr_array *
import_taken(const dl_tensor *t, mr_code so_far, void (*drop)(void *, void *),
             void *m)
{
    mr_dtype dtype = MR_DTYPE_DEFAULT;
    char *data;

    if (so_far != MR_OK || acceptable(t, &dtype) != MR_OK) {
        struct mr__error_stash aside = mr__error_stash();

        drop(m, NULL);
        mr__error_unstash(aside);
        return NULL;
    }
    data = t->data;
    return mr_array_wrap(data ? data + t->byte_offset : NULL,
                         (mr_shape){t->shape, t->ndim}, t->strides, dtype, drop,
                         m);
}

mr_array *
mr_from_dlpack(struct DLManagedTensorVersioned *m)
{
    mr_array *x;
    mr_code code = MR_OK;
    bool fixed;

    if (!m)
        return mr__fail_null(MR_E_NULL, "the tensor is NULL");
    fixed = (m->flags & DL_READ_ONLY) != 0;
    /* the tensor lies elsewhere in another major version */
    if (m->version.major > 1)
        code = mr__fail(MR_E_VALUE, "DLPack version %u.%u: 1.x is known",
                        m->version.major, m->version.minor);
    x = import_taken(&m->t, code, drop_now, m);
    if (x && fixed)
        x->buffer->sealed = true; /* nobody else has the buffer yet */
    return x;
}

mr_array *
mr_from_dlpack_unversioned(struct DLManagedTensor *m)
{
    if (!m)
        return mr__fail_null(MR_E_NULL, "the tensor is NULL");
    return import_taken(&m->t, MR_OK, drop_old, m);
}
