/* SPDX-License-Identifier: Apache-2.0
 *
 * dlpack.c -- DLPack, both ways, on the host; asarray and from_dlpack.
 *
 * The structs are those of DLPack's public ABI, versions 0.x (capsule
 * "dltensor") and 1.x ("dltensor_versioned").  Both ways the memory is shared.
 * Source: https://dmlc.github.io/dlpack/latest/c_api.html
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

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

typedef struct dl_managed {
    dl_tensor t;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    dl_tensor t;
} dl_versioned;

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

static bool
dtype_of(const dl_tensor *t, mr_dtype *out)
{
    for (int i = 0; i < MR_N_DTYPES; i++)
        if (code_of((mr_dtype)i) == t->dtype.code && t->dtype.lanes == 1 &&
            8 * mr_dtype_size((mr_dtype)i) == t->dtype.bits) {
            *out = (mr_dtype)i;
            return true;
        }
    PyErr_Format(PyExc_ValueError,
                 "no dtype for DLPack code %d with %d bits and %d lanes",
                 t->dtype.code, t->dtype.bits, t->dtype.lanes);
    return false;
}

/* ---- exporting ---------------------------------------------------------- */

/* One block: the array, its numbers, and either struct. */
typedef struct exported {
    mr_array *x;
    int64_t dims[2 * MR_MAX_NDIM];
    union {
        dl_managed old;
        dl_versioned now;
    } as;
} exported;

static void
delete_old(dl_managed *m)
{
    exported *e = m->context;

    mr_release(e->x);
    free(e);
}

static void
delete_now(dl_versioned *m)
{
    exported *e = m->context;

    mr_release(e->x);
    free(e);
}

static void
capsule_free(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");
        m->deleter(m);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *m = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        m->deleter(m);
    }
}

static bool
export_tensor(exported *e, dl_tensor *t)
{
    mr_array *x = e->x;
    int n = mr_array_ndim(x);
    const int64_t *stride;

    t->data = mr_array_data_exported(x);
    stride = mr_array_strides(x);
    if ((!t->data && mr_array_size(x) > 0) || (!stride && n > 0))
        return false;
    for (int i = 0; i < n; i++) {
        e->dims[i] = mr_array_dim(x, i);
        e->dims[n + i] = stride[i];
    }
    t->device.type = DL_CPU;
    t->device.id = 0;
    t->ndim = n;
    t->dtype.code = code_of(mr_array_dtype(x));
    t->dtype.bits = (uint8_t)(8 * mr_dtype_size(mr_array_dtype(x)));
    t->dtype.lanes = 1;
    t->shape = e->dims;
    t->strides = e->dims + n;
    t->byte_offset = 0;
    return true;
}

static PyObject *
export_capsule(mr_array *x, bool versioned, bool copied)
{
    exported *e;
    PyObject *capsule = NULL;

    if (!ext_warn_traced(x))
        return NULL;
    e = calloc(1, sizeof *e);
    if (!e)
        return PyErr_NoMemory();
    e->x = mr_retain(x);
    if (!export_tensor(e, versioned ? &e->as.now.t : &e->as.old.t)) {
        ext_raise();
    } else if (versioned) {
        e->as.now.version.major = 1;
        e->as.now.context = e;
        e->as.now.deleter = delete_now;
        e->as.now.flags = (mr_array_is_tracer(x) ? DL_READ_ONLY : 0u) |
                          (copied ? DL_COPIED : 0u);
        capsule = PyCapsule_New(&e->as.now, "dltensor_versioned", capsule_free);
    } else {
        e->as.old.context = e;
        e->as.old.deleter = delete_old;
        capsule = PyCapsule_New(&e->as.old, "dltensor", capsule_free);
    }
    if (!capsule) {
        mr_release(e->x);
        free(e);
    }
    return capsule;
}

/* Other memory with the same values. */
static mr_array *
copy_of(mr_array *x)
{
    size_t bytes = mr_array_nbytes(x);
    void *p = malloc(bytes ? bytes : 1);
    mr_array *y = NULL;

    if (!p) {
        PyErr_NoMemory();
        return NULL;
    }
    if (mr_array_copy_out(x, p, bytes) == MR_OK)
        y = mr_array_from_at(ext_site(), p, mr_array_shape(x),
                             mr_array_dtype(x));
    free(p);
    return y;
}

static PyObject *
dlpack(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {
        (char *)(uintptr_t) "stream", (char *)(uintptr_t) "max_version",
        (char *)(uintptr_t) "dl_device", (char *)(uintptr_t) "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None,
             *copy = Py_None, *capsule;
    int type = DL_CPU, id = 0, major = 0, minor = 0;
    mr_array *x;

    if (!PyArg_ParseTupleAndKeywords(args, kw, "|$OOOO:__dlpack__", names,
                                     &stream, &version, &device, &copy))
        return NULL;
    if (device != Py_None && !PyArg_ParseTuple(device, "ii", &type, &id))
        return NULL;
    if (version != Py_None && !PyArg_ParseTuple(version, "ii", &major, &minor))
        return NULL;
    if (type != DL_CPU) {
        PyErr_SetString(PyExc_BufferError, "the array is on the CPU");
        return NULL;
    }
    x = copy == Py_True ? copy_of(ext_x(self)) : mr_retain(ext_x(self));
    if (!x)
        return ext_raise();
    capsule = export_capsule(x, major >= 1, copy == Py_True);
    mr_release(x);
    return capsule;
}

static PyObject *
dlpack_device(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

PyMethodDef ext_dlpack_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))dlpack,
     METH_VARARGS | METH_KEYWORDS, "A capsule over the array's memory."},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, "(1, 0): the CPU."},
    {NULL, NULL, 0, NULL},
};

/* ---- importing ---------------------------------------------------------- */

static void
free_old(void *context, void *data)
{
    dl_managed *m = context;

    (void)data;
    if (m->deleter)
        m->deleter(m);
}

static void
free_now(void *context, void *data)
{
    dl_versioned *m = context;

    (void)data;
    if (m->deleter)
        m->deleter(m);
}

static bool
acceptable(const dl_tensor *t, mr_dtype *dtype)
{
    if (t->device.type != DL_CPU && t->device.type != DL_CUDA_HOST &&
        t->device.type != DL_CUDA_MANAGED) {
        PyErr_Format(PyExc_ValueError,
                     "memory of DLPack device %d cannot be read here",
                     (int)t->device.type);
        return false;
    }
    return dtype_of(t, dtype);
}

static mr_array *
import_tensor(const dl_tensor *t, mr_dtype dtype, void (*drop)(void *, void *),
              void *context)
{
    return mr_array_wrap((char *)t->data + t->byte_offset,
                         (mr_shape){t->shape, t->ndim}, t->strides, dtype, drop,
                         context);
}

/* The capsule is renamed when its tensor is taken, as the protocol says; what
 * cannot be taken stays the capsule's. */
static mr_array *
import_capsule(PyObject *capsule)
{
    mr_dtype dtype;

    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *m = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (m->version.major > 1) {
            PyErr_Format(PyExc_BufferError, "DLPack version %u.%u",
                         m->version.major, m->version.minor);
            return NULL;
        }
        if (!acceptable(&m->t, &dtype) ||
            PyCapsule_SetName(capsule, "used_dltensor_versioned") < 0)
            return NULL;
        return import_tensor(&m->t, dtype, free_now, m);
    }
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");
        if (!acceptable(&m->t, &dtype) ||
            PyCapsule_SetName(capsule, "used_dltensor") < 0)
            return NULL;
        return import_tensor(&m->t, dtype, free_old, m);
    }
    PyErr_SetString(PyExc_ValueError,
                    "__dlpack__ gave no capsule, or one that was used");
    return NULL;
}

mr_array *
ext_from_dlpack(PyObject *o)
{
    PyObject *method = PyObject_GetAttrString(o, "__dlpack__"), *capsule = NULL;
    PyObject *args, *kw = NULL;
    mr_array *x;

    if (!method)
        return NULL;
    args = PyTuple_New(0);
    kw = args ? Py_BuildValue("{s:(ii)}", "max_version", 1, 0) : NULL;
    if (kw)
        capsule = PyObject_Call(method, args, kw);
    if (!capsule && kw && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear(); /* a producer of before version 1 */
        capsule = PyObject_CallObject(method, NULL);
    }
    x = capsule ? import_capsule(capsule) : NULL;
    Py_XDECREF(capsule);
    Py_XDECREF(kw);
    Py_XDECREF(args);
    Py_DECREF(method);
    return x;
}
