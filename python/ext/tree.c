/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.c -- trees of Python containers taken apart and put together.
 *
 * C sees tuples of arrays alone; the Python structure stays on this side, so
 * that no C object holds one.
 * Called by: transform.c, compile.c, system.c.
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

/* The mark of an array in a structure. */
static PyObject *mark;

int
ext_init_tree(void)
{
    mark = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    return mark ? 0 : -1;
}

void
ext_leaves_free(ext_leaves *l)
{
    for (int i = 0; i < l->n; i++)
        mr_release(l->x[i]);
    if (l->x != l->few)
        free(l->x);
    l->x = NULL;
    l->n = l->cap = 0;
}

static bool
leaves_grow(ext_leaves *l)
{
    int few = (int)(sizeof l->few / sizeof l->few[0]);
    mr_array **p;

    if (!l->x) {
        l->x = l->few;
        l->cap = few;
        return true;
    }
    p = realloc(l->x == l->few ? NULL : l->x, 2 * (size_t)l->cap * sizeof *p);
    if (!p)
        return false;
    if (l->x == l->few)
        memcpy(p, l->few, sizeof l->few);
    l->x = p;
    l->cap *= 2;
    return true;
}

bool
ext_leaves_add(ext_leaves *l, mr_array *x)
{
    if (l->n == l->cap && !leaves_grow(l)) {
        mr_release(x);
        PyErr_NoMemory();
        return false;
    }
    l->x[l->n++] = x;
    return true;
}

bool
ext_tree_leaves(const mr_tree *t, ext_leaves *l)
{
    int n = mr_tree_n_leaves(t);

    l->cap = n ? n : 1;
    l->x = calloc((size_t)l->cap, sizeof *l->x);
    if (!l->x) {
        l->cap = 0;
        PyErr_NoMemory();
        return false;
    }
    if (mr_tree_leaves(t, l->x, n) != MR_OK)
        return ext_raise() != NULL;
    for (int i = 0; i < n; i++)
        mr_retain(l->x[i]);
    l->n = n;
    return true;
}

/* ---- walking ------------------------------------------------------------ */

bool
ext_is_sequence(PyObject *o)
{
    return PyList_Check(o) || PyTuple_Check(o);
}

PyObject *
ext_sequence_item(PyObject *o, Py_ssize_t i)
{
    return PyList_Check(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);
}

Py_ssize_t
ext_sequence_size(PyObject *o)
{
    return PyList_Check(o) ? PyList_Size(o) : PyTuple_Size(o);
}

static bool
too_deep(void)
{
    return Py_EnterRecursiveCall(" in a tree of arrays") != 0;
}

bool
ext_collect(PyObject *tree, ext_leaves *l)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    bool ok = true;

    if (ext_is_array(tree))
        return ext_leaves_add(l, mr_retain(ext_x(tree)));
    if (!ext_is_sequence(tree) && !PyDict_Check(tree))
        return true;
    if (too_deep())
        return false;
    if (PyDict_Check(tree))
        while (ok && PyDict_Next(tree, &at, &key, &value))
            ok = ext_collect(value, l);
    else
        for (; ok && at < ext_sequence_size(tree); at++)
            ok = ext_collect(ext_sequence_item(tree, at), l);
    Py_LeaveRecursiveCall();
    return ok;
}

bool
ext_only_arrays(PyObject *tree, const char *what)
{
    PyObject *key, *value, *name;
    Py_ssize_t at = 0;
    bool ok = true;

    if (ext_is_array(tree))
        return true;
    if (!ext_is_sequence(tree) && !PyDict_Check(tree)) {
        name = PyType_GetName(Py_TYPE(tree));
        PyErr_Format(PyExc_ValueError,
                     "%s must be a tree of arrays alone, but "
                     "holds %U",
                     what, name);
        Py_XDECREF(name);
        return false;
    }
    if (too_deep())
        return false;
    if (PyDict_Check(tree))
        while (ok && PyDict_Next(tree, &at, &key, &value))
            ok = ext_only_arrays(value, what);
    else
        for (; ok && at < ext_sequence_size(tree); at++)
            ok = ext_only_arrays(ext_sequence_item(tree, at), what);
    Py_LeaveRecursiveCall();
    return ok;
}

/* ---- mapping ------------------------------------------------------------ */

/* A tree like another, its leaves mapped by fn (a new reference). */
typedef PyObject *(*leaf_map)(void *ctx, PyObject *leaf);

static PyObject *map(PyObject *tree, leaf_map fn, void *ctx);

/* A tuple of the class of `like`: named tuples take their fields. */
static PyObject *
tuple_like(PyObject *like, PyObject *items)
{
    PyObject *r;

    if (Py_TYPE(like) == &PyTuple_Type ||
        !PyObject_HasAttrString(like, "_fields"))
        return items;
    r = PyObject_CallObject((PyObject *)Py_TYPE(like), items);
    Py_DECREF(items);
    return r;
}

static PyObject *
map_sequence(PyObject *tree, leaf_map fn, void *ctx)
{
    bool list = PyList_Check(tree);
    Py_ssize_t n = ext_sequence_size(tree);
    PyObject *out = list ? PyList_New(n) : PyTuple_New(n);

    for (Py_ssize_t i = 0; out && i < n; i++) {
        PyObject *v = i < ext_sequence_size(tree)
                          ? map(ext_sequence_item(tree, i), fn, ctx)
                          : NULL;
        if (!v ||
            (list ? PyList_SetItem(out, i, v) : PyTuple_SetItem(out, i, v)) < 0)
            Py_CLEAR(out);
    }
    return out && !list ? tuple_like(tree, out) : out;
}

/* Subclasses (modules) stay what they are: a copy with other entries. */
static PyObject *
dict_like(PyObject *like)
{
    PyObject *copy, *r;

    if (Py_TYPE(like) == &PyDict_Type)
        return PyDict_New();
    copy = PyImport_ImportModule("copy");
    r = copy ? PyObject_CallMethod(copy, "copy", "O", like) : NULL;
    Py_XDECREF(copy);
    return r;
}

static PyObject *
map_dict(PyObject *tree, leaf_map fn, void *ctx)
{
    PyObject *out = dict_like(tree), *key, *value;
    Py_ssize_t at = 0;

    while (out && PyDict_Next(tree, &at, &key, &value)) {
        PyObject *v = map(value, fn, ctx);
        if (!v || PyDict_SetItem(out, key, v) < 0)
            Py_CLEAR(out);
        Py_XDECREF(v);
    }
    return out;
}

static PyObject *
map(PyObject *tree, leaf_map fn, void *ctx)
{
    PyObject *out;

    if (!ext_is_sequence(tree) && !PyDict_Check(tree))
        return fn(ctx, tree);
    if (too_deep())
        return NULL;
    out = PyDict_Check(tree) ? map_dict(tree, fn, ctx)
                             : map_sequence(tree, fn, ctx);
    Py_LeaveRecursiveCall();
    return out;
}

typedef struct flattener {
    ext_leaves *l;
    bool foreign, result;
} flattener;

static PyObject *
flatten_leaf(void *ctx, PyObject *leaf)
{
    flattener *f = ctx;
    mr_array *x;

    if (ext_is_array(leaf))
        x = mr_retain(ext_x(leaf));
    else if (f->foreign && !ext_is_numpy_scalar(leaf) &&
             ext_is_foreign_array(leaf) && !PyBytes_Check(leaf))
        x = ext_from_foreign(leaf, MR_DTYPE_DEFAULT);
    else
        return f->result && ext_is_size(leaf) ? ext_size_fixed(leaf)
                                              : Py_NewRef(leaf);
    if (!x)
        return ext_raise();
    return ext_leaves_add(f->l, x) ? Py_NewRef(mark) : NULL;
}

PyObject *
ext_flatten(PyObject *tree, ext_leaves *l, bool foreign)
{
    flattener f = {l, foreign, false};

    return map(tree, flatten_leaf, &f);
}

PyObject *
ext_flatten_result(PyObject *tree, ext_leaves *l)
{
    flattener f = {l, false, true};

    return map(tree, flatten_leaf, &f);
}

typedef struct unflattener {
    mr_array *const *x;
    int *next;
} unflattener;

static PyObject *
unflatten_leaf(void *ctx, PyObject *leaf)
{
    unflattener *u = ctx;

    mr_array *x;

    if (leaf != mark)
        return Py_NewRef(leaf);
    x = u->x[(*u->next)++];
    return x ? ext_wrap(mr_retain(x)) : Py_NewRef(Py_None);
}

PyObject *
ext_unflatten(PyObject *structure, mr_array *const *x, int *next)
{
    unflattener u = {x, next};

    return map(structure, unflatten_leaf, &u);
}

typedef struct filler {
    PyObject *list;
    int *next;
} filler;

static PyObject *
fill_leaf(void *ctx, PyObject *leaf)
{
    filler *f = ctx;
    PyObject *o;

    if (leaf != mark)
        return Py_NewRef(leaf);
    o = PyList_GetItem(f->list, (*f->next)++);
    return Py_XNewRef(o);
}

PyObject *
ext_fill(PyObject *structure, PyObject *list, int *next)
{
    filler f = {list, next};

    return map(structure, fill_leaf, &f);
}

bool
ext_is_mark(PyObject *o)
{
    return o == mark;
}
