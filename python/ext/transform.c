/* SPDX-License-Identifier: Apache-2.0
 *
 * transform.c -- grad and value_and_grad, the object of a transformed
 * function, and the table of the transforms.
 */
#include "transform.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

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
mark_all(ext_transform *t, PyObject *args, PyObject *kw, ext_function *r,
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
gradients(ext_transform *t, const ext_function *r, const ext_leaves *l,
          int next)
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
call_plain(ext_function *r, ext_leaves *l)
{
    mr_tree *none = mr_tree_arrays(0, NULL), *out = NULL;

    if (none)
        out = ext_run_plain(r, none);
    mr_tree_release(none);
    return ext_run_finish(r, out, l);
}

static bool
call_grad(ext_function *r, const ext_leaves *in, ext_leaves *out)
{
    mr_tree *args, *t = NULL;
    int *nums;
    mr_closure *c;

    if (in->n == 0)
        return call_plain(r, out);
    nums = malloc((size_t)in->n * sizeof *nums);
    args = mr_tree_arrays(in->n, in->x);
    c = ext_run_closure(r);
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
    return ext_run_finish(r, t, out);
}

static PyObject *
grad_call(ext_transform *t, PyObject *args, PyObject *kw)
{
    ext_function r = {.fun = t->fun,
                      .check = t->kind == EXT_GRAD ? check_scalar
                                                   : check_scalar_first};
    ext_leaves in = {0}, out = {0};
    PyObject *value = NULL, *grads = NULL, *result = NULL;
    uint32_t mode = mr_grad_mode(t->mode);
    int next = 0;

    if (mark_all(t, args, kw, &r, &in) && call_grad(&r, &in, &out) &&
        (value = ext_unflatten(r.out, out.x, &next)) &&
        (grads = gradients(t, &r, &out, next)))
        result = t->kind == EXT_GRAD ? Py_NewRef(grads)
                                     : PyTuple_Pack(2, value, grads);
    mr_grad_mode(mode);
    Py_XDECREF(value);
    Py_XDECREF(grads);
    ext_leaves_free(&in);
    ext_leaves_free(&out);
    ext_run_end(&r);
    return result;
}

/* For marram.utils: arrays are the arguments, names what errors call them. */
static PyObject *
check_grad(PyObject *self, PyObject *args)
{
    ext_function r = {.check = check_scalar_first};
    PyObject *arrays, *names, *done = NULL;
    double step, rtol, atol;
    ext_leaves in = {0};
    const char **name = NULL;
    mr_tree *t = NULL;
    mr_closure *c = NULL;
    bool ok;

    (void)self;
    if (!PyArg_ParseTuple(args, "OO!O!ddd:_check_grad", &r.fun, &PyTuple_Type,
                          &arrays, &PyTuple_Type, &names, &step, &rtol, &atol))
        return NULL;
    r.args = ext_flatten(arrays, &in, false);
    ok = r.args && in.n <= PyTuple_Size(names);
    name = ok ? malloc(((size_t)in.n + 1) * sizeof *name) : NULL;
    for (int i = 0; name && ok && i < in.n; i++) {
        name[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(names, i), NULL);
        ok = name[i] != NULL;
    }
    if (name && ok && (t = mr_tree_arrays(in.n, in.x)) &&
        (c = ext_run_closure(&r))) {
        if (mr_closure_check_grad(c, t, name, step, rtol, atol) == MR_OK)
            done = Py_NewRef(Py_None);
        else
            ext_failure_raise(&r.failure);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    mr_closure_release(c);
    mr_tree_release(t);
    free(name);
    ext_leaves_free(&in);
    ext_run_end(&r);
    return done;
}

/* ---- the callable ------------------------------------------------------- */

static PyObject *
transform_call(PyObject *self, PyObject *args, PyObject *kw)
{
    ext_transform *t = (ext_transform *)self;
    PyObject *r;

    if (Py_EnterRecursiveCall(" in a transformed function"))
        return NULL;
    if (t->kind == EXT_CHECKPOINT)
        r = ext_checkpoint_call(t, args, kw);
    else if (t->kind == EXT_VMAP)
        r = ext_vmap_call(t, args, kw);
    else
        r = grad_call(t, args, kw);
    Py_LeaveRecursiveCall();
    return r;
}

static int
transform_traverse(PyObject *self, visitproc visit, void *arg)
{
    ext_transform *t = (ext_transform *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(t->fun);
    Py_VISIT(t->argnums);
    Py_VISIT(t->names);
    return 0;
}

static int
transform_clear(PyObject *self)
{
    ext_transform *t = (ext_transform *)self;

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
    return Py_NewRef(((ext_transform *)self)->fun);
}

static PyObject *
transform_attribute(PyObject *self, void *closure)
{
    return PyObject_GetAttrString(((ext_transform *)self)->fun, closure);
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
    PyType_Spec spec = {"marram.core._Transformed", sizeof(ext_transform), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                            Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        transform_slots};

    ext.transform = (PyTypeObject *)PyType_FromSpec(&spec);
    return ext.transform ? ext_init_custom(module) : -1;
}

PyObject *
ext_transform_new(ext_transform_kind kind, PyObject *fun, PyObject *argnums,
                  PyObject *names)
{
    ext_transform *t = NULL;

    if (!PyCallable_Check(fun))
        ext_wrong_type(fun, "the function must be callable");
    else if (argnums && names)
        t = (ext_transform *)PyType_GenericAlloc(ext.transform, 0);
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
    t = PySequence_Check(argnums) ? PySequence_Tuple(argnums)
                                  : PyTuple_Pack(1, argnums);
    for (Py_ssize_t i = 0; t && i < PyTuple_Size(t); i++) {
        Py_ssize_t v = PyLong_AsSsize_t(PyTuple_GetItem(t, i));
        bool repeated = false;
        if (v == -1 && PyErr_Occurred()) {
            if (PyErr_ExceptionMatches(PyExc_TypeError))
                ext_wrong_type(PyTuple_GetItem(t, i),
                               "argnums must be an int or a list of ints");
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

static bool
names_something(PyObject *places, PyObject *names)
{
    if (PyTuple_Size(places) > 0 || PyTuple_Size(names) > 0)
        return true;
    PyErr_SetString(PyExc_ValueError,
                    "argnums and argnames name no argument to differentiate: "
                    "needs one or more, or leave both out for the first");
    return false;
}

/* argnames as a tuple of text, each once. */
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
    for (Py_ssize_t i = 1; t && i < PyTuple_Size(t); i++)
        for (Py_ssize_t k = 0; t && k < i; k++)
            if (PyUnicode_Compare(PyTuple_GetItem(t, i),
                                  PyTuple_GetItem(t, k)) == 0) {
                PyErr_Format(PyExc_ValueError, "argnames holds '%U' twice",
                             PyTuple_GetItem(t, i));
                Py_CLEAR(t);
            }
    return t;
}

static PyObject *
grad_of(ext_transform_kind kind, PyObject *args, PyObject *kw,
        const char *format)
{
    static char *keys[] = {EXT_WORD("fun"),       EXT_WORD("argnums"),
                           EXT_WORD("argnames"),  EXT_WORD("masked"),
                           EXT_WORD("allow_int"), NULL};
    PyObject *fun, *argnums = Py_None, *argnames = Py_None, *names, *at, *t;
    int masked = 0, allow_int = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kw, format, keys, &fun, &argnums,
                                     &argnames, &masked, &allow_int))
        return NULL;
    names = names_of(argnames);
    if (!names)
        return NULL;
    at = places(argnums, PyTuple_Size(names) > 0);
    if (at && !names_something(at, names))
        Py_CLEAR(at);
    t = ext_transform_new(kind, fun, at, names);
    if (t)
        ((ext_transform *)t)->mode =
            (masked ? MR_GRAD_MASKED : 0) | (allow_int ? MR_GRAD_ALLOW_INT : 0);
    return t;
}

static PyObject *
grad(PyObject *self, PyObject *args, PyObject *kw)
{
    (void)self;
    return grad_of(EXT_GRAD, args, kw, "O|OO$pp:grad");
}

static PyObject *
value_and_grad(PyObject *self, PyObject *args, PyObject *kw)
{
    (void)self;
    return grad_of(EXT_VALUE_AND_GRAD, args, kw, "O|OO$pp:value_and_grad");
}

PyMethodDef ext_transform_functions[] = {
    {"grad", EXT_KEYWORDS(grad),
     "grad(fun, argnums=None, argnames=None, *, masked=False, "
     "allow_int=False)\n--\n\n"
     "A function that gives the gradient of fun, which returns a 0-d array.\n\n"
     "Args:\n"
     "    argnums: the place or places of the arguments to differentiate, by\n"
     "        default the first; these are trees of arrays.\n"
     "    argnames: names of keyword arguments; the result is then a pair of\n"
     "        the gradients of argnums (or None) and a dict by name.\n"
     "    masked: where a cotangent is zero, elementwise operators and\n"
     "        reductions give zero whatever their slope: a branch not taken\n"
     "        cannot make NaN.\n"
     "    allow_int: integer arguments may be chosen; their gradients are\n"
     "        zeros of their dtype."},
    {"value_and_grad", EXT_KEYWORDS(value_and_grad),
     "value_and_grad(fun, argnums=None, argnames=None, *, masked=False, "
     "allow_int=False)\n--\n\n"
     "As grad, but gives (value, gradient).  fun may return a tuple that\n"
     "begins with the 0-d array; value is then that tuple."},
    {"_check_grad", check_grad, METH_VARARGS,
     "_check_grad(fun, arrays, names, step, rtol, atol, /)\n--\n\n"
     "Compares the gradient of fun by arrays with central differences."},
    {"checkpoint", EXT_KEYWORDS(ext_fn_checkpoint),
     "checkpoint(fun)\n--\n\n"
     "fun, whose inside is computed again in a backward pass and not kept\n"
     "for it.  Arrays that it captures have their gradients, and random\n"
     "numbers are the same both times.  fun is called again for that: it\n"
     "must do the same each time."},
    {"depends", EXT_KEYWORDS(ext_fn_depends),
     "depends(inputs, dependencies)\n--\n\n"
     "The inputs, as arrays whose evaluation evaluates the dependencies\n"
     "first: an array for an array, a list for a list.  No gradient flows\n"
     "to the dependencies."},
    {"set_traced_reads", ext_set_traced_reads, METH_O,
     "set_traced_reads(mode, /)\n--\n\n"
     "What reading the value of an array that is being differentiated (item,\n"
     "tolist, NumPy) does, since no derivative goes through it: 'warn' once,\n"
     "'error', or 'ignore'.  Returns the mode before."},
    {"vjp", EXT_KEYWORDS(ext_fn_vjp),
     "vjp(fun, primals, cotangents)\n--\n\n"
     "The outputs of fun, and the product of cotangents with its Jacobian."},
    {"jvp", EXT_KEYWORDS(ext_fn_jvp),
     "jvp(fun, primals, tangents)\n--\n\n"
     "The outputs of fun, and the product of its Jacobian with tangents."},
    {"vmap", EXT_KEYWORDS(ext_fn_vmap),
     "vmap(fun, in_axes=0, out_axes=0)\n--\n\n"
     "fun mapped over an axis of its arguments.\n\n"
     "Args:\n"
     "    in_axes: the axis of each argument, None where one is not mapped: "
     "an\n"
     "        int, or a tree that begins as that of the arguments does.\n"
     "    out_axes: where the axis goes in the results."},
    {NULL, NULL, 0, NULL},
};
