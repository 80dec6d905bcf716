/* SPDX-License-Identifier: Apache-2.0
 *
 * buffer.c -- the buffer protocol, both ways, and NumPy through it.
 *
 * An exported view shares the array's memory and may be written to; it holds a
 * reference of the node, for the object may be rebound meanwhile.  Memory that
 * a live trace depends on is exported read-only: a write would be unseen by
 * the derivative.
 */
#include "ext.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

static const char *const formats[MR_N_DTYPES] = {
    [MR_BOOL] = "?",    [MR_UINT8] = "B",           [MR_UINT16] = "H",
    [MR_UINT32] = "I",  [MR_UINT64] = "Q",          [MR_INT8] = "b",
    [MR_INT16] = "h",   [MR_INT32] = "i",           [MR_INT64] = "q",
    [MR_FLOAT16] = "e", [MR_BFLOAT16] = "bfloat16", [MR_FLOAT32] = "f",
    [MR_FLOAT64] = "d", [MR_COMPLEX64] = "Zf",      [MR_COMPLEX128] = "Zd",
};

const char *
ext_format_of(mr_dtype t)
{
    return formats[t];
}

static bool
integer_of(char c, Py_ssize_t size, mr_dtype *out)
{
    static const mr_dtype s[] = {MR_INT8, MR_INT16, MR_INT32, MR_INT64};
    static const mr_dtype u[] = {MR_UINT8, MR_UINT16, MR_UINT32, MR_UINT64};
    int i = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;

    if (i < 0)
        return false;
    if (strchr("bhilqn", c))
        *out = s[i];
    else if (strchr("BHILQNc", c))
        *out = u[i];
    else
        return false;
    return true;
}

bool
ext_dtype_of_format(const char *format, Py_ssize_t itemsize, mr_dtype *out)
{
    if (!format)
        format = "B";
    if (strchr("@=<", *format) && *format)
        format++;
    for (int i = 0; i < MR_N_DTYPES; i++)
        if (strcmp(format, formats[i]) == 0 &&
            (Py_ssize_t)mr_dtype_size((mr_dtype)i) == itemsize) {
            *out = (mr_dtype)i;
            return true;
        }
    return format[0] && !format[1] && integer_of(format[0], itemsize, out);
}

/* ---- exporting ---------------------------------------------------------- */

typedef struct view_state {
    mr_array *x;
    Py_ssize_t shape[MR_MAX_NDIM + 1], strides[MR_MAX_NDIM + 1];
} view_state;

static bool
is_row_major(const view_state *s, int ndim, Py_ssize_t itemsize)
{
    Py_ssize_t want = itemsize;

    for (int i = ndim - 1; i >= 0; i--) {
        if (s->shape[i] == 0)
            return true;
        if (s->shape[i] != 1 && s->strides[i] != want)
            return false;
        want *= s->shape[i];
    }
    return true;
}

/* NumPy asks for a buffer first, drops the exception of a signal's handler that
 * ended the wait, and calls __array__ next, which brings it back. */
static _Thread_local struct {
    PyObject *asked; /* compared, never used */
    PyObject *type, *value, *traceback;
} lost;

static void
lost_keep(PyObject *self)
{
    PyErr_Fetch(&lost.type, &lost.value, &lost.traceback);
    lost.asked = self;
    PyErr_Restore(Py_XNewRef(lost.type), Py_XNewRef(lost.value),
                  Py_XNewRef(lost.traceback));
}

bool
ext_lost_signal(PyObject *self)
{
    PyObject *type = lost.type, *value = lost.value, *trace = lost.traceback;
    bool mine = type && lost.asked == self;

    memset(&lost, 0, sizeof lost);
    if (mine) {
        PyErr_Restore(type, value, trace);
        return true;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return false;
}

/* Fills the state of a view; false with an exception. */
static bool
view_open(view_state *s, PyObject *self, void **data)
{
    mr_array *x = ext_x(self);
    const int64_t *stride;
    mr_shape shape;
    Py_ssize_t size = (Py_ssize_t)mr_dtype_size(mr_array_dtype(x));

    s->x = mr_retain(x);
    *data = mr_array_data_exported(x);
    stride = *data || mr_array_size(x) == 0 ? mr_array_strides(x) : NULL;
    if ((!*data && mr_array_size(x) > 0) || (!stride && mr_array_ndim(x) > 0)) {
        mr_release(x);
        if (PyErr_Occurred())
            lost_keep(self);
        return ext_raise_again() != NULL; /* NumPy asks __array__ next */
    }
    shape = mr_array_shape(x);
    for (int i = 0; i < shape.n; i++) {
        s->shape[i] = (Py_ssize_t)shape.dim[i];
        s->strides[i] = (Py_ssize_t)stride[i] * size;
    }
    return true;
}

int
ext_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    mr_array *x = ext_x(self);
    mr_dtype t = mr_array_dtype(x);
    bool writes = (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE;
    view_state *s;
    void *data;
    int ndim = mr_array_ndim(x);

    view->obj = NULL;
    /* refused, NumPy asks __array__, which knows ml_dtypes */
    if (t == MR_BFLOAT16 && (flags & PyBUF_FORMAT) == PyBUF_FORMAT) {
        PyErr_SetString(PyExc_BufferError,
                        "buffers have no format for bfloat16: use "
                        "x.view(mx.uint16), or x.astype(mx.float32)");
        return -1;
    }
    if (writes && mr_array_is_tracer(x)) {
        PyErr_SetString(PyExc_BufferError,
                        "an array inside a transform is read-only");
        return -1;
    }
    if (!ext_warn_traced(x))
        return -1;
    s = malloc(sizeof *s);
    if (!s) {
        PyErr_NoMemory();
        return -1;
    }
    (void)ext_lost_signal(NULL);
    if (!view_open(s, self, &data)) {
        free(s);
        return -1;
    }
    view->itemsize = (Py_ssize_t)mr_dtype_size(t);
    view->readonly = mr_array_is_read_only(x);
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES &&
        !is_row_major(s, ndim, view->itemsize)) {
        mr_release(s->x);
        free(s);
        PyErr_SetString(PyExc_BufferError, "the array is not contiguous");
        return -1;
    }
    if (writes && view->readonly) {
        mr_release(s->x);
        free(s);
        PyErr_SetString(PyExc_BufferError,
                        "the memory came in as read-only: copy the array");
        return -1;
    }
    view->buf = data ? data : s; /* an empty array has no memory */
    view->obj = Py_NewRef(self);
    view->len = (Py_ssize_t)mr_array_nbytes(x);
    view->ndim = ndim;
    view->format = (flags & PyBUF_FORMAT) == PyBUF_FORMAT
                       ? (char *)(uintptr_t)formats[t]
                       : NULL;
    view->shape = (flags & PyBUF_ND) == PyBUF_ND ? s->shape : NULL;
    view->strides =
        (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? s->strides : NULL;
    view->suboffsets = NULL;
    view->internal = s;
    return 0;
}

void
ext_release_buffer(PyObject *self, Py_buffer *view)
{
    view_state *s = view->internal;

    (void)self;
    mr_release(s->x);
    free(s);
}

/* ---- importing ---------------------------------------------------------- */

static bool
has(PyObject *o, const char *name)
{
    PyObject *v = PyObject_GetAttrString((PyObject *)Py_TYPE(o), name);

    if (!v)
        PyErr_Clear();
    Py_XDECREF(v);
    return v != NULL;
}

bool
ext_is_foreign_array(PyObject *o)
{
    if (o == Py_None || PyUnicode_Check(o) || PyLong_Check(o) ||
        PyList_Check(o) || PyTuple_Check(o) || PyDict_Check(o))
        return false;
    return PyObject_CheckBuffer(o) || has(o, "__array__") ||
           has(o, "__dlpack__") || has(o, "__mlx_array__");
}

/* Nobody asked for float32, and a number is not only rounded: told once. */
static bool
warn_of_range(void)
{
    static _Atomic bool warned;

    /* relaxed: it guards nothing */
    if (atomic_exchange_explicit(&warned, true, memory_order_relaxed))
        return true;
    return PyErr_WarnEx(PyExc_UserWarning,
                        "float64 numbers became float32, which is the default, "
                        "and some are beyond its range: they are now inf or 0 "
                        "(dtype=mx.float64 keeps them, dtype=mx.float32 says "
                        "that this is meant)",
                        1) == 0;
}

/* n float64 as float32. */
static mr_array *
from_doubles(const void *data, mr_shape shape, bool asked)
{
    int64_t n = 1;
    const char *p = data;
    bool beyond = false;
    mr_array *x;
    float *f;

    for (int i = 0; i < shape.n; i++)
        n *= shape.dim[i];
    f = malloc((size_t)(n ? n : 1) * sizeof *f);
    if (!f) {
        PyErr_NoMemory();
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) {
        double v;
        memcpy(&v, p + 8 * i, sizeof v);
        f[i] = (float)v;
        beyond |= (fabsf(f[i]) == INFINITY) != (fabs(v) == (double)INFINITY);
        beyond |= (f[i] == 0.0F) != (v == 0.0);
    }
    if (beyond && !asked && !warn_of_range()) {
        free(f);
        return NULL;
    }
    x = mr_array_from_at(ext_site(), f, shape, MR_FLOAT32);
    free(f);
    return x;
}

static mr_array *
from_memory(const void *data, mr_shape shape, mr_dtype have, mr_dtype t)
{
    mr_array *x, *y;

    if (have == MR_FLOAT64 && (t == MR_DTYPE_DEFAULT || t == MR_FLOAT32))
        return from_doubles(data, shape, t == MR_FLOAT32);
    x = mr_array_from_at(ext_site(), data, shape, have);
    if (!x || t == MR_DTYPE_DEFAULT || t == have)
        return x;
    y = mr_astype_at(ext_site(), x, t);
    mr_release(x);
    return y;
}

static mr_array *
from_view(Py_buffer *view, mr_dtype have, mr_dtype t)
{
    int64_t dim[MR_MAX_NDIM];
    mr_shape shape = {dim, view->ndim};
    mr_array *x = NULL;
    void *copy;

    if (view->ndim > MR_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError,
                     "a buffer of %d axes, at most %d are possible", view->ndim,
                     MR_MAX_NDIM);
        return NULL;
    }
    for (int i = 0; i < view->ndim; i++)
        dim[i] = view->shape[i];
    if (PyBuffer_IsContiguous(view, 'C'))
        return from_memory(view->buf, shape, have, t);
    copy = malloc((size_t)(view->len ? view->len : 1));
    if (!copy)
        PyErr_NoMemory();
    else if (PyBuffer_ToContiguous(copy, view, view->len, 'C') == 0)
        x = from_memory(copy, shape, have, t);
    free(copy);
    return x;
}

mr_array *
ext_from_buffer(PyObject *o, mr_dtype t)
{
    Py_buffer view;
    mr_dtype have;
    mr_array *x = NULL;

    if (PyObject_GetBuffer(o, &view, PyBUF_FULL_RO) < 0)
        return NULL;
    if (ext_dtype_of_format(view.format, view.itemsize, &have))
        x = from_view(&view, have, t);
    else
        PyErr_Format(PyExc_ValueError, "no dtype for the buffer format '%s'",
                     view.format ? view.format : "");
    PyBuffer_Release(&view);
    return x;
}

/* What NumPy can export only in another guise: bfloat16 of ml_dtypes and
 * foreign byte orders.  NULL without an exception when o is neither. */
static mr_array *
from_odd_numpy(PyObject *o, mr_dtype t)
{
    PyObject *dtype = PyObject_GetAttrString(o, "dtype"), *name = NULL,
             *order = NULL, *other = NULL;
    mr_array *bits = NULL, *x = NULL;

    if (dtype && (name = PyObject_GetAttrString(dtype, "name")) &&
        PyUnicode_Check(name) &&
        PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0) {
        other = PyObject_CallMethod(o, "view", "s", "uint16");
        bits = other ? ext_from_buffer(other, MR_DTYPE_DEFAULT) : NULL;
        x = bits ? mr_view_at(ext_site(), bits, MR_BFLOAT16) : NULL;
        if (x && t != MR_DTYPE_DEFAULT && t != MR_BFLOAT16) {
            mr_array *y = mr_astype_at(ext_site(), x, t);
            mr_release(x);
            x = y;
        }
    } else if (name && (order = PyObject_GetAttrString(dtype, "byteorder")) &&
               PyUnicode_Check(order) &&
               PyUnicode_CompareWithASCIIString(order, ">") == 0) {
        PyObject *native = PyObject_CallMethod(dtype, "newbyteorder", "s", "=");
        other = native ? PyObject_CallMethod(o, "astype", "O", native) : NULL;
        Py_XDECREF(native);
        x = other ? ext_from_buffer(other, t) : NULL;
    } else {
        PyErr_Clear();
    }
    mr_release(bits);
    Py_XDECREF(other);
    Py_XDECREF(order);
    Py_XDECREF(name);
    Py_XDECREF(dtype);
    return x;
}

/* The exception set is replaced by x, when there is one. */
static mr_array *
from_fallback(PyObject *o, mr_dtype t)
{
    PyObject *type, *value, *traceback;
    mr_array *x;

    PyErr_Fetch(&type, &value, &traceback);
    x = from_odd_numpy(o, t);
    if (x || PyErr_Occurred()) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return x;
    }
    PyErr_Restore(type, value, traceback);
    return NULL;
}

static mr_array *
from_array_method(PyObject *o, mr_dtype t)
{
    PyObject *a = PyObject_CallMethod(o, "__array__", NULL);
    mr_array *x = NULL;

    if (a && PyObject_CheckBuffer(a))
        x = ext_from_buffer(a, t);
    else if (a)
        PyErr_SetString(PyExc_ValueError, "__array__ gave no NumPy array");
    if (a && !x)
        x = from_fallback(a, t);
    Py_XDECREF(a);
    return x;
}

/* What MLX code gives objects that stand for an array. */
static mr_array *
from_stand_in(PyObject *o, mr_dtype t)
{
    PyObject *a = PyObject_CallMethod(o, "__mlx_array__", NULL);
    mr_array *x = NULL;

    if (a && ext_is_array(a))
        x = ext_from_object(a, t);
    else if (a)
        ext_wrong_type(a, "__mlx_array__() must give an array");
    Py_XDECREF(a);
    return x;
}

mr_array *
ext_from_foreign(PyObject *o, mr_dtype t)
{
    mr_array *x, *y;

    if (PyObject_CheckBuffer(o)) {
        x = ext_from_buffer(o, t);
        return x ? x : from_fallback(o, t);
    }
    if (has(o, "__mlx_array__"))
        return from_stand_in(o, t);
    if (has(o, "__array__"))
        return from_array_method(o, t);
    x = ext_from_dlpack(o);
    if (x && t != MR_DTYPE_DEFAULT && mr_array_dtype(x) != t) {
        y = mr_astype_at(ext_site(), x, t);
        mr_release(x);
        return y;
    }
    return x;
}
