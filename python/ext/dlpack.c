/* SPDX-License-Identifier: Apache-2.0
 *
 * dlpack.c -- DLPack's protocol of Python: capsules around the tensors of
 * marram/dlpack.h, __dlpack__ and __dlpack_device__.
 *
 * Versions 0.x have the capsule "dltensor", 1.x "dltensor_versioned"; whoever
 * takes a tensor renames its capsule.
 * Source: https://dmlc.github.io/dlpack/latest/python_spec.html
 */
#include "ext.h"

#include "marram/marram.h"

enum { DL_CPU = 1 };

/* ---- exporting ---------------------------------------------------------- */

static void
capsule_free(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        mr_dlpack_free_unversioned(PyCapsule_GetPointer(capsule, "dltensor"));
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        mr_dlpack_free(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static PyObject *
export_capsule(mr_array *x, bool versioned, mr_dlpack_mode mode)
{
    struct DLManagedTensorVersioned *now = NULL;
    struct DLManagedTensor *old = NULL;
    PyObject *capsule;

    if (!ext_warn_traced(x))
        return NULL;
    if (versioned)
        now = mr_to_dlpack(x, mode);
    else
        old = mr_to_dlpack_unversioned(x, mode);
    if (!now && !old && !versioned && mr_array_is_read_only(x)) {
        PyErr_SetString(PyExc_BufferError, mr_error_take().message);
        return NULL;
    }
    if (!now && !old)
        return ext_raise();
    capsule = now ? PyCapsule_New(now, "dltensor_versioned", capsule_free)
                  : PyCapsule_New(old, "dltensor", capsule_free);
    if (!capsule) {
        mr_dlpack_free(now);
        mr_dlpack_free_unversioned(old);
    }
    return capsule;
}

static PyObject *
dlpack(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("stream"), EXT_WORD("max_version"),
                            EXT_WORD("dl_device"), EXT_WORD("copy"), NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None,
             *copy = Py_None;
    int type = DL_CPU, id = 0, major = 0, minor = 0;

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
    return export_capsule(ext_x(self), major >= 1,
                          copy == Py_True ? MR_DLPACK_COPY : MR_DLPACK_SHARE);
}

static PyObject *
dlpack_device(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

PyMethodDef ext_dlpack_methods[] = {
    {"__dlpack__", EXT_KEYWORDS(dlpack), "A capsule over the array's memory."},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, "(1, 0): the CPU."},
    {NULL, NULL, 0, NULL},
};

/* ---- importing ---------------------------------------------------------- */

static mr_array *
import_capsule(PyObject *capsule)
{
    static const char now[] = "dltensor_versioned", old[] = "dltensor";
    void *m;

    if (PyCapsule_IsValid(capsule, now)) {
        m = PyCapsule_GetPointer(capsule, now);
        return PyCapsule_SetName(capsule, "used_dltensor_versioned") < 0
                   ? NULL
                   : mr_from_dlpack(m);
    }
    if (PyCapsule_IsValid(capsule, old)) {
        m = PyCapsule_GetPointer(capsule, old);
        return PyCapsule_SetName(capsule, "used_dltensor") < 0
                   ? NULL
                   : mr_from_dlpack_unversioned(m);
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
