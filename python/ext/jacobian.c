/* SPDX-License-Identifier: Apache-2.0
 *
 * jacobian.c -- vjp and jvp: lists of arrays in, lists out.
 */
#include "transform.h"

#include "marram/marram.h"

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
call_both(ext_function *r, const ext_leaves *a, const ext_leaves *b, both fn)
{
    mr_tree *s = mr_tree_arrays(a->n, a->x), *t = mr_tree_arrays(b->n, b->x);
    mr_closure *c = ext_run_closure(r);
    mr_tree *out = s && t && c ? fn(c, s, t) : NULL;
    int n = out ? mr_tree_n_leaves(mr_tree_at(out, 0)) : 0;
    ext_leaves l = {0};
    PyObject *pair = NULL, *x = NULL, *y = NULL;

    mr_closure_release(c);
    mr_tree_release(s);
    mr_tree_release(t);
    if (ext_run_finish(r, out, &l) && (x = list_of(&l, 0, n)) &&
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
    ext_function r = {.check = check_outputs};

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
    ext_run_end(&r);
    return result;
}

PyObject *
ext_fn_vjp(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {EXT_WORD("fun"), EXT_WORD("primals"),
                           EXT_WORD("cotangents"), NULL};

    (void)self;
    return run_both(args, kw, "OOO:vjp", keys, false, mr_closure_vjp);
}

PyObject *
ext_fn_jvp(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {EXT_WORD("fun"), EXT_WORD("primals"),
                           EXT_WORD("tangents"), NULL};

    (void)self;
    return run_both(args, kw, "OOO:jvp", keys, true, mr_closure_jvp);
}
