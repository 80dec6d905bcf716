/* SPDX-License-Identifier: Apache-2.0
 *
 * captured.c -- the places where a compiled function finds arrays that are not
 * its arguments.
 *
 * Which places there are is found in Python (marram/core/_captured.py): steps
 * from the function and the arguments to dicts, lists, attributes and slots.
 * A place is read again by following its steps, without a user's code, and no
 * reference to what lies on the way is kept.
 *
 * As inputs: a plan, the steps of a call, is followed at each call, and made
 * anew when something on the way is not what it expects; the places hold
 * tracers while the function is traced.  As constants: after a trace the ways
 * to the arrays that its program keeps are remembered; each call of the program
 * follows some, and says once when another array is there by now.
 *
 * Called by: compile.c.
 */
#include "compile.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

/* ---- places -------------------------------------------------------------- */

/* As in _captured.py. */
typedef enum step_kind {
    STEP_ARRAY,
    STEP_FIXED, /* an array that cannot be replaced there */
    STEP_NODE,  /* what other steps lead on from */
    STEP_OTHER,
    STEP_SEEN, /* what another step holds as well */
    STEP_MISSING,
    STEP_FUNCTION,
    STEP_ARGUMENTS,
    STEP_KEYWORDS
} step_kind;

/* A place: a key in what an earlier step holds. */
typedef struct step {
    int holder;
    step_kind kind;
    Py_ssize_t size;      /* of a container, or negative */
    PyObject *key, *what; /* of the plan's list: borrowed */
    int seen;
} step;

struct ext_plan {
    PyObject *steps, *names; /* lists */
    int64_t number;
    step *step;
    int n, refs;
};

static bool
is_descriptor(PyObject *key)
{
    return Py_TYPE(key) == &PyGetSetDescr_Type ||
           Py_TYPE(key) == &PyMemberDescr_Type;
}

/* What is at a key, without a user's code; NULL, without an exception: there
 * is nothing.  A new reference. */
static PyObject *
value_at(PyObject *holder, PyObject *key)
{
    PyObject *v = NULL;

    if (is_descriptor(key)) {
        descrgetfunc get = (descrgetfunc)(uintptr_t)PyType_GetSlot(
            Py_TYPE(key), Py_tp_descr_get);
        v = get(key, holder, (PyObject *)Py_TYPE(holder));
    } else if (PyDict_Check(holder)) {
        v = Py_XNewRef(PyDict_GetItemWithError(holder, key));
    } else if (ext_is_sequence(holder)) {
        Py_ssize_t i = PyLong_AsSsize_t(key);
        if (i >= 0 && i < ext_sequence_size(holder))
            v = Py_NewRef(ext_sequence_item(holder, i));
    } else if (Py_TYPE(holder) == &PyDictProxy_Type) {
        v = PyObject_GetItem(holder, key);
    }
    if (!v)
        PyErr_Clear();
    return v;
}

static bool
set_at(PyObject *holder, PyObject *key, PyObject *v)
{
    if (is_descriptor(key)) {
        descrsetfunc set = (descrsetfunc)(uintptr_t)PyType_GetSlot(
            Py_TYPE(key), Py_tp_descr_set);
        return set(key, holder, v) == 0;
    }
    if (PyDict_Check(holder))
        return PyDict_SetItem(holder, key, v) == 0;
    return PyList_SetItem(holder, PyLong_AsSsize_t(key), Py_NewRef(v)) == 0;
}

/* A reference less: while one is read, anything may run (finalizers). */
static void
plan_free(ext_plan *p)
{
    if (--p->refs > 0)
        return;
    Py_CLEAR(p->steps);
    Py_CLEAR(p->names);
    free(p->step);
    free(p);
}

/* places(fun, args, kw, registry) of the helper module; a new reference. */
static PyObject *
find_places(const ext_call_site *c)
{
    PyObject *module = PyImport_ImportModule("marram.core._captured");
    PyObject *registry = ext_tree_registry(), *r = NULL;

    if (module)
        r = PyObject_CallMethod(module, "places", "OOOO", c->fun, c->args,
                                c->kw ? c->kw : Py_None,
                                registry ? registry : Py_None);
    Py_XDECREF(module);
    return r;
}

static void
step_read(step *s, PyObject *t)
{
    s->holder = (int)PyLong_AsLong(PyTuple_GetItem(t, 0));
    s->key = PyTuple_GetItem(t, 1);
    s->kind = (step_kind)PyLong_AsLong(PyTuple_GetItem(t, 2));
    s->what = PyTuple_GetItem(t, 3);
    s->size = PyLong_AsSsize_t(PyTuple_GetItem(t, 4));
    if (s->kind == STEP_SEEN)
        s->seen = (int)PyLong_AsLong(s->what);
}

/* The plan of a call; *signature is a new reference. */
static ext_plan *
plan_new(const ext_call_site *c, PyObject **signature)
{
    PyObject *found = find_places(c);
    ext_plan *p = found ? calloc(1, sizeof *p) : NULL;
    Py_ssize_t n;

    if (!p) {
        Py_XDECREF(found);
        return NULL;
    }
    p->refs = 1;
    p->steps = Py_NewRef(PyTuple_GetItem(found, 0));
    p->names = Py_NewRef(PyTuple_GetItem(found, 1));
    *signature = Py_NewRef(PyTuple_GetItem(found, 2));
    Py_DECREF(found);
    n = PyList_Size(p->steps);
    p->step = calloc((size_t)n + 1, sizeof *p->step);
    for (; p->step && p->n < n; p->n++)
        step_read(&p->step[p->n], PyList_GetItem(p->steps, p->n));
    if (!p->step) {
        PyErr_NoMemory();
        Py_CLEAR(*signature);
        plan_free(p);
        return NULL;
    }
    return p;
}

/* Is v what a step expects? */
static bool
step_fits(const step *s, PyObject *v, PyObject *const *value)
{
    switch (s->kind) {
    case STEP_ARRAY:
    case STEP_FIXED:
        return v && ext_is_array(v);
    case STEP_NODE:
        if (!v || (PyObject *)Py_TYPE(v) != s->what)
            return false;
        if (s->size < 0)
            return true;
        return PyDict_Check(v) ? PyDict_Size(v) == s->size
                               : ext_sequence_size(v) == s->size;
    case STEP_OTHER:
        return v && (PyObject *)Py_TYPE(v) == s->what;
    case STEP_SEEN:
        return v && v == value[s->seen];
    case STEP_MISSING:
        return !v;
    case STEP_ARGUMENTS:
        return PyTuple_Size(v) == s->size;
    case STEP_KEYWORDS:
        return (v ? PyDict_Size(v) : 0) == s->size;
    case STEP_FUNCTION:
        break;
    }
    return true;
}

static PyObject *
root_of(const ext_call_site *c, step_kind kind)
{
    return kind == STEP_FUNCTION ? c->fun
                                 : (kind == STEP_ARGUMENTS ? c->args : c->kw);
}

/* What the steps hold now, new references in value[n]; false: something that
 * the plan does not expect. */
static bool
plan_read(const ext_plan *p, const ext_call_site *c, PyObject **value)
{
    bool fits = true;

    for (int i = 0; i < p->n; i++) {
        const step *s = &p->step[i];
        PyObject *holder = s->holder < 0 ? NULL : value[s->holder];

        if (s->holder < 0)
            value[i] = Py_XNewRef(root_of(c, s->kind));
        else
            value[i] = fits && holder ? value_at(holder, s->key) : NULL;
        fits = fits && step_fits(s, value[i], value);
    }
    return fits;
}

/* ---- as inputs ---------------------------------------------------------- */

/* So many kinds of places are known at once. */
enum { MAX_NUMBERS = 4096 };

void
ext_places_free(ext_places *p)
{
    while (p->n > 0)
        plan_free(p->plan[--p->n]);
    Py_CLEAR(p->numbers);
}

int
ext_places_visit(const ext_places *p, visitproc visit, void *arg)
{
    for (int i = 0; i < p->n; i++) {
        Py_VISIT(p->plan[i]->steps);
        Py_VISIT(p->plan[i]->names);
    }
    Py_VISIT(p->numbers);
    return 0;
}

/* Plans that find arrays at the same places have one number. */
static bool
plan_number(ext_places *all, ext_plan *p, PyObject *signature)
{
    PyObject *number;
    bool ok;

    if (!all->numbers && !(all->numbers = PyDict_New()))
        return false;
    number = Py_XNewRef(PyDict_GetItemWithError(all->numbers, signature));
    if (!number && !PyErr_Occurred()) {
        if (PyDict_Size(all->numbers) >= MAX_NUMBERS)
            PyDict_Clear(all->numbers);
        number = PyLong_FromLongLong(all->next++);
        if (number && PyDict_SetItem(all->numbers, signature, number) < 0)
            Py_CLEAR(number);
    }
    ok = number != NULL;
    if (ok)
        p->number = PyLong_AsLongLong(number);
    Py_XDECREF(number);
    return ok;
}

static void
values_end(ext_values *v)
{
    for (int i = 0; i < v->n; i++)
        Py_XDECREF(v->value[i]);
    free(v->value);
    v->value = NULL;
    v->n = 0;
}

/* 1: the plan's values are in v; 0: it does not fit; -1: an exception. */
static int
values_of(ext_values *v, const ext_plan *p, const ext_call_site *c)
{
    v->value = calloc((size_t)p->n + 1, sizeof(PyObject *));
    if (!v->value) {
        PyErr_NoMemory();
        return -1;
    }
    v->n = p->n;
    if (plan_read(p, c, v->value))
        return 1;
    values_end(v);
    return 0;
}

/* The arrays, what replaces them, and where. */
static bool
values_collect(ext_values *v, const ext_plan *p, ext_leaves *l)
{
    v->number = p->number;
    v->places = PyList_New(0);
    for (int i = 0; v->places && i < p->n; i++) {
        const step *s = &p->step[i];
        PyObject *t;

        if (s->kind != STEP_ARRAY)
            continue;
        t = PyTuple_Pack(3, v->value[s->holder], s->key, v->value[i]);
        if (!t || PyList_Append(v->places, t) < 0)
            Py_CLEAR(v->places);
        Py_XDECREF(t);
        if (v->places && !ext_leaves_add(l, mr_retain(ext_x(v->value[i]))))
            Py_CLEAR(v->places);
    }
    values_end(v);
    return v->places != NULL;
}

/* The plan goes first; the last of too many is forgotten. */
static void
plan_keep(ext_places *all, ext_plan *p)
{
    int at = 0;

    while (at < all->n && all->plan[at] != p)
        at++;
    if (at == all->n) {
        p->refs++;
        if (all->n == EXT_MAX_PLANS)
            plan_free(all->plan[--at]);
        else
            all->n++;
    }
    memmove(all->plan + 1, all->plan, (size_t)at * sizeof all->plan[0]);
    all->plan[0] = p;
}

/* A plan for what none that is known fits; a new reference. */
static ext_plan *
plan_make(ext_places *all, const ext_call_site *c)
{
    PyObject *signature = NULL;
    ext_plan *p = plan_new(c, &signature);

    if (p && !plan_number(all, p, signature)) {
        plan_free(p);
        p = NULL;
    }
    Py_XDECREF(signature);
    return p;
}

/* As values_of, and then the arrays.  Takes the caller's reference of p. */
static int
read_take(ext_places *all, ext_plan *p, const ext_call_site *c, ext_values *v,
          ext_leaves *l)
{
    int r = values_of(v, p, c);

    if (r > 0) {
        plan_keep(all, p);
        r = values_collect(v, p, l) ? 1 : -1;
    }
    plan_free(p);
    return r;
}

bool
ext_captured_read(ext_places *all, const ext_call_site *c, ext_values *v,
                  ext_leaves *l)
{
    ext_plan *p;
    int r = 0;

    for (int i = 0; r == 0 && i < all->n; i++) {
        p = all->plan[i];
        p->refs++;
        r = read_take(all, p, c, v, l);
    }
    if (r != 0)
        return r > 0;
    p = plan_make(all, c);
    if (!p)
        return false;
    r = read_take(all, p, c, v, l);
    if (r == 0)
        PyErr_SetString(PyExc_RuntimeError,
                        "what a compiled function captures changed while it "
                        "was looked at");
    return r > 0;
}

bool
ext_captured_fill(const ext_values *v, mr_array *const *x, int *next)
{
    bool ok = true;

    for (Py_ssize_t i = 0; ok && i < PyList_Size(v->places); i++) {
        PyObject *t = PyList_GetItem(v->places, i);
        PyObject *o = ext_wrap(mr_retain(x[(*next)++]));

        ok = o && set_at(PyTuple_GetItem(t, 0), PyTuple_GetItem(t, 1), o);
        Py_XDECREF(o);
    }
    return ok;
}

bool
ext_captured_restore(const ext_values *v)
{
    PyObject *type, *value, *traceback;
    bool ok = true;

    PyErr_Fetch(&type, &value, &traceback);
    for (Py_ssize_t i = 0; i < PyList_Size(v->places); i++) {
        PyObject *t = PyList_GetItem(v->places, i);

        if (set_at(PyTuple_GetItem(t, 0), PyTuple_GetItem(t, 1),
                   PyTuple_GetItem(t, 2)))
            continue;
        if (PyErr_ExceptionMatches(PyExc_IndexError)) {
            PyErr_Clear(); /* the function made a list shorter */
            continue;
        }
        ok = false;
        if (type)
            PyErr_Clear();
    }
    if (type)
        PyErr_Restore(type, value, traceback);
    return ok;
}

/* ---- as constants ------------------------------------------------------- */

/* Programs of one function whose places are watched. */
enum { MAX_WATCHED = 1024 };

/* Places that one call looks at. */
enum { LOOKS = 2 };

/* A place whose array a program keeps. */
typedef struct slot {
    step_kind root;
    PyObject *keys, *name; /* a tuple of keys from the root */
    int n_keys;
    const void *x; /* the array, as an address */
} slot;

struct ext_watch {
    int64_t id; /* of the trace */
    int n, next;
    slot slot[];
};

static void
watch_free(ext_watch *w)
{
    for (int i = 0; i < w->n; i++) {
        Py_XDECREF(w->slot[i].keys);
        Py_XDECREF(w->slot[i].name);
    }
    free(w);
}

void
ext_slots_free(ext_slots *s)
{
    while (s->n > 0)
        watch_free(s->watch[--s->n]);
    free(s->watch);
    s->watch = NULL;
    s->cap = 0;
}

int
ext_slots_visit(const ext_slots *s, visitproc visit, void *arg)
{
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->watch[i]->n; k++)
            Py_VISIT(s->watch[i]->slot[k].keys);
    return 0;
}

static bool
is_captured(const mr_call_results *r, const mr_array *x)
{
    for (int i = 0; i < r->n_captured; i++)
        if (r->captured[i] == x)
            return true;
    return false;
}

/* The way from a root to a step of a plan. */
static bool
slot_of(slot *s, const ext_plan *p, int at, const mr_array *x)
{
    PyObject *keys = PyList_New(0);
    bool ok = keys != NULL;

    *s = (slot){.x = x, .name = Py_NewRef(PyList_GetItem(p->names, at))};
    for (; ok && p->step[at].holder >= 0; at = p->step[at].holder)
        ok = PyList_Append(keys, p->step[at].key) == 0;
    s->root = p->step[at].kind;
    if (ok && PyList_Reverse(keys) == 0)
        s->keys = PyList_AsTuple(keys);
    s->n_keys = s->keys ? (int)PyTuple_Size(s->keys) : 0;
    Py_XDECREF(keys);
    return s->keys != NULL;
}

/* The watched places of one trace; NULL: none, or an exception. */
static ext_watch *
watch_new(const ext_plan *p, const ext_call_site *c, const mr_call_results *r)
{
    ext_values v = {0};
    ext_watch *w = NULL;
    int n = 0;

    if (values_of(&v, p, c) <= 0)
        return NULL;
    for (int i = 0; i < p->n; i++)
        n += p->step[i].kind <= STEP_FIXED && is_captured(r, ext_x(v.value[i]));
    if (n > 0)
        w = calloc(1, sizeof *w + (size_t)n * sizeof w->slot[0]);
    for (int i = 0; w && i < p->n; i++) {
        if (p->step[i].kind > STEP_FIXED || !is_captured(r, ext_x(v.value[i])))
            continue;
        if (!slot_of(&w->slot[w->n++], p, i, ext_x(v.value[i]))) {
            watch_free(w);
            w = NULL;
        }
    }
    values_end(&v);
    return w;
}

/* Ids grow, so that the list is sorted; the oldest is forgotten. */
static bool
watch_keep(ext_slots *s, ext_watch *w)
{
    int at = s->n;

    if (s->n == MAX_WATCHED) {
        watch_free(s->watch[0]);
        memmove(s->watch, s->watch + 1,
                (size_t)(s->n - 1) * sizeof s->watch[0]);
        at = --s->n;
    }
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 4;
        ext_watch **p = realloc(s->watch, (size_t)cap * sizeof(ext_watch *));
        if (!p)
            return false;
        s->watch = p;
        s->cap = cap;
    }
    while (at > 0 && s->watch[at - 1]->id > w->id)
        at--;
    memmove(s->watch + at + 1, s->watch + at,
            (size_t)(s->n - at) * sizeof s->watch[0]);
    s->watch[at] = w;
    s->n++;
    return true;
}

static ext_watch *
watch_of(const ext_slots *s, int64_t id)
{
    int low = 0, high = s->n;

    while (low < high) {
        int mid = low + (high - low) / 2;
        if (s->watch[mid]->id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n && s->watch[low]->id == id ? s->watch[low] : NULL;
}

bool
ext_slots_find(ext_slots *s, const ext_call_site *c, int64_t id,
               const mr_call_results *r)
{
    PyObject *signature = NULL;
    ext_plan *p;
    ext_watch *w = NULL;

    if (watch_of(s, id)) /* another thread's trace of the same call */
        return true;
    p = plan_new(c, &signature);
    if (p) {
        w = watch_new(p, c, r);
        plan_free(p);
    }
    Py_XDECREF(signature);
    if (w)
        w->id = id;
    if (w && !watch_keep(s, w))
        watch_free(w);
    /* odd objects may fail to be looked at: then nothing is watched */
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
    return !PyErr_Occurred();
}

/* What the place holds now where that is not the array, else NULL; None:
 * nothing.  A new reference. */
static PyObject *
other_value(const slot *s, const ext_call_site *c)
{
    PyObject *v = Py_XNewRef(root_of(c, s->root));

    for (int i = 0; v && i < s->n_keys; i++) {
        PyObject *holder = v;
        v = value_at(holder, PyTuple_GetItem(s->keys, i));
        Py_DECREF(holder);
    }
    if (v && ext_is_array(v) && ext_x(v) == s->x)
        Py_CLEAR(v);
    else if (!v)
        v = Py_NewRef(Py_None);
    return v;
}

static bool
warn(const slot *s, PyObject *fun, bool array)
{
    PyObject *name = PyObject_GetAttrString(fun, "__name__");
    int r;

    PyErr_Clear();
    r = PyErr_WarnFormat(
        PyExc_UserWarning, 1,
        "%S was compiled with the array that '%S' held and keeps it as a "
        "constant; '%S' %s, which has no effect. Pass it as an argument, name "
        "the list or dict that holds it in inputs=, or compile with "
        "captures=\"input\"",
        name ? name : fun, s->name, s->name,
        array ? "holds another array now" : "does not hold it any more");
    Py_XDECREF(name);
    return r == 0;
}

/* 0: it is as it was; else as ext_slots_check. */
static int
slot_check(ext_slots *s, const slot *at, const ext_call_site *c)
{
    PyObject *other = other_value(at, c);
    ext_slots old;
    bool said;

    if (!other)
        return 0;
    old = *s; /* a filter of warnings may run anything */
    *s = (ext_slots){0};
    said = warn(at, c->fun, ext_is_array(other));
    ext_slots_free(&old);
    Py_DECREF(other);
    return said ? 1 : -1;
}

int
ext_slots_check(ext_slots *s, const ext_call_site *c, int64_t id)
{
    int r = 0;

    for (int i = 0; r == 0 && i < LOOKS; i++) {
        ext_watch *w = watch_of(s, id);
        slot at;

        if (!w || i >= w->n)
            break;
        at = w->slot[w->next];
        w->next = w->next + 1 < w->n ? w->next + 1 : 0;
        Py_INCREF(at.keys);
        Py_INCREF(at.name);
        r = slot_check(s, &at, c);
        Py_DECREF(at.keys);
        Py_DECREF(at.name);
    }
    return r;
}

/* ---- what a trace was made for ------------------------------------------ */

void
ext_trace_note(PyObject *fun, PyObject *args, PyObject *kw)
{
    PyObject *module = PyImport_ImportModule("marram.core._captured");
    PyObject *text = module ? PyObject_CallMethod(module, "describe", "OOO",
                                                  fun, args, kw ? kw : Py_None)
                            : NULL;
    const char *s = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;

    mr_trace_note(s);
    PyErr_Clear(); /* it is for a message alone */
    Py_XDECREF(text);
    Py_XDECREF(module);
}
