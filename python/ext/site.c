/* SPDX-License-Identifier: Apache-2.0
 *
 * site.c -- creation sites: which line of Python is running.
 *
 * A site is a code object and the index of its last instruction.  Decoding the
 * line is linear in the length of the function, so each thread keeps a small
 * direct-mapped table from that pair to the interned "file:line".  The table
 * holds references to its code objects: an address is never mistaken for
 * another function's.  Tables of threads that ended are used again by new
 * ones, for they can be emptied only with the GIL.
 */
#include "ext.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

#define N_SLOTS 512u

typedef struct site_slot {
    PyObject *code;
    int lasti;
    const char *site;
} site_slot;

typedef struct site_table {
    struct site_table *next; /* of all tables; fixed */
    _Atomic bool used;
    site_slot slot[N_SLOTS];
} site_table;

static _Atomic(site_table *) tables; /* only ever grows */
static pthread_key_t table_key;
static bool sites_on;
static int (*frame_lasti)(PyFrameObject *frame); /* not in the limited API */

static _Thread_local site_table *table_here
    __attribute__((tls_model("initial-exec")));

static void
table_leave(void *table)
{
    /* release: pairs with the acquire exchange of the next owner */
    atomic_store_explicit(&((site_table *)table)->used, false,
                          memory_order_release);
}

static site_table *
table_enter(void)
{
    /* acquire: pairs with the release in the push below */
    site_table *t = atomic_load_explicit(&tables, memory_order_acquire);

    for (; t; t = t->next)
        if (!atomic_exchange_explicit(&t->used, true, memory_order_acquire))
            break;
    if (!t) {
        t = calloc(1, sizeof *t);
        if (!t)
            return NULL;
        /* relaxed: published by the exchange below */
        atomic_store_explicit(&t->used, true, memory_order_relaxed);
        t->next = atomic_load_explicit(&tables, memory_order_relaxed);
        /* release: pairs with the acquire load above */
        while (!atomic_compare_exchange_weak_explicit(
            &tables, &t->next, t, memory_order_release, memory_order_relaxed))
            ;
    }
    pthread_setspecific(table_key, t);
    table_here = t;
    return t;
}

static int
lasti_slow(PyFrameObject *frame)
{
    PyObject *v = PyObject_GetAttrString((PyObject *)frame, "f_lasti");
    long i = v ? PyLong_AsLong(v) : -1;

    Py_XDECREF(v);
    if (PyErr_Occurred())
        PyErr_Clear();
    return (int)i;
}

static const char *
site_decode(PyFrameObject *frame, PyObject *code)
{
    PyObject *file = PyObject_GetAttrString(code, "co_filename");
    const char *text = file ? PyUnicode_AsUTF8AndSize(file, NULL) : NULL;
    const char *site = NULL;

    if (text)
        site = mr_site_intern(text, PyFrame_GetLineNumber(frame));
    if (PyErr_Occurred())
        PyErr_Clear();
    Py_XDECREF(file);
    return site;
}

/* Replaces what the slot held; an exception that is set stays. */
static const char *
site_miss(site_slot *s, PyFrameObject *frame, PyObject *code, int lasti)
{
    PyObject *old = s->code, *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    s->site = site_decode(frame, code);
    PyErr_Restore(type, value, traceback);
    s->lasti = lasti;
    s->code = Py_NewRef(code);
    Py_XDECREF(old);
    return s->site;
}

static const char *
site_of(PyFrameObject *frame)
{
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    int lasti = frame_lasti(frame);
    site_table *t = table_here ? table_here : table_enter();
    uintptr_t h = ((uintptr_t)code >> 4) ^ ((uintptr_t)code >> 13) ^
                  ((uintptr_t)lasti * 7);
    const char *site = NULL;

    if (t) {
        site_slot *s = &t->slot[h & (N_SLOTS - 1)];
        site = s->code == code && s->lasti == lasti
                   ? s->site
                   : site_miss(s, frame, code, lasti);
    }
    Py_DECREF(code);
    return site;
}

const char *
ext_site(void)
{
    PyFrameObject *frame;
    const char *site;

    if (__builtin_expect(ext_scopes_open > 0, 0))
        ext_scope_sync();
    if (!sites_on)
        return ""; /* not NULL: a composite would name its own lines */
    frame = PyThreadState_GetFrame(PyThreadState_Get());
    if (!frame)
        return "";
    site = site_of(frame);
    Py_DECREF(frame);
    return site ? site : "";
}

void
ext_init_sites(void)
{
    const char *v = getenv("MARRAM_SITES");
    void *p = dlsym(RTLD_DEFAULT, "PyFrame_GetLasti");

    sites_on = !(v && strcmp(v, "0") == 0);
    if (p)
        memcpy(&frame_lasti, &p, sizeof p);
    else
        frame_lasti = lasti_slow;
    if (pthread_key_create(&table_key, table_leave) != 0)
        sites_on = false;
}
