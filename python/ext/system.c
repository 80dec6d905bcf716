/* SPDX-License-Identifier: Apache-2.0
 *
 * system.c -- evaluation and memory, and giving up the GIL where C may block.
 */
#include "ext.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "marram/marram.h"

/* ---- the GIL ------------------------------------------------------------ */

static int (*gil_held)(void); /* PyGILState_Check, not in the limited API */

/* On a thread that holds the GIL it is given up until block_leave; on others
 * (a host's own threads) there is nothing to do. */
static void *
block_enter(void)
{
    return gil_held && gil_held() ? PyEval_SaveThread() : NULL;
}

static void
block_leave(void *token)
{
    if (token)
        PyEval_RestoreThread(token);
}

/* Signals are handled by Python's main thread alone. */
static _Atomic unsigned long main_thread;

static bool
may_interrupt(void)
{
    return PyThread_get_thread_ident() ==
           atomic_load_explicit(&main_thread, memory_order_relaxed);
}

/* Runs the handlers of pending signals; one that raises (Ctrl-C does) leaves
 * its exception set, and ext_raise keeps it. */
static bool
interrupt_poll(void)
{
    PyGILState_STATE state;
    bool raised;

    if (!Py_IsInitialized())
        return false;
    state = PyGILState_Ensure();
    raised = PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return raised;
}

static bool
find_main_thread(void)
{
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *t = NULL, *ident = NULL;

    if (threading)
        t = PyObject_CallMethod(threading, "main_thread", NULL);
    if (t)
        ident = PyObject_GetAttrString(t, "ident");
    if (ident)
        atomic_store_explicit(&main_thread, PyLong_AsUnsignedLong(ident),
                              memory_order_relaxed);
    Py_XDECREF(threading);
    Py_XDECREF(t);
    Py_XDECREF(ident);
    return ident != NULL && !PyErr_Occurred();
}

/* For mr_set_read_site: on threads of others there is no line. */
static const char *
read_site(void)
{
    return gil_held && gil_held() ? ext_site() : "";
}

int
ext_init_system(void)
{
    void *p = dlsym(RTLD_DEFAULT, "PyGILState_Check");

    if (p)
        memcpy(&gil_held, &p, sizeof p);
    if (!find_main_thread())
        return -1;
    mr_set_block_hooks(block_enter, block_leave);
    mr_set_read_site(read_site);
    mr_set_interrupt_hooks(may_interrupt, interrupt_poll);
    return 0;
}

/* ---- evaluation --------------------------------------------------------- */

typedef mr_code (*evaluate)(mr_array *const *x, int n);

static PyObject *
eval_trees(PyObject *args, evaluate fn)
{
    ext_leaves l = {0};
    bool ok = ext_collect_trees(args, &l);

    if (ok && l.n > 0 && fn(l.x, l.n) != MR_OK)
        ok = ext_raise() != NULL;
    ext_leaves_free(&l);
    if (!ok)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
eval(PyObject *self, PyObject *args)
{
    (void)self;
    return eval_trees(args, mr_eval_many);
}

static PyObject *
async_eval(PyObject *self, PyObject *args)
{
    (void)self;
    return eval_trees(args, mr_async_eval);
}

static PyObject *
set_check(PyObject *self, PyObject *mode)
{
    static const char *const names[] = {"off", "warn", "error"};
    const char *text =
        PyUnicode_Check(mode) ? PyUnicode_AsUTF8AndSize(mode, NULL) : NULL;

    (void)self;
    for (int i = 0; text && i < 3; i++)
        if (strcmp(text, names[i]) == 0)
            return PyUnicode_FromString(names[mr_check_set((mr_check_mode)i)]);
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError,
                     "the checking mode is %R: \"off\", \"warn\" and "
                     "\"error\" are known",
                     mode);
    return NULL;
}

static PyObject *
get_array_buffer_size(PyObject *self, PyObject *args)
{
    ext_leaves l = {0};
    size_t bytes = 0;
    bool ok = ext_collect(args, &l);

    (void)self;
    for (int i = 0; ok && i < l.n; i++) {
        ok = mr_array_is_evaluated(l.x[i]);
        bytes += mr_array_nbytes(l.x[i]);
        if (!ok)
            PyErr_SetString(PyExc_ValueError,
                            "an array that is not evaluated has no buffer: "
                            "eval() it first");
    }
    ext_leaves_free(&l);
    return ok ? PyLong_FromSize_t(bytes) : NULL;
}

/* ---- memory ------------------------------------------------------------- */

static PyObject *
get_active_memory(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromSize_t(mr_memory_active());
}

static PyObject *
get_peak_memory(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromSize_t(mr_memory_peak());
}

static PyObject *
get_cache_memory(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromSize_t(mr_memory_cached());
}

static PyObject *
get_memory_limit(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromSize_t(mr_memory_limit());
}

static PyObject *
reset_peak_memory(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    mr_memory_reset_peak();
    Py_RETURN_NONE;
}

static PyObject *
clear_cache(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    mr_memory_clear_cache();
    Py_RETURN_NONE;
}

/* A number of bytes; a negative one is a TypeError. */
static bool
bytes_of(PyObject *o, size_t *out)
{
    *out = PyLong_AsSize_t(o);
    if (!PyErr_Occurred())
        return true;
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_TypeError,
                     "a limit is a number of bytes from 0 on, not %S", o);
    return false;
}

static PyObject *
set_memory_limit(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char limit_word[] = "limit", strict_word[] = "strict";
    char *words[] = {limit_word, strict_word, NULL};
    PyObject *o;
    int strict = 1;
    size_t n;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:set_memory_limit",
                                     words, &o, &strict) ||
        !bytes_of(o, &n))
        return NULL;
    mr_memory_set_strict(strict != 0);
    return PyLong_FromSize_t(mr_memory_set_limit(n));
}

/* The figures of every device that is there. */
static PyObject *
report_devices(void)
{
    static const struct {
        mr_device_type type;
        const char *name;
    } types[] = {{MR_CPU, "cpu"}, {MR_GPU, "gpu"}, {MR_TEST_DEVICE, "test"}};
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < sizeof types / sizeof *types; i++)
        for (int k = 0; list && k < mr_device_count(types[i].type); k++) {
            mr_memory_info m = {.size = sizeof m};
            PyObject *d;

            mr_memory_of((mr_device){types[i].type, k}, &m);
            d = Py_BuildValue("{s:N,s:K,s:K,s:K}", "device",
                              PyUnicode_FromFormat("%s:%d", types[i].name, k),
                              "active", (unsigned long long)m.active, "cache",
                              (unsigned long long)m.cached, "peak",
                              (unsigned long long)m.peak);
            if (!d || PyList_Append(list, d) != 0)
                Py_CLEAR(list);
            Py_XDECREF(d);
        }
    return list;
}

static PyObject *
memory_report(PyObject *self, PyObject *args)
{
    mr_memory_report r = {.size = sizeof r};
    mr_pending p = {.size = sizeof p};
    ext_leaves l = {0};
    PyObject *devices = NULL;
    bool ok;

    (void)self;
    ok = ext_collect_trees(args, &l);
    if (ok && (mr_pending_get(l.x, l.n, &p) != MR_OK ||
               mr_memory_report_get(&r) != MR_OK)) {
        ext_raise();
        ok = false;
    }
    ext_leaves_free(&l);
    if (!ok || !(devices = report_devices()))
        return NULL;
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:K,s:K,s:s}", "active",
        (unsigned long long)r.active, "cache", (unsigned long long)r.cached,
        "peak", (unsigned long long)r.peak, "peak_with_cache",
        (unsigned long long)r.peak_held, "limit", (unsigned long long)r.limit,
        "resident", (unsigned long long)r.resident, "buffers",
        (unsigned long long)r.buffers, "devices", devices, "pending",
        (unsigned long long)p.nodes, "longest_chain",
        (unsigned long long)p.longest, "chain_begins", p.site);
}

static PyObject *
set_cache_limit(PyObject *self, PyObject *o)
{
    size_t n;

    (void)self;
    return bytes_of(o, &n) ? PyLong_FromSize_t(mr_memory_set_cache_limit(n))
                           : NULL;
}

static PyObject *
set_wired_limit(PyObject *self, PyObject *o)
{
    size_t n;

    (void)self;
    return bytes_of(o, &n) ? PyLong_FromLong(0) : NULL;
}

/* ---- facts -------------------------------------------------------------- */

static PyObject *
cpu_tier(PyObject *self, PyObject *unused)
{
    const char *tier = mr_cpu_tier();

    (void)self;
    (void)unused;
    return tier ? PyUnicode_FromString(tier) : ext_raise();
}

static PyObject *
num_threads(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong(mr_num_threads());
}

PyMethodDef ext_system_functions[] = {
    {"set_check", set_check, METH_O,
     "set_check(mode, /)\n--\n\nWhat is done about the first NaN or infinity "
     "that an operator makes out of\nfinite inputs: \"off\", \"warn\" (a log "
     "line with operator and line), \"error\".\nGives the old mode.  "
     "MARRAM_CHECK=1 or MARRAM_CHECK=error set it at start."},
    {"eval", eval, METH_VARARGS,
     "eval(*args)\n--\n\nComputes the arrays of trees and waits for them."},
    {"async_eval", async_eval, METH_VARARGS,
     "async_eval(*args)\n--\n\n"
     "Starts computing the arrays of trees.  A later read waits, and raises\n"
     "what went wrong.  Waits itself while more than 4,096 tasks are in "
     "flight,\n"
     "or 256 MiB that earlier calls took for work that is not done."},
    {"get_array_buffer_size", get_array_buffer_size, METH_VARARGS,
     "get_array_buffer_size(*args)\n--\n\nBytes of evaluated arrays."},
    {"get_active_memory", get_active_memory, METH_NOARGS,
     "get_active_memory()\n--\n\nBytes in live buffers."},
    {"get_peak_memory", get_peak_memory, METH_NOARGS,
     "get_peak_memory()\n--\n\nThe most bytes that were in live buffers."},
    {"get_cache_memory", get_cache_memory, METH_NOARGS,
     "get_cache_memory()\n--\n\nBytes kept for buffers to come."},
    {"get_memory_limit", get_memory_limit, METH_NOARGS,
     "get_memory_limit()\n--\n\nThe limit of live buffers in bytes."},
    {"reset_peak_memory", reset_peak_memory, METH_NOARGS,
     "reset_peak_memory()\n--\n\nStarts the peak anew."},
    {"clear_cache", clear_cache, METH_NOARGS,
     "clear_cache()\n--\n\nGives the memory kept for buffers to come back."},
    {"set_memory_limit", EXT_KEYWORDS(set_memory_limit),
     "set_memory_limit(limit, strict=True)\n--\n\nSets the limit of the host's "
     "and all devices' memory together; gives the\nold one.  At the limit "
     "caches are emptied, then an evaluation waits for what\nruns, then it "
     "raises MemoryError, or with strict=False goes over the limit."},
    {"memory_report", memory_report, METH_VARARGS,
     "memory_report(*trees)\n--\n\nAll memory at a glance, in bytes: active, "
     "cache, their peaks (of active, and of\nboth together), the limit, what "
     "the system counts (resident), the number of\nbuffers, and each device's "
     "share.  And what the arrays of the trees still need:\nhow many "
     "operations are pending, the longest chain of them, and the line where\n"
     "that chain begins.  A chain that grows from step to step keeps what went "
     "into\nit: evaluate its end."},
    {"set_cache_limit", set_cache_limit, METH_O,
     "set_cache_limit(limit, /)\n--\n\nSets the limit of what is kept; gives "
     "the old one."},
    {"set_wired_limit", set_wired_limit, METH_O,
     "set_wired_limit(limit, /)\n--\n\nWithout effect on this system: 0."},
    {"cpu_tier", cpu_tier, METH_NOARGS,
     "cpu_tier()\n--\n\nThe instruction set that the kernels use."},
    {"num_threads", num_threads, METH_NOARGS,
     "num_threads()\n--\n\nThe threads that kernels run on."},
    {NULL, NULL, 0, NULL},
};
