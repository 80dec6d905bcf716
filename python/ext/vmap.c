/* SPDX-License-Identifier: Apache-2.0
 *
 * vmap.c -- vmap: axes as prefixes of trees, the call, where results go.
 */
#include "transform.h"

#include <stdlib.h>

#include "marram/marram.h"

static bool
axis_number(PyObject *o, int32_t *out)
{
    long i;

    if (o == Py_None) {
        *out = MR_VMAP_NONE;
        return true;
    }
    i = PyLong_AsLong(o);
    if (i == -1 && PyErr_Occurred())
        return false;
    if (i > INT32_MAX || i <= INT32_MIN) {
        PyErr_Format(PyExc_IndexError, "axis %ld is out of range", i);
        return false;
    }
    *out = (int32_t)i;
    return true;
}

static bool
prefix_wrong(const char *what)
{
    PyErr_Format(PyExc_ValueError,
                 "%s must be an int, None, or a tree that begins as the "
                 "arrays' tree does",
                 what);
    return false;
}

/* The axis of each array of a tree, from a prefix of it. */
bool
ext_axes_of(PyObject *tree, PyObject *axes, int32_t *out, int *n,
            const char *what)
{
    PyObject *key, *value, *a;
    Py_ssize_t at = 0;

    if (ext_is_array(tree)) {
        if (axes != Py_None && !PyLong_Check(axes))
            return prefix_wrong(what);
        return axis_number(axes, out + (*n)++);
    }
    if (PyDict_Check(tree)) {
        while (PyDict_Next(tree, &at, &key, &value)) {
            a = PyDict_Check(axes) ? PyDict_GetItemWithError(axes, key) : axes;
            if (!a)
                return prefix_wrong(what);
            if (!ext_axes_of(value, a, out, n, what))
                return false;
        }
        return true;
    }
    if (!PyList_Check(tree) && !PyTuple_Check(tree))
        return true;
    if ((PyList_Check(axes) || PyTuple_Check(axes)) &&
        PySequence_Size(axes) != PySequence_Size(tree))
        return prefix_wrong(what);
    for (; at < PySequence_Size(tree); at++) {
        bool deep = PyList_Check(axes) || PyTuple_Check(axes), ok;
        value = PySequence_GetItem(tree, at);
        a = deep ? PySequence_GetItem(axes, at) : Py_NewRef(axes);
        ok = value && a && ext_axes_of(value, a, out, n, what);
        Py_XDECREF(value);
        Py_XDECREF(a);
        if (!ok)
            return false;
    }
    return true;
}

static PyObject *
check_arrays(PyObject *o)
{
    return ext_only_arrays(o, "the result") ? Py_NewRef(o) : NULL;
}

static bool
in_range(int32_t axis, int ndim, int i)
{
    if (axis >= -ndim && axis < ndim)
        return true;
    PyErr_Format(PyExc_IndexError, "out_axes %d is %d, for a result of %d axes",
                 i, (int)axis, ndim);
    return false;
}

/* The batch of each result from axis 0 to where out_axes wants it. */
static bool
place_results(PyObject *result, PyObject *axes, ext_leaves *l)
{
    int32_t *to = calloc((size_t)(l->n ? l->n : 1), sizeof *to);
    int n = 0;
    bool ok;

    if (!to) {
        PyErr_NoMemory();
        return false;
    }
    ok = ext_axes_of(result, axes, to, &n, "out_axes");
    for (int i = 0; ok && i < n; i++) {
        mr_array *x;
        if (to[i] == MR_VMAP_NONE || to[i] == 0)
            continue;
        if (!in_range(to[i], mr_array_ndim(l->x[i]), i)) {
            ok = false;
            break;
        }
        x = mr_moveaxis_at(ext_site(), l->x[i], 0, to[i]);
        mr_release(l->x[i]);
        l->x[i] = x;
        ok = x || ext_raise();
    }
    free(to);
    return ok;
}

static mr_tree *
call_vmap(ext_function *r, PyObject *args, PyObject *in_axes,
          const ext_leaves *in)
{
    int32_t *axes = calloc((size_t)(in->n ? in->n : 1), sizeof *axes);
    const int32_t front = 0;
    mr_tree *tree = mr_tree_arrays(in->n, in->x), *t = NULL;
    mr_closure *c = ext_run_closure(r);
    int n = 0;

    if (axes && tree && c && ext_axes_of(args, in_axes, axes, &n, "in_axes"))
        t = mr_closure_vmap(c, tree, axes, n, &front, 1);
    else if (!axes)
        PyErr_NoMemory();
    mr_closure_release(c);
    mr_tree_release(tree);
    free(axes);
    return t;
}

PyObject *
ext_vmap_call(ext_transform *t, PyObject *args, PyObject *kw)
{
    ext_function r = {.fun = t->fun, .check = check_arrays};
    ext_leaves in = {0}, out = {0};
    PyObject *front = NULL, *result = NULL;
    int next = 0;

    if (kw && PyDict_Size(kw) > 0) {
        PyErr_SetString(PyExc_TypeError,
                        "a function under vmap takes no keyword arguments");
        return NULL;
    }
    if (!ext_only_arrays(args, "the arguments of a function under vmap"))
        return NULL;
    r.args = ext_flatten(args, &in, false);
    if (r.args &&
        ext_run_finish(&r,
                       call_vmap(&r, args, PyTuple_GetItem(t->argnums, 0), &in),
                       &out) &&
        (front = ext_unflatten(r.out, out.x, &next)) &&
        place_results(front, PyTuple_GetItem(t->names, 0), &out)) {
        next = 0;
        result = ext_unflatten(r.out, out.x, &next);
    }
    Py_XDECREF(front);
    ext_leaves_free(&in);
    ext_leaves_free(&out);
    ext_run_end(&r);
    return result;
}

PyObject *
ext_fn_vmap(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {EXT_WORD("fun"), EXT_WORD("in_axes"),
                           EXT_WORD("out_axes"), NULL};
    PyObject *fun, *zero = PyLong_FromLong(0), *in = zero, *out = zero, *t;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|OO:vmap", keys, &fun, &in,
                                     &out)) {
        t = NULL;
    } else if (in == Py_None) {
        PyErr_SetString(PyExc_TypeError,
                        "in_axes must map an argument: None alone maps none");
        t = NULL;
    } else {
        t = ext_transform_new(EXT_VMAP, fun, PyTuple_Pack(1, in),
                              PyTuple_Pack(1, out));
    }
    Py_XDECREF(zero);
    return t;
}
