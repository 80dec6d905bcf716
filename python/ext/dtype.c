/* SPDX-License-Identifier: Apache-2.0
 *
 * dtype.c -- the Dtype objects: one for each element type, made at import.
 *
 * A Dtype equals only itself, so identity does for comparing and hashing.
 */
#include "ext.h"

#include <string.h>

#include "marram/marram.h"

typedef struct dtype_object {
    PyObject_HEAD mr_dtype t;
} dtype_object;

static mr_dtype
dtype_get(PyObject *o)
{
    return ((dtype_object *)o)->t;
}

/* "bool_" in Python, "bool" elsewhere. */
static const char *
dtype_attribute(mr_dtype t)
{
    return t == MR_BOOL ? "bool_" : mr_dtype_name(t);
}

PyObject *
ext_dtype_object(mr_dtype t)
{
    return ext.dtypes[t];
}

bool
ext_dtype_of(PyObject *o, mr_dtype *out)
{
    if (Py_TYPE(o) != ext.dtype) {
        ext_wrong_type(o, "a dtype must be a Dtype");
        return false;
    }
    *out = dtype_get(o);
    return true;
}

static PyObject *
dtype_repr(PyObject *self)
{
    return PyUnicode_FromFormat("marram.core.%s",
                                mr_dtype_name(dtype_get(self)));
}

static PyObject *
dtype_size(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(mr_dtype_size(dtype_get(self)));
}

static PyObject *
dtype_name(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(mr_dtype_name(dtype_get(self)));
}

/* Pickled and copied by name: loading gives the one object. */
static PyObject *
dtype_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyUnicode_FromString(dtype_attribute(dtype_get(self)));
}

static PyMethodDef dtype_methods[] = {
    {"__reduce__", dtype_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef dtype_getset[] = {
    {"size", dtype_size, NULL, "Bytes an element.", NULL},
    {"name", dtype_name, NULL, "Its name, as \"float32\".", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot dtype_slots[] = {
    {Py_tp_doc, EXT_DOC("The type of an array's elements.")},
    {Py_tp_repr, dtype_repr},
    {Py_tp_methods, dtype_methods},
    {Py_tp_getset, dtype_getset},
    {0, NULL},
};

static PyType_Spec dtype_spec = {
    "marram.core.Dtype",
    sizeof(dtype_object),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
        Py_TPFLAGS_IMMUTABLETYPE,
    dtype_slots,
};

int
ext_init_dtype(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&dtype_spec);

    if (!type || PyModule_AddObjectRef(module, "Dtype", type) < 0)
        return -1;
    ext.dtype = (PyTypeObject *)type;
    for (int i = 0; i < MR_N_DTYPES; i++) {
        dtype_object *d = (dtype_object *)PyType_GenericAlloc(ext.dtype, 0);
        if (!d)
            return -1;
        d->t = (mr_dtype)i;
        ext.dtypes[i] = (PyObject *)d;
        if (PyModule_AddObjectRef(module, dtype_attribute(d->t),
                                  ext.dtypes[i]) < 0)
            return -1;
    }
    return 0;
}

/* ---- functions ---------------------------------------------------------- */

static bool
any_dtype(PyObject *o, mr_dtype *out)
{
    if (ext_is_array(o)) {
        *out = mr_array_dtype(ext_x(o));
        return true;
    }
    if (Py_TYPE(o) == ext.dtype) {
        *out = dtype_get(o);
        return true;
    }
    ext_wrong_type(o, "result_type() needs arrays and Dtypes");
    return false;
}

/* Numbers are weak: they count after all arrays and Dtypes. */
static PyObject *
result_type(PyObject *self, PyObject *args)
{
    Py_ssize_t n = PyTuple_Size(args);
    mr_dtype t = MR_BOOL;
    bool any = false;
    mr_scalar v;

    (void)self;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(args, i);
        mr_dtype u = MR_BOOL;
        if (!ext_is_array(o) && Py_TYPE(o) != ext.dtype &&
            ext_scalar(o, &v) > 0)
            continue;
        PyErr_Clear();
        if (!any_dtype(o, &u))
            return NULL;
        t = any ? mr_promote_types(t, u) : u;
        any = true;
    }
    if (!any) {
        PyErr_SetString(PyExc_ValueError,
                        "result_type() needs an array or a Dtype");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(args, i);
        if (!ext_is_array(o) && Py_TYPE(o) != ext.dtype &&
            ext_scalar(o, &v) > 0)
            t = mr_promote_scalar(t, v.kind);
    }
    return Py_NewRef(ext.dtypes[t]);
}

static PyObject *
can_cast(PyObject *self, PyObject *args)
{
    PyObject *from, *to;
    mr_dtype a = MR_BOOL, b = MR_BOOL;

    (void)self;
    if (!PyArg_ParseTuple(args, "OO:can_cast", &from, &to) ||
        !any_dtype(from, &a) || !ext_dtype_of(to, &b))
        return NULL;
    return PyBool_FromLong(mr_promote_types(a, b) == b);
}

PyMethodDef ext_dtype_functions[] = {
    {"result_type", result_type, METH_VARARGS,
     "result_type(*arrays_and_dtypes)\n--\n\n"
     "The dtype that these arrays and Dtypes promote to."},
    {"can_cast", can_cast, METH_VARARGS,
     "can_cast(from_, to, /)\n--\n\n"
     "Whether promoting a dtype, or an array's, with another gives that."},
    {NULL, NULL, 0, NULL},
};
