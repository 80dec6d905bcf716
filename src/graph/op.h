/* SPDX-License-Identifier: Apache-2.0
 *
 * op.h -- the operator descriptor: all that the rest of the house knows of an
 * operator.
 *
 * One `const mr_op` stands beside the functions of each operator in its
 * family's file under ops/.  Transforms, planner, compiler and files ask the
 * descriptor and name no operator.
 */
#ifndef MR_GRAPH_OP_H
#define MR_GRAPH_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/node.h"
#include "marram/types.h"

/* ---- parameters ----------------------------------------------------------
 * A parameter struct is plain data; the table of its fields gives copying,
 * hashing, equality, printing and saving.  Tags are for ever, never reused. */
typedef enum mr_field_kind {
    MR_FIELD_BOOL,  /* bool */
    MR_FIELD_INT,   /* int64_t */
    MR_FIELD_FLOAT, /* double, compared by bits */
    MR_FIELD_DTYPE, /* mr_dtype */
    MR_FIELD_AXIS,  /* int32_t, >= 0 */
    MR_FIELD_AXES,  /* uint32_t, a bit for each axis */
    MR_FIELD_INTS,  /* mr_ints: copied with its numbers */
    MR_FIELD_DIM,   /* int64_t, a size */
    MR_FIELD_DIMS   /* mr_ints, sizes */
} mr_field_kind;

typedef struct mr_field {
    uint16_t tag;
    uint16_t offset;
    mr_field_kind kind;
    const char *name;
} mr_field;

#define MR_FIELD(tag_, kind_, struct_, member_)                                \
    {                                                                          \
        (tag_), (uint16_t)offsetof(struct_, member_), MR_FIELD_##kind_,        \
            #member_                                                           \
    }
/* A member of a part of the struct, under the member's name. */
#define MR_FIELD_OF(tag_, kind_, struct_, part_, member_)                      \
    {                                                                          \
        (tag_), (uint16_t)offsetof(struct_, part_.member_), MR_FIELD_##kind_,  \
            #member_                                                           \
    }

/* ---- rules ---------------------------------------------------------------
 * Rules run in the transform's scope, so temporaries need no release, and call
 * public operators.  They are asked for one input at a time. */
typedef struct mr_rule {
    const mr_node *node; /* params: mr__params(r->node) */
    int n_in, n_out;
    mr_array *const *primal;    /* the inputs */
    mr_array *const *output;    /* the outputs (n_out) */
    mr_array *const *cotangent; /* vjp: one for each output; never NULL
                                   (zeros where nothing came back) */
    mr_array *const *tangent;   /* jvp: one for each input, NULL: none */
    int which;                  /* jvp: the output asked for */
    struct mr_rule_memo *memo;  /* mr_rule_once */
    const struct mr_walk *walk; /* vjp: see mr__rule_wants; may be NULL */
} mr_rule;

/* A value made at most once for a node in a walk: slot is 0..3, fn makes it
 * (often a multi-output node whose results several inputs' rules share). */
mr_array *mr_rule_once(const mr_rule *r, int slot,
                       mr_array *(*fn)(const mr_rule *r));

/* Batching: inputs that are batched have the batch as axis 0; so must the
 * result (all outputs of a tuple). */
typedef struct mr_batch {
    const mr_node *node;
    int n_in;
    int64_t size;        /* of the batch axis */
    mr_array *const *in; /* batched ones have one axis more, in front */
    const bool *batched; /* at least one is true */
} mr_batch;

/* in[i] with the batch axis in front, broadcast when it was not batched. */
mr_array *mr__batch_in(const mr_batch *b, int i);

/* ---- fusion facts ---------------------------------------------------------
 */
typedef enum mr_fuse_kind {
    MR_FUSE_NONE = 0,
    MR_FUSE_ELEMENTWISE, /* k over inputs of one shape */
    MR_FUSE_REDUCTION,   /* k over the axes in params (mr_reduce_params) */
    MR_FUSE_VIEW,        /* .view gives the layout: no kernel when it can */
    /* a kernel that reads keys (..., 2) and gives streams of random words
     * (..., shape), of one byte, two or four: they may be made inside of what
     * reads them (kernels/draw.h) */
    MR_FUSE_DRAW
} mr_fuse_kind;

/* What every operator of kind MR_FUSE_REDUCTION has as params. */
typedef struct mr_reduce_params {
    uint32_t axes; /* a bit for each reduced axis */
    bool keepdims;
    int64_t ddof; /* unused by most */
} mr_reduce_params;

typedef struct mr_fuse {
    mr_fuse_kind kind;
    uint16_t k; /* mr_k */
} mr_fuse;

enum mr_op_flags {
    MR_FLAG_NOT_DIFFERENTIABLE = 1, /* says so when a derivative is wanted */
    MR_FLAG_ZERO_GRADIENT = 2, /* derivative is zero (floor, comparisons) */
    MR_FLAG_LINEAR = 4,        /* vjp is linear in the cotangent alone */
    MR_FLAG_IDENTITY = 8,      /* output is input 0, bit for bit */
    MR_FLAG_FORWARDS = 16      /* result k is input n_in - n_out + k, bit for
                                  bit: evaluation never runs the tuple */
};

/* The walks of the transforms. */
typedef enum mr_rule_kind {
    MR_RULE_VJP,
    MR_RULE_JVP,
    MR_RULE_VMAP
} mr_rule_kind;

/* An operator that brings its own execution (a compiled program): it is not
 * looked up in a device's kernel table, and runs on the device that it was made
 * for.  All are called with the node alive; run() and launch() by a task, under
 * no lock, with operands as a kernel gets them, inputs as they lie, on a device
 * with queues row-major (structs mr_kernel_args, mr_device_table:
 * eval/device.h). */
struct mr_kernel_args;
struct mr_device_table;
struct mr_arena;
typedef struct mr_op_exec {
    int n_host; /* inputs, from the first, that stay on the host */
    /* run() and landed() are told which inputs have no elements; else none of
     * the results has when an input has none. */
    bool does_without;
    const struct mr_device_table *(*device)(const mr_node *n);
    /* What runs over inputs that lie so (no data pointers, no outputs) need:
     * the node's, or in this arena, which lives until the run is over.  Input
     * i may be written over when bit i of `given` is set.  Under the plan
     * lock.  NULL with the error set. */
    const void *(*plan)(const mr_node *n, const struct mr_kernel_args *a,
                        uint64_t given, struct mr_arena *arena);
    /* The same for inputs that nothing is written over, without the plan lock
     * and memory: NULL, with no error, when it takes either.  May be NULL. */
    const void *(*plan_kept)(const mr_node *n, const struct mr_kernel_args *a);
    /* the input whose memory output k takes, -1: memory of its own */
    int (*lies_in)(const void *plan, int k);
    size_t (*workspace)(const void *plan);
    double (*cost)(const void *plan); /* nanoseconds, estimated */
    /* MR_OK also when data is bad: a->partial says then which results have no
     * elements; others have theirs. */
    mr_code (*run)(const void *plan, const struct mr_kernel_args *a);
    /* Of a device with queues: is input i taken as it lies?  Else it is made
     * row-major. */
    bool (*as_it_lies)(const mr_node *n, int i);
    /* Of a device with queues: puts it into one.  `memory` has launch_bytes
     * bytes, zeros, and lives until what was launched has run. */
    size_t (*launch_bytes)(const void *plan);
    mr_code (*launch)(const void *plan, const struct mr_kernel_args *a,
                      void *queue, void *memory);
    /* What was launched has run, as far as it was: a->partial says what has
     * come of it, as after run().  Always called; `memory` is zeros when
     * launch() was not. */
    mr_code (*landed)(const void *plan, const struct mr_kernel_args *a,
                      void *memory);
} mr_op_exec;

/* A result whose elements are elements of input 0 at places that input 1 has:
 * for each axis of the result the axis of the input along which it goes, or
 * -1. */
typedef struct mr_gather_map {
    int32_t axis; /* of input 0: the indexed one */
    int8_t value[MR_MAX_NDIM], index[MR_MAX_NDIM];
} mr_gather_map;

/* A result that is input 0 but for one entry of each line along an axis, where
 * input 1 says: that has input 2 there, or the sum of both. */
typedef struct mr_put_map {
    int32_t axis;
    bool adds;
} mr_put_map;

struct mr_op {
    uint16_t id; /* MR_OP_..., for ever */
    uint8_t version;
    int8_t n_in;   /* -1: variadic */
    uint8_t n_out; /* 0 counts as 1 */
    uint8_t flags;
    uint8_t n_fields;
    uint16_t params_bytes;
    const char *name;
    const char *label; /* what messages call it, NULL: by its name */
    const mr_field *fields;
    mr_fuse fuse;
    /* dtype and shape of each output from the call; out has n_out entries */
    mr_code (*infer)(const mr_op_call *c, mr_aval *out);
    /* d(output)/d(primal[i]) applied to the cotangents, with the shape and
     * dtype of primal[i]; MR_NONE: zero. */
    mr_array *(*vjp)(const mr_rule *r, int i);
    /* the part of tangent[i] in the tangent of output r->which; MR_NONE:
     * zero. */
    mr_array *(*jvp)(const mr_rule *r, int i);
    /* Elementwise operators: the derivative by input i at the primals.  Only
     * the rules that they share read it (MR__SLOPED, ops/rules.h). */
    mr_array *(*slope)(const mr_rule *r, int i);
    /* the batched result, batch axis in front (the tuple node for several) */
    mr_array *(*vmap)(const mr_batch *b);
    /* how many of its inputs, from the first, a walk of this kind follows;
     * NULL: all.  What the others depend on must be among these. */
    int (*follows)(const mr_node *n, mr_rule_kind kind);
    /* the layout of the output over the buffer of input 0; false: the
     * operator needs a copy (its kernel is then asked). */
    bool (*view)(const mr_node *n, const mr_layout *in, mr_layout *out);
    /* a gather that can be read element by element, inside of what reads its
     * result; false: this one cannot */
    bool (*gather)(const mr_node *n, mr_gather_map *out);
    /* one entry of each line is put into it, or NULL; false: not this node */
    bool (*put)(const mr_node *n, mr_put_map *out);
    const mr_op_exec *exec; /* NULL: the device's kernel table */
};

static inline const void *
mr__params(const mr_node *n)
{
    return n->params;
}

/* From the fields: */
uint64_t mr__params_hash(const mr_op *op, const void *p, uint64_t seed);
bool mr__params_equal(const mr_op *op, const void *a, const void *b);
/* "axes=3, keepdims=true" into buf; returns buf. */
const char *mr__params_text(const mr_op *op, const void *p, char *buf,
                            size_t cap);

/* All descriptors by id (generated from api/): NULL where there is none. */
extern const mr_op *const mr__op_table[];
extern const int mr__op_count;

static inline const char *
mr__op_label(const mr_op *op)
{
    return op->label != NULL ? op->label : op->name;
}

/* The five that the graph itself needs. */
extern const mr_op mr__op_data;        /* holds data, no inputs */
extern const mr_op mr__op_placeholder; /* tracer without value */
extern const mr_op mr__op_tracer;      /* identity, input 0 */
extern const mr_op mr__op_output;      /* projection: params mr_output_params */
extern const mr_op mr__op_result;      /* projection of a tuple that forwards:
                                          input 0 is its value, the tuple its shadow;
                                          params mr_output_params */
typedef struct mr_output_params {
    int64_t index;
} mr_output_params;

/* An operator over the entries of a batch as one node: what vmap makes of an
 * operator without a rule (transform/loop.c).  Inputs: a holder that keeps the
 * mr_loop alive, then the operator's, with the batch in front where batched
 * says so; outputs: the operator's with the batch in front.  A device has a
 * kernel for it. */
enum { MR_ID_LOOP = 373 };
typedef struct mr_loop {
    mr_array *entry; /* the operator over placeholders shaped as one entry */
    bool *batched;   /* for each of its inputs */
    int64_t size;
} mr_loop;
typedef struct mr_loop_params {
    int64_t loop; /* the address of the mr_loop */
} mr_loop_params;
static inline const mr_loop *
mr__loop_at(const mr_loop_params *p)
{
    return (const mr_loop *)(intptr_t)p->loop;
}
extern const mr_op mr__op_loop;
/* The tuple node of b's operator over its batch. */
mr_array *mr__loop(const mr_batch *b);

/* vmap of elementwise operators: lines the batch axes up. */
mr_array *mr__vmap_elementwise(const mr_batch *b);

#endif
