/* SPDX-License-Identifier: Apache-2.0
 *
 * compile.h -- between compile.c and key.c, state.c: the bytes of a call, and
 * captured state.
 */
#ifndef MARRAM_PYTHON_COMPILE_H
#define MARRAM_PYTHON_COMPILE_H

#include "ext.h"

#include "marram/compile.h"

/* Hashable objects that were arguments of one compiled function, each with a
 * number that is never used again. */
typedef struct ext_statics {
    PyObject *by_value;    /* dict: (class, object) to number, or NULL */
    PyObject *by_identity; /* WeakKeyDictionary: object to number, or NULL */
    int64_t next;
} ext_statics;

/* Bytes that grow; small ones lie in `own`. */
typedef struct ext_key {
    ext_statics *statics; /* NULL: other objects are refused */
    char *p;
    size_t n, cap;
    char own[256];
} ext_key;

/* Adds a tree: its containers, the values of its leaves, its arrays to l.  A
 * leaf that is no array, number or text is a ValueError. */
bool ext_key_add(ext_key *k, PyObject *tree, ext_leaves *l);
void ext_key_free(ext_key *k);
/* Adds a number that tells calls apart. */
bool ext_key_number(ext_key *k, int64_t n);
/* Bytes that tell templates apart; other objects count by identity. */
PyObject *ext_key_of_template(PyObject *structure);
/* A dict with its text keys in order. */
PyObject *ext_sorted_dict(PyObject *dict);

/* As ext_key_add, for captured state: leaves that are no arrays count by
 * their values where they have one, else by identity. */
bool ext_state_key(ext_key *k, PyObject *state, ext_leaves *l);
/* Can all arrays in it be replaced?  Else ValueError, with `what` in it. */
bool ext_state_check(PyObject *state, const char *what);
/* Puts arrays into the containers, in the order in which they were found. */
bool ext_state_fill(PyObject *state, mr_array *const *x, int *next);
/* What the containers of two states (NULL: none) hold now, and putting it
 * back, which keeps an exception that is set. */
PyObject *ext_state_save(PyObject *a, PyObject *b);
void ext_state_restore(PyObject *saved);
/* Makes the containers hold what a tree of the same kinds holds. */
bool ext_state_write(PyObject *state, PyObject *tree);

/* ---- captured arrays (captured.c) ---------------------------------------- */

/* A call, as far as places are found from it; kw may be NULL. */
typedef struct ext_call_site {
    PyObject *fun, *args, *kw;
} ext_call_site;

/* The ways to the places that calls of one shape have. */
typedef struct ext_plan ext_plan;

enum { EXT_MAX_PLANS = 8 };

typedef struct ext_places {
    ext_plan *plan[EXT_MAX_PLANS]; /* the last one that fitted first */
    int n;
    PyObject *numbers; /* dict: what tells plans apart to their numbers */
    int64_t next;
} ext_places;

/* What the places of one call hold. */
typedef struct ext_values {
    PyObject **value;
    int n;
    int64_t number;   /* tells calls apart that find arrays elsewhere */
    PyObject *places; /* list of (holder, key, array) */
} ext_values;

void ext_places_free(ext_places *p);
int ext_places_visit(const ext_places *p, visitproc visit, void *arg);
/* Reads the places of a call and adds their arrays to l. */
bool ext_captured_read(ext_places *all, const ext_call_site *c, ext_values *v,
                       ext_leaves *l);
/* Puts arrays into the places, or back what they held (which keeps an
 * exception that is set). */
bool ext_captured_fill(const ext_values *v, mr_array *const *x, int *next);
bool ext_captured_restore(const ext_values *v);

/* The places whose arrays programs keep, by trace. */
typedef struct ext_watch ext_watch;

typedef struct ext_slots {
    ext_watch **watch;
    int n, cap;
} ext_slots;

void ext_slots_free(ext_slots *s);
int ext_slots_visit(const ext_slots *s, visitproc visit, void *arg);
/* After a trace: the places of what it captured. */
bool ext_slots_find(ext_slots *s, const ext_call_site *c, int64_t id,
                    const mr_call_results *r);
/* Looks at some places of a trace.  1: one holds another array, which was said
 * (nothing is watched any more); -1: an exception. */
int ext_slots_check(ext_slots *s, const ext_call_site *c, int64_t id);

/* Tells C what the trace that begins is made for. */
void ext_trace_note(PyObject *fun, PyObject *args, PyObject *kw);

#endif
