/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c -- captured state of compiled functions: the arrays in lists, dicts
 * and modules (which are dicts), read and replaced in place.
 *
 * Entries of dicts are set as of plain dicts: a module's own __setattr__ has
 * nothing to say here.  random.state may stand in a state and is passed over:
 * compiled functions draw from the thread's sequence without being told.
 */
#include "compile.h"

#include "marram/marram.h"

static bool
is_container(PyObject *o)
{
    return PyList_Check(o) || PyTuple_Check(o) || PyDict_Check(o);
}

/* ---- filling ------------------------------------------------------------ */

/* The object that takes the place of o: o itself after its own entries were
 * filled, or a new array.  A new reference. */
static PyObject *
filled(PyObject *o, mr_array *const *x, int *next)
{
    if (ext_is_array(o))
        return ext_wrap(mr_retain(x[(*next)++]));
    if (is_container(o) && !ext_state_fill(o, x, next))
        return NULL;
    return Py_NewRef(o);
}

static bool
fill_dict(PyObject *dict, mr_array *const *x, int *next)
{
    PyObject *keys = PyDict_Keys(dict);
    bool ok = keys != NULL;

    for (Py_ssize_t i = 0; ok && i < PyList_Size(keys); i++) {
        PyObject *key = PyList_GetItem(keys, i);
        PyObject *old = PyDict_GetItemWithError(dict, key), *v;
        v = old ? filled(old, x, next) : NULL;
        ok = v && (v == old || PyDict_SetItem(dict, key, v) == 0);
        Py_XDECREF(v);
    }
    Py_XDECREF(keys);
    return ok;
}

bool
ext_state_fill(PyObject *state, mr_array *const *x, int *next)
{
    if (!is_container(state))
        return true;
    if (PyDict_Check(state))
        return fill_dict(state, x, next);
    for (Py_ssize_t i = 0; i < PySequence_Size(state); i++) {
        PyObject *old = PyList_Check(state) ? PyList_GetItem(state, i)
                                            : PyTuple_GetItem(state, i);
        PyObject *v = filled(old, x, next);
        if (!v)
            return false;
        if (v == old || PyTuple_Check(state))
            Py_DECREF(v); /* an array in a tuple cannot be replaced */
        else if (PyList_SetItem(state, i, v) < 0)
            return false;
    }
    return true;
}

/* ---- saving and restoring ----------------------------------------------- */

/* Appends (container, copy of it) for each container. */
static bool
save(PyObject *o, PyObject *list)
{
    PyObject *copy = NULL, *pair = NULL, *key, *value;
    Py_ssize_t at = 0;
    bool ok = true;

    if (PyDict_Check(o)) {
        copy = PyDict_Copy(o);
        while (ok && copy && PyDict_Next(copy, &at, &key, &value))
            ok = save(value, list);
    } else if (PyList_Check(o) || PyTuple_Check(o)) {
        copy = PySequence_Tuple(o);
        for (; ok && copy && at < PyTuple_Size(copy); at++)
            ok = save(PyTuple_GetItem(copy, at), list);
    } else {
        return true;
    }
    if (ok && copy)
        pair = PyTuple_Pack(2, o, copy);
    ok = pair && PyList_Append(list, pair) == 0;
    Py_XDECREF(pair);
    Py_XDECREF(copy);
    return ok;
}

PyObject *
ext_state_save(PyObject *a, PyObject *b)
{
    PyObject *list = PyList_New(0);

    if (list && ((a && !save(a, list)) || (b && b != a && !save(b, list))))
        Py_CLEAR(list);
    return list;
}

static bool
restore_one(PyObject *o, PyObject *copy)
{
    if (PyDict_Check(o)) {
        PyDict_Clear(o);
        return PyDict_Update(o, copy) == 0;
    }
    if (PyList_Check(o))
        return PyList_SetSlice(o, 0, PyList_Size(o), copy) == 0;
    return true;
}

void
ext_state_restore(PyObject *saved)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    for (Py_ssize_t i = 0; i < PyList_Size(saved); i++) {
        PyObject *pair = PyList_GetItem(saved, i);
        if (!restore_one(PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1)))
            PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
}

/* ---- writing back ------------------------------------------------------- */

static bool
same_kind(PyObject *a, PyObject *b)
{
    return (PyDict_Check(a) && PyDict_Check(b)) ||
           (PyList_Check(a) && PyList_Check(b)) ||
           (PyTuple_Check(a) && PyTuple_Check(b) &&
            PyTuple_Size(a) == PyTuple_Size(b));
}

/* Entries that the tree has not are dropped. */
static bool
write_dict(PyObject *dict, PyObject *tree)
{
    PyObject *keys = PyDict_Keys(dict), *key, *value;
    Py_ssize_t at = 0;
    bool ok = keys != NULL;

    for (Py_ssize_t i = 0; ok && i < PyList_Size(keys); i++) {
        int in = PyDict_Contains(tree, PyList_GetItem(keys, i));
        ok = in > 0 ||
             (in == 0 && PyDict_DelItem(dict, PyList_GetItem(keys, i)) == 0);
    }
    while (ok && PyDict_Next(tree, &at, &key, &value)) {
        PyObject *old = PyDict_GetItemWithError(dict, key);
        if (old && same_kind(old, value))
            ok = ext_state_write(old, value);
        else
            ok = old == value || PyDict_SetItem(dict, key, value) == 0;
    }
    Py_XDECREF(keys);
    return ok;
}

bool
ext_state_write(PyObject *state, PyObject *tree)
{
    Py_ssize_t n;

    if (!is_container(state))
        return true;
    if (PyDict_Check(state))
        return write_dict(state, tree);
    n = PySequence_Size(tree);
    if (PyList_Check(state) && PyList_Size(state) > n &&
        PyList_SetSlice(state, n, PyList_Size(state), NULL) < 0)
        return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *value = PySequence_GetItem(tree, i); /* the tree keeps it */
        PyObject *old =
            i < PySequence_Size(state) ? PySequence_GetItem(state, i) : NULL;
        bool ok = value != NULL;
        if (ok && old && same_kind(old, value))
            ok = ext_state_write(old, value);
        else if (ok && old && PyList_Check(state))
            ok = PyList_SetItem(state, i, Py_NewRef(value)) == 0;
        else if (ok && !old && PyList_Check(state))
            ok = PyList_Append(state, value) == 0;
        Py_XDECREF(value);
        Py_XDECREF(old);
        if (!ok)
            return false;
    }
    return true;
}
