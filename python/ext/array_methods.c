/* SPDX-License-Identifier: Apache-2.0
 *
 * array_methods.c -- the properties of the array type, and its methods that
 * are not operators: reading, copying, pickling, NumPy.
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

/* ---- properties --------------------------------------------------------- */

static PyObject *
shape_tuple(mr_shape s)
{
    PyObject *t = PyTuple_New((Py_ssize_t)s.n);

    for (int i = 0; t && i < s.n; i++) {
        PyObject *v = PyLong_FromLongLong(s.dim[i]);
        if (!v || PyTuple_SetItem(t, i, v) < 0)
            Py_CLEAR(t);
    }
    return t;
}

static PyObject *
get_shape(PyObject *self, void *closure)
{
    const mr_array *x = ext_x(self);
    PyObject *t;

    (void)closure;
    if (!mr_size_tracing())
        return shape_tuple(mr_array_shape(x));
    t = PyTuple_New(mr_array_ndim(x));
    for (int i = 0; t && i < mr_array_ndim(x); i++) {
        PyObject *v = ext_dim_object(x, i);
        if (!v || PyTuple_SetItem(t, i, v) < 0)
            Py_CLEAR(t);
    }
    return t;
}

static PyObject *
get_dtype(PyObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef(ext_dtype_object(mr_array_dtype(ext_x(self))));
}

static PyObject *
get_ndim(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLong(mr_array_ndim(ext_x(self)));
}

/* n times the number of elements, inside a shapeless trace. */
static PyObject *
symbolic_size(const mr_array *x, int64_t n)
{
    for (int i = 0; i < mr_array_ndim(x); i++)
        n = mr_dim_math(MR_SIZE_MULTIPLY, n, mr_dim(x, i));
    return n < 0 ? ext_raise()
                 : ext_size_object((mr_scalar){MR_SCALAR_INT, {.i = n}});
}

static PyObject *
get_size(PyObject *self, void *closure)
{
    (void)closure;
    if (mr_size_tracing())
        return symbolic_size(ext_x(self), 1);
    return PyLong_FromLongLong(mr_array_size(ext_x(self)));
}

static PyObject *
get_itemsize(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(mr_dtype_size(mr_array_dtype(ext_x(self))));
}

static PyObject *
get_nbytes(PyObject *self, void *closure)
{
    const mr_array *x = ext_x(self);

    (void)closure;
    if (mr_size_tracing())
        return symbolic_size(x, (int64_t)mr_dtype_size(mr_array_dtype(x)));
    return PyLong_FromSize_t(mr_array_nbytes(x));
}

static PyObject *
get_T(PyObject *self, void *closure)
{
    (void)closure;
    return ext_wrap(
        mr_transpose_at(ext_site(), ext_x(self), (mr_ints){NULL, -1}));
}

static PyObject *
get_mT(PyObject *self, void *closure)
{
    (void)closure;
    return ext_wrap(mr_matrix_transpose_at(ext_site(), ext_x(self)));
}

static PyObject *
get_real(PyObject *self, void *closure)
{
    (void)closure;
    return ext_wrap(mr_real_at(ext_site(), ext_x(self)));
}

static PyObject *
get_imag(PyObject *self, void *closure)
{
    (void)closure;
    return ext_wrap(mr_imag_at(ext_site(), ext_x(self)));
}

static PyObject *
get_at(PyObject *self, void *closure)
{
    (void)closure;
    return PyObject_CallFunctionObjArgs((PyObject *)ext.array_at, self, NULL);
}

/* Memory is shared: an array lies on no device more than on another. */
static PyObject *
get_device(PyObject *self, void *closure)
{
    (void)self;
    (void)closure;
    return ext_default_device();
}

PyGetSetDef ext_array_getset[] = {
    {"shape", get_shape, NULL, "The sizes of the axes, a tuple.", NULL},
    {"dtype", get_dtype, NULL, "The type of the elements.", NULL},
    {"ndim", get_ndim, NULL, "The number of axes.", NULL},
    {"size", get_size, NULL, "The number of elements.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes an element.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"T", get_T, NULL, "The axes reversed.", NULL},
    {"mT", get_mT, NULL, "The last two axes exchanged.", NULL},
    {"real", get_real, NULL, "The real parts.", NULL},
    {"imag", get_imag, NULL, "The imaginary parts.", NULL},
    {"device", get_device, NULL, "The default device: memory is shared by all.",
     NULL},
    {"at", get_at, NULL,
     "x.at[i].add(v), and so on: a new array in which repeated places "
     "accumulate.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- reading ------------------------------------------------------------ */

static PyObject *
item(PyObject *self, PyObject *unused)
{
    mr_scalar s;

    (void)unused;
    return ext_item(self, &s) && ext_warn_traced(ext_x(self))
               ? ext_scalar_object(&s)
               : NULL;
}

/* The values in row-major order; half types as float32.  *t says which. */
static char *
read_values(mr_array *x, mr_dtype *t)
{
    int64_t n = mr_array_size(x);
    char *p;
    mr_code code;

    *t = mr_array_dtype(x);
    if (*t == MR_FLOAT16 || *t == MR_BFLOAT16)
        *t = MR_FLOAT32;
    p = malloc((size_t)(n > 0 ? n : 1) * mr_dtype_size(*t));
    if (!p) {
        PyErr_NoMemory();
        return NULL;
    }
    if (*t == mr_array_dtype(x))
        code = mr_array_copy_out(x, p, (size_t)n * mr_dtype_size(*t));
    else
        code = mr_array_copy_f32(x, (float *)(void *)p, n);
    if (code != MR_OK) {
        free(p);
        ext_raise();
        return NULL;
    }
    return p;
}

static PyObject *
value_object(const char *p, mr_dtype t)
{
    union {
        bool b;
        uint8_t u1;
        uint16_t u2;
        uint32_t u4;
        uint64_t u8;
        int8_t i1;
        int16_t i2;
        int32_t i4;
        int64_t i8;
        float f[2];
        double d[2];
    } v;

    memcpy(&v, p, mr_dtype_size(t));
    switch (t) {
    case MR_BOOL:
        return PyBool_FromLong(v.b);
    case MR_UINT8:
        return PyLong_FromLong(v.u1);
    case MR_UINT16:
        return PyLong_FromLong(v.u2);
    case MR_UINT32:
        return PyLong_FromUnsignedLong(v.u4);
    case MR_UINT64:
        return PyLong_FromUnsignedLongLong(v.u8);
    case MR_INT8:
        return PyLong_FromLong(v.i1);
    case MR_INT16:
        return PyLong_FromLong(v.i2);
    case MR_INT32:
        return PyLong_FromLong(v.i4);
    case MR_INT64:
        return PyLong_FromLongLong(v.i8);
    case MR_FLOAT32:
        return PyFloat_FromDouble((double)v.f[0]);
    case MR_FLOAT64:
        return PyFloat_FromDouble(v.d[0]);
    case MR_COMPLEX64:
        return PyComplex_FromDoubles((double)v.f[0], (double)v.f[1]);
    case MR_COMPLEX128:
        return PyComplex_FromDoubles(v.d[0], v.d[1]);
    case MR_FLOAT16:
    case MR_BFLOAT16:
        break; /* read as float32 */
    }
    return NULL;
}

/* The list of axis `axis`; *p moves on. */
static PyObject *
nested(const char **p, mr_dtype t, mr_shape s, int axis)
{
    PyObject *list;

    if (axis == s.n) {
        const char *at = *p;
        *p += mr_dtype_size(t);
        return value_object(at, t);
    }
    list = PyList_New((Py_ssize_t)s.dim[axis]);
    for (int64_t i = 0; list && i < s.dim[axis]; i++) {
        PyObject *v = nested(p, t, s, axis + 1);
        if (!v || PyList_SetItem(list, (Py_ssize_t)i, v) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *
tolist(PyObject *self, PyObject *unused)
{
    mr_array *x = mr_retain(ext_x(self));
    mr_dtype t;
    char *values = read_values(x, &t);
    const char *p = values;
    PyObject *list = NULL;

    (void)unused;
    if (values && ext_warn_traced(x))
        list = nested(&p, t, mr_array_shape(x), 0);
    free(values);
    mr_release(x);
    return list;
}

static PyObject *
to_bytes(PyObject *self, PyObject *unused)
{
    mr_array *x = mr_retain(ext_x(self));
    size_t n = mr_array_nbytes(x);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);

    (void)unused;
    if (bytes && mr_array_copy_out(x, PyBytes_AsString(bytes), n) != MR_OK) {
        Py_CLEAR(bytes);
        ext_raise();
    } else if (bytes && !ext_warn_traced(x)) {
        Py_CLEAR(bytes);
    }
    mr_release(x);
    return bytes;
}

static PyObject *
to_complex(PyObject *self, PyObject *unused)
{
    mr_scalar s;
    PyObject *v, *c;

    (void)unused;
    if (!ext_item(self, &s) || !ext_warn_traced(ext_x(self)))
        return NULL;
    v = ext_scalar_object(&s);
    c = v ? PyObject_CallFunctionObjArgs((PyObject *)&PyComplex_Type, v, NULL)
          : NULL;
    Py_XDECREF(v);
    return c;
}

static PyObject *
format(PyObject *self, PyObject *spec)
{
    PyObject *v, *text;

    if (!PyUnicode_Check(spec)) {
        ext_wrong_type(spec, "a format must be text");
        return NULL;
    }
    if (mr_array_ndim(ext_x(self)) != 0) {
        if (PyUnicode_GetLength(spec) == 0)
            return PyObject_Str(self);
        PyErr_Format(PyExc_TypeError,
                     "only a 0-d array can be formatted as a number, this one "
                     "has %d axes",
                     (int)mr_array_ndim(ext_x(self)));
        return NULL;
    }
    v = item(self, NULL);
    text = v ? PyObject_Format(v, spec) : NULL;
    Py_XDECREF(v);
    return text;
}

/* ---- copies ------------------------------------------------------------- */

static PyObject *
copy(PyObject *self, PyObject *unused)
{
    (void)unused;
    return ext_wrap(mr_retain(ext_x(self)));
}

/* (bytes, shape, dtype) */
static PyObject *
get_state(PyObject *self, PyObject *unused)
{
    PyObject *bytes = to_bytes(self, unused);

    if (!bytes)
        return NULL;
    return Py_BuildValue("(NNO)", bytes, get_shape(self, NULL),
                         ext_dtype_object(mr_array_dtype(ext_x(self))));
}

static mr_array *
from_state(PyObject *state)
{
    PyObject *bytes, *shape, *dtype;
    int64_t dim[MR_MAX_NDIM], n = 1;
    mr_dtype t;
    int ndim;

    if (!PyArg_ParseTuple(state, "SOO", &bytes, &shape, &dtype) ||
        !ext_dtype_of(dtype, &t) ||
        (ndim = ext_int_list(shape, dim, MR_MAX_NDIM, "__setstate__",
                             "shape")) < 0)
        return NULL;
    for (int i = 0; i < ndim; i++)
        n *= dim[i];
    if (n * (int64_t)mr_dtype_size(t) != (int64_t)PyBytes_Size(bytes)) {
        PyErr_SetString(PyExc_ValueError, "a state that does not fit itself");
        return NULL;
    }
    return mr_array_from_at(ext_site(), PyBytes_AsString(bytes),
                            (mr_shape){dim, ndim}, t);
}

static PyObject *
set_state(PyObject *self, PyObject *state)
{
    mr_array *x = from_state(state);

    if (!x)
        return ext_raise();
    ext_rebind(self, x);
    Py_RETURN_NONE;
}

static PyObject *
reduce(PyObject *self, PyObject *unused)
{
    PyObject *make = PyObject_GetAttrString(ext.core, "_array_from_state");
    PyObject *state = make ? get_state(self, unused) : NULL;

    if (!state) {
        Py_XDECREF(make);
        return NULL;
    }
    return Py_BuildValue("(N(N))", make, state);
}

static PyObject *
array_from_state(PyObject *self, PyObject *state)
{
    (void)self;
    return ext_wrap(from_state(state));
}

/* ---- NumPy -------------------------------------------------------------- */

/* A NumPy array over the memory of x. */
static PyObject *
numpy_view(PyObject *numpy, PyObject *x)
{
    PyObject *view = PyMemoryView_FromObject(x);
    PyObject *a =
        view ? PyObject_CallMethod(numpy, "asarray", "O", view) : NULL;

    Py_XDECREF(view);
    return a;
}

/* NumPy knows bfloat16 through ml_dtypes only. */
static PyObject *
numpy_bfloat16(PyObject *numpy, PyObject *self)
{
    PyObject *ml = PyImport_ImportModule("ml_dtypes");
    PyObject *type = ml ? PyObject_GetAttrString(ml, "bfloat16") : NULL;
    PyObject *bits, *a = NULL, *b = NULL;

    Py_XDECREF(ml);
    if (!type) {
        PyErr_SetString(PyExc_ValueError,
                        "NumPy has no bfloat16: use x.astype(mx.float32), or "
                        "install ml_dtypes");
        return NULL;
    }
    bits = ext_wrap(mr_view_at(ext_site(), ext_x(self), MR_UINT16));
    if (bits)
        a = numpy_view(numpy, bits);
    if (a)
        b = PyObject_CallMethod(a, "view", "O", type);
    Py_XDECREF(a);
    Py_XDECREF(bits);
    Py_DECREF(type);
    return b;
}

static PyObject *
to_numpy(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("dtype"), EXT_WORD("copy"), NULL};
    PyObject *dtype = Py_None, *want_copy = Py_None, *numpy, *a, *b;

    if (!PyArg_ParseTupleAndKeywords(args, kw, "|OO:__array__", names, &dtype,
                                     &want_copy) ||
        ext_lost_signal(self))
        return NULL;
    numpy = PyImport_ImportModule("numpy");
    if (!numpy)
        return NULL;
    a = mr_array_dtype(ext_x(self)) == MR_BFLOAT16 ? numpy_bfloat16(numpy, self)
                                                   : numpy_view(numpy, self);
    if (!a && mr_array_failed(ext_x(self), NULL)) {
        PyErr_Clear(); /* raised for good this time, so an update is undone */
        mr_eval(ext_x(self));
        ext_raise();
    }
    if (a && dtype != Py_None) {
        b = PyObject_CallMethod(a, "astype", "O", dtype);
        Py_DECREF(a);
        a = b;
    } else if (a && want_copy == Py_True) {
        b = PyObject_CallMethod(a, "copy", NULL);
        Py_DECREF(a);
        a = b;
    }
    Py_DECREF(numpy);
    return a;
}

static PyObject *
array_namespace(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("api_version"), NULL};
    static const char *const versions[] = {"2021.12", "2022.12", "2023.12",
                                           "2024.12"};
    PyObject *version = Py_None;
    bool ok;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|$O:__array_namespace__", names,
                                     &version))
        return NULL;
    ok = version == Py_None;
    for (int i = 0; !ok && i < 4 && PyUnicode_Check(version); i++)
        ok = PyUnicode_CompareWithASCIIString(version, versions[i]) == 0;
    if (!ok) {
        PyErr_Format(PyExc_ValueError,
                     "api_version %R is none of 2021.12 to 2024.12", version);
        return NULL;
    }
    return PyImport_ImportModule("marram.core");
}

/* ---- methods that take another form than the function ------------------- */

/* x.astype(dtype, stream=None): dtype may be named here. */
static PyObject *
astype(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("dtype"), EXT_WORD("stream"),
                            EXT_WORD("copy"), EXT_WORD("device"), NULL};
    PyObject *dtype, *stream = Py_None, *device = Py_None, *r;
    int copies; /* arrays are values: nothing to copy for */
    mr_dtype t;
    mr_stream s, old;

    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|O$pO:astype", names, &dtype,
                                     &stream, &copies, &device))
        return NULL;
    if (stream == Py_None)
        stream = device;
    if (!ext_dtype_of(dtype, &t) || !ext_stream_of(stream, &s))
        return NULL;
    if (stream == Py_None)
        return ext_wrap(mr_astype_at(ext_site(), ext_x(self), t));
    old = mr_stream_scope(s);
    r = ext_wrap(mr_astype_at(ext_site(), ext_x(self), t));
    mr_stream_scope(old);
    return r;
}

/* x.to_device(device, stream=None): the array itself. */
static PyObject *
to_device(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD(""), EXT_WORD("stream"), NULL};
    PyObject *device, *stream = Py_None;
    mr_stream s;

    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|$O:to_device", names, &device,
                                     &stream) ||
        !ext_stream_of(device, &s))
        return NULL;
    return Py_NewRef(self);
}

/* x.f(...) as core.f(x, ...) */
static PyObject *
as_function(const char *name, PyObject *self, PyObject *args, PyObject *kw)
{
    PyObject *f = PyObject_GetAttrString(ext.core, name), *first, *all = NULL;
    PyObject *r = NULL;

    first = f ? PyTuple_Pack(1, self) : NULL;
    if (first)
        all = PySequence_Concat(first, args);
    if (all)
        r = PyObject_Call(f, all, kw);
    Py_XDECREF(all);
    Py_XDECREF(first);
    Py_XDECREF(f);
    return r;
}

static PyObject *
split(PyObject *self, PyObject *args, PyObject *kw)
{
    return as_function("split", self, args, kw);
}

static PyObject *
divide(PyObject *self, PyObject *other)
{
    return PyNumber_TrueDivide(self, other);
}

static PyObject *
divide_reflected(PyObject *self, PyObject *other)
{
    return PyNumber_TrueDivide(other, self);
}

PyMethodDef ext_array_methods[] = {
    {"item", item, METH_NOARGS,
     "item($self, /)\n--\n\nThe value of an array of size 1, a Python number."},
    {"tolist", tolist, METH_NOARGS,
     "tolist($self, /)\n--\n\nThe values as nested lists."},
    {"astype", EXT_KEYWORDS(astype),
     "astype($self, /, dtype, stream=None, *, copy=True, "
     "device=None)\n--\n\nThe array cast to a dtype."},
    {"to_device", EXT_KEYWORDS(to_device),
     "to_device($self, device, /, *, stream=None)\n--\n\n"
     "The array itself: memory is shared by all devices."},
    {"split", EXT_KEYWORDS(split),
     "split($self, /, indices_or_sections, axis=0, *, stream=None)\n--\n\n"
     "The array cut along an axis."},
    {"__array__", EXT_KEYWORDS(to_numpy),
     "A NumPy array; it shares memory unless dtype or copy ask for a copy."},
    {"__array_namespace__", EXT_KEYWORDS(array_namespace),
     "The module marram.core."},
    {"__bytes__", to_bytes, METH_NOARGS, "The bytes in row-major order."},
    {"__complex__", to_complex, METH_NOARGS, NULL},
    {"__copy__", copy, METH_NOARGS, NULL},
    {"__deepcopy__", copy, METH_O, NULL},
    {"__format__", format, METH_O, NULL},
    {"__getstate__", get_state, METH_NOARGS, NULL},
    {"__setstate__", set_state, METH_O, NULL},
    {"__reduce__", reduce, METH_NOARGS, NULL},
    {"__div__", divide, METH_O, NULL},
    {"__rdiv__", divide_reflected, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

PyMethodDef ext_state_functions[] = {
    {"_array_from_state", array_from_state, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
