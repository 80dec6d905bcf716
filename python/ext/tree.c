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

/* ---- objects that are trees ---------------------------------------------- */

/* Class to (flatten, unflatten); NULL while there is none. */
static PyObject *registry;

/* In a structure: an object of a registered class. */
typedef struct node_object {
    PyObject_HEAD PyObject *unflatten, *fixed, *children;
} node_object;

static PyTypeObject *node_type;

static int
node_traverse(PyObject *o, visitproc visit, void *arg)
{
    node_object *n = (node_object *)o;

    Py_VISIT(Py_TYPE(o));
    Py_VISIT(n->unflatten);
    Py_VISIT(n->fixed);
    Py_VISIT(n->children);
    return 0;
}

static int
node_clear(PyObject *o)
{
    node_object *n = (node_object *)o;

    Py_CLEAR(n->unflatten);
    Py_CLEAR(n->fixed);
    Py_CLEAR(n->children);
    return 0;
}

static void
node_dealloc(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);

    PyObject_GC_UnTrack(o);
    node_clear(o);
    PyObject_GC_Del(o);
    Py_DECREF(type);
}

static PyType_Slot node_slots[] = {
    {Py_tp_dealloc, node_dealloc},
    {Py_tp_traverse, node_traverse},
    {Py_tp_clear, node_clear},
    {0, NULL},
};

int
ext_init_tree(void)
{
    PyType_Spec spec = {"marram.core._Node", sizeof(node_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                            Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        node_slots};

    mark = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    node_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return mark && node_type ? 0 : -1;
}

/* (flatten, unflatten) of o's class, borrowed, or NULL. */
static PyObject *
registered(PyObject *o)
{
    return registry ? PyDict_GetItemWithError(registry, (PyObject *)Py_TYPE(o))
                    : NULL;
}

PyObject *
ext_tree_registry(void)
{
    return registry;
}

int
ext_open_object(PyObject *o, PyObject **children, PyObject **fixed)
{
    PyObject *pair, *opened;

    if (Py_TYPE(o) == node_type) {
        *children = Py_NewRef(((node_object *)o)->children);
        *fixed = Py_NewRef(((node_object *)o)->fixed);
        return 1;
    }
    pair = registered(o);
    if (!pair)
        return PyErr_Occurred() ? -1 : 0;
    opened = PyObject_CallFunctionObjArgs(PyTuple_GetItem(pair, 0), o, NULL);
    if (opened && (!PyTuple_Check(opened) || PyTuple_Size(opened) != 2)) {
        ext_wrong_type(opened, "flatten must give (children, static)");
        Py_CLEAR(opened);
    }
    if (!opened)
        return -1;
    *children = Py_NewRef(PyTuple_GetItem(opened, 0));
    *fixed = Py_NewRef(PyTuple_GetItem(opened, 1));
    Py_DECREF(opened);
    return 1;
}

const void *
ext_object_class(PyObject *o)
{
    return Py_TYPE(o) == node_type ? ((node_object *)o)->unflatten
                                   : (const void *)Py_TYPE(o);
}

/* For a dataclass: its fields. */
static bool
dataclass_functions(PyObject *cls, PyObject **flatten, PyObject **unflatten)
{
    PyObject *module = PyImport_ImportModule("marram.core._captured");
    PyObject *pair =
        module ? PyObject_CallMethod(module, "dataclass_tree", "O", cls) : NULL;

    Py_XDECREF(module);
    if (!pair)
        return false;
    *flatten = Py_NewRef(PyTuple_GetItem(pair, 0));
    *unflatten = Py_NewRef(PyTuple_GetItem(pair, 1));
    Py_DECREF(pair);
    return true;
}

PyObject *
ext_register_tree(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {EXT_WORD("cls"), EXT_WORD("flatten"),
                           EXT_WORD("unflatten"), NULL};
    PyObject *cls, *flatten = Py_None, *unflatten = Py_None, *pair;
    bool ok;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|OO:register_tree", keys, &cls,
                                     &flatten, &unflatten))
        return NULL;
    if (!PyType_Check(cls)) {
        ext_wrong_type(cls, "only classes can be registered");
        return NULL;
    }
    if ((flatten == Py_None) != (unflatten == Py_None)) {
        PyErr_SetString(PyExc_TypeError, "needs flatten and unflatten, or "
                                         "neither for a dataclass");
        return NULL;
    }
    if (flatten == Py_None) {
        if (!dataclass_functions(cls, &flatten, &unflatten))
            return NULL;
    } else {
        Py_INCREF(flatten);
        Py_INCREF(unflatten);
    }
    if (!registry)
        registry = PyDict_New();
    pair = PyTuple_Pack(2, flatten, unflatten);
    Py_DECREF(flatten);
    Py_DECREF(unflatten);
    ok = registry && pair && PyDict_SetItem(registry, cls, pair) == 0;
    Py_XDECREF(pair);
    return ok ? Py_NewRef(cls) : NULL;
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

/* fn on the children of an object of a registered class; true for others. */
static bool
inside(PyObject *o, bool (*fn)(PyObject *children, void *ctx), void *ctx)
{
    PyObject *children, *fixed;
    int r = ext_open_object(o, &children, &fixed);
    bool ok;

    if (r <= 0)
        return r == 0;
    ok = !too_deep();
    if (ok) {
        ok = fn(children, ctx);
        Py_LeaveRecursiveCall();
    }
    Py_DECREF(children);
    Py_DECREF(fixed);
    return ok;
}

static bool
collect_inside(PyObject *children, void *ctx)
{
    return ext_collect(children, ctx);
}

/* An object that is no tree: does it hold arrays that nobody will see? */
static bool
hides_nothing(PyObject *o, bool top)
{
    PyObject *module, *hides, *name;
    bool user = (PyType_GetFlags(Py_TYPE(o)) & Py_TPFLAGS_HEAPTYPE) != 0;
    bool ok;

    if ((!user && !top) || o == Py_None || PyLong_Check(o) ||
        PyFloat_Check(o) || PyUnicode_Check(o) || ext_is_random_state(o) ||
        ext_is_foreign_array(o))
        return !PyErr_Occurred();
    module = PyImport_ImportModule("marram.core._captured");
    hides = module ? PyObject_CallMethod(module, top ? "hides_alone" : "hides",
                                         "O", o)
                   : NULL;
    Py_XDECREF(module);
    if (!hides)
        return false;
    ok = hides != Py_True;
    Py_DECREF(hides);
    if (ok)
        return true;
    name = PyType_GetName(Py_TYPE(o));
    PyErr_Format(PyExc_TypeError,
                 "%U is no tree of arrays, so that what it holds would be "
                 "passed over: pass its arrays, or a list or dict of them, or "
                 "make its class a tree (register_tree)",
                 name);
    Py_XDECREF(name);
    return false;
}

bool
ext_collect_trees(PyObject *args, ext_leaves *l)
{
    l->strict = true;
    for (Py_ssize_t i = 0; i < PyTuple_Size(args); i++) {
        PyObject *o = PyTuple_GetItem(args, i);

        if (!ext_is_array(o) && !ext_is_sequence(o) && !PyDict_Check(o) &&
            !registered(o) && !hides_nothing(o, true))
            return false;
        if (!ext_collect(o, l))
            return false;
    }
    return true;
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
        return l->strict && !registered(tree) ? hides_nothing(tree, false)
                                              : inside(tree, collect_inside, l);
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

static bool
only_arrays_inside(PyObject *children, void *ctx)
{
    return ext_only_arrays(children, ctx);
}

bool
ext_only_arrays(PyObject *tree, const char *what)
{
    PyObject *key, *value, *name;
    Py_ssize_t at = 0;
    bool ok = true;

    if (ext_is_array(tree))
        return true;
    if (registered(tree))
        return inside(tree, only_arrays_inside, (void *)(uintptr_t)what);
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

PyObject *
ext_tuple_like(PyObject *like, PyObject *items)
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
    return out && !list ? ext_tuple_like(tree, out) : out;
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

/* An object becomes a node, a node an object. */
static PyObject *
map_object(PyObject *o, PyObject *children, PyObject *fixed, leaf_map fn,
           void *ctx)
{
    PyObject *mapped = map(children, fn, ctx), *out = NULL;
    node_object *n;

    if (!mapped)
        return NULL;
    if (Py_TYPE(o) == node_type) {
        out = PyObject_CallFunctionObjArgs(((node_object *)o)->unflatten, fixed,
                                           mapped, NULL);
        Py_DECREF(mapped);
        return out;
    }
    n = (node_object *)PyType_GenericAlloc(node_type, 0);
    if (!n) {
        Py_DECREF(mapped);
        return NULL;
    }
    n->unflatten = Py_NewRef(PyTuple_GetItem(registered(o), 1));
    n->fixed = Py_NewRef(fixed);
    n->children = mapped;
    return (PyObject *)n;
}

static PyObject *
map_leaf(PyObject *o, leaf_map fn, void *ctx)
{
    PyObject *children, *fixed, *out;
    int r = ext_is_array(o) ? 0 : ext_open_object(o, &children, &fixed);

    if (r <= 0)
        return r == 0 ? fn(ctx, o) : NULL;
    if (too_deep())
        return NULL;
    out = map_object(o, children, fixed, fn, ctx);
    Py_LeaveRecursiveCall();
    Py_DECREF(children);
    Py_DECREF(fixed);
    return out;
}

static PyObject *
map(PyObject *tree, leaf_map fn, void *ctx)
{
    PyObject *out;

    if (!ext_is_sequence(tree) && !PyDict_Check(tree))
        return map_leaf(tree, fn, ctx);
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
