/* SPDX-License-Identifier: Apache-2.0
 *
 * key.c -- the bytes of a call of a compiled function.
 *
 * Each object adds a tag and what tells it from others of its tag: numbers
 * their bits, text itself, containers their length.  True, 1 and 1.0 differ,
 * and so do a list and a tuple.
 */
#include "compile.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

typedef enum key_mode {
    KEY_ARGUMENTS, /* other objects are refused, NumPy arrays are arrays */
    KEY_STATE,     /* other objects count by identity */
    KEY_TEMPLATE   /* the same; marks are among them */
} key_mode;

static bool
put(ext_key *k, const void *p, size_t n)
{
    if (!k->p) {
        k->p = k->own;
        k->cap = sizeof k->own;
    }
    if (k->n + n > k->cap) {
        size_t cap = 2 * (k->cap + n);
        char *q = malloc(cap);
        if (!q) {
            PyErr_NoMemory();
            return false;
        }
        memcpy(q, k->p, k->n);
        if (k->p != k->own)
            free(k->p);
        k->p = q;
        k->cap = cap;
    }
    memcpy(k->p + k->n, p, n);
    k->n += n;
    return true;
}

static bool
put_tag(ext_key *k, char tag, int64_t n)
{
    return put(k, &tag, 1) && put(k, &n, sizeof n);
}

void
ext_key_free(ext_key *k)
{
    if (k->p != k->own)
        free(k->p);
}

static bool
put_text(ext_key *k, PyObject *o)
{
    Py_ssize_t n;
    const char *p = PyUnicode_AsUTF8AndSize(o, &n);

    return p && put_tag(k, 's', n) && put(k, p, (size_t)n);
}

static bool
put_int(ext_key *k, PyObject *o)
{
    int overflow;
    long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    PyObject *text;
    bool ok;

    if (!overflow)
        return put_tag(k, 'i', v);
    text = PyObject_Str(o);
    ok = text && put_tag(k, 'I', 0) && put_text(k, text);
    Py_XDECREF(text);
    return ok;
}

/* 1: added; 0: no plain value; -1: an exception. */
static int
put_value(ext_key *k, PyObject *o)
{
    double d[2];

    if (o == Py_None)
        return put(k, "N", 1) ? 1 : -1;
    if (PyBool_Check(o))
        return put(k, o == Py_True ? "T" : "F", 1) ? 1 : -1;
    if (PyLong_Check(o))
        return put_int(k, o) ? 1 : -1;
    if (PyFloat_Check(o)) {
        d[0] = PyFloat_AsDouble(o);
        return put(k, "f", 1) && put(k, d, sizeof d[0]) ? 1 : -1;
    }
    if (PyUnicode_Check(o))
        return put_text(k, o) ? 1 : -1;
    if (PyComplex_Check(o)) {
        d[0] = PyComplex_RealAsDouble(o);
        d[1] = PyComplex_ImagAsDouble(o);
        return put(k, "c", 1) && put(k, d, sizeof d) ? 1 : -1;
    }
    if (PyBytes_Check(o))
        return put_tag(k, 'b', PyBytes_Size(o)) &&
                       put(k, PyBytes_AsString(o), (size_t)PyBytes_Size(o))
                   ? 1
                   : -1;
    if (ext_is_size(o)) /* inside a trace: nothing is looked up */
        return put(k, "Z", 1) ? 1 : -1;
    if (Py_TYPE(o) == ext.dtype || Py_TYPE(o) == ext.device_type)
        return put_tag(k, 'd', (int64_t)(uintptr_t)o) ? 1 : -1;
    return 0;
}

/* ---- objects by number ----------------------------------------------------
 */

/* So many are kept: they are dropped together, their numbers are not used
 * again. */
enum { MAX_STATICS = 4096 };

/* Do two objects of o's class differ unless they are one? */
static bool
is_by_identity(PyObject *o)
{
    return PyType_GetSlot(Py_TYPE(o), Py_tp_hash) ==
           PyType_GetSlot(&PyBaseObject_Type, Py_tp_hash);
}

static PyObject *
new_number(ext_statics *s, PyObject *in, PyObject *key)
{
    PyObject *n = PyLong_FromLongLong(s->next);

    if (n && PyObject_SetItem(in, key, n) == 0) {
        s->next++;
        return n;
    }
    Py_XDECREF(n);
    return NULL;
}

static PyObject *
number_by_identity(ext_statics *s, PyObject *o)
{
    PyObject *n;

    if (!s->by_identity) {
        PyObject *weakref = PyImport_ImportModule("weakref");

        if (weakref)
            s->by_identity =
                PyObject_CallMethod(weakref, "WeakKeyDictionary", NULL);
        Py_XDECREF(weakref);
        if (!s->by_identity)
            return NULL;
    }
    n = PyObject_GetItem(s->by_identity, o);
    if (n || !PyErr_ExceptionMatches(PyExc_KeyError))
        return n; /* a TypeError: no weak reference to it can be made */
    PyErr_Clear();
    return new_number(s, s->by_identity, o);
}

static PyObject *
number_by_value(ext_statics *s, PyObject *o)
{
    PyObject *key = PyTuple_Pack(2, (PyObject *)Py_TYPE(o), o), *n = NULL;

    if (!s->by_value)
        s->by_value = PyDict_New();
    if (key && s->by_value) {
        n = Py_XNewRef(PyDict_GetItemWithError(s->by_value, key));
        if (!n && !PyErr_Occurred()) {
            if (PyDict_Size(s->by_value) >= MAX_STATICS)
                PyDict_Clear(s->by_value);
            n = new_number(s, s->by_value, key);
        }
    }
    Py_XDECREF(key);
    return n;
}

/* A hashable object; another is refused. */
static bool
put_static(ext_key *k, PyObject *o)
{
    PyObject *n = NULL, *name;
    bool ok;

    if (k->statics && is_by_identity(o)) {
        n = number_by_identity(k->statics, o);
        if (!n && PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Clear();
    }
    if (k->statics && !n && !PyErr_Occurred())
        n = number_by_value(k->statics, o);
    if (n) {
        ok = put_tag(k, 'H', PyLong_AsLongLong(n));
        Py_DECREF(n);
        return ok;
    }
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError))
        return false;
    PyErr_Clear();
    name = PyType_GetName(Py_TYPE(o));
    PyErr_Format(PyExc_ValueError,
                 "an argument of a compiled function must be a tree of arrays, "
                 "numbers, text and hashable objects, but holds %U, which has "
                 "no hash: pass its arrays, or make its class a tree "
                 "(register_tree)",
                 name);
    Py_XDECREF(name);
    return false;
}

static bool put_tree(ext_key *k, PyObject *o, ext_leaves *l, key_mode mode);

/* An object of a registered class: the class, its static part, its children.
 * 1: added, 0: it is none, -1: an exception. */
static int
put_object(ext_key *k, PyObject *o, ext_leaves *l, key_mode mode)
{
    PyObject *children, *fixed;
    int r = ext_open_object(o, &children, &fixed);

    if (r <= 0)
        return r;
    /* classes in the registry are never let go: addresses tell them apart */
    r = put_tag(k, 'R', (int64_t)(uintptr_t)ext_object_class(o)) &&
        put_tree(k, fixed, l, mode) && put_tree(k, children, l, mode);
    Py_DECREF(children);
    Py_DECREF(fixed);
    return r ? 1 : -1;
}

static bool
put_leaf(ext_key *k, PyObject *o, ext_leaves *l, key_mode mode)
{
    mr_array *x;
    int r;

    if (ext_is_array(o) && mode != KEY_TEMPLATE)
        return put(k, "A", 1) && ext_leaves_add(l, mr_retain(ext_x(o)));
    r = put_value(k, o);
    if (r == 0)
        r = put_object(k, o, l, mode);
    if (r != 0)
        return r > 0;
    if (mode != KEY_ARGUMENTS)
        return put_tag(k, 'O', (int64_t)(uintptr_t)o);
    if (ext_is_foreign_array(o)) {
        x = ext_from_foreign(o, MR_DTYPE_DEFAULT);
        return x ? put(k, "A", 1) && ext_leaves_add(l, x)
                 : (PyErr_Occurred() || ext_raise()) && false;
    }
    return put_static(k, o);
}

static bool
put_container(ext_key *k, PyObject *o, ext_leaves *l, key_mode mode)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    if (PyDict_Check(o)) {
        if (!put_tag(k, '{', PyDict_Size(o)))
            return false;
        while (PyDict_Next(o, &at, &key, &value))
            if (!put_leaf(k, key, l, mode) || !put_tree(k, value, l, mode))
                return false;
        return true;
    }
    if (!put_tag(k, PyList_Check(o) ? '[' : '(', PySequence_Size(o)))
        return false;
    for (; at < PySequence_Size(o); at++)
        if (!put_tree(k, ext_sequence_item(o, at), l, mode))
            return false;
    return true;
}

static bool
put_tree(ext_key *k, PyObject *o, ext_leaves *l, key_mode mode)
{
    bool ok;

    if (!PyList_Check(o) && !PyTuple_Check(o) && !PyDict_Check(o))
        return put_leaf(k, o, l, mode);
    if (Py_EnterRecursiveCall(" in a tree of arrays"))
        return false;
    ok = put_container(k, o, l, mode);
    Py_LeaveRecursiveCall();
    return ok;
}

bool
ext_key_add(ext_key *k, PyObject *tree, ext_leaves *l)
{
    return put_tree(k, tree, l, KEY_ARGUMENTS);
}

bool
ext_key_number(ext_key *k, int64_t n)
{
    return put_tag(k, 'P', n);
}

bool
ext_state_key(ext_key *k, PyObject *state, ext_leaves *l)
{
    return put(k, "S", 1) && put_tree(k, state, l, KEY_STATE);
}

PyObject *
ext_key_of_template(PyObject *structure)
{
    ext_key k = {0};
    PyObject *bytes = NULL;

    if (put_tree(&k, structure, NULL, KEY_TEMPLATE))
        bytes = PyBytes_FromStringAndSize(k.p, (Py_ssize_t)k.n);
    ext_key_free(&k);
    return bytes;
}

PyObject *
ext_sorted_dict(PyObject *dict)
{
    PyObject *keys = PyDict_Keys(dict), *out = NULL;

    if (keys && PyList_Sort(keys) == 0)
        out = PyDict_New();
    for (Py_ssize_t i = 0; out && i < PyList_Size(keys); i++) {
        PyObject *key = PyList_GetItem(keys, i);
        if (PyDict_SetItem(out, key, PyDict_GetItemWithError(dict, key)) < 0)
            Py_CLEAR(out);
    }
    Py_XDECREF(keys);
    return out;
}
