/* SPDX-License-Identifier: Apache-2.0
 *
 * transform.c -- grad, value_and_grad, vjp, jvp, vmap.
 *
 * A transform of a Python function runs it as a C closure on a tuple of
 * arrays: those that are differentiated or mapped.  All else that the function
 * takes and gives stays Python's.  The function runs on the calling thread
 * with the GIL and no lock of Marram's; its exception passes through C aside
 * (ext_failure) and comes out unchanged.
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

typedef enum transform_kind { GRAD, VALUE_AND_GRAD, VMAP } transform_kind;

typedef struct transform_object {
    PyObject_HEAD transform_kind kind;
    PyObject *fun;
    PyObject *argnums; /* tuple of ints, or of one axis tree (vmap) */
    PyObject *names;   /* tuple of text, or of one axis tree (vmap) */
} transform_object;

/* A Python function on its way through C. */
typedef struct run {
    PyObject *fun;
    PyObject *args, *kw;                  /* structures; kw may be NULL */
    PyObject *out;                        /* structure of the result */
    PyObject *(*check)(PyObject *result); /* a new reference, or NULL */
    ext_failure failure;
} run;

static void
run_end(run *r)
{
    Py_XDECREF(r->args);
    Py_XDECREF(r->kw);
    Py_XDECREF(r->out);
    Py_XDECREF(r->failure.type);
    Py_XDECREF(r->failure.value);
    Py_XDECREF(r->failure.traceback);
}

static PyObject *
run_python(run *r, const mr_tree *in)
{
    ext_leaves l = {0};
    PyObject *args = NULL, *kw = NULL, *result = NULL;
    int next = 0;

    if (ext_tree_leaves(in, &l) &&
        (args = ext_unflatten(r->args, l.x, &next)) &&
        (!r->kw || (kw = ext_unflatten(r->kw, l.x, &next))))
        result = PyObject_Call(r->fun, args, kw);
    Py_XDECREF(args);
    Py_XDECREF(kw);
    ext_leaves_free(&l);
    return result;
}

static mr_tree *
run_closure(void *ctx, const mr_tree *in)
{
    run *r = ctx;
    PyObject *result = run_python(r, in), *checked = NULL;
    ext_leaves l = {0};
    mr_tree *out = NULL;

    Py_CLEAR(r->out);
    if (result)
        checked = r->check(result);
    if (checked)
        r->out = ext_flatten(checked, &l, false);
    Py_XDECREF(result);
    Py_XDECREF(checked);
    if (r->out)
        out = mr_tree_arrays(l.n, l.x);
    ext_leaves_free(&l);
    if (!out && PyErr_Occurred())
        ext_failure_keep(&r->failure);
    return out;
}

/* The result of a C transform as leaves; false with an exception. */
static bool
finish(run *r, mr_tree *t, ext_leaves *l)
{
    bool ok;

    if (!t)
        return ext_failure_raise(&r->failure) != NULL;
    ok = ext_tree_leaves(t, l);
    mr_tree_release(t);
    return ok;
}

static mr_closure *
closure_of(run *r)
{
    mr_closure *c = mr_closure_new_foreign(run_closure, r, NULL);

    if (!c)
        ext_raise();
    return c;
}

/* ---- grad --------------------------------------------------------------- */

static bool
is_scalar(PyObject *o)
{
    return ext_is_array(o) && mr_array_ndim(ext_x(o)) == 0;
}

static PyObject *
bad_loss(PyObject *o, const char *want)
{
    PyObject *what;

    if (ext_is_array(o))
        what = PyObject_GetAttrString(o, "shape");
    else
        what = PyType_GetName(Py_TYPE(o));
    PyErr_Format(PyExc_ValueError, "the function must return %s, not %s%S",
                 want, ext_is_array(o) ? "an array of shape " : "", what);
    Py_XDECREF(what);
    return NULL;
}

static PyObject *
check_scalar(PyObject *o)
{
    return is_scalar(o) ? Py_NewRef(o) : bad_loss(o, "a 0-d array");
}

static PyObject *
check_scalar_first(PyObject *o)
{
    if (is_scalar(o))
        return Py_NewRef(o);
    if (PyTuple_Check(o) && PyTuple_Size(o) > 0 &&
        is_scalar(PyTuple_GetItem(o, 0)))
        return Py_NewRef(o);
    return bad_loss(
        PyTuple_Check(o) && PyTuple_Size(o) > 0 ? PyTuple_GetItem(o, 0) : o,
        "a 0-d array, or a tuple that begins with one");
}

/* Marks the arrays of argument i; the others stay themselves. */
static bool
mark_argument(PyObject *args, PyObject *structure, Py_ssize_t i, ext_leaves *l)
{
    char what[48];
    PyObject *s;

    if (i >= PyTuple_Size(args)) {
        PyErr_Format(PyExc_ValueError,
                     "argnums names argument %zd, but there are %zd positional "
                     "ones",
                     i, PyTuple_Size(args));
        return false;
    }
    PyOS_snprintf(what, sizeof what, "argument %zd, which is differentiated,",
                  i);
    if (!ext_only_arrays(PyTuple_GetItem(args, i), what))
        return false;
    s = ext_flatten(PyTuple_GetItem(args, i), l, false);
    return s && PyTuple_SetItem(structure, i, s) == 0;
}

static bool
mark_keyword(PyObject *kw, PyObject *structure, PyObject *name, ext_leaves *l)
{
    PyObject *value = kw ? PyDict_GetItemWithError(kw, name) : NULL, *s;
    bool ok;

    if (!value) {
        PyErr_Format(PyExc_ValueError,
                     "argnames names '%U', which is not among the keyword "
                     "arguments",
                     name);
        return false;
    }
    if (!ext_only_arrays(value, "a keyword argument that is differentiated"))
        return false;
    s = ext_flatten(value, l, false);
    ok = s && PyDict_SetItem(structure, name, s) == 0;
    Py_XDECREF(s);
    return ok;
}

static PyObject *
tuple_copy(PyObject *t)
{
    Py_ssize_t n = PyTuple_Size(t);
    PyObject *out = PyTuple_New(n);

    for (Py_ssize_t i = 0; out && i < n; i++)
        if (PyTuple_SetItem(out, i, Py_NewRef(PyTuple_GetItem(t, i))) < 0)
            Py_CLEAR(out);
    return out;
}

/* argnums in ascending order are marked, then the names in the order that the
 * call gave them: the order in which run_python takes leaves. */
static bool
mark_all(transform_object *t, PyObject *args, PyObject *kw, run *r,
         ext_leaves *l)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    r->args = tuple_copy(args);
    r->kw = kw ? PyDict_Copy(kw) : NULL;
    if (!r->args || (kw && !r->kw))
        return false;
    for (Py_ssize_t a = 0; a < PyTuple_Size(args); a++)
        for (Py_ssize_t k = 0; k < PyTuple_Size(t->argnums); k++)
            if (PyLong_AsSsize_t(PyTuple_GetItem(t->argnums, k)) == a &&
                !mark_argument(args, r->args, a, l))
                return false;
    for (Py_ssize_t k = 0; k < PyTuple_Size(t->argnums); k++) {
        Py_ssize_t i = PyLong_AsSsize_t(PyTuple_GetItem(t->argnums, k));
        if (i >= PyTuple_Size(args))
            return mark_argument(args, r->args, i, l);
    }
    for (Py_ssize_t k = 0; k < PyTuple_Size(t->names); k++)
        if (!kw || !PyDict_Contains(kw, PyTuple_GetItem(t->names, k)))
            return mark_keyword(kw, r->kw, PyTuple_GetItem(t->names, k), l);
    while (kw && PyDict_Next(kw, &at, &key, &value)) {
        int named = PySequence_Contains(t->names, key);
        if (named < 0 || (named && !mark_keyword(kw, r->kw, key, l)))
            return false;
    }
    return true;
}

/* What a call gives for argnums and argnames. */
static PyObject *
gradients(transform_object *t, const run *r, const ext_leaves *l, int next)
{
    Py_ssize_t n = PyTuple_Size(t->argnums), n_names = PyTuple_Size(t->names);
    PyObject *by_place = PyDict_New(), *first = NULL, *named = NULL, *key,
             *value, *g, *pair = NULL;
    Py_ssize_t at = 0;

    /* in the order of the leaves: ascending places, then keywords */
    for (Py_ssize_t a = 0; by_place && a < PyTuple_Size(r->args); a++) {
        PyObject *place = PyLong_FromSsize_t(a);
        int in = place ? PySequence_Contains(t->argnums, place) : -1;
        g = in > 0 ? ext_unflatten(PyTuple_GetItem(r->args, a), l->x, &next)
                   : NULL;
        if (in < 0 || (in && (!g || PyDict_SetItem(by_place, place, g) < 0)))
            Py_CLEAR(by_place);
        Py_XDECREF(g);
        Py_XDECREF(place);
    }
    if (!by_place)
        return NULL;
    if (n == 1) {
        first = Py_XNewRef(
            PyDict_GetItemWithError(by_place, PyTuple_GetItem(t->argnums, 0)));
    } else if (n > 1) {
        first = PyTuple_New(n);
        for (Py_ssize_t i = 0; first && i < n; i++)
            PyTuple_SetItem(first, i,
                            Py_NewRef(PyDict_GetItemWithError(
                                by_place, PyTuple_GetItem(t->argnums, i))));
    } else {
        first = Py_NewRef(Py_None);
    }
    Py_DECREF(by_place);
    if (n_names == 0 || !first)
        return first;
    named = PyDict_New();
    while (named && PyDict_Next(r->kw, &at, &key, &value)) {
        if (PySequence_Contains(t->names, key) != 1)
            continue;
        g = ext_unflatten(value, l->x, &next);
        if (!g || PyDict_SetItem(named, key, g) < 0)
            Py_CLEAR(named);
        Py_XDECREF(g);
    }
    if (named)
        pair = PyTuple_Pack(2, first, named);
    Py_XDECREF(named);
    Py_DECREF(first);
    return pair;
}

/* Nothing to differentiate: the function is called, gradients are empty. */
static bool
call_plain(run *r, ext_leaves *l)
{
    mr_tree *none = mr_tree_arrays(0, NULL), *out = NULL;

    if (none)
        out = run_closure(r, none);
    mr_tree_release(none);
    return finish(r, out, l);
}

static bool
call_grad(run *r, const ext_leaves *in, ext_leaves *out)
{
    mr_tree *args, *t = NULL;
    int *nums;
    mr_closure *c;

    if (in->n == 0)
        return call_plain(r, out);
    nums = malloc((size_t)in->n * sizeof *nums);
    args = mr_tree_arrays(in->n, in->x);
    c = closure_of(r);
    if (nums && args && c) {
        for (int i = 0; i < in->n; i++)
            nums[i] = i;
        t = mr_closure_value_and_grad(c, args, nums, in->n);
    } else if (!nums) {
        PyErr_NoMemory();
    }
    mr_closure_release(c);
    mr_tree_release(args);
    free(nums);
    return finish(r, t, out);
}

static PyObject *
grad_call(transform_object *t, PyObject *args, PyObject *kw)
{
    run r = {.fun = t->fun,
             .check = t->kind == GRAD ? check_scalar : check_scalar_first};
    ext_leaves in = {0}, out = {0};
    PyObject *value = NULL, *grads = NULL, *result = NULL;
    int next = 0;

    if (mark_all(t, args, kw, &r, &in) && call_grad(&r, &in, &out) &&
        (value = ext_unflatten(r.out, out.x, &next)) &&
        (grads = gradients(t, &r, &out, next)))
        result =
            t->kind == GRAD ? Py_NewRef(grads) : PyTuple_Pack(2, value, grads);
    Py_XDECREF(value);
    Py_XDECREF(grads);
    ext_leaves_free(&in);
    ext_leaves_free(&out);
    run_end(&r);
    return result;
}

/* ---- vmap --------------------------------------------------------------- */

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
static bool
axes_of(PyObject *tree, PyObject *axes, int32_t *out, int *n, const char *what)
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
            if (!axes_of(value, a, out, n, what))
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
        ok = value && a && axes_of(value, a, out, n, what);
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
    ok = axes_of(result, axes, to, &n, "out_axes");
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
call_vmap(run *r, PyObject *args, PyObject *in_axes, const ext_leaves *in)
{
    int32_t *axes = calloc((size_t)(in->n ? in->n : 1), sizeof *axes);
    const int32_t front = 0;
    mr_tree *tree = mr_tree_arrays(in->n, in->x), *t = NULL;
    mr_closure *c = closure_of(r);
    int n = 0;

    if (axes && tree && c && axes_of(args, in_axes, axes, &n, "in_axes"))
        t = mr_closure_vmap(c, tree, axes, n, &front, 1);
    else if (!axes)
        PyErr_NoMemory();
    mr_closure_release(c);
    mr_tree_release(tree);
    free(axes);
    return t;
}

static PyObject *
vmap_call(transform_object *t, PyObject *args, PyObject *kw)
{
    run r = {.fun = t->fun, .check = check_arrays};
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
        finish(&r, call_vmap(&r, args, PyTuple_GetItem(t->argnums, 0), &in),
               &out) &&
        (front = ext_unflatten(r.out, out.x, &next)) &&
        place_results(front, PyTuple_GetItem(t->names, 0), &out)) {
        next = 0;
        result = ext_unflatten(r.out, out.x, &next);
    }
    Py_XDECREF(front);
    ext_leaves_free(&in);
    ext_leaves_free(&out);
    run_end(&r);
    return result;
}

/* ---- the callable ------------------------------------------------------- */

static PyObject *
transform_call(PyObject *self, PyObject *args, PyObject *kw)
{
    transform_object *t = (transform_object *)self;
    PyObject *r;

    if (Py_EnterRecursiveCall(" in a transformed function"))
        return NULL;
    r = t->kind == VMAP ? vmap_call(t, args, kw) : grad_call(t, args, kw);
    Py_LeaveRecursiveCall();
    return r;
}

static int
transform_traverse(PyObject *self, visitproc visit, void *arg)
{
    transform_object *t = (transform_object *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(t->fun);
    Py_VISIT(t->argnums);
    Py_VISIT(t->names);
    return 0;
}

static int
transform_clear(PyObject *self)
{
    transform_object *t = (transform_object *)self;

    Py_CLEAR(t->fun);
    Py_CLEAR(t->argnums);
    Py_CLEAR(t->names);
    return 0;
}

static void
transform_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    transform_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *
transform_wrapped(PyObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef(((transform_object *)self)->fun);
}

static PyObject *
transform_attribute(PyObject *self, void *closure)
{
    return PyObject_GetAttrString(((transform_object *)self)->fun, closure);
}

static PyGetSetDef transform_getset[] = {
    {"__wrapped__", transform_wrapped, NULL, NULL, NULL},
    {"__name__", transform_attribute, NULL, NULL,
     (void *)(uintptr_t) "__name__"},
    {"__qualname__", transform_attribute, NULL, NULL,
     (void *)(uintptr_t) "__qualname__"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot transform_slots[] = {
    {Py_tp_doc, EXT_DOC("A function under grad, value_and_grad or vmap.")},
    {Py_tp_call, transform_call},
    {Py_tp_dealloc, transform_dealloc},
    {Py_tp_traverse, transform_traverse},
    {Py_tp_clear, transform_clear},
    {Py_tp_getset, transform_getset},
    {0, NULL},
};

int
ext_init_transform(PyObject *module)
{
    PyType_Spec spec = {"marram.core._Transformed", sizeof(transform_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                            Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        transform_slots};

    (void)module;
    ext.transform = (PyTypeObject *)PyType_FromSpec(&spec);
    return ext.transform ? 0 : -1;
}

static PyObject *
transform_new(transform_kind kind, PyObject *fun, PyObject *argnums,
              PyObject *names)
{
    transform_object *t = NULL;

    if (!PyCallable_Check(fun))
        ext_wrong_type(fun, "the function must be callable");
    else if (argnums && names)
        t = (transform_object *)PyType_GenericAlloc(ext.transform, 0);
    if (t) {
        t->kind = kind;
        t->fun = Py_NewRef(fun);
        t->argnums = Py_NewRef(argnums);
        t->names = Py_NewRef(names);
    }
    Py_XDECREF(argnums);
    Py_XDECREF(names);
    return (PyObject *)t;
}

/* ---- functions ---------------------------------------------------------- */

/* argnums as a tuple of places; given: whether names were too. */
static PyObject *
places(PyObject *argnums, bool names_given)
{
    PyObject *t;

    if (argnums == Py_None)
        return names_given ? PyTuple_New(0) : Py_BuildValue("(i)", 0);
    t = PyLong_Check(argnums) ? PyTuple_Pack(1, argnums)
                              : PySequence_Tuple(argnums);
    for (Py_ssize_t i = 0; t && i < PyTuple_Size(t); i++) {
        Py_ssize_t v = PyLong_AsSsize_t(PyTuple_GetItem(t, i));
        bool repeated = false;
        if (v == -1 && PyErr_Occurred()) {
            Py_CLEAR(t);
            break;
        }
        for (Py_ssize_t k = 0; k < i; k++)
            repeated |= PyLong_AsSsize_t(PyTuple_GetItem(t, k)) == v;
        if (v < 0 || repeated) {
            PyErr_Format(PyExc_ValueError, "argnums holds %zd%s", v,
                         v < 0 ? ", but counts from 0" : " twice");
            Py_CLEAR(t);
        }
    }
    return t;
}

static PyObject *
names_of(PyObject *argnames)
{
    PyObject *t;

    if (argnames == Py_None)
        return PyTuple_New(0);
    t = PyUnicode_Check(argnames) ? PyTuple_Pack(1, argnames)
                                  : PySequence_Tuple(argnames);
    for (Py_ssize_t i = 0; t && i < PyTuple_Size(t); i++)
        if (!PyUnicode_Check(PyTuple_GetItem(t, i))) {
            ext_wrong_type(PyTuple_GetItem(t, i), "argnames must be text");
            Py_CLEAR(t);
        }
    return t;
}

static PyObject *
grad_of(transform_kind kind, PyObject *args, PyObject *kw, const char *format)
{
    static char *keys[] = {(char *)(uintptr_t) "fun",
                           (char *)(uintptr_t) "argnums",
                           (char *)(uintptr_t) "argnames", NULL};
    PyObject *fun, *argnums = Py_None, *argnames = Py_None, *names;

    if (!PyArg_ParseTupleAndKeywords(args, kw, format, keys, &fun, &argnums,
                                     &argnames))
        return NULL;
    names = names_of(argnames);
    if (!names)
        return NULL;
    return transform_new(kind, fun, places(argnums, PyTuple_Size(names) > 0),
                         names);
}

static PyObject *
grad(PyObject *self, PyObject *args, PyObject *kw)
{
    (void)self;
    return grad_of(GRAD, args, kw, "O|OO:grad");
}

static PyObject *
value_and_grad(PyObject *self, PyObject *args, PyObject *kw)
{
    (void)self;
    return grad_of(VALUE_AND_GRAD, args, kw, "O|OO:value_and_grad");
}

static PyObject *
vmap(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {(char *)(uintptr_t) "fun",
                           (char *)(uintptr_t) "in_axes",
                           (char *)(uintptr_t) "out_axes", NULL};
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
        t = transform_new(VMAP, fun, PyTuple_Pack(1, in), PyTuple_Pack(1, out));
    }
    Py_XDECREF(zero);
    return t;
}

/* ---- vjp and jvp -------------------------------------------------------- */

/* An array, or a list or tuple of arrays, as a list: what vjp and jvp know. */
static PyObject *
check_outputs(PyObject *o)
{
    if (ext_is_array(o)) {
        PyObject *l = PyList_New(1);
        if (l)
            PyList_SetItem(l, 0, Py_NewRef(o));
        return l;
    }
    if (!PyList_Check(o) && !PyTuple_Check(o)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the function must return an array, or a list or "
                        "tuple of arrays");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PySequence_Size(o); i++) {
        PyObject *x = PySequence_GetItem(o, i);
        bool ok = x && ext_is_array(x);
        Py_XDECREF(x);
        if (!ok) {
            PyErr_Format(PyExc_ValueError,
                         "the function must return arrays alone; result %zd is "
                         "none",
                         i);
            return NULL;
        }
    }
    return PySequence_List(o);
}

/* A list of arrays as leaves. */
static bool
list_leaves(PyObject *o, ext_leaves *l, const char *what)
{
    if (!ext_is_sequence(o))
        return ext_wrong_type(o, "%s must be a list of arrays", what);
    return ext_only_arrays(o, what) && ext_collect(o, l);
}

static PyObject *
list_of(const ext_leaves *l, int from, int to)
{
    PyObject *out = PyList_New(to - from);

    for (int i = from; out && i < to; i++) {
        PyObject *o = ext_wrap(mr_retain(l->x[i]));
        if (!o || PyList_SetItem(out, i - from, o) < 0)
            Py_CLEAR(out);
    }
    return out;
}

typedef mr_tree *(*both)(mr_closure *c, const mr_tree *a, const mr_tree *b);

/* (list, list) from a transform that gives two tuples. */
static PyObject *
call_both(run *r, const ext_leaves *a, const ext_leaves *b, both fn)
{
    mr_tree *s = mr_tree_arrays(a->n, a->x), *t = mr_tree_arrays(b->n, b->x);
    mr_closure *c = closure_of(r);
    mr_tree *out = s && t && c ? fn(c, s, t) : NULL;
    int n = out ? mr_tree_n_leaves(mr_tree_at(out, 0)) : 0;
    ext_leaves l = {0};
    PyObject *pair = NULL, *x = NULL, *y = NULL;

    mr_closure_release(c);
    mr_tree_release(s);
    mr_tree_release(t);
    if (finish(r, out, &l) && (x = list_of(&l, 0, n)) &&
        (y = list_of(&l, n, l.n)))
        pair = PyTuple_Pack(2, x, y);
    Py_XDECREF(x);
    Py_XDECREF(y);
    ext_leaves_free(&l);
    return pair;
}

static PyObject *
run_both(PyObject *args, PyObject *kw, const char *format, char **keys,
         bool forward, both fn)
{
    PyObject *fun, *primals, *others, *result = NULL;
    ext_leaves a = {0}, b = {0}, c = {0};
    run r = {.check = check_outputs};

    if (!PyArg_ParseTupleAndKeywords(args, kw, format, keys, &fun, &primals,
                                     &others))
        return NULL;
    r.fun = fun;
    if (!list_leaves(primals, &a, "primals") ||
        !list_leaves(others, &b, keys[2]))
        goto out;
    if (forward && a.n != b.n) {
        PyErr_Format(PyExc_ValueError,
                     "%d primals but %d tangents: one each is right", a.n, b.n);
        goto out;
    }
    primals = PySequence_Tuple(primals);
    r.args = primals ? ext_flatten(primals, &c, false) : NULL;
    Py_XDECREF(primals);
    if (r.args)
        result = call_both(&r, &a, &b, fn);
out:
    ext_leaves_free(&a);
    ext_leaves_free(&b);
    ext_leaves_free(&c);
    run_end(&r);
    return result;
}

static PyObject *
vjp(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {(char *)(uintptr_t) "fun",
                           (char *)(uintptr_t) "primals",
                           (char *)(uintptr_t) "cotangents", NULL};

    (void)self;
    return run_both(args, kw, "OOO:vjp", keys, false, mr_closure_vjp);
}

static PyObject *
jvp(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {(char *)(uintptr_t) "fun",
                           (char *)(uintptr_t) "primals",
                           (char *)(uintptr_t) "tangents", NULL};

    (void)self;
    return run_both(args, kw, "OOO:jvp", keys, true, mr_closure_jvp);
}

#define KEYWORDS(f)                                                            \
    (PyCFunction)(void (*)(void)) f, METH_VARARGS | METH_KEYWORDS

PyMethodDef ext_transform_functions[] = {
    {"grad", KEYWORDS(grad),
     "grad(fun, argnums=None, argnames=None)\n--\n\n"
     "A function that gives the gradient of fun, which returns a 0-d array.\n\n"
     "Args:\n"
     "    argnums: the place or places of the arguments to differentiate, by\n"
     "        default the first; these are trees of arrays.\n"
     "    argnames: names of keyword arguments; the result is then a pair of\n"
     "        the gradients of argnums (or None) and a dict by name."},
    {"value_and_grad", KEYWORDS(value_and_grad),
     "value_and_grad(fun, argnums=None, argnames=None)\n--\n\n"
     "As grad, but gives (value, gradient).  fun may return a tuple that\n"
     "begins with the 0-d array; value is then that tuple."},
    {"vjp", KEYWORDS(vjp),
     "vjp(fun, primals, cotangents)\n--\n\n"
     "The outputs of fun, and the product of cotangents with its Jacobian."},
    {"jvp", KEYWORDS(jvp),
     "jvp(fun, primals, tangents)\n--\n\n"
     "The outputs of fun, and the product of its Jacobian with tangents."},
    {"vmap", KEYWORDS(vmap),
     "vmap(fun, in_axes=0, out_axes=0)\n--\n\n"
     "fun mapped over an axis of its arguments.\n\n"
     "Args:\n"
     "    in_axes: the axis of each argument, None where one is not mapped: "
     "an\n"
     "        int, or a tree that begins as that of the arguments does.\n"
     "    out_axes: where the axis goes in the results."},
    {NULL, NULL, 0, NULL},
};
