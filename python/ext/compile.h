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
/* Bytes that tell templates apart; other objects count by identity. */
PyObject *ext_key_of_template(PyObject *structure);
/* A dict with its text keys in order. */
PyObject *ext_sorted_dict(PyObject *dict);

/* As ext_key_add, for captured state: leaves that are no arrays count by
 * their values where they have one, else by identity. */
bool ext_state_key(ext_key *k, PyObject *state, ext_leaves *l);
/* Puts arrays into the containers, in the order in which they were found. */
bool ext_state_fill(PyObject *state, mr_array *const *x, int *next);
/* What the containers of two states (NULL: none) hold now, and putting it
 * back, which keeps an exception that is set. */
PyObject *ext_state_save(PyObject *a, PyObject *b);
void ext_state_restore(PyObject *saved);
/* Makes the containers hold what a tree of the same kinds holds. */
bool ext_state_write(PyObject *state, PyObject *tree);

/* ---- captured arrays (captured.c) ---------------------------------------- */

/* What the places of fun hold now, as a list; they are found at the first
 * call. */
bool ext_captured_read(PyObject *fun, PyObject **places, PyObject **values);
/* The arrays of such a list into their places. */
bool ext_captured_write(PyObject *places, PyObject *values);

/* A place whose array a program keeps. */
typedef struct ext_slot {
    PyObject *holder, *key, *name;
    const void *x; /* the array, as an address */
} ext_slot;

typedef struct ext_slots {
    ext_slot *slot;
    int n, next;
} ext_slots;

void ext_slots_free(ext_slots *s);
bool ext_slots_find(ext_slots *s, PyObject *fun, const mr_call_results *r);
/* Looks at the next slot; says once when it holds another array.  False with
 * an exception. */
bool ext_slots_check(ext_slots *s, PyObject *fun);

/* Tells C what the trace that begins is made for. */
void ext_trace_note(PyObject *fun, PyObject *args, PyObject *kw);

#endif
