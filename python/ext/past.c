/* SPDX-License-Identifier: Apache-2.0
 *
 * past.c -- array objects that were updated in place go back when the update
 * fails.
 *
 * x[i] = v and x += y put a node into the object that is computed later, and
 * may fail then.  Once the failure has been raised, wherever it surfaced, the
 * object has the value from before: a node that failed keeps its inputs
 * (mr_array_former).  It stays an error where no value is left: when later work
 * of the same evaluation has the memory of an update that was pending too, when
 * all was assigned to (x[:] = v), which keeps nothing of what was, and when the
 * last 4,096 updates at most do not lead to it.  What an object had is noted
 * without a reference, since one would forbid the update to lie over the old
 * value: a note is looked for among the inputs of the node that replaced it and
 * read only when found there. That node was made while the noted one lived, so
 * nothing else in what it is computed from has that address.  All here is
 * guarded by the GIL.
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

enum { FEW = 3, MOST = 4096 };

struct ext_past {
    ext_array_object *of;
    struct ext_past *prev, *next;
    bool failed; /* its last update, with the error that is raised */
    int n, cap;
    mr_array **was; /* the values, each replaced by the next; not owned */
    mr_array *few[FEW];
};

static struct ext_past *first;

static struct ext_past *
past_of(ext_array_object *o)
{
    struct ext_past *p = o->past;

    if (p)
        return p;
    p = malloc(sizeof *p);
    if (!p)
        return NULL;
    *p = (struct ext_past){.of = o, .next = first, .cap = FEW};
    p->was = p->few;
    if (first)
        first->prev = p;
    first = p;
    o->past = p;
    return p;
}

static void
unlink_past(struct ext_past *p)
{
    *(p->prev ? &p->prev->next : &first) = p->next;
    if (p->next)
        p->next->prev = p->prev;
    p->of->past = NULL;
}

static void
free_past(struct ext_past *p)
{
    if (p->was != p->few)
        free(p->was);
    free(p);
}

void
ext_past_drop(ext_array_object *o)
{
    struct ext_past *p = o->past;

    if (p) {
        unlink_past(p);
        free_past(p);
    }
}

/* Room for one more; the oldest go when there are too many. */
static bool
has_room(struct ext_past *p)
{
    mr_array **more;

    if (p->n < p->cap)
        return true;
    if (p->n == MOST) {
        p->n = MOST / 2;
        memmove(p->was, p->was + MOST / 2, (size_t)p->n * sizeof *p->was);
        return true;
    }
    p->cap = p->cap < 64 ? 64 : MOST;
    more = p->was == p->few ? malloc((size_t)p->cap * sizeof *more)
                            : realloc(p->was, (size_t)p->cap * sizeof *more);
    if (!more) {
        p->cap = p->n;
        return false;
    }
    if (p->was == p->few)
        memcpy(more, p->few, sizeof p->few);
    p->was = more;
    return true;
}

void
ext_past_note(ext_array_object *o)
{
    struct ext_past *p = past_of(o);

    if (!p)
        return;
    /* asked after the node that replaces it was made: see above */
    if (mr_array_is_evaluated(o->x))
        p->n = 0;
    if (has_room(p))
        p->was[p->n++] = o->x;
    else
        p->n = 0;
}

void
ext_past_fail(const mr_error *why)
{
    for (struct ext_past *p = first; p; p = p->next)
        p->failed = p->failed || mr_array_failed(p->of->x, why);
}

/* Can what failed like this be asked again? */
static bool
is_passing(mr_code code)
{
    return code == MR_E_MEMORY || code == MR_E_CANCELLED ||
           code == MR_E_DEVICE || code == MR_E_STATE;
}

/* Of the values that led to x, which failed: the newest that is there or can be
 * computed, a reference.  NULL: none is left. */
static mr_array *
newest(const struct ext_past *p, mr_array *x)
{
    mr_array *y = mr_retain(x);

    for (int n = p->n; n-- > 0;) {
        mr_array *older = mr_array_former(y, p->was[n]);

        mr_release(y);
        y = older;
        if (!y || mr_eval(y) == MR_OK || is_passing(mr_error_take().code))
            return y;
    }
    mr_release(y);
    return NULL;
}

/* The GIL may be given up meanwhile: the object, and what it had, are kept. */
static void
go_back(struct ext_past *p)
{
    ext_array_object *o = (ext_array_object *)Py_NewRef((PyObject *)p->of);
    mr_array *x = mr_retain(o->x), *y;

    unlink_past(p);
    y = newest(p, x);
    if (y && o->x == x) {
        o->x = y;
        y = x; /* the object's reference */
    }
    mr_release(y);
    mr_release(x);
    free_past(p);
    Py_DECREF(o);
}

void
ext_past_restore(void)
{
    PyObject *type, *value, *trace;
    struct ext_past *p = first;

    while (p && !p->failed)
        p = p->next;
    if (!p)
        return;
    PyErr_Fetch(&type, &value, &trace);
    while (p) {
        bool failed = p->failed;

        if (failed)
            go_back(p);
        p = failed ? first : p->next;
    }
    PyErr_Restore(type, value, trace);
}
