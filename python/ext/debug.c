/* SPDX-License-Identifier: Apache-2.0
 *
 * debug.c -- what helps to find a line: evaluation of each operator at once,
 * the lines that evaluate by reading, what is still to be computed.
 */
#include "ext.h"

#include <stdlib.h>

#include "marram/marram.h"

/* ---- eager -------------------------------------------------------------- */

_Thread_local int ext_eager_depth __attribute__((tls_model("initial-exec")));

bool
ext_settle(mr_array *x)
{
    if (mr_eval(x) == MR_OK)
        return true;
    if (mr_error_last().code != MR_E_STATE)
        return false;
    mr_error_take(); /* inside a compile or vmap trace there are no values */
    return true;
}

static PyObject *
set_eager(PyObject *self, PyObject *by)
{
    long n = PyLong_AsLong(by);

    (void)self;
    if (n == -1 && PyErr_Occurred())
        return NULL;
    ext_eager_depth += n > 0 ? 1 : -1;
    Py_RETURN_NONE;
}

/* ---- figures ------------------------------------------------------------ */

static PyObject *
eval_stats(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *keys[] = {EXT_WORD("reset"), NULL};
    mr_read_line line[1025];
    PyObject *lines = PyDict_New(), *result = NULL;
    unsigned long long total;
    int reset = 0, n = 0;
    bool ok;

    (void)self;
    ok = lines &&
         PyArg_ParseTupleAndKeywords(args, kw, "|$p:eval_stats", keys, &reset);
    total = ok ? mr_read_stats(line, 1025, &n) : 0;
    for (int i = 0; ok && i < n && i < 1025; i++) {
        PyObject *count = PyLong_FromUnsignedLongLong(line[i].count);

        ok = count &&
             PyDict_SetItemString(
                 lines, *line[i].site ? line[i].site : "elsewhere", count) == 0;
        Py_XDECREF(count);
    }
    if (ok)
        result = Py_BuildValue("{s:K,s:O}", "implicit", total, "lines", lines);
    if (result && reset)
        mr_read_stats_reset();
    Py_XDECREF(lines);
    return result;
}

/* A number of operations, or None for 0. */
static bool
operations_of(PyObject *o, unsigned long long *n)
{
    *n = 0;
    if (o == Py_None)
        return true;
    *n = PyLong_AsUnsignedLongLong(o);
    if (*n != (unsigned long long)-1 || !PyErr_Occurred())
        return true;
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_ValueError,
                     "operations is %S: it may be None or a number from 0", o);
    return false;
}

static PyObject *
set_eval_depth_limit(PyObject *self, PyObject *o)
{
    unsigned long long n;

    (void)self;
    return operations_of(o, &n)
               ? PyLong_FromUnsignedLongLong(mr_eval_set_depth_limit(n))
               : NULL;
}

static PyObject *
set_eval_window(PyObject *self, PyObject *o)
{
    unsigned long long n;

    (void)self;
    return operations_of(o, &n)
               ? PyLong_FromUnsignedLongLong(mr_eval_set_window(n))
               : NULL;
}

PyMethodDef ext_debug_functions[] = {
    {"set_eval_depth_limit", set_eval_depth_limit, METH_O,
     "set_eval_depth_limit(operations, /)\n--\n\n"
     "Evaluates what a loop forgets to: where a call makes an array that is\n"
     "more than so many operations away from what was evaluated, what is\n"
     "below it starts as with async_eval.  Not inside a traced function.\n\n"
     "Args:\n"
     "    operations: how many; None or 0, the default, for none: then a\n"
     "        warning comes once, beyond 100,000.\n\n"
     "Returns:\n"
     "    The old limit."},
    {"set_eval_window", set_eval_window, METH_O,
     "set_eval_window(operations, /)\n--\n\n"
     "A graph is evaluated depth first, in windows of so many operations:\n"
     "each is planned as a whole, then started.  A smaller one holds the plan\n"
     "lock for less long, and fuses and reuses memory over fewer operations;\n"
     "values are the same.\n\n"
     "Args:\n"
     "    operations: 1 to 1,048,576; None or 0 for the default, 2,048.\n\n"
     "Returns:\n"
     "    The old window."},
    {"_set_eager", set_eager, METH_O,
     "_set_eager(by, /)\n--\n\nOpens (1) or closes (-1) a context of eager."},
    {"eval_stats", EXT_KEYWORDS(eval_stats),
     "eval_stats(*, reset=False)\n--\n\n"
     "Evaluations that began because something was read: item, tolist,\n"
     "float(x), `if x`, print, NumPy and their like.  Each splits a step in\n"
     "two; eval() of all that belongs together is better.\n\n"
     "Args:\n"
     "    reset: count from 0 again afterwards.\n\n"
     "Returns:\n"
     "    {'implicit': how many, 'lines': {'file:line': how many}}."},
    {NULL, NULL, 0, NULL},
};
