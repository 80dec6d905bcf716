/* SPDX-License-Identifier: Apache-2.0
 *
 * tape.h -- what a shapeless trace did, so that it can be done again at other
 * sizes.
 *
 * While a tape is open on a thread (mr__ctx.tape) every front door that is not
 * called by another one leaves a step: its arguments as they were given, with
 * sizes as handles.  Playing the tape over other placeholders calls the same
 * doors with the sizes that now hold: so promotion, broadcasting, inference
 * and whatever else a door computes from shapes happens anew, and no
 * operator's parameters need to be understood.
 *
 * A tape that cannot say all (an array that no door gave, a size read as a
 * plain number) is *frozen*: it holds for the shapes of its trace alone.
 */
#ifndef MR_GRAPH_TAPE_H
#define MR_GRAPH_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/context.h"
#include "marram/transform.h"
#include "marram/types.h"

typedef enum mr_tape_kind {
    MR_TAPE_PLAIN,  /* no size: copied */
    MR_TAPE_ARRAY,  /* mr_array * */
    MR_TAPE_ARRAYS, /* mr_array *const *, with an int at `count` */
    MR_TAPE_INT,    /* int64_t */
    MR_TAPE_INTS,   /* mr_shape or mr_ints */
    MR_TAPE_AXES,   /* mr_axes */
    MR_TAPE_FLOAT,  /* double */
    MR_TAPE_SCALAR, /* mr_scalar */
    MR_TAPE_TEXT    /* const char * */
} mr_tape_kind;

typedef struct mr_tape_arg {
    mr_tape_kind kind;
    uint16_t at, count; /* offsets in the struct of arguments */
} mr_tape_arg;

/* A front door as data. */
typedef struct mr_tape_door {
    /* Calls it with a struct of arguments: an array, or a tree. */
    void *(*call)(const char *site, const void *given);
    const mr_tape_arg *arg;
    uint16_t n_args, bytes;
    bool gives_tree;
} mr_tape_door;

typedef struct mr_tape mr_tape;

/* A transform as data: what it is given besides the function. */
typedef struct mr_tape_transform {
    /* Calls it with another function in the place of the user's. */
    mr_tree *(*call)(const struct mr_tape_transform *given, mr_fn fn, void *ctx,
                     bool foreign);
    const mr_tree *tree[2]; /* the second may be NULL */
    const int32_t *list[2];
    int n[2];
    int kind;
} mr_tape_transform;

mr_tape *mr__tape_new(void);
void mr__tape_free(mr_tape *t);
/* Open on this thread, at the trace that is now the innermost; x: the
 * placeholders, in order. */
bool mr__tape_open(mr_tape *t, mr_array *const *x, int n);
/* Closed: out are the results.  False: no memory. */
bool mr__tape_close(mr_tape *t, mr_array *const *out, int n);
/* Why it is frozen; NULL: it is not. */
const char *mr__tape_frozen(const mr_tape *t);
size_t mr__tape_bytes(const mr_tape *t);
/* The results over other placeholders, under the open scope, like those of
 * any front door.  *fits: false when another branch is taken at these
 * sizes. */
bool mr__tape_play(const mr_tape *t, mr_array *const *x, int n, mr_array **out,
                   int n_out, bool *fits);

/* ---- what front doors call while a tape is open -------------------------- */
void *mr__tape_call(const mr_tape_door *d, const char *site, const void *given);
/* The same for a transform: its function's own steps are recorded inside. */
mr_tree *mr__tape_call_transform(const mr_tape_transform *given, mr_fn fn,
                                 void *ctx, bool foreign);
/* A size of x was read as a plain number. */
void mr__tape_read(const mr_array *x);
bool mr__tape_is_size(mr_scalar v);

#endif
