/* SPDX-License-Identifier: Apache-2.0
 *
 * tape_steps.h -- the inside of a tape: what tape.c records, size.c computes
 * with and play.c plays.
 */
#ifndef MR_GRAPH_TAPE_STEPS_H
#define MR_GRAPH_TAPE_STEPS_H

#include "base/arena.h"
#include "base/map.h"
#include "base/vec.h"
#include "graph/tape.h"
#include "marram/size.h"

/* More sizes than a handle can name, and the tape is closed to them. */
#define MR_TAPE_MAX_SIZES (((size_t)1 << 24) - 1)

typedef enum mr_tape_step_kind {
    STEP_CALL,
    STEP_TRANSFORM, /* and the steps of its function, up to `end` */
    STEP_DIM,       /* a size is the size of `axis` of value `x` */
    STEP_MATH,      /* or `op` of a and b */
    STEP_COMPARE    /* a branch: whether a `relation` b */
} mr_tape_step_kind;

/* A tree: its structure over stand-ins, and its leaves as the tape has them. */
typedef struct mr_kept_tree {
    mr_tree *shape;
    mr_array **leaf;
    int n;
} mr_kept_tree;

/* A transform, and what its function was given and gave. */
typedef struct mr_kept_transform {
    mr_tape_transform given; /* without trees */
    mr_kept_tree tree[2], out;
    uint32_t grad_mode;
    int first_in; /* number of the first value that the function gets */
    size_t end;
} mr_kept_transform;

typedef struct mr_tape_step {
    mr_tape_step_kind kind;
    /* calls */
    const mr_tape_door *door;
    const char *site;
    uint32_t stream;
    void *given; /* or an mr_kept_transform */
    int n_out;   /* results, the next values */
    /* sizes */
    int32_t x, axis;
    mr_size_op op;
    mr_scalar a, b;
    mr_size_relation relation;
    bool outcome;
} mr_tape_step;

struct mr_tape {
    mr_arena arena;
    mr_vec steps;
    mr_map number; /* array -> value number + 1, while it is open */
    mr_vec values; /* the arrays, retained while it is open */
    mr_vec consts; /* retained */
    mr_vec trees;  /* structures, retained */
    mr_vec sizes;  /* mr_scalar: what they are in the trace */
    int n_values;
    int *out; /* value numbers, or -1 - k: constant k */
    int n_out;
    uint64_t serial; /* in the place that it has in a handle */
    uint32_t depth;  /* of traces */
    const char *frozen;
};

static inline mr_scalar
mr__size_integer(int64_t v)
{
    return (mr_scalar){.kind = MR_SCALAR_INT, .as.i = v};
}

static inline mr_scalar
mr__size_real(double v)
{
    return (mr_scalar){.kind = MR_SCALAR_FLOAT, .as.f = v};
}

/* What the sizes are: in the trace, or where a tape is played. */
typedef struct mr_sizes {
    const mr_tape *t;
    mr_scalar *now; /* NULL: those of the trace */
} mr_sizes;

/* Arguments filled in: sizes, and arrays by number. */
typedef struct mr_filling {
    mr_sizes sizes;
    mr_array *const *value; /* NULL: arrays are themselves */
    mr_arena *arena;
} mr_filling;

/* ---- tape.c ---------------------------------------------------------------
 */

mr_tape_step *mr__tape_step(mr_tape *t, mr_tape_step_kind kind);
void mr__tape_freeze(mr_tape *t, const char *why);
/* Can a step be recorded: not inside a transform of its own. */
bool mr__tape_is_open(const mr_tape *t);
/* The number of a value, or -1. */
int64_t mr__tape_number(const mr_tape *t, const mr_array *x);
mr_array *mr__tape_array(const mr_filling *f, mr_array *x);
/* The door, with its arguments filled in; no tape is open in it. */
void *mr__tape_call_door(const mr_tape_door *d, const char *site,
                         const void *given, const mr_filling *f);

/* ---- size.c ---------------------------------------------------------------
 */

mr_scalar mr__size_now(const mr_sizes *s, mr_scalar v);
double mr__size_double(mr_scalar v);
mr_code mr__size_compute(mr_size_op op, mr_scalar a, mr_scalar b,
                         mr_scalar *out);
bool mr__size_holds(mr_scalar a, mr_size_relation r, mr_scalar b);
/* In the place that it has in a handle. */
uint64_t mr__size_serial(void);

#endif
