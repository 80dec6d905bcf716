/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c -- a Python function as a C closure while one call lasts.
 *
 * C sees a tuple of arrays: those that are differentiated or mapped.  All else
 * that the function takes and gives stays Python's.  The function runs on the
 * calling thread with the GIL and no lock of Marram's; its exception passes
 * through C aside (ext_failure) and comes out unchanged.
 */
#include "transform.h"

#include "marram/marram.h"

void
ext_run_end(ext_function *r)
{
    Py_XDECREF(r->args);
    Py_XDECREF(r->kw);
    Py_XDECREF(r->out);
    Py_XDECREF(r->failure.type);
    Py_XDECREF(r->failure.value);
    Py_XDECREF(r->failure.traceback);
}

static PyObject *
run_python(ext_function *r, const mr_tree *in)
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

mr_tree *
ext_run_plain(void *ctx, const mr_tree *in)
{
    ext_function *r = ctx;
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
bool
ext_run_finish(ext_function *r, mr_tree *t, ext_leaves *l)
{
    bool ok;

    if (!t)
        return ext_failure_raise(&r->failure) != NULL;
    ok = ext_tree_leaves(t, l);
    mr_tree_release(t);
    return ok;
}

mr_closure *
ext_run_closure(ext_function *r)
{
    mr_closure *c = mr_closure_new_foreign(ext_run_plain, r, NULL);

    if (!c)
        ext_raise();
    return c;
}
