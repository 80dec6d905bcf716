/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c -- captured state of compiled functions: the arrays in lists, dicts
 * and modules (which are dicts), read and replaced in place; tuples in them are
 * replaced by others of their class.
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

/* ---- what cannot be a state --------------------------------------------- */

static bool
refuse(const char *what, const char *why)
{
    PyErr_Format(PyExc_ValueError,
                 "%s must hold its arrays in lists, dicts or modules, so that "
                 "they can be replaced, %s",
                 what, why);
    return false;
}

/* Of an object of a registered class: 1, 0 (also for others), -1 on failure. */
static int
arrays_inside(PyObject *o)
{
    ext_leaves l = {0};
    PyObject *children, *fixed;
    int r = ext_open_object(o, &children, &fixed);

    if (r <= 0)
        return r;
    r = ext_collect(children, &l) && ext_collect(fixed, &l) ? l.n > 0 : -1;
    ext_leaves_free(&l);
    Py_DECREF(children);
    Py_DECREF(fixed);
    return r;
}

static bool check(PyObject *o, const char *what, bool held);

static bool
check_entries(PyObject *o, const char *what, bool held)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    bool ok = true;

    if (PyDict_Check(o))
        while (ok && PyDict_Next(o, &at, &key, &value))
            ok = check(value, what, true);
    else
        for (; ok && at < PySequence_Size(o); at++)
            ok = check(ext_sequence_item(o, at), what, held || PyList_Check(o));
    return ok;
}

/* `held`: something around it can take another object in its place. */
static bool
check(PyObject *o, const char *what, bool held)
{
    bool ok;
    int r;

    if (ext_is_array(o))
        return held ||
               refuse(what, "but has one in a tuple that nothing holds: name a "
                            "list, or a list of such tuples");
    if (!is_container(o)) {
        r = arrays_inside(o);
        return r == 0 ||
               (r > 0 &&
                refuse(what, "but has some in an object of a registered "
                             "class: pass that as an argument and return it, "
                             "or name a dict of its arrays"));
    }
    if (Py_EnterRecursiveCall(" in a state of arrays"))
        return false;
    ok = check_entries(o, what, held);
    Py_LeaveRecursiveCall();
    return ok;
}

bool
ext_state_check(PyObject *state, const char *what)
{
    return !is_container(state) || check(state, what, false);
}

/* ---- filling ------------------------------------------------------------ */

static PyObject *filled(PyObject *o, mr_array *const *x, int *next);

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

static bool
fill_list(PyObject *list, mr_array *const *x, int *next)
{
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        PyObject *v = filled(PyList_GetItem(list, i), x, next);
        if (!v || PyList_SetItem(list, i, v) < 0)
            return false;
    }
    return true;
}

/* The tuple itself when it stays what it is. */
static PyObject *
fill_tuple(PyObject *tuple, mr_array *const *x, int *next)
{
    Py_ssize_t n = PyTuple_Size(tuple);
    PyObject *items = PyTuple_New(n);
    bool same = true;

    for (Py_ssize_t i = 0; items && i < n; i++) {
        PyObject *v = filled(PyTuple_GetItem(tuple, i), x, next);
        same = same && v == PyTuple_GetItem(tuple, i);
        if (!v || PyTuple_SetItem(items, i, v) < 0)
            Py_CLEAR(items);
    }
    if (!items || !same)
        return items ? ext_tuple_like(tuple, items) : NULL;
    Py_DECREF(items);
    return Py_NewRef(tuple);
}

/* The object that takes the place of o: o itself after its own entries were
 * filled, or a new array or tuple.  A new reference. */
static PyObject *
filled(PyObject *o, mr_array *const *x, int *next)
{
    if (ext_is_array(o))
        return ext_wrap(mr_retain(x[(*next)++]));
    if (PyTuple_Check(o))
        return fill_tuple(o, x, next);
    if ((PyDict_Check(o) && !fill_dict(o, x, next)) ||
        (PyList_Check(o) && !fill_list(o, x, next)))
        return NULL;
    return Py_NewRef(o);
}

bool
ext_state_fill(PyObject *state, mr_array *const *x, int *next)
{
    PyObject *v = filled(state, x, next);

    Py_XDECREF(v); /* the state itself: it was checked */
    return v != NULL;
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

static PyObject *written(PyObject *old, PyObject *value);

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
        PyObject *v = written(old, value);
        ok = v && (v == old || PyDict_SetItem(dict, key, v) == 0);
        Py_XDECREF(v);
    }
    Py_XDECREF(keys);
    return ok;
}

static bool
write_list(PyObject *list, PyObject *tree)
{
    Py_ssize_t n = PyList_Size(tree);

    if (PyList_Size(list) > n &&
        PyList_SetSlice(list, n, PyList_Size(list), NULL) < 0)
        return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        bool more = i >= PyList_Size(list);
        PyObject *v = written(more ? NULL : PyList_GetItem(list, i),
                              PyList_GetItem(tree, i));
        bool ok = v && (more ? PyList_Append(list, v) == 0
                             : PyList_SetItem(list, i, Py_NewRef(v)) == 0);
        Py_XDECREF(v);
        if (!ok)
            return false;
    }
    return true;
}

/* Lists and dicts in a tuple stay the objects that they are. */
static PyObject *
write_tuple(PyObject *old, PyObject *value)
{
    Py_ssize_t n = PyTuple_Size(value);
    PyObject *items = PyTuple_New(n);
    bool same = Py_TYPE(old) == Py_TYPE(value);

    for (Py_ssize_t i = 0; items && i < n; i++) {
        PyObject *v =
            written(PyTuple_GetItem(old, i), PyTuple_GetItem(value, i));
        same = same && v == PyTuple_GetItem(old, i);
        if (!v || PyTuple_SetItem(items, i, v) < 0)
            Py_CLEAR(items);
    }
    if (!items || !same)
        return items ? ext_tuple_like(value, items) : NULL;
    Py_DECREF(items);
    return Py_NewRef(old);
}

/* What stands where old did (NULL: nothing did): that itself, when it is a list
 * or dict still, with the entries of value, else value.  A new reference. */
static PyObject *
written(PyObject *old, PyObject *value)
{
    if (!old || !same_kind(old, value))
        return Py_NewRef(value);
    if (PyTuple_Check(old))
        return write_tuple(old, value);
    if (PyDict_Check(old) ? !write_dict(old, value) : !write_list(old, value))
        return NULL;
    return Py_NewRef(old);
}

bool
ext_state_write(PyObject *state, PyObject *tree)
{
    PyObject *v = is_container(state) ? written(state, tree) : Py_None;

    if (v && v != Py_None)
        Py_DECREF(v); /* the state itself: it was checked */
    return v != NULL;
}
