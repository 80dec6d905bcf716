/* SPDX-License-Identifier: Apache-2.0
 *
 * compile.h -- between compile.c and key.c, state.c: the bytes of a call, and
 * captured state.
 */
#ifndef MARRAM_PYTHON_COMPILE_H
#define MARRAM_PYTHON_COMPILE_H

#include "ext.h"

/* Bytes that grow; small ones lie in `own`. */
typedef struct ext_key {
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

#endif
