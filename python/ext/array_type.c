/* SPDX-License-Identifier: Apache-2.0
 *
 * array_type.c -- the type marram.core.array: an object that holds one node.
 *
 * The type holds no Python references, so it needs no garbage collection, and
 * its destructor may run anywhere: releasing a node never waits.
 */
#include "ext.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

typedef struct iterator_object {
    PyObject_HEAD mr_array *x;
    int64_t i, n;
    const char *site; /* where the iterator was made */
} iterator_object;

PyObject *
ext_wrap(mr_array *x)
{
    PyObject *o;

    if (!x)
        return ext_raise();
    if (__builtin_expect(ext_eager_depth > 0, 0) && !ext_settle(x)) {
        mr_release(x);
        return ext_raise();
    }
    o = PyType_GenericAlloc(ext.array, 0);
    if (!o) {
        mr_release(x);
        return NULL;
    }
    ((ext_array_object *)o)->x = x;
    return o;
}

void
ext_rebind(PyObject *array, mr_array *x)
{
    mr_array *old = ext_x(array);

    ext_past_note((ext_array_object *)array);
    ((ext_array_object *)array)->x = x;
    mr_release(old);
}

static void
array_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    ext_past_drop((ext_array_object *)self);
    mr_release(ext_x(self));
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *
array_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("val"), EXT_WORD("dtype"), NULL};
    PyObject *value, *dtype = Py_None;
    mr_dtype t = MR_DTYPE_DEFAULT;

    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|O:array", names, &value,
                                     &dtype) ||
        (dtype != Py_None && !ext_dtype_of(dtype, &t)))
        return NULL;
    return ext_wrap(ext_from_object(value, t));
}

bool
ext_item(PyObject *self, mr_scalar *out)
{
    mr_array *x = mr_retain(ext_x(self));
    mr_code code = mr_array_item(x, out);

    mr_release(x);
    if (code != MR_OK)
        ext_raise();
    return code == MR_OK;
}

/* What reading a traced value does: see set_traced_reads. */
enum reads { READS_WARN, READS_ERROR, READS_IGNORE };
static const char *const read_names[] = {"warn", "error", "ignore"};
static _Atomic int reads;

PyObject *
ext_set_traced_reads(PyObject *self, PyObject *o)
{
    const char *name =
        PyUnicode_Check(o) ? PyUnicode_AsUTF8AndSize(o, NULL) : NULL;
    int mode = READS_WARN;

    (void)self;
    while (name && mode <= READS_IGNORE && strcmp(name, read_names[mode]) != 0)
        mode++;
    if (!name || mode > READS_IGNORE) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError,
                            "set_traced_reads takes 'warn', 'error' or "
                            "'ignore'");
        return NULL;
    }
    /* relaxed: a figure that guards nothing */
    mode = atomic_exchange_explicit(&reads, mode, memory_order_relaxed);
    return PyUnicode_FromString(read_names[mode]);
}

bool
ext_warn_traced(mr_array *x)
{
    static const char what[] =
        "a value read inside a transform is a constant to it: no derivative "
        "goes through it (stop_gradient says that this is meant)";
    static _Atomic bool warned;
    /* relaxed, both: they guard nothing */
    int mode = atomic_load_explicit(&reads, memory_order_relaxed);

    if (mode == READS_IGNORE || !mr_array_is_traced(x))
        return true;
    if (mode == READS_ERROR) {
        PyErr_SetString(PyExc_RuntimeError, what);
        return false;
    }
    if (atomic_exchange_explicit(&warned, true, memory_order_relaxed))
        return true;
    return PyErr_WarnEx(PyExc_UserWarning, what, 1) == 0;
}

/* ---- printing ----------------------------------------------------------- */

/* Of the print options: printing reads it, set_printoptions writes it. */
static int print_precision = -1;

static PyObject *
array_repr(PyObject *self)
{
    mr_array *x = mr_retain(ext_x(self));
    char *text = mr_array_text(x, print_precision);
    PyObject *s;

    mr_release(x);
    if (!text)
        return ext_raise();
    s = PyUnicode_FromString(text);
    mr_text_free(text);
    return s;
}

static PyObject *
set_precision(PyObject *self, PyObject *o)
{
    long p = PyLong_AsLong(o);

    (void)self;
    if (p == -1 && PyErr_Occurred())
        return NULL;
    print_precision = (int)(p < -1 ? -1 : p);
    Py_RETURN_NONE;
}

static PyObject *
get_precision(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong(print_precision);
}

static PyMethodDef print_functions[] = {
    {"_set_precision", set_precision, METH_O, NULL},
    {"_get_precision", get_precision, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- sequence ----------------------------------------------------------- */

static Py_ssize_t
array_length(PyObject *self)
{
    Py_ssize_t length = -1;

    if (mr_array_ndim(ext_x(self)) == 0) {
        PyErr_SetString(PyExc_TypeError, "a 0-d array has no len()");
        return -1;
    }
    if (mr_size_tracing()) {
        PyObject *n = ext_dim_object(ext_x(self), 0);

        if (n && ext_is_size(n))
            ext_size_refuse(n, "what len() gives (x.shape[0] can be had)");
        else if (n)
            length = PyLong_AsSsize_t(n);
        Py_XDECREF(n);
        return length;
    }
    return (Py_ssize_t)mr_array_dim(ext_x(self), 0);
}

static PyObject *
array_iter(PyObject *self)
{
    iterator_object *it;

    if (mr_array_ndim(ext_x(self)) == 0) {
        PyErr_SetString(PyExc_TypeError, "a 0-d array cannot be iterated over");
        return NULL;
    }
    it = (iterator_object *)PyType_GenericAlloc(ext.array_iterator, 0);
    if (it) {
        it->x = mr_retain(ext_x(self));
        it->n = mr_array_dim(it->x, 0);
        it->site = ext_site();
    }
    return (PyObject *)it;
}

static void
iterator_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    mr_release(((iterator_object *)self)->x);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *
iterator_next(PyObject *self)
{
    iterator_object *it = (iterator_object *)self;

    if (it->i >= it->n)
        return NULL;
    return ext_wrap(mr_array_entry_at(it->site, it->x, it->i++));
}

static PyType_Slot iterator_slots[] = {
    {Py_tp_doc, EXT_DOC("The entries of an array along its first axis.")},
    {Py_tp_dealloc, iterator_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, iterator_next},
    {0, NULL},
};

/* ---- the type ----------------------------------------------------------- */

static Py_hash_t
array_hash(PyObject *self)
{
    return (Py_hash_t)((uintptr_t)self >> 4);
}

static const char array_doc[] =
    "array(val, dtype=None)\n--\n\n"
    "A multidimensional array: lazy until it is read.\n\n"
    "Args:\n"
    "    val: number, nested list or tuple, array, NumPy array or other\n"
    "        exporter of memory, which is copied.\n"
    "    dtype: the type of its elements; by default that of the value:\n"
    "        int32 for ints (int64 where one needs it), float32 for floats,\n"
    "        complex64, bool; a NumPy array's own, but float32 for float64.\n";

static PyType_Slot *
array_slots(PyMethodDef *methods)
{
    static PyType_Slot slots[64];
    const PyType_Slot own[] = {
        {Py_tp_doc, EXT_DOC(array_doc)},
        {Py_tp_new, array_new},
        {Py_tp_dealloc, array_dealloc},
        {Py_tp_repr, array_repr},
        {Py_tp_hash, array_hash},
        {Py_tp_richcompare, ext_richcompare},
        {Py_tp_iter, array_iter},
        {Py_tp_methods, methods},
        {Py_tp_getset, ext_array_getset},
        {Py_mp_length, array_length},
        {Py_mp_subscript, ext_subscript},
        {Py_mp_ass_subscript, ext_ass_subscript},
        {Py_bf_getbuffer, ext_get_buffer},
        {Py_bf_releasebuffer, ext_release_buffer},
    };
    int n = 0;

    for (; n < (int)(sizeof own / sizeof own[0]); n++)
        slots[n] = own[n];
    for (int i = 0; ext_number_slots[i].slot; i++)
        slots[n++] = ext_number_slots[i];
    slots[n] = (PyType_Slot){0, NULL};
    return slots;
}

/* All methods in one table that lives for ever: those by hand come first, and
 * win over a generated one of the same name. */
static PyMethodDef *
array_methods(void)
{
    PyMethodDef *const parts[] = {ext_array_methods, ext_dlpack_methods,
                                  ext_generated_methods};
    PyMethodDef *all;
    int n = 0;

    for (int p = 0; p < 3; p++)
        for (PyMethodDef *m = parts[p]; m->ml_name; m++)
            n++;
    all = calloc((size_t)n + 1, sizeof *all);
    n = 0;
    for (int p = 0; all && p < 3; p++)
        for (PyMethodDef *m = parts[p]; m->ml_name; m++) {
            int k = 0;
            while (k < n && strcmp(all[k].ml_name, m->ml_name) != 0)
                k++;
            if (k == n)
                all[n++] = *m;
        }
    return all;
}

int
ext_init_array(PyObject *module)
{
    PyMethodDef *methods = array_methods();
    PyType_Spec spec = {"marram.core.array", sizeof(ext_array_object), 0,
                        Py_TPFLAGS_DEFAULT, NULL};
    PyType_Spec iterator = {
        "marram.core.ArrayIterator", sizeof(iterator_object), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, iterator_slots};

    if (!methods) {
        PyErr_NoMemory();
        return -1;
    }
    spec.slots = array_slots(methods);
    ext.array = (PyTypeObject *)PyType_FromSpec(&spec);
    ext.array_iterator = (PyTypeObject *)PyType_FromSpec(&iterator);
    if (!ext.array || !ext.array_iterator)
        return -1;
    return PyModule_AddType(module, ext.array) < 0 ||
                   PyModule_AddType(module, ext.array_iterator) < 0 ||
                   PyModule_AddFunctions(module, print_functions) < 0
               ? -1
               : 0;
}
