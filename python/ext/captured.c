/* SPDX-License-Identifier: Apache-2.0
 *
 * captured.c -- the places where a compiled function finds arrays that are not
 * its arguments.
 *
 * As inputs: the places (cells, globals, attributes) are read at each call and
 * hold tracers while the function is traced.  As constants: after a trace the
 * places whose arrays its program keeps are remembered; each call looks at one
 * of them, and says once when it holds another array by now.
 * Which places there are is found in Python (marram/core/_captured.py).
 *
 * Called by: compile.c.
 */
#include "compile.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

/* fn(args) of the helper module; a new reference. */
static PyObject *
helper(const char *fn, PyObject *a, PyObject *b, PyObject *c)
{
    PyObject *module = PyImport_ImportModule("marram.core._captured");
    PyObject *r = NULL;

    if (module)
        r = c   ? PyObject_CallMethod(module, fn, "OOO", a, b, c)
            : b ? PyObject_CallMethod(module, fn, "OO", a, b)
                : PyObject_CallMethod(module, fn, "O", a);
    Py_XDECREF(module);
    return r;
}

/* ---- as inputs ---------------------------------------------------------- */

static PyObject *
value_at(PyObject *holder, PyObject *key)
{
    PyObject *v;

    if (PyDict_Check(holder) || PyList_Check(holder))
        v = PyObject_GetItem(holder, key);
    else
        v = PyObject_GetAttr(holder, key);
    if (!v) { /* it is gone: no array is there */
        PyErr_Clear();
        v = Py_NewRef(Py_None);
    }
    return v;
}

bool
ext_captured_read(PyObject *fun, PyObject **places, PyObject **values)
{
    Py_ssize_t n;

    if (!*places && !(*places = helper("places", fun, NULL, NULL)))
        return false;
    n = PyList_Size(*places);
    *values = PyList_New(n);
    for (Py_ssize_t i = 0; *values && i < n; i++) {
        PyObject *place = PyList_GetItem(*places, i);

        PyList_SetItem(
            *values, i,
            value_at(PyTuple_GetItem(place, 0), PyTuple_GetItem(place, 1)));
    }
    return *values != NULL;
}

bool
ext_captured_write(PyObject *places, PyObject *values)
{
    for (Py_ssize_t i = 0; i < PyList_Size(places); i++) {
        PyObject *v = PyList_GetItem(values, i), *r;

        if (!ext_is_array(v))
            continue;
        r = helper("set_place", PyList_GetItem(places, i), v, NULL);
        if (!r)
            return false;
        Py_DECREF(r);
    }
    return true;
}

/* ---- as constants ------------------------------------------------------- */

void
ext_slots_free(ext_slots *s)
{
    for (int i = 0; i < s->n; i++) {
        Py_XDECREF(s->slot[i].holder);
        Py_XDECREF(s->slot[i].key);
        Py_XDECREF(s->slot[i].name);
    }
    free(s->slot);
    s->slot = NULL;
    s->n = 0;
}

static bool
is_captured(const mr_call_results *r, const mr_array *x)
{
    for (int i = 0; i < r->n_captured; i++)
        if (r->captured[i] == x)
            return true;
    return false;
}

bool
ext_slots_find(ext_slots *s, PyObject *fun, const mr_call_results *r)
{
    PyObject *all = helper("slots", fun, NULL, NULL);
    Py_ssize_t n = all ? PyList_Size(all) : 0;

    ext_slots_free(s);
    if (n > 0)
        s->slot = calloc((size_t)n, sizeof *s->slot);
    for (Py_ssize_t i = 0; s->slot && i < n; i++) {
        PyObject *t = PyList_GetItem(all, i);
        PyObject *holder = PyTuple_GetItem(t, 0), *key = PyTuple_GetItem(t, 1);
        PyObject *v = value_at(holder, key);

        if (ext_is_array(v) && is_captured(r, ext_x(v)))
            s->slot[s->n++] =
                (ext_slot){Py_NewRef(holder), Py_NewRef(key),
                           Py_NewRef(PyTuple_GetItem(t, 2)), ext_x(v)};
        Py_DECREF(v);
    }
    Py_XDECREF(all);
    /* odd objects may fail to be looked at: then nothing is watched */
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
    return !PyErr_Occurred();
}

/* What a slot holds, borrowed where that is cheap. */
static bool
has_changed(const ext_slot *s)
{
    PyObject *v = PyDict_Check(s->holder)
                      ? Py_XNewRef(PyDict_GetItemWithError(s->holder, s->key))
                      : value_at(s->holder, s->key);
    bool changed = v && ext_is_array(v) && ext_x(v) != s->x;

    Py_XDECREF(v);
    return changed && !PyErr_Occurred();
}

bool
ext_slots_check(ext_slots *s, PyObject *fun)
{
    const ext_slot *slot = &s->slot[s->next];
    PyObject *name;
    int r;

    s->next = s->next + 1 < s->n ? s->next + 1 : 0;
    if (!has_changed(slot))
        return true;
    name = PyObject_GetAttrString(fun, "__name__");
    PyErr_Clear();
    r = PyErr_WarnFormat(
        PyExc_UserWarning, 1,
        "%S was compiled with the array that '%S' held and keeps it as a "
        "constant; '%S' holds another array now, which has no effect. Pass it "
        "as an argument, name what holds it in inputs=, or compile with "
        "captures=\"input\"",
        name ? name : fun, slot->name, slot->name);
    Py_XDECREF(name);
    ext_slots_free(s); /* once */
    return r == 0;
}

/* ---- what a trace was made for ------------------------------------------ */

void
ext_trace_note(PyObject *fun, PyObject *args, PyObject *kw)
{
    PyObject *text = helper("describe", fun, args, kw ? kw : Py_None);
    const char *s = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;

    mr_trace_note(s);
    PyErr_Clear(); /* it is for a message alone */
    Py_XDECREF(text);
}
