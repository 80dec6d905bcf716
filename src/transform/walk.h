/* SPDX-License-Identifier: Apache-2.0
 *
 * walk.h -- the part of a graph that depends on the tracers of one trace, in
 * topological order, with a place for a value beside each output of each
 * node.
 *
 * Reverse mode keeps cotangents there, forward mode tangents, vmap batched
 * values.  A walk keeps its nodes until it is closed.
 */
#ifndef MR_TRANSFORM_WALK_H
#define MR_TRANSFORM_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/map.h"
#include "base/vec.h"
#include "graph/node.h"
#include "graph/op.h"
#include "marram/types.h"

typedef struct mr_walk {
    mr_rule_kind kind;
    uint64_t trace;
    size_t n, cap;
    mr_node **node;      /* references; the tracers first, then inputs before
                            users */
    size_t *first;       /* n + 1: where a node's places begin */
    mr_array **value;    /* first[n] places, each NULL or a reference */
    mr_array **output;   /* the array of each place, or NULL: borrowed */
    mr_vec made;         /* references: projections that the walk made */
    mr_map index;        /* node -> its number, see mr__walk_find */
    uint64_t live_trace; /* an outer trace known to be live */
} mr_walk;

#define MR_WALK_NONE SIZE_MAX

/* Fill w (zero-initialised) from the outputs down to the tracers.  Iterative,
 * linear in the nodes visited.  On failure w is still to be closed. */
mr_code mr__walk_open(mr_walk *w, mr_rule_kind kind, uint64_t trace,
                      mr_array *const *tracer, size_t n_tracers,
                      mr_array *const *out, size_t n_out);
/* The node's number, or MR_WALK_NONE when it does not depend on the tracers. */
size_t mr__walk_find(const mr_walk *w, const mr_node *x);
/* The value beside output 0 of a single-valued node, or NULL. */
mr_array *mr__walk_value(const mr_walk *w, const mr_node *x);
/* After the trace has ended: let the evaluated nodes drop their inputs. */
void mr__walk_sweep(mr_walk *w);
void mr__walk_close(mr_walk *w);

/* Is this node a projection of a tuple, and of which of its results? */
static inline bool
mr__is_output(const mr_node *x)
{
    return x->op == &mr__op_output || x->op == &mr__op_result;
}
static inline mr_node *
mr__output_tuple(const mr_node *x)
{
    return x->in[mr__n_edges(x) - 1];
}
int mr__output_index(const mr_node *x);

/* ---- a node's rule at work ------------------------------------------------
 * Between enter and leave, what is made belongs to one scope and carries the
 * site and the stream of the node. */
typedef struct mr_rule_frame {
    mr_scope scope;
    const char *site;
    uint32_t stream;
    struct mr__door door;
} mr_rule_frame;

mr_code mr__rule_enter(mr_rule_frame *f, const mr_node *x);
void mr__rule_leave(mr_rule_frame *f);

/* What mr_rule_once keeps: references, dropped by mr__rule_memo_clear. */
#define MR_RULE_SLOTS 4
struct mr_rule_memo {
    mr_array *value[MR_RULE_SLOTS];
    mr_array **list; /* NULL, or n_list references: what a rule makes for all
                        inputs at once, NULL entries for zero */
    int n_list;
};
/* vjp: is the part of input j asked for in this walk? */
bool mr__rule_wants(const mr_rule *r, int j);
void mr__rule_memo_clear(struct mr_rule_memo *m);

/* The results of node number i: itself, or its projections, made where the
 * walk met none.  NULL on failure; kept by the walk. */
mr_array *const *mr__walk_outputs(mr_walk *w, size_t i);

/* dtype of result k of a node. */
mr_dtype mr__result_dtype(const mr_node *x, int k);
/* Zeros and ones shaped as result k of a node. */
mr_array *mr__result_zeros(const mr_node *x, int k);
mr_array *mr__result_ones(const mr_node *x, int k);
/* *place += x (takes no reference of x; *place is a reference or NULL). */
mr_code mr__accumulate(mr_array **place, mr_array *x);
/* The same of what a rule gave: NULL has set an error, MR_NONE is nothing. */
mr_code mr__accumulate_part(mr_array **place, mr_array *part);
/* What a rule gave for `like`: cast to its dtype, checked for its shape.
 * NULL passes through with the node named. */
mr_array *mr__rule_result(const mr_node *x, mr_array *got, mr_dtype dtype,
                          int32_t ndim, const int64_t *dim, const char *what);

/* ---- modes ----------------------------------------------------------------
 */
/* Pull `seed` (NULL entries: none) from the outputs back to the tracers; the
 * value beside each tracer is then its cotangent, NULL for zero. */
mr_code mr__walk_backward(mr_walk *w, size_t n_tracers, mr_array *const *out,
                          mr_array *const *seed, size_t n_out);
/* Push the tangents in the tracers' places (NULL: zero) forward. */
mr_code mr__walk_forward(mr_walk *w, size_t n_tracers);
/* Replay with the batched values in the tracers' places. */
mr_code mr__walk_batch(mr_walk *w, size_t n_tracers, int64_t size);

/* Whether an operator has a rule of its own for a transform. */
bool mr__op_has_rule(const mr_op *op, mr_rule_kind kind);

#endif
