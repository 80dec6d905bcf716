/* SPDX-License-Identifier: Apache-2.0
 *
 * errors.c -- Marram's error as a Python exception, and what may happen to
 * Python objects away from the interpreter.
 *
 * Called by: every file of the extension.  Calls: marram/error.h.
 */
#include "ext.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

static PyObject *
exception_of(mr_code code)
{
    switch (code) {
    case MR_E_NULL:
    case MR_E_VALUE:
    case MR_E_SHAPE:
        return PyExc_ValueError;
    case MR_E_DTYPE:
        return ext.dtype_error;
    case MR_E_TYPE:
        return PyExc_TypeError;
    case MR_E_INDEX:
        return PyExc_IndexError;
    case MR_E_MEMORY:
        return PyExc_MemoryError;
    case MR_E_OVERFLOW:
        return PyExc_OverflowError;
    case MR_E_IO:
        return ext.file_error;
    case MR_E_STATE:
        return ext.state_error;
    case MR_OK:
    case MR_E_USER:
    case MR_E_CANCELLED:
    case MR_E_DEVICE:
    case MR_E_UNSUPPORTED:
    case MR_E_INTERNAL:
        break;
    }
    return PyExc_RuntimeError;
}

static bool
add_note(PyObject *exception, const char *text, Py_ssize_t n)
{
    PyObject *note = PyUnicode_DecodeUTF8(text, n, "replace");
    PyObject *r = NULL;

    if (note)
        r = PyObject_CallMethod(exception, "add_note", "O", note);
    Py_XDECREF(note);
    Py_XDECREF(r);
    return r != NULL;
}

/* The line that made the node, where it is not the line that raises, and the
 * error's own notes. */
static bool
add_notes(PyObject *exception, const mr_error *e, const char *here)
{
    if (e->site && e->site[0] && !(here && strcmp(here, e->site) == 0)) {
        PyObject *note = PyUnicode_FromFormat("created at %s", e->site);
        PyObject *r = NULL;
        if (note)
            r = PyObject_CallMethod(exception, "add_note", "O", note);
        Py_XDECREF(note);
        Py_XDECREF(r);
        if (!r)
            return false;
    }
    for (const char *p = e->notes; p && *p;) {
        const char *end = strchr(p, '\n');
        size_t n = end ? (size_t)(end - p) : strlen(p);
        if (n > 0 && !add_note(exception, p, (Py_ssize_t)n))
            return false;
        p += n + (end ? 1 : 0);
    }
    return true;
}

bool
ext_wrong_type(PyObject *o, const char *wanted, ...)
{
    PyObject *name = PyType_GetName(Py_TYPE(o)), *text;
    va_list args;

    va_start(args, wanted);
    text = PyUnicode_FromFormatV(wanted, args);
    va_end(args);
    if (name && text)
        PyErr_Format(PyExc_TypeError, "%U, not %U", text, name);
    Py_XDECREF(text);
    Py_XDECREF(name);
    return false;
}

/* Of ext_failure_pend. */
static _Thread_local ext_failure pending;

/* The thread's error, taken, as the exception that is set. */
static void
set_exception(const mr_error *e)
{
    const char *here = ext_site();
    PyObject *type = exception_of(e->code), *exception = NULL;
    PyObject *text = PyUnicode_DecodeUTF8(
        e->message, (Py_ssize_t)strlen(e->message), "replace");

    if (text)
        exception = PyObject_CallFunctionObjArgs(type, text, NULL);
    Py_XDECREF(text);
    if (exception && add_notes(exception, e, here))
        PyErr_SetObject(type, exception);
    Py_XDECREF(exception);
}

static bool
raise_last(mr_error *e)
{
    *e = mr_error_take();
    if (PyErr_Occurred()) /* a conversion failed first */
        return false;
    if (e->code == MR_E_USER && pending.type) {
        ext_failure_raise(&pending);
        return false;
    }
    if (e->code == MR_OK) {
        PyErr_SetString(PyExc_RuntimeError, "failed without saying why");
        return false;
    }
    return true;
}

PyObject *
ext_raise(void)
{
    mr_error e;

    if (raise_last(&e)) {
        ext_past_fail(&e);
        set_exception(&e);
        ext_past_restore();
    }
    return NULL;
}

PyObject *
ext_raise_again(void)
{
    mr_error e;

    if (raise_last(&e))
        set_exception(&e);
    return NULL;
}

/* ---- exceptions that cross C ------------------------------------------------
 */

void
ext_failure_keep(ext_failure *f)
{
    Py_XDECREF(f->type);
    Py_XDECREF(f->value);
    Py_XDECREF(f->traceback);
    PyErr_Fetch(&f->type, &f->value, &f->traceback);
    mr_error_set(MR_E_USER, "a Python function raised");
}

void
ext_failure_pend(void)
{
    ext_failure_keep(&pending);
}

PyObject *
ext_failure_raise(ext_failure *f)
{
    if (!f->type)
        return ext_raise();
    mr_error_take();
    PyErr_Restore(f->type, f->value, f->traceback);
    memset(f, 0, sizeof *f);
    return NULL;
}

/* ---- references dropped anywhere --------------------------------------------
 * A closure's destructor may run on a thread that has no GIL, or inside a call
 * of ours.  The object goes on a list that the interpreter empties when it is
 * at a safe place. */
typedef struct later {
    struct later *next;
    PyObject *object;
} later;

static _Atomic(later *) later_list;

static int
later_drain(void *arg)
{
    /* acquire: pairs with the release exchange in ext_drop_later */
    later *l =
        atomic_exchange_explicit(&later_list, NULL, memory_order_acquire);

    (void)arg;
    while (l) {
        later *next = l->next;
        Py_DECREF(l->object);
        free(l);
        l = next;
    }
    return 0;
}

void
ext_drop_later(PyObject *o)
{
    later *l = malloc(sizeof *l), *old;

    if (!l) /* leaked: there is no memory to remember it */
        return;
    l->object = o;
    /* relaxed: the exchange below decides */
    old = atomic_load_explicit(&later_list, memory_order_relaxed);
    do
        l->next = old;
    /* release: pairs with the acquire in later_drain */
    while (!atomic_compare_exchange_weak_explicit(
        &later_list, &old, l, memory_order_release, memory_order_relaxed));
    if (Py_IsInitialized())
        Py_AddPendingCall(later_drain, NULL);
}

static PyObject *
new_error(PyObject *module, const char *name, PyObject *a, PyObject *b,
          const char *doc)
{
    PyObject *bases = PyTuple_Pack(2, a, b), *e = NULL;

    if (bases)
        e = PyErr_NewExceptionWithDoc(name, doc, bases, NULL);
    Py_XDECREF(bases);
    if (e && PyModule_AddObjectRef(module, strrchr(name, '.') + 1, e) < 0)
        Py_CLEAR(e);
    return e;
}

int
ext_init_errors(PyObject *module)
{
    ext.file_error =
        new_error(module, "marram.core.FileError", PyExc_OSError,
                  PyExc_RuntimeError, "A file that is missing or broken.");
    ext.state_error = new_error(
        module, "marram.core.StateError", PyExc_RuntimeError, PyExc_ValueError,
        "A call that is not possible here, as evaluation inside a trace.");
    ext.dtype_error = new_error(
        module, "marram.core.DtypeError", PyExc_ValueError, PyExc_RuntimeError,
        "A type of elements that a function does not take.");
    return ext.file_error && ext.state_error && ext.dtype_error ? 0 : -1;
}
