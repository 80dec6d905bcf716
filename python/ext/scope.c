/* SPDX-License-Identifier: Apache-2.0
 *
 * scope.c -- stream(): which stream and device a with statement means.
 *
 * What is in force is a value of a context variable, so a task of an event loop
 * that is awaited inside a with statement does not see its caller's, and gets
 * its own back when it goes on.  C has it as the thread's stream and device;
 * before an operator of a thread that has used stream() they are brought in
 * line.  Threads that never did pay one load.
 *
 * The variable holds (context, what was in force before), or None: a context
 * has no state of its own and may be entered again, by any thread or task.
 */
#include "ext.h"

#include "marram/marram.h"

typedef struct context_object {
    PyObject_HEAD PyObject *where; /* a stream or device */
} context_object;

static PyObject *variable; /* contextvars.ContextVar */

_Thread_local int ext_scopes_open;
static _Thread_local struct {
    PyObject *now;  /* the value that C has; owned */
    bool in_a_loop; /* an event loop: tasks may still have values */
} here;

static PyObject *
value_get(void)
{
    PyObject *v = PyObject_CallMethod(variable, "get", NULL);

    return v;
}

static bool
value_set(PyObject *v)
{
    PyObject *token = PyObject_CallMethod(variable, "set", "(O)", v);

    Py_XDECREF(token);
    return token != NULL;
}

/* C's stream and device become those of v; takes the reference.  False with
 * an exception: nothing is in force then. */
static bool
put_in_force(PyObject *v)
{
    PyObject *old = here.now;
    mr_stream s = {0};
    mr_device d = {MR_CPU, 0};
    bool ok = true;

    here.now = v;
    mr_stream_scope(s);
    mr_device_scope(NULL, NULL);
    if (v != Py_None) {
        context_object *c = (context_object *)PyTuple_GetItem(v, 0);

        ok = ext_place_of(c->where, &s, &d);
        if (ok && mr_device_scope(&d, NULL) != MR_OK)
            ok = ext_raise() != NULL;
        if (ok)
            mr_stream_scope(s);
    }
    Py_XDECREF(old);
    return ok;
}

void
ext_scope_sync(void)
{
    PyObject *type, *value, *traceback, *v;

    PyErr_Fetch(&type, &value, &traceback);
    v = value_get();
    if (v == here.now)
        Py_XDECREF(v);
    else if (v)
        put_in_force(v);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* Is an event loop running on this thread? */
static bool
loop_runs(void)
{
    PyObject *modules = PyImport_GetModuleDict(), *loop = NULL;
    PyObject *asyncio =
        modules ? PyDict_GetItemString(modules, "asyncio") : NULL;
    bool runs;

    if (asyncio)
        loop = PyObject_CallMethod(asyncio, "_get_running_loop", NULL);
    PyErr_Clear();
    runs = loop && loop != Py_None;
    Py_XDECREF(loop);
    return runs;
}

static PyObject *
context_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("s"), NULL};
    PyObject *o;
    mr_stream s;
    mr_device d = {MR_CPU, 0};
    context_object *c;

    if (!PyArg_ParseTupleAndKeywords(args, kw, "O:stream", names, &o) ||
        !ext_place_of(o, &s, &d))
        return NULL;
    c = (context_object *)PyType_GenericAlloc(type, 0);
    if (c)
        c->where = Py_NewRef(o);
    return (PyObject *)c;
}

static void
context_dealloc(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);

    Py_CLEAR(((context_object *)o)->where);
    PyObject_Free(o);
    Py_DECREF(type);
}

static PyObject *
context_enter(PyObject *self, PyObject *unused)
{
    PyObject *before = value_get(), *v;

    (void)unused;
    if (!before)
        return NULL;
    v = PyTuple_Pack(2, self, before);
    if (!v || !value_set(v)) {
        Py_XDECREF(v);
        Py_DECREF(before);
        return NULL;
    }
    if (!here.in_a_loop && loop_runs()) {
        here.in_a_loop = true;
        ext_scopes_open++; /* for as long as the thread lives */
    }
    ext_scopes_open++;
    if (!put_in_force(v)) {
        ext_scopes_open--;
        value_set(before);
        Py_DECREF(before);
        return NULL;
    }
    Py_DECREF(before);
    Py_RETURN_NONE;
}

static PyObject *
context_exit(PyObject *self, PyObject *args)
{
    PyObject *v = value_get(), *before;

    (void)args;
    if (!v)
        return NULL;
    if (v == Py_None || PyTuple_GetItem(v, 0) != self) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this context is not the one that was entered last "
                        "here: with statements must nest");
        Py_DECREF(v);
        return NULL;
    }
    before = Py_NewRef(PyTuple_GetItem(v, 1));
    Py_DECREF(v);
    if (!value_set(before)) {
        Py_DECREF(before);
        return NULL;
    }
    if (ext_scopes_open > 0)
        ext_scopes_open--;
    if (!put_in_force(before))
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef context_methods[] = {
    {"__enter__", context_enter, METH_NOARGS, NULL},
    {"__exit__", context_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot context_slots[] = {
    {Py_tp_doc,
     EXT_DOC("StreamContext(s)\n--\n\nMakes s, a stream or device, the "
             "default inside a with statement: of this\nthread, and of this "
             "task where an event loop runs.  It may be entered again.")},
    {Py_tp_new, context_new},
    {Py_tp_dealloc, context_dealloc},
    {Py_tp_methods, context_methods},
    {0, NULL},
};

int
ext_init_scope(PyObject *module)
{
    PyType_Spec spec = {"marram.core.StreamContext", sizeof(context_object), 0,
                        Py_TPFLAGS_DEFAULT, context_slots};
    PyObject *contextvars = PyImport_ImportModule("contextvars");
    PyObject *var_type = NULL, *kw = NULL, *args = NULL;

    ext.stream_context = (PyTypeObject *)PyType_FromSpec(&spec);
    if (contextvars)
        var_type = PyObject_GetAttrString(contextvars, "ContextVar");
    if (var_type)
        kw = Py_BuildValue("{s:O}", "default", Py_None);
    if (kw)
        args = Py_BuildValue("(s)", "marram.stream");
    if (args)
        variable = PyObject_Call(var_type, args, kw);
    Py_XDECREF(args);
    Py_XDECREF(kw);
    Py_XDECREF(var_type);
    Py_XDECREF(contextvars);
    if (!variable || !ext.stream_context)
        return -1;
    return PyModule_AddType(module, ext.stream_context);
}
