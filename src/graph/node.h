/* SPDX-License-Identifier: Apache-2.0
 *
 * node.h -- the node: an operator applied to inputs, and the array that the
 * user holds.
 *
 * An mr_array *is* a node.  An operator with several results makes one node
 * that holds the tuple, and one projection (mr__op_output) for each result, so
 * that every walk meets single-valued nodes alone.
 *
 * References.  `refs` packs two counts: the low 38 bits count every
 * reference (edges from other nodes, scopes, running tasks, users), the high
 * 24 bits those that belong to users, so that releasing what a scope owns is
 * detected.  What is made starts with one reference of no class; the scope or
 * the caller takes it.  The two bits between them are those of arrays that are
 * lent to calls: such have readers that are not counted (lend.h).
 *
 * State.  src/eval/README.md has the table of transitions.  Everything under
 * "fixed" is written before the node is published and never changes; the
 * inputs may be dropped once the node is done (see mr__node_inputs).
 */
#ifndef MR_GRAPH_NODE_H
#define MR_GRAPH_NODE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "array/buffer.h"
#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "graph/context.h"
#include "marram/types.h"

typedef struct mr_op mr_op;
typedef mr_array mr_node;

typedef enum mr_state {
    MR_NEW = 0,       /* a recipe */
    MR_SUBMITTED = 1, /* a task will fill it */
    MR_DONE = 2,      /* buffer, offset, strides are valid */
    MR_FAILED = 3     /* error is valid */
} mr_state;
/* Set in `state` beside MR_SUBMITTED while somebody waits. */
#define MR_STATE_WAITED 0x80u
/* Set beside MR_NEW by a planner: only under the plan lock will the node leave
 * it (eval/alone.h). */
#define MR_STATE_PLANNED 0x40u
/* Set beside MR_SUBMITTED by the thread that computes the node alone: its
 * memory is not said before it is done. */
#define MR_STATE_ALONE 0x20u
/* Set beside MR_DONE of a node whose memory later work of its window was
 * planned to take, after the last reader: who still has the node, since a
 * reader failed, finds other values there (eval/former.c). */
#define MR_STATE_GIVEN 0x10u
#define MR_STATE_MASK  0x0fu

enum mr_node_flags {
    MR_NODE_PLACEHOLDER = 1, /* a tracer without a value: cannot evaluate */
    MR_NODE_TUPLE = 2,       /* has several outputs: only projections read it */
    MR_NODE_SCALAR_CONST = 4, /* a 0-d value known at creation: constants in
                                 fused code */
    MR_NODE_SHADOW = 8,       /* in[n_in] is one edge more, which transforms
                                 follow in place of the others and evaluation
                                 does not see */
    MR_NODE_TRACER = 16,      /* stands for a differentiated argument */
    MR_NODE_ALONE = 32,       /* a result of an operator that brings its own
                                 execution: may be computed by one thread without
                                 the plan lock (eval/alone.h) */
    MR_NODE_BORROWS = 64 /* some of its inputs are noted, not counted: behind
                            its edges stands where (lend.h); a tuple */
};

/* A result of a tuple node.  dtype, ndim, dim are fixed; dim has ndim dims,
 * then ndim strides; the rest is filled as the node's own fields are. */
typedef struct mr_tuple_out {
    mr_dtype dtype;
    int32_t ndim;
    int64_t size;
    int64_t *dim;
    mr_buffer *buffer;
    int64_t offset;
} mr_tuple_out;

/* What threads read that use one array lies a cache line away from its count of
 * references, which they all change. */
struct mr_array {
    _Atomic uint64_t refs;
    _Atomic uint32_t scoped; /* references that scopes own: they do not make
                                an interior node worth keeping; relaxed, a
                                hint that only the owner thread changes */
    _Atomic uint32_t caller; /* the first thread that called a compiled function
                                with it, 0: none; relaxed */
    const mr_op *op;
    const char *site;       /* "file:line", immortal; NULL when unknown */
    const void *params;     /* inside this block */
    mr_error_record *error; /* as buffer below */
    mr_tuple_out *tuple;    /* tuple nodes: n_out results, inside this block */
    void *plan; /* scratch of the planner, NULL outside a plan: guarded
                   by the plan lock */
    _Atomic uint8_t state; /* mr_state, and MR_STATE_... */
    uint8_t dtype;         /* mr_dtype */
    uint8_t ndim;
    uint8_t flags; /* fixed */
    uint16_t n_in;
    uint16_t n_out; /* outputs of a tuple node, else 1 */
    uint32_t stream;
    uint32_t depth; /* fixed: the longest chain of new nodes below it when it
                       was made, at most (some may be done since) */
    uint64_t trace; /* 0, or the outermost trace that it depends on */
    int64_t size;   /* elements */
    mr_array **in;  /* inside this block; entries NULL once detached */
    int64_t *dim;   /* ndim dims, then ndim strides, inside this block */
    /* Written before the release store of MR_DONE / MR_FAILED, or by the
     * holder of the plan lock before MR_SUBMITTED. */
    mr_buffer *buffer;
    int64_t offset; /* elements */
};
_Static_assert(offsetof(struct mr_array, state) >=
                   offsetof(struct mr_array, refs) + 64,
               "no line has both");

static inline int64_t *
mr__strides(const mr_array *x)
{
    return x->dim + x->ndim;
}

/* Edges of the node, the shadow included. */
static inline int
mr__n_edges(const mr_array *x)
{
    return x->n_in + ((x->flags & MR_NODE_SHADOW) != 0);
}

/* No result of the node has elements: there is nothing to compute. */
static inline bool
mr__node_is_empty(const mr_array *x)
{
    if (!(x->flags & MR_NODE_TUPLE))
        return x->size == 0;
    for (int k = 0; k < x->n_out; k++)
        if (x->tuple[k].size != 0)
            return false;
    return true;
}

/* acquire: pairs with the release store of the one who filled the node. */
static inline mr_state
mr__state(const mr_array *x)
{
    return (mr_state)(atomic_load_explicit(&x->state, memory_order_acquire) &
                      MR_STATE_MASK);
}

/* ---- making -------------------------------------------------------------- */

/* A call before it is a node: what infer sees. */
typedef struct mr_op_call {
    const mr_op *op;
    const void *params;
    int n_in;
    mr_array *const *in;
    uint64_t lend; /* inputs, by bit, that may be lent to the node (lend.h) */
} mr_op_call;

/* An abstract value: what infer gives. */
typedef struct mr_aval {
    mr_dtype dtype;
    int32_t ndim;
    int64_t dim[MR_MAX_NDIM];
} mr_aval;

/* The node of an operator: runs infer, copies params (deep, by its fields),
 * retains the inputs, takes site, stream and trace from the thread.  A node
 * with several outputs comes back as its tuple: use mr__node_output.  The
 * result is under the open scope or the caller's (mr__scope_own).  NULL on
 * failure, as of an operator with parameters that gets none. */
mr_array *mr__node_new(const mr_op *op, const void *params, int n_in,
                       mr_array *const *in);
/* The same where the call, not the operator, says how many results there are:
 * always a tuple node, infer fills n_out values. */
mr_array *mr__node_tuple(const mr_op *op, const void *params, int n_in,
                         mr_array *const *in, int n_out);
/* The same without parameters; the inputs with a bit in `lend` may be lent to
 * it. */
mr_array *mr__node_tuple_lent(const mr_op *op, int n_in, mr_array *const *in,
                              int n_out, uint64_t lend);
/* x's operator over other inputs of the same dtypes and shapes, at x's site and
 * on its stream; x depends on nothing that is still traced.  A tuple gives a
 * tuple. */
mr_array *mr__node_like(const mr_array *x, mr_array *const *in);
/* The same without infer, for elementwise operators whose inputs have one
 * shape already. */
mr_array *mr__node_elementwise(const mr_op *op, mr_dtype out, int n_in,
                               mr_array *const *in);
/* Result k of a tuple node.  Of a tuple that forwards (MR_FLAG_FORWARDS) it is
 * a view of the input that it forwards, with the tuple as its shadow. */
mr_array *mr__node_output(mr_array *tuple, int k);
/* A done node over a buffer (takes the reference of the buffer, also when it
 * fails).  strides NULL: row-major. */
mr_array *mr__node_data(mr_dtype t, int32_t ndim, const int64_t *dim,
                        const int64_t *stride, mr_buffer *b, int64_t offset);
/* A 0-d constant that lives in its node. */
mr_array *mr__node_scalar(mr_dtype t, const void *bits);
/* A tracer: no value, op mr__op_placeholder.  It remembers whose function is
 * traced (mr__ctx.no_eval): mr__placeholder_of, NULL when unknown. */
mr_array *mr__node_placeholder(mr_dtype t, int32_t ndim, const int64_t *dim,
                               uint64_t trace);
static inline const char *
mr__placeholder_of(const mr_array *x)
{
    return x->params;
}
/* A tracer that has the value of x (an identity node; x's graph is not
 * entered by walks that stop at tracers of their own). */
mr_array *mr__node_tracer(mr_array *x, uint64_t trace);

void mr__aval_like(mr_aval *out, const mr_array *x);
void mr__aval_shape(mr_aval *out, mr_dtype t, int32_t ndim, const int64_t *dim);

/* `bytes` bytes that a task will fill: the copy of a buffer elsewhere.  It has
 * no inputs, state MR_NEW and one plain reference, which is the caller's. */
mr_array *mr__node_pending(size_t bytes, uint32_t stream, const char *site);

/* A chain of new nodes this long is told once, or, with a limit of the user's,
 * evaluated: see deep.c. */
#define MR_DEEP 100000u
extern _Atomic uint32_t mr__deep_limit; /* relaxed: a setting */
/* x, not published yet, is deeper than the limit: it gets its true depth, or
 * what is below it is noted (mr__ctx.deep). */
void mr__node_deep(mr_array *x);
/* Starts the evaluation of what was noted, if this is the place: at the end of
 * what users call, with no lock held.  False: the wait for room was cancelled,
 * the error is set, and the call is to fail. */
bool mr__deep_evaluate(void);
/* How many were started. */
uint64_t mr__deep_evaluations(void);

/* The elements of a done scalar constant or NULL. */
const void *mr__scalar_const(const mr_array *x);

/* ---- references ----------------------------------------------------------
 * One reference of no class; iterative, never under a lock that user code
 * could want. */
#define MR_REF_ONE  ((uint64_t)1)
#define MR_REF_USER (((uint64_t)1 << 40) | 1)
/* All references that are counted. */
#define MR_REF_TOTAL (((uint64_t)1 << 38) - 1)
/* Once set, for ever: there may be readers that are not counted. */
#define MR_REF_LENT ((uint64_t)1 << 39)
/* Who has the last reference that is counted looks for others (release.c). */
#define MR_REF_ASKED ((uint64_t)1 << 38)

static inline mr_array *
mr__retain(mr_array *x)
{
    /* relaxed: whoever retains already has a reference */
    atomic_fetch_add_explicit(&x->refs, MR_REF_ONE, memory_order_relaxed);
    return x;
}
void mr__release(mr_array *x); /* NULL is allowed */

static inline uint64_t
mr__ref_total(const mr_array *x)
{
    return atomic_load_explicit(&x->refs, memory_order_relaxed) & MR_REF_TOTAL;
}

/* Are these n references all that anybody has?  For who has all of them. */
static inline bool
mr__refs_are(const mr_array *x, uint64_t n)
{
    /* acquire: pairs with the releases of those who had one */
    return (atomic_load_explicit(&x->refs, memory_order_acquire) &
            (MR_REF_TOTAL | MR_REF_LENT)) == n;
}

/* Drop the inputs of a node that is done.  The caller is the worker that has
 * just stored MR_DONE, or holds the plan lock. */
void mr__node_detach(mr_array *x);

/* Nodes made since the process began: exact for those of this thread, others'
 * may lag behind by up to 1,023 each. */
uint64_t mr__nodes_made(void);

/* Set once by eval before any evaluation: drops the inputs of those of the n
 * nodes that are done and depend on no live trace (it takes the plan lock).
 * NULL: nothing evaluates.  Called by transforms after their trace ended; the
 * caller has references of its own to the nodes. */
extern void (*mr__graph_detach_hook)(mr_array *const *nodes, size_t n);

/* Set once by eval: brings the elements of a done array that lie on a device to
 * the host, and waits; to be written there as well, from then on, when
 * `writable`. */
extern mr_code (*mr__graph_host_hook)(mr_array *x, bool writable);
/* Where the host's copy of a device's buffer begins: after the hook above. */
extern const char *(*mr__graph_host_data_hook)(const mr_buffer *b);

#endif
